//! Queues of synthetic hosts: their interrupts, NAPI instances, RPS and XPS, on one NIC and on many.

#![expect(
    clippy::disallowed_methods,
    reason = "a test starts programs and reads its own environment"
)]

mod common;

use std::fmt::Write as _;

use common::cards::{CARD, Told, card, interface, read, the};
use common::made::Made;
use common::{FakeNics, nic};
use linerate_host::read::read_host;
use linerate_host::root::HostRoot;
use linerate_model::host::{Napi, QueueKind};
use linerate_model::ids::IrqNumber;
use linerate_model::known::{Cause, Known};
use linerate_model::units::BitRate;

const CPUS: u32 = 1024;
const NICS: u32 = 4;
const QUEUES: u32 = 64;
const IRQS: u32 = 512;

fn mask(cpu: u32) -> String {
    let mut text = String::new();
    for group in (0..CPUS / 32).rev() {
        let bits = if cpu / 32 == group {
            1u32 << (cpu % 32)
        } else {
            0
        };
        let comma = if group == 0 { "" } else { "," };
        write!(text, "{bits:08x}{comma}").expect("text");
    }
    text
}

/// Four NICs of 64 queue pairs on as many ports of a machine with eight nodes.
fn large() -> Made {
    let mut made = Made::default();
    made.file("sys/devices/system/cpu/online", format!("0-{}", CPUS - 1));
    for node in 0..8 {
        let (first, end) = (node * CPUS / 8, (node + 1) * CPUS / 8);
        let file = format!("sys/devices/system/node/node{node}/cpulist");
        made.file(&file, format!("{first}-{}", end - 1));
    }
    for irq in 0..IRQS {
        let cpu = (irq % CPUS).to_string();
        let action = match irq.checked_sub(NICS * QUEUES) {
            Some(other) => format!("nvme{}q{}", other / 64, other % 64),
            None => format!(
                "mlx5_comp{}@pci:0000:{:02x}:00.0",
                irq % QUEUES,
                irq / QUEUES + 16
            ),
        };
        made.file(&format!("sys/kernel/irq/{irq}/actions"), action)
            .file(&format!("proc/irq/{irq}/smp_affinity_list"), cpu.as_str())
            .file(&format!("proc/irq/{irq}/effective_affinity_list"), cpu);
    }
    for card in 0..NICS {
        let bus = card + 16;
        let function = format!("sys/devices/pci0000:00/0000:00:{card:02x}.0/0000:{bus:02x}:00.0");
        let real = format!("{function}/net/eth{card}");
        interface(&mut made, &real, &[("mtu", "9000"), ("speed", "100000")]);
        made.link(&format!("{real}/device"), "../..")
            .file(&format!("{function}/numa_node"), (card / 2).to_string())
            .file(&format!("{function}/local_cpulist"), "0-127");
        for queue in 0..QUEUES {
            let irq = card * QUEUES + queue;
            made.file(&format!("{function}/msi_irqs/{irq}"), "msix")
                .file(&format!("{real}/queues/rx-{queue}/rps_cpus"), mask(CPUS))
                .file(&format!("{real}/queues/rx-{queue}/rps_flow_cnt"), "0")
                .file(&format!("{real}/queues/tx-{queue}/xps_cpus"), mask(irq))
                .file(&format!("{real}/queues/tx-{queue}/xps_rxqs"), "0")
                .file(&format!("{real}/queues/tx-{queue}/tx_maxrate"), "0");
        }
    }
    made
}

#[test]
fn every_queue_of_a_large_host_finds_its_interrupt() {
    let folder = tempfile::tempdir().expect("a folder");
    large().write(folder.path());
    let root = HostRoot::open(folder.path()).expect("the folder");
    let host = read_host(&root, &FakeNics::default());
    assert_eq!(host.irqs.len(), IRQS as usize);
    for card in 0..NICS {
        let nic = the(&host, &format!("eth{card}"));
        assert_eq!(nic.queues.len(), 2 * QUEUES as usize);
        for queue in &nic.queues {
            let irq = card * QUEUES + queue.index;
            assert_eq!(queue.irq, Known::Value(IrqNumber(irq)));
            let cpus = queue.cpus.value().map(ToString::to_string);
            assert_eq!(cpus, Some((irq % CPUS).to_string()));
            if queue.kind == QueueKind::Tx {
                assert_eq!(
                    queue.max_bit_per_s,
                    Known::Value(BitRate::from_mbit_per_s(0))
                );
                assert_eq!(queue.xps_cpus.value().map(ToString::to_string), cpus);
            }
        }
    }
}

#[test]
fn a_queues_polling_context_goes_before_the_names_of_interrupts() {
    let mut made = Made::default();
    card(&mut made, &[]);
    for queue in 0..2 {
        let real = format!("{CARD}/net/eth0/queues");
        made.file(&format!("{real}/rx-{queue}/rps_cpus"), "0")
            .file(&format!("{real}/tx-{queue}/xps_rxqs"), "3")
            .file(&format!("{real}/tx-{queue}/tx_maxrate"), "2500");
        made.file(&format!("{CARD}/msi_irqs/{}", 40 + queue), "msix")
            .file(&format!("proc/irq/{}/smp_affinity_list", 40 + queue), "0")
            .file(
                &format!("sys/kernel/irq/{}/actions", 40 + queue),
                format!("eth0-TxRx-{queue}"),
            );
    }
    let napi = |id, irq, queue| Napi {
        id,
        irq,
        thread: Known::default(),
        thread_cpus: Known::default(),
        rx_queues: vec![queue],
        tx_queues: vec![queue],
        gro_flush_timeout_ns: Known::default(),
        defer_hard_irqs: Known::default(),
        irq_suspend_timeout_ns: Known::default(),
    };
    let told = Told {
        napis: vec![(
            nic("eth0"),
            vec![
                napi(8193, Known::Value(IrqNumber(41)), 0),
                napi(8194, Known::Value(IrqNumber(0)), 1),
            ],
        )],
        ..Told::default()
    };
    let host = read(&made, &told, &[]);
    let queues = &the(&host, "eth0").queues;
    let irqs: Vec<_> = queues.iter().map(|queue| queue.irq.get()).collect();
    assert_eq!(irqs, [41, 41, 41, 41].map(|irq| Some(IrqNumber(irq))));
    let napis: Vec<_> = queues.iter().map(|queue| queue.napi.get()).collect();
    assert_eq!(napis, [8193, 8194, 8193, 8194].map(Some));
    assert_eq!(queues[2].xps_rxqs, Known::Value(vec![0, 1]));
    assert_eq!(
        queues[2].max_bit_per_s,
        Known::Value(BitRate::from_mbit_per_s(2500))
    );
    assert_eq!(
        queues[0].xps_rxqs.gap().map(|gap| gap.cause),
        Some(Cause::Inapplicable),
        "a queue that receives"
    );
}
