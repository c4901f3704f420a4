//! Features, channels, rings and coalescing, compared with `ethtool(8)`.

use std::collections::BTreeMap;
use std::io;

use linerate_host::netlink::NetlinkError;
use linerate_host::nic_control::{NicRead, NicValue, NicWrite, Scalar};
use linerate_model::ids::NicName;
use linerate_model::known::Cause;
use linerate_model::setting::EthtoolRequest;
use linerate_model::setting::numbers::ethtool;

use crate::lab::{in_lab, tool};

#[test]
fn features_are_those_that_ethtool_prints() {
    in_lab(|lab| {
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
        if let Some(theirs) = ethtool_features(&lab.nic) {
            for (name, feature) in &theirs {
                assert_eq!(ours.get(name), Some(feature), "{name}");
            }
            assert!(theirs.len() > 20, "{theirs:?}");
        }
    });
}

/// `ethtool -k` by kernel name. Its own group names (`tcp-segmentation-offload`) stand for several features; groups
/// with one feature are translated.
fn ethtool_features(nic: &NicName) -> Option<BTreeMap<String, (bool, bool)>> {
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
    let text = tool(&format!("ethtool -k {nic}"))?;
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
    in_lab(|lab| {
        for feature in ["tx-tcp-segmentation", "tx-generic-segmentation"] {
            for on in [false, true] {
                lab.netlink
                    .set_feature(&lab.nic, feature, on)
                    .expect("a veth lets it be switched");
                let ours = lab.netlink.features(&lab.nic);
                assert_eq!(ours.value().expect("features")[feature].active, on);
                if let Some(theirs) = ethtool_features(&lab.nic) {
                    assert_eq!(theirs[feature].0, on, "{feature}");
                }
            }
        }
    });
}

#[test]
fn a_feature_the_driver_holds_or_nobody_knows_is_an_error_and_changes_nothing() {
    in_lab(|lab| {
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
    });
}

#[test]
fn channels_are_read_and_set_and_too_many_are_refused_in_the_kernels_words() {
    in_lab(|lab| {
        let channels = lab.netlink.channels(&lab.nic);
        let channels = channels.value().expect("a veth has channels");
        assert_eq!(channels.rx.get(), Some(1));
        let most = channels.rx_max.get().expect("a veth has a maximum");
        assert_eq!(
            channels.combined.gap().map(|gap| gap.cause),
            Some(Cause::Absent)
        );
        if let Some(text) = tool(&format!("ethtool -l {}", lab.nic)) {
            let rx: Vec<&str> = text
                .lines()
                .filter(|line| line.starts_with("RX:"))
                .collect();
            assert_eq!(rx, [format!("RX:\t\t{most}").as_str(), "RX:\t\t1"]);
        }
        let rx = |count| {
            let count = Scalar::Number(count);
            NicValue::Ethtool(EthtoolRequest::Channels, ethtool::CHANNELS_RX, count)
        };
        lab.netlink
            .set_value(&lab.nic, &rx(most))
            .expect("the maximum is allowed");
        let now = lab.netlink.channels(&lab.nic);
        assert_eq!(now.value().expect("channels").rx.get(), Some(most));
        let error = lab
            .netlink
            .set_value(&lab.nic, &rx(99_999))
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
    });
}

#[test]
fn rings_and_coalescing_are_what_ethtool_says_or_absent_where_it_says_unsupported() {
    in_lab(|lab| {
        let coalesce = lab.netlink.coalesce(&lab.nic);
        assert_eq!(coalesce.gap().map(|gap| gap.cause), Some(Cause::Absent));
        let rings = lab.netlink.rings(&lab.nic);
        assert_eq!(rings.gap().map(|gap| gap.cause), Some(Cause::Absent));
        let usecs = NicValue::Ethtool(
            EthtoolRequest::Coalesce,
            ethtool::COALESCE_RX_USECS,
            Scalar::Number(5),
        );
        let error = lab
            .netlink
            .set_value(&lab.nic, &usecs)
            .expect_err("a veth has no interrupts");
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    });
}

#[test]
fn a_feature_that_another_holds_is_an_error_and_is_not_left_requested() {
    in_lab(|lab| {
        for feature in ["tx-tcp-segmentation", "tx-scatter-gather"] {
            lab.netlink
                .set_feature(&lab.nic, feature, false)
                .expect("a veth lets it be switched");
        }
        let text = || tool(&format!("ethtool -k {}", lab.nic));
        let before = text();
        let error = lab
            .netlink
            .set_feature(&lab.nic, "tx-tcp-segmentation", true)
            .expect_err("segments cannot be sent without scatter-gather");
        assert!(error.to_string().contains("another feature"), "{error}");
        assert_eq!(text(), before);
    });
}
