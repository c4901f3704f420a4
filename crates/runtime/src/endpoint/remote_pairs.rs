//! Trials between hosts that are both remote: this program is the controller of the two agents and moves no data itself.
//!
//! One end listens (`Prepare`), the other connects to it (`Connect`), and both start at the same time of this host's clock,
//! which `StartAt` gives each agent in terms of its own. What they record is a [`Sample`] like that of any other trial.

use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use linerate_model::end::End;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::protocol::{AgentAddress, Failure, FailureKind, Reply, Request};
use linerate_model::sample::{Sample, SideSample};
use linerate_model::units::Nanoseconds;
use linerate_model::workload::TrialSpec;
use rustix::time::ClockId;

use crate::console::random::fresh_token;
use crate::endpoint::peer::{FarError, Peer};
use crate::endpoint::trial::{parse_prefixed, same_subnet, usable};

/// How often a clock is read: the reading with the shortest round trip counts.
const CLOCK_READINGS: u32 = 5;
/// How long an agent may take to read its clock.
const CLOCK: Duration = Duration::from_secs(10);
/// How long an agent may take to confirm that a trial is aborted. One that does not is lost.
const ABORTED: Duration = Duration::from_secs(2);
/// How long the other end of a trial may take to fail after one end is lost.
const NOTICES: Duration = Duration::from_secs(2);
/// The maximum of records in a request: quotes are escaped in it, and a request with records has at most 4 MiB.
const KEEP_BYTES_MAX: usize = 2 << 20;
/// The shortest time between the last preparation of a round and its start.
const START_AHEAD_MIN: Duration = Duration::from_millis(20);

/// The clocks of a remote host, compared with those of this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClockOffset {
    /// How far its `CLOCK_MONOTONIC` is ahead of this host's.
    pub monotonic_ns: i64,
    /// How far its time of day is ahead of this host's.
    pub unix_ns: i64,
    /// Both are known to within this time: half the shortest round trip.
    pub within_ns: Nanoseconds,
}

impl ClockOffset {
    /// Estimates the offset from a few round trips.
    pub fn of(peer: &mut Peer) -> Outcome<Self> {
        let mut best: Option<Self> = None;
        for _ in 0..CLOCK_READINGS {
            let before = (read(ClockId::Monotonic), read(ClockId::Realtime));
            peer.send(&Request::ReadClock)?;
            let Reply::Clock {
                monotonic_ns,
                unix_ns,
            } = peer.hear(&Request::ReadClock, CLOCK)?
            else {
                return Err(does_not_fit());
            };
            let half = read(ClockId::Monotonic).saturating_sub(before.0) / 2;
            let offset = |theirs: Nanoseconds, ours: u64| {
                let difference =
                    i128::from(theirs.as_u64()) - i128::from(ours.saturating_add(half));
                i64::try_from(difference).unwrap_or(i64::MAX)
            };
            let one = Self {
                monotonic_ns: offset(monotonic_ns, before.0),
                unix_ns: offset(unix_ns, before.1),
                within_ns: Nanoseconds::new(half),
            };
            if best.is_none_or(|best| one.within_ns < best.within_ns) {
                best = Some(one);
            }
        }
        best.ok_or_else(does_not_fit)
    }

    /// A time of this host's monotonic clock on the remote one.
    fn theirs(self, ours: u64) -> Nanoseconds {
        Nanoseconds::new(ours.saturating_add_signed(self.monotonic_ns))
    }
}

/// A session with the agent of a remote host.
#[derive(Debug)]
pub struct RemoteHost {
    /// The agent.
    pub peer: Peer,
    /// Its clocks.
    pub clock: ClockOffset,
    /// What it was sent to keep.
    keeping: Keeping,
}

/// What an agent was sent to keep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Keeping {
    /// None of the records that all hosts get.
    #[default]
    Nothing,
    /// This many of them, which it has confirmed.
    Kept(usize),
    /// This many of them, the last of which it has yet to confirm.
    Sent(usize),
    /// It cannot keep any.
    Refused,
}

impl RemoteHost {
    /// A session with an agent.
    pub fn new(peer: Peer, clock: ClockOffset) -> Self {
        Self {
            peer,
            clock,
            keeping: Keeping::Nothing,
        }
    }

    /// How many of the records that all hosts get were sent to this one; none if it cannot keep any.
    pub fn kept(&self) -> Option<usize> {
        match self.keeping {
            Keeping::Nothing => Some(0),
            Keeping::Kept(count) | Keeping::Sent(count) => Some(count),
            Keeping::Refused => None,
        }
    }

    /// Sends records for the run of this host, which then has `count` of those that all hosts get. The answer is taken before
    /// the next request.
    pub fn keep(&mut self, records: Vec<String>, count: usize, limit: Duration) -> Outcome<()> {
        for part in parts(records, KEEP_BYTES_MAX) {
            let is_too_long = part.iter().map(String::len).sum::<usize>() > KEEP_BYTES_MAX;
            if is_too_long {
                // Without it, the run would be incomplete in its middle.
                self.keeping = Keeping::Refused;
            }
            self.settle(limit)?;
            if self.keeping == Keeping::Refused {
                return Ok(());
            }
            self.peer.send_within(&Request::Keep(part), limit)?;
            self.keeping = Keeping::Sent(count);
        }
        Ok(())
    }

    /// Waits until the last records have arrived, whatever else the agent answers before. After this only its end may follow.
    pub fn await_kept(&mut self, deadline: Instant) {
        let asked = Request::Keep(Vec::new());
        while let Keeping::Sent(_) = self.keeping {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.peer.answer_to(&asked, left) {
                // Of a trial that was interrupted.
                Err(FarError::Failure(failure)) if failure.kind == FailureKind::Other => {}
                _ => self.keeping = Keeping::Refused,
            }
        }
    }

    /// Aborts its trial. The answer to the last records comes before that; if they were refused, so are the next ones.
    fn abort_trial(&mut self) -> Outcome<()> {
        self.peer.abort_trial_within(ABORTED)?;
        if let Keeping::Sent(count) = self.keeping {
            self.keeping = Keeping::Kept(count);
        }
        Ok(())
    }

    /// Takes the answer to the last records. A host that cannot store them is measured all the same.
    fn settle(&mut self, limit: Duration) -> Result<(), FarError> {
        let Keeping::Sent(count) = self.keeping else {
            return Ok(());
        };
        match self.peer.answer_to(&Request::Keep(Vec::new()), limit) {
            Ok(_) => self.keeping = Keeping::Kept(count),
            Err(FarError::Failure(_)) => self.keeping = Keeping::Refused,
            Err(stop) => {
                // A late answer would be taken for that of the next request.
                self.keeping = Keeping::Refused;
                return Err(stop);
            }
        }
        Ok(())
    }
}

/// Splits records into parts of at most `bytes_max` bytes, in their order. A longer record is a part of its own.
fn parts(records: Vec<String>, bytes_max: usize) -> Vec<Vec<String>> {
    let mut parts: Vec<Vec<String>> = Vec::new();
    let mut bytes = 0;
    for record in records {
        bytes += record.len();
        match parts.last_mut() {
            Some(part) if bytes <= bytes_max => part.push(record),
            _ => {
                bytes = record.len();
                parts.push(vec![record]);
            }
        }
    }
    parts
}

/// A flow of a round: the sessions of its two hosts, and the trial between them.
#[derive(Debug)]
pub struct RemoteFlow<'a> {
    /// The host that connects: it sends the data of a forward trial.
    pub from: &'a mut RemoteHost,
    /// The host that listens.
    pub to: &'a mut RemoteHost,
    /// The address of `to` that `from` connects to.
    pub address: IpAddr,
    /// The trial, as `from` runs it.
    pub spec: &'a TrialSpec,
    /// Whether both hosts run on one kernel.
    pub shared_kernel: bool,
}

/// The deadlines of a round.
#[derive(Debug, Clone, Copy)]
pub struct RoundLimits {
    /// How long both ends of a flow may take to connect.
    pub prepare: Duration,
    /// How much longer than its duration a trial may take.
    pub grace: Duration,
}

/// Why a flow has no sample.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlowFailure {
    /// What failed, in words.
    pub why: String,
    /// Hosts that do not answer any more, and why. Their sessions cannot be used again.
    pub lost: Vec<(End, String)>,
    /// Whether the run was interrupted: then nothing is known about the flow.
    pub is_interrupted: bool,
    /// How far it came.
    pub stage: FlowStage,
}

/// How far a flow came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FlowStage {
    /// Its ends did not connect.
    #[default]
    Connect,
    /// It broke, or an end of it failed.
    Run,
    /// It did not end before its deadline.
    Deadline,
}

/// The result of a flow.
pub type FlowResult = Result<Box<Sample>, FlowFailure>;

/// Runs the flows of a round; all start at the same time, without those that cannot. Returns that time, by this host's
/// monotonic clock, and the results in the order of the flows.
pub fn run_round(
    mut flows: Vec<RemoteFlow<'_>>,
    limits: RoundLimits,
) -> (Nanoseconds, Vec<FlowResult>) {
    let prepared = in_threads(&mut flows, |flow| flow.prepare(limits.prepare));
    let slowest = flows
        .iter()
        .flat_map(|flow| [flow.from.clock.within_ns, flow.to.clock.within_ns]);
    let slowest = Duration::from(slowest.max().unwrap_or_default());
    // The request must arrive before the time that it names: several round trips ahead.
    let ahead = START_AHEAD_MIN.saturating_add(slowest.saturating_mul(8));
    let start = read(ClockId::Monotonic).saturating_add(nanoseconds(ahead));
    let mut ready: Vec<(usize, &mut RemoteFlow<'_>)> = flows
        .iter_mut()
        .enumerate()
        .filter(|(at, _)| prepared.get(*at).is_some_and(Result::is_ok))
        .collect();
    let run = in_threads(&mut ready, |(_, flow)| flow.run(start, ahead, limits.grace));
    let mut run = run.into_iter();
    let results = prepared
        .into_iter()
        .map(|prepared| {
            prepared.and_then(|()| run.next().unwrap_or_else(|| Err(FlowFailure::default())))
        })
        .collect();
    (Nanoseconds::new(start), results)
}

/// Calls `work` for each item in a thread of its own; the results are in their order.
fn in_threads<T: Send, R: Send>(
    items: &mut [T],
    work: impl Fn(&mut T) -> Result<R, FlowFailure> + Sync,
) -> Vec<Result<R, FlowFailure>> {
    thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = items
            .iter_mut()
            .map(|item| {
                thread::Builder::new()
                    .name("linerate-flow".to_owned())
                    .spawn_scoped(scope, move || work(item))
            })
            .collect();
        running
            .into_iter()
            .map(|one| match one.map(thread::ScopedJoinHandle::join) {
                Ok(Ok(result)) => result,
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                Err(error) => Err(FlowFailure {
                    why: format!("cannot start a thread: {error}"),
                    ..FlowFailure::default()
                }),
            })
            .collect()
    })
}

impl RemoteFlow<'_> {
    /// Connects the two ends.
    fn prepare(&mut self, limit: Duration) -> Result<(), FlowFailure> {
        let token = fresh_token().map_err(|stop| FlowFailure::of(&stop.message))?;
        let prepare = Request::Prepare {
            spec: Box::new(self.spec.at_other_end()),
            token,
            bind: self.address.to_string(),
            report_ns: None,
            commands: None,
            keep: false,
        };
        let port = match ask(self.to, &prepare, limit) {
            Ok(Reply::Prepared { port }) => port,
            Ok(_) => return Err(FlowFailure::of(&does_not_fit().message)),
            Err(error) => return Err(self.failed(None, Some(error))),
        };
        let connect = Request::Connect {
            spec: Box::new(self.spec.clone()),
            token,
            target: SocketAddr::new(self.address, port),
        };
        match ask(self.from, &connect, limit) {
            Ok(Reply::Connected) => Ok(()),
            Ok(_) => Err(FlowFailure::of(&does_not_fit().message)),
            // Nobody connects to the listening end any more.
            Err(error) => Err(self.failed(Some(error), None)),
        }
    }

    /// Runs the prepared trial from `start` on.
    fn run(&mut self, start: u64, ahead: Duration, grace: Duration) -> FlowResult {
        let starts = [&*self.from, &*self.to].map(|host| Request::StartAt {
            at_ns: host.clock.theirs(start),
        });
        let deadline = Instant::now() + ahead + Duration::from(self.spec.duration_ns) + grace;
        let [first, second] = starts;
        // A host that cannot be reached does not keep the other one from being asked.
        let sent = [
            self.from.peer.send(&first).map_err(FarError::from),
            self.to.peer.send(&second).map_err(FarError::from),
        ];
        let [from_sent, to_sent] = sent;
        let from = from_sent.and_then(|()| side(&mut self.from.peer, &first, self.spec, deadline));
        let is_lost =
            |result: &Result<SideSample, FarError>| matches!(result, Err(FarError::Stop(_)));
        let soon = |deadline: Instant| deadline.min(Instant::now() + NOTICES);
        let until = if is_lost(&from) {
            soon(deadline)
        } else {
            deadline.max(Instant::now() + NOTICES)
        };
        let to = to_sent.and_then(|()| side(&mut self.to.peer, &second, self.spec, until));
        match (from, to) {
            (Ok(local), Ok(remote)) => Ok(Box::new(Sample {
                spec: self.spec.clone(),
                local,
                remote,
                shared_kernel: self.shared_kernel,
                flags: Vec::new(),
            })),
            (from, to) => {
                let (from, to) = (from.err(), to.err());
                let is_late = [&from, &to].into_iter().flatten().any(is_timeout);
                let failure = self.failed(from, to);
                let stage = if is_late {
                    FlowStage::Deadline
                } else {
                    FlowStage::Run
                };
                Err(FlowFailure { stage, ..failure })
            }
        }
    }

    /// Ends what is left of the trial at both ends, and determines which of them are lost.
    fn failed(&mut self, from: Option<FarError>, to: Option<FarError>) -> FlowFailure {
        let mut failure = FlowFailure::default();
        let mut whys = Vec::new();
        let sides = [
            (End::Local, &mut *self.from, from),
            (End::Remote, &mut *self.to, to),
        ];
        for (end, host, error) in sides {
            match error {
                Some(FarError::Stop(stop)) if stop.code == Code::Interrupted => {
                    failure.is_interrupted = true;
                    whys.push((true, stop.message));
                }
                // It may be slow, or wait for an end that is lost: only one that cannot even abort the trial is lost.
                Some(FarError::Stop(stop)) if stop.code == Code::TimeOut => {
                    if let Err(lost) = host.abort_trial() {
                        failure.lost.push((end, lost.message));
                    }
                    whys.push((true, stop.message));
                }
                Some(FarError::Stop(stop)) => {
                    failure.lost.push((end, stop.message.clone()));
                    whys.push((true, stop.message));
                }
                // The trial is over there. A broken connection is the consequence of what the other end reports.
                Some(FarError::Failure(far)) => {
                    whys.push((far.kind != FailureKind::Broken, far.message));
                }
                // Also of a trial that this end believes to be over.
                None => {
                    if let Err(lost) = host.abort_trial() {
                        failure.lost.push((end, lost.message));
                    }
                }
            }
        }
        // A stable sort: causes before consequences.
        whys.sort_by_key(|(is_cause, _)| !is_cause);
        failure.why = whys
            .into_iter()
            .next()
            .map(|(_, why)| why)
            .unwrap_or_default();
        failure
    }
}

impl FlowFailure {
    fn of(why: &str) -> Self {
        Self {
            why: why.to_owned(),
            ..Self::default()
        }
    }
}

fn is_timeout(error: &FarError) -> bool {
    matches!(error, FarError::Stop(stop) if stop.code == Code::TimeOut)
}

fn ask(host: &mut RemoteHost, request: &Request, limit: Duration) -> Result<Reply, FarError> {
    host.settle(limit)?;
    host.peer.send_within(request, limit)?;
    host.peer.answer_to(request, limit)
}

/// The record of one end.
fn side(
    peer: &mut Peer,
    asked: &Request,
    spec: &TrialSpec,
    deadline: Instant,
) -> Result<SideSample, FarError> {
    let limit = deadline.saturating_duration_since(Instant::now());
    match peer.answer_to(asked, limit)? {
        Reply::Done(side) => match side.check(spec) {
            Ok(()) => Ok(*side),
            Err(error) => Err(FarError::Failure(Failure {
                kind: FailureKind::Other,
                message: format!("{} sent an invalid response: {error}", peer.address),
            })),
        },
        _ => Err(FarError::Stop(does_not_fit())),
    }
}

/// The address of a host that another host sends to: on `nic` if it is given, in a subnet of both if there is one, else the
/// first one that can be routed to.
pub fn address_between(
    from: &[AgentAddress],
    to: &[AgentAddress],
    nic: Option<&str>,
) -> Option<IpAddr> {
    let parsed = |all: &[AgentAddress], nic: Option<&str>| -> Vec<(IpAddr, u8)> {
        let all = all
            .iter()
            .filter(|one| nic.is_none_or(|nic| one.nic.as_str() == nic));
        let all = all.filter_map(|one| parse_prefixed(&one.address));
        all.filter(|(address, _)| usable(*address)).collect()
    };
    let (own, theirs) = (parsed(from, None), parsed(to, nic));
    let is_near = |(theirs, _): &&(IpAddr, u8)| {
        own.iter()
            .any(|(mine, prefix)| mine != theirs && same_subnet(*mine, *theirs, *prefix))
    };
    let near = theirs.iter().find(is_near);
    let routed = || {
        let family = |address: &IpAddr| {
            own.iter()
                .any(|(mine, _)| mine.is_ipv4() == address.is_ipv4())
        };
        theirs.iter().find(|(address, _)| family(address))
    };
    near.or_else(routed).map(|(address, _)| *address)
}

fn read(clock: ClockId) -> u64 {
    let now = rustix::time::clock_gettime(clock);
    nanoseconds(Duration::try_from(now).unwrap_or_default())
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn does_not_fit() -> Stop {
    Stop::new(Code::Bug, "an answer passed that does not fit")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(all: &[(&str, &str)]) -> Vec<AgentAddress> {
        all.iter()
            .map(|(nic, address)| AgentAddress {
                nic: nic.parse().expect("a name"),
                address: (*address).to_owned(),
            })
            .collect()
    }

    #[test]
    fn data_goes_over_a_common_subnet_or_the_named_nic_and_never_over_loopback() {
        let from = addresses(&[
            ("lo", "127.0.0.1/8"),
            ("eth0", "10.0.0.1/24"),
            ("eth1", "10.1.0.1/24"),
        ]);
        let to = addresses(&[
            ("lo", "127.0.0.1/8"),
            ("eth2", "192.168.7.2/24"),
            ("eth1", "10.1.0.2/24"),
            ("eth0", "10.0.0.2/24"),
        ]);
        let between = |nic| address_between(&from, &to, nic).map(|address| address.to_string());
        assert_eq!(between(None).as_deref(), Some("10.1.0.2"));
        assert_eq!(between(Some("eth0")).as_deref(), Some("10.0.0.2"));
        // Without a common subnet a router may connect them.
        assert_eq!(between(Some("eth2")).as_deref(), Some("192.168.7.2"));
        assert_eq!(between(Some("eth9")), None);
        let other_family = addresses(&[("eth0", "fd00::2/64")]);
        assert_eq!(address_between(&from, &other_family, None), None);
    }

    #[test]
    fn records_are_sent_in_parts_that_an_agent_takes() {
        let records = |lengths: &[usize]| -> Vec<String> {
            lengths.iter().map(|&length| "x".repeat(length)).collect()
        };
        let lengths = |all: &[usize]| -> Vec<Vec<usize>> {
            let parts = parts(records(all), 10);
            let of = |part: &Vec<String>| part.iter().map(String::len).collect();
            parts.iter().map(of).collect()
        };
        assert_eq!(lengths(&[]), Vec::<Vec<usize>>::new());
        assert_eq!(lengths(&[4, 6, 1]), [vec![4, 6], vec![1]]);
        assert_eq!(lengths(&[11, 1, 9, 1]), [vec![11], vec![1, 9], vec![1]]);
    }

    #[test]
    fn a_start_is_given_in_the_terms_of_the_other_clock() {
        let clock = ClockOffset {
            monotonic_ns: -300,
            ..ClockOffset::default()
        };
        assert_eq!(clock.theirs(1_000), Nanoseconds::new(700));
        // A host that was booted later than the start of this host's clock.
        assert_eq!(clock.theirs(100), Nanoseconds::new(0));
    }
}
