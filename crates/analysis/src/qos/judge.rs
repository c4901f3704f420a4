//! The judgement of each class of one direction.

use linerate_model::units::BitRate;
use linerate_stats::summary::median;

use crate::text::words::count;

use super::{
    Beside, Check, ClassResult, ExpectedClass, Figure, Probed, Reason, Round, Streamed, Verdict,
};

/// Below this share of the time with waiting packets, a rate below the limit is the sender's or the path's.
const WAITS_MIN: f64 = 0.25;
/// Shorter queues cannot be distinguished from the delays of a busy CPU.
const DELAY_MIN_S: f64 = 0.004;
/// A round trip that rises by this share of the time in another class's queue waits in that queue.
const SHARES_QUEUE: f64 = 0.5;
/// By how many more rounds are within the bound than beyond it if a class is isolated: odds of 9^3 to 1 where a shared queue shows
/// in nine rounds of ten, and other work in one of ten (A. Wald, "Sequential tests of statistical hypotheses", 1945).
const ISOLATED_BY: usize = 3;

/// Fewer trials of a kind show nothing of a limit.
const TRIALS_MIN: usize = 3;

/// What the rounds show of each class, in the order of `expected`. A rate holds if it is within `within` of its limit.
pub fn judge(expected: &[ExpectedClass], rounds: &[Round], within: f64) -> Vec<ClassResult> {
    let all = All {
        expected,
        rounds,
        within,
    };
    (0..expected.len()).map(|at| all.class(at)).collect()
}

struct All<'a> {
    expected: &'a [ExpectedClass],
    rounds: &'a [Round],
    within: f64,
}

impl All<'_> {
    fn class(&self, at: usize) -> ClassResult {
        let expected = &self.expected[at];
        let figure = |of: &dyn Fn(&Round) -> Option<f64>| {
            let values: Vec<f64> = self.rounds.iter().filter_map(of).collect();
            Figure::of(&values)
        };
        let alone = figure(&|round| round.alone(at)?.rate_bit_per_s);
        let together = figure(&|round| round.together(at)?.rate_bit_per_s);
        let reasons = self.reasons(at, alone, together);
        let worst = reasons.iter().map(|reason| reason.verdict).max();
        let middle = |of: &dyn Fn(&Round) -> Option<f64>| figure(of).map(|figure| figure.median);
        let share = expected.limit_bit_per_s.zip(alone);
        ClassResult {
            class: expected.name.clone(),
            limit_bit_per_s: expected.limit_bit_per_s,
            guarantee_bit_per_s: expected.guarantee_bit_per_s,
            alone_bit_per_s: alone,
            payload_bit_per_s: figure(&|round| round.alone(at)?.payload_bit_per_s),
            together_bit_per_s: together,
            share_of_limit: share.map(|(limit, alone)| alone.over(limit)),
            waiting_share: middle(&|round| round.alone(at)?.waiting_share),
            fairness: middle(&|round| round.alone(at)?.fairness),
            others: self.others(at),
            verdict: worst.unwrap_or(Verdict::Holds),
            reasons,
        }
    }

    fn reasons(&self, at: usize, alone: Option<Figure>, together: Option<Figure>) -> Vec<Reason> {
        let expected = &self.expected[at];
        let configured = expected.wrong.iter().map(|what| Reason {
            check: Check::Configuration,
            verdict: Verdict::Fails,
            what: what.clone(),
        });
        let mut reasons: Vec<Reason> = configured.collect();
        // What its rates are is a consequence.
        if let Some(strayed) = self.strayed(at) {
            reasons.push(strayed);
            return reasons;
        }
        reasons.extend(self.alone(at, alone));
        // Too high or too low alone: it is no other when all send.
        let is_open = |reason: &Reason| reason.verdict == Verdict::NotTried;
        if reasons.iter().all(is_open) {
            let tried = self.rounds.iter().filter_map(|round| round.together(at));
            let few = few(Check::Together, "while all send", tried.count());
            reasons.extend(few.or_else(|| match expected.limit_bit_per_s {
                Some(limit) => self.limited_together(at, limit, together),
                None => self.unlimited_together(at, together),
            }));
        }
        reasons.extend(self.isolation(at));
        // Another class's bytes in this one explain what is seen of it.
        let guest =
            (0..self.expected.len()).find(|other| *other != at && self.goes_to(*other) == Some(at));
        if let Some(guest) = guest {
            let guest = &self.expected[guest].name;
            for reason in &mut reasons {
                let is_of_both = matches!(reason.check, Check::Together | Check::Isolation);
                if is_of_both && reason.verdict != Verdict::NotTried {
                    reason.verdict = Verdict::CannotTell;
                    reason.what = format!("{}; class {guest} passes it, too", reason.what);
                }
            }
        }
        reasons
    }

    /// The class that most trials alone saw the bytes of class `at` in, if it is not its own.
    fn goes_to(&self, at: usize) -> Option<usize> {
        let mut strayed = self.rounds.iter().filter_map(|round| {
            let strayed = round.alone(at)?.strayed.as_ref()?;
            strayed.class
        });
        strayed.next_back()
    }

    fn strayed(&self, at: usize) -> Option<Reason> {
        let alone = self.rounds.iter().filter_map(|round| round.alone(at));
        let alone: Vec<&Streamed> = alone.collect();
        let strayed = alone.iter().filter_map(|trial| trial.strayed.as_ref());
        let strayed: Vec<_> = strayed.collect();
        let last = strayed.last()?;
        (strayed.len() * 2 > alone.len()).then(|| Reason {
            check: Check::Class,
            verdict: Verdict::Fails,
            what: format!(
                "its traffic passed {}: check {}",
                last.into, self.expected[at].check
            ),
        })
    }

    fn alone(&self, at: usize, rate: Option<Figure>) -> Option<Reason> {
        let reason = |verdict, what: String| Reason {
            check: Check::Alone,
            verdict,
            what,
        };
        let tried = self.rounds.iter().filter_map(|round| round.alone(at));
        if let Some(few) = few(Check::Alone, "alone", tried.count()) {
            return Some(few);
        }
        let Some(rate) = rate else {
            return Some(reason(
                Verdict::CannotTell,
                "no rate was measured".to_owned(),
            ));
        };
        let limit = self.expected[at].limit_bit_per_s?;
        let what = format!(
            "alone it sends {}, {} of its limit",
            rate_in_words(rate.median),
            share_in_words(rate.median / limit)
        );
        let of = |round: &Round| round.alone(at).cloned();
        let verdict = self.outside(rate, limit, limit, &of)?;
        let (verdict, why) = verdict;
        let configured = match (&self.expected[at].configured, verdict) {
            (Some(configured), Verdict::Fails) => format!(": {configured}"),
            _ => why.map(|why| format!(": {why}")).unwrap_or_default(),
        };
        Some(reason(verdict, format!("{what}{configured}")))
    }

    /// Whether a rate is above `limit` or below `least`, and what else bounds it; none if it is in between.
    fn outside(
        &self,
        rate: Figure,
        least: f64,
        limit: f64,
        of: &dyn Fn(&Round) -> Option<Streamed>,
    ) -> Option<(Verdict, Option<String>)> {
        let (low, high) = rate.ends();
        let (lowest, highest) = (least * (1.0 - self.within), limit * (1.0 + self.within));
        if (lowest..=highest).contains(&rate.median) {
            return None;
        }
        let trials: Vec<Streamed> = self.rounds.iter().filter_map(of).collect();
        let step = trials.iter().map(|trial| trial.step_bit_per_s);
        let step = step.fold(0.0, f64::max);
        let cannot_tell = |why: String| Some((Verdict::CannotTell, Some(why)));
        let beyond = (rate.median - highest).max(lowest - rate.median);
        if low <= highest && high >= lowest {
            return cannot_tell("the interval of the rounds reaches it".to_owned());
        }
        let other = (rate.median < lowest).then(|| bound_by_something_else(&trials, lowest));
        let short = || {
            let packet = share_in_words(step / limit);
            format!(
                "in so short a trial one packet of 64 KiB is {packet} of it: use a longer `--time`"
            )
        };
        let why = other.flatten().or_else(|| (beyond <= step).then(short));
        match why {
            Some(why) => cannot_tell(why),
            None => Some((Verdict::Fails, None)),
        }
    }

    fn limited_together(&self, at: usize, limit: f64, rate: Option<Figure>) -> Option<Reason> {
        let reason = |verdict, what: String| Reason {
            check: Check::Together,
            verdict,
            what,
        };
        let Some(rate) = rate else {
            return Some(reason(
                Verdict::CannotTell,
                "no rate was measured while all send".to_owned(),
            ));
        };
        let least = self.expected[at]
            .guarantee_bit_per_s
            .unwrap_or(0.0)
            .min(limit);
        let of = |round: &Round| round.together(at).cloned();
        let (verdict, why) = self.outside(rate, least, limit, &of)?;
        let of_what = if rate.median > limit {
            format!("{} of its limit", share_in_words(rate.median / limit))
        } else {
            format!(
                "{} of the {} that it should get",
                share_in_words(rate.median / least),
                rate_in_words(least)
            )
        };
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        Some(reason(
            verdict,
            format!(
                "while all send it sends {}, {of_what}{why}",
                rate_in_words(rate.median)
            ),
        ))
    }

    /// Whether a class without a limit has its guarantee, and all of them together what the limited ones leave.
    fn unlimited_together(&self, at: usize, rate: Option<Figure>) -> Option<Reason> {
        let reason = |verdict, what: String| Reason {
            check: Check::Together,
            verdict,
            what,
        };
        let Some(rate) = rate else {
            return Some(reason(
                Verdict::CannotTell,
                "no rate was measured while all send".to_owned(),
            ));
        };
        let tried = self.rounds.iter().filter_map(|round| round.together(at));
        let tried: Vec<&Streamed> = tried.collect();
        let cpu_bound = tried.iter().filter(|trial| trial.is_cpu_bound);
        let cpu_bound = cpu_bound.count() * 2 > tried.len();
        let judged = |what: String| {
            if cpu_bound {
                reason(
                    Verdict::CannotTell,
                    format!("{what}: a CPU bounds the sender"),
                )
            } else {
                reason(Verdict::Fails, what)
            }
        };
        let (_, high) = rate.ends();
        if let Some(least) = self.expected[at].guarantee_bit_per_s
            && high < least * (1.0 - self.within)
        {
            return Some(judged(format!(
                "while all send it sends {}, {} of its guarantee of {}",
                rate_in_words(rate.median),
                share_in_words(rate.median / least),
                rate_in_words(least)
            )));
        }
        let left = Figure::of(&self.shares_of_what_is_left())?;
        let (_, high) = left.ends();
        (high < 1.0 - self.within).then(|| {
            judged(format!(
                "the classes without a limit get {} of what the others leave of the rate alone",
                share_in_words(left.median)
            ))
        })
    }

    /// In each round, what the classes without a limit get together, over the best of them alone less what the limited ones
    /// get.
    fn shares_of_what_is_left(&self) -> Vec<f64> {
        let rate = |trial: &Streamed| trial.rate_bit_per_s.unwrap_or(0.0);
        let share = |round: &Round| {
            let (mut got, mut best, mut limited) = (0.0, 0.0_f64, 0.0);
            for (class, (alone, together)) in self
                .expected
                .iter()
                .zip(round.alone.iter().zip(&round.together))
            {
                let (alone, together) = (alone.as_ref()?, together.as_ref()?);
                if class.limit_bit_per_s.is_some() {
                    limited += rate(together);
                } else {
                    got += rate(together);
                    best = best.max(rate(alone));
                }
            }
            let left = best - limited;
            (left > 0.0).then(|| got / left)
        };
        self.rounds.iter().filter_map(share).collect()
    }

    /// Whether the round trips of class `at` wait in the queue of another class that sends.
    fn isolation(&self, at: usize) -> Vec<Reason> {
        let mut reasons = Vec::new();
        for (sending, class) in self.expected.iter().enumerate() {
            if sending == at || self.goes_to(sending).is_some() {
                continue;
            }
            let pairs = self.rounds.iter().filter_map(|round| {
                let before = round.quiet.get(at)?.as_ref()?;
                let after = round.beside.get(sending)?.get(at)?.as_ref()?;
                Some((round, after.p50_s - before.p50_s))
            });
            let pairs: Vec<(&Round, f64)> = pairs.collect();
            let what = format!("its round trips while class {} sends", class.name);
            if let Some(few) = few(Check::Isolation, &what, pairs.len()) {
                reasons.push(few);
                continue;
            }
            let rises = pairs.iter().filter_map(|(round, rise)| {
                let delay = round.alone(sending)?.delay_s?;
                Some((*rise, delay))
            });
            let rises: Vec<(f64, f64)> = rises.collect();
            if rises.len() < TRIALS_MIN {
                reasons.push(Reason {
                    check: Check::Isolation,
                    verdict: Verdict::CannotTell,
                    what: format!("{what}: how long the packets of that class wait is not known"),
                });
                continue;
            }
            reasons.extend(shared_queue(&class.name, &rises));
        }
        reasons
    }

    fn others(&self, sending: usize) -> Vec<Beside> {
        let all = self.expected.iter().enumerate();
        let beside = all
            .filter(|(at, _)| *at != sending)
            .filter_map(|(at, class)| {
                let pairs = self.rounds.iter().filter_map(|round| {
                    let before = (*round.quiet.get(at)?)?;
                    let after = (*round.beside.get(sending)?.get(at)?)?;
                    Some((before, after))
                });
                let (before, after): (Vec<Probed>, Vec<Probed>) = pairs.unzip();
                let middle = |all: &[Probed], of: fn(&Probed) -> f64| {
                    let values: Vec<f64> = all.iter().map(of).collect();
                    median(&values).ok()
                };
                Some(Beside {
                    class: class.name.clone(),
                    p50_before_s: middle(&before, |probed| probed.p50_s)?,
                    p50_after_s: middle(&after, |probed| probed.p50_s)?,
                    p99_before_s: middle(&before, |probed| probed.p99_s)?,
                    p99_after_s: middle(&after, |probed| probed.p99_s)?,
                    per_s_before: middle(&before, |probed| probed.per_s)?,
                    per_s_after: middle(&after, |probed| probed.per_s)?,
                })
            });
        beside.collect()
    }
}

/// Whether round trips wait in the queue of class `sending`: of each round, how much they rise while it sends, and how long its
/// packets wait. Each rise is compared with the wait of its own round. They do if the whole interval of the differences says so.
/// A busy CPU only raises round trips, so that rounds within the bound show that they do not ([`ISOLATED_BY`]).
fn shared_queue(sending: &str, rounds: &[(f64, f64)]) -> Option<Reason> {
    let (rises, delays): (Vec<f64>, Vec<f64>) = rounds.iter().copied().unzip();
    let beyond = rounds
        .iter()
        .map(|(rise, delay)| rise - delay.max(DELAY_MIN_S) * SHARES_QUEUE);
    let beyond: Vec<f64> = beyond.collect();
    let late = beyond.iter().filter(|beyond| **beyond >= 0.0).count();
    let beyond = Figure::of(&beyond)?;
    let (rise, delay) = (Figure::of(&rises)?, median(&delays).ok()?);
    let (low, _) = beyond.ends();
    if delay < DELAY_MIN_S || rounds.len() >= 2 * late + ISOLATED_BY {
        return None;
    }
    let (rises, waits) = (ms_in_words(rise.median), ms_in_words(delay));
    let (verdict, what) = if low >= 0.0 {
        let what = format!(
            "its median round trip rises by {rises} ms: it shares the queue of that class, whose packets wait {waits} ms"
        );
        (Verdict::Fails, what)
    } else {
        let (lowest, highest) = rise.ends();
        let what = format!(
            "its median round trip rises by {rises} ms [{}, {}]; the packets of that class wait {waits} ms: use more `--rounds` to \
             see whether it shares their queue",
            ms_in_words(lowest),
            ms_in_words(highest)
        );
        (Verdict::CannotTell, what)
    };
    Some(Reason {
        check: Check::Isolation,
        verdict,
        what: format!("while class {sending} sends, {what}"),
    })
}

/// Why trials of a kind are too few to be judged.
fn few(check: Check, what: &str, trials: usize) -> Option<Reason> {
    let (verdict, why) = match trials {
        0 => (Verdict::NotTried, "not tried".to_owned()),
        few if few < TRIALS_MIN => (
            Verdict::CannotTell,
            format!("only {}, {TRIALS_MIN} are needed", count(few, "trial")),
        ),
        _ => return None,
    };
    Some(Reason {
        check,
        verdict,
        what: format!("{what}: {why}"),
    })
}

/// Why a rate below `lowest` is not the class's own bound.
fn bound_by_something_else(trials: &[Streamed], lowest: f64) -> Option<String> {
    let middle = |of: fn(&Streamed) -> Option<f64>| {
        let values: Vec<f64> = trials.iter().filter_map(of).collect();
        median(&values).ok()
    };
    let is_cpu_bound = trials.iter().filter(|trial| trial.is_cpu_bound).count() * 2 > trials.len();
    let who = if is_cpu_bound {
        "a CPU bounds the sender"
    } else {
        "the sender or the path is slower"
    };
    let upper = middle(|trial| trial.upper_bit_per_s);
    let is_counted = match middle(|trial| trial.waiting_share) {
        Some(waits) if waits < WAITS_MIN || upper.is_none() => {
            return Some(format!(
                "packets waited in its class only {} of the time, so {who}",
                share_in_words(waits)
            ));
        }
        waits => waits.is_some(),
    };
    if is_cpu_bound && !is_counted {
        return Some(who.to_owned());
    }
    (upper? >= lowest).then(|| "it reaches the limit at times, so something stalls it".to_owned())
}

/// `105.0 %`.
fn share_in_words(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn rate_in_words(rate: f64) -> String {
    BitRate::from_f64(rate).map_or_else(|| "?".to_owned(), |rate| rate.to_string())
}

/// Three significant figures.
fn ms_in_words(seconds: f64) -> String {
    let value = seconds * 1e3;
    let digits = match value.abs() {
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}
