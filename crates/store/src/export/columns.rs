//! The columns of the table and their contents: one list for all formats.

use linerate_analysis::record::EndFacts;
use linerate_analysis::text::timestamp::rfc3339;
use serde_json::{Map, Value, json};

use self::Presence::{MayBeNull, NeverNull};
use super::rows::{Figures, Row, RunFacts};

/// The name of a row's schema.
pub const SCHEMA: &str = "linerate.row/1";
/// What a factor's column begins with.
const FACTOR: &str = "factor.";

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Text.
    Text,
    /// A whole number from 0 to 2^64 - 1.
    Whole,
    /// A number.
    Real,
    /// Yes or no.
    Switch,
}

/// The value of a row in a column.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    /// Unknown, or not applicable to this row.
    Null,
    /// In a column of text.
    Text(String),
    /// In a column of whole numbers.
    Whole(u64),
    /// In a column of numbers: finite.
    Real(f64),
    /// In a column of yes and no.
    Switch(bool),
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    /// Its name, with its unit at the end.
    pub name: String,
    /// What it holds.
    pub kind: Kind,
}

/// Whether every row has a value in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    NeverNull,
    MayBeNull,
}

/// A column's name, what it holds, its description, and its value in a row.
type Fixed = (
    &'static str,
    Kind,
    Presence,
    &'static str,
    fn(&RunFacts, &Row) -> Cell,
);

/// The columns that every table has.
const FIXED: [Fixed; 46] = [
    (
        "schema",
        Kind::Text,
        NeverNull,
        "The schema of the row.",
        |_, _| word(SCHEMA),
    ),
    // The run.
    (
        "run",
        Kind::Text,
        NeverNull,
        "The name of the run's folder.",
        |run, _| word(&run.name),
    ),
    (
        "run_kind",
        Kind::Text,
        NeverNull,
        "The command that made the run: lab, prove, demo or search.",
        |run, _| word(run.kind.word()),
    ),
    (
        "created",
        Kind::Text,
        NeverNull,
        "When the run began: RFC 3339, UTC.",
        |run, _| Cell::Text(rfc3339(run.header.created_unix_s)),
    ),
    (
        "created_unix_s",
        Kind::Whole,
        NeverNull,
        "The same, in seconds since 1970.",
        |run, _| Cell::Whole(run.header.created_unix_s),
    ),
    (
        "linerate_version",
        Kind::Text,
        NeverNull,
        "The version of linerate that created the run.",
        |run, _| word(&run.header.version),
    ),
    (
        "local_host",
        Kind::Text,
        MayBeNull,
        "The name of the host on which linerate was started.",
        |run, _| text(run.local.name.as_ref()),
    ),
    (
        "remote_host",
        Kind::Text,
        MayBeNull,
        "The name of the peer's host.",
        |run, row| text(far_end(run, row).name.as_ref()),
    ),
    (
        "local_kernel",
        Kind::Text,
        MayBeNull,
        "Its kernel release.",
        |run, _| text(run.local.kernel.as_ref()),
    ),
    (
        "remote_kernel",
        Kind::Text,
        MayBeNull,
        "The peer's kernel release.",
        |run, row| text(far_end(run, row).kernel.as_ref()),
    ),
    (
        "peer",
        Kind::Text,
        NeverNull,
        "The name of the peer on the command line.",
        |run, row| {
            let other = row.other.as_ref();
            word(other.map_or(&run.header.peer, |other| &other.peer))
        },
    ),
    (
        "local_nic",
        Kind::Text,
        NeverNull,
        "The interface of this host on the path.",
        |run, row| {
            let other = row.other.as_ref();
            word(other.map_or(run.header.local_nic.as_str(), |other| &other.local_nic))
        },
    ),
    (
        "remote_nic",
        Kind::Text,
        NeverNull,
        "The peer's interface.",
        |run, row| {
            let other = row.other.as_ref();
            word(other.map_or(run.header.remote_nic.as_str(), |other| &other.remote_nic))
        },
    ),
    (
        "seed",
        Kind::Whole,
        NeverNull,
        "The seed of the order of the run's trials.",
        |run, _| Cell::Whole(run.header.seed),
    ),
    // The trial's place in it.
    (
        "kind",
        Kind::Text,
        NeverNull,
        "The record that contains the trial: before, between, after, staged, explored, pilot or cell.",
        |_, row| word(row.kind.word()),
    ),
    (
        "order",
        Kind::Whole,
        NeverNull,
        "Its index among those of its kind in its run, from 0, in the order in which they ran.",
        |_, row| Cell::Whole(row.order),
    ),
    (
        "beside",
        Kind::Whole,
        NeverNull,
        "0; for background traffic during the trial of interest, its number from 1.",
        |_, row| Cell::Whole(row.beside),
    ),
    (
        "superseded",
        Kind::Switch,
        NeverNull,
        "Whether the trial was repeated because of its flags.",
        |_, row| Cell::Switch(row.superseded),
    ),
    (
        "skipped",
        Kind::Text,
        MayBeNull,
        "Why there is no trial; workload and results are null then.",
        |_, row| text(row.skipped.as_ref()),
    ),
    (
        "remedy",
        Kind::Whole,
        MayBeNull,
        "`staged`: the number in the run of the remedy that the trial is without, from 0; null with all, or without several.",
        |_, row| whole(row.remedy),
    ),
    (
        "rule",
        Kind::Text,
        MayBeNull,
        "`staged`: the rules that proposed what the trial is without.",
        |_, row| text(row.rule.as_ref()),
    ),
    (
        "arm",
        Kind::Text,
        MayBeNull,
        "`staged`: with, where all remedies of the stage were in place, or without.",
        |_, row| row.arm.map_or(Cell::Null, word),
    ),
    (
        "stage",
        Kind::Whole,
        MayBeNull,
        "`staged`: the stage, from 0.",
        |_, row| whole(row.stage),
    ),
    (
        "block",
        Kind::Whole,
        MayBeNull,
        "`cell`: the block, from 0.",
        |_, row| whole(row.block),
    ),
    // What was moved.
    (
        "workload",
        Kind::Text,
        MayBeNull,
        "The workload.",
        |_, row| of(row, |figures| word(figures.workload)),
    ),
    (
        "transport",
        Kind::Text,
        MayBeNull,
        "The transport: tcp, udp or verbs.",
        |_, row| of(row, |figures| word(figures.transport)),
    ),
    (
        "flows",
        Kind::Whole,
        MayBeNull,
        "Connections in each direction that carries data.",
        |_, row| of(row, |figures| Cell::Whole(figures.flows)),
    ),
    (
        "direction",
        Kind::Text,
        MayBeNull,
        "The direction of the payload: forward, reverse or bidirectional.",
        |_, row| of(row, |figures| word(figures.direction)),
    ),
    (
        "duration_s",
        Kind::Real,
        MayBeNull,
        "The planned duration; for a fixed amount the maximum.",
        |_, row| of(row, |figures| real(Some(figures.duration_s))),
    ),
    (
        "buffer_bytes",
        Kind::Whole,
        MayBeNull,
        "A stream's size of each send and receive, or a `udp` datagram; null for other workloads.",
        |_, row| of(row, |figures| whole(figures.buffer_bytes)),
    ),
    // The result.
    (
        "rate_bit_per_s",
        Kind::Real,
        MayBeNull,
        "Payload rate without the warm-up; for ping-pong messages one way; for requests and responses both directions.",
        |_, row| of(row, |figures| real(figures.rate_bit_per_s)),
    ),
    (
        "operations_per_s",
        Kind::Real,
        MayBeNull,
        "Operations per second.",
        |_, row| of(row, |figures| real(figures.operations_per_s)),
    ),
    (
        "latency_mean_ns",
        Kind::Real,
        MayBeNull,
        "The mean latency of an operation; one-way for ping-pong messages.",
        |_, row| of(row, |figures| real(figures.latency_mean_ns)),
    ),
    (
        "latency_p50_ns",
        Kind::Whole,
        MayBeNull,
        "Its median.",
        |_, row| of(row, |figures| whole(figures.latency_p50_ns)),
    ),
    (
        "latency_p99_ns",
        Kind::Whole,
        MayBeNull,
        "Its 99th percentile.",
        |_, row| of(row, |figures| whole(figures.latency_p99_ns)),
    ),
    (
        "cpu_local_s_per_gb",
        Kind::Real,
        MayBeNull,
        "CPU seconds of linerate's data threads on this host per 10^9 bytes.",
        |_, row| of(row, |figures| real(figures.cpu_local_s_per_gb)),
    ),
    (
        "cpu_remote_s_per_gb",
        Kind::Real,
        MayBeNull,
        "The same for the peer.",
        |_, row| of(row, |figures| real(figures.cpu_remote_s_per_gb)),
    ),
    (
        "user_local_s_per_gb",
        Kind::Real,
        MayBeNull,
        "User time in `cpu_local_s_per_gb`.",
        |_, row| of(row, |figures| real(figures.user_local_s_per_gb)),
    ),
    (
        "system_local_s_per_gb",
        Kind::Real,
        MayBeNull,
        "System time in `cpu_local_s_per_gb`.",
        |_, row| of(row, |figures| real(figures.system_local_s_per_gb)),
    ),
    (
        "user_remote_s_per_gb",
        Kind::Real,
        MayBeNull,
        "User time in `cpu_remote_s_per_gb`.",
        |_, row| of(row, |figures| real(figures.user_remote_s_per_gb)),
    ),
    (
        "system_remote_s_per_gb",
        Kind::Real,
        MayBeNull,
        "System time in `cpu_remote_s_per_gb`.",
        |_, row| of(row, |figures| real(figures.system_remote_s_per_gb)),
    ),
    (
        "cpu_local_us_per_op",
        Kind::Real,
        MayBeNull,
        "CPU microseconds of linerate's data threads here per operation.",
        |_, row| of(row, |figures| real(figures.cpu_local_us_per_op)),
    ),
    (
        "cpu_remote_us_per_op",
        Kind::Real,
        MayBeNull,
        "The same for the peer.",
        |_, row| of(row, |figures| real(figures.cpu_remote_us_per_op)),
    ),
    (
        "shared_kernel",
        Kind::Switch,
        MayBeNull,
        "Whether both ends ran on one kernel.",
        |_, row| of(row, |figures| Cell::Switch(figures.shared_kernel)),
    ),
    (
        "doubtful",
        Kind::Switch,
        MayBeNull,
        "Whether the trial does not measure what it should: cut short, stalled, disturbed by steal, or counts that disagree.",
        |_, row| of(row, |figures| Cell::Switch(figures.doubtful)),
    ),
    (
        "flags",
        Kind::Text,
        MayBeNull,
        "Flags, separated by spaces: why it may not be reliable; empty without flags.",
        |_, row| of(row, |figures| Cell::Text(figures.flags.clone())),
    ),
];

/// The remote end of a trial.
fn far_end<'a>(run: &'a RunFacts, row: &'a Row) -> &'a EndFacts {
    row.other.as_ref().map_or(&run.remote, |other| &other.facts)
}

fn word(text: &str) -> Cell {
    Cell::Text(text.to_owned())
}

fn text(known: Option<&String>) -> Cell {
    known.map_or(Cell::Null, |text| word(text))
}

fn whole(known: Option<u64>) -> Cell {
    known.map_or(Cell::Null, Cell::Whole)
}

/// JSON has no word for what is not finite, and neither is a figure.
fn real(known: Option<f64>) -> Cell {
    let finite = known.filter(|number| number.is_finite());
    finite.map_or(Cell::Null, Cell::Real)
}

fn of(row: &Row, pick: impl Fn(&Figures) -> Cell) -> Cell {
    row.figures.as_ref().map_or(Cell::Null, pick)
}

/// All columns of a table whose runs have these factors, in their order.
pub(super) fn columns(factors: &[String]) -> Vec<Column> {
    let fixed = FIXED.iter().map(|(name, kind, ..)| Column {
        name: (*name).to_owned(),
        kind: *kind,
    });
    let factors = factors.iter().map(|name| Column {
        name: format!("{FACTOR}{name}"),
        kind: Kind::Text,
    });
    fixed.chain(factors).collect()
}

/// The JSON Schema of a row.
pub fn row_schema() -> Value {
    let property = |(name, kind, presence, description, _): &Fixed| {
        let kind = match kind {
            Kind::Text => "string",
            Kind::Whole => "integer",
            Kind::Real => "number",
            Kind::Switch => "boolean",
        };
        let kind = match presence {
            NeverNull => json!(kind),
            MayBeNull => json!([kind, "null"]),
        };
        let property = json!({"type": kind, "description": description});
        ((*name).to_owned(), property)
    };
    json!({
        "description": "A row of the table that `linerate export` writes: a trial of a stored run. As JSON it is one \
                        object per line; the columns of CSV and Parquet are its keys. Each factor of any of the runs \
                        is a column `factor.NAME` after the others, in every row.",
        "required": FIXED.iter().map(|(name, ..)| *name).collect::<Vec<_>>(),
        "properties": FIXED.iter().map(property).collect::<Map<String, Value>>(),
        "patternProperties": {
            "^factor\\.": {
                "type": ["string", "null"],
                "description": "The name of the factor's level; null if the run does not have this factor.",
            },
        },
    })
}

/// A row's cells, in the order of the columns; `None` where the row has a factor that no column is for.
pub(super) fn cells(run: &RunFacts, row: &Row, factors: &[String]) -> Option<Vec<Cell>> {
    let mut cells: Vec<Cell> = FIXED.iter().map(|(.., make)| make(run, row)).collect();
    let first = cells.len();
    cells.resize(first + factors.len(), Cell::Null);
    for (name, level) in &row.levels {
        let place = factors.iter().position(|factor| factor == name)?;
        cells[first + place] = Cell::Text(level.clone());
    }
    Some(cells)
}
