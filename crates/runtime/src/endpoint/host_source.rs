//! Where the host comes from that a command is about: this machine, or a capture.

use std::path::Path as FilePath;

use linerate_host::capture::{CaptureError, Captured};
use linerate_host::read::read_host;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::Host;
use linerate_model::ids::NicName;

/// The host that is asked about: this one, or a captured one.
pub fn host_from(from: Option<&FilePath>) -> Outcome<Host> {
    match from {
        None => {
            let live = linerate_host::root::LiveHost::open()
                .map_err(|error| Stop::io("open the root directory", error))?;
            let netlink = linerate_host::netlink::Netlink::open()
                .map_err(|error| Stop::io("open a netlink socket", error))?;
            Ok(read_host(live.root(), &netlink))
        }
        Some(path) => Captured::open(path)
            .and_then(|captured| captured.host())
            .map_err(|error| not_captured(&error)),
    }
}

/// Why a captured host is not read.
pub fn not_captured(error: &CaptureError) -> Stop {
    Stop::new(
        Code::BadInput,
        format!("cannot read the captured host: {error}"),
    )
}

/// Whether the host has the interface that was requested.
pub fn check_nic(host: &Host, nic: Option<&NicName>) -> Outcome<()> {
    match nic {
        Some(name) if host.nic(name).is_none() => {
            let names: Vec<&str> = host.nics.iter().map(|nic| nic.name.as_str()).collect();
            Err(
                Stop::new(Code::BadInput, format!("no such interface: `{name}`"))
                    .hint(format!("interfaces: {}", names.join(", "))),
            )
        }
        _ => Ok(()),
    }
}
