//! What people type after `lab` and `compare`.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use linerate_model::peer_address::PeerAddress;
use linerate_model::units::Nanoseconds;

use super::parse_seconds;

/// `lab`.
#[derive(Debug, Subcommand)]
pub enum LabAction {
    /// List the experiments that come with linerate, or print the file of one, to copy and change it.
    List {
        /// Print this experiment's file (TOML).
        #[arg(value_name = "NAME")]
        experiment: Option<String>,
    },
    /// Run an experiment: all combinations in randomized blocks; settings are applied before and rolled back after
    /// each trial.
    Run(Box<LabRunArgs>),
    /// Resume a run that was stopped or killed.
    Resume {
        /// The run: a directory, a name, or `last`. You must own its files: they name the settings to change.
        run: PathBuf,
        /// Peers of the run. Required for `exec:COMMAND` peers: commands from stored runs are never executed.
        #[arg(value_name = "PEER")]
        peers: Vec<PeerAddress>,
        /// The server's command, if the run has one: commands from stored runs are never executed.
        #[arg(long, value_name = "COMMAND")]
        server: Option<String>,
        /// Internal steps, each in its own process.
        #[arg(long, hide = true, value_enum)]
        step: Option<LabStep>,
    },
    /// Analyze a run from its raw records: means, effects with confidence intervals, disturbances.
    Show {
        /// The run: a directory, the name of a stored run or a part of it, or `last`.
        run: PathBuf,
    },
}

/// `lab run`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub struct LabRunArgs {
    /// A built-in experiment (`linerate lab list`) or a file.
    #[arg(value_name = "NAME|FILE.toml")]
    pub experiment: String,
    /// The peer: `[user@]host` (ssh), `tls://host`, `netns:NAME`, `exec:COMMAND`, `local` [default: the experiment's, else
    /// two temporary network namespaces on this machine]; for `blk-mq`, a block device: `/dev/nvme0n1`.
    #[arg(value_name = "PEER|DEVICE")]
    pub target: Option<Target>,
    /// Load this HTTP server instead of linerate's own: `http://ADDRESS[:PORT]/PATH`. Without PEER it may run anywhere.
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Start the server with this shell command for each trial, under the trial's memory policy and on its CPUs.
    ///
    /// It runs on this host, and PEER loads it at the address of `--url`. After each trial, and however linerate ends, the
    /// command and all processes that it started are stopped.
    #[arg(long, value_name = "COMMAND", requires = "url")]
    pub server: Option<String>,
    /// Fewer levels and repeats, shorter trials.
    #[arg(long)]
    pub quick: bool,
    /// Print the plan and exit.
    #[arg(long)]
    pub plan: bool,
    /// Run even if the experiment is unlikely to detect the smallest effect of interest.
    #[arg(long, hide_short_help = true)]
    pub force: bool,
    /// Repeats of all combinations, 3 to 10000 [default: the experiment's].
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(3..=10_000))]
    pub repeats: Option<u32>,
    /// Duration of each trial: seconds, or with a unit [default: the experiment's].
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    pub time: Option<Nanoseconds>,
    /// Seed for the trial order and the bootstrap intervals.
    #[arg(long, hide_short_help = true)]
    pub seed: Option<u64>,
    /// Allow brief disruption of the interfaces that carry SSH to both ends.
    #[arg(long)]
    pub allow_management_disruption: bool,
    /// Copy this program to the peer if the peer does not have this build (ssh only).
    #[arg(long)]
    pub push: bool,
    /// Peer address for the data connections [default: one on a shared subnet, else the ssh host].
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<IpAddr>,
    /// Compare paths: NAME=ADDRESS of the same peer, or NAME=PEER of another; or devices: NAME=DEVICE.
    ///
    /// Each is a level of a factor `path` (of block devices: `device`); a single one is compared with the default.
    #[arg(long, value_name = "NAME=PATH", value_parser = parse_path)]
    pub path: Vec<NamedPath>,
    /// Directory to store the run in [default: runs/ in the state directory].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Internal steps, each in its own process.
    #[arg(long, hide = true, value_enum)]
    pub step: Option<LabStep>,
}

/// A path of `--path`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPath {
    /// What it is called in the results.
    pub name: String,
    /// Where it leads.
    pub to: PathTarget,
}

/// Where a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathTarget {
    /// Another address of the same peer.
    Address(IpAddr),
    /// Another peer.
    Peer(PeerAddress),
    /// A block device of this host.
    Device(PathBuf),
}

/// What is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The path to a peer.
    Peer(PeerAddress),
    /// A block device of this host, by an absolute path: no peer has one.
    Device(PathBuf),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with('/') {
            return Ok(Self::Device(text.into()));
        }
        text.parse().map(Self::Peer)
    }
}

fn parse_path(text: &str) -> Result<NamedPath, String> {
    let named = text
        .split_once('=')
        .filter(|(name, to)| !name.is_empty() && !to.is_empty());
    let (name, to) = named.ok_or(
        "expected NAME=ADDRESS, NAME=PEER or NAME=DEVICE, such as `ib=10.1.0.2` or `many=/dev/nvme0n1`",
    )?;
    let to = match (to.parse(), to.parse()?) {
        (Ok(address), _) => PathTarget::Address(address),
        (Err(_), Target::Peer(peer)) => PathTarget::Peer(peer),
        (Err(_), Target::Device(device)) => PathTarget::Device(device),
    };
    Ok(NamedPath {
        name: name.to_owned(),
        to,
    })
}

/// The processes of an experiment that creates its own two namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LabStep {
    /// Holds them.
    Stage,
    /// Runs between them.
    Inside,
}

/// Runs of one side of a comparison, separated by commas.
#[derive(Debug, Clone)]
pub struct RunGroup(pub Vec<PathBuf>);

impl RunGroup {
    /// Paths are bytes, not always UTF-8.
    fn parse(text: OsString) -> Result<Self, &'static str> {
        // A folder with a comma in its name can be named too.
        if text.as_bytes().contains(&b',') && PathBuf::from(&text).exists() {
            return Ok(Self(vec![text.into()]));
        }
        let parts = text.as_bytes().split(|byte| *byte == b',');
        let runs: Vec<PathBuf> = parts.map(|part| OsStr::from_bytes(part).into()).collect();
        if runs.iter().any(|run| run.as_os_str().is_empty()) {
            return Err("an empty name of a run");
        }
        Ok(Self(runs))
    }
}

impl fmt::Display for RunGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs: Vec<String> = self.0.iter().map(|run| run.display().to_string()).collect();
        f.write_str(&runs.join(","))
    }
}

/// `compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The baseline runs, separated by commas: three or more for a verdict.
    #[arg(value_name = "RUN,RUN,RUN", value_parser = OsStringValueParser::new().try_map(RunGroup::parse))]
    pub before: RunGroup,
    /// The runs to compare with them, separated by commas: three or more for a verdict.
    ///
    /// A run is a directory, the name of a stored run or a part of it, `last`, or `last~1` (the one before).
    #[arg(value_name = "RUN,RUN,RUN", value_parser = OsStringValueParser::new().try_map(RunGroup::parse))]
    pub after: RunGroup,
    /// Ignore regressions below this.
    #[arg(long, value_name = "PERCENT", default_value = "2%", value_parser = super::measure::parse_percent)]
    pub margin: f64,
}
