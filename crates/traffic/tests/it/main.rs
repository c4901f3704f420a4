//! The traffic crate seen from outside: real connections over the loopback, real strangers, peers that
//! misbehave, and the simulated path held against its own truth.

mod hostile;
mod scene;
mod simulated;
mod strangers;
mod stream;
