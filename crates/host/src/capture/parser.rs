//! Parses the text of an archive (see [`super::archive`]) line by line, with fixed limits, and reports the line
//! number of errors.

use std::collections::BTreeSet;
use std::io::{self, BufRead, Read};

use linerate_model::ids::NicName;
use serde::de::DeserializeOwned;

use super::answers::{CapturedNics, CapturedRdma};
use super::archive::{Archive, FORMAT, MAGIC, cause_of, ending, from_one_line};
use super::error::CaptureError;
use crate::root::FILE_BYTES_MAX;
use crate::root::limits::{ANSWERS_BYTES_MAX, Filling, Limit};
use crate::root::tree::{Entry, Tree, name_bytes};

/// The maximum line length: a line of `/proc/interrupts` with 16,384 CPUs is about 180 KiB.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// The maximum number of lines of an archive.
const LINES_MAX: u64 = 16 << 20;
/// The maximum size of an archive.
const ARCHIVE_BYTES_MAX: u64 = 256 << 20;

/// An archive that is being parsed.
pub(crate) struct Parser<R> {
    from: io::Take<R>,
    /// The number of the last line read, from 1.
    line: u64,
    checksum: crc32fast::Hasher,
}

impl<R: BufRead> Parser<R> {
    pub(crate) fn of(from: R) -> Self {
        Self {
            from: from.take(ARCHIVE_BYTES_MAX),
            line: 0,
            checksum: crc32fast::Hasher::new(),
        }
    }

    pub(crate) fn archive(mut self) -> Result<Archive, CaptureError> {
        let first = self.next_line()?;
        match first.strip_prefix(MAGIC) {
            Some(format) if format.trim() == FORMAT.to_string() => {}
            Some(format) => {
                return Err(CaptureError::Format {
                    found: format.trim().to_owned(),
                    known: FORMAT,
                });
            }
            None => return Err(self.wrong("expected `linerate capture 1`")),
        }
        let version = self.headed("by linerate ")?;
        let pseudonyms = match self.headed("pseudonyms ")?.as_str() {
            "yes" => true,
            "no" => false,
            _ => return Err(self.wrong("expected `pseudonyms yes` or `pseudonyms no`")),
        };
        let mut archive = Archive {
            version: from_one_line(&version).ok_or_else(|| self.wrong("an invalid escape"))?,
            pseudonyms,
            tree: Tree::new(false),
            nics: CapturedNics::default(),
            rdma: CapturedRdma::default(),
        };
        let mut filling = Filling::new(Tree::new(false));
        let mut entries = 0;
        loop {
            let before = self.checksum.clone().finalize();
            let head = self.next_line()?;
            if let Some(promised) = head.strip_prefix("end ") {
                let found = ending(entries, before);
                if promised.trim() == found {
                    archive.tree = filling.into_tree();
                    return Ok(archive);
                }
                return Err(CaptureError::Changed {
                    line: self.line,
                    promised: promised.trim().to_owned(),
                    found,
                });
            }
            self.entry(&head, &mut archive, &mut filling)?;
            entries += 1;
        }
    }

    fn entry(
        &mut self,
        head: &str,
        archive: &mut Archive,
        filling: &mut Filling,
    ) -> Result<(), CaptureError> {
        let (kind, rest) = head.split_once(' ').unwrap_or((head, ""));
        match kind {
            "file" => {
                let (mode, lines, path) = self.sized(rest)?;
                let most = usize::try_from(FILE_BYTES_MAX).unwrap_or(usize::MAX);
                let text = self.lines(lines, Limit::of("the length of a file in bytes", most))?;
                let text = text.into();
                self.put(filling, &path, Entry::File { mode, text })?;
            }
            "folder" => {
                let (mode, lines, path) = self.sized(rest)?;
                let mut names = BTreeSet::new();
                let mut bytes = 0;
                for _ in 0..lines {
                    let name = self.next_line()?;
                    bytes += name_bytes(&name);
                    filling.fits(bytes).map_err(|limit| self.over(limit))?;
                    names.insert(self.unescaped(&name)?);
                }
                self.put(filling, &path, Entry::Folder { mode, names })?;
            }
            "link" => {
                let path = self.path(rest)?;
                let target = self.next_line()?;
                let target = self.unescaped(&target)?;
                self.put(filling, &path, Entry::Link { target })?;
            }
            "absent" => self.put(filling, &self.path(rest)?, Entry::absent())?,
            "gap" => {
                let (cause, path) = rest.split_once(' ').unwrap_or((rest, ""));
                let cause = cause_of(cause).ok_or_else(|| self.wrong("an unknown cause"))?;
                let path = self.path(path)?;
                let reason = self.next_line()?;
                let reason = self.unescaped(&reason)?;
                self.put(filling, &path, Entry::Gap { cause, reason })?;
            }
            "nic" => {
                let (lines, nic) = rest.split_once(' ').unwrap_or((rest, ""));
                let lines = self.number(lines, 10)?;
                let nic: NicName = nic.parse().map_err(|error| self.wrong(error))?;
                let answers = self.answers(lines, filling)?;
                archive.nics.0.insert(nic, answers);
            }
            "rdma" => {
                let (lines, device) = rest.split_once(' ').unwrap_or((rest, ""));
                let lines = self.number(lines, 10)?;
                let device = self.unescaped(device)?;
                let answers = self.answers(lines, filling)?;
                archive.rdma.0.insert(device, answers);
            }
            _ => {
                return Err(self.wrong(
                    "expected `file`, `folder`, `link`, `absent`, `gap`, `nic`, `rdma` or `end`",
                ));
            }
        }
        Ok(())
    }

    fn put(&self, filling: &mut Filling, path: &str, entry: Entry) -> Result<(), CaptureError> {
        filling.put(path, entry).map_err(|limit| self.over(limit))
    }

    fn over(&self, limit: Limit) -> CaptureError {
        CaptureError::Limit {
            line: self.line,
            what: limit.what,
            limit: limit.most,
        }
    }

    /// Netlink or verbs data of one interface or device.
    fn answers<T: DeserializeOwned>(
        &mut self,
        lines: u64,
        filling: &mut Filling,
    ) -> Result<T, CaptureError> {
        let most = Limit::of(
            "the JSON of one interface or device in bytes",
            ANSWERS_BYTES_MAX,
        );
        let json = self.lines(lines, most)?;
        filling.take_json(&json).map_err(|limit| self.over(limit))?;
        serde_json::from_str(&json).map_err(|error| self.wrong(error))
    }

    fn sized(&self, rest: &str) -> Result<(u32, u64, String), CaptureError> {
        let mut parts = rest.splitn(3, ' ');
        let (Some(mode), Some(lines), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(self.wrong("expected permission bits, a number of lines and a path"));
        };
        let mode = u32::try_from(self.number(mode, 8)?).map_err(|error| self.wrong(error))?;
        Ok((mode & 0o7777, self.number(lines, 10)?, self.path(path)?))
    }

    fn number(&self, digits: &str, radix: u32) -> Result<u64, CaptureError> {
        u64::from_str_radix(digits, radix).map_err(|error| self.wrong(error))
    }

    fn path(&self, path: &str) -> Result<String, CaptureError> {
        let path = path
            .strip_prefix('/')
            .ok_or_else(|| self.wrong("expected a path that begins with `/`"))?;
        self.unescaped(path)
    }

    fn unescaped(&self, line: &str) -> Result<String, CaptureError> {
        from_one_line(line).ok_or_else(|| self.wrong("an invalid escape after a backslash"))
    }

    fn headed(&mut self, head: &str) -> Result<String, CaptureError> {
        let line = self.next_line()?;
        line.strip_prefix(head)
            .map(str::to_owned)
            .ok_or_else(|| self.wrong(format!("expected `{head}...`")))
    }

    fn lines(&mut self, count: u64, most: Limit) -> Result<String, CaptureError> {
        let mut text = String::new();
        for line in 0..count {
            if line > 0 {
                text.push('\n');
            }
            text.push_str(&self.next_line()?);
            if text.len() as u64 > most.most {
                return Err(self.over(most));
            }
        }
        Ok(text)
    }

    fn next_line(&mut self) -> Result<String, CaptureError> {
        let mut bytes = Vec::new();
        let read = (&mut self.from)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut bytes);
        if let Err(error) = read {
            return Err(self.wrong(error));
        }
        if self.from.limit() == 0 || self.line >= LINES_MAX {
            return Err(self.wrong("the archive is too large for a captured host (256 MiB)"));
        }
        if bytes.pop_if(|last| *last == b'\n').is_none() {
            return Err(if bytes.len() as u64 == LINE_BYTES_MAX {
                self.line += 1;
                self.wrong("it is longer than 1 MiB")
            } else {
                CaptureError::CutShort {
                    line: self.line + u64::from(!bytes.is_empty()),
                }
            });
        }
        self.line += 1;
        self.checksum.update(&bytes);
        self.checksum.update(b"\n");
        String::from_utf8(bytes).map_err(|_| self.wrong("it is not UTF-8 text"))
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "reads better at two dozen calls"
    )]
    fn wrong(&self, why: impl ToString) -> CaptureError {
        CaptureError::Line {
            line: self.line,
            why: why.to_string(),
        }
    }
}
