//! The specification of the trial of one class.

use linerate_analysis::qos::verification::Part;
use linerate_analysis::trial::operations::real;
use linerate_model::host::Host;
use linerate_model::qos::{QosClass, Selector};
use linerate_model::units::{BitRate, Bytes, Nanoseconds};
use linerate_model::workload::{
    DatagramBatch, Direction, Marks, Rr, Stream, TrialSpec, Udp, Verbs, Workload,
};
use linerate_runtime::cli::QosVerifyArgs;

/// What is not counted at the start of a trial: the burst allowance of a class, and TCP's slow start.
pub(super) const WARM_UP: Nanoseconds = Nanoseconds::from_millis(1_000);
/// Round trips per second of a class that is watched: enough for a p99, and too few to load it.
const PROBES_PER_S: u64 = 500;
/// How much faster than its limit the datagrams of a class are sent, so that they wait in it.
const OVERLOAD: f64 = 1.5;
/// The headers of a datagram (IPv6, UDP), and the default MTU.
const DATAGRAM_HEADERS: u32 = 48;
const MTU: u32 = 1_500;
/// What a flow holds in its socket: its share of the limit for this long.
const SOCKET_S: f64 = 0.2;
const SOCKET_MIN: f64 = 32_768.0;
/// Larger buffers are left to the kernel (`net.core.wmem_max` is 208 KiB by default).
const SOCKET_MAX: f64 = 131_072.0;
/// What a queue pair has in flight: its share of the limit for this long, which is less than the default ACK timeout (67 ms).
const IN_FLIGHT_S: f64 = 0.015;
/// Its messages: from a packet of RoCE at an MTU of 1500 to the default, so that several of them are in flight.
const MESSAGE_MIN: u64 = 1 << 10;
const MESSAGE_MAX: u64 = 128 << 10;
const MESSAGES: u64 = 8;
/// The ACK timeout is 4.096 us x 2^N (InfiniBand 9.7.6.1.3). The default N, the highest one, and how many times the delay in the
/// class's queue it lasts.
const ACK_TIMEOUT_S: f64 = 4.096e-6;
const ACK_TIMEOUT: u8 = 14;
const ACK_TIMEOUT_MAX: u8 = 31;
const ACK_TIMEOUT_DELAYS: f64 = 4.0;

/// The marks of the packets of a class.
fn marks(class: &QosClass, args: &QosVerifyArgs) -> Marks {
    let mut marks = Marks::default();
    match &class.selector {
        Selector::Priority(priority) => marks.priority = Some((*priority).into()),
        Selector::Dscp(dscp) => marks.dscp = Some(*dscp),
        Selector::Mark(mark) => marks.mark = Some(*mark),
        Selector::Ports(ports) if args.udp => marks.udp_port = ports.first().copied(),
        Selector::Ports(_) | Selector::Vlan | Selector::Rest => {}
    }
    marks
}

/// The traffic class of queue pairs: the DSCP, or the priority as a class selector (RFC 2474), and as service level.
fn verbs(class: &QosClass) -> Verbs {
    let mut verbs = Verbs::default();
    if let Selector::Dscp(dscp) = class.selector {
        verbs.traffic_class = dscp << 2;
    } else if let Some(priority) = class.priority {
        verbs.traffic_class = priority << 5;
        verbs.service_level = priority;
    }
    verbs
}

/// The messages of `flows` queue pairs that share a limit: without a bound, all that the depth allows waits in the queue of the
/// class for longer than the ACK timeout, and the queue pairs fail with `retry count exceeded`.
fn bounded(verbs: Verbs, limit: BitRate, flows: u32) -> (Verbs, Bytes) {
    let bytes_per_s = limit.as_f64() / 8.0;
    let each = BitRate::from_f64(bytes_per_s / f64::from(flows) * IN_FLIGHT_S);
    let each = each.map_or(0, BitRate::as_bit_per_s);
    let most = (each / MESSAGES).clamp(MESSAGE_MIN, MESSAGE_MAX);
    let message = 1 << most.ilog2();
    let depth = u32::try_from(each / message).unwrap_or(u32::MAX);
    let depth = depth.clamp(1, Verbs::default_depth());
    let in_flight = f64::from(flows) * f64::from(depth) * real(message);
    let wanted = in_flight / bytes_per_s * ACK_TIMEOUT_DELAYS;
    let lasts = |n: &u8| ACK_TIMEOUT_S * f64::from(1_u32 << n) >= wanted;
    let ack_timeout = (ACK_TIMEOUT..ACK_TIMEOUT_MAX).find(lasts);
    let ack_timeout = ack_timeout.unwrap_or(ACK_TIMEOUT_MAX);
    let bounded = Verbs {
        depth,
        // iWARP has none.
        ack_timeout: (ack_timeout > ACK_TIMEOUT).then_some(ack_timeout),
        ..verbs
    };
    (bounded, Bytes::new(message))
}

/// The trial of one class.
pub(super) fn spec(
    part: Part,
    class: &QosClass,
    limit: Option<BitRate>,
    direction: Direction,
    args: &QosVerifyArgs,
    host: &Host,
    device_mtu: Option<u32>,
) -> TrialSpec {
    let whole = args.time.as_u64().saturating_add(WARM_UP.as_u64());
    let cpus = u32::try_from(host.online_cpus().len()).unwrap_or(u32::MAX);
    let flows = if part == Part::Sends { args.flows } else { 1 };
    let common = TrialSpec {
        flows,
        direction,
        duration_ns: Nanoseconds::new(whole),
        interval_ns: Nanoseconds::from_millis(100).min(args.time),
        threads: Some(flows.min(cpus).max(1)),
        verbs: args.verbs.then(|| verbs(class)),
        marks: if args.verbs {
            Marks::default()
        } else {
            marks(class, args)
        },
        ..TrialSpec::default()
    };
    if part == Part::Probes {
        return TrialSpec {
            workload: Workload::Rr(Rr {
                request_bytes: Bytes::new(1),
                response_bytes: Bytes::new(1),
                depth: 1,
                connect_each: false,
                rate_per_s: Some(PROBES_PER_S),
            }),
            marks: Marks {
                udp_port: None,
                ..common.marks
            },
            ..common
        };
    }
    let each = limit.map(|limit| limit.as_f64() / f64::from(flows));
    let workload = if args.udp {
        let payload = device_mtu.unwrap_or(MTU).saturating_sub(DATAGRAM_HEADERS);
        Workload::Udp(Udp {
            datagram_bytes: Bytes::new(payload.clamp(24, 65_507).into()),
            rate_bit_per_s: each.and_then(|each| BitRate::from_f64(each * OVERLOAD)),
            batch: DatagramBatch::Mmsg,
            probe: None,
        })
    } else {
        Workload::Stream(Stream::default())
    };
    if let Some((verbs, limit)) = common.verbs.clone().zip(limit) {
        let (verbs, buffer_bytes) = bounded(verbs, limit, flows);
        return TrialSpec {
            workload,
            omit_ns: Some(WARM_UP),
            verbs: Some(verbs),
            buffer_bytes,
            ..common
        };
    }
    // Of a slow class a large socket buffer takes longer to drain than the trial.
    let held = each.map(|each| (each / 8.0 * SOCKET_S).max(SOCKET_MIN));
    let held = held.filter(|held| *held <= SOCKET_MAX && !args.udp && !args.verbs);
    TrialSpec {
        workload,
        omit_ns: Some(WARM_UP),
        socket_buffer_bytes: held
            .and_then(BitRate::from_f64)
            .map(|held| Bytes::new(held.as_bit_per_s())),
        ..common
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_queue_pairs_have_in_flight_is_acknowledged_before_its_timeout() {
        let limits = [100_000, 10_000_000, 1_000_000_000, 400_000_000_000];
        let all = limits
            .iter()
            .flat_map(|limit| [1, 2, 16, 1_000].map(|flows| (*limit, flows)));
        for (limit, flows) in all {
            let rate = BitRate::from_bit_per_s(limit);
            let (verbs, message) = bounded(Verbs::default(), rate, flows);
            let bytes = u64::from(flows) * u64::from(verbs.depth) * message.as_u64();
            let delay_s = BitRate::from_bit_per_s(bytes * 8).as_f64() / rate.as_f64();
            let n = verbs.ack_timeout.unwrap_or(ACK_TIMEOUT);
            let timeout_s = ACK_TIMEOUT_S * f64::from(1_u32 << n);
            assert!(delay_s * 3.99 <= timeout_s, "{limit} {flows}: {verbs:?}");
        }
        let of = |limit: u64, flows| {
            let rate = BitRate::from_bit_per_s(limit);
            let (verbs, message) = bounded(Verbs::default(), rate, flows);
            (message.as_u64(), verbs.depth, verbs.ack_timeout)
        };
        assert_eq!(of(10_000_000, 2), (1024, 9, None));
        assert_eq!(of(1_000_000, 16), (1024, 1, Some(17)));
        assert_eq!(of(400_000_000_000, 1), (128 << 10, 128, None));
    }
}
