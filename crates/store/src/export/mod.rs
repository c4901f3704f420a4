//! The trials of stored runs as one flat table.
//!
//! `rows` makes rows of a run's records, `columns` cells of a row; `lines` and `parquet` write them. The runs are gone
//! through twice: for the names of their factors, each of which is a column, and for their rows. Only the rows of one
//! run are in memory at a time.

mod columns;
mod lines;
mod parquet;
mod rows;

#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use linerate_host::regular_file;
use linerate_model::exit::{Outcome, Stop};

use self::columns::{Column, cells, columns};
pub use self::columns::{SCHEMA, row_schema};
use self::lines::{Csv, Lines, Table};
use self::parquet::Parquet;
use self::rows::{factors_of, rows_of};
use crate::runs;

/// The formats of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableFormat {
    /// Comma-separated values with a header line; unknown values are empty.
    Csv,
    /// One JSON object per line; unknown values are null.
    Jsonl,
    /// Apache Parquet, which is binary.
    Parquet,
}

impl TableFormat {
    /// The format that the extension of a file's name stands for.
    pub fn of_name(file: &Path) -> Option<Self> {
        match file.extension()?.to_str()? {
            "csv" => Some(Self::Csv),
            "jsonl" | "ndjson" => Some(Self::Jsonl),
            "parquet" => Some(Self::Parquet),
            _ => None,
        }
    }
}

/// The trials of some runs, as a table that can be written.
pub struct Export<'a> {
    folders: Vec<&'a Path>,
    factors: Vec<String>,
    columns: Vec<Column>,
    note: &'a dyn Fn(&str),
}

impl fmt::Debug for Export<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Export")
            .field("folders", &self.folders)
            .finish_non_exhaustive()
    }
}

impl<'a> Export<'a> {
    /// The table of the runs in these folders; `note` takes what a person should know of a run.
    pub fn of(runs: &'a [PathBuf], note: &'a dyn Fn(&str)) -> Self {
        // `runs/*` names the list of the runs, too.
        let folders = runs.iter().filter(|path| !runs::is_index(path));
        let folders: Vec<&Path> = folders.map(PathBuf::as_path).collect();
        let factors = all_factors(&folders);
        Self {
            columns: columns(&factors),
            folders,
            factors,
            note,
        }
    }

    /// The number of runs.
    pub fn runs(&self) -> usize {
        self.folders.len()
    }

    /// Writes the table as text, and returns why some runs are missing. Parquet is written as CSV.
    pub fn print(&self, format: TableFormat, out: impl Write) -> io::Result<Vec<String>> {
        match format {
            TableFormat::Jsonl => self.rows_to(Box::new(Lines::new(out, &self.columns))),
            TableFormat::Csv | TableFormat::Parquet => {
                self.rows_to(Box::new(Csv::new(out, &self.columns)?))
            }
        }
    }

    /// Writes the table to a file, whole or not at all, and returns why some runs are missing.
    pub fn write_file(&self, format: TableFormat, file: &Path) -> Outcome<Vec<String>> {
        let write = |out: &mut BufWriter<&File>| match format {
            TableFormat::Parquet => self.rows_to(Box::new(Parquet::new(out, &self.columns)?)),
            text => self.print(text, out),
        };
        let written = regular_file::write_named(file, 0o666, write);
        written.map_err(|error| Stop::io(format!("write {}", file.display()), error))
    }

    /// Writes the rows of all runs that can be read, and returns why the others cannot.
    fn rows_to(&self, mut table: Box<dyn Table + '_>) -> io::Result<Vec<String>> {
        let mut unread = Vec::new();
        for folder in &self.folders {
            match self.cells_of(folder) {
                Ok(rows) => rows.into_iter().try_for_each(|row| table.row(row))?,
                Err(why) => unread.push(why),
            }
        }
        table.finish()?;
        Ok(unread)
    }

    /// The rows of a run, all of them or none.
    fn cells_of(&self, folder: &Path) -> Result<Vec<Vec<columns::Cell>>, String> {
        let run = rows_of(folder).map_err(|stop| stop.message)?;
        if run.torn {
            (self.note)(&format!(
                "{} was truncated while being written: its last record is dropped",
                folder.display()
            ));
        }
        let rows = run.rows.iter();
        let cells = rows.map(|row| cells(&run.facts, row, &self.factors));
        cells
            .collect::<Option<_>>()
            .ok_or_else(|| format!("{} changed while being read", folder.display()))
    }
}

/// The names of the factors of all runs, in the order in which they come.
fn all_factors(folders: &[&Path]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for name in folders.iter().flat_map(|folder| factors_of(folder)) {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}
