//! Development tasks: `cargo xtask fmt|quick|check|schemas|test|test-vm|tidy|reports`.
//!
//! Called by `make`, which checks the toolchain first.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a developer's tool that talks to its terminal"
)]

mod cast;
mod check;
mod deny;
mod jobs;
mod reports;
mod sbom;
mod tally;
mod test_run;
mod tidy;
mod user;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask fmt | quick | check | deny | schemas | test | test-vm | tidy | sbom | cast | reports

  fmt     format the sources, also those that cargo fmt does not find
  quick   format, lints, unit tests and the tests on captured hosts
  check   format, lints, documentation, the rules' own cases, schemas, the page's bundle, dependencies, tidy
  deny    only licences, bans and sources of dependencies, by deny.toml
  schemas generate schema/*.json from the types of the documents
  test    check, then every test; as root also a second time as an ordinary user
  test-vm only the tests in the virtual machine
  tidy    only the house rules that no other tool knows
  sbom    print what the program contains, as CycloneDX
  cast    record docs/cast/session.txt and draw docs/pictures/session.svg
  reports redo the field reports at small size, as root; names such as `002` select some";

fn main() -> ExitCode {
    let root = root();
    match std::env::args().nth(1).as_deref() {
        Some("check") => {
            let mut gates = check::jobs(&root);
            gates.push(check::rules(&root));
            gates.push(check::schemas(&root));
            closing_line(&jobs::run(gates))
        }
        Some("quick") => closing_line(&jobs::run(check::quick(&root))),
        Some("fmt") => closing_line(&jobs::run(vec![check::format(&root, &[])])),
        Some("test") => closing_line(&test_run::run(&root)),
        Some("test-vm") => closing_line(&test_run::vm(&root)),
        Some("schemas") => closing_line(&jobs::run(vec![check::write_schemas(&root)])),
        Some("deny") => shown(&check::dependencies(&root)),
        Some("tidy") => shown(&tidy::run(&root)),
        Some("sbom") => printed(sbom::document(&root).map(|document| format!("{document:#}\n"))),
        Some("cast") => printed(cast::run(&root)),
        Some("reports") => printed(reports::run(
            &root,
            &std::env::args().skip(2).collect::<Vec<_>>(),
        )),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn printed(text: Result<String, String>) -> ExitCode {
    shown(&match text {
        Ok(stdout) => tally::Output {
            stdout,
            success: true,
            ..tally::Output::default()
        },
        Err(error) => tally::Output {
            stderr: format!("error: {error}\n"),
            ..tally::Output::default()
        },
    })
}

fn shown(output: &tally::Output) -> ExitCode {
    print!("{}", output.stdout);
    eprint!("{}", output.stderr);
    if output.success {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The workspace directory.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the workspace's folder")
        .to_owned()
}

/// Repeats what failed and what was skipped, so that it is not lost in the log, and ends with the total on a line of
/// its own.
fn closing_line(tally: &tally::Tally) -> ExitCode {
    println!();
    for skip in &tally.skips {
        println!("skipped: {skip}");
    }
    for failure in &tally.failures {
        println!("FAILED: {failure}");
    }
    println!("{tally}");
    if tally.failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
