//! The other end is iperf3: this one measures as a client of its server ([`measure`]), or serves its
//! clients, many at once ([`Iperf3Server`]).
//!
//! ```text
//! iperf3_protocol                       the messages of the control connection, as data
//! line                                  the control connection, with its time limits
//! mover, datagram                       what the data threads do, on the engine of `trial`
//! client; door, desk, session, server   the two ends
//! ```

mod client;
mod datagram;
mod desk;
mod door;
mod line;
mod mover;
mod reading;
mod server;
mod session;
mod sides;

pub use client::{Connection, Foreign, measure};
pub use datagram::{Account, Header};
pub use reading::{DatagramReading, Reading};
pub use server::Iperf3Server;
pub use session::Finished;
pub use sides::bytes_at;

/// The default port of an iperf3 server.
pub const PORT: u16 = 5201;
