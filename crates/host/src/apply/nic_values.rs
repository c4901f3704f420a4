//! Settings of an interface that are one value in one request ([`NicValue`]): the conversion between the kernel's
//! value and the setting's.

use linerate_model::host::QueueKind;
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Known};
use linerate_model::setting::{
    FEC_AUTO, LinkSpeed, NicKnob, SettingKey, Value, dcb_value, egress_words, fec_words, key_words,
    link_words, parse_applications, parse_classes, parse_egress, parse_key, parse_priorities,
    parse_rates, parse_table, table_words,
};

use super::write_error::{WriteError, as_count, as_switch, as_text, misfit, not_supported};
use crate::nic_control::{Moderation, NicRead, NicValue, SuperPacket};

/// The interface's value; none for any other setting.
pub(super) fn read(
    nics: &dyn NicRead,
    key: &SettingKey,
    nic: &NicName,
    knob: &NicKnob,
) -> Option<Known<Value>> {
    let count = |number: &Known<u32>| {
        let number = number.clone();
        number.map(|number| Value::Integer(u64::from(number)))
    };
    let absent = |why: &str| Known::unknown(Cause::Absent, key.to_string(), why);
    Some(match knob {
        NicKnob::CoalesceAdaptiveTx => nics
            .coalesce(nic)
            .and_then(|coalesce| coalesce.adaptive_tx.map(Value::Switch)),
        NicKnob::CoalesceRxFrames => nics.coalesce(nic).and_then(|all| count(&all.rx_frames)),
        NicKnob::CoalesceTxFrames => nics.coalesce(nic).and_then(|all| count(&all.tx_frames)),
        NicKnob::TcpDataSplit => nics.tcp_data_split(nic).map(Value::Text),
        NicKnob::LinkAutoneg => nics
            .link_modes(nic)
            .and_then(|modes| modes.autoneg.map(Value::Switch)),
        NicKnob::LinkSpeed => nics
            .link_modes(nic)
            .and_then(|modes| link_words(&modes).map(Value::Text)),
        NicKnob::PauseAutoneg => nics
            .pause(nic)
            .and_then(|pause| pause.autoneg.map(Value::Switch)),
        NicKnob::PauseRx => nics
            .pause(nic)
            .and_then(|pause| pause.rx.map(Value::Switch)),
        NicKnob::PauseTx => nics
            .pause(nic)
            .and_then(|pause| pause.tx.map(Value::Switch)),
        NicKnob::Eee => nics.eee(nic).and_then(|eee| eee.enabled.map(Value::Switch)),
        NicKnob::Fec => nics.fec(nic).map(|fec| Value::Text(fec_words(&fec))),
        NicKnob::DcbPfc | NicKnob::DcbEts | NicKnob::DcbMaxRate | NicKnob::DcbApp => {
            nics.dcb(nic).and_then(|dcb| dcb_value(&dcb, knob))
        }
        NicKnob::VlanEgress => nics.vlan_egress(nic).map(|map| {
            let map = map.into_iter().collect();
            Value::Text(egress_words(&map))
        }),
        NicKnob::QueueUsecs(kind, index) => nics
            .queue_coalesce(nic, *index)
            .and_then(|own| count(own.usecs(*kind))),
        NicKnob::QueueFrames(kind, index) => nics
            .queue_coalesce(nic, *index)
            .and_then(|own| count(own.frames(*kind))),
        NicKnob::QueueAdaptive(kind, index) => nics
            .queue_coalesce(nic, *index)
            .and_then(|own| own.adaptive(*kind).clone().map(Value::Switch)),
        NicKnob::PrivateFlag(name) => nics.private_flags(nic).and_then(|all| {
            let flag = all.get(name).copied();
            flag.map_or_else(
                || absent("the driver has no such flag"),
                |on| Known::Value(Value::Switch(on)),
            )
        }),
        NicKnob::RssKey => nics.rss_key(nic).map(|key| Value::Text(key_words(&key))),
        NicKnob::RssTable => nics
            .rss(nic)
            .and_then(|rss| rss.table.map(|table| Value::Text(table_words(&table)))),
        NicKnob::RssFields(kind) => nics.rss(nic).and_then(|rss| {
            rss.fields.and_then(|fields| match fields.get(kind) {
                Some(letters) => Known::Value(Value::Text(letters.clone())),
                None => absent("the driver hashes no such kind of flow"),
            })
        }),
        knob => {
            let which = super_packet(knob)?;
            let bytes = nics.super_packet(nic, which);
            bytes.map(|bytes| Value::Integer(u64::from(bytes)))
        }
    })
}

/// The kernel's value for `value`; none for any other setting.
pub(super) fn to_set<'v>(
    nics: &dyn NicRead,
    key: &SettingKey,
    nic: &NicName,
    knob: &'v NicKnob,
    value: &'v Value,
) -> Option<Result<NicValue<'v>, WriteError>> {
    let switch = || as_switch(key, value);
    let text = || as_text(key, value);
    let frames = |kind| as_count(key, value).map(|frames| NicValue::Frames(kind, frames));
    let of_queue = NicValue::QueueModeration;
    let or_misfit = |told: Option<NicValue<'v>>| told.ok_or_else(|| misfit(key, value));
    Some(match knob {
        NicKnob::CoalesceAdaptiveTx => switch().map(NicValue::AdaptiveTx),
        NicKnob::TcpDataSplit => text().and_then(|word| {
            let is_known = ["on", "off", "auto"].contains(&word);
            or_misfit(is_known.then_some(NicValue::TcpDataSplit(word)))
        }),
        NicKnob::LinkAutoneg => switch().map(NicValue::Autoneg),
        NicKnob::LinkSpeed => {
            text().and_then(|text| or_misfit(LinkSpeed::parse(text).map(NicValue::LinkSpeed)))
        }
        NicKnob::PauseAutoneg => switch().map(NicValue::PauseAutoneg),
        NicKnob::PauseRx | NicKnob::PauseTx if is_negotiated(nics, nic) => {
            let why = "pause frames are autonegotiated: set pause/autoneg to off first";
            Err(not_supported(key, why))
        }
        NicKnob::PauseRx => switch().map(NicValue::PauseRx),
        NicKnob::PauseTx => switch().map(NicValue::PauseTx),
        NicKnob::CoalesceRxFrames => frames(QueueKind::Rx),
        NicKnob::CoalesceTxFrames => frames(QueueKind::Tx),
        NicKnob::QueueUsecs(kind, index) => {
            as_count(key, value).map(|usecs| of_queue(*kind, *index, Moderation::Usecs(usecs)))
        }
        NicKnob::QueueFrames(kind, index) => {
            as_count(key, value).map(|frames| of_queue(*kind, *index, Moderation::Frames(frames)))
        }
        NicKnob::QueueAdaptive(kind, index) => {
            switch().map(|on| of_queue(*kind, *index, Moderation::Adaptive(on)))
        }
        NicKnob::DcbPfc => {
            text().and_then(|text| or_misfit(parse_priorities(text).map(NicValue::Pfc)))
        }
        NicKnob::DcbEts => {
            text().and_then(|text| or_misfit(parse_classes(text).map(NicValue::Ets)))
        }
        NicKnob::DcbMaxRate => {
            text().and_then(|text| or_misfit(parse_rates(text).map(NicValue::MaxRate)))
        }
        NicKnob::DcbApp => {
            text().and_then(|text| or_misfit(parse_applications(text).map(NicValue::Applications)))
        }
        NicKnob::VlanEgress => {
            text().and_then(|text| or_misfit(parse_egress(text).map(NicValue::VlanEgress)))
        }
        NicKnob::Eee => switch().map(NicValue::Eee),
        NicKnob::Fec => text().map(|modes| {
            let modes = modes.split_whitespace().filter(|mode| *mode != FEC_AUTO);
            NicValue::Fec(modes.collect())
        }),
        NicKnob::PrivateFlag(name) => switch().map(|on| NicValue::PrivateFlag(name, on)),
        NicKnob::RssTable => text().and_then(|text| {
            let table = parse_table(text);
            or_misfit(table.map(|table| {
                let is_default = is_default(&table, receive_queues(nics, nic));
                NicValue::RssTable(table, is_default)
            }))
        }),
        NicKnob::RssKey => text().and_then(|text| or_misfit(parse_key(text).map(NicValue::RssKey))),
        NicKnob::RssFields(kind) => text().map(|letters| NicValue::RssFields(kind, letters)),
        knob => {
            let which = super_packet(knob)?;
            as_count(key, value).map(|bytes| NicValue::SuperPacket(which, bytes))
        }
    })
}

fn super_packet(knob: &NicKnob) -> Option<SuperPacket> {
    match knob {
        NicKnob::GsoMaxBytes => Some(SuperPacket::Gso),
        NicKnob::GsoIpv4MaxBytes => Some(SuperPacket::GsoIpv4),
        NicKnob::GroMaxBytes => Some(SuperPacket::Gro),
        NicKnob::GroIpv4MaxBytes => Some(SuperPacket::GroIpv4),
        _ => None,
    }
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
