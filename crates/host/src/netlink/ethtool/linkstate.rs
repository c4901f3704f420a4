//! Link state and the reason for no link (`ETHTOOL_MSG_LINKSTATE_GET`; reasons by the numbers of `enum
//! ethtool_link_ext_state` in `<linux/ethtool.h>`).

use linerate_model::host::LinkState;
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Known};

use super::{Command, Ethtool, byte, said};
use crate::netlink::error::Failure;
use crate::netlink::message::Attributes;

pub(super) const LINK: u16 = 2;
pub(super) const QUALITY: u16 = 3;
pub(super) const QUALITY_MAX: u16 = 4;
pub(super) const REASON: u16 = 5;
pub(super) const DETAIL: u16 = 6;
/// `ETHTOOL_A_LINKSTATE_EXT_DOWN_CNT`, since Linux 6.2.
pub(super) const DOWN_COUNT: u16 = 7;

/// `ETHTOOL_LINK_EXT_STATE_*` in order, each with its `ETHTOOL_LINK_EXT_SUBSTATE_*` from 1.
const REASONS: [(&str, &[&str]); 13] = [
    (
        "Autoneg",
        &[
            "No partner detected",
            "Ack not received",
            "Next page exchange failed",
            "No partner detected during force mode",
            "FEC mismatch during override",
            "No HCD",
        ],
    ),
    (
        "Link training failure",
        &[
            "KR frame lock not acquired",
            "KR link inhibit timeout",
            "KR Link partner did not set receiver ready",
            "Remote side is not ready yet",
        ],
    ),
    (
        "Logical mismatch",
        &[
            "PCS did not acquire block lock",
            "PCS did not acquire AM lock",
            "PCS did not get align_status",
            "FC FEC is not locked",
            "RS FEC is not locked",
        ],
    ),
    (
        "Bad signal integrity",
        &[
            "Large number of physical errors",
            "Unsupported rate",
            "Serdes reference clock lost",
            "Serdes ALOS",
        ],
    ),
    ("No cable", &[]),
    ("Cable issue", &["Unsupported cable", "Cable test failure"]),
    ("EEPROM issue", &[]),
    ("Calibration failure", &[]),
    ("Power budget exceeded", &[]),
    ("Overheat", &[]),
    ("Module", &["CMIS module is not in ModuleReady state"]),
    ("OTP speed violation", &[]),
    ("BMC request down", &[]),
];

impl Ethtool {
    /// Link state, and the reason for no link.
    pub(super) fn state(&mut self, nic: &NicName) -> Result<LinkState, Failure> {
        self.read(Command::LinkStateGet, nic, |attributes| {
            parse_state(attributes, nic)
        })
    }

    /// How often the link went down, as counted by the PHY or the firmware.
    pub(super) fn link_counts(&mut self, nic: &NicName) -> Result<Vec<(String, u64)>, Failure> {
        self.read_as(
            Command::LinkStateGet,
            nic,
            super::FLAG_STATISTICS,
            |_| (),
            |attributes| {
                let downs = attributes.u32(DOWN_COUNT)?;
                let counted = downs.map(|downs| ("ext_down_cnt".to_owned(), u64::from(downs)));
                Ok(counted.into_iter().collect())
            },
        )
    }
}

pub(super) fn parse_state(
    attributes: &Attributes<'_>,
    nic: &NicName,
) -> Result<LinkState, Failure> {
    let link = byte(attributes, LINK).map(|link| link != 0);
    let (quality, most) = (attributes.u32(QUALITY)?, attributes.u32(QUALITY_MAX)?);
    let reason = byte(attributes, REASON);
    let detail = byte(attributes, DETAIL);
    let or_none = |words: Option<String>, what: &str| {
        let path = || format!("netlink/ethtool/{nic}/state/{what}");
        match words {
            Some(words) => Known::Value(words),
            None if link == Some(true) => Known::unknown(Cause::Absent, path(), "the link is up"),
            None => Known::unknown(Cause::NotSaid, path(), "the driver gives no reason"),
        }
    };
    Ok(LinkState {
        link: said(link, nic, "state/link"),
        extended_state: or_none(reason.map(reason_words), "extended-state"),
        extended_substate: or_none(
            reason
                .zip(detail)
                .map(|(reason, detail)| detail_words(reason, detail)),
            "extended-substate",
        ),
        signal_quality: said(quality.zip(most), nic, "state/signal-quality"),
    })
}

fn reason_words(reason: u8) -> String {
    REASONS.get(usize::from(reason)).map_or_else(
        || format!("reason {reason}"),
        |(words, _)| (*words).to_owned(),
    )
}

fn detail_words(reason: u8, detail: u8) -> String {
    let details = REASONS.get(usize::from(reason)).map(|(_, details)| details);
    let words = usize::from(detail)
        .checked_sub(1)
        .and_then(|at| details?.get(at));
    words.map_or_else(|| format!("detail {detail}"), |words| (*words).to_owned())
}
