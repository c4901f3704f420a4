//! `interface-drops`: the driver or the stack drops packets of an interface. Counters from
//! Documentation/networking/statistics.rst (`rx_dropped`, `tx_dropped`) and the driver's own (`ethtool -S`).

use super::judged::{Growth, Judged, growth, judge_watched};
use super::nic_discards_before_host::discards;
use super::{ALWAYS, Draft, subject};
use crate::finding::{Basis, Context, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Nic, Qdisc};
use crate::units::{Ratio, real};
use crate::watch::Watch;

pub(super) const RULE: Rule = Rule {
    id: "interface-drops",
    number: 104,
    status: Status::AdviceOnly,
    title: "the driver or the stack drops packets of an interface",
    severity: Severity::Warn,
    stage: Stage::Errors,
    profiles: ALWAYS,
    judges_by: &[Basis::Counters],
    threshold: "tx_dropped or a drop counter of the driver grows (note); by more than 1 of 10,000 packets and 1 per \
                second (warn); rx_dropped: more than 1 of 10,000 packets and 10 per second (warn); drops of the qdisc: more than 1 of \
                1,000 packets and 10 per second (warn, a shaper's: note)",
    effect: "each drop is a packet that TCP retransmits and UDP loses; no general figure",
    source: "Documentation/networking/statistics.rst; struct rtnl_link_stats64 in include/uapi/linux/if_link.h; \
             thresholds of linerate",
    fix: Fix::Elsewhere,
    persist: "nothing to set: find the cause of the drops",
    contested: None,
    page: include_str!("../../../../docs/rules/interface-drops.md"),
    check,
};

const SHARE: Ratio = Ratio::new(0.0001);
const PER_SECOND: f64 = 1.0;
/// A qdisc with queue management drops a few packets of each congested flow: TCP's signal to slow down.
const QDISC_SHARE: Ratio = Ratio::new(0.001);
const QDISC_PER_SECOND: f64 = 10.0;
/// `rx_dropped` also counts frames that nobody wants (LLDP, spanning tree): a few per second on any network.
const UNWANTED_PER_SECOND: f64 = 10.0;

/// Parts of the names of drivers' counters that count drops for lack of something.
const DROPS: [&str; 4] = ["drop", "discard", "no_buf", "nobuf"];
/// Drops that are wanted (XDP, filters) or that another rule reports.
const NOT_LOSS: [&str; 10] = [
    "xdp",
    "steer",
    "filter",
    "vlan",
    "mcast",
    "multicast",
    "bcast",
    "broadcast",
    "unsupported",
    "oversize",
];

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    judge_watched(rule, context, |nic| nic.kind.has_wire(), check_nic)
}

/// A counter of a driver that counts lost packets.
fn counts_loss(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    has(&DROPS) && !has(&NOT_LOSS)
}

fn check_nic(nic: &Nic, watch: &Watch) -> Judged {
    let is_tx = |name: &str| name.to_ascii_lowercase().contains("tx");
    let sent = growth(watch, nic, &["stat/tx_dropped"]).and_below(watch, nic, "driver", |name| {
        counts_loss(name) && is_tx(name)
    });
    let received = growth(watch, nic, &[]).and_below(watch, nic, "driver", |name| {
        counts_loss(name) && !is_tx(name)
    });
    let unwanted = growth(watch, nic, &["stat/rx_dropped"]);
    let queued = growth(watch, nic, &["qdisc/drops"]);
    // What the NIC discards itself is another rule's finding.
    let received = if discards(watch, nic).grew.is_empty() {
        received
    } else {
        growth(watch, nic, &[])
    };
    let packets = |name: &str| growth(watch, nic, &[name]).most();
    let seconds = watch.span_ns.as_secs_f64();
    let heavy = |drops: &Growth, of: u64, per_second: f64| {
        let drops = real(drops.most());
        drops > per_second * seconds && drops > real(of) * SHARE.as_f64()
    };
    let (tx, rx) = (packets("stat/tx_packets"), packets("stat/rx_packets"));
    let often = real(queued.most()) > QDISC_PER_SECOND * seconds
        && real(queued.most()) > real(tx.saturating_add(queued.most())) * QDISC_SHARE.as_f64();
    let directions = [
        ("while sending", &sent, heavy(&sent, tx, PER_SECOND), true),
        (
            "while receiving",
            &received,
            heavy(&received, rx, PER_SECOND),
            true,
        ),
        (
            "while receiving",
            &unwanted,
            heavy(&unwanted, rx, UNWANTED_PER_SECOND),
            false,
        ),
        ("in its qdisc", &queued, often, false),
    ];
    // The heaviest first; drops in the stack only if they are heavy, and if the driver reports none.
    let found = directions.iter().find(|(.., heavy, _)| *heavy).or_else(|| {
        directions
            .iter()
            .find(|(_, drops, _, few)| *few && !drops.grew.is_empty())
    });
    let Some((what, drops, heavy, _)) = found else {
        return unwanted.quiet_if_read();
    };
    // A shaper drops by intention.
    let shapes = nic.qdisc.value().is_some_and(Qdisc::shapes);
    let intended = *what == "in its qdisc" && shapes;
    let mut evidence = drops.evidence();
    evidence.extend(growth(watch, nic, &["stat/rx_packets", "stat/tx_packets"]).evidence());
    Ok(Some(Draft {
        severity: if *heavy && !intended {
            Severity::Warn
        } else {
            Severity::Note
        },
        subject: subject(nic),
        summary: format!(
            "{} drops packets {what} ({}): check its queues, CPUs and driver",
            nic.name,
            drops.words()
        ),
        evidence,
        remedies: Vec::new(),
    }))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding};
    use super::*;
    use crate::build;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("drops while sending", || grew(&[("stat/tx_dropped", 70)])),
            ("drops of the driver", || {
                grew(&[("driver/rx_queue_3_drops", 5_000)])
            }),
            ("drops of the qdisc", || grew(&[("qdisc/drops", 5_000)])),
            ("drops in the stack", || grew(&[("stat/rx_dropped", 5_000)])),
        ],
        silent: &[
            ("none", || grew(&[])),
            ("a few packets that queue management dropped", || {
                grew(&[("qdisc/drops", 20), ("stat/tx_packets", 900_000)])
            }),
            ("frames that nobody wants", || {
                grew(&[("stat/rx_dropped", 20)])
            }),
            ("drops that a program asked for", || {
                grew(&[
                    ("driver/rx_xdp_drop", 90_000),
                    ("driver/rx_steer_missed_packets", 9),
                ])
            }),
            ("what the card discards is another finding", || {
                grew(&[("driver/rx_discards_phy", 900)])
            }),
        ],
        undetermined: &[
            ("not watched", || World::of(card())),
            ("the counters may not be read", || {
                World::of(card()).watched(|w| w.denied("nic/eth0/stat"))
            }),
        ],
    };

    fn card() -> crate::host::Host {
        build::host().nic("eth0", |nic| nic).build()
    }

    fn grew(counters: &[(&str, u64)]) -> World {
        World::of(card()).watched(|watch| {
            let packets = watch
                .grew("nic/eth0/stat/rx_packets", 1_000_000)
                .grew("nic/eth0/stat/tx_packets", 1_000_000);
            counters.iter().fold(packets, |watch, (name, by)| {
                watch.grew(&format!("nic/eth0/{name}"), *by)
            })
        })
    }

    #[test]
    fn one_of_ten_thousand_packets_is_a_warning() {
        let severity = |by| {
            let world = grew(&[("stat/tx_dropped", by)]);
            finding(RULE.id, &world.context()).severity
        };
        assert_eq!(severity(70), Severity::Note);
        assert_eq!(severity(110), Severity::Warn);
    }
}
