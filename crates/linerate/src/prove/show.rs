//! A stored run of `prove`: its verdict in the terminal, and its page.

use std::path::Path as FilePath;

use linerate_analysis::proof;
use linerate_analysis::record::{Record, StoredRun};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::prove::ProveDocument;
use linerate_report as report;
use linerate_runtime::console::say::{Format, Say};
use linerate_store as store;

use crate::stored_runs;

/// The document of a run of `prove`.
fn document_of(stored: &StoredRun) -> ProveDocument {
    let mut document = proof::document(&stored.header, &stored.records);
    document.run = Some(stored.folder.display().to_string());
    document
}

fn data_of(stored: &StoredRun, document: &ProveDocument) -> Outcome<report::ReportData> {
    report::fill::report_data(stored, document).ok_or_else(|| {
        let folder = stored.folder.display();
        let why = format!("{folder} ended before both hosts were read");
        Stop::new(Code::Inconclusive, why)
    })
}

/// The page of a stored run, computed from its records, without writing anything.
pub(crate) fn page_of(folder: &FilePath) -> Outcome<String> {
    let stored = store::read(folder)?;
    let document = document_of(&stored);
    Ok(report::render_page(&data_of(&stored, &document)?))
}

/// Analyzes a run from its records, writes its page and prints the verdict.
pub fn show(folder: &FilePath, page: &FilePath, say: &Say) -> Outcome<()> {
    show_with(folder, page, say, |_, _| Ok(()))
}

/// The same, then calls `then` with the document, and whether its run came to its end.
pub(super) fn show_with(
    folder: &FilePath,
    page: &FilePath,
    say: &Say,
    then: impl FnOnce(&ProveDocument, bool) -> Outcome<()>,
) -> Outcome<()> {
    let stored = stored_runs::read(folder, say)?;
    let whole = |record: &Record| matches!(record, Record::After(_));
    if !stored.records.iter().any(whole) {
        say.note(
            "the run ended before its final trials: `after` shows the measurement before the \
             changes",
        );
    }
    let mut document = document_of(&stored);
    document.report = Some(page.display().to_string());
    let data = data_of(&stored, &document)?;
    store::write_page(folder, page, &report::render_page(&data))?;
    let sorted = proof::sort(&stored.records);
    let is_whole = sorted.stopped.is_none() && sorted.ended;
    match (sorted.stopped, sorted.ended) {
        (Some(why), _) => say.note(&format!("the run stopped early: {why}")),
        (None, false) => {
            say.note("the run was killed early: only its recorded trials are shown");
        }
        (None, true) => {}
    }
    match say.format {
        Format::Json => say.json(&document)?,
        Format::OpenMetrics => {}
        Format::Text => {
            // A person sees the final result of each remedy; every trial is in the record and on the page.
            document.remedies.retain(|remedy| !remedy.tried_again);
            let text = report::render_text(&document, say.width(), say.colour());
            if say.colour() {
                say.coloured(&text)?;
            } else {
                say.data(&text)?;
            }
        }
    }
    then(&document, is_whole)
}
