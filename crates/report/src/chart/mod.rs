//! Charts as Vega-Lite layers over rows of data: what the charts of all pages share. The page's script (`web/`) adds the
//! theme and draws them.
//!
//! Every interval is drawn as it was computed. Shapes, dashes and words carry the meaning, color only helps. Colors are
//! the page's CSS variables, so that light, dark and print need no second chart.

mod axis;
mod marks;
mod over_time;

use serde_json::{Value, json};

use crate::html::escape;

pub(crate) use axis::{Axis, GIGA, RATE, decades, folded, height_of_rows, rows};
pub(crate) use marks::{ceiling, ceiling_above, clear_of, label};
pub(crate) use over_time::{Course, OverTime, Style, whole};

/// Keeps a chart, and returns the place where the page's script draws it. `about` is its text for screen readers.
pub(crate) fn draw(
    drawn: &mut Vec<Value>,
    height: usize,
    data: &[Value],
    layer: &[Value],
    (title, about): (&str, &str),
) -> String {
    let index = drawn.len();
    drawn.push(json!({"height": height, "data": data, "layer": once_each(layer)}));
    format!(
        "<figure class=\"chart\"><figcaption>{}</figcaption><div class=\"plot\" data-chart=\"{index}\" role=\"img\" aria-label=\"{}\"></div></figure>",
        escape(title),
        escape(about)
    )
}

/// Layers with data, whose common scales and axes are written once: in the first layer that has them (Vega-Lite merges
/// what the layers state).
fn once_each(layer: &[Value]) -> Vec<Value> {
    // A layer with rows of its own that has none adds nothing to an axis; Vega warns of it.
    let is_empty = |one: &Value| one["data"]["values"].as_array().is_some_and(Vec::is_empty);
    let mut layer: Vec<Value> = (layer.iter().filter(|one| !is_empty(one)))
        .cloned()
        .collect();
    for channel in ["x", "y"] {
        for part in ["scale", "axis"] {
            let mut first: Option<Value> = None;
            for one in &mut layer {
                let place = one["encoding"].get_mut(channel);
                let Some(place) = place.and_then(Value::as_object_mut) else {
                    continue;
                };
                if first.is_some() && first.as_ref() == place.get(part) {
                    place.remove(part);
                }
                first = first.or_else(|| place.get(part).cloned());
            }
        }
    }
    layer
}

/// A number with as many digits as a chart can show.
pub(crate) fn short(value: f64) -> Value {
    if value == 0.0 || !value.is_finite() {
        return json!(if value == 0.0 { Some(0) } else { None });
    }
    let text = format!("{value:.4e}");
    json!(text.parse::<f64>().unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_written_in_the_first_layer_and_again_only_where_it_differs() {
        let of = |zero: bool| json!({"encoding": {"x": Axis::new("rate", json!({"zero": zero}), json!({})).by("at")}});
        let layer = once_each(&[json!({"mark": "rule"}), of(true), of(true), of(false)]);
        let scales: Vec<Option<&Value>> = layer
            .iter()
            .map(|one| one["encoding"]["x"].get("scale"))
            .collect();
        assert_eq!(
            scales,
            [
                None,
                Some(&json!({"zero": true})),
                None,
                Some(&json!({"zero": false}))
            ]
        );
        assert_eq!(layer[2]["encoding"]["x"]["title"], "rate");
    }

    #[test]
    fn a_drawn_number_keeps_its_first_digits_and_none_is_none() {
        assert_eq!(short(0.123_456_789), json!(0.12346));
        assert_eq!(short(12_345_678_901.0), json!(1.2346e10));
        assert_eq!(short(f64::NAN), Value::Null);
        assert_eq!(short(0.0), json!(0));
    }
}
