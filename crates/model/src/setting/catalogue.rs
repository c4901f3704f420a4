//! Properties of a setting: its values, its reversibility, its scope, and the kernel document that defines it. The
//! rows themselves are in `rows.rs`.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::applications::{application_words, parse_applications};
use super::discipline::Discipline;
use super::hash_key::{key_words, parse_key};
use super::link::LinkSpeed;
use super::of_host::{parse_table, round_words};
use super::priorities::{
    class_words, egress_words, parse_classes, parse_egress, parse_priorities, parse_rates,
    priority_words, rate_words,
};
use super::rows::CATALOGUE;
use super::{NicKnob, PolicyKnob, RdmaKnob, SettingError, SettingKey, Value, fold_blanks};
use crate::host::{Qdisc, QueueKind};
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
                "`prio-tc 0:0 1:1 ... tc-bw 0:40 1:60 ... tc-tsa 0:ets 1:strict ...`, each of all eight from 0 to 7"
            }
            Self::ClassRates => {
                "classes and bit/s, whole thousands, such as `0:10000000000`, or nothing: what is not named has no limit"
            }
            Self::Applications => {
                "the words of dcb-app(8), such as `ethtype-prio 0x8915:3 dscp-prio 26:3`, or nothing"
            }
            Self::HashKey => "bytes in hexadecimal such as `6d:5a:56`, of the NIC's key length",
            Self::LinkSpeed => {
                "`auto` with the modes that are offered, such as `auto 1000baseT/Full`, or Mb/s and duplex such as `1000 full`"
            }
            Self::Qdisc => {
                "`noqueue`, `mq`, `fq`, `fq_codel`, `pfifo_fast`, or in the words of tc(8) `tbf` with rate, burst, limit or latency, `htb` with default, rate, ceil, `mqprio` with num_tc, map, queues, hw, `ets`, `fq`, `fq_codel` with theirs"
            }
        }
    }
}

/// How a change is rolled back, and its effect on traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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

/// What linerate does with a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read, check and write it.
    Written,
    /// Read and check it; not writable yet.
    Judged,
    /// Read it and advise: it needs a reboot, or belongs to another program.
    Told,
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

/// One entry of the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettingSpec {
    /// The key with placeholders, `nic/NAME/feature/FEATURE`.
    pub pattern: &'static str,
    /// The type of its value.
    pub domain: Domain,
    /// Its reversibility.
    pub class: Class,
    /// Its scope.
    pub scope: Scope,
    /// What linerate does with it.
    pub access: Access,
    /// Its description, in one line.
    pub about: &'static str,
    /// The kernel document that defines it.
    pub source: &'static str,
}

impl SettingSpec {
    /// How its value is made persistent across reboots.
    pub fn keeping(&self) -> Keeping {
        match (self.access, self.scope, self.class) {
            (_, Scope::Trial, _) => Keeping::Never("it belongs to a measurement"),
            (Access::Told, _, Class::R4) => Keeping::CommandLine,
            (Access::Told, ..) => Keeping::Never("another program manages it"),
            (Access::Judged, ..) => Keeping::Never("it lasts as long as a process holds it"),
            // A pattern of the catalog.
            (Access::Written, ..) if self.pattern == "irq/NUMBER/cpus" => {
                Keeping::Never("interrupt numbers change at the next boot")
            }
            (Access::Written, ..) => Keeping::Persist,
        }
    }
}

impl SettingKey {
    /// The catalog's entry for this setting.
    pub fn spec(&self) -> &'static SettingSpec {
        let of_queue = |knob: &str| format!("nic/NAME/queue/QUEUE/{knob}");
        let pattern = match self {
            Self::Sysctl(name) if name.starts_with("net.") => "sysctl/net.NAME".to_owned(),
            Self::Sysctl(_) => "sysctl/NAME".to_owned(),
            Self::Block(_, knob) => Self::Block("NAME".to_owned(), *knob).to_string(),
            Self::RdmaDefaults(_) => "rdma/NAME/cm-defaults".to_owned(),
            Self::Rdma(_, _, RdmaKnob::DefaultGidType) => {
                "rdma/NAME/PORT/default-gid-type".to_owned()
            }
            Self::Rdma(_, _, RdmaKnob::DefaultRoceTos) => {
                "rdma/NAME/PORT/default-roce-tos".to_owned()
            }
            Self::ResumeLatency(_) => "cpu/CPU/resume-latency-us".to_owned(),
            Self::Online(_) => "cpu/CPU/online".to_owned(),
            Self::IrqCpus(_) => "irq/NUMBER/cpus".to_owned(),
            Self::Policy(_, PolicyKnob::Governor) => "cpu/POLICY/governor".to_owned(),
            Self::Policy(_, PolicyKnob::EnergyPreference) => {
                "cpu/POLICY/energy-preference".to_owned()
            }
            Self::Machine(_) | Self::Trial(_) => self.to_string(),
            Self::Nic(_, knob) => match knob {
                NicKnob::Feature(_) => "nic/NAME/feature/FEATURE".to_owned(),
                NicKnob::PrivateFlag(_) => "nic/NAME/private-flag/FLAG".to_owned(),
                NicKnob::RssFields(_) => "nic/NAME/rss/fields/KIND".to_owned(),
                NicKnob::Aspm(_) => "nic/NAME/pci/STATE".to_owned(),
                NicKnob::IrqCpus(..) => of_queue("irq-cpus"),
                NicKnob::QueueUsecs(QueueKind::Rx, _) => of_queue("rx-usecs"),
                NicKnob::QueueUsecs(QueueKind::Tx, _) => of_queue("tx-usecs"),
                NicKnob::QueueFrames(QueueKind::Rx, _) => of_queue("rx-frames"),
                NicKnob::QueueFrames(QueueKind::Tx, _) => of_queue("tx-frames"),
                NicKnob::QueueAdaptive(QueueKind::Rx, _) => of_queue("adaptive-rx"),
                NicKnob::QueueAdaptive(QueueKind::Tx, _) => of_queue("adaptive-tx"),
                NicKnob::RpsCpus(_) => of_queue("rps-cpus"),
                NicKnob::RpsFlowCnt(_) => of_queue("rps-flow-cnt"),
                NicKnob::XpsCpus(_) => of_queue("xps-cpus"),
                NicKnob::XpsRxqs(_) => of_queue("xps-rxqs"),
                plain => format!("nic/NAME/{plain}"),
            },
        };
        CATALOGUE
            .iter()
            .find(|spec| spec.pattern == pattern)
            .expect("the test `every_key_has_an_entry` walks every variant")
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
                    let asked = Discipline::parse(words).ok_or_else(wrong)?;
                    Ok(Value::Qdisc(Qdisc::asked(&asked)))
                }
            },
            Domain::Text if text.contains(['\n', '\0']) => Err(wrong()),
            Domain::Text => Ok(Value::Text(fold_blanks(text))),
        }
    }
}
