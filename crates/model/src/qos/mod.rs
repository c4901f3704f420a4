//! Bandwidth of classes of one interface: what a file asks for (`file`), how the line is shared (`share`), and by which
//! settings of the catalog an interface can do it (`plan`).
//!
//! A class has traffic of one kind: a VLAN, a priority, a DSCP, ports or a firewall mark. Its limit is what it may send at
//! most, its guarantee what it may send whatever the others do.

mod class_path;
mod ends;
mod file;
mod import;
mod managers;
mod plan;
mod share;

use std::fmt;

pub use class_path::{CLASS_ROWS_SHOWN, ClassPath, ClassPaths, class_paths};
pub use ends::conflicts;
pub use file::{QosError, QosFile, WrittenClass};
pub use import::{Held, imported};
pub use managers::{Manager, ManagerFile, ManagerKind, manager_files, manager_notes};
pub use plan::{Mechanism, NotApplicable, PlannedClass, QosPlan, plan};
pub use share::{Guaranteed, shared};

use crate::host::Nic;
use crate::ids::NicName;
pub use crate::setting::{dscp_word, parse_dscp};
use crate::units::BitRate;

/// Which bytes a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Framing {
    /// What TCP carries, at full-size segments of an MTU of the interface.
    Payload,
    /// Ethernet frames from the destination address to the payload's end, as qdiscs count: without preamble, frame check
    /// sequence and gap.
    #[default]
    Frame,
    /// What the wire carries: frames with preamble, frame check sequence and gap.
    Wire,
}

impl Framing {
    /// The word in the file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Payload => "payload",
            Self::Frame => "frame",
            Self::Wire => "wire",
        }
    }
}

/// How fast a class may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// At this rate.
    Bits(BitRate),
    /// At this share of the line, in hundredths of a per cent.
    Share(u32),
}

impl Rate {
    /// In bit/s on a line of that rate.
    pub fn on(self, line: BitRate) -> BitRate {
        match self {
            Self::Bits(rate) => rate,
            Self::Share(parts) => {
                let rate = u128::from(line.as_bit_per_s()) * u128::from(parts) / 10_000;
                BitRate::from_bit_per_s(u64::try_from(rate).unwrap_or(u64::MAX))
            }
        }
    }
}

/// What traffic belongs to a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// All that leaves through this VLAN.
    Vlan,
    /// Packets of this socket priority, 0 to 7; on a VLAN also its PCP.
    Priority(u8),
    /// Packets of this DSCP.
    Dscp(u8),
    /// TCP and UDP from or to these ports.
    Ports(Vec<u16>),
    /// Packets with this firewall mark.
    Mark(u32),
    /// What belongs to no other class.
    Rest,
}

/// A VLAN of the interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassVlan {
    /// Its VLAN ID, 1 to 4094.
    pub id: u16,
    /// Its device, which is made if it is missing.
    pub device: NicName,
    /// Its addresses with prefix length.
    pub addresses: Vec<String>,
}

/// A class of traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QosClass {
    /// Its name in this file.
    pub name: String,
    /// What belongs to it.
    pub selector: Selector,
    /// The VLAN that carries it; none for untagged traffic.
    pub vlan: Option<ClassVlan>,
    /// The user priority (PCP) of its frames, or its socket priority.
    pub priority: Option<u8>,
    /// What it may send; none for no limit.
    pub limit: Option<Rate>,
    /// What it may send whatever the others do.
    pub guarantee: Option<Rate>,
}

/// The classes of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qos {
    /// A port or a bond.
    pub interface: NicName,
    /// Which bytes its limits count.
    pub limit_of: Framing,
    /// The mechanism that the file names; by default, what fits the interface.
    pub mechanism: Option<Mechanism>,
    /// Its classes in the file's order. The last one has the rest, unless a class of the file has it.
    pub classes: Vec<QosClass>,
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vlan => f.write_str("VLAN"),
            Self::Priority(priority) => write!(f, "priority {priority}"),
            Self::Dscp(dscp) => write!(f, "DSCP {}", dscp_word(*dscp)),
            Self::Ports(ports) => {
                let words: Vec<String> = ports.iter().map(ToString::to_string).collect();
                let noun = if ports.len() == 1 { "port" } else { "ports" };
                write!(f, "{noun} {}", words.join(", "))
            }
            Self::Mark(mark) => write!(f, "mark {mark}"),
            Self::Rest => f.write_str("everything else"),
        }
    }
}

/// That filters of tc(8) choose classes of an interface, too: what they select is not read. None without any.
pub fn unread_filters(nic: &Nic) -> Option<String> {
    class_path::filters_of_others(nic).map(|kinds| {
        format!(
            "{} has filters of tc(8) ({kinds}), which are not read: they can select another class for a packet",
            nic.name
        )
    })
}

#[cfg(test)]
mod tests;
