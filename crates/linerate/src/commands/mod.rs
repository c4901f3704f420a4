//! The commands that take one step: map, doctor, explain, ceiling, prove, capture, report,
//! completions. They produce data; `report` formats it.

pub(crate) mod export;
pub(crate) mod runs;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path as FilePath, PathBuf};
use std::time::{Duration, Instant};

use clap::CommandFactory;
use linerate_analysis::proof;
use linerate_analysis::record::{Header, Record, SCHEMA};
use linerate_analysis::text::words::seconds_in_words;
use linerate_host::capture::{CaptureOptions, capture as capture_host};
use linerate_host::regular_file;
use linerate_host::trust::{Trust, Untrusted};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::units::{BitRate, Bytes, Nanoseconds};
use linerate_model::workload::{Rr, TrialSpec, Workload};
use linerate_report as report;
use linerate_store::{self as store, Run, run_folder};

use crate::cli::{Cli, ProveArgs, ReportArgs, SearchArgs, WeighArgs};
use crate::draw::fresh_seed;
use crate::ends::Ends;
use crate::interrupt::Interrupt;
use crate::prove::{Budget, Options, Session, Source};
use crate::recover::recover_first_with;
use crate::run_page::{data_of, document_of};
use crate::say::{Format, Say};
use crate::trial::{Path, copy_bandwidth, open_path};
use crate::trial_spec::{self, placement};
use crate::{intent, lab, serve};

/// Where runs and journals are kept. Root ignores the environment, which may be that of the user who became
/// root, and refuses a folder that another user may replace: its contents are acted on as root.
pub fn state_folder(given: Option<&FilePath>) -> Outcome<PathBuf> {
    let is_root = rustix::process::geteuid().is_root();
    let Some(folder) = given else {
        return default_state_folder(is_root, |name| std::env::var_os(name));
    };
    if is_root {
        check_for_root(folder)?;
    }
    Ok(folder.to_owned())
}

fn default_state_folder(
    is_root: bool,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Outcome<PathBuf> {
    if is_root {
        return Ok(PathBuf::from("/var/lib/linerate"));
    }
    let folder = |name: &str| {
        variable(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    folder("XDG_STATE_HOME")
        .or_else(|| folder("HOME").map(|home| home.join(".local/state")))
        .map(|base| base.join("linerate"))
        .ok_or_else(|| {
            Stop::new(
                Code::NotSupported,
                "cannot choose a state directory: $HOME is not set",
            )
            .hint("set a directory with `--state`")
        })
}

fn check_for_root(folder: &FilePath) -> Outcome<()> {
    let followed = Trust::of_this_process().and_then(|trust| trust.follow_existing(folder));
    followed.map_err(|error| match Untrusted::of(&error) {
        Some(untrusted) => {
            let path = folder.display();
            let why = format!("cannot use {path} as root's state directory: {untrusted}");
            Stop::new(Code::BadInput, why).hint(
                "run linerate as the owner of the directory, or pass a root-owned directory with \
                 `--state`",
            )
        }
        None => Stop::io(
            format!("use the state directory {}", folder.display()),
            error,
        ),
    })
}

/// `linerate prove`.
pub fn prove(args: &ProveArgs, state: &FilePath, say: &Say) -> Outcome<()> {
    let asked = args.from.as_deref().map(intent::read).transpose()?;
    weigh("prove", &args.weigh, state, say, |path, _| {
        Ok(match asked {
            None => Source::Rules,
            Some(asked) => Source::Given(intent::given(asked, path)?),
        })
    })
}

/// `linerate tune search`.
pub fn search(args: &SearchArgs, state: &FilePath, say: &Say) -> Outcome<()> {
    let begun = Instant::now();
    weigh("search", &args.weigh, state, say, |path, spec| {
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
            "{} for about {trials} trials; keeps only settings that paired trials prove to help",
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
    say: &Say,
    source: impl FnOnce(&mut Path, &TrialSpec) -> Outcome<Source>,
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
    let mut path = open_path(&args.peer, state, &interrupt)?;
    if args.allow_management_disruption {
        path.include_way_in();
    }
    spec.placement = placement(&args.stream.trial, &spec, path.view())?;
    let source = source(&mut path, &spec)?;
    let created_unix_s = crate::clock::now_unix_s();
    let folder = args
        .out
        .clone()
        .unwrap_or_else(|| run_folder(state, what, created_unix_s, seed));
    let header = Header {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        created_unix_s,
        command: std::env::args().collect(),
        seed,
        pairs: args.pairs,
        peer: args.peer.peer.to_string(),
        local_nic: path.local_nic.clone(),
        remote_nic: path.remote_nic.clone(),
        address: path.address.to_string(),
        copy_bit_per_s: copy_bandwidth(&path).map(BitRate::as_bit_per_s),
    };
    let options = Options {
        spec,
        pairs: args.pairs,
        seed,
        undo: args.undo,
        owns_shapers: args.allow_shaper_removal,
        spares_machine: args.netns_only,
        accepts_worse: args.allow_regression.clone(),
        source,
    };
    let mut run = Run::create(&folder, &header)?;
    let verb = if what == "search" {
        "searching"
    } else {
        "proving"
    };
    say.note(&format!(
        "{verb} {} -> {} ({}), seed {seed}; Ctrl-C rolls back all changes\n{}\nrun stored in {}",
        path.local_nic,
        path.address,
        args.peer.peer,
        options.in_words(),
        folder.display()
    ));
    Session::new(&mut path, &mut run, options, say).prove()?;
    path.peer.leave()?;
    show_run(&folder, &folder.join("report.html"), say)
}

/// Analyzes a run from its records, writes its page and prints the verdict.
pub fn show_run(folder: &FilePath, page: &FilePath, say: &Say) -> Outcome<()> {
    if lab::is_lab(folder)? {
        return lab::show(folder, Some(page), say);
    }
    let stored = store::read(folder)?;
    if stored.torn {
        say.note("the run was truncated while being written: its last record is dropped");
    }
    let whole = |record: &Record| matches!(record, Record::After(_));
    if !stored.records.iter().any(whole) {
        say.note(
            "the run ended before its final trials: `after` shows the measurement before the \
             changes",
        );
    }
    let mut document = document_of(&stored);
    document.report = Some(page.display().to_string());
    let data = data_of(&stored, &document)?;
    store::write_page(folder, page, &report::render_page(&data))?;
    let sorted = proof::sort(&stored.records);
    match (sorted.stopped, sorted.ended) {
        (Some(why), _) => say.note(&format!("the run stopped early: {why}")),
        (None, false) => {
            say.note("the run was killed early: only its recorded trials are shown");
        }
        (None, true) => {}
    }
    if say.format == Format::Json {
        say.json(&document)
    } else {
        // A person sees the final result of each remedy; every trial is in the record and on the page.
        document.remedies.retain(|remedy| !remedy.tried_again);
        let text = report::render_text(&document, say.width(), say.colour());
        if say.colour() {
            say.coloured(&text)
        } else {
            say.data(&text)
        }
    }
}

/// `linerate capture`.
pub fn capture(file: &FilePath, say: &Say) -> Outcome<()> {
    let live = linerate_host::root::LiveHost::open()
        .map_err(|error| Stop::io("open the root directory", error))?;
    let netlink = linerate_host::netlink::Netlink::open()
        .map_err(|error| Stop::io("open a netlink socket", error))?;
    let options = CaptureOptions {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pseudonyms: true,
    };
    let archive = capture_host(live.root(), &netlink, &options);
    let text = archive.to_text();
    regular_file::write_named(file, 0o666, |file| file.write_all(text.as_bytes()))
        .map_err(|error| Stop::io(format!("write {}", file.display()), error))?;
    say.note(&format!(
        "{} written: plain text, names and addresses replaced by pseudonyms; review it before \
         sharing",
        file.display()
    ));
    Ok(())
}

/// `linerate report`.
pub fn report(args: &ReportArgs, state: &FilePath, say: &Say) -> Outcome<()> {
    match (args.serve, &args.run) {
        (Some(address), _) => serve::run(address, state, say),
        (None, Some(run)) => {
            let page = args.out.clone();
            show_run(run, &page.unwrap_or_else(|| run.join("report.html")), say)
        }
        (None, None) => Err(Stop::new(Code::Usage, "no run given")),
    }
}

/// `linerate completions`.
pub fn completions(shell: clap_complete::Shell, say: &Say) -> Outcome<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "linerate", &mut text);
    say.data(&String::from_utf8_lossy(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_keeps_its_state_where_no_variable_says() {
        let variable = |name: &str| Some(OsString::from(format!("/of/somebody/{name}")));
        let folder = |is_root| default_state_folder(is_root, variable).ok();
        assert_eq!(folder(true), Some("/var/lib/linerate".into()));
        assert_eq!(
            folder(false),
            Some("/of/somebody/XDG_STATE_HOME/linerate".into())
        );
        let home = |name: &str| (name == "HOME").then(|| OsString::from("/home/me"));
        let found = default_state_folder(false, home).ok();
        assert_eq!(found, Some("/home/me/.local/state/linerate".into()));
        assert!(default_state_folder(false, |_| None).is_err());
    }
}
