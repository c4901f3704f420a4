//! What many connections and an agent that waits take of memory: ours, as the kernel counts resident pages.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use linerate_bench_shared::pause;
use linerate_model::protocol::{PROTOCOL, Request};
use rustix::process::{Resource, getrlimit};

use crate::Trouble;
use crate::hosts::{Bench, Hosts};
use crate::line::{Line, Verdict, real};

const FLOWS: u64 = 10_000;
const FLOW_MAX: f64 = 16.0 * 1024.0;
const IDLE_MAX_KIB: u64 = 10 * 1024;
/// How long an agent may take until it waits.
const READY: Duration = Duration::from_secs(10);
/// How long it is left alone before its memory is read.
const ALONE: Duration = Duration::from_millis(300);
/// Where the agent that serves iperf3 listens, in its own host.
const SERVES: &str = "127.0.0.1:5201";

pub(crate) fn run(bench: &Bench, lines: &mut Vec<Line>) -> Result<(), Trouble> {
    let hosts = bench.hosts()?;
    lines.push(many(&hosts)?);
    lines.push(waits_for_a_controller(bench)?);
    lines.push(waits_for_iperf3(bench, &hosts)?);
    Ok(())
}

/// The peak memory of each end so far, KiB.
#[derive(Debug, Clone, Copy, Default)]
struct Peak {
    near: u64,
    far: u64,
}

fn many(hosts: &Hosts<'_>) -> Result<Line, Trouble> {
    let one = peak(hosts, 1)?;
    let what = format!("{FLOWS} flows on one thread pair");
    let limit = "works; 16 KiB of our own memory per flow";
    let most = match peak(hosts, FLOWS) {
        Ok(most) => most,
        Err(Trouble(why)) => {
            let verdict = if enough_files() {
                Verdict::No
            } else {
                Verdict::Undecided
            };
            return Ok(Line::new(what, format!("cannot {why}"), limit, verdict));
        }
    };
    let each = |most: u64, one: u64| real(most.saturating_sub(one)) * 1024.0 / real(FLOWS - 1);
    let (near, far) = (each(most.near, one.near), each(most.far, one.far));
    Ok(Line::new(
        what,
        format!(
            "works; near {near:.0} B and far {far:.0} B a flow (at most {:.1} and {:.1} MiB; {:.1} and {:.1} MiB \
             with one)",
            mib(most.near),
            mib(most.far),
            mib(one.near),
            mib(one.far)
        ),
        limit,
        Verdict::of(near < FLOW_MAX && far < FLOW_MAX),
    ))
}

/// Whether a process here may have as many files open as it takes.
fn enough_files() -> bool {
    let most = getrlimit(Resource::Nofile).maximum;
    most.is_none_or(|most| most > FLOWS + 100)
}

fn mib(kib: u64) -> f64 {
    real(kib) / 1024.0
}

/// A trial of so many flows, all of which must have moved something.
fn peak(hosts: &Hosts<'_>, flows: u64) -> Result<Peak, Trouble> {
    let running = hosts.start(&format!(
        "stream {} --time 3 --flows {flows} --threads 1",
        hosts.peer()
    ))?;
    let (near, far) = running.processes();
    let far = far.ok_or_else(|| Trouble("find the remote end's process".to_owned()))?;
    let mut peak = Peak::default();
    // Each end lives on for a good-bye after its most memory: no peak is missed between two looks.
    let measured = running.finish_beside(|| {
        peak.near = peak.near.max(field(near, "VmHWM").unwrap_or(0));
        peak.far = peak.far.max(field(far, "VmHWM").unwrap_or(0));
    })?;
    let sample = measured.raw;
    let moved = sample
        .remote
        .receivers()
        .filter(|flow| flow.total().as_u64() > 0);
    let (moved, threads) = (moved.count() as u64, sample.remote.threads.len());
    if moved != flows || threads != 1 {
        return Err(Trouble(format!(
            "move anything on {} of {flows} flows ({threads} threads)",
            flows - moved
        )));
    }
    Ok(peak)
}

/// A line of `/proc/PID/status`, KiB.
fn field(pid: u32, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    kib_of(&status, name)
}

fn kib_of(status: &str, name: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// An agent; it ends with the value.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        // It is ours to end and to wait for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Agent {
    fn line(&self, what: &str) -> Result<Line, Trouble> {
        pause(ALONE);
        let read = |name| field(self.0.id(), name);
        let (now, most) = read("VmRSS")
            .zip(read("VmHWM"))
            .ok_or_else(|| Trouble("read the agent's memory".to_owned()))?;
        Ok(Line::new(
            format!("memory of `{what}`, waiting"),
            format!("{:.1} MiB, peak {:.1} MiB", mib(now), mib(most)),
            format!("{:.0} MiB", mib(IDLE_MAX_KIB)),
            Verdict::of(now < IDLE_MAX_KIB),
        ))
    }
}

/// It has greeted its controller, and waits for what it shall do.
fn waits_for_a_controller(bench: &Bench) -> Result<Line, Trouble> {
    let mut command = Command::new(&bench.linerate);
    command
        .args(["agent", "--stdio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    linerate_testbed::tie_to_parent(&mut command);
    let mut agent = start(command)?;
    let hello = Request::Hello {
        protocol: PROTOCOL,
        version: "bench/truth".to_owned(),
    };
    let mut line = serde_json::to_string(&hello)
        .map_err(|error| Trouble(format!("write a greeting: {error}")))?;
    line.push('\n');
    let trouble = |error: std::io::Error| Trouble(format!("greet the agent: {error}"));
    let (Some(input), Some(output)) = (agent.0.stdin.as_mut(), agent.0.stdout.as_mut()) else {
        return Err(Trouble("exchange data with the agent".to_owned()));
    };
    input.write_all(line.as_bytes()).map_err(trouble)?;
    let mut answer = String::new();
    BufReader::new(output)
        .read_line(&mut answer)
        .map_err(trouble)?;
    if !answer.contains("hello") {
        return Err(Trouble(format!("understand the agent: {}", answer.trim())));
    }
    agent.line("agent --stdio")
}

/// It listens.
fn waits_for_iperf3(bench: &Bench, hosts: &Hosts<'_>) -> Result<Line, Trouble> {
    let mut command = Command::new(&bench.linerate);
    command
        .args(["agent", "--iperf3", SERVES])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    hosts
        .near
        .enter_in_child(&mut command)
        .map_err(|error| Trouble(format!("enter a namespace: {error}")))?;
    let agent = start(command)?;
    let until = Instant::now() + READY;
    let file = format!("/proc/{}/net/tcp", agent.0.id());
    // 5201 is 1451 in the kernel's table; 0A is a socket that listens (include/net/tcp_states.h).
    while !fs::read_to_string(&file).is_ok_and(|table| {
        table
            .lines()
            .any(|line| line.contains(":1451 00000000:0000 0A"))
    }) {
        if Instant::now() > until {
            return Err(Trouble(format!("see the agent listen within {READY:?}")));
        }
        pause(Duration::from_millis(5));
    }
    agent.line("agent --iperf3")
}

fn start(mut command: Command) -> Result<Agent, Trouble> {
    let agent = command.spawn();
    agent
        .map(Agent)
        .map_err(|error| Trouble(format!("start an agent: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_status_is_found_by_its_whole_name() {
        let status = "VmHWMx:\t 1 kB\nVmHWM:\t  9876 kB\nVmRSS:\t1234 kB\n";
        assert_eq!(kib_of(status, "VmHWM"), Some(9876));
        assert_eq!(kib_of(status, "VmSwap"), None);
    }
}
