//! The text output of a measurement.

use linerate_analysis::trial::operations::{askers, ops_per_s, real};
use linerate_model::analysis::rate_series;
use linerate_model::known::Known;
use linerate_model::latency::Histogram;
use linerate_model::limit::LimitKind;
use linerate_model::limit::why::Status;
use linerate_model::pingpong::{Judgement, Point};
use linerate_model::sample::{CpuTimes, FlowRecord, SideSample};
use linerate_model::units::{BitRate, Bytes, Nanoseconds};
use linerate_model::workload::Workload;
use linerate_report::Nulled;

use super::document::{EndCost, MeasureDocument};
use super::measured::{Measured, corrected_latency, datagrams, steps, warmup, whole_latency};
use super::repeat::Repeats;
use super::{diffusion, verbs};
use crate::endpoint::why::Why;

/// With more flows than these, only the slowest, median and fastest are shown.
const FLOWS_SHOWN: usize = 16;
/// Maximum width of a bar picture of steps.
const STEPS_SHOWN: usize = 60;
/// Maximum CPUs shown over time.
const CPUS_SHOWN: usize = 16;
/// Maximum hot symbols shown.
const SYMBOLS_SHOWN: usize = 12;

/// The lines of output.
pub(super) fn text(
    measured: &Measured<'_>,
    document: &MeasureDocument<'_>,
    repeats: Option<&Repeats>,
) -> String {
    let mut lines = Vec::new();
    if let Some(rdma) = verbs::rdma(&measured.sample) {
        let one_rate = !rdma.latency && rdma.sizes.len() == 1;
        if one_rate {
            bulk(&mut lines, measured);
        }
        verbs::text::table(&mut lines, &measured.sample, rdma);
        if one_rate {
            picture(&mut lines, measured);
        }
    } else if measured.sample.spec.workload.is_bulk() {
        bulk(&mut lines, measured);
        picture(&mut lines, measured);
    } else {
        operations(&mut lines, measured);
    }
    if let Some(repeats) = repeats {
        let bulk = measured.sample.spec.workload.is_bulk();
        let figure = |value| {
            if bulk {
                rate(BitRate::from_f64(value))
            } else {
                per_second(value)
            }
        };
        lines.push(format!("repeats   {}", repeats.in_words(figure)));
        if let Some(drift) = repeats.drift_in_words() {
            lines.push(format!("drift     {drift}"));
        }
    }
    for requirement in &document.requirements {
        lines.push(format!("require   {}", requirement.in_words()));
    }
    if measured.ceiling().is_some() {
        ceiling(&mut lines, measured);
    }
    if let Some(limit) = &measured.limit {
        let limited = limit.status.qualified(&limit.what.to_string());
        lines.push(format!("limit     {limited}"));
        if let Some(why) = &measured.why {
            let more = interventions(why).into_iter();
            lines.extend(more.map(|line| format!("          {line}")));
        } else if limit.what == LimitKind::NotDetermined {
            lines.push("          no figure exceeded its threshold:".to_owned());
        }
        for evidence in &limit.evidence {
            let (what, value, path) = (&evidence.what, &evidence.value, &evidence.path);
            lines.push(format!("          {what}: {value}  [{path}]"));
        }
    }
    verbs::text::ends(&mut lines, &measured.sample);
    cpu(&mut lines, measured, document);
    profile(&mut lines, measured);
    if !measured.sample.flags.is_empty() {
        let flags: Vec<String> = measured
            .sample
            .flags
            .iter()
            .map(|flag| linerate_report::flag_in_words(*flag))
            .collect();
        lines.push(format!("flags     {}", flags.join("; ")));
    }
    lines.join("\n")
}

fn rate(rate: Option<BitRate>) -> String {
    rate.map_or_else(|| "unknown".to_owned(), |rate| rate.to_string())
}

fn bulk(lines: &mut Vec<String>, measured: &Measured<'_>) {
    let spec = &measured.sample.spec;
    let cut = warmup(&measured.sample).map_or_else(
        || "no warm-up cut".to_owned(),
        |seconds| format!("first {seconds:.2} s cut as warm-up"),
    );
    lines.push(format!(
        "rate      {}   ({}, {:.1} s, {cut})",
        rate(measured.rate),
        count(
            u64::from(spec.flows),
            if spec.verbs.is_some() {
                "queue pair"
            } else {
                "flow"
            }
        ),
        measured.sample.local.elapsed_ns.as_secs_f64(),
    ));
    if let Some((sent, all)) = datagrams(measured) {
        let sent = sent.map_or_else(|| "?".to_owned(), |sent| sent.to_string());
        let arrived = all.count.saturating_sub(all.duplicated);
        let expected = all.lost.saturating_add(arrived).max(1);
        let seconds = measured
            .sample
            .local
            .elapsed_ns
            .as_secs_f64()
            .max(f64::MIN_POSITIVE);
        lines.push(format!(
            "datagrams {} per second; {sent} sent, {} received, {} lost ({:.3} %), {} reordered, \
             {} duplicates, jitter {}",
            per_second(real(all.count) / seconds),
            all.count,
            all.lost,
            real(all.lost) * 100.0 / real(expected),
            all.reordered,
            all.duplicated,
            all.jitter_ns,
        ));
        if let Some(delay) = &all.delay {
            lines.push(format!("delay     {}", latency(delay)));
        }
    }
    flow_table(lines, measured);
}

fn flow_table(lines: &mut Vec<String>, measured: &Measured<'_>) {
    let flows = measured.flows();
    let mean = |flow: &FlowRecord| BitRate::of(flow.total(), *flow.at_ns.last()?);
    if flows.len() > FLOWS_SHOWN {
        let mut rates: Vec<BitRate> = flows
            .iter()
            .filter_map(|(_, sender, receiver)| mean(measured.counted(*sender, *receiver)?))
            .collect();
        rates.sort_unstable();
        if let (Some(low), Some(high)) = (rates.first(), rates.last()) {
            let middle = rates[rates.len() / 2];
            lines.push(format!(
                "flows     slowest {low}, median {middle}, fastest {high}"
            ));
        }
        return;
    }
    if flows.len() < 2 {
        return;
    }
    lines
        .push("flow      from     bytes         rate            cpus       retransmits".to_owned());
    for (from, sender, receiver) in flows {
        let Some(known) = measured.counted(sender, receiver) else {
            continue;
        };
        let cpu = |flow: Option<&FlowRecord>| {
            let cpu = flow.and_then(|flow| flow.last_cpu.get());
            cpu.map_or_else(|| "?".to_owned(), |cpu| cpu.to_string())
        };
        let retransmits = sender.and_then(|flow| flow.tcp.value().map(|tcp| tcp.retransmits));
        lines.push(format!(
            "{:<9} {:<8} {:<13} {:<15} {:<10} {}",
            known.flow,
            from.to_string(),
            known.total().to_string(),
            rate(mean(known)),
            format!("{} -> {}", cpu(sender), cpu(receiver)),
            match retransmits {
                Some(count) => count.to_string(),
                // Over verbs a port counts them, for all queue pairs together.
                None if known.verbs.is_some() => "-".to_owned(),
                None => "?".to_owned(),
            },
        ));
    }
    let total: u64 = measured
        .flows()
        .iter()
        .filter_map(|(_, sender, receiver)| measured.counted(*sender, *receiver))
        .map(|flow| flow.total().as_u64())
        .fold(0, u64::saturating_add);
    let whole = BitRate::of(Bytes::new(total), measured.sample.local.elapsed_ns);
    let bytes = Bytes::new(total).to_string();
    lines.push(format!(
        "sum                {bytes:<13} {} (warm-up included)",
        rate(whole)
    ));
}

fn operations(lines: &mut Vec<String>, measured: &Measured<'_>) {
    let sample = &measured.sample;
    let done: u64 = askers(sample)
        .map(|(_, operations)| operations.completed)
        .fold(0, u64::saturating_add);
    let failed: u64 = askers(sample)
        .map(|(_, operations)| operations.failed)
        .fold(0, u64::saturating_add);
    let unanswered: u64 = askers(sample)
        .map(|(_, operations)| operations.unanswered)
        .fold(0, u64::saturating_add);
    let bad = |count: u64, what: &str| {
        Some(format!(", {count} {what}"))
            .filter(|_| count > 0)
            .unwrap_or_default()
    };
    if matches!(sample.spec.workload, Workload::Pingpong(_)) {
        sizes(lines, measured);
        if let Some(judgement) = &measured.judgement {
            fit(lines, judgement);
        }
    } else {
        let what = match sample.spec.workload {
            Workload::Transfer(_) | Workload::Diffusion(_) => "cycles",
            _ => "requests",
        };
        let moved = measured.rate.map_or_else(String::new, |rate| {
            format!(", {rate} both directions combined")
        });
        lines.push(format!(
            "{what:<9} {} per second   ({done} in {:.1} s on {}{}{}{moved})",
            ops_per_s(sample).map_or_else(|| "?".to_owned(), per_second),
            sample.local.elapsed_ns.as_secs_f64(),
            count(u64::from(sample.spec.flows), "connection"),
            bad(failed, "FAILED"),
            bad(unanswered, "UNANSWERED"),
        ));
        if let Some(all) = whole_latency(sample, |operations| Some(&operations.latency)) {
            lines.push(format!("latency   {}", latency(&all)));
            lines.push(format!("          {}", spread(&all)));
        }
        if let Some(corrected) = corrected_latency(sample) {
            lines.push(format!(
                "corrected {} (as wrk: with the requests not sent meanwhile)",
                latency(&corrected)
            ));
        }
        if let Some(service) = whole_latency(sample, |operations| operations.service.as_ref()) {
            lines.push(format!(
                "closed    {} (closed loop: from the actual send time)",
                latency(&service)
            ));
        }
        per_thread(lines, measured);
        diffusion::text(lines, measured);
    }
    picture(lines, measured);
}

/// wrk's three figures, with the share within one standard deviation.
fn spread(histogram: &Histogram) -> String {
    let ns = |value: Option<f64>| value.map_or_else(|| "?".to_owned(), time);
    let within = histogram.within_one_stddev().unwrap_or(f64::NAN) * 100.0;
    format!(
        "avg {}, stdev {}, max {}, {within:.2} % within 1 stdev",
        ns(histogram.mean_ns()),
        ns(histogram.stddev_ns()),
        ns(histogram.max().map(|max| real(max.as_u64()))),
    )
}

fn latency(histogram: &Histogram) -> String {
    let at = |quantile| {
        let found = histogram.quantile(quantile);
        found.map_or_else(|| "?".to_owned(), |found| time(real(found.as_u64())))
    };
    format!(
        "p50 {}, p90 {}, p99 {}, p99.9 {}, max {}",
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        at(1.0)
    )
}

/// A time in a suitable unit.
pub(super) fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.2} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

fn per_second(value: f64) -> String {
    match value {
        value if value < 100.0 => format!("{value:.2}"),
        value if value < 1e5 => format!("{value:.0}"),
        value if value < 1e6 => format!("{:.1} k", value / 1e3),
        value => format!("{:.3} M", value / 1e6),
    }
}

fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn per_thread(lines: &mut Vec<String>, measured: &Measured<'_>) {
    for (side, operations) in askers(&measured.sample) {
        if operations.per_thread.len() < 2 || operations.per_thread.len() > FLOWS_SHOWN {
            continue;
        }
        let seconds = side.elapsed_ns.as_secs_f64().max(f64::MIN_POSITIVE);
        let each: Vec<String> = operations
            .per_thread
            .iter()
            .map(|done| per_second(real(*done) / seconds))
            .collect();
        lines.push(format!("threads   {} per second", each.join(", ")));
    }
}

/// IMB's table.
fn sizes(lines: &mut Vec<String>, measured: &Measured<'_>) {
    lines.push(format!(
        "{:>12} {:>14} {:>12} {:>12} {:>12}",
        "#bytes", "#repetitions", "t[us]", "Mbytes/s", "p99[us]"
    ));
    for size in askers(&measured.sample).flat_map(|(_, operations)| &operations.sizes) {
        let mean = size.one_way.mean_ns().unwrap_or(f64::NAN);
        let bytes = real(size.bytes.as_u64());
        let rate = if mean > 0.0 {
            bytes * 1e3 / mean
        } else {
            f64::NAN
        };
        let p99 = size.one_way.quantile(0.99).unwrap_or_default();
        lines.push(format!(
            "{:>12} {:>14} {:>12.2} {:>12.2} {:>12.2}",
            size.bytes.as_u64(),
            size.repetitions,
            mean / 1e3,
            rate,
            real(p99.as_u64()) / 1e3,
        ));
    }
}

/// The combined result for the sizes.
fn fit(lines: &mut Vec<String>, judgement: &Judgement) {
    let line = &judgement.line;
    lines.push(format!(
        "fit       {} + bytes / {}   (base latency, bandwidth)",
        time(line.latency_ns),
        line.rate()
            .map_or_else(|| "?".to_owned(), |rate| rate.to_string()),
    ));
    let at = |name: &str, point: Option<Point>| {
        point.map(|point| {
            let rate = point
                .rate()
                .map_or_else(String::new, |rate| format!(", {rate}"));
            format!("{name} {}{rate}", time(point.one_way_ns))
        })
    };
    let two: Vec<String> = [
        at("at 4 B", judgement.small),
        at("at 4 MiB", judgement.large),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !two.is_empty() {
        lines.push(format!("          {}", two.join("; ")));
    }
    for dip in &judgement.dips {
        lines.push(format!(
            "dip       {} at {}, neighboring sizes predict {}",
            dip.bytes, dip.rate, dip.expected
        ));
    }
    match &judgement.hops {
        Known::Value(hops) => lines.push(format!("hops      {hops}")),
        Known::Unknown(gap) => lines.push(format!("hops      unknown: {}", gap.reason)),
    }
}

/// Rates over time as bars, at most `most`; each is the mean of those it represents.
fn bars(rates: &[f64], most: f64) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let bar = |rate: f64| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of 7"
        )]
        let height = (rate / most.max(f64::MIN_POSITIVE) * 7.0)
            .round()
            .clamp(0.0, 7.0) as usize;
        BARS[height]
    };
    let each = rates.len().div_ceil(STEPS_SHOWN).max(1);
    let mean = |chunk: &[f64]| chunk.iter().sum::<f64>() / real(chunk.len() as u64);
    rates.chunks(each).map(|chunk| bar(mean(chunk))).collect()
}

fn extremes(rates: &[f64]) -> (f64, f64) {
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let most = rates.iter().copied().fold(0.0, f64::max);
    (least, most)
}

/// The course over time: rates or operations, and the CPUs' activity.
fn picture(lines: &mut Vec<String>, measured: &Measured<'_>) {
    let sample = &measured.sample;
    if matches!(sample.spec.workload, Workload::Pingpong(_)) {
        return;
    }
    let bulk = sample.spec.workload.is_bulk();
    let points: Vec<(f64, f64)> = if bulk {
        let total = rate_series(sample).total;
        total
            .iter()
            .map(|point| (point.at_ns.as_secs_f64(), point.bit_per_s.as_f64()))
            .collect()
    } else {
        steps(sample)
    };
    if points.len() < 2 {
        return;
    }
    let figure = |value: f64| {
        if bulk {
            rate(BitRate::from_f64(value))
        } else {
            format!("{} per second", per_second(value))
        }
    };
    let rates: Vec<f64> = points.iter().map(|(_, rate)| *rate).collect();
    let (least, most) = extremes(&rates);
    let bars = bars(&rates, most);
    lines.push(format!(
        "over time {bars}  {} to {}",
        figure(least),
        figure(most)
    ));
    for (from, to, value) in
        (measured.interval).map_or_else(Vec::new, |width| joined(&points, width))
    {
        lines.push(format!(
            "          {from:6.2} - {to:6.2} s  {}",
            figure(value)
        ));
    }
    cpus_over_time(lines, "local", &sample.local);
    // With one kernel the other end's CPUs are the same.
    if !sample.shared_kernel {
        cpus_over_time(lines, "remote", &sample.remote);
    }
}

/// The mean value of each interval of `width`, as (from, to, value), of values up to a time; edges are at the nearest
/// time. A last one that is shorter than half belongs to the one before.
fn joined(points: &[(f64, f64)], width: Nanoseconds) -> Vec<(f64, f64, f64)> {
    let width = width.as_secs_f64();
    let end = points.last().map_or(0.0, |(end, _)| *end);
    let mut joined: Vec<(f64, f64, f64)> = Vec::new();
    let mut before = 0.0;
    // Where the current interval ends.
    let mut edge = width;
    for &(to, value) in points {
        let is_next = f64::midpoint(before, to) >= edge && end - before >= width / 2.0;
        match joined.last_mut() {
            Some((from, until, mean)) if !is_next => {
                *mean = (*mean * (*until - *from) + value * (to - before)) / (to - *from);
                *until = to;
            }
            _ => {
                joined.push((before, to, value));
                while f64::midpoint(before, to) >= edge {
                    edge += width;
                }
            }
        }
        before = to;
    }
    joined
}

/// How busy each CPU of one end was, step by step, and with what.
fn cpus_over_time(lines: &mut Vec<String>, end: &str, side: &SideSample) {
    let series = &side.cpu.series;
    let Some(first) = series.first().filter(|_| series.len() >= 2) else {
        return;
    };
    for (index, cpu) in first.cpus.iter().enumerate().take(CPUS_SHOWN) {
        let steps: Vec<&CpuTimes> = series
            .iter()
            .filter_map(|step| step.cpus.get(index))
            .filter(|times| times.cpu == cpu.cpu)
            .collect();
        let share = |kind: fn(&CpuTimes) -> Nanoseconds| {
            let part: f64 = steps.iter().map(|times| kind(times).as_secs_f64()).sum();
            let whole: f64 = steps.iter().map(|times| times.total().as_secs_f64()).sum();
            part * 100.0 / whole.max(f64::MIN_POSITIVE)
        };
        let busy: Vec<f64> = steps
            .iter()
            .map(|times| {
                times.busy().as_secs_f64() / times.total().as_secs_f64().max(f64::MIN_POSITIVE)
            })
            .collect();
        lines.push(format!(
            "          {end} CPU {:<4} {}  user {:.0} %, system {:.0} %, softirq {:.0} %",
            cpu.cpu,
            bars(&busy, 1.0),
            share(|times| times.user_ns),
            share(|times| times.system_ns),
            share(|times| times.softirq_ns),
        ));
    }
}

fn ceiling(lines: &mut Vec<String>, measured: &Measured<'_>) {
    let Some(ceiling) = measured.ceiling() else {
        return;
    };
    let reached = measured
        .reached()
        .map_or_else(String::new, |share| format!(" ({share} reached)"));
    let reason = &ceiling.reason;
    lines.push(format!(
        "ceiling   {}{reached}: {reason}",
        ceiling.bit_per_s
    ));
}

fn cpu(lines: &mut Vec<String>, measured: &Measured<'_>, document: &MeasureDocument<'_>) {
    let ends = measured.ends.as_ref();
    let names = [
        (
            "local",
            ends.map_or("this host", |ends| ends.local_nic.as_str()),
        ),
        ("remote", ends.map_or("", |ends| ends.remote_nic.as_str())),
    ];
    let shared = measured.sample.shared_kernel;
    for ((end, name), cpu) in names
        .into_iter()
        .zip([&document.cpu.local, &document.cpu.remote])
    {
        let Some(EndCost {
            cost: Nulled(cost),
            s_per_operation,
            ..
        }) = cpu
        else {
            continue;
        };
        let or_unknown = |figure: Option<String>| figure.unwrap_or_else(|| "?".to_owned());
        let seconds = |figure: Option<f64>| or_unknown(figure.map(|s| format!("{s:.2}")));
        let per_gb = || {
            let per_gb = or_unknown(cost.s_per_gb.map(|s| format!("{s:.3}")));
            format!("{per_gb} s per GB")
        };
        let bulk = measured.sample.spec.workload.is_bulk();
        let each = match s_per_operation.map(|s| time(s * 1e9)) {
            None => per_gb(),
            Some(each) if bulk => format!("{}, {each} CPU per message", per_gb()),
            Some(each) => format!("{each} CPU each"),
        };
        let softirq = format!("softirq {} s", seconds(cost.softirq_s.get()));
        let own = if shared {
            each
        } else {
            format!("{softirq}, {each}")
        };
        lines.push(format!(
            "cpu       {end:<6} ({name}) user {} s, system {} s, {own}",
            seconds(Some(cost.user_s)),
            seconds(Some(cost.system_s)),
        ));
        if shared && end == "remote" {
            lines.push(format!("          both on one kernel: {softirq}"));
        }
    }
}

fn profile(lines: &mut Vec<String>, measured: &Measured<'_>) {
    if measured.sample.spec.profile_hz.is_none() {
        return;
    }
    let sides = [
        ("local", &measured.sample.local),
        ("remote", &measured.sample.remote),
    ];
    for (end, side) in sides {
        let Some(profile) = side.profile.value() else {
            let why = side.profile.gap().map_or("", |gap| gap.reason.as_str());
            lines.push(format!("perf      {end}: none: {why}"));
            continue;
        };
        lines.push(format!(
            "perf      {end}: {} samples of {}, {} lost, scope: {}",
            profile.samples, profile.event, profile.lost, profile.scope
        ));
        for gap in &profile.gaps {
            lines.push(format!("          {}", gap.reason));
        }
        for hot in profile.symbols.iter().take(SYMBOLS_SHOWN) {
            let share = real(hot.samples) * 100.0 / real(profile.samples.max(1));
            lines.push(format!(
                "          {share:5.1} %  {}  {}",
                hot.symbol, hot.place
            ));
        }
    }
}

/// The lines below the limit: what refuted its rivals, and what was not tried.
fn interventions(why: &Why) -> Vec<String> {
    let suggested = why.verdict.hypotheses.iter().filter(|one| one.suggested);
    let refuted = suggested
        .filter(|one| !one.stands())
        .map(|one| format!("not {}: {}", one.what, one.refuted_by.join("; ")));
    let standing = why.verdict.hypotheses.iter().filter(|one| {
        one.stands() && one.what != why.verdict.what && why.verdict.status != Status::Proved
    });
    let standing: Vec<String> = standing.map(|one| one.what.to_string()).collect();
    let left = (!standing.is_empty()).then(|| format!("not refuted: {}", standing.join(", ")));
    let untried = why.tried.iter().filter_map(|one| {
        let reason = one.reason.as_ref()?;
        Some(format!("{}: {reason}", one.intervention))
    });
    refuted.chain(left).chain(untried).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_unit_that_suits_them() {
        assert_eq!(time(999.0), "999 ns");
        assert_eq!(time(24_560.0), "24.56 us");
        assert_eq!(time(1.5e9), "1.50 s");
    }

    #[test]
    fn reported_intervals_end_at_the_nearest_reading_and_a_sliver_belongs_to_the_one_before() {
        let points = [(0.5, 2.0), (0.98, 4.0), (1.5, 6.0), (2.02, 6.0), (2.1, 1.0)];
        let second = Nanoseconds::from_millis(1_000);
        let rows = joined(&points, second);
        let edges: Vec<(f64, f64)> = rows.iter().map(|(from, to, _)| (*from, *to)).collect();
        assert_eq!(edges, [(0.0, 0.98), (0.98, 2.1)]);
        let sum: f64 = rows.iter().map(|(from, to, mean)| (to - from) * mean).sum();
        let all = 0.5 * 2.0 + 0.48 * 4.0 + 1.04 * 6.0 + 0.08;
        assert!((sum - all).abs() < 1e-9, "{rows:?}");
        // Readings that are rarer than the intervals are all shown.
        assert_eq!(
            joined(&points, Nanoseconds::from_millis(1)).len(),
            points.len()
        );
    }

    #[test]
    fn a_histogram_is_told_as_wrk_tells_it() {
        let mut histogram = Histogram::default();
        for us in [20, 20, 20, 60] {
            histogram.record(Nanoseconds::from_micros(us));
        }
        assert!(
            spread(&histogram).starts_with("avg 30.00 us, stdev 17.3"),
            "{}",
            spread(&histogram)
        );
        assert!(spread(&histogram).ends_with("75.00 % within 1 stdev"));
    }
}
