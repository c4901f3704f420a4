//! Which keys are known, and which tokens may still make one known.
//!
//! A list is a text file with a line `KEY SECONDS NAME` for each key: since when it is known, and for what. A damaged line is
//! an error: an ignored one would silently forget a host.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use linerate_host::private_folder::PrivateFolder;
use linerate_model::pairing::{HostPort, PairingToken, PublicKey};
use ring::digest::{SHA256, digest};
use rustix::fs::{FlockOperation, OFlags, flock};

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

    /// Removes the key with this name, or that begins with these digits (at least [`DIGITS_MIN`]); returns it. `None` if there
    /// is none; several keys of one name are an error, and none is removed.
    pub fn forget(self, state: &Path, which: &str) -> Result<Option<KnownKey>, ForgetError> {
        let folder = folder(state)?;
        let _lock = lock(&folder)?;
        let is_meant = |one: &KnownKey| {
            one.name == which
                || (which.len() >= DIGITS_MIN && one.key.to_string().starts_with(which))
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

/// How many digits name a key.
pub const DIGITS_MIN: usize = 8;

/// Why no key was removed.
#[derive(Debug)]
pub enum ForgetError {
    /// These have the same name: hosts behind one address.
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

/// The file that a listening agent holds locked, with its address in pairing lines.
const LISTENING: &str = "listening";

/// Shows that an agent listens with these keys, until it is dropped.
#[derive(Debug)]
pub struct Listening(#[expect(dead_code, reason = "its lock is what counts")] Option<File>);

impl Listening {
    /// From now on pairing lines have this address. A second agent with the same keys shows nothing.
    pub fn at(state: &Path, at: &HostPort) -> Result<Self, ChannelError> {
        let folder = folder(state)?;
        let written = || -> io::Result<Option<File>> {
            let mut file = folder.open_file(LISTENING, OFlags::RDWR | OFlags::CREATE)?;
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                return Ok(None);
            }
            file.set_len(0)?;
            file.write_all(at.to_string().as_bytes())?;
            Ok(Some(file))
        };
        written().map(Self).map_err(ChannelError::files(format!(
            "write {}",
            folder.path().join(LISTENING).display()
        )))
    }
}

/// The address in pairing lines of the agent that listens with these keys; `None` if there is none.
pub fn listening_at(state: &Path) -> Result<Option<HostPort>, ChannelError> {
    let Some(folder) = existing_folder(state)? else {
        return Ok(None);
    };
    let Ok(file) = folder.open_file(LISTENING, OFlags::RDONLY) else {
        return Ok(None);
    };
    if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        return Ok(None);
    }
    let text = folder.read(LISTENING, FILE_BYTES_MAX).ok();
    Ok(text.and_then(|text| String::from_utf8(text).ok()?.parse().ok()))
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
    let folder = folder(state)?;
    let _lock = lock(&folder)?;
    let mut all = read_lines(&folder, TOKENS, Waiting::read)?;
    all.retain(|one| one.expires_unix_s > now_unix_s);
    all.push(Waiting {
        digest: digest_of(token),
        expires_unix_s,
    });
    let surplus = all.len().saturating_sub(TOKENS_MAX);
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
        all.retain(|one| one.digest != wanted && one.expires_unix_s > now_unix_s);
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
