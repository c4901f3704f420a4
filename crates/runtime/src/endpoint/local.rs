//! One end's own machine: what both the agent and the session do with the host they run on: reading,
//! changing under a journal, rolling back.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use linerate_host::apply::{
    self, ApplyError, Boottime, Ending, Faults, Faulty, Header, JournalError, JournalOptions,
    KeptError, LiveMachine, Lock, LockError, Machine, NetnsIdentity, Owner, PersistentSet, Reach,
    Recovered, Scope, Surroundings, Transaction, Verdict,
};
use linerate_host::management::{self, session_of};
use linerate_host::netlink::Netlink;
use linerate_host::nic_control::NicRead;
use linerate_host::read::read_host;
use linerate_host::root::{HostRoot, LiveHost};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::Host;
use linerate_model::ids::NicName;
use linerate_model::known::Known;
use linerate_model::plan::{Change, Plan};
use linerate_model::protocol::{AgentAddress, Failure, FailureKind};
use linerate_model::setting::{Class, Scope as SettingScope, SettingKey, Value, needs};
use serde::Serialize;

use crate::console::say::warn;
use crate::endpoint::crash;
use crate::endpoint::fallback_timer::{self, FallbackTimer};
use crate::endpoint::guard::{Armed, Locks, Rights};

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

/// One transaction, as `tune` lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Entry {
    /// Its id.
    pub id: String,
    /// Its short name, `t7`, by its number among the transactions of this state directory; null without a journal.
    pub name: Option<String>,
    /// Its state.
    pub state: &'static str,
    /// Its changes, or the reason for its state.
    pub about: String,
    /// Whether it is persistent across reboots.
    pub kept: bool,
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
        })
    }

    /// Whether, from now on, interfaces of the operator's ssh connection may be disrupted; they
    /// are never disconnected.
    pub fn disturb_way_in(&mut self, may: bool) {
        self.disturbs_way_in = may;
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

    /// The interfaces of the ssh connection that this process was started over; none without one.
    pub fn way_in(&self) -> BTreeSet<NicName> {
        let session = session_of(self.root(), std::process::id());
        session
            .and_then(|session| {
                let nics = management::way_in(self.root(), &self.netlink, session);
                nics.value().cloned()
            })
            .unwrap_or_default()
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

    /// Refuses what would disrupt (R2) or disconnect (R3 and worse) the ssh connection that this process was started
    /// over.
    fn spare_way_in(&self, plan: &Plan) -> Result<(), Failure> {
        let root = self.live.root();
        let Some(session) = session_of(root, std::process::id()) else {
            return Ok(());
        };
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
        let way_in = management::way_in(root, &self.netlink, session);
        for change in risky {
            let Some(nic) = of_nic(&change) else {
                continue;
            };
            let why = match &way_in {
                Known::Value(nics) if !nics.contains(&nic) => continue,
                Known::Value(_) => format!("your ssh connection uses {nic}"),
                Known::Unknown(gap) => {
                    format!("your ssh connection may use {nic}: {gap}")
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

    /// Whether transaction `id` was applied in this boot and is not rolled back.
    pub fn is_applied(state: &Path, id: &str) -> Outcome<bool> {
        let is_it = |entry: &Entry| entry.id == id && entry.state == "applied";
        Ok(Self::status(state)?.iter().any(is_it))
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

    /// Rolls back what killed processes left incomplete.
    pub fn recover(state: &Path) -> Outcome<Vec<Entry>> {
        // What a living process works on is left alone; a working reverter is waited for.
        let _lock = Lock::take(Scope::Netns, state);
        with_surroundings(|around| apply::recover(state, around)).and_then(settle)
    }

    /// Rolls back a committed transaction: `id`, or the newest.
    pub fn undo_committed(state: &Path, id: Option<&str>) -> Outcome<Vec<Entry>> {
        Self::undo_committed_within(state, id, Duration::ZERO)
    }

    /// The same, and waits that long for another linerate that changes settings here.
    pub fn undo_committed_within(
        state: &Path,
        id: Option<&str>,
        patience: Duration,
    ) -> Outcome<Vec<Entry>> {
        let _lock = Lock::take_within(Scope::Netns, state, patience)
            .map_err(|error| Stop::from(not_locked(&error)))?;
        let undone = with_surroundings(|around| apply::undo_committed(state, id, around))?;
        match id {
            Some(id) if undone.is_empty() => Err(Stop::new(
                Code::BadInput,
                format!("no applied transaction `{id}`"),
            )
            .hint("`linerate tune status` lists them")),
            _ => settle(undone),
        }
    }

    /// Lists the transactions.
    pub fn status(state: &Path) -> Outcome<Vec<Entry>> {
        let listed = apply::journal_listing(state).map_err(|error| journal_stop(&error))?;
        let kept = apply::kept_set(state).map_err(|error| kept_stop(&error))?;
        let (kept, set) = kept.map_or_else(Default::default, |(set, name)| (set.kept, name));
        let is_kept = |id: &str| kept.iter().any(|kept| kept.id == id);
        let entry = |listed: apply::Listed| {
            let again = listed.journal.as_ref().ok();
            let again = again.and_then(|told| told.header.of.clone());
            let (state, about) = match &listed.journal {
                Err(error) => ("unreadable", error.to_string()),
                Ok(told) => {
                    let changes = told.changes.iter().map(ToString::to_string);
                    let changes = changes.collect::<Vec<_>>().join("; ");
                    match &told.ending {
                        Ending::Committed => ("applied", changes),
                        Ending::Aborted { why, .. } => ("undone", format!("{why}: {changes}")),
                        Ending::Open | Ending::Released => ("open", changes),
                    }
                }
            };
            // By the id that it has had since it was made.
            let id = again.unwrap_or(listed.id);
            let kept = is_kept(&id);
            let journal = listed.journal.as_ref().ok();
            Entry {
                id,
                name: journal.map(|told| format!("t{}", told.header.sequence)),
                state,
                about,
                kept,
            }
        };
        // Nothing of another boot is left on the machine.
        let boot_id = apply::boot_id().map_err(identity)?;
        let is_here = |listed: &apply::Listed| match &listed.journal {
            Ok(told) => told.header.boot_id == boot_id,
            Err(_) => true,
        };
        let listed = listed.into_iter().filter(is_here);
        let mut entries: Vec<Entry> = listed.map(entry).collect();
        let tried = apply::tried(state, &set).map_err(|error| kept_stop(&error))?;
        let why = match tried.map(|tried| tried.verdict) {
            Some(Verdict::Bad { why }) => format!("disabled at boot: {why}"),
            _ => "not applied since the last boot".to_owned(),
        };
        let absent = |kept: &&PersistentSet| !entries.iter().any(|entry| entry.id == kept.id);
        let absent: Vec<Entry> = kept
            .iter()
            .filter(absent)
            .map(|kept| Entry {
                id: kept.id.clone(),
                name: None,
                state: "kept",
                about: why.clone(),
                kept: true,
            })
            .collect();
        entries.extend(absent);
        Ok(entries)
    }

    /// The id of the transaction that is called `name`: its short name or its id. What is unknown stays as it is.
    pub fn id_of(state: &Path, name: &str) -> Outcome<String> {
        let is_short = name
            .strip_prefix('t')
            .is_some_and(|number| number.parse::<u64>().is_ok());
        if !is_short {
            return Ok(name.to_owned());
        }
        let entries = Self::status(state)?;
        let mut ids = entries
            .into_iter()
            .filter(|entry| entry.name.as_deref() == Some(name))
            .map(|entry| entry.id);
        match (ids.next(), ids.next()) {
            // Two processes may begin one at the same moment.
            (Some(one), Some(other)) => Err(Stop::new(
                Code::BadInput,
                format!("`{name}` is the name of two transactions: {one} and {other}"),
            )
            .hint("pass the id")),
            (Some(id), None) => Ok(id),
            (None, _) => Ok(name.to_owned()),
        }
    }

    /// The changes of transaction `id`, or of the newest applied one: of this boot, in the network namespace that
    /// the machine boots with. Others cannot be made persistent.
    pub fn applied(state: &Path, id: Option<&str>) -> Outcome<(String, Vec<Change>)> {
        let listed = apply::journal_listing(state).map_err(|error| journal_stop(&error))?;
        let boot_id = apply::boot_id().map_err(identity)?;
        let applied = listed.into_iter().rev().find_map(|listed| {
            let told = listed.journal.ok()?;
            let is_meant = id.is_none_or(|id| id == listed.id);
            let is_applied = told.ending == Ending::Committed && told.header.boot_id == boot_id;
            let is_first = told.header.of.is_none();
            (is_meant && is_applied && is_first).then_some((listed.id, told))
        });
        let Some((id, told)) = applied else {
            let what = id.map_or_else(
                || "no transaction is applied".to_owned(),
                |id| format!("no applied transaction `{id}`"),
            );
            let stop = Stop::new(Code::BadInput, what);
            return Err(stop.hint("`linerate tune status` lists them"));
        };
        let here = NetnsIdentity::current().map_err(identity)?;
        if !here.is(&told.header.netns) || !apply::is_first_netns() {
            let why = format!(
                "cannot make {id} persistent: only the initial network namespace survives a reboot"
            );
            return Err(Stop::new(Code::NotSupported, why));
        }
        Ok((id, told.changes))
    }
}

/// The exit code and the text for settings that could not be kept.
pub fn kept_stop(error: &KeptError) -> Stop {
    failure(io_kind(error.io_kind()), &error.to_string()).into()
}

/// The result of a recovery, as entries; an incomplete restore is an error with its own exit code, and so is one that
/// another process did not complete.
pub fn settle(recovered: Vec<Recovered>) -> Outcome<Vec<Entry>> {
    let mut entries = Vec::new();
    let (mut incomplete, mut busy) = (Vec::new(), Vec::new());
    for Recovered { id, outcome } in recovered {
        let (state, about) = match outcome {
            apply::Outcome::Restored(undone) => {
                let left: Vec<String> = undone.left.iter().map(ToString::to_string).collect();
                let about = format!("{} settings", undone.restored.len());
                ("restored", [vec![about], left].concat().join("; "))
            }
            apply::Outcome::NothingLeft(why) => ("over", why.to_owned()),
            apply::Outcome::OwnerAlive(_) => {
                ("in progress", "its process is still running".to_owned())
            }
            apply::Outcome::Busy(why) => {
                busy.push(format!("{id}: {why}"));
                ("busy", why)
            }
            apply::Outcome::LeftAlone(why) => {
                incomplete.push(format!("{id}: {why}"));
                ("not restored", why)
            }
            apply::Outcome::Incomplete(undone) => {
                let left: Vec<String> = undone.left.iter().map(ToString::to_string).collect();
                incomplete.push(format!("{id}: {}", left.join("; ")));
                ("incomplete", left.join("; "))
            }
        };
        entries.push(Entry {
            id,
            name: None,
            state,
            about,
            kept: false,
        });
    }
    if incomplete.is_empty() && busy.is_empty() {
        return Ok(entries);
    }
    // The more informative state of the host wins.
    let code = match incomplete[..] {
        [] => Code::Resource,
        _ => Code::RestoreIncomplete,
    };
    incomplete.extend(busy);
    let why = format!(
        "not all changes could be rolled back: {}",
        incomplete.join("; ")
    );
    Err(Stop::new(code, why).hint("fix the cause, then run `linerate tune recover` again"))
}

/// Runs a recovery with the data of this boot, this machine's processes and its namespaces.
fn with_surroundings<T>(
    work: impl FnOnce(&Surroundings<'_>) -> Result<T, JournalError>,
) -> Outcome<T> {
    let boot_id = apply::boot_id().map_err(identity)?;
    let faults = crash::faults(crash::Role::Recovery, None);
    let reach = |netns: &NetnsIdentity| match apply::reach(netns, || Ok(Box::new(Netlink::open()?)))
    {
        Reach::Machine(machine) => Reach::Machine(with_faults(machine, faults.clone())),
        other => other,
    };
    let beside = JournalOptions {
        guard: None,
        faults: faults.clone(),
    };
    let around = Surroundings {
        boot_id: &boot_id,
        is_alive: &Owner::is_alive,
        reach: &reach,
        patience: apply::REVERTING,
        beside: &beside,
    };
    work(&around).map_err(|error| journal_stop(&error))
}

/// This machine, from this thread's network namespace.
pub fn this_machine(faults: Option<Arc<dyn Faults>>) -> std::io::Result<Box<dyn Machine>> {
    let machine = LiveMachine::new(LiveHost::open()?, Box::new(Netlink::open()?));
    Ok(with_faults(Box::new(machine), faults))
}

fn with_faults(machine: Box<dyn Machine>, faults: Option<Arc<dyn Faults>>) -> Box<dyn Machine> {
    match faults {
        Some(faults) => Box::new(Faulty { machine, faults }),
        None => machine,
    }
}

/// The failure of a change while another one has the lock.
pub fn not_locked(error: &LockError) -> Failure {
    let kind = match error {
        LockError::Held { .. } | LockError::Reverting { .. } => FailureKind::Resource,
        LockError::NotShared(_) => FailureKind::Other,
        LockError::Io { source, .. } => io_kind(Some(source.kind())),
        LockError::Identity(_) => FailureKind::NotSupported,
    };
    failure(kind, &error.to_string())
}

fn identity(error: apply::IdentityError) -> Stop {
    Stop::new(
        Code::NotSupported,
        "cannot identify this machine and network namespace",
    )
    .because(error)
}

fn journal_stop(error: &JournalError) -> Stop {
    failure(journal_kind(error), &error.to_string()).into()
}

fn journal_kind(error: &JournalError) -> FailureKind {
    match error {
        JournalError::Busy { .. } => FailureKind::Resource,
        error => io_kind(error.io_kind()),
    }
}

fn io_kind(kind: Option<std::io::ErrorKind>) -> FailureKind {
    match kind {
        Some(std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem) => {
            FailureKind::Permission
        }
        Some(
            std::io::ErrorKind::StorageFull
            | std::io::ErrorKind::QuotaExceeded
            | std::io::ErrorKind::WouldBlock,
        ) => FailureKind::Resource,
        Some(_) => FailureKind::Other,
        None => FailureKind::BadInput,
    }
}

fn failure(kind: FailureKind, message: &str) -> Failure {
    Failure {
        kind,
        message: message.to_owned(),
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_journal_that_another_process_does_not_leave_ends_as_a_lock_does_that_is_held() {
        let busy = JournalError::Busy {
            path: PathBuf::from("/state/txn/1/journal"),
            waited: Duration::from_secs(30),
        };
        let stop = journal_stop(&busy);
        assert_eq!(stop.code, Code::Resource);
        assert!(stop.message.contains("after 30 s"), "{stop}");
        let of = |outcome| Recovered {
            id: "1".to_owned(),
            outcome,
        };
        let settled = |all| settle(all).expect_err("something is left").code;
        let is_busy = || of(apply::Outcome::Busy(busy.to_string()));
        assert_eq!(settled(vec![is_busy()]), Code::Resource);
        let unreadable = of(apply::Outcome::LeftAlone("its journal is torn".to_owned()));
        let both = vec![is_busy(), unreadable];
        assert_eq!(settled(both), Code::RestoreIncomplete);
    }
}
