//! Simulated machines for tests of code that changes settings: one that holds settings in memory and follows a fault
//! plan, and a step counter that ends the process.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

use linerate_model::host::{Channels, Coalesce, Feature, NicKind, Qdisc, Rings};
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Known};
use linerate_model::setting::{NicKnob, SettingKey, Settings, Value};

use super::device::{self, Device};
use super::located::Located;
use super::machine::Machine;
use super::subject::Subject;
use super::write_error::WriteError;
use crate::netlink::Interface;
use crate::nic_control::{NicRead, NicValue, NicWrite};

/// What goes wrong, counted from the first write (0).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The n-th write fails.
    RefuseWrite(usize),
    /// The n-th write succeeds without effect.
    IgnoreWrite(usize),
    /// The first read after the n-th write returns this value.
    LieAfterWrite(usize, Value),
    /// Another process sets a value right after the n-th write.
    Foreign(usize, SettingKey, Value),
}

/// A machine with settings in memory. Writing a feature changes those that depend on it (see
/// [`FakeMachine::couple`]).
#[derive(Debug, Default)]
pub struct FakeMachine {
    requested: RefCell<Settings>,
    needs: Vec<(SettingKey, SettingKey)>,
    resets: Vec<(SettingKey, SettingKey, Value)>,
    faults: Vec<Fault>,
    writes: Cell<usize>,
    lie: RefCell<Option<(SettingKey, Value)>>,
    foreign: RefCell<Settings>,
    /// Its interfaces, and those that have moved to another network namespace.
    interfaces: RefCell<Vec<Interface>>,
    elsewhere: RefCell<Vec<Interface>>,
    devices_replaced: Cell<u32>,
}

impl FakeMachine {
    /// A machine with these settings that works correctly except for `faults`.
    pub fn new(settings: Settings, faults: Vec<Fault>) -> Self {
        let names: BTreeSet<&str> = settings.keys().filter_map(SettingKey::interface).collect();
        let made = names.into_iter().zip(2..).map(|(name, index)| Interface {
            index,
            name: name.parse().expect("the name of an interface"),
            address: Some(format!("02:00:00:00:00:{index:02x}")),
            kind: None,
        });
        Self {
            interfaces: RefCell::new(made.collect()),
            requested: RefCell::new(settings),
            faults,
            ..Self::default()
        }
    }

    /// Turns `key` off whenever `needed` is off, as the kernel does with segmentation and checksums; and on again
    /// with it, if it was requested.
    #[must_use]
    pub fn couple(mut self, key: SettingKey, needed: SettingKey) -> Self {
        self.needs.push((key, needed));
        self
    }

    /// Sets `victim` to this value whenever `key` is written, as the kernel does with the maps of queues when their
    /// number changes.
    #[must_use]
    pub fn reset(mut self, key: SettingKey, victim: SettingKey, value: Value) -> Self {
        self.resets.push((key, victim, value));
        self
    }

    /// All settings.
    pub fn settings(&self) -> Settings {
        let requested = self.requested.borrow();
        let all = requested.keys();
        all.filter_map(|key| Some((key.clone(), self.actual(&requested, key)?)))
            .collect()
    }

    /// Sets a value as another process.
    pub fn set(&self, key: &SettingKey, value: Value) {
        self.requested.borrow_mut().insert(key.clone(), value);
    }

    /// Removes a setting, as if its device were removed.
    pub fn remove(&self, key: &SettingKey) {
        self.requested.borrow_mut().remove(key);
    }

    /// Renames an interface; its settings are found under the new name.
    pub fn rename(&self, from: &str, to: &str) {
        let to: NicName = to.parse().expect("a name");
        let mut interfaces = self.interfaces.borrow_mut();
        for one in interfaces
            .iter_mut()
            .filter(|one| one.name.as_str() == from)
        {
            one.name = to.clone();
        }
        let renamed = |(key, value): (SettingKey, Value)| match key.interface() {
            Some(name) if name == from => (key.of_interface(&to), value),
            _ => (key, value),
        };
        let settings = self.requested.take();
        *self.requested.borrow_mut() = settings.into_iter().map(renamed).collect();
    }

    /// Removes an interface and creates another one with its name and the same values.
    pub fn make_again(&self, name: &str) {
        let mut interfaces = self.interfaces.borrow_mut();
        for one in interfaces
            .iter_mut()
            .filter(|one| one.name.as_str() == name)
        {
            one.index += 100;
            one.address = Some(format!("02:00:00:00:01:{:02x}", one.index));
        }
    }

    /// Replaces every other device by another one with its name and the same values.
    pub fn replace_devices(&self) {
        self.devices_replaced.set(self.devices_replaced.get() + 1);
    }

    /// Moves an interface to another network namespace, with its settings.
    pub fn move_away(&self, name: &str) {
        let mut interfaces = self.interfaces.borrow_mut();
        let (moved, stay) = interfaces
            .drain(..)
            .partition(|one| one.name.as_str() == name);
        *interfaces = stay;
        self.elsewhere.borrow_mut().extend::<Vec<_>>(moved);
    }

    /// Moves every interface back, with another index.
    pub fn move_back(&self) {
        let back = self.elsewhere.take().into_iter().map(|one| Interface {
            index: one.index + 50,
            ..one
        });
        self.interfaces.borrow_mut().extend(back);
    }

    /// Removes an interface with its settings.
    pub fn remove_interface(&self, name: &str) {
        self.interfaces
            .borrow_mut()
            .retain(|one| one.name.as_str() != name);
        self.requested
            .borrow_mut()
            .retain(|key, _| key.interface() != Some(name));
    }

    /// The values set by [`Fault::Foreign`] so far.
    pub fn foreign(&self) -> Settings {
        self.foreign.borrow().clone()
    }

    fn actual(&self, requested: &Settings, key: &SettingKey) -> Option<Value> {
        let value = requested.get(key)?.clone();
        let lacks = self.needs.iter().any(|(dependant, needed)| {
            dependant == key && requested.get(needed) == Some(&Value::Switch(false))
        });
        Some(if lacks { Value::Switch(false) } else { value })
    }
}

impl Machine for FakeMachine {
    fn read(&self, key: &SettingKey) -> Known<Value> {
        let mut lie = self.lie.borrow_mut();
        if let Some((_, value)) = lie.take_if(|(about, _)| about == key) {
            return Known::Value(value);
        }
        match self.actual(&self.requested.borrow(), key) {
            Some(value) => Known::Value(value),
            None => Known::unknown(Cause::Absent, key.to_string(), "not on this fake machine"),
        }
    }

    fn write(&self, key: &SettingKey, value: &Value) -> Result<(), WriteError> {
        let count = self.writes.replace(self.writes.get() + 1);
        let mut ignored = false;
        for fault in &self.faults {
            match fault {
                Fault::RefuseWrite(n) if *n == count => {
                    return Err(WriteError::Kernel {
                        setting: key.clone(),
                        value: Box::new(value.clone()),
                        path: "a fake machine".to_owned(),
                        source: io::Error::other("planned fault"),
                    });
                }
                Fault::IgnoreWrite(n) if *n == count => ignored = true,
                Fault::LieAfterWrite(n, lie) if *n == count => {
                    *self.lie.borrow_mut() = Some((key.clone(), lie.clone()));
                }
                _ => {}
            }
        }
        if !ignored {
            self.set(key, value.clone());
            for (_, victim, value) in self.resets.iter().filter(|(cause, ..)| cause == key) {
                self.set(victim, value.clone());
            }
        }
        for fault in &self.faults {
            if let Fault::Foreign(n, foreign, value) = fault
                && *n == count
            {
                self.set(foreign, value.clone());
                let mut all = self.foreign.borrow_mut();
                all.insert(foreign.clone(), value.clone());
            }
        }
        Ok(())
    }

    fn disturbed_by(&self, key: &SettingKey) -> Vec<SettingKey> {
        let SettingKey::Nic(nic, NicKnob::Feature(_)) = key else {
            let own = self.resets.iter().filter(|(cause, ..)| cause == key);
            return own.map(|(_, victim, _)| victim.clone()).collect();
        };
        let requested = self.requested.borrow();
        let features = requested.keys().filter(|other| {
            *other != key && matches!(other, SettingKey::Nic(n, NicKnob::Feature(_)) if n == nic)
        });
        features.cloned().collect()
    }

    fn subject(&self, key: &SettingKey) -> Option<Subject> {
        let Some(nic) = key.interface() else {
            let name = device::name_of(key)?;
            let known_by = self.devices_replaced.get().to_string();
            return Some(Subject::Device(Device { name, known_by }));
        };
        let all = self.interfaces.borrow();
        let named = all.iter().find(|one| one.name.as_str() == nic);
        named.cloned().map(Subject::Interface)
    }

    fn locate(&self, subject: &Subject) -> Located {
        match subject {
            Subject::Device(device)
                if device.known_by == self.devices_replaced.get().to_string() =>
            {
                Located::Here
            }
            Subject::Device(_) => Located::Gone,
            Subject::Interface(interface) => {
                let here = interface.among(&self.interfaces.borrow());
                let is_elsewhere = self.elsewhere.borrow().contains(interface);
                here.unwrap_or_else(|| {
                    if is_elsewhere {
                        Located::Lost("it is in another network namespace".to_owned())
                    } else {
                        Located::Gone
                    }
                })
            }
        }
    }
}

/// A machine that calls `death` at the n-th call (read or write, counted from 0), once before the call takes effect
/// (even steps) and once after it (odd steps).
pub struct Mortal<M, F> {
    machine: M,
    death: F,
    die_at: usize,
    step: Cell<usize>,
}

impl<M: std::fmt::Debug, F> std::fmt::Debug for Mortal<M, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mortal")
            .field("machine", &self.machine)
            .field("die_at", &self.die_at)
            .finish_non_exhaustive()
    }
}

impl<M, F: Fn()> Mortal<M, F> {
    /// `machine`, with `death` called at step `die_at`.
    pub fn new(machine: M, die_at: usize, death: F) -> Self {
        Self {
            machine,
            death,
            die_at,
            step: Cell::new(0),
        }
    }

    fn step(&self) {
        if self.step.replace(self.step.get() + 1) == self.die_at {
            (self.death)();
        }
    }
}

impl<M: Machine, F: Fn()> Machine for Mortal<M, F> {
    fn read(&self, key: &SettingKey) -> Known<Value> {
        self.step();
        let value = self.machine.read(key);
        self.step();
        value
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
        self.step();
        let written = self.machine.write_to(subject, key, value);
        self.step();
        written
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

/// Netlink of a machine without interfaces.
#[derive(Debug, Clone, Copy)]
pub struct NoNics;

fn no_nic<T>(nic: &NicName) -> Known<T> {
    Known::unknown(Cause::Absent, format!("nic/{nic}"), "no such interface")
}

impl NicRead for NoNics {
    fn kind(&self, nic: &NicName) -> Known<NicKind> {
        no_nic(nic)
    }
    fn addresses(&self, nic: &NicName) -> Known<Vec<String>> {
        no_nic(nic)
    }
    fn features(&self, nic: &NicName) -> Known<BTreeMap<String, Feature>> {
        no_nic(nic)
    }
    fn rings(&self, nic: &NicName) -> Known<Rings> {
        no_nic(nic)
    }
    fn channels(&self, nic: &NicName) -> Known<Channels> {
        no_nic(nic)
    }
    fn coalesce(&self, nic: &NicName) -> Known<Coalesce> {
        no_nic(nic)
    }
    fn qdisc(&self, nic: &NicName) -> Known<Qdisc> {
        no_nic(nic)
    }
}

fn no_device() -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::ENODEV))
}

impl NicWrite for NoNics {
    fn set_value(&self, _: &NicName, _: &NicValue<'_>) -> io::Result<()> {
        no_device()
    }
}
