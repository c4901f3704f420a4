//! What each program prints of itself, read.

use serde_json::Value;

/// The figures that a program prints.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Figure {
    /// In the case's unit.
    pub(crate) value: f64,
    /// Gigabytes, or millions of operations, that the machine's CPU time is divided by.
    pub(crate) amount: f64,
}

fn number(text: &str) -> Option<f64> {
    text.trim()
        .parse()
        .ok()
        .filter(|value: &f64| value.is_finite())
}

/// The word after `key` on the line that has it, up to a blank or one of `;,`.
fn after<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(key)?;
    let rest = rest.trim_start_matches([' ', '=', ':']);
    rest.split([' ', ';', ',', '\n']).next()
}

/// Bulk: Gb/s, and gigabytes moved.
fn bulk(bit_per_s: f64, bytes: f64) -> Figure {
    Figure {
        value: bit_per_s / 1e9,
        amount: bytes / 1e9,
    }
}

/// Operations: how many a second, and millions of them.
fn operations(per_second: f64, seconds: f64) -> Figure {
    Figure {
        value: per_second,
        amount: per_second * seconds / 1e6,
    }
}

pub(crate) fn linerate_bulk(text: &str) -> Option<Figure> {
    let document: Value = serde_json::from_str(text).ok()?;
    let total = &document["total"];
    Some(bulk(
        total["rate_bit_per_s"].as_f64()?,
        total["bytes"].as_f64()?,
    ))
}

pub(crate) fn iperf3_bulk(text: &str) -> Option<Figure> {
    let document: Value = serde_json::from_str(text).ok()?;
    let sum = &document["end"]["sum_received"];
    Some(bulk(
        sum["bits_per_second"].as_f64()?,
        sum["bytes"].as_f64()?,
    ))
}

/// `-y C`: a line for each flow and, of several, one for the sum (its number is -1).
pub(crate) fn iperf2_bulk(text: &str) -> Option<Figure> {
    let line = text
        .lines()
        .filter(|line| line.split(',').count() >= 9)
        .find(|line| line.split(',').nth(5) == Some("-1"))
        .or_else(|| text.lines().rfind(|line| line.split(',').count() >= 9))?;
    let fields: Vec<&str> = line.split(',').collect();
    Some(bulk(number(fields[8])?, number(fields[7])?))
}

/// neper: the receiving end's count is its `remote_throughput`, in bit/s; the trial has the duration that was
/// requested.
pub(crate) fn neper_bulk(text: &str) -> Option<Figure> {
    let rate = number(after(text, "\nremote_throughput=")?)?;
    let seconds = number(after(text, "\ntest_length=")?)?;
    Some(bulk(rate, rate / 8.0 * seconds))
}

pub(crate) fn linerate_operations(text: &str) -> Option<Figure> {
    let document: Value = serde_json::from_str(text).ok()?;
    let total = &document["total"];
    Some(Figure {
        value: total["ops_per_s"].as_f64()?,
        amount: total["operations"].as_f64()? / 1e6,
    })
}

/// `latency = N ns`, one way; the trial has the duration that was requested.
pub(crate) fn qperf_operations(text: &str) -> Option<Figure> {
    let one_way = number(after(text, "latency")?)?;
    let per_second = 1e9 / (2.0 * one_way);
    let seconds = number(after(text, "time").unwrap_or("0")).unwrap_or(0.0) / 1e9;
    Some(operations(per_second, seconds))
}

/// Of its whole run, as of all the others: its `Valid Duration` leaves out the first 400 ms.
pub(crate) fn sockperf_operations(text: &str) -> Option<Figure> {
    let (_, whole) = text.split_once("[Total Run]")?;
    let seconds = number(after(whole, "RunTime=")?)?;
    let received =
        number(after(whole, "ReceivedMessages=")?.trim_end_matches(|c: char| !c.is_ascii_digit()))?;
    Some(operations(received / seconds, seconds))
}

pub(crate) fn neper_operations(text: &str) -> Option<Figure> {
    let per_second = number(after(text, "\nthroughput=")?)?;
    let count = number(after(text, "num_transactions=")?)?;
    Some(Figure {
        value: per_second,
        amount: count / 1e6,
    })
}

/// The mean of the one size that was requested, microseconds.
pub(crate) fn linerate_pingpong(text: &str) -> Option<Figure> {
    let document: Value = serde_json::from_str(text).ok()?;
    let size = &document["sizes"][0];
    Some(Figure {
        value: size["latency_ns"]["mean"].as_f64()? / 1e3,
        amount: size["repetitions"].as_f64()? / 1e6,
    })
}

pub(crate) fn qperf_pingpong(text: &str) -> Option<Figure> {
    let one_way = number(after(text, "latency")?)?;
    let seconds = number(after(text, "time").unwrap_or("0")).unwrap_or(0.0) / 1e9;
    Some(Figure {
        value: one_way / 1e3,
        amount: seconds * 1e9 / (2.0 * one_way) / 1e6,
    })
}

/// Datagrams that arrived, a second.
pub(crate) fn linerate_datagrams(text: &str) -> Option<Figure> {
    let document: Value = serde_json::from_str(text).ok()?;
    let datagrams = &document["datagrams"];
    Some(Figure {
        value: datagrams["received_per_s"].as_f64()?,
        amount: datagrams["received"].as_f64()? / 1e6,
    })
}

pub(crate) fn iperf3_datagrams(text: &str) -> Option<Figure> {
    let document: Value = serde_json::from_str(text).ok()?;
    let sum = &document["end"]["sum"];
    let arrived = sum["packets"].as_f64()? - sum["lost_packets"].as_f64()?;
    Some(operations(
        arrived / sum["seconds"].as_f64()?,
        sum["seconds"].as_f64()?,
    ))
}

pub(crate) fn wrk_requests(text: &str) -> Option<Figure> {
    let per_second = number(after(text, "Requests/sec:")?)?;
    let (count, _) = text.split_once(" requests in ")?;
    let count = number(count.rsplit(['\n', ' ']).next()?)?;
    Some(Figure {
        value: per_second,
        amount: count / 1e6,
    })
}

/// Our program prints `N BYTES REPETITIONS MICROSECONDS` on its last line, one way.
pub(crate) fn mpi_pingpong(text: &str) -> Option<Figure> {
    let line = text.lines().rfind(|line| line.starts_with("pingpong "))?;
    let mut fields = line.split_whitespace().skip(2);
    let repetitions = number(fields.next()?)?;
    Some(Figure {
        value: number(fields.next()?)?,
        amount: repetitions / 1e6,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(figure: Option<Figure>, value: f64) {
        let figure = figure.expect("a figure");
        assert!((figure.value - value).abs() < value * 1e-3, "{figure:?}");
    }

    #[test]
    fn what_each_program_prints_is_read() {
        near(
            iperf2_bulk(
                "19700101000000,a,1,b,2,1,0.0-1.0,100,800\n19700101000000,a,1,b,2,-1,0.0-1.0,250000000,2000000000\n",
            ),
            2.0,
        );
        near(
            iperf2_bulk("19700101000000,a,1,b,2,1,0.0-1.0,125000000,1000000000\n"),
            1.0,
        );
        near(
            neper_bulk("a=1\ntest_length=2\nlocal_throughput=0\nremote_throughput=800000000\n"),
            0.8,
        );
        near(
            qperf_operations("tcp_lat:\n    latency = 10000 ns\n    time = 1000000000 ns\n"),
            50_000.0,
        );
        near(
            sockperf_operations(
                "sockperf: [Total Run] RunTime=2.000 sec; Warm up time=400 msec; SentMessages=9; \
                 ReceivedMessages=80000\nsockperf: [Valid Duration] RunTime=1.500 sec; SentMessages=7; \
                 ReceivedMessages=70000\n",
            ),
            40_000.0,
        );
        near(
            neper_operations("num_transactions=86122\nthroughput=43059.61\nlocal_throughput=1\n"),
            43_059.61,
        );
        near(mpi_pingpong("a warning\npingpong 4 25000 11.25\n"), 11.25);
        near(
            wrk_requests("  12345 requests in 2.00s, 3MB read\nRequests/sec:  6172.5\n"),
            6_172.5,
        );
    }
}
