//! A round: the fixes that are proposed for the present state, tested together.
//!
//! Each stage has trials with all fixes and trials without each that is still open, in one random order. After a stage
//! every open fix is decided, or gets another stage (`linerate_stats::staged` states their error rate). One that
//! harms is left out from then on. One that looks useless stays in place until the end of the round: if there are
//! several of them, they are left out together once, because two that do the same both look useless as long as
//! the other one is there.

use linerate_analysis::proof::{Stages, Verdict, effect_in_words, price_in_words, remedy_in_words};
use linerate_analysis::record::Record;
use linerate_analysis::text::words::count;
use linerate_analysis::trial::{is_disturbed, rate_of};
use linerate_model::exit::{Outcome, Stop};
use linerate_model::propose::Proposal;
use linerate_model::prove::EndChange;
use linerate_model::sample::Sample;
use linerate_stats::staged::{Sizes, TOGETHER};

use super::{Session, TestedRemedy};

/// A fix that is tested.
#[derive(Debug)]
struct Fix {
    proposal: Proposal,
    /// Its number in the record.
    remedy: usize,
    level: f64,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Helps,
    /// No effect was shown.
    Idle,
    /// It harms or cannot be made, and is not in place any more.
    Gone,
}

/// What the trials of a stage leave out, each set as often as it has trials.
type Order = Vec<Vec<usize>>;

impl Session<'_> {
    /// Runs the rules and tests their remedies. Returns a trial of the resulting state if another round may find more.
    pub(super) fn round(&mut self, newest: &Sample) -> Outcome<Option<Sample>> {
        let (package, mut again) = self.package(newest)?;
        let mut fixes = self.begin_all(package)?;
        let sizes = (fixes.first()).map(|first| self.options.sizes(fixes.len(), first.level));
        while let Some(sizes) = sizes
            && fixes.iter().any(|fix| fix.state == State::Open)
        {
            self.stage(&mut fixes, sizes)?;
        }
        // What harms may have hidden others; they get another chance.
        let is = |fixes: &[Fix], state| fixes.iter().any(|fix| fix.state == state);
        let masked = is(&fixes, State::Gone) && is(&fixes, State::Idle);
        let redundant = !masked && self.are_redundant(&fixes)?;
        again |= masked || redundant;
        let kept_before = self.kept;
        for fix in fixes.iter().filter(|fix| fix.state == State::Helps) {
            self.apply(&fix.proposal.changes)?;
            self.kept += 1;
            self.levels.kept(fix.level);
        }
        let weakest = redundant.then(|| self.weakest(&fixes)).flatten();
        for fix in &fixes {
            let retried = masked || weakest.is_some_and(|weakest| weakest != fix.remedy);
            match fix.state {
                State::Helps => self.tried.push(TestedRemedy {
                    changes: fix.proposal.changes.clone(),
                    kept_then: self.kept,
                    kept: true,
                }),
                State::Idle if !retried => self.not_kept(&fix.proposal.changes),
                _ => {}
            }
        }
        if self.kept == kept_before && !again {
            return Ok(None);
        }
        // The next proposals start from the new state of the hosts.
        self.stack.ends.read_again()?;
        let sample = self.trial()?;
        self.log.add(Record::Between(Box::new(sample.clone())))?;
        Ok(Some(sample))
    }

    fn begin_all(&mut self, package: Vec<Proposal>) -> Outcome<Vec<Fix>> {
        if package.is_empty() {
            return Ok(Vec::new());
        }
        let level = self.levels.for_round(package.len());
        let names: Vec<String> = package.iter().map(Proposal::name).collect();
        let mut fixes = Vec::new();
        for (place, proposal) in package.into_iter().enumerate() {
            let mut beside = names.clone();
            beside.remove(place);
            let remedy = self.begin(&proposal, level, beside)?;
            fixes.push(Fix {
                proposal,
                remedy,
                level,
                state: State::Open,
            });
        }
        Ok(fixes)
    }

    /// A stage for the open fixes, and what it decides.
    fn stage(&mut self, fixes: &mut [Fix], sizes: Sizes) -> Outcome<()> {
        let open = fixes.iter().filter(|fix| fix.state == State::Open);
        let mut order: Order = vec![Vec::new(); sizes.with];
        for fix in open {
            order.extend(vec![vec![fix.remedy]; sizes.without]);
        }
        self.trials(fixes, order)?;
        let mut decided = Vec::new();
        {
            let stages = Stages::of(self.log.records());
            for fix in fixes.iter_mut().filter(|fix| fix.state == State::Open) {
                let trials = stages.of_remedy(fix.remedy);
                let verdict = trials.verdict(&self.options.accepts_worse);
                fix.state = match verdict {
                    Verdict::Open => continue,
                    Verdict::Helps => State::Helps,
                    Verdict::Dear | Verdict::Slows => State::Gone,
                    Verdict::Nothing => State::Idle,
                };
                let price = price_in_words(&trials.worse(&self.options.accepts_worse));
                let price = price.filter(|_| verdict == Verdict::Dear);
                let words = effect_in_words(trials.effect().as_ref(), price.as_deref());
                decided.push((&*fix, price, words));
            }
        }
        for (fix, note, words) in decided {
            let label = remedy_in_words(&fix.proposal.rule, &fix.proposal.changes);
            self.say.result(&label, &words);
            if fix.state == State::Gone {
                self.not_kept(&fix.proposal.changes);
            }
            self.log.add(Record::Decided {
                remedy: fix.remedy,
                kept: fix.state == State::Helps,
                note,
            })?;
        }
        Ok(())
    }

    /// Whether fixes that each look useless have an effect together.
    fn are_redundant(&mut self, fixes: &[Fix]) -> Outcome<bool> {
        let idle = fixes.iter().filter(|fix| fix.state == State::Idle);
        let idle: Vec<usize> = idle.map(|fix| fix.remedy).collect();
        if idle.len() < 2 {
            return Ok(false);
        }
        let sizes = Sizes::of(1, TOGETHER, self.options.trials as usize);
        let mut order: Order = vec![Vec::new(); sizes.with];
        order.extend(vec![idle.clone(); sizes.without]);
        let mut fixes: Vec<Fix> = fixes.iter().map(Fix::again).collect();
        self.trials(&mut fixes, order)?;
        let effect = Stages::of(self.log.records()).without(&idle).together();
        Ok(effect.is_some_and(|effect| effect.low > 0.0))
    }

    /// The fix that looks most useless.
    fn weakest(&self, fixes: &[Fix]) -> Option<usize> {
        let stages = Stages::of(self.log.records());
        let idle = fixes.iter().filter(|fix| fix.state == State::Idle);
        let effect = |fix: &Fix| stages.of_remedy(fix.remedy).effect();
        let rated = idle.map(|fix| (effect(fix).map_or(-1.0, |one| one.relative), fix.remedy));
        let weakest = rated.min_by(|one, other| one.0.total_cmp(&other.0))?;
        Some(weakest.1)
    }

    /// The trials of a stage in random order. It ends early if a fix cannot be made beside the others: that one is gone.
    fn trials(&mut self, fixes: &mut [Fix], mut order: Order) -> Outcome<()> {
        self.random.shuffle(&mut order);
        let stage = self.stages;
        self.stages += 1;
        let open = fixes.iter().filter(|fix| fix.state == State::Open).count();
        let label = match open {
            0 => "fixes without effect together".to_owned(),
            open => format!("stage {}, {}", stage + 1, count(open, "open fix")),
        };
        let bar = self.say.progress(order.len() as u64, &label);
        // At most a trial in four: the run must end on a machine that is never quiet, too.
        let mut repeats = order.len() / 4;
        let mut rates = 0;
        for (place, without) in order.into_iter().enumerate() {
            let sample = match self.staged(fixes, stage, place, &without) {
                Ok(sample) => sample,
                Err(stop) if self.is_impossible(&stop) => {
                    if let Some((culprit, why)) = self.culprit(fixes, &without)? {
                        let fix = &mut fixes[culprit];
                        fix.state = State::Gone;
                        let (proposal, remedy) = (fix.proposal.clone(), fix.remedy);
                        return self.cannot_be_made(&proposal, remedy, why);
                    }
                    // Refused once, and not again.
                    self.staged(fixes, stage, place, &without)?
                }
                Err(stop) => return Err(stop),
            };
            // Whatever the arm: a repetition must not favor one of them.
            let sample = if repeats > 0 && is_disturbed(&sample) {
                repeats -= 1;
                self.staged(fixes, stage, place, &without)?
            } else {
                sample
            };
            rates += 1;
            let rate = rate_of(&sample).map_or_else(String::new, |rate| rate.to_string());
            let arm = match without.as_slice() {
                [] => "all fixes".to_owned(),
                [one] => format!("without {}", name_of(fixes, *one)),
                more => format!("without {}", count(more.len(), "fix")),
            };
            bar.step(&format!("{arm} {rate}"));
        }
        bar.done(&count(rates, "trial"));
        Ok(())
    }

    /// Runs and records one trial of a stage.
    fn staged(
        &mut self,
        fixes: &[Fix],
        stage: usize,
        place: usize,
        without: &[usize],
    ) -> Outcome<Sample> {
        let changes: Vec<EndChange> = in_place(fixes, without)
            .flat_map(|(_, fix)| fix.proposal.changes.iter().cloned())
            .collect();
        let sample = self.with_changes(&changes)?;
        self.log.add(Record::Staged {
            stage,
            place,
            without: without.to_vec(),
            sample: Box::new(sample.clone()),
        })?;
        Ok(sample)
    }

    /// The first fix that cannot be made beside those before it, and why.
    fn culprit(&mut self, fixes: &[Fix], without: &[usize]) -> Outcome<Option<(usize, Stop)>> {
        let mut changes = Vec::new();
        for (place, fix) in in_place(fixes, without) {
            changes.extend(fix.proposal.changes.iter().cloned());
            match self.with_changes(&changes) {
                Ok(_) => {}
                Err(stop) if self.is_impossible(&stop) => return Ok(Some((place, stop))),
                Err(stop) => return Err(stop),
            }
        }
        Ok(None)
    }
}

impl Fix {
    fn again(&self) -> Self {
        Self {
            proposal: self.proposal.clone(),
            ..*self
        }
    }
}

/// The fixes that are in place in a trial without `without`.
fn in_place<'f>(fixes: &'f [Fix], without: &[usize]) -> impl Iterator<Item = (usize, &'f Fix)> {
    let is_in_place =
        |(_, fix): &(usize, &Fix)| fix.state != State::Gone && !without.contains(&fix.remedy);
    fixes.iter().enumerate().filter(is_in_place)
}

fn name_of(fixes: &[Fix], remedy: usize) -> String {
    let fix = fixes.iter().find(|fix| fix.remedy == remedy);
    fix.map_or_else(String::new, |fix| fix.proposal.name())
}
