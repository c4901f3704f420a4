//! Silence is not health: a rule that fires must not fall silent because a value that it used could not be read. Takes
//! every value away from the hosts, trials and counters of all rules' cases, one at a time.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::testing::World;
use super::{CASES, judge};
use crate::finding::{Outcome, Rule};
use crate::host::Host;
use crate::known::{Cause, Gap};
use crate::sample::Sample;
use crate::watch::Watch;

/// The places of the values of a type that may be unknown, as JSON pointers with `*` for the index of a list.
#[derive(Default)]
struct Places(BTreeMap<String, bool>);

impl Places {
    /// The places in `document` at which `T` accepts a gap, and does not have one.
    fn of<T: DeserializeOwned + Serialize>(&mut self, document: &Value) -> Vec<String> {
        let mut all = Vec::new();
        below(document, "", "", &mut all);
        all.retain(|(place, general)| {
            *self.0.entry(general.clone()).or_insert_with(|| {
                let without = withhold(document, &[place], Cause::Denied);
                let read = serde_json::from_value::<T>(without).ok();
                // A structure with defaults only would read a gap as itself, with nothing in it.
                let kept = read.and_then(|read| serde_json::to_value(read).ok());
                let at = kept.as_ref().and_then(|kept| kept.pointer(place));
                at.is_some_and(|at| at.get("unknown").is_some())
            })
        });
        all.into_iter().map(|(place, _)| place).collect()
    }
}

fn below(value: &Value, place: &str, general: &str, all: &mut Vec<(String, String)>) {
    let children: Vec<(String, &str, &Value)> = match value {
        Value::Object(fields) if fields.contains_key("unknown") => return,
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.replace('~', "~0").replace('/', "~1"), "", value))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(index, value)| (index.to_string(), "*", value))
            .collect(),
        _ => Vec::new(),
    };
    if !place.is_empty() {
        all.push((place.to_owned(), general.to_owned()));
    }
    for (key, any, value) in children {
        let general = format!("{general}/{}", if any.is_empty() { &key } else { any });
        below(value, &format!("{place}/{key}"), &general, all);
    }
}

/// `document` with gaps at `places`.
fn withhold(document: &Value, places: &[&String], cause: Cause) -> Value {
    let mut document = document.clone();
    for place in places {
        // A place below another one of the list is gone with it.
        if let Some(value) = document.pointer_mut(place) {
            let gap = Gap::new(cause, place.as_str(), "withheld");
            *value = serde_json::to_value(gap).expect("a gap is plain data");
        }
    }
    document
}

/// What a case is made of, as documents.
struct Parts {
    world: World,
    host: Value,
    other: Option<Value>,
    sample: Option<Value>,
}

/// One value: the part that has it, and its place there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Fact {
    Host(String),
    Other(String),
    Sample(String),
    Counter(String),
    Counters(String),
}

fn document(part: &impl Serialize) -> Value {
    serde_json::to_value(part).expect("plain data")
}

fn parse<T: DeserializeOwned>(document: Value) -> T {
    serde_json::from_value(document).expect("a document with a gap in a place that accepts one")
}

impl Parts {
    fn of(world: World) -> Self {
        Self {
            host: document(&world.host),
            other: world.other.as_ref().map(document),
            sample: world.sample.as_ref().map(document),
            world,
        }
    }

    fn facts(&self, hosts: &mut Places, samples: &mut Places) -> Vec<Fact> {
        let mut all: Vec<Fact> = hosts
            .of::<Host>(&self.host)
            .into_iter()
            .map(Fact::Host)
            .collect();
        if let Some(other) = &self.other {
            all.extend(hosts.of::<Host>(other).into_iter().map(Fact::Other));
        }
        if let Some(sample) = &self.sample {
            all.extend(samples.of::<Sample>(sample).into_iter().map(Fact::Sample));
        }
        if let Some(watch) = &self.world.watch {
            all.extend(watch.counters.keys().cloned().map(Fact::Counter));
            let groups: BTreeSet<String> = watch
                .counters
                .keys()
                .filter_map(|key| Some(key.rsplit_once('/')?.0.to_owned()))
                .collect();
            all.extend(groups.into_iter().map(Fact::Counters));
        }
        all
    }

    fn without(&self, facts: &[Fact], cause: Cause) -> World {
        let mut world = self.world.clone();
        let of = |pick: fn(&Fact) -> Option<&String>| -> Vec<&String> {
            facts.iter().filter_map(pick).collect()
        };
        let host = of(|fact| match fact {
            Fact::Host(place) => Some(place),
            _ => None,
        });
        let other = of(|fact| match fact {
            Fact::Other(place) => Some(place),
            _ => None,
        });
        let sample = of(|fact| match fact {
            Fact::Sample(place) => Some(place),
            _ => None,
        });
        if !host.is_empty() {
            world.host = parse(withhold(&self.host, &host, cause));
        }
        if let Some(document) = self.other.as_ref().filter(|_| !other.is_empty()) {
            world.other = Some(parse(withhold(document, &other, cause)));
        }
        if let Some(document) = self.sample.as_ref().filter(|_| !sample.is_empty()) {
            world.sample = Some(parse(withhold(document, &sample, cause)));
        }
        if let Some(watch) = &mut world.watch {
            for fact in facts {
                uncount(watch, fact, cause);
            }
        }
        world
    }
}

fn uncount(watch: &mut Watch, fact: &Fact, cause: Cause) {
    let (prefix, below) = match fact {
        Fact::Counter(key) => (key, key.clone()),
        Fact::Counters(group) => (group, format!("{group}/")),
        _ => return,
    };
    watch.counters.retain(|key, _| !key.starts_with(&below));
    let gap = Gap::new(cause, prefix.as_str(), "withheld");
    watch.gaps.insert(prefix.clone(), gap);
}

fn findings(outcomes: &[Outcome]) -> usize {
    let is_finding = |outcome: &&Outcome| matches!(outcome, Outcome::Finding(_));
    outcomes.iter().filter(is_finding).count()
}

/// Those of `facts` that change the outcome of `rule`: halves of the list, until one fact is left.
fn used(
    rule: &Rule,
    parts: &Parts,
    whole: &[Outcome],
    facts: &[Fact],
    cause: Cause,
) -> Vec<(Fact, Vec<Outcome>)> {
    if facts.is_empty() {
        return Vec::new();
    }
    let world = parts.without(facts, cause);
    let said = judge(rule, &world.context());
    if said == whole {
        return Vec::new();
    }
    if let [fact] = facts {
        return vec![(fact.clone(), said)];
    }
    let (one, other) = facts.split_at(facts.len() / 2);
    let mut all = used(rule, parts, whole, one, cause);
    all.extend(used(rule, parts, whole, other, cause));
    all
}

fn silenced(cause: Cause) -> BTreeSet<String> {
    let (mut hosts, mut samples) = (Places::default(), Places::default());
    let mut silent = BTreeSet::new();
    for (rule, cases) in CASES {
        for (what, world) in cases.fires {
            let parts = Parts::of(world());
            let whole = judge(rule, &parts.world.context());
            let facts = parts.facts(&mut hosts, &mut samples);
            for (fact, said) in used(rule, &parts, &whole, &facts, cause) {
                let lost = findings(&said) < findings(&whole);
                if lost && said.len() == findings(&said) {
                    silent.insert(format!("{} ({what}): {fact:?}", rule.id));
                }
            }
        }
    }
    silent
}

#[test]
fn a_rule_that_fires_is_never_silent_without_a_value_that_it_used() {
    let silent = silenced(Cause::Denied);
    assert!(silent.is_empty(), "{} {silent:#?}", silent.len());
}
