//! Interfaces for tests.

use std::collections::BTreeMap;

use crate::ceiling::pcie_lane;
use crate::host::{
    Channels, Coalesce, Feature, Host, Irq, Nic, NicKind, PcieHop, PcieLink, Qdisc, Queue,
    QueueKind, Rings,
};
use crate::ids::{CpuId, CpuSet, IrqNumber, NicName, NodeId, PciAddress};
use crate::known::{Cause, Known};
use crate::units::{BitRate, TransferRate};

/// An interface in the making.
#[derive(Debug, Clone)]
pub struct NicBuilder {
    nic: Nic,
    local_cpus: Vec<CpuSet>,
}

fn absent<T>(path: &str) -> Known<T> {
    Known::unknown(Cause::Absent, path, "this kind of interface has none")
}

const ADDRESS: PciAddress = PciAddress {
    domain: 0,
    bus: 0x17,
    device: 0,
    function: 0,
};

impl NicBuilder {
    pub(super) fn card(name: NicName, host: &Host) -> Self {
        let on = Feature {
            active: true,
            changeable: true,
        };
        let features = [
            "tx-scatter-gather",
            "tx-checksum-ip-generic",
            "tx-tcp-segmentation",
            "tx-tcp6-segmentation",
            "tx-generic-segmentation",
            "rx-gro",
        ];
        let local_cpus: Vec<CpuSet> = host
            .nodes
            .iter()
            .map(|node| node.cpus.value().cloned().unwrap_or_default())
            .collect();
        let nic = Nic {
            index: Known::Value(u32::try_from(host.nics.len()).unwrap_or(0) + 2),
            name,
            kind: NicKind::Physical,
            driver: Known::Value("mlx5_core".to_owned()),
            pci_address: Known::Value(ADDRESS),
            numa_node: Known::Value(NodeId(0)),
            local_cpus: Known::Value(local_cpus.first().cloned().unwrap_or_default()),
            link_bit_per_s: Known::Value(BitRate::from_mbit_per_s(10_000)),
            mtu: Known::Value(1500),
            operstate: Known::Value("up".to_owned()),
            addresses: Known::Value(Vec::new()),
            pcie: Known::Value(pcie_link((8_000, 16), (8_000, 16))),
            queues: Vec::new(),
            features: Known::Value(features.iter().map(|f| ((*f).to_owned(), on)).collect()),
            rings: Known::Value(Rings {
                rx: Known::Value(1024),
                rx_max: Known::Value(8192),
                tx: Known::Value(1024),
                tx_max: Known::Value(8192),
            }),
            channels: Known::Value(Channels {
                rx: Known::Value(0),
                tx: Known::Value(0),
                combined: Known::Value(1),
                rx_max: Known::Value(0),
                tx_max: Known::Value(0),
                combined_max: Known::Value(8),
            }),
            coalesce: Known::Value(Coalesce {
                rx_usecs: Known::Value(8),
                tx_usecs: Known::Value(8),
                adaptive_rx: Known::Value(true),
                adaptive_tx: Known::Value(true),
            }),
            qdisc: Known::Value(Qdisc::plain("fq_codel")),
            lower: Vec::new(),
            rdma: absent("infiniband"),
        };
        Self { nic, local_cpus }.queues(&[0])
    }

    /// One end of a veth pair: no device, no interrupts, no wire.
    #[must_use]
    pub fn veth(mut self) -> Self {
        let nic = &mut self.nic;
        nic.kind = NicKind::Veth;
        nic.driver = Known::Value("veth".to_owned());
        nic.pci_address = absent("device");
        nic.numa_node = absent("device/numa_node");
        nic.local_cpus = absent("device/local_cpulist");
        nic.pcie = absent("device");
        nic.coalesce = absent("ETHTOOL_MSG_COALESCE_GET");
        nic.qdisc = Known::Value(Qdisc::plain("noqueue"));
        for queue in &mut nic.queues {
            queue.irq = absent("device/msi_irqs");
            queue.cpus = absent("device/msi_irqs");
        }
        self
    }

    /// The speed of its link in Gb/s.
    #[must_use]
    pub fn gbit(mut self, gbit: u64) -> Self {
        self.nic.link_bit_per_s = Known::Value(BitRate::from_mbit_per_s(gbit * 1000));
        self
    }

    /// The node its device sits on, with that node's CPUs as the close ones.
    #[must_use]
    pub fn node(mut self, node: u32) -> Self {
        self.nic.numa_node = Known::Value(NodeId(node));
        let cpus = self.local_cpus.get(node as usize).cloned();
        self.nic.local_cpus = Known::Value(cpus.expect("a test names a node that it made"));
        self
    }

    /// One queue pair for each of `cpus`, whose interrupt goes there.
    #[must_use]
    pub fn queues(mut self, cpus: &[u32]) -> Self {
        self.nic.queues.clear();
        for kind in [QueueKind::Rx, QueueKind::Tx] {
            for (index, cpu) in (0u32..).zip(cpus) {
                let none = || Known::Value(CpuSet::empty());
                let other = || absent("the other direction's");
                let rx = kind == QueueKind::Rx;
                self.nic.queues.push(Queue {
                    index,
                    kind,
                    irq: Known::Value(IrqNumber(100 + index)),
                    cpus: Known::Value(CpuSet::one(CpuId(*cpu))),
                    rps_cpus: if rx { none() } else { other() },
                    rps_flow_cnt: if rx {
                        Known::Value(0)
                    } else {
                        absent("rps_flow_cnt")
                    },
                    xps_cpus: if rx { other() } else { none() },
                });
            }
        }
        self
    }

    /// Receive packet steering of all its queues, in list form.
    #[must_use]
    pub fn rps(mut self, cpus: &str) -> Self {
        let cpus: CpuSet = cpus.parse().expect("a test writes a CPU list");
        for queue in &mut self.nic.queues {
            if queue.kind == QueueKind::Rx {
                queue.rps_cpus = Known::Value(cpus.clone());
            }
        }
        self
    }

    /// An offload feature.
    #[must_use]
    pub fn feature(mut self, name: &str, active: bool, changeable: bool) -> Self {
        let mut all: BTreeMap<_, _> = self.nic.features.value().cloned().unwrap_or_default();
        all.insert(name.to_owned(), Feature { active, changeable });
        self.nic.features = Known::Value(all);
        self
    }

    /// Its root queueing discipline.
    #[must_use]
    pub fn qdisc(mut self, qdisc: Qdisc) -> Self {
        self.nic.qdisc = Known::Value(qdisc);
        self
    }

    /// Its PCIe link.
    #[must_use]
    pub fn pcie(mut self, link: PcieLink) -> Self {
        self.nic.pcie = Known::Value(link);
        self
    }

    /// Changes anything that has no word here.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Nic)) -> Self {
        change(&mut self.nic);
        self
    }

    /// Hands the interface over and enters its interrupts.
    pub(super) fn build(self, irqs: &mut Vec<Irq>) -> Nic {
        for queue in &self.nic.queues {
            if let Some(number) = queue.irq.get()
                && !irqs.iter().any(|irq| irq.number == number)
            {
                irqs.push(Irq {
                    number,
                    actions: Known::Value(vec![format!("{}-{}", self.nic.name, queue.index)]),
                    requested: queue.cpus.clone(),
                    effective: queue.cpus.clone(),
                });
            }
        }
        self.nic
    }
}

/// A card at 0000:17:00.0 below the port 0000:16:00.0: the link (MT/s, lanes) as it is, and what the
/// card could do; the port can do what the card can.
pub fn pcie_link(current: (u32, u32), card: (u32, u32)) -> PcieLink {
    let rate = |(mt, _): (u32, u32)| Known::Value(TransferRate::from_mt_per_s(mt));
    let passes = |(mt, width): (u32, u32)| {
        let lane = pcie_lane(TransferRate::from_mt_per_s(mt)).unwrap_or_default();
        Known::Value(BitRate::from_bit_per_s(
            lane.as_bit_per_s() * u64::from(width),
        ))
    };
    let hop = |address: PciAddress| PcieHop {
        address,
        transfer_mt_per_s: rate(current),
        width: Known::Value(current.1),
        transfer_max_mt_per_s: rate(card),
        width_max: Known::Value(card.1),
        path: format!("/sys/bus/pci/devices/{address}"),
    };
    let port = PciAddress {
        bus: 0x16,
        ..ADDRESS
    };
    PcieLink {
        transfer_mt_per_s: rate(current),
        width: Known::Value(current.1),
        available_bit_per_s: passes(current),
        limited_by: Known::Value(port),
        capable_bit_per_s: passes(card),
        links: vec![hop(ADDRESS), hop(port)],
    }
}

/// A token bucket of `mbit` Mb/s as root qdisc.
pub fn tbf(mbit: u64) -> Qdisc {
    Qdisc {
        handle: 0x8001_0000,
        rate_bit_per_s: Some(BitRate::from_mbit_per_s(mbit)),
        ..Qdisc::plain("tbf")
    }
}
