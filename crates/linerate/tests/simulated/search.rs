//! A search of settings on paths whose best is known.

use linerate::prove::{Budget, Options, Source};
use linerate_analysis::record::Record;
use linerate_model::plan::End;
use linerate_model::units::BitRate;

use crate::world::{Cap, Cost, Fault, Planned, World, put, shape};
use crate::{count, options, proved, tries};

const TSO: &str = "nic/near0/feature/tx-tcp-segmentation";
const GRO: &str = "nic/far0/feature/rx-gro";
const WMEM: &str = "sysctl/net.ipv4.tcp_wmem";
const RMEM: &str = "sysctl/net.ipv4.tcp_rmem";
const RPS: &str = "nic/far0/queue/rx-0/rps-cpus";

fn searching(seed: u64, trials: u32) -> Options {
    Options {
        source: Source::Search(Budget {
            trials,
            until: None,
        }),
        ..options(seed)
    }
}

fn small(value: &str) -> bool {
    value.ends_with(" 65536")
}

/// Limits in a row, and costs, some of which no rule knows: the best is 20 Gb/s times 1.15.
fn bad(seed: u64) -> World {
    let mut world = World::new(seed, 20, |near, far| {
        put(near, TSO, "off");
        put(near, WMEM, "4096 16384 65536");
        put(far, RMEM, "4096 65536 65536");
    });
    let cap = |end, key, mbit| Cap {
        end,
        key,
        holds: small,
        rate: BitRate::from_mbit_per_s(mbit),
    };
    world.caps = vec![cap(End::Local, WMEM, 3_000), cap(End::Remote, RMEM, 6_000)];
    let cost = |end, key, holds, factor| Cost {
        end,
        key,
        holds,
        factor,
    };
    world.costs = vec![
        cost(End::Local, TSO, |value| value == "off", 0.6),
        // The rules like it as it is, and this path does not.
        cost(End::Remote, RPS, |value| !value.is_empty(), 1.15),
        cost(End::Remote, GRO, |value| value == "off", 0.9),
    ];
    world.path.noise_sd = 0.01;
    world.path.reading_noise_sd = 0.02;
    world
}

#[test]
fn a_search_nearly_reaches_the_best_of_settings_whose_limits_stand_in_a_row() {
    let mut reached = 0;
    for seed in 0..10 {
        let mut world = bad(seed);
        let before = world.truth.clone();
        let (said, log) = proved(&mut world, searching(seed, 220));
        assert!(said.restored, "{seed}");
        assert_eq!(world.truth, before, "{seed}: undone at the end");
        let all = count(&log, |record| {
            matches!(
                record,
                Record::Before(_)
                    | Record::After(_)
                    | Record::Staged { .. }
                    | Record::Explored { .. }
            )
        });
        assert!(all <= 220 + 20, "{seed}: {all} trials");
        reached += i32::from(said.after.rate_bit_per_s >= 0.95 * 20e9 * 1.15);
    }
    assert!(reached >= 9, "{reached} of 10 reach 95 % of the best");
}

#[test]
fn what_a_search_keeps_was_tested_against_trials_without_it_and_what_it_looked_at_is_told() {
    let mut world = bad(1);
    let mut options = searching(1, 220);
    options.undo = false;
    let (said, _) = proved(&mut world, options);
    assert_eq!(world.value(End::Local, TSO), "on");
    assert!(!small(&world.value(End::Local, WMEM)));
    let kept: Vec<_> = said.remedies.iter().filter(|remedy| remedy.kept).collect();
    assert!(
        kept.iter()
            .all(|remedy| remedy.effect.as_ref().expect("weighed").low > 0.0)
    );
    assert!(tries(&said).iter().all(|(rule, _)| *rule == "given"));
    let search = said.search.expect("it searched");
    let factor = |end: &str| {
        let name = format!("{end} {TSO}");
        let mut factors = search.factors.iter();
        factors.find(|factor| factor.name == name)
    };
    let tso = factor("local").expect("it was varied");
    assert_eq!(tso.levels, ["off (current)", "on"]);
    assert!(tso.effect.is_some() && search.screening_trials > 8);
}

#[test]
fn of_what_does_not_help_no_more_is_kept_than_chance_alone_would_show() {
    let (mut tried, mut kept) = (0, 0);
    for seed in 0..50 {
        let mut world = World::new(seed, 20, |_, _| {});
        world.path.noise_sd = 0.01;
        let (said, _) = proved(&mut world, searching(seed, 120));
        assert!(said.restored);
        tried += tries(&said).len();
        kept += tries(&said).iter().filter(|(_, kept)| *kept).count();
    }
    // In one search of twenty at most.
    assert!(tried >= 15, "{tried}");
    assert!(kept <= 5, "{kept} of {tried}");
}

#[test]
fn a_shaper_of_somebody_else_is_no_factor() {
    let mut world = World::new(1, 20, |near, _| shape(near, 1_000));
    let mut options = searching(1, 100);
    options.owns_shapers = false;
    let (said, _) = proved(&mut world, options);
    let search = said.search.expect("it searched");
    assert!(
        !search
            .factors
            .iter()
            .any(|factor| factor.name.ends_with("near0/qdisc"))
    );
}

#[test]
fn a_search_that_is_interrupted_or_whose_peer_dies_leaves_nothing_changed() {
    for at in (0..400).step_by(19) {
        for fault in [Fault::Interrupt, Fault::PeerKilled] {
            let mut world = bad(3);
            let before = world.truth.clone();
            world.planned = Some(Planned { fault, at });
            let mut log = crate::Memory::default();
            let ended = crate::prove(&mut world, &mut log, searching(3, 120));
            if !world.struck {
                continue;
            }
            ended.expect_err("it was cut short");
            assert_eq!(world.truth[0], before[0], "{fault:?} at {at}");
            if fault == Fault::Interrupt {
                assert_eq!(world.truth[1], before[1], "{fault:?} at {at}");
            }
        }
    }
}
