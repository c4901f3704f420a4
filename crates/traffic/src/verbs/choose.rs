//! Which device, port and GID carry the data: those of the address that the flow's own connection has, unless
//! the trial names others. Over all devices first the GID that is this address, then what the connection manager
//! takes for it, and only then, when every device could be read, InfiniBand that needs neither.

use std::net::IpAddr;

use linerate_model::workload::DeviceChoice;
use linerate_verbs::{
    Device, DeviceAttributes, GidEntry, PortAttributes, VerbsError, device_names, device_of,
    entry_of,
};

use crate::TrafficError;

/// What was chosen at this end.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) device: Device,
    pub(super) attributes: DeviceAttributes,
    pub(super) port_number: u8,
    pub(super) port: PortAttributes,
    /// None on InfiniBand within a subnet, and on iWARP.
    pub(super) gid: Option<GidEntry>,
}

/// A device that may be opened, and what it has.
struct Candidate {
    device: Device,
    attributes: DeviceAttributes,
    gids: Vec<GidEntry>,
}

/// A port of a candidate, and its GID that is the flow's own address.
struct Place {
    candidate: usize,
    port: u8,
    gid: Option<GidEntry>,
}

/// Chooses for data that leaves from `address`.
pub(super) fn choose(choice: &DeviceChoice, address: IpAddr) -> Result<Chosen, TrafficError> {
    let (mut candidates, mut denied) = candidates(choice)?;
    let mut place = by_gid(&candidates, choice, address);
    let mut silent = None;
    if place.is_none() {
        match device_of(address) {
            Ok(found) => place = by_manager(&candidates, choice, found)?,
            Err(error) => silent = Some(error),
        }
    }
    // The address may be that of a device that is not given to us: then none is guessed.
    if place.is_none() && denied.is_none() {
        let mut places = without_address(&candidates, choice)?;
        // Nor one of several, if none was selected.
        denied = silent.filter(|_| places.len() > 1);
        if denied.is_none() && !places.is_empty() {
            place = Some(places.swap_remove(0));
        }
    }
    let gid = place.as_ref().and_then(|place| match choice.gid_index {
        Some(index) => (candidates[place.candidate].gids.iter())
            .find(|entry| entry.index == index && entry.port == place.port)
            .copied(),
        None => place.gid,
    });
    let Some(place) = place.filter(|_| choice.gid_index.is_none() || gid.is_some()) else {
        let missing = || nowhere(&candidates, choice, address);
        return Err(denied.map_or_else(missing, TrafficError::from));
    };
    let Candidate {
        device, attributes, ..
    } = candidates.swap_remove(place.candidate);
    let port = device.port(place.port)?;
    usable(Chosen {
        device,
        attributes,
        port_number: place.port,
        port,
        gid,
    })
}

/// The devices that `choice` leaves, with their GIDs on the ports that it leaves; and why one of several cannot be
/// used by this program.
fn candidates(choice: &DeviceChoice) -> Result<(Vec<Candidate>, Option<VerbsError>), TrafficError> {
    let names = match &choice.device {
        Some(name) => vec![name.clone()],
        None => device_names()?,
    };
    let mut denied: Option<VerbsError> = None;
    let mut candidates = Vec::new();
    for name in &names {
        match candidate(name, choice) {
            Ok(candidate) => candidates.push(candidate),
            // Another one may be given to us, or whole.
            Err(error) if names.len() > 1 => {
                denied.get_or_insert(error);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok((candidates, denied))
}

fn candidate(name: &str, choice: &DeviceChoice) -> Result<Candidate, VerbsError> {
    let device = Device::open(name)?;
    let attributes = device.attributes()?;
    let gids = (device.gids()?.into_iter())
        .filter(|entry| choice.port.is_none_or(|port| entry.port == port))
        .collect();
    Ok(Candidate {
        device,
        attributes,
        gids,
    })
}

/// The port whose GID is the address: RoCE.
fn by_gid(candidates: &[Candidate], choice: &DeviceChoice, address: IpAddr) -> Option<Place> {
    let mut all = candidates.iter().enumerate();
    all.find_map(|(candidate, one)| {
        // Of several ports with the address, one that has the index which is requested.
        let has_index = |port| {
            let mut own = one.gids.iter().filter(|entry| entry.port == port);
            (choice.gid_index).is_none_or(|index| own.any(|entry| entry.index == index))
        };
        let of_ports: Vec<GidEntry> = (one.gids.iter())
            .filter(|entry| has_index(entry.port))
            .copied()
            .collect();
        let gid = entry_of(&of_ports, address)?;
        Some(Place {
            candidate,
            port: gid.port,
            gid: Some(gid),
        })
    })
}

/// The port that the connection manager takes for the address, which is `found`: InfiniBand under IPoIB, iWARP. Nothing
/// reaches RoCE without a GID.
fn by_manager(
    candidates: &[Candidate],
    choice: &DeviceChoice,
    found: Option<(String, Option<u8>)>,
) -> Result<Option<Place>, TrafficError> {
    let Some((name, port)) = found else {
        return Ok(None);
    };
    let mut all = candidates.iter().enumerate();
    let Some((candidate, one)) = all.find(|(_, one)| one.device.name() == name) else {
        return Ok(None);
    };
    let port = port.or(choice.port).unwrap_or(1);
    if choice.port.is_some_and(|own| own != port) {
        return Ok(None);
    }
    let needs_gid = !one.device.is_iwarp() && one.device.port(port)?.is_ethernet;
    Ok((!needs_gid || choice.gid_index.is_some()).then_some(Place {
        candidate,
        port,
        gid: None,
    }))
}

/// The ports for an address that belongs to none: what was named with a GID index; else those of InfiniBand that carry
/// data, which need no GID within their subnet.
fn without_address(
    candidates: &[Candidate],
    choice: &DeviceChoice,
) -> Result<Vec<Place>, TrafficError> {
    let mut places = Vec::new();
    for (candidate, one) in candidates.iter().enumerate() {
        if choice.gid_index.is_some() {
            // Without a device it would be anybody's: then the address decides, or nothing does.
            let named = choice.device.is_some() || candidates.len() == 1;
            let found = (one.gids.iter()).find(|entry| choice.gid_index == Some(entry.index));
            places.extend(found.filter(|_| named).map(|entry| Place {
                candidate,
                port: entry.port,
                gid: None,
            }));
            continue;
        }
        for port in 1..=one.attributes.ports {
            if choice.port.is_some_and(|own| own != port) {
                continue;
            }
            let found = one.device.port(port)?;
            if !found.is_ethernet && found.lid != 0 && (found.is_active || choice.port.is_some()) {
                places.push(Place {
                    candidate,
                    port,
                    gid: None,
                });
            }
        }
    }
    Ok(places)
}

fn nowhere(candidates: &[Candidate], choice: &DeviceChoice, address: IpAddr) -> TrafficError {
    let names: Vec<&str> = candidates.iter().map(|one| one.device.name()).collect();
    let wanted = match choice.gid_index {
        Some(index) => format!("a GID of index {index} and that of {address}"),
        None => format!("the GID of {address}"),
    };
    TrafficError::not_supported(
        format!("reach the peer by RDMA from {address}"),
        format!(
            "no port of {} has {wanted} (`rdma link` and /sys/class/infiniband/*/ports/*/gids list them); \
             choose an address of its interface, a device, or a GID index",
            names.join(", ")
        ),
    )
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
            "it is {}; bring its interface up, or check the cable and the subnet manager",
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
