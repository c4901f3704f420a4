//! The difference in time between two levels of a factor.

use serde::{Deserialize, Serialize};

use super::{Experiment, ExperimentError, Factor, Word, wrong};

/// The key of a file.
const KEY: &str = "difference";

/// A two-level factor whose times per GB are subtracted, for each combination of the other factors: the overhead of
/// processing, of a tunnel, of encryption.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// The name of the factor.
    pub factor: String,
    /// The level whose time is reported.
    pub of: Word,
    /// The level whose time is subtracted.
    pub less: Word,
}

/// A difference by the indices of its factor and levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DifferencePlaces {
    /// The factor's index.
    pub factor: usize,
    /// The index of the level with the overhead.
    pub of: usize,
    /// The index of the level that is subtracted.
    pub less: usize,
}

impl Experiment {
    /// The indices of the factor and the levels; none if no difference is requested.
    pub fn difference_places(&self) -> Option<DifferencePlaces> {
        self.difference.as_ref()?.places(&self.factors).ok()
    }
}

impl Difference {
    /// The unit of its values, as a key's suffix.
    pub const UNIT: &'static str = "s_per_gb";

    pub(super) fn places(&self, factors: &[Factor]) -> Result<DifferencePlaces, ExperimentError> {
        let name = &self.factor;
        let Some(factor) = factors.iter().position(|factor| factor.name() == name) else {
            let names: Vec<&str> = factors.iter().map(Factor::name).collect();
            let why = format!("no factor `{name}`; factors: {}", names.join(", "));
            return Err(wrong(KEY, why));
        };
        let levels = factors[factor].level_names();
        let names = levels.join(", ");
        if levels.len() != 2 {
            let why = format!(
                "a difference needs a factor with two levels, but `{name}` has {}: {names}",
                levels.len()
            );
            return Err(wrong(KEY, why));
        }
        if factors[factor].runs().next().is_some() {
            let why = format!(
                "a level of `{name}` is an earlier run, and both levels must be measured in the same blocks"
            );
            return Err(wrong(KEY, why));
        }
        let place = |level: &Word| {
            let level = level.to_string();
            let place = levels.iter().position(|name| *name == level);
            let why = || format!("`{name}` has no level `{level}`; levels: {names}");
            place.ok_or_else(|| wrong(KEY, why()))
        };
        let (of, less) = (place(&self.of)?, place(&self.less)?);
        if of == less {
            let why = format!("`of` and `less` are both `{}`; levels: {names}", self.of);
            return Err(wrong(KEY, why));
        }
        Ok(DifferencePlaces { factor, of, less })
    }
}
