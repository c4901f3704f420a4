//! Metrics of queue pairs: their threads' counters and their ports' counters.

use std::collections::BTreeSet;

use crate::finding::Evidence;
use crate::known::{Cause, Gap, Known};
use crate::plan::End;
use crate::rules::rdma_counters::{LOSS, RECEIVER};
use crate::sample::{FlowRecord, Role, SideSample, VerbsRecord};
use crate::units::{Ratio, real};
use crate::workload::{TrialSpec, Workload};

/// The queue pairs of one role at one end.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pairs {
    /// The number of messages.
    pub(super) messages: u64,
    /// The size of one.
    pub(super) message: u64,
    pub(super) mtu: Option<u32>,
    pub(super) depth: u32,
    completions: u64,
    pub(super) polls: u64,
    pub(super) polls_empty: u64,
    sleeps: u64,
    pub(super) ran_dry: Option<u64>,
    pub(super) threads: u64,
    /// The share of the time that its threads were in the kernel.
    pub(super) system: Option<Ratio>,
}

impl Pairs {
    pub(super) fn of(side: &SideSample, role: Role, spec: &TrialSpec) -> Self {
        let flows = || side.flows.iter().filter(move |flow| flow.role == role);
        let records = || flows().filter_map(|flow| flow.verbs.as_ref());
        let sum = |pick: fn(&VerbsRecord) -> u64| records().map(pick).fold(0, u64::saturating_add);
        let message = match &spec.workload {
            Workload::Rdma(rdma) => rdma.sizes.iter().copied().max().unwrap_or_default(),
            _ => spec.buffer_bytes,
        };
        let message = message.as_u64().max(1);
        let bytes = flows()
            .map(|flow| flow.total().as_u64())
            .fold(0, u64::saturating_add);
        let counted = |flow: &FlowRecord| Some(flow.datagrams.as_ref()?.count);
        let datagrams =
            flows().try_fold(0_u64, |all, flow| Some(all.saturating_add(counted(flow)?)));
        let of_sizes = side.operations.as_ref().filter(|_| role == Role::Sender);
        let of_sizes = of_sizes.map(|operations| operations.completed);
        let threads = side.threads.iter().filter(|thread| thread.role == role);
        let threads: Vec<f64> = threads
            .map(|thread| thread.system_ns.as_secs_f64())
            .collect();
        let time = side.elapsed_ns.as_secs_f64() * real(threads.len() as u64);
        Self {
            messages: datagrams
                .filter(|count| *count > 0)
                .or(of_sizes)
                .unwrap_or(bytes / message),
            message,
            mtu: records().filter_map(|record| record.mtu).max(),
            depth: records().map(|record| record.depth).max().unwrap_or(0),
            completions: sum(|record| record.completions),
            polls: sum(|record| record.polls),
            polls_empty: sum(|record| record.polls_empty),
            sleeps: sum(|record| record.sleeps),
            ran_dry: records().try_fold(0_u64, |all, one| Some(all.saturating_add(one.ran_dry?))),
            threads: threads.len() as u64,
            system: (time > 0.0).then(|| Ratio::new(threads.iter().sum::<f64>() / time)),
        }
    }

    /// Its threads' counters, if there are any.
    pub(super) fn evidence(&self, role: &str) -> Vec<Evidence> {
        const OWN: &str = "the trial's queue pairs";
        if self.completions == 0 && self.polls == 0 {
            return Vec::new();
        }
        let mut all = vec![Evidence::new(
            format!("completions taken by the {role} threads"),
            self.completions,
            OWN,
        )];
        if self.polls > 0 {
            let empty = Ratio::new(real(self.polls_empty) / real(self.polls));
            let words = format!("{} polls, {empty} empty", self.polls);
            let what = format!("CQ polls of the {role} threads");
            all.push(Evidence::new(what, words, OWN));
        }
        if self.sleeps > 0 {
            let what = format!("sleeps of the {role} threads");
            all.push(Evidence::new(what, format!("{} times", self.sleeps), OWN));
        }
        all.extend(self.system.map(|share| {
            let what = format!("{role} threads in the kernel");
            Evidence::new(what, share, "getrusage(RUSAGE_THREAD)")
        }));
        all.extend(self.ran_dry.map(|times| {
            let words = format!("{times} times, at a depth of {}", self.depth);
            Evidence::new("queue pairs found empty", words, OWN)
        }));
        all
    }
}

/// A port counter that increased.
#[derive(Debug, Clone)]
pub(super) struct GrownCounter {
    pub(super) key: String,
    pub(super) by: u64,
    pub(super) evidence: Evidence,
}

/// The hardware counters `names` that increased, of the ports in use at an end.
pub(super) fn moved(end: End, side: &SideSample, names: &[&str]) -> Vec<GrownCounter> {
    let Known::Value(watch) = &side.counters else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for port in ports(side) {
        for name in names {
            let key = format!("rdma/{port}/hw/{name}");
            let Some(by) = watch.grown(&key).get().filter(|by| *by > 0) else {
                continue;
            };
            let what = format!("{name} of {port} at the {end} end");
            let evidence = Evidence::new(what, by, watch.path(&key));
            all.push(GrownCounter { key, by, evidence });
        }
    }
    all
}

/// Why retransmissions of a port at this end would be missed; `None` if they would be seen.
pub(super) fn blind(side: &SideSample) -> Option<Gap> {
    let watch = match &side.counters {
        Known::Value(watch) => watch,
        Known::Unknown(gap) => return Some(gap.clone()),
    };
    ports(side).into_iter().find_map(|port| {
        let known = |name: &&str| {
            watch
                .grown(&format!("rdma/{port}/hw/{name}"))
                .get()
                .is_some()
        };
        if LOSS.iter().chain(&RECEIVER).any(known) {
            return None;
        }
        let gap = watch.grown(&format!("rdma/{port}/hw/{}", LOSS[0]));
        let gap = gap.gap().cloned()?;
        Some(match gap.cause {
            Cause::Absent => {
                let path = format!("/sys/class/infiniband/{port}/hw_counters");
                Gap::new(
                    Cause::Absent,
                    path,
                    "the device does not count retransmissions",
                )
            }
            _ => gap,
        })
    })
}

/// The ports in use, as in the counters' keys.
fn ports(side: &SideSample) -> BTreeSet<String> {
    let records = side.flows.iter().filter_map(|flow| flow.verbs.as_ref());
    records
        .map(|record| format!("{}/{}", record.device, record.port))
        .collect()
}
