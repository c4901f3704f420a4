//! Fault injection points, where a test may end the process or skip a step: every point at which a crash makes a
//! difference. Outside tests a transaction has no [`Faults`].

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use linerate_model::known::Known;
use linerate_model::setting::{SettingKey, Value};

use super::located::Located;
use super::machine::Machine;
use super::subject::Subject;
use super::write_error::WriteError;

/// A step of a writer, reported before it happens unless its name says otherwise.
#[derive(Debug, Clone, Copy)]
pub enum Moment<'a> {
    /// A record is written to the journal.
    Append,
    /// The record is synced to stable storage.
    Sync,
    /// This many bytes of the journal are on stable storage.
    Synced(&'a Path, u64),
    /// The record is on stable storage, and the reverter has it.
    Appended,
    /// A setting is written.
    Write,
    /// The setting was written.
    Written,
    /// A file that persists across reboots is created, named or removed, or a part of that is done.
    File,
}

/// A test's fault plan.
pub trait Faults: fmt::Debug + Send + Sync {
    /// Whether the step is done; may not return at all.
    fn lets(&self, moment: Moment<'_>) -> bool;
}

/// A machine whose writes pass the fault injection points.
#[derive(Debug)]
pub struct Faulty<M> {
    /// The machine.
    pub machine: M,
    /// The fault plan.
    pub faults: Arc<dyn Faults>,
}

impl<M: Machine> Machine for Faulty<M> {
    fn read(&self, key: &SettingKey) -> Known<Value> {
        self.machine.read(key)
    }
    fn write(&self, key: &SettingKey, value: &Value) -> Result<(), WriteError> {
        self.write_to(None, key, value)
    }
    fn write_to(
        &self,
        subject: Option<&Subject>,
        key: &SettingKey,
        value: &Value,
    ) -> Result<(), WriteError> {
        if !self.faults.lets(Moment::Write) {
            return Ok(());
        }
        let written = self.machine.write_to(subject, key, value);
        self.faults.lets(Moment::Written);
        written
    }
    fn lost_with(&self, key: &SettingKey, to: &Value) -> Option<String> {
        self.machine.lost_with(key, to)
    }
    fn disturbed_by(&self, key: &SettingKey) -> Vec<SettingKey> {
        self.machine.disturbed_by(key)
    }
    fn subject(&self, key: &SettingKey) -> Option<Subject> {
        self.machine.subject(key)
    }
    fn locate(&self, subject: &Subject) -> Located {
        self.machine.locate(subject)
    }
}
