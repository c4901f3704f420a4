//! Block devices: `/sys/block` (Documentation/ABI/stable/sysfs-block).

use linerate_model::host::{BlockDevice, Node};
use linerate_model::known::{Cause, Gap, Known};

use super::pci::{function_above, read_node};
use super::{followed, numbered, understood};
use crate::root::{HostRoot, absolute};

const FOLDER: &str = "sys/block";

/// Reads every block device.
pub(crate) fn read_block(root: &HostRoot, nodes: &[Node], gaps: &mut Vec<Gap>) -> Vec<BlockDevice> {
    let names = match root.list(FOLDER) {
        Known::Value(names) => names,
        Known::Unknown(gap) => {
            gaps.push(gap);
            return Vec::new();
        }
    };
    names
        .into_iter()
        .map(|name| {
            let folder = followed(root, FOLDER, &name)
                .value()
                .cloned()
                .unwrap_or_else(|| format!("{FOLDER}/{name}"));
            let numa_node = match function_above(&folder) {
                Some((function, _)) => read_node(root, &function, nodes),
                None => Known::unknown(
                    Cause::Absent,
                    absolute(&folder),
                    "it is on no PCI function, so it has no node of its own",
                ),
            };
            let scheduler = format!("{FOLDER}/{name}/queue/scheduler");
            let queues = root.list(&format!("{FOLDER}/{name}/mq"));
            BlockDevice {
                schedulers: Known::default(),
                queue_cpus: Known::default(),
                rq_affinity: Known::default(),
                nomerges: Known::default(),
                nr_requests: Known::default(),
                rotational: Known::default(),
                size_bytes: Known::default(),
                transport: Known::default(),
                nvme_transport: Known::default(),
                io_policy: Known::default(),
                paths: Known::default(),
                numa_node,
                scheduler: root
                    .read(&scheduler)
                    .and_then(|text| understood(&scheduler, &text, parse_scheduler)),
                hardware_queues: queues
                    .map(|names| u32::try_from(numbered(&names, "").len()).unwrap_or(u32::MAX)),
                name,
            }
        })
        .collect()
}

/// `none [mq-deadline] kyber`: the active one stands in brackets; `none` alone stands without.
pub(crate) fn parse_scheduler(text: &str) -> Result<String, &'static str> {
    let in_brackets = text
        .split_whitespace()
        .find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    match (in_brackets, text.trim()) {
        (Some(name), _) => Ok(name.to_owned()),
        (None, "none") => Ok("none".to_owned()),
        (None, _) => Err("no scheduler stands in brackets"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_active_scheduler_stands_in_brackets() {
        assert_eq!(
            parse_scheduler("none [mq-deadline] bfq").as_deref(),
            Ok("mq-deadline")
        );
        assert_eq!(parse_scheduler("none").as_deref(), Ok("none"));
        assert!(parse_scheduler("").is_err());
    }
}
