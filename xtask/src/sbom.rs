//! The list of what the program contains, as a CycloneDX 1.5 document (cyclonedx.org): each crate with its version,
//! license and the checksum of Cargo.lock. Crates of tests and of build scripts are not in the program, nor here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

use crate::check;

/// The document for the program, for all targets that deny.toml names.
pub(crate) fn document(root: &Path) -> Result<Value, String> {
    let read = |name: &str| {
        std::fs::read_to_string(root.join(name))
            .map_err(|error| format!("cannot read {name}: {error}"))
    };
    let metadata = check::metadata_of_targets(root)?;
    let lock: toml::Table = read("Cargo.lock")?
        .parse()
        .map_err(|error| format!("cannot read Cargo.lock: {error}"))?;
    of(&metadata, &checksums(&lock))
}

/// The SHA-256 sums of the registry's crates, by name and version.
fn checksums(lock: &toml::Table) -> BTreeMap<(String, String), String> {
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let text = |package: &toml::Value, key: &str| Some(package.get(key)?.as_str()?.to_owned());
    let sum = |package: &toml::Value| {
        let key = (text(package, "name")?, text(package, "version")?);
        Some((key, text(package, "checksum")?))
    };
    packages.into_iter().flatten().filter_map(sum).collect()
}

fn of(metadata: &Value, sums: &BTreeMap<(String, String), String>) -> Result<Value, String> {
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages: BTreeMap<String, Value> = items(&metadata["packages"])
        .into_iter()
        .filter_map(|package| Some((package["id"].as_str()?.to_owned(), package)))
        .collect();
    let uses: BTreeMap<String, BTreeSet<String>> = items(&metadata["resolve"]["nodes"])
        .into_iter()
        .filter_map(|node| {
            let inner = items(&node["deps"]).into_iter();
            let inner = inner.filter(|inner| {
                let kinds = items(&inner["dep_kinds"]);
                kinds.iter().any(|kind| kind["kind"].is_null())
            });
            let inner = inner.filter_map(|inner| inner["pkg"].as_str().map(str::to_owned));
            Some((node["id"].as_str()?.to_owned(), inner.collect()))
        })
        .collect();
    let is_program = |package: &&Value| package["name"] == "linerate";
    let program = packages.values().find(is_program);
    let program = program.ok_or("cargo metadata has no package linerate")?;
    let mut reached = BTreeSet::new();
    let mut next = vec![program["id"].as_str().unwrap_or_default().to_owned()];
    while let Some(id) = next.pop() {
        if reached.insert(id.clone()) {
            next.extend(uses.get(&id).into_iter().flatten().cloned());
        }
    }
    let named = |id: &String| packages.get(id).map(reference).unwrap_or_default();
    let others = reached
        .iter()
        .filter(|id| Some(id.as_str()) != program["id"].as_str());
    let mut components: Vec<Value> = others
        .filter_map(|id| packages.get(id))
        .map(|package| component(package, "library", sums))
        .collect();
    components.sort_by_key(|one| one["bom-ref"].to_string());
    let mut dependencies: Vec<Value> = reached
        .iter()
        .map(|id| {
            let inner: BTreeSet<String> = uses.get(id).into_iter().flatten().map(named).collect();
            json!({"ref": named(id), "dependsOn": inner})
        })
        .collect();
    dependencies.sort_by_key(|one| one["ref"].to_string());
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(program, "application", sums)},
        "components": components,
        "dependencies": dependencies,
    }))
}

/// The package URL (github.com/package-url/purl-spec), which also identifies a component within the document.
fn reference(package: &Value) -> String {
    let text = |key: &str| package[key].as_str().unwrap_or_default();
    format!("pkg:cargo/{}@{}", text("name"), text("version"))
}

fn component(package: &Value, kind: &str, sums: &BTreeMap<(String, String), String>) -> Value {
    let mut component = json!({
        "type": kind,
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "purl": reference(package),
    });
    if let Some(license) = package["license"].as_str() {
        // An old way to write "or" in Cargo.toml.
        let expression = license.replace('/', " OR ");
        component["licenses"] = json!([{"expression": expression}]);
    }
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    if let Some(sum) = sums.get(&(text("name"), text("version"))) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_lists_what_is_in_the_program_and_not_what_only_builds_or_tests_it() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = root.parent().expect("xtask lies in the workspace's folder");
        let document = document(root).expect("a workspace");
        assert_eq!(document["metadata"]["component"]["name"], "linerate");
        let components = document["components"].as_array().expect("components");
        let found = |name: &str| components.iter().find(|one| one["name"] == name);
        for name in ["clap", "linerate-model", "rusqlite"] {
            assert!(found(name).is_some(), "no {name}");
        }
        for name in ["proptest", "boon", "cc", "xtask"] {
            assert!(found(name).is_none(), "{name}");
        }
        let clap = found("clap").expect("a component");
        assert_eq!(clap["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(
            clap["hashes"][0]["content"].as_str().map(str::len),
            Some(64)
        );
        for one in components {
            assert!(one["licenses"][0]["expression"].is_string(), "{one}");
        }
        // The same from any folder.
        let folder = root.to_str().expect("a path in UTF-8");
        assert!(!document.to_string().contains(folder));
    }
}
