//! The comparison of NICs for a person: a table, the interaction and the shared bound.

use linerate_analysis::nics::bound::{Answer, SharedBound, SharedKind};
use linerate_analysis::nics::elsewhere::Elsewhere;
use linerate_analysis::nics::{Rate, Verdict};
use linerate_analysis::text::words::{change, count, wrap};
use linerate_model::ids::NicName;
use linerate_model::plan::End;
use linerate_model::sample::{Flag, Role};
use linerate_report::flag_in_words;

use super::document::{BoundBy, Interaction, NicsDocument};

/// No line is longer.
const WIDTH: usize = 100;
/// The column of the labels.
const LABEL: usize = 12;
/// The column of a rate with its interval.
const RATE: usize = 24;

pub(super) fn text(document: &NicsDocument<'_>) -> String {
    let mut lines = table(document);
    let interaction = interaction(&document.interaction);
    labelled(&mut lines, "interaction", &interaction);
    if let Some(bound) = document.bound {
        labelled(&mut lines, "bound", &bound_in_words(bound));
    }
    let by_address: Vec<&str> = document
        .nics
        .iter()
        .filter(|nic| nic.bound_by == BoundBy::Address)
        .map(|nic| nic.nic.as_str())
        .collect();
    if !by_address.is_empty() {
        let note = format!(
            "{}: bound to its address only, so the routes choose the interface",
            by_address.join(", ")
        );
        labelled(&mut lines, "note", &note);
    }
    for flag in &document.flags {
        labelled(&mut lines, "flag", &flag_in_words(*flag));
        if *flag == Flag::BytesOnAnotherInterface {
            let all = document.nics.iter().flat_map(|nic| nic.elsewhere);
            for one in all {
                labelled(&mut lines, "", &missed(one));
            }
        }
    }
    let rounds = count(document.rounds, "round");
    let order = format!("{rounds} in random order, seed {}", document.seed);
    labelled(&mut lines, "order", &order);
    lines.join("\n")
}

/// One unit for all rates.
struct Unit(f64, &'static str);

impl Unit {
    fn of(largest: f64) -> Self {
        if largest >= 1e9 {
            Self(1e9, "Gb/s")
        } else {
            Self(1e6, "Mb/s")
        }
    }

    fn rate(&self, rate: Rate) -> String {
        let interval = match (rate.low_bit_per_s, rate.high_bit_per_s) {
            (Some(low), Some(high)) => {
                format!(" [{}, {}]", self.figure(low), self.figure(high))
            }
            _ => String::new(),
        };
        format!("{}{interval}", self.figure(rate.rate_bit_per_s))
    }

    /// Three significant figures.
    fn figure(&self, rate: f64) -> String {
        let value = rate / self.0;
        let digits = match value {
            value if value >= 99.95 => 0,
            value if value >= 9.995 => 1,
            value if value >= 0.9995 => 2,
            _ => 3,
        };
        format!("{value:.digits$}")
    }
}

fn table(document: &NicsDocument<'_>) -> Vec<String> {
    let unit = Unit::of(document.sum_alone.rate_bit_per_s);
    let names = document
        .nics
        .iter()
        .map(|nic| format!("{} to {}", nic.nic, nic.remote_nic));
    let names: Vec<String> = names.collect();
    let longest = names.iter().map(|name| name.chars().count()).max();
    let width = longest.unwrap_or(0).max(LABEL);
    let row = |name: &str, alone: &str, together: &str, change: &str| {
        format!("{name:width$} {alone:<RATE$} {together:<RATE$} {change}")
    };
    let title = |what: &str| format!("{what} {} [95 % CI]", unit.1);
    let mut lines = vec![row("NIC", &title("alone"), &title("together"), "change")];
    for (nic, name) in document.nics.iter().zip(&names) {
        lines.push(row(
            name,
            &unit.rate(nic.alone),
            &unit.rate(nic.together),
            &figure(nic.change.relative),
        ));
    }
    lines.push(row(
        "sum",
        &unit.rate(document.sum_alone),
        &unit.rate(document.together),
        &figure(document.interaction.change.relative),
    ));
    lines
}

/// A relative change: in percent, and from 2x up as a ratio.
fn figure(relative: f64) -> String {
    change(1.0 + relative)
}

fn interaction(interaction: &Interaction) -> String {
    let change = &interaction.change;
    let relative = figure(change.relative);
    let end = |end: Option<f64>| end.map_or_else(|| "?".to_owned(), figure);
    let (low, high) = (end(change.low), end(change.high));
    let ci = format!("{relative} [{low}, {high}] (95 % CI)");
    let detectable = end(change.minimum_detectable);
    let than = "than the sum of each alone";
    match interaction.verdict {
        Verdict::Less => format!("{ci}: less together {than}"),
        Verdict::More => format!("{ci}: more together {than}"),
        Verdict::NotSignificant => format!(
            "not significant: {ci}, minimum detectable effect {}",
            detectable.trim_start_matches('+')
        ),
        Verdict::NoInterval => format!("{relative}; an interval needs three rounds"),
    }
}

fn bound_in_words(bound: &SharedBound) -> String {
    let is_likely = bound
        .checked
        .iter()
        .any(|check| check.says == bound.says && check.answer == Answer::Likely);
    if bound.what != SharedKind::NotDetermined {
        let likely = if is_likely { "likely " } else { "" };
        return format!("{likely}{}", bound.says);
    }
    let checked: Vec<&str> = bound.checked.iter().map(|check| &*check.says).collect();
    format!("not determined; checked: {}", checked.join("; "))
}

fn missed(one: &Elsewhere) -> String {
    let did = match one.role {
        Role::Sender => "sent",
        Role::Receiver => "received",
    };
    let whose = match one.end {
        End::Local => "",
        End::Remote => "the peer's ",
    };
    let over: Vec<&str> = one.over.iter().map(NicName::as_str).collect();
    let over = if over.is_empty() {
        String::new()
    } else {
        format!("; {} carried it", over.join(", "))
    };
    format!(
        "{whose}{} {did} {} of {}{over}",
        one.nic, one.counted_bytes, one.payload_bytes
    )
}

fn labelled(lines: &mut Vec<String>, label: &str, text: &str) {
    for (index, line) in wrap(text, WIDTH - LABEL - 1).iter().enumerate() {
        let label = if index == 0 { label } else { "" };
        lines.push(format!("{label:<LABEL$} {line}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_significant_figures_in_one_unit() {
        let unit = Unit::of(188e6);
        let rate = |rate, ends: Option<(f64, f64)>| Rate {
            rate_bit_per_s: rate,
            low_bit_per_s: ends.map(|ends| ends.0),
            high_bit_per_s: ends.map(|ends| ends.1),
        };
        assert_eq!(
            unit.rate(rate(95.34e6, Some((94.6e6, 100.2e6)))),
            "95.3 [94.6, 100]"
        );
        assert_eq!(unit.rate(rate(4.7e6, None)), "4.70");
        assert_eq!(Unit::of(25.0e9).rate(rate(999.7e6, None)), "1.00");
    }
}
