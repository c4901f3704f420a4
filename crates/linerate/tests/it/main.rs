//! The real program on a real kernel: two hosts in network namespaces, faults planted by other tools,
//! and other tools' word for what was found and put back.
//!
//! Run as root and as an ordinary user alike (`cargo xtask test` does both). What this machine lacks is
//! a `SKIP:` line with its reason.

#![expect(
    clippy::print_stderr,
    reason = "a test that cannot run says so where the runner counts it"
)]

mod agent;
mod bad_input;
mod demo;
mod full_disk;
mod guard;
mod help;
mod iperf3;
mod job;
mod lab;
mod ladder;
mod no_rdma;
mod peers;
mod preload;
mod prove;
mod restore;
mod stream;
mod testbed;
mod tune;
mod watch;
mod workloads;

use std::path::Path;

use boon::{Compiler, Draft, Schemas};
use serde_json::Value;

/// The program under test.
const LINERATE: &str = env!("CARGO_BIN_EXE_linerate");

/// Panics unless `document` fits the schema that its own first key names.
fn assert_fits(document: &Value) {
    let name = document["schema"].as_str().expect("its schema's name");
    let file = name
        .strip_prefix("linerate.")
        .expect("a schema of ours")
        .replace('/', "-");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../schema/{file}.json"));
    let location = path.to_str().expect("a path in UTF-8");
    let mut schemas = Schemas::new();
    let mut compiler = Compiler::new();
    compiler.set_default_draft(Draft::V2020_12);
    let index = compiler
        .compile(location, &mut schemas)
        .unwrap_or_else(|error| panic!("{location}: {error:#}"));
    if let Err(error) = schemas.validate(document, index) {
        panic!("{name}: {error}");
    }
}

/// What was printed, as a document that fits its schema.
fn fitting(text: &str) -> Value {
    let document = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"));
    assert_fits(&document);
    document
}
