//! What one trial of either program gives, and how its processes are run: to their end, never for ever.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

/// The figures of one trial. All bytes are those that the receiving programs got from the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trial {
    /// Bytes received within the common window.
    pub(crate) bytes: u64,
    /// How long the window was, by the receiver's clock.
    pub(crate) seconds: f64,
    /// The rate that the program prints at its end, by its own rule of what to count.
    pub(crate) printed_bit_per_s: f64,
    /// Bytes received from start to end.
    pub(crate) bytes_all: u64,
    /// CPU seconds of both ends while moving bytes, by the program's own account.
    pub(crate) cpu_moving_s: f64,
    /// CPU seconds of all its processes from start to exit, as the kernel charged them to us. (Filled
    /// in by whoever ran them.)
    pub(crate) cpu_command_s: f64,
}

impl Trial {
    /// The rate within the common window.
    #[expect(
        clippy::cast_precision_loss,
        reason = "bytes of seconds, far below 2^53"
    )]
    pub(crate) fn bit_per_s(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.seconds
    }

    /// CPU seconds for each 10^9 bytes, by the program's own account.
    #[expect(
        clippy::cast_precision_loss,
        reason = "bytes of seconds, far below 2^53"
    )]
    pub(crate) fn moving_s_per_gb(&self) -> f64 {
        self.cpu_moving_s / (self.bytes_all as f64 / 1e9)
    }
}

/// Why the comparison cannot go on. Each completes "cannot ...".
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    #[error("find the program `{name}`: it is the Debian package `{package}`")]
    Missing {
        name: &'static str,
        package: &'static str,
    },
    #[error("find linerate at {}: `bench/stream` builds it, `--linerate` names another", path.display())]
    NoLinerate { path: PathBuf },
    #[error("{doing}: {source}")]
    Io {
        doing: String,
        source: std::io::Error,
    },
    #[error("make two hosts in network namespaces: {0}")]
    Stage(#[from] linerate_testbed::StageError),
    #[error("measure with {program}: it ended with {status}\n{said}")]
    Failed {
        program: &'static str,
        status: String,
        said: String,
    },
    #[error("measure with {program}: it did not end within {limit:?}")]
    Overdue {
        program: &'static str,
        limit: Duration,
    },
    #[error("read what {program} printed: {what}")]
    Unreadable { program: &'static str, what: String },
    #[error(
        "make `{name}` the congestion control of both hosts: {source}\nhint: a namespace takes only what \
         `sysctl net.ipv4.tcp_allowed_congestion_control` lists; the choice is not left to iperf3's own \
         option, because it comes after connecting and keeps the pacing of the default"
    )]
    CongestionControl {
        name: String,
        source: std::io::Error,
    },
    #[error("compare: {0}")]
    Statistics(#[from] linerate_stats::StatsError),
    #[error(
        "compare: no case has `{only}` in its name; names are such as `4 flows reverse free auto`"
    )]
    NoCase { only: String },
}

impl BenchError {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}

/// The bytes counted by `time` (seconds), in a straight line between two readings of (seconds, bytes).
///
/// A busy machine delays readings; cutting at whole intervals would compare windows of other lengths.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share, from 0 to 1, of bytes far below 2^53"
)]
pub(crate) fn bytes_by(readings: impl IntoIterator<Item = (f64, u64)>, time: f64) -> u64 {
    let mut before = (0.0, 0);
    for (at, bytes) in readings {
        if at >= time {
            let share = (time - before.0) / (at - before.0).max(f64::MIN_POSITIVE);
            let gained = bytes.saturating_sub(before.1) as f64;
            return before.1 + (gained * share.clamp(0.0, 1.0)) as u64;
        }
        before = (at, bytes);
    }
    before.1
}

/// Starts a program with its output piped. It dies with the calling thread, so call it from the main one.
pub(crate) fn start(command: &mut Command, program: &'static str) -> Result<Child, BenchError> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(BenchError::io(format!("start {program}")))
}

/// Waits for the end of a program and takes what it printed; after `limit` it is killed.
pub(crate) fn finish(
    mut child: Child,
    program: &'static str,
    limit: Duration,
) -> Result<Output, BenchError> {
    let stdout = child.stdout.take().map(reader);
    let stderr = child.stderr.take().map(reader);
    let ended = wait_until(&child, limit)?;
    if !ended {
        // It may have ended just now, which is as good.
        let _ = child.kill();
    }
    let status = child
        .wait()
        .map_err(BenchError::io(format!("wait for {program}")))?;
    let text = |thread: Option<thread::JoinHandle<Vec<u8>>>| {
        thread.and_then(|t| t.join().ok()).unwrap_or_default()
    };
    let output = Output {
        status,
        stdout: text(stdout),
        stderr: text(stderr),
    };
    if !ended {
        return Err(BenchError::Overdue { program, limit });
    }
    Ok(output)
}

/// What a program printed, or, when it failed, why in its own words.
pub(crate) fn successful(output: Output, program: &'static str) -> Result<Vec<u8>, BenchError> {
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = [output.stderr, output.stdout]
        .iter()
        .map(|text| String::from_utf8_lossy(text).trim().to_owned())
        .collect::<Vec<_>>()
        .join("\n");
    Err(BenchError::Failed {
        program,
        status: output.status.to_string(),
        said,
    })
}

fn reader(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut text = Vec::new();
        // A broken pipe ends the text where it broke; whoever parses it notices.
        let _ = pipe.read_to_end(&mut text);
        text
    })
}

/// Waits for the end of a child, at most `limit`; whether it ended.
pub(crate) fn wait_until(child: &Child, limit: Duration) -> Result<bool, BenchError> {
    let failed = |errno: Errno| BenchError::io("watch a process")(errno.into());
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| failed(Errno::INVAL))?;
    let watched = pidfd_open(pid, PidfdFlags::empty()).map_err(failed)?;
    let until = Instant::now() + limit;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&watched, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
}

/// CPU seconds of all our children that were waited for, and of theirs: `cutime` and `cstime`, fields
/// 16 and 17 of /proc/self/stat (proc_pid_stat(5)).
pub(crate) fn children_cpu_s() -> Result<f64, BenchError> {
    let path = "/proc/self/stat";
    let text = fs::read_to_string(path).map_err(BenchError::io(format!("read {path}")))?;
    let ticks = children_ticks(&text).ok_or_else(|| BenchError::Unreadable {
        program: "the kernel",
        what: format!("{path} has no fields 16 and 17"),
    })?;
    #[expect(clippy::cast_precision_loss, reason = "hundreds of ticks a second")]
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn children_ticks(stat: &str) -> Option<u64> {
    // The second field is the program's name in brackets and may hold anything, also brackets.
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(13);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_childrens_time_is_found_behind_any_name() {
        let stat = "42 (a) b) S 1 42 42 0 -1 4194304 100 200 0 0 5 6 70 80 20 0 1 0 9";
        assert_eq!(children_ticks(stat), Some(150));
        assert_eq!(children_ticks("42 (short) S 1"), None);
    }

    #[test]
    fn between_two_readings_the_count_rises_in_a_straight_line() {
        let readings = [(0.5, 1000), (1.0, 2000), (2.0, 4000)];
        for (time, bytes) in [
            (0.25, 500),
            (0.5, 1000),
            (1.5, 3000),
            (2.0, 4000),
            (9.0, 4000),
        ] {
            assert_eq!(bytes_by(readings, time), bytes, "by {time} s");
        }
        assert_eq!(bytes_by([], 1.0), 0);
    }

    #[test]
    fn a_program_that_does_not_end_is_killed_and_named() {
        let mut command = Command::new("cat");
        let mut child = command
            .stdin(Stdio::piped())
            .spawn()
            .expect("cat is everywhere");
        let _held_open = child.stdin.take();
        let result = finish(child, "cat", Duration::from_millis(1));
        assert!(
            matches!(result, Err(BenchError::Overdue { program: "cat", .. })),
            "{result:?}"
        );
    }

    #[test]
    fn a_failing_program_is_quoted() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo why >&2; exit 3"]);
        let child = start(&mut command, "sh").expect("sh is everywhere");
        let output = finish(child, "sh", Duration::from_secs(60)).expect("it ends");
        let error = successful(output, "sh").expect_err("it failed").to_string();
        assert!(
            error.contains("exit status: 3") && error.contains("why"),
            "{error}"
        );
    }
}
