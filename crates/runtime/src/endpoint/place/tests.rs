//! Named placement on machines of one, two and four nodes.

use std::path::Path;

use linerate_host::capture::Captured;
use linerate_host::read::read_host;
use linerate_model::build;
use linerate_model::host::NicKind;
use linerate_model::known::Cause;

use super::*;

fn nic(name: &str) -> NicName {
    name.parse().expect("a name")
}

fn set(list: &str) -> CpuSet {
    list.parse().expect("a list")
}

/// Two nodes of four CPUs, each core with two; the NIC is on node 1.
fn two_nodes() -> Host {
    build::host()
        .nodes(2, 4)
        .nic("eth0", |nic| nic.node(1))
        .with(|host| {
            for cpu in &mut host.cpus {
                let first = cpu.id.0 / 2 * 2;
                cpu.siblings = Known::Value([first, first + 1].map(CpuId).into_iter().collect());
            }
        })
        .build()
}

/// The placement that the words resolve to on `host`.
struct Asked<'a> {
    host: &'a Host,
    nic: NicName,
    rdma: Option<RdmaDevice>,
    allowed: Option<CpuSet>,
}

impl<'a> Asked<'a> {
    fn of(host: &'a Host, name: &str) -> Self {
        Self {
            host,
            nic: nic(name),
            rdma: None,
            allowed: None,
        }
    }

    fn with<T>(&self, cpus: &str, memory: &str, ask: impl FnOnce(&Site<'_>) -> T) -> T {
        let (cpus, memory) = (
            cpus.parse().expect("a word"),
            memory.parse().expect("a word"),
        );
        ask(&Site {
            host: self.host,
            nic: &self.nic,
            rdma: self.rdma.as_ref(),
            allowed: self.allowed.as_ref(),
            cpus: &cpus,
            memory: &memory,
            threads: 1,
        })
    }

    #[track_caller]
    fn cpus(&self, word: &str, threads: u32) -> String {
        let asked = |site: &Site<'_>| {
            let site = Site {
                threads,
                ..site.clone()
            };
            resolve(&site, Role::Sender)
        };
        match self.with(word, "default", asked) {
            Ok(Placed::Cpus(cpus)) => cpus.to_string(),
            other => panic!("{word}: {other:?}"),
        }
    }

    #[track_caller]
    fn refusal(&self, word: &str) -> String {
        let placed = self.with(word, "default", |site| resolve(site, Role::Sender));
        placed.expect_err("it cannot be").to_string()
    }

    #[track_caller]
    fn memory(&self, word: &str) -> MemoryPolicy {
        self.with("free", word, resolve_memory).expect("it can be")
    }
}

#[test]
fn every_word_reads_back_as_it_is_written_and_others_say_what_is_expected() {
    for word in [
        "near",
        "far",
        "node:1",
        "cpu:0-3,8",
        "spread",
        "same-core",
        "by-rx-cpu",
        "free",
    ] {
        let read: Where = word.parse().expect(word);
        assert_eq!(read.to_string(), word);
    }
    for word in [
        "",
        "nearby",
        "node:",
        "node:x",
        "cpu:",
        "cpu:3-1",
        "near:1",
        "cpu:99999",
    ] {
        let error = word.parse::<Where>().expect_err(word).to_string();
        assert!(
            error.starts_with(&format!("`{word}` is not a placement: ")),
            "{error}"
        );
    }
    let bind = MemoryPolicy::Bind(vec![NodeId(0), NodeId(2)]);
    assert_eq!("bind:2,0".parse(), Ok(MemoryWhere::Policy(bind)));
    for word in [
        "bind",
        "bind:",
        "bind:a",
        "preferred:0,1",
        "local:1",
        "here",
    ] {
        assert!(word.parse::<MemoryWhere>().is_err(), "{word}");
    }
}

#[test]
fn near_and_far_are_the_nodes_of_the_interface_and_the_other() {
    let host = two_nodes();
    let asked = Asked::of(&host, "eth0");
    assert_eq!(asked.cpus("near", 1), "4-7");
    assert_eq!(asked.cpus("far", 1), "0-3");
    assert_eq!(asked.cpus("node:0", 1), "0-3");
    assert_eq!(asked.memory("near"), MemoryPolicy::Bind(vec![NodeId(1)]));
    assert_eq!(asked.memory("far"), MemoryPolicy::Bind(vec![NodeId(0)]));
    assert!(asked.refusal("node:5").contains("this host has 0, 1"));
    let error = asked
        .with("free", "bind:0,7", resolve_memory)
        .expect_err("no node 7");
    assert!(error.to_string().contains("no NUMA node 7"), "{error}");
}

#[test]
fn of_several_nodes_the_farthest_is_far() {
    let host = build::host()
        .nodes(4, 2)
        .nic("eth0", |nic| nic.node(1))
        .with(|host| {
            let of_1 = [21, 10, 17, 32];
            for (node, to_1) in host.nodes.iter_mut().zip(of_1) {
                node.distances = Known::Value(vec![21, to_1, 21, 21]);
            }
        });
    let host = host.build();
    assert_eq!(Asked::of(&host, "eth0").cpus("far", 1), "6-7");
}

#[test]
fn a_bond_is_near_where_its_ports_are() {
    let host = build::host()
        .nodes(2, 4)
        .nic("eth0", |nic| nic.node(1))
        .nic("bond0", |port| {
            port.with(|bond| {
                bond.kind = NicKind::Bond;
                bond.lower = vec![nic("eth0")].into();
                bond.numa_node = Known::unknown(Cause::Absent, "bond0", "it has no device");
            })
        })
        .build();
    assert_eq!(Asked::of(&host, "bond0").cpus("near", 1), "4-7");
}

#[test]
fn without_a_node_the_local_cpus_are_near_and_without_those_the_reason_is_told() {
    let unknown = |local: Known<CpuSet>| {
        build::host()
            .nodes(2, 4)
            .nic("eth0", |nic| {
                nic.with(|nic| {
                    nic.numa_node =
                        Known::unknown(Cause::NotSaid, "/sys/x/numa_node", "it says -1");
                    nic.local_cpus = local;
                })
            })
            .build()
    };
    let host = unknown(Known::Value(set("2-3")));
    assert_eq!(Asked::of(&host, "eth0").cpus("near", 1), "2-3");
    let host = unknown(Known::not_asked("/sys/x/local_cpulist"));
    let refusal = Asked::of(&host, "eth0").refusal("near");
    assert!(
        refusal.contains("it says -1") && refusal.contains("node:N"),
        "{refusal}"
    );
}

#[test]
fn on_one_node_everything_is_near_and_nothing_far() {
    let (host, _) = build::veth_pair();
    let asked = Asked::of(&host, "near0");
    assert_eq!(asked.cpus("near", 1), "0-1");
    assert_eq!(asked.memory("near"), MemoryPolicy::Bind(vec![NodeId(0)]));
    assert!(asked.refusal("far").contains("a single NUMA node"));
}

#[test]
fn spread_takes_a_core_for_each_thread_from_every_node_before_siblings() {
    let host = two_nodes();
    let asked = Asked::of(&host, "eth0");
    assert_eq!(asked.cpus("spread", 2), "0,4");
    assert_eq!(asked.cpus("spread", 4), "0,2,4,6");
    assert_eq!(asked.cpus("spread", 5), "0-2,4,6");
    assert_eq!(asked.cpus("spread", 100), "0-7");
}

#[test]
fn one_core_has_a_sibling_for_each_role() {
    let host = two_nodes();
    let asked = Asked::of(&host, "eth0");
    let of = |role| {
        asked.with("same-core", "default", |site| {
            resolve(site, role).expect("a core")
        })
    };
    assert_eq!(of(Role::Sender), Placed::Cpus(set("4")));
    assert_eq!(of(Role::Receiver), Placed::Cpus(set("5")));
    let (single, _) = build::veth_pair();
    let asked = Asked::of(&single, "near0");
    let of = |role| {
        asked.with("same-core", "default", |site| {
            resolve(site, role).expect("a core")
        })
    };
    assert_eq!(of(Role::Sender), of(Role::Receiver));
}

#[test]
fn words_leave_isolated_offline_and_forbidden_cpus_alone_and_say_so() {
    let mut host = two_nodes();
    host.isolation.isolated = Known::Value(set("6"));
    host.cpus[7].online = Known::Value(false);
    let mut asked = Asked::of(&host, "eth0");
    assert_eq!(asked.cpus("near", 1), "4-5");
    assert_eq!(asked.cpus("cpu:6", 1), "6", "whoever names it means it");
    assert!(
        asked
            .refusal("cpu:5,7")
            .contains("CPUs 7 do not exist or are offline")
    );
    asked.allowed = Some(set("0-3"));
    let refusal = asked.refusal("near");
    for part in ["7 offline", "6 isolated", "4-7 outside"] {
        assert!(refusal.contains(part), "{refusal}");
    }
    assert!(asked.refusal("cpu:3-4").contains("CPUs 4 are outside"));
    assert_eq!(asked.cpus("spread", 8), "0-3");
}

#[test]
fn both_ends_words_become_one_placement() {
    let host = two_nodes();
    let (one, _) = build::veth_pair();
    let (asked, other) = (Asked::of(&host, "eth0"), Asked::of(&one, "near0"));
    let both = |direction, here: &str, there: &str| {
        asked.with(here, "near", |local| {
            other.with(there, "default", |remote| {
                placement(direction, local, remote)
            })
        })
    };
    let forward = both(Direction::Forward, "near", "cpu:1").expect("fine");
    assert_eq!(
        (forward.sender_cpus, forward.receiver_cpus),
        (set("4-7"), set("1"))
    );
    assert_eq!(forward.sender_memory, MemoryPolicy::Bind(vec![NodeId(1)]));
    let reverse = both(Direction::Reverse, "near", "free").expect("fine");
    assert_eq!(
        (reverse.sender_cpus, reverse.receiver_cpus),
        (CpuSet::empty(), set("4-7"))
    );
    let error = both(Direction::Bidirectional, "near", "cpu:1").expect_err("other numbers");
    assert!(error.to_string().contains("same placement"), "{error}");
    assert!(
        both(Direction::Forward, "by-rx-cpu", "free")
            .expect("fine")
            .by_receive_cpu
    );
    assert!(both(Direction::Forward, "by-rx-cpu", "cpu:0").is_err());
}

#[test]
fn a_captured_machine_of_two_sockets_is_placed_too() {
    let name = "../../fixtures/hosts/two-socket-healthy.lrcap";
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let captured = Captured::open(&file).expect("a fixture");
    let host = read_host(captured.root(), &captured);
    let card = host.nics.iter().find(|nic| nic.numa_node.get().is_some());
    let card = card.expect("a card on a known node");
    let asked = Asked::of(&host, card.name.as_str());
    let (near, far) = (set(&asked.cpus("near", 1)), set(&asked.cpus("far", 1)));
    assert!(near.is_disjoint(&far));
    let spread = set(&asked.cpus("spread", 2));
    assert!(!spread.and(&near).is_empty() && !spread.and(&far).is_empty());
}

#[test]
#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method alone is one of a single lifetime"
)]
fn what_is_near_a_trial_over_verbs_is_the_node_of_its_device() {
    // The NIC is on node 1, and its RDMA device reports node 0.
    let host = two_nodes();
    let asked = Asked {
        rdma: Some(build::roce("mlx5_0", "eth0")),
        ..Asked::of(&host, "eth0")
    };
    let near = asked.with("near", "near", |site| {
        let cpus = resolve(site, Role::Sender).expect("CPUs");
        (
            cpus,
            resolve_memory(site).expect("a node"),
            site.memory_of_device(),
        )
    });
    let bound = MemoryPolicy::Bind(vec![NodeId(0)]);
    assert_eq!(near, (Placed::Cpus(set("0-3")), bound.clone(), bound));
    let unknown = Asked {
        rdma: asked.rdma.clone().map(|mut device| {
            device.numa_node =
                Known::unknown(Cause::Absent, "numa_node", "soft-RoCE has no function");
            device
        }),
        ..Asked::of(&host, "eth0")
    };
    let memory = unknown.with("free", "default", |site| site.memory_of_device());
    assert_eq!(
        memory,
        MemoryPolicy::Bind(vec![NodeId(1)]),
        "its interface's"
    );
    let one = build::host().nic("eth0", |nic| nic).build();
    let memory = Asked::of(&one, "eth0").with("free", "default", |site| site.memory_of_device());
    assert_eq!(memory, MemoryPolicy::Default, "there is no other node");
}
