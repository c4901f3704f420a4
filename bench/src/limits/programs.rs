//! The other programs of a trial, which this program also is: one that computes, one that stops another, one that
//! sends a little.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use clap::Args;
use linerate_bench_shared::pause;

use crate::{Trouble, hosts};

/// A period of a program that computes part of the time.
const PERIOD: Duration = Duration::from_millis(10);
/// The payload of a datagram.
const DATAGRAM: usize = 1_200;

/// Which of them this process is.
#[derive(Debug, Args)]
pub(crate) struct ProgramArgs {
    /// Internal: compute on these CPUs, one thread on each
    #[arg(long, hide = true, value_delimiter = ',')]
    spin_on: Vec<usize>,
    /// Internal: this many threads on each CPU
    #[arg(long, hide = true, default_value_t = 1)]
    programs: usize,
    /// Internal: compute for this share of the time, percent
    #[arg(long, hide = true, default_value_t = 100)]
    duty: u32,
    /// Internal: stop and continue this process until it ends
    #[arg(long, hide = true, requires_all = ["run", "stop"])]
    stall: Option<u32>,
    /// Internal: how long it runs, milliseconds
    #[arg(long, hide = true)]
    run: Option<u64>,
    /// Internal: how long it is stopped, milliseconds
    #[arg(long, hide = true)]
    stop: Option<u64>,
    /// Internal: send datagrams to this address and port
    #[arg(long, hide = true)]
    trickle: Option<String>,
    /// Internal: at this rate
    #[arg(long, hide = true, default_value_t = 0)]
    mbit: u64,
}

impl ProgramArgs {
    /// Runs the program that the options name, if they name one.
    pub(crate) fn run(&self) -> Option<Result<bool, Trouble>> {
        if let Some(pid) = self.stall {
            let time = |ms: Option<u64>| Duration::from_millis(ms.unwrap_or(1));
            return Some(hosts::stall(pid, time(self.run), time(self.stop)));
        }
        if let Some(target) = &self.trickle {
            return Some(trickle(target, self.mbit));
        }
        (!self.spin_on.is_empty()).then(|| self.spin())
    }

    /// Computes until it is killed.
    fn spin(&self) -> Result<bool, Trouble> {
        std::thread::scope(|scope| {
            let threads = self.spin_on.iter();
            let threads = threads.flat_map(|cpu| std::iter::repeat_n(*cpu, self.programs));
            let threads: Vec<_> = threads
                .map(|cpu| scope.spawn(move || spin_on(cpu, PERIOD * self.duty / 100)))
                .collect();
            let results = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
            results
                .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .fold(Ok(true), Result::and)
        })
    }
}

/// Computes on `cpu` and nowhere else, for `busy` of each period.
fn spin_on(cpu: usize, busy: Duration) -> Result<bool, Trouble> {
    let mut cpus = rustix::thread::CpuSet::new();
    cpus.set(cpu);
    rustix::thread::sched_setaffinity(None, &cpus)
        .map_err(|error| Trouble(format!("run on CPU {cpu}: {error}")))?;
    loop {
        let start = Instant::now();
        while start.elapsed() < busy {
            std::hint::spin_loop();
        }
        pause(PERIOD.saturating_sub(busy));
    }
}

/// Sends datagrams until it is killed.
fn trickle(target: &str, mbit: u64) -> Result<bool, Trouble> {
    let open = || {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(target)?;
        Ok(socket)
    };
    let socket =
        open().map_err(|error: std::io::Error| Trouble(format!("send to {target}: {error}")))?;
    let (start, mut sent) = (Instant::now(), 0);
    loop {
        let due = u128::from(mbit) * start.elapsed().as_micros() / 8;
        while sent + DATAGRAM as u128 <= due {
            // Nobody listens; a refusal (ICMP) is the answer to an earlier datagram.
            let _ = socket.send(&[0; DATAGRAM]);
            sent += DATAGRAM as u128;
        }
        pause(Duration::from_millis(2));
    }
}
