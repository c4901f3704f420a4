//! The name of a limit as a label: a document has its words.

use linerate_model::limit::LimitKind;
use serde_json::Value;

/// The id of a limit by its words, such as `sender-cpu`.
fn id_of(words: &str) -> Option<String> {
    let kind = LimitKind::ALL
        .into_iter()
        .find(|kind| kind.to_string() == words)?;
    let id = serde_json::to_value(kind).ok()?;
    id.as_str().map(str::to_owned)
}

/// The labels of a limit of a document: its id and how certain it is.
pub(super) fn limit_labels(limit: &Value) -> Option<(String, String)> {
    let id = id_of(limit["what"].as_str()?)?;
    Some((id, limit["status"].as_str()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_is_found_by_its_words_and_no_other_text_is_a_label() {
        for kind in LimitKind::ALL {
            let id = serde_json::to_value(kind).expect("a word");
            assert_eq!(id_of(&kind.to_string()).as_deref(), id.as_str());
        }
        assert_eq!(id_of("the moon"), None);
    }
}
