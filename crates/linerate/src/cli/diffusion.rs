//! The options of `measure diffusion`.

use std::path::PathBuf;

use clap::Args;
use linerate_model::units::Bytes;

use super::{PeerArgs, TransportArgs, TrialArgs, UntilArgs};

/// What is done with the grid.
const WORK: &str = "The work";

/// `measure diffusion`.
#[derive(Debug, Args)]
pub struct MeasureDiffusion {
    /// The peer.
    #[command(flatten)]
    pub peer: PeerArgs,
    /// The trial.
    #[command(flatten)]
    pub trial: TrialArgs,
    /// The buffer that goes there and back; a square grid of doubles fills the most of it.
    #[arg(long, visible_alias = "bytes", default_value = "1MiB")]
    pub buffer: Bytes,
    /// How often each pair's grid goes there and back [default: as often as the time allows].
    #[arg(long)]
    pub repetitions: Option<u64>,
    /// The grid travels and nobody works on it.
    #[arg(long, help_heading = WORK)]
    pub no_compute: bool,
    /// Also trials without the work, so many of each kind (9) in pairs of random order: what the work costs is the
    /// difference.
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
    /// What the order of those trials is drawn from [default: a fresh one, which is printed].
    #[arg(long, requires = "overhead", help_heading = WORK)]
    pub seed: Option<u64>,
    /// Make every step here too, plainly, and compare every byte.
    #[arg(long, help_heading = WORK)]
    pub data_check: bool,
    /// Write pictures of the first grid into this folder: after 100 and after 10000 repetitions and at the end,
    /// and the row through its middle, also as CSV.
    #[arg(long, value_name = "FOLDER", help_heading = WORK)]
    pub pictures: Option<PathBuf>,
    /// What carries it.
    #[command(flatten)]
    pub transport: TransportArgs,
    /// How long it goes on.
    #[command(flatten)]
    pub until: UntilArgs,
}
