//! An injected stall of the remote end (SIGSTOP, SIGCONT): the open loop must show every operation that had to
//! wait for it, the closed loop shows one operation on each connection, however long it lasted.

use std::time::{Duration, Instant};

use linerate_bench_shared::pause;
use linerate_model::latency::Histogram;
use rustix::process::{Pid, Signal, kill_process};

use crate::Trouble;
use crate::hosts::{Bench, Hosts, Measured};
use crate::line::{Line, Verdict, real};

const STALL: Duration = Duration::from_millis(100);
/// An operation that took longer was late: half the stall.
const LATE_SHARE: f64 = 0.5;
/// Operations a second of the open loop.
const RATE: u64 = 1_000;
/// When the remote end is stopped, after the trial is announced.
const AFTER: Duration = Duration::from_millis(1_200);

pub(crate) fn run(bench: &Bench, lines: &mut Vec<Line>) -> Result<(), Trouble> {
    let hosts = bench.hosts()?;
    for (workload, flows) in [("rr", 1), ("http", 4)] {
        let words = format!("{workload} {} --flows {flows} --time 3", hosts.peer());
        let open = stalled(&hosts, &format!("{words} --rate {RATE}"))?;
        lines.push(open_line(workload, &open)?);
        let closed = stalled(&hosts, &words)?;
        lines.push(closed_line(workload, flows, &closed)?);
    }
    Ok(())
}

/// A trial whose remote end stood still for a while.
struct Stalled {
    stood: Duration,
    measured: Measured,
}

fn stalled(hosts: &Hosts<'_>, words: &str) -> Result<Stalled, Trouble> {
    let running = hosts.start(words)?;
    let (_, far) = running.processes();
    let far = far.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let far = far.ok_or_else(|| Trouble("find the remote end's process".to_owned()))?;
    pause(AFTER);
    let send = |signal| {
        kill_process(far, signal).map_err(|error| Trouble(format!("stop the remote end: {error}")))
    };
    send(Signal::STOP)?;
    let begun = Instant::now();
    pause(STALL);
    send(Signal::CONT)?;
    let stood = begun.elapsed();
    Ok(Stalled {
        stood,
        measured: running.finish()?,
    })
}

/// How many took longer than the limit of being late.
fn late(times: &Histogram, stood: Duration) -> u64 {
    let limit = stood.mul_f64(LATE_SHARE).as_nanos();
    let late = times.filled().filter(|(ns, _)| u128::from(*ns) > limit);
    late.map(|(_, count)| count).sum()
}

fn open_line(workload: &str, trial: &Stalled) -> Result<Line, Trouble> {
    let operations = trial.measured.raw.local.operations.as_ref();
    let operations = operations.ok_or_else(|| Trouble("find operations".to_owned()))?;
    let latency = trial.measured.latency_ns.as_ref();
    let latency = latency.ok_or_else(|| Trouble("find latencies in the result".to_owned()))?;
    let stood = trial.stood.as_secs_f64();
    let shown = late(&operations.latency, trial.stood);
    let service = operations.service.as_ref();
    let service = service.map_or(0, |times| late(times, trial.stood));
    // What was due in the first half of the stall waited for more than half of it.
    let due = real(RATE) * stood * (1.0 - LATE_SHARE);
    let top = real(operations.latency.count()) * 0.01;
    // Of the late ones the last hundredth of all is above p99; they are spread evenly over the stall.
    let p99_least = (stood * (1.0 - top / (real(RATE) * stood)) * 0.9).max(0.0);
    let holds = real(shown) >= 0.9 * due - 1.0
        && latency.max >= 0.95 * stood * 1e9
        && latency.p99 >= p99_least * 1e9;
    // More than were due: something else stalled, too.
    let disturbed = real(shown) > 1.5 * due + 5.0;
    let verdict = match (holds, disturbed) {
        (true, false) => Verdict::Yes,
        (true, true) => Verdict::Undecided,
        (false, _) => Verdict::No,
    };
    Ok(Line::new(
        format!(
            "{workload}, open loop, remote end stopped for {:.0} ms",
            stood * 1e3
        ),
        format!(
            "{shown} of {} late, {due:.0} were due in its first half; p99 {:.1} ms, most {:.1} ms; by when they \
             were really sent {service} would be late",
            operations.latency.count(),
            latency.p99 / 1e6,
            latency.max / 1e6
        ),
        format!(
            "90 % of those due, p99 from {:.1} ms, most from {:.1} ms",
            p99_least * 1e3,
            0.95 * stood * 1e3
        ),
        verdict,
    ))
}

fn closed_line(workload: &str, flows: u64, trial: &Stalled) -> Result<Line, Trouble> {
    let operations = trial.measured.raw.local.operations.as_ref();
    let operations = operations.ok_or_else(|| Trouble("find operations".to_owned()))?;
    let latency = trial.measured.latency_ns.as_ref();
    let latency = latency.ok_or_else(|| Trouble("find latencies in the result".to_owned()))?;
    let shown = late(&operations.latency, trial.stood);
    let verdict = match shown.cmp(&flows) {
        std::cmp::Ordering::Equal => Verdict::Yes,
        // The machine stalled by itself, too.
        std::cmp::Ordering::Greater => Verdict::Undecided,
        std::cmp::Ordering::Less => Verdict::No,
    };
    Ok(Line::new(
        format!(
            "{workload}, closed loop, remote end stopped for {:.0} ms",
            trial.stood.as_secs_f64() * 1e3
        ),
        format!(
            "{shown} of {} late; p99 {:.2} ms, most {:.1} ms",
            operations.latency.count(),
            latency.p99 / 1e6,
            latency.max / 1e6
        ),
        format!("{flows}, one on each connection"),
        verdict,
    ))
}
