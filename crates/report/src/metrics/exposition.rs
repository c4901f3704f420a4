//! The two text formats that Prometheus reads: its own, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>), and OpenMetrics 1.0
//! (<https://prometheus.io/docs/specs/om/open_metrics_spec/>).

use linerate_analysis::text::visible::steers;

use super::table::{Label, Metric};

/// A text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposition {
    /// Prometheus' own, version 0.0.4: for the textfile collector of node_exporter.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A value that goes up and down.
    Gauge,
    /// Labels that describe something, with the value 1. Prometheus' own format has no such type.
    Info,
}

/// All series of a metric.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Family {
    metric: &'static Metric,
    series: Vec<(Vec<Label>, f64)>,
}

impl Family {
    pub(super) fn new(metric: &'static Metric) -> Self {
        let series = Vec::new();
        Self { metric, series }
    }

    pub(super) fn is_of(&self, metric: &Metric) -> bool {
        self.metric.name == metric.name
    }

    pub(super) fn len(&self) -> usize {
        self.series.len()
    }

    /// Sets a series. Neither format permits two with the same labels: the last one stands.
    pub(super) fn set(&mut self, labels: Vec<Label>, value: f64) {
        match self.series.iter_mut().find(|(known, _)| *known == labels) {
            Some((_, known)) => *known = value,
            None => self.series.push((labels, value)),
        }
    }

    pub(super) fn write(&self, format: Exposition, out: &mut String) {
        let Metric {
            name, unit, help, ..
        } = self.metric;
        let (name, kind) = match (format, self.metric.kind) {
            (_, Kind::Gauge) | (Exposition::Prometheus, Kind::Info) => (*name, "gauge"),
            // There the type adds the suffix to the name of the family.
            (Exposition::OpenMetrics, Kind::Info) => {
                (name.strip_suffix("_info").unwrap_or(name), "info")
            }
        };
        out.push_str(&format!("# HELP {name} {}\n", escaped(help)));
        out.push_str(&format!("# TYPE {name} {kind}\n"));
        if format == Exposition::OpenMetrics && !unit.is_empty() {
            out.push_str(&format!("# UNIT {name} {unit}\n"));
        }
        for (labels, value) in &self.series {
            out.push_str(self.metric.name);
            let labels: Vec<String> = labels
                .iter()
                .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
                .collect();
            if !labels.is_empty() {
                out.push_str(&format!("{{{}}}", labels.join(",")));
            }
            out.push_str(&format!(" {value}\n"));
        }
    }
}

/// Text within a line: backslash, quote and line end have escapes in both formats. Other characters that steer a terminal
/// have none, so they are replaced.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c if steers(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
