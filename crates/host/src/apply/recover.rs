//! After a crash: rolls back every undecided transaction. Also lists the journals.
//!
//! It can be run at any time, concurrently and repeatedly: a journal whose owner runs, or that another process has
//! locked, is left alone, and restoring is compare-and-swap. A transaction with nothing to report is removed; the
//! listed ones are open, committed, or not completely restored.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use linerate_model::plan::Change;

use super::identity::{NetnsIdentity, Owner};
use super::journal::{Ending, Journal, JournalError, JournalOptions, Story, id_of, transactions};
use super::kept::{KeptError, forget, kept_set, tidy};
use super::netns::Reach;
use super::records::{Header, Record, Step, Unrestored, UnrestoredWhy};
use super::restore::{self, Undone};
use super::transaction::close;
use crate::private_folder::PrivateFolder;

/// The environment of a recovery.
pub struct Surroundings<'a> {
    /// This boot.
    pub boot_id: &'a str,
    /// Whether a process still runs.
    pub is_alive: &'a dyn Fn(&Owner) -> bool,
    /// Opens the settings of a namespace.
    pub reach: &'a dyn Fn(&NetnsIdentity) -> Reach,
    /// How long to wait for a reverter or another recovery that works on the same journal.
    pub patience: Duration,
    /// What accompanies the journals.
    pub beside: &'a JournalOptions,
}

impl std::fmt::Debug for Surroundings<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings")
            .field("boot_id", &self.boot_id)
            .finish_non_exhaustive()
    }
}

/// The outcome for one transaction.
#[derive(Debug)]
pub struct Recovered {
    /// The transaction.
    pub id: String,
    /// What was done.
    pub outcome: Outcome,
}

/// The result of a recovery for a transaction.
#[derive(Debug)]
pub enum Outcome {
    /// Rolled back; `left` holds settings that others changed, or that are gone.
    Restored(Undone),
    /// Some settings could not be restored: run it again once the cause is gone.
    Incomplete(Undone),
    /// Nothing had to be restored, for this reason.
    NothingLeft(&'static str),
    /// Its owner is running.
    OwnerAlive(Owner),
    /// Another process works on it, and did not finish in time.
    Busy(String),
    /// It cannot be handled here and now.
    LeftAlone(String),
}

impl Outcome {
    /// The result of an undo.
    pub(super) fn of(undone: Undone) -> Self {
        if undone.is_settled() {
            Self::Restored(undone)
        } else {
            Self::Incomplete(undone)
        }
    }
}

/// Its changes ended with the boot.
const OTHER_BOOT: &str = "the machine was rebooted since, runtime settings are gone";
/// Its changes ended with their namespace.
const NETNS_GONE: &str = "its network namespace is gone, nothing is left to restore";

/// Rolls back undecided transactions of ended processes below the directory `state`, newest first: a later one may
/// depend on an earlier one's values. An interrupted undo is completed, also for persistent transactions.
pub fn recover(state: &Path, around: &Surroundings<'_>) -> Result<Vec<Recovered>, JournalError> {
    let found = transactions_of(state, around)?;
    let mut recovered = Vec::new();
    let begun: BTreeSet<String> = found.iter().filter_map(FoundJournal::undo_begun).collect();
    let forgotten = begun
        .iter()
        .map(|id| forget(state, Some(id), around.beside).map(drop));
    let mut boot_files = forgotten.chain([tidy(state, around.beside)]);
    if let Some(error) = boot_files.find_map(Result::err) {
        recovered.push(Recovered {
            id: "boot".to_owned(),
            outcome: Outcome::LeftAlone(error.to_string()),
        });
        // Persistent changes must not be undone here: the next boot would apply them again.
        return Ok(recovered);
    }
    for FoundJournal { folder, story } in found.into_iter().rev() {
        let id = id_of(&folder);
        let outcome = match story {
            Ok(story) => recover_one(&folder, &story, &begun, around),
            Err(error) => Some(Outcome::LeftAlone(error.to_string())),
        };
        recovered.extend(outcome.map(|outcome| Recovered { id, outcome }));
    }
    Ok(recovered)
}

/// The transaction's visible ID: that of the one in `folder`, or of the persistent one that it applied.
fn subject(folder: &Path, story: &Story) -> String {
    story.header.of.clone().unwrap_or_else(|| id_of(folder))
}

fn recover_one(
    folder: &Path,
    story: &Story,
    undo_begun: &BTreeSet<String>,
    around: &Surroundings<'_>,
) -> Option<Outcome> {
    let other_boot = story.header.boot_id != around.boot_id;
    let is_undone = |story: &Story| match story.ending {
        Ending::Open | Ending::Released => true,
        Ending::Committed => undo_begun.contains(&subject(folder, story)),
        Ending::Aborted { .. } => false,
    };
    match story.ending {
        // It belongs to changes of another host alone, which this host's boots are nothing to.
        Ending::Committed if other_boot && story.steps.is_empty() => return None,
        Ending::Committed | Ending::Aborted { .. } if other_boot => {
            // Its changes are gone from the machine and cannot be undone: only files are left.
            let _ = fs::remove_dir_all(folder);
            return None;
        }
        Ending::Open if !other_boot && (around.is_alive)(&story.header.owner) => {
            return Some(Outcome::OwnerAlive(story.header.owner));
        }
        _ if !is_undone(story) => return None,
        _ => {}
    }
    // A reverter or another recovery may be working on it, and will finish soon.
    let (journal, story) = match Journal::take_over(folder, around.patience, around.beside) {
        Ok(opened) => opened,
        Err(error) if error.is_absent() => return None,
        Err(error @ JournalError::Busy { .. }) => return Some(Outcome::Busy(error.to_string())),
        Err(error) => return Some(Outcome::LeftAlone(error.to_string())),
    };
    // Otherwise another recovery was faster.
    is_undone(&story).then(|| take_back(journal, &story, around, "rolled back after a crash"))
}

fn take_back(journal: Journal, story: &Story, around: &Surroundings<'_>, why: &str) -> Outcome {
    let nothing_left = |mut journal: Journal, why: &'static str| {
        close(&mut journal, &Undone::default(), why);
        journal.remove();
        Outcome::NothingLeft(why)
    };
    if story.header.boot_id != around.boot_id {
        return nothing_left(journal, OTHER_BOOT);
    }
    match (around.reach)(&story.header.netns) {
        Reach::Gone => match undo_on_survivors(&story.steps, around) {
            None => nothing_left(journal, NETNS_GONE),
            Some(undone) => end(journal, undone, why),
        },
        Reach::Unreachable(reason) => Outcome::LeftAlone(reason),
        Reach::Machine(machine) => end(journal, restore::undo(&story.steps, &machine), why),
    }
}

fn end(mut journal: Journal, undone: Undone, why: &str) -> Outcome {
    close(&mut journal, &undone, why);
    if undone.left.is_empty() {
        journal.remove();
    }
    Outcome::of(undone)
}

/// Undoes the steps on devices that have left their namespace before it ended: physical devices move to the initial
/// one (`default_device_exit_net()`, net/core/dev.c) with all their settings. None if there are no such devices.
fn undo_on_survivors(steps: &[Step], around: &Surroundings<'_>) -> Option<Undone> {
    let survivors: Vec<Step> = steps.iter().filter_map(Step::in_another_netns).collect();
    if survivors.is_empty() {
        return None;
    }
    let here = NetnsIdentity::current().ok()?;
    let Reach::Machine(machine) = (around.reach)(&here) else {
        return None;
    };
    let undone = restore::undo(&survivors, &machine);
    let is_gone = |left: &Unrestored| left.why == UnrestoredWhy::Gone;
    let nothing = undone.restored.is_empty() && undone.left.iter().all(is_gone);
    (!nothing).then_some(undone)
}

/// Rolls back a committed transaction: `id`, or the newest one, including what boots applied if it is persistent; and
/// removes its persistence. Empty if there is none.
pub fn undo_committed(
    state: &Path,
    id: Option<&str>,
    around: &Surroundings<'_>,
) -> Result<Vec<Recovered>, JournalError> {
    let mut committed = Vec::new();
    for FoundJournal { folder, story } in transactions_of(state, around)?.into_iter().rev() {
        match story {
            Ok(story) if story.ending == Ending::Committed => {
                committed.push((subject(&folder, &story), folder, story));
            }
            Err(error) if id.is_some_and(|id| id == id_of(&folder)) => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    let kept = || -> Option<String> {
        let (set, _) = kept_set(state).ok().flatten()?;
        set.kept.last().map(|kept| kept.id.clone())
    };
    let newest = || committed.first().map(|(subject, ..)| subject.clone());
    let Some(meant) = id.map(ToOwned::to_owned).or_else(newest).or_else(kept) else {
        return Ok(Vec::new());
    };
    let mut opened = Vec::new();
    let mut recovered = Vec::new();
    for (subject, folder, story) in committed {
        let name = id_of(&folder);
        if subject != meant && name != meant {
            continue;
        }
        if story.header.boot_id == around.boot_id
            && let Reach::Unreachable(reason) = (around.reach)(&story.header.netns)
        {
            let outcome = Outcome::LeftAlone(reason);
            return Ok(vec![Recovered { id: name, outcome }]);
        }
        // A recovery may be working on it, and will finish soon.
        let journal = Journal::take_over(&folder, around.patience, around.beside)?;
        opened.push((name, journal));
    }
    // If it is killed after the first of these, `recover` completes the undo.
    for (_, (journal, _)) in &mut opened {
        journal.append(&Record::Released)?;
    }
    let left_alone = |id: &str, error: &KeptError| Recovered {
        id: id.to_owned(),
        outcome: Outcome::LeftAlone(error.to_string()),
    };
    match forget(state, Some(&meant), around.beside) {
        Ok(forgotten) if opened.is_empty() => {
            recovered.extend(forgotten.into_iter().map(|id| Recovered {
                id,
                outcome: Outcome::NothingLeft("no longer persistent"),
            }));
        }
        Ok(_) => {}
        Err(error) => return Ok(vec![left_alone(&meant, &error)]),
    }
    for (id, (journal, story)) in opened {
        let outcome = take_back(journal, &story, around, "undone after its commit");
        recovered.push(Recovered { id, outcome });
    }
    Ok(recovered)
}

/// One transaction according to its journal.
#[derive(Debug)]
pub struct Listed {
    /// Its name.
    pub id: String,
    /// Its directory.
    pub folder: PathBuf,
    /// The contents of the journal, or why it cannot be read.
    pub journal: Result<JournalContents, JournalError>,
}

/// The contents of a journal.
#[derive(Debug)]
pub struct JournalContents {
    /// Owner, namespace and time.
    pub header: Header,
    /// The changes that were made or begun, in order.
    pub changes: Vec<Change>,
    /// Its outcome.
    pub ending: Ending,
}

/// Every transaction below the directory `state`, oldest first.
pub fn journal_listing(state: &Path) -> Result<Vec<Listed>, JournalError> {
    let (found, _) = find(state)?;
    let listed = found
        .into_iter()
        .map(|FoundJournal { folder, story }| Listed {
            id: id_of(&folder),
            journal: story.map(|story| JournalContents {
                header: story.header,
                changes: story.steps.into_iter().map(|step| step.change).collect(),
                ending: story.ending,
            }),
            folder,
        });
    Ok(listed.collect())
}

/// The directory of a transaction, and the contents of its journal.
struct FoundJournal {
    folder: PathBuf,
    story: Result<Story, JournalError>,
}

impl FoundJournal {
    /// Its [`Header::sequence`]. One that cannot be read is not undone, so its position does not matter.
    fn place(&self) -> (u64, String) {
        let sequence = self.story.as_ref().map_or(0, |story| story.header.sequence);
        (sequence, id_of(&self.folder))
    }

    /// The transaction whose undo it started.
    fn undo_begun(&self) -> Option<String> {
        let story = self.story.as_ref().ok()?;
        let begun = story.was_committed && story.ending == Ending::Released;
        begun.then(|| subject(&self.folder, story))
    }
}

/// The transactions, oldest first; unnamed directories of ended processes are removed.
fn transactions_of(
    state: &Path,
    around: &Surroundings<'_>,
) -> Result<Vec<FoundJournal>, JournalError> {
    let (found, nameless) = find(state)?;
    for folder in nameless {
        if nameless_owner(&folder).is_some_and(|owner| !(around.is_alive)(&owner)) {
            // It never reached a change. A failed removal is tried again next time.
            let _ = fs::remove_dir_all(&folder);
        }
    }
    Ok(found)
}

/// The transactions, oldest first, and the unnamed directories.
fn find(state: &Path) -> Result<(Vec<FoundJournal>, Vec<PathBuf>), JournalError> {
    let path = transactions(state);
    let names = match PrivateFolder::open(&path).and_then(|all| all.names()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
        Err(source) => return Err(JournalError::Read { path, source }),
        Ok(names) => names,
    };
    let (named, nameless): (Vec<PathBuf>, Vec<PathBuf>) = names
        .iter()
        .map(|name| path.join(name))
        .partition(|folder| !id_of(folder).starts_with('.'));
    let read = named.into_iter().filter_map(|folder| {
        let story = Story::read(&folder);
        // It was removed between listing and reading: its owner has finished.
        let is_gone = story.as_ref().is_err_and(JournalError::is_absent);
        (!is_gone).then_some(FoundJournal { folder, story })
    });
    let mut found: Vec<FoundJournal> = read.collect();
    found.sort_by_cached_key(FoundJournal::place);
    Ok((found, nameless))
}

/// `.<millis>-<pid>-<count>-<start ticks>`, the temporary name from `Journal::create`.
fn nameless_owner(folder: &Path) -> Option<Owner> {
    let name = id_of(folder);
    let parts: Vec<&str> = name.split('-').collect();
    let [_, pid, _, start_ticks] = parts.as_slice() else {
        return None;
    };
    Some(Owner {
        pid: pid.parse().ok()?,
        start_ticks: start_ticks.parse().ok()?,
    })
}
