//! One trial of iperf3: a server for one test in `far`, the client in `near`. Read from its JSON of both
//! ends; the receiving end's intervals are what counts, as with linerate. Facts: iperf3(1) of 3.12; since
//! 3.16 it has a thread for each stream, before it one thread for all of them.

use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::cases::{Case, Direction};
use crate::trial::{BenchError, Trial, bytes_by};
use crate::work::{FAR_ADDRESS, Work};

pub(crate) const NAME: &str = "iperf3";
/// The name of the package that holds it.
pub(crate) const PACKAGE: &str = "iperf3";
/// Where the server listens; nothing else lives in its namespace.
pub(crate) const PORT: u16 = 5201;
/// How often both ends note their counts, seconds: short against the trial, long against its cost.
const INTERVAL: &str = "0.25";

/// The server, for one test.
pub(crate) fn server(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["--server", "--one-off", "--json", "--interval", INTERVAL]);
    command.args(["--bind", FAR_ADDRESS, "--port", &PORT.to_string()]);
    command
}

/// The client that does `case`; it also fetches what the server counted.
pub(crate) fn client(program: &Path, case: &Case, work: &Work) -> Command {
    let mut command = Command::new(program);
    command.args(["--client", FAR_ADDRESS, "--port", &PORT.to_string()]);
    command.args(["--json", "--get-server-output", "--interval", INTERVAL]);
    command.args(["--time", &work.seconds.to_string()]);
    command.args(["--parallel", &case.flows.to_string()]);
    command.args(["--length", &work.buffer_bytes.to_string()]);
    if case.direction == Direction::Reverse {
        command.arg("--reverse");
    }
    if let Some(size) = case.socket_buffer_bytes {
        command.args(["--window", &size.to_string()]);
    }
    if let Some(pins) = case.pins {
        let (client, server) = match case.direction {
            Direction::Forward => (pins.sender, pins.receiver),
            Direction::Reverse => (pins.receiver, pins.sender),
        };
        command.args(["--affinity", &format!("{client},{server}")]);
    }
    command
}

#[derive(Debug, Deserialize)]
struct Document {
    error: Option<String>,
    start: Option<Start>,
    #[serde(default)]
    intervals: Vec<Interval>,
    end: Option<End>,
    server_output_json: Option<Server>,
}

#[derive(Debug, Deserialize)]
struct Start {
    #[serde(default)]
    connected: Vec<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
struct Server {
    #[serde(default)]
    intervals: Vec<Interval>,
}

#[derive(Debug, Deserialize)]
struct Interval {
    sum: Sum,
}

#[derive(Debug, Deserialize)]
struct Sum {
    end: f64,
    bytes: u64,
}

#[derive(Debug, Deserialize)]
struct End {
    sum_received: Received,
    cpu_utilization_percent: Cpu,
}

#[derive(Debug, Deserialize)]
struct Received {
    seconds: f64,
    bytes: u64,
    bits_per_second: f64,
}

#[derive(Debug, Deserialize)]
struct Cpu {
    host_total: f64,
    remote_total: f64,
}

/// The figures of a trial from what the client printed.
pub(crate) fn parse(printed: &[u8], case: &Case, work: &Work) -> Result<Trial, BenchError> {
    let unreadable = |what: &str| BenchError::Unreadable {
        program: NAME,
        what: what.to_owned(),
    };
    let document: Document =
        serde_json::from_slice(printed).map_err(|error| unreadable(&error.to_string()))?;
    if let Some(error) = &document.error {
        return Err(unreadable(error));
    }
    let connected = document.start.map_or(0, |start| start.connected.len());
    if connected != case.flows as usize {
        return Err(unreadable("it made another number of connections"));
    }
    let end = document.end.ok_or_else(|| unreadable("it has no `end`"))?;
    let intervals = match case.direction {
        Direction::Forward => document
            .server_output_json
            .map(|server| server.intervals)
            .ok_or_else(|| unreadable("the server's own counts are missing"))?,
        Direction::Reverse => document.intervals,
    };
    let (from, to) = work.window();
    let readings = readings(&intervals);
    let last = readings.last().map_or(0.0, |reading| reading.0).min(to);
    if last < to * 0.98 {
        return Err(unreadable("its intervals end before the trial does"));
    }
    let of = |time| bytes_by(readings.iter().copied(), time);
    let cpu = end.cpu_utilization_percent.host_total + end.cpu_utilization_percent.remote_total;
    Ok(Trial {
        bytes: of(last) - of(from),
        seconds: last - from,
        printed_bit_per_s: end.sum_received.bits_per_second,
        bytes_all: end.sum_received.bytes,
        cpu_moving_s: cpu / 100.0 * end.sum_received.seconds,
        cpu_command_s: 0.0,
    })
}

/// What had been received by the end of each interval.
fn readings(intervals: &[Interval]) -> Vec<(f64, u64)> {
    let mut received = 0;
    intervals
        .iter()
        .map(|interval| {
            received += interval.sum.bytes;
            (interval.sum.end, received)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cases::Pins;
    use crate::work::work_for_tests;

    fn case(direction: Direction) -> Case {
        Case {
            flows: 1,
            direction,
            pins: Some(Pins {
                sender: 2,
                receiver: 5,
            }),
            socket_buffer_bytes: Some(212_992),
        }
    }

    fn words(command: &Command) -> String {
        let words: Vec<String> = command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        words.join(" ")
    }

    #[test]
    fn the_sender_is_on_the_senders_cpu_in_both_directions() {
        let program = Path::new("iperf3");
        let forward = words(&client(
            program,
            &case(Direction::Forward),
            &work_for_tests(),
        ));
        let reverse = words(&client(
            program,
            &case(Direction::Reverse),
            &work_for_tests(),
        ));
        assert!(forward.ends_with("--affinity 2,5"), "{forward}");
        assert!(reverse.ends_with("--affinity 5,2"), "{reverse}");
        for words in [forward, reverse] {
            assert!(words.contains("--length 131072"), "{words}");
            assert!(words.contains("--window 212992"), "{words}");
            // See `Scene::congestion_control`.
            assert!(!words.contains("--congestion"), "{words}");
        }
    }

    /// Both ends' counts in intervals of half a second: the client's `sent`, the server's `received`.
    fn document(sent: u64, received: u64) -> Value {
        let intervals = |bytes: u64| {
            let each = |index: u32| json!({"sum": {"end": f64::from(index) / 2.0, "bytes": bytes}});
            (1..=4).map(each).collect::<Vec<Value>>()
        };
        json!({
            "start": {"connected": [{}]},
            "intervals": intervals(sent),
            "end": {
                "sum_received": {"seconds": 2.0, "bytes": 4 * received, "bits_per_second": 16.0},
                "cpu_utilization_percent": {"host_total": 50.0, "remote_total": 100.0},
            },
            "server_output_json": {"intervals": intervals(received)},
        })
    }

    #[test]
    fn the_receiving_end_counts_and_only_within_the_window() {
        let text = document(9999, 1000).to_string();
        let parsed = parse(
            text.as_bytes(),
            &case(Direction::Forward),
            &work_for_tests(),
        );
        let trial = parsed.expect("it fits");
        assert_eq!(trial.bytes, 3000);
        assert!((trial.bit_per_s() - 16_000.0).abs() < 1e-6, "{trial:?}");
        assert!((trial.cpu_moving_s - 3.0).abs() < 1e-9, "{trial:?}");
    }

    #[test]
    fn in_reverse_the_client_is_the_receiver() {
        let text = document(1000, 9999).to_string();
        let parsed = parse(
            text.as_bytes(),
            &case(Direction::Reverse),
            &work_for_tests(),
        );
        assert_eq!(parsed.expect("it fits").bytes, 3000);
    }

    #[test]
    fn a_test_cut_short_is_refused_not_averaged() {
        let mut cut = document(1000, 1000);
        cut["server_output_json"]["intervals"]
            .as_array_mut()
            .expect("an array")
            .truncate(2);
        let error = parse(
            cut.to_string().as_bytes(),
            &case(Direction::Forward),
            &work_for_tests(),
        );
        assert!(
            matches!(error, Err(BenchError::Unreadable { .. })),
            "{error:?}"
        );
    }

    #[test]
    fn its_own_error_is_passed_on() {
        let text = json!({"error": "unable to connect"}).to_string();
        let error = parse(
            text.as_bytes(),
            &case(Direction::Forward),
            &work_for_tests(),
        );
        let error = error.expect_err("it says so").to_string();
        assert!(error.contains("unable to connect"), "{error}");
    }
}
