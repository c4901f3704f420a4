//! Of the page of an experiment: hits of a server, published figures compared with one's own, and the other hosts that are
//! levels.

use linerate_analysis::experiment::document::LabDocument;
use linerate_analysis::experiment::hits::hits_in_words;
use linerate_analysis::experiment::published::OTHER_HARDWARE;

use crate::html::{escape, section, table};

/// The table of published figures; nothing where the experiment has none.
pub(super) fn published(document: &LabDocument) -> String {
    if document.published.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = (document.published.iter())
        .map(|one| {
            let (yours, ratio) = one.yours_in_words();
            let words = [
                one.of_in_words(),
                one.what_in_words(),
                one.figure.clone(),
                yours,
                ratio,
                one.source.clone(),
            ];
            words.iter().map(|words| escape(words)).collect()
        })
        .collect();
    let head = ["of", "what", "published", "yours", "ratio", "source"];
    section(
        "published",
        "Published results",
        OTHER_HARDWARE,
        &table("Published figures and those of this run", &head, &rows),
    )
}

/// The hits of a server that is not linerate's own, over time; nothing for linerate's own.
pub(super) fn hits(document: &LabDocument) -> String {
    let Some(server) = &document.server else {
        return String::new();
    };
    let Some(first) = server.hits.first() else {
        return String::new();
    };
    let rows: Vec<Vec<String>> = (server.hits.iter())
        .map(|one| {
            let steps: Vec<String> = one.per_s.iter().map(|rate| hits_in_words(*rate)).collect();
            vec![
                escape(&one.levels.join(", ")),
                one.trials.to_string(),
                hits_in_words(one.mean_per_s),
                steps.join(" "),
            ]
        })
        .collect();
    let head = ["combination", "trials", "mean", "in each step"];
    let about = escape(&format!(
        "{}; {}.",
        server.in_words(),
        first.step_in_words()
    ));
    section(
        "hits",
        "Hits over time",
        &about,
        &table("Requests per second", &head, &rows),
    )
}

/// The table of other hosts; nothing where every level is of one peer.
pub(super) fn other_hosts(document: &LabDocument) -> String {
    if document.peers.is_empty() {
        return String::new();
    }
    let told = |known: &Option<String>| escape(known.as_deref().unwrap_or("?"));
    let rows: Vec<Vec<String>> = (document.peers.iter())
        .map(|one| {
            vec![
                escape(&one.peer),
                told(&one.host),
                told(&one.kernel),
                told(&one.cpu_model),
                escape(&format!("{} to {}", one.local_nic, one.remote_nic)),
            ]
        })
        .collect();
    let head = ["peer", "name", "kernel", "CPU", "path"];
    section(
        "other-hosts",
        "Other hosts",
        "Levels that use another peer; their trials are interleaved with the others in the same \
         blocks.",
        &table("Other hosts", &head, &rows),
    )
}
