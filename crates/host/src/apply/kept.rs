//! Settings that are persistent across reboots: the kept set, `<state>/boot/kept.json`, and the boot files that apply
//! it: a script, and a unit if systemd starts the machine (systemd.unit(5)).
//!
//! A single rename decides: with the kept set in place its changes are persistent, without it they are not, whatever
//! other files exist. The boot files are created before the set, and removed after it. The files that they replace
//! are saved first (`<state>/boot/replaced.json`), and restored byte for byte. After a crash in between, [`tidy`]
//! completes the removal.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use linerate_model::ids::{NicName, PciAddress};
use linerate_model::plan::Change;
use linerate_model::setting::SettingKey;
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::clock::Boottime;
use super::fault::Moment;
use super::journal::{JournalOptions, sync_folder};
use super::lock::lock_until;
use crate::hex::{from_hex, to_hex};
use crate::private_folder::{self, PrivateFolder};
use crate::regular_file;
use crate::root::HostRoot;
use crate::trust::Trust;

/// The version of the kept set that this program writes, and the only one it reads.
pub const KEPT_VERSION: u32 = 1;

/// The maximum size of a file here: 10,000 changes of 1 KiB.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The directory of the kept set below a state directory.
const FOLDER: &str = "boot";

/// How long another process may hold the lock for a handful of files.
const PATIENCE: Duration = Duration::from_secs(30);

/// The mark near the beginning of every boot file. A file without it is not linerate's.
const MARK: &str = "Written by `linerate tune persist`";
/// How far into a file the mark is searched.
const MARK_WITHIN: usize = 512;

/// The changes that a boot applies, oldest transaction first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptSet {
    /// [`KEPT_VERSION`].
    pub version: u32,
    /// The transactions.
    pub kept: Vec<PersistentSet>,
}

/// A persistent transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersistentSet {
    /// Its ID.
    pub id: String,
    /// Its changes.
    pub changes: Vec<Change>,
    /// The devices of its interfaces: a reboot may rename a NIC.
    pub devices: BTreeMap<NicName, String>,
    /// The interfaces that must still have a carrier after the changes, if they have one before.
    pub up: Vec<NicName>,
    /// A TCP destination that must still be reachable after the changes, if it is before: `HOST:PORT`.
    pub probes: Vec<String>,
    /// The time after which a boot rolls everything back if the checks did not pass, in seconds.
    pub deadline_s: u32,
}

/// The boot attempts of a kept set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootAttempts {
    /// Its identity: the checksum of the file.
    pub set: String,
    /// The last boot that attempted it.
    pub boot_id: String,
    /// The number of consecutive attempts that did not finish: the machine hung or lost power.
    pub unfinished: u32,
    /// The outcome of the last attempt.
    pub verdict: Verdict,
}

/// The outcome of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    /// Not finished.
    Trying,
    /// The changes were kept.
    Good,
    /// It was stopped, and rolled everything back.
    Stopped,
    /// The changes were rolled back, and are not attempted again.
    Bad {
        /// As text.
        why: String,
    },
}

/// Why settings could not be made persistent, or persistence not removed.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// The operating system refused.
    #[error("cannot {what} {path}: {source}")]
    Io {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// A file does not belong to linerate.
    #[error("cannot use {path}: {why}")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Why it is not changed.
        why: &'static str,
    },
}

impl KeptError {
    /// The operating system's reason, if there is one.
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { source, .. } => Some(source.kind()),
            Self::Foreign { .. } => None,
        }
    }
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> KeptError {
    let path = path.to_owned();
    move |source| KeptError::Io { what, path, source }
}

/// What exists at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
enum Content {
    Absent,
    File { mode: u32, hex: String },
    Link { target: PathBuf },
}

impl Content {
    fn file(mode: u32, text: &str) -> Self {
        let hex = to_hex(text.as_bytes());
        Self::File { mode, hex }
    }

    fn read(path: &Path) -> Result<Self, KeptError> {
        let data = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Absent),
            data => data.map_err(io_error("read", path))?,
        };
        if data.is_symlink() {
            let target = fs::read_link(path).map_err(io_error("read", path))?;
            return Ok(Self::Link { target });
        }
        if !data.is_file() || data.len() > FILE_BYTES_MAX {
            let why = "it is not a regular file";
            return Err(KeptError::Foreign {
                path: path.to_owned(),
                why,
            });
        }
        let bytes = regular_file::read(path, FILE_BYTES_MAX).map_err(io_error("read", path))?;
        Ok(Self::File {
            mode: data.mode() & 0o7777,
            hex: to_hex(&bytes),
        })
    }

    /// Whether linerate may replace it.
    fn is_ours_or_absent(&self, laid: &Self) -> bool {
        match self {
            Self::Absent => true,
            Self::Link { .. } => self == laid,
            Self::File { hex, .. } => from_hex(hex).is_some_and(|bytes| {
                let start = &bytes[..bytes.len().min(MARK_WITHIN)];
                String::from_utf8_lossy(start).contains(MARK)
            }),
        }
    }

    /// Creates or restores this at `path`.
    fn put(&self, path: &Path, beside: &JournalOptions) -> Result<(), KeptError> {
        match self {
            Self::Absent => remove(path, beside),
            Self::File { mode, hex } => {
                let bytes = from_hex(hex).unwrap_or_default();
                replace(path, beside, |new| {
                    let mut file = OpenOptions::new()
                        .write(true)
                        .create_new(true)
                        .mode(0o600)
                        .open(new)?;
                    file.write_all(&bytes)?;
                    file.set_permissions(fs::Permissions::from_mode(*mode))?;
                    if beside.lets(Moment::Sync) {
                        file.sync_all()?;
                    }
                    Ok(())
                })
            }
            Self::Link { target } => replace(path, beside, |new| symlink(target, new)),
        }
    }
}

/// The identity of an interface independent of its name: its device's path (`0000:3b:00.0`, or the bus's name), and
/// the port number of that device. None for an interface without a device, which is identified by its name.
pub fn device_of(root: &HostRoot, nic: &NicName) -> Option<String> {
    let link = root.link(&format!("sys/class/net/{nic}")).value()?.clone();
    // ../../devices/pci0000:00/0000:00:03.0/virtio0/net/eth0
    let (before, _) = link.rsplit_once("/net/")?;
    let mut parts = before.rsplit('/');
    let place = parts
        .clone()
        .find(|part| part.parse::<PciAddress>().is_ok())
        .or_else(|| parts.next().filter(|part| *part != "virtual"))?;
    let port = root.read(&format!("sys/class/net/{nic}/dev_port"));
    let port = port.value().map_or("0", |text| text.trim());
    Some(format!("{place} port {port}"))
}

/// A persistent transaction resolved for this boot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Here {
    /// Its changes, with the current interface name of each NIC.
    pub changes: Vec<Change>,
    /// Interfaces whose NICs are missing.
    pub gone: BTreeSet<NicName>,
    /// The interfaces that must have a carrier.
    pub up: Vec<NicName>,
}

impl PersistentSet {
    /// Resolves it for the interfaces below `root`.
    pub fn here(&self, root: &HostRoot) -> Here {
        let names = root.list("sys/class/net");
        let names = names.value().into_iter().flatten();
        let now: Vec<(NicName, Option<String>)> = names
            .filter_map(|name| name.parse().ok())
            .map(|nic: NicName| (nic.clone(), device_of(root, &nic)))
            .collect();
        let now_named = |nic: &NicName| -> Option<NicName> {
            let Some(known) = self.devices.get(nic) else {
                return Some(nic.clone());
            };
            let same = now.iter().filter(|(_, d)| d.as_ref() == Some(known));
            let same: Vec<&NicName> = same.map(|(name, _)| name).collect();
            match same.as_slice() {
                // A function may have several interfaces with one port (a switch's representors).
                several if several.contains(&nic) => Some(nic.clone()),
                [one] => Some((*one).clone()),
                _ => None,
            }
        };
        let mut here = Here::default();
        for change in &self.changes {
            let mut change = change.clone();
            if let SettingKey::Nic(nic, _) = &mut change.setting {
                let Some(name) = now_named(nic) else {
                    here.gone.insert(nic.clone());
                    continue;
                };
                *nic = name;
            }
            here.changes.push(change);
        }
        here.up = self.up.iter().filter_map(now_named).collect();
        here
    }
}

/// The temporary path of a file before it is renamed.
fn unnamed(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.linerate-new"))
}

fn replace(
    path: &Path,
    beside: &JournalOptions,
    make: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<(), KeptError> {
    let new = unnamed(path);
    beside.lets(Moment::File);
    // A leftover of a crash.
    let _ = fs::remove_file(&new);
    let place = || {
        make(&new)?;
        beside.lets(Moment::File);
        fs::rename(&new, path)?;
        beside.lets(Moment::File);
        sync_parent(path, beside)
    };
    let placed = place().map_err(io_error("write", path));
    if placed.is_err() {
        let _ = fs::remove_file(&new);
    }
    placed
}

fn remove(path: &Path, beside: &JournalOptions) -> Result<(), KeptError> {
    beside.lets(Moment::File);
    let _ = fs::remove_file(unnamed(path));
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed
            .and_then(|()| sync_parent(path, beside))
            .map_err(io_error("remove", path)),
    }
}

fn sync_parent(path: &Path, beside: &JournalOptions) -> io::Result<()> {
    match path.parent() {
        Some(folder) if beside.lets(Moment::Sync) => sync_folder(folder),
        _ => Ok(()),
    }
}

/// A file that the boot files replaced, or that did not exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    path: PathBuf,
    before: Content,
    /// What linerate wrote there, in this and earlier versions.
    laid: Vec<Content>,
}

/// What the boot files replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Replaced {
    /// Directories that linerate created, the outer ones first.
    folders: Vec<PathBuf>,
    places: Vec<Place>,
}

/// Why these files must not run at boot.
#[derive(Debug)]
pub enum NotForBoot {
    /// Another user can replace the program.
    Program(io::Error),
    /// Another user can replace a boot file.
    File(io::Error),
}

/// How a boot applies the kept set.
#[derive(Debug, Clone, Copy)]
pub struct BootFiles<'a> {
    /// The root of the files: `/etc`.
    pub etc: &'a Path,
    /// The linerate program to start.
    pub program: &'a Path,
}

impl BootFiles<'_> {
    /// The script, for any init system.
    pub fn script(&self) -> PathBuf {
        self.etc.join("linerate/boot")
    }

    /// The unit, if systemd is installed.
    pub fn unit(&self) -> Option<PathBuf> {
        let units = self.etc.join("systemd/system");
        units.is_dir().then(|| units.join("linerate.service"))
    }

    /// The first untrusted part of the path to the program or to one of the files: whoever can replace it decides
    /// what runs at boot.
    pub fn check(&self, state: &Path, trust: &Trust) -> Result<(), NotForBoot> {
        let program = trust.follow_program(self.program);
        program.map_err(NotForBoot::Program)?;
        let laid = self.lay(state).into_iter();
        laid.map(|(path, _)| trust.follow_existing(&path))
            .find_map(Result::err)
            .map_or(Ok(()), |error| Err(NotForBoot::File(error)))
    }

    /// The files to create, in this order.
    fn lay(&self, state: &Path) -> Vec<(PathBuf, Content)> {
        let script = self.script();
        let text = format!(
            "#!/bin/sh\n\
             # {MARK}; `linerate tune persist --remove` takes it away.\n\
             # Makes the changes again that are kept, and takes them back if the machine is worse off with them.\n\
             # linerate.service runs it; where something else than systemd starts the machine, run it from there\n\
             # once the network is up.\n\
             exec {} --state {} tune boot\n",
            quoted(self.program),
            quoted(state)
        );
        let mut files = vec![(script.clone(), Content::file(0o755, &text))];
        if let Some(unit) = self.unit() {
            let text = format!(
                "# {MARK}; `linerate tune persist --remove` takes it away.\n\
                 [Unit]\n\
                 Description=Settings that linerate keeps\n\
                 Wants=network-online.target\n\
                 After=network-online.target systemd-sysctl.service tuned.service irqbalance.service\n\
                 RequiresMountsFor={}\n\
                 \n\
                 [Service]\n\
                 Type=oneshot\n\
                 RemainAfterExit=yes\n\
                 ExecStart={}\n\
                 # The reverter, which takes changes back, outlives the process that it stands by.\n\
                 KillMode=process\n\
                 \n\
                 [Install]\n\
                 WantedBy=multi-user.target\n",
                unit_word(state),
                unit_word(&script)
            );
            let wanted = unit.with_file_name("multi-user.target.wants");
            files.push((unit, Content::file(0o644, &text)));
            let target = PathBuf::from("../linerate.service");
            files.push((wanted.join("linerate.service"), Content::Link { target }));
        }
        files
    }
}

/// A quoted shell word (POSIX 2.2.2).
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

/// A quoted word of a unit (systemd.syntax(7)), with `%` doubled.
fn unit_word(path: &Path) -> String {
    let text = path.display().to_string();
    let text = text.replace('\\', r"\\").replace('"', "\\\"");
    format!("\"{}\"", text.replace('%', "%%"))
}

fn folder(state: &Path) -> PathBuf {
    state.join(FOLDER)
}

fn set_file(state: &Path) -> PathBuf {
    folder(state).join("kept.json")
}

fn replaced_file(state: &Path) -> PathBuf {
    folder(state).join("replaced.json")
}

fn tried_file(state: &Path) -> PathBuf {
    folder(state).join("tried.json")
}

/// A file of ours with its text; none if it does not exist.
fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<(T, String)>, KeptError> {
    let bytes = match private_folder::read(path, FILE_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.map_err(io_error("read", path))?,
    };
    let foreign = || KeptError::Foreign {
        path: path.to_owned(),
        why: "not written by this version of linerate",
    };
    let text = String::from_utf8(bytes).map_err(|_| foreign())?;
    let known = serde_json::from_str(&text).map_err(|_| foreign())?;
    Ok(Some((known, text)))
}

fn write<T: Serialize>(path: &Path, value: &T, beside: &JournalOptions) -> Result<(), KeptError> {
    let text = serde_json::to_string_pretty(value)
        .map_err(io::Error::from)
        .map_err(io_error("write", path))?;
    Content::file(0o600, &(text + "\n")).put(path, beside)
}

/// The kept set below `state`, and its identity; none if nothing is persistent.
pub fn kept_set(state: &Path) -> Result<Option<(KeptSet, String)>, KeptError> {
    let path = set_file(state);
    match read::<KeptSet>(&path)? {
        None => Ok(None),
        Some((set, _)) if set.version != KEPT_VERSION => Err(KeptError::Foreign {
            path,
            why: "another version of linerate wrote it",
        }),
        Some((set, text)) => {
            let name = format!("{:08x}", crc32fast::hash(text.as_bytes()));
            Ok(Some((set, name)))
        }
    }
}

/// A lock for everything below `state`, in addition to that of the namespace: one process could otherwise remove what
/// another creates. None if there is no such directory.
pub(super) fn turn(state: &Path, patience: Duration) -> Result<Option<PrivateFolder>, KeptError> {
    let folder = match PrivateFolder::open(state) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        folder => folder.map_err(io_error("open", state))?,
    };
    match lock_until(folder.as_file(), Boottime::now().plus(patience)) {
        Err(Errno::WOULDBLOCK) => {
            let why = format!(
                "another linerate has held it for {} s and may hang",
                patience.as_secs()
            );
            let source = io::Error::new(io::ErrorKind::WouldBlock, why);
            Err(io_error("update the persistent changes in", state)(source))
        }
        // On a file system without locks, only the namespace's lock is used.
        _ => Ok(Some(folder)),
    }
}

/// Makes the changes of one more transaction persistent; one with the same ID is replaced.
pub fn keep(
    state: &Path,
    files: BootFiles<'_>,
    kept: PersistentSet,
    beside: &JournalOptions,
) -> Result<(), KeptError> {
    let _turn = turn(state, PATIENCE)?;
    tidy_in_turn(state, beside)?;
    let mut set = match kept_set(state)? {
        Some((set, _)) => set,
        None => KeptSet {
            version: KEPT_VERSION,
            kept: Vec::new(),
        },
    };
    // Only for this user: whoever can write here controls what the next boot writes.
    PrivateFolder::make(state)
        .and_then(|state| {
            state.make_folder(FOLDER)?;
            state.sync()
        })
        .map_err(io_error("make", &folder(state)))?;
    set.kept.retain(|other| other.id != kept.id);
    set.kept.push(kept);
    let placed = lay(state, files, beside).and_then(|()| write(&set_file(state), &set, beside));
    if let Err(error) = placed {
        // Best effort: the first error is the one to report.
        let _ = tidy_in_turn(state, beside);
        return Err(error);
    }
    // A set whose last attempt failed is attempted again.
    remove(&tried_file(state), beside)
}

/// Creates the boot files. A file with the right content is kept.
fn lay(state: &Path, files: BootFiles<'_>, beside: &JournalOptions) -> Result<(), KeptError> {
    let path = replaced_file(state);
    let known = read::<Replaced>(&path)?.map(|(known, _)| known);
    let mut replaced = known.clone().unwrap_or_default();
    let mut missing = Vec::new();
    for (path, laid) in files.lay(state) {
        let found = Content::read(&path)?;
        if found == laid && replaced.places.iter().any(|place| place.path == path) {
            continue;
        }
        if !found.is_ours_or_absent(&laid) {
            let why = "it exists and was not written by linerate; move it away first";
            return Err(KeptError::Foreign { path, why });
        }
        let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
        above.retain(|folder| !folder.exists());
        for folder in above.into_iter().rev() {
            if replaced.folders.iter().all(|known| known != folder) {
                replaced.folders.push(folder.to_owned());
            }
        }
        match replaced.places.iter_mut().find(|place| place.path == path) {
            Some(place) => place.laid.push(laid.clone()),
            None => replaced.places.push(Place {
                path: path.clone(),
                before: found,
                laid: vec![laid.clone()],
            }),
        }
        missing.push((path, laid));
    }
    if known.as_ref() != Some(&replaced) {
        write(&path, &replaced, beside)?;
    }
    for folder in &replaced.folders {
        beside.lets(Moment::File);
        match DirBuilder::new().mode(0o755).create(folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made
                .and_then(|()| sync_parent(folder, beside))
                .map_err(io_error("make", folder))?,
        }
    }
    for (path, laid) in missing {
        laid.put(&path, beside)?;
    }
    Ok(())
}

/// Removes the persistence of the transaction `id`, or of all without an ID. Returns which were removed.
pub fn forget(
    state: &Path,
    id: Option<&str>,
    beside: &JournalOptions,
) -> Result<Vec<String>, KeptError> {
    let _turn = turn(state, PATIENCE)?;
    let Some((mut set, _)) = kept_set(state)? else {
        tidy_in_turn(state, beside)?;
        return Ok(Vec::new());
    };
    let is_meant = |kept: &PersistentSet| id.is_none_or(|id| id == kept.id);
    let (gone, left) = set.kept.into_iter().partition(is_meant);
    set.kept = left;
    let gone: Vec<PersistentSet> = gone;
    if gone.is_empty() {
        return Ok(Vec::new());
    }
    if set.kept.is_empty() {
        remove(&set_file(state), beside)?;
        tidy_in_turn(state, beside)?;
    } else {
        write(&set_file(state), &set, beside)?;
    }
    Ok(gone.into_iter().map(|kept| kept.id).collect())
}

/// Removes leftovers of a crash and, if nothing is persistent, the boot files, and restores the files that they
/// replaced. Files that others have changed since are kept.
pub fn tidy(state: &Path, beside: &JournalOptions) -> Result<(), KeptError> {
    let _turn = turn(state, PATIENCE)?;
    tidy_in_turn(state, beside)
}

fn tidy_in_turn(state: &Path, beside: &JournalOptions) -> Result<(), KeptError> {
    let (set, path) = (set_file(state), replaced_file(state));
    let replaced = read::<Replaced>(&path)?.map(|(replaced, _)| replaced);
    let laid = replaced.iter().flat_map(|replaced| &replaced.places);
    let laid = laid.map(|place| &place.path);
    for path in laid.chain([&set, &path, &tried_file(state)]) {
        let _ = fs::remove_file(unnamed(path));
    }
    if set.exists() {
        return Ok(());
    }
    if let Some(replaced) = replaced {
        for place in replaced.places.iter().rev() {
            if place.laid.contains(&Content::read(&place.path)?) {
                place.before.put(&place.path, beside)?;
            }
        }
        for folder in replaced.folders.iter().rev() {
            beside.lets(Moment::File);
            // A directory that is not empty is kept.
            let _ = fs::remove_dir(folder);
        }
        remove(&tried_file(state), beside)?;
        remove(&path, beside)?;
    }
    let _ = fs::remove_dir(folder(state));
    Ok(())
}

/// The attempts of the set with this identity; none if it was not attempted.
pub fn tried(state: &Path, set: &str) -> Result<Option<BootAttempts>, KeptError> {
    let known = read::<BootAttempts>(&tried_file(state))?.map(|(tried, _)| tried);
    Ok(known.filter(|tried| tried.set == set))
}

/// Stores the state of an attempt.
pub fn note_try(
    state: &Path,
    tried: &BootAttempts,
    beside: &JournalOptions,
) -> Result<(), KeptError> {
    let _turn = turn(state, PATIENCE)?;
    write(&tried_file(state), tried, beside)
}
