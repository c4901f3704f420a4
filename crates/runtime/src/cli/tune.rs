//! What people type after `tune`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use linerate_model::finding::Profile;
use linerate_model::ids::NicName;
use linerate_model::peer_address::PeerAddress;

use super::{SearchArgs, parse_role, parse_whole_seconds};

/// `tune hold`.
#[derive(Debug, Args)]
pub struct HoldArgs {
    /// Settings to hold: `measurement` sets the `performance` governor, no turbo, no deep C-states, fixed interrupt
    /// coalescing, and pauses irqbalance.
    #[arg(long, default_value = "measurement", value_parser = parse_role, conflicts_with = "from")]
    pub role: Profile,
    /// Hold the settings of this plan file instead; may include `cpu/max-latency-us`. Or `stack-base`, with `--nic`.
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// The interface of a plan that comes with linerate.
    #[arg(long, value_name = "IFACE", requires = "from")]
    pub nic: Option<NicName>,
    /// Allow brief disruption of your SSH interface.
    #[arg(long)]
    pub allow_management_disruption: bool,
    /// The command, after `--`; without one, holds the settings until Ctrl-C.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Where a plan comes from.
#[derive(Debug, Args)]
pub struct WantedArgs {
    /// A plan file (TOML table `[settings]` of `"key" = value`), the output of `doctor --format json`, or
    /// `stack-base`: fixed clock, no interrupt coalescing, one queue (with `--nic`) [default: the fixes for this host's
    /// findings].
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Role of the host, for its findings; `measurement` adds the settings of `tune hold`.
    #[arg(long, default_value = "throughput", value_parser = parse_role, conflicts_with = "from")]
    pub role: Profile,
    /// The interface of a plan that comes with linerate.
    #[arg(long, value_name = "IFACE", requires = "from")]
    pub nic: Option<NicName>,
}

/// How changes become permanent.
#[derive(Debug, Args)]
pub struct StayArgs {
    /// Time until unconfirmed changes are rolled back.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = |text: &str| parse_whole_seconds(text, 2..=86_400))]
    pub deadline: u32,
    /// Confirm by new TCP connections to these addresses; they must be reachable before and after.
    #[arg(long, value_name = "HOST:PORT")]
    pub probe: Vec<String>,
    /// Keep the changes without confirmation.
    #[arg(long, conflicts_with = "probe")]
    pub no_confirm: bool,
    /// Allow brief disruption of your SSH interface.
    #[arg(long)]
    pub allow_management_disruption: bool,
    /// Also make the changes persistent across reboots, as `tune persist` does.
    #[arg(long)]
    pub persist: bool,
}

impl StayArgs {
    /// Without confirmation; protects the management path.
    pub fn at_once() -> Self {
        Self {
            deadline: 60,
            probe: Vec::new(),
            no_confirm: true,
            allow_management_disruption: false,
            persist: false,
        }
    }
}

/// What is made persistent, and how.
#[derive(Debug, Clone, Args)]
pub struct PersistArgs {
    /// The transaction, `t7` or its id [default: the newest applied one; with `--remove`, all].
    pub id: Option<String>,
    /// Stop applying it at boot. The current settings remain until the next boot; `undo` also restores them.
    #[arg(long, conflicts_with_all = ["probe", "deadline", "etc"])]
    pub remove: bool,
    /// At boot, roll back if these addresses accept TCP connections before the changes but not after.
    #[arg(long, value_name = "HOST:PORT")]
    pub probe: Vec<String>,
    /// Time after which a boot rolls back changes that were not verified.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = |text: &str| parse_whole_seconds(text, 5..=86_400))]
    pub deadline: u32,
    /// Directory for the script and the unit, to prepare an image of another machine.
    #[arg(long, value_name = "DIR", default_value = "/etc")]
    pub etc: PathBuf,
}

impl PersistArgs {
    /// The defaults for this transaction.
    pub fn of(id: String) -> Self {
        Self {
            id: Some(id),
            remove: false,
            probe: Vec::new(),
            deadline: 60,
            etc: PathBuf::from("/etc"),
        }
    }
}

/// `tune apply`.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// Where the plan comes from.
    #[command(flatten)]
    pub wanted: WantedArgs,
    /// How the changes become permanent.
    #[command(flatten)]
    pub stay: StayArgs,
    /// Test each change against this peer in a randomized experiment; keep only changes that improve the path without
    /// regressions. `linerate prove PEER --from FILE` has more options.
    #[arg(long, value_name = "PEER", conflicts_with_all = ["no_confirm", "probe", "deadline", "persist"])]
    pub prove: Option<PeerAddress>,
    /// Change this host and the peer (`[peer.settings]`) atomically: both keep the changes or neither. Confirms by a
    /// new connection to the peer with data in both directions.
    #[arg(long, value_name = "PEER", requires = "from", conflicts_with_all = ["prove", "no_confirm", "probe", "persist"])]
    pub peer: Option<PeerAddress>,
}

/// `tune`.
#[derive(Debug, Subcommand)]
pub enum TuneAction {
    /// Show what would change, why, what it may disrupt, and which other tools manage it.
    Plan {
        /// Where the plan comes from.
        #[command(flatten)]
        wanted: WantedArgs,
    },
    /// Apply changes; roll them back unless confirmed in time. `undo` restores them later.
    Apply(ApplyArgs),
    /// Search for settings of both ends that make the path faster; keep those proven to help.
    ///
    /// Measures instead of using rules: tries every setting that can change without dropping the link. Screens many
    /// settings at once, follows up the promising ones, and tests the result like `prove`.
    Search(Box<SearchArgs>),
    /// Hold settings while a command runs and restore them however it ends; exits with the command's exit code.
    Hold(HoldArgs),
    /// Keep the changes that `apply` made. Changes made over ssh must be confirmed over a new ssh connection.
    Confirm {
        /// The transaction, `t7` or its id [default: the newest unconfirmed one].
        id: Option<String>,
    },
    /// Pin each interrupt of an interface to its own CPU on the NIC's NUMA node. `undo` restores the affinity.
    Affinity {
        /// The interface.
        #[arg(value_name = "IFACE")]
        nic: NicName,
        /// Show what would change, without changing it.
        #[arg(long)]
        dry_run: bool,
        /// Also make it persistent across reboots.
        #[arg(long, conflicts_with = "dry_run")]
        persist: bool,
    },
    /// Make applied changes persistent across reboots, with automatic rollback if a boot with them is not healthy.
    /// `undo` removes them for good.
    Persist(PersistArgs),
    /// Apply the persistent changes with automatic rollback; run by the boot unit.
    Boot,
    /// Roll back applied or unconfirmed changes.
    Undo {
        /// The transaction, `t7` or its id [default: the newest applied one].
        id: Option<String>,
        /// The other host of a two-host change. Required only for `exec:` peers: commands from stored files are never
        /// executed.
        #[arg(long, value_name = "PEER")]
        peer: Option<PeerAddress>,
    },
    /// Recover changes that a killed linerate left incomplete.
    Recover {
        /// The other host of a two-host change. Required only for `exec:` peers: commands from stored files are never
        /// executed.
        #[arg(long, value_name = "PEER")]
        peer: Option<PeerAddress>,
    },
    /// List the transactions.
    Status,
}
