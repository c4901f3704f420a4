//! `linerate prove`, and `linerate tune search`.
//!
//! `session` is the conductor, and the only loop that measures, changes and measures again; `stack` is what a session has changed and must roll back, `intent` a plan with what there is to know of
//! it. `device` tests remedies on a block device. `show` prints the verdict of a run and writes its page.

mod device;
pub(crate) mod intent;
pub mod session;
mod shipped;
pub mod show;
pub(crate) mod stack;

use std::path::{Path as FilePath, PathBuf};
use std::time::{Duration, Instant};

use linerate_analysis::record::{Header, SCHEMA};
use linerate_analysis::text::words::seconds_in_words;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::ids::NicName;
use linerate_model::units::{BitRate, Bytes, Nanoseconds};
use linerate_model::workload::{Rr, TrialSpec, Workload};
use linerate_report::metrics::{MeasuredPath, peer_label, prove_metrics};
use linerate_store::{Run, run_folder};

pub use self::session::{Budget, Options, Session, Source};
use linerate_runtime::cli::{ProveArgs, SearchArgs, Target, WeighArgs};
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
    if let Target::Device(device) = &args.weigh.target {
        return device::prove(args, device, state, metrics, say);
    }
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
    check_recorded(args)?;
    let Some(peer) = args.peer() else {
        let why = "`tune search` needs a peer, not a block device";
        return Err(Stop::new(Code::Usage, why).hint("`linerate lab run blk-mq DEVICE`"));
    };
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
    recover_first_with(Some(&peer.peer), state, say)?;
    let mut path = open_path(&peer, state, &interrupt, say)?;
    if args.allow_management_disruption {
        path.include_way_in();
    }
    let spec = placed(&args.stream.trial, spec, path.view())?;
    let workload = spec.workload.name();
    let source = source(&mut path, &spec)?;
    let header = Header {
        local_nic: path.local_nic.clone(),
        remote_nic: path.remote_nic.clone(),
        copy_bit_per_s: copy_bandwidth(&path).map(BitRate::as_bit_per_s),
        ..header(
            args,
            &peer.peer.to_string(),
            &path.address.to_string(),
            seed,
        )
    };
    let options = options(args, spec, seed, source);
    let folder = folder_of(what, args, &header, state);
    let mut run = Run::create(&folder, &header)?;
    announce(what, &header, (&options, &folder), say);
    if path.peer.changes_forbidden {
        say.note(&format!(
            "{} permits no changes: fixes at the remote end will not be tried (`--allow-changes` of its agent)",
            peer.peer
        ));
    }
    Session::new(&mut path, &mut run, options, say).prove()?;
    path.peer.leave()?;
    let measured = MeasuredPath {
        peer: &peer_label(&peer.peer),
        nic: Some(header.local_nic.as_str()),
    };
    show_and_publish(&folder, (workload, &measured), metrics, say)
}

/// Shows the run, and publishes its metrics.
fn show_and_publish(
    folder: &FilePath,
    (workload, measured): (&str, &MeasuredPath<'_>),
    metrics: &MetricsOutput<'_>,
    say: &Say,
) -> Outcome<()> {
    let page = folder.join("report.html");
    show_with(folder, &page, say, |document, is_whole| {
        metrics.publish(say, is_whole, || {
            Ok(prove_metrics(document, workload, measured, &provenance()))
        })
    })
}

/// A verdict needs the records of its trials.
fn check_recorded(args: &WeighArgs) -> Outcome<()> {
    if args.stream.trial.no_record {
        let why = "`--no-record` is only for `measure`: the verdict needs the recorded data";
        return Err(Stop::new(Code::Usage, why));
    }
    Ok(())
}

fn options(args: &WeighArgs, spec: TrialSpec, seed: u64, source: Source) -> Options {
    Options {
        spec,
        trials: args.trials,
        seed,
        undo: args.undo,
        owns_shapers: args.allow_shaper_removal,
        spares_machine: args.netns_only,
        accepts_worse: args.allow_regression.clone(),
        source,
    }
}

fn folder_of(what: &str, args: &WeighArgs, header: &Header, state: &FilePath) -> PathBuf {
    let out = args.out.clone();
    out.unwrap_or_else(|| run_folder(state, what, header.created_unix_s, header.seed))
}

/// What is about to be done, and where it is kept.
fn announce(what: &str, header: &Header, (options, folder): (&Options, &FilePath), say: &Say) {
    let verb = match what {
        "search" => "searching",
        _ => "proving",
    };
    say.note(&format!(
        "{verb} {} -> {} ({}), seed {}; Ctrl-C rolls back all changes\n{}\nrun stored in {}",
        header.local_nic,
        header.address,
        header.peer,
        options.seed,
        options.in_words(),
        folder.display()
    ));
}

/// The header of a run without the interfaces of its path.
fn header(args: &WeighArgs, peer: &str, address: &str, seed: u64) -> Header {
    Header {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        created_unix_s: linerate_runtime::console::clock::now_unix_s(),
        command: command_line(),
        seed,
        trials: args.trials,
        peer: peer.to_owned(),
        local_nic: NicName::unheard(),
        remote_nic: NicName::unheard(),
        address: address.to_owned(),
        copy_bit_per_s: None,
    }
}
