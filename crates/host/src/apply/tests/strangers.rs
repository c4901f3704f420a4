//! A journal or a kept set that another user may have written is not trusted.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use crate::apply::journal::Journal;
use crate::apply::{
    Header, JournalOptions, Outcome, REVERTING, Reach, Surroundings, journal_listing, kept_set,
    recover,
};

/// A state directory with the journal of an ended process; its directory.
fn left_behind() -> (tempfile::TempDir, PathBuf) {
    let state = tempfile::tempdir().expect("a folder");
    let header = Header::here(1).expect("this process");
    let journal =
        Journal::create(state.path(), &header, &JournalOptions::NOBODY).expect("a journal");
    let folder = journal.folder().to_owned();
    (state, folder)
}

/// The result of a recovery; none if it cannot even list the journals.
fn recovered(state: &Path, is_believed: bool) -> Option<Outcome> {
    let boot_id = crate::apply::boot_id().expect("a boot");
    let reach = |_: &_| {
        assert!(is_believed, "a stranger's journal was believed");
        Reach::Gone
    };
    let around = Surroundings {
        boot_id: &boot_id,
        is_alive: &|_| false,
        reach: &reach,
        patience: REVERTING,
        beside: &JournalOptions::NOBODY,
    };
    recover(state, &around).ok()?.pop().map(|one| one.outcome)
}

#[track_caller]
fn assert_left_alone(state: &Path) {
    match recovered(state, false) {
        None | Some(Outcome::LeftAlone(_)) => {}
        other => panic!("{other:?}"),
    }
    match journal_listing(state) {
        Err(_) => {}
        Ok(listed) => assert!(listed.iter().all(|one| one.journal.is_err()), "{listed:?}"),
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("our own");
}

#[test]
fn a_journal_behind_a_link_is_not_believed() {
    let (state, folder) = left_behind();
    let (journal, elsewhere) = (folder.join("journal"), state.path().join("elsewhere"));
    fs::rename(&journal, &elsewhere).expect("our own");
    symlink(&elsewhere, &journal).expect("a link");
    assert_left_alone(state.path());
    // The file itself is.
    fs::rename(&elsewhere, &journal).expect("our own");
    assert!(matches!(
        recovered(state.path(), true),
        Some(Outcome::NothingLeft(_))
    ));
}

#[test]
fn a_journal_that_others_may_write_or_replace_is_not_believed() {
    let (state, folder) = left_behind();
    let all = folder.parent().expect("a folder").to_owned();
    for at_fault in [folder.join("journal"), folder, all] {
        set_mode(&at_fault, 0o777);
        assert_left_alone(state.path());
        set_mode(&at_fault, 0o700);
    }
    set_mode(state.path(), 0o777);
    assert_left_alone(state.path());
    assert!(
        Journal::create(
            state.path(),
            &Header::here(1).expect("this process"),
            &JournalOptions::NOBODY
        )
        .is_err()
    );
    set_mode(state.path(), 0o755);
    assert!(recovered(state.path(), true).is_some());
}

#[test]
#[expect(
    clippy::print_stderr,
    reason = "a test that cannot run says so where the runner counts it"
)]
fn a_journal_below_a_folder_or_a_link_of_another_user_is_not_believed_by_root() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIP: only root can give a folder to another user");
        return;
    }
    let (state, folder) = left_behind();
    let around = tempfile::tempdir().expect("a folder");
    let link = around.path().join("link");
    symlink(state.path(), &link).expect("a link");
    for at_fault in [
        folder.join("journal"),
        folder,
        state.path().to_owned(),
        link.clone(),
    ] {
        lchown(&at_fault, Some(1), None).expect("given away");
        assert_left_alone(&link);
        lchown(&at_fault, Some(0), None).expect("taken again");
    }
    chown(around.path(), Some(1), None).expect("given away");
    assert_left_alone(&link);
    assert!(recovered(state.path(), true).is_some());
}

#[test]
fn a_kept_set_that_is_a_link_or_that_others_may_write_is_not_believed() {
    let state = tempfile::tempdir().expect("a folder");
    let place = state.path().join("boot/kept.json");
    fs::create_dir(state.path().join("boot")).expect("a folder");
    fs::write(&place, r#"{"version":1,"kept":[]}"#).expect("written");
    let is_believed = || kept_set(state.path()).is_ok();
    assert!(is_believed());
    set_mode(&place, 0o666);
    assert!(!is_believed());
    set_mode(&place, 0o600);
    let elsewhere = state.path().join("elsewhere");
    fs::rename(&place, &elsewhere).expect("our own");
    symlink(&elsewhere, &place).expect("a link");
    assert!(!is_believed());
}
