//! A stored mesh, judged and shown again from its records.

use std::path::Path;

use linerate_analysis::mesh::Requirement;
use linerate_analysis::record::{Header, MeshAsked, Record, RunKind};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::mesh::HostIndex;
use linerate_runtime::console::say::Say;
use linerate_store as store;

use super::judged::{Evidence, Judged};

/// Whether a stored run is of `mesh`.
pub(crate) fn is_mesh(folder: &Path) -> Outcome<bool> {
    let header = store::read_header(folder)?;
    if RunKind::of_folder(folder, &header) == RunKind::Mesh {
        return Ok(true);
    }
    // One with a name of its own: what was asked is its first record.
    match store::Records::open(folder)?.next() {
        Some(Ok(record)) => Ok(matches!(record, Record::Mesh(_))),
        Some(Err(stop)) => Err(stop),
        None => Ok(false),
    }
}

/// Shows a stored mesh, and writes its page.
pub(crate) fn show(folder: &Path, page: &Path, say: &Say) -> Outcome<()> {
    let stored = store::read(folder)?;
    if stored.torn {
        say.note("the run was truncated while being written: its last record is dropped");
    }
    let judged = judged(&stored.records, &stored.header, folder)?;
    store::write_page(folder, page, &judged.page(&stored.header.version))?;
    judged.print(false, say)
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
        Record::MeshLost { host, .. } => hosts.push(*host),
        Record::MeshFlow(flow) => {
            hosts.extend([flow.flow.from, flow.flow.to]);
            hosts.extend(flow.observations.iter().flat_map(|one| [one.from, one.to]));
        }
        _ => {}
    }
    hosts.into_iter()
}
