//! Meshes with known truth: how often a fault is named, and how often none is.

use linerate_model::mesh::{HostIndex, Pattern};
use linerate_stats::Seed;

use super::simulated::{Fault, Noise, SimulatedMesh, SimulatedRun, members};
use super::*;

const RUNS: u64 = 40;
/// Of 40 runs, as the design asks.
const RIGHT_MIN: u64 = 38;
/// A usual scatter of rates between hosts.
const SCALE: f64 = 0.03;

fn switched(hosts: usize, noise: Noise, fault: Fault) -> SimulatedMesh {
    let mut mesh = SimulatedMesh::clean(hosts, noise, SCALE);
    for (position, host) in mesh.hosts.iter_mut().enumerate() {
        host.switch = Some(format!("leaf{}", position / 4));
    }
    mesh.faults.push(fault);
    mesh
}

/// How many runs name exactly what was planted, and what each of the others names.
#[derive(Debug)]
#[expect(dead_code, reason = "shown when too few are right")]
struct Count {
    what: String,
    right: u64,
    wrong: Vec<String>,
}

fn right(
    what: &str,
    mesh: impl Fn(u64) -> SimulatedMesh,
    is_right: impl Fn(u64, &SimulatedRun) -> bool,
) -> Count {
    let mut count = Count {
        what: what.to_owned(),
        right: 0,
        wrong: Vec::new(),
    };
    for seed in 0..RUNS {
        let run = mesh(seed).run(&Pattern::Pairs, Seed(seed));
        if is_right(seed, &run) {
            count.right += 1;
        } else {
            let Verdict { named, cleared, .. } = run.verdict;
            let wrong = format!("seed {seed}: named {named:?}, cleared {cleared:?}");
            count.wrong.push(wrong);
        }
    }
    count
}

/// Panics unless nearly all runs of each were right.
fn assert_right(counts: &[Count]) {
    let low: Vec<&Count> = counts
        .iter()
        .filter(|count| count.right < RIGHT_MIN)
        .collect();
    assert!(
        low.is_empty(),
        "fewer than {RIGHT_MIN} of {RUNS} right: {low:#?}"
    );
}

fn parts(run: &SimulatedRun) -> Vec<NamedPart> {
    let mut parts: Vec<NamedPart> = run
        .verdict
        .named
        .iter()
        .map(|one| one.part.clone())
        .collect();
    parts.sort();
    parts
}

fn host(seed: u64) -> HostIndex {
    HostIndex(u32::try_from(seed % 8).expect("below 8"))
}

#[test]
fn at_most_5_of_100_meshes_without_a_fault_name_anything() {
    for (hosts, pattern) in [
        (4, Pattern::Pairs),
        (8, Pattern::Pairs),
        (40, Pattern::Quick),
    ] {
        for noise in Noise::ALL {
            let mesh = SimulatedMesh::clean(hosts, noise, SCALE);
            let named = (0..100).filter(|seed| {
                let run = mesh.run(&pattern, Seed(1000 + seed));
                !run.verdict.named.is_empty()
            });
            let named = named.count();
            assert!(
                named <= 5,
                "{hosts} hosts, {noise:?}: {named} of 100 name something"
            );
        }
    }
}

#[test]
fn a_host_that_sends_or_receives_15_percent_less_is_named_with_its_side() {
    let mut counts = Vec::new();
    for noise in Noise::ALL {
        for side in Side::ALL {
            let fault = |seed| match side {
                Side::Send => Fault::Send(host(seed), 0.85),
                Side::Receive => Fault::Receive(host(seed), 0.85),
            };
            counts.push(right(
                &format!("{side:?}, {noise:?}"),
                |seed| switched(8, noise, fault(seed)),
                |seed, run| parts(run) == [NamedPart::Host(host(seed), side)],
            ));
        }
    }
    assert_right(&counts);
}

#[test]
fn one_slow_direction_of_a_pair_is_named_and_not_its_hosts() {
    let mut counts = Vec::new();
    for noise in [Noise::Normal, Noise::Autocorrelated, Noise::Rounds] {
        let pair = |seed| (host(seed), host(seed + 3));
        counts.push(right(
            &format!("direction, {noise:?}"),
            |seed| switched(8, noise, Fault::Direction(pair(seed).0, pair(seed).1, 0.85)),
            |seed, run| parts(run) == [NamedPart::Direction(pair(seed).0, pair(seed).1)],
        ));
    }
    assert_right(&counts);
}

#[test]
fn loss_at_a_host_is_named_as_that_host() {
    let mut counts = Vec::new();
    for noise in Noise::ALL {
        counts.push(right(
            &format!("loss, {noise:?}"),
            |seed| switched(8, noise, Fault::Loss(host(seed))),
            |seed, run| {
                let parts = parts(run);
                let is_own =
                    |part: &NamedPart| matches!(part, NamedPart::Host(of, _) if *of == host(seed));
                !parts.is_empty() && parts.iter().all(is_own)
            },
        ));
    }
    assert_right(&counts);
}

#[test]
fn loss_that_does_not_lower_the_rate_is_named_with_its_host_and_share() {
    let mut counts = Vec::new();
    for noise in Noise::ALL {
        counts.push(right(
            &format!("retransmits, {noise:?}"),
            |seed| switched(8, noise, Fault::Retransmits(host(seed), 0.005)),
            |seed, run| {
                let is_own =
                    |part: &NamedPart| matches!(part, NamedPart::Loss(of, _) if *of == host(seed));
                let share = |one: &Confirmed| {
                    one.loss
                        .is_some_and(|loss| (0.002..0.01).contains(&loss.share))
                };
                !parts(run).is_empty()
                    && parts(run).iter().all(is_own)
                    && run.verdict.named.iter().all(share)
            },
        ));
    }
    assert_right(&counts);
}

#[test]
fn a_black_hole_of_a_pair_is_named_as_a_failure_of_that_pair() {
    let mut counts = Vec::new();
    let pair = |seed| (host(seed), host(seed + 5));
    counts.push(right(
        "black hole",
        |seed| {
            switched(
                8,
                Noise::Normal,
                Fault::BlackHole(pair(seed).0, pair(seed).1),
            )
        },
        |seed, run| {
            let named = &run.verdict.named;
            parts(run) == [NamedPart::Direction(pair(seed).0, pair(seed).1)]
                && named[0].effect.is_none()
                && named[0].failure.is_some()
        },
    ));
    assert_right(&counts);
}

#[test]
fn a_slow_switch_is_named_and_not_its_hosts() {
    let mut counts = Vec::new();
    for (what, hosts, fault) in [
        ("group of 16", 16, Fault::Group(members(4..8), 0.85)),
        ("group of 8", 8, Fault::Group(members(4..8), 0.85)),
        ("uplink of 16", 16, Fault::Uplink(members(4..8), 0.85)),
    ] {
        counts.push(right(
            what,
            |_| switched(hosts, Noise::Normal, fault.clone()),
            |_, run| {
                let parts = parts(run);
                let is_group = |part: &NamedPart| matches!(part, NamedPart::Group(group, ..) if group.name == "leaf1");
                !parts.is_empty() && parts.iter().all(is_group)
            },
        ));
    }
    assert_right(&counts);
}

#[test]
fn a_host_that_is_killed_costs_no_other_host_its_name() {
    let mut counts = Vec::new();
    for noise in Noise::ALL {
        counts.push(right(
            &format!("killed, {noise:?}"),
            |seed| switched(8, noise, Fault::Killed(host(seed), 6)),
            |_, run| run.verdict.named.is_empty(),
        ));
    }
    assert_right(&counts);
}
