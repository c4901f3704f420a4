//! How much CPU time and memory a mesh of many hosts takes to schedule, gather and judge, and how large its page is:
//! simulated rates, one process with one thread for each size.

use std::path::Path;
use std::process::{Command, ExitCode};

use linerate_analysis::mesh::Matrix;
use linerate_analysis::mesh::simulated::{Fault, Noise, SimulatedMesh};
use linerate_model::mesh::{HostIndex, Pattern};
use linerate_report::mesh::mesh_page;
use linerate_stats::Seed;

/// The sizes and patterns, in the order of the table.
const CASES: [(usize, &str); 8] = [
    (16, "pairs"),
    (64, "pairs"),
    (256, "quick"),
    (256, "pairs"),
    (1024, "quick"),
    (1024, "pairs"),
    (4096, "quick"),
    (4096, "pairs"),
];

#[expect(clippy::print_stdout, reason = "a table is what this program is for")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [hosts, pattern, page @ ..] = &arguments[..] {
        let Ok(hosts) = hosts.parse() else {
            return ExitCode::from(2);
        };
        println!("{}", row(hosts, pattern, page.first().map(Path::new)));
        return ExitCode::SUCCESS;
    }
    println!(
        "| hosts | pattern | rounds | rates | CPU time, s | memory, MiB | page, CPU time, s | page, MB | named |"
    );
    println!("|---:|---|---:|---:|---:|---:|---:|---:|---|");
    for (hosts, pattern) in CASES {
        let own = std::env::current_exe();
        let output = own.and_then(|own| {
            Command::new(own)
                .args([&hosts.to_string(), pattern])
                .output()
        });
        match output {
            Ok(output) if output.status.success() => {
                print!("{}", String::from_utf8_lossy(&output.stdout));
            }
            _ => return ExitCode::FAILURE,
        }
    }
    ExitCode::SUCCESS
}

/// A mesh with one slow sender, from the schedule to the page, which is written to `file` if there is one.
fn row(hosts: usize, name: &str, file: Option<&Path>) -> String {
    let pattern = if name == "quick" {
        Pattern::Quick
    } else {
        Pattern::Pairs
    };
    let mut mesh = SimulatedMesh::clean(hosts, Noise::Normal, 0.03);
    mesh.faults.push(Fault::Send(HostIndex(7), 0.85));
    let (document, run) = mesh.document(&pattern, Seed(1));
    let (judged, memory) = (cpu_seconds(), peak_mib());
    let page = mesh_page(
        &document,
        &Matrix::of(&mesh.hosts, &run.states, &run.first),
        env!("CARGO_PKG_VERSION"),
    );
    let drawn = cpu_seconds();
    let written = file.map(|file| std::fs::write(file, &page));
    let page_mb = match written {
        Some(Err(error)) => format!("not written: {error}"),
        _ => megabytes(page.len()),
    };
    let shown = |seconds: Option<f64>| {
        seconds.map_or_else(|| "unknown".to_owned(), |seconds| format!("{seconds:.2}"))
    };
    let named: Vec<String> = document
        .named
        .iter()
        .filter_map(|one| one.host.clone())
        .collect();
    format!(
        "| {hosts} | {name} | {} | {} | {} | {} | {} | {page_mb} | {} |",
        document.rounds,
        document.summary.measured,
        shown(judged),
        memory.map_or_else(|| "unknown".to_owned(), |mib| mib.to_string()),
        shown(drawn.zip(judged).map(|(drawn, judged)| drawn - judged)),
        named.join(", ")
    )
}
#[expect(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
fn megabytes(bytes: usize) -> String {
    format!("{:.2}", bytes as f64 / 1e6)
}

/// The largest resident set of this process, from `/proc/self/status` (proc(5)).
fn peak_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024)
}

/// The CPU time of this process, which does not depend on what else runs (`Documentation/scheduler/sched-stats.rst`).
fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    let nanoseconds: f64 = stat.split_whitespace().next()?.parse().ok()?;
    Some(nanoseconds / 1e9)
}
