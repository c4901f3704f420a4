//! `rx-alloc-fail-or-page-pool-slow`: receive buffer allocation fails or bypasses the page pool. Counters
//! of Documentation/netlink/specs/netdev.yaml (`qstats-get`, `page-pool-stats-get`),
//! Documentation/networking/page_pool.rst, and the drivers' own.

use super::facts::{gbit, reported, sysctl_evidence, sysctl_number};
use super::judged::{Growth, Judged, growth, judge_watched};
use super::{ALWAYS, Draft, found, remedy, subject, undetermined};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Remedy, Rule, Severity, Stage, Status,
};
use crate::host::Nic;
use crate::known::Gap;
use crate::setting::{Class, SettingKey, Value};
use crate::units::{BitRate, Ratio, real};
use crate::watch::Watch;

pub(super) const RULE: Rule = Rule {
    id: "rx-alloc-fail-or-page-pool-slow",
    number: 24,
    status: Status::Implemented,
    title: "receive buffer allocation fails or bypasses the page pool",
    severity: Severity::Warn,
    stage: Stage::Errors,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts, Basis::Counters],
    threshold: "any failed receive buffer allocation, or vm.min_free_kbytes below 4096 with a NIC from 10 Gb/s on \
                (warn); alloc-slow above 1 % of page pool allocations \
                (note)",
    effect: "no drops for lack of memory; no verified figure for alloc-slow",
    source: "Documentation/networking/page_pool.rst; Documentation/netlink/specs/netdev.yaml \
             (qstats-get, page-pool-stats-get); amzn-drivers, ENA_Linux_Best_Practices.rst",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "/etc/sysctl.d (vm.min_free_kbytes)",
    contested: None,
    page: include_str!("../../../../docs/rules/rx-alloc-fail-or-page-pool-slow.md"),
    check,
};

/// The share of slow allocations that is worth a note, and the minimum number of allocations.
const SLOW_SHARE: Ratio = Ratio::new(0.01);
const SLOW_FROM: u64 = 10_000;
/// The share of memory to keep free for atomic allocations: 1 % (the ENA guide says 1-3 %).
const FREE_PER_CENT: u64 = 1;
/// The kernel reserves sqrt(16 x memory in KiB): 4 MiB for a host of 1 GiB (`init_per_zone_wmark_min`, mm/page_alloc.c).
const LITTLE_FREE_KIB: u64 = 4096;
const FAST: BitRate = gbit(10);

/// Suffixes of driver counter names (`rx3_buff_alloc_err`, `queue_0_rx_page_alloc_fail`, `alloc_rx_buff_failed`).
const FAILED: [&str; 5] = [
    "buff_alloc_err",
    "page_alloc_fail",
    "skb_alloc_fail",
    "alloc_rx_page_failed",
    "alloc_rx_buff_failed",
];

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let mut missing = Vec::new();
    if let Some(said) = little_free(context, &mut missing) {
        return vec![found(rule, context, said)];
    }
    let mut outcomes = judge_watched(
        rule,
        context,
        |nic| nic.kind.has_wire(),
        |nic, watch| check_nic(context, nic, watch),
    );
    if !missing.is_empty() {
        outcomes.push(undetermined(rule, context, "host".to_owned(), missing));
    }
    outcomes
}

/// The reserve for allocations that cannot wait, such as receive buffers, was set far below what the kernel computes.
fn little_free(context: &Context<'_>, missing: &mut Vec<Gap>) -> Option<Draft> {
    let fast = |nic: &Nic| {
        let speed = reported(&nic.link_bit_per_s);
        nic.kind.has_wire() && speed.is_some_and(|speed| *speed >= FAST)
    };
    if !context.host.nics.iter().any(fast) {
        return None;
    }
    let name = "vm.min_free_kbytes";
    let own = sysctl_number(context.host, name, missing).filter(|own| *own < LITTLE_FREE_KIB)?;
    Some(Draft {
        severity: Severity::Warn,
        subject: "host".to_owned(),
        summary: format!(
            "vm.min_free_kbytes is {own}, so bursts of received packets find no memory: raise it to {} or more",
            LITTLE_FREE_KIB * 16
        ),
        evidence: vec![sysctl_evidence(name, own)],
        remedies: Vec::from_iter(more_free(context)),
    })
}

fn check_nic(context: &Context<'_>, nic: &Nic, watch: &Watch) -> Judged {
    let failed =
        growth(watch, nic, &["qstat/rx-alloc-fail"]).and_below(watch, nic, "driver", |name| {
            FAILED.iter().any(|end| name.ends_with(end))
        });
    if failed.grew.is_empty() {
        return match slow(watch, nic) {
            Some(said) => Ok(Some(said)),
            None => failed.quiet(),
        };
    }
    let mut evidence = failed.evidence();
    let stalls = |(name, by, counter): (&str, u64, &crate::watch::Counter)| {
        (by > 0).then(|| {
            let span = watch.span_ns;
            Evidence::new(
                format!("allocstall{name}"),
                format!("+{by} in {span}"),
                &*counter.path,
            )
        })
    };
    evidence.extend(watch.below("vmstat/allocstall").filter_map(stalls));
    Ok(Some(Draft {
        severity: Severity::Warn,
        subject: subject(nic),
        summary: format!(
            "receive buffer allocation failed on {} ({}): raise vm.min_free_kbytes, or find what uses the \
             memory",
            nic.name,
            failed.words()
        ),
        evidence,
        remedies: more_free(context).into_iter().collect(),
    }))
}

/// The page pool's slow path, as a note: measure its cost.
fn slow(watch: &Watch, nic: &Nic) -> Option<Draft> {
    let pool: Growth = growth(
        watch,
        nic,
        &["page-pool/alloc-slow", "page-pool/alloc-fast"],
    );
    let (slow, fast) = (
        pool.by("page-pool/alloc-slow"),
        pool.by("page-pool/alloc-fast"),
    );
    let share = real(slow) / real((slow + fast).max(1));
    if slow + fast < SLOW_FROM || share <= SLOW_SHARE.as_f64() {
        return None;
    }
    let others = ["page-pool/alloc-waive", "page-pool/recycle-ring-full"];
    let mut evidence = pool.evidence();
    evidence.extend(growth(watch, nic, &others).evidence());
    Some(Draft {
        severity: Severity::Note,
        subject: subject(nic),
        summary: format!(
            "{} of the page pool allocations of {} are slow (alloc-slow): check for a slow reader, or one on a \
             remote node",
            Ratio::new(share),
            nic.name
        ),
        evidence,
        remedies: Vec::new(),
    })
}

fn more_free(context: &Context<'_>) -> Option<Remedy> {
    let memory = context.host.nodes.iter().try_fold(0u64, |sum, node| {
        Some(sum.saturating_add(node.memory_bytes.get()?.as_u64()))
    })?;
    let wanted = memory / 1024 / 100 * FREE_PER_CENT;
    let name = "vm.min_free_kbytes";
    let own: u64 = context.host.sysctl(name).value()?.trim().parse().ok()?;
    let key = SettingKey::Sysctl(name.to_owned());
    (own < wanted)
        .then(|| remedy(context, key, Value::Text(wanted.to_string())))
        .flatten()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding, remedies};
    use super::*;
    use crate::build;
    use crate::host::Host;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("the queues found no memory", || {
                World::of(host()).watched(|w| w.grew("nic/eth0/qstat/rx-alloc-fail", 3))
            }),
            ("a driver's own counter", || {
                World::of(host()).watched(|w| {
                    w.grew("nic/eth0/driver/rx2_buff_alloc_err", 3)
                        .grew("vmstat/allocstall_normal", 2)
                })
            }),
            ("1 MiB kept free", || {
                let host = build::host().nic("eth0", |nic| nic);
                World::of(host.sysctl("vm.min_free_kbytes", "1024").build())
            }),
            ("every fiftieth page the slow way", || {
                World::of(host()).watched(|w| {
                    w.grew("nic/eth0/page-pool/alloc-slow", 2_000)
                        .grew("nic/eth0/page-pool/alloc-fast", 98_000)
                })
            }),
        ],
        silent: &[
            ("none failed", || {
                World::of(host()).watched(|w| w.grew("nic/eth0/qstat/rx-alloc-fail", 0))
            }),
            ("a few slow ones while the ring was filled", || {
                World::of(host()).watched(|w| w.grew("nic/eth0/page-pool/alloc-slow", 64))
            }),
        ],
        undetermined: &[
            ("counters not watched", || World::of(host())),
            ("the counters may not be read", || {
                World::of(host()).watched(|w| w.denied("nic/eth0/qstat"))
            }),
        ],
    };

    fn host() -> Host {
        build::host().nic("eth0", |nic| nic).build()
    }

    #[test]
    fn a_hundredth_of_the_memory_is_kept_free() {
        let world = World::of(host()).watched(|w| w.grew("nic/eth0/qstat/rx-alloc-fail", 3));
        let said = finding(RULE.id, &world.context());
        assert_eq!(said.severity, Severity::Warn);
        assert_eq!(
            remedies(&said),
            ["sysctl/vm.min_free_kbytes: 67584 -> 167772"]
        );
    }
}
