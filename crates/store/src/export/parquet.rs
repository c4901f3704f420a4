//! The table as Parquet (<https://parquet.apache.org/docs/file-format/>): every column may be null, text is UTF-8, whole
//! numbers are unsigned of 64 bits, pages are packed with Snappy.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

use super::columns::{Cell, Column, Kind};
use super::lines::Table;

/// The number of rows that are kept in memory before they are written: some megabytes.
const ROWS_OF_GROUP: usize = 8_192;

/// A table that is being written.
pub(super) struct Parquet<'c, W: Write + Send> {
    writer: SerializedFileWriter<W>,
    columns: &'c [Column],
    rows: Vec<Vec<Cell>>,
}

impl<'c, W: Write + Send> Parquet<'c, W> {
    /// Begins a table.
    pub(super) fn new(out: W, columns: &'c [Column]) -> io::Result<Self> {
        let fields: Result<Vec<TypePtr>, ParquetError> = columns.iter().map(field).collect();
        let schema = Type::group_type_builder("linerate")
            .with_fields(fields.map_err(failed)?)
            .build();
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(concat!("linerate version ", env!("CARGO_PKG_VERSION")).to_owned());
        let schema = Arc::new(schema.map_err(failed)?);
        let writer = SerializedFileWriter::new(out, schema, Arc::new(properties.build()));
        Ok(Self {
            writer: writer.map_err(failed)?,
            columns,
            rows: Vec::new(),
        })
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        for (place, column) in self.columns.iter().enumerate() {
            let cells = self.rows.iter().map(|row| row.get(place));
            match column.kind {
                Kind::Text => write::<ByteArrayType, W>(&mut group, cells, |cell| match cell {
                    Cell::Text(text) => Some(ByteArray::from(text.as_str())),
                    _ => None,
                }),
                // The bits of the unsigned number, as the format has it.
                Kind::Whole => write::<Int64Type, W>(&mut group, cells, |cell| match cell {
                    Cell::Whole(number) => Some(number.cast_signed()),
                    _ => None,
                }),
                Kind::Real => write::<DoubleType, W>(&mut group, cells, |cell| match cell {
                    Cell::Real(number) => Some(*number),
                    _ => None,
                }),
                Kind::Switch => write::<BoolType, W>(&mut group, cells, |cell| match cell {
                    Cell::Switch(on) => Some(*on),
                    _ => None,
                }),
            }?;
        }
        group.close()?;
        self.rows.clear();
        Ok(())
    }
}

fn field(column: &Column) -> Result<TypePtr, ParquetError> {
    let (physical, logical) = match column.kind {
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Whole => (Physical::INT64, Some(LogicalType::integer(64, false))),
        Kind::Real => (Physical::DOUBLE, None),
        Kind::Switch => (Physical::BOOLEAN, None),
    };
    let field = Type::primitive_type_builder(&column.name, physical);
    let field = field.with_repetition(Repetition::OPTIONAL);
    Ok(Arc::new(field.with_logical_type(logical).build()?))
}

/// Writes a column of a group: what `pick` takes from its cells, null where it takes nothing.
fn write<'r, T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    cells: impl Iterator<Item = Option<&'r Cell>>,
    pick: impl Fn(&Cell) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let cells: Vec<Option<T::T>> = cells.map(|cell| pick(cell?)).collect();
    // The level of a column without nesting: 1 where there is a value.
    let levels: Vec<i16> = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
    let values: Vec<T::T> = cells.into_iter().flatten().collect();
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("a column too many".to_owned()));
    };
    column
        .typed::<T>()
        .write_batch(&values, Some(&levels), None)?;
    column.close()
}

impl<W: Write + Send> Table for Parquet<'_, W> {
    fn row(&mut self, cells: Vec<Cell>) -> io::Result<()> {
        self.rows.push(cells);
        if self.rows.len() < ROWS_OF_GROUP {
            return Ok(());
        }
        self.write_group().map_err(failed)
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.write_group().map_err(failed)?;
        self.writer.close().map(drop).map_err(failed)
    }
}

fn failed(error: ParquetError) -> io::Error {
    match error {
        // The error of the disk is what the user must see: `no space`, for example.
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}
