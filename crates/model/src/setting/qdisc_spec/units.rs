//! Numbers with the units of tc(8): rates in bit/s (`kbit` is 1000), sizes in bytes (`k` is 1024), times.

use crate::units::BitRate;

pub(in crate::setting) const RATES: &[(&str, u64)] = &[
    ("tbit", 1_000_000_000_000),
    ("gbit", 1_000_000_000),
    ("mbit", 1_000_000),
    ("kbit", 1_000),
    ("bit", 1),
];
pub(super) const BYTES: &[(&str, u64)] = &[
    ("g", 1 << 30),
    ("m", 1 << 20),
    ("k", 1 << 10),
    ("gb", 1 << 30),
    ("mb", 1 << 20),
    ("kb", 1 << 10),
    ("b", 1),
    ("", 1),
];
pub(super) const MICROS: &[(&str, u64)] = &[("s", 1_000_000), ("ms", 1_000), ("us", 1)];
pub(super) const NANOS: &[(&str, u64)] = &[("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// A number with a unit, `2.5gbit`; it must be a whole number of the smallest unit.
pub(in crate::setting) fn parse_scaled(word: &str, units: &[(&str, u64)]) -> Option<u64> {
    let end = word.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = word.split_at(end.unwrap_or(word.len()));
    let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let digits = u32::try_from(part.len())
        .ok()
        .filter(|digits| *digits <= 12)?;
    let steps = 10u64.checked_pow(digits)?;
    let part = part.parse::<u64>().ok()?.checked_mul(*scale)?;
    let is_whole = part.is_multiple_of(steps);
    let whole = whole.parse::<u64>().ok()?.checked_mul(*scale)?;
    is_whole.then_some(whole.checked_add(part / steps)?)
}

/// The same in the largest unit without a fraction.
pub(in crate::setting) fn scaled(number: u64, units: &[(&str, u64)]) -> String {
    let fits = |scale: u64| number != 0 && number.is_multiple_of(scale);
    let unit = units.iter().find(|(_, scale)| fits(*scale) && *scale > 1);
    let unit = unit.or_else(|| units.last());
    unit.map_or_else(
        || number.to_string(),
        |(name, scale)| format!("{}{name}", number / scale),
    )
}

/// A number of bytes in words of tc(8).
pub fn byte_words(bytes: u32) -> String {
    scaled(bytes.into(), BYTES)
}

/// A rate, `2.5gbit`, which the kernel can represent: it counts bytes.
pub fn parse_rate(word: &str) -> Option<BitRate> {
    let rate = parse_scaled(word, RATES)?;
    let is_bytes = rate > 0 && rate.is_multiple_of(8);
    is_bytes.then(|| BitRate::from_bit_per_s(rate))
}

pub(in crate::setting) fn parse_u32(word: &str, units: &[(&str, u64)]) -> Option<u32> {
    parse_scaled(word, units)?.try_into().ok()
}

/// A rate as [`parse_rate`] takes it.
pub fn rate_words(rate: BitRate) -> String {
    scaled(rate.as_bit_per_s(), RATES)
}
