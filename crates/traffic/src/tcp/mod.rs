//! The `stream` workload over TCP: bulk transfer, one connection and one thread at each end per flow.
//!
//! One end listens (the agent), the other connects (the controller); who sends is the specification's
//! direction. On each connection, in this order:
//!
//! ```text
//! connecting end                      listening end
//!   greeting (token, flow)      -->                       within a second, or it is closed
//!                               <--   ACCEPTED
//! READY                         <->   READY                when every thread of an end is ready
//! receiving end: GO             -->   sending end          when the receiver's clock runs
//! sending end: payload          -->   receiving end        for the duration, then end of file
//! ```
//!
//! READY and GO make the start exact without a clock in common: the receiver does not wait idly for a
//! sender that is still preparing, no payload is sent before its receiver reads, and an end of file
//! before the duration is over can only mean that the sender was stopped. (Of a bidirectional trial
//! both ends start half a round trip after their GO, so payload may be there before an end starts.)

mod accept;
mod connect;
mod control;
mod flow;
mod greeting;
mod info;
pub(crate) mod run;
mod socket;

use std::os::fd::OwnedFd;

use linerate_model::sample::Role;
use linerate_model::workload::{Direction, StreamSpec};

pub use accept::Listening;

use crate::TrafficError;

/// Data connections that are all there, greeted, and have not begun to move bytes.
#[derive(Debug)]
pub struct Connected {
    spec: StreamSpec,
    /// In flow order.
    flows: Vec<Flow>,
}

/// One end of one data connection.
#[derive(Debug)]
struct Flow {
    number: u32,
    role: Role,
    socket: OwnedFd,
}

impl Flow {
    /// A greeted connection, made ready to run: its calls block from now on.
    fn new(number: u32, role: Role, socket: OwnedFd) -> Result<Self, TrafficError> {
        let failed = |errno| TrafficError::of_errno("make a data connection ready", errno);
        rustix::io::ioctl_fionbio(&socket, false).map_err(failed)?;
        if role == Role::Receiver {
            // Its GO must not wait for an acknowledgement (RFC 896). Senders keep Nagle's algorithm,
            // as a bulk transfer by anyone else would.
            rustix::net::sockopt::set_tcp_nodelay(&socket, true).map_err(failed)?;
        }
        Ok(Self {
            number,
            role,
            socket,
        })
    }
}

/// Which end of the data connections this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Connecting,
    Listening,
}

/// How many connections `spec` needs.
pub(crate) fn connections(spec: &StreamSpec) -> u32 {
    match spec.direction {
        Direction::Forward | Direction::Reverse => spec.flows,
        Direction::Bidirectional => spec.flows * 2,
    }
}

/// What `side` does on flow `number`: of a bidirectional trial the first half of the flows goes
/// forward (the connecting end sends), the second half back.
fn role(spec: &StreamSpec, side: Side, number: u32) -> Role {
    let forward = match spec.direction {
        Direction::Forward => true,
        Direction::Reverse => false,
        Direction::Bidirectional => number < spec.flows,
    };
    if forward == (side == Side::Connecting) {
        Role::Sender
    } else {
        Role::Receiver
    }
}

#[cfg(test)]
mod tests {
    use linerate_model::units::{Bytes, Nanoseconds};
    use linerate_model::workload::Placement;

    use super::*;

    #[test]
    fn both_ends_of_every_flow_have_opposite_roles() {
        for direction in [
            Direction::Forward,
            Direction::Reverse,
            Direction::Bidirectional,
        ] {
            let spec = StreamSpec {
                flows: 3,
                direction,
                duration_ns: Nanoseconds::from_millis(100),
                interval_ns: Nanoseconds::from_millis(10),
                buffer_bytes: Bytes::kib(128),
                socket_buffer_bytes: None,
                congestion_control: None,
                placement: Placement::default(),
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
