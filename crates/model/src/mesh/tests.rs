//! Hosts files, patterns and rounds.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::peer_address::PeerAddress;
use crate::units::Nanoseconds;

fn hosts(count: usize) -> Vec<MeshHost> {
    (0..count)
        .map(|number| MeshHost::named(format!("h{number}")))
        .collect()
}

/// A small generator, so that the tests need none of another crate.
fn shuffle_by(mut state: u64) -> impl FnMut(&mut [HostIndex]) {
    move |items| {
        for last in (1..items.len()).rev() {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let chosen = (state >> 33) % (last as u64 + 1);
            items.swap(last, usize::try_from(chosen).expect("an index"));
        }
    }
}

fn scheduled(pattern: &Pattern, hosts: &[MeshHost], seed: u64) -> Result<Schedule, PatternError> {
    schedule(
        pattern,
        hosts,
        &ScheduleOptions::default(),
        &mut shuffle_by(seed),
    )
}

fn each_host_in_one_flow_at_a_time(round: &Round) -> bool {
    let all: Vec<HostIndex> = round
        .flows
        .iter()
        .flat_map(|flow| [flow.from, flow.to])
        .collect();
    all.iter().collect::<BTreeSet<_>>().len() == all.len()
}

proptest! {
    #[test]
    fn all_pairs_meet_once_in_each_direction_and_once_together(count in 2_usize..40, seed: u64) {
        let schedule = scheduled(&Pattern::Pairs, &hosts(count), seed).expect("a schedule");
        let pairings = if count.is_multiple_of(2) { count - 1 } else { count };
        prop_assert_eq!(schedule.len(), 3 * pairings);
        let mut apart: BTreeMap<(HostIndex, HostIndex), u32> = BTreeMap::new();
        let mut together = BTreeSet::new();
        for round in schedule.rounds() {
            prop_assert!(each_host_in_one_flow_at_a_time(&round));
            prop_assert_eq!(round.flows.len(), count / 2);
            for flow in round.flows {
                if flow.is_bidirectional {
                    prop_assert!(together.insert((flow.from.min(flow.to), flow.from.max(flow.to))));
                } else {
                    *apart.entry((flow.from, flow.to)).or_default() += 1;
                }
            }
        }
        prop_assert_eq!(apart.len(), count * (count - 1));
        prop_assert!(apart.values().all(|times| *times == 1));
        prop_assert_eq!(together.len(), count * (count - 1) / 2);
    }

    #[test]
    fn quick_gives_each_host_different_partners(count in 2_usize..300, seed: u64) {
        let schedule = scheduled(&Pattern::Quick, &hosts(count), seed).expect("a schedule");
        let mut partners: BTreeMap<HostIndex, BTreeSet<HostIndex>> = BTreeMap::new();
        for round in schedule.rounds() {
            prop_assert!(each_host_in_one_flow_at_a_time(&round));
            for flow in round.flows.iter().filter(|flow| flow.is_bidirectional) {
                prop_assert!(partners.entry(flow.from).or_default().insert(flow.to));
                prop_assert!(partners.entry(flow.to).or_default().insert(flow.from));
            }
        }
        prop_assert_eq!(partners.len(), count);
        // With an odd number one host rests in each round.
        let fewest = schedule.len() / 3 - usize::from(count % 2 == 1);
        prop_assert!(partners.values().all(|all| all.len() >= fewest));
    }

    #[test]
    fn a_retest_gives_each_suspect_new_partners_that_are_not_suspects(
        count in 6_usize..60, suspects in 1_usize..3, seed: u64,
    ) {
        let known = (0..suspects).map(|one| (HostIndex::at(one), HostIndex::at(suspects)));
        let retest = Retest {
            hosts: (0..suspects).map(HostIndex::at).collect(),
            partners: 3,
            known: known.collect(),
            ..Retest::default()
        };
        let pattern = Pattern::Suspects(retest.clone());
        let schedule = scheduled(&pattern, &hosts(count), seed).expect("a schedule");
        let mut partners: BTreeMap<HostIndex, BTreeSet<HostIndex>> = BTreeMap::new();
        for round in schedule.rounds() {
            prop_assert!(each_host_in_one_flow_at_a_time(&round));
            for flow in round.flows.iter().filter(|flow| flow.is_bidirectional) {
                prop_assert!(!retest.hosts.contains(&flow.to));
                if retest.hosts.contains(&flow.from) {
                    prop_assert!(flow.to != HostIndex::at(suspects) || count - suspects < 4);
                    partners.entry(flow.from).or_default().insert(flow.to);
                }
            }
        }
        prop_assert_eq!(partners.len(), suspects);
        prop_assert!(partners.values().all(|all| all.len() == 3));
    }

    #[test]
    fn a_seed_gives_one_schedule(count in 2_usize..30, seed: u64) {
        let of = |seed| scheduled(&Pattern::Pairs, &hosts(count), seed);
        prop_assert_eq!(of(seed), of(seed));
    }
}

#[test]
fn a_suspected_pair_is_measured_again_and_its_hosts_with_others() {
    let retest = Retest {
        pairs: vec![(HostIndex(1), HostIndex(2))],
        partners: 2,
        without: vec![HostIndex(5)],
        ..Retest::default()
    };
    let schedule = scheduled(&Pattern::Suspects(retest), &hosts(8), 3).expect("a schedule");
    let flows: Vec<Flow> = schedule.rounds().flat_map(|round| round.flows).collect();
    let of = |from, to| {
        let is =
            |flow: &&Flow| (flow.from.0, flow.to.0, flow.is_bidirectional) == (from, to, false);
        flows.iter().filter(is).count()
    };
    assert_eq!((of(1, 2), of(2, 1)), (2, 2));
    let alone = |host| {
        (0..8)
            .filter(|to| *to > 2 || *to == 0)
            .map(|to| of(host, to))
            .sum::<usize>()
    };
    assert!(alone(1) >= 1 && alone(2) >= 1, "{flows:?}");
    assert!(flows.iter().all(|flow| flow.from.0 != 5 && flow.to.0 != 5));
}

#[test]
fn a_ring_sends_and_receives_at_once_on_every_host() {
    let schedule = scheduled(&Pattern::Ring, &hosts(5), 1).expect("a schedule");
    assert_eq!(schedule.len(), 3);
    let forward = schedule.round(0).expect("a round");
    let pairs: Vec<(u32, u32)> = forward
        .flows
        .iter()
        .map(|one| (one.from.0, one.to.0))
        .collect();
    assert_eq!(pairs, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]);
    let two = scheduled(&Pattern::Ring, &hosts(2), 1).expect("a schedule");
    assert_eq!(two.round(0).expect("a round").flows.len(), 1);
}

#[test]
fn neighbors_meet_only_within_their_switch_and_all_switches_at_once() {
    let mut all = hosts(9);
    for (position, host) in all.iter_mut().enumerate() {
        host.switch = ["a", "b", "c"]
            .get(position / 4)
            .map(|name| (*name).to_owned());
    }
    let pattern = Pattern::Neighbors {
        kind: GroupKind::Switch,
    };
    let schedule = scheduled(&pattern, &all, 1).expect("a schedule");
    assert_eq!(schedule.len(), 9, "three pairings of four hosts");
    for round in schedule.rounds() {
        assert_eq!(round.flows.len(), 4);
        assert!(each_host_in_one_flow_at_a_time(&round));
        let same = |flow: &Flow| flow.from.0 / 4 == flow.to.0 / 4;
        assert!(round.flows.iter().all(same));
    }
    let none = scheduled(&pattern, &hosts(4), 1);
    assert_eq!(none, Err(PatternError::NoGroup(GroupKind::Switch)));
}

#[test]
fn a_bisection_crosses_between_the_switches() {
    let mut all = hosts(8);
    for (position, host) in all.iter_mut().enumerate() {
        host.switch = Some(["a", "b"][position % 2].to_owned());
    }
    let schedule = scheduled(&Pattern::Bisection, &all, 1).expect("a schedule");
    let round = schedule.round(0).expect("a round");
    assert_eq!(round.flows.len(), 4);
    assert!(
        round
            .flows
            .iter()
            .all(|flow| flow.from.0 % 2 != flow.to.0 % 2)
    );
}

#[test]
fn an_incast_leaves_the_hosts_of_its_victim_alone() {
    let incast = Incast {
        senders: 3,
        receiver: Some(HostIndex(2)),
        victim: None,
    };
    let options = ScheduleOptions {
        repeats: 10,
        ..ScheduleOptions::default()
    };
    let schedule = schedule(
        &Pattern::Incast(incast.clone()),
        &hosts(6),
        &options,
        &mut shuffle_by(4),
    )
    .expect("a schedule");
    assert_eq!(schedule.len(), 20, "with and without, ten times");
    let mut firsts = BTreeSet::new();
    for round in schedule.rounds() {
        let of = |role| round.flows.iter().filter(move |flow| flow.role == role);
        let congesting: Vec<&Flow> = of(Role::Congesting).collect();
        assert!(congesting.iter().all(|flow| flow.to == HostIndex(2)));
        if round.number.is_multiple_of(2) {
            firsts.insert(congesting.is_empty());
        }
        if congesting.is_empty() {
            assert_eq!((round.flows.len(), of(Role::VictimAlone).count()), (1, 1));
        } else {
            assert_eq!(
                (congesting.len(), of(Role::VictimCongested).count()),
                (3, 1)
            );
            let all: BTreeSet<_> = round
                .flows
                .iter()
                .flat_map(|one| [one.from, one.to])
                .collect();
            assert_eq!(all.len(), 6, "no host has two roles");
        }
    }
    assert_eq!(firsts.len(), 2, "the order is random");
    let too_few = scheduled(&Pattern::Incast(incast), &hosts(5), 1);
    assert!(matches!(
        too_few,
        Err(PatternError::TooFew { needed: 6, .. })
    ));
}

#[test]
fn the_duration_is_known_before_the_start() {
    let schedule = scheduled(&Pattern::Pairs, &hosts(16), 1).expect("a schedule");
    let seconds = Nanoseconds::from_millis(1_000);
    let duration = schedule.duration(seconds, Nanoseconds::from_millis(500));
    assert_eq!(duration, Nanoseconds::from_millis(45 * 1_500));
}

#[test]
fn lines_of_peers_are_hosts_with_comments_left_out() {
    let line = format!("tls://apricot#{}.{}.9", "a5".repeat(32), "0f".repeat(16));
    let text = format!("# all\n\nnetns:h0\nme@h1 # the slow one\n{line}\n");
    let read = hosts_of_lines(&text).expect("hosts");
    let names: Vec<&str> = read.iter().map(|one| one.host.name.as_str()).collect();
    assert_eq!(names, ["netns:h0", "me@h1", "tls://apricot:5210"]);
}

/// So that `measure`, `failover` and `qos verify` take the name that a mesh shows.
#[test]
fn the_name_of_a_listed_host_is_a_peer_in_every_form() {
    let peers = [
        "h0",
        "me@h1:2222",
        "ssh://h2",
        "ssh://me@[fd00::1]:22",
        "tls://h3",
        "tls://[fd00::2]:7000",
        "netns:h4",
        "exec:docker exec -i h5 linerate agent --stdio",
        "local",
    ];
    let listed = hosts_of_lines(&peers.join("\n")).expect("hosts");
    assert_eq!(listed.len(), peers.len());
    for one in listed {
        let again: PeerAddress = one.host.name.parse().expect("a peer");
        assert_eq!(again, one.peer, "{}", one.host.name);
    }
}

#[test]
fn a_host_that_is_there_twice_is_refused_unless_its_nics_differ() {
    let host = |nic: Option<&str>| WrittenHost {
        peer: "h0".to_owned(),
        nic: nic.map(str::to_owned),
        ..WrittenHost::default()
    };
    let read = |hosts: Vec<WrittenHost>| {
        let read = HostsFile { hosts }.read();
        read.map(|all| all.into_iter().map(|one| one.host.name).collect::<Vec<_>>())
    };
    assert_eq!(
        read(vec![host(Some("eth0")), host(Some("eth1"))]),
        Ok(vec!["h0/eth0".to_owned(), "h0/eth1".to_owned()])
    );
    for second in [host(Some("eth0")), host(None)] {
        let same = read(vec![second.clone(), second]).expect_err("refused");
        assert!(matches!(same, HostsError::Duplicate { .. }), "{same}");
    }
    let text = hosts_of_lines("h0\nssh://h0\n").expect_err("refused");
    assert_eq!(
        text.to_string(),
        "line 1 and line 2 are the same host, h0: remove one, or give each its own `nic`"
    );
}

#[test]
fn what_is_wrong_with_a_host_is_reported_with_its_place() {
    let wrong = hosts_of_lines("h0\n\n-x\n").expect_err("refused");
    assert!(
        wrong
            .to_string()
            .starts_with("line 3: ssh does not accept this host name"),
        "{wrong}"
    );
    assert_eq!(hosts_of_lines("h0"), Err(HostsError::TooFew(1)));
    let many: Vec<String> = (0..=HOSTS_MAX).map(|number| format!("h{number}")).collect();
    assert_eq!(
        hosts_of_peers(&many),
        Err(HostsError::TooMany(HOSTS_MAX + 1))
    );
    let file = HostsFile {
        hosts: vec![WrittenHost {
            peer: "h1".to_owned(),
            nic: Some("a/b".to_owned()),
            ..WrittenHost::default()
        }],
    };
    let wrong = file.read().expect_err("refused");
    assert_eq!(
        wrong.to_string(),
        "host 1 (h1): `a/b` is not an interface name"
    );
}
