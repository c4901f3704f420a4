//! RDMA verbs as a transport: a queue pair for each flow, in addition to its TCP connection, which stays as the
//! flow's companion. It proves the token, carries what the ends must know of each other, and is how an end
//! notices that the other one is gone.
//!
//! ```text
//! ThreadDevice: device, completion queue          one a thread
//!   VerbsFlow: queue pair, registered memory      one a flow
//! ```

mod choose;
mod connect;
mod hello;
mod taker;
mod thread_device;

use linerate_model::workload::{TrialSpec, Verbs, Waiting, Workload};
pub(crate) use taker::{Taker, Took};
pub(crate) use thread_device::{Needs, ROUTE_HEADER, ThreadDevice, VerbsFlow};

use crate::TrafficError;

/// The verbs options of the trial.
pub(crate) fn verbs_of(spec: &TrialSpec) -> Result<&Verbs, TrafficError> {
    let probes = match &spec.workload {
        Workload::Udp(udp) => udp.probe.as_ref().and_then(|probe| probe.verbs.as_ref()),
        _ => None,
    };
    spec.verbs.as_ref().or(probes).ok_or(TrafficError::NotBuilt)
}

/// Whether a thread polls the completion queue instead of sleeping until an event.
pub(crate) fn spins(spec: &TrialSpec) -> Result<bool, TrafficError> {
    match spec.waiting {
        Waiting::Blocking | Waiting::Epoll => Ok(false),
        Waiting::Spin => Ok(true),
        waiting => Err(TrafficError::not_supported(
            format!("wait by `{waiting}` for RDMA"),
            "its completions are waited for by `blocking` (events) or `spin` (polling)",
        )),
    }
}
