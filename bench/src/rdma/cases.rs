//! What is compared: each case is one verb and size, done by linerate and by the peer that can do it.

use std::path::Path;

use linerate_bench_shared::ratios::Better;
use serde_json::Value;

/// The ends of the pair that `linerate testbed rxe pair` makes.
const NEAR: &str = "rxe-a";
const FAR: &str = "rxe-b";
const FAR_ADDRESS: &str = "198.18.0.2";
/// Work requests in flight: as many as a soft-RoCE device completes in a part of a trial, also of 1 MiB.
const DEPTH: u32 = 16;
const BULKS: [(&str, Messages); 2] = [
    (
        "64KiB",
        Messages {
            bytes: 64 << 10,
            count: 400,
            seconds: 4,
            are_round_trips: false,
        },
    ),
    (
        "1MiB",
        Messages {
            bytes: 1 << 20,
            count: 80,
            seconds: 10,
            are_round_trips: false,
        },
    ),
];
/// qperf posts and counts reads by 1,024, of which those of 64 KiB take 4 s and those of 1 MiB 76 s: ten times that, and
/// once.
const SECONDS_OF_READS: [u32; 2] = [42, 78];
const ROUND_TRIPS: [Messages; 2] = [round_trips(2), round_trips(8)];

const fn round_trips(bytes: u32) -> Messages {
    Messages {
        bytes,
        count: 3_000,
        seconds: 2,
        are_round_trips: true,
    }
}

/// The guest's CPUs, one of each node, of the sending and the receiving end. If the scheduler may place
/// them anywhere, the result of a trial depends on where it did.
const SENDS_ON: u32 = 0;
const RECEIVES_ON: u32 = 2;
/// What is not acknowledged within 4.096 us x 2^19 = 2.1 s is retransmitted: rdma_cm's value, which qperf uses to connect.
const ACK_TIMEOUT: u32 = 19;
const MIB: f64 = 1_048_576.0;
const PERFTEST: (&str, u16) = ("Debian: perftest", 18_515);
const QPERF: (&str, u16) = ("Debian: qperf", 19_765);

/// What is sent in a trial.
#[derive(Clone, Copy)]
struct Messages {
    bytes: u32,
    /// So many of them by linerate and by perftest.
    count: u32,
    /// So long by qperf, whose reads, writes and round trips end by time alone.
    seconds: u32,
    are_round_trips: bool,
}

impl Messages {
    fn times(self, scale: u32) -> Self {
        Self {
            count: self.count * scale,
            seconds: self.seconds * scale,
            ..self
        }
    }

    fn counted(self) -> Work {
        let count = f64::from(self.count);
        Work::Done(if self.are_round_trips {
            count / 1e6
        } else {
            f64::from(self.bytes) * count / 1e9
        })
    }

    fn timed(self) -> Work {
        if self.are_round_trips {
            Work::InRoundTrips(self.seconds)
        } else {
            Work::AtRate(self.seconds)
        }
    }
}

/// What a program does in a trial: what the machine's CPU time is divided by.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Work {
    /// Gigabytes, or millions of round trips.
    Done(f64),
    /// For so many seconds at a rate in Gb/s: its figure.
    AtRate(u32),
    /// For so many seconds in round trips, half of which in microseconds is its figure.
    InRoundTrips(u32),
}

impl Work {
    /// Gigabytes, or millions of round trips, where this is the figure.
    pub(crate) fn amount(self, figure: f64) -> f64 {
        match self {
            Self::Done(amount) => amount,
            Self::AtRate(seconds) => figure / 8.0 * f64::from(seconds),
            Self::InRoundTrips(seconds) => f64::from(seconds) / (2.0 * figure),
        }
    }
}

/// One piece of work.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    /// linerate first.
    pub(crate) contestants: Vec<Contestant>,
}

/// How a figure is read from what a program printed, in the case's unit, given the bytes of a message.
type Reading = fn(&str, f64) -> Option<f64>;

/// One program that does the work.
#[derive(Debug, Clone)]
pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    /// The Debian package that has it.
    pub(crate) from: &'static str,
    /// What is looked for before the first round.
    pub(crate) program: String,
    /// Started first, waited for until it listens on the port, and killed afterwards.
    pub(crate) server: Option<(Vec<String>, u16)>,
    pub(crate) client: Vec<String>,
    pub(crate) bytes: f64,
    pub(crate) figure: Reading,
    pub(crate) work: Work,
}

/// All cases, with so many times the messages.
pub(crate) fn all(linerate: &Path, scale: u32) -> Vec<Case> {
    let mut cases = Vec::new();
    for verb in ["write", "read", "send"] {
        for ((size, messages), seconds) in BULKS.into_iter().zip(SECONDS_OF_READS) {
            let messages = messages.times(scale);
            let of_qperf = match verb {
                "read" => Messages {
                    seconds: seconds * scale,
                    ..messages
                },
                _ => messages,
            };
            let words = format!("rdma-{verb} --depth {DEPTH}");
            let command = format!("ib_{verb}_bw -t {DEPTH}");
            cases.push(Case {
                name: format!("{verb} {size}"),
                unit: "Gb/s",
                better: Better::More,
                contestants: vec![
                    ours(linerate, &words, messages, ours_bulk),
                    perftest(&command, messages, perftest_bulk),
                    qperf(qperf_test(verb), of_qperf, qperf_bulk),
                ],
            });
        }
    }
    for verb in ["write", "send"] {
        for messages in ROUND_TRIPS.map(|messages| messages.times(scale)) {
            let words = format!("rdma-{verb} --latency");
            let mut contestants = vec![
                ours(linerate, &words, messages, ours_mean),
                perftest(&format!("ib_{verb}_lat"), messages, perftest_mean),
            ];
            if verb == "send" {
                contestants.push(qperf("rc_lat --cq_poll 1", messages, qperf_mean));
            }
            cases.push(Case {
                name: format!("{verb} {} B", messages.bytes),
                unit: "us",
                better: Better::Less,
                contestants,
            });
        }
    }
    cases
}

/// In the guest softirqs are the device, and for bulk they have a thread: a program that polls for it yields to it, as
/// nobody polls on a card's own processor. Of round trips they come between two looks of who polls.
fn nice(messages: Messages) -> &'static str {
    if messages.are_round_trips {
        ""
    } else {
        "nice -n 19 "
    }
}

fn on(cpu: u32, messages: Messages, command: &str) -> Vec<String> {
    words(&format!("{}taskset -c {cpu} {command}", nice(messages)))
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn ours(linerate: &Path, what: &str, messages: Messages, figure: Reading) -> Contestant {
    let Messages { bytes, count, .. } = messages;
    let mut client = words(nice(messages));
    client.push(linerate.display().to_string());
    client.extend(words(&format!(
        "--quiet --format json measure {what} --sizes {bytes}B --repetitions {count} --ack-timeout {ACK_TIMEOUT} \
         --place {SENDS_ON}:{RECEIVES_ON} local --address {FAR_ADDRESS} --no-record"
    )));
    Contestant {
        name: "linerate",
        from: "this project",
        program: linerate.display().to_string(),
        server: None,
        client,
        bytes: bytes.into(),
        figure,
        work: messages.counted(),
    }
}

/// GID 1 of a soft-RoCE device is its IPv4 address over RoCE v2; `-F` passes over a governor that it does not
/// like.
fn perftest(command: &str, messages: Messages, figure: Reading) -> Contestant {
    let Messages { bytes, count, .. } = messages;
    let command = format!(
        "{command} -F -x 1 -u {ACK_TIMEOUT} -s {bytes} -n {count} -p {}",
        PERFTEST.1
    );
    Contestant {
        name: "perftest",
        from: PERFTEST.0,
        program: words(&command).swap_remove(0),
        server: Some((
            on(RECEIVES_ON, messages, &format!("{command} -d {FAR}")),
            PERFTEST.1,
        )),
        client: on(
            SENDS_ON,
            messages,
            &format!("{command} -d {NEAR} {FAR_ADDRESS}"),
        ),
        bytes: bytes.into(),
        figure,
        work: messages.counted(),
    }
}

fn qperf_test(verb: &str) -> &'static str {
    match verb {
        // The remote end has nothing to poll for.
        "write" => "rc_rdma_write_bw --loc_cq_poll 1",
        "read" => "rc_rdma_read_bw --loc_cq_poll 1",
        _ => "rc_bw --cq_poll 1",
    }
}

/// It finds the devices by the connection manager, and polls as the others do. Its remote end waits for what is still
/// in flight at the end of the time.
fn qperf(test: &str, messages: Messages, figure: Reading) -> Contestant {
    let Messages { bytes, seconds, .. } = messages;
    let (test, options) = test.split_once(' ').unwrap_or((test, ""));
    Contestant {
        name: "qperf",
        from: QPERF.0,
        program: "qperf".to_owned(),
        server: Some((on(RECEIVES_ON, messages, "qperf"), QPERF.1)),
        client: on(
            SENDS_ON,
            messages,
            &format!(
                "qperf --use_cm 1 --timeout 200 -v -uu -t {seconds} -m {bytes} {options} {FAR_ADDRESS} {test}"
            ),
        ),
        bytes: bytes.into(),
        figure,
        work: messages.timed(),
    }
}

/// `BW average`: from the first post to the last completion.
fn ours_bulk(text: &str, _: f64) -> Option<f64> {
    let document: Value = serde_json::from_str(text).ok()?;
    Some(document["sizes"][0]["rate_bit_per_s"].as_f64()? / 1e9)
}

fn ours_mean(text: &str, _: f64) -> Option<f64> {
    let document: Value = serde_json::from_str(text).ok()?;
    Some(document["sizes"][0]["latency_ns"]["mean"].as_f64()? / 1e3)
}

/// The columns of the line that begins with the bytes of a message.
fn perftest_columns(text: &str, bytes: f64) -> Option<Vec<f64>> {
    let columns = |line: &str| -> Option<Vec<f64>> {
        line.split_whitespace()
            .map(|word| word.parse().ok())
            .collect()
    };
    text.lines()
        .filter_map(columns)
        .find(|columns| columns.len() > 3 && (columns[0] - bytes).abs() < 0.5)
}

/// `#bytes #iterations BW-peak BW-average MsgRate`, in its "MB/sec", which are MiB: of Gb/s it prints two decimals
/// only, up to a twentieth of the rates here.
fn perftest_bulk(text: &str, bytes: f64) -> Option<f64> {
    let average = *perftest_columns(text, bytes)?.get(3)?;
    Some(average * MIB * 8.0 / 1e9)
}

/// `#bytes #iterations t_min t_max t_typical t_avg ...`.
fn perftest_mean(text: &str, bytes: f64) -> Option<f64> {
    perftest_columns(text, bytes)?.get(5).copied()
}

/// The number after `key =`.
fn qperf_number(text: &str, key: &str) -> Option<f64> {
    let (_, rest) = text.split_once(key)?;
    let word = rest.trim_start_matches([' ', '=']).split(' ').next()?;
    word.parse().ok()
}

fn qperf_bulk(text: &str, _: f64) -> Option<f64> {
    Some(qperf_number(text, "bw ")? * 8.0 / 1e9)
}

fn qperf_mean(text: &str, _: f64) -> Option<f64> {
    Some(qperf_number(text, "latency")? / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_program_prints_is_read() {
        let is = |found: Option<f64>, right: f64| {
            found.is_some_and(|found| (found - right).abs() < 1e-6)
        };
        let bulk = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n \
                    65536      400              0.00               25.00  \t\t   0.000400\n";
        // 400 messages of 64 KiB in a second.
        assert!(is(
            perftest_bulk(bulk, 65_536.0),
            400.0 * 65_536.0 * 8.0 / 1e9
        ));
        let latency = " 2       1000          53.34          471.50       66.15    \t       85.52       \t52.50  \t\t359.12  \t\t471.50 \n";
        assert!(is(perftest_mean(latency, 2.0), 85.52));
        let bulk = "rc_bw:\n    bw         =    15532032 bytes/sec\n";
        assert!(is(qperf_bulk(bulk, 1.0), 0.124_256_256));
        let latency = "rc_lat:\n    latency    =       86464 ns\n";
        assert!(is(qperf_mean(latency, 1.0), 86.464));
        let document = r#"{"sizes":[{"rate_bit_per_s":2e9,"latency_ns":{"mean":2500}}]}"#;
        assert!(is(ours_bulk(document, 1.0), 2.0));
        assert!(is(ours_mean(document, 1.0), 2.5));
    }

    #[test]
    fn what_goes_by_time_has_done_what_its_figure_says() {
        let (_, bulk) = BULKS[0];
        let is = |found: f64, right: f64| assert!((found - right).abs() < 1e-9, "{found} {right}");
        // 400 messages of 64 KiB in 4 s.
        let rate = 400.0 * 65_536.0 * 8.0 / 4.0 / 1e9;
        is(bulk.timed().amount(rate), bulk.counted().amount(rate));
        // 3,000 round trips in 2 s.
        let half = 2e6 / 3_000.0 / 2.0;
        let trips = round_trips(2);
        is(trips.timed().amount(half), trips.counted().amount(half));
    }
}
