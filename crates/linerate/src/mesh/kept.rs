//! Stores a mesh as a run while it goes on, and keeps in memory what the result is computed from.

use std::path::Path;

use linerate_analysis::record::{Header, MeshAsked, MeshFlow, MeshMember, Record, RunKind};
use linerate_model::exit::Outcome;
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
}

impl<'a> Kept<'a> {
    /// Begins the run.
    pub(super) fn new(
        args: &'a StoreArgs,
        place: (&'a Path, &'a Say),
        header: Header,
        asked: MeshAsked,
    ) -> Outcome<Self> {
        let first = vec![Record::Mesh(Box::new(asked))];
        Ok(Self {
            run: kept::Kept::new(args, place, (RunKind::Mesh, header), first)?,
            evidence: Evidence::default(),
            samples: 0,
        })
    }

    /// What the result is computed from.
    pub(super) fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// Who joined.
    pub(super) fn joined(&mut self, members: &mut Members) {
        for (at, member) in members.all.iter_mut().enumerate() {
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
        self.add(Record::MeshLost { host, state });
    }

    /// What came out of a flow.
    pub(super) fn flow(&mut self, mut flow: MeshFlow) {
        if flow.sample.is_some() {
            self.samples += 1;
        }
        if self.samples > SAMPLES_MAX {
            flow.sample = None;
        }
        self.add(Record::MeshFlow(Box::new(flow)));
    }

    /// The result, and how the mesh ended.
    pub(super) fn end(self, headline: String, stopped: Option<String>) {
        self.run.end(vec![Record::MeshVerdict(headline)], stopped);
    }

    fn add(&mut self, record: Record) {
        self.evidence.add(&record);
        self.run.add(|| record);
    }
}
