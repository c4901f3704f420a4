//! The one loop of linerate: measure, judge, try each remedy as an experiment, keep what helps, undo
//! the rest. Everything it does is recorded first and judged from the record.

use linerate_model::analysis;
use linerate_model::experiment::{Arm as DesignArm, PairedDesign};
use linerate_model::finding::{Diagnosis, Profile, Scene};
use linerate_model::ids::CpuSet;
use linerate_model::plan::{Change, End, Plan};
use linerate_model::propose::{Permit, Proposal, propose};
use linerate_model::protocol::{Reply, Request, Token};
use linerate_model::prove::EndChange;
use linerate_model::sample::Sample;
use linerate_model::setting::{SettingKey, TrialKnob, Value};
use linerate_model::workload::StreamSpec;
use linerate_stats::{Random, Seed};

use crate::analysis::{effect_of, rate_of};
use crate::exit::{Code, Outcome, Stop};
use crate::say::Say;
use crate::store::{Arm, Record, Run};
use crate::trial::Path;

/// Trials before and after: odd, so that one of them is the median, and enough for its 95 % interval
/// (six are needed).
pub const REPEATS: u32 = 7;
/// How often the rules are asked again after something helped.
const ROUNDS_MAX: u32 = 4;

/// What `prove` is asked to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// The trial.
    pub spec: StreamSpec,
    /// Pairs of each experiment.
    pub pairs: u32,
    /// The seed of every random choice.
    pub seed: u64,
    /// Whether everything is put back at the end.
    pub undo: bool,
    /// Whether removing a shaper may be tried.
    pub owns_shapers: bool,
}

/// A path under proof.
#[derive(Debug)]
pub struct Session<'a> {
    /// Both ends.
    pub path: &'a mut Path,
    /// Where everything is recorded.
    pub run: &'a mut Run,
    /// What was asked.
    pub options: Options,
    /// The voice.
    pub say: &'a Say,
    /// The next draw of every random choice.
    random: Random,
    /// The trial, as kept remedies and the arm of an experiment leave it.
    spec: StreamSpec,
    /// Remedies kept so far.
    kept: Vec<Kept>,
    /// Remedies tried so far.
    tried: Vec<Tried>,
}

/// A remedy that stays.
#[derive(Debug)]
struct Kept {
    changes: Vec<EndChange>,
}

/// A remedy that was tried, and how many were kept when it was.
#[derive(Debug)]
struct Tried {
    changes: Vec<EndChange>,
    kept_before: usize,
    kept: bool,
}

impl<'a> Session<'a> {
    /// A session over `path`, recorded in `run`.
    pub fn new(path: &'a mut Path, run: &'a mut Run, options: Options, say: &'a Say) -> Self {
        let random = Random::new(Seed(options.seed));
        let spec = options.spec.clone();
        Self {
            path,
            run,
            options,
            say,
            random,
            spec,
            kept: Vec::new(),
            tried: Vec::new(),
        }
    }

    /// The whole story. On an error everything is put back before it is reported.
    pub fn prove(mut self) -> Outcome<()> {
        let result = self.story();
        let Err(stop) = result else { return Ok(()) };
        // The record is for later; the reason to stop is for now.
        let _ = self.run.add(Record::Stopped(stop.message.clone()));
        match self.undo_everything() {
            Ok(()) => {
                let _ = self.run.add(Record::Ended {
                    restored: stop.code != Code::RestoreIncomplete,
                    kept: false,
                });
                Err(stop)
            }
            Err(failed) => {
                let message = format!("{}; before that: {}", failed.message, stop.message);
                Err(Stop::new(Code::RestoreIncomplete, message)
                    .hint("run `linerate tune recover` on both hosts"))
            }
        }
    }

    fn story(&mut self) -> Outcome<()> {
        let hosts = Record::Hosts {
            local: Box::new(self.path.local.clone()),
            remote: Box::new(self.path.remote.clone()),
        };
        self.run.add(hosts)?;
        let mut newest = self.repeat("before", Record::Before)?;
        for _ in 0..ROUNDS_MAX {
            let diagnosis = self.diagnose(&newest);
            self.run
                .add(Record::Diagnosis(Box::new(diagnosis.clone())))?;
            let kept_before = self.kept.len();
            let permit = Permit {
                shared_kernel: self.path.shared_kernel(),
                ..Permit::default()
            };
            for proposal in propose(&diagnosis.findings, permit).to_try {
                if let Some(sample) = self.try_remedy(&proposal)? {
                    newest = sample;
                }
            }
            if self.kept.len() == kept_before {
                break;
            }
            self.path.read_again()?;
        }
        self.repeat("after", Record::After)?;
        self.finish()
    }

    /// Several trials of the present state; gives back the last.
    fn repeat(&mut self, what: &str, record: fn(Box<Sample>) -> Record) -> Outcome<Sample> {
        let bar = self.say.progress(u64::from(REPEATS), what);
        let mut rates = Vec::new();
        let mut last = None;
        for _ in 0..REPEATS {
            let sample = self.trial()?;
            if let Some(rate) = rate_of(&sample) {
                rates.push(rate.as_f64());
                bar.step(&rate.to_string());
            }
            self.run.add(record(Box::new(sample.clone())))?;
            last = Some(sample);
        }
        bar.done(&crate::analysis::rates_in_words(&rates));
        last.ok_or_else(|| Stop::new(Code::Bug, "no trial was made"))
    }

    fn trial(&mut self) -> Outcome<Sample> {
        let mut sample = self.path.run(&self.spec, fresh_token()?)?;
        sample.flags = analysis::flags(&sample, &self.path.local, &self.path.remote, None, None);
        Ok(sample)
    }

    fn diagnose(&self, sample: &Sample) -> Diagnosis {
        diagnose_path(
            self.path,
            Some(sample),
            Profile::Throughput,
            self.options.owns_shapers,
        )
    }

    /// Tries a remedy; gives back a trial with it when it was kept.
    fn try_remedy(&mut self, proposal: &Proposal) -> Outcome<Option<Sample>> {
        let changes = proposal.changes.clone();
        // A remedy that did not help is worth another try only when something else has changed since.
        let seen = self.tried.iter().rfind(|tried| tried.changes == changes);
        if seen.is_some_and(|tried| tried.kept || tried.kept_before == self.kept.len()) {
            return Ok(None);
        }
        let remedy = self.tried.len();
        let kept_before = self.kept.len();
        let rule = proposal.rule.clone();
        self.run.add(Record::Remedy {
            remedy,
            rule,
            changes: changes.clone(),
        })?;
        let outcome = self.experiment(remedy, &changes, &proposal.rule);
        let (sample, kept, note) = match outcome {
            Ok(sample) => (Some(sample), self.helped(remedy), None),
            // What this kernel or user cannot change is no reason to stop; anything else is.
            Err(stop) if matches!(stop.code, Code::NotSupported | Code::PermissionMissing) => (
                None,
                false,
                Some(format!("could not be tried: {}", stop.message)),
            ),
            Err(stop) => return Err(stop),
        };
        if kept {
            self.apply(&changes)?;
            self.kept.push(Kept {
                changes: changes.clone(),
            });
        }
        if let Some(note) = &note {
            self.say.note(&format!("  {:<34} {note}", proposal.rule));
        }
        self.run.add(Record::Decided { remedy, kept, note })?;
        self.tried.push(Tried {
            changes,
            kept_before,
            kept,
        });
        Ok(sample.filter(|_| kept))
    }

    fn helped(&self, remedy: usize) -> bool {
        effect_of(self.run.records(), remedy, self.options.seed)
            .is_some_and(|effect| effect.low > 0.0)
    }

    /// Interleaved pairs of trials without and with the remedy, each pair in random order.
    fn experiment(&mut self, remedy: usize, changes: &[EndChange], rule: &str) -> Outcome<Sample> {
        let design = PairedDesign::new(self.options.pairs, self.options.seed)
            .map_err(|error| Stop::new(Code::Usage, error.to_string()))?;
        let order = design.order(&mut |bound| self.random.below(bound));
        let bar = self.say.progress(order.len() as u64, rule);
        let mut newest_with = None;
        for (place, arm) in order.into_iter().enumerate() {
            let arm = match arm {
                DesignArm::Without => Arm::Without,
                DesignArm::With => Arm::With,
            };
            let sample = if arm == Arm::With {
                self.with_changes(changes)?
            } else {
                self.trial()?
            };
            if let Some(rate) = rate_of(&sample) {
                bar.step(&format!(
                    "{} {rate}",
                    if arm == Arm::With { "with" } else { "without" }
                ));
            }
            if arm == Arm::With {
                newest_with = Some(sample.clone());
            }
            let pair = u32::try_from(place / 2).unwrap_or(u32::MAX);
            self.run.add(Record::Paired {
                remedy,
                pair,
                arm,
                sample: Box::new(sample),
            })?;
        }
        let effect = effect_of(self.run.records(), remedy, self.options.seed);
        bar.done(&crate::analysis::effect_in_words(effect.as_ref(), changes));
        newest_with
            .ok_or_else(|| Stop::new(Code::Bug, "the experiment has no trial with the remedy"))
    }

    fn with_changes(&mut self, changes: &[EndChange]) -> Outcome<Sample> {
        let spec = self.spec.clone();
        self.apply(changes)?;
        let sample = self.trial();
        let undone = undo_changes(self.path, changes);
        self.spec = spec;
        undone?;
        sample
    }

    /// Makes the changes on both ends, or none of them, and takes those of the trial into the next ones.
    fn apply(&mut self, changes: &[EndChange]) -> Outcome<()> {
        apply_changes(self.path, changes)?;
        for change in changes {
            change_trial(&mut self.spec, &change.change)?;
        }
        Ok(())
    }

    fn undo_everything(&mut self) -> Outcome<()> {
        let here = self.path.station.undo_all().map_err(Stop::from);
        let mut there = Ok(());
        while let Some(kept) = self.kept.pop() {
            if !plan_for(End::Remote, &kept.changes)?.changes.is_empty() {
                there = there.and(self.path.peer.undo());
            }
        }
        here.and(there)
    }

    /// Puts back or commits, and holds both hosts against what they were.
    fn finish(&mut self) -> Outcome<()> {
        let settings_kept: Vec<(End, SettingKey)> = if self.options.undo {
            self.undo_everything()?;
            Vec::new()
        } else {
            keep_changes(self.path)?;
            let changes = self.kept.drain(..).flat_map(|kept| kept.changes);
            changes
                .map(|change| (change.end, change.change.setting))
                .collect()
        };
        let Some(Record::Hosts { local, remote }) = self.run.records().first().cloned() else {
            return Err(Stop::new(Code::Bug, "the run has no hosts"));
        };
        self.path.read_again()?;
        let mut moved = crate::analysis::moved_settings(&local, &self.path.local, End::Local);
        moved.extend(crate::analysis::moved_settings(
            &remote,
            &self.path.remote,
            End::Remote,
        ));
        moved.retain(|setting| !settings_kept.contains(setting));
        for (end, setting) in &moved {
            self.say
                .note(&format!("  {end} {setting} is not as it was found"));
        }
        let kept = !settings_kept.is_empty();
        self.run.add(Record::Ended {
            restored: moved.is_empty(),
            kept,
        })
    }
}

/// What the rules say of both ends of a path.
pub fn diagnose_path(
    path: &Path,
    sample: Option<&Sample>,
    profile: Profile,
    owns_shapers: bool,
) -> Diagnosis {
    let ends = [
        (End::Local, &path.local, &path.local_nic, &path.remote),
        (End::Remote, &path.remote, &path.remote_nic, &path.local),
    ];
    let scenes = ends.map(|(end, host, nic, other)| Scene {
        end,
        host,
        nic: Some(nic),
        other: Some(other),
        sample,
        profile,
        owns_shapers,
    });
    let mut whole = Diagnosis::default();
    for scene in &scenes {
        let diagnosis = linerate_model::rules::diagnose(scene);
        whole.findings.extend(diagnosis.findings);
        whole.undetermined.extend(diagnosis.undetermined);
    }
    linerate_model::rules::sort(&mut whole.findings);
    whole
}

/// Makes changes on both ends of a path, or none of them. Placements are not a host's: they are left out.
pub fn apply_changes(path: &mut Path, changes: &[EndChange]) -> Outcome<()> {
    let (local, remote) = (
        plan_for(End::Local, changes)?,
        plan_for(End::Remote, changes)?,
    );
    if !local.changes.is_empty() {
        path.station.apply(&local)?;
    }
    if !remote.changes.is_empty()
        && let Err(stop) = path.peer.ask(&Request::Apply { plan: remote })
    {
        if !local.changes.is_empty() {
            path.station.undo()?;
        }
        return Err(stop);
    }
    Ok(())
}

/// Takes back what the last [`apply_changes`] did. Both ends are tried, whatever the first one says.
pub fn undo_changes(path: &mut Path, changes: &[EndChange]) -> Outcome<()> {
    let (local, remote) = (
        plan_for(End::Local, changes)?,
        plan_for(End::Remote, changes)?,
    );
    let there = if remote.changes.is_empty() {
        Ok(())
    } else {
        path.peer.undo().map_err(|stop| far_end_in_doubt(&stop))
    };
    let here = if local.changes.is_empty() {
        Ok(())
    } else {
        path.station.undo().map_err(Stop::from)
    };
    here.and(there)
}

/// A far end that did not confirm its undo may still be changed: that says more than why it is silent.
fn far_end_in_doubt(stop: &Stop) -> Stop {
    let message = format!("the far end may not be as before: {}", stop.message);
    Stop::new(Code::RestoreIncomplete, message).hint("run `linerate tune recover` on the far host")
}

/// Lets every change that is applied stay, on both ends.
pub fn keep_changes(path: &mut Path) -> Outcome<()> {
    path.station.commit()?;
    match path.peer.ask(&Request::Commit)? {
        Reply::Committed => Ok(()),
        _ => Err(Stop::new(Code::Bug, "an answer passed that does not fit")),
    }
}

fn plan_for(end: End, changes: &[EndChange]) -> Outcome<Plan> {
    let of_host = |change: &&EndChange| {
        change.end == end && !matches!(change.change.setting, SettingKey::Trial(_))
    };
    let changes = changes
        .iter()
        .filter(of_host)
        .map(|change| change.change.clone())
        .collect();
    Plan::new(changes).map_err(|error| Stop::new(Code::Bug, error.to_string()))
}

/// Takes a change of the trial into the next ones; other changes are for the hosts.
fn change_trial(spec: &mut StreamSpec, change: &Change) -> Outcome<()> {
    let (SettingKey::Trial(knob), Value::Text(text)) = (&change.setting, &change.to) else {
        return Ok(());
    };
    let cpus = || {
        text.parse::<CpuSet>().map_err(|error| {
            Stop::new(
                Code::Bug,
                format!("a rule proposed `{text}` for {}: {error}", change.setting),
            )
        })
    };
    match knob {
        TrialKnob::SenderCpus => spec.placement.sender_cpus = cpus()?,
        TrialKnob::ReceiverCpus => spec.placement.receiver_cpus = cpus()?,
        TrialKnob::CongestionControl => spec.congestion_control = Some(text.clone()),
    }
    Ok(())
}

/// A token that nobody can guess, from the kernel's generator.
pub fn fresh_token() -> Outcome<Token> {
    let mut token = [0u8; 16];
    rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| Stop::io("draw a random token", errno.into()))?;
    Ok(Token(token))
}

/// A seed from the kernel's generator, short enough to type.
pub fn fresh_seed() -> Outcome<u64> {
    let token = fresh_token()?;
    Ok(u64::from(u32::from_le_bytes([
        token.0[0], token.0[1], token.0[2], token.0[3],
    ])))
}
