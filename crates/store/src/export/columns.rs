//! The columns of the table and their contents: one list for all formats.

use linerate_analysis::record::EndFacts;
use linerate_analysis::text::timestamp::rfc3339;

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

type Fixed = (&'static str, Kind, fn(&RunFacts, &Row) -> Cell);

/// The columns that every table has.
const FIXED: [Fixed; 46] = [
    ("schema", Kind::Text, |_, _| word(SCHEMA)),
    // The run.
    ("run", Kind::Text, |run, _| word(&run.name)),
    ("run_kind", Kind::Text, |run, _| word(run.kind.word())),
    ("created", Kind::Text, |run, _| {
        Cell::Text(rfc3339(run.header.created_unix_s))
    }),
    ("created_unix_s", Kind::Whole, |run, _| {
        Cell::Whole(run.header.created_unix_s)
    }),
    ("linerate_version", Kind::Text, |run, _| {
        word(&run.header.version)
    }),
    ("local_host", Kind::Text, |run, _| {
        text(run.local.name.as_ref())
    }),
    ("remote_host", Kind::Text, |run, row| {
        text(far_end(run, row).name.as_ref())
    }),
    ("local_kernel", Kind::Text, |run, _| {
        text(run.local.kernel.as_ref())
    }),
    ("remote_kernel", Kind::Text, |run, row| {
        text(far_end(run, row).kernel.as_ref())
    }),
    ("peer", Kind::Text, |run, row| {
        let other = row.other.as_ref();
        word(other.map_or(&run.header.peer, |other| &other.peer))
    }),
    ("local_nic", Kind::Text, |run, row| {
        let other = row.other.as_ref();
        word(other.map_or(run.header.local_nic.as_str(), |other| &other.local_nic))
    }),
    ("remote_nic", Kind::Text, |run, row| {
        let other = row.other.as_ref();
        word(other.map_or(run.header.remote_nic.as_str(), |other| &other.remote_nic))
    }),
    ("seed", Kind::Whole, |run, _| Cell::Whole(run.header.seed)),
    // The trial's place in it.
    ("kind", Kind::Text, |_, row| word(row.kind.word())),
    ("order", Kind::Whole, |_, row| Cell::Whole(row.order)),
    ("beside", Kind::Whole, |_, row| Cell::Whole(row.beside)),
    ("superseded", Kind::Switch, |_, row| {
        Cell::Switch(row.superseded)
    }),
    ("skipped", Kind::Text, |_, row| text(row.skipped.as_ref())),
    ("remedy", Kind::Whole, |_, row| whole(row.remedy)),
    ("rule", Kind::Text, |_, row| text(row.rule.as_ref())),
    ("arm", Kind::Text, |_, row| {
        row.arm.map_or(Cell::Null, |arm| word(arm.word()))
    }),
    ("pair", Kind::Whole, |_, row| whole(row.pair)),
    ("block", Kind::Whole, |_, row| whole(row.block)),
    // What was moved.
    ("workload", Kind::Text, |_, row| {
        of(row, |figures| word(figures.workload))
    }),
    ("transport", Kind::Text, |_, row| {
        of(row, |figures| word(figures.transport))
    }),
    ("flows", Kind::Whole, |_, row| {
        of(row, |figures| Cell::Whole(figures.flows))
    }),
    ("direction", Kind::Text, |_, row| {
        of(row, |figures| word(figures.direction))
    }),
    ("duration_s", Kind::Real, |_, row| {
        of(row, |figures| real(Some(figures.duration_s)))
    }),
    ("buffer_bytes", Kind::Whole, |_, row| {
        of(row, |figures| whole(figures.buffer_bytes))
    }),
    // The result.
    ("rate_bit_per_s", Kind::Real, |_, row| {
        of(row, |figures| real(figures.rate_bit_per_s))
    }),
    ("operations_per_s", Kind::Real, |_, row| {
        of(row, |figures| real(figures.operations_per_s))
    }),
    ("latency_mean_ns", Kind::Real, |_, row| {
        of(row, |figures| real(figures.latency_mean_ns))
    }),
    ("latency_p50_ns", Kind::Whole, |_, row| {
        of(row, |figures| whole(figures.latency_p50_ns))
    }),
    ("latency_p99_ns", Kind::Whole, |_, row| {
        of(row, |figures| whole(figures.latency_p99_ns))
    }),
    ("cpu_local_s_per_gb", Kind::Real, |_, row| {
        of(row, |figures| real(figures.cpu_local_s_per_gb))
    }),
    ("cpu_remote_s_per_gb", Kind::Real, |_, row| {
        of(row, |figures| real(figures.cpu_remote_s_per_gb))
    }),
    ("user_local_s_per_gb", Kind::Real, |_, row| {
        of(row, |figures| real(figures.user_local_s_per_gb))
    }),
    ("system_local_s_per_gb", Kind::Real, |_, row| {
        of(row, |figures| real(figures.system_local_s_per_gb))
    }),
    ("user_remote_s_per_gb", Kind::Real, |_, row| {
        of(row, |figures| real(figures.user_remote_s_per_gb))
    }),
    ("system_remote_s_per_gb", Kind::Real, |_, row| {
        of(row, |figures| real(figures.system_remote_s_per_gb))
    }),
    ("cpu_local_us_per_op", Kind::Real, |_, row| {
        of(row, |figures| real(figures.cpu_local_us_per_op))
    }),
    ("cpu_remote_us_per_op", Kind::Real, |_, row| {
        of(row, |figures| real(figures.cpu_remote_us_per_op))
    }),
    ("shared_kernel", Kind::Switch, |_, row| {
        of(row, |figures| Cell::Switch(figures.shared_kernel))
    }),
    ("doubtful", Kind::Switch, |_, row| {
        of(row, |figures| Cell::Switch(figures.doubtful))
    }),
    ("flags", Kind::Text, |_, row| {
        of(row, |figures| Cell::Text(figures.flags.clone()))
    }),
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
    let fixed = FIXED.iter().map(|(name, kind, _)| Column {
        name: (*name).to_owned(),
        kind: *kind,
    });
    let factors = factors.iter().map(|name| Column {
        name: format!("{FACTOR}{name}"),
        kind: Kind::Text,
    });
    fixed.chain(factors).collect()
}

/// A row's cells, in the order of the columns; `None` where the row has a factor that no column is for.
pub(super) fn cells(run: &RunFacts, row: &Row, factors: &[String]) -> Option<Vec<Cell>> {
    let mut cells: Vec<Cell> = FIXED.iter().map(|(_, _, make)| make(run, row)).collect();
    let first = cells.len();
    cells.resize(first + factors.len(), Cell::Null);
    for (name, level) in &row.levels {
        let place = factors.iter().position(|factor| factor == name)?;
        cells[first + place] = Cell::Text(level.clone());
    }
    Some(cells)
}
