//! The JSON Schemas under `schema/`, generated from the types that serde writes: a field's description is its
//! comment. `cargo xtask schemas` writes them, and the test below compares them.

use std::fs;
use std::path::Path;

use linerate_analysis::experiment::compare::CompareDocument;
use linerate_analysis::experiment::document::LabDocument;
use linerate_analysis::failover_comparison::FailoverComparison;
use linerate_analysis::record::Header;
use linerate_analysis::run_list::RunsDocument;
use linerate_model::lab::Experiment;
use linerate_model::prove::ProveDocument;
use linerate_report::doctor::DoctorDocument;
use linerate_report::nic::NicDocument;
use linerate_report::{MapDocument, ReportData};
use linerate_runtime::endpoint::listen::PairingDocument;
use linerate_store::export::row_schema;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

use crate::commands::ceiling::CeilingDocument;
use crate::commands::doctor::{RuleDocument, RulesDocument, TopicDocument};
use crate::commands::map::{DiffDocument, FactsDocument};
use crate::commands::mesh_testbed::MeshTestbedDocument;
use crate::commands::pairings::KeysDocument;
use crate::commands::redundant::RedundantDocument;
use crate::commands::testbed::RxeDocument;
use crate::failover::document::FailoverDocument;
use crate::lab::ExperimentList;
use crate::measure::block::document::BlockDocument;
use crate::measure::document::MeasureDocument;
use crate::measure::ladder::LadderDocument;
use crate::measure::nics::document::NicsDocument;
use crate::measure::preload::PreloadDocument;
use crate::measure::stored::StoredDocument;
use crate::qos::{QosDocument, QosPlanDocument, QosStatusDocument};
use crate::tune::TuneDocument;

/// Schemas that are kept by hand: iperf3's own format.
const BY_HAND: [&str; 1] = ["iperf3-test"];

/// A document: the name of its schema, the title, and its type.
struct Document {
    name: &'static str,
    title: &'static str,
    /// The schema that `generator` makes of its type, or of the table of its columns.
    schema: fn(SchemaGenerator) -> Schema,
    /// Whether linerate reads it: then a key with a default is not required.
    is_read: bool,
}

fn document<T: JsonSchema>(name: &'static str, title: &'static str) -> Document {
    Document {
        name,
        title,
        schema: SchemaGenerator::into_root_schema_for::<T>,
        is_read: false,
    }
}

fn documents() -> Vec<Document> {
    vec![
        document::<TopicDocument<'_>>("page", "linerate explain TOPIC"),
        document::<ExperimentList<'_>>("lab-list", "linerate lab list"),
        document::<MapDocument<'_>>("map", "linerate map"),
        document::<NicDocument<'_>>("nic", "linerate nic"),
        document::<FactsDocument<'_>>("facts", "linerate map --why"),
        document::<DiffDocument<'_>>("map-diff", "linerate map --diff"),
        document::<CeilingDocument<'_>>("ceiling", "linerate ceiling"),
        document::<RuleDocument>("rule", "linerate explain RULE"),
        document::<RulesDocument>("rules", "linerate explain rules"),
        document::<CompareDocument>("compare", "linerate compare"),
        document::<RxeDocument>("testbed-rxe", "linerate testbed rxe"),
        document::<linerate_analysis::mesh::MeshDocument>("mesh", "linerate mesh"),
        document::<linerate_analysis::mesh::comparison::MeshComparison>(
            "mesh-compare",
            "linerate compare of runs of mesh",
        ),
        document::<MeshTestbedDocument>("testbed-mesh", "linerate testbed mesh"),
        document::<RedundantDocument>("testbed-redundant", "linerate testbed redundant"),
        document::<KeysDocument>("keys", "linerate peers list, linerate agent paired"),
        document::<PairingDocument>("pairing", "linerate agent --listen, linerate agent pair"),
        document::<MeasureDocument<'_>>("sample", "linerate measure"),
        document::<BlockDocument<'_>>("block", "linerate measure block"),
        document::<PreloadDocument>("preload", "linerate measure --preload"),
        document::<StoredDocument<'_>>("measurement", "linerate report of a measurement"),
        document::<TuneDocument<'_>>("tune", "linerate tune"),
        document::<QosDocument>("qos", "linerate qos verify"),
        document::<FailoverDocument>("failover", "linerate failover"),
        document::<FailoverComparison>("failover-compare", "linerate compare of runs of failover"),
        document::<QosPlanDocument<'_>>("qos-plan", "linerate qos plan"),
        document::<QosStatusDocument>("qos-status", "linerate qos status"),
        document::<DoctorDocument<'_>>("doctor", "linerate doctor"),
        document::<RunsDocument>("runs", "linerate runs"),
        document::<ProveDocument>("prove", "linerate prove, linerate demo"),
        document::<ReportData>("report", "The data of a report's page"),
        document::<LabDocument>("lab", "linerate lab"),
        document::<LadderDocument<'_>>("ladder", "linerate measure stream --ladder"),
        document::<NicsDocument<'_>>("nics", "linerate measure stream --nic"),
        Document {
            is_read: true,
            ..document::<Experiment>("experiment", "An experiment of linerate lab")
        },
        document::<Header>("run", "A stored run's header"),
        Document {
            name: "row",
            title: "linerate export",
            schema: |_| Schema::try_from(row_schema()).expect("an object"),
            is_read: false,
        },
    ]
}

impl Document {
    /// The text of its file.
    fn text(&self) -> String {
        let settings = SchemaSettings::draft2020_12();
        let settings = if self.is_read {
            settings
        } else {
            settings.for_serialize()
        };
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

/// Leaves out the widths of Rust's integers, sets each description in one line of plain text, and forbids null for keys
/// that are left out instead.
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
            let required = keys.get("required").cloned().unwrap_or_default();
            if let Some(Value::Object(properties)) = keys.get_mut("properties") {
                for (key, property) in properties {
                    let is_required = |all: &Vec<Value>| all.iter().any(|one| one == key);
                    if !required.as_array().is_some_and(is_required) {
                        forbid_null(property);
                    }
                    if let Some(keys) = property.as_object_mut() {
                        keys.remove(NULLABLE);
                    }
                }
            }
            keys.remove(NULLABLE);
            keys.values_mut().for_each(plain);
        }
        Value::Array(items) => items.iter_mut().for_each(plain),
        _ => {}
    }
}

/// Marks a value that is null when it is not known, even where its key may be left out.
const NULLABLE: &str = "nullable";

fn forbid_null(property: &mut Value) {
    let Some(keys) = property.as_object_mut() else {
        return;
    };
    if keys.contains_key(NULLABLE) {
        return;
    }
    let is_null = |one: &Value| *one == json!("null") || *one == json!({"type": "null"});
    for key in ["type", "anyOf"] {
        if let Some(Value::Array(all)) = keys.get_mut(key) {
            all.retain(|one| !is_null(one));
        }
    }
    match keys.get_mut("anyOf").and_then(Value::as_array_mut) {
        Some(all) if all.len() == 1 => {
            let only = all.remove(0);
            keys.remove("anyOf");
            if let Value::Object(only) = only {
                keys.extend(only);
            }
        }
        _ => {}
    }
    if let Some(Value::Array(all)) = keys.get_mut("type")
        && let [only] = all.as_mut_slice()
    {
        let only = only.take();
        keys.insert("type".to_owned(), only);
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
    let names = documents().into_iter().map(|document| document.name);
    let mut names: Vec<String> = names
        .chain(BY_HAND)
        .map(|name| format!("{name}-1.json"))
        .collect();
    names.sort();
    let files = fs::read_dir(&folder).expect("the folder of schemas");
    let mut files: Vec<String> = files
        .map(|file| file.expect("a schema").file_name())
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    files.sort();
    assert_eq!(names, files, "files of `schema/`");
    assert!(
        stale.is_empty(),
        "stale: {stale:?}; `cargo xtask schemas` regenerates them"
    );
}
