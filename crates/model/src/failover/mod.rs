//! How long a failure interrupts traffic, and what held it up.
//!
//! `events` is what happened to one host's network while a trial ran (`linerate_host::events` records it), `phase` finds
//! from it which phase of a failover took the time.

pub mod events;
pub mod phase;
