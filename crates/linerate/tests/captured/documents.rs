//! Holds a printed document against its schema under `schema/`, and against what all of them promise.

use std::fs;

use boon::{Compiler, Draft, Schemas};
use serde_json::Value;

use super::archives::repository;

/// The document in `text`: one JSON object that names its schema first and fits it.
#[track_caller]
pub(crate) fn document(text: &str) -> Value {
    let start = text.trim_start().strip_prefix('{').map(str::trim_start);
    assert!(
        start.is_some_and(|rest| rest.starts_with("\"schema\":")),
        "`schema` is not the first key: {}",
        text.lines().take(3).collect::<Vec<_>>().join(" ")
    );
    let document: Value = serde_json::from_str(text).expect("one JSON document");
    fits(&document);
    document
}

/// Holds a document against the schema that it names, and demands that the schema describes every key of
/// it: to readers further keys are allowed, to us an undescribed one is a mistake.
#[track_caller]
pub(crate) fn fits(document: &Value) {
    let name = document["schema"].as_str().expect("the name of a schema");
    let (noun, version) = name
        .strip_prefix("linerate.")
        .and_then(|name| name.split_once('/'))
        .expect("linerate.NOUN/VERSION");
    let place = repository(&format!("schema/{noun}-{version}.json"));
    let text =
        fs::read_to_string(&place).unwrap_or_else(|error| panic!("{}: {error}", place.display()));
    let mut schema: Value = serde_json::from_str(&text).expect("a schema is JSON");
    close(&mut schema);
    let mut schemas = Schemas::new();
    let mut compiler = Compiler::new();
    compiler.set_default_draft(Draft::V2020_12);
    let place = "urn:linerate:closed";
    if let Err(error) = compiler.add_resource(place, schema) {
        panic!("{name}: {error:#}");
    }
    let index = compiler
        .compile(place, &mut schemas)
        .unwrap_or_else(|error| panic!("{name}: {error:#}"));
    if let Err(error) = schemas.validate(document, index) {
        panic!("{name}: {error:#}");
    }
}

/// Forbids the keys that a schema does not describe, wherever it describes an object's keys.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(keys) => {
            let is_object = keys.get("type").is_some_and(|kind| {
                kind == "object"
                    || kind
                        .as_array()
                        .is_some_and(|all| all.contains(&"object".into()))
            });
            if is_object && keys.contains_key("properties") {
                keys.entry("additionalProperties").or_insert(false.into());
            }
            keys.remove("$id");
            keys.values_mut().for_each(close);
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

/// The JSON pointers of every null within `value`.
pub(crate) fn nulls(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk(value, String::new(), &mut found);
    found
}

fn walk(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Null => found.push(at),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk(item, format!("{at}/{index}"), found);
            }
        }
        Value::Object(keys) => {
            for (key, item) in keys {
                let key = key.replace('~', "~0").replace('/', "~1");
                walk(item, format!("{at}/{key}"), found);
            }
        }
        _ => {}
    }
}
