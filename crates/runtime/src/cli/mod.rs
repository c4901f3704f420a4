//! What people type. Types only; what each command does is in its own module.

mod agent;
mod block;
mod ceiling;
mod comparison;
mod diffusion;
mod examples;
mod failover;
pub mod help;
mod lab;
pub mod like;
mod marks;
mod measure;
mod mesh;
mod nic;
mod peer;
pub mod place_word;
mod preload;
mod prove;
mod qos;
mod requirement;
pub mod state_folder;
mod store;
mod testbed;
mod tune;
mod verbs;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use agent::{AgentAction, AgentArgs, ListenAddress, ListenArgs, PairingArg, PeersAction};
pub use block::{BlockTrialArgs, Jobs, MeasureBlock};
pub use ceiling::{CeilingArgs, InfinibandLink, PcieFigures, TunnelArg};
use clap::{Args, Parser, Subcommand, ValueEnum};
pub use comparison::{ComparisonArgs, NicArg};
pub use diffusion::MeasureDiffusion;
pub use failover::{FailoverArgs, FailoverBound, FailoverFigure, FailoverWorkload};
pub use lab::{
    CompareArgs, LabAction, LabRunArgs, LabStep, NamedPath, PathTarget, RunGroup, Target,
};
pub use like::{LikeArg, LikeArgs};
use linerate_model::finding::{Profile, Severity};
use linerate_model::ids::NicName;
use linerate_model::pairing::HostPort;
use linerate_model::units::{Nanoseconds, UnitError};
pub use marks::MarkArgs;
pub use measure::{
    BatchArg, MeasureAction, MeasureHttp, MeasurePingpong, MeasureRr, MeasureStream,
    MeasureTransfer, MeasureUdp, PeerOrForeign, Placing, ReceiveArg, SendArg, StreamArgs,
    TrialArgs, UntilArgs,
};
pub use mesh::{DirectionArg, GroupArg, MeshArgs, MeshWorkload, PatternArg};
pub use nic::NicArgs;
pub use peer::{PeerArgs, ReachArgs};
pub use preload::{MoverArgs, PreloadArg};
pub use prove::{ProveArgs, SearchArgs, WeighArgs};
pub use qos::{QosAction, QosApplyArgs, QosVerifyArgs};
pub use requirement::{Bound, Requirement};
pub use store::{ExportArgs, ReportArgs, RunsArgs, StoreArgs, TableFormatArg};
pub use testbed::{
    BfdArg, EcmpArgs, IgpArg, LacpRateArg, LagArg, MeshTestbedAction, RedundantAction,
    RedundantKind, RxeAction, TestbedAction,
};
pub use tune::{ApplyArgs, HoldArgs, PersistArgs, StayArgs, TuneAction, WantedArgs};
pub use verbs::{ConnectArg, MeasureRdma, ServiceArg, TransportArg, TransportArgs, VerbsArgs};

use crate::console::say::Format;

/// What a build can do that others cannot.
#[cfg(target_feature = "crt-static")]
macro_rules! features {
    () => {
        "static; no RDMA verbs"
    };
}
#[cfg(not(target_feature = "crt-static"))]
macro_rules! features {
    () => {
        "RDMA verbs (libibverbs is loaded when it is needed)"
    };
}

/// The commit that was built, or why it is not recorded.
pub const COMMIT: &str = env!("LINERATE_COMMIT");
/// The target that it was built for.
pub const TARGET: &str = env!("LINERATE_TARGET");

/// What `--version` prints after the name; `-V` prints only the version.
const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit:   ",
    env!("LINERATE_COMMIT"),
    "\ntarget:   ",
    env!("LINERATE_TARGET"),
    "\nfeatures: ",
    features!(),
);

/// Finds out why a fast link is slow, proves it by measuring, fixes it, can roll it back.
#[derive(Debug, Parser)]
#[command(name = "linerate", version, long_version = LONG_VERSION, max_term_width = 100)]
#[command(
    after_long_help = "Results go to stdout, status to stderr. Exit codes: see `linerate explain \
        exit-codes`."
)]
pub struct Cli {
    /// Output format: text or json; also dot and svg for `map`, sarif for `doctor`, junit for `doctor` and
    /// `measure --require`, iperf3-json for `measure stream` and `udp`, openmetrics for `doctor`, `measure`, `mesh` and `prove`.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "text",
        hide_possible_values = true,
        hide_short_help = true
    )]
    pub format: FormatArg,
    /// Print JSON: short for `--format json`.
    #[arg(long, short = 'J', global = true, conflicts_with = "format")]
    pub json: bool,
    /// Suppress status and progress.
    #[arg(long, short, global = true, hide_short_help = true)]
    pub quiet: bool,
    /// Directory for runs and undo journals; as root it must be writable by root only [default: /var/lib/linerate as
    /// root, else $XDG_STATE_HOME/linerate].
    #[arg(long, global = true, value_name = "DIR", hide_short_help = true)]
    pub state: Option<PathBuf>,
    /// The command; without one, a check of this host.
    #[command(subcommand)]
    pub command: Option<Command>,
}

impl Cli {
    /// The output format.
    pub fn format(&self) -> FormatArg {
        if self.json {
            FormatArg::Json
        } else {
            self.format
        }
    }
}

/// The formats of `--format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FormatArg {
    /// Human-readable text.
    Text,
    /// One JSON document; its first key is the name of its schema.
    Json,
    /// Graphviz (`map` only).
    Dot,
    /// SVG image (`map` only).
    Svg,
    /// Static Analysis Results Interchange Format 2.1.0 (`doctor` only).
    Sarif,
    /// JUnit XML (`doctor` only).
    Junit,
    /// The JSON format of `iperf3 -J` (`measure stream` and `udp` only).
    Iperf3Json,
    /// Metrics in the text format of OpenMetrics 1.0 (`doctor`, `measure`, `mesh` and `prove` only).
    Openmetrics,
}

impl From<FormatArg> for Format {
    fn from(format: FormatArg) -> Self {
        match format {
            FormatArg::Json | FormatArg::Sarif | FormatArg::Iperf3Json => Self::Json,
            FormatArg::Openmetrics => Self::OpenMetrics,
            FormatArg::Text | FormatArg::Dot | FormatArg::Svg | FormatArg::Junit => Self::Text,
        }
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Find and prove three injected faults on this machine (about two minutes).
    ///
    /// Injects them between two network namespaces, and writes a report.
    Demo(DemoArgs),
    /// Show NICs, PCIe, NUMA nodes, CPUs, queues and interrupts.
    Map(MapArgs),
    /// Show one NIC: model, firmware, PCIe, module, link, bit errors, problems.
    Nic(NicArgs),
    /// Diagnose a host: list findings, worst first.
    Doctor(DoctorArgs),
    /// Explain a rule: its reason, its threshold, how to check it by hand.
    Explain {
        /// A rule id or a setting key; or `rules` (list all rules), `settings`, `exit-codes`.
        rule: String,
    },
    /// Compute the upper bounds of a path and show the arithmetic.
    Ceiling(CeilingArgs),
    /// Measure a path with one workload.
    Measure {
        /// Also print the ceiling, the course over time, each flow and all evidence.
        #[arg(long, short, global = true)]
        verbose: bool,
        /// Where the result is stored.
        #[command(flatten)]
        store: StoreArgs,
        /// Also write the result to FILE as metrics, for the textfile collector of Prometheus' node_exporter.
        ///
        /// Replaces FILE by one rename, with mode 0644.
        #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
        metrics_file: Option<PathBuf>,
        /// The workload.
        #[command(subcommand)]
        action: Box<MeasureAction>,
    },
    /// Measure how long traffic is interrupted when a link, a switch or a router fails.
    ///
    /// Sends numbered packets in both directions while a command causes the failure and another one ends it, and shows for
    /// each how long which flows were interrupted, and what was lost or late. Exits 30 if a command fails.
    Failover(Box<FailoverArgs>),
    /// Find the slow host, link or direction among N hosts, and how it differs from the others.
    ///
    /// Measures pairs of hosts in rounds, each host in one pair at a time, and separates slow hosts (as sender, as receiver),
    /// groups, pairs and directions. Exits 10 if a host is named, 12 if not all hosts could be measured.
    Mesh(Box<MeshArgs>),
    /// Find what limits a path, test all fixes, keep those that help.
    ///
    /// Measures the path, names its bottleneck, tests all fixes in one randomized experiment, and rolls back those
    /// that do not help.
    Prove(Box<ProveArgs>),
    /// Run designed experiments: effects of options and settings.
    ///
    /// Estimates the effects and their interactions, with confidence intervals.
    Lab {
        /// The command.
        #[command(subcommand)]
        action: LabAction,
    },
    /// Compare runs before and after a change (kernel, driver, settings).
    ///
    /// Two runs show the change of each result, and what differs between the hosts. Three or more of each show whether it is
    /// a regression. Exits 11 on a regression, 12 if inconclusive.
    Compare(CompareArgs),
    /// Plan, apply and undo settings.
    Tune {
        /// The action.
        #[command(subcommand)]
        action: TuneAction,
    },
    /// Limit the bandwidth of VLANs and classes of traffic, and verify it.
    ///
    /// From one file: made by what the NIC can do, proved by measuring, kept across reboots, rolled back whole.
    Qos {
        /// The action.
        #[command(subcommand)]
        action: QosAction,
    },
    /// Run the remote end of a measurement.
    Agent(AgentArgs),
    /// List, add and remove pairings with listening agents (`tls://` peers).
    Peers {
        /// The action.
        #[command(subcommand)]
        action: PeersAction,
    },
    /// Connect standard input and output to a listening agent, as ssh would.
    #[command(hide = true)]
    Channel {
        /// The agent.
        at: HostPort,
    },
    /// Pass standard input to the named pipe TO, and the named pipe FROM to standard output.
    #[command(hide = true)]
    Relay {
        /// The pipe to write.
        to: PathBuf,
        /// The pipe to read.
        from: PathBuf,
        /// Standard input begins with the terms of a listening agent.
        #[arg(long)]
        terms: bool,
    },
    /// Run one end of a stream with plain socket calls; reads its job from standard input.
    #[command(hide = true)]
    Mover(MoverArgs),
    /// Start a server for a trial; ends it when standard input ends. Reads its job from standard input.
    #[command(hide = true)]
    Launcher,
    /// Run the commands of a trial of `failover`; reads them from standard input.
    #[command(hide = true)]
    Conductor,
    /// Roll back what the process at the other end of standard input leaves uncommitted.
    #[command(hide = true)]
    Reverter {
        /// The PID of that process.
        #[arg(long, value_name = "PID")]
        of: u32,
        /// A capability that the rollback needs, by its kernel name; repeat for each.
        #[arg(long, value_name = "CAPABILITY")]
        hold: Vec<String>,
    },
    /// Create software RDMA devices, a mesh of hosts or a redundant network for tests.
    Testbed {
        /// What to create.
        #[command(subcommand)]
        action: TestbedAction,
    },
    /// Save this host's state to a text archive, names pseudonymized.
    ///
    /// The archive is plain text to review; addresses are pseudonymized too.
    Capture {
        /// The archive to write.
        #[arg(value_name = "FILE.lrcap")]
        file: PathBuf,
    },
    /// Rebuild the report of a stored run, or browse all runs.
    Report(ReportArgs),
    /// List stored runs, newest first.
    Runs(RunsArgs),
    /// Export trials of stored runs as CSV, JSON Lines or Parquet.
    Export(ExportArgs),
    /// Print shell completions.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the words that can replace the last one of a command line, for the scripts of `completions`.
    #[command(hide = true)]
    Complete {
        /// The words after `linerate`.
        #[arg(last = true)]
        words: Vec<String>,
    },
    /// Write a manual page for each command, for packages.
    #[command(hide = true)]
    Manual {
        /// An existing directory.
        folder: PathBuf,
        /// The date of the pages.
        #[arg(long, value_name = "YYYY-MM-DD")]
        date: String,
    },
}

impl Command {
    /// The file of `--metrics-file`.
    pub fn metrics_file(&self) -> Option<&Path> {
        match self {
            Self::Doctor(args) => args.metrics_file.as_deref(),
            Self::Measure { metrics_file, .. } => metrics_file.as_deref(),
            Self::Prove(args) => args.metrics_file.as_deref(),
            Self::Mesh(args) => args.metrics_file.as_deref(),
            _ => None,
        }
    }
}

/// `demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// What is shown [default: prove].
    #[arg(value_enum, value_name = "COMMAND")]
    pub of: Option<DemoOf>,
    /// Seed for the choice of faults, the trial order and the bootstrap intervals.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Trials without each fix in a stage.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(3..=50))]
    pub trials: u32,
    /// Directory to store the run in [default: runs/ in the state directory].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Internal steps of the demo, each in its own process.
    #[arg(long, hide = true, value_enum)]
    pub stage: Option<DemoStage>,
    /// The directory that the internal steps share.
    #[arg(long, hide = true)]
    pub folder: Option<PathBuf>,
}

/// What the demo shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DemoOf {
    /// `prove` finds three faults between two hosts.
    Prove,
    /// `mesh` finds the slow one of eight hosts.
    Mesh,
}

/// The processes of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DemoStage {
    /// Creates the two namespaces and runs the other steps.
    Conduct,
    /// Injects the faults.
    Plant,
}

/// `map`.
#[derive(Debug, Args)]
pub struct MapArgs {
    /// Only this interface.
    pub nic: Option<NicName>,
    /// Also measure node-to-node memory latency and bandwidth: read, write and copy, with one core and with all cores
    /// (about 3 s per pair of NUMA nodes).
    #[arg(long, conflicts_with_all = ["from", "diff", "why"])]
    pub memory: bool,
    /// Read the counters twice, TIME apart, and show the change: traffic, interrupts per CPU, link errors, CPU
    /// load.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "0",
        hide_default_value = true,
        value_parser = parse_watch,
        conflicts_with_all = ["from", "diff", "why"]
    )]
    pub watch: Duration,
    /// Print each fact on its own line with the file or kernel request it comes from.
    #[arg(long)]
    pub why: bool,
    /// Show the differences between two captures, or between a capture and this host.
    #[arg(long, value_names = ["BEFORE", "AFTER"], num_args = 1..=2, conflicts_with_all = ["from", "why"])]
    pub diff: Vec<PathBuf>,
    /// Read a captured host instead of this one: an archive, or a directory with `sys` and `proc`.
    #[arg(long, value_name = "PATH")]
    pub from: Option<PathBuf>,
}

/// `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Only this interface.
    pub nic: Option<NicName>,
    /// Read a captured host instead of this one: an archive, or a directory with `sys` and `proc`.
    #[arg(long, value_name = "PATH")]
    pub from: Option<PathBuf>,
    /// How long to watch counters; 0 skips the rules on counters.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_watch, conflicts_with = "from")]
    pub watch: Duration,
    /// A later capture of the same host: rules judge the counter growth between the two.
    #[arg(long, value_name = "PATH", requires = "from")]
    pub then: Option<PathBuf>,
    /// Role of the host: throughput, latency, forwarding, rdma, storage, mixed, measurement.
    #[arg(long, default_value = "throughput", value_parser = parse_role)]
    pub role: Profile,
    /// Exit with 10 on findings of this severity or worse: note, warn, crit, never.
    #[arg(long, value_name = "SEVERITY", default_value = "warn", value_parser = parse_fail_on)]
    pub fail_on: FailOn,
    /// Also print the evidence and the skipped checks.
    #[arg(long, short)]
    pub verbose: bool,
    /// Also write the result to FILE as metrics, for the textfile collector of Prometheus' node_exporter.
    ///
    /// Replaces FILE by one rename, with mode 0644.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub metrics_file: Option<PathBuf>,
}

/// The lowest severity that makes `doctor` exit with 10.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailOn(pub Option<Severity>);

/// Longer is a mistake: a rule's answer would come tomorrow.
const WATCH_MAX: Duration = Duration::from_secs(86_400);

fn parse_watch(text: &str) -> Result<Duration, String> {
    let time = Duration::from(parse_seconds(text)?);
    if time <= WATCH_MAX {
        Ok(time)
    } else {
        Err(format!("expected at most {} s", WATCH_MAX.as_secs()))
    }
}

fn parse_role(text: &str) -> Result<Profile, String> {
    serde_json::from_value(serde_json::Value::String(text.to_owned())).map_err(|_| {
        "expected throughput, latency, forwarding, rdma, storage, mixed or measurement".to_owned()
    })
}

fn parse_fail_on(text: &str) -> Result<FailOn, String> {
    match text {
        "never" => Ok(FailOn(None)),
        "note" => Ok(FailOn(Some(Severity::Note))),
        "warn" => Ok(FailOn(Some(Severity::Warn))),
        "crit" => Ok(FailOn(Some(Severity::Crit))),
        _ => Err("expected note, warn, crit or never".to_owned()),
    }
}

/// Parses a time: seconds as a plain number, or a number with a unit.
fn parse_seconds(text: &str) -> Result<Nanoseconds, String> {
    let is_plain = text.ends_with(|c: char| c.is_ascii_digit());
    let with_unit = if is_plain {
        format!("{text}s")
    } else {
        text.to_owned()
    };
    with_unit
        .parse()
        .map_err(|error: UnitError| error.to_string())
}

/// Parses a time that is not 0.
fn parse_nonzero_time(text: &str) -> Result<Nanoseconds, String> {
    match parse_seconds(text)? {
        time if time == Nanoseconds::new(0) => Err("expected more than 0 s".to_owned()),
        time => Ok(time),
    }
}

/// Parses a time of whole seconds within `range`.
fn parse_whole_seconds(text: &str, range: RangeInclusive<u32>) -> Result<u32, String> {
    let time = Duration::from(parse_seconds(text)?);
    let seconds = u32::try_from(time.as_secs()).ok();
    seconds
        .filter(|seconds| time.subsec_nanos() == 0 && range.contains(seconds))
        .ok_or_else(|| {
            format!(
                "expected {} to {} whole seconds",
                range.start(),
                range.end()
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_and_precision_have_their_own_heading_in_every_help() {
        let all = help::command();
        let measure = all.find_subcommand("measure").expect("a command");
        for workload in measure.get_subcommands() {
            for arg in workload.get_arguments() {
                let own = ["until_ci", "max_time", "require"].contains(&arg.get_id().as_str());
                let is_there = arg.get_help_heading() == Some(measure::PRECISION);
                assert_eq!(own, is_there, "{} --{}", workload.get_name(), arg.get_id());
            }
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        help::command().debug_assert();
    }

    #[test]
    fn seconds_are_seconds() {
        assert_eq!(parse_seconds("10"), Ok(Nanoseconds::from_millis(10_000)));
        assert_eq!(parse_seconds("0.5"), Ok(Nanoseconds::from_millis(500)));
        assert_eq!(parse_seconds("250ms"), Ok(Nanoseconds::from_millis(250)));
        assert_eq!(parse_seconds("2min"), parse_seconds("120"));
        assert!(parse_seconds("soon").is_err());
        assert_eq!(parse_whole_seconds("2min", 2..=300), Ok(120));
        for text in ["1", "301s", "2.5", "99999999999h"] {
            assert!(parse_whole_seconds(text, 2..=300).is_err(), "{text}");
        }
    }
}
