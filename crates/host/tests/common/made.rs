//! Synthetic hosts, as directories: small enough to review, complete enough for rules.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use linerate_host::capture::{Archive, CaptureOptions, NicAnswers, capture};
use linerate_host::nic_control::NicCounts;
use linerate_host::root::HostRoot;
use linerate_model::host::{
    Card, Channels, Coalesce, Dispatch, Feature, Qdisc, Rings, Shaping, Stack, Wire,
};
use linerate_model::known::{Cause, Known};

use super::{FakeNics, nic};

/// A builder of a host.
#[derive(Default)]
pub(crate) struct Made {
    files: BTreeMap<String, String>,
    links: BTreeMap<String, String>,
    pub(crate) nics: FakeNics,
}

impl Made {
    pub(crate) fn file(&mut self, path: &str, text: impl Into<String>) -> &mut Self {
        self.files.insert(path.to_owned(), text.into());
        self
    }

    pub(crate) fn link(&mut self, path: &str, target: &str) -> &mut Self {
        self.links.insert(path.to_owned(), target.to_owned());
        self
    }

    /// Writes the host below `folder`.
    pub(crate) fn write(&self, folder: &Path) {
        let parent = |path: &str| {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().expect("below the folder")).expect("a folder");
            path
        };
        for (path, text) in &self.files {
            let path = parent(path);
            fs::write(&path, format!("{text}\n")).expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("its mode");
        }
        for (path, target) in &self.links {
            symlink(target, parent(path)).expect("a link");
        }
        set_folder_modes(folder);
    }

    /// The host as an archive, made like that of a live host.
    pub(crate) fn archive(&self) -> Archive {
        let folder = tempfile::tempdir().expect("a folder");
        self.write(folder.path());
        let root = HostRoot::open(folder.path()).expect("the folder");
        let options = CaptureOptions {
            version: "0.1.0".to_owned(),
            pseudonyms: false,
        };
        capture(&root, &self.nics, &options)
    }
}

/// The mode of a directory must not depend on the user's umask.
fn set_folder_modes(folder: &Path) {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("its mode");
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.is_symlink() {
            set_folder_modes(&path);
        }
    }
}

const SYSCTLS: [(&str, &str); 26] = [
    ("kernel/numa_balancing", "0"),
    ("net/core/busy_poll", "0"),
    ("net/core/busy_read", "0"),
    ("net/core/default_qdisc", "fq_codel"),
    ("net/core/netdev_budget", "300"),
    ("net/core/netdev_budget_usecs", "2000"),
    ("net/core/netdev_max_backlog", "1000"),
    ("net/core/rmem_default", "212992"),
    ("net/core/rmem_max", "212992"),
    ("net/core/rps_sock_flow_entries", "0"),
    ("net/core/somaxconn", "4096"),
    ("net/core/wmem_default", "212992"),
    ("net/core/wmem_max", "212992"),
    ("net/ipv4/ip_forward", "0"),
    ("net/ipv4/tcp_available_congestion_control", "reno cubic"),
    ("net/ipv4/tcp_congestion_control", "cubic"),
    ("net/ipv4/tcp_moderate_rcvbuf", "1"),
    ("net/ipv4/tcp_mtu_probing", "0"),
    ("net/ipv4/tcp_notsent_lowat", "4294967295"),
    ("net/ipv4/tcp_rmem", "4096\t131072\t6291456"),
    ("net/ipv4/tcp_sack", "1"),
    ("net/ipv4/tcp_slow_start_after_idle", "1"),
    ("net/ipv4/tcp_timestamps", "1"),
    ("net/ipv4/tcp_window_scaling", "1"),
    ("net/ipv4/tcp_wmem", "4096\t16384\t4194304"),
    ("vm/swappiness", "60"),
];

const CLOCKS: &str = "sys/devices/system/clocksource/clocksource0";

/// The cpufreq settings of each CPU.
const POLICY: [(&str, &str); 6] = [
    ("cpuinfo_max_freq", "3500000"),
    ("scaling_available_governors", "performance powersave"),
    ("scaling_driver", "acpi-cpufreq"),
    ("scaling_governor", "performance"),
    ("scaling_max_freq", "3500000"),
    ("scaling_min_freq", "800000"),
];

fn kernel(made: &mut Made, hostname: &str, boot_id: &str) {
    for (name, value) in SYSCTLS {
        made.file(&format!("proc/sys/{name}"), value);
    }
    made.file("proc/sys/kernel/hostname", hostname)
        .file("proc/sys/kernel/osrelease", "6.12.0-made")
        .file("proc/sys/kernel/arch", "x86_64")
        .file("proc/sys/kernel/random/boot_id", boot_id)
        .file("proc/cmdline", "ro quiet mitigations=auto")
        .file("proc/self/cgroup", "0::/user.slice/session-1.scope")
        .file(
            "sys/fs/cgroup/user.slice/session-1.scope/cgroup.controllers",
            "memory pids",
        )
        .file("proc/self/mounts", "/dev/sda1 / ext4 rw,relatime 0 0")
        .file(&format!("{CLOCKS}/current_clocksource"), "tsc")
        .file(
            &format!("{CLOCKS}/available_clocksource"),
            "tsc hpet acpi_pm",
        )
        .file(
            "boot/config-6.12.0-made",
            "CONFIG_64BIT=y\nCONFIG_IRQ_TIME_ACCOUNTING=y",
        );
}

/// `sockets` packages of `cores` cores without SMT, one node each.
fn cpus(made: &mut Made, sockets: u32, cores: u32, model: &str) {
    let last = sockets * cores - 1;
    made.file(
        "proc/cpuinfo",
        format!("processor\t: 0\nmodel name\t: {model}"),
    )
    .file("sys/devices/system/cpu/online", format!("0-{last}"))
    .file(
        "proc/self/status",
        format!("Name:\tlinerate\nCpus_allowed_list:\t0-{last}"),
    );
    for cpu in 0..=last {
        let folder = format!("sys/devices/system/cpu/cpu{cpu}");
        made.file(
            &format!("{folder}/topology/physical_package_id"),
            (cpu / cores).to_string(),
        )
        .file(
            &format!("{folder}/topology/core_id"),
            (cpu % cores).to_string(),
        )
        .file(
            &format!("{folder}/topology/core_cpus_list"),
            cpu.to_string(),
        );
        let policy = format!("sys/devices/system/cpu/cpufreq/policy{cpu}");
        for (name, value) in POLICY {
            made.file(&format!("{policy}/{name}"), value);
        }
    }
    for node in 0..sockets {
        let folder = format!("sys/devices/system/node/node{node}");
        let distances: Vec<&str> = (0..sockets)
            .map(|to| if to == node { "10" } else { "21" })
            .collect();
        made.file(
            &format!("{folder}/cpulist"),
            format!("{}-{}", node * cores, (node + 1) * cores - 1),
        )
        .file(
            &format!("{folder}/meminfo"),
            format!("Node {node} MemTotal:       67108864 kB"),
        )
        .file(&format!("{folder}/distance"), distances.join(" "));
    }
}

fn interrupt(made: &mut Made, number: u32, action: &str, requested: &str, effective: &str) {
    made.file(&format!("sys/kernel/irq/{number}/actions"), action)
        .file(&format!("proc/irq/{number}/smp_affinity_list"), requested)
        .file(
            &format!("proc/irq/{number}/effective_affinity_list"),
            effective,
        );
}

fn loopback(made: &mut Made) {
    let real = "sys/devices/virtual/net/lo";
    made.link("sys/class/net/lo", "../../devices/virtual/net/lo")
        .file(&format!("{real}/ifindex"), "1")
        .file(&format!("{real}/type"), "772")
        .file(&format!("{real}/mtu"), "65536")
        .file(&format!("{real}/operstate"), "unknown")
        .file(&format!("{real}/uevent"), "INTERFACE=lo\nIFINDEX=1")
        .file(&format!("{real}/queues/rx-0/rps_cpus"), "0")
        .file(&format!("{real}/queues/rx-0/rps_flow_cnt"), "0")
        .file(&format!("{real}/queues/tx-0/tx_timeout"), "0");
    made.nics
        .0
        .insert(nic("lo"), answers("127.0.0.1/8", 0, "noqueue"));
}

/// The differences between synthetic NICs.
struct Port {
    name: &'static str,
    index: u32,
    speed: &'static str,
    mtu: &'static str,
    /// The XPS CPU of each queue.
    senders: Vec<u32>,
}

/// A NIC's own directory, with a queue pair for each of its senders.
fn interface(made: &mut Made, real: &str, port: &Port) {
    let Port { name, index, .. } = port;
    let device_type = format!("INTERFACE={name}\nIFINDEX={index}");
    made.link(
        &format!("sys/class/net/{name}"),
        &format!("../../{}", &real[4..]),
    )
    .file(&format!("{real}/ifindex"), index.to_string())
    .file(&format!("{real}/type"), "1")
    .file(&format!("{real}/mtu"), port.mtu)
    .file(&format!("{real}/speed"), port.speed)
    .file(&format!("{real}/operstate"), "up")
    .file(&format!("{real}/uevent"), device_type)
    .link(&format!("{real}/device"), "../..");
    for (queue, cpu) in port.senders.iter().enumerate() {
        made.file(&format!("{real}/queues/rx-{queue}/rps_cpus"), "00")
            .file(&format!("{real}/queues/rx-{queue}/rps_flow_cnt"), "0")
            .file(
                &format!("{real}/queues/tx-{queue}/xps_cpus"),
                format!("{:02x}", 1 << cpu),
            )
            .file(&format!("{real}/queues/tx-{queue}/tx_timeout"), "0");
    }
}

fn answers(address: &str, queues: u32, qdisc: &str) -> NicAnswers {
    fn absent<T>(what: &str) -> Known<T> {
        Known::unknown(Cause::Absent, format!("ethtool: {what}"), "not offered")
    }
    let is_real = queues > 0;
    let feature = |changeable| Feature {
        active: true,
        changeable,
    };
    let count = |known: u32| {
        if known > 0 {
            Known::Value(known)
        } else {
            absent("count")
        }
    };
    NicAnswers {
        kind: Known::unknown(
            Cause::NotSaid,
            "rtnetlink: IFLA_INFO_KIND",
            "it names no kind",
        ),
        addresses: Known::Value(vec![address.to_owned()]),
        features: Known::Value(BTreeMap::from([
            ("rx-gro".to_owned(), feature(true)),
            ("tx-generic-segmentation".to_owned(), feature(true)),
            ("tx-tcp-segmentation".to_owned(), feature(is_real)),
        ])),
        rings: if is_real {
            Known::Value(Rings {
                rx: Known::Value(1024),
                rx_max: Known::Value(8192),
                tx: Known::Value(1024),
                tx_max: Known::Value(8192),
            })
        } else {
            absent("rings")
        },
        channels: if is_real {
            Known::Value(Channels {
                rx: absent("rx channels"),
                tx: absent("tx channels"),
                combined: count(queues),
                rx_max: absent("rx channels"),
                tx_max: absent("tx channels"),
                combined_max: count(queues),
            })
        } else {
            absent("channels")
        },
        coalesce: if is_real {
            Known::Value(Coalesce {
                rx_usecs: Known::Value(8),
                tx_usecs: Known::Value(16),
                adaptive_rx: Known::Value(true),
                adaptive_tx: Known::Value(true),
                rx_frames: Known::Value(64),
                tx_frames: Known::Value(64),
            })
        } else {
            absent("coalesce")
        },
        qdisc: Known::Value(Qdisc::plain(qdisc)),
        card: Card::default(),
        wire: Wire::default(),
        stack: Stack::default(),
        dispatch: Dispatch::default(),
        shaping: Shaping::default(),
        counts: NicCounts::default(),
    }
}

fn function(made: &mut Made, folder: &str, speed: &str, width: &str) {
    made.file(&format!("{folder}/current_link_speed"), speed)
        .file(&format!("{folder}/current_link_width"), width)
        .file(&format!("{folder}/max_link_speed"), "16.0 GT/s PCIe")
        .file(&format!("{folder}/max_link_width"), "16");
}

/// Two sockets of four cores; a 100 Gb/s NIC with four queues on node 1, behind a PCIe switch. Well configured, or
/// with its interrupts on node 0 and the switch's link trained at a quarter of its width and half its speed.
pub(crate) fn two_socket(is_well: bool) -> Made {
    let mut made = Made::default();
    kernel(
        &mut made,
        "made-two-socket",
        "7a3f5c1e-0000-4000-8000-000000000001",
    );
    cpus(&mut made, 2, 4, "Made CPU with four cores");
    loopback(&mut made);
    let port = "sys/devices/pci0000:80/0000:80:01.0";
    let switch = format!("{port}/0000:81:00.0");
    let leg = format!("{switch}/0000:82:00.0");
    let card = format!("{leg}/0000:83:00.0");
    let above = if is_well {
        ("16.0 GT/s PCIe", "16")
    } else {
        ("8.0 GT/s PCIe", "4")
    };
    function(&mut made, port, above.0, above.1);
    function(&mut made, &switch, above.0, above.1);
    function(&mut made, &leg, "16.0 GT/s PCIe", "16");
    function(&mut made, &card, "16.0 GT/s PCIe", "16");
    made.file(&format!("{card}/numa_node"), "1")
        .file(&format!("{card}/local_cpulist"), "4-7")
        .file(&format!("{card}/link/l1_aspm"), "0")
        .link(
            &format!("{card}/driver"),
            "../../../../../../bus/pci/drivers/mlx5_core",
        );
    // Each queue's XPS CPU is the CPU of its interrupt.
    let first = if is_well { 4 } else { 0 };
    let port = Port {
        name: "eth2",
        index: 2,
        speed: "100000",
        // RDMA packets of 4096 bytes fit.
        mtu: "9000",
        senders: (first..first + 4).collect(),
    };
    interface(&mut made, &format!("{card}/net/eth2"), &port);
    made.nics
        .0
        .insert(nic("eth2"), answers("192.168.10.1/24", 4, "mq"));
    for (queue, cpu) in (0u32..).zip(&port.senders) {
        let cpu = cpu.to_string();
        let number = 60 + queue;
        let action = format!("mlx5_comp{queue}@pci:0000:83:00.0");
        interrupt(&mut made, number, &action, &cpu, &cpu);
        made.file(&format!("{card}/msi_irqs/{number}"), "msix");
    }
    rdma(&mut made, &card);
    nvme(&mut made);
    for (name, value) in [("count", "812"), ("max", "262144"), ("buckets", "65536")] {
        made.file(
            &format!("proc/sys/net/netfilter/nf_conntrack_{name}"),
            value,
        );
    }
    made
}

fn rdma(made: &mut Made, card: &str) {
    let real = format!("{card}/infiniband/mlx5_0");
    made.link(
        "sys/class/infiniband/mlx5_0",
        &format!("../../{}", &real[4..]),
    )
    .file(&format!("{real}/ports/1/state"), "4: ACTIVE")
    .file(&format!("{real}/ports/1/rate"), "100 Gb/sec (4X EDR)")
    .file(&format!("{real}/ports/1/link_layer"), "Ethernet")
    .file(&format!("{real}/ports/1/gid_attrs/ndevs/0"), "eth2");
}

fn nvme(made: &mut Made) {
    let function = "sys/devices/pci0000:00/0000:00:03.0/0000:02:00.0";
    let real = format!("{function}/nvme/nvme0/nvme0n1");
    made.link("sys/block/nvme0n1", &format!("../{}", &real[4..]))
        .file(&format!("{function}/numa_node"), "0")
        .file(
            &format!("{real}/queue/scheduler"),
            "[none] mq-deadline kyber",
        )
        .file(&format!("{real}/mq/0/nr_tags"), "1023")
        .file(&format!("{real}/mq/1/nr_tags"), "1023");
}

/// A virtual machine with two CPUs and a virtio NIC with two queue pairs.
pub(crate) fn virtual_machine() -> Made {
    let mut made = Made::default();
    kernel(&mut made, "made-vm", "7a3f5c1e-0000-4000-8000-000000000002");
    cpus(&mut made, 1, 2, "Made virtual CPU");
    loopback(&mut made);
    let function = "sys/devices/pci0000:00/0000:00:03.0";
    let device = format!("{function}/virtio2");
    made.file(&format!("{function}/numa_node"), "-1")
        .file(&format!("{function}/local_cpulist"), "0-1")
        .link(
            &format!("{device}/driver"),
            "../../../../bus/virtio/drivers/virtio_net",
        );
    let port = Port {
        name: "ens3",
        index: 2,
        speed: "-1",
        mtu: "1500",
        senders: vec![0, 1],
    };
    interface(&mut made, &format!("{device}/net/ens3"), &port);
    made.nics
        .0
        .insert(nic("ens3"), answers("10.0.2.15/24", 2, "mq"));
    let names = ["config", "input.0", "output.0", "input.1", "output.1"];
    for (at, name) in (0u32..).zip(names) {
        let (number, cpu) = (30 + at, (at / 3).to_string());
        interrupt(&mut made, number, &format!("virtio2-{name}"), "0-1", &cpu);
        made.file(&format!("{function}/msi_irqs/{number}"), "msix");
    }
    let disk = "sys/devices/pci0000:00/0000:00:04.0/virtio3/block/vda";
    made.link("sys/block/vda", &format!("../{}", &disk[4..]))
        .file("sys/devices/pci0000:00/0000:00:04.0/numa_node", "-1")
        .file(&format!("{disk}/queue/scheduler"), "[none] mq-deadline")
        .file(&format!("{disk}/mq/0/nr_tags"), "256");
    made
}
