//! Read-only data of a port: a veth in a namespace, and devices that do not exist.

use linerate_host::nic_control::NicRead;
use linerate_model::known::{Cause, Known};

use crate::lab::{in_lab, name, tool};

#[test]
fn a_veth_tells_its_driver_its_speed_and_its_counters_and_has_no_module() {
    in_lab(|lab| {
        let card = lab.netlink.card(&lab.nic);
        assert_eq!(card.driver, Known::Value("veth".to_owned()));
        let wire = lab.netlink.wire(&lab.nic);
        let modes = wire.modes.value().expect("a veth has modes");
        let speed = modes.speed_bit_per_s.get().expect("a veth says 10 Gbit/s");
        let duplex = modes.duplex.value().expect("a veth is full duplex");
        if let Some(text) = tool(&format!("ethtool {}", lab.nic)) {
            let mbit = speed.as_bit_per_s() / 1_000_000;
            assert!(text.contains(&format!("Speed: {mbit}Mb/s")), "{text}");
            assert!(
                text.to_lowercase().contains(&format!("duplex: {duplex}")),
                "{text}"
            );
        }
        assert!(
            wire.state
                .value()
                .is_some_and(|state| state.link.get().is_some())
        );
        assert!(wire.timestamping.value().is_some());
        for cause in [
            wire.fec.gap().map(|gap| gap.cause),
            wire.pause.gap().map(|gap| gap.cause),
            wire.eee.gap().map(|gap| gap.cause),
        ] {
            assert_eq!(cause, Some(Cause::Absent));
        }
        let module = wire.module.gap().map(|gap| gap.cause);
        assert!(
            matches!(module, Some(Cause::Absent | Cause::Denied)),
            "{module:?}"
        );
        let counts = lab.netlink.counts(&lab.nic);
        assert!(
            counts.values.contains_key("driver/peer_ifindex"),
            "{counts:?}"
        );
        for group in ["fec", "pause", "phy", "mac", "ctrl", "rmon", "link"] {
            assert!(counts.gaps.contains_key(group), "{group}: {counts:?}");
        }
    });
}

#[test]
fn a_veth_has_no_redirection_table_and_no_private_flags() {
    in_lab(|lab| {
        let dispatch = lab.netlink.dispatch(&lab.nic);
        for cause in [
            dispatch.rss.gap().map(|gap| gap.cause),
            dispatch.private_flags.gap().map(|gap| gap.cause),
            dispatch.tunnel_ports.gap().map(|gap| gap.cause),
            dispatch.queue_coalesce.gap().map(|gap| gap.cause),
            dispatch.tcp_data_split.gap().map(|gap| gap.cause),
        ] {
            assert_eq!(cause, Some(Cause::Absent));
        }
    });
}

#[test]
fn an_interface_that_does_not_exist_is_a_gap_everywhere() {
    in_lab(|lab| {
        let none = name("nosuch0");
        let card = lab.netlink.card(&none);
        assert_eq!(card.driver.gap().map(|gap| gap.cause), Some(Cause::Absent));
        let wire = lab.netlink.wire(&none);
        assert_eq!(wire.modes.gap().map(|gap| gap.cause), Some(Cause::Absent));
        let counts = lab.netlink.counts(&none);
        assert!(counts.values.is_empty() && counts.gaps.contains_key("driver"));
    });
}
