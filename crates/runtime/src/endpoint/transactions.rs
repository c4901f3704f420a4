//! The transactions of a state folder on this host: what is applied, what a killed process left, and their rollback.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use linerate_analysis::text::words::count;
use linerate_host::apply::{
    self, Ending, Faults, Faulty, JournalError, JournalOptions, KeptError, LiveMachine, Lock,
    LockError, Machine, NetnsIdentity, Owner, PersistentSet, Reach, Recovered, Scope, Surroundings,
    Verdict,
};
use linerate_host::netlink::Netlink;
use linerate_host::root::LiveHost;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::plan::Change;
use linerate_model::protocol::{Failure, FailureKind};
use serde::Serialize;

use crate::endpoint::crash;

/// One transaction, as `tune` lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Entry {
    /// Its id.
    pub id: String,
    /// Its short name, `t7`, by its number among the transactions of this state directory; null without a journal.
    pub name: Option<String>,
    /// Its state.
    pub state: &'static str,
    /// Its changes, or the reason for its state.
    pub about: String,
    /// Whether it is persistent across reboots.
    pub kept: bool,
}

/// Whether transaction `id` is applied: in this boot, or to another host alone.
pub fn is_applied(state: &Path, id: &str) -> Outcome<bool> {
    let is_it = |entry: &Entry| entry.id == id && entry.state == "applied";
    Ok(status(state)?.iter().any(is_it))
}

/// Rolls back what killed processes left incomplete.
pub fn recover(state: &Path) -> Outcome<Vec<Entry>> {
    // What a living process works on is left alone; a working reverter is waited for.
    let _lock = Lock::take(Scope::Netns, state);
    with_surroundings(|around| apply::recover(state, around)).and_then(settle)
}

/// Rolls back a committed transaction: `id`, or the newest.
pub fn undo_committed(state: &Path, id: Option<&str>) -> Outcome<Vec<Entry>> {
    undo_committed_within(state, id, Duration::ZERO)
}

/// The same, and waits that long for another linerate that changes settings here.
pub fn undo_committed_within(
    state: &Path,
    id: Option<&str>,
    patience: Duration,
) -> Outcome<Vec<Entry>> {
    let _lock = Lock::take_within(Scope::Netns, state, patience)
        .map_err(|error| Stop::from(not_locked(&error)))?;
    let undone = with_surroundings(|around| apply::undo_committed(state, id, around))?;
    match id {
        Some(id) if undone.is_empty() => Err(Stop::new(
            Code::BadInput,
            format!("no applied transaction `{id}`"),
        )
        .hint("`linerate tune status` lists them")),
        _ => settle(undone),
    }
}

/// Lists the transactions.
pub fn status(state: &Path) -> Outcome<Vec<Entry>> {
    let listed = apply::journal_listing(state).map_err(|error| journal_stop(&error))?;
    let kept = apply::kept_set(state).map_err(|error| kept_stop(&error))?;
    let (kept, set) = kept.map_or_else(Default::default, |(set, name)| (set.kept, name));
    let is_kept = |id: &str| kept.iter().any(|kept| kept.id == id);
    let entry = |listed: apply::Listed| {
        let again = listed.journal.as_ref().ok();
        let again = again.and_then(|told| told.header.of.clone());
        let (state, about) = match &listed.journal {
            Err(error) => ("unreadable", error.to_string()),
            Ok(told) => {
                let changes = told.changes.iter().map(ToString::to_string);
                let changes = changes.collect::<Vec<_>>().join("; ");
                match &told.ending {
                    Ending::Committed => ("applied", changes),
                    Ending::Aborted { why, .. } if changes.is_empty() => ("undone", why.clone()),
                    Ending::Aborted { why, .. } => ("undone", format!("{why}: {changes}")),
                    Ending::Open | Ending::Released => ("open", changes),
                }
            }
        };
        // By the id that it has had since it was made.
        let id = again.unwrap_or(listed.id);
        let kept = is_kept(&id);
        let journal = listed.journal.as_ref().ok();
        Entry {
            id,
            name: journal.map(|told| format!("t{}", told.header.sequence)),
            state,
            about,
            kept,
        }
    };
    // Nothing of another boot is left on the machine; what changed another host alone is not on this one.
    let boot_id = apply::boot_id().map_err(identity)?;
    let is_here = |listed: &apply::Listed| match &listed.journal {
        Ok(told) => {
            let is_elsewhere = told.changes.is_empty() && told.ending == Ending::Committed;
            told.header.boot_id == boot_id || is_elsewhere
        }
        Err(_) => true,
    };
    let listed = listed.into_iter().filter(is_here);
    let mut entries: Vec<Entry> = listed.map(entry).collect();
    let tried = apply::tried(state, &set).map_err(|error| kept_stop(&error))?;
    let why = match tried.map(|tried| tried.verdict) {
        Some(Verdict::Bad { why }) => format!("disabled at boot: {why}"),
        _ => "not applied since the last boot".to_owned(),
    };
    let absent = |kept: &&PersistentSet| !entries.iter().any(|entry| entry.id == kept.id);
    let absent: Vec<Entry> = kept
        .iter()
        .filter(absent)
        .map(|kept| Entry {
            id: kept.id.clone(),
            name: None,
            state: "kept",
            about: why.clone(),
            kept: true,
        })
        .collect();
    entries.extend(absent);
    Ok(entries)
}

/// The id of the transaction that is called `name`: its short name or its id. What is unknown stays as it is.
pub fn id_of(state: &Path, name: &str) -> Outcome<String> {
    let is_short = name
        .strip_prefix('t')
        .is_some_and(|number| number.parse::<u64>().is_ok());
    if !is_short {
        return Ok(name.to_owned());
    }
    let entries = status(state)?;
    let mut ids = entries
        .into_iter()
        .filter(|entry| entry.name.as_deref() == Some(name))
        .map(|entry| entry.id);
    match (ids.next(), ids.next()) {
        // Two processes may begin one at the same moment.
        (Some(one), Some(other)) => Err(Stop::new(
            Code::BadInput,
            format!("`{name}` is the name of two transactions: {one} and {other}"),
        )
        .hint("pass the id")),
        (Some(id), None) => Ok(id),
        (None, _) => Ok(name.to_owned()),
    }
}

/// The changes of transaction `id`, or of the newest applied one: of this boot, in the network namespace that
/// the machine boots with. Others cannot be made persistent.
pub fn applied(state: &Path, id: Option<&str>) -> Outcome<(String, Vec<Change>)> {
    let listed = apply::journal_listing(state).map_err(|error| journal_stop(&error))?;
    let boot_id = apply::boot_id().map_err(identity)?;
    let applied = listed.into_iter().rev().find_map(|listed| {
        let told = listed.journal.ok()?;
        let is_meant = id.is_none_or(|id| id == listed.id);
        let is_applied = told.ending == Ending::Committed && told.header.boot_id == boot_id;
        let is_first = told.header.of.is_none();
        (is_meant && is_applied && is_first).then_some((listed.id, told))
    });
    let Some((id, told)) = applied else {
        let what = id.map_or_else(
            || "no transaction is applied".to_owned(),
            |id| format!("no applied transaction `{id}`"),
        );
        let stop = Stop::new(Code::BadInput, what);
        return Err(stop.hint("`linerate tune status` lists them"));
    };
    let here = NetnsIdentity::current().map_err(identity)?;
    if !here.is(&told.header.netns) || !apply::is_first_netns() {
        let why = format!(
            "cannot make {id} persistent: only the initial network namespace survives a reboot"
        );
        return Err(Stop::new(Code::NotSupported, why));
    }
    Ok((id, told.changes))
}

/// The exit code and the text for settings that could not be kept.
pub fn kept_stop(error: &KeptError) -> Stop {
    failure(io_kind(error.io_kind()), &error.to_string()).into()
}

/// The result of a recovery, as entries; an incomplete restore is an error with its own exit code, and so is one that
/// another process did not complete.
pub fn settle(recovered: Vec<Recovered>) -> Outcome<Vec<Entry>> {
    let mut entries = Vec::new();
    let (mut incomplete, mut busy) = (Vec::new(), Vec::new());
    for Recovered { id, outcome } in recovered {
        let (state, about) = match outcome {
            apply::Outcome::Restored(undone) => {
                let left: Vec<String> = undone.left.iter().map(ToString::to_string).collect();
                let about = count(undone.restored.len(), "setting");
                ("restored", [vec![about], left].concat().join("; "))
            }
            apply::Outcome::NothingLeft(why) => ("over", why.to_owned()),
            apply::Outcome::OwnerAlive(_) => {
                ("in progress", "its process is still running".to_owned())
            }
            apply::Outcome::Busy(why) => {
                busy.push(format!("{id}: {why}"));
                ("busy", why)
            }
            apply::Outcome::LeftAlone(why) => {
                incomplete.push(format!("{id}: {why}"));
                ("not restored", why)
            }
            apply::Outcome::Incomplete(undone) => {
                let left: Vec<String> = undone.left.iter().map(ToString::to_string).collect();
                incomplete.push(format!("{id}: {}", left.join("; ")));
                ("incomplete", left.join("; "))
            }
        };
        entries.push(Entry {
            id,
            name: None,
            state,
            about,
            kept: false,
        });
    }
    if incomplete.is_empty() && busy.is_empty() {
        return Ok(entries);
    }
    // The more informative state of the host wins.
    let code = match incomplete[..] {
        [] => Code::Resource,
        _ => Code::RestoreIncomplete,
    };
    incomplete.extend(busy);
    let why = format!(
        "not all changes could be rolled back: {}",
        incomplete.join("; ")
    );
    Err(Stop::new(code, why).hint("fix the cause, then run `linerate tune recover` again"))
}

/// Runs a recovery with the data of this boot, this machine's processes and its namespaces.
fn with_surroundings<T>(
    work: impl FnOnce(&Surroundings<'_>) -> Result<T, JournalError>,
) -> Outcome<T> {
    let boot_id = apply::boot_id().map_err(identity)?;
    let faults = crash::faults(crash::Role::Recovery, None);
    let reach = |netns: &NetnsIdentity| match apply::reach(netns, || Ok(Box::new(Netlink::open()?)))
    {
        Reach::Machine(machine) => Reach::Machine(with_faults(machine, faults.clone())),
        other => other,
    };
    let beside = JournalOptions {
        guard: None,
        faults: faults.clone(),
    };
    let around = Surroundings {
        boot_id: &boot_id,
        is_alive: &Owner::is_alive,
        reach: &reach,
        patience: apply::REVERTING,
        beside: &beside,
    };
    work(&around).map_err(|error| journal_stop(&error))
}

/// This machine, from this thread's network namespace.
pub fn this_machine(faults: Option<Arc<dyn Faults>>) -> std::io::Result<Box<dyn Machine>> {
    let machine = LiveMachine::new(LiveHost::open()?, Box::new(Netlink::open()?));
    Ok(with_faults(Box::new(machine), faults))
}

fn with_faults(machine: Box<dyn Machine>, faults: Option<Arc<dyn Faults>>) -> Box<dyn Machine> {
    match faults {
        Some(faults) => Box::new(Faulty { machine, faults }),
        None => machine,
    }
}

/// The failure of a change while another one has the lock.
pub fn not_locked(error: &LockError) -> Failure {
    let kind = match error {
        LockError::Held { .. } | LockError::Reverting { .. } => FailureKind::Resource,
        LockError::NotShared(_) => FailureKind::Other,
        LockError::Io { source, .. } => io_kind(Some(source.kind())),
        LockError::Identity(_) => FailureKind::NotSupported,
    };
    failure(kind, &error.to_string())
}

fn identity(error: apply::IdentityError) -> Stop {
    Stop::new(
        Code::NotSupported,
        "cannot identify this machine and network namespace",
    )
    .because(error)
}

fn journal_stop(error: &JournalError) -> Stop {
    failure(journal_kind(error), &error.to_string()).into()
}

pub(super) fn journal_kind(error: &JournalError) -> FailureKind {
    match error {
        JournalError::Busy { .. } => FailureKind::Resource,
        error => io_kind(error.io_kind()),
    }
}

pub(super) fn io_kind(kind: Option<std::io::ErrorKind>) -> FailureKind {
    match kind {
        Some(std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem) => {
            FailureKind::Permission
        }
        Some(
            std::io::ErrorKind::StorageFull
            | std::io::ErrorKind::QuotaExceeded
            | std::io::ErrorKind::WouldBlock,
        ) => FailureKind::Resource,
        Some(_) => FailureKind::Other,
        None => FailureKind::BadInput,
    }
}

pub(super) fn failure(kind: FailureKind, message: &str) -> Failure {
    Failure {
        kind,
        message: message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_journal_that_another_process_does_not_leave_ends_as_a_lock_does_that_is_held() {
        let busy = JournalError::Busy {
            path: PathBuf::from("/state/txn/1/journal"),
            waited: Duration::from_secs(30),
        };
        let stop = journal_stop(&busy);
        assert_eq!(stop.code, Code::Resource);
        assert!(stop.message.contains("after 30 s"), "{stop}");
        let of = |outcome| Recovered {
            id: "1".to_owned(),
            outcome,
        };
        let settled = |all| settle(all).expect_err("something is left").code;
        let is_busy = || of(apply::Outcome::Busy(busy.to_string()));
        assert_eq!(settled(vec![is_busy()]), Code::Resource);
        let unreadable = of(apply::Outcome::LeftAlone("its journal is torn".to_owned()));
        let both = vec![is_busy(), unreadable];
        assert_eq!(settled(both), Code::RestoreIncomplete);
    }
}
