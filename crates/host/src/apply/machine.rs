//! A transaction's view of the machine: settings that can be read and written, and the side effects of writes. There
//! is one live implementation; the fakes are in [`super::fake`].

use std::ops::Deref;

use linerate_model::known::Known;
use linerate_model::setting::{NicKnob, SettingKey, Value};

use super::effects;
use super::located::Located;
use super::nic_values;
use super::settings;
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
        if let SettingKey::Nic(_, NicKnob::VlanLink) = key {
            return self.write_link(subject, key, value);
        }
        if subject.is_some_and(|subject| !self.locate(subject).is_at(key)) {
            return Err(settings::is_of_another(key, value));
        }
        self.write(key, value)
    }
    /// Creates or removes the VLAN device of `key`. `subject` is the one that was removed, and need not exist.
    fn write_link(
        &self,
        _subject: Option<&Subject>,
        key: &SettingKey,
        value: &Value,
    ) -> Result<(), WriteError> {
        self.write(key, value)
    }
    /// What could not be restored after `key` was set to `to`; none if all could.
    fn lost_with(&self, _key: &SettingKey, _to: &Value) -> Option<String> {
        None
    }
    /// The other settings that writing `key` may change: these are recorded before, and restored.
    fn disturbed_by(&self, key: &SettingKey) -> Vec<SettingKey>;
    /// The identity of a setting's subject beyond its name; none if it cannot be determined.
    fn subject(&self, key: &SettingKey) -> Option<Subject>;
    /// Its current location.
    fn locate(&self, subject: &Subject) -> Located;
}

/// Through a reference, a `Box` or an `Rc`.
impl<P: Deref<Target: Machine>> Machine for P {
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
    fn lost_with(&self, key: &SettingKey, to: &Value) -> Option<String> {
        (**self).lost_with(key, to)
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
    fn write_link(
        &self,
        subject: Option<&Subject>,
        key: &SettingKey,
        value: &Value,
    ) -> Result<(), WriteError> {
        let SettingKey::Nic(nic, _) = key else {
            return self.write(key, value);
        };
        let index = match subject {
            Some(Subject::Interface(interface)) => Some(interface.index),
            _ => None,
        };
        nic_values::write_link(&*self.nics, key, nic, value, index)
    }
    fn lost_with(&self, key: &SettingKey, to: &Value) -> Option<String> {
        nic_values::lost_with(&*self.nics, key, to)
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
