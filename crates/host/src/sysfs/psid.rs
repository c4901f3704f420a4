//! The parameter-set ID (PSID) of an NVIDIA NIC. devlink reports it as `fw.psid`; older kernels only in the firmware
//! version of `ETHTOOL_GDRVINFO`, in parentheses (`mlx5e_ethtool_get_drvinfo`).

use linerate_model::host::Card;
use linerate_model::known::{Cause, Known};

const OTHER: &str = "only NVIDIA NICs have a PSID";
const NOT_SAID: &str = "the driver does not report the PSID";

/// The PSID according to the driver and its firmware version.
pub(crate) fn psid_of_firmware(card: &Card) -> Known<String> {
    let path = || card.firmware.gap().map_or("driver", |gap| &gap.path);
    let unknown = |cause, why: &str| Known::unknown(cause, path(), why);
    match (&card.driver, &card.firmware) {
        (Known::Value(driver), _) if !driver.starts_with("mlx") => {
            unknown(Cause::Inapplicable, OTHER)
        }
        (_, Known::Value(firmware)) => parse_psid(firmware).map_or_else(
            || unknown(Cause::NotSaid, NOT_SAID),
            |psid| Known::Value(psid.to_owned()),
        ),
        (_, Known::Unknown(gap)) => Known::Unknown(gap.clone()),
    }
}

/// `MT_0000000011` of `16.35.2000 (MT_0000000011)`.
pub(crate) fn parse_psid(firmware: &str) -> Option<&str> {
    let (_, rest) = firmware.rsplit_once('(')?;
    let (psid, _) = rest.split_once(')')?;
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (!psid.is_empty() && psid.chars().all(is_part)).then_some(psid)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_psid_stands_in_parentheses_behind_the_version() {
        let psid = parse_psid("12.28.1002 (LNV2190110032)");
        assert_eq!(psid, Some("LNV2190110032"));
        assert_eq!(parse_psid("12.28.1002"), None);
        assert_eq!(parse_psid("0x80000d00 (1.1 beta)"), None);
    }

    #[test]
    fn another_vendors_card_has_no_psid_and_that_is_no_gap() {
        let card = Card {
            driver: Known::Value("ice".to_owned()),
            firmware: Known::Value("4.20 (0x80017785)".to_owned()),
            ..Card::default()
        };
        let cause = psid_of_firmware(&card).gap().map(|gap| gap.cause);
        assert_eq!(cause, Some(Cause::Inapplicable));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[()A-Z_ ]{0,24}|.{0,24}") {
            let _ = parse_psid(&text);
        }
    }
}
