//! Forward error correction and its statistics (`ETHTOOL_MSG_FEC_GET`).

use linerate_model::host::Fec;
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Known};

use super::{Command, Ethtool, FLAG_STATISTICS, byte, parse_names, said};
use crate::netlink::error::Failure;
use crate::netlink::message::Attributes;

pub(super) const MODES: u16 = 2;
pub(super) const AUTO: u16 = 3;
pub(super) const ACTIVE: u16 = 4;
pub(super) const STATISTICS: u16 = 5;
pub(super) const CORRECTED: u16 = 2;
pub(super) const UNCORRECTABLE: u16 = 3;
pub(super) const CORRECTED_BITS: u16 = 4;

impl Ethtool {
    /// The active and the configured modes.
    pub(in crate::netlink) fn fec(&mut self, nic: &NicName) -> Result<Fec, Failure> {
        self.read(Command::FecGet, nic, |attributes| {
            parse_fec(attributes, nic)
        })
    }

    /// Corrected blocks and bits, uncorrectable blocks.
    pub(super) fn fec_counts(&mut self, nic: &NicName) -> Result<Vec<(String, u64)>, Failure> {
        self.read_as(
            Command::FecGet,
            nic,
            FLAG_STATISTICS,
            |_| (),
            parse_fec_counts,
        )
    }
}

pub(super) fn parse_fec(attributes: &Attributes<'_>, nic: &NicName) -> Result<Fec, Failure> {
    let active = match attributes.u32(ACTIVE)? {
        Some(bit) => Known::Value(active_name(bit)),
        None => Known::unknown(
            Cause::NotSaid,
            format!("netlink/ethtool/{nic}/fec/active"),
            "the driver reports none, for example while the link is down",
        ),
    };
    Ok(Fec {
        active,
        configured: parse_names(&attributes.nest(MODES)?)?,
        auto: said(byte(attributes, AUTO).map(|on| on != 0), nic, "fec/auto"),
    })
}

/// The active mode is sent as the number of its link mode (`ETHTOOL_LINK_MODE_FEC_*_BIT` of `<linux/ethtool.h>`),
/// without its name.
fn active_name(bit: u32) -> String {
    match bit {
        49 => "None",
        50 => "RS",
        51 => "BASER",
        74 => "LLRS",
        bit => return format!("link mode {bit}"),
    }
    .to_owned()
}

/// Each counter is an array: the sum, followed by the lanes if the driver counts them.
pub(super) fn parse_fec_counts(attributes: &Attributes<'_>) -> Result<Vec<(String, u64)>, Failure> {
    let statistics = attributes.nest(STATISTICS)?;
    let mut counts = Vec::new();
    for (name, kind) in [
        ("corrected", CORRECTED),
        ("uncorrectable", UNCORRECTABLE),
        ("corrected-bits", CORRECTED_BITS),
    ] {
        // A counter that the driver does not have is an empty array.
        if statistics.bytes(kind).is_some_and(|list| !list.is_empty()) {
            counts.extend(statistics.u64(kind)?.map(|sum| (name.to_owned(), sum)));
        }
    }
    Ok(counts)
}
