//! `linerate map --memory`: node-to-node memory bandwidth.

use std::collections::BTreeSet;
use std::time::Duration;

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::{Host, Node};
use linerate_model::ids::{CpuId, CpuSet, NodeId};
use linerate_model::units::BitRate;
use linerate_report::{MemoryBandwidth, MemoryCell, MemoryCells};
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::say::Say;
use linerate_traffic::TrafficError;
use linerate_traffic::memory::{Bandwidth, Cell, measure_cell};

/// Each of a cell's seven timed parts.
const BUDGET: Duration = Duration::from_millis(200);
/// With the making of buffers.
const CELL_S: usize = 3;

/// One cell of the matrix, with its nodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    /// The node whose CPUs work.
    cpus: NodeId,
    /// How many cores work at once.
    cores: usize,
    /// The node whose memory is worked on.
    memory: NodeId,
    cell: Cell,
}

/// Measures every pair of a node with CPUs and a node with memory.
pub(super) fn matrix(host: &Host, say: &Say) -> Outcome<Vec<Row>> {
    let workers: Vec<(NodeId, CpuSet)> = host
        .nodes
        .iter()
        .map(|node| (node.id, cores_of(host, node)))
        .filter(|(_, cores)| !cores.is_empty())
        .collect();
    let has_memory = |node: &&Node| {
        node.memory_bytes
            .get()
            .is_some_and(|size| size.as_u64() > 0)
    };
    let memories: Vec<NodeId> = host
        .nodes
        .iter()
        .filter(has_memory)
        .map(|node| node.id)
        .collect();
    let cells = workers.len() * memories.len();
    if cells == 0 {
        return Err(Stop::new(
            Code::NotSupported,
            "no NUMA node with CPUs and memory to measure",
        ));
    }
    say.note(&format!(
        "measuring {}, about {} s; loads all cores of a node for part of it",
        if cells == 1 {
            "1 pair of nodes".to_owned()
        } else {
            format!("{cells} pairs of nodes")
        },
        cells * CELL_S
    ));
    let interrupt = Interrupt::listen()?;
    let progress = say.progress(u64::try_from(cells).unwrap_or(u64::MAX), "memory");
    let mut rows = Vec::with_capacity(cells);
    for (cpus, cores) in &workers {
        for memory in &memories {
            interrupt.check()?;
            let cell = measure_cell(cores, *memory, BUDGET, interrupt.abort())
                .map_err(|error| cannot(&error, &interrupt))?;
            progress.step(&format!("node {cpus} on memory of node {memory}"));
            rows.push(Row {
                cpus: *cpus,
                cores: cores.len(),
                memory: *memory,
                cell,
            });
        }
    }
    Ok(rows)
}

fn cannot(error: &TrafficError, interrupt: &Interrupt) -> Stop {
    if let Err(stop) = interrupt.check() {
        return stop;
    }
    let code = match error {
        TrafficError::OutOfThreads { .. } | TrafficError::OutOfMemory { .. } => Code::Resource,
        _ => Code::NotSupported,
    };
    Stop::new(code, format!("cannot measure memory: {error}"))
}

/// One online CPU of each core of a node that this program may run on.
fn cores_of(host: &Host, node: &Node) -> CpuSet {
    let own = node.cpus.value().cloned().unwrap_or_default();
    let mut seen: BTreeSet<CpuId> = BTreeSet::new();
    host.cpus
        .iter()
        .filter(|cpu| own.contains(cpu.id) && cpu.online.get() == Some(true))
        .filter(|cpu| {
            let first = cpu.siblings.value().and_then(CpuSet::first);
            seen.insert(first.unwrap_or(cpu.id))
        })
        .map(|cpu| cpu.id)
        .collect()
}

/// The matrix as `map --format json` shows it.
pub(super) fn memory_cells(rows: &[Row]) -> MemoryCells {
    let bandwidth = |of: &Bandwidth| MemoryBandwidth {
        read_bit_per_s: of.read,
        write_bit_per_s: of.write,
        copy_bit_per_s: of.copy,
    };
    let cells = rows.iter().map(|row| MemoryCell {
        cpu_node: row.cpus,
        cores: row.cores,
        memory_node: row.memory,
        latency_ns: row.cell.latency_ns,
        one_core: bandwidth(&row.cell.one_core),
        all_cores: bandwidth(&row.cell.all_cores),
    });
    MemoryCells {
        cells: cells.collect(),
    }
}

/// The matrix for a person: GB/s as the vendors' tables have it, a line for each pair.
pub(super) fn memory_text(rows: &[Row]) -> String {
    let gigabytes = |rate: BitRate| rate.as_f64() / 8e9;
    let mut lines = vec![
        "memory bandwidth from CPUs of node -> memory of node; GB/s, each byte counted once"
            .to_owned(),
        format!(
            "{:>9} {:>9}  {:>24}  {:>24}",
            "", "latency", "one core", "all cores"
        ),
        format!(
            "{:>9} {:>9}  {:>7} {:>8} {:>7}  {:>7} {:>8} {:>7}",
            "", "ns", "read", "write", "copy", "read", "write", "copy"
        ),
    ];
    lines.extend(rows.iter().map(|row| {
        let (one, all) = (&row.cell.one_core, &row.cell.all_cores);
        format!(
            "{:>9} {:>9.1}  {:>7.1} {:>8.1} {:>7.1}  {:>7.1} {:>8.1} {:>7.1}",
            format!("{} -> {}", row.cpus, row.memory),
            row.cell.latency_ns,
            gigabytes(one.read),
            gigabytes(one.write),
            gigabytes(one.copy),
            gigabytes(all.read),
            gigabytes(all.write),
            gigabytes(all.copy)
        )
    }));
    lines.join("\n")
}
