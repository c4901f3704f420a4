//! The machine as a transaction sees it: settings that can be read and written, and what else moves
//! when one is written. One live implementation; the fakes are in [`super::fake`].

use std::rc::Rc;

use linerate_model::known::Known;
use linerate_model::setting::{SettingKey, Value};

use super::effects;
use super::interface::{Interface, Located};
use super::settings::{self, WriteError};
use crate::netlink;
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
    /// What the interface called `name` is known by; none when that cannot be told.
    fn interface(&self, name: &str) -> Option<Interface>;
    /// Where that interface is now.
    fn locate(&self, interface: &Interface) -> Located;
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
    fn interface(&self, name: &str) -> Option<Interface> {
        (**self).interface(name)
    }
    fn locate(&self, interface: &Interface) -> Located {
        (**self).locate(interface)
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
    fn interface(&self, name: &str) -> Option<Interface> {
        (**self).interface(name)
    }
    fn locate(&self, interface: &Interface) -> Located {
        (**self).locate(interface)
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
    fn interface(&self, name: &str) -> Option<Interface> {
        (**self).interface(name)
    }
    fn locate(&self, interface: &Interface) -> Located {
        (**self).locate(interface)
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
    fn interface(&self, name: &str) -> Option<Interface> {
        // Not by /sys, which may show another namespace's interfaces; a socket is always of this thread's own.
        let all = netlink::interfaces().ok()?;
        all.into_iter().find(|one| one.name.as_str() == name)
    }
    fn locate(&self, interface: &Interface) -> Located {
        match netlink::interfaces() {
            Ok(all) => interface
                .among(&all)
                .unwrap_or_else(|| interface.elsewhere()),
            Err(error) => Located::Lost(error.to_string()),
        }
    }
}
