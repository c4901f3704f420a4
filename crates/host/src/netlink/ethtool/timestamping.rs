//! Timestamping (`ETHTOOL_MSG_TSINFO_GET`).

use linerate_model::host::Timestamping;
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Known};

use super::{Command, Ethtool, parse_names};
use crate::netlink::error::Failure;
use crate::netlink::message::Attributes;

pub(super) const CAPABILITIES: u16 = 2;
pub(super) const TX_TYPES: u16 = 3;
pub(super) const RX_FILTERS: u16 = 4;
pub(super) const PHC_INDEX: u16 = 5;

impl Ethtool {
    /// Which packets can be timestamped, and by which clock.
    pub(super) fn timestamping(&mut self, nic: &NicName) -> Result<Timestamping, Failure> {
        self.read(Command::TimestampingGet, nic, |attributes| {
            parse_timestamping(attributes, nic)
        })
    }
}

pub(super) fn parse_timestamping(
    attributes: &Attributes<'_>,
    nic: &NicName,
) -> Result<Timestamping, Failure> {
    let names = |kind| parse_names(&attributes.nest(kind)?);
    Ok(Timestamping {
        capabilities: names(CAPABILITIES)?,
        tx_types: names(TX_TYPES)?,
        rx_filters: names(RX_FILTERS)?,
        phc_index: attributes.u32(PHC_INDEX)?.map_or_else(
            || {
                Known::unknown(
                    Cause::Absent,
                    format!("netlink/ethtool/{nic}/timestamping/phc-index"),
                    "no PTP hardware clock",
                )
            },
            Known::Value,
        ),
    })
}
