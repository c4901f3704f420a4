//! What `linerate --version` shows of the build: the commit and the target.
//!
//! The commit comes from `LINERATE_COMMIT` (a source archive, a package), else from git. A debug build has none: a
//! developer's next commit would compile the crate again.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=LINERATE_COMMIT");
    let variable = |name: &str| env::var(name).unwrap_or_default();
    println!("cargo::rustc-env=LINERATE_COMMIT={}", commit(&variable));
    println!("cargo::rustc-env=LINERATE_TARGET={}", variable("TARGET"));
}

/// The commit that is built, or why it is not recorded.
fn commit(variable: &dyn Fn(&str) -> String) -> String {
    let given = variable("LINERATE_COMMIT");
    if !given.is_empty() {
        return given;
    }
    if variable("PROFILE") == "debug" {
        return "not recorded (debug build)".to_owned();
    }
    let root = Path::new("../..");
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .args(arguments)
            .current_dir(root)
            .output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    // A source archive in the work tree of something else has that one's commit.
    let is_own = git(&["rev-parse", "--show-prefix"]).is_some_and(|prefix| prefix.is_empty());
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).filter(|_| is_own);
    let Some(commit) = commit else {
        return "not recorded (not built in a git work tree)".to_owned();
    };
    // Everything that is compiled: a change of it must be seen, and is no part of the commit.
    let sources = ["Cargo.toml", "Cargo.lock", "crates", "testbed", "docs"];
    for source in sources {
        println!("cargo::rerun-if-changed=../../{source}");
    }
    if let Some(log) = git(&[
        "rev-parse",
        "--path-format=absolute",
        "--git-path",
        "logs/HEAD",
    ]) {
        println!("cargo::rerun-if-changed={log}");
    }
    let changed = [&["status", "--porcelain", "--"][..], &sources].concat();
    match git(&changed) {
        Some(changes) if changes.is_empty() => commit,
        _ => format!("{commit}, with changes"),
    }
}
