//! A directory private to this user, held open, and the files in it: the contents of an undo journal, a lock or a
//! note are acted on with this user's privileges, so no other user may have written them.
//!
//! The path to the directory is checked by [`Trust`]. A file is opened by its name in the directory without following
//! a link and without blocking (a FIFO), and the opened file must be a regular file of this user that no other user
//! can write to.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fchmod, fstat, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::regular_file;
use crate::trust::{Fault, Trust, Untrusted};

/// A directory of this user that no other user can write to.
#[derive(Debug)]
pub struct PrivateFolder {
    file: File,
    path: PathBuf,
    trust: Trust,
}

impl PrivateFolder {
    /// Opens the directory at `path`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let trust = Trust::of_this_process()?;
        let place = trust.follow(path)?;
        Self::at(&place.descriptor, OsStr::new("."), path, trust)
    }

    /// Opens the directory at `path`; missing directories are created with mode 0700.
    pub fn make(path: &Path) -> io::Result<Self> {
        let trust = Trust::of_this_process()?;
        let place = trust.make(path)?;
        Self::at(&place.descriptor, OsStr::new("."), path, trust)
    }

    fn at(
        above: impl std::os::fd::AsFd,
        name: &OsStr,
        path: &Path,
        trust: Trust,
    ) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(above, name, flags, Mode::empty())?);
        let folder = Self {
            file,
            path: path.to_owned(),
            trust,
        };
        folder.check(&folder.file, &folder.path)?;
        Ok(folder)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory itself: to sync it, to lock it, or to access its entries.
    pub fn as_file(&self) -> &File {
        &self.file
    }

    /// Opens a subdirectory, and creates it if it is missing; one that an earlier version made readable for others is
    /// made private.
    pub fn make_folder(&self, name: &str) -> io::Result<Self> {
        match mkdirat(&self.file, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let path = self.path.join(name);
        let folder = Self::at(&self.file, OsStr::new(name), &path, self.trust.clone())?;
        if fstat(&folder.file)?.st_mode & 0o077 != 0 {
            fchmod(&folder.file, Mode::RWXU)?;
        }
        Ok(folder)
    }

    /// Opens a file in this directory. `flags` are those of open(2); a created file has mode 0600.
    pub fn open_file(&self, name: impl AsRef<OsStr>, flags: OFlags) -> io::Result<File> {
        let name = one_name(name.as_ref())?;
        let safe = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let path = self.path.join(name);
        let not_a_file = || Untrusted {
            path: path.clone(),
            fault: Fault::NotAFile,
        };
        let file = match openat(&self.file, name, flags | safe, Mode::RUSR | Mode::WUSR) {
            // A link; or a FIFO or socket that cannot be opened this way.
            Err(Errno::LOOP | Errno::NXIO) => return Err(not_a_file().into()),
            opened => File::from(opened?),
        };
        if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
            return Err(not_a_file().into());
        }
        self.check(&file, &path)?;
        Ok(file)
    }

    /// Reads a whole file of at most `limit` bytes.
    pub fn read(&self, name: impl AsRef<OsStr>, limit: u64) -> io::Result<Vec<u8>> {
        regular_file::read_from(self.open_file(name, OFlags::RDONLY)?, limit)
    }

    /// Replaces a file atomically: it has either the new or the old content.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        regular_file::replace(&self.path.join(one_name(name.as_ref())?), 0o600, bytes)
    }

    /// Removes a file; succeeds if it does not exist.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.file, one_name(name.as_ref())?, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The names of its entries, sorted.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.file)? {
            let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Syncs its entries to stable storage.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn check(&self, opened: &File, path: &Path) -> io::Result<()> {
        let stat = fstat(opened)?;
        if stat.st_uid != geteuid().as_raw() {
            let fault = Fault::Owner(stat.st_uid);
            let path = path.to_owned();
            return Err(Untrusted { path, fault }.into());
        }
        Ok(self.trust.check_writers(path, &stat)?)
    }
}

/// A name in a directory that cannot refer to another directory.
fn one_name(name: &OsStr) -> io::Result<&OsStr> {
    if name.as_bytes().contains(&b'/') {
        return Err(Errno::INVAL.into());
    }
    Ok(name)
}

/// Opens the file at `path`, which must be in a private directory, like [`PrivateFolder::open_file`].
pub fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::INVAL.into());
    };
    PrivateFolder::open(folder)?.open_file(name, flags)
}

/// Reads the file at `path`, which must be in a private directory, of at most `limit` bytes.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    regular_file::read_from(open(path, OFlags::RDONLY)?, limit)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

    use rustix::fs::{CWD, mknodat};

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("our own");
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).expect("there").mode() & 0o7777
    }

    #[track_caller]
    fn fault<T: std::fmt::Debug>(result: io::Result<T>) -> Fault {
        let error = result.expect_err("not private");
        Untrusted::of(&error).expect("that is why").fault
    }

    #[test]
    fn a_file_that_is_a_link_or_a_fifo_is_neither_read_nor_waited_for() {
        let all = tempfile::tempdir().expect("a folder");
        let folder = PrivateFolder::open(all.path()).expect("our own, below a sticky one");
        let limit = 1 << 20;
        fs::write(all.path().join("file"), "text").expect("written");
        assert_eq!(folder.read("file", limit).expect("our own"), b"text");
        symlink("/proc/self/cmdline", all.path().join("process")).expect("a link");
        symlink("file", all.path().join("beside")).expect("a link");
        let fifo = all.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
        for name in ["process", "beside", "fifo"] {
            assert_eq!(fault(folder.read(name, limit)), Fault::NotAFile, "{name}");
            assert_eq!(fault(read(&all.path().join(name), limit)), Fault::NotAFile);
            let writing = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
            assert_eq!(fault(folder.open_file(name, writing)), Fault::NotAFile);
        }
        let elsewhere = format!("../{}/file", all.path().file_name().expect("one").display());
        assert!(folder.read(&elsewhere, limit).is_err());
        assert!(folder.replace(&elsewhere, b"").is_err());
        assert!(folder.remove(&elsewhere).is_err());
    }

    #[test]
    fn what_others_may_write_to_is_refused() {
        let all = tempfile::tempdir().expect("a folder");
        let (path, inner) = (all.path().join("inner/file"), all.path().join("inner"));
        PrivateFolder::make(&inner).expect("made");
        fs::write(&path, "text").expect("written");
        for at_fault in [&path, &inner] {
            let before = mode(at_fault);
            set_mode(at_fault, 0o777);
            assert_eq!(fault(read(&path, 9)), Fault::Writable(0o777));
            set_mode(at_fault, before);
        }
        // Sticky directories are accepted as parents, but not as private directories.
        set_mode(&inner, 0o1777);
        assert_eq!(fault(read(&path, 9)), Fault::Writable(0o1777));
        set_mode(&inner, 0o755);
        assert_eq!(read(&path, 9).expect("read"), b"text");
    }

    #[test]
    #[expect(
        clippy::print_stderr,
        reason = "a test that cannot run says so where the runner counts it"
    )]
    fn root_reads_no_file_and_uses_no_folder_of_another_user() {
        if !geteuid().is_root() {
            eprintln!("SKIP: only root can give a file to another user");
            return;
        }
        let all = tempfile::tempdir().expect("a folder");
        let (path, inner) = (all.path().join("inner/file"), all.path().join("inner"));
        PrivateFolder::make(&inner).expect("made");
        fs::write(&path, "text").expect("written");
        for at_fault in [&path, &inner] {
            chown(at_fault, Some(1), None).expect("given away");
            assert_eq!(fault(read(&path, 9)), Fault::Owner(1));
            chown(at_fault, Some(0), None).expect("taken again");
        }
        assert_eq!(read(&path, 9).expect("read"), b"text");
        chown(&inner, Some(1), None).expect("given away");
        assert_eq!(fault(PrivateFolder::make(&inner)), Fault::Owner(1));
        assert_eq!(
            fault(PrivateFolder::make(&inner.join("new"))),
            Fault::Owner(1)
        );
    }

    #[test]
    fn folders_are_made_for_their_owner_alone_and_files_too() {
        let all = tempfile::tempdir().expect("a folder");
        let state = all.path().join("deep/state");
        let folder = PrivateFolder::make(&state).expect("made");
        folder.make_folder("pairs").expect("made");
        set_mode(&state.join("pairs"), 0o755);
        let pairs = folder.make_folder("pairs").expect("there");
        pairs.replace("note", b"text").expect("written");
        drop(pairs.open_file("lock", OFlags::RDWR | OFlags::CREATE));
        for name in ["deep", "deep/state", "deep/state/pairs"] {
            assert_eq!(mode(&all.path().join(name)), 0o700, "{name}");
        }
        assert_eq!(pairs.names().expect("listed"), ["lock", "note"]);
        for name in ["lock", "note"] {
            assert_eq!(mode(&pairs.path().join(name)), 0o600, "{name}");
        }
        // An existing directory that its user made readable for others is not changed.
        set_mode(&state, 0o755);
        PrivateFolder::make(&state).expect("there");
        assert_eq!(mode(&state), 0o755);
        pairs.remove("note").expect("removed");
        pairs.remove("note").expect("gone already");
    }
}
