//! The key of this host, and the folder that holds it.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;

use linerate_host::private_folder::PrivateFolder;
use linerate_model::pairing::PublicKey;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use rustix::fs::{FlockOperation, OFlags, flock};

use crate::ChannelError;

/// The file with the key, PKCS #8 (RFC 8410).
const FILE: &str = "identity";
/// A key with its public half has 83 bytes.
const KEY_BYTES_MAX: u64 = 256;
/// The lock of the folder's files.
const LOCK: &str = "lock";

/// The key pair of this host. It is made when it is first needed, and never leaves the host.
pub struct Identity {
    pkcs8: Vec<u8>,
    key: PublicKey,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identity").field(&self.key).finish()
    }
}

impl Identity {
    /// Reads the key of this host, or makes it. `state` is linerate's state folder.
    pub fn of(state: &Path) -> Result<Self, ChannelError> {
        let shown = state.join(FOLDER).join(FILE);
        let failed =
            || ChannelError::files(format!("read the key of this host, {}", shown.display()));
        let folder = folder(state)?;
        let _lock = lock(&folder)?;
        match folder.read(FILE, KEY_BYTES_MAX) {
            Ok(pkcs8) => Self::from_pkcs8(pkcs8).map_err(failed()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())
                    .map_err(|_| io::Error::other("the kernel gives no random numbers"));
                let pkcs8 = made.map_err(failed())?.as_ref().to_vec();
                (folder.replace(FILE, &pkcs8)).map_err(ChannelError::files(format!(
                    "write the key of this host, {}",
                    shown.display()
                )))?;
                Self::from_pkcs8(pkcs8).map_err(failed())
            }
            Err(error) => Err(failed()(error)),
        }
    }

    fn from_pkcs8(pkcs8: Vec<u8>) -> io::Result<Self> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, "it is no Ed25519 key");
        let pair = Ed25519KeyPair::from_pkcs8(&pkcs8).map_err(|_| invalid())?;
        let key = pair
            .public_key()
            .as_ref()
            .try_into()
            .map_err(|_| invalid())?;
        let key = PublicKey(key);
        Ok(Self { pkcs8, key })
    }

    /// The public key.
    pub fn key(&self) -> PublicKey {
        self.key
    }

    pub(crate) fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }
}

/// The folder of the keys below the state folder.
const FOLDER: &str = "keys";

pub(crate) fn folder(state: &Path) -> Result<PrivateFolder, ChannelError> {
    let path = state.join(FOLDER);
    PrivateFolder::make(&path).map_err(ChannelError::files(format!(
        "use the folder of the keys, {}",
        path.display()
    )))
}

/// The same, if it is there: reading creates nothing.
pub(crate) fn existing_folder(state: &Path) -> Result<Option<PrivateFolder>, ChannelError> {
    let path = state.join(FOLDER);
    match PrivateFolder::open(&path) {
        Ok(folder) => Ok(Some(folder)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ChannelError::files(format!(
            "use the folder of the keys, {}",
            path.display()
        ))(error)),
    }
}

/// Locks the folder's files until the result is dropped.
pub(crate) fn lock(folder: &PrivateFolder) -> Result<File, ChannelError> {
    let locked = folder
        .open_file(LOCK, OFlags::RDWR | OFlags::CREATE)
        .and_then(|file| {
            flock(&file, FlockOperation::LockExclusive)?;
            Ok(file)
        });
    locked.map_err(ChannelError::files(format!(
        "lock {}",
        folder.path().join(LOCK).display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_host_is_made_once_and_readable_by_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let state = tempfile::tempdir().expect("a folder");
        let first = Identity::of(state.path()).expect("made").key();
        assert_eq!(Identity::of(state.path()).expect("read").key(), first);
        let file = state.path().join(FOLDER).join(FILE);
        let mode = std::fs::metadata(&file)
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let elsewhere = tempfile::tempdir().expect("a folder");
        assert_ne!(Identity::of(elsewhere.path()).expect("made").key(), first);
        std::fs::write(&file, "no key").expect("written");
        let error = Identity::of(state.path()).expect_err("it is damaged");
        assert!(error.to_string().contains("no Ed25519 key"), "{error}");
    }
}
