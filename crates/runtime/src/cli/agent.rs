//! The options of `agent` and `peers`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use linerate_channel::network::Network;
use linerate_model::pairing::{DEFAULT_PORT, HostPort, Pairing};
use linerate_model::ports::PortRange;
use linerate_model::units::{BitRate, Bytes, Nanoseconds};
use linerate_model::workload::Waiting;

use super::measure::parse_waiting;
use super::parse_nonzero_time;

/// The headings of the options of `--listen`.
const LISTENING: &str = "Options of --listen";
pub(super) const LIMITS: &str = "Limits of --listen, for each trial";

/// `agent`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(group(ArgGroup::new("serves").required(true).args(["stdio", "listen", "iperf3", "http"])))]
pub struct AgentArgs {
    /// Use standard input and output (`ssh://`, `netns:` and `exec:` peers start the agent this way).
    #[arg(long)]
    pub stdio: bool,
    /// Listen for paired hosts (`tls://` peers) over TLS 1.3, and print a pairing line [default port: 5210].
    ///
    /// Control and TCP data arrive at this one port. Without ADDRESS, at all addresses, or at the socket of systemd.
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1)]
    pub listen: Option<Option<ListenAddress>>,
    /// Options of `--listen`.
    #[command(flatten)]
    pub listening: ListenArgs,
    /// Serve any number of iperf3 clients on this address, such as `127.0.0.1:5201`. No authentication.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub iperf3: Option<SocketAddr>,
    /// Serve HTTP/1.1 on this address to any client, one thread per CPU. No authentication.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub http: Option<SocketAddr>,
    /// Threads of the HTTP server [default: one per CPU].
    #[arg(long, requires = "http", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Body size of each HTTP response.
    #[arg(long, requires = "http", default_value = "64B")]
    pub body: Bytes,
    /// Wait method of the HTTP server's threads: blocking, epoll, spin, busy-poll, busy-poll:MICROSECONDS.
    #[arg(long, requires = "http", value_name = "HOW", default_value = "blocking", hide_default_value = true, value_parser = parse_waiting)]
    pub wait: Waiting,
    /// A session of a listening agent: its terms come first on standard input.
    #[arg(long, hide = true, requires = "stdio")]
    pub session: bool,
    /// Of a rank of a mesh: the state folder in which it stores a run of its own.
    #[arg(long, hide = true, requires = "stdio", value_name = "STATE")]
    pub keep: Option<PathBuf>,
    /// The limit of all runs without a name there.
    #[arg(
        long,
        hide = true,
        requires = "keep",
        value_name = "SIZE",
        default_value = "1GB"
    )]
    pub keep_limit: Bytes,
    /// What to do with the pairings of a listening agent instead.
    #[command(subcommand)]
    pub action: Option<AgentAction>,
}

/// Options of `agent --listen`.
#[derive(Debug, Args)]
pub struct ListenArgs {
    /// Let paired hosts change settings of this host (rolled back unless they commit).
    #[arg(long, requires = "listen", help_heading = LISTENING)]
    pub allow_changes: bool,
    /// Let paired hosts run commands as this user (`failover --do-remote`): as much as a shell.
    #[arg(long, requires = "listen", help_heading = LISTENING, hide_short_help = true)]
    pub allow_commands: bool,
    /// Networks that may connect, such as `10.0.0.0/8`; repeat for several [default: all].
    #[arg(long, requires = "listen", value_name = "NETWORK", help_heading = LISTENING)]
    pub allow_from: Vec<Network>,
    /// Ports for UDP, HTTP, RDMA CM and connections per request, such as `5211-5220` [default: any].
    #[arg(long, requires = "listen", value_name = "PORTS", help_heading = LISTENING)]
    pub data_ports: Option<PortRange>,
    /// Sessions at a time.
    #[arg(long, requires = "listen", value_name = "N", default_value_t = 8, help_heading = LISTENING, hide_short_help = true, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub max_sessions: u32,
    /// The address in the pairing line, for port forwarding [default: this host's first].
    #[arg(long, requires = "listen", value_name = "HOST[:PORT]", help_heading = LISTENING, hide_short_help = true)]
    pub advertise: Option<HostPort>,
    /// How long the pairing line can be used.
    #[arg(long, requires = "listen", value_name = "TIME", default_value = "15min", help_heading = LISTENING, hide_short_help = true, value_parser = parse_nonzero_time)]
    pub pair_within: Nanoseconds,
    /// Print no pairing line; `linerate agent pair` does.
    #[arg(long, requires = "listen", conflicts_with = "pair_within", help_heading = LISTENING, hide_short_help = true)]
    pub no_pairing: bool,
    /// Maximum duration.
    #[arg(long, requires = "listen", value_name = "TIME", help_heading = LIMITS, value_parser = parse_nonzero_time)]
    pub max_time: Option<Nanoseconds>,
    /// Maximum rate in each direction.
    #[arg(long, requires = "listen", value_name = "RATE", help_heading = LIMITS)]
    pub max_rate: Option<BitRate>,
    /// Maximum number of flows in each direction.
    #[arg(long, requires = "listen", value_name = "N", help_heading = LIMITS, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_flows: Option<u32>,
    /// Maximum memory of its buffers.
    #[arg(long, requires = "listen", value_name = "SIZE", help_heading = LIMITS)]
    pub max_memory: Option<Bytes>,
    /// Workloads, such as `stream,rr,udp` [default: all].
    #[arg(long, requires = "listen", value_name = "NAMES", value_delimiter = ',', help_heading = LIMITS, value_parser = WORKLOADS)]
    pub workloads: Vec<String>,
}

/// The names of all workloads.
const WORKLOADS: [&str; 11] = [
    "stream",
    "rr",
    "pingpong",
    "http",
    "transfer",
    "diffusion",
    "udp",
    "rdma-write",
    "rdma-read",
    "rdma-send",
    "rdma-atomic",
];

/// What to do with the pairings of a listening agent.
#[derive(Debug, Subcommand)]
pub enum AgentAction {
    /// Print a pairing line for another host; the agent may be running.
    Pair {
        /// The address in the line [default: that of the running agent; else this host's first, with port 5210].
        #[arg(long, value_name = "HOST[:PORT]")]
        advertise: Option<HostPort>,
        /// How long the line can be used.
        #[arg(long, value_name = "TIME", default_value = "15min", value_parser = parse_nonzero_time)]
        pair_within: Nanoseconds,
    },
    /// List the hosts that may connect.
    Paired,
    /// Forget a host: it must pair again. Its open session goes on.
    Forget {
        /// Its address as listed, or the first digits of its key (at least 8).
        #[arg(value_name = "ADDRESS|KEY")]
        which: String,
    },
}

/// `peers`.
#[derive(Debug, Subcommand)]
pub enum PeersAction {
    /// List the listening agents that this host is paired with.
    List,
    /// Pair with a listening agent.
    Pair {
        /// The line that `linerate agent --listen` or `linerate agent pair` prints; `-` reads it from standard input, where no
        /// other user sees it.
        line: PairingArg,
        /// Where it is reached from here, if not at the address in the line (port forwarding).
        #[arg(long, value_name = "HOST[:PORT]")]
        at: Option<HostPort>,
    },
    /// Forget a listening agent: this host must pair with it again.
    Forget {
        /// Its `HOST:PORT` as listed, or the first digits of its key (at least 8).
        #[arg(value_name = "HOST:PORT|KEY")]
        which: String,
    },
}

/// A pairing line, or where it comes from.
#[derive(Debug, Clone)]
pub enum PairingArg {
    /// It is given.
    Given(Pairing),
    /// The first line of standard input.
    Stdin,
}

impl std::str::FromStr for PairingArg {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "-" => Ok(Self::Stdin),
            text => text.parse().map(Self::Given),
        }
    }
}

/// Where an agent listens: an address, a port, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenAddress(pub SocketAddr);

impl std::str::FromStr for ListenAddress {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        use std::net::{IpAddr, Ipv6Addr};
        let port = text.strip_prefix(':').unwrap_or(text);
        let everywhere = |port| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        let address = (text.parse::<SocketAddr>().ok())
            .or_else(|| Some((text.parse::<IpAddr>().ok()?, DEFAULT_PORT).into()))
            .or_else(|| port.parse::<u16>().ok().map(everywhere));
        let address =
            address.ok_or("expected ADDRESS:PORT, ADDRESS, PORT or :PORT, with an IP address")?;
        Ok(Self(address))
    }
}
