//! Netlink errors, with the kernel's own explanation (extended ack, `Documentation/userspace-api/netlink/intro.rst`)
//! and the error number for callers.

use std::{fmt, io};

use linerate_model::known::{Cause, Gap};

/// A netlink request that failed: the operation, the subject, and the reason.
///
/// It is wrapped in an [`io::Error`] of the same kind; [`NetlinkError::of`] unwraps it.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} `{subject}`: {failure}")]
pub struct NetlinkError {
    doing: &'static str,
    subject: String,
    failure: Failure,
}

impl NetlinkError {
    /// The netlink error inside `error`, if there is one.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// The kernel's error number, like [`io::Error::raw_os_error`].
    pub fn raw_os_error(&self) -> Option<i32> {
        self.failure.errno()
    }

    /// The kernel's own explanation, if there is one.
    pub fn kernel_message(&self) -> Option<&str> {
        self.failure.kernel_message()
    }
}

impl From<NetlinkError> for io::Error {
    fn from(error: NetlinkError) -> Self {
        Self::new(error.failure.kind(), error)
    }
}

/// Why a request failed, without its purpose.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The kernel refused.
    #[error("{}", KernelWords(*errno, message.as_deref()))]
    Kernel {
        /// Its error number, positive.
        errno: i32,
        /// Its message, if there is one.
        message: Option<String>,
    },
    /// The socket failed, not the request.
    #[error("the netlink socket failed: {0}")]
    Socket(io::Error),
    /// The response does not have the form of its type.
    #[error("cannot parse the kernel's response: {0}")]
    Malformed(&'static str),
    /// Every attempt at a dump was interrupted by a change.
    #[error("the table kept changing during the dump; try again when the host is less busy")]
    Unsteady,
    /// The ethtool family is not registered.
    #[error(
        "this kernel has no ethtool netlink interface (Linux 5.6 or later, CONFIG_ETHTOOL_NETLINK)"
    )]
    NoFamily,
    /// The interface is of another kind.
    #[error("not a {0}")]
    NotA(&'static str),
    /// The kernel has no VLAN devices.
    #[error("this kernel has no VLAN devices (module 8021q, CONFIG_VLAN_8021Q)")]
    NoVlan,
    /// The kernel's nf_tables has no egress hook.
    #[error(
        "this kernel has no nf_tables egress hook (Linux 5.16 or later, CONFIG_NETFILTER_EGRESS and CONFIG_NF_TABLES_NETDEV)"
    )]
    NoEgress,
    /// The kernel acknowledged the request and did something else.
    #[error("the kernel accepted the request, but {0}")]
    NotDone(String),
    /// It could be done but not restored, so it is not done.
    #[error("{0}, which could not be restored; remove or change it by hand first")]
    NotRestorable(String),
    /// It failed in between, and so did the restore.
    #[error("{first}; and the former root could not be restored: {second}")]
    NotPutBack {
        /// Why it failed.
        first: Box<Failure>,
        /// Why the restore failed.
        second: Box<Failure>,
    },
    /// The caller's value cannot be put in a message.
    #[error("{0}")]
    BadInput(String),
}

/// The kernel's message, followed by the name of its error number.
struct KernelWords<'a>(i32, Option<&'a str>);

impl fmt::Display for KernelWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = io::Error::from_raw_os_error(self.0);
        match self.1 {
            Some(message) => write!(f, "{message}: {name}"),
            None => write!(f, "{name}"),
        }
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Socket(errno.into())
    }
}

impl Failure {
    /// Adds the purpose of the failed request.
    pub(super) fn during(self, doing: &'static str, subject: impl fmt::Display) -> io::Error {
        NetlinkError {
            doing,
            subject: subject.to_string(),
            failure: self,
        }
        .into()
    }

    /// The gap for this failure at `path`; `absent` is the text for something that is not supported.
    pub(super) fn into_gap(self, path: String, absent: &str) -> Gap {
        let (cause, reason) = match &self {
            Self::Kernel { errno, .. } if *errno == libc::EOPNOTSUPP => {
                (Cause::Absent, absent.to_owned())
            }
            Self::Kernel { errno, .. } if *errno == libc::ENODEV => {
                (Cause::Absent, "no such interface".to_owned())
            }
            Self::NoFamily | Self::NotA(_) => (Cause::Absent, self.to_string()),
            other if other.kind() == io::ErrorKind::PermissionDenied => {
                (Cause::Denied, other.to_string())
            }
            other => (Cause::Unreadable, other.to_string()),
        };
        Gap::new(cause, path, reason)
    }

    fn kernel_message(&self) -> Option<&str> {
        match self {
            Self::Kernel { message, .. } => message.as_deref(),
            Self::NotPutBack { first, .. } => first.kernel_message(),
            _ => None,
        }
    }

    fn errno(&self) -> Option<i32> {
        match self {
            Self::NotPutBack { first, .. } => first.errno(),
            Self::Kernel { errno, .. } => Some(*errno),
            Self::Socket(error) => error.raw_os_error(),
            _ => None,
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::NotPutBack { first, .. } => first.kind(),
            // Of a qdisc whose module this kernel lacks (`qdisc_create`, net/sched/sch_api.c).
            Self::Kernel {
                errno: libc::ENOENT,
                message: Some(message),
            } if message.starts_with("Specified qdisc kind is unknown") => {
                io::ErrorKind::Unsupported
            }
            Self::Kernel { errno, .. } => io::Error::from_raw_os_error(*errno).kind(),
            Self::Socket(error) => error.kind(),
            Self::Malformed(_) => io::ErrorKind::InvalidData,
            Self::NoFamily
            | Self::NotA(_)
            | Self::NoVlan
            | Self::NoEgress
            | Self::NotRestorable(_) => io::ErrorKind::Unsupported,
            Self::BadInput(_) => io::ErrorKind::InvalidInput,
            Self::Unsteady | Self::NotDone(_) => io::ErrorKind::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(errno: i32, message: Option<&str>) -> Failure {
        Failure::Kernel {
            errno,
            message: message.map(str::to_owned),
        }
    }

    #[test]
    fn a_kind_of_qdisc_that_the_kernel_lacks_is_unsupported_and_a_missing_object_is_not() {
        let kind = |message| {
            refused(libc::ENOENT, Some(message))
                .during("set", "eth2")
                .kind()
        };
        assert_eq!(
            kind("Specified qdisc kind is unknown"),
            io::ErrorKind::Unsupported
        );
        assert_eq!(kind("Specified class not found"), io::ErrorKind::NotFound);
    }

    #[test]
    fn the_kernels_words_number_and_kind_survive_in_an_io_error() {
        let error = refused(
            libc::EINVAL,
            Some("requested channel count exceeds maximum"),
        )
        .during("set the queue counts of", "eth2");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(
            error.to_string(),
            "cannot set the queue counts of `eth2`: requested channel count exceeds maximum: \
             Invalid argument (os error 22)"
        );
        let inner = NetlinkError::of(&error).expect("a netlink error");
        assert_eq!(inner.raw_os_error(), Some(libc::EINVAL));
        assert_eq!(
            inner.kernel_message(),
            Some("requested channel count exceeds maximum")
        );
        let denied = refused(libc::EPERM, None).during("set the MTU of", "eth2");
        assert_eq!(denied.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_refusal_is_a_gap_with_its_cause() {
        let cause = |failure: Failure| failure.into_gap("p".to_owned(), "not offered").cause;
        assert_eq!(cause(refused(libc::EOPNOTSUPP, None)), Cause::Absent);
        assert_eq!(cause(refused(libc::ENODEV, None)), Cause::Absent);
        assert_eq!(cause(Failure::NoFamily), Cause::Absent);
        assert_eq!(cause(refused(libc::EPERM, None)), Cause::Denied);
        assert_eq!(cause(refused(libc::EIO, None)), Cause::Unreadable);
        assert_eq!(cause(Failure::Malformed("short")), Cause::Unreadable);
    }
}
