//! The traffic crate seen from outside: real connections over the loopback, real strangers, peers that
//! misbehave, and the simulated path held against its own truth.

#![expect(
    clippy::disallowed_methods,
    reason = "a test may look at the kernel behind the engine"
)]

mod hostile;
mod http;
mod http_client;
mod http_server;
mod http_tools;
mod scene;
mod simulated;
mod strangers;
mod stream;
