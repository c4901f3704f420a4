//! A buffer there and back over verbs, as source 001 has it: the announcement names the buffer's address, key
//! and size, the answering end reads it, and writes it back: over it, or to the place behind it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use linerate_model::ids::NodeId;
use linerate_model::known::{Cause, Known};
use linerate_model::units::Bytes;
use linerate_verbs::{Access, Receive, Remote, Send, Work};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::{Answering, Asking, Journey, Travel};
use crate::TrafficError;
use crate::exchange::conversation::Fault;
use crate::sys::Turns;
use crate::tcp::Flow;
use crate::trial::{DataThread, FlowEnd, SharedState, Start};
use crate::verbs::{Needs, ThreadDevice, Took, VerbsFlow};

/// A word: what it is (1 byte), and up to three numbers: address or time (8), key (4), size (8).
const WORD: usize = 24;
/// Receive buffers for control messages.
const ROOMS: u32 = 4;
/// A word travels in its request.
const INLINE: u32 = 24;
/// Requests of one buffer in flight at a time, if a device's longest message is shorter ...
const PIECES: usize = 16;
/// ... plus control messages.
const SENDS: u32 = 24;
/// The mark of a completion that is a word that came.
const CAME: u64 = 1 << 63;

/// What a thread's pairs share.
#[derive(Debug)]
struct Table<'a> {
    thread_device: ThreadDevice<'a>,
    shared_state: &'a SharedState,
    /// The buffers of received and unread control messages, of each pair.
    came: Vec<VecDeque<usize>>,
    /// Whether the last request of a pair that is waited for has ended.
    ended: Vec<bool>,
}

/// One end of a pair.
#[derive(Debug)]
pub(super) struct Pair<'a> {
    table: Rc<RefCell<Table<'a>>>,
    lane: VerbsFlow<'a>,
    number: usize,
    size: usize,
    /// Where what comes back begins ...
    back_at: usize,
    /// ... and where control messages are.
    words_at: usize,
    bytes: u64,
    /// Where the asking end's buffer is.
    announced: Option<Remote>,
    /// Which end's turn it is with all but the control messages.
    turns: Turns,
}

/// Connects the pairs of a thread.
pub(super) fn open<'a>(
    data_thread: &DataThread<'a>,
    journey: Journey,
) -> Result<Vec<Pair<'a>>, TrafficError> {
    let size = usize::try_from(journey.bytes.as_u64()).unwrap_or(usize::MAX / 4);
    let back_at = if journey.over { 0 } else { size };
    let words_at = back_at + size;
    let needs = Needs {
        memory: words_at + (ROOMS as usize + 1) * WORD,
        sends: SENDS,
        receives: ROOMS,
        inline: INLINE,
        access: Access {
            remote_write: true,
            remote_read: true,
            ..Access::default()
        },
    };
    let (thread_device, lanes) = ThreadDevice::open(data_thread, needs)?;
    let table = Rc::new(RefCell::new(Table {
        thread_device,
        shared_state: data_thread.shared_state,
        came: vec![VecDeque::new(); lanes.len()],
        ended: vec![false; lanes.len()],
    }));
    let pairs = lanes.into_iter().enumerate().map(|(number, lane)| Pair {
        table: Rc::clone(&table),
        lane,
        number,
        size,
        back_at,
        words_at,
        bytes: 0,
        announced: None,
        turns: Turns::new(words_at),
    });
    let pairs: Vec<Pair<'a>> = pairs.collect();
    for pair in &pairs {
        (0..ROOMS as usize).try_for_each(|room| pair.make_room(room))?;
    }
    Ok(pairs)
}

impl Travel for Pair<'_> {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn node(&self) -> Known<NodeId> {
        self.lane.node()
    }

    fn end(&self, _flow: &Flow, ended: Instant, start: Start) -> FlowEnd {
        let mut record = self.lane.record();
        record.depth = 1;
        record.moderation = 1;
        record.inline_bytes = Bytes::new((self.lane.pair.inline() as usize).min(WORD) as u64);
        if self.number == 0 {
            self.table.borrow().thread_device.taker.note(&mut record);
        }
        let reason = "the payload is sent over verbs";
        FlowEnd {
            tcp: Known::unknown(Cause::Absent, "TCP_INFO", reason),
            verbs: Some(record),
            ..FlowEnd::of_companion(self.bytes, ended, start, reason)
        }
    }
}

impl Pair<'_> {
    /// The place of a control message: the received ones, and after them the sent one.
    fn word_at(&self, room: usize) -> Range<usize> {
        let start = self.words_at + room * WORD;
        start..start + WORD
    }

    fn make_room(&self, room: usize) -> Result<(), TrafficError> {
        let id = CAME | (self.number as u64) << 8 | room as u64;
        let local = self.lane.region.slice(self.word_at(room));
        (self.lane.pair.receive(&Receive { id, local }))
            .map_err(|errno| self.table.borrow().thread_device.refused((0, errno)))
    }

    fn post(&self, work: Work<'_>, range: Range<usize>, signaled: bool) -> Result<(), Fault> {
        let inline = matches!(work, Work::Send) && range.len() <= self.lane.pair.inline() as usize;
        let send = Send {
            id: (self.number as u64) << 8,
            local: self.lane.region.slice(range),
            work,
            signaled,
            inline,
        };
        (self.lane.pair.send(&send))
            .map_err(|errno| Fault::Own(self.table.borrow().thread_device.refused((0, errno))))
    }

    /// Sends a message and waits until it is sent, because its buffer is reused.
    fn say(&mut self, kind: u8, first: u64, key: u32, last: u64) -> Result<(), Fault> {
        let place = self.word_at(ROOMS as usize);
        let mut word = [0; WORD];
        word[0] = kind;
        word[1..4].copy_from_slice(b"LNT");
        word[4..12].copy_from_slice(&first.to_be_bytes());
        word[12..16].copy_from_slice(&key.to_be_bytes());
        word[16..].copy_from_slice(&last.to_be_bytes());
        self.lane.region.write(place.start, &word);
        self.post(Work::Send, place, true)?;
        self.await_end()
    }

    /// Waits until what was posted has ended.
    fn await_end(&mut self) -> Result<(), Fault> {
        let mut table = self.table.borrow_mut();
        while !std::mem::take(&mut table.ended[self.number]) {
            table.look(&self.lane)?;
        }
        Ok(())
    }

    /// The next word, which must be of this kind: its numbers. `None` when the remote end has ended instead,
    /// which only `may_end` allows.
    fn hear(&mut self, kind: u8, may_end: bool) -> Result<Option<(u64, u32, u64)>, Fault> {
        let room = loop {
            let mut table = self.table.borrow_mut();
            if let Some(room) = table.came[self.number].pop_front() {
                break room;
            }
            match table.look(&self.lane) {
                Err(Fault::Closed) if may_end && table.came[self.number].is_empty() => {
                    return Ok(None);
                }
                other => other?,
            }
        };
        let mut word = [0; WORD];
        self.lane.region.read(self.word_at(room).start, &mut word);
        self.make_room(room)?;
        if word[0] != kind || &word[1..4] != b"LNT" {
            return Err(Fault::Unasked("an out-of-order message"));
        }
        let number = crate::tcp::words::number;
        let key = u32::from_be_bytes([word[12], word[13], word[14], word[15]]);
        Ok(Some((number(&word[4..12]), key, number(&word[16..]))))
    }

    fn hear_of(&mut self, kind: u8) -> Result<(u64, u32, u64), Fault> {
        self.hear(kind, false)?.ok_or(Fault::Closed)
    }

    /// Moves the whole buffer by requests that the device takes.
    fn move_buffer(
        &mut self,
        work: impl Fn(Remote) -> Work<'static>,
        far: Remote,
    ) -> Result<(), Fault> {
        let most = self.table.borrow().thread_device.message_max.max(1);
        self.turns.lend();
        let mut at = 0;
        while at < self.size {
            for piece in 1..=PIECES {
                let end = (at + most).min(self.size);
                let last = piece == PIECES || end == self.size;
                self.post(work(far.at(at as u64)), at..end, last)?;
                at = end;
                if last {
                    break;
                }
            }
            self.await_end()?;
        }
        self.turns.take_back();
        self.bytes += self.size as u64;
        Ok(())
    }
}

impl Table<'_> {
    /// Takes what has completed and arrived, of all pairs; waits for it in the thread's mode.
    fn look(&mut self, lane: &VerbsFlow<'_>) -> Result<(), Fault> {
        match self.thread_device.taker.take(None)? {
            Took::Some(count) => self.absorb(count, lane),
            Took::Nothing => Ok(()),
            Took::Look => {
                self.thread_device.taker.check_device()?;
                if self.shared_state.has_failed() {
                    return Err(TrafficError::Aborted.into());
                }
                let mut heard = [0u8; 1];
                let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
                match recv(lane.one.flow.socket.as_fd(), &mut heard, flags) {
                    // The last message came before the end, but perhaps after the queue was looked at.
                    Ok((0, _)) => match self.thread_device.taker.poll()? {
                        0 => Err(Fault::Closed),
                        count => self.absorb(count, lane),
                    },
                    Ok(_) => Err(Fault::Unasked("data on a companion connection")),
                    Err(Errno::AGAIN | Errno::INTR) => Ok(()),
                    Err(errno) => Err(Fault::of(errno)),
                }
            }
        }
    }

    /// Notes the `count` completions that were taken last.
    fn absorb(&mut self, count: usize, lane: &VerbsFlow<'_>) -> Result<(), Fault> {
        for index in 0..count {
            let completion = self.thread_device.taker.taken(index);
            let id = completion.id() & !CAME;
            let number = usize::try_from(id >> 8).unwrap_or(0);
            let room = usize::try_from(id & 0xFF).unwrap_or(0);
            if let Err(status) = completion.status() {
                let flow = lane.one.flow.number;
                let failed = self.thread_device.failed("move the buffer", flow, status);
                return Err(failed.into());
            }
            if completion.id() & CAME == 0 {
                self.ended[number] = true;
            } else {
                self.came[number].push_back(room);
            }
        }
        Ok(())
    }
}

const ANNOUNCE: u8 = b'A';
const GO: u8 = b'G';
const BACK: u8 = b'B';
const DONE: u8 = b'D';

impl Asking for Pair<'_> {
    fn outgoing(&mut self) -> &mut [u8] {
        let size = self.size;
        &mut self.turns.view(&mut self.lane.region)[..size]
    }

    fn both(&mut self) -> (&mut [u8], &[u8]) {
        let (size, back) = (self.size, self.back_at);
        let (out, rest) = self.turns.view(&mut self.lane.region).split_at_mut(size);
        (out, &rest[..back])
    }

    fn announce(&mut self) -> Result<(), Fault> {
        self.turns.lend();
        let own = self.lane.region.remote(0);
        self.say(ANNOUNCE, own.address, own.key, self.size as u64)
    }

    fn await_go(&mut self) -> Result<Duration, Fault> {
        let (comparing, ..) = self.hear_of(GO)?;
        Ok(Duration::from_nanos(comparing))
    }

    fn take_back(&mut self) -> Result<(), Fault> {
        self.hear_of(BACK)?;
        self.turns.take_back();
        self.bytes += 2 * self.size as u64;
        Ok(())
    }

    fn done(&mut self) -> Result<(), Fault> {
        self.say(DONE, 0, 0, 0)
    }
}

impl Answering for Pair<'_> {
    fn hear(&mut self) -> Result<bool, Fault> {
        let Some((address, key, size)) = self.hear(ANNOUNCE, true)? else {
            return Ok(false);
        };
        if size != self.size as u64 {
            return Err(Fault::Unasked("an announcement of another size"));
        }
        self.announced = Some(Remote { address, key });
        Ok(true)
    }

    fn fetch(&mut self) -> Result<(), Fault> {
        let far = self.announced.ok_or(Fault::Unasked("no announcement"))?;
        self.move_buffer(Work::Read, far)
    }

    fn fetched(&mut self) -> &mut [u8] {
        let size = self.size;
        &mut self.turns.view(&mut self.lane.region)[..size]
    }

    fn go(&mut self, comparing: Duration) -> Result<(), Fault> {
        let nanoseconds = u64::try_from(comparing.as_nanos()).unwrap_or(u64::MAX);
        self.say(GO, nanoseconds, 0, 0)
    }

    fn put_back(&mut self) -> Result<(), Fault> {
        let far = self.announced.ok_or(Fault::Unasked("no announcement"))?;
        self.move_buffer(Work::Write, far.at(self.back_at as u64))?;
        self.say(BACK, 0, 0, 0)
    }

    fn await_done(&mut self) -> Result<(), Fault> {
        self.hear_of(DONE).map(|_| ())
    }
}
