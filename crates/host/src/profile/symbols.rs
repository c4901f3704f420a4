//! Symbols for addresses: of the kernel from `/proc/kallsyms`, of programs from `/proc/PID/maps` and their files.

use std::collections::BTreeMap;

use linerate_model::known::{Cause, Gap, Known};

use super::elf::Elf;
use super::mapped::{Mapped, parse_maps};
use crate::root::HostRoot;

/// Functions by address, each up to the next one or its size.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    /// Address, end (the address if unknown), and the end of the name in `names`.
    entries: Vec<Entry>,
    names: String,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    address: u64,
    size: u64,
    name: (usize, usize),
}

impl Symbols {
    /// The memory of a symbol with a name of this many bytes.
    pub(super) fn bytes_of(name: usize) -> usize {
        size_of::<Entry>() + name
    }

    pub(super) fn add(&mut self, address: u64, size: u64, name: &str) {
        let start = self.names.len();
        self.names.push_str(name);
        let name = (start, self.names.len());
        self.entries.push(Entry {
            address,
            size,
            name,
        });
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Call it after adding all symbols and before the first lookup.
    pub(super) fn sort(&mut self) {
        self.entries.sort_by_key(|entry| entry.address);
    }

    /// The last symbol at or before `address`, unless it is known to end before.
    pub(super) fn name_at(&self, address: u64) -> Option<&str> {
        let at = self
            .entries
            .partition_point(|entry| entry.address <= address);
        let entry = self.entries.get(at.checked_sub(1)?)?;
        let within = entry.size == 0 || address - entry.address < entry.size;
        let (start, end) = entry.name;
        self.names.get(start..end).filter(|_| within)
    }
}

const KALLSYMS: &str = "proc/kallsyms";
/// A kernel with every module has about 20 MiB.
const KALLSYMS_BYTES_MAX: u64 = 64 << 20;

/// The kernel's functions, each as `name` or `name\t[module]`.
pub(super) fn read_kernel(root: &HostRoot) -> Known<Symbols> {
    root.read_start(KALLSYMS, KALLSYMS_BYTES_MAX)
        .and_then(|text| match parse_kallsyms(&text) {
            Some(symbols) => Known::Value(symbols),
            None => Known::Unknown(Gap::new(
                Cause::Denied,
                "/proc/kallsyms",
                "the kernel hides its addresses: name its functions as root, or with \
                 kernel.kptr_restrict=0 (and kernel.perf_event_paranoid=1 without CAP_SYSLOG)",
            )),
        })
}

/// The functions in lines such as `ffffffff81000000 T _text`; `None` if every address is hidden as 0.
pub(super) fn parse_kallsyms(text: &str) -> Option<Symbols> {
    let mut symbols = Symbols::default();
    for line in text.lines() {
        let mut words = line.splitn(3, ' ');
        let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let address = u64::from_str_radix(address, 16).unwrap_or(0);
        if address != 0 && matches!(kind, "t" | "T" | "w" | "W") {
            symbols.add(address, 0, name);
        }
    }
    symbols.sort();
    (!symbols.entries.is_empty()).then_some(symbols)
}

/// The maximum size of `/proc/PID/maps`: 65,530 mappings (`vm.max_map_count`) with paths of 1 KiB.
const MAPS_BYTES_MAX: u64 = 64 << 20;
/// The maximum memory for the mappings and symbols of all programs. Sampled processes may belong to any user, who
/// controls their mappings and files.
const MEMORY_BYTES_MAX: usize = 512 << 20;

/// Resolves addresses in programs. A program that has exited has no mappings.
#[derive(Debug)]
pub(super) struct Programs {
    maps: BTreeMap<u32, Vec<Mapped>>,
    /// By device and inode: containers have different files at one path.
    files: BTreeMap<(u64, u64), Elf>,
    /// The remaining memory budget in bytes.
    left: usize,
}

impl Default for Programs {
    fn default() -> Self {
        Self {
            maps: BTreeMap::new(),
            files: BTreeMap::new(),
            left: MEMORY_BYTES_MAX,
        }
    }
}

impl Programs {
    /// The function at `address` of process `pid`, if known, and its file.
    pub(super) fn name(
        &mut self,
        root: &HostRoot,
        pid: u32,
        address: u64,
    ) -> (Option<String>, String) {
        let left = &mut self.left;
        let maps = self.maps.entry(pid).or_insert_with(|| {
            let text = root.read_start(&format!("proc/{pid}/maps"), MAPS_BYTES_MAX);
            let maps = text.value().map(|text| parse_maps(text));
            let maps = maps.filter(|maps| {
                let bytes = maps.iter().map(|one| size_of::<Mapped>() + one.file.len());
                left.checked_sub(bytes.sum())
                    .map(|rest| *left = rest)
                    .is_some()
            });
            maps.unwrap_or_default()
        });
        // The kernel lists them by address.
        let at = maps.partition_point(|one| one.end <= address);
        let Some(mapped) = maps.get(at).filter(|one| one.start <= address) else {
            return (None, format!("process {pid}"));
        };
        let file = mapped.file.clone();
        let offset = (address - mapped.start).saturating_add(mapped.offset);
        if !file.starts_with('/') {
            return (
                None,
                if file.is_empty() {
                    "[anonymous]".to_owned()
                } else {
                    file
                },
            );
        }
        let elf = self.files.entry(mapped.identity()).or_insert_with(|| {
            let opened = mapped.open(pid);
            opened.map_or_else(|_| Elf::default(), |file| Elf::read(&file, left))
        });
        (elf.name_at(offset).map(demangled), file)
    }
}

/// The path of a Rust function in source form, from the legacy mangling
/// (`_ZN4core3fmt5Write9write_str17h0123456789abcdefE`); any other name unchanged.
pub(super) fn demangled(name: &str) -> String {
    parts_of(name).map_or_else(|| name.to_owned(), |parts| parts.join("::"))
}

fn parts_of(name: &str) -> Option<Vec<String>> {
    let mut rest = name.strip_prefix("_ZN")?;
    let mut parts = Vec::new();
    while !rest.starts_with('E') {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let length: usize = rest.get(..digits)?.parse().ok()?;
        let part = rest.get(digits..digits.checked_add(length)?)?;
        parts.push(readable(part));
        rest = rest.get(digits + length..)?;
    }
    let hash = parts.pop()?;
    let is_hash = hash.len() == 17 && hash.starts_with('h');
    (is_hash && !parts.is_empty()).then_some(parts)
}

fn readable(part: &str) -> String {
    let escapes = [
        ("$LT$", "<"),
        ("$GT$", ">"),
        ("$RF$", "&"),
        ("$BP$", "*"),
        ("$LP$", "("),
        ("$RP$", ")"),
        ("$C$", ","),
        ("$u20$", " "),
        ("$u7b$", "{"),
        ("$u7d$", "}"),
        ("$u5b$", "["),
        ("$u5d$", "]"),
        ("..", "::"),
    ];
    let part = part
        .strip_prefix("_$")
        .map_or(part.to_owned(), |rest| format!("${rest}"));
    escapes
        .iter()
        .fold(part, |text, (escape, plain)| text.replace(escape, plain))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_kernel_address_belongs_to_the_function_that_began_last() {
        let text = "ffffffff81000000 T _text\nffffffff81000100 t tcp_sendmsg\n\
                    ffffffff81000200 D jiffies\nffffffffc0000000 t ixgbe_poll\t[ixgbe]";
        let symbols = parse_kallsyms(text).expect("addresses");
        assert_eq!(symbols.name_at(0xffff_ffff_8100_0150), Some("tcp_sendmsg"));
        assert_eq!(
            symbols.name_at(0xffff_ffff_c000_0010),
            Some("ixgbe_poll\t[ixgbe]")
        );
        assert_eq!(symbols.name_at(7), None);
    }

    #[test]
    fn hidden_addresses_are_no_symbols() {
        assert!(parse_kallsyms("0000000000000000 T _text\n0000000000000000 t x").is_none());
    }

    #[test]
    fn rust_names_are_written_as_in_the_source_and_others_left() {
        let name = "_ZN39_$LT$A$u20$as$u20$core..fmt..Write$GT$9write_str17h0123456789abcdefE";
        assert_eq!(
            demangled(name),
            name,
            "a length that is wrong is left alone"
        );
        let name = "_ZN4core3fmt9write_str17h0123456789abcdefE";
        assert_eq!(demangled(name), "core::fmt::write_str");
        let name = "_ZN38_$LT$A$u20$as$u20$core..fmt..Write$GT$1w17h0123456789abcdefE";
        assert_eq!(demangled(name), "<A as core::fmt::Write>::w");
        for name in ["main", "_ZN3fooE", "_ZN", "_ZN99999999999999999999a"] {
            assert_eq!(demangled(name), name);
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(_ZN)?[0-9a-z$.]{0,20}E?|[0-9a-f]{0,17} [tTx] .{0,9}") {
            let _ = demangled(&text);
            if let Some(symbols) = parse_kallsyms(&text) {
                let _ = symbols.name_at(u64::MAX);
            }
        }
    }
}
