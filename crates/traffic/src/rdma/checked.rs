//! Rounds of messages, each in memory of its own, every byte compared where it arrived. Only what goes between
//! the first post and the last completion of a round is timed.

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
use super::{Moved, Told};
use crate::trial::{Seat, Start};
use crate::verbs::{Lane, Station, Took};
use crate::{TrafficError, content};

/// Bytes of one message of this size from a lane's memory.
fn text_of(job: &Job, lane: &Lane<'_>, slot: usize, header: usize, size: usize) -> Vec<u8> {
    let mut text = vec![0; size];
    lane.region.read(slot * job.slot() + header, &mut text);
    text
}

/// Fills the messages of a round that begins with number `first`.
fn fill(job: &Job, lane: &Lane<'_>, size: usize, first: u64, count: usize) {
    let mut text = vec![0; size];
    for (slot, number) in (0..count).zip(first..) {
        content::fill(&mut text, lane.one.flow.number, number);
        lane.region.write(slot * job.slot(), &text);
    }
}

/// Compares message `number` in `slot`.
fn compare(
    job: &Job,
    lane: &Lane<'_>,
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
    seat: &Seat<'_>,
    station: &mut Station<'_>,
    lanes: &[Lane<'_>],
    job: &Job,
    start: Start,
) -> Result<Option<Told>, TrafficError> {
    let mut operations = Operations::default();
    let mut flows = vec![Moved::default(); lanes.len()];
    let sizes = u32::try_from(job.sizes.len()).unwrap_or(u32::MAX);
    let whole = Duration::from(seat.spec.duration_ns);
    let mut number = 0u64;
    for (index, &size) in (0u32..).zip(&job.sizes) {
        agree(seat, start, Word::Turn { index }, Word::Ready)?;
        let until = start.at + whole * (index + 1) / sizes;
        let (mut took, mut messages) = (Duration::ZERO, 0u64);
        while !seat.board.is_stopped() && Instant::now() < until {
            let left = job.repetitions.unwrap_or(u64::MAX) - messages;
            let count = usize::try_from(left).map_or(job.slots(), |left| left.min(job.slots()));
            if count == 0 {
                break;
            }
            took += round(seat, station, lanes, job, (size, number, count), start)?;
            messages += count as u64;
            number += count as u64;
            for (lane, moved) in lanes.iter().zip(&mut flows) {
                moved.messages += count as u64;
                moved.bytes += (size * count) as u64;
                lane.one.counter.set_bytes(moved.bytes);
            }
        }
        let all = messages * lanes.len() as u64;
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
    Ok(Some(Told {
        start,
        flows,
        operations: job.counts_operations.then_some(operations),
    }))
}

/// One round of `count` messages on each lane, from number `first` on.
fn round(
    seat: &Seat<'_>,
    station: &mut Station<'_>,
    lanes: &[Lane<'_>],
    job: &Job,
    (size, first, count): (usize, u64, usize),
    start: Start,
) -> Result<Duration, TrafficError> {
    if matches!(job.verb, Verb::Write | Verb::Send) {
        for lane in lanes {
            fill(job, lane, size, first, count);
        }
    }
    agree(seat, start, Word::Round { first }, Word::Ready)?;
    let begun = Instant::now();
    for lane in lanes {
        let requests: Vec<Send<'_>> = (0..count)
            .map(|slot| {
                // Atomic operations all add to the same place, and fetch into their own.
                let place = if job.verb == Verb::Atomic { 0 } else { slot };
                let far = lane.far.at((place * job.slot()) as u64);
                let number = u32::try_from(slot).ok().filter(|_| job.is_datagrams());
                Send {
                    id: slot as u64,
                    local: message(job, lane, slot, 0, size),
                    work: job.request(lane, far, number),
                    signaled: slot + 1 == count,
                    inline: job.is_inline(lane, size),
                }
            })
            .collect();
        (Sends::new(&requests).post(&lane.pair, 0, count))
            .map_err(|refused| station.refused(refused))?;
    }
    let mut ended = 0;
    while ended < lanes.len() {
        match station.taker.take(None)? {
            Took::Some(taken) => {
                for index in 0..taken {
                    (station.taker.taken(index).status()).map_err(|status| {
                        station.failed(job.doing(), lanes[0].one.flow.number, status)
                    })?;
                    ended += 1;
                }
            }
            Took::Nothing => {}
            Took::Look => look(seat, station, start)?,
        }
    }
    let took = begun.elapsed();
    if !matches!(job.verb, Verb::Write | Verb::Send) {
        for lane in lanes {
            compare_fetched(job, lane, (size, first, count))?;
        }
    }
    let messages = count as u64;
    agree(seat, start, Word::Compare { messages }, Word::Right)?;
    Ok(took)
}

/// What reads and atomics brought.
fn compare_fetched(
    job: &Job,
    lane: &Lane<'_>,
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
    seat: &mut Seat<'_>,
    station: &mut Station<'_>,
    lanes: &[Lane<'_>],
    job: &Job,
) -> Result<Option<Told>, TrafficError> {
    let mut rooms: Vec<Room<'_>> = (0u64..)
        .zip(lanes)
        .map(|(number, lane)| Room::new(job, lane, number))
        .collect();
    if job.verb == Verb::Atomic {
        for lane in lanes {
            lane.region.write(0, &[0; 8]);
        }
    }
    if job.verb == Verb::Send {
        for (lane, room) in lanes.iter().zip(&mut rooms) {
            room.post_all(lane)
                .map_err(|refused| station.refused(refused))?;
        }
    }
    let Some(start) = seat.ready()? else {
        return Ok(None);
    };
    let mut size = 0;
    let mut first = 0;
    loop {
        match hear(seat, start)? {
            Word::Turn { index, .. } => {
                let found = usize::try_from(index).ok().and_then(|at| job.sizes.get(at));
                let Some(&next) = found else {
                    return Err(garbled(seat));
                };
                size = next;
                say(seat, Word::Ready)?;
            }
            Word::Round { first: number } => {
                first = number;
                for lane in lanes {
                    if job.verb == Verb::Read {
                        fill(job, lane, size, first, job.slots());
                    }
                }
                say(seat, Word::Ready)?;
            }
            Word::Compare { messages } => {
                let count = usize::try_from(messages).unwrap_or(0).min(job.slots());
                let mut round = Round {
                    job,
                    size,
                    first,
                    count,
                };
                round.compare(seat, station, lanes, &mut rooms)?;
                say(seat, Word::Right)?;
            }
            Word::End => break,
            _ => return Err(garbled(seat)),
        }
    }
    Ok(Some(Told {
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
        seat: &Seat<'_>,
        station: &mut Station<'_>,
        lanes: &[Lane<'_>],
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
            Verb::Send => self.take(seat, station, lanes, rooms),
        }
    }

    /// Takes the messages of a round, which the sender knows to be here (datagrams: or lost), and compares
    /// each.
    fn take(
        &mut self,
        seat: &Seat<'_>,
        station: &mut Station<'_>,
        lanes: &[Lane<'_>],
        rooms: &mut [Room<'_>],
    ) -> Result<(), TrafficError> {
        let (job, header) = (self.job, self.job.header());
        let mut came = vec![0usize; lanes.len()];
        let late = Duration::from_millis(if job.is_datagrams() { 50 } else { 5_000 });
        let until = Instant::now() + late;
        while came.iter().any(|came| *came < self.count) {
            let taken = match station.taker.take(Some(until))? {
                Took::Some(taken) => taken,
                Took::Nothing => continue,
                Took::Look if seat.board.has_failed() => return Err(TrafficError::Aborted),
                Took::Look if Instant::now() < until => continue,
                Took::Look => break,
            };
            for index in 0..taken {
                let completion = station.taker.taken(index);
                let number = usize::try_from(completion.id()).unwrap_or(0);
                let (lane, room) = (&lanes[number], &mut rooms[number]);
                (completion.status()).map_err(|status| {
                    station.failed("receive a message", lane.one.flow.number, status)
                })?;
                if completion.opcode() != Opcode::Received {
                    continue;
                }
                // Rooms are filled in their order; datagrams, of which some are lost, tell which they are.
                let order = completion.number().map_or(came[number] as u64, u64::from);
                came[number] += 1;
                let slot = room.next_slot();
                compare(job, lane, (slot, header), self.size, self.first + order)?;
                (room.give_back(lane, slot)).map_err(|refused| station.refused(refused))?;
                room.moved.messages += 1;
                room.moved.bytes += self.size as u64;
                lane.one.counter.set_bytes(room.moved.bytes);
            }
        }
        if job.is_datagrams() || came.iter().all(|came| *came == self.count) {
            return Ok(());
        }
        Err(TrafficError::Unasked {
            flow: lanes[0].one.flow.number,
            what: "fewer messages than it said",
        })
    }
}
