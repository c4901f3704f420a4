//! Why two hosts cannot be created here, and the remedy. Sources: user_namespaces(7), clone(2) and unshare(2) for the
//! errors; Ubuntu's `apparmor_restrict_unprivileged_userns`; Debian's `unprivileged_userns_clone`.

use std::fs;
use std::io;

/// The kind of obstacle, for an exit code or a skip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// The kernel has no such namespaces.
    NotSupported,
    /// An ordinary user may not create a user namespace here.
    UserNamespacesForbidden,
    /// A privilege is missing.
    Permission,
    /// Something else failed.
    Failed,
}

/// Why a stage could not be set up. Nothing was left behind.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// The kernel has no such namespaces.
    #[error("cannot make {what}: this kernel is built without them")]
    NotSupported {
        /// The kind of namespace.
        what: &'static str,
    },
    /// An ordinary user may not create a user namespace.
    #[error("cannot make a user namespace: {hint}; or run as root")]
    UserNamespacesForbidden {
        /// The sysctl that forbids it, if known.
        hint: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The process already has threads.
    #[error("cannot make a user namespace: this process has more than one thread")]
    Threads,
    /// A step failed.
    #[error("cannot {doing}: {source}")]
    Step {
        /// The operation.
        doing: String,
        /// The kernel's error.
        source: io::Error,
    },
}

impl StageError {
    pub(crate) fn step(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Step { doing, source }
    }

    /// The error of the initial unshare(2).
    pub(crate) fn of_unshare(source: io::Error, user: bool) -> Self {
        let namespaces = if user {
            "user and mount namespaces"
        } else {
            "a mount namespace"
        };
        match source.raw_os_error() {
            Some(libc::EINVAL) if user && threads() > 1 => Self::Threads,
            Some(libc::EINVAL | libc::ENOSYS) => Self::NotSupported { what: namespaces },
            Some(libc::EPERM | libc::ENOSPC | libc::EUSERS | libc::EACCES) if user => {
                Self::UserNamespacesForbidden {
                    hint: forbidden_by(|name| fs::read_to_string(format!("/proc/sys/{name}")).ok()),
                    source,
                }
            }
            _ => Self::step(format!("make {namespaces}"))(source),
        }
    }

    /// The kind of obstacle.
    pub fn obstacle(&self) -> Obstacle {
        match self {
            Self::NotSupported { .. } => Obstacle::NotSupported,
            Self::UserNamespacesForbidden { .. } => Obstacle::UserNamespacesForbidden,
            Self::Threads => Obstacle::Failed,
            Self::Step { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => Obstacle::Permission,
                _ => Obstacle::Failed,
            },
        }
    }
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

/// The sysctl that forbids user namespaces, if one does.
fn forbidden_by(sysctl: impl Fn(&str) -> Option<String>) -> String {
    // The file, the value that forbids, and the command that allows.
    const SWITCHES: [(&str, &str, &str); 3] = [
        (
            "kernel/unprivileged_userns_clone",
            "0",
            "kernel.unprivileged_userns_clone=1",
        ),
        (
            "user/max_user_namespaces",
            "0",
            "user.max_user_namespaces=16384",
        ),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ];
    let culprit = SWITCHES
        .iter()
        .find(|(name, forbids, _)| sysctl(name).is_some_and(|text| text.trim() == *forbids));
    match culprit {
        Some((name, value, allow)) => format!(
            "{} is {value}, which forbids it to ordinary users; allow it with `sysctl -w {allow}`",
            name.replace('/', ".")
        ),
        None => "this system forbids it (a container's seccomp filter, a security module, or \
                 the limit user.max_user_namespaces)"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sysctl_that_forbids_user_namespaces_is_named() {
        let ubuntu = |name: &str| {
            (name == "kernel/apparmor_restrict_unprivileged_userns").then(|| "1\n".to_owned())
        };
        let hint = forbidden_by(ubuntu);
        assert!(
            hint.starts_with("kernel.apparmor_restrict_unprivileged_userns is 1"),
            "{hint}"
        );
        assert!(forbidden_by(|_| None).contains("seccomp"));
    }

    #[test]
    fn a_refused_user_namespace_is_its_own_kind_of_obstacle() {
        let error = |code, user| {
            StageError::of_unshare(io::Error::from_raw_os_error(code), user).obstacle()
        };
        assert_eq!(error(libc::EPERM, true), Obstacle::UserNamespacesForbidden);
        assert_eq!(error(libc::ENOSPC, true), Obstacle::UserNamespacesForbidden);
        assert_eq!(error(libc::EPERM, false), Obstacle::Permission);
        assert_eq!(error(libc::EINVAL, false), Obstacle::NotSupported);
    }
}
