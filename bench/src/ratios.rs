//! From the rounds of a case to its row: ratios of linerate to each peer within a round, their median and
//! interval, and whether that is "at least 1.00x" by the stated rule.

use linerate_stats::Seed;
use linerate_stats::effect::paired_relative;
use linerate_stats::summary::median;
use serde::Serialize;

use crate::markdown;

/// How often an interval holds the truth.
const LEVEL: f64 = 0.95;
/// "At least 1.00x" means: this many pairs, the interval's upper end at least 1.00, the median at least this.
const PAIRS_ENOUGH: usize = 9;
const MEDIAN_ENOUGH: f64 = 0.97;
/// What is 1.00 in the two decimals of "1.00x": by counted time an interval is a thousandth wide.
const HIGH_ENOUGH: f64 = 0.995;

/// Whether more or less is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// A rate.
    More,
    /// A time.
    Less,
}

impl Better {
    /// The better one of two trials.
    pub fn of(self, one: Trial, other: Trial) -> Trial {
        let is_other = match self {
            Self::More => other.value > one.value,
            Self::Less => other.value < one.value,
        };
        if is_other { other } else { one }
    }
}

/// One trial of one program.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Trial {
    /// In the case's unit.
    pub value: f64,
    /// Busy seconds of all CPUs, softirqs counted, for each gigabyte or million operations.
    pub cost: Option<f64>,
}

/// linerate against one peer.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// What was compared.
    pub case: String,
    /// The unit of the figures.
    pub unit: &'static str,
    /// The other program.
    pub peer: &'static str,
    /// Rounds that both came through.
    pub pairs: usize,
    /// linerate's median.
    pub linerate: f64,
    /// The other program's.
    pub of_peer: f64,
    /// linerate / peer, or peer / linerate where less is better: above 1 is in linerate's favour.
    pub ratio: f64,
    /// The lower end of its interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// CPU time for the same work, linerate's over the other's.
    pub cost_ratio: Option<f64>,
    /// "At least 1.00x" by the stated rule; `None` with too few pairs.
    pub at_least_as_good: Option<bool>,
}

/// The row of one pair of contestants; `pairs` holds (linerate, peer) of each round. `None` with too few.
pub fn row(
    (case, unit, better): (&str, &'static str, Better),
    peer: &'static str,
    pairs: &[(Trial, Trial)],
    seed: u64,
) -> Option<Row> {
    let ratios: Vec<f64> = pairs
        .iter()
        .map(|(ours, theirs)| match better {
            Better::More => ours.value / theirs.value,
            Better::Less => theirs.value / ours.value,
        })
        .collect();
    let ordered: Vec<(f64, f64)> = pairs
        .iter()
        .map(|(ours, theirs)| match better {
            Better::More => (theirs.value, ours.value),
            Better::Less => (ours.value, theirs.value),
        })
        .collect();
    let effect = paired_relative(&ordered, LEVEL, Seed(seed)).ok()?;
    let middle = |pick: &dyn Fn(&(Trial, Trial)) -> Option<f64>| -> Option<f64> {
        let values: Option<Vec<f64>> = pairs.iter().map(pick).collect();
        median(&values?).ok()
    };
    let ratio = median(&ratios).ok()?;
    let high = 1.0 + effect.interval.high;
    Some(Row {
        case: case.to_owned(),
        unit,
        peer,
        pairs: pairs.len(),
        linerate: middle(&|(ours, _)| Some(ours.value))?,
        of_peer: middle(&|(_, theirs)| Some(theirs.value))?,
        ratio,
        low: 1.0 + effect.interval.low,
        high,
        cost_ratio: middle(&|(ours, theirs)| Some(ours.cost? / theirs.cost?)),
        at_least_as_good: (pairs.len() >= PAIRS_ENOUGH)
            .then_some(high >= HIGH_ENOUGH && ratio >= MEDIAN_ENOUGH),
    })
}

/// The rows as a Markdown table.
pub fn table(rows: &[Row]) -> String {
    let mut text = markdown::head(&[
        "case",
        "unit",
        ">linerate",
        "peer",
        ">",
        ">ratio, median",
        "95 % interval",
        ">pairs",
        "at least 1.00x",
        ">CPU ratio",
    ]);
    for row in rows {
        let verdict = match row.at_least_as_good {
            Some(true) => "yes",
            Some(false) => "no",
            None => "too few pairs",
        };
        let cost = row
            .cost_ratio
            .map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        text += &markdown::row([
            row.case.as_str(),
            row.unit,
            &figure(row.linerate),
            row.peer,
            &figure(row.of_peer),
            &format!("{:.3}", row.ratio),
            &format!("{:.3} to {:.3}", row.low, row.high),
            &row.pairs.to_string(),
            verdict,
            &cost,
        ]);
    }
    text
}

fn figure(value: f64) -> String {
    match value {
        value if value >= 1_000.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(value: f64) -> Trial {
        Trial {
            value,
            cost: Some(1.0),
        }
    }

    #[test]
    fn a_ratio_above_one_is_in_our_favour_whichever_way_is_better() {
        let pairs: Vec<_> = (0..9)
            .map(|n| (trial(200.0 + f64::from(n)), trial(100.0)))
            .collect();
        let of = |better| row(("c", "u", better), "p", &pairs, 1).expect("nine pairs");
        assert!(of(Better::More).ratio > 2.0 && of(Better::More).at_least_as_good == Some(true));
        assert!(of(Better::Less).ratio < 0.5 && of(Better::Less).at_least_as_good == Some(false));
    }

    #[test]
    fn the_better_trial_is_the_higher_rate_or_the_shorter_time() {
        let (low, high) = (trial(1.0), trial(2.0));
        assert_eq!(Better::More.of(low, high), high);
        assert_eq!(Better::More.of(high, low), high);
        assert_eq!(Better::Less.of(low, high), low);
        assert_eq!(Better::Less.of(high, low), low);
    }

    #[test]
    fn a_thousandth_below_is_one_in_two_decimals_and_a_hundredth_is_not() {
        let of = |ours: f64| {
            let pairs = vec![(trial(ours), trial(1.0)); 9];
            let row = row(("c", "u", Better::More), "p", &pairs, 1);
            row.and_then(|row| row.at_least_as_good)
        };
        assert_eq!((of(0.999), of(0.99)), (Some(true), Some(false)));
    }

    #[test]
    fn few_pairs_do_not_decide() {
        let pairs = vec![
            (trial(2.0), trial(1.0)),
            (trial(2.1), trial(1.0)),
            (trial(2.2), trial(1.0)),
        ];
        let row = row(("c", "u", Better::More), "p", &pairs, 1).expect("three pairs");
        assert_eq!(row.at_least_as_good, None);
    }
}
