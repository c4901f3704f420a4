//! Compares runs made before a change with runs made after it: of an experiment combination by combination, of `measure`
//! and `prove` result by result.
//!
//! A host drifts from run to run (temperature, memory placement, other guests), and all trials of a run share that
//! drift. So the trials of two single runs cannot separate a change from drift, however many they are: the unit is
//! the run, and a verdict needs at least three on each side. Each run gives one mean for each combination; Welch's t
//! on their logarithms gives the interval of the change.
//!
//! Errors. A comparison is `worse` if one of its combinations is, so the intervals that decide it are corrected
//! (Bonferroni) and a comparison without any regression is called worse with a probability of at most [`ERROR`]. Half
//! of it is for the geometric mean over all combinations, which finds a small regression that all of them share. It
//! is `not-worse` if every combination is: that is wrong only if the one that is worse is missed, which needs no
//! correction (an intersection-union test: R. L. Berger, "Multiparameter hypothesis testing and acceptance sampling",
//! Technometrics 24(4), 1982). Either verdict uses one end of an interval, so an error of 5 % is an interval at 90 %,
//! as in equivalence tests (D. J. Schuirmann, 1987).

pub mod hot;

use std::collections::{BTreeMap, BTreeSet};

use linerate_model::lab::{Cell, Experiment, Response};
use linerate_stats::effect::{Effect, unpaired_relative};
use serde::Serialize;

use self::hot::HotChange;
use super::same::{Difference, difference_beside, difference_of_trials};
use super::sorted::ExperimentRecords;
use crate::changes::Change;
use crate::record::Record;
use crate::text::words::count;
use crate::trial::figure::{figure, mean};
use crate::trial::operations::real;

/// The probability of a wrong verdict, over all combinations.
pub const ERROR: f64 = 0.05;
/// With fewer runs on a side, nothing shows how far its runs differ by themselves.
pub const FEWEST_RUNS: usize = 3;

/// What `linerate compare RUNS RUNS --format json` prints: the changes from some runs to others.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CompareDocument {
    /// The name of this schema.
    pub schema: &'static str,
    /// The baseline runs, separated by commas.
    pub before: String,
    /// The runs that are compared with them.
    pub after: String,
    /// How many runs `before` has.
    pub runs_before: usize,
    /// How many runs `after` has.
    pub runs_after: usize,
    /// What is compared: the first response of the experiment, or the result of the workload.
    pub response: Response,
    /// Whether more is better.
    pub more_is_better: bool,
    /// Regressions smaller than this share are ignored.
    pub margin: f64,
    /// The probability of a wrong verdict, over all combinations.
    pub error: f64,
    /// What an interval is computed from: the mean of each run; or single trials, which do not show how far runs
    /// differ by themselves.
    pub unit: Unit,
    /// `worse` if one combination or their mean is, `not-worse` if every combination is and `after` has all of them.
    pub verdict: Verdict,
    /// Why it is `cannot-tell`, whatever the intervals are: too few runs, or a combination that `after` does not have.
    /// Null otherwise.
    pub why: Option<String>,
    /// Each combination that both sides have.
    pub cells: Vec<Compared>,
    /// The geometric mean over `cells`; it has no levels. Null for a single combination, and if the unit is the trial.
    pub overall: Option<Compared>,
    /// Combinations that both sides have, with too few runs or trials for an interval.
    pub uncertain: Vec<Uncertain>,
    /// Combinations that only one side has.
    pub unmatched: Vec<String>,
    /// What differs between the first runs of both sides: hosts, settings, and the options of the trials.
    pub differences: Vec<Change>,
    /// The symbols whose CPU cost changed most, at each end, growth first: of runs of `measure --perf`.
    pub hot: Vec<HotChange>,
}

/// A combination whose change may be chance: there are too few values.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Uncertain {
    /// The names of its levels.
    pub levels: Vec<String>,
    /// The mean before.
    pub before: f64,
    /// The mean after.
    pub after: f64,
    /// The relative change, of unknown error.
    pub relative: f64,
    /// The number of values (runs or trials) before.
    pub values_before: usize,
    /// The number of values after.
    pub values_after: usize,
}

/// What an interval is computed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// The mean of each run.
    Run,
    /// Each trial.
    Trial,
}

impl Unit {
    /// The word for several of them.
    pub fn word(self) -> &'static str {
        match self {
            Self::Run => "runs",
            Self::Trial => "trials",
        }
    }
}

/// A combination on both sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Compared {
    /// The names of its levels.
    pub levels: Vec<String>,
    /// The mean before.
    pub before: f64,
    /// The mean after.
    pub after: f64,
    /// The relative change.
    pub relative: f64,
    /// Its interval, which decides `not-worse`.
    pub low: f64,
    /// Its interval, which decides `not-worse`.
    pub high: f64,
    /// The confidence level of `low` to `high`.
    pub level: f64,
    /// The interval corrected for all combinations, which decides `worse`.
    pub low_among_all: f64,
    /// The interval corrected for all combinations, which decides `worse`.
    pub high_among_all: f64,
    /// The confidence level of `low_among_all` to `high_among_all`.
    pub level_among_all: f64,
    /// The minimum detectable effect: the corrected interval excludes 0 in four of five comparisons.
    pub smallest_detectable: f64,
    /// The verdict.
    pub verdict: Verdict,
}

/// The verdict on a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is no worse than by the margin.
    NotWorse,
    /// It may be worse by more than the margin, or not.
    CannotTell,
    /// It is worse by more than the margin.
    Worse,
}

impl Verdict {
    /// For a person.
    pub fn word(self) -> &'static str {
        match self {
            Self::NotWorse => "not worse",
            Self::CannotTell => "inconclusive",
            Self::Worse => "worse",
        }
    }
}

/// The figures of a run's trials for each combination, by the names of its levels.
pub type RunValues = BTreeMap<Vec<String>, Vec<f64>>;

/// The figures of a run of `measure`, `prove` or `demo`: each result by its name.
pub fn values_of_results(records: &[Record], response: Response) -> RunValues {
    let mut values = RunValues::new();
    let mut add = |name: &str, figures: &[f64]| {
        values
            .entry(vec![name.to_owned()])
            .or_default()
            .extend(figures);
    };
    for record in records {
        match record {
            Record::Measured(result) => {
                let name = result.label.as_ref().unwrap_or(&result.workload);
                add(name, result.figures.of(response));
            }
            Record::Before(sample) => {
                add("before any change", figure(response, sample).as_slice());
            }
            Record::After(sample) => {
                add("with the kept fixes", figure(response, sample).as_slice());
            }
            _ => {}
        }
    }
    values
}

/// The runs before a change, or those after it.
#[derive(Debug, Clone)]
pub struct Side {
    /// As they were named.
    pub name: String,
    /// What each measured.
    pub runs: Vec<RunValues>,
}

/// What is compared, and how.
#[derive(Debug, Clone, Copy)]
struct Question {
    response: Response,
    margin: f64,
    unit: Unit,
}

/// A combination with the values of both sides.
struct Matched<'a> {
    levels: &'a [String],
    before: Vec<f64>,
    after: Vec<f64>,
    alone: Effect,
}

/// The figures of a run.
pub fn values(sorted: &ExperimentRecords<'_>, response: Response) -> RunValues {
    let mut values = RunValues::new();
    for ((_, cell), made) in &sorted.cells {
        let cell: Cell = cell.to_vec();
        let first = made.samples.first();
        let value = first.and_then(|sample| figure(response, sample));
        let names = sorted.experiment.level_names(&cell);
        values.entry(names).or_default().extend(value);
    }
    values
}

/// Why a run cannot be compared with runs of `experiment`: the first difference of its own experiment in what it
/// measured. Title, design, responses and combinations that only one of the two has make no difference.
pub fn difference(experiment: &Experiment, sorted: &ExperimentRecords<'_>) -> Option<String> {
    let other = sorted.experiment;
    let names = |experiment: &Experiment| -> Vec<String> {
        (experiment.factors.iter())
            .map(|factor| factor.name().to_owned())
            .collect()
    };
    let (of_one, of_other) = (names(experiment), names(other));
    if of_one != of_other {
        let (one, other) = (of_one.join(", "), of_other.join(", "));
        return Some(format!("its factors are {other}, not {one}"));
    }
    let command = |experiment: &Experiment| {
        let server = experiment.server.as_ref();
        server.map(|server| server.command.clone().unwrap_or_else(|| server.url.clone()))
    };
    let (of_one, of_other) = (command(experiment), command(other));
    if of_one != of_other {
        let words = |server: Option<String>| {
            server.map_or_else(|| "linerate's own".to_owned(), |text| format!("`{text}`"))
        };
        let (one, other) = (words(of_one), words(of_other));
        return Some(format!("its server is {other}, not {one}"));
    }
    let in_words =
        |Difference { what, one, other }, at: &str| format!("its {what} is {other}{at}, not {one}");
    if let Some(difference) = difference_beside(experiment, other) {
        return Some(in_words(difference, ""));
    }
    let cells: BTreeSet<&[usize]> = sorted.cells.keys().map(|(_, cell)| *cell).collect();
    cells.into_iter().find_map(|cell| {
        let same = same_cell(experiment, other, cell)?;
        let difference = difference_of_trials(&experiment.at(&same), &other.at(cell))?;
        let levels = other.level_names(cell).join(", ");
        Some(in_words(difference, &format!(" at {levels}")))
    })
}

/// The combination of one experiment with the level names that `cell` has in the other; none if there is none.
fn same_cell(one: &Experiment, other: &Experiment, cell: &[usize]) -> Option<Cell> {
    let factors = one.factors.iter().zip(&other.factors).zip(cell);
    let levels = factors.map(|((one, other), level)| {
        let Some(level) = other.level(*level) else {
            // No level of this factor was available.
            return Some(one.levels.len());
        };
        let mut names = one.level_names().into_iter();
        names.position(|name| name == level.name)
    });
    levels.collect()
}

/// Compares two sides, whose first runs differ in `differences`; none if they share no combination.
pub fn document(
    before: Side,
    after: Side,
    response: Response,
    margin: f64,
    differences: Vec<Change>,
) -> Option<CompareDocument> {
    let fewest = before.runs.len().min(after.runs.len());
    let question = Question {
        response,
        margin,
        unit: if fewest < FEWEST_RUNS {
            Unit::Trial
        } else {
            Unit::Run
        },
    };
    let Changes {
        cells,
        overall,
        uncertain,
        unmatched,
    } = question.changes(&before, &after);
    if cells.is_empty() && uncertain.is_empty() {
        return None;
    }
    let is = |verdict: Verdict| move |one: &Compared| one.verdict == verdict;
    let missing = question.missing(&before, &after, &cells);
    let (verdict, why) = if cells.is_empty() {
        (Verdict::CannotTell, Some(too_few(&uncertain)))
    } else if question.unit == Unit::Trial {
        let worse = cells.iter().filter(|cell| question.is_worse(cell)).count();
        let times = match (before.runs.len(), after.runs.len()) {
            (1, 1) => "two runs made at different times",
            _ => "fewer than three runs on a side",
        };
        let of = count(cells.len(), "combination");
        let why = format!(
            "worse by more than the margin in {worse} of {of}; {times}: drift not separable"
        );
        (Verdict::CannotTell, Some(why))
    } else if cells.iter().chain(&overall).any(is(Verdict::Worse)) {
        (Verdict::Worse, None)
    } else if let Some(levels) = missing {
        let why = format!("only the baseline has a result of {}", levels.join(", "));
        (Verdict::CannotTell, Some(why))
    } else if cells.iter().all(is(Verdict::NotWorse)) {
        (Verdict::NotWorse, None)
    } else {
        (Verdict::CannotTell, None)
    };
    Some(CompareDocument {
        schema: "linerate.compare/1",
        runs_before: before.runs.len(),
        runs_after: after.runs.len(),
        before: before.name,
        after: after.name,
        response,
        more_is_better: response.more_is_better(),
        margin,
        error: ERROR,
        unit: question.unit,
        verdict,
        why,
        cells,
        overall,
        uncertain,
        unmatched,
        differences,
        hot: Vec::new(),
    })
}

/// Why nothing can be told from so few values.
fn too_few(uncertain: &[Uncertain]) -> String {
    let single = |one: &Uncertain| one.values_before == 1 && one.values_after == 1;
    if uncertain.iter().all(single) {
        return "one trial each: the change may be chance".to_owned();
    }
    "too few trials: the change may be chance".to_owned()
}

/// What became of all combinations.
struct Changes {
    cells: Vec<Compared>,
    overall: Option<Compared>,
    uncertain: Vec<Uncertain>,
    unmatched: Vec<String>,
}

impl Question {
    /// The change of each combination that both sides have, that of their mean, and the other combinations.
    fn changes(self, before: &Side, after: &Side) -> Changes {
        let runs = before.runs.iter().chain(&after.runs);
        let all: BTreeSet<&Vec<String>> = runs.flat_map(BTreeMap::keys).collect();
        let mut matched = Vec::new();
        let (mut uncertain, mut unmatched) = (Vec::new(), Vec::new());
        for levels in all {
            let of = |side| self.values_of(side, levels);
            if let Some(one) = matched_values(levels, of(before), of(after)) {
                matched.push(one);
            } else if let Some(one) = self.uncertain(levels, &of(before), &of(after)) {
                uncertain.push(one);
            } else {
                unmatched.push(levels.join(", "));
            }
        }
        let overall = self.overall(&matched, before, after);
        let shares = if overall.is_some() { 2.0 } else { 1.0 };
        let of_all = ERROR / shares;
        let of_each = of_all / real(matched.len().max(1) as u64);
        let compared = |one: &Matched<'_>| self.compared(one, of_each);
        let cells = matched.iter().filter_map(compared).collect();
        Changes {
            cells,
            overall: overall.and_then(|one| self.compared(&one, of_all)),
            uncertain,
            unmatched,
        }
    }

    /// A combination without an interval; none if a side has no value, or no relative change.
    fn uncertain(self, levels: &[String], before: &[f64], after: &[f64]) -> Option<Uncertain> {
        let means = (mean(self.response, before)?, mean(self.response, after)?);
        let relative = means.1 / means.0 - 1.0;
        relative.is_finite().then(|| Uncertain {
            levels: levels.to_vec(),
            before: means.0,
            after: means.1,
            relative,
            values_before: before.len(),
            values_after: after.len(),
        })
    }

    /// A combination that the baseline has and the other side does not: a change after which it fails is no better.
    fn missing<'a>(
        self,
        before: &'a Side,
        after: &Side,
        cells: &[Compared],
    ) -> Option<&'a Vec<String>> {
        let is_compared = |levels: &Vec<String>| cells.iter().any(|cell| cell.levels == *levels);
        let enough = |side, levels| self.values_of(side, levels).len() >= FEWEST_RUNS;
        let mut all = before.runs.iter().flat_map(BTreeMap::keys);
        all.find(|levels| !is_compared(levels) && enough(before, levels) && !enough(after, levels))
    }

    /// The values of a combination that are independent of each other.
    fn values_of(self, side: &Side, levels: &[String]) -> Vec<f64> {
        let trials = side.runs.iter().filter_map(|run| run.get(levels));
        match self.unit {
            Unit::Run => trials
                .filter_map(|trials| mean(self.response, trials))
                .collect(),
            Unit::Trial => trials.flatten().copied().collect(),
        }
    }

    /// The geometric mean of each run over the combinations.
    fn overall<'a>(
        self,
        matched: &[Matched<'_>],
        before: &Side,
        after: &Side,
    ) -> Option<Matched<'a>> {
        if self.unit == Unit::Trial || matched.len() < 2 {
            return None;
        }
        let of_run = |run: &RunValues| {
            let logs = matched.iter().map(|one| {
                let trials = run.get(one.levels)?;
                Some(mean(self.response, trials)?.ln())
            });
            let logs: Vec<f64> = logs.collect::<Option<_>>()?;
            Some((logs.iter().sum::<f64>() / real(logs.len() as u64)).exp())
        };
        let of = |side: &Side| side.runs.iter().filter_map(of_run).collect();
        matched_values(&[], of(before), of(after))
    }

    fn compared(self, one: &Matched<'_>, error: f64) -> Option<Compared> {
        let alone = &one.alone;
        let level = 1.0 - 2.0 * error;
        let among_all = unpaired_relative(&one.before, &one.after, level).ok()?;
        let mut compared = Compared {
            levels: one.levels.to_vec(),
            before: mean(self.response, &one.before)?,
            after: mean(self.response, &one.after)?,
            relative: alone.relative,
            low: alone.interval.low,
            high: alone.interval.high,
            level: alone.interval.level,
            low_among_all: among_all.interval.low,
            high_among_all: among_all.interval.high,
            level_among_all: level,
            smallest_detectable: among_all.smallest_detectable,
            verdict: Verdict::CannotTell,
        };
        if self.unit == Unit::Run {
            compared.verdict = if self.is_worse(&compared) {
                Verdict::Worse
            } else if self.is_not_worse(&compared) {
                Verdict::NotWorse
            } else {
                Verdict::CannotTell
            };
        }
        Some(compared)
    }

    /// Whether the whole corrected interval is beyond the margin.
    fn is_worse(self, one: &Compared) -> bool {
        let (_, best) = self.gain(one.low_among_all, one.high_among_all);
        best < -self.margin
    }

    /// Whether the whole interval is within the margin.
    fn is_not_worse(self, one: &Compared) -> bool {
        let (worst, _) = self.gain(one.low, one.high);
        worst >= -self.margin
    }

    /// An interval of a figure's change as that of a figure for which more is better.
    fn gain(self, low: f64, high: f64) -> (f64, f64) {
        if self.response.more_is_better() {
            (low, high)
        } else {
            // Less is better: the change of one over the figure.
            (1.0 / (1.0 + high) - 1.0, 1.0 / (1.0 + low) - 1.0)
        }
    }
}

/// A combination, if both sides have enough values of it.
fn matched_values(levels: &[String], before: Vec<f64>, after: Vec<f64>) -> Option<Matched<'_>> {
    let alone = unpaired_relative(&before, &after, 1.0 - 2.0 * ERROR).ok()?;
    Some(Matched {
        levels,
        before,
        after,
        alone,
    })
}

#[cfg(test)]
mod tests;
