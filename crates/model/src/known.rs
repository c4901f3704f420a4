//! Not-knowing is a value with a cause. A fact that could not be read is never 0, never "ok", never
//! left out: it is [`Known::Unknown`] with the place that was asked and the reason it did not answer.

mod read;

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a fact is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The kernel does not offer it here (no such file, attribute, device or family), and could have.
    Absent,
    /// A thing of this kind cannot have it: no veth has a slot, no receive queue a steering of sends.
    Inapplicable,
    /// It exists, but this user may not read it.
    Denied,
    /// It exists, but reading or understanding it failed.
    Unreadable,
    /// The kernel answered that it does not know (`numa_node` -1, `speed` -1).
    NotSaid,
    /// Nobody asked: the reader of this fact did not run.
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

/// One thing that could not be read: what was asked, and why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Gap {
    /// Marks the object as a gap on the wire and in stored runs.
    #[serde(rename = "unknown")]
    pub cause: Cause,
    /// The file, netlink request or other place that was asked.
    pub path: String,
    /// The reason in words, complete enough to act on.
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
    /// Whether a judgement misses it. What is absent, or cannot be, does not apply to this host or device,
    /// and nobody could supply it; every other gap leaves a question open.
    pub fn leaves_a_question(&self) -> bool {
        !matches!(self.cause, Cause::Absent | Cause::Inapplicable)
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.path, self.cause, self.reason)
    }
}

/// A fact, or why it is not known.
///
/// On the wire and in stored runs a known fact is its value alone, an unknown one the [`Gap`]. What
/// `--format json` prints turns each gap into `null` and lists it under `gaps`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(untagged)]
pub enum Known<T> {
    /// Why the fact is not known.
    Unknown(Gap),
    /// The fact.
    Value(T),
}

impl<T> Known<T> {
    /// The fact was not asked for.
    pub fn not_asked(path: impl Into<String>) -> Self {
        Self::Unknown(Gap::new(Cause::NotAsked, path, "this reader did not ask"))
    }

    /// An unknown fact.
    pub fn unknown(cause: Cause, path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Unknown(Gap::new(cause, path, reason))
    }

    /// The fact, when it is known.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }

    /// The reason why the fact is not known, when it is not.
    pub fn gap(&self) -> Option<&Gap> {
        match self {
            Self::Value(_) => None,
            Self::Unknown(gap) => Some(gap),
        }
    }

    /// The fact, or the gap, for use with `?`.
    pub fn ok(&self) -> Result<&T, &Gap> {
        match self {
            Self::Value(value) => Ok(value),
            Self::Unknown(gap) => Err(gap),
        }
    }

    /// Applies `f` to a known fact; a gap stays the gap it is.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Known<U> {
        match self {
            Self::Value(value) => Known::Value(f(value)),
            Self::Unknown(gap) => Known::Unknown(gap),
        }
    }

    /// Like [`Known::map`], for a step that may itself find that the fact is not known.
    pub fn and_then<U>(self, f: impl FnOnce(T) -> Known<U>) -> Known<U> {
        match self {
            Self::Value(value) => f(value),
            Self::Unknown(gap) => Known::Unknown(gap),
        }
    }
}

/// Nobody asked: the default of a fact that a record of an older version does not hold.
impl<T> Default for Known<T> {
    fn default() -> Self {
        Self::not_asked("")
    }
}

impl<T: Copy> Known<T> {
    /// The fact by value, when it is known.
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
