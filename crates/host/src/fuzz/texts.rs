//! The parsers of single files below `/proc` and `/sys`, and of other small texts.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use linerate_model::ids::CpuSet;
use linerate_model::setting::{parse_chosen, parse_scheduler};

use crate::hex::{from_hex, to_hex};
use crate::procfs::{
    bonding, connections, conntrack_stat, identity, interrupts, limits, netstat, nfs, owners,
    pressure, process, sockets, softnet, stat, taps, vlan, vmstat,
};
use crate::sysfs::{
    block, bond, cgroups, cpus, gids, irq_names, isolation, kernel, nic_kind, nics, nodes, pci,
    pci_ids, power, psid, queues, rdma, stack,
};
use crate::watch::{devices, drop_reasons, interrupts as counts, parse_uptime};
use crate::{apply, sysctl_files};

/// All parsers of a text, so that the first byte can select one.
type Reader = fn(&str);

const READERS: &[Reader] = &[
    |text| seen(&conntrack_stat::parse_conntrack_stat(text)),
    |text| seen(&identity::parse_cpu_model(text)),
    |text| {
        let (config, command_line) = halves(text);
        let _ = identity::parse_accounting(config, command_line);
        let _ = identity::used_config_lines(config);
    },
    |text| seen(&identity::used_cpuinfo_lines(text)),
    |text| seen(&(vlan::used_vlan_lines(text), vlan::parse_id(text))),
    |text| seen(&vlan::parse_mappings(text, "INGRESS priority mappings:")),
    |text| seen(&vmstat::parse_vmstat(text)),
    |text| seen(&netstat::parse_netstat(text)),
    |text| seen(&owners::parse_irqbalance(text)),
    |text| seen(&(taps::parse_sockets(text), taps::parse_handlers(text))),
    |text| seen(&limits::parse_locked_memory(text)),
    |text| {
        let (mounts, stats) = (nfs::used_mounts(text), nfs::used_mount_stats(text));
        seen(&(nfs::parse_mounts(&mounts), nfs::parse_mount_stats(&stats)));
        let _ = (nfs::parse_client(text), process::used_status(text));
    },
    |text| seen(&cgroups::parse_any(text)),
    |text| seen(&sockets::parse_sockets(text)),
    |text| {
        let any = SocketAddr::from(([127, 0, 0, 1], 1));
        let user = connections::parse_user(text, any, any);
        seen(&(user, connections::parse_address(text)));
    },
    |text| {
        seen(&(
            sockets::parse_socket_link(text),
            sockets::parse_last_cpu(text),
        ));
    },
    |text| seen(&sockets::parse_status(text, "Cpus_allowed_list")),
    |text| seen(&sockets::parse_node_pages(text)),
    |text| seen(&bonding::parse_bonding_port(text, "eth0")),
    |text| seen(&softnet::parse_softnet(text)),
    |text| seen(&pressure::parse_full_total(text)),
    |text| seen(&(interrupts::parse_release(text), parse_uptime(text))),
    |text| seen(&interrupts::parse_interrupts(text)),
    |text| seen(&stat::parse_stat(text)),
    |text| seen(&(block::parse_cpu_list(text), block::parse_size(text))),
    |text| seen(&block::parse_transport(halves(text).0, halves(text).1)),
    |text| seen(&(parse_scheduler(text), block::parse_schedulers(text))),
    |text| seen(&(nodes::parse_page_size(text), nodes::parse_distances(text))),
    |text| {
        seen(&(
            nodes::parse_memory(text, "MemTotal"),
            nodes::used_memory_lines(text),
        ));
    },
    |text| seen(&(bond::parse_option(text), nics::parse_speed(text))),
    |text| seen(&(cpus::parse_online(text), isolation::parse_list(text))),
    |text| seen(&(power::parse_cpus(text), parse_chosen(text))),
    |text| seen(&power::parse_latency(text.as_bytes())),
    |text| seen(&(stack::parse_flag(text), queues::parse_queue_mask(text))),
    |text| seen(&irq_names::parse_queue_name(text)),
    |text| seen(&(pci::parse_speed(text), pci::functions_to_root(text))),
    |text| {
        seen(&(
            pci::function_above(text),
            gids::folder_of(text),
            gids::is_set(text),
        ));
    },
    |text| seen(&kernel::parse_firmware(halves(text).0, halves(text).1)),
    |text| seen(&identity::parse_guest_flag(text)),
    |text| seen(&(rdma::parse_state(text), rdma::parse_lid(text))),
    |text| seen(&rdma::parse_port_rate(text)),
    |text| {
        let ids = pci_ids::Ids {
            device: (0x15b3, 0x1015),
            board: Some((0x15b3, 3)),
        };
        let used = pci_ids::used_lines(text, &BTreeSet::from([ids]));
        seen(&pci_ids::parse_names("pci.ids", &used, ids));
        seen(&psid::parse_psid(text));
    },
    |text| seen(&nic_kind::parse_device_type(text)),
    |text| seen(&(devices::parse_aer_total(text), devices::parse_block(text))),
    |text| seen(&devices::parse_rdma_counter(halves(text).0, halves(text).1)),
    |text| {
        let (possible, line) = halves(text);
        let _ = counts::parse_counts(line, possible.parse::<CpuSet>().ok().as_ref());
    },
    |text| seen(&drop_reasons::parse_format(text)),
    |text| seen(&counts::parse_table(text, &BTreeSet::from([0, 1, 24]))),
    |text| seen(&sysctl_files::parse_sysctl_lines("/etc/sysctl.conf", text)),
    |text| seen(&apply::identity::ProcessStat::parse(text)),
    |text| apply::journal::read_any(text),
    |text| {
        if let Some(bytes) = from_hex(text) {
            assert_eq!(from_hex(&to_hex(&bytes)), Some(bytes));
        }
    },
];

/// Splits a text after its first line, for parsers of two texts.
fn halves(text: &str) -> (&str, &str) {
    text.split_once('\n').unwrap_or((text, ""))
}

/// Passes a file's text to the parser that the first byte selects. Parsers never get invalid UTF-8.
pub fn sysfs_text(bytes: &[u8]) {
    let Some((which, text)) = bytes.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(text);
    if let Some(read) = READERS.get(usize::from(*which) % READERS.len()) {
        read(&text);
    }
}

/// The number of parsers.
#[cfg(test)]
pub(super) fn count() -> u8 {
    u8::try_from(READERS.len()).expect("one byte chooses")
}

/// Accepts a parser's result: the test is only that it returns.
fn seen<T>(_: &T) {}
