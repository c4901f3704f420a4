//! What the map of one interface shows.

use linerate_model::build;
use linerate_model::host::{Bond, BondPort, Napi, QueueCoalesce, TunnelPort};
use linerate_model::ids::IrqNumber;
use linerate_model::units::Bytes;

use super::*;
use crate::map::text::{MapExtras, map_text, map_text_with};

fn name(text: &str) -> NicName {
    text.parse().expect("a name")
}

fn flat(text: &str) -> String {
    let words = text.replace(['│', '├', '└', '─', '\n'], " ");
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn one(host: &Host, nic: &str) -> String {
    let mut shown = host.clone();
    shown.nics.retain(|one| one.name.as_str() == nic);
    let beside = MapExtras {
        whole: Some(host),
        activity: None,
    };
    let text = map_text_with(&shown, &beside);
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    flat(&text)
}

fn bonded() -> Host {
    let port = |state: &str| BondPort {
        bond: Known::Value(name("bond0")),
        state: Known::Value(state.to_owned()),
        mii_status: Known::Value("up".to_owned()),
        aggregator: Known::Value(1),
        link_failures: Known::Value(2),
    };
    build::host()
        .nic("eth0", |nic| {
            nic.gbit(100).queues(&[0, 1]).with(|nic| {
                nic.stack.bond_port = Some(port("active"));
                nic.stack.upper = vec![name("bond0")].into();
                nic.stack.gso_max_bytes = Known::Value(Bytes::new(65_536));
            })
        })
        .nic("eth1", |nic| {
            nic.gbit(100).with(|nic| {
                nic.stack.bond_port = Some(port("backup"));
                nic.stack.upper = vec![name("bond0")].into();
            })
        })
        .nic("bond0", |nic| {
            nic.with(|nic| {
                nic.kind = NicKind::Bond;
                nic.stack.bond = Some(Bond {
                    miimon_ms: Known::Value(100),
                    ..Bond::default()
                });
                nic.lower = vec![name("eth0"), name("eth1")].into();
                nic.stack.upper = vec![name("vlan7")].into();
            })
        })
        .nic("vlan7", |nic| {
            nic.with(|nic| {
                nic.kind = NicKind::Vlan;
                nic.lower = vec![name("bond0")].into();
            })
        })
        .build()
}

#[test]
fn the_chain_leads_from_the_top_to_the_wire() {
    let host = bonded();
    let bond = one(&host, "bond0");
    let chain = "vlan7 (vlan) > [bond0] > eth0 (physical) + eth1 (physical)";
    assert!(bond.contains(chain), "{bond}");
    assert!(one(&host, "eth0").contains("vlan7 (vlan) > bond0 (bond) > [eth0]"));
}

#[test]
fn interfaces_that_stand_on_each_other_in_a_ring_end() {
    let mut host = bonded();
    host.nics[0].lower = vec![name("vlan7"), name("nowhere")].into();
    let text = one(&host, "eth0");
    assert!(text.contains("nowhere (elsewhere)"), "{text}");
}

#[test]
fn a_bond_shows_each_slave_with_its_state() {
    let text = one(&bonded(), "bond0");
    assert!(text.contains("2 slaves, miimon 100 ms"), "{text}");
    assert!(
        text.contains("eth1: backup, link up, aggregator 1, link lost 2 times, 100.0 Gb/s"),
        "{text}"
    );
}

#[test]
fn one_interface_shows_more_than_the_whole_map() {
    let mut host = bonded();
    let nic = &mut host.nics[0];
    nic.dispatch.rss = Known::Value(Rss {
        table: Known::Value(vec![0, 1, 0, 1, 1]),
        function: Known::Value("toeplitz".to_owned()),
        key_bytes: Known::Value(40),
        symmetric: Known::Value(false),
        fields: Known::Value(BTreeMap::from([
            ("tcp4".to_owned(), "sdfn".to_owned()),
            ("tcp6".to_owned(), "sdfn".to_owned()),
            ("udp4".to_owned(), "sd".to_owned()),
        ])),
    });
    nic.dispatch.napis = Known::Value(vec![Napi {
        id: 513,
        irq: Known::Value(IrqNumber(60)),
        thread: Known::not_asked("thread"),
        thread_cpus: Known::not_asked("cpus"),
        rx_queues: vec![0],
        tx_queues: vec![0],
        gro_flush_timeout_ns: Known::Value(20_000),
        defer_hard_irqs: Known::Value(0),
        irq_suspend_timeout_ns: Known::Value(0),
    }]);
    let moderation = |queue| QueueCoalesce {
        queue,
        rx_usecs: Known::Value(8),
        tx_usecs: Known::Value(16),
        adaptive_rx: Known::Value(true),
        adaptive_tx: Known::Value(true),
        rx_frames: Known::Value(64),
        tx_frames: Known::Value(64),
    };
    nic.dispatch.queue_coalesce = Known::Value((0..4).map(moderation).collect());
    nic.dispatch.tunnel_ports = Known::Value(vec![TunnelPort {
        port: 4789,
        kind: "vxlan".to_owned(),
    }]);
    nic.dispatch.private_flags = Known::unknown(Cause::Denied, "netlink", "needs root");
    let text = one(&host, "eth0");
    for words in [
        "receive hash toeplitz: table of 5 entries for 2 queues (2 to 3 each), key of 40 B, udp4 by sd, tcp4 tcp6 by sdfn",
        "NAPI 513: irq 60, rx-0 tx-0, gro-flush-timeout 20000 ns",
        "queues 0 to 3: rx-usecs 8 (adaptive on), tx-usecs 16",
        "GSO up to 65536 B",
        "offloads off but available:",
        "tunnel ports offloaded by the NIC: vxlan 4789",
        "private flags ? (permission denied)",
    ] {
        assert!(text.contains(words), "{words} is missing in\n{text}");
        assert!(!flat(&map_text(&host)).contains(words), "{words}");
    }
}
