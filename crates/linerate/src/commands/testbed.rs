//! `linerate testbed`: hardware that this machine lacks, in software.

use std::path::Path as FilePath;

use linerate_host::soft_roce::{
    Device, LoadedModule, Obstacle, Removed, SoftRoce, SoftRoceError, Wire,
};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_runtime::cli::{RxeAction, TestbedAction};
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::say::{Format, Say};
use serde::Serialize;

/// What `linerate testbed rxe ACTION --format json` prints: the devices that exist, and what a removal removed.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RxeDocument {
    schema: &'static str,
    #[cfg_attr(test, schemars(extend("enum" = ["add", "pair", "remove", "list"])))]
    action: &'static str,
    /// Every soft-RoCE device that linerate created and has not removed.
    devices: Vec<Device>,
    /// The devices that this call removed.
    removed: Vec<String>,
    /// Modules that were loaded for the devices and are kept, because others use them now.
    modules_left: Vec<LoadedModule>,
}

/// Carries out a `testbed` action.
pub(crate) fn run(action: &TestbedAction, state: &FilePath, say: &Say) -> Outcome<()> {
    match action {
        TestbedAction::Rxe { action } => rxe(action, state, say),
        TestbedAction::Mesh { action } => super::mesh_testbed::run(action, state, say),
        TestbedAction::Redundant { action } => super::redundant::run(action, state, say),
    }
}

fn rxe(action: &RxeAction, state: &FilePath, say: &Say) -> Outcome<()> {
    // A few quick steps, which end as a whole.
    let _interrupt = Interrupt::listen()?;
    let mut all = SoftRoce::open(state).map_err(stop)?;
    let (word, removed) = match action {
        RxeAction::Add { nic, name } => {
            all.add(nic, name.as_deref()).map_err(stop)?;
            ("add", Removed::default())
        }
        RxeAction::Pair { network, mtu } => {
            all.pair(&Wire::new(*network, *mtu)).map_err(stop)?;
            ("pair", Removed::default())
        }
        RxeAction::Remove { name, .. } => {
            let removed = match name {
                Some(name) => all.remove(name),
                None => all.remove_all(),
            };
            ("remove", removed.map_err(not_removed)?)
        }
        RxeAction::List => ("list", Removed::default()),
    };
    let devices = all.devices().map_err(stop)?;
    if say.format == Format::Json {
        return say.json(&RxeDocument {
            schema: "linerate.testbed-rxe/1",
            action: word,
            devices,
            removed: removed.devices,
            modules_left: removed.modules_left,
        });
    }
    say.lines(&in_words(&devices, &removed))?;
    for hint in hints(action, &devices) {
        say.note(&hint);
    }
    Ok(())
}

fn in_words(devices: &[Device], removed: &Removed) -> String {
    let mut lines = Vec::new();
    for name in &removed.devices {
        lines.push(format!("{name}  removed"));
    }
    for left in &removed.modules_left {
        let user = match left.used_by.as_slice() {
            [] => "in use by a program".to_owned(),
            users => format!("in use by {}", users.join(", ")),
        };
        lines.push(format!("{}  module not unloaded: {user}", left.name));
    }
    for device in devices {
        let addresses = match device.addresses.as_slice() {
            [] => "no address".to_owned(),
            addresses => addresses.join(", "),
        };
        lines.push(format!(
            "{}  soft-RoCE on {}, {addresses}: {}",
            device.name,
            device.interface,
            device.state.as_deref().unwrap_or("no longer present")
        ));
    }
    if lines.is_empty() {
        lines.push("no soft-RoCE devices created by linerate".to_owned());
    }
    lines.join("\n")
}

/// What to do next.
fn hints(action: &RxeAction, devices: &[Device]) -> Vec<String> {
    let mut hints = Vec::new();
    let far = devices.iter().rfind(|device| device.paired);
    match (action, far.and_then(|far| far.addresses.first())) {
        (RxeAction::Add { .. }, _) => {
            hints.push(
                "to use it with a device on the peer: `linerate measure rdma-write PEER`"
                    .to_owned(),
            );
        }
        (RxeAction::Pair { .. }, Some(address)) => {
            let address = address.split('/').next().unwrap_or(address);
            hints.push(format!(
                "to measure between the two: `linerate measure rdma-write local --address \
                 {address}`"
            ));
        }
        _ => return hints,
    }
    if devices
        .iter()
        .any(|device| device.state.as_deref() != Some("ACTIVE"))
    {
        hints.push(
            "to make a port ACTIVE, bring its interface up (`ip link set IFACE up`)".to_owned(),
        );
    }
    hints.push("to remove it: `linerate testbed rxe remove --all`".to_owned());
    hints
}

/// A removal that failed has left something.
fn not_removed(error: SoftRoceError) -> Stop {
    match error.obstacle() {
        Obstacle::Failed => Stop::new(Code::RestoreIncomplete, error.to_string())
            .hint("run `linerate testbed rxe remove --all` again"),
        _ => stop(error),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "what `map_err` gives")]
fn stop(error: SoftRoceError) -> Stop {
    let code = match error.obstacle() {
        Obstacle::NotSupported => Code::NotSupported,
        Obstacle::Permission => Code::PermissionMissing,
        Obstacle::BadInput => Code::BadInput,
        Obstacle::Failed => Code::FailedRestored,
        Obstacle::Incomplete => Code::RestoreIncomplete,
    };
    let stop = Stop::new(code, error.to_string());
    if code == Code::RestoreIncomplete {
        stop.hint("run `linerate testbed rxe remove --all` to finish")
    } else {
        stop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_what_is_gone_and_what_stays_are_said() {
        let device = Device {
            name: "rxe0".to_owned(),
            interface: "eth0".parse().expect("a name"),
            addresses: vec!["10.0.0.1/24".to_owned()],
            paired: false,
            state: Some("ACTIVE".to_owned()),
        };
        let removed = Removed {
            devices: vec!["rxe1".to_owned()],
            modules_left: vec![LoadedModule {
                name: "ib_core".to_owned(),
                used_by: vec!["ib_umad".to_owned()],
            }],
        };
        assert_eq!(
            in_words(&[device], &removed),
            "rxe1  removed\nib_core  module not unloaded: in use by ib_umad\n\
             rxe0  soft-RoCE on eth0, 10.0.0.1/24: ACTIVE"
        );
        let nothing = in_words(&[], &Removed::default());
        assert_eq!(nothing, "no soft-RoCE devices created by linerate");
    }
}
