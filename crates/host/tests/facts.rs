//! Data of the machine itself, each from its kernel files: synthetic hosts, and what a capture of them contains and
//! withholds.

#![expect(
    clippy::disallowed_methods,
    reason = "a test starts programs and reads its own environment"
)]

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use common::FakeNics;
use linerate_host::capture::{Archive, CaptureOptions, record};
use linerate_host::procfs::sockets::read_socket_owners;
use linerate_host::read::read_host;
use linerate_host::root::{HostRoot, LiveHost};
use linerate_model::host::{CpuKind, Host, Limit};
use linerate_model::ids::{CpuSet, NodeId};
use linerate_model::known::{Cause, Known};
use linerate_model::units::Bytes;
use tempfile::TempDir;

/// A host with these files; binary contents are allowed.
fn made(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (path, text) in files {
        write(folder.path(), path, text.as_bytes());
    }
    folder
}

fn write(folder: &Path, path: &str, text: &[u8]) {
    let path = folder.join(path);
    fs::create_dir_all(path.parent().expect("below the folder")).expect("a folder");
    fs::write(&path, text).expect("a file");
}

fn link(folder: &Path, path: &str, target: &str) {
    let path = folder.join(path);
    fs::create_dir_all(path.parent().expect("below the folder")).expect("a folder");
    symlink(target, path).expect("a link");
}

fn root(folder: &TempDir) -> HostRoot {
    HostRoot::open(folder.path()).expect("the folder")
}

fn read(folder: &TempDir) -> Host {
    read_host(&root(folder), &FakeNics::default())
}

/// The text of a capture, and the host that is read from it.
fn captured(folder: &TempDir, pseudonyms: bool) -> (String, Host) {
    let options = CaptureOptions {
        version: "0.1.0".to_owned(),
        pseudonyms,
    };
    let (_, archive) = record(&root(folder), &FakeNics::default(), &options);
    let text = archive.to_text();
    let captured = Archive::parse(text.as_bytes())
        .expect("an archive")
        .into_captured();
    (text, read_host(captured.root(), &captured))
}

fn list(cpus: &Known<CpuSet>) -> Option<String> {
    cpus.value().map(ToString::to_string)
}

fn cause<T>(known: &Known<T>) -> Option<Cause> {
    known.gap().map(|gap| gap.cause)
}

const CPU: &str = "sys/devices/system/cpu";

/// Four CPUs: two SMT siblings of a performance core, and two efficiency cores that share an L2 cache.
fn hybrid() -> TempDir {
    let folder = made(&[
        ("sys/devices/system/cpu/online", "0-3"),
        ("sys/devices/cpu_core/cpus", "0-1"),
        ("sys/devices/cpu_atom/cpus", "2-3"),
    ]);
    let at =
        |path: String, text: &str| write(folder.path(), &format!("{CPU}/{path}"), text.as_bytes());
    for (cpu, core, threads) in [(0, 0, "0-1"), (1, 0, "0-1"), (2, 8, "2"), (3, 9, "3")] {
        at(format!("cpu{cpu}/topology/core_cpus_list"), threads);
        at(format!("cpu{cpu}/topology/core_id"), &core.to_string());
        at(format!("cpu{cpu}/topology/package_cpus_list"), "0-3");
        at(format!("cpu{cpu}/topology/physical_package_id"), "0");
        at(format!("cpu{cpu}/topology/die_id"), "-1");
        let (caches, sharers) = if cpu < 2 { (4, "0-1") } else { (3, "2-3") };
        for (index, (level, kind)) in [
            (1, "Data"),
            (1, "Instruction"),
            (2, "Unified"),
            (3, "Unified"),
        ]
        .into_iter()
        .take(caches)
        .enumerate()
        {
            at(
                format!("cpu{cpu}/cache/index{index}/level"),
                &level.to_string(),
            );
            at(format!("cpu{cpu}/cache/index{index}/type"), kind);
            let last = index + 1 == caches;
            at(
                format!("cpu{cpu}/cache/index{index}/shared_cpu_list"),
                if last { sharers } else { threads },
            );
        }
        at(
            format!("cpufreq/policy{cpu}/scaling_governor"),
            if cpu == 3 { "powersave" } else { "performance" },
        );
        at(
            format!("cpufreq/policy{cpu}/scaling_driver"),
            "intel_pstate",
        );
        at(format!("cpufreq/policy{cpu}/scaling_max_freq"), "3900000");
        for (state, name, latency) in [(0, "POLL", "0"), (1, "C6", "170")] {
            if cpu == 3 && state == 1 {
                continue;
            }
            let state = format!("cpu{cpu}/cpuidle/state{state}");
            at(format!("{state}/name"), name);
            at(format!("{state}/latency"), latency);
            at(
                format!("{state}/disable"),
                if cpu == 1 && name == "C6" { "1" } else { "0" },
            );
        }
    }
    at("intel_pstate/no_turbo".to_owned(), "1");
    at("intel_pstate/status".to_owned(), "active");
    at("smt/control".to_owned(), "on");
    write(folder.path(), "dev/cpu_dma_latency", &10i32.to_ne_bytes());
    folder
}

#[test]
fn cores_of_two_kinds_have_their_own_caches_speeds_and_idle_states() {
    let folder = hybrid();
    let host = read(&folder);
    let kinds: Vec<_> = host.cpus.iter().map(|cpu| cpu.kind.get()).collect();
    let (large, small) = (Some(CpuKind::Performance), Some(CpuKind::Efficiency));
    assert_eq!(kinds, [large, large, small, small]);
    let caches: Vec<_> = host
        .cpus
        .iter()
        .map(|cpu| list(&cpu.last_level_cache))
        .collect();
    let set = |text: &str| Some(text.to_owned());
    assert_eq!(caches, [set("0-1"), set("0-1"), set("2-3"), set("2-3")]);
    assert_eq!(list(&host.cpus[1].siblings), set("0-1"));
    assert_eq!(host.cpus[3].core, Known::Value(9));
    assert_eq!(cause(&host.cpus[2].die), Some(Cause::NotSaid));
    assert!(
        host.cpus[2]
            .die
            .gap()
            .is_some_and(|gap| gap.path.contains("cpu2/"))
    );
    assert_eq!(host.cpus[3].governor, Known::Value("powersave".to_owned()));
    let frequency = host.power.frequency.value().expect("four policies");
    assert_eq!((frequency.len(), list(&frequency[2].cpus)), (4, set("2")));
    assert_eq!(frequency[3].max_khz, Known::Value(3_900_000));
    assert_eq!(cause(&frequency[3].base_khz), Some(Cause::Absent));
    let idle = host.power.idle_states.value().expect("two states");
    assert_eq!(
        (idle[1].name.as_str(), idle[1].exit_latency_us.get()),
        ("C6", Some(170))
    );
    assert_eq!(list(&idle[1].disabled_on), set("1"));
    assert_eq!(list(&idle[0].disabled_on), set(""));
    assert_eq!(host.power.turbo, Known::Value(false));
    assert_eq!(host.power.pstate_mode, Known::Value("active".to_owned()));
    assert_eq!(host.power.latency_limit_us, Known::Value(10));
    assert_eq!(captured(&folder, false).1, host);
}

#[test]
fn a_tap_is_seen_in_ptype_where_the_list_of_packet_sockets_is_missing_or_broken() {
    let ptype = "Type Device      Function\nALL           packet_rcv+0x0/0x3a0 [af_packet]\n";
    for sockets in [None, Some("sk RefCnt\nbroken")] {
        let mut files = vec![("proc/net/ptype", ptype)];
        files.extend(sockets.map(|text| ("proc/net/packet", text)));
        let host = read(&made(&files));
        let taps = host.software.taps.value().expect("taps");
        assert_eq!(taps.len(), 1, "{taps:?}");
        assert_eq!(taps[0].name, "packet_rcv");
        let told = host.gaps.iter().any(|gap| gap.path == "/proc/net/packet");
        assert_eq!(told, sockets.is_some(), "{:?}", host.gaps);
    }
}

/// Linux 3.10: one policy of two CPUs, of which the second links to the first, and no number of policies anywhere.
#[test]
fn cpufreq_that_is_only_below_the_cpus_is_read_there() {
    let cpus = "sys/devices/system/cpu";
    let at = |file: &str| format!("{cpus}/cpu0/cpufreq/{file}");
    let folder = made(&[
        (&format!("{cpus}/online"), "0-2"),
        (&format!("{cpus}/cpufreq/boost"), "1"),
        (&at("affected_cpus"), "0 1"),
        (&at("scaling_driver"), "acpi-cpufreq"),
        (&at("scaling_governor"), "powersave"),
        (&at("scaling_max_freq"), "1200000"),
        (&at("cpuinfo_max_freq"), "2600000"),
        (
            &format!("{cpus}/cpu2/cpufreq/scaling_governor"),
            "performance",
        ),
    ]);
    link(
        folder.path(),
        &format!("{cpus}/cpu1/cpufreq"),
        "../cpu0/cpufreq",
    );
    let captured = captured(&folder, false).1;
    for host in [read(&folder), captured] {
        let policies = host.power.frequency.value().expect("policies");
        let [two, one] = policies.as_slice() else {
            panic!("two policies, not {policies:#?}");
        };
        assert_eq!(list(&two.cpus).as_deref(), Some("0-1"));
        assert_eq!(two.governor, Known::Value("powersave".to_owned()));
        assert_eq!(two.max_khz, Known::Value(1_200_000));
        assert_eq!(two.hardware_max_khz, Known::Value(2_600_000));
        assert_eq!(cause(&two.number), Some(Cause::Absent));
        assert_eq!(list(&one.cpus).as_deref(), Some("2"), "its only CPU");
        let governors = host.cpus.iter().map(|cpu| cpu.governor.value().cloned());
        let governors: Option<Vec<String>> = governors.collect();
        let expected = ["powersave", "powersave", "performance"].map(str::to_owned);
        assert_eq!(governors, Some(expected.to_vec()));
    }
    assert_eq!(host_without_cpufreq(), Some(Cause::Absent));
}

fn host_without_cpufreq() -> Option<Cause> {
    let folder = made(&[("sys/devices/system/cpu/online", "0-1")]);
    cause(&read(&folder).power.frequency)
}

#[test]
fn an_interrupt_that_nobody_may_move_is_known_by_its_mode_beside_one_that_may() {
    let folder = made(&[
        ("sys/x", ""),
        ("proc/sys/kernel/osrelease", "6.8.0"),
        ("proc/irq/default_smp_affinity", "f"),
        ("proc/irq/24/smp_affinity_list", "0"),
        ("proc/irq/24/node", "1"),
        ("proc/irq/25/smp_affinity_list", "1"),
        ("proc/irq/25/node", "-1"),
    ]);
    let before = read(&folder);
    assert_eq!(cause(&before.irqs[0].managed), Some(Cause::NotSaid));
    let path = folder.path().join("proc/irq/25/smp_affinity_list");
    fs::set_permissions(path, fs::Permissions::from_mode(0o444)).expect("its mode");
    let host = read(&folder);
    let managed: Vec<_> = host.irqs.iter().map(|irq| irq.managed.get()).collect();
    assert_eq!(managed, [Some(false), Some(true)]);
    assert_eq!(host.irqs[0].node, Known::Value(NodeId(1)));
    assert_eq!(cause(&host.irqs[1].node), Some(Cause::NotSaid));
    assert_eq!(
        list(&host.isolation.default_irq_cpus).as_deref(),
        Some("0-3")
    );
    assert_eq!(captured(&folder, false).1, host);
}

/// A disk with two paths over TCP, one of them lost, and one disk of a virtual machine.
fn disks() -> TempDir {
    let folder = made(&[
        ("sys/class/nvme/nvme0/transport", "tcp"),
        ("sys/class/nvme/nvme0/state", "live"),
        ("sys/class/nvme/nvme0/numa_node", "1"),
        ("sys/class/nvme/nvme1/transport", "tcp"),
        ("sys/class/nvme/nvme1/state", "connecting"),
        ("sys/class/nvme/nvme1/numa_node", "-1"),
        (
            "sys/class/nvme-subsystem/nvme-subsys0/iopolicy",
            "round-robin",
        ),
        ("sys/class/nvme-subsystem/nvme-subsys0/nvme0/x", ""),
        ("sys/class/nvme-subsystem/nvme-subsys0/nvme1/x", ""),
    ]);
    let disk = "sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1";
    for (path, text) in [
        ("size", "2097152"),
        ("queue/scheduler", "[none] mq-deadline"),
        ("queue/rq_affinity", "1"),
        ("queue/nomerges", "0"),
        ("queue/nr_requests", "1023"),
        ("queue/rotational", "0"),
        ("mq/0/cpu_list", "0, 1"),
        ("mq/1/cpu_list", "2, 3"),
    ] {
        write(folder.path(), &format!("{disk}/{path}"), text.as_bytes());
    }
    link(
        folder.path(),
        "sys/block/nvme0n1",
        &format!("../{}", &disk[4..]),
    );
    write(folder.path(), "sys/block/vda/size", b"8");
    folder
}

#[test]
fn a_disk_of_several_paths_says_each_and_how_it_chooses() {
    let folder = disks();
    let host = read(&folder);
    let disk = &host.block[0];
    assert_eq!(disk.size_bytes, Known::Value(Bytes::mib(1024)));
    let schedulers = disk.schedulers.value().map(|all| all.join(" "));
    assert_eq!(schedulers.as_deref(), Some("none mq-deadline"));
    let queues = disk.queue_cpus.value().expect("two queues");
    let queues: Vec<String> = queues.iter().map(ToString::to_string).collect();
    assert_eq!(
        (queues, disk.hardware_queues.get()),
        (vec!["0-1".to_owned(), "2-3".to_owned()], Some(2))
    );
    assert_eq!(
        (disk.rq_affinity.get(), disk.nomerges.get()),
        (Some(1), Some(0))
    );
    assert_eq!(
        (disk.nr_requests.get(), disk.rotational.get()),
        (Some(1023), Some(false))
    );
    let said = |known: &Known<String>| known.value().cloned().unwrap_or_default();
    assert_eq!(said(&disk.transport), "nvme");
    assert_eq!(said(&disk.nvme_transport), "tcp");
    assert_eq!(said(&disk.io_policy), "round-robin");
    let paths = disk.paths.value().expect("two paths");
    assert_eq!(
        (paths.len(), said(&paths[1].state)),
        (2, "connecting".to_owned())
    );
    assert_eq!(paths[0].numa_node, Known::Value(NodeId(1)));
    assert_eq!(cause(&paths[1].numa_node), Some(Cause::NotSaid));
    let other = &host.block[1];
    assert_eq!(said(&other.transport), "virtio");
    assert_eq!(
        (cause(&other.paths), cause(&other.rotational)),
        (Some(Cause::Absent), Some(Cause::Absent))
    );
    assert_eq!(captured(&folder, false).1, host);
}

/// The table of tracked connections.
const CONNTRACK: [(&str, &str); 2] = [
    ("proc/sys/net/netfilter/nf_conntrack_count", "7"),
    ("proc/sys/net/netfilter/nf_conntrack_max", "262144"),
];

/// What the kernel allows a program of Acme, and its NFS mount.
const OF_THE_PROCESS: [(&str, &str); 8] = [
    (
        "proc/self/status",
        "Name:\tacme\nPid:\t20482\nCpus_allowed_list:\t0-3",
    ),
    (
        "proc/self/cgroup",
        "7:pids:/acme\n4:cpuacct,cpu:/acme.slice\n0::/acme.slice",
    ),
    (
        "sys/fs/cgroup/cpu,cpuacct/acme.slice/cpu.cfs_quota_us",
        "50000",
    ),
    (
        "sys/fs/cgroup/cpu,cpuacct/acme.slice/cpu.cfs_period_us",
        "100000",
    ),
    (
        "sys/fs/cgroup/cpu,cpuacct/acme.slice/cpu.stat",
        "nr_periods 200\nnr_throttled 188\nthrottled_time 7200000",
    ),
    (
        "proc/self/mounts",
        "acme:/acme /home/acme nfs rw,vers=3,rsize=4096,wsize=4096,proto=udp,addr=192.0.2.1 0 0",
    ),
    ("proc/net/rpc/nfs", "net 0 0 0 0\nrpc 100000 4000 100000"),
    (
        "proc/self/mountstats",
        "device acme:/acme mounted on /home/acme with fstype nfs statvers=1.1\n\tREAD: 100 104 0 1 1 1 1 1",
    ),
];

/// Programs, taps and settings files on a host of an owner called Acme.
fn private() -> TempDir {
    let files = [
        ("sys/x", ""),
        (
            "proc/sys/kernel/random/boot_id",
            "5f2c1cdd-3a0c-4b7e-9c3e-0123456789ab",
        ),
        ("proc/1/comm", "systemd"),
        ("proc/2/comm", "kthreadd"),
        ("proc/2/task/2/children", "3"),
        ("proc/3/comm", "irqbalance"),
        ("proc/40/comm", "irqbalance"),
        ("proc/41/comm", "acme-secret"),
        ("proc/42/comm", "amazon-ssm-agen"),
        ("proc/43/comm", "tuned"),
        // One of another user with that name; one with its own user; one of root.
        ("proc/44/comm", "irqbalance"),
        (
            "proc/44/status",
            "Name:\tirqbalance\nUid:\t1000\t1000\t1000\t1000",
        ),
        ("proc/45/comm", "systemd-network"),
        (
            "proc/45/status",
            "Name:\tsystemd-network\nUid:\t998\t998\t998\t998",
        ),
        ("proc/46/comm", "numad"),
        ("proc/46/status", "Name:\tnumad\nUid:\t0\t0\t0\t0"),
        ("etc/tuned/active_profile", "acme-profile"),
        (
            "etc/default/irqbalance",
            "IRQBALANCE_ARGS=\"--banirq=7 --policyscript=/opt/acme.sh\"\nACME=1",
        ),
        (
            "proc/net/packet",
            "sk RefCnt Type Proto Iface R Rmem User Inode\nffffacme 3 3 0003 0 1 0 777 20482\n0 3 3 88cc 9 1 0 0 1",
        ),
        (
            "proc/net/ptype",
            "Type Device      Function\nALL           tpacket_rcv\nALL  eth7     watch+0x0/0x10",
        ),
        (
            "proc/self/limits",
            "Max processes 1 1 processes\nMax locked memory  65536  65536  bytes",
        ),
        (
            "usr/lib/sysctl.d/50-default.conf",
            "net.core.rmem_max = 1\nkernel.core_pattern = |/opt/acme",
        ),
        ("usr/lib/sysctl.d/10-hidden.conf", "net.core.rmem_max = 2"),
        ("etc/sysctl.d/10-hidden.conf", "# nothing for acme"),
        (
            "etc/sysctl.d/60-acme.conf",
            "\n-net/core/rmem_max=3 # for acme\nnet.ipv4.conf.acme0.rp_filter=1",
        ),
        ("etc/sysctl.d/60-acme.conf.old", "net.core.rmem_max = 4"),
        ("opt/acme/sysctl", "net.core.rmem_max = 5"),
        ("etc/sysctl.conf", "net.core.rmem_max = 6"),
    ];
    let folder = made(&[OF_THE_PROCESS.as_slice(), &CONNTRACK, &files].concat());
    link(
        folder.path(),
        "etc/sysctl.d/70-linked.conf",
        "/opt/acme/sysctl",
    );
    link(
        folder.path(),
        "etc/sysctl.d/99-sysctl.conf",
        "../sysctl.conf",
    );
    folder
}

#[test]
fn owners_taps_and_files_of_settings_are_found() {
    let folder = private();
    let host = read(&folder);
    let owners = host.software.owners.value().expect("a list");
    let owners: Vec<_> = owners
        .iter()
        .map(|owner| (owner.pid, owner.name.as_str(), owner.detail.as_deref()))
        .collect();
    assert_eq!(
        owners,
        [
            (40, "irqbalance", Some("--banirq=7 --policyscript")),
            (42, "cloud-agent", Some("amazon-ssm-agent")),
            (43, "tuned", Some("acme-profile")),
            (45, "systemd-networkd", None),
            (46, "numad", None),
        ],
        "a thread of the kernel is no program"
    );
    let taps = host.software.taps.value().expect("a list");
    let taps: Vec<_> = taps
        .iter()
        .map(|tap| (tap.nic.as_deref(), tap.protocol, tap.name.as_str()))
        .collect();
    assert_eq!(
        taps,
        [
            (None, 3, "packet socket"),
            (Some("index 9"), 0x88cc, "packet socket"),
            (None, 3, "tpacket_rcv"),
            (Some("eth7"), 3, "watch"),
        ]
    );
    let conntrack = host.software.conntrack.value().expect("it is loaded");
    assert_eq!(
        (conntrack.count.get(), cause(&conntrack.buckets)),
        (Some(7), Some(Cause::Absent))
    );
    let lines = host.software.sysctl_lines.value().expect("a list");
    let lines: Vec<_> = lines
        .iter()
        .map(|line| (line.file.as_str(), line.line, line.value.as_str()))
        .collect();
    assert_eq!(
        lines,
        [
            ("/usr/lib/sysctl.d/50-default.conf", 1, "1"),
            ("/etc/sysctl.d/60-acme.conf", 2, "3"),
            ("/etc/sysctl.d/70-linked.conf", 1, "5"),
            ("/etc/sysctl.d/99-sysctl.conf", 1, "6"),
        ]
    );
    assert_eq!(
        host.kernel.locked_memory,
        Known::Value(Limit::Bytes(Bytes::kib(64)))
    );
    let process = &host.process;
    assert_eq!(process.cpus_allowed.value().map(CpuSet::len), Some(4));
    let quota = &process.cpu_quotas.value().expect("quotas")[0];
    assert_eq!((quota.quota_us, quota.period_us), (50_000, 100_000));
    assert_eq!(quota.nr_throttled, Known::Value(188));
    let mounts = host.software.nfs_mounts.value().expect("a list");
    assert_eq!(mounts[0].protocol, Known::Value("udp".to_owned()));
    assert_eq!(captured(&folder, false).1, host);
}

#[test]
fn a_capture_tells_nothing_that_a_person_wrote_but_what_is_read() {
    let folder = private();
    let (text, host) = captured(&folder, true);
    for told in [
        "acme",
        "secret",
        "20482",
        "777",
        "kthreadd",
        "Max processes",
    ] {
        assert!(!text.contains(told), "{told}");
    }
    let real = read(&folder);
    let values = |host: &Host| -> Vec<String> {
        let lines = host.software.sysctl_lines.value().into_iter().flatten();
        lines
            .map(|line| format!("{} {}", line.name, line.value))
            .collect()
    };
    assert_eq!(values(&host), values(&real), "in the same order");
    assert_eq!(host.software.taps, real.software.taps);
    assert_eq!(host.process.cpus_allowed, real.process.cpus_allowed);
    let quota = &host.process.cpu_quotas.value().expect("quotas")[0];
    assert_eq!(
        (quota.quota_us, quota.nr_periods.get()),
        (50_000, Some(200))
    );
    let mounts = host.software.nfs_mounts.value().expect("a list");
    assert_eq!(mounts[0].rsize, Known::Value(Bytes::kib(4)));
    let plain = captured(&folder, false).0;
    assert!(
        !plain.contains("acme-secret") && !plain.contains("/opt/acme"),
        "pseudonyms or not"
    );
}

#[test]
fn a_host_without_any_of_it_says_so() {
    let folder = made(&[("sys/x", "")]);
    let host = read(&folder);
    let software = &host.software;
    assert_eq!(cause(&software.owners), Some(Cause::Absent));
    assert_eq!(cause(&software.taps), Some(Cause::Absent));
    assert_eq!(cause(&software.conntrack), Some(Cause::Absent));
    assert_eq!(cause(&software.sysctl_lines), Some(Cause::Absent));
    assert_eq!(cause(&software.socket_owners), Some(Cause::NotAsked));
    assert_eq!(cause(&software.nfs_mounts), Some(Cause::Unreadable));
    assert_eq!(cause(&host.process.cpus_allowed), Some(Cause::Unreadable));
    assert_eq!(cause(&host.process.cpu_quotas), Some(Cause::Absent));
    assert_eq!(cause(&host.power.latency_limit_us), Some(Cause::Absent));
    assert_eq!(cause(&host.kernel.hypervisor), Some(Cause::NotSaid));
    assert_eq!(captured(&folder, false).1, host);
}

#[test]
fn owners_of_sockets_of_this_machine_are_read_or_refused_with_a_reason() {
    let live = LiveHost::open().expect("the root folder");
    let mut gaps = Vec::new();
    match read_socket_owners(&live, &mut gaps) {
        Known::Value(owners) => {
            assert!(owners.len() <= 64);
            for owner in owners {
                assert!(!owner.name.is_empty());
            }
        }
        Known::Unknown(gap) => assert!(!gap.reason.is_empty()),
    }
}
