//! Stores a mesh as a run while it goes on, and keeps in memory what the result is computed from.

use std::path::Path;

use linerate_analysis::record::{Header, MeshAsked, MeshFlow, MeshMember, Record, RunKind};
use linerate_model::exit::Outcome;
use linerate_model::mesh::{HostIndex, HostState};
use linerate_runtime::cli::StoreArgs;
use linerate_runtime::console::say::Say;

use super::for_ranks::ForRanks;
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
    for_ranks: ForRanks,
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
        let for_ranks = if args.no_store {
            ForRanks::default()
        } else {
            ForRanks::new(&header, &first)?
        };
        Ok(Self {
            run: kept::Kept::new(args, place, (RunKind::Mesh, header), vec![first])?,
            evidence: Evidence::default(),
            samples: 0,
            for_ranks,
        })
    }

    /// What the result is computed from.
    pub(super) fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// Who joined.
    pub(super) fn joined(&mut self, members: &mut Members) {
        for (at, member) in members.all.iter_mut().enumerate() {
            let host = HostIndex::at(at);
            let state = member.state.clone();
            if state != HostState::Joined {
                let lost = Record::MeshLost {
                    host,
                    state: state.clone(),
                };
                self.for_ranks.share(&lost);
            }
            let joined = MeshMember {
                host,
                state,
                clock: member.clock(),
                facts: member.facts.take(),
            };
            if member.is_rank() && joined.state == HostState::Joined {
                self.for_ranks.member(&joined);
            }
            self.add(Record::MeshHost(Box::new(joined)));
        }
    }

    /// A host that is lost from now on.
    pub(super) fn lost(&mut self, host: HostIndex, state: &HostState) {
        let state = state.clone();
        let lost = Record::MeshLost { host, state };
        self.for_ranks.share(&lost);
        self.add(lost);
    }

    /// What came out of a flow.
    pub(super) fn flow(&mut self, mut flow: MeshFlow) {
        self.for_ranks.flow(&flow);
        if flow.sample.is_some() {
            self.samples += 1;
        }
        if self.samples > SAMPLES_MAX {
            flow.sample = None;
        }
        self.add(Record::MeshFlow(Box::new(flow)));
    }

    /// What the ranks are still to be sent.
    pub(super) fn for_ranks(&mut self) -> &mut ForRanks {
        &mut self.for_ranks
    }

    /// The result, and how the mesh ended. Returns what the ranks are still to be sent.
    pub(super) fn end(mut self, headline: String, stopped: Option<String>) -> ForRanks {
        self.for_ranks.end(&headline, stopped.as_deref());
        self.run.end(vec![Record::MeshVerdict(headline)], stopped);
        self.for_ranks
    }

    fn add(&mut self, record: Record) {
        self.evidence.add(&record);
        self.run.add(|| record);
    }
}
