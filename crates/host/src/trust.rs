//! Checks whether only trusted users can have created a path.
//!
//! Whoever can write to a directory, or owns it, can replace its entries. A path is therefore followed component by
//! component, by descriptor and without letting the kernel follow a link, and each directory, each link and the file
//! at the end must belong to a trusted user and be writable by no other. In a directory with the sticky bit (`/tmp`)
//! only the owner of an entry may rename or remove it (`unlink(2)`, EPERM), so the entry's owner decides.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf, absolute};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, mkdirat, openat, readlinkat};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

/// The kernel's maximum number of links in a path (path_resolution(7)).
const LINKS_MAX: u32 = 40;

/// The trusted owners of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trust {
    owners: Vec<u32>,
    /// A group that may write because it has a single member.
    private_group: Option<u32>,
    /// Whether a world-writable sticky directory is accepted as a parent.
    sticky: bool,
}

/// The problem with a part of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Untrusted {
    /// The file, link or directory.
    pub path: PathBuf,
    /// The problem.
    pub fault: Fault,
}

/// Why something is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It belongs to this user.
    Owner(u32),
    /// Users other than its owner can write to it; the permission bits.
    Writable(u32),
    /// It is not a regular file.
    NotAFile,
    /// It is not a directory.
    NotAFolder,
}

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match self.fault {
            Fault::Owner(uid) => write!(f, "{path} belongs to another user (uid {uid})"),
            Fault::Writable(mode) => write!(f, "other users may write to {path} (mode {mode:04o})"),
            Fault::NotAFile => write!(f, "{path} is not a regular file"),
            Fault::NotAFolder => write!(f, "{path} is not a directory"),
        }
    }
}

impl std::error::Error for Untrusted {}

impl From<Untrusted> for io::Error {
    fn from(untrusted: Untrusted) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, untrusted)
    }
}

impl Untrusted {
    /// The problem with a path, if that is the cause of `error`.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

/// A checked path.
#[derive(Debug)]
pub struct Place {
    /// Its resolved name.
    pub path: PathBuf,
    /// Opened with `O_PATH`.
    pub(crate) descriptor: OwnedFd,
    /// Its metadata when it was checked.
    pub(crate) stat: Stat,
}

impl Trust {
    /// For programs that run as `user` later without supervision, when the contents of a sticky directory may have
    /// been replaced: only that user and root are trusted.
    pub fn for_later(user: u32) -> Self {
        Self {
            owners: vec![user, 0],
            private_group: None,
            sticky: false,
        }
    }

    /// For what this process uses now: trusts its own user, root, and the owner of `/`, who could replace everything
    /// anyway (in a user namespace root is shown as the overflow user, user_namespaces(7)). A user's private group,
    /// with the same number, may write too: many distributions create directories that way (umask 002).
    pub fn of_this_process() -> io::Result<Self> {
        let user = geteuid().as_raw();
        let above_all = rustix::fs::stat("/")?.st_uid;
        let group = getegid().as_raw();
        Ok(Self {
            owners: vec![user, 0, above_all],
            private_group: (user != 0 && group == user).then_some(group),
            sticky: true,
        })
    }

    fn check(&self, path: &Path, stat: &Stat) -> Result<(), Untrusted> {
        let fault = |fault| {
            let path = path.to_owned();
            Err(Untrusted { path, fault })
        };
        if !self.owners.contains(&stat.st_uid) {
            return fault(Fault::Owner(stat.st_uid));
        }
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_kept = self.sticky && kind.is_dir() && stat.st_mode & 0o1000 != 0;
        // The permission bits of a link have no meaning (symlink(7)).
        if kind.is_symlink() || is_kept {
            return Ok(());
        }
        self.check_writers(path, stat)
    }

    /// Whether any other user can write to it.
    pub(crate) fn check_writers(&self, path: &Path, stat: &Stat) -> Result<(), Untrusted> {
        let by_group = stat.st_mode & 0o020 != 0 && self.private_group != Some(stat.st_gid);
        if by_group || stat.st_mode & 0o002 != 0 {
            let fault = Fault::Writable(stat.st_mode & 0o7777);
            let path = path.to_owned();
            return Err(Untrusted { path, fault });
        }
        Ok(())
    }

    /// Follows `path` to its end. The error is an [`Untrusted`] if a part of it is not trusted.
    pub fn follow(&self, path: &Path) -> io::Result<Place> {
        self.walk(path, false)
    }

    /// The same; missing directories are created, for this user alone.
    pub(crate) fn make(&self, path: &Path) -> io::Result<Place> {
        self.walk(path, true)
    }

    /// Follows `path` as far as it exists, for files created there later.
    pub fn follow_existing(&self, path: &Path) -> io::Result<()> {
        let path = absolute(path)?;
        let mut existing = path.as_path();
        loop {
            match self.follow(existing) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                followed => return followed.map(drop),
            }
            let Some(above) = existing.parent() else {
                return Ok(());
            };
            existing = above;
        }
    }

    /// A program: a regular file.
    pub fn follow_program(&self, path: &Path) -> io::Result<PathBuf> {
        let place = self.follow(path)?;
        if FileType::from_raw_mode(place.stat.st_mode) != FileType::RegularFile {
            let path = place.path;
            let fault = Fault::NotAFile;
            return Err(Untrusted { path, fault }.into());
        }
        Ok(place.path)
    }

    fn walk(&self, path: &Path, makes: bool) -> io::Result<Place> {
        let path = absolute(path)?;
        let mut above = vec![self.enter(CWD, OsStr::new("/"), Path::new("/"), false)?];
        let mut ahead: Vec<OsString> = names_backwards(&path);
        let mut links = 0;
        while let Some(name) = ahead.pop() {
            if name == ".." {
                // All parents are real directories; `/..` is `/`.
                if above.len() > 1 {
                    above.pop();
                }
                continue;
            }
            let last = above.last().expect("the root stays");
            let named = last.path.join(&name);
            let place = self.enter(&last.descriptor, &name, &named, makes)?;
            match FileType::from_raw_mode(place.stat.st_mode) {
                FileType::Directory => above.push(place),
                FileType::Symlink => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(Errno::LOOP.into());
                    }
                    let target = readlinkat(&place.descriptor, "", Vec::new())?;
                    let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                    if target.is_absolute() {
                        above.truncate(1);
                    }
                    ahead.extend(names_backwards(&target));
                }
                _ if ahead.is_empty() => return Ok(place),
                _ => return Err(Errno::NOTDIR.into()),
            }
        }
        Ok(above.pop().expect("the root stays"))
    }

    /// Opens one name in a directory, of any type, and checks it.
    fn enter(
        &self,
        folder: impl std::os::fd::AsFd,
        name: &OsStr,
        named: &Path,
        makes: bool,
    ) -> io::Result<Place> {
        let as_it_is = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // As a directory first: only that triggers an automount (openat(2), O_PATH).
        let open = || match openat(&folder, name, as_it_is | OFlags::DIRECTORY, Mode::empty()) {
            Err(Errno::NOTDIR | Errno::LOOP) => openat(&folder, name, as_it_is, Mode::empty()),
            opened => opened,
        };
        let descriptor = loop {
            match open() {
                // It may be removed again at once, as the lock directory is with the last lock.
                Err(Errno::NOENT) if makes => match mkdirat(&folder, name, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                },
                opened => break opened?,
            }
        };
        let stat = fstat(&descriptor)?;
        self.check(named, &stat)?;
        Ok(Place {
            path: named.to_owned(),
            descriptor,
            stat,
        })
    }
}

/// The components of a path without its root, the last one first.
fn names_backwards(path: &Path) -> Vec<OsString> {
    let name = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(name).collect()
}

/// The file of a program that this process is about to start, in the directories of `PATH` and then those of `after`.
/// Relative directories are skipped; root starts only programs that root, or the owner of `/`, can have created.
pub fn find_program(name: &str, after: &str) -> io::Result<PathBuf> {
    // The default search path without `PATH` (execvp(3)).
    let search = search_path().unwrap_or_else(|| "/bin:/usr/bin".into());
    let search = [search, after.into()].join(OsStr::new(":"));
    let trust = geteuid()
        .is_root()
        .then(Trust::of_this_process)
        .transpose()?;
    find_by(name, &search, trust.as_ref())
}

#[expect(
    clippy::disallowed_methods,
    reason = "what a program's name means is what it means to this process"
)]
fn search_path() -> Option<OsString> {
    std::env::var_os("PATH")
}

fn find_by(name: &str, search: &OsStr, trust: Option<&Trust>) -> io::Result<PathBuf> {
    let mut refused = None;
    for folder in search.as_bytes().split(|byte| *byte == b':') {
        let folder = Path::new(OsStr::from_bytes(folder));
        let file = folder.join(name);
        let may_run = || rustix::fs::access(&file, rustix::fs::Access::EXEC_OK).is_ok();
        if !folder.is_absolute() || !file.is_file() || !may_run() {
            continue;
        }
        match trust.map(|trust| trust.follow_program(&file)) {
            None | Some(Ok(_)) => return Ok(file),
            Some(Err(error)) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    use super::*;

    /// A directory with a program in it, and the trust of this process.
    fn made() -> (tempfile::TempDir, PathBuf, Trust) {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).expect("a folder");
        set_mode(&inner, 0o755);
        let program = inner.join("program");
        fs::write(&program, "#!/bin/sh\n").expect("written");
        set_mode(&program, 0o755);
        (folder, program, Trust::of_this_process().expect("/"))
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("our own");
    }

    #[track_caller]
    fn fault(trust: &Trust, path: &Path) -> Untrusted {
        let error = trust.follow_program(path).expect_err("not to be trusted");
        Untrusted::of(&error).expect("that is why").clone()
    }

    #[test]
    fn a_file_or_a_folder_above_it_that_others_may_write_to_is_not_trusted() {
        let (_folder, program, trust) = made();
        assert_eq!(trust.follow_program(&program).ok().as_ref(), Some(&program));
        let inner = program.parent().expect("a folder").to_owned();
        for at_fault in [&program, &inner] {
            for mode in [0o757, 0o777] {
                set_mode(at_fault, mode);
                let found = fault(&trust, &program);
                assert_eq!(found.fault, Fault::Writable(mode));
                assert_eq!(&found.path, at_fault);
            }
            set_mode(at_fault, 0o755);
        }
        assert!(trust.follow_program(&program).is_ok());
    }

    #[test]
    fn a_sticky_folder_may_stand_above_what_is_used_now_and_not_above_what_runs_later() {
        let (folder, program, trust) = made();
        set_mode(program.parent().expect("a folder"), 0o1777);
        assert!(trust.follow_program(&program).is_ok());
        let later = Trust {
            owners: trust.owners.clone(),
            ..Trust::for_later(geteuid().as_raw())
        };
        let found = fault(&later, &program);
        assert_eq!(found.fault, Fault::Writable(0o1777), "{found}");
        drop(folder);
    }

    #[test]
    fn what_belongs_to_another_user_is_not_trusted() {
        let (_folder, program, _) = made();
        let root = fs::metadata("/").expect("/");
        let root = std::os::unix::fs::MetadataExt::uid(&root);
        // For another user, the root directory's owner is not trusted.
        let stranger = Trust {
            owners: vec![root + 1],
            ..Trust::for_later(0)
        };
        let found = fault(&stranger, &program);
        assert_eq!(found.fault, Fault::Owner(root));
        assert_eq!(found.path, Path::new("/"));
    }

    #[test]
    #[expect(
        clippy::print_stderr,
        reason = "a test that cannot run says so where the runner counts it"
    )]
    fn a_program_a_folder_or_a_link_of_another_user_is_named() {
        if !geteuid().is_root() {
            eprintln!("SKIP: only root can give a file to another user");
            return;
        }
        let (folder, program, trust) = made();
        let link = folder.path().join("link");
        symlink(&program, &link).expect("a link");
        assert_eq!(trust.follow_program(&link).ok().as_ref(), Some(&program));
        let inner = program.parent().expect("a folder").to_owned();
        for at_fault in [&program, &inner, &link] {
            lchown(at_fault, Some(1), None).expect("given away");
            let found = fault(&trust, &link);
            assert_eq!((&found.path, found.fault), (at_fault, Fault::Owner(1)));
            lchown(at_fault, Some(0), None).expect("taken again");
        }
        chown(folder.path(), Some(1), None).expect("given away");
        assert_eq!(fault(&trust, &program).path, folder.path());
    }

    #[test]
    fn links_are_followed_to_what_is_checked_and_not_without_end() {
        let (folder, program, trust) = made();
        let inner = program.parent().expect("a folder");
        let (relative, around) = (folder.path().join("relative"), folder.path().join("around"));
        symlink("inner/../inner/./program", &relative).expect("a link");
        symlink("around", &around).expect("a link");
        assert_eq!(
            trust.follow_program(&relative).ok().as_ref(),
            Some(&program)
        );
        set_mode(inner, 0o777);
        assert_eq!(fault(&trust, &relative).path, inner);
        let error = trust.follow(&around).expect_err("it ends nowhere");
        assert_eq!(Errno::from_io_error(&error), Some(Errno::LOOP));
    }

    #[test]
    fn of_a_path_that_does_not_exist_yet_what_exists_is_checked() {
        let (_folder, program, trust) = made();
        let inner = program.parent().expect("a folder");
        let later = inner.join("state/of/linerate");
        assert!(trust.follow_existing(&later).is_ok());
        set_mode(inner, 0o777);
        let error = trust.follow_existing(&later).expect_err("others may write");
        assert!(Untrusted::of(&error).is_some_and(|found| found.path == inner));
    }

    #[test]
    fn a_program_is_taken_from_no_relative_folder_and_by_root_from_none_that_others_may_write_to() {
        let (_folder, program, trust) = made();
        let inner = program.parent().expect("a folder");
        let search = |folders: &[&str]| OsString::from(folders.join(":"));
        let name = "program";
        let text = inner.to_str().expect("a text");
        for relative in ["", ".", "inner"] {
            let error = find_by(name, &search(&[relative]), None).expect_err("relative");
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
        }
        let found = find_by(name, &search(&[".", "/nowhere", text]), Some(&trust));
        assert_eq!(found.ok(), Some(program.clone()));
        set_mode(inner, 0o777);
        assert_eq!(
            find_by(name, &search(&[text]), None).ok(),
            Some(program.clone())
        );
        let error = find_by(name, &search(&[text]), Some(&trust)).expect_err("others may write");
        assert!(Untrusted::of(&error).is_some_and(|found| found.path == inner));
    }
}
