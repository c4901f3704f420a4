//! The gates before the tests: each is one command that anyone can type, run in this order, all of
//! them even when one fails.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use crate::tally::{Output, Tally};
use crate::tidy;

/// The version of cargo-deny whose configuration `deny.toml` speaks.
const DENY_VERSION: &str = "~0.20";

/// Runs every gate.
pub(crate) fn run(root: &Path) -> Tally {
    let mut tally = Tally::default();
    let mut gate = |name: &str, command: &mut Command| {
        heading(name);
        tally.add(Tally::of_gate(name, &capture(command.current_dir(root))));
    };
    gate("format", cargo().args(["fmt", "--all", "--check"]));
    let clippy = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--test",
        "vm",
        "--quiet",
        "--",
    ];
    gate("clippy", cargo().args(clippy).args(["-D", "warnings"]));
    gate(
        "documentation",
        cargo()
            .args(["doc", "--workspace", "--no-deps", "--quiet"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    );
    gate(
        "every rule fires, is silent and is undetermined",
        cargo().args([
            "test",
            "--package",
            "linerate-model",
            "--lib",
            "--quiet",
            "rules::",
        ]),
    );
    gate_if_there(root, "web/check-bundle.sh", &mut gate);
    heading("dependencies");
    tally.add(Tally::of_gate("dependencies", &deny(root)));
    heading("tidy");
    let tidy = Output {
        success: tidy::run(root),
        ..Output::default()
    };
    tally.add(Tally::of_gate("tidy", &tidy));
    tally
}

fn gate_if_there(root: &Path, script: &str, gate: &mut impl FnMut(&str, &mut Command)) {
    if root.join(script).exists() {
        gate("bundle", Command::new("bash").arg(script));
    } else {
        let say = format!("echo 'SKIP: {script} is not there'");
        gate("bundle", Command::new("sh").args(["-c", &say]));
    }
}

/// `cargo deny`, installed below `target/` when this machine has none.
fn deny(root: &Path) -> Output {
    let tools = root.join("target/tools");
    let program = find_deny(&tools).or_else(|| {
        println!("cargo-deny is not installed: building it once into target/tools (5 minutes)");
        let mut install = cargo();
        install
            .args(["install", "cargo-deny", "--locked", "--debug"])
            .args(["--version", DENY_VERSION, "--root"])
            .arg(&tools);
        capture(&mut install).success.then(|| find_deny(&tools))?
    });
    if let Some(program) = program {
        let check = ["deny", "check", "bans", "licenses", "sources"];
        return capture(Command::new(program).args(check).current_dir(root));
    }
    let reason = "SKIP: cargo-deny is neither installed nor to be had (no network?): cargo install \
                  cargo-deny --locked";
    println!("{reason}");
    Output {
        stdout: reason.to_owned(),
        success: true,
        ..Output::default()
    }
}

fn find_deny(tools: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([tools.join("bin")])
        .map(|folder| folder.join("cargo-deny"))
        .find(|file| file.is_file())
}

/// The cargo that started this program, or the one on the path.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Says on standard output what comes next.
pub(crate) fn heading(name: &str) {
    println!("\n== {name}");
}

/// Runs a command without standard input, showing what it prints while keeping it.
pub(crate) fn capture(command: &mut Command) -> Output {
    collect(command, &mut std::io::stdout(), &mut std::io::stderr())
}

/// Runs a test program. In CI, whose readers see a part of a long log only, what it prints is shown when it has
/// failed; of one that passed only its result. Skips are told at the end of all.
pub(crate) fn capture_tests(command: &mut Command) -> Output {
    if std::env::var_os("CI").is_none() {
        return capture(command);
    }
    let output = collect(command, &mut std::io::sink(), &mut std::io::sink());
    let Output { stdout, stderr, .. } = &output;
    for line in stdout.lines().chain(stderr.lines()) {
        if !output.success || line.starts_with("test result: ") {
            println!("{line}");
        }
    }
    output
}

fn collect(
    command: &mut Command,
    shown: &mut impl Write,
    errors: &mut (impl Write + Send),
) -> Output {
    let spawned = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            eprintln!("cannot start {}: {error}", command.get_program().display());
            return Output::default();
        }
    };
    let stderr = child.stderr.take().expect("it was asked to be a pipe");
    let stdout = child.stdout.take().expect("it was asked to be a pipe");
    let (stdout, stderr) = thread::scope(|scope| {
        let stderr = scope.spawn(|| copy(stderr, errors));
        (copy(stdout, shown), stderr.join().unwrap_or_default())
    });
    let success = child.wait().is_ok_and(|status| status.success());
    Output {
        stdout,
        stderr,
        success,
    }
}

fn copy(from: impl Read, to: &mut impl Write) -> String {
    let mut from = BufReader::new(from);
    let mut kept = String::new();
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        // A terminal that went away must not stop the tests.
        let _ = to.write_all(&line).and_then(|()| to.flush());
        kept.push_str(&String::from_utf8_lossy(&line));
        line.clear();
    }
    kept
}
