//! The counters of devices: PCIe AER (Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats), RDMA ports
//! (Documentation/ABI/stable/sysfs-class-infiniband), block devices (Documentation/block/stat.rst).

use std::collections::{BTreeMap, BTreeSet};

use linerate_model::host::Host;
use linerate_model::ids::{NicName, PciAddress};
use linerate_model::known::{Gap, Known};

use super::Reading;
use crate::attributes::{joined, last_name, numbered, parsed};
use crate::rdma::RdmaRead;
use crate::root::HostRoot;

const PCI: &str = "sys/bus/pci/devices";
const RDMA: &str = "sys/class/infiniband";

/// More counters than any RDMA port has (mlx5: about 80).
const RDMA_COUNTERS_MAX: usize = 512;
/// Disks of a large storage host.
const BLOCK_MAX: usize = 256;

/// The columns of `/sys/block/NAME/stat` by the kernel's names; the ninth is the number in flight.
const BLOCK: [Option<&str>; 17] = [
    Some("read_ios"),
    Some("read_merges"),
    Some("read_sectors"),
    Some("read_ticks"),
    Some("write_ios"),
    Some("write_merges"),
    Some("write_sectors"),
    Some("write_ticks"),
    None,
    Some("io_ticks"),
    Some("time_in_queue"),
    Some("discard_ios"),
    Some("discard_merges"),
    Some("discard_sectors"),
    Some("discard_ticks"),
    Some("flush_ios"),
    Some("flush_ticks"),
];

/// The AER counters of every NIC's and RDMA device's function and of the port at the other end of its link, which
/// detects errors in the upstream direction.
pub(super) fn read_aer(root: &HostRoot, host: &Host, reading: &mut Reading) {
    let nics = host.nics.iter().filter_map(|nic| nic.pci_address.get());
    let rdma = host.rdma.iter().filter_map(|rdma| rdma.pci_address.get());
    let mut functions: BTreeSet<PciAddress> = nics.chain(rdma).collect();
    let partners: Vec<PciAddress> = functions
        .iter()
        .filter_map(|function| link_partner(root, *function))
        .collect();
    functions.extend(partners);
    for function in functions {
        for kind in ["correctable", "nonfatal", "fatal"] {
            let path = format!("{PCI}/{function}/aer_dev_{kind}");
            let key = format!("pci/{function}/aer_{kind}");
            match parsed(root, &path, parse_aer_total) {
                Known::Value(total) => reading.take(key, total, &path),
                Known::Unknown(gap) => reading.miss(key, gap),
            }
        }
    }
}

/// The bridge above a function.
fn link_partner(root: &HostRoot, function: PciAddress) -> Option<PciAddress> {
    let target = root.link(&format!("{PCI}/{function}"));
    let folder = joined(PCI, target.value()?);
    let (above, _) = folder.rsplit_once('/')?;
    last_name(above).parse().ok()
}

/// `TOTAL_ERR_COR 3`, the last of the lines of one kind.
pub(crate) fn parse_aer_total(text: &str) -> Result<u64, String> {
    let total = text
        .lines()
        .find_map(|line| line.strip_prefix("TOTAL_ERR_")?.split_once(' '));
    let (_, number) = total.ok_or("no line `TOTAL_ERR_`")?;
    let number = number.trim();
    number
        .parse()
        .map_err(|error| format!("`{number}`: {error}"))
}

/// The counters of every RDMA port.
pub(super) fn read_rdma(root: &HostRoot, rdma: &dyn RdmaRead, host: &Host, reading: &mut Reading) {
    for device in &host.rdma {
        for port in &device.ports {
            read_rdma_port(root, rdma, &device.name, port.port, reading);
        }
    }
}

/// The counters of one RDMA port. Its data counters are in units of four octets; here they are in octets.
pub(super) fn read_rdma_port(
    root: &HostRoot,
    rdma: &dyn RdmaRead,
    device: &str,
    port: u32,
    reading: &mut Reading,
) {
    let folder = format!("{RDMA}/{device}/ports/{port}");
    let prefix = format!("rdma/{device}/{port}");
    for (group, files) in [("counter", "counters"), ("hw", "hw_counters")] {
        let names = match root.list(&format!("{folder}/{files}")) {
            Known::Value(names) => names,
            Known::Unknown(gap) => {
                let told = (group == "hw").then(|| rdma.rdma_counts(device, port));
                take_told(&prefix, group, told, gap, reading);
                continue;
            }
        };
        // `lifespan` is a setting, the maximum age of a cached counter.
        let counters = names.into_iter().filter(|name| name != "lifespan");
        for name in counters.take(RDMA_COUNTERS_MAX) {
            let path = format!("{folder}/{files}/{name}");
            let key = format!("{prefix}/{group}/{name}");
            match root.read(&path) {
                // Counters that the port does not have read `N/A (no PMA)`.
                Known::Value(text) => {
                    if let Some(value) = parse_rdma_counter(&name, &text) {
                        reading.take(key, value, &path);
                    }
                }
                Known::Unknown(gap) => reading.miss(key, gap),
            }
        }
    }
}

/// The ports of the RDMA devices used with one of `nics`, or whose name is in `named`.
pub(super) fn rdma_ports(root: &HostRoot, nics: &[NicName], named: &[&str]) -> Vec<(String, u32)> {
    let devices = root.list(RDMA);
    let mut ports = Vec::new();
    for device in devices.value().into_iter().flatten() {
        let numbers = root.list(&format!("{RDMA}/{device}/ports"));
        let numbers = numbered(numbers.value().map_or(&[][..], Vec::as_slice), "");
        for port in numbers {
            let asked = named.contains(&device.as_str());
            if asked || is_of(root, device, port, nics) {
                ports.push((device.clone(), port));
            }
        }
    }
    ports
}

/// Whether the port is that of one of `nics`: by its first GID, its parent (software devices), or the interfaces of
/// its function.
fn is_of(root: &HostRoot, device: &str, port: u32, nics: &[NicName]) -> bool {
    let has = |name: &str| nics.iter().any(|nic| nic.as_str() == name.trim());
    let files = [
        format!("{RDMA}/{device}/ports/{port}/gid_attrs/ndevs/0"),
        format!("{RDMA}/{device}/parent"),
    ];
    let mut files = files.iter().map(|file| root.read(file));
    if files.any(|name| name.value().is_some_and(|name| has(name))) {
        return true;
    }
    let of_function = root.list(&format!("{RDMA}/{device}/device/net"));
    let mut of_function = of_function.value().into_iter().flatten();
    of_function.any(|name| has(name))
}

/// Adds the netlink counters of a port without a counter directory, as in a network namespace that is not the
/// device's own; otherwise the directory's gap is kept.
fn take_told(
    prefix: &str,
    group: &str,
    told: Option<Known<BTreeMap<String, u64>>>,
    gap: Gap,
    reading: &mut Reading,
) {
    match told {
        Some(Known::Value(counters)) if !counters.is_empty() => {
            for (name, value) in counters {
                reading.take(format!("{prefix}/{group}/{name}"), value, "netlink/rdma");
            }
        }
        _ => reading.miss(format!("{prefix}/{group}"), gap),
    }
}

pub(crate) fn parse_rdma_counter(name: &str, text: &str) -> Option<u64> {
    let value: u64 = text.trim().parse().ok()?;
    match name {
        "port_xmit_data" | "port_rcv_data" => Some(value.saturating_mul(4)),
        _ => Some(value),
    }
}

/// The counters of every real block device, without RAM disks and loop devices.
pub(super) fn read_block(root: &HostRoot, host: &Host, reading: &mut Reading) {
    let is_device = |name: &str| {
        let made = ["loop", "ram", "zram"];
        !made.iter().any(|made| name.starts_with(made))
    };
    let devices = host.block.iter().filter(|device| is_device(&device.name));
    for device in devices.take(BLOCK_MAX) {
        let prefix = format!("block/{}", device.name);
        let path = format!("sys/block/{}/stat", device.name);
        reading.take_table(&prefix, root, &path, parse_block);
    }
}

pub(crate) fn parse_block(text: &str) -> Result<BTreeMap<String, u64>, String> {
    let columns = text.split_whitespace().zip(BLOCK);
    let named = columns.filter_map(|(word, name)| Some((word, name?)));
    named
        .map(|(word, name)| {
            let value = word.parse().map_err(|error| format!("`{word}`: {error}"))?;
            Ok((name.to_owned(), value))
        })
        .collect()
}
