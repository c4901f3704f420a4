//! The remote end of rates: receives messages, or sleeps while its device serves the sender's requests.

use std::time::{Duration, Instant};

use linerate_verbs::{Opcode, Receive, Receives};

use super::credit::CreditReturn;
use super::job::{Job, message};
use super::turns::{BYTES, Word, garbled, gone, hear, say};
use super::{FlowTotals, ThreadOutcome};
use crate::TrafficError;
use crate::tcp::words::{PartialMessage, Word as Came};
use crate::trial::{DataThread, Start};
use crate::verbs::{ThreadDevice, Took, VerbsFlow};

/// How long datagrams that are still in flight are waited for.
const LATE_MAX: Duration = Duration::from_millis(50);

/// The receiver's part.
pub(super) fn receive(
    data_thread: &mut DataThread<'_>,
    thread_device: &mut ThreadDevice<'_>,
    lanes: &[VerbsFlow<'_>],
    job: &Job,
) -> Result<Option<ThreadOutcome>, TrafficError> {
    if job.is_one_sided() {
        return sleep(data_thread, lanes);
    }
    let mut rooms: Vec<Room<'_>> = (0u64..)
        .zip(lanes)
        .map(|(number, lane)| Room::new(job, lane, number, thread_device.is_iwarp))
        .collect();
    for (room, lane) in rooms.iter_mut().zip(lanes) {
        room.post_all(lane)
            .map_err(|refused| thread_device.refused(refused))?;
    }
    let Some(start) = data_thread.ready()? else {
        return Ok(None);
    };
    loop {
        match hear(data_thread, start)? {
            turn @ (Word::Alone | Word::Turn { .. }) => {
                say(data_thread, Word::Ready)?;
                let counts = turn != Word::Alone;
                take_turn(
                    data_thread,
                    thread_device,
                    lanes,
                    job,
                    &mut rooms,
                    counts,
                    start,
                )?;
                say(data_thread, Word::Taken)?;
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

/// The receiver of one-sided verbs.
fn sleep(
    data_thread: &mut DataThread<'_>,
    lanes: &[VerbsFlow<'_>],
) -> Result<Option<ThreadOutcome>, TrafficError> {
    let Some(start) = data_thread.ready()? else {
        return Ok(None);
    };
    loop {
        match hear(data_thread, start)? {
            Word::Alone | Word::Turn { .. } => say(data_thread, Word::Ready)?,
            Word::Done { .. } => say(data_thread, Word::Taken)?,
            Word::End => break,
            _ => return Err(garbled(data_thread)),
        }
    }
    Ok(Some(ThreadOutcome {
        start,
        flows: vec![FlowTotals::default(); lanes.len()],
        operations: None,
    }))
}

/// Posted receives of one lane.
pub(super) struct Room<'l> {
    receives: Receives<'l>,
    /// How credits are returned to the sender.
    credit_return: Option<CreditReturn<'l>>,
    /// Messages that were received and whose credit was not returned yet.
    taken: usize,
    /// Where the next ones are returned.
    at: usize,
    batch: usize,
    header: u64,
    pub(super) moved: FlowTotals,
}

impl<'l> Room<'l> {
    pub(super) fn new(job: &Job, lane: &'l VerbsFlow<'_>, number: u64, tells: bool) -> Self {
        let count = job.receives() as usize;
        let (header, most) = (job.header(), job.slot() - job.header());
        let slots = job.slots();
        let all: Vec<Receive<'_>> = (0..count)
            .map(|index| Receive {
                id: number,
                local: message(job, lane, index % slots, header, most),
            })
            .collect();
        Self {
            receives: Receives::new(&all),
            credit_return: tells.then(|| CreditReturn::new(job, lane, number)),
            taken: 0,
            at: 0,
            batch: job.given_back() as usize,
            header: header as u64,
            moved: FlowTotals::default(),
        }
    }

    pub(super) fn post_all(
        &mut self,
        lane: &VerbsFlow<'_>,
    ) -> Result<(), (usize, rustix::io::Errno)> {
        let count = self.receives.len();
        self.receives.post(&lane.pair, 0, count)
    }

    /// The receive of the next message that is taken, of those that are posted again one by one.
    pub(super) fn next_slot(&mut self) -> usize {
        let slot = self.at;
        self.at = (slot + 1) % self.receives.len();
        slot
    }

    /// Posts one receive again.
    pub(super) fn give_back(
        &mut self,
        lane: &VerbsFlow<'_>,
        slot: usize,
    ) -> Result<(), (usize, rustix::io::Errno)> {
        self.receives.post(&lane.pair, slot, 1)
    }

    /// A message was taken; posts receives again in batches.
    #[inline]
    fn took(&mut self, lane: &VerbsFlow<'_>) -> Result<(), (usize, rustix::io::Errno)> {
        self.taken += 1;
        if self.taken == self.batch {
            self.receives.post(&lane.pair, self.at, self.taken)?;
            self.at = (self.at + self.taken) % self.receives.len();
            self.taken = 0;
            if let Some(credit_return) = &mut self.credit_return {
                credit_return.tell(lane)?;
            }
        }
        Ok(())
    }
}

/// THE hot loop of a receiver: receives messages until the sender has reported how many there were, and all
/// have arrived.
fn take_turn(
    data_thread: &DataThread<'_>,
    thread_device: &mut ThreadDevice<'_>,
    lanes: &[VerbsFlow<'_>],
    job: &Job,
    rooms: &mut [Room<'_>],
    counts: bool,
    start: Start,
) -> Result<(), TrafficError> {
    let first = data_thread.flows[0].flow;
    let mut heard = PartialMessage::<BYTES>::default();
    let mut expected = None;
    let mut quiet_since = Instant::now();
    let mut came = 0;
    loop {
        if expected.is_some_and(|expected| came >= expected) {
            return Ok(());
        }
        let due = expected.map(|_| quiet_since + LATE_MAX);
        match thread_device.taker.take(due)? {
            Took::Some(count) => {
                for index in 0..count {
                    let completion = thread_device.taker.taken(index);
                    let number = usize::try_from(completion.id()).unwrap_or(0);
                    let lane = &lanes[number];
                    (completion.status()).map_err(|status| {
                        thread_device.failed("receive a message", lane.one.flow.number, status)
                    })?;
                    if completion.opcode() != Opcode::Received {
                        continue;
                    }
                    let room = &mut rooms[number];
                    came += 1;
                    if counts {
                        room.moved.messages += 1;
                        room.moved.bytes +=
                            u64::from(completion.bytes()).saturating_sub(room.header);
                        lane.one.counter.set_bytes(room.moved.bytes);
                    }
                    room.took(lane)
                        .map_err(|refused| thread_device.refused(refused))?;
                }
                quiet_since = Instant::now();
            }
            Took::Nothing => {}
            Took::Look if expected.is_some() => {
                if job.is_datagrams() && quiet_since.elapsed() >= LATE_MAX {
                    return Ok(());
                }
                if data_thread.shared_state.has_failed() {
                    return Err(TrafficError::Aborted);
                }
            }
            Took::Look => match heard.hear(first) {
                Came::Partial => {}
                Came::Whole(bytes) => match Word::of(bytes) {
                    Some(Word::Done { messages }) => {
                        expected = Some(messages);
                        quiet_since = Instant::now();
                    }
                    _ => return Err(TrafficError::PeerGarbled { flow: first.number }),
                },
                Came::Closed => return Err(gone(data_thread, start)),
            },
        }
    }
}
