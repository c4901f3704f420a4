//! A document as metrics for Prometheus: `doctor`, `measure`, `mesh` and `prove`, in either of the text formats that it reads.
//!
//! `table` declares what a metric is and takes its value out of a document, `exposition` writes the two formats, and
//! `doctor`, `measure`, `mesh` and `prove` have the metrics of each document. Every series describes one result and may go down
//! again, so all of them are gauges. A value that is not known has no series.
//!
//! Names and units: <https://prometheus.io/docs/practices/naming/>. Bytes, not bits: `promtool check metrics` demands it.

mod doctor;
mod exposition;
mod limit;
mod measure;
mod mesh;
mod prove;
mod table;

pub use doctor::doctor_metrics;
pub use exposition::Exposition;
use exposition::Family;
use linerate_model::peer_address::PeerAddress;
pub use measure::measure_metrics;
pub use mesh::mesh_metrics;
pub use prove::prove_metrics;
use serde_json::Value;
use table::{Label, Metric, number};

/// The metrics of one document.
#[derive(Debug, Clone, PartialEq)]
pub struct Metrics {
    /// The labels of every series, which tell this document from others of its kind.
    identity: Vec<Label>,
    families: Vec<Family>,
}

/// What made a result, and when.
#[derive(Debug, Clone, Copy)]
pub struct Provenance<'a> {
    /// The commit that was built, if it is known.
    pub commit: Option<&'a str>,
    /// The target that it was built for.
    pub target: &'a str,
    /// When the result was there, in seconds since 1970.
    pub unix_s: u64,
}

/// What was measured against, and from where.
#[derive(Debug, Clone, Copy)]
pub struct MeasuredPath<'a> {
    /// The peer: see [`peer_label`].
    pub peer: &'a str,
    /// The interface that the data leaves by, if it is known.
    pub nic: Option<&'a str>,
}

/// A peer as a label. A command is none: it may be long, and it may have secrets.
pub fn peer_label(peer: &PeerAddress) -> String {
    match peer {
        PeerAddress::Exec(_) => "exec".to_owned(),
        PeerAddress::Ssh { .. }
        | PeerAddress::Tls { .. }
        | PeerAddress::Netns(_)
        | PeerAddress::Local => peer.to_string(),
    }
}

/// The build that made a result.
const BUILD_INFO: Metric = Metric::info(
    "linerate_build_info",
    "The build of linerate that made the result.",
)
.by(&[
    ("command", &["doctor", "measure", "mesh", "prove"]),
    ("version", &[]),
    ("commit", &[]),
    ("target", &[]),
]);

impl Metrics {
    /// No metrics yet but the build, with the labels of every series.
    fn new(command: &str, identity: Vec<Label>, provenance: &Provenance<'_>) -> Self {
        let mut metrics = Self {
            identity,
            families: Vec::new(),
        };
        let labels = [
            ("command", command),
            ("version", env!("CARGO_PKG_VERSION")),
            ("commit", provenance.commit.unwrap_or_default()),
            ("target", provenance.target),
        ];
        metrics.set(&BUILD_INFO, &labels, Some(1.0));
        metrics
    }

    /// Sets a series. A value that is not known or not finite has none, and a label without a value is left out.
    fn set(
        &mut self,
        metric: &'static Metric,
        labels: &[(&'static str, &str)],
        value: Option<f64>,
    ) {
        let Some(value) = value.filter(|value| value.is_finite()) else {
            return;
        };
        let own = labels
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        let mut labels: Vec<Label> = self.identity.iter().cloned().chain(own).collect();
        labels.retain(|(_, value)| !value.is_empty());
        let known = self.families.iter().position(|one| one.is_of(metric));
        let at = known.unwrap_or_else(|| {
            self.families.push(Family::new(metric));
            self.families.len() - 1
        });
        self.families[at].set(labels, value);
    }

    /// Sets the series of every row of a table whose value `document` has.
    fn fill(&mut self, table: &'static [Metric], document: &Value, given: &[(&'static str, &str)]) {
        for metric in table {
            for (pointer, labels) in metric.places() {
                let value = document.pointer(&pointer).and_then(number);
                let all: Vec<(&'static str, &str)> = given.iter().copied().chain(labels).collect();
                self.set(metric, &all, value.map(|value| value / metric.divisor));
            }
        }
    }

    /// The number of series.
    pub fn series(&self) -> usize {
        self.families.iter().map(Family::len).sum()
    }

    /// The text of all families.
    pub fn render(&self, format: Exposition) -> String {
        let mut out = String::new();
        for family in &self.families {
            family.write(format, &mut out);
        }
        if format == Exposition::OpenMetrics {
            out.push_str("# EOF\n");
        }
        out
    }
}

/// Every metric of every document, as the tables of docs/book/guides/metrics.md: the title of each, and its rows.
pub fn reference() -> Vec<(&'static str, String)> {
    let documents: [(&'static str, Vec<&'static Metric>); 5] = [
        ("every document", vec![&BUILD_INFO]),
        ("doctor", doctor::all().collect()),
        ("measure", measure::all().collect()),
        ("mesh", mesh::all().collect()),
        ("prove", prove::all().collect()),
    ];
    let text = |metrics: Vec<&'static Metric>| {
        let rows: String = metrics.iter().map(|metric| metric.row()).collect();
        format!("| metric | unit | labels | meaning |\n|---|---|---|---|\n{rows}")
    };
    let tables = documents
        .into_iter()
        .map(|(title, metrics)| (title, text(metrics)));
    tables.collect()
}

#[cfg(test)]
mod tests;
