//! The captured shapes: the project's own captures, the machines of a corpus, and what is made of them
//! by edits; and a captured shape as a host that can be checked.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use linerate_host::capture::{Archive, CaptureOptions, Captured, capture};
use linerate_host::read::read_host;
use linerate_host::watch::read_counters;
use linerate_model::host::Host;
use linerate_model::ids::NicName;
use linerate_model::known::Known;
use linerate_model::watch::Watch;
use serde_json::Value;

use crate::Trouble;
use crate::data::{Edits, Plants, fixtures};
use crate::fields;

/// Names a folder with `hosts/*.tar.bz2`: trees of `/proc` and `/sys` of real machines.
const CORPUS: &str = "LINERATE_CORPUS";

/// A captured host.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) archive: Archive,
    /// Whether it is a capture of a healthy real machine, so that any warning is wrong.
    pub(crate) is_real: bool,
    /// Whether it came with the faults that were written without knowledge of the rules.
    pub(crate) is_fresh: bool,
}

/// A host with what its counters did, when they were watched.
#[derive(Debug)]
pub(crate) struct WatchedHost {
    pub(crate) host: Host,
    pub(crate) watch: Option<Watch>,
}

/// Every captured shape by its name. Reports which part is omitted if there is no corpus.
pub(crate) fn all(
    plants: &Plants,
    say: &mut Vec<String>,
) -> Result<BTreeMap<String, Shape>, Trouble> {
    let mut shapes = BTreeMap::new();
    for path in files(&fixtures(), ".lrcap")? {
        let name = name_of(&path, ".lrcap");
        if plants.sick.contains(&name) {
            continue;
        }
        let file = fs::File::open(&path).map_err(trouble("open", &path))?;
        let archive =
            Archive::parse(std::io::BufReader::new(file)).map_err(trouble("read", &path))?;
        let is_real = !plants.made.contains(&name);
        let shape = Shape {
            archive,
            is_real,
            is_fresh: false,
        };
        shapes.insert(name, shape);
    }
    match std::env::var_os(CORPUS) {
        None => say.push(format!(
            "SKIP: {CORPUS} names no folder with hosts/*.tar.bz2"
        )),
        Some(folder) => {
            for path in files(&Path::new(&folder).join("hosts"), ".tar.bz2")? {
                let captured = Captured::open(&path).map_err(trouble("read", &path))?;
                let options = CaptureOptions {
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    pseudonyms: false,
                };
                let archive = capture(captured.root(), &captured, &options);
                let name = name_of(&path, ".tar.bz2");
                let is_real = !plants.made.contains(&name);
                let shape = Shape {
                    archive,
                    is_real,
                    is_fresh: false,
                };
                shapes.insert(name, shape);
            }
        }
    }
    for derived in &plants.shapes {
        let Some(from) = shapes.get(&derived.from) else {
            say.push(format!("SKIP: {} needs {}", derived.name, derived.from));
            continue;
        };
        let mut archive = from.archive.clone();
        if let Some(system) = &derived.system {
            archive = system.add(archive);
        }
        for adapter in &derived.adapters {
            archive = adapter.add(archive, derived.system.as_ref());
            if let Some(answers) = adapter.answers() {
                archive = with_answers(archive, adapter.name(), &answers)?;
            }
        }
        let archive = edited(archive, &derived.edits, 0)?;
        let shape = Shape {
            archive,
            is_real: derived.healthy,
            is_fresh: derived.healthy,
        };
        shapes.insert(derived.name.clone(), shape);
    }
    Ok(shapes)
}

/// Writes each shape, and each with a fault, as a capture: `linerate doctor` can be asked about it.
pub(crate) fn write(
    folder: &Path,
    plants: &Plants,
    shapes: &BTreeMap<String, Shape>,
) -> Result<(), Trouble> {
    let put = |name: &str, archive: &Archive| {
        let path = folder.join(format!("{name}.lrcap"));
        let mut file = fs::File::create(&path).map_err(trouble("create", &path))?;
        archive.write(&mut file).map_err(trouble("write", &path))
    };
    for (name, shape) in shapes {
        put(name, &shape.archive)?;
    }
    for (number, fault) in plants.faults.iter().enumerate() {
        let Some(shape) = shapes.get(&fault.shape) else {
            continue;
        };
        let archive = edited(shape.archive.clone(), &fault.edits, 1)?;
        put(&format!("{number:03}-{}", fault.shape), &archive)?;
    }
    Ok(())
}

fn files(folder: &Path, ending: &str) -> Result<Vec<PathBuf>, Trouble> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(trouble("list", folder))? {
        let path = entry.map_err(trouble("list", folder))?.path();
        if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn name_of(path: &Path, ending: &str) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.trim_end_matches(ending).to_owned()
}

fn trouble<E: std::fmt::Display>(doing: &str, path: &Path) -> impl Fn(E) -> Trouble {
    move |error| Trouble(format!("{doing} {}: {error}", path.display()))
}

/// A shape as it is, or with a fault, and with its counters watched where the fault is in them.
pub(crate) fn look(archive: &Archive, edits: &Edits, seconds: u64) -> Result<WatchedHost, Trouble> {
    let first = edited(archive.clone(), edits, 0)?;
    let is_watched =
        !edits.counters.is_empty() || !edits.counts.is_empty() || !edits.fields.is_empty();
    if !is_watched {
        let first = first.into_captured();
        let host = read_host(first.root(), &first);
        return Ok(WatchedHost { host, watch: None });
    }
    let second = edited(archive.clone(), edits, 1)?;
    let at = |archive: Archive, second: u64| {
        let uptime = format!("{}.00 {}.00", 1000 + second, 1000 + second);
        archive.edited("proc/uptime", Some(&uptime)).into_captured()
    };
    let (first, second) = (at(first, 0), at(second, seconds));
    let host = read_host(first.root(), &first);
    let before = read_counters(first.root(), &first, &host);
    let after = read_counters(second.root(), &second, &host);
    match after.span_since(&before) {
        Known::Value(span) => Ok(WatchedHost {
            watch: Some(after.since(&before, span)),
            host,
        }),
        Known::Unknown(gap) => Err(Trouble(format!(
            "read the time between two captures: {gap}"
        ))),
    }
}

/// The same edits with nothing moving and no other change: what a healthy host would count.
pub(crate) fn still(edits: &Edits) -> Edits {
    let counters = edits.counters.iter();
    let counts = edits.counts.iter();
    let fields = edits.fields.iter();
    let files = edits.files.iter();
    Edits {
        // The text in which the fields are.
        files: files
            .filter(|(path, _)| edits.fields.contains_key(*path))
            .map(|(path, text)| (path.clone(), text.clone()))
            .collect(),
        counters: counters
            .map(|(path, [first, _])| (path.clone(), [first.clone(), first.clone()]))
            .collect(),
        counts: counts
            .map(|(nic, all)| {
                let all = all
                    .iter()
                    .map(|(key, [first, _])| (key.clone(), [*first; 2]));
                (nic.clone(), all.collect())
            })
            .collect(),
        fields: fields
            .map(|(path, all)| {
                let all = all
                    .iter()
                    .map(|(key, [first, _])| (key.clone(), [*first; 2]));
                (path.clone(), all.collect())
            })
            .collect(),
        ..Edits::default()
    }
}

/// A capture with its edits, the first (0) or the second (1) of a pair.
fn edited(mut archive: Archive, edits: &Edits, moment: usize) -> Result<Archive, Trouble> {
    for (path, text) in &edits.files {
        archive = archive.edited(path, text.text());
    }
    for (path, texts) in &edits.counters {
        archive = archive.edited(path, texts.get(moment).map(String::as_str));
    }
    for (path, changes) in &edits.fields {
        archive = with_fields(archive, path, changes, moment)?;
    }
    for (nic, answers) in &edits.nics {
        archive = with_answers(archive, nic, answers)?;
    }
    for (nic, counts) in &edits.counts {
        let answers = counts.iter().filter_map(|(key, values)| {
            let value = values.get(moment)?;
            let key = key.replace('/', "~1");
            Some((
                format!("/counts/values/{key}"),
                serde_json::json!([value, "made"]),
            ))
        });
        archive = with_answers(archive, nic, &answers.collect())?;
    }
    Ok(archive)
}

fn with_fields(
    archive: Archive,
    path: &str,
    changes: &BTreeMap<String, [u64; 2]>,
    moment: usize,
) -> Result<Archive, Trouble> {
    let captured = archive.clone().into_captured();
    let mut text = match captured.root().read(path.trim_start_matches('/')) {
        Known::Value(text) => text,
        Known::Unknown(gap) => return Err(Trouble(format!("read {path}: {gap}"))),
    };
    for (key, values) in changes {
        text = fields::with(&text, key, values.get(moment).copied().unwrap_or_default())?;
    }
    Ok(archive.edited(path, Some(&text)))
}

fn with_answers(
    archive: Archive,
    nic: &str,
    changes: &BTreeMap<String, Value>,
) -> Result<Archive, Trouble> {
    let wrong = |what: String| Trouble(format!("edit the answers about {nic}: {what}"));
    let name: NicName = nic
        .parse()
        .map_err(|_| wrong("not a valid name".to_owned()))?;
    archive
        .with_edited_nic(&name, changes)
        .map_err(|error| wrong(error.to_string()))
}
