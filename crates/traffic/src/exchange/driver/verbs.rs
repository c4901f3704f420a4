//! Conversations over verbs: each send is one message, and receives are always posted. All
//! messages of a line arrive at the same place: the bytes do not matter to most conversations, and one that
//! compares them has one message in flight at a time, which it copies before it answers.

use std::os::fd::AsFd;
use std::time::Instant;

use linerate_model::ids::NodeId;
use linerate_model::known::{Cause, Known};
use linerate_model::units::Bytes;
use linerate_model::workload::Workload;
use linerate_verbs::{Access, Receive, Send, Work};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::Failed;
use crate::TrafficError;
use crate::exchange::conversation::{Conversation, Fault};
use crate::trial::{DataThread, FlowEnd, Start};
use crate::verbs::{Needs, ThreadDevice, Took, VerbsFlow};

/// Messages of this size and below go in their requests, as perftest has it.
const INLINE: u32 = 220;
/// Messages that one conversation may have in flight beyond those of its depth.
const SPARE: u32 = 16;
/// The mark of a completion that is a message that came; the rest of its number is the line's.
const CAME: u64 = 1 << 63;

/// The lines of a thread.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    thread_device: ThreadDevice<'a>,
    lanes: Vec<VerbsFlow<'a>>,
    /// Of each lane.
    sent: Vec<Sent>,
    /// Bytes to send from, before those to receive into.
    memory: usize,
    /// The longest message.
    most: usize,
    inline: usize,
    depth: u32,
    signals_every: u32,
}

/// What one line has sent.
#[derive(Debug, Clone, Copy, Default)]
struct Sent {
    under_way: u32,
    unsignalled: u32,
    is_over: bool,
}

impl<'a> Lines<'a> {
    /// Connects a queue pair for each flow of the data thread, with `memory` bytes to send from and as many to receive
    /// into.
    pub(super) fn open(data_thread: &DataThread<'a>, memory: Bytes) -> Result<Self, TrafficError> {
        let memory = usize::try_from(memory.as_u64().max(1)).unwrap_or(usize::MAX / 2);
        let depth = match &data_thread.spec.workload {
            Workload::Rr(rr) => rr.depth,
            _ => 1,
        };
        let depth = depth.saturating_mul(2).saturating_add(SPARE);
        let needs = Needs {
            memory: 2 * memory,
            sends: depth,
            receives: depth,
            inline: INLINE,
            access: Access::default(),
        };
        let (thread_device, lanes) = ThreadDevice::open(data_thread, needs)?;
        let most = memory.min(thread_device.message_max);
        let compares =
            matches!(&data_thread.spec.workload, Workload::Pingpong(one) if one.data_check);
        if compares && most < memory {
            // Its parts would arrive at one place, the later ones over the earlier ones.
            return Err(TrafficError::not_supported(
                format!("compare every byte of messages of {memory} bytes"),
                format!("the port takes at most {most} at a time"),
            ));
        }
        let lines = Self {
            sent: vec![Sent::default(); lanes.len()],
            inline: lanes.first().map_or(0, |lane| lane.pair.inline() as usize),
            thread_device,
            lanes,
            memory,
            most,
            depth,
            signals_every: (depth / 4).max(1),
        };
        for number in 0..lines.lanes.len() {
            for _ in 0..depth {
                lines.make_room(number)?;
            }
        }
        Ok(lines)
    }

    #[inline]
    fn make_room(&self, number: usize) -> Result<(), TrafficError> {
        let lane = &self.lanes[number];
        let room = Receive {
            id: CAME | number as u64,
            local: lane.region.slice(self.memory..self.memory + self.most),
        };
        (lane.pair.receive(&room)).map_err(|errno| self.thread_device.refused((0, errno)))
    }

    pub(super) fn node(&self) -> Known<NodeId> {
        self.lanes.first().map(VerbsFlow::node).unwrap_or_default()
    }

    /// The end of a flow: its payload went over verbs.
    pub(super) fn end_of(&self, index: usize, bytes: u64, ended: Instant, start: Start) -> FlowEnd {
        let mut record = self.lanes[index].record();
        record.depth = self.depth;
        record.moderation = self.signals_every;
        record.inline_bytes = Bytes::new(self.inline.min(self.most) as u64);
        if index == 0 {
            // One queue serves all lines of a thread.
            self.thread_device.taker.note(&mut record);
        }
        let reason = "the payload is sent over verbs";
        FlowEnd {
            tcp: Known::unknown(Cause::Absent, "TCP_INFO", reason),
            verbs: Some(record),
            ..FlowEnd::of_companion(bytes, ended, start, reason)
        }
    }

    /// THE hot loop: sends what there is, takes what came.
    pub(super) fn run<C: Conversation>(
        &mut self,
        conversations: &mut [C],
        ledger: &mut C::Ledger,
    ) -> Result<(), Failed> {
        loop {
            let mut due: Option<Instant> = None;
            let mut open = 0;
            for (index, one) in conversations.iter_mut().enumerate() {
                if self.sent[index].is_over {
                    continue;
                }
                self.push(index, one).map_err(|fault| (index, fault))?;
                if one.is_over() {
                    self.sent[index].is_over = true;
                    continue;
                }
                open += 1;
                due = due.into_iter().chain(one.due()).min();
            }
            if open == 0 {
                return Ok(());
            }
            let took = self.thread_device.taker.take(due);
            match took.map_err(|error| (0, error.into()))? {
                Took::Some(count) => self.absorb_all(count, conversations, ledger)?,
                Took::Nothing => {}
                Took::Look => self.listen(conversations, ledger)?,
            }
        }
    }

    /// Sends what `one` has to send, as far as the send queue has space.
    #[inline]
    fn push<C: Conversation>(&mut self, index: usize, one: &mut C) -> Result<(), Fault> {
        one.attend(&mut self.lanes[index].region)?;
        let (lane, sent) = (&self.lanes[index], &mut self.sent[index]);
        while sent.under_way < self.depth {
            let range = one.to_send();
            if range.is_empty() {
                break;
            }
            let length = range.len().min(self.most);
            sent.unsignalled += 1;
            let signals = sent.unsignalled == self.signals_every;
            if signals {
                sent.unsignalled = 0;
            }
            let send = Send {
                id: index as u64,
                local: lane.region.slice(range.start..range.start + length),
                work: Work::Send,
                signaled: signals,
                inline: length <= self.inline,
            };
            (lane.pair.send(&send))
                .map_err(|errno| Fault::Own(self.thread_device.refused((0, errno))))?;
            sent.under_way += 1;
            one.sent(length);
        }
        one.attend(&mut self.lanes[index].region)
    }

    fn absorb_all<C: Conversation>(
        &mut self,
        count: usize,
        conversations: &mut [C],
        ledger: &mut C::Ledger,
    ) -> Result<(), Failed> {
        (0..count).try_for_each(|index| self.absorb(index, conversations, ledger))
    }

    /// Takes completion `index` of those that were taken last.
    #[inline]
    fn absorb<C: Conversation>(
        &mut self,
        index: usize,
        conversations: &mut [C],
        ledger: &mut C::Ledger,
    ) -> Result<(), Failed> {
        let completion = self.thread_device.taker.taken(index);
        let (came, number) = (completion.id() & CAME != 0, completion.id() & !CAME);
        let number = usize::try_from(number).unwrap_or(0);
        if let Err(status) = completion.status() {
            // What is left over when the remote end has gone after its last word.
            if self.sent[number].is_over {
                return Ok(());
            }
            let doing = if came {
                "receive a message"
            } else {
                "send a message"
            };
            let flow = self.lanes[number].one.flow.number;
            let failed = self.thread_device.failed(doing, flow, status);
            return Err((number, failed.into()));
        }
        if !came {
            self.sent[number].under_way -= self.signals_every;
            return Ok(());
        }
        let one = &mut conversations[number];
        let mut left = completion.bytes() as usize;
        while left > 0 {
            let part = left.min(one.to_receive().len());
            if part == 0 {
                let unasked = Fault::Unasked("more than was requested");
                return Err((number, unasked));
            }
            one.received(part, ledger)
                .map_err(|fault| (number, fault))?;
            left -= part;
        }
        self.make_room(number)
            .map_err(|error| (number, error.into()))
    }

    /// Looks whether a remote end has ended.
    fn listen<C: Conversation>(
        &mut self,
        conversations: &mut [C],
        ledger: &mut C::Ledger,
    ) -> Result<(), Failed> {
        let device = self.thread_device.taker.check_device();
        device.map_err(|error| (0, error.into()))?;
        for index in 0..conversations.len() {
            if self.sent[index].is_over {
                continue;
            }
            let mut heard = [0u8; 1];
            let companion = self.lanes[index].one.flow.socket.as_fd();
            let outcome = match recv(companion, &mut heard, RecvFlags::DONTWAIT) {
                Ok((0, _)) => {
                    // The last message came before the end, but perhaps after the queue was looked at.
                    let taker = &mut self.thread_device.taker;
                    let count = taker.poll().map_err(|error| (0, error.into()))?;
                    if count > 0 {
                        return self.absorb_all(count, conversations, ledger);
                    }
                    conversations[index].peer_ended()
                }
                Ok(_) => Err(Fault::Unasked("data on a companion connection")),
                Err(Errno::AGAIN | Errno::INTR) => Ok(()),
                Err(errno) => Err(Fault::of(errno)),
            };
            outcome.map_err(|fault| (index, fault))?;
        }
        Ok(())
    }
}
