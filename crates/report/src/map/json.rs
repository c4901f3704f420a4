//! `linerate map --format json`: the host with `null` for every fact that is not known, and each of
//! those facts under `gaps` with the source that was read and why it failed. An inapplicable fact is not a
//! gap: its path is under `inapplicable`.

use std::cell::RefCell;

use linerate_model::host::Host;
use linerate_model::known::{Cause, Gap};
use serde::ser::{Serialize, SerializeStruct, Serializer};
use serde_json::Value;

use super::gaps::{Entry, gathered};
use crate::gaps::{Noted, Notes, Noting};

/// The schema name of a [`MapDocument`].
pub const MAP_SCHEMA: &str = "linerate.map/1";

/// The host as `map --format json` prints it. The gaps are found while the host is written.
#[derive(Debug)]
pub struct MapDocument<'a> {
    /// The host.
    pub host: &'a Host,
    /// What was measured of its memory, when it was requested.
    pub memory: Option<Value>,
    /// What happened while it was watched, when it was.
    pub watch: Option<Value>,
}

impl Serialize for MapDocument<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let notes = RefCell::new(Notes {
            // The host's own list of gaps belongs to the document, not to the machine.
            found: self.host.gaps.iter().map(|gap| noted(gap, None)).collect(),
            leave_out: Some("gaps"),
            ..Notes::default()
        });
        let mut document = serializer.serialize_struct("MapDocument", 6)?;
        document.serialize_field("schema", MAP_SCHEMA)?;
        let host = Noting {
            value: self.host,
            notes: &notes,
        };
        document.serialize_field("host", &host)?;
        let found = notes.into_inner().found.into_iter();
        let (cannot_be, mut gaps): (Vec<_>, Vec<_>) =
            found.partition(|noted| noted.cause == Cause::Inapplicable);
        gaps.extend(shapers_without_rate(self.host));
        document.serialize_field("gaps", &listed(gaps))?;
        let places: Vec<String> = cannot_be.into_iter().filter_map(|one| one.field).collect();
        document.serialize_field("inapplicable", &places)?;
        for (key, part) in [("memory", &self.memory), ("watch", &self.watch)] {
            match part {
                Some(part) => document.serialize_field(key, part)?,
                None => document.skip_field(key)?,
            }
        }
        document.end()
    }
}

/// One entry for one reason.
fn listed(gaps: Vec<Noted>) -> Vec<Value> {
    let entries = gaps.into_iter().map(Entry::from).collect();
    gathered(entries).iter().map(Entry::to_json).collect()
}

/// A value with null for every gap, and those gaps as the entries of a list, whose fields are JSON pointers
/// within the value.
pub(super) fn null_gaps<T: Serialize + ?Sized>(value: &T) -> (Value, Vec<Value>) {
    let notes = RefCell::new(Notes::default());
    let noting = Noting {
        value,
        notes: &notes,
    };
    let nulled = serde_json::to_value(noting).unwrap_or(Value::Null);
    (nulled, listed(notes.into_inner().found))
}

/// A shaper whose rate was not read has none to print; for all other qdiscs null means "none".
fn shapers_without_rate(host: &Host) -> impl Iterator<Item = Noted> + '_ {
    host.nics.iter().enumerate().filter_map(|(index, nic)| {
        let qdisc = nic.qdisc.value()?;
        if !qdisc.shapes() || qdisc.rate_bit_per_s.is_some() {
            return None;
        }
        let field = format!("/nics/{index}/qdisc/rate_bit_per_s");
        Some(noted(&qdisc.rate_gap(&nic.name), Some(field)))
    })
}

fn noted(gap: &Gap, field: Option<String>) -> Noted {
    Noted {
        path: gap.path.clone(),
        reason: gap.reason.clone(),
        cause: gap.cause,
        field,
    }
}

/// A [`MapDocument`] of `host` as a value.
pub fn map_json(host: &Host) -> Value {
    let document = MapDocument {
        host,
        memory: None,
        watch: None,
    };
    serde_json::to_value(document).unwrap_or(Value::Null)
}
