//! Qdiscs with their parameters, in tc(8) syntax: `tbf rate 1gbit burst 128k latency 50ms`. The kernel structures are
//! in `<linux/pkt_sched.h>`; sizes are in bytes (`k` is 1024), rates in bit/s (`kbit` is 1000).
//!
//! A hierarchy is one line: `class` begins a class, and `leaf` the qdisc below a class or a queue. Minor numbers are
//! hexadecimal, as in tc(8).

mod htb;
mod mqprio;
mod params;
pub(in crate::setting) mod units;

use std::collections::BTreeMap;
use std::fmt;

pub use self::htb::{Htb, HtbClass};
pub use self::mqprio::{Mqprio, Rates};
pub use self::params::Named;
use self::params::{
    BFIFO, FQ, FQ_CODEL, LEAF, PFIFO, Words, list, next_parameter, once, parse_minor, parse_named,
    take_list, write_named,
};
use self::units::{BYTES, MICROS, parse_u32, scaled};
pub use self::units::{byte_words, parse_rate, rate_words};
use crate::units::BitRate;

/// The number of socket priorities in a map (`TC_PRIO_MAX`).
pub const PRIORITIES: usize = 16;
/// The number of classes in a map (`TC_QOPT_MAX_QUEUE`, `TCQ_ETS_MAX_BANDS`).
pub const CLASSES_MAX: usize = 16;
/// Burst durations are in units of 64 ns: `PSCHED_SHIFT` is 6 (the ratio of the first two numbers of
/// `/proc/net/psched`), unchanged since Linux 2.6.31.
const TICK_NS: u128 = 64;
/// The kernel's time resolution in `fq_codel`: units of 1.024 microseconds (`CODEL_SHIFT`).
const CODEL_MICROS: u32 = 2;

/// The qdiscs below the queues of a root, by the minor number of the queue's class: 1 is the first queue.
pub type Leaves = BTreeMap<u16, QdiscSpec>;

/// A qdisc and its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QdiscSpec {
    /// A token bucket filter: tc-tbf(8).
    Tbf(Tbf),
    /// A hierarchical token bucket with its classes: tc-htb(8).
    Htb(Htb),
    /// Traffic classes with hardware queues: tc-mqprio(8).
    Mqprio(Mqprio),
    /// A qdisc for each hardware queue: those below the queues that are named.
    Mq(Leaves),
    /// Enhanced transmission selection: tc-ets(8).
    Ets(Ets),
    /// Fair queueing with pacing, with tc-fq(8) parameters; the kernel's defaults for those not named.
    Fq(Named),
    /// Fair queueing with controlled delay, with tc-fq_codel(8) parameters.
    FqCodel(Named),
    /// A queue with a limit in packets: tc-pfifo(8).
    Pfifo(Named),
    /// A queue with a limit in bytes: tc-bfifo(8).
    Bfifo(Named),
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

impl QdiscSpec {
    /// Parses `words`, kind and parameters.
    pub fn parse(words: &str) -> Option<Self> {
        Self::parse_part(words).filter(|spec| match spec {
            Self::Htb(htb) => htb.is_possible(),
            _ => true,
        })
    }

    /// The same of a hierarchy that may lack classes.
    pub fn parse_part(words: &str) -> Option<Self> {
        let mut words = words.split_whitespace().peekable();
        let parsed = match words.next()? {
            "htb" => htb::parse(&mut words).map(Self::Htb),
            "mqprio" => mqprio::parse(&mut words).map(Self::Mqprio),
            "mq" => parse_leaves(&mut words)
                .filter(|leaves| !leaves.is_empty())
                .map(Self::Mq),
            "ets" => parse_ets(&mut words),
            kind => parse_leaf(kind, &mut words),
        };
        // Words of another class or leaf, where there is none.
        parsed.filter(|_| words.next().is_none())
    }

    /// The kernel's name for the kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Tbf(_) => "tbf",
            Self::Htb(_) => "htb",
            Self::Mqprio(_) => "mqprio",
            Self::Mq(_) => "mq",
            Self::Ets(_) => "ets",
            Self::Fq(_) => "fq",
            Self::FqCodel(_) => "fq_codel",
            Self::Pfifo(_) => "pfifo",
            Self::Bfifo(_) => "bfifo",
        }
    }

    /// The handle of a request: `htb` classes that packets are sent to by name (`1:10`) are below `1:`; 0 lets the kernel
    /// choose.
    pub fn handle(&self) -> u32 {
        match self {
            Self::Htb(htb) if !htb.has_only_one_class() => 1 << 16,
            _ => 0,
        }
    }

    /// The qdiscs below its queues.
    pub fn leaves(&self) -> Option<&Leaves> {
        match self {
            Self::Mqprio(mqprio) => Some(&mqprio.leaves),
            Self::Mq(leaves) => Some(leaves),
            _ => None,
        }
    }

    /// Whether a qdisc that was read satisfies this request: the named parameters, with the kernel's precision, and
    /// the same classes and leaves.
    pub fn is_met_by(&self, found: &Self) -> bool {
        self.root_is_met_by(found)
            && match (self, found) {
                (Self::Htb(asked), Self::Htb(found)) => asked.classes_are_met_by(found),
                _ => are_met_by(self.leaves(), found.leaves()),
            }
    }

    /// The same of the root alone, without what is below it.
    pub fn root_is_met_by(&self, found: &Self) -> bool {
        match (self, found) {
            (Self::Tbf(asked), Self::Tbf(found)) => {
                let limits = (asked.limit_bytes(), found.limit_bytes());
                asked.rate == found.rate
                    && is_burst(asked.burst, found.burst, asked.rate)
                    && limits.0 == limits.1
            }
            (Self::Htb(asked), Self::Htb(found)) => asked.root_is_met_by(found),
            (Self::Mqprio(asked), Self::Mqprio(found)) => asked.root_is_met_by(found),
            (Self::Mq(_), Self::Mq(_)) => true,
            (Self::Ets(asked), Self::Ets(found)) => asked.is_met_by(found),
            (Self::Fq(asked), Self::Fq(found))
            | (Self::Pfifo(asked), Self::Pfifo(found))
            | (Self::Bfifo(asked), Self::Bfifo(found)) => asked
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

impl QdiscSpec {
    /// Whether its root and everything below it are of one of `wholes`.
    pub fn is_made_of(&self, wholes: &[Self]) -> bool {
        let is_leaf_of = |leaf: &Self, at: u16| {
            wholes.iter().any(|whole| {
                let own = match whole {
                    Self::Htb(htb) => htb.classes.get(&at).and_then(|one| one.leaf.as_deref()),
                    other => other.leaves().and_then(|leaves| leaves.get(&at)),
                };
                own.is_some_and(|own| own.is_met_by(leaf))
            })
        };
        let is_class_of = |class: &HtbClass, at: u16| {
            wholes.iter().any(|whole| match whole {
                Self::Htb(htb) => htb.classes.get(&at).is_some_and(|own| own.is_met_by(class)),
                _ => false,
            })
        };
        let is_below = match self {
            Self::Htb(htb) => htb.classes.iter().all(|(at, class)| {
                let leaf = class.leaf.as_deref();
                is_class_of(class, *at) && leaf.is_none_or(|leaf| is_leaf_of(leaf, *at))
            }),
            other => {
                let mut leaves = other.leaves().into_iter().flatten();
                leaves.all(|(at, leaf)| is_leaf_of(leaf, *at))
            }
        };
        is_below && wholes.iter().any(|whole| whole.root_is_met_by(self))
    }
}

/// Whether the same queues have leaves, and each is as requested.
fn are_met_by(asked: Option<&Leaves>, found: Option<&Leaves>) -> bool {
    let (Some(asked), Some(found)) = (asked, found) else {
        return true;
    };
    asked.keys().eq(found.keys())
        && asked
            .iter()
            .all(|(at, leaf)| found.get(at).is_some_and(|found| leaf.is_met_by(found)))
}

impl fmt::Display for QdiscSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        match self {
            Self::Tbf(tbf) => {
                let rate = rate_words(tbf.rate);
                write!(f, " rate {rate} burst {}", scaled(tbf.burst.into(), BYTES))?;
                match tbf.queue {
                    Waiting::Limit(bytes) => write!(f, " limit {}", scaled(bytes.into(), BYTES)),
                    Waiting::LatencyUs(us) => write!(f, " latency {}", scaled(us.into(), MICROS)),
                }
            }
            Self::Htb(htb) => htb.fmt(f),
            Self::Mqprio(mqprio) => mqprio.fmt(f),
            Self::Mq(leaves) => write_leaves(f, leaves),
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
            Self::Pfifo(named) => write_named(f, named, PFIFO),
            Self::Bfifo(named) => write_named(f, named, BFIFO),
        }
    }
}

/// A qdisc without classes of its own, up to the next class or leaf.
fn parse_leaf(kind: &str, words: &mut Words<'_>) -> Option<QdiscSpec> {
    match kind {
        "tbf" => parse_tbf(words),
        "fq" => parse_named(words, FQ).map(QdiscSpec::Fq),
        "fq_codel" => parse_named(words, FQ_CODEL).map(QdiscSpec::FqCodel),
        "pfifo" => parse_named(words, PFIFO).map(QdiscSpec::Pfifo),
        "bfifo" => parse_named(words, BFIFO).map(QdiscSpec::Bfifo),
        _ => None,
    }
}

/// The leaves of queues: `leaf 1 fq leaf 2 tbf ...`.
fn parse_leaves(words: &mut Words<'_>) -> Option<Leaves> {
    let mut leaves = Leaves::new();
    while words.next_if_eq(&LEAF).is_some() {
        let queue = parse_minor(words.next()?).filter(|minor| *minor != 0)?;
        let leaf = parse_leaf(words.next()?, words)?;
        if leaves.insert(queue, leaf).is_some() {
            return None;
        }
    }
    Some(leaves)
}

fn write_leaves(f: &mut fmt::Formatter<'_>, leaves: &Leaves) -> fmt::Result {
    leaves
        .iter()
        .try_for_each(|(queue, leaf)| write!(f, " {LEAF} {queue:x} {leaf}"))
}

fn parse_tbf(words: &mut Words<'_>) -> Option<QdiscSpec> {
    let (mut rate, mut burst, mut queue) = (None, None, None);
    while let Some(word) = next_parameter(words) {
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
