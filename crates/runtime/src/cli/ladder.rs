//! The options of `measure stream --ladder`.

use clap::Args;

/// The heading of these options.
pub(super) const LADDER: &str = "Comparison of send and receive modes";

/// All send and receive modes, side by side.
#[derive(Debug, Args)]
#[command(next_help_heading = LADDER)]
pub struct LadderArgs {
    /// Compare all send modes (each with plain `read`) and all receive modes (each with plain `write`), in rounds of
    /// random order. Trials last 2 s by default. With `--until-ci`, repeats until each mode's ratio to `write`/`read`
    /// is that precise.
    #[arg(long, conflicts_with_all = ["send", "receive", "iperf3", "interval", "perf"])]
    pub ladder: bool,
    /// Number of rounds, each with one trial of every mode. A confidence interval needs three.
    #[arg(long, value_name = "N", default_value_t = 3, requires = "ladder", conflicts_with = "until_ci", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Seed of the trial order [default: random, printed].
    #[arg(long, requires = "ladder")]
    pub seed: Option<u64>,
}
