//! `linerate prove`, and `linerate tune search`.
//!
//! `session` is the conductor, and the only loop that measures, changes and measures again; `stack` is what a session has changed and must roll back, `intent` a plan with what there is to know of
//! it. `show` prints the verdict of a run and writes its page.

pub(crate) mod intent;
pub mod session;
pub mod show;
pub(crate) mod stack;

use std::path::Path as FilePath;
use std::time::{Duration, Instant};

use linerate_analysis::record::{Header, SCHEMA};
use linerate_analysis::text::words::seconds_in_words;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::units::{BitRate, Bytes, Nanoseconds};
use linerate_model::workload::{Rr, TrialSpec, Workload};
use linerate_report::metrics::{MeasuredPath, peer_label, prove_metrics};
use linerate_store::{Run, run_folder};

pub use self::session::{Budget, Options, Session, Source};
use linerate_runtime::cli::{ProveArgs, SearchArgs, WeighArgs};
use linerate_runtime::console::command_line::command_line;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::random::fresh_seed;
use linerate_runtime::console::say::Say;
use linerate_runtime::endpoint::ends::Ends;
use linerate_runtime::endpoint::recover::recover_first_with;
use linerate_runtime::endpoint::trial::{PeerPath, copy_bandwidth, open_path};

use self::show::show_with;
use crate::measure::trial_spec::{self, placed};
use crate::metrics::{MetricsOutput, provenance};
/// `linerate prove`.
pub fn prove(
    args: &ProveArgs,
    state: &FilePath,
    metrics: &MetricsOutput<'_>,
    say: &Say,
) -> Outcome<()> {
    let asked = args.from.as_deref().map(intent::read).transpose()?;
    weigh("prove", &args.weigh, state, metrics, say, |path, _| {
        Ok(match asked {
            None => Source::Rules,
            Some(asked) => Source::Given(intent::given(asked, path)?),
        })
    })
}

/// `linerate tune search`.
pub fn search(args: &SearchArgs, state: &FilePath, say: &Say) -> Outcome<()> {
    let begun = Instant::now();
    let metrics = MetricsOutput::to(None);
    weigh("search", &args.weigh, state, &metrics, say, |path, spec| {
        // How long one takes from the first word to the last; two changes of it come on top.
        let first = Instant::now();
        path.trial(spec)?;
        let each = first.elapsed() * 5 / 4;
        let time = Duration::from_nanos(args.budget.as_u64());
        let trials = time.as_nanos() / each.as_nanos().max(1);
        let trials = u32::try_from(trials).unwrap_or(u32::MAX);
        if trials < Budget::TRIALS_MIN {
            let why = format!(
                "cannot search in {}: the search needs at least {} trials, about {}",
                seconds_in_words(args.budget),
                Budget::TRIALS_MIN,
                words_of(each * Budget::TRIALS_MIN)
            );
            return Err(Stop::new(Code::Usage, why)
                .hint("raise `--budget`, or shorten the trials with `--time`"));
        }
        say.note(&format!(
            "{} for about {trials} trials; keeps only settings that trials in random order prove to help",
            seconds_in_words(args.budget)
        ));
        let until = Some(begun + time * 6 / 10);
        Ok(Source::Search(Budget { trials, until }))
    })
}

fn words_of(time: Duration) -> String {
    let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    seconds_in_words(Nanoseconds::new(nanoseconds))
}

/// Tests the remedies that `source` names for a path, and shows the run.
fn weigh(
    what: &str,
    args: &WeighArgs,
    state: &FilePath,
    metrics: &MetricsOutput<'_>,
    say: &Say,
    source: impl FnOnce(&mut PeerPath, &TrialSpec) -> Outcome<Source>,
) -> Outcome<()> {
    if args.stream.trial.no_record {
        let why = "`--no-record` is only for `measure`: the verdict needs the recorded data";
        return Err(Stop::new(Code::Usage, why));
    }
    let mut spec = trial_spec::stream(&args.stream, None, Nanoseconds::from_millis(1_000))?;
    if args.rr {
        spec.workload = Workload::Rr(Rr {
            request_bytes: Bytes::new(1),
            response_bytes: Bytes::new(1),
            depth: 1,
            connect_each: false,
            rate_per_s: None,
        });
        spec.buffer_bytes = TrialSpec::default().buffer_bytes;
    }
    let seed = args.seed.map_or_else(fresh_seed, Ok)?;
    let interrupt = Interrupt::listen()?;
    recover_first_with(Some(&args.peer.peer), state, say)?;
    let mut path = open_path(&args.peer, state, &interrupt, say)?;
    if args.allow_management_disruption {
        path.include_way_in();
    }
    let spec = placed(&args.stream.trial, spec, path.view())?;
    let workload = spec.workload.name();
    let source = source(&mut path, &spec)?;
    let created_unix_s = linerate_runtime::console::clock::now_unix_s();
    let folder = args
        .out
        .clone()
        .unwrap_or_else(|| run_folder(state, what, created_unix_s, seed));
    let header = header(args, &path, created_unix_s, seed);
    let options = Options {
        spec,
        trials: args.trials,
        seed,
        undo: args.undo,
        owns_shapers: args.allow_shaper_removal,
        spares_machine: args.netns_only,
        accepts_worse: args.allow_regression.clone(),
        source,
    };
    let mut run = Run::create(&folder, &header)?;
    announce(what, args, &path, (&options, &folder), say);
    Session::new(&mut path, &mut run, options, say).prove()?;
    path.peer.leave()?;
    let page = folder.join("report.html");
    show_with(&folder, &page, say, |document, is_whole| {
        metrics.publish(say, is_whole, || {
            let measured = MeasuredPath {
                peer: &peer_label(&args.peer.peer),
                nic: Some(header.local_nic.as_str()),
            };
            Ok(prove_metrics(document, workload, &measured, &provenance()))
        })
    })
}

/// What is about to be done, and where it is kept.
fn announce(
    what: &str,
    args: &WeighArgs,
    path: &PeerPath,
    (options, folder): (&Options, &FilePath),
    say: &Say,
) {
    let verb = match what {
        "search" => "searching",
        _ => "proving",
    };
    say.note(&format!(
        "{verb} {} -> {} ({}), seed {}; Ctrl-C rolls back all changes\n{}\nrun stored in {}",
        path.local_nic,
        path.address,
        args.peer.peer,
        options.seed,
        options.in_words(),
        folder.display()
    ));
    if path.peer.changes_forbidden {
        say.note(&format!(
            "{} permits no changes: fixes at the remote end will not be tried (`--allow-changes` of its agent)",
            args.peer.peer
        ));
    }
}

fn header(args: &WeighArgs, path: &PeerPath, created_unix_s: u64, seed: u64) -> Header {
    Header {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        created_unix_s,
        command: command_line(),
        seed,
        trials: args.trials,
        peer: args.peer.peer.to_string(),
        local_nic: path.local_nic.clone(),
        remote_nic: path.remote_nic.clone(),
        address: path.address.to_string(),
        copy_bit_per_s: copy_bandwidth(path).map(BitRate::as_bit_per_s),
    }
}
