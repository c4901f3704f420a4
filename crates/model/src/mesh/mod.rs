//! A mesh: N hosts that measure each other, to find the one that is slow. `hosts` is who takes part, `pattern` which of
//! them measure with each other, `schedule` the rounds of that (`matching` the pairs of a round), `observation` what comes
//! out of each flow. `linerate_analysis::mesh` judges it.

mod hosts;
mod matching;
mod observation;
mod pattern;
mod schedule;

pub use hosts::{
    Group, GroupKind, HOSTS_MAX, HostIndex, HostsError, HostsFile, ListedHost, MeshHost,
    WrittenHost, hosts_of_lines, hosts_of_peers,
};
pub use observation::{Failure, HostState, Observation, Outcome, Retransmits, Stage};
pub use pattern::{Incast, PAIRS_MAX, Pattern, PatternError, Retest, Step};
pub use schedule::{Flow, Role, Round, Schedule, ScheduleOptions, Shuffle, schedule};

#[cfg(test)]
mod tests;
