//! Network namespaces by name, as `ip netns` stores them: files in `/run/netns` (ip-netns(8)). The peer `netns:NAME`
//! and the testbed open them with the same function.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;

use crate::sys;

/// The directory of named namespaces.
pub(crate) const FOLDER: &str = "/run/netns";

/// The file system type of namespace files (include/uapi/linux/magic.h); libc's constant has a platform-dependent
/// width.
const NSFS_MAGIC: u32 = 0x6e73_6673;

/// Why a namespace cannot be opened by its name.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// The name is invalid.
    #[error("`{name}` is not a namespace's name: it is a file's name below /run/netns")]
    Name {
        /// The name.
        name: String,
    },
    /// It does not exist, or is not readable.
    #[error("cannot open the network namespace `{name}` ({path}): {source}", path = path.display())]
    Open {
        /// The name.
        name: String,
        /// Its file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
}

pub(crate) fn path(name: &str) -> Result<PathBuf, NetnsError> {
    let plain = !name.is_empty()
        && name.len() <= 255
        && name != "."
        && name != ".."
        && !name.contains(['/', '\0']);
    if plain {
        Ok(PathBuf::from(FOLDER).join(name))
    } else {
        let name = name.to_owned();
        Err(NetnsError::Name { name })
    }
}

/// Whether something has that name, a namespace or a file that was left.
pub(crate) fn is_taken(name: &str) -> bool {
    path(name).is_ok_and(|path| path.symlink_metadata().is_ok())
}

/// Opens the namespace called `name`.
pub fn open(name: &str) -> Result<Netns, NetnsError> {
    let path = path(name)?;
    let failed = |source| NetnsError::Open {
        name: name.to_owned(),
        path: path.clone(),
        source,
    };
    let file = File::open(&path).map_err(failed)?;
    let kind = rustix::fs::fstatfs(&file).map_err(|error| failed(error.into()))?;
    // A failed `ip netns add` leaves a plain file with the name.
    if u32::try_from(kind.f_type) != Ok(NSFS_MAGIC) {
        let what = io::Error::new(io::ErrorKind::InvalidData, "not a namespace's file");
        return Err(failed(what));
    }
    Ok(Netns {
        name: name.to_owned(),
        file: file.into(),
    })
}

/// An open network namespace: it exists at least as long as this does.
#[derive(Debug)]
pub struct Netns {
    name: String,
    file: OwnedFd,
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Netns {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The child of `command` will run in this namespace: its sockets, `/proc/sys/net` and `/sys/class/net` are this
    /// host's. It is tied to the calling thread (see [`crate::tie_to_parent`]).
    pub fn enter_in_child(&self, command: &mut Command) -> io::Result<()> {
        sys::enter_netns(command, self.file.try_clone()?);
        // Last, because the steps before it change the process's permissions.
        sys::tie(command);
        Ok(())
    }

    /// Calls `work` in this namespace, in a new thread; sockets that it opens stay there. Files below `/sys` are
    /// still the caller's; use [`Netns::enter_in_child`] if they matter.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                sys::enter_thread(self.as_fd())?;
                Ok(work())
            });
            match thread.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_lead_out_of_its_folder() {
        for name in ["", ".", "..", "a/b", "../x", "a\0"] {
            assert!(
                matches!(open(name), Err(NetnsError::Name { .. })),
                "{name:?}"
            );
        }
    }

    #[test]
    fn a_namespace_that_is_not_there_is_named_in_the_error() {
        let error = open("no-such-host").expect_err("nobody made it");
        assert!(
            error
                .to_string()
                .starts_with("cannot open the network namespace `no-such-host`"),
            "{error}"
        );
    }
}
