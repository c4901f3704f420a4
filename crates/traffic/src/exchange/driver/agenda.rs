//! Which conversation has something to send although nothing came, and when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

/// When which conversation has something to send although nothing came.
#[derive(Debug)]
pub(super) struct Agenda {
    entries: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Each conversation is listed at most once.
    entered: Vec<bool>,
}

impl Agenda {
    pub(super) fn new(count: usize) -> Self {
        Self {
            entries: BinaryHeap::with_capacity(count),
            entered: vec![false; count],
        }
    }

    pub(super) fn enter(&mut self, index: usize, due: Option<Instant>) {
        if let Some(due) = due
            && !std::mem::replace(&mut self.entered[index], true)
        {
            self.entries.push(Reverse((due, index)));
        }
    }

    /// How long nothing is due.
    pub(super) fn rest(&self) -> Option<Duration> {
        let Reverse((due, _)) = self.entries.peek()?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    /// The next one that is due.
    pub(super) fn take(&mut self) -> Option<usize> {
        let &Reverse((due, index)) = self.entries.peek()?;
        if due > Instant::now() {
            return None;
        }
        self.entries.pop();
        self.entered[index] = false;
        Some(index)
    }
}
