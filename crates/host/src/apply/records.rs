//! What a journal holds, as data: its header, each announced write with its result, and the settings that could not be
//! restored.

use std::fmt;

use linerate_model::plan::Change;
use linerate_model::setting::{NicKnob, SettingKey, Value, by_hand};
use serde::{Deserialize, Serialize};

use super::identity::{IdentityError, NetnsIdentity, Owner, boot_id};
use super::located::Located;
use super::machine::Machine;
use super::subject::Subject;

/// The version of the format that this program writes, and the only one it reads.
pub const JOURNAL_VERSION: u32 = 2;

/// The header of a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`JOURNAL_VERSION`].
    pub version: u32,
    /// Its sequence number among the transactions below one state directory: higher than all others when it began. It
    /// does not use a clock, since any clock may be set back.
    pub sequence: u64,
    /// The boot: after a reboot, runtime settings are gone.
    pub boot_id: String,
    /// The network namespace of the changes.
    pub netns: NetnsIdentity,
    /// The process that makes the changes.
    pub owner: Owner,
    /// The version of linerate.
    pub linerate: String,
    /// When it began, nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// The persistent transaction that a boot applied with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
}

impl Header {
    /// A header for this process in this thread's network namespace; [`super::Transaction::begin`] sets its sequence
    /// number.
    pub fn here(started_unix_ns: u64) -> Result<Self, IdentityError> {
        Ok(Self {
            version: JOURNAL_VERSION,
            sequence: 0,
            boot_id: boot_id()?,
            netns: NetnsIdentity::current()?,
            owner: Owner::current()?,
            linerate: env!("CARGO_PKG_VERSION").to_owned(),
            started_unix_ns,
            of: None,
        })
    }
}

/// A setting that a write may change as a side effect, and its value before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Before {
    /// The setting.
    pub setting: SettingKey,
    /// Its value before the write.
    pub from: Value,
}

/// A setting that a write changed as a side effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Disturbed {
    /// The setting.
    pub setting: SettingKey,
    /// Its value after the write; none if it could no longer be read (its queue was removed).
    pub became: Option<Value>,
}

/// One line of a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub(super) enum Record {
    /// The first line.
    Header(Header),
    /// The next write; without its `Done` it may have happened.
    Intent {
        seq: usize,
        change: Change,
        closure: Vec<Before>,
        /// The identities of these settings' subjects.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        subjects: Vec<Subject>,
    },
    /// The write was made and read back.
    Done {
        seq: usize,
        readback: Value,
        disturbed: Vec<Disturbed>,
    },
    /// The changes are kept.
    Commit,
    /// The changes are rolled back, or gone with their boot or namespace.
    Aborted { why: String, left: Vec<Unrestored> },
    /// To be rolled back by a recovery: the owner could not, or an undo after the commit begins.
    Released,
}

/// An announced write and its known results.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) change: Change,
    pub(super) closure: Vec<Before>,
    /// The identities of these settings' subjects.
    pub(super) subjects: Vec<Subject>,
    /// The value read back after the write; none if unknown.
    pub(super) outcome: Option<(Value, Vec<Disturbed>)>,
}

impl Step {
    /// The journal's content before the step is made.
    pub(super) fn intent(&self, seq: usize) -> Record {
        Record::Intent {
            seq,
            change: self.change.clone(),
            closure: self.closure.clone(),
            subjects: self.subjects.clone(),
        }
    }

    /// The same step once its device is in another namespace; none if its device cannot be found there. Sysctls of an
    /// interface do not move with it: it gets the defaults of its new namespace.
    pub(super) fn in_another_netns(&self) -> Option<Self> {
        let subjects = self.subjects.iter().filter_map(|subject| match subject {
            Subject::Interface(interface) => interface.by_address_alone().map(Subject::Interface),
            Subject::Device(_) => None,
        });
        let mut step = self.clone();
        step.subjects = subjects.collect();
        let moves = |key: &SettingKey| {
            matches!(key, SettingKey::Nic(..)) && step.subjects.iter().any(|one| one.has(key))
        };
        step.closure.retain(|before| moves(&before.setting));
        moves(&step.change.setting).then_some(step)
    }

    pub(super) fn subject_of(&self, key: &SettingKey) -> Option<&Subject> {
        self.subjects.iter().find(|subject| subject.has(key))
    }

    /// A setting of this step under its interface's current name, or why it cannot be reached.
    pub(super) fn current(
        &self,
        key: &SettingKey,
        machine: &impl Machine,
    ) -> Result<SettingKey, UnrestoredWhy> {
        match self.subject_of(key) {
            Some(subject) if !is_by_name(key) => at(key, &machine.locate(subject)),
            _ => Ok(key.clone()),
        }
    }

    pub(super) fn done(&mut self, readback: Value, disturbed: Vec<Disturbed>) {
        self.outcome = Some((readback, disturbed));
    }
}

/// Why a setting was not restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnrestoredWhy {
    /// Another process has changed it since.
    Foreign {
        /// The current value.
        found: Value,
    },
    /// It no longer exists: the interface or its queue was removed.
    Gone,
    /// Reading or writing it failed.
    Failed {
        /// As text.
        reason: String,
    },
}

/// A setting that was not restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unrestored {
    /// The setting, under its interface's current name.
    pub setting: SettingKey,
    /// The value it had before.
    pub old: Value,
    /// Why it was not restored.
    pub why: UnrestoredWhy,
}

impl Unrestored {
    /// The command to restore it by hand, if a common tool can.
    pub fn by_hand(&self) -> Option<String> {
        by_hand(&self.setting, &self.old)
    }
}

impl fmt::Display for Unrestored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting, old, why } = self;
        match why {
            UnrestoredWhy::Foreign { found } => write!(
                f,
                "{setting} is {found}: another program changed it, so it was not restored to {old}"
            ),
            UnrestoredWhy::Gone => write!(f, "{setting} was {old} and no longer exists"),
            UnrestoredWhy::Failed { reason } => {
                write!(f, "{setting} could not be restored to {old}: {reason}")
            }
        }
    }
}

/// Whether a setting belongs to a name, whatever has it: a VLAN device that is there, or not.
pub(super) fn is_by_name(key: &SettingKey) -> bool {
    matches!(key, SettingKey::Nic(_, NicKnob::VlanLink))
}

/// The setting `key` of a located subject.
pub(super) fn at(key: &SettingKey, place: &Located) -> Result<SettingKey, UnrestoredWhy> {
    match place {
        Located::Here => Ok(key.clone()),
        Located::Named(name) => Ok(key.of_interface(name)),
        Located::Gone => Err(UnrestoredWhy::Gone),
        Located::Lost(reason) => Err(UnrestoredWhy::Failed {
            reason: reason.clone(),
        }),
    }
}
