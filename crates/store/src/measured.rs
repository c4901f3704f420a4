//! Keeps every `measure`, `qos verify`, `failover` and `mesh` in the folder of runs, and the folder within its limit.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use linerate_analysis::record::{Header, Record, RunKind};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::units::Bytes;

use crate::{Log as _, Run, cannot_write, is_being_written, run_folder};

/// The commands whose runs without a name make room for newer ones.
const KINDS: [RunKind; 5] = [
    RunKind::Measure,
    RunKind::Qos,
    RunKind::Failover,
    // Its word begins with that of `Mesh`.
    RunKind::MeshRank,
    RunKind::Mesh,
];
/// A file in the folder of runs that remembers that old measurements are removed there.
const REMOVED_BEFORE: &str = "old-measurements-are-removed";
/// A larger record of a trial is left out; its figures stay.
pub const SAMPLE_BYTES_MAX: usize = 8 << 20;

/// A measurement that was stored.
#[derive(Debug)]
pub struct Stored {
    /// Its folder.
    pub folder: PathBuf,
    /// How many old ones were removed, if this is the first time in this folder.
    pub first_removal: Option<usize>,
}

/// Writes a run of `measure`. If the unnamed ones then have more than `most` bytes, the oldest of them are removed.
pub fn store(
    state: &Path,
    name: Option<&str>,
    header: &Header,
    records: Vec<Record>,
    most: Bytes,
) -> Outcome<Stored> {
    let mut run = create(state, RunKind::Measure, name, header)?;
    let folder = run.folder().to_owned();
    let mut records = records.into_iter();
    if let Err(stop) = records.try_for_each(|record| run.add(record)) {
        // Part of a result is none.
        let _ = fs::remove_dir_all(&folder);
        return Err(stop);
    }
    drop(run);
    let first_removal = make_room(state, &folder, most);
    Ok(Stored {
        folder,
        first_removal,
    })
}

/// Makes the folder of a run that is written record by record.
pub fn create(state: &Path, kind: RunKind, name: Option<&str>, header: &Header) -> Outcome<Run> {
    let folder = match name {
        Some(name) => state.join("runs").join(name),
        None => run_folder(state, kind.word(), header.created_unix_s, header.seed),
    };
    if let Some(name) = name.filter(|_| folder.exists()) {
        let why = format!("there is a run `{name}` already");
        return Err(Stop::new(Code::BadInput, why).hint("choose another name"));
    }
    Run::create(&folder, header).inspect_err(|_| {
        // Only if it is empty: another process may have written a run there meanwhile.
        let _ = fs::remove_dir(&folder);
    })
}

/// Makes the folder of one of the runs that the ranks of a mesh store at the same time. Its name ends in `number`, which keeps them
/// apart where they are collected, and in another number for each further session of a rank.
pub fn create_numbered(state: &Path, kind: RunKind, header: &Header, number: u32) -> Outcome<Run> {
    let name = run_folder(state, kind.word(), header.created_unix_s, header.seed);
    let runs = state.join("runs");
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&runs)
        .map_err(|error| cannot_write(&runs, error))?;
    let mut session = 1;
    loop {
        let mut folder = name.clone().into_os_string();
        folder.push(format!("-{number}"));
        if session > 1 {
            folder.push(format!("-{session}"));
        }
        let folder = PathBuf::from(folder);
        match fs::DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => {
                return Run::create(&folder, header).inspect_err(|_| {
                    let _ = fs::remove_dir_all(&folder);
                });
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => session += 1,
            Err(error) => return Err(cannot_write(&folder, error)),
        }
    }
}

/// Removes the oldest runs without a name if all of them have more than `most` bytes; how many, if this is the first time in
/// this folder.
pub fn make_room(state: &Path, newest: &Path, most: Bytes) -> Option<usize> {
    let runs = state.join("runs");
    let removed = trim(&runs, newest, most);
    (removed > 0 && is_first_removal(&runs)).then_some(removed)
}

/// Whether a run has the name that this program gave it, from the time of the measurement: `2026-11-26-19-04-21-measure-71`, or
/// `-71-2` for the second rank of a mesh.
fn is_unnamed(name: &str) -> bool {
    let mut kinds = KINDS.into_iter();
    let of = |kind: RunKind| name.split_once(&format!("-{}-", kind.word()));
    let Some((stamp, seed)) = kinds.find_map(of) else {
        return false;
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = stamp.split('-').collect();
    seed.split('-').all(is_number) && parts.len() == 6 && parts.into_iter().all(is_number)
}

/// Removes the oldest unnamed measurements until the others have no more than `most` bytes; never `newest`. What another
/// process removes meanwhile, or what cannot be removed, is left to the next one.
fn trim(runs: &Path, newest: &Path, most: Bytes) -> usize {
    let entries = fs::read_dir(runs).into_iter().flatten().flatten();
    let mut unnamed: Vec<(String, u64)> = Vec::new();
    for entry in entries {
        let name = entry.file_name().into_string().unwrap_or_default();
        // A link is not followed.
        if is_unnamed(&name) && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            unnamed.push((name, size(&entry.path())));
        }
    }
    // Their names begin with the time.
    unnamed.sort();
    let mut all: u64 = unnamed.iter().map(|(_, bytes)| bytes).sum();
    let mut removed = 0;
    for (name, bytes) in unnamed {
        let folder = runs.join(name);
        if all <= most.as_u64() {
            break;
        }
        if folder != newest && !is_being_written(&folder) && fs::remove_dir_all(&folder).is_ok() {
            all = all.saturating_sub(bytes);
            removed += 1;
        }
    }
    removed
}

fn size(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = files.filter_map(|file| Some(file.metadata().ok()?.len()));
    sizes.sum()
}

/// Whether nothing was removed from this folder before; from now on it was.
fn is_first_removal(runs: &Path) -> bool {
    let file = fs::File::create_new(runs.join(REMOVED_BEFORE));
    let Ok(mut file) = file else {
        return false;
    };
    let _ = writeln!(
        file,
        "The oldest measurements without a name are removed from this folder."
    );
    true
}

#[cfg(test)]
mod tests {
    use linerate_analysis::made_up;

    use super::*;

    fn kept(runs: &Path) -> Vec<String> {
        let entries = fs::read_dir(runs).expect("a folder").flatten();
        let mut names: Vec<String> = entries
            .filter(|entry| entry.path().is_dir())
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_oldest_measurements_without_a_name_make_room_and_nothing_else() {
        let place = tempfile::tempdir().expect("a folder");
        let runs = place.path().join("runs");
        let keep = |name, at, most| {
            let header = made_up::header(7, at);
            let records = vec![Record::Stopped("x".repeat(1_000))];
            store(place.path(), name, &header, records, Bytes::new(most)).expect("it is stored")
        };
        crate::made_up::store(
            &runs.join("1960-prove-7"),
            &made_up::header(7, 0),
            Vec::new(),
        );
        keep(Some("before"), 10, 1_000_000);
        keep(None, 60, 1_000_000);
        keep(None, 120, 1_000_000);
        let third = keep(None, 180, 3_000);
        assert_eq!(third.first_removal, Some(1));
        assert_eq!(
            kept(&runs),
            [
                "1960-prove-7",
                "1970-01-01-00-02-00-measure-7",
                "1970-01-01-00-03-00-measure-7",
                "before"
            ]
        );
        // Reported once for a folder; the newest is kept, however small the limit is.
        let fourth = keep(None, 240, 1);
        assert_eq!(fourth.first_removal, None);
        assert_eq!(
            kept(&runs),
            ["1960-prove-7", "1970-01-01-00-04-00-measure-7", "before"]
        );
    }

    #[test]
    fn a_name_that_is_taken_is_refused_and_what_has_it_is_kept() {
        let place = tempfile::tempdir().expect("a folder");
        let most = Bytes::new(1_000_000);
        let keep = |at| {
            let header = made_up::header(7, at);
            store(place.path(), Some("before"), &header, Vec::new(), most)
        };
        let first = keep(10).expect("it is stored");
        let stop = keep(20).expect_err("the name is taken");
        assert!(
            stop.message.contains("`before` already"),
            "{}",
            stop.message
        );
        assert_eq!(
            crate::read(&first.folder)
                .expect("a run")
                .header
                .created_unix_s,
            10
        );
    }

    #[test]
    fn only_names_that_measure_gives_are_unnamed() {
        assert!(is_unnamed("2026-11-26-19-04-21-measure-71"));
        assert!(is_unnamed("2026-11-26-19-04-21-qos-71"));
        assert!(is_unnamed("2026-11-26-19-04-21-failover-71"));
        assert!(is_unnamed("2026-11-26-19-04-21-mesh-rank-71-2"));
        for name in [
            "before",
            "2026-11-26-19-04-21-lab-71",
            "old-2026-11-26-19-04-21-measure-71",
            "a-measure-1",
            "2026-11-26-19-04-21-mesh-rank-71-a",
            "2026-11-26-19-04-21-mesh-rank-71-",
        ] {
            assert!(!is_unnamed(name), "{name}");
        }
    }
}
