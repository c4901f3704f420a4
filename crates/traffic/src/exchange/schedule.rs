//! When the requests of an open loop are due: request *k* of all flows together at *k* / rate after
//! the start, whatever the responses do, and the flows take turns. Every time is computed from the start,
//! so that nothing adds up over a long trial.

use std::time::{Duration, Instant};

/// The intended times of one flow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    zero: Instant,
    rate_per_s: u64,
    flow: u64,
    flows: u64,
}

impl Schedule {
    /// Of flow `flow` among `flows` that make `rate_per_s` requests a second together, from `zero` on.
    pub(super) fn new(zero: Instant, rate_per_s: u64, flow: u32, flows: u32) -> Self {
        Self {
            zero,
            rate_per_s: rate_per_s.max(1),
            flow: flow.into(),
            flows: flows.max(1).into(),
        }
    }

    /// When request `number` of this flow (from 0) is due.
    pub(super) fn at(&self, number: u64) -> Instant {
        self.zero + self.after(number)
    }

    /// The same, since the start.
    fn after(&self, number: u64) -> Duration {
        const SECOND_NS: u64 = 1_000_000_000;
        let of_all = self.flow.saturating_add(number.saturating_mul(self.flows));
        let (whole, rest) = (of_all / self.rate_per_s, of_all % self.rate_per_s);
        // A rate is at most 10^8 a second, so the product does not overflow.
        Duration::new(whole, 0) + Duration::from_nanos(rest * SECOND_NS / self.rate_per_s)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn all_flows_together_keep_the_rate_without_drift(
            rate in 1u64..=100_000_000,
            flows in 1u32..=10_000,
            number in 0u64..1_000_000_000,
        ) {
            let zero = Instant::now();
            let flow = u32::try_from(number % u64::from(flows)).expect("small");
            let schedule = Schedule::new(zero, rate, flow, flows);
            let said = schedule.after(number / u64::from(flows)).as_nanos();
            let truth = u128::from(number) * 1_000_000_000 / u128::from(rate);
            prop_assert_eq!(said, truth);
        }

        #[test]
        fn a_flows_times_ascend_and_the_flows_take_turns(
            rate in 1u64..=100_000_000,
            flows in 2u32..=10_000,
            number in 0u64..1_000_000,
        ) {
            let zero = Instant::now();
            let first = Schedule::new(zero, rate, 0, flows);
            let last = Schedule::new(zero, rate, flows - 1, flows);
            prop_assert!(first.at(number) <= last.at(number));
            prop_assert!(last.at(number) <= first.at(number + 1));
        }
    }
}
