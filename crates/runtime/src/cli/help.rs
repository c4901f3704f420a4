//! What the help pages have beyond clap's: the commands in groups, three examples on every page, and the options
//! that only `--help` lists. And what clap would show of hidden commands and options, but must not.

use std::fmt::Write;

use clap::builder::StyledStr;
use clap::builder::styling::Styles;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory};
use linerate_model::peer_address::PeerAddress;

use super::{Cli, ladder, measure, verbs};

/// The commands, by what they are for.
const GROUPS: [(&str, &[&str]); 7] = [
    (
        "Inspect",
        &["doctor", "map", "ceiling", "explain", "capture"],
    ),
    ("Measure", &["measure", "demo"]),
    ("Fix", &["prove", "tune"]),
    ("Experiment", &["lab", "compare"]),
    ("Results", &["runs", "report", "export"]),
    ("Far end", &["agent", "testbed"]),
    ("Shell", &["completions"]),
];

/// The headings of options that only `--help` lists.
const DETAILED: [&str; 3] = [measure::PLACE, verbs::VERBS, ladder::LADDER];

/// Three command lines for each page, by the words that name the page.
const EXAMPLES: &[(&str, [&str; 3])] = &[
    (
        "",
        [
            "linerate                        # check this host",
            "linerate measure stream HOST    # how fast is the path, and what limits it?",
            "linerate prove HOST             # test every fix, keep those that help",
        ],
    ),
    (
        "demo",
        [
            "linerate demo",
            "linerate demo --seed 7",
            "linerate demo --trials 9 --out /tmp/demo",
        ],
    ),
    (
        "map",
        [
            "linerate map eth2",
            "linerate map --watch 10",
            "linerate --format svg map > host.svg",
        ],
    ),
    (
        "doctor",
        [
            "linerate doctor",
            "linerate doctor eth2 --role latency --verbose",
            "linerate doctor --from host.lrcap --fail-on crit",
        ],
    ),
    (
        "explain",
        [
            "linerate explain rules",
            "linerate explain irq-remote-numa",
            "linerate explain exit-codes",
        ],
    ),
    (
        "ceiling",
        [
            "linerate ceiling eth2",
            "linerate ceiling --peer HOST",
            "linerate ceiling --speed 100G --mtu 9000 --pcie 3x8 --rate 59Gb/s",
        ],
    ),
    (
        "measure",
        [
            "linerate measure stream HOST",
            "linerate measure rr HOST -P 16",
            "linerate measure udp HOST -b 1Gb/s",
        ],
    ),
    (
        "measure stream",
        [
            "linerate measure stream HOST -P 4 -t 30 --why",
            "linerate measure stream HOST -R -J > sample.json",
            "linerate measure stream HOST --until-ci 1% --require 'rate>=9.4Gb/s'",
        ],
    ),
    (
        "measure rr",
        [
            "linerate measure rr HOST",
            "linerate measure rr HOST -P 64 --rate 100000    # open loop",
            "linerate measure rr HOST --require 'p99<=100us'",
        ],
    ),
    (
        "measure pingpong",
        [
            "linerate measure pingpong HOST",
            "linerate measure pingpong HOST --sizes 4B,64KiB,4MiB",
            "linerate measure pingpong HOST --transport verbs",
        ],
    ),
    (
        "measure http",
        [
            "linerate measure http HOST -P 100",
            "linerate measure http http://192.0.2.1:8080/ -t 30",
            "linerate measure http HOST --rate 20000 --body 4KiB",
        ],
    ),
    (
        "measure transfer",
        [
            "linerate measure transfer HOST",
            "linerate measure transfer HOST --bytes 64MiB --repetitions 100",
            "linerate measure transfer HOST --transport verbs --data-check",
        ],
    ),
    (
        "measure diffusion",
        [
            "linerate measure diffusion HOST",
            "linerate measure diffusion HOST --repetitions 1000 --overhead",
            "linerate measure diffusion HOST -P 4 --no-compute",
        ],
    ),
    (
        "measure udp",
        [
            "linerate measure udp HOST -b 1Gb/s -t 30",
            "linerate measure udp HOST -b 100MB/s -l 1400 -P 4",
            "linerate measure udp HOST --batch single -R",
        ],
    ),
    (
        "measure rdma-write",
        [
            "linerate measure rdma-write HOST",
            "linerate measure rdma-write HOST --sweep",
            "linerate measure rdma-write HOST --latency --device mlx5_0",
        ],
    ),
    (
        "measure rdma-read",
        [
            "linerate measure rdma-read HOST",
            "linerate measure rdma-read HOST --sizes 4KiB,1MiB --depth 16",
            "linerate measure rdma-read HOST --latency",
        ],
    ),
    (
        "measure rdma-send",
        [
            "linerate measure rdma-send HOST",
            "linerate measure rdma-send HOST --service ud",
            "linerate measure rdma-send HOST --latency --wait blocking",
        ],
    ),
    (
        "measure rdma-atomic",
        [
            "linerate measure rdma-atomic HOST",
            "linerate measure rdma-atomic HOST --latency",
            "linerate measure rdma-atomic HOST -P 4 --depth 16",
        ],
    ),
    (
        "prove",
        [
            "linerate prove HOST",
            "linerate prove HOST --undo --trials 9",
            "linerate prove HOST --rr --from plan.toml",
        ],
    ),
    (
        "lab",
        [
            "linerate lab list",
            "linerate lab run copy-modes HOST --quick",
            "linerate lab show /var/lib/linerate/runs/RUN",
        ],
    ),
    (
        "lab list",
        [
            "linerate lab list",
            "linerate lab list -J",
            "linerate lab run copy-modes --plan",
        ],
    ),
    (
        "lab run",
        [
            "linerate lab run copy-modes HOST",
            "linerate lab run copy-modes --quick    # between two namespaces",
            "linerate lab run my.toml HOST --repeats 10 --time 2s",
        ],
    ),
    (
        "lab resume",
        [
            "linerate lab resume /var/lib/linerate/runs/RUN",
            "linerate lab resume ./RUN netns:far",
            "linerate lab resume ./RUN ssh://root@HOST",
        ],
    ),
    (
        "lab show",
        [
            "linerate lab show /var/lib/linerate/runs/RUN",
            "linerate lab show ./RUN -J",
            "linerate report ./RUN    # the same as a page",
        ],
    ),
    (
        "compare",
        [
            "linerate compare a1,a2,a3 b1,b2,b3",
            "linerate compare a1,a2,a3 b1,b2,b3 --margin 5%",
            "linerate compare last~1 last",
        ],
    ),
    (
        "tune",
        [
            "linerate tune plan",
            "linerate tune apply",
            "linerate tune undo",
        ],
    ),
    (
        "tune plan",
        [
            "linerate tune plan",
            "linerate tune plan --role latency",
            "linerate tune plan --from plan.toml",
        ],
    ),
    (
        "tune apply",
        [
            "linerate tune apply",
            "linerate tune apply --from plan.toml --deadline 2min",
            "linerate tune apply --prove HOST",
        ],
    ),
    (
        "tune search",
        [
            "linerate tune search HOST",
            "linerate tune search HOST --budget 1h",
            "linerate tune search HOST --rr --undo",
        ],
    ),
    (
        "tune hold",
        [
            "linerate tune hold -- iperf3 -c HOST",
            "linerate tune hold --role latency -- ./benchmark",
            "linerate tune hold --from plan.toml",
        ],
    ),
    (
        "tune confirm",
        [
            "linerate tune confirm",
            "linerate tune status    # which one waits",
            "linerate tune undo      # instead",
        ],
    ),
    (
        "tune affinity",
        [
            "linerate tune affinity eth2 --dry-run",
            "linerate tune affinity eth2",
            "linerate tune affinity eth2 --persist",
        ],
    ),
    (
        "tune persist",
        [
            "linerate tune persist",
            "linerate tune persist --probe 192.0.2.1:22 --deadline 2min",
            "linerate tune persist --remove",
        ],
    ),
    (
        "tune boot",
        [
            "linerate tune boot",
            "linerate tune persist             # creates the unit that runs it",
            "linerate tune persist --remove    # removes the unit",
        ],
    ),
    (
        "tune undo",
        [
            "linerate tune undo",
            "linerate tune undo ID",
            "linerate tune undo ID --peer exec:COMMAND",
        ],
    ),
    (
        "tune recover",
        [
            "linerate tune recover",
            "linerate tune recover --peer HOST",
            "linerate tune status",
        ],
    ),
    (
        "tune status",
        [
            "linerate tune status",
            "linerate tune status -J",
            "linerate tune undo ID",
        ],
    ),
    (
        "agent",
        [
            "linerate agent --stdio",
            "linerate agent --iperf3 192.0.2.1:5201",
            "linerate agent --http 192.0.2.1:8080 --body 4KiB",
        ],
    ),
    (
        "testbed",
        [
            "linerate testbed rxe pair",
            "linerate testbed rxe list",
            "linerate testbed rxe remove --all",
        ],
    ),
    (
        "testbed rxe",
        [
            "linerate testbed rxe add eth2",
            "linerate testbed rxe pair --mtu 4200",
            "linerate testbed rxe remove --all",
        ],
    ),
    (
        "testbed rxe add",
        [
            "linerate testbed rxe add eth2",
            "linerate testbed rxe add eth2 --name rxe7",
            "linerate testbed rxe list",
        ],
    ),
    (
        "testbed rxe pair",
        [
            "linerate testbed rxe pair",
            "linerate testbed rxe pair --mtu 4200",
            "linerate testbed rxe pair --network 198.18.7.0",
        ],
    ),
    (
        "testbed rxe remove",
        [
            "linerate testbed rxe remove rxe0",
            "linerate testbed rxe remove --all",
            "linerate testbed rxe list",
        ],
    ),
    (
        "testbed rxe list",
        [
            "linerate testbed rxe list",
            "linerate testbed rxe list -J",
            "linerate testbed rxe remove --all",
        ],
    ),
    (
        "capture",
        [
            "linerate capture host.lrcap",
            "linerate doctor --from host.lrcap",
            "linerate map --diff host.lrcap    # what has changed since",
        ],
    ),
    (
        "report",
        [
            "linerate report last",
            "linerate report ./RUN --out run.html",
            "linerate report --serve 8080",
        ],
    ),
    (
        "runs",
        [
            "linerate runs",
            "linerate runs --workload stream --since 2026-11-01",
            "linerate runs --host HOST -J",
        ],
    ),
    (
        "export",
        [
            "linerate export last > trials.csv",
            "linerate export ./RUN1 ./RUN2 --out trials.parquet",
            "linerate export ./RUN --to jsonl",
        ],
    ),
    (
        "completions",
        [
            "linerate completions bash > /etc/bash_completion.d/linerate",
            "linerate completions zsh > _linerate",
            "linerate completions fish > linerate.fish",
        ],
    ),
];

/// The command line with its help pages.
pub fn command() -> Command {
    let command = with_pages(Cli::command(), "");
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}\n{}\n{{options}}{{after-help}}",
        groups(&command),
        heading("Options"),
    );
    command.help_template(StyledStr::from(template))
}

/// The command with its examples, and with the options that `-h` leaves out.
fn with_pages(command: Command, page: &str) -> Command {
    let command = command
        .mut_args(|arg| match arg.get_help_heading() {
            Some(heading) if DETAILED.contains(&heading) => arg.hide_short_help(true),
            _ => arg,
        })
        .mut_subcommands(|inner| {
            let page = format!("{page} {}", inner.get_name());
            with_pages(inner, page.trim_start())
        });
    let Some((_, examples)) = EXAMPLES.iter().find(|(of, _)| *of == page) else {
        return command;
    };
    let mut text = heading("Examples");
    for example in examples {
        let _ = write!(text, "\n  {example}");
    }
    let long = match command.get_after_long_help() {
        Some(after) => format!("{text}\n\n{}", after.ansi()),
        None => text.clone(),
    };
    command
        .after_help(StyledStr::from(text))
        .after_long_help(StyledStr::from(long))
}

fn heading(text: &str) -> String {
    let style = *Styles::styled().get_header();
    format!("{style}{text}:{style:#}")
}

/// The list of commands, by group.
fn groups(command: &Command) -> String {
    let literal = *Styles::styled().get_literal();
    let mut text = String::new();
    for (group, names) in GROUPS {
        let _ = writeln!(text, "{}", heading(group));
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.cloned().unwrap_or_default();
            let _ = writeln!(text, "  {literal}{name:<12}{literal:#} {about}");
        }
    }
    text
}

/// The command line without what is hidden, as completions offer it.
pub fn visible(command: &Command) -> Command {
    let is_shown = |arg: &&Arg| !arg.is_hide_set();
    let shown = Command::new(command.get_name().to_owned())
        .args(command.get_arguments().filter(is_shown).cloned())
        .subcommands(
            command
                .get_subcommands()
                .filter(|inner| !inner.is_hide_set())
                .map(visible),
        );
    match command.get_about() {
        Some(about) => shown.about(about.clone()),
        None => shown,
    }
}

/// Whether a command or option by this name is shown anywhere.
fn is_shown(command: &Command, name: &str) -> bool {
    let has_long = |arg: &Arg| {
        let long = name.strip_prefix("--");
        long.is_some() && arg.get_long() == long && !arg.is_hide_set()
    };
    let has_name = |inner: &Command| {
        !inner.is_hide_set() && (inner.get_name() == name || is_shown(inner, name))
    };
    command.get_arguments().any(has_long) || command.get_subcommands().any(has_name)
}

/// An error of clap without suggestions of what is hidden. A missing peer lists the forms of one.
pub fn plain(mut error: clap::Error) -> clap::Error {
    let command = Cli::command();
    for kind in [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg] {
        let shown = match error.remove(kind) {
            Some(ContextValue::Strings(mut names)) => {
                names.retain(|name| is_shown(&command, name));
                (!names.is_empty()).then_some(ContextValue::Strings(names))
            }
            Some(ContextValue::String(name)) => {
                is_shown(&command, &name).then_some(ContextValue::String(name))
            }
            other => other,
        };
        if let Some(shown) = shown {
            error.insert(kind, shown);
        }
    }
    let is_peer_missing = error.kind() == ErrorKind::MissingRequiredArgument
        && matches!(
            error.get(ContextKind::InvalidArg),
            Some(ContextValue::Strings(missing)) if missing.iter().any(|one| one == "<PEER>")
        );
    if is_peer_missing {
        let tip = format!("a peer is {}", PeerAddress::FORMS);
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![tip.into()]),
        );
    }
    error
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Every page, by the words that name it.
    fn pages() -> Vec<(String, Command)> {
        fn add(command: &Command, page: &str, pages: &mut Vec<(String, Command)>) {
            pages.push((page.to_owned(), command.clone()));
            let shown = command
                .get_subcommands()
                .filter(|inner| !inner.is_hide_set());
            for inner in shown {
                let page = format!("{page} {}", inner.get_name());
                add(inner, page.trim_start(), pages);
            }
        }
        let mut pages = Vec::new();
        add(&command(), "", &mut pages);
        pages
    }

    #[test]
    fn every_page_has_examples_and_every_example_is_a_command_line_that_is_accepted() {
        let pages: BTreeSet<String> = pages().into_iter().map(|(page, _)| page).collect();
        let with_examples: BTreeSet<String> = EXAMPLES
            .iter()
            .map(|(page, _)| (*page).to_owned())
            .collect();
        assert_eq!(pages, with_examples);
        for (page, examples) in EXAMPLES {
            let own = format!("linerate {page}");
            assert!(
                examples[0].starts_with(own.trim_end()),
                "{page}: {examples:?}"
            );
            for example in examples {
                let words = example.split('#').next().unwrap_or_default();
                let (words, quoted) = match words.split_once('\'') {
                    Some((words, quoted)) => (words, Some(quoted.trim_end())),
                    None => (words.split('>').next().unwrap_or_default(), None),
                };
                // What a shell would take for itself is in quotes, at the end.
                let quoted = quoted.map(|word| word.strip_suffix('\'').expect(example));
                let words: Vec<&str> = words.split_whitespace().chain(quoted).collect();
                if words.len() > 1
                    && let Err(error) = command().try_get_matches_from(words)
                {
                    panic!("{example}: {error}");
                }
            }
        }
    }

    #[test]
    fn every_command_is_in_one_group() {
        let listed: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        let root = command();
        let shown = root.get_subcommands().filter(|inner| !inner.is_hide_set());
        let mut all: Vec<&str> = shown.map(Command::get_name).collect();
        let mut sorted = listed.clone();
        all.sort_unstable();
        sorted.sort_unstable();
        assert_eq!(sorted, all);
    }

    #[test]
    fn completions_offer_nothing_that_is_hidden() {
        fn check(command: &Command) {
            assert!(!command.is_hide_set(), "{}", command.get_name());
            for arg in command.get_arguments() {
                assert!(
                    !arg.is_hide_set(),
                    "{} {}",
                    command.get_name(),
                    arg.get_id()
                );
            }
            command.get_subcommands().for_each(check);
        }
        let hidden = ["mover", "reverter"];
        let whole = command();
        assert!(
            hidden
                .iter()
                .all(|name| whole.find_subcommand(name).is_some())
        );
        let shown = visible(&whole);
        assert!(
            hidden
                .iter()
                .all(|name| shown.find_subcommand(name).is_none())
        );
        check(&shown);
    }
}
