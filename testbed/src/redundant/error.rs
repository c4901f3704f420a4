//! Why a redundant network could not be made, used or removed.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::program::Program;

/// The kind of obstacle, for an exit code or a skip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedundantObstacle {
    /// A program or a part of the kernel is missing.
    NotSupported,
    /// A privilege is missing.
    Permission,
    /// The request is invalid.
    BadInput,
    /// It failed; what had been made was removed.
    Failed,
    /// It failed, and left something behind.
    Incomplete,
    /// A part of it was not ready in time; what had been made was removed.
    TimeOut,
    /// The user interrupted it; what had been made was removed.
    Interrupted,
}

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum RedundantError {
    /// Programs are not installed.
    #[error("cannot make the network: {}", missing(.programs))]
    Missing {
        /// The programs.
        programs: Vec<&'static Program>,
    },
    /// There is no LACP on this machine.
    #[error(
        "cannot form a LAG: this kernel ({release}) has no bonding driver, and Open vSwitch is not \
         installed (Debian package openvswitch-switch)"
    )]
    NoLacp {
        /// The kernel's release.
        release: String,
    },
    /// Bonding was requested, and the kernel has none.
    #[error("cannot form a LAG by bonding: this kernel ({release}) has no bonding driver")]
    NoBonding {
        /// The kernel's release.
        release: String,
    },
    /// The privileges of root are missing.
    #[error("cannot make network namespaces: this requires root (CAP_SYS_ADMIN and CAP_NET_ADMIN)")]
    Permission,
    /// A network exists already.
    #[error("cannot make the network: one exists already ({words})")]
    Exists {
        /// The network.
        words: String,
    },
    /// An earlier `add` or `remove` did not finish.
    #[error(
        "cannot make the network: one is partially configured, since an `add` or `remove` did not \
         finish"
    )]
    HalfMade,
    /// There is none.
    #[error("cannot use the redundant network: there is none")]
    None,
    /// A namespace of others has the name of one of ours.
    #[error(
        "cannot make the network namespace {name}: one with this name exists, and linerate did not \
         make it"
    )]
    NameTaken {
        /// The name.
        name: String,
    },
    /// No such node, or it has no daemons.
    #[error("cannot find daemons in `{name}`: they run in {}", .known.join(", "))]
    NoNode {
        /// The name.
        name: String,
        /// The nodes with daemons.
        known: Vec<String>,
    },
    /// A program failed.
    #[error("cannot {doing}: {why}")]
    Refused {
        /// The operation.
        doing: String,
        /// The program's message.
        why: String,
    },
    /// A daemon ended.
    #[error("cannot run {daemon}: it ended ({how}): {output}")]
    DaemonEnded {
        /// The daemon.
        daemon: String,
        /// How it ended.
        how: String,
        /// The last lines of its output.
        output: String,
    },
    /// It was not ready in time.
    #[error("cannot make the network: {what} after {} s{output}", .limit.as_secs())]
    NotReady {
        /// What was missing.
        what: String,
        /// The time limit.
        limit: Duration,
        /// The last lines of each daemon's output.
        output: String,
    },
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// The record is invalid.
    #[error("cannot understand {path}: {why}")]
    Record {
        /// The record.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A step failed, and so did the removal of what had been made.
    #[error("{first}; the removal was incomplete: {second}")]
    NotUndone {
        /// Why it failed.
        first: Box<RedundantError>,
        /// Why the removal failed.
        second: Box<RedundantError>,
    },
    /// A file could not be used, or the kernel refused.
    #[error("cannot {doing}: {source}")]
    Step {
        /// The operation.
        doing: String,
        /// The reason.
        source: io::Error,
    },
}

impl RedundantError {
    pub(crate) fn doing(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Step { doing, source }
    }

    /// The kind of obstacle.
    pub fn obstacle(&self) -> RedundantObstacle {
        use RedundantObstacle as Kind;
        match self {
            Self::Missing { .. } | Self::NoLacp { .. } | Self::NoBonding { .. } => {
                Kind::NotSupported
            }
            Self::Permission => Kind::Permission,
            Self::Exists { .. }
            | Self::HalfMade
            | Self::None
            | Self::NameTaken { .. }
            | Self::NoNode { .. }
            | Self::Record { .. } => Kind::BadInput,
            Self::NotReady { .. } => Kind::TimeOut,
            Self::Interrupted => Kind::Interrupted,
            Self::NotUndone { .. } => Kind::Incomplete,
            Self::Refused { .. } | Self::DaemonEnded { .. } => Kind::Failed,
            Self::Step { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    Kind::Permission
                }
                _ => Kind::Failed,
            },
        }
    }

    /// The packages that provide the missing programs.
    pub fn packages(&self) -> Vec<&'static str> {
        match self {
            Self::Missing { programs } => packages(programs),
            Self::NoLacp { .. } => vec!["openvswitch-switch"],
            _ => Vec::new(),
        }
    }
}

fn packages(programs: &[&'static Program]) -> Vec<&'static str> {
    let mut packages: Vec<&str> = programs.iter().map(|program| program.package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn missing(programs: &[&'static Program]) -> String {
    let names: Vec<&str> = programs.iter().map(|program| program.name).collect();
    let packages = packages(programs);
    let (are, s) = (
        if names.len() == 1 { "is" } else { "are" },
        if packages.len() == 1 { "" } else { "s" },
    );
    format!(
        "{} {are} not installed (Debian package{s} {})",
        names.join(", "),
        packages.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redundant::program::{BFDD, KEEPALIVED, ZEBRA};

    #[test]
    fn each_missing_program_and_its_package_are_named_once() {
        let one = RedundantError::Missing {
            programs: vec![&KEEPALIVED],
        };
        assert_eq!(
            one.to_string(),
            "cannot make the network: keepalived is not installed (Debian package keepalived)"
        );
        let two = RedundantError::Missing {
            programs: vec![&ZEBRA, &BFDD],
        };
        assert_eq!(
            two.to_string(),
            "cannot make the network: zebra, bfdd are not installed (Debian package frr)"
        );
        assert_eq!(two.obstacle(), RedundantObstacle::NotSupported);
        assert_eq!(two.packages(), ["frr"]);
    }
}
