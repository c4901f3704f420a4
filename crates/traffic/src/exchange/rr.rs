//! `rr`: requests and responses of fixed sizes on lasting connections. Their content means nothing, so
//! both ends only count bytes, and as many requests or responses as there are go out in one call.

use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use linerate_model::latency::Histogram;
use linerate_model::sample::{Operations, Role};
use linerate_model::units::Bytes;
use linerate_model::workload::Rr;

use super::conversation::{Conversation, Fault};
use super::driver::Driver;
use super::pace::Pace;
use super::schedule::Schedule;
use super::{Talk, converse, flow_places, prepare_timer};
use crate::TrafficError;
use crate::trial::{Counter, DataThread, LatencyReport, Start, WorkResult};

/// Maximum bytes per call.
const CALL_MAX: u64 = 256 * 1024;

/// Minimum buffer of a receiving call.
const CALL_MIN: u64 = 4 * 1024;

/// What runs on each data thread.
pub(super) fn work(
    data_thread: &mut DataThread<'_>,
    rr: &Rr,
) -> Result<Option<WorkResult>, TrafficError> {
    let flows = data_thread.flows.clone();
    let (request, response) = (rr.request_bytes.as_u64(), rr.response_bytes.as_u64());
    let (out, back) = match data_thread.role {
        Role::Sender => (request, response),
        Role::Receiver => (response, request),
    };
    let area = |size: u64| size.saturating_mul(rr.depth.into()).min(CALL_MAX);
    // A call takes more than was requested, so that too much is seen as such.
    let memory = Bytes::new(area(out) + area(back).max(CALL_MIN));
    let sends = 0..usize::try_from(area(out)).unwrap_or(usize::MAX);
    let receives = sends.end..usize::try_from(memory.as_u64()).unwrap_or(usize::MAX);
    let driver = Driver::new(data_thread, &flows, memory)?;
    let duplex = rr.depth > 1;
    let places = Places {
        sends,
        receives,
        duplex,
    };
    match data_thread.role {
        Role::Sender => {
            prepare_timer(rr.rate_per_s)?;
            let shared_state = data_thread.shared_state;
            let report = Rc::new(LatencyReport::new(shared_state));
            let askers = flows.iter().map(|one| Asker {
                counter: one.counter,
                pace: Pace::new(shared_state, Rc::clone(&report), rr.depth),
                request,
                response,
                unsent: 0,
                partial: 0,
                bytes: 0,
                answered: 0,
                rate_per_s: rr.rate_per_s,
                duration: data_thread.spec.duration_ns.into(),
                place: flow_places(data_thread.spec, one),
                places: places.clone(),
            });
            let askers = askers.collect();
            converse(data_thread, driver, askers, new_operations(rr))
        }
        Role::Receiver => {
            let answerers = flows.iter().map(|one| Answerer {
                counter: one.counter,
                request,
                response,
                unsent: 0,
                partial: 0,
                bytes: 0,
                ended: false,
                places: places.clone(),
            });
            converse(data_thread, driver, answerers.collect(), ())
        }
    }
}

/// What the asking end notes: in open loop also the times from the real start.
pub(super) fn new_operations(rr: &Rr) -> Operations {
    Operations {
        service: rr.rate_per_s.map(|_| Histogram::default()),
        ..Operations::default()
    }
}

/// Where in the memory messages are.
#[derive(Debug, Clone)]
struct Places {
    sends: Range<usize>,
    receives: Range<usize>,
    duplex: bool,
}

impl Places {
    /// The part of `unsent` bytes to send next.
    #[inline]
    fn next(&self, unsent: u64) -> Range<usize> {
        let most = self.sends.len();
        0..usize::try_from(unsent).map_or(most, |unsent| unsent.min(most))
    }
}

/// The end that asks.
#[derive(Debug)]
struct Asker<'a> {
    counter: &'a Counter,
    pace: Pace<'a>,
    request: u64,
    response: u64,
    /// Bytes of requests that have begun.
    unsent: u64,
    /// Bytes of the response that is arriving.
    partial: u64,
    bytes: u64,
    answered: u64,
    rate_per_s: Option<u64>,
    duration: Duration,
    /// The flow's number in its direction, and how many there are.
    place: (u32, u32),
    places: Places,
}

impl Conversation for Asker<'_> {
    type Ledger = Operations;

    #[inline]
    fn to_send(&mut self) -> Range<usize> {
        self.unsent += self.pace.begin() * self.request;
        self.places.next(self.unsent)
    }

    #[inline]
    fn sent(&mut self, count: usize) {
        self.unsent -= count as u64;
        self.bytes += count as u64;
    }

    #[inline]
    fn to_receive(&self) -> Range<usize> {
        self.places.receives.clone()
    }

    #[inline]
    fn received(&mut self, count: usize, operations: &mut Operations) -> Result<(), Fault> {
        const TOO_MUCH: Fault = Fault::Unasked("more than the requested responses");
        self.bytes += count as u64;
        let whole = whole(&mut self.partial, count, self.response);
        if whole > 0 && !self.pace.complete(whole, operations) {
            return Err(TOO_MUCH);
        }
        if self.partial > 0 && self.pace.is_idle() {
            return Err(TOO_MUCH);
        }
        self.answered += whole;
        self.counter.set_both(self.bytes, self.answered);
        Ok(())
    }

    #[inline]
    fn is_over(&self) -> bool {
        self.pace.is_over()
    }

    #[inline]
    fn due(&self) -> Option<Instant> {
        self.pace.due()
    }

    fn is_duplex(&self) -> bool {
        self.places.duplex
    }
}

/// How many messages of `size` are complete with `count` further bytes.
#[inline]
fn whole(partial: &mut u64, count: usize, size: u64) -> u64 {
    *partial += count as u64;
    match (*partial).cmp(&size) {
        std::cmp::Ordering::Less => 0,
        std::cmp::Ordering::Equal => {
            *partial = 0;
            1
        }
        std::cmp::Ordering::Greater => {
            let whole = *partial / size;
            *partial %= size;
            whole
        }
    }
}

impl Talk for Asker<'_> {
    fn start(&mut self, start: Start) {
        let (flow, flows) = self.place;
        let schedule = self
            .rate_per_s
            .map(|rate| Schedule::new(start.at, rate, flow, flows));
        self.pace.start(schedule, start.at + self.duration);
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn settle(&self, ledger: &mut Operations) {
        ledger.unanswered += self.pace.left_behind();
    }

    fn operations(ledger: Operations) -> Option<Operations> {
        Some(ledger)
    }
}

/// The end that answers.
#[derive(Debug)]
struct Answerer<'a> {
    counter: &'a Counter,
    request: u64,
    response: u64,
    /// Bytes of responses that are owed.
    unsent: u64,
    /// Bytes of the request that is arriving.
    partial: u64,
    bytes: u64,
    ended: bool,
    places: Places,
}

impl Conversation for Answerer<'_> {
    type Ledger = ();

    #[inline]
    fn to_send(&mut self) -> Range<usize> {
        self.places.next(self.unsent)
    }

    #[inline]
    fn sent(&mut self, count: usize) {
        self.unsent -= count as u64;
        self.bytes += count as u64;
        self.counter.set_bytes(self.bytes);
    }

    #[inline]
    fn to_receive(&self) -> Range<usize> {
        if self.ended {
            return 0..0;
        }
        self.places.receives.clone()
    }

    #[inline]
    fn received(&mut self, count: usize, (): &mut ()) -> Result<(), Fault> {
        self.bytes += count as u64;
        let whole = whole(&mut self.partial, count, self.request);
        self.unsent += whole * self.response;
        Ok(())
    }

    fn peer_ended(&mut self) -> Result<(), Fault> {
        if self.partial > 0 {
            return Err(Fault::Closed);
        }
        self.ended = true;
        Ok(())
    }

    #[inline]
    fn is_over(&self) -> bool {
        self.ended && self.unsent == 0
    }

    fn is_duplex(&self) -> bool {
        self.places.duplex
    }
}

impl Talk for Answerer<'_> {
    fn bytes(&self) -> u64 {
        self.bytes
    }
}
