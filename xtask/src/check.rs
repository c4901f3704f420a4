//! The gates before the tests: each is one command that anyone can type, run in this order, all of
//! them even when one fails.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use crate::deny::Policy;
use crate::tally::{Output, Tally};
use crate::tidy;

/// Runs every gate.
pub(crate) fn run(root: &Path) -> Tally {
    let mut tally = Tally::default();
    let mut gate = |name: &str, command: &mut Command| {
        heading(name);
        tally.add(Tally::of_gate(name, &capture(command.current_dir(root))));
    };
    gate("format", cargo().args(["fmt", "--all", "--check"]));
    let clippy = |targets: &[&str]| {
        let mut clippy = cargo();
        clippy.arg("clippy").args(targets);
        clippy.args(["--quiet", "--", "-D", "warnings"]);
        clippy
    };
    gate("clippy", &mut clippy(&["--workspace", "--all-targets"]));
    // `--all-targets` leaves out a target with `test = false`, and any other choice beside it.
    gate(
        "clippy of the tests in the virtual machine",
        &mut clippy(&["--package", "linerate", "--test", "vm"]),
    );
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
    let dependencies = Output {
        success: keeps_to_policy(root),
        ..Output::default()
    };
    tally.add(Tally::of_gate("dependencies", &dependencies));
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

/// Licences, banned crates and sources of all that is built, by `deny.toml`.
pub(crate) fn keeps_to_policy(root: &Path) -> bool {
    let breaches = std::fs::read_to_string(root.join("deny.toml"))
        .map_err(|error| format!("cannot read deny.toml: {error}"))
        .and_then(|text| Policy::read(&text))
        .and_then(|policy| Ok(policy.breaches(&metadata(root, &policy)?)))
        .unwrap_or_else(|error| vec![error]);
    for breach in &breaches {
        eprintln!("error: {breach}");
    }
    if !breaches.is_empty() {
        eprintln!("hint: deny.toml says what is allowed and why");
    }
    breaches.is_empty()
}

/// What cargo knows of everything that is built, without asking a registry. What only another target needs may not
/// have been fetched yet: then it is fetched, once.
fn metadata(root: &Path, policy: &Policy) -> Result<serde_json::Value, String> {
    let ask = || {
        let mut ask = cargo();
        ask.args(["metadata", "--format-version", "1", "--all-features"])
            .args(["--locked", "--offline"])
            .current_dir(root);
        for target in &policy.targets {
            ask.args(["--filter-platform", target]);
        }
        collect(&mut ask, &mut std::io::sink(), &mut std::io::sink())
    };
    let mut told = ask();
    if !told.success {
        capture(cargo().args(["fetch", "--locked"]).current_dir(root));
        told = ask();
    }
    if !told.success {
        return Err(format!("cargo metadata failed: {}", told.stderr.trim()));
    }
    serde_json::from_str(&told.stdout).map_err(|error| format!("cargo metadata: {error}"))
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
