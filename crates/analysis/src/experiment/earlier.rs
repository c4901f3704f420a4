//! An earlier run as a level of a factor: whether its design is that of the experiment it is a level of, its trials
//! there, and what it differs in. It was not interleaved with the others: its effects are unpaired, and whatever else
//! changed with time is in them.

use std::collections::BTreeMap;

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::Host;
use linerate_model::ids::NicName;
use linerate_model::lab::{Cell, Experiment, Response};
use linerate_model::plan::End;
use linerate_stats::effect::{Effect, unpaired_relative};
use linerate_stats::summary::mean;

use super::judge::{EffectTerms, ResolvedDesign, without_factors};
use super::same::{Difference, difference_beside, difference_of_trials};
use super::sorted::{EarlierRun, ExperimentRecords};
use crate::changes::{Change, of_host};
use crate::record::{Earlier, EarlierTrial, Header, Record, StoredRun};
use crate::text::timestamp::rfc3339;

/// Maximum number of differences of a host that are listed.
const NAMED_MAX: usize = 6;

/// A stored run as a level of an experiment: the factor and the level, counted from 0.
pub fn record(
    experiment: &Experiment,
    (factor, level): (usize, usize),
    stored: &StoredRun,
) -> Outcome<Record> {
    let (old, _) = super::experiment_of(stored)?;
    let folder = stored.folder.display();
    let refuse = |why: String| {
        let name = experiment.factors[factor].name();
        let level = experiment.factors[factor].level(level).unwrap_or_default();
        let why = format!(
            "cannot use {folder} as the level `{}` of `{name}`: {why}",
            level.name
        );
        Stop::new(Code::BadInput, why)
            .hint("its design must equal this experiment without the factor")
    };
    let hosts = stored.records.iter().find_map(|record| match record {
        Record::Hosts { local, remote } => Some((local.clone(), remote.clone())),
        _ => None,
    });
    let (local, remote) =
        hosts.ok_or_else(|| refuse("it stopped before its first trial".into()))?;
    let fit = Fit::of(experiment, factor, old).map_err(refuse)?;
    let mut trials: BTreeMap<(u32, Cell), EarlierTrial> = BTreeMap::new();
    for record in &stored.records {
        let Record::Cell {
            block,
            levels,
            samples,
            ..
        } = record
        else {
            continue;
        };
        let Some(mut cell) = fit.cell(levels) else {
            continue;
        };
        fit.check(&cell, levels).map_err(refuse)?;
        cell[factor] = level;
        // A later trial of the same takes the place of the one before.
        let place = (*block, cell.clone());
        match samples.first() {
            Some(sample) => {
                let trial = EarlierTrial {
                    block: *block,
                    levels: cell,
                    sample: sample.clone(),
                };
                trials.insert(place, trial);
            }
            None => drop(trials.remove(&place)),
        }
    }
    if trials.is_empty() {
        return Err(refuse("it has no trial of these combinations".to_owned()));
    }
    Ok(Record::Earlier(Box::new(Earlier {
        factor,
        level,
        run: folder.to_string(),
        header: stored.header.clone(),
        local,
        remote,
        trials: trials.into_values().collect(),
    })))
}

/// Two experiments, one of which has one more factor.
struct Fit<'a> {
    new: &'a Experiment,
    old: &'a Experiment,
    /// The factor that only the new one has.
    factor: usize,
    /// For each factor of the old one its place in the new one.
    places: Vec<usize>,
}

impl<'a> Fit<'a> {
    fn of(new: &'a Experiment, factor: usize, old: &'a Experiment) -> Result<Self, String> {
        let place = |name: &str| {
            let found = new.factors.iter().position(|one| one.name() == name);
            found.filter(|at| *at != factor)
        };
        let places: Option<Vec<usize>> = old.factors.iter().map(|one| place(one.name())).collect();
        let names = |experiment: &Experiment, without: Option<usize>| {
            let factors = experiment.factors.iter().enumerate();
            let names = factors.filter(|(at, _)| Some(*at) != without);
            names
                .map(|(_, one)| one.name())
                .collect::<Vec<_>>()
                .join(", ")
        };
        let places = places.filter(|places| places.len() + 1 == new.factors.len());
        let places = places.ok_or_else(|| {
            format!(
                "its factors are {}, expected {}",
                names(old, None),
                names(new, Some(factor))
            )
        })?;
        if let Some(Difference { what, one, other }) = difference_beside(old, new) {
            return Err(format!(
                "the {what} was {one} in that run and is {other} here"
            ));
        }
        Ok(Self {
            new,
            old,
            factor,
            places,
        })
    }

    /// The combination of the new experiment that one of the old is like, without its own factor; none where it has no
    /// such level.
    fn cell(&self, old: &[usize]) -> Option<Cell> {
        let mut cell = without_factors(self.new);
        for ((factor, level), place) in self.old.factors.iter().zip(old).zip(&self.places) {
            let Some(level) = factor.level(*level) else {
                // The old one was as it is without this factor.
                continue;
            };
            let of = &self.new.factors[*place];
            let names = of.level_names();
            cell[*place] = names.iter().position(|name| *name == level.name)?;
        }
        Some(cell)
    }

    /// Whether a combination means the same in both.
    fn check(&self, new: &[usize], old: &[usize]) -> Result<(), String> {
        debug_assert_eq!(new.len(), self.new.factors.len());
        debug_assert!(new[self.factor] >= self.new.factors[self.factor].levels.len());
        let (here, there) = (self.new.at(new), self.old.at(old));
        let at = self.old.level_names(old).join(", ");
        match difference_of_trials(&there, &here) {
            None => Ok(()),
            Some(Difference { what, one, other }) => Err(format!(
                "at {at} the {what} was {one} in that run and is {other} here"
            )),
        }
    }
}

/// What the reader of an effect of an earlier run must know: when it was, and what of the hosts differs.
pub fn note(sorted: &ExperimentRecords<'_>, header: &Header, earlier: &Earlier) -> String {
    let factor = &sorted.experiment.factors[earlier.factor];
    let level = factor.level(earlier.level).unwrap_or_default().name;
    let mut note = format!(
        "{} {level} is an earlier run ({}, {}), not interleaved with these: other changes over \
         time confound its effects",
        factor.name(),
        earlier.run,
        rfc3339(earlier.header.created_unix_s),
    );
    let (then, now) = (&earlier.header, header);
    let mut differ: Vec<String> = [
        ("peer", then.peer.as_str(), now.peer.as_str()),
        ("address", &then.address, &now.address),
        (
            "interface here",
            then.local_nic.as_str(),
            now.local_nic.as_str(),
        ),
        (
            "interface of the peer",
            then.remote_nic.as_str(),
            now.remote_nic.as_str(),
        ),
        ("linerate", &then.version, &now.version),
    ]
    .into_iter()
    .filter(|(_, then, now)| then != now)
    .map(|(what, then, now)| format!("{what} {then}, {now}"))
    .collect();
    if let Some((local, remote)) = sorted.hosts {
        differ.extend(differences(
            End::Local,
            &now.local_nic,
            &earlier.local,
            local,
        ));
        differ.extend(differences(
            End::Remote,
            &now.remote_nic,
            &earlier.remote,
            remote,
        ));
    }
    if !differ.is_empty() {
        note = format!("{note}; then and now: {}", differ.join("; "));
    }
    note
}

/// The differences between a host then and now, in words.
fn differences(end: End, nic: &NicName, then: &Host, now: &Host) -> Vec<String> {
    let changes = of_host(end, nic, then, now);
    let mut words: Vec<String> = changes
        .iter()
        .take(NAMED_MAX)
        .map(Change::in_words)
        .collect();
    if let more @ 1.. = changes.len().saturating_sub(NAMED_MAX) {
        words.push(format!("{more} more of the {end} host"));
    }
    words
}

/// The effects that are requested of each earlier run: it and the first level that was measured here, the later of the
/// two in the file against the other, alone and together with each other factor.
pub fn effects(sorted: &ExperimentRecords<'_>, laid: &ResolvedDesign) -> Vec<EffectTerms> {
    let mut effects = Vec::new();
    for EarlierRun { run: earlier, .. } in &sorted.earlier {
        let factor = earlier.factor;
        let Some(&here) = laid.kept[factor].first() else {
            continue;
        };
        let (low, high) = (here.min(earlier.level), here.max(earlier.level));
        for asked in sorted.experiment.asked() {
            if !asked.contains(&factor) {
                continue;
            }
            let Some(&other) = asked.iter().find(|at| **at != factor) else {
                effects.push(EffectTerms {
                    factors: vec![factor],
                    levels: vec![high],
                    against: vec![low],
                    at: Vec::new(),
                });
                continue;
            };
            let own_first = asked[0] == factor;
            let both = |own: usize, others: usize| {
                if own_first {
                    vec![own, others]
                } else {
                    vec![others, own]
                }
            };
            for level in laid.kept[other].iter().skip(1) {
                effects.push(EffectTerms {
                    factors: asked.clone(),
                    levels: both(high, *level),
                    against: both(low, laid.kept[other][0]),
                    at: Vec::new(),
                });
            }
        }
    }
    effects
}

/// An unpaired effect on a figure; none where either run has fewer than three whole blocks of what both have.
pub fn effect(
    sorted: &ExperimentRecords<'_>,
    laid: &ResolvedDesign,
    asked: &EffectTerms,
    response: Response,
    level: f64,
) -> Option<Effect> {
    let factor = sorted.earlier.first()?.run.factor;
    let own = asked.factors.iter().position(|at| *at == factor)?;
    let here = *laid.kept[factor].first()?;
    let (low, high) = (asked.against[own], asked.levels[own]);
    let other = (0..asked.factors.len()).find(|place| *place != own);
    let other = other.map(|place| {
        (
            asked.factors[place],
            asked.against[place],
            asked.levels[place],
        )
    });
    let at = |cell: &Cell, factor: usize, level: usize| {
        let mut cell = cell.clone();
        cell[factor] = level;
        cell
    };
    // Combinations that differ in nothing but the run; of two factors also in nothing but the other one.
    let in_both = |cell: &Cell| {
        let levels = match other {
            Some((factor, low, high)) => vec![at(cell, factor, low), at(cell, factor, high)],
            None => vec![cell.clone()],
        };
        let is_told = |cell: &Cell, run: usize| sorted.is_told(response, &at(cell, factor, run));
        let told = |cell: &Cell| is_told(cell, low) && is_told(cell, high);
        levels.iter().all(told)
    };
    let of_other = |cell: &Cell| other.is_none_or(|(factor, low, _)| cell[factor] == low);
    let cells: Vec<&Cell> = (laid.cells.iter())
        .filter(|cell| cell[factor] == here && of_other(cell) && in_both(cell))
        .collect();
    let blocks_of = |run: usize| {
        let of_block = |block: &u32| {
            let logs = cells.iter().map(|cell| {
                let cell = at(cell, factor, run);
                let log = |cell: &Cell| Some(sorted.value(response, *block, cell)?.ln());
                match other {
                    None => log(&cell),
                    Some((factor, low, high)) => {
                        Some(log(&at(&cell, factor, high))? - log(&at(&cell, factor, low))?)
                    }
                }
            });
            let logs: Vec<f64> = logs.collect::<Option<_>>()?;
            Some(mean(&logs).ok()?.exp())
        };
        let blocks = sorted.blocks_of(factor, run);
        blocks.iter().filter_map(of_block).collect::<Vec<f64>>()
    };
    unpaired_relative(&blocks_of(low), &blocks_of(high), level).ok()
}
