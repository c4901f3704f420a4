//! What a metric is, and where a document has its value.

use serde_json::Value;

use super::exposition::Kind;

/// A label's name and value.
pub(super) type Label = (&'static str, String);

/// The two ends of a path.
pub(super) const SIDES: &[&str] = &["local", "remote"];
/// The two ends of an interval.
pub(super) const BOUNDS: &[&str] = &["low", "high"];
/// The severities of a finding.
pub(super) const SEVERITIES: &[&str] = &["crit", "warn", "note"];

/// A metric of a document.
#[derive(Debug, PartialEq)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// The unit that the name ends in; empty for a count, a flag or a time that has none.
    pub(super) unit: &'static str,
    pub(super) help: &'static str,
    /// The JSON pointer (RFC 6901) of its value, in which a label's name in braces stands for each of the label's
    /// values; empty if code finds the value.
    at: &'static str,
    /// The labels beside those of every series, with their values where a table lists them.
    pub(super) labels: &'static [(&'static str, &'static [&'static str])],
    /// The document's value is divided by this: it has nanoseconds and bits.
    pub(super) divisor: f64,
}

impl Metric {
    pub(super) const fn gauge(
        name: &'static str,
        unit: &'static str,
        at: &'static str,
        help: &'static str,
    ) -> Self {
        Self {
            name,
            kind: Kind::Gauge,
            unit,
            help,
            at,
            labels: &[],
            divisor: 1.0,
        }
    }

    /// A series whose labels are the information: its value is 1.
    pub(super) const fn info(name: &'static str, help: &'static str) -> Self {
        Self {
            kind: Kind::Info,
            ..Self::gauge(name, "", "", help)
        }
    }

    pub(super) const fn by(
        self,
        labels: &'static [(&'static str, &'static [&'static str])],
    ) -> Self {
        Self { labels, ..self }
    }

    pub(super) const fn divided_by(self, divisor: f64) -> Self {
        Self { divisor, ..self }
    }

    /// The pointers of its values, each with the labels that it stands for.
    pub(super) fn places(&self) -> Vec<(String, Vec<(&'static str, &'static str)>)> {
        if self.at.is_empty() {
            return Vec::new();
        }
        let mut places = vec![(self.at.to_owned(), Vec::new())];
        for (name, values) in self.labels {
            let word = format!("{{{name}}}");
            if !self.at.contains(&word) {
                continue;
            }
            places = places
                .iter()
                .flat_map(|(pointer, labels)| {
                    values.iter().map(|value| {
                        let mut labels = labels.clone();
                        labels.push((*name, *value));
                        (pointer.replace(&word, value), labels)
                    })
                })
                .collect();
        }
        places
    }

    /// Its row of the reference page.
    pub(super) fn row(&self) -> String {
        let label = |(name, values): &(&str, &[&str])| match values {
            [] => format!("`{name}`"),
            values => format!("`{name}` ({})", values.join(", ")),
        };
        let labels: Vec<String> = self.labels.iter().map(label).collect();
        let Self {
            name, unit, help, ..
        } = self;
        format!("| `{name}` | {unit} | {} | {help} |\n", labels.join(", "))
    }
}

/// A document's value as a number: true is 1, false is 0. Anything else is not known.
pub(super) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Bool(is_true) => Some(f64::from(u8::from(*is_true))),
        Value::Number(number) => number.as_f64(),
        _ => None,
    }
}
