//! `linerate runs`: the stored runs of a state folder, the newest first.
//!
//! `summary` computes a run's list entry, `index` caches it.

mod index;
mod summary;

#[cfg(test)]
mod tests;

use std::path::Path;

use serde::Serialize;

use self::index::Index;
pub(crate) use self::index::is_index;
use self::summary::Counts;
pub use self::summary::{OtherHost, State};
use crate::cli::RunsArgs;
use crate::exit::Outcome;
use crate::say::{Format, Say};
use crate::store::{RunKind, flag_word};
use crate::visible::visible;

/// The name of the document's schema.
pub const SCHEMA: &str = "linerate.runs/1";

/// Which runs are requested; what is `None` lets all pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// The name of a host at either end, or of one that is a level.
    pub host: Option<String>,
    /// An interface of either end, or of the path to a host that is a level.
    pub nic: Option<String>,
    /// A workload that some trial has.
    pub workload: Option<String>,
    /// How the peer, or a host that is a level, was named.
    pub peer: Option<String>,
    /// When they began at the earliest, seconds since 1970 (UTC).
    pub since: Option<u64>,
    /// The word of a flag that some trial carries.
    pub flag: Option<String>,
    /// The command that made them.
    pub kind: Option<RunKind>,
}

impl Filter {
    /// What was typed.
    pub fn of(args: &RunsArgs) -> Self {
        Self {
            host: args.host.clone(),
            nic: args.nic.clone(),
            workload: args.workload.clone(),
            peer: args.peer.clone(),
            since: args.since,
            flag: args.flag.map(flag_word),
            kind: args.kind,
        }
    }
}

/// The document.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunsDocument {
    schema: &'static str,
    /// The folder of the runs.
    pub folder: String,
    /// The runs that were requested, the newest first.
    pub runs: Vec<Listed>,
    /// Those that cannot be read, whatever was requested.
    pub unreadable: Vec<Unreadable>,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Listed {
    /// The name of its folder.
    pub run: String,
    /// The command that made it: lab, prove, demo, search.
    pub kind: String,
    /// What an experiment is called.
    pub title: Option<String>,
    /// When it began (RFC 3339, UTC).
    pub created: String,
    /// The same, seconds since 1970.
    pub created_unix_s: u64,
    /// The linerate that made it.
    pub linerate_version: String,
    /// The seed of its order.
    pub seed: u64,
    /// How the peer was named.
    pub peer: String,
    /// The remote address.
    pub address: String,
    /// The interface that the data left by.
    pub local_nic: String,
    /// The resolved one.
    pub remote_nic: String,
    /// Both hosts.
    pub hosts: Hosts,
    /// The other hosts that are levels of an experiment.
    pub others: Vec<OtherHost>,
    /// Trials.
    pub trials: u64,
    /// The trials of each workload.
    pub workloads: Counts,
    /// The trials that carry each flag.
    pub flags: Counts,
    /// How it ended.
    pub state: State,
    /// Why it was stopped.
    pub stopped: Option<String>,
    /// Whether its last record was torn and left out.
    pub torn: bool,
}

impl Listed {
    /// The path of its data, then those to the other hosts that are levels: `db1:eth2 -> db2:eth2`, where `to` is the
    /// arrow.
    pub(crate) fn ways(&self, to: &str) -> String {
        let way = |local_nic: &str, host: &Option<String>, remote_nic: &str| {
            let name = |host: &Option<String>| host.clone().unwrap_or_else(|| "?".to_owned());
            let (here, there) = (name(&self.hosts.local.hostname), name(host));
            format!("{here}:{local_nic} {to} {there}:{remote_nic}")
        };
        let own = way(
            &self.local_nic,
            &self.hosts.remote.hostname,
            &self.remote_nic,
        );
        let others = self.others.iter();
        let others = others.map(|one| way(&one.local_nic, &one.hostname, &one.remote_nic));
        let all: Vec<String> = std::iter::once(own).chain(others).collect();
        all.join(", ")
    }
}

/// Both hosts of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hosts {
    /// The one that linerate was started on.
    pub local: EndOfRun,
    /// The peer.
    pub remote: EndOfRun,
}

/// A host of a run; null where it is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EndOfRun {
    /// Its name.
    pub hostname: Option<String>,
    /// The release of its kernel.
    pub kernel_release: Option<String>,
}

/// A run that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// The name of its folder.
    pub run: String,
    /// Why.
    pub why: String,
}

/// Carries out `runs`.
pub fn run(args: &RunsArgs, state: &Path, say: &Say) -> Outcome<()> {
    let filter = Filter::of(args);
    let document = document(&state.join("runs"), &filter, args.rebuild, say)?;
    for one in &document.unreadable {
        say.note(&format!("cannot be read: {}", visible(&one.why)));
    }
    if say.format == Format::Json {
        return say.json(&document);
    }
    if document.runs.is_empty() {
        let all = filter == Filter::default();
        let which = if all { "no runs" } else { "no matching runs" };
        say.note(&format!("{which} in {}", document.folder));
        return Ok(());
    }
    let number = document.runs.len();
    let runs = if number == 1 { "run" } else { "runs" };
    say.note(&format!("{number} {runs} in {}", document.folder));
    say.data(&text(&document.runs))
}

/// The list of the runs in a folder, which need not be there yet.
pub(crate) fn document(
    folder: &Path,
    filter: &Filter,
    anew: bool,
    say: &Say,
) -> Outcome<RunsDocument> {
    let empty = RunsDocument {
        schema: SCHEMA,
        folder: folder.display().to_string(),
        runs: Vec::new(),
        unreadable: Vec::new(),
    };
    if !folder.exists() {
        return Ok(empty);
    }
    let index = Index::open(folder, anew, say)?.refresh(say)?;
    Ok(RunsDocument {
        runs: index.list(filter)?,
        unreadable: index.unreadable()?,
        ..empty
    })
}

/// A line for each run under the heads of its columns.
fn text(runs: &[Listed]) -> String {
    let heads = [
        "started (UTC)",
        "kind",
        "trials",
        "workload",
        "path",
        "flags",
        "run",
    ];
    let mut rows = vec![heads.map(str::to_owned)];
    rows.extend(runs.iter().map(line));
    let mut widths = [0; 7];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; 7]| {
        let cells = row.iter().zip(widths);
        let cells = cells.map(|(cell, width)| format!("{cell:<width$}"));
        let line: Vec<String> = cells.collect();
        line.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn line(run: &Listed) -> [String; 7] {
    let words = |counts: &Counts| {
        let words: Vec<&str> = counts.keys().map(String::as_str).collect();
        words.join(" ")
    };
    let kind = match run.state {
        State::Ended => run.kind.clone(),
        state => format!("{} ({})", run.kind, state.word()),
    };
    [
        run.created.trim_end_matches('Z').replace('T', " "),
        kind,
        run.trials.to_string(),
        words(&run.workloads),
        run.ways("->"),
        words(&run.flags),
        run.run.clone(),
    ]
    .map(|cell| visible(&cell))
}
