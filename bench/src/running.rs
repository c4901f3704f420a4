//! A program that runs: whether it listens, when it ends, what the machine's CPUs worked for it.

use std::fs;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The end of what was printed, for a message.
pub fn tail(text: &str) -> &str {
    let text = text.trim();
    let start = text.len().saturating_sub(200);
    text.get(start..).unwrap_or(text)
}

/// Whether a socket listens on `port`: state 0A in /proc/net/tcp (include/net/tcp_states.h).
pub fn has_listener(table: &str, port: u16) -> bool {
    let ending = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let local = fields.next().unwrap_or_default();
        local.ends_with(&ending) && fields.nth(1) == Some("0A")
    })
}

/// Waits for the end of a child, at most `limit`; whether it ended.
pub fn wait(child: &Child, limit: Duration) -> bool {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let Some(watched) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        return true;
    };
    let until = Instant::now() + limit;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let Ok(left) = Timespec::try_from(left) else {
            return false;
        };
        match poll(&mut [PollFd::new(&watched, PollFlags::IN)], Some(&left)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(_) if Instant::now() >= until => return false,
            Err(_) => {}
        }
    }
}

/// Seconds that the machine's CPUs worked: user, nice, system, irq, softirq of /proc/stat. What others do on
/// the machine counts too, so this wants a quiet one.
pub fn busy_seconds() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    busy_ticks(&text).map(|ticks| ticks / 100.0)
}

fn busy_ticks(stat: &str) -> Option<f64> {
    let line = stat.lines().find(|line| line.starts_with("cpu "))?;
    let fields: Vec<f64> = line
        .split_ascii_whitespace()
        .skip(1)
        .filter_map(|field| field.parse().ok())
        .collect();
    let at = |index: usize| fields.get(index).copied();
    Some(at(0)? + at(1)? + at(2)? + at(5)? + at(6)?)
}

/// Whether a program can be started by that name.
pub fn is_on_path(program: &str) -> bool {
    if program.contains('/') {
        return PathBuf::from(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// The kernel's release.
pub fn kernel() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_told_from_a_connection() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue\n";
        let line = |state: &str| format!("{head}   0: 02004E0A:1451 00000000:0000 {state} 0:0\n");
        assert!(has_listener(&line("0A"), 5201));
        assert!(!has_listener(&line("01"), 5201) && !has_listener(&line("0A"), 5202));
    }

    #[test]
    fn idle_waiting_and_stolen_time_is_not_busy() {
        let stat = "cpu  1 2 4 800 1600 8 16 3200 0 0\ncpu0 9 9 9 9 9 9 9 9 0 0\n";
        assert_eq!(busy_ticks(stat), Some(31.0));
    }
}
