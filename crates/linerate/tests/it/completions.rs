//! Completions in real shells, typed on a terminal.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::experiment::open_terminal;
use crate::job::{linerate, run};
use crate::{LINERATE, lab::text};

/// A shell, the arguments with which it reads only `rc` (a file in `home`), and how it loads the completions.
struct Shell {
    name: &'static str,
    arguments: &'static [&'static str],
    rc: &'static str,
    load: &'static str,
}

const SHELLS: [Shell; 3] = [
    Shell {
        name: "bash",
        arguments: &["--noprofile", "--rcfile", "rc", "-i"],
        rc: "rc",
        load: "source <(linerate completions bash)",
    },
    Shell {
        name: "zsh",
        arguments: &["-d", "-i"],
        rc: ".zshrc",
        load: "autoload -Uz compinit; compinit -u -D; source <(linerate completions zsh)",
    },
    Shell {
        name: "fish",
        arguments: &["-i"],
        rc: ".config/fish/config.fish",
        load: "linerate completions fish | source",
    },
];

/// What a shell shows on a terminal after these lines are typed.
fn typed(shell: &Shell, lines: &str) -> Option<String> {
    let found = Command::new(shell.name).arg("--version").output();
    if !found.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIP: {} is not installed", shell.name);
        return None;
    }
    let home = tempfile::tempdir().expect("a folder");
    let rc = home.path().join(shell.rc);
    fs::create_dir_all(rc.parent().expect("a folder")).expect("room");
    fs::write(&rc, format!("{}\n", shell.load)).expect("room");
    let programs = Path::new(LINERATE).parent().expect("a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let (mut screen, terminal) = open_terminal(40, 200);
    let again = || terminal.try_clone().expect("a terminal");
    let mut command = Command::new("setsid");
    command
        .args(["--ctty", "--wait", shell.name])
        .args(shell.arguments)
        .current_dir(home.path())
        .env("HOME", home.path())
        .env("ZDOTDIR", home.path())
        .env("XDG_CONFIG_HOME", home.path().join(".config"))
        .env("TERM", "xterm")
        .env("PATH", format!("{}:{path}", text(programs)))
        .stdout(again())
        .stderr(again());
    command.stdin(Stdio::from(terminal));
    screen.write_all(lines.as_bytes()).expect("a terminal");
    let mut program = command.spawn().expect("it starts");
    drop(command);
    let shown = crate::experiment::until_closed(screen);
    program.wait().expect("it has ended");
    Some(shown)
}

#[test]
fn a_tab_completes_the_names_of_rules_and_the_values_of_options_in_every_shell() {
    for shell in &SHELLS {
        let lines = "linerate explain irq-rem\t\nlinerate --format=js\t explain nic/lo/coalesce/rx-usecs\t\nexit\n";
        let Some(shown) = typed(shell, lines) else {
            continue;
        };
        let name = shell.name;
        assert!(shown.contains("# irq-remote-numa"), "{name}: {shown}");
        assert!(shown.contains("linerate.page/1"), "{name}: {shown}");
    }
}

#[test]
fn the_words_that_the_scripts_ask_for_are_those_of_this_host() {
    let words = |typed: &[&str]| {
        let mut command = linerate(&["complete", "--"]);
        command.args(typed);
        let done = run(command).expect_code(0);
        assert_eq!(done.err, "");
        done.out
    };
    assert!(
        words(&["doctor", "l"])
            .lines()
            .any(|line| line.starts_with("lo\t"))
    );
    assert!(words(&["prove", "loc"]).starts_with("local\t"));
    for hidden in ["mov", "rever", "comple", "man"] {
        assert!(
            !words(&[hidden]).contains(&format!("{hidden}ual")),
            "{hidden}"
        );
        assert!(
            words(&[hidden])
                .lines()
                .all(|line| line.starts_with("completions\t"))
        );
    }
    // Nothing: the shell completes a file.
    assert_eq!(words(&["doctor", "--from", ""]), "");
}
