//! The timeline of a trial as text: flows by time, gaps dark, and what happened meanwhile. It fits 80 columns.

use linerate_analysis::failover::timeline::{Cell, Mark, Timeline};
use linerate_analysis::text::words::wrap;
use linerate_model::units::Nanoseconds;

use super::text::direction_word;

/// The columns of the picture.
const COLUMNS: usize = 50;
/// Those before it.
const NAME: usize = 28;
/// Rows of a direction and workload.
const ROWS: usize = 8;
/// The columns before the words of a mark, and those of its words.
const HEAD: usize = 15;
const WORDS: usize = NAME + COLUMNS - HEAD;
/// Marks with a letter of their own.
const MARKS: usize = 26;

/// The picture of a trial.
pub(super) fn picture(timeline: &Timeline) -> Vec<String> {
    let column = Nanoseconds::new(timeline.length_ns.as_u64() / COLUMNS as u64);
    let mut lines = vec![format!(
        "  . on time, - late, + some flows lost, # all flows lost; {column} a column"
    )];
    for lane in &timeline.lanes {
        for row in lane.rows(COLUMNS, timeline.length_ns, ROWS) {
            let direction = direction_word(lane.direction);
            let flows = match (row.first, row.end) {
                _ if lane.flows.len() == 1 => String::new(),
                (first, end) if first + 1 == end => format!(" {end}"),
                (first, end) => format!(" {}-{end}", first + 1),
            };
            let name = format!("  {direction} {}{flows}", lane.workload);
            let cells: String = row.cells.iter().map(|cell| sign(*cell)).collect();
            lines.push(format!("{name:<NAME$}{cells}"));
        }
    }
    lines.extend(marks(timeline));
    lines
}

fn sign(cell: Cell) -> char {
    match cell {
        Cell::OnTime => '.',
        Cell::Late => '-',
        Cell::SomeLost => '+',
        Cell::AllLost => '#',
    }
}

/// A line of letters below the picture, and what they stand for.
fn marks(timeline: &Timeline) -> Vec<String> {
    if timeline.marks.is_empty() {
        return Vec::new();
    }
    let mut places = vec![' '; COLUMNS];
    let mut list = Vec::new();
    for (mark, letter) in timeline.marks.iter().take(MARKS).zip('a'..='z') {
        let place = u128::from(mark.at_ns.as_u64()) * COLUMNS as u128;
        let place = place / u128::from(timeline.length_ns.as_u64().max(1));
        let place = usize::try_from(place).unwrap_or(COLUMNS).min(COLUMNS - 1);
        // Of several in a column the first; the list has all.
        if places[place] == ' ' {
            places[place] = letter;
        }
        let mut head = format!("  {letter} {:>9}", mark.at_ns.to_string());
        for line in wrap(&in_words(mark), WORDS) {
            list.push(format!("{head:<HEAD$}{line}"));
            head.clear();
        }
    }
    let name = "  events";
    let letters: String = places.into_iter().collect();
    let mut lines = vec![format!("{name:<NAME$}{letters}").trim_end().to_owned()];
    lines.extend(list);
    let more = timeline.marks.len().saturating_sub(MARKS);
    if more > 0 {
        lines.push(format!(
            "  and {more} more events (`--format json` has them)"
        ));
    }
    lines
}

/// What happened, where, and how often.
pub(super) fn in_words(mark: &Mark) -> String {
    let mut words = match mark.end {
        Some(end) => format!("{end}: {}", mark.what),
        None => mark.what.clone(),
    };
    if mark.count > 1 {
        words = format!("{words} (first of {})", mark.count);
    }
    words
}
