//! Runs of datagrams of one flow that did not arrive, bounded by the send times around them, in bounded memory.
//!
//! A run opens when a number arrives that is higher than the next one. A missing number that arrives after all divides the run
//! or shortens it. Only the newest runs can change: the oldest is counted when there are too many. A pause between two
//! arrivals without a missing number is a stall of a host, and no gap.

use std::collections::VecDeque;

use linerate_model::sample::DatagramGaps;
use linerate_model::units::Nanoseconds;

/// Runs that may still change.
const OPEN_MAX: usize = 64;

/// Missing numbers, and when those around them were sent.
#[derive(Debug, Clone, Copy)]
struct Run {
    first: u64,
    /// One more than the last.
    end: u64,
    /// When the number before was sent.
    from_ns: u64,
    /// When the number after was sent.
    to_ns: u64,
}

/// Finds the gaps of one flow.
#[derive(Debug)]
pub(super) struct Gaps {
    open: VecDeque<Run>,
    count: u64,
    /// The longest so far: its length, and when it began.
    longest: Option<(u64, u64)>,
    /// When the first and the newest number were sent; the sender's clock.
    first_ns: Option<u64>,
    last_ns: u64,
    /// The number after the newest.
    next: u64,
    /// The longest time between the send times of two numbers of which none was missing.
    send_gap_ns: u64,
}

impl Gaps {
    pub(super) fn new() -> Self {
        Self {
            open: VecDeque::with_capacity(OPEN_MAX + 1),
            count: 0,
            longest: None,
            first_ns: None,
            last_ns: 0,
            next: 0,
            send_gap_ns: 0,
        }
    }

    /// Number `sequence`, which is the highest so far.
    #[inline]
    pub(super) fn advanced(&mut self, sequence: u64, sent_ns: u64) {
        self.first_ns.get_or_insert(sent_ns);
        if sequence == self.next {
            // The first number has none before it.
            if sequence > 0 {
                self.send_gap_ns = self.send_gap_ns.max(sent_ns.saturating_sub(self.last_ns));
            }
        } else {
            self.open(Run {
                first: self.next,
                end: sequence,
                from_ns: if self.next == 0 {
                    sent_ns
                } else {
                    self.last_ns
                },
                to_ns: sent_ns,
            });
        }
        self.last_ns = sent_ns;
        self.next = sequence.saturating_add(1);
    }

    /// Number `sequence`, which was missing.
    pub(super) fn filled(&mut self, sequence: u64, sent_ns: u64) {
        let is_in = |run: &Run| (run.first..run.end).contains(&sequence);
        let Some(at) = self.open.iter().rposition(is_in) else {
            return;
        };
        let Some(run) = self.open.remove(at) else {
            return;
        };
        let after = Run {
            first: sequence + 1,
            from_ns: sent_ns,
            ..run
        };
        let before = Run {
            end: sequence,
            to_ns: sent_ns,
            ..run
        };
        for part in [after, before] {
            if part.first < part.end {
                self.open.insert(at, part);
            }
        }
        self.settle();
    }

    fn open(&mut self, run: Run) {
        self.open.push_back(run);
        self.settle();
    }

    /// Counts the oldest runs while there are too many.
    fn settle(&mut self) {
        while self.open.len() > OPEN_MAX {
            if let Some(run) = self.open.pop_front() {
                self.counted(run);
            }
        }
    }

    fn counted(&mut self, run: Run) {
        self.count += 1;
        let length = run.to_ns.saturating_sub(run.from_ns);
        if self.longest.is_none_or(|(longest, _)| length > longest) {
            self.longest = Some((length, run.from_ns));
        }
    }

    /// The gaps of `sent` datagrams that were planned `step` apart, as far as that is known: otherwise they were sent as fast
    /// as possible, and their mean distance stands for it.
    pub(super) fn close(mut self, sent: u64, step: Option<Nanoseconds>) -> DatagramGaps {
        let elapsed = self.last_ns.saturating_sub(self.first_ns.unwrap_or(0));
        let mean = elapsed
            .checked_div(self.next.saturating_sub(1))
            .unwrap_or(0);
        let step = step.map_or(mean, Nanoseconds::as_u64);
        if sent > self.next && self.next > 0 {
            // The last ones: the next one would have been sent a step after them.
            let missing = (sent - self.next).saturating_add(1);
            let length = step.saturating_mul(missing);
            let from_ns = self.last_ns;
            self.open.push_back(Run {
                first: self.next,
                end: sent,
                from_ns,
                to_ns: from_ns.saturating_add(length),
            });
        }
        while let Some(run) = self.open.pop_front() {
            self.counted(run);
        }
        let longest = self.longest.map(|(length, from_ns)| {
            let from = from_ns.saturating_sub(self.first_ns.unwrap_or(0));
            (length.saturating_sub(step), from)
        });
        DatagramGaps {
            count: self.count,
            longest_ns: longest.map(|(length, _)| Nanoseconds::new(length)),
            longest_at_ns: longest.map(|(_, from)| Nanoseconds::new(from)),
            step_ns: Nanoseconds::new(step),
            longest_send_gap_ns: Nanoseconds::new(self.send_gap_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: u64 = 1_000;

    /// The gaps of a flow that sends a datagram each [`STEP`] and of which `arriving` arrive in this order.
    fn gaps(arriving: &[u64], sent: u64) -> DatagramGaps {
        let mut gaps = Gaps::new();
        let mut next = 0;
        for &number in arriving {
            let sent_ns = 5_000_000 + number * STEP;
            if number >= next {
                gaps.advanced(number, sent_ns);
                next = number + 1;
            } else {
                gaps.filled(number, sent_ns);
            }
        }
        gaps.close(sent, Some(Nanoseconds::new(STEP)))
    }

    fn words(gaps: &DatagramGaps) -> (u64, Option<u64>, Option<u64>) {
        let time = |time: Option<Nanoseconds>| time.map(Nanoseconds::as_u64);
        (gaps.count, time(gaps.longest_ns), time(gaps.longest_at_ns))
    }

    #[test]
    fn the_longest_run_of_lost_datagrams_is_shown_with_its_begin() {
        let arriving: Vec<u64> = (0..100)
            .filter(|number| *number != 10 && !(40..60).contains(number))
            .collect();
        let found = gaps(&arriving, 100);
        // 39 is the last before it.
        assert_eq!(words(&found), (2, Some(20 * STEP), Some(39 * STEP)));
        assert_eq!(found.longest_send_gap_ns.as_u64(), STEP);
    }

    #[test]
    fn reordering_alone_is_no_gap_and_a_late_datagram_divides_one() {
        assert_eq!(words(&gaps(&[0, 3, 2, 1, 4], 5)), (0, None, None));
        // Lost are 1 to 4 and 6 to 8.
        assert_eq!(
            words(&gaps(&[0, 9, 5, 10], 11)),
            (2, Some(4 * STEP), Some(0))
        );
    }

    #[test]
    fn datagrams_lost_at_the_begin_and_at_the_end_are_gaps() {
        assert_eq!(words(&gaps(&[0, 1], 12)), (1, Some(10 * STEP), Some(STEP)));
        assert_eq!(words(&gaps(&[3, 4], 5)).0, 1);
        assert_eq!(words(&gaps(&[], 5)), (0, None, None));
    }

    #[test]
    fn many_gaps_are_all_counted() {
        let arriving: Vec<u64> = (0..10_001).step_by(2).collect();
        let found = gaps(&arriving, 10_001);
        assert_eq!(words(&found), (5_000, Some(STEP), Some(0)));
    }

    #[test]
    fn a_pause_of_the_sender_is_no_gap() {
        let mut gaps = Gaps::new();
        gaps.advanced(0, 0);
        gaps.advanced(1, 109_000_000);
        let found = gaps.close(2, Some(Nanoseconds::new(STEP)));
        assert_eq!(words(&found), (0, None, None));
        assert_eq!(found.longest_send_gap_ns.as_u64(), 109_000_000);
    }
}
