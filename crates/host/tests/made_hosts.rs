//! The synthetic hosts in `fixtures/hosts` match their generators and read as expected. `LINERATE_BLESS=1`
//! regenerates them.

#![expect(
    clippy::disallowed_methods,
    reason = "a test starts programs and reads its own environment"
)]

mod common;

use std::collections::BTreeSet;
use std::path::PathBuf;

use common::made::{Made, two_socket, virtual_machine};
use common::nic;
use linerate_host::apply::settings;
use linerate_host::capture::{Archive, Captured};
use linerate_host::read::read_host;
use linerate_model::host::{Host, NicKind, QueueKind};
use linerate_model::ids::{IrqNumber, NodeId};
use linerate_model::known::{Cause, Known};
use linerate_model::setting::{NicKnob, SettingKey, catalogue, current};
use linerate_model::units::BitRate;

fn fixture(name: &str, made: &Made) -> Archive {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/hosts")
        .join(format!("{name}.lrcap"));
    let archive = made.archive();
    if std::env::var_os("LINERATE_BLESS").is_some() {
        std::fs::write(&path, archive.to_text()).expect("the fixture");
    }
    let kept = std::fs::read_to_string(&path).expect("a fixture: LINERATE_BLESS=1 writes it");
    assert!(
        kept == archive.to_text(),
        "{name}.lrcap is not what its maker makes: LINERATE_BLESS=1 writes it anew"
    );
    Archive::parse(kept.as_bytes()).expect("an archive")
}

fn read(archive: Archive) -> Host {
    let captured = archive.into_captured();
    read_host(captured.root(), &captured)
}

#[test]
fn a_healthy_two_socket_host_is_read_whole() {
    let host = read(fixture("two-socket-healthy", &two_socket(true)));
    assert_eq!(host.gaps, []);
    assert_eq!(host.cpus.len(), 8);
    assert_eq!(host.cpus[5].node, Known::Value(NodeId(1)));
    assert_eq!(host.identity.irq_time_accounting, Known::Value(true));
    let eth2 = host.nic(&nic("eth2")).expect("the card");
    assert_eq!(eth2.kind, NicKind::Physical);
    assert_eq!(eth2.driver, Known::Value("mlx5_core".to_owned()));
    assert_eq!(eth2.numa_node, Known::Value(NodeId(1)));
    assert_eq!(eth2.rdma, Known::Value("mlx5_0".to_owned()));
    let pcie = eth2.pcie.value().expect("a link");
    assert_eq!(
        pcie.available_bit_per_s,
        Known::Value(BitRate::from_mbit_per_s(252_048))
    );
    assert_eq!(pcie.links.len(), 4);
    for queue in &eth2.queues {
        assert_eq!(queue.irq, Known::Value(IrqNumber(60 + queue.index)));
        let cpus = queue.cpus.value().expect("its CPU");
        assert_eq!(cpus.to_string(), (queue.index + 4).to_string());
    }
    assert_eq!(host.block[0].hardware_queues, Known::Value(2));
    assert_eq!(host.block[0].numa_node, Known::Value(NodeId(0)));
}

#[test]
fn a_host_with_planted_faults_differs_from_its_healthy_sibling_in_them_only() {
    let ill = read(fixture(
        "two-socket-remote-irqs-narrow-pcie",
        &two_socket(false),
    ));
    let mut healed = ill.clone();
    let well = read(fixture("two-socket-healthy", &two_socket(true)));
    let pcie = ill
        .nic(&nic("eth2"))
        .and_then(|nic| nic.pcie.value())
        .expect("a link");
    assert_eq!(
        pcie.available_bit_per_s,
        Known::Value(BitRate::from_mbit_per_s(31_504))
    );
    let limit = pcie.limited_by.value().map(ToString::to_string);
    assert_eq!(limit.as_deref(), Some("0000:80:01.0"));
    let at = |host: &Host| host.nics.iter().position(|own| own.name == nic("eth2"));
    let (bad, good) = (at(&healed).expect("eth2"), at(&well).expect("eth2"));
    assert_ne!(healed.nics[bad].queues, well.nics[good].queues);
    healed.nics[bad].queues = well.nics[good].queues.clone();
    healed.nics[bad].pcie = well.nics[good].pcie.clone();
    healed.rdma[0].pcie = well.rdma[0].pcie.clone();
    healed.irqs = well.irqs.clone();
    assert_eq!(healed, well);
}

#[test]
fn a_virtual_machines_card_is_traced_through_virtio_to_its_function() {
    let host = read(fixture("vm-virtio", &virtual_machine()));
    let ens3 = host.nic(&nic("ens3")).expect("the card");
    assert_eq!(
        ens3.pci_address.value().map(ToString::to_string).as_deref(),
        Some("0000:00:03.0")
    );
    assert_eq!(ens3.driver, Known::Value("virtio_net".to_owned()));
    assert_eq!(
        ens3.numa_node,
        Known::Value(NodeId(0)),
        "the only node there is"
    );
    assert_eq!(
        ens3.link_bit_per_s.gap().map(|gap| gap.cause),
        Some(Cause::NotSaid)
    );
    let irq = |kind, index| {
        let mut queues = ens3.queues.iter();
        queues
            .find(|q| q.kind == kind && q.index == index)
            .map(|q| q.irq.clone())
    };
    assert_eq!(irq(QueueKind::Rx, 1), Some(Known::Value(IrqNumber(33))));
    assert_eq!(irq(QueueKind::Tx, 0), Some(Known::Value(IrqNumber(32))));
    let pcie = ens3.pcie.value().expect("a function");
    assert_eq!(
        pcie.available_bit_per_s.gap().map(|gap| gap.cause),
        Some(Cause::Absent)
    );
}

#[test]
fn an_edited_archive_is_read_as_edited() {
    let archive = fixture("two-socket-healthy", &two_socket(true))
        .edited("sys/class/net/eth2/mtu", Some("9000"))
        .edited("sys/class/net/eth2/speed", None)
        .edited("proc/irq/61/effective_affinity_list", Some("1"));
    let host = read(archive);
    let eth2 = host.nic(&nic("eth2")).expect("the card");
    assert_eq!(eth2.mtu, Known::Value(9000));
    assert_eq!(
        eth2.link_bit_per_s.gap().map(|gap| gap.cause),
        Some(Cause::Absent)
    );
    let cpus = eth2.queues[1].cpus.value().map(ToString::to_string);
    assert_eq!(cpus.as_deref(), Some("1"));
}

#[test]
fn a_fixture_opens_by_its_path() {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts/vm-virtio.lrcap");
    let captured = Captured::open(&path).expect("a fixture");
    assert_eq!(read_host(captured.root(), &captured).nics.len(), 2);
}

#[test]
fn a_namespace_hides_what_belongs_to_the_machine_and_the_gap_says_so() {
    let hidden = "machine-wide, not visible in this network namespace";
    let reason = |host: &Host, name: &str| host.sysctl(name).gap().map(|gap| gap.reason.clone());
    let first =
        fixture("vm-virtio", &virtual_machine()).edited("proc/sys/net/core/busy_poll", None);
    let second = first
        .clone()
        .edited("proc/sys/net/core/netdev_budget", None);
    let old_kernel = reason(&read(first), "net.core.busy_poll").expect("it has none");
    assert!(old_kernel.contains("No such file"), "{old_kernel}");
    let host = read(second);
    assert_eq!(reason(&host, "net.core.busy_poll").as_deref(), Some(hidden));
    assert_eq!(
        reason(&host, "net.core.netdev_budget").as_deref(),
        Some(hidden)
    );
}

/// The keys of every setting that `host` could have.
fn keys_of(host: &Host) -> Vec<SettingKey> {
    let sysctls = host.sysctls.keys().cloned().map(SettingKey::Sysctl);
    let mut keys: Vec<SettingKey> = sysctls.collect();
    for nic in &host.nics {
        let knobs = NicKnob::all_of(nic).into_iter();
        keys.extend(knobs.map(|knob| SettingKey::Nic(nic.name.clone(), knob)));
    }
    keys.extend(host.irqs.iter().map(|irq| SettingKey::IrqCpus(irq.number)));
    let cpus = host.cpus.iter().map(|cpu| format!("cpu{}", cpu.id.0));
    let policies = host.power.frequency.value().into_iter().flatten();
    let policies = policies.filter_map(|policy| policy.number.get());
    let disks = host.block.iter().map(|device| device.name.clone());
    for (placeholder, words) in [
        ("CPU", cpus.collect::<Vec<_>>()),
        ("POLICY", policies.map(|n| format!("policy{n}")).collect()),
        (
            "block/NAME",
            disks.map(|name| format!("block/{name}")).collect(),
        ),
        ("", vec![String::new()]),
    ] {
        let rows = catalogue().filter(|row| match placeholder {
            "" => !row.pattern.bytes().any(|b| b.is_ascii_uppercase()),
            placeholder => row.pattern.contains(placeholder),
        });
        for row in rows {
            let written = words.iter().map(|word| match placeholder {
                "" => row.pattern.to_owned(),
                placeholder => row.pattern.replace(placeholder, word),
            });
            keys.extend(written.map(|key| key.parse::<SettingKey>().expect("a key")));
        }
    }
    keys
}

#[test]
fn each_setting_is_read_as_the_hosts_description_shows_it() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts");
    let mut seen = BTreeSet::new();
    for entry in std::fs::read_dir(folder).expect("the fixtures") {
        let path = entry.expect("an entry").path();
        if path
            .extension()
            .is_none_or(|extension| extension != "lrcap")
        {
            continue;
        }
        let captured = Captured::open(&path).expect("a capture");
        let host = read_host(captured.root(), &captured);
        for key in keys_of(&host) {
            // An archive has no file that only a setting reads.
            let read = settings::read(captured.root(), &captured, &key);
            if let (Known::Value(described), Known::Value(read)) = (current(&host, &key), read) {
                assert_eq!(read, described, "{key} of {}", path.display());
                seen.insert(key.spec().pattern);
            }
        }
    }
    assert!(seen.len() >= 40, "only {seen:?}");
}
