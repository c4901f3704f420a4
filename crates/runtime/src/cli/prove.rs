//! What people type after `prove` and `tune search`.

use std::path::PathBuf;

use clap::{Arg, Args, Parser};
use linerate_model::peer_address::PeerAddress;
use linerate_model::prove::Guard;
use linerate_model::units::Nanoseconds;

use super::{BlockTrialArgs, PeerArgs, ReachArgs, StreamArgs, Target, parse_seconds};

/// The heading of the options of the experiments.
const EXPERIMENT: &str = "Experiment";

/// How fixes are tested.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub struct WeighArgs {
    /// The peer: `[user@]host` (ssh), `tls://host`, `netns:NAME`, `exec:COMMAND` or `local`; for `prove`, also a block device
    /// of this host: `/dev/nvme0n1`.
    ///
    /// A host may have the prefix `ssh://`, and `:PORT`. `tls://` is a host that runs `linerate agent --listen`: use the line
    /// that it prints once, and `tls://host[:port]` from then on. The command of `exec:` must run `linerate agent --stdio`.
    /// `local` is this host. A device is read with `measure block`, with `--time`, `--place` and `--memory`.
    #[arg(value_name = "PEER|DEVICE")]
    pub target: Target,
    /// How a peer is reached.
    #[command(flatten)]
    pub reach: ReachArgs,
    /// Peer TCP port for the data connections [default: a free port].
    ///
    /// For firewalls that restrict ports.
    #[arg(long, short, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// The stream.
    #[command(flatten)]
    pub stream: StreamArgs,
    /// Test with 1-byte request/response instead of a stream.
    ///
    /// The metric is the request rate, and p99 latency must not regress.
    #[arg(long, help_heading = EXPERIMENT, conflicts_with_all = ["buffer", "send", "receive", "omit"])]
    pub rr: bool,
    /// Trials without each fix in a stage: more show smaller effects.
    ///
    /// `tune search` adds more if its budget allows.
    #[arg(long, help_heading = EXPERIMENT, default_value_t = 3, value_parser = clap::value_parser!(u32).range(3..=50))]
    pub trials: u32,
    /// Seed for the trial order.
    #[arg(long, hide_short_help = true, help_heading = EXPERIMENT)]
    pub seed: Option<u64>,
    /// Roll back everything at the end, including fixes that helped.
    #[arg(long, help_heading = EXPERIMENT)]
    pub undo: bool,
    /// Allow removing traffic shapers on the path.
    #[arg(long, hide_short_help = true, help_heading = EXPERIMENT)]
    pub allow_shaper_removal: bool,
    /// Only try settings of both ends' network namespaces, none of the whole machine (governor, sysctls outside
    /// `net`).
    #[arg(long, hide_short_help = true, help_heading = EXPERIMENT)]
    pub netns_only: bool,
    /// Allow brief disruption of the interfaces that carry SSH to both ends.
    #[arg(long, hide_short_help = true, help_heading = EXPERIMENT)]
    pub allow_management_disruption: bool,
    /// Keep a fix that improves the rate even if it significantly worsens these metrics: p99 (request latency),
    /// cpu (per byte, by more than the rate gains), drops.
    #[arg(long, hide_short_help = true, help_heading = EXPERIMENT, value_name = "GUARDS", value_delimiter = ',', value_parser = parse_guard)]
    pub allow_regression: Vec<Guard>,
    /// Directory to store the run in [default: runs/ in the state directory].
    #[arg(long, hide_short_help = true, help_heading = EXPERIMENT, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// `prove`.
#[derive(Debug, Args)]
#[command(mut_args(of_a_device))]
pub struct ProveArgs {
    /// How fixes are tested.
    #[command(flatten)]
    pub weigh: WeighArgs,
    /// What the trials read from a block device.
    #[command(flatten)]
    pub block: BlockTrialArgs,
    /// Test these changes instead of the fixes that the rules suggest.
    ///
    /// A plan file (`[peer.settings]` for the peer), or the output of `doctor --format json`.
    #[arg(long, help_heading = EXPERIMENT, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Also write the result to FILE as metrics, for the textfile collector of Prometheus' node_exporter.
    ///
    /// Replaces FILE by one rename, with mode 0644.
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    pub metrics_file: Option<PathBuf>,
}

/// The options of a block device have a heading of their own, which the short help leaves out.
fn of_a_device(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "pattern" | "block_size" | "depth" | "jobs" | "poll" => arg
            .hide_short_help(true)
            .help_heading("Block device options"),
        _ => arg,
    }
}

impl WeighArgs {
    /// The peer; none if a block device is tested.
    pub fn peer(&self) -> Option<PeerArgs> {
        match &self.target {
            Target::Peer(peer) => Some(PeerArgs {
                peer: peer.clone(),
                reach: self.reach.clone(),
                port: self.port,
            }),
            Target::Device(_) => None,
        }
    }
}

impl ProveArgs {
    /// The defaults for this peer.
    pub fn of(peer: &PeerAddress) -> Self {
        #[derive(Parser)]
        struct Alone {
            #[command(flatten)]
            args: ProveArgs,
        }
        Alone::parse_from(["prove", "--", &peer.to_string()]).args
    }
}

/// `tune search`.
#[derive(Debug, Args)]
pub struct SearchArgs {
    /// How candidates are tested.
    #[command(flatten)]
    pub weigh: WeighArgs,
    /// Total time budget: seconds, or with a unit.
    #[arg(long, help_heading = EXPERIMENT, value_name = "TIME", default_value = "10m", value_parser = parse_seconds)]
    pub budget: Nanoseconds,
}

fn parse_guard(text: &str) -> Result<Guard, String> {
    serde_json::from_value(serde_json::Value::String(text.to_owned()))
        .map_err(|_| "expected p99, cpu or drops".to_owned())
}
