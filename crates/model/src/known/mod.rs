//! An unknown value has a cause. A value that could not be read is never 0, never "ok" and never left out: it is
//! [`Known::Unknown`] with the place that was read and the reason for the failure.

mod missed;
mod read;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::missed::{miss, missed};

/// Why a value is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// This kernel does not have it (no such file, attribute, device or family), although others do.
    Absent,
    /// It does not apply to this kind of object: a veth has no PCI slot, a receive queue no XPS.
    Inapplicable,
    /// It exists, but this user may not read it.
    Denied,
    /// It exists, but reading or parsing it failed.
    Unreadable,
    /// The kernel reported it as unknown (`numa_node` -1, `speed` -1).
    NotSaid,
    /// It was not read: the reader of this value did not run.
    NotAsked,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "absent",
            Self::Inapplicable => "does not apply",
            Self::Denied => "permission denied",
            Self::Unreadable => "unreadable",
            Self::NotSaid => "not reported",
            Self::NotAsked => "not queried",
        })
    }
}

/// The reason of [`Known::not_asked`], which adds nothing to its cause.
const NOT_READ: &str = "not read";

/// A value that could not be read: the place and the reason.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gap {
    /// Marks the object as a gap in the protocol and in stored runs.
    #[serde(rename = "unknown")]
    pub cause: Cause,
    /// The file, netlink request or other source that was read.
    pub path: String,
    /// The reason as text, specific enough to act on.
    pub reason: String,
}

impl Gap {
    /// A gap at `path` because of `cause`, explained by `reason`.
    pub fn new(cause: Cause, path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            cause,
            path: path.into(),
            reason: reason.into(),
        }
    }
}

impl Gap {
    /// Whether its reason adds nothing to its cause. Older captures have the second wording.
    pub fn is_unread(&self) -> bool {
        let reasons = [NOT_READ, "this reader did not ask"];
        self.cause == Cause::NotAsked && reasons.contains(&self.reason.as_str())
    }

    /// Whether a check needs it. What is absent or not applicable does not concern this host or device and cannot be
    /// supplied; every other gap leaves the check open.
    pub fn leaves_a_question(&self) -> bool {
        !matches!(self.cause, Cause::Absent | Cause::Inapplicable)
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unread() {
            return write!(f, "{}: {}", self.path, self.cause);
        }
        write!(f, "{}: {} ({})", self.path, self.cause, self.reason)
    }
}

/// A value, or why it is not known.
///
/// In the protocol and in stored runs a known value is written as it is, an unknown one as its [`Gap`]. `--format
/// json` prints each gap as `null` and lists it under `gaps`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(untagged)]
pub enum Known<T> {
    /// Why the value is not known.
    Unknown(Gap),
    /// The value.
    Value(T),
}

impl<T> Known<T> {
    /// A value that was not read.
    pub fn not_asked(path: impl Into<String>) -> Self {
        Self::Unknown(Gap::new(Cause::NotAsked, path, NOT_READ))
    }

    /// An unknown value.
    pub fn unknown(cause: Cause, path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Unknown(Gap::new(cause, path, reason))
    }

    /// The value, if it is known. A gap is noted for [`missed`]; matching on [`Known::Value`] does not note it.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Unknown(gap) => {
                miss(gap);
                None
            }
        }
    }

    /// The reason, if the value is not known.
    pub fn gap(&self) -> Option<&Gap> {
        match self {
            Self::Value(_) => None,
            Self::Unknown(gap) => Some(gap),
        }
    }

    /// The value, or the gap, for use with `?`.
    pub fn ok(&self) -> Result<&T, &Gap> {
        match self {
            Self::Value(value) => Ok(value),
            Self::Unknown(gap) => {
                miss(gap);
                Err(gap)
            }
        }
    }

    /// Applies `f` to a known value; a gap is kept.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Known<U> {
        match self {
            Self::Value(value) => Known::Value(f(value)),
            Self::Unknown(gap) => Known::Unknown(gap),
        }
    }

    /// Like [`Known::map`], for a step that may fail itself.
    pub fn and_then<U>(self, f: impl FnOnce(T) -> Known<U>) -> Known<U> {
        match self {
            Self::Value(value) => f(value),
            Self::Unknown(gap) => Known::Unknown(gap),
        }
    }
}

/// Not read: the default of a value that records of older versions do not have.
impl<T> Default for Known<T> {
    fn default() -> Self {
        Self::not_asked("")
    }
}

impl<T: Copy> Known<T> {
    /// The value itself, if it is known.
    pub fn get(&self) -> Option<T> {
        self.value().copied()
    }
}

impl<T> From<T> for Known<T> {
    fn from(value: T) -> Self {
        Self::Value(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_was_not_read_is_shown_without_a_second_reason() {
        let shown = |reason: &str| Gap::new(Cause::NotAsked, "/p", reason).to_string();
        assert_eq!(shown(NOT_READ), "/p: not queried");
        assert_eq!(shown("this reader did not ask"), "/p: not queried");
        assert_eq!(
            shown("needs two readings"),
            "/p: not queried (needs two readings)"
        );
    }

    #[test]
    fn an_unknown_fact_keeps_its_cause_across_the_wire() {
        let gap: Known<u64> = Known::unknown(Cause::Denied, "/proc/x", "needs root");
        let text = serde_json::to_string(&gap).expect("a gap is plain data");
        assert_eq!(
            text,
            r#"{"unknown":"denied","path":"/proc/x","reason":"needs root"}"#
        );
        assert_eq!(
            serde_json::from_str::<Known<u64>>(&text).expect("what was written"),
            gap
        );
        assert_eq!(
            serde_json::from_str::<Known<u64>>("7").expect("a value"),
            Known::Value(7)
        );
    }
}
