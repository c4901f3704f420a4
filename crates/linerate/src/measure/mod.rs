//! `linerate measure`: one measurement, with its ceiling, its cost and what limited it.
//!
//! `spec` says what the command line asks for, `repeat` how often, `document` makes of the record what is
//! printed as JSON, `text` what a person reads.

mod document;
mod repeat;
mod spec;
mod text;

use std::path::Path as FilePath;
use std::time::Duration;

use linerate_model::units::BitRate;
use linerate_model::workload::TrialSpec;

pub use spec::stream as stream_spec;

use crate::cli::{MeasureAction, MeasureHttp, PeerArgs, TrialArgs, UntilArgs};
use crate::exit::{Code, Outcome, Stop};
use crate::interrupt::Interrupt;
use crate::peer::Peer;
use crate::place;
use crate::prove::{fresh_token, seconds_in_words};
use crate::say::{Format, Say};
use crate::station::Station;
use crate::trial::Path;
use document::Measured;

/// Opens the way to a peer.
pub fn open_path(args: &PeerArgs, state: &FilePath, interrupt: &Interrupt) -> Outcome<Path> {
    let station = Station::open(state)?;
    let peer = Peer::start(&args.peer, args.push, state, interrupt)?;
    let path = Path::open(station, peer, args.address, interrupt)?;
    Ok(Path {
        port: args.port,
        ..path
    })
}

/// What one core copies, for a path without a wire: the only bound that it has.
pub fn copy_bandwidth(path: &Path) -> Option<BitRate> {
    let wire = path
        .local_interface()
        .is_some_and(|nic| nic.kind.has_wire());
    if wire {
        return None;
    }
    // An upper bound: other work on the machine only ever makes a sample smaller.
    let sample = |_| {
        let budget = Duration::from_millis(60);
        linerate_traffic::copy::cached_copy_bandwidth(None, budget).ok()
    };
    (0..4).filter_map(sample).max()
}

/// Carries out `measure`.
pub fn run(action: &MeasureAction, state: &FilePath, say: &Say) -> Outcome<()> {
    let once = UntilArgs::once();
    match action {
        MeasureAction::Stream(args) => {
            let asked = spec::measure_stream(args)?;
            let trial = &args.stream.trial;
            match args.peer.peer() {
                Some(peer) => {
                    over_peer(&peer, trial, &args.until, state, say, |_| Ok(asked.clone()))
                }
                None => foreign(args.peer.iperf3.as_deref(), &asked, say),
            }
        }
        MeasureAction::Rr(args) => {
            let asked = spec::rr(args)?;
            let ask = |_: &Path| Ok(asked.clone());
            over_peer(&args.peer, &args.trial, &args.until, state, say, ask)
        }
        MeasureAction::Pingpong(args) => {
            let asked = spec::pingpong(args)?;
            let ask = |_: &Path| Ok(asked.clone());
            over_peer(&args.peer, &args.trial, &once, state, say, ask)
        }
        MeasureAction::Transfer(args) => {
            let asked = spec::transfer(args)?;
            let ask = |_: &Path| Ok(asked.clone());
            over_peer(&args.peer, &args.trial, &args.until, state, say, ask)
        }
        MeasureAction::Udp(args) => {
            let asked = spec::udp(args, None, false)?;
            match args.peer.peer() {
                Some(peer) => over_peer(&peer, &args.trial, &args.until, state, say, |path| {
                    let mtu = path.local_interface().and_then(|nic| nic.mtu.get());
                    spec::udp(args, mtu, path.address.is_ipv6())
                }),
                None => foreign(args.peer.iperf3.as_deref(), &asked, say),
            }
        }
        MeasureAction::Http(args) => http(args, state, say),
    }
}

/// A measurement between two ends of ours.
fn over_peer(
    peer: &PeerArgs,
    trial: &TrialArgs,
    until: &UntilArgs,
    state: &FilePath,
    say: &Say,
    ask: impl FnOnce(&Path) -> Outcome<TrialSpec>,
) -> Outcome<()> {
    let interrupt = Interrupt::listen()?;
    let mut path = open_path(peer, state, &interrupt)?;
    let mut spec = ask(&path)?;
    spec.placement = place::placement(trial, &spec, &path)?;
    let name = spec.workload.name();
    say.note(&format!(
        "measuring {name} over {} to {} ({}) for {}{}; Ctrl-C stops it",
        path.local_nic,
        path.address,
        peer.peer,
        if document::ends_by_itself(&spec.workload) {
            "as long as it takes, at most "
        } else {
            ""
        },
        seconds_in_words(spec.duration_ns)
    ));
    let copy = copy_bandwidth(&path);
    let (sample, repeats) = repeat::until_certain(
        until,
        spec.duration_ns,
        |number| {
            if number > 0 {
                say.note(&format!("trial {}", number + 1));
            }
            path.run(&spec, fresh_token()?)
        },
        document::result_of,
    )?;
    let measured = Measured::over_path(&path, sample, copy);
    show(measured, repeats, say)?;
    path.peer.leave()?;
    Ok(())
}

/// Prints what came of it; the exit code says whether it is as certain as was asked for.
fn show(measured: Measured<'_>, repeats: Option<repeat::Repeats>, say: &Say) -> Outcome<()> {
    let certain = repeats.as_ref().is_none_or(repeat::Repeats::is_certain);
    let document = document::document(&measured, repeats.as_ref());
    if say.format == Format::Json {
        say.json(&document)?;
    } else {
        say.lines(&text::text(&measured, &document, repeats.as_ref()))?;
    }
    if certain {
        return Ok(());
    }
    Err(Stop::new(
        Code::Inconclusive,
        "the result is not as certain as was asked for when the time was over",
    )
    .hint("give more time with `--until-at-most`, or longer trials with `--time`"))
}

/// A measurement against an iperf3 server.
fn foreign(server: Option<&str>, _spec: &TrialSpec, _say: &Say) -> Outcome<()> {
    Err(not_yet(server.unwrap_or_default()))
}

/// HTTP at a peer, or at any server.
fn http(args: &MeasureHttp, state: &FilePath, say: &Say) -> Outcome<()> {
    if args.target.starts_with("http:") || args.target.starts_with("https:") {
        return load(args, say);
    }
    let peer = args
        .target
        .parse()
        .map_err(|error: String| Stop::new(Code::Usage, format!("`{}`: {error}", args.target)))?;
    let peer = PeerArgs {
        peer,
        push: args.push,
        address: args.address,
        port: None,
    };
    let asked = spec::http(args, &args.path)?;
    over_peer(&peer, &args.trial, &args.until, state, say, |_| Ok(asked))
}

/// Loads a server of others.
fn load(args: &MeasureHttp, _say: &Say) -> Outcome<()> {
    Err(not_yet(&args.target))
}

fn not_yet(what: &str) -> Stop {
    Stop::new(Code::NotSupported, format!("{what}: not built yet"))
}
