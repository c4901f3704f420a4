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
const MIB: f64 = 1_048_576.0;
const PERFTEST: (&str, u16) = ("Debian: perftest", 18_515);
const QPERF: (&str, u16) = ("Debian: qperf", 19_765);

/// What a program says it did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Figure {
    /// In the case's unit.
    pub(crate) value: f64,
    /// Gigabytes, or millions of messages, that the machine's CPU time is divided by; 0 is not told.
    pub(crate) amount: f64,
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

/// How a figure is read from what a program printed, given the bytes of a message and the seconds of a trial.
type Reading = fn(&str, f64, f64) -> Option<Figure>;

/// One program that does the work.
#[derive(Debug, Clone)]
pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    /// The Debian package that has it.
    pub(crate) from: &'static str,
    /// Started first, waited for until it listens on the port, and killed afterwards.
    pub(crate) server: Option<(Vec<String>, u16)>,
    pub(crate) client: Vec<String>,
    pub(crate) bytes: f64,
    pub(crate) figure: Reading,
}

/// All cases, of trials of so many seconds.
pub(crate) fn all(linerate: &Path, seconds: u32) -> Vec<Case> {
    let mut cases = Vec::new();
    for verb in ["write", "read", "send"] {
        for (bytes, size) in [(64 << 10, "64KiB"), (1 << 20, "1MiB")] {
            cases.push(Case {
                name: format!("{verb} {size}"),
                unit: "Gb/s",
                better: Better::More,
                contestants: vec![
                    ours(
                        linerate,
                        &format!("rdma-{verb} --sizes {size} --depth {DEPTH}"),
                        seconds,
                        bytes,
                        ours_bulk,
                    ),
                    perftest(
                        &format!("ib_{verb}_bw -t {DEPTH} -D {seconds}"),
                        bytes,
                        perftest_bulk,
                    ),
                    qperf(qperf_test(verb), seconds, bytes, qperf_bulk),
                ],
            });
        }
    }
    for verb in ["write", "send"] {
        for bytes in [2, 8] {
            let words = format!("rdma-{verb} --latency --sizes {bytes}B");
            // One trial of perftest is so many round trips; these take about as long as the others' time.
            let count = 3_000 * seconds;
            cases.push(Case {
                name: format!("{verb} {bytes} B, median"),
                unit: "us",
                better: Better::Less,
                contestants: vec![
                    ours(linerate, &words, seconds, bytes, ours_median),
                    perftest(&format!("ib_{verb}_lat -n {count}"), bytes, perftest_median),
                ],
            });
            if verb == "send" {
                cases.push(Case {
                    name: format!("{verb} {bytes} B, mean"),
                    unit: "us",
                    better: Better::Less,
                    contestants: vec![
                        ours(linerate, &words, seconds, bytes, ours_mean),
                        qperf("rc_lat", seconds, bytes, qperf_mean),
                    ],
                });
            }
        }
    }
    cases
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn ours(linerate: &Path, what: &str, seconds: u32, bytes: u32, figure: Reading) -> Contestant {
    let mut client = vec![linerate.display().to_string()];
    client.extend(words("--quiet --format json measure"));
    client.extend(words(what));
    client.extend(words(&format!(
        "local --address {FAR_ADDRESS} --time {seconds} --no-record"
    )));
    Contestant {
        name: "linerate",
        from: "this project",
        server: None,
        client,
        bytes: bytes.into(),
        figure,
    }
}

/// GID 1 of a soft-RoCE device is its IPv4 address over RoCE v2; `-F` passes over a governor that it does not
/// like.
fn perftest(command: &str, bytes: u32, figure: Reading) -> Contestant {
    let command = format!("{command} -F -x 1 -s {bytes} -p {}", PERFTEST.1);
    Contestant {
        name: "perftest",
        from: PERFTEST.0,
        server: Some((words(&format!("{command} -d {FAR}")), PERFTEST.1)),
        client: words(&format!("{command} -d {NEAR} {FAR_ADDRESS}")),
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
fn qperf(test: &str, seconds: u32, bytes: u32, figure: Reading) -> Contestant {
    Contestant {
        name: "qperf",
        from: QPERF.0,
        server: Some((words("qperf"), QPERF.1)),
        client: words(&format!(
            "qperf -cm 1 -cp 1 -v -uu -t {seconds} -m {bytes} {FAR_ADDRESS} {test}"
        )),
        bytes: bytes.into(),
        figure,
    }
}

fn gigabytes(bit_per_s: f64, seconds: f64) -> Figure {
    Figure {
        value: bit_per_s / 1e9,
        amount: bit_per_s * seconds / 8e9,
    }
}

/// `BW average`: from the first post to the last completion.
fn ours_bulk(text: &str, _: f64, seconds: f64) -> Option<Figure> {
    let document: Value = serde_json::from_str(text).ok()?;
    let rate = document["sizes"][0]["rate_bit_per_s"].as_f64()?;
    Some(gigabytes(rate, seconds))
}

fn ours_latency(text: &str, which: &str) -> Option<Figure> {
    let document: Value = serde_json::from_str(text).ok()?;
    let size = &document["sizes"][0];
    Some(Figure {
        value: size["latency_ns"][which].as_f64()? / 1e3,
        amount: size["repetitions"].as_f64()? / 1e6,
    })
}

fn ours_median(text: &str, _: f64, _: f64) -> Option<Figure> {
    ours_latency(text, "p50")
}

fn ours_mean(text: &str, _: f64, _: f64) -> Option<Figure> {
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
fn perftest_bulk(text: &str, bytes: f64, seconds: f64) -> Option<Figure> {
    let columns = perftest_columns(text, bytes)?;
    Some(gigabytes(columns.get(3)? * 8.0 * MIB, seconds))
}

/// `#bytes #iterations t_min t_max t_typical t_avg ...`; t_typical is the median.
fn perftest_median(text: &str, bytes: f64, _: f64) -> Option<Figure> {
    let columns = perftest_columns(text, bytes)?;
    Some(Figure {
        value: *columns.get(4)?,
        amount: columns.get(1)? / 1e6,
    })
}

/// The number after `key =`.
fn qperf_number(text: &str, key: &str) -> Option<f64> {
    let (_, rest) = text.split_once(key)?;
    let word = rest.trim_start_matches([' ', '=']).split(' ').next()?;
    word.parse().ok()
}

fn qperf_bulk(text: &str, _: f64, seconds: f64) -> Option<Figure> {
    Some(gigabytes(qperf_number(text, "bw ")? * 8.0, seconds))
}

fn qperf_mean(text: &str, _: f64, seconds: f64) -> Option<Figure> {
    let one_way_ns = qperf_number(text, "latency")?;
    Some(Figure {
        value: one_way_ns / 1e3,
        amount: seconds * 1e3 / (2.0 * one_way_ns),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_program_prints_is_read() {
        let bulk = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n \
                    65536      400              0.00               25.00  \t\t   0.000400\n";
        let figure = perftest_bulk(bulk, 65_536.0, 1.0).expect("a figure");
        // 400 messages of 64 KiB in a second.
        assert!((figure.value - 400.0 * 65_536.0 * 8.0 / 1e9).abs() < 1e-9);
        let latency = " 2       1000          53.34          471.50       66.15    \t       85.52       \t52.50  \t\t359.12  \t\t471.50 \n";
        let figure = perftest_median(latency, 2.0, 2.0).expect("a figure");
        assert!((figure.value - 66.15).abs() < 1e-9 && (figure.amount - 0.001).abs() < 1e-9);
        let bulk = "rc_bw:\n    bw         =    15532032 bytes/sec\n";
        let figure = qperf_bulk(bulk, 1.0, 2.0).expect("a figure");
        assert!((figure.value - 0.124_256).abs() < 1e-6);
        let latency = "rc_lat:\n    latency    =       86464 ns\n";
        let figure = qperf_mean(latency, 1.0, 2.0).expect("a figure");
        assert!((figure.value - 86.464).abs() < 1e-9);
        let document = r#"{"sizes":[{"rate_bit_per_s":2e9,"repetitions":10,"latency_ns":{"p50":1500,"mean":2500}}]}"#;
        assert!(
            ours_bulk(document, 1.0, 1.0).is_some_and(|figure| (figure.value - 2.0).abs() < 1e-9)
        );
        assert!(
            ours_median(document, 1.0, 1.0).is_some_and(|figure| (figure.value - 1.5).abs() < 1e-9)
        );
    }
}
