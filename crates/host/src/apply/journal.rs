//! The undo journal of a transaction: `<state>/txn/<id>/journal`, one record per line: its CRC-32 in hexadecimal, a
//! space, and JSON. It is append-only and is synced (fdatasync(2), directories by fsync(2)) before the write that it
//! describes.
//!
//! A line without an end or with a wrong checksum was interrupted by a crash or power failure: it and everything
//! after it is ignored, which is safe because the write it announces never began.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::OFlags;

use super::clock::Boottime;
use super::fault::{Faults, Moment};
use super::guard::Guard;
use super::identity::{IdentityError, Owner};
use super::lock::lock_until;
use super::records::{Header, JOURNAL_VERSION, Record, Step, Unrestored};
use crate::private_folder::{self, PrivateFolder};

/// The maximum size of a journal: a plan of 10,000 changes, each with 60 recorded features.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;

/// Why a journal could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The state directory cannot be used; nothing was changed.
    #[error("cannot keep an undo journal in {path}: {source}")]
    Create {
        /// The folder or file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// A record did not reach stable storage.
    #[error("cannot write to the undo journal {path}: {source}")]
    Append {
        /// The journal.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// A journal or its folder cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The journal or folder.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The file does not begin with a header that this program understands.
    #[error("cannot read {path}: {why}")]
    Foreign {
        /// The journal.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The process that would roll the changes back has ended.
    #[error("the reverter process has exited: {source}")]
    Unguarded {
        /// The operating system's reason.
        source: io::Error,
    },
    /// Another process works on it: a reverter or a recovery.
    #[error(
        "another process still holds {path} after {} s: its reverter or recovery may hang",
        .waited.as_secs()
    )]
    Busy {
        /// The journal.
        path: PathBuf,
        /// How long linerate waited for it.
        waited: Duration,
    },
    /// A failed change has ended the transaction.
    #[error("the transaction has ended: start a new one")]
    Over,
    /// The identity of this process could not be determined.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

impl JournalError {
    /// The operating system's reason, if there is one: it decides the exit code (disk full, no permission).
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Create { source, .. }
            | Self::Append { source, .. }
            | Self::Read { source, .. } => Some(source.kind()),
            Self::Unguarded { .. }
            | Self::Foreign { .. }
            | Self::Busy { .. }
            | Self::Over
            | Self::Identity(_) => None,
        }
    }

    /// Whether there is no journal: its transaction is finished and was removed.
    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Self::Read { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// What accompanies a journal.
#[derive(Debug, Clone, Default)]
pub struct JournalOptions {
    /// The process that rolls the changes back if this one cannot.
    pub guard: Option<Arc<Guard>>,
    /// Injected faults, in tests.
    pub faults: Option<Arc<dyn Faults>>,
}

impl JournalOptions {
    /// No reverter and no faults.
    pub const NOBODY: Self = Self {
        guard: None,
        faults: None,
    };

    pub(super) fn lets(&self, moment: Moment<'_>) -> bool {
        self.faults
            .as_ref()
            .is_none_or(|faults| faults.lets(moment))
    }
}

/// An open journal, locked by this process (flock(2)): the lock ends with the process.
#[derive(Debug)]
pub(super) struct Journal {
    folder: PathBuf,
    file: File,
    /// The length of its complete records.
    whole: u64,
    beside: JournalOptions,
}

/// The name of the directory of all transactions.
const TRANSACTIONS: &str = "txn";

/// The directory of all transactions below a state directory.
pub(super) fn transactions(state: &Path) -> PathBuf {
    state.join(TRANSACTIONS)
}

/// The directory of a transaction below a state directory.
pub fn folder_of(state: &Path, id: &str) -> PathBuf {
    transactions(state).join(id)
}

/// The sequence number after those of all journals in `transactions`. Processes that change the same settings wait
/// for the same lock, so two processes with the same number do not interfere.
fn next_sequence(transactions: &Path) -> io::Result<u64> {
    let mut highest = 0;
    for entry in fs::read_dir(transactions)? {
        // The order does not matter for one that cannot be read or was just removed.
        if let Ok(story) = Story::read(&entry?.path()) {
            highest = highest.max(story.header.sequence);
        }
    }
    Ok(highest.saturating_add(1))
}

pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

impl Journal {
    /// Creates `<state>/txn/<id>/journal` with its header. The directory is renamed to its final name only after the
    /// header is on stable storage, so a named directory always has a complete header.
    pub(super) fn create(
        state: &Path,
        header: &Header,
        beside: &JournalOptions,
    ) -> Result<Self, JournalError> {
        let all = transactions(state);
        let create = |path: &Path| {
            let path = path.to_owned();
            move |source| JournalError::Create { path, source }
        };
        // Only for this user: whoever can write here controls what the next recovery writes.
        PrivateFolder::make(state)
            .and_then(|state| state.make_folder(TRANSACTIONS))
            .map_err(create(&all))?;
        let mut folders = fs::DirBuilder::new();
        folders.mode(0o700);
        let header = &Header {
            sequence: next_sequence(&all).map_err(create(&all))?,
            ..header.clone()
        };
        let Owner { pid, start_ticks } = header.owner;
        let millis = header.started_unix_ns / 1_000_000;
        for count in 0u32.. {
            // The timestamp makes names unique and readable; the order is that of the sequence numbers. A process may
            // begin several transactions within a millisecond.
            let id = format!("{millis:013}-{pid}-{count}");
            let unnamed = all.join(format!(".{id}-{start_ticks}"));
            let folder = all.join(&id);
            if folder.exists() {
                continue;
            }
            match folders.create(&unnamed) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made.map_err(create(&unnamed))?,
            }
            let begun = Self::begin(&all, &unnamed, folder, header, beside);
            if begun.is_err() {
                // Best effort: a leftover directory without a name is removed by `recover`.
                let _ = fs::remove_dir_all(&unnamed);
            }
            return begun;
        }
        unreachable!("2^32 transactions in one millisecond")
    }

    fn begin(
        all: &Path,
        unnamed: &Path,
        folder: PathBuf,
        header: &Header,
        beside: &JournalOptions,
    ) -> Result<Self, JournalError> {
        let create = |path: &Path| {
            let path = path.to_owned();
            move |source| JournalError::Create { path, source }
        };
        let path = unnamed.join("journal");
        let file = OpenOptions::new()
            .append(true)
            .read(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(create(&path))?;
        lock(&file, &path, Duration::ZERO)?;
        let mut journal = Self {
            folder: unnamed.to_owned(),
            file,
            whole: 0,
            beside: beside.clone(),
        };
        // The reverter uses the final name of the directory.
        journal.append_as(&id_of(&folder), &Record::Header(header.clone()))?;
        sync_folder(unnamed).map_err(create(unnamed))?;
        fs::rename(unnamed, &folder).map_err(create(&folder))?;
        sync_folder(all).map_err(create(all))?;
        // The directory entry of `txn` itself: new with the first transaction.
        if let Some(state) = all.parent() {
            sync_folder(state).map_err(create(state))?;
        }
        journal.folder = folder;
        Ok(journal)
    }

    /// Opens a journal that another process left, to complete it; waits up to `patience` for others to release it,
    /// and truncates an incomplete record.
    pub(super) fn take_over(
        folder: &Path,
        patience: Duration,
        beside: &JournalOptions,
    ) -> Result<(Self, Story), JournalError> {
        let path = folder.join("journal");
        let file =
            private_folder::open(&path, OFlags::RDWR | OFlags::APPEND).map_err(|source| {
                JournalError::Read {
                    path: path.clone(),
                    source,
                }
            })?;
        lock(&file, &path, patience)?;
        let story = Story::read(folder)?;
        let journal = Self {
            folder: folder.to_owned(),
            file,
            whole: story.whole,
            beside: beside.clone(),
        };
        journal.cut().map_err(|source| journal.failed(source))?;
        Ok((journal, story))
    }

    /// Its path.
    #[cfg(test)]
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its ID: the last part of its directory.
    pub(super) fn id(&self) -> String {
        id_of(&self.folder)
    }

    fn failed(&self, source: io::Error) -> JournalError {
        JournalError::Append {
            path: self.folder.join("journal"),
            source,
        }
    }

    fn cut(&self) -> io::Result<()> {
        if self.file.metadata()?.len() > self.whole {
            self.file.set_len(self.whole)?;
            self.file.sync_data()?;
        }
        Ok(())
    }

    /// Writes a record to stable storage, and sends it to the reverter.
    pub(super) fn append(&mut self, record: &Record) -> Result<(), JournalError> {
        let id = self.id();
        self.append_as(&id, record)
    }

    fn append_as(&mut self, id: &str, record: &Record) -> Result<(), JournalError> {
        let json = serde_json::to_string(record).map_err(|error| self.failed(error.into()))?;
        let line = format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes()));
        // A commit is sent first: the reverter then knows about it without reading the disk.
        if matches!(record, Record::Commit) {
            // A reverter that has ended cannot roll back what is committed.
            let _ = self.tell_reverter(id, &line);
        }
        self.beside.lets(Moment::Append);
        match self.put(&line) {
            Ok(()) => self.whole += line.len() as u64,
            Err(source) => {
                // Best effort: an incomplete or unsynced record is ignored or harmless.
                let _ = self.cut();
                return Err(self.failed(source));
            }
        }
        match record {
            Record::Commit => {}
            Record::Aborted { .. } | Record::Released => {
                let _ = self.tell_reverter(id, &line);
            }
            Record::Header(_) | Record::Intent { .. } | Record::Done { .. } => {
                self.tell_reverter(id, &line)?;
            }
        }
        self.beside.lets(Moment::Appended);
        Ok(())
    }

    fn put(&self, line: &str) -> io::Result<()> {
        // An incomplete record (disk full) must be removed before this one.
        self.cut()?;
        (&self.file).write_all(line.as_bytes())?;
        if self.beside.lets(Moment::Sync) {
            self.file.sync_data()?;
            let whole = self.whole + line.len() as u64;
            self.beside.lets(Moment::Synced(&self.folder, whole));
        }
        Ok(())
    }

    fn tell_reverter(&self, id: &str, line: &str) -> Result<(), JournalError> {
        match &self.beside.guard {
            None => Ok(()),
            Some(guard) => guard
                .record(id, line)
                .map_err(|source| JournalError::Unguarded { source }),
        }
    }

    /// Removes the transaction: everything is as before it, so there is nothing to report.
    pub(super) fn remove(self) {
        // The journal says it is finished; a leftover directory is removed by a later `recover`.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn lock(file: &File, path: &Path, patience: Duration) -> Result<(), JournalError> {
    match lock_until(file, Boottime::now().plus(patience)) {
        Err(rustix::io::Errno::WOULDBLOCK) => Err(JournalError::Busy {
            path: path.to_owned(),
            waited: patience,
        }),
        // On a file system without locks, only the owner's PID and start time show whether it is in use.
        _ => Ok(()),
    }
}

/// The ID of the transaction in `folder`.
pub(super) fn id_of(folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The outcome of a transaction according to its journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// Undecided: its owner is running, or has died.
    Open,
    /// To be rolled back, and no process does so.
    Released,
    /// Its changes are kept.
    Committed,
    /// Its changes are rolled back or gone.
    Aborted {
        /// As text.
        why: String,
        /// What was not restored.
        left: Vec<Unrestored>,
    },
}

/// The contents of a journal.
#[derive(Debug)]
pub(super) struct Story {
    pub(super) header: Header,
    pub(super) steps: Vec<Step>,
    pub(super) ending: Ending,
    /// Whether it was committed, whatever came after.
    pub(super) was_committed: bool,
    whole: u64,
}

impl Story {
    pub(super) fn read(folder: &Path) -> Result<Self, JournalError> {
        let path = folder.join("journal");
        let bytes = match private_folder::read(&path, JOURNAL_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(source) => return Err(JournalError::Read { path, source }),
        };
        Self::parse(&bytes).map_err(|why| JournalError::Foreign { path, why })
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut rest = bytes;
        let Some(Record::Header(header)) = next_record(&mut rest) else {
            return Err("it does not begin with a whole header of this version");
        };
        if header.version != JOURNAL_VERSION {
            return Err("written by another version of linerate: recover with that version");
        }
        let mut story = Self {
            header,
            steps: Vec::new(),
            ending: Ending::Open,
            was_committed: false,
            whole: 0,
        };
        while let Some(record) = next_record(&mut rest) {
            story.tell(record);
        }
        story.whole = (bytes.len() - rest.len()) as u64;
        Ok(story)
    }

    fn tell(&mut self, record: Record) {
        match record {
            Record::Header(_) => {}
            Record::Intent {
                change,
                closure,
                subjects,
                ..
            } => self.steps.push(Step {
                change,
                closure,
                subjects,
                outcome: None,
            }),
            Record::Done {
                seq,
                readback,
                disturbed,
            } => {
                if let Some(step) = self.steps.get_mut(seq) {
                    step.done(readback, disturbed);
                }
            }
            Record::Commit => {
                self.ending = Ending::Committed;
                self.was_committed = true;
            }
            Record::Released => self.ending = Ending::Released,
            Record::Aborted { why, left } => self.ending = Ending::Aborted { why, left },
        }
    }
}

/// Parses a journal from `lines`, its records without checksums, for the fuzz targets.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn read_any(lines: &str) {
    let with_sums: Vec<String> = lines
        .lines()
        .map(|json| format!("{:08x} {json}", crc32fast::hash(json.as_bytes())))
        .collect();
    let with_sums = with_sums.join("\n") + "\n";
    let _ = Story::parse(lines.as_bytes());
    let _ = Story::parse(with_sums.as_bytes());
}

/// Whether a line of a journal says that everything is rolled back.
pub(super) fn is_aborted(mut line: &[u8]) -> bool {
    matches!(next_record(&mut line), Some(Record::Aborted { .. }))
}

/// The next complete record; `rest` is left before the first incomplete one.
fn next_record(rest: &mut &[u8]) -> Option<Record> {
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let line = std::str::from_utf8(&rest[..end]).ok()?;
    let (sum, json) = line.split_once(' ')?;
    let sum = u32::from_str_radix(sum, 16).ok()?;
    let record = (sum == crc32fast::hash(json.as_bytes()))
        .then(|| serde_json::from_str(json).ok())
        .flatten()?;
    *rest = &rest[end + 1..];
    Some(record)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use linerate_model::plan::Change;
    use linerate_model::setting::Value;

    use super::*;

    fn sample() -> Vec<u8> {
        let folder = tempfile::tempdir().expect("a state folder");
        let header = Header::here(1).expect("this process");
        let mut journal =
            Journal::create(folder.path(), &header, &JournalOptions::default()).expect("a journal");
        let change = Change {
            setting: "sysctl/net.ipv4.tcp_sack".parse().expect("a key"),
            from: Value::Text("1".to_owned()),
            to: Value::Text("0".to_owned()),
        };
        for seq in 0..3 {
            let intent = Record::Intent {
                seq,
                change: change.clone(),
                closure: Vec::new(),
                subjects: Vec::new(),
            };
            journal.append(&intent).expect("room");
            let done = Record::Done {
                seq,
                readback: change.to.clone(),
                disturbed: Vec::new(),
            };
            journal.append(&done).expect("room");
        }
        fs::read(journal.folder().join("journal")).expect("what was written")
    }

    #[test]
    fn a_journal_cut_anywhere_tells_a_beginning_of_the_same_story() {
        let bytes = sample();
        let whole = Story::parse(&bytes).expect("whole");
        assert_eq!(whole.steps.len(), 3);
        for length in 0..bytes.len() {
            if let Ok(story) = Story::parse(&bytes[..length]) {
                assert!(story.steps.len() <= 3);
                assert!(usize::try_from(story.whole).is_ok_and(|whole| whole <= length));
                let told = whole.steps.iter().zip(&story.steps);
                assert!(told.clone().all(|(all, some)| all.change == some.change));
            }
        }
    }

    proptest! {
        #[test]
        fn a_journal_with_any_byte_changed_never_panics_and_never_invents_a_change(
            at in 0usize..1000, to in any::<u8>(),
        ) {
            let mut bytes = sample();
            let at = at % bytes.len();
            let whole = Story::parse(&bytes).expect("whole");
            bytes[at] = to;
            if let Ok(story) = Story::parse(&bytes) {
                prop_assert!(story.steps.iter().all(|step| step.change == whole.steps[0].change));
            }
        }
    }

    #[test]
    fn a_state_folder_that_cannot_be_written_is_said_before_anything_changes() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("not-a-folder");
        fs::write(&file, "").expect("a file");
        let header = Header::here(1).expect("this process");
        let error = Journal::create(&file, &header, &JournalOptions::default())
            .expect_err("a file is no folder");
        let text = error.to_string();
        assert!(
            text.starts_with("cannot keep an undo journal in "),
            "{text}"
        );
    }

    #[test]
    fn two_transactions_of_one_moment_have_two_names() {
        let folder = tempfile::tempdir().expect("a state folder");
        let header = Header::here(1).expect("this process");
        let first =
            Journal::create(folder.path(), &header, &JournalOptions::default()).expect("a journal");
        let second =
            Journal::create(folder.path(), &header, &JournalOptions::default()).expect("another");
        assert_ne!(first.id(), second.id());
        let path = first.folder().join("journal");
        let file = File::open(&path).expect("it was just made");
        assert!(matches!(
            lock(&file, &path, Duration::ZERO),
            Err(JournalError::Busy { .. })
        ));
    }
}
