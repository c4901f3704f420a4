//! `linerate map --format json`: the host with `null` for every fact that is not known, and each of
//! those facts under `gaps` with the place that was asked and why it did not answer.

use linerate_model::host::Host;
use serde_json::{Value, json};

use super::map_gaps::{Entry, gathered};

/// The schema name of what [`map_json`] makes.
pub const MAP_SCHEMA: &str = "linerate.map/1";

/// The host as `map --format json` prints it.
pub fn map_json(host: &Host) -> Value {
    let mut body = serde_json::to_value(host).unwrap_or(Value::Null);
    let mut gaps = Vec::new();
    // The host's own list of gaps belongs to the document, not to the machine.
    if let Some(Value::Array(own)) = body.as_object_mut().and_then(|host| host.remove("gaps")) {
        gaps.extend(
            own.iter()
                .filter_map(|gap| Entry::of(gap.as_object()?, None)),
        );
    }
    hoist(&mut body, "", &mut gaps);
    // A shaper whose rate was not read has none to print; of all other disciplines null says "none".
    gaps.extend(host.nics.iter().enumerate().filter_map(|(index, nic)| {
        let qdisc = nic.qdisc.value()?;
        if !qdisc.shapes() || qdisc.rate_bit_per_s.is_some() {
            return None;
        }
        let gap = serde_json::to_value(qdisc.rate_gap(&nic.name)).ok()?;
        let field = format!("/nics/{index}/qdisc/rate_bit_per_s");
        Entry::of(gap.as_object()?, Some(&field))
    }));
    let gaps: Vec<Value> = gathered(gaps).iter().map(Entry::to_json).collect();
    json!({"schema": MAP_SCHEMA, "host": body, "gaps": gaps})
}

/// Turns every gap within `value` into null and gives them as the entries of `gaps`, whose fields are JSON
/// pointers within `value`.
pub fn null_gaps(value: &mut Value) -> Vec<Value> {
    let mut gaps = Vec::new();
    hoist(value, "", &mut gaps);
    gathered(gaps).iter().map(Entry::to_json).collect()
}

/// Turns every gap below `value` into null and lists it; `field` is the JSON pointer (RFC 6901) of
/// `value` within the host.
fn hoist(value: &mut Value, field: &str, gaps: &mut Vec<Entry>) {
    if let Some(found) = value
        .as_object()
        .and_then(|object| Entry::of(object, Some(field)))
    {
        gaps.push(found);
        *value = Value::Null;
        return;
    }
    match value {
        Value::Object(object) => {
            for (key, inner) in object {
                let key = key.replace('~', "~0").replace('/', "~1");
                hoist(inner, &format!("{field}/{key}"), gaps);
            }
        }
        Value::Array(items) => {
            for (index, inner) in items.iter_mut().enumerate() {
                hoist(inner, &format!("{field}/{index}"), gaps);
            }
        }
        _ => {}
    }
}
