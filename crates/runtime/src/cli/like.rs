//! `measure stream|rr|http --like PROGRAM`: the defaults of the program that people compare with, where it has the same
//! workload.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, ValueEnum};

use super::measure::TRIAL;
use super::{TransportArg, help};

/// `--like`, of the workloads that another program has too.
#[derive(Debug, Args)]
pub struct LikeArgs {
    /// Use the defaults of this program: `iperf3` or `qperf` for `stream`, `qperf` for `rr`, `wrk` for `http`.
    ///
    /// Other options override them. What it sets is printed at the start.
    #[arg(
        long,
        value_enum,
        value_name = "PROGRAM",
        help_heading = TRIAL,
        hide_possible_values = true,
        hide_short_help = true
    )]
    pub like: Option<LikeArg>,
}

/// `--like`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LikeArg {
    /// iperf3.
    Iperf3,
    /// qperf.
    Qperf,
    /// wrk.
    Wrk,
}

/// What a program does by default, as options of ours.
struct Defaults {
    of: LikeArg,
    /// The workload of `measure`.
    workload: &'static str,
    /// The program and its test.
    name: &'static str,
    /// Arguments and their values.
    set: &'static [(&'static str, &'static str)],
}

/// More threads than flows are one for each flow.
const THREAD_PER_FLOW: &str = "1024";

/// The sources are named in `docs/book/guides/measure-a-path.md`.
const TABLE: [Defaults; 4] = [
    // iperf.h: DURATION; iperf_api.h: DEFAULT_TCP_BLKSIZE; iperf_api.c, iperf_defaults: one stream. A thread for each
    // stream since 3.16.
    Defaults {
        of: LikeArg::Iperf3,
        workload: "stream",
        name: "iperf3",
        set: &[
            ("buffer", "128KiB"),
            ("flows", "1"),
            ("threads", THREAD_PER_FLOW),
            ("time", "10s"),
        ],
    },
    // qperf.c, client: 2 seconds; socket.c, run_client_tcp_bw: 64 KiB on one socket.
    Defaults {
        of: LikeArg::Qperf,
        workload: "stream",
        name: "qperf tcp_bw",
        set: &[("buffer", "64KiB"), ("flows", "1"), ("time", "2s")],
    },
    // socket.c, run_client_tcp_lat: a byte there and back on one socket.
    Defaults {
        of: LikeArg::Qperf,
        workload: "rr",
        name: "qperf tcp_lat",
        set: &[
            ("request", "1B"),
            ("response", "1B"),
            ("flows", "1"),
            ("depth", "1"),
            ("time", "2s"),
        ],
    },
    // wrk.c, parse_args.
    Defaults {
        of: LikeArg::Wrk,
        workload: "http",
        name: "wrk",
        set: &[("flows", "10"), ("threads", "2"), ("time", "10s")],
    },
];

/// The command line of `words` as `--like` completes it, and what it has set.
pub fn completed(
    command: &mut Command,
    matches: ArgMatches,
    words: impl IntoIterator<Item = OsString>,
) -> Result<(ArgMatches, Option<String>), clap::Error> {
    let Some((workload, own, like)) = asked(&matches) else {
        return Ok((matches, None));
    };
    let program = like
        .to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default();
    let row = |one: &&Defaults| one.of == like && one.workload == workload;
    let Some(defaults) = TABLE.iter().find(row) else {
        let others = TABLE.iter().filter(|one| one.of == like);
        let others: Vec<String> = others.map(|one| format!("`{}`", one.workload)).collect();
        return Err(refused(
            command,
            workload,
            format!(
                "{program} has no workload like `{workload}`: `--like {program}` is for {}",
                others.join(" and ")
            ),
        ));
    };
    let transport = own.try_get_one::<TransportArg>("transport");
    if matches!(transport, Ok(Some(TransportArg::Verbs))) {
        let why = format!("`--like {program}` has the defaults of TCP, not of `--transport verbs`");
        return Err(refused(command, workload, why));
    }
    let is_given = |id: &str| {
        let source = own
            .try_contains_id(id)
            .is_ok()
            .then(|| own.value_source(id));
        source.flatten() == Some(ValueSource::CommandLine)
    };
    let set: Vec<&(&str, &str)> = defaults
        .set
        .iter()
        // An amount has no duration, only a limit.
        .filter(|(id, _)| *id != "time" || !is_given("bytes"))
        .filter(|(id, _)| !is_given(id))
        .collect();
    let told: Vec<String> = set.iter().map(|(id, value)| in_words(id, value)).collect();
    let mut with_defaults = help::command().mut_subcommand("measure", |measure| {
        measure.mut_subcommand(workload, |own| {
            set.iter().fold(own, |own, (id, value)| {
                own.mut_arg(*id, |arg| arg.default_value(*value))
            })
        })
    });
    let matches = with_defaults.try_get_matches_from_mut(words)?;
    let note = format!("like {}: {}", defaults.name, told.join(", "));
    Ok((matches, (!told.is_empty()).then_some(note)))
}

/// The workload, its own arguments and `--like`, if that is given.
fn asked(matches: &ArgMatches) -> Option<(&str, &ArgMatches, LikeArg)> {
    let (_, measure) = matches
        .subcommand()
        .filter(|(name, _)| *name == "measure")?;
    let (workload, own) = measure.subcommand()?;
    let like = own.try_get_one::<LikeArg>("like").ok().flatten()?;
    Some((workload, own, *like))
}

fn in_words(id: &str, value: &str) -> String {
    if value == THREAD_PER_FLOW {
        return "a thread per flow".to_owned();
    }
    format!("--{id} {value}")
}

fn refused(command: &mut Command, workload: &str, why: String) -> clap::Error {
    let measure = command.find_subcommand_mut("measure");
    let own = measure.and_then(|measure| measure.find_subcommand_mut(workload));
    let kind = ErrorKind::ArgumentConflict;
    match own {
        Some(own) => own.error(kind, why),
        None => command.error(kind, why),
    }
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;
    use linerate_model::units::{Bytes, Nanoseconds};

    use super::*;
    use crate::cli::{Cli, MeasureAction};

    fn parsed(line: &str) -> Result<(Cli, Option<String>), clap::Error> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let mut command = help::command();
        let matches = command.try_get_matches_from_mut(words.clone())?;
        let (matches, note) = completed(&mut command, matches, words)?;
        Ok((Cli::from_arg_matches(&matches)?, note))
    }

    /// What a command line asks for: the size of a buffer or a request, flows, threads, seconds; and the note.
    fn asked_by(line: &str) -> ((Bytes, u32, Option<u32>, Option<f64>), String) {
        let (cli, note) = parsed(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let Some(crate::cli::Command::Measure { action, .. }) = &cli.command else {
            panic!("{line}: no measurement");
        };
        let (trial, bytes) = match &**action {
            MeasureAction::Stream(args) => (&args.stream.trial, args.stream.buffer),
            MeasureAction::Rr(args) => (&args.trial, args.request),
            MeasureAction::Http(args) => (&args.trial, args.body),
            _ => panic!("{line}: another workload"),
        };
        let seconds = trial.time.map(Nanoseconds::as_secs_f64);
        let asked = (bytes, trial.flows, trial.threads, seconds);
        (asked, note.unwrap_or_default())
    }

    #[test]
    fn each_program_sets_its_own_defaults_and_names_them() {
        let (asked, note) = asked_by("linerate measure stream local --like iperf3");
        assert_eq!(asked, (Bytes::kib(128), 1, Some(1_024), Some(10.0)));
        let words = "like iperf3: --buffer 128KiB, --flows 1, a thread per flow, --time 10s";
        assert_eq!(note, words);
        let (asked, _) = asked_by("linerate measure stream local --like qperf");
        assert_eq!(asked, (Bytes::kib(64), 1, None, Some(2.0)));
        let (asked, note) = asked_by("linerate measure rr local --like qperf");
        assert_eq!(asked, (Bytes::new(1), 1, None, Some(2.0)));
        assert!(note.contains("--request 1B, --response 1B"), "{note}");
        let (asked, note) = asked_by("linerate measure http local --like wrk");
        assert_eq!(asked, (Bytes::new(64), 10, Some(2), Some(10.0)));
        assert_eq!(note, "like wrk: --flows 10, --threads 2, --time 10s");
    }

    #[test]
    fn given_options_win_and_are_not_named() {
        let line = "linerate measure stream local --like qperf -l 1MiB -t 3 -P 4";
        let (asked, note) = asked_by(line);
        assert_eq!(asked, (Bytes::mib(1), 4, None, Some(3.0)));
        assert_eq!(note, "");
        // A default that is given is given.
        let (asked, note) = asked_by("linerate measure http local --flows 1 --like wrk");
        assert_eq!(asked.1, 1);
        assert_eq!(note, "like wrk: --threads 2, --time 10s");
    }

    #[test]
    fn an_amount_keeps_its_own_limit_of_time() {
        let (asked, note) = asked_by("linerate measure stream local --bytes 1GiB --like iperf3");
        assert_eq!(asked.3, None);
        assert!(!note.contains("--time"), "{note}");
    }

    #[test]
    fn a_program_without_the_workload_and_what_contradicts_are_usage_errors() {
        for (line, words) in [
            ("stream local --like wrk", "`--like wrk` is for `http`"),
            ("rr local --like iperf3", "`--like iperf3` is for `stream`"),
            ("http local --like qperf", "is for `stream` and `rr`"),
            (
                "rr local --like qperf --transport verbs",
                "--transport verbs",
            ),
            ("stream local --like iperf3 --ladder", "--ladder"),
            ("stream local --like iperf3 --preload rsocket", "--preload"),
            ("stream local --like netperf", "netperf"),
        ] {
            let error = parsed(&format!("linerate measure {line}")).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}");
            let text = error.to_string();
            assert!(text.contains(words), "{line}: {text}");
        }
    }
}
