//! Do percentiles agree with a record of every operation?
//!
//! Twice: the histogram that every workload records into, compared with a plain list of the same times, made by a loop
//! over a socket; and `measure http` as a whole, against a server that answers after random delays and writes
//! down when each request came and when its answer left. That server sees less than the client, the service
//! alone; from one request to the next it sees more, the client's turn-round too. The client's percentiles lie
//! between the two.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linerate_bench_shared::pause;
use linerate_model::latency::Histogram;
use linerate_model::units::Nanoseconds;
use linerate_stats::{Random, Seed};

use crate::Trouble;
use crate::hosts::{Bench, Hosts, Latency};
use crate::line::{Line, Verdict, real};

/// Operations of the plain loop.
const OPERATIONS: usize = 100_000;
/// The histogram's own precision: half a bucket of 1/256.
const PRECISION: f64 = 1.0 / 512.0;
/// Delays of the server lie between.
const DELAY_MIN_NS: f64 = 100_000.0;
const DELAY_MAX_NS: f64 = 10_000_000.0;
/// Ranks that two records of the same operations may be apart: the first and the last of a trial, and one in a
/// thousand whose way there took longer than that of the next.
const RANKS: usize = 3;

pub(crate) fn run(bench: &Bench, lines: &mut Vec<Line>) -> Result<(), Trouble> {
    let hosts = bench.hosts()?;
    lines.push(histogram(&hosts)?);
    lines.push(whole(bench, &hosts)?);
    Ok(())
}

fn trouble(doing: &'static str) -> impl FnOnce(std::io::Error) -> Trouble {
    move |error| Trouble(format!("{doing}: {error}"))
}

/// The time that the share `quantile` of all does not pass, `ranks` further up or down.
fn quantile(sorted: &[u64], quantile: f64, ranks: isize) -> f64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank within a list"
    )]
    let rank = (quantile * real(sorted.len() as u64)).ceil().max(1.0) as usize;
    let at = (rank - 1).saturating_add_signed(ranks);
    real(sorted[at.min(sorted.len() - 1)])
}

/// Every operation of a loop, in the histogram and in a list.
fn histogram(hosts: &Hosts<'_>) -> Result<Line, Trouble> {
    let recorded = hosts.near.inside(exchange);
    let (histogram, mut times) = recorded
        .map_err(trouble("enter a namespace"))?
        .map_err(trouble("exchange bytes over a socket"))?;
    times.sort_unstable();
    let mut worst: f64 = 0.0;
    for share in [0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999] {
        let said = histogram
            .quantile(share)
            .map_or(f64::NAN, |time| real(time.as_u64()));
        let off = (said / quantile(&times, share, 0) - 1.0).abs();
        worst = if off.is_nan() { off } else { worst.max(off) };
    }
    let total: u128 = times.iter().map(|time| u128::from(*time)).sum();
    let count = times.len() as u64;
    // To a nanosecond: both are sums of the same whole numbers.
    let mean = u64::try_from(total / u128::from(count)).unwrap_or(0);
    let exact = histogram.count() == count
        && histogram.min().map(Nanoseconds::as_u64) == times.first().copied()
        && histogram.max().map(Nanoseconds::as_u64) == times.last().copied()
        && histogram
            .mean_ns()
            .is_some_and(|said| (said - real(mean)).abs() <= 1.0);
    Ok(Line::new(
        format!("histogram vs list of {OPERATIONS} round trips"),
        format!(
            "p1 to p99.99 differ by at most {:.3} %; count, minimum, mean and maximum {}",
            worst * 100.0,
            if exact { "equal" } else { "DIFFER" }
        ),
        format!("{:.3} %, half a bucket; the rest exact", PRECISION * 100.0),
        Verdict::of(exact && worst <= PRECISION),
    ))
}

/// A byte to and fro, again and again.
fn exchange() -> std::io::Result<(Histogram, Vec<u64>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (mut far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let answering = std::thread::spawn(move || {
        let mut byte = [0];
        while far.read_exact(&mut byte).is_ok() && far.write_all(&byte).is_ok() {}
    });
    let mut histogram = Histogram::default();
    let mut times = Vec::with_capacity(OPERATIONS);
    let mut byte = [0];
    for _ in 0..OPERATIONS {
        let begun = Instant::now();
        near.write_all(&byte)?;
        near.read_exact(&mut byte)?;
        let took = begun.elapsed();
        histogram.record(took.into());
        times.push(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }
    drop(near);
    // It ends with the connection.
    let _ = answering.join();
    Ok((histogram, times))
}

/// When a request had come, and when its answer had left.
#[derive(Debug, Clone, Copy)]
struct Served {
    came: Instant,
    left: Instant,
}

/// linerate's client against a server that writes everything down.
fn whole(bench: &Bench, hosts: &Hosts<'_>) -> Result<Line, Trouble> {
    let bound = hosts.near.inside(|| TcpListener::bind("127.0.0.1:0"));
    let listener = bound
        .map_err(trouble("enter a namespace"))?
        .map_err(trouble("listen"))?;
    let address = listener.local_addr().map_err(trouble("listen"))?;
    let (over, seed) = (AtomicBool::new(false), bench.seed);
    let (served, measured) = std::thread::scope(|scope| {
        let serving = scope.spawn(|| serve(&listener, &over, seed));
        let measured = hosts.measure(&format!(
            "http http://{address}/ --flows 1 --threads 1 --time 4"
        ));
        over.store(true, Ordering::Release);
        // Wakes it from accept.
        let _ = hosts.near.inside(|| TcpStream::connect(address));
        (serving.join(), measured)
    });
    let served = served
        .map_err(|_| Trouble("serve".to_owned()))?
        .map_err(trouble("serve"))?;
    let latency = measured?.latency_ns;
    let latency = latency.ok_or_else(|| Trouble("find latencies in the result".to_owned()))?;
    compare(address, &served, &latency)
}

fn serve(listener: &TcpListener, over: &AtomicBool, seed: u64) -> std::io::Result<Vec<Served>> {
    let mut random = Random::new(Seed(seed));
    let mut served = Vec::new();
    loop {
        let (mut client, _) = listener.accept()?;
        if over.load(Ordering::Acquire) {
            return Ok(served);
        }
        client.set_nodelay(true)?;
        let mut request = Vec::new();
        let mut piece = [0; 4_096];
        loop {
            let count = match client.read(&mut piece) {
                Ok(0) | Err(_) => break,
                Ok(count) => count,
            };
            request.extend_from_slice(&piece[..count]);
            if !request.ends_with(b"\r\n\r\n") {
                continue;
            }
            request.clear();
            let came = Instant::now();
            let uniform = real(random.next_u64() >> 11) / real(1 << 53);
            let delay = DELAY_MIN_NS * (DELAY_MAX_NS / DELAY_MIN_NS).powf(uniform);
            pause(Duration::from_secs_f64(delay / 1e9));
            if client
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                .is_err()
            {
                break;
            }
            let left = Instant::now();
            served.push(Served { came, left });
        }
    }
}

fn compare(address: SocketAddr, served: &[Served], said: &Latency) -> Result<Line, Trouble> {
    let ns = |from: Instant, to: Instant| {
        u64::try_from(to.duration_since(from).as_nanos()).unwrap_or(u64::MAX)
    };
    let mut service: Vec<u64> = served.iter().map(|one| ns(one.came, one.left)).collect();
    let cycles = served.windows(2).map(|two| ns(two[0].came, two[1].came));
    let mut cycles: Vec<u64> = cycles.collect();
    if cycles.is_empty() {
        return Err(Trouble(format!("serve anything on {address}")));
    }
    service.sort_unstable();
    cycles.sort_unstable();
    let slack = isize::try_from(RANKS + service.len() / 1_000).unwrap_or(isize::MAX);
    let mut inside = true;
    let mut words = Vec::new();
    for (name, share, said) in [
        ("p50", 0.5, said.p50),
        ("p90", 0.9, said.p90),
        ("p99", 0.99, said.p99),
    ] {
        let low = quantile(&service, share, -slack) * (1.0 - PRECISION);
        let high = quantile(&cycles, share, slack) * (1.0 + PRECISION);
        inside &= (low..=high).contains(&said);
        words.push(format!(
            "{name} {:.3} in {:.3} to {:.3}",
            said / 1e6,
            low / 1e6,
            high / 1e6
        ));
    }
    let mean = |times: &[u64]| {
        times.iter().map(|time| real(*time)).sum::<f64>() / real(times.len() as u64)
    };
    // The first and the last operation account for at most this much.
    let edge = 2.0 * DELAY_MAX_NS / real(service.len() as u64);
    let (low, high) = (mean(&service) - edge, mean(&cycles) + edge);
    inside &= (low..=high).contains(&said.mean);
    words.push(format!(
        "mean {:.3} in {:.3} to {:.3}",
        said.mean / 1e6,
        low / 1e6,
        high / 1e6
    ));
    let counts = said.count.abs_diff(service.len() as u64);
    Ok(Line::new(
        "http percentiles vs the server's record of every request",
        format!(
            "{} ms; {} and {} operations",
            words.join(", "),
            said.count,
            service.len()
        ),
        "between the service alone and the whole cycle; counts at most 1 apart, the last one",
        Verdict::of(inside && counts <= 1),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_stay_within_the_list() {
        let times: Vec<u64> = (1..=100).collect();
        for (share, ranks, expected) in [(0.5, 0, 50), (0.5, 2, 52), (1.0, 9, 100), (0.0, -9, 1)] {
            let found = quantile(&times, share, ranks);
            assert!(
                (found - real(expected)).abs() < 1e-9,
                "{share} {ranks} {found}"
            );
        }
    }
}
