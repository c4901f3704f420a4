//! A run that is read as it grows: what was read once is not read again.

use std::path::{Path, PathBuf};

use linerate_analysis::progress::Progress;
use linerate_analysis::record::RunKind;
use linerate_model::exit::Outcome;

use crate::{Place, Records, read_header};

/// A run that is read as it grows.
#[derive(Debug)]
pub struct Followed {
    folder: PathBuf,
    read: Place,
    progress: Progress,
}

impl Followed {
    /// Begins to follow a run.
    pub fn open(folder: &Path) -> Outcome<Self> {
        let header = read_header(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            read: Place::default(),
            progress: Progress::new(RunKind::of_folder(folder, &header), header),
        })
    }

    /// How far it has come now.
    pub fn now(&mut self) -> Outcome<&Progress> {
        let mut records = Records::open_at(&self.folder, self.read)?;
        while let Some(record) = records.next() {
            self.progress.add(&record?);
            self.read = records.place();
        }
        Ok(&self.progress)
    }
}

#[cfg(test)]
mod tests {
    use linerate_analysis::made_up;
    use linerate_model::lab::Response;

    use super::*;
    use crate::made_up::store;
    use crate::{Log, Run};

    #[test]
    fn an_experiment_is_followed_record_by_record_and_a_repeated_trial_takes_the_place_of_its_first()
     {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("run-lab-1");
        let mut run = Run::create(&folder, &made_up::header(1, 0)).expect("a new run");
        let mut followed = Followed::open(&folder).expect("it has a header");
        assert_eq!(followed.now().expect("no record yet").trials, 0);
        let mut seen = Vec::new();
        for record in made_up::experiment("flows") {
            run.add(record).expect("a record");
            let now = followed.now().expect("Report so far");
            seen.push((now.trials, now.planned()));
        }
        // Two levels, as often as a design repeats by itself.
        let planned = seen
            .last()
            .and_then(|(_, planned)| *planned)
            .expect("planned");
        assert_eq!((planned.0, planned.1), (3, planned.2));
        let trials: Vec<u64> = seen.iter().map(|(trials, _)| *trials).collect();
        assert_eq!(trials, [0, 0, 1, 2, 3, 4, 4, 4]);
        let now = followed.now().expect("all");
        assert_eq!(now.kind, RunKind::Lab);
        let means = now.means().expect("an experiment");
        assert_eq!(
            (means.response, means.factors),
            (Response::Rate, vec!["flows".to_owned()])
        );
        let means = means.cells;
        let counts: Vec<usize> = means.iter().map(|mean| mean.trials).collect();
        assert_eq!(counts, [1, 1], "one was repeated, one cannot be had");
        let [rate, least, most] = means[1].figures.expect("a trial");
        assert!((rate / 17e9 - 1.0).abs() < 1e-9, "{rate}");
        assert!(least.to_bits() == most.to_bits(), "one trial");
        assert_eq!(
            now.latest[0].told,
            "not possible: the peer has no such port"
        );
    }

    #[test]
    fn a_proof_tells_its_remedies_and_trials_and_no_plan() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("run-prove-1");
        store(&folder, &made_up::header(1, 0), made_up::proof());
        let mut followed = Followed::open(&folder).expect("a run");
        let now = followed.now().expect("its records");
        assert_eq!((now.trials, now.planned()), (5, None));
        assert_eq!(now.remedies.len(), 1);
        assert_eq!(now.remedies[0].kept, None);
        let what: Vec<&str> = now.latest.iter().map(|trial| trial.what.as_str()).collect();
        assert_eq!(what[0], "after");
        assert_eq!(what[1], "stage 1, all fixes");
    }
}
