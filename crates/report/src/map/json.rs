//! `linerate map --format json`: the host with `null` for every fact that is not known, and each of
//! those facts under `gaps` with the source that was read and why it failed. An inapplicable fact is not a
//! gap: its path is under `inapplicable`.

use std::cell::RefCell;

use linerate_model::host::Host;
use linerate_model::ids::NodeId;
use linerate_model::known::{Cause, Gap};
use linerate_model::units::BitRate;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::gaps::{Entry, MapGap, gathered};
use super::watch::WatchDocument;
use crate::gaps::{Noted, Notes, Noting};

/// The schema name of a [`MapDocument`].
pub const MAP_SCHEMA: &str = "linerate.map/1";

/// The host as `map --format json` prints it. The gaps are found while the host is written.
#[derive(Debug)]
pub struct MapDocument<'a> {
    /// The host.
    pub host: &'a Host,
    /// What was measured of its memory, when it was requested.
    pub memory: Option<MemoryCells>,
    /// What happened while it was watched, when it was.
    pub watch: Option<WatchDocument>,
}

/// What `linerate map --format json` prints. A missing value is null and has a gap.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "MapDocument"))]
struct Written<'a> {
    schema: &'static str,
    #[cfg_attr(feature = "schema", schemars(with = "Host"))]
    host: Noting<'a, Host>,
    #[cfg_attr(feature = "schema", schemars(with = "Vec<MapGap>"))]
    gaps: Later<'a, Vec<MapGap>>,
    /// The nulls of values that cannot exist: JSON pointers (RFC 6901) within `host`. An interface without a device has no
    /// slot, a receive queue has no XPS. They are not gaps.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    inapplicable: Later<'a, Vec<String>>,
    /// `--memory`: memory latency and bandwidth for each pair of NUMA nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<&'a MemoryCells>,
    /// With `--watch`: what changed while the counters were watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    watch: Option<&'a WatchDocument>,
}

/// A part that is known when the parts before it have been written.
pub(crate) struct Later<'a, T>(pub(crate) &'a dyn Fn() -> T);

impl<T: Serialize> Serialize for Later<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.0)().serialize(serializer)
    }
}

/// Memory latency and bandwidth between NUMA nodes.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryCells {
    /// A pair of nodes each.
    pub cells: Vec<MemoryCell>,
}

/// CPUs of one node on memory of another, or of their own.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryCell {
    /// The node of the CPUs.
    pub cpu_node: NodeId,
    /// The number of cores in `all_cores`.
    pub cores: usize,
    /// The node of the memory.
    pub memory_node: NodeId,
    /// Latency of a load, by a chain of dependent loads.
    pub latency_ns: f64,
    /// The bandwidth of one core.
    pub one_core: MemoryBandwidth,
    /// The bandwidth of all cores together.
    pub all_cores: MemoryBandwidth,
}

/// Memory bandwidth, each byte counted once.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryBandwidth {
    /// Reads.
    pub read_bit_per_s: BitRate,
    /// Writes.
    pub write_bit_per_s: BitRate,
    /// Copies.
    pub copy_bit_per_s: BitRate,
}

impl Serialize for MapDocument<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let notes = &RefCell::new(Notes {
            // The host's own list of gaps belongs to the document, not to the machine.
            found: self.host.gaps.iter().map(|gap| noted(gap, None)).collect(),
            leave_out: Some("gaps"),
            ..Notes::default()
        });
        let gaps = || {
            let found = std::mem::take(&mut notes.borrow_mut().found).into_iter();
            let (cannot_be, mut gaps): (Vec<_>, Vec<_>) =
                found.partition(|noted| noted.cause == Cause::Inapplicable);
            notes.borrow_mut().found = cannot_be;
            gaps.extend(shapers_without_rate(self.host));
            listed(gaps).map(MapGap::from).collect()
        };
        let inapplicable = || {
            let cannot_be = notes.take().found.into_iter();
            cannot_be.filter_map(|one| one.field).collect()
        };
        let written = Written {
            schema: MAP_SCHEMA,
            host: Noting {
                value: self.host,
                notes,
            },
            gaps: Later(&gaps),
            inapplicable: Later(&inapplicable),
            memory: self.memory.as_ref(),
            watch: self.watch.as_ref(),
        };
        written.serialize(serializer)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for MapDocument<'_> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        Written::schema_name()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Written::json_schema(generator)
    }
}

/// One entry for one reason.
fn listed(gaps: Vec<Noted>) -> impl Iterator<Item = Entry> {
    gathered(gaps.into_iter().map(Entry::from).collect()).into_iter()
}

/// The noted gaps of a value that was written, and the places of values that cannot exist.
pub(crate) fn noted_gaps(found: Vec<Noted>) -> (Vec<MapGap>, Vec<String>) {
    let (cannot_be, gaps): (Vec<_>, Vec<_>) =
        (found.into_iter()).partition(|noted| noted.cause == Cause::Inapplicable);
    let places = cannot_be.into_iter().filter_map(|one| one.field);
    (listed(gaps).map(MapGap::from).collect(), places.collect())
}

/// A value with null for every gap, and those gaps as the entries of a list, whose fields are JSON pointers
/// within the value.
pub(super) fn null_gaps<T: Serialize + ?Sized>(value: &T) -> (Value, impl Iterator<Item = Entry>) {
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
