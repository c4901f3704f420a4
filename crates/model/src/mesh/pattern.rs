//! Which hosts of a mesh measure with each other.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{GroupKind, HostIndex};

/// The largest mesh of which all pairs are measured by default: 127 rounds of pairs.
pub const PAIRS_MAX: usize = 128;

/// Which hosts measure with each other, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "pattern")]
pub enum Pattern {
    /// All pairs: N-1 rounds, or N of an odd N; each host is in one pair at a time.
    Pairs,
    /// Each host with the next one in the list, all at once; the last one with the first.
    Ring,
    /// Each host with one, one after another.
    ToRoot {
        /// The one.
        root: HostIndex,
    },
    /// Several hosts send to one, and two others are measured with and without that.
    Incast(Incast),
    /// Each host of one half with one of the other half, all at once. Halves are whole groups where groups are known.
    Bisection,
    /// All pairs within each group, all groups at once.
    Neighbors {
        /// Which groups.
        kind: GroupKind,
    },
    /// About log2(N) different partners for each host, each host in one pair at a time.
    Quick,
    /// Hosts and pairs that an earlier part of the run showed as slow, with new partners.
    Suspects(Retest),
}

/// An incast.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Incast {
    /// How many hosts send to the receiver.
    pub senders: u32,
    /// The receiver; null is a random host.
    pub receiver: Option<HostIndex>,
    /// The sender and the receiver of the flow that does not go there; null are two random hosts.
    pub victim: Option<(HostIndex, HostIndex)>,
}

/// What is measured again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Retest {
    /// Hosts, each of which is measured with new partners.
    pub hosts: Vec<HostIndex>,
    /// Pairs, each measured again as often, and each of its hosts with half as many others.
    pub pairs: Vec<(HostIndex, HostIndex)>,
    /// How many partners each host gets.
    pub partners: u32,
    /// Partners that each host has had already (the lower host first): avoided while others are left.
    pub known: Vec<(HostIndex, HostIndex)>,
    /// Hosts that are gone.
    pub without: Vec<HostIndex>,
}

/// The direction of all flows of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// From the first host of each pair to the second.
    Forward,
    /// From the second to the first.
    Reverse,
    /// Both at once.
    Together,
}

impl Step {
    /// Both directions apart and together.
    pub const ALL: [Self; 3] = [Self::Forward, Self::Reverse, Self::Together];
}

/// Why a pattern does not fit the hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Too few hosts.
    #[error("the pattern `{pattern}` needs at least {needed} hosts, and there are {there}")]
    TooFew {
        /// The pattern.
        pattern: String,
        /// How many it needs.
        needed: usize,
        /// How many there are.
        there: usize,
    },
    /// A host that is not in the list.
    #[error("there is no host {} in the list of {there}", host.0)]
    NoHost {
        /// The host.
        host: HostIndex,
        /// How many there are.
        there: usize,
    },
    /// A host has two roles.
    #[error("the receiver of the incast and the hosts of the victim flow must differ")]
    Roles,
    /// An incast needs senders.
    #[error("an incast needs at least 1 sender")]
    NoSender,
    /// No two hosts share a group.
    #[error("no two hosts have the same {0} in the hosts file")]
    NoGroup(GroupKind),
    /// There is no direction.
    #[error("a schedule needs at least one direction and one repetition")]
    Nothing,
}

impl Pattern {
    /// The default for a number of hosts.
    pub const fn default_for(hosts: usize) -> Self {
        if hosts > PAIRS_MAX {
            Self::Quick
        } else {
            Self::Pairs
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pairs => f.write_str("pairs"),
            Self::Ring => f.write_str("ring"),
            Self::ToRoot { .. } => f.write_str("to-root"),
            Self::Incast(incast) => write!(f, "incast {}:1", incast.senders),
            Self::Bisection => f.write_str("bisection"),
            Self::Neighbors { kind } => write!(f, "neighbors ({kind})"),
            Self::Quick => f.write_str("quick"),
            Self::Suspects(_) => f.write_str("suspects"),
        }
    }
}
