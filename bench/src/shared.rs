//! What the programs of `bench/` have in common: each runs itself again as the stage that holds the network
//! namespaces, finds the linerate built next to it, and changes its hosts with tc(8) and ip(8).

#![forbid(unsafe_code)]

pub mod markdown;
pub mod ratios;
pub mod results;
pub mod running;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use linerate_stats::{Random, Seed};
use linerate_testbed::{Netns, Stage, join, tie_to_parent};
use serde::Serialize;

/// What went wrong, completing "cannot ...".
#[derive(Debug)]
pub struct Trouble(pub String);

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How a program ends: well, with something that did not hold, or with a word about what went wrong.
#[expect(
    clippy::print_stderr,
    reason = "a developer's tool that talks to its terminal"
)]
pub fn exit_code(result: Result<bool, Trouble>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(trouble) => {
            eprintln!("error: cannot {trouble}");
            ExitCode::FAILURE
        }
    }
}

/// The options of a program that makes hosts of its own.
#[derive(Debug, Clone, Args)]
pub struct StageArgs {
    /// Seed of everything random [default: the time]
    #[arg(long)]
    pub seed: Option<u64>,
    /// The linerate to run [default: the one next to this program]
    #[arg(long, value_name = "FILE")]
    pub linerate: Option<PathBuf>,
    /// Internal: the process that holds the namespaces
    #[arg(long, hide = true)]
    pub stage: bool,
}

impl StageArgs {
    /// The exit code of `conduct`, which runs in the process that holds the namespaces.
    pub fn exit_code(&self, conduct: impl FnOnce() -> Result<bool, Trouble>) -> ExitCode {
        exit_code(if self.stage {
            conduct()
        } else {
            restart_as_stage(self.seed.is_some())
                .map_err(|error| Trouble(format!("start the stage: {error}")))
        })
    }

    /// The linerate that is run.
    ///
    /// # Errors
    ///
    /// Which file is not there.
    pub fn linerate(&self) -> Result<PathBuf, Trouble> {
        linerate_file(self.linerate.as_deref()).map_err(Trouble)
    }
}

/// Two new hosts, `near` with the interface `near0` and `far` with `far0`, that are joined; each address has a prefix.
///
/// # Errors
///
/// What the kernel refused.
pub fn two_hosts(stage: &Stage, addresses: [&str; 2]) -> Result<(Netns, Netns), Trouble> {
    let host = |name| {
        let host = stage.add_host(name);
        host.map_err(|error| Trouble(error.to_string()))
    };
    let (near, far) = (host("near")?, host("far")?);
    let nic = |name: &str| name.parse().map_err(|error| Trouble(format!("{error}")));
    join(
        (&near, &nic("near0")?, addresses[0]),
        (&far, &nic("far0")?, addresses[1]),
    )
    .map_err(|error| Trouble(format!("join the hosts: {error}")))?;
    Ok((near, far))
}

/// Where a table goes.
#[derive(Debug, Clone, Args)]
pub struct TableArgs {
    /// Also write the table to this file
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Print JSON instead of the table
    #[arg(long)]
    pub json: bool,
}

impl TableArgs {
    /// Writes and prints the table `text`, or its rows as JSON.
    ///
    /// # Errors
    ///
    /// The file that cannot be written.
    #[expect(
        clippy::print_stdout,
        reason = "a developer's tool that talks to its terminal"
    )]
    pub fn show<T: Serialize>(&self, text: &str, rows: &[T]) -> Result<(), Trouble> {
        if let Some(file) = &self.out {
            fs::write(file, text)
                .map_err(|error| Trouble(format!("write {}: {error}", file.display())))?;
        }
        if self.json {
            println!("{:#}", serde_json::json!(rows));
        } else {
            print!("{text}");
        }
        Ok(())
    }
}

/// What a person started runs itself again with `--stage`, and with `--seed` when none was given: the
/// namespaces belong to that child and vanish with it. Whether it ended well.
///
/// # Errors
///
/// What the kernel answers when the child cannot be started.
pub fn restart_as_stage(seed_is_given: bool) -> io::Result<bool> {
    let mut stage = Command::new(std::env::current_exe()?);
    stage.args(std::env::args_os().skip(1)).arg("--stage");
    if !seed_is_given {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        stage.args(["--seed", &now.unwrap_or_default().as_secs().to_string()]);
    }
    tie_to_parent(&mut stage);
    Ok(stage.status()?.success())
}

/// The linerate that is measured: the one given, else the one next to this program.
///
/// # Errors
///
/// Words that complete "cannot ...": which file is not there.
pub fn linerate_file(given: Option<&Path>) -> Result<PathBuf, String> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => std::env::current_exe()
            .map_err(|error| format!("find this program's own file: {error}"))?
            .with_file_name("linerate"),
    };
    // It may be started in another folder.
    fs::canonicalize(&path).map_err(|error| {
        format!(
            "use {}: {error}; the scripts in bench/ build it; `--linerate` selects another",
            path.display()
        )
    })
}

/// The load average of the last minute.
pub fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}

/// Runs a program in a host and returns its output.
///
/// # Errors
///
/// Words that complete "cannot ...", with the program's output.
pub fn run_inside(host: &Netns, program: &str, words: &str) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(words.split_whitespace()).stdin(Stdio::null());
    host.enter_in_child(&mut command)
        .map_err(|error| format!("enter a namespace: {error}"))?;
    let output = command
        .output()
        .map_err(|error| format!("run {program} {words}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(format!("run {program} {words}: {said}"))
}

/// The only child of process `parent`: of a linerate that measures, its remote end in the other namespace.
pub fn child_of(parent: u32) -> Option<u32> {
    let entries = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        parent_of(&stat) == Some(parent)
    })
}

/// Field 4 of a `/proc/PID/stat` (proc(5)); the second may hold blanks and parentheses.
fn parent_of(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// Lets time pass.
#[expect(
    clippy::disallowed_methods,
    reason = "the length of the pause is what is injected or measured"
)]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// 0 to `count` in random order.
pub fn shuffled(count: usize, seed: u64, round: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let seed = seed.wrapping_add(round.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    Random::new(Seed(seed)).shuffle(&mut order);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_told_whatever_a_program_is_called() {
        assert_eq!(parent_of("12 (a b) c) S 7 12 12 0 -1"), Some(7));
        assert_eq!(parent_of(""), None);
    }

    #[test]
    fn every_round_has_everybody_once_and_orders_differ() {
        let orders: Vec<Vec<usize>> = (0..20).map(|round| shuffled(5, 7, round)).collect();
        for order in &orders {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3, 4]);
        }
        assert!(orders.iter().any(|order| *order != orders[0]));
    }
}
