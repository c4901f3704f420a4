//! What people type after `prove` and `tune search`.

use std::path::PathBuf;

use clap::{Args, Parser};
use linerate_model::prove::Guard;
use linerate_model::units::Nanoseconds;

use super::{PeerArgs, StreamArgs, parse_seconds};
use crate::peer::PeerAddress;

/// How remedies are weighed.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub struct WeighArgs {
    /// The peer.
    #[command(flatten)]
    pub peer: PeerArgs,
    /// The stream.
    #[command(flatten)]
    pub stream: StreamArgs,
    /// Weigh by requests and responses of a byte each, one after the other on each connection, in place of a stream:
    /// the rate is theirs, and the 99th percentile of their time must not get worse.
    #[arg(long, conflicts_with_all = ["buffer", "send", "receive"])]
    pub rr: bool,
    /// Pairs of trials for each remedy; a search makes more where its budget has room for them.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(3..=1000))]
    pub pairs: u32,
    /// Fixes the order of trials and the intervals.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Put everything back at the end, also what helped.
    #[arg(long)]
    pub undo: bool,
    /// The shapers on the path are yours: removing one may be tried.
    #[arg(long)]
    pub allow_shaper_removal: bool,
    /// Try no setting of the whole machine (a governor, a sysctl outside of `net`), only those of the network
    /// namespaces of both ends.
    #[arg(long)]
    pub netns_only: bool,
    /// Also try what disturbs the interfaces that ssh connections to both ends come in by, for a moment.
    #[arg(long)]
    pub allow_management_disruption: bool,
    /// Also keep what makes these worse by more than their noise while it makes the rate better: p99 (of the time
    /// of requests), cpu (per byte), drops.
    #[arg(long, value_name = "GUARDS", value_delimiter = ',', value_parser = parse_guard)]
    pub allow_regression: Vec<Guard>,
    /// Where the run is stored [default: runs/ in the state folder].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// `prove`.
#[derive(Debug, Args)]
pub struct ProveArgs {
    /// How.
    #[command(flatten)]
    pub weigh: WeighArgs,
    /// Try these changes in place of the rules' remedies: a plan file, with `[peer.settings]` for the peer; or what
    /// `doctor --format json` printed.
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
}

impl ProveArgs {
    /// As they are when only the peer is said.
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
    /// How what is found is weighed.
    #[command(flatten)]
    pub weigh: WeighArgs,
    /// How long it may take, in all: seconds, or with a unit.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_seconds)]
    pub budget: Nanoseconds,
}

fn parse_guard(text: &str) -> Result<Guard, String> {
    serde_json::from_value(serde_json::Value::String(text.to_owned()))
        .map_err(|_| "expected p99, cpu or drops".to_owned())
}
