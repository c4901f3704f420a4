//! The ladder for a person: one table.

use linerate_analysis::text::words::wrap;
use linerate_model::sample::Flag;
use linerate_report::flag_in_words;
use linerate_runtime::endpoint::trial::PeerPath;

use super::rung::{Answer, Copied, RatioToPlain, Rung};
use super::{Ladder, PLAIN, over_wire, rounds_in_words};

/// No line is longer.
const WIDTH: usize = 100;
/// The column of the modes.
const WAY: usize = 20;

pub(super) fn text(ladder: &Ladder, path: &PeerPath, rungs: &[Rung]) -> String {
    let mut lines = table(rungs);
    if over_wire(path) == Some(false) {
        let note = format!(
            "{} is virtual: this kernel is also the receiver, so savings that need a NIC do not \
             show here",
            path.local_nic
        );
        labelled(&mut lines, "note", &note);
    }
    let rounds = rounds_in_words(ladder.rounds());
    let order = format!("{rounds} in random order, seed {}", ladder.seed);
    labelled(&mut lines, "order", &order);
    flags(&mut lines, rungs);
    lines.join("\n")
}

fn table(rungs: &[Rung]) -> Vec<String> {
    let mut lines = vec![
        format!(
            "{:WAY$} {:>8}  {:<21} {:>7} {:>7}  copy",
            "", "median", "vs plain", "CPU s", "per GB"
        ),
        format!(
            "{:WAY$} {:>8}  {:<21} {:>7} {:>7}  avoided?",
            "mode", "Gb/s", "[95 % CI]", "sender", "receiver"
        ),
    ];
    for rung in rungs {
        if rung.trials > 0 {
            lines.push(row(rung));
        }
        if let Some(reason) = &rung.refused {
            let whole = format!("refused: {reason}");
            for (index, line) in wrap(&whole, WIDTH - WAY - 1).iter().enumerate() {
                let way = if index == 0 {
                    rung.way.in_words()
                } else {
                    String::new()
                };
                lines.push(format!("{way:WAY$} {line}"));
            }
        }
    }
    lines
}

fn row(rung: &Rung) -> String {
    let figure = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "?".to_owned(), |value| format!("{value:.digits$}"))
    };
    let ratio = if rung.way == PLAIN {
        "1".to_owned()
    } else {
        rung.ratio.map_or_else(|| "?".to_owned(), ratio)
    };
    format!(
        "{:WAY$} {:>8}  {ratio:<21} {:>7} {:>7}  {}",
        rung.way.in_words(),
        figure(rung.rate_bit_per_s.map(|rate| rate / 1e9), 2),
        figure(rung.cpu_s_per_gb.sender, 3),
        figure(rung.cpu_s_per_gb.receiver, 3),
        rung.copy.map_or_else(|| "?".to_owned(), copied),
    )
}

fn ratio(ratio: RatioToPlain) -> String {
    let interval = match (ratio.low, ratio.high) {
        (Some(low), Some(high)) => format!("[{low:.2}, {high:.2}]"),
        _ => "[?, ?]".to_owned(),
    };
    format!("{:.2} {interval}", ratio.ratio)
}

fn copied(copied: Copied) -> String {
    let share = |share: Option<f64>| share.map_or(0.0, |share| share * 100.0);
    let avoided = share(copied.avoided_share);
    match copied.answer {
        Answer::Made => "copies by design".to_owned(),
        Answer::Avoided => format!("yes, {avoided:.1} %"),
        Answer::Partly => format!("partly, {avoided:.1} %"),
        Answer::AfterAll => format!("no: {:.1} % copied", 100.0 - avoided),
        Answer::NotTold => "not reported by the kernel".to_owned(),
        Answer::ThrownAway => "discarded uncopied".to_owned(),
    }
}

/// Each flag once, with the modes that have it when not all do.
fn flags(lines: &mut Vec<String>, rungs: &[Rung]) {
    let measured: Vec<&Rung> = rungs.iter().filter(|rung| rung.trials > 0).collect();
    let mut seen: Vec<Flag> = Vec::new();
    for flag in measured.iter().flat_map(|rung| &rung.flags) {
        if !seen.contains(flag) {
            seen.push(*flag);
        }
    }
    for flag in seen {
        let having: Vec<String> = measured
            .iter()
            .filter(|rung| rung.flags.contains(&flag))
            .map(|rung| rung.way.in_words())
            .collect();
        let whose = if having.len() == measured.len() {
            String::new()
        } else {
            format!(": {}", having.join("; "))
        };
        labelled(lines, "flag", &format!("{}{whose}", flag_in_words(flag)));
    }
}

fn labelled(lines: &mut Vec<String>, label: &str, text: &str) {
    for (index, line) in wrap(text, WIDTH - 10).iter().enumerate() {
        let label = if index == 0 { label } else { "" };
        lines.push(format!("{label:<9} {line}"));
    }
}

#[cfg(test)]
mod tests {
    use linerate_stats::Seed;

    use super::super::PayloadMode;
    use super::super::rung::tests::trial;
    use super::*;

    #[test]
    fn no_line_of_the_table_is_longer_than_a_terminal() {
        let ways = PayloadMode::all();
        let trials: Vec<_> = (0..3)
            .flat_map(|round| {
                ways.iter()
                    .map(move |way| trial(round, *way, 1_234.567 * (1.0 + f64::from(round))))
            })
            .collect();
        let reason = "cannot send by `splice`: this kernel does not support it ".repeat(4);
        let rungs: Vec<Rung> = ways
            .into_iter()
            .map(|way| Rung::new(way, &trials, Some(reason.clone()), 0.95, Seed(1)))
            .collect();
        let mut lines = table(&rungs);
        flags(&mut lines, &rungs);
        for line in &lines {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        assert!(
            lines
                .iter()
                .any(|line| line.starts_with("send uring-zerocopy "))
        );
    }
}
