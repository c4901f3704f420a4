//! `app-remote-numa`: a program with open sockets uses CPUs or memory of a remote NUMA node. Only programs with a CPU
//! affinity are checked: others move with the scheduler.

use std::collections::BTreeSet;

use super::spreading::{brief, few, local_cpus, needed, percent, share};
use super::{Draft, found, nics, undetermined};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Profile, Rule, Severity, Stage, Status,
};
use crate::host::{Nic, SocketOwner};
use crate::ids::{CpuSet, NodeId};
use crate::known::{Gap, Known};
use crate::setting::Class;
use crate::units::BitRate;
use crate::watch::total;

pub(super) const RULE: Rule = Rule {
    id: "app-remote-numa",
    number: 3,
    status: Status::InPart("checks where programs may run; does not measure throughput per node"),
    title: "a program with open sockets uses CPUs or memory of a remote NUMA node",
    severity: Severity::Warn,
    stage: Stage::Locality,
    profiles: &[
        Profile::Throughput,
        Profile::Latency,
        Profile::Rdma,
        Profile::Storage,
        Profile::Mixed,
        Profile::Measurement,
    ],
    judges_by: &[Basis::Facts],
    threshold: "warn: no allowed CPU is local to the NICs, or all are and more than 20 % of its pages are on \
                other nodes; note if it only listens",
    effect: "2065 -> 1720 MB/s with the memory thread on the remote socket (Sci. Prog. 2018, 4120561); more at \
             100 Gb/s, where the copy is the bottleneck",
    source: "fasterdata.es.net, 100G benchmarking; proc_pid_status(5), proc_pid_numa_maps(5)",
    fix: Fix::Advised(&[Class::R1]),
    persist: "a drop-in for the service: CPUAffinity=, NUMAPolicy=bind, NUMAMask=",
    contested: None,
    page: include_str!("../../../../docs/rules/app-remote-numa.md"),
    check,
};

/// The share of a program's pages that may be on other nodes.
const REMOTE_PAGES: f64 = 0.2;

/// A program with fewer pages is too small to report its memory (16 MiB of 4 KiB pages).
const FEW_PAGES: u64 = 4096;

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    if context.host.nodes.len() < 2 {
        return Vec::new();
    }
    let cards = carriers(context);
    let near: Vec<_> = cards
        .iter()
        .map(|nic| local_cpus(context.host, nic))
        .collect();
    let local: CpuSet = near
        .iter()
        .filter_map(Known::value)
        .flat_map(|(cpus, _)| cpus.iter())
        .collect();
    let nodes: BTreeSet<NodeId> = cards.iter().filter_map(|nic| nic.numa_node.get()).collect();
    let mut missing: Vec<Gap> = near.iter().filter_map(|cpus| needed(cpus.gap()?)).collect();
    // With NICs without a node, or on every node, no program can be remote from all of them.
    if missing.is_empty() && (local.is_empty() || local == context.host.online_cpus()) {
        return Vec::new();
    }
    missing.extend(context.host.software.socket_owners.gap().and_then(needed));
    let owners = match &context.host.software.socket_owners {
        Known::Value(owners) if missing.is_empty() => owners,
        _ if missing.is_empty() => return Vec::new(),
        _ => return vec![undetermined(rule, context, "host".to_owned(), missing)],
    };
    let far: Vec<(&SocketOwner, Vec<Evidence>)> = owners
        .iter()
        .filter_map(|owner| Some((owner, far(context, owner, &local, &nodes)?)))
        .collect();
    if far.is_empty() {
        return unsure(rule, context, owners);
    }
    let busy = far.iter().any(|(owner, _)| owner.connections > 0);
    let names: Vec<String> = far
        .iter()
        .map(|(owner, _)| format!("{} ({})", short(&owner.name), owner.pid))
        .collect();
    let cards = cards.iter().zip(&near).filter_map(|(nic, near)| {
        let (cpus, path) = near.value()?;
        Some(Evidence::new(
            format!("CPUs local to {}", nic.name),
            cpus,
            path.clone(),
        ))
    });
    let evidence = cards.chain(far.iter().flat_map(|(_, evidence)| evidence.clone()));
    let said = Draft {
        severity: if busy { Severity::Warn } else { Severity::Note },
        subject: "host".to_owned(),
        summary: format!(
            "{} on a NUMA node remote from the NIC: bind CPUs and memory to the node of CPUs {}",
            few(&names),
            brief(&local)
        ),
        evidence: evidence.collect(),
        remedies: Vec::new(),
    };
    vec![found(rule, context, said)]
}

/// The NICs that carry the host's data: with an address or an upper interface, and at least half as fast as the
/// fastest (programs are not pinned for a management port).
pub(super) fn carriers<'a>(context: &Context<'a>) -> Vec<&'a Nic> {
    let mut cards = nics(context);
    cards.retain(|nic| {
        let addressed = nic.addresses.value().is_none_or(|all| !all.is_empty());
        nic.kind.has_wire() && (addressed || !nic.upper().is_empty())
    });
    let rate = |nic: &Nic| nic.link_bit_per_s.get().map(BitRate::as_bit_per_s);
    let fastest = cards.iter().filter_map(|nic| rate(nic)).max().unwrap_or(0);
    cards.retain(|nic| rate(nic).unwrap_or(0) >= fastest / 2);
    cards
}

/// The evidence that a pinned program, or its memory, is remote from the NICs.
fn far(
    context: &Context<'_>,
    owner: &SocketOwner,
    local: &CpuSet,
    nodes: &BTreeSet<NodeId>,
) -> Option<Vec<Evidence>> {
    let online = context.host.online_cpus();
    let allowed: CpuSet = owner.cpus_allowed.value()?.parse().ok()?;
    let allowed = allowed.and(&online);
    let who = format!("{} ({})", owner.name, owner.pid);
    let mut evidence = vec![
        Evidence::new(
            format!("CPUs allowed to {who}"),
            &allowed,
            format!("/proc/{}/status", owner.pid),
        ),
        Evidence::new(
            format!("connections of {who}"),
            owner.connections,
            format!("/proc/{}/fd", owner.pid),
        ),
    ];
    if allowed.is_empty() || allowed == online {
        return None;
    }
    if allowed.is_disjoint(local) {
        return Some(evidence);
    }
    let pages = owner.node_pages.value()?;
    let sum = |far: bool| -> u64 {
        let of = |node: u32| nodes.contains(&NodeId(node)) != far;
        total(pages.iter().filter(|(n, _)| of(*n)).map(|(_, p)| *p))
    };
    let (remote, whole) = (sum(true), sum(true).saturating_add(sum(false)));
    let part = share(remote, whole);
    evidence.push(Evidence::new(
        format!("pages of {who} on remote nodes"),
        percent(part),
        format!("/proc/{}/numa_maps", owner.pid),
    ));
    (allowed.is_subset(local) && whole >= FEW_PAGES && part > REMOTE_PAGES).then_some(evidence)
}

/// A gap: a program that moves data has unknown CPU affinity.
fn unsure(rule: &Rule, context: &Context<'_>, owners: &[SocketOwner]) -> Vec<Outcome> {
    let missing: Vec<Gap> = owners
        .iter()
        .filter(|owner| owner.connections > 0)
        .filter_map(|owner| needed(owner.cpus_allowed.gap()?))
        .take(1)
        .collect();
    if missing.is_empty() {
        return Vec::new();
    }
    vec![undetermined(rule, context, "host".to_owned(), missing)]
}

/// The length limit of the kernel's own process names.
fn short(text: &str) -> String {
    text.chars().take(15).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding, silent};
    use super::*;
    use crate::build;
    use crate::host::Host;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[("a server bound to the other socket", || {
            World::of(server("0-5", 3, 0))
        })],
        silent: &[
            ("bound to the card's socket", || {
                World::of(server("6-11", 3, 0))
            }),
            ("a program that floats", || World::of(server("0-11", 3, 50))),
        ],
        undetermined: &[
            ("programs not read", || {
                let mut host = server("0-5", 3, 0);
                host.software.socket_owners = Known::not_asked("/proc");
                World::of(host)
            }),
            ("the card's node is not known", || {
                let mut host = server("0-5", 3, 0);
                host.nics[0].numa_node =
                    Known::unknown(crate::known::Cause::NotSaid, "numa_node", "-1");
                World::of(host)
            }),
        ],
    };

    /// A NIC on node 1 (CPUs 6-11), and one program with that percentage of its pages on node 0.
    fn server(allowed: &str, connections: u32, remote: u64) -> Host {
        let owner = SocketOwner {
            pid: 812,
            name: "server".to_owned(),
            cpus_allowed: Known::Value(allowed.to_owned()),
            last_cpu: Known::Value(0),
            node_pages: Known::Value(vec![(0, remote * 1000), (1, (100 - remote) * 1000)]),
            connections,
            threads: Known::Value(4),
        };
        build::host()
            .nodes(2, 6)
            .nic("eth2", |nic| {
                nic.node(1)
                    .with(|nic| nic.addresses = vec!["10.0.0.1/24".to_owned()].into())
            })
            .with(|host| host.software.socket_owners = Known::Value(vec![owner]))
            .build()
    }

    #[test]
    fn one_that_only_listens_is_a_note() {
        let said = finding(ID, &context(&server("0-5", 3, 0)));
        assert_eq!(said.severity, Severity::Warn);
        assert!(said.summary.contains("server (812)"), "{}", said.summary);
        let said = finding(ID, &context(&server("0-5", 0, 0)));
        assert_eq!(said.severity, Severity::Note);
    }

    #[test]
    fn memory_left_on_the_other_node_is_seen() {
        let host = server("6-11", 3, 50);
        let said = finding(ID, &context(&host));
        let pages = said
            .evidence
            .iter()
            .any(|one| one.value == "50 %" && one.path == "/proc/812/numa_maps");
        assert!(pages, "{:#?}", said.evidence);
        assert!(silent(ID, &context(&server("6-11", 3, 10))));
    }
}
