//! The gates: each is one command that anyone can type, and all of them run even when one fails.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::deny::Policy;
use crate::jobs::{Job, Outcome};
use crate::tally::{Output, Tally};
use crate::tidy;

/// Selects the tests in the virtual machine with the features of all others. With `--test vm`, cargo leaves out what only
/// other packages' tests ask of shared dependencies, and builds nearly everything a second time.
pub(crate) const TESTS: [&str; 2] = ["--test", "*"];

/// All gates, in the order in which they start.
pub(crate) fn jobs(root: &Path) -> Vec<Job<'_>> {
    let mut document = niced(cargo().get_program());
    document.args(["doc", "--workspace", "--no-deps", "--quiet"]);
    document.env("RUSTDOCFLAGS", "-D warnings");
    // `--all-targets` leaves out a target with `test = false`, and any other choice beside it.
    let vm = clippy(
        niced(cargo().get_program()),
        &[&["--workspace"], &TESTS[..]].concat(),
    );
    let all = clippy(niced(cargo().get_program()), &ALL);
    vec![
        format(root, &["--check"]),
        Job::new("tidy", move || gate("tidy", tidy::run(root))),
        Job::new("dependencies", move || {
            gate("dependencies", dependencies(root))
        }),
        command(root, "bundle", bundle(root)),
        command(root, "clippy", all),
        command(root, "clippy of the tests in the virtual machine", vm),
        command(root, "documentation", document),
    ]
}

/// The checks to run after each change: no slow tests, none that need the machine.
pub(crate) fn quick(root: &Path) -> Vec<Job<'_>> {
    vec![
        format(root, &["--check"]),
        command(root, "clippy", clippy(cargo(), &ALL)),
        tests(root, "unit tests", &["--workspace", "--lib", "--bins"]),
        tests(
            root,
            "captured hosts",
            &["--package", "linerate", "--test", "captured"],
        ),
    ]
}

/// The tests of the rules alone, which are among all tests.
pub(crate) fn rules(root: &Path) -> Job<'_> {
    let rules = ["--package", "linerate-model", "--lib", "rules::"];
    tests(root, "every rule fires, is silent and is skipped", &rules)
}

/// The schemas below `schema/`, compared with the types that they are generated from.
pub(crate) fn schemas(root: &Path) -> Job<'_> {
    tests(root, "schemas", &SCHEMAS)
}

/// Generates the schemas below `schema/`.
pub(crate) fn write_schemas(root: &Path) -> Job<'_> {
    let mut write = cargo();
    write.args(["test", "--quiet"]).args(SCHEMAS);
    write.env("LINERATE_BLESS", "1");
    command(root, "schemas", write)
}

const SCHEMAS: [&str; 4] = ["--package", "linerate", "--lib", "schemas::"];

/// Formats the sources, or with `--check` only says which differ.
pub(crate) fn format<'a>(root: &'a Path, arguments: &'static [&str]) -> Job<'a> {
    const NAME: &str = "format";
    Job::new(NAME, move || {
        let mut all = cargo();
        all.args(["fmt", "--all", "--"]).args(arguments);
        let mut output = collect(all.current_dir(root));
        // A macro declares the modules of the rules, which cargo fmt does not find.
        let mut rules = Command::new("rustfmt");
        rules.args(["--edition", "2024"]).args(arguments);
        let files = std::fs::read_dir(root.join("crates/model/src/rules"));
        let files = files
            .into_iter()
            .flatten()
            .flatten()
            .map(|file| file.path());
        let files = files.map(|path| {
            if path.is_dir() {
                path.join("mod.rs")
            } else {
                path
            }
        });
        rules.args(files.filter(|path| path.extension().is_some_and(|end| end == "rs")));
        let more = collect(rules.current_dir(root));
        output.stdout += &more.stdout;
        output.stderr += &more.stderr;
        output.success &= more.success;
        gate(NAME, output)
    })
}

const ALL: [&str; 2] = ["--workspace", "--all-targets"];

fn clippy(mut clippy: Command, targets: &[&str]) -> Command {
    clippy.arg("clippy").args(targets);
    clippy.args(["--quiet", "--", "-D", "warnings"]);
    clippy
}

fn command<'a>(root: &'a Path, name: &'static str, mut command: Command) -> Job<'a> {
    Job::new(name, move || gate(name, collect(command.current_dir(root))))
}

fn tests<'a>(root: &'a Path, name: &'static str, which: &[&str]) -> Job<'a> {
    let mut test = cargo();
    test.args(["test", "--quiet", "--no-fail-fast"]).args(which);
    command(root, name, test)
}

fn gate(name: &str, output: Output) -> Outcome {
    let tally = Tally::of_gate(name, &output);
    Outcome { output, tally }
}

fn bundle(root: &Path) -> Command {
    const SCRIPT: &str = "web/check-bundle.sh";
    let mut command = Command::new("bash");
    if root.join(SCRIPT).exists() {
        command.arg(SCRIPT);
    } else {
        command.args(["-c", &format!("echo 'SKIP: {SCRIPT} is not there'")]);
    }
    command
}

/// Licenses, banned crates and sources of everything that is built, by `deny.toml`.
pub(crate) fn dependencies(root: &Path) -> Output {
    let breaches = std::fs::read_to_string(root.join("deny.toml"))
        .map_err(|error| format!("cannot read deny.toml: {error}"))
        .and_then(|text| Policy::read(&text))
        .and_then(|policy| Ok(policy.breaches(&metadata(root, &policy)?)))
        .unwrap_or_else(|error| vec![error]);
    let mut output = Output {
        success: breaches.is_empty(),
        ..Output::default()
    };
    for breach in &breaches {
        let _ = writeln!(output.stderr, "error: {breach}");
    }
    if !output.success {
        output.stderr += "hint: deny.toml says what is allowed and why\n";
    }
    output
}

/// The metadata of everything that is built for the targets of deny.toml.
pub(crate) fn metadata_of_targets(root: &Path) -> Result<serde_json::Value, String> {
    let text = std::fs::read_to_string(root.join("deny.toml"))
        .map_err(|error| format!("cannot read deny.toml: {error}"))?;
    metadata(root, &Policy::read(&text)?)
}

/// The metadata of everything that is built, without network access. Dependencies of other targets may not have been
/// fetched yet: then they are fetched, once.
fn metadata(root: &Path, policy: &Policy) -> Result<serde_json::Value, String> {
    let ask = || {
        let mut ask = cargo();
        ask.args(["metadata", "--format-version", "1", "--all-features"])
            .args(["--locked", "--offline"])
            .current_dir(root);
        for target in &policy.targets {
            ask.args(["--filter-platform", target]);
        }
        collect(&mut ask)
    };
    let mut answer = ask();
    if !answer.success {
        collect(cargo().args(["fetch", "--locked"]).current_dir(root));
        answer = ask();
    }
    if !answer.success {
        return Err(format!("cargo metadata failed: {}", answer.stderr.trim()));
    }
    serde_json::from_str(&answer.stdout).map_err(|error| format!("cargo metadata: {error}"))
}

/// The cargo that started this program, or the one on the path.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// A program at a low priority (nice(1)): it computes all the time, in parallel with tests that measure.
pub(crate) fn niced(program: impl AsRef<OsStr>) -> Command {
    let mut nice = Command::new("nice");
    nice.arg(program);
    nice
}

/// Runs a command to its end, without standard input.
pub(crate) fn collect(command: &mut Command) -> Output {
    match command.stdin(Stdio::null()).output() {
        Ok(ended) => Output {
            stdout: String::from_utf8_lossy(&ended.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&ended.stderr).into_owned(),
            success: ended.status.success(),
        },
        Err(error) => Output {
            stderr: format!("cannot start {}: {error}", command.get_program().display()),
            ..Output::default()
        },
    }
}
