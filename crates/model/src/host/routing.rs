//! How packets leave: the routes that have a gateway or several, and nexthop groups (ip-route(8), ip-nexthop(8)).

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::ids::NicName;
use crate::known::Known;

/// The routes that decide over redundancy, read from the live kernel only, never captured.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Routing {
    /// The default routes of the main table, and its routes with several next hops.
    pub routes: Known<Vec<Route>>,
    /// Nexthop groups.
    pub groups: Known<Vec<NexthopGroup>>,
    /// How long the kernel trusts a silent neighbor on the interfaces of IPv4 routes with several next hops.
    pub neighbor_timers: Vec<NeighborTimers>,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Route {
    /// `0.0.0.0/0` or `::/0` of a default route.
    pub destination: String,
    /// Who added it: `static`, `dhcp`, `ra`, `bgp` ...
    pub protocol: String,
    /// Its metric; null for 0.
    pub metric: Option<u32>,
    /// The nexthop object that it uses.
    pub nexthop: Option<u32>,
    /// Its next hops.
    pub hops: Vec<RouteHop>,
}

impl Route {
    /// Whether it is a default route.
    pub fn is_default(&self) -> bool {
        self.destination.ends_with("/0")
    }

    /// Whether it is of IPv6.
    pub fn is_v6(&self) -> bool {
        self.destination.contains(':')
    }

    /// Whether a routing protocol maintains it, which withdraws next hops that fail.
    pub fn is_dynamic(&self) -> bool {
        const STATIC: [&str; 6] = ["kernel", "boot", "static", "ra", "dhcp", "redirect"];
        !STATIC.contains(&self.protocol.as_str())
    }
}

/// A next hop.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RouteHop {
    /// The interface.
    pub nic: Option<NicName>,
    /// The gateway; null for a destination on the link.
    pub gateway: Option<IpAddr>,
    /// Its link-layer address, if the neighbor table has it.
    pub mac: Option<String>,
    /// Whether the kernel does not use it (`RTNH_F_DEAD`, `RTNH_F_LINKDOWN`).
    pub is_dead: bool,
}

/// A nexthop group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NexthopGroup {
    /// Its id.
    pub id: u32,
    /// Its members.
    pub members: Vec<GroupMember>,
    /// Its timers if it is resilient.
    pub resilient: Option<ResilientGroup>,
}

/// A member of a nexthop group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GroupMember {
    /// The id of the nexthop.
    pub id: u32,
    /// The nexthop.
    pub hop: RouteHop,
}

/// The hash table of a resilient nexthop group (Documentation/networking/nexthop-group-resilient.rst).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResilientGroup {
    /// Its buckets.
    pub buckets: u32,
    /// A bucket without traffic for so long may move to another member, milliseconds.
    pub idle_timer_ms: u64,
    /// A table that is unbalanced for so long is balanced by force, milliseconds; 0 for never.
    pub unbalanced_timer_ms: u64,
    /// How long it has been unbalanced, milliseconds.
    pub unbalanced_ms: u64,
}

/// The timers of neighbor unreachability detection on an interface (Documentation/networking/ip-sysctl.rst, `neigh`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NeighborTimers {
    /// The interface.
    pub nic: NicName,
    /// `base_reachable_time_ms`: half of it to one and a half is how long an entry is valid.
    pub base_reachable_ms: Known<u64>,
    /// `delay_first_probe_time`, seconds.
    pub delay_first_probe_s: Known<u64>,
    /// `ucast_solicit`.
    pub ucast_solicit: Known<u64>,
    /// `retrans_time_ms`.
    pub retrans_ms: Known<u64>,
}
