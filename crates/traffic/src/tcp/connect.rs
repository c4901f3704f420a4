//! The connecting end: opens all connections of a trial at once (a thousand, one after the other, over
//! a slow path would take minutes), greets on each, and waits until the listener has taken every one.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use linerate_model::protocol::Token;
use linerate_model::workload::TrialSpec;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};

use super::greeting::{ACCEPTED, GREETING_BYTES, write};
use super::socket::{Woken, wait};
use super::{Connected, Flow, Side, connections, role, socket};
use crate::{Abort, TrafficError};

/// How far a connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Connecting,
    Greeted,
    Accepted,
}

/// A connection on its way.
struct Attempt {
    number: u32,
    socket: OwnedFd,
    stage: Stage,
}

impl Connected {
    /// Opens the connections of `spec` to the listener at `address` and presents `token` on each.
    pub fn connect(
        spec: &TrialSpec,
        address: SocketAddr,
        token: Token,
        deadline: Instant,
        abort: &Abort,
    ) -> Result<Self, TrafficError> {
        spec.check()?;
        let begun = Instant::now();
        let mut attempts = (0..connections(spec))
            .map(|number| Attempt::begin(spec, number, address))
            .collect::<Result<Vec<_>, _>>()?;
        let mut ready = Vec::new();
        while attempts.iter().any(|one| one.stage != Stage::Accepted) {
            let now = Instant::now();
            if now >= deadline {
                let waited = now - begun;
                return Err(TrafficError::ConnectTimeOut { address, waited });
            }
            let waited = attempts.iter().map(|one| {
                let interest = match one.stage {
                    Stage::Connecting => PollFlags::OUT,
                    Stage::Greeted => PollFlags::IN,
                    Stage::Accepted => PollFlags::empty(),
                };
                (one.socket.as_fd(), interest)
            });
            if wait(waited, deadline, abort, &mut ready)? == Woken::Aborted {
                return Err(TrafficError::Aborted);
            }
            for (one, _) in attempts.iter_mut().zip(&ready).filter(|(_, ready)| **ready) {
                one.advance(address, token, begun)?;
            }
        }
        let flows = attempts
            .into_iter()
            .map(|one| {
                Flow::new(
                    one.number,
                    role(spec, Side::Connecting, one.number),
                    one.socket,
                )
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            spec: spec.clone(),
            side: Side::Connecting,
            flows,
        })
    }
}

impl Attempt {
    fn begin(spec: &TrialSpec, number: u32, address: SocketAddr) -> Result<Self, TrafficError> {
        let socket = socket::new(spec, address)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(Self {
                number,
                socket,
                stage: Stage::Connecting,
            }),
            Err(errno) => Err(connect_error(address, errno, Instant::now())),
        }
    }

    /// Goes on as far as possible without waiting.
    fn advance(
        &mut self,
        address: SocketAddr,
        token: Token,
        begun: Instant,
    ) -> Result<(), TrafficError> {
        match self.stage {
            Stage::Connecting => {
                let outcome = sockopt::socket_error(&self.socket)
                    .map_err(|errno| TrafficError::of_errno("read a socket's error", errno))?;
                outcome.map_err(|errno| connect_error(address, errno, begun))?;
                // The send buffer of a new connection is empty, so the greeting goes in whole; a
                // connection that is reset already is one that the listener did not want.
                match send(
                    &self.socket,
                    &write(token, self.number),
                    SendFlags::NOSIGNAL,
                ) {
                    Ok(GREETING_BYTES) => self.stage = Stage::Greeted,
                    _ => return Err(TrafficError::TokenRefused { address }),
                }
            }
            Stage::Greeted => {
                let mut answer = [0u8; 1];
                match recv(&self.socket, &mut answer, RecvFlags::DONTWAIT) {
                    Ok((1, _)) if answer == [ACCEPTED] => self.stage = Stage::Accepted,
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    _ => return Err(TrafficError::TokenRefused { address }),
                }
            }
            // The listener's GO, or the end of the connection: `run` reads it.
            Stage::Accepted => {}
        }
        Ok(())
    }
}

pub(crate) fn connect_error(address: SocketAddr, errno: Errno, begun: Instant) -> TrafficError {
    match errno {
        Errno::CONNREFUSED => TrafficError::Refused { address },
        Errno::TIMEDOUT => TrafficError::ConnectTimeOut {
            address,
            waited: begun.elapsed(),
        },
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS => {
            TrafficError::of_errno("connect", errno)
        }
        _ => TrafficError::Unreachable {
            address,
            source: errno.into(),
        },
    }
}
