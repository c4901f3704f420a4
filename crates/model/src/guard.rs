//! Guards: metrics that must not get worse while the rate improves. For each, more is worse.

use crate::analysis::{gigabytes_received, s_per_gb};
use crate::latency::Histogram;
use crate::limit::dropped;
use crate::prove::Guard;
use crate::sample::Sample;
use crate::threshold;
use crate::units::{Ratio, real};

/// The payload of an Ethernet packet: drops are counted in packets, received data in bytes.
const PACKET_BYTES: f64 = 1_448.0;

/// The value of a trial for a guard; `None` if the trial does not have it.
pub fn figure(guard: Guard, sample: &Sample) -> Option<f64> {
    let figure = match guard {
        Guard::P99 => p99_ns(sample)?,
        Guard::Cpu => s_per_gb(sample)?,
        Guard::Drops => drop_share(sample)?,
    };
    (figure.is_finite() && figure > 0.0).then_some(figure)
}

/// Differences below this are ignored even if significant: clock resolution and ticks cause larger ones.
const FLOOR: f64 = 0.01;

/// Whether a guard is worse by more than its noise; `low` is the lower end of the CI of its relative change, `figure`
/// its value with the remedy, and `gain` the lower end of the CI of the rate's relative change.
///
/// A byte may cost more CPU time as long as the rate gains more: a link that is 12 times as fast runs at another
/// bottleneck, where batches and caches differ. A few drops are not loss, however large the ratio.
pub fn is_worse(guard: Guard, low: f64, figure: f64, gain: f64) -> bool {
    match guard {
        Guard::P99 => low > FLOOR,
        Guard::Cpu => low > FLOOR.max(gain),
        Guard::Drops => low > 0.0 && Ratio::new(figure) > threshold::LOSS_SHARE,
    }
}

/// The 99th percentile over all operations.
fn p99_ns(sample: &Sample) -> Option<f64> {
    let mut whole = Histogram::default();
    for side in [&sample.local, &sample.remote] {
        if let Some(operations) = &side.operations {
            whole.add(&operations.latency);
        }
    }
    Some(real(whole.quantile(0.99)?.as_u64()))
}

/// The share of packets that both hosts dropped; half a packet is added, so that 0 can be used in a ratio.
fn drop_share(sample: &Sample) -> Option<f64> {
    let packets = gigabytes_received(sample) * 1e9 / PACKET_BYTES;
    Some((real(dropped(sample)?) + 0.5) / packets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{self, WatchBuilder};
    use crate::known::Known;

    fn sample(grow: impl Fn(WatchBuilder) -> WatchBuilder) -> Sample {
        let (near, far) = build::veth_pair();
        let mut sample = build::sample().mbit(8_000).build();
        sample.local.counters = Known::Value(build::watch(&near).build());
        sample.remote.counters = Known::Value(grow(build::watch(&far)).build());
        sample
    }

    #[test]
    fn drops_of_both_ends_are_a_share_of_what_was_received() {
        let none = figure(Guard::Drops, &sample(|watch| watch)).expect("counters");
        let some = sample(|watch| watch.grew("nic/far0/stat/rx_dropped", 10_000));
        let some = figure(Guard::Drops, &some).expect("counters");
        assert!((some / none - 20_001.0).abs() < 1e-6, "{none} {some}");
        assert!(is_worse(Guard::Drops, 3.0, some, 0.0) && !is_worse(Guard::Drops, 3.0, none, 0.0));
        assert!(!is_worse(Guard::Drops, -0.1, some, 0.0));
    }

    #[test]
    fn a_difference_that_no_clock_tells_is_not_worse() {
        assert!(!is_worse(Guard::Cpu, 1e-9, 2.0, 0.0));
        assert!(is_worse(Guard::Cpu, 0.02, 2.0, -0.3));
    }

    #[test]
    fn a_byte_may_cost_more_as_long_as_the_rate_gains_more() {
        // A shaper of 1 Gb/s removed: 12 times the rate, 35 % more CPU time per byte.
        assert!(!is_worse(Guard::Cpu, 0.35, 0.4, 11.0));
        assert!(is_worse(Guard::Cpu, 0.35, 0.4, 0.3));
        assert!(is_worse(Guard::P99, 0.35, 4e5, 11.0), "a wait stays a wait");
    }

    #[test]
    fn what_a_trial_does_not_tell_is_no_figure() {
        let mut untold = sample(|watch| watch);
        untold.remote.counters = build::sample().build().remote.counters;
        assert_eq!(figure(Guard::Drops, &untold), None);
        assert_eq!(figure(Guard::P99, &untold), None, "a stream asks nothing");
        assert!(figure(Guard::Cpu, &untold).is_some());
    }
}
