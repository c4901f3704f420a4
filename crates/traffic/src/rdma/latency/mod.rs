//! One message at a time.
//!
//! Writes and sends alternate between the ends, and half of a round trip is the latency, as in perftest. The end that
//! waits for a write polls its last byte, which the remote end changes with each message: there is no completion
//! for it. Reads and atomics are timed from the post to the completion.
//!
//! Datagrams may be lost without notice. Each carries its number, which the answer repeats: the requesting end
//! waits [`ANSWER_MAX`] for it and continues with the next one, and a late answer is not mistaken for
//! another. The answering end answers any datagram that arrives.

mod datagrams;
mod line;

use std::time::{Duration, Instant};

use linerate_model::latency::Histogram;
use linerate_model::sample::{Operations, Role, SizeRecord};
use linerate_model::units::Bytes;
use linerate_model::workload::Verb;
use linerate_verbs::Completion;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use self::datagrams::{ANSWER_MAX, PendingDatagram, add_lost};
use self::line::{Awaited, IN, Line, OUT, RECEIVED, mark};
use super::job::{Job, SIGNALLED_EVERY};
use super::rate::look;
use super::turns::{Word, agree, garbled, hear, say};
use super::{FlowTotals, ThreadOutcome};
use crate::trial::{DataThread, Start};
use crate::verbs::{ThreadDevice, Took, VerbsFlow};
use crate::{TrafficError, content};

/// Round trips of a size that do not count.
const WARM_UP: u64 = 1;
/// Empty polls of a byte before anything else is checked: some 100 us, because those checks cost system
/// calls that would delay a message.
const LOOK_EVERY: u32 = 65_536;

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitResult {
    /// The message came, or the request ended.
    Message,
    /// The remote end sent something on the companion, or has ended it.
    Words,
    /// Nothing, and the time for it is over.
    Nothing,
}

/// Both ends' view of a thread.
struct Table<'s, 'r, 'a> {
    data_thread: &'s DataThread<'r>,
    thread_device: &'s mut ThreadDevice<'a>,
    job: &'s Job,
    start: Start,
    /// Of each lane, all sizes together.
    posted: Vec<Posted>,
}

/// The requests that a queue pair has in flight.
#[derive(Debug, Clone, Copy, Default)]
struct Posted {
    /// Not known to have ended.
    under_way: u32,
    /// Since the last one that was signaled.
    unsignalled: u32,
    /// Receive buffers of unexpected messages, to be posted again.
    spent: u32,
    /// The last unexpected datagram. The requesting end has given up those before it.
    asked: Option<PendingDatagram>,
    /// Datagrams that were not answered in time.
    lost: u64,
}

/// The result of the messages of one size.
#[derive(Debug, Default)]
struct SizeResult {
    /// Messages that were answered, or ended.
    messages: u64,
    /// Round trips that would have counted, had the answer come.
    unanswered: u64,
    /// The time of all that count.
    took: Duration,
    one_way: Histogram,
}

impl Table<'_, '_, '_> {
    /// Whether the remote end's program sends messages back; else its device answers.
    fn answers(&self) -> bool {
        matches!(self.job.verb, Verb::Write | Verb::Send)
    }

    /// Posts the message of `line`, of which one in so many is signaled.
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
            .map_err(|refused| self.thread_device.refused(refused))
    }

    /// Takes completions, so that there is space for the next request.
    fn settle(&mut self) -> Result<(), TrafficError> {
        match self.thread_device.taker.take(None)? {
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
            let completion = self.thread_device.taker.taken(index);
            let lane = usize::try_from(completion.id() >> 1).unwrap_or(0);
            (completion.status()).map_err(|status| {
                let flow = self.data_thread.flows[lane].flow.number;
                self.thread_device.failed(self.job.doing(), flow, status)
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

    /// Records an unexpected message: an answer that arrives too late, or a datagram to be answered.
    #[inline]
    fn put_aside(&mut self, lane: usize, completion: &Completion) {
        let posted = &mut self.posted[lane];
        posted.spent += 1;
        posted.asked = completion.number().map(|number| PendingDatagram {
            number,
            bytes: completion.bytes(),
        });
    }

    /// What a waiting thread checks besides its completions.
    fn look_around(&self) -> Result<(), TrafficError> {
        if self.data_thread.role == Role::Sender {
            return look(self.data_thread, self.thread_device, self.start);
        }
        // The remote end may send a message at any time.
        self.thread_device.taker.check_device()?;
        if self.data_thread.shared_state.has_failed() {
            return Err(TrafficError::Aborted);
        }
        Ok(())
    }

    /// Waits for the message of `line`, at most until `due`. The answering end is notified of control messages that
    /// arrive instead.
    #[inline]
    fn wait(
        &mut self,
        line: &mut Line<'_, '_>,
        due: Option<Instant>,
    ) -> Result<WaitResult, TrafficError> {
        let writes = self.job.verb == Verb::Write;
        let last = line.start_of(self.job, IN) + line.size - 1;
        let mut looks = 0u32;
        loop {
            if writes {
                if line.is_marked(last)? {
                    return Ok(WaitResult::Message);
                }
                looks += 1;
                // No PAUSE: the message waits for it, some 45 ns on x86 since Skylake, and perftest has none.
                if !looks.is_multiple_of(LOOK_EVERY) {
                    continue;
                }
                let count = self.thread_device.taker.poll()?;
                self.absorb(None, count)?;
            } else {
                match self.thread_device.taker.take(due)? {
                    Took::Some(count) => {
                        if self.absorb(Some(line.awaited()), count)? {
                            return Ok(WaitResult::Message);
                        }
                        self.give_back(line)?;
                        continue;
                    }
                    Took::Nothing => continue,
                    Took::Look => {}
                }
            }
            self.look_around()?;
            if self.data_thread.role == Role::Receiver && speaks(self.data_thread)? {
                return Ok(WaitResult::Words);
            }
            if due.is_some_and(|due| Instant::now() >= due) {
                return Ok(WaitResult::Nothing);
            }
        }
    }

    /// Posts receives for the first messages.
    fn make_all_room(&mut self, lines: &mut [Line<'_, '_>]) -> Result<(), TrafficError> {
        if self.job.verb != Verb::Send {
            return Ok(());
        }
        for line in lines {
            let count = line.receives.len();
            (line.receives.post(&line.lane.pair, 0, count))
                .map_err(|refused| self.thread_device.refused(refused))?;
        }
        Ok(())
    }

    /// Posts the receive of the message that arrived again.
    #[inline]
    fn make_room(&mut self, line: &mut Line<'_, '_>) -> Result<(), TrafficError> {
        if self.job.verb != Verb::Send {
            return Ok(());
        }
        let at = line.at;
        line.at = (at + 1) % line.receives.len();
        (line.receives.post(&line.lane.pair, at, 1))
            .map_err(|refused| self.thread_device.refused(refused))
    }

    /// Posts the receives of unexpected messages again.
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
fn speaks(data_thread: &DataThread<'_>) -> Result<bool, TrafficError> {
    let mut heard = [0u8; 1];
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
    match recv(&data_thread.flows[0].flow.socket, &mut heard, flags) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        Err(errno) => Err(TrafficError::of_errno("receive from the peer", errno)),
    }
}

/// The lines of a size, with all marks away.
fn lines<'l, 'a>(
    job: &Job,
    lanes: &'l [VerbsFlow<'a>],
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
    data_thread: &DataThread<'_>,
    thread_device: &mut ThreadDevice<'_>,
    lanes: &[VerbsFlow<'_>],
    job: &Job,
    start: Start,
) -> Result<Option<ThreadOutcome>, TrafficError> {
    let mut operations = Operations::default();
    let mut flows = vec![FlowTotals::default(); lanes.len()];
    let mut numbers = vec![0; lanes.len()];
    let sizes = u32::try_from(job.sizes.len()).unwrap_or(u32::MAX);
    let whole = Duration::from(data_thread.spec.duration_ns);
    let mut table = Table {
        data_thread,
        thread_device,
        job,
        start,
        posted: vec![Posted::default(); lanes.len()],
    };
    for (index, &size) in (0u32..).zip(&job.sizes) {
        if data_thread.shared_state.is_stopped() {
            break;
        }
        let mut lines = lines(job, lanes, size, &numbers);
        if index == 0 {
            table.make_all_room(&mut lines)?;
        }
        agree(data_thread, start, Word::Turn { index }, Word::Ready)?;
        let until = start.at + whole * (index + 1) / sizes;
        let made = table.ask_size(&mut lines, &mut flows, until)?;
        // Receives that are left over belong to the next size.
        for (number, line) in numbers.iter_mut().zip(&lines) {
            *number = line.number;
        }
        let messages = made.messages;
        agree(data_thread, start, Word::Done { messages }, Word::Taken)?;
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
    Ok(Some(ThreadOutcome {
        start,
        flows,
        operations: Some(operations),
    }))
}

impl Table<'_, '_, '_> {
    /// Messages of one size, in turn on all lines.
    fn ask_size(
        &mut self,
        lines: &mut [Line<'_, '_>],
        flows: &mut [FlowTotals],
        until: Instant,
    ) -> Result<SizeResult, TrafficError> {
        let most = self
            .job
            .repetitions
            .map_or(u64::MAX, |count| count + WARM_UP);
        let mut made = SizeResult::default();
        let half = if self.answers() { 2 } else { 1 };
        let mut ended = Instant::now();
        for repetition in 0..most {
            for (line, moved) in lines.iter_mut().zip(flows.iter_mut()) {
                line.advance();
                self.give_back(line)?;
                self.prepare(line);
                let begun = Instant::now();
                self.post(line)?;
                // While it is in flight.
                let due = line.told.map(|_| begun + ANSWER_MAX);
                let came = self.wait(line, due)? == WaitResult::Message;
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
                    if self.data_thread.shared_state.is_stopped() {
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
            let is_over = self.data_thread.shared_state.is_stopped() || ended >= until;
            if is_over && repetition >= WARM_UP {
                break;
            }
        }
        Ok(made)
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
    data_thread: &mut DataThread<'_>,
    thread_device: &mut ThreadDevice<'_>,
    lanes: &[VerbsFlow<'_>],
    job: &Job,
) -> Result<Option<ThreadOutcome>, TrafficError> {
    // Receives for all sizes: each continues where the one before has left off.
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
    let Some(start) = data_thread.ready()? else {
        return Ok(None);
    };
    let mut table = Table {
        data_thread,
        thread_device,
        job,
        start,
        posted: vec![Posted::default(); lanes.len()],
    };
    // The sender's first message waits for our answer to its first word.
    if let Some(lines) = all.first_mut() {
        table.make_all_room(lines)?;
    }
    let mut flows = vec![FlowTotals::default(); lanes.len()];
    let mut numbers = vec![0; lanes.len()];
    loop {
        match hear(data_thread, start)? {
            Word::Turn { index, .. } => {
                let lines = usize::try_from(index)
                    .ok()
                    .and_then(|index| all.get_mut(index));
                let Some(lines) = lines else {
                    return Err(garbled(data_thread));
                };
                for (line, &number) in lines.iter_mut().zip(&numbers) {
                    line.number = number;
                    line.forget(job);
                }
                say(data_thread, Word::Ready)?;
                table.answer_size(lines, &mut flows)?;
                for (number, line) in numbers.iter_mut().zip(lines.iter()) {
                    *number = line.number;
                }
            }
            Word::Done { .. } => say(data_thread, Word::Taken)?,
            Word::End => break,
            _ => return Err(garbled(data_thread)),
        }
    }
    Ok(Some(ThreadOutcome {
        start,
        flows,
        operations: None,
    }))
}

impl Table<'_, '_, '_> {
    /// Returns every message until the remote end sends a control message: in turn on all lines, as they come.
    fn answer_size(
        &mut self,
        lines: &mut [Line<'_, '_>],
        flows: &mut [FlowTotals],
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
                if self.wait(line, None)? == WaitResult::Words {
                    line.number -= 1;
                    return Ok(());
                }
                self.check(line)?;
                self.prepare(line);
                self.post(line)?;
                // There are receives for more than one: the remote end need not wait for this.
                self.make_room(line)?;
                moved.messages += 1;
                moved.bytes += 2 * line.size as u64;
                line.lane.one.counter.set_bytes(moved.bytes);
            }
        }
    }
}

/// What is read, or added to, at the remote end.
fn prepare_source(job: &Job, lane: &VerbsFlow<'_>) {
    let mut text = vec![0; job.slot()];
    if job.verb == Verb::Read {
        content::fill(&mut text, lane.one.flow.number, 0);
    }
    lane.region.write(0, &text);
}
