//! Network interfaces: `/sys/class/net` (Documentation/ABI/testing/sysfs-class-net), combined with netlink data.

use std::collections::BTreeMap;

use linerate_model::host::{Card, Dispatch, Irq, Napi, Nic, NicKind, PciFunction, QueueKind, Wire};
use linerate_model::ids::{CpuSet, IrqNumber, NicName, PciAddress};
use linerate_model::known::{Cause, Gap, Known};
use linerate_model::units::BitRate;

use super::function::read_function;
use super::hwmon::read_temperatures;
use super::inapplicable;
use super::locality::Locality;
use super::nic_kind::{KindEvidence, parse_device_type};
use super::pci::{Functions, function_above};
use super::pci_ids::fill_names;
use super::psid::psid_of_firmware;
use super::queue_irqs::Device;
use super::queues::{read_queue_irqs, read_queues};
use super::stack::{fill_stack, fill_team_ports, linked, parse_flag};
use super::unasked::name_unasked;
use crate::attributes::{followed, last_name, number, numbered, or_known, parsed, understood};
use crate::nic_control::NicRead;
use crate::procfs::interrupts::{read_irqs, read_some};
use crate::procfs::sockets::parse_status;
use crate::root::{HostRoot, absolute};

const FOLDER: &str = "sys/class/net";
/// The CPU affinity line of `/proc/PID/status` (proc_pid_status(5)).
const ALLOWED: &str = "Cpus_allowed_list";

/// A speed above 1 Pb/s is invalid.
const SPEED_MBIT_MAX: u64 = 1_000_000_000;

/// Reads every interface of the namespace, by index.
pub(crate) fn read_nics(
    root: &HostRoot,
    netlink: &dyn NicRead,
    functions: &mut Functions<'_>,
    irqs: &[Irq],
    gaps: &mut Vec<Gap>,
) -> Vec<Nic> {
    let names = match root.list(FOLDER) {
        Known::Value(names) => names,
        Known::Unknown(gap) => {
            gaps.push(gap);
            return Vec::new();
        }
    };
    let mut nics: Vec<Nic> = Vec::with_capacity(names.len());
    for name in names {
        // `bonding_masters` is a file of the class, not an interface.
        if name == "bonding_masters" {
            continue;
        }
        match name.parse::<NicName>() {
            Ok(name) => nics.push(read_nic(root, netlink, functions, irqs, name, gaps)),
            Err(error) => gaps.push(Gap::new(
                Cause::Unreadable,
                absolute(FOLDER),
                error.to_string(),
            )),
        }
    }
    nics.sort_by(|a, b| {
        let key = |nic: &Nic| nic.index.get().unwrap_or(u32::MAX);
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
    });
    fill_team_ports(&mut nics);
    fill_names(root, &mut nics);
    nics
}

/// The sources of a NIC's data.
struct Places {
    /// `sys/class/net/NIC`.
    class: String,
    /// All names in its directory.
    names: Known<Vec<String>>,
    /// The real directory of its device.
    device: Option<String>,
    /// The PCI function at or above the device.
    function: Option<(String, PciAddress)>,
}

impl Places {
    fn find(root: &HostRoot, name: &NicName, gaps: &mut Vec<Gap>) -> Self {
        let class = format!("{FOLDER}/{name}");
        let names = root.list(&class);
        if let Known::Unknown(gap) = &names {
            gaps.push(gap.clone());
        }
        let real = followed(root, FOLDER, name.as_str());
        let real = real.value().unwrap_or(&class);
        let device = followed(root, real, "device").value().cloned();
        Self {
            function: device.as_deref().and_then(function_above),
            names,
            device,
            class,
        }
    }

    /// The files of its class directory; none if it could not be listed.
    fn names(&self) -> &[String] {
        self.names.value().map_or(&[], Vec::as_slice)
    }

    /// The directory of the PCI function, or why there is none.
    fn function(&self) -> Result<&str, Gap> {
        match (&self.function, &self.device) {
            (Some((function, _)), _) => Ok(function),
            (None, Some(device)) => Err(Gap::new(
                Cause::Absent,
                absolute(device),
                "not on a PCI function",
            )),
            (None, None) => Err(self.no_device()),
        }
    }

    fn no_device(&self) -> Gap {
        Gap::new(
            Cause::Absent,
            absolute(&format!("{}/device", self.class)),
            "the interface has no device",
        )
    }

    /// A value that only interfaces on a PCI function have.
    fn on_function<T>(&self, read: impl FnOnce(&str) -> Known<T>) -> Known<T> {
        self.function().map_or_else(Known::Unknown, read)
    }

    /// The driver's name.
    fn driver(&self, root: &HostRoot) -> Known<String> {
        self.on_device(|device| {
            root.link(&format!("{device}/driver"))
                .map(|target| last_name(&target).to_owned())
        })
    }

    /// A value that only interfaces with a device have.
    fn on_device<T>(&self, read: impl FnOnce(&str) -> Known<T>) -> Known<T> {
        match self.device.as_deref() {
            Some(device) => read(device),
            None => Known::Unknown(self.no_device()),
        }
    }
}

fn read_nic(
    root: &HostRoot,
    netlink: &dyn NicRead,
    functions: &mut Functions<'_>,
    irqs: &[Irq],
    name: NicName,
    gaps: &mut Vec<Gap>,
) -> Nic {
    let places = Places::find(root, &name, gaps);
    let class = &places.class;
    let driver = places.driver(root);
    let pci = places.on_function(|function| Known::Value(read_function(root, function)));
    let kind = read_kind(root, netlink, &name, &places, pci.value());
    let locality = match places.function() {
        Ok(function) => functions.locality(function),
        Err(gap) => Locality::unknown(&gap),
    };
    let dispatch = fill_dispatch(root, class, netlink.dispatch(&name));
    let queues = {
        let device = device_of(root, &places, &driver);
        read_queues(root, &name, device.as_ref(), irqs, &dispatch.napis, gaps)
    };
    let mut nic = Nic {
        index: number(root, &format!("{class}/ifindex")),
        kind,
        pci_address: places.on_function(|function| {
            understood(function, last_name(function), str::parse::<PciAddress>)
        }),
        numa_node: locality.node,
        numa_node_source: locality.source,
        numa_node_report: locality.report,
        local_cpus: places.on_function(|function| functions.local_cpus(function)),
        link_bit_per_s: read_speed(root, &format!("{class}/speed")),
        mtu: number(root, &format!("{class}/mtu")),
        operstate: root.read(&format!("{class}/operstate")),
        addresses: netlink.addresses(&name),
        pcie: places.on_function(|function| Known::Value(functions.link(function))),
        pci,
        card: fill_card(root, &places, &driver, netlink.card(&name)),
        wire: Wire {
            duplex: read_duplex(root, &format!("{class}/duplex")),
            ..netlink.wire(&name)
        },
        stack: fill_stack(
            root,
            &name,
            kind,
            class,
            &places.names,
            netlink.stack(&name),
        ),
        dispatch,
        shaping: netlink.shaping(&name),
        queues,
        features: netlink.features(&name),
        rings: netlink.rings(&name),
        channels: netlink.channels(&name),
        coalesce: netlink.coalesce(&name),
        qdisc: netlink.qdisc(&name),
        lower: linked(&places.names, "lower_"),
        // RDMA devices are read after the interfaces; see `read::pair_rdma`.
        rdma: Known::not_asked("/sys/class/infiniband"),
        driver,
        name,
    };
    name_unasked(&mut nic);
    // A directory that could not be listed shows nothing about a device.
    let is_listed = !places.names().is_empty();
    inapplicable::mark(&mut nic, places.device.is_some() || !is_listed);
    nic
}

/// The interrupt of each queue of an interface, reading only what is needed for it.
pub(crate) fn irqs_of_queues(
    root: &HostRoot,
    netlink: &dyn NicRead,
    nic: &NicName,
) -> BTreeMap<(QueueKind, u32), Known<IrqNumber>> {
    let mut gaps = Vec::new();
    let places = Places::find(root, nic, &mut gaps);
    let driver = places.driver(root);
    let own = places.on_function(|function| root.list(&format!("{function}/msi_irqs")));
    let irqs = match own.value() {
        Some(names) => read_some(root, &numbered(names, "")),
        None => read_irqs(root, None, &mut gaps),
    };
    let device = device_of(root, &places, &driver);
    let napis = netlink.dispatch(nic).napis;
    read_queue_irqs(root, nic, device.as_ref(), &irqs, &napis)
}

/// The device data for finding the queues' interrupts.
fn device_of<'a>(
    root: &HostRoot,
    places: &'a Places,
    driver: &'a Known<String>,
) -> Option<Device<'a>> {
    let device = places.device.as_deref()?;
    let nics = root.list(&format!("{device}/net"));
    Some(Device {
        function: places.function.as_ref().map(|(folder, _)| folder.as_str()),
        name: last_name(device),
        driver: driver.value().map(String::as_str),
        has_one_nic: nics.value().is_some_and(|nics| nics.len() == 1),
    })
}

/// Sets a NIC's values that netlink left unknown.
fn fill_card(root: &HostRoot, places: &Places, driver: &Known<String>, card: Card) -> Card {
    let psid = psid_of_firmware(&card);
    Card {
        psid: match psid {
            // No other source can have it.
            Known::Unknown(gap) if gap.cause == Cause::Inapplicable => Known::Unknown(gap),
            psid => or_known(card.psid, || psid),
        },
        driver: or_known(card.driver, || driver.clone()),
        temperatures: or_known(card.temperatures, || {
            // A virtio device is below its function; the function has the hwmon device.
            let function = places.function.as_ref().map(|(folder, _)| folder.as_str());
            places.on_device(|device| read_temperatures(root, function.unwrap_or(device)))
        }),
        ..card
    }
}

/// Sets the NAPI values that netlink left unknown (Documentation/networking/napi.rst).
fn fill_dispatch(root: &HostRoot, class: &str, dispatch: Dispatch) -> Dispatch {
    let file = |name: &str| format!("{class}/{name}");
    Dispatch {
        gro_flush_timeout_ns: or_known(dispatch.gro_flush_timeout_ns, || {
            number(root, &file("gro_flush_timeout"))
        }),
        defer_hard_irqs: or_known(dispatch.defer_hard_irqs, || {
            number(root, &file("napi_defer_hard_irqs"))
        }),
        threaded: or_known(dispatch.threaded, || {
            parsed(root, &file("threaded"), parse_flag)
        }),
        napis: dispatch.napis.map(|napis| {
            let with_cpus = |napi| with_thread_cpus(root, napi);
            napis.into_iter().map(with_cpus).collect()
        }),
        ..dispatch
    }
}

/// Netlink reports the NAPI thread; its CPU affinity is in `/proc/PID/status`, of which a capture stores only that
/// line.
fn with_thread_cpus(root: &HostRoot, napi: Napi) -> Napi {
    let Some(pid) = napi.thread.get() else {
        return napi;
    };
    let path = format!("proc/{pid}/status");
    let line = |text: &str| {
        let cpus = parse_status(text, ALLOWED).unwrap_or_default();
        format!("{ALLOWED}:\t{cpus}")
    };
    let cpus = || {
        root.read_used(&path, line).and_then(|text| {
            understood(&path, &text, |text| {
                let cpus = parse_status(text, ALLOWED)?;
                cpus.parse::<CpuSet>().map_err(|error| error.to_string())
            })
        })
    };
    Napi {
        thread_cpus: or_known(napi.thread_cpus, cpus),
        ..napi
    }
}

fn read_kind(
    root: &HostRoot,
    netlink: &dyn NicRead,
    name: &NicName,
    places: &Places,
    function: Option<&PciFunction>,
) -> NicKind {
    let class = &places.class;
    let evidence = KindEvidence {
        hardware: number(root, &format!("{class}/type")).get(),
        device_type: root
            .read(&format!("{class}/uevent"))
            .value()
            .and_then(|text| parse_device_type(text)),
        names: places.names(),
        has_device: places.device.is_some(),
        is_virtual_function: function
            .is_some_and(|function| function.physical_function.value().is_some()),
    };
    match evidence.kind() {
        Some(kind) => kind,
        None => netlink.kind(name).get().unwrap_or(NicKind::Other),
    }
}

/// The speed in Mb/s. If the kernel does not know it, for example while the link is down, it returns `EINVAL`, prints
/// -1 (before 2.6.38 as 65535, later sometimes as 4294967295), or prints nothing.
/// `unknown` and EINVAL mean that there is no link.
fn read_duplex(root: &HostRoot, path: &str) -> Known<String> {
    let no_link = || Known::unknown(Cause::NotSaid, absolute(path), "no link");
    match root.read(path) {
        Known::Value(word) if word == "unknown" => no_link(),
        Known::Unknown(gap) if gap.cause == Cause::Unreadable => no_link(),
        duplex => duplex,
    }
}

fn read_speed(root: &HostRoot, path: &str) -> Known<BitRate> {
    let not_said = |why: &str| Known::unknown(Cause::NotSaid, absolute(path), why);
    match root.read(path) {
        Known::Unknown(gap)
            if gap.cause == Cause::Unreadable && gap.reason.contains("os error 22)") =>
        {
            not_said("EINVAL: the link is down, or the driver reports no speed")
        }
        Known::Unknown(gap) => Known::Unknown(gap),
        Known::Value(text) => match text.as_str() {
            "-1" | "65535" | "4294967295" => {
                not_said("-1: the link is down, or the driver reports no speed")
            }
            "0" => not_said("0: the driver reports no speed"),
            "" => not_said("the file is empty: the link is down, or the driver reports no speed"),
            text => understood(path, text, parse_speed),
        },
    }
}

pub(crate) fn parse_speed(text: &str) -> Result<BitRate, String> {
    let mbit: u64 = text
        .parse()
        .map_err(|error: std::num::ParseIntError| error.to_string())?;
    if mbit > SPEED_MBIT_MAX {
        return Err("faster than 1 Pb/s".to_owned());
    }
    Ok(BitRate::from_mbit_per_s(mbit))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9-]{0,24}|.{0,24}") {
            let _ = parse_speed(&text);
        }
    }
}
