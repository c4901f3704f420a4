//! The record of the one network of its kind of a state folder, replaced atomically under a lock, and written before
//! anything is made. It is void after a reboot, which nothing of a network survives but its folder.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use linerate_host::apply::boot_id;
use linerate_host::private_folder::PrivateFolder;
use rustix::fs::OFlags;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::RedundantError;

const BYTES_MAX: u64 = 1 << 16;

/// What is recorded of a kind of network: its specification, from which all else follows.
pub(crate) trait Recorded: Clone + Serialize + DeserializeOwned {
    /// The name of its files: `NAME.json`, `NAME.lock`, and the folder `NAME`.
    const NAME: &'static str;
}

fn schema<S: Recorded>() -> String {
    format!("linerate.{}-record/1", S::NAME)
}

fn file<S: Recorded>() -> String {
    format!("{}.json", S::NAME)
}

/// A network that was made, or was about to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Made<S> {
    schema: String,
    boot_id: String,
    pub(crate) spec: S,
    /// Whether `add` was completed; false from the start of a removal on.
    pub(crate) ready: bool,
}

/// The record, locked by this process.
#[derive(Debug)]
pub(crate) struct Record<S> {
    state: PrivateFolder,
    path: PathBuf,
    folder: PathBuf,
    made: Option<Made<S>>,
    _lock: File,
}

impl<S: Recorded> Record<S> {
    pub(crate) fn open(state: &Path) -> Result<Self, RedundantError> {
        let step =
            |doing: &str, path: &Path| RedundantError::doing(format!("{doing} {}", path.display()));
        let private = PrivateFolder::make(state).map_err(step("use the folder", state))?;
        // Daemons run elsewhere.
        let state = fs::canonicalize(state).map_err(step("use the folder", state))?;
        let name = format!("{}.lock", S::NAME);
        let lock = private.open_file(&name, OFlags::RDWR | OFlags::CREATE);
        let lock = lock.map_err(step("open", &state.join(&name)))?;
        lock.lock().map_err(step("lock", &state.join(&name)))?;
        let path = state.join(file::<S>());
        let made = match private.read(file::<S>(), BYTES_MAX) {
            Ok(bytes) => parse(&bytes, &path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(step("read", &path)(error)),
        };
        let record = Self {
            folder: state.join(S::NAME),
            state: private,
            path,
            made,
            _lock: lock,
        };
        if record.made.is_none() {
            record.remove_folder()?;
        }
        Ok(record)
    }

    pub(crate) fn made(&self) -> Option<&Made<S>> {
        self.made.as_ref()
    }

    /// The folder of the network's files, whether it exists or not.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes the folder.
    pub(crate) fn make_folder(&self) -> Result<(), RedundantError> {
        let made = self.state.make_folder(S::NAME).map(drop);
        made.map_err(RedundantError::doing(format!(
            "make the folder {}",
            self.folder.display()
        )))
    }

    /// Records the state of a network.
    pub(crate) fn write(&mut self, spec: &S, ready: bool) -> Result<(), RedundantError> {
        let failed = || RedundantError::doing(format!("write {}", self.path.display()));
        let boot = boot_id().map_err(|error| {
            RedundantError::doing("identify this boot")(io::Error::other(error))
        })?;
        let made = Made {
            schema: schema::<S>(),
            boot_id: boot,
            spec: spec.clone(),
            ready,
        };
        let text = serde_json::to_vec_pretty(&made).map_err(io::Error::other);
        text.and_then(|text| self.state.replace(&file::<S>(), &text))
            .map_err(failed())?;
        self.made = Some(made);
        Ok(())
    }

    /// Removes the folder, then the record.
    pub(crate) fn clear(&mut self) -> Result<(), RedundantError> {
        self.remove_folder()?;
        let removed = self.state.remove(&file::<S>());
        removed.map_err(RedundantError::doing(format!(
            "remove {}",
            self.path.display()
        )))?;
        self.made = None;
        Ok(())
    }

    fn remove_folder(&self) -> Result<(), RedundantError> {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(RedundantError::doing(
                format!("remove {}", self.folder.display()),
            )(error)),
            _ => Ok(()),
        }
    }
}

/// The record of this boot; none if it is of another.
fn parse<S: Recorded>(bytes: &[u8], path: &Path) -> Result<Option<Made<S>>, RedundantError> {
    let wrong = |why: String| RedundantError::Record {
        path: path.to_owned(),
        why,
    };
    let made: Made<S> = serde_json::from_slice(bytes).map_err(|error| wrong(error.to_string()))?;
    if made.schema != schema::<S>() {
        return Err(wrong(format!("it is {}", made.schema)));
    }
    let boot = boot_id().map_err(|error| wrong(error.to_string()))?;
    Ok((made.boot_id == boot).then_some(made))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redundant::Spec;

    const FILE: &str = "testbed-redundant.json";
    const FOLDER: &str = "testbed-redundant";

    fn open(state: &Path) -> Result<Record<Spec>, RedundantError> {
        Record::open(state)
    }

    #[test]
    fn a_network_is_known_to_the_next_process_until_it_is_cleared() {
        let state = tempfile::tempdir().expect("a folder");
        let mut record = open(state.path()).expect("a new one");
        record.write(&Spec::Magp, false).expect("writable");
        record.make_folder().expect("writable");
        drop(record);
        let mut record = open(state.path()).expect("the same");
        let made = record.made().expect("it was written");
        assert_eq!((&made.spec, made.ready), (&Spec::Magp, false));
        assert!(record.folder().is_dir());
        record.clear().expect("writable");
        assert!(!record.folder().exists());
        drop(record);
        assert!(open(state.path()).expect("empty").made().is_none());
    }

    #[test]
    fn a_network_of_an_earlier_boot_is_gone_with_its_folder() {
        let state = tempfile::tempdir().expect("a folder");
        let mut record = open(state.path()).expect("a new one");
        record.write(&Spec::Magp, true).expect("writable");
        record.make_folder().expect("writable");
        let mut made = record.made.clone().expect("it was written");
        made.boot_id = "another".to_owned();
        let text = serde_json::to_vec(&made).expect("it has a form");
        record.state.replace(FILE, &text).expect("writable");
        drop(record);
        let record = open(state.path()).expect("readable");
        assert!(record.made().is_none());
        assert!(!record.folder().exists());
    }

    #[test]
    fn a_record_of_nonsense_is_refused_and_its_folder_kept() {
        let state = tempfile::tempdir().expect("a folder");
        let record = open(state.path()).expect("a new one");
        record.make_folder().expect("writable");
        record.state.replace(FILE, b"{").expect("writable");
        drop(record);
        let refused = open(state.path());
        assert!(matches!(refused, Err(RedundantError::Record { .. })));
        assert!(state.path().join(FOLDER).exists());
    }
}
