//! `linerate measure`: one measurement, with its ceiling, its cost and what limited it.

use std::path::Path as FilePath;

use linerate_model::analysis::{cost_of_local, cost_of_remote, flags, rate_series};
use linerate_model::ceiling::{PathFacts, ceilings_of_path, share};
use linerate_model::host::Host;
use linerate_model::limit::name_limit;
use linerate_model::plan::End;
use linerate_model::sample::{Flag, Sample, SideSample};
use linerate_model::units::{BitRate, Nanoseconds, Ratio};
use linerate_model::workload::{Direction, Placement, TrialSpec};
use serde::Serialize;
use serde_json::{Value, json};

use crate::analysis::{first_kept, rate_of, settling_flag};
use crate::cli::{MeasureArgs, PeerArgs, StreamArgs};
use crate::exit::{Outcome, Stop};
use crate::interrupt::Interrupt;
use crate::peer::Peer;
use crate::prove::{fresh_token, seconds_in_words};
use crate::say::{Format, Say};
use crate::station::Station;
use crate::trial::Path;

/// How long a measurement lasts when nothing is said.
const TIME: Nanoseconds = Nanoseconds::from_millis(10_000);

/// What `measure --format json` prints (schema `linerate.sample/1`).
#[derive(Debug, Serialize)]
struct MeasureDocument {
    schema: &'static str,
    workload: &'static str,
    transport: &'static str,
    direction: Direction,
    placement: PlacementDocument,
    seconds: f64,
    total: Total,
    flows: Vec<Value>,
    latency_ns: Option<Value>,
    cpu: Value,
    ceiling: Value,
    limit: Value,
    flags: Vec<Flag>,
    hosts: Value,
    raw: Sample,
}

/// Where the threads of both ends were put; null is the scheduler's choice.
#[derive(Debug, Serialize)]
struct PlacementDocument {
    local: Value,
    remote: Value,
}

#[derive(Debug, Serialize)]
struct Total {
    rate_bit_per_s: Option<f64>,
    bytes: u64,
    ops_per_s: Option<f64>,
    warmup_s: f64,
}

/// The stream that the arguments ask for; trials last `time` when they do not say.
pub fn stream_spec(args: &StreamArgs, time: Nanoseconds) -> Outcome<TrialSpec> {
    let duration_ns = args.time.unwrap_or(time);
    let direction = match (args.reverse, args.bidir) {
        (true, _) => Direction::Reverse,
        (_, true) => Direction::Bidirectional,
        _ => Direction::Forward,
    };
    // Twenty readings of a short trial, ten a second of a long one.
    let interval = (duration_ns.as_u64() / 20).clamp(1_000_000, 100_000_000);
    let spec = TrialSpec {
        flows: args.flows,
        direction,
        duration_ns,
        interval_ns: Nanoseconds::new(interval),
        buffer_bytes: args.buffer,
        socket_buffer_bytes: args.socket_buffer,
        congestion_control: args.cc.clone(),
        placement: args.place.clone().unwrap_or_default(),
        ..TrialSpec::default()
    };
    spec.check()
        .map_err(|error| Stop::new(crate::exit::Code::Usage, error.to_string()))?;
    Ok(spec)
}

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
        let budget = std::time::Duration::from_millis(60);
        linerate_traffic::copy::cached_copy_bandwidth(None, budget).ok()
    };
    (0..4).filter_map(sample).max()
}

/// Carries out `measure`.
pub fn run(args: &MeasureArgs, state: &FilePath, say: &Say) -> Outcome<()> {
    let spec = stream_spec(&args.stream, TIME)?;
    let interrupt = Interrupt::listen()?;
    let mut path = open_path(&args.peer, state, &interrupt)?;
    say.note(&format!(
        "measuring a TCP stream over {} to {} ({}) for {}; Ctrl-C stops it",
        path.local_nic,
        path.address,
        args.peer.peer,
        seconds_in_words(spec.duration_ns)
    ));
    let copy = copy_bandwidth(&path);
    let sample = path.run(&spec, fresh_token()?)?;
    let document = document(&path, sample, copy);
    if say.format == Format::Json {
        say.json(&document)?;
    } else {
        say.lines(&text(&document, &path))?;
    }
    path.peer.leave()
}

fn document(path: &Path, sample: Sample, copy: Option<BitRate>) -> MeasureDocument {
    let facts = PathFacts {
        local: &path.local,
        local_nic: &path.local_nic,
        remote: &path.remote,
        remote_nic: &path.remote_nic,
        flows: sample.spec.flows,
        direction: sample.spec.direction,
        ipv6: path.address.is_ipv6(),
        copy_bandwidth: copy,
        sample: Some(&sample),
    };
    let ceilings = ceilings_of_path(&facts);
    let rate = rate_of(&sample);
    let lowest = ceilings.lowest();
    let reached = lowest
        .zip(rate)
        .and_then(|(ceiling, rate)| share(rate, ceiling.bit_per_s));
    let limit =
        rate.map(|rate| name_limit(&sample, &path.local, &path.remote, &ceilings.ceilings, rate));
    let mut flags = flags(&sample, &path.local, &path.remote, lowest, rate);
    flags.extend(settling_flag(&sample));
    let bytes = [&sample.local, &sample.remote]
        .into_iter()
        .flat_map(SideSample::receivers)
        .map(|flow| flow.total().as_u64())
        .sum();
    let kept = first_kept(&sample);
    let series = rate_series(&sample);
    let warmup = kept.checked_sub(1).and_then(|last| series.total.get(last));
    let placement = &sample.spec.placement;
    MeasureDocument {
        schema: "linerate.sample/1",
        workload: "stream",
        transport: "tcp",
        direction: sample.spec.direction,
        placement: placement_document(placement, sample.spec.direction),
        seconds: sample.spec.duration_ns.as_secs_f64(),
        total: Total {
            rate_bit_per_s: rate.map(BitRate::as_f64),
            bytes,
            ops_per_s: None,
            warmup_s: warmup.map_or(0.0, |point| point.at_ns.as_secs_f64()),
        },
        flows: flows(&sample),
        latency_ns: None,
        cpu: json!({
            "local": known_or_null(&cost_of_local(&sample)),
            "remote": known_or_null(&cost_of_remote(&sample)),
        }),
        ceiling: json!({
            "bit_per_s": lowest.map(|ceiling| ceiling.bit_per_s.as_f64()),
            "share": reached.map(Ratio::as_f64),
            "reason": lowest.map_or("no bound could be computed", |ceiling| &ceiling.reason),
        }),
        limit: json!({
            "what": limit.as_ref().map_or("not determined".to_owned(), |l| l.what.to_string()),
            "rule": limit.as_ref().and_then(|l| l.rule.clone()),
            "evidence": limit.as_ref().map(|l| l.evidence.clone()).unwrap_or_default(),
        }),
        flags,
        hosts: json!({ "local": host_line(&path.local), "remote": host_line(&path.remote) }),
        raw: sample,
    }
}

fn placement_document(placement: &Placement, direction: Direction) -> PlacementDocument {
    let end = |sends: bool, receives: bool| {
        let chosen = [
            ("sender_cpus", &placement.sender_cpus, sends),
            ("receiver_cpus", &placement.receiver_cpus, receives),
        ];
        let chosen: serde_json::Map<String, Value> = chosen
            .into_iter()
            .filter(|(_, cpus, is_here)| *is_here && !cpus.is_empty())
            .map(|(name, cpus, _)| (name.to_owned(), json!(cpus)))
            .collect();
        if chosen.is_empty() {
            Value::Null
        } else {
            Value::Object(chosen)
        }
    };
    let both = direction == Direction::Bidirectional;
    let forward = direction == Direction::Forward;
    PlacementDocument {
        local: end(both || forward, both || !forward),
        remote: end(both || !forward, both || forward),
    }
}

fn flows(sample: &Sample) -> Vec<Value> {
    let series = rate_series(sample);
    let flow = |series: &linerate_model::analysis::FlowSeries| {
        let (from, to) = match series.from {
            End::Local => (&sample.local, &sample.remote),
            End::Remote => (&sample.remote, &sample.local),
        };
        let sender = from.senders().find(|f| f.flow == series.flow);
        let receiver = to.receivers().find(|f| f.flow == series.flow);
        let mean = receiver.and_then(|f| BitRate::of(f.total(), *f.at_ns.last()?));
        json!({
            "flow": series.flow,
            "from": series.from,
            "bytes": receiver.map(|f| f.total().as_u64()),
            "rate_bit_per_s": mean.map(BitRate::as_f64),
            "series": {
                "at_s": series.points.iter().map(|p| p.at_ns.as_secs_f64()).collect::<Vec<_>>(),
                "rate_bit_per_s": series.points.iter().map(|p| p.bit_per_s.as_f64()).collect::<Vec<_>>(),
            },
            "sender_cpu": sender.and_then(|f| f.last_cpu.get()),
            "receiver_cpu": receiver.and_then(|f| f.last_cpu.get()),
            "tcp": sender.map(|f| known_or_null(&f.tcp)),
        })
    };
    series.flows.iter().map(flow).collect()
}

/// A value as `--format json` prints it: what is not known is null.
fn known_or_null<T: Serialize>(value: &T) -> Value {
    crate::report::nulled(value)
}

fn host_line(host: &Host) -> Value {
    json!({
        "hostname": host.identity.hostname.value(),
        "kernel_release": host.identity.kernel_release.value(),
        "cpu_model": host.identity.cpu_model.value(),
        "boot_id": host.identity.boot_id.value(),
    })
}

fn text(document: &MeasureDocument, path: &Path) -> String {
    let rate = |rate: Option<f64>| {
        rate.and_then(BitRate::from_f64)
            .map_or_else(|| "not known".to_owned(), |r| r.to_string())
    };
    let mut lines = vec![format!(
        "rate      {}   ({} flow{}, {:.1} s, first {:.2} s cut as warm-up)",
        rate(document.total.rate_bit_per_s),
        document.raw.spec.flows,
        if document.raw.spec.flows == 1 {
            ""
        } else {
            "s"
        },
        document.seconds,
        document.total.warmup_s,
    )];
    let bound = document.ceiling["bit_per_s"].as_f64();
    let reason = document.ceiling["reason"]
        .as_str()
        .unwrap_or("no bound could be computed");
    let reached = document.ceiling["share"]
        .as_f64()
        .map_or_else(String::new, |share| {
            format!(" ({} reached)", Ratio::new(share))
        });
    lines.push(format!("ceiling   {}{reached}: {reason}", rate(bound)));
    lines.push(format!(
        "limit     {}",
        document.limit["what"].as_str().unwrap_or("not determined")
    ));
    for evidence in document.limit["evidence"].as_array().into_iter().flatten() {
        let field = |name: &str| evidence[name].as_str().unwrap_or_default().to_owned();
        lines.push(format!(
            "          {}: {}  [{}]",
            field("what"),
            field("value"),
            field("path")
        ));
    }
    for (end, name) in [
        ("local", path.local_nic.to_string()),
        ("remote", path.remote_nic.to_string()),
    ] {
        let cpu = &document.cpu[end];
        let seconds = |kind: &str| {
            cpu[kind]
                .as_f64()
                .map_or_else(|| "?".to_owned(), |s| format!("{s:.2}"))
        };
        lines.push(format!(
            "cpu       {end:<6} ({name}) user {} s, system {} s, softirq {} s, {} s per GB",
            seconds("user_s"),
            seconds("system_s"),
            seconds("softirq_s"),
            cpu["s_per_gb"]
                .as_f64()
                .map_or_else(|| "?".to_owned(), |s| format!("{s:.3}")),
        ));
    }
    if !document.flags.is_empty() {
        let flags: Vec<String> = document
            .flags
            .iter()
            .filter_map(|flag| Some(serde_json::to_value(flag).ok()?.as_str()?.to_owned()))
            .collect();
        lines.push(format!("flags     {}", flags.join(", ")));
    }
    lines.join("\n")
}
