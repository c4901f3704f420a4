//! The victim of an incast: its rate and its latency with and without the incast, in pairs of neighboring rounds.

use linerate_model::mesh::MeshHost;
use linerate_stats::Seed;
use linerate_stats::effect::paired_relative;
use serde::Serialize;

use super::TOLERANCE;
use super::gathered::{Gathered, VictimTrial};

/// The level of the intervals.
const LEVEL: f64 = 0.95;

/// What an incast does to a flow that does not go to its receiver.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IncastResult {
    /// The receivers that were congested.
    pub receivers: Vec<String>,
    /// The hosts that sent to them.
    pub senders: Vec<String>,
    /// The senders of the victim flows.
    pub victims_from: Vec<String>,
    /// Their receivers.
    pub victims_to: Vec<String>,
    /// How many rounds with the incast were compared with one without.
    pub pairs: usize,
    /// The victim's rate during the incast over its rate without; null if too little was measured.
    pub rate: Option<RatioResult>,
    /// The same of the 99th percentile of its latency; null if the workload measures none.
    pub latency_p99: Option<RatioResult>,
    /// Whether the incast slows the victim.
    pub verdict: VictimVerdict,
}

/// A ratio with its 95 % CI.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RatioResult {
    /// With the incast over without.
    pub ratio: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// Whether a congested receiver slows flows that do not go there (head-of-line blocking).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum VictimVerdict {
    /// It does: the interval of the rate is below 1, and the rate below the tolerance of 3 %.
    Slowed,
    /// It does not by more than 3 %.
    NotSlowed,
    /// The interval includes both.
    Inconclusive,
}

/// The victim of an incast; none if there was no incast. Rounds with and without it alternate.
pub fn incast(gathered: &Gathered, hosts: &[MeshHost], seed: u64) -> Option<IncastResult> {
    if gathered.congesting.is_empty() {
        return None;
    }
    let of = |is_congested: bool| {
        let own = gathered
            .victims
            .iter()
            .filter(move |trial| trial.is_congested == is_congested);
        own.copied().collect::<Vec<VictimTrial>>()
    };
    // Each pair of rounds has one of each, between the same two hosts.
    let pairs: Vec<(VictimTrial, VictimTrial)> = of(false)
        .into_iter()
        .zip(of(true))
        .filter(|(alone, congested)| (alone.from, alone.to) == (congested.from, congested.to))
        .collect();
    let ratio = |values: Vec<(f64, f64)>| {
        let effect = paired_relative(&values, LEVEL, Seed(seed)).ok()?;
        Some(RatioResult {
            ratio: 1.0 + effect.relative,
            low: 1.0 + effect.interval.low,
            high: 1.0 + effect.interval.high,
        })
    };
    let rate = ratio(pairs.iter().map(|(a, b)| (a.rate, b.rate)).collect());
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a latency")]
    let latencies = pairs.iter().filter_map(|(alone, congested)| {
        let (alone, congested) = (alone.latency_ns_p99?, congested.latency_ns_p99?);
        Some((alone as f64, congested as f64))
    });
    let latency_p99 = ratio(latencies.collect());
    let names = |positions: &mut dyn Iterator<Item = usize>| {
        let mut names: Vec<String> = positions.map(|host| hosts[host].name.clone()).collect();
        names.sort();
        names.dedup();
        names
    };
    let congesting = &gathered.congesting;
    let victims = &gathered.victims;
    Some(IncastResult {
        receivers: names(&mut congesting.iter().map(|(_, to)| to.position())),
        senders: names(&mut congesting.iter().map(|(from, _)| from.position())),
        victims_from: names(&mut victims.iter().map(|one| one.from.position())),
        victims_to: names(&mut victims.iter().map(|one| one.to.position())),
        pairs: pairs.len(),
        verdict: verdict(rate),
        rate,
        latency_p99,
    })
}

fn verdict(rate: Option<RatioResult>) -> VictimVerdict {
    match rate {
        Some(rate) if rate.high < 1.0 && rate.ratio < 1.0 - TOLERANCE => VictimVerdict::Slowed,
        Some(rate) if rate.low > 1.0 - TOLERANCE => VictimVerdict::NotSlowed,
        _ => VictimVerdict::Inconclusive,
    }
}

#[cfg(test)]
mod tests {
    use linerate_model::mesh::{HostIndex, Observation, Outcome, Role, Step};
    use linerate_stats::Random;

    use super::*;

    fn mesh(factor: f64, seed: u64) -> Option<IncastResult> {
        let hosts: Vec<MeshHost> = (0..6).map(|n| MeshHost::named(format!("h{n}"))).collect();
        let mut random = Random::new(Seed(seed));
        let mut gathered = Gathered::default();
        for round in 0..40 {
            let is_congested = round % 2 == 1;
            let mut add = |from, to, role, factor: f64| {
                gathered.add(&Observation {
                    round,
                    step: Step::Forward,
                    from: HostIndex(from),
                    to: HostIndex(to),
                    role,
                    outcome: Outcome::Measured {
                        retransmits: None,
                        rate: 1e9 * factor * (0.02 * random.normal()).exp(),
                        latency_ns_p99: None,
                    },
                });
            };
            if is_congested {
                add(0, 1, Role::VictimCongested, factor);
                (3..6).for_each(|from| add(from, 2, Role::Congesting, 0.3));
            } else {
                add(0, 1, Role::VictimAlone, 1.0);
            }
        }
        incast(&gathered, &hosts, seed)
    }

    #[test]
    fn a_victim_that_shares_its_queue_is_slowed_and_one_that_does_not_is_not() {
        let right = |factor, expected| {
            let runs = (0..40).filter_map(|seed| mesh(factor, seed));
            runs.filter(|result| result.verdict == expected).count()
        };
        assert!(right(0.8, VictimVerdict::Slowed) >= 38);
        assert!(right(1.0, VictimVerdict::NotSlowed) >= 38);
        let result = mesh(0.8, 1).expect("an incast");
        assert_eq!((result.pairs, result.senders.len()), (20, 3));
        assert_eq!(
            (&*result.victims_to, &*result.receivers),
            (&["h1".to_owned()][..], &["h2".to_owned()][..])
        );
    }

    #[test]
    fn a_mesh_without_an_incast_has_no_victim() {
        assert_eq!(incast(&Gathered::default(), &[], 1), None);
    }
}
