//! The list of all stored runs, cached in SQLite (`STATE/runs/index.sqlite`) so that thousands of runs need not be read
//! again for each query. Everything in it comes from the runs, and it may be deleted at any time.
//!
//! A lock next to it is held while it is open. Only then may a damaged one be deleted: a database that is deleted while
//! another process writes to it may corrupt the new one (<https://www.sqlite.org/howtocorrupt.html>, 1.2).

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use linerate_analysis::record::RunKind;
use linerate_analysis::run_list::{Counts, EndOfRun, Hosts, Listed, State, Unreadable};
use linerate_analysis::text::timestamp::rfc3339;
use linerate_host::private_folder::PrivateFolder;
use linerate_model::exit::{Code, Outcome, Stop};
use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, named_params, params_from_iter};
use rustix::fs::OFlags;

use super::Filter;
use super::summary::{Summary, summary_of};

/// What all of the index's files begin with.
const NAME: &str = "index.sqlite";
/// The version of the table; one of another version is rebuilt.
pub(super) const VERSION: i64 = 4;
/// So many runs are read before what was found is kept.
const BATCH: usize = 64;

/// Times and sizes of a run's two files: another run, or more of it, has others. `why` is set where it cannot be read.
/// What SQLite has no type for is text: the seed, a whole number of 64 bits without a sign; lists and counts are JSON.
const TABLE: &str = "
CREATE TABLE runs (
    run TEXT PRIMARY KEY,
    stamp TEXT NOT NULL,
    why TEXT,
    kind TEXT,
    title TEXT,
    headline TEXT,
    created TEXT,
    created_unix_s INTEGER,
    linerate_version TEXT,
    seed TEXT,
    peer TEXT,
    address TEXT,
    local_nic TEXT,
    remote_nic TEXT,
    local_host TEXT,
    remote_host TEXT,
    local_kernel TEXT,
    remote_kernel TEXT,
    others TEXT,
    trials INTEGER,
    workloads TEXT,
    flags TEXT,
    state TEXT,
    stopped TEXT,
    torn INTEGER
) STRICT";

/// An open index, which is locked meanwhile.
#[derive(Debug)]
pub(super) struct Index {
    base: Connection,
    /// The folder of the runs.
    folder: PathBuf,
    /// None where nothing can be written there.
    lock: Option<File>,
}

/// Whether a path is one of the index's files.
pub fn is_index(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str);
    name.is_some_and(|name| name.starts_with(NAME)) && !path.is_dir()
}

impl Index {
    /// Opens the index of the runs in `folder`, which exists; a damaged one, or with `anew` any, is rebuilt. In a folder
    /// that others may write to there is none.
    pub(super) fn open(folder: &Path, anew: bool, note: &dyn Fn(&str)) -> Outcome<Self> {
        let place = folder.join(NAME);
        let held = match locked(folder) {
            Ok(held) => held,
            Err(error) if read_only(&error) => {
                note("cannot store the index here: reading every run");
                return Self::in_memory(folder);
            }
            Err(error) => return Err(cannot(&place, error)),
        };
        let opened = if anew { Ok(None) } else { usable(&place) };
        let base = match opened {
            Ok(Some(base)) => base,
            Ok(None) => fresh(&place)?,
            Err(error) if is_damage(&error) => {
                note("the index of runs was corrupt: rebuilding it");
                fresh(&place)?
            }
            Err(error) => return Err(cannot(&place, error)),
        };
        Ok(Self {
            base,
            folder: folder.to_owned(),
            lock: Some(held),
        })
    }

    fn in_memory(folder: &Path) -> Outcome<Self> {
        let base = Connection::open_in_memory().and_then(|base| {
            make(&base)?;
            Ok(base)
        });
        Ok(Self {
            base: base.map_err(|error| cannot(folder, error))?,
            folder: folder.to_owned(),
            lock: None,
        })
    }

    /// Reads what is new or has changed, and forgets what is gone. Damage that is detected only now rebuilds the index.
    pub(super) fn refresh(mut self, note: &dyn Fn(&str)) -> Outcome<Self> {
        let found = self.found()?;
        match self.bring_up_to_date(&found, note) {
            Err(error) if is_damage(&error) && self.lock.is_some() => {
                note("the index of runs was corrupt: rebuilding it");
                let place = self.folder.join(NAME);
                self.base = fresh(&place)?;
                let done = self.bring_up_to_date(&found, note);
                done.map_err(|error| cannot(&place, error))?;
            }
            done => done.map_err(|error| cannot(&self.folder.join(NAME), error))?,
        }
        Ok(self)
    }

    /// The folders that hold a run, by name, each with the sizes and times of its files.
    fn found(&self) -> Outcome<Vec<(String, String)>> {
        let failed = |error| Stop::io(format!("list {}", self.folder.display()), error);
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // A folder that is going away while it is inspected is no run.
            if let (Some(name), Some(stamp)) = (entry.file_name().to_str(), stamp(&entry.path())) {
                found.push((name.to_owned(), stamp));
            }
        }
        found.sort();
        Ok(found)
    }

    fn bring_up_to_date(
        &mut self,
        found: &[(String, String)],
        note: &dyn Fn(&str),
    ) -> rusqlite::Result<()> {
        let known: Vec<(String, String)> = {
            let mut query = self
                .base
                .prepare("SELECT run, stamp FROM runs ORDER BY run")?;
            let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<rusqlite::Result<_>>()?
        };
        let is_new = |one: &&(String, String)| known.binary_search(one).is_err();
        let new: Vec<&(String, String)> = found.iter().filter(is_new).collect();
        let is_gone = |name: &str| {
            let place = found.binary_search_by(|(one, _)| one.as_str().cmp(name));
            place.is_err()
        };
        let change = self.base.transaction()?;
        for (name, _) in known.iter().filter(|(name, _)| is_gone(name)) {
            change.execute("DELETE FROM runs WHERE run = ?1", [name])?;
        }
        change.commit()?;
        if new.len() > BATCH {
            note(&format!("reading {} runs, once", new.len()));
        }
        // Ctrl-C in between loses no more than a batch.
        for batch in new.chunks(BATCH) {
            let change = self.base.transaction()?;
            for (name, stamp) in batch {
                put(&change, name, stamp, summary_of(&self.folder.join(name)))?;
            }
            change.commit()?;
        }
        Ok(())
    }

    /// The runs that pass a filter, the newest first.
    pub(super) fn list(&self, filter: &Filter) -> Outcome<Vec<Listed>> {
        let (wanted, values) = conditions(filter);
        let read = || {
            let query = format!(
                "SELECT * FROM runs WHERE why IS NULL{wanted} ORDER BY created_unix_s DESC, run DESC"
            );
            let mut query = self.base.prepare(&query)?;
            let rows = query.query_map(params_from_iter(values), listed)?;
            rows.collect::<rusqlite::Result<Vec<Listed>>>()
        };
        read().map_err(|error| cannot(&self.folder.join(NAME), error))
    }

    /// The runs that cannot be read.
    pub(super) fn unreadable(&self) -> Outcome<Vec<Unreadable>> {
        let read = || {
            let query = "SELECT run, why FROM runs WHERE why IS NOT NULL ORDER BY run";
            let mut query = self.base.prepare(query)?;
            let rows = query.query_map([], |row| {
                Ok(Unreadable {
                    run: row.get(0)?,
                    why: row.get(1)?,
                })
            })?;
            rows.collect::<rusqlite::Result<Vec<Unreadable>>>()
        };
        read().map_err(|error| cannot(&self.folder.join(NAME), error))
    }
}

/// Waits for the lock, which goes away with its holder. A folder that others may write to is refused: a database of theirs
/// could lead SQLite to other files, as a journal names a super-journal, which is deleted
/// (<https://www.sqlite.org/fileformat.html#the_rollback_journal>).
fn locked(folder: &Path) -> io::Result<File> {
    let folder = PrivateFolder::open(folder)?;
    let file = folder.open_file(format!("{NAME}.lock"), OFlags::RDWR | OFlags::CREATE)?;
    file.lock()?;
    Ok(file)
}

fn read_only(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
    )
}

/// Opens an index that is whole and of this form; none where there is none.
fn usable(place: &Path) -> rusqlite::Result<Option<Connection>> {
    if !place.exists() {
        return Ok(None);
    }
    let base = Connection::open(place)?;
    let version: i64 = base.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if version != VERSION {
        return Ok(None);
    }
    let table: Option<String> = base
        .query_row(
            "SELECT sql FROM sqlite_schema WHERE name = 'runs'",
            [],
            |row| row.get(0),
        )
        .optional()?;
    let whole: String = base.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    Ok((whole == "ok" && table.as_deref() == Some(TABLE.trim())).then_some(base))
}

/// Rebuilds the index; the lock is held.
fn fresh(place: &Path) -> Outcome<Connection> {
    for ending in ["", "-journal", "-wal", "-shm"] {
        let mut file = place.as_os_str().to_owned();
        file.push(ending);
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(cannot(place, error));
            }
            _ => {}
        }
    }
    // SQLite makes a file that others may read.
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(0o600);
    options.open(place).map_err(|error| cannot(place, error))?;
    let made = Connection::open(place).and_then(|base| {
        make(&base)?;
        Ok(base)
    });
    made.map_err(|error| cannot(place, error))
}

fn make(base: &Connection) -> rusqlite::Result<()> {
    base.execute_batch(&format!(
        "BEGIN; PRAGMA user_version = {VERSION}; {TABLE}; COMMIT"
    ))
}

fn is_damage(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::SqliteFailure(failure, _) => matches!(
            failure.code,
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase
        ),
        // A value that no linerate has written.
        rusqlite::Error::InvalidColumnType(..) | rusqlite::Error::FromSqlConversionFailure(..) => {
            true
        }
        _ => false,
    }
}

fn cannot(place: &Path, error: impl std::error::Error + Send + Sync + 'static) -> Stop {
    let why = format!("cannot store the index of runs in {}", place.display());
    Stop::new(Code::Resource, why).because(error)
}

/// The sizes and times of a run's files; none where there is no run.
fn stamp(folder: &Path) -> Option<String> {
    let of = |name: &str| {
        let found = fs::metadata(folder.join(name)).ok()?;
        let (second, part) = (found.mtime(), found.mtime_nsec());
        Some(format!("{} {second}.{part:09}", found.len()))
    };
    let header = of("run.json")?;
    let records = of("records.jsonl").unwrap_or_else(|| "-".to_owned());
    Some(format!("{header}, {records}"))
}

fn put(
    base: &Connection,
    name: &str,
    stamp: &str,
    summary: Outcome<Summary>,
) -> rusqlite::Result<()> {
    base.execute("DELETE FROM runs WHERE run = ?1", [name])?;
    let summary = match summary {
        Ok(summary) => summary,
        Err(stop) => {
            let row = [name, stamp, &stop.message];
            base.execute(
                "INSERT INTO runs (run, stamp, why) VALUES (?1, ?2, ?3)",
                row,
            )?;
            return Ok(());
        }
    };
    let header = &summary.header;
    let json = |counts: &Counts| serde_json::to_string(counts).unwrap_or_default();
    let others = serde_json::to_string(&summary.others).unwrap_or_default();
    base.execute(
        "INSERT INTO runs VALUES (:run, :stamp, NULL, :kind, :title, :headline, :created,
            :created_unix_s, :linerate_version, :seed, :peer, :address, :local_nic, :remote_nic, :local_host,
            :remote_host, :local_kernel, :remote_kernel, :others, :trials, :workloads, :flags, :state,
            :stopped, :torn)",
        named_params! {
            ":run": name,
            ":stamp": stamp,
            ":kind": summary.kind.word(),
            ":title": summary.title,
            ":headline": summary.headline(),
            ":created": rfc3339(header.created_unix_s),
            ":created_unix_s": signed(header.created_unix_s),
            ":linerate_version": header.version,
            ":seed": header.seed.to_string(),
            ":peer": header.peer,
            ":address": header.address,
            ":local_nic": header.local_nic.as_str(),
            ":remote_nic": header.remote_nic.as_str(),
            ":local_host": summary.local.name,
            ":remote_host": summary.remote.name,
            ":local_kernel": summary.local.kernel,
            ":remote_kernel": summary.remote.kernel,
            ":others": others,
            ":trials": signed(summary.trials),
            ":workloads": json(&summary.workloads),
            ":flags": json(&summary.flags),
            ":state": summary.state.word(),
            ":stopped": summary.stopped,
            ":torn": summary.torn,
        },
    )?;
    Ok(())
}

/// SQLite has no larger numbers; a run may claim any time.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// The conditions of a filter, and the values of their question marks.
fn conditions(filter: &Filter) -> (String, Vec<Value>) {
    let mut all = String::new();
    let mut values = Vec::new();
    let mut add = |condition: &str, value: Option<Value>| {
        if let Some(value) = value {
            values.push(value);
            let mark = format!("?{}", values.len());
            all.push_str(" AND ");
            all.push_str(&condition.replace('?', &mark));
        }
    };
    let text = |text: Option<&str>| text.map(|text| Value::Text(text.to_owned()));
    // Of the two ends, or of another host that is a level.
    add(
        "(? IN (local_host, remote_host)
            OR ? IN (SELECT value ->> 'hostname' FROM json_each(others)))",
        text(filter.host.as_deref()),
    );
    add(
        "(? IN (local_nic, remote_nic)
            OR ? IN (SELECT value ->> 'local_nic' FROM json_each(others))
            OR ? IN (SELECT value ->> 'remote_nic' FROM json_each(others)))",
        text(filter.nic.as_deref()),
    );
    add(
        "(? = peer OR ? IN (SELECT value ->> 'peer' FROM json_each(others)))",
        text(filter.peer.as_deref()),
    );
    add("kind = ?", text(filter.kind.map(RunKind::word)));
    add(
        "created_unix_s >= ?",
        filter.since.map(|since| Value::Integer(signed(since))),
    );
    add(
        "? IN (SELECT key FROM json_each(workloads))",
        text(filter.workload.as_deref()),
    );
    add(
        "? IN (SELECT key FROM json_each(flags))",
        text(filter.flag.as_deref()),
    );
    (all, values)
}

fn listed(row: &Row<'_>) -> rusqlite::Result<Listed> {
    let counts = |name: &str| -> rusqlite::Result<Counts> {
        let text: String = row.get(name)?;
        Ok(serde_json::from_str(&text).unwrap_or_default())
    };
    let state: String = row.get("state")?;
    Ok(Listed {
        run: row.get("run")?,
        kind: row.get("kind")?,
        title: row.get("title")?,
        headline: row.get("headline")?,
        created: row.get("created")?,
        created_unix_s: unsigned(row.get("created_unix_s")?),
        linerate_version: row.get("linerate_version")?,
        seed: row.get::<_, String>("seed")?.parse().unwrap_or_default(),
        peer: row.get("peer")?,
        address: row.get("address")?,
        local_nic: row.get("local_nic")?,
        remote_nic: row.get("remote_nic")?,
        hosts: Hosts {
            local: EndOfRun {
                hostname: row.get("local_host")?,
                kernel_release: row.get("local_kernel")?,
            },
            remote: EndOfRun {
                hostname: row.get("remote_host")?,
                kernel_release: row.get("remote_kernel")?,
            },
        },
        others: {
            let text: String = row.get("others")?;
            serde_json::from_str(&text).unwrap_or_default()
        },
        trials: unsigned(row.get("trials")?),
        workloads: counts("workloads")?,
        flags: counts("flags")?,
        state: match state.as_str() {
            "ended" => State::Ended,
            "stopped" => State::Stopped,
            _ => State::Open,
        },
        stopped: row.get("stopped")?,
        torn: row.get("torn")?,
    })
}
