//! The options of `measure diffusion`.

use std::path::PathBuf;

use clap::Args;
use linerate_model::units::Bytes;

use super::{PeerArgs, TransportArgs, TrialArgs, UntilArgs};

/// The heading of the options of the computation.
const WORK: &str = "Computation";

/// `measure diffusion`.
#[derive(Debug, Args)]
pub struct MeasureDiffusion {
    /// The peer.
    #[command(flatten)]
    pub peer: PeerArgs,
    /// The trial.
    #[command(flatten)]
    pub trial: TrialArgs,
    /// Buffer size; holds a square grid of doubles.
    #[arg(
        long,
        short = 'l',
        alias = "bytes",
        value_name = "SIZE",
        default_value = "1MiB"
    )]
    pub buffer: Bytes,
    /// Round trips of each pair's grid [default: as many as `--time` allows].
    #[arg(long, value_name = "N")]
    pub repetitions: Option<u64>,
    /// Transfer the grid without computing.
    #[arg(long, help_heading = WORK)]
    pub no_compute: bool,
    /// Measure the compute cost by PAIRS of trials, 6 to 1000 (default 9).
    ///
    /// With and without the computation, in random order.
    #[arg(
        long,
        value_name = "PAIRS",
        num_args = 0..=1,
        default_missing_value = "9",
        value_parser = clap::value_parser!(u16).range(6..=1000),
        requires = "repetitions",
        conflicts_with_all = ["no_compute", "until_ci", "require"],
        help_heading = WORK
    )]
    pub overhead: Option<u16>,
    /// Seed of the trial order [default: random, printed].
    #[arg(long, hide_short_help = true, requires = "overhead", help_heading = WORK)]
    pub seed: Option<u64>,
    /// Compute every step locally too and compare every byte.
    #[arg(long, hide_short_help = true, help_heading = WORK)]
    pub data_check: bool,
    /// Write images of the first grid to this directory: after 100 and 10000 repetitions and at the end, and its
    /// middle row, also as CSV.
    #[arg(long, hide_short_help = true, value_name = "FOLDER", help_heading = WORK)]
    pub pictures: Option<PathBuf>,
    /// The transport.
    #[command(flatten)]
    pub transport: TransportArgs,
    /// Repetition.
    #[command(flatten)]
    pub until: UntilArgs,
}
