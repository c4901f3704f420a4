//! Names of things on a host, validated on construction.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {what}: {why}")]
pub struct IdError {
    /// The text as it was given.
    pub text: String,
    /// The expected kind of name.
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
///
/// Stored like that form: first and last CPU of each range, ascending, with a gap between any two, so that equal sets
/// are equal lists. A host with a thousand CPUs has thousands of sets, most of them one range.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct CpuSet(Vec<(u32, u32)>);

impl CpuSet {
    /// The largest CPU number accepted, twice what any Linux kernel is built for; it limits how much memory an
    /// untrusted list such as `0-4294967295` can allocate.
    pub const CPU_MAX: u32 = 16_383;

    /// The empty set.
    pub const fn empty() -> Self {
        Self(Vec::new())
    }
    /// A set with one CPU.
    pub fn one(cpu: CpuId) -> Self {
        Self(vec![(cpu.0, cpu.0)])
    }
    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// The number of CPUs.
    pub fn len(&self) -> usize {
        let each = self
            .0
            .iter()
            .map(|(first, last)| (last - first) as usize + 1);
        each.sum()
    }
    /// Whether the set contains `cpu`.
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.within(cpu.0, cpu.0).next().is_some()
    }
    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.0
            .iter()
            .flat_map(|(first, last)| (*first..=*last).map(CpuId))
    }
    /// The lowest CPU.
    pub fn first(&self) -> Option<CpuId> {
        self.0.first().map(|(first, _)| CpuId(*first))
    }
    /// Whether `self` is a subset of `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        let mut own = self.0.iter();
        own.all(|(first, last)| other.within(*first, *last).next() == Some((*first, *last)))
    }
    /// Whether the sets are disjoint.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        let mut own = self.0.iter();
        own.all(|(first, last)| other.within(*first, *last).next().is_none())
    }
    /// The CPUs of `self` that are not in `other`.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        let mut left = Vec::new();
        for (first, last) in &self.0 {
            let mut from = Some(*first);
            for (start, end) in other.within(*first, *last) {
                if let Some(from) = from.filter(|from| *from < start) {
                    left.push((from, start - 1));
                }
                from = end.checked_add(1);
            }
            if let Some(from) = from.filter(|from| from <= last) {
                left.push((from, *last));
            }
        }
        Self(left)
    }
    /// The intersection.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let own = self.0.iter();
        Self(
            own.flat_map(|(first, last)| other.within(*first, *last))
                .collect(),
        )
    }

    /// Reads the kernel's mask format, `0000ff00,00000001`: hexadecimal groups of up to 8 digits, the
    /// most significant first.
    pub fn from_mask(text: &str) -> Result<Self, IdError> {
        let wrong = |why| IdError {
            text: text.to_owned(),
            what: "CPU mask",
            why,
        };
        let mut cpus = Self::empty();
        for (group, digits) in text.trim().rsplit(',').enumerate() {
            if digits.is_empty() || digits.len() > 8 {
                return Err(wrong("a group has one to eight hexadecimal digits"));
            }
            let mut bits = u32::from_str_radix(digits, 16).map_err(|_| wrong("not hexadecimal"))?;
            while bits != 0 {
                let start = bits.trailing_zeros();
                let end = start + (bits >> start).trailing_ones() - 1;
                let base = u32::try_from(group).ok().and_then(|g| g.checked_mul(32));
                match base.and_then(|base| base.checked_add(end)) {
                    Some(last) if last <= Self::CPU_MAX => cpus.add(last - (end - start), last),
                    _ => return Err(wrong("a CPU number is larger than 16383")),
                }
                // The bits above `end`; a shift by 32 would overflow.
                bits &= u32::MAX.checked_shl(end + 1).unwrap_or(0);
            }
        }
        Ok(cpus)
    }

    /// Writes the kernel's mask format, as `rps_cpus` and `xps_cpus` take it; `0` for no CPU.
    pub fn to_mask(&self) -> String {
        let groups = self.0.last().map_or(1, |(_, last)| last / 32 + 1);
        let words: Vec<String> = (0..groups)
            .rev()
            .map(|group| {
                let base = group * 32;
                let runs = self.within(base, base + 31);
                let word = runs.fold(0u32, |word, (first, last)| {
                    word | u32::MAX >> (31 - (last - first)) << (first - base)
                });
                if group + 1 == groups {
                    format!("{word:x}")
                } else {
                    format!("{word:08x}")
                }
            })
            .collect();
        words.join(",")
    }

    /// The part of `first` to `last` that is in the set, as ascending ranges.
    fn within(&self, first: u32, last: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let from = self.0.partition_point(|(_, end)| *end < first);
        let ranges = self.0.get(from..).unwrap_or_default().iter();
        ranges
            .take_while(move |(start, _)| *start <= last)
            .map(move |(start, end)| (*start.max(&first), *end.min(&last)))
    }

    /// Adds `first` to `last`. Fastest in ascending order.
    fn add(&mut self, first: u32, last: u32) {
        let touches = |end: u32, start: u32| end.checked_add(1).is_none_or(|next| next >= start);
        let from = match self.0.last() {
            Some((_, end)) if touches(*end, first) => {
                self.0.partition_point(|(_, end)| !touches(*end, first))
            }
            _ => self.0.len(),
        };
        let to = from
            + self
                .0
                .iter()
                .skip(from)
                .take_while(|(start, _)| touches(last, *start))
                .count();
        let merged = self.0.get(from..to).unwrap_or_default();
        let first = merged.first().map_or(first, |(start, _)| first.min(*start));
        let last = merged.last().map_or(last, |(_, end)| last.max(*end));
        self.0.splice(from..to, [(first, last)]);
    }
}

impl Ord for CpuSet {
    /// As lists of ascending CPUs.
    fn cmp(&self, other: &Self) -> Ordering {
        self.iter().cmp(other.iter())
    }
}

impl PartialOrd for CpuSet {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl FromIterator<CpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        let mut set = Self::empty();
        for cpu in cpus {
            set.add(cpu.0, cpu.0);
        }
        set
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (first, last) in &self.0 {
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
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
        let mut cpus = Self::empty();
        for part in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
            let (start, end) = part.split_once('-').unwrap_or((part, part));
            let (start, end) = (number(start)?, number(end)?);
            if end < start {
                return Err(wrong("a range ends before it starts"));
            }
            cpus.add(start, end);
        }
        Ok(cpus)
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
    /// An interface of a host that does not report its interfaces: the kernel allows this name, and nobody gives it.
    pub fn unheard() -> Self {
        Self("?".to_owned())
    }

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
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn of(numbers: &BTreeSet<u32>) -> CpuSet {
        numbers.iter().copied().map(CpuId).collect()
    }

    fn any_cpu_set() -> impl Strategy<Value = CpuSet> {
        proptest::collection::btree_set(0u32..2048, 0..64).prop_map(|numbers| of(&numbers))
    }

    /// Dense, so that ranges touch and overlap, and including the largest numbers.
    fn any_numbers() -> impl Strategy<Value = Vec<u32>> {
        proptest::collection::vec(
            prop_oneof![0u32..12, 60u32..70, u32::MAX - 3..=u32::MAX],
            0..24,
        )
    }

    proptest! {
        #[test]
        fn a_cpu_set_is_a_set_of_numbers(one in any_numbers(), other in any_numbers()) {
            let sets = [&one, &other].map(|all| all.iter().copied().map(CpuId).collect::<CpuSet>());
            let numbers = [one, other].map(BTreeSet::from_iter);
            let ([a, b], [x, y]) = (&sets, &numbers);
            prop_assert_eq!(a.iter().map(|cpu| cpu.0).collect::<Vec<_>>(), x.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(a, &of(x));
            prop_assert_eq!((a.len(), a.is_empty()), (x.len(), x.is_empty()));
            prop_assert_eq!(a.first().map(|cpu| cpu.0), x.first().copied());
            for number in 0..72 {
                prop_assert_eq!(a.contains(CpuId(number)), x.contains(&number));
            }
            prop_assert_eq!((a.is_subset(b), a.is_disjoint(b)), (x.is_subset(y), x.is_disjoint(y)));
            prop_assert_eq!((a.cmp(b), a == b), (x.cmp(y), x == y));
            prop_assert_eq!(a.minus(b), of(&(x - y)));
            prop_assert_eq!(a.and(b), of(&(x & y)));
            prop_assert!(a.and(b).is_subset(a) && a.minus(b).is_subset(a));
        }

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
