//! The table as text: CSV (RFC 4180, but for the line's end, which is that of Unix), and JSON a line.
//!
//! The name of a host or a level is not changed, even if it begins with `=`: a table is data, and a spreadsheet that
//! interprets it must be configured not to (docs/book/guides/many-runs.md).

use std::io::{self, Write};

use linerate_analysis::text::visible::VisibleJson;
use serde::ser::{SerializeMap, Serializer};
use serde_json::ser::CompactFormatter;

use super::columns::{Cell, Column};

/// Something that rows are written to.
pub(super) trait Table {
    /// Writes a row: a cell for each column.
    fn row(&mut self, cells: Vec<Cell>) -> io::Result<()>;

    /// Writes what stands at the end.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// Comma-separated values, with a line of names. An empty cell is not known; an empty text is `""`.
#[derive(Debug)]
pub(super) struct Csv<W> {
    out: W,
}

impl<W: Write> Csv<W> {
    /// Begins a table.
    pub(super) fn new(mut out: W, columns: &[Column]) -> io::Result<Self> {
        let names = columns.iter().map(|column| quoted(&column.name));
        writeln!(out, "{}", names.collect::<Vec<_>>().join(","))?;
        Ok(Self { out })
    }
}

impl<W: Write> Table for Csv<W> {
    fn row(&mut self, cells: Vec<Cell>) -> io::Result<()> {
        let cells = cells.iter().map(|cell| match cell {
            Cell::Null => String::new(),
            Cell::Text(text) => quoted(text),
            Cell::Whole(number) => number.to_string(),
            Cell::Real(number) => number.to_string(),
            Cell::Switch(on) => on.to_string(),
        });
        writeln!(self.out, "{}", cells.collect::<Vec<_>>().join(","))
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.out.flush()
    }
}

/// A text within quotes where it needs them.
fn quoted(text: &str) -> String {
    let needs = text.is_empty()
        || text.contains([',', '"', '\n', '\r'])
        // Some readers take blanks at the ends away.
        || text.starts_with(char::is_whitespace)
        || text.ends_with(char::is_whitespace);
    if needs {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// A JSON object a line.
#[derive(Debug)]
pub(super) struct Lines<'c, W> {
    out: W,
    columns: &'c [Column],
}

impl<'c, W: Write> Lines<'c, W> {
    /// Begins a table.
    pub(super) fn new(out: W, columns: &'c [Column]) -> Self {
        Self { out, columns }
    }
}

impl<W: Write> Table for Lines<'_, W> {
    fn row(&mut self, cells: Vec<Cell>) -> io::Result<()> {
        let compact = VisibleJson(CompactFormatter);
        let mut line = serde_json::Serializer::with_formatter(&mut self.out, compact);
        let mut object = line.serialize_map(Some(cells.len()))?;
        for (column, cell) in self.columns.iter().zip(&cells) {
            match cell {
                Cell::Null => object.serialize_entry(&column.name, &()),
                Cell::Text(text) => object.serialize_entry(&column.name, text),
                Cell::Whole(number) => object.serialize_entry(&column.name, number),
                Cell::Real(number) => object.serialize_entry(&column.name, number),
                Cell::Switch(on) => object.serialize_entry(&column.name, on),
            }?;
        }
        object.end()?;
        writeln!(self.out)
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_quoted_where_a_reader_would_take_it_apart() {
        for (text, written) in [
            ("plain", "plain"),
            ("a,b", "\"a,b\""),
            ("a\"b", "\"a\"\"b\""),
            ("a\nb", "\"a\nb\""),
            ("a\rb", "\"a\rb\""),
            (" a", "\" a\""),
            ("", "\"\""),
            ("=1+1", "=1+1"),
            ("@SUM(A1)", "@SUM(A1)"),
        ] {
            assert_eq!(quoted(text), written);
        }
    }
}
