//! How far a run has come, from its records as they are appended.

use std::collections::{BTreeMap, VecDeque};

use linerate_model::lab::{Experiment, Response};
use linerate_model::sample::{Flag, Sample};

use crate::experiment::judge;
use crate::failover::FailoverTrial;
use crate::record::{Header, MeshFlow, Record, RunKind};
use crate::trial::figure::{self, figure, in_words, own_response};

/// The number of latest trials that are shown.
const LATEST: usize = 12;

/// How far a run has come.
#[derive(Debug)]
pub struct Progress {
    /// Its header.
    pub header: Header,
    /// The command that made it.
    pub kind: RunKind,
    /// Why it was stopped.
    pub stopped: Option<String>,
    /// Trials that were made, also those that others took the place of.
    pub trials: u64,
    /// Whether it went on after it had been stopped or killed.
    pub resumed: bool,
    /// For a proof, the remedies in the order they were tried.
    pub remedies: Vec<RemedyProgress>,
    /// The latest trials, the last one first.
    pub latest: VecDeque<Latest>,
    /// For an experiment, its plan.
    pub experiment: Option<Experiment>,
    /// Unavailable levels: factor, level.
    left: Vec<(usize, usize)>,
    /// The factors that have more than one level left: the others distinguish no trial.
    varied: Vec<usize>,
    /// The figure that decides, of each block and combination that was made; none where it has none.
    made: BTreeMap<(u32, Vec<usize>), Option<f64>>,
    /// That figure.
    response: Option<Response>,
    /// The classes of `qos verify`.
    classes: Vec<String>,
}

/// A remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemedyProgress {
    /// The rule that proposed it.
    pub rule: String,
    /// Whether it is kept; none while it is tested.
    pub kept: Option<bool>,
}

/// A trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latest {
    /// Of what.
    pub what: String,
    /// The result.
    pub told: String,
    /// What must be known to trust it.
    pub flags: Vec<Flag>,
}

/// What was made so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Means {
    /// Of which figure.
    pub response: Response,
    /// The names of the factors that are varied.
    pub factors: Vec<String>,
    /// Each combination, in the order of the design.
    pub cells: Vec<Mean>,
}

/// What was made of a combination so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Mean {
    /// The names of the levels of the factors that are varied.
    pub levels: Vec<String>,
    /// Trials that have the figure.
    pub trials: usize,
    /// Their mean, minimum and maximum.
    pub figures: Option<[f64; 3]>,
}

impl Progress {
    /// Of a run without records yet.
    pub fn new(kind: RunKind, header: Header) -> Self {
        Self {
            header,
            kind,
            stopped: None,
            trials: 0,
            resumed: false,
            remedies: Vec::new(),
            latest: VecDeque::new(),
            experiment: None,
            left: Vec::new(),
            varied: Vec::new(),
            made: BTreeMap::new(),
            response: None,
            classes: Vec::new(),
        }
    }

    /// What it is about: an experiment's title, else its command and peer.
    pub fn title(&self) -> String {
        match &self.experiment {
            Some(experiment) => experiment.title.clone(),
            None => format!("linerate {} {}", self.kind.word(), self.header.peer),
        }
    }

    /// Blocks and combinations that are done, and the planned minimum and maximum; only for an experiment is
    /// that known before its end.
    pub fn planned(&self) -> Option<(u64, u64, u64)> {
        let experiment = self.experiment.as_ref()?;
        let laid = judge::laid(experiment, &self.left).ok()?;
        let cells = laid.cells.len() as u64;
        let design = &experiment.design;
        let most = design.until.map_or(design.repeats, |_| design.at_most);
        let of = |repeats: u32| cells.saturating_mul(repeats.into());
        Some((self.made.len() as u64, of(design.repeats), of(most)))
    }

    /// What each combination of an experiment made so far.
    pub fn means(&self) -> Option<Means> {
        let experiment = self.experiment.as_ref()?;
        let response = self.response?;
        let laid = judge::laid(experiment, &self.left).ok()?;
        let mut values: BTreeMap<&[usize], Vec<f64>> = BTreeMap::new();
        for ((_, cell), value) in &self.made {
            values.entry(cell.as_slice()).or_default().extend(value);
        }
        let mean = |cell: &Vec<usize>| {
            let values = values.get(cell.as_slice()).map_or(&[][..], Vec::as_slice);
            let least = values.iter().copied().reduce(f64::min);
            let most = values.iter().copied().reduce(f64::max);
            let mean = figure::mean(response, values);
            let figures = mean.zip(least).zip(most);
            Mean {
                levels: self.names(cell),
                trials: values.len(),
                figures: figures.map(|((mean, least), most)| [mean, least, most]),
            }
        };
        let factors = self.varied.iter().map(|at| experiment.factors[*at].name());
        Some(Means {
            response,
            factors: factors.map(str::to_owned).collect(),
            cells: laid.cells.iter().map(mean).collect(),
        })
    }

    /// The names of a combination's levels, of the factors that are varied.
    fn names(&self, cell: &[usize]) -> Vec<String> {
        let all = self.experiment.as_ref();
        let all = all.map_or_else(Vec::new, |experiment| experiment.level_names(cell));
        let varied = self.varied.iter();
        varied.filter_map(|at| all.get(*at).cloned()).collect()
    }

    /// Looks which factors are varied.
    fn lay_out(&mut self) {
        let laid = (self.experiment.as_ref())
            .and_then(|experiment| judge::laid(experiment, &self.left).ok());
        self.varied = laid.map_or_else(Vec::new, |laid| laid.varied);
    }

    /// Takes the next record.
    pub fn add(&mut self, record: &Record) {
        self.kind = self.kind.and(record);
        match record {
            Record::Lab { experiment, .. } => {
                self.response = experiment.response.0.first().copied();
                self.experiment = Some((**experiment).clone());
                self.lay_out();
            }
            Record::LeftOut { factor, level, .. } => {
                self.left.push((*factor, *level));
                self.lay_out();
            }
            Record::Pilot(sample) => self.trial("pilot", sample),
            Record::Before(sample) => self.trial("before", sample),
            Record::Between(sample) => self.trial("between", sample),
            Record::After(sample) => self.trial("after", sample),
            Record::Explored {
                sample: Some(sample),
                ..
            } => self.trial("of the search", sample),
            Record::Cell {
                block,
                levels,
                samples,
                why,
            } => self.cell(*block, levels, samples, why.as_deref()),
            Record::Qos(asked) => self.classes.clone_from(&asked.classes),
            Record::MeshFlow(flow) => self.mesh_flow(flow),
            Record::QosTrial(trial) => {
                let what = trial.arm.in_words(&self.classes);
                let what = format!("round {}: {what}", trial.round.saturating_add(1));
                if let Some((_, sample)) = trial.samples.first() {
                    self.trial(&what, sample);
                }
            }
            Record::FailoverTrial(trial) => self.failover_trial(trial),
            Record::Remedy { rule, .. } => self.remedies.push(RemedyProgress {
                rule: rule.clone(),
                kept: None,
            }),
            Record::Staged {
                stage,
                without,
                sample,
                ..
            } => {
                let rules = without.iter();
                let rules = rules.filter_map(|remedy| self.remedies.get(*remedy));
                let rules: Vec<&str> = rules.map(|tried| tried.rule.as_str()).collect();
                let arm = if rules.is_empty() {
                    "all fixes".to_owned()
                } else {
                    format!("without {}", rules.join(", "))
                };
                self.trial(&format!("stage {}, {arm}", stage + 1), sample);
            }
            Record::Decided { remedy, kept, .. } => {
                if let Some(tried) = self.remedies.get_mut(*remedy) {
                    tried.kept = Some(*kept);
                }
            }
            Record::Stopped(why) => self.stopped = Some(why.clone()),
            Record::Resumed { .. } => {
                self.stopped = None;
                self.resumed = true;
            }
            _ => {}
        }
    }

    fn mesh_flow(&mut self, flow: &MeshFlow) {
        if let Some(sample) = &flow.sample {
            self.trial(&format!("round {}", flow.round.saturating_add(1)), sample);
        }
    }

    fn failover_trial(&mut self, trial: &FailoverTrial) {
        self.trials += 1;
        let what = format!("trial {}", self.trials);
        self.push(what, trial.in_words(), trial.sample.flags.clone());
    }

    fn cell(&mut self, block: u32, levels: &[usize], samples: &[Sample], why: Option<&str>) {
        let what = format!("block {}: {}", block + 1, self.names(levels).join(", "));
        // The first one is analyzed; the others ran at the same time.
        let Some(sample) = samples.first() else {
            self.made.insert((block, levels.to_vec()), None);
            let why = why.unwrap_or("no trial");
            self.push(what, format!("not possible: {why}"), Vec::new());
            return;
        };
        self.trial(&what, sample);
        let value = self.response.and_then(|response| figure(response, sample));
        self.made.insert((block, levels.to_vec()), value);
    }

    fn trial(&mut self, what: &str, sample: &Sample) {
        self.trials += 1;
        let response = *self.response.get_or_insert_with(|| own_response(sample));
        let told = figure(response, sample).map_or_else(
            || "no data moved".to_owned(),
            |value| in_words(response, value),
        );
        self.push(what.to_owned(), told, sample.flags.clone());
    }

    fn push(&mut self, what: String, told: String, flags: Vec<Flag>) {
        self.latest.truncate(LATEST - 1);
        self.latest.push_front(Latest { what, told, flags });
    }
}
