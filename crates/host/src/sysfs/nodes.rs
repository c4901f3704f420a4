//! NUMA nodes: `/sys/devices/system/node` (Documentation/ABI/stable/sysfs-devices-node).

use linerate_model::host::{HugePages, Node};
use linerate_model::ids::{CpuId, NodeId};
use linerate_model::known::{Cause, Gap, Known};
use linerate_model::units::Bytes;

use crate::attributes::{cpu_list, cpu_mask, number, numbered, or_if_absent, parsed, understood};
use crate::root::HostRoot;

const FOLDER: &str = "sys/devices/system/node";

/// Reads every node; a kernel built without NUMA has none.
pub fn read_nodes(root: &HostRoot, gaps: &mut Vec<Gap>) -> Vec<Node> {
    let names = match root.list(FOLDER) {
        Known::Value(names) => names,
        Known::Unknown(gap) => {
            gaps.push(gap);
            return Vec::new();
        }
    };
    numbered(&names, "node")
        .into_iter()
        .map(|id| {
            let folder = format!("{FOLDER}/node{id}");
            let meminfo = format!("{folder}/meminfo");
            let memory = root.read(&meminfo);
            let of = |key: &str| {
                let memory = memory.clone();
                memory.and_then(|text| understood(&meminfo, &text, |text| parse_memory(text, key)))
            };
            Node {
                memory_free_bytes: of(FREE),
                hugepages: read_huge_pages(root, &format!("{folder}/hugepages")),
                id: NodeId(id),
                cpus: or_if_absent(cpu_list(root, &format!("{folder}/cpulist")), || {
                    cpu_mask(root, &format!("{folder}/cpumap"))
                }),
                memory_bytes: of(TOTAL),
                distances: parsed(root, &format!("{folder}/distance"), parse_distances),
            }
        })
        .collect()
}

/// Huge pages reserved on a node: `hugepages-2048kB/nr_hugepages` and `free_hugepages`.
fn read_huge_pages(root: &HostRoot, folder: &str) -> Known<Vec<HugePages>> {
    root.list(folder).map(|names| {
        let sizes = names.iter().filter_map(|name| {
            let page_bytes = parse_page_size(name)?;
            let count = |file: &str| number(root, &format!("{folder}/{name}/{file}"));
            Some(HugePages {
                page_bytes,
                total: count("nr_hugepages"),
                free: count("free_hugepages"),
            })
        });
        let mut sizes: Vec<HugePages> = sizes.collect();
        sizes.sort_by_key(|size| size.page_bytes);
        sizes
    })
}

/// `hugepages-2048kB`.
pub(crate) fn parse_page_size(name: &str) -> Option<Bytes> {
    let kib = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
    kib.parse::<u64>().ok()?.checked_mul(1024).map(Bytes::new)
}

/// The node of a CPU; unknown if two nodes list it (a firmware bug).
pub fn node_of(cpu: CpuId, nodes: &[Node]) -> Known<NodeId> {
    let path = format!("/{FOLDER}/node*/cpulist");
    let mut holders = nodes
        .iter()
        .filter(|node| node.cpus.value().is_some_and(|cpus| cpus.contains(cpu)));
    match (holders.next(), holders.next()) {
        (Some(node), None) => Known::Value(node.id),
        (Some(one), Some(other)) => Known::unknown(
            Cause::Unreadable,
            path,
            format!("nodes {} and {} both list CPU {cpu}", one.id, other.id),
        ),
        (None, _) => match nodes.iter().find_map(|node| node.cpus.gap()) {
            Some(gap) => Known::Unknown(gap.clone()),
            None if nodes.is_empty() => {
                Known::unknown(Cause::Absent, path, "the kernel shows no NUMA nodes")
            }
            None => Known::unknown(Cause::NotSaid, path, format!("no node lists CPU {cpu}")),
        },
    }
}

/// The lines of a node's `meminfo` that are used here.
const TOTAL: &str = "MemTotal:";
const FREE: &str = "MemFree:";

/// `Node 0 MemTotal:       16270844 kB`, for the key `MemTotal:`.
pub(crate) fn parse_memory(text: &str, key: &str) -> Result<Bytes, &'static str> {
    let kib = text
        .lines()
        .find_map(|line| line.split_once(key))
        .and_then(|(_, rest)| rest.trim().strip_suffix("kB"))
        .and_then(|kib| kib.trim().parse::<u64>().ok())
        .ok_or("expected a line `KEY: N kB`")?;
    kib.checked_mul(1024)
        .map(Bytes::new)
        .ok_or("larger than any memory can be")
}

/// The part of a node's `meminfo` that is used here: the rest changes every second.
pub(crate) fn used_memory_lines(text: &str) -> String {
    let used = |key: &&str| text.lines().find(|line| line.contains(*key));
    let lines: Vec<&str> = [TOTAL, FREE].iter().filter_map(used).collect();
    lines.join("\n")
}

/// `10 21`, one number per node.
pub fn parse_distances(text: &str) -> Result<Vec<u32>, std::num::ParseIntError> {
    text.split_whitespace().map(str::parse).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_text_panics(text in "(Node 0 )?(MemTotal: *)?[0-9]{0,22} ?k?B?.{0,20}") {
            let _ = (parse_memory(&text, TOTAL), parse_distances(&text), parse_page_size(&text));
            prop_assert_eq!(parse_memory(&text, TOTAL), parse_memory(&used_memory_lines(&text), TOTAL));
        }
    }

    #[test]
    fn memory_is_counted_in_bytes() {
        let text = "\nNode 1 MemTotal:       2048 kB\nNode 1 MemFree: 7 kB";
        assert_eq!(parse_memory(text, TOTAL), Ok(Bytes::mib(2)));
        assert_eq!(parse_memory(text, FREE), Ok(Bytes::kib(7)));
        assert_eq!(parse_page_size("hugepages-2048kB"), Some(Bytes::mib(2)));
        assert_eq!(parse_distances("10 21"), Ok(vec![10, 21]));
    }
}
