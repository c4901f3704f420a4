//! Reads and writes the settings of an interface that are not files. Most are a part of what one request reports, and
//! one attribute of another request: their rows say which. The others are converted here.

use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Known};
use linerate_model::setting::numbers::link;
use linerate_model::setting::{
    Access, Domain, EthtoolRequest, FEC_AUTO, Fact, LinkSpeed, NicKnob, SettingKey, Value,
    address_words, class_rule_words, egress_text, key_words, parse_addresses, parse_applications,
    parse_class_rules, parse_classes, parse_egress, parse_key, parse_priorities, parse_rates,
    parse_table, parse_vlan_link, vlan_link_words,
};

use super::files;
use super::settings::NO_READER;
use super::write_error::{
    WriteError, as_count, as_qdisc, as_switch, as_text, misfit, not_supported, refused,
};
use crate::nic_control::{Loss, Moderation, NicRead, NicValue, NicWrite, Scalar};
use crate::root::HostRoot;

/// The current value of an interface's setting.
pub(super) fn read(
    root: &HostRoot,
    nics: &dyn NicRead,
    key: &SettingKey,
    nic: &NicName,
    knob: &NicKnob,
) -> Known<Value> {
    let spec = knob.spec();
    if let Access::Link(attribute) = spec.access
        && let Some(number) = nics.link_number(nic, attribute)
    {
        return number.map(|number| Value::Integer(u64::from(number)));
    }
    let word = knob.word().unwrap_or_default();
    let value = match (knob, spec.fact) {
        (NicKnob::Mtu, _) => files::read(root, &files::mtu(nic)),
        (NicKnob::Qdisc, _) => nics.qdisc(nic).map(Value::Qdisc),
        (NicKnob::TcpDataSplit, _) => nics.tcp_data_split(nic).map(Value::Text),
        (NicKnob::VlanLink, _) => nics
            .vlan_link(nic)
            .map(|link| Value::Text(vlan_link_words(link.as_ref()))),
        (NicKnob::Up, _) => nics.is_up(nic).map(Value::Switch),
        (NicKnob::Addresses, _) => nics
            .static_addresses(nic)
            .map(|all| Value::Text(address_words(&all))),
        (NicKnob::ClassRules, _) => nics
            .class_rules(nic)
            .map(|rules| Value::Text(class_rule_words(&rules))),
        (NicKnob::VlanEgress, _) => nics.vlan_egress(nic).and_then(|map| egress_text(&map)),
        (NicKnob::RssKey, _) => nics.rss_key(nic).map(|key| Value::Text(key_words(&key))),
        (_, Fact::Features(field)) => nics.features(nic).and_then(|all| field.read(&all, &word)),
        (_, Fact::PrivateFlags(field)) => nics
            .private_flags(nic)
            .and_then(|all| field.read(&all, &word)),
        (_, Fact::Coalesce(field)) => nics.coalesce(nic).and_then(|all| field.read(&all, &word)),
        (_, Fact::Rings(field)) => nics.rings(nic).and_then(|rings| field.read(&rings, &word)),
        (_, Fact::Channels(field)) => nics
            .channels(nic)
            .and_then(|channels| field.read(&channels, &word)),
        (_, Fact::LinkModes(field)) => nics
            .link_modes(nic)
            .and_then(|modes| field.read(&modes, &word)),
        (_, Fact::Pause(field)) => nics.pause(nic).and_then(|pause| field.read(&pause, &word)),
        (_, Fact::Eee(field)) => nics.eee(nic).and_then(|eee| field.read(&eee, &word)),
        (_, Fact::Fec(field)) => nics.fec(nic).and_then(|fec| field.read(&fec, &word)),
        (_, Fact::Dcb(field)) => nics.dcb(nic).and_then(|dcb| field.read(&dcb, &word)),
        (_, Fact::Rss(field)) => nics.rss(nic).and_then(|rss| field.read(&rss, &word)),
        (_, Fact::Stack(field)) => field.read(&nics.stack(nic), &word),
        (_, Fact::QueueCoalesce(field)) => match knob.queue() {
            Some(queue) if files::has_queue(root, nic, queue) => {
                let own = nics.queue_coalesce(nic, queue.1);
                own.and_then(|own| field.read(&own, &word))
            }
            _ => Known::unknown(Cause::Absent, key.to_string(), "no such queue"),
        },
        _ => Known::unknown(Cause::NotAsked, key.to_string(), NO_READER),
    };
    Fact::named(value, key)
}

/// Sets an interface's setting.
pub(super) fn write(
    root: &HostRoot,
    nics: &dyn NicWrite,
    key: &SettingKey,
    nic: &NicName,
    knob: &NicKnob,
    value: &Value,
) -> Result<(), WriteError> {
    let wanted = match knob.spec().access {
        Access::Ethtool(request, attribute) => {
            if matches!(knob, NicKnob::PauseRx | NicKnob::PauseTx) && is_negotiated(nics, nic) {
                let why = "pause frames are autonegotiated: set pause/autoneg to off first";
                return Err(not_supported(key, why));
            }
            let scalar = match knob.spec().domain {
                Domain::Switch => Scalar::Switch(as_switch(key, value)?),
                _ => Scalar::Number(as_count(key, value)?),
            };
            NicValue::Ethtool(request, attribute, scalar)
        }
        Access::Link(attribute) => NicValue::Link(attribute, as_count(key, value)?),
        _ => to_set(root, nics, key, nic, knob, value)?,
    };
    let answer = nics.set_value(nic, &wanted);
    answer.map_err(|source| refused(key, value, request_of(&wanted).to_owned(), source))
}

/// Creates a VLAN device, with its former index if that is free, or removes it.
pub(super) fn write_link(
    nics: &dyn NicWrite,
    key: &SettingKey,
    nic: &NicName,
    value: &Value,
    index: Option<u32>,
) -> Result<(), WriteError> {
    let link = parse_vlan_link(as_text(key, value)?).ok_or_else(|| misfit(key, value))?;
    let wanted = NicValue::VlanLink(link, index);
    let answer = nics.set_value(nic, &wanted);
    answer.map_err(|source| refused(key, value, request_of(&wanted).to_owned(), source))
}

/// What could not be restored after a change of `key` to `to`; none if all could.
pub(super) fn lost_with(nics: &dyn NicRead, key: &SettingKey, to: &Value) -> Option<String> {
    let SettingKey::Nic(nic, knob) = key else {
        return None;
    };
    let what = match (knob, to) {
        (NicKnob::VlanLink, _) if nics.kind(nic).value().is_some() => Loss::Device,
        (NicKnob::Up, Value::Switch(false)) => Loss::Routes,
        _ => return None,
    };
    match nics.lost_without(nic, what) {
        Known::Value(lost) => lost,
        Known::Unknown(gap) => Some(gap.to_string()),
    }
}

/// The request that was refused, as shown in an error.
fn request_of(value: &NicValue<'_>) -> &'static str {
    match value {
        NicValue::Ethtool(request, ..) => match request {
            EthtoolRequest::LinkModes => "ethtool link modes",
            EthtoolRequest::Rings => "ethtool rings",
            EthtoolRequest::Channels => "ethtool channels",
            EthtoolRequest::Coalesce => "ethtool coalesce",
            EthtoolRequest::Pause => "ethtool pause",
            EthtoolRequest::Eee => "ethtool EEE",
        },
        NicValue::Feature(..) => "ethtool features",
        NicValue::Link(..) | NicValue::VlanEgress(_) | NicValue::VlanLink(..) | NicValue::Up(_) => {
            "rtnetlink link"
        }
        NicValue::Addresses(_) => "rtnetlink address",
        NicValue::ClassRules(_) => "nf_tables",
        NicValue::Qdisc(_) => "rtnetlink qdisc",
        NicValue::Pfc(_) | NicValue::Ets(_) | NicValue::MaxRate(_) | NicValue::Applications(_) => {
            "rtnetlink DCB"
        }
        _ => "ethtool",
    }
}

/// The minimum MTU of an interface with IPv6 (RFC 8200, section 5; `addrconf_notify`, net/ipv6/addrconf.c).
const IPV6_MTU_MIN: u32 = 1280;

/// The kernel's value for `value`, of a setting with a conversion of its own.
fn to_set<'v>(
    root: &HostRoot,
    nics: &dyn NicRead,
    key: &SettingKey,
    nic: &NicName,
    knob: &'v NicKnob,
    value: &'v Value,
) -> Result<NicValue<'v>, WriteError> {
    let text = || as_text(key, value);
    let count = || as_count(key, value);
    let switch = || as_switch(key, value);
    let parsed = match knob {
        NicKnob::Mtu => {
            let mtu = count()?;
            if mtu < IPV6_MTU_MIN && root.exists(&format!("proc/sys/net/ipv6/conf/{nic}")) {
                let why = "below 1280 bytes the kernel removes IPv6 from the interface, with \
                    addresses and settings that cannot be restored";
                return Err(not_supported(key, why));
            }
            Some(NicValue::Link(link::MTU, mtu))
        }
        NicKnob::Feature(name) => Some(NicValue::Feature(name, switch()?)),
        NicKnob::PrivateFlag(name) => Some(NicValue::PrivateFlag(name, switch()?)),
        NicKnob::Qdisc => Some(NicValue::Qdisc(as_qdisc(key, value)?)),
        NicKnob::TcpDataSplit => {
            let word = text()?;
            let is_known = ["on", "off", "auto"].contains(&word);
            is_known.then_some(NicValue::TcpDataSplit(word))
        }
        NicKnob::LinkSpeed => LinkSpeed::parse(text()?).map(NicValue::LinkSpeed),
        NicKnob::DcbPfc => parse_priorities(text()?).map(NicValue::Pfc),
        NicKnob::DcbEts => parse_classes(text()?).map(NicValue::Ets),
        NicKnob::DcbMaxRate => parse_rates(text()?).map(NicValue::MaxRate),
        NicKnob::DcbApp => parse_applications(text()?).map(NicValue::Applications),
        NicKnob::VlanLink => parse_vlan_link(text()?).map(|link| NicValue::VlanLink(link, None)),
        NicKnob::Up => Some(NicValue::Up(switch()?)),
        NicKnob::Addresses => parse_addresses(text()?).map(NicValue::Addresses),
        NicKnob::ClassRules => parse_class_rules(text()?).map(NicValue::ClassRules),
        NicKnob::VlanEgress => parse_egress(text()?).map(NicValue::VlanEgress),
        NicKnob::Fec => {
            let modes = text()?.split_whitespace();
            let modes = modes.filter(|mode| *mode != FEC_AUTO);
            Some(NicValue::Fec(modes.collect()))
        }
        NicKnob::RssTable => parse_table(text()?).map(|table| {
            let is_default = is_default(&table, receive_queues(nics, nic));
            NicValue::RssTable(table, is_default)
        }),
        NicKnob::RssKey => parse_key(text()?).map(NicValue::RssKey),
        NicKnob::RssFields(kind) => Some(NicValue::RssFields(kind, text()?)),
        knob => {
            let one = match knob {
                NicKnob::QueueRxUsecs(_) | NicKnob::QueueTxUsecs(_) => Moderation::Usecs(count()?),
                NicKnob::QueueRxFrames(_) | NicKnob::QueueTxFrames(_) => {
                    Moderation::Frames(count()?)
                }
                _ => Moderation::Adaptive(switch()?),
            };
            let queue = knob.queue();
            queue.map(|(kind, index)| NicValue::QueueModeration(kind, index, one))
        }
    };
    parsed.ok_or_else(|| misfit(key, value))
}

fn receive_queues(nics: &dyn NicRead, nic: &NicName) -> Option<u32> {
    let channels = nics.channels(nic);
    let channels = channels.value()?;
    let count = |number: &Known<u32>| number.get().unwrap_or(0);
    Some(count(&channels.combined) + count(&channels.rx))
}

/// Whether the table is the kernel's default (`ethtool_rxfh_indir_default`): all queues in turn.
fn is_default(table: &[u32], queues: Option<u32>) -> bool {
    queues.is_some_and(|queues| table.iter().copied().eq(0..queues))
}

/// Whether pause is autonegotiated.
pub(super) fn is_negotiated(nics: &dyn NicRead, nic: &NicName) -> bool {
    let pause = nics.pause(nic);
    pause.value().and_then(|pause| pause.autoneg.get()) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_all_queues_in_turn_are_the_kernels_default() {
        let table = |words| parse_table(words).expect("a table");
        assert!(is_default(&table("equal 4"), Some(4)));
        assert!(!is_default(&table("0x32 1x32 2x32 3x32"), Some(4)));
        assert!(!is_default(&table("equal 2"), Some(4)));
        assert!(!is_default(&table("equal 4"), None));
    }
}
