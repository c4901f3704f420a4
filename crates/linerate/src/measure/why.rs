//! `--why`: short trials, each with one thing changed, that show which limit is the limit.
//!
//! Rounds of one plain trial and one with each intervention; the second round goes in the reverse order, so that a
//! drift of the path does not favour one of them. Nothing is changed on either host.

use linerate_analysis::text::words::seconds_in_words;
use linerate_analysis::trial::rate_of;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::limit::why::{
    Effect, Intervention, Status, Tried, Verdict, applies_to, decide, effect, evidence, plain,
};
use linerate_model::limit::{Limit, LimitKind};
use linerate_model::sample::{Sample, SideSample};
use linerate_model::units::{BitRate, Nanoseconds};
use linerate_model::workload::{TrialSpec, Workload};

use crate::console::say::Say;
use crate::endpoint::ends::Ends;

/// How often everything is tried.
const ROUNDS: usize = 2;
/// The least and the longest duration of a trial, ...
const EACH_LEAST: Nanoseconds = Nanoseconds::from_millis(300);
const EACH_MOST: Nanoseconds = Nanoseconds::from_millis(1_000);
/// ... which has to be this many round trips, so that a connection reaches its rate.
const ROUND_TRIPS: u64 = 30;

/// What the interventions showed.
#[derive(Debug)]
pub(super) struct Why {
    /// The limit and its rivals.
    pub(super) verdict: Verdict,
    /// What was tried.
    pub(super) tried: Vec<Tried>,
}

impl Why {
    /// The limit as the interventions leave it.
    pub(super) fn limit(&self, of_trial: Limit) -> Limit {
        let what = self.verdict.what;
        let mut shown = evidence(&self.tried);
        let is_same = of_trial.what == what;
        if is_same {
            shown.extend(of_trial.evidence);
        }
        Limit {
            what,
            status: self.verdict.status,
            rule: of_trial.rule.filter(|_| is_same),
            evidence: shown,
            ..of_trial
        }
    }
}

/// Tries every intervention that is possible on the path of `measured`, which reached `rate`.
pub(super) fn find(
    ends: &mut impl Ends,
    measured: &Sample,
    rate: BitRate,
    suggested: &[LimitKind],
    say: &Say,
) -> Outcome<Why> {
    let each = duration(measured);
    let mut tried = Vec::new();
    let mut possible: Vec<(usize, TrialSpec)> = Vec::new();
    for (place, intervention) in Intervention::ALL.into_iter().enumerate() {
        let trial = intervention.trial(measured, rate, ends.view(), each);
        tried.push(Tried {
            intervention,
            rates: Vec::new(),
            effect: Effect::Unclear,
            reason: trial.as_ref().err().cloned(),
        });
        possible.extend(trial.ok().map(|spec| (place, spec)));
    }
    say.note(&announced(&tried, &possible, each));
    let without = plain(&measured.spec, each);
    let mut obstacles = vec![None; tried.len()];
    for _ in 0..ROUNDS {
        let plain_rate = rate_in(ends, &without)?.1;
        for (place, spec) in &possible {
            let one = &mut tried[*place];
            if one.reason.is_some() {
                continue;
            }
            match rate_in(ends, spec) {
                Ok((sample, with)) => {
                    one.rates.push((plain_rate, with));
                    let obstacle = one.intervention.obstacle(&sample, with);
                    obstacles[*place] = obstacles[*place].or(obstacle);
                }
                Err(stop) if is_final(&stop) => return Err(stop),
                Err(stop) => one.reason = Some(stop.message),
            }
        }
        possible.reverse();
    }
    for (one, obstacle) in tried.iter_mut().zip(obstacles) {
        if one.reason.is_some() {
            continue;
        }
        one.effect = effect(&one.rates);
        if let (Effect::NotHigher, Some(obstacle)) = (one.effect, obstacle) {
            one.effect = Effect::Unclear;
            one.reason = Some(obstacle.to_owned());
        }
    }
    let verdict = decide(measured, suggested, &tried);
    Ok(Why { verdict, tried })
}

/// What will be tried, and for how long.
fn announced(tried: &[Tried], possible: &[(usize, TrialSpec)], each: Nanoseconds) -> String {
    let names = possible.iter().map(|(place, spec)| {
        let name = tried[*place].intervention.to_string();
        match &spec.workload {
            Workload::Udp(udp) => match udp.rate_bit_per_s {
                Some(rate) => format!("{name} ({} flows of {rate})", spec.flows),
                None => name,
            },
            _ => name,
        }
    });
    format!(
        "testing what limits the rate: {} trials of {}: {}",
        ROUNDS * (possible.len() + 1),
        seconds_in_words(each),
        names.collect::<Vec<_>>().join(", ")
    )
}

/// Why `--why` does not apply to a trial.
pub(super) fn refused(spec: &TrialSpec) -> Option<Stop> {
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
        .filter_map(|flow| Some(flow.tcp.value()?.rtt_ns))
        .max()
        .unwrap_or_default();
    let wanted = rtt.as_u64().saturating_mul(ROUND_TRIPS);
    Nanoseconds::new(wanted.clamp(EACH_LEAST.as_u64(), EACH_MOST.as_u64()))
}

fn rate_in(ends: &mut impl Ends, spec: &TrialSpec) -> Outcome<(Sample, BitRate)> {
    let sample = ends.trial(spec)?;
    let rate = rate_of(&sample).ok_or_else(|| {
        let why = "the trial was too short to have a rate";
        Stop::new(Code::Inconclusive, why)
    })?;
    Ok((sample, rate))
}

/// The lines below the limit: what refuted its rivals, and what was not tried.
pub(super) fn lines(why: &Why) -> Vec<String> {
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
