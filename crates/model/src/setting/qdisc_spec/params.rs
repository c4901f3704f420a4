//! Parameters of a qdisc by name, and the words of a command.

use std::collections::BTreeMap;
use std::fmt;

use super::CLASSES_MAX;
use super::units::{BYTES, MICROS, NANOS, RATES, parse_scaled, parse_u32, scaled};

/// Parameters by name: microseconds, bytes, counts, bytes per second and flags as the kernel takes them.
pub type Named = BTreeMap<&'static str, u32>;

/// The value of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Count,
    /// A power of two.
    Power,
    Bytes,
    /// Given in bit/s, kept in bytes per second.
    Rate,
    Micros,
    Nanos,
    /// No value: this other word turns it off.
    Switch(&'static str),
}

pub(super) const FQ: &[(&str, Unit)] = &[
    ("limit", Unit::Count),
    ("flow_limit", Unit::Count),
    ("quantum", Unit::Bytes),
    ("initial_quantum", Unit::Bytes),
    ("maxrate", Unit::Rate),
    ("buckets", Unit::Power),
    ("orphan_mask", Unit::Count),
    ("pacing", Unit::Switch("nopacing")),
    ("low_rate_threshold", Unit::Rate),
    ("ce_threshold", Unit::Micros),
    ("timer_slack", Unit::Nanos),
    ("horizon", Unit::Micros),
    ("horizon_drop", Unit::Switch("horizon_cap")),
];

pub(super) const FQ_CODEL: &[(&str, Unit)] = &[
    ("limit", Unit::Count),
    ("flows", Unit::Count),
    ("quantum", Unit::Bytes),
    ("target", Unit::Micros),
    ("interval", Unit::Micros),
    ("ce_threshold", Unit::Micros),
    ("memory_limit", Unit::Bytes),
    ("drop_batch", Unit::Count),
    ("ecn", Unit::Switch("noecn")),
];

/// A queue of packets.
pub(super) const PFIFO: &[(&str, Unit)] = &[("limit", Unit::Count)];
/// A queue of bytes.
pub(super) const BFIFO: &[(&str, Unit)] = &[("limit", Unit::Bytes)];

/// Parameters of an `htb` class.
pub(super) const HTB_CLASS: &[(&str, Unit)] = &[
    ("burst", Unit::Bytes),
    ("cburst", Unit::Bytes),
    ("quantum", Unit::Bytes),
    ("prio", Unit::Count),
];

pub(super) fn parse_unit(word: &str, unit: Unit) -> Option<u32> {
    match unit {
        Unit::Count => word.parse().ok(),
        Unit::Power => word
            .parse()
            .ok()
            .filter(|count: &u32| count.is_power_of_two()),
        Unit::Bytes => parse_u32(word, BYTES),
        Unit::Rate => {
            let rate = parse_scaled(word, RATES).filter(|rate| rate.is_multiple_of(8))?;
            (rate / 8).try_into().ok()
        }
        Unit::Micros => parse_u32(word, MICROS),
        Unit::Nanos => parse_u32(word, NANOS),
        Unit::Switch(_) => None,
    }
}

pub(super) fn unit_words(number: u32, unit: Unit) -> String {
    let number = u64::from(number);
    match unit {
        Unit::Count | Unit::Power | Unit::Switch(_) => number.to_string(),
        Unit::Bytes => scaled(number, BYTES),
        Unit::Rate => scaled(number * 8, RATES),
        Unit::Micros => scaled(number, MICROS),
        Unit::Nanos => scaled(number, NANOS),
    }
}

/// Parses `word` with its value if it is one of these parameters; each at most once.
pub(super) fn take_named<'w>(
    named: &mut Named,
    known: &[(&'static str, Unit)],
    word: &str,
    rest: &mut impl Iterator<Item = &'w str>,
) -> Option<()> {
    let is_it = |(on, unit): &&(&'static str, Unit)| {
        *on == word || matches!(unit, Unit::Switch(off) if *off == word)
    };
    let (name, unit) = known.iter().find(is_it)?;
    let number = match unit {
        Unit::Switch(off) => u32::from(*off != word),
        unit => parse_unit(rest.next()?, *unit)?,
    };
    named.insert(name, number).is_none().then_some(())
}

pub(super) fn write_named(
    f: &mut fmt::Formatter<'_>,
    named: &Named,
    known: &[(&str, Unit)],
) -> fmt::Result {
    for (name, unit) in known {
        match (named.get(*name), unit) {
            (None, _) => {}
            (Some(0), Unit::Switch(off)) => write!(f, " {off}")?,
            (Some(_), Unit::Switch(_)) => write!(f, " {name}")?,
            (Some(number), unit) => write!(f, " {name} {}", unit_words(*number, *unit))?,
        }
    }
    Ok(())
}

/// The words of a command; a list ends at the next word that is not a number.
pub(super) type Words<'w> = std::iter::Peekable<std::str::SplitWhitespace<'w>>;

pub(super) fn take_list<T>(
    words: &mut Words<'_>,
    parse: impl Fn(&str) -> Option<T>,
) -> Option<Vec<T>> {
    let mut list = Vec::new();
    while let Some(word) = words.next_if(|word| word.starts_with(|c: char| c.is_ascii_digit())) {
        list.push(parse(word)?);
        if list.len() > CLASSES_MAX {
            return None;
        }
    }
    (!list.is_empty()).then_some(list)
}

/// The words that end the parameters of a qdisc or a class within a hierarchy.
pub(super) const CLASS: &str = "class";
pub(super) const LEAF: &str = "leaf";

/// The next word, unless another class or leaf begins with it.
pub(super) fn next_parameter<'w>(words: &mut Words<'w>) -> Option<&'w str> {
    words.next_if(|word| ![CLASS, LEAF].contains(word))
}

/// The minor number of a handle, hexadecimal as in tc(8); 0 is none.
pub(super) fn parse_minor(word: &str) -> Option<u16> {
    u16::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
}

/// Keeps the first value; a second one is an error.
pub(super) fn once<T>(slot: &mut Option<T>, value: Option<T>) -> Option<()> {
    let is_first = slot.replace(value?).is_none();
    is_first.then_some(())
}

pub(super) fn list<T: ToString>(all: &[T]) -> String {
    let words: Vec<String> = all.iter().map(ToString::to_string).collect();
    words.join(" ")
}

pub(super) fn parse_named(words: &mut Words<'_>, known: &[(&'static str, Unit)]) -> Option<Named> {
    let mut named = Named::new();
    while let Some(word) = next_parameter(words) {
        take_named(&mut named, known, word, words)?;
    }
    Some(named)
}
