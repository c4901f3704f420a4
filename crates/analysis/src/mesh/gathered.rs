//! What came out of the flows of a mesh, compactly: all pairs of 4,096 hosts are 33 million results.

use std::collections::BTreeMap;

use linerate_model::mesh::{Failure, HostIndex, Observation, Outcome, Role, Step};
use linerate_model::units::Nanoseconds;

use super::loss::Losses;

/// A measured rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Entry {
    pub(super) from: u16,
    pub(super) to: u16,
    pub(super) round: u32,
    /// The natural logarithm of the rate.
    pub(super) log_rate: f32,
}

/// A flow that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FailedFlow {
    pub(super) from: HostIndex,
    pub(super) to: HostIndex,
    pub(super) failure: Failure,
}

/// The victim of an incast in one round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct VictimTrial {
    pub(super) from: HostIndex,
    pub(super) to: HostIndex,
    pub(super) is_congested: bool,
    pub(super) rate: f64,
    pub(super) latency_ns_p99: Option<u64>,
}

/// The results of a part of a mesh: of its pattern, or of its retest.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Gathered {
    apart: Vec<Entry>,
    together: Vec<Entry>,
    pub(super) failed: Vec<FailedFlow>,
    pub(super) victims: Vec<VictimTrial>,
    /// What was retransmitted, of each direction alone.
    pub(super) losses: Losses,
    /// Hosts that congested a receiver, and the receiver.
    pub(super) congesting: Vec<(HostIndex, HostIndex)>,
    /// The first cause of flows that were not tried, and how many there were.
    not_tried: BTreeMap<(HostIndex, HostIndex), String>,
}

impl Gathered {
    /// Adds a result. Rounds must be added in order.
    pub fn add(&mut self, observation: &Observation) {
        let (from, to) = (observation.from, observation.to);
        if observation.role == Role::Congesting && !self.congesting.contains(&(from, to)) {
            self.congesting.push((from, to));
        }
        match &observation.outcome {
            Outcome::NotTried { cause } => {
                let first = self.not_tried.entry((from, to));
                first.or_insert_with(|| cause.clone());
            }
            Outcome::Failed { failure, .. } => {
                let failure = *failure;
                self.failed.push(FailedFlow { from, to, failure });
            }
            Outcome::Measured { rate, .. } if !rate.is_finite() || *rate <= 0.0 => {
                let failure = Failure::Stalled;
                self.failed.push(FailedFlow { from, to, failure });
            }
            Outcome::Measured {
                rate,
                latency_ns_p99,
                retransmits,
            } => match observation.role {
                Role::Measured => {
                    self.add_rate(observation, *rate);
                    if let (Some(retransmits), false) =
                        (retransmits, observation.step == Step::Together)
                    {
                        self.losses.add(from, to, *retransmits);
                    }
                }
                Role::Congesting => {}
                Role::VictimAlone | Role::VictimCongested => self.victims.push(VictimTrial {
                    from,
                    to,
                    is_congested: observation.role == Role::VictimCongested,
                    rate: *rate,
                    latency_ns_p99: latency_ns_p99.map(Nanoseconds::as_u64),
                }),
            },
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "positions are below HOSTS_MAX, and 7 digits of a logarithm are enough"
    )]
    fn add_rate(&mut self, observation: &Observation, rate: f64) {
        let entry = Entry {
            from: observation.from.0 as u16,
            to: observation.to.0 as u16,
            round: observation.round,
            log_rate: rate.ln() as f32,
        };
        match observation.step {
            Step::Forward | Step::Reverse => self.apart.push(entry),
            Step::Together => self.together.push(entry),
        }
    }

    /// The results that hosts are judged by: each direction alone, if that was measured.
    pub(super) fn judged(&self) -> &[Entry] {
        if self.apart.is_empty() {
            &self.together
        } else {
            &self.apart
        }
    }

    /// Results of both directions at once, if each was measured alone too.
    pub(super) fn both_ways(&self) -> &[Entry] {
        if self.apart.is_empty() {
            &[]
        } else {
            &self.together
        }
    }

    /// Whether nothing was measured or failed.
    pub fn is_empty(&self) -> bool {
        self.apart.is_empty() && self.together.is_empty() && self.failed.is_empty()
    }

    /// How many directions of pairs were never tried.
    pub fn not_tried(&self) -> usize {
        self.not_tried.len()
    }

    /// Why a flow from or to a host was not tried.
    pub(super) fn cause_not_tried(&self, host: HostIndex) -> Option<&str> {
        let of = |pair: &(HostIndex, HostIndex)| pair.0 == host || pair.1 == host;
        let mut causes = self.not_tried.iter().filter(|(pair, _)| of(pair));
        causes.next().map(|(_, cause)| cause.as_str())
    }

    /// Pairs with one of these hosts that met, the lower host first.
    pub(super) fn met(&self, is_wanted: impl Fn(u16) -> bool) -> Vec<(HostIndex, HostIndex)> {
        let entries = self.apart.iter().chain(&self.together);
        let wanted = entries.filter(|entry| is_wanted(entry.from) || is_wanted(entry.to));
        let mut met: Vec<_> = wanted
            .map(|entry| {
                let (low, high) = (entry.from.min(entry.to), entry.from.max(entry.to));
                (HostIndex(low.into()), HostIndex(high.into()))
            })
            .collect();
        met.sort_unstable();
        met.dedup();
        met
    }
}
