//! A stored mesh, judged and shown again from its records: those of the root, or those that its ranks kept, joined.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use linerate_analysis::mesh::Requirement;
use linerate_analysis::record::{Header, MeshAsked, MeshMember, Record};
use linerate_analysis::text::words::count;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::mesh::HostIndex;
use linerate_runtime::console::say::Say;
use linerate_store as store;

use super::judged::{Evidence, Judged};
use crate::stored_runs;

/// Shows a stored mesh, or one that is joined from what several of its ranks kept; writes its page.
pub(crate) fn show(folders: &[PathBuf], page: &Path, say: &Say) -> Outcome<()> {
    let mut mesh: Option<(&PathBuf, Header, Joined)> = None;
    for folder in folders {
        let stored = match stored_runs::read(folder, say) {
            // A rank whose disk was full has an empty folder.
            Err(stop) if folders.len() > 1 && stop.code == Code::BadInput => {
                say.note(&format!("left out: {}", stop.message));
                continue;
            }
            read => read?,
        };
        let (first, header, joined) =
            mesh.get_or_insert_with(|| (folder, stored.header.clone(), Joined::default()));
        let key = |header: &Header| (header.seed, header.created_unix_s);
        if key(header) != key(&stored.header) || !joined.add(stored.records) {
            let why = format!(
                "cannot join {}: it is not a part of the same mesh as {}",
                folder.display(),
                first.display()
            );
            let hint = "join the runs that the ranks of one `mesh` have kept";
            return Err(Stop::new(Code::BadInput, why).hint(hint));
        }
    }
    let Some((first, header, joined)) = mesh else {
        return Err(Stop::new(Code::BadInput, "no run of a mesh can be read"));
    };
    let ranks = joined.ranks.len();
    let records = joined.records();
    let judged = judged(&records, &header, first)?;
    store::write_page(first, page, &judged.page(&header.version))?;
    let hosts = count(judged.hosts(), "host");
    match ranks {
        0 => {}
        1 => say.note(&format!(
            "the run of one rank of {hosts}: `linerate report RUN...` joins those of several"
        )),
        _ => say.note(&format!("joined from the runs of {ranks} ranks ({hosts})")),
    }
    judged.print(false, say)
}

/// The records of a mesh from one or several of its runs.
#[derive(Default)]
struct Joined {
    asked: Option<Record>,
    ranks: BTreeSet<HostIndex>,
    members: BTreeMap<HostIndex, Box<MeshMember>>,
    lost: BTreeMap<HostIndex, Record>,
    /// By round, sender and receiver: both hosts of a flow keep it.
    flows: BTreeMap<(u32, HostIndex, HostIndex), Record>,
    end: Vec<Record>,
}

impl Joined {
    /// Adds the records of another run; false if they are not of the same mesh.
    fn add(&mut self, records: Vec<Record>) -> bool {
        let mut end = Vec::new();
        for record in records {
            match record {
                Record::Mesh(_) => match &self.asked {
                    None => self.asked = Some(record),
                    Some(asked) if *asked == record => {}
                    Some(_) => return false,
                },
                Record::MeshRank(host) => drop(self.ranks.insert(host)),
                // One of several sessions of a rank has the facts.
                Record::MeshHost(member) => match self.members.entry(member.host) {
                    Entry::Occupied(mut known) if known.get().facts.is_none() => {
                        known.insert(member);
                    }
                    known => drop(known.or_insert(member)),
                },
                Record::MeshLost { host, .. } => {
                    self.lost.entry(host).or_insert(record);
                }
                Record::MeshFlow(ref flow) => {
                    let flow = (flow.round, flow.flow.from, flow.flow.to);
                    self.flows.entry(flow).or_insert(record);
                }
                record => end.push(record),
            }
        }
        // How the mesh ended is in those that were not cut off.
        let has_ended = |end: &[Record]| end.iter().any(|one| matches!(one, Record::Ended { .. }));
        if self.end.is_empty() || has_ended(&end) {
            self.end = end;
        }
        true
    }

    /// The records in the order of a run.
    fn records(self) -> Vec<Record> {
        let mut records: Vec<Record> = self.asked.into_iter().collect();
        records.extend(self.ranks.into_iter().map(Record::MeshRank));
        records.extend(self.members.into_values().map(Record::MeshHost));
        records.extend(self.lost.into_values());
        records.extend(self.flows.into_values());
        records.extend(self.end);
        records
    }
}

/// The page of a stored mesh, computed from its records, without writing anything.
pub(crate) fn page_of(folder: &Path) -> Outcome<String> {
    let stored = store::read(folder)?;
    let judged = judged(&stored.records, &stored.header, folder)?;
    Ok(judged.page(&stored.header.version))
}

/// The page of the records of a run.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn page_of_records(records: &[Record], header: &Header) -> Outcome<String> {
    let judged = judged(records, header, Path::new("fuzz"))?;
    Ok(judged.page(&header.version))
}

fn judged(records: &[Record], header: &Header, folder: &Path) -> Outcome<Judged> {
    let (asked, evidence, stopped) = read(records, folder)?;
    Ok(Judged::of(asked, &evidence, header.seed, stopped))
}

pub(super) fn read<'a>(
    records: &'a [Record],
    folder: &Path,
) -> Outcome<(&'a MeshAsked, Evidence, Option<String>)> {
    let shown = folder.display();
    let Some(Record::Mesh(asked)) = records.first() else {
        let why = format!("{shown} does not begin with what a mesh was asked");
        return Err(Stop::new(Code::BadInput, why));
    };
    for bound in &asked.require {
        if let Err(why) = bound.parse::<Requirement>() {
            let why = format!("{shown} has a bound that is not one: {why}");
            return Err(Stop::new(Code::BadInput, why));
        }
    }
    let mut evidence = Evidence::default();
    let mut stopped = Some("the run was not ended".to_owned());
    let mut ranks = BTreeSet::new();
    for record in records {
        if !hosts_of(record).all(|host| host.position() < asked.hosts.len()) {
            let why = format!("{shown} has a result of a host that is not in its list");
            return Err(Stop::new(Code::BadInput, why));
        }
        evidence.add(record);
        match record {
            Record::MeshRank(host) => {
                evidence.expect(asked.hosts.len());
                ranks.insert(*host);
            }
            Record::Stopped(why) => stopped = Some(why.clone()),
            Record::Ended { .. } if stopped.as_deref() == Some("the run was not ended") => {
                stopped = None;
            }
            _ => {}
        }
    }
    if evidence.hosts() != asked.hosts.len() {
        let why = format!("{shown} ended before the hosts had joined");
        return Err(Stop::new(Code::Inconclusive, why));
    }
    // Both hosts of a flow keep it: all of them are there if one host at most is missing.
    if !ranks.is_empty() && evidence.joined(&ranks) > 1 {
        let joined = count(ranks.len(), "rank");
        let why = format!(
            "only what {joined} of {} hosts kept is here",
            asked.hosts.len()
        );
        stopped = Some(stopped.map_or(why.clone(), |stopped| format!("{stopped}; {why}")));
    }
    Ok((asked, evidence, stopped))
}

/// The hosts that a record is about. A run may come from anyone.
fn hosts_of(record: &Record) -> impl Iterator<Item = HostIndex> {
    let mut hosts = Vec::new();
    match record {
        Record::MeshHost(member) => hosts.push(member.host),
        Record::MeshLost { host, .. } | Record::MeshRank(host) => hosts.push(*host),
        Record::MeshFlow(flow) => {
            hosts.extend([flow.flow.from, flow.flow.to]);
            hosts.extend(flow.observations.iter().flat_map(|one| [one.from, one.to]));
        }
        _ => {}
    }
    hosts.into_iter()
}
