//! The verdict on each class for a person: a table, and the reasons.

use linerate_analysis::qos::{ClassResult, Figure, Verdict};
use linerate_analysis::text::words::{count, wrap};
use linerate_model::units::BitRate;
use linerate_model::workload::Direction;

use super::document::{DirectionResult, QosDocument};

/// No line is longer.
const WIDTH: usize = 100;
/// The column of the names of classes, at least.
const NAME: usize = 8;

pub(super) fn text(document: &QosDocument) -> String {
    let mut lines = Vec::new();
    for one in &document.directions {
        if document.directions.len() > 1 {
            lines.push(match one.direction {
                Direction::Reverse => "from the peer".to_owned(),
                _ => "to the peer".to_owned(),
            });
        }
        lines.extend(table(one));
    }
    lines.push(String::new());
    for one in document.all() {
        for reason in &one.reasons {
            wrapped(&mut lines, &format!("class {}: {}", one.class, reason.what));
        }
    }
    for note in document.left_out.iter().chain(&document.unread) {
        wrapped(&mut lines, note);
    }
    let rounds = if document.interrupted {
        format!(
            "interrupted after {} of {}",
            count(document.rounds, "complete round"),
            document.rounds_asked
        )
    } else {
        count(document.rounds, "round")
    };
    wrapped(
        &mut lines,
        &format!(
            "{}: rates in bytes of {}, {rounds} in random order, seed {}",
            overall_in_words(document),
            document.limit_of.word(),
            document.seed
        ),
    );
    lines.join("\n")
}

fn overall_in_words(document: &QosDocument) -> String {
    let within = format!("within {} %", document.within * 100.0);
    match document.verdict {
        Verdict::Holds => format!("every limit holds {within}"),
        Verdict::NotTried => "not every limit was tried".to_owned(),
        Verdict::CannotTell => format!("not every limit can be judged {within}"),
        Verdict::Fails => format!("not every limit holds {within}"),
    }
}

fn table(direction: &DirectionResult) -> Vec<String> {
    let longest = direction.classes.iter().map(|one| one.class.len()).max();
    let width = longest.unwrap_or(0).max(NAME);
    let row = |cells: [&str; 8]| {
        let [class, limit, alone, together, share, p99, fairness, verdict] = cells;
        format!(
            "{class:width$}  {limit:>10}  {alone:>10}  {together:>10}  {share:<20}  {p99:<14}  {fairness:>4}  {verdict}"
        )
        .trim_end()
        .to_owned()
    };
    let title = row([
        "class",
        "limit",
        "alone",
        "together",
        "of limit [95 % CI]",
        "p99 others, ms",
        "Jain",
        "verdict",
    ]);
    let classes = direction.classes.iter().map(|one| {
        let rate = |figure: Option<Figure>| {
            figure.map_or_else(|| "?".to_owned(), |one| rate_in_words(one.median))
        };
        let limit = one
            .limit_bit_per_s
            .map_or_else(|| "none".to_owned(), rate_in_words);
        let fairness = one
            .fairness
            .map_or_else(|| "-".to_owned(), |index| format!("{index:.2}"));
        row([
            &one.class,
            &limit,
            &rate(one.alone_bit_per_s),
            &rate(one.together_bit_per_s),
            &one.share_of_limit
                .map_or_else(|| "-".to_owned(), share_in_words),
            &others_in_words(one),
            &fairness,
            verdict_in_words(one.verdict),
        ])
    });
    std::iter::once(title).chain(classes).collect()
}

fn verdict_in_words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::NotTried => "not tried",
        Verdict::CannotTell => "can't tell",
        Verdict::Fails => "fails",
    }
}

/// Of the class whose p99 is highest meanwhile.
fn others_in_words(class: &ClassResult) -> String {
    let by_p99 = class
        .others
        .iter()
        .max_by(|one, other| one.p99_after_s.total_cmp(&other.p99_after_s));
    by_p99.map_or_else(
        || "-".to_owned(),
        |one| format!("{} -> {}", ms(one.p99_before_s), ms(one.p99_after_s)),
    )
}

/// Three significant figures.
fn ms(seconds: f64) -> String {
    let value = seconds * 1e3;
    let digits = match value {
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        value if value >= 0.9995 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

fn share_in_words(share: Figure) -> String {
    let percent = |share: f64| format!("{:.1}", share * 100.0);
    let interval = match (share.low, share.high) {
        (Some(low), Some(high)) => format!(" [{}, {}]", percent(low), percent(high)),
        _ => String::new(),
    };
    format!("{} %{interval}", percent(share.median))
}

fn rate_in_words(rate: f64) -> String {
    BitRate::from_f64(rate).map_or_else(|| "?".to_owned(), |rate| rate.to_string())
}

fn wrapped(lines: &mut Vec<String>, text: &str) {
    for (number, line) in wrap(text, WIDTH - 2).into_iter().enumerate() {
        lines.push(if number == 0 {
            line
        } else {
            format!("  {line}")
        });
    }
}
