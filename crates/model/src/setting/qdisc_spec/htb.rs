//! The classes of a hierarchical token bucket (tc-htb(8)).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::params::{
    CLASS, HTB_CLASS, LEAF, Named, Words, next_parameter, once, parse_minor, take_named,
    write_named,
};
use super::units::{parse_rate, rate_words};
use super::{QdiscSpec, burst_ticks, is_burst, parse_leaf};
use crate::units::BitRate;

/// tc(8)'s default for `r2q`.
const RATE_TO_QUANTUM: u32 = 10;
/// `TC_HTB_MAXDEPTH`: the maximum number of levels.
const LEVELS_MAX: usize = 8;

/// A hierarchical token bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Htb {
    /// The minor number of the class of unclassified packets; 0 sends them unshaped.
    pub default: u16,
    /// The divisor of a class's rate for its quantum (`r2q`).
    pub rate_to_quantum: u32,
    /// Its classes, by minor number.
    pub classes: BTreeMap<u16, HtbClass>,
}

/// A class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HtbClass {
    /// The minor number of the class above it; 0 for the root.
    pub parent: u16,
    /// The guaranteed rate.
    pub rate: BitRate,
    /// The ceiling.
    pub ceil: BitRate,
    /// The bursts at its rate and at its ceiling, and its quantum, bytes; and its priority.
    pub named: Named,
    /// The qdisc below it; none for the kernel's default.
    pub leaf: Option<Box<QdiscSpec>>,
}

impl HtbClass {
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
        let named = self.named.get(word).copied();
        named.unwrap_or_else(|| u32::try_from(usual).unwrap_or(u32::MAX))
    }

    /// Whether a class that was read is as requested, without its leaf.
    pub fn is_met_by(&self, found: &Self) -> bool {
        let key = |class: &Self| (class.parent, class.rate, class.ceil);
        let named = |word: &str| {
            let asked = self.named.get(word);
            asked.is_none() || asked == found.named.get(word)
        };
        key(self) == key(found)
            && is_burst(self.burst("burst"), found.burst("burst"), self.rate)
            && is_burst(self.burst("cburst"), found.burst("cburst"), self.ceil)
            && named("quantum")
            && named("prio")
    }

    /// Its parameters in tc(8) syntax, with a blank before each, without its parent and leaf.
    pub fn words(&self) -> String {
        struct Class<'c>(&'c HtbClass);
        impl fmt::Display for Class<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_class(f, self.0)
            }
        }
        Class(self).to_string()
    }

    fn leaf_is_met_by(&self, found: &Self) -> bool {
        match (&self.leaf, &found.leaf) {
            (None, None) => true,
            (Some(asked), Some(found)) => asked.is_met_by(found),
            _ => false,
        }
    }
}

impl Htb {
    pub(super) fn root_is_met_by(&self, found: &Self) -> bool {
        (self.default, self.rate_to_quantum) == (found.default, found.rate_to_quantum)
    }

    pub(super) fn classes_are_met_by(&self, found: &Self) -> bool {
        self.classes.keys().eq(found.classes.keys())
            && self.classes.iter().all(|(minor, class)| {
                let found = found.classes.get(minor);
                found.is_some_and(|found| class.is_met_by(found) && class.leaf_is_met_by(found))
            })
    }

    /// Its classes, each after the class above it.
    pub fn downwards(&self) -> Vec<(u16, &HtbClass)> {
        let mut classes: Vec<_> = self.classes.iter().collect();
        classes.sort_by_key(|(minor, class)| (self.level(class), **minor));
        classes
            .into_iter()
            .map(|(minor, class)| (*minor, class))
            .collect()
    }

    /// The number of classes above `class`; [`LEVELS_MAX`] if they have no end.
    fn level(&self, class: &HtbClass) -> usize {
        let above = std::iter::successors(Some(class), |class| self.classes.get(&class.parent));
        above.take(LEVELS_MAX + 1).count() - 1
    }

    /// The one class for which the words of a class are those of the root.
    fn only_class(&self) -> Option<&HtbClass> {
        let (minor, class) = self.classes.first_key_value()?;
        let is_plain = *minor == self.default && class.parent == 0 && class.leaf.is_none();
        (self.classes.len() == 1 && is_plain).then_some(class)
    }

    pub(super) fn has_only_one_class(&self) -> bool {
        self.only_class().is_some()
    }

    /// Whether the kernel can make it.
    pub(super) fn is_possible(&self) -> bool {
        let parents: BTreeSet<u16> = self.classes.values().map(|class| class.parent).collect();
        let has_children = |minor: u16| parents.contains(&minor);
        let is_possible = |(minor, class): (&u16, &HtbClass)| {
            let is_below = class.parent == 0 || self.classes.contains_key(&class.parent);
            let fits = |word, rate| burst_ticks(class.burst(word), rate).is_some();
            *minor != 0
                && is_below
                && self.level(class) < LEVELS_MAX
                && (class.leaf.is_none() || !has_children(*minor))
                && fits("burst", class.rate)
                && fits("cburst", class.ceil)
        };
        let is_leaf = |minor| self.classes.contains_key(&minor) && !has_children(minor);
        self.rate_to_quantum != 0
            && !self.classes.is_empty()
            && (self.default == 0 || is_leaf(self.default))
            && self.classes.iter().all(is_possible)
    }
}

/// The parameters of a class before they are complete.
#[derive(Default)]
struct Draft {
    parent: Option<u16>,
    rate: Option<BitRate>,
    ceil: Option<BitRate>,
    named: Named,
}

impl Draft {
    fn take(&mut self, word: &str, words: &mut Words<'_>) -> Option<()> {
        match word {
            "rate" => once(&mut self.rate, parse_rate(words.next()?)),
            "ceil" => once(&mut self.ceil, parse_rate(words.next()?)),
            word => take_named(&mut self.named, HTB_CLASS, word, words),
        }
    }

    fn finish(self, leaf: Option<QdiscSpec>) -> Option<HtbClass> {
        let rate = self.rate?;
        Some(HtbClass {
            parent: self.parent.unwrap_or(0),
            rate,
            ceil: self.ceil.unwrap_or(rate),
            named: self.named,
            leaf: leaf.map(Box::new),
        })
    }
}

/// After `htb`: the parameters of the root with those of its only class, or with `class` before each.
pub(super) fn parse(words: &mut Words<'_>) -> Option<Htb> {
    let (mut default, mut to_quantum) = (None, None);
    let mut only: Option<Draft> = None;
    while let Some(word) = next_parameter(words) {
        match word {
            "default" => once(&mut default, parse_minor(words.next()?))?,
            "r2q" => once(&mut to_quantum, words.next()?.parse().ok())?,
            word => only.get_or_insert_default().take(word, words)?,
        }
    }
    let mut classes = BTreeMap::new();
    if let Some(only) = only {
        classes.insert(default?, only.finish(None)?);
    } else {
        while words.next_if_eq(&CLASS).is_some() {
            let (minor, class) = parse_class(words)?;
            if classes.insert(minor, class).is_some() {
                return None;
            }
        }
    }
    Some(Htb {
        default: default.unwrap_or(0),
        rate_to_quantum: to_quantum.unwrap_or(RATE_TO_QUANTUM),
        classes,
    })
}

/// After `class`.
fn parse_class(words: &mut Words<'_>) -> Option<(u16, HtbClass)> {
    let minor = parse_minor(words.next()?)?;
    let mut draft = Draft::default();
    while let Some(word) = next_parameter(words) {
        if word == "parent" {
            let parent = parse_minor(words.next()?).filter(|parent| *parent != 0);
            once(&mut draft.parent, parent)?;
        } else {
            draft.take(word, words)?;
        }
    }
    let leaf = match words.next_if_eq(&LEAF) {
        Some(_) => Some(parse_leaf(words.next()?, words)?),
        None => None,
    };
    Some((minor, draft.finish(leaf)?))
}

fn write_class(f: &mut fmt::Formatter<'_>, class: &HtbClass) -> fmt::Result {
    let (rate, ceil) = (rate_words(class.rate), rate_words(class.ceil));
    write!(f, " rate {rate} ceil {ceil}")?;
    write_named(f, &class.named, HTB_CLASS)
}

/// Without its kind.
impl fmt::Display for Htb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.default != 0 {
            write!(f, " default {:x}", self.default)?;
        }
        if self.rate_to_quantum != RATE_TO_QUANTUM {
            write!(f, " r2q {}", self.rate_to_quantum)?;
        }
        if let Some(class) = self.only_class() {
            return write_class(f, class);
        }
        for (minor, class) in &self.classes {
            write!(f, " {CLASS} {minor:x}")?;
            if class.parent != 0 {
                write!(f, " parent {:x}", class.parent)?;
            }
            write_class(f, class)?;
            if let Some(leaf) = &class.leaf {
                write!(f, " {LEAF} {leaf}")?;
            }
        }
        Ok(())
    }
}
