//! The next hop of each flow that an end sends, when its trial begins.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use linerate_model::failover::events::{GAPS_MAX, HOPS_MAX, Hop, HopFlows, HostEvents};
use linerate_model::known::{Cause, Gap};

use crate::netlink::flow_route::FlowRoutes;
use crate::netlink::notification::HopIndex;

const PATH: &str = "rtnetlink RTM_GETROUTE";

/// The next hops found so far; threads share it.
#[derive(Debug)]
pub struct FlowHops(Mutex<State>);

#[derive(Debug)]
struct State {
    routes: io::Result<FlowRoutes>,
    hops: BTreeMap<HopIndex, Vec<u32>>,
    /// Why the next hop of a flow is not known: the first reason.
    unknown: Option<String>,
}

impl FlowHops {
    /// Of the network namespace of this thread.
    pub fn open() -> Self {
        Self(Mutex::new(State {
            routes: FlowRoutes::open(),
            hops: BTreeMap::new(),
            unknown: None,
        }))
    }

    /// Adds the flow of datagrams between two addresses.
    pub fn add(&self, flow: u32, (local, peer): (SocketAddr, SocketAddr)) {
        let mut state = lock(&self.0);
        let State {
            routes,
            hops,
            unknown,
        } = &mut *state;
        let Ok(routes) = routes else { return };
        let why = match routes.next_hop(local, peer) {
            Ok(hop) if hops.len() < HOPS_MAX || hops.contains_key(&hop) => {
                hops.entry(hop).or_default().push(flow);
                return;
            }
            Ok(_) => format!("more than {HOPS_MAX} next hops"),
            Err(error) => error.to_string(),
        };
        unknown.get_or_insert(why);
    }

    /// Adds what was found to the record of the host.
    pub fn close(self, events: &mut HostEvents) {
        let state = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (routes, unknown) = match state.routes {
            Ok(routes) => (Some(routes), state.unknown),
            Err(error) => (None, Some(error.to_string())),
        };
        let name = |index: u32| routes.as_ref()?.name(index).cloned();
        let hops = state.hops.into_iter().map(|(hop, mut flows)| {
            // Threads add theirs in any order.
            flows.sort_unstable();
            HopFlows {
                hop: Hop {
                    nic: hop.interface.and_then(name),
                    gateway: hop.gateway,
                    dead: hop.dead,
                },
                flows,
            }
        });
        events.flow_hops = hops.collect();
        if let Some(why) = unknown.filter(|_| events.gaps.len() < GAPS_MAX) {
            let reason = format!("{why}; the next hops of some flows are not known");
            events.gaps.push(Gap::new(Cause::Unreadable, PATH, reason));
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_of_one_next_hop_are_together_and_one_without_a_route_is_a_gap() {
        let hops = FlowHops::open();
        let address = |text: &str| text.parse().expect("an address");
        let own: SocketAddr = address("127.0.0.1:9");
        hops.add(1, (own, own));
        hops.add(0, (own, own));
        // No packet has a multicast source (RFC 1122, 3.2.1.3), so no host has a route for it.
        hops.add(2, (address("224.0.0.1:9"), own));
        let mut events = HostEvents::default();
        hops.close(&mut events);
        assert_eq!(events.flow_hops.len(), 1, "{events:?}");
        assert_eq!(events.flow_hops[0].flows, [0, 1]);
        assert_eq!(events.gaps.len(), 1, "{events:?}");
        assert_eq!(events.gaps[0].path, PATH);
        assert_eq!(events.check(), Ok(()));
    }
}
