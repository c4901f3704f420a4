//! Which files are applied: a note for each transaction that `qos apply` made, `<state>/qos/ID.json`. It is written before
//! the transaction is confirmed and outlives reboots; a note whose transaction is gone means nothing.

use std::path::Path;

use linerate_host::private_folder::PrivateFolder;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::ids::NicName;
use linerate_model::plan::Change;
use linerate_runtime::endpoint::transactions::{self, Entry};
use serde::{Deserialize, Serialize};

/// The folder of the notes below the state folder.
const FOLDER: &str = "qos";
/// The largest note, bytes: its file may have 1 MiB.
const BYTES_MAX: u64 = 8 << 20;

/// What a transaction applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    /// The interface of the file.
    pub(super) interface: NicName,
    /// The file's text.
    pub(super) file: String,
    /// What it changed.
    pub(super) changes: Vec<Change>,
}

/// A note with its transaction.
#[derive(Debug, Clone)]
pub(super) struct Applied {
    pub(super) note: Note,
    pub(super) entry: Entry,
}

fn name(id: &str) -> String {
    format!("{id}.json")
}

/// Writes the note of transaction `id`.
pub(super) fn write(state: &Path, id: &str, note: &Note) -> Outcome<()> {
    let text = serde_json::to_vec(note)
        .map_err(|error| Stop::new(Code::Bug, format!("cannot write a note: {error}")))?;
    let folder = PrivateFolder::make(state).and_then(|state| state.make_folder(FOLDER));
    folder
        .and_then(|folder| folder.replace(&name(id), &text))
        .map_err(|error| Stop::io(format!("note what {id} applies"), error))
}

/// What is applied, waits for its confirmation or is kept, oldest first; of one interface, or of all. Notes of transactions
/// that are gone are removed.
pub(super) fn all(state: &Path, interface: Option<&NicName>) -> Outcome<Vec<Applied>> {
    let wrong = |error| Stop::io("read which files are applied", error);
    let path = state.join(FOLDER);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let entries = transactions::status(state)?;
    let folder = PrivateFolder::open(&path).map_err(wrong)?;
    let mut applied = Vec::new();
    for file in folder.names().map_err(wrong)? {
        let file = file.to_string_lossy().into_owned();
        let Some(id) = file.strip_suffix(".json") else {
            continue;
        };
        let Some(at) = entries.iter().position(|entry| entry.id == id) else {
            folder.remove(&file).map_err(wrong)?;
            continue;
        };
        let text = folder.read(&file, BYTES_MAX).map_err(wrong)?;
        let note: Note = serde_json::from_slice(&text).map_err(|error| {
            let path = path.join(&file);
            Stop::new(Code::BadInput, format!("{}: {error}", path.display()))
        })?;
        let entry = entries[at].clone();
        if interface.is_none_or(|wanted| *wanted == note.interface) {
            applied.push((at, Applied { note, entry }));
        }
    }
    applied.sort_by_key(|(at, _)| *at);
    Ok(applied.into_iter().map(|(_, applied)| applied).collect())
}
