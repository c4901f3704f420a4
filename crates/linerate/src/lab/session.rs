//! The loop of an experiment: omit what is not available here, see how trials scatter, and run the combinations in
//! randomized blocks.
//!
//! Each trial's settings are made by transactions before it and rolled back after it, so that the hosts are as they
//! were found whenever the loop stops. Everything is recorded first and analyzed from the record, and the order of a
//! block follows from the seed and the block's number alone: a killed run resumes where its record ends.

use std::net::IpAddr;

use linerate_analysis::experiment::judge::{self, ResolvedDesign};
use linerate_analysis::experiment::resolve::Resolver;
use linerate_analysis::experiment::sorted::sort;
use linerate_analysis::record::Record;
use linerate_analysis::trial::figure::{figure, in_words};
use linerate_analysis::trial::{LEVEL, is_doubtful, settling_flag};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::Host;
use linerate_model::ids::NicName;
use linerate_model::lab::Response;
use linerate_model::plan::End;
use linerate_model::sample::Sample;
use linerate_model::setting::SettingKey;
use linerate_model::trust;
use linerate_model::units::Nanoseconds;
use linerate_model::workload::TrialSpec;
use linerate_runtime::console::say::Say;
use linerate_runtime::endpoint::ends::Ends;
use linerate_stats::power::{blocks_for, detectable};
use linerate_stats::sequential::{is_look, level_at_look, number_of_looks};
use linerate_stats::{Random, Seed};
use linerate_store::Log;

use super::progress_table::ProgressTable;
use super::trials::{changes, trials};
use crate::prove::stack::{ChangeStack, RECOVER, moved_in_words};

/// Trials for the variance of trials.
const PILOTS: usize = 6;
/// Power for the effect that matters.
const POWER: f64 = 0.8;
/// Duration of a trial that only checks whether a level is available.
const PROBE: Nanoseconds = Nanoseconds::from_millis(200);

/// The options of a run besides its experiment.
#[derive(Debug, Clone, Copy)]
pub struct RunOptions {
    /// The seed of the order of trials and of the intervals.
    pub seed: u64,
    /// Whether it runs although it will probably not detect the effect that matters.
    pub anyway: bool,
}

/// The baseline of both hosts of a path.
#[derive(Debug)]
struct BaselineOfPath {
    /// The remote one, if it is not the experiment's peer.
    peer: Option<String>,
    hosts: [Host; 2],
    nics: [NicName; 2],
    address: IpAddr,
}

/// A running experiment.
#[derive(Debug)]
pub struct Session<'a> {
    stack: ChangeStack<'a>,
    log: &'a mut dyn Log,
    resolver: &'a Resolver,
    asked: RunOptions,
    say: &'a Say,
}

impl<'a> Session<'a> {
    /// An experiment between `ends`, recorded in `log`, which contains what was done before.
    pub fn new(
        ends: &'a mut dyn Ends,
        log: &'a mut dyn Log,
        resolver: &'a Resolver,
        asked: RunOptions,
        say: &'a Say,
    ) -> Self {
        Self {
            stack: ChangeStack::new(ends),
            log,
            resolver,
            asked,
            say,
        }
    }

    /// The complete run. However it ends, every setting is restored before that is reported.
    pub fn run(mut self) -> Outcome<()> {
        let found = self.find()?;
        let story = self.story(&found);
        if let Err(stop) = &story {
            let why = if stop.code == Code::Interrupted {
                "interrupted"
            } else {
                &stop.message
            };
            // The record is for later; the error is for now.
            let _ = self.log.add(Record::Stopped(why.to_owned()));
        }
        let put_back = self.put_back(&found);
        if let Ok(moved) = &put_back {
            moved_in_words(moved).for_each(|words| self.say.note(&words));
        }
        let ended = self.log.add(Record::Ended {
            restored: put_back.as_ref().is_ok_and(Vec::is_empty),
            kept: false,
        });
        match (story, put_back) {
            (Ok(()), Ok(_)) => ended,
            (Err(stop), Ok(_)) if stop.code == Code::RestoreIncomplete => Err(stop.hint(RECOVER)),
            (Err(stop), Ok(_)) if stop.code == Code::Interrupted && self.stack.has_changed() => {
                Err(stop.rolled_back())
            }
            (Err(stop), Ok(_)) => Err(stop),
            (Ok(()), Err(failed)) => Err(failed),
            (Err(stop), Err(failed)) => Err(failed.after(&stop.message)),
        }
    }

    /// The baseline of the hosts: with the peer, then with each other host.
    fn find(&mut self) -> Outcome<Vec<BaselineOfPath>> {
        let others = self.resolver.others().map(|name| Some(name.to_owned()));
        let mut found = Vec::new();
        for peer in std::iter::once(None).chain(others) {
            self.stack.turn(peer.as_deref())?;
            let ends = &*self.stack.ends;
            found.push(BaselineOfPath {
                hosts: [End::Local, End::Remote].map(|end| ends.host(end).clone()),
                nics: [End::Local, End::Remote].map(|end| ends.nic(end).clone()),
                address: ends.address(),
                peer,
            });
        }
        self.stack.turn(None)?;
        Ok(found)
    }

    /// Undoes what is open, and checks that every host equals its baseline. Returns what others changed.
    fn put_back(&mut self, found: &[BaselineOfPath]) -> Outcome<Vec<(End, SettingKey)>> {
        // Open transactions belong to the peer that was selected last.
        let now = self.stack.peer().map(str::to_owned);
        let (last, others): (Vec<&BaselineOfPath>, _) =
            found.iter().partition(|one| one.peer == now);
        let mut all = Ok(Vec::new());
        for one in last.into_iter().chain(others) {
            let [local, remote] = &one.hosts;
            let turned = self.stack.turn(one.peer.as_deref());
            let moved = turned.and_then(|()| self.stack.undo_everything(Some((local, remote))));
            all = match (all, moved) {
                (Ok(mut all), Ok(moved)) => {
                    // This host is inspected with each of the others.
                    let news = moved.into_iter().filter(|setting| !all.contains(setting));
                    let news: Vec<_> = news.collect();
                    all.extend(news);
                    Ok(all)
                }
                (Err(first), _) => Err(first),
                (_, Err(stop)) => Err(stop),
            };
        }
        all
    }

    fn story(&mut self, found: &[BaselineOfPath]) -> Outcome<()> {
        let begun = |record: &Record| matches!(record, Record::Pilot(_) | Record::Cell { .. });
        let begins = !self.log.records().iter().any(begun);
        for one in found {
            self.meet(one)?;
        }
        if begins {
            self.leave_out()?;
        }
        let laid = self.laid()?;
        self.see_scatter(&laid)?;
        self.blocks(&laid)
    }

    /// Records the hosts of a path; for a resumed run, the path must be the same.
    fn meet(&mut self, found: &BaselineOfPath) -> Outcome<()> {
        let [local_nic, remote_nic] = &found.nics;
        let known = self.log.records().iter().find_map(|record| match record {
            Record::Hosts { .. } if found.peer.is_none() => Some(None),
            Record::Peer {
                at,
                local_nic,
                remote_nic,
                ..
            } if Some(at) == found.peer.as_ref() => Some(Some((local_nic, remote_nic))),
            _ => None,
        });
        match (known, &found.peer) {
            (Some(Some(before)), Some(peer)) if before != (local_nic, remote_nic) => {
                let why = format!(
                    "the run reached {peer} from {} to {}, but the path is now from {local_nic} \
                     to {remote_nic}",
                    before.0, before.1
                );
                Err(Stop::new(Code::NotSupported, why).hint("start a new run"))
            }
            (Some(_), _) => Ok(()),
            (None, peer) => {
                let [local, remote] = found.hosts.clone().map(Box::new);
                self.log.add(match peer {
                    None => Record::Hosts { local, remote },
                    Some(peer) => Record::Peer {
                        at: peer.clone(),
                        local_nic: local_nic.clone(),
                        remote_nic: remote_nic.clone(),
                        address: Some(found.address),
                        host: remote,
                    },
                })
            }
        }
    }

    fn laid(&self) -> Outcome<ResolvedDesign> {
        judge::laid(&self.resolver.experiment, &self.left_out())
    }

    fn left_out(&self) -> Vec<(usize, usize)> {
        let records = self.log.records().iter();
        records
            .filter_map(|record| match record {
                Record::LeftOut { factor, level, .. } => Some((*factor, *level)),
                _ => None,
            })
            .collect()
    }

    /// Tries every level once, alone: what this host or peer does not support is omitted, as is what is known not to be.
    fn leave_out(&mut self) -> Outcome<()> {
        let alone = judge::without_factors(&self.resolver.experiment);
        self.probe(&alone)??;
        let before = self.left_out();
        for (factor, level, why) in self.resolver.unsupported() {
            if !before.contains(&(factor, level)) {
                // The plan has it.
                self.log.add(Record::LeftOut { factor, level, why })?;
            }
        }
        for factor in 0..alone.len() {
            for level in 0..alone[factor] {
                let is_left_out = self.left_out().contains(&(factor, level));
                if is_left_out || self.resolver.is_earlier(factor, level) {
                    continue;
                }
                let mut cell = alone.clone();
                cell[factor] = level;
                if let Err(stop) = self.probe(&cell)? {
                    self.leave(factor, level, &stop.message)?;
                }
            }
        }
        Ok(())
    }

    fn leave(&mut self, factor: usize, level: usize, why: &str) -> Outcome<()> {
        let of = &self.resolver.experiment.factors[factor];
        let name = of.level(level).unwrap_or_default().name;
        self.say
            .result(&format!("{} {name}", of.name()), &format!("skipped: {why}"));
        self.log.add(Record::LeftOut {
            factor,
            level,
            why: why.to_owned(),
        })
    }

    /// Whether a combination is available; the inner stop is the reason.
    fn probe(&mut self, cell: &[usize]) -> Outcome<Result<(), Stop>> {
        let specs = match trials(self.resolver, cell) {
            Ok(specs) => specs,
            Err(stop) if stop.code == Code::NotSupported || self.resolver.is_out_of_reach(cell) => {
                return Ok(Err(stop));
            }
            Err(stop) => return Err(stop),
        };
        let short = |spec: &TrialSpec| {
            let mut spec = spec.clone();
            if !spec.workload.ends_by_itself() && spec.duration_ns > PROBE {
                spec.duration_ns = PROBE;
                spec.interval_ns = spec.interval_ns.min(PROBE);
            }
            spec
        };
        let specs: Vec<TrialSpec> = specs.iter().map(short).collect();
        match self.trial(cell, &specs) {
            Ok(_) => Ok(Ok(())),
            Err(stop) => {
                let code = stop.code;
                let why = self.not_to_be_had(stop)?;
                Ok(Err(Stop::new(code, why)))
            }
        }
    }

    /// Passes a stop through, unless it means that a combination is not available here and the hosts are unchanged.
    fn not_to_be_had(&self, stop: Stop) -> Outcome<String> {
        if stop.code == Code::Resource && !self.stack.is_in_doubt() {
            return Ok(stop.message);
        }
        self.stack.refused(stop)
    }

    /// One trial of a combination, with its settings made before it and rolled back after it.
    fn trial(&mut self, cell: &[usize], specs: &[TrialSpec]) -> Outcome<Vec<Sample>> {
        let wanted = self.resolver.settings(cell)?;
        let at = self.resolver.experiment.at(cell);
        self.stack.turn(at.peer.at.as_deref())?;
        let changes = changes(self.stack.ends, &wanted)?;
        self.stack.ends.aim(at.address.as_deref())?;
        self.stack.apply(&changes)?;
        let samples = self.stack.ends.trials(specs);
        let undone = self.stack.undo_newest();
        let mut samples = samples?;
        undone?;
        let (local, remote) = (
            self.stack.ends.host(End::Local),
            self.stack.ends.host(End::Remote),
        );
        for sample in &mut samples {
            sample.flags = trust::flags(sample, local, remote, None, None);
            sample.flags.extend(settling_flag(sample));
        }
        Ok(samples)
    }

    /// Measures the variance of trials of one combination, and whether the effect that matters would be detected.
    fn see_scatter(&mut self, laid: &ResolvedDesign) -> Outcome<()> {
        let experiment = &self.resolver.experiment;
        let design = &experiment.design;
        let Some(effect) = design.effect else {
            return Ok(());
        };
        let cell = laid.cells[0].clone();
        let specs = trials(self.resolver, &cell)?;
        let is_pilot = |record: &&Record| matches!(record, Record::Pilot(_));
        let made = self.log.records().iter().filter(is_pilot).count();
        if made < PILOTS {
            let bar = self.say.progress((PILOTS - made) as u64, "scatter");
            for _ in made..PILOTS {
                let samples = self.trial(&cell, &specs)?;
                let Some(sample) = samples.into_iter().next() else {
                    continue;
                };
                self.log.add(Record::Pilot(Box::new(sample)))?;
                bar.step("");
            }
            bar.done(&format!("{PILOTS} trials"));
        }
        let sorted = sort(self.log.records());
        let Some(sorted) = sorted else { return Ok(()) };
        let Some(response) = sorted.responses().first().copied() else {
            return Ok(());
        };
        let Some(scatter) = judge::scatter(&sorted.pilots, response) else {
            return Ok(());
        };
        let Some((name, times)) = laid.spreads(experiment).into_iter().next() else {
            return Ok(());
        };
        let (most, level) = if design.until.is_some() {
            let looks = number_of_looks(design.repeats as usize, design.at_most as usize);
            (design.at_most, level_at_look(LEVEL, looks))
        } else {
            (design.repeats, LEVEL)
        };
        let wrong = |error: linerate_stats::StatsError| Stop::new(Code::Bug, error.to_string());
        let spread = scatter * times;
        let seen = detectable(spread, most as usize, level, POWER).map_err(wrong)?;
        let words = format!(
            "trials vary by {:.2} % here: {most} repeats detect an effect of {:.2} % of `{name}` \
             with 80 % power",
            scatter * 100.0,
            seen * 100.0
        );
        if seen <= effect.0 || self.asked.anyway {
            self.say.note(&words);
            return Ok(());
        }
        let enough = blocks_for(effect.0, spread, most as usize, level, POWER).map_err(wrong)?;
        let hint = enough.map_or_else(
            || "use longer trials (`--time`)".to_owned(),
            |enough| format!("use `--repeats {enough}` or longer trials (`--time`)"),
        );
        let why = format!("{words}, but the smallest effect of interest is {effect}");
        Err(Stop::new(Code::Inconclusive, why).hint(format!("{hint}, or run it with `--force`")))
    }

    /// Runs the remaining blocks. With `until`, the effects are looked at after the planned repeats and then rarely: each
    /// look costs precision.
    fn blocks(&mut self, laid: &ResolvedDesign) -> Outcome<()> {
        let design = self.resolver.experiment.design.clone();
        let most = design.until.map_or(design.repeats, |_| design.at_most);
        for block in 0..most {
            if is_look(design.repeats as usize, block as usize) && self.is_certain(laid) {
                break;
            }
            self.block(laid, block, most)?;
        }
        if design.until.is_some() && !self.is_certain(laid) {
            self.say.note(&format!(
                "after {most} repeats not every effect has the requested precision"
            ));
        }
        Ok(())
    }

    /// Whether every requested effect has the requested precision.
    fn is_certain(&self, laid: &ResolvedDesign) -> bool {
        let Some(until) = self.resolver.experiment.design.until else {
            return false;
        };
        let sorted = sort(self.log.records());
        let widest = sorted.and_then(|sorted| sorted.widest(laid, self.asked.seed));
        widest.is_some_and(|half| half <= until.0)
    }

    fn block(&mut self, laid: &ResolvedDesign, block: u32, most: u32) -> Outcome<()> {
        let mut order = laid.cells.clone();
        order_of(self.asked.seed, block).shuffle(&mut order);
        let done: Vec<Vec<usize>> = self.done_in(block);
        let label = format!("block {} of {most}", block + 1);
        let bar = self.say.progress(order.len() as u64, &label);
        let sorted = sort(self.log.records());
        let mut table = ProgressTable::of(&self.resolver.experiment, laid, sorted.as_ref());
        bar.show(|room| table.lines(room));
        for cell in order {
            let names = self.resolver.experiment.level_names(&cell).join(", ");
            if done.contains(&cell) {
                bar.step(&names);
                continue;
            }
            let told = match self.cell(block, &cell)? {
                Ok(Some((response, value))) => {
                    table.add(&cell, response, value);
                    in_words(response, value)
                }
                Ok(None) => "no data moved".to_owned(),
                Err(why) => format!("not possible: {why}"),
            };
            bar.step(&format!("{names}: {told}"));
            bar.show(|room| table.lines(room));
        }
        bar.done(&format!("{} trials", laid.cells.len()));
        Ok(())
    }

    fn done_in(&self, block: u32) -> Vec<Vec<usize>> {
        let records = self.log.records().iter();
        records
            .filter_map(|record| match record {
                Record::Cell {
                    block: of, levels, ..
                } if *of == block => Some(levels.clone()),
                _ => None,
            })
            .collect()
    }

    /// Runs and records a combination in a block; an untrustworthy one is repeated once. Returns the
    /// figure that decides, or why there is none.
    fn cell(
        &mut self,
        block: u32,
        cell: &[usize],
    ) -> Outcome<Result<Option<(Response, f64)>, String>> {
        let specs = match trials(self.resolver, cell) {
            Ok(specs) => specs,
            // Each level is available alone, but not on the peer or the device of this combination.
            Err(stop) if stop.code == Code::NotSupported => {
                let why = stop.message;
                self.log.add(Record::Cell {
                    block,
                    levels: cell.to_vec(),
                    samples: Vec::new(),
                    why: Some(why.clone()),
                })?;
                return Ok(Err(why));
            }
            Err(stop) => return Err(stop),
        };
        for may_repeat in [true, false] {
            let (samples, why) = match self.trial(cell, &specs) {
                Ok(samples) => (samples, None),
                Err(stop) => (Vec::new(), Some(self.not_to_be_had(stop)?)),
            };
            let again = may_repeat && samples.first().is_some_and(is_doubtful);
            let told = samples.first().map(|sample| self.told(sample));
            self.log.add(Record::Cell {
                block,
                levels: cell.to_vec(),
                samples,
                why: why.clone(),
            })?;
            if let Some(why) = why {
                return Ok(Err(why));
            }
            if !again {
                return Ok(Ok(told.flatten()));
            }
        }
        Ok(Ok(None))
    }

    fn told(&self, sample: &Sample) -> Option<(Response, f64)> {
        let named = self.resolver.experiment.response.0.first().copied();
        let response =
            named.unwrap_or_else(|| linerate_analysis::trial::figure::own_response(sample));
        Some((response, figure(response, sample)?))
    }
}

/// The seed of a block's order.
fn order_of(seed: u64, block: u32) -> Random {
    // An odd multiplier (2^64 over the golden ratio) keeps the blocks' seeds apart.
    let block = u64::from(block).wrapping_add(1);
    Random::new(Seed(seed ^ block.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}
