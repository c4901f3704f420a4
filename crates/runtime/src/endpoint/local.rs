//! One end's own machine: what both the agent and the session do with the host they run on: reading,
//! changing under a journal, rolling back.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use linerate_host::apply::{
    self, ApplyError, Boottime, Header, JournalOptions, Machine, Transaction,
};
use linerate_host::management::{self, Session, session_of};
use linerate_host::netlink::Netlink;
use linerate_host::nic_control::NicRead;
use linerate_host::read::read_host;
use linerate_host::root::{HostRoot, LiveHost};
use linerate_model::exit::{Outcome, Stop};
use linerate_model::host::Host;
use linerate_model::ids::NicName;
use linerate_model::known::Known;
use linerate_model::plan::{Change, Plan};
use linerate_model::protocol::{AgentAddress, Failure, FailureKind};
use linerate_model::setting::{
    Class, NicKnob, Scope as SettingScope, SettingKey, Value, VlanLink, needs,
};

use crate::console::say::warn;
use crate::endpoint::crash;
use crate::endpoint::fallback_timer::{self, FallbackTimer};
use crate::endpoint::guard::{Armed, Locks, Rights};
use crate::endpoint::transactions::{failure, io_kind, journal_kind, not_locked, this_machine};

/// This machine, as seen from this network namespace, and its open transactions.
#[derive(Debug)]
pub struct LocalEndpoint {
    live: LiveHost,
    netlink: Netlink,
    state: PathBuf,
    // Declared before what they need: fields are dropped in order.
    open: Vec<Transaction<Box<dyn Machine>>>,
    /// Set with the first change.
    armed: Option<Armed>,
    /// The fallback timer, if there is a deadline; or why there is none.
    timer: Option<Result<FallbackTimer, String>>,
    deadline: Option<Boottime>,
    /// The rights that rolling back future changes requires, as far as they are known.
    expected: Rights,
    /// Whether the management path may be disrupted briefly.
    disturbs_way_in: bool,
    /// The listening agent whose session this is.
    listener: Option<u32>,
}

impl Drop for LocalEndpoint {
    fn drop(&mut self) {
        self.open.clear();
        if let Some(Err(lingers)) = self.armed.take().map(Armed::disarm) {
            warn(&lingers.to_string());
            if let Some(Ok(timer)) = self.timer.take() {
                timer.leave();
            }
        }
    }
}

impl LocalEndpoint {
    /// Opens this machine; journals are kept below `state`.
    pub fn open(state: &Path) -> Outcome<Self> {
        let live = LiveHost::open().map_err(|error| Stop::io("open the root directory", error))?;
        let netlink = Netlink::open().map_err(|error| Stop::io("open a netlink socket", error))?;
        Ok(Self {
            live,
            netlink,
            state: state.to_owned(),
            open: Vec::new(),
            armed: None,
            timer: None,
            deadline: None,
            expected: Rights::new(),
            disturbs_way_in: false,
            listener: None,
        })
    }

    /// Whether, from now on, interfaces of the operator's ssh connection may be disrupted; they
    /// are never disconnected.
    pub fn disturb_way_in(&mut self, may: bool) {
        self.disturbs_way_in = may;
    }

    /// The controller has reached this process through a connection of the process `listener`.
    pub fn reached_through(&mut self, listener: u32) {
        self.listener = Some(listener);
    }

    /// The connections that this process is controlled over: of ssh, and of a listening agent.
    fn control_sessions(&self) -> impl Iterator<Item = Session> {
        let listening = self.listener.map(|pid| Session {
            pid,
            began: Boottime::now(),
        });
        (session_of(self.root(), std::process::id()).into_iter()).chain(listening)
    }

    /// The interfaces that these connections use.
    fn management_path(&self) -> Known<BTreeSet<NicName>> {
        let mut all = BTreeSet::new();
        for session in self.control_sessions() {
            match management::way_in(self.root(), &self.netlink, session) {
                Known::Value(nics) => all.extend(nics),
                unknown @ Known::Unknown(_) => return unknown,
            }
        }
        Known::Value(all)
    }

    /// From now on, what is not committed at `deadline` is rolled back, also if this process hangs.
    pub fn allow_until(&mut self, deadline: Boottime) {
        self.deadline = Some(deadline);
    }

    /// From now on, the reverter must be able to restore any setting, because later changes are unknown.
    pub fn expect_any(&mut self) {
        self.expected.extend(needs::ALL);
    }

    /// From now on, the reverter must be able to restore these too, although they are made later.
    pub fn expect(&mut self, changes: &[Change]) {
        self.expected.extend(self.rights_of(changes));
    }

    /// The capabilities that rolling back changes requires: for their settings, and for those that writing these disturbs.
    fn rights_of(&self, changes: &[Change]) -> Rights {
        let own = changes.iter().map(|change| change.setting.clone());
        let disturbed = changes
            .iter()
            .flat_map(|change| self.disturbed_by(&change.setting));
        own.chain(disturbed)
            .flat_map(|key| key.needs().iter().copied())
            .collect()
    }

    /// Reads the host.
    pub fn read_host(&self) -> Host {
        read_host(self.live.root(), &self.netlink)
    }

    /// The addresses of its interfaces, without reading the rest of the host.
    pub fn addresses(&self) -> Vec<AgentAddress> {
        let names = self.live.root().list("sys/class/net");
        let names = names.value().into_iter().flatten();
        let nics = names.filter_map(|name| name.parse::<NicName>().ok());
        nics.flat_map(|nic| {
            let all = self.netlink.addresses(&nic);
            let all = all.value().into_iter().flatten();
            let of_nic = |address: &String| AgentAddress {
                nic: nic.clone(),
                address: address.clone(),
            };
            all.map(of_nic).collect::<Vec<_>>()
        })
        .collect()
    }

    /// The root of this machine's files, for reading.
    pub fn root(&self) -> &HostRoot {
        self.live.root()
    }

    /// The interfaces of this machine, for reading.
    pub fn nics(&self) -> &dyn NicRead {
        &self.netlink
    }

    /// The interfaces of the connections that this process is controlled over; none without one.
    pub fn way_in(&self) -> BTreeSet<NicName> {
        self.management_path().value().cloned().unwrap_or_default()
    }

    /// Reads one setting.
    pub fn read_setting(&self, key: &SettingKey) -> Known<Value> {
        apply::settings::read(self.live.root(), &self.netlink, key)
    }

    /// The other settings that writing this one may change.
    pub fn disturbed_by(&self, key: &SettingKey) -> Vec<SettingKey> {
        apply::disturbed_by(self.live.root(), &self.netlink, key)
    }

    /// Applies a plan as a separate transaction, on top of those that are open.
    pub fn apply(&mut self, plan: &Plan) -> Result<(), Failure> {
        self.apply_as(plan, None)
    }

    /// The same; `kept` is a persistent transaction whose changes the plan applies again.
    pub fn apply_as(&mut self, plan: &Plan, kept: Option<&str>) -> Result<(), Failure> {
        let mut transaction = self.begin(plan, kept)?;
        match transaction.apply(plan) {
            Ok(()) => {
                self.open.push(transaction);
                Ok(())
            }
            Err(error) => Err(apply_failure(&error)),
        }
    }

    /// Refuses what would disrupt (R2) or disconnect (R3 and worse) a connection that this process is controlled over.
    fn spare_way_in(&self, plan: &Plan) -> Result<(), Failure> {
        if self.control_sessions().next().is_none() {
            return Ok(());
        }
        let most = if self.disturbs_way_in {
            Class::R2
        } else {
            Class::R1
        };
        let too_much = |change: &&Change| change.setting.spec().class > most;
        let of_nic = |change: &&Change| match &change.setting {
            SettingKey::Nic(nic, _) => Some(nic.clone()),
            _ => None,
        };
        let mut risky = plan.changes.iter().filter(too_much).peekable();
        if risky.peek().is_none() {
            return Ok(());
        }
        let way_in = self.management_path();
        let connection = match self.listener {
            None => "ssh",
            Some(_) => "control",
        };
        for change in risky {
            let Some(nic) = of_nic(&change) else {
                continue;
            };
            // A VLAN device concerns the interface below it too, but disconnects only itself.
            let below = below_vlan(change).filter(|_| !self.disturbs_way_in);
            let is_below =
                |nics: &BTreeSet<NicName>| below.as_ref().is_some_and(|below| nics.contains(below));
            let why = match &way_in {
                Known::Value(nics) if is_below(nics) => {
                    let why = format!(
                        "cannot change {}: your {connection} connection uses the interface below it; allow it with \
                         `--allow-management-disruption`; nothing was changed",
                        change.setting
                    );
                    return Err(failure(FailureKind::Permission, &why));
                }
                Known::Value(nics) if !nics.contains(&nic) => continue,
                Known::Value(_) => format!("your {connection} connection uses {nic}"),
                Known::Unknown(gap) => {
                    format!("your {connection} connection may use {nic}: {gap}")
                }
            };
            let what = &change.setting;
            let class = what.spec().class;
            let how = if class == Class::R2 {
                "disrupts it briefly; allow it with `--allow-management-disruption`"
            } else {
                "may disconnect it; change it from the console"
            };
            let why = format!(
                "cannot change {what}: {why}, and a change of class {class} {how}; nothing was \
                 changed"
            );
            return Err(failure(FailureKind::Permission, &why));
        }
        Ok(())
    }

    fn begin(
        &mut self,
        plan: &Plan,
        kept: Option<&str>,
    ) -> Result<Transaction<Box<dyn Machine>>, Failure> {
        self.spare_way_in(plan)?;
        let other = |error: &dyn std::error::Error| failure(FailureKind::Other, &error.to_string());
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let started = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let mut header = Header::here(started).map_err(|error| other(&error))?;
        header.of = kept.map(ToOwned::to_owned);
        let armed = self.arm(plan)?;
        let faults = crash::faults(crash::Role::Maker, Some(armed.process()));
        let beside = JournalOptions {
            guard: Some(Arc::clone(armed.guard())),
            faults: faults.clone(),
        };
        let machine = this_machine(faults).map_err(|error| other(&error))?;
        Transaction::begin(machine, &self.state, &header, &beside)
            .map_err(|error| failure(journal_kind(&error), &error.to_string()))
    }

    /// Locks what `plan` changes, and starts a reverter.
    fn arm(&mut self, plan: &Plan) -> Result<&Armed, Failure> {
        let unarmed = |error: &dyn std::error::Error| {
            let why = format!("cannot start the reverter process: {error}; nothing was changed");
            failure(FailureKind::Other, &why)
        };
        let deadline = self.deadline;
        let mut rights = self.rights_of(&plan.changes);
        rights.extend(&self.expected);
        let lives = |armed: &Armed| armed.guard().allow_until(deadline).is_ok();
        let armed = match self.armed.take() {
            Some(armed) if lives(&armed) && armed.rights().is_superset(&rights) => armed,
            Some(armed) if lives(&armed) && !self.open.is_empty() => {
                let lacks: Vec<&str> = rights.difference(armed.rights()).copied().collect();
                let why = format!(
                    "the reverter process lacks {}, which these changes need; nothing was changed",
                    lacks.join(", ")
                );
                self.armed = Some(armed);
                return Err(failure(FailureKind::Other, &why));
            }
            // The first one, the next after one that was killed, or one with more rights.
            gone => {
                let locks = match gone {
                    Some(gone) => {
                        rights.extend(gone.rights());
                        gone.disarm().map_err(|lingers| unarmed(&lingers))?
                    }
                    None => {
                        Locks::take(&self.state, deadline).map_err(|error| not_locked(&error))?
                    }
                };
                let armed =
                    Armed::start(locks, &self.state, rights).map_err(|error| unarmed(&error))?;
                armed
                    .guard()
                    .allow_until(deadline)
                    .map_err(|error| unarmed(&error))?;
                armed
            }
        };
        if self.timer.is_none() {
            self.timer = deadline.map(|deadline| FallbackTimer::fasten(&self.state, deadline));
        }
        let armed = self.armed.insert(armed);
        let is_shared = |change: &Change| change.setting.spec().scope == SettingScope::Machine;
        if plan.changes.iter().any(is_shared) {
            let locked = armed.lock_machine(&self.state, deadline);
            locked.map_err(|error| not_locked(&error))?;
        }
        Ok(armed)
    }

    /// What rolls back changes if this process and its reverter are killed at once, in words.
    pub fn with_both_killed(&self) -> String {
        match &self.timer {
            Some(Ok(timer)) => format!(
                "if both processes are killed, systemd rolls back {} s later ({})",
                fallback_timer::LATER.as_secs(),
                timer.unit()
            ),
            Some(Err(why)) => format!(
                "if both processes are killed, run `linerate tune recover` (no systemd timer: \
                 {why})"
            ),
            None => "if both processes are killed, run `linerate tune recover`".to_owned(),
        }
    }

    /// The folder of the journal of the newest open transaction.
    pub fn open_folder(&self) -> Option<PathBuf> {
        let newest = self.open.last()?;
        Some(apply::folder_of(&self.state, &newest.id()))
    }

    /// The id of the newest open transaction.
    pub fn open_id(&self) -> Option<String> {
        self.open.last().map(Transaction::id)
    }

    /// Undoes the newest open transaction.
    pub fn undo(&mut self) -> Result<(), Failure> {
        match self.open.pop() {
            None => Ok(()),
            Some(transaction) => match transaction.undo() {
                Ok(_) => Ok(()),
                Err(error) => Err(apply_failure(&error)),
            },
        }
    }

    /// Undoes every open transaction, the newest first; all are tried, the first failure is returned.
    pub fn undo_all(&mut self) -> Result<(), Failure> {
        let mut result = Ok(());
        while !self.open.is_empty() {
            result = result.and(self.undo());
        }
        result
    }

    /// Settings of the open transactions that another program has changed since, in words.
    pub fn moved(&self) -> Vec<String> {
        let moved = self.open.iter().flat_map(Transaction::moved);
        moved.map(|moved| moved.to_string()).collect()
    }

    /// Keeps every open transaction, the oldest first. If one cannot be committed, those after it are
    /// still open and can be undone.
    pub fn commit(&mut self) -> Result<(), Failure> {
        while !self.open.is_empty() {
            let transaction = self.open.remove(0);
            transaction
                .commit()
                .map_err(|error| apply_failure(&error))?;
        }
        Ok(())
    }
}

fn apply_failure(error: &ApplyError) -> Failure {
    let kind = match error {
        ApplyError::RestoreIncomplete { .. } => FailureKind::RestoreIncomplete,
        _ if error.is_permission() => FailureKind::Permission,
        _ if error.is_unsupported() => FailureKind::NotSupported,
        _ if error.journal_kind().is_some() => io_kind(error.journal_kind()),
        _ => FailureKind::Restored,
    };
    failure(kind, &error.to_string())
}
/// The interface below the VLAN device that a change creates or removes.
fn below_vlan(change: &Change) -> Option<NicName> {
    let is_link = matches!(&change.setting, SettingKey::Nic(_, NicKnob::VlanLink));
    let texts = [&change.to, &change.from].into_iter();
    let mut links = texts.filter_map(|value| match value {
        Value::Text(link) if is_link => VlanLink::parse(link),
        _ => None,
    });
    links.next().map(|link| link.parent)
}
