//! The records of trials that this end keeps until the other one has them: a failure may take the control channel with it.
//! A file for each in the state folder, named by the trial's token, which nobody else knows; it is locked while the trial
//! runs, and empty until it is over.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use linerate_host::private_folder::PrivateFolder;
use linerate_model::protocol::{Failure, FailureKind, LINE_BYTES_MAX, Token};
use linerate_model::sample::SideSample;
use rustix::fs::{FlockOperation, OFlags, flock};

/// The folder of the records, below the state folder.
const FOLDER: &str = "records";
/// How many records are kept, and how large they are together: the oldest give way.
const RECORDS_MAX: usize = 64;
const BYTES_MAX: u64 = 256 << 20;

/// A record that is to be kept.
#[derive(Debug)]
pub(super) struct Reserved {
    file: File,
}

impl Reserved {
    /// Reserves the file of the record of a trial.
    pub(super) fn new(state: &Path, token: Token) -> Result<Self, Failure> {
        let reserve = || {
            let folder = PrivateFolder::make(&state.join(FOLDER))?;
            make_room(&folder)?;
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
            let file = folder.open_file(name_of(token), flags)?;
            flock(&file, FlockOperation::LockExclusive)?;
            Ok(Self { file })
        };
        reserve().map_err(|error| failed("keep the record of the trial", &error))
    }

    /// Writes the record; the file can be read when this is dropped.
    pub(super) fn write(&mut self, side: &SideSample) -> io::Result<()> {
        let bytes = serde_json::to_vec(side)?;
        self.file.write_all(&bytes)?;
        self.file.sync_all()
    }
}

/// The record of a trial, when that is over.
pub(super) fn fetch(state: &Path, token: Token) -> Result<SideSample, Failure> {
    let missing = |why: &str| Failure {
        kind: FailureKind::BadInput,
        message: format!("no record of this trial: {why}"),
    };
    let open = || {
        let folder = PrivateFolder::open(&state.join(FOLDER))?;
        folder.open_file(name_of(token), OFlags::RDONLY)
    };
    let file = open().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => missing("it was removed, or kept with another `--state`"),
        _ => failed("read the record of the trial", &error),
    })?;
    let read = || {
        // The process that records the trial holds the lock.
        flock(&file, FlockOperation::LockShared)?;
        let mut bytes = Vec::new();
        io::Read::read_to_end(
            &mut io::Read::take(&file, LINE_BYTES_MAX as u64),
            &mut bytes,
        )?;
        Ok(bytes)
    };
    let bytes = read().map_err(|error| failed("read the record of the trial", &error))?;
    if bytes.is_empty() {
        return Err(missing("the agent ended before the trial did"));
    }
    serde_json::from_slice(&bytes).map_err(|error| missing(&format!("it is damaged: {error}")))
}

/// Removes the record of a trial.
pub(super) fn discard(state: &Path, token: Token) -> Result<(), Failure> {
    let remove = || match PrivateFolder::open(&state.join(FOLDER)) {
        Ok(folder) => folder.remove(&name_of(token)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    remove().map_err(|error| failed("remove the record of the trial", &error))
}

/// Removes the oldest records beyond the limits; those of running trials are empty.
fn make_room(folder: &PrivateFolder) -> io::Result<()> {
    let mut all = Vec::new();
    for name in folder.names()? {
        // Another process may remove it meanwhile.
        let Ok(file) = folder.open_file(&name, OFlags::RDONLY) else {
            continue;
        };
        let metadata = file.metadata()?;
        let time = (metadata.mtime(), metadata.mtime_nsec());
        all.push((time, metadata.len(), name));
    }
    all.sort_unstable();
    let mut bytes: u64 = all.iter().map(|(_, bytes, _)| bytes).sum();
    let mut count = all.len();
    for (_, length, name) in all {
        if count < RECORDS_MAX && bytes < BYTES_MAX {
            break;
        }
        if let Some(name) = name.to_str() {
            folder.remove(name)?;
        }
        count -= 1;
        bytes -= length;
    }
    Ok(())
}

fn name_of(token: Token) -> String {
    let digits = token.0.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let digits = digits.filter_map(|digit| char::from_digit(digit.into(), 16));
    digits.chain(".json".chars()).collect()
}

fn failed(what: &str, error: &io::Error) -> Failure {
    let kind = match error.kind() {
        io::ErrorKind::PermissionDenied => FailureKind::Permission,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FailureKind::Resource,
        _ => FailureKind::Other,
    };
    Failure {
        kind,
        message: format!("cannot {what}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u8) -> Token {
        Token([number; 16])
    }

    #[test]
    fn a_record_is_there_when_its_trial_is_over_and_until_it_is_discarded() {
        let state = tempfile::tempdir().expect("a folder");
        let side = SideSample::unheard("nobody");
        let mut reserved = Reserved::new(state.path(), token(1)).expect("a new record");
        let again = Reserved::new(state.path(), token(1)).expect_err("a token is of one trial");
        assert_eq!(again.kind, FailureKind::Other);
        let fetched = std::thread::scope(|scope| {
            let fetching = scope.spawn(|| fetch(state.path(), token(1)));
            reserved.write(&side).expect("there is room");
            drop(reserved);
            fetching.join().expect("it does not panic")
        });
        assert_eq!(fetched.as_ref(), Ok(&side));
        assert!(fetch(state.path(), token(2)).is_err());
        discard(state.path(), token(1)).expect("it exists");
        discard(state.path(), token(1)).expect("it need not exist");
        let gone = fetch(state.path(), token(1)).expect_err("it was discarded");
        assert_eq!(gone.kind, FailureKind::BadInput);
    }

    #[test]
    fn an_agent_that_ended_before_its_trial_leaves_no_record() {
        let state = tempfile::tempdir().expect("a folder");
        drop(Reserved::new(state.path(), token(1)).expect("a new record"));
        let gone = fetch(state.path(), token(1)).expect_err("nothing was written");
        assert!(gone.message.contains("ended before"), "{gone}");
    }

    #[test]
    fn the_oldest_records_give_way() {
        let state = tempfile::tempdir().expect("a folder");
        let count = u8::try_from(RECORDS_MAX).expect("it is small");
        for number in 0..=count {
            let mut reserved = Reserved::new(state.path(), token(number)).expect("a new record");
            let side = SideSample::unheard("nobody");
            reserved.write(&side).expect("there is room");
        }
        assert!(fetch(state.path(), token(0)).is_err());
        assert!(fetch(state.path(), token(count)).is_ok());
        let left = std::fs::read_dir(state.path().join(FOLDER)).expect("a folder");
        assert_eq!(left.count(), RECORDS_MAX);
    }
}
