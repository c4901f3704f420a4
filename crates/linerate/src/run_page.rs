//! A stored run, analyzed from its records: its document, and its page.

use std::path::Path as FilePath;

use linerate_analysis::record::StoredRun;
use linerate_analysis::{experiment, proof};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::prove::ProveDocument;
use linerate_report as report;
use linerate_store as store;

use crate::lab;

/// The document of a run of `prove`.
pub(crate) fn document_of(stored: &StoredRun) -> ProveDocument {
    let mut document = proof::document(&stored.header, &stored.records);
    document.run = Some(stored.folder.display().to_string());
    document
}

pub(crate) fn data_of(stored: &StoredRun, document: &ProveDocument) -> Outcome<report::ReportData> {
    report::fill::report_data(stored, document).ok_or_else(|| {
        let folder = stored.folder.display();
        let why = format!("{folder} ended before both hosts were read");
        Stop::new(Code::Inconclusive, why)
    })
}

/// The page of a stored run, computed from its records, without writing anything.
pub(crate) fn page_of(folder: &FilePath) -> Outcome<String> {
    if lab::is_lab(folder)? {
        let (stored, seen) = lab::read_run(folder)?;
        let mut document = experiment::judge::document(&stored.header, &stored.records)?;
        document.run = Some(folder.display().to_string());
        return Ok(lab::page(&document, &stored.header, seen));
    }
    let stored = store::read(folder)?;
    let document = document_of(&stored);
    Ok(report::render_page(&data_of(&stored, &document)?))
}
