//! `linerate complete`: the words that can stand at the end of a command line. The scripts of `linerate completions`
//! call it on each Tab, so that they know this host's NICs, peers and runs. It prints a word and its description on each
//! line, nothing when a file is expected, and never an error.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Arg, Command};
use linerate_channel::keys::KeyList;
use linerate_model::exit::Outcome;
use linerate_model::rules::RULES;
use linerate_model::setting::catalogue;
use linerate_runtime::cli::help;
use linerate_runtime::cli::state_folder::state_folder;
use linerate_runtime::console::say::Say;

use crate::lab::definition;

/// Where the names on this host come from.
struct Host {
    /// `/`, or a test's folder.
    root: PathBuf,
    home: Option<PathBuf>,
    state: Option<PathBuf>,
}

/// A word with its description.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Candidate {
    word: String,
    about: String,
}

/// Finds the words on this host for a value.
type Source = fn(&Host) -> Vec<Candidate>;

/// The sources of values, by the argument's name or placeholder.
const SOURCES: [(&str, Source); 14] = [
    ("NIC", nics),
    ("nic", nics),
    ("PEER", peers),
    ("PEER|URL", peers),
    ("PEER|DEVICE", peers),
    ("HOST:PORT|KEY", agents),
    ("ADDRESS|KEY", callers),
    ("RULE", topics),
    ("RUN", runs),
    ("RUN,RUN,RUN", runs),
    ("NAME|FILE.toml", experiments),
    ("cc", congestion_controls),
    ("device", rdma_devices),
    ("device_remote", rdma_devices),
];

/// Prints the words that can replace the last of `words`.
pub(crate) fn run(words: &[String], say: &Say) -> Outcome<()> {
    let given = words.iter().position(|word| word == "--state");
    let given = given.and_then(|at| words.get(at + 1)).map(Path::new);
    let state = state_folder(given).ok();
    let host = Host {
        root: PathBuf::from("/"),
        home: std::env::var_os("HOME").map(PathBuf::from),
        state,
    };
    let mut root = help::visible(&help::command());
    root.build();
    let found = candidates(&root, words, &host);
    let lines = found
        .iter()
        .map(|Candidate { word, about }| format!("{word}\t{about}"));
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() {
        return Ok(());
    }
    say.data(&lines.join("\n"))
}

fn candidates(root: &Command, words: &[String], host: &Host) -> Vec<Candidate> {
    let Some((typed, before)) = words.split_last() else {
        return Vec::new();
    };
    let (mut command, mut positional, mut only_values) = (root, 0, false);
    let mut awaits: Option<&Arg> = None;
    for word in before {
        if awaits.take().is_some() {
            continue;
        }
        if word == "--" {
            only_values = true;
        } else if word.starts_with('-') && !only_values {
            awaits = option_that_awaits(command, word);
        } else if let Some(inner) = command.find_subcommand(word) {
            (command, positional) = (inner, 0);
        } else {
            positional += 1;
        }
    }
    let (start, found) = if let Some(option) = awaits {
        ("", values(option, host))
    } else if let Some((name, _)) = typed.split_once('=').filter(|_| typed.starts_with("--")) {
        let option = command
            .get_arguments()
            .find(|arg| arg.get_long() == name.get(2..));
        (
            &typed[..=name.len()],
            option
                .map(|option| values(option, host))
                .unwrap_or_default(),
        )
    } else if typed.starts_with('-') && !only_values {
        ("", options(command))
    } else {
        let mut found: Vec<Candidate> = command.get_subcommands().map(of_command).collect();
        let last = command.get_positionals().last();
        let repeated = last.filter(|arg| arg.get_num_args().is_some_and(|n| n.max_values() > 1));
        let arg = command.get_positionals().nth(positional).or(repeated);
        found.extend(arg.map(|arg| values(arg, host)).unwrap_or_default());
        // Several in one word: `RUN,RUN`; and the user before a peer.
        let end = typed.rfind([',', '@']).map_or(0, |end| end + 1);
        (&typed[..end], found)
    };
    let whole = |one: Candidate| Candidate {
        word: format!("{start}{}", one.word),
        ..one
    };
    let found = found.into_iter().map(whole);
    found
        .filter(|one| one.word.starts_with(typed.as_str()))
        .collect()
}

/// The option that takes the next word as its value: `--time`, but not `--time=5`; `-t`, also at the end of `-Rt`.
fn option_that_awaits<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let mut arguments = command.get_arguments();
    let found = match word.strip_prefix("--") {
        Some(long) => arguments.find(|arg| {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            arg.get_long() == Some(long) || aliases.contains(&long)
        }),
        None => arguments.find(|arg| arg.get_short().is_some_and(|short| word.ends_with(short))),
    };
    found.filter(|arg| {
        arg.get_num_args()
            .is_some_and(|number| number.min_values() > 0)
    })
}

fn options(command: &Command) -> Vec<Candidate> {
    let options = command.get_opts().chain(
        command
            .get_arguments()
            .filter(|arg| !arg.is_positional() && !arg.get_action().takes_values()),
    );
    let options = options.filter_map(|arg| {
        let about = arg.get_help().map(ToString::to_string).unwrap_or_default();
        Some(candidate(
            format!("--{}", arg.get_long()?),
            first_line(&about),
        ))
    });
    options.collect()
}

fn values(arg: &Arg, host: &Host) -> Vec<Candidate> {
    let known = arg.get_possible_values();
    if !known.is_empty() {
        let known = known.iter().filter(|value| !value.is_hide_set());
        return known
            .map(|value| {
                let about = value
                    .get_help()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                candidate(value.get_name(), &about)
            })
            .collect();
    }
    let placeholder = arg.get_value_names().and_then(|names| names.first());
    let placeholder = placeholder.map(ToString::to_string).unwrap_or_default();
    let id = arg.get_id().as_str();
    let source = SOURCES
        .iter()
        .find(|(name, _)| *name == placeholder || *name == id);
    source.map(|(_, source)| source(host)).unwrap_or_default()
}

fn candidate(word: impl Into<String>, about: &str) -> Candidate {
    Candidate {
        word: word.into(),
        about: about.to_owned(),
    }
}

fn of_command(command: &Command) -> Candidate {
    let about = command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default();
    candidate(command.get_name(), first_line(&about))
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// The names in a folder, sorted; none if it cannot be read. A name that a terminal would obey is left out.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names
        .filter(|name| !name.contains(char::is_control))
        .collect();
    names.sort();
    names
}

fn nics(host: &Host) -> Vec<Candidate> {
    let folder = host.root.join("sys/class/net");
    let nics = names(&folder)
        .into_iter()
        .filter(|name| folder.join(name).is_dir());
    nics.map(|name| {
        let speed = fs::read_to_string(folder.join(&name).join("speed")).unwrap_or_default();
        let speed = speed
            .trim()
            .parse::<u32>()
            .ok()
            .map(|speed| format!("{speed} Mb/s"));
        candidate(name, &speed.unwrap_or_else(|| "interface".to_owned()))
    })
    .collect()
}

/// Network namespaces, the hosts of ssh's configuration, and those that ssh has connected to.
/// The names of known keys.
fn known(host: &Host, list: KeyList) -> Vec<String> {
    let all = host.state.as_deref().and_then(|state| list.all(state).ok());
    (all.unwrap_or_default().into_iter().map(|one| one.name)).collect()
}

fn agents(host: &Host) -> Vec<Candidate> {
    let names = known(host, KeyList::Agents).into_iter();
    names
        .map(|name| candidate(name, "listening agent"))
        .collect()
}

fn callers(host: &Host) -> Vec<Candidate> {
    let names = known(host, KeyList::Callers).into_iter();
    names.map(|name| candidate(name, "paired host")).collect()
}

fn peers(host: &Host) -> Vec<Candidate> {
    let mut peers = vec![candidate("local", "this host")];
    let agents = known(host, KeyList::Agents).into_iter();
    peers.extend(agents.map(|name| candidate(format!("tls://{name}"), "listening agent")));
    let spaces = names(&host.root.join("run/netns")).into_iter();
    peers.extend(spaces.map(|name| candidate(format!("netns:{name}"), "network namespace")));
    let read = |file: &str| {
        let home = host.home.as_ref()?;
        fs::read_to_string(home.join(".ssh").join(file)).ok()
    };
    let config = read("config").unwrap_or_default();
    let known = read("known_hosts").unwrap_or_default();
    let configured = config.lines().filter_map(|line| {
        let (keyword, hosts) = line.trim().split_once(char::is_whitespace)?;
        keyword.eq_ignore_ascii_case("host").then_some(hosts)
    });
    let configured = configured.flat_map(str::split_whitespace);
    let connected = known
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    let connected = connected.flat_map(|hosts| hosts.split(','));
    let mut hosts: Vec<&str> = configured
        .chain(connected)
        // Patterns, hashed names, markers, names with a port.
        .filter(|name| !name.contains(['*', '?', '!', '|', '[', '@', '#']))
        .collect();
    hosts.sort_unstable();
    hosts.dedup();
    peers.extend(hosts.into_iter().map(|name| candidate(name, "ssh")));
    peers
}

fn topics(host: &Host) -> Vec<Candidate> {
    let pages = [
        ("rules", "all rules"),
        ("settings", "all settings"),
        ("exit-codes", "all exit codes"),
    ];
    let mut topics: Vec<Candidate> = pages
        .iter()
        .map(|(word, about)| candidate(*word, about))
        .collect();
    topics.extend(RULES.iter().map(|rule| candidate(rule.id, rule.title)));
    let nics = nics(host);
    for spec in catalogue() {
        match spec.pattern.strip_prefix("nic/NAME/") {
            Some(rest) => topics.extend(
                nics.iter()
                    .map(|nic| candidate(format!("nic/{}/{rest}", nic.word), spec.about)),
            ),
            None => topics.push(candidate(spec.pattern, spec.about)),
        }
    }
    topics
}

/// The names of stored runs, the newest first: they start with the time.
fn runs(host: &Host) -> Vec<Candidate> {
    let Some(folder) = host.state.as_ref().map(|state| state.join("runs")) else {
        return Vec::new();
    };
    let runs = names(&folder).into_iter().rev();
    let runs = runs.filter(|name| folder.join(name).is_dir());
    let newest = candidate("last", "the newest run");
    std::iter::once(newest)
        .chain(runs.map(|name| candidate(name, "stored run")))
        .collect()
}

fn experiments(_: &Host) -> Vec<Candidate> {
    definition::SHIPPED
        .iter()
        .map(|(name, _)| candidate(*name, "included experiment"))
        .collect()
}

fn congestion_controls(host: &Host) -> Vec<Candidate> {
    let file = host
        .root
        .join("proc/sys/net/ipv4/tcp_available_congestion_control");
    let text = fs::read_to_string(file).unwrap_or_default();
    text.split_whitespace()
        .map(|name| candidate(name, "congestion control"))
        .collect()
}

fn rdma_devices(host: &Host) -> Vec<Candidate> {
    let names = names(&host.root.join("sys/class/infiniband")).into_iter();
    names.map(|name| candidate(name, "RDMA device")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host with one NIC, a namespace, ssh hosts and two runs.
    fn host() -> (tempfile::TempDir, Host) {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        let files = [
            ("sys/class/net/eth2/speed", "25000\n"),
            ("sys/class/infiniband/rxe0/x", ""),
            ("run/netns/far", ""),
            (
                "proc/sys/net/ipv4/tcp_available_congestion_control",
                "reno cubic\n",
            ),
            (
                "home/.ssh/config",
                "Host storage1 storage2\n  User root\nHost *.example\n",
            ),
            (
                "home/.ssh/known_hosts",
                "|1|abc= ssh-ed25519 A\nnode7,192.0.2.7 ssh-ed25519 A\n",
            ),
            ("runs/20261101-a/x", ""),
            ("runs/20261102-b/x", ""),
            (
                "keys/agents",
                &format!("{} 7 gateway:5210\n", "a5".repeat(32)),
            ),
            (
                "keys/callers",
                &format!("{} 7 192.0.2.9\n", "a5".repeat(32)),
            ),
        ];
        for (name, text) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("room");
            fs::write(path, text).expect("room");
        }
        let host = Host {
            root: root.to_owned(),
            home: Some(root.join("home")),
            state: Some(root.to_owned()),
        };
        (folder, host)
    }

    fn words(line: &str) -> Vec<String> {
        let (folder, host) = host();
        let mut root = help::visible(&help::command());
        root.build();
        let typed: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let found = candidates(&root, &typed, &host).into_iter();
        let words = found.map(|one| one.word).collect();
        drop(folder);
        words
    }

    #[test]
    fn commands_options_and_their_values_are_completed() {
        assert_eq!(words("do"), ["doctor"]);
        assert_eq!(words("measure str"), ["stream"]);
        assert_eq!(words("doctor --verb"), ["--verbose"]);
        assert_eq!(words("doctor --fo"), ["--format"]);
        assert_eq!(words("--format j"), ["json", "junit"]);
        assert_eq!(words("--format=j"), ["--format=json", "--format=junit"]);
        assert!(words("mov").is_empty());
        assert!(words("demo --stag").is_empty());
        assert!(
            words("doctor --from ").is_empty(),
            "the shell completes files"
        );
    }

    #[test]
    fn nics_peers_rules_settings_and_runs_of_this_host_are_completed() {
        assert_eq!(words("doctor e"), ["eth2"]);
        assert_eq!(words("doctor --role latency e"), ["eth2"]);
        assert_eq!(words("runs --nic "), ["eth2"]);
        let peers = [
            "local",
            "tls://gateway:5210",
            "netns:far",
            "192.0.2.7",
            "node7",
            "storage1",
            "storage2",
        ];
        assert_eq!(words("prove "), peers);
        assert_eq!(words("measure stream -Rt 5 netns:"), ["netns:far"]);
        assert_eq!(
            words("measure rr root@s"),
            ["root@storage1", "root@storage2"]
        );
        assert_eq!(words("peers forget "), ["gateway:5210"]);
        assert_eq!(words("agent forget "), ["192.0.2.9"]);
        assert_eq!(words("ceiling --peer no"), ["node7"]);
        assert_eq!(words("explain irq-rem"), ["irq-remote-numa"]);
        let setting = "nic/eth2/coalesce/rx-usecs";
        assert!(words("explain nic/eth2/co").contains(&setting.to_owned()));
        assert_eq!(words("measure stream HOST -C "), ["reno", "cubic"]);
        assert_eq!(words("measure rdma-write HOST --device "), ["rxe0"]);
        assert!(words("lab run numa").contains(&"numa-near-far".to_owned()));
    }

    #[test]
    fn runs_are_completed_by_their_names_also_in_a_list() {
        let both = ["last", "20261102-b", "20261101-a"];
        assert_eq!(words("report "), both);
        assert_eq!(words("export ./one "), both);
        assert_eq!(words("compare a,b, "), both);
        let second: Vec<String> = words("compare a,");
        assert_eq!(second, ["a,last", "a,20261102-b", "a,20261101-a"]);
    }

    #[test]
    fn every_source_belongs_to_an_argument() {
        fn arguments(command: &Command, names: &mut Vec<String>) {
            for arg in command.get_arguments() {
                names.push(arg.get_id().to_string());
                names.extend(
                    arg.get_value_names()
                        .into_iter()
                        .flatten()
                        .map(ToString::to_string),
                );
            }
            command
                .get_subcommands()
                .for_each(|inner| arguments(inner, names));
        }
        let mut names = Vec::new();
        arguments(&help::command(), &mut names);
        for (name, _) in SOURCES {
            assert!(names.iter().any(|one| one == name), "{name}");
        }
    }
}
