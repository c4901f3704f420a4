//! Checks what linerate is built from against `deny.toml`: licenses, banned crates and sources. It reads the known
//! keys of cargo-deny's file and rejects others, uses only `cargo metadata`, and so runs without a network, on every
//! machine that can build linerate. cargo-deny itself, which checks more (license texts, advisories), takes minutes
//! to build and was skipped where it was not available; it is used by `make advisories`.
//!
//! A license is the SPDX expression in the package's `Cargo.toml` (SPDX 2.3, annex D).

use std::collections::BTreeSet;

use serde_json::Value;

/// The part of `deny.toml` that is checked here.
#[derive(Debug)]
pub(crate) struct Policy {
    allowed: BTreeSet<String>,
    /// Name, and the crates that may still depend on it.
    banned: Vec<(String, Vec<String>)>,
    registries: Vec<String>,
    /// The targets that linerate is built for.
    pub(crate) targets: Vec<String>,
}

fn texts(value: Option<&toml::Value>) -> Vec<String> {
    let list = value.and_then(toml::Value::as_array).into_iter().flatten();
    list.filter_map(|one| one.as_str().map(str::to_owned))
        .collect()
}

impl Policy {
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let table: toml::Table = text
            .parse()
            .map_err(|error| format!("deny.toml: {error}"))?;
        let at = |section: &str, key: &str| table.get(section).and_then(|section| section.get(key));
        // Settings that are always forbidden here must not be allowed there.
        for (section, key, wanted) in [
            ("bans", "wildcards", "deny"),
            ("sources", "unknown-registry", "deny"),
            ("sources", "unknown-git", "deny"),
        ] {
            if at(section, key).and_then(toml::Value::as_str) != Some(wanted) {
                return Err(format!("deny.toml: [{section}] {key} must be \"{wanted}\""));
            }
        }
        let known: [(&str, &[&str]); 3] = [
            (
                "licenses",
                &[
                    "version",
                    "confidence-threshold",
                    "allow",
                    "unused-allowed-license",
                ],
            ),
            (
                "bans",
                &[
                    "multiple-versions",
                    "wildcards",
                    "allow-wildcard-paths",
                    "deny",
                ],
            ),
            (
                "sources",
                &["unknown-registry", "unknown-git", "allow-registry"],
            ),
        ];
        for (section, keys) in known {
            let found = table.get(section).and_then(toml::Value::as_table);
            if let Some(key) = found
                .into_iter()
                .flat_map(toml::Table::keys)
                .find(|key| !keys.contains(&key.as_str()))
            {
                return Err(format!(
                    "deny.toml: [{section}] {key} is not known to xtask"
                ));
            }
        }
        let banned = at("bans", "deny").and_then(toml::Value::as_array);
        let banned = banned.into_iter().flatten().map(|one| {
            let name = one.get("name").and_then(toml::Value::as_str);
            let name = name.ok_or("deny.toml: [bans] deny has an entry without a name")?;
            Ok((name.to_owned(), texts(one.get("wrappers"))))
        });
        Ok(Self {
            allowed: texts(at("licenses", "allow")).into_iter().collect(),
            banned: banned.collect::<Result<_, String>>()?,
            registries: texts(at("sources", "allow-registry")),
            targets: texts(at("graph", "targets")),
        })
    }

    /// Every violation of the policy in the output of `cargo metadata`, one per line.
    pub(crate) fn breaches(&self, metadata: &Value) -> Vec<String> {
        let packages = metadata["packages"].as_array();
        let mut all = Vec::new();
        for package in packages.into_iter().flatten() {
            let (name, version) = (text(package, "name"), text(package, "version"));
            let mut breach = |what: String| all.push(format!("{name} {version}: {what}"));
            match package["license"].as_str() {
                None => breach("it names no licence".to_owned()),
                Some(license) => match allows(&self.allowed, license) {
                    Ok(true) => {}
                    Ok(false) => breach(format!("its licence `{license}` is not allowed")),
                    Err(why) => breach(format!("its licence `{license}` cannot be read: {why}")),
                },
            }
            match package["source"].as_str() {
                // A path dependency outside of this workspace is not an allowed source.
                None if is_within(metadata, package) => {}
                None => breach("it comes from a path outside of the workspace".to_owned()),
                Some(source) => {
                    let registry = source.strip_prefix("registry+");
                    if !registry.is_some_and(|one| self.registries.iter().any(|known| known == one))
                    {
                        breach(format!("its source `{source}` is not allowed"));
                    }
                }
            }
            for dependency in package["dependencies"].as_array().into_iter().flatten() {
                let on = text(dependency, "name");
                if package["source"].is_null()
                    && text(dependency, "req") == "*"
                    && dependency["path"].is_null()
                {
                    breach(format!("it takes any version of {on}"));
                }
            }
        }
        all.extend(self.banned_in(metadata));
        all
    }

    /// Banned crates in the graph, except those with only permitted dependents.
    fn banned_in(&self, metadata: &Value) -> Vec<String> {
        let packages = || metadata["packages"].as_array().into_iter().flatten();
        let name_of = |id: &Value| {
            let package = packages().find(|package| package["id"] == *id);
            package.map_or("", |package| text(package, "name"))
        };
        let nodes = || {
            metadata["resolve"]["nodes"]
                .as_array()
                .into_iter()
                .flatten()
        };
        let mut all = Vec::new();
        for (banned, wrappers) in &self.banned {
            for node in nodes().filter(|node| name_of(&node["id"]) == banned) {
                let users = nodes().filter(|user| {
                    let mut on = user["dependencies"].as_array().into_iter().flatten();
                    on.any(|id| *id == node["id"])
                });
                let users: Vec<&str> = users.map(|user| name_of(&user["id"])).collect();
                if wrappers.is_empty()
                    || users
                        .iter()
                        .any(|user| !wrappers.iter().any(|one| one == user))
                {
                    all.push(format!(
                        "{banned} is banned, and {} depends on it",
                        users.join(", ")
                    ));
                }
            }
        }
        all
    }
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

fn is_within(metadata: &Value, package: &Value) -> bool {
    let root = std::path::Path::new(text(metadata, "workspace_root"));
    std::path::Path::new(text(package, "manifest_path")).starts_with(root)
}

/// Whether a license expression can be satisfied with allowed licenses only.
fn allows(allowed: &BTreeSet<String>, expression: &str) -> Result<bool, String> {
    // Before SPDX, Cargo wrote `MIT/Apache-2.0`.
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let mut words: Vec<&str> = spaced.split_ascii_whitespace().rev().collect();
    let granted = any(allowed, &mut words)?;
    match words.pop() {
        None => Ok(granted),
        Some(word) => Err(format!("`{word}` was not expected")),
    }
}

/// Words are taken from the end of `words`. OR binds least, then AND, then WITH.
fn any(allowed: &BTreeSet<String>, words: &mut Vec<&str>) -> Result<bool, String> {
    let mut granted = all(allowed, words)?;
    while words.pop_if(|word| *word == "OR").is_some() {
        granted |= all(allowed, words)?;
    }
    Ok(granted)
}

fn all(allowed: &BTreeSet<String>, words: &mut Vec<&str>) -> Result<bool, String> {
    let mut granted = one(allowed, words)?;
    while words.pop_if(|word| *word == "AND").is_some() {
        granted &= one(allowed, words)?;
    }
    Ok(granted)
}

fn one(allowed: &BTreeSet<String>, words: &mut Vec<&str>) -> Result<bool, String> {
    let license = match words.pop() {
        Some("(") => {
            let granted = any(allowed, words)?;
            return match words.pop() {
                Some(")") => Ok(granted),
                _ => Err("a parenthesis is not closed".to_owned()),
            };
        }
        Some(word) if !["OR", "AND", "WITH", ")"].contains(&word) => word,
        _ => return Err("a licence is missing".to_owned()),
    };
    if words.pop_if(|word| *word == "WITH").is_none() {
        return Ok(allowed.contains(license));
    }
    let exception = words.pop().ok_or("an exception is missing")?;
    Ok(allowed.contains(&format!("{license} WITH {exception}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

    fn policy() -> Policy {
        let text = include_str!("../../deny.toml");
        Policy::read(text).expect("the file of this repository")
    }

    /// A workspace of one crate with one dependency.
    fn built_from(name: &str, license: &Value, source: &str) -> Value {
        json!({
            "workspace_root": "/w",
            "packages": [
                {"name": "own", "version": "1.0.0", "id": "own", "license": "MIT", "source": null,
                 "manifest_path": "/w/own/Cargo.toml", "dependencies": [{"name": name, "req": "^1"}]},
                {"name": name, "version": "2.0.0", "id": "other", "license": license, "source": source,
                 "manifest_path": "/r/Cargo.toml", "dependencies": []},
            ],
            "resolve": {"nodes": [
                {"id": "own", "dependencies": ["other"]},
                {"id": "other", "dependencies": []},
            ]},
        })
    }

    #[test]
    fn a_crate_that_keeps_to_the_policy_passes() {
        let metadata = built_from("serde", &json!("GPL-3.0-only OR MIT/Apache-2.0"), REGISTRY);
        assert_eq!(policy().breaches(&metadata), Vec::<String>::new());
    }

    #[test]
    fn a_licence_that_is_not_allowed_or_not_named_fails() {
        for license in [
            json!("GPL-3.0-only"),
            json!("MIT AND GPL-3.0-only"),
            json!(null),
            json!("(MIT"),
        ] {
            let breaches = policy().breaches(&built_from("other", &license, REGISTRY));
            assert!(
                breaches.len() == 1 && breaches[0].starts_with("other 2.0.0: it"),
                "{breaches:?}"
            );
        }
    }

    #[test]
    fn a_banned_crate_fails_unless_only_its_wrapper_depends_on_it() {
        let breaches = policy().breaches(&built_from("openssl", &json!("MIT"), REGISTRY));
        assert_eq!(breaches, ["openssl is banned, and own depends on it"]);
        let mut metadata = built_from("chrono", &json!("MIT"), REGISTRY);
        assert_eq!(policy().breaches(&metadata).len(), 1);
        metadata["packages"][0]["name"] = json!("parquet");
        assert_eq!(policy().breaches(&metadata), Vec::<String>::new());
    }

    #[test]
    fn a_foreign_registry_a_git_repository_and_a_path_outside_fail() {
        for source in [
            "registry+https://example.org/index",
            "git+https://example.org/x#1",
        ] {
            let breaches = policy().breaches(&built_from("other", &json!("MIT"), source));
            let expected = format!("other 2.0.0: its source `{source}` is not allowed");
            assert_eq!(breaches, [expected]);
        }
        let mut metadata = built_from("other", &json!("MIT"), REGISTRY);
        metadata["packages"][1]["source"] = json!(null);
        let expected = "other 2.0.0: it comes from a path outside of the workspace";
        assert_eq!(policy().breaches(&metadata), [expected]);
    }

    #[test]
    fn a_dependency_on_any_version_fails() {
        let mut metadata = built_from("serde", &json!("MIT"), REGISTRY);
        metadata["packages"][0]["dependencies"][0]["req"] = json!("*");
        assert_eq!(
            policy().breaches(&metadata),
            ["own 1.0.0: it takes any version of serde"]
        );
    }

    #[test]
    fn a_key_of_the_policy_that_is_not_held_here_is_refused() {
        let text = include_str!("../../deny.toml");
        for (from, to) in [
            ("[bans]", "[bans]\nskip = []"),
            ("unknown-git = \"deny\"", "unknown-git = \"allow\""),
        ] {
            assert!(Policy::read(&text.replace(from, to)).is_err(), "{to}");
        }
    }

    #[test]
    fn expressions_are_read_by_the_precedence_of_spdx() {
        let allowed = ["A", "B", "A WITH E"].map(str::to_owned).into();
        for (expression, granted) in [
            ("A", true),
            ("C", false),
            ("C OR A", true),
            ("C AND A OR B", true),
            ("C AND (A OR B)", false),
            ("A WITH E", true),
            ("B WITH E", false),
            ("C/B", true),
        ] {
            assert_eq!(allows(&allowed, expression), Ok(granted), "{expression}");
        }
        for wrong in ["", "A B", "A OR", "(A", "A)", "A WITH"] {
            assert!(allows(&allowed, wrong).is_err(), "{wrong}");
        }
    }
}
