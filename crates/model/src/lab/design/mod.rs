//! Which combinations of levels are run, in what order, and how an effect is estimated from them.
//!
//! Every repeat of a design is a block: all of its cells once, in its own random order, so that drift of the host
//! (heat, other guests) affects all cells of a block alike. An effect is a contrast of the cells of one block, and
//! the spread over blocks gives its interval (Box, Hunter & Hunter, "Statistics for Experimenters", 2nd ed., chapters
//! 4 to 6; R. L. Plackett, J. P. Burman, Biometrika 33(4), 1946).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::words::Share;
use crate::units::real;

/// A combination: the level of each factor, counted from 0.
pub type Cell = Vec<usize>;

/// The maximum number of cells of a design.
pub const CELLS_MAX: usize = 4_096;
/// The minimum number of repeats: two can agree by chance.
pub const REPEATS_MIN: u32 = 3;
/// The maximum number of repeats.
pub const REPEATS_MAX: u32 = 10_000;

/// The design of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Design {
    /// Which combinations.
    pub kind: DesignKind,
    /// For a fraction: a power of two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<u32>,
    /// One factor at a time: these factors are varied with every other one, so that each level of the others is measured
    /// at each of theirs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub crossed: Vec<String>,
    /// Full and one factor at a time: an effect of the others is not averaged over the levels of these factors, but
    /// estimated at each of them. Their own effects are not requested by default.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub apart: Vec<String>,
    /// The number of repeats; with `until`, the minimum.
    pub repeats: u32,
    /// Repeat until every requested effect is known with this precision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Share>,
    /// With `until`: the maximum number of repeats.
    pub at_most: u32,
    /// The requested effects: `a`, or the interaction of two factors `a*b`.
    pub ask: Vec<String>,
    /// The smallest effect that matters: smaller ones need not be detected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<Share>,
}

impl Default for Design {
    fn default() -> Self {
        Self {
            kind: DesignKind::default(),
            runs: None,
            crossed: Vec::new(),
            apart: Vec::new(),
            repeats: 5,
            until: None,
            at_most: 30,
            ask: Vec::new(),
            effect: None,
        }
    }
}

/// Which combinations are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum DesignKind {
    /// All of them (full factorial).
    #[default]
    Full,
    /// One factor at a time: the first level of each factor, and each other level alone.
    OneAtATime,
    /// Few trials for many factors of two levels (Plackett and Burman).
    Screening,
    /// A fractional factorial of two-level factors, chosen for the least harmful confounding.
    Fraction,
}

/// Why a design cannot answer its question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// Too many combinations.
    #[error(
        "{cells} combinations: the maximum is {CELLS_MAX}; remove levels, or use `kind = \
         \"one-at-a-time\"`, \"screening\" or \"fraction\""
    )]
    TooMany {
        /// The number of cells.
        cells: usize,
    },
    /// A two-level design with other factors.
    #[error("a {kind} design has two levels of each factor, and `{factor}` has {levels}")]
    NotTwoLevels {
        /// The design.
        kind: &'static str,
        /// The factor's name.
        factor: String,
        /// Its levels.
        levels: usize,
    },
    /// A fraction with an impossible number of runs.
    #[error("{runs} runs for {factors} factors: a fraction has a power of two, {least} to {most}")]
    Runs {
        /// The requested runs.
        runs: u32,
        /// The factors.
        factors: usize,
        /// The minimum.
        least: u32,
        /// The maximum.
        most: u32,
    },
    /// An effect that is confounded with another.
    #[error("in this design `{asked}` is confounded with {others}")]
    Mixed {
        /// The requested effect.
        asked: String,
        /// The effects it is confounded with.
        others: String,
    },
}

impl DesignKind {
    /// Its name in a file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::OneAtATime => "one-at-a-time",
            Self::Screening => "screening",
            Self::Fraction => "fraction",
        }
    }
}

impl Design {
    /// `place` is the key of the repeats.
    pub(super) fn check(&self, place: &str) -> Result<(), super::ExperimentError> {
        let wrong = |place: &str, why: String| Err(super::wrong(place, why));
        if !(REPEATS_MIN..=REPEATS_MAX).contains(&self.repeats) {
            let why = format!(
                "{} would not say how sure anything is: {REPEATS_MIN} to {REPEATS_MAX}; two can agree by chance",
                self.repeats
            );
            return wrong(place, why);
        }
        if self.until.is_some() && !(self.repeats..=REPEATS_MAX).contains(&self.at_most) {
            let why = format!("{} is less than the {} repeats", self.at_most, self.repeats);
            return wrong("at-most", why);
        }
        match (self.kind, self.runs) {
            (DesignKind::Fraction, None) => {
                wrong("kind", "a fraction says how many `runs` it has".to_owned())
            }
            (DesignKind::Full | DesignKind::OneAtATime | DesignKind::Screening, Some(_)) => {
                wrong("runs", "is of a fraction: other designs know it".to_owned())
            }
            _ if self.kind != DesignKind::OneAtATime && !self.crossed.is_empty() => {
                let why = format!(
                    "is of `one-at-a-time`: the design is `{}`",
                    self.kind.word()
                );
                wrong("crossed", why)
            }
            _ if matches!(self.kind, DesignKind::Screening | DesignKind::Fraction)
                && !self.apart.is_empty() =>
            {
                let why = format!(
                    "is of `full` and `one-at-a-time`: the design is `{}`",
                    self.kind.word()
                );
                wrong("apart", why)
            }
            _ => Ok(()),
        }
    }
}

/// The combinations of a design, and the effects that can be estimated from them.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    kind: DesignKind,
    /// The cells in the design's standard order: shuffle them.
    cells: Vec<Cell>,
    /// For a fraction: the base factors whose product each factor is, as bits.
    masks: Vec<u32>,
    levels: Vec<usize>,
    /// The factors whose levels are compared with the one before.
    steps: Vec<bool>,
    places: BTreeMap<Cell, usize>,
}

/// The contrast of an effect within a block: the cells with it and the cells they are compared with, with their
/// weights in the sum of logarithms.
#[derive(Debug, Clone, PartialEq)]
pub struct Contrast {
    /// Indices of cells with the effect.
    pub with: Vec<(usize, f64)>,
    /// Indices of cells without it.
    pub against: Vec<(usize, f64)>,
}

impl Contrast {
    /// The noise of the contrast relative to that of a single trial.
    pub fn spread(&self) -> f64 {
        let weights = self.with.iter().chain(&self.against);
        weights
            .map(|(_, weight)| weight * weight)
            .sum::<f64>()
            .sqrt()
    }
}

impl Layout {
    /// The combinations for factors of so many levels. `screening` makes the rows of a Plackett-Burman design.
    pub fn new(
        design: &Design,
        names: &[&str],
        levels: &[usize],
        screening: impl Fn(usize) -> Vec<Vec<bool>>,
    ) -> Result<Self, LayoutError> {
        let kind = design.kind;
        if matches!(kind, DesignKind::Screening | DesignKind::Fraction) {
            let other = levels.iter().zip(names).find(|(levels, _)| **levels != 2);
            if let Some((levels, name)) = other {
                return Err(LayoutError::NotTwoLevels {
                    kind: kind.word(),
                    factor: (*name).to_owned(),
                    levels: *levels,
                });
            }
        }
        let mut masks = Vec::new();
        let cells = match kind {
            DesignKind::Full => all_of(levels)?,
            DesignKind::OneAtATime => {
                let crossed = |at: usize| design.crossed.iter().any(|name| name == names[at]);
                one_at_a_time(levels, crossed)?
            }
            DesignKind::Screening => {
                let rows = screening(levels.len()).into_iter();
                rows.map(|row| row.into_iter().map(usize::from).collect())
                    .collect()
            }
            DesignKind::Fraction => {
                let (bits, of_factors) = fraction(design.runs.unwrap_or(0), levels.len())?;
                masks = of_factors;
                let parity = |run: u32, mask: u32| ((run & mask).count_ones() % 2) as usize;
                (0..1u32 << bits)
                    .map(|run| masks.iter().map(|mask| parity(run, *mask)).collect())
                    .collect()
            }
        };
        let places = (0..)
            .zip(&cells)
            .map(|(at, cell): (usize, &Cell)| (cell.clone(), at));
        let places = places.collect();
        Ok(Self {
            kind,
            cells,
            masks,
            levels: levels.to_vec(),
            steps: vec![false; levels.len()],
            places,
        })
    }

    /// The same where the levels of some factors are steps: each is compared with the one before it.
    #[must_use]
    pub fn with_steps(self, steps: Vec<bool>) -> Self {
        Self { steps, ..self }
    }

    /// The level that `level` of `factor` is compared with.
    pub fn base(&self, factor: usize, level: usize) -> usize {
        if self.steps.get(factor) == Some(&true) {
            level.saturating_sub(1)
        } else {
            0
        }
    }

    /// The combinations.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// The contrast of `factor` at `level` against its first level (of steps: the one before), or of two factors their
    /// interaction. None if the design cannot estimate it.
    pub fn contrast(&self, effect: &[(usize, usize)]) -> Option<Contrast> {
        self.contrast_at(effect, &[])
    }

    /// The same of the combinations at these levels of other factors alone.
    pub fn contrast_at(
        &self,
        effect: &[(usize, usize)],
        at: &[(usize, usize)],
    ) -> Option<Contrast> {
        match (self.kind, effect) {
            (_, []) => None,
            (DesignKind::Screening, [_]) | (DesignKind::Fraction, _) => self.of_all(effect),
            (DesignKind::Screening, _) => None,
            (DesignKind::Full | DesignKind::OneAtATime, _) => self.of_matched(effect, at),
        }
    }

    /// Cells that differ only in this factor.
    fn of_matched(&self, effect: &[(usize, usize)], at: &[(usize, usize)]) -> Option<Contrast> {
        let mut contrast = Contrast {
            with: Vec::new(),
            against: Vec::new(),
        };
        let mut groups = 0_u32;
        for (place, cell) in self.cells.iter().enumerate() {
            if effect
                .iter()
                .chain(at)
                .any(|(factor, level)| cell.get(*factor) != Some(level))
            {
                continue;
            }
            // All corners of the effect, from all factors at their levels to all at those they are compared with.
            let corners: Option<Vec<(usize, u32)>> = (0..1u32 << effect.len())
                .map(|corner| {
                    let mut other = cell.clone();
                    for (bit, (factor, level)) in effect.iter().enumerate() {
                        if corner & 1 << bit != 0 {
                            other[*factor] = self.base(*factor, *level);
                        }
                    }
                    let found = self.places.get(&other).copied().filter(|_| corner != 0);
                    Some((
                        found.or((corner == 0).then_some(place))?,
                        corner.count_ones(),
                    ))
                })
                .collect();
            let Some(corners) = corners else { continue };
            groups += 1;
            for (place, changed) in corners {
                let side = if changed % 2 == 0 {
                    &mut contrast.with
                } else {
                    &mut contrast.against
                };
                side.push((place, 1.0));
            }
        }
        if groups == 0 {
            return None;
        }
        for (_, weight) in contrast.with.iter_mut().chain(&mut contrast.against) {
            *weight /= f64::from(groups);
        }
        Some(contrast)
    }

    /// All cells: those where the effect's sign is plus, against the others.
    fn of_all(&self, effect: &[(usize, usize)]) -> Option<Contrast> {
        let mut contrast = Contrast {
            with: Vec::new(),
            against: Vec::new(),
        };
        for (at, cell) in self.cells.iter().enumerate() {
            let lows = effect
                .iter()
                .filter(|(factor, _)| cell.get(*factor) == Some(&0));
            let side = if lows.count() % 2 == 0 {
                &mut contrast.with
            } else {
                &mut contrast.against
            };
            side.push((at, 1.0));
        }
        if contrast.with.is_empty() || contrast.against.is_empty() {
            return None;
        }
        // The interaction: twice the half-difference of the product.
        let times = if effect.len() > 1 { 2.0 } else { 1.0 };
        for side in [&mut contrast.with, &mut contrast.against] {
            let number = real(side.len() as u64);
            for (_, weight) in side {
                *weight *= times / number;
            }
        }
        Some(contrast)
    }

    /// The effects of one or two factors that are confounded with `effect`.
    pub fn mixed_with(&self, effect: &[usize]) -> Vec<Vec<usize>> {
        if self.kind != DesignKind::Fraction {
            return Vec::new();
        }
        let product = |effect: &[usize]| {
            let masks = effect.iter().filter_map(|factor| self.masks.get(*factor));
            masks.fold(0, |product, mask| product ^ mask)
        };
        let wanted = product(effect);
        let number = self.levels.len();
        let singles = (0..number).map(|factor| vec![factor]);
        let pairs =
            (0..number).flat_map(|one| (one + 1..number).map(move |other| vec![one, other]));
        singles
            .chain(pairs)
            .filter(|other| other != effect && product(other) == wanted)
            .collect()
    }

    /// Checks that no requested effect is confounded with another requested effect or a main effect. `name` returns
    /// the name of an effect.
    pub fn answers(
        &self,
        asked: &[Vec<usize>],
        name: impl Fn(&[usize]) -> String,
    ) -> Result<(), LayoutError> {
        for effect in asked {
            let at = |factor: &usize| (*factor, 1);
            let corner: Vec<(usize, usize)> = effect.iter().map(at).collect();
            let mut others: Vec<String> = Vec::new();
            if self.contrast(&corner).is_none() {
                others.push(match self.kind {
                    DesignKind::OneAtATime => {
                        "anything: it changes one factor at a time".to_owned()
                    }
                    _ => "single factors: it mixes every two of them with all others".to_owned(),
                });
            }
            let mixed = self.mixed_with(effect).into_iter();
            let mixed = mixed.filter(|other| other.len() == 1 || asked.contains(other));
            others.extend(mixed.map(|other| format!("`{}`", name(&other))));
            if !others.is_empty() {
                return Err(LayoutError::Mixed {
                    asked: name(effect),
                    others: others.join(", "),
                });
            }
        }
        Ok(())
    }

    /// The confounding of the design as text; none if there is none.
    pub fn confounding(&self, name: impl Fn(&[usize]) -> String) -> Vec<String> {
        match self.kind {
            DesignKind::Full => Vec::new(),
            DesignKind::OneAtATime => vec![
                "each factor is changed alone, with the others at their first levels: \
                 interactions are not estimated (but those with crossed factors)"
                    .to_owned(),
            ],
            DesignKind::Screening => vec![
                "each main effect is partially confounded with all two-factor interactions of the \
                 others"
                    .to_owned(),
            ],
            DesignKind::Fraction => (0..self.levels.len())
                .filter_map(|factor| {
                    let mixed = self.mixed_with(&[factor]);
                    let names: Vec<String> = mixed.iter().map(|other| name(other)).collect();
                    (!names.is_empty()).then(|| {
                        format!("{} is aliased with {}", name(&[factor]), names.join(", "))
                    })
                })
                .collect(),
        }
    }
}

fn all_of(levels: &[usize]) -> Result<Vec<Cell>, LayoutError> {
    let number = levels
        .iter()
        .fold(1_usize, |product, levels| product.saturating_mul(*levels));
    if number > CELLS_MAX {
        return Err(LayoutError::TooMany { cells: number });
    }
    let mut cells: Vec<Cell> = vec![Vec::new()];
    for levels in levels {
        let longer = cells.iter().flat_map(|cell| {
            (0..*levels).map(|level| {
                let mut longer = cell.clone();
                longer.push(level);
                longer
            })
        });
        cells = longer.collect();
    }
    Ok(cells)
}

/// The first level of each factor and each other level alone; all of that at every level of the factors that are
/// `crossed`.
fn one_at_a_time(
    levels: &[usize],
    crossed: impl Fn(usize) -> bool,
) -> Result<Vec<Cell>, LayoutError> {
    let kept = |at: usize, levels: usize| if crossed(at) { levels } else { 1 };
    let bases: Vec<usize> = (levels.iter().enumerate())
        .map(|(at, &levels)| kept(at, levels))
        .collect();
    let bases = all_of(&bases)?;
    let alone: usize = (levels.iter().enumerate())
        .filter(|(at, _)| !crossed(*at))
        .map(|(_, levels)| levels.saturating_sub(1))
        .sum();
    let number = bases.len().saturating_mul(alone + 1);
    if number > CELLS_MAX {
        return Err(LayoutError::TooMany { cells: number });
    }
    let mut cells = bases.clone();
    for (factor, levels) in levels.iter().enumerate() {
        if crossed(factor) {
            continue;
        }
        for level in 1..*levels {
            cells.extend(bases.iter().map(|base| {
                let mut cell = base.clone();
                cell[factor] = level;
                cell
            }));
        }
    }
    Ok(cells)
}

/// The number of base factors of a fraction, and for each factor the product of base factors that it is. All products
/// have an odd number of base factors if there are enough of them: then no main effect is confounded with a
/// two-factor interaction (resolution IV); a half fraction uses the product of all.
fn fraction(runs: u32, factors: usize) -> Result<(u32, Vec<u32>), LayoutError> {
    let most = 1u32 << factors.min(12);
    let least = u32::try_from(factors + 1)
        .unwrap_or(u32::MAX)
        .next_power_of_two()
        .max(4);
    if !runs.is_power_of_two() || !(least..=most).contains(&runs) {
        return Err(LayoutError::Runs {
            runs,
            factors,
            least,
            most,
        });
    }
    let bits = runs.ilog2();
    let base = (bits as usize).min(factors);
    let mut masks: Vec<u32> = (0..bits).take(base).map(|bit| 1 << bit).collect();
    let added = factors - base;
    let mut products: Vec<u32> = (1..runs).filter(|mask| mask.count_ones() > 1).collect();
    let odd = products.iter().filter(|mask| mask.count_ones() % 2 == 1);
    if added == 1 {
        products = vec![runs - 1];
    } else if odd.count() >= added {
        products.retain(|mask| mask.count_ones() % 2 == 1);
    }
    // The longer the product, the higher the order of its confounding.
    products.sort_by_key(|mask| (std::cmp::Reverse(mask.count_ones()), *mask));
    masks.extend(products.into_iter().take(added));
    Ok((bits, masks))
}

#[cfg(test)]
mod tests;
