//! The counters of one path through a host: those of the interface that a trial's connections use, with its lower
//! interfaces and their interrupts, and the machine-wide counters. Found without reading the host, so that it costs a
//! trial only a few milliseconds on an ordinary machine.

use std::collections::BTreeSet;
use std::net::IpAddr;

use linerate_model::ids::{CpuId, CpuSet, NicName};
use linerate_model::known::{Cause, Gap, Known};

use super::devices::{rdma_ports, read_rdma_port};
use super::{Reading, cpus, drop_reasons, interrupts, nics, parse_uptime};
use crate::attributes::{cpu_list, followed, number, numbered, parsed};
use crate::nic_control::NicRead;
use crate::root::{HostRoot, absolute};

const CLASS: &str = "sys/class/net";
const ONLINE: &str = "sys/devices/system/cpu/online";

/// A host of containers has thousands of interfaces; this many are searched for the one with the address.
const NICS_MAX: usize = 512;
/// A VLAN on a bond on its ports; deeper hierarchies are unusual.
const DEPTH_MAX: usize = 4;

/// The objects whose counters are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchScope {
    /// The interface with the address, and its lower interfaces.
    nics: Known<Vec<NicName>>,
    irqs: BTreeSet<u32>,
    /// The RDMA ports, if the data goes over one.
    rdma: Vec<(String, u32)>,
    online: CpuSet,
    busy: CpuSet,
}

impl WatchScope {
    /// The path of connections from or to this host's own `address`. `busy` are the CPUs known to work for them: on a
    /// machine with many CPUs, only their idle states are read.
    pub fn find(root: &HostRoot, netlink: &dyn NicRead, address: IpAddr, busy: CpuSet) -> Self {
        let nics = carrier(root, netlink, address).map(|nic| with_lower(root, nic));
        let of_nics = nics.value().into_iter().flatten();
        let irqs = of_nics.flat_map(|nic| irqs_of(root, nic)).collect();
        Self {
            irqs,
            nics,
            rdma: Vec::new(),
            online: cpu_list(root, ONLINE).value().cloned().unwrap_or_default(),
            busy,
        }
    }

    /// The same for RDMA: with the ports of the devices on these interfaces, and of those that are `named`.
    #[must_use]
    pub fn with_rdma(mut self, root: &HostRoot, named: &[&str]) -> Self {
        let nics = self.nics.value().map_or(&[][..], Vec::as_slice);
        self.rdma = rdma_ports(root, nics, named);
        self
    }

    /// The interface with the address, or why it was not found.
    pub fn interface(&self) -> Known<NicName> {
        self.nics.clone().and_then(|nics| match nics.first() {
            Some(nic) => Known::Value(nic.clone()),
            None => Known::not_asked(absolute(CLASS)),
        })
    }

    /// The online CPUs; empty if the kernel does not report them.
    pub fn online(&self) -> &CpuSet {
        &self.online
    }

    /// Its counters.
    pub fn read(&self, root: &HostRoot, netlink: &dyn NicRead) -> Reading {
        let mut reading = Reading {
            uptime_ns: parsed(root, "proc/uptime", parse_uptime),
            ..Reading::default()
        };
        match &self.nics {
            Known::Value(nics) => {
                for nic in nics {
                    let sent = transmit_queues(root, nic);
                    nics::read_one(root, netlink, nic, &sent, &mut reading);
                }
            }
            Known::Unknown(gap) => {
                reading.gaps.insert("nic".to_owned(), gap.clone());
            }
        }
        for (device, port) in &self.rdma {
            read_rdma_port(root, netlink.rdma(), device, *port, &mut reading);
        }
        let of_interest = |cpu: &CpuId| self.busy.contains(*cpu);
        cpus::read_of(root, &self.online, of_interest, &mut reading);
        interrupts::read_numbers(root, &self.irqs, &mut reading);
        reading.take_stack(root);
        reading.take_throttled(root);
        drop_reasons::read(root, &self.online, &mut reading);
        reading
    }
}

/// The interface with `address`.
fn carrier(root: &HostRoot, netlink: &dyn NicRead, address: IpAddr) -> Known<NicName> {
    let names = match root.list(CLASS) {
        Known::Value(names) => names,
        Known::Unknown(gap) => return Known::Unknown(gap),
    };
    let address = address.to_string();
    let names = names.into_iter().filter_map(|name| name.parse().ok());
    let mut gap = Gap::new(
        Cause::Absent,
        "netlink/route",
        format!("no interface of this namespace carries {address}"),
    );
    for name in names.take(NICS_MAX) {
        match netlink.addresses(&name) {
            Known::Value(all) => {
                if all
                    .iter()
                    .any(|own| own.split('/').next() == Some(&address))
                {
                    return Known::Value(name);
                }
            }
            Known::Unknown(unread) if unread.cause != Cause::Absent => gap = unread,
            Known::Unknown(_) => {}
        }
    }
    Known::Unknown(gap)
}

/// `nic` with its lower interfaces.
fn with_lower(root: &HostRoot, nic: NicName) -> Vec<NicName> {
    let mut all = vec![nic];
    let mut seen = 0;
    for _ in 0..DEPTH_MAX {
        let upper: Vec<NicName> = all[seen..].to_vec();
        seen = all.len();
        for nic in upper {
            let folder = root.list(&format!("{CLASS}/{nic}"));
            let names = folder.value().into_iter().flatten();
            let lower = names.filter_map(|name| name.strip_prefix("lower_")?.parse().ok());
            for lower in lower {
                if !all.contains(&lower) && all.len() < NICS_MAX {
                    all.push(lower);
                }
            }
        }
    }
    all
}

fn transmit_queues(root: &HostRoot, nic: &NicName) -> Vec<u32> {
    let names = root.list(&format!("{CLASS}/{nic}/queues"));
    numbered(names.value().map_or(&[][..], Vec::as_slice), "tx-")
}

/// The interrupts of an interface's device, or of the function that a virtio device is on. For a function with
/// several interfaces those of all are read.
fn irqs_of(root: &HostRoot, nic: &NicName) -> Vec<u32> {
    let class = followed(root, CLASS, nic.as_str());
    let Some(device) =
        (class.value()).and_then(|own| followed(root, own, "device").value().cloned())
    else {
        return Vec::new();
    };
    let above = device.rsplit_once('/').map(|(above, _)| above.to_owned());
    for folder in [Some(device), above].into_iter().flatten() {
        if let Known::Value(names) = root.list(&format!("{folder}/msi_irqs")) {
            return numbered(&names, "");
        }
        // A function without INTx shows 0.
        if let Some(irq) = number::<u32>(root, &format!("{folder}/irq"))
            .get()
            .filter(|irq| *irq > 0)
        {
            return vec![irq];
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use linerate_model::units::Nanoseconds;

    use super::*;
    use crate::netlink::Netlink;
    use crate::root::LiveHost;

    #[test]
    fn the_way_over_the_loopback_is_found_and_read() {
        let live = LiveHost::open().expect("the root folder");
        let Ok(netlink) = Netlink::open() else { return };
        let address = IpAddr::from([127, 0, 0, 1]);
        let way = WatchScope::find(live.root(), &netlink, address, CpuSet::empty());
        if way.interface().value().is_none() {
            // In a namespace whose loopback is down there is no such address.
            return;
        }
        let first = way.read(live.root(), &netlink);
        let second = way.read(live.root(), &netlink);
        let watch = second.since(&first, Nanoseconds::from_millis(1));
        for key in ["nic/lo/stat/rx_bytes", "stat/ctxt", "vmstat/pgfault"] {
            assert!(
                watch.grown(key).value().is_some(),
                "{key}: {:?}",
                watch.grown(key)
            );
        }
        assert!(
            watch
                .counters
                .keys()
                .all(|key| !key.starts_with("nic/") || key.starts_with("nic/lo/"))
        );
    }

    #[test]
    fn an_address_that_nobody_has_leaves_a_gap_and_the_machines_counters() {
        let live = LiveHost::open().expect("the root folder");
        let Ok(netlink) = Netlink::open() else { return };
        let address = IpAddr::from([203, 0, 113, 77]);
        let way = WatchScope::find(live.root(), &netlink, address, CpuSet::empty());
        assert!(way.interface().value().is_none());
        let reading = way.read(live.root(), &netlink);
        assert!(reading.gaps.contains_key("nic"));
        assert!(reading.counters.contains_key("stat/ctxt"));
    }
}
