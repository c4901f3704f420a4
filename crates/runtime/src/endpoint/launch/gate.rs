//! The root of a launched mesh: listens for the other ranks, and makes a peer of each session that they open.
//!
//! The listener starts a process for each session, as for a listening agent; here it is `linerate relay`, which passes the session
//! on through two named pipes. The root starts another one as the "agent" of its peer, at their other ends.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use linerate_channel::identity::Identity;
use linerate_channel::keys::invite_several;
use linerate_channel::listen::{AgentProcess, Caller, Event, Listen, bind, listen};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::Host;
use linerate_model::pairing::{HostPort, Pairing, PairingToken, PublicKey};
use linerate_model::peer_address::PeerAddress;
use linerate_model::protocol::{Reply, Request};
use linerate_traffic::Abort;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::worker::SESSIONS;
use crate::console::clock::now_unix_s;
use crate::console::interrupt::Interrupt;
use crate::console::random::fresh_token;
use crate::endpoint::listen::advertised;
use crate::endpoint::peer::Peer;

/// How often a wait looks for Ctrl-C.
const BEAT: Duration = Duration::from_millis(100);

/// A session that a rank has opened.
struct Opened {
    caller: Caller,
    /// What the rank sends, and what it is sent.
    pipes: (PathBuf, PathBuf),
}

/// Listens for ranks.
#[derive(Debug)]
pub struct Gate {
    pairing: Pairing,
    state: PathBuf,
    opened: Receiver<Opened>,
    serving: Arc<Serving>,
    /// Those that take part. Nobody ends the sessions of the others before this process ends.
    joined: Mutex<BTreeSet<PublicKey>>,
    stop: Abort,
}

/// How many sessions of each rank are served.
#[derive(Debug, Default)]
struct Serving {
    of: Mutex<BTreeMap<PublicKey, usize>>,
    changed: Condvar,
}

impl Serving {
    fn note(&self, event: &Event) {
        let Ok(mut all) = self.of.lock() else {
            return;
        };
        match event {
            Event::Began(caller) => *all.entry(caller.key).or_default() += 1,
            Event::Ended(caller) => {
                if let Some(count) = all.get_mut(&caller.key) {
                    *count = count.saturating_sub(1);
                }
            }
            _ => {}
        }
        self.changed.notify_all();
    }
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened")
            .field("caller", &self.caller)
            .finish_non_exhaustive()
    }
}

/// A rank that has joined.
#[derive(Debug)]
pub struct Arrived {
    /// Its address.
    pub address: IpAddr,
    /// Its sessions.
    pub sessions: Vec<Peer>,
    /// What its host is.
    pub facts: Box<Host>,
}

/// Who has come while the gate was open.
#[derive(Debug, Default)]
pub struct Gathered {
    /// Ranks that take part, in the order of their host names and addresses.
    pub arrived: Vec<Arrived>,
    /// Ranks that have paired and cannot take part, such as those of another version: the address, and why.
    pub refused: Vec<(IpAddr, String)>,
}

/// How the process of a session is started.
struct Relays {
    folder: PathBuf,
    next: AtomicU64,
    opened: Mutex<Sender<Opened>>,
}

impl AgentProcess for Relays {
    fn command(&self, caller: &Caller) -> io::Result<(Command, Vec<u8>)> {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let pipe = |name: &str| -> io::Result<PathBuf> {
            let path = self.folder.join(format!("{number}.{name}"));
            mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
            Ok(path)
        };
        let pipes = (pipe("up")?, pipe("down")?);
        let mut command = Command::new("/proc/self/exe");
        command.arg("relay").arg(&pipes.0).arg(&pipes.1);
        // The listener sends the terms of a session first; these have none.
        command.arg("--terms");
        linerate_testbed::tie_to_parent(&mut command);
        linerate_testbed::shield_from_interrupts(&mut command);
        let caller = caller.clone();
        if let Ok(opened) = self.opened.lock() {
            let _ = opened.send(Opened { caller, pipes });
        }
        Ok((command, Vec::new()))
    }
}

impl Gate {
    /// Listens on a free port; `others` ranks may pair until `limit` has passed.
    pub fn open(state: &Path, others: u32, limit: Duration) -> Outcome<Self> {
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        let socket = bind(any).map_err(|error| Stop::io("listen for the other ranks", error))?;
        let at = socket
            .local_addr()
            .map_err(|error| Stop::io("read the address listened on", error))?;
        let token = PairingToken(fresh_token()?.0);
        let now = now_unix_s();
        let pairing = Pairing {
            at: advertised(at, state)?,
            key: Identity::of(state)?.key(),
            token,
            // Clocks of hosts may differ: the root's own decides.
            expires_unix_s: now.saturating_add(limit.as_secs()).saturating_add(60),
        };
        let hosts = usize::try_from(others).unwrap_or(usize::MAX);
        invite_several(state, token, hosts, now, pairing.expires_unix_s)?;
        let (opened, heard) = mpsc::channel();
        let relays = Relays {
            folder: state.to_owned(),
            next: AtomicU64::new(0),
            opened: Mutex::new(opened),
        };
        let options = Listen {
            socket,
            state: state.to_owned(),
            networks: Vec::new(),
            sessions_max: hosts.saturating_mul(SESSIONS),
        };
        let stop = Abort::new().map_err(|error| {
            Stop::new(Code::Resource, "cannot listen for the other ranks").because(error)
        })?;
        let serving = Arc::<Serving>::default();
        let notes = Arc::clone(&serving);
        let ends = stop.clone();
        let named = thread::Builder::new().name("linerate-gate".to_owned());
        // Who is refused learns why; the root counts who has joined.
        named
            .spawn(move || listen(&options, &relays, &|event| notes.note(&event), ends.as_fd()))
            .map_err(|error| Stop::io("start a thread", error))?;
        Ok(Self {
            pairing,
            state: state.to_owned(),
            opened: heard,
            serving,
            joined: Mutex::default(),
            stop,
        })
    }

    /// Waits until each rank that takes part has been sent the exit code of its sessions, for so long (one may hang), or until an
    /// interrupt. A rank whose connection ends without it reports a lost root.
    pub fn wait_for_ends(&self, limit: Duration, interrupt: &Interrupt) {
        let Ok(joined) = self.joined.lock() else {
            return;
        };
        let deadline = Instant::now() + limit;
        let is_served = |all: &mut BTreeMap<PublicKey, usize>| {
            let mut counts = joined.iter().filter_map(|key| all.get(key));
            counts.any(|count| *count > 0)
        };
        while Instant::now() < deadline && !interrupt.asked() {
            let Ok(all) = self.serving.of.lock() else {
                return;
            };
            let waited = (self.serving.changed).wait_timeout_while(all, BEAT, is_served);
            if waited.is_ok_and(|(_, time)| !time.timed_out()) {
                return;
            }
        }
    }

    /// What the ranks need to join.
    pub fn pairing(&self) -> &Pairing {
        &self.pairing
    }

    /// Waits until `others` ranks have joined, or for so long. `has_ended` returns why nobody else will come, if that is known.
    pub fn gather(
        &self,
        others: usize,
        limit: Duration,
        interrupt: &Interrupt,
        has_ended: &mut dyn FnMut() -> Option<Stop>,
    ) -> Outcome<Gathered> {
        let deadline = Instant::now() + limit;
        let mut all: BTreeMap<PublicKey, Arrived> = BTreeMap::new();
        let mut refused: BTreeMap<PublicKey, (IpAddr, String)> = BTreeMap::new();
        while all.len() + refused.len() < others
            || all.values().any(|one| one.sessions.len() < SESSIONS)
        {
            interrupt.check()?;
            let left = deadline.saturating_duration_since(Instant::now());
            let opened = match self.opened.recv_timeout(left.min(BEAT)) {
                Ok(opened) => opened,
                Err(RecvTimeoutError::Timeout) if !left.is_zero() => {
                    if let Some(stop) = has_ended() {
                        return Err(stop);
                    }
                    continue;
                }
                Err(_) => break,
            };
            let Caller { key, address, .. } = opened.caller;
            if refused.contains_key(&key) {
                continue;
            }
            let joined = self.joined(&opened, all.get_mut(&key), interrupt);
            match joined {
                Ok(Some(arrived)) => drop(all.insert(key, arrived)),
                Ok(None) => {}
                Err(stop) => {
                    all.remove(&key);
                    refused.insert(key, (address, in_a_line(&stop)));
                }
            }
        }
        if let Ok(mut joined) = self.joined.lock() {
            joined.extend(all.keys());
        }
        let mut arrived: Vec<Arrived> = all.into_values().collect();
        arrived.sort_by_key(|one| (one.facts.identity.hostname.value().cloned(), one.address));
        Ok(Gathered {
            arrived,
            refused: refused.into_values().collect(),
        })
    }

    /// A session becomes that of a rank that is known, or the first one of a new rank.
    fn joined(
        &self,
        opened: &Opened,
        known: Option<&mut Arrived>,
        interrupt: &Interrupt,
    ) -> Outcome<Option<Arrived>> {
        let mut peer = self.peer(opened, interrupt)?;
        if let Some(known) = known {
            known.sessions.push(peer);
            return Ok(None);
        }
        match peer.ask(&Request::ReadHost)? {
            Reply::Host(facts) => Ok(Some(Arrived {
                address: opened.caller.address,
                sessions: vec![peer],
                facts,
            })),
            _ => Err(Stop::new(
                Code::PeerUnreachable,
                "it answered a request for its facts with something else",
            )),
        }
    }

    fn peer(&self, opened: &Opened, interrupt: &Interrupt) -> Outcome<Peer> {
        let own = std::env::current_exe()
            .map_err(|error| Stop::io("find the path of this program", error))?;
        let quoted =
            |path: &Path| format!("'{}'", path.display().to_string().replace('\'', "'\\''"));
        let (up, down) = &opened.pipes;
        let command = format!(
            "exec {} relay {} {}",
            quoted(&own),
            quoted(down),
            quoted(up)
        );
        let mut peer = Peer::start(
            &PeerAddress::Exec(command),
            false,
            &self.state,
            interrupt,
            None,
        )?;
        // Messages name the host, not the pipes.
        peer.address = PeerAddress::Tls {
            at: HostPort {
                host: opened.caller.address.to_string(),
                port: self.pairing.at.port,
            },
            pairing: None,
        };
        Ok(peer)
    }
}

/// An error with what caused it, in a line.
pub fn in_a_line(stop: &Stop) -> String {
    let text = stop.to_string();
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    lines.join("; ")
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.stop.trigger();
    }
}
