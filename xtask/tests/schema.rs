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
        "rule": "tso-off", "severity": "warn", "end": "local", "subject": "nic/eth2",
        "summary": "TCP segmentation offload is off",
        "evidence": [{"what": "feature", "value": "off", "path": "ethtool features of eth2"}],
        "threshold": "on",
        "remedies": [{"end": "local", "setting": "nic/eth2/feature/tx-tcp-segmentation", "from": false, "to": true,
            "class": "R1"}],
    });
    let mut document = json!({
        "schema": "linerate.doctor/1", "profile": "throughput", "watched_s": null, "rules": 85,
        "findings": [finding],
        "undetermined": [{"rule": "irq-remote-numa", "end": "local", "subject": "nic/eth2",
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
        "schema": "linerate.run/1", "version": "0.1.0", "created_unix_s": 0, "command": ["linerate"], "seed": 4,
        "trials": 9, "peer": "far", "local_nic": "eth2", "remote_nic": "eth2", "address": "10.0.0.2",
        "copy_bit_per_s": null,
    });
    assert_eq!(fits("run", &document), Ok(()));
    document
        .as_object_mut()
        .expect("an object")
        .remove("copy_bit_per_s");
    assert!(fits("run", &document).is_err());
}
