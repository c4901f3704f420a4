//! A VLAN's text file, `/proc/net/vlan/NAME` (net/8021q/vlanproc.c), readable by root.

use linerate_model::host::Vlan;
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Known};

use crate::attributes::{or_known, understood};
use crate::root::{HostRoot, absolute};

/// The prefixes of the lines that are used here; the others count packets.
const INGRESS: &str = "INGRESS priority mappings:";
const EGRESS: &str = "EGRESS priority mappings:";

/// Sets the fields that netlink left unknown.
pub(crate) fn fill_vlan(root: &HostRoot, nic: &NicName, known: Vlan) -> Vlan {
    let is_whole = known.id.value().is_some()
        && known.egress.value().is_some()
        && known.ingress.value().is_some();
    let path = format!("proc/net/vlan/{nic}");
    let text = if is_whole {
        Known::not_asked(absolute(&path))
    } else {
        root.read(&path).map(|text| used_vlan_lines(&text))
    };
    let mappings = |start: &'static str| {
        let text = text.clone();
        text.and_then(|text| understood(&path, &text, |text| parse_mappings(text, start)))
    };
    Vlan {
        id: or_known(known.id, || {
            text.clone()
                .and_then(|text| understood(&path, &text, parse_id))
        }),
        protocol: or_known(known.protocol, || {
            Known::unknown(
                Cause::NotAsked,
                absolute(&path),
                "not in this file; rtnetlink reports it",
            )
        }),
        ingress: or_known(known.ingress, || mappings(INGRESS)),
        egress: or_known(known.egress, || mappings(EGRESS)),
    }
}

/// The part of the text that is used here.
pub(crate) fn used_vlan_lines(text: &str) -> String {
    let used = |line: &&str| {
        line.contains(" VID: ") || line.starts_with(INGRESS) || line.trim().starts_with(EGRESS)
    };
    let lines: Vec<&str> = text.lines().filter(used).collect();
    lines.join("\n")
}

/// `eth0.100  VID: 100  REORDER_HDR: 1  dev->priv_flags: 1021`, with a tab somewhere.
pub(crate) fn parse_id(text: &str) -> Result<u32, &'static str> {
    text.lines()
        .find_map(|line| line.split_once(" VID: "))
        .and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok())
        .filter(|id| *id < 4096)
        .ok_or("expected `VID: N`")
}

/// `INGRESS priority mappings: 0:0  1:5 ...`. Mappings to 0 are left out, as in netlink.
pub(crate) fn parse_mappings(text: &str, start: &str) -> Result<Vec<(u32, u32)>, &'static str> {
    let wrong = "expected pairs such as `0:0`";
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(start))
        .ok_or("the mappings line is missing")?;
    let mut mappings = Vec::new();
    for pair in line.split_whitespace() {
        let (from, to) = pair.split_once(':').ok_or(wrong)?;
        let from = from.parse().map_err(|_| wrong)?;
        match to.parse().map_err(|_| wrong)? {
            0 => {}
            to => mappings.push((from, to)),
        }
    }
    Ok(mappings)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "\
eth0.100  VID: 100\t REORDER_HDR: 1  dev->priv_flags: 1021
         total frames received         7531
Device: eth0
INGRESS priority mappings: 0:0  1:0  2:3  3:0  4:0  5:0  6:0 7:0
 EGRESS priority mappings: 0:0 4:5 6:7 ";

    #[test]
    fn a_vlans_number_and_mappings_are_read_and_its_counters_left_out() {
        let text = used_vlan_lines(TEXT);
        assert!(!text.contains("7531"));
        assert_eq!(parse_id(&text), Ok(100));
        assert_eq!(parse_mappings(&text, INGRESS), Ok(vec![(2, 3)]));
        assert_eq!(parse_mappings(&text, EGRESS), Ok(vec![(4, 5), (6, 7)]));
        assert!(parse_id("").is_err() && parse_mappings("", EGRESS).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "( VID: )?.{0,20}|(INGRESS priority mappings:)?[0-9: ]{0,20}") {
            let _ = (parse_id(&text), parse_mappings(&text, INGRESS), used_vlan_lines(&text));
        }
    }
}
