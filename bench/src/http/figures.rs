//! From the pairs of a case to its figures. Pure.

use std::fmt::Write as _;

use linerate_stats::effect::paired_relative;
use linerate_stats::summary::median;
use linerate_stats::{Seed, StatsError};
use serde::Serialize;

/// "At least as fast" means: this many pairs, the interval's upper end at least 1, and the median at least
/// this.
const PAIRS_ENOUGH: usize = 9;
const MEDIAN_ENOUGH: f64 = 0.97;
/// The fewest pairs that have an interval.
pub(crate) const PAIRS_MIN: usize = 3;
/// How often the interval holds the truth.
const LEVEL: f64 = 0.95;

/// Whose speed is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Part {
    /// linerate's client with wrk, both at the same nginx.
    Client,
    /// linerate's server with nginx, both under the same wrk.
    Server,
}

/// What is between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Path {
    Loopback,
    Veth,
}

/// What is compared, and the requests per second of its pairs: (peer, linerate).
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Case {
    pub(crate) part: Part,
    pub(crate) path: Path,
    pub(crate) threads: u32,
    pub(crate) pairs: Vec<(f64, f64)>,
}

impl Case {
    pub(crate) fn name(&self) -> String {
        let part = match self.part {
            Part::Client => "client",
            Part::Server => "server",
        };
        let path = match self.path {
            Path::Loopback => "loopback",
            Path::Veth => "veth",
        };
        let threads = if self.threads == 1 {
            "thread"
        } else {
            "threads"
        };
        format!("{part} {path} {} {threads}", self.threads)
    }

    fn peer(&self) -> &'static str {
        match self.part {
            Part::Client => "wrk",
            Part::Server => "nginx",
        }
    }
}

/// The figures of a case. Ratios are linerate / peer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figures {
    pub(crate) name: String,
    pub(crate) peer: &'static str,
    pub(crate) pairs: usize,
    pub(crate) linerate_per_s_median: f64,
    pub(crate) peer_per_s_median: f64,
    /// The median of the pairs' ratios.
    pub(crate) ratio_median: f64,
    pub(crate) ratio_low: f64,
    pub(crate) ratio_high: f64,
    /// `None` with too few pairs.
    pub(crate) at_least_as_fast: Option<bool>,
}

pub(crate) fn figures(cases: &[Case], seed: u64) -> Result<Vec<Figures>, StatsError> {
    cases.iter().map(|case| figures_of(case, seed)).collect()
}

fn figures_of(case: &Case, seed: u64) -> Result<Figures, StatsError> {
    let of = |figure: fn(&(f64, f64)) -> f64| {
        let values: Vec<f64> = case.pairs.iter().map(figure).collect();
        median(&values)
    };
    let effect = paired_relative(&case.pairs, LEVEL, Seed(seed))?;
    let (low, high) = (1.0 + effect.interval.low, 1.0 + effect.interval.high);
    let ratio_median = of(|(peer, linerate)| linerate / peer)?;
    Ok(Figures {
        name: case.name(),
        peer: case.peer(),
        pairs: case.pairs.len(),
        linerate_per_s_median: of(|pair| pair.1)?,
        peer_per_s_median: of(|pair| pair.0)?,
        ratio_median,
        ratio_low: low,
        ratio_high: high,
        at_least_as_fast: (case.pairs.len() >= PAIRS_ENOUGH)
            .then_some(high >= 1.0 && ratio_median >= MEDIAN_ENOUGH),
    })
}

pub(crate) fn table(figures: &[Figures]) -> String {
    let mut text = format!(
        "{:<28} {:>5} {:>10} {:>16} {:>7} {:>16} {:>9}\n",
        "case (requests/s)", "pairs", "linerate", "peer", "ratio", "95 % interval", "as fast"
    );
    for one in figures {
        let as_fast = match one.at_least_as_fast {
            Some(true) => "yes",
            Some(false) => "no",
            None => "too few",
        };
        let _ = writeln!(
            text,
            "{:<28} {:>5} {:>10.0} {:>16} {:>7.3} {:>16} {:>9}",
            one.name,
            one.pairs,
            one.linerate_per_s_median,
            format!("{} {:.0}", one.peer, one.peer_per_s_median),
            one.ratio_median,
            format!("{:.3} to {:.3}", one.ratio_low, one.ratio_high),
            as_fast,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case_of(ratios: &[f64]) -> Case {
        Case {
            part: Part::Server,
            path: Path::Veth,
            threads: 2,
            pairs: ratios
                .iter()
                .map(|ratio| (1000.0, 1000.0 * ratio))
                .collect(),
        }
    }

    #[test]
    fn the_ratio_is_linerate_over_its_peer() {
        let case = case_of(&[1.2, 1.3, 1.25, 1.2, 1.3, 1.25, 1.2, 1.3, 1.25]);
        let figures = &figures(&[case], 1).expect("nine pairs")[0];
        assert!((figures.ratio_median - 1.25).abs() < 1e-9, "{figures:?}");
        assert!(figures.ratio_low > 1.0 && figures.at_least_as_fast == Some(true));
        assert!(table(std::slice::from_ref(figures)).contains("server veth 2 threads"));
    }

    #[test]
    fn a_slower_linerate_is_not_called_as_fast_and_three_pairs_say_nothing() {
        let slow = case_of(&[0.9, 0.91, 0.9, 0.91, 0.9, 0.91, 0.9, 0.91, 0.9]);
        let few = case_of(&[1.0, 1.1, 1.05]);
        let figures = figures(&[slow, few], 1).expect("pairs enough");
        assert_eq!(figures[0].at_least_as_fast, Some(false));
        assert_eq!(figures[1].at_least_as_fast, None);
    }
}
