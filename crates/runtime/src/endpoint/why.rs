//! `--why`: short trials, each with one thing changed, that show which limit is the limit.
//!
//! A batch is two rounds of one plain trial and one with each intervention; the second round goes in the reverse order,
//! so that a drift of the path does not favour one of them. Each batch has the interventions that distinguish
//! most of the remaining limits. Nothing is changed on either host.

use linerate_analysis::text::words::seconds_in_words;
use linerate_analysis::trial::rate_of;
use linerate_model::ceiling::{PathFacts, ceilings_of_path};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::limit::why::{
    Effect, Intervention, Round, Status, TrialFigures, Tried, Verdict, applies_to, choose, decide,
    plain,
};
use linerate_model::limit::{LimitKind, name_limit};
use linerate_model::path::PathView;
use linerate_model::sample::{Sample, SideSample};
use linerate_model::units::{BitRate, Nanoseconds};
use linerate_model::workload::{TrialSpec, Workload};

use crate::console::say::Say;
use crate::endpoint::ends::Ends;

/// How often everything is tried.
const ROUNDS: u64 = 2;
/// How long all trials of a command may take.
pub const BUDGET: Nanoseconds = Nanoseconds::from_millis(5_000);
/// The interventions of a batch.
const BATCH: u64 = 4;
/// The least and the longest duration of a trial, ...
const EACH_LEAST: Nanoseconds = Nanoseconds::from_millis(300);
const EACH_MOST: Nanoseconds = Nanoseconds::from_millis(800);
/// ... which has to be this many round trips, so that a connection reaches its rate; but never longer than the
/// measured trial.
const ROUND_TRIPS: u64 = 25;

/// What the interventions showed.
#[derive(Debug)]
pub struct Why {
    /// The limit and its rivals.
    pub verdict: Verdict,
    /// What was tried.
    pub tried: Vec<Tried>,
}

/// The limits that `sample`, which reached `rate`, suggests, the best first.
pub fn suggested(path: PathView<'_>, sample: &Sample, rate: BitRate) -> Vec<LimitKind> {
    let ceilings = ceilings_of_path(&PathFacts {
        local: path.local,
        local_nic: path.local_nic,
        remote: path.remote,
        remote_nic: path.remote_nic,
        flows: sample.spec.flows,
        direction: sample.spec.direction,
        ipv6: path.ipv6,
        datagram_bytes: None,
        // No limit is named after it.
        copy_bandwidth: None,
        sample: Some(sample),
    });
    name_limit(sample, path.local, path.remote, &ceilings.ceilings, rate).suggested
}

/// Finds what limits the path of `measured`, which reached `rate`, by the interventions that are possible within
/// `budget`.
pub fn find(
    ends: &mut dyn Ends,
    measured: &Sample,
    rate: BitRate,
    suggested: &[LimitKind],
    budget: Nanoseconds,
    say: &Say,
) -> Outcome<Why> {
    let each = duration(measured);
    let without = plain(&measured.spec, each);
    let mut tried = Vec::new();
    let mut possible: Vec<(usize, TrialSpec)> = Vec::new();
    for (place, intervention) in Intervention::ALL.into_iter().enumerate() {
        let trial = intervention.trial(measured, rate, ends.view(), each);
        tried.push(Tried {
            intervention,
            rounds: Vec::new(),
            obstacle: None,
            effect: Effect::Unclear,
            reason: trial.as_ref().err().cloned(),
        });
        possible.extend(trial.ok().map(|spec| (place, spec)));
    }
    let mut left = budget.as_u64();
    loop {
        let verdict = decide(measured, suggested, &tried);
        // One plain trial in each round.
        let room = (left / each.as_u64() / ROUNDS).saturating_sub(1).min(BATCH);
        let leader = suggested.first().copied();
        let batch = if verdict.status == Status::Proved {
            Vec::new()
        } else {
            let candidates = possible.iter().map(|(at, _)| tried[*at].intervention);
            let candidates: Vec<Intervention> = candidates.collect();
            let of_room = |room: u64, candidates: &[Intervention]| {
                let room = usize::try_from(room).unwrap_or(0);
                choose(&verdict.standing(), leader, candidates, room)
            };
            let mut batch = of_room(room, &candidates);
            let used = batch.len() as u64;
            let fits_another = left >= each.as_u64() * ROUNDS * (used + 3);
            if !batch.is_empty() && !fits_another {
                // The last batch: what is left of the time goes into those that show the same in another way.
                let others = candidates.into_iter().filter(|one| !batch.contains(one));
                let others: Vec<Intervention> = others.collect();
                batch.extend(of_room(room - used, &others));
            }
            batch
        };
        if batch.is_empty() {
            let reason = match room {
                0 => "there was no time left",
                _ => "it would distinguish none of the remaining limits",
            };
            for (place, _) in possible {
                tried[place].reason = Some(reason.to_owned());
            }
            return Ok(Why { verdict, tried });
        }
        let (chosen, rest) = possible
            .into_iter()
            .partition::<Vec<_>, _>(|(at, _)| batch.contains(&tried[*at].intervention));
        possible = rest;
        left -= each.as_u64() * ROUNDS * (1 + chosen.len() as u64);
        say.note(&announced(&tried, &chosen, each));
        let places: Vec<usize> = chosen.iter().map(|(place, _)| *place).collect();
        try_all(ends, &without, chosen, &mut tried)?;
        for place in places {
            tried[place].judge(TrialFigures::of(measured, rate));
        }
    }
}

/// Runs the rounds of a batch.
fn try_all(
    ends: &mut dyn Ends,
    without: &TrialSpec,
    mut chosen: Vec<(usize, TrialSpec)>,
    tried: &mut [Tried],
) -> Outcome<()> {
    for _ in 0..ROUNDS {
        let plain = match figures_of_trial(ends, without) {
            Ok((_, seen)) => seen,
            Err(stop) if is_final(&stop) => return Err(stop),
            // Without it the others show nothing.
            Err(stop) => {
                for (place, _) in &chosen {
                    tried[*place].reason = Some(stop.message.clone());
                }
                return Ok(());
            }
        };
        for (place, spec) in &chosen {
            let one = &mut tried[*place];
            if one.reason.is_some() {
                continue;
            }
            match figures_of_trial(ends, spec) {
                Ok((sample, mut with)) => {
                    let obstacle = one.intervention.obstacle(&sample, with.rate);
                    if obstacle.is_some() {
                        // What was lost then was not lost because the path carries no more.
                        with.segments = None;
                    }
                    one.obstacle = one.obstacle.take().or(obstacle.map(ToOwned::to_owned));
                    one.rounds.push(Round {
                        without: plain,
                        with,
                    });
                }
                Err(stop) if is_final(&stop) => return Err(stop),
                Err(stop) => one.reason = Some(stop.message),
            }
        }
        chosen.reverse();
    }
    Ok(())
}

/// What will be tried, and for how long.
fn announced(tried: &[Tried], chosen: &[(usize, TrialSpec)], each: Nanoseconds) -> String {
    let names = chosen.iter().map(|(place, spec)| {
        let name = tried[*place].intervention.to_string();
        match &spec.workload {
            Workload::Udp(udp) => match udp.rate_bit_per_s {
                Some(rate) if spec.flows == 1 => format!("{name} ({rate})"),
                Some(rate) => format!("{name} ({} flows of {rate})", spec.flows),
                None => name,
            },
            _ => name,
        }
    });
    format!(
        "testing what limits the rate: {} trials of {}: {}",
        ROUNDS * (chosen.len() as u64 + 1),
        seconds_in_words(each),
        names.collect::<Vec<_>>().join(", ")
    )
}

/// Why `--why` does not apply to a trial.
pub fn refused(spec: &TrialSpec) -> Option<Stop> {
    let why = applies_to(spec).err()?;
    Some(Stop::new(Code::Usage, format!("`--why`: {why}")))
}

/// Whether no other trial can follow.
fn is_final(stop: &Stop) -> bool {
    matches!(
        stop.code,
        Code::Interrupted | Code::PeerUnreachable | Code::Bug
    )
}

/// How long each trial has to be.
fn duration(measured: &Sample) -> Nanoseconds {
    let senders = [&measured.local, &measured.remote];
    let rtt = senders
        .into_iter()
        .flat_map(SideSample::senders)
        .filter_map(|flow| Some(flow.tcp.value()?.rtt_min_ns))
        .max()
        .unwrap_or_default();
    let wanted = rtt.as_u64().saturating_mul(ROUND_TRIPS);
    let each = wanted.clamp(EACH_LEAST.as_u64(), EACH_MOST.as_u64());
    Nanoseconds::new(each.min(measured.spec.duration_ns.as_u64()).max(1))
}

fn figures_of_trial(ends: &mut dyn Ends, spec: &TrialSpec) -> Outcome<(Sample, TrialFigures)> {
    let sample = ends.trial(spec)?;
    let rate = rate_of(&sample).ok_or_else(|| {
        let why = "the trial was too short to have a rate";
        Stop::new(Code::Inconclusive, why)
    })?;
    let seen = TrialFigures::of(&sample, rate);
    Ok((sample, seen))
}
