//! The rules: one file each, listed in [`RULES`]. A rule checks one question about a [`Context`] and returns
//! findings, the facts that are missing, or nothing (no fault, or a role in which it is not checked). Each rule names
//! its source; a threshold without one is linerate's own.

mod devices;
mod facts;
mod judged;
pub(crate) mod rdma_counters;
mod shapers;
mod spreading;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod withheld;

pub use driver_firmware_health_and_owners::owner_of;
pub(crate) use endpoints_share_cpu::shared_cpu;

use crate::analysis;
use crate::finding::{
    Context, Diagnosis, Evidence, Finding, Outcome, Profile, Remedy, Rule, Severity, Undetermined,
};
use crate::host::{Host, Nic, NicKind};
use crate::known::{self, Cause, Gap, Known};
use crate::plan::{Change, End};
use crate::setting::{self, SettingKey, Value};
use crate::watch::Watch;

/// Declares the rules: each has its file, its entry in [`RULES`], and in tests its cases. A rule whose file has no
/// `tests::CASES` does not compile there.
macro_rules! rules {
    ($($rule:ident,)*) => {
        $(mod $rule;)*

        /// Every rule that is implemented, by its number in the catalog.
        pub const RULES: &[&Rule] = &[$(&$rule::RULE,)*];

        /// The cases of every rule.
        #[cfg(test)]
        const CASES: &[(&Rule, &testing::Cases)] = &[$((&$rule::RULE, &$rule::tests::CASES),)*];
    };
}

rules! {
    // Locality.
    nic_numa_unknown,
    irq_remote_numa,
    app_remote_numa,
    // Interrupts.
    irq_single_cpu,
    irq_cpu_collision,
    irq_on_isolated_cpu,
    irqbalance_or_managed_irq_conflict,
    // Queues and steering.
    queues_too_few,
    queues_too_many,
    rss_table_uneven,
    rss_fields_narrow,
    rps_wrong,
    rfs_half_configured,
    xps_misaligned,
    // Coalescing, NAPI, softirq.
    coalesce_profile_mismatch,
    napi_time_squeeze,
    backlog_drops,
    softirq_saturated,
    busy_poll_incomplete,
    gro_flush_defer_mismatch,
    threaded_napi_unpinned,
    // Rings, drops, memory.
    ring_size,
    nic_discards_before_host,
    rx_alloc_fail_or_page_pool_slow,
    tx_queue_stalls,
    cloud_allowance_exceeded,
    // Offloads.
    gro_off,
    tx_segmentation_or_csum_off,
    lro_on_forwarder,
    rx_hw_assist_off,
    big_tcp_off,
    tunnel_offload_missing,
    // MTU.
    mtu_mismatch,
    mtu_not_jumbo,
    pmtu_blackhole,
    // Link, cable, module.
    link_speed_below_capability,
    link_ext_state,
    fec_health,
    phy_errors,
    module_fault,
    pause_storm,
    eee_on,
    // PCIe and IOMMU.
    pcie_link_degraded,
    pcie_ceiling_below_port_rate,
    pcie_mps_mrrs,
    pcie_relaxed_ordering,
    pcie_aspm,
    pcie_aer,
    pcie_acs_p2p,
    iommu_strict,
    // CPU, power, kernel.
    cpu_frequency_low,
    cpu_deep_cstates,
    cpu_mitigations,
    clock_and_timestamps,
    isolation_misuse,
    numa_memory_policy,
    // TCP and sockets.
    tcp_buffer_below_bdp,
    tcp_limited_by,
    tcp_cc_qdisc,
    tcp_options_off,
    tcp_idle_and_lowat,
    socket_drops,
    sysctl_legacy_or_harmful,
    // Netfilter, taps, XDP.
    conntrack_cost,
    packet_tap_or_generic_xdp,
    // Bonding, VLAN, DCB.
    lag_hash_imbalance,
    qos_map_conflict,
    // RDMA.
    rdma_gid_type,
    rdma_mtu,
    rdma_limits_and_caps,
    roce_pfc_ecn_mismatch,
    roce_congestion_signals,
    rdma_retransmit,
    ib_port_health,
    ipoib_mode_mtu,
    // Storage.
    blk_mq_config,
    nvme_path_numa,
    // Virtualization.
    virtio_single_queue,
    vm_host_limits,
    // Software owners and health.
    driver_firmware_health_and_owners,
    // Rules of our own (decision 8).
    qdisc_shaper,
    endpoints_share_cpu,
    tcp_retransmit,
    interface_drops,
    cpu_affinity_narrow,
    nfs_client,
    link_speed_below_module,
    lacp_rate_slow,
    qdisc_class_conflict,
    gateway_single,
    nexthop_group,
    multipath_neighbor,
    bond_aggregator,
    bond_unmonitored,
}

/// All roles, for rules that are checked in every one.
const ALWAYS: &[Profile] = &[
    Profile::Throughput,
    Profile::Latency,
    Profile::Forwarding,
    Profile::Rdma,
    Profile::Storage,
    Profile::Mixed,
    Profile::Measurement,
];

/// The roles of hosts that terminate TCP connections for bulk transfer.
const BULK: &[Profile] = &[
    Profile::Throughput,
    Profile::Storage,
    Profile::Mixed,
    Profile::Measurement,
];

pub use spreading::affinity;

/// The rule called `id`.
pub fn find(id: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.id == id).copied()
}

/// The outcomes of one rule; none in a role in which it is not checked. A rule that finds nothing and met a gap is
/// undetermined, also if it did not report the gap itself.
pub fn judge(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    if !rule.profiles.contains(&context.profile) {
        return Vec::new();
    }
    let (mut outcomes, gaps) = known::missed(|| (rule.check)(rule, context));
    if outcomes.is_empty() && !gaps.is_empty() {
        outcomes.push(undetermined(rule, context, "host".to_owned(), gaps));
    }
    outcomes
}

/// The outcomes of all rules: findings worst first, then by [`Rule::stage`].
pub fn diagnose(context: &Context<'_>) -> Diagnosis {
    let mut diagnosis = Diagnosis::default();
    let mut rules = RULES.to_vec();
    rules.sort_by_key(|rule| rule.stage);
    for outcome in rules.into_iter().flat_map(|rule| judge(rule, context)) {
        match outcome {
            Outcome::Finding(finding) => diagnosis.findings.push(finding),
            Outcome::Undetermined(unknown) => diagnosis.undetermined.push(unknown),
        }
    }
    sort(&mut diagnosis.findings);
    diagnosis
}

/// Sorts findings (of one end or of both) worst first, then by [`Rule::stage`].
pub fn sort(findings: &mut [Finding]) {
    let stage = |id: &str| find(id).map(|rule| rule.stage);
    findings.sort_by(|one, other| {
        other
            .severity
            .cmp(&one.severity)
            .then_with(|| stage(&one.rule).cmp(&stage(&other.rule)))
    });
}

/// A finding without the fields that its rule and context already provide.
struct Draft {
    severity: Severity,
    subject: String,
    summary: String,
    evidence: Vec<Evidence>,
    remedies: Vec<Remedy>,
}

fn found(rule: &Rule, context: &Context<'_>, said: Draft) -> Outcome {
    Outcome::Finding(Finding {
        rule: rule.id.to_owned(),
        severity: said.severity,
        end: context.end,
        subject: said.subject,
        summary: said.summary,
        evidence: said.evidence,
        threshold: rule.threshold.to_owned(),
        remedies: said.remedies,
    })
}

fn undetermined(
    rule: &Rule,
    context: &Context<'_>,
    subject: String,
    mut missing: Vec<Gap>,
) -> Outcome {
    // Values that only netlink provides are missing on a host that is read from files.
    for gap in missing.iter_mut().filter(|gap| gap.path.is_empty()) {
        gap.path = format!("netlink facts of {subject}");
        "the host was read from files only, without netlink".clone_into(&mut gap.reason);
    }
    Outcome::Undetermined(Undetermined {
        rule: rule.id.to_owned(),
        end: context.end,
        subject,
        missing,
    })
}

fn subject(nic: &Nic) -> String {
    format!("nic/{}", nic.name)
}

/// The interfaces to check: the named one, else all that are up except loopback.
fn nics<'a>(context: &Context<'a>) -> Vec<&'a Nic> {
    context
        .host
        .nics
        .iter()
        .filter(|nic| {
            // One of unknown state may be up.
            let down = matches!(&nic.operstate, Known::Value(state) if state == "down");
            let leads_out = nic.kind != NicKind::Loopback && !down;
            context.nic.map_or(leads_out, |name| nic.name == *name)
        })
        .collect()
}

/// Where the kernel lists the interfaces.
const NICS: &str = "/sys/class/net";

/// Runs `check` on each interface; a named interface that does not exist is a gap.
fn each_nic<'a>(
    rule: &Rule,
    context: &Context<'a>,
    check: impl Fn(&'a Nic) -> Option<Outcome>,
) -> Vec<Outcome> {
    match context.nic {
        Some(name) if context.host.nic(name).is_none() => {
            let gap = Gap::new(
                Cause::Absent,
                format!("/sys/class/net/{name}"),
                "the host has no such interface",
            );
            vec![undetermined(
                rule,
                context,
                format!("nic/{name}"),
                vec![gap],
            )]
        }
        // Without the list of interfaces, "none is at fault" would be a guess.
        _ if context.host.nics.is_empty() => context
            .host
            .gaps
            .iter()
            .filter(|gap| gap.path == NICS)
            .map(|gap| undetermined(rule, context, "host".to_owned(), vec![gap.clone()]))
            .collect(),
        _ => nics(context)
            .into_iter()
            .filter_map(|nic| {
                let (said, gaps) = known::missed(|| check(nic));
                match said {
                    None if !gaps.is_empty() => {
                        Some(undetermined(rule, context, subject(nic), gaps))
                    }
                    said => said,
                }
            })
            .collect(),
    }
}

/// The change of `setting` on the checked host to `to`; none if its current value is unknown (it could not
/// be restored) or already `to`.
fn remedy(context: &Context<'_>, setting: SettingKey, to: Value) -> Option<Remedy> {
    let class = setting.spec().class;
    change_to(context.host, setting, to).map(|change| Remedy {
        end: context.end,
        class,
        change,
    })
}

/// The change of `setting` on `host` to `to`; none if its current value is unknown or already `to`.
fn change_to(host: &Host, setting: SettingKey, to: Value) -> Option<Change> {
    match setting::current(host, &setting) {
        Known::Value(from) if from != to => Some(Change { setting, from, to }),
        _ => None,
    }
}

/// The path of the gap of a rule that needs counters which were not watched.
pub const UNWATCHED: &str = "counters";
/// The reason of that gap.
pub(super) const NOT_WATCHED: &str =
    "needs two readings: `--watch TIME` on this host, `--then LATER` for captures";

/// The counters, or a skipped check if they were not read (once, for the host).
fn watched<'a>(rule: &Rule, context: &Context<'a>) -> Result<&'a Watch, Vec<Outcome>> {
    context.watch.ok_or_else(|| {
        let gap = Gap::new(Cause::NotAsked, UNWATCHED, NOT_WATCHED);
        vec![undetermined(rule, context, "host".to_owned(), vec![gap])]
    })
}

/// Whether the checked end sends; without a trial it may.
fn sends(context: &Context<'_>) -> bool {
    context
        .sample
        .is_none_or(|sample| analysis::sends(sample, context.end))
}

/// Whether the checked end receives; without a trial it may.
fn receives(context: &Context<'_>) -> bool {
    let other = match context.end {
        End::Local => End::Remote,
        End::Remote => End::Local,
    };
    context
        .sample
        .is_none_or(|sample| analysis::sends(sample, other))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::testing::{context, with_trial};
    use super::*;
    use crate::build;

    #[test]
    fn every_rule_has_its_own_id_a_page_and_a_source() {
        let ids: BTreeSet<&str> = RULES.iter().map(|rule| rule.id).collect();
        assert_eq!(ids.len(), RULES.len());
        for rule in RULES {
            let kebab = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(rule.id.chars().all(kebab), "{}", rule.id);
            assert!(
                rule.page.starts_with(&format!("# {}\n", rule.id)),
                "{}",
                rule.id
            );
            for part in [
                "## Problem",
                "## Detection",
                "## Expected gain",
                "## Check by hand",
                "## Make it persistent",
                "## Risks",
            ] {
                assert!(rule.page.contains(part), "{} lacks `{part}`", rule.id);
            }
            for text in [
                rule.title,
                rule.threshold,
                rule.effect,
                rule.source,
                rule.persist,
            ] {
                assert!(!text.is_empty(), "{}", rule.id);
            }
            assert_eq!(find(rule.id).map(|found| found.id), Some(rule.id));
        }
    }

    #[test]
    fn the_numbers_of_the_rules_ascend_without_a_gap() {
        let numbers: Vec<u8> = RULES.iter().map(|rule| rule.number).collect();
        let expected: Vec<u8> = (1..=80).chain(101..).take(RULES.len()).collect();
        assert_eq!(numbers, expected);
    }

    #[test]
    fn every_rule_fires_is_silent_and_is_undetermined_where_its_cases_say_so() {
        for (rule, cases) in CASES {
            let all = [cases.fires, cases.silent, cases.undetermined];
            assert!(all.iter().all(|some| !some.is_empty()), "{}", rule.id);
            for (kind, cases) in all.iter().enumerate() {
                for (what, world) in *cases {
                    let world = world();
                    let said = judge(rule, &world.context());
                    let findings = said.iter().filter(|o| matches!(o, Outcome::Finding(_)));
                    let fits = match kind {
                        0 => findings.count() > 0,
                        1 => said.is_empty(),
                        _ => !said.is_empty() && findings.count() == 0,
                    };
                    assert!(fits, "{}: {what}: {said:#?}", rule.id);
                    for outcome in &said {
                        is_complete(outcome);
                    }
                }
            }
        }
    }

    /// A finding has everything its reader needs: evidence with its source, a threshold, remedies that start from the
    /// host's current values.
    fn is_complete(outcome: &Outcome) {
        match outcome {
            Outcome::Finding(finding) => {
                assert!(!finding.evidence.is_empty(), "{finding:#?}");
                let whole =
                    |e: &Evidence| !e.what.is_empty() && !e.value.is_empty() && !e.path.is_empty();
                assert!(finding.evidence.iter().all(whole), "{finding:#?}");
                assert!(!finding.threshold.is_empty(), "{finding:#?}");
                assert!(finding.summary.len() <= 200, "{}", finding.summary);
                let moves = |r: &Remedy| r.change.from != r.change.to;
                assert!(finding.remedies.iter().all(moves), "{finding:#?}");
            }
            Outcome::Undetermined(unknown) => {
                assert!(!unknown.missing.is_empty(), "{unknown:#?}");
                assert!(unknown.missing.iter().all(|gap| !gap.reason.is_empty()));
            }
        }
    }

    #[test]
    fn a_healthy_pair_on_one_kernel_has_no_finding_at_all() {
        let (near, far) = build::veth_pair();
        let sample = build::sample()
            .shared_kernel()
            .gbit(25)
            .cpu_share(0.97, 0.8)
            .limited(0.3, 0.4)
            .build();
        for (end, host, other) in [(End::Local, &near, &far), (End::Remote, &far, &near)] {
            for sample in [None, Some(&sample)] {
                let context = Context {
                    end,
                    other: Some(other),
                    sample,
                    owns_shapers: true,
                    ..context(host)
                };
                assert_eq!(diagnose(&context).findings, []);
            }
        }
        // Counters were not read: rules that need them report that.
        let unsure = diagnose(&with_trial(&near, &far, &sample)).undetermined;
        let counters = |gap: &Gap| gap.path == "counters";
        assert!(
            unsure.iter().all(|u| u.missing.iter().all(counters)),
            "{unsure:#?}"
        );
        let watch = build::watch(&near).build();
        let watched = Context {
            watch: Some(&watch),
            ..with_trial(&near, &far, &sample)
        };
        assert_eq!(diagnose(&watched), Diagnosis::default());
    }

    #[test]
    fn the_worst_comes_first() {
        let host = build::host()
            .sysctl("net.ipv4.tcp_congestion_control", "bbr")
            .sysctl("net.ipv4.tcp_wmem", "4096 16384 65536")
            .nic("eth0", |nic| {
                nic.gbit(100)
                    .with(|nic| nic.mtu = Known::Value(9000))
                    .feature("tx-tcp-segmentation", false, true)
                    .pcie(build::pcie_link((8_000, 8), (8_000, 16)))
            })
            .build();
        let rules: Vec<String> = diagnose(&context(&host))
            .findings
            .into_iter()
            .map(|finding| finding.rule)
            .collect();
        assert_eq!(
            rules,
            [
                "pcie-link-degraded",
                "tx-segmentation-or-csum-off",
                "tcp-buffer-below-bdp",
                "tcp-cc-qdisc"
            ]
        );
    }

    #[test]
    fn ignorance_is_no_finding() {
        let host = build::host()
            .nic("eth0", |nic| {
                nic.with(|nic| {
                    nic.features = Known::not_asked("features");
                    nic.qdisc = Known::not_asked("qdisc");
                    nic.pcie = Known::not_asked("pcie");
                    nic.numa_node = Known::not_asked("numa_node");
                    for queue in &mut nic.queues {
                        queue.irq = Known::not_asked("irq");
                        queue.cpus = Known::not_asked("cpus");
                        queue.rps_cpus = Known::not_asked("rps_cpus");
                    }
                })
            })
            .nodes(2, 2)
            .with(|host| {
                for text in host.sysctls.values_mut() {
                    *text = Known::not_asked("sysctl");
                }
            })
            .build();
        let said = diagnose(&context(&host));
        assert_eq!(said.findings, []);
        assert_ne!(said.undetermined, []);
    }

    #[test]
    fn a_host_whose_interfaces_could_not_be_listed_is_not_passed() {
        let gap = Gap::new(Cause::Denied, NICS, "Permission denied");
        let host = build::host()
            .with(|host| host.gaps.push(gap.clone()))
            .build();
        let said = diagnose(&context(&host));
        let unsure: Vec<&str> = said.undetermined.iter().map(|u| u.rule.as_str()).collect();
        for rule in [
            "qdisc-shaper",
            "pcie-link-degraded",
            "tx-segmentation-or-csum-off",
        ] {
            assert!(unsure.contains(&rule), "{rule} not among {unsure:?}");
        }
        assert!(said.undetermined.iter().any(|u| u.missing == [gap.clone()]));
    }

    #[test]
    fn an_interface_that_is_not_there_is_a_gap() {
        let host = build::host().build();
        let name = "eth9".parse().expect("a name");
        let context = Context {
            nic: Some(&name),
            ..context(&host)
        };
        let said = diagnose(&context);
        assert!(said.undetermined.iter().any(|u| u.subject == "nic/eth9"));
        assert_eq!(said.findings, []);
    }
}
