//! What the catalogue says of a setting: what it takes, how it can be taken back, what it belongs to, and the
//! kernel document that defines it. The rows themselves are in `rows.rs`.

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

/// What shape of value a setting takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    /// On or off.
    Switch,
    /// A whole number.
    Integer,
    /// Words as the kernel prints them.
    Text,
    /// A CPU set in list form; empty for none.
    Cpus,
    /// A queueing discipline.
    Qdisc,
    /// The receive queues that a hash's table goes round.
    Queues,
    /// The priority in the tag that each socket priority is sent with. The kernel only adds and overwrites
    /// mappings: one that is left out becomes one to 0, which is as good as none.
    EgressMap,
    /// Priorities by their numbers.
    Priorities,
    /// Traffic classes in the words of dcb(8), all eight of them.
    Classes,
    /// The most that each traffic class may send.
    ClassRates,
    /// A table of application priorities, whole.
    Applications,
    /// The bytes of a hash's key.
    HashKey,
    /// How a port comes to its speed.
    LinkSpeed,
}

impl Domain {
    /// What the domain takes, in words.
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

/// How a change is rolled back, and what it costs traffic.
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
    /// One way until reboot.
    R5,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// What a setting belongs to. Two ends on one kernel share the machine's settings.
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
    /// Reads it, judges it and writes it.
    Written,
    /// Reads and judges it, and cannot write it yet.
    Judged,
    /// Reads it and tells what to do: it takes another boot, or is somebody else's.
    Told,
}

/// How a value outlives a boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeping {
    /// `tune persist`: every boot sets it again, under a guard.
    Persist,
    /// It stands on the kernel's command line.
    CommandLine,
    /// Not at all, for this reason.
    Never(&'static str),
}

/// One entry of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettingSpec {
    /// The key with placeholders, `nic/NAME/feature/FEATURE`.
    pub pattern: &'static str,
    /// What value it takes.
    pub domain: Domain,
    /// How it can be taken back.
    pub class: Class,
    /// What it belongs to.
    pub scope: Scope,
    /// What linerate does with it.
    pub access: Access,
    /// What it does, in one line.
    pub about: &'static str,
    /// The kernel document that defines it.
    pub source: &'static str,
}

impl SettingSpec {
    /// How its value outlives a boot.
    pub fn keeping(&self) -> Keeping {
        match (self.access, self.scope, self.class) {
            (_, Scope::Trial, _) => Keeping::Never("it belongs to a measurement"),
            (Access::Told, _, Class::R4) => Keeping::CommandLine,
            (Access::Told, ..) => Keeping::Never("another program manages it"),
            (Access::Judged, ..) => Keeping::Never("it lasts as long as a process holds it"),
            // A pattern of the catalogue.
            (Access::Written, ..) if self.pattern == "irq/NUMBER/cpus" => {
                Keeping::Never("interrupt numbers change at the next boot")
            }
            (Access::Written, ..) => Keeping::Persist,
        }
    }
}

impl SettingKey {
    /// The catalogue's entry for this setting.
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

    /// Reads a value as people write it (`on`, `4096`, `0-3`, `4096 131072 6291456`).
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
