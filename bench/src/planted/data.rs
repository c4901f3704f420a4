//! The shapes and faults as data: `bench/planted.d/*.toml`, whose first file describes the format.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use linerate_model::finding::{Profile, Severity};
use linerate_model::rules;
use serde::Deserialize;
use serde_json::Value;

use crate::Trouble;
use crate::adapters::{Adapter, System};

/// The folder of this crate, where the data lie.
const BENCH: &str = env!("CARGO_MANIFEST_DIR");

/// All faults, and the shapes they are injected into.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plants {
    /// Captures that were built by hand: faults are injected into them, but they are no proof of health.
    pub(crate) made: BTreeSet<String>,
    /// Captures that hold faults already: left out.
    pub(crate) sick: BTreeSet<String>,
    /// Findings on a healthy shape that are correct.
    #[serde(default)]
    pub(crate) stated: Vec<Stated>,
    /// Shapes made of others.
    #[serde(default, rename = "shape")]
    pub(crate) shapes: Vec<Derived>,
    /// Shapes in network namespaces.
    #[serde(default, rename = "live")]
    pub(crate) live: Vec<Live>,
    /// The faults.
    #[serde(rename = "fault")]
    pub(crate) faults: Vec<Fault>,
}

/// A finding that is correct in a role that the host was not configured for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stated {
    pub(crate) rule: String,
    pub(crate) profile: Profile,
    /// Why it is right.
    pub(crate) why: String,
}

/// What is changed of a capture.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Edits {
    /// A file's new text; `false` takes it away.
    pub(crate) files: BTreeMap<String, Text>,
    /// Netlink's answers about an interface, by JSON pointer.
    pub(crate) nics: BTreeMap<String, BTreeMap<String, Value>>,
    /// A file's text in two captures.
    pub(crate) counters: BTreeMap<String, [String; 2]>,
    /// Counters from netlink, in two captures, by their key below `nic/NAME/`.
    pub(crate) counts: BTreeMap<String, BTreeMap<String, [u64; 2]>>,
    /// Single values of a file with many, in two captures.
    pub(crate) fields: BTreeMap<String, BTreeMap<String, [u64; 2]>>,
}

/// A text, or none.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum Text {
    Is(String),
    /// `false`, whose value has no further meaning.
    Gone(#[expect(dead_code, reason = "only that it is no text matters")] bool),
}

impl Text {
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Is(text) => Some(text),
            Self::Gone(_) => None,
        }
    }
}

/// A shape made of another by edits that are no fault.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Derived {
    pub(crate) name: String,
    pub(crate) from: String,
    /// What it is, for who reads the data.
    #[serde(rename = "what")]
    pub(crate) _what: String,
    /// Whether it is a healthy host like a real capture, so that any warning is wrong.
    #[serde(default)]
    pub(crate) healthy: bool,
    /// The kernel and the files of its network stack, for captures without them.
    #[serde(default)]
    pub(crate) system: Option<System>,
    /// Network adapters that are added.
    #[serde(default, rename = "adapter")]
    pub(crate) adapters: Vec<Adapter>,
    #[serde(default)]
    pub(crate) edits: Edits,
}

/// A shape in network namespaces of this machine: `near`, which is checked, and `far`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Live {
    pub(crate) name: String,
    /// Commands that make it: the first word is the namespace.
    pub(crate) make: Vec<String>,
}

/// One fault.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fault {
    /// One sentence.
    pub(crate) what: String,
    pub(crate) shape: String,
    /// The rule that should report it; `none` for a fault without a rule, which counts as missed.
    #[serde(default = "none")]
    pub(crate) rule: String,
    #[serde(default)]
    pub(crate) subject: String,
    /// Words of a correct finding, stated before the rules were read.
    #[serde(default)]
    #[cfg_attr(not(test), expect(dead_code, reason = "for who reads the data"))]
    pub(crate) about: String,
    /// Whether it was written without knowledge of the rules: the score of these is printed apart.
    #[serde(default)]
    pub(crate) fresh: bool,
    #[serde(default = "throughput")]
    pub(crate) profile: Profile,
    /// The minimum severity that is right.
    #[serde(default = "warn")]
    pub(crate) severity: Severity,
    /// Other rules that correctly report it too.
    #[serde(default)]
    pub(crate) also: BTreeSet<String>,
    /// The shape at the other end.
    #[serde(default)]
    pub(crate) other: Option<String>,
    /// The time between the two captures.
    #[serde(default = "ten")]
    pub(crate) seconds: u64,
    /// On a capture: its edits.
    #[serde(default)]
    pub(crate) edits: Edits,
    /// On a live shape: settings of `near` and their value, by the project's own setters.
    #[serde(default)]
    pub(crate) set: BTreeMap<String, String>,
    /// On a live shape: what has no setter, as commands with the namespace first.
    #[serde(default)]
    pub(crate) plant: Vec<String>,
    /// How it is rolled back.
    #[serde(default)]
    pub(crate) undo: Vec<String>,
}

/// The rule of a fault without one.
pub(crate) const NO_RULE: &str = "none";

fn none() -> String {
    NO_RULE.to_owned()
}

fn throughput() -> Profile {
    Profile::Throughput
}

fn warn() -> Severity {
    Severity::Warn
}

fn ten() -> u64 {
    10
}

/// The cases of one rule on captured hosts (`fixtures/rules`, whose README names the keys).
#[derive(Debug, Deserialize)]
struct RuleCases {
    case: Vec<RuleCase>,
}

#[derive(Debug, Deserialize)]
struct RuleCase {
    what: String,
    host: String,
    trial: Option<String>,
    #[serde(default = "throughput")]
    profile: Profile,
    edits: Edits,
    fires: Option<Fires>,
}

#[derive(Debug, Deserialize)]
struct Fires {
    severity: Severity,
    subject: String,
    #[serde(default)]
    also: BTreeSet<String>,
}

impl RuleCase {
    /// The case as a fault, if it fires without a trial.
    fn fault(self, rule: &str) -> Option<Fault> {
        let fires = self.fires.filter(|_| self.trial.is_none())?;
        Some(Fault {
            what: self.what,
            shape: self.host,
            rule: rule.to_owned(),
            subject: fires.subject,
            about: String::new(),
            fresh: false,
            profile: self.profile,
            severity: fires.severity,
            also: fires.also,
            other: None,
            seconds: ten(),
            edits: self.edits,
            set: BTreeMap::new(),
            plant: Vec::new(),
            undo: Vec::new(),
        })
    }
}

/// The faults among the cases of all rules.
fn rule_cases() -> Result<Vec<Fault>, Trouble> {
    let folder = Path::new(BENCH).join("../fixtures/rules");
    let mut faults = Vec::new();
    for path in toml_files(&folder)? {
        let trouble = |what: String| Trouble(format!("read {}: {what}", path.display()));
        let text = std::fs::read_to_string(&path).map_err(|error| trouble(error.to_string()))?;
        let cases: RuleCases = toml::from_str(&text).map_err(|error| trouble(error.to_string()))?;
        let rule = path.file_stem().unwrap_or_default().to_string_lossy();
        faults.extend(cases.case.into_iter().filter_map(|case| case.fault(&rule)));
    }
    Ok(faults)
}

/// The `*.toml` of a folder, by name.
fn toml_files(folder: &Path) -> Result<Vec<PathBuf>, Trouble> {
    let trouble = |error: std::io::Error| Trouble(format!("read {}: {error}", folder.display()));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(trouble)? {
        let path = entry.map_err(trouble)?.path();
        if path.extension().is_some_and(|end| end == "toml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Reads the data: every `*.toml` of `folder`, or of the folder `planted.d` next to this crate together with
/// the cases of `fixtures/rules`.
pub(crate) fn read(folder: Option<&Path>) -> Result<Plants, Trouble> {
    let own = Path::new(BENCH).join("planted.d");
    let only_data = folder.is_some();
    let folder = folder.unwrap_or(&own);
    let trouble = |what: String| Trouble(format!("read {}: {what}", folder.display()));
    let mut whole = String::new();
    for path in toml_files(folder)? {
        let text = std::fs::read_to_string(&path).map_err(|error| trouble(error.to_string()))?;
        whole.push_str(&text);
        whole.push('\n');
    }
    let mut plants: Plants = toml::from_str(&whole).map_err(|error| trouble(error.to_string()))?;
    if !only_data {
        plants.faults.extend(rule_cases()?);
    }
    for fault in &plants.faults {
        for rule in fault.also.iter().chain([&fault.rule]) {
            if rule != NO_RULE && rules::find(rule).is_none() {
                return Err(trouble(format!("`{}`: no rule `{rule}`", fault.what)));
            }
        }
    }
    Ok(plants)
}

/// The folder of captured hosts of the project.
pub(crate) fn fixtures() -> PathBuf {
    Path::new(BENCH).join("../fixtures/hosts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_name_existing_rules_and_at_least_sixty_faults_of_ten_shapes() {
        let plants = read(None).expect("the data beside this crate");
        assert!(plants.faults.len() >= 60, "{}", plants.faults.len());
        let shapes: BTreeSet<&str> = plants.faults.iter().map(|f| f.shape.as_str()).collect();
        assert!(shapes.len() >= 10, "{shapes:?}");
        let whats: BTreeSet<&str> = plants.faults.iter().map(|f| f.what.as_str()).collect();
        assert_eq!(whats.len(), plants.faults.len(), "one sentence each");
        for fault in &plants.faults {
            assert!(!fault.fresh || !fault.about.is_empty(), "{}", fault.what);
            let Some(rule) = rules::find(&fault.rule) else {
                continue;
            };
            assert!(rule.profiles.contains(&fault.profile), "{}", fault.what);
        }
    }
}
