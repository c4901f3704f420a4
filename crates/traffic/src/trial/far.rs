//! The remote end of a trial, as the control thread knows it: how the two agree on the start, and the
//! messages between them while data is transferred.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::shared_state::{Counter, SharedState, Start};
use crate::tcp::Flow;
use crate::{Abort, TrafficError};

/// A remote end. A linerate peer needs only a start: the ends of its connections signal the rest.
pub(crate) trait FarEnd: Sync {
    /// Agrees on the start and opens the gate.
    fn start(
        &self,
        flows: &[Flow],
        shared_state: &SharedState,
        abort: &Abort,
    ) -> Result<Start, TrafficError>;

    /// Becomes readable when it sends something while data is transferred.
    fn voice(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Takes what it sent, without waiting; returns whether sending shall end now.
    fn hear(&self) -> Result<bool, TrafficError> {
        Ok(false)
    }

    /// The counters were read; whether sending shall end now.
    fn beat(
        &self,
        _now: Duration,
        _flows: &[Flow],
        _counters: &[Counter],
    ) -> Result<bool, TrafficError> {
        Ok(false)
    }

    /// The sending threads have ended.
    fn stopped(&self) {}

    /// How long after the end of sending the receivers may wait for the end of file; then they take what has arrived
    /// and end. Without it a file that does not end is a failure.
    fn patience(&self) -> Option<Duration> {
        None
    }
}
