//! Link modes: supported, advertised and link partner modes, and the current state (`ETHTOOL_MSG_LINKMODES_GET`,
//! `ETHTOOL_MSG_LINKINFO_GET`); and setting autonegotiation and speed (`ETHTOOL_MSG_LINKMODES_SET`).

use linerate_model::host::LinkModes;
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Known};
use linerate_model::setting::numbers::ethtool::LINK_AUTONEG;
use linerate_model::setting::{LinkSpeed, is_speed};
use linerate_model::units::BitRate;

use super::{Command, Ethtool, byte, parse_bits, parse_names, put_bits, put_switch, said};
use crate::netlink::error::Failure;
use crate::netlink::message::{Attributes, Request};
use crate::netlink::{NO_DRIVER, known};

pub(super) const OURS: u16 = 3;
pub(super) const PEER: u16 = 4;
pub(super) const SPEED: u16 = 5;
pub(super) const DUPLEX: u16 = 6;
pub(super) const LANES: u16 = 9;
/// `ETHTOOL_A_LINKINFO_PORT`.
pub(super) const PORT: u16 = 2;

/// `SPEED_UNKNOWN`.
const SPEED_UNKNOWN: u32 = u32::MAX;

impl Ethtool {
    /// Link modes, speed, duplex, lanes and port type.
    pub(in crate::netlink) fn modes(&mut self, nic: &NicName) -> Result<LinkModes, Failure> {
        let mut modes = self.read(Command::LinkModesGet, nic, |attributes| {
            parse_modes(attributes, nic)
        })?;
        let port = self.read(Command::LinkInfoGet, nic, |attributes| {
            Ok(parse_port(attributes, nic))
        });
        let path = format!("netlink/ethtool/{nic}/port");
        modes.port = known(port, path, NO_DRIVER).and_then(|port| port);
        Ok(modes)
    }

    /// Sets autonegotiation, speed and duplex in one request: drivers check them together. Other advertised bits
    /// (pause, port type) are kept.
    pub(in crate::netlink) fn set_link(
        &mut self,
        nic: &NicName,
        speed: &LinkSpeed,
    ) -> Result<(), Failure> {
        let now = self.read(Command::LinkModesGet, nic, |attributes| {
            parse_modes(attributes, nic)
        })?;
        // Kernels ignore modes that a port does not have.
        if let LinkSpeed::Negotiated(offered) = speed
            && let Some(mode) = offered.iter().find(|mode| !now.supported.contains(mode))
        {
            let why = format!("the port has no mode `{mode}`");
            return Err(Failure::BadInput(why));
        }
        self.ask(Command::LinkModesSet, nic, |request| {
            put_link(request, speed, &now.supported);
        })
        .map(drop)
    }
}

/// The link settings of a request for a port with these modes.
pub(super) fn put_link(request: &mut Request, speed: &LinkSpeed, supported: &[String]) {
    match speed {
        LinkSpeed::Negotiated(offered) => {
            put_switch(request, LINK_AUTONEG, true);
            let speeds = supported.iter().filter(|mode| is_speed(mode));
            let bits: Vec<(&str, bool)> = speeds
                .map(|mode| (mode.as_str(), offered.contains(mode)))
                .collect();
            put_bits(request, OURS, &bits);
        }
        LinkSpeed::Forced {
            mbit_per_s,
            full_duplex,
        } => {
            put_switch(request, LINK_AUTONEG, false);
            request.put_u32(SPEED, *mbit_per_s);
            put_switch(request, DUPLEX, *full_duplex);
        }
    }
}

/// Everything but the port type.
pub(super) fn parse_modes(
    attributes: &Attributes<'_>,
    nic: &NicName,
) -> Result<LinkModes, Failure> {
    let ours = parse_bits(&attributes.nest(OURS)?)?;
    let offered = ours.iter().filter(|(_, offered)| *offered);
    Ok(LinkModes {
        autoneg: said(
            byte(attributes, LINK_AUTONEG).map(|on| on != 0),
            nic,
            "modes/autoneg",
        ),
        speed_bit_per_s: speed(attributes.u32(SPEED)?, nic),
        duplex: duplex(byte(attributes, DUPLEX), nic),
        lanes: said(attributes.u32(LANES)?, nic, "modes/lanes"),
        advertised: offered.map(|(name, _)| name.clone()).collect(),
        supported: ours.iter().map(|(name, _)| name.clone()).collect(),
        partner: parse_names(&attributes.nest(PEER)?)?,
        port: Known::not_asked(format!("netlink/ethtool/{nic}/port")),
    })
}

fn speed(mbit_per_s: Option<u32>, nic: &NicName) -> Known<BitRate> {
    match mbit_per_s {
        // A driver without a link reports 0 or "unknown".
        Some(0 | SPEED_UNKNOWN) => {
            not_said(nic, "speed", "the driver does not know the current speed")
        }
        speed => {
            said(speed, nic, "modes/speed").map(|mbit| BitRate::from_mbit_per_s(u64::from(mbit)))
        }
    }
}

/// `DUPLEX_HALF`, `DUPLEX_FULL`, otherwise unknown.
fn duplex(duplex: Option<u8>, nic: &NicName) -> Known<String> {
    match duplex {
        Some(0) => Known::Value("half".to_owned()),
        Some(1) => Known::Value("full".to_owned()),
        Some(_) => not_said(nic, "duplex", "the driver does not know the current duplex"),
        None => said(None, nic, "modes/duplex"),
    }
}

fn not_said<T>(nic: &NicName, what: &str, why: &str) -> Known<T> {
    let path = format!("netlink/ethtool/{nic}/modes/{what}");
    Known::unknown(Cause::NotSaid, path, why)
}

/// `PORT_*` of `<linux/ethtool.h>`, as ethtool(8) prints them.
pub(super) fn parse_port(attributes: &Attributes<'_>, nic: &NicName) -> Known<String> {
    said(byte(attributes, PORT), nic, "port").map(|port| {
        match port {
            0x00 => "Twisted Pair",
            0x01 => "AUI",
            0x02 => "MII",
            0x03 => "FIBRE",
            0x04 => "BNC",
            0x05 => "Direct Attach Copper",
            0xef => "None",
            0xff => "Other",
            port => return format!("port kind {port}"),
        }
        .to_owned()
    })
}
