//! Made-up paths whose shared bound is known.

use std::collections::BTreeMap;

use linerate_model::build;
use linerate_model::host::NicKind;
use linerate_stats::Seed;

use super::super::Round;
use super::super::load::CpuLoad;
use super::*;

const GBIT: f64 = 1e9;

/// Figures of NICs that move `alone` each and `together` each at the same time.
fn figures(alone: &[f64], together: &[f64]) -> Figures {
    let noisy = |rates: &[f64], round: u32| -> Vec<f64> {
        let noise = 1.0 + 0.001 * f64::from(round % 2);
        rates.iter().map(|rate| rate * GBIT * noise).collect()
    };
    let rounds: Vec<Round> = (0..5)
        .map(|round| Round {
            alone: noisy(alone, round),
            together: noisy(together, round + 1),
        })
        .collect();
    Figures::of(&rounds, Seed(1)).expect("whole rounds")
}

/// A load with this busy share of all CPUs.
fn busy(share: f64) -> Load {
    let cpus = CpuLoad {
        busy: Some(share),
        others: Some(0.1),
        serving: BTreeMap::new(),
    };
    Load {
        local: cpus.clone(),
        remote: cpus,
        shared_kernel: false,
        lost: Some(0.0),
        dropped: Some(0),
    }
}

fn name(text: &str) -> NicName {
    text.parse().expect("a name")
}

fn nics(pairs: &[(&str, &str)]) -> Vec<(NicName, NicName)> {
    let pair = |(local, remote): &(&str, &str)| (name(local), name(remote));
    pairs.iter().map(pair).collect()
}

/// A host with veths of these names.
fn veths(names: &[&str]) -> Host {
    let all = names.iter();
    all.fold(build::host(), |host, name| {
        host.nic(name, build::NicBuilder::veth)
    })
    .build()
}

/// What is found for two paths without anything in common, changed by `change`.
fn found(
    local: &Host,
    remote: &Host,
    pairs: &[(&str, &str)],
    (alone, together): (&Load, &Load),
    rates: (&[f64], &[f64]),
) -> Option<SharedBound> {
    let figures = figures(rates.0, rates.1);
    shared_bound(&Paths {
        local,
        remote,
        nics: &nics(pairs),
        diverted: &[],
        direction: Direction::Forward,
        figures: &figures,
        alone: &[alone.clone(), alone.clone()],
        together: &[together.clone(), together.clone()],
    })
}

const APART: [(&str, &str); 2] = [("a", "c"), ("b", "d")];
const HALF: (&[f64], &[f64]) = (&[10.0, 10.0], &[5.0, 5.0]);

#[test]
fn nics_that_move_as_much_together_share_no_bound() {
    let (near, far) = (veths(&["a", "b"]), veths(&["c", "d"]));
    let idle = busy(0.2);
    let rates: (&[f64], &[f64]) = (&[10.0, 10.0], &[10.0, 10.0]);
    assert_eq!(found(&near, &far, &APART, (&idle, &idle), rates), None);
}

#[test]
fn a_bound_without_evidence_is_not_determined_and_lists_what_was_checked() {
    let (near, far) = (veths(&["a", "b"]), veths(&["c", "d"]));
    let idle = busy(0.2);
    let bound = found(&near, &far, &APART, (&idle, &idle), HALF).expect("an interaction");
    assert_eq!((bound.what, bound.end), (SharedKind::NotDetermined, None));
    let kinds: BTreeSet<String> = bound
        .checked
        .iter()
        .map(|check| format!("{:?}", check.what))
        .collect();
    assert_eq!(kinds.len(), 5, "{kinds:?}");
}

#[test]
fn busy_cpus_are_named() {
    let (near, far) = (veths(&["a", "b"]), veths(&["c", "d"]));
    let bound = found(&near, &far, &APART, (&busy(0.5), &busy(0.99)), HALF);
    let bound = bound.expect("an interaction");
    assert_eq!((bound.what, bound.end), (SharedKind::Cpu, Some(End::Local)));
    assert!(bound.says.contains("99.0 %"), "{}", bound.says);
}

#[test]
fn cpus_that_other_programs_keep_busy_are_not_named() {
    let (near, far) = (veths(&["a", "b"]), veths(&["c", "d"]));
    let mut load = busy(0.99);
    load.local.others = Some(0.6);
    load.remote.others = Some(0.6);
    let bound = found(&near, &far, &APART, (&busy(0.5), &load), HALF).expect("an interaction");
    assert_eq!(bound.what, SharedKind::NotDetermined);
}

#[test]
fn one_busy_cpu_is_named_only_if_it_serves_several_nics() {
    let (near, far) = (veths(&["a", "b"]), veths(&["c", "d"]));
    let serving = |nics: &[usize]| {
        let mut load = busy(0.3);
        let nics = nics.iter().copied().collect();
        load.remote.serving.insert(CpuId(7), (0.97, nics));
        load
    };
    let of = |nics: &[usize]| {
        let load = serving(nics);
        let bound = found(&near, &far, &APART, (&busy(0.2), &load), HALF);
        bound.expect("an interaction")
    };
    let both = of(&[0, 1]);
    assert_eq!((both.what, both.end), (SharedKind::Cpu, Some(End::Remote)));
    assert!(both.says.contains("CPU 7"), "{}", both.says);
    assert_eq!(of(&[1]).what, SharedKind::NotDetermined);
}

/// A host with two functions of one card on this PCIe link.
fn card(link: (u32, u32), functions: [u8; 2]) -> Host {
    let nic = |function: u8| {
        let mut pcie = build::pcie_link(link, link);
        for hop in &mut pcie.links {
            if hop.address.bus != 0x16 {
                hop.address.function = function;
            }
        }
        pcie
    };
    build::host()
        .nic("a", |one| one.gbit(100).pcie(nic(functions[0])))
        .nic("b", |one| one.gbit(100).pcie(nic(functions[1])))
        .build()
}

#[test]
fn the_pcie_link_of_a_card_with_two_ports_is_named_when_both_reach_it() {
    // 8 GT/s x8: 63.0 Gb/s.
    let near = card((8_000, 8), [0, 1]);
    let far = veths(&["c", "d"]);
    let idle = busy(0.2);
    let rates: (&[f64], &[f64]) = (&[55.0, 55.0], &[29.0, 29.0]);
    let bound = found(&near, &far, &APART, (&idle, &idle), rates).expect("an interaction");
    assert_eq!(
        (bound.what, bound.end),
        (SharedKind::Pcie, Some(End::Local))
    );
    assert!(bound.says.contains("63.0"), "{}", bound.says);
    let below: (&[f64], &[f64]) = (&[25.0, 25.0], &[15.0, 15.0]);
    let bound = found(&near, &far, &APART, (&idle, &idle), below).expect("an interaction");
    assert_eq!(bound.what, SharedKind::NotDetermined);
    let check = bound
        .checked
        .iter()
        .find(|check| check.what == SharedKind::Pcie);
    assert_eq!(check.map(|check| check.answer), Some(Answer::NotReached));
}

#[test]
fn the_shaper_of_a_common_parent_is_named() {
    let child = |nic: build::NicBuilder| {
        nic.veth().with(|nic| {
            nic.kind = NicKind::Macvlan;
            nic.lower = Known::Value(vec![name("p")]);
        })
    };
    let near = build::host()
        .nic("p", |nic| nic.veth().qdisc(build::tbf(10_000)))
        .nic("a", child)
        .nic("b", child)
        .build();
    let far = veths(&["c", "d"]);
    let idle = busy(0.2);
    let rates: (&[f64], &[f64]) = (&[9.5, 9.5], &[4.8, 4.7]);
    let bound = found(&near, &far, &APART, (&idle, &idle), rates).expect("an interaction");
    assert_eq!(
        (bound.what, bound.end),
        (SharedKind::Interface, Some(End::Local))
    );
    assert!(
        bound.says.contains("p, which the paths share"),
        "{}",
        bound.says
    );
}

#[test]
fn the_peers_only_interface_is_named_if_all_move_no_more_than_one() {
    let (near, far) = (veths(&["a", "b"]), veths(&["c"]));
    let idle = busy(0.2);
    let same = [("a", "c"), ("b", "c")];
    let bound = found(&near, &far, &same, (&idle, &idle), HALF).expect("an interaction");
    assert_eq!(
        (bound.what, bound.end),
        (SharedKind::Interface, Some(End::Remote))
    );
    let more: (&[f64], &[f64]) = (&[10.0, 10.0], &[7.0, 7.0]);
    let bound = found(&near, &far, &same, (&idle, &idle), more).expect("an interaction");
    assert_eq!(bound.what, SharedKind::NotDetermined);
}

#[test]
fn packets_that_no_host_dropped_name_the_network() {
    let (near, far) = (veths(&["a", "b"]), veths(&["c", "d"]));
    let losing = |dropped| Load {
        lost: Some(0.01),
        dropped,
        ..busy(0.2)
    };
    let of = |alone: &Load, together: &Load| {
        let bound = found(&near, &far, &APART, (alone, together), HALF);
        bound.expect("an interaction").what
    };
    assert_eq!(of(&busy(0.2), &losing(Some(0))), SharedKind::Network);
    assert_eq!(
        of(&losing(Some(0)), &losing(Some(0))),
        SharedKind::NotDetermined
    );
    assert_eq!(
        of(&busy(0.2), &losing(Some(900))),
        SharedKind::NotDetermined
    );
    assert_eq!(of(&busy(0.2), &losing(None)), SharedKind::NotDetermined);
}

#[test]
fn load_that_is_not_known_is_no_idle_cpu() {
    let (near, far) = (veths(&["a", "b"]), veths(&["c", "d"]));
    let unknown = Load::default();
    let bound = found(&near, &far, &APART, (&unknown, &unknown), HALF).expect("an interaction");
    for what in [SharedKind::Cpu, SharedKind::Network] {
        let mut checks = bound.checked.iter().filter(|check| check.what == what);
        assert!(
            checks.all(|check| check.answer == Answer::Unknown),
            "{what:?}"
        );
    }
}

#[test]
fn an_interface_is_not_named_where_the_payload_went_over_others() {
    let (near, far) = (veths(&["a", "b"]), veths(&["c"]));
    let figures = figures(HALF.0, HALF.1);
    let of = |diverted: &[End]| {
        let bound = shared_bound(&Paths {
            local: &near,
            remote: &far,
            nics: &nics(&[("a", "c"), ("b", "c")]),
            diverted,
            direction: Direction::Forward,
            figures: &figures,
            alone: &[busy(0.2)],
            together: &[busy(0.2)],
        });
        bound.expect("an interaction").what
    };
    assert_eq!(of(&[]), SharedKind::Interface);
    assert_eq!(of(&[End::Remote]), SharedKind::NotDetermined);
}
