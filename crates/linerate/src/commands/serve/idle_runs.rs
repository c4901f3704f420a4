//! Which of many runs are being written. The writer of a run holds a lock on its records, and testing the locks of
//! thousands of runs at every request means opening thousands of files: an unlocked one is tested again only when its
//! records have changed since. A writer changes them at once, also of a run that is resumed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use linerate_store::Trace;

/// The runs that were not being written at the last request, with the state of their records then.
#[derive(Debug, Default)]
pub(super) struct IdleRuns {
    idle: BTreeMap<OsString, Trace>,
}

impl IdleRuns {
    /// The names of the runs in `folder` that are being written, as `is_being_written` reports for each.
    pub(super) fn names(
        &mut self,
        folder: &Path,
        is_being_written: impl Fn(&Path) -> bool,
    ) -> Vec<String> {
        let mut before = std::mem::take(&mut self.idle);
        let mut going = Vec::new();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let (name, run) = (entry.file_name(), entry.path());
            // Read first: what is written after that is another trace next time.
            let Some(trace) = Trace::of(&run) else {
                continue;
            };
            let is_known = before.remove(&name).is_some_and(|known| known == trace);
            if is_known || !is_being_written(&run) {
                self.idle.insert(name, trace);
            } else {
                going.extend(name.into_string());
            }
        }
        going
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use linerate_analysis::made_up;
    use linerate_analysis::record::Record;
    use linerate_store::{self as store, Log, Run};

    use super::*;

    /// The runs that go on, and those that were requested.
    fn look(going: &mut IdleRuns, folder: &Path) -> (Vec<String>, Vec<String>) {
        let asked = RefCell::new(Vec::new());
        let names = going.names(folder, |run| {
            let name = run.file_name().unwrap_or_default().to_string_lossy();
            asked.borrow_mut().push(name.into_owned());
            store::is_being_written(run)
        });
        let mut asked = asked.into_inner();
        asked.sort();
        (names, asked)
    }

    #[test]
    fn a_run_that_nobody_writes_is_asked_for_once_and_again_when_it_goes_on() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path();
        for name in ["a", "b", "c"] {
            linerate_store::made_up::store(
                &folder.join(name),
                &made_up::header(1, 0),
                made_up::proof(),
            );
        }
        let mut run = Run::create(&folder.join("d"), &made_up::header(1, 0)).expect("a new run");
        run.add(made_up::hosts("far")).expect("a record");
        fs::write(folder.join("index.sqlite"), "no run").expect("a file");
        let mut going = IdleRuns::default();
        let one = |name: &str| vec![name.to_owned()];
        let first = look(&mut going, folder);
        let all = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        assert_eq!(first, (one("d"), all));
        assert_eq!(look(&mut going, folder), (one("d"), one("d")));

        // A killed run may be resumed: it is written to before it is marked.
        drop(run);
        assert_eq!(look(&mut going, folder), (vec![], one("d")));
        assert_eq!(look(&mut going, folder), (vec![], vec![]));
        let mut again = Run::resume(&folder.join("b")).expect("a run");
        assert_eq!(look(&mut going, folder), (one("b"), one("b")));
        again.add(Record::Resumed { unix_s: 1 }).expect("a record");
        assert_eq!(look(&mut going, folder), (one("b"), one("b")));
        drop(again);
        assert_eq!(look(&mut going, folder), (vec![], one("b")));

        // Another run by the name of one that was taken away is another one.
        fs::remove_dir_all(folder.join("c")).expect("it was there");
        assert_eq!(look(&mut going, folder), (vec![], vec![]));
        let _new = Run::create(&folder.join("c"), &made_up::header(2, 0)).expect("a new run");
        assert_eq!(look(&mut going, folder), (one("c"), one("c")));
    }
}
