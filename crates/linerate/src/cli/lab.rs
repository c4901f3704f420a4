//! What people type after `lab` and `compare`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use linerate_model::units::Nanoseconds;

use super::parse_seconds;
use crate::peer::PeerAddress;

/// `lab`.
#[derive(Debug, Subcommand)]
pub enum LabAction {
    /// List the experiments that come with linerate.
    List,
    /// Run an experiment: combinations in blocks of random order, settings made and taken back around each trial.
    Run(Box<LabRunArgs>),
    /// Go on with a run that was stopped or killed.
    Resume {
        /// The run's folder. Its files must belong to you: they name the settings to change.
        run: PathBuf,
        /// Peers of the run. An `exec:COMMAND` peer must be given again: no command is started because a run names it.
        #[arg(value_name = "PEER")]
        peers: Vec<PeerAddress>,
        /// Inner steps, each a process of its own.
        #[arg(long, hide = true, value_enum)]
        step: Option<LabStep>,
    },
    /// Judge a run from its raw records: means, effects with their intervals, what disturbed it.
    Show {
        /// The run's folder.
        run: PathBuf,
    },
}

/// `lab run`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub struct LabRunArgs {
    /// An experiment that comes with linerate (`linerate lab list`), or a file.
    #[arg(value_name = "NAME|FILE.toml")]
    pub experiment: String,
    /// The peer: `[ssh://][user@]host[:port]`, `netns:NAME`, `exec:COMMAND`, `local` [default: the experiment's, else
    /// two hosts in namespaces on this machine, which vanish with the run].
    #[arg(value_name = "PEER")]
    pub peer: Option<PeerAddress>,
    /// The short form: fewer levels and repeats, shorter trials.
    #[arg(long)]
    pub quick: bool,
    /// Only say what would be done.
    #[arg(long)]
    pub plan: bool,
    /// Run it although it will likely not show the effect that matters.
    #[arg(long)]
    pub force: bool,
    /// How often all combinations are repeated [default: the experiment's].
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(3..=10_000))]
    pub repeats: Option<u32>,
    /// How long each trial lasts: seconds, or with a unit [default: the experiment's].
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    pub time: Option<Nanoseconds>,
    /// Fixes the order of trials and the intervals.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Also change what disturbs the interfaces that ssh connections to both ends come in by, for a moment.
    #[arg(long)]
    pub allow_management_disruption: bool,
    /// Copy this program to the peer unless it has this build (ssh only).
    #[arg(long)]
    pub push: bool,
    /// The address of the peer that data goes to [default: one on a common subnet, else the ssh host].
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<IpAddr>,
    /// Where the run is stored [default: runs/ in the state folder].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Inner steps, each a process of its own.
    #[arg(long, hide = true, value_enum)]
    pub step: Option<LabStep>,
}

/// The processes of an experiment that makes its own two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LabStep {
    /// Holds them.
    Stage,
    /// Runs between them.
    Inside,
}

/// `compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The run before: its folder.
    #[arg(value_name = "RUN")]
    pub before: PathBuf,
    /// The run after.
    #[arg(value_name = "RUN")]
    pub after: PathBuf,
    /// A worsening of less than this is none.
    #[arg(long, value_name = "PERCENT", default_value = "2%", value_parser = super::measure::parse_percent)]
    pub margin: f64,
}
