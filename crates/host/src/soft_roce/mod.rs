//! RDMA devices in software (soft-RoCE, the kernel's rdma_rxe): created on an interface, or as a pair over their own
//! wire, and removed again.
//!
//! Everything is recorded before it is created, so that a removal removes all of it and nothing else, also if this
//! program was killed in between. A record of an earlier boot is void: nothing of it survives a reboot.

mod error;
mod modules;
mod record;
mod wire;

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use linerate_model::ids::NicName;
use serde::Serialize;

pub use self::error::{Obstacle, SoftRoceError};
pub use self::modules::LoadedModule;
use self::record::{CreatedObject, Record};
pub use self::wire::Wire;
use crate::netlink::{Netlink, NetlinkError, RdmaLink, RdmaLinks};
use crate::root::LiveHost;

/// The driver, the user space interface, and the connection manager's user space interface.
const DRIVER: &str = "rdma_rxe";
const VERBS: &str = "ib_uverbs";
const MANAGER: &str = "rdma_ucm";
/// The checksum that the driver asks the kernel for when it makes a device. The kernel would load it in the background,
/// even after this process was killed, and a removal would come too early.
const CHECKSUM: &str = "crc32_generic";
/// Their dependencies; named here, because a crash while loading leaves some of them without the modules that need
/// them. Without `veth`, which the kernel loads for a wire: others may have created a veth since, which would be
/// removed with the module.
const COMPANIONS: [&str; 9] = [
    "rdma_cm",
    "iw_cm",
    "ib_cm",
    "ib_core",
    "ip6_udp_tunnel",
    "udp_tunnel",
    "configfs",
    CHECKSUM,
    "crc32_pclmul",
];

const CLASS: &str = "sys/class/infiniband";

/// The timeout for a port to become active.
const STATE_TIME_MAX: Duration = Duration::from_secs(2);
const STATE_PAUSE: Duration = Duration::from_millis(5);

/// A device that was created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Device {
    /// Its name, `rxe0`.
    pub name: String,
    /// Its interface.
    pub interface: NicName,
    /// Addresses of the interface, with their prefix lengths.
    pub addresses: Vec<String>,
    /// Whether it is one end of the pair.
    pub paired: bool,
    /// The port's state, `ACTIVE`; null if the device does not exist.
    pub state: Option<String>,
}

/// The result of a removal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removed {
    /// The removed devices.
    pub devices: Vec<String>,
    /// Modules that were loaded for them and that others use now.
    pub modules_left: Vec<LoadedModule>,
}

/// The soft-RoCE devices that linerate created on this machine. Other processes wait until it is dropped.
#[derive(Debug)]
pub struct SoftRoce {
    record: Record,
}

impl SoftRoce {
    /// Reads the record in the directory `state`; empty if there is none.
    pub fn open(state: &Path) -> Result<Self, SoftRoceError> {
        Ok(Self {
            record: Record::open(state)?,
        })
    }

    /// The current state of everything that was created.
    pub fn devices(&self) -> Result<Vec<Device>, SoftRoceError> {
        let netlink = netlink()?;
        let made = self.record.made();
        let wires: Vec<&Wire> = made.iter().filter_map(CreatedObject::wire).collect();
        let devices = made
            .iter()
            .filter_map(CreatedObject::device)
            .map(|(name, nic)| Device {
                name: name.to_owned(),
                interface: nic.clone(),
                addresses: addresses(&netlink, nic),
                paired: wires.iter().any(|wire| wire.has(nic)),
                state: port_state(name),
            });
        Ok(devices.collect())
    }

    /// Creates a device on the interface `nic`; without a `name`, as the first free one of rxe0, rxe1, ... A failure
    /// undoes the steps done before.
    pub fn add(&mut self, nic: &NicName, name: Option<&str>) -> Result<String, SoftRoceError> {
        if !exists(&format!("sys/class/net/{nic}")) {
            return Err(SoftRoceError::NoInterface { nic: nic.clone() });
        }
        let before = self.record.made().len();
        let made = self.load().and_then(|()| {
            let mut links = links()?;
            let there = list(&mut links)?;
            let name = name.map_or_else(|| free_name(&there), str::to_owned);
            self.add_device(&mut links, &there, &name, nic)?;
            Ok(name)
        });
        self.or_undo(before, made)
    }

    /// Creates two devices, `rxe-a` and `rxe-b`, at the ends of `wire`. A failure undoes the steps done before.
    pub fn pair(&mut self, wire: &Wire) -> Result<(), SoftRoceError> {
        if self.record.made().iter().any(|made| made.wire().is_some()) {
            return Err(SoftRoceError::PairThere);
        }
        wire.check_free(&netlink()?)?;
        let before = self.record.made().len();
        let made = self.load().and_then(|()| {
            self.record.write(CreatedObject::Wire(wire.clone()))?;
            wire.lay(&netlink()?)?;
            let mut links = links()?;
            for (name, nic) in wire.devices() {
                let there = list(&mut links)?;
                self.add_device(&mut links, &there, name, nic)?;
            }
            Ok(())
        });
        self.or_undo(before, made)
    }

    /// Removes the device `name`, with its pair if it has one; the last one with the modules.
    pub fn remove(&mut self, name: &str) -> Result<Removed, SoftRoceError> {
        let devices = self.devices()?;
        let Some(device) = devices.iter().find(|device| device.name == name) else {
            return Err(SoftRoceError::NotOurs {
                name: name.to_owned(),
            });
        };
        let stay = |made: &CreatedObject| match made {
            CreatedObject::Device { name: other, .. } if !device.paired => other != name,
            CreatedObject::Device { nic, .. } => !devices
                .iter()
                .any(|other| other.paired && other.interface == *nic),
            CreatedObject::Wire(_) => !device.paired,
            CreatedObject::Modules { .. } => true,
        };
        let mut removed = self.undo(stay)?;
        if !self
            .record
            .made()
            .iter()
            .any(|made| made.device().is_some())
        {
            let rest = self.undo(|_| false)?;
            removed.modules_left = rest.modules_left;
        }
        Ok(removed)
    }

    /// Removes everything.
    pub fn remove_all(&mut self) -> Result<Removed, SoftRoceError> {
        self.undo(|_| false)
    }

    fn load(&mut self) -> Result<(), SoftRoceError> {
        let loaded = modules::loaded()?;
        let missing: Vec<&str> = [DRIVER, VERBS, MANAGER, CHECKSUM]
            .into_iter()
            .filter(|name| !loaded.contains(*name))
            .collect();
        let known = |made: &CreatedObject| matches!(made, CreatedObject::Modules { .. });
        if !missing.is_empty() && !self.record.made().iter().any(known) {
            self.record
                .write(CreatedObject::Modules { before: loaded })?;
        }
        for name in missing {
            match modules::load(name, self.record.lock()) {
                // The connection manager is optional, and the checksum may be part of the kernel.
                Err(SoftRoceError::NoModule { .. }) if [MANAGER, CHECKSUM].contains(&name) => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }

    fn add_device(
        &mut self,
        links: &mut RdmaLinks,
        there: &[RdmaLink],
        name: &str,
        nic: &NicName,
    ) -> Result<(), SoftRoceError> {
        if there.iter().any(|link| link.name == name) {
            return Err(SoftRoceError::NameTaken {
                name: name.to_owned(),
            });
        }
        if let Some(link) = there.iter().find(|link| link.nic.as_ref() == Some(nic)) {
            return Err(SoftRoceError::InterfaceTaken {
                nic: nic.clone(),
                name: link.name.clone(),
            });
        }
        self.record.write(CreatedObject::Device {
            name: name.to_owned(),
            nic: nic.clone(),
        })?;
        links
            .add_rxe(name, nic)
            .map_err(SoftRoceError::doing("create a soft-RoCE device"))?;
        await_active(name);
        Ok(())
    }

    fn or_undo<T>(
        &mut self,
        before: usize,
        made: Result<T, SoftRoceError>,
    ) -> Result<T, SoftRoceError> {
        made.map_err(|first| {
            let mut at = 0..;
            match self.undo(|_| at.next().is_some_and(|at| at < before)) {
                Ok(_) => first,
                Err(second) => SoftRoceError::NotUndone {
                    first: Box::new(first),
                    second: Box::new(second),
                },
            }
        })
    }

    /// Undoes, newest first, everything that is not in `stays`, and removes it from the record. A step that fails
    /// stays in the record, and the others are still undone.
    fn undo(
        &mut self,
        mut stays: impl FnMut(&CreatedObject) -> bool,
    ) -> Result<Removed, SoftRoceError> {
        let (mut rest, gone): (Vec<CreatedObject>, Vec<CreatedObject>) =
            self.record.made().iter().cloned().partition(&mut stays);
        let mut removed = Removed::default();
        let mut failed = None;
        for made in gone.into_iter().rev() {
            if let Err(error) = undo_step(&made, &mut removed) {
                rest.push(made);
                failed.get_or_insert(error);
            }
        }
        self.record.replace(rest)?;
        failed.map_or(Ok(removed), Err)
    }
}

fn undo_step(made: &CreatedObject, removed: &mut Removed) -> Result<(), SoftRoceError> {
    match made {
        CreatedObject::Device { name, nic } => {
            let mut links = match links() {
                Err(error) if error.obstacle() == Obstacle::NotSupported => return Ok(()),
                links => links?,
            };
            let there = list(&mut links)?;
            // Another device with that name on another interface is not ours.
            let ours = |link: &&RdmaLink| link.name == *name && link.nic.as_ref() == Some(nic);
            if let Some(link) = there.iter().find(ours) {
                links
                    .delete(link)
                    .map_err(SoftRoceError::doing("remove a soft-RoCE device"))?;
                removed.devices.push(name.clone());
            }
        }
        CreatedObject::Wire(wire) => wire.take_up(&netlink()?)?,
        CreatedObject::Modules { before } => {
            removed.modules_left = match users_of_driver() {
                users if users.is_empty() => {
                    let asked = [&[DRIVER, VERBS, MANAGER], &COMPANIONS[..]].concat();
                    modules::unload(&asked, before)?
                }
                used_by => vec![LoadedModule {
                    name: DRIVER.to_owned(),
                    used_by,
                }],
            };
        }
    }
    Ok(())
}

/// A socket, only while it is used: while there are RDMA devices it holds a reference to the kernel's RDMA core.
fn netlink() -> Result<Netlink, SoftRoceError> {
    Netlink::open().map_err(SoftRoceError::doing("open a netlink socket"))
}

/// The existing soft-RoCE devices, which would be removed with the driver. Only these have a file `parent` with the
/// interface below them.
fn users_of_driver() -> Vec<String> {
    let Ok(live) = LiveHost::open() else {
        return Vec::new();
    };
    let names = live.root().list(CLASS).value().cloned().unwrap_or_default();
    let is_rxe = |name: &String| live.root().exists(&format!("{CLASS}/{name}/parent"));
    names.into_iter().filter(is_rxe).collect()
}

fn exists(path: &str) -> bool {
    LiveHost::open().is_ok_and(|live| live.root().exists(path))
}

fn links() -> Result<RdmaLinks, SoftRoceError> {
    RdmaLinks::open().map_err(SoftRoceError::doing("use RDMA netlink"))
}

fn list(links: &mut RdmaLinks) -> Result<Vec<RdmaLink>, SoftRoceError> {
    links
        .list()
        .map_err(SoftRoceError::doing("list the RDMA devices"))
}

fn free_name(there: &[RdmaLink]) -> String {
    let mut names = (0..).map(|number: u32| format!("rxe{number}"));
    names
        .find(|name| there.iter().all(|link| link.name != *name))
        .expect("there are fewer devices than numbers")
}

/// A port follows its interface with a delay; one whose interface is down stays down.
#[expect(
    clippy::disallowed_methods,
    reason = "the kernel shows a port's state in a file that tells nobody of a change"
)]
fn await_active(name: &str) {
    let begun = Instant::now();
    while port_state(name).as_deref() != Some("ACTIVE") && begun.elapsed() < STATE_TIME_MAX {
        std::thread::sleep(STATE_PAUSE);
    }
}

fn port_state(name: &str) -> Option<String> {
    let live = LiveHost::open().ok()?;
    let text = live.root().read(&format!("{CLASS}/{name}/ports/1/state"));
    // `4: ACTIVE`
    let state = text.value()?.trim().rsplit(' ').next()?;
    Some(state.to_owned())
}

fn addresses(netlink: &Netlink, nic: &NicName) -> Vec<String> {
    use crate::nic_control::NicRead;
    netlink.addresses(nic).value().cloned().unwrap_or_default()
}

/// Whether an error means that there is nothing to remove.
fn is_gone(error: &io::Error) -> bool {
    let number = NetlinkError::of(error).and_then(NetlinkError::raw_os_error);
    matches!(number, Some(libc::ENODEV | libc::ENOENT | libc::ESRCH))
}
