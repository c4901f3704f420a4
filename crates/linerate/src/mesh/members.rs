//! The hosts that take part: their agents, what is known of them, and whether they still answer.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use linerate_analysis::record::MeshClock;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::Host;
use linerate_model::mesh::{HostIndex, HostState, MeshHost, Stage};
use linerate_model::peer_address::PeerAddress;
use linerate_model::protocol::{AgentAddress, FailureKind, Reply, Request};
use linerate_runtime::cli::MeshArgs;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::endpoint::launch::in_a_line;
use linerate_runtime::endpoint::peer::{FarError, Peer};
use linerate_runtime::endpoint::remote_pairs::{ClockOffset, RemoteHost};

use super::for_ranks::ForRanks;
use super::rounds::pass;

/// How long all ranks together may take to get the end of what they store; and after a signal.
const STORED: Duration = Duration::from_secs(2);
const HURRIED: Duration = Duration::from_millis(250);
/// Hosts that are started at the same time.
const STARTED_AT_ONCE: usize = 32;

/// A host before it joins.
pub(super) struct Candidate {
    pub(super) host: MeshHost,
    pub(super) reach: Reach,
}

/// How a host is reached.
pub(super) enum Reach {
    /// Its agent is started.
    Start(PeerAddress),
    /// It was started by a launcher, and has opened these sessions.
    Opened(Vec<Peer>, Box<Host>),
    /// It was started by a launcher, and has not joined.
    Missing(String),
}

/// A host of the mesh.
pub(super) struct Member {
    name: String,
    nic: String,
    /// How further agents of it are started; none if they cannot be.
    peer: Option<PeerAddress>,
    pub(super) state: HostState,
    /// Idle sessions with its agents: one for each flow that it has at the same time.
    sessions: Vec<RemoteHost>,
    pub(super) addresses: Vec<AgentAddress>,
    pub(super) clock: Option<ClockOffset>,
    /// Until they are stored.
    pub(super) facts: Option<Box<Host>>,
    /// Which boot of which kernel it is.
    pub(super) boot: Option<String>,
}

/// All hosts of the mesh.
pub(super) struct Members {
    pub(super) all: Vec<Member>,
    starter: Arc<Starter>,
    pool: Pool,
}

/// Starts agents.
struct Starter {
    state: PathBuf,
    push: bool,
    limit: Duration,
    interrupt: Interrupt,
}

/// What a host that has joined brings.
struct Joined {
    /// At least one.
    sessions: Vec<RemoteHost>,
    facts: Box<Host>,
}

impl Members {
    /// Starts the agents of all hosts, some at a time. A host that does not join is no error.
    pub(super) fn join(
        candidates: Vec<Candidate>,
        args: &MeshArgs,
        state: &Path,
        interrupt: &Interrupt,
    ) -> Outcome<Self> {
        let starter = Arc::new(Starter {
            state: state.to_owned(),
            push: args.push,
            limit: args.join_timeout.into(),
            interrupt: interrupt.clone(),
        });
        let pool = Pool::new(candidates.len().min(STARTED_AT_ONCE))?;
        let starts = Arc::clone(&starter);
        let (members, reaches): (Vec<_>, Vec<_>) = candidates
            .into_iter()
            .map(|one| {
                let peer = match &one.reach {
                    Reach::Start(peer) => Some(peer.clone()),
                    _ => None,
                };
                ((one.host, peer), one.reach)
            })
            .unzip();
        let results = pool.each(reaches, move |reach| starts.join(reach));
        let all = members
            .into_iter()
            .zip(results)
            .map(|((host, peer), joined)| {
                let mut member = Member {
                    nic: host.nic.as_ref().map_or("", |nic| nic.as_str()).to_owned(),
                    name: host.name,
                    peer,
                    state: HostState::Joined,
                    sessions: Vec::new(),
                    addresses: Vec::new(),
                    clock: None,
                    facts: None,
                    boot: None,
                };
                let joined =
                    joined.unwrap_or_else(|| Err((Stage::Join, "it was not started".to_owned())));
                match joined {
                    Ok(joined) => {
                        if let Some(first) = joined.sessions.first() {
                            member.addresses.clone_from(&first.peer.addresses);
                            member.clock = Some(first.clock);
                        }
                        let boot = joined.facts.identity.boot_id.value();
                        member.boot = boot.map(ToString::to_string);
                        member.facts = Some(joined.facts);
                        member.sessions = joined.sessions;
                    }
                    Err((stage, cause)) => {
                        member.state = HostState::Unreached {
                            stage,
                            round: None,
                            cause,
                        };
                    }
                }
                member
            });
        Ok(Self {
            all: all.collect(),
            starter,
            pool,
        })
    }

    /// Refuses a host that takes part twice under two names: both would share what they are measured by.
    pub(super) fn refuse_duplicates(&self) -> Outcome<()> {
        let mut seen: BTreeMap<(String, Vec<String>, String), &str> = BTreeMap::new();
        for member in &self.all {
            let Some(boot) = &member.boot else { continue };
            let mut addresses: Vec<String> = member
                .addresses
                .iter()
                .map(|one| one.address.clone())
                .collect();
            addresses.sort();
            let (name, nic) = (member.name.as_str(), member.nic.clone());
            if let Some(first) = seen.insert((boot.clone(), addresses, nic), name) {
                let why = format!("{first} and {name} are the same host");
                return Err(Stop::new(Code::BadInput, why)
                    .hint("remove one, or give each its own `nic` in the hosts file"));
            }
        }
        Ok(())
    }

    /// The member at a position of the list of hosts.
    pub(super) fn get(&self, host: HostIndex) -> &Member {
        &self.all[host.position()]
    }

    /// Why a host takes no part any more; none if it does.
    pub(super) fn why_absent(&self, host: HostIndex) -> Option<String> {
        match &self.get(host).state {
            HostState::Joined => None,
            HostState::Unreached { cause, .. } => {
                let name = &self.get(host).name;
                Some(format!("{name} was not reached: {cause}"))
            }
        }
    }

    /// Takes an idle session with a host, or opens one.
    pub(super) fn take(&mut self, host: HostIndex) -> Result<RemoteHost, String> {
        let member = &mut self.all[host.position()];
        if let Some(session) = member.sessions.pop() {
            return Ok(session);
        }
        // In a thread that lasts, like those that have joined.
        let Some(peer) = member.peer.clone() else {
            let name = &member.name;
            return Err(format!(
                "{name} was started by a launcher, and has no further session"
            ));
        };
        let starter = Arc::clone(&self.starter);
        let opened = self
            .pool
            .each([peer], move |peer| starter.open(&peer))
            .pop()
            .flatten();
        match opened {
            Some(opened) => opened.map_err(|(_, cause)| cause),
            None => Err("it was not started".to_owned()),
        }
    }

    /// Gives a session back for the next round.
    pub(super) fn give_back(&mut self, host: HostIndex, session: RemoteHost) {
        self.all[host.position()].sessions.push(session);
    }

    /// From now on a host takes no part.
    pub(super) fn lose(&mut self, host: HostIndex, round: u32, cause: &str) {
        let member = &mut self.all[host.position()];
        member.state = HostState::Unreached {
            stage: Stage::Round,
            round: Some(round),
            cause: cause.to_owned(),
        };
        // Ending the session of a host that does not answer takes time, which the others do not wait for.
        let sessions = std::mem::take(&mut member.sessions);
        thread::spawn(move || drop(sessions));
    }

    /// The result is out: sends each rank the rest of what it stores, and ends all agents. After a signal without waiting for them:
    /// each ends when its standard input does.
    pub(super) fn leave(self, mut for_ranks: ForRanks, is_hurried: bool) {
        let wait = if is_hurried { HURRIED } else { STORED };
        let deadline = Instant::now() + wait;
        let mut sessions = Vec::new();
        for (at, member) in self.all.into_iter().enumerate() {
            for mut session in member.sessions {
                // One that was not used has no run.
                let is_first = session.kept() == Some(0);
                let left = deadline.saturating_duration_since(Instant::now());
                // A rank that is lost by now has its records up to here.
                if !is_first {
                    let _ = pass(&mut for_ranks, HostIndex::at(at), &mut session, left);
                }
                sessions.push(session);
            }
        }
        if is_hurried {
            // What is sent has to pass the processes between here and there, which end with this one.
            for session in &mut sessions {
                session.await_kept(deadline);
            }
            std::mem::forget(sessions);
            return;
        }
        // What they have measured is known, and they have changed nothing.
        self.pool.each(sessions, |session| session.peer.leave());
    }
}

impl Member {
    /// Whether a launcher has started it: then it stores a run of its own.
    pub(super) fn is_rank(&self) -> bool {
        self.peer.is_none()
    }

    /// Its clock for the record.
    pub(super) fn clock(&self) -> Option<MeshClock> {
        self.clock.map(|clock| MeshClock {
            monotonic_ns: clock.monotonic_ns,
            unix_ns: clock.unix_ns,
            within_ns: clock.within_ns,
        })
    }
}

impl Starter {
    fn open(&self, peer: &PeerAddress) -> Result<RemoteHost, (Stage, String)> {
        let started = Peer::start_within(
            peer,
            self.push,
            &self.state,
            &self.interrupt,
            None,
            self.limit,
        );
        let peer = started.map_err(|error| match error {
            FarError::Failure(failure) if failure.kind == FailureKind::Version => {
                (Stage::Refused, failure.message)
            }
            FarError::Failure(failure) => (Stage::Join, failure.message),
            FarError::Stop(stop) => (Stage::Join, in_a_line(&stop)),
        })?;
        with_clock(peer)
    }

    fn join(&self, reach: Reach) -> Result<Joined, (Stage, String)> {
        let peer = match reach {
            Reach::Start(peer) => peer,
            Reach::Missing(cause) => return Err((Stage::Join, cause)),
            Reach::Opened(peers, facts) => {
                let sessions: Result<Vec<_>, _> = peers.into_iter().map(with_clock).collect();
                let sessions = sessions?;
                return Ok(Joined { sessions, facts });
            }
        };
        let mut session = self.open(&peer)?;
        let read = session.peer.ask(&Request::ReadHost);
        match read.map_err(|stop| (Stage::Join, in_a_line(&stop)))? {
            Reply::Host(facts) => Ok(Joined {
                sessions: vec![session],
                facts,
            }),
            _ => Err((Stage::Join, "an answer passed that does not fit".to_owned())),
        }
    }
}

fn with_clock(mut peer: Peer) -> Result<RemoteHost, (Stage, String)> {
    let clock = ClockOffset::of(&mut peer).map_err(|stop| (Stage::Join, in_a_line(&stop)))?;
    Ok(RemoteHost::new(peer, clock))
}

/// Threads that start agents. The kernel ends an agent with the thread that has started it (`PR_SET_PDEATHSIG`, prctl(2)), so
/// they last as long as the mesh.
struct Pool {
    jobs: Sender<Job>,
}

type Job = Box<dyn FnOnce() + Send>;

impl Pool {
    fn new(threads: usize) -> Outcome<Self> {
        let (jobs, taken) = mpsc::channel::<Job>();
        let taken = Arc::new(Mutex::new(taken));
        for _ in 0..threads {
            let taken = Arc::clone(&taken);
            let work = move || {
                loop {
                    // The lock is held while waiting: one thread waits, the others wait for it.
                    let job = taken.lock().ok().and_then(|taken| taken.recv().ok());
                    match job {
                        Some(job) => job(),
                        None => return,
                    }
                }
            };
            let named = thread::Builder::new().name("linerate-start".to_owned());
            named
                .spawn(work)
                .map_err(|error| Stop::io("start a thread", error))?;
        }
        Ok(Self { jobs })
    }

    /// Does `work` for each item, for as many at the same time as there are threads; the results are in the order of the items.
    fn each<T: Send + 'static, R: Send + 'static>(
        &self,
        items: impl IntoIterator<Item = T>,
        work: impl Fn(T) -> R + Send + Sync + 'static,
    ) -> Vec<Option<R>> {
        let work = Arc::new(work);
        let (done, results) = mpsc::channel();
        let mut all = Vec::new();
        for (at, item) in items.into_iter().enumerate() {
            all.push(None);
            let (work, done) = (Arc::clone(&work), done.clone());
            let job = move || {
                let _ = done.send((at, work(item)));
            };
            let _ = self.jobs.send(Box::new(job));
        }
        drop(done);
        for (at, result) in results {
            all[at] = Some(result);
        }
        all
    }
}
