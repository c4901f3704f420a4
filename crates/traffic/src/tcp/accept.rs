//! The listening end: accepts the connections of one trial and nobody else's.
//!
//! Strangers may connect (a port scanner, a health check, another trial): each connection has
//! [`TOKEN_MILLIS_MAX`] to present its greeting, all that have not yet are polled together, so one
//! that stays silent holds up nobody, and it counts for nothing when it is closed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use linerate_model::protocol::{TOKEN_MILLIS_MAX, Token};
use linerate_model::workload::TrialSpec;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendFlags, SocketFlags, accept_with, bind, getsockname, listen, recv, send, sockopt,
};

use super::greeting::{ACCEPTED, GREETING_BYTES, read};
use super::socket::{Woken, wait};
use super::{Connected, Flow, Side, select, socket};
use crate::{Abort, TrafficError};

/// How many connections that have not greeted are held beyond those expected. While that many are
/// there, no further one is accepted; each leaves within a second.
const STRANGERS_MAX: usize = 64;

/// A port that waits for the data connections of one trial.
#[derive(Debug)]
pub struct Listening {
    spec: TrialSpec,
    token: Token,
    socket: OwnedFd,
    port: u16,
}

/// A connection that has not presented its greeting yet.
#[derive(Debug)]
struct Pending {
    socket: OwnedFd,
    until: Instant,
    greeting: [u8; GREETING_BYTES],
    filled: usize,
}

/// What a pending connection has come to.
enum Progress {
    Waiting,
    Greeted(u32),
    Refused,
}

impl Listening {
    /// Listens for the data connections of `spec`, which will present `token`.
    ///
    /// `bind_to` is an IP address, one with a port (`10.0.0.1:5201`, `[::1]:5201`), or empty for every
    /// address; without a port the kernel chooses a free one.
    pub fn open(spec: &TrialSpec, token: Token, bind_to: &str) -> Result<Self, TrafficError> {
        spec.check()?;
        let socket = if bind_to.is_empty() {
            // One IPv6 socket takes both families; a kernel booted without IPv6 has only the other.
            bound(spec, (Ipv6Addr::UNSPECIFIED, 0).into())
                .or_else(|_| bound(spec, (Ipv4Addr::UNSPECIFIED, 0).into()))?
        } else {
            bound(spec, parse_address(bind_to)?)?
        };
        let backlog = i32::try_from(select::candidates(spec))
            .unwrap_or(i32::MAX)
            .saturating_add(64);
        listen(&socket, backlog).map_err(|errno| TrafficError::of_errno("listen", errno))?;
        let port = getsockname(&socket)
            .and_then(SocketAddr::try_from)
            .map_err(|errno| TrafficError::of_errno("read the port listened on", errno))?
            .port();
        Ok(Self {
            spec: spec.clone(),
            token,
            socket,
            port,
        })
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Accepts exactly the connections of the trial, until `deadline`; stops listening then.
    pub fn accept(self, deadline: Instant, abort: &Abort) -> Result<Connected, TrafficError> {
        let begun = Instant::now();
        let expected = select::candidates(&self.spec) as usize;
        let mut greeted: Vec<Option<OwnedFd>> = Vec::new();
        greeted.resize_with(expected, || None);
        let mut arrived = 0;
        let mut pending: Vec<Pending> = Vec::new();
        let mut ready = Vec::new();
        while arrived < expected {
            let now = Instant::now();
            if now >= deadline {
                return Err(TrafficError::AcceptTimeOut {
                    arrived,
                    expected,
                    waited: now - begun,
                    port: self.port,
                });
            }
            pending.retain(|one| now < one.until);
            let room = pending.len() < expected + STRANGERS_MAX;
            let until = pending.iter().map(|one| one.until).min();
            let interest = if room {
                PollFlags::IN
            } else {
                PollFlags::empty()
            };
            let waited = std::iter::once((self.socket.as_fd(), interest)).chain(
                pending
                    .iter()
                    .map(|one| (one.socket.as_fd(), PollFlags::IN)),
            );
            let until = until.map_or(deadline, |until| until.min(deadline));
            if wait(waited, until, abort, &mut ready)? == Woken::Aborted {
                return Err(TrafficError::Aborted);
            }
            // Those that were polled stand before those accepted now: `ready` covers exactly them.
            let polled = std::mem::take(&mut pending);
            for (mut one, &has_news) in polled.into_iter().zip(&ready[1..]) {
                let progress = if has_news {
                    one.advance(self.token)
                } else {
                    Progress::Waiting
                };
                match progress {
                    Progress::Waiting => pending.push(one),
                    Progress::Greeted(flow) => {
                        arrived += usize::from(take(&mut greeted, flow, one.socket));
                    }
                    Progress::Refused => {}
                }
            }
            if ready[0] {
                self.accept_waiting(&mut pending, expected + STRANGERS_MAX)?;
            }
        }
        self.into_connected(greeted, deadline, abort)
    }

    /// Takes the connections that wait in the kernel's queue, as far as there is room.
    fn accept_waiting(&self, pending: &mut Vec<Pending>, most: usize) -> Result<(), TrafficError> {
        while pending.len() < most {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match accept_with(&self.socket, flags) {
                Ok(socket) => pending.push(Pending {
                    socket,
                    until: Instant::now() + Duration::from_millis(TOKEN_MILLIS_MAX),
                    greeting: [0; GREETING_BYTES],
                    filled: 0,
                }),
                Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS)) => {
                    return Err(TrafficError::of_errno("accept a data connection", errno));
                }
                // Nobody waits any more; or an error of the connection itself (it was reset, its
                // network is gone), which accept(2) hands out here and which is no concern of the
                // others: back to polling.
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    fn into_connected(
        self,
        greeted: Vec<Option<OwnedFd>>,
        deadline: Instant,
        abort: &Abort,
    ) -> Result<Connected, TrafficError> {
        let sockets = greeted.into_iter().flatten().collect();
        let flows = select::answer(&self.spec, sockets, deadline, abort)?
            .into_iter()
            .map(|kept| Flow::new(&self.spec, Side::Listening, kept))
            .collect::<Result<_, TrafficError>>()?;
        Ok(Connected {
            spec: self.spec,
            side: Side::Listening,
            flows,
        })
    }
}

/// Keeps `socket` as flow `flow` and tells the other end; whether it was one that is still missing.
fn take(greeted: &mut [Option<OwnedFd>], flow: u32, socket: OwnedFd) -> bool {
    let Some(place @ None) = greeted.get_mut(flow as usize) else {
        return false;
    };
    if send(&socket, &[ACCEPTED], SendFlags::NOSIGNAL) != Ok(1) {
        return false;
    }
    *place = Some(socket);
    true
}

impl Pending {
    /// Reads what has come of the greeting.
    fn advance(&mut self, token: Token) -> Progress {
        match recv(
            &self.socket,
            &mut self.greeting[self.filled..],
            RecvFlags::DONTWAIT,
        ) {
            Ok((0, _)) => Progress::Refused,
            Ok((count, _)) => {
                self.filled += count;
                if self.filled < GREETING_BYTES {
                    return Progress::Waiting;
                }
                read(&self.greeting, token).map_or(Progress::Refused, Progress::Greeted)
            }
            Err(Errno::AGAIN | Errno::INTR) => Progress::Waiting,
            Err(_) => Progress::Refused,
        }
    }
}

fn parse_address(text: &str) -> Result<SocketAddr, TrafficError> {
    let with_port = text.parse::<SocketAddr>();
    with_port
        .or_else(|_| text.parse::<IpAddr>().map(|address| (address, 0).into()))
        .map_err(|_| TrafficError::BindAddress {
            given: text.to_owned(),
        })
}

fn bound(spec: &TrialSpec, address: SocketAddr) -> Result<OwnedFd, TrafficError> {
    let socket = socket::new(spec, address)?;
    let failed = |errno| TrafficError::of_errno("prepare the listening socket", errno);
    // Without it a port stays taken for a minute after a trial whose sender listened (TIME_WAIT).
    sockopt::set_socket_reuseaddr(&socket, true).map_err(failed)?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        sockopt::set_ipv6_v6only(&socket, false).map_err(failed)?;
    }
    bind(&socket, &address).map_err(|errno| match errno {
        Errno::ADDRINUSE => TrafficError::PortInUse { address },
        Errno::ADDRNOTAVAIL => TrafficError::NoSuchAddress { address },
        _ => TrafficError::of_errno("bind the data port", errno),
    })?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_with_and_without_a_port() {
        for (text, port) in [
            ("127.0.0.1", 0),
            ("::1", 0),
            ("10.0.0.1:5201", 5201),
            ("[::1]:5201", 5201),
        ] {
            assert_eq!(
                parse_address(text).map(|a| a.port()).ok(),
                Some(port),
                "{text}"
            );
        }
        for text in ["far", "10.0.0.1:99999", "10.0.0", " "] {
            assert!(parse_address(text).is_err(), "{text}");
        }
    }
}
