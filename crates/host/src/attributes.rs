//! Reads files under a root as values: numbers, CPU lists and masks, names and links, the same below `/sys` and
//! `/proc`.

use std::fmt::Display;
use std::str::FromStr;

use linerate_model::ids::CpuSet;
use linerate_model::known::{Cause, Known};

use crate::root::{HostRoot, absolute};

/// The maximum excerpt of an invalid text in a reason.
const EXCERPT_CHARS: usize = 60;

/// Reads a file and parses it with `parse`; text that it rejects counts as unreadable.
pub(crate) fn parsed<T, E: Display>(
    root: &HostRoot,
    path: &str,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Known<T> {
    root.read(path)
        .and_then(|text| understood(path, &text, parse))
}

/// Parses text that was read at `path`.
pub(crate) fn understood<T, E: Display>(
    path: &str,
    text: &str,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Known<T> {
    // Old kernels end some files with a NUL, and copies of whole pages contain it.
    let text = text.trim_end_matches(|c: char| c == '\0' || c.is_whitespace());
    match parse(text) {
        Ok(value) => Known::Value(value),
        Err(why) => {
            let excerpt: String = text.chars().take(EXCERPT_CHARS).collect();
            let reason = format!("cannot parse `{}`: {why}", excerpt.escape_default());
            Known::unknown(Cause::Unreadable, absolute(path), reason)
        }
    }
}

/// A whole number.
pub(crate) fn number<T: FromStr>(root: &HostRoot, path: &str) -> Known<T>
where
    T::Err: Display,
{
    parsed(root, path, |text| text.trim().parse::<T>())
}

/// A number that the kernel prints as -1 if it does not know it.
pub(crate) fn number_or_minus_one(root: &HostRoot, path: &str, why: &str) -> Known<u32> {
    root.read(path).and_then(|text| {
        if text.trim() == "-1" {
            Known::unknown(Cause::NotSaid, absolute(path), why)
        } else {
            understood(path, &text, |text| text.trim().parse::<u32>())
        }
    })
}

/// A CPU list, `0-5,12`.
pub(crate) fn cpu_list(root: &HostRoot, path: &str) -> Known<CpuSet> {
    parsed(root, path, str::parse::<CpuSet>)
}

/// A CPU mask, `0000ff00,00000001`.
pub(crate) fn cpu_mask(root: &HostRoot, path: &str) -> Known<CpuSet> {
    parsed(root, path, CpuSet::from_mask)
}

/// `first`, or `second` if the kernel does not have `first`.
pub(crate) fn or_if_absent<T>(first: Known<T>, second: impl FnOnce() -> Known<T>) -> Known<T> {
    match first {
        Known::Unknown(gap) if gap.cause == Cause::Absent => match second() {
            // Report the gap of the newer name.
            Known::Unknown(second) if second.cause == Cause::Absent => Known::Unknown(gap),
            answer => answer,
        },
        first => first,
    }
}

/// `first`, or if it is not known, `second`. Of two gaps, that of the place that was read is kept.
pub(crate) fn or_known<T>(first: Known<T>, second: impl FnOnce() -> Known<T>) -> Known<T> {
    match first {
        Known::Unknown(gap) => match second() {
            Known::Unknown(_) if gap.cause != Cause::NotAsked => Known::Unknown(gap),
            answer => answer,
        },
        Known::Value(value) => Known::Value(value),
    }
}

/// The numbers of `cpu0`, `cpu10`, `cpu2` in a listing, in numeric order.
pub(crate) fn numbered(names: &[String], prefix: &str) -> Vec<u32> {
    let mut numbers: Vec<u32> = names
        .iter()
        .filter_map(|name| name.strip_prefix(prefix))
        .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
        .filter_map(|digits| digits.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers
}

/// The real directory behind an entry of `/sys/class`, and the target of a link in it, from the text of the links: a
/// path below `/sys/devices` contains no further links.
pub(crate) fn followed(root: &HostRoot, folder: &str, link: &str) -> Known<String> {
    root.link(&format!("{folder}/{link}"))
        .map(|target| joined(folder, &target))
}

/// The target of a link in `folder`, without `..`.
pub(crate) fn joined(folder: &str, target: &str) -> String {
    let mut names: Vec<&str> = if target.starts_with('/') {
        Vec::new()
    } else {
        folder.split('/').filter(|name| !name.is_empty()).collect()
    };
    for name in target.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                names.pop();
            }
            name => names.push(name),
        }
    }
    names.join("/")
}

/// The last name of a path.
pub(crate) fn last_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbered_names_are_ordered_by_number() {
        let names = [
            "rx-10",
            "rx-2",
            "rx-0",
            "tx-1",
            "rx-",
            "rx-x",
            "rx-99999999999",
        ]
        .map(String::from);
        assert_eq!(numbered(&names, "rx-"), [0, 2, 10]);
    }

    #[test]
    fn links_of_a_class_lead_to_the_real_folder() {
        assert_eq!(
            joined(
                "sys/class/net",
                "../../devices/pci0000:00/0000:00:03.0/virtio2/net/eth0"
            ),
            "sys/devices/pci0000:00/0000:00:03.0/virtio2/net/eth0"
        );
        assert_eq!(
            joined("sys/devices/a/net/eth0", "../../../a/"),
            "sys/devices/a"
        );
        assert_eq!(joined("sys", "/../x"), "x");
    }

    #[test]
    fn a_nul_at_the_end_of_a_file_is_no_part_of_its_text() {
        let cpus = understood("cpulist", "0-31\n\0", str::parse::<CpuSet>);
        assert_eq!(cpus.value().map(CpuSet::len), Some(32));
        let inside = understood("cpulist", "0\0-31", str::parse::<CpuSet>);
        assert_eq!(inside.gap().map(|gap| gap.cause), Some(Cause::Unreadable));
    }

    proptest! {
        #[test]
        fn no_name_panics(folder in "[a/.]{0,12}", target in ".{0,20}") {
            let _ = (joined(&folder, &target), numbered(std::slice::from_ref(&target), "cpu"));
        }
    }
}
