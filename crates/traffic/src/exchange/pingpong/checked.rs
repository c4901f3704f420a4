//! Messages with a check of every byte.
//!
//! Sent and received messages have separate places, and every round trip has different content: stale data of an
//! earlier round trip never passes for the expected one. Received data is copied away before anything is sent,
//! because over verbs the next message overwrites it as soon as the remote end has the answer;
//! it is compared at the requesting end before the next round trip begins, and at the answering end after its answer
//! has been sent.

use crate::content;
use crate::exchange::conversation::{Fault, Memory};

/// One message.
#[derive(Debug, Clone, Copy)]
struct Message {
    /// The round trip of its flow, over all sizes, with those that do not count.
    number: u64,
    length: usize,
}

/// What one end knows of the content of its flow.
#[derive(Debug)]
pub(super) struct Checked {
    flow: u32,
    number: u64,
    /// A message apart from the thread's memory.
    text: Vec<u8>,
    /// What arrived and is still where it was received.
    came: Option<Message>,
    /// What is in `text` and not compared yet.
    taken: Option<Message>,
    /// Whether the message of this round trip is where it is sent from.
    is_ready: bool,
}

impl Checked {
    pub(super) fn new(flow: u32, largest: usize) -> Self {
        Self {
            flow,
            number: 0,
            text: vec![0; largest],
            came: None,
            taken: None,
            is_ready: false,
        }
    }

    /// All of a message of `length` bytes came.
    pub(super) fn came(&mut self, length: usize) {
        let number = self.number;
        self.came = Some(Message { number, length });
    }

    /// The next round trip.
    pub(super) fn next(&mut self) {
        self.number += 1;
        self.is_ready = false;
    }

    /// Copies what was received at byte `at` of the memory.
    pub(super) fn take<M: Memory + ?Sized>(&mut self, memory: &M, at: usize) {
        if let Some(message) = self.came.take() {
            memory.read(at, &mut self.text[..message.length]);
            self.taken = Some(message);
        }
    }

    /// Compares what was copied.
    pub(super) fn compare(&mut self) -> Result<(), Fault> {
        let Some(Message { number, length }) = self.taken.take() else {
            return Ok(());
        };
        content::compare_filled(&self.text[..length], self.flow, number)
            .map_err(|wrong| wrong.on(self.flow, number).into())
    }

    /// Makes the message of this round trip, unless it is there; whether it did.
    pub(super) fn fill<M: Memory + ?Sized>(
        &mut self,
        memory: &mut M,
        at: usize,
        length: usize,
    ) -> bool {
        if self.is_ready {
            return false;
        }
        let text = &mut self.text[..length];
        content::fill(text, self.flow, self.number);
        memory.write(at, text);
        self.is_ready = true;
        true
    }
}
