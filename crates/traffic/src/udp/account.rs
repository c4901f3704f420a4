//! A receiver's account of one flow: which datagrams came, in what order, how often, and how evenly.

use linerate_model::latency::Histogram;
use linerate_model::sample::{Datagrams, OnTime};
use linerate_model::units::Nanoseconds;

use super::gaps::Gaps;

/// How far back a duplicate is recognized: so many of the highest sequence numbers.
pub(super) const WINDOW: u64 = 1 << 16;
const WORD_BITS: u64 = u64::BITS as u64;

/// Counts datagrams as they arrive.
///
/// One that is more than [`WINDOW`] behind the newest is taken for late, not for a second copy: which of
/// the two it is, is no longer known.
#[derive(Debug)]
pub(super) struct Account {
    /// One more than the highest sequence number that came.
    next: u64,
    /// A bit for each of the last [`WINDOW`] sequence numbers, at its remainder: whether it came.
    came: Box<[u64]>,
    count: u64,
    reordered: u64,
    duplicated: u64,
    /// The trial's planned duration.
    planned_ns: u64,
    /// When the first datagram came, and how many within the planned duration from then on.
    on_time: Option<(u64, u64)>,
    timing: Timing,
    gaps: Gaps,
}

/// Statistics of the send times. Datagrams of one batch have one send time, so the first of each that arrives is
/// used.
#[derive(Debug)]
struct Timing {
    last_sent_ns: Option<u64>,
    last_transit_ns: i64,
    /// 16 times the jitter, as RFC 3550, A.8 keeps it.
    jitter_16: u64,
    delay: Option<Histogram>,
}

impl Account {
    /// An empty one of a trial that is planned to take `planned_ns`; delays are kept when both ends have one clock.
    pub(super) fn new(planned_ns: u64, with_delay: bool) -> Self {
        Self {
            next: 0,
            came: vec![0; (WINDOW / WORD_BITS) as usize].into_boxed_slice(),
            count: 0,
            reordered: 0,
            duplicated: 0,
            planned_ns,
            on_time: None,
            timing: Timing {
                last_sent_ns: None,
                last_transit_ns: 0,
                jitter_16: 0,
                delay: with_delay.then(Histogram::default),
            },
            gaps: Gaps::new(),
        }
    }

    /// Counts datagram `sequence`, sent at `sent_ns` of the sender's clock and received at `now_ns` of
    /// ours.
    #[inline]
    pub(super) fn arrived(&mut self, sequence: u64, sent_ns: u64, now_ns: u64) {
        self.count += 1;
        let (first_ns, on_time) = self.on_time.get_or_insert((now_ns, 0));
        if now_ns.wrapping_sub(*first_ns) <= self.planned_ns {
            *on_time = self.count;
        }
        self.place(sequence, sent_ns);
        self.timing.arrived(sent_ns, now_ns);
    }

    #[inline]
    fn place(&mut self, sequence: u64, sent_ns: u64) {
        if sequence >= self.next {
            self.gaps.advanced(sequence, sent_ns);
            self.forget(self.next, sequence);
            // The sequence of a conforming sender never comes near its end.
            self.next = sequence.saturating_add(1);
            self.mark(sequence);
            return;
        }
        if self.next - sequence > WINDOW {
            self.reordered += 1;
        } else if self.is_marked(sequence) {
            self.duplicated += 1;
        } else {
            self.reordered += 1;
            self.mark(sequence);
            self.gaps.filled(sequence, sent_ns);
        }
    }

    /// Clears the bits of `from..to`, which were those of older numbers.
    #[inline]
    fn forget(&mut self, from: u64, to: u64) {
        if to - from >= WINDOW {
            self.came.fill(0);
            return;
        }
        for sequence in from..to {
            let (word, bit) = place_of(sequence);
            self.came[word] &= !bit;
        }
    }

    #[inline]
    fn mark(&mut self, sequence: u64) {
        let (word, bit) = place_of(sequence);
        self.came[word] |= bit;
    }

    #[inline]
    fn is_marked(&self, sequence: u64) -> bool {
        let (word, bit) = place_of(sequence);
        self.came[word] & bit != 0
    }

    /// How many arrived, second copies included.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Whether all of `sent` datagrams are there.
    pub(super) fn has_all(&self, sent: u64) -> bool {
        self.count - self.duplicated >= sent
    }

    /// What became of `sent` datagrams, which were planned `step` apart if they have a rate; the receiver started at
    /// `start_ns`.
    pub(super) fn close(self, sent: u64, step: Option<Nanoseconds>, start_ns: u64) -> Datagrams {
        Datagrams {
            on_time: self.on_time.map(|(first_ns, count)| OnTime {
                first_ns: Nanoseconds::new(first_ns.saturating_sub(start_ns)),
                count,
            }),
            count: self.count,
            lost: sent.saturating_sub(self.count - self.duplicated),
            reordered: self.reordered,
            duplicated: self.duplicated,
            jitter_ns: Nanoseconds::new(self.timing.jitter_16 / 16),
            delay: self.timing.delay,
            socket_drops: None,
            batch: None,
            probe: None,
            gaps: Some(self.gaps.close(sent, step)),
        }
    }
}

/// The word and the bit of a sequence number.
#[inline]
fn place_of(sequence: u64) -> (usize, u64) {
    let place = sequence % WINDOW;
    ((place / WORD_BITS) as usize, 1 << (place % WORD_BITS))
}

impl Timing {
    #[inline]
    fn arrived(&mut self, sent_ns: u64, now_ns: u64) {
        if self.last_sent_ns == Some(sent_ns) {
            return;
        }
        // Two clocks may be any time apart: only differences of transit times mean something.
        let transit_ns = now_ns.wrapping_sub(sent_ns).cast_signed();
        if self.last_sent_ns.replace(sent_ns).is_some() {
            let difference = transit_ns.abs_diff(self.last_transit_ns);
            // RFC 3550, A.8: J += |D| - (J + 8) / 16, in sixteenths.
            self.jitter_16 = (self.jitter_16 - (self.jitter_16.saturating_add(8) >> 4))
                .saturating_add(difference);
        }
        self.last_transit_ns = transit_ns;
        if let Some(delay) = &mut self.delay {
            delay.record(Nanoseconds::new(now_ns.saturating_sub(sent_ns)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// The account of `sequences`, each in its own batch that took no time.
    fn account(sequences: &[u64], sent: u64) -> Datagrams {
        let mut account = Account::new(u64::MAX, false);
        for (now_ns, &sequence) in (0u64..).zip(sequences) {
            account.arrived(sequence, now_ns, now_ns);
        }
        account.close(sent, None, 0)
    }

    #[test]
    fn on_time_is_what_came_within_the_planned_duration_of_the_first() {
        let mut account = Account::new(1_000, false);
        for (sequence, now_ns) in [(0, 500), (1, 900), (2, 1_500), (3, 1_501), (4, 9_000)] {
            account.arrived(sequence, sequence, now_ns);
        }
        let on_time = account.close(5, None, 100).on_time.expect("datagrams came");
        assert_eq!((on_time.first_ns.as_u64(), on_time.count), (400, 3));
        assert_eq!(Account::new(1, false).close(0, None, 0).on_time, None);
    }

    fn counts(datagrams: &Datagrams) -> [u64; 4] {
        [
            datagrams.count,
            datagrams.lost,
            datagrams.reordered,
            datagrams.duplicated,
        ]
    }

    #[test]
    fn each_fate_of_a_datagram_is_told_apart() {
        assert_eq!(counts(&account(&[], 5)), [0, 5, 0, 0]);
        assert_eq!(counts(&account(&[0, 1, 2], 3)), [3, 0, 0, 0]);
        assert_eq!(counts(&account(&[0, 3], 4)), [2, 2, 0, 0], "lost");
        assert_eq!(counts(&account(&[1, 0, 2], 3)), [3, 0, 1, 0], "reordered");
        assert_eq!(counts(&account(&[0, 1, 1, 0], 2)), [4, 0, 0, 2], "twice");
        assert_eq!(
            counts(&account(&[2, 0, 0, 1], 4)),
            [4, 1, 2, 1],
            "late, and twice"
        );
    }

    #[test]
    fn what_fell_out_of_the_window_is_late_and_never_a_duplicate_of_a_newer_one() {
        let newest = 3 * WINDOW + 5;
        let record = account(
            &[5, newest, newest - WINDOW, newest - WINDOW + 1],
            newest + 1,
        );
        assert_eq!((record.reordered, record.duplicated), (2, 0));
        let record = account(&[0, WINDOW, WINDOW, 0], WINDOW + 1);
        assert_eq!((record.reordered, record.duplicated), (1, 1));
    }

    #[test]
    fn a_sequence_at_the_end_of_all_numbers_does_no_harm() {
        let record = account(&[0, u64::MAX, u64::MAX, 1], 2);
        assert_eq!(record.count, 4);
    }

    #[test]
    fn jitter_is_that_of_the_standards_own_formula() {
        let mut account = Account::new(u64::MAX, true);
        // Transit times of 100, 116, 100, 100 us on a clock that is a second behind.
        for (sent_us, transit_us) in [(0, 100), (1000, 116), (2000, 100), (3000, 100)] {
            let sent_ns = 1_000_000_000 + sent_us * 1000;
            account.arrived(
                sent_us,
                sent_ns,
                sent_ns + transit_us * 1000 - 1_000_000_000,
            );
            // Others of the same batch change nothing.
            account.arrived(sent_us + 1, sent_ns, sent_ns + 777_000);
        }
        // J of 0; 16/16 = 1; 1 + (16 - 1)/16 = 1.9375; 1.9375 - 1.9375/16 = 1.8164 us.
        let jitter = account.close(4, None, 0).jitter_ns;
        assert!((1_815..=1_818).contains(&jitter.as_u64()), "{jitter}");
    }

    #[test]
    fn delays_are_kept_only_with_one_clock() {
        let mut account = Account::new(u64::MAX, true);
        for sequence in 0..10 {
            account.arrived(sequence, sequence * 1000, sequence * 1000 + 250);
        }
        let delay = account.close(10, None, 0).delay.expect("one clock");
        assert_eq!(
            (delay.count(), delay.max()),
            (10, Some(Nanoseconds::new(250)))
        );
        assert_eq!(self::account(&[0], 1).delay, None);
    }

    /// Keeps every number that ever came.
    fn naive(sequences: &[u64], sent: u64) -> [u64; 4] {
        let mut seen = BTreeSet::new();
        let (mut reordered, mut duplicated) = (0, 0);
        for &sequence in sequences {
            let late = seen.last().is_some_and(|&newest| sequence < newest);
            if !seen.insert(sequence) {
                duplicated += 1;
            } else if late {
                reordered += 1;
            }
        }
        let count = sequences.len() as u64;
        [count, sent - seen.len() as u64, reordered, duplicated]
    }

    proptest! {
        #[test]
        fn counts_agree_with_a_record_of_every_number(
            sequences in proptest::collection::vec(0u64..300, 0..400),
        ) {
            prop_assert_eq!(counts(&account(&sequences, 300)), naive(&sequences, 300));
        }

        #[test]
        fn counts_agree_over_many_turns_of_the_window(
            steps in proptest::collection::vec((0u64..20_000, 0u64..WINDOW), 0..200),
        ) {
            // Forward by any step, and each time one from within the window.
            let mut sequences = Vec::new();
            let mut newest = 0u64;
            for (forward, back) in steps {
                newest += forward;
                sequences.push(newest);
                sequences.push(newest.saturating_sub(back));
            }
            let sent = newest + 1;
            prop_assert_eq!(counts(&account(&sequences, sent)), naive(&sequences, sent));
        }
    }
}
