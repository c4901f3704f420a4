//! The driver's private flags (`ETHTOOL_MSG_PRIVFLAGS_GET`), and whether headers are split from data
//! (`ETHTOOL_MSG_RINGS_GET`).

use std::collections::BTreeMap;

use linerate_model::ids::NicName;
use linerate_model::known::Known;

use super::{Command, Ethtool, byte, parse_bitset, said};
use crate::netlink::error::Failure;
use crate::netlink::message::Attributes;

/// `ETHTOOL_A_PRIVFLAGS_FLAGS`.
pub(super) const FLAGS: u16 = 2;
/// `ETHTOOL_A_RINGS_TCP_DATA_SPLIT`.
pub(super) const TCP_DATA_SPLIT: u16 = 11;

impl Ethtool {
    /// The private flags by the driver's own names.
    pub(in crate::netlink) fn private_flags(
        &mut self,
        nic: &NicName,
    ) -> Result<BTreeMap<String, bool>, Failure> {
        self.read(Command::PrivateFlagsGet, nic, |attributes| {
            parse_bitset(&attributes.nest(FLAGS)?)
        })
    }

    /// Whether the NIC splits headers from data.
    pub(in crate::netlink) fn tcp_data_split(
        &mut self,
        nic: &NicName,
    ) -> Result<Known<String>, Failure> {
        self.read(Command::RingsGet, nic, |attributes| {
            Ok(parse_tcp_data_split(attributes, nic))
        })
    }
}

/// `ETHTOOL_TCP_DATA_SPLIT_*` for a word; `auto` is 0.
pub(super) fn tcp_data_split(word: &str) -> u8 {
    match word {
        "off" => 1,
        "on" => 2,
        _ => 0,
    }
}

/// `ETHTOOL_TCP_DATA_SPLIT_*`; the kernel leaves "unknown" (0) out.
pub(super) fn parse_tcp_data_split(attributes: &Attributes<'_>, nic: &NicName) -> Known<String> {
    let word = match byte(attributes, TCP_DATA_SPLIT) {
        Some(1) => Some("off".to_owned()),
        Some(2) => Some("on".to_owned()),
        _ => None,
    };
    said(word, nic, "rings/tcp-data-split")
}
