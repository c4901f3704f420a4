//! What every command stands on.
//!
//! Each folder is a room, and a room knows only those below it: `endpoint` · `cli` · `console`. `cli` parses the request,
//! `console` talks to the terminal, and `endpoint` has the two ends of a path: in practice an
//! [`endpoint::trial::PeerPath`] from the machine here to an agent there. The commands themselves are `linerate`'s.

#![forbid(unsafe_code)]

pub mod cli;
pub mod console;
pub mod endpoint;
