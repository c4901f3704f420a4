//! Several NICs measured alone and together: the rates of both, and their interaction, from rounds of one trial of each NIC
//! alone and one of all at once. `bound` finds what they share, `elsewhere` bytes that went over another interface.
//!
//! The interaction is the rate of all together relative to the sum of the rates alone, paired by round, so that the drift of
//! the hosts cancels.

pub mod bound;
pub mod elsewhere;
pub mod load;

use linerate_stats::Seed;
use linerate_stats::effect::{mean_with_interval, paired_relative};
use linerate_stats::summary::mean;
use serde::Serialize;

use crate::trial::LEVEL;

/// The rates of one round in bit/s, in the order of the NICs.
#[derive(Debug, Clone, PartialEq)]
pub struct Round {
    /// Each NIC alone.
    pub alone: Vec<f64>,
    /// Each NIC while all send or receive.
    pub together: Vec<f64>,
}

/// A mean rate with its 95 % CI.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rate {
    /// The mean of the rounds.
    pub rate_bit_per_s: f64,
    /// The lower end of its 95 % CI; null with fewer than three rounds.
    pub low_bit_per_s: Option<f64>,
    /// The upper end.
    pub high_bit_per_s: Option<f64>,
}

impl Rate {
    fn of(values: &[f64], seed: Seed) -> Option<Self> {
        if let Ok(found) = mean_with_interval(values, LEVEL, seed) {
            return Some(Self {
                rate_bit_per_s: found.mean,
                low_bit_per_s: Some(found.interval.low.max(0.0)),
                high_bit_per_s: Some(found.interval.high),
            });
        }
        mean(values).ok().map(|mean| Self {
            rate_bit_per_s: mean,
            low_bit_per_s: None,
            high_bit_per_s: None,
        })
    }
}

/// A relative change within rounds, with its 95 % CI.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Change {
    /// The change: -0.5 is half. From the geometric mean of the rounds' ratios.
    pub relative: f64,
    /// The lower end of its 95 % CI; null with fewer than three rounds.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// The number of rounds.
    pub rounds: usize,
    /// The minimum detectable effect at this number of rounds and scatter, with a power of 80 %; null with fewer than three
    /// rounds.
    pub minimum_detectable: Option<f64>,
}

impl Change {
    fn of(pairs: &[(f64, f64)], seed: Seed) -> Option<Self> {
        if let Ok(effect) = paired_relative(pairs, LEVEL, seed) {
            return Some(Self {
                relative: effect.relative,
                low: Some(effect.interval.low),
                high: Some(effect.interval.high),
                rounds: effect.pairs,
                minimum_detectable: Some(effect.smallest_detectable),
            });
        }
        let logs: Vec<f64> = pairs.iter().map(|(from, to)| (to / from).ln()).collect();
        let relative = mean(&logs).ok()?.exp_m1();
        relative.is_finite().then_some(Self {
            relative,
            low: None,
            high: None,
            rounds: pairs.len(),
            minimum_detectable: None,
        })
    }

    /// What its interval shows.
    pub fn verdict(&self) -> Verdict {
        match (self.low, self.high) {
            (_, Some(high)) if high < 0.0 => Verdict::Less,
            (Some(low), _) if low > 0.0 => Verdict::More,
            (Some(_), Some(_)) => Verdict::NotSignificant,
            _ => Verdict::NoInterval,
        }
    }
}

/// What the interval of a change shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Less together than the sum of each alone: they share a bound.
    Less,
    /// More together.
    More,
    /// The interval contains 0.
    NotSignificant,
    /// Too few rounds for an interval.
    NoInterval,
}

/// The rates of one NIC.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NicFigures {
    /// While only it is used.
    pub alone: Rate,
    /// While all are used.
    pub together: Rate,
    /// From alone to together.
    pub change: Change,
}

/// What the rounds show.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// Each NIC.
    pub nics: Vec<NicFigures>,
    /// The sum of the rates of each alone.
    pub sum_alone: Rate,
    /// The sum of the rates while all are used.
    pub together: Rate,
    /// From the sum of each alone to all together.
    pub interaction: Change,
}

impl Figures {
    /// The figures of whole rounds; none without a round, or if a rate is not above zero.
    pub fn of(rounds: &[Round], seed: Seed) -> Option<Self> {
        let count = rounds.first()?.alone.len();
        let is_whole = |round: &Round| {
            let mut rates = round.alone.iter().chain(&round.together);
            round.alone.len() == count
                && round.together.len() == count
                && rates.all(|rate| rate.is_finite() && *rate > 0.0)
        };
        if count == 0 || !rounds.iter().all(is_whole) {
            return None;
        }
        let pairs = |pick: &dyn Fn(&Round) -> (f64, f64)| -> Vec<(f64, f64)> {
            rounds.iter().map(pick).collect()
        };
        let both = |pairs: &[(f64, f64)]| {
            let (before, after): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
            Some(NicFigures {
                alone: Rate::of(&before, seed)?,
                together: Rate::of(&after, seed)?,
                change: Change::of(pairs, seed)?,
            })
        };
        let nics: Option<Vec<NicFigures>> = (0..count)
            .map(|nic| both(&pairs(&|round| (round.alone[nic], round.together[nic]))))
            .collect();
        let sums = both(&pairs(&|round| {
            (round.alone.iter().sum(), round.together.iter().sum())
        }))?;
        Some(Self {
            nics: nics?,
            sum_alone: sums.alone,
            together: sums.together,
            interaction: sums.change,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of two NICs: `share` of the sum of each alone remains together; the host drifts by 30 %.
    fn rounds(count: u32, share: f64) -> Vec<Round> {
        let round = |number: u32| {
            let drift = 1e9 * (1.0 + 0.3 * f64::from(number) / f64::from(count));
            let noise = 1.0 + 0.002 * f64::from(number % 3);
            Round {
                alone: vec![10.0 * drift, 20.0 * drift],
                together: vec![10.0 * drift * share * noise, 20.0 * drift * share / noise],
            }
        };
        (0..count).map(round).collect()
    }

    fn figures(rounds: &[Round]) -> Figures {
        Figures::of(rounds, Seed(3)).expect("whole rounds")
    }

    #[test]
    fn nics_without_a_shared_bound_show_no_interaction_and_what_would_have_been_seen() {
        let found = figures(&rounds(5, 1.0)).interaction;
        assert_eq!(found.verdict(), Verdict::NotSignificant, "{found:?}");
        assert!(
            found.minimum_detectable.expect("five rounds") < 0.02,
            "{found:?}"
        );
    }

    #[test]
    fn a_shared_bound_is_a_negative_interaction_whatever_the_host_drifts_by() {
        let found = figures(&rounds(5, 0.5));
        assert_eq!(found.interaction.verdict(), Verdict::Less, "{found:?}");
        assert!((found.interaction.relative + 0.5).abs() < 0.01, "{found:?}");
        let [one, other] = &found.nics[..] else {
            panic!("two NICs");
        };
        assert!((other.alone.rate_bit_per_s / one.alone.rate_bit_per_s - 2.0).abs() < 1e-9);
        let sum = one.together.rate_bit_per_s + other.together.rate_bit_per_s;
        assert!((sum / found.together.rate_bit_per_s - 1.0).abs() < 1e-9);
    }

    #[test]
    fn more_together_than_the_sum_of_each_alone_is_no_shared_bound() {
        let found = figures(&rounds(5, 1.2)).interaction;
        assert_eq!(found.verdict(), Verdict::More, "{found:?}");
    }

    #[test]
    fn two_rounds_have_figures_but_no_interval() {
        let found = figures(&rounds(2, 0.5)).interaction;
        assert_eq!((found.low, found.minimum_detectable), (None, None));
        assert_eq!(found.verdict(), Verdict::NoInterval);
        assert!((found.relative + 0.5).abs() < 0.01, "{found:?}");
    }

    #[test]
    fn a_round_that_lacks_a_rate_is_refused() {
        let mut all = rounds(5, 1.0);
        all[2].together[1] = 0.0;
        assert_eq!(Figures::of(&all, Seed(3)), None);
        all[2].together.pop();
        assert_eq!(Figures::of(&all, Seed(3)), None);
        assert_eq!(Figures::of(&[], Seed(3)), None);
    }
}
