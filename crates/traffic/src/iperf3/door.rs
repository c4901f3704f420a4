//! The server's port: accepts connections, reads the cookie of each, and assigns them to tests.
//!
//! Anyone may connect, thousands of times: each connection has some seconds for its cookie, their number is limited,
//! and beyond the limit the oldest connection of the source with the most of them is closed.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, accept_with, bind, connect,
    getpeername, getsockname, listen, recv, recvfrom, send, socket_with, sockopt,
};

use super::desk::Desk;
use crate::iperf3_protocol::{COOKIE_BYTES, Cookie, REPLIES, SALUTE, State};
use crate::source::Source;
use crate::tcp::socket::{Woken, wait};
use crate::{Abort, TrafficError};

/// How long a connection may take to present its cookie.
const COOKIE_TIME_MAX: Duration = Duration::from_secs(5);

/// How many connections without a cookie are held.
const STRANGERS_MAX: usize = 128;

/// How long no connection is taken when there is no descriptor for one.
const REST: Duration = Duration::from_millis(100);

/// A TCP and a UDP port of one number.
#[derive(Debug)]
pub(super) struct Door {
    tcp: OwnedFd,
    udp: OwnedFd,
    pub(super) address: SocketAddr,
}

/// A connection that has not presented its cookie yet.
#[derive(Debug)]
struct Stranger {
    socket: OwnedFd,
    source: Option<Source>,
    until: Instant,
    cookie: [u8; COOKIE_BYTES],
    filled: usize,
}

/// A connection that begins a test.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) socket: OwnedFd,
    pub(super) cookie: Cookie,
    pub(super) client: SocketAddr,
    pub(super) own: SocketAddr,
}

impl Door {
    /// Opens both ports; port 0 is one of the kernel's choice.
    pub(super) fn open(address: SocketAddr) -> Result<Self, TrafficError> {
        let tcp = bound(address, SocketType::STREAM)?;
        listen(&tcp, 1_024).map_err(|errno| TrafficError::of_errno("listen", errno))?;
        let address = getsockname(&tcp)
            .and_then(SocketAddr::try_from)
            .map_err(|errno| TrafficError::of_errno("read the port listened on", errno))?;
        let udp = bound(address, SocketType::DGRAM)?;
        Ok(Self { tcp, udp, address })
    }

    /// Brings each connection to its test, and each that begins one to `new_test`, until `abort`.
    pub(super) fn keep(
        &self,
        desk: &Desk,
        abort: &Abort,
        mut new_test: impl FnMut(Caller),
    ) -> Result<(), TrafficError> {
        let mut strangers: VecDeque<Stranger> = VecDeque::new();
        let mut resting: Option<Instant> = None;
        let mut ready = Vec::new();
        loop {
            let now = Instant::now();
            strangers.retain(|one| now < one.until);
            resting = resting.filter(|until| now < *until);
            let interest = if resting.is_some() {
                PollFlags::empty()
            } else {
                PollFlags::IN
            };
            let ports = [
                (self.tcp.as_fd(), interest),
                (self.udp.as_fd(), PollFlags::IN),
            ];
            let calling = strangers
                .iter()
                .map(|one| (one.socket.as_fd(), PollFlags::IN));
            let first = strangers.front().map(|one| one.until);
            let until = first.into_iter().chain(resting).min();
            let until = until.unwrap_or(now + Duration::from_secs(3_600));
            let waited = ports.into_iter().chain(calling);
            if wait(waited, until, abort, &mut ready)? == Woken::Aborted {
                return Ok(());
            }
            // Those that were polled stand before those accepted now: `ready` covers exactly them.
            let polled = std::mem::take(&mut strangers);
            for (mut one, &has_news) in polled.into_iter().zip(&ready[2..]) {
                match if has_news {
                    one.advance()
                } else {
                    Progress::Waiting
                } {
                    Progress::Waiting => strangers.push_back(one),
                    Progress::Presented(cookie) => show_in(desk, one.socket, cookie, &mut new_test),
                    Progress::Wrong => {}
                }
            }
            if ready[0] && !self.take_callers(&mut strangers) {
                resting = Some(now + REST);
            }
            if ready[1] {
                self.take_salutes(desk);
            }
        }
    }

    /// Takes the connections that wait in the kernel's queue; false when there is no descriptor for one.
    fn take_callers(&self, strangers: &mut VecDeque<Stranger>) -> bool {
        // Not endlessly: those that have presented their cookie want to be served, too.
        for _ in 0..STRANGERS_MAX {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match accept_with(&self.tcp, flags) {
                Ok(socket) => {
                    if strangers.len() >= STRANGERS_MAX {
                        send_away_one(strangers);
                    }
                    let from = getpeername(&socket).ok().flatten();
                    let from = from.and_then(|from| SocketAddr::try_from(from).ok());
                    strangers.push_back(Stranger {
                        socket,
                        source: from.map(|from| from.ip().into()),
                        until: Instant::now() + COOKIE_TIME_MAX,
                        cookie: [0; COOKIE_BYTES],
                        filled: 0,
                    });
                }
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                    return send_away_one(strangers);
                }
                // Nothing is pending any more; or an error of the connection itself.
                Err(_) => return true,
            }
        }
        true
    }

    /// Takes the UDP streams that are being opened.
    fn take_salutes(&self, desk: &Desk) {
        let mut salutes = VecDeque::new();
        hear_salutes(&self.udp, &mut salutes);
        while let Some(client) = salutes.pop_front() {
            let Some(place) = desk.awaits_udp(client.ip()) else {
                continue;
            };
            let own = SocketAddr::new(place.own.ip(), self.address.port());
            // If one cannot be created, the client waits without success and reports it.
            let Ok(stream) = udp_stream(own, client, &mut salutes) else {
                continue;
            };
            if send(&stream, REPLIES[0], SendFlags::NOSIGNAL).is_ok() {
                // One that has become superfluous is closed.
                let _ = place.put(stream, true);
            }
        }
    }
}

/// Closes the oldest connection of the source that has the most; false if there is none.
fn send_away_one(strangers: &mut VecDeque<Stranger>) -> bool {
    let mut held: HashMap<Option<Source>, usize> = HashMap::new();
    for one in strangers.iter() {
        *held.entry(one.source).or_default() += 1;
    }
    let most = held.values().max().copied();
    let oldest = strangers
        .iter()
        .position(|one| held.get(&one.source).copied() == most);
    oldest.is_some_and(|oldest| strangers.remove(oldest).is_some())
}

/// Records the senders of salutes on `udp`. Late data of a finished test arrives at the same port: it is longer.
fn hear_salutes(udp: &OwnedFd, salutes: &mut VecDeque<SocketAddr>) {
    let mut bytes = [0; SALUTE.len() + 1];
    for _ in 0..STRANGERS_MAX {
        let Ok((_, count, from)) = recvfrom(udp, &mut bytes, RecvFlags::DONTWAIT) else {
            return;
        };
        let from = from.and_then(|from| SocketAddr::try_from(from).ok());
        if let Some(from) = from.filter(|_| count == SALUTE.len()) {
            salutes.push_back(from);
        }
    }
}

/// A socket of one UDP stream. Between its `bind` and its `connect` the kernel may hand it what is meant
/// for the door: that is taken out again.
fn udp_stream(
    own: SocketAddr,
    client: SocketAddr,
    salutes: &mut VecDeque<SocketAddr>,
) -> Result<OwnedFd, TrafficError> {
    let stream = bound(own, SocketType::DGRAM)?;
    connect(&stream, &client)
        .map_err(|errno| TrafficError::of_errno("connect a UDP stream", errno))?;
    hear_salutes(&stream, salutes);
    Ok(stream)
}

/// The state of a connection that has not sent its cookie.
enum Progress {
    Waiting,
    Presented(Cookie),
    Wrong,
}

impl Stranger {
    /// Reads the received part of the cookie.
    fn advance(&mut self) -> Progress {
        let rest = &mut self.cookie[self.filled..];
        match recv(&self.socket, rest, RecvFlags::DONTWAIT) {
            Ok((0, _)) => Progress::Wrong,
            Ok((count, _)) => {
                self.filled += count;
                if self.filled < COOKIE_BYTES {
                    return Progress::Waiting;
                }
                Cookie::read(&self.cookie).map_or(Progress::Wrong, Progress::Presented)
            }
            Err(Errno::AGAIN | Errno::INTR) => Progress::Waiting,
            Err(_) => Progress::Wrong,
        }
    }
}

/// Brings a connection to its test, or lets it begin one.
fn show_in(desk: &Desk, socket: OwnedFd, cookie: Cookie, new_test: &mut impl FnMut(Caller)) {
    if let Some(place) = desk.find(&cookie) {
        if let Err(superfluous) = place.put(socket, false) {
            refuse(&superfluous);
        }
        return;
    }
    let client = getpeername(&socket).ok().flatten();
    let client = client.and_then(|client| SocketAddr::try_from(client).ok());
    let own = getsockname(&socket).and_then(SocketAddr::try_from).ok();
    // A connection without addresses is gone already.
    if let (Some(client), Some(own)) = (client, own) {
        new_test(Caller {
            socket,
            cookie,
            client,
            own,
        });
    }
}

/// Refuses and closes.
pub(super) fn refuse(socket: &OwnedFd) {
    // It fails when the other end is gone.
    let _ = send(socket, &[State::AccessDenied.byte()], SendFlags::NOSIGNAL);
}

fn bound(address: SocketAddr, kind: SocketType) -> Result<OwnedFd, TrafficError> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let failed = |errno| TrafficError::of_errno("prepare the listening socket", errno);
    let socket = socket_with(family, kind, flags, None).map_err(failed)?;
    sockopt::set_socket_reuseaddr(&socket, true).map_err(failed)?;
    if kind == SocketType::DGRAM {
        // The port and each of its streams have one number.
        sockopt::set_socket_reuseport(&socket, true).map_err(failed)?;
    }
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, false).map_err(failed)?;
    }
    bind(&socket, &address).map_err(|errno| match errno {
        Errno::ADDRINUSE => TrafficError::PortInUse { address },
        Errno::ADDRNOTAVAIL => TrafficError::NoSuchAddress { address },
        _ => TrafficError::of_bind("bind the port", errno),
    })?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::abort::new_event;

    #[test]
    fn a_source_with_many_strangers_makes_room_by_its_own_oldest() {
        let stranger = |client: u8, seconds: u64| Stranger {
            socket: new_event().expect("a descriptor"),
            source: Some(IpAddr::from([10, 0, 0, client]).into()),
            until: Instant::now() + Duration::from_secs(seconds),
            cookie: [0; COOKIE_BYTES],
            filled: 0,
        };
        let mut all: VecDeque<Stranger> = [(1, 1), (2, 2), (2, 3), (3, 4), (2, 5)]
            .into_iter()
            .map(|(client, seconds)| stranger(client, seconds))
            .collect();
        let first = all[0].until;
        let (oldest, newest) = (all[1].until, all[4].until);
        assert!(send_away_one(&mut all));
        let left: Vec<Instant> = all.iter().map(|one| one.until).collect();
        assert!(left.contains(&first) && left.contains(&newest) && !left.contains(&oldest));
        all.clear();
        assert!(!send_away_one(&mut all));
    }
}
