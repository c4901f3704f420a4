//! The axes of a chart: numbers, and rows by their names.

use serde_json::{Value, json};

use super::short;

/// What rates are divided by, and the title of their axis.
pub(crate) const GIGA: f64 = 1e9;
pub(crate) const RATE: &str = "rate, Gb/s";

/// An axis of numbers. Every mark stands on it by one of its fields.
#[derive(Debug, Clone)]
pub(crate) struct Axis(Value);

impl Axis {
    /// An axis with its `scale` and `axis` as in Vega-Lite.
    pub(crate) fn new(title: &str, scale: Value, axis: Value) -> Self {
        let mut place = json!({"type": "quantitative", "title": title});
        place["scale"] = scale;
        place["axis"] = axis;
        Self(place)
    }

    /// From left to right, from the lowest value to the highest.
    pub(crate) fn across(title: &str) -> Self {
        let scale = json!({"zero": false, "padding": 6});
        Self::new(title, scale, json!({"tickCount": 8}))
    }

    /// A horizontal axis from 0 to `end`, extended so that a label of this width in pixels fits to the right of `labeled`.
    pub(crate) fn from_zero(title: &str, end: f64, (labeled, pixels): (f64, u32)) -> Self {
        let [end, labeled] = [end, labeled].map(|at| if at.is_finite() { at } else { 0.0 });
        // A chart narrower than the text is not squeezed to nothing.
        let end = format!(
            "max({end}, {labeled} * width / max(width - {pixels}, width / 2), {})",
            f64::MIN_POSITIVE
        );
        let scale = json!({"nice": false, "domainMin": 0, "domainMax": {"expr": end}});
        Self::new(title, scale, json!({"tickCount": 8}))
    }

    /// The time in a trial, up to `end`.
    pub(crate) fn of_trial(end_s: f64) -> Self {
        Self::new(
            "time in the trial, s",
            json!({"domain": [0, short(end_s)], "nice": false}),
            json!({"grid": false, "tickCount": 5}),
        )
    }

    /// What is written on the axis.
    pub(crate) fn title(&self) -> &str {
        self.0["title"].as_str().unwrap_or_default()
    }

    /// The place of a mark by this field.
    pub(crate) fn by(&self, field: &str) -> Value {
        let mut place = self.0.clone();
        place["field"] = json!(field);
        place
    }
}

/// Rows by their names, in the order of the data. On a narrow screen the names get less space than the marks; `\n`
/// breaks a name.
pub(crate) fn rows(field: &str) -> Value {
    json!({"field": field, "type": "nominal", "sort": Value::Null, "title": Value::Null,
           "axis": {"labelLimit": {"expr": "min(320, 0.42 * containerSize()[0])"}, "labelColor": "var(--ink)",
                    "labelExpr": "split(datum.label, '\\n')", "domain": false, "ticks": false, "labelPadding": 8}})
}
