//! PCI functions: their node, their CPUs, their links up to the root
//! (Documentation/ABI/testing/sysfs-bus-pci).
//!
//! What a link lets pass is computed as the kernel's own `pcie_bandwidth_available` does
//! (drivers/pci/pci.c): per-lane figures of `PCIE_SPEED2MBS_ENC`, every link between the device and the
//! root, and of equally narrow ones the link nearest to the root, so that `limited_by` is the function
//! that the kernel's own boot message names.

use linerate_model::ceiling::pcie_lane;
use linerate_model::host::{Node, PcieHop, PcieLink};
use linerate_model::ids::{CpuSet, NodeId, PciAddress};
use linerate_model::known::{Cause, Gap, Known};
use linerate_model::units::{BitRate, TransferRate};

use super::{cpu_list, cpu_mask, followed, last_name, or_if_absent, understood};
use crate::root::{HostRoot, absolute};

/// The widest link that PCIe knows.
const WIDTH_MAX: u32 = 32;

/// What `width` lanes at `rate` let pass.
pub fn link_rate(rate: TransferRate, width: u32) -> Option<BitRate> {
    let bits = pcie_lane(rate)?.as_bit_per_s();
    Some(BitRate::from_bit_per_s(bits.checked_mul(u64::from(width))?))
}

/// `8.0 GT/s PCIe`, `8 GT/s`, `2.5 GT/s`; `None` when the kernel says that it does not know.
pub fn parse_speed(text: &str) -> Result<Option<TransferRate>, &'static str> {
    if text.starts_with("Unknown") {
        return Ok(None);
    }
    let wrong = "expected a rate such as `8.0 GT/s`";
    let number = text.split_once("GT/s").ok_or(wrong)?.0.trim();
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let whole: u32 = whole.parse().map_err(|_| wrong)?;
    let tenths: u32 = match tenths.len() {
        1 => tenths.parse().map_err(|_| wrong)?,
        _ => return Err(wrong),
    };
    let rate = whole.checked_mul(1000).ok_or(wrong)?;
    Ok(Some(TransferRate::from_mt_per_s(
        rate.checked_add(tenths * 100).ok_or(wrong)?,
    )))
}

/// The folder and the address of the nearest PCI function at or above a folder of `/sys/devices`: a
/// virtio or InfiniBand device stands below its function.
pub fn function_above(folder: &str) -> Option<(String, PciAddress)> {
    let mut folder = folder;
    loop {
        if let Ok(address) = last_name(folder).parse() {
            return Some((folder.to_owned(), address));
        }
        folder = folder.rsplit_once('/')?.0;
    }
}

/// The functions from a device's own up to the root of its bus, the device first. A bridge to another
/// domain (Intel VMD) begins a new root.
fn functions_to_root(folder: &str) -> Vec<(String, PciAddress)> {
    let mut functions = Vec::new();
    let mut folder = folder;
    while let Ok(address) = last_name(folder).parse() {
        functions.push((folder.to_owned(), address));
        match folder.rsplit_once('/') {
            Some((above, _)) => folder = above,
            None => break,
        }
    }
    functions
}

/// The node of a PCI function. -1 is "the firmware does not say", which on a machine with a single
/// node leaves only that one.
pub fn read_node(root: &HostRoot, function: &str, nodes: &[Node]) -> Known<NodeId> {
    let path = format!("{function}/numa_node");
    root.read(&path)
        .and_then(|text| match (text.trim(), nodes) {
            ("-1", [only]) => Known::Value(only.id),
            ("-1", []) => Known::unknown(
                Cause::NotSaid,
                absolute(&path),
                "-1, and the kernel shows no NUMA nodes",
            ),
            ("-1", nodes) => Known::unknown(
                Cause::NotSaid,
                absolute(&path),
                format!(
                    "-1, the firmware does not say on which of {} nodes; {}",
                    nodes.len(),
                    hint_of_cpus(root, function, nodes)
                ),
            ),
            (text, _) => understood(&path, text, str::parse::<u32>).map(NodeId),
        })
}

/// What `local_cpulist` says where `numa_node` does not.
fn hint_of_cpus(root: &HostRoot, function: &str, nodes: &[Node]) -> String {
    let Known::Value(cpus) = read_local_cpus(root, function) else {
        return "local_cpulist does not say either".to_owned();
    };
    let touched: Vec<String> = nodes
        .iter()
        .filter(|node| node.cpus.value().is_some_and(|own| !own.is_disjoint(&cpus)))
        .map(|node| node.id.to_string())
        .collect();
    match touched.as_slice() {
        [node] => format!("local_cpulist {cpus} lies on node {node}"),
        [] => "local_cpulist names no CPU of a node".to_owned(),
        nodes => format!("local_cpulist {cpus} spans nodes {}", nodes.join(", ")),
    }
}

/// The CPUs close to a PCI function.
pub fn read_local_cpus(root: &HostRoot, function: &str) -> Known<CpuSet> {
    or_if_absent(cpu_list(root, &format!("{function}/local_cpulist")), || {
        cpu_mask(root, &format!("{function}/local_cpus"))
    })
}

/// Reads every link from a PCI function to the root. A virtual function's link is its physical one's.
pub fn read_link(root: &HostRoot, function: &str) -> PcieLink {
    let own = match followed(root, function, "physfn") {
        Known::Value(physical) => physical,
        Known::Unknown(_) => function.to_owned(),
    };
    let links: Vec<PcieHop> = functions_to_root(&own)
        .into_iter()
        .map(|(folder, address)| read_hop(root, &folder, address))
        .collect();
    narrowest(links, &own)
}

fn read_hop(root: &HostRoot, folder: &str, address: PciAddress) -> PcieHop {
    PcieHop {
        control: Known::default(),
        address,
        transfer_mt_per_s: read_speed(root, &format!("{folder}/current_link_speed")),
        width: read_width(root, &format!("{folder}/current_link_width")),
        transfer_max_mt_per_s: read_speed(root, &format!("{folder}/max_link_speed")),
        width_max: read_width(root, &format!("{folder}/max_link_width")),
        path: absolute(folder),
    }
}

fn read_speed(root: &HostRoot, path: &str) -> Known<TransferRate> {
    root.read(path).and_then(|text| {
        understood(path, &text, parse_speed).and_then(|rate| match rate {
            Some(rate) => Known::Value(rate),
            None => not_said(
                path,
                "the link has no speed (virtual, integrated or not trained)",
            ),
        })
    })
}

/// 0 lanes (and 255, which a read of all ones gives) are no link.
fn read_width(root: &HostRoot, path: &str) -> Known<u32> {
    root.read(path).and_then(|text| {
        understood(path, &text, str::parse::<u32>).and_then(|width| match width {
            1..=WIDTH_MAX => Known::Value(width),
            _ => not_said(
                path,
                "the link has no width (virtual, integrated or not trained)",
            ),
        })
    })
}

fn not_said<T>(path: &str, why: &str) -> Known<T> {
    Known::unknown(Cause::NotSaid, absolute(path), why)
}

/// What the links together let pass.
pub fn narrowest(links: Vec<PcieHop>, function: &str) -> PcieLink {
    let absent = |what: &str| {
        let reason = format!("no PCI function has a {what} here");
        Gap::new(Cause::Absent, absolute(function), reason)
    };
    let mut limit: Option<(BitRate, PciAddress)> = None;
    let mut gap = None;
    for link in &links {
        match hop_rate(link) {
            Ok(rate) if limit.is_none_or(|(least, _)| rate <= least) => {
                limit = Some((rate, link.address));
            }
            Ok(_) => {}
            Err(unknown) => gap = gap.or(Some(unknown)),
        }
    }
    // One unknown link on the way could be the narrowest.
    let limit = match (limit, gap) {
        (Some(limit), None) => Known::Value(limit),
        (_, Some(gap)) => Known::Unknown(gap),
        (None, None) => Known::Unknown(absent("link")),
    };
    let own = links.first();
    PcieLink {
        transfer_mt_per_s: own.map_or_else(
            || Known::Unknown(absent("link")),
            |own| own.transfer_mt_per_s.clone(),
        ),
        width: own.map_or_else(|| Known::Unknown(absent("link")), |own| own.width.clone()),
        available_bit_per_s: limit.clone().map(|(rate, _)| rate),
        limited_by: limit.map(|(_, address)| address),
        capable_bit_per_s: own.map_or_else(|| Known::Unknown(absent("link")), capable),
        links,
    }
}

fn hop_rate(link: &PcieHop) -> Result<BitRate, Gap> {
    rate_of(&link.transfer_mt_per_s, &link.width, &link.path)
}

fn capable(link: &PcieHop) -> Known<BitRate> {
    rate_of(&link.transfer_max_mt_per_s, &link.width_max, &link.path)
        .map_or_else(Known::Unknown, Known::Value)
}

fn rate_of(rate: &Known<TransferRate>, width: &Known<u32>, path: &str) -> Result<BitRate, Gap> {
    let (rate, width) = (
        rate.ok().map_err(Gap::clone)?,
        width.ok().map_err(Gap::clone)?,
    );
    link_rate(*rate, *width).ok_or_else(|| {
        let reason = format!("no figure is known for {rate} and {width} lanes");
        Gap::new(Cause::Unreadable, path, reason)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hop(address: &str, mt_per_s: u32, width: u32) -> PcieHop {
        PcieHop {
            control: Known::default(),
            address: address.parse().expect("an address"),
            transfer_mt_per_s: Known::Value(TransferRate::from_mt_per_s(mt_per_s)),
            width: Known::Value(width),
            transfer_max_mt_per_s: Known::Value(TransferRate::from_mt_per_s(16_000)),
            width_max: Known::Value(16),
            path: "/sys/devices".to_owned(),
        }
    }

    #[test]
    fn the_kernels_own_texts_are_read() {
        let rate = |mt| Ok(Some(TransferRate::from_mt_per_s(mt)));
        assert_eq!(parse_speed("8.0 GT/s PCIe"), rate(8000));
        assert_eq!(parse_speed("2.5 GT/s"), rate(2500));
        assert_eq!(parse_speed("8 GT/s"), rate(8000));
        assert_eq!(parse_speed("Unknown"), Ok(None));
        assert_eq!(parse_speed("Unknown speed"), Ok(None));
        assert!(parse_speed("fast").is_err());
    }

    #[test]
    fn gen3_x8_passes_what_the_kernel_says() {
        let rate = link_rate(TransferRate::from_mt_per_s(8000), 8);
        assert_eq!(rate, Some(BitRate::from_mbit_per_s(63_008)));
    }

    #[test]
    fn the_narrowest_link_limits_and_of_equals_the_one_nearest_the_root() {
        let link = narrowest(
            vec![
                hop("0000:81:00.0", 16_000, 16),
                hop("0000:80:02.0", 8_000, 4),
                hop("0000:80:01.0", 8_000, 4),
                hop("0000:80:00.0", 16_000, 16),
            ],
            "sys",
        );
        assert_eq!(
            link.available_bit_per_s,
            Known::Value(BitRate::from_mbit_per_s(31_504))
        );
        assert_eq!(
            link.limited_by.value().map(ToString::to_string).as_deref(),
            Some("0000:80:01.0")
        );
        assert_eq!(
            link.capable_bit_per_s,
            Known::Value(BitRate::from_mbit_per_s(252_048))
        );
    }

    #[test]
    fn a_link_that_is_not_known_leaves_what_is_available_unknown() {
        let mut unknown = hop("0000:80:01.0", 8_000, 4);
        unknown.width = not_said("sys/x/current_link_width", "no width");
        let link = narrowest(vec![hop("0000:81:00.0", 16_000, 16), unknown], "sys");
        assert_eq!(
            link.available_bit_per_s.gap().map(|gap| gap.path.as_str()),
            Some("/sys/x/current_link_width")
        );
        assert_eq!(link.width, Known::Value(16));
    }

    #[test]
    fn a_device_below_its_function_is_traced_to_it() {
        let (folder, address) =
            function_above("sys/devices/pci0000:00/0000:00:03.0/virtio2").expect("a function");
        assert_eq!(folder, "sys/devices/pci0000:00/0000:00:03.0");
        assert_eq!(address.to_string(), "0000:00:03.0");
        assert_eq!(function_above("sys/devices/virtual/net/lo"), None);
        let vmd = "sys/devices/pci0000:00/0000:00:0e.0/pci10000:00/10000:00:02.0/10000:01:00.0";
        assert_eq!(functions_to_root(vmd).len(), 2);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,20}|[0-9.]{0,14} GT/s.{0,6}", path in "[0-9a-f:./]{0,40}") {
            let _ = (parse_speed(&text), function_above(&path), functions_to_root(&path));
        }
    }
}
