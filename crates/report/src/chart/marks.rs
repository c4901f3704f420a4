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

/// The ceiling as a dashed line with its name and rate: across a horizontal axis in the one of its `rows` that it bounds,
/// or across a chart with a vertical axis.
pub(crate) fn ceiling(bit_per_s: f64, axis: &Axis, row: Option<(&Value, &str)>) -> [Value; 2] {
    let mut values = json!([{"ceiling": short(bit_per_s / GIGA), "text": format!("ceiling {}", rate(bit_per_s))}]);
    let mut line =
        json!({"type": "rule", "strokeDash": [7, 4], "strokeWidth": 1.5, "color": "var(--ink)"});
    let place = axis.by("ceiling");
    let Some((rows, name)) = row else {
        let text = label(json!({"align": "right", "baseline": "bottom", "dy": -4, "x": "width"}));
        return [
            json!({"data": {"values": values}, "mark": line, "encoding": {"y": place}}),
            json!({"data": {"values": values}, "mark": text, "encoding": {"y": place, "text": {"field": "text"}}}),
        ];
    };
    values[0]["name"] = json!(name);
    // A tick is as long as its row is high.
    line["type"] = json!("tick");
    line["thickness"] = json!(2);
    line["bandSize"] = json!({"band": 1});
    // Left of the line, as far as the chart has space there.
    let dx = format!("max(0, {} - scale('x', datum.ceiling))", wide());
    let text = label(
        json!({"align": "right", "baseline": "bottom", "dx": {"expr": dx}, "dy": {"expr": "-0.5 * bandwidth('y')"}}),
    );
    [
        json!({"data": {"values": values}, "mark": line, "encoding": {"x": place, "y": rows}}),
        json!({"data": {"values": values}, "mark": text,
               "encoding": {"x": place, "y": rows, "text": {"field": "text"}}}),
    ]
}
