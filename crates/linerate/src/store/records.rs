//! A run's records one after the other: a long run, or thousands of them, never stands in memory as a whole.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::{RECORDS, Record, no_run, parse_record};
use crate::exit::Outcome;

/// The lines of a run's records, as they stand in the file.
#[derive(Debug)]
pub struct RunLines {
    folder: PathBuf,
    /// None where the run was cut off before its first record.
    file: Option<BufReader<File>>,
    line: Vec<u8>,
    /// The number of the line that was read last, from 1.
    number: usize,
}

impl RunLines {
    /// Opens the records of a run.
    pub fn open(folder: &Path) -> Outcome<Self> {
        let file = match File::open(folder.join(RECORDS)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            opened => Some(opened.map_err(|error| no_run(folder, RECORDS, &error))?),
        };
        Ok(Self {
            folder: folder.to_owned(),
            file: file.map(BufReader::new),
            line: Vec::new(),
            number: 0,
        })
    }

    /// The next line with its checksum and its end; none when there is no more.
    pub fn next_line(&mut self) -> Outcome<Option<&[u8]>> {
        let Some(file) = &mut self.file else {
            return Ok(None);
        };
        self.line.clear();
        let read = file.read_until(b'\n', &mut self.line);
        let read = read.map_err(|error| no_run(&self.folder, RECORDS, &error))?;
        self.number += 1;
        Ok((read > 0).then_some(&self.line))
    }

    fn is_last(&mut self) -> bool {
        let rest = self.file.as_mut().map(BufRead::fill_buf);
        rest.is_none_or(|rest| rest.is_ok_and(<[u8]>::is_empty))
    }
}

/// The records of a run, each read when it is asked for. A damaged line ends them.
#[derive(Debug)]
pub struct Records {
    lines: RunLines,
    torn: bool,
    over: bool,
}

impl Records {
    /// Opens the records of a run.
    pub fn open(folder: &Path) -> Outcome<Self> {
        Ok(Self {
            lines: RunLines::open(folder)?,
            torn: false,
            over: false,
        })
    }

    /// Whether the last line was torn and left out; known when there is no more record.
    pub fn torn(&self) -> bool {
        self.torn
    }

    fn read(&mut self) -> Outcome<Option<Record>> {
        let Some(line) = self.lines.next_line()? else {
            return Ok(None);
        };
        match parse_record(line) {
            Ok(record) => Ok(Some(record)),
            Err(_) if self.lines.is_last() => {
                self.torn = true;
                Ok(None)
            }
            Err(why) => {
                let why = format!("line {}: {why}", self.lines.number);
                Err(no_run(&self.lines.folder, RECORDS, &why))
            }
        }
    }
}

impl Iterator for Records {
    type Item = Outcome<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let read = self.read().transpose();
        self.over = !matches!(read, Some(Ok(_)));
        read
    }
}
