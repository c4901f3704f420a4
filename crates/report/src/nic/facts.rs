//! The facts of one NIC as a document has them: those of the host's description, grouped by the questions that they
//! answer.

use std::collections::{BTreeMap, BTreeSet};

use linerate_model::activity::CountedRate;
use linerate_model::host::{
    Fec, FirmwareVersion, HealthReporter, LinkModes, Module, Nic, NicKind, PciFunction, PcieLink,
    Temperature, VersionState, mode_speed,
};
use linerate_model::ids::{NicName, PciAddress};
use linerate_model::known::{Cause, Gap, Known};
use linerate_model::units::BitRate;
use serde::Serialize;

use super::NicView;

const NO_WIRE: &str = "interfaces of this kind have no physical port";
/// The PCI vendor ID of NVIDIA (Mellanox), whose VPI ports run as Ethernet or InfiniBand.
const NVIDIA: &str = "0x15b3";

/// One NIC.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct NicFacts<'a> {
    /// The interface.
    pub(super) name: &'a NicName,
    /// The kind of interface.
    pub(super) kind: NicKind,
    /// Its kernel driver.
    pub(super) driver: Known<&'a str>,
    /// The driver's version.
    pub(super) driver_version: &'a Known<String>,
    /// Its PCI function.
    pub(super) pci_address: &'a Known<PciAddress>,
    /// The IDs of the function and the board, their names, and the function's settings.
    pub(super) pci: &'a Known<PciFunction>,
    /// Its firmware.
    pub(super) firmware: FirmwareFacts<'a>,
    /// The type of its port.
    pub(super) port: PortFacts<'a>,
    /// Temperatures of the NIC, by label.
    pub(super) temperatures: &'a Known<Vec<Temperature>>,
    /// The devlink health reporters.
    pub(super) health: &'a Known<Vec<HealthReporter>>,
    /// Its PCIe link and the narrowest link up to the root port.
    pub(super) pcie: &'a Known<PcieLink>,
    /// The module or cable in the port. Its serial number is withheld.
    pub(super) module: &'a Known<Module>,
    /// The link.
    pub(super) link: LinkFacts<'a>,
    /// Bit errors while the counters were watched.
    pub(super) bit_errors: Known<BitErrors<'a>>,
}

/// Firmware that runs, is stored, and runs after a reset.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct FirmwareFacts<'a> {
    /// The running firmware.
    pub(super) running: &'a Known<String>,
    /// The stored versions, by name.
    pub(super) stored: Known<BTreeMap<&'a str, &'a str>>,
    /// The stored versions that differ from the running ones: a reset activates them. Empty if there is none.
    pub(super) pending: &'a Known<BTreeMap<String, String>>,
    /// The parameter-set ID (PSID): the board variant that a firmware image is built for. NVIDIA only.
    pub(super) psid: &'a Known<String>,
    /// The board ID.
    pub(super) board: &'a Known<String>,
    /// Every version that devlink reports.
    pub(super) versions: &'a Known<Vec<FirmwareVersion>>,
}

/// The type of a port.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct PortFacts<'a> {
    /// What it runs as: `Ethernet`, `InfiniBand`, `auto`.
    #[serde(rename = "type")]
    pub(super) kind: Known<&'a str>,
    /// Whether it can run as Ethernet or InfiniBand (VPI).
    pub(super) is_vpi: Known<bool>,
    /// The connector by ethtool: `Twisted Pair`, `FIBRE`, `Direct Attach Copper` ...
    pub(super) connector: Known<&'a str>,
}

/// The link.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct LinkFacts<'a> {
    /// Whether there is a link.
    pub(super) is_up: Known<bool>,
    /// `up`, `down`, `lowerlayerdown` ... (RFC 2863, as `operstate` prints it).
    pub(super) operstate: &'a Known<String>,
    /// Why there is none, by the kernel's names.
    pub(super) extended_state: Known<&'a str>,
    /// The detailed reason.
    pub(super) extended_substate: Known<&'a str>,
    /// Its speed, one direction.
    pub(super) speed_bit_per_s: &'a Known<BitRate>,
    /// `full` or `half`.
    pub(super) duplex: &'a Known<String>,
    /// Lanes in use.
    pub(super) lanes: Known<u32>,
    /// Whether autonegotiation is on.
    pub(super) autoneg: Known<bool>,
    /// The speeds that the port advertises, or may use without autonegotiation, fastest first.
    pub(super) enabled_bit_per_s: Known<Vec<BitRate>>,
    /// The speeds that the port supports.
    pub(super) supported_bit_per_s: Known<Vec<BitRate>>,
    /// The speeds that the link partner advertises.
    pub(super) partner_bit_per_s: Known<Vec<BitRate>>,
    /// Link modes by the kernel's names, and what else ethtool reports of them.
    pub(super) modes: &'a Known<LinkModes>,
    /// Forward error correction.
    pub(super) fec: &'a Known<Fec>,
    /// Signal quality index and its maximum.
    pub(super) signal_quality: Known<(u32, u32)>,
}

/// Bit error rates over an interval.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct BitErrors<'a> {
    /// The length of the interval.
    pub(super) seconds: f64,
    /// Before FEC (raw).
    pub(super) before: &'a Known<CountedRate>,
    /// After FEC (effective).
    pub(super) after: &'a Known<CountedRate>,
    /// What to do.
    pub(super) advice: &'a str,
}

/// The facts of the view's NIC.
pub(super) fn facts<'a>(view: &'a NicView<'_>) -> NicFacts<'a> {
    let nic = view.nic;
    let driver = match (&nic.card.driver, &nic.driver) {
        (Known::Value(driver), _) | (_, Known::Value(driver)) => Known::Value(driver.as_str()),
        (Known::Unknown(gap), _) => Known::Unknown(gap.clone()),
    };
    NicFacts {
        name: &nic.name,
        kind: nic.kind,
        driver,
        driver_version: &nic.card.driver_version,
        pci_address: &nic.pci_address,
        pci: &nic.pci,
        firmware: FirmwareFacts {
            running: &nic.card.firmware,
            stored: stored(&nic.card.versions, nic),
            pending: &nic.card.firmware_stored,
            psid: &nic.card.psid,
            board: &nic.card.board,
            versions: &nic.card.versions,
        },
        port: PortFacts {
            kind: port_type(nic),
            is_vpi: is_vpi(nic),
            connector: of(&nic.wire.modes, |modes| text(&modes.port)),
        },
        temperatures: &nic.card.temperatures,
        health: &nic.card.health,
        pcie: &nic.pcie,
        module: &nic.wire.module,
        link: link(nic),
        bit_errors: of(&view.errors, |errors| {
            Known::Value(BitErrors {
                seconds: view.watched_s.unwrap_or_default(),
                before: &errors.before,
                after: &errors.after,
                advice: &errors.advice,
            })
        }),
    }
}

fn link(nic: &Nic) -> LinkFacts<'_> {
    let (modes, state) = (&nic.wire.modes, &nic.wire.state);
    LinkFacts {
        is_up: is_up(nic),
        operstate: &nic.operstate,
        extended_state: of(state, |state| text(&state.extended_state)),
        extended_substate: of(state, |state| text(&state.extended_substate)),
        speed_bit_per_s: &nic.link_bit_per_s,
        duplex: &nic.wire.duplex,
        lanes: of(modes, |modes| modes.lanes.clone()),
        autoneg: of(modes, |modes| modes.autoneg.clone()),
        enabled_bit_per_s: of(modes, |modes| speeds(nic, &modes.advertised)),
        supported_bit_per_s: of(modes, |modes| speeds(nic, &modes.supported)),
        partner_bit_per_s: of(modes, |modes| speeds(nic, &modes.partner)),
        modes,
        fec: &nic.wire.fec,
        signal_quality: of(state, |state| state.signal_quality.clone()),
    }
}

/// A part of a fact; the gap of the whole if that is not known.
pub(super) fn of<'a, T, U>(fact: &'a Known<T>, part: impl FnOnce(&'a T) -> Known<U>) -> Known<U> {
    match fact {
        Known::Value(value) => part(value),
        Known::Unknown(gap) => Known::Unknown(gap.clone()),
    }
}

pub(super) fn text(fact: &Known<String>) -> Known<&str> {
    of(fact, |text| Known::Value(text.trim()))
}

fn stored<'a>(
    versions: &'a Known<Vec<FirmwareVersion>>,
    nic: &Nic,
) -> Known<BTreeMap<&'a str, &'a str>> {
    of(versions, |versions| {
        let stored = |one: &&FirmwareVersion| one.state == VersionState::Stored;
        let stored: BTreeMap<&str, &str> = (versions.iter().filter(stored))
            .map(|one| (one.name.as_str(), one.version.as_str()))
            .collect();
        if stored.is_empty() {
            let path = format!("netlink/devlink/{}/info", nic.name);
            let why = "the driver does not report the stored versions";
            return Known::unknown(Cause::NotSaid, path, why);
        }
        Known::Value(stored)
    })
}

/// devlink's port type; of other drivers, what the interface is (`/sys/class/net/NAME/type`).
fn port_type(nic: &Nic) -> Known<&str> {
    match (&nic.card.port_type, nic.kind) {
        (Known::Value(kind), _) => Known::Value(kind.as_str()),
        (_, NicKind::Ipoib) => Known::Value("InfiniBand"),
        (_, kind) if kind.has_wire() => Known::Value("Ethernet"),
        (Known::Unknown(gap), _) => Known::unknown(Cause::Inapplicable, gap.path.clone(), NO_WIRE),
    }
}

/// A type that was set, or the name of the device or board. mlx5 keeps the setting (`LINK_TYPE`) in the NIC.
fn is_vpi(nic: &Nic) -> Known<bool> {
    let path = || format!("/sys/class/net/{}/device", nic.name);
    if !nic.kind.has_wire() {
        return Known::unknown(Cause::Inapplicable, path(), NO_WIRE);
    }
    if matches!(nic.card.port_type_desired, Known::Value(_)) {
        return Known::Value(true);
    }
    of(&nic.pci, |pci| match &pci.vendor {
        Known::Unknown(gap) => Known::Unknown(gap.clone()),
        Known::Value(vendor) if vendor != NVIDIA => Known::Value(false),
        Known::Value(_) => {
            let names = of(&pci.names, |names| {
                let all = [&names.device, &names.subsystem];
                let says = |name: &&Known<String>| matches!(name, Known::Value(name) if name.contains("VPI"));
                Known::Value(all.iter().any(says))
            });
            if let Known::Value(true) = names {
                return Known::Value(true);
            }
            let why =
                "the NIC's configuration has it (LINK_TYPE), which the kernel does not report";
            Known::unknown(Cause::NotSaid, path(), why)
        }
    })
}

/// ethtool's link detection; otherwise the operational state.
fn is_up(nic: &Nic) -> Known<bool> {
    let link = of(&nic.wire.state, |state| state.link.clone());
    match (link, &nic.operstate) {
        (Known::Value(link), _) => Known::Value(link),
        (_, Known::Value(state)) if state == "up" => Known::Value(true),
        (_, Known::Value(state)) if state.contains("down") => Known::Value(false),
        (Known::Unknown(gap), _) => Known::Unknown(gap),
    }
}

/// The speeds among link modes, fastest first.
fn speeds(nic: &Nic, modes: &[String]) -> Known<Vec<BitRate>> {
    let speeds: BTreeSet<BitRate> = modes.iter().filter_map(|mode| mode_speed(mode)).collect();
    if speeds.is_empty() {
        return Known::Unknown(Gap::new(
            Cause::NotSaid,
            format!("netlink/ethtool/{}/modes", nic.name),
            "it lists no speeds",
        ));
    }
    Known::Value(speeds.into_iter().rev().collect())
}
