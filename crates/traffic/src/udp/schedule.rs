//! When the datagrams of a flow with a stated rate are due. Every time is computed from the start, so
//! that no error adds up: a thread that overslept sends what has become due meanwhile.

use linerate_model::units::{BitRate, Bytes, Nanoseconds};

const NANOSECONDS: u128 = 1_000_000_000;

/// The due times of one flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Schedule {
    /// Bits of a datagram.
    bits: u128,
    bit_per_s: u128,
    /// When the first one is due: the flows of a trial do not all begin at once.
    first_ns: u64,
}

impl Schedule {
    /// Of flow `index` of `flows`, whose first datagrams are spread evenly over the time between two of a
    /// flow.
    pub(super) fn new(datagram: Bytes, rate: BitRate, index: u32, flows: u32) -> Self {
        let bits = u128::from(datagram.as_u64()) * 8;
        let bit_per_s = u128::from(rate.as_bit_per_s()).max(1);
        let gap_ns = bits * NANOSECONDS / bit_per_s;
        let first_ns = gap_ns * u128::from(index) / u128::from(flows.max(1));
        Self {
            bits,
            bit_per_s,
            first_ns: u64::try_from(first_ns).unwrap_or(u64::MAX),
        }
    }

    /// How many datagrams are to have been sent by `at`, since the start.
    pub(super) fn due(&self, at: Nanoseconds) -> u64 {
        let Some(since) = at.as_u64().checked_sub(self.first_ns) else {
            return 0;
        };
        let whole = u128::from(since) * self.bit_per_s / (self.bits * NANOSECONDS);
        u64::try_from(whole).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// When datagram `sequence` is due, since the start: the first time at which [`Schedule::due`]
    /// counts it.
    pub(super) fn time_of(&self, sequence: u64) -> Nanoseconds {
        let since = (u128::from(sequence) * self.bits * NANOSECONDS).div_ceil(self.bit_per_s);
        let since = u64::try_from(since).unwrap_or(u64::MAX);
        Nanoseconds::new(since.saturating_add(self.first_ns))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_flows_of_a_trial_take_turns() {
        let rate = BitRate::from_bit_per_s(8_000);
        let first = |index| Schedule::new(Bytes::new(100), rate, index, 4).time_of(0);
        assert_eq!(
            [0, 1, 2, 3].map(first),
            [0, 25, 50, 75].map(Nanoseconds::from_millis)
        );
    }

    #[test]
    fn a_datagram_of_no_rate_is_due_in_a_time_that_never_comes() {
        let schedule = Schedule::new(Bytes::new(65_507), BitRate::from_bit_per_s(0), 1, 2);
        assert_eq!(schedule.due(Nanoseconds::from_millis(1)), 0);
        assert_eq!(schedule.time_of(u64::MAX), Nanoseconds::new(u64::MAX));
    }

    proptest! {
        #[test]
        fn a_datagram_counts_from_its_time_on_and_not_before(
            datagram in 24u64..65_508,
            rate in 1_000u64..400_000_000_000,
            sequence in 0u64..1_000_000,
            index in 0u32..100,
        ) {
            let schedule =
                Schedule::new(Bytes::new(datagram), BitRate::from_bit_per_s(rate), index, 100);
            let time = schedule.time_of(sequence);
            prop_assert!(schedule.due(time) > sequence);
            if let Some(before) = time.as_u64().checked_sub(1) {
                prop_assert!(schedule.due(Nanoseconds::new(before)) <= sequence);
            }
        }

        #[test]
        fn over_any_hundred_datagrams_the_rate_is_kept_within_one_percent(
            datagram in 24u64..65_508,
            rate in 10_000u64..400_000_000_000,
            from_ns in 0u64..10_000_000_000,
        ) {
            let schedule = Schedule::new(Bytes::new(datagram), BitRate::from_bit_per_s(rate), 0, 1);
            let window_ns = (datagram * 8 * 101).saturating_mul(1_000_000_000).div_ceil(rate);
            let sent = schedule.due(Nanoseconds::new(from_ns + window_ns))
                - schedule.due(Nanoseconds::new(from_ns));
            let bits = u128::from(sent * datagram * 8);
            let planned = u128::from(rate) * u128::from(window_ns) / NANOSECONDS;
            prop_assert!(bits.abs_diff(planned) * 100 <= planned, "{bits} of {planned}");
        }
    }
}
