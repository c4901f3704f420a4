//! Which device, port and GID carry the data: those of the address that the flow's own connection has, unless
//! the trial names others.

use std::net::IpAddr;

use linerate_model::workload::DeviceChoice;
use linerate_verbs::{
    Device, DeviceAttributes, GidEntry, PortAttributes, VerbsError, device_names, entry_of,
};

use crate::TrafficError;

/// What was chosen at this end.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) device: Device,
    pub(super) attributes: DeviceAttributes,
    pub(super) port_number: u8,
    pub(super) port: PortAttributes,
    /// None on InfiniBand within a subnet.
    pub(super) gid: Option<GidEntry>,
}

/// Chooses for data that leaves from `address`.
pub(super) fn choose(choice: &DeviceChoice, address: IpAddr) -> Result<Chosen, TrafficError> {
    let names = match &choice.device {
        Some(name) => vec![name.clone()],
        None => device_names()?,
    };
    let mut denied: Option<VerbsError> = None;
    let mut seen = Vec::new();
    for name in &names {
        let device = match Device::open(name) {
            Ok(device) => device,
            // Another one may be open to us.
            Err(error) if names.len() > 1 && error.is_permission() => {
                denied.get_or_insert(error);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(chosen) = of_device(device, choice, address)? {
            return usable(chosen);
        }
        seen.push(name.as_str());
    }
    if let Some(error) = denied {
        return Err(error.into());
    }
    let wanted = match choice.gid_index {
        Some(index) => format!("a GID of index {index}"),
        None => format!("the GID of {address}"),
    };
    Err(TrafficError::not_supported(
        format!("reach the peer by RDMA from {address}"),
        format!(
            "no port of {} has {wanted} (`rdma link` and /sys/class/infiniband/*/ports/*/gids say what there \
             is); choose an address of its interface, a device, or a GID index",
            seen.join(", ")
        ),
    ))
}

/// What of `device` fits, if anything does.
fn of_device(
    device: Device,
    choice: &DeviceChoice,
    address: IpAddr,
) -> Result<Option<Chosen>, TrafficError> {
    let attributes = device.attributes()?;
    let gids: Vec<GidEntry> = (device.gids()?.into_iter())
        .filter(|entry| choice.port.is_none_or(|port| entry.port == port))
        .collect();
    let gid = match choice.gid_index {
        Some(index) => gids.iter().find(|entry| entry.index == index).copied(),
        None => entry_of(&gids, address),
    };
    if let Some(gid) = gid {
        let port = device.port(gid.port)?;
        return Ok(Some(Chosen {
            device,
            attributes,
            port_number: gid.port,
            port,
            gid: Some(gid),
        }));
    }
    if choice.gid_index.is_some() {
        return Ok(None);
    }
    // InfiniBand needs no GID within a subnet: the first port that carries data.
    for number in 1..=attributes.ports {
        if choice.port.is_some_and(|port| port != number) {
            continue;
        }
        let port = device.port(number)?;
        if !port.is_ethernet && port.lid != 0 && (port.is_active || choice.port.is_some()) {
            return Ok(Some(Chosen {
                device,
                attributes,
                port_number: number,
                port,
                gid: None,
            }));
        }
    }
    Ok(None)
}

fn usable(chosen: Chosen) -> Result<Chosen, TrafficError> {
    if chosen.port.is_active {
        return Ok(chosen);
    }
    Err(TrafficError::not_supported(
        format!(
            "use port {} of {}",
            chosen.port_number,
            chosen.device.name()
        ),
        format!(
            "it is {}; bring its interface up, or look at the cable and the subnet manager",
            state_name(chosen.port.state)
        ),
    ))
}

/// `enum ibv_port_state`.
fn state_name(state: u32) -> &'static str {
    match state {
        1 => "DOWN",
        2 => "INIT",
        3 => "ARMED",
        5 => "ACTIVE_DEFER",
        _ => "not active",
    }
}
