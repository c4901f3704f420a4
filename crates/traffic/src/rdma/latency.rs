//! One message at a time.
//!
//! Writes and sends go to and fro, and half of a round trip is the latency, as perftest has it. The end that
//! waits for a write looks at its last byte, which the far end changes with each message: no completion tells
//! of it. Reads and atomics are timed from the post to the completion.
//!
//! Datagrams may be lost, and nobody tells. Each has its number with it, which the answer repeats: the asking end
//! waits [`ANSWER_MAX`] for it and goes on to the next one, and an answer that comes later is not taken for
//! another. The answering end answers what comes, whichever it is.

use std::time::{Duration, Instant};

use linerate_model::latency::Histogram;
use linerate_model::sample::{Operations, Role, SizeRecord};
use linerate_model::units::Bytes;
use linerate_model::workload::Verb;
use linerate_verbs::{Completion, Receive, Receives, Send, Sends};
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
/// How long the answer to a datagram is waited for. What was lost on either way counts as unanswered.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// The numbers that datagrams can have: what goes with them has 32 bits.
const NUMBERS: u64 = 1 << 32;
/// How long after the bytes of a datagram that came later its completion may be seen.
const OVERTAKEN_MAX: Duration = Duration::from_millis(10);
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
    /// The number that goes with it; of datagrams alone.
    told: Option<u32>,
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

    /// Goes on to the next message.
    #[inline]
    fn advance(&mut self) {
        self.number += 1;
        if self.told.is_some() {
            self.number %= NUMBERS;
            self.told = u32::try_from(self.number).ok();
        }
    }

    /// What it waits for.
    #[inline]
    fn awaited(&self) -> Awaited {
        Awaited {
            lane: self.index,
            number: self.told,
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

/// The message that a thread waits for.
#[derive(Debug, Clone, Copy)]
struct Awaited {
    lane: usize,
    /// Its number; of datagrams alone.
    number: Option<u32>,
}

impl Awaited {
    #[inline]
    fn is_it(self, lane: usize, completion: &Completion) -> bool {
        let is_number = |number| completion.number() == Some(number);
        lane == self.lane && self.number.is_none_or(is_number)
    }
}

/// A datagram to be answered.
#[derive(Debug, Clone, Copy)]
struct Asked {
    number: u32,
    /// With its route header.
    bytes: u32,
}

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    /// The message came, or the request ended.
    Message,
    /// The far end says something on the companion, or has ended it.
    Words,
    /// Nothing, and the time for it is over.
    Nothing,
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
    /// Rooms of messages that nobody waited for, to be given back.
    spent: u32,
    /// The last datagram that nobody waited for. The asking end has given up those before it.
    asked: Option<Asked>,
    /// Datagrams that were not answered in time.
    lost: u64,
}

/// What came of the messages of one size.
#[derive(Debug, Default)]
struct Made {
    /// Messages that were answered, or ended.
    messages: u64,
    /// Round trips that would have counted, had the answer come.
    unanswered: u64,
    /// The time of all that count.
    took: Duration,
    one_way: Histogram,
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
            self.settle()?;
        }
        let posted = &mut self.posted[line.index];
        posted.unsignalled += 1;
        let signals = posted.unsignalled == SIGNALLED_EVERY;
        if signals {
            posted.unsignalled = 0;
        }
        posted.under_way += 1;
        let request = usize::from(signals);
        if let Some(number) = line.told {
            line.sends.set_number(request, number);
        }
        (line.sends.post(&line.lane.pair, request, 1))
            .map_err(|refused| self.station.refused(refused))
    }

    /// Takes what ends, that there may be room for the next request.
    fn settle(&mut self) -> Result<(), TrafficError> {
        match self.station.taker.take(None)? {
            Took::Some(count) => {
                self.absorb(None, count)?;
            }
            Took::Nothing => {}
            Took::Look => self.look_around()?,
        }
        Ok(())
    }

    /// Looks through the completions that were taken: whether what is `awaited` is among them.
    #[inline]
    fn absorb(&mut self, awaited: Option<Awaited>, count: usize) -> Result<bool, TrafficError> {
        let mut came = false;
        for index in 0..count {
            let completion = self.station.taker.taken(index);
            let lane = usize::try_from(completion.id() >> 1).unwrap_or(0);
            (completion.status()).map_err(|status| {
                let flow = self.seat.flows[lane].flow.number;
                self.station.failed(self.job.doing(), flow, status)
            })?;
            if completion.id() & RECEIVED != 0 {
                if awaited.is_some_and(|awaited| awaited.is_it(lane, &completion)) {
                    came = true;
                } else {
                    self.put_aside(lane, &completion);
                }
            } else if self.answers() {
                self.posted[lane].under_way -= SIGNALLED_EVERY;
            } else {
                (came, self.posted[lane].under_way) = (true, 0);
            }
        }
        Ok(came)
    }

    /// Remembers a message that nobody waited for: an answer that comes too late, or a datagram to be answered.
    #[inline]
    fn put_aside(&mut self, lane: usize, completion: &Completion) {
        let posted = &mut self.posted[lane];
        posted.spent += 1;
        posted.asked = completion.number().map(|number| Asked {
            number,
            bytes: completion.bytes(),
        });
    }

    /// What a thread that waits looks at beside its completions.
    fn look_around(&self) -> Result<(), TrafficError> {
        if self.seat.role == Role::Sender {
            return look(self.seat, self.station, self.start);
        }
        // The far end may say something at any time.
        self.station.taker.check_device()?;
        if self.seat.board.has_failed() {
            return Err(TrafficError::Aborted);
        }
        Ok(())
    }

    /// Waits for the message of `line`, at most until `due`. The answering end is told of words that come
    /// instead.
    #[inline]
    fn wait(
        &mut self,
        line: &mut Line<'_, '_>,
        due: Option<Instant>,
    ) -> Result<Heard, TrafficError> {
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
                self.absorb(None, count)?;
            } else {
                match self.station.taker.take(due)? {
                    Took::Some(count) => {
                        if self.absorb(Some(line.awaited()), count)? {
                            return Ok(Heard::Message);
                        }
                        self.give_back(line)?;
                        continue;
                    }
                    Took::Nothing => continue,
                    Took::Look => {}
                }
            }
            self.look_around()?;
            if self.seat.role == Role::Receiver && speaks(self.seat)? {
                return Ok(Heard::Words);
            }
            if due.is_some_and(|due| Instant::now() >= due) {
                return Ok(Heard::Nothing);
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

    /// Gives back the rooms of messages that nobody waited for.
    #[inline]
    fn give_back(&mut self, line: &mut Line<'_, '_>) -> Result<(), TrafficError> {
        while self.posted[line.index].spent > 0 {
            self.posted[line.index].spent -= 1;
            self.make_room(line)?;
        }
        Ok(())
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
        let made = table.ask_size(&mut lines, &mut flows, until)?;
        // Room that is left over belongs to the next size.
        for (number, line) in numbers.iter_mut().zip(&lines) {
            *number = line.number;
        }
        let messages = made.messages;
        agree(seat, start, Word::Done { messages }, Word::Taken)?;
        let counted = made.one_way.count();
        operations.completed += counted;
        operations.unanswered += made.unanswered;
        if counted > 0 {
            operations.sizes.push(SizeRecord {
                bytes: Bytes::new(size as u64),
                repetitions: counted,
                elapsed_ns: made.took.into(),
                one_way: made.one_way,
                peak_bit_per_s: None,
                alone_ns: None,
            });
        }
    }
    add_lost(&table.posted, &mut flows)?;
    Ok(Some(Told {
        start,
        flows,
        operations: Some(operations),
    }))
}

/// Adds what was sent and not answered to what was sent. Where nothing at all was answered there is nothing to be
/// told of.
fn add_lost(posted: &[Posted], flows: &mut [Moved]) -> Result<(), TrafficError> {
    let lost: u64 = posted.iter().map(|one| one.lost).sum();
    if lost > 0 && flows.iter().all(|moved| moved.messages == 0) {
        return Err(TrafficError::NoneAnswered {
            sent: lost,
            waited: ANSWER_MAX,
        });
    }
    for (moved, one) in flows.iter_mut().zip(posted) {
        moved.messages += one.lost;
    }
    Ok(())
}

impl Table<'_, '_, '_> {
    /// Messages of one size, in turn on all lines.
    fn ask_size(
        &mut self,
        lines: &mut [Line<'_, '_>],
        flows: &mut [Moved],
        until: Instant,
    ) -> Result<Made, TrafficError> {
        let most = self
            .job
            .repetitions
            .map_or(u64::MAX, |count| count + WARM_UP);
        let mut made = Made::default();
        let half = if self.answers() { 2 } else { 1 };
        let mut ended = Instant::now();
        for repetition in 0..most {
            for (line, moved) in lines.iter_mut().zip(flows.iter_mut()) {
                line.advance();
                self.give_back(line)?;
                self.prepare(line);
                let begun = Instant::now();
                self.post(line)?;
                // While it is on its way.
                let due = line.told.map(|_| begun + ANSWER_MAX);
                let came = self.wait(line, due)? == Heard::Message;
                ended = Instant::now();
                let time = ended.duration_since(begun);
                if came {
                    self.make_room(line)?;
                }
                if !came || !self.is_right(line, 0)? {
                    self.posted[line.index].lost += 1;
                    made.unanswered += u64::from(repetition >= WARM_UP);
                    moved.bytes += line.size as u64;
                    // After the end no other one is waited for as long.
                    if self.seat.board.is_stopped() {
                        return Ok(made);
                    }
                    continue;
                }
                made.messages += 1;
                moved.messages += 1;
                moved.bytes += line.size as u64 * half;
                if repetition >= WARM_UP {
                    made.took += time;
                    let one_way = time / u32::try_from(half).unwrap_or(1);
                    made.one_way.record(one_way.into());
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
        Ok(made)
    }

    /// Compares what came, where that is asked for; `false` of a datagram over which another one was written
    /// than those `known` whose rooms are to be given back: all rooms are the same memory.
    #[inline]
    fn is_right(&mut self, line: &Line<'_, '_>, known: u32) -> Result<bool, TrafficError> {
        match self.check(line) {
            Ok(()) => Ok(true),
            Err(_) if line.told.is_some() && self.is_overtaken(line.index, known)? => Ok(false),
            Err(wrong) => Err(wrong),
        }
    }

    /// Whether more messages than those `known` came on `lane` and wait for their rooms to be given back.
    fn is_overtaken(&mut self, lane: usize, known: u32) -> Result<bool, TrafficError> {
        let until = Instant::now() + OVERTAKEN_MAX;
        while self.posted[lane].spent <= known {
            if Instant::now() >= until {
                return Ok(false);
            }
            let count = self.station.taker.poll()?;
            self.absorb(None, count)?;
        }
        Ok(true)
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
    /// Sends every message back until the far end says something else: in turn on all lines, as they come.
    fn answer_size(
        &mut self,
        lines: &mut [Line<'_, '_>],
        flows: &mut [Moved],
    ) -> Result<(), TrafficError> {
        if !self.answers() {
            return Ok(());
        }
        if self.job.is_datagrams() {
            return self.answer_datagrams(lines, flows);
        }
        loop {
            for (line, moved) in lines.iter_mut().zip(flows.iter_mut()) {
                line.number += 1;
                if self.wait(line, None)? == Heard::Words {
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

    /// Answers what datagrams come, whichever they are, until the far end says something else. That one was lost
    /// is the asking end's to notice.
    fn answer_datagrams(
        &mut self,
        lines: &mut [Line<'_, '_>],
        flows: &mut [Moved],
    ) -> Result<(), TrafficError> {
        loop {
            match self.station.taker.take(None)? {
                Took::Some(count) => {
                    self.absorb(None, count)?;
                }
                Took::Nothing => continue,
                Took::Look => {
                    self.look_around()?;
                    if speaks(self.seat)? {
                        return Ok(());
                    }
                }
            }
            for (line, moved) in lines.iter_mut().zip(flows.iter_mut()) {
                while let Some(asked) = self.posted[line.index].asked.take() {
                    self.answer_datagram(line, moved, asked)?;
                }
                self.give_back(line)?;
            }
        }
    }

    /// Answers a datagram by its number. One of another size is late, and nobody waits for its answer.
    fn answer_datagram(
        &mut self,
        line: &mut Line<'_, '_>,
        moved: &mut Moved,
        asked: Asked,
    ) -> Result<(), TrafficError> {
        if asked.bytes as usize != line.header + line.size {
            return Ok(());
        }
        line.number = asked.number.into();
        line.told = Some(asked.number);
        let known = self.posted[line.index].spent;
        if !self.is_right(line, known)? {
            return Ok(());
        }
        self.prepare(line);
        self.post(line)?;
        moved.messages += 1;
        moved.bytes += 2 * line.size as u64;
        line.lane.one.counter.set_bytes(moved.bytes);
        Ok(())
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
