//! What a run of `failover` stores: what was asked, and the records of each trial. Everything that is printed is computed
//! from these, so that `report` shows it again.

pub mod timeline;

use linerate_model::sample::{Flag, Sample, SideSample};
use linerate_model::workload::TrialSpec;
use serde::{Deserialize, Serialize};

/// What was asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FailoverPlan {
    /// What each trial sends.
    pub spec: TrialSpec,
    /// The number of trials; null until an interruption was seen.
    pub repeats: Option<u32>,
    /// The command of the failure.
    pub cause: Option<String>,
    /// The command of the return.
    pub restore: Option<String>,
    /// The command of the failure that the peer runs.
    #[serde(default)]
    pub cause_remote: Option<String>,
    /// The command of the return that the peer runs.
    #[serde(default)]
    pub restore_remote: Option<String>,
    /// The bounds of `--require`, as they were written.
    pub require: Vec<String>,
    /// The workloads that were asked for and could not be measured.
    #[serde(default)]
    pub skipped: Vec<SkippedWorkload>,
}

/// A workload that was not measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SkippedWorkload {
    /// Its word, as it is typed.
    pub workload: String,
    /// Why.
    pub reason: String,
}

/// A trial, as it was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FailoverTrial {
    /// The records of both ends, with the commands that each has run.
    pub sample: Sample,
}

impl FailoverTrial {
    /// Of the byte counters over time only the last is kept: the probes' own records are finer, and a thousand points of
    /// each of 256 ends of flows would be most of the run.
    pub fn new(mut sample: Sample) -> Self {
        let local = sample.local.flows.iter_mut();
        for flow in local.chain(&mut sample.remote.flows) {
            flow.at_ns.drain(..flow.at_ns.len().saturating_sub(1));
            flow.bytes.drain(..flow.bytes.len().saturating_sub(1));
        }
        Self { sample }
    }

    /// Whether it ended before its time.
    pub fn is_cut_short(&self) -> bool {
        self.sample.flags.contains(&Flag::CutShort)
    }

    /// What became of its packets, for a list of trials.
    pub fn in_words(&self) -> String {
        let ends = [&self.sample.local, &self.sample.remote];
        let flows = ends.into_iter().flat_map(|end| &end.flows);
        let probes = flows.filter_map(|flow| flow.datagrams.as_ref()?.probe.as_deref());
        let arrivals = probes.filter_map(|probe| probe.arrivals.as_ref());
        let (mut received, mut late) = (0_u128, 0_u128);
        for one in arrivals {
            received += u128::from(one.received.saturating_sub(one.duplicated));
            late += u128::from(one.late);
        }
        let departures = ends.into_iter().flat_map(SideSample::senders);
        let departures = departures.filter_map(|flow| flow.datagrams.as_ref()?.probe.as_deref());
        let sent = departures.filter_map(|probe| Some(probe.departures.as_ref()?.sent));
        let lost = sent.map(u128::from).sum::<u128>().saturating_sub(received);
        format!("{lost} packets lost, {late} late")
    }
}
