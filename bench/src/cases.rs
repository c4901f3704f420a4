//! What is compared: the cases, and the order in which their trials run. Pure; the order depends on the
//! seed alone.

use linerate_stats::{Random, Seed};
use serde::{Deserialize, Serialize};

/// Which way the bytes go, seen from the namespace `near` where both commands are typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Direction {
    /// `near` sends.
    Forward,
    /// `far` sends.
    Reverse,
}

/// The CPUs that all senders and all receivers are held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pins {
    pub(crate) sender: u32,
    pub(crate) receiver: u32,
}

/// One case: what both programs are asked to do alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Case {
    pub(crate) flows: u32,
    pub(crate) direction: Direction,
    /// `None` leaves the choice to the scheduler.
    pub(crate) pins: Option<Pins>,
    /// `None` leaves the kernel's autotuning on.
    pub(crate) socket_buffer_bytes: Option<u64>,
}

impl Case {
    /// Its name: what `--only` looks into, and the first column of the table.
    pub(crate) fn name(&self) -> String {
        let flows = if self.flows == 1 { "flow" } else { "flows" };
        let direction = match self.direction {
            Direction::Forward => "forward",
            Direction::Reverse => "reverse",
        };
        let placement = if self.pins.is_some() {
            "pinned"
        } else {
            "free"
        };
        let buffers = if self.socket_buffer_bytes.is_some() {
            "fixed"
        } else {
            "auto"
        };
        format!("{} {flows} {direction} {placement} {buffers}", self.flows)
    }
}

/// Every case: one and four flows, both directions, free and (where there are two CPUs) pinned, with
/// explicit socket buffers and with the kernel's autotuning.
pub(crate) fn all(pins: Option<Pins>, socket_buffer_bytes: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    let placements: &[Option<Pins>] = if pins.is_some() {
        &[pins, None]
    } else {
        &[None]
    };
    for socket_buffer_bytes in [Some(socket_buffer_bytes), None] {
        for &pins in placements {
            for flows in [1, 4] {
                for direction in [Direction::Forward, Direction::Reverse] {
                    cases.push(Case {
                        flows,
                        direction,
                        pins,
                        socket_buffer_bytes,
                    });
                }
            }
        }
    }
    cases
}

/// The two that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Program {
    Linerate,
    Iperf3,
}

/// One pair of trials: which case, and which program goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) case: usize,
    pub(crate) first: Program,
}

/// `pairs` rounds. Each round holds every case once, in random order, and tosses a coin for who goes
/// first: what drifts with the machine then falls on both programs and on every case alike.
pub(crate) fn order(cases: usize, pairs: usize, seed: u64) -> Vec<Vec<Turn>> {
    let mut random = Random::new(Seed(seed));
    let mut round = || {
        let mut turns: Vec<Turn> = (0..cases)
            .map(|case| Turn {
                case,
                first: match random.below(2) {
                    0 => Program::Linerate,
                    _ => Program::Iperf3,
                },
            })
            .collect();
        random.shuffle(&mut turns);
        turns
    };
    (0..pairs).map(|_| round()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PINS: Pins = Pins {
        sender: 0,
        receiver: 1,
    };

    #[test]
    fn every_combination_is_a_case_and_has_a_name_of_its_own() {
        let cases = all(Some(PINS), 212_992);
        let mut names: Vec<String> = cases.iter().map(Case::name).collect();
        names.sort();
        names.dedup();
        assert_eq!((cases.len(), names.len()), (16, 16));
    }

    #[test]
    fn a_machine_of_one_cpu_has_no_pinned_case() {
        let cases = all(None, 212_992);
        assert_eq!(cases.len(), 8);
        assert!(cases.iter().all(|case| case.pins.is_none()));
    }

    #[test]
    fn every_round_holds_every_case_once() {
        for round in order(16, 9, 7) {
            let mut cases: Vec<usize> = round.iter().map(|turn| turn.case).collect();
            cases.sort_unstable();
            assert_eq!(cases, (0..16).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_order_depends_on_the_seed_alone() {
        assert_eq!(order(16, 9, 7), order(16, 9, 7));
        assert_ne!(order(16, 9, 7), order(16, 9, 8));
    }

    #[test]
    fn either_program_goes_first_about_as_often() {
        let rounds = order(16, 100, 1);
        let linerate = rounds
            .iter()
            .flatten()
            .filter(|turn| turn.first == Program::Linerate)
            .count();
        // 1600 tosses: four standard deviations are 80.
        assert!((720..=880).contains(&linerate), "{linerate}");
    }
}
