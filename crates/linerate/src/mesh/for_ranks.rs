//! What the ranks store of a mesh in runs of their own, as lines: what all of them get, and the results of each one's flows.

use std::collections::BTreeMap;

use linerate_analysis::record::{Header, MeshFlow, MeshMember, Record};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::mesh::HostIndex;

/// The lines that wait to be sent.
#[derive(Debug, Default)]
pub(super) struct ForRanks {
    /// For all of them: the header, what was asked, which hosts were lost, and the end. Empty if nothing is stored.
    shared: Vec<String>,
    /// Each rank as it joined.
    members: BTreeMap<HostIndex, String>,
    /// The results of flows that a rank does not have yet.
    own: BTreeMap<HostIndex, Vec<String>>,
}

impl ForRanks {
    /// Begins with what stands first in each run.
    pub(super) fn new(header: &Header, asked: &Record) -> Outcome<Self> {
        Ok(Self {
            shared: vec![line(header)?, line(asked)?],
            ..Self::default()
        })
    }

    /// Each rank stores what it is itself.
    pub(super) fn member(&mut self, member: &MeshMember) {
        let own = MeshMember {
            facts: None,
            ..member.clone()
        };
        if let Ok(line) = line(&Record::MeshHost(Box::new(own))) {
            self.members.insert(member.host, line);
        }
    }

    /// A record for all.
    pub(super) fn share(&mut self, record: &Record) {
        if !self.shared.is_empty() {
            self.shared.extend(line(record));
        }
    }

    /// The result of a flow for both of its hosts, without the raw counters.
    pub(super) fn flow(&mut self, flow: &MeshFlow) {
        let hosts = [flow.flow.from, flow.flow.to];
        let ranks = hosts.iter().filter(|host| self.members.contains_key(host));
        let ranks: Vec<HostIndex> = ranks.copied().collect();
        if ranks.is_empty() {
            return;
        }
        let own = MeshFlow {
            observations: flow.observations.clone(),
            sample: None,
            ..*flow
        };
        if let Ok(line) = line(&Record::MeshFlow(Box::new(own))) {
            for rank in ranks {
                self.own.entry(rank).or_default().push(line.clone());
            }
        }
    }

    /// How the mesh ended.
    pub(super) fn end(&mut self, headline: &str, stopped: Option<&str>) {
        self.share(&Record::MeshVerdict(headline.to_owned()));
        if let Some(why) = stopped {
            self.share(&Record::Stopped(why.to_owned()));
        }
        self.share(&Record::Ended {
            restored: true,
            kept: false,
        });
    }

    /// The lines that the run of a rank lacks, which has `count` of those for all; and how many of these it has then. None if it is
    /// no rank, or lacks nothing.
    pub(super) fn take(&mut self, host: HostIndex, count: usize) -> Option<(Vec<String>, usize)> {
        let member = self.members.get(&host)?;
        let mut lines = self.shared.get(count..).unwrap_or_default().to_vec();
        if count == 0 && lines.len() >= 2 {
            let rank = line(&Record::MeshRank(host)).ok()?;
            lines.splice(2..2, [rank, member.clone()]);
        }
        lines.extend(self.own.remove(&host).unwrap_or_default());
        (!lines.is_empty()).then_some((lines, self.shared.len()))
    }
}

/// A header or a record as it is sent to a rank.
fn line(of: &impl serde::Serialize) -> Outcome<String> {
    serde_json::to_string(of)
        .map_err(|error| Stop::new(Code::Bug, "cannot write a record").because(error))
}
