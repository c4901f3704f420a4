//! The network interfaces of the map: what is stacked on what, and the path of each to memory.

use linerate_analysis::text::visible::visible;
use linerate_analysis::text::words::count;
use linerate_model::host::{
    Channels, Coalesce, Host, Module, Nic, NicKind, NodeSource, PcieHop, PcieLink, Rings, Stack,
    Tun,
};
use linerate_model::known::{Cause, Known};
use linerate_model::qos::{CLASS_ROWS_SHOWN, ClassPath, ClassPaths, class_paths};

use super::machine::is_on;
use super::queues::queue_branches;
use super::text::{Branch, hop_text, kind_word, link_text, qdisc_text, show, show_with};

/// Interfaces that lead out first, with everything; the others in a line each, the loopback last.
/// `more` returns what else is shown of each.
pub(super) fn nic_branches(host: &Host, more: &dyn Fn(&Nic) -> Vec<Branch>) -> Vec<Branch> {
    let rank = |nic: &&Nic| match nic.kind {
        NicKind::Physical | NicKind::Virtual | NicKind::Ipoib => 0,
        NicKind::Bond | NicKind::Team | NicKind::Vlan | NicKind::Tunnel | NicKind::Bridge => 1,
        NicKind::Loopback => 3,
        _ => 2,
    };
    let mut nics: Vec<&Nic> = host.nics.iter().collect();
    nics.sort_by_key(rank);
    nics.into_iter()
        .map(|nic| {
            let mut branch = nic_branch(nic, host);
            branch.below.extend(more(nic));
            branch
        })
        .collect()
}

/// The way of its traffic through classes: VLAN, priority, class, limit.
fn class_branches(nic: &Nic, host: &Host) -> Vec<Branch> {
    let row = |row: &ClassPath| {
        let words = [
            visible(&row.from),
            visible(&row.selected_by),
            row.class.clone(),
            row.limit_in_words(),
        ];
        Branch::leaf(words.join(" > "))
    };
    let branch = |paths: &ClassPaths| {
        let hidden = paths.rows.len().saturating_sub(CLASS_ROWS_SHOWN);
        let mut below: Vec<Branch> = paths.rows.iter().take(CLASS_ROWS_SHOWN).map(row).collect();
        if hidden > 0 {
            below.push(Branch::leaf(format!("and {hidden} more")));
        }
        let unknown = paths.unknown.iter();
        below.extend(unknown.map(|why| Branch::leaf(format!("? {}", visible(why)))));
        Branch {
            text: format!(
                "classes by {} (VLAN > priority > class > limit)",
                paths.mechanism
            ),
            below,
        }
    };
    class_paths(host, nic).iter().map(branch).collect()
}

fn nic_branch(nic: &Nic, host: &Host) -> Branch {
    let mut below = Vec::new();
    if nic.kind.has_wire() {
        below.push(pcie_branch(nic));
        below.push(Branch::leaf(locality_text(nic)));
        below.extend(port_lines(nic).into_iter().map(Branch::leaf));
        below.extend(engine_line(nic).map(Branch::leaf));
    }
    below.extend(stack_line(nic).map(Branch::leaf));
    let first_queue = below.len();
    below.extend(queue_branches(nic));
    let lower: Vec<String> = nic
        .lower()
        .iter()
        .map(|name| visible(name.as_str()))
        .collect();
    if !lower.is_empty() {
        let noun = if lower.len() == 1 {
            "device"
        } else {
            "devices"
        };
        below.push(Branch::leaf(format!("lower {noun}: {}", lower.join(", "))));
    }
    if let Some(rdma) = nic.rdma.value() {
        below.push(Branch::leaf(format!("RDMA device {}", visible(rdma))));
    }
    below.extend(class_branches(nic, host));
    let mut text = head_text(nic);
    // What was not requested of any interface is shown once, below all of them.
    if nic.kind != NicKind::Loopback && !is_unasked(nic) {
        let qdisc = format!("qdisc {}", qdisc_text(nic));
        if below.is_empty() {
            text = format!("{text}, {qdisc}");
        } else {
            below.insert(first_queue.min(below.len()), Branch::leaf(qdisc));
        }
    }
    Branch { text, below }
}

/// Whether netlink was not asked about an interface, as in an unpacked folder.
fn is_unasked(nic: &Nic) -> bool {
    let gap = nic.qdisc.gap();
    gap.is_some_and(|gap| gap.cause == Cause::NotAsked)
}

/// What an unpacked folder cannot contain, shown once.
pub(super) fn unasked_branch(host: &Host) -> Option<Branch> {
    host.nics.iter().any(is_unasked).then(|| {
        Branch::leaf(
            "no netlink data: qdiscs, offloads, rings, channels, link modes and addresses are \
             unknown"
                .to_owned(),
        )
    })
}

fn head_text(nic: &Nic) -> String {
    let driver = nic.driver.value().or(nic.card.driver.value());
    let kind = match (nic.kind, driver) {
        (NicKind::Other, Some(driver)) => visible(driver),
        _ => kind_word(nic),
    };
    let driver = match driver {
        // Of what software makes, the driver reports the kind once more.
        Some(driver) if visible(driver) == kind => String::new(),
        Some(driver) => format!(", driver {}", visible(driver)),
        None if nic.kind.has_wire() => format!(", driver {}", show(&nic.driver)),
        None => String::new(),
    };
    let firmware = match nic.card.firmware.value().map(|text| visible(text.trim())) {
        Some(firmware) if !firmware.is_empty() => format!(", firmware {firmware}"),
        _ => String::new(),
    };
    format!(
        "{}: {kind}{driver}{firmware}, {}, {}, MTU {}",
        visible(nic.name.as_str()),
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
            "PCI {}: no PCIe link information (emulated or integrated)",
            show(&nic.pci_address)
        ));
    }
    let own = pcie.links.first().and_then(|hop| hop.control.value());
    let control = own.map_or_else(String::new, |own| {
        format!(
            ", MPS {} of {} B, MRRS {} B, relaxed ordering {}",
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
            "PCIe {}: {}{control}{iommu}",
            show(&nic.pci_address),
            to_root(pcie)
        ),
        below: pcie
            .links
            .iter()
            .map(|hop| Branch::leaf(hop_text(hop)))
            .collect(),
    }
}

/// What passes to the root complex, and the link that limits it to less than the NIC supports.
pub(crate) fn to_root(pcie: &PcieLink) -> String {
    let rate = format!("{} to the root complex", show(&pcie.available_bit_per_s));
    let (available, capable) = (&pcie.available_bit_per_s, &pcie.capable_bit_per_s);
    if (available.get().zip(capable.get())).is_some_and(|(now, most)| now >= most) {
        return rate;
    }
    match (available, &pcie.limited_by) {
        (Known::Unknown(one), Known::Unknown(other)) if one.cause == other.cause => rate,
        (_, narrowest) => format!("{rate}, limited by the link at {}", show(narrowest)),
    }
}

fn locality_text(nic: &Nic) -> String {
    let how = match nic.numa_node_source.value() {
        Some(NodeSource::LocalCpus(_)) => "(firmware reports -1; from its local CPUs)".to_owned(),
        Some(NodeSource::UpstreamBridge(bridge)) => {
            format!("(firmware reports -1; from the bridge {bridge})")
        }
        Some(NodeSource::Firmware | NodeSource::OnlyNode) | None => String::new(),
    };
    format!(
        "NUMA node {}{how}, local CPUs {}",
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
            "pause frames rx {}, tx {}",
            side(&pause.rx),
            side(&pause.tx)
        ));
    }
    if wire.eee.value().is_some_and(|eee| is_on(&eee.active)) {
        port.push("EEE active".to_owned());
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
        lines.push(format!("no link: {}{finer}", visible(why)));
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
            "rings rx {} (max {}), tx {} (max {})",
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
                let pairs = count(
                    usize::try_from(pairs).unwrap_or(usize::MAX),
                    "combined channel",
                );
                format!("{pairs} (max {})", show(combined_max))
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
        let adaptive = if is_on(adaptive_rx) {
            ", adaptive-rx on"
        } else {
            ""
        };
        parts.push(format!("rx-usecs {usecs}{adaptive}"));
    }
    if let Some(rss) = nic.dispatch.rss.value()
        && let Some(function) = rss.function.value()
    {
        parts.push(format!("RSS hash {}", visible(function)));
    }
    if is_on(&nic.dispatch.threaded) {
        parts.push("threaded NAPI".to_owned());
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
        parts.push(format!("bond mode {}", show(&bond.mode)));
        // The modes that use it (Documentation/networking/bonding.rst, xmit_hash_policy).
        let hashes =
            |mode: &String| matches!(mode.as_str(), "balance-xor" | "802.3ad" | "balance-tlb");
        if bond.mode.value().is_none_or(hashes) {
            parts.push(format!("xmit_hash_policy {}", show(&bond.hash_policy)));
        }
        if let Some(partner) = bond.partner_mac.value() {
            parts.push(format!("LACP partner {}", visible(partner)));
        }
    }
    if let Some(team) = &nic.stack.team {
        parts.push(format!("team mode {}", show(&team.mode)));
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
        let kind = show(&tunnel.kind);
        let numberless = tunnel.id.gap().is_some_and(|gap| !gap.leaves_a_question());
        parts.push(if numberless {
            kind
        } else {
            format!("{kind} {}", show(&tunnel.id))
        });
        if let Some(port) = tunnel.port.get() {
            parts.push(format!("UDP port {port}"));
        }
    }
    if let Some(bridge) = bridge {
        let stp = show_with(&bridge.stp, |on| on_off(*on).to_owned());
        parts.push(format!("spanning tree {stp}"));
    }
    parts.extend(nic.stack.tun.iter().flat_map(tun_words));
    if let Some(mode) = &nic.stack.macvlan_mode {
        parts.push(format!("mode {}", show(mode)));
    }
    if let Some(mode) = &nic.stack.ipoib_mode {
        parts.push(ipoib_words(mode, nic.stack.ipoib_connected.as_ref()));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The mode of IPoIB, and whether it is the only one.
fn ipoib_words(mode: &Known<String>, connected: Option<&Known<bool>>) -> String {
    let only = match connected.and_then(Known::value) {
        Some(false) => " (no connected mode)",
        _ => "",
    };
    format!("IPoIB {}{only}", show(mode))
}

/// A TUN or TAP: what the program behind it receives and sends.
fn tun_words(tun: &Tun) -> Vec<String> {
    let switch = |fact: &Known<bool>| show_with(fact, |on| on_off(*on).to_owned());
    let mut words = vec![
        show(&tun.mode),
        format!("offload header {}", switch(&tun.vnet_header)),
        format!("packet information {}", switch(&tun.packet_information)),
    ];
    words.extend((tun.queues.as_ref()).map(|open| format!("multi-queue with {} open", show(open))));
    if is_on(&tun.persistent) {
        words.push("persistent".to_owned());
    }
    for (what, who) in [("user", &tun.owner), ("group", &tun.group)] {
        if let Some(id) = who.value().copied().flatten() {
            words.push(format!("of {what} {id}"));
        }
    }
    words
}
