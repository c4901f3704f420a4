//! iperf3's JSON document (`iperf3 -J`), from a sample of ours: for tools that read it.
//!
//! Keys and types are those of iperf3 3.12, with those that later versions added. What iperf3 reports
//! and a sample of ours does not contain is null: the connection's figures and the losses in each interval
//! of a trial between two ends of our own. Where the sender is an iperf3 server its windows and round trips
//! are 0, as iperf3 itself prints them.

use std::net::SocketAddr;

use linerate_model::sample::{Flag, Sample, SideSample};
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::Direction;
use linerate_traffic::iperf3::Foreign;
use serde_json::{Map, Value, json};

use super::start::{is_udp, start};
use super::streams::{Arrivals, Span, Stream, sum_of};

/// What a document is made of.
#[derive(Debug, Clone, Copy)]
pub struct Iperf3Run<'a> {
    /// Both ends.
    pub sample: &'a Sample,
    /// Data from an iperf3 server; none if the remote end was linerate.
    pub foreign: Option<&'a Foreign>,
    /// Where the remote end is, with the port that it listened on.
    pub peer: SocketAddr,
    /// When the trial began, in seconds since 1970.
    pub began_unix_s: u64,
    /// The width of the intervals; iperf3's own is a second.
    pub interval: Nanoseconds,
}

/// The document.
pub fn iperf3_json(run: &Iperf3Run<'_>) -> Value {
    let streams = Stream::all(run.sample, run.foreign);
    let mut document = json!({
        "start": start(run, &streams),
        "intervals": intervals(run, &streams),
        "end": end(run, &streams),
    });
    if run.sample.flags.contains(&Flag::CutShort) {
        // As iperf3 reports its own SIGINT.
        document["error"] = json!("interrupt - the client has terminated");
    }
    document
}

/// The spans of the intervals. What is left after the last whole one belongs to it when it is short: the
/// last data in flight.
fn spans(run: &Iperf3Run<'_>) -> Vec<Span> {
    let end = run.sample.local.elapsed_ns.as_u64();
    let width = run.interval.as_u64().max(1_000_000);
    let whole = (end + width / 10) / width;
    let mut edges: Vec<u64> = (0..=whole).map(|index| index * width).collect();
    match edges.last_mut() {
        Some(last) if whole > 0 && end.abs_diff(*last) <= width / 10 => *last = end,
        _ => edges.push(end),
    }
    let span = |two: &[u64]| Span {
        from: Nanoseconds::new(two[0]),
        to: Nanoseconds::new(two[1]),
    };
    edges
        .windows(2)
        .map(span)
        .filter(|span| span.seconds() > 0.0)
        .collect()
}

fn intervals(run: &Iperf3Run<'_>, streams: &[Stream<'_>]) -> Value {
    let both = run.sample.spec.direction == Direction::Bidirectional;
    let interval = |span: Span| {
        let each = streams.iter().map(|stream| interval_of(*stream, span));
        let mut interval = Map::new();
        interval.insert("streams".to_owned(), each.collect());
        let (first, second) = halves(streams, both);
        interval.insert("sum".to_owned(), interval_sum(&first, span));
        if both {
            let sum = interval_sum(&second, span);
            interval.insert("sum_bidir_reverse".to_owned(), sum);
        }
        Value::Object(interval)
    };
    spans(run).into_iter().map(interval).collect()
}

/// The streams of a document's sums: all of them, or those that send and those that receive.
fn halves<'a>(streams: &[Stream<'a>], both: bool) -> (Vec<Stream<'a>>, Vec<Stream<'a>>) {
    if both {
        streams.iter().partition(|stream| stream.sends())
    } else {
        (streams.to_vec(), Vec::new())
    }
}

fn interval_of(stream: Stream<'_>, span: Span) -> Value {
    let mut one = Map::new();
    one.insert("socket".to_owned(), json!(stream.socket));
    span.put(&mut one, stream.bytes_in(span));
    match (stream.is_udp(), stream.sends()) {
        (false, true) => stream.put_interval_tcp(&mut one, span),
        (false, false) => {}
        (true, true) => {
            one.insert("packets".to_owned(), json!(stream.packets_in(span)));
        }
        (true, false) => stream.arrivals_in(span).put(&mut one),
    }
    one.insert("omitted".to_owned(), json!(false));
    one.insert("sender".to_owned(), json!(stream.sends()));
    Value::Object(one)
}

fn interval_sum(streams: &[Stream<'_>], span: Span) -> Value {
    let mut sum = Map::new();
    let bytes = streams.iter().map(|stream| stream.bytes_in(span).as_u64());
    span.put(&mut sum, Bytes::new(bytes.fold(0, u64::saturating_add)));
    let Some(first) = streams.first() else {
        return Value::Object(sum);
    };
    let each = streams.iter();
    match (first.is_udp(), first.sends()) {
        (false, true) => {
            let all = sum_of(each.map(|stream| stream.retransmits_in(span)));
            sum.insert("retransmits".to_owned(), json!(all));
        }
        (false, false) => {}
        (true, true) => {
            let all = sum_of(each.map(|stream| stream.packets_in(span)));
            sum.insert("packets".to_owned(), json!(all));
        }
        (true, false) => {
            let all: Vec<Arrivals> = each.map(|stream| stream.arrivals_in(span)).collect();
            Arrivals::sum(&all).put(&mut sum);
        }
    }
    sum.insert("omitted".to_owned(), json!(false));
    sum.insert("sender".to_owned(), json!(first.sends()));
    Value::Object(sum)
}

fn end(run: &Iperf3Run<'_>, streams: &[Stream<'_>]) -> Value {
    let mut end = Map::new();
    let each = streams.iter().map(|stream| {
        if stream.is_udp() {
            udp_end(*stream)
        } else {
            tcp_end(*stream)
        }
    });
    end.insert("streams".to_owned(), each.collect());
    let both = run.sample.spec.direction == Direction::Bidirectional;
    let (first, second) = halves(streams, both);
    put_sums(&mut end, &first, "");
    if both {
        put_sums(&mut end, &second, "_bidir_reverse");
    }
    end.insert("cpu_utilization_percent".to_owned(), cpu(run));
    if !is_udp(run) {
        let (local, remote) = congestion(run);
        let sends = first.first().is_some_and(|stream| stream.sends());
        let (sender, receiver) = if sends {
            (local, remote)
        } else {
            (remote, local)
        };
        end.insert("sender_tcp_congestion".to_owned(), json!(sender));
        end.insert("receiver_tcp_congestion".to_owned(), json!(receiver));
    }
    Value::Object(end)
}

fn span_to(to: Nanoseconds) -> Span {
    Span {
        from: Nanoseconds::default(),
        to,
    }
}

fn tcp_end(stream: Stream<'_>) -> Value {
    let side = |record: Option<&linerate_model::sample::FlowRecord>, sender: bool| {
        let mut one = Map::new();
        one.insert("socket".to_owned(), json!(stream.socket));
        let bytes = record.map(linerate_model::sample::FlowRecord::total);
        span_to(stream.end_at(record)).put(&mut one, bytes.unwrap_or_default());
        if sender {
            stream.put_end_tcp(&mut one);
        }
        one.insert("sender".to_owned(), json!(stream.sends()));
        Value::Object(one)
    };
    json!({
        "sender": side(stream.sender(), true),
        "receiver": side(stream.receiver(), false),
    })
}

fn udp_end(stream: Stream<'_>) -> Value {
    let mut one = Map::new();
    one.insert("socket".to_owned(), json!(stream.socket));
    let sent = stream.sender();
    let bytes = sent.map(linerate_model::sample::FlowRecord::total);
    span_to(stream.end_at(sent)).put(&mut one, bytes.unwrap_or_default());
    stream.arrivals().put(&mut one);
    one.insert("out_of_order".to_owned(), json!(stream.out_of_order()));
    one.insert("sender".to_owned(), json!(stream.sends()));
    json!({ "udp": one })
}

/// `sum_sent`, `sum_received` and, of UDP, `sum`, with `suffix` on each.
fn put_sums(end: &mut Map<String, Value>, streams: &[Stream<'_>], suffix: &str) {
    let udp = streams.first().is_some_and(|stream| stream.is_udp());
    let sends = streams.first().is_some_and(|stream| stream.sends());
    let arrivals: Vec<Arrivals> = streams.iter().map(|stream| stream.arrivals()).collect();
    let arrivals = Arrivals::sum(&arrivals);
    let sum = |sent: bool, arrivals: Option<Arrivals>, sender: bool| {
        let record = |stream: &Stream<'_>| {
            let (sender, receiver) = (stream.sender(), stream.receiver());
            let record = if sent { sender } else { receiver };
            let bytes = record.map_or(0, |record| record.total().as_u64());
            (bytes, stream.end_at(record))
        };
        let bytes = streams.iter().map(|stream| record(stream).0);
        let bytes = bytes.fold(0, u64::saturating_add);
        let to = streams.iter().map(|stream| record(stream).1).max();
        let mut sum = Map::new();
        span_to(to.unwrap_or_default()).put(&mut sum, Bytes::new(bytes));
        if let Some(arrivals) = arrivals {
            arrivals.put(&mut sum);
        } else if sent {
            let all = sum_of(streams.iter().map(|stream| stream.retransmits()));
            sum.insert("retransmits".to_owned(), json!(all));
        }
        sum.insert("sender".to_owned(), json!(sender));
        Value::Object(sum)
    };
    let mut put = |key: &str, value: Value| end.insert(format!("{key}{suffix}"), value);
    if udp {
        // At the sender nothing is lost, and nothing late: iperf3 prints zeroes.
        let sent = Arrivals {
            jitter_ms: Some(0.0),
            lost: Some(0),
            packets: arrivals.packets,
        };
        put("sum", sum(true, Some(arrivals), sends));
        put("sum_sent", sum(true, Some(sent), true));
        put("sum_received", sum(false, Some(arrivals), false));
    } else {
        put("sum_sent", sum(true, None, sends));
        put("sum_received", sum(false, None, sends));
    }
}

/// CPU time in percent of one CPU: of our data threads; of an iperf3 server's process, as it reports it.
fn cpu(run: &Iperf3Run<'_>) -> Value {
    let percent = |side: &SideSample, time: Nanoseconds| {
        let elapsed = side.elapsed_ns.as_secs_f64();
        if elapsed > 0.0 {
            100.0 * time.as_secs_f64() / elapsed
        } else {
            0.0
        }
    };
    let of = |side: &SideSample| {
        let user = percent(side, side.cpu.threads_user_ns);
        let system = percent(side, side.cpu.threads_system_ns);
        [user + system, user, system]
    };
    let [host_total, host_user, host_system] = of(&run.sample.local);
    let [remote_total, remote_user, remote_system] = match run.foreign {
        None => of(&run.sample.remote),
        Some(foreign) => [
            foreign.server.cpu_percent,
            foreign.server.cpu_user_percent,
            foreign.server.cpu_system_percent,
        ],
    };
    json!({
        "host_total": host_total,
        "host_user": host_user,
        "host_system": host_system,
        "remote_total": remote_total,
        "remote_user": remote_user,
        "remote_system": remote_system,
    })
}

/// The congestion control here and there.
fn congestion(run: &Iperf3Run<'_>) -> (Option<String>, Option<String>) {
    let of = |side: &SideSample| {
        let tcp = side.flows.iter().find_map(|flow| flow.tcp.value());
        tcp.and_then(|tcp| tcp.congestion_control.clone())
    };
    let told = run
        .foreign
        .and_then(|foreign| foreign.server.congestion.clone());
    (of(&run.sample.local), of(&run.sample.remote).or(told))
}

#[cfg(test)]
mod tests {
    use linerate_model::build;

    use super::*;

    #[test]
    fn a_sample_of_our_own_has_every_byte_in_its_intervals_and_sums() {
        let sample = build::sample().flows(3).build();
        let document = iperf3_json(&Iperf3Run {
            sample: &sample,
            foreign: None,
            peer: ([192, 0, 2, 1], 5201).into(),
            began_unix_s: 0,
            interval: Nanoseconds::from_millis(1_000),
        });
        let sent: u64 = sample
            .local
            .flows
            .iter()
            .map(|flow| flow.total().as_u64())
            .sum();
        assert_eq!(document["end"]["sum_sent"]["bytes"], sent);
        let intervals = document["intervals"].as_array().expect("a list");
        assert_eq!(intervals.len(), 2);
        let bytes = intervals
            .iter()
            .filter_map(|one| one["sum"]["bytes"].as_u64());
        assert_eq!(bytes.sum::<u64>(), sent);
        assert_eq!(document["start"]["test_start"]["num_streams"], 3);
        assert!(intervals[0]["streams"][0]["rtt"].is_null(), "not recorded");
        assert_eq!(document["start"]["connected"][2]["socket"], 2);
    }
}
