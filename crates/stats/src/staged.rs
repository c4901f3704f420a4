//! Which of several changes to keep, with one error rate for the whole answer.
//!
//! All changes ("fixes") of a round are tested together. A stage of the experiment has some trials with all fixes and
//! some without each of them, in one random order. If a fix changes nothing, its trials and those with all fixes
//! can be exchanged, whatever the noise is like: skewed, bimodal, autocorrelated, drifting. So the number of
//! comparisons that the trials with it win has the distribution of the Mann-Whitney statistic, exactly (F. Wilcoxon,
//! "Individual comparisons by ranking methods", Biometrics Bulletin 1, 1945; H. B. Mann and D. R. Whitney, Annals of
//! Mathematical Statistics 18, 1947). Over several stages the statistics add up (P. van Elteren, "On the combination
//! of independent two-sample tests of Wilcoxon", 1960).
//!
//! The estimate is the median of all differences of logarithms within a stage, and the interval is the set of shifts
//! that the same test does not reject (J. L. Hodges and E. L. Lehmann, Annals of Mathematical Statistics 34, 1963): a
//! fix is kept exactly if the interval lies above zero.
//!
//! The chance that any fix without effect is kept is at most [`ERROR`] for the whole proof:
//!
//! - The level of a round is divided among its fixes, and that of a fix among its looks, one after each stage
//!   ([`LOOKS`]): Bonferroni's inequality, which holds however the tests depend on each other.
//! - What a round did not use, and the level of each fix that was kept, goes to later rounds ([`Levels`]; as in
//!   J. Tian and A. Ramdas, "Online control of the familywise error rate", Statistical Methods in Medical Research
//!   30(4), 2021). As long as only fixes with an effect were kept, what they pass on was not needed for the others.
//! - A fix is given up early if it looks useless. That can only lower the chance that it is kept.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::effect::logs;
use crate::error::StatsError;
use crate::summary::{count, quantile_of_sorted};
use crate::{Interval, Random, Seed};

/// The chance that a proof keeps at least one fix without effect.
pub const ERROR: f64 = 0.05;
/// The shares of a fix's level that its looks may use: most of it for the first one, so that obvious effects cost one
/// stage.
pub const LOOKS: [f64; 3] = [0.6, 0.25, 0.15];
/// A fix gets no further stage if a statistic at least as high is this probable without any effect, after the first and
/// the second one. Simulated: with 0.3 and 0.3, useless fixes take a quarter more trials, and of effects of 10 % under
/// noise of 5 %, 91 instead of 89 % are found.
const HOPELESS: [f64; 2] = [0.2, 0.05];
/// The level at which several changes that each looked useless are tested together. It keeps none of them: it decides
/// whether they are tested again, one by one.
pub const TOGETHER: f64 = 0.05;
/// What a round may use of the level that is left; the rest is for rounds after one that kept nothing.
const ROUND: f64 = 0.9;
/// The maximum number of trials of an arm beyond the minimum, where fewer trials with all fixes are needed then.
const MORE: usize = 4;

/// Draws for the minimum detectable effect; its power.
const DRAWS: usize = 1_000;
const POWER: f64 = 0.8;
/// The largest effect that is stated, as a logarithm: a trial without data counts as one of 1 bit/s.
const LOG_MAX: f64 = 30.0;

/// The error that is left for the rounds of a proof.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Levels {
    left: f64,
}

impl Default for Levels {
    fn default() -> Self {
        Self { left: ERROR }
    }
}

impl Levels {
    /// The level of each of the fixes of a round.
    pub fn for_round(&mut self, fixes: usize) -> f64 {
        let used = self.left * ROUND;
        self.left -= used;
        used / count(fixes.max(1))
    }

    /// A fix of this level was kept.
    pub fn kept(&mut self, level: f64) {
        self.left += level;
    }
}

/// How many trials a stage has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Trials without each fix.
    pub without: usize,
    /// Trials with all fixes, which all comparisons share.
    pub with: usize,
}

impl Sizes {
    /// The smallest stage for `fixes` fixes with at least `fewest` trials without each, in which a fix that wins all
    /// comparisons is significant at `level`.
    pub fn of(fixes: usize, level: f64, fewest: usize) -> Self {
        let fewest = fewest.max(2);
        (fewest..=fewest + MORE)
            .map(|without| {
                let mut with = without;
                while by_chance(without, with) > level {
                    with += 1;
                }
                Self { without, with }
            })
            .min_by_key(|sizes| sizes.total(fixes))
            .unwrap_or(Self {
                without: fewest,
                with: fewest,
            })
    }

    /// The trials of a stage of this many fixes.
    pub fn total(self, fixes: usize) -> usize {
        fixes * self.without + self.with
    }
}

/// The probability that one arm wins all comparisons although both are alike.
fn by_chance(without: usize, with: usize) -> f64 {
    (1..=without)
        .map(|place| count(place) / count(with + place))
        .product()
}

/// The rates of a stage's trials without one fix and of those with all.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stage {
    /// Rates without it, any unit above 0.
    pub without: Vec<f64>,
    /// Rates with all fixes.
    pub with: Vec<f64>,
}

/// The effect of a fix.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StagedEffect {
    /// The relative change, with / without - 1.
    pub relative: f64,
    /// The interval; its level is that of the look.
    pub interval: Interval,
    /// The probability of a statistic at least this high without any effect.
    pub chance: f64,
    /// The minimum detectable effect: the smallest relative increase that such an experiment detects four times out of
    /// five, on average over how far the spread of these trials is from the true one, with normal noise.
    pub smallest_detectable: f64,
}

/// What the stages of a fix show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The interval is above zero.
    Faster,
    /// The interval is below zero.
    Slower,
    /// No effect was shown, and none is expected from more trials, or there are no more.
    Nothing,
    /// Another stage may decide.
    Open,
}

/// The effect of a fix of this level after some stages, and what to do about it. No effect if there are too few trials.
pub fn look(stages: &[Stage], level: f64) -> (Option<StagedEffect>, Decision) {
    let share = stages.len().checked_sub(1).map(|look| LOOKS.get(look));
    let Some(share) = share else {
        return (None, Decision::Open);
    };
    let effect = share.and_then(|share| staged_relative(stages, level * share).ok());
    let hopeless = HOPELESS.get(stages.len() - 1);
    let decision = match &effect {
        Some(effect) if effect.interval.low > 0.0 => Decision::Faster,
        Some(effect) if effect.interval.high < 0.0 => Decision::Slower,
        _ if hopeless.is_none() => Decision::Nothing,
        Some(effect) if hopeless.is_some_and(|hopeless| effect.chance > *hopeless) => {
            Decision::Nothing
        }
        _ => Decision::Open,
    };
    (effect, decision)
}

/// The effect over some stages; each end of the interval misses a true effect with a probability of at most `tail`.
///
/// An error if the trials are too few for that level, or a rate is not above zero.
pub fn staged_relative(stages: &[Stage], tail: f64) -> Result<StagedEffect, StatsError> {
    if !(tail > 0.0 && tail < 0.5) {
        return Err(StatsError::LevelOutOfRange {
            level: 1.0 - 2.0 * tail,
        });
    }
    let (mut differences, mut residuals) = (Vec::new(), Vec::new());
    for stage in stages {
        let (without, with) = (logs(&stage.without)?, logs(&stage.with)?);
        add_differences(&without, &with, &mut differences);
        add_residuals(without, &mut residuals);
        add_residuals(with, &mut residuals);
    }
    let sizes: Vec<(usize, usize)> = stages
        .iter()
        .map(|stage| (stage.without.len(), stage.with.len()))
        .collect();
    let wins = wins_by_chance(&sizes);
    let Some(cut) = cut_of(&wins, tail) else {
        return Err(StatsError::TooFewValues {
            have: sizes.iter().map(|(without, with)| without + with).sum(),
            need: sizes
                .iter()
                .map(|(without, with)| without + with)
                .sum::<usize>()
                + 1,
        });
    };
    differences.sort_unstable_by(f64::total_cmp);
    let won = differences.iter().filter(|one| **one > 0.0).count();
    let needed = needed_in_spreads(&sizes, cut);
    let to_relative = |log: f64| log.clamp(-LOG_MAX, LOG_MAX).exp_m1();
    Ok(StagedEffect {
        relative: to_relative(quantile_of_sorted(&differences, 0.5)),
        interval: Interval {
            low: to_relative(differences[cut]),
            high: to_relative(differences[differences.len() - 1 - cut]),
            level: 1.0 - 2.0 * tail,
        },
        chance: wins[won..].iter().sum::<f64>().min(1.0),
        smallest_detectable: to_relative(needed * spread_of(residuals)),
    })
}

/// All differences of a trial with and one without.
fn add_differences(without: &[f64], with: &[f64], differences: &mut Vec<f64>) {
    for with in with {
        differences.extend(without.iter().map(|without| with - without));
    }
}

/// How far the values of an arm are from its median.
fn add_residuals(mut arm: Vec<f64>, residuals: &mut Vec<f64>) {
    if arm.is_empty() {
        return;
    }
    arm.sort_unstable_by(f64::total_cmp);
    let middle = quantile_of_sorted(&arm, 0.5);
    residuals.extend(arm.iter().map(|value| (value - middle).abs()));
}

/// A measure of the spread that up to a quarter of the trials cannot change much: one that stalled is 20 units away.
fn spread_of(mut residuals: Vec<f64>) -> f64 {
    residuals.sort_unstable_by(f64::total_cmp);
    if residuals.is_empty() {
        return 0.0;
    }
    quantile_of_sorted(&residuals, 0.75)
}

/// The most comparisons that may be lost, from 0, with a probability of at most `tail` without any effect; none if
/// even winning all of them is more likely.
fn cut_of(wins: &[f64], tail: f64) -> Option<usize> {
    let mut sum = 0.0;
    // Sums of rounded probabilities must not cost the level that they were chosen for.
    let most = tail * (1.0 + 1e-9);
    let fits = wins.iter().take_while(|probability| {
        sum += **probability;
        sum <= most
    });
    fits.count().checked_sub(1)
}

/// The probability of each number of comparisons won, from 0, over stages of these sizes, if nothing has an effect.
fn wins_by_chance(sizes: &[(usize, usize)]) -> Vec<f64> {
    sizes.iter().fold(vec![1.0], |sum, &(without, with)| {
        let of_stage = wins_in_stage(without, with);
        let mut next = vec![0.0; sum.len() + of_stage.len() - 1];
        for (place, one) in sum.iter().enumerate() {
            for (other, probability) in of_stage.iter().enumerate() {
                next[place + other] += one * probability;
            }
        }
        next
    })
}

/// The Mann-Whitney distribution: of all trials the highest is one without the fix with probability
/// without / (without + with), and then loses no comparison; otherwise it wins against all without.
fn wins_in_stage(without: usize, with: usize) -> Vec<f64> {
    let mut row: Vec<Vec<f64>> = vec![vec![1.0]; with + 1];
    for without in 1..=without {
        let mut next: Vec<Vec<f64>> = vec![vec![1.0]];
        for with in 1..=with {
            let mut wins = vec![0.0; without * with + 1];
            let all = count(without + with);
            for (place, probability) in row[with].iter().enumerate() {
                wins[place] += probability * count(without) / all;
            }
            for (place, probability) in next[with - 1].iter().enumerate() {
                wins[place + without] += probability * count(with) / all;
            }
            next.push(wins);
        }
        row = next;
    }
    row.swap_remove(with)
}

/// The minimum detectable shift in observed spreads: simulated with normal noise, where the spread was
/// observed in one experiment and the shift must be detected by another one.
fn needed_in_spreads(sizes: &[(usize, usize)], cut: usize) -> f64 {
    type Known = HashMap<(Vec<(usize, usize)>, usize), f64>;
    static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
    let key = (sizes.to_vec(), cut);
    let lock = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(needed) = lock().as_ref().and_then(|known| known.get(&key)) {
        return *needed;
    }
    let mut random = Random::new(Seed(1));
    let (mut ends, mut spreads) = (Vec::new(), Vec::new());
    for _ in 0..DRAWS {
        let (mut differences, mut residuals) = (Vec::new(), Vec::new());
        for &(without, with) in sizes {
            let mut arm =
                |trials: usize| -> Vec<f64> { (0..trials).map(|_| random.normal()).collect() };
            let (without, with) = (arm(without), arm(with));
            add_differences(&without, &with, &mut differences);
            add_residuals(without, &mut residuals);
            add_residuals(with, &mut residuals);
        }
        let (_, end, _) = differences.select_nth_unstable_by(cut, f64::total_cmp);
        ends.push(-*end);
        spreads.push(spread_of(residuals));
    }
    spreads.rotate_left(1);
    let mut needed: Vec<f64> = ends
        .iter()
        .zip(&spreads)
        .map(|(end, spread)| end / spread)
        .filter(|needed| needed.is_finite())
        .collect();
    needed.sort_unstable_by(f64::total_cmp);
    let needed = if needed.is_empty() {
        LOG_MAX
    } else {
        quantile_of_sorted(&needed, POWER)
    };
    lock().get_or_insert_default().insert(key, needed);
    needed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(without: &[f64], with: &[f64]) -> Stage {
        Stage {
            without: without.to_vec(),
            with: with.to_vec(),
        }
    }

    #[test]
    fn wins_by_chance_are_those_of_the_published_tables() {
        // Mann and Whitney 1947, table 1: P(U <= 1) for 3 and 4 is 2/35, for 5 and 5 P(U <= 2) is 4/252.
        let sum = |wins: &[f64], most: usize| wins[..=most].iter().sum::<f64>();
        assert!((sum(&wins_in_stage(3, 4), 1) - 2.0 / 35.0).abs() < 1e-12);
        assert!((sum(&wins_in_stage(5, 5), 2) - 4.0 / 252.0).abs() < 1e-12);
        let two = wins_by_chance(&[(3, 4), (5, 5)]);
        assert_eq!(two.len(), 12 + 25 + 1);
        assert!((two.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!((two[0] - 1.0 / 35.0 / 252.0).abs() < 1e-12);
    }

    #[test]
    fn the_interval_is_above_zero_exactly_if_chance_is_within_the_level() {
        let mut random = Random::new(Seed(5));
        for round in 0..2_000 {
            let shift = f64::from(round % 40) * 0.05;
            let mut arm = |trials: usize, shift: f64| -> Vec<f64> {
                (0..trials)
                    .map(|_| (random.normal() + shift).exp())
                    .collect()
            };
            let stages = [
                stage(&arm(3, 0.0), &arm(9, shift)),
                stage(&arm(3, 0.0), &arm(9, shift)),
            ];
            let tail = 0.01;
            let effect = staged_relative(&stages, tail).expect("enough trials");
            assert_eq!(
                effect.interval.low > 0.0,
                effect.chance <= tail,
                "{effect:?}"
            );
            assert!(
                effect.interval.low <= effect.relative && effect.relative <= effect.interval.high
            );
        }
    }

    #[test]
    fn a_stage_is_as_small_as_its_level_permits() {
        let all = |fixes, level| {
            let sizes = Sizes::of(fixes, level, 3);
            assert!(by_chance(sizes.without, sizes.with) <= level, "{sizes:?}");
            (sizes.without, sizes.with)
        };
        // 1 of 220 arrangements of 3 and 9.
        assert_eq!(all(5, 0.0054), (3, 9));
        assert_eq!(all(1, 0.027), (3, 5));
        assert_eq!(Sizes::of(5, 0.0054, 3).total(5), 24);
        assert_eq!(
            Sizes::of(2, 0.5, 10),
            Sizes {
                without: 10,
                with: 10
            }
        );
    }

    #[test]
    fn ties_and_trials_without_data_are_no_evidence() {
        let same = staged_relative(&[stage(&[5.0; 3], &[5.0; 9])], 0.01).expect("enough trials");
        assert!((same.chance - 1.0).abs() < 1e-9 && same.relative.abs() < 1e-12);
        assert!(same.interval.low <= 0.0 && same.interval.high >= 0.0);
        // One trial of nine that moved nothing.
        let with = [9e9, 9.1e9, 9e9, 9.2e9, 1.0, 9e9, 9.1e9, 9e9, 9e9];
        let stalled = staged_relative(&[stage(&[5e9; 3], &with)], 0.01).expect("enough trials");
        assert!(
            stalled.interval.low < 0.0 && stalled.smallest_detectable < 0.5,
            "{stalled:?}"
        );
        assert!(staged_relative(&[stage(&[0.0], &[1.0])], 0.01).is_err());
    }

    #[test]
    fn too_few_trials_for_the_level_are_refused() {
        assert!(staged_relative(&[stage(&[1.0; 3], &[2.0; 3])], 0.01).is_err());
        assert!(staged_relative(&[], 0.01).is_err());
        assert!(staged_relative(&[stage(&[], &[2.0; 9])], 0.01).is_err());
        let one_empty = [stage(&[1.0; 3], &[2.0; 9]), stage(&[], &[2.0; 9])];
        assert!(staged_relative(&one_empty, 0.01).is_ok());
        assert!(staged_relative(&[stage(&[1.0; 3], &[2.0; 9])], 0.7).is_err());
    }

    const EXPERIMENTS: usize = 2_000;

    #[test]
    fn what_is_called_detectable_is_detected_four_times_out_of_five() {
        let mut random = Random::new(Seed(8));
        let sizes = [(3, 9), (3, 9)];
        let tail = 0.01;
        let mut shown = 0;
        for _ in 0..EXPERIMENTS {
            let mut run = |shift: f64| {
                let mut arm = |trials: usize, shift: f64| -> Vec<f64> {
                    (0..trials)
                        .map(|_| (0.03 * random.normal() + shift).exp())
                        .collect()
                };
                let stages: Vec<Stage> = sizes
                    .iter()
                    .map(|&(without, with)| Stage {
                        without: arm(without, 0.0),
                        with: arm(with, shift),
                    })
                    .collect();
                staged_relative(&stages, tail).expect("enough trials")
            };
            let detectable = run(0.0).smallest_detectable;
            shown += usize::from(run(detectable.ln_1p()).interval.low > 0.0);
        }
        let share = count(shown) / count(EXPERIMENTS);
        assert!((0.77..0.83).contains(&share), "{share}");
    }

    #[test]
    fn what_is_kept_passes_its_level_on_and_the_rest_is_never_used_up() {
        let mut levels = Levels::default();
        let each = levels.for_round(5);
        assert!((each * 5.0 - 0.045).abs() < 1e-12);
        levels.kept(each);
        let next = levels.for_round(1);
        assert!((next - 0.9 * (0.005 + each)).abs() < 1e-12);
        assert!((LOOKS.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
}
