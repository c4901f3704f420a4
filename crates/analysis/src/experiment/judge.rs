//! Analyzes the record of an experiment: means, effects with their intervals, disturbances, and the minimum
//! detectable effect. Pure: a stored run is analyzed again by the same functions.

use std::collections::BTreeMap;

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::lab::{Cell, Contrast, DesignKind, Experiment, Layout, Response};
use linerate_model::sample::Sample;
use linerate_stats::Seed;
use linerate_stats::effect::{Effect as Relative, paired_relative};
use linerate_stats::screening::plackett_burman;
use linerate_stats::sequential::{level_at_look, number_of_looks};
use linerate_stats::summary::{mean, median, standard_deviation};

use super::bound::Bounds;
use super::document::{
    CellDocument, DesignDocument, DriftDocument, EffectDocument, FactorDocument, LabDocument,
    LevelDocument, PeerDocument, ResponseDocument, SCHEMA, TrialDocument,
};
use super::idle_states;
use super::sorted::{CellResult, ExperimentRecords, sort};
use super::{difference, earlier, fabric, flows, hits, published, times};
use crate::record::{Header, Record};
use crate::text::words::count;
use crate::trial::figure::{self, figure};
use crate::trial::{LEVEL, is_doubtful};

/// A trial is an outlier if it deviates this many times more than the median trial from what its combination and block
/// predict.
/// (B. Iglewicz, D. C. Hoaglin, "How to detect and handle outliers", 1993: 3.5 scaled deviations.)
const OUTLYING: f64 = 3.5;
/// With fewer blocks no effect can be computed, whatever was measured.
pub const BLOCKS_OF_EFFECTS: usize = 3;
/// With fewer blocks the expected values are too uncertain.
const BLOCKS_OF_OUTLIERS: usize = 5;
/// A normal variable's median absolute deviation times this is its standard deviation.
const DEVIATION_OF_MEDIAN: f64 = 1.4826;

/// An experiment laid out, without the unavailable levels.
#[derive(Debug)]
pub struct ResolvedDesign {
    /// For each factor the remaining levels.
    pub kept: Vec<Vec<usize>>,
    /// The factors with more than one.
    pub varied: Vec<usize>,
    /// All combinations, by the levels of the file.
    pub cells: Vec<Cell>,
    layout: Layout,
}

/// An effect in the terms of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectTerms {
    /// The factors.
    pub factors: Vec<usize>,
    /// Their levels.
    pub levels: Vec<usize>,
    /// The levels that they are compared with.
    pub against: Vec<usize>,
    /// The levels of factors whose levels are kept apart.
    pub at: Vec<(usize, usize)>,
}

/// An effect in the terms of the file, and in those of the layout.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Effect {
    asked: EffectTerms,
    /// Varied factor and its kept level, both counted from 0.
    corner: Vec<(usize, usize)>,
    /// The levels that are kept apart, in the same terms.
    at: Vec<(usize, usize)>,
}

/// Lays an experiment out without the omitted levels, (factor, level), and without earlier runs, which are
/// not measured again.
pub fn laid(experiment: &Experiment, left: &[(usize, usize)]) -> Outcome<ResolvedDesign> {
    let factors = experiment.factors.iter().enumerate();
    let kept: Vec<Vec<usize>> = factors
        .map(|(at, factor)| {
            let is_earlier = |level: &usize| factor.runs().any(|(run, _)| run == *level);
            let levels = 0..factor.levels.len();
            levels
                .filter(|level| !left.contains(&(at, *level)) && !is_earlier(level))
                .collect()
        })
        .collect();
    let varied: Vec<usize> = (0..kept.len()).filter(|at| kept[*at].len() > 1).collect();
    let names: Vec<&str> = (varied.iter())
        .map(|at| experiment.factors[*at].name())
        .collect();
    let levels: Vec<usize> = varied.iter().map(|at| kept[*at].len()).collect();
    let mut design = experiment.design.clone();
    // A fraction for fewer factors may have more runs than there are combinations.
    let all = 1u32 << varied.len().min(31);
    design.runs = design.runs.map(|runs| runs.min(all));
    let few = match design.kind {
        DesignKind::Fraction => varied.len() < 2,
        _ => varied.is_empty(),
    };
    if few {
        design.kind = DesignKind::Full;
    }
    let screening = |factors: usize| plackett_burman(factors).unwrap_or_default();
    let wrong = |error: linerate_model::lab::LayoutError| {
        Stop::new(Code::BadInput, format!("the design: {error}"))
    };
    let steps = varied.iter().map(|at| experiment.factors[*at].steps);
    let layout = Layout::new(&design, &names, &levels, screening)
        .map_err(wrong)?
        .with_steps(steps.collect());
    let asked: Vec<Vec<usize>> = asked(experiment, &varied);
    let name = |effect: &[usize]| {
        let effect: Vec<usize> = effect.iter().map(|at| varied[*at]).collect();
        experiment.effect_name(&effect)
    };
    layout.answers(&asked, name).map_err(wrong)?;
    let cell = |cell: &Cell| {
        let mut whole = without_factors(experiment);
        for (level, levels) in whole.iter_mut().zip(&kept) {
            // A factor without any available level is left as the experiment is without it.
            *level = levels.first().copied().unwrap_or(*level);
        }
        for (level, factor) in cell.iter().zip(&varied) {
            whole[*factor] = kept[*factor][*level];
        }
        whole
    };
    let cells = layout.cells().iter().map(cell).collect::<Vec<Cell>>();
    Ok(ResolvedDesign {
        kept,
        varied,
        cells,
        layout,
    })
}

/// The combination in which no factor has any of its levels: no level has that index.
pub fn without_factors(experiment: &Experiment) -> Cell {
    let factors = experiment.factors.iter();
    factors.map(|factor| factor.levels.len()).collect()
}

/// The requested effects among the varied factors, by their indices there.
fn asked(experiment: &Experiment, varied: &[usize]) -> Vec<Vec<usize>> {
    let place = |factor: &usize| varied.iter().position(|at| at == factor);
    let asked = experiment.asked().into_iter();
    asked
        .filter_map(|effect| effect.iter().map(place).collect::<Option<Vec<_>>>())
        .collect()
}

impl ResolvedDesign {
    /// The confounding of the design, in words.
    pub fn confounding(&self, experiment: &Experiment) -> Vec<String> {
        let name = |effect: &[usize]| {
            let effect: Vec<usize> = effect.iter().map(|at| self.varied[*at]).collect();
            experiment.effect_name(&effect)
        };
        self.layout.confounding(name)
    }

    /// Every effect that is requested, at each of its levels.
    fn effects(&self, experiment: &Experiment) -> Vec<Effect> {
        let asked = asked(experiment, &self.varied);
        let mut effects = Vec::new();
        for places in asked {
            let mut corners: Vec<Vec<(usize, usize)>> = vec![Vec::new()];
            for place in places {
                let levels = self.kept[self.varied[place]].len();
                let longer = corners.iter().flat_map(|corner| {
                    (1..levels).map(move |level| {
                        let mut longer = corner.clone();
                        longer.push((place, level));
                        longer
                    })
                });
                corners = longer.collect();
            }
            effects.extend(corners.into_iter().map(|corner| {
                let factor = |(place, _): &(usize, usize)| self.varied[*place];
                let level =
                    |(place, level): &(usize, usize)| self.kept[self.varied[*place]][*level];
                let base =
                    |one: &(usize, usize)| self.kept[factor(one)][self.layout.base(one.0, one.1)];
                Effect {
                    asked: EffectTerms {
                        factors: corner.iter().map(factor).collect(),
                        levels: corner.iter().map(level).collect(),
                        against: corner.iter().map(base).collect(),
                        at: Vec::new(),
                    },
                    corner,
                    at: Vec::new(),
                }
            }));
        }
        self.kept_apart(experiment, effects)
    }

    /// The same at each level of the factors that are kept apart.
    fn kept_apart(&self, experiment: &Experiment, mut effects: Vec<Effect>) -> Vec<Effect> {
        let apart = &experiment.design.apart;
        for (place, &factor) in self.varied.iter().enumerate() {
            if !apart
                .iter()
                .any(|name| name == experiment.factors[factor].name())
            {
                continue;
            }
            let each = |effect: Effect| {
                let is_own = effect.asked.factors.contains(&factor);
                let levels = if is_own { 1 } else { self.kept[factor].len() };
                (0..levels).map(move |level| {
                    let mut at_level = effect.clone();
                    if !is_own {
                        at_level.at.push((place, level));
                        at_level.asked.at.push((factor, self.kept[factor][level]));
                    }
                    at_level
                })
            };
            effects = effects.into_iter().flat_map(each).collect();
        }
        effects
    }

    /// How many times the noise of one trial the noise of a block's effect is: each requested effect by name, the largest
    /// first.
    pub fn spreads(&self, experiment: &Experiment) -> Vec<(String, f64)> {
        let effects = self.effects(experiment).into_iter();
        let mut spreads: Vec<(String, f64)> = effects
            .filter_map(|effect| {
                let contrast = self.layout.contrast_at(&effect.corner, &effect.at)?;
                let spread = contrast.spread();
                Some((experiment.effect_name(&effect.asked.factors), spread))
            })
            .collect();
        spreads.sort_by(|one, other| other.1.total_cmp(&one.1));
        spreads.dedup_by(|later, first| later.0 == first.0);
        spreads
    }
}

/// Whether an experiment completed.
pub fn is_whole(records: &[Record]) -> bool {
    sort(records).is_some_and(|sorted| sorted.complete)
}

/// How many trials an experiment has made.
pub fn trials_made(records: &[Record]) -> usize {
    let is_trial = |record: &&Record| matches!(record, Record::Cell { .. });
    records.iter().filter(is_trial).count()
}

impl ExperimentRecords<'_> {
    /// Notes for reading the effects: confounding in the design, and what was not interleaved.
    fn notes(&self, header: &Header, laid: &ResolvedDesign) -> Vec<String> {
        let mut notes = laid.confounding(self.experiment);
        let of_runs = self.earlier.iter();
        notes.extend(of_runs.map(|earlier| earlier::note(self, header, earlier.run)));
        notes.extend(self.looks().map(|looks| {
            format!(
                "repeated until precise: the intervals hold at {} together",
                count(looks, "look")
            )
        }));
        notes
    }

    /// Both sides of a contrast in each block that has all of its cells.
    fn pairs(
        &self,
        laid: &ResolvedDesign,
        contrast: &Contrast,
        response: Response,
    ) -> Vec<(f64, f64)> {
        let sum = |block: u32, side: &[(usize, f64)]| -> Option<f64> {
            let each = side.iter().map(|(cell, weight)| {
                let value = self.value(response, block, &laid.cells[*cell])?;
                Some(weight * value.ln())
            });
            each.sum::<Option<f64>>().map(f64::exp)
        };
        let blocks = self.blocks().into_iter();
        blocks
            .filter_map(|block| Some((sum(block, &contrast.against)?, sum(block, &contrast.with)?)))
            .collect()
    }

    /// How often the intervals have been looked at to decide whether to stop; none if the number of blocks was planned.
    pub fn looks(&self) -> Option<usize> {
        let design = &self.experiment.design;
        let first = design.until.map(|_| design.repeats as usize)?;
        Some(number_of_looks(first, self.blocks().len()))
    }

    /// The level at which an interval is computed so that it holds with [`LEVEL`]: with repeated looks, at all of them
    /// together.
    pub fn level(&self) -> f64 {
        self.looks()
            .map_or(LEVEL, |looks| level_at_look(LEVEL, looks))
    }

    /// Half of the width of the widest interval of a requested effect, of the deciding response; none before each
    /// has one.
    pub fn widest(&self, laid: &ResolvedDesign, seed: u64) -> Option<f64> {
        let response = *self.responses().first()?;
        let effects = laid.effects(self.experiment).into_iter();
        let half = effects.map(|effect| {
            let contrast = laid.layout.contrast_at(&effect.corner, &effect.at)?;
            let pairs = self.pairs(laid, &contrast, response);
            let effect = paired_relative(&pairs, self.level(), Seed(seed)).ok()?;
            Some((effect.interval.high - effect.interval.low) / 2.0)
        });
        half.collect::<Option<Vec<f64>>>()?
            .into_iter()
            .reduce(f64::max)
    }
}

/// The standard deviation of trials of one combination, on the logarithmic scale.
pub fn scatter(samples: &[&Sample], response: Response) -> Option<f64> {
    let logs: Vec<f64> = (samples.iter())
        .filter_map(|sample| figure(response, sample))
        .map(f64::ln)
        .collect();
    standard_deviation(&logs).ok()
}

/// The document of an experiment. For an incomplete one it contains what there is.
pub fn document(header: &Header, records: &[Record]) -> Outcome<LabDocument> {
    let sorted =
        sort(records).ok_or_else(|| Stop::new(Code::BadInput, "not records of an experiment"))?;
    let experiment = sorted.experiment;
    let laid = laid(experiment, &sorted.left_out())?;
    let responses = sorted.responses();
    let trials = trials(&sorted, &responses);
    let bounds = Bounds::of(header, &sorted);
    let mut notes = sorted.notes(header, &laid);
    notes.extend(bounds.iter().flat_map(Bounds::goes_without_in_words));
    notes.extend(idle_states::notes(&sorted, &laid.cells));
    let of_response = |response: &Response| {
        let (effects, left_out) = effects(&sorted, &laid, *response, header.seed);
        ResponseDocument {
            response: *response,
            unit: response.unit().word(),
            more_is_better: response.more_is_better(),
            kind_of_mean: figure::kind_of_mean(*response),
            cells: cells(&sorted, &laid, *response, bounds.as_ref()),
            effects,
            left_out,
            drift: drift(&sorted, &laid, *response),
            outliers: outliers(&sorted, &laid, *response, &trials),
        }
    };
    let difference = difference::document(&sorted, &laid, header.seed);
    let measured: Vec<ResponseDocument> = responses.iter().map(of_response).collect();
    Ok(LabDocument {
        schema: SCHEMA,
        title: experiment.title.clone(),
        question: experiment.question.clone(),
        run: None,
        report: None,
        complete: sorted.complete,
        stopped: sorted.stopped.map(str::to_owned),
        restored: sorted.restored,
        seed: header.seed,
        design: DesignDocument {
            kind: experiment.design.kind.word(),
            cells: laid.cells.len(),
            blocks: sorted.blocks().len(),
            confounding: notes,
        },
        factors: factors(&sorted),
        peers: sorted.peers.iter().map(PeerDocument::of).collect(),
        flows: flows::document(&sorted, &laid),
        times: times::document(&sorted, &laid),
        fabric: fabric::document(&sorted, &laid, &measured, bounds.as_ref()),
        server: hits::document(&sorted, &laid),
        responses: measured,
        published: published::documents(&sorted, &laid, difference.as_ref(), bounds.as_ref()),
        difference,
        trials,
    })
}

/// Every trial, in the order in which they ran.
fn trials(sorted: &ExperimentRecords<'_>, responses: &[Response]) -> Vec<TrialDocument> {
    let experiment = sorted.experiment;
    let mut made: Vec<(&(u32, &[usize]), &CellResult<'_>)> = sorted.cells.iter().collect();
    made.sort_by_key(|(_, made)| made.order);
    let trials = made.iter().map(|((block, cell), made)| {
        let sample = made.samples.first();
        let told = responses.iter().filter_map(|response| {
            let value = figure(*response, sample?)?;
            Some((response.word(), value))
        });
        TrialDocument {
            block: *block,
            order: made.order,
            levels: experiment.level_names(cell),
            values: told.collect(),
            flags: sample
                .map(|sample| sample.flags.clone())
                .unwrap_or_default(),
            doubtful: sample.is_some_and(is_doubtful),
            why: made.why.map(str::to_owned),
        }
    });
    trials.collect()
}

fn factors(sorted: &ExperimentRecords<'_>) -> Vec<FactorDocument> {
    let factors = sorted.experiment.factors.iter().enumerate();
    let documents = factors.map(|(at, factor)| FactorDocument {
        name: factor.name().to_owned(),
        levels: (0..factor.levels.len())
            .map(|level| LevelDocument {
                name: factor.level(level).unwrap_or_default().name,
                skipped: (sorted.left.iter())
                    .find(|(f, l, _)| (*f, *l) == (at, level))
                    .map(|(_, _, why)| (*why).to_owned()),
                peer: factor.level(level).unwrap_or_default().peer.at,
                run: factor.level(level).unwrap_or_default().run,
            })
            .collect(),
    });
    documents.collect()
}

fn cells(
    sorted: &ExperimentRecords<'_>,
    laid: &ResolvedDesign,
    response: Response,
    bounds: Option<&Bounds<'_>>,
) -> Vec<CellDocument> {
    let blocks = sorted.blocks();
    // Ceilings apply to rates only.
    let bounds = bounds.filter(|_| response == Response::Rate);
    let one = |cell: &Cell| {
        let values = sorted.values(response, cell);
        let why = blocks.iter().find_map(|block| {
            let made = sorted.cells.get(&(*block, cell.as_slice()))?;
            made.why.map(str::to_owned)
        });
        let mean = figure::mean(response, &values);
        CellDocument {
            levels: sorted.experiment.level_names(cell),
            trials: values.len(),
            mean,
            ceiling: bounds
                .zip(mean)
                .and_then(|(bounds, mean)| bounds.ceiling(cell, &sorted.samples(cell), mean)),
            least: values.iter().copied().reduce(f64::min),
            most: values.iter().copied().reduce(f64::max),
            why,
        }
    };
    let earlier = sorted.earlier_cells();
    laid.cells.iter().chain(&earlier).map(one).collect()
}

/// The effects, and why some are omitted.
fn effects(
    sorted: &ExperimentRecords<'_>,
    laid: &ResolvedDesign,
    response: Response,
    seed: u64,
) -> (Vec<EffectDocument>, Option<String>) {
    let experiment = sorted.experiment;
    let effects = laid.effects(experiment);
    let unpaired = earlier::effects(sorted, laid);
    #[expect(clippy::cast_precision_loss, reason = "some hundred effects")]
    let all = 1.0 - (1.0 - sorted.level()) / (effects.len() + unpaired.len()).max(1) as f64;
    let names = |factors: &[usize], levels: &[usize]| {
        let pairs = factors.iter().zip(levels);
        let name = |(factor, level): (&usize, &usize)| {
            experiment.factors[*factor]
                .level(*level)
                .unwrap_or_default()
                .name
        };
        pairs.map(name).collect::<Vec<String>>()
    };
    let at = |kept: &[(usize, usize)]| {
        let named = |(factor, level): &(usize, usize)| {
            let name = experiment.factors[*factor].name();
            format!("{name} {}", names(&[*factor], &[*level]).concat())
        };
        kept.iter().map(named).collect::<Vec<String>>()
    };
    let told = |asked: &EffectTerms, interleaved: bool, found: &Relative, strict: &Relative| {
        EffectDocument {
            effect: experiment.effect_name(&asked.factors),
            levels: names(&asked.factors, &asked.levels),
            against: names(&asked.factors, &asked.against),
            at: at(&asked.at),
            relative: found.relative,
            low: found.interval.low,
            high: found.interval.high,
            level: LEVEL,
            blocks: found.pairs,
            smallest_detectable: found.smallest_detectable,
            shown: found.interval.excludes(0.0),
            shown_among_all: strict.interval.excludes(0.0),
            interleaved,
        }
    };
    let here = effects.iter().filter_map(|effect| {
        let contrast = laid.layout.contrast_at(&effect.corner, &effect.at)?;
        let pairs = sorted.pairs(laid, &contrast, response);
        let found = paired_relative(&pairs, sorted.level(), Seed(seed)).ok()?;
        let strict = paired_relative(&pairs, all, Seed(seed)).ok()?;
        Some(told(&effect.asked, true, &found, &strict))
    });
    let of_others = unpaired.iter().filter_map(|effect| {
        let found = earlier::effect(sorted, laid, effect, response, sorted.level())?;
        let strict = earlier::effect(sorted, laid, effect, response, all)?;
        Some(told(effect, false, &found, &strict))
    });
    let told: Vec<EffectDocument> = here.chain(of_others).collect();
    let left = effects.len() + unpaired.len() - told.len();
    let too_early = sorted.blocks().len() < BLOCKS_OF_EFFECTS;
    let left_out = without_ratios(sorted, laid, response).filter(|_| left > 0 && !too_early);
    let left_out = left_out.map(|why| format!("{} omitted: {why}", count(left, "effect")));
    (told, left_out)
}

/// Why effects on a figure cannot be computed although it was measured: there is no relative change of 0, and omitting
/// the trials without it would bias the rest.
fn without_ratios(
    sorted: &ExperimentRecords<'_>,
    laid: &ResolvedDesign,
    response: Response,
) -> Option<String> {
    let earlier = sorted.earlier_cells();
    let cells = laid.cells.iter().chain(&earlier);
    let values: Vec<f64> = cells
        .flat_map(|cell| sorted.values(response, cell))
        .collect();
    let zeros = values.iter().filter(|value| **value == 0.0).count();
    let word = response.word();
    (zeros > 0).then(|| {
        format!(
            "{zeros} of {} have a {word} of 0, so no relative change is defined",
            count(values.len(), "trial")
        )
    })
}

/// The mean of the logarithms of a block's cells, over the cells that every block has.
fn levels_of_blocks(
    sorted: &ExperimentRecords<'_>,
    laid: &ResolvedDesign,
    response: Response,
) -> Vec<f64> {
    let blocks = sorted.blocks();
    let in_all = |cell: &&Cell| {
        let mut values = blocks
            .iter()
            .map(|block| sorted.value(response, *block, cell));
        // There is no logarithm of 0.
        values.all(|value| value.is_some_and(|value| value > 0.0))
    };
    // The last block may be incomplete: a block without most of its cells does not count.
    let cells: Vec<&Cell> = laid.cells.iter().filter(in_all).collect();
    if cells.len() * 2 < laid.cells.len() {
        return Vec::new();
    }
    let level = |block: &u32| {
        let values = cells
            .iter()
            .filter_map(|cell| sorted.value(response, *block, cell));
        let logs: Vec<f64> = values.map(f64::ln).collect();
        mean(&logs).ok()
    };
    blocks.iter().filter_map(level).collect()
}

fn drift(
    sorted: &ExperimentRecords<'_>,
    laid: &ResolvedDesign,
    response: Response,
) -> Option<DriftDocument> {
    let levels = levels_of_blocks(sorted, laid, response);
    if levels.len() < 3 {
        return None;
    }
    let mut slopes = Vec::new();
    for (at, level) in levels.iter().enumerate() {
        for (later, other) in levels.iter().enumerate().skip(at + 1) {
            #[expect(clippy::cast_precision_loss, reason = "some thousand blocks")]
            slopes.push((other - level) / (later - at) as f64);
        }
    }
    let steady = slopes.iter().all(|slope| *slope > 0.0) || slopes.iter().all(|slope| *slope < 0.0);
    Some(DriftDocument {
        relative_per_block: median(&slopes).ok()?.exp_m1(),
        // Three in order occur in one of three cases by chance.
        steady: steady && levels.len() > 4,
    })
}

/// Trials far from the sum of the effects of their combination and their block (in logarithms).
fn outliers(
    sorted: &ExperimentRecords<'_>,
    laid: &ResolvedDesign,
    response: Response,
    trials: &[TrialDocument],
) -> Vec<usize> {
    let experiment = sorted.experiment;
    let blocks = sorted.blocks();
    if blocks.len() < BLOCKS_OF_OUTLIERS {
        return Vec::new();
    }
    let logs: Vec<Option<f64>> = trials
        .iter()
        .map(|trial| trial.values.get(response.word()).copied())
        .map(|value| value.filter(|value| *value > 0.0).map(f64::ln))
        .collect();
    let names: Vec<Vec<String>> = (laid.cells.iter())
        .map(|cell| experiment.level_names(cell))
        .collect();
    let middle = |keep: &dyn Fn(&TrialDocument) -> bool, rest: &[Option<f64>]| {
        let values: Vec<f64> = trials
            .iter()
            .zip(rest)
            .filter(|(trial, _)| keep(trial))
            .filter_map(|(_, value)| *value)
            .collect();
        median(&values).unwrap_or(0.0)
    };
    let of_cells: BTreeMap<&Vec<String>, f64> = (names.iter())
        .map(|name| (name, middle(&|trial| trial.levels == *name, &logs)))
        .collect();
    let less =
        |place: usize, value: f64| value - of_cells.get(&trials[place].levels).unwrap_or(&0.0);
    let rest: Vec<Option<f64>> = (logs.iter().enumerate())
        .map(|(place, value)| value.map(|value| less(place, value)))
        .collect();
    let of_blocks: BTreeMap<u32, f64> = (blocks.iter())
        .map(|block| (*block, middle(&|trial| trial.block == *block, &rest)))
        .collect();
    let rest: Vec<Option<f64>> = (rest.iter().zip(trials))
        .map(|(value, trial)| {
            value.map(|value| value - of_blocks.get(&trial.block).unwrap_or(&0.0))
        })
        .collect();
    // In a small design many trials are the median of their combination or block: those carry no information on scatter.
    let sizes = rest.iter().flatten().map(|value| value.abs());
    let sizes: Vec<f64> = sizes.filter(|size| *size > 0.0).collect();
    let usual = median(&sizes).unwrap_or(0.0) * DEVIATION_OF_MEDIAN;
    let is_far = |value: &Option<f64>| value.is_some_and(|value| value.abs() > OUTLYING * usual);
    let places = rest.iter().enumerate();
    places
        .filter(|(_, value)| usual > 0.0 && is_far(value))
        .map(|(place, _)| place)
        .collect()
}
