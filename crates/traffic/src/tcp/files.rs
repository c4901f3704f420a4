//! The limit of file descriptors (getrlimit(2)): raised as far as this process may when a trial needs it,
//! and an error before the first connection when that is not far enough.

use std::os::fd::AsRawFd;

use linerate_model::workload::{Probe, TrialSpec, Udp, Workload};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::per_direction;
use super::select::candidates;
use crate::TrafficError;
use crate::abort::new_event;

/// Maximum descriptors of a thread besides its connections: an epoll instance or a ring, and the ends of a pipe.
const PER_THREAD: u64 = 3;
/// Descriptors for unrelated connections, events, and what the rest of the program opens meanwhile.
const SPARE: u64 = 128;

/// Sees to it that the connections of `spec` can be opened.
pub(crate) fn make_room(spec: &TrialSpec) -> Result<(), TrafficError> {
    let companions = u64::from(candidates(spec));
    let roles = companions / u64::from(per_direction(spec)).max(1);
    // Beside its companions `http` has the connections that it loads, `udp` a socket for each flow, and a
    // connection for each request is one more.
    let own = match &spec.workload {
        Workload::Http(_) | Workload::Udp(_) => u64::from(spec.flows) * roles.max(1),
        Workload::Rr(rr) if rr.connect_each => u64::from(spec.flows) * 2 * roles,
        _ => 0,
    };
    let pending = match &spec.workload {
        Workload::Udp(Udp {
            probe: Some(probe), ..
        }) if probe.connects_per_s > 0 => u64::from(Probe::PENDING_MAX),
        _ => 0,
    };
    let connections = companions + own + pending;
    let threads = u64::from(spec.threads()) * roles;
    let limit = getrlimit(Resource::Nofile);
    let needed = files_open()? + connections + threads * PER_THREAD + SPARE;
    // Both ends of a trial may be in this process, and neither knows of the other.
    match new_soft_limit(limit, needed, needed + connections) {
        Ok(None) => Ok(()),
        Ok(Some(soft)) => {
            let raised = Rlimit {
                current: Some(soft),
                maximum: limit.maximum,
            };
            setrlimit(Resource::Nofile, raised).map_err(|errno| {
                TrafficError::of_errno("raise the limit of file descriptors", errno)
            })
        }
        Err(limit) => Err(TrafficError::FileLimit { needed, limit }),
    }
}

/// Raises the soft limit to the hard one, and returns how many clients' connections a server may hold.
pub(crate) fn room_for_clients() -> Result<usize, TrafficError> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        setrlimit(Resource::Nofile, raised).map_err(|errno| {
            TrafficError::of_errno("raise the limit of file descriptors", errno)
        })?;
    }
    let hard = limit.maximum.unwrap_or(u64::MAX);
    let room = hard.saturating_sub(files_open()?).saturating_sub(SPARE);
    Ok(usize::try_from(room).unwrap_or(usize::MAX))
}

/// The soft limit that there must be for `needed` descriptors, and better `wanted`; `None` when the one in
/// force will do, and the hard limit as an error when not even that is enough.
fn new_soft_limit(limit: Rlimit, needed: u64, wanted: u64) -> Result<Option<u64>, u64> {
    let hard = limit.maximum.unwrap_or(u64::MAX);
    let soft = limit.current.unwrap_or(u64::MAX);
    if needed > hard {
        return Err(hard);
    }
    Ok(Some(wanted.min(hard)).filter(|&better| better > soft))
}

/// The lowest number that is free: the kernel uses it for the next descriptor, and all below it are taken.
fn files_open() -> Result<u64, TrafficError> {
    Ok(u64::try_from(new_event()?.as_raw_fd()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(soft: u64, hard: Option<u64>) -> Rlimit {
        Rlimit {
            current: Some(soft),
            maximum: hard,
        }
    }

    #[test]
    fn the_soft_limit_is_raised_as_far_as_needed_and_never_lowered() {
        assert_eq!(new_soft_limit(limit(1024, Some(4096)), 200, 300), Ok(None));
        assert_eq!(
            new_soft_limit(limit(1024, Some(4096)), 1100, 2100),
            Ok(Some(2100))
        );
        assert_eq!(
            new_soft_limit(limit(1024, Some(4096)), 3000, 5000),
            Ok(Some(4096))
        );
        assert_eq!(
            new_soft_limit(limit(1024, None), 20_000, 30_000),
            Ok(Some(30_000))
        );
    }

    #[test]
    fn a_hard_limit_that_is_too_low_is_said_with_what_is_needed() {
        assert_eq!(
            new_soft_limit(limit(256, Some(4096)), 10_500, 20_500),
            Err(4096)
        );
        let error = TrafficError::FileLimit {
            needed: 10_500,
            limit: 4096,
        };
        assert!(error.to_string().contains("ulimit -n 10500"), "{error}");
    }
}
