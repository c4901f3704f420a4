//! Comparison of large documents: a failure prints what differs, not both of them.

use std::fmt::Display;

use serde::Serialize;
use serde_json::Value;

/// Differences that are printed.
const SHOWN: usize = 20;
/// Characters of a value that are printed.
const CHARACTERS: usize = 200;

/// Panics unless the two are equal, and prints the paths and values that differ.
#[track_caller]
pub fn assert_same<T: Serialize + PartialEq>(what: impl Display, found: &T, expected: &T) {
    if found == expected {
        return;
    }
    let mut lines = Vec::new();
    differences("", &value(found), &value(expected), &mut lines);
    let omitted = lines.len().saturating_sub(SHOWN);
    lines.truncate(SHOWN);
    if lines.is_empty() {
        lines.push("the same as JSON: a field that is not serialized differs".to_owned());
    }
    if omitted > 0 {
        lines.push(format!("and {omitted} more"));
    }
    panic!("{what}: found and expected differ:\n{}", lines.join("\n"));
}

#[track_caller]
fn value<T: Serialize>(document: &T) -> Value {
    serde_json::to_value(document).expect("test data is serializable")
}

fn differences(path: &str, found: &Value, expected: &Value, lines: &mut Vec<String>) {
    match (found, expected) {
        (Value::Object(left), Value::Object(right)) => {
            let added = right.keys().filter(|key| !left.contains_key(*key));
            for key in left.keys().chain(added) {
                let of = |object: &serde_json::Map<String, Value>| {
                    object.get(key).cloned().unwrap_or_default()
                };
                differences(&format!("{path}/{key}"), &of(left), &of(right), lines);
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                differences(&format!("{path}/{index}"), left, right, lines);
            }
        }
        (left, right) if left != right => {
            let short = |value: &Value| value.to_string().chars().take(CHARACTERS).collect();
            let (left, right): (String, String) = (short(left), short(right));
            lines.push(format!("{path}: {left}, expected {right}"));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;
    use crate::build;
    use crate::ids::CpuId;

    #[test]
    fn only_what_differs_is_printed() {
        let expected = build::host().nodes(4, 16).build();
        let mut found = expected.clone();
        found.cpus[3].id = CpuId(99);
        let panicked =
            catch_unwind(|| assert_same("a host", &found, &expected)).expect_err("they differ");
        let text = panicked.downcast_ref::<String>().expect("a message");
        assert_eq!(
            text,
            "a host: found and expected differ:\n/cpus/3/id: 99, expected 3"
        );
        assert_same("a host", &expected, &expected.clone());
    }
}
