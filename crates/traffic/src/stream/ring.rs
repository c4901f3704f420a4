//! Bulk transfer through io_uring(7): the sockets are registered, a thread's flows share one ring and one
//! buffer, and one system call submits and waits.

use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use linerate_model::sample::{Copies, Role};
use linerate_model::workload::{SendMode, Stream, Waiting};
use rustix::io::Errno;

use super::lane::RunningFlow;
use crate::TrafficError;
use crate::buffer::Buffer;
use crate::sys::uring::{Completion, Ring};
use crate::trial::{DataThread, Start};

/// Sends in flight on the only flow of a thread, so that the next one is with the kernel while the first
/// one's completion is inspected; more of them wait for the same space in the socket, and gained nothing
/// when measured. Of several flows each has one.
const DEPTH: u32 = 2;
/// Minimum number of entries that the kernel receives into before some must be returned.
const ENTRIES_MIN: u32 = 8;
/// How long the end of a trial waits for the notifications of the last zero-copy sends.
const HEAR_MAX: Duration = Duration::from_millis(100);

/// Prepares a ring, waits for the start, moves payload until every lane has ended; none if there
/// was no trial.
pub(super) fn carry<'a>(
    data_thread: &mut DataThread<'a>,
    stream: &Stream,
    lanes: Vec<RunningFlow<'a>>,
    buffer: Buffer,
) -> Result<Option<Vec<RunningFlow<'a>>>, TrafficError> {
    let mut carrier = Carrier::new(data_thread, stream, lanes, buffer)?;
    let Some(start) = data_thread.ready()? else {
        return Ok(None);
    };
    match data_thread.role {
        Role::Sender => carrier.send(data_thread, start)?,
        Role::Receiver => carrier.receive(data_thread, start)?,
    }
    data_thread.see_pollers();
    Ok(Some(carrier.lanes))
}

/// The flows of one thread and the ring that carries them.
struct Carrier<'a> {
    ring: Ring,
    lanes: Vec<RunningFlow<'a>>,
    /// Operations in flight, of each lane.
    under_way: Vec<u32>,
    copies: Vec<Copies>,
    zerocopy: bool,
    /// The bytes of one send.
    size: u32,
    done: Vec<Completion>,
}

impl<'a> Carrier<'a> {
    fn new(
        data_thread: &DataThread<'a>,
        stream: &Stream,
        lanes: Vec<RunningFlow<'a>>,
        buffer: Buffer,
    ) -> Result<Self, TrafficError> {
        let sends = data_thread.role == Role::Sender;
        let zerocopy = sends && stream.send == SendMode::UringZerocopy;
        let (flows, depth) = (count(lanes.len()), depth(lanes.len()));
        let size = u32::try_from(data_thread.spec.buffer_bytes.as_u64()).unwrap_or(u32::MAX);
        let ring = Ring::new(
            data_thread.spec.waiting,
            flows * depth,
            buffer.into_mapping(),
        );
        let mut ring = ring.map_err(|errno| no_ring(data_thread.spec.waiting, errno))?;
        let failed = |errno| TrafficError::of_io_uring("make an io_uring ready", errno);
        let sockets: Vec<RawFd> = (lanes.iter())
            .map(|lane| lane.one.flow.socket.as_raw_fd())
            .collect();
        ring.register_sockets(&sockets).map_err(failed)?;
        equip(&mut ring, sends, zerocopy, flows)?;
        Ok(Self {
            ring,
            under_way: vec![0; lanes.len()],
            copies: vec![Copies::default(); lanes.len()],
            lanes,
            zerocopy,
            size,
            done: Vec::with_capacity(256),
        })
    }

    fn wait(&mut self, limit: Option<Duration>) -> Result<(), TrafficError> {
        self.ring
            .wait(&mut self.done, limit)
            .map_err(|errno| TrafficError::of_errno("wait for io_uring", errno))
    }

    /// THE hot loop of a sender: one system call to submit and to take completions, one relaxed
    /// store for each send.
    fn send(&mut self, data_thread: &DataThread<'_>, start: Start) -> Result<(), TrafficError> {
        let depth = depth(self.lanes.len());
        let mut open = self.lanes.len();
        for index in 0..self.lanes.len() {
            self.send_more(data_thread, index, depth)?;
            open -= usize::from(self.end_if_over(data_thread, start, index, None)?);
        }
        while open > 0 {
            self.wait(None)?;
            let mut done = std::mem::take(&mut self.done);
            for one in done.drain(..) {
                let (index, errno) = self.take_sent(one);
                if one.released.is_some() || !self.lanes[index].is_open() {
                    continue;
                }
                if errno.is_none() {
                    self.send_more(data_thread, index, depth)?;
                }
                open -= usize::from(self.end_if_over(data_thread, start, index, errno)?);
            }
            self.done = done;
        }
        if self.zerocopy {
            self.hear_the_rest()?;
        }
        Ok(())
    }

    /// Keeps up to `depth` sends of lane `index` in flight, of no more than it may send.
    fn send_more(
        &mut self,
        data_thread: &DataThread<'_>,
        index: usize,
        depth: u32,
    ) -> Result<(), TrafficError> {
        let lane = &mut self.lanes[index];
        while self.under_way[index] < depth
            && lane.left > 0
            && !data_thread.shared_state.is_stopped()
        {
            let asked = u32::try_from(lane.left).unwrap_or(u32::MAX).min(self.size);
            let (socket, token) = (count(index), token(index, asked));
            let pushed = if self.zerocopy {
                self.ring.send_zerocopy(socket, asked, token)
            } else {
                self.ring.send(socket, asked, token)
            };
            pushed.map_err(|errno| TrafficError::of_errno("submit to io_uring", errno))?;
            // What is not sent after all is returned when that is known.
            lane.left -= u64::from(asked);
            self.under_way[index] += 1;
        }
        Ok(())
    }

    /// Counts a completion; returns the lane, and its error.
    fn take_sent(&mut self, one: Completion) -> (usize, Option<Errno>) {
        let (index, asked) = of_token(one.token);
        let copies = &mut self.copies[index];
        if let Some(copied) = one.released {
            copies.zerocopy_sends += 1;
            copies.copied_after_all += u64::from(copied);
            return (index, None);
        }
        self.under_way[index] -= 1;
        let lane = &mut self.lanes[index];
        let (sent, errno) = match one.result {
            Ok(sent) => (sent, None),
            Err(Errno::INTR | Errno::AGAIN) => (0, None),
            Err(errno) => (0, Some(errno)),
        };
        lane.left += u64::from(asked.saturating_sub(sent));
        if sent > 0 {
            lane.count(sent.into());
        }
        (index, errno)
    }

    /// Ends lane `index` when it failed, or has sent its share, or is stopped and has nothing in flight;
    /// returns whether it did.
    fn end_if_over(
        &mut self,
        data_thread: &DataThread<'_>,
        start: Start,
        index: usize,
        errno: Option<Errno>,
    ) -> Result<bool, TrafficError> {
        let lane = &mut self.lanes[index];
        // Sends that were in flight at the stop come back one by one, each with what it had moved.
        let failed = errno.is_some() && !data_thread.shared_state.is_stopped();
        let over =
            self.under_way[index] == 0 && (lane.left == 0 || data_thread.shared_state.is_stopped());
        if failed || over {
            lane.finish(data_thread, start, errno)?;
        }
        Ok(failed || over)
    }

    /// Waits for the notifications of what is still with the kernel, but not for a peer that is silent.
    fn hear_the_rest(&mut self) -> Result<(), TrafficError> {
        let until = Instant::now() + HEAR_MAX;
        while !self.ring.is_idle() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.wait(Some(left))?;
            let done = std::mem::take(&mut self.done);
            for one in &done {
                self.take_sent(*one);
            }
        }
        for (lane, copies) in self.lanes.iter_mut().zip(&self.copies) {
            lane.set_copies(Some(*copies));
        }
        Ok(())
    }

    /// THE hot loop of a receiver: the kernel continues to receive by itself; one system call for what has
    /// arrived, one relaxed store for each time that something arrived.
    fn receive(&mut self, data_thread: &DataThread<'_>, start: Start) -> Result<(), TrafficError> {
        let submit = |errno| TrafficError::of_errno("submit to io_uring", errno);
        for index in 0..self.lanes.len() {
            let token = token(index, 0);
            self.ring.receive(count(index), token).map_err(submit)?;
        }
        let mut open = self.lanes.len();
        while open > 0 {
            self.wait(None)?;
            let mut done = std::mem::take(&mut self.done);
            for one in done.drain(..) {
                let (index, _) = of_token(one.token);
                if let Some(buffer) = one.buffer {
                    self.ring.give_back(buffer);
                }
                let lane = &mut self.lanes[index];
                let errno = match one.result {
                    Ok(0) => None,
                    Ok(received) => {
                        lane.count(received.into());
                        if !one.more {
                            self.ring.receive(count(index), one.token).map_err(submit)?;
                        }
                        continue;
                    }
                    // All entries were in use at that time; they are free by now.
                    Err(Errno::NOBUFS | Errno::INTR | Errno::AGAIN) => {
                        self.ring.receive(count(index), one.token).map_err(submit)?;
                        continue;
                    }
                    Err(errno) => Some(errno),
                };
                lane.finish(data_thread, start, errno)?;
                open -= 1;
            }
            self.done = done;
        }
        Ok(())
    }
}

/// Sets up the ring for its method, or reports what this kernel lacks.
fn equip(ring: &mut Ring, sends: bool, zerocopy: bool, flows: u32) -> Result<(), TrafficError> {
    let failed = |errno| TrafficError::of_io_uring("make an io_uring ready", errno);
    let lacking = if zerocopy {
        let there = ring.has_zerocopy_send().map_err(failed)?;
        (!there).then_some(("send by `uring-zerocopy` with reports of copies", "6.2"))
    } else {
        let there = sends || ring.has_multishot_receive();
        (!there).then_some(("receive by `uring`", "6.0"))
    };
    if let Some((what, since)) = lacking {
        return Err(TrafficError::NotSupported {
            what: what.to_owned(),
            why: format!("this kernel's io_uring does not support it; it came with Linux {since}"),
        });
    }
    if zerocopy {
        ring.register_buffer().map_err(|errno| match errno {
            Errno::NOMEM => TrafficError::NotPermitted {
                what: "send by `uring-zerocopy`".to_owned(),
                why: "the buffer may not be locked in memory; raise the limit (`ulimit -l`) or ask for \
                      a smaller buffer"
                    .to_owned(),
            },
            errno => TrafficError::refused("register the buffer of `uring-zerocopy`", errno),
        })?;
    }
    if !sends {
        // Twice as many as flows, so that none finds the ring empty while some are inspected.
        let entries = (flows * 2).next_power_of_two().clamp(ENTRIES_MIN, 1 << 15);
        let entries = u16::try_from(entries).unwrap_or(1 << 15);
        ring.provide_buffer(entries).map_err(|errno| {
            TrafficError::refused("receive by `uring` (a ring of buffers, Linux 5.19)", errno)
        })?;
    }
    Ok(())
}

fn depth(lanes: usize) -> u32 {
    if lanes == 1 { DEPTH } else { 1 }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A lane and what was requested, as the number of an operation.
fn token(index: usize, asked: u32) -> u64 {
    u64::from(count(index)) << 32 | u64::from(asked)
}

#[expect(clippy::cast_possible_truncation, reason = "each half has 32 bits")]
fn of_token(token: u64) -> (usize, u32) {
    ((token >> 32) as usize, token as u32)
}

/// Why no ring could be created.
fn no_ring(waiting: Waiting, errno: Errno) -> TrafficError {
    let what = "use io_uring".to_owned();
    match errno {
        Errno::NOSYS => TrafficError::NotSupported {
            what,
            why: "this kernel was built without it (CONFIG_IO_URING), or a sandbox hides it"
                .to_owned(),
        },
        Errno::PERM | Errno::ACCESS => TrafficError::NotPermitted {
            what,
            why: "/proc/sys/kernel/io_uring_disabled or a sandbox (seccomp) forbids it".to_owned(),
        },
        Errno::INVAL if matches!(waiting, Waiting::BusyPoll(_)) => TrafficError::NotSupported {
            what: format!("wait by `{waiting}` in io_uring"),
            why: "this kernel does not support it; it came with Linux 6.9".to_owned(),
        },
        errno => TrafficError::of_io_uring("use io_uring", errno),
    }
}

#[cfg(test)]
mod tests {
    use linerate_model::protocol::FailureKind;

    use super::*;

    #[test]
    fn a_kernel_without_io_uring_and_one_that_forbids_it_are_told_apart() {
        let kind = |errno| no_ring(Waiting::Blocking, errno).kind();
        assert_eq!(kind(Errno::NOSYS), FailureKind::NotSupported);
        assert_eq!(kind(Errno::PERM), FailureKind::Permission);
        assert_eq!(kind(Errno::NOMEM), FailureKind::Resource);
        let said = no_ring(Waiting::BusyPoll(5), Errno::INVAL).to_string();
        assert!(
            said.contains("`busy-poll:5`") && said.contains("6.9"),
            "{said}"
        );
    }

    #[test]
    fn an_operation_carries_its_lane_and_what_was_asked_for() {
        assert_eq!(of_token(token(9_999, 1 << 30)), (9_999, 1 << 30));
    }
}
