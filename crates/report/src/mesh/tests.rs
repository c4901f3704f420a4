//! A mesh as text and page, and the facts that differ.

use linerate_analysis::mesh::simulated::{Fault, Noise, SimulatedMesh};
use linerate_analysis::mesh::{Matrix, MeshDocument};
use linerate_model::build;
use linerate_model::host::Nic;
use linerate_model::known::Known;
use linerate_model::mesh::{HostIndex, Pattern};
use linerate_stats::Seed;

use super::*;
use crate::metrics::{Exposition, Provenance, mesh_metrics};

fn mesh(hosts: usize, pattern: &Pattern, fault: Fault) -> (MeshDocument, Matrix) {
    let mut mesh = SimulatedMesh::clean(hosts, Noise::Normal, 0.02);
    mesh.faults.push(fault);
    let (document, run) = mesh.document(pattern, Seed(7));
    let matrix = Matrix::of(&mesh.hosts, &run.states, &run.first);
    (document, matrix)
}

#[test]
fn sixteen_hosts_fit_80_columns() {
    let (document, matrix) = mesh(16, &Pattern::Pairs, Fault::Send(HostIndex(3), 0.8));
    let text = mesh_text(&document, &matrix);
    assert!(
        text.starts_with("16 hosts: 15 ok, 1 named, 0 unreached, 0 not tried\n"),
        "{text}"
    );
    assert!(text.contains("\nh3 sends "), "{text}");
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest.is_some_and(|widest| widest <= 80), "{text}");
}

#[test]
fn a_black_hole_is_shown_as_a_failure_in_text_and_map() {
    let fault = Fault::BlackHole(HostIndex(1), HostIndex(5));
    let (document, matrix) = mesh(8, &Pattern::Pairs, fault);
    let text = mesh_text(&document, &matrix);
    assert!(
        text.contains("h1 to h5: no data arrives (packet loss, MTU black hole)"),
        "{text}"
    );
    assert_eq!(text.matches("   x").count(), 1, "{text}");
}

#[test]
fn a_host_that_loses_segments_is_shown_with_their_share() {
    let fault = Fault::Retransmits(HostIndex(5), 0.01);
    let (document, matrix) = mesh(8, &Pattern::Pairs, fault);
    let text = mesh_text(&document, &matrix);
    for side in ["from", "to"] {
        let start = format!("\n{side} h5: ");
        let line = text.split_once(&start).map(|(_, rest)| rest);
        let line = line.unwrap_or_else(|| panic!("no {start:?} in {text}"));
        assert!(line.contains("% of segments retransmitted ("), "{text}");
    }
    assert!(!text.contains("no slow host found"), "{text}");
    assert!(mesh_page(&document, &matrix, "0").contains("from h5: "));
}

#[test]
fn a_named_host_has_its_metrics_and_one_that_is_ok_none() {
    let (document, _) = mesh(8, &Pattern::Pairs, Fault::Send(HostIndex(3), 0.8));
    let made = Provenance {
        commit: None,
        target: "x",
        unix_s: 1,
    };
    let text = mesh_metrics(&document, &made).render(Exposition::OpenMetrics);
    let own = "linerate_mesh_host_not_ok{pattern=\"pairs\",workload=\"stream\",host=\"h3\",state=\"named\"} 1";
    assert!(text.contains(own), "{text}");
    assert!(text.contains("state=\"ok\"} 7"), "{text}");
    assert!(
        text.contains("what=\"host-send\",host=\"h3\",bound=\"low\"} -0."),
        "{text}"
    );
    assert!(!text.contains("host=\"h4\""), "{text}");
}

#[test]
fn the_page_of_many_hosts_stays_small() {
    let (document, matrix) = mesh(600, &Pattern::Quick, Fault::Receive(HostIndex(9), 0.8));
    let page = mesh_page(&document, &matrix, "0");
    assert!(page.contains("h9 receives"));
    assert!(page.len() < 2_000_000, "{}", page.len());
    // A path for each color, not for each tile.
    assert!(page.matches("<path fill=").count() <= 7);
    assert!(page.contains(">1 h0</text>"));
}

#[test]
fn the_fact_that_only_the_named_host_has_is_beside_its_name() {
    let (mut document, _) = mesh(8, &Pattern::Pairs, Fault::Send(HostIndex(3), 0.8));
    let host = |mtu| {
        let set = |nic: &mut Nic| nic.mtu = Known::Value(mtu);
        build::host().nic("eth2", |nic| nic.with(set)).build()
    };
    let hosts: Vec<_> = (0..8)
        .map(|n| host(if n == 3 { 1500 } else { 9000 }))
        .collect();
    let names: Vec<String> = (0..8).map(|number| format!("h{number}")).collect();
    let facts: Vec<HostFacts<'_>> = hosts
        .iter()
        .zip(&names)
        .map(|(host, name)| HostFacts {
            name,
            host,
            findings: &[],
        })
        .collect();
    add_differences(&mut document, &facts);
    let differs = &document.named[0].differs;
    let mtu = differs.iter().find(|one| one.key == "nics/eth2/mtu");
    let mtu = mtu.expect("the MTU");
    assert_eq!((mtu.value.clone(), mtu.hosts), (Some(1500.into()), 7));
}
