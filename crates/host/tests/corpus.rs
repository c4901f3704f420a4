//! Reads the real machines of the corpus; skipped with a message if the corpus is missing.

#![expect(
    clippy::disallowed_methods,
    reason = "a test starts programs and reads its own environment"
)]

mod common;

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::Path;

use common::{FakeNics, corpus, nic, skip};
use linerate_host::capture::{Archive, CaptureError, CaptureOptions, Captured, record};
use linerate_host::counters::read_softnet;
use linerate_host::read::read_host;
use linerate_host::root::HostRoot;
use linerate_model::build::assert_same;
use linerate_model::host::{CpuKind, Host, NicKind, NodeSource};
use linerate_model::ids::{CpuId, CpuSet, NodeId};
use linerate_model::known::{Cause, Known};
use linerate_model::units::{BitRate, Bytes};

fn host(name: &str) -> Option<Host> {
    let captured = Captured::open(&corpus(&format!("hosts/{name}.tar.bz2"))?).expect(name);
    Some(read_host(captured.root(), &captured))
}

#[test]
fn every_host_is_read_and_captured_without_loss() {
    let Some(folder) = corpus("hosts") else {
        return;
    };
    for entry in fs::read_dir(folder).expect("the corpus") {
        let path = entry.expect("an entry").path();
        let captured = Captured::open(&path).expect("a host");
        let options = CaptureOptions {
            version: "0.1.0".to_owned(),
            pseudonyms: false,
        };
        let (host, archive) = record(captured.root(), &captured, &options);
        assert!(!host.cpus.is_empty(), "{}", path.display());
        let again = Archive::parse(archive.to_text().as_bytes()).expect("an archive");
        let replayed = again.into_captured();
        assert_same(
            path.display(),
            &read_host(replayed.root(), &replayed),
            &host,
        );
    }
}

#[test]
fn a_host_without_node_numbers_says_where_its_cards_are_not_known_to_be() {
    let Some(host) = host("40intel64-2g2n4c+pcilocality") else {
        return;
    };
    assert_eq!((host.nodes.len(), host.cpus.len()), (4, 40));
    assert_eq!(host.cpus[5].node, Known::Value(NodeId(1)));
    let eth0 = host.nic(&nic("eth0")).expect("a card");
    assert_eq!(eth0.kind, NicKind::Physical);
    assert_eq!(
        eth0.link_bit_per_s,
        Known::Value(BitRate::from_mbit_per_s(1000))
    );
    let gap = eth0.numa_node.gap().expect("-1 is no node");
    assert_eq!(gap.cause, Cause::NotSaid);
    assert!(
        gap.reason
            .contains("local_cpulist 0-39 spans nodes 0, 1, 2, 3"),
        "{gap}"
    );
    let down = host.nic(&nic("eth1")).expect("a card that is down");
    assert_eq!(
        down.link_bit_per_s.gap().map(|gap| gap.cause),
        Some(Cause::NotSaid)
    );
    let ib0 = host.nic(&nic("ib0")).expect("IP over InfiniBand");
    assert_eq!(
        (ib0.kind, &ib0.numa_node),
        (NicKind::Ipoib, &Known::Value(NodeId(2)))
    );
    assert_eq!(ib0.rdma, Known::Value("qib0".to_owned()));
    assert_eq!(ib0.numa_node_source, Known::Value(NodeSource::Firmware));
    let mode = ib0.stack.ipoib_mode.as_ref().and_then(Known::value);
    assert_eq!(mode.map(String::as_str), Some("connected"));
    let qib0 = &host.rdma[0];
    assert_eq!(qib0.numa_node_source, Known::Value(NodeSource::Firmware));
    assert_eq!(qib0.node_type, Known::Value("CA".to_owned()));
    let port = &qib0.ports[0];
    assert_eq!(port.physical_state, Known::Value("LinkUp".to_owned()));
    assert_eq!(
        (port.width.get(), port.speed.clone()),
        (Some(4), Known::Value("QDR".to_owned()))
    );
    assert_eq!(port.subnet_manager_lid, Known::Value(1));
    assert_eq!(port.gids.value().map(Vec::len), Some(1), "four are not set");
    assert_eq!(
        port.rate_bit_per_s,
        Known::Value(BitRate::from_mbit_per_s(40_000))
    );
    assert_eq!(port.netdev, Known::Value(nic("ib0")));
    let sda = host
        .block
        .iter()
        .find(|block| block.name == "sda")
        .expect("a disk");
    assert_eq!(sda.scheduler, Known::Value("cfq".to_owned()));
}

#[test]
fn the_narrowest_link_upstream_is_found() {
    let Some(host) = host("32intel64-2p8co2t+8ve") else {
        return;
    };
    let nic = host.nic(&nic("enp96s0f0")).expect("a card");
    let pcie = nic.pcie.value().expect("a link");
    assert_eq!(pcie.links.len(), 4);
    assert_eq!(
        pcie.available_bit_per_s,
        Known::Value(BitRate::from_mbit_per_s(2000))
    );
    assert_eq!(
        pcie.capable_bit_per_s,
        Known::Value(BitRate::from_mbit_per_s(7876))
    );
    let limit = pcie.limited_by.value().map(ToString::to_string);
    assert_eq!(limit.as_deref(), Some("0000:5f:03.0"));
    assert_eq!(nic.numa_node, Known::Value(NodeId(0)));
    let report = nic.numa_node_report.value().expect("a report");
    assert_eq!(report.firmware, Known::Value(NodeId(0)));
    assert_eq!(report.local_cpus, Known::Value(vec![NodeId(0)]));
}

#[test]
fn offline_cpus_odd_nodes_and_memory_of_graphics_cards_are_read_as_they_are() {
    let Some(host) = host("16em64t-4s2c2t-offlines") else {
        return;
    };
    assert_eq!(host.cpus[5].online, Known::Value(false));
    let gap = host.cpus[5].core.gap().expect("an offline CPU has no core");
    assert_eq!(gap.reason, "the CPU is offline");
    let siblings = host.cpus[0].siblings.value().map(ToString::to_string);
    assert_eq!(siblings.as_deref(), Some("0,8"));

    let host = self::host("8em64t-2s2ca2c-buggynuma").expect("the corpus");
    let gap = host.cpus[0].node.gap().expect("two nodes claim it");
    assert!(
        gap.reason.contains("nodes 0 and 1 both list CPU 0"),
        "{gap}"
    );

    let host = self::host("nvidiagpunumanodes").expect("the corpus");
    let memory_only = host
        .nodes
        .iter()
        .find(|node| node.id == NodeId(255))
        .expect("a node");
    assert!(memory_only.cpus.value().is_some_and(CpuSet::is_empty));
    assert_eq!(
        memory_only.memory_bytes,
        Known::Value(Bytes::kib(15_728_640))
    );
    assert_eq!(host.cpus.last().map(|cpu| cpu.id.0), Some(103));
    let cpu = host.identity.cpu_model.value().map(String::as_str);
    assert_eq!(cpu, Some("POWER9, altivec supported"));

    let host = self::host("4fake-4gr1nu1pu").expect("the corpus");
    assert_eq!(host.cpus[3].node, Known::Value(NodeId(3)));
    assert!(self::host("2arm-2c").expect("the corpus").nodes.is_empty());
}

/// Values of one CPU are used for the others of its core, package or cache: all must have the same.
#[test]
fn what_is_read_of_one_cpu_for_others_is_what_they_say_themselves() {
    let Some(folder) = corpus("hosts") else {
        return;
    };
    for entry in fs::read_dir(folder).expect("the corpus") {
        let path = entry.expect("an entry").path();
        let captured = Captured::open(&path).expect("a host");
        let root = captured.root();
        let host = read_host(root, &captured);
        for cpu in host
            .cpus
            .iter()
            .filter(|cpu| cpu.online.get() != Some(false))
        {
            let own = |file: &str| {
                let path = format!("sys/devices/system/cpu/cpu{}/{file}", cpu.id);
                // Some kernels end a file with a NUL, which is not part of the value.
                let text = root.read(&path).value().cloned();
                text.map(|text| text.trim_end_matches(['\0', '\n']).to_owned())
            };
            let number = |file: &str| own(file).and_then(|text| text.parse::<u32>().ok());
            let at = format!("{} CPU {}", path.display(), cpu.id);
            assert_eq!(number("topology/core_id"), cpu.core.get(), "{at}");
            assert_eq!(
                number("topology/physical_package_id"),
                cpu.package.get(),
                "{at}"
            );
            assert_eq!(number("topology/die_id"), cpu.die.get(), "{at}");
            if let Some(threads) = own("topology/thread_siblings") {
                let threads = CpuSet::from_mask(&threads).ok();
                assert_eq!(cpu.siblings.value(), threads.as_ref(), "{at}");
            }
            let highest = (0..8)
                .filter(|index| {
                    own(&format!("cache/index{index}/type"))
                        .is_some_and(|kind| kind != "Instruction")
                })
                .max_by_key(|index| number(&format!("cache/index{index}/level")));
            let shared =
                highest.and_then(|index| own(&format!("cache/index{index}/shared_cpu_map")));
            let shared = shared.and_then(|mask| CpuSet::from_mask(&mask).ok());
            assert_eq!(cpu.last_level_cache.value(), shared.as_ref(), "{at}");
        }
    }
}

#[test]
fn the_kinds_of_cores_and_their_frequencies_are_told_apart() {
    let Some(host) = host("20em64t-hybrid-1p6c2t+2ca4co1t") else {
        return;
    };
    let kind = |cpu: usize| host.cpus[cpu].kind.get();
    assert_eq!(
        (kind(0), kind(12)),
        (Some(CpuKind::Performance), Some(CpuKind::Efficiency))
    );
    let cache = host.cpus[12]
        .last_level_cache
        .value()
        .map(ToString::to_string);
    assert_eq!(cache.as_deref(), Some("0-19"));
    let frequency = host.power.frequency.value().expect("policies");
    assert_eq!(frequency.len(), 20);
    assert_eq!(frequency[12].base_khz, Known::Value(1_400_000));
    assert_eq!(host.cpus[12].governor, frequency[12].governor);
    assert!(host.power.smt.value().is_some() && host.power.turbo.get().is_some());

    let host = self::host("16em64t-4s2c2t-offlines").expect("the corpus");
    let offline = host.isolation.offline.value().expect("each says it");
    assert!(!offline.is_empty() && offline.contains(CpuId(5)));
    assert_eq!(
        host.cpus[5].kind.gap().map(|gap| gap.cause),
        Some(Cause::Absent)
    );
    let host = self::host("128arm-2pa2n8cluster4co").expect("the corpus");
    assert!(
        host.cpus
            .iter()
            .all(|cpu| cpu.kind.get() == Some(CpuKind::Uniform))
    );
    let node = &host.nodes[0];
    assert!(node.memory_free_bytes.get() < node.memory_bytes.get());
    assert!(
        node.hugepages
            .value()
            .is_some_and(|sizes| !sizes.is_empty())
    );
    let host = self::host("20s390-2g6s4c").expect("the corpus");
    let cpu = host.cpus.iter().find(|cpu| cpu.online.get() == Some(true));
    let gap = cpu.and_then(|cpu| cpu.last_level_cache.gap());
    assert_eq!(
        gap.map(|gap| gap.cause),
        Some(Cause::Absent),
        "it shows no cache"
    );
}

#[test]
fn a_damaged_tar_of_a_host_is_refused_or_read_but_never_a_panic() {
    let Some(path) = corpus("hosts/2arm-2c.tar.bz2") else {
        return;
    };
    let whole = fs::read(path).expect("an archive");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("damaged.tar.bz2");
    let cuts = (0..whole.len())
        .step_by(97)
        .map(|end| whole[..end].to_vec());
    let flips = (0..whole.len()).step_by(61).map(|at| {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x55;
        flipped
    });
    for bytes in cuts.chain(flips) {
        fs::write(&path, bytes).expect("a file");
        if let Ok(captured) = Captured::open(&path) {
            let _ = read_host(captured.root(), &captured);
        }
    }
    fs::write(&path, &whole[..whole.len() / 2]).expect("a file");
    assert!(matches!(
        Captured::open(&path),
        Err(CaptureError::Io { .. })
    ));
}

/// Unpacks the text archive of the prometheus project into `to`.
fn unpack_ttar(text: &str, to: &Path) {
    let mut lines = text.lines();
    let mut path = to.to_owned();
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("Directory: ") {
            fs::create_dir_all(to.join(name)).expect("a folder");
        } else if let Some(name) = line.strip_prefix("Path: ") {
            path = to.join(name);
        } else if let Some(target) = line.strip_prefix("SymlinkTo: ") {
            symlink(target, &path).expect("a link");
        } else if let Some(count) = line.strip_prefix("Lines: ") {
            let count = count.parse().expect("a number");
            let text: Vec<&str> = lines.by_ref().take(count).collect();
            fs::write(&path, text.join("\n")).expect("a file");
        }
    }
}

#[test]
fn the_kernels_files_of_another_project_are_read() {
    let Some(path) = corpus("kernel-files.ttar") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    unpack_ttar(&fs::read_to_string(path).expect("text"), folder.path());
    let captured = Captured::open(folder.path()).expect("a folder one level down");
    let host = read_host(captured.root(), &captured);
    let eth0 = host.nic(&nic("eth0")).expect("a card");
    assert_eq!(eth0.index, Known::Value(2));
    assert_eq!(
        eth0.pci_address.value().map(ToString::to_string).as_deref(),
        Some("0000:00:1f.6")
    );
    let mlx4 = host
        .rdma
        .iter()
        .find(|device| device.name == "mlx4_0")
        .expect("a device");
    assert_eq!(mlx4.ports.len(), 2);
    assert_eq!(mlx4.ports[0].state, Known::Value("ACTIVE".to_owned()));
    let hfi1 = host
        .rdma
        .iter()
        .find(|device| device.name == "hfi1_0")
        .expect("a device");
    assert_eq!(
        hfi1.ports[0].rate_bit_per_s,
        Known::Value(BitRate::from_mbit_per_s(100_000))
    );
    let softnet = read_softnet(captured.root());
    assert_eq!(softnet.value().map(Vec::len), Some(5));
}

#[test]
fn interrupts_of_real_servers_keep_every_name() {
    let Some(folder) = corpus("interrupts") else {
        return;
    };
    let names = |file: &str, number: u32| {
        let root = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(root.path().join("proc")).expect("a folder");
        fs::copy(folder.join(file), root.path().join("proc/interrupts")).expect("a copy");
        let root = HostRoot::open(root.path()).expect("a folder");
        let host = read_host(&root, &FakeNics::default());
        let irq = host.irqs.iter().find(|irq| irq.number.0 == number).cloned();
        irq.and_then(|irq| irq.actions.value().map(|names| names.join("|")))
    };
    let found = |file, number| names(file, number).unwrap_or_default();
    assert_eq!(found("kvm.l3.masterconf", 11), "uhci_hcd:usb1|eth0|eth1");
    assert_eq!(found("1xi3.single_i350.l2_mixed.manual", 36), "eth6-TxRx-1");
    assert_eq!(
        found("1xi3.single_i350.l2_mixed.manual", 19),
        "skge@pci:0000:05:00.0"
    );
    assert_eq!(
        found("2xE5-2640.i350_and_82599ES.l2_mixed.masterconf", 140),
        "eth5-TxRx-31"
    );
    assert_eq!(
        found("2xX5650.BCM5709_and_MT27520.L2.manual", 22),
        "uhci_hcd:usb4|uhci_hcd:usb6|hpilo"
    );
    assert_eq!(found("2xX5650.BCM5709_and_MT27520.L2.manual", 67), "eth2-3");
    assert_eq!(found("2xX5650.BCM5709_and_MT27520.L2.manual", 3), "");
}

#[test]
fn softnet_of_old_kernels_is_read_without_inventing_cpus() {
    let Some(folder) = corpus("softnet") else {
        return;
    };
    for file in ["softnet_stat1", "softnet_stat2", "softnet_stat3"] {
        let mut text = String::new();
        let mut from = fs::File::open(folder.join(file)).expect("a file");
        from.read_to_string(&mut text).expect("text");
        let root = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(root.path().join("proc/net")).expect("a folder");
        fs::write(root.path().join("proc/net/softnet_stat"), &text).expect("a file");
        let root = HostRoot::open(root.path()).expect("a folder");
        let lines = read_softnet(&root);
        let lines = lines.value().expect(file);
        assert_eq!(lines.len(), text.lines().count());
        assert!(
            lines.iter().all(|line| line.cpu.value().is_none()),
            "ten columns name no CPU"
        );
    }
    if corpus("hosts").is_none() {
        skip("the corpus has no hosts");
    }
}
