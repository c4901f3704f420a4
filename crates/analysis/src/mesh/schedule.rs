//! The schedule of a mesh, in the random order that a seed determines.

use linerate_model::mesh::{MeshHost, Pattern, PatternError, Schedule, ScheduleOptions, schedule};
use linerate_stats::{Random, Seed};

/// The rounds of a pattern for these hosts.
pub fn mesh_schedule(
    pattern: &Pattern,
    hosts: &[MeshHost],
    options: &ScheduleOptions,
    seed: Seed,
) -> Result<Schedule, PatternError> {
    let mut random = Random::new(seed);
    schedule(pattern, hosts, options, &mut |all| random.shuffle(all))
}
