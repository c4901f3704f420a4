//! Stores a mesh as a run while it goes on, and keeps in memory what the result is computed from.

use std::path::Path;

use linerate_analysis::record::{Header, MeshAsked, MeshFlow, MeshMember, Record, RunKind};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::mesh::{HostIndex, HostState};
use linerate_runtime::cli::StoreArgs;
use linerate_runtime::console::say::Say;
use linerate_store::measured::{create, make_room};
use linerate_store::{Log as _, Run};

use super::judged::Evidence;
use super::members::Members;

/// Raw counters of this many flows are stored; of a larger mesh only the observations.
const SAMPLES_MAX: usize = 4096;

/// A run that is written from the joining on. A store that cannot be written never fails a mesh.
pub(super) struct Kept<'a> {
    args: &'a StoreArgs,
    state: &'a Path,
    say: &'a Say,
    run: Option<Run>,
    evidence: Evidence,
    samples: usize,
}

impl<'a> Kept<'a> {
    /// Begins the run.
    pub(super) fn new(
        args: &'a StoreArgs,
        (state, say): (&'a Path, &'a Say),
        header: &Header,
        asked: MeshAsked,
    ) -> Outcome<Self> {
        if let Some(name) = &args.name
            && state.join("runs").join(name).exists()
        {
            let why = format!("there is a run `{name}` already");
            return Err(Stop::new(Code::BadInput, why).hint("choose another name"));
        }
        let mut kept = Self {
            args,
            state,
            say,
            run: None,
            evidence: Evidence::default(),
            samples: 0,
        };
        if !args.no_store {
            match create(state, RunKind::Mesh, args.name.as_deref(), header) {
                Ok(run) => kept.run = Some(run),
                Err(stop) => kept.report(&stop),
            }
        }
        kept.write(Record::Mesh(Box::new(asked)));
        Ok(kept)
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
    pub(super) fn end(mut self, headline: String, stopped: Option<String>) {
        self.write(Record::MeshVerdict(headline));
        if let Some(why) = stopped {
            self.write(Record::Stopped(why));
        }
        self.write(Record::Ended {
            restored: true,
            kept: false,
        });
        let Some(run) = self.run.take() else { return };
        let folder = run.folder().to_owned();
        drop(run);
        if let Some(removed) = make_room(self.state, &folder, self.args.store_limit) {
            self.say.note(&format!(
                "the stored measurements exceed {}: the oldest are removed from now on ({removed} now); `--name` keeps one \
                 for good, `--store-limit` sets another limit",
                self.args.store_limit
            ));
        }
        if let Some(name) = &self.args.name {
            self.say.note(&format!("stored as `{name}`"));
        }
    }

    fn add(&mut self, record: Record) {
        self.evidence.add(&record);
        self.write(record);
    }

    fn write(&mut self, record: Record) {
        let written = self.run.as_mut().map_or(Ok(()), |run| run.add(record));
        if let Err(stop) = written {
            // What is there already is a run that was stopped.
            self.run = None;
            self.report(&stop);
        }
    }

    fn report(&self, stop: &Stop) {
        let why = stop.to_string();
        let lines: Vec<&str> = why.lines().map(str::trim).collect();
        self.say
            .note(&format!("the result is not stored: {}", lines.join("; ")));
    }
}
