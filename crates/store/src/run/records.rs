//! A run's records one after the other: a long run, or thousands of them, is never in memory as a whole.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use linerate_model::exit::Outcome;

use super::{LINE_BYTES_MAX, RECORDS, Record, no_run, open_records, parse_record};

/// A position in a run's records: how much precedes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    bytes: u64,
    lines: usize,
}

impl Place {
    pub(super) fn bytes(self) -> u64 {
        self.bytes
    }
}

/// The lines of a run's records, as they stand in the file.
#[derive(Debug)]
pub struct RunLines {
    folder: PathBuf,
    /// None where the run was cut off before its first record.
    file: Option<BufReader<File>>,
    line: Vec<u8>,
    /// Where what was not read yet begins. The number of the last line that was read, from 1, is its `lines`.
    place: Place,
    /// The longest line that is read.
    bytes_max: u64,
}

impl RunLines {
    /// Opens the records of a run.
    pub fn open(folder: &Path) -> Outcome<Self> {
        Self::open_at(folder, Place::default())
    }

    fn open_at(folder: &Path, place: Place) -> Outcome<Self> {
        let opened = open_records(folder).and_then(|mut file| {
            file.seek(SeekFrom::Start(place.bytes))?;
            Ok(file)
        });
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            opened => Some(opened.map_err(|error| no_run(folder, RECORDS, &error))?),
        };
        Ok(Self::of(folder, file, place))
    }

    /// The lines of a file from its current position, which is `place`.
    fn of(folder: &Path, file: Option<File>, place: Place) -> Self {
        Self {
            folder: folder.to_owned(),
            file: file.map(BufReader::new),
            line: Vec::new(),
            place,
            bytes_max: LINE_BYTES_MAX,
        }
    }

    /// The next line with its checksum and its end; none when there is no more.
    pub fn next_line(&mut self) -> Outcome<Option<&[u8]>> {
        let Some(file) = &mut self.file else {
            return Ok(None);
        };
        self.line.clear();
        let mut limited = file.take(self.bytes_max + 1);
        let read = limited.read_until(b'\n', &mut self.line);
        let read = read.map_err(|error| no_run(&self.folder, RECORDS, &error))? as u64;
        if read > self.bytes_max {
            let (line, most) = (self.place.lines + 1, self.bytes_max);
            let why = format!("line {line}: longer than {most} bytes");
            return Err(no_run(&self.folder, RECORDS, &why));
        }
        self.place.lines += usize::from(read > 0);
        self.place.bytes += read;
        Ok((read > 0).then_some(&self.line))
    }

    fn is_last(&mut self) -> bool {
        let rest = self.file.as_mut().map(BufRead::fill_buf);
        rest.is_none_or(|rest| rest.is_ok_and(<[u8]>::is_empty))
    }
}

/// The records of a run, each read when it is requested. A damaged line ends them.
#[derive(Debug)]
pub struct Records {
    lines: RunLines,
    /// Behind the last whole record.
    read: Place,
    torn: bool,
    over: bool,
}

impl Records {
    /// Opens the records of a run.
    pub fn open(folder: &Path) -> Outcome<Self> {
        Self::open_at(folder, Place::default())
    }

    /// Opens the records of a run to go on where others were read to.
    pub fn open_at(folder: &Path, place: Place) -> Outcome<Self> {
        Ok(Self::from(RunLines::open_at(folder, place)?))
    }

    /// The records of a file that was just opened.
    pub(super) fn of(folder: &Path, file: File) -> Self {
        Self::from(RunLines::of(folder, Some(file), Place::default()))
    }

    /// Where the last whole record that was read ends.
    pub fn place(&self) -> Place {
        self.read
    }

    /// Whether the last line was torn and left out; known when there is no more record.
    pub fn torn(&self) -> bool {
        self.torn
    }

    fn read(&mut self) -> Outcome<Option<Record>> {
        let Some(line) = self.lines.next_line()? else {
            return Ok(None);
        };
        // A line without its end is the last one, also where its writer ends it right now.
        let ended = line.ends_with(b"\n");
        match parse_record(line) {
            Ok(record) => {
                self.read = self.lines.place;
                Ok(Some(record))
            }
            Err(_) if !ended || self.lines.is_last() => {
                self.torn = true;
                Ok(None)
            }
            Err(why) => {
                let why = format!("line {}: {why}", self.lines.place.lines);
                Err(no_run(&self.lines.folder, RECORDS, &why))
            }
        }
    }
}

impl From<RunLines> for Records {
    fn from(lines: RunLines) -> Self {
        Self {
            read: lines.place,
            lines,
            torn: false,
            over: false,
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

#[cfg(test)]
mod tests {
    use std::fs;

    use linerate_analysis::made_up;

    use super::*;
    use crate::made_up::store;
    use crate::run::{parse_records, read};

    fn one_by_one(folder: &Path) -> Outcome<(Vec<Record>, bool)> {
        let mut records = Records::open(folder)?;
        let read: Outcome<Vec<Record>> = records.by_ref().collect();
        Ok((read?, records.torn()))
    }

    #[test]
    fn a_run_read_record_by_record_is_the_one_read_as_a_whole_wherever_it_is_cut() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("run");
        store(&folder, &made_up::header(1, 0), made_up::proof());
        let whole = fs::read(folder.join(RECORDS)).expect("the records");
        let ends = (0..whole.len()).filter(|at| whole[*at] == b'\n');
        let cuts = ends.flat_map(|end| [end / 2, end - 1, end, end + 1]);
        for cut in cuts.collect::<Vec<_>>() {
            fs::write(folder.join(RECORDS), &whole[..cut]).expect("the cut");
            let stored = parse_records(&whole[..cut]).expect("only the last line is torn");
            let found = one_by_one(&folder).expect("only the last line is torn");
            assert_eq!(found, stored, "cut at {cut}");
        }
        fs::remove_file(folder.join(RECORDS)).expect("the records");
        assert_eq!(one_by_one(&folder).expect("none"), (Vec::new(), false));
    }

    #[test]
    fn a_run_that_grows_is_read_on_from_where_it_ended_also_in_the_middle_of_a_line() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("run");
        store(&folder, &made_up::header(1, 0), made_up::proof());
        let whole = fs::read(folder.join(RECORDS)).expect("the records");
        let (mut at, mut found) = (Place::default(), Vec::new());
        for step in 0..=10 {
            fs::write(folder.join(RECORDS), &whole[..whole.len() * step / 10]).expect("a part");
            let mut records = Records::open_at(&folder, at).expect("a run");
            for record in records.by_ref() {
                found.push(record.expect("whole"));
            }
            at = records.place();
        }
        assert_eq!(found, made_up::proof());
        assert_eq!((at.bytes, at.lines), (whole.len() as u64, found.len()));
    }

    #[test]
    fn a_line_that_was_changed_is_named_also_when_the_records_are_read_one_by_one() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("run");
        store(&folder, &made_up::header(1, 0), made_up::proof());
        let text = fs::read_to_string(folder.join(RECORDS)).expect("the records");
        let changed = text.replace("tcp-buffer-below-bdp", "tcp-buffer-below-BDP");
        fs::write(folder.join(RECORDS), changed).expect("the change");
        let stop = one_by_one(&folder).expect_err("it was changed");
        assert_eq!(
            stop.message,
            read(&folder).expect_err("it was changed").message
        );
        assert!(stop.message.contains("line 3: checksum mismatch"), "{stop}");
    }

    #[test]
    fn a_line_longer_than_the_limit_is_named_and_not_read_on() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("run");
        store(&folder, &made_up::header(1, 0), made_up::proof());
        let whole = fs::read(folder.join(RECORDS)).expect("the records");
        let longest = whole
            .split_inclusive(|byte| *byte == b'\n')
            .map(<[u8]>::len);
        let longest = longest.max().expect("records") as u64;
        for (bytes_max, is_read) in [(longest, true), (longest - 1, false)] {
            let mut lines = RunLines::open(&folder).expect("a run");
            lines.bytes_max = bytes_max;
            let read: Outcome<Vec<Record>> = Records::from(lines).collect();
            assert_eq!(read.is_ok(), is_read);
            if let Err(stop) = read {
                assert!(stop.message.contains("longer than"), "{stop}");
            }
        }
    }
}
