//! Keeps as many messages in flight as the depth allows.
//!
//! Requests are linked once for each size and posted in batches by one call; only the last of a batch is
//! signaled, and its completion stands for all of them. With at most a quarter of the depth in a
//! batch, three quarters are in flight whenever the thread posts.

use std::time::{Duration, Instant};

use linerate_model::latency::Histogram;
use linerate_model::sample::{Operations, SizeRecord};
use linerate_model::units::{BitRate, Bytes, Nanoseconds};
use linerate_model::workload::Verb;
use linerate_verbs::{Opcode, Send, Sends};

use super::credit::Credit;
use super::job::{Job, message};
use super::peak::Peak;
use super::turns::{Word, agree, gone};
use super::written::await_written;
use super::{FlowTotals, ThreadOutcome};
use crate::TrafficError;
use crate::trial::{Counter, DataThread, Start};
use crate::verbs::{ThreadDevice, Took, VerbsFlow};

/// Messages that are timed one at a time before a size's clock starts, if they take no more than a part in
/// [`ALONE_SHARE`] of the size's time.
const ALONE: u64 = 10;
const ALONE_SHARE: u32 = 100;

#[expect(
    clippy::cast_precision_loss,
    reason = "messages of a trial fit in 2^53"
)]
pub(super) fn real(count: u64) -> f64 {
    count as f64
}

/// One size on one lane.
struct SizeRun<'l, 'c> {
    sends: Sends<'l>,
    /// If no device waits for the remote end's receives.
    credit: Option<&'c mut Credit<'l>>,
    counter: &'l Counter,
    lane: u64,
    size: u64,
    batch: usize,
    depth: u64,
    /// Messages not posted yet.
    left: u64,
    /// The last message, if it is a shorter one.
    tail: Option<(Sends<'l>, u64)>,
    posted: u64,
    done: u64,
    dry: u64,
    /// Bytes of this lane, all sizes together.
    bytes: u64,
}

impl<'l, 'c> SizeRun<'l, 'c> {
    fn new(
        job: &Job,
        (lane, credit): (&'l VerbsFlow<'_>, &'c mut Option<Credit<'l>>),
        (index, size): (usize, usize),
        bytes: u64,
    ) -> Self {
        let number = index as u64;
        let batch = job.batch(size);
        let (left, tail) = job.amount(index, size);
        let request = |size: usize, index: u32| Send {
            id: identify(number, batch),
            local: message(job, lane, 0, 0, size),
            work: job.request(lane, lane.far, None),
            signaled: (index + 1).is_multiple_of(batch),
            inline: job.is_inline(lane, size),
        };
        let all: Vec<Send<'_>> = (0..job.depth).map(|index| request(size, index)).collect();
        let tail = tail.map(|size| {
            let last = Send {
                id: identify(number, 1),
                signaled: true,
                ..request(size, 0)
            };
            (Sends::new(&[last]), size as u64)
        });
        Self {
            sends: Sends::new(&all),
            credit: credit.as_mut(),
            counter: lane.one.counter,
            lane: number,
            size: size as u64,
            batch: batch as usize,
            depth: job.depth.into(),
            left,
            tail,
            posted: 0,
            done: 0,
            dry: 0,
            bytes,
        }
    }

    /// Posts as many messages as there is space for; returns how many.
    #[inline]
    fn fill(&mut self, lane: &VerbsFlow<'_>) -> Result<u64, (usize, rustix::io::Errno)> {
        let before = self.posted;
        if self.posted == self.done && self.posted > 0 && self.left > 0 {
            self.dry += 1;
        }
        while self.left > 0
            && self.posted - self.done + self.batch as u64 <= self.depth
            && self.may_go(self.batch as u64)
        {
            let at = usize::try_from(self.posted % self.depth).unwrap_or(0);
            if self.left >= self.batch as u64 {
                self.sends.post(&lane.pair, at, self.batch)?;
                self.posted(self.batch as u64);
                self.left -= self.batch as u64;
            } else {
                self.post_rest(lane, at)?;
            }
        }
        if self.left == 0
            && self.posted - self.done < self.depth
            && self.may_go(1)
            && let Some((mut last, size)) = self.tail.take()
        {
            last.post(&lane.pair, 0, 1)?;
            self.posted(1);
            // The completion adds the bytes of a whole message.
            self.bytes = self.bytes.wrapping_add(size).wrapping_sub(self.size);
        }
        Ok(self.posted - before)
    }

    /// Whether the remote end has credits for so many messages.
    #[inline]
    fn may_go(&self, messages: u64) -> bool {
        (self.credit.as_ref()).is_none_or(|credit| credit.has(messages))
    }

    #[inline]
    fn posted(&mut self, messages: u64) {
        self.posted += messages;
        if let Some(credit) = &mut self.credit {
            credit.take(messages);
        }
    }

    /// Whether it waits for nothing but credits of the remote end.
    fn lacks_room(&self) -> bool {
        self.posted == self.done && (self.left > 0 || self.tail.is_some())
    }

    /// Posts less than a batch: the last messages of all.
    fn post_rest(
        &mut self,
        lane: &VerbsFlow<'_>,
        at: usize,
    ) -> Result<(), (usize, rustix::io::Errno)> {
        let count = usize::try_from(self.left).unwrap_or(self.batch);
        let last = at + count - 1;
        self.sends.set_signaled(last, true);
        let messages = u32::try_from(count).unwrap_or(u32::MAX);
        self.sends.set_id(last, identify(self.lane, messages));
        self.sends.post(&lane.pair, at, count)?;
        self.posted(self.left);
        self.left = 0;
        Ok(())
    }

    #[inline]
    fn completed(&mut self, messages: u64) {
        self.done += messages;
        self.bytes = self.bytes.wrapping_add(messages * self.size);
        self.counter.set_bytes(self.bytes);
    }
}

/// A completion carries its lane and how many messages ended with it.
fn identify(lane: u64, messages: u32) -> u64 {
    lane << 32 | u64::from(messages)
}

fn lane_of(id: u64) -> usize {
    usize::try_from(id >> 32).unwrap_or(0)
}

/// The sender's side.
pub(super) fn send(
    data_thread: &DataThread<'_>,
    thread_device: &mut ThreadDevice<'_>,
    lanes: &[VerbsFlow<'_>],
    job: &Job,
    start: Start,
) -> Result<Option<ThreadOutcome>, TrafficError> {
    let mut operations = Operations::default();
    let mut flows = vec![FlowTotals::default(); lanes.len()];
    let mut credits = (0u64..)
        .zip(lanes)
        .map(|(number, lane)| {
            let counts = thread_device.is_iwarp && job.verb == Verb::Send;
            counts.then(|| Credit::new(job, lane, number)).transpose()
        })
        .collect::<Result<Vec<_>, _>>()
        .map_err(|refused| thread_device.refused(refused))?;
    let sizes = u32::try_from(job.sizes.len()).unwrap_or(u32::MAX);
    let whole = Duration::from(data_thread.spec.duration_ns);
    for (index, &size) in (0u32..).zip(&job.sizes) {
        if data_thread.shared_state.is_stopped() {
            break;
        }
        let alone = if job.is_datagrams() {
            None
        } else {
            let budget = whole / sizes / ALONE_SHARE;
            alone(
                data_thread,
                thread_device,
                (lanes, &mut credits),
                job,
                size,
                budget,
                start,
            )?
        };
        agree(data_thread, start, Word::Turn { index }, Word::Ready)?;
        let own = lanes.iter().zip(&mut credits);
        let mut going: Vec<SizeRun<'_, '_>> = (own.zip(&flows).enumerate())
            .map(|(index, (own, moved))| SizeRun::new(job, own, (index, size), moved.bytes))
            .collect();
        let until = start.at + whole * (index + 1) / sizes;
        let (took, peak) = carry(
            data_thread,
            thread_device,
            lanes,
            job,
            &mut going,
            until,
            start,
        )?;
        let messages: u64 = going.iter().map(|one| one.done).sum();
        agree(data_thread, start, Word::Done { messages }, Word::Taken)?;
        for (moved, one) in flows.iter_mut().zip(&going) {
            moved.bytes = one.bytes;
            moved.messages += one.done;
            moved.ran_dry = Some(moved.ran_dry.unwrap_or(0) + one.dry);
        }
        operations.completed += messages;
        if messages > 0 {
            operations.sizes.push(SizeRecord {
                bytes: Bytes::new(size as u64),
                repetitions: messages,
                elapsed_ns: took,
                one_way: Histogram::default(),
                peak_bit_per_s: peak
                    .and_then(|rate| BitRate::from_f64(rate * real(size as u64) * 8.0)),
                alone_ns: alone,
            });
        }
    }
    Ok(Some(ThreadOutcome {
        start,
        flows,
        operations: job.counts_operations.then_some(operations),
    }))
}

/// The shortest time of one message on an idle queue pair: the first one.
fn alone(
    data_thread: &DataThread<'_>,
    thread_device: &mut ThreadDevice<'_>,
    (lanes, credits): (&[VerbsFlow<'_>], &mut [Option<Credit<'_>>]),
    job: &Job,
    size: usize,
    budget: Duration,
    start: Start,
) -> Result<Option<Nanoseconds>, TrafficError> {
    agree(data_thread, start, Word::Alone, Word::Ready)?;
    let lane = &lanes[0];
    let mut one = Sends::new(&[Send {
        id: 0,
        local: message(job, lane, 0, 0, size),
        work: job.request(lane, lane.far, None),
        signaled: true,
        inline: job.is_inline(lane, size),
    }]);
    let mut shortest: Option<Nanoseconds> = None;
    let (first, mut messages) = (Instant::now(), 0);
    while messages < ALONE && (messages == 0 || first.elapsed() < budget) {
        while credits[0].as_ref().is_some_and(|credit| !credit.has(1)) {
            next(data_thread, thread_device, (lanes, credits), job, start)?;
        }
        let begun = Instant::now();
        (one.post(&lane.pair, 0, 1)).map_err(|refused| thread_device.refused(refused))?;
        if let Some(credit) = &mut credits[0] {
            credit.take(1);
        }
        while next(data_thread, thread_device, (lanes, credits), job, start)? == 0 {}
        let time = Nanoseconds::from(begun.elapsed());
        shortest = Some(shortest.map_or(time, |shortest| shortest.min(time)));
        messages += 1;
    }
    agree(data_thread, start, Word::Done { messages }, Word::Taken)?;
    Ok(shortest)
}

/// Takes completions and returned credits; returns how many messages have ended.
fn next(
    data_thread: &DataThread<'_>,
    thread_device: &mut ThreadDevice<'_>,
    (lanes, credits): (&[VerbsFlow<'_>], &mut [Option<Credit<'_>>]),
    job: &Job,
    start: Start,
) -> Result<usize, TrafficError> {
    let mut ended = 0;
    for index in 0..take(data_thread, thread_device, start)? {
        let completion = thread_device.taker.taken(index);
        let number = lane_of(completion.id());
        let lane = &lanes[number];
        (completion.status())
            .map_err(|status| thread_device.failed(job.doing(), lane.one.flow.number, status))?;
        match &mut credits[number] {
            Some(credit) if completion.opcode() == Opcode::Received => {
                (credit.more(lane)).map_err(|refused| thread_device.refused(refused))?;
            }
            _ => ended += 1,
        }
    }
    Ok(ended)
}

/// The number of completions.
#[inline]
pub(super) fn take(
    data_thread: &DataThread<'_>,
    thread_device: &mut ThreadDevice<'_>,
    start: Start,
) -> Result<usize, TrafficError> {
    match thread_device.taker.take(None)? {
        Took::Some(count) => Ok(count),
        Took::Nothing => Ok(0),
        Took::Look => look(data_thread, thread_device, start).map(|()| 0),
    }
}

/// What a waiting thread checks: the remote end, the device.
pub(super) fn look(
    data_thread: &DataThread<'_>,
    thread_device: &ThreadDevice<'_>,
    start: Start,
) -> Result<(), TrafficError> {
    thread_device.taker.check_device()?;
    if data_thread.shared_state.has_failed() {
        return Err(TrafficError::Aborted);
    }
    let first = data_thread.flows[0].flow;
    crate::tcp::words::check_silence(first, start.at.elapsed())
}

/// THE hot loop: returns the time until the last message had ended, and the highest rate in messages per
/// second.
fn carry(
    data_thread: &DataThread<'_>,
    thread_device: &mut ThreadDevice<'_>,
    lanes: &[VerbsFlow<'_>],
    job: &Job,
    going: &mut [SizeRun<'_, '_>],
    until: Instant,
    start: Start,
) -> Result<(Nanoseconds, Option<f64>), TrafficError> {
    let begun = Instant::now();
    let mut under_way = 0;
    for (one, lane) in going.iter_mut().zip(lanes) {
        under_way += one
            .fill(lane)
            .map_err(|refused| thread_device.refused(refused))?;
    }
    let mut peak = Peak::new(begun, u64::from(job.depth) * lanes.len() as u64);
    let mut stop = false;
    let mut last = begun;
    while under_way > 0 || !stop && going.iter().any(SizeRun::lacks_room) {
        let before = peak.wants_to_begin().then(Instant::now);
        let count = take(data_thread, thread_device, start)?;
        if let Some(before) = before.filter(|_| thread_device.taker.has_taken_all(count)) {
            // Its previous completions are from before, or there are none.
            peak.begin(before);
        }
        if count == 0 {
            continue;
        }
        last = Instant::now();
        stop |= data_thread.shared_state.is_stopped() || last >= until;
        let mut ended = 0;
        for index in 0..count {
            let completion = thread_device.taker.taken(index);
            let number = lane_of(completion.id());
            let lane = &lanes[number];
            (completion.status()).map_err(|status| {
                thread_device.failed(job.doing(), lane.one.flow.number, status)
            })?;
            let one = &mut going[number];
            match &mut one.credit {
                Some(credit) if completion.opcode() == Opcode::Received => {
                    (credit.more(lane)).map_err(|refused| thread_device.refused(refused))?;
                }
                _ => {
                    let messages = completion.id() & u64::from(u32::MAX);
                    one.completed(messages);
                    ended += messages;
                }
            }
            if !stop {
                under_way += one
                    .fill(lane)
                    .map_err(|refused| thread_device.refused(refused))?;
            }
        }
        under_way -= ended;
        if before.is_none() {
            peak.add(ended, last);
        }
    }
    if !stop && going.iter().any(|one| one.left > 0) {
        return Err(gone(data_thread, start));
    }
    let best = peak.best(last);
    let end = await_written(data_thread, thread_device, lanes, job, start)?.unwrap_or(last);
    Ok((end.duration_since(begun).into(), best))
}
