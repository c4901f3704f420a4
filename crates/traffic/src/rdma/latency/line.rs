//! A queue pair's messages of one size: their requests, the rooms for what comes, the content of each.

use std::time::{Duration, Instant};

use linerate_model::workload::Verb;
use linerate_verbs::{Completion, Receive, Receives, Send, Sends};

use crate::rdma::job::{Job, message};
use crate::verbs::VerbsFlow;
use crate::{TrafficError, content};

/// The numbers that datagrams can have: immediate data has 32 bits.
const NUMBERS: u64 = 1 << 32;
/// The mark of a completion that is a received message; the rest of its number is its lane's.
pub(super) const RECEIVED: u64 = 1;
/// The memory of sent messages ...
pub(super) const OUT: usize = 0;
/// ... and of what comes.
pub(super) const IN: usize = 1;

/// What a size needs on a lane.
pub(super) struct Line<'l, 'a> {
    pub(super) lane: &'l VerbsFlow<'a>,
    pub(super) sends: Sends<'l>,
    pub(super) receives: Receives<'l>,
    /// Offset of the next receive buffer in the list.
    pub(super) at: usize,
    pub(super) size: usize,
    pub(super) header: usize,
    /// Its number among the thread's lanes.
    pub(super) index: usize,
    /// The number of the message: what its last byte is.
    pub(super) number: u64,
    /// Its immediate data; of datagrams only.
    pub(super) told: Option<u32>,
    /// What the last byte was before it.
    seen: u8,
}

/// The last byte of message `number`: never 0, and another one than that of the message before.
pub(super) fn mark(number: u64) -> u8 {
    u8::try_from(number % 255).unwrap_or(0) + 1
}

impl<'l, 'a> Line<'l, 'a> {
    pub(super) fn new(
        job: &Job,
        lane: &'l VerbsFlow<'a>,
        index: usize,
        size: usize,
        number: u64,
    ) -> Self {
        // What arrives is written to the remote end's second half.
        let far = match job.verb {
            Verb::Write => lane.far.at((IN * job.slot()) as u64),
            _ => lane.far,
        };
        let told = job.is_datagrams().then_some(0);
        let request = |signaled| Send {
            id: (index as u64) << 1,
            local: message(job, lane, OUT, 0, size),
            work: job.request(lane, far, told),
            signaled,
            inline: job.is_inline(lane, size),
        };
        let every = matches!(job.verb, Verb::Read | Verb::Atomic);
        let sends = Sends::new(&[request(every), request(true)]);
        let header = job.header();
        let most = job.slot() - header;
        let room = Receive {
            id: (index as u64) << 1 | RECEIVED,
            local: message(job, lane, IN, header, most),
        };
        let receives = vec![room; job.receives() as usize];
        Self {
            lane,
            sends,
            receives: Receives::new(&receives),
            at: 0,
            size,
            header,
            index,
            number,
            told,
            seen: 0,
        }
    }

    /// Advances to the next message.
    #[inline]
    pub(super) fn advance(&mut self) {
        self.number += 1;
        if self.told.is_some() {
            self.number %= NUMBERS;
            self.told = u32::try_from(self.number).ok();
        }
    }

    /// What it waits for.
    #[inline]
    pub(super) fn awaited(&self) -> Awaited {
        Awaited {
            lane: self.index,
            number: self.told,
        }
    }

    pub(super) fn start_of(&self, job: &Job, half: usize) -> usize {
        let header = if half == IN { self.header } else { 0 };
        half * job.slot() + header
    }

    /// Takes the mark away that an earlier message has left where this size's is.
    pub(super) fn forget(&mut self, job: &Job) {
        if job.verb == Verb::Write {
            let last = self.start_of(job, IN) + self.size - 1;
            self.lane.region.set(last, 0);
            self.seen = 0;
        }
    }

    /// Whether the mark of this message is there. One that is neither this nor the one before was changed on
    /// its way.
    #[inline]
    pub(super) fn is_marked(&mut self, last: usize) -> Result<bool, TrafficError> {
        let found = self.lane.region.look(last);
        if found == self.seen {
            return Ok(false);
        }
        let expected = mark(self.number);
        if found == expected {
            self.seen = found;
            return Ok(true);
        }
        Err(TrafficError::WrongByte {
            flow: self.flow(),
            repetition: self.number,
            at: self.size as u64 - 1,
            expected,
            found,
        })
    }

    fn flow(&self) -> u32 {
        self.lane.one.flow.number
    }

    /// Fills the message to send with the content of its number.
    pub(super) fn fill(&self, job: &Job) {
        let mut text = vec![0; self.size];
        content::fill(&mut text, self.flow(), self.number);
        self.lane.region.write(self.start_of(job, OUT), &text);
    }

    /// Compares what came. Of a written message the last byte is its mark, and the others may be seen after it.
    pub(super) fn compare(&self, job: &Job) -> Result<(), TrafficError> {
        let compared = self.size - usize::from(job.verb == Verb::Write);
        let (mut text, mut right) = (vec![0; compared], vec![0; compared]);
        content::fill(&mut right, self.flow(), self.number);
        let until = Instant::now() + Duration::from_millis(10);
        loop {
            self.lane.region.read(self.start_of(job, IN), &mut text);
            match content::compare_copies(&right, &text) {
                Ok(()) => return Ok(()),
                Err(_) if job.verb == Verb::Write && Instant::now() < until => {}
                Err(wrong) => return Err(wrong.on(self.flow(), self.number)),
            }
        }
    }

    /// Compares what was read.
    pub(super) fn compare_read(&self, job: &Job) -> Result<(), TrafficError> {
        let (mut text, mut right) = (vec![0; self.size], vec![0; self.size]);
        content::fill(&mut right, self.flow(), 0);
        self.lane.region.read(self.start_of(job, OUT), &mut text);
        // What is read next must not pass for what was read now.
        self.lane
            .region
            .write(self.start_of(job, OUT), &vec![0; self.size]);
        content::compare_copies(&right, &text).map_err(|wrong| wrong.on(self.flow(), self.number))
    }

    /// Compares what was fetched with what was added before.
    pub(super) fn compare_sum(&self, job: &Job) -> Result<(), TrafficError> {
        let mut text = [0; 8];
        self.lane.region.read(self.start_of(job, OUT), &mut text);
        let right = (self.number - 1).to_ne_bytes();
        content::compare_copies(&right, &text).map_err(|wrong| wrong.on(self.flow(), self.number))
    }
}

/// The message that a thread waits for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Awaited {
    lane: usize,
    /// Its number; of datagrams alone.
    number: Option<u32>,
}

impl Awaited {
    #[inline]
    pub(super) fn is_it(self, lane: usize, completion: &Completion) -> bool {
        let is_number = |number| completion.number() == Some(number);
        lane == self.lane && self.number.is_none_or(is_number)
    }
}
