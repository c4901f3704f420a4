//! `linerate tune hold`: settings for as long as a command runs, such as a measurement by any program. They are never
//! committed: however this process ends, the reverter rolls them back, and the kernel what a descriptor holds.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;
use std::{io, thread};

use linerate_host::hold::LatencyLimit;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::finding::Profile;
use linerate_runtime::cli::HoldArgs;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::say::Say;
use linerate_runtime::endpoint::local::LocalEndpoint;
use linerate_runtime::endpoint::recover::recover_first;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use crate::prove::intent::Intent;

/// A shell's exit code of a command that a signal ended is the signal's number on top of this.
const SIGNALLED: u8 = 128;
/// How long a wait lasts that nothing but Ctrl-C ends, before it begins again.
const A_WHILE: Duration = Duration::from_secs(3_600);

/// Applies the requested changes, runs the command or waits, and rolls everything back. Returns the exit code.
pub(crate) fn run(args: &HoldArgs, state: &Path, say: &Say) -> Outcome<u8> {
    recover_first(state, say)?;
    let mut endpoint = LocalEndpoint::open(state)?;
    let (intent, limit_us) = asked(args, &endpoint)?;
    let plan = intent.plan()?;
    let interrupt = Interrupt::listen()?;
    endpoint.disturb_way_in(args.allow_management_disruption);
    for line in intent.without.iter().cloned().chain(intent.lines()) {
        say.note(&line);
    }
    let limit = limit_us.map(LatencyLimit::hold).transpose();
    let limit = match limit {
        Ok(limit) => limit,
        Err(error) if args.from.is_none() => {
            say.note(&format!(
                "C-states are not limited: cannot hold /dev/cpu_dma_latency: {error}"
            ));
            None
        }
        Err(error) => return Err(Stop::io("hold /dev/cpu_dma_latency", error)),
    };
    if limit.is_some() {
        let limit = limit_us.unwrap_or_default();
        say.note(&format!("cpu/max-latency-us: {limit} while this runs"));
    }
    if plan.changes.is_empty() && limit.is_none() {
        say.note("nothing to hold: every setting already has its value or is not available here");
    } else if !plan.changes.is_empty() {
        endpoint.apply(&plan)?;
    }
    let ended = until_it_ends(&args.command, &interrupt, say);
    drop(limit);
    endpoint.undo()?;
    say.note("all held settings were restored");
    ended
}

/// What is to be held: settings, and the longest wake-up of the CPUs in microseconds.
fn asked(args: &HoldArgs, endpoint: &LocalEndpoint) -> Outcome<(Intent, Option<u32>)> {
    let Some(file) = &args.from else {
        if args.role != Profile::Measurement {
            let why =
                "only `--role measurement` can be held; list other settings in a file (`--from`)";
            return Err(Stop::new(Code::Usage, why).hint("pass it with `--from`"));
        }
        return Ok((Intent::steady(endpoint)?, Some(0)));
    };
    Intent::held(file, args.nic.as_ref(), endpoint)
}

/// Runs the command to its end, which receives Ctrl-C by itself; without one, waits for Ctrl-C.
fn until_it_ends(command: &[String], interrupt: &Interrupt, say: &Say) -> Outcome<u8> {
    let Some((program, arguments)) = command.split_first() else {
        say.note("settings held until Ctrl-C or SIGTERM");
        while !interrupt.comes_within(A_WHILE) {}
        return Ok(Code::Done.number());
    };
    interrupt.check()?;
    // Before there is a child to forward them to: none is missed.
    let signals = Signals::new([SIGTERM, SIGHUP]);
    let signals = signals.map_err(|error| Stop::io("listen for signals", error))?;
    let child = Command::new(program).args(arguments).spawn();
    let mut child = child.map_err(|error| {
        let why = format!("cannot run {program}");
        let code = if error.kind() == io::ErrorKind::NotFound {
            Code::BadInput
        } else {
            Code::PermissionMissing
        };
        Stop::new(code, why).because(error).rolled_back()
    })?;
    let passed_on = PassedOn::to(child.id(), signals)?;
    let ended = child.wait();
    drop(passed_on);
    let ended = ended.map_err(|error| Stop::io(format!("wait for {program}"), error))?;
    Ok(code_of(ended))
}

/// Hands SIGTERM and SIGHUP on to a command: unlike Ctrl-C of a terminal, they reach this process alone.
struct PassedOn {
    handle: Handle,
}

impl PassedOn {
    fn to(child: u32, mut signals: Signals) -> Outcome<Self> {
        let failed = |error| Stop::io("pass signals on", error);
        let child = i32::try_from(child).ok().and_then(Pid::from_raw);
        let child = child.ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?;
        let child = pidfd_open(child, PidfdFlags::empty()).map_err(|error| failed(error.into()))?;
        let handle = signals.handle();
        let pass = move || {
            for signal in signals.forever() {
                let signal = if signal == SIGHUP {
                    Signal::HUP
                } else {
                    Signal::TERM
                };
                // One that has ended needs none.
                let _ = pidfd_send_signal(&child, signal);
            }
        };
        let named = thread::Builder::new().name("signals".to_owned());
        named.spawn(pass).map_err(failed)?;
        Ok(Self { handle })
    }
}

impl Drop for PassedOn {
    fn drop(&mut self) {
        self.handle.close();
    }
}

/// The exit code that a shell would give.
fn code_of(ended: ExitStatus) -> u8 {
    let signal = || ended.signal().and_then(|signal| u8::try_from(signal).ok());
    let code = ended.code().and_then(|code| u8::try_from(code).ok());
    code.or_else(|| Some(SIGNALLED.saturating_add(signal()?)))
        .unwrap_or(Code::FailedRestored.number())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_the_commands_as_a_shell_gives_it() {
        let run = |script: &str| {
            let ended = Command::new("sh").args(["-c", script]).status();
            code_of(ended.expect("a shell"))
        };
        assert_eq!(run("exit 0"), 0);
        assert_eq!(run("exit 7"), 7);
        assert_eq!(run("kill -TERM $$"), 143);
    }
}
