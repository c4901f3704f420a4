//! Stores a mesh as a run while it goes on, and keeps in memory what the result is computed from.

use std::path::Path;

use linerate_analysis::record::{Header, MeshAsked, MeshFlow, MeshMember, Record, RunKind};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::mesh::{HostIndex, HostState};
use linerate_runtime::cli::StoreArgs;
use linerate_runtime::console::say::Say;

use super::judged::Evidence;
use super::members::Members;
use crate::kept;

/// Raw counters of this many flows are stored; of a larger mesh only the observations.
const SAMPLES_MAX: usize = 4096;

/// A run that is written from the joining on.
pub(super) struct Kept<'a> {
    run: kept::Kept<'a>,
    evidence: Evidence,
    samples: usize,
    /// The records that each rank's own run gets beside those of its flows, as lines; none if nothing is stored.
    shared: Vec<String>,
}

impl<'a> Kept<'a> {
    /// Begins the run.
    pub(super) fn new(
        args: &'a StoreArgs,
        place: (&'a Path, &'a Say),
        header: Header,
        asked: MeshAsked,
    ) -> Outcome<Self> {
        let first = Record::Mesh(Box::new(asked));
        let mut shared = Vec::new();
        if !args.no_store {
            shared.push(line(&header)?);
            shared.push(line(&first)?);
        }
        Ok(Self {
            run: kept::Kept::new(args, place, (RunKind::Mesh, header), vec![first])?,
            evidence: Evidence::default(),
            samples: 0,
            shared,
        })
    }

    /// What the result is computed from.
    pub(super) fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// Who joined.
    pub(super) fn joined(&mut self, members: &mut Members) {
        for (at, member) in members.all.iter_mut().enumerate() {
            if member.state != HostState::Joined {
                self.share(&Record::MeshLost {
                    host: HostIndex::at(at),
                    state: member.state.clone(),
                });
            }
            self.add(Record::MeshHost(Box::new(MeshMember {
                host: HostIndex::at(at),
                state: member.state.clone(),
                clock: member.clock(),
                facts: member.facts.take(),
            })));
        }
    }

    /// A host that is lost from now on.
    pub(super) fn lost(&mut self, host: HostIndex, state: &HostState) {
        let state = state.clone();
        let lost = Record::MeshLost { host, state };
        self.share(&lost);
        self.add(lost);
    }

    /// What came out of a flow. Returns it as a line for the runs of its ranks, without the raw counters.
    pub(super) fn flow(&mut self, mut flow: MeshFlow) -> Option<String> {
        if flow.sample.is_some() {
            self.samples += 1;
        }
        if self.samples > SAMPLES_MAX {
            flow.sample = None;
        }
        let counters = flow.sample.take();
        let mut record = Record::MeshFlow(Box::new(flow));
        let shown = (!self.shared.is_empty())
            .then(|| line(&record).ok())
            .flatten();
        if let Record::MeshFlow(flow) = &mut record {
            flow.sample = counters;
        }
        self.add(record);
        shown
    }

    /// The result, for the runs of the ranks.
    pub(super) fn share_end(&mut self, headline: &str, stopped: Option<&str>) {
        self.share(&Record::MeshVerdict(headline.to_owned()));
        if let Some(why) = stopped {
            self.share(&Record::Stopped(why.to_owned()));
        }
        self.share(&Record::Ended {
            restored: true,
            kept: false,
        });
    }

    /// The result, and how the mesh ended.
    pub(super) fn end(self, headline: String, stopped: Option<String>) {
        self.run.end(vec![Record::MeshVerdict(headline)], stopped);
    }

    /// The records that the run of a rank lacks, of which it has `count` of those that all get; with `own`, the result of a flow.
    /// And how many of those it has then.
    pub(super) fn for_rank(
        &self,
        host: HostIndex,
        count: usize,
        own: Option<String>,
    ) -> (Vec<String>, usize) {
        let mut lines = self.shared[count.min(self.shared.len())..].to_vec();
        if count == 0 && !lines.is_empty() {
            // After the header and what was asked.
            let about = [
                Record::MeshRank(host),
                Record::MeshHost(Box::new(self.evidence.member(host))),
            ];
            let about = about.iter().filter_map(|record| line(record).ok());
            lines.splice(2..2, about);
        }
        lines.extend(own);
        (lines, self.shared.len())
    }

    fn share(&mut self, record: &Record) {
        if !self.shared.is_empty() {
            self.shared.extend(line(record));
        }
    }

    fn add(&mut self, record: Record) {
        self.evidence.add(&record);
        self.run.add(|| record);
    }
}

/// A header or a record as it is sent to a rank.
fn line(of: &impl serde::Serialize) -> Outcome<String> {
    serde_json::to_string(of)
        .map_err(|error| Stop::new(Code::Bug, "cannot write a record").because(error))
}
