//! The hottest symbols (`--perf`) of two sides, compared: what grew.
//!
//! A sample stands for 1/Hz of busy CPU time, so samples per gigabyte (or per operation) are CPU cost, which runs of
//! different rates and durations share; the share of a symbol alone would also move when another symbol does. Counts of
//! samples have the variance of a Poisson process. With 50 symbols at each end, one in a thousand would be
//! significant by chance at `FACTOR` standard errors.

use std::collections::{BTreeMap, BTreeSet};

use linerate_model::analysis::gigabytes_received;
use linerate_model::plan::End;
use linerate_model::sample::{Profile, Sample};
use serde::Serialize;

use crate::trial::operations::{askers, real};

/// A change of this many standard errors is significant: two-sided 0.1 %.
const FACTOR: f64 = 3.29;
/// The greatest changes of an end that are listed.
const LISTED: usize = 20;

/// What a cost is relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum CostUnit {
    /// CPU seconds per gigabyte received.
    #[serde(rename = "s/GB")]
    SecondsPerGigabyte,
    /// CPU microseconds per operation.
    #[serde(rename = "us/op")]
    MicrosecondsPerOperation,
}

impl CostUnit {
    /// For a person.
    pub fn word(self) -> &'static str {
        match self {
            Self::SecondsPerGigabyte => "s/GB",
            Self::MicrosecondsPerOperation => "us/op",
        }
    }
}

/// A symbol whose CPU cost changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HotChange {
    /// The end: `local` or `remote`.
    pub end: End,
    /// The symbol.
    pub symbol: String,
    /// The kernel, a module or a program file.
    pub place: String,
    /// Whether it is kernel code.
    pub kernel: bool,
    /// The unit of the costs.
    pub unit: CostUnit,
    /// CPU cost before; null if it was not among the 50 hottest symbols.
    pub cost_before: Option<f64>,
    /// CPU cost after; null likewise.
    pub cost_after: Option<f64>,
    /// Its share of the samples before; null likewise.
    pub share_before: Option<f64>,
    /// Its share of the samples after; null likewise.
    pub share_after: Option<f64>,
    /// The growth of its cost. Where one side is null, from or to the coldest listed symbol of that side: the true growth
    /// is at least that far from 0.
    pub growth: f64,
    /// Whether sampling alone explains the change in at most one of 1,000 comparisons. Drift between runs is not
    /// included.
    pub significant: bool,
}

/// The samples of one end, over all trials of a side.
#[derive(Debug, Clone, Default, PartialEq)]
struct Counted {
    samples: u64,
    /// CPU seconds that a sample stands for; none if the rate of sampling is not known.
    seconds: Option<f64>,
    /// Whether a list was cut: then a symbol may be missing because it is cold.
    cut: bool,
    symbols: BTreeMap<(bool, String, String), u64>,
}

impl Counted {
    fn add(&mut self, profile: &Profile) {
        self.samples += profile.samples;
        let seconds = profile
            .hz
            .filter(|hz| *hz > 0)
            .map(|hz| 1.0 / f64::from(hz));
        self.seconds = self.seconds.or(seconds);
        let listed: u64 = profile.symbols.iter().map(|hot| hot.samples).sum();
        self.cut |= listed < profile.samples;
        for hot in &profile.symbols {
            let key = (hot.kernel, hot.symbol.clone(), hot.place.clone());
            *self.symbols.entry(key).or_insert(0) += hot.samples;
        }
    }

    fn merge(&mut self, other: &Self) {
        self.samples += other.samples;
        self.seconds = self.seconds.or(other.seconds);
        self.cut |= other.cut;
        for (key, samples) in &other.symbols {
            *self.symbols.entry(key.clone()).or_insert(0) += samples;
        }
    }

    /// The most samples that a symbol outside the list has.
    fn bound(&self) -> u64 {
        let least = self.symbols.values().min().copied().unwrap_or(0);
        if self.cut { least } else { 0 }
    }
}

/// The profiles of a side.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HotCounts {
    local: Counted,
    remote: Counted,
    gigabytes: f64,
    operations: f64,
}

impl HotCounts {
    /// Adds the profiles of a trial, if it has any.
    pub fn add(&mut self, sample: &Sample) {
        let ends = [
            (&mut self.local, &sample.local),
            (&mut self.remote, &sample.remote),
        ];
        let mut found = false;
        for (counted, side) in ends {
            if let Some(profile) = side.profile.value() {
                counted.add(profile);
                found = true;
            }
        }
        if found {
            self.gigabytes += gigabytes_received(sample);
            let completed = askers(sample).map(|(_, operations)| operations.completed);
            self.operations += real(completed.fold(0, u64::saturating_add));
        }
    }

    /// Adds those of another run of the same side.
    pub fn merge(&mut self, other: &Self) {
        self.local.merge(&other.local);
        self.remote.merge(&other.remote);
        self.gigabytes += other.gigabytes;
        self.operations += other.operations;
    }

    /// What a sample of a side is worth in `unit`.
    fn worth(&self, counted: &Counted, unit: CostUnit) -> Option<f64> {
        let seconds = counted.seconds?;
        let (work, scale) = match unit {
            CostUnit::SecondsPerGigabyte => (self.gigabytes, 1.0),
            CostUnit::MicrosecondsPerOperation => (self.operations, 1e6),
        };
        (work > 0.0).then(|| seconds * scale / work)
    }

    /// What changed from these to `after`: the greatest changes of each end, growth first.
    pub fn changes(&self, after: &Self) -> Vec<HotChange> {
        let bulk = self.gigabytes > 0.0 && after.gigabytes > 0.0;
        let unit = if bulk {
            CostUnit::SecondsPerGigabyte
        } else {
            CostUnit::MicrosecondsPerOperation
        };
        let ends = [
            (End::Local, &self.local, &after.local),
            (End::Remote, &self.remote, &after.remote),
        ];
        let mut all = Vec::new();
        for (end, one, other) in ends {
            let worth = self.worth(one, unit).zip(after.worth(other, unit));
            if let Some((before, after)) = worth {
                all.extend(changes_of_end(end, unit, (one, before), (other, after)));
            }
        }
        all
    }
}

fn changes_of_end(
    end: End,
    unit: CostUnit,
    (one, worth_one): (&Counted, f64),
    (other, worth_other): (&Counted, f64),
) -> Vec<HotChange> {
    let keys: BTreeSet<_> = one.symbols.keys().chain(other.symbols.keys()).collect();
    let mut found: Vec<HotChange> = keys
        .into_iter()
        .map(|key| {
            let (was, is) = (one.symbols.get(key), other.symbols.get(key));
            let samples = |of: Option<&u64>, counted: &Counted| {
                real(of.copied().unwrap_or_else(|| counted.bound()))
            };
            let (before, after) = (samples(was, one), samples(is, other));
            let growth = after * worth_other - before * worth_one;
            // A count of 0 has an error too.
            let error =
                (before.max(1.0) * worth_one.powi(2) + after.max(1.0) * worth_other.powi(2)).sqrt();
            // A bound is no value: a change toward it may be larger, and one away from it is none.
            let known = match (was, is) {
                (None, _) => growth > 0.0,
                (_, None) => growth < 0.0,
                _ => true,
            };
            let share = |of: Option<&u64>, counted: &Counted| {
                of.map(|samples| real(*samples) / real(counted.samples.max(1)))
            };
            let (kernel, symbol, place) = key.clone();
            HotChange {
                end,
                symbol,
                place,
                kernel,
                unit,
                cost_before: was.map(|samples| real(*samples) * worth_one),
                cost_after: is.map(|samples| real(*samples) * worth_other),
                share_before: share(was, one),
                share_after: share(is, other),
                growth,
                significant: known && growth.abs() > FACTOR * error,
            }
        })
        .collect();
    found.sort_by(|a, b| b.growth.abs().total_cmp(&a.growth.abs()));
    found.truncate(LISTED);
    found.sort_by(|a, b| b.growth.total_cmp(&a.growth));
    found
}

#[cfg(test)]
mod tests {
    use linerate_model::build;
    use linerate_model::known::Known;
    use linerate_model::sample::{Hot, ProfileScope};

    use super::*;

    fn profiled(symbols: &[(&str, u64)], gigabytes: u64) -> Sample {
        let mut sample = build::sample().gbit(gigabytes * 4).build();
        let hot = |(symbol, samples): &(&str, u64)| Hot {
            symbol: (*symbol).to_owned(),
            place: "kernel".to_owned(),
            kernel: true,
            samples: *samples,
        };
        sample.local.profile = Known::Value(Profile {
            event: "cycles".to_owned(),
            hz: Some(100),
            samples: symbols.iter().map(|(_, samples)| samples).sum(),
            elsewhere: 0,
            lost: 0,
            symbols: symbols.iter().map(hot).collect(),
            scope: ProfileScope::Trial,
            gaps: Vec::new(),
        });
        sample
    }

    fn changes(before: &[Sample], after: &[Sample]) -> Vec<HotChange> {
        let counts = |samples: &[Sample]| {
            let mut counts = HotCounts::default();
            for sample in samples {
                counts.add(sample);
            }
            counts
        };
        counts(before).changes(&counts(after))
    }

    #[test]
    fn a_symbol_whose_cost_per_gigabyte_grew_is_first_and_one_of_equal_cost_is_not_significant() {
        let before = profiled(&[("copy", 400), ("lock", 20), ("free", 100)], 10);
        let after = profiled(&[("copy", 810), ("lock", 400), ("free", 195)], 20);
        let found = changes(&[before], &[after]);
        let words: Vec<_> = found
            .iter()
            .map(|one| (&one.symbol[..], one.significant))
            .collect();
        assert_eq!(words[0], ("lock", true));
        assert!(
            words[1..].iter().all(|(_, significant)| !significant),
            "{words:?}"
        );
        let lock = &found[0];
        assert_eq!(lock.unit, CostUnit::SecondsPerGigabyte);
        // 20 samples of 10 ms for 10 GB; 400 for 20 GB.
        let near = |value: Option<f64>, want: f64| (value.expect("a cost") - want).abs() < 1e-9;
        assert!(
            near(lock.cost_before, 0.02) && near(lock.cost_after, 0.2),
            "{lock:?}"
        );
    }

    #[test]
    fn a_symbol_that_a_cut_list_lacks_is_compared_with_the_coldest_listed_one() {
        let mut before = profiled(&[("copy", 400), ("free", 50)], 10);
        if let Known::Value(profile) = &mut before.local.profile {
            profile.samples += 300;
        }
        let after = profiled(&[("copy", 400), ("free", 50), ("lock", 60)], 10);
        let found = changes(&[before], &[after]);
        let lock = found
            .iter()
            .find(|one| one.symbol == "lock")
            .expect("listed");
        assert_eq!((lock.cost_before, lock.significant), (None, false));
        assert!((lock.growth - 0.01).abs() < 1e-9, "{lock:?}");
    }

    #[test]
    fn trials_without_a_profile_have_no_hot_symbols() {
        let sample = build::sample().build();
        let one = std::slice::from_ref(&sample);
        assert_eq!(changes(one, one), []);
    }
}
