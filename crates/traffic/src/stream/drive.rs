//! The loops over the methods of moving payload by a system call: one flow with calls that block or spin, and
//! many flows by epoll.

use std::os::fd::OwnedFd;

use linerate_model::sample::Copies;
use linerate_model::workload::Waiting;
use rustix::event::epoll::EventFlags;
use rustix::io::{Errno, ioctl_fionbio};

use super::lane::RunningFlow;
use crate::TrafficError;
use crate::trial::{DataThread, Start};
use crate::waiting::{Event, Poller};

/// One method of moving payload between a buffer and a socket.
pub(super) trait TransferMode {
    /// Whether it sends; else it receives.
    const SENDS: bool;
    /// Whether its call can wait for the socket itself.
    const BLOCKS: bool;

    /// Moves at most `most` bytes between the buffer and the socket of lane `lane`. A receiver's 0 is the
    /// end of file; `AGAIN` is a socket that is not ready.
    fn step(&mut self, lane: usize, socket: &OwnedFd, most: u64) -> Result<usize, Errno>;

    /// Whether a call that moved `moved` bytes of at most `most` would have moved more, had the socket been
    /// ready for it: the next call would only return `AGAIN`.
    fn is_short(&self, _moved: usize, _most: u64) -> bool {
        false
    }

    /// The error behind its last step, if it is not the socket's own.
    fn fault(&mut self) -> Option<TrafficError> {
        None
    }

    /// Reads the socket's error queue.
    fn hear(&mut self, _lane: usize, _socket: &OwnedFd) {}

    /// The lane has ended: how its payload crossed, as far as the kernel reports.
    fn settle(&mut self, _lane: usize, _socket: &OwnedFd) -> Option<Copies> {
        None
    }
}

/// How many calls a flow gets before it is the next one's turn: most of what waits is moved in one or two,
/// and no flow waits for more than a few buffers of another.
const TURN: usize = 4;
/// Events taken from the kernel at a time.
const EVENTS: usize = 256;
/// The event of the shared state, not of a flow.
const STOP: u64 = u64::MAX;

/// Prepares a method, waits for the start, moves payload until every lane has ended; none if there
/// was no trial.
pub(super) fn carry<'a, W: TransferMode>(
    data_thread: &mut DataThread<'a>,
    mut lanes: Vec<RunningFlow<'a>>,
    make: impl FnOnce(&DataThread<'a>) -> Result<W, TrafficError>,
) -> Result<Option<Vec<RunningFlow<'a>>>, TrafficError> {
    let mut way = make(data_thread)?;
    let waiting = data_thread.spec.waiting;
    let alone = lanes.len() == 1 && W::BLOCKS && waiting != Waiting::Epoll;
    if !alone || waiting == Waiting::Spin {
        for lane in &lanes {
            ioctl_fionbio(&lane.one.flow.socket, true)
                .map_err(|errno| TrafficError::of_errno("make a socket non-blocking", errno))?;
        }
    }
    let poller = if alone {
        None
    } else {
        Some(watch::<W>(data_thread, &lanes)?)
    };
    let Some(start) = data_thread.ready()? else {
        return Ok(None);
    };
    if let Some(poller) = poller {
        many(data_thread, start, &mut lanes, &mut way, &poller)?;
    } else {
        let errno = one(data_thread, &mut lanes[0], &mut way);
        finish(data_thread, start, &mut lanes[0], &mut way, errno)?;
    }
    for (index, lane) in lanes.iter_mut().enumerate() {
        let copies = way.settle(index, &lane.one.flow.socket);
        lane.set_copies(copies);
    }
    Ok(Some(lanes))
}

/// Ends a flow; an error that its method found itself takes precedence over the socket's.
fn finish<W: TransferMode>(
    data_thread: &DataThread<'_>,
    start: Start,
    lane: &mut RunningFlow<'_>,
    way: &mut W,
    errno: Option<Errno>,
) -> Result<(), TrafficError> {
    match errno.and_then(|_| way.fault()) {
        Some(fault) => Err(fault),
        None => lane.finish(data_thread, start, errno),
    }
}

/// THE hot loop of a single flow: one relaxed load, one system call, one relaxed store.
fn one<W: TransferMode>(
    data_thread: &DataThread<'_>,
    lane: &mut RunningFlow<'_>,
    way: &mut W,
) -> Option<Errno> {
    loop {
        if W::SENDS && (data_thread.shared_state.is_stopped() || lane.left == 0) {
            return None;
        }
        match way.step(0, &lane.one.flow.socket, lane.left) {
            Ok(0) if !W::SENDS => return None,
            Ok(count) => moved::<W>(lane, count),
            // Only a spinning socket returns AGAIN.
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Some(errno),
        }
    }
}

#[inline]
fn moved<W: TransferMode>(lane: &mut RunningFlow<'_>, count: usize) {
    lane.count(count as u64);
    if W::SENDS {
        lane.left -= count as u64;
    }
}

/// An epoll instance that knows every flow, and the shared state where the flows are senders'.
fn watch<W: TransferMode>(
    data_thread: &DataThread<'_>,
    lanes: &[RunningFlow<'_>],
) -> Result<Poller, TrafficError> {
    let poller = Poller::new(data_thread.spec.waiting)?;
    let interest = if W::SENDS {
        poller.add(&data_thread.shared_state.stopping, STOP, EventFlags::IN)?;
        EventFlags::OUT
    } else {
        EventFlags::IN
    };
    for (lane, token) in lanes.iter().zip(0..) {
        poller.add(&lane.one.flow.socket, token, interest)?;
    }
    Ok(poller)
}

/// THE hot loop of many flows. Level-triggered: the kernel puts a flow that stays ready behind the others,
/// which is all the fairness needed, and nothing is forgotten when a flow's turn is over.
fn many<W: TransferMode>(
    data_thread: &DataThread<'_>,
    start: Start,
    lanes: &mut [RunningFlow<'_>],
    way: &mut W,
    poller: &Poller,
) -> Result<(), TrafficError> {
    let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
    let mut open = lanes.len();
    while open > 0 {
        if W::SENDS && data_thread.shared_state.is_stopped() {
            return (lanes.iter_mut())
                .filter(|lane| lane.is_open())
                .try_for_each(|lane| lane.finish(data_thread, start, None));
        }
        poller.wait(&mut events, None)?;
        for event in &events {
            let (flags, token) = (event.flags, event.data.u64());
            let Some(index) = usize::try_from(token).ok().filter(|&at| at < lanes.len()) else {
                continue;
            };
            let lane = &mut lanes[index];
            if flags.contains(EventFlags::ERR) {
                way.hear(index, &lane.one.flow.socket);
            }
            if let Turn::Ended(errno) = turn(data_thread, lane, index, way) {
                poller.remove(&lane.one.flow.socket)?;
                finish(data_thread, start, lane, way, errno)?;
                open -= 1;
            }
        }
    }
    Ok(())
}

/// The result of a flow's turn.
enum Turn {
    /// It continues another time.
    Over,
    /// The flow has ended, by an error or because all is moved.
    Ended(Option<Errno>),
}

fn turn<W: TransferMode>(
    data_thread: &DataThread<'_>,
    lane: &mut RunningFlow<'_>,
    index: usize,
    way: &mut W,
) -> Turn {
    for _ in 0..TURN {
        if W::SENDS && (data_thread.shared_state.is_stopped() || lane.left == 0) {
            return Turn::Ended(None);
        }
        let most = lane.left;
        match way.step(index, &lane.one.flow.socket, most) {
            Ok(0) if !W::SENDS => return Turn::Ended(None),
            Ok(count) => {
                moved::<W>(lane, count);
                if way.is_short(count, most) {
                    return Turn::Over;
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Turn::Over,
            Err(errno) => return Turn::Ended(Some(errno)),
        }
    }
    Turn::Over
}
