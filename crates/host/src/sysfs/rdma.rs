//! RDMA devices: `/sys/class/infiniband` (Documentation/ABI/stable/sysfs-class-infiniband).

use linerate_model::host::{Node, RdmaDevice, RdmaPort};
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Gap, Known};
use linerate_model::units::BitRate;

use super::pci::{function_above, read_node};
use super::{followed, joined, numbered, parsed, understood};
use crate::root::{HostRoot, absolute};

const FOLDER: &str = "sys/class/infiniband";

/// Reads every RDMA device. Without the kernel's RDMA the folder is missing: that is none, not a gap.
pub(crate) fn read_rdma(root: &HostRoot, nodes: &[Node], gaps: &mut Vec<Gap>) -> Vec<RdmaDevice> {
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
        .map(|name| read_device(root, name, nodes, gaps))
        .collect()
}

fn read_device(root: &HostRoot, name: String, nodes: &[Node], gaps: &mut Vec<Gap>) -> RdmaDevice {
    let class = format!("{FOLDER}/{name}");
    let real = followed(root, FOLDER, &name).value().cloned();
    let real = real.unwrap_or_else(|| class.clone());
    // Below `/sys/devices` the function is on the way; where the class holds real folders, `device`
    // leads to it.
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
    RdmaDevice {
        numa_node_source: Known::default(),
        pcie: Known::default(),
        firmware: Known::default(),
        board: Known::default(),
        node_type: Known::default(),
        limits: Known::default(),
        ports: numbers
            .into_iter()
            .map(|port| read_port(root, &class, port, folder))
            .collect(),
        numa_node: match folder {
            Some(folder) => read_node(root, folder, nodes),
            None => Known::Unknown(no_function()),
        },
        pci_address: match &function {
            Some((_, address)) => Known::Value(*address),
            None => Known::Unknown(no_function()),
        },
        name,
    }
}

fn read_port(root: &HostRoot, class: &str, port: u32, function: Option<&str>) -> RdmaPort {
    let folder = format!("{class}/ports/{port}");
    let state = format!("{folder}/state");
    let rate = format!("{folder}/rate");
    RdmaPort {
        physical_state: Known::default(),
        width: Known::default(),
        speed: Known::default(),
        mtu_active: Known::default(),
        mtu_max: Known::default(),
        gids: Known::default(),
        default_gid_type: Known::default(),
        subnet_manager_lid: Known::default(),
        port,
        state: parsed(root, &state, parse_state),
        rate_bit_per_s: root.read(&rate).and_then(|text| match text.as_str() {
            "" => Known::unknown(Cause::NotSaid, absolute(&rate), "the file is empty"),
            text => understood(&rate, text, parse_rate),
        }),
        link_layer: root.read(&format!("{folder}/link_layer")),
        netdev: read_netdev(root, class, &folder, port, function),
    }
}

/// The interface of a port: of its first GID (RoCE); else of the device (soft-RoCE's `parent`); else
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

/// The port of an interface, from 1: `dev_port` counts from 0 (since 3.15), `dev_id` did before. Both
/// may be set by older drivers, then the larger is the one that is meant.
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

/// `40 Gb/sec (4X QDR)`, `2.5 Gb/sec (1X SDR)`.
pub(crate) fn parse_rate(text: &str) -> Result<BitRate, &'static str> {
    let wrong = "expected a rate such as `40 Gb/sec (4X QDR)`";
    let number = text.split_once("Gb/sec").ok_or(wrong)?.0.trim();
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let whole: u64 = whole.parse().map_err(|_| wrong)?;
    let tenths: u64 = match tenths.len() {
        1 => tenths.parse().map_err(|_| wrong)?,
        _ => return Err(wrong),
    };
    if whole > 1_000_000 {
        return Err("faster than 1 Pb/s");
    }
    Ok(BitRate::from_mbit_per_s(whole * 1000 + tenths * 100))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn states_and_rates_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_state("4: ACTIVE").as_deref(), Ok("ACTIVE"));
        assert_eq!(
            parse_rate("40 Gb/sec (4X QDR)"),
            Ok(BitRate::from_mbit_per_s(40_000))
        );
        assert_eq!(
            parse_rate("2.5 Gb/sec (1X SDR)"),
            Ok(BitRate::from_mbit_per_s(2_500))
        );
        assert!(parse_rate("").is_err() && parse_state("ACTIVE").is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9.]{0,24} Gb/sec.{0,8}|[0-9]{0,3}:.{0,8}|.{0,12}") {
            let _ = (parse_rate(&text), parse_state(&text));
        }
    }
}
