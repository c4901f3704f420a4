//! `linerate nic --format json`: null for every fact that is not known, and the gaps beside it, as in the map.

use std::cell::RefCell;

use linerate_model::finding::Severity;
use linerate_model::status_opcode::StatusOpcode;
use serde::{Serialize, Serializer};

use super::NicView;
use super::facts::{NicFacts, facts};
use crate::doctor::{Explained, Skipped};
use crate::gaps::{Notes, Noting};
use crate::map::gaps::MapGap;
use crate::map::json::{Later, noted_gaps};

/// A NIC as `nic --format json` prints it.
#[derive(Debug)]
pub struct NicDocument<'a>(pub &'a NicView<'a>);

/// What `linerate nic --format json` prints. A missing value is null and has a gap.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "NicDocument"))]
struct Written<'a> {
    schema: &'static str,
    verdict: Verdict,
    /// What to do, in words.
    advice: Vec<String>,
    #[cfg_attr(feature = "schema", schemars(with = "NicFacts<'_>"))]
    nic: Noting<'a, NicFacts<'a>>,
    #[cfg_attr(feature = "schema", schemars(with = "Vec<MapGap>"))]
    gaps: Later<'a, Vec<MapGap>>,
    /// The nulls of values that cannot exist: JSON pointers (RFC 6901) within `nic`. They are not gaps.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    inapplicable: Later<'a, Vec<String>>,
    /// With `--opcode`: what it means.
    #[serde(skip_serializing_if = "Option::is_none")]
    status_opcode: Option<OpcodeDocument>,
    /// The findings of the rules on its health, worst first.
    findings: Vec<Explained<'a>>,
    /// Checks that were skipped because data is not available; they are never passed.
    undetermined: Vec<Skipped<'a>>,
}

/// The answer in brief.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Verdict {
    /// The worst severity of its findings; null if there is none.
    worst: Option<Severity>,
    /// The number of findings of severity warn or crit.
    problems: usize,
    /// The number of notes.
    notes: usize,
    /// The number of skipped checks.
    skipped: usize,
}

/// A status opcode of NVIDIA's firmware.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct OpcodeDocument {
    /// The opcode.
    opcode: u32,
    /// What it means; null if NVIDIA's documentation does not list it.
    meaning: Option<StatusOpcode>,
}

impl Serialize for NicDocument<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let view = self.0;
        let own = facts(view);
        let notes = &RefCell::new(Notes::default());
        let places = &RefCell::new(Vec::new());
        let gaps = || {
            let found = std::mem::take(&mut notes.borrow_mut().found);
            let (gaps, inapplicable) = noted_gaps(found);
            *places.borrow_mut() = inapplicable;
            gaps
        };
        let inapplicable = || places.take();
        let problems = view.problems();
        let written = Written {
            schema: "linerate.nic/1",
            verdict: Verdict {
                worst: view.findings.iter().map(|one| one.severity).max(),
                problems,
                notes: view.findings.len() - problems,
                skipped: view.undetermined.len(),
            },
            advice: view.advice(),
            nic: Noting { value: &own, notes },
            gaps: Later(&gaps),
            inapplicable: Later(&inapplicable),
            status_opcode: view.opcode.map(|asked| OpcodeDocument {
                opcode: asked.opcode,
                meaning: asked.meaning,
            }),
            findings: (view.findings.iter().copied().map(Explained::from)).collect(),
            undetermined: (view.undetermined.iter().copied().map(Skipped::from)).collect(),
        };
        written.serialize(serializer)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for NicDocument<'_> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        Written::schema_name()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Written::json_schema(generator)
    }
}
