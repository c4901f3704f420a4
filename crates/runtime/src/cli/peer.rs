//! How a peer is named and reached.

use std::net::IpAddr;

use clap::Args;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::pairing::Pairing;
use linerate_model::peer_address::PeerAddress;
use linerate_model::workload::{TrialSpec, Workload};

/// Options of every command that uses a peer.
#[derive(Debug, Args)]
pub struct PeerArgs {
    /// The peer: `[user@]host` (ssh), `tls://host`, `netns:NAME`, `exec:COMMAND` or `local`.
    ///
    /// A host may have the prefix `ssh://`, and `:PORT`. `tls://` is a host that runs `linerate agent --listen`: use the line
    /// that it prints once, and `tls://host[:port]` from then on. The command of `exec:` must run `linerate agent --stdio`.
    /// `local` is this host.
    #[arg(value_name = "PEER")]
    pub peer: PeerAddress,
    /// How it is reached.
    #[command(flatten)]
    pub reach: ReachArgs,
    /// Peer TCP port for the data connections [default: a free port].
    ///
    /// For firewalls that restrict ports.
    #[arg(long, short, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
}

/// How a peer is reached.
#[derive(Debug, Clone, Default, Args)]
pub struct ReachArgs {
    /// Copy this program to the peer if the peer does not have this build.
    ///
    /// Over ssh only.
    #[arg(long)]
    pub push: bool,
    /// Pair with the listening agent first, by the line that it has printed.
    #[arg(long, value_name = "LINE", hide_short_help = true)]
    pub pair: Option<Pairing>,
    /// Refuse trials for which the peer would connect to this host, which may be behind NAT.
    ///
    /// Only `near`: this end opens all data connections, also for `--reverse`. The exceptions are clients at the peer: `http
    /// --reverse` and `rr --reverse --reconnect`.
    #[arg(long, value_name = "END", hide_short_help = true, hide_possible_values = true, value_parser = ["near"])]
    pub data_from: Option<String>,
    /// Peer address for the data connections [default: that of `tls://`; one on a shared subnet, else the ssh host].
    #[arg(long, value_name = "ADDRESS", hide_short_help = true)]
    pub address: Option<IpAddr>,
}

impl ReachArgs {
    /// Refuses a trial whose connections the peer opens if `--data-from near` is given. All others are opened by this end anyway.
    pub fn check_data_from(&self, spec: &TrialSpec) -> Outcome<()> {
        if self.data_from.is_none() || !spec.remote_connects() {
            return Ok(());
        }
        let what = match &spec.workload {
            Workload::Http(_) => "an HTTP client at the peer opens its connections",
            _ => "with `--reconnect`, the peer opens a connection for each of its requests",
        };
        Err(Stop::new(
            Code::Usage,
            format!("`--data-from near` is not possible here: {what}"),
        )
        .hint("leave `--reverse` and `--bidir` out"))
    }
}

impl PeerArgs {
    /// The peer, with the pairing line of `--pair`: a line holds at whatever address the agent is reached.
    pub fn peer_to_pair(&self) -> Outcome<PeerAddress> {
        match (&self.reach.pair, &self.peer) {
            (None, peer) => Ok(peer.clone()),
            (Some(pair), PeerAddress::Tls { at, .. }) => {
                let pairing = Pairing {
                    at: at.clone(),
                    ..pair.clone()
                };
                Ok(PeerAddress::Tls {
                    at: at.clone(),
                    pairing: Some(Box::new(pairing)),
                })
            }
            (Some(_), peer) => Err(Stop::new(
                Code::Usage,
                format!("`--pair` works with `tls://` peers only, not with {peer}"),
            )),
        }
    }

    /// This peer, reached like this.
    pub fn reached(peer: &PeerAddress, reach: ReachArgs) -> Self {
        Self {
            peer: peer.clone(),
            reach,
            port: None,
        }
    }
}
