//! Runs prepared by another user: what a command reads from them and writes next to them touches no other file, waits for
//! nothing and ends.

use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::{fs, thread};

use linerate_analysis::record::Record;
use linerate_store as store;
use rustix::fs::{CWD, FileType, Mode};
use rustix::process::geteuid;

use crate::experiment::shown_on_a_terminal;
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
        symlink("/dev/zero", &records).expect("a link");
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
        (["tune", "plan", "--from"].as_slice(), "unknown table `x`"),
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

/// Changes the text of a file.
fn change(file: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(file).expect("a text");
    assert!(text.contains(from), "{text}");
    fs::write(file, text.replace(from, to)).expect("the change");
}

/// The fixture, cut off in the middle, so that there is something to go on with.
fn unfinished() -> (tempfile::TempDir, PathBuf) {
    let (state, folder) = state();
    let records = folder.join("records.jsonl");
    let text = fs::read_to_string(&records).expect("the records");
    let half: Vec<&str> = text.split_inclusive('\n').take(5).collect();
    fs::write(&records, half.concat()).expect("the cut");
    (state, folder)
}

#[test]
fn a_command_that_only_a_run_names_is_not_started_by_a_resume() {
    let (state, folder) = unfinished();
    let marker = state.path().join("it's here");
    let command = format!("touch \"{}\"", marker.display());
    let peer = format!("exec:{command}");
    let resume = |peers: &[&str]| {
        let words = [
            "--state",
            text(state.path()),
            "lab",
            "resume",
            text(&folder),
        ];
        run(linerate(&[&words[..], peers].concat()))
    };
    let quoted = serde_json::to_string(&peer).expect("a text");
    change(&folder.join("run.json"), "\"netns:far\"", &quoted);
    let refused = resume(&[]).expect_code(2);
    let hint = format!(
        "`linerate lab resume {} '{}'`",
        text(&folder),
        peer.replace('\'', r"'\''")
    );
    assert!(refused.err.contains(&hint), "{}", refused.err);
    let refused = resume(&["exec:true"]).expect_code(2);
    assert!(refused.err.contains("exec:true"), "{}", refused.err);
    assert!(!marker.exists());
    // It is no agent.
    resume(&[&peer]).expect_code(20);
    assert!(marker.exists());
}

#[test]
fn a_command_that_only_a_level_of_a_run_names_is_not_started_by_a_resume() {
    let (state, folder) = unfinished();
    let marker = state.path().join("marker");
    let mut stored = store::read(&folder).expect("a run");
    let Some(Record::Lab { experiment, .. }) = stored.records.first_mut() else {
        panic!("it is no experiment");
    };
    let peer = serde_json::json!({ "at": format!("exec:touch {}", marker.display()) });
    let level = serde_json::json!({ "name": "other", "peer": peer });
    experiment.factors[0].levels[1] = serde_json::from_value(level).expect("a level");
    let lines = stored
        .records
        .iter()
        .map(|record| store::line_of(record).expect("a line"));
    fs::write(folder.join("records.jsonl"), lines.collect::<String>()).expect("the change");
    change(&folder.join("run.json"), "netns:far", "local");
    let refused = run(linerate(&[
        "--state",
        text(state.path()),
        "lab",
        "resume",
        text(&folder),
    ]));
    let refused = refused.expect_code(2);
    assert!(refused.err.contains("exec:touch"), "{}", refused.err);
    assert!(!marker.exists());
}

#[test]
fn a_run_of_another_user_is_shown_and_not_resumed() {
    let resume = |folder: &Path| run(linerate(&["lab", "resume", text(folder)])).expect_code(23);
    for name in ["run.json", "records.jsonl"] {
        let (_state, folder) = unfinished();
        let file = folder.join(name);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("our own file");
        let refused = resume(&folder);
        assert!(refused.err.contains("world-writable"), "{}", refused.err);
        if !geteuid().is_root() {
            eprintln!("SKIP: an ordinary user cannot give a file away");
            continue;
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("our own file");
        chown(&file, Some(65_534), Some(65_534)).expect("root may");
        let refused = resume(&folder);
        let why = format!("{name}: owned by uid 65534");
        assert!(refused.err.contains(&why), "{}", refused.err);
        assert!(refused.err.contains("resume the copy"), "{}", refused.err);
        run(linerate(&["lab", "show", text(&folder)])).expect_code(0);
    }
}

/// Clears a screen in two ways, turns the direction of writing, and deletes.
const HOSTILE: &str = "\u{1b}[2J\u{9b}2J\u{202e}\u{7f}";
/// The same as it is shown.
const SHOWN: &str = r"\u{1b}[2J\u{9b}2J\u{202e}\u{7f}";

#[track_caller]
fn assert_harmless(text: &str) {
    let steers = |c: char| c.is_control() && !"\n\t".contains(c) || c == '\u{202e}';
    assert!(!text.contains(steers), "{text:?}");
}

#[test]
fn what_a_stored_run_or_the_command_line_holds_cannot_steer_the_terminal() {
    let (_state, folder) = state();
    let mut stored = store::read(&folder).expect("a run");
    let Some(Record::Lab { experiment, .. }) = stored.records.first_mut() else {
        panic!("it is no experiment");
    };
    experiment.title = format!("title {HOSTILE}");
    let title = experiment.title.clone();
    let lines = stored
        .records
        .iter()
        .map(|record| store::line_of(record).expect("a line"));
    fs::write(folder.join("records.jsonl"), lines.collect::<String>()).expect("the change");
    let show = ["lab", "show", text(&folder)];
    let done = run(linerate(&show)).expect_code(0);
    assert_harmless(&done.out);
    assert!(done.out.contains(SHOWN), "{}", done.out);
    let done = run(linerate(&[&["--format", "json"], &show[..]].concat())).expect_code(0);
    assert_harmless(&done.out);
    let document: serde_json::Value = serde_json::from_str(&done.out).expect("JSON");
    assert_eq!(document["title"], title.as_str());

    let schema = format!("linerate.run/1{HOSTILE}");
    let quoted = serde_json::to_string(&schema).expect("a text");
    change(&folder.join("run.json"), "\"linerate.run/1\"", &quoted);
    for (words, code) in [
        (vec!["report", text(&folder)], 23),
        (vec!["export", text(&folder)], 23),
        (vec!["lab", "show", HOSTILE], 23),
    ] {
        let done = run(linerate(&words)).expect_code(code);
        assert_harmless(&done.err);
        assert!(done.err.contains(SHOWN), "{}", done.err);
    }
    // clap's output about a command line has no colors, except on a terminal.
    let (ended, screen) = shown_on_a_terminal(linerate(&[HOSTILE]), 24, 80);
    assert_eq!(ended.code(), Some(2), "{screen}");
    assert_harmless(&screen.replace('\r', ""));
    assert!(screen.contains("2J"), "{screen}");
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
