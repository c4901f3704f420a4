//! The rows of a run's trials, from its records.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use linerate_analysis::qos::verification::ArmTrial;
use linerate_analysis::record::{EndFacts, Header, Record, RunKind, flag_word};
use linerate_analysis::trial::operations::ops_per_s;
use linerate_analysis::trial::{figure, is_doubtful};
use linerate_model::analysis::{cost_of_local, cost_of_remote};
use linerate_model::exit::Outcome;
use linerate_model::factor::Factor as Searched;
use linerate_model::lab::{Experiment, Response};
use linerate_model::sample::{Sample, SideSample};
use linerate_model::units::{BitRate, Nanoseconds};
use linerate_model::workload::{Direction, TrialSpec, Workload};

use crate::{Records, RunLines, read_header};

/// The kinds of records that are trials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum TrialKind {
    /// Before any change.
    Before,
    /// Between two rounds.
    Between,
    /// With everything that was kept.
    After,
    /// A trial of a stage, with all remedies or without some.
    Staged,
    /// A trial of a search.
    Explored,
    /// Before an experiment, to see how trials scatter.
    Pilot,
    /// A trial of an experiment.
    Cell,
    /// A trial of `measure`.
    Measured,
    /// A trial of `qos verify`.
    QosTrial,
    /// A trial of `failover`.
    FailoverTrial,
}

impl TrialKind {
    /// Its word, which is that of the record.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::Between => "between",
            Self::After => "after",
            Self::Staged => "staged",
            Self::Explored => "explored",
            Self::Pilot => "pilot",
            Self::Cell => "cell",
            Self::Measured => "measured",
            Self::QosTrial => "qos-trial",
            Self::FailoverTrial => "failover-trial",
        }
    }
}

/// The levels of a trial of `qos verify`: its class, and which classes sent.
const OF_CLASSES: [&str; 2] = ["class", "trial"];

/// What all rows of a run have in common.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RunFacts {
    /// The name of its folder.
    pub name: String,
    /// Its header.
    pub header: Header,
    /// The command that made it.
    pub kind: RunKind,
    /// The host that linerate was started on.
    pub local: EndFacts,
    /// The peer.
    pub remote: EndFacts,
}

/// Another peer than the run's.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OtherPeer {
    /// How it was named.
    pub peer: String,
    /// Its host.
    pub facts: EndFacts,
    /// The interface that the data leaves by.
    pub local_nic: String,
    /// The resolved one.
    pub remote_nic: String,
}

/// A trial, or one that was unavailable.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    /// The kind of record that it is in.
    pub kind: TrialKind,
    /// Its place among those of its kind in its run, from 0, in the order in which they were made.
    pub order: u64,
    /// 0; for those that ran at the same time as the analyzed one, their number from 1.
    pub beside: u64,
    /// Whether another trial was made in its place.
    pub superseded: bool,
    /// Why there is no trial.
    pub skipped: Option<String>,
    /// The remedy's number, from 0.
    pub remedy: Option<u64>,
    /// The rule that proposed it.
    pub rule: Option<String>,
    /// Without the remedy, or with all.
    pub arm: Option<&'static str>,
    /// The stage, from 0.
    pub stage: Option<u64>,
    /// The block, from 0.
    pub block: Option<u64>,
    /// The factors' names, each with its level's.
    pub levels: Vec<(String, String)>,
    /// The remote end, where it is another one than the run's.
    pub other: Option<Arc<OtherPeer>>,
    /// The results; none if there is no trial.
    pub figures: Option<Figures>,
}

/// The results of a trial.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Figures {
    /// The workload.
    pub workload: &'static str,
    /// How.
    pub transport: &'static str,
    /// Connections in each direction that carries data.
    pub flows: u64,
    /// The direction.
    pub direction: &'static str,
    /// How long it was to last, or of a fixed amount at most.
    pub duration_s: f64,
    /// A stream's size of each send and receive, a datagram of `udp`; none of other workloads.
    pub buffer_bytes: Option<u64>,
    /// The measured rate without the warm-up, as the measurement reports it.
    pub rate_bit_per_s: Option<f64>,
    /// Operations a second.
    pub operations_per_s: Option<f64>,
    /// The mean of their times; for round trips, one direction.
    pub latency_mean_ns: Option<f64>,
    /// Half of them took no longer.
    pub latency_p50_ns: Option<u64>,
    /// 99 of 100 took no longer.
    pub latency_p99_ns: Option<u64>,
    /// CPU seconds of the data threads here for 10^9 bytes.
    pub cpu_local_s_per_gb: Option<f64>,
    /// The same of the peer's.
    pub cpu_remote_s_per_gb: Option<f64>,
    /// Of the CPU seconds here what was user time.
    pub user_local_s_per_gb: Option<f64>,
    /// Of the CPU seconds here what was system time.
    pub system_local_s_per_gb: Option<f64>,
    /// Of the peer's what was user time.
    pub user_remote_s_per_gb: Option<f64>,
    /// Of the peer's what was system time.
    pub system_remote_s_per_gb: Option<f64>,
    /// CPU microseconds of the data threads here for each operation.
    pub cpu_local_us_per_op: Option<f64>,
    /// The same of the peer's.
    pub cpu_remote_us_per_op: Option<f64>,
    /// Whether both ends ran on one kernel.
    pub shared_kernel: bool,
    /// Whether it is no measurement of what it was to measure.
    pub doubtful: bool,
    /// Why it may not be trusted, joined by blanks; empty where nothing is against it.
    pub flags: String,
}

impl Figures {
    /// Of a trial.
    pub(super) fn of(sample: &Sample) -> Self {
        let spec = &sample.spec;
        let times = figure::times(sample);
        let quantile = |share| times.quantile(share).map(Nanoseconds::as_u64);
        let cost = |side: &SideSample, cost: Option<f64>| cost.filter(|_| figure::tells_cpu(side));
        let of = |response| figure::figure(response, sample);
        let flags: Vec<String> = sample.flags.iter().map(|flag| flag_word(*flag)).collect();
        Self {
            workload: spec.workload.name(),
            transport: spec.transport(),
            flows: spec.flows.into(),
            direction: match spec.direction {
                Direction::Forward => "forward",
                Direction::Reverse => "reverse",
                Direction::Bidirectional => "bidirectional",
            },
            duration_s: spec.duration_ns.as_secs_f64(),
            buffer_bytes: buffer(spec),
            rate_bit_per_s: figure::rate(sample).map(BitRate::as_f64),
            operations_per_s: ops_per_s(sample),
            latency_mean_ns: times.mean_ns(),
            latency_p50_ns: quantile(0.5),
            latency_p99_ns: quantile(0.99),
            cpu_local_s_per_gb: cost(&sample.local, cost_of_local(sample).s_per_gb),
            cpu_remote_s_per_gb: cost(&sample.remote, cost_of_remote(sample).s_per_gb),
            user_local_s_per_gb: of(Response::UserLocal),
            system_local_s_per_gb: of(Response::SystemLocal),
            user_remote_s_per_gb: of(Response::UserPeer),
            system_remote_s_per_gb: of(Response::SystemPeer),
            cpu_local_us_per_op: figure::us_per_op(sample, &sample.local),
            cpu_remote_us_per_op: figure::us_per_op(sample, &sample.remote),
            shared_kernel: sample.shared_kernel,
            doubtful: is_doubtful(sample),
            flags: flags.join(" "),
        }
    }
}

fn buffer(spec: &TrialSpec) -> Option<u64> {
    match &spec.workload {
        Workload::Stream(_) => Some(spec.buffer_bytes.as_u64()),
        Workload::Udp(udp) => Some(udp.datagram_bytes.as_u64()),
        _ => None,
    }
}

/// A run's rows: a few hundred bytes per trial, whatever the size of the trial's record.
#[derive(Debug)]
pub(super) struct RunRows {
    /// What they have in common.
    pub facts: RunFacts,
    /// The rows, in the order of the record.
    pub rows: Vec<Row>,
    /// Whether the run's last record was torn and left out.
    pub torn: bool,
}

/// Reads the rows of a run.
pub(super) fn rows_of(folder: &Path) -> Outcome<RunRows> {
    let header = read_header(folder)?;
    let mut rows = Gathered::new(folder, header);
    let mut records = Records::open(folder)?;
    for record in &mut records {
        rows.add(&record?);
    }
    Ok(RunRows {
        facts: rows.facts,
        rows: rows.rows,
        torn: records.torn(),
    })
}

/// The names of a run's factors, as many as can be read: errors of a run are reported when its rows are read.
pub(super) fn factors_of(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let Ok(mut lines) = RunLines::open(folder) else {
        return names;
    };
    while let Ok(Some(line)) = lines.next_line() {
        // Behind the checksum and a blank. A trial may have megabytes, and is not of interest here.
        let json = line.get(9..).unwrap_or_default();
        let names_factors = [&b"\"lab\""[..], b"\"factors\"", b"\"qos\""];
        if !names_factors.into_iter().any(|key| is_of(json, key)) {
            continue;
        }
        match str::from_utf8(json).map(serde_json::from_str) {
            Ok(Ok(Record::Qos(_))) => names.extend(OF_CLASSES.map(str::to_owned)),
            Ok(Ok(Record::Lab { experiment, .. })) => {
                names.extend(experiment.factors.iter().map(|one| one.name().to_owned()));
            }
            Ok(Ok(Record::Factors(factors))) => {
                names.extend(factors.into_iter().map(|factor| factor.name));
            }
            _ => {}
        }
    }
    names
}

/// Whether the first key of a JSON object is `key`.
fn is_of(json: &[u8], key: &[u8]) -> bool {
    let object = json.trim_ascii_start().strip_prefix(b"{");
    object.is_some_and(|rest| rest.trim_ascii_start().starts_with(key))
}

/// The rows of a run whose records were read so far.
struct Gathered {
    facts: RunFacts,
    rows: Vec<Row>,
    experiment: Option<Box<Experiment>>,
    /// The other hosts of an experiment, as it names them.
    others: HashMap<String, Arc<OtherPeer>>,
    searched: Vec<Searched>,
    rules: HashMap<usize, String>,
    /// The classes of `qos verify`.
    classes: Vec<String>,
    /// How many of each kind were made.
    made: HashMap<TrialKind, u64>,
    /// Where the rows begin that stand for what is tried now.
    newest: HashMap<Place, usize>,
}

/// What is tried: the stage, the block, and the place in the stage or the levels.
type Place = (usize, u32, Vec<usize>);

impl Gathered {
    fn new(folder: &Path, header: Header) -> Self {
        // `.` has no name, and is somewhere all the same.
        let whole = folder.canonicalize();
        let name = whole.as_deref().unwrap_or(folder).file_name();
        Self {
            facts: RunFacts {
                name: name.unwrap_or_default().to_string_lossy().into_owned(),
                kind: RunKind::of_folder(whole.as_deref().unwrap_or(folder), &header),
                header,
                local: EndFacts::default(),
                remote: EndFacts::default(),
            },
            rows: Vec::new(),
            experiment: None,
            others: HashMap::new(),
            searched: Vec::new(),
            rules: HashMap::new(),
            classes: Vec::new(),
            made: HashMap::new(),
            newest: HashMap::new(),
        }
    }

    fn add(&mut self, record: &Record) {
        self.facts.kind = self.facts.kind.and(record);
        match record {
            Record::Hosts { local, remote } => {
                self.facts.local = EndFacts::of(local);
                self.facts.remote = EndFacts::of(remote);
            }
            Record::Peer {
                at,
                local_nic,
                remote_nic,
                host,
                ..
            } => {
                let other = OtherPeer {
                    peer: at.clone(),
                    facts: EndFacts::of(host),
                    local_nic: local_nic.to_string(),
                    remote_nic: remote_nic.to_string(),
                };
                self.others.insert(at.clone(), Arc::new(other));
            }
            Record::Lab { experiment, .. } => self.experiment = Some(experiment.clone()),
            Record::Factors(factors) => self.searched.clone_from(factors),
            Record::Remedy { remedy, rule, .. } => {
                self.rules.insert(*remedy, rule.clone());
            }
            Record::Before(sample) => self.one(TrialKind::Before, sample),
            Record::Between(sample) => self.one(TrialKind::Between, sample),
            Record::After(sample) => self.one(TrialKind::After, sample),
            Record::Pilot(sample) => self.one(TrialKind::Pilot, sample),
            Record::Staged {
                stage,
                place,
                without,
                sample,
            } => self.staged(*stage, *place, without, sample),
            Record::Explored { levels, sample, .. } => self.explored(levels, sample.as_deref()),
            Record::Qos(asked) => self.classes.clone_from(&asked.classes),
            Record::QosTrial(trial) => self.of_classes(trial),
            Record::FailoverTrial(trial) => self.one(TrialKind::FailoverTrial, &trial.sample),
            Record::Measured(measured) => {
                let row = self.row(TrialKind::Measured, measured.sample.as_ref());
                // Without raw counters there is no trial to describe.
                self.rows.extend(row.figures.is_some().then_some(row));
            }
            Record::Cell {
                block,
                levels,
                samples,
                why,
            } => self.cell(*block, levels, samples, why.as_deref()),
            _ => {}
        }
    }

    fn row(&mut self, kind: TrialKind, sample: Option<&Sample>) -> Row {
        let made = self.made.entry(kind).or_default();
        let order = *made;
        *made += 1;
        Row {
            kind,
            order,
            beside: 0,
            superseded: false,
            skipped: None,
            remedy: None,
            rule: None,
            arm: None,
            stage: None,
            block: None,
            levels: Vec::new(),
            other: None,
            figures: sample.map(Figures::of),
        }
    }

    fn one(&mut self, kind: TrialKind, sample: &Sample) {
        let row = self.row(kind, Some(sample));
        self.rows.push(row);
    }

    fn staged(&mut self, stage: usize, place: usize, without: &[usize], sample: &Sample) {
        let remedy = match without {
            [remedy] => Some(*remedy),
            _ => None,
        };
        let rules = without.iter().filter_map(|remedy| self.rules.get(remedy));
        let rules: Vec<&str> = rules.map(String::as_str).collect();
        let row = Row {
            remedy: remedy.map(|remedy| remedy as u64),
            rule: (!rules.is_empty()).then(|| rules.join(" ")),
            stage: Some(stage as u64),
            arm: Some(if without.is_empty() {
                "with"
            } else {
                "without"
            }),
            ..self.row(TrialKind::Staged, Some(sample))
        };
        self.take_the_place_of((stage, 0, vec![place]));
        self.rows.push(row);
    }

    fn explored(&mut self, levels: &[usize], sample: Option<&Sample>) {
        let named = self.searched.iter().zip(levels);
        let named = named.filter_map(|(factor, level)| {
            let level = factor.levels.get(*level)?;
            Some((factor.name.clone(), level.words.clone()))
        });
        let row = Row {
            levels: named.collect(),
            skipped: (sample.is_none()).then(|| "these levels cannot be combined".into()),
            ..self.row(TrialKind::Explored, sample)
        };
        self.rows.push(row);
    }

    /// A row for each class that had a part: its round is the block.
    fn of_classes(&mut self, trial: &ArmTrial) {
        let Some((_, first)) = trial.samples.first() else {
            return;
        };
        let row = Row {
            block: Some(trial.round.into()),
            ..self.row(TrialKind::QosTrial, Some(first))
        };
        for (beside, (class, sample)) in (0..).zip(&trial.samples) {
            let class = self.classes.get(*class).cloned().unwrap_or_default();
            self.rows.push(Row {
                beside,
                levels: OF_CLASSES
                    .map(str::to_owned)
                    .into_iter()
                    .zip([class, trial.arm.in_words(&self.classes)])
                    .collect(),
                figures: Some(Figures::of(sample)),
                ..row.clone()
            });
        }
    }

    fn cell(&mut self, block: u32, cell: &[usize], samples: &[Sample], why: Option<&str>) {
        let row = self.row(TrialKind::Cell, samples.first());
        let factors = self.experiment.iter().flat_map(|one| &one.factors);
        let named = factors.zip(cell).filter_map(|(factor, level)| {
            // None where the experiment is as it is without the factor.
            let level = factor.level(*level)?;
            Some((factor.name().to_owned(), level.name))
        });
        let of = self.experiment.as_ref();
        let other = of.and_then(|experiment| experiment.at(cell).peer.at);
        let row = Row {
            block: Some(block.into()),
            levels: named.collect(),
            other: other.and_then(|at| self.others.get(&at).cloned()),
            skipped: why.map(str::to_owned),
            ..row
        };
        // An experiment has no remedies.
        self.take_the_place_of((0, block, cell.to_vec()));
        let others = (1..).zip(samples.iter().skip(1));
        let others: Vec<Row> = others
            .map(|(beside, sample)| Row {
                beside,
                figures: Some(Figures::of(sample)),
                ..row.clone()
            })
            .collect();
        self.rows.push(row);
        self.rows.extend(others);
    }

    /// The rows that come next stand for what is tried at `place`: those that stood for it are superseded.
    fn take_the_place_of(&mut self, place: Place) {
        let before = self.newest.insert(place, self.rows.len());
        let Some(first) = before else { return };
        let order = self.rows.get(first).map(|row| (row.kind, row.order));
        let same = |row: &&mut Row| Some((row.kind, row.order)) == order;
        let rows = self.rows.iter_mut().skip(first);
        for row in rows.take_while(same) {
            row.superseded = true;
        }
    }
}
