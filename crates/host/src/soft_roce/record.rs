//! The record of what was created: one JSON file, replaced atomically, under a lock.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use linerate_model::ids::NicName;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::error::SoftRoceError;
use super::wire::Wire;
use crate::apply::{NetnsIdentity, boot_id};
use crate::private_folder::PrivateFolder;

/// Something that was created, or was about to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CreatedObject {
    /// Modules were loaded, in addition to those loaded `before`.
    Modules {
        /// Every module that was loaded before.
        before: BTreeSet<String>,
    },
    /// A wire of two ends.
    Wire(Wire),
    /// An RDMA device.
    Device {
        /// Its name.
        name: String,
        /// Its interface.
        nic: NicName,
    },
}

impl CreatedObject {
    pub(super) fn wire(&self) -> Option<&Wire> {
        match self {
            Self::Wire(wire) => Some(wire),
            _ => None,
        }
    }

    pub(super) fn device(&self) -> Option<(&str, &NicName)> {
        match self {
            Self::Device { name, nic } => Some((name, nic)),
            _ => None,
        }
    }
}

/// The file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    schema: String,
    boot_id: String,
    netns: NetnsIdentity,
    made: Vec<CreatedObject>,
}

const SCHEMA: &str = "linerate.testbed-rxe-record/1";
/// The record, in the state directory.
const FILE: &str = "testbed-rxe.json";
/// The maximum size of a record: 1,000 devices with their wires.
const BYTES_MAX: u64 = 1 << 20;

/// The record of this boot, locked by this process.
#[derive(Debug)]
pub(super) struct Record {
    folder: PrivateFolder,
    path: PathBuf,
    content: Content,
    lock: File,
}

impl Record {
    pub(super) fn open(state: &Path) -> Result<Self, SoftRoceError> {
        let step =
            |doing: &str, path: &Path| SoftRoceError::doing(format!("{doing} {}", path.display()));
        let folder = PrivateFolder::make(state).map_err(step("use the folder", state))?;
        let lock_path = state.join("testbed-rxe.lock");
        let lock = folder.open_file("testbed-rxe.lock", OFlags::RDWR | OFlags::CREATE);
        let lock = lock.map_err(step("open", &lock_path))?;
        lock.lock().map_err(step("lock", &lock_path))?;

        let identity = |error: crate::apply::IdentityError| {
            SoftRoceError::doing("tell this boot and network namespace")(io::Error::other(error))
        };
        let empty = Content {
            schema: SCHEMA.to_owned(),
            boot_id: boot_id().map_err(identity)?,
            netns: NetnsIdentity::current().map_err(identity)?,
            made: Vec::new(),
        };
        let path = state.join(FILE);
        let content = match folder.read(FILE, BYTES_MAX) {
            Ok(bytes) => pick(&bytes, empty, &path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => empty,
            Err(error) => return Err(step("read", &path)(error)),
        };
        Ok(Self {
            folder,
            path,
            content,
            lock,
        })
    }

    /// What stays locked while it is open, by any process.
    pub(super) fn lock(&self) -> &File {
        &self.lock
    }

    /// Everything that was created, oldest first.
    pub(super) fn made(&self) -> &[CreatedObject] {
        &self.content.made
    }

    /// Records that `made` is about to be created.
    pub(super) fn write(&mut self, made: CreatedObject) -> Result<(), SoftRoceError> {
        let mut all = self.content.made.clone();
        all.push(made);
        self.replace(all)
    }

    /// Replaces the record's entries.
    pub(super) fn replace(&mut self, made: Vec<CreatedObject>) -> Result<(), SoftRoceError> {
        self.content.made = made;
        let written = if self.content.made.is_empty() {
            self.folder.remove(FILE)
        } else {
            let text = serde_json::to_vec_pretty(&self.content).map_err(io::Error::other);
            text.and_then(|text| self.folder.replace(FILE, &text))
        };
        written.map_err(SoftRoceError::doing(format!(
            "write {}",
            self.path.display()
        )))
    }
}

/// The record on disk, if it is of this boot; otherwise `empty`.
fn pick(bytes: &[u8], empty: Content, path: &Path) -> Result<Content, SoftRoceError> {
    let wrong = |why: String| SoftRoceError::Record {
        path: path.to_owned(),
        why,
    };
    let content: Content =
        serde_json::from_slice(bytes).map_err(|error| wrong(error.to_string()))?;
    if content.schema != SCHEMA {
        return Err(wrong(format!("it is {}", content.schema)));
    }
    if content.boot_id != empty.boot_id {
        return Ok(empty);
    }
    if !content.netns.is(&empty.netns) {
        return Err(SoftRoceError::ElsewhereMade {
            path: path.to_owned(),
        });
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn device(name: &str) -> CreatedObject {
        CreatedObject::Device {
            name: name.to_owned(),
            nic: "eth0".parse().expect("a name"),
        }
    }

    #[test]
    fn what_was_written_is_there_for_the_next_process_and_gone_with_the_last() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut record = Record::open(folder.path()).expect("a new one");
        record.write(device("rxe0")).expect("writable");
        record.write(device("rxe1")).expect("writable");
        drop(record);
        let mut record = Record::open(folder.path()).expect("the same");
        assert_eq!(record.made(), [device("rxe0"), device("rxe1")]);
        record.replace(Vec::new()).expect("writable");
        assert!(!folder.path().join("testbed-rxe.json").exists());
    }

    #[test]
    fn a_record_or_a_lock_that_is_a_link_is_neither_read_nor_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let victim = folder.path().join("victim");
        fs::write(&victim, "{}").expect("writable");
        for name in ["testbed-rxe.lock", FILE] {
            let place = folder.path().join(name);
            symlink(&victim, &place).expect("a link");
            assert!(Record::open(folder.path()).is_err(), "{name}");
            fs::remove_file(&place).expect("our own");
        }
        assert_eq!(fs::read(&victim).expect("untouched"), b"{}");
        assert!(Record::open(folder.path()).is_ok());
    }

    #[test]
    fn a_record_of_an_earlier_boot_is_void() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut record = Record::open(folder.path()).expect("a new one");
        record.content.boot_id = "another".to_owned();
        record.write(device("rxe0")).expect("writable");
        drop(record);
        let record = Record::open(folder.path()).expect("readable");
        assert_eq!(record.made(), []);
    }

    #[test]
    fn a_record_of_another_namespace_or_of_nonsense_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut record = Record::open(folder.path()).expect("a new one");
        record.content.netns = NetnsIdentity {
            inode: 1,
            cookie: Some(1),
        };
        record.write(device("rxe0")).expect("writable");
        drop(record);
        let refused = Record::open(folder.path());
        assert!(matches!(refused, Err(SoftRoceError::ElsewhereMade { .. })));
        drop(refused);
        fs::write(folder.path().join("testbed-rxe.json"), "{").expect("writable");
        let refused = Record::open(folder.path());
        assert!(matches!(refused, Err(SoftRoceError::Record { .. })));
    }
}
