//! Two simulated hosts on one kernel, joined by a path whose truth is known, with planned faults. What
//! the session reads of them may be old until it reads again, as with real ones.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use linerate_analysis::record::Record;
use linerate_model::build;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::Host;
use linerate_model::ids::NicName;
use linerate_model::plan::{End, Plan};
use linerate_model::sample::{Flag, Sample};
use linerate_model::setting::{self, Value};
use linerate_model::units::{BitRate, Nanoseconds};
use linerate_model::workload::TrialSpec;
use linerate_runtime::endpoint::ends::Ends;
use linerate_store::{Log, line_of};
use linerate_traffic::simulated::SimulatedPath;

/// A bound of the path that holds while a host has a setting at some values.
#[derive(Debug, Clone)]
pub(crate) struct Cap {
    pub end: End,
    pub key: &'static str,
    pub holds: fn(&str) -> bool,
    pub rate: BitRate,
}

/// A share of the rate that is left while a host has a setting at some values.
#[derive(Debug, Clone)]
pub(crate) struct Cost {
    pub end: End,
    pub key: &'static str,
    pub holds: fn(&str) -> bool,
    /// What is left: 0.6 costs 40 %.
    pub factor: f64,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A plan is refused, and the host as it was.
    Refused(Code),
    /// An undo fails: the host stays changed.
    UndoFails,
    /// A commit fails before it did anything.
    CommitFails,
    /// The remote end is killed: it neither answers nor puts anything back.
    PeerKilled,
    /// The remote end is killed after it did what it was asked and before it reported it.
    AnswerLost,
    /// Ctrl-C, which only trials listen to.
    Interrupt,
    /// The disk is full, and stays so.
    DiskFull,
}

/// A fault, and the call at which it occurs: calls are counted from 0, separately for each kind where it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Planned {
    pub fault: Fault,
    pub at: usize,
}

/// Both hosts, and what is true of the path between them.
#[derive(Debug)]
pub(crate) struct World {
    /// The hosts as they are.
    pub truth: [Host; 2],
    /// The hosts as they were read last.
    seen: [Host; 2],
    nics: [NicName; 2],
    /// Plans that are applied and neither undone nor committed.
    pub open: [Vec<Plan>; 2],
    pub path: SimulatedPath,
    pub caps: Vec<Cap>,
    pub costs: Vec<Cost>,
    /// How many times the CPU time is used while a host has a setting at some values.
    pub dear: Vec<Cost>,
    /// Flags of trials, by number.
    pub flagged: fn(u64) -> Vec<Flag>,
    /// Whether a trial moves nothing, by its number and the state of the hosts.
    pub stalls: fn(&Self, u64) -> bool,
    /// What the state of both hosts together leaves of the rate.
    pub joint: fn(&Self) -> f64,
    pub planned: Option<Planned>,
    /// How many trials there were.
    pub trials: u64,
    /// Shorter ones are not counted: those of a session that show what limits the path.
    pub counts_from: Nanoseconds,
    /// Calls of each kind: apply, undo, commit, all.
    calls: [usize; 4],
    peer_gone: bool,
    interrupted: bool,
    /// Whether the planned fault has come.
    pub struck: bool,
    /// The hosts that are not turned to: by name, none of the peer's own.
    pub others: BTreeMap<Option<String>, Other>,
    /// The far host that is turned to.
    turned: Option<String>,
    /// What the far host that is turned to leaves of the rate.
    worth: f64,
}

/// A far host that is not turned to.
#[derive(Debug, Clone)]
pub(crate) struct Other {
    pub truth: Host,
    seen: Host,
    open: Vec<Plan>,
    peer_gone: bool,
    /// What it leaves of the rate.
    worth: f64,
}

const APPLY: usize = 0;
const UNDO: usize = 1;
const COMMIT: usize = 2;
const ANY: usize = 3;

impl World {
    /// Two hosts with an exact path of `gbit` between them, changed by `make`.
    pub(crate) fn new(seed: u64, gbit: u64, make: impl FnOnce(&mut Host, &mut Host)) -> Self {
        let (mut near, mut far) = build::veth_pair();
        make(&mut near, &mut far);
        let nics = ["near0", "far0"].map(|name| name.parse().expect("a name"));
        Self {
            truth: [near.clone(), far.clone()],
            seen: [near, far],
            nics,
            open: [Vec::new(), Vec::new()],
            path: SimulatedPath::exact(seed, BitRate::from_mbit_per_s(gbit * 1000)),
            caps: Vec::new(),
            costs: Vec::new(),
            dear: Vec::new(),
            flagged: |_| Vec::new(),
            stalls: |_, _| false,
            joint: |_| 1.0,
            planned: None,
            trials: 0,
            counts_from: Nanoseconds::new(0),
            calls: [0; 4],
            peer_gone: false,
            interrupted: false,
            struck: false,
            others: BTreeMap::new(),
            turned: None,
            worth: 1.0,
        }
    }

    /// Another far host, like the one that there is, to which `worth` of the rate is left.
    pub(crate) fn add_host(&mut self, name: &str, worth: f64) {
        let host = self.truth[1].clone();
        let other = Other {
            truth: host.clone(),
            seen: host,
            open: Vec::new(),
            peer_gone: false,
            worth,
        };
        self.others.insert(Some(name.to_owned()), other);
    }

    /// Every host as it is, whichever is turned to.
    pub(crate) fn all_hosts(&self) -> BTreeMap<String, Host> {
        let named = |name: &Option<String>| name.clone().unwrap_or_default();
        let others = self.others.iter();
        let mut all: BTreeMap<String, Host> = others
            .map(|(name, other)| (named(name), other.truth.clone()))
            .collect();
        all.insert("near".to_owned(), self.truth[0].clone());
        all.insert(named(&self.turned), self.truth[1].clone());
        all
    }

    /// The text of a setting of an end as it is.
    pub(crate) fn value(&self, end: End, key: &str) -> String {
        let key = key.parse().expect("a key");
        let value = setting::current(&self.truth[index(end)], &key);
        value.value().expect("a setting of the host").to_string()
    }

    /// Whether the planned fault strikes at this call of a kind.
    fn strikes(&mut self, kind: usize) -> Option<Fault> {
        let planned = self.planned?;
        let own = match planned.fault {
            Fault::Refused(_) => APPLY,
            Fault::UndoFails => UNDO,
            Fault::CommitFails => COMMIT,
            Fault::PeerKilled | Fault::AnswerLost | Fault::Interrupt => ANY,
            Fault::DiskFull => return None,
        };
        let strikes = (own == kind || own == ANY) && self.calls[own] == planned.at;
        self.calls[ANY] += 1;
        if kind != ANY {
            self.calls[kind] += 1;
        }
        if !strikes {
            return None;
        }
        self.struck = true;
        match planned.fault {
            Fault::PeerKilled => self.peer_gone = true,
            Fault::Interrupt => self.interrupted = true,
            _ => {}
        }
        Some(planned.fault)
    }

    fn reach(&self, end: End) -> Outcome<()> {
        if end == End::Remote && self.peer_gone {
            return Err(gone());
        }
        Ok(())
    }

    /// The answer to a call that did its work.
    fn answer(&mut self, end: End, fault: Option<Fault>) -> Outcome<()> {
        if fault == Some(Fault::AnswerLost) && end == End::Remote {
            self.peer_gone = true;
        }
        self.reach(end)
    }

    fn holds(&self, end: End, key: &str, holds: fn(&str) -> bool, spec: &TrialSpec) -> bool {
        match (key, &spec.congestion_control) {
            ("sysctl/net.ipv4.tcp_congestion_control", Some(own)) => holds(own),
            _ => holds(&self.value(end, key)),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "some seconds, a few times"
)]
fn times_of(time: Nanoseconds, times: f64) -> Nanoseconds {
    Nanoseconds::new((time.as_secs_f64() * times * 1e9) as u64)
}

fn index(end: End) -> usize {
    match end {
        End::Local => 0,
        End::Remote => 1,
    }
}

fn gone() -> Stop {
    Stop::new(Code::PeerUnreachable, "the agent at netns:far was killed")
}

impl Ends for World {
    fn host(&self, end: End) -> &Host {
        &self.seen[index(end)]
    }

    fn nic(&self, end: End) -> &NicName {
        &self.nics[index(end)]
    }

    fn address(&self) -> IpAddr {
        let last = if self.turned.is_some() { 3 } else { 2 };
        IpAddr::from([10, 77, 0, last])
    }

    fn read_again(&mut self) -> Outcome<()> {
        let fault = self.strikes(ANY);
        self.seen[0] = self.truth[0].clone();
        self.reach(End::Remote)?;
        self.seen[1] = self.truth[1].clone();
        self.answer(End::Remote, fault)
    }

    fn turn(&mut self, peer: Option<&str>) -> Outcome<()> {
        let name = peer.map(str::to_owned);
        if name == self.turned {
            return Ok(());
        }
        let mut other = self.others.remove(&name).expect("a host of this world");
        std::mem::swap(&mut other.truth, &mut self.truth[1]);
        std::mem::swap(&mut other.seen, &mut self.seen[1]);
        std::mem::swap(&mut other.open, &mut self.open[1]);
        std::mem::swap(&mut other.peer_gone, &mut self.peer_gone);
        std::mem::swap(&mut other.worth, &mut self.worth);
        let before = std::mem::replace(&mut self.turned, name);
        self.others.insert(before, other);
        Ok(())
    }

    fn trial(&mut self, spec: &TrialSpec) -> Outcome<Sample> {
        let fault = self.strikes(ANY);
        if self.interrupted {
            return Err(Stop::interrupted());
        }
        self.answer(End::Remote, fault)?;
        let mut path = self.path.clone();
        let mut active = BTreeSet::new();
        for (number, cost) in self.costs.iter().enumerate() {
            if self.holds(cost.end, cost.key, cost.holds, spec) {
                let name = number.to_string();
                path.factors.insert(name.clone(), cost.factor);
                active.insert(name);
            }
        }
        if self.turned.is_some() {
            path.factors.insert("host".to_owned(), self.worth);
            active.insert("host".to_owned());
        }
        let caps = self.caps.iter();
        let is_short = spec.duration_ns < self.counts_from;
        if !is_short && (self.stalls)(self, self.trials) {
            path.base = BitRate::from_bit_per_s(0);
        }
        path.factors.insert("joint".to_owned(), (self.joint)(self));
        active.insert("joint".to_owned());
        path.cap = caps
            .filter(|cap| self.holds(cap.end, cap.key, cap.holds, spec))
            .map(|cap| cap.rate)
            .min();
        let mut sample = path
            .trial(spec, &active, self.trials)
            .expect("the trial is within its limits");
        let dear = self.dear.iter();
        let dear = dear.filter(|one| self.holds(one.end, one.key, one.holds, spec));
        let times: f64 = dear.map(|one| one.factor).product();
        let used = &mut sample.local.cpu.threads_user_ns;
        *used = times_of(*used, times);
        sample.shared_kernel = true;
        sample.flags = (self.flagged)(self.trials);
        self.trials += u64::from(!is_short);
        Ok(sample)
    }

    fn apply(&mut self, end: End, plan: &Plan) -> Outcome<()> {
        let fault = self.strikes(APPLY);
        self.reach(end)?;
        if let Some(Fault::Refused(code)) = fault {
            return Err(Stop::new(code, "cannot change it: the plan says so"));
        }
        let mut changed = self.truth[index(end)].clone();
        for change in &plan.changes {
            let found = setting::current(&changed, &change.setting);
            let fits = found.value() == Some(&change.from)
                && setting::put(&mut changed, &change.setting, &change.to);
            if !fits {
                return Err(Stop::new(
                    Code::FailedRestored,
                    format!("cannot change {}: it is {found:?}", change.setting),
                ));
            }
        }
        self.truth[index(end)] = changed;
        self.open[index(end)].push(plan.clone());
        self.answer(end, fault)
    }

    fn undo(&mut self, end: End) -> Outcome<()> {
        let fault = self.strikes(UNDO);
        self.reach(end)?;
        let Some(plan) = self.open[index(end)].pop() else {
            return self.answer(end, fault);
        };
        if fault == Some(Fault::UndoFails) {
            return Err(Stop::new(Code::FailedRestored, "cannot write it"));
        }
        for change in plan.undo().changes {
            let host = &mut self.truth[index(end)];
            assert!(setting::put(host, &change.setting, &change.to));
        }
        self.answer(end, fault)
    }

    fn commit(&mut self, end: End) -> Outcome<()> {
        let fault = self.strikes(COMMIT);
        self.reach(end)?;
        if fault == Some(Fault::CommitFails) {
            return Err(Stop::new(Code::Resource, "cannot write the journal"));
        }
        self.open[index(end)].clear();
        self.answer(end, fault)
    }
}

/// A log in memory that is full after so many records.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    records: Vec<Record>,
    pub room: Option<usize>,
}

impl Memory {
    /// What a run that was cut off there would have kept.
    pub(crate) fn of(records: &[Record]) -> Self {
        Self {
            records: records.to_vec(),
            room: None,
        }
    }

    /// The file that a run would have.
    pub(crate) fn text(&self) -> String {
        let lines = self.records.iter().map(line_of);
        lines
            .collect::<Outcome<_>>()
            .expect("records are plain data")
    }
}

impl Log for Memory {
    fn add(&mut self, record: Record) -> Outcome<()> {
        if self.room.is_some_and(|room| self.records.len() >= room) {
            let full = std::io::ErrorKind::StorageFull.into();
            return Err(Stop::io("write the run in memory", full));
        }
        self.records.push(record);
        Ok(())
    }

    fn records(&self) -> &[Record] {
        &self.records
    }
}

/// Puts a value into a host; the key must be there.
pub(crate) fn put(host: &mut Host, key: &str, text: &str) {
    let key: setting::SettingKey = key.parse().expect("a key");
    let value = match key.parse_value(text) {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    };
    assert!(setting::put(host, &key, &value), "{key}");
}

/// Puts a shaper onto the interface of a host.
pub(crate) fn shape(host: &mut Host, mbit: u64) {
    let nic = host.nics[0].name.clone();
    let key = setting::SettingKey::Nic(nic, setting::NicKnob::Qdisc);
    assert!(setting::put(host, &key, &Value::Qdisc(build::tbf(mbit))));
}
