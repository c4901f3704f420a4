//! Daemons that outlive the process that starts them, and how a later one finds and ends exactly these. Sources: setsid(2),
//! proc_pid_stat(5), pidfd_open(2).

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::error::RedundantError;
use super::frr;
use super::plan::Daemon;
use crate::netns::Netns;
use crate::sys::{self, Cover};

/// How long a daemon may take to accept requests.
const LISTENS_MAX: Duration = Duration::from_secs(20);
/// How long it may take to end on SIGTERM: keepalived withdraws its addresses first, for about a second.
const ENDS_MAX: Duration = Duration::from_secs(5);
/// The time between two looks at a file that appears without an event of the daemon.
const PAUSE: Duration = Duration::from_millis(10);

/// A process: its number may be used again, with its start time it is unique within a boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// In clock ticks since boot.
    start: u64,
    session: u32,
    /// It exited, and its parent has not waited for it.
    is_zombie: bool,
}

impl Process {
    /// Parses `/proc/PID/stat`: the name in parentheses may contain anything.
    fn parse(stat: &str) -> Option<Self> {
        let (pid, rest) = stat.split_once(" (")?;
        let (_, rest) = rest.rsplit_once(") ")?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?;
        Some(Self {
            pid: pid.parse().ok()?,
            is_zombie: matches!(state, "Z" | "X"),
            // Field 6; the state was 3.
            session: fields.nth(2)?.parse().ok()?,
            // Field 22.
            start: fields.nth(15)?.parse().ok()?,
        })
    }

    fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn is_running(self) -> bool {
        Self::read(self.pid).is_some_and(|now| now.start == self.start && !now.is_zombie)
    }

    /// A descriptor of it, if it runs.
    fn open(self) -> Option<OwnedFd> {
        let pid = Pid::from_raw(i32::try_from(self.pid).ok()?)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // The number may have been used again before it was opened, but not after.
        self.is_running().then_some(pidfd)
    }
}

/// The recorded process of a daemon, whether it runs or not.
fn recorded(folder: &Path, daemon: &Daemon) -> Option<Process> {
    Process::parse(&fs::read_to_string(folder.join(daemon.identity())).ok()?)
}

/// The process of a daemon that runs.
pub(super) fn running(folder: &Path, daemon: &Daemon) -> Option<u32> {
    let process = recorded(folder, daemon)?;
    process.is_running().then_some(process.pid)
}

/// Starts a daemon in its namespace, unless it runs, and waits until it accepts requests.
pub(super) fn start(
    folder: &Path,
    daemon: &Daemon,
    netns: &Netns,
    interrupted: &dyn Fn() -> bool,
) -> Result<Option<Child>, RedundantError> {
    if running(folder, daemon).is_some() {
        return Ok(None);
    }
    // What a killed predecessor left: files by which a daemon would think that it runs already, and processes.
    let old: Vec<Process> = recorded(folder, daemon).into_iter().collect();
    end(&old, Signal::KILL)?;
    let home = folder.join(daemon.node);
    for name in daemon.listens.iter().chain(pid_files(daemon)) {
        match fs::remove_file(home.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(RedundantError::doing(format!(
                    "remove {}",
                    home.join(name).display()
                ))(error));
            }
            _ => {}
        }
    }
    let failed = || RedundantError::doing(format!("start {}", daemon.name()));
    let mut command = daemon.program.command()?;
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join(daemon.log()))
        .map_err(failed())?;
    let identity = File::create(folder.join(daemon.identity())).map_err(failed())?;
    command
        .args(&daemon.arguments)
        .envs(daemon.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(failed())?)
        .stderr(log);
    let netns = netns.as_fd().try_clone_to_owned().map_err(failed())?;
    sys::daemonize(&mut command, netns, covers(&home, daemon)?, identity.into());
    let mut child = command.spawn().map_err(failed())?;
    wait_until_it_listens(folder, daemon, &mut child, interrupted)?;
    Ok(Some(child))
}

fn pid_files(daemon: &Daemon) -> &'static [&'static str] {
    match daemon.program.name {
        "keepalived" => &["keepalived.pid", "vrrp.pid"],
        _ => &[],
    }
}

/// FRR's own user must be able to use the folder, and writes what it reports of a crash below `/var/tmp`.
fn covers(home: &Path, daemon: &Daemon) -> Result<Vec<Cover>, RedundantError> {
    let Some(target) = daemon.covers else {
        return Ok(Vec::new());
    };
    debug_assert_eq!(target, frr::HOME);
    let failed = |what: &Path| RedundantError::doing(format!("use the folder {}", what.display()));
    let owner = fs::metadata(target).map_err(failed(Path::new(target)))?;
    let own = |path: &Path| chown(path, Some(owner.uid()), Some(owner.gid()));
    own(home).map_err(failed(home))?;
    for entry in fs::read_dir(home).map_err(failed(home))?.flatten() {
        if entry.path().extension().is_some_and(|end| end == "conf") {
            own(&entry.path()).map_err(failed(&entry.path()))?;
        }
    }
    let c_path = |path: &Path| {
        CString::new(path.as_os_str().as_bytes())
            .map_err(|error| failed(path)(io::Error::other(error)))
    };
    Ok(vec![
        Cover {
            source: Some(c_path(home)?),
            target: c_path(Path::new(target))?,
        },
        Cover {
            source: None,
            target: c_path(Path::new("/var/tmp"))?,
        },
    ])
}

fn wait_until_it_listens(
    folder: &Path,
    daemon: &Daemon,
    child: &mut Child,
    interrupted: &dyn Fn() -> bool,
) -> Result<(), RedundantError> {
    let begun = Instant::now();
    loop {
        check_alive(folder, daemon, child)?;
        let is_there = |name: &str| folder.join(daemon.node).join(name).exists();
        if daemon.listens.is_none_or(is_there) {
            return Ok(());
        }
        if interrupted() {
            return Err(RedundantError::Interrupted);
        }
        if begun.elapsed() > LISTENS_MAX {
            return Err(RedundantError::NotReady {
                what: format!("{} accepts no requests", daemon.name()),
                limit: LISTENS_MAX,
                output: outputs(folder, [daemon]),
            });
        }
        pause(child);
    }
}

/// Waits a moment, or until the daemon ends.
fn pause(child: &Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(pidfd) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) {
        ends_within(&pidfd, PAUSE);
    }
}

/// Refuses a daemon that has ended.
pub(super) fn check_alive(
    folder: &Path,
    daemon: &Daemon,
    child: &mut Child,
) -> Result<(), RedundantError> {
    let ended = child.try_wait();
    let ended = ended.map_err(RedundantError::doing(format!("watch {}", daemon.name())))?;
    ended.map_or(Ok(()), |how| {
        Err(RedundantError::DaemonEnded {
            daemon: daemon.name(),
            how: how.to_string(),
            output: last_lines(&folder.join(daemon.log()), 5),
        })
    })
}

/// The last lines of each daemon's output, for an error.
pub(super) fn outputs<'a>(folder: &Path, daemons: impl IntoIterator<Item = &'a Daemon>) -> String {
    let each = daemons.into_iter().map(|daemon| {
        let lines = last_lines(&folder.join(daemon.log()), 3);
        format!("\n  {}: {lines}", daemon.name())
    });
    each.collect()
}

fn last_lines(log: &Path, count: usize) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    if lines.is_empty() {
        return "no output".to_owned();
    }
    lines[lines.len().saturating_sub(count)..].join(" | ")
}

/// Ends daemons with `signal`, then with SIGKILL, and with them the processes that they started: these are in the session
/// of their daemon. Returns how many daemons ran.
pub(super) fn stop<'a>(
    folder: &Path,
    daemons: impl IntoIterator<Item = &'a Daemon>,
    is_kill: bool,
) -> Result<usize, RedundantError> {
    let processes: Vec<Process> = daemons
        .into_iter()
        .filter_map(|daemon| recorded(folder, daemon))
        .collect();
    let ran = processes.iter().filter(|one| one.is_running()).count();
    let signal = if is_kill { Signal::KILL } else { Signal::TERM };
    end(&processes, signal)?;
    Ok(ran)
}

fn end(leaders: &[Process], signal: Signal) -> Result<(), RedundantError> {
    let begun = Instant::now();
    let send = |processes: &[Process], signal| {
        let running = processes.iter().filter_map(|process| process.open());
        let running: Vec<OwnedFd> = running.collect();
        for pidfd in &running {
            // It may have ended in the meantime.
            let _ = pidfd_send_signal(pidfd, signal);
        }
        running
    };
    let first = if signal == Signal::KILL {
        // All at once: a daemon must not see the end of its helper.
        members(leaders)
    } else {
        leaders.to_vec()
    };
    for pidfd in send(&first, signal) {
        ends_within(&pidfd, ENDS_MAX.saturating_sub(begun.elapsed()));
    }
    let mut left = members(leaders);
    while !left.is_empty() {
        for pidfd in send(&left, Signal::KILL) {
            if !ends_within(&pidfd, ENDS_MAX) {
                let stuck = io::Error::from(io::ErrorKind::TimedOut);
                return Err(RedundantError::doing(format!(
                    "end the process {}",
                    left[0].pid
                ))(stuck));
            }
        }
        left = members(leaders);
    }
    Ok(())
}

/// The processes of the sessions of `leaders` that run, themselves too. The number of a session is not used again while
/// it has a process; one that was used again began earlier than no member of it.
fn members(leaders: &[Process]) -> Vec<Process> {
    if leaders.is_empty() {
        return Vec::new();
    }
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let belongs = |process: &Process| {
        let leader = leaders.iter().find(|one| one.pid == process.session);
        !process.is_zombie
            && leader.is_some_and(|leader| {
                let now = Process::read(leader.pid);
                // Either the leader is alive, or nobody has its number.
                now.is_none_or(|now| now.start == leader.start) && process.start >= leader.start
            })
    };
    pids.filter_map(Process::read).filter(belongs).collect()
}

fn ends_within(pidfd: &OwnedFd, time: Duration) -> bool {
    let Ok(limit) = Timespec::try_from(time) else {
        return false;
    };
    let mut wait = [PollFd::new(pidfd, PollFlags::IN)];
    poll(&mut wait, Some(&limit)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "42 (a) b (c) S 1 42 40 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1000 2";
        let process = Process::parse(stat).expect("as the kernel writes it");
        assert_eq!(
            (
                process.pid,
                process.session,
                process.start,
                process.is_zombie
            ),
            (42, 40, 98_765, false)
        );
        assert_eq!(Process::parse("42 (a"), None);
        assert_eq!(Process::parse(""), None);
    }

    #[test]
    fn this_process_runs_and_one_with_its_number_that_started_earlier_does_not() {
        let own = Process::read(std::process::id()).expect("it runs");
        assert!(own.is_running());
        let earlier = Process {
            start: own.start - 1,
            ..own
        };
        assert!(!earlier.is_running());
        assert!(earlier.open().is_none());
        assert_eq!(members(&[earlier]), []);
    }
}
