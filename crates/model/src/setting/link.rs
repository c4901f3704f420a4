//! The speed setting of a port as text: autonegotiation with the advertised modes, or a forced speed. The two belong
//! together, as in the kernel (`ETHTOOL_MSG_LINKMODES_SET`).

use std::fmt;

use crate::host::LinkModes;
use crate::known::{Cause, Gap, Known};

/// The prefix of the modes of a port with autonegotiation.
const AUTO: &str = "auto";
/// A forced speed that the driver does not report, as some do without a link.
const FORCED: &str = "forced";

/// Autonegotiation or a forced speed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkSpeed {
    /// Autonegotiation: the modes that this end advertises, by the kernel's names (`1000baseT/Full`), the slowest
    /// first.
    Negotiated(Vec<String>),
    /// Forced, Mb/s.
    Forced {
        /// Mb/s.
        mbit_per_s: u32,
        /// Whether it is full duplex.
        full_duplex: bool,
    },
}

impl LinkSpeed {
    /// The modes that are speeds; the others are flags and port types (`Autoneg`, `Pause`, `FIBRE`, `RS`).
    pub fn negotiated(modes: impl IntoIterator<Item = String>) -> Self {
        let mut modes: Vec<String> = modes.into_iter().filter(|mode| is_speed(mode)).collect();
        modes.sort_by_cached_key(|mode| (speed_of(mode), mode.clone()));
        modes.dedup();
        Self::Negotiated(modes)
    }

    /// Parses `words`, the text form of [`LinkSpeed`].
    pub fn parse(words: &str) -> Option<Self> {
        let mut words = words.split_whitespace();
        let first = words.next()?;
        if first == AUTO {
            let modes: Vec<String> = words.map(str::to_owned).collect();
            let all_are_speeds = !modes.is_empty() && modes.iter().all(|mode| is_speed(mode));
            return all_are_speeds.then(|| Self::negotiated(modes));
        }
        let mbit_per_s = first
            .parse()
            .ok()
            .filter(|mbit| (1..u32::MAX).contains(mbit))?;
        let full_duplex = match (words.next()?, words.next()) {
            ("full", None) => true,
            ("half", None) => false,
            _ => return None,
        };
        Some(Self::Forced {
            mbit_per_s,
            full_duplex,
        })
    }
}

impl LinkSpeed {
    /// Whether `found` is how some drivers set a forced speed that requires autonegotiation, such as 1000BASE-T (IEEE
    /// 802.3, 40.5.1): they advertise only that speed.
    pub fn is_offered_alone(&self, found: &Self) -> bool {
        match (self, found) {
            (Self::Forced { mbit_per_s, .. }, Self::Negotiated(modes)) => {
                let alone = |mode: &String| speed_of(mode) == Some(*mbit_per_s);
                !modes.is_empty() && modes.iter().all(alone)
            }
            _ => false,
        }
    }
}

impl fmt::Display for LinkSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Negotiated(modes) => {
                f.write_str(AUTO)?;
                modes.iter().try_for_each(|mode| write!(f, " {mode}"))
            }
            Self::Forced {
                mbit_per_s,
                full_duplex,
            } => {
                let duplex = if *full_duplex { "full" } else { "half" };
                write!(f, "{mbit_per_s} {duplex}")
            }
        }
    }
}

/// The speed in a mode's name, Mb/s.
fn speed_of(mode: &str) -> Option<u32> {
    let (speed, _) = mode.split_once("base")?;
    speed.parse().ok()
}

/// Whether the mode is a speed.
pub fn is_speed(mode: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/_-.".contains(&b);
    speed_of(mode).is_some() && mode.bytes().all(plain)
}

/// The speed setting as text. A forced speed that the driver does not report at present is `forced`: readable, but
/// not settable.
pub fn link_words(modes: &LinkModes) -> Known<String> {
    modes.autoneg.clone().and_then(|negotiates| {
        if negotiates {
            let offered = LinkSpeed::negotiated(modes.advertised.iter().cloned());
            return Known::Value(offered.to_string());
        }
        let is_silent = |gap: &Gap| gap.cause == Cause::NotSaid;
        match (&modes.speed_bit_per_s, &modes.duplex) {
            (Known::Value(speed), Known::Value(duplex)) => {
                let mbit = speed.as_bit_per_s() / 1_000_000;
                Known::Value(format!("{mbit} {duplex}"))
            }
            (Known::Unknown(gap), _) | (_, Known::Unknown(gap)) if !is_silent(gap) => {
                Known::Unknown(gap.clone())
            }
            _ => Known::Value(FORCED.to_owned()),
        }
    })
}

/// Whether it is a forced speed that the driver does not report at present.
pub fn is_untold(words: &str) -> bool {
    words == FORCED
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::units::BitRate;

    fn modes(autoneg: bool, speed: Known<BitRate>) -> LinkModes {
        LinkModes {
            autoneg: Known::Value(autoneg),
            speed_bit_per_s: speed,
            duplex: Known::Value("full".to_owned()),
            lanes: Known::not_asked("lanes"),
            supported: Vec::new(),
            advertised: [
                "10baseT/Full",
                "Autoneg",
                "TP",
                "1000baseT/Full",
                "100baseT/Full",
            ]
            .map(str::to_owned)
            .to_vec(),
            partner: Vec::new(),
            port: Known::not_asked("port"),
        }
    }

    #[test]
    fn a_port_that_negotiates_tells_what_it_offers_and_a_forced_one_its_speed() {
        let speed = || Known::Value(BitRate::from_mbit_per_s(1_000));
        let words = |modes: &LinkModes| link_words(modes).value().cloned().expect("known");
        let offered = "auto 10baseT/Full 100baseT/Full 1000baseT/Full";
        assert_eq!(words(&modes(true, speed())), offered);
        assert_eq!(words(&modes(false, speed())), "1000 full");
        let silent = || Known::unknown(Cause::NotSaid, "speed", "no link");
        assert_eq!(words(&modes(true, silent())), offered);
        let untold = words(&modes(false, silent()));
        assert_eq!(untold, FORCED);
        assert_eq!(LinkSpeed::parse(&untold), None, "it could not be put back");
        let absent = Known::unknown(Cause::Absent, "speed", "not offered");
        assert!(link_words(&modes(false, absent)).gap().is_some());
    }

    #[test]
    fn what_is_neither_modes_nor_a_speed_with_its_duplex_is_refused() {
        for wrong in [
            "",
            "auto",
            "auto fast",
            "auto 1000",
            "1000",
            "1000 both",
            "0 full",
            "-1 full",
            "1000 full 1",
            "4294967295 full",
            "forced",
            "auto 1000baseT/Full Pause",
        ] {
            assert_eq!(LinkSpeed::parse(wrong), None, "{wrong}");
        }
        let twice = LinkSpeed::parse("auto 1000baseT/Full  10baseT/Half 1000baseT/Full");
        let twice = twice.expect("modes").to_string();
        assert_eq!(twice, "auto 10baseT/Half 1000baseT/Full");
    }

    #[test]
    fn a_speed_that_is_offered_alone_is_no_other() {
        let speed = |words: &str| LinkSpeed::parse(words).expect(words);
        let alone = |found| speed("1000 full").is_offered_alone(&speed(found));
        assert!(alone("auto 1000baseT/Full"));
        assert!(!alone("auto 100baseT/Full 1000baseT/Full"));
        assert!(!alone("1000 full"));
        assert!(!alone("auto 10000baseT/Full"));
    }

    fn any_speed() -> impl Strategy<Value = LinkSpeed> {
        let mode = "[1-9][0-9]{0,5}base[A-Z]{1,3}[0-9]?/(Full|Half)";
        prop_oneof![
            prop::collection::vec(mode, 1..6).prop_map(LinkSpeed::negotiated),
            (1..u32::MAX, any::<bool>()).prop_map(|(mbit_per_s, full_duplex)| {
                LinkSpeed::Forced {
                    mbit_per_s,
                    full_duplex,
                }
            }),
        ]
    }

    proptest! {
        #[test]
        fn a_speed_is_what_its_words_tell(speed in any_speed()) {
            prop_assert_eq!(LinkSpeed::parse(&speed.to_string()), Some(speed));
        }

        #[test]
        fn no_words_panic(words in "[0-9a-z/ ]{0,24}") {
            let _ = LinkSpeed::parse(&words);
        }
    }
}
