//! Where a setting is in a host's description: a function from a part of it to the setting's value. The host's reader
//! applies the same function to the same part as the kernel reports it, so that both give the same value.

use std::collections::BTreeMap;

use super::priorities::egress_words;
use super::{SettingKey, Value};
use crate::host::{
    BlockDevice, Channels, Coalesce, Cpu, Dcb, Eee, Feature, Fec, FrequencyPolicy, Host, LinkModes,
    Nic, Pause, Queue, QueueCoalesce, RdmaPort, Rings, Rss, Stack,
};
use crate::ids::CpuSet;
use crate::known::{Cause, Known};
use crate::units::Bytes;

/// The part of a host's description that has a setting, and how it is read from it.
#[derive(Debug, Clone, Copy)]
pub enum Fact {
    /// Reading a host does not read it.
    NotRead,
    /// A sysctl, by its name.
    Sysctl,
    /// The CPUs of an interrupt.
    Interrupt,
    /// Of the machine.
    Host(fn(&Host) -> Known<Value>),
    /// Of a CPU.
    Cpu(fn(&Cpu) -> Known<Value>),
    /// Of a cpufreq policy.
    Policy(fn(&FrequencyPolicy) -> Known<Value>),
    /// Of a block device.
    Block(fn(&BlockDevice) -> Known<Value>),
    /// Of a port of an RDMA device.
    RdmaPort(fn(&RdmaPort) -> Known<Value>),
    /// Of an interface.
    Nic(fn(&Nic) -> Known<Value>),
    /// Of an interface's PCIe link, with the variable part of the key.
    PciLink(fn(&Nic, &str) -> Known<Value>),
    /// Of an interface's relations to others.
    Stack(fn(&Stack) -> Known<Value>),
    /// Of a queue.
    Queue(fn(&Queue) -> Known<Value>),
    /// Of a queue's interrupt coalescing.
    QueueCoalesce(fn(&QueueCoalesce) -> Known<Value>),
    /// Of interrupt coalescing.
    Coalesce(fn(&Coalesce) -> Known<Value>),
    /// Of the ring sizes.
    Rings(fn(&Rings) -> Known<Value>),
    /// Of the queue counts.
    Channels(fn(&Channels) -> Known<Value>),
    /// Of link modes and speed.
    LinkModes(fn(&LinkModes) -> Known<Value>),
    /// Of the pause parameters.
    Pause(fn(&Pause) -> Known<Value>),
    /// Of energy-efficient Ethernet.
    Eee(fn(&Eee) -> Known<Value>),
    /// Of forward error correction.
    Fec(fn(&Fec) -> Known<Value>),
    /// Of DCB.
    Dcb(fn(&Dcb) -> Known<Value>),
    /// Of RSS, with the variable part of the key.
    Rss(fn(&Rss, &str) -> Known<Value>),
    /// Of the features, by name.
    Features(fn(&BTreeMap<String, Feature>, &str) -> Known<Value>),
    /// Of the private flags, by name.
    PrivateFlags(fn(&BTreeMap<String, bool>, &str) -> Known<Value>),
}

/// A value that the part does not have. [`Fact::named`] adds the setting.
pub(super) fn absent(reason: &str) -> Known<Value> {
    Known::unknown(Cause::Absent, String::new(), reason)
}

impl Fact {
    /// `value` of the setting `key`.
    pub fn named(value: Known<Value>, key: &SettingKey) -> Known<Value> {
        match value {
            Known::Unknown(mut gap) if gap.path.is_empty() => {
                gap.path = key.to_string();
                Known::Unknown(gap)
            }
            value => value,
        }
    }
}

/// A value that is a part of another.
pub(super) fn part<T>(whole: &Known<T>, of: impl FnOnce(&T) -> Known<Value>) -> Known<Value> {
    match whole {
        Known::Value(whole) => of(whole),
        Known::Unknown(gap) => Known::Unknown(gap.clone()),
    }
}

pub(super) fn count(number: &Known<u32>) -> Known<Value> {
    let number = number.clone();
    number.map(|number| Value::Integer(u64::from(number)))
}

pub(super) fn switch(on: &Known<bool>) -> Known<Value> {
    on.clone().map(Value::Switch)
}

pub(super) fn cpus(set: &Known<CpuSet>) -> Known<Value> {
    set.clone().map(|set| Value::Text(set.to_string()))
}

pub(super) fn text(word: &Known<String>) -> Known<Value> {
    word.clone().map(Value::Text)
}

pub(super) fn bytes(size: &Known<Bytes>) -> Known<Value> {
    size.clone().map(|size| Value::Integer(size.as_u64()))
}

pub(super) fn known_text(words: String) -> Known<Value> {
    Known::Value(Value::Text(words))
}

pub(super) fn words(numbers: &[u32]) -> String {
    let words: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    words.join(" ")
}

fn named_switch(on: Option<bool>, reason: &str) -> Known<Value> {
    on.map_or_else(|| absent(reason), |on| Known::Value(Value::Switch(on)))
}

pub(super) fn feature(all: &BTreeMap<String, Feature>, name: &str) -> Known<Value> {
    let feature = all.get(name).map(|feature| feature.active);
    named_switch(feature, "the driver has no such feature")
}

pub(super) fn private_flag(all: &BTreeMap<String, bool>, name: &str) -> Known<Value> {
    named_switch(all.get(name).copied(), "the driver has no such flag")
}

pub(super) fn hash_fields(fields: &BTreeMap<String, String>, kind: &str) -> Known<Value> {
    let letters = fields.get(kind).cloned();
    letters.map_or_else(
        || absent("the driver hashes no such kind of flow"),
        known_text,
    )
}

pub(super) fn vlan_egress(stack: &Stack) -> Known<Value> {
    let Some(vlan) = &stack.vlan else {
        return absent("the interface is not a VLAN");
    };
    part(&vlan.egress, |map| egress_text(map))
}

/// A VLAN's egress map as a value.
pub fn egress_text(map: &[(u32, u32)]) -> Known<Value> {
    known_text(egress_words(&map.iter().copied().collect()))
}

pub(super) fn bond_hash_policy(stack: &Stack) -> Known<Value> {
    let policy = stack.bond.as_ref().map(|bond| text(&bond.hash_policy));
    policy.unwrap_or_else(|| absent("the interface is not a bond"))
}

pub(super) fn ipoib_mode(stack: &Stack) -> Known<Value> {
    let mode = stack.ipoib_mode.as_ref().map(text);
    mode.unwrap_or_else(|| absent("the interface is not on InfiniBand"))
}

pub(super) fn aspm(nic: &Nic, state: &str) -> Known<Value> {
    part(&nic.pci, |pci| {
        let file = state.replace('-', "_");
        part(&pci.aspm, |on| {
            Known::Value(Value::Switch(on.contains(&file)))
        })
    })
}
