//! How the rates of a trial's flows differ: percentiles, the slowest, the fastest and Jain's fairness index.

use linerate_model::plan::End;
use linerate_model::sample::FlowRecord;
use linerate_model::trust::fairness;
use linerate_model::units::BitRate;
use linerate_stats::summary::quantile;
use serde::Serialize;

use super::measured::Measured;

/// More flows than this are summarized: each takes some kilobytes of a document.
pub(super) const FLOWS_LISTED: usize = 64;

/// The mean rate of a flow over the whole trial.
pub(super) fn mean_rate(flow: &FlowRecord) -> Option<BitRate> {
    BitRate::of(flow.total(), *flow.at_ns.last()?)
}

/// The mean rates of several flows over the whole trial.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct FlowSpread {
    /// How many flows there are.
    pub(super) count: usize,
    pub(super) rate_bit_per_s: Percentiles,
    pub(super) slowest: OneFlow,
    pub(super) fastest: OneFlow,
    /// Jain's index: 1 if all rates are equal, 1/count if one flow has everything.
    pub(super) fairness: f64,
}

/// Percentiles of the flows' rates.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Percentiles {
    p1: f64,
    p10: f64,
    p25: f64,
    pub(super) p50: f64,
    p75: f64,
    p90: f64,
    p99: f64,
}

/// One flow.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct OneFlow {
    flow: u32,
    /// The end that sends.
    from: End,
    pub(super) rate_bit_per_s: f64,
}

impl FlowSpread {
    /// None of a single flow, and where a flow's rate is not known.
    pub(super) fn of(measured: &Measured<'_>) -> Option<Self> {
        let flows = measured
            .flows()
            .into_iter()
            .map(|(from, sender, receiver)| {
                let flow = measured.counted(sender, receiver)?;
                let rate_bit_per_s = mean_rate(flow)?.as_f64();
                let flow = flow.flow;
                Some(OneFlow {
                    flow,
                    from,
                    rate_bit_per_s,
                })
            });
        Self::of_flows(&flows.collect::<Option<Vec<_>>>()?)
    }

    fn of_flows(flows: &[OneFlow]) -> Option<Self> {
        let rates: Vec<f64> = flows.iter().map(|flow| flow.rate_bit_per_s).collect();
        let by_rate =
            |one: &&OneFlow, other: &&OneFlow| one.rate_bit_per_s.total_cmp(&other.rate_bit_per_s);
        let at = |probability| quantile(&rates, probability).ok();
        let fairness = fairness(&rates)?;
        Some(Self {
            count: flows.len(),
            rate_bit_per_s: Percentiles {
                p1: at(0.01)?,
                p10: at(0.1)?,
                p25: at(0.25)?,
                p50: at(0.5)?,
                p75: at(0.75)?,
                p90: at(0.9)?,
                p99: at(0.99)?,
            },
            slowest: flows.iter().min_by(by_rate)?.clone(),
            fastest: flows.iter().max_by(by_rate)?.clone(),
            fairness,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(rates: &[f64]) -> Option<FlowSpread> {
        let flow = |(flow, &rate_bit_per_s): (u32, &f64)| OneFlow {
            flow,
            from: End::Local,
            rate_bit_per_s,
        };
        let flows: Vec<OneFlow> = (0..).zip(rates).map(flow).collect();
        FlowSpread::of_flows(&flows)
    }

    #[test]
    fn fairness_is_1_for_equal_rates_and_the_share_of_a_flow_that_has_everything() {
        let fairness = |rates: &[f64]| spread(rates).expect("several flows").fairness;
        assert!((fairness(&[5.0; 8]) - 1.0).abs() < 1e-12);
        assert!((fairness(&[8.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
        // Jain's own example of a half: (1 + 3)^2 / (2 x 10).
        assert!((fairness(&[1.0, 3.0]) - 0.8).abs() < 1e-12);
        assert!(spread(&[1.0]).is_none() && spread(&[0.0, 0.0]).is_none());
    }

    #[test]
    fn the_slowest_and_the_fastest_flow_are_named() {
        let spread = spread(&[2.0, 9.0, 1.0, 4.0]).expect("several flows");
        assert_eq!((spread.slowest.flow, spread.fastest.flow), (2, 1));
        assert!((spread.rate_bit_per_s.p50 - 3.0).abs() < 1e-12);
    }
}
