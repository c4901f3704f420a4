//! The time of day.

use std::time::SystemTime;

/// Seconds since 1970.
pub fn now_unix_s() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}
