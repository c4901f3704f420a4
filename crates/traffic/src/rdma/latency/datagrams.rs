//! What is otherwise with datagrams, which may be lost without a word: numbers, answers that are waited for only so
//! long, rooms that are written over.

use std::time::{Duration, Instant};

use super::line::Line;
use super::{Posted, Table, speaks};
use crate::TrafficError;
use crate::rdma::FlowTotals;
use crate::verbs::Took;

/// How long the answer to a datagram is waited for. A loss in either direction counts as unanswered.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(1);
/// How long after the bytes of a datagram that came later its completion may be seen.
const OVERTAKEN_MAX: Duration = Duration::from_millis(10);

/// A datagram to be answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct PendingDatagram {
    pub(super) number: u32,
    /// With its route header.
    pub(super) bytes: u32,
}

/// Adds the unanswered datagrams to those sent. If nothing at all was answered there is nothing to
/// report.
pub(super) fn add_lost(posted: &[Posted], flows: &mut [FlowTotals]) -> Result<(), TrafficError> {
    let lost: u64 = posted.iter().map(|one| one.lost).sum();
    if lost > 0 && flows.iter().all(|moved| moved.messages == 0) {
        return Err(TrafficError::NoneAnswered {
            sent: lost,
            waited: ANSWER_MAX,
        });
    }
    for (moved, one) in flows.iter_mut().zip(posted) {
        moved.messages += one.lost;
    }
    Ok(())
}

impl Table<'_, '_, '_> {
    /// Compares what came, where that is requested; `false` of a datagram over which another one was written
    /// than those `known` whose rooms are to be returned: all rooms are the same memory.
    #[inline]
    pub(super) fn is_right(
        &mut self,
        line: &Line<'_, '_>,
        known: u32,
    ) -> Result<bool, TrafficError> {
        match self.check(line) {
            Ok(()) => Ok(true),
            Err(_) if line.told.is_some() && self.is_overtaken(line.index, known)? => Ok(false),
            Err(wrong) => Err(wrong),
        }
    }

    /// Whether more messages than those `known` came on `lane` and wait for their rooms to be returned.
    fn is_overtaken(&mut self, lane: usize, known: u32) -> Result<bool, TrafficError> {
        let until = Instant::now() + OVERTAKEN_MAX;
        while self.posted[lane].spent <= known {
            if Instant::now() >= until {
                return Ok(false);
            }
            let count = self.thread_device.taker.poll()?;
            self.absorb(None, count)?;
        }
        Ok(true)
    }

    /// Answers any datagrams that arrive until the remote end sends a control message. A lost one
    /// is noticed by the requesting end.
    pub(super) fn answer_datagrams(
        &mut self,
        lines: &mut [Line<'_, '_>],
        flows: &mut [FlowTotals],
    ) -> Result<(), TrafficError> {
        loop {
            match self.thread_device.taker.take(None)? {
                Took::Some(count) => {
                    self.absorb(None, count)?;
                }
                Took::Nothing => continue,
                Took::Look => {
                    self.look_around()?;
                    if speaks(self.data_thread)? {
                        return Ok(());
                    }
                }
            }
            for (line, moved) in lines.iter_mut().zip(flows.iter_mut()) {
                while let Some(asked) = self.posted[line.index].asked.take() {
                    self.answer_datagram(line, moved, asked)?;
                }
                self.give_back(line)?;
            }
        }
    }

    /// Answers a datagram by its number. One of another size is late, and its answer is not expected.
    fn answer_datagram(
        &mut self,
        line: &mut Line<'_, '_>,
        moved: &mut FlowTotals,
        asked: PendingDatagram,
    ) -> Result<(), TrafficError> {
        if asked.bytes as usize != line.header + line.size {
            return Ok(());
        }
        line.number = asked.number.into();
        line.told = Some(asked.number);
        let known = self.posted[line.index].spent;
        if !self.is_right(line, known)? {
            return Ok(());
        }
        self.prepare(line);
        self.post(line)?;
        moved.messages += 1;
        moved.bytes += 2 * line.size as u64;
        line.lane.one.counter.set_bytes(moved.bytes);
        Ok(())
    }
}
