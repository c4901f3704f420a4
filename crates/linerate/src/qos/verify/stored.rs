//! A stored verification, judged and shown again from its trials.

use std::path::Path;

use linerate_analysis::qos::verification::{ArmTrial, Verification};
use linerate_analysis::record::{Header, Measurement, Record};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::Host;
use linerate_report::measurement::{MeasurementPage, ShownResult, measurement_page};
use linerate_runtime::console::say::{Format, Say};
use linerate_store as store;

use super::document::{self, QosDocument};
use super::judged::Judged;
use super::set_up::set_up;
use super::text;
use crate::stored_runs;

/// Shows a stored verification, and writes its page.
pub(crate) fn show(folder: &Path, page: &Path, say: &Say) -> Outcome<()> {
    let stored = stored_runs::read(folder, say)?;
    let read = Read::of(&stored.records, folder)?;
    let document = read.document(&stored.header)?;
    store::write_page(folder, page, &read.page(&stored.header, &document))?;
    if say.format == Format::Json {
        return say.json(&document);
    }
    say.lines(&text::text(&document))
}

/// The page of a stored verification, computed from its records, without writing anything.
pub(crate) fn page_of(folder: &Path) -> Outcome<String> {
    let stored = store::read(folder)?;
    let read = Read::of(&stored.records, folder)?;
    let document = read.document(&stored.header)?;
    Ok(read.page(&stored.header, &document))
}

/// The page of the records of a verification.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn page_of_records(records: &[Record], header: &Header) -> Outcome<String> {
    let read = Read::of(records, Path::new("fuzz"))?;
    let document = read.document(header)?;
    Ok(read.page(header, &document))
}

/// The records, sorted.
struct Read<'a> {
    asked: &'a Verification,
    hosts: (&'a Host, &'a Host),
    trials: Vec<ArmTrial>,
    results: Vec<&'a Measurement>,
    is_ended: bool,
}

impl<'a> Read<'a> {
    fn of(records: &'a [Record], folder: &Path) -> Outcome<Self> {
        let (mut hosts, mut asked) = (None, None);
        let (mut trials, mut results) = (Vec::new(), Vec::new());
        let (mut is_stopped, mut is_ended) = (false, false);
        for record in records {
            match record {
                Record::Hosts { local, remote } => hosts = Some((&**local, &**remote)),
                Record::Qos(verification) => asked = Some(&**verification),
                Record::QosTrial(trial) => trials.push((**trial).clone()),
                Record::Measured(result) => results.push(&**result),
                Record::Stopped(_) => is_stopped = true,
                Record::Ended { .. } => is_ended = true,
                _ => {}
            }
        }
        let (Some(hosts), Some(asked)) = (hosts, asked) else {
            let why = format!("{} has no trial with a result", folder.display());
            return Err(Stop::new(Code::Inconclusive, why));
        };
        Ok(Self {
            asked,
            hosts,
            trials,
            results,
            is_ended: is_ended && !is_stopped,
        })
    }

    /// As `qos verify` printed it.
    fn document(&self, header: &Header) -> Outcome<QosDocument> {
        let qos = crate::qos::file::parse(&self.asked.file, "the stored file")?;
        let set_up = set_up(qos, self.hosts.0)?;
        let judged = Judged {
            asked: self.asked,
            set_up: &set_up,
            local: self.hosts.0,
            remote: self.hosts.1,
            trials: &self.trials,
        };
        Ok(document::document(&judged, header.seed, !self.is_ended))
    }

    fn page(&self, header: &Header, document: &QosDocument) -> String {
        let results: Vec<ShownResult<'_>> = self
            .results
            .iter()
            .map(|result| ShownResult {
                result,
                lines: result.headline(),
                ceiling: None,
            })
            .collect();
        measurement_page(&MeasurementPage {
            header,
            local: self.hosts.0,
            remote: self.hosts.1,
            results: &results,
            title: Some(format!(
                "linerate qos verify {} {}",
                document.interface, header.peer
            )),
            summary: Some(text::text(document)),
        })
    }
}
