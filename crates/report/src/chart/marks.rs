//! Marks that several charts have.

use serde_json::{Value, json};

use super::axis::{Axis, GIGA};
use super::short;
use crate::figures::rate;

/// Pixels of a character of text, on the wide side.
const CHARACTER: f64 = 7.8;

/// A text mark. A halo in the color of its ground keeps lines from running through it.
pub(crate) fn label(style: Value) -> Value {
    let mut mark =
        json!({"type": "text", "stroke": "var(--card)", "strokeWidth": 4, "strokeJoin": "round"});
    if let (Value::Object(mark), Value::Object(style)) = (&mut mark, style) {
        mark.extend(style);
    }
    mark
}

/// How wide the text of a row is, as an expression.
fn wide() -> String {
    format!("{CHARACTER} * length(datum.text)")
}

/// The `dx` of a left-aligned text over the mark at `field`: clear of the line at `line`, and within the chart.
pub(crate) fn clear_of(line: f64, field: &str) -> Value {
    let at = format!("scale('x', datum.{field})");
    let (line, wide) = (format!("scale('x', {line})"), wide());
    let crosses = format!("{at} - 8 < {line} + 4 && {line} < {at} - 8 + {wide}");
    let dx = format!("{crosses} ? {line} - {at} + 6 : -8");
    json!({"expr": format!("clamp({dx}, -{at}, width - {at} - {wide})")})
}

/// The words of a ceiling that is far above the chart.
pub(crate) fn ceiling_above(bit_per_s: f64) -> Value {
    let values = json!([{"text": format!("ceiling {} ↑", rate(bit_per_s))}]);
    let mark = label(json!({"align": "right", "baseline": "bottom", "x": "width", "y": -4}));
    json!({"data": {"values": values}, "mark": mark, "encoding": {"text": {"field": "text"}}})
}

/// The ceiling as a dashed line across the `channel` of its axis, with its name and rate.
pub(crate) fn ceiling(bit_per_s: f64, channel: &str, axis: &Axis) -> [Value; 2] {
    let text = format!("ceiling {}", rate(bit_per_s));
    let values = json!([{"ceiling": short(bit_per_s / GIGA), "text": text}]);
    let place = axis.by("ceiling");
    let text = if channel == "x" {
        // Left of the line, as far as the chart has space there.
        let dx = format!("max(0, {} - scale('x', datum.ceiling))", wide());
        label(json!({"align": "right", "baseline": "bottom", "dx": {"expr": dx}, "y": -4}))
    } else {
        label(json!({"align": "right", "baseline": "bottom", "dy": -4, "x": "width"}))
    };
    [
        json!({"data": {"values": values},
               "mark": {"type": "rule", "strokeDash": [7, 4], "strokeWidth": 1.5, "color": "var(--ink)"},
               "encoding": {channel: place}}),
        json!({"data": {"values": values}, "mark": text, "encoding": {channel: place, "text": {"field": "text"}}}),
    ]
}
