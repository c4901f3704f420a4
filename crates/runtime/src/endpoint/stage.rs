//! Two hosts of one's own on a stage, and steps that run in them: what the demo and the lab have in common.

use std::process::Command;
use std::str::FromStr;

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::ids::NicName;
use linerate_testbed::{Netns, Obstacle, Stage, StageError};
use rustix::process::{Pid, Signal, kill_process};

use crate::console::interrupt::Interrupt;

/// The state of steps that change nothing but the stage's hosts. It is on the stage's own tmpfs: the journals vanish with
/// the hosts that they describe, and a change does not wait for a disk.
pub const STATE: &str = "/run/netns/.state";

/// Two hosts, `near` and `far`, joined by a virtual Ethernet pair.
pub fn hosts(stage: &Stage) -> Outcome<(Netns, Netns)> {
    let near = stage.add_host("near").map_err(|error| stage_stop(&error))?;
    let far = stage.add_host("far").map_err(|error| stage_stop(&error))?;
    let name = |text| NicName::from_str(text).map_err(|e| Stop::new(Code::Bug, e.to_string()));
    let (near_nic, far_nic) = (name("near0")?, name("far0")?);
    linerate_testbed::join(
        (&near, &near_nic, "10.77.0.1/24"),
        (&far, &far_nic, "10.77.0.2/24"),
    )
    .map_err(|error| Stop::io("join the two hosts by a veth pair", error))?;
    Ok((near, far))
}

/// Lets a command start in the namespace of `host`.
pub fn enter(host: &Netns, command: &mut Command) -> Outcome<()> {
    host.enter_in_child(command)
        .map_err(|error| Stop::io(format!("enter the namespace `{}`", host.name()), error))
}

/// Runs a step to its end, passing on an interrupt that reached only this process.
pub fn wait_for(mut command: Command, step: &str, interrupt: &Interrupt) -> Outcome<()> {
    interrupt.check()?;
    let mut child = command
        .spawn()
        .map_err(|error| Stop::io(format!("start the step `{step}`"), error))?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let forward = crate::console::interrupt::Forward::to(pid)?;
    if let (true, Some(pid)) = (interrupt.asked(), pid) {
        // It arrived before there was a process to forward it to.
        let _ = kill_process(pid, Signal::INT);
    }
    let status = child
        .wait()
        .map_err(|error| Stop::io(format!("wait for the step `{step}`"), error))?;
    drop(forward);
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => {
            let known = Code::ALL
                .into_iter()
                .find(|known| i32::from(known.number()) == code);
            Err(Stop::new(
                known.unwrap_or(Code::Bug),
                format!("the step `{step}` stopped"),
            )
            .already_told())
        }
        // A step that is only just beginning dies of an interrupt; it had done nothing yet.
        None if interrupt.asked() => Err(Stop::interrupted()),
        None => Err(Stop::new(
            Code::FailedRestored,
            format!("the step `{step}` was killed"),
        )),
    }
}

/// The error of hosts that cannot be made, with its exit code.
pub fn stage_stop(error: &StageError) -> Stop {
    let code = match error.obstacle() {
        Obstacle::NotSupported | Obstacle::UserNamespacesForbidden => Code::NotSupported,
        Obstacle::Permission => Code::PermissionMissing,
        Obstacle::Failed => Code::FailedRestored,
    };
    Stop::new(code, error.to_string())
}
