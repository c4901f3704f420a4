//! The requested changes: where the plan comes from (a file, a diagnosis, this host's own), and what there is
//! to know about each change before it is made.

use std::collections::BTreeSet;
use std::path::Path;

use linerate_host::read::read_owners;
use linerate_host::{apply, regular_file};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::finding::{Context, Finding, Profile, Severity};
use linerate_model::host::Host;
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Gap, Known};
use linerate_model::plan::{Change, End, Plan};
use linerate_model::propose::{GIVEN, Permit, Proposal, propose};
use linerate_model::protocol::{Reply, Request};
use linerate_model::prove::EndChange;
use linerate_model::rules::{self, owner_of};
use linerate_model::setting::{
    Class, CpuKnob, MachineKnob, NicKnob, SettingError, SettingKey, Settings, Value, current, needs,
};
use linerate_model::steady::steady;
use linerate_runtime::cli::WantedArgs;
use linerate_runtime::endpoint::ends::Ends;
use linerate_runtime::endpoint::local::LocalEndpoint;
use linerate_runtime::endpoint::trial;
use rustix::thread::{CapabilitySet, capabilities};
use serde::{Deserialize, Serialize};

use super::shipped;

/// Maximum number of disturbed settings that are named in a line.
const NAMED_MAX: usize = 3;

/// A plan, with the details of its changes.
#[derive(Debug, Default)]
pub(crate) struct Intent {
    pub(crate) changes: Vec<IntendedChange>,
    /// The settings of a plan that comes with linerate which this host does not have, in words.
    pub(crate) without: Vec<String>,
}

/// A change, and its details.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct IntendedChange {
    #[serde(flatten)]
    pub(crate) change: Change,
    /// How it can be rolled back.
    class: Class,
    /// The finding that it fixes; null if the change was requested.
    why: Option<Reason>,
    /// What writing it may change too; this is restored with it.
    disturbs: Vec<SettingKey>,
    /// The running program that may change it by itself, as text.
    owner: Option<String>,
    /// The capabilities that writing it requires (capabilities(7)); a process of root does not need CAP_DAC_OVERRIDE and
    /// CAP_KILL here.
    needs: &'static [&'static str],
}

/// A finding, in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Reason {
    rule: String,
    summary: String,
}

/// Maximum size of a plan, or of a document of the doctor.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The request in a file.
#[derive(Debug)]
pub(crate) enum PlanFile {
    /// The finding that this fixes.
    Findings(Vec<Finding>),
    /// These values.
    Settings { local: Settings, peer: Settings },
}

/// The relevant part of the doctor's document.
#[derive(Debug, Deserialize)]
struct Diagnosed {
    schema: String,
    findings: Vec<Finding>,
}

impl Intent {
    /// The request of the command line.
    pub(crate) fn of(wanted: &WantedArgs, endpoint: &LocalEndpoint) -> Outcome<Self> {
        match &wanted.from {
            Some(file) => Self::from_file(file, wanted.nic.as_ref(), endpoint),
            None => Self::from_host(wanted.role, endpoint),
        }
    }

    /// Each interrupt of the interface on its own CPU, close to the interface.
    pub(crate) fn affinity(endpoint: &LocalEndpoint, name: &NicName) -> Outcome<Self> {
        let host = endpoint.read_host();
        let Some(nic) = host.nic(name) else {
            return Err(
                Stop::new(Code::BadInput, format!("no such interface: {name}"))
                    .hint("`linerate map` lists the interfaces"),
            );
        };
        match rules::affinity(&host, nic) {
            Known::Value(changes) => {
                let changes = changes.into_iter().map(|change| (change, None));
                Self::with(changes.collect(), endpoint)
            }
            Known::Unknown(gap) => {
                let why = format!("cannot place the interrupts of {name}: {gap}");
                Err(Stop::new(Code::NotSupported, why))
            }
        }
    }

    /// Prepares this host for steady measurements, as far as it supports them.
    pub(crate) fn steady(endpoint: &LocalEndpoint) -> Outcome<Self> {
        let changes = to_be_steady(&endpoint.read_host(), endpoint);
        let changes = changes.into_iter().map(|change| (change, None));
        Self::with(changes.collect(), endpoint)
    }

    /// The request of a plan file for `hold`: changes, and the maximum wake-up latency of the CPUs in microseconds, which
    /// lasts as long as a process holds it.
    pub(crate) fn held(
        file: &Path,
        nic: Option<&NicName>,
        endpoint: &LocalEndpoint,
    ) -> Outcome<(Self, Option<u32>)> {
        if let Some(found) = shipped::changes(file, nic, endpoint) {
            return Ok((Self::of_shipped(found?, endpoint)?, None));
        }
        let mut wanted = match read(file)? {
            PlanFile::Findings(findings) => {
                return Ok((Self::from_findings(&findings, endpoint)?, None));
            }
            PlanFile::Settings { local, peer } => without_peer(file, local, &peer)?,
        };
        let limit = wanted.remove(&SettingKey::Machine(MachineKnob::MaxLatencyUs));
        let limit = match limit {
            Some(Value::Integer(limit)) => Some(u32::try_from(limit).unwrap_or(u32::MAX)),
            _ => None,
        };
        Ok((Self::from_settings(&wanted, endpoint)?, limit))
    }

    fn from_file(file: &Path, nic: Option<&NicName>, endpoint: &LocalEndpoint) -> Outcome<Self> {
        if let Some(found) = shipped::changes(file, nic, endpoint) {
            return Self::of_shipped(found?, endpoint);
        }
        if nic.is_some() {
            let names = shipped::names();
            let why =
                "`--nic` is for a plan that comes with linerate: a plan file names its interfaces";
            return Err(Stop::new(Code::Usage, why).hint(format!("such plans: {names}")));
        }
        match read(file)? {
            PlanFile::Findings(findings) => Self::from_findings(&findings, endpoint),
            PlanFile::Settings { local, peer } => {
                Self::from_settings(&without_peer(file, local, &peer)?, endpoint)
            }
        }
    }

    fn of_shipped(
        (changes, without): (Vec<Change>, Vec<String>),
        endpoint: &LocalEndpoint,
    ) -> Outcome<Self> {
        let changes = changes.into_iter().map(|change| (change, None));
        let mut intent = Self::with(changes.collect(), endpoint)?;
        intent.without = without;
        Ok(intent)
    }

    pub(crate) fn from_settings(wanted: &Settings, endpoint: &LocalEndpoint) -> Outcome<Self> {
        let mut changes = Vec::new();
        for (key, to) in wanted.clone() {
            let from = endpoint.read_setting(&key);
            let from = match (from, key.when_made(wanted.iter())) {
                (Known::Unknown(gap), Some(made)) if gap.cause == Cause::Absent => made,
                (from, _) => from.ok().cloned().map_err(|gap| unread(&key, gap))?,
            };
            if to.is_met_by(&from) {
                continue;
            }
            if let Some(advice) = apply::settings::advice(&key) {
                let why = format!("cannot change {key}, which is {from}: {advice}");
                return Err(Stop::new(Code::NotSupported, why));
            }
            let setting = key;
            changes.push((Change { setting, from, to }, None));
        }
        Self::with(changes, endpoint)
    }

    /// The remedies of the findings on this host that can be applied alone and at once.
    fn from_host(profile: Profile, endpoint: &LocalEndpoint) -> Outcome<Self> {
        let host = endpoint.read_host();
        let diagnosis = rules::diagnose(&Context {
            end: End::Local,
            host: &host,
            nic: None,
            other: None,
            sample: None,
            watch: None,
            profile,
            owns_shapers: false,
        });
        let mut changes = remedies(&diagnosis.findings, endpoint);
        if profile == Profile::Measurement {
            // The settings for steady measurements, which `tune hold` holds, whatever the findings are.
            for change in to_be_steady(&host, endpoint) {
                if changes.iter().all(|(other, _)| *other != change) {
                    changes.retain(|(other, _)| other.setting != change.setting);
                    changes.push((change, None));
                }
            }
        }
        Self::with(changes, endpoint)
    }

    fn from_findings(findings: &[Finding], endpoint: &LocalEndpoint) -> Outcome<Self> {
        Self::with(remedies(findings, endpoint), endpoint)
    }

    fn with(mut changes: Vec<(Change, Option<Reason>)>, endpoint: &LocalEndpoint) -> Outcome<Self> {
        changes.sort_by_cached_key(|(change, _)| {
            let setting = change.setting.clone();
            (turn(&change.setting, &change.to), setting)
        });
        let owners = read_owners(endpoint.root());
        let owners = owners.value().map_or(&[][..], Vec::as_slice);
        let wanted = |(change, why): (Change, Option<Reason>)| IntendedChange {
            class: change.setting.spec().class,
            why,
            disturbs: endpoint.disturbed_by(&change.setting),
            owner: owner_of(owners, &change.setting),
            needs: change.setting.needs(),
            change,
        };
        let changes = changes.into_iter();
        let changes = changes.filter(|(change, _)| change.from != change.to);
        let intent = Self {
            changes: changes.map(wanted).collect(),
            without: Vec::new(),
        };
        intent.plan()?;
        Ok(intent)
    }

    /// Only the changes.
    pub(crate) fn plan(&self) -> Outcome<Plan> {
        let changes = self.changes.iter().map(|wanted| wanted.change.clone());
        Plan::new(changes.collect()).map_err(|error| Stop::new(Code::Bug, error.to_string()))
    }

    /// As text: a line for each change, and below it its details. Changes with one reason stand together, and the reason
    /// stands once, below the last of them.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut groups: Vec<(&Option<Reason>, Vec<&IntendedChange>)> = Vec::new();
        for wanted in &self.changes {
            let same = groups.iter_mut().find(|(why, _)| *why == &wanted.why);
            match same {
                Some((_, group)) => group.push(wanted),
                None => groups.push((&wanted.why, vec![wanted])),
            }
        }
        let of_group = |(why, group): (&Option<Reason>, Vec<&IntendedChange>)| {
            let mut lines: Vec<String> = group.iter().flat_map(|wanted| wanted.lines()).collect();
            if let Some(Reason { rule, summary }) = why {
                let all = match group.len() {
                    1 => String::new(),
                    2 => " both".to_owned(),
                    all => format!(" all {all}"),
                };
                lines.push(format!("    why{all}: {summary} ({rule})"));
            }
            lines
        };
        groups.into_iter().flat_map(of_group).collect()
    }

    /// The capabilities that it requires, and those of them that this process lacks.
    pub(crate) fn needs(&self) -> (BTreeSet<&'static str>, BTreeSet<&'static str>) {
        let needs: BTreeSet<&str> = (self.changes.iter())
            .flat_map(|wanted| wanted.needs.iter().copied())
            .collect();
        let held = capabilities(None).map(|sets| sets.effective);
        let held = held.unwrap_or_else(|_| CapabilitySet::empty());
        let is_root = rustix::process::geteuid().is_root();
        let has = |name: &str| match name {
            needs::NET_ADMIN => held.contains(CapabilitySet::NET_ADMIN),
            // The files are owned by root.
            needs::DAC_OVERRIDE => is_root || held.contains(CapabilitySet::DAC_OVERRIDE),
            needs::SYS_ADMIN => held.contains(CapabilitySet::SYS_ADMIN),
            needs::KILL => is_root || held.contains(CapabilitySet::KILL),
            _ => true,
        };
        let lacks = needs.iter().copied().filter(|name| !has(name)).collect();
        (needs, lacks)
    }
}

/// The remedies of findings that can be applied here, alone and at once, each with its finding.
fn remedies(findings: &[Finding], endpoint: &LocalEndpoint) -> Vec<(Change, Option<Reason>)> {
    let mut changes: Vec<(Change, Option<Reason>)> = Vec::new();
    for proposal in propose(findings, Permit::default()).to_try {
        for wanted in proposal.changes {
            let Change { setting, to, .. } = wanted.change;
            let is_new = changes.iter().all(|(other, _)| other.setting != setting);
            // What cannot be read could not be restored; what was changed since starts from its current value.
            let Known::Value(from) = endpoint.read_setting(&setting) else {
                continue;
            };
            if wanted.end == End::Local && is_new && !to.is_met_by(&from) {
                let mends = |finding: &&Finding| {
                    let mut remedies = finding.remedies.iter();
                    remedies.any(|remedy| remedy.change.setting == setting)
                };
                let why = findings.iter().find(mends).map(|finding| Reason {
                    rule: finding.rule.clone(),
                    summary: finding.summary.clone(),
                });
                changes.push((Change { setting, from, to }, why));
            }
        }
    }
    changes
}

/// The settings of a host for steady measurements, as far as it supports them.
fn to_be_steady(host: &Host, endpoint: &LocalEndpoint) -> Vec<Change> {
    let wanted = steady(host).into_iter();
    let changes = wanted.filter_map(|(setting, to)| {
        let from = endpoint.read_setting(&setting).value()?.clone();
        Some(Change { setting, from, to })
    });
    changes.collect()
}

/// The error of a setting whose value is not known: without it, nothing could be rolled back.
fn unread(key: &SettingKey, gap: &Gap) -> Stop {
    let why = format!("cannot change {key}: {gap}");
    match (gap.cause, key.needs()) {
        (Cause::Denied, needs) if !needs.is_empty() => {
            let needs = needs.join(", ");
            Stop::new(Code::PermissionMissing, why).hint(format!(
                "run it as root: changing this setting requires {needs}"
            ))
        }
        (Cause::Denied, _) => Stop::new(Code::PermissionMissing, why),
        _ => Stop::new(Code::NotSupported, why),
    }
}

/// The order of settings in a plan, before their place in the catalog: irqbalance gets its banned interrupts while
/// it listens, so that it moves none that is placed then, and interrupts can be placed on CPUs that are online. Devices
/// that are removed go last.
pub(crate) fn turn(setting: &SettingKey, to: &Value) -> u8 {
    match setting {
        SettingKey::Nic(_, NicKnob::VlanLink) if !setting.makes_interface(to) => 4,
        SettingKey::Machine(MachineKnob::IrqbalanceBans) => 0,
        SettingKey::Machine(MachineKnob::IrqbalancePaused) => 1,
        SettingKey::Machine(MachineKnob::Smt) | SettingKey::Cpu(_, CpuKnob::Online) => 2,
        _ => 3,
    }
}

impl IntendedChange {
    fn lines(&self) -> Vec<String> {
        let spec = self.change.setting.spec();
        let mut lines = vec![format!(
            "{}   [{}, {}]",
            self.change, self.class, spec.about
        )];
        let named: Vec<String> = self.disturbs.iter().map(ToString::to_string).collect();
        match named.as_slice() {
            [] => {}
            few if few.len() <= NAMED_MAX => {
                lines.push(format!("    may disrupt: {}", few.join(", ")));
            }
            [first, ..] => lines.push(format!(
                "    may disrupt: {first} and {} more",
                named.len() - 1
            )),
        }
        if let Some(owner) = &self.owner {
            lines.push(format!("    may be overridden by: {owner}"));
        }
        lines
    }
}

/// The request of a file for both ends, as remedies to try: the plan's settings, each alone except those that both ends
/// need, or the remedies of the doctor's findings.
pub(crate) fn given(asked: PlanFile, ends: &dyn Ends) -> Outcome<Vec<Proposal>> {
    let (local, peer) = match asked {
        PlanFile::Findings(findings) => return Ok(propose(&findings, Permit::default()).to_try),
        PlanFile::Settings { local, peer } => (local, peer),
    };
    let mut given: Vec<Proposal> = Vec::new();
    for (end, settings) in [(End::Local, local), (End::Remote, peer)] {
        for (setting, to) in settings {
            let from = current(ends.host(end), &setting)
                .ok()
                .cloned()
                .map_err(|gap| {
                    let why = format!("cannot change {setting} of the {end} end: {gap}");
                    Stop::new(Code::NotSupported, why)
                })?;
            let class = setting.spec().class;
            let subject = (end, setting.to_string());
            let change = Change { setting, from, to };
            let same = |other: &&mut Proposal| other.changes[0].change.setting == change.setting;
            match given.iter_mut().find(same) {
                Some(both) => {
                    both.subjects.push(subject);
                    both.changes.push(EndChange { end, change });
                }
                None => given.push(Proposal {
                    rule: GIVEN.to_owned(),
                    subjects: vec![subject],
                    severity: Severity::Note,
                    changes: vec![EndChange { end, change }],
                    class,
                }),
            }
        }
    }
    Ok(given)
}

/// The request of a plan file for both ends of a path.
pub(crate) fn both(
    (local, peer): (Settings, Settings),
    path: &mut trial::PeerPath,
) -> Outcome<(Intent, Plan)> {
    let mut changes = Vec::new();
    let asked = Request::ReadSettings(peer.keys().cloned().collect());
    let Reply::Settings(now) = path.peer.ask(&asked)? else {
        return Err(Stop::new(Code::Bug, "an answer passed that does not fit"));
    };
    for ((setting, to), from) in peer.into_iter().zip(now) {
        let from = from.ok().cloned().map_err(|gap| {
            let why = format!("cannot change {setting} of the peer: {gap}");
            Stop::new(Code::NotSupported, why)
        })?;
        if !to.is_met_by(&from) {
            changes.push(Change { setting, from, to });
        }
    }
    let far = Plan::new(changes).map_err(|error| Stop::new(Code::Bug, error.to_string()))?;
    Ok((Intent::from_settings(&local, &path.endpoint)?, far))
}

/// The request of a plan file for two hosts.
pub(crate) fn read_both(file: &Path) -> Outcome<(Settings, Settings)> {
    match read(file)? {
        PlanFile::Settings { local, peer } => Ok((local, peer)),
        PlanFile::Findings(_) => {
            let why = format!("{}: findings describe a single host", file.display());
            Err(Stop::new(Code::BadInput, why).hint("use a plan file"))
        }
    }
}

/// The request of a plan for this host, which must be its only one.
fn without_peer(file: &Path, local: Settings, peer: &Settings) -> Outcome<Settings> {
    if peer.is_empty() {
        return Ok(local);
    }
    let why = format!("{}: `[peer.settings]` needs a peer", file.display());
    Err(Stop::new(Code::BadInput, why).hint("use `tune apply --peer PEER`"))
}

/// The request in a file: the doctor's JSON, or a plan. It may be a FIFO, so it is read before signals are handled.
pub(crate) fn read(file: &Path) -> Outcome<PlanFile> {
    let text = regular_file::read_named_text(file, FILE_BYTES_MAX).map_err(|error| {
        let names = shipped::names();
        Stop::io(format!("read the plan {}", file.display()), error)
            .hint(format!("plans that come with linerate: {names}"))
    })?;
    let wrong = |why: String| Stop::new(Code::BadInput, format!("{}: {why}", file.display()));
    if !text.trim_start().starts_with('{') {
        let (local, peer) = wanted_settings(&text).map_err(wrong)?;
        return Ok(PlanFile::Settings { local, peer });
    }
    let diagnosed: Diagnosed =
        serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    if diagnosed.schema != "linerate.doctor/1" {
        let why = format!(
            "it is a {} document, not linerate.doctor/1",
            diagnosed.schema
        );
        return Err(wrong(why));
    }
    Ok(PlanFile::Findings(diagnosed.findings))
}

/// The request of a plan file for this host and for the peer: TOML tables `[settings]` and `[peer.settings]` of
/// `"key" = value`.
pub(crate) fn wanted_settings(text: &str) -> Result<(Settings, Settings), String> {
    let table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| error.to_string())?;
    let unknown =
        |name: &str| format!("unknown table `{name}`: expected `[settings]` or `[peer.settings]`");
    let (mut local, mut peer) = (None, None);
    for (name, value) in &table {
        match (name.as_str(), value) {
            ("settings", toml::Value::Table(settings)) => local = Some(settings),
            ("peer", toml::Value::Table(of_peer)) => {
                for (name, value) in of_peer {
                    match (name.as_str(), value) {
                        ("settings", toml::Value::Table(settings)) => peer = Some(settings),
                        _ => return Err(unknown(&format!("peer.{name}"))),
                    }
                }
            }
            _ => return Err(unknown(name)),
        }
    }
    if local.is_none() && peer.is_none() {
        return Err("it has no `[settings]` table".to_owned());
    }
    let all = |table: Option<&toml::Table>| table.map_or(Ok(Settings::new()), settings_of);
    Ok((all(local)?, all(peer)?))
}

fn settings_of(table: &toml::Table) -> Result<Settings, String> {
    let mut wanted = Settings::new();
    for (name, value) in table {
        let wrong = |error: SettingError| error.to_string();
        let key: SettingKey = name.parse().map_err(wrong)?;
        let to = key.parse_value(&plain_text(value)).map_err(wrong)?;
        wanted.insert(key, to);
    }
    Ok(wanted)
}

/// A TOML value as a user would type it: `true` is `on`, a list is its items separated by blanks.
fn plain_text(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(items) => items.iter().map(plain_text).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(key: &str, reason: Option<&str>) -> IntendedChange {
        let setting: SettingKey = key.parse().expect("a key");
        let value = |text| setting.parse_value(text).expect("a value");
        IntendedChange {
            class: setting.spec().class,
            why: reason.map(|rule| Reason {
                rule: rule.to_owned(),
                summary: format!("because of {rule}"),
            }),
            disturbs: Vec::new(),
            owner: None,
            needs: &[],
            change: Change {
                from: value("0"),
                to: value("1"),
                setting: setting.clone(),
            },
        }
    }

    #[test]
    fn a_reason_of_several_changes_stands_once_below_the_last_of_them() {
        let interrupts = |queue: u32| format!("nic/eth2/queue/rx-{queue}/irq-cpus");
        let intent = Intent {
            changes: vec![
                wanted(&interrupts(0), Some("irq-remote-numa")),
                wanted("sysctl/vm.swappiness", Some("numa-memory-policy")),
                wanted(&interrupts(1), Some("irq-remote-numa")),
                wanted("sysctl/net.core.busy_poll", None),
            ],
            without: Vec::new(),
        };
        let lines = intent.lines();
        let words = |line: &String| line.split("   [").next().unwrap_or_default().to_owned();
        let shown: Vec<String> = lines.iter().map(words).collect();
        assert_eq!(
            shown,
            [
                "nic/eth2/queue/rx-0/irq-cpus: 0 -> 1",
                "nic/eth2/queue/rx-1/irq-cpus: 0 -> 1",
                "    why both: because of irq-remote-numa (irq-remote-numa)",
                "sysctl/vm.swappiness: 0 -> 1",
                "    why: because of numa-memory-policy (numa-memory-policy)",
                "sysctl/net.core.busy_poll: 0 -> 1",
            ]
        );
    }
}
