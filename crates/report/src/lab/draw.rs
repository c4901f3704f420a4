//! The pieces that an experiment's pictures share: figures and their units, lines that can be distinguished, and the
//! combinations by what really differs among them.

use linerate_analysis::experiment::document::{LabDocument, ResponseDocument};
use linerate_model::lab::{Response, Unit};
use serde_json::{Value, json};

/// Height of a row of a picture.
pub(super) const ROW: usize = 34;

/// What a figure up to `highest` is divided by for a picture, and the unit that it has then.
pub(super) fn scale(response: Response, highest: f64) -> (f64, &'static str) {
    /// A unit is used from this multiple on.
    const FROM: f64 = 0.5;
    const RATES: [(f64, &str); 3] = [(1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s")];
    const TIMES: [(f64, &str); 3] = [(1.0, "s"), (1e-3, "ms"), (1e-6, "us")];
    let of = |units: [(f64, &'static str); 3]| {
        let fits = units.into_iter().find(|(by, _)| highest >= FROM * by);
        fits.unwrap_or(units[2])
    };
    match response.unit() {
        Unit::BitPerS => of(RATES),
        Unit::PerS => (1.0, "1/s"),
        Unit::SPerGb => SECONDS_PER_GB,
        Unit::UsPerOp => (1.0, "us/op"),
        Unit::S => of(TIMES),
    }
}

/// The highest of values that are known.
pub(super) fn highest(values: impl Iterator<Item = f64>) -> f64 {
    values.filter(|value| value.is_finite()).fold(0.0, f64::max)
}

/// The same of seconds for each GB.
pub(super) const SECONDS_PER_GB: (f64, &str) = (1.0, "s/GB");

/// What the means of a figure are: `Geometric means of the trials`.
pub(super) fn means_of(response: &ResponseDocument) -> String {
    let kind = response.kind_of_mean;
    let (first, rest) = kind.split_at(1);
    format!("{}{rest} means of the trials", first.to_uppercase())
}

/// The factors with more than one level in the table, by index.
pub(super) fn varied(document: &LabDocument) -> Vec<usize> {
    let cells = document.responses.first().map(|response| &response.cells);
    let differs = |factor: &usize| {
        let mut levels = cells.into_iter().flatten();
        let first = levels.next().and_then(|cell| cell.levels.get(*factor));
        levels.any(|cell| cell.levels.get(*factor) != first)
    };
    (0..document.factors.len()).filter(differs).collect()
}

/// Levels that are meaningless without the name of their factor.
const BARE: [&str; 8] = [
    "baseline", "on", "off", "yes", "no", "default", "none", "all",
];

/// The name of a combination: its levels of `factors`, with the factors' names where a level alone is unclear.
pub(super) fn name(document: &LabDocument, levels: &[String], factors: &[usize]) -> String {
    let is_bare = |factor: usize, level: &str| {
        let others = factors.iter().filter(|other| **other != factor);
        let mut of_others = others.flat_map(|other| &document.factors[*other].levels);
        level.parse::<f64>().is_ok()
            || BARE.contains(&level)
            || of_others.any(|other| other.name == level)
    };
    let words: Vec<String> = factors
        .iter()
        .filter_map(|factor| {
            let level = levels.get(*factor)?;
            Some(if is_bare(*factor, level) {
                format!("{} {level}", document.factors[*factor].name)
            } else {
                level.clone()
            })
        })
        .collect();
    if words.is_empty() {
        "all".to_owned()
    } else {
        words.join(", ")
    }
}

/// Sizes as their axis writes them.
pub(super) const IN_BYTES: &str = "datum.value >= 1073741824 ? format(datum.value / 1073741824, '~g') + ' GiB' : \
    datum.value >= 1048576 ? format(datum.value / 1048576, '~g') + ' MiB' : \
    datum.value >= 1024 ? format(datum.value / 1024, '~g') + ' KiB' : format(datum.value, '~g') + ' B'";

/// Lines that can be distinguished in one picture.
pub(super) const LINES_DRAWN: usize = 8;

/// Their colors.
pub(super) const COLOURS: [&str; LINES_DRAWN] = [
    "var(--accent)",
    "var(--warm)",
    "var(--ink)",
    "var(--k2)",
    "var(--k4)",
    "var(--k5)",
    "var(--good)",
    "var(--bad)",
];

/// What distinguishes the lines of these names, in the field `line`: their color, dashes and shape.
pub(super) fn apart(names: &[&str]) -> [Value; 3] {
    let legend = if names.len() == 1 {
        Value::Null
    } else {
        // Names are not cut off.
        let longest = names.iter().map(|name| name.chars().count()).max();
        let columns = match longest.unwrap_or(0) {
            ..=36 => 3,
            37..=60 => 2,
            _ => 1,
        };
        let columns = format!("(containerSize()[0] < 480 ? 1 : {columns})");
        let limit = format!("containerSize()[0] / {columns} - 40");
        json!({"symbolSize": 160, "columns": {"expr": columns}, "labelLimit": {"expr": limit}})
    };
    let of_line = |range: Value| {
        json!({"field": "line", "type": "nominal", "sort": Value::Null, "legend": legend,
               "scale": {"domain": names, "range": range}})
    };
    // Dashes and shapes distinguish the lines, color only helps.
    [
        of_line(json!(COLOURS)),
        of_line(json!([
            [1, 0],
            [7, 4],
            [2, 3],
            [10, 3, 2, 3],
            [4, 2],
            [1, 4],
            [12, 4],
            [6, 2, 1, 2, 1, 2]
        ])),
        of_line(json!([
            "circle",
            "square",
            "triangle-up",
            "diamond",
            "cross",
            "triangle-down",
            "triangle-left",
            "triangle-right"
        ])),
    ]
}

/// At most `most` indices out of so many, including the first and the last.
pub(super) fn spread(number: usize, most: usize) -> Vec<usize> {
    if number <= most {
        return (0..number).collect();
    }
    let last = most.saturating_sub(1).max(1);
    (0..most).map(|at| at * (number - 1) / last).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_picked_from_many_reaches_from_the_first_to_the_last() {
        assert_eq!(spread(3, 6), [0, 1, 2]);
        assert_eq!(spread(48, 6), [0, 9, 18, 28, 37, 47]);
        assert_eq!(spread(2, 1), [0]);
    }
}
