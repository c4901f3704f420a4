//! Resolves a combination of levels into trials, placed according to both hosts' maps, and settings.
//!
//! Options of a workload are those of `linerate measure`, read by the same parser, so that a level is written as
//! on the command line and means the same.

use std::collections::BTreeMap;

use clap::{Arg, Command, Parser, Subcommand};
use linerate_model::host::{Host, Nic, QueueKind};
use linerate_model::ids::{CpuSet, NicName};
use linerate_model::lab::{Experiment, LevelTable, Word, Words};
use linerate_model::plan::{Change, End};
use linerate_model::prove::EndChange;
use linerate_model::setting::{Scope, SettingKey, Value};
use linerate_model::workload::TrialSpec;

use super::judge;
use crate::cli::MeasureAction;
use crate::ends::Ends;
use crate::exit::{Code, Outcome, Stop};
use crate::trial::PathView;
use crate::trial_spec::trial_of;

/// Options of `measure` that belong to the command, not to a trial.
const NOT_OF_A_TRIAL: [&str; 14] = [
    "push",
    "address",
    "port",
    "iperf3",
    "preload",
    "ladder",
    "until-ci",
    "max-time",
    "no-record",
    "overhead",
    "seed",
    "pictures",
    "require",
    "help",
];
/// The value that leaves a setting at its baseline.
const AS_FOUND: &str = "baseline";

/// An experiment on its paths: the meaning of its levels there.
#[derive(Debug)]
pub struct Resolver {
    /// The experiment.
    pub experiment: Experiment,
    home: Ground,
    /// The paths to the other hosts that are levels, as the experiment names them, or why there is none.
    others: BTreeMap<String, Result<Ground, (Code, String)>>,
}

/// The baseline of a path.
#[derive(Debug)]
struct Ground {
    local: Host,
    remote: Host,
    local_nic: NicName,
    remote_nic: NicName,
    ipv6: bool,
}

impl Ground {
    fn of(path: PathView<'_>) -> Self {
        Self {
            local: path.local.clone(),
            remote: path.remote.clone(),
            local_nic: path.local_nic.clone(),
            remote_nic: path.remote_nic.clone(),
            ipv6: path.ipv6,
        }
    }

    fn path(&self) -> PathView<'_> {
        PathView {
            local: &self.local,
            remote: &self.remote,
            local_nic: &self.local_nic,
            remote_nic: &self.remote_nic,
            ipv6: self.ipv6,
        }
    }

    fn shares_kernel(&self) -> bool {
        let boot = |host: &Host| host.identity.boot_id.value().cloned();
        boot(&self.local).is_some_and(|id| boot(&self.remote) == Some(id))
    }
}

/// A setting of an end, and the requested value.
pub type Wanted = (End, SettingKey, Value);

#[derive(Debug, Parser)]
struct Measure {
    #[command(subcommand)]
    action: MeasureAction,
}

impl Resolver {
    /// The experiment on the baseline of the path to its peer.
    pub fn new(experiment: Experiment, path: PathView<'_>) -> Self {
        Self {
            experiment,
            home: Ground::of(path),
            others: BTreeMap::new(),
        }
    }

    /// Adds the path to another host, or why there is none.
    #[must_use]
    pub fn with_other(mut self, name: &str, way: Result<PathView<'_>, &Stop>) -> Self {
        let way = way.map(Ground::of);
        let way = way.map_err(|stop| (stop.code, stop.message.clone()));
        self.others.insert(name.to_owned(), way);
        self
    }

    /// The other hosts that can be reached.
    pub fn others(&self) -> impl Iterator<Item = &str> {
        let reached = self.others.iter().filter(|(_, way)| way.is_ok());
        reached.map(|(name, _)| name.as_str())
    }

    /// The paths to the other hosts that can be reached, for a person.
    pub(crate) fn others_in_words(&self) -> Vec<String> {
        let words = |(name, way): (&String, &Result<Ground, _>)| {
            let Ground {
                local_nic,
                remote_nic,
                ..
            } = way.as_ref().ok()?;
            Some(format!(
                "another host: {local_nic} -> {remote_nic} of {name}"
            ))
        };
        self.others.iter().filter_map(words).collect()
    }

    fn ground(&self, peer: Option<&str>) -> Outcome<&Ground> {
        let Some(peer) = peer else {
            return Ok(&self.home);
        };
        match self.others.get(peer) {
            Some(Ok(ground)) => Ok(ground),
            Some(Err((code, why))) => Err(Stop::new(*code, format!("{peer}: {why}"))),
            None => {
                let why = format!("no path to {peer} was resolved");
                Err(Stop::new(Code::Bug, why))
            }
        }
    }

    /// Whether the remote end of a combination was unreachable from the start.
    pub(crate) fn is_out_of_reach(&self, cell: &[usize]) -> bool {
        let peer = self.experiment.at(cell).peer.at;
        peer.is_some_and(|peer| matches!(self.others.get(&peer), Some(Err(_))))
    }

    /// The trials of a combination: the analyzed one, then those that run at the same time.
    pub fn trials(&self, cell: &[usize]) -> Outcome<Vec<TrialSpec>> {
        let at = self.experiment.at(cell);
        let workload = at.workload.as_deref().unwrap_or_default();
        let ground = self.ground(at.peer.at.as_deref())?;
        let mut trials = vec![trial(ground, workload, &at.options)?];
        for beside in &self.experiment.beside {
            let mut options = beside.options.clone();
            // Concurrent traffic lasts as long as the trial.
            if let (None, Some(time)) = (options.get("time"), at.options.get("time")) {
                options.insert("time".to_owned(), time.clone());
            }
            trials.push(trial(ground, &beside.workload, &options)?);
        }
        Ok(trials)
    }

    /// The settings of a combination, of both ends.
    pub fn settings(&self, cell: &[usize]) -> Outcome<Vec<Wanted>> {
        self.settings_of(&self.experiment.at(cell))
    }

    /// The settings that a table requests, of both ends.
    pub(crate) fn settings_of(&self, at: &LevelTable) -> Outcome<Vec<Wanted>> {
        let mut wanted = Vec::new();
        let ground = self.ground(at.peer.at.as_deref())?;
        let ends = [
            (End::Local, &ground.local, &ground.local_nic, &at.settings),
            (
                End::Remote,
                &ground.remote,
                &ground.remote_nic,
                &at.peer.settings,
            ),
        ];
        for (end, host, nic, settings) in ends {
            for (key, word) in settings {
                if word.to_string() == AS_FOUND {
                    continue;
                }
                for key in keys(key, host, nic)? {
                    let value = value(&key, word, host, nic)?;
                    wanted.push((end, key, value));
                }
            }
        }
        if ground.shares_kernel() {
            // A machine-wide setting belongs to both ends: one of them changes it.
            let is_here_too = |key: &SettingKey, value: &Value, wanted: &[Wanted]| {
                wanted
                    .iter()
                    .any(|(end, k, v)| *end == End::Local && (k, v) == (key, value))
            };
            let all = wanted.clone();
            wanted.retain(|(end, key, value)| {
                *end == End::Local
                    || key.spec().scope != Scope::Machine
                    || !is_here_too(key, value, &all)
            });
        }
        Ok(wanted)
    }

    /// Whether every level is valid; one that is only unavailable here is not an error of the experiment.
    pub fn check(&self) -> Outcome<()> {
        let alone = judge::without_factors(&self.experiment);
        let told = |of: &str, outcome: Outcome<()>| match outcome {
            Err(mut stop) if stop.code != Code::NotSupported => {
                stop.message = format!("{of}: {}", stop.message);
                Err(stop)
            }
            _ => Ok(()),
        };
        let check = |cell: &[usize]| {
            self.trials(cell)?;
            self.settings(cell).map(drop)
        };
        told("the experiment", check(&alone))?;
        for (factor, levels) in alone.iter().enumerate() {
            for level in 0..*levels {
                let mut cell = alone.clone();
                cell[factor] = level;
                if self.is_earlier(factor, level) || self.is_out_of_reach(&cell) {
                    continue;
                }
                told(self.experiment.factors[factor].name(), check(&cell))?;
            }
        }
        Ok(())
    }

    /// Whether a level is an earlier run, which is not repeated here.
    pub(crate) fn is_earlier(&self, factor: usize, level: usize) -> bool {
        let of = self.experiment.factors.get(factor);
        of.is_some_and(|factor| factor.runs().any(|(run, _)| run == level))
    }

    /// Every setting that some combination changes, with its values, as text. Unavailable ones are reported when they
    /// are tried.
    pub fn changed_in_words(&self) -> Vec<String> {
        let mut lines: Vec<(String, Vec<String>)> = Vec::new();
        let base = LevelTable {
            settings: self.experiment.settings.clone(),
            peer: self.experiment.peer.clone(),
            ..LevelTable::default()
        };
        let levels =
            self.experiment.factors.iter().flat_map(|factor| {
                (0..factor.levels.len()).filter_map(|level| factor.level(level))
            });
        let tables: Vec<LevelTable> = levels.chain([base]).collect();
        let peers = std::iter::once(None).chain(self.others().map(Some));
        for (peer, table) in peers.flat_map(|peer| tables.iter().map(move |table| (peer, table))) {
            let mut at = table.clone();
            at.peer.at = peer.map(str::to_owned);
            for (end, key, value) in self.settings_of(&at).unwrap_or_default() {
                let host = match (end, peer) {
                    (End::Remote, Some(peer)) => peer.to_owned(),
                    (end, _) => end.to_string(),
                };
                let (key, value) = (format!("{host} {key}"), value.to_string());
                match lines.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, values)) if values.contains(&value) => {}
                    Some((_, values)) => values.push(value),
                    None => lines.push((key, vec![value])),
                }
            }
        }
        let line = |(key, values): (String, Vec<String>)| format!("{key}: {}", values.join(", "));
        lines.into_iter().map(line).collect()
    }
}

/// The trial of a workload with its options on a path.
fn trial(ground: &Ground, workload: &str, options: &Words) -> Outcome<TrialSpec> {
    let action = action(workload, options)?;
    trial_of(&action, ground.path())?.ok_or_else(|| {
        let why = format!("`{workload}` with these options is not a single trial");
        Stop::new(Code::BadInput, why)
    })
}

/// The changes from the current settings to the requested ones.
pub(crate) fn changes(ends: &mut dyn Ends, wanted: &[Wanted]) -> Outcome<Vec<EndChange>> {
    let mut changes = Vec::new();
    for of in [End::Local, End::Remote] {
        let of_end: Vec<&Wanted> = wanted.iter().filter(|(end, ..)| *end == of).collect();
        if of_end.is_empty() {
            continue;
        }
        let keys: Vec<SettingKey> = of_end.iter().map(|(_, key, _)| key.clone()).collect();
        for ((end, setting, to), from) in of_end.into_iter().zip(ends.settings(of, &keys)?) {
            let from = from.ok().cloned().map_err(|gap| {
                let why = format!("cannot change {setting} of the {end} end: {gap}");
                Stop::new(Code::NotSupported, why)
            })?;
            if !to.is_met_by(&from) {
                let change = Change {
                    setting: setting.clone(),
                    from,
                    to: to.clone(),
                };
                changes.push(EndChange { end: *end, change });
            }
        }
    }
    Ok(changes)
}

/// The workload with its options, as `linerate measure` reads them.
fn action(workload: &str, options: &Words) -> Outcome<MeasureAction> {
    let command = MeasureAction::augment_subcommands(Command::new("measure"));
    let Some(known) = command.find_subcommand(workload) else {
        let names: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        let why = format!(
            "unknown workload `{workload}`; available: {}",
            names.join(", ")
        );
        return Err(Stop::new(Code::BadInput, why));
    };
    let names: Vec<&str> = known
        .get_arguments()
        .filter(|arg| !arg.is_hide_set())
        .filter_map(Arg::get_long)
        .filter(|name| !NOT_OF_A_TRIAL.contains(name))
        .collect();
    let mut words = vec![
        "measure".to_owned(),
        workload.to_owned(),
        "local".to_owned(),
    ];
    for (name, word) in options {
        if !names.contains(&name.as_str()) {
            let why = format!(
                "`{workload}` has no option `{name}`; available: {}",
                names.join(", ")
            );
            return Err(Stop::new(Code::BadInput, why));
        }
        match word {
            Word::Switch(true) => words.push(format!("--{name}")),
            Word::Switch(false) => {}
            Word::List(list) => {
                let list: Vec<String> = list.iter().map(Word::to_string).collect();
                words.push(format!("--{name}={}", list.join(",")));
            }
            word => words.push(format!("--{name}={word}")),
        }
    }
    let read = Measure::try_parse_from(&words).map_err(|error| {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        let why = first.strip_prefix("error: ").unwrap_or(first);
        Stop::new(
            Code::BadInput,
            format!("the options of `{workload}`: {why}"),
        )
    })?;
    Ok(read.action)
}

/// The settings on a host that a key of a file matches: `@` is the interface of the path, `rx-*` and `tx-*` all of
/// its queues, `cpu*` and `policy*` all CPUs and all groups of them that change frequency together.
fn keys(text: &str, host: &Host, nic: &NicName) -> Outcome<Vec<SettingKey>> {
    let text = text
        .split('/')
        .map(|noun| if noun == "@" { nic.as_str() } else { noun })
        .collect::<Vec<_>>()
        .join("/");
    let queues = |kind| {
        let queues = host.nic(nic).map_or(&[][..], |nic: &Nic| &nic.queues);
        let of_kind = queues.iter().filter(move |queue| queue.kind == kind);
        of_kind.map(|queue| queue.index).collect::<Vec<u32>>()
    };
    let numbers = if text.contains("/rx-*") {
        queues(QueueKind::Rx)
    } else if text.contains("/tx-*") {
        queues(QueueKind::Tx)
    } else if text.contains("/policy*") {
        let policies = host.power.frequency.value().into_iter().flatten();
        policies.filter_map(|policy| policy.number.get()).collect()
    } else if text.contains("/cpu*") {
        host.cpus.iter().map(|cpu| cpu.id.0).collect()
    } else {
        let key = text
            .parse()
            .map_err(|error: linerate_model::setting::SettingError| {
                Stop::new(Code::BadInput, error.to_string())
            })?;
        if matches!(key, SettingKey::Trial(_)) {
            let why = format!("{key} belongs to the trial: vary an option of the workload instead");
            return Err(Stop::new(Code::BadInput, why));
        }
        return Ok(vec![key]);
    };
    if numbers.is_empty() {
        let why = format!("`{text}` matches nothing on this path");
        return Err(Stop::new(Code::NotSupported, why));
    }
    let one = |number: u32| keys(&text.replace('*', &number.to_string()), host, nic);
    let all: Vec<Vec<SettingKey>> = numbers.into_iter().map(one).collect::<Outcome<_>>()?;
    Ok(all.concat())
}

/// A value; for CPUs also `@near`, those of the NIC's node, `@all`, and `@none`.
fn value(key: &SettingKey, word: &Word, host: &Host, nic: &NicName) -> Outcome<Value> {
    let text = match word.to_string().as_str() {
        "@near" => {
            let near = host
                .nic(nic)
                .and_then(|nic| nic.local_cpus.value().cloned());
            let near = near.ok_or_else(|| {
                let why = format!("the local CPUs of {nic} are unknown");
                Stop::new(Code::NotSupported, why)
            })?;
            near.to_string()
        }
        "@all" => {
            let all: CpuSet = host.cpus.iter().map(|cpu| cpu.id).collect();
            all.to_string()
        }
        "@none" => String::new(),
        text => text.to_owned(),
    };
    key.parse_value(&text)
        .map_err(|error| Stop::new(Code::BadInput, error.to_string()))
}

#[cfg(test)]
mod tests {
    use linerate_model::build;
    use linerate_model::units::Bytes;

    use super::*;

    fn options(pairs: &[(&str, Word)]) -> Words {
        let pair = |(name, word): &(&str, Word)| ((*name).to_owned(), word.clone());
        pairs.iter().map(pair).collect()
    }

    fn one_trial(workload: &str, given: &[(&str, Word)]) -> Outcome<TrialSpec> {
        let (near, far) = build::veth_pair();
        let (local_nic, remote_nic) = (
            "near0".parse().expect("a name"),
            "far0".parse().expect("a name"),
        );
        let view = PathView {
            local: &near,
            remote: &far,
            local_nic: &local_nic,
            remote_nic: &remote_nic,
            ipv6: false,
        };
        let action = action(workload, &options(given))?;
        Ok(trial_of(&action, view)?.expect("one trial"))
    }

    #[test]
    fn options_mean_what_measure_means_by_them() {
        let spec = one_trial(
            "stream",
            &[
                ("flows", Word::Integer(4)),
                ("buffer", Word::Text("64KiB".to_owned())),
                ("reverse", Word::Switch(true)),
                ("bidir", Word::Switch(false)),
            ],
        )
        .expect("a stream");
        assert_eq!((spec.flows, spec.buffer_bytes), (4, Bytes::kib(64)));
        assert_eq!(spec.direction, linerate_model::workload::Direction::Reverse);
        let sizes = ["1B", "64KiB"].map(|size| Word::Text(size.to_owned()));
        let sizes = Word::List(sizes.to_vec());
        let spec = one_trial("pingpong", &[("sizes", sizes)]).expect("a ping-pong");
        let linerate_model::workload::Workload::Pingpong(pingpong) = spec.workload else {
            panic!("another workload")
        };
        assert_eq!(pingpong.sizes, [Bytes::new(1), Bytes::kib(64)]);
    }

    #[test]
    fn what_no_trial_has_is_refused_with_what_there_is() {
        for (workload, name, word, words) in [
            (
                "stream",
                "flow",
                Word::Integer(1),
                "`stream` has no option `flow`; available: ",
            ),
            (
                "stream",
                "push",
                Word::Switch(true),
                "`stream` has no option `push`",
            ),
            (
                "stream",
                "flows",
                Word::Integer(0),
                "invalid value '0' for '--flows",
            ),
            (
                "streams",
                "flows",
                Word::Integer(1),
                "unknown workload `streams`; available: stream, rr",
            ),
        ] {
            let stop = one_trial(workload, &[(name, word)]).expect_err(words);
            assert_eq!(stop.code, Code::BadInput);
            assert!(stop.message.contains(words), "{stop}");
        }
    }

    #[test]
    fn a_key_stands_for_the_path_s_own_interface_and_for_all_of_its_queues() {
        let (near, _) = build::veth_pair();
        let nic = "near0".parse().expect("a name");
        let keys = |text| {
            let keys = keys(text, &near, &nic).map_err(|stop| stop.message)?;
            Ok::<_, String>(keys.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(keys("nic/@/mtu"), Ok(vec!["nic/near0/mtu".to_owned()]));
        let queues = keys("nic/@/queue/rx-*/rps-cpus").expect("queues");
        assert!(
            queues.contains(&"nic/near0/queue/rx-0/rps-cpus".to_owned()),
            "{queues:?}"
        );
        assert!(
            keys("placement/sender-cpus")
                .expect_err("of a trial")
                .contains("option")
        );
        assert!(keys("nic/@/mtus").is_err());
    }
}
