//! How a command ends: the documented exit codes, and the one error type with a code, a
//! message and a hint.

use std::error::Error;
use std::fmt;

use crate::protocol::{Failure, FailureKind};

/// The exit codes. They are part of the interface: `docs/reference/exit-codes.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Code {
    /// Done.
    Done = 0,
    /// The command line is wrong.
    Usage = 2,
    /// `doctor` found something of the requested severity or worse.
    Findings = 10,
    /// `compare` found a regression.
    Regression = 11,
    /// The data is inconclusive.
    Inconclusive = 12,
    /// The peer cannot be reached, has another version, or disconnected.
    PeerUnreachable = 20,
    /// Missing permission.
    PermissionMissing = 21,
    /// Not supported by this kernel, device or machine.
    NotSupported = 22,
    /// A file or value is invalid.
    BadInput = 23,
    /// It failed; what had been changed was restored.
    FailedRestored = 30,
    /// It failed, and not everything could be restored.
    RestoreIncomplete = 31,
    /// A timeout or deadline passed.
    TimeOut = 40,
    /// Out of space, ports, memory or files, or another linerate is changing settings.
    Resource = 41,
    /// A bug in linerate.
    Bug = 70,
    /// Interrupted; what had been changed was restored.
    Interrupted = 130,
}

impl Code {
    /// Every code, for the tests that compare the documents with them.
    pub const ALL: [Self; 15] = [
        Self::Done,
        Self::Usage,
        Self::Findings,
        Self::Regression,
        Self::Inconclusive,
        Self::PeerUnreachable,
        Self::PermissionMissing,
        Self::NotSupported,
        Self::BadInput,
        Self::FailedRestored,
        Self::RestoreIncomplete,
        Self::TimeOut,
        Self::Resource,
        Self::Bug,
        Self::Interrupted,
    ];

    /// The number that the process exits with.
    pub const fn number(self) -> u8 {
        self as u8
    }
}

/// Why a command stopped early.
#[derive(Debug)]
pub struct Stop {
    /// The exit code.
    pub code: Code,
    /// What failed, on what, and why: a lower-case fragment.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The underlying error.
    pub cause: Option<Box<dyn Error + Send + Sync>>,
    /// Whether it was printed already.
    pub told: bool,
}

/// The result of a command.
pub type Outcome<T> = Result<T, Stop>;

impl Stop {
    /// A stop with `code` because of `message`.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
            cause: None,
            told: false,
        }
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Prints nothing more: it was printed where it happened.
    #[must_use]
    pub fn already_told(mut self) -> Self {
        self.told = true;
        self
    }

    /// Adds the underlying error.
    #[must_use]
    pub fn because(mut self, cause: impl Error + Send + Sync + 'static) -> Self {
        self.cause = Some(Box::new(cause));
        self
    }

    /// The user pressed Ctrl-C (or the process received a signal to end).
    pub fn interrupted() -> Self {
        Self::new(Code::Interrupted, "interrupted")
    }

    /// Adds that what had been changed was rolled back.
    #[must_use]
    pub fn rolled_back(mut self) -> Self {
        self.message.push_str("; all changes were rolled back");
        self
    }

    /// Adds what had failed before, unless it is named already.
    #[must_use]
    pub fn after(mut self, before: &str) -> Self {
        if !self.message.contains(before) {
            self.message = format!("{}; before that: {before}", self.message);
        }
        self
    }

    /// A stop for an error of the operating system while `doing` something.
    pub fn io(doing: impl fmt::Display, error: std::io::Error) -> Self {
        use std::io::ErrorKind as Kind;
        let code = match error.kind() {
            Kind::PermissionDenied | Kind::ReadOnlyFilesystem => Code::PermissionMissing,
            Kind::StorageFull | Kind::QuotaExceeded | Kind::OutOfMemory | Kind::AddrInUse => {
                Code::Resource
            }
            Kind::TimedOut => Code::TimeOut,
            Kind::NotFound | Kind::InvalidData | Kind::InvalidInput | Kind::UnexpectedEof => {
                Code::BadInput
            }
            Kind::Unsupported => Code::NotSupported,
            _ => Code::FailedRestored,
        };
        Self::new(code, format!("cannot {doing}")).because(error)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        let code = match failure.kind {
            FailureKind::BadInput => Code::BadInput,
            FailureKind::Version | FailureKind::Unreachable => Code::PeerUnreachable,
            FailureKind::Permission => Code::PermissionMissing,
            FailureKind::NotSupported => Code::NotSupported,
            FailureKind::Resource => Code::Resource,
            FailureKind::TimeOut => Code::TimeOut,
            FailureKind::Restored | FailureKind::Other | FailureKind::Broken => {
                Code::FailedRestored
            }
            FailureKind::RestoreIncomplete => Code::RestoreIncomplete,
        };
        Self::new(code, failure.message)
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        let mut cause = self.cause.as_deref().map(|c| c as &dyn Error);
        while let Some(error) = cause {
            write!(f, "\n  caused by: {error}")?;
            cause = error.source();
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl Error for Stop {}
