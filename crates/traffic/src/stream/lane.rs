//! One flow of a data thread: how much of the amount is its own, what it has moved, and how it ended.

use std::time::Instant;

use linerate_model::sample::{Copies, Role};
use linerate_model::units::Bytes;
use linerate_model::workload::{SendMode, Stream, TrialSpec};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

use crate::TrafficError;
use crate::tcp::per_direction;
use crate::trial::{DataThread, FlowEnd, Start, ThreadFlow};

/// One running flow.
#[derive(Debug)]
pub(super) struct RunningFlow<'a> {
    pub(super) one: ThreadFlow<'a>,
    /// Its part of the amount, where there is one.
    share: Option<u64>,
    /// What a sender may still send.
    pub(super) left: u64,
    bytes: u64,
    end: Option<FlowEnd>,
}

impl<'a> RunningFlow<'a> {
    pub(super) fn new(one: ThreadFlow<'a>, spec: &TrialSpec, stream: &Stream) -> Self {
        let share = share(one, spec, stream);
        Self {
            one,
            share,
            left: share.unwrap_or(u64::MAX),
            bytes: 0,
            end: None,
        }
    }

    /// Counts what was moved.
    #[inline]
    pub(super) fn count(&mut self, moved: u64) {
        self.bytes += moved;
        self.one.counter.set_bytes(self.bytes);
    }

    pub(super) fn is_open(&self) -> bool {
        self.end.is_none()
    }

    /// Records the end of the flow, notifies the other end, and returns whether it ended as it should.
    pub(super) fn finish(
        &mut self,
        data_thread: &DataThread<'_>,
        start: Start,
        errno: Option<Errno>,
    ) -> Result<(), TrafficError> {
        let ended = Instant::now();
        self.end = Some(FlowEnd::of_tcp(self.one.flow, self.bytes, ended, start));
        if data_thread.role == Role::Sender {
            // The end of file is the receiver's sign to stop. It fails only when the connection is gone,
            // and then the receiver has noticed.
            let _ = shutdown(&self.one.flow.socket, Shutdown::Write);
        }
        self.judge(data_thread, start, ended, errno)
    }

    fn judge(
        &self,
        data_thread: &DataThread<'_>,
        start: Start,
        ended: Instant,
        errno: Option<Errno>,
    ) -> Result<(), TrafficError> {
        let closed = TrafficError::PeerClosed {
            flow: self.one.flow.number,
            after: ended.duration_since(start.at),
        };
        match (data_thread.role, errno) {
            (Role::Sender, None) => Ok(()),
            // The write side is shut down by us when the time is over, to end a `send` that blocks.
            (Role::Sender, Some(Errno::PIPE)) if data_thread.shared_state.is_stopped() => Ok(()),
            (Role::Receiver, None) => match self.share {
                Some(share) if self.bytes == share => Ok(()),
                Some(share) if self.bytes > share => Err(TrafficError::Amount {
                    flow: self.one.flow.number,
                    expected: Bytes::new(share),
                    given: Bytes::new(self.bytes),
                }),
                _ if data_thread.is_time(start, ended) => Ok(()),
                _ => Err(closed),
            },
            (_, Some(Errno::PIPE | Errno::CONNRESET)) => Err(closed),
            (Role::Sender, Some(Errno::NOBUFS))
                if super::stream_of(data_thread.spec).send == SendMode::Zerocopy =>
            {
                Err(TrafficError::LockedMemory {
                    doing: "send by `zerocopy`",
                })
            }
            (_, Some(errno)) => Err(TrafficError::of_errno("move data", errno)),
        }
    }

    /// Adds how its payload crossed.
    pub(super) fn set_copies(&mut self, copies: Option<Copies>) {
        if let Some(end) = &mut self.end {
            end.copies = copies;
        }
    }

    pub(super) fn into_end(self) -> FlowEnd {
        self.end.unwrap_or_default()
    }
}

/// What of the stream's amount is this flow's; `None` when it has none.
pub(crate) fn share(one: ThreadFlow<'_>, spec: &TrialSpec, stream: &Stream) -> Option<u64> {
    let flows = per_direction(spec);
    (stream.bytes).map(|amount| share_of(amount.as_u64(), one.flow.number % flows, flows))
}

/// What of `amount` is flow `index`'s of `flows`: the first ones carry what does not divide.
fn share_of(amount: u64, index: u32, flows: u32) -> u64 {
    let (index, flows) = (u64::from(index), u64::from(flows.max(1)));
    amount / flows + u64::from(index < amount % flows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_the_first_flows_carry_the_rest() {
        for (amount, flows) in [(10, 3), (2, 5), (1 << 40, 7), (u64::MAX, 10_000)] {
            let shares: Vec<u64> = (0..flows).map(|i| share_of(amount, i, flows)).collect();
            assert_eq!(shares.iter().sum::<u64>(), amount);
            assert!(
                shares.is_sorted_by(|a, b| a >= b) && shares[0] - shares[shares.len() - 1] <= 1
            );
        }
    }
}
