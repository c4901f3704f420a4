//! What happened while a host was watched (`linerate map --watch`): lines under each interface, one for
//! the CPUs, and the `watch` of the JSON.

use std::collections::BTreeMap;

use linerate_analysis::text::visible::visible;
use linerate_analysis::text::words::count;
use linerate_model::activity::{
    Activity, Counted, CountedRate, CpuActivity, LinkErrors, NicActivity, QueueActivity, Taken,
};
use linerate_model::host::{Nic, QueueKind};
use linerate_model::known::Known;
use serde::Serialize;
use serde_json::Value;

use super::gaps::MapGap;
use super::json::null_gaps;
use super::text::{Branch, show, show_with};
use crate::figures::rate;

/// More interrupts, errors or CPUs than this are only counted in the text; the JSON has all.
const LINES: usize = 16;

/// What `map --format json` prints as `watch`: null for what could not be counted, and why under `gaps`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WatchDocument {
    #[serde(flatten)]
    #[cfg_attr(feature = "schema", schemars(with = "Activity"))]
    activity: Value,
    gaps: Vec<MapGap>,
}

impl From<&Activity> for WatchDocument {
    fn from(activity: &Activity) -> Self {
        let (mut body, gaps) = null_gaps(activity);
        // The activity's own gaps belong to no field of it.
        if let Some(watch) = body.as_object_mut() {
            watch.remove("gaps");
        }
        let gaps = gaps.map(|gap| MapGap::from(gap.without_fields_of("/gaps/")));
        Self {
            activity: body,
            gaps: gaps.collect(),
        }
    }
}

/// The CPUs that worked.
pub(super) fn cpus_branch(activity: &Activity) -> Option<Branch> {
    if activity.cpus.is_empty() {
        return None;
    }
    let mut below: Vec<Branch> = activity
        .cpus
        .iter()
        .take(LINES)
        .map(|cpu| Branch::leaf(cpu_text(cpu)))
        .collect();
    below.extend(more(activity.cpus.len(), "CPU"));
    Some(Branch {
        text: format!(
            "{} busy in {}",
            count(activity.cpus.len(), "CPU"),
            seconds(activity)
        ),
        below,
    })
}

fn cpu_text(cpu: &CpuActivity) -> String {
    let words: Vec<String> = cpu
        .kinds()
        .into_iter()
        .filter(|(_, share)| *share >= 0.005)
        .map(|(kind, share)| format!("{kind} {:.0} %", share * 100.0))
        .collect();
    format!("CPU {}: {}", cpu.cpu, words.join(", "))
}

/// `and 3 more CPUs`, when there are more than [`LINES`].
fn more(all: usize, noun: &str) -> Option<Branch> {
    let rest = all.checked_sub(LINES).filter(|rest| *rest > 0)?;
    let plural = if rest == 1 { "" } else { "s" };
    Some(Branch::leaf(format!("and {rest} more {noun}{plural}")))
}

/// What could not be counted and no line shows.
pub(super) fn uncounted_branch(activity: &Activity) -> Option<Branch> {
    let gaps = &activity.gaps;
    let mut below: Vec<Branch> = gaps
        .iter()
        .take(LINES)
        .map(|gap| Branch::leaf(gap.to_string()))
        .collect();
    below.extend(more(gaps.len(), "place"));
    (!gaps.is_empty()).then(|| Branch {
        text: format!("{} without counters", count(gaps.len(), "place")),
        below,
    })
}

fn seconds(activity: &Activity) -> String {
    format!("{:.1} s", activity.seconds)
}

/// What passed an interface.
pub(super) fn nic_activity(nic: &Nic, activity: &Activity) -> Option<Branch> {
    let seen = activity.nics.iter().find(|seen| seen.name == nic.name)?;
    let way = |bits: &Known<f64>, packets: &Known<f64>| {
        let bits = show_with(bits, |bits| rate(*bits));
        let packets = show_with(packets, |packets| per_second(*packets));
        format!("{bits}, {packets} packets/s")
    };
    let passed = [&seen.rx_packets_per_s, &seen.tx_packets_per_s];
    let text = if passed.iter().all(|rate| rate.get() == Some(0.0)) {
        "no traffic".to_owned()
    } else {
        format!(
            "rx {}; tx {}",
            way(&seen.rx_bit_per_s, &seen.rx_packets_per_s),
            way(&seen.tx_bit_per_s, &seen.tx_packets_per_s)
        )
    };
    let mut below = queue_lines(nic, seen);
    below.extend(errors_line(seen));
    below.extend(seen.bit_error_rate.iter().map(link_branch));
    Some(Branch {
        text: format!("in {}: {text}", seconds(activity)),
        below,
    })
}

/// A line for each interrupt that came, with its queues, and one for queues whose interrupt is not known.
fn queue_lines(nic: &Nic, seen: &NicActivity) -> Vec<Branch> {
    let mut by_irq: BTreeMap<u32, Vec<&QueueActivity>> = BTreeMap::new();
    let mut lines = Vec::new();
    let mut unknown = None;
    for queue in &seen.queues {
        if let (Some(irq), Some(_)) = (queue.irq.get(), queue.interrupts_per_s.get()) {
            by_irq.entry(irq.0).or_default().push(queue);
        } else {
            let traffic = queue_text(queue);
            lines.extend(traffic.contains(' ').then(|| Branch::leaf(traffic)));
            unknown = unknown.or(queue.interrupts_per_s.gap());
        }
    }
    let all = by_irq.len();
    let mut moved: Vec<(u32, Vec<&QueueActivity>, f64)> = by_irq
        .into_iter()
        .filter_map(|(irq, queues)| {
            let often = queues.first()?.interrupts_per_s.get()?;
            (often > 0.0).then_some((irq, queues, often))
        })
        .collect();
    moved.sort_by(|one, other| other.2.total_cmp(&one.2));
    let shown = moved.iter().take(LINES);
    lines.splice(
        0..0,
        shown.map(|(irq, queues, often)| Branch::leaf(irq_text(*irq, queues, *often))),
    );
    lines.extend(more(moved.len(), "interrupt"));
    let quiet = all - moved.len();
    if quiet > 0 {
        lines.push(Branch::leaf(format!(
            "{quiet} of {all} queue interrupts did not fire"
        )));
    }
    if let (Some(gap), true) = (unknown, nic.kind.has_wire()) {
        lines.push(Branch::leaf(format!(
            "interrupts of its queues ? ({})",
            gap.cause
        )));
    }
    lines
}

fn irq_text(irq: u32, queues: &[&QueueActivity], often: f64) -> String {
    let names: Vec<String> = queues.iter().map(|queue| queue_text(queue)).collect();
    let napi = queues.iter().find_map(|queue| queue.napi.get());
    let napi = napi.map_or_else(String::new, |napi| format!(", NAPI {napi}"));
    let taken = queues.first().map_or(&[][..], |queue| &queue.taken_by);
    format!(
        "irq {irq}{napi}: {} interrupts/s on {}; {}",
        per_second(often),
        taken_text(taken, often),
        names.join(", ")
    )
}

/// `rx-3 (12.1 k packets/s, 1.20 Gb/s)`, or its name alone where its packets are not counted.
fn queue_text(queue: &QueueActivity) -> String {
    let way = match queue.kind {
        QueueKind::Rx => "rx",
        QueueKind::Tx => "tx",
    };
    let packets = queue.packets_per_s.get().filter(|rate| *rate > 0.0);
    let mut counted: Vec<String> = Vec::new();
    counted.extend(packets.map(|packets| format!("{} packets/s", per_second(packets))));
    counted.extend(queue.bit_per_s.get().filter(|bits| *bits > 0.0).map(rate));
    if counted.is_empty() {
        format!("{way}-{}", queue.index)
    } else {
        format!("{way}-{} ({})", queue.index, counted.join(", "))
    }
}

fn taken_text(taken: &[Taken], whole: f64) -> String {
    const NAMED: usize = 4;
    match taken {
        [] => "no CPU".to_owned(),
        [one] => format!("CPU {}", one.cpu),
        all => {
            let named = all.iter().take(NAMED);
            let mut words: Vec<String> = named
                .map(|one| format!("CPU {} {:.0} %", one.cpu, one.per_s / whole * 100.0))
                .collect();
            if all.len() > NAMED {
                words.push(format!("{} others", all.len() - NAMED));
            }
            words.join(", ")
        }
    }
}

fn errors_line(seen: &NicActivity) -> Option<Branch> {
    let mut words: Vec<String> = seen
        .errors
        .iter()
        .take(LINES)
        .map(|one| format!("{} +{}", visible(&one.counter), one.grown))
        .collect();
    if seen.errors.len() > LINES {
        words.push(format!("and {} more", seen.errors.len() - LINES));
    }
    (!words.is_empty()).then(|| Branch::leaf(format!("errors and drops: {}", words.join(", "))))
}

/// The errors of the link, and related counters.
fn link_branch(link: &LinkErrors) -> Branch {
    let side = |side: &Known<CountedRate>| show_with(side, counted_text);
    let mut below = vec![
        Branch::leaf(format!("before correction: {}", side(&link.before))),
        Branch::leaf(format!("after correction: {}", side(&link.after))),
    ];
    let mut beside = Vec::new();
    for (frequency, db) in link.attenuation_db.value().into_iter().flatten() {
        beside.push(format!("attenuation {db} dB at {}", visible(frequency)));
    }
    if let Some(heat) = link.module_temperature_mc.get() {
        beside.push(format!("module {} C", heat / 1000));
    }
    for heat in link.card_temperatures.value().into_iter().flatten() {
        let degrees = show_with(&heat.value_mc, |mc| format!("{} C", mc / 1000));
        beside.push(format!("NIC {} {degrees}", visible(&heat.label)));
    }
    if link.board.value().is_some() {
        beside.push(format!("board {}", show(&link.board)));
    }
    if !beside.is_empty() {
        below.push(Branch::leaf(beside.join(", ")));
    }
    Branch {
        text: format!("bit error rate: {}", link.advice),
        below,
    }
}

fn counted_text(side: &CountedRate) -> String {
    let what = match (side.counted, side.rate.errors) {
        (_, 0) | (Counted::Bits, _) => "",
        (Counted::Codewords, _) => "lower bound: codewords are counted, not bits",
        (Counted::Events, _) => "lower bound: errored blocks or symbols are counted, not bits",
    };
    let names: Vec<String> = side.counters.iter().map(|name| visible(name)).collect();
    format!("{}{what}; by {}", side.rate, names.join(", "))
}

/// A count in a second, short: `0.5`, `812`, `12.3 k`, `1.20 M`.
fn per_second(often: f64) -> String {
    match often {
        often if often < 10.0 => format!("{often:.1}"),
        often if often < 10_000.0 => format!("{often:.0}"),
        often if often < 1e6 => format!("{:.1} k", often / 1e3),
        often => format!("{:.2} M", often / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use linerate_model::activity::activity;
    use linerate_model::build;
    use linerate_model::host::Host;
    use serde_json::json;

    use super::*;
    use crate::map::text::{MapExtras, map_text_with};

    fn host() -> Host {
        build::host()
            .nodes(1, 4)
            .nic("eth0", |nic| nic.gbit(100).queues(&[0, 1]))
            .build()
    }

    fn busy(host: &Host) -> Activity {
        let irq = host.nics[0].queues[0].irq.get().expect("an interrupt");
        let watch = build::watch(host)
            .grew("nic/eth0/stat/rx_bytes", 12_500_000_000)
            .grew("nic/eth0/stat/rx_packets", 8_000_000)
            .grew("nic/eth0/stat/rx_missed_errors", 7)
            .grew("nic/eth0/fec/corrected-bits", 20_000_000)
            .grew("nic/eth0/queue/rx-0/packets", 8_000_000)
            .grew(&format!("irq/{irq}/cpu/1"), 90_000)
            .grew(&format!("irq/{irq}/cpu/3"), 30_000)
            .softirq(1, 0.93);
        activity(host, &watch.denied("nic/eth0/pause").build())
    }

    #[test]
    fn the_map_shows_under_each_interface_what_happened() {
        let host = host();
        let seen = busy(&host);
        let beside = MapExtras {
            whole: None,
            activity: Some(&seen),
        };
        let text = map_text_with(&host, &beside);
        let flat: String = text.replace(['│', '├', '└', '─', '\n'], " ");
        let flat = flat.split_whitespace().collect::<Vec<_>>().join(" ");
        for words in [
            "in 10.0 s: rx 10.00 Gb/s, 800.0 k packets/s; tx 0 b/s, 0.0 packets/s",
            "12.0 k interrupts/s on CPU 1 75 %, CPU 3 25 %; rx-0 (800.0 k packets/s)",
            "1 of 2 queue interrupts did not fire",
            "errors and drops: stat/rx_missed_errors +7",
            "bit error rate: FEC corrects everything: watch whether the rate rises.",
            "before correction: 2.0e-5 (2.0e-5 to 2.0e-5); by fec/corrected-bits",
            "after correction: below 3.0e-12 (no error seen)",
            "CPU 1: softirq 93 %",
            "1 place without counters",
        ] {
            assert!(flat.contains(words), "{words} is missing in\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn the_json_has_null_and_a_gap_for_what_was_not_counted() {
        let host = host();
        let watch = json!(WatchDocument::from(&busy(&host)));
        assert_eq!(watch["nics"][0]["rx_bit_per_s"], 1e10);
        let queue = &watch["nics"][0]["queues"][0];
        assert_eq!(queue["taken_by"][0], json!({"cpu": 1, "per_s": 9000.0}));
        assert_eq!(watch["nics"][0]["queues"][1]["packets_per_s"], Value::Null);
        let before = &watch["nics"][0]["bit_error_rate"]["before"];
        assert_eq!(before["counted"], "bits");
        let gaps = watch["gaps"].as_array().expect("a list");
        assert!(gaps.iter().any(|gap| gap["cause"] == "denied"));
        for gap in gaps {
            if let Some(field) = gap["field"].as_str() {
                assert_eq!(watch.pointer(field), Some(&Value::Null), "{field}");
            }
        }
        assert!(!watch.to_string().contains("\"unknown\""));
    }
}
