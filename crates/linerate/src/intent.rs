//! What somebody wants changed: where the plan comes from (a file, a diagnosis, this host's own), and what there is
//! to know of each change before it is made.

use std::fs;
use std::path::Path;

use linerate_host::read::read_owners;
use linerate_model::finding::{Finding, Profile, Scene};
use linerate_model::ids::NicName;
use linerate_model::known::Known;
use linerate_model::plan::{Change, End, Plan};
use linerate_model::propose::{Permit, propose};
use linerate_model::rules::{self, owner_of};
use linerate_model::setting::{Class, SettingError, SettingKey, Settings};
use serde::{Deserialize, Serialize};

use crate::cli::WantedArgs;
use crate::exit::{Code, Outcome, Stop};
use crate::station::Station;

/// So many settings that a change may disturb are named in a line.
const NAMED_MAX: usize = 3;

/// A plan, with what there is to know of its changes.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Intent {
    pub(crate) changes: Vec<Wanted>,
}

/// A change, and what there is to know of it.
#[derive(Debug, Serialize)]
pub(crate) struct Wanted {
    #[serde(flatten)]
    pub(crate) change: Change,
    /// How it can be taken back.
    class: Class,
    /// The finding that it would mend.
    why: Option<Reason>,
    /// What writing it may change too; that is put back along with it.
    disturbs: Vec<SettingKey>,
    /// The program that may change it by itself, in words.
    owner: Option<String>,
}

/// A finding, in short.
#[derive(Debug, Clone, Serialize)]
struct Reason {
    rule: String,
    summary: String,
}

/// What of the doctor's document matters here.
#[derive(Debug, Deserialize)]
struct Diagnosed {
    schema: String,
    findings: Vec<Finding>,
}

impl Intent {
    /// What is asked for on the command line.
    pub(crate) fn of(wanted: &WantedArgs, station: &Station) -> Outcome<Self> {
        match &wanted.from {
            Some(file) => Self::from_file(file, station),
            None => Self::from_host(wanted.profile, station),
        }
    }

    /// Each interrupt of the interface on a CPU of its own, close to it.
    pub(crate) fn affinity(station: &Station, name: &NicName) -> Outcome<Self> {
        let host = station.read_host();
        let Some(nic) = host.nic(name) else {
            return Err(
                Stop::new(Code::BadInput, format!("there is no interface {name}"))
                    .hint("`linerate map` lists those that are there"),
            );
        };
        match rules::affinity(&host, nic) {
            Known::Value(changes) => {
                let changes = changes.into_iter().map(|change| (change, None));
                Self::with(changes.collect(), station)
            }
            Known::Unknown(gap) => {
                let why = format!("cannot place the interrupts of {name}: {gap}");
                Err(Stop::new(Code::NotSupported, why))
            }
        }
    }

    fn from_file(file: &Path, station: &Station) -> Outcome<Self> {
        let text = fs::read_to_string(file)
            .map_err(|error| Stop::io(format!("read the plan {}", file.display()), error))?;
        let wrong = |why: String| Stop::new(Code::BadInput, format!("{}: {why}", file.display()));
        if text.trim_start().starts_with('{') {
            let diagnosed: Diagnosed =
                serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
            if diagnosed.schema != "linerate.doctor/1" {
                let why = format!("it is a {}, not a linerate.doctor/1", diagnosed.schema);
                return Err(wrong(why));
            }
            return Self::from_findings(&diagnosed.findings, station);
        }
        let mut changes = Vec::new();
        for (key, to) in wanted_settings(&text).map_err(wrong)? {
            let from = station.read_setting(&key).ok().cloned().map_err(|gap| {
                Stop::new(Code::NotSupported, format!("cannot change {key}: {gap}"))
            })?;
            if !to.is_met_by(&from) {
                let setting = key;
                changes.push((Change { setting, from, to }, None));
            }
        }
        Self::with(changes, station)
    }

    /// The remedies of the findings on this host that can be carried out alone and at once.
    fn from_host(profile: Profile, station: &Station) -> Outcome<Self> {
        let host = station.read_host();
        let diagnosis = rules::diagnose(&Scene {
            end: End::Local,
            host: &host,
            nic: None,
            other: None,
            sample: None,
            watch: None,
            profile,
            owns_shapers: false,
        });
        Self::from_findings(&diagnosis.findings, station)
    }

    fn from_findings(findings: &[Finding], station: &Station) -> Outcome<Self> {
        let mut changes: Vec<(Change, Option<Reason>)> = Vec::new();
        for proposal in propose(findings, Permit::default()).to_try {
            for wanted in proposal.changes {
                let Change { setting, to, .. } = wanted.change;
                let is_new = changes.iter().all(|(other, _)| other.setting != setting);
                // What cannot be read could not be put back; what was changed since is as it is now.
                let Known::Value(from) = station.read_setting(&setting) else {
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
        Self::with(changes, station)
    }

    fn with(changes: Vec<(Change, Option<Reason>)>, station: &Station) -> Outcome<Self> {
        let owners = read_owners(station.root());
        let owners = owners.value().map_or(&[][..], Vec::as_slice);
        let wanted = |(change, why): (Change, Option<Reason>)| Wanted {
            class: change.setting.spec().class,
            why,
            disturbs: station.disturbed_by(&change.setting),
            owner: owner_of(owners, &change.setting),
            change,
        };
        let changes = changes.into_iter();
        let changes = changes.filter(|(change, _)| change.from != change.to);
        let intent = Self {
            changes: changes.map(wanted).collect(),
        };
        intent.plan()?;
        Ok(intent)
    }

    /// The changes alone.
    pub(crate) fn plan(&self) -> Outcome<Plan> {
        let changes = self.changes.iter().map(|wanted| wanted.change.clone());
        Plan::new(changes.collect()).map_err(|error| Stop::new(Code::Bug, error.to_string()))
    }

    /// For a person: a line for each change, and below it what there is to know.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.changes.iter().flat_map(Wanted::lines).collect()
    }
}

impl Wanted {
    fn lines(&self) -> Vec<String> {
        let spec = self.change.setting.spec();
        let mut lines = vec![format!(
            "{}   [{}, {}]",
            self.change, self.class, spec.about
        )];
        if let Some(Reason { rule, summary }) = &self.why {
            lines.push(format!("    why: {summary} ({rule})"));
        }
        let named: Vec<String> = self.disturbs.iter().map(ToString::to_string).collect();
        match named.as_slice() {
            [] => {}
            few if few.len() <= NAMED_MAX => {
                lines.push(format!("    may disturb: {}", few.join(", ")));
            }
            [first, ..] => lines.push(format!(
                "    may disturb: {first} and {} more",
                named.len() - 1
            )),
        }
        if let Some(owner) = &self.owner {
            lines.push(format!("    runs here: {owner}, and may undo it"));
        }
        lines
    }
}

/// What a plan file asks for: a TOML table `[settings]` of `"key" = value`.
pub(crate) fn wanted_settings(text: &str) -> Result<Settings, String> {
    let table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| error.to_string())?;
    for name in table.keys() {
        match name.as_str() {
            "settings" => {}
            "peer" => return Err("`[peer.settings]` needs a peer: use `linerate prove`".to_owned()),
            _ => {
                return Err(format!("`{name}` is not known here: expected `[settings]`"));
            }
        }
    }
    let settings = table
        .get("settings")
        .and_then(toml::Value::as_table)
        .ok_or("it has no table `[settings]`")?;
    let mut wanted = Settings::new();
    for (name, value) in settings {
        let wrong = |error: SettingError| error.to_string();
        let key: SettingKey = name.parse().map_err(wrong)?;
        let to = key.parse_value(&plain_text(value)).map_err(wrong)?;
        wanted.insert(key, to);
    }
    Ok(wanted)
}

/// A TOML value as a person would type it: `true` is `on`, a list is its items with blanks between.
fn plain_text(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(items) => items.iter().map(plain_text).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}
