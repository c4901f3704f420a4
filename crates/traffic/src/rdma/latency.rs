//! One message at a time.
//!
//! Writes and sends go to and fro, and half of a round trip is the latency, as perftest has it. The end that
//! waits for a write looks at its last byte, which the far end changes with each message: no completion tells
//! of it. Reads and atomics are timed from the post to the completion.

use std::time::{Duration, Instant};

use linerate_model::latency::Histogram;
use linerate_model::sample::{Operations, SizeRecord};
use linerate_model::units::Bytes;
use linerate_model::workload::Verb;
use linerate_verbs::{Receive, Receives, Send, Sends};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::job::{Job, SIGNALLED_EVERY, message};
use super::rate::look;
use super::turns::{Word, agree, garbled, hear, say};
use super::{Moved, Told};
use crate::trial::{Seat, Start};
use crate::verbs::{Lane, Station, Took};
use crate::{TrafficError, content};

/// Round trips of a size that do not count.
const WARM_UP: u64 = 1;
/// How often a byte is looked at in vain before anything else is: some 100 us, as looking around costs system
/// calls that a message could wait for.
const LOOK_EVERY: u32 = 65_536;
/// The mark of a completion that is a received message; the rest of its number is its lane's.
const RECEIVED: u64 = 1;
/// The memory of what goes ...
const OUT: usize = 0;
/// ... and of what comes.
const IN: usize = 1;

/// What a size needs on a lane.
struct Line<'l, 'a> {
    lane: &'l Lane<'a>,
    sends: Sends<'l>,
    receives: Receives<'l>,
    /// Where the next received message's room lies in the list.
    at: usize,
    size: usize,
    header: usize,
    /// Its number among the thread's lanes.
    index: usize,
    /// The number of the message: what its last byte is.
    number: u64,
    /// What the last byte was before it.
    seen: u8,
}

/// The last byte of message `number`: never 0, and another one than that of the message before.
fn mark(number: u64) -> u8 {
    u8::try_from(number % 255).unwrap_or(0) + 1
}

impl<'l, 'a> Line<'l, 'a> {
    fn new(job: &Job, lane: &'l Lane<'a>, index: usize, size: usize, number: u64) -> Self {
        // What arrives is written to the far end's second half.
        let far = match job.verb {
            Verb::Write => lane.far.at((IN * job.slot()) as u64),
            _ => lane.far,
        };
        let request = |signaled| Send {
            id: (index as u64) << 1,
            local: message(job, lane, OUT, 0, size),
            work: job.request(lane, far, None),
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
            seen: 0,
        }
    }

    fn start_of(&self, job: &Job, half: usize) -> usize {
        let header = if half == IN { self.header } else { 0 };
        half * job.slot() + header
    }

    /// Takes the mark away that an earlier message has left where this size's is.
    fn forget(&mut self, job: &Job) {
        if job.verb == Verb::Write {
            let last = self.start_of(job, IN) + self.size - 1;
            self.lane.region.set(last, 0);
            self.seen = 0;
        }
    }

    /// Whether the mark of this message is there. One that is neither this nor the one before was changed on
    /// its way.
    #[inline]
    fn is_marked(&mut self, last: usize) -> Result<bool, TrafficError> {
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

    /// Fills what goes with the content of its number.
    fn fill(&self, job: &Job) {
        let mut text = vec![0; self.size];
        content::fill(&mut text, self.flow(), self.number);
        self.lane.region.write(self.start_of(job, OUT), &text);
    }

    /// Compares what came. Of a written message the last byte is its mark, and the others may be seen after it.
    fn compare(&self, job: &Job) -> Result<(), TrafficError> {
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
    fn compare_read(&self, job: &Job) -> Result<(), TrafficError> {
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
    fn compare_sum(&self, job: &Job) -> Result<(), TrafficError> {
        let mut text = [0; 8];
        self.lane.region.read(self.start_of(job, OUT), &mut text);
        let right = (self.number - 1).to_ne_bytes();
        content::compare_copies(&right, &text).map_err(|wrong| wrong.on(self.flow(), self.number))
    }
}

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    /// The message came, or the request ended.
    Message,
    /// The far end says something on the companion, or has ended it.
    Words,
}

/// Both ends' view of a thread.
struct Table<'s, 'r, 'a> {
    seat: &'s Seat<'r>,
    station: &'s mut Station<'a>,
    job: &'s Job,
    start: Start,
    /// Of each lane, all sizes together.
    posted: Vec<Posted>,
}

/// What a queue pair has under way.
#[derive(Debug, Clone, Copy, Default)]
struct Posted {
    /// Not known to have ended.
    under_way: u32,
    /// Since the last one that was signalled.
    unsignalled: u32,
}

impl Table<'_, '_, '_> {
    /// Whether the far end's program sends messages back; else its device answers.
    fn answers(&self) -> bool {
        matches!(self.job.verb, Verb::Write | Verb::Send)
    }

    /// Posts the message of `line`, of which one in so many is signalled.
    #[inline]
    fn post(&mut self, line: &mut Line<'_, '_>) -> Result<(), TrafficError> {
        while self.posted[line.index].under_way >= 2 * SIGNALLED_EVERY {
            let count = self.station.taker.poll()?;
            self.absorb(line, count)?;
        }
        let posted = &mut self.posted[line.index];
        posted.unsignalled += 1;
        let signals = posted.unsignalled == SIGNALLED_EVERY;
        if signals {
            posted.unsignalled = 0;
        }
        posted.under_way += 1;
        (line.sends.post(&line.lane.pair, usize::from(signals), 1))
            .map_err(|refused| self.station.refused(refused))
    }

    /// Looks through the completions that were taken: whether what is waited for is among them.
    #[inline]
    fn absorb(&mut self, line: &mut Line<'_, '_>, count: usize) -> Result<bool, TrafficError> {
        let mut came = false;
        for index in 0..count {
            let completion = self.station.taker.taken(index);
            (completion.status())
                .map_err(|status| self.station.failed(self.job.doing(), line.flow(), status))?;
            let lane = usize::try_from(completion.id() >> 1).unwrap_or(0);
            if completion.id() & RECEIVED != 0 {
                came |= lane == line.index;
            } else if self.answers() {
                self.posted[lane].under_way -= SIGNALLED_EVERY;
            } else {
                (came, self.posted[lane].under_way) = (true, 0);
            }
        }
        Ok(came)
    }

    /// Waits for the message of `line`. An end that `listens` is told of words that come instead.
    #[inline]
    fn wait(&mut self, line: &mut Line<'_, '_>, listens: bool) -> Result<Heard, TrafficError> {
        let writes = self.job.verb == Verb::Write;
        let last = line.start_of(self.job, IN) + line.size - 1;
        let mut looks = 0u32;
        loop {
            if writes {
                if line.is_marked(last)? {
                    return Ok(Heard::Message);
                }
                looks += 1;
                if !looks.is_multiple_of(LOOK_EVERY) {
                    std::hint::spin_loop();
                    continue;
                }
                let count = self.station.taker.poll()?;
                self.absorb(line, count)?;
            } else {
                match self.station.taker.take(None)? {
                    Took::Some(count) => {
                        if self.absorb(line, count)? {
                            return Ok(Heard::Message);
                        }
                        continue;
                    }
                    Took::Nothing => continue,
                    Took::Look => {}
                }
            }
            if !listens {
                look(self.seat, self.station, self.start)?;
                continue;
            }
            self.station.taker.check_device()?;
            if self.seat.board.has_failed() {
                return Err(TrafficError::Aborted);
            }
            if speaks(self.seat)? {
                return Ok(Heard::Words);
            }
        }
    }

    /// Makes room for the first messages.
    fn make_all_room(&mut self, lines: &mut [Line<'_, '_>]) -> Result<(), TrafficError> {
        if self.job.verb != Verb::Send {
            return Ok(());
        }
        for line in lines {
            let count = line.receives.len();
            (line.receives.post(&line.lane.pair, 0, count))
                .map_err(|refused| self.station.refused(refused))?;
        }
        Ok(())
    }

    /// Gives back the room of the message that came.
    #[inline]
    fn make_room(&mut self, line: &mut Line<'_, '_>) -> Result<(), TrafficError> {
        if self.job.verb != Verb::Send {
            return Ok(());
        }
        let at = line.at;
        line.at = (at + 1) % line.receives.len();
        (line.receives.post(&line.lane.pair, at, 1))
            .map_err(|refused| self.station.refused(refused))
    }

    /// Puts the message's content and mark in its place.
    #[inline]
    fn prepare(&self, line: &Line<'_, '_>) {
        if !self.answers() {
            return;
        }
        if self.job.data_check {
            line.fill(self.job);
        }
        if self.job.verb == Verb::Write {
            let last = line.start_of(self.job, OUT) + line.size - 1;
            line.lane.region.set(last, mark(line.number));
        }
    }
}

/// Whether the companion has something to read, or has ended.
fn speaks(seat: &Seat<'_>) -> Result<bool, TrafficError> {
    let mut heard = [0u8; 1];
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
    match recv(&seat.flows[0].flow.socket, &mut heard, flags) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        Err(errno) => Err(TrafficError::of_errno("hear the far end", errno)),
    }
}

/// The lines of a size, with all marks away.
fn lines<'l, 'a>(
    job: &Job,
    lanes: &'l [Lane<'a>],
    size: usize,
    numbers: &[u64],
) -> Vec<Line<'l, 'a>> {
    let lines = lanes.iter().zip(numbers).enumerate();
    lines
        .map(|(index, (lane, &number))| {
            let mut line = Line::new(job, lane, index, size, number);
            line.forget(job);
            line
        })
        .collect()
}

/// The sender's part.
pub(super) fn ask(
    seat: &Seat<'_>,
    station: &mut Station<'_>,
    lanes: &[Lane<'_>],
    job: &Job,
    start: Start,
) -> Result<Option<Told>, TrafficError> {
    let mut operations = Operations::default();
    let mut flows = vec![Moved::default(); lanes.len()];
    let mut numbers = vec![0; lanes.len()];
    let sizes = u32::try_from(job.sizes.len()).unwrap_or(u32::MAX);
    let whole = Duration::from(seat.spec.duration_ns);
    let mut table = Table {
        seat,
        station,
        job,
        start,
        posted: vec![Posted::default(); lanes.len()],
    };
    for (index, &size) in (0u32..).zip(&job.sizes) {
        if seat.board.is_stopped() {
            break;
        }
        let mut lines = lines(job, lanes, size, &numbers);
        if index == 0 {
            table.make_all_room(&mut lines)?;
        }
        agree(seat, start, Word::Turn { index }, Word::Ready)?;
        let until = start.at + whole * (index + 1) / sizes;
        let (made, took, one_way) = table.ask_size(&mut lines, &mut flows, until)?;
        // Room that is left over belongs to the next size.
        for (number, line) in numbers.iter_mut().zip(&lines) {
            *number = line.number;
        }
        agree(seat, start, Word::Done { messages: made }, Word::Taken)?;
        let counted = one_way.count();
        operations.completed += counted;
        if counted > 0 {
            operations.sizes.push(SizeRecord {
                bytes: Bytes::new(size as u64),
                repetitions: counted,
                elapsed_ns: took.into(),
                one_way,
                peak_bit_per_s: None,
                alone_ns: None,
            });
        }
    }
    Ok(Some(Told {
        start,
        flows,
        operations: Some(operations),
    }))
}

impl Table<'_, '_, '_> {
    /// Messages of one size, in turn on all lines: how many, how long all of them took, and each.
    fn ask_size(
        &mut self,
        lines: &mut [Line<'_, '_>],
        flows: &mut [Moved],
        until: Instant,
    ) -> Result<(u64, Duration, Histogram), TrafficError> {
        let most = self
            .job
            .repetitions
            .map_or(u64::MAX, |count| count + WARM_UP);
        let mut one_way = Histogram::default();
        let (mut made, mut took) = (0, Duration::ZERO);
        let half = if self.answers() { 2 } else { 1 };
        let mut ended = Instant::now();
        for repetition in 0..most {
            for (line, moved) in lines.iter_mut().zip(flows.iter_mut()) {
                line.number += 1;
                self.prepare(line);
                let begun = Instant::now();
                self.post(line)?;
                self.wait(line, false)?;
                ended = Instant::now();
                let time = ended.duration_since(begun);
                self.check(line)?;
                self.make_room(line)?;
                made += 1;
                moved.messages += 1;
                moved.bytes += line.size as u64 * half;
                if repetition >= WARM_UP {
                    took += time;
                    one_way.record((time / u32::try_from(half).unwrap_or(1)).into());
                }
                let counter = line.lane.one.counter;
                counter.set_both(moved.bytes, moved.messages);
            }
            // One that counts is made of every size that was begun.
            let is_over = self.seat.board.is_stopped() || ended >= until;
            if is_over && repetition >= WARM_UP {
                break;
            }
        }
        Ok((made, took, one_way))
    }

    fn check(&self, line: &Line<'_, '_>) -> Result<(), TrafficError> {
        if !self.job.data_check {
            return Ok(());
        }
        match self.job.verb {
            Verb::Write | Verb::Send => line.compare(self.job),
            Verb::Read => line.compare_read(self.job),
            Verb::Atomic => line.compare_sum(self.job),
        }
    }
}

/// The receiver's part.
pub(super) fn answer(
    seat: &mut Seat<'_>,
    station: &mut Station<'_>,
    lanes: &[Lane<'_>],
    job: &Job,
) -> Result<Option<Told>, TrafficError> {
    // Room for all sizes: each takes it from where the one before has left it.
    let mut all: Vec<Vec<Line<'_, '_>>> = Vec::new();
    let numbers = vec![0; lanes.len()];
    for &size in &job.sizes {
        all.push(lines(job, lanes, size, &numbers));
    }
    if !matches!(job.verb, Verb::Write | Verb::Send) {
        for lane in lanes {
            prepare_source(job, lane);
        }
    }
    let Some(start) = seat.ready()? else {
        return Ok(None);
    };
    let mut table = Table {
        seat,
        station,
        job,
        start,
        posted: vec![Posted::default(); lanes.len()],
    };
    // The sender's first message waits for our answer to its first word.
    if let Some(lines) = all.first_mut() {
        table.make_all_room(lines)?;
    }
    let mut flows = vec![Moved::default(); lanes.len()];
    let mut numbers = vec![0; lanes.len()];
    loop {
        match hear(seat, start)? {
            Word::Turn { index, .. } => {
                let lines = usize::try_from(index)
                    .ok()
                    .and_then(|index| all.get_mut(index));
                let Some(lines) = lines else {
                    return Err(garbled(seat));
                };
                for (line, &number) in lines.iter_mut().zip(&numbers) {
                    line.number = number;
                    line.forget(job);
                }
                say(seat, Word::Ready)?;
                table.answer_size(lines, &mut flows)?;
                for (number, line) in numbers.iter_mut().zip(lines.iter()) {
                    *number = line.number;
                }
            }
            Word::Done { .. } => say(seat, Word::Taken)?,
            Word::End => break,
            _ => return Err(garbled(seat)),
        }
    }
    Ok(Some(Told {
        start,
        flows,
        operations: None,
    }))
}

impl Table<'_, '_, '_> {
    /// Sends every message back until the far end says something else.
    fn answer_size(
        &mut self,
        lines: &mut [Line<'_, '_>],
        flows: &mut [Moved],
    ) -> Result<(), TrafficError> {
        if !self.answers() {
            return Ok(());
        }
        loop {
            for (line, moved) in lines.iter_mut().zip(flows.iter_mut()) {
                line.number += 1;
                if self.wait(line, true)? == Heard::Words {
                    line.number -= 1;
                    return Ok(());
                }
                self.check(line)?;
                self.prepare(line);
                self.post(line)?;
                // There is room for more than one: the far end need not wait for this.
                self.make_room(line)?;
                moved.messages += 1;
                moved.bytes += 2 * line.size as u64;
                line.lane.one.counter.set_bytes(moved.bytes);
            }
        }
    }
}

/// What is read, or added to, at the far end.
fn prepare_source(job: &Job, lane: &Lane<'_>) {
    let mut text = vec![0; job.slot()];
    if job.verb == Verb::Read {
        content::fill(&mut text, lane.one.flow.number, 0);
    }
    lane.region.write(0, &text);
}
