//! Two processes move datagrams one way, for a comparison by hand with another tool:
//!
//! ```text
//! udp listen ADDRESS:PORT SECONDS SIZE BATCH [RATE [BUFFER_KIB]] &
//! udp send   ADDRESS:PORT SECONDS SIZE BATCH [RATE [BUFFER_KIB]]
//! ```
//!
//! BATCH is single, mmsg or gso, RATE bit/s of payload (0 is as fast as it goes), BUFFER_KIB the socket
//! buffers (0 is the kernel's choice). Each end prints its record's figures as one JSON document.

#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use linerate_model::protocol::Token;
use linerate_model::sample::SideSample;
use linerate_model::units::{BitRate, Bytes, Nanoseconds};
use linerate_model::workload::{DatagramBatch, TrialSpec, Udp, Workload};
use linerate_traffic::Abort;
use linerate_traffic::tcp::{Connected, Listening};

const TOKEN: Token = Token([23; 16]);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [role, address, seconds, size, batch, ref rest @ ..] = arguments[..] else {
        return Err("expected listen or send; see the head of this file".into());
    };
    let spec = read_spec(seconds, size, batch, rest)?;
    let abort = Abort::new()?;
    let record = match role {
        "listen" => Listening::open(&spec, TOKEN, address)?
            .accept(deadline(), &abort)?
            .run(&abort)?,
        "send" => connect(&spec, address.parse()?, &abort)?.run(&abort)?,
        _ => return Err("expected listen or send; see the head of this file".into()),
    };
    print(&record);
    Ok(())
}

fn read_spec(
    seconds: &str,
    size: &str,
    batch: &str,
    rest: &[&str],
) -> Result<TrialSpec, Box<dyn Error>> {
    let number = |at: usize| rest.get(at).map_or(Ok(0), |text| text.parse::<u64>());
    let (rate, buffer) = (number(0)?, number(1)?);
    Ok(TrialSpec {
        workload: Workload::Udp(Udp {
            datagram_bytes: Bytes::new(size.parse()?),
            rate_bit_per_s: (rate > 0).then(|| BitRate::from_bit_per_s(rate)),
            batch: match batch {
                "single" => DatagramBatch::Single,
                "mmsg" => DatagramBatch::Mmsg,
                "gso" => DatagramBatch::Gso,
                _ => return Err("the batch is single, mmsg or gso".into()),
            },
        }),
        duration_ns: Nanoseconds::from_millis(seconds.parse::<u64>()? * 1_000),
        socket_buffer_bytes: (buffer > 0).then(|| Bytes::kib(buffer)),
        ..TrialSpec::default()
    })
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

/// The peer is started at about the same time, and may not listen yet.
fn connect(
    spec: &TrialSpec,
    address: SocketAddr,
    abort: &Abort,
) -> Result<Connected, Box<dyn Error>> {
    let until = deadline();
    loop {
        match Connected::connect(spec, address, TOKEN, until, abort) {
            Err(linerate_traffic::TrafficError::Refused { .. }) if Instant::now() < until => {
                std::thread::yield_now();
            }
            outcome => return Ok(outcome?),
        }
    }
}

fn print(record: &SideSample) {
    let flow = &record.flows[0];
    let datagrams = flow.datagrams.clone().unwrap_or_default();
    let quantile = |share| {
        let delay = datagrams
            .delay
            .as_ref()
            .and_then(|delay| delay.quantile(share));
        delay.map_or_else(|| "null".to_owned(), |time| time.as_u64().to_string())
    };
    let end = flow.at_ns.last().copied().unwrap_or_default();
    let cpu = record.cpu.threads_user_ns.as_secs_f64() + record.cpu.threads_system_ns.as_secs_f64();
    println!(
        "{{\"count\":{},\"bytes\":{},\"seconds\":{:.6},\"lost\":{},\"reordered\":{},\
         \"duplicated\":{},\"jitter_ns\":{},\"delay_ns_p50\":{},\"delay_ns_p99\":{},\
         \"socket_drops\":{},\"cpu_s\":{cpu:.3}}}",
        datagrams.count,
        flow.total().as_u64(),
        end.as_secs_f64(),
        datagrams.lost,
        datagrams.reordered,
        datagrams.duplicated,
        datagrams.jitter_ns.as_u64(),
        quantile(0.5),
        quantile(0.99),
        datagrams.socket_drops.unwrap_or_default(),
    );
}
