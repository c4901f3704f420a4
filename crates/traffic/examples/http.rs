//! The server and the client of HTTP/1.1 by themselves, for a comparison by hand with other programs:
//!
//! ```text
//! http serve ADDRESS:PORT THREADS BODY_BYTES [CPUS]
//! http load  URL CONNECTIONS THREADS SECONDS [RATE|- [CPUS]]
//! ```
//!
//! The server serves until it is killed; the client prints what wrk prints, and percentiles.

#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::error::Error;

use linerate_model::ids::CpuSet;
use linerate_model::sample::{Operations, SideSample};
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{Http, Placement, TrialSpec, Waiting, Workload};
use linerate_traffic::Abort;
use linerate_traffic::http::{Server, Target, load};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve", address, threads, body, ref rest @ ..] => {
            let cpus: CpuSet = rest.first().unwrap_or(&"").parse()?;
            let body = Bytes::new(body.parse()?);
            let address = address.parse()?;
            let server = Server::open(address, threads.parse()?, cpus, body, Waiting::Blocking)?;
            println!("listening on {}", server.address());
            server.serve(&Abort::new()?)?;
            Ok(())
        }
        ["load", url, connections, threads, seconds, ref rest @ ..] => {
            let (target, path) = Target::parse(url)?;
            let rate = rest.first().filter(|rate| **rate != "-");
            let spec = TrialSpec {
                workload: Workload::Http(Http {
                    path,
                    body_bytes: Bytes::new(0),
                    rate_per_s: rate.map(|rate| rate.parse()).transpose()?,
                }),
                flows: connections.parse()?,
                threads: Some(threads.parse()?),
                duration_ns: Nanoseconds::new(seconds.parse::<u64>()? * 1_000_000_000),
                placement: Placement {
                    sender_cpus: rest.get(1).unwrap_or(&"").parse()?,
                    ..Placement::default()
                },
                ..TrialSpec::default()
            };
            print(&load(&spec, &target, &Abort::new()?)?)
        }
        _ => Err("expected serve or load; see the head of this file".into()),
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
fn print(sample: &SideSample) -> Result<(), Box<dyn Error>> {
    let asked: &Operations = sample.operations.as_ref().ok_or("nothing was recorded")?;
    let seconds = sample.elapsed_ns.as_secs_f64();
    println!(
        "{} requests in {seconds:.2} s, {} failed, {} received",
        asked.completed, asked.failed, asked.received_bytes
    );
    println!("requests/s {:.1}", asked.completed as f64 / seconds);
    for (thread, completed) in asked.per_thread.iter().enumerate() {
        println!("  thread {thread}: {:.1}", *completed as f64 / seconds);
    }
    for (name, times) in [
        ("latency", Some(&asked.latency)),
        ("service", asked.service.as_ref()),
    ] {
        let Some(times) = times.filter(|times| times.count() > 0) else {
            continue;
        };
        let us = |quantile| {
            times
                .quantile(quantile)
                .map_or(0.0, |time| time.as_u64() as f64 / 1e3)
        };
        println!(
            "{name} us: avg {:.1} stdev {:.1} max {:.1} within one stdev {:.1} %; \
             p50 {:.1} p90 {:.1} p99 {:.1} p99.9 {:.1}",
            times.mean_ns().unwrap_or(0.0) / 1e3,
            times.stddev_ns().unwrap_or(0.0) / 1e3,
            us(1.0),
            times.within_one_stddev().unwrap_or(0.0) * 100.0,
            us(0.5),
            us(0.9),
            us(0.99),
            us(0.999),
        );
    }
    Ok(())
}
