//! The options of `agent`.

use std::net::SocketAddr;

use clap::{ArgGroup, Args};
use linerate_model::units::Bytes;
use linerate_model::workload::Waiting;

use super::measure::parse_waiting;

/// `agent`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("serves").required(true).args(["stdio", "iperf3", "http"])))]
pub struct AgentArgs {
    /// Use standard input and output (`ssh://`, `netns:` and `exec:` peers start the agent this way).
    #[arg(long)]
    pub stdio: bool,
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
}
