//! Values of settings.

use std::fmt;

use serde::Serialize;

use super::{QdiscSpec, addresses};
use crate::host::Qdisc;

/// A setting's value, with the type of its catalog entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Value {
    /// On or off.
    Switch(bool),
    /// A count, in the setting's own unit.
    Integer(u64),
    /// A qdisc with the kernel's own parameters.
    Qdisc(Qdisc),
    /// Text as the kernel prints it, white space reduced to single spaces; CPU sets in list form.
    Text(String),
}

impl Value {
    /// Whether a setting with the value `found` satisfies this one. A requested qdisc without handle or options
    /// matches any of its kind with nothing below it that somebody made, since the kernel assigns those; one requested
    /// with parameters matches if those parameters match. Lists of addresses match in any order.
    pub fn is_met_by(&self, found: &Self) -> bool {
        match (self, found) {
            (Self::Qdisc(asked), Self::Qdisc(found)) => {
                asked.kind == found.kind
                    && (asked.handle == 0 || asked.handle == found.handle)
                    && (asked.options.is_empty() || asked.options == found.options)
                    && (asked.is_asked() || asked.below == found.below)
                    && asked.words_are_met_by(found)
            }
            (Self::Text(asked), Self::Text(found)) => {
                asked == found || addresses::is_met(asked, found)
            }
            _ => self == found,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(true) => f.write_str("on"),
            Self::Switch(false) => f.write_str("off"),
            Self::Integer(count) => write!(f, "{count}"),
            Self::Qdisc(qdisc) => match qdisc.rate_bit_per_s {
                Some(rate) => write!(f, "{} {rate}", qdisc.kind),
                // The requested value, word by word; the value found may have more words than fit a line.
                None if qdisc.is_asked() => f.write_str(&qdisc.words),
                None => f.write_str(&qdisc.kind),
            },
            Self::Text(text) if text.is_empty() => f.write_str("none"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl Qdisc {
    /// A qdisc with the kernel's defaults.
    pub fn plain(kind: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            handle: 0,
            rate_bit_per_s: None,
            options: String::new(),
            words: String::new(),
            below: Vec::new(),
        }
    }

    /// One that is requested with parameters.
    pub fn asked(qdisc_spec: &QdiscSpec) -> Self {
        Self {
            handle: qdisc_spec.handle(),
            words: qdisc_spec.to_string(),
            ..Self::plain(qdisc_spec.kind())
        }
    }

    /// Its parsed parameters; none if they are incomplete or missing.
    pub fn qdisc_spec(&self) -> Option<QdiscSpec> {
        QdiscSpec::parse(&self.words)
    }

    /// Whether it is requested by parameters, and was not read.
    pub fn is_asked(&self) -> bool {
        self.options.is_empty() && self.below.is_empty() && !self.words.is_empty()
    }

    /// Whether everything in it is of one of `wholes`: what is left of replacing one by another that was interrupted.
    pub fn is_made_of(&self, wholes: [&Self; 2]) -> bool {
        let is_below = |whole: &&Self| {
            let root = |one: &Self| (one.kind.clone(), one.handle, one.options.clone());
            let mut below = self.below.iter();
            root(self) == root(whole) && below.all(|part| whole.below.contains(part))
        };
        let wholes_in_words: Vec<QdiscSpec> =
            wholes.iter().filter_map(|one| one.qdisc_spec()).collect();
        let own = QdiscSpec::parse_part(&self.words);
        wholes.iter().any(is_below) || own.is_some_and(|own| own.is_made_of(&wholes_in_words))
    }

    fn words_are_met_by(&self, found: &Self) -> bool {
        let same = self.words.is_empty() || self.words == found.words;
        same || match (self.qdisc_spec(), found.qdisc_spec()) {
            (Some(asked), Some(found)) => asked.is_met_by(&found),
            _ => false,
        }
    }
}

/// Sysctls print their numbers with tabs and accept spaces: one form for both.
pub fn fold_blanks(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
