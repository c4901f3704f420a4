//! `linerate export`: the trials of stored runs as one flat table.
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

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use linerate_host::regular_file;

pub use self::columns::SCHEMA;
use self::columns::{Column, cells, columns};
use self::lines::{Csv, Lines, Table};
use self::parquet::Parquet;
use self::rows::{factors_of, rows_of};
use crate::cli::{ExportArgs, TableFormat};
use crate::exit::{Code, Outcome, Stop};
use crate::runs;
use crate::say::{Format, Say};

/// Carries out `export`.
pub fn run(args: &ExportArgs, say: &Say) -> Outcome<()> {
    let format = format_of(args, say.format);
    // `runs/*` names the list of the runs, too.
    let folders = args.runs.iter().filter(|path| !runs::is_index(path));
    let folders: Vec<&Path> = folders.map(PathBuf::as_path).collect();
    let factors = all_factors(&folders);
    let columns = columns(&factors);
    let source = Export {
        folders: &folders,
        factors: &factors,
        say,
    };
    let unread = match &args.out {
        None if format == TableFormat::Parquet => {
            let stop = Stop::new(Code::Usage, "cannot print a Parquet table: it is binary");
            return Err(stop.hint("write it to a file with `--out`"));
        }
        None => say.stream(|out| source.write(text_table(format, out, &columns)?))?,
        Some(place) => {
            let write = |file: &mut BufWriter<&File>| match format {
                TableFormat::Parquet => source.write(Box::new(Parquet::new(file, &columns)?)),
                _ => source.write(text_table(format, file, &columns)?),
            };
            let written = regular_file::write_named(place, 0o666, write);
            Some(written.map_err(|error| Stop::io(format!("write {}", place.display()), error))?)
        }
    };
    let unread = unread.unwrap_or_default();
    if unread.is_empty() {
        return Ok(());
    }
    let why = format!(
        "{} of {} runs cannot be read and are missing from the table:\n  {}",
        unread.len(),
        folders.len(),
        unread.join("\n  ")
    );
    Err(Stop::new(Code::BadInput, why))
}

/// The requested format, else that of the file name's extension.
fn format_of(args: &ExportArgs, said: Format) -> TableFormat {
    let ending = args.out.as_ref().and_then(|out| out.extension());
    let by_name = match ending.and_then(|ending| ending.to_str()) {
        Some("csv") => Some(TableFormat::Csv),
        Some("jsonl" | "ndjson") => Some(TableFormat::Jsonl),
        Some("parquet") => Some(TableFormat::Parquet),
        _ => None,
    };
    let usual = match said {
        Format::Json => TableFormat::Jsonl,
        Format::Text => TableFormat::Csv,
    };
    args.to.or(by_name).unwrap_or(usual)
}

fn text_table<'c, W: Write + 'c>(
    format: TableFormat,
    out: W,
    columns: &'c [Column],
) -> io::Result<Box<dyn Table + 'c>> {
    Ok(match format {
        TableFormat::Jsonl => Box::new(Lines::new(out, columns)),
        _ => Box::new(Csv::new(out, columns)?),
    })
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

/// What is to be written.
struct Export<'a> {
    folders: &'a [&'a Path],
    factors: &'a [String],
    say: &'a Say,
}

impl Export<'_> {
    /// Writes the rows of all runs that can be read, and returns why the others cannot.
    fn write(&self, mut table: Box<dyn Table + '_>) -> io::Result<Vec<String>> {
        let mut unread = Vec::new();
        for folder in self.folders {
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
            self.say.note(&format!(
                "{} was truncated while being written: its last record is dropped",
                folder.display()
            ));
        }
        let rows = run.rows.iter();
        let cells = rows.map(|row| cells(&run.facts, row, self.factors));
        cells
            .collect::<Option<_>>()
            .ok_or_else(|| format!("{} changed while being read", folder.display()))
    }
}
