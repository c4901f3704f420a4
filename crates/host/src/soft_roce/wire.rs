//! A wire from the host to itself: a veth pair with both ends in this namespace, and routing that sends packets
//! between its two addresses over it.
//!
//! The kernel looks up local addresses first (rule 0) and delivers such packets internally. A rule before that one,
//! for packets that the host itself sends, uses a table with two routes: to each address over the end that does not
//! have it. Received packets do not match the rule and are delivered; and because that table also has the return
//! route, they pass the kernel's source address check. No sysctl changes.
//!
//! A rule cannot be put before one of priority 0. A second rule for local addresses is therefore added after ours,
//! and the first deleted; removing ours restores the original state.

use std::io;
use std::net::Ipv4Addr;

use linerate_model::host::NicKind;
use linerate_model::ids::NicName;
use linerate_model::known::Cause;
use serde::{Deserialize, Serialize};

use super::error::SoftRoceError;
use super::is_gone;
use crate::netlink::{Netlink, Rule};
use crate::nic_control::{NicRead, NicWrite};

/// The routing table with the two routes, with an unusual number.
const TABLE: u32 = 1_819_441_253;
const DEVICES: [&str; 2] = ["rxe-a", "rxe-b"];
const NICS: [&str; 2] = ["lr-rxe-a", "lr-rxe-b"];
const PREFIX: u8 = 30;

/// A wire from the host to itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wire {
    nics: [NicName; 2],
    addresses: [Ipv4Addr; 2],
    mtu: u32,
}

impl Wire {
    /// A network reserved for benchmarking (RFC 2544).
    pub const NETWORK: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);

    /// A wire with the first two addresses of the /30 that `network` is in, for packets of `mtu` bytes (the path MTU
    /// is the largest power of two that fits with RDMA headers: 1024 in 1500, 4096 in 4200).
    pub fn new(network: Ipv4Addr, mtu: u32) -> Self {
        let first = network.to_bits() & !3;
        let address = |number| Ipv4Addr::from_bits(first | number);
        Self {
            nics: NICS.map(|name| name.parse().expect("an interface's name")),
            addresses: [address(1), address(2)],
            mtu,
        }
    }

    /// The names of the RDMA devices of a pair, with their interfaces.
    pub(super) fn devices(&self) -> [(&'static str, &NicName); 2] {
        let [near, far] = &self.nics;
        [(DEVICES[0], near), (DEVICES[1], far)]
    }

    pub(super) fn has(&self, nic: &NicName) -> bool {
        self.nics.contains(nic)
    }

    /// Fails if something of it would conflict with existing configuration.
    pub fn check_free(&self, netlink: &Netlink) -> Result<(), SoftRoceError> {
        let taken = |why: String| Err(SoftRoceError::WireTaken { why });
        for nic in &self.nics {
            let kind = netlink.kind(nic);
            let is_absent = kind.gap().is_some_and(|gap| gap.cause == Cause::Absent);
            if !is_absent {
                return taken(format!("an interface `{nic}` already exists"));
            }
        }
        let rules = rules(netlink)?;
        if rules.iter().any(is_ours) {
            return taken(format!(
                "a rule to the routing table {TABLE} is there already"
            ));
        }
        let first = own_addresses(&rules);
        let is_other = |rule: &&Rule| first.is_some_and(|first| rule.priority == first);
        match (first, rules.iter().filter(is_other).count()) {
            (None, _) => {
                taken("no routing rule looks into the table of the host's own addresses".to_owned())
            }
            (Some(0), others) if others > 1 => {
                taken("another routing rule has the priority 0, which the wire's needs".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Creates it: interfaces, addresses, routes, the rule.
    pub fn lay(&self, netlink: &Netlink) -> Result<(), SoftRoceError> {
        self.lay_interfaces(netlink)
            .and_then(|()| steer(netlink))
            .map_err(SoftRoceError::doing("create a veth pair on this host"))
    }

    fn lay_interfaces(&self, netlink: &Netlink) -> io::Result<()> {
        let [near, far] = &self.nics;
        netlink.create_veth(near, far, None)?;
        for (nic, address) in self.nics.iter().zip(self.addresses) {
            netlink.set_mtu(nic, self.mtu)?;
            netlink.add_address(nic, &format!("{address}/{PREFIX}"))?;
            netlink.set_up(nic)?;
        }
        let [first, second] = self.addresses;
        netlink.add_route(second, near, first, TABLE)?;
        netlink.add_route(first, far, second, TABLE)
    }

    /// Removes what exists of it.
    pub fn take_up(&self, netlink: &Netlink) -> Result<(), SoftRoceError> {
        let steered = unsteer(netlink);
        let [near, far] = &self.nics;
        let is_veth = |nic| netlink.kind(nic).get() == Some(NicKind::Veth);
        let deleted = if is_veth(near) && is_veth(far) {
            netlink.delete_link(near)
        } else {
            Ok(())
        };
        let deleted = match deleted {
            Err(error) if is_gone(&error) => Ok(()),
            other => other,
        };
        steered
            .and(deleted)
            .map_err(SoftRoceError::doing("remove the veth pair"))
    }
}

fn rules(netlink: &Netlink) -> Result<Vec<Rule>, SoftRoceError> {
    netlink
        .rules()
        .map_err(SoftRoceError::doing("read the routing rules"))
}

fn is_ours(rule: &Rule) -> bool {
    rule.table == TABLE && rule.input.as_deref() == Some("lo")
}

fn is_own_addresses(rule: &Rule) -> bool {
    rule.table == Rule::LOCAL && rule.input.is_none() && !rule.is_narrower
}

/// The priority of the rule for local addresses.
fn own_addresses(rules: &[Rule]) -> Option<u32> {
    rules
        .iter()
        .find(|rule| is_own_addresses(rule))
        .map(|rule| rule.priority)
}

/// Adds our rule before the one for local addresses, which exists at all times.
fn steer(netlink: &Netlink) -> io::Result<()> {
    let first = own_addresses(&netlink.rules()?).unwrap_or_default();
    netlink.add_rule(&Rule {
        priority: first.saturating_sub(1),
        table: TABLE,
        input: Some("lo".to_owned()),
        is_narrower: false,
    })?;
    if first == 0 {
        netlink.add_rule(&Rule::own_addresses(0))?;
        netlink.delete_rule(&Rule::own_addresses(0))?;
    }
    Ok(())
}

/// Removes our rule, and the second rule for local addresses if we were stopped between adding it and deleting the
/// first.
fn unsteer(netlink: &Netlink) -> io::Result<()> {
    let rules = netlink.rules()?;
    let ours: Vec<&Rule> = rules.iter().filter(|rule| is_ours(rule)).collect();
    let twice = |rule: &&Rule| is_own_addresses(rule) && rule.priority == 0;
    if !ours.is_empty() && rules.iter().filter(twice).count() > 1 {
        netlink.delete_rule(&Rule::own_addresses(0))?;
    }
    for rule in ours {
        netlink.delete_rule(rule)?;
    }
    Ok(())
}
