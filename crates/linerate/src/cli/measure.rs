//! The options of `measure`, and those that `prove` shares with it.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use clap::{Arg, ArgGroup, Args, Subcommand, ValueEnum};
use linerate_model::ids::{CpuSet, IdError};
use linerate_model::units::{BitRate, Bytes, Nanoseconds};
use linerate_model::workload::{DatagramBatch, ReceiveMode, SendMode, Waiting};

use super::{
    LadderArgs, MeasureDiffusion, MeasureRdma, PeerArgs, Requirement, TransportArgs, parse_seconds,
};
use crate::peer::PeerAddress;
use crate::place::{MemoryWhere, Where, WordError};

/// Options of every trial, whatever its workload.
const TRIAL: &str = "The trial";
/// Options of where it runs.
const PLACE: &str = "Where it runs";

/// What every trial has.
#[derive(Debug, Args)]
#[command(next_help_heading = TRIAL)]
pub struct TrialArgs {
    /// How long each trial lasts: seconds, or with a unit [default: 10 for `measure`, 1 for `prove`].
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    pub time: Option<Nanoseconds>,
    /// How often the counters are read [default: 20 times a trial, at most 10 times a second].
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    pub interval: Option<Nanoseconds>,
    /// Connections (of `transfer` and `diffusion`: pairs; over verbs: queue pairs).
    #[arg(long, visible_aliases = ["connections", "pairs-in-parallel", "qps"], default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub flows: u32,
    /// Data threads at each end, which share the connections [default: one for each connection; `http`
    /// one for each CPU].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// From the peer to here.
    #[arg(long, conflicts_with = "bidir")]
    pub reverse: bool,
    /// Both ways at once.
    #[arg(long)]
    pub bidir: bool,
    /// The size of the socket buffers [default: the kernel's autotuning].
    #[arg(long, visible_alias = "window")]
    pub socket_buffer: Option<Bytes>,
    /// The congestion control [default: the host's].
    #[arg(long, visible_alias = "congestion", value_name = "NAME")]
    pub cc: Option<String>,
    /// The largest segment (TCP_MAXSEG).
    #[arg(long, value_name = "BYTES")]
    pub mss: Option<Bytes>,
    /// The kernel sends each connection no faster (SO_MAX_PACING_RATE).
    #[arg(long, value_name = "RATE")]
    pub pacing: Option<BitRate>,
    /// How threads wait: blocking, epoll, spin, busy-poll, busy-poll:MICROSECONDS, uring, uring-sqpoll; over
    /// verbs blocking (completion events) or spin (polling) [default: blocking; `rdma-*` spin].
    #[arg(long, value_name = "HOW", value_parser = parse_waiting)]
    pub wait: Option<Waiting>,
    /// Sample what both ends' CPUs do, so often a second, and name the hot symbols.
    #[arg(long, value_name = "HZ", num_args = 0..=1, default_missing_value = "199", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub perf: Option<u32>,
    /// Move and count bytes only: read no counters, CPUs or intervals at either end. What recording costs is
    /// measured so.
    #[arg(long, conflicts_with_all = ["interval", "perf"])]
    pub no_record: bool,
    /// Where the threads of both ends run: near, far, node:N, cpu:LIST, spread, same-core, by-rx-cpu, or
    /// SENDER_CPUS:RECEIVER_CPUS such as `0-3:8`.
    #[arg(long, value_name = "WHERE", help_heading = PLACE)]
    pub place: Option<Placing>,
    /// The same for the peer only.
    #[arg(long, value_name = "WHERE", help_heading = PLACE)]
    pub place_remote: Option<Where>,
    /// The memory of the buffers: default, local, near, far, bind:NODES, interleave:NODES, preferred:NODE.
    #[arg(long, value_name = "POLICY", help_heading = PLACE)]
    pub memory: Option<MemoryWhere>,
    /// The same for the peer only.
    #[arg(long, value_name = "POLICY", help_heading = PLACE)]
    pub memory_remote: Option<MemoryWhere>,
}

/// What `--place` takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placing {
    /// A word for each end.
    At(Where),
    /// The senders' CPUs and the receivers', whichever end they are at.
    Roles(CpuSet, CpuSet),
}

impl FromStr for Placing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let list = |part: &str| part.starts_with(|c: char| c.is_ascii_digit());
        if let Some((sender, receiver)) = text.split_once(':')
            && list(sender)
            && list(receiver)
        {
            let cpus = |list: &str| list.parse().map_err(|error: IdError| error.to_string());
            return Ok(Self::Roles(cpus(sender)?, cpus(receiver)?));
        }
        text.parse()
            .map(Self::At)
            .map_err(|error: WordError| format!("{error}, or SENDER_CPUS:RECEIVER_CPUS"))
    }
}

/// What only a stream has; `prove` takes it too.
#[derive(Debug, Args)]
pub struct StreamArgs {
    /// The trial.
    #[command(flatten)]
    pub trial: TrialArgs,
    /// The size of each send and receive.
    #[arg(long, default_value = "128KiB")]
    pub buffer: Bytes,
    /// How payload gets into the kernel.
    #[arg(long, value_name = "MODE", value_enum, default_value_t)]
    pub send: SendArg,
    /// How payload gets out of the kernel.
    #[arg(long, value_name = "MODE", value_enum, default_value_t)]
    pub receive: ReceiveArg,
}

/// `--send`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum SendArg {
    /// The kernel copies.
    #[default]
    Write,
    /// MSG_ZEROCOPY; says whether the kernel copied after all.
    Zerocopy,
    /// sendfile from a memory file.
    Sendfile,
    /// splice through a pipe.
    Splice,
    /// io_uring.
    Uring,
    /// io_uring's zero-copy send.
    UringZerocopy,
}

impl From<SendArg> for SendMode {
    fn from(arg: SendArg) -> Self {
        match arg {
            SendArg::Write => Self::Write,
            SendArg::Zerocopy => Self::Zerocopy,
            SendArg::Sendfile => Self::Sendfile,
            SendArg::Splice => Self::Splice,
            SendArg::Uring => Self::Uring,
            SendArg::UringZerocopy => Self::UringZerocopy,
        }
    }
}

/// `--receive`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ReceiveArg {
    /// The kernel copies.
    #[default]
    Read,
    /// MSG_TRUNC: the payload is thrown away uncopied.
    Trunc,
    /// TCP_ZEROCOPY_RECEIVE: whole pages are mapped.
    Zerocopy,
    /// io_uring.
    Uring,
}

impl From<ReceiveArg> for ReceiveMode {
    fn from(arg: ReceiveArg) -> Self {
        match arg {
            ReceiveArg::Read => Self::Read,
            ReceiveArg::Trunc => Self::Trunc,
            ReceiveArg::Zerocopy => Self::Zerocopy,
            ReceiveArg::Uring => Self::Uring,
        }
    }
}

/// `measure`.
#[derive(Debug, Subcommand)]
pub enum MeasureAction {
    /// Bulk data over TCP or RDMA: rate, what it costs, what limits it.
    Stream(MeasureStream),
    /// Requests and responses: how many a second, how long each takes.
    Rr(MeasureRr),
    /// Messages to and fro over a row of sizes: latency, bandwidth, and the line through them.
    Pingpong(MeasurePingpong),
    /// HTTP/1.1: our server at the peer, or any server.
    Http(MeasureHttp),
    /// A buffer there and back: announce, fetch, go, return, done.
    Transfer(MeasureTransfer),
    /// A grid there and back, a step of the heat equation made of it at the peer: what work and transport cost.
    #[command(mut_arg("flows", |arg| arg.visible_alias("pairs")))]
    Diffusion(MeasureDiffusion),
    /// Datagrams: rate, loss, reordering, jitter.
    Udp(MeasureUdp),
    /// RDMA: writes into the peer's memory: rate or latency, of one size or a sweep.
    #[command(
        mut_arg("socket_buffer", hidden),
        mut_arg("cc", hidden),
        mut_arg("mss", hidden),
        mut_arg("pacing", hidden)
    )]
    RdmaWrite(MeasureRdma),
    /// RDMA: reads of the peer's memory.
    #[command(
        mut_arg("socket_buffer", hidden),
        mut_arg("cc", hidden),
        mut_arg("mss", hidden),
        mut_arg("pacing", hidden)
    )]
    RdmaRead(MeasureRdma),
    /// RDMA: messages that the peer has made room for.
    #[command(
        mut_arg("socket_buffer", hidden),
        mut_arg("cc", hidden),
        mut_arg("mss", hidden),
        mut_arg("pacing", hidden)
    )]
    RdmaSend(MeasureRdma),
    /// RDMA: additions to 8 bytes of the peer's memory.
    #[command(
        mut_arg("socket_buffer", hidden),
        mut_arg("cc", hidden),
        mut_arg("mss", hidden),
        mut_arg("pacing", hidden)
    )]
    RdmaAtomic(MeasureRdma),
}

/// An option of every trial that is none of this workload's: it is refused with a reason, and not shown.
fn hidden(arg: Arg) -> Arg {
    arg.hide(true)
}

/// How long a measurement goes on.
#[derive(Debug, Args)]
pub struct UntilArgs {
    /// Repeat the trial until the 95 % interval of the result is at most so far from its middle: `1%`.
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub until_ci: Option<f64>,
    /// No further trial is begun after this time.
    #[arg(long, value_name = "TIME", default_value = "300", value_parser = parse_seconds, requires = "until_ci")]
    pub max_time: Nanoseconds,
    /// Make it a test: `rate>=9.4Gbit/s`, `p99<=100us`, `cpu<=0.5` (seconds for each GB), `operations>=100000`,
    /// `cpu-op<=20` (microseconds for each operation). The trial is made six times or more; exit code 11 when a bound
    /// is not kept, 12 when the trials cannot tell.
    #[arg(long, value_name = "BOUND")]
    pub require: Vec<Requirement>,
}

impl UntilArgs {
    /// One trial.
    pub fn once() -> Self {
        Self {
            until_ci: None,
            max_time: Nanoseconds::new(0),
            require: Vec::new(),
        }
    }
}

/// `measure stream`.
#[derive(Debug, Args)]
pub struct MeasureStream {
    /// The peer.
    #[command(flatten)]
    pub peer: PeerOrForeign,
    /// The stream.
    #[command(flatten)]
    pub stream: StreamArgs,
    /// Move so much in each direction, instead of as much as the time allows (then `--time` is the most
    /// that it may take).
    #[arg(long)]
    pub bytes: Option<Bytes>,
    /// Compare every byte where it arrives.
    #[arg(long, conflicts_with_all = ["ladder", "iperf3", "preload"])]
    pub data_check: bool,
    /// Over verbs: messages of `--buffer` under way on each queue pair [default: 128].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub depth: Option<u32>,
    /// By plain calls, over the kernel's TCP and then with a library loaded before the program that takes those
    /// calls over: `rsocket`, RDMA for programs that were not changed.
    #[arg(long, value_enum, value_name = "LIBRARY", hide_possible_values = true, conflicts_with_all = ["ladder", "depth", "bytes", "place", "place_remote", "memory", "memory_remote", "interval", "no_record", "until_ci"])]
    pub preload: Option<PreloadArg>,
    /// What carries it.
    #[command(flatten)]
    pub transport: TransportArgs,
    /// How long it goes on.
    #[command(flatten)]
    pub until: UntilArgs,
    /// All ways side by side.
    #[command(flatten)]
    pub ladder: LadderArgs,
}

/// `--preload`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PreloadArg {
    /// librspreload of rdma-core.
    Rsocket,
}

/// `mover`.
#[derive(Debug, Args)]
pub struct MoverArgs {
    /// Start again with this library loaded before the program.
    #[arg(long, value_enum)]
    pub preload: Option<PreloadArg>,
}

/// A peer, or a program of others.
#[derive(Debug, Args)]
pub struct PeerOrForeign {
    /// The peer: `[ssh://][user@]host[:port]`, `netns:NAME`, `exec:COMMAND`, `local`.
    #[arg(value_name = "PEER", required_unless_present = "iperf3")]
    pub peer: Option<PeerAddress>,
    /// An iperf3 server instead of a peer of ours: `HOST[:PORT]`.
    #[arg(long, value_name = "HOST", conflicts_with_all = ["peer", "push", "address", "port"])]
    pub iperf3: Option<String>,
    /// Copy this program to the peer unless it has this build (ssh only).
    #[arg(long)]
    pub push: bool,
    /// The address of the peer that data goes to [default: one on a common subnet, else the ssh host].
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<IpAddr>,
    /// The TCP port at the peer that data goes to, for a firewall that lets only some pass [default:
    /// one that is free].
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
}

impl PeerOrForeign {
    /// The peer of ours, when it is one.
    pub fn peer(&self) -> Option<PeerArgs> {
        Some(PeerArgs {
            peer: self.peer.clone()?,
            push: self.push,
            address: self.address,
            port: self.port,
        })
    }
}

/// `measure rr`.
#[derive(Debug, Args)]
pub struct MeasureRr {
    /// The peer.
    #[command(flatten)]
    pub peer: PeerArgs,
    /// The trial.
    #[command(flatten)]
    pub trial: TrialArgs,
    /// The size of a request.
    #[arg(long, default_value = "1B")]
    pub request: Bytes,
    /// The size of a response.
    #[arg(long, default_value = "1B")]
    pub response: Bytes,
    /// Requests under way on each connection.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub depth: u32,
    /// A connection for each request.
    #[arg(long)]
    pub reconnect: bool,
    /// Open loop: so many requests a second, whatever the responses do; latency counts from the intended
    /// time.
    #[arg(long, value_name = "PER_SECOND")]
    pub rate: Option<u64>,
    /// What carries them.
    #[command(flatten)]
    pub transport: TransportArgs,
    /// How long it goes on.
    #[command(flatten)]
    pub until: UntilArgs,
}

/// `measure pingpong`.
#[derive(Debug, Args)]
pub struct MeasurePingpong {
    /// The peer.
    #[command(flatten)]
    pub peer: PeerArgs,
    /// The trial.
    #[command(flatten)]
    pub trial: TrialArgs,
    /// The sizes [default: 0, and the powers of two to 4 MiB, as IMB has them].
    #[arg(long, value_delimiter = ',', value_name = "SIZE")]
    pub sizes: Vec<Bytes>,
    /// How often the small ones go; large ones less often: as `--volume` allows, at least 10 times.
    #[arg(long, default_value_t = 1000)]
    pub repetitions: u32,
    /// The most bytes of one size, each way [default: 40MiB, as IMB has it].
    #[arg(long, value_name = "SIZE")]
    pub volume: Option<Bytes>,
    /// Compare every byte at both ends.
    #[arg(long)]
    pub data_check: bool,
    /// What carries them.
    #[command(flatten)]
    pub transport: TransportArgs,
}

/// `measure http`.
#[derive(Debug, Args)]
pub struct MeasureHttp {
    /// A peer, whose agent then serves; or the URL of any HTTP/1.1 server: `http://HOST[:PORT]/PATH`.
    #[arg(value_name = "PEER|URL")]
    pub target: String,
    /// Copy this program to the peer unless it has this build (ssh only).
    #[arg(long)]
    pub push: bool,
    /// The address of the peer that data goes to [default: one on a common subnet, else the ssh host].
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<IpAddr>,
    /// The trial.
    #[command(flatten)]
    pub trial: TrialArgs,
    /// The path that is asked for at a peer.
    #[arg(long, default_value = "/")]
    pub path: String,
    /// The size of a response's body at a peer.
    #[arg(long, default_value = "64B")]
    pub body: Bytes,
    /// Open loop: so many requests a second; latency counts from the intended time.
    #[arg(long, value_name = "PER_SECOND")]
    pub rate: Option<u64>,
    /// How long it goes on.
    #[command(flatten)]
    pub until: UntilArgs,
}

/// `measure transfer`.
#[derive(Debug, Args)]
pub struct MeasureTransfer {
    /// The peer.
    #[command(flatten)]
    pub peer: PeerArgs,
    /// The trial.
    #[command(flatten)]
    pub trial: TrialArgs,
    /// The buffer that goes there and back.
    #[arg(long, default_value = "1MiB")]
    pub bytes: Bytes,
    /// How often [default: as often as the time allows].
    #[arg(long)]
    pub repetitions: Option<u64>,
    /// Compare every byte at both ends.
    #[arg(long)]
    pub data_check: bool,
    /// What carries it.
    #[command(flatten)]
    pub transport: TransportArgs,
    /// How long it goes on.
    #[command(flatten)]
    pub until: UntilArgs,
}

/// `measure udp`.
#[derive(Debug, Args)]
pub struct MeasureUdp {
    /// The peer.
    #[command(flatten)]
    pub peer: PeerOrForeign,
    /// The trial.
    #[command(flatten)]
    pub trial: TrialArgs,
    /// The payload of a datagram [default: what fills the interface's MTU].
    #[arg(long)]
    pub size: Option<Bytes>,
    /// The rate of each flow [default: as fast as it goes].
    #[arg(long)]
    pub rate: Option<BitRate>,
    /// How datagrams get into and out of the kernel.
    #[arg(long, value_enum, default_value_t)]
    pub batch: BatchArg,
    /// How long it goes on.
    #[command(flatten)]
    pub until: UntilArgs,
}

/// `--batch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum BatchArg {
    /// One system call for each.
    Single,
    /// sendmmsg and recvmmsg.
    Mmsg,
    /// The kernel cuts and joins (UDP_SEGMENT, UDP_GRO).
    #[default]
    Gso,
}

impl From<BatchArg> for DatagramBatch {
    fn from(arg: BatchArg) -> Self {
        match arg {
            BatchArg::Single => Self::Single,
            BatchArg::Mmsg => Self::Mmsg,
            BatchArg::Gso => Self::Gso,
        }
    }
}

/// `agent`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("serves").required(true).args(["stdio", "iperf3", "http"])))]
pub struct AgentArgs {
    /// Talk over standard input and output (how `ssh://`, `netns:` and `exec:` peers start it).
    #[arg(long)]
    pub stdio: bool,
    /// Serve iperf3 clients, many at once, on this address: `127.0.0.1:5201`. Anyone who reaches it may
    /// measure.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub iperf3: Option<SocketAddr>,
    /// Serve HTTP/1.1 on this address, for any client: one thread a CPU. Anyone who reaches it is answered.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub http: Option<SocketAddr>,
    /// Threads of the HTTP server [default: one a CPU].
    #[arg(long, requires = "http", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// The size of each HTTP response's body.
    #[arg(long, requires = "http", default_value = "64B")]
    pub body: Bytes,
    /// How the HTTP server's threads wait: blocking, epoll, spin, busy-poll, busy-poll:MICROSECONDS.
    #[arg(long, requires = "http", value_name = "HOW", default_value = "blocking", hide_default_value = true, value_parser = parse_waiting)]
    pub wait: Waiting,
}

/// How long `busy-poll` polls when nothing is said (Documentation/networking/napi.rst).
const BUSY_POLL_US: u32 = 50;

fn parse_waiting(text: &str) -> Result<Waiting, String> {
    Ok(match text {
        "blocking" => Waiting::Blocking,
        "epoll" => Waiting::Epoll,
        "spin" => Waiting::Spin,
        "busy-poll" => Waiting::BusyPoll(BUSY_POLL_US),
        "uring" => Waiting::Uring,
        "uring-sqpoll" => Waiting::UringSqpoll,
        _ => {
            let micros = text
                .strip_prefix("busy-poll:")
                .and_then(|us| us.parse().ok());
            return micros.map(Waiting::BusyPoll).ok_or_else(|| {
                "expected blocking, epoll, spin, busy-poll[:MICROSECONDS], uring or uring-sqpoll"
                    .to_owned()
            });
        }
    })
}

pub(super) fn parse_percent(text: &str) -> Result<f64, String> {
    let number: f64 = text
        .trim()
        .trim_end_matches('%')
        .trim_end()
        .parse()
        .map_err(|_| "expected a percentage such as `1%`".to_owned())?;
    if (0.01..=50.0).contains(&number) {
        Ok(number / 100.0)
    } else {
        Err("expected 0.01 % to 50 %".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_of_waiting_read_back() {
        for text in [
            "blocking",
            "epoll",
            "spin",
            "busy-poll:20",
            "uring",
            "uring-sqpoll",
        ] {
            assert_eq!(
                parse_waiting(text).map(|how| how.to_string()),
                Ok(text.to_owned())
            );
        }
        assert_eq!(
            parse_waiting("busy-poll"),
            Ok(Waiting::BusyPoll(BUSY_POLL_US))
        );
        assert!(parse_waiting("busy-poll:soon").is_err());
    }

    #[test]
    fn a_percentage_is_a_share() {
        assert_eq!(parse_percent("1%"), Ok(0.01));
        assert_eq!(parse_percent("2.5 %"), Ok(0.025));
        assert!(parse_percent("0").is_err() && parse_percent("many").is_err());
    }
}
