//! Takes completions: by polling, or by sleeping until the device raises an event.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use linerate_model::sample::VerbsRecord;
use linerate_verbs::{Completion, CompletionQueue, Device, Event};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::TrafficError;
use crate::trial::SharedState;
use crate::waiting::timespec;

/// Completions taken at a time.
const TAKEN: usize = 64;
/// Empty polls of a spinning thread before it checks anything else: some 300 us, because those checks
/// cost system calls that would delay a message.
const LOOK_EVERY: u64 = 16_384;
/// Empty polls before it compares the clock with a deadline, which costs no system call: a poll may take longer than
/// expected, and a deadline must not be missed by thousands of them.
const CLOCK_EVERY: u64 = 256;

/// A thread's completion queue, its waiting mode, and its statistics.
#[derive(Debug)]
pub(crate) struct Taker<'a> {
    queue: CompletionQueue,
    device: Device,
    /// The device's port that carries the data, from 1.
    port: u8,
    shared_state: &'a SharedState,
    /// The connection that ends when the remote end is gone.
    companion: BorrowedFd<'a>,
    spins: bool,
    taken: Box<[Completion]>,
    completions: u64,
    polls: u64,
    polls_empty: u64,
    sleeps: u64,
    idle: u64,
}

/// The result of a poll of the completion queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Took {
    /// So many completions.
    Some(usize),
    /// Nothing, and nothing else to check.
    Nothing,
    /// Nothing, and it is time to check the companion, the clock and the stop flag.
    Look,
}

impl<'a> Taker<'a> {
    pub(super) fn new(
        queue: CompletionQueue,
        (device, port): (Device, u8),
        shared_state: &'a SharedState,
        companion: BorrowedFd<'a>,
        spins: bool,
    ) -> Self {
        Self {
            queue,
            device,
            port,
            shared_state,
            companion,
            spins,
            taken: vec![Completion::default(); TAKEN].into(),
            completions: 0,
            polls: 0,
            polls_empty: 0,
            sleeps: 0,
            idle: 0,
        }
    }

    /// The completion of this number among those that were taken last.
    #[inline]
    pub(crate) fn taken(&self, index: usize) -> Completion {
        self.taken[index]
    }

    /// Whether a take that found so many has left none that was there when it began.
    #[inline]
    pub(crate) fn has_taken_all(&self, count: usize) -> bool {
        count < self.taken.len()
    }

    /// Takes what there is, without waiting.
    #[inline]
    pub(crate) fn poll(&mut self) -> Result<usize, TrafficError> {
        let count = self.queue.poll(&mut self.taken)?;
        self.polls += 1;
        self.polls_empty += u64::from(count == 0);
        self.completions += count as u64;
        Ok(count)
    }

    /// Takes what there is; waits for it in this thread's mode, at most until `due`, and not when something
    /// else wants to be inspected.
    #[inline]
    pub(crate) fn take(&mut self, due: Option<Instant>) -> Result<Took, TrafficError> {
        let count = self.poll()?;
        if count > 0 {
            return Ok(Took::Some(count));
        }
        if self.spins {
            self.idle += 1;
            let is_due = |due| Instant::now() >= due;
            let is_over = self.idle.is_multiple_of(CLOCK_EVERY) && due.is_some_and(is_due);
            if !is_over && !self.idle.is_multiple_of(LOOK_EVERY) {
                return Ok(Took::Nothing);
            }
            self.check_device()?;
            return Ok(Took::Look);
        }
        self.queue.arm()?;
        // Completions from before it was armed raise no event.
        let count = self.poll()?;
        if count > 0 {
            return Ok(Took::Some(count));
        }
        self.sleep(due)?;
        let count = self.poll()?;
        Ok(if count > 0 {
            Took::Some(count)
        } else {
            Took::Look
        })
    }

    fn sleep(&mut self, due: Option<Instant>) -> Result<(), TrafficError> {
        let Some(channel) = self.queue.channel() else {
            return Ok(());
        };
        // The stop flag stays readable: once seen it is no event.
        let stopping = if self.shared_state.is_stopped() {
            PollFlags::empty()
        } else {
            PollFlags::IN
        };
        let mut fds = [
            PollFd::from_borrowed_fd(channel, PollFlags::IN),
            PollFd::from_borrowed_fd(self.companion, PollFlags::IN),
            PollFd::from_borrowed_fd(self.device.events(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.shared_state.stopping.as_fd(), stopping),
        ];
        let limit = due.map(|due| timespec(due.saturating_duration_since(Instant::now())));
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(TrafficError::of_errno("wait for a completion", errno)),
        }
        let device_speaks = !fds[2].revents().is_empty();
        self.sleeps += 1;
        while self.queue.take_event()? == Event::Notified {}
        if device_speaks {
            self.check_device()?;
        }
        Ok(())
    }

    /// Writes down what it took.
    pub(crate) fn note(&self, record: &mut VerbsRecord) {
        record.completions = self.completions;
        record.polls = self.polls;
        record.polls_empty = self.polls_empty;
        record.sleeps = self.sleeps;
    }

    /// Fails when the device is gone, or its port that carries the data; what happens to another port is not
    /// this thread's.
    pub(crate) fn check_device(&self) -> Result<(), TrafficError> {
        while let Some(event) = self.device.next_event() {
            if event.is_fatal_for(self.port) {
                let what = match event.port {
                    Some(port) => format!("{} (port {port})", event.what),
                    None => event.what,
                };
                return Err(TrafficError::DeviceEvent {
                    device: self.device.name().to_owned(),
                    what,
                });
            }
        }
        Ok(())
    }
}
