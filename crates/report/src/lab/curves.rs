//! Of an experiment's page: curves over a factor whose levels are numbers or sizes, a line for each combination of the
//! other factors.

use std::collections::BTreeMap;

use linerate_analysis::experiment::document::{LabDocument, ResponseDocument};
use linerate_analysis::experiment::published::notes;
use linerate_analysis::trial::LEVEL;
use linerate_analysis::trial::figure::mean;
use linerate_analysis::trial::operations::real;
use linerate_model::lab::Response;
use linerate_model::units::Bytes;
use linerate_stats::Seed;
use linerate_stats::effect::{mean_with_interval, paired_relative};
use serde_json::{Value, json};

use super::draw::{IN_BYTES, LINES_DRAWN, apart, highest, means_of, name, scale, spread, varied};
use crate::chart::{Axis, draw, short};
use crate::html::{escape, section};

/// Pictures of curves.
const CURVES_DRAWN: usize = 6;
/// A span this wide is shown in tenfolds.
const WIDE: f64 = 8.0;
/// For values that may be below 0, intervals are shown up to this multiple of the largest mean beyond the means.
const REACH: f64 = 2.0;

/// A mean of a combination, and its interval.
pub(super) type MeanWithInterval<'d> = (&'d [String], [f64; 3]);

/// What curves are of.
pub(super) struct What<'d> {
    /// The end of the section's name.
    pub(super) id: &'d str,
    /// The figure in a word.
    pub(super) word: &'d str,
    /// Its unit, and what a value is divided by for it.
    pub(super) scale: (f64, &'static str),
    /// What the points are, up to their intervals.
    pub(super) means: &'d str,
    /// What the source of published figures did differently.
    pub(super) notes: Vec<&'d str>,
}

/// What the levels of a factor measure.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Measure {
    Bytes,
    Plain(String),
}

/// A level as a number: `64KiB`, `12`, `20 us`.
fn number_of(level: &str) -> Option<(f64, Measure)> {
    if let Ok(number) = level.parse::<f64>() {
        return number
            .is_finite()
            .then(|| (number, Measure::Plain(String::new())));
    }
    if let Ok(bytes) = level.parse::<Bytes>() {
        return Some((real(bytes.as_u64()), Measure::Bytes));
    }
    let (number, unit) = level.split_once(' ')?;
    let number = number.parse::<f64>().ok().filter(|one| one.is_finite())?;
    unit.chars()
        .all(|c| c.is_ascii_alphabetic())
        .then(|| (number, Measure::Plain(unit.to_owned())))
}

/// The factors with three levels or more that are numbers of one kind, and what they are.
fn sized(
    document: &LabDocument,
    factors: &[usize],
) -> Vec<(usize, BTreeMap<String, f64>, Measure)> {
    let one = |at: &usize| {
        let levels = document.factors[*at].levels.iter();
        let known = levels.filter(|level| level.skipped.is_none());
        let numbers: Vec<(String, f64, Measure)> = known
            .filter_map(|level| {
                let (number, measure) = number_of(&level.name)?;
                Some((level.name.clone(), number, measure))
            })
            .collect();
        let measure = numbers.first()?.2.clone();
        let alike = numbers.into_iter().filter(|(.., of)| *of == measure);
        let values: BTreeMap<String, f64> = alike.map(|(name, value, _)| (name, value)).collect();
        (values.len() >= 3).then_some((*at, values, measure))
    };
    factors.iter().filter_map(one).collect()
}

/// A mean with its interval, of the trials of a combination.
struct Point {
    at: f64,
    mean: f64,
    low: f64,
    high: f64,
}

/// The mean of a figure's trials with its interval, by the method of the effects; for fewer than three trials the
/// range from minimum to maximum.
fn interval(response: Response, values: &[f64], seed: u64) -> Option<[f64; 3]> {
    let found = if response.is_part() {
        let found = mean_with_interval(values, LEVEL, Seed(seed)).ok();
        // No part is below 0.
        found.map(|found| [found.mean, found.interval.low.max(0.0), found.interval.high])
    } else {
        let of_one: Vec<(f64, f64)> = values.iter().map(|value| (1.0, *value)).collect();
        let found = paired_relative(&of_one, LEVEL, Seed(seed)).ok();
        found.map(|found| {
            [found.relative, found.interval.low, found.interval.high].map(|relative| 1.0 + relative)
        })
    };
    found.or_else(|| {
        let least = values.iter().copied().reduce(f64::min)?;
        let most = values.iter().copied().reduce(f64::max)?;
        Some([mean(response, values)?, least, most])
    })
}

/// The results of each combination for a figure.
fn told<'d>(
    document: &'d LabDocument,
    response: &'d ResponseDocument,
) -> Vec<MeanWithInterval<'d>> {
    let word = response.response.word();
    let mut trials: BTreeMap<&[String], Vec<f64>> = BTreeMap::new();
    for trial in &document.trials {
        if let Some(value) = trial.values.get(word) {
            trials.entry(&trial.levels).or_default().push(*value);
        }
    }
    let cells = response.cells.iter().filter_map(|cell| {
        let values = trials.get(&cell.levels[..])?;
        let found = interval(response.response, values, document.seed)?;
        Some((&cell.levels[..], found))
    });
    cells.collect()
}

/// A line over the sizes with its name, and a picture of lines with its name.
type Line = (String, Vec<Point>);
type Picture = (String, Vec<Line>);

/// The means over the sizes of a factor, by the levels of the others: the last of them make the lines of a picture, as
/// many as can be distinguished, those before them its name.
fn pictures(
    document: &LabDocument,
    told: &[MeanWithInterval<'_>],
    (at, sizes): (usize, &BTreeMap<String, f64>),
    others: &[usize],
) -> Vec<Picture> {
    let mut split = others.len();
    let mut lines = 1;
    while split > 0 {
        lines *= document.factors[others[split - 1]].levels.len();
        if lines > LINES_DRAWN {
            break;
        }
        split -= 1;
    }
    let (of_picture, of_line) = others.split_at(split);
    let mut pictures: Vec<Picture> = Vec::new();
    for (levels, [mean, low, high]) in told {
        let Some(size) = levels.get(at).and_then(|level| sizes.get(level)) else {
            continue;
        };
        let point = Point {
            at: *size,
            mean: *mean,
            low: *low,
            high: *high,
        };
        let picture = entry(&mut pictures, name(document, levels, of_picture));
        entry(picture, name(document, levels, of_line)).push(point);
    }
    for (_, lines) in &mut pictures {
        lines.retain(|(_, points)| points.len() >= 3);
    }
    pictures.retain(|(_, lines)| !lines.is_empty());
    pictures
}

/// The curves of one figure.
pub(super) fn of_figure(
    document: &LabDocument,
    response: &ResponseDocument,
    number: usize,
    drawn: &mut Vec<Value>,
) -> String {
    let told = told(document, response);
    let means = told.iter().map(|(_, [mean, ..])| *mean);
    let what = What {
        id: &number.to_string(),
        word: response.response.word(),
        scale: scale(response.response, highest(means)),
        means: &means_of(response),
        notes: notes(&document.published, |one| {
            one.response == Some(response.response)
        }),
    };
    curves(document, &told, &varied(document), &what, drawn)
}

/// Curves over each of `factors` whose levels are numbers: a line for each combination of the others; nothing where
/// there is none.
pub(super) fn curves(
    document: &LabDocument,
    told: &[MeanWithInterval<'_>],
    factors: &[usize],
    what: &What<'_>,
    drawn: &mut Vec<Value>,
) -> String {
    let mut sections = String::new();
    for (place, over) in sized(document, factors).iter().enumerate() {
        let id = match place {
            0 => what.id.to_owned(),
            more => format!("{}-{}", what.id, more + 1),
        };
        sections.push_str(&curves_over(
            document,
            told,
            factors,
            over,
            (what, &id),
            drawn,
        ));
    }
    sections
}

/// The curves over one factor.
fn curves_over(
    document: &LabDocument,
    told: &[MeanWithInterval<'_>],
    factors: &[usize],
    (at, values, measure): &(usize, BTreeMap<String, f64>, Measure),
    (what, id): (&What<'_>, &str),
    drawn: &mut Vec<Value>,
) -> String {
    let at = *at;
    let mut others: Vec<usize> = factors.iter().copied().filter(|one| *one != at).collect();
    // The first factor is what the experiment is about: its levels are lines of one picture.
    if !others.is_empty() {
        others.rotate_left(1);
    }
    let pictures = pictures(document, told, (at, values), &others);
    if pictures.is_empty() {
        return String::new();
    }
    let number_of_pictures = pictures.len();
    let shown = spread(number_of_pictures, CURVES_DRAWN);
    let axes = Axes::of(
        &pictures,
        (&document.factors[at].name, measure, values),
        what,
    );
    let mut charts = String::new();
    for place in &shown {
        let (name, lines) = &pictures[*place];
        charts.push_str(&axes.picture(name, lines, drawn));
    }
    let picked = if shown.len() < number_of_pictures {
        format!(" {} of {number_of_pictures} are shown.", shown.len())
    } else {
        String::new()
    };
    let (same, body) = if shown.len() == 1 {
        ("", charts)
    } else {
        let charts = format!("<div class=\"grid\">{charts}</div>");
        (", all charts with the same axes", charts)
    };
    let cut = if axes.cut {
        " Intervals that leave the chart are wider than shown."
    } else {
        ""
    };
    let notes = what.notes.iter().map(|note| format!(" {}.", escape(note)));
    let notes: String = notes.collect();
    section(
        &format!("curve-{id}"),
        &format!("By {}: {}", document.factors[at].name, what.word),
        &format!("{} with 95 % CI{same}.{cut}{picked}{notes}", what.means),
        &body,
    )
}

/// What is called `name`, made where it is new.
fn entry<T: Default>(all: &mut Vec<(String, T)>, name: String) -> &mut T {
    let place = all.iter().position(|(known, _)| *known == name);
    let place = place.unwrap_or_else(|| {
        all.push((name, T::default()));
        all.len() - 1
    });
    &mut all[place].1
}

/// The axes that all pictures share.
struct Axes {
    x: Axis,
    y: Axis,
    /// What values are divided by.
    by: f64,
    /// Whether an interval reaches out of the pictures.
    cut: bool,
}

impl Axes {
    fn of(
        pictures: &[Picture],
        (factor, measure, values): (&str, &Measure, &BTreeMap<String, f64>),
        what: &What<'_>,
    ) -> Self {
        let (by, unit) = what.scale;
        let points = || {
            let lines = pictures.iter().flat_map(|(_, lines)| lines);
            lines.flat_map(|(_, points)| points)
        };
        let least = |of: fn(&Point) -> f64| points().map(of).fold(f64::INFINITY, f64::min) / by;
        let most = |of: fn(&Point) -> f64| points().map(of).fold(f64::NEG_INFINITY, f64::max) / by;
        let (lowest, highest) = (least(|point| point.low), most(|point| point.high));
        let (least, most) = (least(|point| point.mean), most(|point| point.mean));
        // The interval of a few trials may be so wide that nothing else were seen.
        let signed = lowest < 0.0;
        let (low, high) = if signed {
            let reach = REACH * least.abs().max(most.abs());
            (lowest.max(least - reach), highest.min(most + reach))
        } else {
            (lowest.max(least / WIDE), highest.min(most * WIDE))
        };
        let cut = low > lowest || high < highest;
        let mut sizes: Vec<f64> = values.values().copied().collect();
        sizes.sort_by(f64::total_cmp);
        let (first, last) = (sizes[0], sizes[sizes.len() - 1]);
        let tenfolds = |low: f64, high: f64| low > 0.0 && high / low >= WIDE;
        let title = match measure {
            Measure::Plain(unit) if !unit.is_empty() => format!("{factor}, {unit}"),
            _ => factor.to_owned(),
        };
        let across = if tenfolds(first, last) {
            json!({"type": "log", "nice": false, "padding": 14})
        } else {
            json!({"zero": false, "nice": false, "padding": 14})
        };
        let mut ticks =
            json!({"values": sizes, "grid": false, "labelOverlap": true, "format": "~g"});
        if *measure == Measure::Bytes {
            ticks["labelExpr"] = json!(IN_BYTES);
        }
        let x = Axis::new(&title, across, ticks);
        let up = if signed {
            json!({"zero": true, "domain": [short(low.min(0.0)), short(high.max(0.0))]})
        } else if tenfolds(low, high) {
            json!({"type": "log", "domain": [short(low), short(high)], "nice": !cut})
        } else if high > 0.0 {
            json!({"zero": true, "domainMax": short(high)})
        } else {
            json!({"zero": true})
        };
        let title = format!("{}, {unit}", what.word);
        let y = Axis::new(&title, up, json!({"tickCount": 5, "format": "~s"}));
        Self { x, y, by, cut }
    }

    fn picture(&self, name: &str, lines: &[Line], drawn: &mut Vec<Value>) -> String {
        let names: Vec<&str> = lines.iter().map(|(name, _)| name.as_str()).collect();
        let mut data = Vec::new();
        for (line, points) in lines {
            data.extend(points.iter().map(|point| {
                json!({"line": line, "at": short(point.at), "mean": short(point.mean / self.by),
                       "low": short(point.low / self.by), "high": short(point.high / self.by)})
            }));
        }
        let [colour, dash, shape] = apart(&names);
        let (x, mean) = (self.x.by("at"), self.y.by("mean"));
        let layer = [
            json!({"mark": {"type": "line", "strokeWidth": 1.8},
                "encoding": {"x": x, "y": mean, "color": colour, "strokeDash": dash}}),
            json!({"mark": {"type": "rule", "strokeWidth": 1.8, "clip": true},
                "encoding": {"x": x, "y": self.y.by("low"), "y2": {"field": "high"}, "color": colour}}),
            json!({"mark": {"type": "point", "size": 60, "filled": true, "opacity": 1},
                "encoding": {"x": x, "y": mean, "color": colour, "shape": shape,
                    "tooltip": [{"field": "line", "title": "combination"},
                                {"field": "mean", "type": "quantitative", "format": ".4~g"}]}}),
        ];
        let title = if name == "all" { self.y.title() } else { name };
        let about = "Means with confidence intervals over the sizes, one line per combination; \
            the table of all combinations has the means.";
        draw(drawn, 240, &data, &layer, (title, about))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_numbers_are_numbers_and_words_are_none() {
        assert_eq!(number_of("64KiB"), Some((65_536.0, Measure::Bytes)));
        assert_eq!(number_of("1B"), Some((1.0, Measure::Bytes)));
        let plain = |unit: &str| Measure::Plain(unit.to_owned());
        assert_eq!(number_of("12"), Some((12.0, plain(""))));
        assert_eq!(number_of("20 us"), Some((20.0, plain("us"))));
        for word in ["baseline", "near", "inf", "NaN", "4 cores, shared"] {
            assert_eq!(number_of(word), None, "{word}");
        }
    }

    #[test]
    fn the_interval_of_a_mean_holds_it_and_that_of_two_trials_is_their_range() {
        let of = |response, values: &[f64]| interval(response, values, 1);
        let rates = [1e9, 1.1e9, 0.9e9, 1.05e9];
        let [mean, low, high] = of(Response::Rate, &rates).expect("four trials");
        assert!(low < mean && mean < high);
        assert!((mean / (1e9 * 1.1e9 * 0.9e9 * 1.05e9_f64).powf(0.25) - 1.0).abs() < 1e-9);
        let [mean, low, high] = of(Response::Rate, &[1.0, 4.0]).expect("two trials");
        assert!((mean - 2.0).abs() < 1e-12);
        assert_eq!((low, high), (1.0, 4.0));
        assert!(of(Response::Rate, &[]).is_none());
        let parts = [0.0, 0.03, 0.0];
        let [mean, low, high] = of(Response::SystemLocal, &parts).expect("three trials");
        assert!((mean - 0.01).abs() < 1e-12 && low == 0.0 && high > 0.03);
    }
}
