//! From the command line to the specification of a trial.

use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{
    Direction, Http, Pingpong, Rr, Stream, Transfer, TrialSpec, Udp, Workload,
};

use crate::cli::{
    MeasureHttp, MeasurePingpong, MeasureRr, MeasureStream, MeasureTransfer, MeasureUdp,
    StreamArgs, TrialArgs,
};
use crate::exit::{Code, Outcome, Stop};

/// How long a measurement lasts when nothing is said.
pub(super) const TIME: Nanoseconds = Nanoseconds::from_millis(10_000);
/// Workloads of a fixed amount end by themselves; this is for those that do not come to their end.
const TIME_OF_AN_AMOUNT: Nanoseconds = Nanoseconds::from_millis(600_000);
/// What a datagram of linerate's has at least: its own header.
const DATAGRAM_MIN: u64 = 24;

/// Whether both ends could carry it out; what a person asked for wrongly is a usage error.
fn checked(spec: TrialSpec) -> Outcome<TrialSpec> {
    spec.check()
        .map_err(|error| Stop::new(Code::Usage, error.to_string()))?;
    Ok(spec)
}

/// What is common to all workloads; trials last `time` when the arguments do not say.
fn common(args: &TrialArgs, time: Nanoseconds, workload: Workload) -> TrialSpec {
    let duration_ns = args.time.unwrap_or(time);
    let direction = match (args.reverse, args.bidir) {
        (true, _) => Direction::Reverse,
        (_, true) => Direction::Bidirectional,
        _ => Direction::Forward,
    };
    // Twenty readings of a short trial, ten a second of a long one; fewer of thousands of flows, so that
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
        interval_ns: if args.no_record {
            duration_ns
        } else {
            args.interval.unwrap_or(Nanoseconds::new(interval))
        },
        socket_buffer_bytes: args.socket_buffer,
        congestion_control: args.cc.clone(),
        threads: args.threads,
        waiting: args.wait,
        mss_bytes: args.mss,
        pacing_bit_per_s: args.pacing,
        profile_hz: args.profile,
        unrecorded: args.no_record,
        ..TrialSpec::default()
    }
}

/// The stream that the arguments ask for; trials last `time` when they do not say. Where its threads run
/// is worked out when the path is known.
pub fn stream(args: &StreamArgs, bytes: Option<Bytes>, time: Nanoseconds) -> Outcome<TrialSpec> {
    let workload = Workload::Stream(Stream {
        send: args.send.into(),
        receive: args.receive.into(),
        bytes,
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

pub(super) fn measure_stream(args: &MeasureStream) -> Outcome<TrialSpec> {
    stream(&args.stream, args.bytes, TIME)
}

pub(super) fn rr(args: &MeasureRr) -> Outcome<TrialSpec> {
    let workload = Workload::Rr(Rr {
        request_bytes: args.request,
        response_bytes: args.response,
        depth: args.depth,
        connect_each: args.connect_each,
        rate_per_s: args.rate,
    });
    checked(common(&args.trial, TIME, workload))
}

pub(super) fn pingpong(args: &MeasurePingpong) -> Outcome<TrialSpec> {
    let sizes = if args.sizes.is_empty() {
        Pingpong::imb_sizes()
    } else {
        args.sizes.clone()
    };
    let workload = Workload::Pingpong(Pingpong {
        sizes,
        repetitions: args.repetitions,
        volume_bytes: args.volume.unwrap_or(Pingpong::imb_volume()),
    });
    checked(common(&args.trial, TIME_OF_AN_AMOUNT, workload))
}

pub(super) fn http(args: &MeasureHttp, path: &str) -> Outcome<TrialSpec> {
    let workload = Workload::Http(Http {
        path: path.to_owned(),
        body_bytes: args.body,
        rate_per_s: args.rate,
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

pub(super) fn transfer(args: &MeasureTransfer) -> Outcome<TrialSpec> {
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
    checked(common(&args.trial, time, workload))
}

/// `mtu` is that of the interface that the datagrams leave by, when it is known.
pub(super) fn udp(args: &MeasureUdp, mtu: Option<u32>, ipv6: bool) -> Outcome<TrialSpec> {
    if args.trial.cc.is_some() || args.trial.mss.is_some() || args.trial.pacing.is_some() {
        return Err(Stop::new(
            Code::Usage,
            "`--cc`, `--mss` and `--pacing` are TCP's: datagrams have `--rate` and `--size`",
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
    });
    checked(common(&args.trial, TIME, workload))
}
