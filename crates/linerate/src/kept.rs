//! Stores a measurement as a run while it goes on: what was asked, each trial, the result.

use std::path::Path;

use linerate_analysis::record::{Header, Record, RunKind};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_runtime::cli::StoreArgs;
use linerate_runtime::console::say::Say;
use linerate_store::measured::{create, make_room};
use linerate_store::{Log as _, Run};

/// A run that is written from its first trial on. A store that cannot be written never fails a measurement.
pub(crate) struct Kept<'a> {
    args: &'a StoreArgs,
    state: &'a Path,
    say: &'a Say,
    kind: RunKind,
    /// What the run begins with, until it has begun.
    header: Option<(Header, Vec<Record>)>,
    run: Option<Run>,
}

impl<'a> Kept<'a> {
    /// Nothing is written before the first trial; `first` stands before it.
    pub(crate) fn new(
        args: &'a StoreArgs,
        (state, say): (&'a Path, &'a Say),
        (kind, header): (RunKind, Header),
        first: Vec<Record>,
    ) -> Outcome<Self> {
        if let Some(name) = &args.name
            && state.join("runs").join(name).exists()
        {
            let why = format!("there is a run `{name}` already");
            return Err(Stop::new(Code::BadInput, why).hint("choose another name"));
        }
        Ok(Self {
            args,
            state,
            say,
            kind,
            header: (!args.no_store).then_some((header, first)),
            run: None,
        })
    }

    /// A trial.
    pub(crate) fn add(&mut self, trial: impl FnOnce() -> Record) {
        if let Some((header, first)) = self.header.take() {
            let name = self.args.name.as_deref();
            match create(self.state, self.kind, name, &header) {
                Ok(run) => self.run = Some(run),
                Err(stop) => self.report(&stop),
            }
            for record in first {
                self.write(record);
            }
        }
        if self.run.is_some() {
            self.write(trial());
        }
    }

    /// The result, and how the measurement ended.
    pub(crate) fn end(mut self, result: Vec<Record>, stopped: Option<impl ToString>) {
        for record in result {
            self.write(record);
        }
        if let Some(why) = stopped {
            self.write(Record::Stopped(why.to_string()));
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
        let lines: Vec<&str> = why
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect();
        self.say
            .note(&format!("the result is not stored: {}", lines.join("; ")));
    }
}
