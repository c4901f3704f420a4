//! Validates the schemas under `schema/` against the JSON Schema specification itself (draft 2020-12), and checks
//! that they reject invalid data. `crates/linerate` tests real output against them.

use std::path::{Path, PathBuf};

use boon::{Compiler, Draft, SchemaIndex, Schemas};
use serde_json::{Value, json};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../schema")
}

fn compiled(path: &Path) -> (Schemas, SchemaIndex) {
    let location = path.to_str().expect("a path in UTF-8");
    let mut schemas = Schemas::new();
    let mut compiler = Compiler::new();
    compiler.set_default_draft(Draft::V2020_12);
    match compiler.compile(location, &mut schemas) {
        Ok(index) => (schemas, index),
        Err(error) => panic!("{location}: {error:#}"),
    }
}

fn fits(noun: &str, document: &Value) -> Result<(), String> {
    let (schemas, index) = compiled(&folder().join(format!("{noun}-1.json")));
    schemas
        .validate(document, index)
        .map_err(|error| error.to_string())
}

#[test]
fn every_schema_is_a_schema_and_refuses_an_empty_document() {
    let mut seen = 0;
    for entry in std::fs::read_dir(folder()).expect("the folder of schemas") {
        let path = entry.expect("a schema").path();
        let (schemas, index) = compiled(&path);
        assert!(schemas.validate(&json!({}), index).is_err(), "{path:?}");
        seen += 1;
    }
    assert!(seen >= 6, "only {seen} schemas");
}

#[test]
fn a_finding_fits_and_one_without_its_evidence_does_not() {
    let finding = json!({
        "rule": "tso-off", "severity": "warn", "subject": "nic/eth2",
        "summary": "TCP segmentation offload is off",
        "evidence": [{"what": "feature", "value": "off", "path": "ethtool features of eth2"}],
        "threshold": "on",
        "remedies": [{"setting": "nic/eth2/feature/tx-tcp-segmentation", "from": false, "to": true, "class": "R1"}],
    });
    let mut document = json!({
        "schema": "linerate.doctor/1", "profile": "throughput",
        "findings": [finding],
        "undetermined": [{"rule": "irq-remote-numa", "subject": "nic/eth2",
            "missing": [{"path": "/sys/class/net/eth2/device/numa_node", "reason": "-1", "cause": "not-said"}]}],
    });
    assert_eq!(fits("doctor", &document), Ok(()));
    document["findings"][0]
        .as_object_mut()
        .expect("a finding")
        .remove("evidence");
    assert!(fits("doctor", &document).is_err());
}

#[test]
fn an_unknown_value_is_null_and_never_missing() {
    let mut document = json!({
        "schema": "linerate.map/1", "gaps": [],
        "host": {"cpus": [], "nodes": [], "rdma": [], "block": [], "nics": [{
            "name": "eth2", "driver": null, "pci_address": null, "numa_node": null,
            "local_cpus": null, "link_bit_per_s": null, "mtu": 1500, "pcie": null, "queues": [],
            "lower": [], "kind": "veth", "rdma": null,
        }]},
    });
    assert_eq!(fits("map", &document), Ok(()));
    document["host"]["nics"][0]
        .as_object_mut()
        .expect("an interface")
        .remove("numa_node");
    assert!(fits("map", &document).is_err());
}
