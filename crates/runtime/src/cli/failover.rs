//! What people type after `failover`.

use std::str::FromStr;

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};
use linerate_model::units::Nanoseconds;

use super::{PeerArgs, StoreArgs, parse_nonzero_time};

/// `failover`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("causes").args(["cause", "cause_remote"])))]
#[command(group(ArgGroup::new("restores").args(["restore", "restore_remote"]).requires("causes")))]
pub struct FailoverArgs {
    /// The peer at the other end of the path.
    #[command(flatten)]
    pub peer: PeerArgs,
    /// Command that causes the failure, run by `sh -c` on this host.
    ///
    /// Without it, nothing is caused: the trial shows whatever happens meanwhile.
    #[arg(long = "do", value_name = "CMD")]
    pub cause: Option<String>,
    /// The same, run at the peer as the user of its agent.
    ///
    /// A listening agent runs it only if it was started with `--allow-commands`.
    #[arg(long = "do-remote", value_name = "CMD")]
    pub cause_remote: Option<String>,
    /// Command that ends the failure, run in the middle of the rest of the trial; always run, also after Ctrl-C.
    #[arg(long, value_name = "CMD")]
    pub restore: Option<String>,
    /// The same, run at the peer; also run when the peer has lost this host.
    #[arg(long, value_name = "CMD")]
    pub restore_remote: Option<String>,
    /// Duration of a trial.
    #[arg(long, short, value_name = "TIME", default_value = "60s", value_parser = parse_nonzero_time)]
    pub time: Nanoseconds,
    /// Number of trials, each with one failure [default: 10 with `--do` or `--do-remote`, else 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: Option<u32>,
    /// Flows in each direction, each with its own ports.
    #[arg(long, short = 'P', value_name = "N", default_value = "64", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub flows: u32,
    /// Packets per second of each flow and direction [default: 300, at most 20000 in all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rate: Option<u32>,
    /// What crosses the path: UDP probes (always), messages on TCP connections, new connections, requests until their answer, RDMA
    /// writes.
    ///
    /// RDMA writes use reliable connections (RC). They are skipped where an end has no RDMA device on the path.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "udp,tcp,connect,rr"
    )]
    pub workload: Vec<FailoverWorkload>,
    /// A packet that takes this much longer than the fastest of its flow is late.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_nonzero_time, hide_short_help = true)]
    pub late: Nanoseconds,
    /// Repeat the trial until one shows an interruption, or `--repeats` trials have shown none.
    #[arg(long, conflicts_with_all = ["cause", "cause_remote"])]
    pub until_event: bool,
    /// If a trial has taken the control connection with it: how long to try to reach the peer again, for its record.
    ///
    /// Afterwards `--join` fetches it.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_nonzero_time, hide_short_help = true)]
    pub reconnect: Nanoseconds,
    /// Fetch the peer's record of a trial whose control connection was lost, and print the result.
    ///
    /// FILE is what that run has printed. Its own options apply, but for `--require`.
    #[arg(long, value_name = "FILE", hide_short_help = true, conflicts_with_all = ["cause", "cause_remote", "restore", "restore_remote", "time", "repeats", "flows", "rate", "workload", "late", "until_event"])]
    pub join: Option<PathBuf>,
    /// Fail unless the bound holds in every trial, such as `gap<200ms` or `lost<=50`.
    ///
    /// Figures: `gap` (the longest interruption of a flow), `lost`, `late`, `duplicated`, `reordered`; of UDP, or with a
    /// prefix of `tcp.`, `connect.`, `rr.` or `verbs.`. Exits 11 if the bound does not hold, 12 if the probes are too coarse to show it.
    #[arg(long, value_name = "BOUND")]
    pub require: Vec<FailoverBound>,
    /// Also print each trial: its timeline, the evidence, and what the hosts themselves held up.
    #[arg(long, short)]
    pub verbose: bool,
    /// Where its result is stored.
    #[command(flatten)]
    pub store: StoreArgs,
}

/// What crosses the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum FailoverWorkload {
    /// Numbered datagrams.
    Udp,
    /// Messages on established TCP connections.
    Tcp,
    /// New TCP connections.
    Connect,
    /// Requests on established TCP connections.
    Rr,
    /// RDMA writes on reliable connections.
    Verbs,
}

/// A figure of `failover`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailoverFigure {
    /// The longest interruption of a flow.
    Gap,
    /// Packets lost.
    Lost,
    /// Packets late.
    Late,
    /// Packets duplicated.
    Duplicated,
    /// Packets reordered.
    Reordered,
}

/// A maximum of a figure: `gap<200ms`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailoverBound {
    /// Of what.
    pub workload: FailoverWorkload,
    /// The figure.
    pub figure: FailoverFigure,
    /// Whether the bound itself is too much.
    pub is_strict: bool,
    /// A count, or nanoseconds.
    pub most: u64,
    /// As it was written.
    pub text: String,
}

impl FromStr for FailoverBound {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let split = |sign: &str| text.split_once(sign);
        let (word, value, is_strict) = match (split("<="), split("<")) {
            (Some((word, value)), _) => (word, value, false),
            (None, Some((word, value))) => (word, value, true),
            (None, None) => {
                return Err("expected FIGURE<VALUE, such as `gap<200ms` or `lost<=50`".to_owned());
            }
        };
        let (workload, figure) = match word.trim().split_once('.') {
            None => (FailoverWorkload::Udp, word.trim()),
            Some((workload, figure)) => {
                let workload = FailoverWorkload::from_str(workload, false)?;
                (workload, figure)
            }
        };
        let figure = match figure {
            "gap" => FailoverFigure::Gap,
            "lost" => FailoverFigure::Lost,
            "late" => FailoverFigure::Late,
            "duplicated" => FailoverFigure::Duplicated,
            "reordered" => FailoverFigure::Reordered,
            other => {
                return Err(format!(
                    "unknown figure `{other}`; available: gap, lost, late, duplicated, reordered"
                ));
            }
        };
        let value = value.trim();
        let most = if figure == FailoverFigure::Gap {
            let time: Result<Nanoseconds, _> = value.parse();
            time.map_err(|error| error.to_string())?.as_u64()
        } else {
            let count = value.parse();
            count.map_err(|_| format!("`{value}` is not a number of packets"))?
        };
        Ok(Self {
            workload,
            figure,
            is_strict,
            most,
            text: text.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<FailoverBound, String> {
        text.parse()
    }

    #[test]
    fn bounds_name_a_figure_a_workload_and_a_maximum() {
        let gap = parsed("gap<200ms").expect("a bound");
        assert_eq!(
            (gap.workload, gap.figure, gap.most, gap.is_strict),
            (
                FailoverWorkload::Udp,
                FailoverFigure::Gap,
                200_000_000,
                true
            )
        );
        let lost = parsed("connect.lost<=50").expect("a bound");
        assert_eq!(
            (lost.workload, lost.figure, lost.most, lost.is_strict),
            (FailoverWorkload::Connect, FailoverFigure::Lost, 50, false)
        );
    }

    #[test]
    fn what_is_no_bound_is_refused_with_what_is_one() {
        for (text, words) in [
            ("gap>200ms", "such as `gap<200ms`"),
            ("speed<1", "unknown figure `speed`"),
            ("gap<5", "no unit"),
            ("lost<=few", "not a number of packets"),
            ("http.gap<1s", "http"),
        ] {
            let error = parsed(text).expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
