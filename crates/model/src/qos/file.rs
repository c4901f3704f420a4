//! A file of classes as a person writes it, and what it means.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{ClassVlan, Framing, Mechanism, Qos, QosClass, Rate, Selector, parse_dscp};
use crate::ids::NicName;
use crate::setting::qdisc_spec::parse_rate;
use crate::units::BitRate;

/// The highest priority of a VLAN tag, and of a traffic class (IEEE 802.1Q).
const PRIORITY_MAX: u8 = 7;
/// The highest VLAN ID; 0 and 4095 are reserved (IEEE 802.1Q).
const VLAN_MAX: u16 = 4094;
/// How many classes an interface may have: the numbers of their `htb` classes have two hexadecimal digits.
const CLASSES_MAX: usize = 64;
/// The lowest rate, bit/s: below it, one frame takes more than a second.
pub(super) const RATE_MIN: u64 = 8_000;
/// The longest name of a class.
const NAME_MAX: usize = 32;
/// The name of the class that has the rest, if the file has none.
const REST: &str = "rest";

/// The file as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct QosFile {
    /// What it is about.
    pub qos: WrittenQos,
    /// The classes of traffic.
    #[serde(default, rename = "class", skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<WrittenClass>,
}

/// The head of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct WrittenQos {
    /// A port or a bond.
    pub interface: String,
    /// Which bytes the limits count: `payload`, `frame` or `wire`.
    #[serde(default)]
    pub limit_of: Framing,
    /// `dcb`, `mqprio` or `htb`; by default, what fits the interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<Mechanism>,
}

/// A class as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WrittenClass {
    /// Its name: letters, digits, `-` and `_`.
    pub name: String,
    /// The VLAN that carries it, 1 to 4094; made if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// The name of the VLAN's device [default: `INTERFACE.VLAN`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The addresses of the VLAN's device with prefix length: one, or a list.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub address: OneOrMore,
    /// What it may send at most: `1gbit`, `5 %`, `none`.
    #[serde(default = "none", skip_serializing_if = "is_none")]
    pub limit: String,
    /// What it may send whatever the others do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<String>,
    /// The user priority (PCP) of its frames on a VLAN; without one, the socket priority of its packets. 0 to 7.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// The DSCP of its packets, by name or number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp: Option<Dscp>,
    /// The TCP and UDP ports of its packets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// The firewall mark of its packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<u32>,
}

fn none() -> String {
    "none".to_owned()
}

fn is_none(word: &str) -> bool {
    word == "none"
}

/// One text, or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum OneOrMore {
    /// One.
    One(String),
    /// Several.
    More(Vec<String>),
}

impl Default for OneOrMore {
    fn default() -> Self {
        Self::More(Vec::new())
    }
}

impl OneOrMore {
    fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// All of them.
    pub fn all(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::More(all) => all,
        }
    }
}

/// A code point as it is written: `"af21"` or 18.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Dscp {
    /// By number.
    Number(u8),
    /// By name.
    Name(String),
}

/// What is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QosError {
    /// The interface's name.
    #[error("`{0}` is not an interface name")]
    Interface(String),
    /// There are none.
    #[error("there is no class: add a table [[class]] with a name and a limit")]
    NoClass,
    /// There are more than an interface may have.
    #[error("there are {0} classes: at most {CLASSES_MAX} are possible")]
    TooMany(usize),
    /// Something of one class.
    #[error("class `{class}`: {why}")]
    Class {
        /// Its name.
        class: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// Two classes have the same.
    #[error("classes `{0}` and `{1}` have the same {2}")]
    Same(String, String, String),
    /// The guarantees are more than the line.
    #[error("the guarantees sum to {sum}, above the line's {line}")]
    Guarantees {
        /// All guarantees.
        sum: BitRate,
        /// The line's rate.
        line: BitRate,
    },
}

impl QosFile {
    /// What it means; the class of the rest is added if it has none.
    pub fn read(&self) -> Result<Qos, QosError> {
        let interface: NicName = self
            .qos
            .interface
            .parse()
            .map_err(|_| QosError::Interface(self.qos.interface.clone()))?;
        if self.classes.is_empty() {
            return Err(QosError::NoClass);
        }
        if self.classes.len() > CLASSES_MAX {
            return Err(QosError::TooMany(self.classes.len()));
        }
        let classes: Result<Vec<QosClass>, QosError> = self
            .classes
            .iter()
            .map(|class| class.read(&interface))
            .collect();
        let mut classes = classes?;
        refuse_what_is_twice(&classes)?;
        if !classes.iter().any(|class| class.selector == Selector::Rest) {
            classes.push(the_rest(&classes));
        }
        Ok(Qos {
            interface,
            limit_of: self.qos.limit_of,
            mechanism: self.qos.mechanism,
            classes,
        })
    }
}

/// The class of what belongs to no other, without a limit.
fn the_rest(classes: &[QosClass]) -> QosClass {
    let is_free = |name: &String| classes.iter().all(|class| class.name != *name);
    let mut names = (1..).map(|number: u32| match number {
        1 => REST.to_owned(),
        number => format!("{REST}-{number}"),
    });
    QosClass {
        name: names.find(is_free).unwrap_or_default(),
        selector: Selector::Rest,
        vlan: None,
        priority: None,
        limit: None,
        guarantee: None,
    }
}

impl WrittenClass {
    fn read(&self, interface: &NicName) -> Result<QosClass, QosError> {
        let wrong = |why: String| QosError::Class {
            class: self.name.clone(),
            why,
        };
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
        if self.name.is_empty() || self.name.len() > NAME_MAX || !self.name.bytes().all(plain) {
            return Err(wrong(format!(
                "its name may have 1 to {NAME_MAX} letters, digits, `-` and `_`"
            )));
        }
        if self
            .priority
            .is_some_and(|priority| priority > PRIORITY_MAX)
        {
            return Err(wrong(format!("a priority is 0 to {PRIORITY_MAX}")));
        }
        let limit = rate_of(&self.limit).map_err(|why| wrong(format!("its limit {why}")))?;
        let guarantee = match &self.guarantee {
            Some(words) => rate_of(words).map_err(|why| wrong(format!("its guarantee {why}")))?,
            None => None,
        };
        Ok(QosClass {
            name: self.name.clone(),
            selector: self.selector().map_err(wrong)?,
            vlan: self.vlan(interface).map_err(wrong)?,
            priority: self.priority,
            limit,
            guarantee,
        })
    }

    fn selector(&self) -> Result<Selector, String> {
        let mut found = Vec::new();
        if let Some(dscp) = &self.dscp {
            let number = match dscp {
                Dscp::Number(number) => parse_dscp(&number.to_string()),
                Dscp::Name(name) => parse_dscp(name),
            };
            let number =
                number.ok_or("a DSCP is 0 to 63, or a name such as `af21`, `ef`, `cs1`")?;
            found.push(Selector::Dscp(number));
        }
        if !self.ports.is_empty() {
            if self.ports.contains(&0) {
                return Err("a port is 1 to 65535".to_owned());
            }
            found.push(Selector::Ports(self.ports.clone()));
        }
        found.extend(self.mark.map(Selector::Mark));
        match (found.len(), self.vlan, self.priority) {
            (0, Some(_), _) => Ok(Selector::Vlan),
            (0, None, Some(priority)) => Ok(Selector::Priority(priority)),
            (0, None, None) => Ok(Selector::Rest),
            (1, None, None) => Ok(found.remove(0)),
            _ => Err(
                "one of `vlan` (with `priority` for its PCP), `priority`, `dscp`, `ports` and `mark` selects its traffic"
                    .to_owned(),
            ),
        }
    }

    fn vlan(&self, interface: &NicName) -> Result<Option<ClassVlan>, String> {
        let Some(id) = self.vlan else {
            return match (&self.device, self.address.is_empty()) {
                (None, true) => Ok(None),
                _ => Err("`device` and `address` are those of a `vlan`".to_owned()),
            };
        };
        if !(1..=VLAN_MAX).contains(&id) {
            return Err(format!("a VLAN ID is 1 to {VLAN_MAX}"));
        }
        let device = (self.device.clone()).unwrap_or_else(|| format!("{interface}.{id}"));
        let device = device.parse().map_err(|_| {
            format!("`{device}` is not an interface name; name the VLAN's device with `device`")
        })?;
        for address in self.address.all() {
            if !is_address(address) {
                return Err(format!(
                    "`{address}` is not an address with prefix length, such as 192.0.2.1/24"
                ));
            }
        }
        Ok(Some(ClassVlan {
            id,
            device,
            addresses: self.address.all().to_vec(),
        }))
    }
}

fn is_address(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let most = match address.parse() {
        Ok(IpAddr::V4(address)) if !address.is_unspecified() => 32,
        Ok(IpAddr::V6(address)) if !address.is_unspecified() => 128,
        _ => return false,
    };
    length
        .parse()
        .is_ok_and(|length: u8| (1..=most).contains(&length))
}

/// `1gbit`, `1Gb/s`, `5 %` or `none`.
fn rate_of(words: &str) -> Result<Option<Rate>, String> {
    let words = words.trim();
    if words == "none" {
        return Ok(None);
    }
    let wrong = || format!("`{words}` is not a rate: use `1gbit`, `5 %` or `none`");
    let rate = if let Some(share) = words.strip_suffix('%') {
        let parts = hundredths(share.trim()).ok_or_else(wrong)?;
        if parts > 10_000 {
            return Err(format!("`{words}` is above 100 % of the line"));
        }
        Rate::Share(parts)
    } else {
        let rate = parse_rate(words).or_else(|| words.parse().ok());
        Rate::Bits(rate.ok_or_else(wrong)?)
    };
    match rate {
        Rate::Share(0) => Err("is 0: a class that may send nothing is a firewall's".to_owned()),
        Rate::Bits(rate) if rate.as_bit_per_s() < RATE_MIN => Err(format!(
            "`{words}` is below 8 kbit/s, where one frame takes more than a second"
        )),
        rate => Ok(Some(rate)),
    }
}

/// A decimal number with at most two digits after its point, in hundredths.
fn hundredths(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if part.len() > 2 || !digits(part) || !digits(whole) {
        return None;
    }
    let part: u32 = format!("{part:0<2}").parse().ok()?;
    whole
        .parse::<u32>()
        .ok()?
        .checked_mul(100)?
        .checked_add(part)
}

fn refuse_what_is_twice(classes: &[QosClass]) -> Result<(), QosError> {
    let mut seen: Vec<(String, &str)> = Vec::new();
    for class in classes {
        for what in what_is_its_own(class) {
            if let Some((_, other)) = seen.iter().find(|(own, _)| *own == what) {
                return Err(QosError::Same(
                    (*other).to_owned(),
                    class.name.clone(),
                    what,
                ));
            }
            seen.push((what, &class.name));
        }
    }
    Ok(())
}

/// What no other class may have.
fn what_is_its_own(class: &QosClass) -> BTreeSet<String> {
    let mut own = BTreeSet::from([format!("name `{}`", class.name)]);
    own.extend(
        class
            .priority
            .map(|priority| format!("priority {priority}")),
    );
    if let Some(vlan) = &class.vlan {
        own.insert(format!("VLAN {}", vlan.id));
        own.insert(format!("device {}", vlan.device));
        own.extend(
            vlan.addresses
                .iter()
                .map(|address| format!("address {}", address.split('/').next().unwrap_or(address))),
        );
    }
    match &class.selector {
        Selector::Ports(ports) => own.extend(ports.iter().map(|port| format!("port {port}"))),
        Selector::Vlan | Selector::Priority(_) => {}
        other @ (Selector::Dscp(_) | Selector::Mark(_)) => {
            own.insert(other.to_string());
        }
        Selector::Rest => {
            own.insert("traffic: everything that no other class selects".to_owned());
        }
    }
    own
}
