//! The other end is iperf3: this one measures as a client of its server ([`measure`]), or serves its
//! clients, many at once ([`Iperf3Server`]).
//!
//! ```text
//! wire, json, parameters, results   what goes over the control connection, as data
//! talk                              in which order, as a state machine without connections
//! line                              the control connection, with its time limits
//! mover, datagram                   what the data threads do, on the engine of `trial`
//! client; door, desk, session, server   the two ends
//! ```
//!
//! The protocol has no version and no document. What stands here was seen of iperf3 3.12 to 3.21.
//! TCP data connections and the control connection go to one port; a cookie says which belong together.
//! UDP streams have no cookie: they are told apart by their address and by who may open some at that
//! moment.

mod client;
mod datagram;
mod desk;
mod door;
mod json;
mod line;
mod mover;
mod parameters;
mod reading;
mod results;
mod server;
mod session;
mod sides;
mod talk;
mod wire;

pub use client::{Connection, Foreign, measure};
pub use datagram::{Account, Header};
pub use parameters::Parameters;
pub use reading::{DatagramReading, Reading};
pub use results::{Omitted, Results, ServerResults, StreamResults, stream_id};
pub use server::Iperf3Server;
pub use session::Finished;
pub use sides::bytes_at;
pub use talk::{ClientStep, ClientTalk, ServerTalk, TalkError};
pub use wire::{COOKIE_BYTES, Cookie, Frame, State};

/// The most streams of a test in one direction.
pub const STREAMS_MAX: u32 = 128;

/// The port of an iperf3 server when none is said.
pub const PORT: u16 = 5201;

/// What a client opens a UDP stream with.
const SALUTE: [u8; 4] = *b"9876";

/// What a server answers to it: today's, and the one of iperf3 before 3.13.
const REPLIES: [&[u8]; 2] = [b"6789", &987_654_321_u32.to_le_bytes()];
