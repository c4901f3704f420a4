//! The records of an experiment, sorted: what was made of each combination, here and in earlier runs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use linerate_model::host::Host;
use linerate_model::ids::NicName;
use linerate_model::lab::{Cell, Experiment, Response};
use linerate_model::sample::Sample;

use crate::record::{Earlier, EarlierTrial, Record};
use crate::trial::figure::{figure, own_response};

/// The records of an experiment, sorted.
#[derive(Debug)]
pub struct ExperimentRecords<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// Unavailable levels: factor, level, why.
    pub left: Vec<(usize, usize, &'a str)>,
    /// The trials before.
    pub pilots: Vec<&'a Sample>,
    /// The trials of each block and combination, the last ones made.
    pub cells: BTreeMap<(u32, &'a [usize]), CellResult<'a>>,
    /// The earlier runs that are levels.
    pub earlier: Vec<EarlierRun<'a>>,
    /// Both hosts before anything was done.
    pub hosts: Option<(&'a Host, &'a Host)>,
    /// The other hosts that are levels: how each was named, both interfaces, the host.
    pub peers: Vec<PeerRecord<'a>>,
    /// Trials that others took the place of.
    pub set_aside: usize,
    /// Whether it completed.
    pub complete: bool,
    /// Why it was stopped.
    pub stopped: Option<&'a str>,
    /// Whether every setting is as it was found, as far as it is known.
    pub restored: Option<bool>,
}

/// Another host that is a level.
#[derive(Debug, Clone, Copy)]
pub struct PeerRecord<'a> {
    /// How it was named.
    pub at: &'a str,
    /// The interface that data to it leaves by.
    pub local_nic: &'a NicName,
    /// The interface that carries its address.
    pub remote_nic: &'a NicName,
    /// That address, if the run contains it.
    pub address: Option<IpAddr>,
    /// The host.
    pub host: &'a Host,
}

/// An earlier run that is a level, with its trials where they are requested.
#[derive(Debug)]
pub struct EarlierRun<'a> {
    /// The run.
    pub run: &'a Earlier,
    /// The blocks that it has trials of.
    blocks: BTreeSet<u32>,
    /// The trials of each combination, by their blocks.
    trials: BTreeMap<&'a [usize], BTreeMap<u32, &'a Sample>>,
}

/// What was made of a combination in a block.
#[derive(Debug, Clone, Copy)]
pub struct CellResult<'a> {
    /// The place among all trials, from 0.
    pub order: usize,
    /// The trials; none if it is unavailable.
    pub samples: &'a [Sample],
    /// Why there is none.
    pub why: Option<&'a str>,
}

/// Sorts the records of an experiment; none where they are of something else.
pub fn sort(records: &[Record]) -> Option<ExperimentRecords<'_>> {
    let experiment = records.iter().find_map(|record| match record {
        Record::Lab { experiment, .. } => Some(&**experiment),
        _ => None,
    })?;
    let mut sorted = ExperimentRecords {
        experiment,
        left: Vec::new(),
        pilots: Vec::new(),
        cells: BTreeMap::new(),
        earlier: Vec::new(),
        hosts: None,
        peers: Vec::new(),
        set_aside: 0,
        complete: false,
        stopped: None,
        restored: None,
    };
    let mut order = 0;
    for record in records {
        match record {
            Record::Hosts { local, remote } => {
                sorted.hosts.get_or_insert((local, remote));
            }
            Record::Peer {
                at,
                local_nic,
                remote_nic,
                address,
                host,
            } => sorted.peers.push(PeerRecord {
                at,
                local_nic,
                remote_nic,
                address: *address,
                host,
            }),
            Record::Earlier(earlier) if is_level(experiment, earlier) => {
                sorted.earlier.push(EarlierRun::of(earlier));
            }
            Record::LeftOut { factor, level, why } => sorted.left.push((*factor, *level, why)),
            Record::Pilot(sample) => sorted.pilots.push(sample),
            Record::Cell {
                block,
                levels,
                samples,
                why,
            } => {
                let made = CellResult {
                    order,
                    samples,
                    why: why.as_deref(),
                };
                order += 1;
                let before = sorted.cells.insert((*block, levels), made);
                sorted.set_aside += usize::from(before.is_some());
            }
            Record::Stopped(why) => sorted.stopped = Some(why),
            Record::Resumed { .. } => {
                sorted.stopped = None;
                // What was as it was found then need not be so now.
                sorted.restored = None;
            }
            Record::Ended { restored, .. } => {
                sorted.complete = sorted.stopped.is_none();
                sorted.restored = Some(*restored);
            }
            _ => {}
        }
    }
    Some(sorted)
}

/// A run may come from anybody: whether an earlier run is a level of this experiment.
fn is_level(experiment: &Experiment, earlier: &Earlier) -> bool {
    let level = experiment.factor_of_runs() == Some(earlier.factor)
        && (experiment.factors[earlier.factor].runs()).any(|(level, _)| level == earlier.level);
    let fits = |trial: &EarlierTrial| {
        trial.levels.len() == experiment.factors.len()
            && trial.levels.get(earlier.factor) == Some(&earlier.level)
    };
    level && earlier.trials.iter().all(fits)
}

impl<'a> EarlierRun<'a> {
    fn of(run: &'a Earlier) -> Self {
        let mut trials: BTreeMap<&[usize], BTreeMap<u32, &Sample>> = BTreeMap::new();
        for trial in &run.trials {
            let of_cell = trials.entry(&trial.levels).or_default();
            of_cell.entry(trial.block).or_insert(&trial.sample);
        }
        Self {
            run,
            blocks: run.trials.iter().map(|trial| trial.block).collect(),
            trials,
        }
    }
}

impl ExperimentRecords<'_> {
    /// The levels that are left out.
    pub fn left_out(&self) -> Vec<(usize, usize)> {
        let places = self.left.iter().map(|(factor, level, _)| (*factor, *level));
        places.collect()
    }

    /// The analyzed figures: those that the file names, else the workload's main one.
    pub fn responses(&self) -> Vec<Response> {
        let named = &self.experiment.response.0;
        if !named.is_empty() {
            return named.clone();
        }
        let first = self.cells.values().find_map(|made| made.samples.first());
        let first = first.or(self.pilots.first().copied());
        first.map(own_response).into_iter().collect()
    }

    /// A figure of a combination in a block: of this run, or of the earlier one that it belongs to.
    pub fn value(&self, response: Response, block: u32, cell: &[usize]) -> Option<f64> {
        let sample = match self.earlier_of(cell) {
            Some(earlier) => earlier.trials.get(cell)?.get(&block)?,
            None => self.cells.get(&(block, cell))?.samples.first()?,
        };
        figure(response, sample)
    }

    /// The figures of a combination in all blocks.
    pub fn values(&self, response: Response, cell: &[usize]) -> Vec<f64> {
        let samples = self.samples_of(cell).into_iter();
        samples
            .filter_map(|sample| figure(response, sample))
            .collect()
    }

    /// Whether a combination has a figure in any block.
    pub fn is_told(&self, response: Response, cell: &[usize]) -> bool {
        let mut samples = self.samples_of(cell).into_iter();
        samples.any(|sample| figure(response, sample).is_some())
    }

    /// The trials of a combination, of this run or of the earlier one that it belongs to, in the order of their blocks.
    fn samples_of(&self, cell: &[usize]) -> Vec<&Sample> {
        match self.earlier_of(cell) {
            Some(earlier) => {
                let of_cell = earlier.trials.get(cell);
                of_cell.map_or_else(Vec::new, |trials| trials.values().copied().collect())
            }
            None => self.samples(cell),
        }
    }

    /// The blocks of the run that a combination is of.
    pub fn blocks_of_cell(&self, cell: &[usize]) -> BTreeSet<u32> {
        match self.earlier_of(cell) {
            Some(earlier) => earlier.blocks.clone(),
            None => self.blocks(),
        }
    }

    /// The trials of a combination that were made in this run.
    pub fn samples(&self, cell: &[usize]) -> Vec<&Sample> {
        let blocks = self.blocks().into_iter();
        blocks
            .filter_map(|block| self.cells.get(&(block, cell))?.samples.first())
            .collect()
    }

    /// The earlier run that a combination is of.
    fn earlier_of(&self, cell: &[usize]) -> Option<&EarlierRun<'_>> {
        let mut earlier = self.earlier.iter();
        earlier.find(|earlier| cell.get(earlier.run.factor) == Some(&earlier.run.level))
    }

    /// The combinations of the earlier runs.
    pub fn earlier_cells(&self) -> BTreeSet<Cell> {
        let cells = (self.earlier.iter()).flat_map(|earlier| earlier.trials.keys());
        cells.map(|cell| cell.to_vec()).collect()
    }

    /// The blocks that were begun.
    pub fn blocks(&self) -> BTreeSet<u32> {
        self.cells.keys().map(|(block, _)| *block).collect()
    }

    /// Those of the run that a level of a factor is of.
    pub fn blocks_of(&self, factor: usize, level: usize) -> BTreeSet<u32> {
        let mut earlier = self.earlier.iter();
        let of = earlier.find(|one| (one.run.factor, one.run.level) == (factor, level));
        of.map_or_else(|| self.blocks(), |earlier| earlier.blocks.clone())
    }
}

#[cfg(test)]
mod tests {
    use linerate_model::build;

    use super::*;
    use crate::made_up;

    const THEN_AND_NOW: &str = "title = \"t\"\nworkload = \"stream\"\n\
        [[factors]]\nname = \"day\"\nlevels = [{ name = \"now\" }, { name = \"then\", run = \"old\" }]\n\
        [[factors]]\noption = \"flows\"\nlevels = [1, 12]\n";

    /// An experiment with an earlier run, whose trials stand in any order.
    fn records(trials: Vec<EarlierTrial>) -> Vec<Record> {
        let experiment =
            crate::experiment::definition::parse(THEN_AND_NOW).expect("a sound experiment");
        let (local, remote) = build::veth_pair();
        let earlier = Earlier {
            factor: 0,
            level: 1,
            run: "old".to_owned(),
            header: made_up::header(1, 0),
            local: Box::new(local),
            remote: Box::new(remote),
            trials,
        };
        vec![
            Record::Lab {
                experiment: Box::new(experiment),
                include_way_in: false,
                own_hosts: false,
            },
            made_up::hosts("far"),
            Record::Earlier(Box::new(earlier)),
            Record::Cell {
                block: 0,
                levels: vec![0, 0],
                samples: vec![*made_up::trial(1_000)],
                why: None,
            },
        ]
    }

    fn trial(block: u32, flows: usize, mbit: u64) -> EarlierTrial {
        EarlierTrial {
            block,
            levels: vec![1, flows],
            sample: *made_up::trial(mbit),
        }
    }

    #[test]
    fn trials_of_an_earlier_run_are_found_by_block_and_combination_in_whatever_order_they_stand() {
        let records = records(vec![
            trial(7, 1, 4_000),
            trial(2, 0, 2_000),
            trial(0, 1, 3_000),
            // A run may come from anybody: of two the first counts.
            trial(2, 0, 9_000),
        ]);
        let sorted = sort(&records).expect("an experiment");
        let of = |block, cell: [usize; 2]| {
            let rate = sorted.value(Response::Rate, block, &cell);
            rate.map(|rate| (rate / 1e6).round())
        };
        assert_eq!(of(2, [1, 0]), Some(2_000.0));
        assert_eq!(of(0, [1, 1]), Some(3_000.0));
        assert_eq!((of(0, [1, 0]), of(3, [1, 1])), (None, None));
        assert_eq!(of(0, [0, 0]), Some(1_000.0), "it is of this run");
        let values = sorted.values(Response::Rate, &[1, 1]);
        let values: Vec<f64> = values.iter().map(|rate| (rate / 1e6).round()).collect();
        assert_eq!(values, [3_000.0, 4_000.0], "by their blocks");
        assert!(sorted.is_told(Response::Rate, &[1, 0]));
        assert!(!sorted.is_told(Response::Rate, &[0, 1]));
        assert_eq!(sorted.blocks_of(0, 1), BTreeSet::from([0, 2, 7]));
        assert_eq!(sorted.blocks_of(0, 0), BTreeSet::from([0]));
        let cells = BTreeSet::from([vec![1, 0], vec![1, 1]]);
        assert_eq!(sorted.earlier_cells(), cells);
    }
}
