//! What is compared: each case is one verb and size, done by linerate and by the peer that can do it.

use std::path::Path;

use linerate_bench_shared::ratios::Better;
use serde_json::Value;

/// The ends of the pair that `linerate testbed rxe pair` makes.
const NEAR: &str = "rxe-a";
const FAR: &str = "rxe-b";
const FAR_ADDRESS: &str = "198.18.0.2";
/// Work requests under way: as many as a soft-RoCE device works off in a part of a trial, also of 1 MiB.
const DEPTH: u32 = 16;
/// The messages of a trial, and the seconds of one of qperf, whose reads, writes and round trips end by time alone.
/// What is long takes longer: which of a thread that polls and the kernel's the scheduler begins with is felt for a
/// second or two.
const MESSAGES: [(u32, &str, u32, u32); 2] =
    [(64 << 10, "64KiB", 400, 4), (1 << 20, "1MiB", 80, 10)];
/// The same of round trips.
const ROUND_TRIPS: (u32, u32) = (3_000, 2);
/// The guest's CPUs, one of each node, of the end that sends and of the end that receives. Where the scheduler may put
/// them anywhere, a trial tells where it has.
const SENDS_ON: u32 = 0;
const RECEIVES_ON: u32 = 2;
const MIB: f64 = 1_048_576.0;
const PERFTEST: (&str, u16) = ("Debian: perftest", 18_515);
const QPERF: (&str, u16) = ("Debian: qperf", 19_765);

/// One piece of work.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    /// Gigabytes, or millions of messages, of a trial: what the machine's CPU time is divided by.
    pub(crate) amount: f64,
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
    pub(crate) program: String,
    /// Started first, waited for until it listens on the port, and killed afterwards.
    pub(crate) server: Option<(Vec<String>, u16)>,
    pub(crate) client: Vec<String>,
    pub(crate) bytes: f64,
    pub(crate) figure: Reading,
}

/// All cases, with so many times the messages. linerate and perftest send as many; qperf goes by time.
pub(crate) fn all(linerate: &Path, scale: u32) -> Vec<Case> {
    let mut cases = Vec::new();
    for verb in ["write", "read", "send"] {
        for (bytes, size, messages, seconds) in MESSAGES {
            let count = messages * scale;
            cases.push(Case {
                name: format!("{verb} {size}"),
                unit: "Gb/s",
                better: Better::More,
                amount: f64::from(bytes) * f64::from(count) / 1e9,
                contestants: vec![
                    ours(
                        linerate,
                        &format!("rdma-{verb} --depth {DEPTH}"),
                        (bytes, count),
                        ours_bulk,
                    ),
                    perftest(
                        &format!("ib_{verb}_bw -t {DEPTH}"),
                        (bytes, count),
                        perftest_bulk,
                    ),
                    qperf(qperf_test(verb), bytes, seconds * scale, qperf_bulk),
                ],
            });
        }
    }
    let (count, seconds) = (ROUND_TRIPS.0 * scale, ROUND_TRIPS.1 * scale);
    for verb in ["write", "send"] {
        for bytes in [2, 8] {
            let words = format!("rdma-{verb} --latency");
            let case = |which, contestants| Case {
                name: format!("{verb} {bytes} B, {which}"),
                unit: "us",
                better: Better::Less,
                amount: f64::from(count) / 1e6,
                contestants,
            };
            let work = (bytes, count);
            cases.push(case(
                "median",
                vec![
                    ours(linerate, &words, work, ours_median),
                    perftest(&format!("ib_{verb}_lat"), work, perftest_median),
                ],
            ));
            if verb == "send" {
                cases.push(case(
                    "mean",
                    vec![
                        ours(linerate, &words, work, ours_mean),
                        qperf("rc_lat", bytes, seconds, qperf_mean),
                    ],
                ));
            }
        }
    }
    cases
}

fn on(cpu: u32, command: &str) -> Vec<String> {
    words(&format!("taskset -c {cpu} {command}"))
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn ours(linerate: &Path, what: &str, (bytes, count): (u32, u32), figure: Reading) -> Contestant {
    let mut client = vec![linerate.display().to_string()];
    client.extend(words(&format!(
        "--quiet --format json measure {what} --sizes {bytes}B --repetitions {count} --place \
         {SENDS_ON}:{RECEIVES_ON} local --address {FAR_ADDRESS} --no-record"
    )));
    Contestant {
        name: "linerate",
        from: "this project",
        program: client[0].clone(),
        server: None,
        client,
        bytes: bytes.into(),
        figure,
    }
}

/// GID 1 of a soft-RoCE device is its IPv4 address over RoCE v2; `-F` passes over a governor that it does not
/// like.
fn perftest(command: &str, (bytes, count): (u32, u32), figure: Reading) -> Contestant {
    let command = format!("{command} -F -x 1 -s {bytes} -n {count} -p {}", PERFTEST.1);
    Contestant {
        name: "perftest",
        from: PERFTEST.0,
        program: words(&command).swap_remove(0),
        server: Some((on(RECEIVES_ON, &format!("{command} -d {FAR}")), PERFTEST.1)),
        client: on(SENDS_ON, &format!("{command} -d {NEAR} {FAR_ADDRESS}")),
        bytes: bytes.into(),
        figure,
    }
}

fn qperf_test(verb: &str) -> &'static str {
    match verb {
        "write" => "rc_rdma_write_bw",
        "read" => "rc_rdma_read_bw",
        _ => "rc_bw",
    }
}

/// It finds the devices by the connection manager, and polls as the others do.
fn qperf(test: &str, bytes: u32, seconds: u32, figure: Reading) -> Contestant {
    Contestant {
        name: "qperf",
        from: QPERF.0,
        program: "qperf".to_owned(),
        server: Some((on(RECEIVES_ON, "qperf"), QPERF.1)),
        client: on(
            SENDS_ON,
            &format!("qperf -cm 1 -cp 1 -v -uu -t {seconds} -m {bytes} {FAR_ADDRESS} {test}"),
        ),
        bytes: bytes.into(),
        figure,
    }
}

/// `BW average`: from the first post to the last completion.
fn ours_bulk(text: &str, _: f64) -> Option<f64> {
    let document: Value = serde_json::from_str(text).ok()?;
    Some(document["sizes"][0]["rate_bit_per_s"].as_f64()? / 1e9)
}

fn ours_latency(text: &str, which: &str) -> Option<f64> {
    let document: Value = serde_json::from_str(text).ok()?;
    Some(document["sizes"][0]["latency_ns"][which].as_f64()? / 1e3)
}

fn ours_median(text: &str, _: f64) -> Option<f64> {
    ours_latency(text, "p50")
}

fn ours_mean(text: &str, _: f64) -> Option<f64> {
    ours_latency(text, "mean")
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

/// `#bytes #iterations t_min t_max t_typical t_avg ...`; t_typical is the median.
fn perftest_median(text: &str, bytes: f64) -> Option<f64> {
    perftest_columns(text, bytes)?.get(4).copied()
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
        assert!(is(perftest_median(latency, 2.0), 66.15));
        let bulk = "rc_bw:\n    bw         =    15532032 bytes/sec\n";
        assert!(is(qperf_bulk(bulk, 1.0), 0.124_256_256));
        let latency = "rc_lat:\n    latency    =       86464 ns\n";
        assert!(is(qperf_mean(latency, 1.0), 86.464));
        let document =
            r#"{"sizes":[{"rate_bit_per_s":2e9,"latency_ns":{"p50":1500,"mean":2500}}]}"#;
        assert!(is(ours_bulk(document, 1.0), 2.0));
        assert!(is(ours_median(document, 1.0), 1.5) && is(ours_mean(document, 1.0), 2.5));
    }
}
