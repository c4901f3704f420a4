//! The rates of trials over their time: a line for each.

use linerate_stats::summary::median;
use serde_json::{Value, json};

use super::{Axis, ceiling, ceiling_above, draw, label, short};

/// A ceiling above this multiple of the highest rate is stated above the chart: drawn, it would flatten the rates.
const FAR: f64 = 4.0;

/// The ends of a trial's intervals and the rates within them, without those right after another, as at the end: so short
/// an interval yields no rate.
pub(crate) fn whole(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut from = 0.0;
    let steps = points.map(|(at, rate)| (at - std::mem::replace(&mut from, at), (at, rate)));
    let steps: Vec<(f64, (f64, f64))> = steps.collect();
    let widths: Vec<f64> = steps.iter().map(|(width, _)| *width).collect();
    let usual = median(&widths).unwrap_or(0.0);
    let whole = steps.into_iter().filter(|(width, _)| *width >= usual / 2.0);
    whole.map(|(_, point)| point).collect()
}

/// The rate of one trial.
#[derive(Debug)]
pub(crate) struct Course<'a> {
    /// The name of its style.
    pub(crate) kind: &'a str,
    /// Ends of intervals in seconds, and the rates within them.
    pub(crate) points: Vec<(f64, f64)>,
}

/// How the lines of one kind look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style<'a> {
    /// Its name in the legend; an empty one has none.
    pub(crate) kind: &'a str,
    pub(crate) color: &'a str,
    pub(crate) dash: [u8; 2],
}

/// A chart of trials over time.
#[derive(Debug)]
pub(crate) struct OverTime<'a> {
    pub(crate) height: usize,
    /// The axis of rates, and what a rate is divided by for it.
    pub(crate) rate: (Axis, f64),
    /// The end of the axis of time.
    pub(crate) end_s: f64,
    /// The part that was cut.
    pub(crate) warm_up_s: f64,
    pub(crate) styles: &'a [Style<'a>],
    pub(crate) ceiling_bit_per_s: Option<f64>,
}

impl OverTime<'_> {
    /// The chart.
    pub(crate) fn draw(
        &self,
        courses: &[Course<'_>],
        drawn: &mut Vec<Value>,
        words: (&str, &str),
    ) -> String {
        let (rate, by) = &self.rate;
        let time = Axis::of_trial(self.end_s);
        // A row for each trial, which the script spreads: a row for each point would repeat its names.
        let row = |(trial, course): (usize, &Course<'_>)| {
            let points = || course.points.iter();
            let at: Vec<Value> = points().map(|(at, _)| short(*at)).collect();
            let rates: Vec<Value> = points().map(|(_, rate)| short(rate / by)).collect();
            json!({"trial": trial, "kind": course.kind, "at": at, "rate": rates})
        };
        let data: Vec<Value> = courses.iter().enumerate().map(row).collect();
        let mut layer = Vec::new();
        if self.warm_up_s > 0.0 {
            let values = json!([{"from": 0, "to": short(self.warm_up_s), "text": "warm-up"}]);
            layer.push(
                json!({"data": {"values": values}, "mark": {"type": "rect", "color": "var(--band)"},
                "encoding": {"x": time.by("from"), "x2": {"field": "to"}}}),
            );
            if self.is_named() {
                // Between the legend and the chart, where no line is.
                let above = json!({"align": "left", "baseline": "bottom", "y": -4, "color": "var(--ink-soft)", "fontSize": 11});
                layer.push(json!({"data": {"values": values}, "mark": label(above),
                    "encoding": {"x": time.by("from"), "text": {"field": "text"}}}));
            }
        }
        layer.push(json!({
            "transform": [{"flatten": ["at", "rate"]}],
            "mark": {"type": "line", "strokeWidth": 1.4, "opacity": 0.85, "clip": true},
            "encoding": {"x": time.by("at"), "y": rate.by("rate"), "detail": {"field": "trial"},
                "color": self.of_kind(|style| json!(style.color)),
                "strokeDash": self.of_kind(|style| json!(style.dash))}}));
        let rates = courses.iter().flat_map(|course| &course.points);
        let highest = rates.map(|(_, rate)| *rate).fold(0.0, f64::max);
        match self.ceiling_bit_per_s {
            Some(bound) if bound > FAR * highest => layer.push(ceiling_above(bound)),
            Some(bound) => layer.extend(ceiling(bound, rate, None)),
            None => {}
        }
        draw(drawn, self.height, &data, &layer, words)
    }

    /// Whether the kinds have a legend.
    fn is_named(&self) -> bool {
        self.styles.iter().any(|style| !style.kind.is_empty())
    }

    /// What distinguishes the lines of each kind.
    fn of_kind(&self, look: fn(&Style<'_>) -> Value) -> Value {
        let kinds: Vec<&str> = self.styles.iter().map(|style| style.kind).collect();
        let legend = self.is_named().then(|| {
            json!({"symbolType": "stroke", "symbolSize": 500, "symbolStrokeWidth": 2, "offset": 20})
        });
        json!({"field": "kind", "type": "nominal", "legend": legend,
               "scale": {"domain": kinds, "range": self.styles.iter().map(look).collect::<Vec<Value>>()}})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::GIGA;

    fn drawn(rate: f64, ceiling_bit_per_s: f64) -> Value {
        let axis = Axis::new("rate, Gb/s", json!({}), json!({}));
        let chart = OverTime {
            height: 100,
            rate: (axis, GIGA),
            end_s: 0.3,
            warm_up_s: 0.0,
            styles: &[],
            ceiling_bit_per_s: Some(ceiling_bit_per_s),
        };
        let points = vec![(0.1, rate), (0.2, rate), (0.3, rate)];
        let mut drawn = Vec::new();
        chart.draw(&[Course { kind: "", points }], &mut drawn, ("", ""));
        drawn.remove(0)
    }

    #[test]
    fn a_reading_right_after_another_has_no_rate() {
        let points = [(0.1, 1.0), (0.2, 2.0), (0.3, 3.0)];
        let with_another = points.into_iter().chain([(0.3001, 900.0)]);
        assert_eq!(whole(with_another), points);
        assert_eq!(whole(std::iter::empty()), []);
    }

    #[test]
    fn a_ceiling_far_above_the_rates_does_not_press_them_together() {
        let near = drawn(1e9, 2e9)["layer"].to_string();
        assert!(near.contains("\"ceiling 2.00 Gb/s\"") && near.contains("\"ceiling\":2.0"));
        let far = drawn(1e9, 1e11)["layer"].to_string();
        assert!(
            far.contains("ceiling 100.0 Gb/s ↑") && !far.contains("\"ceiling\":"),
            "{far}"
        );
    }
}
