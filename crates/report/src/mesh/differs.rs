//! How a named host differs from most others: the facts of `map --diff`, and the findings of `doctor`.

use std::collections::{BTreeMap, BTreeSet};

use linerate_analysis::mesh::{Difference, FindingOfHost, MeshDocument};
use linerate_model::finding::Finding;
use linerate_model::host::Host;
use serde_json::Value;

use crate::flat::{facts, is_reading};

/// What is known of a host of a mesh.
#[derive(Debug)]
pub struct HostFacts<'a> {
    /// Its name in the mesh.
    pub name: &'a str,
    /// The host.
    pub host: &'a Host,
    /// Its findings.
    pub findings: &'a [Finding],
}

/// A fact that differs is shown if at least this share of the others agree.
const MAJORITY: f64 = 0.5;
/// What names a host, or is its own on each.
const OWN: &[&str] = &[
    "identity/hostname",
    "identity/boot_id",
    "identity/machine_id",
];
/// The last words of facts that are each host's own.
const OWN_WORDS: &[&str] = &[
    "mac",
    "address",
    "addresses",
    "permanent_address",
    "serial",
    "guid",
    "gids",
    "index",
    "ifindex",
    "peer_ifindex",
    // The bytes of a qdisc that are also there in words.
    "options",
];

/// Adds to each name what differs about its host. Hosts of which nothing is known are neither compared nor counted.
pub fn add_differences(document: &mut MeshDocument, hosts: &[HostFacts<'_>]) {
    if document.named.is_empty() || hosts.len() < 3 {
        return;
    }
    let maps: Vec<(&str, BTreeMap<String, Value>)> = hosts
        .iter()
        .map(|one| (one.name, comparable(one.host)))
        .collect();
    let named: BTreeSet<String> = document
        .named
        .iter()
        .filter_map(|one| one.host.clone())
        .collect();
    for name in named {
        let Some((_, own)) = maps.iter().find(|(known, _)| **known == *name) else {
            continue;
        };
        let others: Vec<&BTreeMap<String, Value>> = maps
            .iter()
            .filter(|(known, _)| **known != *name)
            .map(|(_, map)| map)
            .collect();
        let differs = differences(own, &others);
        let findings = findings_alone(&name, hosts);
        for one in &mut document.named {
            if one.host.as_ref() == Some(&name) {
                one.differs.clone_from(&differs);
                one.findings.clone_from(&findings);
            }
        }
    }
}

/// The facts of a host that may be compared: those that are known, and the same on equal hosts.
fn comparable(host: &Host) -> BTreeMap<String, Value> {
    let is_own = |key: &str| {
        let last = key.rsplit('/').next().unwrap_or(key);
        OWN.contains(&key) || OWN_WORDS.contains(&last)
    };
    facts(host)
        .into_iter()
        .filter(|(key, _)| !is_reading(key) && !is_own(key))
        .filter_map(|(key, fact)| Some((key, fact.value.ok()?)))
        .collect()
}

fn differences(
    own: &BTreeMap<String, Value>,
    others: &[&BTreeMap<String, Value>],
) -> Vec<Difference> {
    let keys = others.iter().flat_map(|map| map.keys()).chain(own.keys());
    let keys: BTreeSet<&String> = keys.collect();
    let difference = |key: &String| {
        let mut counts: Vec<(Option<&Value>, usize)> = Vec::new();
        for other in others {
            let value = other.get(key);
            match counts.iter_mut().find(|(known, _)| *known == value) {
                Some((_, count)) => *count += 1,
                None => counts.push((value, 1)),
            }
        }
        let (most, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        #[expect(clippy::cast_precision_loss, reason = "at most 4,096 hosts")]
        let is_majority = count as f64 > MAJORITY * others.len() as f64;
        let value = own.get(key);
        (is_majority && value != most).then(|| Difference {
            key: key.clone(),
            value: value.cloned(),
            most: most.cloned(),
            hosts: count,
        })
    };
    keys.into_iter().filter_map(difference).collect()
}

/// The findings of a host that less than half of the others have.
fn findings_alone(name: &str, hosts: &[HostFacts<'_>]) -> Vec<FindingOfHost> {
    let Some(own) = hosts.iter().find(|one| one.name == name) else {
        return Vec::new();
    };
    let others = || hosts.iter().filter(|one| one.name != name);
    let found = own.findings.iter().map(|finding| {
        let has = |one: &&HostFacts<'_>| {
            let mut theirs = one.findings.iter();
            theirs.any(|other| other.rule == finding.rule)
        };
        FindingOfHost {
            rule: finding.rule.clone(),
            subject: finding.subject.clone(),
            summary: finding.summary.clone(),
            hosts: others().filter(has).count(),
        }
    });
    found
        .filter(|finding| finding.hosts * 2 < others().count())
        .collect()
}
