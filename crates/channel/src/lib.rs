//! The control channel to an agent that listens: encrypted and mutually authenticated, over one TCP port.
//!
//! A host has one Ed25519 key (`identity`), and lists of the keys that it knows (`keys`): of agents that it may call, and of
//! hosts that may call it. A pairing line puts each into the other's list once; from then on both ends authenticate by
//! their keys alone (`tls`: TLS 1.3 with raw public keys, RFC 7250). `client` calls, `listen` answers. What follows are
//! `frame`s, which `pump` passes on to the standard streams of a process: at the far end `linerate agent --stdio`, at the
//! near end what ssh would be. Data connections arrive at the same port, and `passing` hands them to the process whose
//! trial they belong to.

#![forbid(unsafe_code)]

pub mod client;
pub mod error;
pub mod frame;
pub mod identity;
pub mod keys;
pub mod listen;
pub mod network;
pub mod passing;
mod pump;
mod session;
mod socket;
mod tls;

pub use error::ChannelError;
