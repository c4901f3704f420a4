//! A mesh as text of 80 columns.

use linerate_analysis::mesh::{
    CellState, HostVerdict, Matrix, MeshDocument, RequirementVerdict, VictimVerdict,
};
use linerate_analysis::text::words::{count, wrap};

use super::{evidence, headline, percent, rate, result};

/// The width of a terminal.
const WIDTH: usize = 80;
/// The number of hosts up to which a heat map fits.
const MAP_UP_TO: usize = 16;
/// The width of a host's name in the heat map: its number, the name, and 16 columns of 4 make 80.
const NAME: usize = 12;
/// The maximum number of differing facts that are shown of a name.
const FACTS: usize = 12;
/// The maximum number of hosts in a list.
const HOSTS: usize = 20;
/// A rate within this of the median is shown as a dot.
const DOT: f32 = 0.03;

/// What `linerate mesh` prints.
pub fn mesh_text(document: &MeshDocument, matrix: &Matrix) -> String {
    let mut lines = Vec::new();
    lines.push(result(document));
    lines.extend(wrap(&rates(document), WIDTH));
    if let Some(why) = &document.stopped {
        lines.extend(wrap(&format!("partial result: {why}"), WIDTH));
    }
    named(document, &mut lines);
    suspects(document, &mut lines);
    unjudged(document, &mut lines);
    incast(document, &mut lines);
    if document.named.is_empty()
        && let Some(detectable) = document.detectable
    {
        lines.push(format!(
            "no slow host found (minimum detectable effect {})",
            percent(detectable)
        ));
    }
    requirements(document, &mut lines);
    if document.hosts.len() <= MAP_UP_TO {
        map(document, matrix, &mut lines);
    }
    lines.join("\n")
}

fn rates(document: &MeshDocument) -> String {
    let summary = &document.summary;
    let head = format!(
        "{} of {}, {}",
        document.pattern,
        document.workload,
        count(document.rounds, "round")
    );
    match (summary.median, summary.p5, summary.p95) {
        (Some(median), Some(p5), Some(p95)) => format!(
            "{head}: median {}, 5th to 95th percentile {} to {}",
            rate(document.unit, median),
            rate(document.unit, p5),
            rate(document.unit, p95)
        ),
        _ => format!("{head}: nothing was measured"),
    }
}

fn named(document: &MeshDocument, lines: &mut Vec<String>) {
    for one in document.named.iter().take(HOSTS) {
        lines.push(String::new());
        lines.extend(wrap(&headline(one), WIDTH));
        let all = evidence(one);
        for line in all.iter().take(FACTS) {
            for part in wrap(line, WIDTH - 4) {
                lines.push(format!("    {part}"));
            }
        }
        if all.len() > FACTS {
            lines.push(format!("    and {} more", all.len() - FACTS));
        }
    }
    if document.named.len() > HOSTS {
        lines.push(format!("and {} more", document.named.len() - HOSTS));
    }
}

/// Suspects that are not named.
fn suspects(document: &MeshDocument, lines: &mut Vec<String>) {
    for (suspects, lead) in [
        (&document.cleared, "not confirmed by the retest"),
        (&document.open, "suspected, not retested"),
    ] {
        if suspects.is_empty() {
            continue;
        }
        let shown = &suspects[..suspects.len().min(HOSTS)];
        let mut line = format!("{lead}: {}", shown.join("; "));
        if suspects.len() > HOSTS {
            line = format!("{line}; and {} more", suspects.len() - HOSTS);
        }
        lines.push(String::new());
        lines.extend(wrap(&line, WIDTH));
    }
}

/// The bounds of `--require`.
fn requirements(document: &MeshDocument, lines: &mut Vec<String>) {
    for bound in &document.requirements {
        let verdict = match bound.verdict {
            RequirementVerdict::Kept => "holds",
            RequirementVerdict::Broken => "violated",
            RequirementVerdict::CannotTell => "inconclusive",
        };
        let value = match bound.value {
            None => "not known".to_owned(),
            Some(value) if bound.requirement.starts_with("min-rate") => rate(document.unit, value),
            Some(value) => format!("{value:.3}").trim_end_matches(".000").to_owned(),
        };
        lines.push(format!("{}: {verdict} ({value})", bound.requirement));
    }
}

fn unjudged(document: &MeshDocument, lines: &mut Vec<String>) {
    for (state, word) in [
        (HostVerdict::Unreached, "unreached"),
        (HostVerdict::NotTried, "not tried"),
    ] {
        let hosts: Vec<_> = document
            .hosts
            .iter()
            .filter(|host| host.state == state)
            .collect();
        if hosts.is_empty() {
            continue;
        }
        lines.push(String::new());
        lines.push(format!("{word}:"));
        for host in hosts.iter().take(HOSTS) {
            let cause = host.cause.as_deref().unwrap_or("cause not known");
            for (index, part) in wrap(&format!("{}: {cause}", host.host.name), WIDTH - 4)
                .into_iter()
                .enumerate()
            {
                let indent = if index == 0 { 2 } else { 4 };
                lines.push(format!("{:indent$}{part}", ""));
            }
        }
        if hosts.len() > HOSTS {
            lines.push(format!("  and {} more", hosts.len() - HOSTS));
        }
    }
}

fn incast(document: &MeshDocument, lines: &mut Vec<String>) {
    let Some(incast) = &document.incast else {
        return;
    };
    let verdict = match incast.verdict {
        VictimVerdict::Slowed => "slowed by the incast",
        VictimVerdict::NotSlowed => "not slowed by the incast",
        VictimVerdict::Inconclusive => "inconclusive",
    };
    let ratio = incast.rate.map_or_else(String::new, |rate| {
        format!(
            ", rate ratio {:.3} (95 % CI {:.3} to {:.3})",
            rate.ratio, rate.low, rate.high
        )
    });
    lines.push(String::new());
    let text = format!(
        "victim flow {} to {}: {verdict}{ratio}",
        incast.victims_from.join(", "),
        incast.victims_to.join(", ")
    );
    lines.extend(wrap(&text, WIDTH));
}

/// The heat map: percent of the median, in the order of switches.
fn map(document: &MeshDocument, matrix: &Matrix, lines: &mut Vec<String>) {
    lines.push(String::new());
    let numbers: Vec<String> = (1..=matrix.len())
        .map(|number| format!("{number:>4}"))
        .collect();
    lines.push(format!("{:<16}{}", "send \\ receive", numbers.concat()));
    for row in 0..matrix.len() {
        let name = &document.hosts[matrix.order[row]].host.name;
        let name: String = name.chars().take(NAME).collect();
        let cells: Vec<String> = (0..matrix.len())
            .map(|column| format!("{:>4}", cell(matrix, row, column)))
            .collect();
        let line = format!("{:>2} {name:<13}{}", row + 1, cells.concat());
        lines.push(line.trim_end().to_owned());
    }
    lines.push(
        "percent above or below the median; .: within 3 %, x: failed, ?: not tried".to_owned(),
    );
}

fn cell(matrix: &Matrix, row: usize, column: usize) -> String {
    if row == column {
        return String::new();
    }
    match matrix.cell(row, column) {
        CellState::NotTried => "?".to_owned(),
        CellState::Failed => "x".to_owned(),
        CellState::Measured(relative) if relative.abs() < DOT => ".".to_owned(),
        CellState::Measured(relative) => format!("{:+.0}", (relative * 100.0).min(999.0)),
    }
}
