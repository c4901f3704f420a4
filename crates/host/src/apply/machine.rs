//! The machine as a transaction sees it: settings that can be read and written, and what else moves
//! when one is written. One live implementation; the fakes are in [`super::fake`].

use std::rc::Rc;

use linerate_model::known::Known;
use linerate_model::setting::{SettingKey, Value};

use super::effects;
use super::settings::{self, WriteError};
use crate::nic_control::NicWrite;
use crate::root::LiveHost;

/// Settings that can be read and written.
pub trait Machine {
    /// The value that a setting has now.
    fn read(&self, key: &SettingKey) -> Known<Value>;
    /// Gives a setting a value; whether it took, a read tells.
    fn write(&self, key: &SettingKey, value: &Value) -> Result<(), WriteError>;
    /// The other settings that writing `key` may change: what is recorded before, and restored.
    fn disturbed_by(&self, key: &SettingKey) -> Vec<SettingKey>;
}

impl<M: Machine + ?Sized> Machine for &M {
    fn read(&self, key: &SettingKey) -> Known<Value> {
        (**self).read(key)
    }
    fn write(&self, key: &SettingKey, value: &Value) -> Result<(), WriteError> {
        (**self).write(key, value)
    }
    fn disturbed_by(&self, key: &SettingKey) -> Vec<SettingKey> {
        (**self).disturbed_by(key)
    }
}

impl<M: Machine + ?Sized> Machine for Box<M> {
    fn read(&self, key: &SettingKey) -> Known<Value> {
        (**self).read(key)
    }
    fn write(&self, key: &SettingKey, value: &Value) -> Result<(), WriteError> {
        (**self).write(key, value)
    }
    fn disturbed_by(&self, key: &SettingKey) -> Vec<SettingKey> {
        (**self).disturbed_by(key)
    }
}

impl<M: Machine + ?Sized> Machine for Rc<M> {
    fn read(&self, key: &SettingKey) -> Known<Value> {
        (**self).read(key)
    }
    fn write(&self, key: &SettingKey, value: &Value) -> Result<(), WriteError> {
        (**self).write(key, value)
    }
    fn disturbed_by(&self, key: &SettingKey) -> Vec<SettingKey> {
        (**self).disturbed_by(key)
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
}
