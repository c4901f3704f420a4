//! Reads a host's `/proc` and `/sys` trees from a tar file (POSIX.1-1988 ustar, GNU and pax names), with or without
//! bzip2, directly into memory: nothing is unpacked to disk.

use std::cell::Cell;
use std::io::{self, Read};
use std::path::Path;

use tar::EntryType;

use super::error::CaptureError;
use super::open::FOLDERS_ABOVE_MAX;
use crate::root::FILE_BYTES_MAX;
use crate::root::limits::{Filling, Limit};
use crate::root::tree::{Entry, Tree};
use linerate_model::known::Cause;

/// The maximum unpacked size of the tar file.
const UNPACKED: Limit = Limit::of("its size unpacked in bytes", 256 << 20);
/// The maximum size of one file's headers: its header, GNU or pax names and attributes (one extended attribute has at
/// most 64 KiB), which the tar crate buffers; and of the data of a sparse file, which is skipped.
const HEADERS: Limit = Limit::of("the headers of one file in bytes", 256 << 10);

/// The compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Tar,
    TarBzip2,
}

/// The file type by its first 512 bytes.
pub(crate) fn form(start: &[u8]) -> Option<Form> {
    if start.starts_with(b"BZh") {
        Some(Form::TarBzip2)
    } else if start.get(257..262) == Some(b"ustar") {
        Some(Form::Tar)
    } else {
        None
    }
}

/// The host in a tar file.
pub(crate) fn read(path: &Path, from: impl Read, form: Form) -> Result<Tree, CaptureError> {
    let io = |source| CaptureError::Io {
        path: path.to_owned(),
        source,
    };
    let too_large = |limit: Limit| CaptureError::TooLarge {
        path: path.to_owned(),
        what: limit.what,
        limit: limit.most,
    };
    let from: Box<dyn Read + '_> = match form {
        Form::Tar => Box::new(from),
        Form::TarBzip2 => Box::new(bzip2::read::MultiBzDecoder::new(from)),
    };
    let gauge = Gauge::default();
    let failed = |error| gauge.broken.get().map_or_else(|| io(error), too_large);
    let mut filling = Filling::new(Tree::new(true));
    let mut archive = tar::Archive::new(Gauged {
        from,
        gauge: &gauge,
    });
    let mut entries = archive.entries().map_err(failed)?;
    loop {
        gauge.headers.set(Some(HEADERS.most));
        let Some(entry) = entries.next() else {
            break;
        };
        gauge.headers.set(None);
        let put = put(&mut filling, entry.map_err(failed)?).map_err(failed)?;
        put.map_err(too_large)?;
    }
    let tree = filling.into_tree();
    let folder = folder_with_sys(&tree).ok_or_else(|| CaptureError::NoRoot {
        path: path.to_owned(),
    })?;
    Ok(tree.below(&folder))
}

/// The amount read from a tar file, and the limit that was exceeded.
#[derive(Debug, Default)]
struct Gauge {
    unpacked: Cell<u64>,
    /// The remaining size for the next headers; not used between them.
    headers: Cell<Option<u64>>,
    broken: Cell<Option<Limit>>,
}

/// A tar file that ends once a limit is exceeded.
struct Gauged<'a, R> {
    from: R,
    gauge: &'a Gauge,
}

impl<R: Read> Read for Gauged<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let gauge = self.gauge;
        let left = UNPACKED.most - gauge.unpacked.get();
        let (most, limit) = match gauge.headers.get() {
            Some(headers) if headers < left => (headers, HEADERS),
            _ => (left, UNPACKED),
        };
        let most = usize::try_from(most).map_or(into.len(), |most| most.min(into.len()));
        if most == 0 && !into.is_empty() {
            gauge.broken.set(Some(limit));
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let read = self.from.read(into.get_mut(..most).unwrap_or_default())?;
        gauge.unpacked.update(|unpacked| unpacked + read as u64);
        gauge
            .headers
            .update(|headers| headers.map(|headers| headers - read as u64));
        Ok(read)
    }
}

/// Adds the data of `entry`, and reads it to its end, so that the next headers follow.
fn put<R: Read>(
    filling: &mut Filling,
    mut entry: tar::Entry<'_, R>,
) -> io::Result<Result<(), Limit>> {
    let held = held(filling, &mut entry)?;
    // The holes of a sparse file may contain any number of zeros.
    if entry.header().entry_type() != EntryType::GNUSparse {
        io::copy(&mut entry, &mut io::sink())?;
    }
    Ok(held.map_or(Ok(()), |(path, held)| filling.put(&path, held)))
}

/// The content and path of `entry`; nothing if it is not used.
fn held<R: Read>(
    filling: &Filling,
    entry: &mut tar::Entry<'_, R>,
) -> io::Result<Option<(String, Entry)>> {
    let path = entry.path()?.to_string_lossy().into_owned();
    let path = path
        .trim_start_matches("./")
        .trim_end_matches('/')
        .to_owned();
    if path.is_empty() || path.split('/').any(|name| name == "..") {
        return Ok(None);
    }
    let mode = entry.header().mode().unwrap_or(0o644) & 0o7777;
    let target = |entry: &tar::Entry<'_, R>| -> io::Result<Option<String>> {
        Ok(entry
            .link_name()?
            .map(|target| target.to_string_lossy().into_owned()))
    };
    let held = match entry.header().entry_type() {
        EntryType::Regular | EntryType::Continuous => Some(file(entry, mode)?),
        EntryType::Directory => Some(Entry::Folder {
            mode,
            names: std::collections::BTreeSet::new(),
        }),
        EntryType::Symlink => target(entry)?.map(|target| Entry::Link { target }),
        // A hard link is another name of an earlier file. Directories have none, since their names would be repeated.
        EntryType::Link => {
            let other = target(entry)?.unwrap_or_default();
            let other = filling.tree().get(other.trim_start_matches("./"));
            other
                .filter(|other| !matches!(other, Entry::Folder { .. }))
                .cloned()
        }
        _ => None,
    };
    Ok(held.map(|held| (path, held)))
}

fn file<R: Read>(entry: &mut tar::Entry<'_, R>, mode: u32) -> io::Result<Entry> {
    let gap = |reason: &str| Entry::Gap {
        cause: Cause::Unreadable,
        reason: reason.to_owned(),
    };
    // A compressed file of a few hundred bytes may contain a file of any length.
    let mut bytes = Vec::new();
    entry
        .by_ref()
        .take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)?;
    Ok(if bytes.len() as u64 > FILE_BYTES_MAX {
        gap(Entry::TOO_LONG)
    } else if let Ok(text) = str::from_utf8(&bytes) {
        Entry::File {
            mode,
            text: text.trim_end().into(),
        }
    } else {
        gap(Entry::NOT_TEXT)
    })
}

fn folder_with_sys(tree: &Tree) -> Option<String> {
    let mut level = vec![String::new()];
    for _ in 0..=FOLDERS_ABOVE_MAX {
        if let Some(found) = level
            .iter()
            .find(|folder| tree.list(&format!("{folder}/sys")).is_ok())
        {
            return Some(found.clone());
        }
        level = level
            .iter()
            .flat_map(|folder| {
                let names = tree.list(folder).unwrap_or_default();
                names
                    .into_iter()
                    .map(move |name| format!("{folder}/{name}"))
            })
            .collect();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(path: &str, size: u64) -> tar::Header {
        let mut header = tar::Header::new_ustar();
        header.set_path(path).expect("a short path");
        header.set_mode(0o644);
        header.set_size(size);
        header.set_cksum();
        header
    }

    #[test]
    fn a_file_longer_than_any_reader_takes_leaves_a_gap_and_does_not_fill_memory() {
        let size = FILE_BYTES_MAX + 512;
        let long = header("sys/long", size);
        let short = header("sys/short", 512);
        let tar = long.as_bytes().chain(io::repeat(b'7').take(size));
        let tar = tar
            .chain(short.as_bytes().as_slice())
            .chain(io::repeat(b'7').take(512));
        let tree = read(
            Path::new("x.tar"),
            tar.chain(io::repeat(0).take(1024)),
            Form::Tar,
        );
        let tree = tree.expect("a tar file");
        assert!(
            matches!(tree.get("sys/long"), Some(Entry::Gap { reason, .. }) if reason == Entry::TOO_LONG)
        );
        assert!(tree.read("sys/short").is_ok());
    }
}
