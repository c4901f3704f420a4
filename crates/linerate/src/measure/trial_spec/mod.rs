//! From the command line to the specification of a trial.

mod placing;

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::Host;
use linerate_model::ids::NicName;
use linerate_model::path::PathView;
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{
    DeviceChoice, Diffusion, Direction, Http, Pingpong, Rdma, Rr, Service, Stream, Transfer,
    TrialSpec, Udp, Verb, Verbs, Waiting, Workload,
};
pub(crate) use placing::{placed, placement_alone};

use linerate_runtime::cli::{
    MeasureAction, MeasureDiffusion, MeasureHttp, MeasurePingpong, MeasureRdma, MeasureRr,
    MeasureStream, MeasureTransfer, MeasureUdp, ServiceArg, StreamArgs, TransportArg,
    TransportArgs, TrialArgs,
};

/// The default duration of a measurement.
pub(crate) const TIME: Nanoseconds = Nanoseconds::from_millis(10_000);
/// Workloads of a fixed amount end by themselves; this is for those that do not finish.
const TIME_OF_AN_AMOUNT: Nanoseconds = Nanoseconds::from_millis(600_000);
/// What a datagram of linerate's has at least: its own header.
const DATAGRAM_MIN: u64 = 24;

/// Whether both ends could run it; an invalid request is a usage error.
fn checked(spec: TrialSpec) -> Outcome<TrialSpec> {
    spec.check()
        .map_err(|error| Stop::new(Code::Usage, error.to_string()))?;
    Ok(spec)
}

/// The common part of all workloads; trials last `time` by default.
fn common(args: &TrialArgs, time: Nanoseconds, workload: Workload) -> TrialSpec {
    let duration = args.time.unwrap_or(time).as_u64();
    let duration_ns = match args.omit {
        Some(omit) => Nanoseconds::new(duration.saturating_add(omit.as_u64())),
        None => Nanoseconds::new(duration),
    };
    let direction = match (args.reverse, args.bidir) {
        (true, _) => Direction::Reverse,
        (_, true) => Direction::Bidirectional,
        _ => Direction::Forward,
    };
    // Twenty readings of a short trial, ten per second of a long one; fewer for thousands of flows, so that
    // the record stays small.
    let records = u64::from(args.flows) * if args.bidir { 2 } else { 1 };
    let by_flows = duration_ns.as_u64() / (250_000 / records).max(1) + 1;
    let interval = (duration_ns.as_u64() / 20)
        .clamp(1_000_000, 100_000_000)
        .max(by_flows)
        .min(duration_ns.as_u64());
    TrialSpec {
        workload,
        flows: args.flows,
        direction,
        duration_ns,
        omit_ns: args.omit,
        interval_ns: if args.no_record {
            duration_ns
        } else {
            args.sample_interval.unwrap_or(Nanoseconds::new(interval))
        },
        socket_buffer_bytes: args.socket_buffer,
        congestion_control: args.cc.clone(),
        threads: args.threads,
        threads_remote: args.threads_remote,
        waiting: args.wait.unwrap_or_default(),
        waiting_remote: args.wait_remote,
        mss_bytes: args.mss,
        pacing_bit_per_s: args.pacing,
        profile_hz: args.perf,
        unrecorded: args.no_record,
        events: args.events,
        ..TrialSpec::default()
    }
}

/// The stream that the arguments request; trials last `time` by default. The CPUs of its threads
/// are determined when the path is known.
pub(crate) fn stream(
    args: &StreamArgs,
    bytes: Option<Bytes>,
    time: Nanoseconds,
) -> Outcome<TrialSpec> {
    let workload = Workload::Stream(Stream {
        send: args.send.into(),
        receive: args.receive.into(),
        bytes,
        data_check: false,
    });
    let time = if bytes.is_some() {
        TIME_OF_AN_AMOUNT
    } else {
        time
    };
    checked(TrialSpec {
        buffer_bytes: args.buffer,
        ..common(&args.trial, time, workload)
    })
}

pub(crate) fn measure_stream(args: &MeasureStream) -> Outcome<TrialSpec> {
    let over_verbs = args.transport.transport == TransportArg::Verbs;
    if args.depth.is_some() && !over_verbs {
        return Err(needs_verbs("--depth"));
    }
    let is_tcp_only = args.comparison.asked().is_some() || args.peer.iperf3.is_some();
    if over_verbs && is_tcp_only {
        return Err(Stop::new(
            Code::Usage,
            "`--ladder`, `--nic` and `--iperf3` work over TCP only, not over verbs",
        ));
    }
    let depth = args.depth.unwrap_or(Verbs::default_depth());
    let mut spec = stream(&args.stream, args.bytes, TIME)?;
    if let Workload::Stream(stream) = &mut spec.workload {
        stream.data_check = args.data_check;
    }
    spec.marks = args.marks.marks();
    if !spec.marks.is_none() && args.peer.iperf3.is_some() {
        let why = "`--priority`, `--dscp` and `--mark` need a linerate peer";
        return Err(Stop::new(Code::Usage, why));
    }
    over(&args.transport, depth, checked(spec)?)
}

fn needs_verbs(option: &str) -> Stop {
    Stop::new(
        Code::Usage,
        format!("`{option}` applies to RDMA verbs, but the transport is tcp"),
    )
    .hint("add `--transport verbs`")
}

/// The trial on the transport that was requested, over verbs with `depth` work requests on each queue pair.
fn over(args: &TransportArgs, depth: u32, spec: TrialSpec) -> Outcome<TrialSpec> {
    match (args.transport, args.verbs.given()) {
        (TransportArg::Tcp, None) => Ok(spec),
        (TransportArg::Tcp, Some(option)) => Err(needs_verbs(option)),
        (TransportArg::Verbs, _) => checked(TrialSpec {
            verbs: Some(args.verbs.verbs(Service::Rc, depth)),
            ..spec
        }),
    }
}

/// `mtu` is the smaller path MTU of both ends' ports, when it is known: no datagram is longer.
pub(crate) fn rdma(args: &MeasureRdma, verb: Verb, mtu: Option<u32>) -> Outcome<TrialSpec> {
    let usage = |why: &str| Err(Stop::new(Code::Usage, why));
    let service = Service::from(args.service);
    let sizes = match (args.sweep, &args.sizes[..], verb) {
        (true, _, Verb::Atomic) => {
            return usage(
                "`--sweep` does not apply to rdma-atomic: an atomic operation is always \
                8 B",
            );
        }
        (true, ..) => {
            let mut sizes = Rdma::sweep_sizes();
            if args.service == ServiceArg::Ud {
                let packet = u64::from(args.verbs.mtu.or(mtu).unwrap_or(1_024));
                sizes.retain(|size| size.as_u64() <= packet);
            }
            sizes
        }
        (false, [], Verb::Atomic) => vec![Verb::ATOMIC_BYTES],
        (false, [], _) if args.latency => vec![Bytes::new(2)],
        (false, [], _) if args.service == ServiceArg::Ud => {
            // perftest's 64 KiB limited to messages of one packet.
            vec![Bytes::new(args.verbs.mtu.or(mtu).unwrap_or(1_024).into())]
        }
        (false, [], _) => vec![Bytes::kib(64)],
        (false, sizes, _) => sizes.to_vec(),
    };
    let workload = Workload::Rdma(Rdma {
        verb,
        latency: args.latency,
        sizes,
        repetitions: args.repetitions,
        data_check: args.data_check,
    });
    let time = if args.repetitions.is_some() {
        TIME_OF_AN_AMOUNT
    } else {
        TIME
    };
    let depth = if args.latency {
        1
    } else {
        args.depth.unwrap_or(Verbs::default_depth())
    };
    checked(TrialSpec {
        verbs: Some(args.verbs.verbs(service, depth)),
        waiting: args.trial.wait.unwrap_or(Waiting::Spin),
        ..common(&args.trial, time, workload)
    })
}

pub(crate) fn rr(args: &MeasureRr) -> Outcome<TrialSpec> {
    let workload = Workload::Rr(Rr {
        request_bytes: args.request,
        response_bytes: args.response,
        depth: args.depth,
        connect_each: args.reconnect,
        rate_per_s: args.rate,
    });
    let spec = checked(TrialSpec {
        marks: args.marks.marks(),
        ..common(&args.trial, TIME, workload)
    })?;
    over(&args.transport, args.depth, spec)
}

pub(crate) fn pingpong(args: &MeasurePingpong) -> Outcome<TrialSpec> {
    let sizes = if args.sizes.is_empty() {
        Pingpong::imb_sizes()
    } else {
        args.sizes.clone()
    };
    let workload = Workload::Pingpong(Pingpong {
        sizes,
        repetitions: args.repetitions,
        volume_bytes: args.volume.unwrap_or(Pingpong::imb_volume()),
        data_check: args.data_check,
    });
    let spec = checked(common(&args.trial, TIME_OF_AN_AMOUNT, workload))?;
    over(&args.transport, Verbs::default_depth(), spec)
}

pub(crate) fn http(args: &MeasureHttp, path: &str) -> Outcome<TrialSpec> {
    let workload = Workload::Http(Http {
        path: path.to_owned(),
        body_bytes: args.body,
        rate_per_s: args.rate,
        server: None,
    });
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let one_a_cpu = u32::try_from(cpus)
        .unwrap_or(u32::MAX)
        .min(args.trial.flows);
    let spec = common(&args.trial, TIME, workload);
    checked(TrialSpec {
        threads: spec
            .threads
            .or(Some(one_a_cpu.clamp(1, TrialSpec::THREADS_MAX))),
        ..spec
    })
}

pub(crate) fn transfer(args: &MeasureTransfer) -> Outcome<TrialSpec> {
    let workload = Workload::Transfer(Transfer {
        bytes: args.bytes,
        repetitions: args.repetitions,
        data_check: args.data_check,
    });
    let time = if args.repetitions.is_some() {
        TIME_OF_AN_AMOUNT
    } else {
        TIME
    };
    let spec = checked(common(&args.trial, time, workload))?;
    over(&args.transport, Verbs::default_depth(), spec)
}

pub(crate) fn diffusion(args: &MeasureDiffusion) -> Outcome<TrialSpec> {
    let workload = Workload::Diffusion(Diffusion {
        bytes: args.buffer,
        repetitions: args.repetitions,
        work: !args.no_compute,
        data_check: args.data_check,
        pictures: args.pictures.is_some(),
    });
    let time = if args.repetitions.is_some() {
        TIME_OF_AN_AMOUNT
    } else {
        TIME
    };
    let spec = checked(common(&args.trial, time, workload))?;
    over(&args.transport, Verbs::default_depth(), spec)
}

/// `mtu` is that of the interface that the datagrams leave by, when it is known.
pub(crate) fn udp(args: &MeasureUdp, mtu: Option<u32>, ipv6: bool) -> Outcome<TrialSpec> {
    if args.trial.cc.is_some() || args.trial.mss.is_some() || args.trial.pacing.is_some() {
        return Err(Stop::new(
            Code::Usage,
            "`--cc`, `--mss` and `--pacing` apply to TCP: use `--rate` and `--size` for datagrams",
        ));
    }
    let headers = if ipv6 { 48 } else { 28 };
    let filling = mtu.map_or(1_500, u64::from).saturating_sub(headers);
    let datagram_bytes = args
        .size
        .unwrap_or(Bytes::new(filling.clamp(DATAGRAM_MIN, 65_507)));
    let workload = Workload::Udp(Udp {
        datagram_bytes,
        rate_bit_per_s: args.rate,
        batch: args.batch.into(),
        probe: None,
    });
    checked(TrialSpec {
        marks: args.marks.marks(),
        ..common(&args.trial, TIME, workload)
    })
}

/// The smaller MTU of both ends' ports, when both are known.
fn path_mtu(args: &MeasureRdma, path: PathView<'_>) -> Option<u32> {
    let verbs = args.verbs.verbs(args.service.into(), 1);
    let mtu = |host: &Host, nic: &NicName, choice: &DeviceChoice| {
        let (_, port) = host.rdma_port(nic, choice)?;
        u32::try_from(port.mtu_active.get()?.as_u64()).ok()
    };
    let here = mtu(path.local, path.local_nic, &verbs.local)?;
    let there = mtu(path.remote, path.remote_nic, &verbs.remote)?;
    Some(here.min(there))
}

/// Datagrams that fill the frames of the path.
pub(crate) fn udp_over(args: &MeasureUdp, path: PathView<'_>) -> Outcome<TrialSpec> {
    let mtu = (path.local.nic(path.local_nic)).and_then(|nic| nic.mtu.get());
    udp(args, mtu, path.ipv6)
}

/// The trial that `action` asks for between two ends of ours, placed; none where it asks for something else than one
/// trial between them.
pub(crate) fn trial_of(action: &MeasureAction, path: PathView<'_>) -> Outcome<Option<TrialSpec>> {
    let (trial, spec) = match action {
        MeasureAction::Stream(args)
            if args.comparison.asked().is_some() || args.preload.is_some() =>
        {
            return Ok(None);
        }
        MeasureAction::Block(_) => return Ok(None),
        MeasureAction::Stream(args) => (&args.stream.trial, measure_stream(args)?),
        MeasureAction::Rr(args) if args.preload.is_some() => return Ok(None),
        MeasureAction::Rr(args) => (&args.trial, rr(args)?),
        MeasureAction::Pingpong(args) if args.preload.is_some() => return Ok(None),
        MeasureAction::Pingpong(args) => (&args.trial, pingpong(args)?),
        MeasureAction::Transfer(args) => (&args.trial, transfer(args)?),
        MeasureAction::Diffusion(args) if args.overhead.is_some() => return Ok(None),
        MeasureAction::Diffusion(args) => (&args.trial, diffusion(args)?),
        MeasureAction::Udp(args) => (&args.trial, udp_over(args, path)?),
        MeasureAction::Http(args) => (&args.trial, http(args, &args.path)?),
        MeasureAction::RdmaWrite(args) => (&args.trial, rdma_over(args, Verb::Write, path)?),
        MeasureAction::RdmaRead(args) => (&args.trial, rdma_over(args, Verb::Read, path)?),
        MeasureAction::RdmaSend(args) => (&args.trial, rdma_over(args, Verb::Send, path)?),
        MeasureAction::RdmaAtomic(args) => (&args.trial, rdma_over(args, Verb::Atomic, path)?),
    };
    placed(trial, spec, path).map(Some)
}

/// A trial of verbs, with the MTU of the path.
pub(crate) fn rdma_over(args: &MeasureRdma, verb: Verb, path: PathView<'_>) -> Outcome<TrialSpec> {
    rdma(args, verb, path_mtu(args, path))
}
