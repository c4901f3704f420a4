//! By which mechanism an interface can hold the limits, and the settings of the catalog that make it so.

mod hardware;
mod offload;
mod queues;
mod tree;

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::{ClassVlan, Framing, Guaranteed, Qos, QosClass, QosError, Rate, Selector, shared};
use crate::host::{Host, Nic, NicKind, RdmaDevice, RdmaPort};
use crate::ids::NicName;
use crate::units::BitRate;

/// What holds the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Mechanism {
    /// Traffic classes of the NIC: priority map, ETS shares and maximum rates by data center bridging (dcb(8)).
    Dcb,
    /// Transmit queues for each class, with a maximum rate that the NIC enforces: `hw 1 mode channel shaper bw_rlimit`
    /// (tc-mqprio(8)).
    #[serde(rename = "mqprio-offload")]
    Offload,
    /// A transmit queue for each class, each with a token bucket (tc-mqprio(8), tc-tbf(8)).
    Mqprio,
    /// A hierarchy of token buckets (tc-htb(8)).
    Htb,
}

impl Mechanism {
    /// The word in the file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Dcb => "dcb",
            Self::Offload => "mqprio-offload",
            Self::Mqprio => "mqprio",
            Self::Htb => "htb",
        }
    }

    /// Whether the NIC limits the classes, not the kernel.
    pub fn is_of_nic(self) -> bool {
        matches!(self, Self::Dcb | Self::Offload)
    }
}

/// Why a file does not fit a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotApplicable {
    /// There is no such interface.
    #[error("this host has no interface `{0}`; `linerate map` lists them")]
    NoInterface(NicName),
    /// Its kind has no line of its own.
    #[error("`{0}` is a {1}: name the port or the bond below it")]
    NotAPort(NicName, &'static str),
    /// The device of a class is another thing.
    #[error(
        "class `{class}`: `{device}` exists and is not VLAN {id} of `{interface}`; name another one with `device`"
    )]
    Taken {
        /// The class.
        class: String,
        /// The device.
        device: NicName,
        /// The VLAN ID that it should have.
        id: u16,
        /// The interface.
        interface: NicName,
    },
    /// An address is on another interface.
    #[error("class `{class}`: `{nic}` has the address {address} already")]
    AddressExists {
        /// The class.
        class: String,
        /// The address with its prefix length.
        address: String,
        /// Where it is.
        nic: NicName,
    },
    /// The mechanism that the file names is not possible.
    #[error("`{}` is not possible: {why}", .mechanism.word())]
    Mechanism {
        /// The mechanism.
        mechanism: Mechanism,
        /// What is missing.
        why: String,
    },
    /// None is possible.
    #[error("no mechanism can hold the limits: {0}")]
    NoMechanism(String),
    /// The file itself does not fit the line.
    #[error(transparent)]
    File(#[from] QosError),
}

/// One setting of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedSetting {
    /// Its key in the catalog.
    pub key: String,
    /// Its value, as a plan file has it.
    pub value: String,
    /// What it is for.
    pub about: String,
}

/// A class as the interface will have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedClass {
    /// Its name.
    pub name: String,
    /// The number of its `htb` class, or of its traffic class.
    pub number: u16,
    /// Its rates, as the mechanism counts bytes.
    pub rates: Guaranteed,
    /// What it may send, as the file counts bytes; none for no limit.
    pub limit: Option<BitRate>,
    /// What the mechanism guarantees it, as it counts bytes; none if it guarantees nothing.
    pub guaranteed: Option<BitRate>,
}

/// What is made, and by which mechanism.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QosPlan {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// Why this one.
    pub why: String,
    /// What it can and what it cannot.
    pub notes: Vec<String>,
    /// The rate of the line, and where it is from.
    pub line: BitRate,
    /// The interfaces that hold the limits: the port, or each port of a bond.
    pub holders: Vec<NicName>,
    /// The classes in the file's order.
    pub classes: Vec<PlannedClass>,
    /// The settings, in an order in which they can be made.
    pub settings: Vec<PlannedSetting>,
}

/// The rate of a line that has none of its own: what a virtual interface carries depends on its CPU.
pub(super) const VIRTUAL_LINE: BitRate = BitRate::from_bit_per_s(100_000_000_000);
/// The Ethernet header, and what a wire adds to a frame: preamble, frame check sequence and gap (IEEE 802.3).
const HEADER: u64 = 14;
const ON_THE_WIRE: u64 = 24;
/// A VLAN tag (IEEE 802.1Q).
const TAG: u64 = 4;
/// IPv4 and TCP with timestamps: what a segment holds besides its payload.
const SEGMENT_HEADERS: u64 = 52;
/// The default MTU.
const MTU: u64 = 1500;
/// The number of the first `htb` class, and the distance between two, so that the numbers read well.
const FIRST: u16 = 0x10;
/// How many socket priorities a map of a VLAN or a qdisc names (`TC_PRIO_MAX`).
pub(super) const PRIORITIES: u8 = 16;

/// What `qos` makes on `host`. `has_qdisc` says whether the kernel has a kind of qdisc.
///
/// # Errors
/// [`NotApplicable`] if the file does not fit the host.
pub fn plan(
    qos: &Qos,
    host: &Host,
    has_qdisc: impl Fn(&str) -> bool,
) -> Result<QosPlan, NotApplicable> {
    let nic = nic_of(host, &qos.interface)?;
    for class in &qos.classes {
        refuse_what_is_taken(class, qos, host)?;
    }
    let (holders, about_holders) = holders_of(host, nic);
    let known_line = line_of(host, nic, &holders);
    let line = known_line.unwrap_or(VIRTUAL_LINE);
    let (mechanism, why) = mechanism_of(qos, host, &holders, &has_qdisc)?;
    let rates = shared(&counted_as(qos, nic, mechanism, line), line)?;
    let mut classes: Vec<PlannedClass> = (qos.classes.iter().zip(rates).enumerate())
        .map(|(at, (class, rates))| PlannedClass {
            name: class.name.clone(),
            number: number_of(qos, mechanism, at),
            rates,
            limit: class.limit.map(|limit| limit.on(line)),
            guaranteed: (mechanism == Mechanism::Htb).then_some(rates.rate),
        })
        .collect();
    if mechanism == Mechanism::Dcb {
        hardware::guarantee(qos, &mut classes, line);
    }
    if mechanism == Mechanism::Offload {
        offload::guarantee(qos, &mut classes);
    }
    let leaf = if has_qdisc("fq_codel") {
        "fq_codel"
    } else {
        "pfifo limit 1000"
    };
    let mut settings = Vec::new();
    for class in &qos.classes {
        settings.extend(vlan_settings(qos, class, host));
    }
    for holder in &holders {
        settings.extend(match mechanism {
            Mechanism::Dcb => hardware::settings(qos, holder, &classes, line),
            Mechanism::Offload => offload::settings(qos, host, holder, &classes),
            Mechanism::Mqprio => queues::settings(qos, host, holder, &classes),
            Mechanism::Htb => tree::settings(qos, holder, &classes, line, leaf),
        });
    }
    let mut notes = notes_of(qos, host, nic, mechanism);
    notes.extend(about_holders);
    if known_line.is_none() {
        notes.push(format!(
            "{} has no line rate of its own: {line} is assumed, of which shares are taken",
            nic.name
        ));
    }
    Ok(QosPlan {
        mechanism,
        why,
        notes,
        line,
        holders,
        classes,
        settings,
    })
}

pub(super) fn nic_of<'h>(host: &'h Host, name: &NicName) -> Result<&'h Nic, NotApplicable> {
    let nic = host.nic(name);
    let nic = nic.ok_or_else(|| NotApplicable::NoInterface(name.clone()))?;
    match nic.kind {
        NicKind::Vlan => Err(NotApplicable::NotAPort(name.clone(), "VLAN")),
        NicKind::Loopback => Err(NotApplicable::NotAPort(name.clone(), "loopback")),
        _ => Ok(nic),
    }
}

/// Refuses a VLAN whose device or address is another's.
fn refuse_what_is_taken(class: &QosClass, qos: &Qos, host: &Host) -> Result<(), NotApplicable> {
    let Some(vlan) = &class.vlan else {
        return Ok(());
    };
    if let Some(there) = host.nic(&vlan.device)
        && !is_vlan_of(there, vlan.id, &qos.interface)
    {
        return Err(NotApplicable::Taken {
            class: class.name.clone(),
            device: vlan.device.clone(),
            id: vlan.id,
            interface: qos.interface.clone(),
        });
    }
    for address in &vlan.addresses {
        let bare = address.split('/').next().unwrap_or(address);
        let there = host.nic_with_address(bare);
        if let Some(nic) = there.filter(|nic| nic.name != vlan.device) {
            return Err(NotApplicable::AddressExists {
                class: class.name.clone(),
                address: address.clone(),
                nic: nic.name.clone(),
            });
        }
    }
    Ok(())
}

/// Whether an interface is that VLAN of that port.
pub(super) fn is_vlan_of(nic: &Nic, id: u16, port: &NicName) -> bool {
    let vlan = nic.stack.vlan.as_ref();
    let own = vlan.and_then(|vlan| vlan.id.value().copied());
    nic.kind == NicKind::Vlan && own == Some(u32::from(id)) && nic.lower().contains(port)
}

/// The interfaces that hold the limits, and what to know about that. One port of an active-backup bond sends at a time, so
/// each holds all limits; where several send, only the bond itself counts what all of them send.
pub(super) fn holders_of(host: &Host, nic: &Nic) -> (Vec<NicName>, Option<String>) {
    let own = vec![nic.name.clone()];
    let Some(bond) = &nic.stack.bond else {
        return (own, None);
    };
    let is_one_at_a_time = bond
        .mode
        .value()
        .is_some_and(|mode| mode == "active-backup");
    let ports = ports_of(host, nic);
    if is_one_at_a_time && !ports.is_empty() {
        let about = "each port of the bond holds all limits, since one of them sends at a time";
        return (ports, Some(about.to_owned()));
    }
    let about = "the bond itself holds the limits: they count what all of its ports send together";
    (own, Some(about.to_owned()))
}

/// The ports of a bond; none of another interface.
pub(super) fn ports_of(host: &Host, nic: &Nic) -> Vec<NicName> {
    let of_bond = |port: &&Nic| {
        let above = port.stack.bond_port.as_ref();
        above.is_some_and(|above| above.bond.value() == Some(&nic.name))
    };
    let ports = host.nics.iter().filter(of_bond);
    ports.map(|port| port.name.clone()).collect()
}

/// The rate of the line: a link's, or the slowest of several ports' of which one sends; none of a virtual interface.
pub(super) fn line_of(host: &Host, nic: &Nic, holders: &[NicName]) -> Option<BitRate> {
    let of = |nic: &Nic| match nic.kind {
        NicKind::Physical | NicKind::Virtual | NicKind::Bond | NicKind::Team | NicKind::Ipoib => {
            nic.link_bit_per_s
                .get()
                .filter(|rate| rate.as_bit_per_s() > 0)
        }
        _ => None,
    };
    let lines = holders
        .iter()
        .filter_map(|name| host.nic(name))
        .filter_map(of);
    lines.min().or_else(|| of(nic))
}

/// The mechanism that the file names or that fits, and why.
fn mechanism_of(
    qos: &Qos,
    host: &Host,
    holders: &[NicName],
    has_qdisc: impl Fn(&str) -> bool,
) -> Result<(Mechanism, String), NotApplicable> {
    let lacks = [
        (Mechanism::Dcb, hardware::lacks(qos, host, holders)),
        (
            Mechanism::Offload,
            offload::lacks(qos, host, holders, &has_qdisc),
        ),
        (
            Mechanism::Mqprio,
            queues::lacks(qos, host, holders, &has_qdisc),
        ),
        (
            Mechanism::Htb,
            (!has_qdisc("htb")).then(|| "this kernel has no module `sch_htb`".to_owned()),
        ),
    ];
    if let Some(named) = qos.mechanism {
        let lack = lacks.into_iter().find(|(mechanism, _)| *mechanism == named);
        return match lack.and_then(|(_, why)| why) {
            Some(why) => Err(NotApplicable::Mechanism {
                mechanism: named,
                why,
            }),
            None => Ok((named, "the file names it".to_owned())),
        };
    }
    let mut not = Vec::new();
    // Whether a driver offloads `mqprio` is only known by trying.
    let known = lacks
        .into_iter()
        .filter(|(mechanism, _)| *mechanism != Mechanism::Offload);
    for (mechanism, why) in known {
        if let Some(why) = why {
            not.push(format!("not {}: {why}", mechanism.word()));
            continue;
        }
        match mechanism {
            Mechanism::Dcb | Mechanism::Offload => {
                not.push("the NIC limits its traffic classes itself".to_owned());
            }
            Mechanism::Mqprio => {
                not.push("each class has a queue, so that no lock is shared".to_owned());
            }
            Mechanism::Htb => {}
        }
        return Ok((mechanism, not.join("; ")));
    }
    Err(NotApplicable::NoMechanism(not.join("; ")))
}

/// The number of the class at that place: of its `htb` class, or of its traffic class, of which the rest has 0.
fn number_of(qos: &Qos, mechanism: Mechanism, at: usize) -> u16 {
    let at = u16::try_from(at).unwrap_or(u16::MAX);
    if mechanism == Mechanism::Htb {
        return FIRST.saturating_mul(at.saturating_add(1));
    }
    let rest = qos
        .classes
        .iter()
        .position(|class| class.selector == Selector::Rest);
    let rest = rest.and_then(|at| u16::try_from(at).ok()).unwrap_or(0);
    match at.cmp(&rest) {
        Ordering::Equal => 0,
        Ordering::Less => at + 1,
        Ordering::Greater => at,
    }
}

/// The same classes with rates as the mechanism counts bytes: qdiscs count frames, a NIC's classes what the wire carries.
fn counted_as(qos: &Qos, nic: &Nic, mechanism: Mechanism, line: BitRate) -> Qos {
    let mtu = nic.mtu.value().map_or(MTU, |mtu| u64::from(*mtu));
    let bytes = |framing: Framing, tag: u64| match framing {
        Framing::Payload => mtu.saturating_sub(SEGMENT_HEADERS).max(1),
        Framing::Frame => mtu + HEADER,
        Framing::Wire => mtu + HEADER + ON_THE_WIRE + tag,
    };
    let counts = match mechanism {
        Mechanism::Dcb => Framing::Wire,
        // What a NIC counts in its queues depends on the driver.
        Mechanism::Offload | Mechanism::Mqprio | Mechanism::Htb => Framing::Frame,
    };
    let mut counted = qos.clone();
    for class in &mut counted.classes {
        let tag = if class.vlan.is_some() { TAG } else { 0 };
        let convert = |rate: Rate| {
            let rate = u128::from(rate.on(line).as_bit_per_s());
            let rate = rate * u128::from(bytes(counts, tag)) / u128::from(bytes(qos.limit_of, tag));
            let rate = u64::try_from(rate).unwrap_or(u64::MAX);
            Rate::Bits(BitRate::from_bit_per_s(rate.min(line.as_bit_per_s())))
        };
        // A limit above the line stays one, so that it is refused.
        let is_above = |rate: &Rate| rate.on(line) > line;
        class.limit = class
            .limit
            .map(|rate| if is_above(&rate) { rate } else { convert(rate) });
        class.guarantee = class.guarantee.map(convert);
    }
    counted
}

/// The device of a class's VLAN: made if it is missing, up, with its addresses, and with the PCP of its frames.
fn vlan_settings(qos: &Qos, class: &QosClass, host: &Host) -> Vec<PlannedSetting> {
    let Some(vlan) = &class.vlan else {
        return Vec::new();
    };
    let ClassVlan {
        id,
        device,
        addresses,
    } = vlan;
    let setting = |key: &str, value: String, about: String| PlannedSetting {
        key: format!("nic/{device}/{key}"),
        value,
        about,
    };
    let mut settings = vec![
        setting(
            "vlan/link",
            format!("{} id {id}", qos.interface),
            format!("VLAN {id} of class {}", class.name),
        ),
        setting("up", "on".to_owned(), format!("class {}", class.name)),
    ];
    if !addresses.is_empty() {
        let there = host.nic(device).and_then(|nic| nic.addresses.value());
        let own = |address: &&String| !addresses.contains(address) && !is_link_local(address);
        let mut all: Vec<String> = there.into_iter().flatten().filter(own).cloned().collect();
        all.extend(addresses.iter().cloned());
        let about = format!("addresses of class {}", class.name);
        settings.push(setting("addresses", all.join(" "), about));
    }
    if let Some(priority) = class.priority {
        let map: Vec<String> = (0..PRIORITIES)
            .map(|from| format!("{from}:{priority}"))
            .collect();
        let map = if priority == 0 {
            String::new()
        } else {
            map.join(" ")
        };
        let about = format!("PCP {priority} for each frame of class {}", class.name);
        settings.push(setting("vlan/egress", map, about));
    }
    settings
}

/// What the kernel gives an interface that is up.
fn is_link_local(address: &str) -> bool {
    address.to_ascii_lowercase().starts_with("fe80:")
}

/// What the kernel's qdiscs do not do for the RDMA devices of an interface and its lower ones. Those of hardware send beside the
/// kernel. The packets of rxe, which has no PCI function, pass the qdisc with a ToS, and without the priority of a socket.
fn rdma_notes(qos: &Qos, host: &Host, nic: &Nic) -> Vec<String> {
    let is_own = |port: &RdmaPort| {
        let mut lower = nic.lower().iter();
        port.is_of(&nic.name) || lower.any(|lower| port.is_of(lower))
    };
    let mut classes = qos.classes.iter();
    let by_priority = classes.any(|class| matches!(class.selector, Selector::Priority(_)));
    let note = |device: &RdmaDevice| {
        let name = &device.name;
        if device.pci_address.value().is_some() {
            Some(format!(
                "RDMA traffic of {name} does not pass the kernel's qdiscs: no limit holds for it"
            ))
        } else if by_priority && !device.is_iwarp() {
            Some(format!(
                "RDMA packets of {name} have no socket priority: select them by `dscp`"
            ))
        } else {
            None
        }
    };
    let own = (host.rdma.iter()).filter(|device| device.ports.iter().any(is_own));
    own.filter_map(note).collect()
}

/// What the mechanism can and cannot.
fn notes_of(qos: &Qos, host: &Host, nic: &Nic, mechanism: Mechanism) -> Vec<String> {
    let mut notes = vec![match mechanism {
        Mechanism::Dcb => {
            "the NIC limits what the wire carries, with preamble and frame check sequence, and for RDMA as well"
        }
        Mechanism::Offload => {
            "the NIC limits what its queues send; whether it counts preamble and frame check sequence depends on the driver"
        }
        Mechanism::Mqprio | Mechanism::Htb => {
            "the kernel limits frames without preamble, frame check sequence and gap"
        }
    }
    .to_owned()];
    notes.push(
        match mechanism {
            Mechanism::Dcb => {
                "the NIC limits frames after segmentation (TSO); a driver may round maximum rates, as mlx5 to steps of 100 Mb/s"
            }
            Mechanism::Offload => {
                "the NIC limits frames after segmentation (TSO); a driver may round maximum rates, as i40e to steps of 50 Mb/s, and \
                 builds its queues again, which interrupts the link"
            }
            Mechanism::Mqprio | Mechanism::Htb => {
                "a TSO packet counts at once, with the headers of all its segments: a class sends bursts of up to 64 KiB at its limit"
            }
        }
        .to_owned(),
    );
    if mechanism == Mechanism::Dcb && qos.classes.iter().any(|class| class.guarantee.is_some()) {
        notes.push(
            "ETS shares are whole per cent of the line: guarantees are rounded down".to_owned(),
        );
    }
    if mechanism != Mechanism::Dcb {
        notes.extend(rdma_notes(qos, host, nic));
    }
    if qos.limit_of != Framing::Frame || mechanism == Mechanism::Dcb {
        let mtu = nic.mtu.value().map_or(MTU, |mtu| u64::from(*mtu));
        notes.push(format!(
            "limits of {} bytes are converted for full-size frames at an MTU of {mtu}; smaller frames get less payload",
            qos.limit_of.word()
        ));
    }
    if !mechanism.is_of_nic() && qos.classes.iter().any(|class| class.vlan.is_some()) {
        notes.push(
            "a tag that the NIC inserts (tx-vlan-offload) is not counted: 4 bytes of a frame"
                .to_owned(),
        );
    }
    notes
}

#[cfg(test)]
mod tests;
