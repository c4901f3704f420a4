//! Qdiscs with their parameters, in tc(8) syntax: `tbf rate 1gbit burst 128k latency 50ms`. The kernel structures are
//! in `<linux/pkt_sched.h>`; sizes are in bytes (`k` is 1024), rates in bit/s (`kbit` is 1000).

use std::collections::BTreeMap;
use std::fmt;

use crate::units::BitRate;

/// The number of socket priorities in a map (`TC_PRIO_MAX`).
pub const PRIORITIES: usize = 16;
/// The number of classes in a map (`TC_QOPT_MAX_QUEUE`, `TCQ_ETS_MAX_BANDS`).
pub const CLASSES_MAX: usize = 16;
/// Burst durations are in units of 64 ns: `PSCHED_SHIFT` is 6 (the ratio of the first two numbers of
/// `/proc/net/psched`), unchanged since Linux 2.6.31.
const TICK_NS: u128 = 64;

/// A qdisc and its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QdiscSpec {
    /// A token bucket filter: tc-tbf(8).
    Tbf(Tbf),
    /// A hierarchical token bucket with a single default class: tc-htb(8).
    Htb(Htb),
    /// Traffic classes with hardware queues: tc-mqprio(8).
    Mqprio(Mqprio),
    /// Enhanced transmission selection: tc-ets(8).
    Ets(Ets),
    /// Fair queueing with pacing, with tc-fq(8) parameters; the kernel's defaults for those not named.
    Fq(Named),
    /// Fair queueing with controlled delay, with tc-fq_codel(8) parameters.
    FqCodel(Named),
}

/// A token bucket filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tbf {
    /// The rate.
    pub rate: BitRate,
    /// The burst, bytes.
    pub burst: u32,
    /// The queue limit.
    pub queue: Waiting,
}

/// The queue limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// Bytes.
    Limit(u32),
    /// The maximum latency in microseconds.
    LatencyUs(u32),
}

/// A hierarchical token bucket with one class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Htb {
    /// The class's minor number.
    pub default: u16,
    /// The divisor of a class's rate for its quantum (`r2q`).
    pub rate_to_quantum: u32,
    /// The guaranteed rate.
    pub rate: BitRate,
    /// The ceiling.
    pub ceil: BitRate,
    /// The bursts at its rate and at its ceiling, and its quantum, bytes; and its priority.
    pub class: Named,
}

/// Traffic classes with queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mqprio {
    /// The class of each socket priority.
    pub map: [u8; PRIORITIES],
    /// The number of queues of each class, and the first of them; none to use the NIC's default.
    pub queues: Vec<(u16, u16)>,
    /// The number of classes.
    pub classes: u8,
    /// Whether it is offloaded to the NIC.
    pub in_hardware: bool,
}

/// Strict priority bands, followed by bands that share bandwidth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ets {
    /// The number of bands.
    pub bands: u8,
    /// The number of strict bands.
    pub strict: u8,
    /// The quantum of each of the others, bytes; the kernel's default for those not named.
    pub quanta: Vec<u32>,
    /// The band of each socket priority, from 0; the last band for those not named.
    pub map: Vec<u8>,
}

/// Parameters by name: microseconds, bytes, counts, bytes per second and flags as the kernel takes them.
pub type Named = BTreeMap<&'static str, u32>;

/// The value of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
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

const FQ: &[(&str, Unit)] = &[
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

const FQ_CODEL: &[(&str, Unit)] = &[
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

/// Parameters of an `htb` class.
const HTB_CLASS: &[(&str, Unit)] = &[
    ("burst", Unit::Bytes),
    ("cburst", Unit::Bytes),
    ("quantum", Unit::Bytes),
    ("prio", Unit::Count),
];

/// tc(8)'s default for `r2q`.
const RATE_TO_QUANTUM: u32 = 10;
/// The kernel's time resolution in `fq_codel`: units of 1.024 microseconds (`CODEL_SHIFT`).
const CODEL_MICROS: u32 = 2;

const RATES: &[(&str, u64)] = &[
    ("tbit", 1_000_000_000_000),
    ("gbit", 1_000_000_000),
    ("mbit", 1_000_000),
    ("kbit", 1_000),
    ("bit", 1),
];
const BYTES: &[(&str, u64)] = &[
    ("g", 1 << 30),
    ("m", 1 << 20),
    ("k", 1 << 10),
    ("gb", 1 << 30),
    ("mb", 1 << 20),
    ("kb", 1 << 10),
    ("b", 1),
    ("", 1),
];
const MICROS: &[(&str, u64)] = &[("s", 1_000_000), ("ms", 1_000), ("us", 1)];
const NANOS: &[(&str, u64)] = &[("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// A number with a unit, `2.5gbit`; it must be a whole number of the smallest unit.
fn parse_scaled(word: &str, units: &[(&str, u64)]) -> Option<u64> {
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
fn scaled(number: u64, units: &[(&str, u64)]) -> String {
    let fits = |scale: u64| number != 0 && number.is_multiple_of(scale);
    let unit = units.iter().find(|(_, scale)| fits(*scale) && *scale > 1);
    let unit = unit.or_else(|| units.last());
    unit.map_or_else(
        || number.to_string(),
        |(name, scale)| format!("{}{name}", number / scale),
    )
}

/// A rate in words of tc(8), `2.5gbit`, which the kernel can represent: it counts bytes.
pub fn parse_bit_rate(word: &str) -> Option<BitRate> {
    parse_rate(word)
}

/// A rate in words of tc(8).
pub fn rate_text(rate: BitRate) -> String {
    scaled(rate.as_bit_per_s(), RATES)
}

/// A number of bytes in words of tc(8).
pub fn byte_words(bytes: u32) -> String {
    scaled(bytes.into(), BYTES)
}

/// A rate that the kernel can represent: it counts bytes.
fn parse_rate(word: &str) -> Option<BitRate> {
    let rate = parse_scaled(word, RATES)?;
    let is_bytes = rate > 0 && rate.is_multiple_of(8);
    is_bytes.then(|| BitRate::from_bit_per_s(rate))
}

fn parse_u32(word: &str, units: &[(&str, u64)]) -> Option<u32> {
    parse_scaled(word, units)?.try_into().ok()
}

fn parse_unit(word: &str, unit: Unit) -> Option<u32> {
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

fn unit_words(number: u32, unit: Unit) -> String {
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
fn take_named<'w>(
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

fn write_named(f: &mut fmt::Formatter<'_>, named: &Named, known: &[(&str, Unit)]) -> fmt::Result {
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
type Words<'w> = std::iter::Peekable<std::str::SplitWhitespace<'w>>;

fn take_list<T>(words: &mut Words<'_>, parse: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    let mut list = Vec::new();
    while let Some(word) = words.next_if(|word| word.starts_with(|c: char| c.is_ascii_digit())) {
        list.push(parse(word)?);
        if list.len() > CLASSES_MAX {
            return None;
        }
    }
    (!list.is_empty()).then_some(list)
}

/// Keeps the first value; a second one is an error.
fn once<T>(slot: &mut Option<T>, value: Option<T>) -> Option<()> {
    let is_first = slot.replace(value?).is_none();
    is_first.then_some(())
}

impl QdiscSpec {
    /// Parses `words`, kind and parameters.
    pub fn parse(words: &str) -> Option<Self> {
        let mut words = words.split_whitespace().peekable();
        let parse: fn(&mut Words<'_>) -> Option<Self> = match words.next()? {
            "tbf" => parse_tbf,
            "htb" => parse_htb,
            "mqprio" => parse_mqprio,
            "ets" => parse_ets,
            "fq" => |words| parse_named(words, FQ).map(Self::Fq),
            "fq_codel" => |words| parse_named(words, FQ_CODEL).map(Self::FqCodel),
            _ => return None,
        };
        parse(&mut words)
    }

    /// The kernel's name for the kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Tbf(_) => "tbf",
            Self::Htb(_) => "htb",
            Self::Mqprio(_) => "mqprio",
            Self::Ets(_) => "ets",
            Self::Fq(_) => "fq",
            Self::FqCodel(_) => "fq_codel",
        }
    }

    /// Whether a qdisc that was read satisfies this request: the named parameters, with the kernel's precision.
    pub fn is_met_by(&self, found: &Self) -> bool {
        match (self, found) {
            (Self::Tbf(asked), Self::Tbf(found)) => {
                let limits = (asked.limit_bytes(), found.limit_bytes());
                asked.rate == found.rate
                    && is_burst(asked.burst, found.burst, asked.rate)
                    && limits.0 == limits.1
            }
            (Self::Htb(asked), Self::Htb(found)) => asked.is_met_by(found),
            (Self::Mqprio(asked), Self::Mqprio(found)) => {
                let queues = asked.queues.is_empty() || asked.queues == found.queues;
                let same = (asked.classes, asked.map, asked.in_hardware);
                queues && same == (found.classes, found.map, found.in_hardware)
            }
            (Self::Ets(asked), Self::Ets(found)) => asked.is_met_by(found),
            (Self::Fq(asked), Self::Fq(found)) => asked
                .iter()
                .all(|(name, number)| found.get(name) == Some(number)),
            (Self::FqCodel(asked), Self::FqCodel(found)) => asked.iter().all(|(name, number)| {
                let is_time = matches!(*name, "target" | "interval" | "ce_threshold");
                let slack = if is_time { CODEL_MICROS } else { 0 };
                let found = found.get(name);
                found.is_some_and(|found| found.abs_diff(*number) <= slack)
            }),
            _ => false,
        }
    }
}

impl fmt::Display for QdiscSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        match self {
            Self::Tbf(tbf) => {
                let rate = scaled(tbf.rate.as_bit_per_s(), RATES);
                write!(f, " rate {rate} burst {}", scaled(tbf.burst.into(), BYTES))?;
                match tbf.queue {
                    Waiting::Limit(bytes) => write!(f, " limit {}", scaled(bytes.into(), BYTES)),
                    Waiting::LatencyUs(us) => write!(f, " latency {}", scaled(us.into(), MICROS)),
                }
            }
            Self::Htb(htb) => {
                write!(f, " default {:x}", htb.default)?;
                if htb.rate_to_quantum != RATE_TO_QUANTUM {
                    write!(f, " r2q {}", htb.rate_to_quantum)?;
                }
                let rate = |rate: BitRate| scaled(rate.as_bit_per_s(), RATES);
                write!(f, " rate {} ceil {}", rate(htb.rate), rate(htb.ceil))?;
                write_named(f, &htb.class, HTB_CLASS)
            }
            Self::Mqprio(mqprio) => {
                write!(f, " num_tc {} map {}", mqprio.classes, list(&mqprio.map))?;
                if !mqprio.queues.is_empty() {
                    let queues = mqprio.queues.iter();
                    let queues: Vec<String> =
                        queues.map(|(count, at)| format!("{count}@{at}")).collect();
                    write!(f, " queues {}", queues.join(" "))?;
                }
                write!(f, " hw {}", u8::from(mqprio.in_hardware))
            }
            Self::Ets(ets) => {
                write!(f, " bands {}", ets.bands)?;
                if ets.strict > 0 {
                    write!(f, " strict {}", ets.strict)?;
                }
                for (word, all) in [("quanta", list(&ets.quanta)), ("priomap", list(&ets.map))] {
                    if !all.is_empty() {
                        write!(f, " {word} {all}")?;
                    }
                }
                Ok(())
            }
            Self::Fq(named) => write_named(f, named, FQ),
            Self::FqCodel(named) => write_named(f, named, FQ_CODEL),
        }
    }
}

fn list<T: ToString>(all: &[T]) -> String {
    let words: Vec<String> = all.iter().map(ToString::to_string).collect();
    words.join(" ")
}

fn parse_named(words: &mut Words<'_>, known: &[(&'static str, Unit)]) -> Option<Named> {
    let mut named = Named::new();
    while let Some(word) = words.next() {
        take_named(&mut named, known, word, words)?;
    }
    Some(named)
}

fn parse_tbf(words: &mut Words<'_>) -> Option<QdiscSpec> {
    let (mut rate, mut burst, mut queue) = (None, None, None);
    while let Some(word) = words.next() {
        let value = words.next()?;
        match word {
            "rate" => once(&mut rate, parse_rate(value))?,
            "burst" | "buffer" | "maxburst" => once(&mut burst, parse_u32(value, BYTES))?,
            "limit" => once(&mut queue, parse_u32(value, BYTES).map(Waiting::Limit))?,
            "latency" => once(&mut queue, parse_u32(value, MICROS).map(Waiting::LatencyUs))?,
            _ => return None,
        }
    }
    let tbf = Tbf {
        rate: rate?,
        burst: burst?,
        queue: queue?,
    };
    tbf.limit_bytes()?;
    burst_ticks(tbf.burst, tbf.rate)?;
    Some(QdiscSpec::Tbf(tbf))
}

impl Tbf {
    /// The queue limit, bytes; none if it exceeds the kernel's range.
    pub fn limit_bytes(&self) -> Option<u32> {
        match self.queue {
            Waiting::Limit(bytes) => Some(bytes),
            Waiting::LatencyUs(us) => {
                let bytes = u128::from(self.rate.as_bit_per_s()) * u128::from(us) / 8_000_000;
                u32::try_from(bytes + u128::from(self.burst)).ok()
            }
        }
    }
}

fn parse_htb(words: &mut Words<'_>) -> Option<QdiscSpec> {
    let (mut default, mut to_quantum, mut rate, mut ceil) = (None, None, None, None);
    let mut class = Named::new();
    while let Some(word) = words.next() {
        match word {
            "default" => {
                let digits = words.next()?;
                let digits = digits.strip_prefix("0x").unwrap_or(digits);
                once(&mut default, u16::from_str_radix(digits, 16).ok())?;
            }
            "r2q" => once(&mut to_quantum, words.next()?.parse().ok())?,
            "rate" => once(&mut rate, parse_rate(words.next()?))?,
            "ceil" => once(&mut ceil, parse_rate(words.next()?))?,
            word => take_named(&mut class, HTB_CLASS, word, words)?,
        }
    }
    let rate = rate?;
    let htb = Htb {
        default: default.filter(|class| *class != 0)?,
        rate_to_quantum: to_quantum.unwrap_or(RATE_TO_QUANTUM),
        rate,
        ceil: ceil.unwrap_or(rate),
        class,
    };
    burst_ticks(htb.burst("burst"), htb.rate)?;
    burst_ticks(htb.burst("cburst"), htb.ceil)?;
    (htb.ceil >= htb.rate && htb.rate_to_quantum != 0).then_some(QdiscSpec::Htb(htb))
}

impl Htb {
    /// `burst` or `cburst`, bytes; tc(8)'s default if not named.
    pub fn burst(&self, word: &str) -> u32 {
        /// A full-size frame, as in tc-htb(8).
        const FRAME: u64 = 1600;
        let rate = if word == "burst" {
            self.rate
        } else {
            self.ceil
        };
        let usual = rate.as_bit_per_s() / 8 / 1_000_000_000 + FRAME;
        let named = self.class.get(word).copied();
        named.unwrap_or_else(|| u32::try_from(usual).unwrap_or(u32::MAX))
    }

    fn is_met_by(&self, found: &Self) -> bool {
        let key = |htb: &Self| (htb.default, htb.rate_to_quantum, htb.rate, htb.ceil);
        let named = |word: &str| {
            let asked = self.class.get(word);
            asked.is_none() || asked == found.class.get(word)
        };
        key(self) == key(found)
            && is_burst(self.burst("burst"), found.burst("burst"), self.rate)
            && is_burst(self.burst("cburst"), found.burst("cburst"), self.ceil)
            && named("quantum")
            && named("prio")
    }
}

fn parse_mqprio(words: &mut Words<'_>) -> Option<QdiscSpec> {
    let (mut classes, mut map, mut queues, mut hardware) = (None, None, None, None);
    while let Some(word) = words.next() {
        match word {
            "num_tc" => once(&mut classes, words.next()?.parse::<u8>().ok())?,
            "map" => once(&mut map, take_list(words, |word| word.parse().ok()))?,
            "queues" => once(
                &mut queues,
                take_list(words, |word| {
                    let (count, at) = word.split_once('@')?;
                    Some((count.parse().ok()?, at.parse().ok()?))
                }),
            )?,
            "hw" => once(
                &mut hardware,
                match words.next()? {
                    "0" => Some(false),
                    "1" => Some(true),
                    _ => None,
                },
            )?,
            _ => return None,
        }
    }
    let classes = classes.filter(|classes| (1..=CLASSES_MAX).contains(&usize::from(*classes)))?;
    let mut whole: Vec<u8> = map?;
    whole.resize(PRIORITIES, 0);
    let mqprio = Mqprio {
        map: whole.try_into().ok()?,
        queues: queues.unwrap_or_default(),
        classes,
        in_hardware: hardware.unwrap_or(true),
    };
    let all_named = mqprio.queues.len() == usize::from(classes);
    let fits = mqprio.map.iter().all(|class| *class < classes)
        && (all_named || (mqprio.queues.is_empty() && mqprio.in_hardware));
    fits.then_some(QdiscSpec::Mqprio(mqprio))
}

fn parse_ets(words: &mut Words<'_>) -> Option<QdiscSpec> {
    let (mut bands, mut strict, mut quanta, mut map) = (None, None, None, None);
    while let Some(word) = words.next() {
        match word {
            "bands" => once(&mut bands, words.next()?.parse::<u8>().ok())?,
            "strict" => once(&mut strict, words.next()?.parse::<u8>().ok())?,
            "quanta" => once(&mut quanta, take_list(words, |word| parse_u32(word, BYTES)))?,
            "priomap" => once(&mut map, take_list(words, |word| word.parse::<u8>().ok()))?,
            _ => return None,
        }
    }
    let (strict, quanta) = (strict.unwrap_or(0), quanta.unwrap_or_default());
    let least = usize::from(strict) + quanta.len();
    let bands = bands.or_else(|| u8::try_from(least).ok())?;
    let ets = Ets {
        bands,
        strict,
        quanta,
        map: map.unwrap_or_default(),
    };
    let fits = (1..=CLASSES_MAX).contains(&usize::from(bands))
        && least <= usize::from(bands)
        && ets.quanta.iter().all(|quantum| *quantum > 0)
        && ets.map.len() <= PRIORITIES
        && ets.map.iter().all(|band| *band < bands);
    fits.then_some(QdiscSpec::Ets(ets))
}

impl Ets {
    fn is_met_by(&self, found: &Self) -> bool {
        let whole = |ets: &Self| {
            let mut map = ets.map.clone();
            map.resize(PRIORITIES, ets.bands.saturating_sub(1));
            (ets.bands, ets.strict, map)
        };
        whole(self) == whole(found) && found.quanta.starts_with(&self.quanta)
    }
}

/// The duration of a burst at its rate, in kernel ticks; none if it exceeds the kernel's range.
pub fn burst_ticks(bytes: u32, rate: BitRate) -> Option<u32> {
    let per_s = u128::from(rate.as_bit_per_s() / 8);
    let ticks = (u128::from(bytes) * 1_000_000_000).checked_div(per_s * TICK_NS)?;
    u32::try_from(ticks).ok()
}

/// The burst with this duration, bytes: the smallest one for which [`burst_ticks`] returns the same, if a tick is
/// longer than a byte.
pub fn burst_bytes(ticks: u32, rate: BitRate) -> Option<u32> {
    let per_s = u128::from(rate.as_bit_per_s() / 8);
    let bytes = (u128::from(ticks) * TICK_NS * per_s).div_ceil(1_000_000_000);
    u32::try_from(bytes).ok()
}

/// Whether two bursts have the same duration in ticks, within rounding.
fn is_burst(asked: u32, found: u32, rate: BitRate) -> bool {
    let tick = u128::from(rate.as_bit_per_s() / 8) * TICK_NS / 1_000_000_000;
    u128::from(asked.abs_diff(found)) <= tick + 1
}

#[cfg(test)]
mod tests;
