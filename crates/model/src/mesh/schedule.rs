//! The rounds of a mesh. Rounds of all pairs are computed when they are asked for: 4,096 hosts have 25 million flows.

use serde::{Deserialize, Serialize};

use super::matching::{self, Pair};
use super::{HostIndex, MeshHost, Pattern, PatternError, Step};
use crate::units::Nanoseconds;

/// Puts hosts in a random order, which a seed determines.
pub type Shuffle<'a> = &'a mut dyn FnMut(&mut [HostIndex]);

/// Flows that run at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// Its number, from 0.
    pub number: u32,
    /// The direction of its flows.
    pub step: Step,
    /// The flows.
    pub flows: Vec<Flow>,
}

/// Data between two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Flow {
    /// The sender; of request workloads, the requesting host.
    pub from: HostIndex,
    /// The receiver.
    pub to: HostIndex,
    /// Whether the same amount of data flows back at the same time.
    pub is_bidirectional: bool,
    /// What it is for.
    pub role: Role,
}

/// What a flow is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It measures its two hosts.
    Measured,
    /// It congests the receiver of an incast.
    Congesting,
    /// The victim of an incast, without the incast.
    VictimAlone,
    /// The victim during the incast.
    VictimCongested,
}

/// What a schedule has besides its pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleOptions {
    /// The directions, one round each.
    pub steps: Vec<Step>,
    /// How often everything is done, each time in another order.
    pub repeats: u32,
}

impl Default for ScheduleOptions {
    fn default() -> Self {
        Self {
            steps: Step::ALL.to_vec(),
            repeats: 1,
        }
    }
}

/// The rounds of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    steps: Vec<Step>,
    repeats: Vec<Repeat>,
}

/// The pairings of one repetition.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Repeat {
    /// The first `pairings` rounds of the circle method.
    Circle {
        order: Vec<HostIndex>,
        pairings: usize,
    },
    /// Those listed, in each direction.
    Listed(Vec<Vec<Pair>>),
    /// Those listed, which have their own roles and only one direction.
    Flows(Vec<Vec<Flow>>),
}

impl Repeat {
    fn pairings(&self) -> usize {
        match self {
            Self::Circle { pairings, .. } => *pairings,
            Self::Listed(pairings) => pairings.len(),
            Self::Flows(rounds) => rounds.len(),
        }
    }

    fn rounds(&self, steps: &[Step]) -> usize {
        match self {
            Self::Circle { .. } | Self::Listed(_) => self.pairings() * steps.len(),
            Self::Flows(rounds) => rounds.len(),
        }
    }

    fn round(&self, index: usize, steps: &[Step]) -> (Step, Vec<Flow>) {
        let (pairing, step) = (index / steps.len(), steps[index % steps.len()]);
        match self {
            Self::Circle { order, .. } => (step, flows(&matching::circle(order, pairing), step)),
            Self::Listed(pairings) => (step, flows(&pairings[pairing], step)),
            Self::Flows(rounds) => (Step::Forward, rounds[index].clone()),
        }
    }
}

fn flows(pairs: &[Pair], step: Step) -> Vec<Flow> {
    let flow = |(first, second): &Pair| {
        let (from, to) = match step {
            Step::Forward | Step::Together => (*first, *second),
            Step::Reverse => (*second, *first),
        };
        Flow {
            from,
            to,
            is_bidirectional: step == Step::Together,
            role: Role::Measured,
        }
    };
    pairs.iter().map(flow).collect()
}

/// The rounds of a pattern for these hosts, in the random order that `shuffle` gives.
pub fn schedule(
    pattern: &Pattern,
    hosts: &[MeshHost],
    options: &ScheduleOptions,
    shuffle: Shuffle<'_>,
) -> Result<Schedule, PatternError> {
    if options.steps.is_empty() || options.repeats == 0 {
        return Err(PatternError::Nothing);
    }
    let repeats: Result<Vec<Repeat>, PatternError> = (0..options.repeats)
        .map(|_| repeat(pattern, hosts, shuffle))
        .collect();
    Ok(Schedule {
        steps: options.steps.clone(),
        repeats: repeats?,
    })
}

fn repeat(
    pattern: &Pattern,
    hosts: &[MeshHost],
    shuffle: Shuffle<'_>,
) -> Result<Repeat, PatternError> {
    let needed = 2;
    if hosts.len() < needed {
        return Err(PatternError::TooFew {
            pattern: pattern.to_string(),
            needed,
            there: hosts.len(),
        });
    }
    let mut order: Vec<HostIndex> = (0..hosts.len()).map(HostIndex::at).collect();
    let all = matching::circle_len(order.len());
    Ok(match pattern {
        Pattern::Pairs => {
            shuffle(&mut order);
            Repeat::Circle {
                order,
                pairings: all,
            }
        }
        Pattern::Quick => {
            shuffle(&mut order);
            let pairings = matching::quick_len(order.len());
            Repeat::Circle { order, pairings }
        }
        Pattern::Ring => Repeat::Listed(vec![matching::ring(&order)]),
        Pattern::ToRoot { root } => Repeat::Listed(matching::to_root(&order, *root, shuffle)?),
        Pattern::Bisection => {
            let halves = matching::halves(hosts, shuffle);
            Repeat::Listed(vec![matching::across(&halves)])
        }
        Pattern::Neighbors { kind } => {
            Repeat::Listed(matching::within_groups(hosts, *kind, shuffle)?)
        }
        Pattern::Incast(incast) => Repeat::Flows(matching::incast(order, incast, shuffle)?),
        Pattern::Suspects(retest) => Repeat::Listed(matching::retest(order, retest, shuffle)?),
    })
}

impl Schedule {
    /// How many rounds there are.
    pub fn len(&self) -> usize {
        let of = |repeat: &Repeat| repeat.rounds(&self.steps);
        self.repeats.iter().map(of).sum()
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The round of this number.
    pub fn round(&self, number: usize) -> Option<Round> {
        let mut index = number;
        for repeat in &self.repeats {
            let rounds = repeat.rounds(&self.steps);
            if index < rounds {
                let (step, flows) = repeat.round(index, &self.steps);
                return Some(Round {
                    number: u32::try_from(number).ok()?,
                    step,
                    flows,
                });
            }
            index -= rounds;
        }
        None
    }

    /// All rounds in order.
    pub fn rounds(&self) -> impl Iterator<Item = Round> + '_ {
        (0..self.len()).filter_map(|number| self.round(number))
    }

    /// How long all rounds take: `trial` is the time of a trial, `between` what each round takes besides.
    pub fn duration(&self, trial: Nanoseconds, between: Nanoseconds) -> Nanoseconds {
        let each = trial.as_u64().saturating_add(between.as_u64());
        Nanoseconds::new(each.saturating_mul(self.len() as u64))
    }
}
