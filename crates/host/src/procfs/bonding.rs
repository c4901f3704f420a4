//! A bond's ports from its text file, `/proc/net/bonding/BOND` (Documentation/networking/bonding.rst), for kernels
//! before 3.15, which do not show ports in sysfs.

use linerate_model::host::BondPort;
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Known};

use crate::root::{HostRoot, absolute};

/// The data of a bond's port; `None` if there is no such bond or port.
pub(crate) fn read_bonding_port(
    root: &HostRoot,
    bond: &NicName,
    port: &NicName,
) -> Option<BondPort> {
    let path = format!("proc/net/bonding/{bond}");
    let text = root.read(&path);
    let found = parse_bonding_port(text.value()?, port.as_str())?;
    Some(BondPort {
        bond: Known::Value(bond.clone()),
        state: or_gap(found.state, &path, "the mode has no active slave"),
        mii_status: or_gap(found.mii_status, &path, "the file has no MII status"),
        aggregator: or_gap(found.aggregator, &path, "the mode has no aggregators"),
        link_failures: or_gap(found.link_failures, &path, "the file has no failure count"),
    })
}

fn or_gap<T>(value: Option<T>, path: &str, why: &str) -> Known<T> {
    value.map_or_else(
        || Known::unknown(Cause::NotSaid, absolute(path), why),
        Known::Value,
    )
}

/// A port's paragraph.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Paragraph {
    state: Option<String>,
    mii_status: Option<String>,
    aggregator: Option<u32>,
    link_failures: Option<u64>,
}

/// Paragraphs of `key: value` lines: the bond's own first, then one for each port, which begins with `Slave
/// Interface: eth0`.
pub(crate) fn parse_bonding_port(text: &str, port: &str) -> Option<Paragraph> {
    let mut active = None;
    let mut current = None;
    let mut found: Option<Paragraph> = None;
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let (key, value) = (key.trim(), value.trim());
        match key {
            "Currently Active Slave" => active = Some(value),
            "Slave Interface" => current = Some(value),
            _ => {}
        }
        if current != Some(port) {
            continue;
        }
        let found = found.get_or_insert_default();
        match key {
            "MII Status" => found.mii_status = Some(value.to_owned()),
            "Link Failure Count" => found.link_failures = value.parse().ok(),
            "Aggregator ID" => found.aggregator = value.parse().ok(),
            _ => {}
        }
    }
    let mut found = found?;
    found.state = active.map(|active| {
        let is_active = active == port;
        if is_active { "active" } else { "backup" }.to_owned()
    });
    Some(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "\
Ethernet Channel Bonding Driver: v3.7.1 (April 27, 2011)

Bonding Mode: fault-tolerance (active-backup)
Currently Active Slave: eth0
MII Status: up

Slave Interface: eth0
MII Status: up
Link Failure Count: 0
Permanent HW addr: 00:00:5e:00:53:01

Slave Interface: eth1
MII Status: down
Link Failure Count: 3
Aggregator ID: 2
";

    #[test]
    fn a_ports_paragraph_is_its_own() {
        let eth1 = parse_bonding_port(TEXT, "eth1").expect("a port");
        assert_eq!(eth1.state.as_deref(), Some("backup"));
        assert_eq!(eth1.mii_status.as_deref(), Some("down"));
        assert_eq!((eth1.aggregator, eth1.link_failures), (Some(2), Some(3)));
        let eth0 = parse_bonding_port(TEXT, "eth0").expect("a port");
        assert_eq!(eth0.state.as_deref(), Some("active"));
        assert_eq!((eth0.aggregator, eth0.link_failures), (None, Some(0)));
        assert_eq!(parse_bonding_port(TEXT, "eth2"), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(lines in proptest::collection::vec("(Slave Interface|MII Status)?:? ?.{0,12}", 0..8)) {
            let _ = parse_bonding_port(&lines.join("\n"), "eth0");
        }
    }
}
