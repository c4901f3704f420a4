//! Units as types: one newtype per dimension with an integer inside, and the unit in the name of every constructor
//! and accessor; conversion between dimensions is a named function.
//!
//! Display always prints the unit (rates with SI prefixes, sizes with IEC prefixes); parsing requires one.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Why a quantity could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {what}: write a number and a unit, for example `{example}`")]
pub struct UnitError {
    /// The input text.
    pub text: String,
    /// The expected dimension.
    pub what: &'static str,
    /// An example of valid input.
    pub example: &'static str,
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
        const UNITS: [(&str, u64); 14] = [
            ("KiB", 1 << 10),
            ("MiB", 1 << 20),
            ("GiB", 1 << 30),
            ("TiB", 1 << 40),
            ("K", 1 << 10),
            ("M", 1 << 20),
            ("G", 1 << 30),
            ("k", 1 << 10),
            ("m", 1 << 20),
            ("g", 1 << 30),
            ("kB", 1_000),
            ("MB", 1_000_000),
            ("GB", 1_000_000_000),
            ("B", 1),
        ];
        parse_with_unit(text, &UNITS)
            .map(Self)
            .ok_or_else(|| UnitError {
                text: text.to_owned(),
                what: "size",
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
        const PREFIXES: [(&str, u64); 6] = [
            ("k", 1_000),
            ("K", 1_000),
            ("M", 1_000_000),
            ("G", 1_000_000_000),
            ("T", 1_000_000_000_000),
            ("", 1),
        ];
        const ENDINGS: [&str; 5] = ["b/s", "bit/s", "bit", "bps", ""];
        // RDMA tools and disks use bytes, marked by the capital B (10^6 bytes in a MB).
        if let Some(stem) = text.trim().strip_suffix("B/s") {
            let octets = parse_with_unit(stem.trim_end(), &PREFIXES);
            if let Some(rate) = octets.and_then(|octets: u64| octets.checked_mul(8)) {
                return Ok(Self(rate));
            }
        }
        let parsed = ENDINGS.iter().find_map(|ending| {
            let stem = text.trim().strip_suffix(ending)?.trim_end();
            let units: Vec<(&str, u64)> = PREFIXES
                .into_iter()
                .filter(|(prefix, _)| !(prefix.is_empty() && ending.is_empty()))
                .collect();
            parse_with_unit(stem, &units)
        });
        parsed.map(Self).ok_or_else(|| UnitError {
            text: text.to_owned(),
            what: "rate",
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
        const UNITS: [(&str, u64); 5] = [
            ("ns", 1),
            ("us", 1_000),
            ("ms", 1_000_000),
            ("s", 1_000_000_000),
            ("m", 60_000_000_000),
        ];
        parse_with_unit(text, &UNITS)
            .map(Self)
            .ok_or_else(|| UnitError {
                text: text.to_owned(),
                what: "time",
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
fn parse_with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = units.iter().find(|(name, _)| *name == unit.trim())?.1;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    let value = number.parse::<f64>().ok()? * factor as f64;
    (value.is_finite() && (0.0..u64::MAX as f64).contains(&value)).then(|| value.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_without_a_unit_is_refused() {
        assert!("1500".parse::<Bytes>().is_err());
        assert!("40".parse::<BitRate>().is_err());
        assert!("10".parse::<Nanoseconds>().is_err());
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
