//! ethtool over generic netlink, with the numbers of `<linux/ethtool_netlink.h>`
//! (`Documentation/networking/ethtool-netlink.rst`, Linux 5.6 and later): the exchange and the settings (features,
//! rings, channels, coalescing) are here; read-only data are in the submodules.

use std::collections::BTreeMap;
use std::io;

use linerate_model::host::{Channels, Coalesce, Feature, Rings};
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Known};

use linerate_model::setting::EthtoolRequest;
use linerate_model::setting::numbers::ethtool::{
    CHANNELS_COMBINED, CHANNELS_RX, CHANNELS_TX, COALESCE_ADAPTIVE_RX, COALESCE_ADAPTIVE_TX,
    COALESCE_RX_FRAMES, COALESCE_RX_USECS, COALESCE_TX_FRAMES, COALESCE_TX_USECS, RINGS_RX,
    RINGS_TX,
};

use super::error::Failure;
use super::message::{Attributes, Request};
use super::socket::{Answer, Connection};
use crate::nic_control::{NicValue, Scalar};

mod facts;
mod fec;
mod flags;
mod linkmodes;
mod linkstate;
mod module;
mod pause;
mod stats;
mod timestamping;
mod tunnels;

/// `GENL_ID_CTRL`: the one family whose number is fixed.
const CONTROL_FAMILY: u16 = 16;
/// `CTRL_CMD_GETFAMILY`, version 2.
const CONTROL_GET_FAMILY: [u8; 4] = [3, 2, 0, 0];
const CONTROL_FAMILY_ID: u16 = 1;
const CONTROL_FAMILY_NAME: u16 = 2;

/// `struct genlmsghdr`: command, version, two reserved bytes.
const GENERIC_HEADER_BYTES: usize = 4;
/// `ETHTOOL_GENL_VERSION`.
const VERSION: u8 = 1;

/// The request numbers (`ETHTOOL_MSG_*` from user to kernel). A wrong one is another request, some of which disrupt a
/// link (27 is a cable test), so a test compares each with the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Command {
    LinkInfoGet = 2,
    LinkModesGet = 4,
    LinkModesSet = 5,
    LinkStateGet = 6,
    FeaturesGet = 11,
    FeaturesSet = 12,
    PrivateFlagsGet = 13,
    PrivateFlagsSet = 14,
    RingsGet = 15,
    RingsSet = 16,
    ChannelsGet = 17,
    ChannelsSet = 18,
    CoalesceGet = 19,
    CoalesceSet = 20,
    PauseGet = 21,
    PauseSet = 22,
    EeeGet = 23,
    EeeSet = 24,
    TimestampingGet = 25,
    TunnelInfoGet = 28,
    FecGet = 29,
    FecSet = 30,
    ModuleEepromGet = 31,
    StatsGet = 32,
}

impl Command {
    /// The attribute that holds the header nest.
    fn header(self) -> u16 {
        match self {
            Self::StatsGet => STATS_HEADER,
            _ => HEADER,
        }
    }
}

/// The header nest is attribute 1 of every ethtool message but one.
const HEADER: u16 = 1;
const STATS_HEADER: u16 = 2;
const HEADER_DEVICE_NAME: u16 = 2;
const HEADER_FLAGS: u16 = 3;
/// `ETHTOOL_FLAG_STATS`: include statistics in the response.
const FLAG_STATISTICS: u32 = 4;

const BITSET_NOMASK: u16 = 1;
const BITSET_BITS: u16 = 3;
const BITS_BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;

const FEATURES_HARDWARE: u16 = 2;
const FEATURES_WANTED: u16 = 3;
const FEATURES_ACTIVE: u16 = 4;
const FEATURES_NOCHANGE: u16 = 5;

const RINGS_RX_MAX: u16 = 2;
const RINGS_TX_MAX: u16 = 5;

const CHANNELS_RX_MAX: u16 = 2;
const CHANNELS_TX_MAX: u16 = 3;
const CHANNELS_COMBINED_MAX: u16 = 5;

/// A generic netlink socket and the ethtool family's number on this kernel.
#[derive(Debug)]
pub(super) struct Ethtool {
    connection: Connection,
    family: Option<u16>,
}

impl Ethtool {
    /// A socket in the network namespace of this thread.
    pub(super) fn open() -> io::Result<Self> {
        let connection = Connection::open(Some(rustix::net::netlink::GENERIC))?;
        Ok(Self {
            connection,
            family: None,
        })
    }

    /// A connection that `script` answers.
    #[cfg(any(test, feature = "fuzz"))]
    pub(super) fn scripted(script: super::script::Script) -> io::Result<Self> {
        Ok(Self {
            connection: Connection::scripted(script)?,
            family: Some(20),
        })
    }

    /// Every offload feature of `nic` by name.
    pub(super) fn features(&mut self, nic: &NicName) -> Result<BTreeMap<String, Feature>, Failure> {
        self.read(Command::FeaturesGet, nic, parse_features)
    }

    /// Sets one feature and verifies the result. On failure the request is withdrawn: otherwise the kernel would set
    /// the feature once the obstacle is gone.
    pub(super) fn set_feature(
        &mut self,
        nic: &NicName,
        feature: &str,
        on: bool,
    ) -> Result<(), Failure> {
        let wanted = self.read(Command::FeaturesGet, nic, |attributes| {
            parse_bitset(&attributes.nest(FEATURES_WANTED)?)
        })?;
        self.want_feature(nic, feature, on)?;
        let now = self.features(nic)?.get(feature).copied();
        if now.is_some_and(|now| now.active == on) {
            return Ok(());
        }
        if wanted.get(feature).copied().unwrap_or(false) != on {
            self.want_feature(nic, feature, !on)?;
        }
        let word = if on { "on" } else { "off" };
        Err(Failure::NotDone(match now {
            Some(now) if now.changeable => {
                format!("`{feature}` is not {word}: the driver or another feature overrides it")
            }
            Some(_) => {
                format!("`{feature}` is unchanged: the driver does not allow changing it")
            }
            None => format!("there is no feature `{feature}`"),
        }))
    }

    fn want_feature(&mut self, nic: &NicName, feature: &str, on: bool) -> Result<(), Failure> {
        self.ask(Command::FeaturesSet, nic, |request| {
            put_bit(request, FEATURES_WANTED, feature, on);
        })
        .map(drop)
    }

    /// Ring sizes.
    pub(super) fn rings(&mut self, nic: &NicName) -> Result<Rings, Failure> {
        self.read(Command::RingsGet, nic, |attributes| {
            parse_rings(attributes, nic)
        })
    }

    /// Queue counts.
    pub(super) fn channels(&mut self, nic: &NicName) -> Result<Channels, Failure> {
        self.read(Command::ChannelsGet, nic, |attributes| {
            parse_channels(attributes, nic)
        })
    }

    /// Interrupt coalescing.
    pub(super) fn coalesce(&mut self, nic: &NicName) -> Result<Coalesce, Failure> {
        self.read(Command::CoalesceGet, nic, |attributes| {
            parse_coalesce(attributes, nic)
        })
    }

    /// Sets one attribute.
    pub(super) fn set_scalar(
        &mut self,
        nic: &NicName,
        request: EthtoolRequest,
        attribute: u16,
        scalar: Scalar,
    ) -> Result<(), Failure> {
        let command = match request {
            EthtoolRequest::LinkModes => Command::LinkModesSet,
            EthtoolRequest::Rings => Command::RingsSet,
            EthtoolRequest::Channels => Command::ChannelsSet,
            EthtoolRequest::Coalesce => Command::CoalesceSet,
            EthtoolRequest::Pause => Command::PauseSet,
            EthtoolRequest::Eee => Command::EeeSet,
        };
        self.ask(command, nic, |request| {
            put_scalar(request, attribute, scalar);
        })
        .map(drop)
    }

    /// Sets one value; rejects values that ethtool does not have.
    pub(super) fn set_value(&mut self, nic: &NicName, value: &NicValue<'_>) -> Result<(), Failure> {
        let command = match value {
            NicValue::TcpDataSplit(_) => Command::RingsSet,
            NicValue::Fec(_) => Command::FecSet,
            NicValue::PrivateFlag(..) => Command::PrivateFlagsSet,
            _ => {
                return Err(Failure::BadInput("not an ethtool netlink value".to_owned()));
            }
        };
        self.ask(command, nic, |request| put_value(request, value))
            .map(drop)
    }

    fn read<T>(
        &mut self,
        command: Command,
        nic: &NicName,
        parse: impl FnOnce(&Attributes<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.read_as(command, nic, 0, |_| (), parse)
    }

    /// Like [`Self::read`], with `flags` in the header and more attributes in the request.
    fn read_as<T>(
        &mut self,
        command: Command,
        nic: &NicName,
        flags: u32,
        fill: impl FnOnce(&mut Request),
        parse: impl FnOnce(&Attributes<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let family = self.family()?;
        let request = request_with(family, command, nic, flags, fill);
        let answers = self.connection.ask(&request)?;
        let answer = answers
            .first()
            .ok_or(Failure::Malformed("no message before the end of the dump"))?;
        parse(&Attributes::after(&answer.body, GENERIC_HEADER_BYTES)?)
    }

    fn ask(
        &mut self,
        command: Command,
        nic: &NicName,
        fill: impl FnOnce(&mut Request),
    ) -> Result<Vec<Answer>, Failure> {
        let family = self.family()?;
        self.connection.ask(&request(family, command, nic, fill))
    }

    /// The family's number. Requesting it by name would make the kernel load a module if there is none, and reading
    /// must change nothing; so all families are listed.
    fn family(&mut self) -> Result<u16, Failure> {
        if let Some(family) = self.family {
            return Ok(family);
        }
        let list = Request::new(CONTROL_FAMILY, &CONTROL_GET_FAMILY);
        for answer in self.connection.dump(&list)? {
            if let Some(family) = parse_ethtool_family(&answer.body)? {
                self.family = Some(family);
            }
        }
        self.family.ok_or(Failure::NoFamily)
    }
}

fn request(
    family: u16,
    command: Command,
    nic: &NicName,
    fill: impl FnOnce(&mut Request),
) -> Request {
    request_with(family, command, nic, 0, fill)
}

fn request_with(
    family: u16,
    command: Command,
    nic: &NicName,
    flags: u32,
    fill: impl FnOnce(&mut Request),
) -> Request {
    let mut request = Request::new(family, &[command as u8, VERSION, 0, 0]);
    request.nest(command.header(), |header| {
        header.put_text(HEADER_DEVICE_NAME, nic.as_str());
        if flags != 0 {
            header.put_u32(HEADER_FLAGS, flags);
        }
    });
    fill(&mut request);
    request
}

/// The number of the family that `body` describes, if it is ethtool.
fn parse_ethtool_family(body: &[u8]) -> Result<Option<u16>, Failure> {
    let attributes = Attributes::after(body, GENERIC_HEADER_BYTES)?;
    if attributes.text(CONTROL_FAMILY_NAME)?.as_deref() != Some("ethtool") {
        return Ok(None);
    }
    attributes.u16(CONTROL_FAMILY_ID)
}

/// The request attributes for `value`.
fn put_value(request: &mut Request, value: &NicValue<'_>) {
    match value {
        NicValue::TcpDataSplit(word) => {
            request.put(flags::TCP_DATA_SPLIT, &[flags::tcp_data_split(word)]);
        }
        NicValue::Fec(modes) => {
            put_list(request, fec::MODES, modes);
            put_switch(request, fec::AUTO, modes.is_empty());
        }
        NicValue::PrivateFlag(name, on) => put_bit(request, flags::FLAGS, name, *on),
        // Unreachable: `set_value` has no command for the others.
        _ => {}
    }
}

/// The attribute of a single value.
fn put_scalar(request: &mut Request, kind: u16, scalar: Scalar) {
    match scalar {
        Scalar::Switch(on) => put_switch(request, kind, on),
        Scalar::Number(number) => {
            request.put_u32(kind, number);
        }
    }
}

fn put_switch(request: &mut Request, kind: u16, on: bool) {
    request.put(kind, &[u8::from(on)]);
}

/// A bitset with exactly these bits.
fn put_list(request: &mut Request, kind: u16, names: &[&str]) {
    request.nest(kind, |bitset| {
        bitset.put(BITSET_NOMASK, &[]);
        bitset.nest(BITSET_BITS, |bits| {
            for name in names {
                bits.nest(BITS_BIT, |bit| {
                    bit.put_text(BIT_NAME, name);
                });
            }
        });
    });
}

/// A bitset with one bit.
fn put_bit(request: &mut Request, kind: u16, name: &str, on: bool) {
    put_bits(request, kind, &[(name, on)]);
}

/// A bitset with some bits, with a mask implied by the list, so that other bits are not changed.
fn put_bits(request: &mut Request, kind: u16, named: &[(&str, bool)]) {
    request.nest(kind, |bitset| {
        bitset.nest(BITSET_BITS, |bits| {
            for (name, on) in named {
                bits.nest(BITS_BIT, |bit| {
                    bit.put_text(BIT_NAME, name);
                    if *on {
                        bit.put(BIT_VALUE, &[]);
                    }
                });
            }
        });
    });
}

fn parse_features(attributes: &Attributes<'_>) -> Result<BTreeMap<String, Feature>, Failure> {
    let active = parse_bitset(&attributes.nest(FEATURES_ACTIVE)?)?;
    let nochange = parse_bitset(&attributes.nest(FEATURES_NOCHANGE)?)?;
    let hardware = parse_bitset(&attributes.nest(FEATURES_HARDWARE)?)?;
    let is_on = |set: &BTreeMap<String, bool>, name: &str| set.get(name) == Some(&true);
    // The hardware's set has a mask of all bits, so it names every feature.
    Ok(hardware
        .iter()
        .map(|(name, switchable)| {
            let feature = Feature {
                active: is_on(&active, name),
                changeable: *switchable && !is_on(&nochange, name),
            };
            (name.clone(), feature)
        })
        .collect())
}

fn parse_bitset(bitset: &Attributes<'_>) -> Result<BTreeMap<String, bool>, Failure> {
    parse_bits(bitset).map(|bits| bits.into_iter().collect())
}

/// The named bits of a bitset in the kernel's order. Without a mask a listed bit is on; with one, its value decides.
fn parse_bits(bitset: &Attributes<'_>) -> Result<Vec<(String, bool)>, Failure> {
    let is_list = bitset.bytes(BITSET_NOMASK).is_some();
    let mut bits = Vec::new();
    for (kind, payload) in bitset.nest(BITSET_BITS)?.iter() {
        if kind != BITS_BIT {
            continue;
        }
        let bit = Attributes::parse(payload)?;
        // Unused bits have an empty name.
        if let Some(name) = bit.text(BIT_NAME)?.filter(|name| !name.is_empty()) {
            bits.push((name, is_list || bit.bytes(BIT_VALUE).is_some()));
        }
    }
    Ok(bits)
}

/// The names of the bits that are on.
fn parse_names(bitset: &Attributes<'_>) -> Result<Vec<String>, Failure> {
    let bits = parse_bits(bitset)?.into_iter();
    Ok(bits.filter_map(|(name, on)| on.then_some(name)).collect())
}

/// A number sent as one byte.
fn byte(attributes: &Attributes<'_>, kind: u16) -> Option<u8> {
    attributes.bytes(kind)?.first().copied()
}

fn parse_rings(attributes: &Attributes<'_>, nic: &NicName) -> Result<Rings, Failure> {
    let size = |kind, name| number(attributes, kind, nic, name);
    Ok(Rings {
        rx: size(RINGS_RX, "rings/rx")?,
        rx_max: size(RINGS_RX_MAX, "rings/rx-max")?,
        tx: size(RINGS_TX, "rings/tx")?,
        tx_max: size(RINGS_TX_MAX, "rings/tx-max")?,
    })
}

fn parse_channels(attributes: &Attributes<'_>, nic: &NicName) -> Result<Channels, Failure> {
    let count = |kind, name| number(attributes, kind, nic, name);
    Ok(Channels {
        rx: count(CHANNELS_RX, "channels/rx")?,
        tx: count(CHANNELS_TX, "channels/tx")?,
        combined: count(CHANNELS_COMBINED, "channels/combined")?,
        rx_max: count(CHANNELS_RX_MAX, "channels/rx-max")?,
        tx_max: count(CHANNELS_TX_MAX, "channels/tx-max")?,
        combined_max: count(CHANNELS_COMBINED_MAX, "channels/combined-max")?,
    })
}

fn parse_coalesce(attributes: &Attributes<'_>, nic: &NicName) -> Result<Coalesce, Failure> {
    let switch = |kind, name| attributes.switch(kind).map(|value| said(value, nic, name));
    Ok(Coalesce {
        rx_usecs: number(attributes, COALESCE_RX_USECS, nic, "coalesce/rx-usecs")?,
        tx_usecs: number(attributes, COALESCE_TX_USECS, nic, "coalesce/tx-usecs")?,
        adaptive_rx: switch(COALESCE_ADAPTIVE_RX, "coalesce/adaptive-rx")?,
        adaptive_tx: switch(COALESCE_ADAPTIVE_TX, "coalesce/adaptive-tx")?,
        rx_frames: number(attributes, COALESCE_RX_FRAMES, nic, "coalesce/rx-frames")?,
        tx_frames: number(attributes, COALESCE_TX_FRAMES, nic, "coalesce/tx-frames")?,
    })
}

fn number(
    attributes: &Attributes<'_>,
    kind: u16,
    nic: &NicName,
    what: &str,
) -> Result<Known<u32>, Failure> {
    Ok(said(attributes.u32(kind)?, nic, what))
}

/// A field of a response; the driver omits fields that it does not have.
fn said<T>(value: Option<T>, nic: &NicName, what: &str) -> Known<T> {
    value.map_or_else(
        || {
            Known::unknown(
                Cause::Absent,
                format!("netlink/ethtool/{nic}/{what}"),
                "not supported by the driver",
            )
        },
        Known::Value,
    )
}

#[cfg(test)]
mod tests;
