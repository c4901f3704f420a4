//! Clocks, mitigations and memory policy (Documentation/admin-guide/hw-vuln,
//! Documentation/admin-guide/mm/transhuge.rst, Documentation/ABI/testing/sysfs-devices-system-cpu).

use std::collections::BTreeMap;

use linerate_model::host::Kernel;
use linerate_model::known::{Cause, Known};

use super::cpus::FOLDER;
use super::power::chosen;
use crate::attributes::parsed;
use crate::procfs::identity::parse_guest_flag;
use crate::procfs::limits::read_locked_memory;
use crate::procfs::stat::parse_steal;
use crate::root::{HostRoot, absolute};

const CLOCK: &str = "sys/devices/system/clocksource/clocksource0";
const DMI: &str = "sys/class/dmi/id";

/// Reads them; `cpuinfo` is the first part of `/proc/cpuinfo`.
pub(crate) fn read_kernel(root: &HostRoot, cpuinfo: &Known<String>) -> Kernel {
    let clocksources = root
        .read(&format!("{CLOCK}/available_clocksource"))
        .map(|text| text.split_whitespace().map(str::to_owned).collect());
    Kernel {
        clocksource: root.read(&format!("{CLOCK}/current_clocksource")),
        mitigations: read_mitigations(root),
        transparent_hugepages: chosen(root, "sys/kernel/mm/transparent_hugepage/enabled"),
        transparent_hugepages_defrag: chosen(root, "sys/kernel/mm/transparent_hugepage/defrag"),
        hypervisor: read_hypervisor(root, cpuinfo, &clocksources),
        steal_ppm: parsed(root, "proc/stat", parse_steal),
        locked_memory: read_locked_memory(root),
        tcp_memory_pages: socket_pages(root, "TCP:"),
        udp_memory_pages: socket_pages(root, "UDP:"),
        aspm_policy: chosen(root, "sys/module/pcie_aspm/parameters/policy"),
        clocksources,
    }
}

/// `mem` of a protocol's line in `/proc/net/sockstat` (net/ipv4/proc.c, `sockstat_seq_show`), pages.
fn socket_pages(root: &HostRoot, protocol: &str) -> Known<u64> {
    parsed(root, "proc/net/sockstat", |text| {
        parse_pages(text, protocol)
    })
}

pub(crate) fn parse_pages(text: &str, protocol: &str) -> Result<u64, String> {
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix(protocol));
    let mut words = line.into_iter().flat_map(str::split_whitespace);
    let pages = words.find(|word| *word == "mem").and_then(|_| words.next());
    let pages = pages.and_then(|pages| pages.parse().ok());
    pages.ok_or_else(|| format!("`{protocol}` has no number after `mem`"))
}

fn read_mitigations(root: &HostRoot) -> Known<BTreeMap<String, String>> {
    let folder = format!("{FOLDER}/vulnerabilities");
    let names = match root.list(&folder) {
        Known::Value(names) => names,
        Known::Unknown(gap) => return Known::Unknown(gap),
    };
    let mut mitigations = BTreeMap::new();
    for name in names {
        match root.read(&format!("{folder}/{name}")) {
            Known::Value(text) => mitigations.insert(name, text),
            Known::Unknown(gap) => return Known::Unknown(gap),
        };
    }
    Known::Value(mitigations)
}

/// Xen reports its own name; others are identified by the DMI names and their clocksource. On x86 a CPU flag shows
/// whether this is a guest at all.
fn read_hypervisor(
    root: &HostRoot,
    cpuinfo: &Known<String>,
    clocksources: &Known<Vec<String>>,
) -> Known<String> {
    if let Known::Value(name) = root.read("sys/hypervisor/type")
        && !name.is_empty()
    {
        return Known::Value(name);
    }
    let vendor = root.read(&format!("{DMI}/sys_vendor"));
    let product = root.read(&format!("{DMI}/product_name"));
    let text = |known: &Known<String>| known.value().cloned().unwrap_or_default();
    let by_firmware = parse_firmware(&text(&vendor), &text(&product));
    let flag = match cpuinfo {
        Known::Value(text) => parse_guest_flag(text),
        Known::Unknown(_) => None,
    };
    let by_clock = clocksources.value().and_then(|clocks| parse_clocks(clocks));
    match (by_firmware, flag, by_clock) {
        (Some(name), ..) | (None, None | Some(true), Some(name)) => Known::Value(name.to_owned()),
        (None, Some(true), None) => Known::Value("unnamed".to_owned()),
        (None, Some(false), _) => Known::Value("none".to_owned()),
        (None, None, None) => Known::unknown(
            Cause::NotSaid,
            absolute(&format!("{DMI}/sys_vendor")),
            "neither the CPU flags nor the machine name show whether this is a guest",
        ),
    }
}

/// The hypervisor from the DMI system vendor and product, as in systemd-detect-virt(1). Cloud instances called
/// `metal` are not guests.
pub(crate) fn parse_firmware(vendor: &str, product: &str) -> Option<&'static str> {
    const NAMES: [(&str, &str); 13] = [
        ("KVM", "KVM"),
        ("OpenStack", "KVM"),
        ("Amazon EC2", "Amazon EC2"),
        ("Google Compute Engine", "Google"),
        ("QEMU", "QEMU"),
        ("VMware", "VMware"),
        ("VMW", "VMware"),
        ("innotek GmbH", "VirtualBox"),
        ("VirtualBox", "VirtualBox"),
        ("Xen", "Xen"),
        ("Bochs", "Bochs"),
        ("Parallels", "Parallels"),
        ("BHYVE", "bhyve"),
    ];
    if product.contains("metal") {
        return None;
    }
    if vendor == "Microsoft Corporation" && product == "Virtual Machine" {
        return Some("Hyper-V");
    }
    let of = |text: &str| NAMES.iter().find(|(start, _)| text.starts_with(start));
    of(product).or_else(|| of(vendor)).map(|(_, name)| *name)
}

/// A clocksource that only guests of one hypervisor have.
fn parse_clocks(clocks: &[String]) -> Option<&'static str> {
    let name = |clock: &String| match clock.as_str() {
        "kvm-clock" => Some("KVM"),
        "xen" => Some("Xen"),
        clock if clock.starts_with("hyperv_") => Some("Hyper-V"),
        _ => None,
    };
    clocks.iter().find_map(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn guests_are_told_from_the_machines_that_clouds_lease_whole() {
        assert_eq!(
            parse_firmware("Amazon EC2", "c7i.large"),
            Some("Amazon EC2")
        );
        assert_eq!(parse_firmware("Amazon EC2", "c7i.metal-24xl"), None);
        assert_eq!(
            parse_firmware("Microsoft Corporation", "Virtual Machine"),
            Some("Hyper-V")
        );
        assert_eq!(parse_firmware("Microsoft Corporation", "Surface Pro"), None);
        assert_eq!(parse_firmware("VMware, Inc.", "VMware20,1"), Some("VMware"));
        assert_eq!(parse_firmware("Dell Inc.", "PowerEdge R750"), None);
        assert_eq!(
            parse_guest_flag("flags\t\t: fpu hypervisor lahf_lm"),
            Some(true)
        );
        assert_eq!(parse_guest_flag("flags : fpu vmx"), Some(false));
        assert_eq!(parse_guest_flag("Features : fp asimd"), None);
    }

    #[test]
    fn socket_memory_is_that_of_its_protocol() {
        let text = "sockets: used 9\nTCP: inuse 5 orphan 0 tw 0 alloc 7 mem 751\nUDP: inuse 1 mem 2\nUDPLITE: inuse 0";
        assert_eq!(parse_pages(text, "TCP:"), Ok(751));
        assert_eq!(parse_pages(text, "UDP:"), Ok(2));
        assert!(parse_pages(text, "UDPLITE:").is_err());
        assert!(parse_pages("", "TCP:").is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(flags|TCP: mem)?.{0,40}", other in ".{0,20}") {
            let _ = parse_pages(&text, "TCP:");
            let _ = (parse_firmware(&text, &other), parse_guest_flag(&text));
        }
    }
}
