//! What linerate prints fits its published schema (`schema/`).

use std::path::Path;

use boon::{Compiler, Draft, Schemas};
use serde_json::Value;

/// Panics unless `document` fits the schema that its own first key names.
#[track_caller]
pub(crate) fn assert_fits(document: &Value) {
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
#[track_caller]
pub(crate) fn fitting(text: &str) -> Value {
    let document = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"));
    assert_fits(&document);
    document
}
