//! Hosts of any size, made as folders of `/sys` and `/proc`: CPUs, nodes, NICs with queues on PCIe,
//! interrupts. The files are those that a kernel of today has and a map reads, and more.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The size of a synthetic host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) cpus: u32,
    pub(crate) nodes: u32,
    pub(crate) nics: u32,
    pub(crate) queues: u32,
    pub(crate) irqs: u32,
}

impl Size {
    /// So many sixteenths of 1,024 CPUs, 16 nodes, 16 NICs with 64 queues, 4,096 interrupts.
    pub(crate) fn sixteenths(part: u32) -> Self {
        Self {
            cpus: 64 * part,
            nodes: part,
            nics: part,
            queues: 64,
            irqs: 256 * part,
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} CPUs, {} nodes, {} NICs x {}, {} irqs",
            self.cpus, self.nodes, self.nics, self.queues, self.irqs
        )
    }
}

/// A synthetic host, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn make(parent: &Path, size: Size) -> io::Result<Self> {
        let name = format!("linerate-made-{}-{}", std::process::id(), size.cpus);
        let folder = Self(parent.join(name));
        fs::create_dir_all(&folder.0)?;
        let make = Make {
            root: &folder.0,
            size,
        };
        make.machine()?;
        make.cpus()?;
        make.nodes()?;
        make.irqs()?;
        for nic in 0..size.nics {
            make.nic(nic)?;
        }
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that cannot be removed is a nuisance, not a wrong result.
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Make<'a> {
    root: &'a Path,
    size: Size,
}

impl Make<'_> {
    fn file(&self, path: &str, text: &str) -> io::Result<()> {
        let path = self.root.join(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, format!("{text}\n"))
    }

    fn files(&self, folder: &str, files: &[(&str, &str)]) -> io::Result<()> {
        for (name, text) in files {
            self.file(&format!("{folder}/{name}"), text)?;
        }
        Ok(())
    }

    fn link(&self, path: &str, target: &str) -> io::Result<()> {
        let path = self.root.join(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        symlink(target, path)
    }

    /// CPUs of a node, as ranges of the kernel's list form.
    fn cpus_of(&self, node: u32) -> (u32, u32) {
        let each = self.size.cpus / self.size.nodes;
        (node * each, (node + 1) * each - 1)
    }

    fn node_list(&self, node: u32) -> String {
        let (first, last) = self.cpus_of(node);
        format!("{first}-{last}")
    }

    /// A mask with one CPU, as wide as the host's.
    fn mask(&self, cpu: u32) -> String {
        let words = self.size.cpus.div_ceil(32);
        let word = |at: u32| {
            if cpu / 32 == at {
                1u32 << (cpu % 32)
            } else {
                0
            }
        };
        let all: Vec<String> = (0..words)
            .rev()
            .map(|at| format!("{:08x}", word(at)))
            .collect();
        all.join(",")
    }

    fn machine(&self) -> io::Result<()> {
        let all = format!("0-{}", self.size.cpus - 1);
        self.files(
            "sys/devices/system/cpu",
            &[
                ("online", &all),
                ("possible", &all),
                ("present", &all),
                ("offline", ""),
                ("isolated", ""),
                ("nohz_full", "(null)"),
                ("smt/control", "on"),
                ("smt/active", "1"),
            ],
        )?;
        self.files(
            "proc",
            &[
                ("cmdline", "quiet"),
                ("cpuinfo", "processor\t: 0\nmodel name\t: Made CPU"),
                ("sys/kernel/osrelease", "6.12.0-made"),
                ("sys/kernel/hostname", "made"),
                ("sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456"),
                ("sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304"),
                ("sys/net/ipv4/tcp_congestion_control", "cubic"),
            ],
        )
    }

    fn cpus(&self) -> io::Result<()> {
        for node in 0..self.size.nodes {
            let list = self.node_list(node);
            let (first, last) = self.cpus_of(node);
            for cpu in first..=last {
                let core = cpu / 2;
                let pair = format!("{}-{}", core * 2, core * 2 + 1);
                let folder = format!("sys/devices/system/cpu/cpu{cpu}");
                self.files(
                    &folder,
                    &[
                        ("online", "1"),
                        ("topology/physical_package_id", &node.to_string()),
                        ("topology/die_id", "0"),
                        ("topology/core_id", &core.to_string()),
                        ("topology/core_cpus_list", &pair),
                        ("topology/thread_siblings_list", &pair),
                        ("topology/package_cpus_list", &list),
                        ("topology/die_cpus_list", &list),
                        ("cache/index0/level", "1"),
                        ("cache/index0/type", "Data"),
                        ("cache/index0/shared_cpu_list", &pair),
                        ("cache/index3/level", "3"),
                        ("cache/index3/type", "Unified"),
                        ("cache/index3/shared_cpu_list", &list),
                        ("cpuidle/state0/name", "POLL"),
                        ("cpuidle/state0/latency", "0"),
                        ("cpuidle/state0/disable", "0"),
                        ("cpuidle/state1/name", "C1"),
                        ("cpuidle/state1/latency", "2"),
                        ("cpuidle/state1/disable", "0"),
                    ],
                )?;
                let policy = format!("sys/devices/system/cpu/cpufreq/policy{cpu}");
                self.files(
                    &policy,
                    &[
                        ("affected_cpus", &cpu.to_string()),
                        ("related_cpus", &cpu.to_string()),
                        ("scaling_driver", "intel_pstate"),
                        ("scaling_governor", "performance"),
                        ("scaling_min_freq", "800000"),
                        ("scaling_max_freq", "3600000"),
                        ("cpuinfo_max_freq", "3600000"),
                    ],
                )?;
                self.link(
                    &format!("{folder}/cpufreq"),
                    &format!("../cpufreq/policy{cpu}"),
                )?;
                self.link(
                    &format!("{folder}/node{node}"),
                    &format!("../../node/node{node}"),
                )?;
            }
        }
        Ok(())
    }

    fn nodes(&self) -> io::Result<()> {
        let all = match self.size.nodes {
            1 => "0".to_owned(),
            nodes => format!("0-{}", nodes - 1),
        };
        self.file("sys/devices/system/node/online", &all)?;
        for node in 0..self.size.nodes {
            let distance = |other: u32| if other == node { "10" } else { "21" };
            let distances: Vec<&str> = (0..self.size.nodes).map(distance).collect();
            let meminfo = format!(
                "Node {node} MemTotal:       67108864 kB\nNode {node} MemFree:        60000000 kB"
            );
            self.files(
                &format!("sys/devices/system/node/node{node}"),
                &[
                    ("cpulist", &self.node_list(node)),
                    ("distance", &distances.join(" ")),
                    ("meminfo", &meminfo),
                ],
            )?;
        }
        Ok(())
    }

    fn irqs(&self) -> io::Result<()> {
        let per_nic = self.size.queues;
        for irq in 0..self.size.irqs {
            let cpu = irq % self.size.cpus;
            let action = match (irq / per_nic, irq % per_nic) {
                (nic, queue) if nic < self.size.nics => {
                    format!("mlx5_comp{queue}@pci:{}", address(nic))
                }
                _ => format!("other-{irq}"),
            };
            let proc = format!("proc/irq/{irq}");
            self.files(
                &proc,
                &[
                    ("smp_affinity", &self.mask(cpu)),
                    ("smp_affinity_list", &cpu.to_string()),
                    ("effective_affinity", &self.mask(cpu)),
                    ("effective_affinity_list", &cpu.to_string()),
                    ("node", "0"),
                ],
            )?;
            self.files(
                &format!("sys/kernel/irq/{irq}"),
                &[
                    ("actions", &action),
                    ("chip_name", "PCI-MSIX"),
                    ("hwirq", &irq.to_string()),
                    ("type", "edge"),
                ],
            )?;
        }
        self.file("proc/irq/default_smp_affinity", &self.mask(0))
    }

    fn nic(&self, nic: u32) -> io::Result<()> {
        let node = nic % self.size.nodes;
        let bus = format!("{:02x}", nic + 1);
        let port = format!("sys/devices/pci{DOMAIN}:{bus}/{DOMAIN}:{bus}:01.0");
        let function = format!("{port}/{}", address(nic));
        let link = [
            ("current_link_speed", "16.0 GT/s PCIe"),
            ("current_link_width", "16"),
            ("max_link_speed", "16.0 GT/s PCIe"),
            ("max_link_width", "16"),
        ];
        let near = [
            ("numa_node", node.to_string()),
            ("local_cpulist", self.node_list(node)),
        ];
        for folder in [&port, &function] {
            self.files(folder, &link)?;
            for (name, text) in &near {
                self.file(&format!("{folder}/{name}"), text)?;
            }
            self.files(
                folder,
                &[
                    ("vendor", "0x15b3"),
                    ("device", "0x1021"),
                    ("class", "0x020000"),
                ],
            )?;
        }
        let first = nic * self.size.queues;
        for irq in first..first + self.size.queues {
            self.file(&format!("{function}/msi_irqs/{irq}"), "msix")?;
        }
        fs::create_dir_all(self.root.join("sys/bus/pci/drivers/mlx5_core"))?;
        self.link(
            &format!("{function}/driver"),
            "../../../../bus/pci/drivers/mlx5_core",
        )?;
        let name = format!("eth{nic}");
        let device = format!("{function}/net/{name}");
        self.files(
            &device,
            &[
                ("ifindex", &(nic + 2).to_string()),
                ("type", "1"),
                ("mtu", "1500"),
                ("speed", "100000"),
                ("operstate", "up"),
                ("uevent", &format!("INTERFACE={name}\nIFINDEX={}", nic + 2)),
                ("tx_queue_len", "1000"),
                ("gro_flush_timeout", "0"),
                ("napi_defer_hard_irqs", "0"),
                ("threaded", "0"),
            ],
        )?;
        self.link(&format!("{device}/device"), "../..")?;
        self.link(
            &format!("sys/class/net/{name}"),
            &format!(
                "../../devices/pci{DOMAIN}:{bus}/{DOMAIN}:{bus}:01.0/{}/net/{name}",
                address(nic)
            ),
        )?;
        self.queues(&device, first)
    }

    fn queues(&self, device: &str, first: u32) -> io::Result<()> {
        for queue in 0..self.size.queues {
            let cpu = (first + queue) % self.size.cpus;
            self.files(
                &format!("{device}/queues/rx-{queue}"),
                &[("rps_cpus", &self.mask(u32::MAX)), ("rps_flow_cnt", "0")],
            )?;
            self.files(
                &format!("{device}/queues/tx-{queue}"),
                &[
                    ("xps_cpus", &self.mask(cpu)),
                    ("xps_rxqs", "0"),
                    ("tx_maxrate", "0"),
                    ("tx_timeout", "0"),
                ],
            )?;
        }
        Ok(())
    }
}

/// PCI domain of all synthetic NICs.
const DOMAIN: &str = "0000";

fn address(nic: u32) -> String {
    format!("{DOMAIN}:{:02x}:00.0", nic + 64)
}
