//! `linerate map --format dot`: the host as a graph for Graphviz (the DOT language,
//! graphviz.org/doc/info/lang.html).

use linerate_model::host::{Host, Nic};
use linerate_model::known::Known;

use super::figures::visible;

/// The host as a Graphviz graph: nodes, their CPUs, interfaces, PCIe links, queues and interrupts.
pub fn map_dot(host: &Host) -> String {
    let mut out =
        String::from("graph host {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n");
    for node in &host.nodes {
        let cpus = node
            .cpus
            .value()
            .map_or_else(|| question(&node.cpus), ToString::to_string);
        let memory = node
            .memory_bytes
            .value()
            .map_or_else(|| question(&node.memory_bytes), ToString::to_string);
        let label = format!("NUMA node {}\nCPUs {cpus}\nmemory {memory}", node.id);
        out.push_str(&format!(
            "  {} [label={}];\n",
            quoted(&format!("node{}", node.id)),
            quoted(&label)
        ));
    }
    for nic in &host.nics {
        nic_graph(nic, &mut out);
    }
    out.push_str("}\n");
    out
}

fn nic_graph(nic: &Nic, out: &mut String) {
    let id = format!("nic/{}", nic.name);
    let driver = nic
        .driver
        .value()
        .cloned()
        .unwrap_or_else(|| question(&nic.driver));
    let label = format!("{}\n{driver}", nic.name);
    out.push_str(&format!(
        "  {} [label={}, style=bold];\n",
        quoted(&id),
        quoted(&label)
    ));
    // The device hangs on its node through every link to the root.
    let mut below = id.clone();
    for hop in nic.pcie.value().map_or(&[][..], |pcie| &pcie.links) {
        let hop_id = format!("{id}/pcie/{}", hop.address);
        let speed = hop
            .transfer_mt_per_s
            .value()
            .map_or_else(|| question(&hop.transfer_mt_per_s), ToString::to_string);
        let width = hop
            .width
            .value()
            .map_or_else(|| question(&hop.width), |width| format!("x{width}"));
        let label = format!("PCIe {}\n{speed} {width}", hop.address);
        out.push_str(&format!(
            "  {} [label={}];\n",
            quoted(&hop_id),
            quoted(&label)
        ));
        out.push_str(&format!("  {} -- {};\n", quoted(&hop_id), quoted(&below)));
        below = hop_id;
    }
    if let Some(node) = nic.numa_node.value() {
        out.push_str(&format!(
            "  {} -- {};\n",
            quoted(&format!("node{node}")),
            quoted(&below)
        ));
    }
    for queue in &nic.queues {
        let kind = super::map_text::queue_name(queue);
        let queue_id = format!("{id}/{kind}");
        let irq = queue
            .irq
            .value()
            .map_or_else(|| question(&queue.irq), ToString::to_string);
        let cpus = queue
            .cpus
            .value()
            .map_or_else(|| question(&queue.cpus), ToString::to_string);
        let label = format!("{kind}\nirq {irq}\nCPUs {cpus}");
        out.push_str(&format!(
            "  {} [label={}];\n",
            quoted(&queue_id),
            quoted(&label)
        ));
        out.push_str(&format!("  {} -- {};\n", quoted(&id), quoted(&queue_id)));
    }
    for lower in &nic.lower {
        let lower = quoted(&format!("nic/{lower}"));
        out.push_str(&format!("  {} -- {lower} [style=dashed];\n", quoted(&id)));
    }
}

fn question<T>(fact: &Known<T>) -> String {
    fact.gap()
        .map_or_else(String::new, |gap| format!("? ({})", gap.cause))
}

/// A DOT string: only the quote and the backslash mean something in it; line breaks are ours.
fn quoted(text: &str) -> String {
    let lines: Vec<String> = text
        .split('\n')
        .map(|line| visible(line).replace('\\', "\\\\").replace('"', "\\\""))
        .collect();
    format!("\"{}\"", lines.join("\\n"))
}
