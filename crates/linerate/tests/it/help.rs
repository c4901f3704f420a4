//! The words of `--help`, byte for byte as people see them: a change of them is a change of the
//! interface, and shows in review. `LINERATE_BLESS=1` writes them anew.

use std::fs;
use std::path::Path;

use crate::job::{linerate, run};

const COMMANDS: [&[&str]; 84] = [
    &[],
    &["demo"],
    &["map"],
    &["nic"],
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
    &["measure", "block"],
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
    &["agent", "pair"],
    &["agent", "paired"],
    &["agent", "forget"],
    &["peers"],
    &["peers", "list"],
    &["peers", "pair"],
    &["peers", "forget"],
    &["testbed"],
    &["testbed", "mesh"],
    &["testbed", "mesh", "add"],
    &["testbed", "mesh", "remove"],
    &["testbed", "mesh", "list"],
    &["testbed", "redundant"],
    &["testbed", "redundant", "add"],
    &["testbed", "redundant", "add", "vrrp"],
    &["testbed", "redundant", "add", "ecmp"],
    &["testbed", "redundant", "add", "magp"],
    &["testbed", "redundant", "add", "active-backup"],
    &["testbed", "redundant", "add", "mlag"],
    &["testbed", "redundant", "remove"],
    &["testbed", "redundant", "list"],
    &["testbed", "redundant", "stop"],
    &["testbed", "redundant", "start"],
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
    &["failover"],
    &["mesh"],
    &["qos"],
    &["qos", "plan"],
    &["qos", "apply"],
    &["qos", "confirm"],
    &["qos", "verify"],
    &["qos", "status"],
    &["qos", "persist"],
    &["qos", "undo"],
    &["qos", "import"],
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
fn the_version_comes_with_the_commit_the_target_and_the_features() {
    let done = run(linerate(&["--version"])).expect_code(0);
    let lines: Vec<&str> = done.out.lines().collect();
    let [version, commit, target, features] = lines[..] else {
        panic!("{}", done.out)
    };
    assert_eq!(version, concat!("linerate ", env!("CARGO_PKG_VERSION")));
    // Tests run on debug builds.
    assert_eq!(commit, "commit:   not recorded (debug build)");
    let architecture = std::env::consts::ARCH;
    assert!(
        target.starts_with(&format!("target:   {architecture}-")),
        "{target}"
    );
    assert!(features.contains("RDMA verbs"), "{features}");
    let short = run(linerate(&["-V"])).expect_code(0);
    assert_eq!(short.out.trim_end(), version);
}

/// What `-h` may take of a terminal's height.
const SHORT_LINES: usize = 40;

#[test]
fn the_short_help_of_every_command_fits_a_terminal_and_shows_three_examples() {
    for words in COMMANDS {
        let mut command = linerate(words);
        command.arg("-h").env("COLUMNS", "100");
        let text = run(command).expect_code(0).out;
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() <= SHORT_LINES, "{}:\n{text}", lines.len());
        let examples = lines.iter().position(|line| *line == "Examples:");
        let examples = &lines[examples.expect("examples") + 1..];
        let is_example = |line: &&&str| line.starts_with("  linerate");
        assert_eq!(examples.iter().take_while(is_example).count(), 3, "{text}");
    }
}

#[test]
fn the_short_help_of_a_stream_has_the_common_options_only() {
    let mut command = linerate(&["measure", "stream", "-h"]);
    command.env("COLUMNS", "100");
    let short = run(command).expect_code(0).out;
    for option in [
        "-t, --time",
        "-i, --interval",
        "-P, --flows",
        "-R, --reverse",
        "-J, --json",
        "-p, --port",
        "-w, --socket-buffer",
        "-C, --cc",
        "-M, --mss",
        "-O, --omit",
        "-b, --pacing",
        "-l, --buffer",
        "--until-ci",
        "--require",
        "--why",
    ] {
        assert!(short.contains(option), "no {option}:\n{short}");
    }
    let long = run(linerate(&["measure", "stream", "--help"]))
        .expect_code(0)
        .out;
    for option in [
        "--device",
        "--ladder",
        "--place",
        "--gid-index",
        "--sample-interval",
    ] {
        assert!(!short.contains(option), "{option}:\n{short}");
        assert!(long.contains(option), "no {option}");
    }
}

#[test]
fn what_is_hidden_is_neither_suggested_nor_completed() {
    for (typed, hidden) in [("move", "mover"), ("revert", "reverter")] {
        let done = run(linerate(&[typed])).expect_code(2);
        assert!(done.err.contains(typed), "{}", done.err);
        assert!(!done.err.contains(hidden), "{}", done.err);
    }
    let done = run(linerate(&["doctro"])).expect_code(2);
    assert!(done.err.contains("'doctor'"), "{}", done.err);
    let done = run(linerate(&["demo", "--stag", "plant"])).expect_code(2);
    assert!(!done.err.contains("--stage"), "{}", done.err);
    for shell in ["elvish", "powershell"] {
        let done = run(linerate(&["completions", shell])).expect_code(0);
        assert!(done.out.contains("doctor"), "{shell}");
        for hidden in ["mover", "reverter", "--stage"] {
            assert!(!done.out.contains(hidden), "{shell}: {hidden}");
        }
    }
}

#[test]
fn every_command_that_the_help_lists_has_its_help_reviewed() {
    let listed = |words: &[&str]| -> Vec<String> {
        let mut command = linerate(words);
        command.arg("--help");
        let text = run(command).expect_code(0).out;
        // The whole program's are in groups between the usage and the options.
        let start = if words.is_empty() {
            "Usage:"
        } else {
            "Commands:"
        };
        let commands = text.split(start).nth(1).unwrap_or_default();
        commands
            .lines()
            .skip(1)
            .take_while(|line| *line != "Options:")
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
