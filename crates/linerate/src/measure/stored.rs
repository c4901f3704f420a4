//! A stored measurement, shown again from its counters.

use std::collections::BTreeMap;
use std::path::Path as FilePath;

use linerate_analysis::record::{Header, Measurement, Record, StoredRun};
use linerate_analysis::text::timestamp::rfc3339;
use linerate_analysis::trial::rate_of;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::Host;
use linerate_model::lab::Response;
use linerate_model::limit::why::{Tried, decide};
use linerate_model::path::PathView;
use linerate_model::sample::Sample;
use linerate_model::units::BitRate;
use linerate_report::measurement::{MeasurementPage, ShownResult, measurement_page};
use linerate_runtime::console::say::{Format, Say};
use linerate_runtime::endpoint::why::{Why, suggested};
use linerate_store as store;
use serde::Serialize;

use super::document::{self, MeasureDocument};
use super::measured::Measured;
use super::repeat::Repeats;
use super::summary;
use crate::stored_runs;

/// What `linerate report RUN --format json` prints of a stored measurement.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct StoredDocument<'a> {
    schema: &'static str,
    /// The folder of the run.
    run: String,
    /// The start time: RFC 3339, UTC.
    created: String,
    /// The command line, word by word.
    command: &'a [String],
    /// The name of the peer on the command line.
    peer: &'a str,
    /// One result; of `--ladder`, `--preload` and `--overhead` several.
    results: Vec<ResultDocument<'a>>,
}

/// A result.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ResultDocument<'a> {
    /// Which of several results it is, such as a mode of `--ladder`; null for the only one.
    label: Option<&'a str>,
    workload: &'a str,
    /// The figure that is the result.
    response: Response,
    /// The median of the trials; null if no trial reported it.
    median: Option<f64>,
    /// Each figure of every whole trial, in order.
    figures: BTreeMap<Response, &'a [f64]>,
    /// The named limit with its status, in words; null if none was named.
    limit: Option<&'a str>,
    /// One trial, as `measure` prints it: of repeated ones that nearest to the median. Null if its counters are not stored.
    trial: Option<MeasureDocument<'a>>,
}

/// A stored measurement, sorted.
struct Sorted<'a> {
    header: &'a Header,
    hosts: (&'a Host, &'a Host),
    tried: &'a [Tried],
    results: Vec<&'a Measurement>,
}

impl<'a> Sorted<'a> {
    fn of(stored: &'a StoredRun) -> Outcome<Self> {
        let (mut hosts, mut tried, mut results) = (None, &[][..], Vec::new());
        for record in &stored.records {
            match record {
                Record::Hosts { local, remote } => hosts = Some((&**local, &**remote)),
                Record::Interventions { tried: all, .. } => tried = all,
                Record::Measured(result) => results.push(&**result),
                _ => {}
            }
        }
        let none = || {
            let why = format!("{} has no result", stored.folder.display());
            Stop::new(Code::Inconclusive, why)
        };
        Ok(Self {
            header: &stored.header,
            hosts: hosts.filter(|_| !results.is_empty()).ok_or_else(none)?,
            tried,
            results,
        })
    }

    /// A result as it was measured; none if its counters are not stored.
    fn measured(&self, result: &Measurement) -> Option<Measured<'a>> {
        let sample = result.sample.clone()?;
        if let Some(foreign) = &result.foreign {
            return Some(Measured::foreign(sample, foreign.clone()));
        }
        let view = PathView {
            local: self.hosts.0,
            remote: self.hosts.1,
            local_nic: &self.header.local_nic,
            remote_nic: &self.header.remote_nic,
            ipv6: self.header.is_ipv6(None),
        };
        let copy = self.header.copy_bit_per_s.map(BitRate::from_bit_per_s);
        let why = self.why(view, &sample);
        Some(Measured::between(view, sample, copy).because(why))
    }

    /// What the interventions of then showed.
    fn why(&self, view: PathView<'_>, sample: &Sample) -> Option<Why> {
        let rate = rate_of(sample).filter(|_| !self.tried.is_empty())?;
        Some(Why {
            verdict: decide(sample, &suggested(view, sample, rate), self.tried),
            tried: self.tried.to_vec(),
        })
    }
}

/// The repeats of a result; none of a single trial.
fn repeats(result: &Measurement) -> Option<Repeats> {
    let values = result.figures.of(result.response);
    (values.len() > 1).then(|| Repeats::stored(values))
}

/// Shows a stored measurement again, and writes its page.
pub(crate) fn show(folder: &FilePath, page: &FilePath, say: &Say) -> Outcome<()> {
    let stored = stored_runs::read(folder, say)?;
    let sorted = Sorted::of(&stored)?;
    let rows = rows(&sorted);
    store::write_page(folder, page, &page_from(&sorted, &rows))?;
    if say.format == Format::Json {
        return say.json(&document(folder, &sorted, &rows));
    }
    say.styled_lines(&text(&rows), summary::style)
}

/// The page of a stored measurement, computed from its records, without writing anything.
pub(crate) fn page_of(folder: &FilePath) -> Outcome<String> {
    let stored = store::read(folder)?;
    let sorted = Sorted::of(&stored)?;
    Ok(page_from(&sorted, &rows(&sorted)))
}

/// A result with what follows from its counters.
struct Row<'a> {
    result: &'a Measurement,
    measured: Option<Measured<'a>>,
    repeats: Option<Repeats>,
}

fn rows<'a>(sorted: &Sorted<'a>) -> Vec<Row<'a>> {
    let row = |result: &&'a Measurement| Row {
        result,
        measured: sorted.measured(result),
        repeats: repeats(result),
    };
    sorted.results.iter().map(row).collect()
}

impl Row<'_> {
    fn document(&self) -> Option<MeasureDocument<'_>> {
        let measured = self.measured.as_ref()?;
        Some(document::document(measured, self.repeats.as_ref()))
    }

    /// The lines that `measure` printed; without counters the headline.
    fn lines(&self) -> String {
        match (&self.measured, self.document()) {
            (Some(measured), Some(document)) => {
                summary::text(measured, &document, self.repeats.as_ref())
            }
            _ => format!("result    {}", self.result.headline()),
        }
    }
}

/// A single result as `measure` printed it, of several a line each.
fn text(rows: &[Row<'_>]) -> String {
    if let [row] = rows {
        return row.lines();
    }
    let labels = rows
        .iter()
        .map(|row| row.result.label.as_deref().unwrap_or_default());
    let width = labels.map(|label| label.chars().count()).max().unwrap_or(0);
    let lines = rows.iter().map(|Row { result, .. }| {
        let label = result.label.as_deref().unwrap_or_default();
        let trials = result.figures.of(result.response).len();
        let plural = if trials == 1 { "" } else { "s" };
        format!(
            "{label:<width$}  {}   ({trials} trial{plural})",
            result.headline()
        )
    });
    lines.collect::<Vec<String>>().join("\n")
}

fn document<'a>(folder: &FilePath, sorted: &Sorted<'a>, rows: &'a [Row<'a>]) -> StoredDocument<'a> {
    let result = |row: &'a Row<'a>| {
        let Row { result, .. } = row;
        let figures = Response::ALL.into_iter();
        let figures = figures.map(|response| (response, result.figures.of(response)));
        ResultDocument {
            label: result.label.as_deref(),
            workload: &result.workload,
            response: result.response,
            median: result.median(),
            figures: figures.filter(|(_, values)| !values.is_empty()).collect(),
            limit: result.limit.as_deref(),
            trial: row.document(),
        }
    };
    StoredDocument {
        schema: "linerate.measurement/1",
        run: folder.display().to_string(),
        created: rfc3339(sorted.header.created_unix_s),
        command: &sorted.header.command,
        peer: &sorted.header.peer,
        results: rows.iter().map(result).collect(),
    }
}

fn page_from(sorted: &Sorted<'_>, rows: &[Row<'_>]) -> String {
    let results: Vec<ShownResult<'_>> = rows
        .iter()
        .map(|row| ShownResult {
            result: row.result,
            lines: row.lines(),
            ceiling: row
                .measured
                .as_ref()
                .and_then(Measured::ceiling)
                .map(|ceiling| ceiling.bit_per_s),
        })
        .collect();
    measurement_page(&MeasurementPage {
        header: sorted.header,
        local: sorted.hosts.0,
        remote: sorted.hosts.1,
        results: &results,
        title: None,
        summary: None,
    })
}
