//! What happened to a host's network while a trial ran: link, address, neighbor, route and nexthop changes
//! (`rtnetlink(7)`), states of bond members, ARP and neighbor advertisements of the gateways (RFC 826, RFC 4861), and
//! VRRP advertisements (RFC 3768, RFC 5798).

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::phase::Timer;
use crate::ids::NicName;
use crate::known::Gap;
use crate::units::Nanoseconds;

/// The maximum number of events in a record; further ones are counted as lost.
pub const EVENTS_MAX: usize = 4_096;
/// The maximum number of series of VRRP advertisements in a record.
pub const VRRP_MAX: usize = 512;
/// The maximum number of next hops of a route or members of a group in an event.
pub const HOPS_MAX: usize = 64;
/// The maximum number of flows whose next hop a record has.
pub const FLOWS_MAX: usize = 10_000;
/// The maximum number of losses and of gaps in a record.
pub const GAPS_MAX: usize = 64;
/// The maximum number of time-outs of routing protocols in a record.
pub const TIMERS_MAX: usize = 64;

/// What happened to one host's network, and when. All times are of its `CLOCK_MONOTONIC`, which the host's programs
/// share.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostEvents {
    /// The clocks when the recording began.
    pub began: Clocks,
    /// The clocks when it ended.
    pub ended: Clocks,
    /// When this end of the trial started to transfer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial_began_ns: Option<Nanoseconds>,
    /// The gateways of the path to the peer, whose ARP, neighbor advertisements and neighbor entries are recorded; the
    /// peer itself if it is on the link.
    #[serde(default)]
    pub gateways: Vec<IpAddr>,
    /// The interfaces of the path to the peer, with those below them; empty if they are not known.
    #[serde(default)]
    pub nics: Vec<NicName>,
    /// The next hops of the flows that this end sends, when the trial began; flows whose next hop is not known are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flow_hops: Vec<HopFlows>,
    /// The events, in order of time.
    pub events: Vec<Event>,
    /// VRRP advertisements received, in order of their first.
    #[serde(default)]
    pub vrrp: Vec<VrrpSeries>,
    /// The time-outs of FRR's neighbors, if it runs in the same network namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timers: Vec<Timer>,
    /// What could not be recorded at all, and why.
    #[serde(default)]
    pub gaps: Vec<Gap>,
    /// Times in which events may have been lost.
    #[serde(default)]
    pub losses: Vec<Loss>,
}

/// Two clocks read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Clocks {
    /// `CLOCK_MONOTONIC`.
    pub monotonic_ns: Nanoseconds,
    /// `CLOCK_REALTIME`, since 1970.
    pub realtime_ns: Nanoseconds,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Event {
    /// When it was received: after the change, by the time that the notification took. For ARP and neighbor
    /// advertisements, when the kernel received the packet.
    pub at_ns: Nanoseconds,
    /// What changed.
    pub change: Change,
}

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// The state of an interface.
    Link(LinkState),
    /// The state of a bond's member.
    BondMember(BondMember),
    /// An address of this host.
    Address {
        /// Its interface.
        nic: NicName,
        /// The address with its prefix length.
        address: String,
        /// Whether it was removed.
        removed: bool,
    },
    /// The neighbor entry of a gateway.
    Neighbor {
        /// Its interface.
        nic: NicName,
        /// The neighbor.
        address: IpAddr,
        /// `reachable`, `stale`, `delay`, `probe`, `failed` ...
        state: String,
        /// Its link-layer address, if known.
        mac: Option<String>,
        /// Whether it was removed.
        removed: bool,
    },
    /// A route.
    Route(Route),
    /// A nexthop object, or a group of them.
    NextHop(NextHopObject),
    /// A bucket of a resilient nexthop group was assigned to another nexthop.
    Bucket {
        /// The group.
        group: u32,
        /// The bucket.
        bucket: u16,
        /// Its nexthop from now on.
        next_hop: u32,
    },
    /// The state of a BFD session of FRR.
    Bfd(BfdSession),
    /// A gateway's ARP packet.
    Arp {
        /// The interface that received it.
        nic: NicName,
        /// The sender's address.
        address: IpAddr,
        /// The sender's link-layer address.
        mac: String,
        /// Whether it is a reply; otherwise a request.
        reply: bool,
        /// Whether it announces its own address (gratuitous ARP).
        gratuitous: bool,
    },
    /// A gateway's neighbor advertisement.
    NeighborAdvertisement {
        /// The interface that received it.
        nic: NicName,
        /// The advertised address.
        address: IpAddr,
        /// Its link-layer address; that of the frame if the option is missing.
        mac: String,
        /// Whether it answers a solicitation.
        solicited: bool,
        /// Whether it replaces a known link-layer address.
        overrides: bool,
    },
}

/// The state of a BFD session (RFC 5880), as FRR's daemon reports it when it is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BfdSession {
    /// The neighbor.
    pub peer: IpAddr,
    /// Its interface; none of a session over several hops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic: Option<NicName>,
    /// `up`, `down`, `init` ...
    pub state: String,
    /// Why the session last left the state up, in FRR's words.
    pub diagnostic: String,
    /// The last time at which it was in the state before.
    pub not_before_ns: Nanoseconds,
}

/// The state of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LinkState {
    /// The interface.
    pub nic: NicName,
    /// Whether it is administratively up (`IFF_UP`).
    pub up: bool,
    /// Whether it has a carrier.
    pub carrier: bool,
    /// `up`, `down`, `lower-layer-down`, `dormant` ... (RFC 2863).
    pub operstate: String,
    /// Whether it was removed from this network namespace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
}

impl LinkState {
    /// Whether packets can leave and arrive.
    pub fn carries(&self) -> bool {
        self.up && self.carrier && !self.removed
    }
}

/// The state of a bond's member; LACP states are those of IEEE 802.1AX, 6.4.2.3.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BondMember {
    /// The bond.
    pub bond: NicName,
    /// The member.
    pub nic: NicName,
    /// `active` or `backup`.
    pub state: String,
    /// The state by link monitoring: `up`, `going down`, `down`, `going back`.
    pub mii_status: String,
    /// Its aggregator, in mode 802.3ad.
    pub aggregator: Option<u16>,
    /// The LACP state of this end of the member.
    pub actor_state: Option<u8>,
    /// The LACP state of the partner, as last received.
    pub partner_state: Option<u16>,
}

impl BondMember {
    /// `LACP_STATE_LACP_TIMEOUT`: short timeouts, 3 s, instead of long ones, 90 s.
    const SHORT_TIMEOUT: u8 = 1 << 1;
    /// `LACP_STATE_COLLECTING | LACP_STATE_DISTRIBUTING`.
    const FORWARDING: u8 = 3 << 4;
    /// `LACP_STATE_DEFAULTED | LACP_STATE_EXPIRED`: no partner is heard.
    const UNHEARD: u8 = 3 << 6;

    /// Whether it carries traffic: link monitoring finds it up, and LACP collects and distributes.
    pub fn carries(&self) -> bool {
        let forwards =
            |state: u8| state & Self::FORWARDING == Self::FORWARDING && state & Self::UNHEARD == 0;
        self.mii_status == "up" && self.actor_state.is_none_or(forwards)
    }

    /// How long this end waits for the partner's LACPDUs; none in other modes.
    pub fn lacp_timeout(&self) -> Option<Nanoseconds> {
        let is_short = |state: u8| state & Self::SHORT_TIMEOUT != 0;
        self.actor_state.map(|state| {
            // IEEE 802.1AX, 6.4.4: Short_Timeout_Time, Long_Timeout_Time.
            Nanoseconds::from_millis(if is_short(state) { 3_000 } else { 90_000 })
        })
    }
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Route {
    /// The destination with its prefix length, or `default` and `default6`.
    pub destination: String,
    /// The table.
    pub table: u32,
    /// What created it: `static`, `kernel`, `bgp`, `ospf`, `zebra`, or its number.
    pub protocol: String,
    /// Its metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
    /// Its nexthop object, if it uses one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop_id: Option<u32>,
    /// Its next hops.
    #[serde(default)]
    pub next_hops: Vec<Hop>,
    /// Whether it was removed; otherwise it was added or changed.
    pub removed: bool,
}

/// A next hop of a route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hop {
    /// Its interface.
    pub nic: Option<NicName>,
    /// The gateway; none on the link.
    pub gateway: Option<IpAddr>,
    /// Whether it is unusable: dead, or its link is down.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dead: bool,
}

/// The flows that an end sends to one next hop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HopFlows {
    /// The next hop.
    pub hop: Hop,
    /// The numbers of the flows.
    pub flows: Vec<u32>,
}

/// A nexthop object (`ip-nexthop(8)`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NextHopObject {
    /// Its identifier.
    pub id: u32,
    /// The next hop; none of a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hop: Option<Hop>,
    /// The members of a group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<u32>,
    /// Whether it is a resilient group.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resilient: bool,
    /// Whether it was removed; otherwise it was added or changed.
    pub removed: bool,
}

/// VRRP advertisements of one router that arrived without a pause: a pause of more than twice the interval ends the
/// series.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VrrpSeries {
    /// The interface that received them.
    pub nic: NicName,
    /// The version: 2 or 3.
    pub version: u8,
    /// The sender.
    pub source: IpAddr,
    /// The virtual router (VRID).
    pub router_id: u8,
    /// The priority; 0 is a master that gives up.
    pub priority: u8,
    /// The advertisement interval in the packets.
    pub interval_ns: Nanoseconds,
    /// The first virtual address.
    pub address: Option<IpAddr>,
    /// When the first arrived.
    pub first_ns: Nanoseconds,
    /// When the last arrived.
    pub last_ns: Nanoseconds,
    /// How many arrived.
    pub count: u64,
}

impl VrrpSeries {
    /// After how long without an advertisement a backup of `priority` takes over: Master_Down_Interval, three intervals
    /// and Skew_Time (RFC 5798, 6.1; RFC 3768, 6.1, where the skew is a fraction of a second).
    pub fn master_down(&self, priority: u8) -> Nanoseconds {
        let interval = self.interval_ns.as_u64();
        let unit = if self.version == 2 {
            1_000_000_000
        } else {
            interval
        };
        let skew = unit / 256 * (256 - u64::from(priority));
        Nanoseconds::new(interval.saturating_mul(3).saturating_add(skew))
    }
}

/// A time in which events may have been lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Loss {
    /// The source.
    pub source: Source,
    /// The last time at which nothing was lost.
    pub from_ns: Nanoseconds,
    /// When the loss was noticed.
    pub to_ns: Nanoseconds,
    /// Why.
    pub reason: String,
}

/// A source of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// rtnetlink's notifications.
    Rtnetlink,
    /// Received packets: ARP, neighbor advertisements, VRRP.
    Packets,
    /// The states of bond members.
    Bonds,
}

/// A record that no recorder writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the events of a host hold {given} {what}, and at most {most} are allowed")]
pub struct TooMany {
    what: &'static str,
    given: usize,
    most: usize,
}

impl HostEvents {
    /// Whether a recorder can have written it: a peer or a stored run may contain anything.
    pub fn check(&self) -> Result<(), TooMany> {
        let most = |what, given, most| {
            if given > most {
                Err(TooMany { what, given, most })
            } else {
                Ok(())
            }
        };
        most("events", self.events.len(), EVENTS_MAX)?;
        most("VRRP series", self.vrrp.len(), VRRP_MAX)?;
        most("gateways", self.gateways.len(), HOPS_MAX)?;
        most("interfaces", self.nics.len(), HOPS_MAX)?;
        most("gaps", self.gaps.len(), GAPS_MAX)?;
        most("time-outs", self.timers.len(), TIMERS_MAX)?;
        most("losses", self.losses.len(), GAPS_MAX)?;
        most("next hops of flows", self.flow_hops.len(), HOPS_MAX)?;
        let flows = self.flow_hops.iter().map(|one| one.flows.len()).sum();
        most("flows with a next hop", flows, FLOWS_MAX)?;
        self.events.iter().try_for_each(|event| {
            let hops = match &event.change {
                Change::Route(route) => route.next_hops.len(),
                Change::NextHop(object) => object.members.len(),
                _ => 0,
            };
            most("next hops", hops, HOPS_MAX)
        })
    }

    /// The interface of the path that was the first to lose its carrier while this end transferred, and when.
    pub fn lost_carrier(&self) -> Option<(&NicName, Nanoseconds)> {
        let began = self.trial_began_ns.unwrap_or_default();
        self.events.iter().find_map(|event| match &event.change {
            Change::Link(link) if !link.carries() && event.at_ns >= began => {
                let on_path = self.nics.is_empty() || self.nics.contains(&link.nic);
                on_path.then_some((&link.nic, event.at_ns))
            }
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(version: u8, interval_ms: u64) -> VrrpSeries {
        VrrpSeries {
            nic: "eth0".parse().expect("a name"),
            version,
            source: IpAddr::from([10, 0, 0, 2]),
            router_id: 51,
            priority: 150,
            interval_ns: Nanoseconds::from_millis(interval_ms),
            address: None,
            first_ns: Nanoseconds::new(0),
            last_ns: Nanoseconds::new(0),
            count: 1,
        }
    }

    #[test]
    fn a_backup_of_priority_100_takes_over_after_3_intervals_and_its_skew() {
        // keepalived with advert_int 0.1: 3 x 100 ms + 156/256 x 100 ms.
        let down = series(3, 100).master_down(100).as_u64();
        assert!((360_900_000..=361_000_000).contains(&down), "{down}");
        // Version 2 counts the skew in fractions of a second, whatever the interval.
        let down = series(2, 2_000).master_down(100).as_u64();
        assert!((6_609_000_000..=6_610_000_000).contains(&down), "{down}");
    }

    #[test]
    fn a_member_without_a_partner_carries_nothing() {
        let member = |actor_state| BondMember {
            bond: "bond0".parse().expect("a name"),
            nic: "eth0".parse().expect("a name"),
            state: "active".to_owned(),
            mii_status: "up".to_owned(),
            aggregator: Some(1),
            actor_state,
            partner_state: Some(61),
        };
        assert!(member(None).carries() && member(Some(63)).carries());
        // Expired; and neither collecting nor distributing.
        assert!(!member(Some(63 | 128)).carries() && !member(Some(7)).carries());
        assert_eq!(
            member(Some(63)).lacp_timeout(),
            Some(Nanoseconds::from_millis(3_000))
        );
        assert_eq!(
            member(Some(61)).lacp_timeout(),
            Some(Nanoseconds::from_millis(90_000))
        );
    }

    #[test]
    fn a_record_of_more_than_a_recorder_keeps_is_refused() {
        let event = Event {
            at_ns: Nanoseconds::new(1),
            change: Change::Bucket {
                group: 10,
                bucket: 3,
                next_hop: 1,
            },
        };
        let mut events = HostEvents {
            events: vec![event.clone(); EVENTS_MAX],
            ..HostEvents::default()
        };
        assert_eq!(events.check(), Ok(()));
        let text = serde_json::to_string(&events.events[0]).expect("plain data");
        assert_eq!(
            text,
            r#"{"at_ns":1,"change":{"bucket":{"group":10,"bucket":3,"next_hop":1}}}"#
        );
        events.events.push(event);
        assert!(events.check().is_err());
    }
}
