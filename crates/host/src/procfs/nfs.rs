//! NFS mounts and the calls of the NFS client: `/proc/self/mounts` (proc_pid_mounts(5), nfs(5)),
//! `/proc/net/rpc/nfs` (net/sunrpc/stats.c) and `/proc/self/mountstats` (proc_pid_mountstats(5)).

use std::collections::BTreeMap;

use linerate_model::host::NfsMount;
use linerate_model::known::{Cause, Known};
use linerate_model::units::Bytes;

use crate::root::{HostRoot, absolute};

/// The mounts of this mount namespace.
pub(crate) const MOUNTS: &str = "proc/self/mounts";
/// The calls of each mount, by operation.
pub(crate) const MOUNT_STATS: &str = "proc/self/mountstats";
/// The calls of the client.
pub(crate) const CLIENT: &str = "proc/net/rpc/nfs";

/// The options that are used here: the others contain addresses.
const OPTIONS: [&str; 3] = ["proto", "rsize", "wsize"];

/// The mounts, in the kernel's order.
pub(crate) fn read_mounts(root: &HostRoot) -> Known<Vec<NfsMount>> {
    root.read_used(MOUNTS, used_mounts)
        .map(|text| parse_mounts(&text))
}

fn is_nfs(kind: &str) -> bool {
    matches!(kind, "nfs" | "nfs4")
}

/// The lines of NFS mounts, without server and addresses.
pub(crate) fn used_mounts(text: &str) -> String {
    let used = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, place, kind, options, ..] = words[..] else {
            return None;
        };
        let all: Vec<&str> = options
            .split(',')
            .filter(|option| {
                let name = option.split_once('=').map(|(name, _)| name);
                name.is_some_and(|name| OPTIONS.contains(&name))
            })
            .collect();
        is_nfs(kind).then(|| format!("- {place} {kind} {}", all.join(",")))
    };
    text.lines().filter_map(used).collect::<Vec<_>>().join("\n")
}

/// `SERVER:/EXPORT /data nfs rw,proto=udp,rsize=4096,...`
pub(crate) fn parse_mounts(text: &str) -> Vec<NfsMount> {
    let mount = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (place, kind) = (words.next()?, words.next()?);
        if !is_nfs(kind) {
            return None;
        }
        let options = words.next().unwrap_or_default();
        let option = |name: &'static str| {
            let all = options.split(',').filter_map(|word| word.split_once('='));
            let mut value = all.filter(|(own, _)| *own == name).map(|(_, value)| value);
            value.next_back().map_or_else(
                || {
                    let why = format!("{place} has no option {name}=");
                    Known::unknown(Cause::NotSaid, absolute(MOUNTS), why)
                },
                |value| Known::Value(value.to_owned()),
            )
        };
        let size = |name| {
            option(name).and_then(|value| {
                value.parse().map_or_else(
                    |_| {
                        let why = format!("cannot parse {name}={value}");
                        Known::unknown(Cause::Unreadable, absolute(MOUNTS), why)
                    },
                    |bytes| Known::Value(Bytes::new(bytes)),
                )
            })
        };
        Some(NfsMount {
            name: place.to_owned(),
            protocol: option("proto"),
            rsize: size("rsize"),
            wsize: size("wsize"),
        })
    };
    text.lines().filter_map(mount).collect()
}

/// `rpc 200000 4000 200000`: the calls of the client, those that were retransmitted, and refreshed credentials.
pub(crate) fn parse_client(text: &str) -> Result<BTreeMap<String, u64>, String> {
    let line = text.lines().find_map(|line| line.strip_prefix("rpc "));
    let mut numbers = line.into_iter().flat_map(str::split_whitespace);
    let mut next = |name: &str| {
        let word = numbers.next().ok_or("no line `rpc` with two numbers")?;
        let number = word.parse().map_err(|error| format!("`{word}`: {error}"))?;
        Ok::<_, String>((name.to_owned(), number))
    };
    Ok(BTreeMap::from([next("calls")?, next("retransmits")?]))
}

/// The lines of NFS mounts that count, without server and place, and of each operation only what is used.
pub(crate) fn used_mount_stats(text: &str) -> String {
    let mut used = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if line.starts_with("device ") {
            inside = device_kind(line).is_some_and(is_nfs);
            if inside {
                used.push("device - mounted on - with fstype nfs".to_owned());
            }
        } else if let (true, Some((name, operations, transmissions))) = (inside, operation(line))
            && (operations > 0 || transmissions > 0)
        {
            used.push(format!("\t{name}: {operations} {transmissions} 0 0"));
        }
    }
    used.join("\n")
}

/// `device SERVER:/EXPORT mounted on /data with fstype nfs statvers=1.1`
fn device_kind(line: &str) -> Option<&str> {
    let (_, kind) = line.rsplit_once(" with fstype ")?;
    kind.split_whitespace().next()
}

/// `READ: 7 8 0 ...`: operations and transmissions. Other lines with a colon have fewer than three numbers.
fn operation(line: &str) -> Option<(&str, u64, u64)> {
    let (name, rest) = line.trim_start().split_once(": ")?;
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
    let mut numbers = rest.split_whitespace().map(str::parse::<u64>);
    let (operations, transmissions) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    (is_name && numbers.count() >= 2).then_some((name, operations, transmissions))
}

/// The calls and retransmitted calls of each mount, `3/calls` and `3/retransmits` of the fourth.
pub(crate) fn parse_mount_stats(text: &str) -> BTreeMap<String, u64> {
    let mut sums: Vec<(u64, u64)> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if line.starts_with("device ") {
            inside = device_kind(line).is_some_and(is_nfs);
            if inside {
                sums.push((0, 0));
            }
        } else if let (true, Some((_, operations, transmissions)), Some(sum)) =
            (inside, operation(line), sums.last_mut())
        {
            sum.0 = sum.0.saturating_add(operations);
            sum.1 = sum
                .1
                .saturating_add(transmissions.saturating_sub(operations));
        }
    }
    let counters = sums
        .into_iter()
        .enumerate()
        .flat_map(|(at, (calls, retransmits))| {
            [
                (format!("{at}/calls"), calls),
                (format!("{at}/retransmits"), retransmits),
            ]
        });
    counters.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "/dev/sda1 / ext4 rw,relatime 0 0\n\
        192.0.2.7:/srv/acme /data nfs rw,vers=3,rsize=4096,wsize=8192,hard,proto=udp,mountaddr=192.0.2.7,\
        mountproto=tcp,addr=192.0.2.7 0 0\n\
        nas:/home /home nfs4 rw,vers=4.2,rsize=1048576,wsize=1048576,proto=tcp,clientaddr=192.0.2.9 0 0";

    #[test]
    fn only_nfs_mounts_are_used_and_their_servers_are_not() {
        let used = used_mounts(TEXT);
        for withheld in ["192.0.2", "acme", "nas:", "sda1", "mountproto"] {
            assert!(!used.contains(withheld), "{used}");
        }
        let mounts = parse_mounts(&used);
        assert_eq!(mounts, parse_mounts(TEXT));
        assert_eq!(mounts.len(), 2);
        assert_eq!(mounts[0].name, "/data");
        assert_eq!(mounts[0].protocol, Known::Value("udp".to_owned()));
        assert_eq!(mounts[0].wsize, Known::Value(Bytes::new(8192)));
        assert_eq!(used_mounts(&used), used, "a capture is read like a host");
    }

    #[test]
    fn calls_and_retransmissions_of_the_client_are_read() {
        let text = "net 0 0 0 0\nrpc 200000 4000 200000\nproc3 22 0";
        let expected = [("calls", 200_000), ("retransmits", 4_000)];
        let expected = expected.map(|(name, value)| (name.to_owned(), value));
        assert_eq!(parse_client(text), Ok(BTreeMap::from(expected)));
        assert!(parse_client("net 0 0 0 0\nrpc 7").is_err());
    }

    #[test]
    fn retransmissions_of_a_mount_are_transmissions_beyond_its_operations() {
        let text = "device /dev/sda1 mounted on / with fstype ext4\n\
            device nas:/x mounted on /data with fstype nfs statvers=1.1\n\
            \topts:\trw,vers=3\n\tage:\t77\n\tevents:\t1 2 3 4 5\n\
            \txprt:\tudp 700 1 7 6 0 0 0 0\n\tper-op statistics\n\
            \t        NULL: 0 0 0 0 0 0 0 0\n\
            \t        READ: 100 104 1 9 9 9 9 9\n\
            \t       WRITE: 50 51 0 9 9 9 9 9\n\
            device proc mounted on /proc with fstype proc\n";
        let used = used_mount_stats(text);
        assert!(!used.contains("nas") && !used.contains("NULL"), "{used}");
        assert_eq!(used_mount_stats(&used), used);
        let expected = [("0/calls", 150), ("0/retransmits", 5)];
        let expected = expected.map(|(name, value)| (name.to_owned(), value));
        let expected = BTreeMap::from(expected);
        assert_eq!(parse_mount_stats(text), expected);
        assert_eq!(parse_mount_stats(&used), expected);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(rpc |device x with fstype nfs|\tREAD: |- /d nfs |proto=|[0-9]{0,21}| |,|\n){0,12}|.{0,40}") {
            let (mounts, stats) = (used_mounts(&text), used_mount_stats(&text));
            let _ = (parse_mounts(&mounts), parse_mount_stats(&stats), parse_client(&text));
        }
    }
}
