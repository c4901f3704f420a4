//! Two processes exchange messages, for a comparison by hand with another tool:
//!
//! ```text
//! exchange listen ADDRESS:PORT SECONDS WAITING WORKLOAD [CPU] &
//! exchange ask    ADDRESS:PORT SECONDS WAITING WORKLOAD [CPU]
//! ```
//!
//! WAITING is `blocking`, `epoll`, `spin`, `uring` or `uring-sqpoll`. WORKLOAD is `rr:BYTES[:DEPTH]`,
//! `each:BYTES`, `pingpong:BYTES` or `transfer:BYTES`. The asking end prints operations a second, the
//! median and the 99th percentile in ns; of `pingpong` half of a round trip, and MB/s.

#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::error::Error;
use std::time::{Duration, Instant};

use linerate_model::ids::CpuSet;
use linerate_model::latency::Histogram;
use linerate_model::protocol::Token;
use linerate_model::sample::SideSample;
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{
    Direction, Pingpong, Placement, Rr, Transfer, TrialSpec, Waiting, Workload,
};
use linerate_traffic::Abort;
use linerate_traffic::tcp::{Connected, Listening};

const TOKEN: Token = Token([23; 16]);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [role, address, seconds, waiting, workload, ref rest @ ..] = arguments[..] else {
        return Err("see the head of this file".into());
    };
    let cpus: CpuSet = rest.first().unwrap_or(&"").parse()?;
    let spec = TrialSpec {
        workload: read_workload(workload)?,
        waiting: read_waiting(waiting)?,
        flows: 1,
        direction: Direction::Forward,
        duration_ns: Nanoseconds::new(seconds.parse::<u64>()? * 1_000_000_000),
        placement: Placement {
            sender_cpus: cpus.clone(),
            receiver_cpus: cpus,
            ..Placement::default()
        },
        ..TrialSpec::default()
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    let abort = Abort::new()?;
    if role == "listen" {
        let listening = Listening::open(&spec, TOKEN, address)?;
        listening.accept(deadline, &abort)?.run(&abort)?;
        return Ok(());
    }
    let connected = Connected::connect(&spec, address.parse()?, TOKEN, deadline, &abort)?;
    print(&connected.run(&abort)?);
    Ok(())
}

fn read_waiting(word: &str) -> Result<Waiting, Box<dyn Error>> {
    Ok(match word {
        "blocking" => Waiting::Blocking,
        "epoll" => Waiting::Epoll,
        "spin" => Waiting::Spin,
        "uring" => Waiting::Uring,
        "uring-sqpoll" => Waiting::UringSqpoll,
        _ => return Err("see the head of this file".into()),
    })
}

fn read_workload(text: &str) -> Result<Workload, Box<dyn Error>> {
    let mut words = text.split(':');
    let name = words.next().unwrap_or_default();
    let bytes = Bytes::new(words.next().unwrap_or("1").parse()?);
    let depth = words.next().unwrap_or("1").parse()?;
    let rr = Rr {
        request_bytes: bytes,
        response_bytes: bytes,
        depth,
        connect_each: name == "each",
        rate_per_s: None,
    };
    Ok(match name {
        "rr" | "each" => Workload::Rr(rr),
        "pingpong" => Workload::Pingpong(Pingpong {
            // As often as the time allows: the size again and again.
            sizes: vec![bytes; 256],
            repetitions: 10_000_000,
        }),
        "transfer" => Workload::Transfer(Transfer {
            bytes,
            repetitions: None,
            data_check: false,
        }),
        _ => return Err("see the head of this file".into()),
    })
}

fn print(record: &SideSample) {
    let Some(operations) = &record.operations else {
        return;
    };
    let seconds = record.elapsed_ns.as_secs_f64();
    let quantile = |times: &Histogram, quantile: f64| {
        let time = times.quantile(quantile).unwrap_or_default();
        time.as_u64()
    };
    let times = &operations.latency;
    if times.count() > 0 {
        println!(
            "{:.0} {} {}",
            real(operations.completed) / seconds,
            quantile(times, 0.5),
            quantile(times, 0.99)
        );
    }
    let mut one_way = Histogram::default();
    for size in &operations.sizes {
        one_way.add(&size.one_way);
    }
    if let (Some(mean), Some(size)) = (one_way.mean_ns(), operations.sizes.first()) {
        let bytes = real(size.bytes.as_u64());
        println!("{mean:.0} ns {:.1} MB/s", bytes * 1e3 / mean);
    }
}

#[expect(clippy::cast_precision_loss, reason = "a relative error of 2^-53")]
fn real(value: u64) -> f64 {
    value as f64
}
