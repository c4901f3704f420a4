//! The run that a rank of a mesh writes of its own: what the root sends it about the flows of this host. It is complete up to
//! the last round when the root is lost, and `report` joins the runs of several ranks.

use std::path::PathBuf;

use linerate_analysis::record::{Header, Record, RunKind};
use linerate_model::exit::Stop;
use linerate_model::protocol::{Failure, FailureKind};
use linerate_model::units::Bytes;
use linerate_store::measured::{create_numbered, make_room};
use linerate_store::{Log as _, Run};

/// A mesh of 4,096 hosts with all pairs stores about 8 MiB at each rank.
const BYTES_MAX: usize = 256 << 20;

/// Where the run of a rank is stored.
#[derive(Debug)]
pub(super) struct OwnRun {
    state: PathBuf,
    /// The limit of all runs without a name.
    store_limit: Bytes,
    run: Option<Run>,
    bytes: usize,
}

impl OwnRun {
    pub(super) fn new(state: PathBuf, store_limit: Bytes) -> Self {
        Self {
            state,
            store_limit,
            run: None,
            bytes: 0,
        }
    }

    /// Adds records; the first request of a session begins with the header.
    pub(super) fn add(&mut self, records: &[String]) -> Result<(), Failure> {
        self.bytes += records.iter().map(String::len).sum::<usize>();
        if self.bytes > BYTES_MAX {
            let why = format!("the records of a rank exceed {BYTES_MAX} bytes");
            return Err(refused(FailureKind::Resource, &why));
        }
        let mut rest = records;
        if self.run.is_none() {
            let [header, records @ ..] = records else {
                return Err(refused(FailureKind::BadInput, "no header"));
            };
            let header: Header = serde_json::from_str(header).map_err(|error| invalid(&error))?;
            self.run = Some(self.create(&header)?);
            rest = records;
        }
        let Some(run) = &mut self.run else {
            return Ok(());
        };
        for record in rest {
            let record = serde_json::from_str(record).map_err(|error| invalid(&error))?;
            if !is_of_mesh(&record) {
                let why = "a record that is not one of a mesh";
                return Err(refused(FailureKind::BadInput, why));
            }
            run.add(record).map_err(|stop| not_written(&stop))?;
        }
        Ok(())
    }

    fn create(&self, header: &Header) -> Result<Run, Failure> {
        let run = create_numbered(&self.state, RunKind::MeshRank, header);
        let run = run.map_err(|stop| not_written(&stop))?;
        make_room(&self.state, run.folder(), self.store_limit);
        Ok(run)
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
    refused(FailureKind::Resource, &stop.to_string())
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
    use linerate_model::mesh::HostIndex;

    use super::*;

    fn line(value: &impl serde::Serialize) -> String {
        serde_json::to_string(value).expect("it can be written")
    }

    #[test]
    fn each_session_writes_a_run_of_its_own_and_other_records_are_refused() {
        let state = tempfile::tempdir().expect("a folder");
        let own = || OwnRun::new(state.path().to_owned(), Bytes::new(1 << 30));
        let header = line(&made_up::header(7, 60));
        let rank = line(&Record::MeshRank(HostIndex::at(2)));
        let mut sessions = [own(), own()];
        for session in &mut sessions {
            session
                .add(&[header.clone(), rank.clone()])
                .expect("the first records");
            session
                .add(&[line(&Record::Stopped("lost".to_owned()))])
                .expect("more records");
        }
        for wrong in [
            line(&Record::Planted(Vec::new())),
            "{\"mesh\":".to_owned(),
            String::new(),
        ] {
            let failure = sessions[0].add(&[wrong]).expect_err("not of a mesh");
            assert_eq!(failure.kind, FailureKind::BadInput, "{failure}");
        }
        assert!(own().add(&[]).is_err() && own().add(&[rank]).is_err());
        drop(sessions);
        let runs = std::fs::read_dir(state.path().join("runs")).expect("runs");
        let mut names: Vec<String> = runs
            .flatten()
            .map(|run| {
                let stored = linerate_store::read(&run.path()).expect("a run");
                assert_eq!(stored.records.len(), 2);
                run.file_name().to_string_lossy().into_owned()
            })
            .collect();
        names.sort();
        let name = "1970-01-01-00-01-00-mesh-rank-7";
        assert_eq!(names, [format!("{name}-1"), format!("{name}-2")]);
    }

    #[test]
    fn a_root_cannot_fill_the_disk_of_a_rank() {
        let state = tempfile::tempdir().expect("a folder");
        let mut own = OwnRun::new(state.path().to_owned(), Bytes::new(1 << 30));
        let header = line(&made_up::header(7, 60));
        own.add(&[header]).expect("the header");
        own.bytes = BYTES_MAX;
        let stopped = line(&Record::Stopped("x".to_owned()));
        let failure = own.add(&[stopped]).expect_err("it is full");
        assert_eq!(failure.kind, FailureKind::Resource);
    }
}
