//! The result in a few lines.

use linerate_model::units::Nanoseconds;
use linerate_report::flag_name;

use super::Measured;
use super::document::{BlockDocument, PerMillion, real};
use crate::measure::text::{per_second, time};

/// More queues are summed up in one figure.
const QUEUES_SHOWN: usize = 8;

/// The lines of output.
pub(super) fn text(
    measured: &Measured<'_>,
    document: &BlockDocument<'_>,
    is_verbose: bool,
) -> String {
    let mut lines = vec![iops(measured, document)];
    if let Some(repeats) = &measured.repeats {
        let figure = |value: f64| format!("{} IOPS", per_second(value));
        lines.push(format!("median    {}", repeats.in_words(figure)));
        if let Some(drift) = repeats.drift_in_words() {
            lines.push(format!("drift     {drift}"));
        }
    }
    for requirement in &document.requirements {
        lines.push(format!("require   {}", requirement.in_words()));
    }
    if let Some(latency) = latency(measured) {
        lines.push(latency);
    }
    if let Some(each) = &document.cpu.s_per_million_ops {
        lines.push(cpu(each));
    }
    if let Some(queues) = queues(document) {
        lines.push(queues);
    }
    let limit = &document.limit;
    let mut words = format!("limit     {}", limit.what);
    if !limit.evidence.is_empty() {
        words = format!("{words}: {}", limit.evidence.join("; "));
    }
    lines.push(words);
    if let Some(hint) = &limit.hint {
        lines.push(format!("try       {hint}"));
    }
    if is_verbose {
        lines.extend(details(measured, document));
    }
    if !document.flags.is_empty() {
        let flags: Vec<&str> = document.flags.iter().copied().map(flag_name).collect();
        lines.push(format!("flags     {}", flags.join(", ")));
    }
    lines.join("\n")
}

/// What `-v` adds: each job, the requests in flight, the interrupts.
fn details(measured: &Measured<'_>, document: &BlockDocument<'_>) -> Vec<String> {
    let jobs = (0..).zip(&measured.trial.sample.jobs).map(|(index, job): (usize, _)| {
        let seconds = job.elapsed_ns.as_secs_f64();
        let share = |time: Nanoseconds| time.as_secs_f64() / seconds.max(f64::MIN_POSITIVE) * 100.0;
        let cpus = if job.cpus.is_empty() {
            "any CPU".to_owned()
        } else {
            format!("CPU {}", job.cpus)
        };
        let per_call = real(job.operations) / real(job.system_calls.max(1));
        format!(
            "job       {index}: {} IOPS on {cpus}, user {:.1} %, system {:.1} % of a CPU, {per_call:.1} I/O per system call",
            per_second(real(job.operations) / seconds.max(f64::MIN_POSITIVE)),
            share(job.user_ns),
            share(job.system_ns)
        )
    });
    let known = |value: Option<String>| value.unwrap_or_else(|| "unknown".to_owned());
    let in_flight = &document.in_flight;
    let flight = format!(
        "in flight {} of the jobs, {} in the driver, {} tags",
        in_flight.jobs,
        known(in_flight.driver.map(significant)),
        known(in_flight.tags.map(|tags| tags.to_string()))
    );
    let interrupts = document.interrupts.iter().map(|one| {
        let counts = one.counts.iter();
        let counts: Vec<String> = counts
            .map(|(cpu, count)| format!("{count} on CPU {cpu}"))
            .collect();
        format!("interrupt {} {}: {}", one.irq, one.name, counts.join(", "))
    });
    jobs.chain([flight]).chain(interrupts).collect()
}

fn iops(measured: &Measured<'_>, document: &BlockDocument<'_>) -> String {
    let total = &document.total;
    let Some(ops) = total.ops_per_s else {
        return "IOPS      none: no operation completed".to_owned();
    };
    let spec = measured.spec;
    let mut details = vec![
        format!(
            "{} {} of {}",
            spec.pattern,
            spec.access.plural(),
            spec.block
        ),
        format!("depth {}", spec.depth),
        super::count(spec.jobs.len() as u64, "job"),
        format!("{:.1} s", total.elapsed_s),
    ];
    if spec.polled {
        details.push("polled".to_owned());
    }
    if let (Some(bound), Some(share)) = (document.ceiling.bit_per_s, document.ceiling.share) {
        details.push(format!(
            "{:.1} % of the PCIe bandwidth of {bound}",
            share * 100.0
        ));
    }
    // The unit of disks.
    let megabytes = total.rate_bit_per_s.unwrap_or_default() / 8e6;
    format!(
        "IOPS      {}, {} MB/s   ({})",
        per_second(ops),
        significant(megabytes),
        details.join(", ")
    )
}

fn latency(measured: &Measured<'_>) -> Option<String> {
    let histogram = measured.trial.sample.latency();
    let at = |quantile| {
        let ns = histogram.quantile(quantile)?.as_u64();
        Some(time(real(ns)))
    };
    Some(format!(
        "latency   p50 {}, p99 {}, p99.9 {}, max {}",
        at(0.5)?,
        at(0.99)?,
        at(0.999)?,
        at(1.0)?
    ))
}

fn cpu(each: &PerMillion) -> String {
    let known = |value: Option<f64>| value.map_or_else(|| "unknown".to_owned(), significant);
    format!(
        "CPU       user {}, system {}, other system {}, irq {}, softirq {} s per million I/O",
        significant(each.user),
        significant(each.system),
        known(each.other_system),
        known(each.irq),
        known(each.softirq)
    )
}

/// Three significant figures.
fn significant(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

fn queues(document: &BlockDocument<'_>) -> Option<String> {
    let queues = document
        .queues
        .as_deref()
        .filter(|queues| queues.len() > 1)?;
    let used: Vec<_> = queues.iter().filter(|queue| queue.operations > 0).collect();
    if used.len() > QUEUES_SHOWN {
        let shares = || used.iter().map(|queue| queue.share * 100.0);
        return Some(format!(
            "queues    {} of {} used, {:.1} % to {:.1} % of the I/O each",
            used.len(),
            queues.len(),
            shares().fold(f64::INFINITY, f64::min),
            shares().fold(0.0, f64::max)
        ));
    }
    let shares: Vec<String> = (used.iter())
        .map(|queue| format!("{}: {:.1} %", queue.index, queue.share * 100.0))
        .collect();
    Some(format!(
        "queues    {} of {} used: {}",
        used.len(),
        queues.len(),
        shares.join(", ")
    ))
}
