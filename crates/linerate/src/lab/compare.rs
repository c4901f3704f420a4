//! `linerate compare`: what changed from some runs to others, result by result; of runs of `failover` and `mesh` see there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path as FilePath, PathBuf};

use linerate_analysis::changes::{Change, of_host, of_trials};
use linerate_analysis::experiment::compare::hot::{HotChange, HotCounts};
use linerate_analysis::experiment::compare::{
    CompareDocument, Compared, RunValues, Side, Unit, Verdict, difference, document, values,
    values_of_results,
};
use linerate_analysis::experiment::sorted::sort;
use linerate_analysis::record::{Record, RunKind, StoredRun};
use linerate_analysis::trial::figure::{in_words, own_response};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::Host;
use linerate_model::ids::NicName;
use linerate_model::lab::{Experiment, Response};
use linerate_model::plan::End;
use linerate_model::workload::TrialSpec;
use linerate_runtime::cli::{CompareArgs, RunGroup};
use linerate_runtime::console::say::{Format, Say};
use linerate_store as store;

use crate::failover::compare as failover;
use crate::mesh::compare as mesh;

/// More differences between the hosts are in the document only.
const DIFFERENCES_SHOWN: usize = 12;
/// More symbols of an end are in the document only.
const SYMBOLS_SHOWN: usize = 10;

/// Runs `compare`. Exit code 11 on a regression, 12 if inconclusive.
pub(crate) fn run(args: &CompareArgs, state: &FilePath, say: &Say) -> Outcome<()> {
    let runs = state.join("runs");
    let (before, after) = (&found(&args.before, &runs)?, &found(&args.after, &runs)?);
    check_distinct(before, after)?;
    if let Some(first) = before.0.first() {
        match store::kind_of(first)? {
            RunKind::Failover => return failover::run((before, after), args, say),
            RunKind::Mesh | RunKind::MeshRank => return mesh::run((before, after), args, say),
            _ => {}
        }
    }
    let baseline = Baseline::of(before)?;
    let response = baseline.response;
    let (before, after) = (baseline.side(before)?, baseline.side(after)?);
    let differences = (before.first.as_ref()).zip(after.first.as_ref());
    let differences = differences.map_or_else(Vec::new, |(was, is)| was.changes(is));
    let hot = before.hot.changes(&after.hot);
    let (before, after) = (before.side, after.side);
    let Some(mut document) = document(before, after, response, args.margin, differences) else {
        let why = "the runs have no combination in common, or no result of one";
        let hint = "compare runs of one command: `linerate runs` lists them";
        return Err(Stop::new(Code::Inconclusive, why).hint(hint));
    };
    document.hot = hot;
    if say.format == Format::Json {
        say.json(&document)?;
    } else {
        say.data(&text(&document))?;
    }
    match document.verdict {
        Verdict::NotWorse => Ok(()),
        Verdict::Worse => Err(Stop::new(Code::Regression, "regression")),
        Verdict::CannotTell => {
            let why = document.why.as_deref();
            let why = why.unwrap_or("the runs do not show whether there is a regression");
            let hint = match (document.unit, &document.why) {
                _ if document.cells.is_empty() => {
                    "repeat the trial in each run (`measure ... --until-ci 1%`), or compare at least three runs with \
                     three: `linerate compare A1,A2,A3 B1,B2,B3`"
                }
                (Unit::Trial, _) => {
                    "compare at least three runs with three: `linerate compare A1,A2,A3 B1,B2,B3`"
                }
                (Unit::Run, None) => "use more runs on each side, or a larger `--margin`",
                (Unit::Run, Some(_)) => "`linerate lab show RUN` shows why it has no result",
            };
            Err(Stop::new(Code::Inconclusive, format!("inconclusive: {why}")).hint(hint))
        }
    }
}

/// The runs of a group, as they were typed.
fn found(group: &RunGroup, runs: &FilePath) -> Outcome<RunGroup> {
    let folders = group.0.iter();
    let folders = folders.map(|run| store::named::find(runs, run.as_os_str(), None));
    Ok(RunGroup(folders.collect::<Outcome<_>>()?))
}

/// A run that is named twice would look like two runs that do not differ.
fn check_distinct(before: &RunGroup, after: &RunGroup) -> Outcome<()> {
    let mut seen = BTreeSet::new();
    for folder in before.0.iter().chain(&after.0) {
        let real = fs::canonicalize(folder).unwrap_or_else(|_| folder.clone());
        if !seen.insert(real) {
            let why = format!("cannot compare {}: it is named twice", folder.display());
            return Err(Stop::new(Code::Usage, why).hint("name each run once"));
        }
    }
    Ok(())
}

/// What the first run measured: every other one must have measured the same.
#[derive(Debug)]
enum Subject {
    Experiment(Box<Experiment>),
    /// Trials of a workload, by its name.
    Workload(String),
}

/// The first run.
struct Baseline<'a> {
    folder: &'a FilePath,
    subject: Subject,
    /// The response that decides: the experiment's first one, or the result of the workload.
    response: Response,
}

/// A run as it was read: its figures, and what is compared in words.
struct ReadRun {
    values: RunValues,
    facts: RunFacts,
    hot: HotCounts,
}

/// The runs of a side as they were read.
struct ReadSide {
    side: Side,
    /// What the first one says about the hosts.
    first: Option<RunFacts>,
    hot: HotCounts,
}

/// Both hosts with the interfaces of the path, and how a trial was asked for.
struct RunFacts {
    hosts: Option<(Box<Host>, Box<Host>)>,
    nics: (NicName, NicName),
    spec: Option<TrialSpec>,
}

impl<'a> Baseline<'a> {
    fn of(group: &'a RunGroup) -> Outcome<Self> {
        let folder = group.0.first().map_or(FilePath::new(""), PathBuf::as_path);
        let stored = store::read(folder)?;
        let (subject, response) = if let Some(sorted) = sort(&stored.records) {
            let response = sorted.responses().first().copied();
            let experiment = Box::new(sorted.experiment.clone());
            (Subject::Experiment(experiment), response)
        } else {
            let Some((workload, response)) = result_of(&stored.records) else {
                return Err(no_result(folder));
            };
            (Subject::Workload(workload), Some(response))
        };
        Ok(Self {
            folder,
            subject,
            response: response.ok_or_else(|| no_result(folder))?,
        })
    }

    /// Reads the runs of a side, one at a time: only their figures stay in memory, and what the first one says about
    /// the hosts.
    fn side(&self, group: &RunGroup) -> Outcome<ReadSide> {
        let mut first = None;
        let mut hot = HotCounts::default();
        let mut runs = Vec::new();
        for folder in &group.0 {
            let run = self.read(folder)?;
            first.get_or_insert(run.facts);
            hot.merge(&run.hot);
            runs.push(run.values);
        }
        let name = group.to_string();
        let side = Side { name, runs };
        Ok(ReadSide { side, first, hot })
    }

    fn read(&self, folder: &FilePath) -> Outcome<ReadRun> {
        let stored = store::read(folder)?;
        let facts = RunFacts::of(&stored);
        let values = match (&self.subject, sort(&stored.records)) {
            (Subject::Experiment(experiment), Some(sorted)) => {
                match difference(experiment, &sorted) {
                    Some(why) => return Err(self.refused(folder, &why)),
                    None => values(&sorted, self.response),
                }
            }
            (Subject::Workload(workload), None) => match result_of(&stored.records) {
                Some((other, _)) if other == *workload => {
                    values_of_results(&stored.records, self.response)
                }
                Some((other, _)) => {
                    let why = format!("its workload is {other}, not {workload}");
                    return Err(self.refused(folder, &why));
                }
                None => return Err(no_result(folder)),
            },
            (Subject::Experiment(_), None) => {
                return Err(self.refused(folder, "it is not a run of an experiment"));
            }
            (Subject::Workload(_), Some(_)) => {
                return Err(self.refused(folder, "it is a run of an experiment"));
            }
        };
        let hot = hot_symbols(&stored.records);
        Ok(ReadRun { values, facts, hot })
    }

    fn refused(&self, folder: &FilePath, why: &str) -> Stop {
        let (run, baseline) = (folder.display(), self.folder.display());
        let why = format!("cannot compare {run} with {baseline}: {why}");
        let hint = match self.subject {
            Subject::Experiment(_) => "make all runs with the same experiment file",
            Subject::Workload(_) => "compare runs of the same workload",
        };
        Stop::new(Code::BadInput, why).hint(hint)
    }
}

impl RunFacts {
    fn of(stored: &StoredRun) -> Self {
        let header = &stored.header;
        let hosts = stored.records.iter().find_map(|record| match record {
            Record::Hosts { local, remote } => Some((local.clone(), remote.clone())),
            _ => None,
        });
        let spec = stored.records.iter().find_map(|record| match record {
            Record::Measured(result) => Some(result.sample.as_ref()?.spec.clone()),
            Record::Before(sample) => Some(sample.spec.clone()),
            _ => None,
        });
        Self {
            hosts,
            nics: (header.local_nic.clone(), header.remote_nic.clone()),
            spec,
        }
    }

    /// What differs in a later run.
    fn changes(&self, after: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        if let (Some(one), Some(other)) = (&self.spec, &after.spec) {
            changes.extend(of_trials(one, other));
        }
        if let (Some(one), Some(other)) = (&self.hosts, &after.hosts) {
            changes.extend(of_host(End::Local, &self.nics.0, &one.0, &other.0));
            changes.extend(of_host(End::Remote, &self.nics.1, &one.1, &other.1));
        }
        changes
    }
}

/// The profiles of `measure --perf`.
fn hot_symbols(records: &[Record]) -> HotCounts {
    let mut counts = HotCounts::default();
    for record in records {
        if let Record::Measured(result) = record
            && let Some(sample) = &result.sample
        {
            counts.add(sample);
        }
    }
    counts
}

/// The workload of a run of `measure`, `prove` or `demo`, and the figure that is its result.
fn result_of(records: &[Record]) -> Option<(String, Response)> {
    records.iter().find_map(|record| match record {
        Record::Measured(result) => Some((result.workload.clone(), result.response)),
        Record::Before(sample) => {
            let workload = sample.spec.workload.name().to_owned();
            Some((workload, own_response(sample)))
        }
        _ => None,
    })
}

fn no_result(folder: &FilePath) -> Stop {
    let why = format!("{} has no trial with a result", folder.display());
    Stop::new(Code::Inconclusive, why)
}

fn text(document: &CompareDocument) -> String {
    let mut lines = vec![format!(
        "{} of {} vs {}; regressions below {:.1} % are ignored",
        document.response.word(),
        document.after,
        document.before,
        document.margin * 100.0
    )];
    if !document.cells.is_empty() {
        lines.push(intervals(document));
    }
    let named = document
        .cells
        .iter()
        .map(|cell| (cell.levels.join(", "), cell));
    let overall = document
        .overall
        .iter()
        .map(|all| ("geometric mean".to_owned(), all));
    for (name, cell) in named.chain(overall) {
        lines.push(format!("  {name}: {}", change(document.response, cell)));
    }
    for one in &document.uncertain {
        let words = |value| in_words(document.response, value);
        let (before, after) = (words(one.before), words(one.after));
        lines.push(format!(
            "  {}: {before} -> {after}, {:+.1} %, no interval ({} and {} {})",
            one.levels.join(", "),
            one.relative * 100.0,
            one.values_before,
            one.values_after,
            document.unit.word()
        ));
    }
    for levels in &document.unmatched {
        lines.push(format!("  {levels}: on one side only, or trials with 0"));
    }
    if !document.differences.is_empty() {
        lines.push("differences between the first runs of both sides:".to_owned());
        let named = document.differences.iter().take(DIFFERENCES_SHOWN);
        lines.extend(named.map(|change| format!("  {}", change.in_words())));
        if let more @ 1.. = document.differences.len().saturating_sub(DIFFERENCES_SHOWN) {
            lines.push(format!("  and {more} more (`--format json` lists all)"));
        }
    }
    for end in [End::Local, End::Remote] {
        let changes = document.hot.iter().filter(|one| one.end == end);
        hot(&mut lines, end, &changes.collect::<Vec<_>>());
    }
    lines.push(document.verdict.word().to_owned());
    lines.join("\n")
}

/// The symbols whose CPU cost changed, growth first; of those that did not change significantly only the count.
fn hot(lines: &mut Vec<String>, end: End, changes: &[&HotChange]) {
    let Some(unit) = changes.first().map(|one| one.unit.word()) else {
        return;
    };
    let significant = changes.iter().filter(|one| one.significant);
    let shown: Vec<_> = significant.take(SYMBOLS_SHOWN).collect();
    let rest = changes.len() - shown.len();
    lines.push(format!(
        "hot symbols, {end}: CPU {unit} (share of samples), 99.9 % significant, {rest} others not shown"
    ));
    let side = |cost: Option<f64>, share: Option<f64>| match (cost, share) {
        (Some(cost), Some(share)) => format!("{cost:.3} ({:.1} %)", share * 100.0),
        _ => "not listed".to_owned(),
    };
    for one in shown {
        let before = side(one.cost_before, one.share_before);
        let after = side(one.cost_after, one.share_after);
        let (growth, symbol, place) = (one.growth, &one.symbol, &one.place);
        lines.push(format!(
            "  {growth:+.3}  {before} -> {after}  {symbol}  {place}"
        ));
    }
}

/// What an interval is computed from.
fn intervals(document: &CompareDocument) -> String {
    let (before, after) = (document.runs_before, document.runs_after);
    let error = document.error * 100.0;
    match document.unit {
        Unit::Run => format!(
            "one mean per run, {after} runs vs {before}; a verdict on all combinations is wrong \
             in at most {error:.0} % of comparisons"
        ),
        Unit::Trial => {
            "intervals between trials: they do not include drift between runs".to_owned()
        }
    }
}

fn change(response: Response, cell: &Compared) -> String {
    let percent = |low: f64, high: f64| format!("[{:+.1}, {:+.1}]", low * 100.0, high * 100.0);
    // A single combination needs no correction.
    let corrected = if cell.level_among_all > cell.level {
        format!(
            ", corrected {:.2} % {}",
            cell.level_among_all * 100.0,
            percent(cell.low_among_all, cell.high_among_all)
        )
    } else {
        String::new()
    };
    format!(
        "{} -> {}, {:+.1} %, {:.0} % CI {}{corrected}: {}",
        in_words(response, cell.before),
        in_words(response, cell.after),
        cell.relative * 100.0,
        cell.level * 100.0,
        percent(cell.low, cell.high),
        cell.verdict.word()
    )
}
