//! The main loop of linerate: measure, analyze, test each remedy in an experiment, keep what helps, undo
//! the rest.
//!
//! Bottlenecks hide each other: while a shaper limits the rate, no larger buffer helps. So the remedies of a
//! round are tested together (`round`), each with every other bottleneck removed, which is also how a fault that is
//! found was once introduced.
//! Everything it does is recorded first and evaluated from the record. It accesses the machine
//! through [`Ends`] and the disk through [`Log`] only, so that it can be tested against simulated ones.

mod explore;
mod round;

use linerate_analysis::proof::{median_sample, remedy_in_words};
use linerate_analysis::record::Record;
use linerate_analysis::text::words::{count, seconds_in_words};
use linerate_analysis::trial::{rate_of, rates_in_words, settling_flag};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::finding::Diagnosis;
use linerate_model::host::Host;
use linerate_model::limit::why::applies_to;
use linerate_model::plan::End;
use linerate_model::propose::{Permit, Proposal, Proposals, propose, sift};
use linerate_model::prove::{EndChange, Guard};
use linerate_model::sample::Sample;
use linerate_model::setting::{SettingKey, current};
use linerate_model::trust;
use linerate_model::units::Nanoseconds;
use linerate_model::workload::TrialSpec;
use linerate_stats::staged::{ERROR, LOOKS, Levels, Sizes};
use linerate_stats::{Random, Seed};
use linerate_store::Log;

pub use self::explore::Budget;
use linerate_runtime::console::say::Say;
use linerate_runtime::endpoint::ends::{Ends, change_trial};
use linerate_runtime::endpoint::why;

use crate::prove::stack::{ChangeStack, RECOVER, moved_in_words, settings_of};

/// Trials before and after: odd, so that one of them is the median, and enough for its 95 % CI
/// (six are needed).
pub const REPEATS: u32 = 7;
/// Maximum rounds of rules, each after something helped.
const ROUNDS_MAX: u32 = 4;

/// The options of `prove`.
#[derive(Debug, Clone)]
pub struct Options {
    /// The trial.
    pub spec: TrialSpec,
    /// The fewest trials without each remedy in a stage.
    pub trials: u32,
    /// The seed of every random choice.
    pub seed: u64,
    /// Whether everything is restored at the end.
    pub undo: bool,
    /// Whether removing a shaper may be tried.
    pub owns_shapers: bool,
    /// Whether no setting of the whole machine may be tried.
    pub spares_machine: bool,
    /// Guards that may get worse.
    pub accepts_worse: Vec<Guard>,
    /// The source of remedies.
    pub source: Source,
}

/// The source of remedies.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// The rules propose them, as long as a kept one may uncover another.
    Rules,
    /// The user specified them.
    Given(Vec<Proposal>),
    /// They are searched for.
    Search(Budget),
}

impl Options {
    /// The plan, for the first lines of output.
    pub fn in_words(&self) -> String {
        format!(
            "{REPEATS} trials of {} before and {REPEATS} after: {}\n\
             chance of keeping any fix without effect: at most {:.0} %",
            self.time_of(1),
            self.time_of(2 * u64::from(REPEATS)),
            ERROR * 100.0,
        )
    }

    /// The duration of the trials of this many remedies.
    fn tries_in_words(&self, remedies: usize) -> String {
        if remedies == 0 {
            return "no fixes to test".to_owned();
        }
        let mut levels = Levels::default();
        let sizes = self.sizes(remedies, levels.for_round(remedies));
        let stage = sizes.total(remedies) as u64;
        format!(
            "{} tested together: {stage} trials, {} without each; about {} (up to {} for what is in doubt)",
            count(remedies, "fix"),
            sizes.without,
            self.time_of(stage),
            self.time_of(stage * LOOKS.len() as u64),
        )
    }

    /// The size of a stage for this many remedies, each tested at `level`.
    fn sizes(&self, remedies: usize, level: f64) -> Sizes {
        Sizes::of(remedies, level * LOOKS[0], self.trials as usize)
    }

    /// The time that this many trials transfer data.
    fn time_of(&self, trials: u64) -> String {
        seconds_in_words(Nanoseconds::new(
            self.spec.duration_ns.as_u64().saturating_mul(trials),
        ))
    }
}

/// A path being proved.
#[derive(Debug)]
pub struct Session<'a> {
    /// Both ends, and the changes on them: the kept remedies, and those of a running trial.
    stack: ChangeStack<'a>,
    log: &'a mut dyn Log,
    options: Options,
    say: &'a Say,
    /// The random generator of the run.
    random: Random,
    /// The trial, as changed by kept remedies and the arm of an experiment.
    spec: TrialSpec,
    /// How many remedies were kept.
    kept: usize,
    /// Remedies tried so far.
    tried: Vec<TestedRemedy>,
    /// Remedies that were not tried.
    held_back: Vec<Proposal>,
    /// The error that is left for further rounds.
    levels: Levels,
    /// How many stages were begun.
    stages: usize,
}

/// A remedy that was tested, and how many were kept when its round was over.
#[derive(Debug)]
struct TestedRemedy {
    changes: Vec<EndChange>,
    kept_then: usize,
    kept: bool,
}

impl<'a> Session<'a> {
    /// A session over `ends`, recorded in `log`.
    pub fn new(
        ends: &'a mut dyn Ends,
        log: &'a mut dyn Log,
        options: Options,
        say: &'a Say,
    ) -> Self {
        let random = Random::new(Seed(options.seed));
        let spec = options.spec.clone();
        Self {
            stack: ChangeStack::new(ends),
            log,
            options,
            say,
            random,
            spec,
            kept: 0,
            tried: Vec::new(),
            held_back: Vec::new(),
            levels: Levels::default(),
            stages: 0,
        }
    }

    /// The complete run. On an error everything is restored before it is reported.
    pub fn prove(mut self) -> Outcome<()> {
        let Err(stop) = self.story() else {
            return Ok(());
        };
        let why = if stop.code == Code::Interrupted {
            "interrupted".to_owned()
        } else {
            stop.message.clone()
        };
        // The record is for later; the error is for now.
        let _ = self.log.add(Record::Stopped(why.clone()));
        let put_back = self.undo_everything();
        let _ = self.log.add(Record::Ended {
            restored: put_back.as_ref().is_ok_and(Vec::is_empty),
            kept: false,
        });
        Err(match (stop.code, put_back) {
            (Code::RestoreIncomplete, _) => stop.hint(RECOVER),
            (Code::Interrupted, Ok(_)) if self.stack.has_changed() => stop.rolled_back(),
            (_, Ok(_)) => stop,
            (_, Err(failed)) => failed.after(&why),
        })
    }

    fn story(&mut self) -> Outcome<()> {
        self.log.add(Record::Hosts {
            local: Box::new(self.stack.ends.host(End::Local).clone()),
            remote: Box::new(self.stack.ends.host(End::Remote).clone()),
        })?;
        let before = self.repeat("before", Record::Before)?;
        // A search has no time for that.
        let finds_limit = !matches!(self.options.source, Source::Search(_));
        if finds_limit {
            self.find_limit(&before, false)?;
        }
        let mut newest = middle_of(&before)?;
        let mut rounds = ROUNDS_MAX;
        if let Source::Search(budget) = self.options.source {
            // What was searched for in a given time is tested once.
            rounds = 1;
            let found = self.explore(budget, &before)?;
            self.options.trials = budget.trials_for(found.len(), self.options.trials);
            self.options.source = Source::Given(found);
        }
        for _ in 0..rounds {
            match self.round(&newest)? {
                Some(sample) => newest = sample,
                None => break,
            }
        }
        let after = self.repeat("after", Record::After)?;
        if finds_limit {
            self.find_limit(&after, true)?;
        }
        self.finish()
    }

    /// The remedies that can be tested together, and whether one must wait for the next round because
    /// it changes the same setting as another. Each is made and undone once, alone: what this kernel or
    /// user cannot change is reported, and is no reason to stop.
    fn package(&mut self, newest: &Sample) -> Outcome<(Vec<Proposal>, bool)> {
        let mut package: Vec<Proposal> = Vec::new();
        let mut deferred = false;
        let proposals = self.proposals(newest)?.to_try;
        if self.tried.is_empty() {
            self.say.note(&self.options.tries_in_words(proposals.len()));
        }
        for proposal in proposals {
            if !self.is_worth_a_try(&proposal) {
                continue;
            }
            let clashes = |other: &Proposal| {
                settings_of(&other.changes)
                    .any(|one| settings_of(&proposal.changes).any(|o| o == one))
            };
            if package.iter().any(clashes) {
                deferred = true;
            } else if self.can_be_made(&proposal)? {
                package.push(proposal);
            }
        }
        Ok((package, deferred))
    }

    fn can_be_made(&mut self, proposal: &Proposal) -> Outcome<bool> {
        let of_the_trial =
            |change: &EndChange| matches!(change.change.setting, SettingKey::Trial(_));
        let made = if proposal.changes.iter().any(of_the_trial) {
            // Only a trial can show whether its sockets and threads may have what they request.
            self.with_changes(&proposal.changes).map(drop)
        } else {
            self.apply(&proposal.changes)
                .and_then(|()| self.stack.undo_newest())
        };
        let Err(stop) = made else { return Ok(true) };
        let remedy = self.begin(proposal, 0.0, Vec::new())?;
        self.cannot_be_made(proposal, remedy, stop)?;
        Ok(false)
    }

    /// Records that a remedy cannot be applied here; any other error is passed on.
    fn cannot_be_made(&mut self, proposal: &Proposal, remedy: usize, stop: Stop) -> Outcome<()> {
        if !self.is_impossible(&stop) {
            return Err(stop);
        }
        let note = format!("could not be tried: {}", stop.message);
        let label = remedy_in_words(&proposal.rule, &proposal.changes);
        self.say.result(&label, &note);
        self.not_kept(&proposal.changes);
        self.log.add(Record::Decided {
            remedy,
            kept: false,
            note: Some(note),
        })
    }

    /// Whether a stop means only that a change cannot be made here, and nothing is changed.
    fn is_impossible(&self, stop: &Stop) -> bool {
        matches!(stop.code, Code::NotSupported | Code::PermissionMissing)
            && !self.stack.is_in_doubt()
    }

    fn not_kept(&mut self, changes: &[EndChange]) {
        self.tried.push(TestedRemedy {
            changes: changes.to_vec(),
            kept_then: self.kept,
            kept: false,
        });
    }

    /// Whether a remedy is worth a try: one that did not help is only tried again if something was kept since.
    fn is_worth_a_try(&self, proposal: &Proposal) -> bool {
        let before = |tried: &&TestedRemedy| tried.changes == proposal.changes;
        let seen = self.tried.iter().rfind(before);
        seen.is_none_or(|tried| !tried.kept && tried.kept_then < self.kept)
    }

    /// Records that a remedy is tested from now on, at `level`; returns its number.
    fn begin(&mut self, proposal: &Proposal, level: f64, beside: Vec<String>) -> Outcome<usize> {
        let begun = |record: &&Record| matches!(record, Record::Remedy { .. });
        let remedy = self.log.records().iter().filter(begun).count();
        self.log.add(Record::Remedy {
            remedy,
            rule: proposal.rule.clone(),
            changes: proposal.changes.clone(),
            level,
            beside,
        })?;
        Ok(remedy)
    }

    /// The proposals of the rules for the hosts as last read.
    fn proposals(&mut self, sample: &Sample) -> Outcome<Proposals> {
        let diagnosis: Diagnosis =
            (self.stack.ends).diagnosis(Some(sample), self.options.owns_shapers);
        let permit = self.permit();
        let proposals = match &self.options.source {
            Source::Given(given) => sift(self.as_of_now(given), permit),
            Source::Rules | Source::Search(_) => propose(&diagnosis.findings, permit),
        };
        self.log.add(Record::Diagnosis(Box::new(diagnosis)))?;
        for proposal in &proposals.held_back {
            let same = |other: &Proposal| other.changes == proposal.changes;
            if !self.held_back.iter().any(same) {
                self.held_back.push(proposal.clone());
                self.log.add(Record::HeldBack {
                    rule: proposal.rule.clone(),
                    changes: proposal.changes.clone(),
                    class: proposal.class,
                })?;
            }
        }
        Ok(proposals)
    }

    /// What may be tried between these ends.
    fn permit(&self) -> Permit {
        Permit {
            shared_kernel: self.stack.ends.shared_kernel(),
            spares_machine: self.options.spares_machine,
            ..Permit::default()
        }
    }

    /// The specified changes, from the current values of the settings; a setting with the right value is not a change.
    fn as_of_now(&self, given: &[Proposal]) -> Vec<Proposal> {
        let mut given = given.to_vec();
        for proposal in &mut given {
            proposal.changes.retain_mut(|EndChange { end, change }| {
                if let Some(now) = current(self.stack.ends.host(*end), &change.setting).value() {
                    change.from = now.clone();
                }
                !change.to.is_met_by(&change.from)
            });
        }
        given
    }

    /// Several trials of the present state.
    fn repeat(&mut self, what: &str, record: fn(Box<Sample>) -> Record) -> Outcome<Vec<Sample>> {
        let bar = self.say.progress(u64::from(REPEATS), what);
        let mut rates = Vec::new();
        let mut samples = Vec::new();
        for _ in 0..REPEATS {
            let sample = self.trial()?;
            if let Some(rate) = rate_of(&sample) {
                rates.push(rate.as_f64());
                bar.step(&rate.to_string());
            }
            self.log.add(record(Box::new(sample.clone())))?;
            samples.push(sample);
        }
        bar.done(&rates_in_words(&rates));
        Ok(samples)
    }

    /// Tries what limits the present state, if its trials are of a kind that can show it.
    fn find_limit(&mut self, samples: &[Sample], after: bool) -> Outcome<()> {
        let sample = middle_of(samples)?;
        let rate = rate_of(&sample).filter(|_| applies_to(&sample.spec).is_ok());
        let Some(rate) = rate else { return Ok(()) };
        let suggested = why::suggested(self.stack.ends.view(), &sample, rate);
        // Half before any change, half after.
        let budget = Nanoseconds::new(why::BUDGET.as_u64() / 2);
        let found = why::find(self.stack.ends, &sample, rate, &suggested, budget, self.say)?;
        self.log.add(Record::Interventions {
            after,
            tried: found.tried,
        })
    }

    fn trial(&mut self) -> Outcome<Sample> {
        let mut sample = self.stack.ends.trial(&self.spec)?;
        let (local, remote) = (
            self.stack.ends.host(End::Local),
            self.stack.ends.host(End::Remote),
        );
        sample.flags = trust::flags(&sample, local, remote, None, None);
        sample.flags.extend(settling_flag(&sample));
        Ok(sample)
    }

    fn with_changes(&mut self, changes: &[EndChange]) -> Outcome<Sample> {
        let spec = self.spec.clone();
        self.apply(changes)?;
        let sample = self.trial();
        let undone = self.stack.undo_newest();
        self.spec = spec;
        let sample = sample?;
        undone?;
        Ok(sample)
    }

    /// Applies the changes on both ends, or none of them, and those of the trial to the next trials.
    fn apply(&mut self, changes: &[EndChange]) -> Outcome<()> {
        let mut spec = self.spec.clone();
        change_trial(&mut spec, changes)?;
        self.stack.apply(changes)?;
        self.spec = spec;
        Ok(())
    }

    /// Undoes what is open, and returns the settings that were changed by others than this session.
    fn undo_everything(&mut self) -> Outcome<Vec<(End, SettingKey)>> {
        self.stack.undo_everything(found(self.log.records()))
    }

    /// Restores or commits, and compares both hosts with their baseline.
    fn finish(&mut self) -> Outcome<()> {
        let keeps = !self.options.undo && !self.stack.is_empty();
        let moved = if keeps {
            self.stack.ends.read_again()?;
            let found = found(self.log.records());
            found.map_or(Ok(Vec::new()), |found| self.stack.moved(found))?
        } else {
            self.undo_everything()?
        };
        moved_in_words(&moved).for_each(|words| self.say.note(&words));
        // Recorded before it is done: a run whose record cannot be completed changes nothing.
        self.log.add(Record::Ended {
            restored: moved.is_empty(),
            kept: keeps,
        })?;
        if keeps {
            self.stack.keep()?;
        }
        Ok(())
    }
}

/// The baseline of both hosts.
fn found(records: &[Record]) -> Option<(&Host, &Host)> {
    match records.first() {
        Some(Record::Hosts { local, remote }) => Some((local, remote)),
        _ => None,
    }
}

/// The trial with the median rate; of trials without data, the last.
fn middle_of(samples: &[Sample]) -> Outcome<Sample> {
    median_sample(&samples.iter().collect::<Vec<_>>())
        .or(samples.last())
        .cloned()
        .ok_or_else(|| Stop::new(Code::Bug, "no trial completed"))
}
