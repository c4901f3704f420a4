//! What `explain` knows of experiments, and of words that users have for settings: `turbo`, `coalesce`, `netfilter`.

use std::fmt::Write;

use linerate_model::lab::Factor;
use linerate_model::setting::catalogue;

use super::settings_page;
use crate::lab::definition::{SHIPPED, read};

/// The pages of the experiments.
const PAGES: [(&str, &str); 10] = [
    (
        "blk-mq",
        include_str!("../../../../docs/book/experiments/blk-mq.md"),
    ),
    (
        "numa-near-far",
        include_str!("../../../../docs/book/experiments/numa-near-far.md"),
    ),
    (
        "vxlan-cost",
        include_str!("../../../../docs/book/experiments/vxlan-cost.md"),
    ),
    (
        "ipoib-mode",
        include_str!("../../../../docs/book/experiments/ipoib-mode.md"),
    ),
    (
        "tcp-vs-rdma",
        include_str!("../../../../docs/book/experiments/tcp-vs-rdma.md"),
    ),
    (
        "stack-parameters",
        include_str!("../../../../docs/book/experiments/stack-parameters.md"),
    ),
    (
        "fabric-pingpong",
        include_str!("../../../../docs/book/experiments/fabric-pingpong.md"),
    ),
    (
        "fabric-table",
        include_str!("../../../../docs/book/experiments/fabric-table.md"),
    ),
    (
        "fabric-steps",
        include_str!("../../../../docs/book/experiments/fabric-steps.md"),
    ),
    (
        "memory-policy-rfs",
        include_str!("../../../../docs/book/experiments/memory-policy-rfs.md"),
    ),
];

/// Words for settings that are not in their names.
const SYNONYMS: [(&str, &str); 12] = [
    ("boost", "turbo"),
    ("hyperthreading", "smt"),
    ("hyper-threading", "smt"),
    ("c-states", "resume-latency-us"),
    ("cstates", "resume-latency-us"),
    ("conntrack", "track-connections"),
    ("connection tracking", "track-connections"),
    ("interrupt delay", "coalesce"),
    ("coalescing", "coalesce"),
    ("queues", "channels"),
    ("jumbo", "mtu"),
    ("frequency", "governor"),
];

/// The page of an experiment that comes with linerate.
pub(crate) fn experiment(name: &str) -> Option<String> {
    let (_, page) = PAGES.iter().find(|(of, _)| *of == name)?;
    Some((*page).to_owned())
}

/// The settings that a word names, and the experiments that have a factor of this name; `factors` lists all factors.
pub(crate) fn word(topic: &str) -> Option<String> {
    let topic = topic.to_lowercase();
    let factors = factors(&topic);
    if topic == "factors" {
        return Some(factors);
    }
    let synonym = SYNONYMS.iter().find(|(word, _)| *word == topic);
    let noun = synonym.map_or(topic.as_str(), |(_, noun)| *noun);
    let settings: Vec<_> = catalogue()
        .filter(|spec| spec.pattern.split('/').any(|part| part == noun))
        .collect();
    if let ([spec], true) = (settings.as_slice(), factors.is_empty()) {
        return settings_page::one(spec.pattern);
    }
    if settings.is_empty() && factors.is_empty() {
        return None;
    }
    let mut text = format!("# {topic}\n\n");
    for spec in &settings {
        // Writing into a String does not fail.
        let _ = writeln!(text, "setting     {}: {}", spec.pattern, spec.about);
    }
    text.push_str(&factors);
    Some(text)
}

/// The factors of this name, of all experiments; all with `factors`.
fn factors(name: &str) -> String {
    let mut text = String::new();
    for (of, _) in SHIPPED {
        let Ok(definition) = read(of) else {
            continue;
        };
        let factors = definition.experiment.factors.iter();
        let named = |factor: &&Factor| name == "factors" || factor.name().to_lowercase() == name;
        for factor in factors.filter(named) {
            let levels = factor.level_names().join(", ");
            let _ = writeln!(
                text,
                "factor      {} of `lab run {of}`: {levels}",
                factor.name()
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_has_a_page() {
        for (name, _) in SHIPPED {
            let page = experiment(name).unwrap_or_else(|| panic!("{name} has none"));
            assert!(page.starts_with(&format!("# {name}")), "{page}");
        }
    }

    #[test]
    fn every_synonym_and_common_word_names_a_setting() {
        let words = SYNONYMS.iter().map(|(word, _)| *word);
        for topic in words.chain(["turbo", "SMT", "netfilter", "coalesce", "channels"]) {
            let text = word(topic).unwrap_or_else(|| panic!("nothing for {topic}"));
            assert!(
                text.contains("setting ") || text.contains("value "),
                "{topic}: {text}"
            );
        }
        assert!(word("turbo").is_some_and(|text| text.contains("lab run stack-parameters")));
        assert!(word("factors").is_some_and(|text| text.lines().count() > 20));
        assert_eq!(word("nothing-of-the-kind"), None);
    }
}
