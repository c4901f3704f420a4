//! Reads a host's `/proc` and `/sys` trees from a tar file (POSIX.1-1988 ustar, GNU and pax names),
//! packed by bzip2 or not, straight into memory: nothing is unpacked onto the disk.

use std::io::{self, Read};
use std::path::Path;

use tar::EntryType;

use super::error::CaptureError;
use super::open::FOLDERS_ABOVE_MAX;
use super::tree::{Entry, Tree};
use crate::root::FILE_BYTES_MAX;
use linerate_model::known::Cause;

/// The most bytes of all files, unpacked.
const UNPACKED_BYTES_MAX: u64 = 256 << 20;
/// The most entries: a host of 1,024 CPUs has about 200,000 files worth keeping.
const ENTRIES_MAX: u64 = 1 << 20;

/// How the file is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Tar,
    TarBzip2,
}

/// What the first 512 bytes of a file say that it is.
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
    let limit = |what, limit| CaptureError::TooLarge {
        path: path.to_owned(),
        what,
        limit,
    };
    let from: Box<dyn Read + '_> = match form {
        Form::Tar => Box::new(from),
        Form::TarBzip2 => Box::new(bzip2::read::MultiBzDecoder::new(from)),
    };
    // One byte over the limit tells a file that is too large from one that just fits.
    let mut from = from.take(UNPACKED_BYTES_MAX + 1);
    let mut tree = Tree::new(true);
    let mut archive = tar::Archive::new(&mut from);
    let mut count = 0;
    for entry in archive.entries().map_err(io)? {
        count += 1;
        if count > ENTRIES_MAX {
            return Err(limit("the number of its files", ENTRIES_MAX));
        }
        put(&mut tree, entry.map_err(io)?).map_err(io)?;
    }
    if from.limit() == 0 {
        return Err(limit("its size unpacked", UNPACKED_BYTES_MAX));
    }
    folder_with_sys(&tree)
        .map(|folder| tree.below(&folder))
        .ok_or_else(|| CaptureError::NoRoot {
            path: path.to_owned(),
        })
}

fn put<R: Read>(tree: &mut Tree, mut entry: tar::Entry<'_, R>) -> io::Result<()> {
    let path = entry.path()?.to_string_lossy().into_owned();
    let path = path
        .trim_start_matches("./")
        .trim_end_matches('/')
        .to_owned();
    if path.is_empty() || path.split('/').any(|name| name == "..") {
        return Ok(());
    }
    let mode = entry.header().mode().unwrap_or(0o644) & 0o7777;
    let target = |entry: &tar::Entry<'_, R>| -> io::Result<Option<String>> {
        Ok(entry
            .link_name()?
            .map(|target| target.to_string_lossy().into_owned()))
    };
    match entry.header().entry_type() {
        EntryType::Regular | EntryType::Continuous => {
            let gap = |reason: &str| Entry::Gap {
                cause: Cause::Unreadable,
                reason: reason.to_owned(),
            };
            // A packed file of a few hundred bytes may hold one of any length.
            let mut bytes = Vec::new();
            entry
                .by_ref()
                .take(FILE_BYTES_MAX + 1)
                .read_to_end(&mut bytes)?;
            let file = if bytes.len() as u64 > FILE_BYTES_MAX {
                gap(Entry::TOO_LONG)
            } else if let Ok(text) = String::from_utf8(bytes) {
                Entry::File {
                    mode,
                    text: text.trim_end().to_owned(),
                }
            } else {
                gap(Entry::NOT_TEXT)
            };
            tree.put(&path, file);
        }
        EntryType::Directory => tree.put(
            &path,
            Entry::Folder {
                mode,
                names: std::collections::BTreeSet::new(),
            },
        ),
        EntryType::Symlink => {
            if let Some(target) = target(&entry)? {
                tree.put(&path, Entry::Link { target });
            }
        }
        // A hard link gives the other name of a file that came before.
        EntryType::Link => {
            let other = target(&entry)?.unwrap_or_default();
            if let Some(file) = tree.get(other.trim_start_matches("./")).cloned() {
                tree.put(&path, file);
            }
        }
        _ => {}
    }
    Ok(())
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
