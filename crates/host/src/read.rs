//! Reads a whole host, once. Reading never fails as a whole: what cannot be read leaves a gap, in its
//! own field or, where it has none, in [`Host::gaps`].

use linerate_model::host::{Host, Isolation, Kernel, Nic, Power, RdmaDevice, Software};
use linerate_model::known::{Cause, Gap, Known};

use crate::nic_control::NicRead;
use crate::procfs::identity::read_identity;
use crate::procfs::interrupts::read_irqs;
use crate::procfs::sysctls::read_sysctls;
use crate::root::HostRoot;
use crate::sysfs::block::read_block;
use crate::sysfs::cpus::read_cpus;
use crate::sysfs::nics::read_nics;
use crate::sysfs::nodes::read_nodes;
use crate::sysfs::pci::Functions;
use crate::sysfs::rdma::read_rdma;

/// Reads the host at `root`, asking `nics` for what has no file.
pub fn read_host(root: &HostRoot, nics: &dyn NicRead) -> Host {
    let mut gaps = Vec::new();
    let identity = read_identity(root);
    let nodes = read_nodes(root, &mut gaps);
    let cpus = read_cpus(root, &nodes, &mut gaps);
    let irqs = read_irqs(root, &mut gaps);
    let mut functions = Functions::new(root, &nodes);
    let mut nics = read_nics(root, nics, &mut functions, &irqs, &mut gaps);
    let rdma = read_rdma(root, &mut functions, &mut gaps);
    pair_rdma(&mut nics, &rdma);
    Host {
        identity,
        cpus,
        block: read_block(root, &nodes, &mut gaps),
        sysctls: read_sysctls(root),
        power: Power::default(),
        isolation: Isolation::default(),
        kernel: Kernel::default(),
        software: Software::default(),
        nodes,
        nics,
        irqs,
        rdma,
        gaps,
    }
}

/// Names each interface's RDMA device: the one a port of which says so, else the only one on the same
/// PCI function.
fn pair_rdma(nics: &mut [Nic], rdma: &[RdmaDevice]) {
    for nic in nics {
        let by_port = rdma.iter().find(|device| {
            let mut netdevs = device.ports.iter().filter_map(|port| port.netdev.value());
            netdevs.any(|netdev| *netdev == nic.name)
        });
        let mut on_function = rdma.iter().filter(|device| {
            device.pci_address.get().is_some() && device.pci_address.get() == nic.pci_address.get()
        });
        let found = match (by_port, on_function.next(), on_function.next()) {
            (Some(device), ..) | (None, Some(device), None) => Ok(device.name.clone()),
            (None, None, _) => Err("no RDMA device is on this interface"),
            (None, Some(_), Some(_)) => Err("several RDMA devices are on the interface's function"),
        };
        nic.rdma = match found {
            Ok(name) => Known::Value(name),
            Err(why) => Known::Unknown(Gap::new(Cause::Absent, "/sys/class/infiniband", why)),
        };
    }
}
