//! `--why`: short trials, each with one thing changed, that tell which limit is the limit.
//!
//! Rounds of one plain trial and one with each intervention; the second round goes in the reverse order, so that a
//! drift of the path does not favour one of them. Nothing is changed on either host.

use linerate_analysis::trial::rate_of;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::limit::why::{
    Effect, Intervention, Status, Tried, Verdict, applies_to, decide, effect, evidence, plain,
    used_up_a_cpu,
};
use linerate_model::limit::{Limit, LimitKind};
use linerate_model::path::PathView;
use linerate_model::plan::End;
use linerate_model::sample::Sample;
use linerate_model::threshold;
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
    let planned = |ends: &_| -> Vec<(Intervention, Result<TrialSpec, String>)> {
        let path = view(ends);
        let all = Intervention::ALL.into_iter();
        all.map(|one| (one, one.trial(measured, rate, path, each)))
            .collect()
    };
    let planned = planned(ends);
    let possible = planned.iter().filter(|(_, trial)| trial.is_ok()).count();
    say.note(&format!(
        "finding out why: {} trials of {} ms, {}",
        ROUNDS * (possible + 1),
        each.as_u64() / 1_000_000,
        planned
            .iter()
            .filter(|(_, trial)| trial.is_ok())
            .map(|(one, _)| one.to_string())
            .collect::<Vec<_>>()
            .join(", ")
    ));
    let mut tried: Vec<Tried> = (planned.iter())
        .map(|(intervention, trial)| Tried {
            intervention: *intervention,
            rates: Vec::new(),
            effect: Effect::Unclear,
            reason: trial.as_ref().err().cloned(),
        })
        .collect();
    let mut held_up = vec![false; planned.len()];
    let without = plain(&measured.spec, each);
    for round in 0..ROUNDS {
        let plain_rate = rate_in(ends, &without)?.1;
        let mut order: Vec<usize> = (0..planned.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let ((intervention, Ok(spec)), one) = (&planned[at], &mut tried[at]) else {
                continue;
            };
            if one.reason.is_some() {
                continue;
            }
            match rate_in(ends, spec) {
                Ok((sample, with)) => {
                    one.rates.push((plain_rate, with));
                    held_up[at] |= intervention.takes_more_cpu() && used_up_a_cpu(&sample)
                        || all_arrived(spec, with);
                }
                Err(stop) if is_final(&stop) => return Err(stop),
                Err(stop) => one.reason = Some(stop.message),
            }
        }
    }
    for (one, held_up) in tried.iter_mut().zip(held_up) {
        if one.reason.is_some() {
            continue;
        }
        one.effect = effect(&one.rates);
        if one.effect == Effect::NotHigher && held_up {
            one.effect = Effect::Unclear;
            let why = "it used up a CPU, or every datagram arrived";
            one.reason = Some(why.to_owned());
        }
    }
    let verdict = decide(measured, suggested, &tried);
    Ok(Why { verdict, tried })
}

/// Whether the path carried all datagrams that were to be sent: then it may carry more, however few those were.
fn all_arrived(spec: &TrialSpec, rate: BitRate) -> bool {
    let Workload::Udp(udp) = &spec.workload else {
        return false;
    };
    let asked = udp.rate_bit_per_s.map_or(0.0, BitRate::as_f64) * f64::from(spec.flows);
    rate.as_f64() >= threshold::WHY_ARRIVED.as_f64() * asked
}

/// Why `--why` tells nothing about a trial.
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

fn duration(measured: &Sample) -> Nanoseconds {
    let senders = [&measured.local, &measured.remote];
    let rtt = senders
        .into_iter()
        .flat_map(linerate_model::sample::SideSample::senders)
        .filter_map(|flow| Some(flow.tcp.value()?.rtt_ns))
        .max()
        .unwrap_or_default();
    let wanted = rtt.as_u64().saturating_mul(ROUND_TRIPS);
    Nanoseconds::new(wanted.clamp(EACH_LEAST.as_u64(), EACH_MOST.as_u64()))
}

fn view(ends: &impl Ends) -> PathView<'_> {
    PathView {
        local: ends.host(End::Local),
        remote: ends.host(End::Remote),
        local_nic: ends.nic(End::Local),
        remote_nic: ends.nic(End::Remote),
        ipv6: ends.address().is_ipv6(),
    }
}

fn rate_in(ends: &mut impl Ends, spec: &TrialSpec) -> Outcome<(Sample, BitRate)> {
    let sample = ends.trial(spec)?;
    let rate = rate_of(&sample).unwrap_or_default();
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
