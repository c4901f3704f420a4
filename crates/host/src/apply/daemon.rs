//! irqbalance as a setting: whether it is stopped, so that interrupts stay where they are. A stopped process does
//! nothing and loses nothing; what it is told meanwhile it hears when it goes on.
//!
//! State and signals: proc_pid_stat(5), kill(2). A process is held by its descriptor (pidfd_open(2)) between the
//! look at its name and the signal, so that no other gets it.

use std::io;
use std::time::{Duration, Instant};

use linerate_model::known::{Cause, Known};
use linerate_model::setting::Value;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::identity::ProcessStat;
use crate::procfs::owners::process_ids;
use crate::root::HostRoot;

const IRQBALANCE: &str = "irqbalance";
/// A process that runs hears a signal at its next chance, a sleeping one at once.
const HEARS_WITHIN: Duration = Duration::from_secs(2);

/// Whether every irqbalance is stopped.
pub(super) fn is_paused(root: &HostRoot) -> Known<Value> {
    let stopped: Vec<bool> = processes(root)
        .into_iter()
        .map(|(_, stopped)| stopped)
        .collect();
    if stopped.is_empty() {
        return Known::unknown(Cause::Absent, "/proc/*/comm", "no irqbalance runs");
    }
    Known::Value(Value::Switch(stopped.iter().all(|stopped| *stopped)))
}

/// Stops every irqbalance, or lets it go on.
pub(super) fn pause(root: &HostRoot, paused: bool) -> io::Result<()> {
    let signal = if paused { Signal::STOP } else { Signal::CONT };
    let all = processes(root);
    if all.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "no irqbalance runs",
        ));
    }
    for (pid, _) in all {
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let process = process.ok_or(io::ErrorKind::InvalidData)?;
        let held = pidfd_open(process, PidfdFlags::empty())?;
        if state_of(root, pid).is_some() {
            pidfd_send_signal(&held, signal)?;
        }
    }
    let until = Instant::now() + HEARS_WITHIN;
    while processes(root)
        .iter()
        .any(|(_, stopped)| *stopped != paused)
    {
        if Instant::now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// The processes of irqbalance, and whether each is stopped.
fn processes(root: &HostRoot) -> Vec<(u32, bool)> {
    let names = root.list("proc");
    let pids = names.value().map(|names| process_ids(names));
    let pids = pids.into_iter().flatten();
    pids.filter_map(|pid| Some((pid, state_of(root, pid)?)))
        .collect()
}

/// Whether a process is stopped; `None` of one that is no irqbalance or has ended.
fn state_of(root: &HostRoot, pid: u32) -> Option<bool> {
    let stat = root.read(&format!("proc/{pid}/stat"));
    let stat = ProcessStat::parse(stat.value()?)?;
    (stat.name == IRQBALANCE && !matches!(stat.state, 'Z' | 'X'))
        .then_some(matches!(stat.state, 'T' | 't'))
}
