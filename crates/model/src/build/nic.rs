//! Interfaces for tests.

use std::collections::BTreeMap;

use crate::ceiling::pcie_lane;
use crate::host::{
    Card, Channels, Coalesce, Dispatch, Eee, Feature, Fec, Host, Irq, LinkModes, LinkState, Module,
    Nic, NicKind, NodeReport, NodeSource, Pause, PciFunction, PcieControl, PcieHop, PcieLink,
    Qdisc, QdiscNode, Queue, QueueKind, Rings, Rss, Shaping, Stack, Timestamping, Wire,
};
use crate::ids::{CpuId, CpuSet, IrqNumber, NicName, NodeId, PciAddress};
use crate::known::{Cause, Known};
use crate::units::{BitRate, Bytes, TransferRate};

/// A builder of an interface.
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

fn moderation() -> Coalesce {
    Coalesce {
        rx_usecs: Known::Value(8),
        tx_usecs: Known::Value(8),
        adaptive_rx: Known::Value(true),
        adaptive_tx: Known::Value(true),
        rx_frames: Known::Value(64),
        tx_frames: Known::Value(64),
    }
}

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
            numa_node_source: Known::Value(NodeSource::Firmware),
            numa_node_report: Known::Value(NodeReport {
                firmware: Known::Value(NodeId(0)),
                local_cpus: Known::Value(vec![NodeId(0)]),
                bridge: absent("the bridge above"),
            }),
            local_cpus: Known::Value(local_cpus.first().cloned().unwrap_or_default()),
            link_bit_per_s: Known::Value(BitRate::from_mbit_per_s(10_000)),
            mtu: Known::Value(1500),
            operstate: Known::Value("up".to_owned()),
            addresses: Known::Value(Vec::new()),
            pcie: Known::Value(pcie_link((8_000, 16), (8_000, 16))),
            pci: Known::Value(function()),
            card: card(),
            wire: wire(),
            stack: stack(),
            dispatch: dispatch(),
            shaping: Shaping {
                dcb: absent("DCB_CMD_IEEE_GET"),
                ..Shaping::default()
            },
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
            coalesce: Known::Value(moderation()),
            qdisc: Known::Value(Qdisc::plain("fq_codel")),
            lower: Known::Value(Vec::new()),
            rdma: absent("infiniband"),
        };
        let builder = Self { nic, local_cpus }.queues(&[0]);
        builder.qdisc(Qdisc::plain("fq_codel"))
    }

    /// One end of a veth pair: no device, no interrupts, no physical link.
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
        nic.shaping.tree = Known::Value(vec![node("noqueue", None)]);
        nic.numa_node_source = absent("device/numa_node");
        nic.numa_node_report = absent("device/numa_node");
        nic.pci = absent("device");
        nic.wire = virtual_wire();
        nic.stack.xdp = Known::Value("none".to_owned());
        nic.dispatch.rss = absent("ETHTOOL_MSG_RSS_GET");
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

    /// The NUMA node of its device, with that node's CPUs as the local ones.
    #[must_use]
    pub fn node(mut self, node: u32) -> Self {
        self.nic.numa_node = Known::Value(NodeId(node));
        self.nic.numa_node_report = Known::Value(NodeReport {
            firmware: Known::Value(NodeId(node)),
            local_cpus: Known::Value(vec![NodeId(node)]),
            bridge: absent("the bridge above"),
        });
        let cpus = self.local_cpus.get(node as usize).cloned();
        self.nic.local_cpus = Known::Value(cpus.expect("a test names a node that it made"));
        self
    }

    /// One queue pair for each of `cpus`, with its interrupt on that CPU.
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
                    // One queue for each CPU that takes an interrupt, as the kernel spreads them.
                    xps_cpus: match (rx, cpus.len()) {
                        (true, _) => other(),
                        (false, 1) => none(),
                        (false, _) => Known::Value(CpuSet::one(CpuId(*cpu))),
                    },
                    xps_rxqs: absent("xps_rxqs"),
                    max_bit_per_s: if rx {
                        absent("tx_maxrate")
                    } else {
                        Known::Value(BitRate::from_bit_per_s(0))
                    },
                    tx_timeout: if rx {
                        absent("tx_timeout")
                    } else {
                        Known::Value(0)
                    },
                    napi: Known::Value(index + 1),
                });
            }
        }
        let count = u32::try_from(cpus.len()).unwrap_or(u32::MAX);
        if let Known::Value(channels) = &mut self.nic.channels {
            channels.combined = Known::Value(count);
            channels.combined_max = Known::Value(count);
        }
        if let Known::Value(rss) = &mut self.nic.dispatch.rss {
            rss.table = Known::Value((0..128).map(|entry| entry % count.max(1)).collect());
        }
        self
    }

    /// The RPS CPUs of all its queues, as a list.
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

    /// Its root qdisc.
    #[must_use]
    pub fn qdisc(mut self, qdisc: Qdisc) -> Self {
        self.nic.shaping.tree = Known::Value(vec![node(&qdisc.kind, qdisc.rate_bit_per_s)]);
        self.nic.shaping.classes = Known::Value(Vec::new());
        self.nic.qdisc = Known::Value(qdisc);
        self
    }

    /// Its PCIe link.
    #[must_use]
    pub fn pcie(mut self, link: PcieLink) -> Self {
        self.nic.pcie = Known::Value(link);
        self
    }

    /// The module in its port.
    #[must_use]
    pub fn module(mut self, module: Module) -> Self {
        self.nic.wire.module = Known::Value(module);
        self
    }

    /// Changes anything that has no method here.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Nic)) -> Self {
        change(&mut self.nic);
        self
    }

    /// Returns the interface and adds its interrupts.
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
                    managed: Known::Value(false),
                    node: self.nic.numa_node.clone(),
                });
            }
        }
        self.nic
    }
}

/// A passive copper cable that declares a rate of `mbit` Mb/s, or none; the values are those of a published dump.
pub fn cable(mbit: Option<u64>) -> Module {
    let rated = mbit.map(BitRate::from_mbit_per_s);
    let not_said = |what: &str| Known::unknown(Cause::NotSaid, "module-eeprom", what);
    Module {
        form_factor: "QSFP28".to_owned(),
        standard: "SFF-8636".to_owned(),
        vendor: text("OPTCORE"),
        part: text("Q-100G-DAC-P2M"),
        revision: text("5"),
        technology: text("Passive copper"),
        rated_bit_per_s: rated.map_or_else(
            || not_said("the module does not report its rate"),
            Known::Value,
        ),
        length_dm: Known::Value(20),
        connector: text("No separable connector"),
        attenuation_db: Known::Value(
            [("2.5 GHz", 4), ("5 GHz", 6), ("7 GHz", 8), ("12.9 GHz", 11)]
                .map(|(frequency, decibel)| (frequency.to_owned(), decibel))
                .to_vec(),
        ),
        state: Known::unknown(Cause::NotSaid, "module-eeprom", "only CMIS"),
        temperature_mc: Known::unknown(Cause::NotSaid, "module-eeprom", "not monitored"),
        voltage_mv: Known::unknown(Cause::NotSaid, "module-eeprom", "not monitored"),
        lanes: Vec::new(),
        alarms: Vec::new(),
        warnings: Vec::new(),
    }
}

/// A NIC at 0000:17:00.0 below the port 0000:16:00.0: the current link (MT/s, lanes), and the NIC's maximum; the
/// port's maximum is that of the NIC.
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
        control: Known::Value(PcieControl {
            max_payload_bytes: Bytes::new(256),
            max_payload_supported_bytes: Bytes::new(256),
            max_read_request_bytes: Bytes::new(4096),
            relaxed_ordering: true,
            acs_redirect: None,
        }),
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

fn text(word: &str) -> Known<String> {
    Known::Value(word.to_owned())
}

fn function() -> PciFunction {
    PciFunction {
        vendor: text("0x15b3"),
        device: text("0x1017"),
        subsystem_vendor: text("0x15b3"),
        subsystem_device: text("0x0003"),
        names: absent("pci.ids"),
        class: text("0x020000"),
        aspm: Known::Value(Vec::new()),
        iommu_type: text("DMA-FQ"),
        physical_function: absent("physfn"),
        virtual_functions: Known::Value(0),
        virtual_functions_max: Known::Value(8),
        power_state: text("D0"),
    }
}

fn card() -> Card {
    Card {
        driver: text("mlx5_core"),
        driver_version: text("6.18.0"),
        firmware: text("16.35.2000 (MT_0000000011)"),
        firmware_stored: Known::Value(BTreeMap::new()),
        board: text("MT_0000000011"),
        psid: text("MT_0000000011"),
        versions: Known::Value(Vec::new()),
        port_type: text("Ethernet"),
        port_type_desired: absent("DEVLINK_ATTR_PORT_DESIRED_TYPE"),
        health: Known::Value(Vec::new()),
        temperatures: Known::Value(Vec::new()),
    }
}

fn wire() -> Wire {
    let modes = vec!["10000baseSR/Full".to_owned()];
    Wire {
        duplex: Known::Value("full".to_owned()),
        modes: Known::Value(LinkModes {
            autoneg: Known::Value(true),
            speed_bit_per_s: Known::Value(BitRate::from_mbit_per_s(10_000)),
            duplex: text("full"),
            lanes: Known::Value(1),
            supported: modes.clone(),
            advertised: modes.clone(),
            partner: modes,
            port: text("FIBRE"),
        }),
        state: Known::Value(LinkState {
            link: Known::Value(true),
            extended_state: absent("extended state"),
            extended_substate: absent("extended state"),
            signal_quality: absent("signal quality"),
        }),
        fec: Known::Value(Fec {
            active: text("RS"),
            configured: vec!["Auto".to_owned()],
            auto: Known::Value(true),
        }),
        pause: Known::Value(Pause {
            autoneg: Known::Value(false),
            rx: Known::Value(true),
            tx: Known::Value(true),
        }),
        eee: Known::Value(Eee {
            enabled: Known::Value(false),
            active: Known::Value(false),
        }),
        module: absent("ETHTOOL_MSG_MODULE_EEPROM_GET"),
        timestamping: Known::Value(Timestamping {
            capabilities: vec![
                "hardware-transmit".to_owned(),
                "hardware-receive".to_owned(),
                "hardware-raw-clock".to_owned(),
            ],
            tx_types: vec!["off".to_owned(), "on".to_owned()],
            rx_filters: vec!["none".to_owned(), "all".to_owned()],
            phc_index: Known::Value(0),
        }),
    }
}

fn virtual_wire() -> Wire {
    Wire {
        duplex: absent("duplex"),
        modes: absent("ETHTOOL_MSG_LINKMODES_GET"),
        state: Known::Value(LinkState {
            link: Known::Value(true),
            extended_state: absent("extended state"),
            extended_substate: absent("extended state"),
            signal_quality: absent("signal quality"),
        }),
        fec: absent("ETHTOOL_MSG_FEC_GET"),
        pause: absent("ETHTOOL_MSG_PAUSE_GET"),
        eee: absent("ETHTOOL_MSG_EEE_GET"),
        module: absent("ETHTOOL_MSG_MODULE_EEPROM_GET"),
        timestamping: absent("ETHTOOL_MSG_TSINFO_GET"),
    }
}

fn stack() -> Stack {
    let legacy = || Known::Value(Bytes::kib(64));
    Stack {
        upper: Known::Value(Vec::new()),
        mtu_max: Known::Value(9978),
        gso_max_bytes: legacy(),
        gso_ipv4_max_bytes: legacy(),
        gro_max_bytes: legacy(),
        gro_ipv4_max_bytes: legacy(),
        tso_max_bytes: legacy(),
        tx_queue_len: Known::Value(1000),
        xdp: text("none"),
        promiscuity: Known::Value(0),
        virtual_functions: Known::Value(Vec::new()),
        ..Stack::default()
    }
}

fn dispatch() -> Dispatch {
    let fields = ["tcp4", "tcp6", "udp4", "udp6"];
    Dispatch {
        rss: Known::Value(Rss {
            table: Known::Value(vec![0; 128]),
            function: text("toeplitz"),
            key_bytes: Known::Value(40),
            symmetric: Known::Value(false),
            fields: Known::Value(
                fields
                    .iter()
                    .map(|kind| ((*kind).to_owned(), "sdfn".to_owned()))
                    .collect(),
            ),
        }),
        napis: Known::Value(Vec::new()),
        private_flags: Known::Value(BTreeMap::new()),
        tunnel_ports: Known::Value(Vec::new()),
        gro_flush_timeout_ns: Known::Value(0),
        defer_hard_irqs: Known::Value(0),
        threaded: Known::Value(false),
        tcp_data_split: text("auto"),
        queue_coalesce: absent("ETHTOOL_PERQUEUE"),
        xdp_features: Known::Value(Vec::new()),
    }
}

/// The root of a qdisc hierarchy.
fn node(kind: &str, rate_bit_per_s: Option<BitRate>) -> QdiscNode {
    QdiscNode {
        kind: kind.to_owned(),
        handle: 0x8001_0000,
        parent: u32::MAX,
        rate_bit_per_s,
        drops: Known::Value(0),
        requeues: Known::Value(0),
        overlimits: Known::Value(0),
        offloaded: Known::Value(false),
        default_class: None,
        traffic_classes: Vec::new(),
    }
}
