//! How long the kernel trusts a silent neighbor: `/proc/sys/net/ipv4/neigh/NIC` (Documentation/networking/ip-sysctl.rst).

use std::collections::BTreeSet;

use linerate_model::host::{NeighborTimers, Routing};
use linerate_model::ids::NicName;

use crate::attributes::number;
use crate::nic_control::NicRead;
use crate::root::HostRoot;

const FOLDER: &str = "proc/sys/net/ipv4/neigh";

/// Reads the routes, and the timers of the interfaces of IPv4 routes with several next hops.
pub(crate) fn read_routing(root: &HostRoot, nics: &dyn NicRead) -> Routing {
    let mut routing = nics.routing();
    let routes = routing.routes.value().into_iter().flatten();
    let several = routes.filter(|route| !route.is_v6() && route.hops.len() >= 2);
    let used: BTreeSet<NicName> = several
        .flat_map(|route| &route.hops)
        .filter_map(|hop| hop.nic.clone())
        .collect();
    routing.neighbor_timers = used.into_iter().map(|nic| timers(root, nic)).collect();
    routing
}

fn timers(root: &HostRoot, nic: NicName) -> NeighborTimers {
    let of = |file: &str| number::<u64>(root, &format!("{FOLDER}/{nic}/{file}"));
    NeighborTimers {
        base_reachable_ms: of("base_reachable_time_ms"),
        delay_first_probe_s: of("delay_first_probe_time"),
        ucast_solicit: of("ucast_solicit"),
        retrans_ms: of("retrans_time_ms"),
        nic,
    }
}
