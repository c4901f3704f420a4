//! The counters of network interfaces: their files below `/sys/class/net`
//! (Documentation/ABI/testing/sysfs-class-net-statistics, sysfs-class-net-queues), and netlink's counters.

use linerate_model::host::{Host, Nic, QueueKind};
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Gap, Known};

use super::Reading;
use crate::nic_control::NicRead;
use crate::root::HostRoot;

/// A host of containers has thousands of virtual interfaces; those with a physical link are read first.
const NICS_MAX: usize = 64;

pub(super) fn read(root: &HostRoot, netlink: &dyn NicRead, host: &Host, reading: &mut Reading) {
    let mut nics: Vec<&Nic> = host.nics.iter().collect();
    nics.sort_by_key(|nic| !nic.kind.has_wire());
    for (at, nic) in nics.into_iter().enumerate() {
        if at < NICS_MAX {
            let sent = nic.queues.iter();
            let sent = sent.filter(|queue| queue.kind == QueueKind::Tx);
            let sent: Vec<u32> = sent.map(|queue| queue.index).collect();
            read_one(root, netlink, &nic.name, &sent, reading);
        } else {
            let why = format!("more than {NICS_MAX} interfaces: not all of them are watched");
            let path = format!("/sys/class/net/{}", nic.name);
            let gap = Gap::new(Cause::NotAsked, path, why);
            reading.gaps.insert(format!("nic/{}", nic.name), gap);
        }
    }
}

/// Reads the counters of one interface, and of its transmit queues `sent`.
pub(super) fn read_one(
    root: &HostRoot,
    netlink: &dyn NicRead,
    nic: &NicName,
    sent: &[u32],
    reading: &mut Reading,
) {
    read_files(root, nic, sent, reading);
    read_netlink(netlink, nic, reading);
}

fn read_files(root: &HostRoot, nic: &NicName, sent: &[u32], reading: &mut Reading) {
    let folder = format!("sys/class/net/{nic}");
    let prefix = format!("nic/{nic}");
    match root.list(&format!("{folder}/statistics")) {
        Known::Value(names) => {
            for name in names {
                let path = format!("{folder}/statistics/{name}");
                reading.take_file(format!("{prefix}/stat/{name}"), root, &path);
            }
        }
        // Missing statistics are reported, since every interface has them.
        Known::Unknown(gap) => {
            reading.gaps.insert(format!("{prefix}/stat"), gap);
        }
    }
    let changes = format!("{folder}/carrier_changes");
    reading.take_file(format!("{prefix}/stat/carrier_changes"), root, &changes);
    for queue in sent {
        let own = format!("{folder}/queues/tx-{queue}");
        let key = format!("{prefix}/queue/tx-{queue}");
        reading.take_file(
            format!("{key}/tx_timeout"),
            root,
            &format!("{own}/tx_timeout"),
        );
        let stalls = format!("{own}/byte_queue_limits/stall_cnt");
        reading.take_file(format!("{key}/stall_cnt"), root, &stalls);
    }
}

fn read_netlink(netlink: &dyn NicRead, nic: &NicName, reading: &mut Reading) {
    let counts = netlink.counts(nic);
    for (key, counter) in counts.values {
        let key = format!("nic/{nic}/{key}");
        // Both sources have queue counters, with different names.
        reading.counters.entry(key).or_insert(counter);
    }
    for (group, gap) in counts.gaps {
        reading.gaps.insert(format!("nic/{nic}/{group}"), gap);
    }
}
