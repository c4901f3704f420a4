//! Relations between interfaces from sysfs: netlink's values are kept, and unknown ones are set
//! (Documentation/ABI/testing/sysfs-class-net; Documentation/networking/bridge.rst,
//! Documentation/infiniband/ipoib.rst).

use linerate_model::host::{Bond, BondPort, Bridge, Nic, NicKind, Stack, Team, Tun, Tunnel, Vlan};
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Known};

use super::bond::{fill_bond, fill_bond_port};
use crate::attributes::{number, or_known, parsed};
use crate::procfs::vlan::fill_vlan;
use crate::root::{HostRoot, absolute};

/// Whether all bridges of the namespace call netfilter; exists if the module is loaded.
const HOST_CALLS_IPTABLES: &str = "proc/sys/net/bridge/bridge-nf-call-iptables";

/// Sets the values of `nic` that netlink left unknown; its directory is `class`, with `names`.
pub(crate) fn fill_stack(
    root: &HostRoot,
    nic: &NicName,
    kind: NicKind,
    class: &str,
    names: &Known<Vec<String>>,
    mut stack: Stack,
) -> Stack {
    let is_known = matches!(&stack.upper, Known::Value(upper) if !upper.is_empty());
    if !is_known && (names.value().is_some() || stack.upper.value().is_none()) {
        stack.upper = linked(names, "upper_");
    }
    let names = names.value().map_or(&[][..], Vec::as_slice);
    let tx_queue_len = std::mem::take(&mut stack.tx_queue_len);
    stack.tx_queue_len = or_known(tx_queue_len, || {
        number(root, &format!("{class}/tx_queue_len"))
    });
    stack.bond_port = fill_bond_port(root, class, names, nic, stack.bond_port);
    if names.iter().any(|name| name == "brport") {
        stack.bridge_port_state = Some(parsed(root, &format!("{class}/brport/state"), port_state));
    }
    match kind {
        NicKind::Bond => {
            let known: Bond = stack.bond.unwrap_or_default();
            stack.bond = Some(fill_bond(root, class, known));
        }
        NicKind::Vlan => {
            let known: Vlan = stack.vlan.unwrap_or_default();
            stack.vlan = Some(fill_vlan(root, nic, known));
        }
        NicKind::Bridge => {
            let known: Bridge = stack.bridge.unwrap_or_default();
            stack.bridge = Some(fill_bridge(root, class, known));
        }
        NicKind::Ipoib => {
            let known = stack.ipoib_mode.unwrap_or_default();
            stack.ipoib_mode = Some(or_known(known, || root.read(&format!("{class}/mode"))));
        }
        NicKind::Tun => stack.tun = Some(fill_tun(root, class, stack.tun.unwrap_or_default())),
        NicKind::Team => {
            let mode = || Known::not_asked(format!("generic netlink: mode of team {nic}"));
            stack.team = Some(stack.team.unwrap_or_else(|| Team {
                mode: mode(),
                active_port: None,
            }));
        }
        // There are no files for these; missing netlink data does not mean that they do not apply.
        NicKind::Tunnel => stack.tunnel = stack.tunnel.or_else(|| Some(no_tunnel(nic))),
        NicKind::Macvlan => {
            let mode = || Some(Known::not_asked(format!("rtnetlink: mode of {nic}")));
            stack.macvlan_mode = stack.macvlan_mode.or_else(mode);
        }
        _ => {}
    }
    stack
}

/// The interfaces that a directory's links refer to.
pub(crate) fn linked(names: &Known<Vec<String>>, prefix: &str) -> Known<Vec<NicName>> {
    let names = names.clone();
    let name = |name: String| name.strip_prefix(prefix)?.parse().ok();
    names.map(|names| names.into_iter().filter_map(name).collect())
}

fn fill_bridge(root: &HostRoot, class: &str, known: Bridge) -> Bridge {
    let flag = |path: &str| parsed(root, path, parse_flag);
    let file = |name: &str| format!("{class}/bridge/{name}");
    Bridge {
        stp: or_known(known.stp, || flag(&file("stp_state"))),
        vlan_filtering: or_known(known.vlan_filtering, || flag(&file("vlan_filtering"))),
        calls_iptables: match flag(HOST_CALLS_IPTABLES) {
            Known::Value(true) => Known::Value(true),
            // Netlink reports only the bridge's own setting, as does its file.
            _ => or_known(known.calls_iptables, || flag(&file("nf_call_iptables"))),
        },
    }
}

/// `BR_STATE_*` of `<linux/if_bridge.h>`.
fn port_state(text: &str) -> Result<String, String> {
    let word = match text.trim() {
        "0" => "disabled",
        "1" => "listening",
        "2" => "learning",
        "3" => "forwarding",
        "4" => "blocking",
        other => return Err(format!("unknown state `{other}`")),
    };
    Ok(word.to_owned())
}

/// The flags of `<linux/if_tun.h>`, in `tun_flags`.
const IFF_TUN: u32 = 0x0001;
const IFF_TAP: u32 = 0x0002;
const IFF_MULTI_QUEUE: u32 = 0x0100;
const IFF_PERSIST: u32 = 0x0800;
const IFF_NO_PI: u32 = 0x1000;
const IFF_VNET_HDR: u32 = 0x4000;

/// Sets the values of a TUN or TAP interface that netlink left unknown: its files have all but the number of open
/// queues.
fn fill_tun(root: &HostRoot, class: &str, known: Tun) -> Tun {
    let path = format!("{class}/tun_flags");
    let flags = || parsed(root, &path, parse_tun_flags);
    let flag = |bit: u32| flags().map(|flags| flags & bit != 0);
    let who = |name: &str| {
        parsed(root, &format!("{class}/{name}"), |text| {
            // -1 is not set.
            text.parse::<i64>().map(|id| u32::try_from(id).ok())
        })
    };
    let multi_queue = or_known(known.multi_queue, || flag(IFF_MULTI_QUEUE));
    let queues = known
        .queues
        .unwrap_or_else(|| Known::not_asked(format!("rtnetlink: queues of {class}")));
    Tun {
        mode: or_known(known.mode, || {
            flags().and_then(|flags| match flags & (IFF_TUN | IFF_TAP) {
                IFF_TUN => Known::Value("tun".to_owned()),
                IFF_TAP => Known::Value("tap".to_owned()),
                _ => {
                    let why = "the flags are neither tun nor tap";
                    Known::unknown(Cause::Unreadable, absolute(&path), why)
                }
            })
        }),
        owner: or_known(known.owner, || who("owner")),
        group: or_known(known.group, || who("group")),
        packet_information: or_known(known.packet_information, || {
            flag(IFF_NO_PI).map(|without| !without)
        }),
        vnet_header: or_known(known.vnet_header, || flag(IFF_VNET_HDR)),
        persistent: or_known(known.persistent, || flag(IFF_PERSIST)),
        queues: (multi_queue.get() != Some(false)).then_some(queues),
        multi_queue,
    }
}

/// `0x1002`.
pub(crate) fn parse_tun_flags(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0x").ok_or("expected 0x and digits")?;
    u32::from_str_radix(digits, 16).map_err(|error| error.to_string())
}

fn no_tunnel(nic: &NicName) -> Tunnel {
    fn gap<T>(nic: &NicName) -> Known<T> {
        Known::not_asked(format!("rtnetlink: tunnel of {nic}"))
    }
    Tunnel {
        kind: gap(nic),
        id: gap(nic),
        port: gap(nic),
        local: gap(nic),
        remote: gap(nic),
        link: gap(nic),
        udp_checksum: gap(nic),
    }
}

/// 0 is off. `stp_state` is 1 for the kernel's STP and 2 for a daemon's.
pub(crate) fn parse_flag(text: &str) -> Result<bool, std::num::ParseIntError> {
    text.trim().parse::<u32>().map(|number| number != 0)
}

/// Ports of teams: sysfs has only the upper interface.
pub(crate) fn fill_team_ports(nics: &mut [Nic]) {
    let teams: Vec<NicName> = nics
        .iter()
        .filter(|nic| nic.kind == NicKind::Team)
        .map(|nic| nic.name.clone())
        .collect();
    for nic in nics {
        let mut upper = nic.upper().iter();
        if let (None, Some(team)) = (
            &nic.stack.bond_port,
            upper.find(|name| teams.contains(name)),
        ) {
            nic.stack.bond_port = Some(team_port(team));
        }
    }
}

fn team_port(team: &NicName) -> BondPort {
    fn gap<T>(team: &NicName) -> Known<T> {
        Known::not_asked(format!("generic netlink: ports of team {team}"))
    }
    BondPort {
        bond: Known::Value(team.clone()),
        state: gap(team),
        mii_status: gap(team),
        aggregator: gap(team),
        link_failures: gap(team),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_flag_is_off_at_0_only() {
        assert_eq!(parse_flag("0"), Ok(false));
        assert_eq!(parse_flag("2"), Ok(true));
        assert!(parse_flag("").is_err());
    }

    #[test]
    fn the_states_of_a_bridge_port_have_the_names_of_the_kernel() {
        assert_eq!(port_state("3\n").as_deref(), Ok("forwarding"));
        assert_eq!(port_state("4").as_deref(), Ok("blocking"));
        assert!(port_state("5").is_err());
    }

    #[test]
    fn flags_are_hexadecimal() {
        assert_eq!(parse_tun_flags("0x1002"), Ok(IFF_NO_PI | IFF_TAP));
        assert!(parse_tun_flags("1002").is_err() && parse_tun_flags("0x").is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9-]{0,24}|.{0,12}") {
            let _ = (parse_tun_flags(&text), port_state(&text));
            let _ = (parse_flag(&text), linked(&vec![text.clone()].into(), "upper_"));
        }
    }
}
