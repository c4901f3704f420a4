//! RDMA devices: `/sys/class/infiniband` (Documentation/ABI/stable/sysfs-class-infiniband).

use linerate_model::host::{RdmaDevice, RdmaPort};
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Gap, Known};
use linerate_model::units::BitRate;

use super::gids::read_gids;
use super::locality::Locality;
use super::pci::{Functions, function_above};
use crate::attributes::{followed, joined, numbered, parsed, understood};
use crate::rdma::{Node, RdmaAnswers, RdmaPortAnswers, RdmaRead};
use crate::root::{HostRoot, absolute};

const FOLDER: &str = "sys/class/infiniband";
const NODES: &str = "sys/class/infiniband_verbs";

/// Reads every RDMA device. Without RDMA in the kernel the directory is missing: then there are none, not a gap.
pub(crate) fn read_rdma(
    root: &HostRoot,
    rdma: &dyn RdmaRead,
    functions: &mut Functions<'_>,
    gaps: &mut Vec<Gap>,
) -> Vec<RdmaDevice> {
    let names = match root.list(FOLDER) {
        Known::Value(names) => names,
        Known::Unknown(gap) => {
            if gap.cause != Cause::Absent {
                gaps.push(gap);
            }
            return Vec::new();
        }
    };
    names
        .into_iter()
        .map(|name| read_device(root, rdma, name, functions, gaps))
        .collect()
}

/// Queries a device for data that is not in files.
pub(crate) fn ask_device(
    root: &HostRoot,
    rdma: &dyn RdmaRead,
    name: &str,
    ports: &[u32],
) -> RdmaAnswers {
    rdma.rdma_device(name, ports, &read_node(root, name))
}

/// The uverbs node of a device (Documentation/infiniband/user_verbs.rst).
fn read_node(root: &HostRoot, device: &str) -> Known<Node> {
    root.list(NODES).and_then(|names| {
        let of_device = |name: &&String| {
            let ibdev = root.read(&format!("{NODES}/{name}/ibdev"));
            ibdev.value().is_some_and(|own| own.trim() == device)
        };
        let Some(name) = names.iter().find(of_device) else {
            let reason = "the device has no uverbs node (is `ib_uverbs` loaded?)";
            return Known::unknown(Cause::Absent, absolute(NODES), reason);
        };
        let number = parsed(root, &format!("{NODES}/{name}/dev"), parse_number);
        number.map(|number| Node {
            name: name.clone(),
            number,
        })
    })
}

/// `231:192`.
pub(crate) fn parse_number(text: &str) -> Result<(u32, u32), &'static str> {
    let wrong = "expected a device number such as `231:192`";
    let (major, minor) = text.trim().split_once(':').ok_or(wrong)?;
    let number = |text: &str| text.parse().map_err(|_| wrong);
    Ok((number(major)?, number(minor)?))
}

fn read_device(
    root: &HostRoot,
    rdma: &dyn RdmaRead,
    name: String,
    functions: &mut Functions<'_>,
    gaps: &mut Vec<Gap>,
) -> RdmaDevice {
    let class = format!("{FOLDER}/{name}");
    let real = followed(root, FOLDER, &name).value().cloned();
    let real = real.unwrap_or_else(|| class.clone());
    // Below `/sys/devices` the function is a parent directory; if the class has real directories, `device` links to
    // it.
    let function = function_above(&real).or_else(|| {
        let target = root.link(&format!("{real}/device"));
        function_above(&joined(&real, target.value()?))
    });
    let no_function = || {
        let reason = "the device is on no PCI function";
        Gap::new(Cause::Absent, absolute(&class), reason)
    };
    let ports = root.list(&format!("{class}/ports"));
    let numbers = match &ports {
        Known::Value(names) => numbered(names, ""),
        Known::Unknown(gap) => {
            gaps.push(gap.clone());
            Vec::new()
        }
    };
    let folder = function.as_ref().map(|(folder, _)| folder.as_str());
    let locality = match folder {
        Some(folder) => functions.locality(folder),
        None => Locality::unknown(&no_function()),
    };
    let text = |name: &str| filled(root, &format!("{class}/{name}"));
    let mut told = ask_device(root, rdma, &name, &numbers);
    RdmaDevice {
        ports: numbers
            .into_iter()
            .map(|port| {
                let told = told.ports.remove(&port).unwrap_or_default();
                read_port(root, &name, port, folder, told)
            })
            .collect(),
        numa_node: locality.node,
        numa_node_source: locality.source,
        pci_address: match &function {
            Some((_, address)) => Known::Value(*address),
            None => Known::Unknown(no_function()),
        },
        pcie: match folder {
            Some(folder) => Known::Value(functions.link(folder)),
            None => Known::Unknown(no_function()),
        },
        firmware: text("fw_ver"),
        board: text("board_id"),
        node_type: parsed(root, &format!("{class}/node_type"), parse_state),
        limits: told.limits,
        netns_mode: told.netns_mode,
        name,
    }
}

/// The text of a file, if not empty.
fn filled(root: &HostRoot, path: &str) -> Known<String> {
    root.read(path).and_then(|text| match text.trim() {
        "" => Known::unknown(Cause::NotSaid, absolute(path), "the file is empty"),
        text => Known::Value(text.to_owned()),
    })
}

fn read_port(
    root: &HostRoot,
    device: &str,
    port: u32,
    function: Option<&str>,
    told: RdmaPortAnswers,
) -> RdmaPort {
    let class = format!("{FOLDER}/{device}");
    let folder = format!("{class}/ports/{port}");
    let file = |name: &str| format!("{folder}/{name}");
    let rate = filled(root, &file("rate"))
        .and_then(|text| understood(&file("rate"), &text, parse_port_rate));
    let link_layer = root.read(&file("link_layer"));
    RdmaPort {
        port,
        state: parsed(root, &file("state"), parse_state),
        physical_state: parsed(root, &file("phys_state"), parse_state),
        rate_bit_per_s: rate.clone().map(|rate| rate.rate),
        width: rate
            .clone()
            .and_then(|rate| said_of_rate(rate.width, &file("rate"), "the rate has no width")),
        speed: rate
            .and_then(|rate| said_of_rate(rate.speed, &file("rate"), "the rate has no speed name")),
        netdev: match (
            read_netdev(root, &class, &folder, port, function),
            told.netdev,
        ) {
            (Known::Unknown(_), Known::Value(netdev)) => Known::Value(netdev),
            (by_files, _) => by_files,
        },
        mtu_active: told.mtu_active,
        mtu_max: told.mtu_max,
        limits: told.limits,
        gids: read_gids(root, &folder, &told.gids),
        default_gid_type: read_default_gid_type(root, device, port, &link_layer),
        subnet_manager_lid: read_manager(root, &file("sm_lid"), &link_layer),
        link_layer,
    }
}

fn said_of_rate<T>(value: Option<T>, path: &str, why: &str) -> Known<T> {
    value.map_or_else(
        || Known::unknown(Cause::NotSaid, absolute(path), why),
        Known::Value,
    )
}

fn is_layer(link_layer: &Known<String>, layer: &str) -> bool {
    link_layer.value().is_some_and(|own| own == layer)
}

/// The connection manager's default GID type (Documentation/ABI/testing/configfs-rdma_cm).
fn read_default_gid_type(
    root: &HostRoot,
    device: &str,
    port: u32,
    link_layer: &Known<String>,
) -> Known<String> {
    let path = format!("sys/kernel/config/rdma_cm/{device}/ports/{port}/default_roce_mode");
    if is_layer(link_layer, "InfiniBand") {
        let reason = "only Ethernet ports have a selectable GID type";
        return Known::unknown(Cause::Absent, absolute(&path), reason);
    }
    match filled(root, &path) {
        Known::Unknown(gap) if gap.cause == Cause::Absent => Known::unknown(
            Cause::Absent,
            gap.path,
            "configfs shows it only for devices with a directory in rdma_cm, which root creates",
        ),
        answer => answer,
    }
}

fn read_manager(root: &HostRoot, path: &str, link_layer: &Known<String>) -> Known<u32> {
    if is_layer(link_layer, "Ethernet") {
        let reason = "Ethernet ports have no subnet manager";
        return Known::unknown(Cause::Absent, absolute(path), reason);
    }
    parsed(root, path, parse_lid)
}

/// The interface of a port: that of its first GID (RoCE); otherwise the device's (soft-RoCE's `parent`); otherwise
/// the only interface of the function with the port's number.
fn read_netdev(
    root: &HostRoot,
    class: &str,
    port_folder: &str,
    port: u32,
    function: Option<&str>,
) -> Known<NicName> {
    let ndev = format!("{port_folder}/gid_attrs/ndevs/0");
    let by_gid = parsed(root, &ndev, str::parse::<NicName>);
    if by_gid.value().is_some() {
        return by_gid;
    }
    let by_parent = parsed(root, &format!("{class}/parent"), str::parse::<NicName>);
    if by_parent.value().is_some() {
        return by_parent;
    }
    let mut fitting = Vec::new();
    if let Some(function) = function {
        let folder = format!("{function}/net");
        for nic in root.list(&folder).value().into_iter().flatten() {
            if nic_port(root, &format!("{folder}/{nic}")) == Some(port) {
                fitting.extend(nic.parse::<NicName>());
            }
        }
    }
    match (<[NicName; 1]>::try_from(fitting), by_gid) {
        (Ok([nic]), _) => Known::Value(nic),
        (Err(_), gap) => gap,
    }
}

/// The port of an interface, from 1: `dev_port` counts from 0 (since 3.15), before that `dev_id` did. Older drivers
/// may set both; then the larger one is right.
fn nic_port(root: &HostRoot, folder: &str) -> Option<u32> {
    let dev_port = parsed(root, &format!("{folder}/dev_port"), str::parse::<u32>);
    let dev_id = parsed(root, &format!("{folder}/dev_id"), |text| {
        u32::from_str_radix(text.trim_start_matches("0x"), 16)
    });
    let number = match (dev_port.get(), dev_id.get()) {
        (Some(port), Some(id)) => port.max(id),
        (one, other) => one.or(other)?,
    };
    number.checked_add(1)
}

/// `4: ACTIVE`.
pub(crate) fn parse_state(text: &str) -> Result<String, &'static str> {
    match text.split_once(':') {
        Some((number, state))
            if number.trim().parse::<u32>().is_ok() && !state.trim().is_empty() =>
        {
            Ok(state.trim().to_owned())
        }
        _ => Err("expected a state such as `4: ACTIVE`"),
    }
}

/// `0x1f`.
pub(crate) fn parse_lid(text: &str) -> Result<u32, std::num::ParseIntError> {
    match text.trim().strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.trim().parse(),
    }
}

/// Parses a port's rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PortRate {
    rate: BitRate,
    width: Option<u32>,
    speed: Option<String>,
}

/// `40 Gb/sec (4X QDR)`, `2.5 Gb/sec (1X)`. The kernel prints no speed name for SDR (`rate_show` in
/// drivers/infiniband/core/sysfs.c).
pub(crate) fn parse_port_rate(text: &str) -> Result<PortRate, &'static str> {
    let wrong = "expected a rate such as `40 Gb/sec (4X QDR)`";
    let (number, rest) = text.split_once("Gb/sec").ok_or(wrong)?;
    let (whole, tenths) = number
        .trim()
        .split_once('.')
        .unwrap_or((number.trim(), "0"));
    let whole: u64 = whole.parse().map_err(|_| wrong)?;
    let tenths: u64 = match tenths.len() {
        1 => tenths.parse().map_err(|_| wrong)?,
        _ => return Err(wrong),
    };
    if whole > 1_000_000 {
        return Err("faster than 1 Pb/s");
    }
    let words = rest
        .trim()
        .strip_prefix('(')
        .and_then(|rest| rest.strip_suffix(')'));
    let (lanes, speed) = match words.map(|words| words.split_once(' ').unwrap_or((words, "SDR"))) {
        Some((lanes, speed)) => (lanes.strip_suffix('X'), Some(speed.trim().to_owned())),
        None => (None, None),
    };
    Ok(PortRate {
        rate: BitRate::from_mbit_per_s(whole * 1000 + tenths * 100),
        width: lanes.and_then(|lanes| lanes.parse().ok()),
        speed,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn states_and_rates_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_state("4: ACTIVE").as_deref(), Ok("ACTIVE"));
        assert_eq!(parse_state("5: LinkUp").as_deref(), Ok("LinkUp"));
        let rate = |text| {
            let rate = parse_port_rate(text).expect("a rate");
            let speed = rate.speed.unwrap_or_default();
            (rate.rate.as_bit_per_s() / 100_000_000, rate.width, speed)
        };
        assert_eq!(rate("40 Gb/sec (4X QDR)"), (400, Some(4), "QDR".to_owned()));
        assert_eq!(rate("2.5 Gb/sec (1X)"), (25, Some(1), "SDR".to_owned()));
        assert_eq!(rate("100 Gb/sec"), (1000, None, String::new()));
        assert!(parse_port_rate("").is_err() && parse_state("ACTIVE").is_err());
        assert_eq!((parse_lid("0x1f"), parse_lid("3")), (Ok(31), Ok(3)));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9.]{0,24} Gb/sec.{0,8}|[0-9]{0,3}:.{0,8}|.{0,12}") {
            let _ = (parse_port_rate(&text), parse_state(&text), parse_lid(&text));
            let _ = parse_number(&text);
        }
    }
}
