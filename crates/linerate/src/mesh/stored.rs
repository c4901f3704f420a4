//! A stored mesh, judged and shown again from its records: those of the root, or those that its ranks kept, joined.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use linerate_analysis::mesh::Requirement;
use linerate_analysis::record::{Header, MeshAsked, MeshMember, Record, RunKind};
use linerate_analysis::text::words::count;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::mesh::HostIndex;
use linerate_runtime::console::say::Say;
use linerate_store as store;

use super::judged::{Evidence, Judged};

/// Whether a stored run is of `mesh`.
pub(crate) fn is_mesh(folder: &Path) -> Outcome<bool> {
    let header = store::read_header(folder)?;
    let kind = RunKind::of_folder(folder, &header);
    if matches!(kind, RunKind::Mesh | RunKind::MeshRank) {
        return Ok(true);
    }
    // One with a name of its own: what was asked is its first record.
    match store::Records::open(folder)?.next() {
        Some(Ok(record)) => Ok(matches!(record, Record::Mesh(_))),
        Some(Err(stop)) => Err(stop),
        None => Ok(false),
    }
}

/// Shows a stored mesh, or one that is joined from what several of its ranks kept; writes its page.
pub(crate) fn show(folders: &[PathBuf], page: &Path, say: &Say) -> Outcome<()> {
    let mut mesh: Option<(Header, Joined)> = None;
    for folder in folders {
        let stored = store::read(folder)?;
        if stored.torn {
            let shown = folder.display();
            say.note(&format!(
                "{shown} was truncated while being written: its last record is dropped"
            ));
        }
        match &mut mesh {
            None => mesh = Some((stored.header, Joined::of(stored.records))),
            Some((header, joined)) => {
                let is_same = (header.seed, header.created_unix_s)
                    == (stored.header.seed, stored.header.created_unix_s);
                if !is_same || !joined.add(stored.records) {
                    let why = format!(
                        "cannot join {}: it is not a part of the same mesh as {}",
                        folder.display(),
                        folders[0].display()
                    );
                    return Err(Stop::new(Code::BadInput, why)
                        .hint("join the runs that the ranks of one `mesh` have kept"));
                }
            }
        }
    }
    let Some((header, joined)) = mesh else {
        return Err(Stop::new(Code::Usage, "no run given"));
    };
    let (ranks, records) = joined.records();
    let judged = judged(&records, &header, &folders[0])?;
    store::write_page(&folders[0], page, &judged.page(&header.version))?;
    if ranks > 0 {
        say.note(&format!(
            "what {} of {} kept: `linerate report RUN...` joins those of several",
            count(ranks, "rank"),
            count(judged.hosts(), "host")
        ));
    }
    judged.print(false, say)
}

/// The records of a mesh from one or several of its runs.
struct Joined {
    asked: Option<Record>,
    ranks: Vec<HostIndex>,
    members: BTreeMap<HostIndex, Box<MeshMember>>,
    lost: BTreeMap<HostIndex, Record>,
    /// By round, sender and receiver: both hosts of a flow keep it.
    flows: BTreeMap<(u32, HostIndex, HostIndex), Record>,
    end: Vec<Record>,
}

impl Joined {
    fn of(records: Vec<Record>) -> Self {
        let mut joined = Self {
            asked: None,
            ranks: Vec::new(),
            members: BTreeMap::new(),
            lost: BTreeMap::new(),
            flows: BTreeMap::new(),
            end: Vec::new(),
        };
        joined.add(records);
        joined
    }

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
                Record::MeshRank(host) => self.ranks.push(host),
                Record::MeshHost(member) => {
                    let known = self.members.entry(member.host);
                    known.or_insert(member);
                }
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
        // One that has ended says how.
        let has_ended = |end: &[Record]| end.iter().any(|one| matches!(one, Record::Ended { .. }));
        if self.end.is_empty() || has_ended(&end) {
            self.end = end;
        }
        true
    }

    /// How many ranks kept these, and the records in the order of a run.
    fn records(mut self) -> (usize, Vec<Record>) {
        self.ranks.sort_unstable();
        self.ranks.dedup();
        let mut records: Vec<Record> = self.asked.into_iter().collect();
        let count = self.ranks.len();
        // One is enough: the others have no records that are missing.
        records.extend(self.ranks.into_iter().take(1).map(Record::MeshRank));
        records.extend(self.members.into_values().map(Record::MeshHost));
        records.extend(self.lost.into_values());
        records.extend(self.flows.into_values());
        records.extend(self.end);
        (count, records)
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
    for record in records {
        if !hosts_of(record).all(|host| host.position() < asked.hosts.len()) {
            let why = format!("{shown} has a result of a host that is not in its list");
            return Err(Stop::new(Code::BadInput, why));
        }
        evidence.add(record);
        match record {
            Record::MeshRank(_) => evidence.expect(asked.hosts.len()),
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
