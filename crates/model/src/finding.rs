//! The result of a rule: a finding with its evidence, or the facts that are missing.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::ids::NicName;
use crate::known::Gap;
use crate::plan::{Change, End};
use crate::sample::Sample;
use crate::setting::Class;
use crate::watch::Watch;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Informational; may be intended.
    Note,
    /// Costs performance in the host's role.
    Warn,
    /// A hard limit or an error.
    Crit,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Note => "note",
            Self::Warn => "warn",
            Self::Crit => "crit",
        })
    }
}

/// The role of a host (`--role`); it selects the rules that are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Bulk transfer.
    Throughput,
    /// Low latency for small messages.
    Latency,
    /// Routing and switching.
    Forwarding,
    /// Remote direct memory access.
    Rdma,
    /// Block and file traffic.
    Storage,
    /// A mix of everything.
    Mixed,
    /// A host for measurements.
    Measurement,
}

/// One value that a rule used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Evidence {
    /// A description of the value.
    pub what: String,
    /// Its value with its unit.
    pub value: String,
    /// The source of the value: a file, a netlink request, a field of the sample.
    pub path: String,
}

impl Evidence {
    /// `what` was `value`, read from `path`.
    pub fn new(what: impl Into<String>, value: impl fmt::Display, path: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            value: value.to_string(),
            path: path.into(),
        }
    }
}

/// A possible remedy on one end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Remedy {
    /// Which end it is for.
    pub end: End,
    /// The change.
    #[serde(flatten)]
    pub change: Change,
    /// How the change can be rolled back: R0 by closing a descriptor ... R5 only by a reboot.
    pub class: Class,
}

/// A rule's finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    /// A rule's id; linerate explain ID.
    pub rule: String,
    /// The severity.
    pub severity: Severity,
    /// The end it was found on.
    pub end: End,
    /// `nic/eth2`, `rdma/mlx5_0`, `cpu/3`, `block/nvme0n1`, `host`.
    pub subject: String,
    /// One line: what is wrong and what to do.
    pub summary: String,
    /// The evidence.
    pub evidence: Vec<Evidence>,
    /// The threshold they were compared with.
    pub threshold: String,
    /// Possible remedies; all of one finding are tried together.
    pub remedies: Vec<Remedy>,
}

/// A check that was skipped for lack of data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Undetermined {
    /// The rule's id.
    pub rule: String,
    /// The end that was checked.
    pub end: End,
    /// The subject that was checked.
    pub subject: String,
    /// The missing values.
    pub missing: Vec<Gap>,
}

/// The result of a rule for one subject. A rule that finds no fault has no outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Something is wrong.
    Finding(Finding),
    /// A value is missing.
    Undetermined(Undetermined),
}

/// The input of a rule: one end of a path, its other end, and a trial over it.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Which end is checked.
    pub end: End,
    /// The host that is checked.
    pub host: &'a Host,
    /// The interface to check; `None` for all of them.
    pub nic: Option<&'a NicName>,
    /// The host at the other end, if there is one.
    pub other: Option<&'a Host>,
    /// A trial over the path, if there was one.
    pub sample: Option<&'a Sample>,
    /// The host's counters over an interval, if they were read twice.
    pub watch: Option<&'a Watch>,
    /// The role of the host.
    pub profile: Profile,
    /// Whether the caller owns the shapers on the path, so that removing one may be proposed.
    pub owns_shapers: bool,
}

/// The order in which rules are checked and their remedies tried: hard ceilings first, fine tuning last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// A hard ceiling: link speed, PCIe, a shaper.
    HardCeiling,
    /// Corruption, loss, drops.
    Errors,
    /// A CPU or a queue is saturated.
    Saturation,
    /// Work on the wrong CPU or node.
    Locality,
    /// Offloads and buffers.
    Offloads,
    /// Fine tuning, often disputed: measure it on the host.
    Tuning,
}

/// How complete a rule is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Complete.
    Implemented,
    /// Complete, but the fix is not a setting: hardware, firmware, a provider, a fabric.
    AdviceOnly,
    /// Incomplete: the missing part, and why.
    InPart(&'static str),
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Implemented => f.write_str("implemented"),
            Self::AdviceOnly => f.write_str("advice only"),
            Self::InPart(missing) => write!(f, "in part: {missing}"),
        }
    }
}

/// The data that a rule reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// Facts and settings: one reading of the host.
    Facts,
    /// The growth of counters between two readings.
    Counters,
    /// A linerate trial.
    Trial,
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Facts => "S",
            Self::Counters => "C",
            Self::Trial => "M",
        })
    }
}

/// Whether the finding proposes the change, and the classes of that change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fix {
    /// The finding proposes it.
    Proposed(&'static [Class]),
    /// The finding only describes it.
    Advised(&'static [Class]),
    /// It belongs to another rule, or does not apply to this host.
    Elsewhere,
}

impl fmt::Display for Fix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |classes: &[Class]| {
            let words: Vec<String> = classes.iter().map(Class::to_string).collect();
            words.join(", ")
        };
        match self {
            Self::Proposed(classes) => f.write_str(&list(classes)),
            Self::Advised(classes) => write!(f, "({})", list(classes)),
            Self::Elsewhere => f.write_str("-"),
        }
    }
}

/// A rule: one check of a host, with everything that `explain` and the table of rules show about it.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Its kebab-case id. It is never renamed and never reused.
    pub id: &'static str,
    /// Its number: 1 to 80 for the rules of the original catalogue, from 101 for later ones.
    pub number: u8,
    /// How complete it is.
    pub status: Status,
    /// What is wrong when it fires, in one line.
    pub title: &'static str,
    /// The highest severity it reports.
    pub severity: Severity,
    /// Its position in the order of checks and remedies.
    pub stage: Stage,
    /// The roles in which it is checked.
    pub profiles: &'static [Profile],
    /// What it reads.
    pub judges_by: &'static [Basis],
    /// The threshold, in words.
    pub threshold: &'static str,
    /// The gain of fixing it, with the source of that number.
    pub effect: &'static str,
    /// The kernel document, manual, standard or issue that the rule is based on.
    pub source: &'static str,
    /// Whether it proposes the change.
    pub fix: Fix,
    /// How that change is made persistent across reboots.
    pub persist: &'static str,
    /// The arguments of each side if sources disagree. The remedy then has to be measured.
    pub contested: Option<&'static str>,
    /// The explanation page, Markdown.
    pub page: &'static str,
    /// The check.
    pub check: fn(&Rule, &Context<'_>) -> Vec<Outcome>,
}

impl Rule {
    /// Its number among the first eighty; none for a later rule.
    pub const fn catalogue_number(&self) -> Option<u8> {
        if self.number <= 80 {
            Some(self.number)
        } else {
            None
        }
    }
}

/// The outcomes of all rules.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Diagnosis {
    /// What is wrong, worst first.
    pub findings: Vec<Finding>,
    /// What was skipped for lack of data.
    pub undetermined: Vec<Undetermined>,
}
