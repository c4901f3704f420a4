//! `rdma-retransmit`: RDMA retransmissions: loss, reordering, corruption or a slow receiver. Counters of
//! the RDMA drivers: `hw_counters` of mlx5, bnxt_re, irdma and rxe.

use super::ALWAYS;
use super::devices::{Notice, Port, grown, growth, judged, or_unwatched, ports};
use super::rdma_counters::{CORRUPT, LOSS, RECEIVER};
use crate::finding::{Basis, Context, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::known::{Cause, Gap};
use crate::units::Ratio;
use crate::watch::Watch;

pub(super) const RULE: Rule = Rule {
    id: "rdma-retransmit",
    number: 73,
    status: Status::AdviceOnly,
    title: "RDMA retransmissions: loss, reordering, corruption or a slow receiver",
    severity: Severity::Crit,
    stage: Stage::Errors,
    profiles: ALWAYS,
    judges_by: &[Basis::Counters],
    threshold: "any retransmission on InfiniBand or with a lossless priority, or any ICRC error (crit); on \
                other networks more than 1e-5 of the packets (crit), fewer (note); RNR NAKs (warn)",
    effect: "after a loss, go-back-N retransmits everything that followed the lost packet; no verified figure",
    source: "drivers/infiniband/hw/mlx5/counters.c; hw_counters of bnxt_re, irdma and rxe; \
             rdma-statistic(8)",
    fix: Fix::Elsewhere,
    persist: "nothing to set: fix the fabric, or the program that posts too few receives",
    contested: None,
    page: include_str!("../../../../docs/rules/rdma-retransmit.md"),
    check,
};

/// The share of packets, on a lossy fabric.
const LOSSY: Ratio = Ratio::new(1e-5);

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let all: Vec<Port<'_>> = ports(context).into_iter().filter(Port::is_active).collect();
    let mut said = Vec::new();
    if let Some(watch) = context.watch {
        said.extend(all.iter().filter_map(|port| {
            let notices = [
                corrupt(watch, *port),
                loss(context, watch, *port),
                receiver(watch, *port),
            ];
            let notices = notices.into_iter().flatten().collect();
            let missing = Vec::from_iter(uncounted(watch, *port));
            judged(rule, context, port.subject(), notices, missing)
        }));
    }
    or_unwatched(rule, context, !all.is_empty(), said)
}

fn uncounted(watch: &Watch, port: Port<'_>) -> Option<Gap> {
    let known = |name: &str| {
        watch
            .grown(&port.key(&format!("hw/{name}")))
            .get()
            .is_some()
    };
    if LOSS
        .iter()
        .chain(&RECEIVER)
        .chain(&CORRUPT)
        .any(|name| known(name))
    {
        return None;
    }
    let gap = watch
        .grown(&port.key("hw/out_of_sequence"))
        .gap()
        .cloned()?;
    Some(match gap.cause {
        Cause::Absent => Gap::new(
            Cause::Absent,
            port.file("hw_counters"),
            "the device has no retransmission counters",
        ),
        _ => gap,
    })
}

fn noticed(
    watch: &Watch,
    port: Port<'_>,
    severity: Severity,
    what: &str,
    lost: &[(&str, u64)],
) -> Notice {
    let words: Vec<String> = lost
        .iter()
        .map(|(name, by)| format!("{name} {by}"))
        .collect();
    let mut words = words.join(", ");
    if words.len() > 80 {
        let total = lost
            .iter()
            .fold(0u64, |sum, (_, by)| sum.saturating_add(*by));
        words = format!("{} counters, {total} in total", lost.len());
    }
    let key = |name: &str| port.key(&format!("hw/{name}"));
    let evidence = lost
        .iter()
        .map(|(name, by)| growth(watch, name, &key(name), *by));
    Notice::new(severity, format!("{} {what} ({words})", port.name())).with(evidence)
}

fn loss(context: &Context<'_>, watch: &Watch, port: Port<'_>) -> Option<Notice> {
    let lost = grown(watch, LOSS, |name| port.key(&format!("hw/{name}")));
    let most = lost.iter().map(|(_, by)| *by).max()?;
    let lossless = port.is_infiniband()
        || port.nic(context).is_some_and(|nic| {
            let dcb = nic.shaping.dcb.value();
            dcb.is_some_and(|dcb| dcb.pfc_enabled.get().is_some_and(|bits| bits != 0))
        });
    let severity = match share(watch, port, most) {
        _ if lossless => Severity::Crit,
        Some(share) if share.as_f64() > LOSSY.as_f64() => Severity::Crit,
        Some(_) => Severity::Note,
        None => Severity::Warn,
    };
    let what = "retransmitted after loss or reordering: check for drops, and for paths of different length";
    Some(noticed(watch, port, severity, what, &lost))
}

/// `count` as a share of the port's packets.
#[expect(clippy::cast_precision_loss, reason = "a share needs three digits")]
fn share(watch: &Watch, port: Port<'_>, count: u64) -> Option<Ratio> {
    let moved = |name: &str| watch.grown(&port.key(name)).get();
    let pairs = [
        ("counter/port_rcv_packets", "counter/port_xmit_packets"),
        ("hw/rx_packets", "hw/tx_packets"),
        ("hw/rcvd_pkts", "hw/sent_pkts"),
    ];
    let packets = pairs
        .iter()
        .find_map(|(received, sent)| moved(received)?.checked_add(moved(sent)?))?;
    (packets > 0).then(|| Ratio::new(count as f64 / packets as f64))
}

fn receiver(watch: &Watch, port: Port<'_>) -> Option<Notice> {
    let lost = grown(watch, RECEIVER, |name| port.key(&format!("hw/{name}")));
    let what = "had no receive posted (RNR): the program posts too few receives, or too slowly";
    (!lost.is_empty()).then(|| noticed(watch, port, Severity::Warn, what, &lost))
}

fn corrupt(watch: &Watch, port: Port<'_>) -> Option<Notice> {
    let lost = grown(watch, CORRUPT, |name| port.key(&format!("hw/{name}")));
    let what = "received packets with a wrong ICRC: check cable, switch and memory";
    (!lost.is_empty()).then(|| noticed(watch, port, Severity::Crit, what, &lost))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::devices::testing::{infiniband, roce};
    use super::super::testing::{Cases, World, finding};
    use super::*;
    use crate::build::{self, WatchBuilder};

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("loss", || {
                lossy(|watch| watch.grew(&hw("out_of_sequence"), 50))
            }),
            ("a receiver that posts too little", || {
                lossy(|watch| watch.grew(&hw("out_of_buffer"), 4))
            }),
            ("corruption", || {
                lossy(|watch| watch.grew(&hw("rx_icrc_encapsulated"), 1))
            }),
        ],
        silent: &[
            ("nothing grew", || {
                lossy(|watch| watch.grew(&hw("out_of_sequence"), 0))
            }),
            ("no RDMA", || World::of(build::host().build())),
        ],
        undetermined: &[
            ("not watched", world),
            ("a device that counts nothing", || lossy(|watch| watch)),
        ],
    };

    fn hw(name: &str) -> String {
        format!("rdma/mlx5_0/1/hw/{name}")
    }

    fn world() -> World {
        let host = build::host().nic("eth0", |nic| nic);
        World::of(
            host.with(|host| host.rdma.push(roce("mlx5_0", "eth0")))
                .build(),
        )
    }

    fn lossy(change: impl FnOnce(WatchBuilder) -> WatchBuilder) -> World {
        world().watched(|watch| {
            change(
                watch
                    .grew("rdma/mlx5_0/1/counter/port_rcv_packets", 1_000_000)
                    .grew("rdma/mlx5_0/1/counter/port_xmit_packets", 1_000_000),
            )
        })
    }

    #[test]
    fn a_lossy_fabric_may_lose_a_little_and_infiniband_nothing() {
        let severity = |world: &World| finding(ID, &world.context()).severity;
        assert_eq!(
            severity(&lossy(|w| w.grew(&hw("packet_seq_err"), 50))),
            Severity::Crit
        );
        assert_eq!(
            severity(&lossy(|w| w.grew(&hw("packet_seq_err"), 2))),
            Severity::Note
        );
        let host = build::host()
            .with(|host| host.rdma.push(infiniband("mlx5_0")))
            .build();
        let world = World::of(host).watched(|watch| watch.grew(&hw("packet_seq_err"), 1));
        assert_eq!(severity(&world), Severity::Crit);
    }
}
