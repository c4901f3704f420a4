//! From the pairs of a case to its figures. Pure; a stored comparison gives the same figures again.

use linerate_stats::effect::paired_relative;
use linerate_stats::summary::median;
use linerate_stats::{Seed, StatsError};
use serde::{Deserialize, Serialize};

use crate::cases::{Case, Program};
use crate::trial::Trial;

/// How often the interval holds the truth.
pub(crate) const LEVEL: f64 = 0.95;
/// How far from 1 the ratio may be for the two to agree.
const AGREE: f64 = 0.05;
/// "At least as fast" means: this many pairs, the interval's upper end at least 1, and the median at
/// least this.
const PAIRS_ENOUGH: usize = 9;
const MEDIAN_ENOUGH: f64 = 0.97;
/// The fewest pairs that have an interval.
pub(crate) const PAIRS_MIN: usize = 3;

/// One pair of trials of one case, taken one right after the other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pair {
    pub(crate) first: Program,
    pub(crate) linerate: Trial,
    pub(crate) iperf3: Trial,
}

/// A case and its pairs: what is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CasePairs {
    pub(crate) case: Case,
    pub(crate) pairs: Vec<Pair>,
}

/// Whether the two agree within 5 %.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Agreement {
    /// The whole interval lies within.
    Yes,
    /// The whole interval lies outside.
    No,
    /// The interval crosses the border: more pairs, or a quieter machine.
    Undecided,
}

/// The figures of a case. Ratios are linerate / iperf3.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figures {
    pub(crate) name: String,
    pub(crate) pairs: usize,
    pub(crate) linerate_bit_per_s_median: f64,
    pub(crate) iperf3_bit_per_s_median: f64,
    /// The median of the pairs' ratios.
    pub(crate) ratio_median: f64,
    /// The geometric mean of the pairs' ratios, which the interval is about.
    pub(crate) ratio_mean: f64,
    pub(crate) ratio_low: f64,
    pub(crate) ratio_high: f64,
    /// The smallest difference from 1 that would have been seen with 80 % probability.
    pub(crate) smallest_detectable: f64,
    /// The median ratio of the rates as each program prints them, by its own rule of what to count.
    pub(crate) printed_ratio_median: f64,
    pub(crate) agrees_within_5_percent: Agreement,
    /// By the rule above; `None` with too few pairs.
    pub(crate) at_least_as_fast: Option<bool>,
    /// CPU seconds per 10^9 bytes while moving them, both ends, by each program's own account.
    pub(crate) linerate_cpu_s_per_gb_median: f64,
    pub(crate) iperf3_cpu_s_per_gb_median: f64,
    /// CPU seconds of the whole command, both ends, start and end included.
    pub(crate) linerate_cpu_command_s_median: f64,
    pub(crate) iperf3_cpu_command_s_median: f64,
}

/// The figures of each case that has pairs enough for an interval.
pub(crate) fn figures(cases: &[CasePairs], seed: u64) -> Result<Vec<Figures>, StatsError> {
    cases
        .iter()
        .filter(|case| case.pairs.len() >= PAIRS_MIN)
        .map(|case| figures_of(case, seed))
        .collect()
}

fn figures_of(case: &CasePairs, seed: u64) -> Result<Figures, StatsError> {
    let of = |figure: &dyn Fn(&Pair) -> f64| {
        let values: Vec<f64> = case.pairs.iter().map(figure).collect();
        median(&values)
    };
    let rates: Vec<(f64, f64)> = case
        .pairs
        .iter()
        .map(|pair| (pair.iperf3.bit_per_s(), pair.linerate.bit_per_s()))
        .collect();
    let effect = paired_relative(&rates, LEVEL, Seed(seed))?;
    let (low, high) = (1.0 + effect.interval.low, 1.0 + effect.interval.high);
    let ratio_median = of(&|pair| pair.linerate.bit_per_s() / pair.iperf3.bit_per_s())?;
    Ok(Figures {
        name: case.case.name(),
        pairs: case.pairs.len(),
        linerate_bit_per_s_median: of(&|pair| pair.linerate.bit_per_s())?,
        iperf3_bit_per_s_median: of(&|pair| pair.iperf3.bit_per_s())?,
        ratio_median,
        ratio_mean: 1.0 + effect.relative,
        ratio_low: low,
        ratio_high: high,
        smallest_detectable: effect.smallest_detectable,
        printed_ratio_median: of(&|pair| {
            pair.linerate.printed_bit_per_s / pair.iperf3.printed_bit_per_s
        })?,
        agrees_within_5_percent: agreement(low, high),
        at_least_as_fast: (case.pairs.len() >= PAIRS_ENOUGH)
            .then_some(high >= 1.0 && ratio_median >= MEDIAN_ENOUGH),
        linerate_cpu_s_per_gb_median: of(&|pair| pair.linerate.moving_s_per_gb())?,
        iperf3_cpu_s_per_gb_median: of(&|pair| pair.iperf3.moving_s_per_gb())?,
        linerate_cpu_command_s_median: of(&|pair| pair.linerate.cpu_command_s)?,
        iperf3_cpu_command_s_median: of(&|pair| pair.iperf3.cpu_command_s)?,
    })
}

fn agreement(low: f64, high: f64) -> Agreement {
    if low >= 1.0 - AGREE && high <= 1.0 + AGREE {
        Agreement::Yes
    } else if high < 1.0 - AGREE || low > 1.0 + AGREE {
        Agreement::No
    } else {
        Agreement::Undecided
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cases;

    fn trial(bytes: u64, printed: f64) -> Trial {
        Trial {
            bytes,
            seconds: 1.0,
            printed_bit_per_s: printed,
            bytes_all: 2 * bytes,
            cpu_moving_s: 1.5,
            cpu_command_s: 2.0,
        }
    }

    /// A case whose pairs have these ratios.
    pub(crate) fn case_of(ratios: &[u64]) -> CasePairs {
        CasePairs {
            case: cases::all(None, 212_992)[0].clone(),
            pairs: ratios
                .iter()
                .map(|per_mille| Pair {
                    first: Program::Linerate,
                    linerate: trial(per_mille * 1_000_000, 2.0),
                    iperf3: trial(1_000_000_000, 1.0),
                })
                .collect(),
        }
    }

    #[test]
    fn the_ratio_is_linerate_over_iperf3() {
        let case = case_of(&[1010, 1020, 1030, 1020, 1010, 1030, 1020, 1025, 1015]);
        let figures = &figures(&[case], 1).expect("nine pairs")[0];
        assert!((figures.ratio_median - 1.02).abs() < 1e-9, "{figures:?}");
        assert!(
            figures.ratio_low > 1.0 && figures.ratio_high < 1.05,
            "{figures:?}"
        );
        assert!((figures.printed_ratio_median - 2.0).abs() < 1e-9);
        assert_eq!(figures.agrees_within_5_percent, Agreement::Yes);
        assert_eq!(figures.at_least_as_fast, Some(true));
    }

    #[test]
    fn cpu_time_is_per_gigabyte_received() {
        let figures = &figures(&[case_of(&[1000, 1001, 1002])], 1).expect("three pairs")[0];
        assert!(
            (figures.iperf3_cpu_s_per_gb_median - 0.75).abs() < 1e-9,
            "{figures:?}"
        );
    }

    #[test]
    fn an_interval_across_the_border_is_undecided_not_a_yes() {
        assert_eq!(agreement(0.96, 1.04), Agreement::Yes);
        assert_eq!(agreement(0.90, 1.01), Agreement::Undecided);
        assert_eq!(agreement(0.80, 1.20), Agreement::Undecided);
        assert_eq!(agreement(1.06, 1.20), Agreement::No);
        assert_eq!(agreement(0.80, 0.94), Agreement::No);
    }

    #[test]
    fn a_slower_linerate_is_not_called_as_fast() {
        let case = case_of(&[900, 910, 905, 900, 910, 905, 900, 910, 905]);
        let figures = &figures(&[case], 1).expect("nine pairs")[0];
        assert_eq!(figures.at_least_as_fast, Some(false));
        assert_eq!(figures.agrees_within_5_percent, Agreement::No);
    }

    #[test]
    fn few_pairs_never_say_as_fast_and_two_say_nothing() {
        let three = figures(&[case_of(&[1000, 1010, 1020])], 1).expect("three pairs");
        assert_eq!(three[0].at_least_as_fast, None);
        assert_eq!(figures(&[case_of(&[1000, 1010])], 1), Ok(Vec::new()));
    }
}
