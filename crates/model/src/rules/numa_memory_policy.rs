//! `numa-memory-policy`: memory reclaim, NUMA balancing or huge pages stall programs.
//! Documentation/admin-guide/sysctl/vm.rst (`zone_reclaim_mode`), sysctl/kernel.rst (`numa_balancing`),
//! mm/transhuge.rst.

use std::collections::BTreeSet;

use super::facts::{answer, gbit, need, reported, sysctl_evidence, sysctl_number};
use super::{ALWAYS, Draft, remedy};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Profile, Remedy, Rule, Severity, Stage, Status,
};
use crate::host::Nic;
use crate::ids::NodeId;
use crate::known::Gap;
use crate::setting::{Class, MachineKnob, SettingKey, Value};
use crate::units::{BitRate, Bytes, real};
use crate::watch::{Watch, total};

pub(super) const RULE: Rule = Rule {
    id: "numa-memory-policy",
    number: 56,
    status: Status::Implemented,
    title: "memory reclaim, NUMA balancing or huge pages stall programs",
    severity: Severity::Warn,
    stage: Stage::Tuning,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts, Basis::Counters],
    threshold: "vm.zone_reclaim_mode not 0 on several nodes, or huge pages reserved on other nodes than those of the \
                NICs from 10 Gb/s on (warn); numa=off with several packages (warn); while watched: more than 100 pages \
                per second swapped, or 1000 allocated on another node than intended (warn); role latency: kernel.numa_balancing on, or \
                transparent huge pages `always` with defrag `always` (note)",
    effect: "no verified figure: TuneD's network-latency and mlnx_tune disable them; measure it",
    source: "Documentation/admin-guide/sysctl/vm.rst (zone_reclaim_mode), kernel.rst \
             (numa_balancing); Documentation/admin-guide/mm/transhuge.rst",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "/etc/sysctl.d/90-linerate.conf; transparent_hugepage= on the kernel command line",
    contested: None,
    page: include_str!("../../../../docs/rules/numa-memory-policy.md"),
    check,
};

const RECLAIM: &str = "vm.zone_reclaim_mode";
const BALANCING: &str = "kernel.numa_balancing";
/// Slower NICs are not fed from huge pages.
const FAST: BitRate = gbit(10);
/// From here on swapping is not the removal of idle pages.
const SWAPPED_PER_SECOND: f64 = 100.0;
/// 4 MiB per second: more than the start of a program on a full node.
const MISSED_PER_SECOND: f64 = 1_000.0;
const THP: &str = "/sys/kernel/mm/transparent_hugepage";

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let mut missing = Vec::new();
    let mut said = Vec::new();
    let latency = context.profile == Profile::Latency;
    if context.host.nodes.len() > 1 {
        said.extend(reclaim(context, &mut missing));
        said.extend(reserved_far(context, &mut missing));
        if latency {
            said.extend(balancing(context, &mut missing));
        }
    }
    if latency {
        said.extend(huge_pages(context, &mut missing));
    }
    said.extend(numa_off(context, &mut missing));
    if let Some(watch) = context.watch {
        said.extend(swapping(watch));
        said.extend(misplaced(watch).filter(|_| context.host.nodes.len() > 1));
    }
    answer(rule, context, "host", said, missing)
}

/// Without NUMA the kernel places memory, interrupts and threads as if all were equally far.
fn numa_off(context: &Context<'_>, missing: &mut Vec<Gap>) -> Option<Draft> {
    let packages: BTreeSet<u32> = context
        .host
        .cpus
        .iter()
        .filter_map(|cpu| cpu.package.get())
        .collect();
    if packages.len() < 2 {
        return None;
    }
    let line = need(&context.host.identity.command_line, missing)?;
    let word = line.split_whitespace().find(|word| *word == "numa=off")?;
    Some(finding(
        Severity::Warn,
        &format!(
            "{word} on the kernel command line hides the NUMA nodes of {} packages: remove it",
            packages.len()
        ),
        vec![
            Evidence::new("kernel command line", word, "/proc/cmdline"),
            Evidence::new(
                "processor packages",
                packages.len(),
                "/sys/devices/system/cpu/cpu*/topology/physical_package_id",
            ),
        ],
        None,
    ))
}

fn per_second(watch: &Watch, name: &str) -> f64 {
    let by = watch.grown(&format!("vmstat/{name}")).get().unwrap_or(0);
    real(by) / watch.span_ns.as_secs_f64().max(f64::MIN_POSITIVE)
}

fn counted(watch: &Watch, names: &[&str]) -> Vec<Evidence> {
    let of = |name: &&str| {
        let key = format!("vmstat/{name}");
        let by = watch.grown(&key).get().filter(|by| *by > 0)?;
        let grew = format!("+{by} in {}", watch.span_ns);
        Some(Evidence::new(*name, grew, watch.path(&key)))
    };
    names.iter().filter_map(of).collect()
}

/// Pages moved to and from swap: every program may wait for a disk.
fn swapping(watch: &Watch) -> Option<Draft> {
    let names = ["pswpout", "pswpin"];
    let pages: f64 = names.iter().map(|name| per_second(watch, name)).sum();
    (pages > SWAPPED_PER_SECOND).then(|| {
        finding(
            Severity::Warn,
            &format!(
                "the host swaps {pages:.0} pages per second, so programs wait for the disk: free memory, or limit \
                 what uses it"
            ),
            counted(watch, &names),
            None,
        )
    })
}

/// Pages that were wanted on one node and came from another (Documentation/admin-guide/numastat.rst).
fn misplaced(watch: &Watch) -> Option<Draft> {
    let pages = per_second(watch, "numa_miss");
    (pages > MISSED_PER_SECOND).then(|| {
        finding(
            Severity::Warn,
            &format!(
                "{pages:.0} pages per second are allocated on another node than intended (numa_miss): a node is \
                 full; free memory there, or move what fills it"
            ),
            counted(watch, &["numa_miss", "numa_foreign"]),
            None,
        )
    })
}

fn finding(
    severity: Severity,
    summary: &str,
    evidence: Vec<Evidence>,
    change: Option<Remedy>,
) -> Draft {
    Draft {
        severity,
        subject: "host".to_owned(),
        summary: summary.to_owned(),
        evidence,
        remedies: change.into_iter().collect(),
    }
}

fn to_zero(context: &Context<'_>, name: &str) -> Option<Remedy> {
    let key = SettingKey::Sysctl(name.to_owned());
    remedy(context, key, Value::Text("0".to_owned()))
}

fn reclaim(context: &Context<'_>, missing: &mut Vec<Gap>) -> Option<Draft> {
    let mode = sysctl_number(context.host, RECLAIM, missing).filter(|mode| *mode != 0)?;
    Some(finding(
        Severity::Warn,
        &format!(
            "vm.zone_reclaim_mode is {mode}, so a full node reclaims its page cache instead of allocating on \
             another node: set it to 0"
        ),
        vec![
            sysctl_evidence(RECLAIM, mode),
            Evidence::new(
                "NUMA nodes",
                context.host.nodes.len(),
                "/sys/devices/system/node",
            ),
        ],
        to_zero(context, RECLAIM),
    ))
}

fn balancing(context: &Context<'_>, missing: &mut Vec<Gap>) -> Option<Draft> {
    // Bit 0 moves pages between nodes; bit 1 is tiering.
    let mode = sysctl_number(context.host, BALANCING, missing).filter(|mode| mode & 1 == 1)?;
    Some(finding(
        Severity::Note,
        "kernel.numa_balancing adds page faults to sample memory access: disable it where programs are pinned, \
         and measure",
        vec![sysctl_evidence(BALANCING, mode)],
        to_zero(context, BALANCING),
    ))
}

/// Huge pages are reserved, but none on the node of any fast NIC: programs that map them (DPDK, SPDK, verbs) get memory
/// of the other node.
fn reserved_far(context: &Context<'_>, missing: &mut Vec<Gap>) -> Option<Draft> {
    let mut reserved: Vec<(NodeId, u64)> = Vec::new();
    for node in &context.host.nodes {
        let pages = need(&node.hugepages, missing)?;
        let sizes = pages.iter();
        let bytes = sizes.map(|size| {
            let total = need(&size.total, missing)?;
            Some(size.page_bytes.as_u64().saturating_mul(*total))
        });
        let bytes: Option<Vec<u64>> = bytes.collect();
        reserved.push((node.id, total(bytes?)));
    }
    if reserved.iter().all(|(_, bytes)| *bytes == 0) {
        return None;
    }
    let fast = context.host.nics.iter().filter(|nic| {
        let rate = reported(&nic.link_bit_per_s);
        nic.kind.has_wire() && rate.is_some_and(|rate| *rate >= FAST)
    });
    let homes: Vec<(&Nic, NodeId)> = fast
        .filter_map(|nic| Some((nic, *reported(&nic.numa_node)?)))
        .collect();
    let (nic, home) = homes.first()?;
    let at = |node: NodeId| reserved.iter().find(|(own, _)| *own == node);
    if homes
        .iter()
        .any(|(_, node)| at(*node).is_some_and(|(_, bytes)| *bytes > 0))
    {
        return None;
    }
    let evidence = reserved.iter().map(|(node, bytes)| {
        Evidence::new(
            format!("huge pages reserved on node {node}"),
            Bytes::new(*bytes),
            format!("/sys/devices/system/node/node{node}/hugepages"),
        )
    });
    let place = format!("/sys/class/net/{}/device/numa_node", nic.name);
    let own = Evidence::new(format!("NUMA node of {}", nic.name), home, place);
    Some(finding(
        Severity::Warn,
        &format!(
            "huge pages are reserved, but none on node {home} of {}: reserve them there (nr_hugepages below its \
             node)",
            nic.name
        ),
        evidence.chain([own]).collect(),
        None,
    ))
}

fn huge_pages(context: &Context<'_>, missing: &mut Vec<Gap>) -> Option<Draft> {
    let kernel = &context.host.kernel;
    need(&kernel.transparent_hugepages, missing).filter(|mode| *mode == "always")?;
    let defrag = need(&kernel.transparent_hugepages_defrag, missing);
    defrag.filter(|mode| *mode == "always")?;
    let key = SettingKey::Machine(MachineKnob::TransparentHugepages);
    Some(finding(
        Severity::Note,
        "transparent huge pages are `always` with defrag `always`, so page faults wait for compaction: use \
         madvise, and measure",
        vec![
            Evidence::new("transparent huge pages", "always", format!("{THP}/enabled")),
            Evidence::new("defrag", "always", format!("{THP}/defrag")),
        ],
        remedy(context, key, Value::Text("madvise".to_owned())),
    ))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding, remedies};
    use super::*;
    use crate::build::{self, HostBuilder};
    use crate::host::{Host, HugePages};
    use crate::known::{Cause, Known};

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("zone reclaim on two nodes", || {
                World::of(nodes(2).sysctl(RECLAIM, "1").build())
            }),
            ("balancing where latency counts", || {
                latency(nodes(2).sysctl(BALANCING, "1"))
            }),
            ("huge pages on the other node", || {
                World::of(with_huge_pages(nodes(2), 1))
            }),
            ("swapping", || {
                World::of(nodes(1).build()).watched(|w| w.grew("vmstat/pswpout", 50_000))
            }),
            ("a full node", || {
                World::of(nodes(2).build()).watched(|w| w.grew("vmstat/numa_miss", 500_000))
            }),
            ("numa=off on two packages", || {
                World::of(
                    nodes(2)
                        .with(|host| {
                            host.identity.command_line = Known::Value("ro numa=off".to_owned());
                        })
                        .build(),
                )
            }),
            ("huge pages made at once", || {
                latency(nodes(1).with(|host| {
                    let always = || Known::Value("always".to_owned());
                    host.kernel.transparent_hugepages = always();
                    host.kernel.transparent_hugepages_defrag = always();
                }))
            }),
        ],
        silent: &[
            ("huge pages on the node of the NIC", || {
                World::of(with_huge_pages(nodes(2), 0))
            }),
            ("a few pages swapped", || {
                World::of(nodes(1).build()).watched(|w| w.grew("vmstat/pswpout", 50))
            }),
            ("zone reclaim on one node", || {
                World::of(nodes(1).sysctl(RECLAIM, "1").build())
            }),
            ("balancing in bulk transfer", || {
                World::of(nodes(2).sysctl(BALANCING, "1").build())
            }),
            ("a kernel without it", || {
                World::of(nodes(2).without_sysctl(RECLAIM).build())
            }),
        ],
        undetermined: &[("not readable", || {
            let host = nodes(2).with(|host| {
                let gap = Known::unknown(Cause::Denied, "/proc/sys/vm/zone_reclaim_mode", "denied");
                host.sysctls.insert(RECLAIM.to_owned(), gap);
            });
            World::of(host.build())
        })],
    };

    fn nodes(nodes: u32) -> HostBuilder {
        build::host().nodes(nodes, 4)
    }

    /// A NIC on node 0, and 512 huge pages on `node` alone.
    fn with_huge_pages(host: HostBuilder, node: u32) -> Host {
        let pages = |total: u64| HugePages {
            page_bytes: Bytes::mib(2),
            total: total.into(),
            free: total.into(),
        };
        host.nic("eth2", |nic| nic.gbit(100))
            .with(|host| {
                for own in &mut host.nodes {
                    let total = if own.id == NodeId(node) { 512 } else { 0 };
                    own.hugepages = vec![pages(total)].into();
                }
            })
            .build()
    }

    fn latency(host: HostBuilder) -> World {
        World::of(host.build()).profile(Profile::Latency)
    }

    #[test]
    fn zone_reclaim_is_switched_off() {
        let host = nodes(2).sysctl(RECLAIM, "1").build();
        let said = finding(ID, &context(&host));
        assert_eq!(said.severity, Severity::Warn);
        assert_eq!(remedies(&said), ["sysctl/vm.zone_reclaim_mode: 1 -> 0"]);
    }
}
