//! What a report of a `prove` or `demo` run is made of: plain data, so that `linerate report RUN` can
//! make the same page again from a stored run.
//!
//! Nothing is estimated here. Rates and intervals come from `linerate-stats`, the hosts from
//! `linerate-host`, the document from `prove`; the caller that fills [`ReportData`] has them all at hand.

use linerate_model::finding::Undetermined;
use linerate_model::host::{Host, Nic};
use linerate_model::ids::{CpuSet, NicName};
use linerate_model::prove::ProveDocument;
use linerate_model::sample::Flag;
use serde::{Deserialize, Serialize};

/// The schema name of [`ReportData`].
pub const SCHEMA: &str = "linerate.report/1";

/// The data for the charts in `report.html`. It is generated from a stored run; nothing is measured again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReportData {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version of linerate that made the run.
    pub linerate_version: String,
    /// The heading, for example `linerate demo` or `linerate prove ssh://far`.
    pub title: String,
    /// When the run was made, as text with its time zone: `2026-11-21 04:02:11 UTC`.
    pub created: String,
    /// What `prove --format json` printed; holds the seed.
    pub prove: ProveDocument,
    /// The host that linerate was started on.
    pub local: EndData,
    /// The peer.
    pub remote: EndData,
    /// What is between the two interfaces, in words: `veth pair`, `network`, `cable`.
    pub wire: String,
    /// Every trial, in any order; `order` is its position in time.
    pub trials: Vec<TrialSeries>,
    /// Every ceiling that was considered, those that could not be computed included.
    pub ceilings: Vec<CeilingLine>,
    /// The skipped checks, with the missing data.
    pub undetermined: Vec<Undetermined>,
    /// How to get each number by hand.
    pub reproduce: Vec<Reproduce>,
}

/// One end of the path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EndData {
    /// What the run calls it: `near`, `far`, `ssh://storage7`.
    pub name: String,
    /// The host as read before any change; a missing value is an object with `unknown`, `path` and `reason`.
    #[cfg_attr(
        feature = "schema",
        schemars(with = "std::collections::BTreeMap<String, serde_json::Value>")
    )]
    pub host: Host,
    /// The interface of the path; null if it could not be determined.
    pub nic: Option<NicName>,
    /// The CPUs of its sending threads in the trials before any change; empty when not pinned.
    pub sender_cpus: CpuSet,
    /// The CPUs of its receiving threads in the trials before any change; empty when not pinned.
    pub receiver_cpus: CpuSet,
}

impl EndData {
    /// The interface of the path, when it is one of the host's.
    pub fn path_nic(&self) -> Option<&Nic> {
        self.host.nic(self.nic.as_ref()?)
    }
}

/// Which part of the run a trial belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Arm {
    /// Before any change.
    Before,
    /// A pair's trial without the remedy.
    Without,
    /// A pair's trial with the remedy.
    With,
    /// With every kept remedy.
    After,
    /// A last check against the state before, everything undone.
    Confirm,
}

impl Arm {
    /// The word of the arm, as in the JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::Without => "without",
            Self::With => "with",
            Self::After => "after",
            Self::Confirm => "confirm",
        }
    }
}

/// One trial: its rate over time, and what it cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrialSeries {
    /// A short name that is unique in the run: `trial 7`, or the file of its sample.
    pub label: String,
    /// What it was made for.
    pub arm: Arm,
    /// The index in `prove.remedies` of the fix that it is without.
    pub remedy_index: Option<usize>,
    /// The stage, from 0, for the arms without and with.
    #[serde(default)]
    pub stage: Option<usize>,
    /// Its place in the order in which the trials were really made, from 0.
    pub order: usize,
    /// The end of each interval, seconds since the trial began; ascending, as long as the rates.
    pub at_s: Vec<f64>,
    /// The mean rate within each interval, all flows together, bit/s.
    pub rate_bit_per_s: Vec<f64>,
    /// The index of the first interval after the warm-up; 0 when none was cut.
    pub first_kept: usize,
    /// The mean rate of the kept part, bit/s.
    pub mean_bit_per_s: f64,
    /// CPU time for each gigabyte moved.
    pub cpu: TrialCpu,
    /// Why the trial may not be trusted, or how it must be read.
    pub flags: Vec<Flag>,
}

impl TrialSeries {
    /// A trial with neighboring intervals averaged until at most `most` are left. The intervals of a trial are equally
    /// long, so the mean of their rates is the rate of the whole.
    pub(super) fn thinned(&self, most: usize) -> Self {
        let mut trial = self.clone();
        let points = trial.at_s.len().min(trial.rate_bit_per_s.len());
        let step = points.div_ceil(most).max(1);
        if step == 1 {
            return trial;
        }
        let mean = |rates: &[f64]| {
            #[expect(clippy::cast_precision_loss, reason = "a handful of neighbours")]
            let count = rates.len() as f64;
            rates.iter().sum::<f64>() / count
        };
        trial.rate_bit_per_s = trial.rate_bit_per_s[..points]
            .chunks(step)
            .map(mean)
            .collect();
        let ends = trial.at_s[..points]
            .chunks(step)
            .filter_map(|ends| ends.last().copied());
        trial.at_s = ends.collect();
        // An interval that is partly warm-up counts as warm-up.
        trial.first_kept = trial.first_kept.div_ceil(step);
        trial
    }
}

/// CPU time of a trial for each gigabyte (10^9 bytes) of payload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrialCpu {
    /// The host that linerate was started on.
    pub local: CpuCost,
    /// The peer.
    pub remote: CpuCost,
    /// What one kernel did for both ends together (softirq, irq, steal); null when each end has a
    /// separate kernel, and then those kinds are in `local` and `remote`.
    pub shared: Option<CpuCost>,
}

/// CPU seconds per gigabyte by kind; a kind that is not known is null, never 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CpuCost {
    /// Programs.
    pub user_s_per_gb: Option<f64>,
    /// The kernel on behalf of programs.
    pub system_s_per_gb: Option<f64>,
    /// Softirqs.
    pub softirq_s_per_gb: Option<f64>,
    /// Hard interrupts.
    pub irq_s_per_gb: Option<f64>,
    /// Time that the hypervisor gave to others.
    pub steal_s_per_gb: Option<f64>,
}

impl CpuCost {
    /// Every kind with its word, in a fixed order.
    pub fn kinds(&self) -> [(&'static str, Option<f64>); 5] {
        [
            ("user", self.user_s_per_gb),
            ("system", self.system_s_per_gb),
            ("softirq", self.softirq_s_per_gb),
            ("irq", self.irq_s_per_gb),
            ("steal", self.steal_s_per_gb),
        ]
    }
}

/// One computed bound of the path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CeilingLine {
    /// What bounds: `link framing`, `PCIe`, `shaper`, `window / RTT`, `memory copy`.
    pub name: String,
    /// The bound; null when it could not be computed or does not apply.
    pub bit_per_s: Option<f64>,
    /// Its arithmetic in words, or why there is none.
    pub reason: String,
}

/// A number and a command that shows it without linerate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reproduce {
    /// Which number.
    pub what: String,
    /// A command line for a shell.
    pub command: String,
}
