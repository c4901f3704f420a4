//! Synthetic runs in all three formats.

use std::fs;
use std::path::{Path, PathBuf};

use linerate_analysis::made_up;
use linerate_analysis::record::Record;
use linerate_model::exit::Outcome;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;
use tempfile::TempDir;

use super::{Export, TableFormat};
use crate::made_up::store;

/// A column's name that a careless writer would trip over.
const HOSTILE: &str = "=cmd|'/c calc'!A1,\"two\"\nlines";

fn export(runs: &[PathBuf], to: TableFormat, out: &Path) -> Outcome<Vec<String>> {
    Export::of(runs, &|_| {}).write_file(to, out)
}

/// The rows of a table of JSON lines.
fn rows(runs: &[PathBuf]) -> Vec<Value> {
    let place = tempfile::tempdir().expect("a folder");
    let file = place.path().join("table");
    export(runs, TableFormat::Jsonl, &file).expect("a table");
    let text = fs::read_to_string(&file).expect("the table");
    let rows = text.lines().map(serde_json::from_str);
    rows.collect::<Result<_, _>>().expect("JSON")
}

/// One run of each kind.
fn every_kind(place: &TempDir) -> Vec<PathBuf> {
    let run = |name: &str, seed, records| {
        let header = made_up::header(seed, 1_800_000_000 + seed % 1_000);
        store(&place.path().join(name), &header, records)
    };
    let mut demo = made_up::proof();
    demo.push(Record::Planted(vec!["mtu-small".to_owned()]));
    vec![
        run("prove", 1, made_up::proof()),
        run("demo", 2, demo),
        run("search", 3, made_up::search()),
        run("lab", u64::MAX, made_up::experiment(HOSTILE)),
    ]
}

/// Parses CSV as in RFC 4180: `None` is a cell with nothing in it, not even quotes.
fn read_csv(text: &str) -> Vec<Vec<Option<String>>> {
    let mut rows = vec![vec![]];
    let mut rest = text.chars().peekable();
    while rest.peek().is_some() {
        let mut cell = (rest.peek() == Some(&'"')).then(String::new);
        let mut within = rest.next_if_eq(&'"').is_some();
        loop {
            match rest.peek().copied() {
                Some('"') if within => {
                    rest.next();
                    match rest.next_if_eq(&'"') {
                        Some(quote) => cell.get_or_insert_default().push(quote),
                        None => within = false,
                    }
                }
                Some(',' | '\n') | None if !within => break,
                Some(other) => {
                    rest.next();
                    cell.get_or_insert_default().push(other);
                }
                None => panic!("a quote is left open"),
            }
        }
        rows.last_mut().expect("a row").push(cell);
        if rest.next() == Some('\n') && rest.peek().is_some() {
            rows.push(vec![]);
        }
    }
    rows
}

/// A number as far as a reader of JSON need not keep more of it.
fn rounded(number: f64) -> String {
    format!("{number:.12e}")
}

/// A row with its numbers so far.
fn told(row: &Value) -> Vec<(&String, Option<String>)> {
    let row = row.as_object().expect("an object");
    row.iter()
        .map(|(name, value)| (name, in_words(value)))
        .collect()
}

/// A cell of a row, in the words of CSV.
fn in_words(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Number(number) if number.is_f64() => number.as_f64().map(rounded),
        other => Some(other.to_string()),
    }
}

#[test]
fn all_three_formats_hold_the_same_rows() {
    let place = tempfile::tempdir().expect("a folder");
    let runs = every_kind(&place);
    let expected = rows(&runs);
    assert_eq!(expected.len(), 5 + 5 + 2 + 6);

    let csv = place.path().join("table.csv");
    export(&runs, TableFormat::Csv, &csv).expect("a table");
    let mut csv = read_csv(&fs::read_to_string(&csv).expect("the table")).into_iter();
    let names: Vec<String> = csv
        .next()
        .expect("the names")
        .into_iter()
        .flatten()
        .collect();
    for (row, line) in expected.iter().zip(csv.by_ref()) {
        let cells = names.iter().zip(line).map(|(name, cell)| {
            let is_real = row[name].is_f64();
            let real = |text: String| rounded(text.parse().expect("a number"));
            (name, if is_real { cell.map(real) } else { cell })
        });
        assert_eq!(cells.collect::<Vec<_>>(), told(row));
    }
    assert_eq!(csv.next(), None, "a row too many");

    let file = place.path().join("table.parquet");
    export(&runs, TableFormat::Parquet, &file).expect("a table");
    let file = fs::File::open(&file).expect("the table");
    let reader = SerializedFileReader::new(file).expect("a Parquet file");
    let mut found = Vec::new();
    for row in reader.get_row_iter(None).expect("rows") {
        let row = row.expect("a row");
        let cells = row.get_column_iter().map(|(name, field)| {
            let value = match field {
                Field::Null => Value::Null,
                Field::Str(text) => text.as_str().into(),
                Field::ULong(number) => (*number).into(),
                Field::Double(number) => (*number).into(),
                Field::Bool(on) => (*on).into(),
                other => panic!("{name} is {other:?}"),
            };
            (name.clone(), value)
        });
        found.push(Value::Object(cells.collect()));
    }
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(told(found), told(expected));
    }
}

#[test]
fn a_row_tells_what_was_tried_what_was_moved_and_what_came_of_it() {
    let place = tempfile::tempdir().expect("a folder");
    let rows = rows(&every_kind(&place));
    let of =
        |kind: &str| -> Vec<&Value> { rows.iter().filter(|row| row["run_kind"] == kind).collect() };
    let proof = of("prove");
    let kinds: Vec<&str> = proof
        .iter()
        .filter_map(|row| row["kind"].as_str())
        .collect();
    assert_eq!(kinds, ["before", "staged", "staged", "staged", "after"]);
    let before = proof[0];
    for (name, value) in [
        ("schema", Value::from("linerate.row/1")),
        ("run", "prove".into()),
        ("created", "2027-01-15T08:00:01Z".into()),
        ("created_unix_s", 1_800_000_001_u64.into()),
        ("local_host", "host".into()),
        ("local_kernel", "6.18.0".into()),
        ("peer", "netns:far".into()),
        ("remote_nic", "far0".into()),
        ("workload", "stream".into()),
        ("transport", "tcp".into()),
        ("flows", 1.into()),
        ("direction", "forward".into()),
        ("duration_s", 2.0.into()),
        ("buffer_bytes", 131_072.into()),
        ("rate_bit_per_s", 9e9.into()),
        ("latency_p99_ns", Value::Null),
        ("operations_per_s", Value::Null),
        ("remedy", Value::Null),
        ("skipped", Value::Null),
        ("flags", "".into()),
    ] {
        assert_eq!(before[name], value, "{name}");
    }
    assert!(before["cpu_local_s_per_gb"].as_f64() > Some(0.0));
    // The one that was made again is there, and reports it.
    assert_eq!(proof[1]["flags"], "steal not-settled");
    assert_eq!(proof[1]["doubtful"], true);
    let superseded: Vec<bool> = proof.iter().map(|row| row["superseded"] == true).collect();
    assert_eq!(superseded, [false, true, false, false, false]);
    assert_eq!(proof[2]["rule"], "tcp-buffer-below-bdp");
    assert_eq!(
        (&proof[2]["arm"], &proof[2]["stage"]),
        (&"without".into(), &0.into())
    );
    assert_eq!(proof[3]["order"], 2);
    assert_eq!(of("demo").len(), 5);
}

#[test]
fn a_factor_is_a_column_and_what_could_not_be_had_is_a_row_that_says_why() {
    let place = tempfile::tempdir().expect("a folder");
    let rows = rows(&every_kind(&place));
    let of =
        |kind: &str| -> Vec<&Value> { rows.iter().filter(|row| row["kind"] == kind).collect() };
    let cells = of("cell");
    let column = format!("factor.{HOSTILE}");
    let told: Vec<_> = cells
        .iter()
        .map(|row| {
            let level = row[&column].as_str().expect("a level");
            let again = row["superseded"] == true;
            (row["block"].as_u64(), level, row["beside"].as_u64(), again)
        })
        .collect();
    assert_eq!(
        told,
        [
            (Some(0), "1", Some(0), false),
            (Some(0), "1", Some(1), false),
            (Some(0), "12", Some(0), true),
            (Some(0), "12", Some(0), false),
            (Some(1), "1", Some(0), false),
        ]
    );
    let orders: Vec<_> = cells
        .iter()
        .filter_map(|row| row["order"].as_u64())
        .collect();
    assert_eq!(orders, [0, 0, 1, 2, 3]);
    let last = cells[4];
    assert_eq!(last["skipped"], "the peer has no such port");
    // Not measured is not 0.
    for name in ["workload", "rate_bit_per_s", "doubtful", "flags"] {
        assert_eq!(last[name], Value::Null, "{name}");
    }
    let explored = of("explored");
    assert_eq!(explored[0]["factor.local ring"], "4096, \"all\"");
    assert_eq!(explored[1]["factor.local ring"], "baseline");
    assert!(explored[1]["skipped"].is_string());
    // A run without the factor has no level of it.
    assert_eq!(of("before")[0][&column], Value::Null);
}

#[test]
fn a_kept_experiment_has_in_the_table_the_figures_of_its_document() {
    let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/runs/lab-1");
    let said = fs::read_to_string(run.join("said.json")).expect("the document");
    let said: Value = serde_json::from_str(&said).expect("JSON");
    let rows = rows(&[run]);
    let cells = rows
        .iter()
        .filter(|row| row["kind"] == "cell" && row["superseded"] == false);
    let cells: Vec<_> = cells
        .map(|row| {
            let levels = [&row["factor.tso"], &row["factor.gro"]];
            let place = (&row["block"], &row["order"], levels.map(Value::to_string));
            (
                place,
                in_words(&row["rate_bit_per_s"]),
                row["flags"].as_str(),
            )
        })
        .collect();
    let trials = said["trials"].as_array().expect("a list").iter();
    let trials: Vec<_> = trials
        .map(|trial| {
            let levels = [&trial["levels"][0], &trial["levels"][1]];
            let place = (
                &trial["block"],
                &trial["order"],
                levels.map(Value::to_string),
            );
            (
                place,
                in_words(&trial["values"]["rate"]),
                trial["flags"][0].as_str(),
            )
        })
        .collect();
    assert_eq!(cells.len(), 12);
    assert_eq!(cells, trials);
}

#[test]
fn the_numbers_of_a_pair_count_within_their_run() {
    let place = tempfile::tempdir().expect("a folder");
    let run = |name: &str| {
        store(
            &place.path().join(name),
            &made_up::header(1, 0),
            made_up::proof(),
        )
    };
    let rows = rows(&[run("one"), run("two")]);
    let names: Vec<&str> = rows.iter().filter_map(|row| row["run"].as_str()).collect();
    assert_eq!(names, [["one"; 5], ["two"; 5]].concat());
    let superseded = rows.iter().filter(|row| row["superseded"] == true);
    assert_eq!(
        superseded.count(),
        2,
        "a run's trials supersede those of no other run"
    );
}

#[test]
fn a_torn_run_gives_the_rows_of_its_whole_records() {
    let place = tempfile::tempdir().expect("a folder");
    let run = store(
        &place.path().join("torn"),
        &made_up::header(1, 0),
        made_up::proof(),
    );
    let file = run.join("records.jsonl");
    let whole = fs::read_to_string(&file).expect("the records");
    // Within the last but one line, which is the trial after.
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let kept: usize = lines[..6].iter().map(|line| line.len()).sum();
    fs::write(&file, &whole[..kept + 40]).expect("the cut");
    assert_eq!(rows(std::slice::from_ref(&run)).len(), 4);
    // Cut off before the first record.
    fs::remove_file(&file).expect("the file");
    assert_eq!(rows(&[run]).len(), 0);
}

#[test]
fn a_run_that_cannot_be_read_gives_no_row_and_the_others_give_all_of_theirs() {
    let place = tempfile::tempdir().expect("a folder");
    let mut runs = every_kind(&place);
    let whole = rows(&runs);
    let damaged = store(
        &place.path().join("damaged"),
        &made_up::header(9, 0),
        made_up::proof(),
    );
    let file = damaged.join("records.jsonl");
    let text = fs::read_to_string(&file).expect("the records");
    fs::write(
        &file,
        text.replace("\"kept\":false", "\"kept\":true") + "more\n",
    )
    .expect("a change");
    runs.insert(1, damaged);
    runs.push(place.path().join("no such run"));
    let out = place.path().join("table");
    let unread = export(&runs, TableFormat::Jsonl, &out).expect("a table of the others");
    assert_eq!(unread.len(), 2, "{unread:?}");
    for (why, name) in unread.iter().zip(["damaged", "no such run"]) {
        assert!(why.contains(name), "{why}");
    }
    let text = fs::read_to_string(&out).expect("the table");
    let found: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(found, whole);
}

#[test]
fn the_list_of_the_runs_is_passed_over_when_a_shell_names_it_among_them() {
    let place = tempfile::tempdir().expect("a folder");
    let mut runs = every_kind(&place);
    let whole = rows(&runs);
    for name in ["index.sqlite", "index.sqlite.lock"] {
        let file = place.path().join(name);
        fs::write(&file, "").expect("a file");
        runs.push(file);
    }
    assert_eq!(rows(&runs), whole);
}
