//! `linerate runs`: the stored runs of a state folder, the newest first.

use std::path::Path;

use linerate_analysis::record::flag_word;
use linerate_analysis::run_list::{Counts, Listed, State};
use linerate_analysis::text::visible::visible;
use linerate_model::exit::Outcome;
use linerate_report::EXPECTED_FLAGS;
use linerate_runtime::cli::RunsArgs;
use linerate_runtime::console::say::{Format, Say};
use linerate_store::runs::{Filter, document};

/// The filter that was typed.
fn filter_of(args: &RunsArgs) -> Filter {
    Filter {
        host: args.host.clone(),
        nic: args.nic.clone(),
        workload: args.workload.clone(),
        peer: args.peer.clone(),
        since: args.since,
        flag: args.flag.map(flag_word),
        kind: args.kind,
    }
}

/// Carries out `runs`.
pub(crate) fn run(args: &RunsArgs, state: &Path, say: &Say) -> Outcome<()> {
    let filter = filter_of(args);
    let document = document(&state.join("runs"), &filter, args.rebuild, &|words| {
        say.note(words);
    })?;
    for one in &document.unreadable {
        say.note(&format!("cannot be read: {}", visible(&one.why)));
    }
    if say.format == Format::Json {
        return say.json(&document);
    }
    if document.runs.is_empty() {
        let all = filter == Filter::default();
        let which = if all { "no runs" } else { "no matching runs" };
        say.note(&format!("{which} in {}", document.folder));
        return Ok(());
    }
    let number = document.runs.len();
    let runs = if number == 1 { "run" } else { "runs" };
    say.note(&format!("{number} {runs} in {}", document.folder));
    say.data(&text(&document.runs, say.table_columns()))
}

/// A table of the runs; on a terminal that is too narrow for it, three lines for each.
fn text(runs: &[Listed], columns: Option<usize>) -> String {
    let table = table(runs);
    let is_wide = |columns: usize| table.lines().any(|line| line.chars().count() > columns);
    if columns.is_some_and(is_wide) {
        runs.iter().map(block).collect::<Vec<_>>().join("\n")
    } else {
        table
    }
}

/// A run in three lines: what it was, its result, its name.
fn block(run: &Listed) -> String {
    let [started, kind, workload, path, result, flags, name] = line(run);
    let joined = |cells: &[String]| {
        let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
        let cells = cells.into_iter().filter(|cell| !cell.is_empty());
        cells.collect::<Vec<_>>().join("  ")
    };
    let lines = [
        joined(&[started, kind, workload, path]),
        joined(&[result, flags]),
        name,
    ];
    let lines = lines.into_iter().filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("\n    ")
}

/// A line for each run under the heads of its columns.
fn table(runs: &[Listed]) -> String {
    let heads = [
        "started (UTC)",
        "kind",
        "workload",
        "path",
        "result",
        "flags",
        "run",
    ];
    let mut rows = vec![heads.map(str::to_owned)];
    rows.extend(runs.iter().map(line));
    let mut widths = [0; 7];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; 7]| {
        let cells = row.iter().zip(widths);
        // A column that says nothing of any run is left out.
        let cells = cells.filter(|(_, width)| *width > 0);
        let cells = cells.map(|(cell, width)| format!("{cell:<width$}"));
        let line: Vec<String> = cells.collect();
        line.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn line(run: &Listed) -> [String; 7] {
    let words = |counts: &Counts| {
        let words = counts.keys().map(String::as_str);
        let words: Vec<&str> = words
            .filter(|word| !EXPECTED_FLAGS.contains(word))
            .collect();
        words.join(" ")
    };
    let kind = match run.state {
        State::Ended => run.kind.clone(),
        state => format!("{} ({})", run.kind, state.word()),
    };
    let workload = match (words(&run.workloads), run.trials) {
        (workload, 0 | 1) => workload,
        (workload, trials) => format!("{workload} ({trials})"),
    };
    [
        run.created.trim_end_matches('Z').replace('T', " "),
        kind,
        workload,
        run.ways("->"),
        run.headline.clone().unwrap_or_default(),
        words(&run.flags),
        run.run.clone(),
    ]
    .map(|cell| visible(&cell))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use linerate_analysis::made_up as records;
    use linerate_runtime::cli::{Cli, Command};
    use linerate_store::made_up;

    use super::*;

    #[test]
    fn a_filter_lets_pass_what_it_names_and_two_what_both_name() {
        let place = tempfile::tempdir().expect("a folder");
        let runs = made_up::three_runs(place.path());
        let all = "b-lab-7 c-search-7 a-prove-7";
        for (words, passed) in [
            ("--host other", "c-search-7"),
            ("--host host", all),
            ("--host o'%", ""),
            ("--host third", "b-lab-7"),
            ("--nic far0", all),
            ("--nic near1", "b-lab-7"),
            ("--nic third0", "b-lab-7"),
            ("--nic eth9", ""),
            ("--workload stream", all),
            ("--workload rr", ""),
            ("--peer ssh://other", "c-search-7"),
            ("--peer netns:far", "b-lab-7 a-prove-7"),
            ("--peer netns:third", "b-lab-7"),
            ("--peer netns:third --host other", ""),
            ("--since 1970-01-01T00:33:20Z", "b-lab-7 c-search-7"),
            ("--since 9999-12-31", ""),
            ("--flag not-settled", "a-prove-7"),
            ("--flag steal", "b-lab-7 a-prove-7"),
            ("--kind search", "c-search-7"),
            ("--kind lab --flag not-settled", ""),
            ("--kind lab --flag steal", "b-lab-7"),
        ] {
            let words = ["linerate", "runs"].into_iter().chain(words.split(' '));
            let Some(Command::Runs(args)) = Cli::parse_from(words).command else {
                panic!("another command");
            };
            let found = document(&runs, &filter_of(&args), false, &|_| {}).expect("a list");
            let names: Vec<&str> = found.runs.iter().map(|run| run.run.as_str()).collect();
            assert_eq!(names.join(" "), passed, "{args:?}");
        }
    }

    #[test]
    fn a_run_is_listed_with_its_command_its_state_and_its_paths() {
        let place = tempfile::tempdir().expect("a folder");
        let runs = made_up::three_runs(place.path());
        let found = document(&runs, &Filter::default(), false, &|_| {}).expect("a list");
        let text = text(&found.runs, None);
        for words in [
            "search (open)",
            "host:near0 -> other:far0",
            "host:near0 -> host:far0, host:near1 -> third:third0",
        ] {
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn a_terminal_too_narrow_for_the_table_has_a_block_for_each_run() {
        let place = tempfile::tempdir().expect("a folder");
        let runs = made_up::three_runs(place.path());
        let found = document(&runs, &Filter::default(), false, &|_| {}).expect("a list");
        let table = text(&found.runs, None);
        let widest = table.lines().map(|line| line.chars().count()).max();
        let widest = widest.expect("lines");
        assert_eq!(text(&found.runs, Some(widest)), table);
        let blocks = text(&found.runs, Some(widest - 1));
        let names: Vec<&str> = blocks
            .lines()
            .filter_map(|line| line.strip_prefix("    "))
            .filter(|line| ["b-lab-7", "c-search-7", "a-prove-7"].contains(line))
            .collect();
        assert_eq!(names.len(), 3, "{blocks}");
        assert!(!blocks.contains("started (UTC)"), "{blocks}");
    }

    #[test]
    fn a_name_of_a_host_cannot_steer_a_terminal() {
        let place = tempfile::tempdir().expect("a folder");
        let hosts = vec![records::hosts("far\u{1b}[2J")];
        made_up::store(&place.path().join("one"), &records::header(1, 0), hosts);
        let found = document(place.path(), &Filter::default(), false, &|_| {}).expect("a list");
        assert!(!text(&found.runs, None).contains('\u{1b}'));
    }
}
