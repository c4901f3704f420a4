//! Why a captured host could not be opened.

use std::io;
use std::path::PathBuf;

/// Why a captured host could not be opened. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The operating system refused.
    #[error("cannot read `{}`: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is none of the forms in which a host is captured.
    #[error(
        "`{}` is not a captured host: expected an archive of `linerate capture`, a folder that holds \
         `sys`, or a .tar or .tar.bz2 of one", path.display()
    )]
    NotACapture {
        /// The file.
        path: PathBuf,
    },
    /// No folder in it holds `sys`.
    #[error(
        "no directory `sys` in `{}` or up to two levels below it: name the directory that contains `sys`",
        path.display()
    )]
    NoRoot {
        /// The folder or archive.
        path: PathBuf,
    },
    /// Another version of linerate wrote it.
    #[error(
        "the archive has format {found}, this linerate reads format {known}: open it with the \
         linerate that made it, or capture the host again"
    )]
    Format {
        /// The version that it names.
        found: String,
        /// The version that is read here.
        known: u32,
    },
    /// The end is missing.
    #[error(
        "the archive is truncated: it ends at line {line} without an `end` line; copy it again"
    )]
    CutShort {
        /// The last line.
        line: u64,
    },
    /// A line is not what it must be.
    #[error("cannot parse line {line} of the archive: {why}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// It was changed after it was written.
    #[error(
        "line {line} of the archive promises {promised}, but it holds {found}: if it was edited on \
         purpose, write `end {found}` there, else copy it again"
    )]
    Changed {
        /// The number of the `end` line.
        line: u64,
        /// What the `end` line says.
        promised: String,
        /// What was found.
        found: String,
    },
    /// It is larger than a host can be.
    #[error(
        "`{}` is too large for a captured host: {what} is over {limit}; pack only what \
         `linerate capture` reads, `proc`, `sys` and `etc` of one host", path.display()
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// What is too large.
        what: &'static str,
        /// The most that is read.
        limit: u64,
    },
    /// An archive's entry is larger than a host can have.
    #[error(
        "line {line} of the archive is invalid: {what} is over {limit}; capture the host again with \
         `linerate capture`"
    )]
    Limit {
        /// The line that breaks the limit.
        line: u64,
        /// What is too large.
        what: &'static str,
        /// The most that is read.
        limit: u64,
    },
    /// What stands in it multiplies beyond what a host can have.
    #[error(
        "too large for a captured host: {what} is over {limit}; capture the host again with \
         `linerate capture`"
    )]
    Answers {
        /// What is too large.
        what: &'static str,
        /// The most that is read.
        limit: u64,
    },
    /// It is neither a file nor a folder.
    #[error(
        "`{}` is neither a regular file nor a directory: copy its contents to a file and name that file",
        path.display()
    )]
    NoFile {
        /// The pipe, socket or device.
        path: PathBuf,
    },
}
