//! PCI functions: node, local CPUs, and links up to the root port (Documentation/ABI/testing/sysfs-bus-pci).
//!
//! NICs share the bridges above them, so each function is read once per host (`Functions`): reading config space
//! costs a device access for every four bytes.
//!
//! Link bandwidth is computed like the kernel's `pcie_bandwidth_available` (drivers/pci/pci.c): per-lane figures of
//! `PCIE_SPEED2MBS_ENC`, every link between the device and the root port, and of equally narrow ones the link nearest
//! to the root, so that `limited_by` is the function in the kernel's own boot message.

use std::collections::BTreeMap;

use linerate_model::ceiling::pcie_lane;
use linerate_model::host::{Node, PcieHop, PcieLink};
use linerate_model::ids::{CpuSet, NodeId, PciAddress};
use linerate_model::known::{Cause, Gap, Known};
use linerate_model::units::{BitRate, TransferRate};

use super::config_space::{CONVENTIONAL_BYTES, EXTENDED_BYTES, Express, NotTold, parse_config};
use super::locality::{Locality, LocalityFiles, locate, read_said};
use crate::attributes::{cpu_list, cpu_mask, followed, last_name, or_if_absent, understood};
use crate::root::{HostRoot, absolute};

/// The maximum PCIe width.
pub(crate) const WIDTH_MAX: u32 = 32;

/// The bandwidth of `width` lanes at `rate`.
pub fn link_rate(rate: TransferRate, width: u32) -> Option<BitRate> {
    let bits = pcie_lane(rate)?.as_bit_per_s();
    Some(BitRate::from_bit_per_s(bits.checked_mul(u64::from(width))?))
}

/// `8.0 GT/s PCIe`, `8 GT/s`, `2.5 GT/s`; `None` if the kernel prints it as unknown.
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

/// The directory and the address of the nearest PCI function at or above a directory of `/sys/devices`: a virtio or
/// InfiniBand device is below its function.
pub fn function_above(folder: &str) -> Option<(String, PciAddress)> {
    let mut folder = folder;
    loop {
        if let Ok(address) = last_name(folder).parse() {
            return Some((folder.to_owned(), address));
        }
        folder = folder.rsplit_once('/')?.0;
    }
}

/// The functions from a device's own up to the root of its bus, the device first. A bridge to another domain (Intel
/// VMD) starts a new root.
pub(crate) fn functions_to_root(folder: &str) -> Vec<(String, PciAddress)> {
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

/// The best known node of a PCI function (see `super::locality`).
pub fn read_node(root: &HostRoot, function: &str, nodes: &[Node]) -> Known<NodeId> {
    let own = read_said(root, function);
    if own.firmware.value().is_some() {
        return own.firmware;
    }
    locate(function, nodes, |folder| read_said(root, folder)).node
}

/// The PCI functions of one host, each of which is read once.
#[derive(Debug)]
pub(crate) struct Functions<'a> {
    root: &'a HostRoot,
    nodes: &'a [Node],
    hops: BTreeMap<String, PcieHop>,
    said: BTreeMap<String, LocalityFiles>,
}

impl<'a> Functions<'a> {
    pub(crate) fn new(root: &'a HostRoot, nodes: &'a [Node]) -> Self {
        Self {
            root,
            nodes,
            hops: BTreeMap::new(),
            said: BTreeMap::new(),
        }
    }

    /// The node of the function in `folder`.
    pub(crate) fn locality(&mut self, folder: &str) -> Locality {
        let (root, said) = (self.root, &mut self.said);
        locate(folder, self.nodes, |folder| {
            asked_once(said, folder, || read_said(root, folder))
        })
    }

    /// The CPUs local to the function in `folder`.
    pub(crate) fn local_cpus(&mut self, folder: &str) -> Known<CpuSet> {
        let root = self.root;
        asked_once(&mut self.said, folder, || read_said(root, folder)).local_cpus
    }

    /// Every link from the function in `folder` to the root port. For a virtual function, those of its physical
    /// function.
    pub(crate) fn link(&mut self, folder: &str) -> PcieLink {
        let own = match followed(self.root, folder, "physfn") {
            Known::Value(physical) => physical,
            Known::Unknown(_) => folder.to_owned(),
        };
        let (root, hops) = (self.root, &mut self.hops);
        let links = functions_to_root(&own).into_iter().enumerate();
        let links: Vec<PcieHop> = links
            .map(|(above, (folder, address))| {
                asked_once(hops, &folder, || {
                    read_hop(root, &folder, address, above > 0)
                })
            })
            .collect();
        narrowest(links, &own)
    }
}

fn asked_once<T: Clone>(
    answers: &mut BTreeMap<String, T>,
    folder: &str,
    ask: impl FnOnce() -> T,
) -> T {
    if let Some(answer) = answers.get(folder) {
        return answer.clone();
    }
    let answer = ask();
    answers.insert(folder.to_owned(), answer.clone());
    answer
}

/// The CPUs local to a PCI function.
pub fn read_local_cpus(root: &HostRoot, function: &str) -> Known<CpuSet> {
    or_if_absent(cpu_list(root, &format!("{function}/local_cpulist")), || {
        cpu_mask(root, &format!("{function}/local_cpus"))
    })
}

fn read_hop(root: &HostRoot, folder: &str, address: PciAddress, is_bridge: bool) -> PcieHop {
    let express = read_express(root, folder, is_bridge);
    let file = |name: &str| format!("{folder}/{name}");
    PcieHop {
        address,
        transfer_mt_per_s: or_express(
            read_speed(root, &file("current_link_speed")),
            &express,
            |express| express.speed,
        ),
        width: or_express(
            read_width(root, &file("current_link_width")),
            &express,
            |express| express.width,
        ),
        transfer_max_mt_per_s: or_express(
            read_speed(root, &file("max_link_speed")),
            &express,
            |express| express.speed_max,
        ),
        width_max: or_express(
            read_width(root, &file("max_link_width")),
            &express,
            |express| express.width_max,
        ),
        control: express.map(|express| express.control),
        path: absolute(folder),
    }
}

/// The PCI Express capability of the function in `folder`. ACS, an extended capability, is read only for bridges.
fn read_express(root: &HostRoot, folder: &str, is_bridge: bool) -> Known<Express> {
    let path = format!("{folder}/config");
    let bytes = if is_bridge {
        EXTENDED_BYTES
    } else {
        CONVENTIONAL_BYTES
    };
    root.read_bytes(&path, bytes as u64).and_then(|space| {
        let (cause, why) = match parse_config(&space) {
            Ok(express) => return Known::Value(express),
            Err(NotTold::Hidden) => (
                Cause::Denied,
                "only the first 64 bytes of the PCI config space are readable without root",
            ),
            Err(NotTold::NotExpress) => {
                (Cause::Absent, "the function has no PCI Express capability")
            }
            Err(NotTold::Gone) => (Cause::Unreadable, "all ones: the device does not answer"),
        };
        Known::unknown(cause, absolute(&path), why)
    })
}

/// The value of a file, or of config space if the kernel has no such file (before 4.13).
fn or_express<T>(
    file: Known<T>,
    express: &Known<Express>,
    of: impl FnOnce(&Express) -> Option<T>,
) -> Known<T> {
    let gap = match file {
        Known::Unknown(gap) if gap.cause == Cause::Absent => gap,
        answer => return answer,
    };
    match express {
        Known::Value(express) => match of(express) {
            Some(value) => Known::Value(value),
            None => Known::unknown(Cause::NotSaid, gap.path, NO_LINK),
        },
        Known::Unknown(hidden) if hidden.cause == Cause::Denied => Known::unknown(
            Cause::Denied,
            hidden.path.as_str(),
            "no sysfs file before Linux 4.13, and the PCI config space is readable only to root",
        ),
        Known::Unknown(_) => Known::Unknown(gap),
    }
}

const NO_LINK: &str = "the link has no speed or width (virtual, integrated or not trained)";

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

/// 0 lanes (and 255, from a read of all ones) are no link.
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

/// The bandwidth of all links together.
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
    // An unknown link could be the narrowest.
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
