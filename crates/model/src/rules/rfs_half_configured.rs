//! `rfs-half-configured`: RFS is partially configured and has no effect. Facts from
//! Documentation/networking/scaling.rst, "RFS Configuration": both must be set.

use super::spreading::{in_use, needed, queue_file};
use super::{ALWAYS, Draft, each_nic, found, nics, remedy, subject, undetermined};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Remedy, Rule, Severity, Stage, Status,
};
use crate::host::{Nic, NicKind, Queue, QueueKind};
use crate::known::{Gap, Known};
use crate::setting::{Class, NicKnob, SettingKey, Value};

pub(super) const RULE: Rule = Rule {
    id: "rfs-half-configured",
    number: 13,
    status: Status::InPart("aRFS (`rx-ntuple-filter`) is not checked"),
    title: "RFS is partially configured and has no effect",
    severity: Severity::Warn,
    stage: Stage::Locality,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "exactly one of net.core.rps_sock_flow_entries and rps_flow_cnt is not 0",
    effect: "packets reach the CPU of the program that reads them; no general figure",
    source: "Documentation/networking/scaling.rst",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "sysctl.d for rps_sock_flow_entries, a systemd unit at boot for rps_flow_cnt",
    contested: None,
    page: include_str!("../../../../docs/rules/rfs-half-configured.md"),
    check,
};

const ENTRIES: &str = "net.core.rps_sock_flow_entries";
const ENTRIES_FILE: &str = "/proc/sys/net/core/rps_sock_flow_entries";

/// The value suggested in the kernel documentation for a moderately loaded server.
const SUGGESTED: u64 = 32768;

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let unsure = |gap: Gap| vec![undetermined(rule, context, "host".to_owned(), vec![gap])];
    let text = match context.host.sysctl(ENTRIES) {
        Known::Value(text) => text,
        // A kernel without RPS has no queue tables either. The socket flow table is machine-wide and not visible in
        // other namespaces: there it is unknown whether RFS is complete.
        Known::Unknown(gap) if needed(&gap).is_none() => {
            return each_nic(rule, context, |nic| {
                let is_set = flows(nic).iter().any(|(_, entries)| *entries > 0);
                is_set.then(|| undetermined(rule, context, subject(nic), vec![gap.clone()]))
            });
        }
        Known::Unknown(gap) => return unsure(gap),
    };
    match text.trim().parse::<u64>() {
        Ok(0) => each_nic(rule, context, |nic| without_entries(rule, context, nic)),
        Ok(entries) => without_flows(rule, context, entries).into_iter().collect(),
        Err(_) => {
            let cause = crate::known::Cause::Unreadable;
            unsure(Gap::new(cause, ENTRIES_FILE, "not a number"))
        }
    }
}

/// The receive queues of `nic` with the entries of each.
fn flows(nic: &Nic) -> Vec<(&Queue, u64)> {
    in_use(nic, QueueKind::Rx)
        .into_iter()
        .filter_map(|queue| Some((queue, queue.rps_flow_cnt.get()?)))
        .collect()
}

fn gaps(nic: &Nic) -> Vec<Gap> {
    in_use(nic, QueueKind::Rx)
        .into_iter()
        .filter_map(|queue| needed(queue.rps_flow_cnt.gap()?))
        .take(1)
        .collect()
}

fn entries_evidence(entries: u64) -> Evidence {
    Evidence::new("socket flow table entries", entries, ENTRIES_FILE)
}

fn flow_evidence(nic: &Nic, queue: &Queue, count: u64) -> Evidence {
    Evidence::new(
        format!("rps_flow_cnt of rx-{} of {}", queue.index, nic.name),
        count,
        queue_file(nic, queue, "rps_flow_cnt"),
    )
}

/// The queues have tables, the socket flow table is empty.
fn without_entries(rule: &Rule, context: &Context<'_>, nic: &Nic) -> Option<Outcome> {
    let set: Vec<_> = flows(nic).into_iter().filter(|(_, n)| *n > 0).collect();
    if set.is_empty() {
        let missing = gaps(nic);
        return (!missing.is_empty()).then(|| undetermined(rule, context, subject(nic), missing));
    }
    let evidence = set
        .iter()
        .map(|(queue, count)| flow_evidence(nic, queue, *count))
        .chain([entries_evidence(0)]);
    let key = SettingKey::Sysctl(ENTRIES.to_owned());
    let said = Draft {
        severity: Severity::Warn,
        subject: subject(nic),
        summary: format!(
            "RFS of {} is off because {ENTRIES} is 0: set it to {SUGGESTED}",
            nic.name
        ),
        evidence: evidence.collect(),
        remedies: remedy(context, key, Value::Text(SUGGESTED.to_string()))
            .into_iter()
            .collect(),
    };
    Some(found(rule, context, said))
}

/// The socket flow table is set, but no queue of the host has a table.
fn without_flows(rule: &Rule, context: &Context<'_>, entries: u64) -> Option<Outcome> {
    let others = |nic: &&Nic| nic.kind != NicKind::Loopback;
    let host: Vec<&Nic> = context.host.nics.iter().filter(others).collect();
    let is_set = host.iter().flat_map(|nic| flows(nic)).any(|(_, n)| n > 0);
    let judged = nics(context);
    let queues: Vec<(&Nic, &Queue, u64)> = judged
        .iter()
        .flat_map(|nic| flows(nic).into_iter().map(|(queue, n)| (*nic, queue, n)))
        .collect();
    if is_set {
        return None;
    }
    let missing: Vec<Gap> = host.iter().flat_map(|nic| gaps(nic)).take(1).collect();
    if !missing.is_empty() {
        return Some(undetermined(rule, context, "host".to_owned(), missing));
    }
    if queues.is_empty() {
        return None;
    }
    let evidence = [entries_evidence(entries)].into_iter().chain(
        queues
            .iter()
            .map(|(nic, queue, n)| flow_evidence(nic, queue, *n)),
    );
    let said = Draft {
        severity: Severity::Warn,
        subject: "host".to_owned(),
        summary: format!(
            "RFS is off because rps_flow_cnt of every queue is 0, while {ENTRIES} is {entries}: set both"
        ),
        evidence: evidence.collect(),
        remedies: queues
            .iter()
            .filter_map(|(nic, queue, _)| share_of_entries(context, nic, queue, entries))
            .collect(),
    };
    Some(found(rule, context, said))
}

/// The entries divided among the queues, as the kernel's document says.
fn share_of_entries(
    context: &Context<'_>,
    nic: &Nic,
    queue: &Queue,
    entries: u64,
) -> Option<Remedy> {
    let queues = u64::try_from(in_use(nic, QueueKind::Rx).len()).unwrap_or(u64::MAX);
    let own = entries.checked_div(queues)?.max(1);
    let key = SettingKey::Nic(nic.name.clone(), NicKnob::RpsFlowCnt(queue.index));
    remedy(context, key, Value::Integer(own))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding, remedies};
    use super::*;
    use crate::build;
    use crate::host::Host;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("sockets only", || World::of(server("32768", 0))),
            ("queues only", || World::of(server("0", 4096))),
        ],
        silent: &[
            ("off", || World::of(server("0", 0))),
            ("on", || World::of(server("32768", 16384))),
            (
                "no such setting in this namespace, and no table of queues",
                || {
                    let mut host = server("0", 0);
                    let gap = Gap::new(crate::known::Cause::Absent, ENTRIES_FILE, "no such file");
                    host.sysctls.insert(ENTRIES.to_owned(), Known::Unknown(gap));
                    World::of(host)
                },
            ),
        ],
        undetermined: &[
            ("a namespace that does not show it", || {
                let mut host = server("0", 4096);
                let gap = Gap::new(crate::known::Cause::Absent, ENTRIES_FILE, "no such file");
                host.sysctls.insert(ENTRIES.to_owned(), Known::Unknown(gap));
                World::of(host)
            }),
            ("the sysctl was not read", || {
                let mut host = server("0", 4096);
                host.sysctls.remove(ENTRIES);
                World::of(host)
            }),
            ("the queues were not read", || {
                let mut host = server("32768", 0);
                host.nics[0].queues[0].rps_flow_cnt = Known::not_asked("rps_flow_cnt");
                World::of(host)
            }),
        ],
    };

    fn server(entries: &str, flows: u64) -> Host {
        build::host()
            .sysctl(ENTRIES, entries)
            .nic("eth2", |nic| {
                nic.queues(&[0, 1]).with(|nic| {
                    for queue in nic.queues.iter_mut().filter(|q| q.kind == QueueKind::Rx) {
                        queue.rps_flow_cnt = Known::Value(flows);
                    }
                })
            })
            .build()
    }

    #[test]
    fn the_other_half_is_proposed() {
        let said = finding(ID, &context(&server("32768", 0)));
        assert_eq!(said.severity, Severity::Warn);
        assert_eq!(
            remedies(&said),
            [
                "nic/eth2/queue/rx-0/rps-flow-cnt: 0 -> 16384",
                "nic/eth2/queue/rx-1/rps-flow-cnt: 0 -> 16384"
            ]
        );
        let said = finding(ID, &context(&server("0", 4096)));
        assert_eq!(
            remedies(&said),
            ["sysctl/net.core.rps_sock_flow_entries: 0 -> 32768"]
        );
    }
}
