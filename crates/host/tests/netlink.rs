//! Netlink on a real kernel: linerate reads the same values as `ip`, `tc` and `ethtool`, and they see the values that
//! it sets.

#![expect(
    clippy::disallowed_methods,
    reason = "a test starts programs and reads its own environment"
)]

#[path = "netlink/addresses.rs"]
mod addresses;
#[path = "netlink/class_rules.rs"]
mod class_rules;
#[path = "netlink/ethtool.rs"]
mod ethtool;
#[path = "netlink/events.rs"]
mod events;
#[path = "netlink/facts.rs"]
mod facts;
#[path = "netlink/hierarchy.rs"]
mod hierarchy;
#[path = "netlink/lab.rs"]
mod lab;
#[path = "netlink/qdisc.rs"]
mod qdisc;
#[path = "netlink/stack.rs"]
mod stack;
#[path = "netlink/wire.rs"]
mod wire;

use std::io;
use std::os::fd::AsFd;

use linerate_host::netlink::{Netlink, NetlinkError};
use linerate_host::nic_control::{NicRead, NicValue, NicWrite, Scalar};
use linerate_model::host::{NicKind, Qdisc};
use linerate_model::known::Cause;
use linerate_model::setting::EthtoolRequest;
use linerate_model::setting::numbers::ethtool::CHANNELS_RX;

use lab::{in_lab, json, name, skip};

#[test]
fn addresses_kind_and_mtu_are_those_that_ip_prints() {
    in_lab(|lab| {
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
        let Some(theirs) = json(&format!("ip -j addr show dev {}", lab.nic)) else {
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
    in_lab(|lab| {
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
    });
}

#[test]
fn kinds_of_link_are_told_apart() {
    in_lab(|lab| {
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

#[test]
fn an_open_netlink_stays_in_its_namespace_and_may_go_to_another_thread() {
    in_lab(|lab| {
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
    });
}

#[test]
fn a_dump_of_many_parts_is_read_whole() {
    in_lab(|lab| {
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

#[test]
fn without_the_right_to_change_reading_works_and_changing_is_denied() {
    in_lab(|lab| {
        use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
        let none = CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        };
        set_capabilities(None, none).expect("a thread may give up what it has");
        assert_eq!(lab.netlink.kind(&lab.nic).get(), Some(NicKind::Veth));
        assert!(lab.netlink.qdisc(&lab.nic).value().is_some());
        assert!(lab.netlink.features(&lab.nic).value().is_some());
        assert!(lab.netlink.channels(&lab.nic).value().is_some());
        let shaper = Qdisc::plain("pfifo");
        let one = Scalar::Number(1);
        let channels = NicValue::Ethtool(EthtoolRequest::Channels, CHANNELS_RX, one);
        for error in [
            lab.netlink.set_mtu(&lab.nic, 1400),
            lab.netlink.set_qdisc(&lab.nic, &shaper),
            lab.netlink
                .set_feature(&lab.nic, "tx-tcp-segmentation", false),
            lab.netlink.set_value(&lab.nic, &channels),
        ] {
            let error = error.expect_err("not allowed");
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        }
    });
}

/// The numbers after `label` in a tool's output, in order; anything else is none.
fn numbers(text: &str, label: &str) -> Vec<Option<u32>> {
    let value = |line: &str| Some(line.trim().strip_prefix(label)?.trim().parse().ok());
    text.lines().filter_map(value).collect()
}

#[test]
fn the_interfaces_of_this_host_are_read_as_the_tools_read_them() {
    let Ok(links) = std::process::Command::new("ip")
        .args(["-j", "link"])
        .output()
    else {
        return skip("`ip` is not installed");
    };
    let links: Vec<serde_json::Value> = serde_json::from_slice(&links.stdout).expect("JSON");
    let netlink = Netlink::open().expect("reading needs no right");
    let mut with_rings = 0;
    for link in &links {
        let nic = name(link["ifname"].as_str().expect("every link has a name"));
        if let Some(qdisc) = netlink.qdisc(&nic).value() {
            assert_eq!(link["qdisc"].as_str(), Some(qdisc.kind.as_str()), "{nic}");
        }
        let ethtool = |switch: &str| {
            let output = std::process::Command::new("ethtool")
                .args([switch, nic.as_str()])
                .output()
                .ok()?;
            let text = String::from_utf8(output.stdout).ok()?;
            output.status.success().then_some(text)
        };
        if let (Some(rings), Some(text)) = (netlink.rings(&nic).value(), ethtool("-g")) {
            assert_eq!(
                numbers(&text, "RX:"),
                [rings.rx_max.get(), rings.rx.get()],
                "{nic}"
            );
            assert_eq!(
                numbers(&text, "TX:"),
                [rings.tx_max.get(), rings.tx.get()],
                "{nic}"
            );
            with_rings += 1;
        }
        if let (Some(channels), Some(text)) = (netlink.channels(&nic).value(), ethtool("-l")) {
            let combined = [channels.combined_max.get(), channels.combined.get()];
            assert_eq!(numbers(&text, "Combined:"), combined, "{nic}");
        }
        if let (Some(coalesce), Some(text)) = (netlink.coalesce(&nic).value(), ethtool("-c")) {
            assert_eq!(
                numbers(&text, "rx-usecs:"),
                [coalesce.rx_usecs.get()],
                "{nic}"
            );
            assert_eq!(
                numbers(&text, "tx-usecs:"),
                [coalesce.tx_usecs.get()],
                "{nic}"
            );
        }
    }
    if with_rings == 0 {
        skip("no interface here has rings that `ethtool` shows");
    }
}
