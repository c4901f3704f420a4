//! The machine as a transaction sees it: settings that can be read and written, and what else moves
//! when one is written. One live implementation; the fakes are in [`super::fake`].

use std::rc::Rc;

use linerate_model::known::Known;
use linerate_model::setting::{SettingKey, Value};

use super::effects;
use super::located::Located;
use super::settings::{self};
use super::subject::Subject;
use super::write_error::WriteError;
use crate::nic_control::NicWrite;
use crate::root::LiveHost;

/// Settings that can be read and written.
pub trait Machine {
    /// The value that a setting has now.
    fn read(&self, key: &SettingKey) -> Known<Value>;
    /// Gives a setting a value; whether it took, a read tells.
    fn write(&self, key: &SettingKey, value: &Value) -> Result<(), WriteError>;
    /// The same, if `subject`, which the setting is of, still has the name that `key` says: otherwise another interface or
    /// device would be written to. Between this look and the write another one could still get the name, within
    /// microseconds.
    fn write_to(
        &self,
        subject: Option<&Subject>,
        key: &SettingKey,
        value: &Value,
    ) -> Result<(), WriteError> {
        if subject.is_some_and(|subject| !self.locate(subject).is_at(key)) {
            return Err(settings::is_of_another(key, value));
        }
        self.write(key, value)
    }
    /// The other settings that writing `key` may change: what is recorded before, and restored.
    fn disturbed_by(&self, key: &SettingKey) -> Vec<SettingKey>;
    /// What the setting is of, known by more than its name; none when that cannot be told.
    fn subject(&self, key: &SettingKey) -> Option<Subject>;
    /// Where that is now.
    fn locate(&self, subject: &Subject) -> Located;
}

impl<M: Machine + ?Sized> Machine for &M {
    fn read(&self, key: &SettingKey) -> Known<Value> {
        (**self).read(key)
    }
    fn write(&self, key: &SettingKey, value: &Value) -> Result<(), WriteError> {
        (**self).write(key, value)
    }
    fn write_to(
        &self,
        subject: Option<&Subject>,
        key: &SettingKey,
        value: &Value,
    ) -> Result<(), WriteError> {
        (**self).write_to(subject, key, value)
    }
    fn disturbed_by(&self, key: &SettingKey) -> Vec<SettingKey> {
        (**self).disturbed_by(key)
    }
    fn subject(&self, key: &SettingKey) -> Option<Subject> {
        (**self).subject(key)
    }
    fn locate(&self, subject: &Subject) -> Located {
        (**self).locate(subject)
    }
}

impl<M: Machine + ?Sized> Machine for Box<M> {
    fn read(&self, key: &SettingKey) -> Known<Value> {
        (**self).read(key)
    }
    fn write(&self, key: &SettingKey, value: &Value) -> Result<(), WriteError> {
        (**self).write(key, value)
    }
    fn write_to(
        &self,
        subject: Option<&Subject>,
        key: &SettingKey,
        value: &Value,
    ) -> Result<(), WriteError> {
        (**self).write_to(subject, key, value)
    }
    fn disturbed_by(&self, key: &SettingKey) -> Vec<SettingKey> {
        (**self).disturbed_by(key)
    }
    fn subject(&self, key: &SettingKey) -> Option<Subject> {
        (**self).subject(key)
    }
    fn locate(&self, subject: &Subject) -> Located {
        (**self).locate(subject)
    }
}

impl<M: Machine + ?Sized> Machine for Rc<M> {
    fn read(&self, key: &SettingKey) -> Known<Value> {
        (**self).read(key)
    }
    fn write(&self, key: &SettingKey, value: &Value) -> Result<(), WriteError> {
        (**self).write(key, value)
    }
    fn write_to(
        &self,
        subject: Option<&Subject>,
        key: &SettingKey,
        value: &Value,
    ) -> Result<(), WriteError> {
        (**self).write_to(subject, key, value)
    }
    fn disturbed_by(&self, key: &SettingKey) -> Vec<SettingKey> {
        (**self).disturbed_by(key)
    }
    fn subject(&self, key: &SettingKey) -> Option<Subject> {
        (**self).subject(key)
    }
    fn locate(&self, subject: &Subject) -> Located {
        (**self).locate(subject)
    }
}

/// The machine and network namespace that this thread is in.
pub struct LiveMachine {
    live: LiveHost,
    nics: Box<dyn NicWrite>,
}

impl LiveMachine {
    /// The machine behind `live`, its interfaces behind `nics`; both of the same namespace.
    pub fn new(live: LiveHost, nics: Box<dyn NicWrite>) -> Self {
        Self { live, nics }
    }
}

impl std::fmt::Debug for LiveMachine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveMachine").finish_non_exhaustive()
    }
}

impl Machine for LiveMachine {
    fn read(&self, key: &SettingKey) -> Known<Value> {
        settings::read(self.live.root(), &*self.nics, key)
    }
    fn write(&self, key: &SettingKey, value: &Value) -> Result<(), WriteError> {
        settings::write(&self.live, &*self.nics, key, value)
    }
    fn disturbed_by(&self, key: &SettingKey) -> Vec<SettingKey> {
        effects::disturbed_by(self.live.root(), &*self.nics, key)
    }
    fn subject(&self, key: &SettingKey) -> Option<Subject> {
        Subject::read(self.live.root(), key)
    }
    fn locate(&self, subject: &Subject) -> Located {
        subject.locate(self.live.root())
    }
}
