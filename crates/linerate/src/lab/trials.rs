//! The trials of an experiment's combinations, placed according to both hosts' maps, and the changes that lead to them.
//!
//! Options of a workload are those of `linerate measure`, read by the same parser, so that a level is written as
//! on the command line and means the same.

use clap::{Arg, Command, Parser, Subcommand};
use linerate_analysis::experiment::judge;
use linerate_analysis::experiment::resolve::{RequestedSetting, Resolver};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::lab::{Word, Words};
use linerate_model::path::PathView;
use linerate_model::plan::{Change, End};
use linerate_model::prove::EndChange;
use linerate_model::setting::SettingKey;
use linerate_model::workload::TrialSpec;
use linerate_runtime::cli::MeasureAction;
use linerate_runtime::endpoint::ends::Ends;

use super::{device, server};
use crate::measure::trial_spec::trial_of;
use crate::prove::intent::turn;

/// Options of `measure` that belong to the command, not to a trial.
const NOT_OF_A_TRIAL: [&str; 17] = [
    "push",
    "address",
    "port",
    "iperf3",
    "preload",
    "ladder",
    "nic",
    "until-ci",
    "max-time",
    "no-record",
    "overhead",
    "seed",
    "pictures",
    "require",
    // An experiment states what it measures.
    "like",
    // Experiments read block devices only.
    "write",
    "help",
];
#[derive(Debug, Parser)]
struct Measure {
    #[command(subcommand)]
    action: MeasureAction,
}

/// The trials of a combination: the analyzed one, then those that run at the same time.
pub(super) fn trials(resolver: &Resolver, cell: &[usize]) -> Outcome<Vec<TrialSpec>> {
    let at = resolver.experiment.at(cell);
    if resolver.experiment.is_local() {
        return device::trial(resolver, &at).map(|trial| vec![trial]);
    }
    let workload = at.workload.as_deref().unwrap_or_default();
    let path = resolver.path(at.peer.at.as_deref())?;
    let mut trials = vec![match &resolver.experiment.server {
        None => trial(path, workload, &at.options)?,
        Some(server) => {
            let mut options = at.options.clone();
            server::options(server, &mut options)?;
            let mut spec = trial(path, workload, &options)?;
            server::load(server, &mut spec)?;
            spec
        }
    }];
    for beside in &resolver.experiment.beside {
        let mut options = beside.options.clone();
        // Concurrent traffic lasts as long as the trial.
        if let (None, Some(time)) = (options.get("time"), at.options.get("time")) {
            options.insert("time".to_owned(), time.clone());
        }
        trials.push(trial(path, &beside.workload, &options)?);
    }
    Ok(trials)
}

/// Whether every level is valid; one that is only unavailable here is not an error of the experiment.
pub(super) fn check(resolver: &Resolver) -> Outcome<()> {
    let alone = judge::without_factors(&resolver.experiment);
    let told = |of: &str, outcome: Outcome<()>| match outcome {
        Err(mut stop) if stop.code != Code::NotSupported => {
            stop.message = format!("{of}: {}", stop.message);
            Err(stop)
        }
        _ => Ok(()),
    };
    let check = |cell: &[usize]| {
        trials(resolver, cell)?;
        resolver.settings(cell).map(drop)
    };
    told("the experiment", check(&alone))?;
    for (factor, levels) in alone.iter().enumerate() {
        for level in 0..*levels {
            let mut cell = alone.clone();
            cell[factor] = level;
            if resolver.is_earlier(factor, level) || resolver.is_out_of_reach(&cell) {
                continue;
            }
            told(resolver.experiment.factors[factor].name(), check(&cell))?;
        }
    }
    Ok(())
}

/// The trial of a workload with its options on a path.
fn trial(path: PathView<'_>, workload: &str, options: &Words) -> Outcome<TrialSpec> {
    let action = action(workload, options)?;
    trial_of(&action, path)?.ok_or_else(|| {
        let why = format!("`{workload}` with these options is not a single trial");
        Stop::new(Code::BadInput, why)
    })
}

/// The changes from the current settings to the requested ones.
pub(super) fn changes(ends: &mut dyn Ends, wanted: &[RequestedSetting]) -> Outcome<Vec<EndChange>> {
    let mut changes = Vec::new();
    for of in [End::Local, End::Remote] {
        let mut of_end: Vec<&RequestedSetting> =
            wanted.iter().filter(|(end, ..)| *end == of).collect();
        // Settings that reset others come first: a change of the scheduler resets `nr-requests`.
        of_end.sort_by_key(|(_, key, to)| (turn(key, to), key));
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
pub(super) fn action(workload: &str, options: &Words) -> Outcome<MeasureAction> {
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
}
