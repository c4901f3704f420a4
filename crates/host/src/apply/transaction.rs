//! A transaction: changes that are all made, or all rolled back. The outcome of every failure, panic and crash is the
//! old state; only [`Transaction::commit`] makes the new one permanent.
//!
//! For each change: read, record the intent on stable storage, write, read back, compare, record. The reverter (which
//! outlives this process), the lock (against other writers) and the decision to commit are outside [`Transaction`].

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use linerate_model::known::{Cause, Gap, Known};
use linerate_model::plan::{Change, Plan};
use linerate_model::setting::{SettingKey, Value};

use super::effects::is_asked_of_one_queue;
use super::journal::{Journal, JournalError, JournalOptions};
use super::machine::Machine;
use super::records::{Before, Disturbed, Header, Record, Step, Unrestored, UnrestoredWhy};
use super::restore::{self, Undone};
use super::settings::{agrees, for_good, one_way};
use super::subject::Subject;
use super::write_error::{WriteError, not_restorable, not_supported};

/// The command that completes a rollback.
const RECOVER: &str = "linerate tune recover";

/// Why one step of a plan failed.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// A setting does not have the value that the plan expects.
    #[error("cannot change {setting}: it is {found}, the plan expects {expected}")]
    Conflict {
        /// The setting.
        setting: SettingKey,
        /// The current value.
        found: Box<Value>,
        /// The expected value.
        expected: Box<Value>,
    },
    /// A setting cannot be read.
    #[error("cannot read {setting}: {gap}")]
    Unknown {
        /// The setting.
        setting: SettingKey,
        /// Why not.
        gap: Box<Gap>,
    },
    /// The kernel refused a write.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The kernel accepted a write, but the setting has another value.
    #[error(
        "cannot set {setting} to `{wrote}`: the kernel accepted it, but the value is `{found}`"
    )]
    ReadBack {
        /// The setting.
        setting: SettingKey,
        /// What was written.
        wrote: Box<Value>,
        /// The current value.
        found: Box<Value>,
    },
    /// A setting had its new value, but has another one after all changes.
    #[error(
        "{setting} was set to `{wrote}`, but after all changes it is `{found}`; {}",
        blame(.later.as_deref())
    )]
    NotHeld {
        /// The setting.
        setting: SettingKey,
        /// What was written.
        wrote: Box<Value>,
        /// The current value.
        found: Box<Value>,
        /// The later change of the plan that caused it, if known.
        later: Option<Box<SettingKey>>,
    },
    /// The undo journal cannot be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

fn blame(later: Option<&SettingKey>) -> String {
    match later {
        Some(later) => format!("the later change of {later} modified it"),
        None => "no later change affects it, so another program may have changed it".to_owned(),
    }
}

/// Why a plan was not applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// Nothing was changed.
    #[error("{cause}; nothing was changed")]
    Untouched {
        /// The cause.
        cause: Box<StepError>,
    },
    /// Something was changed and rolled back.
    #[error("{cause}; all changes were rolled back{}", also(.left))]
    Restored {
        /// The cause.
        cause: Box<StepError>,
        /// Settings that others changed meanwhile, or that are gone.
        left: Vec<Unrestored>,
    },
    /// Something was changed and could not be rolled back completely.
    #[error("not all changes could be rolled back{}; finish with `{command}`", also(.left))]
    RestoreIncomplete {
        /// The cause; none if the undo itself was requested.
        #[source]
        cause: Option<Box<StepError>>,
        /// Settings that do not have their old value.
        left: Vec<Unrestored>,
        /// The command that completes the rollback once the cause is gone.
        command: String,
    },
    /// The changes could not be committed; they were rolled back.
    #[error("cannot commit: {cause}; all changes were rolled back{}", also(.left))]
    NotCommitted {
        /// Why not.
        cause: JournalError,
        /// Settings that others changed meanwhile, or that are gone.
        left: Vec<Unrestored>,
    },
}

fn also(left: &[Unrestored]) -> String {
    left.iter()
        .fold(String::new(), |text, left| format!("{text}; {left}"))
}

impl ApplyError {
    fn step(&self) -> Option<&StepError> {
        match self {
            Self::Untouched { cause } | Self::Restored { cause, .. } => Some(cause),
            Self::RestoreIncomplete { cause, .. } => cause.as_deref(),
            Self::NotCommitted { .. } => None,
        }
    }

    /// Whether this kernel, device or linerate cannot do it.
    pub fn is_unsupported(&self) -> bool {
        match self.step() {
            Some(StepError::Write(error)) => error.is_unsupported(),
            Some(StepError::Unknown { gap, .. }) => gap.cause == Cause::Absent,
            _ => false,
        }
    }

    /// The operating system's reason, if the journal could not be written.
    pub fn journal_kind(&self) -> Option<io::ErrorKind> {
        match (self, self.step()) {
            (Self::NotCommitted { cause, .. }, _) => cause.io_kind(),
            (_, Some(StepError::Journal(error))) => error.io_kind(),
            _ => None,
        }
    }

    /// Whether more privileges would have helped.
    pub fn is_permission(&self) -> bool {
        match self.step() {
            Some(StepError::Write(error)) => error.is_permission(),
            Some(StepError::Unknown { gap, .. }) => gap.cause == Cause::Denied,
            _ => false,
        }
    }
}

/// A setting that another process changed after linerate set it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignChange {
    /// The setting.
    pub setting: SettingKey,
    /// The value that linerate set.
    pub gave: Value,
    /// The current value.
    pub found: Known<Value>,
}

impl fmt::Display for ForeignChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            setting,
            gave,
            found,
        } = self;
        match found {
            Known::Value(found) => write!(
                f,
                "{setting} is {found}: another program changed it after it was set to {gave}, so \
                 it is not restored"
            ),
            Known::Unknown(gap) => write!(
                f,
                "{setting} was set to {gave} and can no longer be read: {gap}"
            ),
        }
    }
}

/// Undecided changes to one machine. Dropping it rolls them back.
pub struct Transaction<M: Machine> {
    machine: M,
    /// None once the transaction is decided.
    journal: Option<Journal>,
    steps: Vec<Step>,
}

impl<M: Machine> fmt::Debug for Transaction<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("journal", &self.journal)
            .field("steps", &self.steps)
            .finish_non_exhaustive()
    }
}

impl<M: Machine> Transaction<M> {
    /// Opens a journal below the directory `state`. Nothing is changed; without a journal nothing can be.
    pub fn begin(
        machine: M,
        state: &Path,
        header: &Header,
        beside: &JournalOptions,
    ) -> Result<Self, JournalError> {
        Ok(Self {
            machine,
            journal: Some(Journal::create(state, header, beside)?),
            steps: Vec::new(),
        })
    }

    /// Its ID: the name below `<state>/txn`.
    pub fn id(&self) -> String {
        self.journal.as_ref().map_or_else(String::new, Journal::id)
    }

    /// Makes the changes of `plan` in order. On any failure everything that this transaction changed is rolled back
    /// and the transaction is over, unless the error is [`ApplyError::Untouched`].
    pub fn apply(&mut self, plan: &Plan) -> Result<(), ApplyError> {
        self.check(plan).map_err(|cause| ApplyError::Untouched {
            cause: Box::new(cause),
        })?;
        let writes_before = self.steps.len();
        let mut changes = plan.changes.iter();
        let made = changes.try_for_each(|change| self.step(change));
        let Err(cause) = made.and_then(|()| self.check_held(plan)) else {
            return Ok(());
        };
        let cause = Box::new(cause);
        if self.steps.len() == writes_before {
            return Err(ApplyError::Untouched { cause });
        }
        let undone = self.take_back("a change failed");
        Err(if undone.is_settled() {
            let left = undone.left;
            ApplyError::Restored { cause, left }
        } else {
            incomplete(Some(cause), undone)
        })
    }

    /// Whether every setting has the value that the plan expects.
    fn check(&self, plan: &Plan) -> Result<(), StepError> {
        for (index, Change { setting, from, .. }) in plan.changes.iter().enumerate() {
            let earlier = plan.changes[..index].iter();
            let made = setting.when_made(earlier.map(|one| (&one.setting, &one.to)));
            let found = match (self.read(setting), made) {
                // It is compared again once its interface exists.
                (Err(StepError::Unknown { gap, .. }), Some(made))
                    if gap.cause == Cause::Absent && made == *from =>
                {
                    continue;
                }
                (found, _) => found?,
            };
            if found != *from {
                return Err(conflict(setting, found, from));
            }
        }
        Ok(())
    }

    /// Whether every setting still has its new value: each was read back after its write, but a later change may have
    /// altered it.
    fn check_held(&self, plan: &Plan) -> Result<(), StepError> {
        for (index, Change { setting, to, .. }) in plan.changes.iter().enumerate() {
            let found = match self.read(setting) {
                // A port without a link does not report everything, and a stopped irqbalance nothing.
                Err(StepError::Unknown { gap, .. }) if gap.cause != Cause::Absent => continue,
                found => found?,
            };
            let later = &plan.changes[index + 1..];
            let is_asked = |one: &Change| is_asked_of_one_queue(setting, &found, one);
            if !agrees(setting, to, &found) && !later.iter().any(is_asked) {
                return Err(StepError::NotHeld {
                    setting: setting.clone(),
                    wrote: Box::new(to.clone()),
                    later: self.moved_by(setting, &found, later),
                    found: Box::new(found),
                });
            }
        }
        Ok(())
    }

    /// The change that set a setting to `found`: observed, or known to be able to.
    fn moved_by(
        &self,
        setting: &SettingKey,
        found: &Value,
        later: &[Change],
    ) -> Option<Box<SettingKey>> {
        let is_later = |step: &&Step| {
            let mut later = later.iter();
            later.any(|change| change.setting == step.change.setting)
        };
        let was_seen = |step: &&Step| {
            let disturbed = step.outcome.iter().flat_map(|(_, disturbed)| disturbed);
            let mut own = disturbed.filter(|one| one.setting == *setting);
            own.any(|one| one.became.as_ref() == Some(found))
        };
        let is_able = |step: &&Step| {
            let mut closure = step.closure.iter();
            closure.any(|before| before.setting == *setting)
        };
        let steps = || self.steps.iter().rev().filter(is_later);
        let step = steps().find(was_seen).or_else(|| steps().find(is_able));
        step.map(|step| Box::new(step.change.setting.clone()))
    }

    fn read(&self, setting: &SettingKey) -> Result<Value, StepError> {
        match self.machine.read(setting) {
            Known::Value(value) => Ok(value),
            Known::Unknown(gap) => Err(StepError::Unknown {
                setting: setting.clone(),
                gap: Box::new(gap),
            }),
        }
    }

    fn step(&mut self, change: &Change) -> Result<(), StepError> {
        let Change { setting, from, to } = change;
        let found = self.read(setting)?;
        // Before it is up, a device has no qdisc.
        let made = self
            .steps
            .iter()
            .map(|step| (&step.change.setting, &step.change.to));
        let is_made = setting
            .when_made(made)
            .is_some_and(|made| made.is_met_by(from));
        if found != *from && !is_made && !self.is_our_effect(setting, &found) {
            return Err(conflict(setting, found, from));
        }
        if found == *to {
            // A side effect of an earlier change of this plan; its undo reverts it too.
            return Ok(());
        }
        if let Some(why) = for_good(setting, to) {
            return Err(not_supported(setting, why).into());
        }
        let closure = self.closure(setting);
        let disturbed = closure.iter().map(|before| (&before.setting, &before.from));
        let mut lost = std::iter::once((setting, &found)).chain(disturbed);
        if let Some(why) = lost.find_map(|(setting, from)| one_way(setting, from)) {
            return Err(not_supported(setting, why).into());
        }
        if let Some(why) = self.machine.lost_with(setting, to) {
            return Err(not_restorable(setting, to, &why).into());
        }
        let change = Change {
            from: found,
            ..change.clone()
        };
        let seq = self.steps.len();
        let step = Step {
            change: change.clone(),
            subjects: self.subjects(setting, &closure),
            closure,
            outcome: None,
        };
        self.record(&step.intent(seq))?;
        let subject = step.subject_of(setting).cloned();
        self.steps.push(step);
        self.machine.write_to(subject.as_ref(), setting, to)?;
        let readback = self.read(setting)?;
        // The old value is not a rounding of the new one: the write had no effect.
        if readback == change.from || !agrees(setting, to, &readback) {
            return Err(StepError::ReadBack {
                setting: setting.clone(),
                wrote: Box::new(to.clone()),
                found: Box::new(readback),
            });
        }
        let disturbed = self.disturbed(&self.steps[seq].closure);
        self.steps[seq].done(readback.clone(), disturbed.clone());
        self.record(&Record::Done {
            seq,
            readback,
            disturbed,
        })?;
        Ok(())
    }

    fn record(&mut self, record: &Record) -> Result<(), JournalError> {
        self.journal
            .as_mut()
            .ok_or(JournalError::Over)?
            .append(record)
    }

    fn is_our_effect(&self, setting: &SettingKey, found: &Value) -> bool {
        let outcomes = self.steps.iter().filter_map(|step| step.outcome.as_ref());
        outcomes
            .flat_map(|(_, disturbed)| disturbed)
            .any(|one| one.setting == *setting && one.became.as_ref() == Some(found))
    }

    fn closure(&self, setting: &SettingKey) -> Vec<Before> {
        let keys = self.machine.disturbed_by(setting).into_iter();
        keys.filter_map(|setting| match self.machine.read(&setting) {
            Known::Value(from) => Some(Before { setting, from }),
            // A setting that cannot be read cannot be restored either.
            Known::Unknown(_) => None,
        })
        .collect()
    }

    /// The subjects of a setting and of its side effects.
    fn subjects(&self, setting: &SettingKey, closure: &[Before]) -> Vec<Subject> {
        let mut subjects: Vec<Subject> = Vec::new();
        for key in std::iter::once(setting).chain(closure.iter().map(|before| &before.setting)) {
            if !subjects.iter().any(|subject| subject.has(key)) {
                subjects.extend(self.machine.subject(key));
            }
        }
        subjects
    }

    fn disturbed(&self, closure: &[Before]) -> Vec<Disturbed> {
        let now = closure.iter().map(|Before { setting, from }| {
            let became = self.machine.read(setting).value().cloned();
            (became.as_ref() != Some(from)).then(|| Disturbed {
                setting: setting.clone(),
                became,
            })
        });
        now.flatten().collect()
    }

    /// The settings changed by the transaction so far, with old and new values.
    pub fn changes(&self) -> impl Iterator<Item = &Change> {
        self.steps.iter().map(|step| &step.change)
    }

    /// Settings that no longer have their new value: another process has changed them since.
    pub fn moved(&self) -> Vec<ForeignChange> {
        let moved = |(index, step): (usize, &Step)| {
            let (readback, _) = step.outcome.as_ref()?;
            let Change { setting, to, .. } = &step.change;
            let found = match step.current(setting, &self.machine) {
                Ok(current) => self.machine.read(&current),
                Err(UnrestoredWhy::Failed { reason }) => {
                    Known::unknown(Cause::Unreadable, setting.to_string(), &reason)
                }
                Err(_) => {
                    Known::unknown(Cause::Absent, setting.to_string(), "its interface is gone")
                }
            };
            let later = &self.steps[index + 1..];
            // A later change of the same plan may have set it, and was verified.
            let holds = |found: &Value| {
                let is_asked = |one: &Step| is_asked_of_one_queue(setting, found, &one.change);
                found == readback || agrees(setting, to, found) || later.iter().any(is_asked)
            };
            (!found.value().is_some_and(holds)).then(|| ForeignChange {
                setting: setting.clone(),
                gave: readback.clone(),
                found,
            })
        };
        self.steps.iter().enumerate().filter_map(moved).collect()
    }

    /// Commits the changes. They can still be rolled back with [`super::undo_committed`].
    pub fn commit(mut self) -> Result<(), ApplyError> {
        match self.record(&Record::Commit) {
            Ok(()) => {
                self.journal = None;
                Ok(())
            }
            Err(cause) => {
                let undone = self.take_back("the commit could not be recorded");
                Err(if undone.is_settled() {
                    let left = undone.left;
                    ApplyError::NotCommitted { cause, left }
                } else {
                    incomplete(Some(Box::new(cause.into())), undone)
                })
            }
        }
    }

    /// Rolls the changes back. Settings that others changed since are returned and kept.
    pub fn undo(mut self) -> Result<Undone, ApplyError> {
        let undone = self.take_back("undone");
        if undone.is_settled() {
            Ok(undone)
        } else {
            Err(incomplete(None, undone))
        }
    }

    /// Restores everything and closes the journal; an incomplete rollback leaves it open.
    fn take_back(&mut self, why: &str) -> Undone {
        let undone = restore::undo(&self.steps, &self.machine);
        if let Some(mut journal) = self.journal.take() {
            close(&mut journal, &undone, why);
            if undone.left.is_empty() {
                journal.remove();
            }
        }
        if undone.is_settled() {
            self.steps.clear();
        }
        undone
    }

    /// Ends like a killed process: nothing is rolled back, the lock is released.
    #[cfg(test)]
    pub(super) fn die(mut self) {
        self.journal = None;
    }
}

/// Records the outcome of a rollback. If that fails the journal stays open, and a recovery finds every setting as it
/// was.
pub(super) fn close(journal: &mut Journal, undone: &Undone, why: &str) {
    let record = if undone.is_settled() {
        Record::Aborted {
            why: why.to_owned(),
            left: undone.left.clone(),
        }
    } else {
        Record::Released
    };
    let _ = journal.append(&record);
}

fn incomplete(cause: Option<Box<StepError>>, undone: Undone) -> ApplyError {
    ApplyError::RestoreIncomplete {
        cause,
        left: undone.left,
        command: RECOVER.to_owned(),
    }
}

fn conflict(setting: &SettingKey, found: Value, expected: &Value) -> StepError {
    StepError::Conflict {
        setting: setting.clone(),
        found: Box::new(found),
        expected: Box::new(expected.clone()),
    }
}

impl<M: Machine> Drop for Transaction<M> {
    fn drop(&mut self) {
        if self.journal.is_some() {
            // The machine may have panicked. A second panic would abort the process; the journal then stays open, and
            // `recover` does the rest.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                self.take_back("dropped without commit or rollback")
            }));
        }
    }
}
