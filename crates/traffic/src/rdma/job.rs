//! What a thread has to do, in the terms of queue pairs.

use std::cmp::Ordering;

use linerate_model::units::Bytes;
use linerate_model::workload::{Rdma, Service, Stream, TrialSpec, Verb};
use linerate_verbs::{Access, Remote, Slice, Work};

use crate::TrafficError;
use crate::verbs::{Needs, ROUTE_HEADER, ThreadDevice, VerbsFlow, verbs_of};

/// Messages up to this size are sent inline unless the trial specifies otherwise: perftest's default.
const INLINE: u32 = 220;
/// At most one request in this many is signaled.
const MODERATION_MAX: u32 = 64;
/// Maximum bytes that one call posts, unless the trial specifies otherwise. The cost of a call matters for short
/// messages only; and a software device does its work in the call, so a long list delays the completions.
const BATCH_BYTES: usize = 32 << 10;
/// Memory for the messages of a checked round on all lanes of a direction together, at most.
const CHECKED_BYTES: usize = 64 << 20;

/// What is done on each queue pair.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) verb: Verb,
    pub(super) service: Service,
    pub(super) latency: bool,
    pub(super) data_check: bool,
    pub(super) sizes: Vec<usize>,
    /// Messages of each size on each queue pair; `None` is as many as the time allows.
    pub(super) repetitions: Option<u64>,
    /// For a stream of a fixed amount: the bytes of each lane.
    shares: Option<Vec<u64>>,
    /// Whether its messages are operations of the record.
    pub(super) counts_operations: bool,
    /// Requests in flight; a multiple of `batch_max`.
    pub(super) depth: u32,
    /// Requests that are posted by one call at most; the last of them is signaled.
    batch_max: u32,
    /// Bytes that one call posts at most.
    batch_bytes: usize,
    inline: u32,
    largest: usize,
    /// Queue pairs of a direction.
    flows: usize,
}

impl Job {
    pub(super) fn of_rdma(spec: &TrialSpec, rdma: &Rdma) -> Result<Self, TrafficError> {
        let sizes: Vec<usize> = (rdma.sizes.iter())
            .map(|size| usize::try_from(size.as_u64()).unwrap_or(usize::MAX))
            .collect();
        Self::new(spec, rdma.verb, rdma.latency, sizes).map(|job| Self {
            data_check: rdma.data_check,
            repetitions: rdma.repetitions,
            counts_operations: true,
            ..job
        })
    }

    /// A stream, whose lanes carry `shares` bytes.
    pub(super) fn of_stream(
        spec: &TrialSpec,
        stream: &Stream,
        shares: Option<Vec<u64>>,
    ) -> Result<Self, TrafficError> {
        let size = usize::try_from(spec.buffer_bytes.as_u64().max(1)).unwrap_or(usize::MAX);
        Self::new(spec, Verb::Send, false, vec![size]).map(|job| Self {
            data_check: stream.data_check,
            shares,
            ..job
        })
    }

    /// How many messages of `size` bytes lane `lane` sends, and the bytes of the last one when it is shorter.
    pub(super) fn amount(&self, lane: usize, size: usize) -> (u64, Option<usize>) {
        let Some(shares) = &self.shares else {
            return (self.repetitions.unwrap_or(u64::MAX), None);
        };
        let share = shares.get(lane).copied().unwrap_or(0);
        let tail = usize::try_from(share % size as u64).unwrap_or(0);
        (share / size as u64, Some(tail).filter(|tail| *tail > 0))
    }

    /// The messages of `size` bytes that the lane with the most of them sends; a shorter last one counts too.
    pub(super) fn most_messages(&self, size: usize) -> u64 {
        let lanes = self.shares.as_ref().map_or(1, Vec::len);
        let amounts = (0..lanes).map(|lane| self.amount(lane, size));
        let messages = amounts.map(|(whole, tail)| whole.saturating_add(tail.is_some().into()));
        messages.max().unwrap_or(0)
    }

    /// The bytes of message `number` of lane `lane`, whose size is `size` unless it is the last of an amount;
    /// `None` when the amount ends before it.
    pub(super) fn length(&self, lane: usize, size: usize, number: u64) -> Option<usize> {
        if self.shares.is_none() {
            return Some(size);
        }
        let (whole, tail) = self.amount(lane, size);
        match number.cmp(&whole) {
            Ordering::Less => Some(size),
            Ordering::Equal => tail,
            Ordering::Greater => None,
        }
    }

    fn new(
        spec: &TrialSpec,
        verb: Verb,
        latency: bool,
        sizes: Vec<usize>,
    ) -> Result<Self, TrafficError> {
        let verbs = verbs_of(spec)?;
        let asked = verbs.depth.max(1);
        let batch_max = verbs
            .moderation
            .unwrap_or((asked / 4).clamp(1, MODERATION_MAX));
        let batch_max = batch_max.clamp(1, asked);
        let inline = (verbs.inline_bytes).map_or(INLINE, |bytes| {
            u32::try_from(bytes.as_u64()).unwrap_or(u32::MAX)
        });
        Ok(Self {
            verb,
            service: verbs.service,
            latency,
            data_check: false,
            repetitions: None,
            shares: None,
            counts_operations: false,
            depth: asked - asked % batch_max,
            batch_max,
            batch_bytes: verbs.moderation.map_or(BATCH_BYTES, |_| usize::MAX),
            // Neither carries payload in its request.
            inline: match verb {
                Verb::Read | Verb::Atomic => 0,
                Verb::Write | Verb::Send => inline,
            },
            largest: sizes.iter().copied().max().unwrap_or(1),
            flows: spec.flows.max(1) as usize,
            sizes,
        })
    }

    /// Requests for messages of `size` bytes that are posted by one call; the last of them is signaled. The
    /// depth is a multiple of it.
    pub(super) fn batch(&self, size: usize) -> u32 {
        let most = u32::try_from(self.batch_bytes / size.max(1)).unwrap_or(u32::MAX);
        (1..=most.min(self.batch_max))
            .rev()
            .find(|batch| self.batch_max.is_multiple_of(*batch))
            .unwrap_or(1)
    }

    /// Whether the remote end's program has no part in it.
    pub(super) fn is_one_sided(&self) -> bool {
        match self.verb {
            Verb::Read | Verb::Atomic => true,
            Verb::Write => !self.latency,
            Verb::Send => false,
        }
    }

    pub(super) fn is_datagrams(&self) -> bool {
        self.service == Service::Ud
    }

    /// Bytes before a message where it arrives.
    pub(super) fn header(&self) -> usize {
        if self.is_datagrams() { ROUTE_HEADER } else { 0 }
    }

    /// Messages that each have their own memory: all of a checked round.
    pub(super) fn slots(&self) -> usize {
        if self.data_check && !self.latency {
            let most = (CHECKED_BYTES / self.flows / self.slot()).max(1);
            (self.depth as usize).min(most)
        } else {
            1
        }
    }

    /// The memory of one message.
    pub(super) fn slot(&self) -> usize {
        // Atomic operations need 8 bytes at a multiple of 8.
        (self.largest + self.header()).next_multiple_of(8)
    }

    /// Posted receives of the receiving end.
    pub(super) fn receives(&self) -> u32 {
        match (self.verb, self.data_check, self.latency) {
            (Verb::Send, true, false) => u32::try_from(self.slots()).unwrap_or(u32::MAX),
            (Verb::Send, _, true) => 8,
            // Twice what can be in flight: the sender continues while received messages are taken.
            (Verb::Send, ..) => self.depth.saturating_mul(2),
            _ => 1,
        }
    }

    /// Credits that the receiver returns at a time: a part of all of them.
    pub(super) fn given_back(&self) -> u32 {
        let all = self.receives().max(1);
        (1..=(all / 4).max(1))
            .rev()
            .find(|part| all.is_multiple_of(*part))
            .unwrap_or(1)
    }

    pub(super) fn needs(&self) -> Needs {
        let memory = if self.latency {
            2 * self.slot()
        } else {
            self.slots() * self.slot()
        };
        Needs {
            memory,
            sends: if self.latency {
                latency_depth()
            } else {
                // Credit messages have their own.
                self.depth.max(self.receives() / self.given_back())
            },
            receives: self.receives(),
            inline: self.inline,
            access: Access {
                remote_write: self.verb == Verb::Write,
                remote_read: self.verb == Verb::Read,
                remote_atomic: self.verb == Verb::Atomic,
                ..Access::default()
            },
        }
    }

    /// What these queue pairs do not support is reported before the start.
    pub(super) fn check(
        &self,
        thread_device: &ThreadDevice<'_>,
        lanes: &[VerbsFlow<'_>],
    ) -> Result<(), TrafficError> {
        let refuse = |what: String, why: String| Err(TrafficError::not_supported(what, why));
        if self.verb == Verb::Atomic && !thread_device.has_atomics {
            return refuse(
                "measure rdma-atomic".to_owned(),
                "the device answers no atomic operations".to_owned(),
            );
        }
        let mtu = lanes
            .iter()
            .map(|lane| lane.mtu as usize)
            .min()
            .unwrap_or(0);
        if self.is_datagrams() && self.largest > mtu {
            let largest = self.largest;
            return refuse(
                format!("send datagrams of {largest} bytes"),
                format!("one packet of this path holds {mtu} (its MTU)"),
            );
        }
        if self.largest > thread_device.message_max {
            return refuse(
                format!("move messages of {} bytes", self.largest),
                format!("the port takes at most {}", thread_device.message_max),
            );
        }
        let needed = self.needs().memory as u64;
        match lanes.iter().find(|lane| lane.far_bytes < needed) {
            Some(lane) => Err(TrafficError::PeerGarbled {
                flow: lane.one.flow.number,
            }),
            None => Ok(()),
        }
    }

    /// Whether messages of this size travel in their requests on `lane`.
    pub(super) fn is_inline(&self, lane: &VerbsFlow<'_>, size: usize) -> bool {
        self.inline > 0 && size <= lane.pair.inline() as usize
    }

    /// The request for a message in `local` whose place at the remote end is `far`.
    pub(super) fn request<'l>(
        &self,
        lane: &'l VerbsFlow<'_>,
        far: Remote,
        number: Option<u32>,
    ) -> Work<'l> {
        match self.verb {
            Verb::Write => Work::Write(far),
            Verb::Read => Work::Read(far),
            Verb::Atomic => Work::FetchAdd(far, 1),
            Verb::Send => match (lane.to(number), number) {
                (Some(to), _) => Work::SendTo(to),
                (None, Some(number)) => Work::SendNumber(number),
                (None, None) => Work::Send,
            },
        }
    }

    pub(super) fn doing(&self) -> &'static str {
        match self.verb {
            Verb::Write => "write to remote memory",
            Verb::Read => "read remote memory",
            Verb::Send => "send a message",
            Verb::Atomic => "add to remote memory",
        }
    }

    pub(super) fn depth_told(&self) -> u32 {
        match (self.latency, self.data_check) {
            (true, _) => 1,
            // A round is posted at once, and each of its messages has its own memory.
            (false, true) => u32::try_from(self.slots()).unwrap_or(u32::MAX),
            (false, false) => self.depth,
        }
    }

    pub(super) fn moderation_told(&self) -> u32 {
        match (self.latency, self.verb) {
            (false, _) => self
                .sizes
                .iter()
                .map(|size| self.batch(*size))
                .max()
                .unwrap_or(1),
            (true, Verb::Write | Verb::Send) => SIGNALLED_EVERY,
            (true, _) => 1,
        }
    }

    pub(super) fn inline_told(&self, lane: &VerbsFlow<'_>) -> Bytes {
        let largest = self
            .sizes
            .iter()
            .filter(|size| self.is_inline(lane, **size))
            .max();
        Bytes::new(largest.map_or(0, |size| *size as u64))
    }
}

/// Of round-trip messages one in so many is signaled: the answers show the completion of the others.
pub(super) const SIGNALLED_EVERY: u32 = 16;

/// Space for those that are not known to have completed.
fn latency_depth() -> u32 {
    2 * SIGNALLED_EVERY
}

/// A part of a lane's memory: that of message `slot`, `size` bytes of it behind `header`.
pub(super) fn message<'l>(
    job: &Job,
    lane: &'l VerbsFlow<'_>,
    slot: usize,
    header: usize,
    size: usize,
) -> Slice<'l> {
    let start = slot * job.slot();
    lane.region.slice(start..start + header + size)
}
