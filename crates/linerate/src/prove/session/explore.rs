//! Which settings are worth testing: `tune search` asks the path itself, not the rules.
//!
//! First every level of every factor is made and rolled back once, alone: what this kernel or user cannot change is
//! left out. Then come the trials of a screening design, in which each factor is changed in half of them; then
//! trials at the expected maximum of a surrogate model of all of them (`linerate_stats::surrogate`). The best point
//! of the surrogate, with as few changes as it needs, is then tested like any other remedies.

use std::time::Instant;

use linerate_analysis::record::Record;
use linerate_analysis::trial::rate_of;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::factor::{Factor, Site, factors};
use linerate_model::finding::Severity;
use linerate_model::plan::End;
use linerate_model::propose::{GIVEN, Proposal};
use linerate_model::prove::EndChange;
use linerate_model::sample::Sample;
use linerate_model::setting::Class;
use linerate_model::units::BitRate;
use linerate_stats::screening::{FACTORS_MAX, plackett_burman};
use linerate_stats::staged::{LOOKS, Levels, Sizes};
use linerate_stats::surrogate::{Point, Surrogate};

use super::{REPEATS, Session};

/// The share of the trials for exploration, in tenths; the others test what was found.
const LOOKING_TENTHS: u32 = 6;
/// What of those is for the screening design at most, in tenths.
const SCREENING_TENTHS: u32 = 5;
/// More trials without each remedy than this add little.
const TRIALS_MAX: u32 = 15;
/// A level that brings less than this share of the rate, or than half of the noise of a trial, by the surface, is
/// left as it was found ...
const TOLERANCE: f64 = 0.005;
/// ... and more, until the rest can be tested in the trials that are left.
const TOLERANCE_MAX: f64 = 0.5;

/// How much a search may try.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    /// Trials in all.
    pub trials: u32,
    /// When looking round ends at the latest.
    pub until: Option<Instant>,
}

impl Budget {
    /// The fewest trials that a search makes sense with: those before and after, a small screening, one remedy.
    pub const TRIALS_MIN: u32 = 2 * REPEATS + 16 + 10;

    /// Trials for looking round.
    pub fn looking(self) -> u32 {
        self.trials.saturating_sub(2 * REPEATS) * LOOKING_TENTHS / 10
    }

    /// Trials for weighing what was found.
    fn weighing(self) -> u32 {
        self.trials.saturating_sub(2 * REPEATS + self.looking())
    }

    /// Trials without each remedy in a stage, at least as many as requested, so that a stage uses half of what is left:
    /// the other half is for what is in doubt then. A badly configured path has a high variance: few trials would not show
    /// what is worth many times the rate.
    pub(super) fn trials_for(self, remedies: usize, asked: u32) -> u32 {
        let fits = |trials: &u32| self.has_room_for(remedies, *trials);
        (asked..=TRIALS_MAX).rev().find(fits).unwrap_or(asked)
    }

    /// The most remedies that a stage with this many trials without each has room for.
    fn remedies_for(self, trials: u32) -> usize {
        let fits = |remedies: &usize| self.has_room_for(*remedies, trials);
        (1..=FACTORS_MAX).take_while(fits).last().unwrap_or(1)
    }

    fn has_room_for(self, remedies: usize, trials: u32) -> bool {
        let level = Levels::default().for_round(remedies) * LOOKS[0];
        let stage = Sizes::of(remedies, level, trials as usize).total(remedies);
        u32::try_from(stage).is_ok_and(|stage| stage <= self.weighing() / 2)
    }
}

/// What was tried, and its result.
#[derive(Debug, Default)]
struct Observations {
    points: Vec<Point>,
    /// Natural logarithms of the rates.
    values: Vec<f64>,
    /// The last surface for which it was asked how much each factor counts.
    fitted: Option<Surrogate>,
}

impl Observations {
    fn add(&mut self, point: Point, rate: Option<BitRate>) {
        let value = rate
            .filter(|rate| rate.as_bit_per_s() > 0)
            .map(|rate| rate.as_f64().ln());
        // What cannot be made, or moves nothing, is worse than all else.
        let worst = self.values.iter().copied().fold(f64::INFINITY, f64::min);
        let worst = if worst.is_finite() { worst } else { 0.0 };
        self.points.push(point);
        self.values.push(value.unwrap_or(worst - 1.0));
    }

    /// The surrogate model of all points. The weight of each factor is fitted again when there are a fifth more
    /// trials than at the last fit.
    fn surface(&mut self) -> Outcome<Surrogate> {
        let number = self.points.len();
        let fresh = (self.fitted.as_ref())
            .filter(|fitted| number * 5 < fitted.seen() * 6)
            .and_then(|fitted| fitted.again(&self.points, &self.values).ok());
        if let Some(fresh) = fresh {
            return Ok(fresh);
        }
        let fitted = Surrogate::fit(&self.points, &self.values).map_err(|error| {
            Stop::new(
                Code::Bug,
                format!("cannot estimate the best settings: {error}"),
            )
        })?;
        Ok(self.fitted.insert(fitted).clone())
    }
}

impl Session<'_> {
    /// Looks for settings that make the path faster; returns what is worth weighing.
    pub(super) fn explore(&mut self, budget: Budget, before: &[Sample]) -> Outcome<Vec<Proposal>> {
        let factors = self.factors()?;
        self.log.add(Record::Factors(factors.clone()))?;
        if factors.is_empty() {
            self.say.note("no setting of this path can be varied here");
            return Ok(Vec::new());
        }
        let levels: Vec<usize> = factors.iter().map(|factor| factor.levels.len()).collect();
        self.say.note(&format!(
            "{} factors with {} levels in total; {} screening trials",
            factors.len(),
            levels.iter().sum::<usize>(),
            budget.looking(),
        ));
        let mut seen = Observations::default();
        for sample in before {
            seen.add(vec![0; factors.len()], rate_of(sample));
        }
        let bar = self.say.progress(u64::from(budget.looking()), "exploring");
        let is_late = || budget.until.is_some_and(|until| Instant::now() >= until);
        let screening = self.screening(&levels, budget.looking() * SCREENING_TENTHS / 10)?;
        let mut screening = screening.into_iter();
        for _ in 0..budget.looking() {
            if is_late() {
                break;
            }
            let (screens, point) = match screening.next() {
                Some(point) => (true, point),
                None => (false, seen.surface()?.next(&levels, &mut self.random)),
            };
            let rate = self.look(&factors, &point, screens)?;
            bar.step(&rate.map_or_else(|| "not possible".to_owned(), |rate| rate.to_string()));
            seen.add(point, rate);
        }
        let most = budget.remedies_for(self.options.trials);
        let found = self.choose(&mut seen, &levels, most)?;
        let proposals = proposals(&factors, &found);
        bar.done(&match proposals.len() {
            0 => "no candidate looks faster than the current settings".to_owned(),
            1 => "1 candidate setting".to_owned(),
            more => format!("{more} candidate settings"),
        });
        Ok(proposals)
    }

    /// What can be varied, without the levels that cannot be made here.
    fn factors(&mut self) -> Outcome<Vec<Factor>> {
        let site = |end| Site {
            end,
            host: self.stack.ends.host(end),
            nic: self.stack.ends.nic(end),
        };
        let sites = [site(End::Local), site(End::Remote)];
        let mut all = factors(&sites, self.permit(), self.options.owns_shapers);
        all.truncate(FACTORS_MAX);
        for factor in &mut all {
            let mut made = Vec::new();
            for level in std::mem::take(&mut factor.levels) {
                let tried = self
                    .apply(&level.changes)
                    .and_then(|()| self.stack.undo_newest());
                match tried {
                    Ok(()) => made.push(level),
                    Err(stop) => {
                        let why = self.stack.refused(stop)?;
                        let label = format!("{} {}", factor.name, level.words);
                        self.say.result(&label, &format!("skipped: {why}"));
                    }
                }
            }
            factor.levels = made;
        }
        all.retain(|factor| factor.levels.len() > 1);
        Ok(all)
    }

    /// The points of a screening design in random order, at most so many, each changed factor at one of its other
    /// levels.
    fn screening(&mut self, levels: &[usize], most: u32) -> Outcome<Vec<Point>> {
        let design = plackett_burman(levels.len())
            .map_err(|error| Stop::new(Code::Bug, error.to_string()))?;
        let mut points = Vec::new();
        for trial in design {
            let mut point = Point::new();
            for (changed, levels) in trial.into_iter().zip(levels) {
                let others = u64::try_from(levels - 1).unwrap_or(1);
                let other = usize::try_from(self.random.below(others)).unwrap_or(0);
                point.push(if changed { 1 + other } else { 0 });
            }
            points.push(point);
        }
        self.random.shuffle(&mut points);
        points.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        Ok(points)
    }

    /// One trial at a point; no rate where the point cannot be made.
    fn look(
        &mut self,
        factors: &[Factor],
        point: &[usize],
        screening: bool,
    ) -> Outcome<Option<BitRate>> {
        let sample = match self.with_changes(&changes(factors, point)) {
            Ok(sample) => Some(sample),
            Err(stop) => {
                self.stack.refused(stop)?;
                None
            }
        };
        let rate = sample.as_ref().and_then(rate_of);
        self.log.add(Record::Explored {
            levels: point.to_vec(),
            screening,
            sample: sample.map(Box::new),
        })?;
        Ok(rate)
    }

    /// The best point of the model, with at most this many factors changed.
    fn choose(&mut self, seen: &mut Observations, levels: &[usize], most: usize) -> Outcome<Point> {
        seen.fitted = None;
        let surface = seen.surface()?;
        let top = surface.top(levels, &mut self.random);
        let mut tolerance = TOLERANCE.max(surface.noise() / 2.0);
        loop {
            let point = surface.simplest(top.clone(), tolerance);
            let changed = point.iter().filter(|level| **level != 0).count();
            if changed <= most || tolerance > TOLERANCE_MAX {
                return Ok(point);
            }
            tolerance *= 1.5;
        }
    }
}

/// Everything that must be changed to be at a point.
fn changes(factors: &[Factor], point: &[usize]) -> Vec<EndChange> {
    let levels = factors.iter().zip(point);
    let levels = levels.filter_map(|(factor, level)| factor.levels.get(*level));
    levels
        .flat_map(|level| level.changes.iter().cloned())
        .collect()
}

/// The changed factors of a point, each as its own remedy.
fn proposals(factors: &[Factor], point: &[usize]) -> Vec<Proposal> {
    let levels = factors.iter().zip(point);
    let levels = levels.filter_map(|(factor, level)| Some((factor, factor.levels.get(*level)?)));
    let changed = levels.filter(|(_, level)| !level.changes.is_empty());
    let proposal = |(factor, level): (&Factor, &linerate_model::factor::Level)| {
        let classes = level
            .changes
            .iter()
            .map(|change| change.change.setting.spec().class);
        let end = level
            .changes
            .first()
            .map_or(End::Local, |change| change.end);
        Proposal {
            rule: GIVEN.to_owned(),
            subjects: vec![(end, factor.name.clone())],
            severity: Severity::Note,
            class: classes.max().unwrap_or(Class::R0),
            changes: level.changes.clone(),
        }
    };
    changed.map(proposal).collect()
}
