//! The program files of processes (proc_pid_maps(5)). Processes are untrusted, and a file's path may meanwhile refer
//! to anything: a FIFO that blocks on open, a device, another file. So the mapped file itself is opened if the kernel
//! permits it (proc_pid_map_files(5) requires CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE), otherwise the one at its
//! path, if it is still the same file; and only regular files are opened for reading.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{CWD, FileType, FsWord, Mode, OFlags};

/// File systems whose files have several device numbers: `maps` has that of the file system, stat(2) that of a
/// subvolume or layer (`BTRFS_SUPER_MAGIC`, `OVERLAYFS_SUPER_MAGIC` in linux/magic.h).
const WITH_SEVERAL_DEVICES: [FsWord; 2] = [0x9123_683e, 0x794c_7630];

/// A mapped part of a program that contains code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mapped {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) offset: u64,
    /// As returned by stat(2).
    device: u64,
    inode: u64,
    pub(super) file: String,
}

impl Mapped {
    /// The identity of a file, independent of its path.
    pub(super) fn identity(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// Opens the file of this mapping of process `pid` for reading. Never blocks.
    pub(super) fn open(&self, pid: u32) -> io::Result<File> {
        let (start, end) = (self.start, self.end);
        let found = match path_only(&format!("/proc/{pid}/map_files/{start:x}-{end:x}"), true) {
            Ok(mapped) => mapped,
            // The program may be in another mount namespace, where that path is another file.
            Err(_) => self.checked(path_only(&format!("/proc/{pid}/root{}", self.file), false)?)?,
        };
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode);
        if kind != FileType::RegularFile {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            ));
        }
        // The same file that was checked, whatever its name refers to by now.
        let again = format!("/proc/self/fd/{}", found.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(File::from(rustix::fs::openat(
            CWD,
            again,
            flags,
            Mode::empty(),
        )?))
    }

    /// `found`, if it is the mapped file.
    fn checked(&self, found: OwnedFd) -> io::Result<OwnedFd> {
        let stat = rustix::fs::fstat(&found)?;
        let has_several = || {
            let kind = rustix::fs::fstatfs(&found).map(|of| of.f_type);
            kind.is_ok_and(|kind| WITH_SEVERAL_DEVICES.contains(&kind))
        };
        if stat.st_ino == self.inode && (stat.st_dev == self.device || has_several()) {
            return Ok(found);
        }
        Err(io::Error::new(
            io::ErrorKind::NotFound,
            "the mapped file no longer exists",
        ))
    }
}

/// An `O_PATH` descriptor: it does not block on a FIFO or open a device.
fn path_only(path: &str, follow: bool) -> io::Result<OwnedFd> {
    let last = if follow {
        OFlags::empty()
    } else {
        OFlags::NOFOLLOW
    };
    let flags = OFlags::PATH | OFlags::CLOEXEC | last;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

/// The executable parts of `start-end perms offset device inode path`.
pub(super) fn parse_maps(text: &str) -> Vec<Mapped> {
    let part = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let executable = words.next()?.contains('x');
        let offset = words.next()?;
        let (major, minor) = words.next()?.split_once(':')?;
        let inode = words.next()?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let number = |text: &str| u32::from_str_radix(text, 16).ok();
        let file = words.next().map_or_else(String::new, |first| {
            // A path may contain spaces.
            line.find(first).map_or(first, |at| &line[at..]).to_owned()
        });
        executable.then_some(Mapped {
            start: hex(start)?,
            end: hex(end)?,
            offset: hex(offset)?,
            device: rustix::fs::makedev(number(major)?, number(minor)?),
            inode: inode.parse().ok()?,
            file: file.trim_end_matches(" (deleted)").to_owned(),
        })
    };
    text.lines().filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read, Write};
    use std::process::{Child, Command, Stdio};

    use proptest::prelude::*;

    use super::*;

    /// A child process that ends with the test.
    struct Process(Child);

    impl Process {
        /// Runs a copy of `cat` in `folder`, and returns its code mapping of that file.
        #[expect(
            clippy::disallowed_methods,
            reason = "another process is what the test is about"
        )]
        fn start(folder: &std::path::Path) -> (Self, Mapped) {
            let program = folder.join("program");
            // Copied by another process: with a write descriptor inherited by another test's fork, the start would
            // fail (ETXTBSY).
            let copied = Command::new("cp").arg("/bin/cat").arg(&program).status();
            assert!(copied.expect("started").success());
            let mut started = Command::new(&program);
            started.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut process = Self(started.spawn().expect("started"));
            // Its response shows that it runs from its own file.
            let (stdin, stdout) = (process.0.stdin.as_mut(), process.0.stdout.as_mut());
            stdin.expect("a pipe").write_all(b"x").expect("written");
            let mut echo = [0];
            stdout.expect("a pipe").read_exact(&mut echo).expect("read");
            let maps = fs::read_to_string(format!("/proc/{}/maps", process.0.id())).expect("maps");
            let name = program.to_string_lossy();
            let own = parse_maps(&maps).into_iter().find(|one| one.file == name);
            (process, own.expect("it runs from its own file"))
        }

        fn pid(&self) -> u32 {
            self.0.id()
        }
    }

    impl Drop for Process {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Finds the file like a user without access to `map_files`.
    fn by_path(mapped: &Mapped, pid: u32) -> io::Result<OwnedFd> {
        mapped.checked(path_only(
            &format!("/proc/{pid}/root{}", mapped.file),
            false,
        )?)
    }

    #[test]
    fn the_program_of_a_process_is_opened_by_its_mapping_and_by_its_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let (process, mapped) = Process::start(folder.path());
        let mut head = [0; 4];
        let mut file = mapped.open(process.pid()).expect("opened");
        file.read_exact(&mut head).expect("read");
        assert_eq!(&head, b"\x7fELF");
        by_path(&mapped, process.pid()).expect("found");
    }

    #[test]
    fn a_fifo_a_link_or_another_file_where_a_program_was_is_neither_waited_for_nor_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let (process, mapped) = Process::start(folder.path());
        let path = folder.path().join("program");
        let moved = folder.path().join("moved");
        fs::rename(&path, &moved).expect("renamed");
        let other = |name: &str| {
            let refused = by_path(&mapped, process.pid());
            let error = refused.expect_err(name);
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{name}: {error}");
            // If the kernel provides the mapped file, that is read, not its replacement.
            if let Ok(mut file) = mapped.open(process.pid()) {
                let mut head = [0; 4];
                file.read_exact(&mut head).expect("read");
                assert_eq!(&head, b"\x7fELF", "{name}");
            }
            fs::remove_file(&path).expect("removed");
        };
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .expect("a FIFO");
        other("a FIFO");
        std::os::unix::fs::symlink("/dev/zero", &path).expect("a link");
        other("a link to a device");
        fs::write(&path, "another program").expect("written");
        other("another file");
        assert!(by_path(&mapped, process.pid()).is_err());
    }

    #[test]
    fn what_is_no_regular_file_is_never_opened_for_reading() {
        let zero = fs::metadata("/dev/zero").expect("a device");
        let mapped = Mapped {
            start: 0,
            end: 0,
            offset: 0,
            device: std::os::unix::fs::MetadataExt::dev(&zero),
            inode: std::os::unix::fs::MetadataExt::ino(&zero),
            file: "/dev/zero".to_owned(),
        };
        let refused = mapped.open(std::process::id()).expect_err("a device");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{refused}");
    }

    #[test]
    fn maps_tell_which_file_code_is_from() {
        let text = "55d0-55e0 r--p 00000000 08:01 7 /usr/bin/a b\n\
                    55e0-55f0 r-xp 00010000 08:01 7 /usr/bin/a b (deleted)\n\
                    7fff-8000 r-xp 00000000 00:00 0 [vdso]\n9000-9010 rwxp 00000000 00:00 0";
        let maps = parse_maps(text);
        let files: Vec<_> = maps.iter().map(|one| one.file.as_str()).collect();
        assert_eq!(files, ["/usr/bin/a b", "[vdso]", ""]);
        assert_eq!((maps[0].start, maps[0].offset), (0x55e0, 0x10000));
        assert_eq!(maps[0].identity(), (0x801, 7));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9a-f]{1,4}-[0-9a-f]{1,4} r-xp [0-9a-f]{0,4}.{0,20}") {
            let _ = parse_maps(&text);
        }
    }
}
