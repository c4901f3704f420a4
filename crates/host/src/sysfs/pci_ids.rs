//! The names of PCI functions from the database of PCI IDs (`pci.ids`, package `hwdata` or `pci.ids`; its format is
//! described in the file: <https://pci-ids.ucw.cz>). A capture stores only the lines of the host's own NICs.

use std::collections::BTreeSet;

use linerate_model::host::{Nic, PciFunction, PciNames};
use linerate_model::known::{Cause, Known};

use crate::root::{HostRoot, absolute};

/// Where distributions install the file.
pub(crate) const PLACES: [&str; 3] = [
    "usr/share/hwdata/pci.ids",
    "usr/share/misc/pci.ids",
    "usr/share/pci.ids",
];

const NO_FILE: &str = "no database of PCI IDs (package hwdata or pci.ids)";
const NO_NAME: &str = "the database of PCI IDs does not have it";

/// The IDs of a function: vendor and device, and those of its board.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ids {
    pub(crate) device: (u16, u16),
    pub(crate) board: Option<(u16, u16)>,
}

/// Sets the names of the NICs' functions. The file is read once, and only if there is a NIC on PCI.
pub(crate) fn fill_names(root: &HostRoot, nics: &mut [Nic]) {
    let functions = || nics.iter().filter_map(|nic| function(&nic.pci));
    let wanted: BTreeSet<Ids> = functions().filter_map(ids_of).collect();
    if wanted.is_empty() {
        return;
    }
    let (place, text) = read_lines(root, &wanted);
    for nic in nics {
        if let Known::Value(pci) = &mut nic.pci
            && let Some(ids) = ids_of(pci)
        {
            pci.names = text.clone().map(|text| parse_names(place, &text, ids));
        }
    }
}

fn function(pci: &Known<PciFunction>) -> Option<&PciFunction> {
    match pci {
        Known::Value(pci) => Some(pci),
        Known::Unknown(_) => None,
    }
}

/// The lines of the wanted IDs in the first place that has the file.
fn read_lines(root: &HostRoot, wanted: &BTreeSet<Ids>) -> (&'static str, Known<String>) {
    let mut first = None;
    for place in PLACES {
        match root.read_used(place, |text| used_lines(text, wanted)) {
            Known::Value(text) => return (place, Known::Value(text)),
            Known::Unknown(gap) if gap.cause != Cause::Absent => {
                first.get_or_insert((place, Known::Unknown(gap)));
            }
            Known::Unknown(_) => {}
        }
    }
    first.unwrap_or_else(|| {
        let gap = Known::unknown(Cause::Absent, absolute(PLACES[0]), NO_FILE);
        (PLACES[0], gap)
    })
}

fn ids_of(pci: &PciFunction) -> Option<Ids> {
    let id = |text: &Known<String>| match text {
        Known::Value(text) => parse_id(text),
        Known::Unknown(_) => None,
    };
    Some(Ids {
        device: (id(&pci.vendor)?, id(&pci.device)?),
        board: id(&pci.subsystem_vendor).zip(id(&pci.subsystem_device)),
    })
}

/// `0x15b3` of sysfs.
fn parse_id(text: &str) -> Option<u16> {
    u16::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
}

/// A line of the file.
enum Line<'a> {
    Vendor(u16, &'a str),
    Device(u16, &'a str),
    Board((u16, u16), &'a str),
    /// The list of classes, which follows the vendors.
    Classes,
    Other,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Self {
        let id = |text: &str| u16::from_str_radix(text, 16).ok();
        let entry = |text: &'a str| {
            let (code, name) = text.split_once("  ")?;
            Some((id(code).filter(|_| code.len() == 4)?, name.trim()))
        };
        if let Some(text) = line.strip_prefix("\t\t") {
            let board = text.split_once("  ").and_then(|(codes, name)| {
                let (vendor, device) = codes.split_once(' ')?;
                Some(Self::Board((id(vendor)?, id(device)?), name.trim()))
            });
            return board.unwrap_or(Self::Other);
        }
        if let Some(text) = line.strip_prefix('\t') {
            return entry(text).map_or(Self::Other, |(id, name)| Self::Device(id, name));
        }
        if line.starts_with("C ") {
            return Self::Classes;
        }
        entry(line).map_or(Self::Other, |(id, name)| Self::Vendor(id, name))
    }
}

/// Calls `take` with each line of the vendors, and the vendor and device that it belongs to.
fn each_line<'a>(text: &'a str, mut take: impl FnMut(&'a str, &Line<'a>, u16, Option<u16>)) {
    let (mut vendor, mut device) = (None, None);
    for line in text.lines() {
        let parsed = Line::parse(line);
        match parsed {
            Line::Vendor(id, _) => (vendor, device) = (Some(id), None),
            Line::Device(id, _) => device = Some(id),
            Line::Classes => return,
            Line::Board(..) | Line::Other => {}
        }
        if let Some(vendor) = vendor {
            take(line, &parsed, vendor, device);
        }
    }
}

/// The lines of the wanted IDs, in their order.
pub(crate) fn used_lines(text: &str, wanted: &BTreeSet<Ids>) -> String {
    let mut used = Vec::new();
    each_line(text, |line, parsed, vendor, device| {
        let is_used = wanted.iter().any(|ids| match parsed {
            Line::Vendor(id, _) => *id == ids.device.0,
            Line::Device(id, _) => (vendor, *id) == ids.device,
            Line::Board(board, _) => {
                (Some(vendor), device) == (Some(ids.device.0), Some(ids.device.1))
                    && Some(*board) == ids.board
            }
            Line::Classes | Line::Other => false,
        });
        if is_used {
            used.push(line);
        }
    });
    used.join("\n")
}

/// The names of one function.
pub(crate) fn parse_names(place: &str, text: &str, ids: Ids) -> PciNames {
    let unnamed = || Known::unknown(Cause::Absent, absolute(place), NO_NAME);
    let mut names = PciNames {
        vendor: unnamed(),
        device: unnamed(),
        subsystem: unnamed(),
    };
    each_line(text, |_, parsed, vendor, device| {
        let is_own = (vendor, device) == (ids.device.0, Some(ids.device.1));
        match parsed {
            Line::Vendor(id, name) if *id == ids.device.0 => {
                names.vendor = Known::Value((*name).to_owned());
            }
            Line::Device(id, name) if (vendor, *id) == ids.device => {
                names.device = Known::Value((*name).to_owned());
            }
            Line::Board(board, name) if is_own && Some(*board) == ids.board => {
                names.subsystem = Known::Value((*name).to_owned());
            }
            _ => {}
        }
    });
    names
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Made in the file's format.
    const FILE: &str = "# a comment\n\
        8086  Intel Corporation\n\
        \t1572  Ethernet Controller X710 for 10GbE SFP+\n\
        \t\t8086 0007  Ethernet Converged Network Adapter X710-2\n\
        15b3  Mellanox Technologies\n\
        \t1013  MT27700 Family [ConnectX-4]\n\
        \t1015  MT27710 Family [ConnectX-4 Lx]\n\
        \t\t15b3 0003  Stand-up ConnectX-4 Lx EN, 25GbE dual-port SFP28\n\
        \t\t17aa 0003  another board\n\
        C 02  Network controller\n\
        \t00  Ethernet controller\n\
        15b3  a second entry that is no vendor\n";

    const CARD: Ids = Ids {
        device: (0x15b3, 0x1015),
        board: Some((0x15b3, 0x0003)),
    };

    fn names(ids: Ids) -> [Option<String>; 3] {
        let names = parse_names(PLACES[0], FILE, ids);
        [names.vendor, names.device, names.subsystem].map(|name| name.value().cloned())
    }

    #[test]
    fn a_function_has_the_names_of_its_vendor_its_device_and_its_board() {
        let [vendor, device, board] = names(CARD);
        assert_eq!(vendor.as_deref(), Some("Mellanox Technologies"));
        assert_eq!(device.as_deref(), Some("MT27710 Family [ConnectX-4 Lx]"));
        let expected = "Stand-up ConnectX-4 Lx EN, 25GbE dual-port SFP28";
        assert_eq!(board.as_deref(), Some(expected));
    }

    #[test]
    fn a_board_of_another_device_is_not_named() {
        let [vendor, device, board] = names(Ids {
            device: (0x15b3, 0x1013),
            ..CARD
        });
        assert!(vendor.is_some() && device.is_some());
        assert_eq!(board, None);
        let [vendor, device, _] = names(Ids {
            device: (0x14e4, 0x1015),
            board: None,
        });
        assert_eq!((vendor, device), (None, None));
    }

    #[test]
    fn the_lines_that_a_capture_stores_give_the_same_names() {
        let used = used_lines(FILE, &BTreeSet::from([CARD]));
        assert_eq!(used.lines().count(), 3, "{used}");
        let again = parse_names(PLACES[0], &used, CARD);
        assert_eq!(again, parse_names(PLACES[0], FILE, CARD));
        assert_eq!(used_lines(&used, &BTreeSet::from([CARD])), used);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "([0-9a-f]{4}|\t|\t\t|  | |C |\n|é|\\PC){0,64}") {
            let used = used_lines(&text, &BTreeSet::from([CARD]));
            prop_assert!(used.len() <= text.len());
            let _ = parse_names(PLACES[0], &text, CARD);
        }
    }
}
