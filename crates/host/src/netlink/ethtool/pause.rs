//! Pause (`ETHTOOL_MSG_PAUSE_GET`) and energy-efficient Ethernet (`ETHTOOL_MSG_EEE_GET`).

use linerate_model::host::{Eee, Pause};
use linerate_model::ids::NicName;
use linerate_model::setting::numbers::ethtool::{EEE_ENABLED, PAUSE_AUTONEG, PAUSE_RX, PAUSE_TX};

use super::{Command, Ethtool, FLAG_STATISTICS, byte, said};
use crate::netlink::error::Failure;
use crate::netlink::message::Attributes;

pub(super) const STATISTICS: u16 = 5;
pub(super) const TX_FRAMES: u16 = 2;
pub(super) const RX_FRAMES: u16 = 3;
pub(super) const EEE_ACTIVE: u16 = 4;

impl Ethtool {
    /// Pause parameters.
    pub(in crate::netlink) fn pause(&mut self, nic: &NicName) -> Result<Pause, Failure> {
        self.read(Command::PauseGet, nic, |attributes| {
            Ok(parse_pause(attributes, nic))
        })
    }

    /// Pause frames sent and received.
    pub(super) fn pause_counts(&mut self, nic: &NicName) -> Result<Vec<(String, u64)>, Failure> {
        self.read_as(
            Command::PauseGet,
            nic,
            FLAG_STATISTICS,
            |_| (),
            parse_pause_counts,
        )
    }

    /// Energy-efficient Ethernet.
    pub(in crate::netlink) fn eee(&mut self, nic: &NicName) -> Result<Eee, Failure> {
        self.read(Command::EeeGet, nic, |attributes| {
            Ok(parse_eee(attributes, nic))
        })
    }
}

pub(super) fn parse_pause(attributes: &Attributes<'_>, nic: &NicName) -> Pause {
    let switch = |kind, what| said(byte(attributes, kind).map(|on| on != 0), nic, what);
    Pause {
        autoneg: switch(PAUSE_AUTONEG, "pause/autoneg"),
        rx: switch(PAUSE_RX, "pause/rx"),
        tx: switch(PAUSE_TX, "pause/tx"),
    }
}

pub(super) fn parse_pause_counts(
    attributes: &Attributes<'_>,
) -> Result<Vec<(String, u64)>, Failure> {
    let statistics = attributes.nest(STATISTICS)?;
    let mut counts = Vec::new();
    for (name, kind) in [("tx-frames", TX_FRAMES), ("rx-frames", RX_FRAMES)] {
        counts.extend(
            statistics
                .u64(kind)?
                .map(|frames| (name.to_owned(), frames)),
        );
    }
    Ok(counts)
}

pub(super) fn parse_eee(attributes: &Attributes<'_>, nic: &NicName) -> Eee {
    let switch = |kind, what| said(byte(attributes, kind).map(|on| on != 0), nic, what);
    Eee {
        enabled: switch(EEE_ENABLED, "eee/enabled"),
        active: switch(EEE_ACTIVE, "eee/active"),
    }
}
