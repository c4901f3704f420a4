//! Reads a whole host, once. Reading never fails as a whole: what cannot be read is a gap, in its own field or, if it
//! has none, in [`Host::gaps`].

use linerate_model::host::{Host, Nic, Process, RdmaDevice, Software};
use linerate_model::known::{Cause, Gap, Known};

use crate::nic_control::NicRead;
use crate::procfs::conntrack::read_conntrack;
use crate::procfs::identity::{read_cpuinfo, read_identity};
use crate::procfs::interrupts::read_irqs;
use crate::procfs::neighbors::read_routing;
use crate::procfs::nfs::read_mounts;
pub use crate::procfs::owners::read_owners;
use crate::procfs::process::read_cpus_allowed;
use crate::procfs::sysctls::read_sysctls;
use crate::procfs::taps::read_taps;
use crate::root::HostRoot;
use crate::sysctl_files::read_sysctl_lines;
use crate::sysfs::block::read_block;
use crate::sysfs::cgroups::read_quotas;
use crate::sysfs::cpus::{list_cpus, read_cpus, usable};
use crate::sysfs::isolation::read_isolation;
use crate::sysfs::kernel::read_kernel;
use crate::sysfs::nics::read_nics;
use crate::sysfs::nodes::read_nodes;
use crate::sysfs::pci::Functions;
use crate::sysfs::power::{read_frequency, read_power};
use crate::sysfs::rdma::read_rdma;

/// Reads the host at `root`, with `nics` for data that is not in files.
pub fn read_host(root: &HostRoot, nics: &dyn NicRead) -> Host {
    let mut gaps = Vec::new();
    let cpuinfo = read_cpuinfo(root);
    let kernel = read_kernel(root, &cpuinfo);
    let identity = read_identity(root, cpuinfo);
    let nodes = read_nodes(root, &mut gaps);
    let listed = list_cpus(root, &mut gaps);
    let online = usable(&listed);
    let frequency = read_frequency(root, &online);
    let cpus = read_cpus(root, listed, &frequency, &nodes);
    let release = identity.kernel_release.value().map(String::as_str);
    let irqs = read_irqs(root, release, &mut gaps);
    let mut functions = Functions::new(root, &nodes);
    let rdma = read_rdma(root, nics.rdma(), &mut functions, &mut gaps);
    let routing = read_routing(root, nics);
    let mut nics = read_nics(root, nics, &mut functions, &irqs, &mut gaps);
    pair_rdma(&mut nics, &rdma);
    Host {
        identity,
        power: read_power(root, &online, frequency),
        isolation: read_isolation(root, &cpus),
        kernel,
        process: Process {
            cpus_allowed: read_cpus_allowed(root),
            cpu_quotas: read_quotas(root),
        },
        cpus,
        block: read_block(root, &nodes, &mut gaps),
        sysctls: read_sysctls(root),
        software: read_software(root, &nics, &mut gaps),
        routing,
        nodes,
        nics,
        irqs,
        rdma,
        gaps,
    }
}

/// Reads other software on the path. Socket owners are read separately
/// ([`crate::procfs::sockets::read_socket_owners`]): that is expensive, and they must not be in a capture.
fn read_software(root: &HostRoot, nics: &[Nic], gaps: &mut Vec<Gap>) -> Software {
    Software {
        owners: read_owners(root),
        taps: read_taps(root, nics, gaps),
        conntrack: read_conntrack(root),
        sysctl_lines: read_sysctl_lines(root, gaps),
        nfs_mounts: read_mounts(root),
        socket_owners: Known::not_asked("/proc/*/fd"),
    }
}

/// Sets each interface's RDMA device: the one whose port reports it, otherwise the only one on the same PCI function.
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
            (None, None, _) => Err("no RDMA device on this interface"),
            (None, Some(_), Some(_)) => Err("several RDMA devices on the interface's PCI function"),
        };
        nic.rdma = match found {
            Ok(name) => Known::Value(name),
            Err(why) => Known::Unknown(Gap::new(Cause::Absent, "/sys/class/infiniband", why)),
        };
    }
}
