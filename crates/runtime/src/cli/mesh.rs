//! What people type after `mesh`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use linerate_analysis::mesh::Requirement;
use linerate_model::mesh::{GroupKind, Step};
use linerate_model::units::Nanoseconds;

use super::{StoreArgs, parse_nonzero_time};

/// `mesh`.
#[derive(Debug, Args)]
pub struct MeshArgs {
    /// The hosts: each a peer as for `measure` [default: those that srun, mpirun or another launcher starts this on].
    #[arg(value_name = "HOST", conflicts_with = "hosts")]
    pub peers: Vec<String>,
    /// Read the hosts from FILE: a peer on each line, or TOML with `[[host]]` tables (`peer`, `nic`, `switch`, `rack`, `rail`).
    #[arg(long, value_name = "FILE")]
    pub hosts: Option<PathBuf>,
    /// Which hosts measure with each other [default: pairs up to 128 hosts, else quick].
    #[arg(long, value_enum, value_name = "PATTERN")]
    pub pattern: Option<PatternArg>,
    /// The hosts of `to-root` and `incast` that receive.
    #[arg(long, value_name = "HOST")]
    pub root: Option<String>,
    /// How many hosts send to the receiver of `incast`.
    #[arg(long, value_name = "K", default_value = "4", value_parser = clap::value_parser!(u32).range(1..=4094), hide_short_help = true)]
    pub incast: u32,
    /// The two hosts of the victim flow of `incast` [default: two random ones].
    #[arg(long, value_names = ["FROM", "TO"], num_args = 2, hide_short_help = true)]
    pub victim: Vec<String>,
    /// Whose neighbors `neighbors` measures.
    #[arg(
        long,
        value_enum,
        value_name = "GROUP",
        default_value = "switch",
        hide_short_help = true
    )]
    pub group: GroupArg,
    /// What each pair of hosts runs.
    #[arg(long, value_enum, value_name = "WORKLOAD", default_value = "stream")]
    pub workload: MeshWorkload,
    /// Duration of a trial.
    #[arg(long, short, value_name = "TIME", default_value = "2s", value_parser = parse_nonzero_time)]
    pub time: Nanoseconds,
    /// Connections in each direction of a pair.
    #[arg(long, short = 'P', value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub flows: u32,
    /// Directions of each pair, one round each: forward, reverse, and together (both at once).
    #[arg(
        long,
        value_enum,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "forward,reverse"
    )]
    pub directions: Vec<DirectionArg>,
    /// How often everything is measured, each time in another order.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: u32,
    /// Name suspects without measuring them again with new partners.
    #[arg(long)]
    pub no_retest: bool,
    /// Fail unless the bound holds, such as `named<=0` or `min-share>=0.8`.
    ///
    /// Figures: `named`, `unreached` and `not-tried` (hosts), `failed` (flows), `min-share` (the lowest rate of a pair over the
    /// median), `min-rate`. Exits 11 if a bound does not hold, 12 if too little was measured to judge it, else 0.
    #[arg(long, value_name = "BOUND")]
    pub require: Vec<Requirement>,
    /// Seed of the order of the pairs.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Copy this program to hosts that do not have this build.
    ///
    /// Over ssh only.
    #[arg(long)]
    pub push: bool,
    /// How long a host may take to join.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_nonzero_time, hide_short_help = true)]
    pub join_timeout: Nanoseconds,
    /// How long both ends of a pair may take to connect, and how much longer than its duration a trial may take.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_nonzero_time, hide_short_help = true)]
    pub round_timeout: Nanoseconds,
    /// End after this time with what was measured by then [default: no limit].
    #[arg(long, value_name = "TIME", value_parser = parse_nonzero_time, hide_short_help = true)]
    pub deadline: Option<Nanoseconds>,
    /// Start this launcher, whose processes must be `linerate mesh`, and hand them a pairing line in `LINERATE_ROOT`.
    #[arg(last = true, value_name = "LAUNCHER", requires = "size", conflicts_with_all = ["peers", "hosts"])]
    pub launcher: Vec<String>,
    /// How many processes the launcher starts.
    #[arg(long, value_name = "N", requires = "launcher", value_parser = clap::value_parser!(u32).range(2..=4096), hide_short_help = true)]
    pub size: Option<u32>,
    /// Write the result's metrics to FILE, for node_exporter's textfile collector.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub metrics_file: Option<PathBuf>,
    /// Where the result is stored.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Also print the clocks of the hosts and all evidence.
    #[arg(long, short)]
    pub verbose: bool,
}

/// Which hosts measure with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PatternArg {
    /// All pairs: N-1 rounds, each host in one pair at a time.
    Pairs,
    /// Each host with the next one, all at once.
    Ring,
    /// Each host with one host, one after another.
    ToRoot,
    /// Several hosts send to one, and two others are measured with and without that.
    Incast,
    /// Each host of one half with one of the other half, all at once.
    Bisection,
    /// All pairs within each group, all groups at once.
    Neighbors,
    /// About log2(N) partners for each host.
    Quick,
}

/// What hosts of a group share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GroupArg {
    /// The switch.
    Switch,
    /// The rack.
    Rack,
    /// The rail.
    Rail,
}

impl From<GroupArg> for GroupKind {
    fn from(arg: GroupArg) -> Self {
        match arg {
            GroupArg::Switch => Self::Switch,
            GroupArg::Rack => Self::Rack,
            GroupArg::Rail => Self::Rail,
        }
    }
}

/// What each pair of hosts runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MeshWorkload {
    /// Bulk TCP.
    Stream,
    /// Requests and responses of one byte.
    Rr,
    /// A message of 64 KiB there and back.
    Pingpong,
    /// RDMA write.
    RdmaWrite,
    /// RDMA read.
    RdmaRead,
    /// RDMA send.
    RdmaSend,
}

/// A direction of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DirectionArg {
    /// From the first host of a pair to the second.
    Forward,
    /// From the second to the first.
    Reverse,
    /// Both at once.
    Together,
}

impl From<DirectionArg> for Step {
    fn from(arg: DirectionArg) -> Self {
        match arg {
            DirectionArg::Forward => Self::Forward,
            DirectionArg::Reverse => Self::Reverse,
            DirectionArg::Together => Self::Together,
        }
    }
}
