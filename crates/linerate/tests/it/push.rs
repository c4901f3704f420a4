//! `--push` to a remote end on this machine: an `ssh` of our own runs what it is given with another home folder.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::geteuid;
use tempfile::TempDir;

use crate::job::{Done, linerate, run};
use crate::lab::text;

/// A remote end: its home, and a folder with programs that its shell finds first.
struct Far {
    folder: TempDir,
}

impl Far {
    /// `on_the_way` is a filter for what goes to the remote end, `cat` for none.
    fn new(on_the_way: &str) -> Self {
        let far = Self {
            folder: tempfile::tempdir().expect("a temporary folder"),
        };
        for name in ["home", "near", "far", "state"] {
            let folder = far.path(name);
            fs::create_dir(&folder).expect("a folder of our own");
            set_mode(&folder, 0o700);
        }
        // The agent is talked to line by line: only what is copied passes the filter.
        let ssh = format!(
            "for last; do :; done\nexport HOME='{}' PATH='{}':\"$PATH\"\n\
             case $last in *agent*) exec sh -c \"$last\" ;; esac\n{on_the_way} | sh -c \"$last\"",
            far.path("home").display(),
            far.path("far").display(),
        );
        far.program("near/ssh", &ssh);
        far
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn cache(&self) -> PathBuf {
        self.path("home/.cache/linerate")
    }

    fn program(&self, name: &str, script: &str) {
        crate::job::script(&self.path(name), script);
    }

    /// The command that measures with a copy at the remote end.
    fn measure(&self) -> Command {
        let state = self.path("state");
        let mut command = linerate(&["--state", text(&state), "measure", "stream"]);
        command.args([
            "me@apricot",
            "--push",
            "--address",
            "127.0.0.1",
            "--time",
            "0.2",
        ]);
        let path = std::env::var("PATH").expect("a search path");
        command.env("PATH", format!("{}:{path}", self.path("near").display()));
        command
    }

    #[track_caller]
    fn refuses(&self, words: &[&str]) {
        let done = run(self.measure()).expect_code(21);
        for word in words {
            assert!(done.err.contains(word), "no {word:?} in {}", done.err);
        }
    }

    /// What is in the cache.
    fn copies(&self) -> Vec<PathBuf> {
        let all = fs::read_dir(self.cache()).expect("the cache").flatten();
        all.map(|entry| entry.path()).collect()
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("our own");
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).expect("it is there").ino()
}

#[test]
fn a_copy_is_sent_once_and_again_only_when_it_is_not_this_build() {
    let far = Far::new("cat");
    run(far.measure()).expect_code(0);
    let copies = far.copies();
    let [copy] = &copies[..] else {
        panic!("{copies:?}")
    };
    let own = fs::read(crate::LINERATE).expect("the program under test");
    assert!(fs::read(copy).expect("the copy") == own, "another program");
    let mode = |path: &Path| fs::metadata(path).expect("it is there").mode() & 0o7777;
    assert_eq!((mode(copy), mode(&far.cache())), (0o700, 0o700));

    let first = inode(copy);
    run(far.measure()).expect_code(0);
    assert_eq!(inode(copy), first, "sent again");

    // Another program under the name of the copy: it would end with code 99.
    fs::write(copy, "#!/bin/sh\nexit 99\n").expect("our own file");
    run(far.measure()).expect_code(0);
    assert!(fs::read(copy).expect("the copy") == own, "not replaced");

    // One that others may write is not used, whatever it holds now.
    let second = inode(copy);
    set_mode(copy, 0o722);
    run(far.measure()).expect_code(0);
    assert_ne!(inode(copy), second, "used as it was");
    assert_eq!(far.copies(), copies, "something is left over");
}

#[test]
fn a_copy_that_changed_on_the_way_is_not_started() {
    let far = Far::new("{ cat; echo; }");
    let done = run(far.measure()).expect_code(20);
    assert!(done.err.contains("checksum"), "{}", done.err);
    assert_eq!(
        far.copies(),
        Vec::<PathBuf>::new(),
        "something is left over"
    );
}

#[test]
fn two_pushes_at_once_do_not_disturb_each_other() {
    let far = Far::new("cat");
    // A second push, from its begin to its end, just before the first one gives the copy its name.
    let marks = (far.path("second-begins"), far.path("second-ended"));
    let near_path = far.measure();
    let path = near_path.get_envs().find(|(name, _)| *name == "PATH");
    let path = path
        .and_then(|(_, path)| path?.to_str())
        .expect("set above");
    let words: Vec<&str> = near_path
        .get_args()
        .filter_map(|word| word.to_str())
        .collect();
    let chmod = format!(
        "if [ ! -e '{begins}' ]; then\n: > '{begins}'\n\
         PATH='{path}' '{program}' {words} > /dev/null 2>&1 || exit 1\n: > '{ended}'\nfi\n\
         PATH='{path}' exec chmod \"$@\"",
        begins = marks.0.display(),
        ended = marks.1.display(),
        program = crate::LINERATE,
        words = words.join(" "),
    );
    far.program("far/chmod", &chmod);
    run(far.measure()).expect_code(0);
    assert!(marks.1.exists(), "the second push failed");
    assert_eq!(far.copies().len(), 1, "{:?}", far.copies());
}

#[test]
fn a_cache_folder_that_others_may_write_is_refused() {
    let far = Far::new("cat");
    fs::create_dir_all(far.cache()).expect("our own home");
    let cache = fs::canonicalize(far.cache()).expect("it is there");
    let above = cache.parent().expect("it has one");
    for mode in [0o777, 0o720, 0o702, 0o1777] {
        set_mode(&cache, mode);
        far.refuses(&["is writable by other users", text(&cache), "chmod go-w"]);
    }
    set_mode(&cache, 0o700);
    set_mode(above, 0o777);
    far.refuses(&["is writable by other users", text(above), "chmod go-w"]);
    set_mode(above, 0o755);
    assert_eq!(far.copies(), Vec::<PathBuf>::new(), "it was written to");

    let elsewhere = far.path("elsewhere");
    fs::rename(&cache, &elsewhere).expect("our own home");
    symlink(&elsewhere, &cache).expect("our own home");
    far.refuses(&["symbolic link", ".cache/linerate"]);
    assert_eq!(far.copies(), Vec::<PathBuf>::new(), "it was written to");
}

#[test]
fn a_cache_folder_of_another_user_is_refused() {
    if !geteuid().is_root() {
        eprintln!("SKIP: only root can give a folder to another user");
        return;
    }
    let far = Far::new("cat");
    fs::create_dir_all(far.cache()).expect("our own home");
    chown(far.cache(), Some(65_534), None).expect("root may");
    far.refuses(&["belongs to another user", ".cache/linerate"]);
    assert_eq!(far.copies(), Vec::<PathBuf>::new(), "it was written to");
}

#[test]
fn a_far_end_that_floods_standard_error_is_quoted_briefly() {
    let flood = "printf 'beg\\033[2Jin'; head -c 30000000 /dev/zero | tr '\\0' x; echo end";
    let brief = |done: &Done| {
        let Done { err, .. } = done;
        assert!(err.len() < 8 << 10, "{} bytes", err.len());
        assert!(err.contains("beg\u{fffd}[2Jinxxx"), "{err}");
        assert!(
            err.contains("bytes omitted") && err.contains("xxxend"),
            "{err}"
        );
    };
    let far = Far::new("cat");
    far.program("near/ssh", &format!("{{ {flood}; }} >&2; exit 1"));
    brief(&run(far.measure()).expect_code(20));
    let mut command = linerate(&["measure", "stream"]);
    command.arg(format!("exec:{{ {flood}; }} >&2; exit 1"));
    brief(&run(command).expect_code(20));
}
