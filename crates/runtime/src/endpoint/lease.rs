//! Changes of two hosts that belong together: an MTU, BIG TCP sizes, a FEC mode. Both hosts
//! change or neither does.
//!
//! Each end changes itself in its own transaction, with its own reverter and the same deadline, and rolls it
//! back when it loses contact with the other. A connection made after the changes, with bytes in both directions,
//! shows that the path works with them. Then a note of the pair is put on stable storage, the remote end commits,
//! and this end does. This end's journal is authoritative: if it is not committed, whatever the note
//! names at the remote end is rolled back (presumed abort; B. Lampson, D. Lomet, "A new presumed commit optimization for
//! two phase commit", VLDB 1993, section 2). A recovery does so after a crash, as soon as the remote end can be reached.

use std::ffi::OsStr;
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{io, thread};

use linerate_host::apply::{Boottime, Faults, Moment, Owner};
use linerate_host::private_folder::PrivateFolder;
use linerate_model::analysis::rate_after;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::peer_address::PeerAddress;
use linerate_model::plan::{End, Plan};
use linerate_model::protocol::{Reply, Request};
use linerate_model::shell::quoted;
use linerate_model::units::{BitRate, Nanoseconds};
use linerate_model::workload::{Direction, TrialSpec};
use serde::{Deserialize, Serialize};

use crate::cli::StayArgs;
use crate::console::interrupt::Interrupt;
use crate::console::say::Say;
use crate::endpoint::crash;
use crate::endpoint::ends::Ends;
use crate::endpoint::guard::EARLIER;
use crate::endpoint::local::LocalEndpoint;
use crate::endpoint::peer::Peer;
use crate::endpoint::transactions::{self, Entry};
use crate::endpoint::trial::PeerPath;

/// The folder of the notes, below the state folder.
const FOLDER: &str = "pairs";
/// Maximum length of a note: two names and a command line (execve(2), `MAX_ARG_STRLEN`).
const NOTE_BYTES_MAX: u64 = 256 << 10;
/// How long bytes are sent in each direction to check that they arrive.
const LOOK: Nanoseconds = Nanoseconds::from_millis(300);
/// How often that is tried: on a busy machine an end may have no CPU for the whole of one.
const LOOKS_MAX: u32 = 3;

/// Two transactions that belong together.
#[derive(Debug, Serialize, Deserialize)]
struct Pair {
    /// How the remote end is reached.
    peer: String,
    /// The transaction of this end.
    ours: String,
    /// The transaction of the remote end.
    theirs: String,
    /// The deciding process, as long as it lives.
    maker: Owner,
    /// Whether an undo of both has started.
    undoing: bool,
}

/// How the command line treats the remote half of a pair.
#[derive(Debug, Clone, Copy)]
pub struct Far<'a> {
    /// Where this end's notes are.
    pub state: &'a FilePath,
    /// The peer that was named on the command line: the only one that may be a command (`exec:`).
    pub given: Option<&'a PeerAddress>,
}

impl Pair {
    /// The name of its note.
    fn note(&self) -> String {
        format!("{}.json", self.ours)
    }

    fn write(&self, state: &FilePath) -> Outcome<()> {
        let text = serde_json::to_vec(self).map_err(|error| {
            Stop::new(Code::Bug, "cannot write the record of a two-host change").because(error)
        })?;
        let write = || {
            let folder = PrivateFolder::make(state)?.make_folder(FOLDER)?;
            folder.replace(&self.note(), &text)?;
            // Its name, too.
            folder.sync()
        };
        let place = folder_of(state).join(self.note());
        write().map_err(|error| Stop::io(format!("write {}", place.display()), error))
    }

    fn forget(&self, state: &FilePath) -> Outcome<()> {
        let folder = folder_of(state);
        let removed = PrivateFolder::open(&folder).and_then(|all| all.remove(&self.note()));
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let place = folder.join(self.note());
                Err(Stop::io(format!("remove {}", place.display()), error))
            }
            _ => Ok(()),
        }
    }

    /// Every noted pair.
    fn all(state: &FilePath) -> Outcome<Vec<Self>> {
        let path = folder_of(state);
        let failed = |path: &FilePath, error| Stop::io(format!("read {}", path.display()), error);
        let folder = match PrivateFolder::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            folder => folder.map_err(|error| failed(&path, error))?,
        };
        let names = folder.names().map_err(|error| failed(&path, error))?;
        let is_note = |name: &&_| FilePath::new(name).extension() == Some(OsStr::new("json"));
        let read = |name: &_| {
            let place = path.join(name);
            let text = folder.read(name, NOTE_BYTES_MAX);
            let text = text.map_err(|error| failed(&place, error))?;
            serde_json::from_slice(&text).map_err(|error| {
                let why = format!("{} is not a record of a two-host change", place.display());
                Stop::new(Code::BadInput, why).because(error)
            })
        };
        names.iter().filter(is_note).map(read).collect()
    }

    /// Rolls back what is committed at the remote end; it is no error if there is nothing. `action` is what is requested
    /// from `linerate tune`, for the message that explains how to name the peer.
    fn take_back(&self, far: Far<'_>, action: &str) -> Outcome<()> {
        // A rollback is not interrupted: a later stop takes effect at most after it.
        let interrupt = Interrupt::listen()?;
        let address: PeerAddress = self.peer.parse().map_err(|error| {
            Stop::new(
                Code::BadInput,
                format!("`{}` is not a peer: {error}", self.peer),
            )
        })?;
        if matches!(address, PeerAddress::Exec(_)) && far.given != Some(&address) {
            let why = format!(
                "{} is a command from a stored file, which linerate does not execute",
                self.peer
            );
            let state = far.state.display().to_string();
            let again = format!(
                "run `linerate --state {} tune {action} --peer {}`",
                quoted(&state),
                quoted(&self.peer)
            );
            return Err(Stop::new(Code::Usage, why).hint(again));
        }
        let mut peer = Peer::start(&address, false, far.state, &interrupt, None)?;
        peer.see_through(&Request::TakeBack {
            id: self.theirs.clone(),
        })?;
        peer.leave()
    }
}

/// The folder of the notes.
fn folder_of(state: &FilePath) -> PathBuf {
    state.join(FOLDER)
}

/// Changes both ends, and keeps it if the path works with it.
pub fn apply(
    mut path: PeerPath,
    (near, far): (&Plan, &Plan),
    stay: &StayArgs,
    state: &FilePath,
    interrupt: &Interrupt,
    say: &Say,
) -> Outcome<()> {
    let limit = Duration::from_secs(stay.deadline.into());
    let deadline = Boottime::now().plus(limit);
    path.endpoint.allow_until(deadline);
    path.endpoint
        .disturb_way_in(stay.allow_management_disruption);
    let peer = path.peer.address.clone();
    say.note(&format!(
        "changing {}; rolled back within {} s if the path stops working",
        changed_in_words(&peer, near, far),
        stay.deadline
    ));
    let theirs = if far.changes.is_empty() {
        None
    } else {
        let lease = Request::Lease {
            plan: far.clone(),
            include_way_in: stay.allow_management_disruption,
            seconds: stay.deadline,
        };
        match path.peer.see_through(&lease)? {
            Reply::Leased { id } => Some(id),
            _ => return Err(Stop::new(Code::Bug, "an answer passed that does not fit")),
        }
    };
    // Also if nothing changes here: this end's journal decides, and `tune undo` finds the pair by it.
    if let Err(failure) = path.endpoint.apply(near) {
        return Err(undone(&mut path, failure.into(), say));
    }
    let until = deadline.before(EARLIER);
    let shown = works_until(until, &peer, state, interrupt);
    let pair = shown.and_then(|()| noted(&path, theirs, state));
    let pair = match pair {
        Ok(pair) => pair,
        Err(stop) => return Err(undone(&mut path, stop, say)),
    };
    pass();
    // From here on the remote end may be committed: this end's journal is authoritative.
    let decided = path.commit(End::Remote).and_then(|()| {
        pass();
        path.commit(End::Local)
    });
    let Err(stop) = decided else {
        pass();
        let undo = match &peer {
            PeerAddress::Exec(_) => format!("tune undo --peer {}", quoted(&peer.to_string())),
            _ => "tune undo".to_owned(),
        };
        // Both are committed: no reverter may end this process while it waits for the other.
        let PeerPath { peer, endpoint, .. } = path;
        drop(endpoint);
        say.note(&format!(
            "confirmed by the peer; to roll back: `linerate {undo}`"
        ));
        return peer.leave_after_result(say);
    };
    let undone = undone(&mut path, stop, say);
    // The agent releases what it has; then another one can roll back what it committed.
    drop(path);
    let Some(pair) = pair else {
        return Err(undone);
    };
    let far = Far {
        state,
        given: Some(&peer),
    };
    match pair
        .take_back(far, "recover")
        .and_then(|()| pair.forget(state))
    {
        Ok(()) => Err(undone),
        Err(far) => Err(in_doubt(&pair, &far)),
    }
}

fn changed_in_words(peer: &PeerAddress, near: &Plan, far: &Plan) -> String {
    match (near.changes.is_empty(), far.changes.is_empty()) {
        (true, _) => peer.to_string(),
        (_, true) => "this host".to_owned(),
        _ => format!("{peer} and this host"),
    }
}

/// Records on stable storage which transactions belong together; a single one needs no note.
fn noted(path: &PeerPath, theirs: Option<String>, state: &FilePath) -> Outcome<Option<Pair>> {
    let (Some(ours), Some(theirs)) = (path.endpoint.open_id(), theirs) else {
        return Ok(None);
    };
    let maker = Owner::current().map_err(|error| {
        Stop::new(Code::NotSupported, "cannot identify this process").because(error)
    })?;
    let pair = Pair {
        peer: path.peer.address.to_string(),
        ours,
        theirs,
        maker,
        undoing: false,
    };
    pair.write(state)?;
    Ok(Some(pair))
}

/// The same as [`works`], given up at `until`: at the deadline the reverter kills this process. A thread that hangs is
/// abandoned, and ends with the process: a clean shutdown would take too long.
fn works_until(
    until: Boottime,
    peer: &PeerAddress,
    state: &FilePath,
    interrupt: &Interrupt,
) -> Outcome<()> {
    let (tell, told) = mpsc::channel();
    let (peer, state, listens) = (peer.clone(), state.to_owned(), interrupt.clone());
    let look = move || {
        // There may be no listener any more.
        let _ = tell.send(works(&peer, &state, &listens));
    };
    thread::Builder::new()
        .name("look".to_owned())
        .spawn(look)
        .map_err(|error| Stop::io("start a thread", error))?;
    let late = |_| {
        let why = "the path was not verified before the deadline";
        Stop::new(Code::TimeOut, why)
    };
    let shown = told.recv_timeout(until.remaining()).map_err(late)?;
    shown.and_then(|()| interrupt.check())
}

/// A step at which a test may kill this process.
fn pass() {
    let faults: Option<Arc<dyn Faults>> = crash::faults(crash::Role::Maker, None);
    if let Some(faults) = faults {
        faults.lets(Moment::File);
    }
}

/// Rolls back what is not committed on both ends. A remote end that is not reached does so at its deadline, or when
/// this process ends.
fn undone(path: &mut PeerPath, mut stop: Stop, say: &Say) -> Stop {
    // This end first: its change may be what disconnects the other one.
    if let Err(failed) = path.undo(End::Local) {
        return failed;
    }
    say.note(&format!("rolling back {}", path.peer.address));
    let far = path.undo(End::Remote);
    stop.message.push_str(match far {
        Ok(()) => "; both ends were rolled back",
        Err(_) => "; this end was rolled back, the remote end rolls back by its deadline",
    });
    stop
}

fn in_doubt(pair: &Pair, why: &Stop) -> Stop {
    let message = format!(
        "this end was rolled back, but {} may still have the changes of {}: {}",
        pair.peer, pair.theirs, why.message
    );
    let when = || "run `linerate tune recover` when it is reachable".to_owned();
    Stop::new(Code::RestoreIncomplete, message).hint(why.hint.clone().unwrap_or_else(when))
}

/// Whether a new connection reaches the peer, and bytes arrive in both directions.
fn works(address: &PeerAddress, state: &FilePath, interrupt: &Interrupt) -> Outcome<()> {
    let peer = Peer::start(address, false, state, interrupt, None)?;
    let mut path = PeerPath::open(LocalEndpoint::open(state)?, peer, None, interrupt)?;
    for direction in [Direction::Forward, Direction::Reverse] {
        let spec = TrialSpec {
            direction,
            duration_ns: LOOK,
            interval_ns: Nanoseconds::new(LOOK.as_u64() / 10),
            ..TrialSpec::default()
        };
        let mut arrives = false;
        for _ in 0..LOOKS_MAX {
            let rate = rate_after(&path.trial(&spec)?, 0);
            arrives = rate.is_some_and(|rate| rate > BitRate::from_bit_per_s(0));
            if arrives {
                break;
            }
        }
        if !arrives {
            let (from, to) = match direction {
                Direction::Forward => ("here", "the peer"),
                _ => ("the peer", "here"),
            };
            let why = format!("no data arrives from {from} at {to} with the changes");
            return Err(Stop::new(Code::FailedRestored, why));
        }
    }
    path.peer.leave()
}

/// Rolls back what a killed linerate left at remote ends, where this end is not changed. All are tried; the first failure
/// is reported.
pub fn recover(far: Far<'_>) -> Outcome<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut result = Ok(());
    for pair in Pair::all(far.state)? {
        match recover_one(&pair, far) {
            Ok(taken_back) => entries.extend(taken_back),
            Err(stop) => result = result.and(Err(stop)),
        }
    }
    result.map(|()| entries)
}

fn recover_one(pair: &Pair, far: Far<'_>) -> Outcome<Vec<Entry>> {
    let state = far.state;
    let stands = transactions::is_applied(state, &pair.ours)?;
    if pair.maker.is_alive() || (stands && !pair.undoing) {
        return Ok(Vec::new());
    }
    let taken_back = pair.take_back(far, "recover");
    taken_back.map_err(|stop| in_doubt(pair, &stop))?;
    let mut entries = if stands {
        transactions::undo_committed(state, Some(&pair.ours))?
    } else {
        Vec::new()
    };
    pair.forget(state)?;
    entries.push(Entry {
        id: pair.theirs.clone(),
        name: None,
        state: "restored",
        about: format!("on {}, because this end is unchanged", pair.peer),
        kept: false,
    });
    Ok(entries)
}

/// Rolls back the remote half of transaction `id`, or of the newest that is applied, before this end's is: both, or if
/// the remote end does not answer, neither.
pub fn undo_far_half(far: Far<'_>, id: Option<&str>) -> Outcome<Option<Entry>> {
    let state = far.state;
    let newest = || -> Outcome<Option<String>> {
        let applied = transactions::status(state)?.into_iter().rev();
        let mut applied = applied.filter(|entry| entry.state == "applied");
        Ok(applied.next().map(|entry| entry.id))
    };
    let Some(ours) = id
        .map(ToOwned::to_owned)
        .map_or_else(newest, |id| Ok(Some(id)))?
    else {
        return Ok(None);
    };
    let mut pairs = Pair::all(state)?.into_iter();
    let Some(mut pair) = pairs.find(|pair| pair.ours == ours) else {
        return Ok(None);
    };
    pair.undoing = true;
    pair.write(state)?;
    pass();
    if let Err(stop) = pair.take_back(far, &format!("undo {}", quoted(&ours))) {
        pair.undoing = false;
        pair.write(state)?;
        let message = format!(
            "cannot roll back {ours}: its other half is on {}: {}; nothing was changed",
            pair.peer, stop.message
        );
        return Err(Stop { message, ..stop });
    }
    pass();
    Ok(Some(Entry {
        id: pair.theirs,
        name: None,
        state: "restored",
        about: format!("at {}", pair.peer),
        kept: false,
    }))
}

/// Adds to transactions of this end the peer that they belong to.
pub fn tell(state: &FilePath, entries: &mut [Entry]) -> Outcome<()> {
    for pair in Pair::all(state)? {
        for entry in entries.iter_mut().filter(|entry| entry.id == pair.ours) {
            let (peer, theirs) = (&pair.peer, &pair.theirs);
            let about = std::mem::take(&mut entry.about);
            let own = if about.is_empty() {
                "nothing here"
            } else {
                &about
            };
            entry.about = format!("{own}; with {theirs} at {peer}");
        }
    }
    Ok(())
}

/// The peer's halves of what is persistent now, or no longer (`is_removed`). Each host boots on its own and keeps its own
/// half: at a boot of one the other may be down, and each host must be able to refuse.
pub fn other_halves(state: &FilePath, entries: &[Entry], is_removed: bool) -> Outcome<Vec<Entry>> {
    let pairs = Pair::all(state)?.into_iter();
    let pairs = pairs.filter(|pair| entries.iter().any(|entry| entry.id == pair.ours));
    let other = |Pair { peer, theirs, .. }: Pair| {
        let about = if is_removed {
            format!(
                "other half on {peer}: if it is persistent there, run `linerate tune persist \
                 --remove {theirs}` there"
            )
        } else {
            format!(
                "each host persists its own half: run `linerate tune persist {theirs}` on {peer} \
                 too"
            )
        };
        Entry {
            id: theirs,
            name: None,
            state: "not persistent",
            about,
            kept: false,
        }
    };
    Ok(pairs.map(other).collect())
}

/// Forgets a pair whose halves are both rolled back.
pub fn forget(state: &FilePath, ours: &str) -> Outcome<()> {
    let mut pairs = Pair::all(state)?.into_iter();
    match pairs.find(|pair| pair.ours == ours) {
        Some(pair) => pair.forget(state),
        None => Ok(()),
    }
}
