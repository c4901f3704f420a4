//! The placement words: parsing and formatting.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use linerate_model::ids::{CpuSet, NodeId};
use linerate_model::workload::MemoryPolicy;

/// Where the threads of one end run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Where {
    /// On the node of the interface: `near`.
    Near,
    /// On the node that is farthest from the interface: `far`.
    Far,
    /// On this node: `node:1`.
    Node(NodeId),
    /// On these CPUs: `cpu:0-3,8`.
    Cpus(CpuSet),
    /// A thread on each physical core, node by node in turn: `spread`.
    Spread,
    /// Both roles on one core: its siblings, or its only CPU: `same-core`.
    SameCore,
    /// On the CPUs that receive the connections: `by-rx-cpu`.
    ByReceiveCpu,
    /// Where the scheduler likes: `free`.
    #[default]
    Free,
}

/// On which nodes the buffers of one end are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryWhere {
    /// As in numactl(8): `default`, `local`, `bind:0`, `interleave:0,1`, `preferred:1`.
    Policy(MemoryPolicy),
    /// Bound to the interface's node: `near`.
    Near,
    /// Bound to the node that is farthest from it: `far`.
    Far,
}

impl Default for MemoryWhere {
    fn default() -> Self {
        Self::Policy(MemoryPolicy::Default)
    }
}

/// A word that is none of those that are known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {what}: {why}")]
pub struct WordError {
    text: String,
    what: &'static str,
    why: String,
}

const WHERE: &str = "near, far, node:N, cpu:LIST, spread, same-core, by-rx-cpu or free";
const MEMORY: &str = "default, local, bind:N,.., interleave:N,.., preferred:N, near or far";

fn wrong(text: &str, what: &'static str, why: impl Into<String>) -> WordError {
    WordError {
        text: text.to_owned(),
        what,
        why: why.into(),
    }
}

impl FromStr for Where {
    type Err = WordError;
    fn from_str(text: &str) -> Result<Self, WordError> {
        let wrong = |why: String| wrong(text, "placement", why);
        Ok(match text.split_once(':').unwrap_or((text, "")) {
            ("near", "") => Self::Near,
            ("far", "") => Self::Far,
            ("spread", "") => Self::Spread,
            ("same-core", "") => Self::SameCore,
            ("by-rx-cpu", "") => Self::ByReceiveCpu,
            ("free", "") => Self::Free,
            ("node", number) => {
                let number = number.parse();
                Self::Node(NodeId(number.map_err(|_| {
                    wrong("expected a number after `node:`, such as `node:1`".to_owned())
                })?))
            }
            ("cpu", list) => {
                let cpus: CpuSet = list.parse().map_err(|error| wrong(format!("{error}")))?;
                if cpus.is_empty() {
                    return Err(wrong(
                        "expected a CPU list after `cpu:`, such as `cpu:0-3,8`".to_owned(),
                    ));
                }
                Self::Cpus(cpus)
            }
            _ => return Err(wrong(format!("expected {WHERE}"))),
        })
    }
}

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Near => f.write_str("near"),
            Self::Far => f.write_str("far"),
            Self::Node(node) => write!(f, "node:{node}"),
            Self::Cpus(cpus) => write!(f, "cpu:{cpus}"),
            Self::Spread => f.write_str("spread"),
            Self::SameCore => f.write_str("same-core"),
            Self::ByReceiveCpu => f.write_str("by-rx-cpu"),
            Self::Free => f.write_str("free"),
        }
    }
}

impl FromStr for MemoryWhere {
    type Err = WordError;
    fn from_str(text: &str) -> Result<Self, WordError> {
        let wrong = |why: String| wrong(text, "memory placement", why);
        let (word, list) = text.split_once(':').unwrap_or((text, ""));
        let nodes = || {
            let numbers = list
                .split(',')
                .map(|number| number.trim().parse().map(NodeId));
            let nodes: Result<BTreeSet<NodeId>, _> = numbers.collect();
            let nodes = nodes.map_err(|_| {
                wrong(format!(
                    "expected node numbers after `{word}:`, such as `{word}:0`"
                ))
            })?;
            Ok(nodes.into_iter().collect::<Vec<_>>())
        };
        Ok(match (word, list) {
            ("near", "") => Self::Near,
            ("far", "") => Self::Far,
            ("default", "") => Self::Policy(MemoryPolicy::Default),
            ("local", "") => Self::Policy(MemoryPolicy::Local),
            ("bind", _) => Self::Policy(MemoryPolicy::Bind(nodes()?)),
            ("interleave", _) => Self::Policy(MemoryPolicy::Interleave(nodes()?)),
            ("preferred", _) => match nodes()?[..] {
                [node] => Self::Policy(MemoryPolicy::Preferred(node)),
                _ => return Err(wrong("`preferred` takes a single node".to_owned())),
            },
            _ => return Err(wrong(format!("expected {MEMORY}"))),
        })
    }
}
