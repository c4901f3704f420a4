//! Rounds of messages, each in its own memory, every byte compared on arrival. Only the time between
//! the first post and the last completion of a round counts.

use std::time::{Duration, Instant};

use linerate_model::latency::Histogram;
use linerate_model::sample::{Operations, SizeRecord};
use linerate_model::units::Bytes;
use linerate_model::workload::Verb;
use linerate_verbs::{Opcode, Send, Sends};

use super::job::{Job, message};
use super::passive::Room;
use super::rate::look;
use super::turns::{Word, agree, garbled, hear, say};
use super::written::await_written;
use super::{FlowTotals, ThreadOutcome};
use crate::trial::{DataThread, Start};
use crate::verbs::{ThreadDevice, Took, VerbsFlow};
use crate::{TrafficError, content};

/// Bytes of one message of this size from a lane's memory.
fn text_of(job: &Job, lane: &VerbsFlow<'_>, slot: usize, header: usize, size: usize) -> Vec<u8> {
    let mut text = vec![0; size];
    lane.region.read(slot * job.slot() + header, &mut text);
    text
}

/// The lengths of the messages of a round of at most `count` on lane `index`, which begins with number `first`: where
/// an amount ends there are fewer, and the last one may be shorter.
fn lengths_of(
    job: &Job,
    index: usize,
    (size, first, count): (usize, u64, usize),
) -> impl Iterator<Item = usize> {
    let numbers = (first..).take(count);
    numbers.map_while(move |number| job.length(index, size, number))
}

/// Fills the messages of these lengths of a round that begins with number `first`.
fn fill(job: &Job, lane: &VerbsFlow<'_>, first: u64, lengths: impl Iterator<Item = usize>) {
    let mut text = Vec::new();
    for ((slot, length), number) in lengths.enumerate().zip(first..) {
        text.resize(length, 0);
        content::fill(&mut text, lane.one.flow.number, number);
        lane.region.write(slot * job.slot(), &text);
    }
}

/// A request's number: that of its lane, and its slot there.
fn identify(index: usize, slot: usize) -> u64 {
    (index as u64) << 32 | slot as u64
}

/// The lane of a request's number.
fn lane_of(id: u64) -> usize {
    usize::try_from(id >> 32).unwrap_or(0)
}

/// Compares message `number` in `slot`.
fn compare(
    job: &Job,
    lane: &VerbsFlow<'_>,
    (slot, header): (usize, usize),
    size: usize,
    number: u64,
) -> Result<(), TrafficError> {
    let flow = lane.one.flow.number;
    let text = text_of(job, lane, slot, header, size);
    content::compare_filled(&text, flow, number).map_err(|wrong| wrong.on(flow, number))
}

/// The sender's part.
pub(super) fn send(
    data_thread: &DataThread<'_>,
    thread_device: &mut ThreadDevice<'_>,
    lanes: &[VerbsFlow<'_>],
    job: &Job,
    start: Start,
) -> Result<Option<ThreadOutcome>, TrafficError> {
    let mut operations = Operations::default();
    let mut flows = vec![FlowTotals::default(); lanes.len()];
    let sizes = u32::try_from(job.sizes.len()).unwrap_or(u32::MAX);
    let whole = Duration::from(data_thread.spec.duration_ns);
    let mut number = 0u64;
    for (index, &size) in (0u32..).zip(&job.sizes) {
        agree(data_thread, start, Word::Turn { index }, Word::Ready)?;
        let until = start.at + whole * (index + 1) / sizes;
        let most = job.most_messages(size);
        // Messages of the lane with the most of them, and of all lanes.
        let (mut took, mut messages, mut all) = (Duration::ZERO, 0u64, 0u64);
        while !data_thread.shared_state.is_stopped() && Instant::now() < until {
            let left = most - messages;
            let count = usize::try_from(left).map_or(job.slots(), |left| left.min(job.slots()));
            if count == 0 {
                break;
            }
            took += round(
                data_thread,
                thread_device,
                lanes,
                job,
                (size, number, count),
                start,
            )?;
            for (index, (lane, moved)) in lanes.iter().zip(&mut flows).enumerate() {
                for length in lengths_of(job, index, (size, number, count)) {
                    all += 1;
                    moved.messages += 1;
                    moved.bytes += length as u64;
                }
                lane.one.counter.set_bytes(moved.bytes);
            }
            messages += count as u64;
            number += count as u64;
        }
        operations.completed += all;
        if all > 0 {
            operations.sizes.push(SizeRecord {
                bytes: Bytes::new(size as u64),
                repetitions: all,
                elapsed_ns: took.into(),
                one_way: Histogram::default(),
                peak_bit_per_s: None,
                alone_ns: None,
            });
        }
    }
    Ok(Some(ThreadOutcome {
        start,
        flows,
        operations: job.counts_operations.then_some(operations),
    }))
}

/// One round of `count` messages on each lane, from number `first` on.
fn round(
    data_thread: &DataThread<'_>,
    thread_device: &mut ThreadDevice<'_>,
    lanes: &[VerbsFlow<'_>],
    job: &Job,
    (size, first, count): (usize, u64, usize),
    start: Start,
) -> Result<Duration, TrafficError> {
    if matches!(job.verb, Verb::Write | Verb::Send) {
        for (index, lane) in lanes.iter().enumerate() {
            fill(
                job,
                lane,
                first,
                lengths_of(job, index, (size, first, count)),
            );
        }
    }
    agree(data_thread, start, Word::Round { first }, Word::Ready)?;
    let begun = Instant::now();
    let mut posted = 0;
    for (index, lane) in lanes.iter().enumerate() {
        posted += post(thread_device, lane, job, index, (size, first, count))?;
    }
    let mut ended = 0;
    while ended < posted {
        match thread_device.taker.take(None)? {
            Took::Some(taken) => {
                for index in 0..taken {
                    let completion = thread_device.taker.taken(index);
                    (completion.status()).map_err(|status| {
                        let lane = lanes.get(lane_of(completion.id())).unwrap_or(&lanes[0]);
                        thread_device.failed(job.doing(), lane.one.flow.number, status)
                    })?;
                    ended += 1;
                }
            }
            Took::Nothing => {}
            Took::Look => look(data_thread, thread_device, start)?,
        }
    }
    await_written(data_thread, thread_device, lanes, job, start)?;
    let took = begun.elapsed();
    if !matches!(job.verb, Verb::Write | Verb::Send) {
        for lane in lanes {
            compare_fetched(job, lane, (size, first, count))?;
        }
    }
    let messages = count as u64;
    agree(data_thread, start, Word::Compare { messages }, Word::Right)?;
    Ok(took)
}

/// Posts the messages of a round on lane `index`, and has the last of each batch signaled; how many completions that
/// makes.
fn post(
    thread_device: &ThreadDevice<'_>,
    lane: &VerbsFlow<'_>,
    job: &Job,
    index: usize,
    round: (usize, u64, usize),
) -> Result<usize, TrafficError> {
    let count = lengths_of(job, index, round).count();
    if count == 0 {
        return Ok(0);
    }
    let batch = job.batch(round.0) as usize;
    let requests: Vec<Send<'_>> = lengths_of(job, index, round)
        .enumerate()
        .map(|(slot, length)| {
            // Atomic operations all add to the same place, and fetch into their own.
            let place = if job.verb == Verb::Atomic { 0 } else { slot };
            let far = lane.far.at((place * job.slot()) as u64);
            let number = u32::try_from(slot).ok().filter(|_| job.is_datagrams());
            Send {
                id: identify(index, slot),
                local: message(job, lane, slot, 0, length),
                work: job.request(lane, far, number),
                signaled: (slot + 1).is_multiple_of(batch) || slot + 1 == count,
                inline: job.is_inline(lane, length),
            }
        })
        .collect();
    (Sends::new(&requests).post(&lane.pair, 0, count))
        .map_err(|refused| thread_device.refused(refused))?;
    Ok(count.div_ceil(batch))
}

/// The data of reads and atomics.
fn compare_fetched(
    job: &Job,
    lane: &VerbsFlow<'_>,
    (size, first, count): (usize, u64, usize),
) -> Result<(), TrafficError> {
    let flow = lane.one.flow.number;
    for (slot, number) in (0..count).zip(first..) {
        if job.verb == Verb::Read {
            compare(job, lane, (slot, 0), size, number)?;
        } else {
            let found = text_of(job, lane, slot, 0, size);
            content::compare_copies(&number.to_ne_bytes(), &found)
                .map_err(|wrong| wrong.on(flow, number))?;
        }
        lane.region.write(slot * job.slot(), &vec![0; size]);
    }
    Ok(())
}

/// The receiver's part.
pub(super) fn receive(
    data_thread: &mut DataThread<'_>,
    thread_device: &mut ThreadDevice<'_>,
    lanes: &[VerbsFlow<'_>],
    job: &Job,
) -> Result<Option<ThreadOutcome>, TrafficError> {
    let mut rooms: Vec<Room<'_>> = (0u64..)
        .zip(lanes)
        .map(|(number, lane)| Room::new(job, lane, number, false))
        .collect();
    if job.verb == Verb::Atomic {
        for lane in lanes {
            lane.region.write(0, &[0; 8]);
        }
    }
    if job.verb == Verb::Send {
        for (lane, room) in lanes.iter().zip(&mut rooms) {
            room.post_all(lane)
                .map_err(|refused| thread_device.refused(refused))?;
        }
    }
    let Some(start) = data_thread.ready()? else {
        return Ok(None);
    };
    let mut size = 0;
    let mut first = 0;
    loop {
        match hear(data_thread, start)? {
            Word::Turn { index, .. } => {
                let found = usize::try_from(index).ok().and_then(|at| job.sizes.get(at));
                let Some(&next) = found else {
                    return Err(garbled(data_thread));
                };
                size = next;
                say(data_thread, Word::Ready)?;
            }
            Word::Round { first: number } => {
                first = number;
                for (index, lane) in lanes.iter().enumerate() {
                    if job.verb == Verb::Read {
                        let round = (size, first, job.slots());
                        fill(job, lane, first, lengths_of(job, index, round));
                    }
                }
                say(data_thread, Word::Ready)?;
            }
            Word::Compare { messages } => {
                let count = usize::try_from(messages).unwrap_or(0).min(job.slots());
                let mut round = Round {
                    job,
                    size,
                    first,
                    count,
                };
                round.compare(data_thread, thread_device, lanes, &mut rooms)?;
                say(data_thread, Word::Right)?;
            }
            Word::End => break,
            _ => return Err(garbled(data_thread)),
        }
    }
    Ok(Some(ThreadOutcome {
        start,
        flows: rooms.iter().map(|room| room.moved).collect(),
        operations: None,
    }))
}

/// What came in a round.
struct Round<'j> {
    job: &'j Job,
    size: usize,
    first: u64,
    count: usize,
}

impl Round<'_> {
    fn compare(
        &mut self,
        data_thread: &DataThread<'_>,
        thread_device: &mut ThreadDevice<'_>,
        lanes: &[VerbsFlow<'_>],
        rooms: &mut [Room<'_>],
    ) -> Result<(), TrafficError> {
        let job = self.job;
        match job.verb {
            Verb::Read | Verb::Atomic => Ok(()),
            Verb::Write => lanes.iter().try_for_each(|lane| {
                let mut numbers = (0..self.count).zip(self.first..);
                numbers
                    .try_for_each(|(slot, number)| compare(job, lane, (slot, 0), self.size, number))
            }),
            Verb::Send => self.take(data_thread, thread_device, lanes, rooms),
        }
    }

    /// Takes the messages of a round, which the sender knows to be here (datagrams: or lost), and compares
    /// each.
    fn take(
        &mut self,
        data_thread: &DataThread<'_>,
        thread_device: &mut ThreadDevice<'_>,
        lanes: &[VerbsFlow<'_>],
        rooms: &mut [Room<'_>],
    ) -> Result<(), TrafficError> {
        let (job, header) = (self.job, self.job.header());
        let mut came = vec![0usize; lanes.len()];
        let round = (self.size, self.first, self.count);
        let expected: Vec<usize> = (0..lanes.len())
            .map(|index| lengths_of(job, index, round).count())
            .collect();
        let late = Duration::from_millis(if job.is_datagrams() { 50 } else { 5_000 });
        let until = Instant::now() + late;
        while came.iter().zip(&expected).any(|(came, all)| came < all) {
            let taken = match thread_device.taker.take(Some(until))? {
                Took::Some(taken) => taken,
                Took::Nothing => continue,
                Took::Look if data_thread.shared_state.has_failed() => {
                    return Err(TrafficError::Aborted);
                }
                Took::Look if Instant::now() < until => continue,
                Took::Look => break,
            };
            for index in 0..taken {
                let completion = thread_device.taker.taken(index);
                let number = usize::try_from(completion.id()).unwrap_or(0);
                let (lane, room) = (&lanes[number], &mut rooms[number]);
                (completion.status()).map_err(|status| {
                    thread_device.failed("receive a message", lane.one.flow.number, status)
                })?;
                if completion.opcode() != Opcode::Received {
                    continue;
                }
                // Receive buffers are filled in order; datagrams, which may be lost, carry their number.
                let order = completion.number().map_or(came[number] as u64, u64::from);
                came[number] += 1;
                let slot = room.next_slot();
                let message = self.first + order;
                let asked = job.length(number, self.size, message);
                let length = asked.filter(|length| completion.bytes() as usize == header + length);
                let Some(length) = length else {
                    return Err(unasked(
                        lane,
                        "a message whose length is not the announced one",
                    ));
                };
                compare(job, lane, (slot, header), length, message)?;
                (room.give_back(lane, slot)).map_err(|refused| thread_device.refused(refused))?;
                room.moved.messages += 1;
                room.moved.bytes += length as u64;
                lane.one.counter.set_bytes(room.moved.bytes);
            }
        }
        let mut counts = lanes.iter().zip(came.iter().zip(&expected));
        match counts.find(|(_, (came, all))| came < all) {
            Some((lane, _)) if !job.is_datagrams() => {
                Err(unasked(lane, "fewer messages than announced"))
            }
            _ => Ok(()),
        }
    }
}

/// What the remote end sent on `lane` differs from its announcement.
fn unasked(lane: &VerbsFlow<'_>, what: &'static str) -> TrafficError {
    let flow = lane.one.flow.number;
    TrafficError::Unasked { flow, what }
}
