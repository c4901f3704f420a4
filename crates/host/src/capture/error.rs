//! Why a captured host could not be opened.

use std::io;
use std::path::PathBuf;

/// Why a captured host could not be opened. Each message contains the remedy.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The operating system reported an error.
    #[error("cannot read `{}`: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// It is not in any of the supported forms.
    #[error(
        "`{}` is not a captured host: expected an archive of `linerate capture`, a folder that holds \
         `sys`, or a .tar or .tar.bz2 of one", path.display()
    )]
    NotACapture {
        /// The file.
        path: PathBuf,
    },
    /// No directory in it contains `sys`.
    #[error(
        "no directory `sys` in `{}` or up to two levels below it: name the directory that contains `sys`",
        path.display()
    )]
    NoRoot {
        /// The directory or archive.
        path: PathBuf,
    },
    /// Another version of linerate wrote it.
    #[error(
        "the archive has format {found}, this linerate reads format {known}: open it with the \
         linerate that made it, or capture the host again"
    )]
    Format {
        /// Its version.
        found: String,
        /// The supported version.
        known: u32,
    },
    /// The `end` line is missing.
    #[error(
        "the archive is truncated: it ends at line {line} without an `end` line; copy it again"
    )]
    CutShort {
        /// The last line.
        line: u64,
    },
    /// A line is invalid.
    #[error("line {line} of the archive is invalid: {why}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// It was modified after it was written.
    #[error(
        "line {line} of the archive promises {promised}, but it holds {found}: if it was edited on \
         purpose, write `end {found}` there, else copy it again"
    )]
    Changed {
        /// The number of the `end` line.
        line: u64,
        /// The checksum in the `end` line.
        promised: String,
        /// The actual one.
        found: String,
    },
    /// It exceeds a limit.
    #[error(
        "`{}` is too large for a captured host: {what} is over {limit}; pack only what \
         `linerate capture` reads, `proc`, `sys` and `etc` of one host", path.display()
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// What is too large.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// An archive's entry exceeds a limit.
    #[error(
        "line {line} of the archive is invalid: {what} is over {limit}; capture the host again with \
         `linerate capture`"
    )]
    Limit {
        /// The line that exceeds the limit.
        line: u64,
        /// What is too large.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The data parsed from it exceed a limit.
    #[error(
        "too large for a captured host: {what} is over {limit}; capture the host again with \
         `linerate capture`"
    )]
    Answers {
        /// What is too large.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// It is neither a file nor a directory.
    #[error(
        "`{}` is neither a regular file nor a directory: copy its contents to a file and name that file",
        path.display()
    )]
    NoFile {
        /// The pipe, socket or device.
        path: PathBuf,
    },
}
