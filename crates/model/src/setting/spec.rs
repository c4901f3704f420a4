//! What a row of the catalog holds: the key, the type of the values, reversibility, scope, how it is read and written,
//! what a write changes in addition, the command by hand, and the kernel document that defines it. The rows themselves
//! are in `rows/`.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::addresses::{address_words, parse_addresses};
use super::applications::{application_words, parse_applications};
use super::class_rules::{class_rule_words, parse_class_rules};
use super::hash_key::{key_words, parse_key};
use super::link::LinkSpeed;
use super::priorities::{
    class_words, egress_words, parse_classes, parse_egress, parse_priorities, parse_rates,
    priority_words, rate_words,
};
use super::qdisc_spec::QdiscSpec;
use super::rows::{IRQ_CPUS, RDMA_DEFAULTS, SYSCTL, SYSCTL_NET};
use super::vlan_link::{parse_vlan_link, vlan_link_words};
use super::words::{parse_table, round_words};
use super::{Fact, Form, SettingError, SettingKey, Value, fold_blanks, path};
use crate::host::Qdisc;
use crate::ids::CpuSet;

/// The type of a setting's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    /// On or off.
    Switch,
    /// A whole number.
    Integer,
    /// Text as the kernel prints it.
    Text,
    /// A CPU set in list form; empty for none.
    Cpus,
    /// A qdisc.
    Qdisc,
    /// The receive queues of an RSS indirection table.
    Queues,
    /// A VLAN's egress map: the PCP of each socket priority. The kernel only adds and overwrites mappings: one that
    /// is left out is mapped to 0, which is equivalent.
    EgressMap,
    /// A list of priorities.
    Priorities,
    /// Traffic classes in dcb(8) syntax, all eight of them.
    Classes,
    /// Rate limits of traffic classes.
    ClassRates,
    /// A whole application priority table.
    Applications,
    /// An RSS hash key.
    HashKey,
    /// Autonegotiation or a forced speed.
    LinkSpeed,
    /// A VLAN device, or none.
    VlanLink,
    /// Static addresses with prefix lengths.
    Addresses,
    /// Which packets go to which class.
    ClassRules,
}

impl Domain {
    /// The accepted values, as text.
    pub fn expected(self) -> &'static str {
        match self {
            Self::Switch => "`on` or `off`",
            Self::Integer => "a whole number",
            Self::Text => "text without line breaks",
            Self::Cpus => "a CPU list such as `0-3,8`, or nothing",
            Self::Queues => "`equal N`, or queues such as `0 3` and `0x32 1x32`",
            Self::EgressMap => {
                "pairs `PRIORITY:PCP` such as `0:1 3:3`, or nothing: what is not named is sent with PCP 0"
            }
            Self::Priorities => "priorities from 0 to 7 such as `3 4`, or nothing",
            Self::Classes => {
                "`prio-tc 0:0 1:1 ... tc-bw 0:40 1:60 ... tc-tsa 0:ets 1:strict ...`, each of all eight from 0 to 7, or `tc 0 prio 0 1 ets 40; tc 1 prio 2 3 4 5 6 7 strict`"
            }
            Self::ClassRates => {
                "a rate for each class such as `1gbit 5gbit none`, or classes and bit/s such as `0:10000000000`, whole kbit/s, or nothing: what is not named has no limit"
            }
            Self::Applications => {
                "the words of dcb-app(8), such as `ethtype-prio 0x8915:3 dscp-prio 26:3`, or nothing"
            }
            Self::VlanLink => "a parent and a VLAN ID such as `eth1 id 10`, or `none`",
            Self::Addresses => {
                "addresses with prefix length such as `12.0.10.2/24 2001:db8::1/64`, or `none`"
            }
            Self::ClassRules => {
                "at most 48 rules such as `priority 1 -> 1:10; vlan 10 -> 1:20; dscp af21 -> 1:20; port 5001 -> 1:30; mark 1 -> 1:30`, or `none`"
            }
            Self::HashKey => "bytes in hexadecimal such as `6d:5a:56`, of the NIC's key length",
            Self::LinkSpeed => {
                "`auto` with the modes that are offered, such as `auto 1000baseT/Full`, or Mb/s and duplex such as `1000 full`"
            }
            Self::Qdisc => {
                "`noqueue`, `mq`, `fq`, `fq_codel`, `pfifo_fast`, or in the words of tc(8) `tbf` with rate, burst, limit or latency, `htb` with default and rate, or with `class MINOR parent MINOR rate RATE ceil RATE ... leaf KIND ...` for each class, `mqprio` with num_tc, map, queues, hw, mode, shaper, min_rate, max_rate, `ets`, `fq`, `fq_codel`, `pfifo`, `bfifo` with theirs; `mq` and `mqprio` with `leaf QUEUE KIND ...`"
            }
        }
    }
}

/// How a change is rolled back, and its effect on traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Class {
    /// Released by closing a descriptor or ending the program.
    R0,
    /// Instant, no effect on traffic.
    R1,
    /// A short stall, drops or queue re-allocation.
    R2,
    /// The link drops, or both ends must change.
    R3,
    /// Needs a driver reload, reboot or firmware.
    R4,
    /// Not reversible until reboot.
    R5,
}

impl Class {
    /// What the change disturbs, or why it is hard to roll back.
    pub fn words(self) -> &'static str {
        match self {
            Self::R0 => "ends with the program",
            Self::R1 => "no effect on traffic",
            Self::R2 => "short stall or drops",
            Self::R3 => "link drops, or both ends must change",
            Self::R4 => "needs a driver reload, reboot or firmware",
            Self::R5 => "not reversible until reboot",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// The scope of a setting. Two ends on one kernel share the machine-wide settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The measurement only.
    Trial,
    /// One network namespace.
    Netns,
    /// The whole machine.
    Machine,
}

/// How a setting is read and written: the host dispatches on this, not on the setting.
#[derive(Debug, Clone, Copy)]
pub enum Access {
    /// A file. Its path has the placeholders of the key.
    File(&'static str, Form),
    /// A file whose path depends on the machine: a sysctl, an interrupt, an NVMe subsystem.
    FoundFile,
    /// One attribute of an ethtool request.
    Ethtool(EthtoolRequest, u16),
    /// One 32-bit attribute of a link (rtnetlink).
    Link(u16),
    /// Another request about an interface, by code that knows the setting.
    Netlink,
    /// Whether a directory exists. Its path has the placeholders of the key.
    Folder(&'static str),
    /// The irqbalance daemon, by signals and its socket.
    Irqbalance,
    /// The measurement's own.
    Trial,
    /// Read and checked; it lasts as long as a process holds it.
    Held,
    /// Only reported: it needs a reboot, or belongs to another program. What to do instead.
    Reported(&'static str),
}

impl Access {
    /// Whether linerate writes it.
    pub fn is_written(self) -> bool {
        !matches!(self, Self::Held | Self::Reported(_))
    }
}

/// An ethtool request with single-valued attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EthtoolRequest {
    /// `ETHTOOL_MSG_LINKMODES_SET`.
    LinkModes,
    /// `ETHTOOL_MSG_RINGS_SET`.
    Rings,
    /// `ETHTOOL_MSG_CHANNELS_SET`.
    Channels,
    /// `ETHTOOL_MSG_COALESCE_SET`.
    Coalesce,
    /// `ETHTOOL_MSG_PAUSE_SET`.
    Pause,
    /// `ETHTOOL_MSG_EEE_SET`.
    Eee,
}

/// The command that sets a value by hand. Files have one without this.
#[derive(Debug, Clone, Copy)]
pub enum ByHand {
    /// None, or that of the file or directory.
    Nothing,
    /// A command whose words VALUE, MASK (of a queue) and the key's placeholders are replaced.
    Command(&'static str),
    /// A command that depends on the value.
    Code(fn(&SettingKey, &Value) -> Option<String>),
}

/// The other settings that a write may change: these are recorded before, and restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effects {
    /// None.
    Nothing,
    /// Other settings of the same subject, by their patterns.
    Siblings(&'static [&'static str]),
    /// The features of the interface.
    Features,
    /// Its features, and its IPv6 MTU.
    Mtu,
    /// Everything of a device that is removed with it, sysctls too.
    Device,
    /// Its queues and their settings.
    Queues,
    /// The same, and the interrupt coalescing of each queue.
    Channels,
    /// Its interrupt coalescing, of all queues and of each.
    Coalescing,
    /// The interrupt coalescing of a queue, and what is shown for all.
    QueueCoalescing,
    /// Pause frames, unless they are autonegotiated.
    Pause,
    /// The queues that share an interrupt.
    Interrupt,
    /// What goes offline and online with SMT siblings.
    Smt,
    /// What moves off a CPU that goes offline.
    Offline,
    /// For a few sysctls, others.
    Sysctl,
}

/// How a value is made persistent across reboots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeping {
    /// `tune persist`: set again at every boot, with automatic rollback.
    Persist,
    /// On the kernel command line.
    CommandLine,
    /// Not persistent, for this reason.
    Never(&'static str),
}

/// One row of the catalog: everything that is known of a setting.
#[derive(Debug, Clone, Copy)]
pub struct SettingSpec {
    /// The key with placeholders, `nic/NAME/feature/FEATURE`.
    pub pattern: &'static str,
    /// Its description, in one line.
    pub about: &'static str,
    /// The type of its value.
    pub domain: Domain,
    /// Its reversibility.
    pub class: Class,
    /// Its scope.
    pub scope: Scope,
    /// How it is read and written.
    pub access: Access,
    /// How it is set by hand.
    pub by_hand: ByHand,
    /// Its place in a host's description.
    pub fact: Fact,
    /// The other settings that a write may change.
    pub effects: Effects,
    /// Whether drivers or the kernel round the value to what they support.
    pub is_rounded: bool,
    /// How its value is made persistent across reboots.
    pub keeping: Keeping,
    /// The kernel document that defines it.
    pub source: &'static str,
}

impl SettingSpec {
    /// A key of this setting, for tests: `nic/eth2/queue/rx-0/rps-cpus`.
    pub fn example(&self) -> String {
        let word = |placeholder: &str| match (placeholder, self.pattern) {
            ("NAME", "sysctl/net.NAME") => "core.somaxconn",
            ("NAME", "sysctl/NAME") => "vm.swappiness",
            ("NAME", _) => "eth2",
            ("FEATURE", _) => "tx-tcp-segmentation",
            ("FLAG", _) => "rx_cqe_compress",
            ("KIND", _) => "udp4",
            ("STATE", _) => "l1-aspm",
            ("QUEUE", _) => "tx-3",
            ("CPU", _) => "cpu3",
            ("POLICY", _) => "policy0",
            _ => "1",
        };
        path::filled(self.pattern, |placeholder| {
            Some(word(placeholder).to_owned())
        })
    }
}

/// A row is named by its pattern.
impl PartialEq for SettingSpec {
    fn eq(&self, other: &Self) -> bool {
        self.pattern == other.pattern
    }
}

impl Eq for SettingSpec {}

impl SettingKey {
    /// The row of this setting.
    pub fn spec(&self) -> &'static SettingSpec {
        match self {
            Self::Sysctl(name) if name.starts_with("net.") => &SYSCTL_NET,
            Self::Sysctl(_) => &SYSCTL,
            Self::Nic(_, knob) => knob.spec(),
            Self::Machine(knob) => knob.spec(),
            Self::Cpu(_, knob) => knob.spec(),
            Self::IrqCpus(_) => &IRQ_CPUS,
            Self::Policy(_, knob) => knob.spec(),
            Self::Block(_, knob) => knob.spec(),
            Self::RdmaDefaults(_) => &RDMA_DEFAULTS,
            Self::Rdma(_, _, knob) => knob.spec(),
            Self::Trial(knob) => knob.spec(),
        }
    }

    /// Parses a value as users write it (`on`, `4096`, `0-3`, `4096 131072 6291456`).
    pub fn parse_value(&self, text: &str) -> Result<Value, SettingError> {
        let domain = self.spec().domain;
        let wrong = || SettingError::Value {
            key: self.to_string(),
            value: text.to_owned(),
            expected: domain.expected(),
        };
        match domain {
            Domain::Switch => match text.trim() {
                "on" | "true" | "1" => Ok(Value::Switch(true)),
                "off" | "false" | "0" => Ok(Value::Switch(false)),
                _ => Err(wrong()),
            },
            Domain::Integer => text.trim().parse().map(Value::Integer).map_err(|_| wrong()),
            Domain::Cpus => {
                let set: CpuSet = text.parse().map_err(|_| wrong())?;
                Ok(Value::Text(set.to_string()))
            }
            Domain::Queues => {
                let table = parse_table(text.trim()).ok_or_else(wrong)?;
                Ok(Value::Text(round_words(&table)))
            }
            Domain::EgressMap => {
                let map = parse_egress(text).ok_or_else(wrong)?;
                Ok(Value::Text(egress_words(&map)))
            }
            Domain::Priorities => {
                let mask = parse_priorities(text).ok_or_else(wrong)?;
                Ok(Value::Text(priority_words(mask.into())))
            }
            Domain::Classes => {
                let classes = parse_classes(text).ok_or_else(wrong)?;
                Ok(Value::Text(class_words(&classes)))
            }
            Domain::ClassRates => {
                let rates = parse_rates(text).ok_or_else(wrong)?;
                Ok(Value::Text(rate_words(&rates)))
            }
            Domain::Applications => {
                let table = parse_applications(text).ok_or_else(wrong)?;
                Ok(Value::Text(application_words(&table)))
            }
            Domain::VlanLink | Domain::Addresses | Domain::ClassRules => {
                words_of(domain, text).map(Value::Text).ok_or_else(wrong)
            }
            Domain::HashKey => {
                let key = parse_key(text.trim()).ok_or_else(wrong)?;
                Ok(Value::Text(key_words(&key)))
            }
            Domain::LinkSpeed => {
                let speed = LinkSpeed::parse(text).ok_or_else(wrong)?;
                Ok(Value::Text(speed.to_string()))
            }
            Domain::Qdisc => match text.trim() {
                kind @ ("noqueue" | "mq" | "fq" | "fq_codel" | "pfifo_fast") => {
                    Ok(Value::Qdisc(Qdisc::plain(kind)))
                }
                words => {
                    let asked = QdiscSpec::parse(words).ok_or_else(wrong)?;
                    Ok(Value::Qdisc(Qdisc::asked(&asked)))
                }
            },
            Domain::Text if text.contains(['\n', '\0']) => Err(wrong()),
            Domain::Text => Ok(Value::Text(fold_blanks(text))),
        }
    }
}

/// A device, addresses or rules as they are printed.
fn words_of(domain: Domain, text: &str) -> Option<String> {
    match domain {
        Domain::VlanLink => parse_vlan_link(text).map(|link| vlan_link_words(link.as_ref())),
        Domain::Addresses => parse_addresses(text).map(|all| address_words(&all)),
        _ => parse_class_rules(text).map(|rules| class_rule_words(&rules)),
    }
}
