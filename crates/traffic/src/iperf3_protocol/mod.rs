//! iperf3's protocol without its connections: the messages of the control connection, as data (`wire`, `json`,
//! `parameters`, `results`), and their order (`talk`, state machines).
//!
//! The protocol has no version and no specification. What is here was observed with iperf3 3.12 to 3.21.
//! TCP data connections and the control connection use one port; a cookie shows which belong together.
//! UDP streams have no cookie: they are distinguished by their address and by which client may open some at that
//! time.

mod json;
mod parameters;
mod results;
mod talk;
mod wire;

pub use parameters::Parameters;
pub use results::{Omitted, Results, ServerResults, StreamResults, stream_id};
pub use talk::{ClientStep, ClientTalk, ServerTalk, TalkError};
pub use wire::{COOKIE_BYTES, Cookie, Frame, State};

/// Maximum number of streams of a test in one direction.
pub const STREAMS_MAX: u32 = 128;

/// What a client opens a UDP stream with.
pub(crate) const SALUTE: [u8; 4] = *b"9876";

/// What a server answers to it: today's, and the one of iperf3 before 3.13.
pub(crate) const REPLIES: [&[u8]; 2] = [b"6789", &987_654_321_u32.to_le_bytes()];
