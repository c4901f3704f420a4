//! The network interfaces of the map: what stands on what, and the way of each to memory.

use linerate_model::host::{
    Channels, Coalesce, Host, Module, Nic, NicKind, NodeSource, PcieHop, Queue, Rings, Stack,
};
use linerate_model::ids::CpuSet;
use linerate_model::known::Known;

use super::figures::{count, visible};
use super::map_machine::is_on;
use super::map_text::{
    Branch, hop_text, kind_word, link_text, qdisc_text, queue_name, show, show_with,
};

/// Interfaces that lead out first, with everything; the others in a line each, the loopback last.
pub(super) fn nic_branches(host: &Host) -> Vec<Branch> {
    let rank = |nic: &&Nic| match nic.kind {
        NicKind::Physical | NicKind::Virtual | NicKind::Ipoib => 0,
        NicKind::Bond | NicKind::Team | NicKind::Vlan | NicKind::Tunnel | NicKind::Bridge => 1,
        NicKind::Loopback => 3,
        _ => 2,
    };
    let mut nics: Vec<&Nic> = host.nics.iter().collect();
    nics.sort_by_key(rank);
    nics.into_iter().map(nic_branch).collect()
}

fn nic_branch(nic: &Nic) -> Branch {
    let mut below = Vec::new();
    if nic.kind.has_wire() {
        below.push(pcie_branch(nic));
        below.push(Branch::leaf(locality_text(nic)));
        below.extend(port_lines(nic).into_iter().map(Branch::leaf));
        below.extend(engine_line(nic).map(Branch::leaf));
    }
    below.extend(stack_line(nic).map(Branch::leaf));
    if nic.kind != NicKind::Loopback {
        below.push(Branch::leaf(format!("qdisc {}", qdisc_text(nic))));
    }
    below.extend(queue_branches(nic));
    let lower: Vec<String> = nic
        .lower
        .iter()
        .map(|name| visible(name.as_str()))
        .collect();
    if !lower.is_empty() {
        below.push(Branch::leaf(format!("stands on {}", lower.join(", "))));
    }
    if let Some(rdma) = nic.rdma.value() {
        below.push(Branch::leaf(format!("RDMA device {}", visible(rdma))));
    }
    Branch {
        text: head_text(nic),
        below,
    }
}

fn head_text(nic: &Nic) -> String {
    let driver = match nic.driver.value().or(nic.card.driver.value()) {
        Some(driver) => format!(", driver {}", visible(driver)),
        None if nic.kind.has_wire() => format!(", driver {}", show(&nic.driver)),
        None => String::new(),
    };
    let firmware = match nic.card.firmware.value().map(|text| visible(text.trim())) {
        Some(firmware) if !firmware.is_empty() => format!(", firmware {firmware}"),
        _ => String::new(),
    };
    format!(
        "{}: {}{driver}{firmware}, {}, {}, MTU {}",
        visible(nic.name.as_str()),
        kind_word(nic),
        show(&nic.operstate),
        link_text(nic),
        show(&nic.mtu)
    )
}

fn pcie_branch(nic: &Nic) -> Branch {
    let Known::Value(pcie) = &nic.pcie else {
        return Branch::leaf(format!("PCIe {}", show_with(&nic.pcie, |_| String::new())));
    };
    let is_silent =
        |hop: &PcieHop| hop.transfer_mt_per_s.value().is_none() && hop.width.value().is_none();
    if pcie.links.iter().all(is_silent) {
        return Branch::leaf(format!(
            "PCI {}: no link is told of (emulated or integrated)",
            show(&nic.pci_address)
        ));
    }
    let own = pcie.links.first().and_then(|hop| hop.control.value());
    let control = own.map_or_else(String::new, |own| {
        format!(
            ", payload {} of {} B, reads {} B, relaxed ordering {}",
            own.max_payload_bytes.as_u64(),
            own.max_payload_supported_bytes.as_u64(),
            own.max_read_request_bytes.as_u64(),
            if own.relaxed_ordering { "on" } else { "off" }
        )
    });
    let iommu = nic.pci.value().and_then(|pci| pci.iommu_type.value());
    let iommu = iommu.map_or_else(String::new, |kind| format!(", IOMMU {}", visible(kind)));
    Branch {
        text: format!(
            "PCIe {}: {} x{}, to the root {}, narrowest {}{control}{iommu}",
            show(&nic.pci_address),
            show(&pcie.transfer_mt_per_s),
            show(&pcie.width),
            show(&pcie.available_bit_per_s),
            show(&pcie.limited_by)
        ),
        below: pcie
            .links
            .iter()
            .map(|hop| Branch::leaf(hop_text(hop)))
            .collect(),
    }
}

fn locality_text(nic: &Nic) -> String {
    let how = match nic.numa_node_source.value() {
        Some(NodeSource::LocalCpus(_)) => " (the firmware says -1; by its close CPUs)".to_owned(),
        Some(NodeSource::UpstreamBridge(bridge)) => {
            format!(" (the firmware says -1; by the bridge {bridge})")
        }
        Some(NodeSource::Firmware | NodeSource::OnlyNode) | None => String::new(),
    };
    format!(
        "NUMA node {}{how}, close CPUs {}",
        show(&nic.numa_node),
        show(&nic.local_cpus)
    )
}

/// The port, its module, its health.
fn port_lines(nic: &Nic) -> Vec<String> {
    let wire = &nic.wire;
    let mut port = Vec::new();
    if let Some(modes) = wire.modes.value() {
        if let Some(autoneg) = modes.autoneg.get() {
            port.push(format!("autonegotiation {}", on_off(autoneg)));
        }
        if let Some(lanes) = modes.lanes.get() {
            port.push(count(usize::try_from(lanes).unwrap_or(usize::MAX), "lane"));
        }
    }
    if let Some(fec) = wire.fec.value().and_then(|fec| fec.active.value()) {
        port.push(format!("FEC {}", visible(fec)));
    }
    if let Some(pause) = wire.pause.value() {
        let side = |fact: &Known<bool>| show_with(fact, |on| on_off(*on).to_owned());
        port.push(format!(
            "pause rx {} tx {}",
            side(&pause.rx),
            side(&pause.tx)
        ));
    }
    if wire.eee.value().is_some_and(|eee| is_on(&eee.active)) {
        port.push("energy-efficient Ethernet in use".to_owned());
    }
    let mut lines = Vec::new();
    if !port.is_empty() {
        lines.push(format!("port: {}", port.join(", ")));
    }
    if let Some(state) = wire.state.value()
        && let Some(why) = state.extended_state.value()
    {
        let finer = state.extended_substate.value();
        let finer = finer.map_or_else(String::new, |text| format!(": {}", visible(text)));
        lines.push(format!("no link because of {}{finer}", visible(why)));
    }
    lines.extend(wire.module.value().map(module_line));
    let hot = nic.card.temperatures.value().into_iter().flatten();
    let words: Vec<String> = hot
        .filter_map(|one| {
            Some(format!(
                "{} {} C",
                visible(&one.label),
                one.value_mc.get()? / 1000
            ))
        })
        .collect();
    if !words.is_empty() {
        lines.push(format!("temperature: {}", words.join(", ")));
    }
    lines
}

fn module_line(module: &Module) -> String {
    let mut parts = vec![format!(
        "module {} ({})",
        visible(&module.form_factor),
        visible(&module.standard)
    )];
    parts.extend(
        [&module.vendor, &module.part]
            .into_iter()
            .filter_map(|text| text.value().map(|text| visible(text.trim()))),
    );
    parts.extend(module.technology.value().map(|text| visible(text)));
    if let Some(length) = module.length_dm.get() {
        parts.push(format!("{}.{} m", length / 10, length % 10));
    }
    if let Some(heat) = module.temperature_mc.get() {
        parts.push(format!("{} C", heat / 1000));
    }
    parts.extend(
        module
            .alarms
            .iter()
            .map(|alarm| format!("ALARM {}", visible(alarm))),
    );
    parts.join(", ")
}

fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// Rings, channels, moderation, receive hash.
fn engine_line(nic: &Nic) -> Option<String> {
    let mut parts = Vec::new();
    if let Some(Rings {
        rx,
        rx_max,
        tx,
        tx_max,
    }) = nic.rings.value()
    {
        parts.push(format!(
            "rings rx {} of {}, tx {} of {}",
            show(rx),
            show(rx_max),
            show(tx),
            show(tx_max)
        ));
    }
    if let Some(Channels {
        combined,
        combined_max,
        rx,
        tx,
        ..
    }) = nic.channels.value()
    {
        parts.push(match (combined.get(), rx.get(), tx.get()) {
            (Some(pairs), ..) if pairs > 0 => {
                format!("{pairs} of {} combined channels", show(combined_max))
            }
            _ => format!("channels rx {}, tx {}", show(rx), show(tx)),
        });
    }
    if let Some(Coalesce {
        rx_usecs,
        adaptive_rx,
        ..
    }) = nic.coalesce.value()
        && let Some(usecs) = rx_usecs.get()
    {
        let adaptive = if is_on(adaptive_rx) { ", adaptive" } else { "" };
        parts.push(format!("interrupts held rx {usecs} us{adaptive}"));
    }
    if let Some(rss) = nic.dispatch.rss.value()
        && let Some(function) = rss.function.value()
    {
        parts.push(format!("hash {}", visible(function)));
    }
    if is_on(&nic.dispatch.threaded) {
        parts.push("NAPI in threads".to_owned());
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// What an interface is among the others.
fn stack_line(nic: &Nic) -> Option<String> {
    let Stack {
        bond,
        bond_port,
        vlan,
        tunnel,
        bridge,
        ..
    } = &nic.stack;
    let mut parts = Vec::new();
    if let Some(bond) = bond {
        parts.push(format!(
            "bond {}, hash {}",
            show(&bond.mode),
            show(&bond.hash_policy)
        ));
        if let Some(partner) = bond.partner_mac.value() {
            parts.push(format!("LACP partner {}", visible(partner)));
        }
    }
    if let Some(port) = bond_port {
        parts.push(format!(
            "slave of {}, {}",
            show(&port.bond),
            show(&port.state)
        ));
    }
    if let Some(vlan) = vlan {
        let map = |all: &Known<Vec<(u32, u32)>>| match all.value() {
            Some(all) if !all.is_empty() => {
                let words: Vec<String> = all.iter().map(|(a, b)| format!("{a}:{b}")).collect();
                words.join(" ")
            }
            _ => "none".to_owned(),
        };
        parts.push(format!(
            "VLAN {}, egress map {}",
            show(&vlan.id),
            map(&vlan.egress)
        ));
    }
    if let Some(tunnel) = tunnel {
        parts.push(format!("{} {}", show(&tunnel.kind), show(&tunnel.id)));
        if let Some(port) = tunnel.port.get() {
            parts.push(format!("UDP port {port}"));
        }
    }
    if let Some(bridge) = bridge {
        let stp = show_with(&bridge.stp, |on| on_off(*on).to_owned());
        parts.push(format!("spanning tree {stp}"));
    }
    if let Some(mode) = &nic.stack.macvlan_mode {
        parts.push(format!("mode {}", show(mode)));
    }
    if let Some(mode) = &nic.stack.ipoib_mode {
        parts.push(format!("IPoIB {}", show(mode)));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Neighbours that say the same stand on one line. Of a virtual interface's queues only steering matters.
fn queue_branches(nic: &Nic) -> Vec<Branch> {
    let mut lines: Vec<(String, String, String)> = Vec::new();
    for queue in &nic.queues {
        let name = queue_name(queue);
        let text = queue_text(nic, queue);
        if text.is_empty() {
            continue;
        }
        match lines.last_mut() {
            Some((first, last, same)) if *same == text && first[..2] == name[..2] => *last = name,
            _ => lines.push((name.clone(), name, text)),
        }
    }
    lines
        .into_iter()
        .map(|(first, last, text)| {
            let names = if first == last {
                first
            } else {
                format!("{first} to {last}")
            };
            Branch::leaf(format!("{names}: {text}"))
        })
        .collect()
}

fn queue_text(nic: &Nic, queue: &Queue) -> String {
    let mut parts = Vec::new();
    if nic.kind.has_wire() || queue.irq.value().is_some() {
        parts.push(match (&queue.irq, &queue.cpus) {
            (Known::Unknown(irq), Known::Unknown(cpus)) if irq.cause == cpus.cause => {
                format!("irq and its CPUs ? ({})", irq.cause)
            }
            _ => format!("irq {} - CPUs {}", show(&queue.irq), show(&queue.cpus)),
        });
    }
    let steered = |name: &str, set: &Known<CpuSet>| {
        let set = set.value().filter(|set| !set.is_empty())?;
        Some(format!("{name} CPUs {set}"))
    };
    parts.extend(steered("RPS", &queue.rps_cpus));
    parts.extend(steered("XPS", &queue.xps_cpus));
    parts.join(", ")
}
