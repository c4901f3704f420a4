//! The program for people: its commands.
//!
//! Each folder is a room, and a room knows only those below it: `commands`, `demo` and `tune` · `lab` · `prove`,
//! `measure` and `mesh` · `metrics`. They stand on `linerate_runtime`, which has the command line, the terminal and the two ends of a
//! path: a session (of `prove`, `lab`) runs trials between them, `linerate_store` keeps the raw records,
//! `linerate_analysis` evaluates them, `linerate_report` shows the result.

#![forbid(unsafe_code)]

mod commands;
mod demo;
mod failover;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod kept;
pub mod lab;
mod measure;
mod mesh;
mod metrics;
pub mod prove;
mod qos;
#[cfg(test)]
mod schemas;
mod stored_runs;
mod tune;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;

use clap::FromArgMatches;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_runtime::cli::{Cli, Command, TuneAction};
use linerate_runtime::console::say::Say;
use linerate_runtime::{cli, console, endpoint};

use crate::commands::ceiling::TypedOptions;
use crate::metrics::MetricsOutput;

/// Parses the command line, runs the command, and turns its result into an exit code.
pub fn run() -> ExitCode {
    console::say::panics();
    let mut command = cli::help::command();
    let parsed = command.try_get_matches_from_mut(std::env::args_os());
    let parsed = parsed.and_then(|matches| {
        let words = std::env::args_os();
        let (matches, like) = cli::like::completed(&mut command, matches, words)?;
        let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        Ok((cli, TypedOptions::of(&matches), like))
    });
    let (cli, typed, like) = match parsed {
        // A program that reads the output did not mean to check this host.
        Ok((cli @ Cli { command: None, .. }, ..))
            if cli.format() == cli::FormatArg::Text && !console::say::is_on_terminal() =>
        {
            console::say::help(&command.render_help().to_string());
            return ExitCode::from(Code::Usage.number());
        }
        Ok(parsed) => parsed,
        Err(error) => {
            // Help and version arrive here too; clap knows which stream each belongs to.
            let error = cli::help::plain(error);
            console::say::usage(&error);
            return ExitCode::from(if error.use_stderr() {
                Code::Usage.number()
            } else {
                0
            });
        }
    };
    let say = Say {
        format: cli.format().into(),
        quiet: cli.quiet,
    };
    if let Some(like) = like {
        say.note(&like);
    }
    let result =
        catch_unwind(AssertUnwindSafe(|| carry_out(&cli, &typed, &say))).unwrap_or_else(|_| {
            Err(Stop::new(Code::Bug, "this is a bug in linerate").hint(
                "please report it with the message above and the command line; `linerate tune \
                 status` lists what is not rolled back",
            ))
        });
    match result {
        Ok(code) => ExitCode::from(code),
        Err(stop) => {
            say.stop(&stop);
            ExitCode::from(stop.code.number())
        }
    }
}

/// Returns the exit code: one of [`Code`]'s, or that of a command that was run.
fn carry_out(cli: &Cli, typed: &TypedOptions, say: &Say) -> Outcome<u8> {
    let command = cli.command.as_ref();
    check_format(cli.format(), command)?;
    let state = cli::state_folder::state_folder(cli.state.as_deref())?;
    let metrics = MetricsOutput::to(command.and_then(Command::metrics_file));
    let outcome = match command {
        None => commands::check::run(say).map(|()| Code::Done.number()),
        Some(command) => dispatch(command, cli.format(), typed, &state, &metrics, say),
    };
    outcome.inspect_err(|stop| metrics.warn_unwritten(stop))
}

/// Refuses a format that the command does not have.
fn check_format(format: cli::FormatArg, command: Option<&Command>) -> Outcome<()> {
    let picture = matches!(format, cli::FormatArg::Dot | cli::FormatArg::Svg);
    if picture && !matches!(command, Some(Command::Map(_))) {
        return Err(Stop::new(
            Code::Usage,
            "only `map` can be printed as dot or svg",
        ));
    }
    let of_doctor = matches!(command, Some(Command::Doctor(_)));
    if matches!(format, cli::FormatArg::Sarif) && !of_doctor {
        let why = "only `doctor` can be printed as sarif";
        return Err(Stop::new(Code::Usage, why));
    }
    let of_gate = matches!(command, Some(Command::Measure { .. }));
    if matches!(format, cli::FormatArg::Junit) && !of_doctor && !of_gate {
        let why = "only `doctor`, and `measure` with `--require`, can be printed as junit";
        return Err(Stop::new(Code::Usage, why));
    }
    let foreign = matches!(format, cli::FormatArg::Iperf3Json);
    if foreign && !matches!(command, Some(Command::Measure { .. })) {
        return Err(Stop::new(
            Code::Usage,
            "only `measure stream` and `measure udp` can be printed as iperf3-json",
        ));
    }
    let has_metrics = matches!(
        command,
        Some(Command::Doctor(_) | Command::Measure { .. } | Command::Mesh(_) | Command::Prove(_))
    );
    if format == cli::FormatArg::Openmetrics && !has_metrics {
        return Err(Stop::new(
            Code::Usage,
            "only `doctor`, `measure`, `mesh` and `prove` can be printed as openmetrics",
        ));
    }
    Ok(())
}

fn dispatch(
    command: &Command,
    format: cli::FormatArg,
    typed: &TypedOptions,
    state: &Path,
    metrics: &MetricsOutput<'_>,
    say: &Say,
) -> Outcome<u8> {
    let done = |()| Code::Done.number();
    match command {
        Command::Demo(args) => demo::run(args, state, say).map(done),
        Command::Map(args) => commands::map::run(args, format, say).map(done),
        Command::Nic(args) => commands::nic::run(args, format, say).map(done),
        Command::Doctor(args) => {
            commands::doctor::run(args, format, metrics, say).map(Code::number)
        }
        Command::Explain { rule } => commands::doctor::explain(rule, say).map(done),
        Command::Ceiling(args) => commands::ceiling::run(args, typed, state, say).map(done),
        Command::Measure {
            verbose,
            store,
            action,
            ..
        } => measure::run(action, *verbose, format, (state, store), metrics, say).map(done),
        Command::Failover(args) => failover::run(args, state, say).map(done),
        Command::Mesh(args) => mesh::run(args, state, say),
        Command::Prove(args) => prove::prove(args, state, metrics, say).map(done),
        Command::Lab { action } => lab::run(action, state, say).map(done),
        Command::Compare(args) => lab::compare::run(args, state, say).map(done),
        Command::Tune {
            action: TuneAction::Hold(args),
        } => tune::hold::run(args, state, say),
        Command::Tune { action } => tune::run(action, state, say).map(done),
        Command::Qos { action } => qos::run(action, state, say).map(done),
        Command::Agent(args) => match &args.action {
            Some(action) => commands::pairings::agent(action, state, say).map(done),
            None => endpoint::agent::run(args, state, say).map(done),
        },
        Command::Peers { action } => commands::pairings::peers(action, state, say).map(done),
        Command::Channel { at } => endpoint::listen::connect(at, state),
        Command::Relay { to, from, terms } => endpoint::launch::relay(to, from, *terms).map(done),
        Command::Conductor => endpoint::conductor::process::run().map(done),
        Command::Launcher => lab::server::launcher::run(say).map(done),
        Command::Mover(args) => measure::preload::mover::run(args, say).map(done),
        Command::Reverter { of, hold } => endpoint::reverter::run(*of, hold, state, say).map(done),
        Command::Testbed { action } => commands::testbed::run(action, state, say).map(done),
        Command::Capture { file } => commands::capture::run(file, say).map(done),
        Command::Report(args) => commands::report::run(args, state, say).map(done),
        Command::Runs(args) => commands::runs::run(args, state, say).map(done),
        Command::Export(args) => commands::export::run(args, state, say).map(done),
        Command::Completions { shell } => commands::completions::run(*shell, say).map(done),
        Command::Complete { words } => commands::complete::run(words, say).map(done),
        Command::Manual { folder, date } => commands::manual::run(folder, date).map(done),
    }
}
