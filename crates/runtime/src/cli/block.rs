//! The options of `measure block`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use linerate_model::block::{DEPTH_MAX, JOBS_MAX, Pattern};
use linerate_model::units::{Bytes, Nanoseconds};

use super::measure::{PLACE, PRECISION, TRIAL, parse_percent};
use super::place_word::{MemoryWhere, Where};
use super::requirement::Requirement;
use super::{parse_nonzero_time, parse_seconds};

/// `measure block`.
#[derive(Debug, Args)]
pub struct MeasureBlock {
    /// Block device: `/dev/nvme0n1` or `nvme0n1`.
    pub device: PathBuf,
    /// Write instead of reading. Destroys the data of DEVICE, which must be named again here.
    ///
    /// Refused if the device or a part of it is in use, if the root file system is on its disk, and unless its first
    /// 8 MiB and its last 1 MiB are all zero. It is opened exclusively, and those two areas are not written.
    #[arg(long, value_name = "DEVICE", help_heading = TRIAL)]
    pub write: Option<PathBuf>,
    /// What each trial reads.
    #[command(flatten)]
    pub trial: BlockTrialArgs,
    /// Duration of each trial: `90s`, `2min`.
    #[arg(long, short, alias = "runtime", value_name = "TIME", help_heading = TRIAL, value_parser = parse_nonzero_time, default_value = "10s")]
    pub time: Nanoseconds,
    /// Seed of the random offsets [default: random, printed].
    #[arg(long, help_heading = TRIAL)]
    pub seed: Option<u64>,
    /// CPU placement of the jobs: `near` (NUMA node of the device), `far` (the node farthest from it), `node:N`,
    /// `cpu:LIST`.
    #[arg(long, value_name = "WHERE", help_heading = PLACE)]
    pub place: Option<Where>,
    /// NUMA memory policy of the buffers, as in numactl(8): `default`, `local`, `bind:NODES`, `interleave:NODES`,
    /// `preferred:NODE`; or bound to a node: `near` (that of the device), `far` (the farthest from it).
    #[arg(long, value_name = "POLICY", help_heading = PLACE)]
    pub memory: Option<MemoryWhere>,
    /// Repeat until the 95 % CI of the median is within +-PERCENT, such as `1%`.
    ///
    /// Allows for correlation between trials, so it takes at least 20.
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, help_heading = PRECISION)]
    pub until_ci: Option<f64>,
    /// With `--until-ci` and `--require`: start no further trial after this time.
    #[arg(long, value_name = "TIME", default_value = "300s", value_parser = parse_seconds, help_heading = PRECISION)]
    pub max_time: Nanoseconds,
    /// Fail unless the bound holds, such as `operations>=100000/s` or `p99<=100us`.
    ///
    /// Repeats the trial until the median has a CI, at least 20 times, and with `--until-ci` until the CI lies on one side of
    /// the bound. Exits 11 if the bound does not hold, 12 if inconclusive. `--format junit` prints it for a CI system.
    #[arg(long, value_name = "BOUND", help_heading = PRECISION)]
    pub require: Vec<Requirement>,
}

/// The operations of a trial on a block device.
#[derive(Debug, Clone, Args)]
pub struct BlockTrialArgs {
    /// Order of the blocks.
    #[arg(long, value_name = "ORDER", value_enum, default_value_t, help_heading = TRIAL)]
    pub pattern: PatternArg,
    /// Size of each operation, a multiple of the logical block size.
    #[arg(long, alias = "bs", value_name = "SIZE", default_value = "4KiB", help_heading = TRIAL)]
    pub block_size: Bytes,
    /// Operations in flight per job.
    #[arg(long, alias = "iodepth", value_name = "N", default_value_t = 32, help_heading = TRIAL, value_parser = clap::value_parser!(u32).range(1..=i64::from(DEPTH_MAX)))]
    pub depth: u32,
    /// Threads, each with an io_uring of its own: a number, `per-cpu`, or `per-queue` (on a CPU of each hardware queue).
    #[arg(long, alias = "numjobs", value_name = "N", default_value = "1", help_heading = TRIAL)]
    pub jobs: Jobs,
    /// Poll for completions instead of waiting for interrupts (IORING_SETUP_IOPOLL).
    ///
    /// The driver must have polled queues, such as those of `nvme.poll_queues=N`.
    #[arg(long, alias = "hipri", help_heading = TRIAL)]
    pub poll: bool,
}

/// `--pattern`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum PatternArg {
    /// Each block of the device equally likely.
    #[default]
    #[value(alias = "rand")]
    Random,
    /// Ascending; each job has its own part of the device.
    #[value(alias = "seq")]
    Sequential,
}

impl From<PatternArg> for Pattern {
    fn from(arg: PatternArg) -> Self {
        match arg {
            PatternArg::Random => Self::Random,
            PatternArg::Sequential => Self::Sequential,
        }
    }
}

/// `--jobs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jobs {
    /// This number of jobs.
    Number(usize),
    /// One on each CPU of the placement.
    PerCpu,
    /// One on a CPU of each hardware queue.
    PerQueue,
}

impl FromStr for Jobs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "per-cpu" => Ok(Self::PerCpu),
            "per-queue" => Ok(Self::PerQueue),
            _ => (text.parse().ok())
                .filter(|number| (1..=JOBS_MAX).contains(number))
                .map(Self::Number)
                .ok_or_else(|| format!("expected 1 to {JOBS_MAX}, per-cpu or per-queue")),
        }
    }
}

impl fmt::Display for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::PerCpu => f.write_str("per-cpu"),
            Self::PerQueue => f.write_str("per-queue"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_jobs_reads_back_and_others_are_refused() {
        for text in ["1", "64", "per-cpu", "per-queue"] {
            let jobs: Jobs = text.parse().expect(text);
            assert_eq!(jobs.to_string(), text);
        }
        for text in ["0", "-1", "1025", "per-core", ""] {
            assert!(text.parse::<Jobs>().is_err(), "{text}");
        }
    }
}
