//! The clock for confirmation deadlines and rollback (`CLOCK_BOOTTIME`, clock_gettime(2)).

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A timestamp of this boot; it continues in suspend and cannot be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Boottime(Duration);

impl Boottime {
    /// Now.
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        Self(Duration::new(
            u64::try_from(now.tv_sec).unwrap_or_default(),
            u32::try_from(now.tv_nsec).unwrap_or_default(),
        ))
    }

    /// This long after boot.
    pub fn after(time: Duration) -> Self {
        Self(time)
    }

    /// This much later.
    #[must_use]
    pub fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }

    /// This much earlier.
    #[must_use]
    pub fn before(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(time))
    }

    /// The time until then; zero if it is past.
    pub fn remaining(self) -> Duration {
        self.0.saturating_sub(Self::now().0)
    }

    /// The time since boot.
    pub fn since_boot(self) -> Duration {
        self.0
    }
}
