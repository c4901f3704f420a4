//! `measure stream --nic`: several NICs, each alone and all at once.
//!
//! A round is one trial of each NIC alone and one of all together, in random order, so that the host's drift cancels out of
//! their ratio. Each NIC has its own session with the peer. Only whole rounds count.

mod counters;
pub(crate) mod document;
mod text;

use std::collections::BTreeMap;
use std::path::Path as FilePath;

use counters::Counters;
use document::Trial;
use linerate_analysis::nics::bound::{Paths, SharedBound, shared_bound};
use linerate_analysis::nics::elsewhere::{Elsewhere, elsewhere};
use linerate_analysis::nics::load::Load;
use linerate_analysis::nics::{Figures, Round};
use linerate_analysis::record::Measurement;
use linerate_analysis::text::words::{count, seconds_in_words};
use linerate_analysis::trial::figure::Figures as TrialFigures;
use linerate_model::ceiling::Ceiling;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::ids::NicName;
use linerate_model::plan::End;
use linerate_model::sample::{Flag, Sample};
use linerate_model::units::{BitRate, Nanoseconds};
use linerate_model::workload::{TrialSpec, Workload};
use linerate_runtime::cli::{MeasureStream, NicArg};
use linerate_runtime::console::clock::now_unix_s;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::random::{fresh_seed, fresh_token};
use linerate_runtime::console::say::{Format, Say};
use linerate_runtime::endpoint::ends::Ends;
use linerate_runtime::endpoint::nics::open_paths;
use linerate_runtime::endpoint::together::run_together;
use linerate_runtime::endpoint::trial::PeerPath;
use linerate_stats::{Random, Seed};

use super::keep::{self, Between};
use super::live::confirm_early_end;
use super::measured::Measured;
use super::trial_spec::{self, placed};
use super::{EarlyEnd, OutputOptions};

/// The default duration of each trial: there are many of them.
const TIME: Nanoseconds = Nanoseconds::from_millis(2_000);
/// The default number of rounds: enough for an interval that is not much wider than with more.
const ROUNDS: u32 = 5;
/// Trials that only show whether the connections are answered.
const PROBE: Nanoseconds = Nanoseconds::from_millis(50);

/// The trials of a round: which NICs are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arm {
    Alone(usize),
    Together,
}

/// What whole rounds gave.
#[derive(Debug)]
struct Comparison {
    specs: Vec<TrialSpec>,
    seed: u64,
    planned: u32,
    keeps_raw: bool,
    nics: Vec<(NicName, NicName)>,
    rounds: Vec<Round>,
    alone: Vec<Load>,
    together: Vec<Load>,
    trials: Vec<Trial>,
    /// The lowest ceiling of each path, and what it did not carry.
    ceilings: Vec<Option<Ceiling>>,
    elsewhere: Vec<Vec<Elsewhere>>,
    /// What is stored of each arm.
    results: BTreeMap<String, Measurement>,
}

/// One trial of a round that may not become whole.
struct Measurable {
    arm: Arm,
    samples: Vec<Sample>,
    rates: Vec<Option<f64>>,
    elsewhere: Vec<Vec<Elsewhere>>,
    ceilings: Vec<Option<Ceiling>>,
}

/// Carries out `measure stream --nic`.
pub(super) fn run(
    args: &MeasureStream,
    state: &FilePath,
    output: OutputOptions<'_>,
) -> Outcome<()> {
    let say = output.say;
    let nics = &args.comparison.nic;
    check(nics)?;
    let Some(peer) = args.peer.peer() else {
        return Err(Stop::new(Code::Usage, "`--nic` needs a linerate peer"));
    };
    let mut asked = trial_spec::stream(&args.stream, None, TIME)?;
    if let Workload::Stream(stream) = &mut asked.workload {
        stream.data_check = args.data_check;
    }
    let interrupt = Interrupt::listen()?;
    let mut paths = open_paths(&peer, nics, state, &interrupt, say)?;
    let specs: Outcome<Vec<TrialSpec>> = paths
        .iter()
        .map(|path| placed(&args.stream.trial, asked.clone(), path.view()))
        .collect();
    let mut comparison = Comparison {
        seed: args.comparison.seed.map_or_else(fresh_seed, Ok)?,
        planned: args.comparison.rounds.unwrap_or(ROUNDS),
        keeps_raw: say.format == Format::Json,
        ..Comparison::of(&paths, specs?)
    };
    let began_unix_s = now_unix_s();
    comparison.announce(&paths, &peer.peer.to_string(), say);
    probe(&mut paths, &comparison.specs, say)?;
    confirm_early_end(&interrupt, say, None);
    let ended = comparison.measure(&mut paths, &interrupt, say);
    // The second Ctrl-C: no result.
    interrupt.check()?;
    let early = interrupt.is_ending_early();
    let Some(figures) = Figures::of(&comparison.rounds, Seed(comparison.seed)) else {
        ended?;
        return Err(if early {
            Stop::interrupted()
        } else {
            Stop::new(Code::Inconclusive, "no round has a rate of every NIC")
                .hint("use longer trials with `--time`")
        });
    };
    let stopped = match &ended {
        Err(stop) => Some(stop.to_string()),
        Ok(()) => early.then(|| Stop::interrupted().to_string()),
    };
    let bound = comparison.bound(&paths, &figures);
    let document = document::document(&comparison, &paths, &figures, bound.as_ref(), stopped);
    if say.format == Format::Json {
        say.json(&document)?;
    } else {
        say.lines(&text::text(&document))?;
    }
    let whole = count(comparison.rounds.len(), "round");
    let results = std::mem::take(&mut comparison.results);
    let between = || Between::ends(&paths[0], &peer, None);
    let results = results.into_values().collect();
    output.keep.keep(began_unix_s, between, results, &[]);
    ended?;
    for path in paths {
        path.peer.leave_after_result(say)?;
    }
    if early {
        return EarlyEnd::at(whole).or(say, || Ok(()));
    }
    Ok(())
}

/// Reports what makes no sense before the peer is contacted.
fn check(nics: &[NicArg]) -> Outcome<()> {
    for (number, one) in nics.iter().enumerate() {
        if nics[..number].iter().any(|other| other.nic == one.nic) {
            let why = format!("`--nic` names {} twice", one.nic);
            return Err(Stop::new(Code::Usage, why).hint("name different interfaces of this host"));
        }
    }
    if nics.len() < 2 {
        return Err(
            Stop::new(Code::Usage, "`--nic` compares at least two NICs, not one")
                .hint("name several, `--nic eth2,eth3`; `--address` chooses the path of one"),
        );
    }
    Ok(())
}

/// A short trial over each path: if the connections of a NIC are not answered while they are bound to it, they are bound to its
/// address only. The answers arrive at another NIC then, if both are in one subnet.
fn probe(paths: &mut [PeerPath], specs: &[TrialSpec], say: &Say) -> Outcome<()> {
    for (path, spec) in paths.iter_mut().zip(specs) {
        let short = TrialSpec {
            duration_ns: PROBE,
            interval_ns: PROBE,
            omit_ns: None,
            unrecorded: true,
            ..spec.clone()
        };
        let mut tried = path.run(&short, fresh_token()?);
        let is_unanswered =
            |stop: &Stop| matches!(stop.code, Code::PeerUnreachable | Code::TimeOut);
        if tried.as_ref().is_err_and(is_unanswered)
            && let Some(source) = &mut path.source
            && source.device.take().is_some()
        {
            say.note(&format!(
                "{}: no answer to connections bound to it; binding them to {} only, so that the \
                 routes choose the interface",
                path.local_nic, source.address
            ));
            tried = path.run(&short, fresh_token()?);
        }
        let nic = path.local_nic.clone();
        tried.map_err(|stop| over(&nic, stop))?;
    }
    Ok(())
}

/// An error of the trial over one interface.
fn over(nic: &NicName, stop: Stop) -> Stop {
    Stop {
        message: format!("over {nic}: {}", stop.message),
        ..stop
    }
}

impl Comparison {
    fn of(paths: &[PeerPath], specs: Vec<TrialSpec>) -> Self {
        let nics = paths
            .iter()
            .map(|path| (path.local_nic.clone(), path.remote_nic.clone()));
        Self {
            specs,
            seed: 0,
            planned: 0,
            keeps_raw: false,
            nics: nics.collect(),
            rounds: Vec::new(),
            alone: Vec::new(),
            together: Vec::new(),
            trials: Vec::new(),
            ceilings: vec![None; paths.len()],
            elsewhere: vec![Vec::new(); paths.len()],
            results: BTreeMap::new(),
        }
    }

    /// Announces what will happen and how long it takes.
    fn announce(&self, paths: &[PeerPath], peer: &str, say: &Say) {
        let over: Vec<String> = paths
            .iter()
            .map(|path| format!("{} to {}", path.local_nic, path.address))
            .collect();
        let each = self.specs.first().map_or(TIME, |spec| spec.duration_ns);
        let trials = u64::from(self.planned) * (paths.len() as u64 + 1);
        let total = Nanoseconds::new(each.as_u64().saturating_mul(trials));
        say.note(&format!(
            "measuring {} ({peer}), each alone and all together: {} in random order, {} in total (trials of {}), \
             seed {}; Ctrl-C ends it early",
            over.join(", "),
            count(self.planned as usize, "round"),
            seconds_in_words(total),
            seconds_in_words(each),
            self.seed,
        ));
    }

    /// Makes round after round until there are enough, or it is to end early.
    fn measure(&mut self, paths: &mut [PeerPath], interrupt: &Interrupt, say: &Say) -> Outcome<()> {
        let mut random = Random::new(Seed(self.seed));
        for number in 0..self.planned {
            let mut arms: Vec<Arm> = (0..paths.len()).map(Arm::Alone).collect();
            arms.push(Arm::Together);
            random.shuffle(&mut arms);
            let mut round = Vec::with_capacity(arms.len());
            for arm in arms {
                if interrupt.is_ending_early() {
                    return Ok(());
                }
                let trial = self.trial(paths, arm);
                let is_cut = |trial: &Measurable| {
                    let mut flags = trial.samples.iter().flat_map(|sample| &sample.flags);
                    flags.any(|flag| *flag == Flag::CutShort)
                };
                // A part of a trial, or one that failed because it was to end.
                if interrupt.is_ending_early() && !trial.as_ref().is_ok_and(|one| !is_cut(one)) {
                    return Ok(());
                }
                let trial = trial?;
                say.note(&self.in_words(number, &trial));
                round.push(trial);
            }
            self.take(number, round, say);
        }
        Ok(())
    }

    /// The trials of one arm.
    fn trial(&self, paths: &mut [PeerPath], arm: Arm) -> Outcome<Measurable> {
        let is_used = |number: usize| arm == Arm::Together || arm == Arm::Alone(number);
        let before = Counters::read(paths[0].endpoint.root());
        let used = paths.iter_mut().zip(&self.specs).enumerate();
        let used = used.filter(|(number, _)| is_used(*number));
        let samples = run_together(used.map(|(_, path)| path).collect())?;
        let grown = Counters::read(paths[0].endpoint.root()).since(&before);
        let mut done = Measurable {
            arm,
            samples: Vec::new(),
            rates: Vec::new(),
            elsewhere: Vec::new(),
            ceilings: Vec::new(),
        };
        let used = paths.iter().enumerate();
        let used = used.filter(|(number, _)| is_used(*number));
        for ((_, path), sample) in used.zip(samples) {
            // No bound by copies: that of one thread is no bound of several paths.
            let mut measured = Measured::over_path(path, sample, None);
            let nics = (&path.local_nic, &path.remote_nic);
            let missed = elsewhere(&measured.sample, nics, &grown);
            if !missed.is_empty() {
                measured.sample.flags.push(Flag::BytesOnAnotherInterface);
            }
            done.rates.push(measured.rate.map(BitRate::as_f64));
            done.elsewhere.push(missed);
            done.ceilings.push(measured.ceiling().cloned());
            done.samples.push(measured.sample);
        }
        Ok(done)
    }

    /// The numbers of the NICs of an arm.
    fn used(&self, arm: Arm) -> Vec<usize> {
        match arm {
            Arm::Alone(number) => vec![number],
            Arm::Together => (0..self.nics.len()).collect(),
        }
    }

    fn in_words(&self, round: u32, trial: &Measurable) -> String {
        let rates = self.used(trial.arm).into_iter().zip(&trial.rates);
        let rates: Vec<String> = rates
            .map(|(number, rate)| {
                let rate = rate.and_then(BitRate::from_f64);
                let rate = rate.map_or_else(|| "rate unknown".to_owned(), |rate| rate.to_string());
                format!("{} {rate}", self.nics[number].0)
            })
            .collect();
        let arm = match trial.arm {
            Arm::Alone(_) => "alone",
            Arm::Together => "together",
        };
        format!("round {}: {arm}: {}", round + 1, rates.join(", "))
    }

    /// Keeps a whole round; one that lacks a rate is left out.
    fn take(&mut self, number: u32, trials: Vec<Measurable>, say: &Say) {
        let mut round = Round {
            alone: vec![0.0; self.nics.len()],
            together: vec![0.0; self.nics.len()],
        };
        let is_known = |rate: &Option<f64>| rate.is_some_and(|rate| rate > 0.0);
        if !trials.iter().all(|trial| trial.rates.iter().all(is_known)) {
            say.note(&format!(
                "round {}: left out, because not every NIC has a rate",
                number + 1
            ));
            return;
        }
        for trial in trials {
            let load = Load::of(&trial.samples);
            match trial.arm {
                Arm::Alone(_) => self.alone.push(load),
                Arm::Together => self.together.push(load),
            }
            let parts = trial.samples.into_iter().zip(trial.rates);
            let facts = trial.elsewhere.into_iter().zip(trial.ceilings);
            let used = self.used(trial.arm).into_iter();
            for ((nic, (sample, rate)), (missed, ceiling)) in used.zip(parts).zip(facts) {
                match trial.arm {
                    Arm::Alone(_) => round.alone[nic] = rate.unwrap_or_default(),
                    Arm::Together => round.together[nic] = rate.unwrap_or_default(),
                }
                if !missed.is_empty() {
                    self.elsewhere[nic] = missed;
                }
                if ceiling.is_some() {
                    self.ceilings[nic] = ceiling;
                }
                self.keep(number, trial.arm, nic, (sample, rate));
            }
        }
        self.rounds.push(round);
    }

    /// Keeps one NIC's part of a trial.
    fn keep(&mut self, round: u32, arm: Arm, nic: usize, (sample, rate): (Sample, Option<f64>)) {
        let label = match arm {
            Arm::Alone(_) => format!("{} alone", self.nics[nic].0),
            Arm::Together => format!("{} together", self.nics[nic].0),
        };
        if let Some(result) = self.results.get_mut(&label) {
            result.figures.add(&sample);
        } else {
            let none = TrialFigures::default();
            let result = keep::of_sample(Some(label.clone()), sample.clone(), none, None, None);
            self.results.insert(label, result);
        }
        let name = self.nics[nic].0.clone();
        let trial = Trial::new(round, arm, name, rate, sample, self.keeps_raw);
        self.trials.push(trial);
    }

    /// The interfaces that carried the payload of each path, and the ends where that is not known.
    fn carriers(&self) -> (Vec<(NicName, NicName)>, Vec<End>) {
        let mut nics = self.nics.clone();
        let mut diverted = Vec::new();
        for (path, missed) in nics.iter_mut().zip(&self.elsewhere) {
            for one in missed {
                match (one.end, &one.over[..]) {
                    (End::Local, [over]) => path.0 = over.clone(),
                    (end, _) => diverted.push(end),
                }
            }
        }
        (nics, diverted)
    }

    fn bound(&self, paths: &[PeerPath], figures: &Figures) -> Option<SharedBound> {
        let first = paths.first()?;
        let (nics, diverted) = self.carriers();
        shared_bound(&Paths {
            local: &first.local,
            remote: &first.remote,
            nics: &nics,
            diverted: &diverted,
            direction: self.specs.first()?.direction,
            figures,
            alone: &self.alone,
            together: &self.together,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(text: &str) -> Vec<NicArg> {
        let all = text.split(',');
        all.map(|one| one.parse().expect("a NIC")).collect()
    }

    #[test]
    fn one_nic_and_the_same_nic_twice_are_usage_errors() {
        for (text, words) in [("a", "at least two"), ("a,b,a=10.0.0.1", "a twice")] {
            let stop = check(&args(text)).expect_err(text);
            assert_eq!(stop.code, Code::Usage);
            assert!(stop.message.contains(words), "{}", stop.message);
        }
        assert!(check(&args("a,b")).is_ok());
    }
}
