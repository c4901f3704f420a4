//! The stored run: a folder that anyone can copy, analyze again and verify.
//!
//! ```text
//! RUN/run.json        who, when, with what: written first, never changed
//! RUN/records.jsonl   one record a line: checksum, blank, JSON; append-only, flushed to disk
//! RUN/report.html     the page, made from the two above
//! ```
//!
//! A record with a wrong checksum is ignored: a crash in the middle of a write leaves one,
//! and only the last line can be one. Format version 1.
//!
//! The writer of a run holds a lock on its records (flock(2)), which goes away with the process: so anyone can
//! distinguish a running run from one that was killed.

mod records;

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use linerate_analysis::record::{Header, Record, RunKind, SCHEMA, StoredRun};
use linerate_analysis::text::timestamp::utc;
use linerate_host::regular_file;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::sample::Sample;
use linerate_model::shell::quoted_path;

pub use self::records::{Place, Records, RunLines};

/// The file of a run's header, in its folder.
pub(crate) const HEADER: &str = "run.json";
/// The file of a run's records, in its folder.
const RECORDS: &str = "records.jsonl";
/// The longest header that is read.
const HEADER_BYTES_MAX: u64 = 1 << 20;
/// The longest record that is read or written. An earlier run that is a level of an experiment is one record, with all of
/// its trials.
const JSON_BYTES_MAX: u64 = 512 << 20;
/// The same as a line, with its checksum and its end.
const LINE_BYTES_MAX: u64 = JSON_BYTES_MAX + 10;

/// Where a session records what happens: in practice a [`Run`].
pub trait Log: fmt::Debug {
    /// Adds a record; once this returns `Ok` it is kept.
    fn add(&mut self, record: Record) -> Outcome<()>;

    /// What was recorded so far.
    fn records(&self) -> &[Record];
}

/// A run that is being written.
#[derive(Debug)]
pub struct Run {
    folder: PathBuf,
    file: File,
    /// How long the file is, all of it whole lines.
    bytes: u64,
    records: Vec<Record>,
}

impl Run {
    /// Makes the folder and writes the header; nothing is measured before this worked.
    pub fn create(folder: &Path, header: &Header) -> Outcome<Self> {
        let failed = |error| cannot_write(folder, error);
        // A run contains a host's addresses and settings: only its owner may share it.
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(failed)?;
        let place = folder.join(HEADER);
        if place.exists() {
            return Err(Stop::new(
                Code::BadInput,
                format!("{} already contains a run", folder.display()),
            )
            .hint("choose another directory with `--out`"));
        }
        let text = serde_json::to_vec_pretty(header)
            .map_err(|error| Stop::new(Code::Bug, "cannot write a run's header").because(error))?;
        write_whole(&place, &text).map_err(failed)?;
        let file = OpenOptions::new()
            .create_new(true)
            .append(true)
            .open(folder.join(RECORDS))
            .map_err(failed)?;
        hold(&file);
        Ok(Self {
            folder: folder.to_owned(),
            file,
            bytes: 0,
            records: Vec::new(),
        })
    }

    /// Opens a stored run to add to it. A run with a torn end is not added to.
    pub fn append_to(folder: &Path) -> Outcome<Self> {
        Self::open_again(folder, |records, _| {
            if !records.torn() {
                return Ok(());
            }
            let why = format!("{} was truncated while being written", folder.display());
            Err(Stop::new(Code::BadInput, why))
        })
    }

    /// Opens a stored run to go on with it: a record that was cut off is taken away first.
    pub fn resume(folder: &Path) -> Outcome<Self> {
        Self::open_again(folder, |records, file| {
            if !records.torn() {
                return Ok(());
            }
            file.set_len(records.place().bytes())
                .and_then(|()| file.sync_all())
                .map_err(|error| cannot_write(folder, error))
        })
    }

    /// Opens a stored run of one's own to write to it. It is held before it is read: what was read is then all there is.
    fn open_again(
        folder: &Path,
        mend: impl FnOnce(&Records, &File) -> Outcome<()>,
    ) -> Outcome<Self> {
        read_header(folder)?;
        let failed = |error| cannot_write(folder, error);
        let mut options = OpenOptions::new();
        options.read(true).append(true);
        let file = regular_file::open_to_write(&folder.join(RECORDS), &options).map_err(failed)?;
        regular_file::require_own(&file).map_err(|error| not_own(folder, RECORDS, &error))?;
        while let Err(TryLockError::WouldBlock) = file.try_lock() {
            if is_being_written(folder) {
                let why = format!(
                    "another linerate is writing the run in {}",
                    folder.display()
                );
                return Err(Stop::new(Code::Resource, why));
            }
            // Another process only asked whether it is written.
            std::thread::yield_now();
        }
        // Observers of the runs' modification times see that this one continues, before it reports it. If they miss it,
        // they see its first record.
        let _ = file.set_modified(SystemTime::now());
        let mut lines = Records::of(folder, file.try_clone().map_err(failed)?);
        let records = lines.by_ref().collect::<Outcome<_>>()?;
        mend(&lines, &file)?;
        let bytes = file.metadata().map_err(failed)?.len();
        Ok(Self {
            folder: folder.to_owned(),
            file,
            bytes,
            records,
        })
    }

    /// Adds records with one wait for the disk, without keeping them in memory.
    pub fn append(&mut self, records: &[Record]) -> Outcome<()> {
        let mut lines = String::new();
        for record in records {
            lines.push_str(&line_of(record)?);
        }
        self.write(&lines)
    }

    fn write(&mut self, lines: &str) -> Outcome<()> {
        let written = self
            .file
            .write_all(lines.as_bytes())
            .and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            // Half a line would make everything after it unreadable: the reason to stop comes next, and
            // where a sample found no space a sentence may.
            let _ = self.file.set_len(self.bytes);
            return Err(cannot_write(&self.folder, error));
        }
        self.bytes += lines.len() as u64;
        Ok(())
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Run {
    /// Closing the file would do, if no process that was started meanwhile held a copy of it until its exec(2).
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl Log for Run {
    /// Adds a record and waits until the disk has it.
    fn add(&mut self, record: Record) -> Outcome<()> {
        self.write(&line_of(&record)?)?;
        self.records.push(record);
        Ok(())
    }

    fn records(&self) -> &[Record] {
        &self.records
    }
}

/// Marks this process as the writer of a run, for everyone who calls [`is_being_written`]. Those hold it briefly;
/// on a file system without locks it cannot be determined.
fn hold(records: &File) {
    let _ = records.lock();
}

/// Whether some process writes a run now.
pub fn is_being_written(folder: &Path) -> bool {
    let Ok(records) = open_records(folder) else {
        return false;
    };
    matches!(records.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// Identifies the state of a run's records without reading them: it changes when the run was written, or when a
/// process began to write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trace {
    file: (u64, u64),
    bytes: u64,
    changed: (i64, i64),
}

impl Trace {
    /// None where there are no records.
    pub fn of(folder: &Path) -> Option<Self> {
        let found = fs::metadata(folder.join(RECORDS)).ok()?;
        Some(Self {
            file: (found.dev(), found.ino()),
            bytes: found.len(),
            changed: (found.mtime(), found.mtime_nsec()),
        })
    }
}

/// A new folder's name: when, what, and the seed, so that a list of runs sorts by time.
pub fn run_folder(state: &Path, what: &str, created_unix_s: u64, seed: u64) -> PathBuf {
    let stamp = utc(created_unix_s).replace([' ', ':'], "-");
    state
        .join("runs")
        .join(format!("{}-{what}-{seed}", stamp.trim_end_matches("-UTC")))
}

fn open_records(folder: &Path) -> io::Result<File> {
    regular_file::open(&folder.join(RECORDS))
}

/// A record as its line in the file.
pub fn line_of(record: &Record) -> Outcome<String> {
    let json = serde_json::to_string(record)
        .map_err(|error| Stop::new(Code::Bug, "cannot write a record").because(error))?;
    if json.len() as u64 > JSON_BYTES_MAX {
        let why = format!(
            "cannot write a record of {} bytes: it exceeds the read limit",
            json.len()
        );
        return Err(Stop::new(Code::Resource, why));
    }
    Ok(with_checksum(&json))
}

/// The line of a record that is written as `json`.
pub fn with_checksum(json: &str) -> String {
    format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes()))
}

/// Reads a run's header.
pub fn read_header(folder: &Path) -> Outcome<Header> {
    let file = regular_file::open(&folder.join(HEADER));
    header_of(
        folder,
        file.map_err(|error| no_run(folder, HEADER, &error))?,
    )
}

/// Which command made a run: by the name of its folder, or else by its records. Hosts, and what was tried to name a limit, stand
/// first in runs of several commands.
pub fn kind_of(folder: &Path) -> Outcome<RunKind> {
    let header = read_header(folder)?;
    let by_name = RunKind::of_folder(folder, &header);
    if by_name != RunKind::Prove {
        return Ok(by_name);
    }
    for record in Records::open(folder)? {
        let record = record?;
        if !matches!(record, Record::Hosts { .. } | Record::Interventions { .. }) {
            return Ok(by_name.and(&record));
        }
    }
    Ok(by_name)
}

fn header_of(folder: &Path, file: File) -> Outcome<Header> {
    let text = regular_file::text_from(file, HEADER_BYTES_MAX)
        .map_err(|error| no_run(folder, HEADER, &error))?;
    let header: Header =
        serde_json::from_str(&text).map_err(|error| no_run(folder, HEADER, &error))?;
    if header.schema != SCHEMA {
        return Err(Stop::new(
            Code::BadInput,
            format!(
                "{} has run format `{}`; this linerate reads `{SCHEMA}`",
                folder.display(),
                header.schema
            ),
        ));
    }
    Ok(header)
}

fn no_run(folder: &Path, what: &str, error: &dyn fmt::Display) -> Stop {
    let why = format!("{} is not a run: {what}: {error}", folder.display());
    Stop::new(Code::BadInput, why)
}

/// Reads a run back.
pub fn read(folder: &Path) -> Outcome<StoredRun> {
    read_keeping(folder, |_| {})
}

/// Reads a run in order to act on it: which settings to change, and which peers to reach. This trusts only the
/// effective user's own files, checked on the open descriptors, and no copies that belong to others.
pub fn read_own(folder: &Path) -> Outcome<StoredRun> {
    let open = |name: &str| regular_file::open_own(&folder.join(name));
    let header = open(HEADER).map_err(|error| not_own(folder, HEADER, &error))?;
    let header = header_of(folder, header)?;
    let mut lines = match open(RECORDS) {
        // The header is written first: a run may have been cut off between the two.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Records::open(folder)?,
        opened => Records::of(
            folder,
            opened.map_err(|error| not_own(folder, RECORDS, &error))?,
        ),
    };
    Ok(StoredRun {
        folder: folder.to_owned(),
        header,
        records: lines.by_ref().collect::<Outcome<_>>()?,
        torn: lines.torn(),
    })
}

/// The stop for a run whose files cannot be used.
fn not_own(folder: &Path, name: &str, error: &io::Error) -> Stop {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return no_run(folder, name, error);
    }
    let why = format!(
        "cannot resume {}: {name}: {error}; a run names the settings to change and the peers to \
         connect to",
        folder.display()
    );
    Stop::new(Code::BadInput, why).hint(format!(
        "review it; if you trust it, `cp -r {} COPY` and resume the copy",
        quoted_path(folder)
    ))
}

/// Reads a run back, of each record what `keep` leaves of it: thousands of trials have hundreds of megabytes.
pub fn read_keeping(folder: &Path, mut keep: impl FnMut(&mut Record)) -> Outcome<StoredRun> {
    let header = read_header(folder)?;
    let mut lines = Records::open(folder)?;
    let mut records = Vec::new();
    for record in &mut lines {
        let mut record = record?;
        keep(&mut record);
        records.push(record);
    }
    Ok(StoredRun {
        folder: folder.to_owned(),
        header,
        records,
        torn: lines.torn(),
    })
}

/// The records of a whole file, and whether its last line is torn.
#[cfg(any(test, feature = "fuzz"))]
pub fn parse_records(bytes: &[u8]) -> Result<(Vec<Record>, bool), String> {
    let mut records = Vec::new();
    let mut lines = bytes
        .split_inclusive(|&byte| byte == b'\n')
        .enumerate()
        .peekable();
    while let Some((number, line)) = lines.next() {
        match parse_record(line) {
            Ok(record) => records.push(record),
            Err(_) if lines.peek().is_none() => return Ok((records, true)),
            Err(why) => return Err(format!("line {}: {why}", number + 1)),
        }
    }
    Ok((records, false))
}

fn parse_record(line: &[u8]) -> Result<Record, String> {
    let text = std::str::from_utf8(line).map_err(|_| "not UTF-8")?;
    let text = text.strip_suffix('\n').ok_or("no newline at the end")?;
    let (sum, json) = text.split_once(' ').ok_or("no checksum")?;
    let sum = u32::from_str_radix(sum, 16).map_err(|_| "no checksum")?;
    if sum != crc32fast::hash(json.as_bytes()) {
        return Err("checksum mismatch".to_owned());
    }
    let record = serde_json::from_str(json).map_err(|error| error.to_string())?;
    check_trial(&record)?;
    Ok(record)
}

/// A run may come from anyone: a trial larger than linerate makes is not analyzed.
fn check_trial(record: &Record) -> Result<(), String> {
    let samples = match record {
        Record::Before(sample)
        | Record::Between(sample)
        | Record::After(sample)
        | Record::Pilot(sample)
        | Record::Explored {
            sample: Some(sample),
            ..
        }
        | Record::Staged { sample, .. } => std::slice::from_ref(&**sample),
        Record::Cell { samples, .. } => samples,
        Record::Earlier(earlier) => {
            let mut trials = earlier.trials.iter();
            return trials.try_for_each(|trial| check_sample(&trial.sample));
        }
        Record::MeshFlow(flow) => {
            return flow
                .sample
                .iter()
                .try_for_each(|sample| check_sample(sample));
        }
        Record::QosTrial(trial) => {
            let mut samples = trial.samples.iter();
            return samples.try_for_each(|(_, sample)| check_sample(sample));
        }
        Record::Failover(plan) => return plan.spec.check().map_err(|error| error.to_string()),
        Record::FailoverTrial(trial) => return check_sample(&trial.sample),
        Record::Measured(measured) => {
            if !measured.figures.are_valid() {
                return Err("a figure of a trial is not a positive number".to_owned());
            }
            measured.sample.as_slice()
        }
        Record::Lab { experiment, .. } => {
            return experiment.check().map_err(|error| error.to_string());
        }
        _ => return Ok(()),
    };
    samples.iter().try_for_each(check_sample)
}

fn check_sample(sample: &Sample) -> Result<(), String> {
    let Sample {
        spec,
        local,
        remote,
        ..
    } = sample;
    spec.check().map_err(|error| error.to_string())?;
    let sides = local.check(spec).and_then(|()| remote.check(spec));
    sides.map_err(|error| error.to_string())
}

/// Writes a file so that it is there whole or not at all. No link is followed.
pub fn write_whole(place: &Path, bytes: &[u8]) -> io::Result<()> {
    regular_file::replace(place, 0o666, bytes)
}

/// Writes the page of a run. In the run's own folder, which may come from anybody, it replaces whatever is there;
/// elsewhere the user named the place.
pub fn write_page(folder: &Path, page: &Path, text: &str) -> Outcome<()> {
    let written = if page.parent() == Some(folder) {
        write_whole(page, text.as_bytes())
    } else {
        regular_file::write_named(page, 0o666, |file| file.write_all(text.as_bytes()))
    };
    written.map_err(|error| cannot_write(folder, error))
}

/// The stop for a run that cannot be written.
pub fn cannot_write(folder: &Path, error: io::Error) -> Stop {
    let full = matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    );
    let stop = Stop::io(format!("write the run in {}", folder.display()), error);
    if full {
        stop.hint(
            "earlier records are kept; free some space, or use another directory with `--out`",
        )
    } else {
        stop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            schema: SCHEMA.to_owned(),
            version: "0.0.0".to_owned(),
            created_unix_s: 0,
            command: vec!["linerate".to_owned()],
            seed: 7,
            trials: 3,
            peer: "netns:far".to_owned(),
            local_nic: "near0".parse().expect("a name"),
            remote_nic: "far0".parse().expect("a name"),
            address: "10.77.0.2".to_owned(),
            copy_bit_per_s: None,
        }
    }

    fn records() -> Vec<Record> {
        vec![
            Record::Diagnosis(Box::default()),
            Record::Decided {
                remedy: 0,
                kept: true,
                note: None,
            },
            Record::Ended {
                restored: true,
                kept: false,
            },
        ]
    }

    #[test]
    fn a_run_reads_back_as_it_was_written() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("run");
        let mut run = Run::create(&folder, &header()).expect("a new run");
        for record in records() {
            run.add(record).expect("a record");
        }
        let stored = read(&folder).expect("the run");
        assert_eq!(
            (stored.header, stored.records, stored.torn),
            (header(), records(), false)
        );
    }

    #[test]
    fn a_run_cut_off_at_any_byte_keeps_every_record_before_the_cut() {
        let place = tempfile::tempdir().expect("a folder");
        let mut run = Run::create(place.path(), &header()).expect("a new run");
        for record in records() {
            run.add(record).expect("a record");
        }
        let whole = fs::read(place.path().join("records.jsonl")).expect("the records");
        for end in 0..whole.len() {
            let (kept, torn) = parse_records(&whole[..end]).expect("only the last line is torn");
            let complete = whole[..end].split(|&byte| byte == b'\n').count() - 1;
            assert_eq!(kept, records()[..complete], "cut at {end}");
            assert_eq!(torn, end > 0 && whole[end - 1] != b'\n', "cut at {end}");
        }
    }

    #[test]
    fn a_record_that_was_changed_is_named() {
        let place = tempfile::tempdir().expect("a folder");
        let mut run = Run::create(place.path(), &header()).expect("a new run");
        for record in records() {
            run.add(record).expect("a record");
        }
        let file = place.path().join("records.jsonl");
        let text = fs::read_to_string(&file)
            .expect("the records")
            .replace("true,\"note", "false,\"note");
        fs::write(&file, text).expect("the change");
        let stop = read(place.path()).expect_err("it was changed");
        assert!(stop.message.contains("line 2: checksum mismatch"), "{stop}");
    }

    #[test]
    fn a_run_is_known_to_go_on_as_long_as_somebody_writes_it_and_nobody_else_may() {
        let place = tempfile::tempdir().expect("a folder");
        let run = Run::create(place.path(), &header()).expect("a new run");
        assert!(is_being_written(place.path()));
        for again in [Run::append_to(place.path()), Run::resume(place.path())] {
            assert_eq!(again.expect_err("it goes on").code, Code::Resource);
        }
        drop(run);
        assert!(!is_being_written(place.path()));
        let again = Run::resume(place.path()).expect("nobody writes it");
        assert!(is_being_written(place.path()));
        drop(again);
        assert!(!is_being_written(&place.path().join("none")));
    }

    #[test]
    fn a_run_is_not_readable_by_other_users() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("runs/one");
        Run::create(&folder, &header()).expect("a new run");
        let mode = fs::metadata(&folder)
            .expect("the folder")
            .permissions()
            .mode();
        assert_eq!(mode & 0o077, 0, "{mode:o}");
    }

    #[test]
    fn a_run_is_never_written_over() {
        let place = tempfile::tempdir().expect("a folder");
        Run::create(place.path(), &header()).expect("a new run");
        assert_eq!(
            Run::create(place.path(), &header())
                .expect_err("there")
                .code,
            Code::BadInput
        );
    }
}
