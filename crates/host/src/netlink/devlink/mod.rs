//! devlink over generic netlink: a NIC's firmware, board and health (`<linux/devlink.h>`,
//! Documentation/networking/devlink).

use std::collections::BTreeMap;

use linerate_model::host::{Card, FirmwareVersion, HealthReporter, VersionState};
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Gap, Known};

use super::error::Failure;
use super::families::{Families, GENERIC_HEADER_BYTES};
use super::link::{self, LINK_HEADER_BYTES};
use super::message::{Attributes, Request, u32_at};
use super::response::ResponseAttributes;
use super::{Netlink, lock};
use crate::nic_control::NicCounts;

const NO_FAMILY: &str = "this kernel has no devlink, or no driver that registers with it";
const NO_DEVICE: &str = "the driver does not support it over devlink";

pub(super) const COMMAND_PORT: u8 = 5;
pub(super) const COMMAND_INFO: u8 = 51;
pub(super) const COMMAND_HEALTH: u8 = 52;

pub(super) const BUS: u16 = 1;
pub(super) const DEVICE: u16 = 2;
pub(super) const PORT: u16 = 3;
pub(super) const PORT_TYPE: u16 = 4;
pub(super) const PORT_DESIRED_TYPE: u16 = 5;
pub(super) const PORT_NETDEV_INDEX: u16 = 6;
pub(super) const VERSION_FIXED: u16 = 100;
pub(super) const VERSION_RUNNING: u16 = 101;
pub(super) const VERSION_STORED: u16 = 102;
pub(super) const VERSION_NAME: u16 = 103;
pub(super) const VERSION_VALUE: u16 = 104;
pub(super) const REPORTER: u16 = 114;
pub(super) const REPORTER_NAME: u16 = 115;
pub(super) const REPORTER_STATE: u16 = 116;
pub(super) const REPORTER_ERRORS: u16 = 117;
pub(super) const REPORTER_RECOVERIES: u16 = 118;

/// `IFLA_PARENT_DEV_NAME` and `IFLA_PARENT_DEV_BUS_NAME`, since Linux 5.14.
pub(super) const PARENT_NAME: u16 = 56;
pub(super) const PARENT_BUS: u16 = 57;

/// The version names of the firmware as a whole (Documentation/networking/devlink/devlink-info.rst).
const FIRMWARE: [&str; 3] = ["fw", "fw.version", "fw.mgmt"];
const BOARD: &str = "board.id";
/// The PSID of NVIDIA's drivers (Documentation/networking/devlink/{mlx5,mlxsw}.rst).
const PSID: &str = "fw.psid";

/// A devlink device, and the interface's port on it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    bus: String,
    device: String,
    port: Option<u32>,
    /// `enum devlink_port_type`.
    kind: Option<u16>,
    desired: Option<u16>,
}

/// A NIC's versions, by name.
#[derive(Debug, Default, PartialEq, Eq)]
struct Versions {
    fixed: BTreeMap<String, String>,
    running: BTreeMap<String, String>,
    stored: BTreeMap<String, String>,
}

impl Netlink {
    /// Adds devlink's data on a NIC; a firmware version from another source is kept.
    pub(super) fn fill_card_by_devlink(&self, nic: &NicName, card: &mut Card) {
        let versions = self.read_devlink(nic, "info", |devlink, family, place| {
            let answers = devlink.ask(family, COMMAND_INFO, |request| put_place(request, place))?;
            let answer = answers
                .first()
                .ok_or(Failure::Malformed("no message before the end of the dump"))?;
            parse_versions(&answer.body)
        });
        card.health = self.health(nic);
        self.fill_port_type(nic, card);
        match versions {
            Known::Value(versions) => fill_versions(card, versions, nic),
            Known::Unknown(gap) => {
                if card.firmware == Known::default() {
                    card.firmware = Known::Unknown(gap.clone());
                }
                card.firmware_stored = Known::Unknown(gap.clone());
                card.psid = Known::Unknown(gap.clone());
                card.versions = Known::Unknown(gap.clone());
                card.board = Known::Unknown(gap);
            }
        }
    }

    fn fill_port_type(&self, nic: &NicName, card: &mut Card) {
        let types = self.read_devlink(nic, "port", |_, _, place| Ok((place.kind, place.desired)));
        let path = format!("netlink/devlink/{nic}/port");
        let named = |kind: Option<u16>, why: &str| match kind.and_then(port_type) {
            Some(name) => Known::Value(name.to_owned()),
            None => Known::unknown(Cause::Absent, &*path, why),
        };
        card.port_type = (types.clone())
            .and_then(|(kind, _)| named(kind, "the driver does not report a port type"));
        card.port_type_desired = types.and_then(|(_, desired)| named(desired, "it was not set"));
    }

    /// The error counts of the health reporters.
    pub(super) fn counts_of_devlink(&self, nic: &NicName, counts: &mut NicCounts) {
        match self.health(nic) {
            Known::Value(reporters) => {
                let path = format!("netlink/devlink/{nic}/health");
                for reporter in reporters {
                    let numbers = [
                        ("errors", reporter.errors),
                        ("recoveries", reporter.recoveries),
                    ];
                    for (name, value) in numbers {
                        if let Known::Value(value) = value {
                            let key = format!("health/{}/{name}", reporter.name);
                            counts.values.insert(key, (value, path.clone()));
                        }
                    }
                }
            }
            Known::Unknown(gap) => {
                counts.gaps.insert("health".to_owned(), gap);
            }
        }
    }

    fn health(&self, nic: &NicName) -> Known<Vec<HealthReporter>> {
        self.read_devlink(nic, "health", |devlink, family, place| {
            let path = format!("netlink/devlink/{nic}/health");
            let answers = devlink.dump(family, COMMAND_HEALTH, |_| ())?;
            let mut reporters = Vec::new();
            for answer in answers {
                reporters.extend(parse_reporter(&answer.body, place, &path)?);
            }
            Ok(reporters)
        })
    }

    fn read_devlink<T>(
        &self,
        nic: &NicName,
        what: &str,
        read: impl FnOnce(&mut Families, u16, &Place) -> Result<T, Failure>,
    ) -> Known<T> {
        let path = format!("netlink/devlink/{nic}/{what}");
        let own = link::ask(&mut lock(&self.route), nic, |_| ());
        let families = &mut *lock(&self.families);
        let place = match (families.number("devlink"), own) {
            (Ok(None), _) => return Known::unknown(Cause::Absent, path, NO_FAMILY),
            (Ok(Some(family)), Ok(own)) => {
                place_of(families, family, &own).map(|place| (family, place))
            }
            (Err(failure), _) | (_, Err(failure)) => Err(failure),
        };
        let result = match place {
            Ok((family, Some(place))) => read(families, family, &place),
            Ok((_, None)) => {
                let why = "no devlink device has a port of this interface";
                return Known::unknown(Cause::Absent, path, why);
            }
            Err(failure) => Err(failure),
        };
        super::known(result, path, NO_DEVICE)
    }
}

/// The device of the interface that rtnetlink described as `own`: by its port, otherwise by its parent device.
fn place_of(families: &mut Families, family: u16, own: &[u8]) -> Result<Option<Place>, Failure> {
    let index = u32_at(own, 4)?;
    for answer in families.dump(family, COMMAND_PORT, |_| ())? {
        if let Some(place) = parse_port(&answer.body, index)? {
            return Ok(Some(place));
        }
    }
    let own = Attributes::after(own, LINK_HEADER_BYTES)?;
    let parent = own.text(PARENT_BUS)?.zip(own.text(PARENT_NAME)?);
    // For other buses, a driver with devlink reports its ports.
    Ok(parent
        .filter(|(bus, _)| bus == "pci")
        .map(|(bus, device)| Place {
            bus,
            device,
            port: None,
            kind: None,
            desired: None,
        }))
}

/// `enum devlink_port_type`; 0 is "not set".
fn port_type(kind: u16) -> Option<&'static str> {
    match kind {
        1 => Some("auto"),
        2 => Some("Ethernet"),
        3 => Some("InfiniBand"),
        _ => None,
    }
}

fn put_place(request: &mut Request, place: &Place) {
    request.put_text(BUS, &place.bus);
    request.put_text(DEVICE, &place.device);
}

/// The device and port of a message, if it is that of interface `index`.
fn parse_port(body: &[u8], index: u32) -> Result<Option<Place>, Failure> {
    let attributes = Attributes::after(body, GENERIC_HEADER_BYTES)?;
    if attributes.u32(PORT_NETDEV_INDEX)? != Some(index) {
        return Ok(None);
    }
    let place = attributes.text(BUS)?.zip(attributes.text(DEVICE)?);
    let port = attributes.u32(PORT)?;
    let (kind, desired) = (
        attributes.u16(PORT_TYPE)?,
        attributes.u16(PORT_DESIRED_TYPE)?,
    );
    Ok(place.map(|(bus, device)| Place {
        bus,
        device,
        port,
        kind,
        desired,
    }))
}

fn parse_versions(body: &[u8]) -> Result<Versions, Failure> {
    let attributes = Attributes::after(body, GENERIC_HEADER_BYTES)?;
    let mut versions = Versions::default();
    for (kind, version) in attributes.iter() {
        let group = match kind {
            VERSION_FIXED => &mut versions.fixed,
            VERSION_RUNNING => &mut versions.running,
            VERSION_STORED => &mut versions.stored,
            _ => continue,
        };
        let version = Attributes::parse(version)?;
        group.extend(
            version
                .text(VERSION_NAME)?
                .zip(version.text(VERSION_VALUE)?),
        );
    }
    Ok(versions)
}

fn fill_versions(card: &mut Card, versions: Versions, nic: &NicName) {
    let Versions {
        mut fixed,
        running,
        stored,
    } = versions;
    let path = format!("netlink/devlink/{nic}/info");
    let list = [
        (VersionState::Fixed, &fixed),
        (VersionState::Running, &running),
        (VersionState::Stored, &stored),
    ];
    let versions = list.into_iter().flat_map(|(state, versions)| {
        versions.iter().map(move |(name, version)| FirmwareVersion {
            name: name.clone(),
            state,
            version: version.clone(),
        })
    });
    card.versions = Known::Value(versions.collect());
    card.psid = match fixed.get(PSID).or(running.get(PSID)) {
        Some(psid) => Known::Value(psid.clone()),
        None => Known::unknown(Cause::NotSaid, &*path, "the driver does not report a PSID"),
    };
    if card.firmware.value().is_none()
        && let Some(version) = FIRMWARE.iter().find_map(|name| running.get(*name))
    {
        card.firmware = Known::Value(version.clone());
    }
    card.firmware_stored = if stored.is_empty() {
        let why = "the driver does not report the stored versions";
        Known::Unknown(Gap::new(Cause::NotSaid, &*path, why))
    } else {
        let differs = |(name, stored): &(String, String)| {
            running.get(name).is_some_and(|running| running != stored)
        };
        Known::Value(stored.into_iter().filter(differs).collect())
    };
    card.board = fixed.remove(BOARD).map_or_else(
        || Known::unknown(Cause::NotSaid, path, "the driver does not report the board"),
        Known::Value,
    );
}

/// A health reporter, if it belongs to `place`: to its device, or to this port of it.
fn parse_reporter(
    body: &[u8],
    place: &Place,
    path: &str,
) -> Result<Option<HealthReporter>, Failure> {
    let attributes = Attributes::after(body, GENERIC_HEADER_BYTES)?;
    let is_of_device = attributes.text(BUS)?.as_ref() == Some(&place.bus)
        && attributes.text(DEVICE)?.as_ref() == Some(&place.device);
    let port = attributes.u32(PORT)?;
    if !is_of_device || (port.is_some() && port != place.port) {
        return Ok(None);
    }
    let said = ResponseAttributes::after(body, GENERIC_HEADER_BYTES, path, NO_DEVICE);
    let Known::Value(name) = said.nest(REPORTER, "reporter").text(REPORTER_NAME, "name") else {
        return Ok(None);
    };
    let reporter = said.nest(REPORTER, &name);
    let state = reporter.u8(REPORTER_STATE, "state");
    Ok(Some(HealthReporter {
        state: reporter.word(state, "state", &["healthy", "error"]),
        errors: reporter.uint(REPORTER_ERRORS, "errors"),
        recoveries: reporter.uint(REPORTER_RECOVERIES, "recoveries"),
        name,
    }))
}

#[cfg(test)]
mod tests;
