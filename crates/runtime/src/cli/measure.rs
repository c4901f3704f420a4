//! The options of `measure`, and those that `prove` shares with it.

use std::str::FromStr;

use clap::builder::UnknownArgumentValueParser;
use clap::{Arg, ArgAction, Args, Subcommand, ValueEnum};
use linerate_model::ids::{CpuSet, IdError};
use linerate_model::peer_address::PeerAddress;
use linerate_model::units::{BitRate, Bytes, Nanoseconds};
use linerate_model::workload::{DatagramBatch, ReceiveMode, SendMode, Waiting};

use super::preload::PreloadArg;
use super::verbs::VERBS;
use super::{
    ComparisonArgs, LikeArgs, MarkArgs, MeasureBlock, MeasureDiffusion, MeasureRdma, PeerArgs,
    ReachArgs, Requirement, TransportArgs, parse_seconds,
};
use crate::cli::place_word::{MemoryWhere, Where, WordError};

/// The heading of the options of every workload.
pub(super) const TRIAL: &str = "Trial options";
/// The heading of the options that repeat a measurement until it is precise, and of its pass or fail.
pub(super) const PRECISION: &str = "Precision and pass/fail";
/// The heading of the placement options.
pub(super) const PLACE: &str = "Placement";

/// Options of every workload.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
#[command(next_help_heading = TRIAL)]
pub struct TrialArgs {
    /// Duration of each trial: `90s`, `2min` [default: 10s; `prove`: 1s].
    #[arg(long, short, value_name = "TIME", value_parser = parse_seconds)]
    pub time: Option<Nanoseconds>,
    /// Exclude the first TIME from the rate.
    ///
    /// The trial takes that much longer. For bulk transfers. A warm-up is excluded without it too, by a test of the rates.
    #[arg(long, short = 'O', value_name = "TIME", value_parser = parse_seconds)]
    pub omit: Option<Nanoseconds>,
    /// Counter sampling interval [default: 1/20 of the trial, from 1ms to 100ms].
    #[arg(long, value_name = "TIME", value_parser = parse_seconds, hide_short_help = true)]
    pub sample_interval: Option<Nanoseconds>,
    /// Number of connections, UDP flows or queue pairs.
    ///
    /// For `transfer` and `diffusion`, of pairs.
    #[arg(long, short = 'P', value_name = "N", aliases = ["connections", "parallel", "pairs-in-parallel", "qps"], default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub flows: u32,
    /// Data threads per end; they share the connections [default: one per connection, at most one per CPU].
    #[arg(long, hide_short_help = true, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Like `--threads`, for the peer only.
    #[arg(long, value_name = "THREADS", hide_short_help = true, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads_remote: Option<u32>,
    /// Send from the peer to this host.
    #[arg(long, short = 'R', conflicts_with = "bidir")]
    pub reverse: bool,
    /// Send in both directions at once.
    #[arg(long)]
    pub bidir: bool,
    /// Socket buffer size, such as `4MiB` [default: kernel autotuning].
    ///
    /// SO_SNDBUF and SO_RCVBUF.
    #[arg(long, short = 'w', alias = "window", value_name = "SIZE")]
    pub socket_buffer: Option<Bytes>,
    /// TCP congestion control [default: the host's].
    #[arg(long, short = 'C', alias = "congestion", value_name = "NAME")]
    pub cc: Option<String>,
    /// Maximum segment size (TCP_MAXSEG).
    #[arg(long, short = 'M', alias = "set-mss", value_name = "BYTES")]
    pub mss: Option<Bytes>,
    /// Cap the pacing rate of each connection, such as `5Gb/s`.
    ///
    /// SO_MAX_PACING_RATE.
    #[arg(long, short = 'b', value_name = "RATE")]
    pub pacing: Option<BitRate>,
    /// Wait method: blocking, epoll, spin, busy-poll, busy-poll:MICROSECONDS, uring, uring-sqpoll; over verbs,
    /// blocking (completion events) or spin (CQ polling) [default: blocking; `rdma-*`: spin].
    ///
    /// `epoll` sleeps in epoll_wait(2) without a time limit, `spin` calls it with a limit of 0 and never sleeps, `busy-poll`
    /// has the kernel poll the NIC's queue before it sleeps (SO_BUSY_POLL).
    #[arg(long, value_name = "HOW", value_parser = parse_waiting, hide_short_help = true)]
    pub wait: Option<Waiting>,
    /// Like `--wait`, for the peer only.
    #[arg(long, value_name = "HOW", value_parser = parse_waiting, hide_short_help = true)]
    pub wait_remote: Option<Waiting>,
    /// Profile both ends with perf events, HZ samples per second: the hottest symbols of the trial's threads and of the
    /// softirqs on their CPUs. `compare` shows which symbols cost more in another run.
    #[arg(long, value_name = "HZ", hide_short_help = true, num_args = 0..=1, default_missing_value = "199", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub perf: Option<u32>,
    /// Only move and count bytes: record no counters, CPU time or intervals on either end. Use to measure
    /// instrumentation overhead.
    #[arg(long, hide_short_help = true, conflicts_with_all = ["sample_interval", "perf"])]
    pub no_record: bool,
    /// Record what happens to the network of both ends during the trial: carrier, bonds, routes, nexthops, the gateway's
    /// ARP, VRRP. In JSON, below `raw`.
    #[arg(long, hide_short_help = true, conflicts_with = "no_record")]
    pub events: bool,
    /// CPU placement of the threads of both ends: `near` (NUMA node of the NIC), `far` (the node farthest from it),
    /// `node:N`, `cpu:LIST`, `spread` (one thread per core, node by node in turn), `same-core` (sender and receiver on
    /// one core), `by-rx-cpu` (the CPUs that receive the connections), or SENDER_CPUS:RECEIVER_CPUS such as `0-3:8`.
    #[arg(long, value_name = "WHERE", help_heading = PLACE)]
    pub place: Option<Placing>,
    /// Like `--place`, for the peer only.
    #[arg(long, value_name = "WHERE", help_heading = PLACE)]
    pub place_remote: Option<Where>,
    /// NUMA memory policy of the buffers, as in numactl(8): `default`, `local`, `bind:NODES`, `interleave:NODES`,
    /// `preferred:NODE`; or bound to a node: `near` (that of the NIC), `far` (the farthest from it).
    #[arg(long, value_name = "POLICY", help_heading = PLACE)]
    pub memory: Option<MemoryWhere>,
    /// Like `--memory`, for the peer only.
    #[arg(long, value_name = "POLICY", help_heading = PLACE)]
    pub memory_remote: Option<MemoryWhere>,
}

/// A value of `--place`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placing {
    /// A named placement of each end.
    At(Where),
    /// The CPUs of the senders and of the receivers, on whichever end they are.
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

/// Options of a stream; `prove` takes them too.
#[derive(Debug, Args)]
pub struct StreamArgs {
    /// The trial.
    #[command(flatten)]
    pub trial: TrialArgs,
    /// Size of each send and receive.
    #[arg(long, short = 'l', value_name = "SIZE", default_value = "128KiB")]
    pub buffer: Bytes,
    /// How the sender passes data to the kernel.
    #[arg(
        long,
        value_name = "MODE",
        value_enum,
        default_value_t,
        hide_short_help = true
    )]
    pub send: SendArg,
    /// How the receiver takes data from the kernel.
    #[arg(
        long,
        value_name = "MODE",
        value_enum,
        default_value_t,
        hide_short_help = true
    )]
    pub receive: ReceiveArg,
}

/// `-u`, which turns iperf3's test into one of UDP.
fn udp_hint() -> Arg {
    Arg::new("udp")
        .short('u')
        .action(ArgAction::SetTrue)
        .hide(true)
        .value_parser(UnknownArgumentValueParser::suggest(
            "datagrams are measured by `linerate measure udp`",
        ))
}

/// `--send`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum SendArg {
    /// Copied by the kernel.
    #[default]
    Write,
    /// MSG_ZEROCOPY; reports whether the kernel copied anyway.
    Zerocopy,
    /// sendfile from a memfd.
    Sendfile,
    /// splice through a pipe.
    Splice,
    /// io_uring.
    Uring,
    /// io_uring zero-copy send.
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
    /// Copied by the kernel.
    #[default]
    Read,
    /// MSG_TRUNC: the kernel discards the payload without a copy.
    Trunc,
    /// TCP_ZEROCOPY_RECEIVE: maps whole pages.
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
    /// Bulk transfer over TCP or RDMA: throughput, CPU cost, bottleneck.
    #[command(arg = udp_hint(), mut_arg("like", |arg| arg.conflicts_with_all(["ladder", "nic", "preload"])))]
    Stream(MeasureStream),
    /// Request/response: rate and latency.
    #[command(mut_arg("omit", hidden))]
    Rr(MeasureRr),
    /// Ping-pong over a range of message sizes: latency, bandwidth, and their linear fit.
    #[command(mut_arg("omit", hidden))]
    Pingpong(MeasurePingpong),
    /// HTTP/1.1 load: the peer's built-in server, or any server.
    #[command(mut_arg("omit", hidden))]
    Http(MeasureHttp),
    /// Round trip of a buffer: announce, fetch, go, return, done.
    #[command(mut_arg("omit", hidden))]
    Transfer(MeasureTransfer),
    /// Round trip of a grid that the peer computes on: compute and transport cost.
    ///
    /// The peer computes one step of the heat equation.
    #[command(mut_arg("flows", |arg| arg.alias("pairs")), mut_arg("omit", hidden))]
    Diffusion(MeasureDiffusion),
    /// UDP datagrams: rate, loss, reordering, jitter.
    #[command(
        mut_arg("cc", hidden),
        mut_arg("mss", hidden),
        mut_arg("pacing", |arg| hidden(arg).short(None))
    )]
    Udp(MeasureUdp),
    /// RDMA write to the peer's memory: rate or latency, one message size or a sweep.
    #[command(
        mut_arg("socket_buffer", hidden),
        mut_arg("cc", hidden),
        mut_arg("mss", hidden),
        mut_arg("pacing", hidden)
    )]
    RdmaWrite(MeasureRdma),
    /// RDMA read from the peer's memory.
    #[command(
        mut_arg("socket_buffer", hidden),
        mut_arg("cc", hidden),
        mut_arg("mss", hidden),
        mut_arg("pacing", hidden)
    )]
    RdmaRead(MeasureRdma),
    /// RDMA send to receives posted by the peer.
    #[command(
        mut_arg("socket_buffer", hidden),
        mut_arg("cc", hidden),
        mut_arg("mss", hidden),
        mut_arg("pacing", hidden)
    )]
    RdmaSend(MeasureRdma),
    /// RDMA atomic fetch-and-add on 8 bytes of the peer's memory.
    #[command(
        mut_arg("socket_buffer", hidden),
        mut_arg("cc", hidden),
        mut_arg("mss", hidden),
        mut_arg("pacing", hidden)
    )]
    RdmaAtomic(MeasureRdma),
    /// Reads of a local block device: IOPS, latency, CPU cost, bottleneck.
    ///
    /// By io_uring, without the page cache. Needs no peer. Reads only, unless `--write` names the device again.
    Block(MeasureBlock),
}

/// Hides an option that does not apply to this workload; using it is an error that names the reason.
fn hidden(arg: Arg) -> Arg {
    arg.hide(true)
}

/// Report and repetition of a measurement.
#[derive(Debug, Args)]
#[command(next_help_heading = PRECISION)]
pub struct UntilArgs {
    /// Report the rate of each interval of TIME.
    ///
    /// Rounded to readings (`--sample-interval`). Also the interval of `--format iperf3-json` [default there: 1s].
    #[arg(long, short, value_name = "TIME", value_parser = parse_interval, help_heading = TRIAL, conflicts_with = "no_record")]
    pub interval: Option<Nanoseconds>,
    /// List every flow in JSON, also more than 64: some kilobytes each.
    #[arg(long, help_heading = TRIAL, hide_short_help = true)]
    pub per_flow: bool,
    /// Repeat until the 95 % CI of the median is within +-PERCENT, such as `1%`.
    ///
    /// Allows for correlation between trials, so it takes at least 20.
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub until_ci: Option<f64>,
    /// With `--until-ci` and `--require`: start no further trial after this time.
    #[arg(long, value_name = "TIME", default_value = "300s", value_parser = parse_seconds, hide_short_help = true)]
    pub max_time: Nanoseconds,
    /// Fail unless the bound holds, such as `rate>=90%ceiling` or `p99<=100us`.
    ///
    /// Also `cpu.remote<=0.3s/GB`, `operations>=100000/s` and `cpu-op<=20us/op`. Repeats the trial until the median has a
    /// CI, at least 20 times, and with `--until-ci` until the CI lies on one side of the bound. Exits 11 if the bound does
    /// not hold, 12 if inconclusive. `--format junit` prints it for a CI system.
    #[arg(long, value_name = "BOUND")]
    pub require: Vec<Requirement>,
}

impl UntilArgs {
    /// One trial.
    pub fn once() -> Self {
        Self {
            interval: None,
            per_flow: false,
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
    /// Stream options.
    #[command(flatten)]
    pub stream: StreamArgs,
    /// Send this many bytes in each direction instead of sending for `--time`, which becomes the time limit.
    #[arg(long, hide_short_help = true)]
    pub bytes: Option<Bytes>,
    /// Verify every received byte.
    #[arg(long, hide_short_help = true, conflicts_with_all = ["ladder", "iperf3", "preload"])]
    pub data_check: bool,
    /// Prove what limits the rate, by up to 5 s of short trials.
    ///
    /// Each changes one thing: connections, buffers, congestion control, CPUs, copies, segments, direction, datagrams at
    /// twice the rate. Changes nothing on either host.
    #[arg(long, conflicts_with_all = ["ladder", "iperf3", "preload", "no_record"])]
    pub why: bool,
    /// Over verbs: outstanding messages of `--buffer` bytes per queue pair [default: 128].
    #[arg(long, help_heading = VERBS, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub depth: Option<u32>,
    /// Measure plain socket calls over kernel TCP, then again with this library in LD_PRELOAD on both ends: `rsocket` (RDMA
    /// for unmodified programs), or the absolute path of another one, such as libvma.
    #[arg(long, value_name = "LIBRARY", hide_short_help = true, conflicts_with_all = ["ladder", "depth", "bytes", "place", "place_remote", "memory", "memory_remote", "interval", "sample_interval", "no_record", "until_ci", "require", "per_flow"])]
    pub preload: Option<PreloadArg>,
    /// The transport.
    #[command(flatten)]
    pub transport: TransportArgs,
    /// Marks of its packets.
    #[command(flatten)]
    pub marks: MarkArgs,
    /// Repetition.
    #[command(flatten)]
    pub until: UntilArgs,
    /// Many trials, compared.
    #[command(flatten)]
    pub comparison: ComparisonArgs,
    /// The defaults of another program.
    #[command(flatten)]
    pub like: LikeArgs,
}

/// A peer, or an iperf3 server.
#[derive(Debug, Args)]
pub struct PeerOrForeign {
    /// The peer: `[user@]host` (ssh), `tls://host`, `netns:NAME`, `exec:COMMAND` or `local`.
    ///
    /// A host may have the prefix `ssh://`, and `:PORT`. `tls://` is a host that runs `linerate agent --listen`: use the line that it prints
    /// once, and `tls://host[:port]` from then on. The command of `exec:` must run `linerate agent --stdio`. `local` is
    /// this host. Required without `--iperf3`.
    #[arg(value_name = "PEER", required_unless_present = "iperf3")]
    pub peer: Option<PeerAddress>,
    /// Measure against an iperf3 server instead: `HOST[:PORT]`.
    #[arg(long, value_name = "HOST", conflicts_with_all = ["peer", "push", "pair", "data_from", "address", "omit"])]
    pub iperf3: Option<String>,
    /// How a peer is reached.
    #[command(flatten)]
    pub reach: ReachArgs,
    /// Peer TCP port for the data connections [default: a free port].
    ///
    /// For firewalls that restrict ports. With `--iperf3`, the server's port.
    #[arg(long, short, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
}

impl PeerOrForeign {
    /// The linerate peer, if it is one.
    pub fn peer(&self) -> Option<PeerArgs> {
        Some(PeerArgs {
            peer: self.peer.clone()?,
            reach: self.reach.clone(),
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
    /// Request size.
    #[arg(long, default_value = "1B")]
    pub request: Bytes,
    /// Response size.
    #[arg(long, default_value = "1B")]
    pub response: Bytes,
    /// Outstanding requests per connection.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub depth: u32,
    /// Open a new connection for each request.
    #[arg(long)]
    pub reconnect: bool,
    /// Open loop: send this many requests per second.
    ///
    /// Sends regardless of responses; latency counts from the intended send time.
    #[arg(long, value_name = "PER_SECOND")]
    pub rate: Option<u64>,
    /// Measure plain socket calls over kernel TCP, then again with this library in LD_PRELOAD on both ends: `rsocket` (RDMA
    /// for unmodified programs), or the absolute path of another one, such as libvma.
    #[arg(long, value_name = "LIBRARY", hide_short_help = true, conflicts_with_all = ["place", "place_remote", "memory", "memory_remote", "interval", "sample_interval", "no_record", "until_ci", "require", "per_flow", "like"])]
    pub preload: Option<PreloadArg>,
    /// The transport.
    #[command(flatten)]
    pub transport: TransportArgs,
    /// Marks of its packets.
    #[command(flatten)]
    pub marks: MarkArgs,
    /// Repetition.
    #[command(flatten)]
    pub until: UntilArgs,
    /// The defaults of another program.
    #[command(flatten)]
    pub like: LikeArgs,
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
    /// Message sizes [default: 0 and the powers of two up to 4 MiB, as in IMB].
    #[arg(long, value_delimiter = ',', value_name = "SIZE")]
    pub sizes: Vec<Bytes>,
    /// Repetitions of each size; fewer for large sizes.
    ///
    /// Limited by `--volume`, but at least 10.
    #[arg(long, default_value_t = 1000)]
    pub repetitions: u32,
    /// Maximum bytes per size and direction [default: 40MiB, as in IMB].
    #[arg(long, value_name = "SIZE")]
    pub volume: Option<Bytes>,
    /// Verify every byte on both ends.
    #[arg(long)]
    pub data_check: bool,
    /// Measure plain socket calls over kernel TCP, then again with this library in LD_PRELOAD on both ends: `rsocket` (RDMA
    /// for unmodified programs), or the absolute path of another one, such as libvma.
    #[arg(long, value_name = "LIBRARY", hide_short_help = true, conflicts_with_all = ["place", "place_remote", "memory", "memory_remote", "sample_interval", "no_record"])]
    pub preload: Option<PreloadArg>,
    /// The transport.
    #[command(flatten)]
    pub transport: TransportArgs,
}

/// `measure http`.
#[derive(Debug, Args)]
pub struct MeasureHttp {
    /// A peer, which then runs the server; or the URL of any HTTP/1.1 server: `http://HOST[:PORT]/PATH`.
    #[arg(value_name = "PEER|URL")]
    pub target: String,
    /// How a peer is reached.
    #[command(flatten)]
    pub reach: ReachArgs,
    /// The trial.
    #[command(flatten)]
    pub trial: TrialArgs,
    /// Request path on a peer.
    #[arg(long, default_value = "/")]
    pub path: String,
    /// Response body size on a peer.
    #[arg(long, default_value = "64B")]
    pub body: Bytes,
    /// Open loop: send this many requests per second.
    ///
    /// Latency counts from the intended send time.
    #[arg(long, value_name = "PER_SECOND")]
    pub rate: Option<u64>,
    /// Repetition.
    #[command(flatten)]
    pub until: UntilArgs,
    /// The defaults of another program.
    #[command(flatten)]
    pub like: LikeArgs,
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
    /// Buffer size.
    #[arg(long, default_value = "1MiB")]
    pub bytes: Bytes,
    /// Number of round trips [default: as many as `--time` allows].
    #[arg(long)]
    pub repetitions: Option<u64>,
    /// Verify every byte on both ends.
    #[arg(long)]
    pub data_check: bool,
    /// The transport.
    #[command(flatten)]
    pub transport: TransportArgs,
    /// Repetition.
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
    /// Datagram payload size [default: fills the interface's MTU].
    #[arg(long, short = 'l')]
    pub size: Option<Bytes>,
    /// Rate of each flow [default: unlimited].
    #[arg(long, short = 'b')]
    pub rate: Option<BitRate>,
    /// How datagrams are passed to and from the kernel.
    #[arg(long, value_enum, default_value_t, hide_short_help = true)]
    pub batch: BatchArg,
    /// Marks of its packets.
    #[command(flatten)]
    pub marks: MarkArgs,
    /// Repetition.
    #[command(flatten)]
    pub until: UntilArgs,
}

/// `--batch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum BatchArg {
    /// One system call per datagram.
    Single,
    /// sendmmsg and recvmmsg.
    Mmsg,
    /// UDP GSO and GRO (UDP_SEGMENT, UDP_GRO).
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

/// Shorter ones hold no reading of the counters.
const INTERVAL_MIN: Nanoseconds = Nanoseconds::from_millis(1);
/// The default of `busy-poll` (Documentation/networking/napi.rst).
const BUSY_POLL_US: u32 = 50;

pub(super) fn parse_waiting(text: &str) -> Result<Waiting, String> {
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

fn parse_interval(text: &str) -> Result<Nanoseconds, String> {
    let time = parse_seconds(text)?;
    if time >= INTERVAL_MIN {
        Ok(time)
    } else {
        Err(format!("expected at least {INTERVAL_MIN}"))
    }
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
