//! Of the page of an experiment: what one level of a factor takes longer than the other, as curves over sizes and as a
//! table.

use linerate_analysis::experiment::difference::in_words as difference_in_words;
use linerate_analysis::experiment::document::{DifferenceDocument, LabDocument};
use linerate_analysis::experiment::published::notes;
use linerate_analysis::trial::figure::s_per_gb_in_words;
use serde_json::Value;

use super::curves::{MeanWithInterval, What, curves};
use super::draw::{SECONDS_PER_GB, varied};
use crate::html::{escape, section, table};

/// The difference that the experiment asks for; nothing where it asks for none.
pub(super) fn difference(document: &LabDocument, drawn: &mut Vec<Value>) -> String {
    let Some(found) = &document.difference else {
        return String::new();
    };
    let others: Vec<usize> = (varied(document).into_iter())
        .filter(|at| document.factors[*at].name != found.factor)
        .collect();
    let told: Vec<MeanWithInterval<'_>> = (found.cells.iter())
        .filter_map(|cell| Some((&cell.levels[..], [cell.difference?, cell.low?, cell.high?])))
        .collect();
    let name = format!("{} {} less {}", found.factor, found.of, found.less);
    let what = What {
        id: "difference",
        word: &name,
        scale: SECONDS_PER_GB,
        means: "Mean differences within blocks",
        notes: notes(&document.published, |one| one.difference),
    };
    let section = section(
        "difference",
        &format!("Difference: {name}"),
        "Wall-clock seconds per GB moved by all flows, paired within blocks: drift affects both \
         sides.",
        &rows(document, found, &others),
    );
    format!(
        "{}{section}",
        curves(document, &told, &others, &what, drawn)
    )
}

/// The table.
fn rows(document: &LabDocument, found: &DifferenceDocument, others: &[usize]) -> String {
    let words = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), s_per_gb_in_words);
    let rows: Vec<Vec<String>> = (found.cells.iter())
        .map(|cell| {
            let levels = others.iter().filter_map(|at| cell.levels.get(*at));
            let mut row: Vec<String> = levels.map(|level| escape(level)).collect();
            row.extend([
                words(cell.of),
                words(cell.less),
                words(cell.difference),
                match (cell.low, cell.high) {
                    (Some(low), Some(high)) => {
                        format!("{} to {}", s_per_gb_in_words(low), s_per_gb_in_words(high))
                    }
                    _ => escape(cell.why.as_deref().unwrap_or("-")),
                },
                cell.blocks.to_string(),
            ]);
            row
        })
        .collect();
    let sides = [&found.of, &found.less].map(|level| format!("{} {level}", found.factor));
    let names = others.iter().map(|at| document.factors[*at].name.as_str());
    let mut head: Vec<&str> = names.collect();
    head.extend(sides.iter().map(String::as_str));
    head.extend(["difference", "95 % CI", "blocks"]);
    table(&difference_in_words(found), &head, &rows)
}
