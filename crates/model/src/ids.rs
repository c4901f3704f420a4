//! Names of things on a host, validated on construction.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {what}: {why}")]
pub struct IdError {
    /// The text as it was given.
    pub text: String,
    /// The kind of name that was asked for.
    pub what: &'static str,
    /// What is wrong with it.
    pub why: &'static str,
}

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

number_id!(
    /// A logical CPU, as in `/sys/devices/system/cpu/cpuN`.
    CpuId
);
number_id!(
    /// A NUMA node, as in `/sys/devices/system/node/nodeN`.
    NodeId
);
number_id!(
    /// An interrupt, as in `/proc/irq/N`.
    IrqNumber
);

/// A set of CPUs. Text form: the kernel's list format, `0-5,12`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CpuSet(BTreeSet<u32>);

impl CpuSet {
    /// The largest CPU number accepted, twice what any Linux kernel is built for; it bounds what a
    /// hostile list such as `0-4294967295` can make us allocate.
    pub const CPU_MAX: u32 = 16_383;

    /// No CPU.
    pub const fn empty() -> Self {
        Self(BTreeSet::new())
    }
    /// One CPU.
    pub fn one(cpu: CpuId) -> Self {
        Self(BTreeSet::from([cpu.0]))
    }
    /// Whether it holds no CPU.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// How many CPUs it holds.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether `cpu` is in it.
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.0.contains(&cpu.0)
    }
    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.0.iter().copied().map(CpuId)
    }
    /// The lowest CPU.
    pub fn first(&self) -> Option<CpuId> {
        self.0.first().copied().map(CpuId)
    }
    /// Whether every CPU of `self` is in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }
    /// Whether the two have no CPU in common.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.0.is_disjoint(&other.0)
    }
    /// The CPUs of `self` that are not in `other`.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }
    /// The CPUs in both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    /// Reads the kernel's mask format, `0000ff00,00000001`: hexadecimal groups of up to 8 digits, the
    /// most significant first.
    pub fn from_mask(text: &str) -> Result<Self, IdError> {
        let wrong = |why| IdError {
            text: text.to_owned(),
            what: "CPU mask",
            why,
        };
        let mut cpus = BTreeSet::new();
        for (group, digits) in text.trim().rsplit(',').enumerate() {
            if digits.is_empty() || digits.len() > 8 {
                return Err(wrong("a group has one to eight hexadecimal digits"));
            }
            let bits = u32::from_str_radix(digits, 16).map_err(|_| wrong("not hexadecimal"))?;
            for bit in (0..32).filter(|bit| bits >> bit & 1 == 1) {
                let cpu = u32::try_from(group)
                    .ok()
                    .and_then(|g| g.checked_mul(32)?.checked_add(bit));
                match cpu {
                    Some(cpu) if cpu <= Self::CPU_MAX => cpus.insert(cpu),
                    _ => return Err(wrong("a CPU number is larger than 16383")),
                };
            }
        }
        Ok(Self(cpus))
    }

    /// Writes the kernel's mask format, as `rps_cpus` and `xps_cpus` take it; `0` for no CPU.
    pub fn to_mask(&self) -> String {
        let groups = self.0.last().map_or(1, |last| last / 32 + 1);
        let words: Vec<String> = (0..groups)
            .rev()
            .map(|group| {
                let bits = self.0.range(group * 32..group * 32 + 32);
                let word = bits.fold(0u32, |word, cpu| word | 1 << (cpu % 32));
                if group + 1 == groups {
                    format!("{word:x}")
                } else {
                    format!("{word:08x}")
                }
            })
            .collect();
        words.join(",")
    }
}

impl FromIterator<CpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        Self(cpus.into_iter().map(|cpu| cpu.0).collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.0.iter().copied().peekable();
        let mut separator = "";
        while let Some(start) = cpus.next() {
            let mut end = start;
            while cpus.peek() == Some(&(end + 1)) {
                end += 1;
                cpus.next();
            }
            match end - start {
                0 => write!(f, "{separator}{start}")?,
                _ => write!(f, "{separator}{start}-{end}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl FromStr for CpuSet {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let wrong = |why| IdError {
            text: text.to_owned(),
            what: "CPU list",
            why,
        };
        let number = |digits: &str| match digits.parse::<u32>() {
            Ok(cpu) if cpu <= Self::CPU_MAX => Ok(cpu),
            Ok(_) => Err(wrong("a CPU number is larger than 16383")),
            Err(_) => Err(wrong("expected numbers and ranges such as `0-5,12`")),
        };
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
            let (start, end) = part.split_once('-').unwrap_or((part, part));
            let (start, end) = (number(start)?, number(end)?);
            if end < start {
                return Err(wrong("a range ends before it starts"));
            }
            cpus.extend(start..=end);
        }
        Ok(Self(cpus))
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A PCI function's address, `0000:16:00.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// PCI domain (segment).
    pub domain: u32,
    /// Bus number.
    pub bus: u8,
    /// Device number, 0 to 31.
    pub device: u8,
    /// Function number, 0 to 7.
    pub function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

impl FromStr for PciAddress {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let wrong = || IdError {
            text: text.to_owned(),
            what: "PCI address",
            why: "expected domain:bus:device.function such as `0000:16:00.0`",
        };
        let hex = |digits: &str, most: usize| {
            let plain = !digits.is_empty()
                && digits.len() <= most
                && digits.bytes().all(|b| b.is_ascii_hexdigit());
            if plain {
                u32::from_str_radix(digits, 16).map_err(|_| wrong())
            } else {
                Err(wrong())
            }
        };
        let (domain, rest) = text.split_once(':').ok_or_else(wrong)?;
        let (bus, rest) = rest.split_once(':').ok_or_else(wrong)?;
        let (device, function) = rest.split_once('.').ok_or_else(wrong)?;
        let byte = |digits, most, limit: u32| {
            let value = hex(digits, most)?;
            if value > limit {
                Err(wrong())
            } else {
                u8::try_from(value).map_err(|_| wrong())
            }
        };
        Ok(Self {
            domain: hex(domain, 8)?,
            bus: byte(bus, 2, 255)?,
            device: byte(device, 2, 31)?,
            function: byte(function, 1, 7)?,
        })
    }
}

impl Serialize for PciAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PciAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The name of a network interface, as the kernel allows it: 1 to 15 bytes, no slash, no white space,
/// not `.` or `..` (`dev_valid_name` in net/core/dev.c).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct NicName(String);

impl NicName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for NicName {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let wrong = |why| {
            Err(IdError {
                text: text.to_owned(),
                what: "network interface name",
                why,
            })
        };
        if text.is_empty() || text.len() > 15 {
            return wrong("it has 1 to 15 bytes");
        }
        if text == "."
            || text == ".."
            || text.contains(['/', ':'])
            || text.contains(char::is_whitespace)
        {
            return wrong("it holds no slash, colon or white space and is not `.` or `..`");
        }
        Ok(Self(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for NicName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_cpu_set() -> impl Strategy<Value = CpuSet> {
        proptest::collection::btree_set(0u32..2048, 0..64).prop_map(CpuSet)
    }

    proptest! {
        #[test]
        fn a_cpu_list_reads_back_as_it_was_written(set in any_cpu_set()) {
            prop_assert_eq!(set.to_string().parse::<CpuSet>(), Ok(set));
        }

        #[test]
        fn a_cpu_mask_reads_back_as_it_was_written(set in any_cpu_set()) {
            prop_assert_eq!(CpuSet::from_mask(&set.to_mask()), Ok(set));
        }

        #[test]
        fn a_pci_address_reads_back_as_it_was_written(
            domain in any::<u32>(), bus in any::<u8>(), device in 0u8..32, function in 0u8..8,
        ) {
            let address = PciAddress { domain, bus, device, function };
            prop_assert_eq!(address.to_string().parse::<PciAddress>(), Ok(address));
        }

        #[test]
        fn no_text_panics_a_parser(text in ".{0,40}") {
            let _ = text.parse::<CpuSet>();
            let _ = CpuSet::from_mask(&text);
            let _ = text.parse::<PciAddress>();
            let _ = text.parse::<NicName>();
        }
    }

    #[test]
    fn the_kernels_own_forms_are_read() {
        assert_eq!("0-5,12".parse::<CpuSet>().expect("a list").len(), 7);
        assert_eq!("".parse::<CpuSet>(), Ok(CpuSet::empty()));
        assert_eq!(
            CpuSet::from_mask("00000001,00000003")
                .expect("a mask")
                .to_string(),
            "0-1,32"
        );
        assert_eq!(
            "10000:16:00.0".parse::<PciAddress>().map(|a| a.to_string()),
            Ok("10000:16:00.0".to_owned())
        );
    }

    #[test]
    fn a_range_that_would_fill_memory_is_refused() {
        assert!("0-4294967295".parse::<CpuSet>().is_err());
    }
}
