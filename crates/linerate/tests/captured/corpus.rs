//! Real machines of other projects (`LINERATE_CORPUS`, or `shared/corpus` beside the workspace): every
//! one maps in every form and is judged without a panic. They are not part of the repository.

use super::archives::corpus;
use super::documents::document;
use super::map::every_form_of;
use super::program::on;

#[test]
fn every_real_machine_maps_in_every_form() {
    for host in corpus() {
        let map = every_form_of(&host);
        let cpus = map["host"]["cpus"].as_array().expect("a list");
        assert!(!cpus.is_empty(), "{host:?}");
    }
}

/// Expected findings on machines that were inspected by hand: rules and severities.
type Said = &'static [(&'static str, &'static str)];

const LOOKED_AT: [(&str, Said); 2] = [
    // Its on-board X722 reports 2.5 GT/s x1 for a port of 1 Gb/s: narrow, but sufficient for the port.
    (
        "32intel64-2p8co2t+8ve.tar.bz2",
        &[("pcie-link-degraded", "note")],
    ),
    // Four nodes, and `numa_node` of its Ethernet ports is -1; `ib0` is in connected mode.
    (
        "40intel64-2g2n4c+pcilocality.tar.bz2",
        &[("nic-numa-unknown", "note"), ("ipoib-mode-mtu", "note")],
    ),
];

/// None of these machines is known to be faulty: each finding of an error or a cost must have been inspected.
#[test]
fn no_real_machine_gets_a_warning_that_nobody_looked_at() {
    for host in corpus() {
        let ended = on(&host, &["doctor", "--fail-on", "note", "--format", "json"]);
        let code = ended.code;
        let said = document(&ended.out);
        let findings = said["findings"].as_array().expect("a list");
        let found: Vec<(&str, &str)> = findings
            .iter()
            .filter_map(|one| Some((one["rule"].as_str()?, one["severity"].as_str()?)))
            .collect();
        let file = host.file_name().and_then(|name| name.to_str());
        let looked_at = LOOKED_AT
            .iter()
            .find(|(name, _)| Some(*name) == file)
            .map_or(&[][..], |(_, findings)| *findings);
        assert_eq!(found, looked_at, "{host:?}");
        assert_eq!(
            code,
            Some(if found.is_empty() { 0 } else { 10 }),
            "{host:?}"
        );
    }
}

#[test]
fn a_machine_of_which_no_interface_is_known_is_not_called_clean() {
    for host in corpus() {
        let map = document(&on(&host, &["map", "--format", "json"]).with_code(0));
        if map["host"]["nics"]
            .as_array()
            .is_some_and(|nics| !nics.is_empty())
        {
            continue;
        }
        let said = document(&on(&host, &["doctor", "--format", "json"]).with_code(0));
        let unsure: Vec<&str> = said["undetermined"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|one| one["rule"].as_str())
            .collect();
        for rule in [
            "qdisc-shaper",
            "pcie-link-degraded",
            "tx-segmentation-or-csum-off",
        ] {
            assert!(
                unsure.contains(&rule),
                "{host:?}: {rule} not among {unsure:?}"
            );
        }
    }
}
