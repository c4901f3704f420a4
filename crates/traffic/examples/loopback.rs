//! Two processes move bytes over the loopback, for a comparison by hand with another tool:
//!
//! ```text
//! loopback listen PORT SECONDS BUFFER_KIB [CONGESTION_CONTROL [CPU]] &
//! loopback send   PORT SECONDS BUFFER_KIB [CONGESTION_CONTROL [CPU]]
//! loopback copy
//! ```
//!
//! The listening end receives and prints the rate in bit/s.

#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::error::Error;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use linerate_model::ids::CpuSet;
use linerate_model::protocol::Token;
use linerate_model::units::{BitRate, Bytes, Nanoseconds};
use linerate_model::workload::{Direction, Placement, TrialSpec};
use linerate_traffic::Abort;
use linerate_traffic::copy::{cached_copy_bandwidth, copy_bandwidth};
use linerate_traffic::tcp::{Connected, Listening};

const TOKEN: Token = Token([23; 16]);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["copy"] => {
            let budget = Duration::from_millis(200);
            println!("memory {}", copy_bandwidth(None, budget)?);
            println!("cached {}", cached_copy_bandwidth(None, budget)?);
            Ok(())
        }
        ["listen", port, seconds, buffer, ref rest @ ..] => {
            let spec = read_spec(seconds, buffer, rest)?;
            listen(&spec, port)
        }
        ["send", port, seconds, buffer, ref rest @ ..] => {
            let spec = read_spec(seconds, buffer, rest)?;
            send(&spec, port)
        }
        _ => Err("expected copy, listen or send; see the head of this file".into()),
    }
}

fn read_spec(seconds: &str, buffer: &str, rest: &[&str]) -> Result<TrialSpec, Box<dyn Error>> {
    let cpus: CpuSet = rest.get(1).unwrap_or(&"").parse()?;
    Ok(TrialSpec {
        flows: 1,
        direction: Direction::Forward,
        duration_ns: Nanoseconds::new(seconds.parse::<u64>()? * 1_000_000_000),
        interval_ns: Nanoseconds::from_millis(100),
        buffer_bytes: Bytes::kib(buffer.parse()?),
        socket_buffer_bytes: None,
        congestion_control: rest.first().map(|&name| name.to_owned()),
        placement: Placement {
            sender_cpus: cpus.clone(),
            receiver_cpus: cpus,
            ..Placement::default()
        },
        ..TrialSpec::default()
    })
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

fn listen(spec: &TrialSpec, port: &str) -> Result<(), Box<dyn Error>> {
    let abort = Abort::new()?;
    let listening = Listening::open(spec, TOKEN, &format!("127.0.0.1:{port}"))?;
    let record = listening.accept(deadline(), &abort)?.run(&abort)?;
    let rate = BitRate::of(record.flows[0].total(), record.elapsed_ns).unwrap_or_default();
    println!("{}", rate.as_bit_per_s());
    Ok(())
}

fn send(spec: &TrialSpec, port: &str) -> Result<(), Box<dyn Error>> {
    let abort = Abort::new()?;
    let address = (Ipv4Addr::LOCALHOST, port.parse()?).into();
    Connected::connect(spec, address, TOKEN, deadline(), &abort)?.run(&abort)?;
    Ok(())
}
