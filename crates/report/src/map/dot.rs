//! `linerate map --format dot`: the host as a graph for Graphviz (the DOT language,
//! graphviz.org/doc/info/lang.html). A NUMA node is a cluster with its CPUs and devices; queues are
//! folded; an arrow leads from queues to the CPUs that take their interrupts, and from an interface to
//! what carries it.

use std::collections::BTreeSet;

use linerate_analysis::text::visible::visible;
use linerate_model::host::{Cpu, Host, Nic, Node};
use linerate_model::ids::{CpuSet, NodeId};
use linerate_model::known::Known;

use super::picture::{Flow, Via, block_text, flows, is_made_up, lowers, ranges, rdma_text};
use super::text::{kind_word, link_text};

/// The host as a Graphviz graph: nodes, their CPUs, interfaces, PCIe links, queues and interrupts.
pub fn map_dot(host: &Host) -> String {
    let mut out = String::from(
        "graph host {\n  rankdir=LR;\n  nodesep=0.15;\n  fontname=\"sans-serif\";\n  \
         node [shape=box, style=rounded, fontname=\"sans-serif\", fontsize=11];\n  \
         edge [fontname=\"sans-serif\", fontsize=10];\n",
    );
    for node in &host.nodes {
        cluster(host, node, &mut out);
    }
    let listed = |node: Option<NodeId>| host.nodes.iter().any(|one| node == Some(one.id));
    for nic in &host.nics {
        if !listed(nic.numa_node.get()) || !nic.kind.has_wire() {
            nic_graph(nic, &mut out);
        }
        flow_graph(nic, host, &mut out);
        for lower in lowers(nic) {
            let ends = (nic_id(nic), quoted(&format!("nic/{lower}")));
            out.push_str(&format!(
                "  {} -- {} [dir=forward, style=dotted, penwidth=1.5];\n",
                ends.0, ends.1
            ));
        }
    }
    out.push_str("}\n");
    out
}

/// A NUMA node: its CPUs by last-level cache, and the devices on it.
fn cluster(host: &Host, node: &Node, out: &mut String) {
    let label = format!("NUMA node {}\nmemory {}", node.id, said(&node.memory_bytes));
    out.push_str(&format!(
        "  subgraph {} {{\n  label={}; style=rounded; color=gray;\n",
        quoted(&format!("cluster_node{}", node.id)),
        quoted(&label)
    ));
    let cpus = |cpu: &&Cpu| cpu.node.get() == Some(node.id);
    let members: Vec<&Cpu> = host.cpus.iter().filter(cpus).collect();
    let packages: BTreeSet<u32> = members.iter().filter_map(|cpu| cpu.package.get()).collect();
    let caches: BTreeSet<&CpuSet> = members
        .iter()
        .filter_map(|cpu| cpu.last_level_cache.value())
        .collect();
    let mut label = format!("CPUs {}", said(&node.cpus));
    if !packages.is_empty() {
        label += &format!("\npackage {}", ranges(&packages));
    }
    if caches.len() > 1 {
        for cache in caches {
            label += &format!("\nL3: {cache}");
        }
    }
    out.push_str(&format!(
        "  {} [label={}, style=filled, fillcolor=gray92];\n",
        node_id(node.id),
        quoted(&label)
    ));
    let here = |fact: &Known<NodeId>| fact.get() == Some(node.id);
    for nic in host
        .nics
        .iter()
        .filter(|nic| nic.kind.has_wire() && here(&nic.numa_node))
    {
        nic_graph(nic, out);
    }
    let mut device = |kind: &str, name: &str, label: &str| {
        let id = quoted(&format!("{kind}/{name}"));
        out.push_str(&format!("  {id} [label={}];\n", quoted(label)));
        out.push_str(&format!("  {} -- {id};\n", node_id(node.id)));
    };
    for rdma in host.rdma.iter().filter(|rdma| here(&rdma.numa_node)) {
        device("rdma", &rdma.name, &format!("RDMA {}", rdma_text(rdma)));
    }
    let disks = host.block.iter().filter(|disk| here(&disk.numa_node));
    for disk in disks.filter(|disk| !is_made_up(&disk.name)) {
        device("block", &disk.name, &block_text(disk));
    }
    out.push_str("  }\n");
}

fn node_id(node: NodeId) -> String {
    quoted(&format!("node{node}"))
}

fn nic_id(nic: &Nic) -> String {
    quoted(&format!("nic/{}", nic.name))
}

/// An interface and its links to the root; the narrowest has a thick border.
fn nic_graph(nic: &Nic, out: &mut String) {
    let mut label = format!("{}\n{}", nic.name, kind_word(nic));
    if nic.kind.has_wire() {
        let driver = nic.driver.value().or(nic.card.driver.value());
        let driver = driver.cloned().unwrap_or_else(|| said(&nic.driver));
        label = format!("{}\n{driver}\n{}", nic.name, link_text(nic));
        if let Some(module) = nic.wire.module.value() {
            label += &format!("\n{} {}", module.form_factor, said(&module.technology));
        }
    } else if let Some(vlan) = &nic.stack.vlan {
        label += &format!(" {}", said(&vlan.id));
    } else if let Some(bond) = &nic.stack.bond {
        label += &format!(" {}", said(&bond.mode));
    } else if let Some(tunnel) = &nic.stack.tunnel {
        label += &format!(" {} {}", said(&tunnel.kind), said(&tunnel.id));
    }
    let id = nic_id(nic);
    out.push_str(&format!(
        "  {id} [label={}, style=\"rounded,bold\"];\n",
        quoted(&label)
    ));
    // The device hangs on its node through every link to the root.
    let mut below = id;
    let pcie = nic.pcie.value();
    for hop in pcie.map_or(&[][..], |pcie| &pcie.links) {
        let hop_id = quoted(&format!("nic/{}/pcie/{}", nic.name, hop.address));
        let width = hop.width.value().map(|width| format!("x{width}"));
        let width = width.unwrap_or_else(|| said(&hop.width));
        let mut label = format!("{}\n{} {width}", hop.address, said(&hop.transfer_mt_per_s));
        let is_narrowest = pcie.is_some_and(|pcie| pcie.limited_by.get() == Some(hop.address));
        let weight = if is_narrowest { "3" } else { "1" };
        if let (true, Some(pcie)) = (is_narrowest, pcie) {
            label += &format!("\nNARROWEST {}", said(&pcie.available_bit_per_s));
        }
        out.push_str(&format!(
            "  {hop_id} [label={}, style=solid, penwidth={weight}];\n",
            quoted(&label)
        ));
        out.push_str(&format!("  {hop_id} -- {below};\n"));
        below = hop_id;
    }
    if let Some(node) = nic.numa_node.value() {
        out.push_str(&format!("  {} -- {below};\n", node_id(*node)));
    }
}

/// The queues, folded, and the CPUs that take their interrupts; a remote node by a thick dashed arrow.
fn flow_graph(nic: &Nic, host: &Host, out: &mut String) {
    let of_interrupts = |flow: &Flow| matches!(flow.via, Via::Interrupts(..));
    for (at, flow) in flows(nic, host)
        .into_iter()
        .filter(of_interrupts)
        .enumerate()
    {
        let id = quoted(&format!("nic/{}/queues/{at}", nic.name));
        let label = format!(
            "{}\n{}\n{}",
            flow.queues,
            flow.irqs_text(),
            flow.cpus_text()
        );
        out.push_str(&format!("  {id} [label={}, shape=note];\n", quoted(&label)));
        out.push_str(&format!("  {} -- {id};\n", nic_id(nic)));
        let Some(node) = flow.node else { continue };
        let style = if flow.remote {
            "style=dashed, penwidth=2.5, label=\"REMOTE\""
        } else {
            "style=solid"
        };
        out.push_str(&format!(
            "  {id} -- {} [dir=forward, constraint=false, {style}];\n",
            node_id(node)
        ));
    }
}

fn said<T: ToString>(fact: &Known<T>) -> String {
    match fact {
        Known::Value(value) => value.to_string(),
        Known::Unknown(gap) => format!("? ({})", gap.cause),
    }
}

/// A DOT string: only the quote and the backslash mean something in it; line breaks are ours.
fn quoted(text: &str) -> String {
    let lines: Vec<String> = text
        .split('\n')
        .map(|line| visible(line).replace('\\', "\\\\").replace('"', "\\\""))
        .collect();
    format!("\"{}\"", lines.join("\\n"))
}
