//! Injected faults with known effects: what is kept, what is undone, and what is reported.

use linerate::prove::Source;
use linerate_analysis::record::Record;
use linerate_model::finding::Severity;
use linerate_model::plan::{Change, End};
use linerate_model::propose::{GIVEN, Proposal};
use linerate_model::prove::{EndChange, Guard};
use linerate_model::sample::Flag;
use linerate_model::setting::{self, SettingKey};
use linerate_model::units::BitRate;
use linerate_stats::{Random, Seed};

use crate::world::{Cap, Cost, World, put, shape};
use crate::{count, options, proved, tries};

const TSO: &str = "nic/near0/feature/tx-tcp-segmentation";
const WMEM: &str = "sysctl/net.ipv4.tcp_wmem";
const RPS: &str = "nic/far0/queue/rx-0/rps-cpus";
const CONTROL: &str = "sysctl/net.ipv4.tcp_congestion_control";
const QDISC: &str = "nic/near0/qdisc";

const OFFLOADS: &str = "tx-segmentation-or-csum-off";
const BUFFER: &str = "tcp-buffer-below-bdp";
const SHAPER: &str = "qdisc-shaper";
const CC: &str = "tcp-cc-qdisc";

fn cost(end: End, key: &'static str, holds: fn(&str) -> bool, factor: f64) -> Cost {
    Cost {
        end,
        key,
        holds,
        factor,
    }
}

fn off(value: &str) -> bool {
    value == "off"
}

fn small(value: &str) -> bool {
    value.ends_with(" 65536")
}

/// TSO off costs 40 %, a small send buffer 30 %, bbr gains 10 %, and everything has 1 % noise.
fn faulty(seed: u64) -> World {
    let mut world = World::new(seed, 25, |near, _| {
        put(near, TSO, "off");
        put(near, WMEM, "4096 16384 65536");
        put(near, CONTROL, "bbr");
    });
    world.costs = vec![
        cost(End::Local, TSO, off, 0.6),
        cost(End::Local, WMEM, small, 0.7),
        cost(End::Local, CONTROL, |value| value == "bbr", 1.1),
    ];
    world.path.noise_sd = 0.01;
    world.path.reading_noise_sd = 0.02;
    world
}

#[test]
fn what_has_a_true_effect_is_kept_and_what_harms_is_undone() {
    for seed in 0..20 {
        let mut world = faulty(seed);
        let (said, _) = proved(&mut world, options(seed));
        let tries = tries(&said);
        assert!(tries.contains(&(OFFLOADS, true)), "{seed}: {tries:?}");
        assert!(tries.contains(&(BUFFER, true)), "{seed}: {tries:?}");
        assert!(!tries.contains(&(CC, true)), "{seed}: {tries:?}");
        let slower = said.remedies.iter().find(|r| r.rule == CC).expect("tried");
        assert!(
            slower.effect.as_ref().expect("measured").high < 0.0,
            "{seed}"
        );
        assert_eq!(said.found, [BUFFER, OFFLOADS], "{seed}");
        let gain = said.after.rate_bit_per_s / said.before.rate_bit_per_s;
        assert!((gain * 0.6 * 0.7 - 1.0).abs() < 0.05, "{seed}: {gain}");
    }
}

/// Segmentation in the card makes it faster by two thirds and costs nearly four times the CPU time for each byte.
fn dear(seed: u64) -> World {
    let mut world = faulty(seed);
    world.dear = vec![cost(End::Local, TSO, |value| value == "on", 60.0)];
    world
}

#[test]
fn what_helps_but_costs_more_cpu_than_it_may_is_undone_unless_that_is_accepted() {
    for seed in 0..5 {
        let (said, _) = proved(&mut dear(seed), options(seed));
        let mut remedies = said.remedies.iter();
        let remedy = remedies.rfind(|remedy| remedy.rule == OFFLOADS);
        let remedy = remedy.expect("tried");
        assert!(remedy.effect.as_ref().expect("measured").low > 0.0);
        assert!(!remedy.kept, "{seed}");
        let cpu = remedy.guards.iter().find(|one| one.guard == Guard::Cpu);
        let cpu = cpu.expect("both ends told their CPU time");
        assert!(cpu.worse && cpu.effect.low > 1.0, "{cpu:?}");
        let note = remedy.note.as_deref().expect("why it was not kept");
        let says = "regression: CPU per byte 3";
        assert!(note.contains(says), "{note}");
        assert!(said.found.contains(&OFFLOADS.to_owned()), "it was found");
        assert!(tries(&said).contains(&(BUFFER, true)), "{seed}");

        let mut accepting = options(seed);
        accepting.accepts_worse = vec![Guard::Cpu];
        let (said, _) = proved(&mut dear(seed), accepting);
        assert!(tries(&said).contains(&(OFFLOADS, true)), "{seed}");
    }
}

#[test]
fn what_costs_more_cpu_per_byte_but_less_than_the_rate_gains_is_kept() {
    let mut world = faulty(0);
    world.dear = vec![cost(End::Local, TSO, |value| value == "on", 6.0)];
    let (said, _) = proved(&mut world, options(0));
    assert!(
        tries(&said).contains(&(OFFLOADS, true)),
        "{:?}",
        tries(&said)
    );
    let remedy = said.remedies.iter().find(|remedy| remedy.rule == OFFLOADS);
    let guards = &remedy.expect("tried").guards;
    let cpu = guards.iter().find(|one| one.guard == Guard::Cpu);
    let cpu = cpu.expect("both ends told their CPU time");
    assert!(!cpu.worse && cpu.effect.low > 0.1, "{cpu:?}");
}

#[test]
fn changes_that_somebody_gives_are_weighed_in_place_of_the_rules_remedies() {
    let given = |world: &World, end: End, key: &str, to: &str| {
        let setting: SettingKey = key.parse().expect("a key");
        let to = setting.parse_value(to).expect("a value");
        let from = setting::current(&world.truth[usize::from(end == End::Remote)], &setting);
        let from = from.value().expect("it is there").clone();
        let change = Change { setting, from, to };
        Proposal {
            rule: GIVEN.to_owned(),
            subjects: Vec::new(),
            severity: Severity::Note,
            class: change.setting.spec().class,
            changes: vec![EndChange { end, change }],
        }
    };
    let mut world = faulty(3);
    let mut options = options(3);
    options.source = Source::Given(vec![
        given(&world, End::Local, TSO, "on"),
        given(&world, End::Local, CONTROL, "cubic"),
        // It has that value already.
        given(&world, End::Remote, CONTROL, "cubic"),
        // It takes the link down.
        given(&world, End::Local, "nic/near0/mtu", "1400"),
    ]);
    let (said, _) = proved(&mut world, options);
    let told: Vec<(&str, bool)> = (said.remedies.iter())
        .filter(|remedy| !remedy.tried_again)
        .map(|remedy| (remedy.setting.as_str(), remedy.kept))
        .collect();
    assert_eq!(
        told,
        [(TSO, true), (CONTROL, false), ("nic/near0/mtu", false)]
    );
    assert_eq!(said.remedies[0].beside, [CONTROL]);
    assert!(!said.found.contains(&GIVEN.to_owned()), "it is no rule");
}

#[test]
fn with_undo_both_hosts_are_exactly_as_before() {
    for seed in 0..20 {
        let mut world = faulty(seed);
        let before = world.truth.clone();
        let (said, _) = proved(&mut world, options(seed));
        assert_eq!(world.truth, before, "{seed}");
        assert_eq!(world.open, [[], []], "{seed}");
        assert!(said.restored, "{seed}");
    }
}

#[test]
fn without_undo_exactly_what_was_kept_stays() {
    let mut world = faulty(7);
    let mut wanted = world.truth.clone();
    let mut options = options(7);
    options.undo = false;
    let (said, _) = proved(&mut world, options);
    for change in said
        .remedies
        .iter()
        .filter(|r| r.kept)
        .flat_map(|r| &r.changes)
    {
        let host = &mut wanted[usize::from(change.end == End::Remote)];
        assert!(setting::put(
            host,
            &change.change.setting,
            &change.change.to
        ));
    }
    assert_eq!(world.truth, wanted);
    assert_eq!(world.open, [[], []]);
    assert_eq!(world.value(End::Local, TSO), "on");
    assert_eq!(world.value(End::Local, CONTROL), "bbr");
    assert!(said.restored, "all else is as it was found");
}

/// A small buffer bounds the rate far below what TSO costs: alone, neither TSO's remedy nor anything
/// else would show before the buffer is fixed.
#[test]
fn a_fault_that_another_limit_hides_is_found_with_the_other_out_of_the_way() {
    for seed in 0..10 {
        let mut world = World::new(seed, 25, |near, _| {
            put(near, TSO, "off");
            put(near, WMEM, "4096 16384 65536");
        });
        world.costs = vec![cost(End::Local, TSO, off, 0.6)];
        world.caps = vec![Cap {
            end: End::Local,
            key: WMEM,
            holds: small,
            rate: BitRate::from_mbit_per_s(5_000),
        }];
        world.path.noise_sd = 0.01;
        let before = world.truth.clone();
        let (said, _) = proved(&mut world, options(seed));
        assert_eq!(tries(&said), [(OFFLOADS, true), (BUFFER, true)], "{seed}");
        assert_eq!(said.remedies[0].beside, [BUFFER]);
        assert_eq!(said.remedies[1].beside, [OFFLOADS]);
        assert!(said.remedies.iter().all(|r| r.without_bit_per_s.len() == 3));
        assert_eq!(world.truth, before, "{seed}");
    }
}

#[test]
fn a_shaper_that_hides_everything_is_asked_about_first() {
    let mut world = World::new(3, 25, |near, _| {
        shape(near, 4_000);
        put(near, TSO, "off");
    });
    world.costs = vec![cost(End::Local, TSO, off, 0.6)];
    world.caps = vec![Cap {
        end: End::Local,
        key: QDISC,
        holds: |value| value.starts_with("tbf"),
        rate: BitRate::from_mbit_per_s(3_825),
    }];
    world.path.noise_sd = 0.01;
    let before = world.truth.clone();
    let (said, _) = proved(&mut world, options(3));
    assert_eq!(tries(&said), [(SHAPER, true), (OFFLOADS, true)]);
    assert_eq!(said.limit.what, "a shaper");
    let after = said.limit_after.expect("it was measured");
    assert_ne!(after.what, "a shaper");
    assert_eq!(world.truth, before);
}

#[test]
fn a_shaper_of_somebody_else_is_named_and_left_alone() {
    let mut world = World::new(3, 25, |near, _| shape(near, 4_000));
    world.caps = vec![Cap {
        end: End::Local,
        key: QDISC,
        holds: |value| value.starts_with("tbf"),
        rate: BitRate::from_mbit_per_s(3_825),
    }];
    let mut options = options(3);
    options.owns_shapers = false;
    let (said, _) = proved(&mut world, options);
    assert_eq!(tries(&said), []);
    assert_eq!(said.limit.what, "a shaper");
    assert_eq!(said.found, [SHAPER]);
}

#[test]
fn a_healthy_pair_is_left_alone() {
    let mut world = World::new(1, 25, |_, _| {});
    world.path.noise_sd = 0.01;
    let (said, log) = proved(&mut world, options(1));
    assert_eq!(said.remedies, []);
    assert!(said.restored);
    let is_trial = |record: &Record| matches!(record, Record::Before(_) | Record::After(_));
    assert_eq!(count(&log, is_trial), 14);
}

#[test]
fn what_the_kernel_refuses_is_noted_and_the_others_are_tried() {
    use linerate_model::exit::Code;

    use crate::world::{Fault, Planned};
    for code in [Code::NotSupported, Code::PermissionMissing] {
        let mut world = faulty(2);
        world.planned = Some(Planned {
            fault: Fault::Refused(code),
            at: 0,
        });
        let before = world.truth.clone();
        let (said, _) = proved(&mut world, options(2));
        let first = &said.remedies[0];
        assert_eq!((first.rule.as_str(), first.kept), (OFFLOADS, false));
        let note = first.note.as_deref().expect("a reason");
        assert!(note.contains("retried"), "{note}");
        assert!(tries(&said).contains(&(BUFFER, true)));
        assert_eq!(world.truth, before);
    }
}

#[test]
fn a_trial_that_cannot_be_trusted_is_made_again_once_and_both_are_kept() {
    let mut world = faulty(4);
    // Trials 0 to 6 are those before any change; 8 stands for 7, and 11 for 10.
    world.flagged = |trial| {
        if trial == 7 || trial == 10 {
            vec![Flag::Steal]
        } else {
            Vec::new()
        }
    };
    let (said, log) = proved(&mut world, options(4));
    let notes = said.remedies.iter().filter_map(|one| one.note.as_deref());
    let said_so = notes.filter(|note| note.contains("repeated (steal)"));
    assert!(said_so.count() > 0, "{said:?}");
    assert!(
        said.remedies
            .iter()
            .all(|one| one.without_bit_per_s.len() % 3 == 0)
    );
    // Three fixes in the first stage.
    let staged = |record: &Record| matches!(record, Record::Staged { stage: 0, .. });
    assert_eq!(count(&log, staged), 3 * 3 + 7 + 2);
}

#[test]
fn on_a_machine_that_is_never_quiet_the_session_ends_all_the_same() {
    let mut world = faulty(5);
    world.flagged = |_| vec![Flag::Steal];
    let (said, log) = proved(&mut world, options(5));
    let staged = |record: &Record| matches!(record, Record::Staged { stage: 0, .. });
    assert_eq!(count(&log, staged), 16 + 16 / 4);
    let mut notes = said.remedies.iter().filter_map(|one| one.note.as_deref());
    assert!(notes.any(|note| note.contains("used although still flagged")));
    assert!(tries(&said).contains(&(OFFLOADS, true)));
}

#[test]
fn a_remedy_of_both_ends_is_made_and_taken_back_on_both() {
    let mut world = World::new(6, 25, |near, far| {
        put(near, WMEM, "4096 16384 65536");
        put(far, "sysctl/net.ipv4.tcp_rmem", "4096 65536 65536");
    });
    world.costs = vec![cost(End::Remote, "sysctl/net.ipv4.tcp_rmem", small, 0.5)];
    world.path.noise_sd = 0.01;
    let before = world.truth.clone();
    let (said, _) = proved(&mut world, options(6));
    assert_eq!(tries(&said), [(BUFFER, true)]);
    let ends: Vec<End> = said.remedies[0].changes.iter().map(|c| c.end).collect();
    assert_eq!(ends, [End::Local, End::Remote]);
    assert_eq!(world.truth, before);
}

#[test]
fn a_remedy_without_effect_says_what_would_have_been_seen() {
    let mut world = World::new(8, 25, |_, far| put(far, RPS, "1"));
    world.path.noise_sd = 0.02;
    let (said, _) = proved(&mut world, options(8));
    assert_eq!(tries(&said), [("rps-wrong", false)]);
    let effect = said.remedies[0].effect.as_ref().expect("measured");
    assert!(effect.low < 0.0 && effect.high > 0.0, "{effect:?}");
    assert!(effect.smallest_detectable > 0.0);
}

/// Seen on a loaded machine: one connection that stalled took the effect of the whole experiment away.
#[test]
fn a_trial_that_stalls_counts_and_does_not_void_the_experiment() {
    let mut world = faulty(4);
    world.stalls = |_, trial| trial == 7;
    let (said, _) = proved(&mut world, options(4));
    for rule in [OFFLOADS, BUFFER] {
        assert!(tries(&said).contains(&(rule, true)), "{said:?}");
    }
    let rates = said.remedies.iter().flat_map(|one| {
        let without = one.without_bit_per_s.iter();
        without.chain(&one.with_bit_per_s)
    });
    assert!(rates.filter(|rate| **rate == 0.0).count() > 0);
}

/// A repetition of its stalls would make such a fix look good.
#[test]
fn a_remedy_that_helps_and_stalls_in_a_trial_of_three_is_hardly_ever_kept() {
    let mut kept = 0;
    for seed in 0..40 {
        let mut world = World::new(seed, 25, |near, _| put(near, TSO, "off"));
        world.costs = vec![cost(End::Local, TSO, off, 0.8)];
        world.path.noise_sd = 0.02;
        world.stalls = |world, trial| {
            let drawn = Random::new(Seed(trial)).unit();
            world.value(End::Local, TSO) == "on" && drawn < 0.3
        };
        let (said, _) = proved(&mut world, options(seed));
        kept += said.remedies.iter().filter(|remedy| remedy.kept).count();
    }
    assert!(kept <= 8, "{kept} of 40");
}

/// While the other one is in place, each of the two looks useless.
#[test]
fn of_two_remedies_that_do_the_same_one_is_kept() {
    let mut kept = 0;
    for seed in 0..10 {
        let mut world = World::new(seed, 25, |near, far| {
            put(near, TSO, "off");
            put(far, RPS, "1");
        });
        world.joint = |world| {
            let is_faulty =
                off(&world.value(End::Local, TSO)) && world.value(End::Remote, RPS) == "1";
            if is_faulty { 0.6 } else { 1.0 }
        };
        world.path.noise_sd = 0.01;
        let (said, _) = proved(&mut world, options(seed));
        let of_run = tries(&said).iter().filter(|(_, kept)| *kept).count();
        assert!(of_run <= 1, "{said:?}");
        kept += of_run;
    }
    assert!(kept >= 9, "{kept} of 10");
}

#[test]
fn a_remedy_with_which_nothing_moves_is_undone() {
    let mut world = faulty(4);
    world
        .costs
        .push(cost(End::Local, TSO, |value| value == "on", 0.0));
    let before = world.truth.clone();
    let (said, _) = proved(&mut world, options(4));
    let first = &said.remedies[0];
    assert!(!first.kept && first.with_bit_per_s.iter().all(|rate| *rate == 0.0));
    assert!(
        first
            .effect
            .as_ref()
            .is_some_and(|effect| effect.high < 0.0)
    );
    assert!(tries(&said).contains(&(BUFFER, true)));
    assert_eq!(world.truth, before);
}

/// What a rule proposes next starts from what was kept before, not from what was found.
#[test]
fn a_rule_whose_remedy_was_kept_may_ask_for_more_from_there() {
    let mut world = World::new(10, 600, |near, _| put(near, WMEM, "4096 16384 65536"));
    let cap = |holds, gbit: u64| Cap {
        end: End::Local,
        key: WMEM,
        holds,
        rate: BitRate::from_mbit_per_s(gbit * 1000),
    };
    world.caps = vec![cap(small, 5), cap(|value| value.ends_with(" 4194304"), 400)];
    world.path.noise_sd = 0.01;
    let before = world.truth.clone();
    let (said, _) = proved(&mut world, options(10));
    let steps: Vec<(&str, &str, bool)> = said
        .remedies
        .iter()
        .map(|r| (r.from.as_str(), r.to.as_str(), r.kept))
        .collect();
    assert_eq!(
        steps[..2],
        [
            ("4096 16384 65536", "4096 16384 4194304", true),
            ("4096 16384 4194304", "4096 16384 8388608", true),
        ]
    );
    assert_eq!(world.truth, before);
}
