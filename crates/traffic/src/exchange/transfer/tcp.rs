//! A buffer there and back over TCP: each step is one short conversation.

use std::ops::Range;
use std::time::Duration;

use linerate_model::ids::NodeId;
use linerate_model::known::Known;
use linerate_model::units::Bytes;

use super::{Answering, Asking, Journey, Travel};
use crate::TrafficError;
use crate::exchange::conversation::{Conversation, Fault};
use crate::exchange::driver::Driver;
use crate::trial::{Counter, DataThread, ThreadFlow};

/// The announcement (the size) and the go (nanoseconds of comparing): a big-endian number.
const WORD: usize = 8;
/// Where the buffer begins, right behind the word: on a cache line, for who works on it.
const HEAD: usize = 64;
/// The place of the word.
const WORD_AT: Range<usize> = HEAD - WORD..HEAD;
/// Marks the end of a cycle.
const DONE: u8 = 0x44;

/// One end's connection.
struct Line<'a> {
    driver: Driver<'a>,
    counter: &'a Counter,
    size: usize,
    bytes: u64,
}

impl<'a> Line<'a> {
    /// A line with storage for a message and `buffers` buffers.
    fn new(
        data_thread: &DataThread<'a>,
        one: ThreadFlow<'a>,
        size: Bytes,
        buffers: u64,
    ) -> Result<Self, TrafficError> {
        let memory = Bytes::new(HEAD as u64 + buffers * size.as_u64());
        Ok(Self {
            driver: Driver::new(data_thread, &[one], memory)?,
            counter: one.counter,
            size: usize::try_from(size.as_u64()).unwrap_or(usize::MAX),
            bytes: 0,
        })
    }

    /// The place of buffer `number`.
    fn buffer(&self, number: usize) -> Range<usize> {
        let start = HEAD + number * self.size;
        start..start + self.size
    }

    fn put_word(&mut self, word: u64) {
        self.driver.memory()[WORD_AT].copy_from_slice(&word.to_be_bytes());
    }

    fn word(&mut self) -> u64 {
        let mut word = [0; WORD];
        word.copy_from_slice(&self.driver.memory()[WORD_AT]);
        u64::from_be_bytes(word)
    }

    /// Sends all of `range`.
    fn send(&mut self, range: Range<usize>) -> Result<(), Fault> {
        self.step(range, 0..0, false).map(|_| ())
    }

    /// Receives all of `range`.
    fn receive(&mut self, range: Range<usize>) -> Result<(), Fault> {
        self.step(0..0, range, false).map(|_| ())
    }

    /// `false` when the other end ended in place of what `receives` waits for.
    fn step(
        &mut self,
        sends: Range<usize>,
        receives: Range<usize>,
        may_end: bool,
    ) -> Result<bool, Fault> {
        let mut step = [Step {
            counter: self.counter,
            length: receives.len(),
            sends,
            receives,
            bytes: self.bytes,
            may_end,
            ended: false,
        }];
        let outcome = self.driver.run(&mut step, &mut ());
        self.bytes = step[0].bytes;
        outcome.map_err(|(_, fault)| fault)?;
        Ok(!step[0].ended)
    }
}

/// One message in one direction.
struct Step<'a> {
    counter: &'a Counter,
    sends: Range<usize>,
    receives: Range<usize>,
    /// Of what is received.
    length: usize,
    bytes: u64,
    may_end: bool,
    ended: bool,
}

impl Step<'_> {
    fn count(&mut self, count: usize) {
        self.bytes += count as u64;
        self.counter.set_bytes(self.bytes);
    }
}

impl Conversation for Step<'_> {
    type Ledger = ();

    fn to_send(&mut self) -> Range<usize> {
        self.sends.clone()
    }

    fn sent(&mut self, count: usize) {
        self.sends.start += count;
        self.count(count);
    }

    fn to_receive(&self) -> Range<usize> {
        self.receives.clone()
    }

    fn received(&mut self, count: usize, (): &mut ()) -> Result<(), Fault> {
        self.receives.start += count;
        self.count(count);
        Ok(())
    }

    fn peer_ended(&mut self) -> Result<(), Fault> {
        if !self.may_end || self.receives.len() < self.length {
            return Err(Fault::Closed);
        }
        self.ended = true;
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.ended || (self.sends.is_empty() && self.receives.is_empty())
    }

    fn takes_whole(&self) -> bool {
        true
    }
}

/// The requesting end: one buffer is sent, and it or another one receives what comes back.
pub(super) struct TcpAsking<'a> {
    line: Line<'a>,
    /// The number of the buffer that takes it.
    back: usize,
}

impl<'a> TcpAsking<'a> {
    pub(super) fn new(
        data_thread: &DataThread<'a>,
        one: ThreadFlow<'a>,
        journey: Journey,
    ) -> Result<Self, TrafficError> {
        let back = usize::from(!journey.over);
        let line = Line::new(data_thread, one, journey.bytes, 1 + back as u64)?;
        Ok(Self { line, back })
    }
}

impl Travel for TcpAsking<'_> {
    fn bytes(&self) -> u64 {
        self.line.bytes
    }

    fn node(&self) -> Known<NodeId> {
        self.line.driver.node()
    }
}

impl Asking for TcpAsking<'_> {
    fn outgoing(&mut self) -> &mut [u8] {
        let range = self.line.buffer(0);
        &mut self.line.driver.memory()[range]
    }

    fn both(&mut self) -> (&mut [u8], &[u8]) {
        let back = self.line.buffer(1).start;
        let (sent, back) = self.line.driver.memory().split_at_mut(back);
        (&mut sent[HEAD..], back)
    }

    fn announce(&mut self) -> Result<(), Fault> {
        let size = self.line.size as u64;
        self.line.put_word(size);
        // The size and the buffer lie side by side.
        self.line.send(WORD_AT.start..HEAD + self.line.size)
    }

    fn await_go(&mut self) -> Result<Duration, Fault> {
        self.line.receive(WORD_AT)?;
        Ok(Duration::from_nanos(self.line.word()))
    }

    fn take_back(&mut self) -> Result<(), Fault> {
        self.line.receive(self.line.buffer(self.back))
    }

    fn done(&mut self) -> Result<(), Fault> {
        self.line.driver.memory()[0] = DONE;
        self.line.send(0..1)
    }
}

/// The answering end: one buffer.
pub(super) struct TcpAnswering<'a>(Line<'a>);

impl<'a> TcpAnswering<'a> {
    pub(super) fn new(
        data_thread: &DataThread<'a>,
        one: ThreadFlow<'a>,
        journey: Journey,
    ) -> Result<Self, TrafficError> {
        Line::new(data_thread, one, journey.bytes, 1).map(Self)
    }
}

impl Travel for TcpAnswering<'_> {
    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    fn node(&self) -> Known<NodeId> {
        self.0.driver.node()
    }
}

impl Answering for TcpAnswering<'_> {
    fn hear(&mut self) -> Result<bool, Fault> {
        if !self.0.step(0..0, WORD_AT, true)? {
            return Ok(false);
        }
        if self.0.word() != self.0.size as u64 {
            return Err(Fault::Unasked("an announcement of another size"));
        }
        Ok(true)
    }

    fn fetch(&mut self) -> Result<(), Fault> {
        self.0.receive(self.0.buffer(0))
    }

    fn fetched(&mut self) -> &mut [u8] {
        let range = self.0.buffer(0);
        &mut self.0.driver.memory()[range]
    }

    fn go(&mut self, comparing: Duration) -> Result<(), Fault> {
        let comparing = u64::try_from(comparing.as_nanos()).unwrap_or(u64::MAX);
        self.0.put_word(comparing);
        self.0.send(WORD_AT)
    }

    fn put_back(&mut self) -> Result<(), Fault> {
        self.0.send(self.0.buffer(0))
    }

    fn await_done(&mut self) -> Result<(), Fault> {
        self.0.receive(0..1)?;
        if self.0.driver.memory()[0] != DONE {
            return Err(Fault::Unasked("something other than `done`"));
        }
        Ok(())
    }
}
