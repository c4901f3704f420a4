//! What recording costs: pairs of trials with and without it, in random order.

use linerate_model::sample::{Sample, SideSample};
use linerate_stats::effect::paired_relative;
use linerate_stats::summary::median;
use linerate_stats::{Random, Seed};

use crate::Trouble;
use crate::hosts::{Bench, Hosts};
use crate::line::{Line, Verdict, real};

/// Seconds of each trial.
const SECONDS: u32 = 2;
/// The share of a thread's time that recording may take.
const SHARE_MAX: f64 = 0.01;
const LEVEL: f64 = 0.95;
/// A difference that is no more than this is none that matters: of two intervals of 95 % one in ten misses 0 by
/// chance.
const TOLERANCE: f64 = 0.01;
/// An experiment that could not have detected a difference of this size is inconclusive.
const DETECTABLE_MAX: f64 = 0.10;

pub(crate) fn run(bench: &Bench, lines: &mut Vec<Line>) -> Result<(), Trouble> {
    let hosts = bench.hosts()?;
    let mut random = Random::new(Seed(bench.seed));
    for workload in ["stream", "rr"] {
        measure(bench, &hosts, workload, &mut random, lines)?;
    }
    Ok(())
}

fn measure(
    bench: &Bench,
    hosts: &Hosts<'_>,
    workload: &str,
    random: &mut Random,
    lines: &mut Vec<Line>,
) -> Result<(), Trouble> {
    let words = format!("{workload} {} --time {SECONDS}", hosts.peer());
    let mut pairs = Vec::new();
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for _ in 0..bench.pairs {
        let mut order = [true, false];
        random.shuffle(&mut order);
        let (mut with, mut without) = (None, None);
        for recorded in order {
            let switch = if recorded { "" } else { " --no-record" };
            let sample = hosts.measure(&format!("{words}{switch}"))?.raw;
            let figure = figure(&sample);
            if recorded {
                near.extend(share(&sample.local));
                far.extend(share(&sample.remote));
                with = figure;
            } else {
                without = figure;
            }
        }
        pairs.extend(without.zip(with));
    }
    lines.push(own_time(workload, &near, &far, bench.pairs));
    lines.push(difference(workload, &pairs, bench.seed)?);
    Ok(())
}

/// Bytes, or operations, a second: of the whole trial, because one that is not recorded has no intervals.
fn figure(sample: &Sample) -> Option<f64> {
    let (side, amount) = if let Some(operations) = &sample.local.operations {
        (&sample.local, operations.completed)
    } else {
        let received = sample.remote.receivers();
        let bytes = received.map(|flow| flow.total().as_u64()).sum();
        (&sample.remote, bytes)
    };
    let rate = real(amount) / side.elapsed_ns.as_secs_f64();
    (rate.is_finite() && rate > 0.0).then_some(rate)
}

/// CPU time of the record of an end over the trial's time.
fn share(side: &SideSample) -> Option<f64> {
    let took = side.cpu.recording_ns.get()?;
    Some(took.as_secs_f64() / side.elapsed_ns.as_secs_f64())
}

fn own_time(workload: &str, near: &[f64], far: &[f64], pairs: u16) -> Line {
    let words = |shares: &[f64]| {
        let middle = median(shares).unwrap_or(f64::NAN);
        let most = shares.iter().copied().fold(f64::NAN, f64::max);
        (
            middle,
            format!("{:.3} % (most {:.3} %)", middle * 100.0, most * 100.0),
        )
    };
    let ((near_share, near_words), (far_share, far_words)) = (words(near), words(far));
    let complete = near.len() == usize::from(pairs) && far.len() == usize::from(pairs);
    let holds = complete && near_share <= SHARE_MAX && far_share <= SHARE_MAX;
    Line::new(
        format!("CPU time of recording, {workload} of {SECONDS} s"),
        format!("of a thread's time, local {near_words}, remote {far_words}, median of {pairs}"),
        format!("{:.0} %", SHARE_MAX * 100.0),
        Verdict::of(holds),
    )
}

fn difference(workload: &str, pairs: &[(f64, f64)], seed: u64) -> Result<Line, Trouble> {
    let effect = paired_relative(pairs, LEVEL, Seed(seed))
        .map_err(|error| Trouble(format!("compare {} pairs: {error}", pairs.len())))?;
    let (low, high) = (effect.interval.low, effect.interval.high);
    let contains = low <= 0.0 && high >= 0.0;
    let verdict = if low > TOLERANCE || high < -TOLERANCE {
        Verdict::No
    } else if contains && effect.smallest_detectable <= DETECTABLE_MAX {
        Verdict::Yes
    } else {
        Verdict::Undecided
    };
    Ok(Line::new(
        format!("effect of recording, {workload} of {SECONDS} s"),
        format!(
            "{:+.2} %, 95 % interval {:+.2} to {:+.2} %, {} pairs; the smallest detectable difference is {:.2} %",
            effect.relative * 100.0,
            low * 100.0,
            high * 100.0,
            pairs.len(),
            effect.smallest_detectable * 100.0
        ),
        format!(
            "the interval contains 0 and the MDE is below {:.0} %; fails if all of it is beyond {:.0} %",
            DETECTABLE_MAX * 100.0,
            TOLERANCE * 100.0
        ),
        verdict,
    ))
}
