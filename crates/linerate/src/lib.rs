//! The user-facing program: command line, session, agent, peer, store, analysis and report.
//!
//! Data flows one way: `cli` parses the request; `prove` (the session) runs trials between two
//! [`ends`], in practice a [`trial::Path`] from a [`station::Station`] here to an agent there; the `store` keeps
//! the raw records; `analysis` evaluates them; `report` shows the result.

#![forbid(unsafe_code)]

pub mod agent;
mod belt;
pub mod ceiling;
pub mod cli;
mod clock;
pub mod commands;
pub mod confirm;
pub mod crash;
pub mod demo;
pub mod doctor;
mod draw;
pub mod ends;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod guard;
mod hold;
mod host_source;
mod intent;
pub mod interrupt;
pub mod iperf3;
pub mod lab;
mod lease;
pub mod map;
pub mod measure;
pub mod memory;
pub mod peer;
mod persist;
pub mod place;
pub mod preload;
mod probe;
pub mod prove;
pub mod record;
mod recover;
mod reverter;
mod run_page;
pub mod say;
pub mod serve;
pub mod settings_page;
mod stack;
mod stage;
pub mod station;
pub mod testbed;
pub mod trial;
pub mod trial_spec;
pub mod tune;
pub mod watched;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use linerate_model::exit::{Code, Outcome, Stop};

use crate::ceiling::Typed;
use crate::cli::{Cli, Command, TuneAction};
use crate::say::Say;

/// Parses the command line, runs the command, and turns its result into an exit code.
pub fn run() -> ExitCode {
    say::panics();
    let parsed = Cli::command().try_get_matches().and_then(|matches| {
        let cli =
            Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut Cli::command()));
        Ok((cli?, Typed::of(&matches)))
    });
    let (cli, typed) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            // Help and version arrive here too; clap knows which stream each belongs to.
            say::usage(&error);
            return ExitCode::from(if error.use_stderr() {
                Code::Usage.number()
            } else {
                0
            });
        }
    };
    let say = Say {
        format: cli.format.into(),
        quiet: cli.quiet,
    };
    let result =
        catch_unwind(AssertUnwindSafe(|| carry_out(&cli, &typed, &say))).unwrap_or_else(|_| {
            Err(Stop::new(
                Code::Bug,
                "this is a bug in linerate; its changes were rolled back",
            )
            .hint("please report it with the message above and the command line"))
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
fn carry_out(cli: &Cli, typed: &Typed, say: &Say) -> Outcome<u8> {
    let state = commands::state_folder(cli.state.as_deref())?;
    let picture = matches!(cli.format, cli::FormatArg::Dot | cli::FormatArg::Svg);
    if picture && !matches!(cli.command, Command::Map(_)) {
        return Err(Stop::new(
            Code::Usage,
            "only `map` can be printed as dot or svg",
        ));
    }
    let pipeline = matches!(cli.format, cli::FormatArg::Sarif | cli::FormatArg::Junit);
    if pipeline && !matches!(cli.command, Command::Doctor(_)) {
        return Err(Stop::new(
            Code::Usage,
            "only `doctor` can be printed as sarif or junit",
        ));
    }
    let foreign = matches!(cli.format, cli::FormatArg::Iperf3Json);
    if foreign && !matches!(cli.command, Command::Measure { .. }) {
        return Err(Stop::new(
            Code::Usage,
            "only `measure stream` and `measure udp` can be printed as iperf3-json",
        ));
    }
    let done = |()| Code::Done.number();
    match &cli.command {
        Command::Demo(args) => demo::run(args, &state, say).map(done),
        Command::Map(args) => map::run(args, cli.format, say).map(done),
        Command::Doctor(args) => doctor::run(args, cli.format, say).map(Code::number),
        Command::Explain { rule } => doctor::explain(rule, say).map(done),
        Command::Ceiling(args) => ceiling::run(args, typed, &state, say).map(done),
        Command::Measure { action } => measure::run(action, cli.format, &state, say).map(done),
        Command::Prove(args) => commands::prove(args, &state, say).map(done),
        Command::Lab { action } => lab::run(action, &state, say).map(done),
        Command::Compare(args) => {
            lab::compare::run(&args.before, &args.after, args.margin, say).map(done)
        }
        Command::Tune {
            action: TuneAction::Hold(args),
        } => hold::run(args, &state, say),
        Command::Tune { action } => tune::run(action, &state, say).map(done),
        Command::Agent(args) => agent::run(args, &state, say).map(done),
        Command::Mover(args) => preload::mover::run(args, say).map(done),
        Command::Reverter { of, hold } => reverter::run(*of, hold, &state, say).map(done),
        Command::Testbed { action } => testbed::run(action, &state, say).map(done),
        Command::Capture { file } => commands::capture(file, say).map(done),
        Command::Report(args) => commands::report(args, &state, say).map(done),
        Command::Runs(args) => commands::runs::run(args, &state, say).map(done),
        Command::Export(args) => commands::export::run(args, say).map(done),
        Command::Completions { shell } => commands::completions(*shell, say).map(done),
    }
}
