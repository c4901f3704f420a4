//! The listening end. One thread receives everybody, and only who has proved a known key gets a session: a thread, and a
//! process of its own.
//!
//! ```text
//! reception (one thread, low priority)               sessions (a thread and a process each)
//!   accept -> first bytes -> TLS -> key known? --Admitted-->  start the process, answer, pump frames
//!                    |                                                   |
//!                    +-> greeting of a data connection ----descriptor----+
//! ```
//!
//! Strangers cost little: a limited number is held, each for a few seconds, the oldest gives way, no thread, process
//! or line of a log is theirs, and what their handshakes compute has a lower priority than a trial.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use linerate_model::exit::Code;
use linerate_model::greeting::{FIRST_BYTE, GREETING_BYTES, token_in};
use linerate_model::pairing::PairingToken;
use linerate_model::protocol::TOKEN_MILLIS_MAX;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustix::process::{Signal, pidfd_send_signal};
use rustls::{ServerConfig, ServerConnection};

use crate::ChannelError;
use crate::frame::{Frame, Kind};
use crate::identity::Identity;
use crate::keys::{self, KeyList, KnownKey};
use crate::network::Network;
use crate::passing::Passing;
use crate::pump::{Link, LinkEnd};
pub use crate::session::{AgentProcess, Caller};
use crate::session::{addresses, serve, start};
use crate::{socket, tls};

/// Connections of which nothing is known yet; the oldest gives way to another.
const OPENING_MAX: usize = 64;
/// The same while a trial expects its data connections: more than it has under way at a time (512), or those would displace
/// each other.
const OPENING_OF_TRIAL_MAX: usize = 600;
/// Connections that are in the middle of TLS, which takes more memory.
const HANDSHAKES_MAX: usize = 64;
/// How long a process that takes no further data connection is waited for, before it is tried again.
const RETRY: Duration = Duration::from_millis(2);
/// How long a caller may take to prove who it is.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long the refusal of a caller may take to be sent.
const REFUSAL: Duration = Duration::from_millis(200);
/// How long nothing is accepted when no descriptor is left.
const EXHAUSTED: Duration = Duration::from_millis(200);
/// The priority of the reception (nice(2)).
const NICE: i32 = 10;

/// How an agent listens.
#[derive(Debug)]
pub struct Listen {
    /// The socket.
    pub socket: TcpListener,
    /// linerate's state folder, with the keys.
    pub state: PathBuf,
    /// Who may call; empty is everybody.
    pub networks: Vec<Network>,
    /// The maximum number of sessions at a time.
    pub sessions_max: usize,
}

/// What happened, for the agent's owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A host was paired.
    Paired(Caller),
    /// A session began.
    Began(Caller),
    /// A session ended.
    Ended(Caller),
    /// An address outside of the permitted networks was not answered.
    Outside(IpAddr),
    /// A caller with a key was refused.
    Refused(Caller, String),
    /// A session could not be started, or a file of the keys not be read.
    Failed(String),
}

/// A caller that may have a session.
struct Admitted {
    link: Link,
    caller: Caller,
}

/// A running session, as the reception knows it.
struct Open {
    number: u64,
    passing: Passing,
    /// Another handle of its connection: shutting it down ends the session.
    socket: TcpStream,
    /// Its process: without a connection it may go on with a trial.
    process: OwnedFd,
}

impl Open {
    /// Has it end, whatever it does.
    fn end(&self) {
        // A session that is over already needs neither.
        let _ = self.socket.shutdown(Shutdown::Both);
        let _ = pidfd_send_signal(&self.process, Signal::TERM);
    }
}

/// The sessions that run.
#[derive(Default)]
struct Sessions {
    open: Vec<Open>,
    /// Those that are being started are counted too.
    count: usize,
    is_over: bool,
}

/// Opens the port of an agent. An IPv6 address that is unspecified takes both families, where the kernel has IPv6.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    socket::listen(address).or_else(|error| {
        let is_any = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) if is_any => {
                socket::listen((Ipv4Addr::UNSPECIFIED, address.port()).into())
            }
            _ => Err(error),
        }
    })
}

/// Listens until `stop` becomes readable, then ends all sessions.
pub fn listen(
    listen: &Listen,
    agent: &dyn AgentProcess,
    report: &(dyn Fn(Event) + Sync),
    stop: BorrowedFd<'_>,
) -> Result<(), ChannelError> {
    let identity = Identity::of(&listen.state)?;
    let config = tls::server(&identity)
        .map_err(io::Error::other)
        .map_err(ChannelError::files("use the key of this host"))?;
    (listen.socket.set_nonblocking(true)).map_err(ChannelError::files("listen"))?;
    let sessions = &Mutex::<Sessions>::default();
    thread::scope(|scope| {
        let (admit, admitted) = mpsc::channel::<Admitted>();
        let reception = Reception {
            listen,
            config,
            admit,
            report,
            sessions,
            pending: Vec::new(),
            pause: None,
        };
        let received = scope.spawn(move || reception.run(stop));
        // Ends with the reception, which drops its end.
        for (number, one) in (0..).zip(admitted) {
            let count = lock(sessions).count;
            if count >= listen.sessions_max {
                let why = format!("all {count} sessions are in use; try again later");
                refuse(one, Code::Resource, &why, report);
                continue;
            }
            // The thread is there before it gets the caller, who can be answered if there is none.
            let (hand, handed) = mpsc::sync_channel::<Admitted>(1);
            let session = thread::Builder::new().spawn_scoped(scope, move || {
                if let Ok(one) = handed.recv() {
                    run_session(number, one, agent, report, sessions);
                    lock(sessions).count -= 1;
                }
            });
            match session {
                Ok(_) => {
                    lock(sessions).count += 1;
                    let _ = hand.send(one);
                }
                Err(error) => {
                    let why = format!("it cannot start a thread for a session: {error}");
                    refuse(one, Code::Resource, &why, report);
                }
            }
        }
        let mut all = lock(sessions);
        all.is_over = true;
        for open in &all.open {
            open.end();
        }
        drop(all);
        received
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refuse(one: Admitted, code: Code, why: &str, report: &(dyn Fn(Event) + Sync)) {
    let Admitted { mut link, caller } = one;
    link.queue(Kind::Refused, &[&[code.number()], why.as_bytes()].concat());
    link.finish(Instant::now() + REFUSAL);
    report(Event::Refused(caller, why.to_owned()));
}

/// Starts the process of a session, answers the caller, and serves it.
fn run_session(
    number: u64,
    one: Admitted,
    agent: &dyn AgentProcess,
    report: &(dyn Fn(Event) + Sync),
    sessions: &Mutex<Sessions>,
) {
    let started = (start(agent, &one.caller)).and_then(|started| {
        let process = started.0.process()?;
        Ok((started, one.link.socket.try_clone()?, process))
    });
    let ((started, passing), socket, process) = match started {
        Ok(started) => started,
        Err(error) => {
            let why = format!("it cannot start a session: {error}");
            report(Event::Failed(why.clone()));
            return refuse(one, Code::Resource, &why, report);
        }
    };
    let mut all = lock(sessions);
    let open = Open {
        number,
        passing,
        socket,
        process,
    };
    if all.is_over {
        open.end();
    }
    all.open.push(open);
    drop(all);
    let Admitted { mut link, caller } = one;
    report(Event::Began(caller.clone()));
    link.queue(Kind::Ready, &[]);
    serve(link, started);
    lock(sessions).open.retain(|open| open.number != number);
    report(Event::Ended(caller));
}

/// A connection that has not proved who it is.
struct Pending {
    stage: Stage,
    until: Instant,
}

/// How far a connection has come.
enum Stage {
    /// The first bytes, which decide what it is.
    Opening {
        socket: TcpStream,
        bytes: [u8; GREETING_BYTES],
        filled: usize,
    },
    /// TLS, up to the first frame.
    Handshake(Box<Link>),
    /// A data connection whose process takes no more for now.
    Greeted {
        socket: TcpStream,
        greeting: [u8; GREETING_BYTES],
    },
}

/// What becomes of a connection.
enum Next {
    Wait(Pending),
    Close,
    Asks(Box<Link>, Frame),
}

struct Reception<'a> {
    listen: &'a Listen,
    config: Arc<ServerConfig>,
    admit: Sender<Admitted>,
    report: &'a (dyn Fn(Event) + Sync),
    sessions: &'a Mutex<Sessions>,
    /// Oldest first.
    pending: Vec<Pending>,
    /// Nothing is accepted until then.
    pause: Option<Instant>,
}

impl Reception<'_> {
    fn run(mut self, stop: BorrowedFd<'_>) -> Result<(), ChannelError> {
        // Of this thread alone (setpriority(2)); it may be lower than that already.
        let _ = rustix::process::setpriority_process(None, NICE);
        loop {
            let ready = self.wait(stop).map_err(io::Error::from);
            let (stops, arrives, ready) = ready.map_err(ChannelError::files("wait for callers"))?;
            if stops {
                return Ok(());
            }
            self.advance(&ready);
            if arrives {
                self.accept();
            }
        }
    }

    /// Waits for anything to do: whether to stop, whether somebody arrives, and which pending ones have something to read.
    fn wait(&mut self, stop: BorrowedFd<'_>) -> rustix::io::Result<(bool, bool, Vec<bool>)> {
        let now = Instant::now();
        self.pause = self.pause.filter(|until| *until > now);
        let accepts = if self.pause.is_some() {
            PollFlags::empty()
        } else {
            PollFlags::IN
        };
        let mut fds = vec![
            PollFd::from_borrowed_fd(stop, PollFlags::IN),
            PollFd::new(&self.listen.socket, accepts),
        ];
        fds.extend(self.pending.iter().map(Pending::poll));
        let retry = (self.pending.iter())
            .any(|one| matches!(one.stage, Stage::Greeted { .. }))
            .then(|| now + RETRY);
        let ends = self.pending.iter().map(|one| one.until);
        let until = ends.chain(self.pause).chain(retry).min();
        let left = until.map(|until| until.saturating_duration_since(now));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut fds, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let mut seen = fds.iter().map(|fd| !fd.revents().is_empty());
        let stops = seen.next().unwrap_or(false);
        let arrives = seen.next().unwrap_or(false);
        Ok((stops, arrives, seen.collect()))
    }

    fn accept(&mut self) {
        // A few at a time: those who wait are served in between.
        for _ in 0..OPENING_OF_TRIAL_MAX {
            match self.listen.socket.accept() {
                Ok((socket, address)) => {
                    let address = address.ip().to_canonical();
                    let networks = &self.listen.networks;
                    let may = networks.is_empty()
                        || networks.iter().any(|network| network.contains(address));
                    if !may {
                        (self.report)(Event::Outside(address));
                    } else if socket.set_nonblocking(true).is_ok() {
                        self.push(socket);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
                    if let Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) = errno
                    {
                        self.pending.clear();
                        self.pause = Some(Instant::now() + EXHAUSTED);
                        return;
                    }
                    // An error of the connection itself (accept(2)).
                }
            }
        }
    }

    fn push(&mut self, socket: TcpStream) {
        self.make_room(self.opening_max(), |stage| {
            !matches!(stage, Stage::Handshake(_))
        });
        self.pending.push(Pending {
            stage: Stage::Opening {
                socket,
                bytes: [0; GREETING_BYTES],
                filled: 0,
            },
            until: Instant::now() + HANDSHAKE,
        });
    }

    /// The oldest of a kind gives way when there are `most` of it.
    fn make_room(&mut self, most: usize, is_of_kind: fn(&Stage) -> bool) {
        let of_kind = |one: &Pending| is_of_kind(&one.stage);
        let count = self.pending.iter().filter(|one| of_kind(one)).count();
        for _ in most..=count {
            if let Some(oldest) = self.pending.iter().position(of_kind) {
                self.pending.remove(oldest);
            }
        }
    }

    fn opening_max(&self) -> usize {
        let mut all = lock(self.sessions);
        let expects = all.open.iter_mut().any(|open| {
            open.passing.read_announced();
            open.passing.expects_any()
        });
        if expects {
            OPENING_OF_TRIAL_MAX
        } else {
            OPENING_MAX
        }
    }

    /// Continues with those that have something to read, and closes those whose time is over.
    fn advance(&mut self, ready: &[bool]) {
        let now = Instant::now();
        let all = std::mem::take(&mut self.pending);
        for (one, is_ready) in all.into_iter().zip(ready) {
            if one.until <= now {
                continue;
            }
            let next = if *is_ready || matches!(one.stage, Stage::Greeted { .. }) {
                self.step(one)
            } else {
                Next::Wait(one)
            };
            match next {
                Next::Wait(one) => {
                    if matches!(one.stage, Stage::Handshake(_)) {
                        self.make_room(HANDSHAKES_MAX, |stage| {
                            matches!(stage, Stage::Handshake(_))
                        });
                    }
                    self.pending.push(one);
                }
                Next::Close => {}
                Next::Asks(link, frame) => self.answer(*link, &frame),
            }
        }
    }

    fn step(&self, one: Pending) -> Next {
        let Pending { stage, mut until } = one;
        let link = match stage {
            Stage::Greeted { socket, greeting } => {
                return self.hand_over(socket, greeting, until);
            }
            Stage::Handshake(mut link) => match link.read_some() {
                Ok(()) => link,
                Err(_) => return Next::Close,
            },
            Stage::Opening {
                socket,
                mut bytes,
                mut filled,
            } => {
                match recv(&socket, &mut bytes[filled..], RecvFlags::DONTWAIT) {
                    Ok((0, _)) => return Next::Close,
                    Ok((count, _)) => filled += count,
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(_) => return Next::Close,
                }
                if filled > 0 && bytes[0] != FIRST_BYTE {
                    let tls = ServerConnection::new(Arc::clone(&self.config));
                    let (Ok(tls), Ok(())) = (tls, socket::prepare(&socket)) else {
                        return Next::Close;
                    };
                    let mut link = Link::new(tls, socket);
                    if link.feed(&bytes[..filled]).is_err() {
                        return Next::Close;
                    }
                    Box::new(link)
                } else if filled < GREETING_BYTES {
                    if filled > 0 {
                        until = until.min(Instant::now() + Duration::from_millis(TOKEN_MILLIS_MAX));
                    }
                    let stage = Stage::Opening {
                        socket,
                        bytes,
                        filled,
                    };
                    return Next::Wait(Pending { stage, until });
                } else {
                    return self.hand_over(socket, bytes, until);
                }
            }
        };
        Self::proceed(link, until)
    }

    /// Answers the handshake so far; its first frame ends it.
    fn proceed(mut link: Box<Link>, until: Instant) -> Next {
        if link.write_some().is_err() {
            return Next::Close;
        }
        match link.next_frame() {
            Ok(Some(frame)) => Next::Asks(link, frame),
            Ok(None) => Next::Wait(Pending {
                stage: Stage::Handshake(link),
                until,
            }),
            Err(LinkEnd::Closed | LinkEnd::Broken(_)) => Next::Close,
        }
    }

    /// A data connection goes to the session whose trial has announced its token.
    fn hand_over(&self, socket: TcpStream, greeting: [u8; GREETING_BYTES], until: Instant) -> Next {
        let Some(token) = token_in(&greeting) else {
            return Next::Close;
        };
        let mut all = lock(self.sessions);
        for open in &mut all.open {
            // Announced before the other end could know where to connect.
            open.passing.read_announced();
            if open.passing.expects(token) {
                return if open.passing.hand_over(socket.as_fd(), &greeting) {
                    Next::Close
                } else {
                    let stage = Stage::Greeted { socket, greeting };
                    Next::Wait(Pending { stage, until })
                };
            }
        }
        Next::Close
    }

    /// What a caller that has proved its key asks for.
    fn answer(&self, mut link: Link, frame: &Frame) {
        let shown = (link.tls.peer_certificates()).and_then(|shown| tls::key_of(shown.first()?));
        let (Some(key), Ok((address, reached))) = (shown, addresses(&link.socket)) else {
            return;
        };
        let caller = Caller {
            key,
            address,
            reached,
        };
        let decided = match (frame.kind, <[u8; 16]>::try_from(&frame.payload[..])) {
            (Kind::Pair, Ok(token)) => self.pair(&caller, PairingToken(token)),
            (Kind::Open, _) => self.knows(&caller),
            _ => return,
        };
        match decided {
            Ok(decided @ (Decision::Paired | Decision::PairedAlready)) => {
                link.queue(Kind::Ready, &[]);
                link.finish(Instant::now() + REFUSAL);
                if matches!(decided, Decision::Paired) {
                    (self.report)(Event::Paired(caller));
                }
            }
            Ok(Decision::Admitted) => {
                let _ = self.admit.send(Admitted { link, caller });
            }
            Ok(Decision::No(why)) => {
                let one = Admitted { link, caller };
                refuse(one, Code::PermissionMissing, why, self.report);
            }
            Err(error) => {
                (self.report)(Event::Failed(error.to_string()));
                let why = "it cannot read or write its keys; get another pairing line";
                refuse(Admitted { link, caller }, Code::Resource, why, self.report);
            }
        }
    }

    fn pair(&self, caller: &Caller, token: PairingToken) -> Result<Decision, ChannelError> {
        let now = unix_seconds();
        if !keys::redeem(&self.listen.state, token, now)? {
            // A known key needs no token.
            return Ok(match self.knows(caller)? {
                Decision::Admitted => Decision::PairedAlready,
                _ => Decision::No("the pairing line is wrong, used or expired"),
            });
        }
        let known = KnownKey {
            key: caller.key,
            since_unix_s: now,
            name: caller.address.to_string(),
        };
        KeyList::Callers.add(&self.listen.state, known)?;
        Ok(Decision::Paired)
    }

    fn knows(&self, caller: &Caller) -> Result<Decision, ChannelError> {
        let state: &Path = &self.listen.state;
        Ok(if KeyList::Callers.contains(state, caller.key)? {
            Decision::Admitted
        } else {
            Decision::No("this host is not paired with it")
        })
    }
}

/// What the reception decides.
enum Decision {
    Paired,
    PairedAlready,
    Admitted,
    No(&'static str),
}

impl Pending {
    fn poll(&self) -> PollFd<'_> {
        match &self.stage {
            Stage::Opening { socket, .. } => PollFd::new(socket, PollFlags::IN),
            // It waits for its process.
            Stage::Greeted { socket, .. } => PollFd::new(socket, PollFlags::empty()),
            Stage::Handshake(link) => PollFd::new(&link.socket, link.interest(true)),
        }
    }
}

/// The time of this host; a token's expiry is by this clock alone.
fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
