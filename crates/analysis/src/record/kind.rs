//! Which command made a run.

use std::iter::successors;
use std::path::Path;

use serde::Serialize;

use super::{Header, Record};

/// The commands that store runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunKind {
    /// `lab`.
    Lab,
    /// `prove`.
    Prove,
    /// `demo`.
    Demo,
    /// `tune search`.
    Search,
    /// `measure`.
    Measure,
    /// `qos verify`.
    Qos,
    /// `failover`.
    Failover,
    /// `mesh`.
    Mesh,
    /// What a rank of `mesh` keeps of its own flows.
    MeshRank,
}

impl RunKind {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Lab,
        Self::Prove,
        Self::Demo,
        Self::Search,
        Self::Measure,
        Self::Qos,
        Self::Failover,
        Self::Mesh,
        Self::MeshRank,
    ];

    /// The word of the kind, as people type and read it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Lab => "lab",
            Self::Prove => "prove",
            Self::Demo => "demo",
            Self::Search => "search",
            Self::Measure => "measure",
            Self::Qos => "qos",
            Self::Failover => "failover",
            Self::Mesh => "mesh",
            Self::MeshRank => "mesh-rank",
        }
    }

    /// The kind according to the folder's name. A demo, for example, writes its own record only when its proof is over:
    /// if it was stopped before, only the name shows it.
    pub fn of_folder(folder: &Path, header: &Header) -> Self {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        // Runs of one time and seed are numbered: ranks of a mesh, and their sessions.
        let names: Vec<&str> = successors(Some(&*name), without_number).take(3).collect();
        let is = |kind: &Self| {
            let end = format!("-{}-{}", kind.word(), header.seed);
            names.iter().any(|name| name.ends_with(&end))
        };
        Self::ALL.into_iter().find(is).unwrap_or(Self::Prove)
    }

    /// What is known once `record` was seen, too.
    #[must_use]
    pub fn and(self, record: &Record) -> Self {
        match record {
            Record::Lab { .. } => Self::Lab,
            Record::Factors(_) | Record::Explored { .. } => Self::Search,
            Record::Planted(_) => Self::Demo,
            Record::Qos(_) => Self::Qos,
            Record::Failover(_) => Self::Failover,
            Record::Mesh(_) => Self::Mesh,
            Record::MeshRank(_) => Self::MeshRank,
            // It also has a result for each class.
            Record::Measured(_) if self != Self::Qos => Self::Measure,
            _ => self,
        }
    }
}

/// A name without the number at its end.
fn without_number<'a>(name: &&'a str) -> Option<&'a str> {
    let (start, end) = name.rsplit_once('-')?;
    let is_number = end.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(start)
}
