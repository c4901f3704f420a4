//! Bonds and their ports: `/sys/class/net/*/bonding` and `bonding_slave`
//! (Documentation/networking/bonding.rst; Documentation/ABI/testing/sysfs-class-net-bonding).

use linerate_model::host::{Bond, BondPort};
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Known};

use crate::attributes::{last_name, number, or_known, parsed, understood};
use crate::procfs::bonding::read_bonding_port;
use crate::root::{HostRoot, absolute};

/// Sets the bond settings that netlink left unknown from the interface's directory.
pub(crate) fn fill_bond(root: &HostRoot, class: &str, known: Bond) -> Bond {
    let file = |name: &str| format!("{class}/bonding/{name}");
    let option = |name: &str| parsed(root, &file(name), parse_option);
    let mode = or_known(known.mode, || option("mode"));
    let is_lacp = mode.value().is_some_and(|mode| mode == "802.3ad");
    // The kernel leaves these files empty if they do not apply to the mode, and the partner's address also for users
    // without CAP_NET_ADMIN.
    let filled = |name: &str| {
        let path = file(name);
        root.read(&path).and_then(|text| {
            let (cause, why) = match (text.as_str(), is_lacp, name) {
                ("", _, "active_slave") => {
                    (Cause::Absent, "the mode has no active slave, or none is up")
                }
                ("", true, "ad_partner_mac") => {
                    (Cause::Denied, "the file is empty: visible only to root")
                }
                ("", true, _) => (Cause::NotSaid, "no aggregator is active"),
                ("", false, _) => (Cause::Absent, "only mode 802.3ad has it"),
                _ => return Known::Value(text),
            };
            Known::unknown(cause, absolute(&path), why)
        })
    };
    let filled_number = |name: &str| {
        filled(name).and_then(|text| understood(&file(name), &text, str::parse::<u32>))
    };
    Bond {
        hash_policy: or_known(known.hash_policy, || option("xmit_hash_policy")),
        active_slave: or_known(known.active_slave, || {
            filled("active_slave")
                .and_then(|text| understood(&file("active_slave"), &text, str::parse::<NicName>))
        }),
        miimon_ms: or_known(known.miimon_ms, || number(root, &file("miimon"))),
        arp_interval_ms: or_known(known.arp_interval_ms, || {
            number(root, &file("arp_interval"))
        }),
        ad_select: or_known(known.ad_select, || option("ad_select")),
        lacp_rate: or_known(known.lacp_rate, || option("lacp_rate")),
        partner_mac: or_known(known.partner_mac, || filled("ad_partner_mac")),
        aggregator: or_known(known.aggregator, || filled_number("ad_aggregator")),
        aggregator_ports: or_known(known.aggregator_ports, || filled_number("ad_num_ports")),
        mode,
    }
}

/// An interface's role in a bond, if it has one: `bonding_slave` exists since 3.15; before that, the bond's file in
/// `/proc` is used.
pub(crate) fn fill_bond_port(
    root: &HostRoot,
    class: &str,
    names: &[String],
    nic: &NicName,
    known: Option<BondPort>,
) -> Option<BondPort> {
    let has = |name: &str| names.iter().any(|own| own == name);
    if !has("master") {
        return known;
    }
    let master = format!("{class}/master");
    let bond = root
        .link(&master)
        .and_then(|target| understood(&master, last_name(&target), str::parse::<NicName>));
    if !has("bonding_slave") {
        let by_text = (!has("brport") && known.is_none())
            .then(|| read_bonding_port(root, bond.value()?, nic))
            .flatten();
        return known.or(by_text);
    }
    let known = known.unwrap_or_default();
    let file = |name: &str| format!("{class}/bonding_slave/{name}");
    Some(BondPort {
        bond: or_known(known.bond, || bond),
        state: or_known(known.state, || root.read(&file("state"))),
        mii_status: or_known(known.mii_status, || root.read(&file("mii_status"))),
        aggregator: or_known(known.aggregator, || {
            let path = file("ad_aggregator_id");
            root.read(&path).and_then(|text| match text.as_str() {
                "N/A" => Known::unknown(
                    Cause::Absent,
                    absolute(&path),
                    "only a port of a bond in mode 802.3ad has it",
                ),
                text => understood(&path, text, str::parse::<u32>),
            })
        }),
        link_failures: or_known(known.link_failures, || {
            number(root, &file("link_failure_count"))
        }),
    })
}

/// `802.3ad 4`: the name of an option's value, followed by its number.
pub(crate) fn parse_option(text: &str) -> Result<String, &'static str> {
    match text.split_once(' ') {
        Some((name, number)) if !name.is_empty() && number.trim().parse::<u32>().is_ok() => {
            Ok(name.to_owned())
        }
        _ => Err("expected a name and a number such as `802.3ad 4`"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_option_is_known_by_its_name() {
        assert_eq!(parse_option("802.3ad 4").as_deref(), Ok("802.3ad"));
        assert_eq!(parse_option("layer3+4 1").as_deref(), Ok("layer3+4"));
        assert!(parse_option("").is_err() && parse_option("slow").is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,20}") {
            let _ = parse_option(&text);
        }
    }
}
