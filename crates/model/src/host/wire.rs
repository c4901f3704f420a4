//! Port and module: link modes, forward error correction, pause, the module's data and health
//! (Documentation/networking/ethtool-netlink.rst; SFF-8472, SFF-8636, CMIS).

use serde::{Deserialize, Serialize};

use crate::known::Known;
use crate::units::BitRate;

/// The port and the module in it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Wire {
    /// Link modes, autonegotiation, lanes, duplex.
    pub modes: Known<LinkModes>,
    /// `full` or `half` (`/sys/class/net/NAME/duplex`).
    pub duplex: Known<String>,
    /// Link state, and the reason if there is no link.
    pub state: Known<LinkState>,
    /// Forward error correction.
    pub fec: Known<Fec>,
    /// Pause frames (802.3x).
    pub pause: Known<Pause>,
    /// Energy-efficient Ethernet.
    pub eee: Known<Eee>,
    /// The transceiver, decoded from its EEPROM.
    pub module: Known<Module>,
    /// Timestamping.
    pub timestamping: Known<Timestamping>,
}

/// `ETHTOOL_MSG_LINKMODES_GET`, `ETHTOOL_MSG_LINKINFO_GET`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LinkModes {
    /// Whether autonegotiation is on.
    pub autoneg: Known<bool>,
    /// The current speed.
    pub speed_bit_per_s: Known<BitRate>,
    /// `full` or `half`.
    pub duplex: Known<String>,
    /// Lanes in use.
    pub lanes: Known<u32>,
    /// Supported modes, by the kernel's names (`100000baseCR4/Full`).
    pub supported: Vec<String>,
    /// Advertised modes.
    pub advertised: Vec<String>,
    /// Modes advertised by the link partner; empty if not known.
    pub partner: Vec<String>,
    /// `Twisted Pair`, `FIBRE`, `Direct Attach Copper` ...
    pub port: Known<String>,
}

/// The speed of a link mode by the kernel's name, `100000baseCR4/Full`: the number is in Mb/s. None for what is no speed
/// (`Autoneg`, `FIBRE`).
pub fn mode_speed(mode: &str) -> Option<BitRate> {
    let (number, _) = mode.split_once("base")?;
    // No link is faster than 10 Tb/s yet; a longer number is not a speed.
    let mbit = number.parse().ok().filter(|mbit| *mbit <= 10_000_000)?;
    Some(BitRate::from_mbit_per_s(mbit))
}

/// `ETHTOOL_MSG_LINKSTATE_GET`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LinkState {
    /// Whether there is a link.
    pub link: Known<bool>,
    /// Why there is none, by the kernel's names, `Cable issue`.
    pub extended_state: Known<String>,
    /// The detailed reason, `Unsupported cable`.
    pub extended_substate: Known<String>,
    /// Signal quality index and its maximum.
    pub signal_quality: Known<(u32, u32)>,
}

/// `ETHTOOL_MSG_FEC_GET`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fec {
    /// The active mode: `RS`, `BASER`, `LLRS`, `None` ...; null while there is no link.
    pub active: Known<String>,
    /// The configured modes.
    pub configured: Vec<String>,
    /// Whether the driver chooses.
    pub auto: Known<bool>,
}

/// `ETHTOOL_MSG_PAUSE_GET`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pause {
    /// Whether it is negotiated.
    pub autoneg: Known<bool>,
    /// Whether received pause frames are honored.
    pub rx: Known<bool>,
    /// Whether pause frames are sent.
    pub tx: Known<bool>,
}

/// `ETHTOOL_MSG_EEE_GET`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Eee {
    /// Whether it is enabled.
    pub enabled: Known<bool>,
    /// Whether it is active on this link.
    pub active: Known<bool>,
}

/// `ETHTOOL_MSG_TSINFO_GET`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Timestamping {
    /// `hardware-transmit`, `hardware-receive`, `software-receive` ...
    pub capabilities: Vec<String>,
    /// `off`, `on` ...
    pub tx_types: Vec<String>,
    /// `none`, `all`, `ptpv2-event` ...
    pub rx_filters: Vec<String>,
    /// The number of its PTP hardware clock.
    pub phc_index: Known<u32>,
}

/// A pluggable module or cable, decoded from its EEPROM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Module {
    /// `SFP`, `QSFP28`, `QSFP-DD` ... (SFF-8024 identifier).
    pub form_factor: String,
    /// The memory map it was decoded by: `SFF-8472`, `SFF-8636`, `CMIS 5.0`.
    pub standard: String,
    /// Vendor name from the module (its serial number is not stored).
    pub vendor: Known<String>,
    /// The vendor's part number.
    pub part: Known<String>,
    /// The vendor's revision.
    pub revision: Known<String>,
    /// `Optical`, `Passive copper`, `Active copper` ...
    pub technology: Known<String>,
    /// The fastest rate that it declares: of its Ethernet type, or the signaling rate of its lanes.
    #[serde(default)]
    pub rated_bit_per_s: Known<BitRate>,
    /// Length of the cable or the longest reach, in decimetres.
    pub length_dm: Known<u32>,
    /// The connector.
    pub connector: Known<String>,
    /// Copper: attenuation in dB at 5, 7, 12.9 and 25.8 GHz, if reported.
    pub attenuation_db: Known<Vec<(String, u32)>>,
    /// CMIS module state: `ModuleReady`, `ModuleLowPwr` ...
    pub state: Known<String>,
    /// Temperature in thousandths of a degree Celsius.
    pub temperature_mc: Known<i32>,
    /// Supply voltage in millivolts.
    pub voltage_mv: Known<u32>,
    /// Optical power and bias of each lane; empty for copper.
    pub lanes: Vec<ModuleLane>,
    /// The active alarms, as text (`lane 2: receive power low alarm`).
    pub alarms: Vec<String>,
    /// The active warnings.
    pub warnings: Vec<String>,
}

/// One lane of an optical module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModuleLane {
    /// Its number, from 1.
    pub lane: u32,
    /// Receive power in nanowatts.
    pub rx_power_nw: Known<u32>,
    /// Transmit power in nanowatts.
    pub tx_power_nw: Known<u32>,
    /// Laser bias in microamperes.
    pub bias_ua: Known<u32>,
}
