//! The words of `--help`, byte for byte as people see them: a change of them is a change of the
//! interface, and shows in review. `LINERATE_BLESS=1` writes them anew.

use std::fs;
use std::path::Path;

use crate::job::{linerate, run};

const COMMANDS: [&[&str]; 49] = [
    &[],
    &["demo"],
    &["map"],
    &["doctor"],
    &["explain"],
    &["ceiling"],
    &["measure"],
    &["measure", "stream"],
    &["measure", "rr"],
    &["measure", "pingpong"],
    &["measure", "http"],
    &["measure", "transfer"],
    &["measure", "diffusion"],
    &["measure", "udp"],
    &["measure", "rdma-write"],
    &["measure", "rdma-read"],
    &["measure", "rdma-send"],
    &["measure", "rdma-atomic"],
    &["prove"],
    &["lab"],
    &["lab", "list"],
    &["lab", "run"],
    &["lab", "resume"],
    &["lab", "show"],
    &["compare"],
    &["tune"],
    &["tune", "plan"],
    &["tune", "apply"],
    &["tune", "search"],
    &["tune", "hold"],
    &["tune", "confirm"],
    &["tune", "affinity"],
    &["tune", "persist"],
    &["tune", "boot"],
    &["tune", "undo"],
    &["tune", "recover"],
    &["tune", "status"],
    &["agent"],
    &["testbed"],
    &["testbed", "rxe"],
    &["testbed", "rxe", "add"],
    &["testbed", "rxe", "pair"],
    &["testbed", "rxe", "remove"],
    &["testbed", "rxe", "list"],
    &["capture"],
    &["report"],
    &["runs"],
    &["export"],
    &["completions"],
];

#[test]
fn the_help_of_every_command_is_the_one_that_was_reviewed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help");
    let mut changed = Vec::new();
    for words in COMMANDS {
        let mut command = linerate(words);
        // What a terminal would change.
        command
            .arg("--help")
            .env("COLUMNS", "100")
            .env_remove("CLICOLOR_FORCE");
        let done = run(command).expect_code(0);
        assert_eq!(done.err, "", "{words:?}");
        let name = if words.is_empty() {
            "linerate".to_owned()
        } else {
            words.join("-")
        };
        let file = folder.join(format!("{name}.txt"));
        if std::env::var_os("LINERATE_BLESS").is_some_and(|value| value == "1") {
            fs::write(&file, &done.out).expect("the repository can be written");
        } else if fs::read_to_string(&file).ok().as_ref() != Some(&done.out) {
            changed.push(format!("{}:\n{}", file.display(), done.out));
        }
    }
    assert!(
        changed.is_empty(),
        "the help has changed; LINERATE_BLESS=1 takes it over:\n{}",
        changed.join("\n")
    );
}

#[test]
fn every_command_that_the_help_lists_has_its_help_reviewed() {
    let listed = |words: &[&str]| -> Vec<String> {
        let mut command = linerate(words);
        command.arg("--help");
        let text = run(command).expect_code(0).out;
        let commands = text.split("Commands:").nth(1).unwrap_or_default();
        commands
            .lines()
            .skip(1)
            .take_while(|line| line.starts_with("  "))
            .filter_map(|line| {
                let word = line.strip_prefix("  ")?.split(' ').next()?;
                (!word.is_empty() && word != "help").then(|| word.to_owned())
            })
            .collect()
    };
    let reviewed: Vec<String> = COMMANDS.iter().map(|words| words.join(" ")).collect();
    let commands = listed(&[]);
    assert!(commands.len() > 10, "{commands:?}");
    for command in &commands {
        assert!(
            reviewed.contains(command),
            "{command} has no page in tests/help"
        );
        for action in listed(&[command]) {
            let whole = format!("{command} {action}");
            assert!(
                reviewed.contains(&whole),
                "{whole} has no page in tests/help"
            );
        }
    }
}
