//! `pingpong`: a message is sent there and back, with each size in turn, as in IMB-MPI1 PingPong.
//!
//! Both ends know the sizes and how often from the specification, so a message is its payload and has no
//! header. Only one without payload needs something to be on a stream at all: it is a header alone
//! (8 bytes), as it is over every transport that frames its messages. Before the first round trip of a
//! size that counts, one is made that does not, as IMB does: it takes page faults and a window that has
//! to grow. With `data_check` every byte of both is compared ([`checked`]).

mod checked;

use std::ops::Range;
use std::rc::Rc;
use std::time::Instant;

use checked::Checked;
use linerate_model::latency::Histogram;
use linerate_model::sample::{Operations, Role, SizeRecord};
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::Pingpong;

use super::conversation::{Conversation, Fault, Memory};
use super::driver::Driver;
use super::{Talk, converse};
use crate::TrafficError;
use crate::trial::{Counter, DataThread, SharedState, Start, WorkResult};

/// What a message without payload has on a stream.
const HEADER: usize = 8;

/// Round trips of each size that do not count.
const WARM_UP: u32 = 1;

/// One size and how often.
#[derive(Debug, Clone, Copy)]
struct Turn {
    /// Bytes on the stream.
    length: usize,
    round_trips: u32,
}

/// What runs on each data thread.
pub(super) fn work(
    data_thread: &mut DataThread<'_>,
    pingpong: &Pingpong,
) -> Result<Option<WorkResult>, TrafficError> {
    let turns: Rc<[Turn]> = (pingpong.sizes.iter())
        .map(|&size| Turn {
            length: length_of(size),
            round_trips: pingpong.repetitions_of(size).saturating_add(WARM_UP),
        })
        .collect();
    let largest = turns.iter().map(|turn| turn.length).max().unwrap_or(HEADER);
    let flows = data_thread.flows.clone();
    let asks = data_thread.role == Role::Sender;
    let places = Places {
        largest,
        asks,
        checked: pingpong.data_check,
        over_verbs: data_thread.spec.verbs.is_some(),
    };
    let memory = places.memory(flows.len()) as u64;
    let driver = Driver::new(data_thread, &flows, Bytes::new(memory))?;
    let shared_state = data_thread.shared_state;
    let players = flows.iter().enumerate().map(|(index, one)| {
        let (sends_at, lands_at) = places.of(index);
        let flow = one.flow.number;
        Player {
            shared_state,
            counter: one.counter,
            turns: Rc::clone(&turns),
            asks,
            sends_at,
            lands_at,
            checked: places.checked.then(|| Checked::new(flow, largest)),
            at: 0,
            made: 0,
            unsent: 0,
            missing: 0,
            began: Instant::now(),
            bytes: 0,
            round_trips: 0,
            state: State::Playing,
        }
    });
    let players = players.collect();
    let ledger = Ledger {
        sizes: asks.then(|| {
            pingpong
                .sizes
                .iter()
                .map(|&size| new_record(size))
                .collect()
        }),
    };
    converse(data_thread, driver, players, ledger)
}

/// Where messages are in the thread's memory.
///
/// A message is sent back from where it was received: a connection never sends and receives at once, and less memory
/// fits better into the caches. What other connections write there does not matter, except in a data check: then each
/// connection has its own two places, and the answering end returns the very bytes that arrived.
#[derive(Debug, Clone, Copy)]
struct Places {
    largest: usize,
    asks: bool,
    checked: bool,
    over_verbs: bool,
}

impl Places {
    /// The memory that the driver makes for `flows` connections.
    fn memory(self, flows: usize) -> usize {
        if self.checked && !self.over_verbs {
            self.largest.saturating_mul(2).saturating_mul(flows)
        } else {
            // Over verbs each connection has its own, and the same amount again to receive messages.
            self.largest
        }
    }

    /// Where connection `index` sends from, and where it receives.
    fn of(self, index: usize) -> (usize, usize) {
        if !self.checked {
            return (0, 0);
        }
        let first = if self.over_verbs {
            0
        } else {
            2 * self.largest * index
        };
        let second = first + self.largest;
        (if self.asks { first } else { second }, second)
    }
}

fn length_of(size: Bytes) -> usize {
    match usize::try_from(size.as_u64()) {
        Ok(0) => HEADER,
        Ok(length) => length,
        Err(_) => usize::MAX,
    }
}

fn new_record(bytes: Bytes) -> SizeRecord {
    SizeRecord {
        bytes,
        repetitions: 0,
        elapsed_ns: Nanoseconds::default(),
        one_way: Histogram::default(),
        peak_bit_per_s: None,
        alone_ns: None,
    }
}

/// The records of all sizes, at the end that asks.
#[derive(Debug)]
struct Ledger {
    sizes: Option<Vec<SizeRecord>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Playing,
    /// Every size is done.
    Done,
    /// The other end has ended.
    Ended,
}

/// One end.
#[derive(Debug)]
struct Player<'a> {
    shared_state: &'a SharedState,
    counter: &'a Counter,
    turns: Rc<[Turn]>,
    asks: bool,
    /// Where in the memory the message is that is sent, and the one that comes.
    sends_at: usize,
    lands_at: usize,
    /// Where every byte is compared.
    checked: Option<Checked>,
    /// The size, and how many round trips of it were made.
    at: usize,
    made: u32,
    unsent: usize,
    missing: usize,
    began: Instant,
    bytes: u64,
    round_trips: u64,
    state: State,
}

impl Player<'_> {
    fn length(&self) -> usize {
        self.turns.get(self.at).map_or(0, |turn| turn.length)
    }

    /// A round trip is complete; continues with the next, of the next size when it is time.
    fn next(&mut self) {
        // Operations are the asking end's to count.
        self.round_trips += u64::from(self.asks && self.made >= WARM_UP);
        self.made += 1;
        if self.turns[self.at].round_trips == self.made {
            self.at += 1;
            self.made = 0;
        }
        if self.at == self.turns.len() {
            self.state = State::Done;
        }
        if let Some(checked) = &mut self.checked {
            checked.next();
        }
        self.begin();
    }

    fn begin(&mut self) {
        let length = self.length();
        match self.asks {
            true if self.shared_state.is_stopped() => self.state = State::Done,
            true => self.unsent = length,
            false => self.missing = length,
        }
    }

    fn record(&mut self, ledger: &mut Ledger) {
        let now = Instant::now();
        let time = now.saturating_duration_since(self.began);
        self.began = now;
        if self.made < WARM_UP {
            return;
        }
        let sizes = ledger.sizes.as_mut();
        if let Some(record) = sizes.and_then(|sizes| sizes.get_mut(self.at)) {
            record.repetitions += 1;
            let all = Nanoseconds::from(time).as_u64() + record.elapsed_ns.as_u64();
            record.elapsed_ns = Nanoseconds::new(all);
            record.one_way.record((time / 2).into());
        }
    }
}

impl Conversation for Player<'_> {
    type Ledger = Ledger;

    #[inline]
    fn to_send(&mut self) -> Range<usize> {
        let end = self.sends_at + self.length();
        end - self.unsent..end
    }

    #[inline]
    fn sent(&mut self, count: usize) {
        self.unsent -= count;
        self.bytes += count as u64;
        if self.unsent == 0 {
            if self.asks {
                self.missing = self.length();
            } else {
                self.next();
            }
        }
        self.counter.set_both(self.bytes, self.round_trips);
    }

    #[inline]
    fn to_receive(&self) -> Range<usize> {
        // After the last one only the end is expected.
        let length = match self.state {
            State::Playing => self.missing,
            State::Done if !self.asks => 1,
            _ => 0,
        };
        let mut start = self.lands_at;
        if self.checked.is_some() && self.state == State::Playing {
            // Its parts stand in their order.
            start += self.length() - self.missing;
        }
        start..start + length
    }

    #[inline]
    fn attend<M: Memory + ?Sized>(&mut self, memory: &mut M) -> Result<(), Fault> {
        let length = self.length();
        let Some(checked) = &mut self.checked else {
            return Ok(());
        };
        checked.take(memory, self.lands_at);
        if self.asks || self.unsent == 0 {
            checked.compare()?;
        }
        if self.asks && self.unsent > 0 && checked.fill(memory, self.sends_at, length) {
            // Filling and comparing are in no round trip's time.
            self.began = Instant::now();
        }
        Ok(())
    }

    #[inline]
    fn received(&mut self, count: usize, ledger: &mut Ledger) -> Result<(), Fault> {
        if self.state != State::Playing {
            return Err(Fault::Unasked("more messages than the trial has"));
        }
        self.missing -= count;
        self.bytes += count as u64;
        if self.missing == 0 {
            let length = self.length();
            if let Some(checked) = &mut self.checked {
                checked.came(length);
            }
            if self.asks {
                self.record(ledger);
                self.next();
            } else {
                self.unsent = self.length();
            }
        }
        self.counter.set_both(self.bytes, self.round_trips);
        Ok(())
    }

    fn peer_ended(&mut self) -> Result<(), Fault> {
        let between = self.state == State::Done || self.missing == self.length();
        if self.asks || !between {
            return Err(Fault::Closed);
        }
        self.state = State::Ended;
        Ok(())
    }

    fn is_over(&self) -> bool {
        match self.state {
            State::Playing => false,
            State::Done => self.asks,
            State::Ended => true,
        }
    }

    fn takes_whole(&self) -> bool {
        true
    }
}

impl Talk for Player<'_> {
    fn start(&mut self, _start: Start) {
        self.began = Instant::now();
        self.begin();
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn is_complete(&self) -> bool {
        self.at == self.turns.len()
    }

    fn operations(ledger: Ledger) -> Option<Operations> {
        let mut sizes = ledger.sizes?;
        sizes.retain(|size| size.repetitions > 0);
        Some(Operations {
            completed: sizes.iter().map(|size| size.repetitions).sum(),
            sizes,
            ..Operations::default()
        })
    }
}
