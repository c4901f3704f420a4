//! The ceilings of a path for RDMA verbs: the packets of each end's port, its PCIe link, a software device's qdisc,
//! and the messages in flight on the queue pairs.

use super::{
    Bound, Ceiling, PathCeilings, PathFacts, Side, UnknownCeiling, chain, known_evidence, of_links,
    side_of, sys,
};
use crate::ceiling::{
    InfinibandSpeed, IwarpPath, Message, Roce, RocePath, infiniband_of_messages, iwarp, pcie,
    roce_of_messages, scaled, shaper,
};
use crate::finding::Evidence;
use crate::host::{Nic, NicKind, RdmaDevice, RdmaPort};
use crate::known::{Cause, Gap, Known};
use crate::plan::End;
use crate::sample::{Sample, SideSample, SizeRecord, VerbsRecord};
use crate::units::{BitRate, Bytes};
use crate::workload::{Service, Verb, Verbs, Workload};

/// One direction over verbs.
#[derive(Clone, Copy)]
struct Trial<'a> {
    path: &'a PathFacts<'a>,
    sample: &'a Sample,
    verbs: &'a Verbs,
}

/// One end's port, as its queue pairs used it.
struct Used<'a> {
    side: Side<'a>,
    device: &'a RdmaDevice,
    port: &'a RdmaPort,
    mtu: Known<u32>,
    version: Roce,
}

/// Whether a path over `verbs` copies: a device without a PCI function is implemented in the kernel.
pub(super) fn copies(path: &PathFacts<'_>) -> bool {
    let Some(trial) = Trial::of(path) else {
        return true;
    };
    let ends = super::ends(path);
    let ports = ends.into_iter().filter_map(|side| trial.port(side));
    ports.into_iter().any(|port| port.is_software())
}

/// The bounds of one direction; `None` for a trial without verbs.
pub(super) fn one_way(
    path: &PathFacts<'_>,
    sender: Side<'_>,
    receiver: Side<'_>,
) -> Option<PathCeilings> {
    let trial = Trial::of(path)?;
    let mut all = PathCeilings::default();
    for side in [sender, receiver] {
        match trial.port(side) {
            Some(port) => trial.bounds_of_port(&mut all, &port, trial.source(sender, receiver)),
            None => all.undetermined.push(no_port(side)),
        }
    }
    if let Some(size) = trial.only_size(sender) {
        all.add(Bound::WindowRtt, None, trial.depth_bound(size));
    }
    Some(all)
}

fn no_port(side: Side<'_>) -> UnknownCeiling {
    let why = "no RDMA device found on this interface";
    UnknownCeiling {
        bound: Bound::Roce,
        end: Some(side.end),
        subject: Some(format!("nic/{}", side.nic)),
        missing: Gap::new(Cause::Absent, "/sys/class/infiniband", why),
    }
}

impl<'a> Trial<'a> {
    fn of(path: &'a PathFacts<'a>) -> Option<Self> {
        let sample = path.sample?;
        let verbs = sample.spec.verbs.as_ref()?;
        Some(Self {
            path,
            sample,
            verbs,
        })
    }

    /// The values from the queue pairs of an end.
    fn record(&self, side: Side<'_>) -> Option<&'a VerbsRecord> {
        let flows = &side_of(self.sample, side.end).flows;
        flows.iter().find_map(|flow| flow.verbs.as_ref())
    }

    fn port(&self, side: Side<'a>) -> Option<Used<'a>> {
        let record = self.record(side);
        let choice = match side.end {
            End::Local => &self.verbs.local,
            End::Remote => &self.verbs.remote,
        };
        let mut choice = choice.clone();
        if let Some(record) = record.filter(|record| !record.device.is_empty()) {
            choice.device = Some(record.device.clone());
            choice.port = Some(record.port).filter(|port| *port > 0);
        }
        let (device, port) = side.host.rdma_port(side.nic, &choice)?;
        let used = record.and_then(|record| record.mtu);
        let mtu = match used.or(self.verbs.mtu) {
            Some(mtu) => Known::Value(mtu),
            None => {
                (port.mtu_active.clone()).map(|mtu| u32::try_from(mtu.as_u64()).unwrap_or(u32::MAX))
            }
        };
        let kind = record.and_then(|record| record.gid_kind.as_deref());
        let is_first = kind.is_some_and(|kind| kind.contains("v1"));
        Some(Used {
            side,
            device,
            port,
            mtu,
            version: if is_first { Roce::V1 } else { Roce::V2 },
        })
    }

    /// The end that the payload leaves: for a read it is the other one.
    fn source(&self, sender: Side<'a>, receiver: Side<'a>) -> Side<'a> {
        match &self.sample.spec.workload {
            Workload::Rdma(rdma) if rdma.verb == Verb::Read => receiver,
            _ => sender,
        }
    }

    /// The record of the message size, for a trial with one size.
    fn only_size(&self, sender: Side<'_>) -> Option<&'a SizeRecord> {
        let operations = side_of(self.sample, sender.end).operations.as_ref()?;
        match &operations.sizes[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The message size, for a trial with one size; otherwise full packets.
    fn message(&self) -> Option<Message> {
        let Workload::Rdma(rdma) = &self.sample.spec.workload else {
            return None;
        };
        let [only] = rdma.sizes[..] else { return None };
        let beside = match (rdma.verb, self.verbs.service) {
            (_, Service::Ud) => Message::DATAGRAM,
            (Verb::Write, _) => Message::WRITE,
            (Verb::Read, _) => Message::READ_RESPONSE,
            (Verb::Send, _) => 0,
            (Verb::Atomic, _) => Message::ATOMIC,
        };
        Some(Message {
            bytes: only.as_u64(),
            beside,
        })
    }

    fn bounds_of_port(&self, all: &mut PathCeilings, port: &Used<'_>, source: Side<'_>) {
        let subject = format!("rdma/{}", port.device.name);
        let mut add = |bound, ceiling| {
            all.add(bound, Some((port.side.end, subject.as_str())), ceiling);
        };
        if port.is_infiniband() {
            add(Bound::Infiniband, self.infiniband(port));
        } else if let Some(nic) = port.nic() {
            let chain = chain(port.side.host, nic);
            let wire = chain[chain.len() - 1];
            match wire.kind {
                NicKind::Veth | NicKind::Loopback | NicKind::Tun => {}
                NicKind::Bond | NicKind::Team => {
                    let host = port.side.host;
                    let bound = of_links(host, wire, self.path.flows, |link| {
                        self.frames(port, &chain, link)
                    });
                    add(Bound::Bond, bound);
                }
                _ if port.device.is_iwarp() => add(Bound::Iwarp, self.frames(port, &chain, wire)),
                _ => add(Bound::Roce, self.frames(port, &chain, wire)),
            }
            if port.is_software() && port.side.end == source.end {
                for nic in &chain {
                    if let Some(bound) = self.shaper(port, nic) {
                        add(Bound::Shaper, bound);
                    }
                }
            }
        }
        if !port.is_software() {
            let link = port.device.pcie.clone();
            add(Bound::Pcie, link.and_then(|link| pcie(&link, None)));
        }
    }

    fn infiniband(&self, port: &Used<'_>) -> Known<Ceiling> {
        let speed = port.port.speed.clone().and_then(|speed| {
            speed.parse::<InfinibandSpeed>().map_or_else(
                |_| {
                    let why = format!("unknown link speed `{speed}`");
                    Known::unknown(Cause::NotSaid, "rate", why)
                },
                Known::Value,
            )
        });
        speed.and_then(|speed| {
            port.port.width.clone().and_then(|lanes| {
                (port.mtu.clone())
                    .and_then(|mtu| infiniband_of_messages(speed, lanes, mtu, self.message()))
            })
        })
    }

    /// The goodput of the frames of `wire`, below the interfaces of `chain`.
    fn frames(&self, port: &Used<'_>, chain: &[&Nic], wire: &Nic) -> Known<Ceiling> {
        let tags = chain.iter().filter(|nic| nic.kind == NicKind::Vlan).count();
        if port.device.is_iwarp() {
            return self.segments(
                port,
                chain[0],
                wire,
                u32::try_from(tags).unwrap_or(u32::MAX),
            );
        }
        let bound = wire.link_bit_per_s.clone().and_then(|speed| {
            port.mtu.clone().and_then(|rdma_mtu| {
                let path = RocePath {
                    speed,
                    rdma_mtu,
                    version: port.version,
                    ipv6: self.path.ipv6,
                    vlan_tags: u32::try_from(tags).unwrap_or(u32::MAX),
                };
                roce_of_messages(&path, self.message())
            })
        });
        bound.map(|mut ceiling| {
            ceiling.evidence = vec![
                known_evidence("link speed", &wire.link_bit_per_s, sys(wire, "speed")),
                known_evidence("path MTU in bytes", &port.mtu, port.path()),
            ];
            ceiling
        })
    }

    /// The iWARP goodput, with the MTU of the interface `top`. The TCP options are known only to the device, and
    /// there may be none.
    fn segments(&self, port: &Used<'_>, top: &Nic, wire: &Nic, vlan_tags: u32) -> Known<Ceiling> {
        let bound = wire.link_bit_per_s.clone().and_then(|speed| {
            top.mtu.clone().and_then(|mtu| {
                let path = IwarpPath {
                    speed,
                    mtu,
                    options_bytes: 0,
                    ipv6: self.path.ipv6,
                    vlan_tags,
                    is_tagged: self.names_memory(),
                    is_software: port.is_software(),
                };
                iwarp(&path, self.message().map(|message| message.bytes))
            })
        });
        bound.map(|mut ceiling| {
            ceiling.evidence = vec![
                known_evidence("link speed", &wire.link_bit_per_s, sys(wire, "speed")),
                known_evidence("MTU", &top.mtu, sys(top, "mtu")),
            ];
            ceiling
        })
    }

    /// Whether every message is tagged with its destination address. If several verbs run, the shorter header is
    /// assumed.
    fn names_memory(&self) -> bool {
        !matches!(&self.sample.spec.workload, Workload::Rdma(rdma) if rdma.verb == Verb::Send)
    }

    /// A software device's packets pass the interface's qdisc, which counts the frame without preamble and FCS.
    fn shaper(&self, port: &Used<'_>, nic: &Nic) -> Option<Known<Ceiling>> {
        let qdisc = nic.qdisc.value().filter(|qdisc| qdisc.shapes())?;
        let Some(rate) = qdisc.rate_bit_per_s else {
            return Some(Known::Unknown(qdisc.rate_gap(&nic.name)));
        };
        if port.device.is_iwarp() {
            return Some((nic.mtu.clone()).and_then(|mtu| shaper(rate, mtu, 0, self.path.ipv6)));
        }
        Some(port.mtu.clone().map(|mtu| {
            let headers: u64 = if self.path.ipv6 { 48 } else { 28 };
            let payload = u64::from(mtu);
            let frame = payload + headers + 16 + 14;
            let bound = scaled(rate, payload, frame);
            let reason = format!(
                "{rate} x {payload}/{frame} = {bound}: a shaper counts the frame without preamble and FCS"
            );
            Ceiling::new(Bound::Shaper, bound, reason)
        }))
    }

    /// As many messages as the queue pairs allow in flight, per latency of a single message.
    fn depth_bound(&self, size: &SizeRecord) -> Known<Ceiling> {
        let alone = size.alone_ns.filter(|time| time.as_u64() > 0);
        let Some(alone) = alone else {
            let why = "the latency of a single message was not measured";
            return Known::unknown(Cause::NotAsked, "the trial's queue pairs", why);
        };
        let (depth, flows) = (self.depth(), self.path.flows);
        let window = Bytes::new(size.bytes.as_u64().saturating_mul(depth.into()));
        let Some(one) = BitRate::of(window, alone) else {
            return Known::unknown(Cause::Unreadable, "the trial's queue pairs", "no time");
        };
        let bound = scaled(one, u64::from(flows), 1);
        let reason = format!(
            "{flows} x {depth} x {} / {alone} = {bound}: full queue pairs, each message at \
             single-message latency",
            size.bytes
        );
        let mut ceiling = Ceiling::new(Bound::WindowRtt, bound, reason);
        ceiling.evidence = vec![
            Evidence::new("depth of each queue pair", depth, "ibv_create_qp(3)"),
            Evidence::new("one message alone", alone, "the trial's queue pairs"),
        ];
        Known::Value(ceiling)
    }

    /// The depth in use, otherwise the requested one.
    fn depth(&self) -> u32 {
        let sides = [&self.sample.local, &self.sample.remote];
        let records = sides.into_iter().flat_map(SideSample::senders);
        let used = records
            .filter_map(|flow| Some(flow.verbs.as_ref()?.depth))
            .max();
        used.filter(|depth| *depth > 0).unwrap_or(self.verbs.depth)
    }
}

impl<'a> Used<'a> {
    fn is_infiniband(&self) -> bool {
        let layer = self.port.link_layer.value();
        layer.is_some_and(|layer| layer.as_str() == "InfiniBand")
    }

    fn is_software(&self) -> bool {
        self.device.pci_address.value().is_none()
    }

    /// The interface that sends the frames: the path's own if it is on top of the port's, including what it adds to
    /// each frame.
    fn nic(&self) -> Option<&'a Nic> {
        let top = self.side.host.nic(self.side.nic);
        let Some(own) = self.port.netdev.value() else {
            return top;
        };
        let stands_on = |nic: &Nic| {
            chain(self.side.host, nic)
                .iter()
                .any(|one| one.name == *own)
        };
        top.filter(|nic| stands_on(nic))
            .or_else(|| self.side.host.nic(own))
    }

    fn path(&self) -> String {
        format!("{}/{}", self.device.name, self.port.port)
    }
}
