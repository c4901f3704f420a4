//! The run that a rank of a mesh writes of its own: what the root sends it about the flows of this host. When the root is lost,
//! it has all but the last round; `report` joins the runs of several ranks.
//!
//! A thread writes it, so that a slow disk keeps no trial waiting.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use linerate_analysis::record::{Header, Record, RunKind};
use linerate_model::exit::{Outcome, Stop};
use linerate_model::host::Host;
use linerate_model::mesh::HostIndex;
use linerate_model::protocol::{Failure, FailureKind};
use linerate_model::units::Bytes;
use linerate_store::Run;
use linerate_store::measured::{create_numbered, make_room};

use crate::console::say::warn;

/// A mesh of 4,096 hosts with all pairs stores about 8 MiB at each rank.
const BYTES_MAX: usize = 256 << 20;
/// How long the disk may take to store the rest when the mesh is over.
const REST: Duration = Duration::from_secs(3);

/// Where the run of a rank is stored.
#[derive(Debug)]
pub(super) struct OwnRun {
    state: PathBuf,
    /// The limit of all runs without a name.
    store_limit: Bytes,
    /// What this host is, since the root has asked for it.
    facts: Option<Box<Host>>,
    writer: Option<Writer>,
    bytes: usize,
}

/// The thread that writes.
#[derive(Debug)]
struct Writer {
    records: Sender<Vec<Record>>,
    /// Closed when all is written.
    done: Receiver<()>,
}

impl OwnRun {
    pub(super) fn new(state: PathBuf, store_limit: Bytes) -> Self {
        Self {
            state,
            store_limit,
            facts: None,
            writer: None,
            bytes: 0,
        }
    }

    /// What this host is. The root has it from here, and does not send it back.
    pub(super) fn know(&mut self, facts: &Host) {
        self.facts = Some(Box::new(facts.clone()));
    }

    /// Has records written; the first request of a session begins with the header.
    pub(super) fn add(&mut self, records: &[String]) -> Result<(), Failure> {
        self.bytes += records.iter().map(String::len).sum::<usize>();
        if self.bytes > BYTES_MAX {
            let why = format!("the records of a rank exceed {BYTES_MAX} bytes");
            return Err(refused(FailureKind::Resource, &why));
        }
        let (header, rest) = match (&self.writer, records) {
            (Some(_), rest) => (None, rest),
            (None, [header, rest @ ..]) => {
                let header: Header = serde_json::from_str(header).map_err(|why| invalid(&why))?;
                (Some(header), rest)
            }
            (None, []) => return Err(refused(FailureKind::BadInput, "no header")),
        };
        let mut parsed = Vec::with_capacity(rest.len());
        for record in rest {
            let mut record = serde_json::from_str(record).map_err(|why| invalid(&why))?;
            if !is_of_mesh(&record) {
                let why = "a record that is not one of a mesh";
                return Err(refused(FailureKind::BadInput, why));
            }
            if let Record::MeshHost(own) = &mut record {
                own.facts = own.facts.take().or_else(|| self.facts.take());
            }
            parsed.push(record);
        }
        let writer = match (self.writer.take(), header) {
            (None, Some(header)) => self.begin(header, &parsed)?,
            (Some(writer), _) => writer,
            (None, None) => return Ok(()),
        };
        // It is gone when the disk has failed, which it has reported.
        let _ = writer.records.send(parsed);
        self.writer = Some(writer);
        Ok(())
    }

    /// Starts the thread that writes the run of this rank.
    fn begin(&self, header: Header, first: &[Record]) -> Result<Writer, Failure> {
        let rank = first.iter().find_map(|record| match record {
            Record::MeshRank(host) => Some(*host),
            _ => None,
        });
        let rank = rank.ok_or_else(|| refused(FailureKind::BadInput, "no rank"))?;
        let (records, taken) = mpsc::channel::<Vec<Record>>();
        let (ends, done) = mpsc::channel::<()>();
        let (state, limit) = (self.state.clone(), self.store_limit);
        let write = move || {
            let _ends = ends;
            let mut run = None;
            for records in taken {
                if let Err(stop) = write(&mut run, &state, (&header, rank), &records) {
                    // Reported here, where the launcher shows it: the root goes on without.
                    warn(&not_written(&stop).message);
                    return;
                }
            }
            if let Some(run) = run {
                trim(&state, run.folder(), limit);
            }
        };
        let thread = thread::Builder::new().name("linerate-store".to_owned());
        thread.spawn(write).map_err(|error| Failure {
            kind: FailureKind::Resource,
            message: format!("cannot store the records of this rank: start a thread: {error}"),
        })?;
        Ok(Writer { records, done })
    }

    /// Waits until all is written, for a short time: a disk may hang.
    pub(super) fn end(self) {
        let Some(Writer { records, done }) = self.writer else {
            return;
        };
        drop(records);
        let _ = done.recv_timeout(REST);
    }
}

/// Writes records, the first ones into a new run.
fn write(
    run: &mut Option<Run>,
    state: &Path,
    (header, rank): (&Header, HostIndex),
    records: &[Record],
) -> Outcome<()> {
    let run = match run {
        Some(run) => run,
        None => run.insert(create_numbered(state, RunKind::MeshRank, header, rank.0)?),
    };
    run.append(records)
}

/// Removes the oldest runs beyond the limit.
fn trim(state: &Path, newest: &Path, limit: Bytes) {
    if let Some(removed) = make_room(state, newest, limit) {
        warn(&format!(
            "the stored measurements exceed {limit}: the oldest are removed from now on ({removed} now)"
        ));
    }
}

/// Whether a root sends this record to a rank.
fn is_of_mesh(record: &Record) -> bool {
    matches!(
        record,
        Record::Mesh(_)
            | Record::MeshRank(_)
            | Record::MeshHost(_)
            | Record::MeshFlow(_)
            | Record::MeshLost { .. }
            | Record::MeshVerdict(_)
            | Record::Stopped(_)
            | Record::Ended { .. }
    )
}

fn invalid(error: &serde_json::Error) -> Failure {
    refused(
        FailureKind::BadInput,
        &format!("an invalid record: {error}"),
    )
}

fn not_written(stop: &Stop) -> Failure {
    let cause = stop.cause.as_ref();
    let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
    refused(FailureKind::Resource, &format!("{}{cause}", stop.message))
}

fn refused(kind: FailureKind, why: &str) -> Failure {
    Failure {
        kind,
        message: format!("cannot store the records of this rank: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use linerate_analysis::made_up;

    use super::*;

    fn line(value: &impl serde::Serialize) -> String {
        serde_json::to_string(value).expect("it can be written")
    }

    fn new(state: &Path) -> OwnRun {
        OwnRun::new(state.to_owned(), Bytes::new(1 << 30))
    }

    fn runs(state: &Path) -> Vec<String> {
        let runs = std::fs::read_dir(state.join("runs")).expect("runs");
        let mut names: Vec<String> = runs
            .flatten()
            .map(|run| run.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn each_session_writes_a_run_of_its_own_named_by_its_rank() {
        let state = tempfile::tempdir().expect("a folder");
        let header = line(&made_up::header(7, 60));
        let rank = line(&Record::MeshRank(HostIndex::at(2)));
        for _ in 0..2 {
            let mut own = new(state.path());
            own.add(&[header.clone(), rank.clone()]).expect("the first");
            own.add(&[line(&Record::Stopped("lost".to_owned()))])
                .expect("more");
            own.end();
        }
        let names = runs(state.path());
        let name = "1970-01-01-00-01-00-mesh-rank-7-2";
        assert_eq!(names, [name.to_owned(), format!("{name}-2")]);
        for name in names {
            let stored = linerate_store::read(&state.path().join("runs").join(name));
            assert_eq!(stored.expect("a run").records.len(), 2);
        }
    }

    #[test]
    fn records_of_other_commands_and_damaged_ones_are_refused() {
        let state = tempfile::tempdir().expect("a folder");
        let header = line(&made_up::header(7, 60));
        let rank = line(&Record::MeshRank(HostIndex::at(2)));
        let mut own = new(state.path());
        own.add(&[header.clone(), rank.clone()]).expect("the first");
        for wrong in [
            line(&Record::Planted(Vec::new())),
            "{\"mesh\":".to_owned(),
            String::new(),
        ] {
            let failure = own.add(&[wrong]).expect_err("not of a mesh");
            assert_eq!(failure.kind, FailureKind::BadInput, "{failure}");
        }
        for first in [&[][..], &[rank], &[header]] {
            assert!(new(state.path()).add(first).is_err(), "{first:?}");
        }
        own.bytes = BYTES_MAX;
        let stopped = line(&Record::Stopped("x".to_owned()));
        let failure = own.add(&[stopped]).expect_err("it is full");
        assert_eq!(failure.kind, FailureKind::Resource);
        own.end();
        assert_eq!(runs(state.path()).len(), 1);
    }
}
