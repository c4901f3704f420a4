//! Netlink against a real kernel: what linerate reads is what `ip`, `tc` and `ethtool` read, and what
//! it sets they see.

#[path = "netlink/lab.rs"]
mod lab;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;

use linerate_host::netlink::{Netlink, NetlinkError};
use linerate_host::nic_control::{NicRead, NicWrite, Pair};
use linerate_model::host::{NicKind, Qdisc};
use linerate_model::known::Cause;
use linerate_model::units::{BitRate, Bytes};

use lab::{Lab, in_lab, name, skip};

#[test]
fn features_are_those_that_ethtool_prints() {
    in_lab("features_are_those_that_ethtool_prints", |lab| {
        let ours: BTreeMap<String, (bool, bool)> = lab
            .netlink
            .features(&lab.nic)
            .value()
            .expect("every device has features")
            .iter()
            .map(|(name, feature)| (name.clone(), (feature.active, feature.changeable)))
            .collect();
        assert!(ours["tx-tcp-segmentation"].0 && ours["tx-tcp-segmentation"].1);
        assert!(!ours["tx-checksum-ipv4"].1, "a veth holds it off");
        if let Some(theirs) = ethtool_features(lab) {
            for (name, feature) in &theirs {
                assert_eq!(ours.get(name), Some(feature), "{name}");
            }
            assert!(theirs.len() > 20, "{theirs:?}");
        }
    });
}

/// `ethtool -k` by kernel name. Its own umbrella names (`tcp-segmentation-offload`) stand for several
/// features, those with one feature are translated.
fn ethtool_features(lab: &Lab) -> Option<BTreeMap<String, (bool, bool)>> {
    const ONE: [(&str, &str); 8] = [
        ("generic-segmentation-offload", "tx-generic-segmentation"),
        ("generic-receive-offload", "rx-gro"),
        ("large-receive-offload", "rx-lro"),
        ("rx-vlan-offload", "rx-vlan-hw-parse"),
        ("tx-vlan-offload", "tx-vlan-hw-insert"),
        ("ntuple-filters", "rx-ntuple-filter"),
        ("receive-hashing", "rx-hashing"),
        ("rx-checksumming", "rx-checksum"),
    ];
    const SEVERAL: [&str; 3] = [
        "tx-checksumming",
        "scatter-gather",
        "tcp-segmentation-offload",
    ];
    let text = lab.tool(&format!("ethtool -k {}", lab.nic))?;
    let line = |line: &str| {
        let (name, state) = line.trim().split_once(": ")?;
        let kernel = ONE.iter().find(|(own, _)| *own == name);
        let name = kernel.map_or(name, |(_, kernel)| kernel).to_owned();
        let feature = (state.starts_with("on"), !state.contains("[fixed]"));
        (!SEVERAL.contains(&name.as_str())).then_some((name, feature))
    };
    Some(text.lines().skip(1).filter_map(line).collect())
}

#[test]
fn a_feature_that_is_switched_is_seen_switched_by_ethtool() {
    in_lab(
        "a_feature_that_is_switched_is_seen_switched_by_ethtool",
        |lab| {
            for feature in ["tx-tcp-segmentation", "tx-generic-segmentation"] {
                for on in [false, true] {
                    lab.netlink
                        .set_feature(&lab.nic, feature, on)
                        .expect("a veth lets it be switched");
                    let ours = lab.netlink.features(&lab.nic);
                    assert_eq!(ours.value().expect("features")[feature].active, on);
                    if let Some(theirs) = ethtool_features(lab) {
                        assert_eq!(theirs[feature].0, on, "{feature}");
                    }
                }
            }
        },
    );
}

#[test]
fn a_feature_the_driver_holds_or_nobody_knows_is_an_error_and_changes_nothing() {
    in_lab(
        "a_feature_the_driver_holds_or_nobody_knows_is_an_error_and_changes_nothing",
        |lab| {
            let before = lab.netlink.features(&lab.nic);
            let fixed = lab
                .netlink
                .set_feature(&lab.nic, "rx-fcs", true)
                .expect_err("a veth has no frame check sequence");
            assert!(fixed.to_string().contains("rx-fcs"), "{fixed}");
            let unknown = lab
                .netlink
                .set_feature(&lab.nic, "warp", true)
                .expect_err("no such feature");
            assert!(
                unknown.to_string().contains("bit name not found"),
                "{unknown}"
            );
            assert_eq!(lab.netlink.features(&lab.nic), before);
        },
    );
}

#[test]
fn channels_are_read_and_set_and_too_many_are_refused_in_the_kernels_words() {
    in_lab(
        "channels_are_read_and_set_and_too_many_are_refused_in_the_kernels_words",
        |lab| {
            let channels = lab.netlink.channels(&lab.nic);
            let channels = channels.value().expect("a veth has channels");
            assert_eq!(channels.rx.get(), Some(1));
            let most = channels.rx_max.get().expect("a veth has a maximum");
            assert_eq!(
                channels.combined.gap().map(|gap| gap.cause),
                Some(Cause::Absent)
            );
            if let Some(text) = lab.tool(&format!("ethtool -l {}", lab.nic)) {
                let rx: Vec<&str> = text
                    .lines()
                    .filter(|line| line.starts_with("RX:"))
                    .collect();
                assert_eq!(rx, [format!("RX:\t\t{most}").as_str(), "RX:\t\t1"]);
            }
            let rx = |count| Pair {
                rx: Some(count),
                ..Pair::default()
            };
            lab.netlink
                .set_channels(&lab.nic, rx(most))
                .expect("the maximum is allowed");
            let now = lab.netlink.channels(&lab.nic);
            assert_eq!(now.value().expect("channels").rx.get(), Some(most));
            let error = lab
                .netlink
                .set_channels(&lab.nic, rx(99_999))
                .expect_err("beyond the maximum");
            assert!(
                error
                    .to_string()
                    .contains("requested channel count exceeds maximum"),
                "{error}"
            );
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            let inner = NetlinkError::of(&error).expect("a netlink error");
            assert_eq!(inner.raw_os_error(), Some(libc::EINVAL));
        },
    );
}

#[test]
fn rings_and_coalescing_are_what_ethtool_says_or_absent_where_it_says_unsupported() {
    in_lab(
        "rings_and_coalescing_are_what_ethtool_says_or_absent_where_it_says_unsupported",
        |lab| {
            let coalesce = lab.netlink.coalesce(&lab.nic);
            assert_eq!(coalesce.gap().map(|gap| gap.cause), Some(Cause::Absent));
            let rings = lab.netlink.rings(&lab.nic);
            assert_eq!(rings.gap().map(|gap| gap.cause), Some(Cause::Absent));
            let error = lab
                .netlink
                .set_coalesce(&lab.nic, Some(5), None, None)
                .expect_err("a veth has no interrupts");
            assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        },
    );
}

#[test]
fn addresses_kind_and_mtu_are_those_that_ip_prints() {
    in_lab("addresses_kind_and_mtu_are_those_that_ip_prints", |lab| {
        for address in ["10.9.0.1/24", "10.9.0.2/24", "fd00:9::1/64"] {
            lab.netlink
                .add_address(&lab.nic, address)
                .expect("a new address");
        }
        lab.netlink
            .set_mtu(&lab.nic, 9000)
            .expect("a veth takes it");
        assert_eq!(lab.netlink.kind(&lab.nic).get(), Some(NicKind::Veth));
        assert_eq!(lab.netlink.kind(&name("lo")).get(), Some(NicKind::Loopback));
        let ours = lab.netlink.addresses(&lab.nic);
        let ours = ours.value().expect("addresses");
        assert_eq!(ours[..2], ["10.9.0.1/24", "10.9.0.2/24"]);
        assert!(ours.iter().any(|own| own == "fd00:9::1/64"), "{ours:?}");
        let Some(theirs) = lab.json(&format!("ip -j addr show dev {}", lab.nic)) else {
            return;
        };
        assert_eq!(theirs[0]["mtu"], 9000);
        let theirs: Vec<String> = theirs[0]["addr_info"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|info| {
                format!(
                    "{}/{}",
                    info["local"].as_str().expect("text"),
                    info["prefixlen"]
                )
            })
            .collect();
        assert_eq!(*ours, theirs);
    });
}

#[test]
fn wrong_addresses_and_unknown_interfaces_are_said_to_be_so() {
    in_lab(
        "wrong_addresses_and_unknown_interfaces_are_said_to_be_so",
        |lab| {
            for wrong in ["10.9.0.1", "10.9.0.1/33", "fd00::1/129", "x/24", ""] {
                let error = lab
                    .netlink
                    .add_address(&lab.nic, wrong)
                    .expect_err("not an address with a prefix");
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
            }
            let nobody = name("nobody0");
            for gap in [
                lab.netlink.kind(&nobody).gap(),
                lab.netlink.addresses(&nobody).gap(),
                lab.netlink.features(&nobody).gap(),
                lab.netlink.rings(&nobody).gap(),
                lab.netlink.qdisc(&nobody).gap(),
            ] {
                assert_eq!(gap.map(|gap| gap.cause), Some(Cause::Absent), "{gap:?}");
            }
            let error = lab
                .netlink
                .set_mtu(&nobody, 1500)
                .expect_err("nobody there");
            let inner = NetlinkError::of(&error).expect("a netlink error");
            assert_eq!(inner.raw_os_error(), Some(libc::ENODEV));
        },
    );
}

#[test]
fn kinds_of_link_are_told_apart() {
    in_lab("kinds_of_link_are_told_apart", |lab| {
        for (line, nic, kind) in [
            ("bridge", "b0", NicKind::Bridge),
            ("macvlan", "m0", NicKind::Macvlan),
            ("ipvlan", "i0", NicKind::Macvlan),
            ("vxlan id 1 dstport 4789", "v0", NicKind::Tunnel),
            ("vlan id 5", "n0", NicKind::Vlan),
            ("bond", "o0", NicKind::Bond),
            ("ifb", "f0", NicKind::Other),
        ] {
            let parent = if kind == NicKind::Macvlan || kind == NicKind::Vlan {
                "link near0"
            } else {
                ""
            };
            let line = format!("link add {nic} {parent} type {line}");
            let made = std::process::Command::new("ip")
                .args(line.split_whitespace())
                .output();
            match made {
                Ok(output) if output.status.success() => {
                    assert_eq!(lab.netlink.kind(&name(nic)).get(), Some(kind), "{line}");
                    lab.netlink.delete_link(&name(nic)).expect("it was made");
                    assert!(lab.netlink.kind(&name(nic)).gap().is_some());
                }
                Ok(output) => skip(&format!(
                    "`ip {line}`: {}",
                    String::from_utf8_lossy(&output.stderr).trim()
                )),
                Err(_) => return skip("`ip` is not installed"),
            }
        }
    });
}

/// What `tc qdisc show` prints of the near end.
fn shown(lab: &Lab) -> Option<String> {
    lab.tool(&format!("tc qdisc show dev {}", lab.nic))
}

#[test]
fn a_shaper_made_by_tc_is_taken_away_and_put_back_byte_for_byte() {
    in_lab(
        "a_shaper_made_by_tc_is_taken_away_and_put_back_byte_for_byte",
        |lab| {
            let plain = lab.netlink.qdisc(&lab.nic);
            assert_eq!(plain.value(), Some(&Qdisc::plain("noqueue")));
            for (options, rate) in [
                (
                    "handle 8001: root tbf rate 100mbit burst 32k limit 100k",
                    BitRate::from_mbit_per_s(100),
                ),
                (
                    "root tbf rate 1gbit burst 128k latency 50ms peakrate 2gbit mtu 2000",
                    BitRate::from_mbit_per_s(1_000),
                ),
                (
                    "handle a: root tbf rate 50gbit burst 1m limit 10m",
                    BitRate::from_mbit_per_s(50_000),
                ),
                (
                    "handle b: root tbf rate 7mbit burst 12345 limit 54321 overhead 24 mpu 64 linklayer atm",
                    BitRate::from_mbit_per_s(7),
                ),
            ] {
                let Some(before_shaper) = shown(lab) else {
                    return;
                };
                lab.tool(&format!("tc qdisc replace dev {} {options}", lab.nic));
                let before = shown(lab).expect("tc is here");
                let shaper = lab.netlink.qdisc(&lab.nic);
                let shaper = shaper.value().expect("a shaper");
                assert_eq!(shaper.kind, "tbf");
                assert_eq!(shaper.rate_bit_per_s, Some(rate), "{options}");

                let plain = plain.value().expect("it was read");
                lab.netlink.set_qdisc(&lab.nic, plain).expect("taken away");
                assert_eq!(shown(lab).expect("tc is here"), before_shaper);
                assert_eq!(lab.netlink.qdisc(&lab.nic).value(), Some(plain));

                lab.netlink.set_qdisc(&lab.nic, shaper).expect("put back");
                assert_eq!(shown(lab).expect("tc is here"), before, "{options}");
                assert_eq!(lab.netlink.qdisc(&lab.nic).value(), Some(shaper));
                lab.netlink.set_qdisc(&lab.nic, plain).expect("taken away");
            }
        },
    );
}

#[test]
fn one_shaper_takes_the_place_of_another_under_the_same_handle() {
    in_lab(
        "one_shaper_takes_the_place_of_another_under_the_same_handle",
        |lab| {
            let put = |rate, handle| {
                let (burst, limit) = (Bytes::kib(64), Bytes::kib(256));
                lab.netlink
                    .add_tbf(
                        &lab.nic,
                        BitRate::from_mbit_per_s(rate),
                        burst,
                        limit,
                        handle,
                    )
                    .expect("a veth takes a shaper");
                let now = lab.netlink.qdisc(&lab.nic);
                now.value().expect("a qdisc").clone()
            };
            let slow = put(100, 0x8001_0000);
            assert_eq!(slow.rate_bit_per_s, Some(BitRate::from_mbit_per_s(100)));
            let fast = put(40_000, 0x8001_0000);
            assert_eq!(fast.rate_bit_per_s, Some(BitRate::from_mbit_per_s(40_000)));
            let fifo = Qdisc {
                kind: "pfifo".to_owned(),
                handle: 0x8001_0000,
                rate_bit_per_s: None,
                options: "e8030000".to_owned(),
            };
            for wanted in [&slow, &fifo, &fast, &slow, &slow] {
                lab.netlink
                    .set_qdisc(&lab.nic, wanted)
                    .expect("in its place");
                assert_eq!(lab.netlink.qdisc(&lab.nic).value(), Some(wanted));
            }
        },
    );
}

#[test]
fn the_shaper_of_a_testbed_is_the_one_tc_would_have_made() {
    in_lab(
        "the_shaper_of_a_testbed_is_the_one_tc_would_have_made",
        |lab| {
            lab.netlink
                .add_tbf(
                    &lab.nic,
                    BitRate::from_mbit_per_s(500),
                    Bytes::kib(128),
                    Bytes::kib(512),
                    0x8001_0000,
                )
                .expect("a veth takes a shaper");
            let Some(ours) = shown(lab) else { return };
            let device = &lab.nic;
            lab.tool(&format!("tc qdisc del dev {device} root"));
            lab.tool(&format!(
                "tc qdisc add dev {device} handle 8001: root tbf rate 500mbit burst 128k limit 512k"
            ));
            assert_eq!(ours, shown(lab).expect("tc is here"));
        },
    );
}

#[test]
fn a_root_with_classes_is_read_but_never_replaced() {
    in_lab("a_root_with_classes_is_read_but_never_replaced", |lab| {
        let device = &lab.nic;
        if lab
            .tool(&format!(
                "tc qdisc add dev {device} handle 1: root htb default 10"
            ))
            .is_none()
        {
            return;
        }
        let rate = || {
            lab.netlink
                .qdisc(&lab.nic)
                .value()
                .expect("a root")
                .rate_bit_per_s
        };
        assert_eq!(rate(), None, "without a class nothing is shaped");
        lab.tool(&format!(
            "tc class add dev {device} parent 1: classid 1:10 htb rate 50mbit quantum 1514"
        ));
        assert_eq!(rate(), Some(BitRate::from_mbit_per_s(50)));
        lab.tool(&format!(
            "tc class add dev {device} parent 1: classid 1:11 htb rate 9gbit quantum 1514"
        ));
        assert_eq!(rate(), None, "two classes have no single rate");
        let before = shown(lab);
        let error = lab
            .netlink
            .set_qdisc(&lab.nic, &Qdisc::plain("noqueue"))
            .expect_err("its classes would be lost");
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(
            error.to_string().contains("could not be put back"),
            "{error}"
        );
        assert_eq!(shown(lab), before);
    });
}

#[test]
fn children_of_a_root_are_not_thrown_away() {
    in_lab("children_of_a_root_are_not_thrown_away", |lab| {
        let device = &lab.nic;
        let refused = |what: &str| {
            let error = lab
                .netlink
                .set_qdisc(&lab.nic, &Qdisc::plain("noqueue"))
                .expect_err("something would be lost");
            assert!(error.to_string().contains(what), "{error}");
        };
        let shaper = format!(
            "tc qdisc replace dev {device} handle 1: root tbf rate 1gbit burst 64k limit 1m"
        );
        if lab.tool(&shaper).is_none() {
            return;
        }
        lab.tool(&format!(
            "tc qdisc add dev {device} parent 1:1 handle 2: pfifo limit 7"
        ));
        refused("has a child `pfifo`");
    });
}

#[test]
fn a_qdisc_the_kernel_does_not_have_is_an_error_in_its_words() {
    in_lab(
        "a_qdisc_the_kernel_does_not_have_is_an_error_in_its_words",
        |lab| {
            let error = lab
                .netlink
                .set_qdisc(&lab.nic, &Qdisc::plain("no_such_qdisc"))
                .expect_err("no such kind");
            assert!(error.to_string().contains("qdisc"), "{error}");
            assert!(
                NetlinkError::of(&error)
                    .and_then(NetlinkError::kernel_message)
                    .is_some()
            );
            let odd = Qdisc {
                options: "abc".to_owned(),
                ..Qdisc::plain("pfifo")
            };
            let error = lab
                .netlink
                .set_qdisc(&lab.nic, &odd)
                .expect_err("half a byte");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            let long = Qdisc {
                options: "00".repeat(70_000),
                ..Qdisc::plain("pfifo")
            };
            let error = lab.netlink.set_qdisc(&lab.nic, &long).expect_err("70 kB");
            assert!(error.to_string().contains("64 KiB"), "{error}");
            assert_eq!(
                lab.netlink.qdisc(&lab.nic).value(),
                Some(&Qdisc::plain("noqueue"))
            );
        },
    );
}

#[test]
fn an_interface_that_is_down_has_a_root_too() {
    in_lab("an_interface_that_is_down_has_a_root_too", |lab| {
        let (down, other) = (name("down0"), name("down1"));
        lab.netlink
            .create_veth(&down, &other, lab.far.as_fd())
            .expect("a second pair");
        assert_eq!(
            lab.netlink.qdisc(&down).value(),
            Some(&Qdisc::plain("noop"))
        );
        let again = lab
            .netlink
            .create_veth(&down, &other, lab.far.as_fd())
            .expect_err("it is there");
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists, "{again}");
    });
}

#[test]
fn an_open_netlink_stays_in_its_namespace_and_may_go_to_another_thread() {
    in_lab(
        "an_open_netlink_stays_in_its_namespace_and_may_go_to_another_thread",
        |lab| {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let far = Some(rustix::thread::LinkNameSpaceType::Network);
                    rustix::thread::move_into_link_name_space(lab.far.as_fd(), far)
                        .expect("our own namespace");
                    let there = Netlink::open().expect("a second one");
                    assert_eq!(there.kind(&name("far0")).get(), Some(NicKind::Veth));
                    assert!(there.kind(&lab.nic).gap().is_some());
                    assert_eq!(lab.netlink.kind(&lab.nic).get(), Some(NicKind::Veth));
                });
            });
        },
    );
}

#[test]
fn a_dump_of_many_parts_is_read_whole() {
    in_lab("a_dump_of_many_parts_is_read_whole", |lab| {
        for host in 0..=u8::MAX {
            for net in 0..3 {
                lab.netlink
                    .add_address(&lab.nic, &format!("10.{net}.1.{host}/32"))
                    .expect("a new address");
            }
        }
        let addresses = lab.netlink.addresses(&lab.nic);
        let addresses = addresses.value().expect("addresses");
        let v4 = addresses.iter().filter(|own| own.contains('.')).count();
        assert_eq!(v4, 3 * 256);
    });
}
