//! For tests: the output of a measurement, and other documents, validated against the published schema.

use serde_json::Value;

use super::document::document;
use super::measured::Measured;
use super::text::text;

/// The document of a measurement, which fits its schema, and its text.
pub(super) fn told_and_fitting(measured: &Measured<'_>) -> (Value, String) {
    let document = document(measured, None);
    let lines = text(measured, &document, None);
    let value = serde_json::to_value(&document).expect("a document");
    assert_fits("sample-1", &value);
    (value, lines)
}

/// Panics unless a document fits the schema of that name.
pub(crate) fn assert_fits(name: &str, value: &Value) {
    let schema = format!("{}/../../schema/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let mut schemas = boon::Schemas::new();
    let mut compiler = boon::Compiler::new();
    let index = compiler.compile(&schema, &mut schemas).expect("a schema");
    if let Err(error) = schemas.validate(value, index) {
        panic!("it does not fit {name}: {error:#}");
    }
}
