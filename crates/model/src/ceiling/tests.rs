//! Each bound compared with manual arithmetic.

use super::*;
use crate::build;

const G40: BitRate = BitRate::from_mbit_per_s(40_000);

fn ethernet_gbit(path: EthernetPath) -> String {
    ethernet(&path)
        .value()
        .expect("a bound")
        .bit_per_s
        .to_string()
}

#[test]
fn forty_gigabit_ethernet_carries_what_the_report_found() {
    let plain = EthernetPath::plain(G40, 1500);
    let bare = EthernetPath {
        options_bytes: 0,
        ..plain
    };
    assert_eq!(ethernet_gbit(plain), "37.66 Gb/s");
    assert_eq!(ethernet_gbit(bare), "37.97 Gb/s");
    let bound = ethernet(&bare).value().expect("a bound").clone();
    assert!(bound.reason.contains("1460/1538"), "{}", bound.reason);
    let reached = bound.share(BitRate::from_mbit_per_s(37_900)).expect("some");
    assert_eq!(reached.to_string(), "99.8 %");
}

#[test]
fn rdma_at_forty_gigabit_reached_ninety_two_percent_of_the_line() {
    let rate = BitRate::from_mbit_per_s(4_613 * 8);
    let reached = share(rate, G40).expect("some").as_f64();
    assert!((reached - 0.922).abs() < 0.001, "{reached}");
}

#[test]
fn tags_tunnels_and_long_headers_each_take_their_bytes() {
    let plain = EthernetPath::plain(G40, 1500);
    let payload_over_wire = |path: EthernetPath, share: &str| {
        let reason = ethernet(&path).value().expect("a bound").reason.clone();
        assert!(reason.contains(share), "{reason}");
    };
    payload_over_wire(
        EthernetPath {
            ipv6: true,
            ..plain
        },
        "1428/1538",
    );
    payload_over_wire(
        EthernetPath {
            vlan_tags: 2,
            ..plain
        },
        "1448/1546",
    );
    payload_over_wire(
        EthernetPath {
            tunnel: Some(Tunnel::Vxlan),
            mtu: 1450,
            ..plain
        },
        "1398/1538",
    );
    payload_over_wire(EthernetPath { mtu: 9000, ..plain }, "8948/9038");
}

#[test]
fn an_mtu_without_room_for_payload_is_a_gap_and_no_panic() {
    for mtu in [0, 40, 52] {
        assert!(ethernet(&EthernetPath::plain(G40, mtu)).gap().is_some());
        assert!(shaper(G40, mtu, TIMESTAMPS_BYTES, false).gap().is_some());
    }
    let huge = EthernetPath {
        vlan_tags: u32::MAX,
        ..EthernetPath::plain(BitRate::from_bit_per_s(u64::MAX), u32::MAX)
    };
    assert!(ethernet(&huge).value().is_some());
}

#[test]
fn pcie_gen3_x8_is_what_the_kernel_says() {
    let link = build::pcie_link((8_000, 8), (8_000, 16));
    let bound = pcie(&link, None).value().expect("a bound").clone();
    assert_eq!(bound.bit_per_s, BitRate::from_mbit_per_s(63_008));
    assert!(
        bound.reason.contains("63.008 Gb/s") && bound.reason.contains("0000:16:00.0"),
        "{}",
        bound.reason
    );
    let given = pcie_of(TransferRate::from_mt_per_s(8_000), 8, None);
    assert_eq!(given.value().map(|c| c.bit_per_s), Some(bound.bit_per_s));
    assert!(pcie_generation(7).is_none());
    let with_headers = pcie(&link, Some(256)).value().expect("a bound").bit_per_s;
    assert_eq!(with_headers.to_string(), "57.61 Gb/s");
    assert_eq!(pcie_lane(TransferRate::from_mt_per_s(7)), None);
}

#[test]
fn a_shaper_counts_the_frame_without_preamble_and_fcs() {
    let bound = shaper(
        BitRate::from_mbit_per_s(5_000),
        1500,
        TIMESTAMPS_BYTES,
        false,
    );
    let bound = bound.value().expect("a bound");
    assert_eq!(bound.bit_per_s.to_string(), "4.78 Gb/s");
    assert!(bound.reason.contains("1448/1514"), "{}", bound.reason);
}

#[test]
fn a_window_of_six_mebibytes_passes_fifty_gigabit_at_one_millisecond() {
    let bound = |rtt| {
        window_rtt(Bytes::mib(6), rtt, 1)
            .value()
            .map(|c| c.bit_per_s.to_string())
    };
    assert_eq!(
        bound(Nanoseconds::from_millis(1)),
        Some("50.33 Gb/s".to_owned())
    );
    assert_eq!(
        bound(Nanoseconds::from_millis(100)),
        Some("503.3 Mb/s".to_owned())
    );
    assert_eq!(bound(Nanoseconds::new(0)), None);
}

#[test]
fn a_bond_gives_a_single_flow_one_link() {
    let one = ethernet(&EthernetPath::plain(BitRate::from_mbit_per_s(25_000), 1500));
    let one = one.value().expect("a bound");
    let two = [one.clone(), one.clone()];
    let rate = |flows| bond(&two, flows).map(|c| c.bit_per_s.to_string());
    assert_eq!(rate(1).as_deref(), Some("23.54 Gb/s"));
    assert_eq!(rate(8).as_deref(), Some("47.07 Gb/s"));
    assert_eq!(bond(&[], 8), None);
}

#[test]
fn a_provider_bounds_each_flow_and_all_of_them() {
    let gbit = |rate: u64| BitRate::from_mbit_per_s(rate * 1000);
    let one = allowance(gbit(50), Some(gbit(5)), 1);
    assert_eq!(one.bit_per_s, gbit(5));
    assert_eq!(allowance(gbit(50), Some(gbit(5)), 64).bit_per_s, gbit(50));
}

#[test]
fn both_ends_on_two_cpus_copy_each_byte_twice() {
    let one = BitRate::from_mbit_per_s(80_000);
    assert_eq!(copy(one, 1, None).bit_per_s, one);
    assert_eq!(copy(one, 4, Some(2)).bit_per_s, one);
    assert_eq!(
        copy(one, 2, Some(64)).bit_per_s,
        BitRate::from_mbit_per_s(160_000)
    );
}

#[test]
fn datagrams_fill_a_link_less_the_smaller_they_are() {
    let of = |datagram, mtu, ipv6| {
        let path = EthernetPath {
            datagram_bytes: Some(datagram),
            ipv6,
            ..EthernetPath::plain(BitRate::from_mbit_per_s(10_000), mtu)
        };
        ethernet(&path).value().expect("a bound").bit_per_s.as_f64() / 1e9
    };
    let near = |given: f64, expected: f64| assert!((given - expected).abs() < 1e-3, "{given}");
    near(of(1472, 1500, false), 10.0 * 1472.0 / 1538.0);
    near(of(64, 1500, false), 10.0 * 64.0 / 130.0);
    near(of(1452, 1500, true), 10.0 * 1452.0 / 1538.0);
    // 65,507 + 8 bytes in 45 fragments of 1,480.
    near(
        of(65_507, 1500, false),
        10.0 * 65_507.0 / (65_515.0 + 45.0 * 58.0),
    );
}
