//! Where the metrics of a result go: to standard output (`--format openmetrics`), to a file (`--metrics-file`), to both or
//! to neither.

use std::cell::Cell;
use std::path::Path;

use linerate_host::regular_file;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_report::metrics::{Exposition, Metrics, Provenance};
use linerate_runtime::cli::{COMMIT, TARGET};
use linerate_runtime::console::clock::now_unix_s;
use linerate_runtime::console::say::{Format, Say, warn};

/// The metrics of one command.
#[derive(Debug)]
pub struct MetricsOutput<'a> {
    file: Option<&'a Path>,
    /// Whether the file was written, or its own error is reported.
    is_tried: Cell<bool>,
}

impl<'a> MetricsOutput<'a> {
    /// Output to `file`, if there is one.
    pub fn to(file: Option<&'a Path>) -> Self {
        let is_tried = Cell::new(false);
        Self { file, is_tried }
    }

    /// Whether there is a file.
    pub fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Prints the metrics if they are the format of the result, and writes the file. Only a result that `is_whole`
    /// replaces that of an earlier run.
    pub fn publish(
        &self,
        say: &Say,
        is_whole: bool,
        make: impl FnOnce() -> Outcome<Metrics>,
    ) -> Outcome<()> {
        let is_printed = say.format == Format::OpenMetrics;
        let file = self.file.filter(|_| is_whole);
        if !is_printed && file.is_none() {
            return Ok(());
        }
        let metrics = make()?;
        if is_printed {
            say.data(&metrics.render(Exposition::OpenMetrics))?;
        }
        let Some(file) = file else { return Ok(()) };
        self.is_tried.set(true);
        let text = metrics.render(Exposition::Prometheus);
        regular_file::publish_named(file, text.as_bytes())
            .map_err(|error| cannot_write(file, error))
    }

    /// After a failure: reports that the file has no metrics of this run.
    pub fn warn_unwritten(&self, stop: &Stop) {
        let Some(file) = self.file else { return };
        if !self.is_tried.get() && stop.code != Code::Usage {
            let file = file.display();
            warn(&format!("no metrics of this run: {file} was not changed"));
        }
    }
}

fn cannot_write(file: &Path, error: std::io::Error) -> Stop {
    let is_missing = error.kind() == std::io::ErrorKind::NotFound;
    let stop = Stop::io(format!("write the metrics to {}", file.display()), error);
    match file.parent() {
        Some(folder) if is_missing => stop.hint(format!("mkdir -p {}", folder.display())),
        _ => stop,
    }
}

/// The outcome of a command whose metrics were `published`: its own failure comes first.
pub(crate) fn and_published<T>(outcome: Outcome<T>, published: Outcome<()>) -> Outcome<T> {
    match (&outcome, published) {
        (Ok(_), Err(stop)) => Err(stop),
        (Err(_), Err(stop)) => {
            warn(&stop.to_string());
            outcome
        }
        (_, Ok(())) => outcome,
    }
}

/// This build, and the time of day.
pub(crate) fn provenance() -> Provenance<'static> {
    Provenance {
        // Else it is a sentence that gives the reason.
        commit: Some(COMMIT).filter(|commit| !commit.starts_with("not recorded")),
        target: TARGET,
        unix_s: now_unix_s(),
    }
}
