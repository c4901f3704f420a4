//! iperf3's protocol without its connections: what goes over the control connection, as data (`wire`, `json`,
//! `parameters`, `results`), and in which order (`talk`, state machines).
//!
//! The protocol has no version and no document. What stands here was seen of iperf3 3.12 to 3.21.
//! TCP data connections and the control connection go to one port; a cookie says which belong together.
//! UDP streams have no cookie: they are distinguished by their address and by who may open some at that
//! moment.

mod json;
mod parameters;
mod results;
mod talk;
mod wire;

pub use parameters::Parameters;
pub use results::{Omitted, Results, ServerResults, StreamResults, stream_id};
pub use talk::{ClientStep, ClientTalk, ServerTalk, TalkError};
pub use wire::{COOKIE_BYTES, Cookie, Frame, State};

/// The most streams of a test in one direction.
pub const STREAMS_MAX: u32 = 128;

/// What a client opens a UDP stream with.
pub(crate) const SALUTE: [u8; 4] = *b"9876";

/// What a server answers to it: today's, and the one of iperf3 before 3.13.
pub(crate) const REPLIES: [&[u8]; 2] = [b"6789", &987_654_321_u32.to_le_bytes()];
