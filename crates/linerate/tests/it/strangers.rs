//! Runs that somebody else prepared: what a command reads of them and writes beside them touches no other file, waits for
//! nobody and ends.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::thread;

use rustix::fs::{CWD, FileType, Mode};

use crate::job::{linerate, run};
use crate::lab::text;

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/runs/lab-1");

/// A copy of the fixture at `folder`.
fn copy_to(folder: &Path) {
    fs::create_dir_all(folder).expect("a folder");
    for file in ["run.json", "records.jsonl"] {
        fs::copy(Path::new(FIXTURE).join(file), folder.join(file)).expect("a copy");
    }
}

/// A state folder with the fixture as the run `one`, and that run.
fn state() -> (tempfile::TempDir, PathBuf) {
    let state = tempfile::tempdir().expect("a temporary folder");
    let folder = state.path().join("runs/one");
    copy_to(&folder);
    (state, folder)
}

#[test]
fn what_a_command_writes_follows_no_link_that_waits_for_it() {
    let (state, folder) = state();
    let victim = state.path().join("victim");
    fs::write(&victim, "untouched").expect("a file");
    let beside = |name: &str| state.path().join(name);
    let names = [
        folder.join("report.html"),
        folder.join("report.html.new"),
        beside("page.html"),
        beside("page.html.new"),
        beside("table.csv"),
        beside("table.csv.new"),
        beside("host.txt"),
        beside("host.txt.new"),
    ];
    for name in &names {
        symlink(&victim, name).expect("a link");
    }
    let (page, table, host) = (beside("page.html"), beside("table.csv"), beside("host.txt"));
    for words in [
        vec!["report", text(&folder)],
        vec!["report", text(&folder), "--out", text(&page)],
        vec!["export", text(&folder), "--out", text(&table)],
        vec!["capture", text(&host)],
    ] {
        run(linerate(&words)).expect_code(0);
        let victim = fs::read_to_string(&victim).expect("the victim");
        assert_eq!(victim, "untouched", "{words:?}");
    }
    for name in names.iter().step_by(2) {
        let found = fs::symlink_metadata(name).expect("it was written");
        assert!(found.is_file(), "{}", name.display());
    }
}

fn fifo(path: &Path) {
    rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
}

#[test]
fn a_header_that_is_no_small_regular_file_is_refused_by_every_reader_and_waited_for_by_none() {
    let (state, sound) = state();
    let folder = state.path().join("runs/two");
    copy_to(&folder);
    let header = folder.join("run.json");
    let long = "x".repeat((1 << 20) + 1);
    let prepared: [(&dyn Fn(), &str); 3] = [
        (&|| fifo(&header), "not a regular file"),
        (
            &|| symlink("/dev/zero", &header).expect("a link"),
            "not a regular file",
        ),
        (
            &|| fs::write(&header, &long).expect("a file"),
            "longer than 1048576 bytes",
        ),
    ];
    for (prepare, why) in prepared {
        fs::remove_file(&header).expect("it was there");
        prepare();
        for (words, code) in [
            (vec!["report", text(&folder)], 23),
            (vec!["export", text(&folder)], 23),
            (vec!["compare", text(&sound), text(&folder)], 23),
            (vec!["lab", "show", text(&folder)], 23),
            (vec!["lab", "resume", text(&folder)], 23),
            (vec!["--state", text(state.path()), "runs"], 0),
        ] {
            let done = run(linerate(&words)).expect_code(code);
            assert!(done.err.contains(why), "{words:?}: {}", done.err);
        }
    }
}

#[test]
fn records_that_are_no_regular_file_are_refused_by_every_reader() {
    let (state, sound) = state();
    let folder = state.path().join("runs/two");
    copy_to(&folder);
    let records = folder.join("records.jsonl");
    let prepared: [&dyn Fn(); 2] = [&|| fifo(&records), &|| {
        symlink("/dev/zero", &records).expect("a link")
    }];
    for prepare in prepared {
        fs::remove_file(&records).expect("it was there");
        prepare();
        for words in [
            vec!["report", text(&folder)],
            vec!["export", text(&folder)],
            vec!["compare", text(&sound), text(&folder)],
            vec!["lab", "resume", text(&folder)],
        ] {
            let done = run(linerate(&words)).expect_code(23);
            assert!(
                done.err.contains("not a regular file"),
                "{words:?}: {}",
                done.err
            );
        }
    }
}

#[test]
fn a_plan_or_an_experiment_may_come_from_a_fifo_and_ends_at_a_limit() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("file");
    fifo(&file);
    for (words, why) in [
        (
            ["tune", "plan", "--from"].as_slice(),
            "`x` is not known here",
        ),
        (&["lab", "run"], "line 1"),
    ] {
        let all = [words, &[text(&file)]].concat();
        let done = thread::scope(|scope| {
            scope.spawn(|| fs::write(&file, "x = 1\n").expect("somebody reads"));
            run(linerate(&all)).expect_code(23)
        });
        assert!(done.err.contains(why), "{words:?}: {}", done.err);
        let endless = [words, &["/dev/zero"]].concat();
        let done = run(linerate(&endless));
        assert!(done.err.contains("longer than"), "{words:?}: {}", done.err);
    }
}

#[test]
fn the_list_of_runs_is_not_kept_where_others_may_write() {
    let (state, folder) = state();
    let runs = folder.parent().expect("the folder of runs");
    let victim = state.path().join("victim");
    fs::write(&victim, "untouched").expect("a file");
    let names = ["index.sqlite", "index.sqlite.lock", "index.sqlite-journal"];
    for name in names {
        symlink(&victim, runs.join(name)).expect("a link");
    }
    fs::set_permissions(runs, fs::Permissions::from_mode(0o777)).expect("our own folder");
    let list = run(linerate(&["--state", text(state.path()), "runs"])).expect_code(0);
    assert!(list.out.contains("one"), "{}", list.out);
    assert_eq!(
        fs::read_to_string(&victim).expect("the victim"),
        "untouched"
    );
    for name in names {
        let found = fs::symlink_metadata(runs.join(name)).expect("the link");
        assert!(found.is_symlink(), "{name}");
    }
}
