//! Units as types: one newtype per dimension with an integer inside, and the unit in the name of every constructor
//! and accessor; conversion between dimensions is a named function.
//!
//! Display always prints the unit (rates with SI prefixes, sizes with IEC prefixes); parsing requires one, but for
//! bytes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Why a quantity could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {what}: {fault}, for example `{example}`")]
pub struct UnitError {
    text: String,
    /// The expected dimension.
    what: &'static str,
    fault: Fault,
    /// Valid input.
    example: &'static str,
}

/// What is wrong with a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Fault {
    #[error("it must start with a number")]
    NoNumber,
    #[error("it has no unit; use {0}")]
    NoUnit(&'static str),
    #[error("unknown unit `{unit}`; use {units}")]
    WrongUnit { unit: String, units: &'static str },
    #[error("it is too large")]
    TooLarge,
}

/// A count of bytes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(u64);

impl Bytes {
    /// A size of `count` bytes.
    pub const fn new(count: u64) -> Self {
        Self(count)
    }
    /// A size of `count` KiB (1024 bytes each).
    pub const fn kib(count: u64) -> Self {
        Self(count * 1024)
    }
    /// A size of `count` MiB.
    pub const fn mib(count: u64) -> Self {
        Self(count * 1024 * 1024)
    }
    /// The number of bytes.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const STEPS: [(u64, &str); 4] = [
            (1 << 40, "TiB"),
            (1 << 30, "GiB"),
            (1 << 20, "MiB"),
            (1 << 10, "KiB"),
        ];
        for (size, name) in STEPS {
            // Settings and capacities are round: `16 KiB`, not `16.00 KiB`.
            if self.0 >= size && self.0.is_multiple_of(size) {
                return write!(f, "{} {name}", self.0 / size);
            }
            if self.0 >= size {
                return write!(f, "{} {name}", three_digits(ratio(self.0, size)));
            }
        }
        write!(f, "{} B", self.0)
    }
}

impl FromStr for Bytes {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        const UNITS: [(&str, u64); 19] = [
            ("", 1),
            ("KiB", 1 << 10),
            ("MiB", 1 << 20),
            ("GiB", 1 << 30),
            ("TiB", 1 << 40),
            ("K", 1 << 10),
            ("M", 1 << 20),
            ("G", 1 << 30),
            ("T", 1 << 40),
            ("k", 1 << 10),
            ("m", 1 << 20),
            ("g", 1 << 30),
            ("t", 1 << 40),
            ("kB", 1_000),
            ("KB", 1_000),
            ("MB", 1_000_000),
            ("GB", 1_000_000_000),
            ("TB", 1_000_000_000_000),
            ("B", 1),
        ];
        let factor = |unit: &str| Some(UNITS.iter().find(|(name, _)| *name == unit)?.1);
        let parsed = parse_with_unit(text, "B, kB, MB, GB, TB, KiB, MiB, GiB or TiB", factor);
        parsed.map(Self).map_err(|fault| UnitError {
            text: text.to_owned(),
            what: "size",
            fault,
            example: "128KiB",
        })
    }
}

/// A rate in bits per second.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct BitRate(u64);

impl BitRate {
    /// A rate of `rate` bit/s.
    pub const fn from_bit_per_s(rate: u64) -> Self {
        Self(rate)
    }
    /// A rate of `rate` Mb/s (10^6 bit/s).
    pub const fn from_mbit_per_s(rate: u64) -> Self {
        Self(rate * 1_000_000)
    }
    /// The rate for `bytes` in `time`; `None` if `time` is 0.
    pub fn of(bytes: Bytes, time: Nanoseconds) -> Option<Self> {
        let per_second = u128::from(bytes.0) * 8 * 1_000_000_000;
        per_second
            .checked_div(u128::from(time.0))
            .and_then(|r| u64::try_from(r).ok())
            .map(Self)
    }
    /// The rate in bit/s.
    pub const fn as_bit_per_s(self) -> u64 {
        self.0
    }
    /// The rate in bit/s for arithmetic in `stats`; exact up to 2^53 bit/s (9 Pb/s).
    #[expect(
        clippy::cast_precision_loss,
        reason = "rates stay far below 2^53 bit/s"
    )]
    pub const fn as_f64(self) -> f64 {
        self.0 as f64
    }
    /// The nearest rate to `rate` bit/s; `None` when it is negative, not finite or too large.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "the range is checked first"
    )]
    pub fn from_f64(rate: f64) -> Option<Self> {
        (rate.is_finite() && (0.0..u64::MAX as f64).contains(&rate))
            .then(|| Self(rate.round() as u64))
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const STEPS: [(u64, &str); 4] = [
            (1_000_000_000_000, "Tb/s"),
            (1_000_000_000, "Gb/s"),
            (1_000_000, "Mb/s"),
            (1_000, "kb/s"),
        ];
        for (size, name) in STEPS {
            if self.0 >= size {
                return write!(f, "{} {name}", three_digits(ratio(self.0, size)));
            }
        }
        write!(f, "{} b/s", self.0)
    }
}

impl FromStr for BitRate {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        const PREFIXES: [(&str, u64); 10] = [
            ("", 1),
            ("k", 1_000),
            ("K", 1_000),
            ("M", 1_000_000),
            ("G", 1_000_000_000),
            ("T", 1_000_000_000_000),
            ("Ki", 1 << 10),
            ("Mi", 1 << 20),
            ("Gi", 1 << 30),
            ("Ti", 1 << 40),
        ];
        // RDMA tools and disks use bytes, marked by the capital B.
        const ENDINGS: [(&str, u64); 6] = [
            ("B/s", 8),
            ("b/s", 1),
            ("bit/s", 1),
            ("bps", 1),
            ("bit", 1),
            ("", 1),
        ];
        let factor = |unit: &str| {
            let stems = ENDINGS.iter().filter_map(|(ending, bits)| {
                let stem = unit.strip_suffix(ending)?.trim_end();
                let (_, size) = PREFIXES.iter().find(|(prefix, _)| *prefix == stem)?;
                Some(size * bits)
            });
            (!unit.is_empty()).then_some(stems)?.next()
        };
        let parsed = parse_with_unit(text, "b/s, Mb/s, Gb/s, MB/s or MiB/s", factor);
        parsed.map(Self).map_err(|fault| UnitError {
            text: text.to_owned(),
            what: "rate",
            fault,
            example: "40Gb/s",
        })
    }
}

/// A length of time in nanoseconds.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Nanoseconds(u64);

impl Nanoseconds {
    /// `count` nanoseconds.
    pub const fn new(count: u64) -> Self {
        Self(count)
    }
    /// `count` microseconds.
    pub const fn from_micros(count: u64) -> Self {
        Self(count * 1_000)
    }
    /// `count` milliseconds.
    pub const fn from_millis(count: u64) -> Self {
        Self(count * 1_000_000)
    }
    /// The number of nanoseconds.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
    /// The time in seconds, for printing and statistics.
    #[expect(
        clippy::cast_precision_loss,
        reason = "104 days of nanoseconds fit in 2^53"
    )]
    pub const fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// The number of nanoseconds for arithmetic in `stats`; exact up to 2^53 ns (104 days).
    #[expect(
        clippy::cast_precision_loss,
        reason = "104 days of nanoseconds fit in 2^53"
    )]
    pub const fn as_f64(self) -> f64 {
        self.0 as f64
    }
    /// The nearest time to `time` nanoseconds; `None` when it is negative, not finite or too long.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "the range is checked first"
    )]
    pub fn from_f64(time: f64) -> Option<Self> {
        (time.is_finite() && (0.0..u64::MAX as f64).contains(&time))
            .then(|| Self(time.round() as u64))
    }
}

impl From<std::time::Duration> for Nanoseconds {
    /// Saturates at 584 years.
    fn from(time: std::time::Duration) -> Self {
        Self(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanoseconds> for std::time::Duration {
    fn from(time: Nanoseconds) -> Self {
        Self::from_nanos(time.0)
    }
}

impl fmt::Display for Nanoseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const STEPS: [(u64, &str); 3] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
        for (size, name) in STEPS {
            if self.0 >= size {
                return write!(f, "{} {name}", three_digits(ratio(self.0, size)));
            }
        }
        write!(f, "{} ns", self.0)
    }
}

impl FromStr for Nanoseconds {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        const UNITS: [(&str, u64); 7] = [
            ("ns", 1),
            ("us", 1_000),
            ("ms", 1_000_000),
            ("s", 1_000_000_000),
            ("m", 60_000_000_000),
            ("min", 60_000_000_000),
            ("h", 3_600_000_000_000),
        ];
        let factor = |unit: &str| Some(UNITS.iter().find(|(name, _)| *name == unit)?.1);
        let parsed = parse_with_unit(text, "ns, us, ms, s, min or h", factor);
        parsed.map(Self).map_err(|fault| UnitError {
            text: text.to_owned(),
            what: "time",
            fault,
            example: "500ms",
        })
    }
}

/// The raw rate of one PCIe lane in megatransfers per second (2500 for "2.5 GT/s").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TransferRate(u32);

impl TransferRate {
    /// `rate` MT/s.
    pub const fn from_mt_per_s(rate: u32) -> Self {
        Self(rate)
    }
    /// The rate in MT/s.
    pub const fn as_mt_per_s(self) -> u32 {
        self.0
    }
}

impl fmt::Display for TransferRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} GT/s", self.0 / 1000, self.0 % 1000 / 100)
    }
}

/// A share or a relative difference: 0.25 is 25 %.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ratio(f64);

impl Ratio {
    /// A ratio as a plain number, 1.0 for the whole.
    pub const fn new(value: f64) -> Self {
        Self(value)
    }
    /// The plain number.
    pub const fn as_f64(self) -> f64 {
        self.0
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} %", self.0 * 100.0)
    }
}

/// A count for computing shares and rates, which need at most 53 bits of it.
#[expect(clippy::cast_precision_loss, reason = "said above")]
pub(crate) fn real(count: u64) -> f64 {
    count as f64
}

#[expect(
    clippy::cast_precision_loss,
    reason = "only for printing three or four digits"
)]
fn ratio(value: u64, unit: u64) -> f64 {
    value as f64 / unit as f64
}

/// Enough digits to distinguish close rates: `37.97`, `4.80`, `126.0`, `1`.
fn three_digits(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the range is checked before the cast"
)]
fn parse_with_unit(
    text: &str,
    units: &'static str,
    factor: impl FnOnce(&str) -> Option<u64>,
) -> Result<u64, Fault> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim();
    let value: f64 = number.parse().map_err(|_| Fault::NoNumber)?;
    let factor = factor(unit).ok_or_else(|| match unit {
        "" => Fault::NoUnit(units),
        _ => Fault::WrongUnit {
            unit: unit.to_owned(),
            units,
        },
    })?;
    // Whole numbers keep every digit.
    if number.bytes().all(|byte| byte.is_ascii_digit()) {
        let whole: Option<u64> = number.parse().ok();
        return whole
            .and_then(|whole| whole.checked_mul(factor))
            .ok_or(Fault::TooLarge);
    }
    let value = value * factor as f64;
    if value < u64::MAX as f64 {
        Ok(value.round() as u64)
    } else {
        Err(Fault::TooLarge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_or_time_without_a_unit_is_refused_and_a_size_is_in_bytes() {
        assert!("40".parse::<BitRate>().is_err());
        assert!("10".parse::<Nanoseconds>().is_err());
        assert_eq!("1500".parse(), Ok(Bytes::new(1500)));
    }

    #[test]
    fn bits_and_bytes_take_si_and_iec_prefixes() {
        for (text, bit_per_s) in [
            ("4613MiB/s", (4613 * 8) << 20),
            ("4613 MB/s", 4613 * 8_000_000),
            ("1.5GiB/s", 12 << 30),
            ("10Gib/s", 10 << 30),
            ("10Gbit/s", 10_000_000_000),
            ("7bps", 7),
            ("9B/s", 72),
        ] {
            assert_eq!(
                text.parse(),
                Ok(BitRate::from_bit_per_s(bit_per_s)),
                "{text}"
            );
        }
        assert_eq!("1TB".parse(), Ok(Bytes::new(1_000_000_000_000)));
        assert_eq!("64KiB".parse(), Ok(Bytes::kib(64)));
        assert_eq!("2min".parse(), Ok(Nanoseconds::from_millis(120_000)));
        assert_eq!("1h".parse(), Ok(Nanoseconds::from_millis(3_600_000)));
    }

    #[test]
    fn an_error_names_what_is_wrong_and_shows_what_works() {
        let rate = |text: &str| text.parse::<BitRate>().expect_err(text).to_string();
        let size = |text: &str| text.parse::<Bytes>().expect_err(text).to_string();
        let time = |text: &str| text.parse::<Nanoseconds>().expect_err(text).to_string();
        for (error, words) in [
            (
                rate("40"),
                "`40` is not a rate: it has no unit; use b/s, Mb/s",
            ),
            (
                rate("fast"),
                "it must start with a number, for example `40Gb/s`",
            ),
            (rate("9Gb"), "unknown unit `Gb`"),
            (rate("99999999999Tb/s"), "it is too large"),
            (rate("1.5.5Gb/s"), "it must start with a number"),
            (size("4Mb"), "unknown unit `Mb`; use B, kB"),
            (size("-1"), "it must start with a number"),
            (time("3days"), "unknown unit `days`; use ns, us"),
            (time("9999999.5h"), "it is too large"),
        ] {
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn prefixes_are_si_for_rates_and_iec_for_sizes() {
        assert_eq!("40G".parse(), Ok(BitRate::from_bit_per_s(40_000_000_000)));
        assert_eq!("2.5 Gb/s".parse(), Ok(BitRate::from_mbit_per_s(2_500)));
        assert_eq!("100b/s".parse(), Ok(BitRate::from_bit_per_s(100)));
        assert_eq!("128K".parse(), Ok(Bytes::kib(128)));
        assert_eq!("1.5MiB".parse(), Ok(Bytes::kib(1536)));
        assert_eq!("500ms".parse(), Ok(Nanoseconds::from_millis(500)));
    }

    #[test]
    fn display_keeps_the_unit() {
        assert_eq!(
            BitRate::from_bit_per_s(37_970_000_000).to_string(),
            "37.97 Gb/s"
        );
        assert_eq!(Bytes::kib(128).to_string(), "128 KiB");
        assert_eq!(Bytes::new(12).to_string(), "12 B");
        assert_eq!(TransferRate::from_mt_per_s(2500).to_string(), "2.5 GT/s");
        assert_eq!(Ratio::new(0.998).to_string(), "99.8 %");
    }

    #[test]
    fn a_rate_over_no_time_is_not_a_rate() {
        assert_eq!(BitRate::of(Bytes::new(5), Nanoseconds::new(0)), None);
        assert_eq!(
            BitRate::of(Bytes::new(125), Nanoseconds::from_micros(1)),
            Some(BitRate::from_mbit_per_s(1_000))
        );
    }
}
