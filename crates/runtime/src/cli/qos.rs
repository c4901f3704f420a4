//! What people type after `qos`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use linerate_model::ids::NicName;
use linerate_model::peer_address::PeerAddress;
use linerate_model::units::Nanoseconds;

use super::measure::parse_percent;
use super::{PeerArgs, PersistArgs, StayArgs, StoreArgs, parse_nonzero_time};

/// `qos`.
#[derive(Debug, Subcommand)]
pub enum QosAction {
    /// Show what would be made, by which mechanism, and why by this one.
    Plan {
        /// The file of classes (TOML).
        file: PathBuf,
        /// A peer whose configuration is read, too: what conflicts with the file is named.
        ///
        /// As for other commands: `[user@]host` (ssh), `tls://host`, `netns:NAME`, `exec:COMMAND`.
        #[arg(value_name = "PEER")]
        peer: Option<PeerAddress>,
        /// Copy this program to the peer if the peer does not have this build.
        ///
        /// Over ssh only.
        #[arg(long, requires = "peer")]
        push: bool,
    },
    /// Make the VLANs, the limits and what selects the traffic; roll back unless confirmed in time.
    ///
    /// Makes only what differs. A VLAN of a class that is no longer in the file is removed if `apply` made it. `undo`
    /// restores everything as it was before.
    Apply(QosApplyArgs),
    /// Keep the changes that `apply` made, over a new connection.
    Confirm,
    /// Measure each class alone, all at once, and what each does to the others.
    ///
    /// Exits 0 if every limit holds, 11 if one does not, 12 if that cannot be judged.
    Verify(Box<QosVerifyArgs>),
    /// Show which files are applied, and whether the host still has what they ask for.
    Status,
    /// Apply the settings of the applied files at every boot, with automatic rollback.
    #[command(mut_arg("id", |id| id.help(
        "The transaction of an applied file, `t7` or its id, as `qos status` lists them [default: all]"
    )))]
    Persist(PersistArgs),
    /// Restore everything as it was before `apply`.
    Undo {
        /// The interface [default: all].
        #[arg(value_name = "IFACE")]
        interface: Option<NicName>,
    },
    /// Print a file of what an interface has now, also if linerate did not make it.
    Import {
        /// The interface.
        #[arg(value_name = "IFACE")]
        interface: NicName,
    },
}

/// `qos apply`.
#[derive(Debug, Args)]
pub struct QosApplyArgs {
    /// The file of classes (TOML).
    pub file: PathBuf,
    /// How the changes become permanent.
    #[command(flatten)]
    pub stay: StayArgs,
}

/// `qos verify`.
#[derive(Debug, Args)]
pub struct QosVerifyArgs {
    /// The file of classes (TOML).
    pub file: PathBuf,
    /// The peer that receives.
    #[command(flatten)]
    pub peer: PeerArgs,
    /// How far a rate may be from its limit.
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = parse_percent)]
    pub within: f64,
    /// Flows of each class.
    #[arg(long, short = 'P', value_name = "N", default_value = "16", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub flows: u32,
    /// Duration of a trial, after the burst allowance has passed.
    #[arg(long, short, value_name = "TIME", default_value = "2s", value_parser = parse_nonzero_time)]
    pub time: Nanoseconds,
    /// Number of rounds: each class alone, all at once, and each beside the others, in random order; six or more have
    /// intervals.
    #[arg(long, value_name = "N", default_value = "6", value_parser = clap::value_parser!(u32).range(3..=1000))]
    pub rounds: u32,
    /// Also from the peer to this host, whose own classes then hold.
    #[arg(long)]
    pub bidir: bool,
    /// Send datagrams in place of TCP.
    #[arg(long)]
    pub udp: bool,
    /// Send over RDMA verbs in place of TCP.
    ///
    /// A class's DSCP or priority is the traffic class of its queue pairs.
    #[arg(long, conflicts_with = "udp")]
    pub verbs: bool,
    /// Seed of the trial order [default: random, printed].
    #[arg(long)]
    pub seed: Option<u64>,
    /// Where the result is stored.
    #[command(flatten)]
    pub store: StoreArgs,
}
