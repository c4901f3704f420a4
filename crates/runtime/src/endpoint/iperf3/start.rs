//! The part `start` of iperf3's document: what was requested, and of whom.

use linerate_model::units::{BitRate, Bytes};
use linerate_model::workload::{Direction, Workload};
use linerate_traffic::iperf3::Foreign;
use serde_json::{Map, Value, json};

use super::document::Iperf3Run;
use super::streams::Stream;

pub(super) fn is_udp(run: &Iperf3Run<'_>) -> bool {
    matches!(run.sample.spec.workload, Workload::Udp(_))
}

pub(super) fn start(run: &Iperf3Run<'_>, streams: &[Stream<'_>]) -> Value {
    let spec = &run.sample.spec;
    let mut start = Map::new();
    let mut put = |key: &str, value: Value| start.insert(key.to_owned(), value);
    put("connected", connected(run, streams));
    put(
        "version",
        json!(concat!("linerate ", env!("CARGO_PKG_VERSION"))),
    );
    put("system_info", json!(system_info()));
    put(
        "timestamp",
        json!({
            "time": http_date(run.began_unix_s),
            "timesecs": run.began_unix_s,
            "timemillisecs": run.began_unix_s.saturating_mul(1_000),
        }),
    );
    put(
        "connecting_to",
        json!({ "host": run.peer.ip().to_string(), "port": run.peer.port() }),
    );
    put("cookie", json!(run.foreign.map(|foreign| &foreign.cookie)));
    if !is_udp(run) {
        match spec.mss_bytes {
            Some(mss) => put("tcp_mss", json!(mss.as_u64())),
            None => put("tcp_mss_default", json!(mss(run))),
        };
    }
    put("target_bitrate", json!(target(run)));
    put(
        "fq_rate",
        json!(spec.pacing_bit_per_s.map_or(0, BitRate::as_bit_per_s)),
    );
    let asked = spec.socket_buffer_bytes.map_or(0, Bytes::as_u64);
    put("sock_bufsize", json!(asked));
    let buffer = |of: fn(&Foreign) -> Option<Bytes>| run.foreign.and_then(of).map(Bytes::as_u64);
    put(
        "sndbuf_actual",
        json!(buffer(|foreign| foreign.send_buffer)),
    );
    put(
        "rcvbuf_actual",
        json!(buffer(|foreign| foreign.receive_buffer)),
    );
    put("test_start", test_start(run));
    Value::Object(start)
}

fn connected(run: &Iperf3Run<'_>, streams: &[Stream<'_>]) -> Value {
    let connections = run.foreign.map_or(&[][..], |foreign| &foreign.connections);
    let one = |(index, stream): (usize, &Stream<'_>)| {
        let known = connections.get(index);
        let local = known.map(|known| known.local);
        let remote = known.map_or(run.peer, |known| known.remote);
        json!({
            "socket": stream.socket,
            "local_host": local.map(|local| local.ip().to_string()),
            "local_port": local.map(|local| local.port()),
            "remote_host": remote.ip().to_string(),
            "remote_port": remote.port(),
        })
    };
    streams.iter().enumerate().map(one).collect()
}

/// The largest payload of a segment: before data moved, where that was asked, else the sender's.
fn mss(run: &Iperf3Run<'_>) -> Option<u64> {
    let asked = run.foreign.and_then(|foreign| foreign.mss);
    let sent = run
        .sample
        .local
        .flows
        .iter()
        .find_map(|flow| flow.tcp.value());
    asked
        .or(sent.map(|tcp| tcp.snd_mss_bytes))
        .map(Bytes::as_u64)
}

/// The rate of each flow that was requested; 0 is without limit.
fn target(run: &Iperf3Run<'_>) -> u64 {
    match &run.sample.spec.workload {
        Workload::Udp(udp) => udp.rate_bit_per_s.map_or(0, BitRate::as_bit_per_s),
        _ => 0,
    }
}

fn test_start(run: &Iperf3Run<'_>) -> Value {
    let spec = &run.sample.spec;
    let (protocol, block, bytes) = match &spec.workload {
        Workload::Udp(udp) => ("UDP", udp.datagram_bytes, None),
        Workload::Stream(stream) => ("TCP", spec.buffer_bytes, stream.bytes),
        _ => ("TCP", spec.buffer_bytes, None),
    };
    let seconds = if bytes.is_some() {
        json!(0)
    } else {
        number(spec.duration_ns.as_secs_f64())
    };
    json!({
        "protocol": protocol,
        "num_streams": spec.flows,
        "blksize": block.as_u64(),
        "omit": 0,
        "duration": seconds,
        "bytes": bytes.map_or(0, Bytes::as_u64),
        "blocks": 0,
        "reverse": u8::from(spec.direction == Direction::Reverse),
        "tos": 0,
        "target_bitrate": target(run),
        "bidir": u8::from(spec.direction == Direction::Bidirectional),
        "fqrate": spec.pacing_bit_per_s.map_or(0, BitRate::as_bit_per_s),
        "interval": number(run.interval.as_secs_f64()),
        "gso": 0,
        "gro": 0,
    })
}

/// Whole numbers are written without a fraction, as iperf3 writes them.
#[expect(
    clippy::cast_possible_truncation,
    reason = "checked to be whole and small"
)]
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e9 {
        json!(value as i64)
    } else {
        json!(value)
    }
}

/// As `uname -a` begins: system, host, release, version, machine.
fn system_info() -> String {
    let name = rustix::system::uname();
    let parts = [
        name.sysname(),
        name.nodename(),
        name.release(),
        name.version(),
        name.machine(),
    ];
    parts
        .map(|part| part.to_string_lossy().into_owned())
        .join(" ")
}

/// A timestamp as iperf3 writes it: `Sat, 21 Nov 2026 22:31:18 GMT`.
fn http_date(unix_s: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let utc = linerate_analysis::text::timestamp::utc(unix_s);
    let (date, time) = utc.split_once(' ').unwrap_or((&utc, ""));
    let mut date = date.split('-');
    let mut next = || date.next().unwrap_or_default();
    let (year, month, day) = (next(), next(), next());
    let month = month
        .parse::<usize>()
        .ok()
        .and_then(|month| MONTHS.get(month.checked_sub(1)?));
    let weekday = DAYS[usize::try_from(unix_s / 86_400 % 7).unwrap_or(0)];
    let (month, time) = (month.unwrap_or(&""), time.trim_end_matches(" UTC"));
    format!("{weekday}, {day} {month} {year} {time} GMT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_reads_as_iperf3_writes_it() {
        assert_eq!(http_date(1_795_300_278), "Sat, 21 Nov 2026 22:31:18 GMT");
        assert_eq!(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
    }
}
