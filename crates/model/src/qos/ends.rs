//! Where the other end of an interface does not fit what a plan makes of this one.

use std::net::IpAddr;

use super::plan::{holders_of, is_vlan_of, line_of, ports_of};
use super::{Mechanism, Qos, QosPlan};
use crate::host::{Dcb, Host, Nic, NicKind};
use crate::ids::NicName;

/// The conflicts of this host, once it has the plan, with the peer as it is now.
pub fn conflicts(qos: &Qos, plan: &QosPlan, host: &Host, peer: &Host) -> Vec<String> {
    let Some(there) = other_end(qos, host, peer) else {
        return vec![format!(
            "cannot find the peer's interface for {}: no common subnet or VLAN",
            qos.interface
        )];
    };
    let mut all = Vec::new();
    let (holders, _) = holders_of(peer, there);
    let line = line_of(peer, there, &holders);
    let limited = qos.classes.iter().zip(&plan.classes);
    for (class, planned) in limited {
        if let (Some(limit), Some(line)) = (planned.limit, line)
            && limit > line
        {
            all.push(format!(
                "class {}: its limit of {limit} is above the line of {} at the peer, {line}",
                class.name, there.name
            ));
        }
        let Some(vlan) = &class.vlan else { continue };
        let of_vlan = |nic: &&Nic| is_vlan_of(nic, vlan.id, &there.name);
        let Some(device) = peer.nics.iter().find(of_vlan) else {
            all.push(format!(
                "class {}: {} of the peer has no VLAN {}",
                class.name, there.name, vlan.id
            ));
            continue;
        };
        let map = device
            .stack
            .vlan
            .as_ref()
            .and_then(|vlan| vlan.egress.value());
        if let (Some(own), Some(map)) = (class.priority, map) {
            let sent = map
                .iter()
                .find(|(from, _)| *from == 0)
                .map_or(0, |(_, to)| *to);
            if sent != u32::from(own) {
                all.push(format!(
                    "class {}: {} of the peer sends with PCP {sent}, and this host with {own}",
                    class.name, device.name
                ));
            }
        }
    }
    let dcb = |host: &Host, nics: &[&NicName]| -> Option<Dcb> {
        let mut found = nics
            .iter()
            .filter_map(|name| host.nic(name)?.shaping.dcb.value());
        found.next().cloned()
    };
    let ports = ports_of(peer, there);
    let theirs: Vec<&NicName> = [&there.name].into_iter().chain(&ports).collect();
    let own_ports = host.nic(&qos.interface).map(|nic| ports_of(host, nic));
    let own_ports = own_ports.unwrap_or_default();
    let own: Vec<&NicName> = plan.holders.iter().chain(&own_ports).collect();
    if let (Some(own), Some(theirs)) = (dcb(host, &own), dcb(peer, &theirs)) {
        all.extend(of_maps(qos, plan, &own, &theirs, there));
        all.extend(of_pfc(qos, &own, &theirs, there));
    }
    all
}

/// The interface of the peer that has a subnet in common with this one or its VLANs, or else one of these VLANs.
fn other_end<'p>(qos: &Qos, host: &Host, peer: &'p Host) -> Option<&'p Nic> {
    let own = host
        .nic(&qos.interface)
        .and_then(|nic| nic.addresses.value());
    let vlans = qos.classes.iter().filter_map(|class| class.vlan.as_ref());
    let of_vlans = vlans.clone().flat_map(|vlan| &vlan.addresses);
    let subnets: Vec<(IpAddr, u32)> = (own.into_iter().flatten().chain(of_vlans))
        .filter_map(|address| parsed(address))
        .collect();
    let is_near = |nic: &&Nic| {
        let all = nic.addresses.value().into_iter().flatten();
        let mut all = all.filter_map(|address| parsed(address));
        nic.kind != NicKind::Loopback
            && all.any(|(address, _)| subnets.iter().any(|own| is_in(address, *own)))
    };
    let is_vlan = |nic: &&Nic| {
        let id = nic.stack.vlan.as_ref().and_then(|vlan| vlan.id.get());
        id.is_some_and(|id| vlans.clone().any(|vlan| u32::from(vlan.id) == id))
    };
    let found = peer.nics.iter().find(is_near);
    let found = found.or_else(|| peer.nics.iter().find(is_vlan))?;
    match found.kind {
        NicKind::Vlan => peer.nic(found.lower().first()?),
        _ => Some(found),
    }
}

/// An address with its prefix length; none of a link-local one, which is on every link.
fn parsed(text: &str) -> Option<(IpAddr, u32)> {
    let (address, length) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let is_of_link = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    (!is_of_link).then_some((address, length.parse().ok()?))
}

fn is_in(address: IpAddr, (own, length): (IpAddr, u32)) -> bool {
    match (address, own) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            let differs = u32::from(one) ^ u32::from(other);
            differs.leading_zeros() >= length
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => {
            let differs = u128::from(one) ^ u128::from(other);
            differs.leading_zeros() >= length
        }
        _ => false,
    }
}

/// Priorities that share a traffic class have the number of the first of them: each NIC numbers its classes as it likes.
fn grouped(map: &[u32]) -> Vec<usize> {
    let first = |class: &u32| map.iter().position(|other| other == class);
    map.iter().filter_map(first).collect()
}

/// Whether the same priorities share a traffic class at both ends, once the plan is made.
fn of_maps(qos: &Qos, plan: &QosPlan, own: &Dcb, theirs: &Dcb, there: &Nic) -> Option<String> {
    let theirs = theirs.priority_class.value()?;
    let own = if plan.mechanism == Mechanism::Dcb {
        let mut map = vec![0; 8];
        for (class, planned) in qos.classes.iter().zip(&plan.classes) {
            if let Some(own) = class.priority.and_then(|own| map.get_mut(usize::from(own))) {
                *own = u32::from(planned.number);
            }
        }
        map
    } else {
        own.priority_class.value()?.clone()
    };
    let list = |map: &[u32]| map.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    (grouped(&own) != grouped(theirs)).then(|| {
        format!(
            "priority-to-class maps differ: {} on {}, {} on {} of the peer",
            list(&own),
            qos.interface,
            list(theirs),
            there.name
        )
    })
}

/// Whether the same priorities have PFC.
fn of_pfc(qos: &Qos, own: &Dcb, theirs: &Dcb, there: &Nic) -> Option<String> {
    let (own, theirs) = (own.pfc_enabled.get()?, theirs.pfc_enabled.get()?);
    let list = |bits: u32| {
        let set = (0..8).filter(|bit| bits >> bit & 1 == 1);
        let set: Vec<String> = set.map(|bit| bit.to_string()).collect();
        if set.is_empty() {
            "none".to_owned()
        } else {
            set.join(", ")
        }
    };
    (own != theirs).then(|| {
        format!(
            "PFC priorities differ: {} on {}, {} on {} of the peer",
            list(own),
            qos.interface,
            list(theirs),
            there.name
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{self, NicBuilder};
    use crate::host::Vlan;
    use crate::known::Known;
    use crate::qos::{QosFile, plan};
    use crate::units::BitRate;

    fn dcb(nic: NicBuilder, map: [u32; 8], pfc: u32) -> NicBuilder {
        nic.with(|nic| {
            nic.shaping.dcb = Known::Value(Dcb {
                priority_class: Known::Value(map.to_vec()),
                class_max_bit_per_s: Known::Value(vec![BitRate::from_bit_per_s(0); 8]),
                pfc_enabled: Known::Value(pfc),
                ..Dcb::default()
            });
        })
    }

    /// A port with VLANs of that ID, address and PCP.
    fn host(gbit: u64, map: [u32; 8], pfc: u32, vlans: &[(u32, &str, u32)]) -> Host {
        let mut host = build::host().nic("eth5", |nic| dcb(nic.gbit(gbit), map, pfc));
        for (id, address, pcp) in vlans {
            host = host.nic(&format!("eth5.{id}"), |nic| {
                nic.with(|nic| {
                    nic.kind = NicKind::Vlan;
                    nic.lower = vec!["eth5".parse().expect("a name")].into();
                    nic.addresses = Known::Value(vec![(*address).to_owned()]);
                    nic.stack.vlan = Some(Vlan {
                        id: Known::Value(*id),
                        egress: Known::Value((0..8).map(|from| (from, *pcp)).collect()),
                        ..Vlan::default()
                    });
                })
            });
        }
        host.build()
    }

    fn found(peer: &Host) -> Vec<String> {
        let text = r#"{"qos": {"interface": "eth5"}, "class": [
            {"name": "low", "vlan": 10, "address": "12.0.10.2/24", "limit": "1gbit", "priority": 1},
            {"name": "middle", "vlan": 11, "address": "12.0.11.2/24", "limit": "5gbit", "priority": 2}]}"#;
        let file: QosFile = serde_json::from_str(text).expect("a file");
        let qos = file.read().expect("classes");
        let host = host(40, [0; 8], 0, &[]);
        let plan = plan(&qos, &host, |_| true).expect("a plan");
        conflicts(&qos, &plan, &host, peer)
    }

    #[test]
    fn what_does_not_fit_at_the_peer_is_named_and_equal_ends_have_no_conflict() {
        let map = [0, 1, 2, 0, 0, 0, 0, 0];
        let both = [(10, "12.0.10.1/24", 1), (11, "12.0.11.1/24", 2)];
        let one = [(10, "12.0.10.1/24", 1)];
        let unmapped = [(10, "12.0.10.1/24", 1), (11, "12.0.11.1/24", 0)];
        // The VLANs show the other end, whatever their addresses are.
        let elsewhere = [(10, "10.9.9.1/24", 1), (11, "10.9.8.1/24", 2)];
        let peers = vec![
            (host(40, map, 0, &both), None),
            (host(40, map, 0, &elsewhere), None),
            (
                host(40, map, 0, &one),
                Some("class middle: eth5 of the peer has no VLAN 11"),
            ),
            (
                host(40, map, 0, &unmapped),
                Some("class middle: eth5.11 of the peer sends with PCP 0, and this host with 2"),
            ),
            (
                host(2, map, 0, &both),
                Some(
                    "class middle: its limit of 5.00 Gb/s is above the line of eth5 at the peer, 2.00 Gb/s",
                ),
            ),
            (
                host(40, [0, 0, 2, 0, 0, 0, 0, 0], 0, &both),
                Some(
                    "priority-to-class maps differ: 0,1,2,0,0,0,0,0 on eth5, 0,0,2,0,0,0,0,0 on eth5 of the peer",
                ),
            ),
            // The same priorities share a class, with other numbers.
            (host(40, [0, 2, 1, 0, 0, 0, 0, 0], 0, &both), None),
            (
                host(40, map, 0b1000, &both),
                Some("PFC priorities differ: none on eth5, 3 on eth5 of the peer"),
            ),
            (
                host(40, map, 0, &[]),
                Some("cannot find the peer's interface for eth5: no common subnet or VLAN"),
            ),
        ];
        for (peer, expected) in peers {
            let expected: Vec<&str> = expected.into_iter().collect();
            assert_eq!(found(&peer), expected);
        }
    }
}
