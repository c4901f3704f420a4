//! The screening results of a search, by factor.

use linerate_model::prove::{FactorDocument, SearchDocument};
use linerate_model::units::BitRate;
use linerate_stats::screening::screened;

use super::ProofRecords;
use crate::trial::{LEVEL, rate_of};

/// What was inspected; `None` of a run that searched nothing.
pub(super) fn document(sorted: &ProofRecords<'_>) -> Option<SearchDocument> {
    if sorted.factors.is_empty() {
        return None;
    }
    let rated = sorted.explored.iter().filter(|one| one.screening);
    let rated = rated.filter_map(|one| {
        let rate = rate_of(one.sample?).filter(|rate| rate.as_bit_per_s() > 0)?;
        let changed: Vec<bool> = one.levels.iter().map(|level| *level != 0).collect();
        Some((changed, BitRate::as_f64(rate).ln()))
    });
    let (trials, values): (Vec<Vec<bool>>, Vec<f64>) = rated.unzip();
    let told = screened(&trials, &values, LEVEL).ok();
    let factor = |(place, factor): (usize, &linerate_model::factor::Factor)| {
        let effect = told
            .as_ref()
            .and_then(|told| told.effects.get(place).copied());
        let margin = told.as_ref().map(|told| told.margin);
        FactorDocument {
            name: factor.name.clone(),
            levels: factor
                .levels
                .iter()
                .map(|level| level.words.clone())
                .collect(),
            effect: effect.map(f64::exp_m1),
            shows: effect
                .zip(margin)
                .is_some_and(|(effect, margin)| effect.abs() > margin),
        }
    };
    Some(SearchDocument {
        factors: sorted.factors.iter().enumerate().map(factor).collect(),
        screening_trials: trials.len(),
        trials: sorted.explored.len(),
    })
}
