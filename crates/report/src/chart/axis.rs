//! The axes of a chart: numbers, and rows by their names.

use linerate_analysis::text::words::wrap;
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
            "max({end}, {labeled} * width / max(width - {pixels}, width / 2, 1), {})",
            f64::MIN_POSITIVE
        );
        let scale = json!({"nice": false, "domainMin": 0, "domainMax": {"expr": end}});
        // The number of a tick that is this close to the end stands left of it.
        Self::new(title, scale, json!({"tickCount": 8, "labelFlush": 14}))
    }

    /// Ratios of `what` on a logarithmic scale, on which a doubling is as far from no effect as a halving, and which reaches
    /// to all of `reach`.
    pub(crate) fn of_ratios(what: &str, reach: impl Iterator<Item = f64>) -> Self {
        /// Space for the marks at both ends.
        const ROOM: f64 = 1.04;
        let (low, high) = reach.fold((1.0_f64, 1.0_f64), |(low, high), ratio| {
            (low.min(ratio), high.max(ratio))
        });
        let (low, high) = (low / ROOM, high * ROOM);
        let scale = json!({"type": "log", "domain": [short(low), short(high)], "nice": false, "clamp": true});
        let ticks: Vec<Value> = ratio_ticks(low, high).into_iter().map(short).collect();
        let (title, words) = if is_of_percents(low, high) {
            let words =
                "datum.value == 1 ? '0 %' : format(100 * (datum.value - 1), '+.3~r') + ' %'";
            (format!("change of {what} (log scale)"), words)
        } else {
            let words = "format(datum.value, '.3~r') + '×'";
            (format!("ratio of {what} (log scale)"), words)
        };
        let axis = json!({"values": ticks, "labelExpr": words, "labelOverlap": true});
        Self::new(&title, scale, axis)
    }

    /// Positive values from `low` to `high`: from 0, or on a logarithmic scale if they differ by more than that shows.
    pub(crate) fn of_positive(title: &str, low: f64, high: f64) -> Self {
        const FAR: f64 = 30.0;
        let ticks = |format: &str| json!({"tickCount": 6, "format": format, "labelOverlap": true});
        if low > 0.0 && high > FAR * low {
            let scale = json!({"type": "log", "nice": false, "padding": 8});
            Self::new(&format!("{title} (log scale)"), scale, ticks("~s"))
        } else {
            Self::new(title, json!({"zero": true, "nice": true}), ticks("~r"))
        }
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

/// The values 1, 10, 100, ... from `low` to `high`, and those at 2 and 5 times them where there are few.
pub(crate) fn decades(low: f64, high: f64) -> Vec<f64> {
    const FEW: usize = 3;
    let whole = within(low, high, &[1.0]);
    if whole.len() >= FEW {
        return whole;
    }
    within(low, high, &[1.0, 2.0, 5.0])
}

/// These multiples of powers of ten from `low` to `high`.
fn within(low: f64, high: f64, of_ten: &[f64]) -> Vec<f64> {
    let powers = (-9..=12).map(|power| 10.0_f64.powi(power));
    let all = powers.flat_map(|power| of_ten.iter().map(move |one| one * power));
    all.filter(|tick| (low..=high).contains(tick)).collect()
}

/// Whether ratios in this range are read in percent.
fn is_of_percents(low: f64, high: f64) -> bool {
    high < 2.0 && low > 0.5
}

/// Ratios for the ticks of an axis from `low` to `high`, which include 1: in percent with equal steps, or as 1, 2, 5 times
/// a power of ten, with 1.5, 3 and 7 where those are few.
fn ratio_ticks(low: f64, high: f64) -> Vec<f64> {
    const STEPS: [f64; 9] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25];
    const MOST: f64 = 6.0;
    const FEW: usize = 4;
    if is_of_percents(low, high) {
        let steps = STEPS.into_iter();
        let step = steps.clone().find(|step| (high - low) / step <= MOST);
        let step = step.unwrap_or(STEPS[STEPS.len() - 1]);
        let ticks = (-1_000..=1_000).map(|place| 1.0 + f64::from(place) * step);
        return ticks.filter(|tick| (low..=high).contains(tick)).collect();
    }
    let few = within(low, high, &[1.0, 2.0, 5.0]);
    if few.len() >= FEW {
        return few;
    }
    within(low, high, &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0])
}

/// A name in lines that fit beside the marks, also on a narrow screen.
pub(crate) fn folded(name: &str) -> String {
    const LINE: usize = 24;
    wrap(name, LINE).join("\n")
}

/// The height of rows with these folded names, each at least `least` high.
pub(crate) fn height_of_rows<'n>(names: impl Iterator<Item = &'n str>, least: usize) -> usize {
    /// Of a line of a name.
    const LINE: usize = 15;
    let (rows, lines) = names.fold((0, 1), |(rows, lines), name| {
        (rows + 1, lines.max(name.lines().count()))
    });
    rows * least.max(LINE * lines + 4)
}

/// Rows by their names, in the order of the data. On a narrow screen the names get less space than the marks; `\n`
/// breaks a name.
pub(crate) fn rows(field: &str) -> Value {
    json!({"field": field, "type": "nominal", "sort": Value::Null, "title": Value::Null,
           "axis": {"labelLimit": {"expr": "min(320, 0.42 * containerSize()[0])"}, "labelColor": "var(--ink)",
                    "labelExpr": "split(datum.label, '\\n')", "domain": false, "ticks": false, "labelPadding": 8}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ticks_of_effects_are_round_in_percent_or_as_ratios() {
        let close = |ticks: Vec<f64>, expected: &[f64]| {
            assert_eq!(ticks.len(), expected.len(), "{ticks:?}");
            let pairs = ticks.iter().zip(expected);
            assert!(
                pairs.clone().all(|(one, other)| (one - other).abs() < 1e-9),
                "{ticks:?}"
            );
        };
        close(ratio_ticks(0.92, 1.21), &[0.95, 1.0, 1.05, 1.1, 1.15, 1.2]);
        close(ratio_ticks(0.8, 3.5), &[1.0, 1.5, 2.0, 3.0]);
        close(ratio_ticks(0.4, 30.0), &[0.5, 1.0, 2.0, 5.0, 10.0, 20.0]);
    }
}
