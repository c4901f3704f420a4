//! `rss-table-uneven`: the RSS indirection table skips or favors queues. Facts from
//! Documentation/networking/scaling.rst, "RSS: Receive Side Scaling".

use std::collections::BTreeMap;

use super::spreading::{channel_count, in_use, needed};
use super::{ALWAYS, Draft, each_nic, found, remedy, subject, undetermined};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Nic, QueueKind};
use crate::setting::{Class, NicKnob, SettingKey, Value};
use crate::units::real;

pub(super) const RULE: Rule = Rule {
    id: "rss-table-uneven",
    number: 10,
    status: Status::Implemented,
    title: "the RSS indirection table skips or favors queues",
    severity: Severity::Warn,
    stage: Stage::Locality,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "a queue without an entry (if fewer than 16 have one), or with more than 1.5 times the entries \
                of another and more than one entry apart",
    effect: "a queue without an entry leaves a core idle; with one queue in the table the NIC uses one queue",
    source: "Documentation/networking/scaling.rst; Documentation/networking/ethtool-netlink.rst \
             (RSS_GET); Xilinx-CNS/onload#208",
    fix: Fix::Proposed(&[Class::R2]),
    persist: "a systemd unit at boot and after every channel change",
    contested: None,
    page: include_str!("../../../../docs/rules/rss-table-uneven.md"),
    check,
};

/// The maximum ratio between the entries of two queues.
const UNEVEN: f64 = 1.5;

/// Some NICs hash to at most this many queues, however many they have (from memory, not verified): then unused queues
/// are no fault.
const HARDWARE_LIMIT: usize = 16;

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    each_nic(rule, context, |nic| check_nic(rule, context, nic))
}

fn check_nic(rule: &Rule, context: &Context<'_>, nic: &Nic) -> Option<Outcome> {
    let listed = in_use(nic, QueueKind::Rx).len();
    if !nic.kind.has_wire() || listed < 2 {
        return None;
    }
    let unsure = |gap| {
        Some(undetermined(
            rule,
            context,
            subject(nic),
            vec![needed(gap)?],
        ))
    };
    let table = match nic.dispatch.rss.ok().and_then(|rss| rss.table.ok()) {
        Ok(table) => table,
        // A NIC without an indirection table has nothing to set.
        Err(gap) => return unsure(gap),
    };
    let queues = match nic.channels.ok() {
        Ok(channels) => channel_count(channels, QueueKind::Rx).map_or(listed, |n| n as usize),
        // sysfs may list unused queues, which would appear to be skipped.
        Err(gap) if needed(gap).is_some() => return unsure(gap),
        Err(_) => listed,
    };
    let mut entries: BTreeMap<u32, u64> = BTreeMap::new();
    for queue in table {
        *entries.entry(*queue).or_default() += 1;
    }
    let queues = queues.min(table.len());
    let most = entries.values().copied().max()?;
    let least = entries.values().copied().min()?;
    let left_out = entries.len() < queues && entries.len() < HARDWARE_LIMIT;
    let uneven = most > least + 1 && real(most) > UNEVEN * real(least);
    let why = match (left_out, uneven) {
        (true, _) => format!("only {} of {queues} queues have entries", entries.len()),
        (false, true) => format!("one queue has {most} entries and another {least}"),
        (false, false) => return None,
    };
    let request = format!("netlink ethtool RSS_GET {}", nic.name);
    let shown: Vec<String> = entries
        .iter()
        .take(16)
        .map(|(queue, count)| format!("{queue}: {count}"))
        .collect();
    let key = SettingKey::Nic(nic.name.clone(), NicKnob::RssTable);
    Some(found(
        rule,
        context,
        Draft {
            severity: Severity::Warn,
            subject: subject(nic),
            summary: format!(
                "the RSS indirection table of {} is uneven: {why}; distribute it equally over {queues} queues",
                nic.name
            ),
            evidence: vec![
                Evidence::new("entries by queue", shown.join(", "), request.clone()),
                Evidence::new("entries of the table", table.len(), request),
                Evidence::new(
                    "receive queues in use",
                    queues,
                    format!("netlink ethtool CHANNELS_GET {}", nic.name),
                ),
            ],
            remedies: remedy(context, key, Value::Text(format!("equal {queues}")))
                .into_iter()
                .collect(),
        },
    ))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding, remedies, silent};
    use super::*;
    use crate::build;
    use crate::host::Host;
    use crate::known::{Cause, Known};

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("all entries on queue 0", || World::of(server(|_| 0))),
            ("queue 3 is left out", || {
                World::of(server(|entry| entry % 3))
            }),
            ("queue 0 has five of eight", || {
                World::of(server(|entry| (entry % 8).saturating_sub(4)))
            }),
        ],
        silent: &[
            ("round all queues", || World::of(server(|entry| entry % 4))),
            ("a card without a table", || {
                let mut host = server(|_| 0);
                host.nics[0].dispatch.rss = Known::unknown(Cause::Absent, "rss", "unsupported");
                World::of(host)
            }),
            ("a pair without a wire", || World::of(build::veth_pair().0)),
        ],
        undetermined: &[
            ("nobody asked for the table", || {
                let mut host = server(|_| 0);
                host.nics[0].dispatch.rss = Known::not_asked("netlink ethtool RSS_GET eth2");
                World::of(host)
            }),
            ("nobody asked for the queues", || {
                let mut host = server(|_| 0);
                host.nics[0].channels = Known::not_asked("netlink ethtool CHANNELS_GET eth2");
                World::of(host)
            }),
        ],
    };

    /// Four queues and a table of 128 entries.
    fn server(queue_of: fn(u32) -> u32) -> Host {
        server_with(&[0, 1, 2, 3], queue_of)
    }

    fn server_with(cpus: &[u32], queue_of: impl Fn(u32) -> u32) -> Host {
        build::host()
            .nodes(1, 4)
            .nic("eth2", |nic| {
                nic.queues(cpus).with(|nic| {
                    if let Known::Value(rss) = &mut nic.dispatch.rss {
                        rss.table = Known::Value((0..128).map(queue_of).collect());
                    }
                })
            })
            .build()
    }

    #[test]
    fn an_even_table_is_proposed() {
        let said = finding(ID, &context(&server(|_| 0)));
        assert_eq!(remedies(&said), ["nic/eth2/rss/table: equal 1 -> equal 4"]);
        assert!(said.summary.contains("only 1 of 4"), "{}", said.summary);
    }

    #[test]
    fn what_the_nic_cannot_hash_to_is_no_fault() {
        let cpus: Vec<u32> = (0..32).map(|cpu| cpu % 4).collect();
        assert!(silent(
            ID,
            &context(&server_with(&cpus, |entry| entry % 16))
        ));
        let cpus: Vec<u32> = (0..96).map(|cpu| cpu % 4).collect();
        let host = server_with(&cpus, |entry| entry % 96);
        assert!(
            silent(ID, &context(&host)),
            "128 entries do not divide by 96"
        );
    }
}
