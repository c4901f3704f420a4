//! The connecting end: opens the connections of a trial side by side (a thousand, one after the other, over
//! a slow path would take minutes), greets on each, and waits until the listener has taken every one.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Instant;

use linerate_model::greeting::{GREETING_BYTES, write};
use linerate_model::protocol::Token;
use linerate_model::workload::{Direction, TrialSpec, Waiting};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};

use super::{ACCEPTED, Connected, Flow, Side, Source, files, marks, select, socket};
use crate::waiting::{Event, Poller};
use crate::{Abort, TrafficError};

/// How many are being established at a time. More would overflow the listener's queue (`net.core.somaxconn`; a
/// connection that found it full is tried again a second later), and the first ones' second to greet would
/// run out while the last ones are begun.
const UNDER_WAY_MAX: usize = 512;
/// Events taken from the kernel at a time.
const EVENTS: usize = 256;
/// The event of the trial that was given up, not of a connection.
const ABORT: u64 = u64::MAX;

/// How far a connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Connecting,
    Greeted,
    Accepted,
}

/// A connection being established.
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
        Self::connect_from(None, spec, address, token, deadline, abort)
    }

    /// The same from `source`; without one the kernel chooses interface and address by its routes.
    pub fn connect_from(
        source: Option<&Source>,
        spec: &TrialSpec,
        address: SocketAddr,
        token: Token,
        deadline: Instant,
        abort: &Abort,
    ) -> Result<Self, TrafficError> {
        spec.check()?;
        files::make_room(spec)?;
        let begun = Instant::now();
        let poller = Poller::new(Waiting::Blocking)?;
        poller.add(abort, ABORT, EventFlags::IN)?;
        let numbers = select::candidates(spec);
        let mut waiting = 0..numbers;
        let mut attempts: Vec<Attempt> = Vec::with_capacity(numbers as usize);
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        let mut accepted = 0;
        let mut is_answered = false;
        while accepted < numbers as usize {
            while attempts.len() - accepted < UNDER_WAY_MAX
                && let Some(number) = waiting.next()
            {
                let one = Attempt::begin(source, spec, number, address)?;
                poller.add(&one.socket, number.into(), EventFlags::OUT)?;
                attempts.push(one);
            }
            let now = Instant::now();
            let deadline = if is_answered {
                deadline
            } else {
                deadline.min(begun + socket::ANSWERS_WITHIN)
            };
            if now >= deadline {
                let waited = now - begun;
                return Err(TrafficError::ConnectTimeOut { address, waited });
            }
            poller.wait(&mut events, Some(deadline - now))?;
            for event in &events {
                let Ok(index) = usize::try_from(event.data.u64()) else {
                    continue;
                };
                let Some(one) = attempts.get_mut(index) else {
                    return Err(TrafficError::Aborted);
                };
                let before = one.stage;
                one.advance(address, token, begun)?;
                is_answered = true;
                match one.stage {
                    stage if stage == before => {}
                    Stage::Accepted => {
                        poller.remove(&one.socket)?;
                        accepted += 1;
                    }
                    _ => poller.modify(&one.socket, index as u64, EventFlags::IN)?,
                }
            }
        }
        let sockets = attempts.into_iter().map(|one| one.socket).collect();
        let flows = select::ask(spec, sockets, deadline, abort)?
            .into_iter()
            .map(|kept| Flow::new(spec, Side::Connecting, kept))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            spec: spec.clone(),
            flows,
        })
    }
}

impl Attempt {
    fn begin(
        source: Option<&Source>,
        spec: &TrialSpec,
        number: u32,
        address: SocketAddr,
    ) -> Result<Self, TrafficError> {
        let socket = socket::new(spec, address)?;
        // Before the handshake: a firewall mark chooses the route, too.
        if spec.direction == Direction::Forward {
            marks::set(&spec.marks, &socket)?;
        }
        if let Some(source) = source {
            source.bind(&socket)?;
        }
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(Self {
                number,
                socket,
                stage: Stage::Connecting,
            }),
            Err(errno) => Err(connect_error(address, errno, Instant::now())),
        }
    }

    /// Proceeds as far as possible without waiting.
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
                // The send buffer of a new connection is empty, so the greeting fits whole; a
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

/// What the kernel's answer to connect(2) means.
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
