//! Which keys are known, and which tokens may still make one known.
//!
//! A list is a text file with a line `KEY SECONDS NAME` for each key: since when it is known, and for what. A damaged line is
//! an error: an ignored one would silently forget a host.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use linerate_host::apply::{Owner, boot_id};
use linerate_host::private_folder::PrivateFolder;
use linerate_model::pairing::{HostPort, PairingToken, PublicKey};
use ring::digest::{SHA256, digest};

use crate::ChannelError;
use crate::identity::{existing_folder, folder, lock};

/// The maximum length of a file: some 10,000 keys.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Tokens that may wait at a time; the oldest is dropped for another.
const TOKENS_MAX: usize = 64;
const TOKENS: &str = "tokens";

/// A list of known keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyList {
    /// Agents that this host may call, by `host:port`.
    Agents,
    /// Hosts that may call the agent of this host, by the address that they paired from.
    Callers,
}

/// A known key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownKey {
    /// The key.
    pub key: PublicKey,
    /// Since when it is known, in seconds since the Unix epoch.
    pub since_unix_s: u64,
    /// What it is the key of.
    pub name: String,
}

impl KeyList {
    fn file(self) -> &'static str {
        match self {
            Self::Agents => "agents",
            Self::Callers => "callers",
        }
    }

    /// All its keys, oldest first.
    pub fn all(self, state: &Path) -> Result<Vec<KnownKey>, ChannelError> {
        match existing_folder(state)? {
            Some(folder) => self.read(&folder),
            None => Ok(Vec::new()),
        }
    }

    fn read(self, folder: &PrivateFolder) -> Result<Vec<KnownKey>, ChannelError> {
        read_lines(folder, self.file(), KnownKey::read)
    }

    /// The key with this name.
    pub fn named(self, state: &Path, name: &str) -> Result<Option<PublicKey>, ChannelError> {
        let all = self.all(state)?;
        Ok(all
            .into_iter()
            .find(|one| one.name == name)
            .map(|one| one.key))
    }

    /// Whether a key is known.
    pub fn contains(self, state: &Path, key: PublicKey) -> Result<bool, ChannelError> {
        Ok(self.all(state)?.iter().any(|one| one.key == key))
    }

    /// Adds a key. An agent's name has one key, and a caller's key has one line: the new one.
    pub fn add(self, state: &Path, new: KnownKey) -> Result<(), ChannelError> {
        let folder = folder(state)?;
        let _lock = lock(&folder)?;
        let mut all = self.read(&folder)?;
        all.retain(|one| match self {
            Self::Agents => one.name != new.name,
            Self::Callers => one.key != new.key,
        });
        all.push(new);
        write_lines(&folder, self.file(), all.iter().map(KnownKey::line))
    }

    /// Removes the key with this name, or that begins with these digits (at least [`PREFIX_MIN`]); returns it. `None` if there
    /// is none; several keys of one name are an error, and none is removed.
    pub fn forget(self, state: &Path, which: &str) -> Result<Option<KnownKey>, ForgetError> {
        let Some(folder) = existing_folder(state)? else {
            return Ok(None);
        };
        let _lock = lock(&folder)?;
        let is_meant = |one: &KnownKey| {
            one.name == which
                || (which.len() >= PREFIX_MIN && one.key.to_string().starts_with(which))
        };
        let (mut gone, left): (Vec<_>, Vec<_>) =
            self.read(&folder)?.into_iter().partition(is_meant);
        match (gone.pop(), gone.is_empty()) {
            (None, _) => Ok(None),
            (Some(one), true) => {
                write_lines(&folder, self.file(), left.iter().map(KnownKey::line))?;
                Ok(Some(one))
            }
            (Some(one), false) => {
                gone.push(one);
                Err(ForgetError::Several(gone))
            }
        }
    }
}

/// Minimum length of a key prefix.
pub const PREFIX_MIN: usize = 8;

/// Why no key was removed.
#[derive(Debug)]
pub enum ForgetError {
    /// All of these are meant: hosts behind one address, or keys that begin alike.
    Several(Vec<KnownKey>),
    /// The files of the keys.
    Files(ChannelError),
}

impl From<ChannelError> for ForgetError {
    fn from(error: ChannelError) -> Self {
        Self::Files(error)
    }
}

impl KnownKey {
    fn line(&self) -> String {
        format!("{} {} {}\n", self.key, self.since_unix_s, self.name)
    }

    fn read(line: &str) -> Option<Self> {
        let mut words = line.splitn(3, ' ');
        Some(Self {
            key: words.next()?.parse().ok()?,
            since_unix_s: words.next()?.parse().ok()?,
            name: words.next().filter(|name| !name.is_empty())?.to_owned(),
        })
    }
}

/// The notes of listening agents: `listening-BOOT-PID`. State folders may be shared between hosts (NFS).
const NOTES: &str = "listening-";

/// The note of an agent that listens with these keys: one line, removed when this is dropped.
#[derive(Debug)]
pub struct Listening {
    folder: PrivateFolder,
    note: String,
}

/// What a note says.
struct Note {
    host: String,
    boot: String,
    owner: Owner,
    at: HostPort,
}

impl Listening {
    /// From now on pairing lines have this address.
    pub fn at(state: &Path, at: &HostPort) -> Result<Self, ChannelError> {
        let folder = folder(state)?;
        let written = || -> io::Result<String> {
            let own = Note {
                host: host_name(),
                boot: boot_id().map_err(io::Error::other)?,
                owner: Owner::current().map_err(io::Error::other)?,
                at: at.clone(),
            };
            // Those of killed agents of this host.
            for (name, note) in notes(&folder)? {
                if note.host == own.host && !note.is_of_live_agent(&own.boot) {
                    folder.remove(&name)?;
                }
            }
            let name = format!("{NOTES}{}-{}", own.boot, own.owner.pid);
            folder.replace(&name, own.to_string().as_bytes())?;
            Ok(name)
        };
        match written() {
            Ok(note) => Ok(Self { folder, note }),
            Err(error) => Err(ChannelError::files(format!(
                "write {}",
                folder.path().join(NOTES).display()
            ))(error)),
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // A note that stays is recognized as one of a process that has ended.
        let _ = self.folder.remove(&self.note);
    }
}

impl Note {
    fn is_of_live_agent(&self, boot: &str) -> bool {
        self.boot == boot && self.owner.is_alive()
    }
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Owner { pid, start_ticks } = self.owner;
        let Self { host, boot, at, .. } = self;
        write!(f, "{host} {boot} {pid} {start_ticks} {at}")
    }
}

impl std::str::FromStr for Note {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split(' ');
        let mut word = || words.next().ok_or(());
        Ok(Self {
            host: word()?.to_owned(),
            boot: word()?.to_owned(),
            owner: Owner {
                pid: word()?.parse().map_err(drop)?,
                start_ticks: word()?.parse().map_err(drop)?,
            },
            at: word()?.parse().map_err(drop)?,
        })
    }
}

fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().replace(' ', "_")
}

/// The notes that can be read; another is being removed, or nobody's.
fn notes(folder: &PrivateFolder) -> io::Result<Vec<(String, Note)>> {
    let names = folder.names()?.into_iter();
    let names = names.filter_map(|name| name.into_string().ok());
    let names = names.filter(|name| name.starts_with(NOTES));
    Ok(names
        .filter_map(|name| {
            let text = folder.read(&name, FILE_BYTES_MAX).ok()?;
            let note = String::from_utf8(text).ok()?.parse().ok()?;
            Some((name, note))
        })
        .collect())
}

/// The addresses in pairing lines of the agents of this host that listen with these keys.
pub fn listening_at(state: &Path) -> Result<Vec<HostPort>, ChannelError> {
    let Some(folder) = existing_folder(state)? else {
        return Ok(Vec::new());
    };
    let found = || -> io::Result<Vec<HostPort>> {
        let boot = boot_id().map_err(io::Error::other)?;
        let live = notes(&folder)?.into_iter();
        let live = live.filter(|(_, note)| note.is_of_live_agent(&boot));
        Ok(live.map(|(_, note)| note.at).collect())
    };
    found().map_err(ChannelError::files(format!(
        "read {}",
        folder.path().display()
    )))
}

/// What is stored of a token: its digest, so that the file alone pairs nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Waiting {
    digest: String,
    expires_unix_s: u64,
}

impl Waiting {
    fn line(&self) -> String {
        format!("{} {}\n", self.digest, self.expires_unix_s)
    }

    fn read(line: &str) -> Option<Self> {
        let (digest, expires) = line.split_once(' ')?;
        let expires_unix_s = expires.parse().ok()?;
        let digest = digest.to_owned();
        Some(Self {
            digest,
            expires_unix_s,
        })
    }
}

fn digest_of(token: PairingToken) -> String {
    let mut text = String::new();
    for byte in digest(&SHA256, &token.0).as_ref() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// From now until `expires_unix_s`, `token` pairs one host.
pub fn invite(
    state: &Path,
    token: PairingToken,
    now_unix_s: u64,
    expires_unix_s: u64,
) -> Result<(), ChannelError> {
    invite_several(state, token, 1, now_unix_s, expires_unix_s)
}

/// The same for as many as `hosts`.
pub fn invite_several(
    state: &Path,
    token: PairingToken,
    hosts: usize,
    now_unix_s: u64,
    expires_unix_s: u64,
) -> Result<(), ChannelError> {
    let folder = folder(state)?;
    let _lock = lock(&folder)?;
    let mut all = read_lines(&folder, TOKENS, Waiting::read)?;
    all.retain(|one| one.expires_unix_s > now_unix_s);
    all.extend((0..hosts).map(|_| Waiting {
        digest: digest_of(token),
        expires_unix_s,
    }));
    let surplus = all.len().saturating_sub(TOKENS_MAX.max(hosts));
    write_lines(&folder, TOKENS, all[surplus..].iter().map(Waiting::line))
}

/// Uses up a token, if it may still pair a host. It is gone from stable storage before this returns.
pub fn redeem(state: &Path, token: PairingToken, now_unix_s: u64) -> Result<bool, ChannelError> {
    let folder = folder(state)?;
    let _lock = lock(&folder)?;
    let mut all = read_lines(&folder, TOKENS, Waiting::read)?;
    // Digests: how long the comparison takes reveals nothing of a token.
    let wanted = digest_of(token);
    let is_valid = (all.iter()).any(|one| one.digest == wanted && one.expires_unix_s > now_unix_s);
    if is_valid {
        all.retain(|one| one.expires_unix_s > now_unix_s);
        // A token that was given to several hosts has a line for each.
        if let Some(at) = all.iter().position(|one| one.digest == wanted) {
            all.remove(at);
        }
        write_lines(&folder, TOKENS, all.iter().map(Waiting::line))?;
    }
    Ok(is_valid)
}

fn read_lines<T>(
    folder: &PrivateFolder,
    name: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, ChannelError> {
    let failed = |source: io::Error| ChannelError::Files {
        doing: format!("read {}", folder.path().join(name).display()),
        source,
    };
    let invalid = |why: String| failed(io::Error::new(io::ErrorKind::InvalidData, why));
    let bytes = match folder.read(name, FILE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let text = String::from_utf8(bytes).map_err(|_| invalid("it is not UTF-8".to_owned()))?;
    let lines = text.lines().enumerate();
    lines
        .map(|(index, line)| {
            read(line).ok_or_else(|| invalid(format!("line {} is damaged", index + 1)))
        })
        .collect()
}

fn write_lines(
    folder: &PrivateFolder,
    name: &str,
    lines: impl Iterator<Item = String>,
) -> Result<(), ChannelError> {
    let text: String = lines.collect();
    // The rename itself, too: a power cut must not bring a used token back.
    let written = folder
        .replace(name, text.as_bytes())
        .and_then(|()| folder.sync());
    written.map_err(ChannelError::files(format!(
        "write {}",
        folder.path().join(name).display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(digit: u8, name: &str) -> KnownKey {
        KnownKey {
            key: PublicKey([digit; 32]),
            since_unix_s: 7,
            name: name.to_owned(),
        }
    }

    #[test]
    fn each_live_agent_of_a_state_folder_is_found_and_none_that_has_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = folder.path();
        let at = |text: &str| text.parse::<HostPort>().expect("an address");
        let addresses = || listening_at(state).expect("read");
        assert_eq!(addresses(), []);
        let listening = Listening::at(state, &at("10.0.0.1:6000")).expect("noted");
        assert_eq!(addresses(), [at("10.0.0.1:6000")]);
        let keys = PrivateFolder::open(&state.join("keys")).expect("it is there");
        let own = notes(&keys).expect("read").remove(0).1;
        // Killed ones of this host and of an earlier boot, and one of another host that shares the folder.
        for (name, host, boot, pid) in [
            ("killed", own.host.as_str(), own.boot.as_str(), u32::MAX),
            ("rebooted", own.host.as_str(), "earlier", own.owner.pid),
            ("elsewhere", "another-host", "other", own.owner.pid),
        ] {
            let line = format!("{host} {boot} {pid} {} 10.0.0.9:1", own.owner.start_ticks);
            keys.replace(&format!("{NOTES}{name}"), line.as_bytes())
                .expect("written");
        }
        keys.replace(&format!("{NOTES}torn"), b"half a li")
            .expect("written");
        assert_eq!(addresses(), [at("10.0.0.1:6000")]);
        drop(listening);
        assert_eq!(addresses(), []);
        let _next = Listening::at(state, &at("[fd00::1]:7")).expect("noted");
        assert_eq!(addresses(), [at("[fd00::1]:7")]);
        let left = notes(&keys).expect("read");
        assert_eq!(left.len(), 2, "of this host only that of the live agent");
    }

    #[test]
    fn an_agent_has_one_key_and_a_caller_one_line() {
        let state = tempfile::tempdir().expect("a folder");
        let state = state.path();
        KeyList::Agents
            .add(state, known(1, "a:5210"))
            .expect("added");
        KeyList::Agents
            .add(state, known(2, "a:5210"))
            .expect("added");
        assert_eq!(
            KeyList::Agents.named(state, "a:5210").expect("read"),
            Some(PublicKey([2; 32]))
        );
        assert_eq!(KeyList::Agents.all(state).expect("read").len(), 1);
        KeyList::Callers
            .add(state, known(1, "10.0.0.1"))
            .expect("added");
        KeyList::Callers
            .add(state, known(2, "10.0.0.1"))
            .expect("added");
        KeyList::Callers
            .add(state, known(2, "10.0.0.2"))
            .expect("added");
        assert_eq!(KeyList::Callers.all(state).expect("read").len(), 2);
        assert!(
            KeyList::Callers
                .contains(state, PublicKey([1; 32]))
                .expect("read")
        );
        let forget = |which| KeyList::Callers.forget(state, which);
        assert!(matches!(forget("0101010"), Ok(None)), "too short");
        KeyList::Callers
            .add(state, known(3, "10.0.0.2"))
            .expect("added");
        assert!(matches!(forget("10.0.0.2"), Err(ForgetError::Several(two)) if two.len() == 2));
        let gone = forget("01010101").expect("removed");
        assert_eq!(gone, Some(known(1, "10.0.0.1")));
        assert!(
            !KeyList::Callers
                .contains(state, PublicKey([1; 32]))
                .expect("read")
        );
    }

    #[test]
    fn a_damaged_list_is_an_error_and_forgets_nobody() {
        let state = tempfile::tempdir().expect("a folder");
        KeyList::Callers
            .add(state.path(), known(1, "10.0.0.1"))
            .expect("added");
        let file = state.path().join("keys/callers");
        let mut text = std::fs::read_to_string(&file).expect("there");
        text.push_str("nonsense\n");
        std::fs::write(&file, &text).expect("written");
        let error = KeyList::Callers
            .add(state.path(), known(2, "b"))
            .expect_err("damaged");
        assert!(error.to_string().contains("line 2 is damaged"), "{error}");
        assert_eq!(std::fs::read_to_string(&file).expect("there"), text);
    }

    #[test]
    fn a_token_pairs_once_and_not_after_its_time() {
        let state = tempfile::tempdir().expect("a folder");
        let state = state.path();
        let [token, late] = [PairingToken([1; 16]), PairingToken([2; 16])];
        invite(state, token, 100, 200).expect("written");
        invite(state, late, 100, 200).expect("written");
        assert!(
            !redeem(state, PairingToken([3; 16]), 150).expect("read"),
            "another token"
        );
        assert!(redeem(state, token, 150).expect("read"));
        assert!(!redeem(state, token, 150).expect("read"), "a second time");
        assert!(!redeem(state, late, 200).expect("read"), "too late");
        for number in 0..=TOKENS_MAX {
            let number = u8::try_from(number).expect("few");
            invite(state, PairingToken([number; 16]), 1_000, 2_000).expect("written");
        }
        assert!(
            !redeem(state, PairingToken([0; 16]), 1_500).expect("read"),
            "the oldest of too many"
        );
        assert!(redeem(state, PairingToken([1; 16]), 1_500).expect("read"));
        let file = std::fs::read_to_string(state.join("keys/tokens")).expect("there");
        assert!(!file.contains(&"02".repeat(16)), "a token is stored");
    }
}
