//! Time as one more descriptor to wait for (timerfd_create(2)): a hot loop needs no clock for what happens
//! seldom, and it fires to the microsecond where a time-out of epoll_wait(2) counts in milliseconds.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::TrafficError;
use crate::abort::take_signals;
use crate::waiting::timespec;

/// A timer that is readable when its time has come.
#[derive(Debug)]
pub(super) struct Alarm(OwnedFd);

impl Alarm {
    /// One that is not set.
    pub(super) fn new() -> Result<Self, TrafficError> {
        timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )
        .map(Self)
        .map_err(|errno| TrafficError::of_errno("make a timer", errno))
    }

    /// A timer that fires every `period`.
    pub(super) fn every(period: Duration) -> Result<Self, TrafficError> {
        let alarm = Self::new()?;
        alarm.set(period, period)?;
        Ok(alarm)
    }

    /// Fires once, after `time`.
    pub(super) fn once_in(&self, time: Duration) -> Result<(), TrafficError> {
        // A time of 0 would switch it off.
        self.set(time.max(Duration::from_nanos(1)), Duration::ZERO)
    }

    fn set(&self, first: Duration, period: Duration) -> Result<(), TrafficError> {
        let times = Itimerspec {
            it_interval: timespec(period),
            it_value: timespec(first),
        };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &times)
            .map(drop)
            .map_err(|errno| TrafficError::of_errno("set a timer", errno))
    }

    /// How often it went off since the last time.
    pub(super) fn take(&self) -> u64 {
        take_signals(&self.0)
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
