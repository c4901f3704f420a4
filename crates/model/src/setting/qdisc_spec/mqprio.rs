//! Traffic classes with hardware queues (tc-mqprio(8)).

use std::fmt;

use super::params::{Words, list, next_parameter, once, take_list};
use super::units::{RATES, parse_scaled, scaled};
use super::{CLASSES_MAX, Leaves, PRIORITIES, parse_leaves, write_leaves};
use crate::units::BitRate;

/// The modes and the shapers, by the kernel's numbers (`TC_MQPRIO_MODE_*`, `TC_MQPRIO_SHAPER_*`).
const MODES: [&str; 2] = ["dcb", "channel"];
const SHAPERS: [&str; 2] = ["dcb", "bw_rlimit"];
/// The shaper with rates.
const RATE_LIMIT: u16 = 1;

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
    /// How the NIC is asked: 0 `dcb`, 1 `channel`.
    pub mode: Option<u16>,
    /// What limits the classes in the NIC: 0 `dcb`, 1 `bw_rlimit`.
    pub shaper: Option<u16>,
    /// The guaranteed rates of `bw_rlimit`.
    pub min_rates: Rates,
    /// The limits of `bw_rlimit`.
    pub max_rates: Rates,
    /// The qdiscs below its queues.
    pub leaves: Leaves,
}

/// A rate for each class, 0 for none; empty if there are none.
pub type Rates = Vec<BitRate>;

impl Mqprio {
    /// Whether the NIC limits its classes.
    pub fn limits_in_nic(&self) -> bool {
        self.in_hardware && self.shaper == Some(RATE_LIMIT)
    }

    pub(super) fn root_is_met_by(&self, found: &Self) -> bool {
        let queues = self.queues.is_empty() || self.queues == found.queues;
        let key = |one: &Self| (one.classes, one.map, one.in_hardware);
        // What is not named is `dcb`.
        let modes = |one: &Self| (one.mode.unwrap_or(0), one.shaper.unwrap_or(0));
        let rates = |rates: &Rates| {
            let all = rates.iter().map(|rate| rate.as_bit_per_s());
            let mut all: Vec<u64> = all.collect();
            all.resize(self.classes.into(), 0);
            all
        };
        queues
            && key(self) == key(found)
            && modes(self) == modes(found)
            && rates(&self.min_rates) == rates(&found.min_rates)
            && rates(&self.max_rates) == rates(&found.max_rates)
    }

    /// Whether the kernel can make it.
    fn is_possible(&self) -> bool {
        let classes = usize::from(self.classes);
        let all_named = self.queues.len() == classes;
        let rates = [&self.min_rates, &self.max_rates];
        let has_rates = rates.iter().any(|rates| !rates.is_empty());
        let extends = self.mode.is_some() || self.shaper.is_some();
        (1..=CLASSES_MAX).contains(&classes)
            && self.map.iter().all(|class| *class < self.classes)
            && (all_named || (self.queues.is_empty() && self.in_hardware))
            // `mqprio_parse_nlattr`: rates belong to one shaper, and only a NIC has any.
            && (!has_rates || self.shaper == Some(RATE_LIMIT))
            && rates.iter().all(|rates| rates.len() <= classes)
            && (!extends || self.in_hardware)
    }
}

/// After `mqprio`.
pub(super) fn parse(words: &mut Words<'_>) -> Option<Mqprio> {
    let (mut classes, mut map, mut queues, mut hardware) = (None, None, None, None);
    let (mut mode, mut shaper, mut min, mut max) = (None, None, None, None);
    while let Some(word) = next_parameter(words) {
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
            "hw" => once(&mut hardware, number(words.next()?, &["0", "1"]))?,
            "mode" => once(&mut mode, number(words.next()?, &MODES))?,
            "shaper" => once(&mut shaper, number(words.next()?, &SHAPERS))?,
            "min_rate" => once(&mut min, take_list(words, parse_class_rate))?,
            "max_rate" => once(&mut max, take_list(words, parse_class_rate))?,
            _ => return None,
        }
    }
    let leaves = parse_leaves(words)?;
    let mut whole: Vec<u8> = map?;
    whole.resize(PRIORITIES, 0);
    let mqprio = Mqprio {
        map: whole.try_into().ok()?,
        queues: queues.unwrap_or_default(),
        classes: classes?,
        in_hardware: hardware.is_none_or(|hardware| hardware == 1),
        mode,
        shaper,
        min_rates: min.unwrap_or_default(),
        max_rates: max.unwrap_or_default(),
        leaves,
    };
    mqprio.is_possible().then_some(mqprio)
}

fn number(word: &str, words: &[&str]) -> Option<u16> {
    let at = words.iter().position(|one| *one == word)?;
    u16::try_from(at).ok()
}

/// The rate of a class; 0 for none.
fn parse_class_rate(word: &str) -> Option<BitRate> {
    let rate = parse_scaled(word, RATES).filter(|rate| rate.is_multiple_of(8))?;
    Some(BitRate::from_bit_per_s(rate))
}

/// Without its kind.
impl fmt::Display for Mqprio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " num_tc {} map {}", self.classes, list(&self.map))?;
        if !self.queues.is_empty() {
            let queues = self.queues.iter();
            let queues: Vec<String> = queues.map(|(count, at)| format!("{count}@{at}")).collect();
            write!(f, " queues {}", queues.join(" "))?;
        }
        write!(f, " hw {}", u8::from(self.in_hardware))?;
        for (word, own, words) in [("mode", self.mode, MODES), ("shaper", self.shaper, SHAPERS)] {
            if let Some(own) = own.and_then(|own| words.get(usize::from(own))) {
                write!(f, " {word} {own}")?;
            }
        }
        for (word, rates) in [("min_rate", &self.min_rates), ("max_rate", &self.max_rates)] {
            if !rates.is_empty() {
                let rates = rates.iter().map(|rate| scaled(rate.as_bit_per_s(), RATES));
                write!(f, " {word} {}", rates.collect::<Vec<_>>().join(" "))?;
            }
        }
        write_leaves(f, &self.leaves)
    }
}
