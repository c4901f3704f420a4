//! Folders and programs that another user owns or may write to.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::job::run;
use crate::lab::text;
use crate::lease::note_of_a_command;

#[test]
fn root_uses_no_state_folder_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIP: only root can give a folder to another user");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    fs::create_dir(&state).expect("a folder");
    let (trace, peer) = note_of_a_command(&state);
    std::os::unix::fs::chown(&state, Some(1), None).expect("given away");
    for given in [&state, &state.join("deeper")] {
        let mut command = Command::new(crate::LINERATE);
        command.arg("--state").arg(given);
        command.args(["tune", "recover", "--peer", &peer]);
        let refused = run(command).expect_code(23);
        assert!(
            refused.err.contains("as root's state directory"),
            "{}",
            refused.err
        );
        assert!(refused.err.contains("(uid 1)"), "{}", refused.err);
        assert!(refused.err.contains("hint: "), "{}", refused.err);
    }
    assert!(!trace.exists());
}

#[test]
fn persist_refuses_a_program_that_others_may_replace() {
    // Not below /tmp, which is for all.
    let Ok(folder) = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")) else {
        eprintln!("SKIP: the checkout is another user's");
        return;
    };
    let (program, etc) = (folder.path().join("linerate"), folder.path().join("etc"));
    crate::job::install(crate::LINERATE, &program);
    fs::create_dir(&etc).expect("a folder");
    let set_mode = |path: &Path, mode: u32| {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("our own");
    };
    let persist = || {
        let mut command = Command::new(&program);
        let state = folder.path().join("state");
        command.args([
            "--state",
            text(&state),
            "tune",
            "persist",
            "--etc",
            text(&etc),
        ]);
        run(command).expect_code(23).err
    };
    set_mode(&program, 0o755);
    let with_nothing_to_keep = persist();
    if with_nothing_to_keep.contains(" at boot: other users may write to ") {
        eprintln!("SKIP: others may write to a folder above this checkout: {with_nothing_to_keep}");
        return;
    }
    assert!(
        with_nothing_to_keep.contains("no transaction is applied"),
        "{with_nothing_to_keep}"
    );
    set_mode(&program, 0o777);
    let refused = persist();
    let why = format!("other users may write to {} (mode 0777)", text(&program));
    assert!(refused.contains(&why), "{refused}");
    assert!(refused.contains("install it below /usr/local"), "{refused}");
    set_mode(&program, 0o755);
    set_mode(&etc, 0o777);
    let refused = persist();
    assert!(refused.contains("cannot write boot files"), "{refused}");
    assert!(refused.contains("(mode 0777)"), "{refused}");
}
