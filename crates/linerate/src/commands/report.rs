//! `linerate report`: a stored run, or all of them for a browser.

use std::path::Path as FilePath;

use linerate_analysis::experiment;
use linerate_analysis::record::RunKind;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_runtime::cli::ReportArgs;
use linerate_runtime::console::say::Say;
use linerate_store::kind_of;
use linerate_store::named::find;

use super::serve;
use crate::failover::{incomplete, stored as failover};
use crate::lab;
use crate::measure::stored;
use crate::mesh::stored as mesh;
use crate::prove::show;
use crate::qos::stored as qos;

/// `linerate report`.
pub(crate) fn run(args: &ReportArgs, state: &FilePath, say: &Say) -> Outcome<()> {
    if let Some(address) = args.serve {
        return serve::run(address, state, say);
    }
    let found = args.runs.iter().map(|run| {
        let run = find(&state.join("runs"), run.as_os_str(), None)?;
        incomplete(&run).map_or(Ok(run), Err)
    });
    let runs = found.collect::<Outcome<Vec<_>>>()?;
    let Some(first) = runs.first() else {
        return Err(Stop::new(Code::Usage, "no run given"));
    };
    let page = args.out.clone();
    let page = page.unwrap_or_else(|| first.join("report.html"));
    if runs.len() == 1 {
        return show_run(first, &page, say);
    }
    for run in &runs {
        // One that cannot be read is left out of the join, with a note.
        let is_other = |kind| !matches!(kind, RunKind::Mesh | RunKind::MeshRank);
        if kind_of(run).is_ok_and(is_other) {
            let why = format!("cannot join {}: it is no run of `mesh`", run.display());
            return Err(Stop::new(Code::BadInput, why)
                .hint("`linerate compare` and `linerate export` take several runs"));
        }
    }
    mesh::show(&runs, &page, say)
}

/// Analyzes a run from its records, writes its page and prints the result.
fn show_run(folder: &FilePath, page: &FilePath, say: &Say) -> Outcome<()> {
    match kind_of(folder)? {
        RunKind::Lab => lab::show(folder, Some(page), say),
        RunKind::Qos => qos::show(folder, page, say),
        RunKind::Failover => failover::show(folder, page, say),
        RunKind::Mesh | RunKind::MeshRank => mesh::show(&[folder.to_owned()], page, say),
        RunKind::Measure => stored::show(folder, page, say),
        RunKind::Prove | RunKind::Demo | RunKind::Search => show::show(folder, page, say),
    }
}

/// The page of a stored run, computed from its records, without writing anything.
pub(crate) fn page_of(folder: &FilePath) -> Outcome<String> {
    match kind_of(folder)? {
        RunKind::Lab => {
            let (stored, seen) = lab::read_run(folder)?;
            let mut document = experiment::judge::document(&stored.header, &stored.records)?;
            document.run = Some(folder.display().to_string());
            Ok(lab::page(&document, &stored.header, seen))
        }
        RunKind::Qos => qos::page_of(folder),
        RunKind::Failover => failover::page_of(folder),
        RunKind::Mesh | RunKind::MeshRank => mesh::page_of(folder),
        RunKind::Measure => stored::page_of(folder),
        RunKind::Prove | RunKind::Demo | RunKind::Search => show::page_of(folder),
    }
}
