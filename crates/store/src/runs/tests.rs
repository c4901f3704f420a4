//! Synthetic runs in a list.

use std::fs;
use std::path::{Path, PathBuf};

use linerate_analysis::made_up;
use linerate_analysis::record::Record;
use linerate_analysis::run_list::{Counts, State};
use linerate_model::sample::Flag;
use tempfile::TempDir;

use super::*;
use crate::made_up::store;
use crate::{Log, Run};

fn folder() -> (TempDir, PathBuf) {
    let place = tempfile::tempdir().expect("a folder");
    let runs = crate::made_up::three_runs(place.path());
    (place, runs)
}

fn names(folder: &Path, filter: &Filter) -> Vec<String> {
    let found = document(folder, filter, false, &|_| {}).expect("a list");
    found.runs.into_iter().map(|run| run.run).collect()
}

fn all(folder: &Path) -> Vec<String> {
    names(folder, &Filter::default())
}

#[test]
fn the_newest_run_comes_first() {
    let (_place, runs) = folder();
    assert_eq!(all(&runs), ["b-lab-7", "c-search-7", "a-prove-7"]);
}

#[test]
fn a_run_is_told_with_its_hosts_its_trials_and_how_it_ended() {
    let (_place, runs) = folder();
    let found = document(&runs, &Filter::default(), false, &|_| {}).expect("a list");
    let lab = &found.runs[0];
    assert_eq!(
        (lab.kind.as_str(), lab.title.as_deref()),
        ("lab", Some("t"))
    );
    assert_eq!(lab.trials, 5);
    assert_eq!(lab.workloads, Counts::from([("stream".to_owned(), 5)]));
    assert_eq!(lab.flags, Counts::from([("steal".to_owned(), 1)]));
    assert_eq!(lab.created, "1970-01-01T00:50:00Z");
    assert_eq!((lab.state, lab.seed), (State::Ended, 7));
    let [third] = &lab.others[..] else {
        panic!("{:?}", lab.others);
    };
    assert_eq!(
        (third.peer.as_str(), third.hostname.as_deref()),
        ("netns:third", Some("third"))
    );
    assert!(third.kernel_release.is_some());
    let search = &found.runs[1];
    assert_eq!(search.state, State::Open, "it was killed, or it still runs");
    assert_eq!(search.hosts.remote.hostname.as_deref(), Some("other"));
    assert_eq!(search.ways("->"), "host:near0 -> other:far0");
    assert_eq!(
        lab.ways("->"),
        "host:near0 -> host:far0, host:near1 -> third:third0"
    );
}

#[test]
fn a_run_that_was_removed_leaves_the_list_and_a_new_one_enters_it() {
    let (_place, runs) = folder();
    assert_eq!(all(&runs).len(), 3);
    fs::remove_dir_all(runs.join("b-lab-7")).expect("it was there");
    store(&runs.join("d"), &made_up::header(8, 500), made_up::proof());
    assert_eq!(all(&runs), ["c-search-7", "a-prove-7", "d"]);
}

#[test]
fn a_run_that_has_grown_is_read_again_and_no_other() {
    let (_place, runs) = folder();
    all(&runs);
    // A change that keeps sizes and times is not seen: so it shows what is not read again.
    let unseen = runs.join("a-prove-7/run.json");
    let before = fs::metadata(&unseen)
        .and_then(|found| found.modified())
        .expect("a time");
    let text = fs::read_to_string(&unseen).expect("the header");
    fs::write(&unseen, text.replace("netns:far", "netns:FAR")).expect("the change");
    let file = fs::File::options()
        .write(true)
        .open(&unseen)
        .expect("the header");
    file.set_modified(before).expect("its time");

    let mut run = Run::append_to(&runs.join("c-search-7")).expect("the run");
    run.add(Record::Before(made_up::flagged(&[Flag::Migrated])))
        .expect("a record");
    run.add(Record::Stopped("interrupted".to_owned()))
        .expect("a record");
    let found = document(&runs, &Filter::default(), false, &|_| {}).expect("a list");
    let of = |name: &str| {
        found
            .runs
            .iter()
            .find(|run| run.run == name)
            .expect("it is there")
    };
    let grown = of("c-search-7");
    assert_eq!((grown.trials, grown.state), (2, State::Stopped));
    assert_eq!(grown.stopped.as_deref(), Some("interrupted"));
    assert_eq!(of("a-prove-7").peer, "netns:far");
    // Can be read again at will.
    let found = document(&runs, &Filter::default(), true, &|_| {}).expect("a list");
    assert!(found.runs.iter().any(|run| run.peer == "netns:FAR"));
}

#[test]
fn a_damaged_or_foreign_index_is_made_anew() {
    let (_place, runs) = folder();
    let whole = document(&runs, &Filter::default(), false, &|_| {}).expect("a list");
    let place = runs.join("index.sqlite");
    let sound = fs::read(&place).expect("the index");
    let mut overwritten = sound.clone();
    for page in overwritten.chunks_mut(4_096).skip(1) {
        page.fill(0xA5);
    }
    let of_table = |version: i64| {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("base");
        let base = rusqlite::Connection::open(&file).expect("a database");
        let table = format!("PRAGMA user_version = {version}; CREATE TABLE runs (run TEXT)");
        base.execute_batch(&table).expect("a table");
        drop(base);
        fs::read(file).expect("the database")
    };
    for (what, bytes) in [
        ("text", b"this is no database at all".repeat(300).as_slice()),
        ("nothing", b""),
        ("the first half", &sound[..sound.len() / 2]),
        ("other pages", &overwritten),
        ("another table", &of_table(index::VERSION)),
        ("an older form", &of_table(index::VERSION - 1)),
    ] {
        fs::write(&place, bytes).expect("the damage");
        let found = document(&runs, &Filter::default(), false, &|_| {});
        assert_eq!(found.expect(what), whole, "{what}");
        let again = rusqlite::Connection::open(&place).expect("the index");
        let count: i64 = again
            .query_row("SELECT count(*) FROM runs", [], |row| row.get(0))
            .expect(what);
        assert_eq!(count, 3, "{what}");
    }
    fs::remove_file(&place).expect("the index");
    assert_eq!(all(&runs).len(), 3);
}

#[test]
fn two_at_once_find_the_same_and_leave_a_sound_index() {
    let (_place, runs) = folder();
    for round in 0..8_u64 {
        if round % 2 == 0 {
            fs::write(runs.join("index.sqlite"), "damage").expect("the damage");
        }
        std::thread::scope(|scope| {
            let both = [scope.spawn(|| all(&runs)), scope.spawn(|| all(&runs))];
            for one in both {
                assert_eq!(one.join().expect("no panic").len(), 3);
            }
        });
    }
    let base = rusqlite::Connection::open(runs.join("index.sqlite")).expect("the index");
    let whole: String = base
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .expect("an answer");
    assert_eq!(whole, "ok");
}

#[test]
fn a_run_that_cannot_be_read_is_named_and_hides_no_other() {
    let (_place, runs) = folder();
    fs::write(runs.join("a-prove-7/run.json"), "{}").expect("the damage");
    fs::create_dir(runs.join("not a run")).expect("a folder");
    let found = document(&runs, &Filter::default(), false, &|_| {}).expect("a list");
    assert_eq!(found.runs.len(), 2);
    let [one] = &found.unreadable[..] else {
        panic!("{:?}", found.unreadable);
    };
    assert_eq!(one.run, "a-prove-7");
    assert!(one.why.contains("run.json"), "{}", one.why);
}

#[test]
fn the_index_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let (_place, runs) = folder();
    all(&runs);
    for name in ["index.sqlite", "index.sqlite.lock"] {
        let found = fs::metadata(runs.join(name)).expect(name);
        assert_eq!(found.permissions().mode() & 0o077, 0, "{name}");
    }
}

#[test]
fn a_state_folder_without_runs_has_none() {
    let place = tempfile::tempdir().expect("a folder");
    assert_eq!(all(&place.path().join("runs")), [""; 0]);
    fs::create_dir(place.path().join("runs")).expect("a folder");
    assert_eq!(all(&place.path().join("runs")), [""; 0]);
}

#[test]
fn the_index_is_kept_only_where_nobody_else_may_write() {
    use std::os::unix::fs::PermissionsExt;
    let (_place, runs) = folder();
    fs::set_permissions(&runs, fs::Permissions::from_mode(0o777)).expect("our own folder");
    assert_eq!(all(&runs).len(), 3);
    assert!(!runs.join("index.sqlite").exists() && !runs.join("index.sqlite.lock").exists());
    fs::set_permissions(&runs, fs::Permissions::from_mode(0o750)).expect("our own folder");
    assert_eq!(all(&runs).len(), 3);
    assert!(runs.join("index.sqlite").exists());
}
