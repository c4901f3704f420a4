//! How a data thread waits for its sockets: one epoll instance with the trial's waiting mode, and the
//! options of sockets that go with it (Documentation/networking/napi.rst, "Busy polling").

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use linerate_model::workload::Waiting;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::TrafficError;
use crate::sys::{set_epoll_busy_poll, set_option};

/// What a [`Poller`] came back with.
pub(crate) type Event = epoll::Event;

/// Waits for many descriptors.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: OwnedFd,
    spins: bool,
}

impl Poller {
    /// An empty one that waits as `waiting` requests. If the kernel has no busy polling of epoll instances
    /// (before Linux 6.9) the sockets' own options stay in effect.
    pub(crate) fn new(waiting: Waiting) -> Result<Self, TrafficError> {
        let failed = |errno| TrafficError::of_errno("make an epoll instance", errno);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        if let Waiting::BusyPoll(micros) = waiting {
            // Best effort by design: what could not be set is what older kernels do anyway.
            let _ = set_epoll_busy_poll(&epoll, micros);
        }
        Ok(Self {
            epoll,
            spins: waiting == Waiting::Spin,
        })
    }

    /// Watches `fd`; its events carry `token`.
    pub(crate) fn add(
        &self,
        fd: impl AsFd,
        token: u64,
        flags: epoll::EventFlags,
    ) -> Result<(), TrafficError> {
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), flags)
            .map_err(|errno| TrafficError::of_errno("watch a socket", errno))
    }

    /// Changes what is watched of `fd`.
    pub(crate) fn modify(
        &self,
        fd: impl AsFd,
        token: u64,
        flags: epoll::EventFlags,
    ) -> Result<(), TrafficError> {
        epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(token), flags)
            .map_err(|errno| TrafficError::of_errno("watch a socket", errno))
    }

    /// Watches `fd` no longer.
    pub(crate) fn remove(&self, fd: impl AsFd) -> Result<(), TrafficError> {
        epoll::delete(&self.epoll, fd)
            .map_err(|errno| TrafficError::of_errno("watch a socket no longer", errno))
    }

    /// Fills `events` (up to its capacity) with what happened; waits for it, at most `limit`. When it
    /// spins, or is interrupted, it may come back with nothing.
    pub(crate) fn wait(
        &self,
        events: &mut Vec<Event>,
        limit: Option<Duration>,
    ) -> Result<(), TrafficError> {
        events.clear();
        let mut limit = limit.map(timespec);
        if self.spins {
            limit = Some(Timespec::default());
        } else if let Some(time) = limit.filter(|time| *time != Timespec::default()) {
            // epoll_wait(2) rounds a time up to a whole millisecond, which an open loop would count as
            // latency; ppoll(2) does not. An interrupted one only means that we look.
            let _ = poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&time));
            limit = Some(Timespec::default());
        }
        match epoll::wait(&self.epoll, spare_capacity(events), limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(TrafficError::of_errno("wait for sockets", errno)),
        }
    }
}

/// Readable when something happened: for ppoll(2), whose time-outs are finer than epoll_wait(2)'s.
impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// `time` for poll(2).
pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// Sets on `socket` what `waiting` needs there.
pub(crate) fn prepare_socket(socket: impl AsFd, waiting: Waiting) -> Result<(), TrafficError> {
    let Waiting::BusyPoll(micros) = waiting else {
        return Ok(());
    };
    let socket = socket.as_fd();
    // To raise it above the sysctl needs CAP_NET_ADMIN (socket(7)).
    set_option(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL, micros)
        .map_err(|errno| TrafficError::refused("set SO_BUSY_POLL", errno))?;
    match set_option(socket, libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, 1u32) {
        // Linux 5.11 has it; it needs CAP_NET_ADMIN, and without it the kernel sleeps a little earlier.
        Ok(()) | Err(Errno::NOPROTOOPT | Errno::PERM) => Ok(()),
        Err(errno) => Err(TrafficError::of_errno("set SO_PREFER_BUSY_POLL", errno)),
    }
}
