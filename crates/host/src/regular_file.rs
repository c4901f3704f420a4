//! Safe access to untrusted files: reading never blocks on a FIFO, opens no device and stops at a limit; replacing
//! never follows a link and is atomic.
//!
//! `open(2)` of a FIFO blocks until there is a writer unless `O_NONBLOCK` is given (fifo(7)), and opening a device
//! can have side effects, so the type is checked before the open, and again on the opened descriptor.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process::geteuid;

/// Opens a regular file for reading. Anything else is [`io::ErrorKind::InvalidInput`]. Links are followed.
pub fn open(path: &Path) -> io::Result<File> {
    require_regular(&fs::metadata(path)?)?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    // The name may refer to something else by now.
    require_regular(&file.metadata()?)?;
    Ok(file)
}

/// Opens or creates a regular file for writing, according to `options`. Follows no link, and never blocks.
pub fn open_to_write(path: &Path, options: &OpenOptions) -> io::Result<File> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        found => require_regular(&found?)?,
    }
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = options.clone();
    let file = options
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    require_regular(&file.metadata()?)?;
    Ok(file)
}

/// Opens a file like [`open`], if it belongs to the effective user and is not world-writable. Otherwise the error is
/// [`io::ErrorKind::PermissionDenied`].
pub fn open_own(path: &Path) -> io::Result<File> {
    let file = open(path)?;
    require_own(&file)?;
    Ok(file)
}

/// Rejects an open file of another user, and a world-writable one.
pub fn require_own(file: &File) -> io::Result<()> {
    let (found, user) = (file.metadata()?, geteuid().as_raw());
    let why = if found.uid() != user {
        format!("owned by uid {}, not by uid {user}", found.uid())
    } else if found.mode() & 0o002 != 0 {
        "world-writable".to_owned()
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

fn require_regular(metadata: &fs::Metadata) -> io::Result<()> {
    let not_regular = || io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
    metadata.is_file().then_some(()).ok_or_else(not_regular)
}

/// Reads a whole regular file of at most `limit` bytes. A longer one is [`io::ErrorKind::FileTooLarge`].
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_from(open(path)?, limit)
}

/// Reads text of at most `limit` bytes from a file that a user named, including a FIFO such as a shell's
/// `<(COMMAND)`.
pub fn read_named_text(path: &Path, limit: u64) -> io::Result<String> {
    text_from(File::open(path)?, limit)
}

/// Reads the rest of an open file, at most `limit` bytes.
pub fn read_from(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let why = format!("longer than {limit} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// The same as text. What is not UTF-8 is [`io::ErrorKind::InvalidData`].
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    text_from(open(path)?, limit)
}

/// Reads the rest of an open file as text.
pub fn text_from(file: File, limit: u64) -> io::Result<String> {
    let text = String::from_utf8(read_from(file, limit)?);
    text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8"))
}

/// Writes a file under a random name beside `path` (`O_EXCL`, so no link is followed), syncs it, and renames it to
/// `path`, which then has either the complete new content or the old one. `mode` is subject to the umask.
pub fn replace_with<T>(
    path: &Path,
    mode: u32,
    write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<T>,
) -> io::Result<T> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    // If it is dropped before it is persisted, it is removed.
    let file = tempfile::Builder::new()
        .prefix(".linerate-")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(folder)?;
    let mut buffer = BufWriter::new(file.as_file());
    let written = write(&mut buffer)?;
    buffer.flush()?;
    drop(buffer);
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(written)
}

/// [`replace_with`] for bytes in memory.
pub fn replace(path: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    replace_with(path, mode, |file| file.write_all(bytes))
}

/// [`replace_with`] for a path that a user named. A FIFO, a socket or a device is written to directly, and so is a
/// descriptor of this process (`/dev/stdout`, `/dev/fd/63`). Any other link is replaced: in a directory that others
/// can write to, it may refer to another user's file.
pub fn write_named<T>(
    path: &Path,
    mode: u32,
    write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<T>,
) -> io::Result<T> {
    if is_written_in_place(path) {
        write_in_place(path, write)
    } else {
        replace_with(path, mode, write)
    }
}

/// [`write_named`] for bytes in memory that services of other users read: a file that is replaced has mode 0644,
/// whatever the umask is.
pub fn publish_named(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if is_written_in_place(path) {
        return write_in_place(path, |file| file.write_all(bytes));
    }
    replace_with(path, 0o644, |file| {
        file.get_ref()
            .set_permissions(Permissions::from_mode(0o644))?;
        file.write_all(bytes)
    })
}

/// Whether a path is a FIFO, a socket, a device or a descriptor of this process.
fn is_written_in_place(path: &Path) -> bool {
    let found = fs::symlink_metadata(path).map(|found| found.file_type());
    found.is_ok_and(|found| !found.is_file() && !found.is_symlink()) || is_own_descriptor(path)
}

fn write_in_place<T>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<T>,
) -> io::Result<T> {
    // Appends to what the shell's `>>`, or an earlier command, wrote.
    let file = OpenOptions::new().append(true).open(path)?;
    let mut buffer = BufWriter::new(&file);
    let written = write(&mut buffer)?;
    buffer.flush()?;
    Ok(written)
}

/// Whether a path is below `/proc/self/fd`, or a link to such a path.
fn is_own_descriptor(path: &Path) -> bool {
    let descriptors = Path::new("/proc/self/fd");
    let is_within = |path: &Path| {
        let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
        folder.is_some() && folder == descriptors.canonicalize().ok()
    };
    is_within(path) || fs::read_link(path).is_ok_and(|to| to.parent() == Some(descriptors))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode};

    use super::*;

    #[test]
    fn what_is_no_regular_file_is_refused_and_never_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let fifo = folder.path().join("fifo");
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .expect("a FIFO");
        let to_zero = folder.path().join("zero");
        symlink("/dev/zero", &to_zero).expect("a link");
        for path in [fifo.as_path(), to_zero.as_path(), folder.path()] {
            let refused = open(path).expect_err("no regular file");
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{path:?}");
        }
    }

    #[test]
    fn a_file_longer_than_the_limit_is_refused_and_one_as_long_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        fs::write(&path, "12345").expect("written");
        assert_eq!(read_text(&path, 5).expect("read"), "12345");
        let refused = read(&path, 4).expect_err("too long");
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn replacing_follows_no_link_and_leaves_nothing_beside_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let (victim, path) = (folder.path().join("victim"), folder.path().join("page"));
        fs::write(&victim, "untouched").expect("written");
        symlink(&victim, &path).expect("a link");
        replace(&path, 0o600, b"new").expect("replaced");
        assert_eq!(fs::read(&victim).expect("read"), b"untouched");
        assert_eq!(fs::read(&path).expect("read"), b"new");
        let found = fs::symlink_metadata(&path).expect("there");
        assert_eq!(found.mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 2);
    }

    #[test]
    fn what_is_opened_to_write_is_a_regular_file_that_no_link_leads_to() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("victim"), "untouched").expect("written");
        symlink(path("victim"), path("link")).expect("a link");
        symlink(path("new"), path("dangling")).expect("a link");
        rustix::fs::mknodat(CWD, path("fifo"), FileType::Fifo, Mode::RWXU, 0).expect("a FIFO");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let open_made = |name: &str| open_to_write(&path(name), &options);
        for name in ["link", "dangling", "fifo"] {
            let refused = open_made(name).expect_err("no regular file");
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{name}");
        }
        assert!(!path("new").exists());
        let made = open_made("new file").expect("a new file");
        assert_eq!(made.metadata().expect("open").mode() & 0o777, 0o600);
        open_made("new file").expect("one that is there");
    }

    #[test]
    fn what_a_user_names_is_replaced_unless_it_is_a_fifo_or_an_own_descriptor() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let write = |path: &Path| write_named(path, 0o600, |file| file.write_all(b"new"));
        fs::write(path("victim"), "old").expect("written");
        symlink(path("victim"), path("link")).expect("a link");
        write(&path("link")).expect("replaced");
        assert_eq!(fs::read(path("victim")).expect("read"), b"old");
        assert_eq!(fs::read(path("link")).expect("read"), b"new");

        let victim = OpenOptions::new().append(true).open(path("victim"));
        let victim = victim.expect("open");
        let descriptor = format!("/proc/self/fd/{}", victim.as_raw_fd());
        write(Path::new(&descriptor)).expect("written");
        symlink(&descriptor, path("descriptor")).expect("a link");
        write(&path("descriptor")).expect("written");
        assert_eq!(fs::read(path("victim")).expect("read"), b"oldnewnew");

        rustix::fs::mknodat(CWD, path("fifo"), FileType::Fifo, Mode::RWXU, 0).expect("a FIFO");
        let both = OpenOptions::new().read(true).write(true).open(path("fifo"));
        let both = both.expect("both ends");
        write(&path("fifo")).expect("written");
        let mut read = [0; 3];
        (&both).read_exact(&mut read).expect("what was written");
        assert_eq!(&read, b"new");
        assert!(fs::symlink_metadata(path("fifo")).is_ok_and(|found| !found.is_file()));
    }

    #[test]
    fn a_published_file_is_readable_by_everybody_and_a_device_keeps_its_mode() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        fs::write(&path, "old").expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("our own file");
        publish_named(&path, b"new").expect("replaced");
        assert_eq!(fs::read(&path).expect("read"), b"new");
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o7777, 0o644);
        let mode = || fs::metadata("/dev/null").expect("there").mode();
        let before = mode();
        publish_named(Path::new("/dev/null"), b"new").expect("written");
        assert_eq!(mode(), before);
    }

    #[test]
    fn a_file_that_everybody_may_write_is_nobodys_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        fs::write(&path, "").expect("written");
        for (mode, is_own) in [(0o664, true), (0o666, false)] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("our own file");
            assert_eq!(open_own(&path).is_ok(), is_own, "{mode:o}");
        }
    }

    #[test]
    fn a_write_that_fails_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("page");
        fs::write(&path, "old").expect("written");
        let failed = replace_with(&path, 0o600, |_| -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(
            failed.expect_err("no space").kind(),
            io::ErrorKind::StorageFull
        );
        assert_eq!(fs::read(&path).expect("read"), b"old");
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 1);
    }
}
