//! A fallback timer for the reverter: where systemd is PID 1, a transient timer runs `linerate tune recover`
//! shortly after the deadline, in case maker and reverter are killed at once ([decision 21](../../../docs/decisions/0021-a-timer-of-systemd-beside-the-reverter.md)).
//!
//! It does not roll back anything itself. The recovery is the one that every linerate starts with: it leaves
//! alone what a living process works on or has committed, waits for a reverter that is at work, and does nothing if
//! that one did its work. So a timer that fires when nothing is left to do is harmless.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf, absolute};
use std::process::{Command, Stdio};
use std::time::Duration;

use linerate_host::apply::Boottime;
use linerate_host::trust::{Trust, find_program};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// There when systemd is the first process (sd_booted(3)).
const BOOTED: &str = "/run/systemd/system";
/// How much later than maker and reverter it acts: they have done their work then, or never will.
pub(super) const LATER: Duration = Duration::from_secs(30);
/// How long systemd may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A timer that is set. Dropped, it is taken away.
#[derive(Debug)]
pub(super) struct FallbackTimer {
    unit: String,
}

impl FallbackTimer {
    /// Schedules a recovery of the journals below `state` shortly after `deadline`. The error is the reason that follows
    /// "no systemd timer:".
    pub(super) fn fasten(state: &Path, deadline: Boottime) -> Result<Self, String> {
        if !Path::new(BOOTED).is_dir() {
            return Err("systemd is not running".to_owned());
        }
        if !rustix::process::geteuid().is_root() {
            return Err("only for changes by root".to_owned());
        }
        let program = fs::read_link("/proc/self/exe").map_err(|error| error.to_string())?;
        let state = absolute(state).map_err(|error| error.to_string())?;
        is_seen_by_systemd(&program, Path::new("/proc/self/exe"))?;
        check(&program, &Trust::for_later(0))?;
        let there = state.ancestors().find(|folder| folder.exists());
        let there = there.unwrap_or(Path::new("/"));
        is_seen_by_systemd(there, there)?;
        let after = deadline.remaining().saturating_add(LATER).as_secs();
        let moment = Boottime::now().since_boot().as_nanos();
        let unit = format!("linerate-recover-{}-{moment}", std::process::id());
        let mut command = Command::new(found("systemd-run")?);
        command
            .args(["--quiet", "--no-ask-password", "--collect"])
            .args(["--unit", &unit])
            .arg(format!("--on-active={after}s"))
            .args([
                "--timer-property=AccuracySec=1s",
                "--description=linerate: roll back unconfirmed changes",
            ])
            .arg("--")
            .arg(&program)
            .arg("--state")
            .arg(&state)
            .args(["tune", "recover"]);
        run(&mut command).map_err(|why| format!("systemd-run: {why}"))?;
        Ok(Self { unit })
    }

    /// The timer's name.
    pub(super) fn unit(&self) -> &str {
        &self.unit
    }

    /// Lets it do its work: a reverter is left that does not end.
    pub(super) fn leave(self) {
        std::mem::forget(self);
    }
}

impl Drop for FallbackTimer {
    fn drop(&mut self) {
        // A remaining one runs a recovery that finds nothing to do.
        let Ok(program) = found("systemctl") else {
            return;
        };
        let _ = run(Command::new(program)
            .args(["stop", "--quiet", "--no-ask-password"])
            .arg(format!("{}.timer", self.unit)));
    }
}

/// Whether root can run this program later: anyone who can replace it meanwhile would decide what runs.
fn check(program: &Path, trust: &Trust) -> Result<(), String> {
    let trusted = trust.follow_program(program).map(drop);
    trusted.map_err(|error| format!("{error}; install linerate below /usr/local"))
}

fn found(program: &str) -> Result<PathBuf, String> {
    find_program(program, "").map_err(|error| format!("{program}: {error}"))
}

/// Whether `path` is to the first process the same file that `ours` is here: it may have another root.
fn is_seen_by_systemd(path: &Path, ours: &Path) -> Result<(), String> {
    let theirs = PathBuf::from(format!("/proc/1/root{}", path.display()));
    let same = match (fs::metadata(&theirs), fs::metadata(ours)) {
        (Ok(theirs), Ok(ours)) => (theirs.dev(), theirs.ino()) == (ours.dev(), ours.ino()),
        _ => false,
    };
    if same {
        Ok(())
    } else {
        Err(format!("systemd sees a different {}", path.display()))
    }
}

/// Runs a program to its end, which must come within [`PATIENCE`] and be a success.
fn run(command: &mut Command) -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let ends = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let limit = Timespec::try_from(PATIENCE).ok();
    let is_over = ends.is_some_and(|ends| {
        let mut ready = [PollFd::new(&ends, PollFlags::IN)];
        loop {
            match poll(&mut ready, limit.as_ref()) {
                Err(rustix::io::Errno::INTR) => {}
                polled => break polled == Ok(1),
            }
        }
    });
    if !is_over {
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!("no answer within {} s", PATIENCE.as_secs()));
    }
    let status = child.wait().map_err(failed)?;
    if status.success() {
        return Ok(());
    }
    let mut said = String::new();
    if let Some(mut err) = child.stderr.take() {
        let _ = err.read_to_string(&mut said);
    }
    Err(format!("{status}: {}", said.trim()))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_timer_runs_no_program_that_another_user_may_replace() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("linerate");
        fs::write(&program, "").expect("written");
        let trust = Trust::of_this_process().expect("/");
        for (mode, is_trusted) in [(0o755, true), (0o757, false), (0o777, false)] {
            fs::set_permissions(&program, Permissions::from_mode(mode)).expect("our own");
            let checked = check(&program, &trust);
            assert_eq!(checked.is_ok(), is_trusted, "{checked:?}");
            assert!(checked.err().is_none_or(|why| why.contains("/usr/local")));
        }
        // A sticky folder is none to run something from later.
        fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("our own");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).expect("our own");
        assert!(check(&program, &trust).is_ok());
        assert!(check(&program, &Trust::for_later(0)).is_err());
    }
}
