//! The JSON Schemas under `schema/`, generated from the types that serde writes: a field's description is its
//! comment. `cargo xtask schemas` writes them, and the test below compares them.

use std::fs;
use std::path::Path;

use linerate_analysis::record::Header;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

/// A document: the name of its schema, the title, and its type.
struct Document {
    name: &'static str,
    title: &'static str,
    schema: fn(SchemaGenerator) -> Schema,
}

fn document<T: JsonSchema>(name: &'static str, title: &'static str) -> Document {
    Document {
        name,
        title,
        schema: SchemaGenerator::into_root_schema_for::<T>,
    }
}

fn documents() -> Vec<Document> {
    vec![
        document::<crate::commands::doctor::TopicDocument<'_>>("page", "linerate explain TOPIC"),
        document::<crate::lab::ExperimentList<'_>>("lab-list", "linerate lab list"),
        document::<Header>("run", "A stored run's header"),
    ]
}

impl Document {
    /// The text of its file.
    fn text(&self) -> String {
        let settings = SchemaSettings::draft2020_12().for_serialize();
        let body = (self.schema)(settings.into_generator()).to_value();
        let mut schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": format!("urn:linerate:schema:{}:1", self.name),
            "title": self.title,
            "description": body["description"],
            "type": "object",
        });
        if let (Value::Object(whole), Value::Object(mut body)) = (&mut schema, body) {
            body.retain(|key, _| !whole.contains_key(key));
            whole.append(&mut body);
        }
        schema["properties"]["schema"] = json!({"const": format!("linerate.{}/1", self.name)});
        plain(&mut schema);
        format!("{schema:#}\n")
    }
}

/// Leaves out the widths of Rust's integers, and sets each description in one line of plain text.
fn plain(schema: &mut Value) {
    match schema {
        Value::Object(keys) => {
            if keys.get("format").is_some_and(Value::is_string) {
                keys.remove("format");
            }
            if let Some(Value::String(text)) = keys.get_mut("description") {
                *text = text
                    .replace('\n', " ")
                    .replace("[`", "`")
                    .replace("`]", "`");
            }
            keys.values_mut().for_each(plain);
        }
        Value::Array(items) => items.iter_mut().for_each(plain),
        _ => {}
    }
}

#[test]
fn each_schema_is_what_its_type_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema");
    let is_written = std::env::var_os("LINERATE_BLESS").is_some();
    let mut stale = Vec::new();
    for document in documents() {
        let file = format!("{}-1.json", document.name);
        let text = document.text();
        if is_written {
            fs::write(folder.join(&file), text).expect("a schema is written");
        } else if fs::read_to_string(folder.join(&file)).ok() != Some(text) {
            stale.push(file);
        }
    }
    assert!(
        stale.is_empty(),
        "stale: {stale:?}; `cargo xtask schemas` writes them anew"
    );
}
