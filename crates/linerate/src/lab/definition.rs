//! The file of an experiment, or one that comes with linerate.

use std::path::Path;

use linerate_analysis::experiment::definition::parse;
use linerate_host::regular_file;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::lab::{Experiment, Level, LevelTable};

/// The experiments that come with linerate.
pub(crate) const SHIPPED: [(&str, &str); 10] = [
    (
        "numa-near-far",
        include_str!("../../experiments/numa-near-far.toml"),
    ),
    (
        "vxlan-cost",
        include_str!("../../experiments/vxlan-cost.toml"),
    ),
    (
        "ipoib-mode",
        include_str!("../../experiments/ipoib-mode.toml"),
    ),
    (
        "tcp-vs-rdma",
        include_str!("../../experiments/tcp-vs-rdma.toml"),
    ),
    (
        "stack-parameters",
        include_str!("../../experiments/stack-parameters.toml"),
    ),
    (
        "fabric-pingpong",
        include_str!("../../experiments/fabric-pingpong.toml"),
    ),
    (
        "fabric-table",
        include_str!("../../experiments/fabric-table.toml"),
    ),
    (
        "fabric-steps",
        include_str!("../../experiments/fabric-steps.toml"),
    ),
    (
        "memory-policy-rfs",
        include_str!("../../experiments/memory-policy-rfs.toml"),
    ),
    ("blk-mq", include_str!("../../experiments/blk-mq.toml")),
];

/// The longest file of an experiment that is read.
const BYTES_MAX: u64 = 1 << 20;

/// An experiment and what it is called.
#[derive(Debug)]
pub(crate) struct Definition {
    pub name: String,
    pub experiment: Experiment,
}

/// The file of an experiment that comes with linerate.
pub(super) fn text_of(name: &str) -> Outcome<&'static str> {
    let shipped = SHIPPED.iter().find(|(shipped, _)| *shipped == name);
    shipped.map(|(_, text)| *text).ok_or_else(|| {
        let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
        let why =
            format!("cannot print the experiment {name}: no built-in experiment has this name");
        Stop::new(Code::BadInput, why).hint(format!("built-in experiments: {}", names.join(", ")))
    })
}

/// The experiment of a file, or one that comes with linerate.
pub(crate) fn read(name: &str) -> Outcome<Definition> {
    let shipped = SHIPPED.iter().find(|(shipped, _)| *shipped == name);
    let text = match shipped {
        Some((_, text)) => (*text).to_owned(),
        None => regular_file::read_named_text(Path::new(name), BYTES_MAX).map_err(|error| {
            let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
            Stop::io(format!("read the experiment {name}"), error)
                .hint(format!("built-in experiments: {}", names.join(", ")))
        })?,
    };
    let mut experiment = parse(&text)
        .map_err(|(line, why)| Stop::new(Code::BadInput, format!("{name}, line {line}: {why}")))?;
    if experiment.server.is_some() {
        let why =
            format!("{name}: `server` is not a key of a file, because its command is executed");
        let hint = "pass the server with `--url` and `--server`";
        return Err(Stop::new(Code::BadInput, why).hint(hint));
    }
    if shipped.is_none() {
        find_runs(&mut experiment, Path::new(name));
    }
    let stem = Path::new(name).file_stem();
    let name = stem.map_or_else(
        || name.to_owned(),
        |stem| stem.to_string_lossy().into_owned(),
    );
    Ok(Definition { name, experiment })
}

/// Resolves the folders of earlier runs: a file names them relative to its own folder.
fn find_runs(experiment: &mut Experiment, file: &Path) {
    let Some(beside) = file.parent() else { return };
    let levels = experiment
        .factors
        .iter_mut()
        .flat_map(|one| &mut one.levels);
    for level in levels {
        if let Level::Table(LevelTable { run: Some(run), .. }) = level {
            *run = beside.join(&*run).to_string_lossy().into_owned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::fitting::assert_fits;

    #[test]
    fn every_experiment_that_comes_with_linerate_can_be_read_in_both_forms() {
        for (name, text) in SHIPPED {
            let file: serde_json::Value = toml::from_str(text).expect("TOML");
            assert_fits("experiment-1", &file);
            let definition = read(name).expect("a sound experiment");
            assert!(!definition.experiment.question.is_empty(), "{name}");
            assert_eq!(definition.experiment.quick().check(), Ok(()), "{name}");
        }
    }

    #[test]
    fn an_experiment_that_is_nowhere_is_told_with_those_that_there_are() {
        let stop = read("no-such-experiment").expect_err("there is none");
        assert!(stop.to_string().contains("numa-near-far"), "{stop}");
    }
}
