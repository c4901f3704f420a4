//! Block devices: `/sys/block` (Documentation/ABI/stable/sysfs-block).

use linerate_model::host::{BlockDevice, Node};
use linerate_model::ids::{CpuSet, IdError};
use linerate_model::known::{Cause, Gap, Known};
use linerate_model::setting::parse_scheduler;
use linerate_model::units::Bytes;

use super::cpus::parse_online;
use super::nvme::{Nvme, read_nvme};
use super::pci::{function_above, read_node};
use crate::attributes::{followed, number, numbered, parsed, understood};
use crate::parallel;
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
    let nvme = read_nvme(root);
    let read = |name: &String| read_device(root, name, nodes, &nvme);
    parallel::each(&names, read)
}

fn read_device(root: &HostRoot, name: &str, nodes: &[Node], nvme: &Nvme) -> BlockDevice {
    let folder = followed(root, FOLDER, name)
        .value()
        .cloned()
        .unwrap_or_else(|| format!("{FOLDER}/{name}"));
    let said = nvme.of(&folder);
    let numa_node = match (function_above(&folder), said.node()) {
        (Some((function, _)), _) => read_node(root, &function, nodes),
        (None, Some(node)) => Known::Value(node),
        (None, None) => Known::unknown(
            Cause::Absent,
            absolute(&folder),
            "not on a PCI function, so it has no NUMA node",
        ),
    };
    let queue = |file: &str| format!("{FOLDER}/{name}/queue/{file}");
    let scheduler = root.read(&queue("scheduler"));
    let queues = root
        .list(&format!("{FOLDER}/{name}/mq"))
        .map(|names| numbered(&names, ""));
    BlockDevice {
        name: name.to_owned(),
        numa_node,
        schedulers: scheduler
            .clone()
            .and_then(|text| understood(&queue("scheduler"), &text, parse_schedulers)),
        scheduler: scheduler
            .and_then(|text| understood(&queue("scheduler"), &text, parse_scheduler)),
        queue_cpus: queues
            .clone()
            .and_then(|queues| read_queue_cpus(root, name, &queues)),
        hardware_queues: queues.map(|queues| u32::try_from(queues.len()).unwrap_or(u32::MAX)),
        rq_affinity: number(root, &queue("rq_affinity")),
        nomerges: number(root, &queue("nomerges")),
        nr_requests: number(root, &queue("nr_requests")),
        rotational: parsed(root, &queue("rotational"), parse_online),
        size_bytes: parsed(root, &format!("{FOLDER}/{name}/size"), parse_size),
        transport: match parse_transport(name, &folder) {
            Some(transport) => Known::Value(transport.to_owned()),
            None => Known::unknown(
                Cause::NotSaid,
                absolute(&folder),
                "neither its name nor its sysfs path shows the transport",
            ),
        },
        nvme_transport: said.transport,
        io_policy: said.io_policy,
        paths: said.paths,
    }
}

fn read_queue_cpus(root: &HostRoot, name: &str, queues: &[u32]) -> Known<Vec<CpuSet>> {
    let mut all = Vec::new();
    for queue in queues {
        match parsed(
            root,
            &format!("{FOLDER}/{name}/mq/{queue}/cpu_list"),
            parse_cpu_list,
        ) {
            Known::Value(cpus) => all.push(cpus),
            Known::Unknown(gap) => return Known::Unknown(gap),
        }
    }
    Known::Value(all)
}

/// `0, 1, 2`: a list with spaces (block/blk-mq-sysfs.c, `blk_mq_hw_sysfs_cpus_show`).
pub(crate) fn parse_cpu_list(text: &str) -> Result<CpuSet, IdError> {
    text.replace(' ', "").parse()
}

/// Sectors of 512 bytes, whatever the device's sector size.
pub(crate) fn parse_size(text: &str) -> Result<Bytes, String> {
    let sectors: u64 = text
        .trim()
        .parse()
        .map_err(|error: std::num::ParseIntError| error.to_string())?;
    sectors
        .checked_mul(512)
        .map(Bytes::new)
        .ok_or_else(|| "larger than a device can be".to_owned())
}

/// The transport of a device, from its driver's name and the devices above it.
pub(crate) fn parse_transport(name: &str, folder: &str) -> Option<&'static str> {
    // Longer names first if one is a prefix of another.
    const NAMES: [(&str, &str); 20] = [
        ("nvme", "nvme"),
        ("vd", "virtio"),
        ("loop", "loop"),
        ("zram", "zram"),
        ("ram", "ram"),
        ("dm-", "dm"),
        ("md", "md"),
        ("sr", "sr"),
        ("nbd", "nbd"),
        ("rbd", "rbd"),
        ("drbd", "drbd"),
        ("bcache", "bcache"),
        ("mmcblk", "mmc"),
        ("xvd", "xen"),
        ("pmem", "pmem"),
        ("nullb", "null"),
        ("dasd", "dasd"),
        ("ublkb", "ublk"),
        ("zd", "zvol"),
        ("fd", "floppy"),
    ];
    if name.starts_with("sd") {
        let is_usb = folder.contains("/usb");
        return Some(if is_usb { "usb" } else { "scsi" });
    }
    let known = NAMES.iter().find(|(start, _)| name.starts_with(start));
    known.map(|(_, transport)| *transport)
}

/// Every scheduler of `none [mq-deadline] kyber`.
pub(crate) fn parse_schedulers(text: &str) -> Result<Vec<String>, &'static str> {
    let plain = |word: &str| word.trim_matches(['[', ']']).to_owned();
    let names: Vec<String> = text.split_whitespace().map(plain).collect();
    if names.is_empty() {
        return Err("it lists no scheduler");
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9, -]{0,24}|[\\[a-z\\] ]{0,20}|.{0,20}", folder in ".{0,20}") {
            let _ = (parse_scheduler(&text), parse_schedulers(&text), parse_cpu_list(&text));
            let _ = (parse_size(&text), parse_transport(&text, &folder));
        }
    }

    #[test]
    fn names_and_places_say_how_a_device_is_reached() {
        let usb = "sys/devices/pci0000:00/0000:00:14.0/usb1/1-1/host0/block/sda";
        assert_eq!(parse_transport("sda", usb), Some("usb"));
        assert_eq!(
            parse_transport("sda", "sys/devices/a/ata1/block/sda"),
            Some("scsi")
        );
        assert_eq!(parse_transport("zram0", ""), Some("zram"));
        assert_eq!(parse_transport("ram0", ""), Some("ram"));
        assert_eq!(parse_transport("md127", ""), Some("md"));
        assert_eq!(parse_transport("other", ""), None);
        assert_eq!(parse_size("2048"), Ok(Bytes::mib(1)));
        assert!(parse_size("18446744073709551615").is_err());
        let cpus = parse_cpu_list("0, 1, 32").map(|cpus| cpus.to_string());
        assert_eq!(cpus.as_deref(), Ok("0-1,32"));
    }

    #[test]
    fn the_schedulers_of_a_device_are_all_words_of_its_line() {
        assert_eq!(
            parse_schedulers("none [mq-deadline] bfq").map(|all| all.join("|")),
            Ok("none|mq-deadline|bfq".to_owned())
        );
    }
}
