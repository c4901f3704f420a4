//! `compare` of runs of `mesh`: how the rate of each host changed.

use std::path::Path;

use linerate_analysis::changes::{Change, of_host, of_trials};
use linerate_analysis::experiment::compare::Verdict;
use linerate_analysis::mesh::Effect;
use linerate_analysis::mesh::comparison::{ComparedHost, MeshComparison, MeshSide, compare};
use linerate_analysis::record::RunKind;
use linerate_analysis::text::words::{count, wrap};
use linerate_model::end::End;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::ids::NicName;
use linerate_runtime::cli::{CompareArgs, RunGroup};
use linerate_runtime::console::say::Say;
use linerate_store as store;

use super::stored::read;
use crate::stored_runs::{Conclusion, conclude, list_differences, require_kind};

/// More differences between the hosts, and more rows without a verdict of their own, are in the document only.
const SHOWN: usize = 12;
/// No line is longer.
const WIDTH: usize = 80;

/// Compares two groups of runs. Exit code 11 if a host became slower, 12 if inconclusive.
pub(crate) fn run(
    (before, after): (&RunGroup, &RunGroup),
    args: &CompareArgs,
    say: &Say,
) -> Outcome<()> {
    let sides = (side(before)?, side(after)?);
    let differences = match (before.0.first(), after.0.first()) {
        (Some(before), Some(after)) => differences(before, after)?,
        _ => Vec::new(),
    };
    let Some(document) = compare(sides.0, sides.1, args.margin, differences) else {
        let why = "the runs have no pair of hosts in common";
        let hint =
            "compare runs of `mesh` over the same hosts: `linerate runs --kind mesh` lists them";
        return Err(Stop::new(Code::Inconclusive, why).hint(hint));
    };
    let conclusion = Conclusion {
        verdict: document.verdict,
        why: document.why.as_deref(),
        worse: "slower hosts or failed pairs",
        hint: "measure with a longer `--time` or more `--repeats`, or raise `--margin`",
    };
    conclude(&document, || text(&document), &conclusion, say)
}

fn side(group: &RunGroup) -> Outcome<MeshSide> {
    let mut side = MeshSide::named(group.to_string());
    for folder in &group.0 {
        require_kind(folder, &[RunKind::Mesh, RunKind::MeshRank], "mesh")?;
        let stored = store::read(folder)?;
        let (asked, evidence, _) = read(&stored.records, folder)?;
        side.add(&asked.hosts, evidence.first());
    }
    Ok(side)
}

/// What differs in the options of two runs, and in the hosts that both have.
fn differences(before: &Path, after: &Path) -> Outcome<Vec<Change>> {
    let (was, is) = (store::read(before)?, store::read(after)?);
    let (asked_was, facts_was, _) = read(&was.records, before)?;
    let (asked_is, facts_is, _) = read(&is.records, after)?;
    let mut changes = of_trials(&asked_was.spec, &asked_is.spec);
    for (position, host) in asked_was.hosts.iter().enumerate() {
        let same = asked_is
            .hosts
            .iter()
            .position(|other| other.name == host.name);
        let facts = facts_was
            .facts(position)
            .zip(same.and_then(|same| facts_is.facts(same)));
        let Some((was, is)) = facts else { continue };
        let nic = host.nic.clone().unwrap_or_else(NicName::unheard);
        for change in of_host(End::Local, &nic, was, is) {
            // The same upgrade of all hosts is one difference.
            if !changes.contains(&change) {
                changes.push(change);
            }
        }
    }
    Ok(changes)
}

fn text(document: &MeshComparison) -> String {
    let mut lines = wrap(
        &format!(
            "rates of {} vs {}; slowdowns below {:.1} % are ignored",
            document.after,
            document.before,
            document.margin * 100.0
        ),
        WIDTH,
    );
    let is_shown =
        |row: &&ComparedHost| row.host.is_none() || row.is_better || row.verdict == Verdict::Worse;
    lines.extend(document.rows.iter().filter(is_shown).map(in_words));
    let open = document
        .rows
        .iter()
        .filter(|row| row.verdict == Verdict::CannotTell && row.host.is_some());
    let open: Vec<String> = open.map(in_words).collect();
    lines.extend(open.iter().take(SHOWN).cloned());
    if let more @ 1.. = open.len().saturating_sub(SHOWN) {
        lines.push(format!("  and {more} more are inconclusive"));
    }
    let others = document
        .rows
        .iter()
        .filter(|row| !is_shown(row) && row.verdict == Verdict::NotWorse);
    lines.push(format!(
        "  not worse: {}",
        count(others.count(), "other row")
    ));
    for [from, to] in document.failed.iter().take(SHOWN) {
        lines.push(format!("  {from} to {to}: fails"));
    }
    if document.unmatched > 0 {
        lines.push(format!(
            "  {} on one side only",
            count(document.unmatched, "directed pair")
        ));
    }
    let title = "differences between the first runs of both sides:";
    list_differences(&mut lines, (title, &document.differences), SHOWN, WIDTH);
    lines.push(document.verdict.word().to_owned());
    lines.join("\n")
}

/// `h3 send: -15.2 %, 90 % CI [-17.0, -13.3]: worse`.
fn in_words(row: &ComparedHost) -> String {
    let name = match (&row.host, row.side) {
        (Some(host), Some(side)) => format!("{host} {side}"),
        _ => "all pairs".to_owned(),
    };
    let verdict = if row.is_better {
        "better"
    } else {
        row.verdict.word()
    };
    let effect = row
        .effect
        .map_or_else(|| "too few pairs".to_owned(), effect);
    format!("  {name}: {effect}: {verdict}")
}

fn effect(effect: Effect) -> String {
    format!(
        "{:+.1} %, {:.0} % CI [{:+.1}, {:+.1}]",
        effect.relative * 100.0,
        effect.level * 100.0,
        effect.low * 100.0,
        effect.high * 100.0
    )
}
