//! What a person reads of a measurement over RDMA verbs: perftest's tables, the queue pairs of both ends, and
//! what their ports counted.

use linerate_analysis::trial::operations::{askers, real};
use linerate_model::latency::Histogram;
use linerate_model::sample::{Sample, SideSample};
use linerate_model::units::{BitRate, Ratio};
use linerate_model::workload::Rdma;

use super::{Datagrams, Size, moved, records, sides, sizes};

/// Counters that are shown of each end.
const COUNTERS_SHOWN: usize = 24;

/// The table of sizes.
pub(in crate::measure) fn table(lines: &mut Vec<String>, sample: &Sample, rdma: &Rdma) {
    let sizes = sizes(sample);
    if rdma.latency {
        lines.push(format!(
            "{:>9} {:>12} {:>10} {:>10} {:>14} {:>10} {:>12} {:>10} {:>10}",
            "#bytes",
            "#iterations",
            "t_min[us]",
            "t_max[us]",
            "t_typical[us]",
            "t_avg[us]",
            "t_stdev[us]",
            "99%[us]",
            "99.9%[us]"
        ));
        lines.extend(sizes.iter().map(latency_row));
    } else {
        lines.push(format!(
            "{:>9} {:>12} {:>15} {:>18} {:>16}",
            "#bytes", "#iterations", "BW peak[Gb/s]", "BW average[Gb/s]", "MsgRate[M/s]"
        ));
        lines.extend(sizes.iter().map(rate_row));
    }
    if let Some(datagrams) = Datagrams::of(sample) {
        let share = real(datagrams.lost()) * 100.0 / real(datagrams.sent.max(1));
        lines.push(format!(
            "datagrams {} sent, {} received, {} lost ({share:.3} %)",
            datagrams.sent,
            datagrams.received,
            datagrams.lost(),
        ));
    }
    let unanswered: u64 = askers(sample)
        .map(|(_, operations)| operations.unanswered)
        .fold(0, u64::saturating_add);
    if unanswered > 0 {
        lines.push(format!(
            "{unanswered} UNANSWERED after 1 s each: excluded from these latencies"
        ));
    }
}

/// A figure, or its placeholder.
fn figure(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}

fn rate_row(size: &Size) -> String {
    let gbit = |rate: Option<f64>| figure(rate.map(|rate| rate / 1e9), 3);
    format!(
        "{:>9} {:>12} {:>15} {:>18} {:>16}",
        size.bytes.as_u64(),
        size.repetitions,
        gbit(size.peak.map(BitRate::as_f64)),
        gbit(size.rate()),
        figure(size.per_s.map(|per_s| per_s / 1e6), 6),
    )
}

fn latency_row(size: &Size) -> String {
    let all: &Histogram = &size.latency;
    let at = |quantile| {
        let found = all.quantile(quantile).map(|ns| real(ns.as_u64()) / 1e3);
        figure(found, 2)
    };
    let us = |ns: Option<f64>| figure(ns.map(|ns| ns / 1e3), 2);
    format!(
        "{:>9} {:>12} {:>10} {:>10} {:>14} {:>10} {:>12} {:>10} {:>10}",
        size.bytes.as_u64(),
        size.repetitions,
        us(all.min().map(|ns| real(ns.as_u64()))),
        us(all.max().map(|ns| real(ns.as_u64()))),
        at(0.5),
        us(all.mean_ns()),
        us(all.stddev_ns()),
        at(0.99),
        at(0.999),
    )
}

/// The queue pairs of both ends, and what their ports counted.
pub(in crate::measure) fn ends(lines: &mut Vec<String>, sample: &Sample) {
    for (end, side) in sides(sample) {
        queue_pairs(lines, &end.to_string(), side);
    }
    for (end, side) in sides(sample) {
        counters(lines, &end.to_string(), side);
    }
}

fn queue_pairs(lines: &mut Vec<String>, end: &str, side: &SideSample) {
    let Some(one) = records(side).next() else {
        return;
    };
    let mut facts = vec![format!("{}/{}", one.device, one.port)];
    let kind = one.gid_kind.as_deref().unwrap_or("GID");
    if let Some(index) = one.gid_index {
        let gid = one.gid.as_deref().unwrap_or("");
        facts.push(format!("{kind} {gid} (index {index})").replace("  ", " "));
    }
    facts.extend(one.mtu.map(|mtu| format!("MTU {mtu}")));
    let pairs: Vec<String> = records(side)
        .map(|record| record.queue_pair.to_string())
        .collect();
    facts.push(match &pairs[..] {
        [only] => format!("QP {only}"),
        many => format!("{} QPs from {}", many.len(), many[0]),
    });
    facts.push(format!("{} registered", one.registered_bytes));
    lines.push(format!("verbs     {end:<6} {}", facts.join(", ")));
    let sum = |pick: fn(&linerate_model::sample::VerbsRecord) -> u64| {
        records(side).map(pick).fold(0, u64::saturating_add)
    };
    let (completions, polls) = (sum(|one| one.completions), sum(|one| one.polls));
    if completions == 0 && polls == 0 {
        lines.push("                 passive: receives no completions".to_owned());
        return;
    }
    let in_vain = Ratio::new(real(sum(|one| one.polls_empty)) / real(polls.max(1)));
    lines.push(format!(
        "                 depth {}, inline up to {}, 1 of {} signaled; {completions} completions \
         in {polls} polls ({in_vain} empty), slept {} times",
        one.depth,
        one.inline_bytes,
        one.moderation,
        sum(|one| one.sleeps),
    ));
}

fn counters(lines: &mut Vec<String>, end: &str, side: &SideSample) {
    let Some(moved) = moved(side) else {
        let why = side.counters.gap().map_or("", |gap| gap.reason.as_str());
        lines.push(format!("ports     {end:<6} counters not read: {why}"));
        return;
    };
    let mut ports: Vec<&str> = moved.iter().map(|one| one.port.as_str()).collect();
    ports.dedup();
    for port in ports {
        let own: Vec<String> = moved
            .iter()
            .filter(|one| one.port == port)
            .map(|one| format!("{} +{}", one.name, one.grew))
            .collect();
        let more = match own.len().saturating_sub(COUNTERS_SHOWN) {
            0 => String::new(),
            more => format!(", {more} more"),
        };
        let shown = own[..own.len().min(COUNTERS_SHOWN)].join(", ");
        lines.push(format!("ports     {end:<6} {port}: {shown}{more}"));
    }
}
