//! Why an agent that listens cannot be used.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use linerate_model::exit::{Code, Stop};
use linerate_model::pairing::{HostPort, PublicKey};
use linerate_model::peer_address::PeerAddress;

/// Why an agent that listens cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// A name has no address.
    #[error("cannot resolve the host name `{host}`: {source}")]
    Resolve {
        /// The name.
        host: String,
        /// The resolver's reason.
        source: io::Error,
    },
    /// A port refuses connections.
    #[error("cannot connect to tls://{at}: {} connection refused", at_address(.address))]
    PortClosed {
        /// What was asked for.
        at: HostPort,
        /// The address that was tried last.
        address: SocketAddr,
    },
    /// Nothing answers.
    #[error("cannot connect to tls://{at}: {} no answer within {:.1} s", at_address(.address), .waited.as_secs_f64())]
    NoAnswer {
        /// What was asked for.
        at: HostPort,
        /// The address that was tried last.
        address: SocketAddr,
        /// For how long.
        waited: Duration,
    },
    /// Any other reason why there is no connection.
    #[error("cannot connect to tls://{at}: {} {source}", at_address(.address))]
    Connect {
        /// What was asked for.
        at: HostPort,
        /// The address that was tried last.
        address: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// This host knows no key of the agent.
    #[error("this host is not paired with tls://{at}")]
    NotPaired {
        /// The agent.
        at: HostPort,
        /// Another port of that host, with whose agent this host is paired.
        known: Option<HostPort>,
    },
    /// Another key than the known one.
    #[error("tls://{at} has the key {}.., expected {}..", .found.short(), .expected.short())]
    WrongKey {
        /// The agent.
        at: HostPort,
        /// The known key.
        expected: PublicKey,
        /// The key that answered.
        found: PublicKey,
    },
    /// Another key answers than that of the pairing line.
    #[error("tls://{at} has the key {}.., the pairing line has {}..", .found.short(), .line.short())]
    WrongLine {
        /// The agent.
        at: HostPort,
        /// The key in the line.
        line: PublicKey,
        /// The key that answered.
        found: PublicKey,
    },
    /// A pairing line with another key than the known one.
    #[error("this host knows tls://{at} by the key {}.., the pairing line has {}..", .known.short(), .line.short())]
    KnownByAnotherKey {
        /// The agent.
        at: HostPort,
        /// The known key.
        known: PublicKey,
        /// The key in the line.
        line: PublicKey,
    },
    /// It connects, but does not talk TLS 1.3 as an agent does.
    #[error("cannot start a session with tls://{at}: {why}")]
    NoAgent {
        /// What was asked for.
        at: HostPort,
        /// What happened instead.
        why: String,
    },
    /// The agent's answer is no.
    #[error("the agent at tls://{at} refuses: {why}")]
    Refused {
        /// The agent.
        at: HostPort,
        /// The exit code.
        code: u8,
        /// Its reason.
        why: String,
    },
    /// A pairing line that is too old.
    #[error("the pairing line of tls://{at} has expired")]
    Expired {
        /// The agent.
        at: HostPort,
    },
    /// The connection broke in a session.
    #[error("the connection to tls://{at} broke: {why}")]
    Broken {
        /// The agent.
        at: HostPort,
        /// How.
        why: String,
    },
    /// The files of the keys.
    #[error("cannot {doing}: {source}")]
    Files {
        /// What failed.
        doing: String,
        /// The reason.
        source: io::Error,
    },
}

fn at_address(address: &SocketAddr) -> String {
    format!("{address}:")
}

impl ChannelError {
    /// How `doing` something with the files of the keys failed.
    pub(crate) fn files(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Files { doing, source }
    }

    /// What to do about it.
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::PortClosed { at, .. } => format!(
                "nothing listens on this port, or a firewall rejects it: start `linerate agent --listen` there, on port {}, and \
                 allow it; or use another peer: {}",
                at.port,
                PeerAddress::FORMS
            ),
            Self::NoAnswer { at, .. } => format!(
                "the host is down, or a firewall drops the packets: allow TCP port {} to it, or use \
                 another peer: {}",
                at.port,
                PeerAddress::FORMS
            ),
            Self::NotPaired { at, known: None } => format!(
                "run `linerate agent pair` on {}, and use the line that it prints as the peer",
                at.host
            ),
            Self::NotPaired {
                known: Some(known), ..
            } => format!("this host is paired with tls://{known}"),
            Self::WrongKey { at, .. } => format!(
                "if the agent was installed again, run `linerate peers forget {at}` and pair again; if not, another host answers at this address"
            ),
            Self::WrongLine { at, .. } => format!(
                "another host may answer at this address; if not, the line is damaged or of another agent: run `linerate agent pair` on {}, as \
                 the user and with the `--state` of the agent",
                at.host
            ),
            Self::KnownByAnotherKey { at, .. } => format!(
                "if the agent was installed again, run `linerate peers forget {at}`, and pair again"
            ),
            Self::Connect { at, .. } => format!(
                "check the address, the route and the link to {}, and whether a firewall rejects the port; or use another peer: {}",
                at.host,
                PeerAddress::FORMS
            ),
            Self::Expired { at } => format!("run `linerate agent pair` on {}", at.host),
            Self::Refused { code, at, .. } if *code == Code::PermissionMissing.number() => {
                format!(
                    "run `linerate agent pair` on {}, and use the line that it prints as the peer",
                    at.host
                )
            }
            Self::Resolve { .. } => {
                format!("check the name; a peer is {}", PeerAddress::FORMS)
            }
            Self::NoAgent { .. } => format!(
                "another program may listen on this port, or the agent's `--allow-from` excludes this host; a peer is {}",
                PeerAddress::FORMS
            ),
            _ => return None,
        })
    }

    fn code(&self) -> Code {
        match self {
            // What an agent says is no success, and no state of this host.
            Self::Refused { code, .. } => [Code::PermissionMissing, Code::Resource]
                .into_iter()
                .find(|one| one.number() == *code)
                .unwrap_or(Code::PeerUnreachable),
            Self::NotPaired { .. } | Self::Expired { .. } => Code::PermissionMissing,
            _ => Code::PeerUnreachable,
        }
    }
}

impl From<ChannelError> for Stop {
    fn from(error: ChannelError) -> Self {
        if let ChannelError::Files { doing, source } = error {
            return Self::io(doing, source);
        }
        let stop = Self::new(error.code(), error.to_string());
        match error.hint() {
            Some(hint) => stop.hint(hint),
            None => stop,
        }
    }
}
