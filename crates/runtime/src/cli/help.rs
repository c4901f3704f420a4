//! What the help pages have beyond clap's: the commands in groups, three examples on every page, and the options
//! that only `--help` lists. And what clap would show of hidden commands and options, but must not.

use std::fmt::Write;

use clap::builder::StyledStr;
use clap::builder::styling::Styles;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory};
use linerate_model::peer_address::PeerAddress;

use super::examples::EXAMPLES;
use super::{Cli, agent, comparison, measure, verbs};

/// The commands, by what they are for.
const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Inspect",
        &["doctor", "nic", "map", "ceiling", "explain", "capture"],
    ),
    ("Measure", &["measure", "failover", "mesh", "demo"]),
    ("Fix", &["prove", "tune", "qos"]),
    (
        "Experiments and results",
        &["lab", "compare", "runs", "report", "export"],
    ),
    (
        "Far end and shell",
        &["agent", "peers", "testbed", "completions"],
    ),
];

/// The headings of options that only `--help` lists.
const DETAILED: [&str; 4] = [
    measure::PLACE,
    verbs::VERBS,
    comparison::COMPARISON,
    agent::LIMITS,
];

/// The command line with its help pages.
pub fn command() -> Command {
    let command = with_pages(Cli::command(), "");
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}{}\n{{options}}{{after-help}}",
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

    /// The words of an example up to its comment or its output's file; what single quotes enclose is one word.
    fn words_of_a_shell(example: &str) -> Vec<&str> {
        let mut words = Vec::new();
        for (number, piece) in example.split('\'').enumerate() {
            if number % 2 == 1 {
                words.push(piece);
                continue;
            }
            let end = piece.find(['#', '>']);
            words.extend(piece[..end.unwrap_or(piece.len())].split_whitespace());
            if end.is_some() {
                break;
            }
        }
        words
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
                let line = format!("tls://192.0.2.1#{}.{}.9", "a5".repeat(32), "0f".repeat(16));
                let words = words_of_a_shell(example).into_iter();
                let words: Vec<&str> = words
                    .map(|word| match word {
                        "LINE" => line.as_str(),
                        word => word,
                    })
                    .collect();
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
        let hidden = ["conductor", "launcher", "mover", "reverter"];
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
