//! All tests of the workspace, built by cargo first and run here, so that the same programs can run a second time as
//! another user, skips are counted, and waiting tests run in parallel with others.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::Value;

use crate::check::{self, cargo, collect};
use crate::jobs::{self, Job, Outcome};
use crate::tally::{Output, Tally};
use crate::tidy;
use crate::user::{self, User};

/// Packages, and programs of packages, whose tests depend only on their input (fixtures, simulated hosts, a fake
/// verbs library): the user who runs them makes no difference.
const SAME_FOR_EVERY_USER: [(&str, Option<&str>); 13] = [
    ("linerate-channel", Some("test strangers")),
    ("linerate-model", None),
    ("linerate-stats", None),
    ("linerate-analysis", None),
    ("linerate-report", None),
    ("linerate-verbs", None),
    ("linerate-bench", None),
    ("xtask", None),
    ("linerate", Some("test captured")),
    ("linerate", Some("test simulated")),
    ("linerate-host", Some("test capture_memory")),
    ("linerate-host", Some("test corpus")),
    ("linerate-traffic", Some("test verbs")),
];
/// Tests of other programs of which the same holds, because they move bytes or keep records between two hosts that
/// others of the program make, or weigh other fixes than those that stay, or start programs that only root may start
/// (routers, Slurm): libtest skips those whose names contain one of these.
const SAME_TESTS: [(&str, &str, &[&str]); 2] = [
    (
        "linerate",
        "test it",
        &[
            "completions::",
            "early_end::",
            "experiment::",
            "failover_runs::",
            "gate::",
            "help::",
            "iperf3::",
            "ladder::",
            "live::",
            "mesh::",
            "mesh_engines::",
            "metrics::",
            "packaging::",
            "peers::",
            "prove::a_search_finds",
            "prove::a_shaper_that_is_not_ours",
            "prove::changes_of_a_plan",
            "prove::remedies_can_be_weighed",
            "prove::what_only_both_ends",
            "qos_verify::",
            "redundant::",
            "stream::",
            "tls::a_",
            "tls::behind",
            "tls::datagrams",
            "tls::one_port",
            "tls::settings",
            "tls::strangers",
            "tls::the_agent",
            "tls::what",
            "workloads::",
        ],
    ),
    (
        "linerate-traffic",
        "test it",
        &[
            "diffusion::",
            "exchange_by_hand::",
            "hostile::",
            "http",
            "iperf3",
            "simulated::",
        ],
    ),
];
/// Tests that mostly wait (for deadlines, for processes that they kill, for a class of little bandwidth): they run apart
/// from the others of their program, beside them. libtest takes those whose names contain one of these.
const WAITING_TESTS: (&str, &str, &[&str]) = (
    "linerate",
    "test it",
    &[
        "agent::",
        "bad_input::",
        "classes::",
        "drops::a_stream_that_a_path_stops",
        "failover::a_command_that_hangs",
        "guard::",
        "hold::",
        "lease::",
        "mesh_launch::",
        "qos::",
        "qos_verify::",
        "restore::",
        "unreachable::",
        "untrusted::",
    ],
);
/// How many of them run at once: more than there are CPUs, since they wait.
const WAITING_THREADS: &str = "4";
/// The programs that take longest, in this order: they come first, so that none starts when the others have ended.
const LONGEST: [(&str, &str); 6] = [
    ("linerate", "test it"),
    ("linerate", "test simulated"),
    ("linerate-traffic", "test it"),
    ("linerate-traffic", "test verbs"),
    ("linerate", "test captured"),
    ("linerate-host", "test capture_memory"),
];
/// The tests in a virtual machine, which are built and run by name only.
const VM: &str = "vm";

/// A program that cargo built.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Program {
    package: String,
    name: String,
    is_test: bool,
    folder: PathBuf,
    file: PathBuf,
}

impl Program {
    /// Its place in the order of the programs.
    fn place(&self) -> usize {
        let is_it = |(package, name): &(&str, &str)| self.package == *package && self.name == *name;
        LONGEST.iter().position(is_it).unwrap_or(LONGEST.len())
    }

    /// The parts that run beside each other, each with its name and the arguments by which libtest selects its tests.
    fn parts(&self) -> Vec<(&'static str, Vec<&'static str>)> {
        let (package, name, waiting) = WAITING_TESTS;
        if (self.package.as_str(), self.name.as_str()) != (package, name) {
            return vec![("", Vec::new())];
        }
        let others = waiting.iter().flat_map(|test| ["--skip", test]);
        let together = ["--test-threads", WAITING_THREADS];
        vec![
            ("", others.collect()),
            (", tests that wait", [&together, waiting].concat()),
        ]
    }

    /// The arguments by which libtest leaves out the tests that do not depend on the user.
    fn without_same(&self) -> Vec<&'static str> {
        let own = (SAME_TESTS.iter())
            .filter(|(package, name, _)| self.package == *package && self.name == *name);
        own.flat_map(|(.., tests)| tests.iter())
            .flat_map(|test| ["--skip", test])
            .collect()
    }

    fn depends_on_user(&self) -> bool {
        let is_listed = |(package, name): &(&str, Option<&str>)| {
            self.package == *package && name.is_none_or(|name| name == self.name)
        };
        !SAME_FOR_EVERY_USER.iter().any(is_listed)
    }
}

/// Runs the checks and all tests; as root, those that can depend on the user also run as an ordinary one.
pub(crate) fn run(root: &Path) -> Tally {
    let (built, guests) =
        match build(root, &[]).and_then(|all| Ok((all, build(root, &check::TESTS)?))) {
            Ok(built) => built,
            Err(failure) => return failure,
        };
    let (mut tests, others): (Vec<Program>, Vec<Program>) =
        built.into_iter().partition(|program| program.is_test);
    tests.sort_by_key(Program::place);
    let mut failed = Tally::default();
    let users = [
        Some(User::own(root)),
        user::is_root().then(|| User::ordinary(root)),
    ];
    let mut of_users: Vec<(usize, Job<'_>)> = Vec::new();
    for (number, user) in users.into_iter().flatten().enumerate() {
        let wanted = tests
            .iter()
            .filter(|program| number == 0 || program.depends_on_user());
        match user {
            Ok(user) => {
                let is_second = number > 0;
                of_users.extend(as_user(
                    user,
                    &wanted.cloned().collect::<Vec<_>>(),
                    is_second,
                    &mut failed,
                ));
            }
            Err(error) => failed
                .failures
                .push(format!("a home for the tests in /tmp: {error}")),
        }
    }
    of_users.sort_by_key(|(place, _)| *place);
    let mut of_users = of_users.into_iter().map(|(_, job)| job);
    let mut guests = in_guests(root, guests);
    // The longest, whose other half mostly waits and follows later, beside a guest, which computes all the time, and the
    // checks. These wait for each other's lock on what cargo builds, so they follow one another in the lane that the other
    // two leave free; then the second guest.
    let mut jobs: Vec<Job<'_>> = Vec::new();
    jobs.extend(of_users.next());
    jobs.extend(guests.next());
    jobs.extend(check::jobs(root));
    jobs.extend(examples(root));
    jobs.extend(guests);
    jobs.extend(of_users.next());
    jobs.extend(page(root, &others));
    jobs.extend(of_users);
    let mut tally = jobs::run(jobs);
    tally.add(failed);
    tally
}

/// Only the tests in the virtual machine.
pub(crate) fn vm(root: &Path) -> Tally {
    match build(root, &["--test", VM]) {
        Ok(programs) => jobs::run(in_guests(root, programs).collect()),
        Err(failure) => failure,
    }
}

fn build(root: &Path, targets: &[&str]) -> Result<Vec<Program>, Tally> {
    let mut build = cargo();
    build
        .args(["test", "--workspace", "--no-run", "--message-format=json"])
        .args(targets)
        .current_dir(root);
    match build.stderr(Stdio::inherit()).output() {
        Ok(output) if output.status.success() => {
            Ok(programs(&String::from_utf8_lossy(&output.stdout)))
        }
        Ok(output) => {
            show_errors(&String::from_utf8_lossy(&output.stdout));
            Err(Tally::of_gate("build the tests", &Output::default()))
        }
        Err(error) => {
            eprintln!("cannot start cargo: {error}");
            Err(Tally::of_gate("build the tests", &Output::default()))
        }
    }
}

/// Once: in the guest the tests run as root, whoever starts them. Two guests share them.
fn in_guests(root: &Path, programs: Vec<Program>) -> impl Iterator<Item = Job<'_>> {
    let parts = |program: Program| ["1/2", "2/2"].map(|part| (program.clone(), part));
    let is_vm = |program: &Program| program.is_test && program.name == format!("test {VM}");
    let guests = programs.into_iter().filter(is_vm).flat_map(parts);
    guests.map(move |(program, part)| {
        let title = format!("linerate/test vm {part}");
        Job::new(title.clone(), move || {
            let mut command = check::niced(&program.file);
            command.args(["--part", part]);
            command.env("LINERATE_VM_GUEST", part.replace('/', "-of-"));
            of_tests(&title, command.current_dir(root))
        })
    })
}

/// The examples in the documentation, of the packages that have one: rustdoc reads the whole of a package even if
/// there is none.
fn examples(root: &Path) -> Option<Job<'_>> {
    let packages = packages_with_examples(root);
    (!packages.is_empty()).then(|| {
        Job::new("examples in the documentation", move || {
            let mut cargo = check::niced(cargo().get_program());
            cargo.args(["test", "--doc"]);
            for package in &packages {
                cargo.args(["--package", package]);
            }
            cargo.args(["--", "--show-output"]);
            of_tests("doc", cargo.current_dir(root))
        })
    })
}

/// The packages of `crates/`, which are the libraries, with a code block that rustdoc runs.
fn packages_with_examples(root: &Path) -> BTreeSet<String> {
    let sources = tidy::read_tree(root).into_iter().filter_map(|file| {
        let (folder, rest) = file.path.strip_prefix("crates/")?.split_once('/')?;
        let is_source = rest.starts_with("src/") && has_example(&file.text);
        is_source.then(|| match folder {
            "linerate" => folder.to_owned(),
            _ => format!("linerate-{folder}"),
        })
    });
    sources.collect()
}

/// Whether a doc comment has a code block that rustdoc may compile.
fn has_example(source: &str) -> bool {
    const OTHER_LANGUAGES: [&str; 4] = ["text", "sh", "json", "toml"];
    let mut is_inside = false;
    source.lines().any(|line| {
        let line = line.trim_start();
        let text = line
            .strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"));
        let Some(language) = text.and_then(|text| text.trim_start().strip_prefix("```")) else {
            return false;
        };
        is_inside = !is_inside;
        is_inside && !OTHER_LANGUAGES.contains(&language.trim())
    })
}

/// The programs that make pages, by the variables in which `web/test/browser.mjs` looks for them: without these it
/// builds them, with other features than those of the tests.
const OF_PAGES: [(&str, &str); 2] = [
    ("LINERATE", "bin linerate"),
    ("LINERATE_REPORT_PAGE", "example report_page"),
];

/// The report's page in a real browser, with the page's own tools (npm).
fn page<'a>(root: &'a Path, programs: &[Program]) -> Option<Job<'a>> {
    const TITLE: &str = "the page in a browser";
    const SCRIPT: &str = "command -v npm >/dev/null || { echo 'SKIP: there is no npm'; exit 0; }
        [ -d node_modules ] || npm ci --no-audit --no-fund ||
            { echo 'SKIP: npm could not install what the tests of the page need'; exit 0; }
        npm test --silent";
    let folder = root.join("web");
    let built = OF_PAGES.iter().filter_map(|(variable, name)| {
        let program = programs.iter().find(|program| program.name == *name)?;
        Some((*variable, program.file.clone()))
    });
    let built: Vec<(&str, PathBuf)> = built.collect();
    folder.join("package.json").exists().then(|| {
        Job::new(TITLE, move || {
            let mut command = Command::new("sh");
            command.args(["-c", SCRIPT]).current_dir(folder).envs(built);
            let output = collect(&mut command);
            let tally = Tally::of_gate(TITLE, &output);
            Outcome { output, tally }
        })
    })
}

/// All programs as one user, whose home is removed after the last of them, each with its place in the order; as the
/// second one without what the first one has shown for both.
fn as_user(
    user: User,
    programs: &[Program],
    is_second: bool,
    failed: &mut Tally,
) -> Vec<(usize, Job<'static>)> {
    let obstacle = (programs.first()).and_then(|first| user.obstacle(&first.file));
    if let Some(obstacle) = obstacle {
        println!("SKIP: {obstacle}");
        failed.skips.push(obstacle);
        return Vec::new();
    }
    let user = Arc::new(user);
    let job = |(program, (part, selection)): (&Program, (&str, Vec<&'static str>))| {
        let mut arguments = vec!["--show-output"];
        arguments.extend(selection);
        if is_second {
            arguments.extend(program.without_same());
        }
        let Program {
            package,
            name,
            folder,
            file,
            ..
        } = program.clone();
        let title = format!("{package}/{name} as {}{part}", user.name);
        let user = Arc::clone(&user);
        let job = Job::new(title.clone(), move || {
            let mut command = user.command(&file, &folder, &arguments);
            of_tests(&title, command.env("CARGO_MANIFEST_DIR", &folder))
        });
        (program.place(), job)
    };
    let parts = |program| {
        Program::parts(program)
            .into_iter()
            .map(move |part| (program, part))
    };
    programs.iter().flat_map(parts).map(job).collect()
}

fn of_tests(title: &str, command: &mut Command) -> Outcome {
    let output = collect(command);
    let tally = Tally::of_tests(title, &output);
    Outcome { output, tally }
}

/// The programs that cargo's messages name.
fn programs(messages: &str) -> Vec<Program> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| {
            let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
            Some(Program {
                package: package_name(message["package_id"].as_str()?, folder),
                name: format!(
                    "{} {}",
                    message["target"]["kind"][0].as_str()?,
                    message["target"]["name"].as_str()?
                ),
                is_test: message["profile"]["test"] == true,
                folder: folder.to_owned(),
                file: PathBuf::from(message["executable"].as_str()?),
            })
        })
        .collect()
}

/// The name in a package id (`path+file:///x/model#linerate-model@0.1.0`); where the id has only the
/// version, cargo means that the folder's name is the package's.
fn package_name(id: &str, folder: &Path) -> String {
    let fragment = id.rsplit_once('#').map_or("", |(_, fragment)| fragment);
    match fragment.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
    }
}

fn show_errors(messages: &str) {
    for line in messages.lines() {
        let message = serde_json::from_str::<Value>(line).unwrap_or_default();
        if let Some(text) = message["message"]["rendered"].as_str() {
            eprint!("{text}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_is_a_code_block_that_rustdoc_may_compile() {
        assert!(has_example("//! ```\n//! let a = 1;\n//! ```\n"));
        assert!(has_example("    /// ```compile_fail,E0499\n    /// ```\n"));
        assert!(!has_example("//! ```text\n//! a -> b\n//! ```\n"));
        assert!(!has_example("let fence = \"```\";\n// ```\n"));
    }

    #[test]
    fn programs_are_taken_from_cargos_messages_and_distinguished_from_tests() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","package_id":"path+file:///x/crates/host#linerate-host@0.1.0","#,
            r#""manifest_path":"/x/crates/host/Cargo.toml","target":{"kind":["lib"],"name":"linerate_host"},"#,
            r#""profile":{"test":true},"executable":"/x/target/debug/deps/linerate_host-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","package_id":"path+file:///x/crates/linerate#0.1.0","#,
            r#""manifest_path":"/x/crates/linerate/Cargo.toml","target":{"kind":["bin"],"name":"linerate"},"#,
            r#""profile":{"test":false},"executable":"/x/target/debug/linerate"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","package_id":"path+file:///x/crates/linerate#0.1.0","#,
            r#""manifest_path":"/x/crates/linerate/Cargo.toml","target":{"kind":["lib"],"name":"linerate"},"#,
            r#""profile":{"test":false},"executable":null}"#,
            "\nnot json\n",
        );
        let expected = [
            Program {
                package: "linerate-host".to_owned(),
                name: "lib linerate_host".to_owned(),
                is_test: true,
                folder: PathBuf::from("/x/crates/host"),
                file: PathBuf::from("/x/target/debug/deps/linerate_host-1"),
            },
            Program {
                package: "linerate".to_owned(),
                name: "bin linerate".to_owned(),
                is_test: false,
                folder: PathBuf::from("/x/crates/linerate"),
                file: PathBuf::from("/x/target/debug/linerate"),
            },
        ];
        assert_eq!(programs(messages), expected);
        assert_eq!(
            package_name("path+file:///x/xtask#0.1.0", Path::new("/x/xtask")),
            "xtask"
        );
    }
}
