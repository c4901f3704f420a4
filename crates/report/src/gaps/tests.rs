//! Gaps that are noted while a value is written.

use std::collections::BTreeMap;

use linerate_model::known::Known;
use serde_json::json;

use super::*;

#[derive(Serialize)]
enum Form {
    One(Known<u32>),
    Two(u8, Known<u32>),
    Named { fact: Option<Known<u32>> },
}

#[derive(Serialize)]
struct Whole {
    facts: BTreeMap<String, Known<u32>>,
    forms: Vec<Form>,
    own: Vec<Known<u32>>,
}

fn whole() -> Whole {
    let gap = |cause| Known::unknown(cause, "/p", "r");
    let facts = [("a/b~", gap(Cause::Denied)), ("c", Known::Value(1))];
    Whole {
        facts: facts.map(|(key, fact)| (key.to_owned(), fact)).into(),
        forms: vec![
            Form::One(gap(Cause::Absent)),
            Form::Two(2, gap(Cause::Denied)),
            Form::Named {
                fact: Some(gap(Cause::Absent)),
            },
        ],
        own: vec![gap(Cause::Denied)],
    }
}

#[test]
fn every_gap_is_null_and_noted_with_its_place() {
    let notes = RefCell::new(Notes {
        leave_out: Some("own"),
        ..Notes::default()
    });
    let value = &whole();
    let json = serde_json::to_value(Noting {
        value,
        notes: &notes,
    });
    assert_eq!(
        json.expect("plain data"),
        json!({
            "facts": {"a/b~": null, "c": 1},
            "forms": [{"One": null}, {"Two": [2, null]}, {"Named": {"fact": null}}],
        })
    );
    let found = notes.into_inner().found;
    let fields: Vec<_> = found
        .iter()
        .filter_map(|gap| gap.field.as_deref())
        .collect();
    assert_eq!(
        fields,
        [
            "/facts/a~1b~0",
            "/forms/0/One",
            "/forms/1/Two/1",
            "/forms/2/Named/fact"
        ]
    );
    assert_eq!(
        (found[0].path.as_str(), found[0].reason.as_str()),
        ("/p", "r")
    );
}

#[test]
fn gaps_of_one_cause_are_found_alone() {
    let found = gaps_of(&whole(), Cause::Denied);
    let fields: Vec<_> = found
        .iter()
        .filter_map(|gap| gap.field.as_deref())
        .collect();
    assert_eq!(fields, ["/facts/a~1b~0", "/forms/1/Two/1", "/own/0"]);
}

#[test]
fn what_only_looks_like_a_gap_stays() {
    let texts = BTreeMap::from([("unknown", "denied"), ("path", "p"), ("reason", "r")]);
    assert_eq!(nulled(&texts), json!(texts));
}
