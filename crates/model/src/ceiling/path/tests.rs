//! The ceilings of synthetic paths.

use super::*;
use crate::build::{self, NicBuilder};

fn facts<'a>(local: &'a Host, remote: &'a Host, sample: Option<&'a Sample>) -> PathFacts<'a> {
    PathFacts {
        local,
        local_nic: &local.nics[0].name,
        remote,
        remote_nic: &remote.nics[0].name,
        flows: 1,
        direction: Direction::Forward,
        ipv6: false,
        datagram_bytes: None,
        copy_bandwidth: None,
        sample,
    }
}

fn bounds(all: &PathCeilings) -> Vec<(Bound, String)> {
    let words = |ceiling: &Ceiling| (ceiling.bound, ceiling.bit_per_s.to_string());
    all.ceilings.iter().map(words).collect()
}

#[test]
fn a_veth_has_no_wire_and_is_bounded_by_window_and_copies_only() {
    let (near, far) = build::veth_pair();
    let sample = build::sample().build();
    let path = PathFacts {
        datagram_bytes: None,
        copy_bandwidth: Some(BitRate::from_mbit_per_s(60_000)),
        ..facts(&near, &far, Some(&sample))
    };
    let all = ceilings_of_path(&path);
    // (4 MiB + 64 KiB) x 8 / 40 us; both ends copy on two shared CPUs.
    let wanted = [
        (Bound::Copy, "60.00 Gb/s".to_owned()),
        (Bound::WindowRtt, "852.0 Gb/s".to_owned()),
    ];
    assert_eq!(bounds(&all), wanted);
    assert_eq!(all.undetermined, []);
    assert_eq!(all.lowest().map(|c| c.bound), Some(Bound::Copy));
}

#[test]
fn without_a_trial_the_window_is_undetermined_and_not_unbounded() {
    let (near, far) = build::veth_pair();
    let all = ceilings_of_path(&facts(&near, &far, None));
    assert_eq!(bounds(&all), []);
    assert_eq!(all.undetermined[0].bound, Bound::WindowRtt);
    assert_eq!(all.undetermined[0].missing.cause, Cause::NotAsked);
}

#[test]
fn the_slower_of_two_cards_and_the_narrow_link_are_found_with_their_ends() {
    let card = |gbit, pcie| {
        build::host()
            .nic("eth2", |nic| {
                nic.gbit(gbit).pcie(build::pcie_link(pcie, (8_000, 16)))
            })
            .build()
    };
    let (local, remote) = (card(100, (8_000, 8)), card(40, (8_000, 16)));
    let all = ceilings_of_path(&facts(&local, &remote, None));
    let ends: Vec<_> = all.ceilings.iter().map(|c| (c.bound, c.end)).collect();
    assert_eq!(
        ends,
        [
            (Bound::Ethernet, Some(End::Remote)),
            (Bound::Pcie, Some(End::Local)),
            (Bound::Ethernet, Some(End::Local)),
            (Bound::Pcie, Some(End::Remote)),
        ]
    );
    assert_eq!(
        all.lowest().map(|c| c.bit_per_s.to_string()),
        Some("37.66 Gb/s".to_owned())
    );
    assert_eq!(all.ceilings[0].subject.as_deref(), Some("nic/eth2"));
}

#[test]
fn timestamps_count_only_when_both_ends_agree_on_them() {
    let card = || build::host().nic("eth2", |nic| nic.gbit(40));
    let with = card().build();
    let without = card().sysctl("net.ipv4.tcp_timestamps", "0").build();
    let lowest = |a, b| {
        ceilings_of_path(&facts(a, b, None))
            .lowest()
            .map(|c| c.bit_per_s)
    };
    assert_eq!(
        lowest(&with, &with).map(|b| b.to_string()),
        Some("37.66 Gb/s".to_owned())
    );
    assert_eq!(
        lowest(&with, &without).map(|b| b.to_string()),
        Some("37.97 Gb/s".to_owned())
    );
}

#[test]
fn only_the_sending_ends_shaper_bounds() {
    let shaped = build::host()
        .nic("near0", |nic| nic.veth().qdisc(build::tbf(5_000)))
        .build();
    let (_, far) = build::veth_pair();
    let forward = facts(&shaped, &far, None);
    assert_eq!(
        bounds(&ceilings_of_path(&forward)),
        [(Bound::Shaper, "4.78 Gb/s".to_owned())]
    );
    let reverse = PathFacts {
        direction: Direction::Reverse,
        ..forward
    };
    assert_eq!(bounds(&ceilings_of_path(&reverse)), []);
}

#[test]
fn both_directions_add_up_only_when_both_are_bounded() {
    let shaped = |name: &str, mbit| {
        build::host()
            .nic(name, |nic| nic.veth().qdisc(build::tbf(mbit)))
            .build()
    };
    let (near, far) = (shaped("near0", 5_000), shaped("far0", 2_000));
    let both = |far| PathFacts {
        direction: Direction::Bidirectional,
        ..facts(&near, far, None)
    };
    assert_eq!(
        bounds(&ceilings_of_path(&both(&far))),
        [(Bound::Shaper, "6.69 Gb/s".to_owned())]
    );
    let (_, free) = build::veth_pair();
    assert_eq!(bounds(&ceilings_of_path(&both(&free))), []);
}

#[test]
fn a_vlan_stands_on_its_wire_and_a_circle_ends() {
    let mut host = build::host()
        .nic("vlan10", |nic| {
            nic.with(|nic| {
                nic.kind = NicKind::Vlan;
                nic.lower = vec!["eth2".parse().expect("a name")].into();
            })
        })
        .nic("eth2", |nic| nic.gbit(40))
        .build();
    let all = ceilings_of_path(&facts(&host, &host, None));
    let lowest = all.lowest().expect("a bound");
    assert!(lowest.reason.contains("1448/1542"), "{}", lowest.reason);
    assert_eq!(lowest.subject.as_deref(), Some("nic/eth2"));
    host.nics[0].lower = vec![host.nics[0].name.clone()].into();
    let circle = ceilings_of_path(&facts(&host, &host, None));
    assert!(
        circle
            .undetermined
            .iter()
            .any(|u| u.bound == Bound::Ethernet)
    );
}

#[test]
fn an_unknown_speed_qdisc_or_interface_leaves_its_bound_undetermined() {
    let host = build::host()
        .nic("eth0", |nic| {
            nic.with(|nic| {
                nic.link_bit_per_s = Known::unknown(Cause::NotSaid, "speed", "it says -1");
                nic.qdisc = Known::not_asked("RTM_GETQDISC");
            })
        })
        .build();
    let (_, far) = build::veth_pair();
    let all = ceilings_of_path(&facts(&host, &far, None));
    let unknown: Vec<Bound> = all.undetermined.iter().map(|u| u.bound).collect();
    assert_eq!(unknown, [Bound::Ethernet, Bound::Shaper, Bound::WindowRtt]);
    let gone = "eth9".parse().expect("a name");
    let path = PathFacts {
        remote_nic: &gone,
        ..facts(&host, &far, None)
    };
    let all = ceilings_of_path(&path);
    assert!(
        all.undetermined
            .iter()
            .any(|u| u.subject.as_deref() == Some("nic/eth9"))
    );
}

#[test]
fn a_program_that_sets_its_buffers_is_bounded_by_them() {
    let near = build::host().nic("near0", NicBuilder::veth).build();
    let mut sample = build::sample().build();
    sample.spec.socket_buffer_bytes = Some(Bytes::kib(64));
    let all = ceilings_of_path(&facts(&near, &near, Some(&sample)));
    // Twice 64 KiB to receive, x 8 / 40 us.
    assert_eq!(bounds(&all), [(Bound::WindowRtt, "26.21 Gb/s".to_owned())]);
}

fn bonded(mode: &str) -> Host {
    let slave = |name: &str| -> NicName { name.parse().expect("a name") };
    build::host()
        .nic("bond0", |nic| {
            nic.with(|nic| {
                nic.kind = NicKind::Bond;
                nic.lower = vec![slave("eth0"), slave("eth1")].into();
                nic.stack.bond = Some(crate::host::Bond {
                    mode: Known::Value(mode.to_owned()),
                    active_slave: Known::Value(slave("eth1")),
                    ..crate::host::Bond::default()
                });
            })
        })
        .nic("eth0", |nic| nic.gbit(25))
        .nic("eth1", |nic| nic.gbit(10))
        .build()
}

#[test]
fn flows_spread_over_the_links_of_a_bond_and_one_flow_does_not() {
    let host = bonded("802.3ad");
    let (_, far) = build::veth_pair();
    let lowest = |flows| {
        let path = PathFacts {
            flows,
            ..facts(&host, &far, None)
        };
        bounds(&ceilings_of_path(&path))
    };
    assert_eq!(lowest(1), [(Bound::Bond, "23.54 Gb/s".to_owned())]);
    assert_eq!(lowest(4), [(Bound::Bond, "32.95 Gb/s".to_owned())]);
}

#[test]
fn of_a_bond_in_active_backup_only_the_active_link_counts() {
    let host = bonded("active-backup");
    let (_, far) = build::veth_pair();
    let all = ceilings_of_path(&facts(&host, &far, None));
    let lowest = all.lowest().expect("a bound");
    assert_eq!(lowest.subject.as_deref(), Some("nic/eth1"));
    assert_eq!(lowest.bit_per_s.to_string(), "9.41 Gb/s");
}

#[test]
fn a_bridge_leaves_the_host_by_its_one_wire() {
    let port = |name: &str| -> NicName { name.parse().expect("a name") };
    let host = build::host()
        .nic("br0", |nic| {
            nic.with(|nic| {
                nic.kind = NicKind::Bridge;
                nic.lower = vec![port("eth0"), port("tap0")].into();
            })
        })
        .nic("eth0", |nic| nic.gbit(10))
        .nic("tap0", |nic| nic.with(|nic| nic.kind = NicKind::Tun))
        .build();
    let packets = Packets {
        mtu: None,
        options_bytes: 0,
        ipv6: true,
        vlan_tags: 0,
        tunnel: None,
        outer_ipv6: false,
        flows: 1,
        datagram_bytes: None,
    };
    let all = ceilings_of_nic(&host, &host.nics[0], packets);
    let lowest = all.lowest().expect("a bound");
    assert!(lowest.reason.contains("1440/1538"), "{}", lowest.reason);
}

#[test]
fn a_given_mtu_stands_in_for_that_of_the_interface_in_every_bound_by_packets() {
    let host = build::host()
        .nic("eth0", |nic| {
            nic.gbit(10)
                .qdisc(build::tbf(1_000))
                .with(|nic| nic.mtu = Known::Value(9000))
        })
        .build();
    let reasons = |mtu: Option<u32>| -> Vec<String> {
        let packets = Packets {
            mtu,
            options_bytes: 12,
            ipv6: false,
            vlan_tags: 0,
            tunnel: None,
            outer_ipv6: false,
            flows: 1,
            datagram_bytes: None,
        };
        let all = ceilings_of_nic(&host, &host.nics[0], packets).ceilings;
        all.into_iter()
            .filter(|bound| matches!(bound.bound, Bound::Ethernet | Bound::Shaper))
            .map(|bound| bound.reason)
            .collect()
    };
    let (own, given) = (reasons(None), reasons(Some(1500)));
    assert_eq!((own.len(), given.len()), (2, 2));
    assert!(own.iter().all(|reason| reason.contains("8948/")), "{own:?}");
    assert!(
        given.iter().all(|reason| reason.contains("1448/")),
        "{given:?}"
    );
}

/// A 100 Gb/s NIC with an RDMA device; its PCIe link has 63 Gb/s if it is `narrow`.
fn rdma_host(narrow: bool) -> Host {
    let mut device = build::roce("mlx5_0", "eth2");
    device.pci_address = Known::Value("0000:17:00.0".parse().expect("an address"));
    let link = if narrow { (8_000, 8) } else { (16_000, 16) };
    device.pcie = Known::Value(build::pcie_link(link, (16_000, 16)));
    build::host()
        .nic("eth2", |nic| nic.gbit(100))
        .with(|host| host.rdma = vec![device])
        .build()
}

#[test]
fn over_verbs_the_packets_of_the_port_its_slot_and_its_queue_pairs_bound() {
    let (near, far) = (rdma_host(false), rdma_host(true));
    let sample = build::over_verbs(
        build::sample().build(),
        build::rdma(crate::workload::Verb::Write, 65_536),
    );
    let all = ceilings_of_path(&facts(&near, &far, Some(&sample)));
    // 128 x 64 KiB in 2 us; 16 packets of 4096 bytes, beside each 82, and 16 once.
    let wanted = [
        (Bound::Pcie, "63.01 Gb/s".to_owned()),
        (Bound::Roce, "98.01 Gb/s".to_owned()),
        (Bound::Roce, "98.01 Gb/s".to_owned()),
        (Bound::Pcie, "252.0 Gb/s".to_owned()),
        (Bound::WindowRtt, "33.55 Tb/s".to_owned()),
    ];
    assert_eq!(bounds(&all), wanted);
    let first = all.lowest().expect("a bound");
    assert_eq!(first.end, Some(End::Remote));
    assert_eq!(first.subject.as_deref(), Some("rdma/mlx5_0"));
    assert_eq!(all.undetermined, []);
}

#[test]
fn an_iwarp_port_is_bounded_by_the_segments_of_its_tcp_and_a_shaper_counts_them_for_software() {
    let host = |pci: bool, shaped: bool| {
        let mut device = build::iwarp("cxgb4_0", "eth2");
        if pci {
            device.pci_address = Known::Value("0000:17:00.0".parse().expect("an address"));
            device.pcie = Known::Value(build::pcie_link((16_000, 16), (16_000, 16)));
        }
        let nic = |nic: NicBuilder| {
            let nic = nic.gbit(100).with(|nic| nic.mtu = Known::Value(9_000));
            if shaped {
                nic.qdisc(build::tbf(1_000))
            } else {
                nic
            }
        };
        let host = build::host().nic("eth2", nic);
        host.with(|host| host.rdma = vec![device]).build()
    };
    let of = |host: &Host, verb| {
        let rdma = build::rdma(verb, 1 << 20);
        let mut sample = build::over_verbs(build::sample().build(), rdma);
        for side in [&mut sample.local, &mut sample.remote] {
            for verbs in side.flows.iter_mut().filter_map(|flow| flow.verbs.as_mut()) {
                verbs.mtu = None;
                verbs.device = "cxgb4_0".to_owned();
            }
        }
        let all = ceilings_of_path(&facts(host, host, Some(&sample))).ceilings;
        let reasons = |which| {
            let mut of_it = all.iter().filter(|bound| bound.bound == which);
            of_it.next().map(|bound| bound.reason.clone())
        };
        assert_eq!(reasons(Bound::Roce), None);
        (reasons(Bound::Iwarp), reasons(Bound::Shaper))
    };
    let (written, shaper) = of(&host(true, true), crate::workload::Verb::Write);
    // 118 units of at most 8,940 bytes.
    assert!(written.is_some_and(|reason| reason.contains("118 x (2 length + 14 header")));
    assert_eq!(
        shaper, None,
        "a device's own frames pass no queueing discipline"
    );
    let (sent, _) = of(&host(true, false), crate::workload::Verb::Send);
    assert!(sent.is_some_and(|reason| reason.contains("118 x (2 length + 18 header")));
    let (written, shaper) = of(&host(false, true), crate::workload::Verb::Write);
    assert!(written.is_some_and(|reason| reason.contains("17 x (2 length")));
    assert!(shaper.is_some_and(|reason| reason.contains("8960/9014")));
}

#[test]
fn an_infiniband_port_is_bounded_by_its_encoding_and_one_that_is_missing_is_said() {
    let infiniband = || {
        build::host()
            .nic("ib0", |nic| nic.with(|nic| nic.kind = NicKind::Ipoib))
            .with(|host| {
                let mut device = build::infiniband("mlx5_0");
                device.ports[0].netdev = Known::Value("ib0".parse().expect("a name"));
                host.rdma = vec![device];
            })
            .build()
    };
    let (near, far) = (infiniband(), rdma_host(false));
    let mut sample = build::over_verbs(
        build::sample().build(),
        build::rdma(crate::workload::Verb::Send, 65_536),
    );
    let all = ceilings_of_path(&facts(&near, &near, Some(&sample)));
    let first = all.lowest().expect("a bound");
    assert_eq!(first.bound, Bound::Infiniband);
    assert!(first.reason.contains("16 x (8 LRH"), "{}", first.reason);
    let none = Host {
        rdma: Vec::new(),
        ..far
    };
    sample.remote.flows.clear();
    let all = ceilings_of_path(&facts(&near, &none, Some(&sample)));
    assert_eq!(all.undetermined[0].end, Some(End::Remote));
    assert_eq!(all.undetermined[0].missing.path, "/sys/class/infiniband");
}

#[test]
fn a_software_device_over_a_veth_has_no_wire_but_copies_and_its_shaper() {
    let soft = |name: &str, shaped: bool| {
        build::host()
            .nic(name, |nic| {
                let nic = nic.veth();
                if shaped {
                    nic.qdisc(build::tbf(1_000))
                } else {
                    nic
                }
            })
            .with(|host| host.rdma = vec![build::roce("mlx5_0", name)])
            .build()
    };
    let (near, far) = (soft("near0", true), soft("far0", true));
    let of = |verb| {
        let sample = build::over_verbs(build::sample().build(), build::rdma(verb, 65_536));
        let path = PathFacts {
            copy_bandwidth: Some(BitRate::from_mbit_per_s(60_000)),
            ..facts(&near, &far, Some(&sample))
        };
        ceilings_of_path(&path)
    };
    let written = of(crate::workload::Verb::Write);
    let wanted = [Bound::Shaper, Bound::Copy, Bound::WindowRtt];
    assert_eq!(
        written
            .ceilings
            .iter()
            .map(|one| one.bound)
            .collect::<Vec<_>>(),
        wanted
    );
    assert_eq!(written.ceilings[0].end, Some(End::Local));
    assert!(
        written.ceilings[0].reason.contains("4096/4154"),
        "{written:?}"
    );
    let read = of(crate::workload::Verb::Read);
    assert_eq!(
        read.ceilings[0].end,
        Some(End::Remote),
        "what is read comes from there"
    );
    // A NIC that does DMA by itself copies nothing, whichever interface has the address.
    let (near, far) = (rdma_host(false), rdma_host(false));
    let sample = build::over_verbs(
        build::sample().build(),
        build::rdma(crate::workload::Verb::Write, 65_536),
    );
    let path = PathFacts {
        copy_bandwidth: Some(BitRate::from_mbit_per_s(1_000)),
        ..facts(&near, &far, Some(&sample))
    };
    assert!(
        ceilings_of_path(&path)
            .ceilings
            .iter()
            .all(|one| one.bound != Bound::Copy)
    );
}
