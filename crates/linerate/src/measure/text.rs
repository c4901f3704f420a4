//! The whole text output of a measurement (`-v`).

use linerate_analysis::trial::operations::{askers, ops_per_s, real, received_per_s, thread_rates};
use linerate_model::known::Known;
use linerate_model::latency::Histogram;
use linerate_model::limit::LimitKind;
use linerate_model::limit::why::Status;
use linerate_model::pingpong::{Judgement, Point};
use linerate_model::sample::{DatagramGaps, FlowRecord, Operations};
use linerate_model::trust::FAIRNESS_MIN;
use linerate_model::units::{BitRate, Bytes};
use linerate_model::workload::Workload;
use linerate_report::Nulled;
use linerate_runtime::endpoint::why::Why;

use super::document::{EndCost, MeasureDocument};
use super::measured::{Measured, corrected_latency, datagrams, warmup, whole_latency};
use super::over_time::picture;
use super::repeat::Repeats;
use super::spread::{FlowSpread, mean_rate};
use super::{diffusion, verbs};

/// With more flows than these, only the slowest, median and fastest are shown.
const FLOWS_SHOWN: usize = 16;
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
    verdicts(&mut lines, measured, document, repeats);
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
    flags(&mut lines, measured);
    lines.join("\n")
}

/// What repeated trials and the requirements come to.
pub(super) fn verdicts(
    lines: &mut Vec<String>,
    measured: &Measured<'_>,
    document: &MeasureDocument<'_>,
    repeats: Option<&Repeats>,
) {
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
}

/// What is wrong with the trial, if anything.
pub(super) fn flags(lines: &mut Vec<String>, measured: &Measured<'_>) {
    if !measured.sample.flags.is_empty() {
        let flags: Vec<String> = measured
            .sample
            .flags
            .iter()
            .map(|flag| linerate_report::flag_in_words(*flag))
            .collect();
        lines.push(format!("flags     {}", flags.join("; ")));
    }
}

pub(super) fn rate(rate: Option<BitRate>) -> String {
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
    datagram_counts(lines, measured);
    let delay = datagrams(measured).and_then(|(_, all)| all.delay.as_ref().map(latency));
    lines.extend(delay.map(|delay| format!("delay     {delay}")));
    flow_table(lines, measured);
}

pub(super) fn datagram_counts(lines: &mut Vec<String>, measured: &Measured<'_>) {
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
        lines.extend(all.gaps.map(gaps));
    }
}

/// Runs of lost datagrams. A pause between two arrivals is none.
fn gaps(gaps: DatagramGaps) -> String {
    let found = match (gaps.longest_ns, gaps.longest_at_ns) {
        (Some(longest), Some(at)) => {
            let number = count(gaps.count, "run");
            format!("{number} of lost datagrams, the longest of {longest} at {at}")
        }
        _ => "none".to_owned(),
    };
    let (step, send_gap) = (gaps.step_ns, gaps.longest_send_gap_ns);
    format!("gaps      {found}; resolution {step}, longest send gap {send_gap}")
}

fn flow_table(lines: &mut Vec<String>, measured: &Measured<'_>) {
    let flows = measured.flows();
    if flows.len() > FLOWS_SHOWN {
        flow_spread(lines, measured);
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
            rate(mean_rate(known)),
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

/// How the rates of many flows differ.
pub(super) fn flow_spread(lines: &mut Vec<String>, measured: &Measured<'_>) {
    let is_shown =
        |spread: &FlowSpread| spread.count > FLOWS_SHOWN || spread.fairness < FAIRNESS_MIN;
    let Some(spread) = FlowSpread::of(measured).filter(is_shown) else {
        return;
    };
    let [slowest, median, fastest] = [
        spread.slowest.rate_bit_per_s,
        spread.rate_bit_per_s.p50,
        spread.fastest.rate_bit_per_s,
    ]
    .map(|value| rate(BitRate::from_f64(value)));
    lines.push(format!(
        "flows     slowest {slowest}, median {median}, fastest {fastest}, fairness {:.3} (Jain)",
        spread.fairness
    ));
}

/// How many operations were completed, and how long they took; for a ping-pong the sizes.
pub(super) fn requests(lines: &mut Vec<String>, measured: &Measured<'_>) {
    let sample = &measured.sample;
    if matches!(sample.spec.workload, Workload::Pingpong(_)) {
        sizes(lines, measured);
        if let Some(judgement) = &measured.judgement {
            fit(lines, judgement);
        }
        return;
    }
    let sum = |pick: fn(&Operations) -> u64| {
        askers(sample)
            .map(|(_, operations)| pick(operations))
            .fold(0, u64::saturating_add)
    };
    let bad = |count: u64, what: &str| {
        let words = (count > 0).then(|| format!(", {count} {what}"));
        words.unwrap_or_default()
    };
    let (what, on) = match sample.spec.workload {
        Workload::Transfer(_) | Workload::Diffusion(_) => ("cycles", "connection"),
        Workload::Block(_) => ("IOPS", "job"),
        _ => ("requests", "connection"),
    };
    let moved = match (measured.rate, received_per_s(sample)) {
        (Some(rate), _) if sample.spec.workload.is_local() => format!(", {rate}"),
        (Some(rate), _) => format!(", {rate} both directions combined"),
        (None, Some(received)) => format!(", {:.2} MB/s received", received / 1e6),
        (None, None) => String::new(),
    };
    lines.push(format!(
        "{what:<9} {} per second   ({} in {:.1} s on {}{}{}{moved})",
        ops_per_s(sample).map_or_else(|| "?".to_owned(), per_second),
        sum(|operations| operations.completed),
        sample.local.elapsed_ns.as_secs_f64(),
        count(u64::from(sample.spec.flows), on),
        bad(sum(|operations| operations.failed), "FAILED"),
        bad(sum(|operations| operations.unanswered), "UNANSWERED"),
    ));
    let all = whole_latency(sample, |operations| Some(&operations.latency));
    lines.extend(all.map(|all| format!("latency   {}", latency(&all))));
}

fn operations(lines: &mut Vec<String>, measured: &Measured<'_>) {
    let sample = &measured.sample;
    requests(lines, measured);
    if !matches!(sample.spec.workload, Workload::Pingpong(_)) {
        if let Some(all) = whole_latency(sample, |operations| Some(&operations.latency)) {
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

pub(super) fn per_second(value: f64) -> String {
    match value {
        value if value < 100.0 => format!("{value:.2}"),
        value if value < 1e5 => format!("{value:.0}"),
        value if value < 1e6 => format!("{:.1} k", value / 1e3),
        value => format!("{:.3} M", value / 1e6),
    }
}

pub(super) fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// wrk's `Req/Sec`, and the mean of each thread.
fn per_thread(lines: &mut Vec<String>, measured: &Measured<'_>) {
    if let Some(rates) = thread_rates(&measured.sample) {
        lines.push(format!(
            "thread    avg {}, stdev {}, max {} per second, {:.2} % within 1 stdev",
            per_second(rates.mean),
            per_second(rates.stddev),
            per_second(rates.max),
            rates.within_stddev * 100.0,
        ));
    }
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

pub(super) fn profile(lines: &mut Vec<String>, measured: &Measured<'_>) {
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
        if profile.elsewhere > 0 {
            let elsewhere = profile.elsewhere;
            lines.push(format!(
                "          left out: {elsewhere} samples of other processes and other CPUs"
            ));
        }
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
    use linerate_model::units::Nanoseconds;

    use super::*;

    #[test]
    fn times_have_the_unit_that_suits_them() {
        assert_eq!(time(999.0), "999 ns");
        assert_eq!(time(24_560.0), "24.56 us");
        assert_eq!(time(1.5e9), "1.50 s");
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
