//! A transaction's view of the machine: settings that can be read and written, and the side effects of writes. There
//! is one live implementation; the fakes are in [`super::fake`].

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
    /// The current value of a setting.
    fn read(&self, key: &SettingKey) -> Known<Value>;
    /// Sets a value; the caller reads it back to verify.
    fn write(&self, key: &SettingKey, value: &Value) -> Result<(), WriteError>;
    /// The same, if `key`'s name still refers to `subject`: otherwise another interface or device would be changed.
    /// Between this check and the write, the name could still change owner, within microseconds.
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
    /// The other settings that writing `key` may change: these are recorded before, and restored.
    fn disturbed_by(&self, key: &SettingKey) -> Vec<SettingKey>;
    /// The identity of a setting's subject beyond its name; none if it cannot be determined.
    fn subject(&self, key: &SettingKey) -> Option<Subject>;
    /// Its current location.
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
    /// The machine behind `live`, with the interfaces behind `nics`; both in the same namespace.
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
