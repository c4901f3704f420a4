//! `roce-congestion-signals`: RoCE congestion notifications (CNP) are ignored, or the priority is paused
//! instead. Counters of the RDMA drivers (`hw_counters`) and of mlx5's priorities
//! (`rx_prioN_pause_duration`, microseconds).

use super::ALWAYS;
use super::devices::{Notice, Port, grown, growth, judged, or_unwatched, ports};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::known::{Cause, Gap};
use crate::setting::Class;
use crate::units::Ratio;
use crate::watch::Watch;

pub(super) const RULE: Rule = Rule {
    id: "roce-congestion-signals",
    number: 72,
    status: Status::Implemented,
    title: "RoCE congestion notifications (CNP) are ignored, or the priority is paused instead",
    severity: Severity::Warn,
    stage: Stage::Errors,
    profiles: ALWAYS,
    judges_by: &[Basis::Counters],
    threshold: "any CNP ignored while watched; a priority of a RoCE interface paused for more than 1 % of the \
                time",
    effect: "senders reduce their rate instead of pausing the fabric; no verified figure",
    source: "drivers/infiniband/hw/mlx5/counters.c; hw_counters of irdma and bnxt_re; \
             Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst",
    fix: Fix::Advised(&[Class::R3]),
    persist: "the NIC's congestion control settings with the vendor's tool; see roce-pfc-ecn-mismatch",
    contested: None,
    page: include_str!("../../../../docs/rules/roce-congestion-signals.md"),
    check,
};

const PAUSED: Ratio = Ratio::new(0.01);
/// mlx5, irdma.
const IGNORED: [&str; 2] = ["rp_cnp_ignored", "cnpIgnored"];
/// mlx5, irdma, bnxt_re.
const NOTIFIED: [&str; 8] = [
    "np_ecn_marked_roce_packets",
    "np_cnp_sent",
    "rp_cnp_handled",
    "RxECNMrkd",
    "cnpSent",
    "cnpHandled",
    "rx_ecn_marked_pkts",
    "rx_cnp_pkts",
];

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let all: Vec<Port<'_>> = ports(context)
        .into_iter()
        .filter(|port| port.is_roce() && port.is_active())
        .collect();
    let mut said = Vec::new();
    if let Some(watch) = context.watch {
        said.extend(all.iter().filter_map(|port| {
            let notices = [ignored(watch, *port), paused(context, watch, *port)];
            let notices = notices.into_iter().flatten().collect();
            let missing = Vec::from_iter(uncounted(watch, *port));
            judged(rule, context, port.subject(), notices, missing)
        }));
    }
    or_unwatched(rule, context, !all.is_empty(), said)
}

/// Without any counter of the device the result is unknown; a device with counters, but not these, does not support
/// them.
fn uncounted(watch: &Watch, port: Port<'_>) -> Option<Gap> {
    let prefix = port.key("hw/");
    if watch.below(&prefix).next().is_some() {
        return None;
    }
    let gap = watch.grown(&port.key("hw/np_cnp_sent")).gap().cloned()?;
    Some(match gap.cause {
        Cause::Absent => Gap::new(
            Cause::Absent,
            port.file("hw_counters"),
            "the device has no hw_counters",
        ),
        _ => gap,
    })
}

fn ignored(watch: &Watch, port: Port<'_>) -> Option<Notice> {
    let key = |name: &str| port.key(&format!("hw/{name}"));
    let lost = grown(watch, IGNORED, key);
    let (_, by) = lost.first()?;
    let summary = format!(
        "{} ignored {by} congestion notifications (CNP) while watched: enable the reaction point (RP)",
        port.name()
    );
    let evidence = lost
        .iter()
        .map(|(name, by)| growth(watch, name, &key(name), *by));
    Some(Notice::new(Severity::Warn, summary).with(evidence))
}

fn paused(context: &Context<'_>, watch: &Watch, port: Port<'_>) -> Option<Notice> {
    let nic = port.nic(context)?;
    let prefix = format!("nic/{}/driver/", nic.name);
    let span_us = watch.span_ns.as_secs_f64() * 1e6;
    let (name, by, share) = watch
        .below(&prefix)
        .filter(|(name, _, _)| name.contains("_prio") && name.ends_with("_pause_duration"))
        .map(|(name, by, _)| (name, by, part(by, span_us)))
        .filter(|(_, _, share)| share.as_f64() > PAUSED.as_f64())
        .max_by_key(|(_, by, _)| *by)?;
    let key = |name: &str| port.key(&format!("hw/{name}"));
    let signals = grown(watch, NOTIFIED, key);
    let what = if signals.is_empty() {
        "without any CNP: check that ECN is on in the fabric and the NIC"
    } else {
        "despite CNPs: they arrive too late, or too many senders target one receiver"
    };
    let summary = format!("{} was paused {share} of the time {what}", nic.name);
    let pause = growth(
        watch,
        &format!("{name}, microseconds"),
        &format!("{prefix}{name}"),
        by,
    );
    let seen = signals
        .iter()
        .map(|(name, by)| growth(watch, name, &key(name), *by));
    let evidence: Vec<Evidence> = std::iter::once(pause).chain(seen).collect();
    Some(Notice::new(Severity::Warn, summary).with(evidence))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "three significant digits are enough"
)]
fn part(us: u64, span_us: f64) -> Ratio {
    Ratio::new(us as f64 / span_us)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::devices::testing::roce;
    use super::super::testing::{Cases, World, finding};
    use super::*;
    use crate::build;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("notifications ignored", || {
                world().watched(|watch| watch.grew("rdma/mlx5_0/1/hw/rp_cnp_ignored", 5))
            }),
            ("paused for 5 % without a notification", || {
                world().watched(|watch| {
                    watch
                        .grew("rdma/mlx5_0/1/hw/np_cnp_sent", 0)
                        .grew("nic/eth0/driver/rx_prio3_pause_duration", 500_000)
                })
            }),
        ],
        silent: &[
            ("notifications handled", || {
                world().watched(|watch| {
                    watch
                        .grew("rdma/mlx5_0/1/hw/rp_cnp_ignored", 0)
                        .grew("rdma/mlx5_0/1/hw/rp_cnp_handled", 100)
                })
            }),
            ("no RDMA", || World::of(build::host().build())),
        ],
        undetermined: &[
            ("not watched", world),
            ("a device that counts nothing", || {
                world().watched(|watch| watch)
            }),
        ],
    };

    fn world() -> World {
        let host = build::host().nic("eth0", |nic| nic);
        World::of(
            host.with(|host| host.rdma.push(roce("mlx5_0", "eth0")))
                .build(),
        )
    }

    #[test]
    fn a_pause_without_a_notification_says_so() {
        let world = world().watched(|watch| {
            watch
                .grew("rdma/mlx5_0/1/hw/np_cnp_sent", 0)
                .grew("nic/eth0/driver/rx_prio3_pause_duration", 500_000)
        });
        let said = finding(ID, &world.context());
        assert!(said.summary.contains("5.0 %"), "{}", said.summary);
        assert!(
            said.summary.contains("check that ECN is on"),
            "{}",
            said.summary
        );
    }
}
