//! The options of `measure stream --ladder`.

use clap::Args;

/// Every way into and out of the kernel, side by side.
#[derive(Debug, Args)]
#[command(next_help_heading = "The ladder of copies")]
pub struct LadderArgs {
    /// Measure every way to send (read plainly) and every way to receive (sent plainly), in rounds of
    /// random order, and tell them side by side: trials of 2 s unless `--time` says otherwise. With
    /// `--until-ci`, until each way's ratio to plain write and read is known so well.
    #[arg(long, conflicts_with_all = ["send", "receive", "iperf3", "perf"])]
    pub ladder: bool,
    /// So many rounds, each with one trial of every way. An interval needs three.
    #[arg(long, value_name = "N", default_value_t = 3, requires = "ladder", conflicts_with = "until_ci", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// The seed of the order [default: a new one, which is printed].
    #[arg(long, requires = "ladder")]
    pub seed: Option<u64>,
}
