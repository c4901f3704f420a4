//! From notifications and packets to the record: names for indexes, only changes, and limits. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use linerate_model::failover::events::{
    BondMember, Change, EVENTS_MAX, Event, GAPS_MAX, HOPS_MAX, Hop, HostEvents, LinkState, Loss,
    NextHopObject, Route, Source, VRRP_MAX, VrrpSeries,
};
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Gap};
use linerate_model::units::Nanoseconds;

use super::packet::{Packet, Vrrp};
use crate::netlink::names::{mac_text, protocol_name};
use crate::netlink::notification::{HopIndex, LinkChange, Notification, RouteChange};

/// `IF_OPER_*` of `<linux/if.h>` (RFC 2863).
const OPERSTATES: [&str; 7] = [
    "unknown",
    "not-present",
    "down",
    "lower-layer-down",
    "testing",
    "dormant",
    "up",
];
/// `BOND_STATE_*`, `BOND_LINK_*` of `<linux/if_bonding.h>`.
const MEMBER_STATES: [&str; 2] = ["active", "backup"];
const MII_STATUSES: [&str; 4] = ["up", "going down", "down", "going back"];
/// `NUD_*` of `<linux/neighbour.h>`.
const NEIGHBOR_STATES: [(u16, &str); 8] = [
    (0x01, "incomplete"),
    (0x02, "reachable"),
    (0x04, "stale"),
    (0x08, "delay"),
    (0x10, "probe"),
    (0x20, "failed"),
    (0x40, "noarp"),
    (0x80, "permanent"),
];

/// A neighbor entry as last reported: state, address, whether it was removed.
type NeighborState = (String, Option<String>, bool);

/// The record under construction, and the last known states.
#[derive(Debug, Default)]
pub(crate) struct Log {
    record: HostEvents,
    peer: Option<IpAddr>,
    names: BTreeMap<u32, NicName>,
    links: BTreeMap<u32, LinkState>,
    /// The interface below, and the bond or bridge above.
    relations: BTreeMap<u32, (Option<u32>, Option<u32>)>,
    members: BTreeMap<u32, BondMember>,
    neighbors: BTreeMap<(u32, IpAddr), NeighborState>,
    /// The last series of each virtual router and sender.
    series: BTreeMap<(u32, IpAddr, u8), usize>,
    /// What no longer fitted: the first and the last time, and how many.
    dropped: BTreeMap<Source, (Nanoseconds, Nanoseconds, u64)>,
}

impl Log {
    /// A log of the path to `peer`.
    pub(crate) fn new(peer: Option<IpAddr>) -> Self {
        Self {
            peer,
            ..Self::default()
        }
    }

    /// The record so far.
    pub(crate) fn record_mut(&mut self) -> &mut HostEvents {
        &mut self.record
    }

    /// Takes the states at the start, which are no events.
    pub(crate) fn begin(&mut self, links: Vec<Notification>) {
        let links = links.into_iter().filter_map(|link| match link {
            Notification::Link(link) => Some(link),
            _ => None,
        });
        let links: Vec<LinkChange> = links.collect();
        // All names first: a member may be listed before its bond.
        for link in &links {
            self.name(link);
        }
        for link in &links {
            let (state, member) = (self.link_state(link), self.member(link));
            self.links.insert(link.interface, state);
            self.members.extend(member.map(|own| (link.interface, own)));
        }
    }

    /// The interfaces that are members of a bond.
    pub(crate) fn members(&self) -> BTreeSet<u32> {
        self.members.keys().copied().collect()
    }

    /// The gateways of a route become those of the path; without one, the peer is its own.
    pub(crate) fn follow(&mut self, route: &RouteChange) {
        for hop in &route.hops {
            if let Some(gateway) = hop.gateway.or(self.peer) {
                push(&mut self.record.gateways, gateway);
            }
            if let Some(interface) = hop.interface {
                self.add_path(interface);
            }
        }
        self.note_bonds();
    }

    /// Notes that flows are not known by member: rtnetlink has no request for the slave that a bond's hash selects.
    fn note_bonds(&mut self) {
        let mut counts: BTreeMap<&NicName, usize> = BTreeMap::new();
        let members = self.members.values();
        for member in members.filter(|own| self.record.nics.contains(&own.nic)) {
            *counts.entry(&member.bond).or_default() += 1;
        }
        let several = counts.into_iter().filter(|(_, count)| *count > 1);
        let gaps = several.map(|(bond, _)| {
            let reason =
                format!("the kernel does not report which member of {bond} carries a flow");
            Gap::new(Cause::NotSaid, "IFLA_BOND_SLAVE_*", reason)
        });
        let gaps: Vec<Gap> = gaps.collect();
        for gap in gaps {
            self.gap(gap);
        }
    }

    /// An interface of the path, with those below it.
    fn add_path(&mut self, interface: u32) {
        let mut all = vec![interface];
        let mut next = 0;
        while let Some(upper) = all.get(next).copied() {
            next += 1;
            let nic = self.nic(upper);
            push(&mut self.record.nics, nic);
            let below = self
                .relations
                .iter()
                .filter_map(|(own, (_, above))| (*above == Some(upper)).then_some(*own));
            let lower = self.relations.get(&upper).and_then(|(lower, _)| *lower);
            let below: Vec<u32> = below.chain(lower).collect();
            for own in below {
                push(&mut all, own);
            }
        }
    }

    /// Notes what cannot be recorded.
    pub(crate) fn gap(&mut self, gap: Gap) {
        let gaps = &mut self.record.gaps;
        if gaps.len() < GAPS_MAX && !gaps.contains(&gap) {
            gaps.push(gap);
        }
    }

    /// Notes that events may be missing. Losses without a pause are one.
    pub(crate) fn lose(&mut self, loss: Loss) {
        let losses = &mut self.record.losses;
        let last = losses.iter_mut().rev();
        let same = |own: &&mut Loss| own.source == loss.source && own.to_ns >= loss.from_ns;
        if let Some(last) = last.take(1).find(same) {
            last.to_ns = loss.to_ns;
        } else if losses.len() < GAPS_MAX {
            losses.push(loss);
        } else if let Some(last) = losses.last_mut() {
            // No room for more: everything from here on may be incomplete.
            last.to_ns = loss.to_ns;
        }
    }

    fn put(&mut self, at_ns: Nanoseconds, source: Source, change: Change) {
        if self.record.events.len() < EVENTS_MAX {
            self.record.events.push(Event { at_ns, change });
        } else {
            self.drop_one(at_ns, source);
        }
    }

    fn drop_one(&mut self, at_ns: Nanoseconds, source: Source) {
        let dropped = self.dropped.entry(source).or_insert((at_ns, at_ns, 0));
        dropped.1 = dropped.1.max(at_ns);
        dropped.2 += 1;
    }

    /// Takes a notification that was received at `at`, or the answer to a request, from `source`.
    pub(crate) fn take(&mut self, at: Nanoseconds, source: Source, change: Notification) {
        match change {
            Notification::Link(link) => self.take_link(at, source, &link),
            Notification::Address {
                interface,
                address,
                removed,
            } => {
                let nic = self.nic(interface);
                let change = Change::Address {
                    nic,
                    address,
                    removed,
                };
                self.put(at, source, change);
            }
            Notification::Neighbor {
                interface,
                address,
                state,
                mac,
                removed,
            } => {
                let state = state_name(state);
                let mac = mac.as_deref().map(mac_text);
                self.take_neighbor(at, (interface, address), (state, mac, removed));
            }
            Notification::Route(route) => self.take_route(at, &route),
            Notification::NextHop {
                id,
                hop,
                members,
                resilient,
                removed,
            } => {
                let object = NextHopObject {
                    id,
                    hop: hop.map(|hop| self.hop(&hop)),
                    members,
                    resilient,
                    removed,
                };
                self.put(at, source, Change::NextHop(object));
            }
            Notification::Bucket {
                group,
                bucket,
                next_hop,
            } => {
                let change = Change::Bucket {
                    group,
                    bucket,
                    next_hop,
                };
                self.put(at, source, change);
            }
        }
    }

    fn take_link(&mut self, at: Nanoseconds, source: Source, link: &LinkChange) {
        self.name(link);
        let state = self.link_state(link);
        let member = self.member(link);
        if self.links.get(&link.interface) != Some(&state) {
            self.put(at, source, Change::Link(state.clone()));
        }
        let before = self.members.get(&link.interface);
        if member.as_ref() != before {
            let released = || {
                before.map(|before| BondMember {
                    state: "released".to_owned(),
                    mii_status: "down".to_owned(),
                    ..before.clone()
                })
            };
            if let Some(change) = member.clone().or_else(released) {
                self.put(at, source, Change::BondMember(change));
            }
        }
        match member {
            Some(member) => self.members.insert(link.interface, member),
            None => self.members.remove(&link.interface),
        };
        if link.removed {
            self.links.remove(&link.interface);
            self.relations.remove(&link.interface);
            self.names.remove(&link.interface);
        } else {
            self.links.insert(link.interface, state);
        }
    }

    fn take_neighbor(&mut self, at: Nanoseconds, place: (u32, IpAddr), state: NeighborState) {
        let (interface, address) = place;
        let is_known = self.neighbors.get(&place) == Some(&state);
        if is_known || !self.record.gateways.contains(&address) {
            return;
        }
        let change = Change::Neighbor {
            nic: self.nic(interface),
            address,
            state: state.0.clone(),
            mac: state.1.clone(),
            removed: state.2,
        };
        self.neighbors.insert(place, state);
        self.put(at, Source::Rtnetlink, change);
    }

    /// Only routes to the peer: a router may have a million others.
    fn take_route(&mut self, at: Nanoseconds, route: &RouteChange) {
        let leads_to_peer = (self.peer).is_none_or(|peer| covers(route, peer));
        if !leads_to_peer {
            return;
        }
        if !route.removed {
            self.follow(route);
        }
        let next_hops = route.hops.iter().map(|hop| self.hop(hop)).collect();
        let change = Change::Route(Route {
            destination: destination(route),
            table: route.table,
            protocol: protocol_name(route.protocol),
            metric: route.metric,
            next_hop_id: route.next_hop_id,
            next_hops,
            removed: route.removed,
        });
        self.put(at, Source::Rtnetlink, change);
    }

    /// Takes a packet that `interface` received at `at` from the link-layer address `from`.
    pub(crate) fn hear(&mut self, at: Nanoseconds, interface: u32, from: &[u8], packet: Packet) {
        let nic = self.nic(interface);
        match packet {
            Packet::Arp {
                sender,
                mac,
                reply,
                gratuitous,
            } => {
                // A question about another address says nothing about who serves the sender's.
                if self.record.gateways.contains(&sender) && (reply || gratuitous) {
                    let change = Change::Arp {
                        nic,
                        address: sender,
                        mac: mac_text(&mac),
                        reply,
                        gratuitous,
                    };
                    self.put(at, Source::Packets, change);
                }
            }
            Packet::Advertisement {
                target,
                mac,
                solicited,
                overrides,
            } => {
                if self.record.gateways.contains(&target) {
                    let change = Change::NeighborAdvertisement {
                        nic,
                        address: target,
                        mac: mac_text(mac.as_deref().unwrap_or(from)),
                        solicited,
                        overrides,
                    };
                    self.put(at, Source::Packets, change);
                }
            }
            Packet::Vrrp(vrrp) => self.hear_vrrp(at, interface, nic, vrrp),
        }
    }

    fn hear_vrrp(&mut self, at: Nanoseconds, interface: u32, nic: NicName, vrrp: Vrrp) {
        let place = (interface, vrrp.source, vrrp.router_id);
        let last = self.series.get(&place);
        if let Some(last) = last.and_then(|last| self.record.vrrp.get_mut(*last)) {
            let same = (last.version, last.priority, last.interval_ns)
                == (vrrp.version, vrrp.priority, vrrp.interval);
            let silence = at.as_u64().saturating_sub(last.last_ns.as_u64());
            if same && silence <= last.interval_ns.as_u64().saturating_mul(2) {
                last.last_ns = last.last_ns.max(at);
                last.count += 1;
                return;
            }
        }
        if self.record.vrrp.len() == VRRP_MAX {
            self.drop_one(at, Source::Packets);
            return;
        }
        self.series.insert(place, self.record.vrrp.len());
        self.record.vrrp.push(VrrpSeries {
            nic,
            version: vrrp.version,
            source: vrrp.source,
            router_id: vrrp.router_id,
            priority: vrrp.priority,
            interval_ns: vrrp.interval,
            address: vrrp.address,
            first_ns: at,
            last_ns: at,
            count: 1,
        });
    }

    /// The record, ordered by time; what did not fit is a loss.
    pub(crate) fn finish(mut self) -> HostEvents {
        for (source, (from_ns, to_ns, count)) in std::mem::take(&mut self.dropped) {
            self.lose(Loss {
                source,
                from_ns,
                to_ns,
                reason: format!("{count} events beyond the maximum of a record were not kept"),
            });
        }
        self.record.events.sort_by_key(|event| event.at_ns);
        self.record
    }

    fn name(&mut self, link: &LinkChange) {
        let name = link.name.clone().unwrap_or_else(NicName::unheard);
        self.names.insert(link.interface, name);
        let relations = (link.lower, link.master);
        self.relations.insert(link.interface, relations);
    }

    fn nic(&self, interface: u32) -> NicName {
        let name = self.names.get(&interface).cloned();
        name.unwrap_or_else(NicName::unheard)
    }

    fn hop(&self, hop: &HopIndex) -> Hop {
        Hop {
            nic: hop.interface.map(|interface| self.nic(interface)),
            gateway: hop.gateway,
            dead: hop.dead,
        }
    }

    fn link_state(&self, link: &LinkChange) -> LinkState {
        LinkState {
            nic: self.nic(link.interface),
            up: link.up,
            carrier: link.carrier,
            operstate: word(&OPERSTATES, link.operstate),
            removed: link.removed,
        }
    }

    fn member(&self, link: &LinkChange) -> Option<BondMember> {
        let (master, state) = (link.master?, link.member.as_ref()?);
        (!link.removed).then(|| BondMember {
            bond: self.nic(master),
            nic: self.nic(link.interface),
            state: word(&MEMBER_STATES, state.state),
            mii_status: word(&MII_STATUSES, state.mii_status),
            aggregator: state.aggregator,
            actor_state: state.actor,
            partner_state: state.partner,
        })
    }
}

/// Adds what is not there yet, up to the maximum of a record.
fn push<T: PartialEq>(all: &mut Vec<T>, one: T) {
    if !all.contains(&one) && all.len() < HOPS_MAX {
        all.push(one);
    }
}

fn word(words: &[&str], number: u8) -> String {
    let word = words.get(usize::from(number)).copied();
    word.map_or_else(|| number.to_string(), str::to_owned)
}

fn state_name(state: u16) -> String {
    let names = NEIGHBOR_STATES.iter().find(|(bit, _)| state & bit != 0);
    names.map_or_else(|| "none".to_owned(), |(_, name)| (*name).to_owned())
}

fn destination(route: &RouteChange) -> String {
    match (route.prefix, route.destination) {
        (0, IpAddr::V4(_)) => "default".to_owned(),
        (0, IpAddr::V6(_)) => "default6".to_owned(),
        (prefix, address) => format!("{address}/{prefix}"),
    }
}

/// Whether packets to `peer` may use the route.
fn covers(route: &RouteChange, peer: IpAddr) -> bool {
    let prefix = u32::from(route.prefix);
    match (route.destination, peer) {
        (IpAddr::V4(net), IpAddr::V4(peer)) => {
            let differing = u32::from(net) ^ u32::from(peer);
            differing.leading_zeros() >= prefix.min(32)
        }
        (IpAddr::V6(net), IpAddr::V6(peer)) => {
            let differing = u128::from(net) ^ u128::from(peer);
            differing.leading_zeros() >= prefix.min(128)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
