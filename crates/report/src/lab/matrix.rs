//! Of an experiment's page: every combination as a grid with its mean, and with its share of the ceiling where one is
//! known.

use linerate_analysis::experiment::document::{CellDocument, LabDocument, ResponseDocument};
use linerate_analysis::trial::figure::in_words;
use linerate_model::prove::CeilingDocument;
use serde_json::{Value, json};

use super::draw::{ROW, highest, means_of, name, scale, varied};
use crate::chart::{draw, folded, height_of_rows, rows, short};
use crate::html::{escape, section, table};

/// Rows and columns that a grid may have.
const ROWS_DRAWN: usize = 48;
const COLUMNS_DRAWN: usize = 10;
/// Columns that have space for a number with its unit, also on a phone.
const COLUMNS_WITH_UNITS: usize = 4;
/// Means further apart than this multiple.
const WIDE: f64 = 300.0;

/// The factor on the grid's columns: the one with the most levels that still fit, the last of several.
fn across(document: &LabDocument, factors: &[usize]) -> Option<usize> {
    let levels = |factor: &usize| document.factors[*factor].levels.len();
    let fit = factors.iter().filter(|at| levels(at) <= COLUMNS_DRAWN);
    fit.max_by_key(|at| levels(at)).copied()
}

/// A grid of combinations: rows by the other factors, columns by one.
struct Grid<'d> {
    columns: Vec<&'d str>,
    rows: Vec<(String, Vec<Option<&'d CellDocument>>)>,
}

impl<'d> Grid<'d> {
    /// None of one factor, of too many rows, or of a design that makes less than half of it.
    fn of(document: &'d LabDocument, response: &'d ResponseDocument) -> Option<(usize, Self)> {
        let factors = varied(document);
        if factors.len() < 2 {
            return None;
        }
        let across = across(document, &factors)?;
        let others: Vec<usize> = factors.into_iter().filter(|at| *at != across).collect();
        let tried = document.factors[across].levels.iter();
        let columns: Vec<&str> = tried
            .filter(|level| level.skipped.is_none())
            .map(|level| level.name.as_str())
            .collect();
        let mut rows: Vec<(String, Vec<Option<&CellDocument>>)> = Vec::new();
        for cell in &response.cells {
            let row = name(document, &cell.levels, &others);
            let level = cell.levels.get(across)?;
            let column = columns.iter().position(|column| column == level)?;
            let place = rows.iter().position(|(name, _)| *name == row);
            let place = place.unwrap_or_else(|| {
                rows.push((row, vec![None; columns.len()]));
                rows.len() - 1
            });
            rows[place].1[column] = Some(cell);
        }
        let half_made = rows.len() * columns.len() <= 2 * response.cells.len();
        (rows.len() <= ROWS_DRAWN && half_made).then_some((across, Self { columns, rows }))
    }

    /// The picture, with the mean in each box.
    fn picture(&self, response: &ResponseDocument, factor: &str, drawn: &mut Vec<Value>) -> String {
        let means = response.cells.iter().filter_map(|cell| cell.mean);
        let (by, unit) = scale(response.response, highest(means.clone()));
        let (least, most) = means.fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), mean| {
            (least.min(mean), most.max(mean))
        });
        // Ratios matter: a halving and a doubling are alike. There is no ratio to 0.
        let place = |mean: f64| {
            if least > 0.0 {
                (mean / least).ln()
            } else {
                mean
            }
        };
        let span = place(most);
        let shade = |mean: f64| {
            let share = if span > 0.0 { place(mean) / span } else { 0.0 };
            short(0.04 + 0.4 * share)
        };
        // Means that differ so much that one unit does not suit them all have their own.
        let is_wide =
            least > 0.0 && most > WIDE * least && self.columns.len() <= COLUMNS_WITH_UNITS;
        let text_of = |mean: f64| {
            if is_wide {
                in_words(response.response, mean)
            } else {
                boxed(mean / by)
            }
        };
        let mut data = Vec::new();
        for (row, cells) in &self.rows {
            let row = folded(row);
            for (column, cell) in self.columns.iter().zip(cells) {
                let (shade, text) = match cell.map(|cell| cell.mean) {
                    Some(Some(mean)) => (shade(mean), text_of(mean)),
                    Some(None) => (json!(0), "none".to_owned()),
                    None => (json!(0), "not run".to_owned()),
                };
                data.push(json!({"row": row, "column": column, "shade": shade, "text": text}));
            }
        }
        let room = format!("containerSize()[0] * 0.58 / {}", self.columns.len());
        let x = json!({"field": "column", "type": "nominal", "sort": Value::Null, "title": factor,
                       "axis": {"orient": "top", "labelAngle": 0, "domain": false, "ticks": false,
                                "labelPadding": 6, "labelLimit": {"expr": room}}});
        let layer = [
            json!({"mark": {"type": "rect", "color": "var(--accent)", "stroke": "var(--line)", "strokeWidth": 1},
                "encoding": {"y": rows("row"), "x": x,
                    "fillOpacity": {"field": "shade", "type": "quantitative", "scale": Value::Null, "legend": Value::Null}}}),
            json!({"mark": {"type": "text"},
                "encoding": {"y": rows("row"), "x": x, "text": {"field": "text"}}}),
        ];
        let unit = if is_wide {
            String::new()
        } else {
            format!(", {unit}")
        };
        let title = format!("{} of each combination{unit}", response.response.word());
        let about = "A grid of the combinations with the mean in each cell; the table below has \
            the same figures.";
        let names: Vec<String> = self.rows.iter().map(|(row, _)| folded(row)).collect();
        let height = height_of_rows(names.iter().map(String::as_str), ROW);
        draw(drawn, height, &data, &layer, (&title, about))
    }

    /// The same as a table, with the share of the ceiling where one is known.
    fn table(&self, response: &ResponseDocument, factor: &str) -> String {
        let word = response.response.word();
        let bounded = response.cells.iter().any(|cell| cell.ceiling.is_some());
        let in_cell = |cell: Option<&CellDocument>| {
            let Some(cell) = cell else {
                return "not run".to_owned();
            };
            let Some(mean) = cell.mean else {
                let why = cell.why.as_deref().unwrap_or("no data");
                return format!("none: {}", escape(why));
            };
            let mean = in_words(response.response, mean);
            let ceiling = cell.ceiling.as_ref();
            let is_wrong = ceiling.is_some_and(CeilingDocument::is_wrong);
            match cell.share_in_words() {
                Some(share) if is_wrong => format!("{mean}<br><small>{share}</small>"),
                Some(share) => format!("{mean}<br><small>{share} of the ceiling</small>"),
                None => mean,
            }
        };
        let lines: Vec<Vec<String>> = (self.rows.iter())
            .map(|(row, cells)| {
                let mut line = vec![escape(row)];
                line.extend(cells.iter().copied().map(in_cell));
                line
            })
            .collect();
        let mut head = vec!["combination"];
        head.extend(&self.columns);
        let caption = if bounded {
            format!("{word} by {factor}, with the share of the ceiling")
        } else {
            format!("{word} by {factor}")
        };
        table(&caption, &head, &lines)
    }
}

/// A mean as shown in a box.
fn boxed(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        small if small >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// The grid of one figure.
pub(super) fn matrix(
    document: &LabDocument,
    response: &ResponseDocument,
    number: usize,
    drawn: &mut Vec<Value>,
) -> String {
    let Some((across, grid)) = Grid::of(document, response) else {
        return String::new();
    };
    let factor = &document.factors[across].name;
    let picture = grid.picture(response, factor, drawn);
    section(
        &format!("matrix-{number}"),
        &format!("Grid of combinations: {}", response.response.word()),
        &format!("{}; darker cells have higher values.", means_of(response)),
        &format!("{picture}{}", grid.table(response, factor)),
    )
}
