//! Where a setting is in a host's description: how it is read from a part of it, and set there. The host's reader
//! applies the same function to the same part as the kernel reports it, so that both give the same value.

use std::collections::BTreeMap;
use std::fmt;

use super::priorities::egress_words;
use super::{SettingKey, Value};
use crate::host::{
    BlockDevice, Channels, Coalesce, Cpu, Dcb, Eee, Feature, Fec, FrequencyPolicy, Host, LinkModes,
    Nic, Pause, Qdisc, Queue, QueueCoalesce, RdmaPort, Rings, Rss, Stack,
};
use crate::ids::CpuSet;
use crate::known::{Cause, Known};
use crate::units::Bytes;

/// The part of a host's description that has a setting, and its place in it.
#[derive(Debug, Clone, Copy)]
pub enum Fact {
    /// Reading a host does not read it.
    NotRead,
    /// A sysctl, by its name.
    Sysctl,
    /// The CPUs of an interrupt.
    Interrupt,
    /// Of the machine.
    Host(Field<Host>),
    /// Of a CPU.
    Cpu(Field<Cpu>),
    /// Of a cpufreq policy.
    Policy(Field<FrequencyPolicy>),
    /// Of a block device.
    Block(Field<BlockDevice>),
    /// Of a port of an RDMA device.
    RdmaPort(Field<RdmaPort>),
    /// Of an interface.
    Nic(Field<Nic>),
    /// Of an interface's relations to others.
    Stack(Field<Stack>),
    /// Of a queue.
    Queue(Field<Queue>),
    /// Of a queue's interrupt coalescing.
    QueueCoalesce(Field<QueueCoalesce>),
    /// Of interrupt coalescing.
    Coalesce(Field<Coalesce>),
    /// Of the ring sizes.
    Rings(Field<Rings>),
    /// Of the queue counts.
    Channels(Field<Channels>),
    /// Of link modes and speed.
    LinkModes(Field<LinkModes>),
    /// Of the pause parameters.
    Pause(Field<Pause>),
    /// Of energy-efficient Ethernet.
    Eee(Field<Eee>),
    /// Of forward error correction.
    Fec(Field<Fec>),
    /// Of DCB.
    Dcb(Field<Dcb>),
    /// Of RSS.
    Rss(Field<Rss>),
    /// Of the features, by name.
    Features(Field<BTreeMap<String, Feature>>),
    /// Of the private flags, by name.
    PrivateFlags(Field<BTreeMap<String, bool>>),
}

/// A value in a part `T` of a host's description.
pub struct Field<T> {
    read: fn(&T, &str) -> Known<Value>,
    put: fn(&mut T, &str, &Value) -> Option<()>,
}

impl<T> Clone for Field<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Field<T> {}

impl<T> fmt::Debug for Field<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Field").finish_non_exhaustive()
    }
}

impl<T> Field<T> {
    /// The value in `part`, of the setting whose key has the variable part `word`.
    pub fn read(self, part: &T, word: &str) -> Known<Value> {
        (self.read)(part, word)
    }

    /// Sets it there; none if it cannot be, or the value does not fit.
    pub(super) fn put(self, part: &mut T, word: &str, value: &Value) -> Option<()> {
        (self.put)(part, word, value)
    }
}

/// A value that is a member: `field!(coalesce.rx_usecs)`.
macro_rules! field {
    ($($member:ident).+) => {
        $crate::setting::fact::of(
            |part, _| $crate::setting::fact::Member::read(&part.$($member).+),
            |part, _, value| $crate::setting::fact::Member::put(&mut part.$($member).+, value),
        )
    };
}
pub(super) use field;

/// A value that is read and set by these.
pub(super) const fn of<T>(
    read: fn(&T, &str) -> Known<Value>,
    put: fn(&mut T, &str, &Value) -> Option<()>,
) -> Field<T> {
    Field { read, put }
}

/// A value that follows from others: it is not set in a description.
pub(super) const fn computed<T>(read: fn(&T, &str) -> Known<Value>) -> Field<T> {
    of(read, |_, _, _| None)
}

/// A member that has the value of a setting.
pub(super) trait Member {
    fn read(&self) -> Known<Value>;
    fn put(&mut self, value: &Value) -> Option<()>;
}

/// The members of a type: how a value is made of one, and one of a value.
macro_rules! members {
    ($($type:ty: $read:expr, $pattern:pat => $put:expr;)+) => {
        $(impl Member for Known<$type> {
            fn read(&self) -> Known<Value> {
                self.clone().map($read)
            }
            fn put(&mut self, value: &Value) -> Option<()> {
                let $pattern = value else {
                    return None;
                };
                *self = Known::Value($put);
                Some(())
            }
        })+
    };
}

members! {
    bool: Value::Switch, Value::Switch(on) => *on;
    u32: |count| Value::Integer(u64::from(count)), Value::Integer(count) => u32::try_from(*count).ok()?;
    u64: Value::Integer, Value::Integer(count) => *count;
    String: Value::Text, Value::Text(text) => text.clone();
    CpuSet: |cpus| Value::Text(cpus.to_string()), Value::Text(text) => text.parse().ok()?;
    Bytes: |size| Value::Integer(size.as_u64()), Value::Integer(bytes) => Bytes::new(*bytes);
    Qdisc: Value::Qdisc, Value::Qdisc(qdisc) => qdisc.clone();
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

/// A feature, by name.
pub(super) const FEATURE: Field<BTreeMap<String, Feature>> = of(
    |all, name| {
        let feature = all.get(name).map(|feature| feature.active);
        named_switch(feature, "the driver has no such feature")
    },
    |all, name, value| {
        let Value::Switch(on) = value else {
            return None;
        };
        all.get_mut(name)?.active = *on;
        Some(())
    },
);

/// A private flag, by name.
pub(super) const PRIVATE_FLAG: Field<BTreeMap<String, bool>> = of(
    |all, name| named_switch(all.get(name).copied(), "the driver has no such flag"),
    |all, name, value| {
        let Value::Switch(on) = value else {
            return None;
        };
        *all.get_mut(name)? = *on;
        Some(())
    },
);

pub(super) fn hash_fields(fields: &BTreeMap<String, String>, kind: &str) -> Known<Value> {
    let letters = fields.get(kind).cloned();
    letters.map_or_else(
        || absent("the driver hashes no such kind of flow"),
        known_text,
    )
}

pub(super) fn vlan_egress(stack: &Stack, _: &str) -> Known<Value> {
    let Some(vlan) = &stack.vlan else {
        return absent("the interface is not a VLAN");
    };
    part(&vlan.egress, |map| egress_text(map))
}

/// A VLAN's egress map as a value.
pub fn egress_text(map: &[(u32, u32)]) -> Known<Value> {
    known_text(egress_words(&map.iter().copied().collect()))
}

pub(super) fn bond_hash_policy(stack: &Stack, _: &str) -> Known<Value> {
    let policy = stack.bond.as_ref().map(|bond| bond.hash_policy.read());
    policy.unwrap_or_else(|| absent("the interface is not a bond"))
}

pub(super) fn ipoib_mode(stack: &Stack, _: &str) -> Known<Value> {
    let mode = stack.ipoib_mode.as_ref().map(Member::read);
    mode.unwrap_or_else(|| absent("not an IPoIB interface"))
}

pub(super) fn aspm(nic: &Nic, state: &str) -> Known<Value> {
    part(&nic.pci, |pci| {
        let file = state.replace('-', "_");
        part(&pci.aspm, |on| {
            Known::Value(Value::Switch(on.contains(&file)))
        })
    })
}
