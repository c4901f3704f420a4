//! After a crash: every transaction that nobody decided is taken back. And what the journals tell.
//!
//! It can be run at any time, by several at once, and again: a journal whose owner lives, or that
//! another process has locked, is left alone, and putting back is compare-and-swap. A transaction that
//! left nothing to tell is removed; what is listed is open, committed, or not wholly restored.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use linerate_model::plan::Change;

use super::identity::{NetnsIdentity, Owner};
use super::journal::{
    Beside, Ending, Header, Journal, JournalError, Record, Story, id_of, transactions,
};
use super::netns::Reach;
use super::restore::{self, Undone};
use super::transaction::close;

/// What recovery needs to know of the world.
pub struct Surroundings<'a> {
    /// This boot.
    pub boot_id: &'a str,
    /// Whether a process still runs.
    pub is_alive: &'a dyn Fn(&Owner) -> bool,
    /// The way to a namespace's settings.
    pub reach: &'a dyn Fn(&NetnsIdentity) -> Reach,
    /// What stands beside the journals.
    pub beside: &'a Beside,
}

impl std::fmt::Debug for Surroundings<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings")
            .field("boot_id", &self.boot_id)
            .finish_non_exhaustive()
    }
}

/// What became of one transaction.
#[derive(Debug)]
pub struct Recovered {
    /// The transaction.
    pub id: String,
    /// What was done.
    pub outcome: Outcome,
}

/// What recovery did with a transaction.
#[derive(Debug)]
pub enum Outcome {
    /// It was taken back; `left` holds what is somebody else's or gone.
    Restored(Undone),
    /// Some settings could not be put back: run it again when the cause is gone.
    Incomplete(Undone),
    /// Nothing was left to restore, with the reason.
    NothingLeft(&'static str),
    /// Its owner is at work.
    OwnerAlive(Owner),
    /// It cannot be dealt with here and now.
    LeftAlone(String),
}

impl Outcome {
    /// What an undo comes to.
    pub(super) fn of(undone: Undone) -> Self {
        if undone.is_settled() {
            Self::Restored(undone)
        } else {
            Self::Incomplete(undone)
        }
    }
}

/// Its changes ended with the boot.
const OTHER_BOOT: &str = "the machine was booted since, runtime settings are gone";
/// Its changes ended with their namespace.
const NETNS_GONE: &str = "its network namespace is gone, nothing is left to restore";

/// Takes back what died undecided below the folder `state`, the newest transaction first: a later one
/// may stand on an earlier one's values.
pub fn recover(state: &Path, around: &Surroundings<'_>) -> Result<Vec<Recovered>, JournalError> {
    let mut recovered = Vec::new();
    for folder in folders(state, around)?.into_iter().rev() {
        if let Some(outcome) = recover_one(&folder, around) {
            let id = id_of(&folder);
            recovered.push(Recovered { id, outcome });
        }
    }
    Ok(recovered)
}

fn recover_one(folder: &Path, around: &Surroundings<'_>) -> Option<Outcome> {
    let story = match Story::read(folder) {
        Ok(story) => story,
        // It was removed between listing and reading: its owner has finished.
        Err(error) if error.is_absent() => return None,
        Err(error) => return Some(Outcome::LeftAlone(error.to_string())),
    };
    let other_boot = story.header.boot_id != around.boot_id;
    match story.ending {
        Ending::Committed | Ending::Aborted { .. } if other_boot => {
            // Nothing of it is left on the machine and nobody can undo it: only dust.
            let _ = fs::remove_dir_all(folder);
            return None;
        }
        Ending::Committed | Ending::Aborted { .. } => return None,
        Ending::Open if !other_boot && (around.is_alive)(&story.header.owner) => {
            return Some(Outcome::OwnerAlive(story.header.owner));
        }
        Ending::Open | Ending::Released => {}
    }
    // A reverter, or another recovery, may be at it: soon it is done.
    let (journal, story) = match Journal::take_over(folder, around.beside) {
        Ok(opened) => opened,
        Err(error) if error.is_absent() => return None,
        Err(error) => return Some(Outcome::LeftAlone(error.to_string())),
    };
    if matches!(story.ending, Ending::Open | Ending::Released) {
        Some(take_back(
            journal,
            &story,
            around,
            "taken back after a crash",
        ))
    } else {
        // Another recovery was faster.
        None
    }
}

fn take_back(mut journal: Journal, story: &Story, around: &Surroundings<'_>, why: &str) -> Outcome {
    let nothing_left = |mut journal: Journal, why: &'static str| {
        close(&mut journal, &Undone::default(), why);
        journal.remove();
        Outcome::NothingLeft(why)
    };
    if story.header.boot_id != around.boot_id {
        return nothing_left(journal, OTHER_BOOT);
    }
    match (around.reach)(&story.header.netns) {
        Reach::Gone => nothing_left(journal, NETNS_GONE),
        Reach::Unreachable(reason) => Outcome::LeftAlone(reason),
        Reach::Machine(machine) => {
            // Killed from here on, an undo leaves what `recover` completes.
            if story.ending == Ending::Committed
                && let Err(error) = journal.append(&Record::Released)
            {
                return Outcome::LeftAlone(error.to_string());
            }
            let undone = restore::undo(&story.steps, &machine);
            close(&mut journal, &undone, why);
            if undone.left.is_empty() {
                journal.remove();
            }
            Outcome::of(undone)
        }
    }
}

/// Takes back a transaction that was committed: `id`, or the newest one. None when there is none.
pub fn undo_committed(
    state: &Path,
    id: Option<&str>,
    around: &Surroundings<'_>,
) -> Result<Option<Recovered>, JournalError> {
    for folder in folders(state, around)?.into_iter().rev() {
        let name = id_of(&folder);
        if id.is_some_and(|id| id != name) {
            continue;
        }
        let ending = match Story::read(&folder) {
            Ok(story) => story.ending,
            Err(error) if id.is_some() => return Err(error),
            Err(_) => continue,
        };
        if ending == Ending::Committed {
            let (journal, story) = Journal::reopen(&folder, around.beside)?;
            let outcome = take_back(journal, &story, around, "undone after its commit");
            return Ok(Some(Recovered { id: name, outcome }));
        }
    }
    Ok(None)
}

/// One transaction as its journal tells it.
#[derive(Debug)]
pub struct Listed {
    /// Its name.
    pub id: String,
    /// Its folder.
    pub folder: PathBuf,
    /// What the journal says, or why it cannot be read.
    pub journal: Result<Told, JournalError>,
}

/// What a journal says.
#[derive(Debug)]
pub struct Told {
    /// Who, where and when.
    pub header: Header,
    /// The changes that were made or begun, in order.
    pub changes: Vec<Change>,
    /// How it ended.
    pub ending: Ending,
}

/// Every transaction below the folder `state`, the oldest first.
pub fn journal_listing(state: &Path) -> Result<Vec<Listed>, JournalError> {
    let (named, _) = list(state)?;
    let tell = |folder: PathBuf| Listed {
        id: id_of(&folder),
        journal: Story::read(&folder).map(|story| Told {
            header: story.header,
            changes: story.steps.into_iter().map(|step| step.change).collect(),
            ending: story.ending,
        }),
        folder,
    };
    Ok(named.into_iter().map(tell).collect())
}

/// The folders of transactions, the oldest first; nameless ones of dead processes are removed.
fn folders(state: &Path, around: &Surroundings<'_>) -> Result<Vec<PathBuf>, JournalError> {
    let (named, nameless) = list(state)?;
    for folder in nameless {
        if nameless_owner(&folder).is_some_and(|owner| !(around.is_alive)(&owner)) {
            // It never got as far as a change. Dust that stays is tried again next time.
            let _ = fs::remove_dir_all(&folder);
        }
    }
    Ok(named)
}

fn list(state: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>), JournalError> {
    let path = transactions(state);
    let names = match fs::read_dir(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
        names => names.and_then(Iterator::collect::<io::Result<Vec<_>>>),
    };
    let names = names.map_err(|source| JournalError::Read { path, source })?;
    let mut all: Vec<PathBuf> = names.iter().map(fs::DirEntry::path).collect();
    all.sort();
    Ok(all
        .into_iter()
        .partition(|folder| !id_of(folder).starts_with('.')))
}

/// `.<millis>-<pid>-<count>-<start ticks>`, as `Journal::create` names it.
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
