//! The timeline of a trial as SVG: a row for each flow, time to the right. Rows of neighboring flows that look alike are one
//! rectangle, and all rectangles of a kind one path, so that a page of many trials stays small.

use linerate_analysis::failover::timeline::{Cell, Mark, MarkKind, Timeline};
use linerate_model::units::Nanoseconds;
use linerate_model::workload::Direction;

use crate::html::{escape, table};

/// What the shades mean.
pub(super) const KEY: &str = "<span class=\"key ok\"></span>on time<span class=\"key late\"></span>late\
     <span class=\"key some\"></span>some of several flows lost<span class=\"key lost\"></span>lost";

/// The width of the names and of the time.
const NAMES: usize = 150;
const TIME: usize = 850;
/// The height of the letters above, of the axis below, and between two directions or workloads.
const ABOVE: usize = 20;
const BELOW: usize = 24;
const BETWEEN: usize = 6;
/// The height of a direction and workload that has many flows, and of one flow of a few.
const LANE: usize = 128;
const FLOW: usize = 10;
/// More rows than these are sets of flows.
const ROWS: usize = 128;
/// Labels of the axis of time, at most.
const TICKS: u64 = 8;

/// The picture of trial `number`.
pub(super) fn picture(timeline: &Timeline, number: usize) -> String {
    let mut drawn = String::new();
    let mut top = ABOVE;
    for lane in &timeline.lanes {
        let flows = lane.flows.len().max(1);
        let height = (flows * FLOW).min(LANE);
        let direction = match lane.direction {
            Direction::Reverse => "from the peer",
            _ => "to the peer",
        };
        let middle = top + height / 2 + 4;
        drawn.push_str(&format!(
            "<text x=\"0\" y=\"{middle}\">{direction}, {}</text><rect class=\"lane\" x=\"{NAMES}\" y=\"{top}\" \
             width=\"{TIME}\" height=\"{height}\"/>",
            escape(lane.workload)
        ));
        let mut paths = [String::new(), String::new(), String::new()];
        for row in lane.rows(TIME, timeline.length_ns, ROWS) {
            // Whole tenths of a unit: short, and without a gap between two rows.
            let place = |flow: usize| top * 10 + height * 10 * flow / flows;
            let (y, end) = (place(row.first), place(row.end));
            let mut x = NAMES;
            for run in row.cells.chunk_by(|one, next| one == next) {
                let path = match run[0] {
                    Cell::OnTime => None,
                    Cell::Late => Some(0),
                    Cell::SomeLost => Some(1),
                    Cell::AllLost => Some(2),
                };
                if let Some(path) = path {
                    let (width, tall) = (run.len(), tenths(end - y));
                    paths[path].push_str(&format!("M{x} {}h{width}v{tall}h-{width}z", tenths(y)));
                }
                x += run.len();
            }
        }
        for (class, path) in ["late", "some", "lost"].into_iter().zip(paths) {
            if !path.is_empty() {
                drawn.push_str(&format!("<path class=\"{class}\" d=\"{path}\"/>"));
            }
        }
        top += height + BETWEEN;
    }
    drawn.push_str(&marks(timeline, top));
    drawn.push_str(&axis(timeline.length_ns, top));
    let (width, height) = (NAMES + TIME + 10, top + BELOW);
    format!(
        "<div class=\"timeline\"><svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"The flows of trial {number} \
         over time: when packets were lost or late\">{drawn}</svg></div>"
    )
}

/// A number of tenths.
fn tenths(value: usize) -> String {
    match value % 10 {
        0 => (value / 10).to_string(),
        rest => format!("{}.{rest}", value / 10),
    }
}

fn place(time: Nanoseconds, length: Nanoseconds) -> usize {
    let place = u128::from(time.as_u64()) * TIME as u128 / u128::from(length.as_u64().max(1));
    NAMES + usize::try_from(place).unwrap_or(TIME).min(TIME)
}

/// Lines down to `bottom`, with a letter each.
fn marks(timeline: &Timeline, bottom: usize) -> String {
    let mut drawn = String::new();
    let mut last = 0;
    for (mark, letter) in timeline.marks.iter().zip(letters()) {
        let x = place(mark.at_ns, timeline.length_ns);
        let class = match mark.kind {
            MarkKind::Failure => "mark failure",
            MarkKind::Return => "mark return",
            _ => "mark",
        };
        drawn.push_str(&format!(
            "<line class=\"{class}\" x1=\"{x}\" x2=\"{x}\" y1=\"{}\" y2=\"{bottom}\"/>",
            ABOVE - 4
        ));
        // Letters that would cover one another are in the table only.
        if x >= last + 9 * letter.len() {
            drawn.push_str(&format!(
                "<text class=\"letter\" x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{letter}</text>",
                ABOVE - 8
            ));
            last = x;
        }
    }
    drawn
}

/// `a` to `z`, then `aa`, `ab` ...
fn letters() -> impl Iterator<Item = String> {
    let one = || 'a'..='z';
    let two = one().flat_map(move |first| one().map(move |second| format!("{first}{second}")));
    one().map(String::from).chain(two)
}

fn axis(length: Nanoseconds, top: usize) -> String {
    let mut drawn = String::new();
    let y = top + 12;
    let (step, mut at) = (tick_step(length.as_u64()), 0);
    while at <= length.as_u64() {
        let time = Nanoseconds::new(at);
        let anchor = match at {
            0 => "start",
            at if at == length.as_u64() => "end",
            _ => "middle",
        };
        at += step;
        drawn.push_str(&format!(
            "<text x=\"{}\" y=\"{y}\" text-anchor=\"{anchor}\">{}</text>",
            place(time, length),
            seconds(time)
        ));
    }
    drawn
}

/// 1, 2 or 5 times a power of ten nanoseconds, so that there are no more than [`TICKS`] steps in `length`.
fn tick_step(length: u64) -> u64 {
    let mut decade = 1_u64;
    loop {
        let steps = [1, 2, 5].map(|step| decade.saturating_mul(step));
        if let Some(step) = steps.into_iter().find(|step| length / step <= TICKS) {
            return step;
        }
        decade = decade.saturating_mul(10);
    }
}

fn seconds(time: Nanoseconds) -> String {
    let text = format!("{:.3}", time.as_secs_f64());
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text} s")
}

/// The marks with their letters.
pub(super) fn events(timeline: &Timeline) -> String {
    if timeline.marks.is_empty() {
        return "<p class=\"note\">Neither a command was run nor did either host see a change of its network.</p>".to_owned();
    }
    let rows = timeline.marks.iter().zip(letters());
    let rows: Vec<Vec<String>> = rows
        .map(|(mark, letter)| {
            vec![
                letter,
                escape(&mark.at_ns.to_string()),
                mark.end
                    .map_or_else(|| "command".to_owned(), |end| end.to_string()),
                escape(&words(mark)),
            ]
        })
        .collect();
    table("Events", &["Event", "Time", "Seen at", "What"], &rows)
}

fn words(mark: &Mark) -> String {
    if mark.count > 1 {
        return format!("{} (first of {})", mark.what, mark.count);
    }
    mark.what.clone()
}
