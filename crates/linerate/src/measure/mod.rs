//! `linerate measure`: one measurement, with its ceiling, its cost and what limited it.
//!
//! `trial_spec` parses the request, `repeat` decides how often, `measured` adds the facts about its path, `document`
//! turns all of it into JSON, `summary` and `text` into text. `ladder` and `nics` compare many
//! measurements.

pub(crate) mod block;
pub(crate) mod diffusion;
pub(crate) mod document;
#[cfg(test)]
pub(crate) mod fitting;
mod keep;
pub(crate) mod ladder;
mod live;
mod measured;
pub(crate) mod nics;
mod over_time;
pub(crate) mod preload;
mod repeat;
mod require;
mod spread;
pub(crate) mod stored;
mod summary;
mod text;
pub(crate) mod trial_spec;
mod verbs;

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path as FilePath;

use keep::{Between, Keeper};
use linerate_analysis::text::words::seconds_in_words;
use linerate_analysis::trial::operations::result_of;
use linerate_analysis::trial::rate_of;
use linerate_model::ceiling::PathCeilings;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::path::PathView;
use linerate_model::peer_address::PeerAddress;
use linerate_model::protocol::Failure;
use linerate_model::sample::{Flag, Sample, SideSample};
use linerate_model::units::{BitRate, Nanoseconds};
use linerate_model::workload::{TrialSpec, Verb};
use linerate_report::metrics::{MeasuredPath, measure_metrics, peer_label};
use linerate_runtime::cli::{
    FormatArg, MeasureAction, MeasureHttp, MeasureRdma, MeasureStream, PeerArgs, PeerOrForeign,
    StoreArgs, TrialArgs, UntilArgs,
};
use linerate_runtime::console::clock::now_unix_s;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::random::fresh_token;
use linerate_runtime::console::say::{Format, Say};
use linerate_runtime::endpoint::ends::Ends;
use linerate_runtime::endpoint::iperf3::{
    ForeignMeasurement, Iperf3Run, iperf3_json, measure_foreign, measure_foreign_again,
};
use linerate_runtime::endpoint::record::record;
use linerate_runtime::endpoint::trial::{
    PeerPath, copy_bandwidth, cut_short, open_path, source_towards,
};
use linerate_runtime::endpoint::why;
use linerate_traffic::http::Target;
use live::Live;
use measured::Measured;
use require::{Judged, Requirements};

use self::trial_spec::{placed, placement_alone, rdma_over, udp_over};
use crate::metrics::{MetricsOutput, and_published, provenance};

/// The port of an iperf3 server.
const IPERF3_PORT: u16 = 5201;
/// Programs of others at the remote end.
const IPERF3_SERVER: &str = "an iperf3 server";
const HTTP_SERVER: &str = "an HTTP server";
/// The width of iperf3's intervals.
const IPERF3_INTERVAL: Nanoseconds = Nanoseconds::from_millis(1_000);

/// How a measurement is shown.
#[derive(Debug, Clone, Copy)]
struct OutputOptions<'a> {
    say: &'a Say,
    /// As iperf3's own JSON.
    as_iperf3: bool,
    /// The requirements as JUnit's XML.
    as_junit: bool,
    /// Not only the summary.
    verbose: bool,
    /// Where the result is stored.
    keep: Keeper<'a>,
    metrics: &'a MetricsOutput<'a>,
}

/// Carries out `measure`.
pub(crate) fn run(
    action: &MeasureAction,
    verbose: bool,
    format: FormatArg,
    (state, store): (&FilePath, &StoreArgs),
    metrics: &MetricsOutput<'_>,
    say: &Say,
) -> Outcome<()> {
    let output = OutputOptions {
        say,
        keep: Keeper {
            args: store,
            state,
            say,
        },
        as_iperf3: format == FormatArg::Iperf3Json,
        as_junit: format == FormatArg::Junit,
        verbose,
        metrics,
    };
    let bulk = matches!(action, MeasureAction::Stream(_) | MeasureAction::Udp(_));
    if output.as_iperf3 && !bulk {
        return Err(Stop::new(
            Code::Usage,
            "only `stream` and `udp` can be printed as iperf3-json",
        ));
    }
    if verbose && format != FormatArg::Text {
        return Err(Stop::new(
            Code::Usage,
            "`--verbose` is for text: a JSON document has everything",
        ));
    }
    let once = UntilArgs::once();
    match action {
        MeasureAction::Stream(args) => stream(args, state, output),
        MeasureAction::Rr(args) => {
            let asked = trial_spec::rr(args)?;
            if let Some(library) = &args.preload {
                return preload::run(&args.peer, &asked, library, output);
            }
            let ask = |_: PathView<'_>| Ok(asked);
            over_peer(&args.peer, &args.trial, &args.until, state, output, ask)
        }
        MeasureAction::Pingpong(args) => {
            let asked = trial_spec::pingpong(args)?;
            if let Some(library) = &args.preload {
                return preload::run(&args.peer, &asked, library, output);
            }
            let ask = |_: PathView<'_>| Ok(asked);
            over_peer(&args.peer, &args.trial, &once, state, output, ask)
        }
        MeasureAction::Transfer(args) => {
            let asked = trial_spec::transfer(args)?;
            let ask = |_: PathView<'_>| Ok(asked);
            over_peer(&args.peer, &args.trial, &args.until, state, output, ask)
        }
        MeasureAction::Diffusion(args) => diffusion::run(args, state, output),
        MeasureAction::Udp(args) => {
            let asked = trial_spec::udp(args, None, false)?;
            match args.peer.peer() {
                Some(peer) => {
                    let ask = |path: PathView<'_>| udp_over(args, path);
                    over_peer(&peer, &args.trial, &args.until, state, output, ask)
                }
                None => foreign(&args.peer, &args.trial, &args.until, &asked, output),
            }
        }
        MeasureAction::Http(args) => http(args, state, output),
        MeasureAction::RdmaWrite(args) => rdma(args, Verb::Write, state, output),
        MeasureAction::RdmaRead(args) => rdma(args, Verb::Read, state, output),
        MeasureAction::RdmaSend(args) => rdma(args, Verb::Send, state, output),
        MeasureAction::RdmaAtomic(args) => rdma(args, Verb::Atomic, state, output),
        MeasureAction::Block(args) => block::run(args, output),
    }
}

/// A stream, or all send and receive modes compared.
fn stream(args: &MeasureStream, state: &FilePath, output: OutputOptions<'_>) -> Outcome<()> {
    let usage = |why: &str| Err(Stop::new(Code::Usage, why));
    let asked = trial_spec::measure_stream(args)?;
    let comparison = args.comparison.asked();
    let only = comparison.or_else(|| args.preload.as_ref().map(|_| "--preload"));
    if let Some(option) = only {
        preload::check_output(option, args.until.interval.is_some(), output)?;
    }
    if args.comparison.ladder {
        return ladder::run(args, state, output);
    }
    if comparison.is_some() {
        return nics::run(args, state, output);
    }
    if output.as_iperf3 && asked.verbs.is_some() {
        return usage("verbs support only text and json");
    }
    if let Some(library) = &args.preload {
        return preload::run(&preload::peer_of(args)?, &asked, library, output);
    }
    if args.why {
        if let Some(stop) = why::refused(&asked) {
            return Err(stop);
        }
        if output.as_iperf3 {
            return usage("`--why` supports only text and json");
        }
    }
    let trial = &args.stream.trial;
    match args.peer.peer() {
        Some(peer) => {
            let ask = |_: PathView<'_>| Ok(asked);
            let repeated = Repeated {
                until: &args.until,
                why: args.why,
            };
            over_peer(&peer, trial, repeated, state, output, ask)
        }
        None => foreign(&args.peer, trial, &args.until, &asked, output),
    }
}

/// The verbs themselves.
fn rdma(
    args: &MeasureRdma,
    verb: Verb,
    state: &FilePath,
    output: OutputOptions<'_>,
) -> Outcome<()> {
    // Contradicting options are reported before the peer is contacted.
    trial_spec::rdma(args, verb, None)?;
    let ask = |path: PathView<'_>| rdma_over(args, verb, path);
    over_peer(&args.peer, &args.trial, &args.until, state, output, ask)
}

/// What follows the first trial.
struct Repeated<'a> {
    until: &'a UntilArgs,
    /// Whether interventions find out what limits the rate.
    why: bool,
}

impl<'a> From<&'a UntilArgs> for Repeated<'a> {
    fn from(until: &'a UntilArgs) -> Self {
        Self { until, why: false }
    }
}

/// A measurement between two ends of ours.
fn over_peer<'r>(
    peer: &PeerArgs,
    trial: &TrialArgs,
    repeated: impl Into<Repeated<'r>>,
    state: &FilePath,
    output: OutputOptions<'_>,
    ask: impl FnOnce(PathView<'_>) -> Outcome<TrialSpec>,
) -> Outcome<()> {
    let say = output.say;
    let Repeated { until, why } = repeated.into();
    let requirements = Requirements::new(until, output.as_junit)?;
    let interrupt = Interrupt::listen()?;
    let mut path = open_path(peer, state, &interrupt, say)?;
    let spec = placed(trial, ask(path.view())?, path.view())?;
    peer.reach.check_data_from(&spec)?;
    say.note(&format!(
        "{}; Ctrl-C ends it early",
        announced(&path, &spec, peer)
    ));
    let copy = spec
        .workload
        .is_bulk()
        .then(|| copy_bandwidth(&path))
        .flatten();
    let began_unix_s = now_unix_s();
    let Trials {
        sample,
        repeats,
        interval,
    } = Trials::make(&mut path, &spec, until, &requirements, &interrupt, output)?;
    let repeats = repeats.as_ref();
    let end = EarlyEnd::of(&interrupt, &sample, repeats);
    let between = |path: &PeerPath| Between::ends(path, peer, copy);
    let label = peer_label(&peer.peer);
    if output.as_iperf3 {
        let document = iperf3_json(&Iperf3Run {
            sample: &sample,
            foreign: None,
            peer: SocketAddr::new(path.address, path.port.unwrap_or_default()),
            began_unix_s,
            interval: until.interval.unwrap_or(IPERF3_INTERVAL),
        });
        say.json(&document)?;
        let judged = end.or(say, || require::outcome(&requirements.judge(false)));
        let measured = Measured::over_path(&path, sample, copy);
        let published = publish(&measured, repeats, &end, &label, output);
        let result = keep::measurement(None, measured, requirements.into_figures());
        output
            .keep
            .keep(began_unix_s, || between(&path), vec![result], &[]);
        path.peer.leave_after_result(say)?;
        return and_published(judged, published);
    }
    let (why, stopped) = if why && end.is_none() {
        intervene(&mut path, &sample, say)
    } else {
        (None, None)
    };
    let mut measured = Measured::over_path(&path, sample, copy)
        .because(why)
        .every(interval, until);
    let shown = show(&measured, repeats, &requirements, &end, &label, output);
    let tried = measured.why.take().map(|why| why.tried).unwrap_or_default();
    let result = keep::measurement(None, measured, requirements.into_figures());
    output
        .keep
        .keep(began_unix_s, || between(&path), vec![result], &tried);
    if let Some(stop) = stopped {
        return Err(stop);
    }
    path.peer.leave_after_result(say)?;
    shown
}

/// The trials over a path between two linerate ends.
struct Trials {
    /// The one nearest to the median.
    sample: Sample,
    repeats: Option<repeat::Repeats>,
    /// The width of the intervals that the result reports; none if they were shown live.
    interval: Option<Nanoseconds>,
}

impl Trials {
    /// Runs as many as were requested.
    fn make(
        path: &mut PeerPath,
        spec: &TrialSpec,
        until: &UntilArgs,
        requirements: &Requirements<'_>,
        interrupt: &Interrupt,
        output: OutputOptions<'_>,
    ) -> Outcome<Self> {
        let live = Live::start(output, spec, until, true)?;
        live.confirm(interrupt);
        path.watch = live.watch();
        let (sample, repeats) = repeat::until_certain(
            until,
            spec.duration_ns,
            |number| {
                live.trial(number);
                let sample = path.run(spec, fresh_token()?)?;
                live.result(result_of(&sample));
                requirements.see(&sample, || measured::ceilings(path.view(), &sample, None))?;
                Ok(sample)
            },
            result_of,
            (
                || interrupt.is_ending_early(),
                || requirements.are_decided(),
            ),
        )?;
        path.watch = None;
        Ok(Self {
            sample,
            repeats,
            interval: until.interval.filter(|_| !live.end()),
        })
    }
}

/// What interventions show about the limit of `sample`, or what stopped them: what was measured before is shown all the
/// same.
fn intervene(path: &mut PeerPath, sample: &Sample, say: &Say) -> (Option<why::Why>, Option<Stop>) {
    let Some(rate) = rate_of(sample) else {
        return (None, None);
    };
    let suggested = why::suggested(path.view(), sample, rate);
    match why::find(path, sample, rate, &suggested, why::BUDGET, say) {
        Ok(found) => (Some(found), None),
        Err(stop) => (None, Some(stop)),
    }
}

/// What will be measured, and for how long.
fn announced(path: &PeerPath, spec: &TrialSpec, peer: &PeerArgs) -> String {
    // Each thread has at least one flow.
    let threads = spec.threads.filter(|threads| *threads > spec.flows);
    let flows = spec.flows;
    let capped = threads.map(|threads| format!("; --threads {threads} is capped at -P {flows}"));
    format!(
        "measuring {} over {} to {} ({}) {} {}{}",
        spec.workload.name(),
        way_of(path, spec),
        path.address,
        peer.peer,
        if spec.workload.ends_by_itself() {
            "until done, at most"
        } else {
            "for"
        },
        seconds_in_words(spec.duration_ns),
        capped.unwrap_or_default()
    )
}

/// What the data leaves by: the interface, and over verbs the device.
fn way_of(path: &PeerPath, spec: &TrialSpec) -> String {
    let nic = &path.local_nic;
    let verbs = spec.verbs.as_ref();
    match verbs.and_then(|verbs| path.local.rdma_port(nic, &verbs.local)) {
        Some((device, port)) => format!("{}/{} ({nic})", device.name, port.port),
        None => nic.to_string(),
    }
}

/// What a measurement that was ended early has measured; none if it was not.
#[derive(Debug)]
struct EarlyEnd(Option<String>);

impl EarlyEnd {
    fn of(interrupt: &Interrupt, sample: &Sample, repeats: Option<&repeat::Repeats>) -> Self {
        let of_what = || match repeats {
            Some(repeats) => repeats.counted(),
            None => format!("{:.1} s", sample.local.elapsed_ns.as_secs_f64()),
        };
        Self(interrupt.is_ending_early().then(of_what))
    }

    /// The early end of what has measured this.
    fn at(of_what: String) -> Self {
        Self(Some(of_what))
    }

    fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// The outcome of a measurement whose result is printed: that it was ended early, or else `outcome`.
    fn or(&self, say: &Say, outcome: impl FnOnce() -> Outcome<()>) -> Outcome<()> {
        match &self.0 {
            None => outcome(),
            Some(of_what) => {
                // There is a result: no error.
                say.note(&format!("interrupted: the result is that of {of_what}"));
                Err(Stop::interrupted().already_told())
            }
        }
    }
}

/// Whether a trial ran for its whole time: a part of one is not compared with whole ones.
fn is_whole(sample: &Outcome<Sample>) -> bool {
    let flags = sample.as_ref().map(|sample| &sample.flags);
    flags.is_ok_and(|flags| !flags.contains(&Flag::CutShort))
}

/// Prints the result and publishes its metrics; the exit code reports whether it is as certain as requested.
fn show(
    measured: &Measured<'_>,
    repeats: Option<&repeat::Repeats>,
    requirements: &Requirements<'_>,
    end: &EarlyEnd,
    peer: &str,
    output: OutputOptions<'_>,
) -> Outcome<()> {
    let say = output.say;
    let mut document = document::document(measured, repeats);
    document.requirements = requirements.judge(!end.is_none());
    document.interrupted = !end.is_none();
    match (say.format, output.verbose) {
        _ if output.as_junit => {
            let name = format!("linerate measure {}", measured.sample.spec.workload.name());
            say.data(&require::junit(&name, &document.requirements))?;
        }
        (Format::Json, _) => say.json(&document)?,
        (Format::OpenMetrics, _) => {}
        (_, true) => say.lines(&text::text(measured, &document, repeats))?,
        (_, false) => {
            say.styled_lines(&summary::text(measured, &document, repeats), summary::style)?;
        }
    }
    let published = publish(measured, repeats, end, peer, output);
    let judged = diffusion::judge(&measured.sample)
        .and_then(|()| end.or(say, || certain(repeats, &document.requirements)));
    and_published(judged, published)
}

/// Prints and writes the metrics of a result, as far as that is requested.
fn publish(
    measured: &Measured<'_>,
    repeats: Option<&repeat::Repeats>,
    end: &EarlyEnd,
    peer: &str,
    output: OutputOptions<'_>,
) -> Outcome<()> {
    output.metrics.publish(output.say, end.is_none(), || {
        let document = document::without_flows(measured, repeats, !end.is_none());
        let document = serde_json::to_value(document).map_err(|error| {
            Stop::new(Code::Bug, "cannot write a document as JSON").because(error)
        })?;
        let path = MeasuredPath {
            peer,
            nic: measured.ends.map(|ends| ends.local_nic.as_str()),
        };
        Ok(measure_metrics(&document, &path, &provenance()))
    })
}

/// Whether the result is as certain as requested, and as required.
fn certain(repeats: Option<&repeat::Repeats>, requirements: &[Judged]) -> Outcome<()> {
    require::outcome(requirements)?;
    if repeats.is_none_or(repeat::Repeats::is_as_asked) {
        return Ok(());
    }
    Err(Stop::new(
        Code::Inconclusive,
        "`--max-time` expired before the result reached the requested precision",
    )
    .hint("raise `--max-time`, or use longer trials with `--time`"))
}

/// A measurement against an iperf3 server.
fn foreign(
    peer: &PeerOrForeign,
    trial: &TrialArgs,
    until: &UntilArgs,
    spec: &TrialSpec,
    output: OutputOptions<'_>,
) -> Outcome<()> {
    let say = output.say;
    let requirements = Requirements::new(until, output.as_junit)?;
    let port = peer.port.unwrap_or(IPERF3_PORT);
    let server = address_of(peer.iperf3.as_deref().unwrap_or_default(), port)?;
    let mut spec = spec.clone();
    spec.placement = placement_alone(trial, &spec, server)?;
    let interrupt = Interrupt::listen()?;
    say.note(&format!(
        "measuring {} to the iperf3 server at {server} for {}; Ctrl-C ends it early",
        spec.workload.name(),
        seconds_in_words(spec.duration_ns)
    ));
    let result = |one: &ForeignMeasurement| measured::whole_rate(&one.sample).map(BitRate::as_f64);
    let live = Live::start_alone(output, &spec, until, &interrupt)?;
    let (measurement, repeats) = repeat::until_certain(
        until,
        spec.duration_ns,
        |number| {
            live.trial(number);
            let one = if number == 0 {
                measure_foreign(&spec, server, &interrupt)?
            } else {
                measure_foreign_again(&spec, server, &interrupt)?
            };
            live.result(result(&one));
            requirements.see(&one.sample, PathCeilings::default)?;
            Ok(one)
        },
        result,
        (
            || interrupt.is_ending_early(),
            || requirements.are_decided(),
        ),
    )?;
    let interval = until.interval.filter(|_| !live.end());
    let end = EarlyEnd::of(&interrupt, &measurement.sample, repeats.as_ref());
    if output.as_iperf3 {
        say.json(&iperf3_json(&Iperf3Run {
            sample: &measurement.sample,
            foreign: Some(&measurement.foreign),
            peer: server,
            began_unix_s: measurement.began_unix_s,
            interval: until.interval.unwrap_or(IPERF3_INTERVAL),
        }))?;
    }
    let began_unix_s = measurement.began_unix_s;
    let told = serde_json::json!({
        "program": "iperf3",
        "address": server.to_string(),
        "cpu_user_percent": measurement.foreign.server.cpu_user_percent,
        "cpu_system_percent": measurement.foreign.server.cpu_system_percent,
    });
    let measured = Measured::foreign(measurement.sample, told).every(interval, until);
    let peer = format!("iperf3://{server}");
    let repeats = repeats.as_ref();
    let shown = if output.as_iperf3 {
        let published = publish(&measured, repeats, &end, &peer, output);
        and_published(end.or(say, || Ok(())), published)
    } else {
        show(&measured, repeats, &requirements, &end, &peer, output)
    };
    let result = keep::measurement(None, measured, requirements.into_figures());
    output
        .keep
        .keep_foreign(began_unix_s, (IPERF3_SERVER, server.ip()), result);
    shown
}

/// `HOST[:PORT]`, looked up.
fn address_of(text: &str, port: u16) -> Outcome<SocketAddr> {
    let bad = |why: String| Stop::new(Code::Usage, format!("`{text}`: {why}"));
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if let Ok(ip) = text.parse() {
        return Ok(SocketAddr::new(ip, port));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, given)) => (
            host,
            given
                .parse()
                .map_err(|_| bad("the port must be 1 to 65535".to_owned()))?,
        ),
        None => (text, port),
    };
    let found = (host, port).to_socket_addrs();
    let mut found = found.map_err(|error| {
        Stop::new(Code::PeerUnreachable, format!("cannot resolve `{host}`")).because(error)
    })?;
    found
        .next()
        .ok_or_else(|| bad("the name has no address".to_owned()))
}

/// HTTP at a peer, or at any server.
fn http(args: &MeasureHttp, state: &FilePath, output: OutputOptions<'_>) -> Outcome<()> {
    let is_peer = |scheme| args.target.starts_with(scheme);
    if args.target.contains("://") && !["ssh://", "tls://"].into_iter().any(is_peer) {
        return load(args, output);
    }
    let peer: PeerAddress = args
        .target
        .parse()
        .map_err(|error: String| Stop::new(Code::Usage, format!("`{}`: {error}", args.target)))?;
    let peer = PeerArgs::reached(&peer, args.reach.clone());
    let asked = trial_spec::http(args, &args.path)?;
    let ask = |_: PathView<'_>| Ok(asked);
    over_peer(&peer, &args.trial, &args.until, state, output, ask)
}

/// Loads a server of others.
fn load(args: &MeasureHttp, output: OutputOptions<'_>) -> Outcome<()> {
    let say = output.say;
    let requirements = Requirements::new(&args.until, output.as_junit)?;
    if args.trial.reverse || args.trial.bidir {
        return Err(Stop::new(
            Code::Usage,
            "`--reverse` and `--bidir` need a linerate peer",
        ));
    }
    let (target, path) =
        Target::parse(&args.target).map_err(|error| Stop::from(Failure::from(&error)))?;
    let mut spec = trial_spec::http(args, &path)?;
    spec.placement = placement_alone(&args.trial, &spec, target.address)?;
    let interrupt = Interrupt::listen()?;
    say.note(&format!(
        "loading http://{}{path} ({}) for {}; Ctrl-C ends it early",
        target.host,
        target.address,
        seconds_in_words(spec.duration_ns)
    ));
    let live = Live::start_alone(output, &spec, &args.until, &interrupt)?;
    let began_unix_s = now_unix_s();
    let (sample, repeats) = repeat::until_certain(
        &args.until,
        spec.duration_ns,
        |number| {
            live.trial(number);
            let source = source_towards(target.address.ip()).ok();
            let abort = interrupt.abort().clone();
            let ends_early = interrupt.during_trial(move || abort.end_early());
            let local = record(&spec, source, None, || {
                linerate_traffic::http::load(&spec, &target, interrupt.abort())
            });
            drop(ends_early);
            interrupt.check()?;
            let cut_short = cut_short(interrupt.abort());
            let sample = Sample {
                spec: spec.clone(),
                local: local?,
                remote: SideSample::unheard(HTTP_SERVER),
                shared_kernel: false,
                flags: cut_short.into_iter().chain([Flag::ForeignPeer]).collect(),
            };
            live.result(result_of(&sample));
            requirements.see(&sample, PathCeilings::default)?;
            Ok(sample)
        },
        result_of,
        (
            || interrupt.is_ending_early(),
            || requirements.are_decided(),
        ),
    )?;
    let interval = args.until.interval.filter(|_| !live.end());
    let end = EarlyEnd::of(&interrupt, &sample, repeats.as_ref());
    let told = serde_json::json!({
        "program": "HTTP server",
        "address": target.address.to_string(),
    });
    let measured = Measured::foreign(sample, told).every(interval, &args.until);
    let repeats = repeats.as_ref();
    let server = format!("http://{}", target.host);
    let shown = show(&measured, repeats, &requirements, &end, &server, output);
    let result = keep::measurement(None, measured, requirements.into_figures());
    output
        .keep
        .keep_foreign(began_unix_s, (HTTP_SERVER, target.address.ip()), result);
    shown
}
