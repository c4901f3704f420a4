//! What people type after `tune`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use linerate_model::finding::Profile;
use linerate_model::ids::NicName;

use super::{SearchArgs, parse_role};
use crate::peer::PeerAddress;

/// `tune hold`.
#[derive(Debug, Args)]
pub struct HoldArgs {
    /// What is held: `measurement` is a steady clock (no turbo, the governor `performance`), CPUs that do not sleep,
    /// fixed interrupt delays, and an irqbalance that moves nothing.
    #[arg(long, default_value = "measurement", value_parser = parse_role, conflicts_with = "from")]
    pub role: Profile,
    /// Hold the settings of this plan file instead; `cpu/max-latency-us` may be among them.
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Also change what disturbs the interface that your ssh connection comes in by, for a moment.
    #[arg(long)]
    pub allow_management_disruption: bool,
    /// The command, after `--`; without one, settings are held until Ctrl-C.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Where a plan comes from.
#[derive(Debug, Args)]
pub struct WantedArgs {
    /// A plan file, a TOML table `[settings]` of `"key" = value`; or what `doctor --format json` printed, for its
    /// remedies [default: the remedies of this host's findings].
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// What the host is for, when its findings are asked; `measurement` is also what `tune hold` holds.
    #[arg(long, default_value = "throughput", value_parser = parse_role, conflicts_with = "from")]
    pub role: Profile,
}

/// How changes come to stay.
#[derive(Debug, Args)]
pub struct StayArgs {
    /// When everything is taken back unless it was confirmed, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(2..=86_400))]
    pub deadline: u32,
    /// Confirm by new TCP connections to these addresses, which must be reachable before and after.
    #[arg(long, value_name = "HOST:PORT")]
    pub probe: Vec<String>,
    /// Let the changes stay at once, without a confirmation.
    #[arg(long, conflicts_with = "probe")]
    pub no_confirm: bool,
    /// Also change what disturbs the interface that your ssh connection comes in by, for a moment.
    #[arg(long)]
    pub allow_management_disruption: bool,
    /// Keep the changes too, as `tune persist` does: every boot makes them again.
    #[arg(long)]
    pub persist: bool,
}

impl StayArgs {
    /// Without a confirmation, and with nothing done to the way in.
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

/// What is kept, and how.
#[derive(Debug, Args)]
pub struct PersistArgs {
    /// The transaction [default: the newest that is applied; with `--remove`, all].
    pub id: Option<String>,
    /// Keep it no longer. What it changed stays until the next boot; `undo` takes that back too.
    #[arg(long, conflicts_with_all = ["probe", "deadline", "etc"])]
    pub remove: bool,
    /// New TCP connections to these addresses must lead there after a boot's changes, if they do before.
    #[arg(long, value_name = "HOST:PORT")]
    pub probe: Vec<String>,
    /// When a boot takes everything back that it has not found good, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(5..=86_400))]
    pub deadline: u32,
    /// Where the script and the unit go, for an image of another machine.
    #[arg(long, value_name = "DIR", default_value = "/etc")]
    pub etc: PathBuf,
}

impl PersistArgs {
    /// As it is kept when nothing else is said.
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
    /// How the changes come to stay.
    #[command(flatten)]
    pub stay: StayArgs,
    /// Weigh each change with this peer, in pairs of trials with and without it, and keep only what makes the
    /// path faster and nothing else worse. `linerate prove PEER --from FILE` is the same with more options.
    #[arg(long, value_name = "PEER", conflicts_with_all = ["no_confirm", "probe", "deadline", "persist"])]
    pub prove: Option<PeerAddress>,
    /// Change this host and the peer (`[peer.settings]`) together: both keep the changes, or neither. They are
    /// confirmed by a new connection to the peer, and bytes that arrive in both directions.
    #[arg(long, value_name = "PEER", requires = "from", conflicts_with_all = ["prove", "no_confirm", "probe", "persist"])]
    pub peer: Option<PeerAddress>,
}

/// `tune`.
#[derive(Debug, Subcommand)]
pub enum TuneAction {
    /// Show what would change, why, what it may disturb, and who else changes it.
    Plan {
        /// Where the plan comes from.
        #[command(flatten)]
        wanted: WantedArgs,
    },
    /// Change it, and take it back unless it is confirmed in time; `undo` takes it back later.
    Apply(ApplyArgs),
    /// Look for settings of both ends that make the path faster, and keep those whose worth is shown.
    ///
    /// The path itself is asked, not the rules: what may be changed without dropping a link is tried, first many
    /// settings at once, then what is promising, and what is found is weighed in pairs of trials.
    Search(Box<SearchArgs>),
    /// Hold settings for as long as a command runs, and take them back however it ends; the exit code is the
    /// command's.
    Hold(HoldArgs),
    /// Let what `apply` changed stay. Changes made over ssh are confirmed over a new ssh connection.
    Confirm {
        /// The transaction [default: the newest that waits].
        id: Option<String>,
    },
    /// Spread an interface's interrupts over the CPUs close to it, each on one of its own; `undo` takes it back.
    Affinity {
        /// The interface.
        #[arg(value_name = "IFACE")]
        nic: NicName,
        /// Show what would change, and change nothing.
        #[arg(long)]
        dry_run: bool,
        /// Keep it too: every boot does it again.
        #[arg(long, conflicts_with = "dry_run")]
        persist: bool,
    },
    /// Keep what was applied: every boot makes the changes again, and takes them back if the machine is worse off
    /// with them. `undo` takes them back for good.
    Persist(PersistArgs),
    /// Make again what is kept, guarded; what a boot runs.
    Boot,
    /// Take back what was applied, or what waits to be confirmed.
    Undo {
        /// The transaction [default: the newest that is applied].
        id: Option<String>,
        /// The peer that has the other half of a change of two hosts. Only an `exec:` peer needs it: a command is not
        /// started because a file names it.
        #[arg(long, value_name = "PEER")]
        peer: Option<PeerAddress>,
    },
    /// Complete what a killed linerate left half done.
    Recover {
        /// The peer that has the other half of a change of two hosts. Only an `exec:` peer needs it: a command is not
        /// started because a file names it.
        #[arg(long, value_name = "PEER")]
        peer: Option<PeerAddress>,
    },
    /// Show the transactions.
    Status,
}
