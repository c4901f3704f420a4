//! rdma.
use crate::TrafficError;
use crate::trial::{Found, Seat};
pub(crate) fn work(_: &mut Seat<'_>) -> Result<Option<Found>, TrafficError> {
    Err(TrafficError::NotBuilt)
}
