//! Moves bytes between two processes, for a comparison by hand with another tool:
//!
//! ```text
//! loopback listen ADDRESS:PORT [WORD=VALUE ...] &
//! loopback send   ADDRESS:PORT [WORD=VALUE ...]
//! loopback copy
//! ```
//!
//! Words, equal at both ends: `seconds` (2), `buffer` in KiB (128), `flows` (1), `threads` (one per flow),
//! `send`, `receive` and `waiting` by their names, `cc` (congestion control), `cpu`, `bytes`, `window` in
//! KiB. Each end prints its rate in bit/s, the CPU seconds per GB of its data threads, how payload
//! crossed, and the peak memory of the process.

#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::error::Error;
use std::fmt::Display;
use std::time::{Duration, Instant};

use linerate_model::ids::CpuSet;
use linerate_model::protocol::Token;
use linerate_model::sample::{Copies, SideSample};
use linerate_model::units::{BitRate, Bytes, Nanoseconds};
use linerate_model::workload::{ReceiveMode, SendMode, Stream, TrialSpec, Waiting, Workload};
use linerate_traffic::Abort;
use linerate_traffic::copy::{cached_copy_bandwidth, copy_bandwidth};
use linerate_traffic::tcp::{Connected, Listening};

const TOKEN: Token = Token([23; 16]);

const SENDS: [SendMode; 6] = [
    SendMode::Write,
    SendMode::Zerocopy,
    SendMode::Sendfile,
    SendMode::Splice,
    SendMode::Uring,
    SendMode::UringZerocopy,
];
const RECEIVES: [ReceiveMode; 4] = [
    ReceiveMode::Read,
    ReceiveMode::Trunc,
    ReceiveMode::Zerocopy,
    ReceiveMode::Uring,
];
const WAITINGS: [Waiting; 6] = [
    Waiting::Blocking,
    Waiting::Epoll,
    Waiting::Spin,
    Waiting::BusyPoll(50),
    Waiting::Uring,
    Waiting::UringSqpoll,
];

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
        ["listen", address, ref words @ ..] => {
            let (spec, abort) = (read_spec(words)?, Abort::new()?);
            let listening = Listening::open(&spec, TOKEN, address)?;
            print(&listening.accept(deadline(), &abort)?.run(&abort)?);
            Ok(())
        }
        ["send", address, ref words @ ..] => {
            let (spec, abort) = (read_spec(words)?, Abort::new()?);
            let connected = Connected::connect(&spec, address.parse()?, TOKEN, deadline(), &abort)?;
            print(&connected.run(&abort)?);
            Ok(())
        }
        _ => Err("expected copy, listen or send; see the head of this file".into()),
    }
}

fn read_spec(words: &[&str]) -> Result<TrialSpec, Box<dyn Error>> {
    let mut spec = TrialSpec {
        duration_ns: Nanoseconds::from_millis(2_000),
        ..TrialSpec::default()
    };
    let mut stream = Stream::default();
    for word in words {
        let (word, value) = word.split_once('=').ok_or("expected WORD=VALUE")?;
        match word {
            "seconds" => spec.duration_ns = Nanoseconds::from_millis(value.parse::<u64>()? * 1_000),
            "buffer" => spec.buffer_bytes = Bytes::kib(value.parse()?),
            "flows" => spec.flows = value.parse()?,
            "threads" => spec.threads = Some(value.parse()?),
            "send" => stream.send = one_of(&SENDS, value)?,
            "receive" => stream.receive = one_of(&RECEIVES, value)?,
            "waiting" => spec.waiting = one_of(&WAITINGS, value)?,
            "cc" => spec.congestion_control = Some(value.to_owned()),
            "bytes" => stream.bytes = Some(Bytes::new(value.parse()?)),
            "window" => spec.socket_buffer_bytes = Some(Bytes::kib(value.parse()?)),
            "cpu" => {
                let cpus: CpuSet = value.parse()?;
                spec.placement.sender_cpus = cpus.clone();
                spec.placement.receiver_cpus = cpus;
            }
            _ => return Err(format!("`{word}` is not one of the words").into()),
        }
    }
    spec.workload = Workload::Stream(stream);
    Ok(spec)
}

fn one_of<T: Copy + Display>(all: &[T], name: &str) -> Result<T, String> {
    let found = all.iter().find(|one| one.to_string() == name);
    found.copied().ok_or_else(|| format!("no such way: {name}"))
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

#[expect(
    clippy::disallowed_methods,
    reason = "no host to be captured: its own memory"
)]
fn print(side: &SideSample) {
    let moved: u64 = side.flows.iter().map(|flow| flow.total().as_u64()).sum();
    let rate = BitRate::of(Bytes::new(moved), side.elapsed_ns).unwrap_or_default();
    let seconds = side.cpu.threads_user_ns.as_secs_f64() + side.cpu.threads_system_ns.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "printed to three digits")]
    let per_gb = seconds * 1e9 / moved as f64;
    let switches: u64 = side.threads.iter().map(|one| one.voluntary_switches).sum();
    print!(
        "{} bit/s {per_gb:.3} s/GB {switches} switches",
        rate.as_bit_per_s()
    );
    let copies = side.flows.iter().filter_map(|flow| flow.copies);
    let sum = copies.reduce(|sum, one| Copies {
        zerocopy_sends: sum.zerocopy_sends + one.zerocopy_sends,
        copied_after_all: sum.copied_after_all + one.copied_after_all,
        mapped_bytes: Bytes::new(sum.mapped_bytes.as_u64() + one.mapped_bytes.as_u64()),
    });
    if let Some(copies) = sum {
        print!(
            " {}/{} copied {} of {moved} mapped",
            copies.copied_after_all,
            copies.zerocopy_sends,
            copies.mapped_bytes.as_u64()
        );
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    println!(" peak {}", peak.unwrap_or("unknown").trim());
}
