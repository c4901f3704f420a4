//! The connections of a trial: each presents the trial's token first, and only then
//! is it passed to the workload.
//!
//! One end listens (the agent), the other connects (the controller); the direction in the specification
//! determines which one sends. On each connection, in this order:
//!
//! ```text
//! connecting end                      listening end
//!   greeting (token, flow)      -->                       within a second, or it is closed
//!                               <--   ACCEPTED
//! (data of the workload for its other end, such as a port)
//! READY                         <->   READY                when every thread of an end is ready
//! receiving end: GO             -->   sending end          when the receiver's clock runs
//! sending end: payload          -->   receiving end        for the duration, then end of file
//! ```
//!
//! READY and GO make the start exact without a common clock: the receiver does not wait for a
//! sender that is still preparing, no payload is sent before its receiver reads, and an end of file
//! before the duration is over can only mean that the sender was stopped. (Of a bidirectional trial
//! both ends start half a round trip after their GO, so payload may be there before an end starts.)
//!
//! Workloads whose data does not use these connections (`udp`, `http`, a connection per request)
//! have them too, as *companions*: to prove the token, exchange ports, start and stop.

mod accept;
pub(crate) mod arrival;
mod connect;
mod files;
pub(crate) mod info;
pub(crate) mod marks;
mod select;
mod settle;
pub(crate) mod socket;
mod source;
pub(crate) mod words;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

pub use accept::Listening;
pub use arrival::{Arrival, HandedOver};
pub(crate) use connect::connect_error;
pub(crate) use files::{make_room, room_for_clients};
use linerate_model::ids::CpuId;
use linerate_model::ports::PortRange;
use linerate_model::sample::{Role, SideSample};
use linerate_model::workload::{Direction, TrialSpec, Workload};
use select::SelectedConnection;
pub use source::{Source, may_bind_to_device};

use crate::{Abort, TrafficError};

/// Data connections that are all there, greeted, and have not begun to move bytes.
#[derive(Debug)]
pub struct Connected {
    spec: TrialSpec,
    /// In flow order.
    flows: Vec<Flow>,
}

/// The listening end's answer to a valid greeting. On an invalid one it closes without an answer, so that a
/// port scanner learns nothing.
const ACCEPTED: u8 = 0x06;
/// Sent by both ends of every connection when all their threads are ready.
pub(crate) const READY: u8 = 0x52;
/// Sent by a receiving end that reads from now on.
pub(crate) const GO: u8 = 0x47;

/// One end of one data connection.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) number: u32,
    pub(crate) side: Side,
    pub(crate) role: Role,
    /// Its calls block.
    pub(crate) socket: OwnedFd,
    /// The CPU that the kernel received it on, when the trial is placed by that.
    pub(crate) cpu: Option<CpuId>,
    /// Where other sockets of this flow may listen at this end; `None` is any free port.
    pub(crate) ports: Option<PortRange>,
}

impl Connected {
    /// The trial that they are for.
    pub fn spec(&self) -> &TrialSpec {
        &self.spec
    }

    /// Its connections, in flow order.
    pub(crate) fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// This end's address of the data connections, when the kernel reports it.
    pub fn local_address(&self) -> Option<IpAddr> {
        let first = self.flows.first()?;
        let address = rustix::net::getsockname(&first.socket).ok()?;
        let address = SocketAddr::try_from(address).ok()?;
        Some(address.ip().to_canonical())
    }

    /// The other end's address of the data connections, when the kernel reports it.
    pub fn peer_address(&self) -> Option<IpAddr> {
        let first = self.flows.first()?;
        let address = rustix::net::getpeername(&first.socket).ok()??;
        let address = SocketAddr::try_from(address).ok()?;
        Some(address.ip().to_canonical())
    }

    /// Waits, at most 2 s, until the remote end has every byte of a stream, and records what the kernel had
    /// sent by then: what programs, sockets and interfaces count agrees only after that.
    pub fn settle(&self, side: &mut SideSample, abort: &Abort) {
        if self.spec.verbs.is_none() && matches!(self.spec.workload, Workload::Stream(_)) {
            settle::settle(&self.flows, side, abort);
        }
    }
}

impl Flow {
    /// A greeted connection, made ready to run: its calls block from now on.
    fn new(spec: &TrialSpec, side: Side, kept: SelectedConnection) -> Result<Self, TrafficError> {
        let SelectedConnection {
            number,
            socket,
            cpu,
        } = kept;
        let role = role(spec, side, number);
        let failed = |errno| TrafficError::of_errno("make a data connection ready", errno);
        rustix::io::ioctl_fionbio(&socket, false).map_err(failed)?;
        if role == Role::Receiver {
            // Its GO must not wait for an acknowledgement (RFC 896). Senders keep Nagle's algorithm,
            // as a bulk transfer by anyone else would.
            rustix::net::sockopt::set_tcp_nodelay(&socket, true).map_err(failed)?;
        } else {
            marks::set(&spec.marks, &socket)?;
        }
        Ok(Self {
            number,
            side,
            role,
            socket,
            cpu,
            ports: None,
        })
    }
}

/// Which end of the data connections this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Connecting,
    Listening,
}

/// How many connections `spec` needs in each direction: `http` makes its own, and has one companion for
/// each thread of the end that has more of them.
pub(crate) fn per_direction(spec: &TrialSpec) -> u32 {
    match spec.workload {
        Workload::Http(_) => spec.threads().max(spec.threads_remote()),
        _ => spec.flows,
    }
}

/// How many connections `spec` needs.
pub(crate) fn connections(spec: &TrialSpec) -> u32 {
    match spec.direction {
        Direction::Forward | Direction::Reverse => per_direction(spec),
        Direction::Bidirectional => per_direction(spec) * 2,
    }
}

/// What `side` does on flow `number`: of a bidirectional trial the first half of the flows goes
/// forward (the connecting end sends), the second half back.
pub(crate) fn role(spec: &TrialSpec, side: Side, number: u32) -> Role {
    let forward = match spec.direction {
        Direction::Forward => true,
        Direction::Reverse => false,
        Direction::Bidirectional => number < per_direction(spec),
    };
    if forward == (side == Side::Connecting) {
        Role::Sender
    } else {
        Role::Receiver
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_every_flow_have_opposite_roles() {
        for direction in [
            Direction::Forward,
            Direction::Reverse,
            Direction::Bidirectional,
        ] {
            let spec = TrialSpec {
                flows: 3,
                direction,
                ..TrialSpec::default()
            };
            for number in 0..connections(&spec) {
                assert_ne!(
                    role(&spec, Side::Connecting, number),
                    role(&spec, Side::Listening, number)
                );
            }
        }
    }
}
