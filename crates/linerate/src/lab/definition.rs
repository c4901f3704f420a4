//! The file of an experiment: TOML, read with the line of what is wrong.

use std::fs;
use std::path::Path;

use linerate_model::lab::Experiment;

use crate::exit::{Code, Outcome, Stop};

/// The experiments that come with linerate.
pub(super) const SHIPPED: [(&str, &str); 7] = [
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
        "memory-policy-rfs",
        include_str!("../../experiments/memory-policy-rfs.toml"),
    ),
];

/// An experiment and what it is called.
#[derive(Debug)]
pub(super) struct Definition {
    pub(super) name: String,
    pub(super) experiment: Experiment,
}

/// The experiment of a file, or one that comes with linerate.
pub(super) fn read(name: &str) -> Outcome<Definition> {
    let shipped = SHIPPED.iter().find(|(shipped, _)| *shipped == name);
    let text = match shipped {
        Some((_, text)) => (*text).to_owned(),
        None => fs::read_to_string(name).map_err(|error| {
            let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
            Stop::io(format!("read the experiment {name}"), error)
                .hint(format!("these come with linerate: {}", names.join(", ")))
        })?,
    };
    let experiment = parse(&text)
        .map_err(|(line, why)| Stop::new(Code::BadInput, format!("{name}, line {line}: {why}")))?;
    let stem = Path::new(name).file_stem();
    let name = stem.map_or_else(
        || name.to_owned(),
        |stem| stem.to_string_lossy().into_owned(),
    );
    Ok(Definition { name, experiment })
}

/// The experiment that a text holds; else the line that is wrong, from 1, and why.
pub(crate) fn parse(text: &str) -> Result<Experiment, (usize, String)> {
    let line_at = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
    let experiment: Experiment = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_at(span.start));
        (line, error.message().trim().replace('\n', "; "))
    })?;
    experiment.check().map_err(|error| {
        let at = text.find(&error.place).unwrap_or(0);
        (line_at(at), error.to_string())
    })?;
    Ok(experiment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_that_comes_with_linerate_can_be_read_in_both_forms() {
        for (name, _) in SHIPPED {
            let definition = read(name).expect("a sound experiment");
            assert!(!definition.experiment.question.is_empty(), "{name}");
            assert_eq!(definition.experiment.quick().check(), Ok(()), "{name}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_what_is_allowed() {
        let head = "title = \"t\"\nworkload = \"stream\"\n";
        for (rest, line, words) in [
            (
                "worklod = 1\n[[factors]]\noption = \"flows\"\nlevels = [1, 2]\n",
                3,
                "unknown field `worklod`",
            ),
            (
                "[[factors]]\noption = \"flows\"\nlevels = [1]\n",
                4,
                "1 levels: a factor has 2",
            ),
            (
                "[[factors]]\noption = \"flows\"\nlevels = [1, { nme = \"x\" }]\n",
                5,
                "`nme`",
            ),
            (
                "[[factors]]\noption = \"flows\"\nlevels = [1, 2]\n[design]\nkind = \"half\"\n",
                7,
                "`fraction`",
            ),
            (
                "[[factors]]\noption = \"flows\"\nlevels = [1, 2]\n[design]\nrepeats = 1\n",
                7,
                "two can agree by chance",
            ),
            (
                "[[factors]]\noption = \"flows\"\nlevels = [1, 2]\n[design]\neffect = \"5\"\n",
                7,
                "\"5%\"",
            ),
        ] {
            let (at, why) = parse(&format!("{head}{rest}")).expect_err(words);
            assert!(why.contains(words), "{why}");
            assert_eq!(at, line, "{why}");
        }
    }

    #[test]
    fn an_experiment_that_is_nowhere_is_told_with_those_that_there_are() {
        let stop = read("no-such-experiment").expect_err("there is none");
        assert!(stop.to_string().contains("numa-near-far"), "{stop}");
    }
}
