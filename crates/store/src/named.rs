//! How a run is named on a command line: its directory, its name in the folder of runs, a part of that name that no other
//! run has, or `last`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use linerate_analysis::record::RunKind;
use linerate_analysis::text::visible::visible;
use linerate_model::exit::{Code, Outcome, Stop};

use crate::read_header;
use crate::run::HEADER;

/// The maximum number of runs that an error lists, if a part of a name matches several.
const NAMED_MAX: usize = 5;

/// Finds a run; `last` is the newest one of `kind`, or of any kind. A name that fits none comes back as it is where it may be a
/// path, so that reading it reports what is wrong with that.
pub fn find(runs: &Path, name: &OsStr, kind: Option<RunKind>) -> Outcome<PathBuf> {
    let path = PathBuf::from(name);
    let text = name.to_str().unwrap_or_default();
    if path.exists() || text.is_empty() || text.contains('/') {
        return Ok(path);
    }
    if let Some(back) = steps_back(text) {
        return newest(runs, back, kind, text);
    }
    let names = names(runs);
    if names.iter().any(|one| one == text) {
        return Ok(runs.join(text));
    }
    let mut fitting: Vec<&String> = names.iter().filter(|one| one.contains(text)).collect();
    if fitting.len() > 1 {
        // What ranks of a mesh keep is part of a run: its root's is meant.
        let of_rank = format!("-{}-", RunKind::MeshRank.word());
        fitting.retain(|one| !one.contains(&of_rank) || text.contains(&of_rank));
    }
    let text = visible(text);
    match fitting.as_slice() {
        [one] => Ok(runs.join(one)),
        [] => {
            let why = format!(
                "there is no run `{text}`: no directory has this name, and no run in {} has it in its name",
                runs.display()
            );
            Err(Stop::new(Code::BadInput, why).hint("`linerate runs` lists the stored runs"))
        }
        many => {
            let more = many.len().saturating_sub(NAMED_MAX);
            let named: Vec<String> = many
                .iter()
                .take(NAMED_MAX)
                .map(|one| visible(one))
                .collect();
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            let why = format!(
                "`{text}` is a part of the names of {} runs: {}{more}",
                many.len(),
                named.join(", ")
            );
            Err(Stop::new(Code::Usage, why).hint("name more of it"))
        }
    }
}

/// `last` is 0, `last~2` is 2.
fn steps_back(text: &str) -> Option<usize> {
    match text.strip_prefix("last")? {
        "" => Some(0),
        rest => rest.strip_prefix('~')?.parse().ok(),
    }
}

fn newest(runs: &Path, back: usize, kind: Option<RunKind>, text: &str) -> Outcome<PathBuf> {
    let of_kind = kind.map(RunKind::word).unwrap_or_default();
    let mut found: Vec<(u64, Option<SystemTime>, PathBuf)> = Vec::new();
    for name in names(runs) {
        let folder = runs.join(name);
        // One that cannot be read is listed by `runs`, and is not the last one.
        let Ok(header) = read_header(&folder) else {
            continue;
        };
        // What ranks of a mesh keep is part of a run.
        let own = RunKind::of_folder(&folder, &header);
        if kind.map_or(own != RunKind::MeshRank, |kind| own == kind) {
            let made = fs::metadata(folder.join(HEADER)).and_then(|found| found.modified());
            found.push((header.created_unix_s, made.ok(), folder));
        }
    }
    found.sort();
    let number = found.len();
    let place = number.checked_sub(back.saturating_add(1));
    let one = place.map(|place| found.swap_remove(place));
    one.map(|(.., folder)| folder).ok_or_else(|| {
        let why = format!(
            "there is no run `{text}`: {} has {number} {of_kind}{}runs",
            runs.display(),
            if of_kind.is_empty() { "" } else { " " }
        );
        Stop::new(Code::BadInput, why)
    })
}

/// The names of the folders that hold a run.
fn names(runs: &Path) -> Vec<String> {
    let entries = fs::read_dir(runs).into_iter().flatten().flatten();
    let is_run = |name: &String| runs.join(name).join(HEADER).exists();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(is_run).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up;

    fn found(runs: &Path, name: &str) -> String {
        let folder = find(runs, OsStr::new(name), None).expect(name);
        folder
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned()
    }

    #[test]
    fn a_run_is_found_by_its_name_a_part_of_it_and_its_age() {
        let place = tempfile::tempdir().expect("a folder");
        let runs = made_up::three_runs(place.path());
        assert_eq!(found(&runs, "b-lab-7"), "b-lab-7");
        assert_eq!(found(&runs, "sear"), "c-search-7");
        assert_eq!(found(&runs, "last"), "b-lab-7");
        assert_eq!(found(&runs, "last~1"), "c-search-7");
        assert_eq!(found(&runs, "last~2"), "a-prove-7");
        let lab = find(&runs, OsStr::new("last"), Some(RunKind::Lab)).expect("a run");
        assert_eq!(lab, runs.join("b-lab-7"));
        let path = runs.join("a-prove-7");
        assert_eq!(
            find(&runs, path.as_os_str(), None).expect("it exists"),
            path
        );
    }

    #[test]
    fn a_name_that_fits_none_or_several_is_refused_with_what_there_is() {
        let place = tempfile::tempdir().expect("a folder");
        let runs = made_up::three_runs(place.path());
        for (name, code, words) in [
            ("tune", Code::BadInput, "there is no run `tune`"),
            ("-7", Code::Usage, "`-7` is a part of the names of 3 runs"),
            ("last~3", Code::BadInput, "has 3 runs"),
        ] {
            let stop = find(&runs, OsStr::new(name), None).expect_err(name);
            assert_eq!(stop.code, code, "{name}");
            assert!(stop.message.contains(words), "{}", stop.message);
        }
        let stop = find(&runs, OsStr::new("last"), Some(RunKind::Demo)).expect_err("there is none");
        assert!(stop.message.contains("has 0 demo runs"), "{}", stop.message);
        // What may be a path is reported by its reader.
        assert!(find(&runs, OsStr::new("./tune"), None).is_ok());
    }
}
