//! Workloads of messages to and fro: `rr`, `pingpong`, `transfer`.

use crate::TrafficError;
use crate::trial::{Found, Seat};

/// What runs on each data thread.
pub(crate) fn work(_seat: &mut Seat<'_>) -> Result<Option<Found>, TrafficError> {
    Err(TrafficError::NotBuilt)
}
