//! How long traffic is interrupted when a link, a switch or a router fails, and what held it up: what the two ends of a
//! probe flow record (`record`, made by `recorder` as packets arrive), the outages of one flow (`outage`), those of all
//! flows together (`joined`), and what repeated failures show (`repeated`). `command` is what causes a
//! failure and ends it. `events` is what happened to one host's network
//! meanwhile (`linerate_host::events` records it), `phase` finds from it which phase of a failover took the time.
//!
//! An outage is a run of numbers that were lost or late, bounded by send times: from the last packet before it that
//! arrived on time to the first one after it. A pause between two arrivals without a lost or late packet is a stall of
//! one of the hosts, and no outage.

mod command;
pub mod events;
mod joined;
mod outage;
pub mod phase;
mod record;
mod recorder;
mod repeated;

pub(crate) use command::COMMANDS_MAX;
pub use command::{
    COMMAND_BYTES_MAX, COMMAND_OUTPUT_MAX, COMMAND_TIME_MAX, CommandEnd, CommandRun, TrialCommands,
};
pub use joined::{
    Cluster, FlowOutages, Joined, Trigger, TriggerTimes, interrupted_at_once, joined,
};
pub use outage::{Outage, outages};
pub use record::{
    Arrivals, Backoff, Departures, ERRORS_MAX, NumberRun, PATH_MTUS_MAX, PathMtu, ProbeRecord,
    RUNS_MAX, RunKind, SendError, SendGap, Stall, Stamp, TRANSITS_MAX, TcpTrack, Transit,
};
pub use recorder::{Fate, Recorder};
pub use repeated::{Repeated, repeated, share_at_least};

#[cfg(test)]
mod tests;
