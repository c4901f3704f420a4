//! The receiver's credits, as the sender knows them. InfiniBand and RoCE delay a message until the receiver has posted
//! a receive; with iWARP such a message ends the connection (RFC 5041, section 7.2), so there the receiver returns
//! credits by messages of one byte, whose content is ignored.

use linerate_verbs::{Receive, Receives, Send, Sends, Work};
use rustix::io::Errno;

use super::job::{Job, message};
use crate::verbs::VerbsFlow;

/// Bytes of such a message: siw takes no request for a message of none.
const NOTE: usize = 1;

/// A request that was not taken: its place, and why.
type Refused = (usize, Errno);

/// What the sender of a lane knows.
pub(super) struct Credit<'l> {
    /// Posted receives for the credit messages, no more of which can be in flight.
    receives: Receives<'l>,
    at: usize,
    /// Messages that may still go.
    room: u64,
    each: u64,
}

impl<'l> Credit<'l> {
    pub(super) fn new(job: &Job, lane: &'l VerbsFlow<'_>, number: u64) -> Result<Self, Refused> {
        let (room, each) = (job.receives(), job.given_back());
        let receive = Receive {
            id: number << 32,
            local: message(job, lane, 0, 0, NOTE),
        };
        let count = (room / each) as usize;
        let mut receives = Receives::new(&vec![receive; count]);
        receives.post(&lane.pair, 0, count)?;
        Ok(Self {
            receives,
            at: 0,
            room: room.into(),
            each: each.into(),
        })
    }

    pub(super) fn has(&self, messages: u64) -> bool {
        self.room >= messages
    }

    pub(super) fn take(&mut self, messages: u64) {
        self.room -= messages;
    }

    /// The receiver has returned credits.
    pub(super) fn more(&mut self, lane: &VerbsFlow<'_>) -> Result<(), Refused> {
        self.room += self.each;
        self.receives.post(&lane.pair, self.at, 1)?;
        self.at = (self.at + 1) % self.receives.len();
        Ok(())
    }
}

/// How the receiver of a lane returns credits.
pub(super) struct CreditReturn<'l>(Sends<'l>);

impl<'l> CreditReturn<'l> {
    pub(super) fn new(job: &Job, lane: &'l VerbsFlow<'_>, number: u64) -> Self {
        Self(Sends::new(&[Send {
            id: number,
            local: message(job, lane, 0, 0, NOTE),
            work: Work::Send,
            signaled: true,
            inline: false,
        }]))
    }

    pub(super) fn tell(&mut self, lane: &VerbsFlow<'_>) -> Result<(), Refused> {
        self.0.post(&lane.pair, 0, 1)
    }
}
