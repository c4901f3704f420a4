//! What the work costs: trials with and without it in pairs, and the differences within each.

use linerate_analysis::trial::LEVEL;
use linerate_analysis::trial::diffusion::{EndFigures, Figures, figures};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::sample::Sample;
use linerate_model::workload::{TrialSpec, Workload};
use linerate_runtime::console::random::fresh_seed;
use linerate_stats::summary::{median, median_interval};
use linerate_stats::{Random, Seed, StatsError};
use serde::Serialize;

use super::super::is_whole;
use super::super::repeat::keep_nearest;
use super::seconds;

/// The cost of the work.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Overhead {
    /// Pairs of trials, one with the work and one without, in random order.
    pairs: usize,
    /// What their order was drawn from.
    seed: u64,
    /// How often the intervals hold the truth.
    level: f64,
    /// The ends that ask, from their start to the end of the last pair.
    real_s: Difference,
    local: Ends,
    remote: Ends,
}

/// CPU seconds of an end's data threads.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Ends {
    user_s: Difference,
    system_s: Difference,
}

/// A figure with and without the work, as medians, and the median of the differences within a pair with its
/// interval (sign test), which the medians' own difference need not be. Interrupted, with fewer than six pairs, it has
/// no interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Difference {
    with: f64,
    without: f64,
    #[serde(rename = "difference")]
    middle: f64,
    low: Option<f64>,
    high: Option<f64>,
}

/// One trial of each kind.
type Pair = (Figures, Figures);

/// Makes `pairs` pairs of trials, fewer if it `ends_early`. Comes back with the one with the work whose time is nearest
/// to the median; without a whole pair, with the first trial and no overhead.
pub(super) fn measure(
    spec: &TrialSpec,
    pairs: u16,
    seed: Option<u64>,
    mut trial: impl FnMut(&TrialSpec, u32) -> Outcome<Sample>,
    ends_early: impl Fn() -> bool,
) -> Outcome<(Sample, Option<Overhead>)> {
    let seed = seed.map_or_else(fresh_seed, Ok)?;
    let mut random = Random::new(Seed(seed));
    let with = spec.clone();
    let mut without = spec.clone();
    if let Workload::Diffusion(diffusion) = &mut without.workload {
        diffusion.work = false;
        diffusion.pictures = false;
    }
    let mut found: Vec<Pair> = Vec::new();
    let mut times: Vec<f64> = Vec::new();
    let mut kept: Vec<(f64, Sample)> = Vec::new();
    for pair in 0..u32::from(pairs) {
        let first_with = random.unit() < 0.5;
        let (first, second) = if first_with {
            (&with, &without)
        } else {
            (&without, &with)
        };
        let one = trial(first, 2 * pair + 1);
        if ends_early() {
            match (&kept[..], one) {
                ([], one) => return Ok((one?, None)),
                _ => break,
            }
        }
        let one = one?;
        let other = trial(second, 2 * pair + 2);
        if ends_early() && !is_whole(&other) {
            match &kept[..] {
                [] => return Ok((one, None)),
                _ => break,
            }
        }
        let other = other?;
        let (worked, idle) = if first_with {
            (one, other)
        } else {
            (other, one)
        };
        let both = figures(&worked).zip(figures(&idle));
        let both = both.ok_or_else(|| Stop::new(Code::Bug, "a trial of another workload"))?;
        times.push(both.0.real_s);
        kept.push((both.0.real_s, worked));
        keep_nearest(&mut kept, &times);
        found.push(both);
        if ends_early() {
            break;
        }
    }
    let overhead = Overhead::of(&found, seed)?;
    let nearest = kept.into_iter().next();
    let (_, sample) = nearest.ok_or_else(|| Stop::new(Code::Bug, "no trial completed"))?;
    Ok((sample, Some(overhead)))
}

impl Overhead {
    fn of(pairs: &[Pair], seed: u64) -> Outcome<Self> {
        let ends = |pick: fn(&Figures) -> &EndFigures| -> Outcome<Ends> {
            Ok(Ends {
                user_s: difference(pairs, |figures| pick(figures).user_s)?,
                system_s: difference(pairs, |figures| pick(figures).system_s)?,
            })
        };
        Ok(Self {
            pairs: pairs.len(),
            seed,
            level: LEVEL,
            real_s: difference(pairs, |figures| figures.real_s)?,
            local: ends(|figures| &figures.local)?,
            remote: ends(|figures| &figures.remote)?,
        })
    }

    /// How many pairs of trials there are, in words.
    pub(super) fn counted(&self) -> String {
        let plural = if self.pairs == 1 { "" } else { "s" };
        format!("{} pair{plural} of trials", self.pairs)
    }

    /// The lines for a person.
    pub(super) fn text(&self, lines: &mut Vec<String>) {
        lines.push(format!(
            "overhead  of the computation, {} pairs of trials with and without it, seed {}, {:.0} \
             % CI:",
            self.pairs,
            self.seed,
            self.level * 100.0
        ));
        let rows = [
            ("real", &self.real_s),
            ("user, local", &self.local.user_s),
            ("user, remote", &self.remote.user_s),
            ("sys, local", &self.local.system_s),
            ("sys, remote", &self.remote.system_s),
        ];
        for (what, one) in rows {
            lines.push(format!(
                "          {what:<13} {:>10} [{}, {}]   ({} with, {} without)",
                seconds(one.middle),
                bound(one.low),
                bound(one.high),
                seconds(one.with),
                seconds(one.without),
            ));
        }
    }
}

/// An end of an interval that may be missing.
fn bound(value: Option<f64>) -> String {
    value.map_or_else(|| "?".to_owned(), seconds)
}

fn difference(pairs: &[Pair], pick: impl Fn(&Figures) -> f64) -> Outcome<Difference> {
    let with: Vec<f64> = pairs.iter().map(|(with, _)| pick(with)).collect();
    let without: Vec<f64> = pairs.iter().map(|(_, without)| pick(without)).collect();
    let each: Vec<f64> = with.iter().zip(&without).map(|(w, o)| w - o).collect();
    let failed = |error| Stop::new(Code::Bug, "cannot compare the pairs").because(error);
    let interval = match median_interval(&each, LEVEL) {
        Ok(interval) => Some(interval),
        Err(StatsError::TooFewValues { .. }) => None,
        Err(error) => return Err(failed(error)),
    };
    Ok(Difference {
        with: median(&with).map_err(failed)?,
        without: median(&without).map_err(failed)?,
        middle: median(&each).map_err(failed)?,
        low: interval.map(|interval| interval.low),
        high: interval.map(|interval| interval.high),
    })
}
