//! The traffic crate from outside: real connections over loopback, unrelated clients, peers that
//! misbehave, and the simulated path compared with its own truth.

#![expect(
    clippy::print_stderr,
    reason = "a test that cannot run reports it where the runner counts it"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "a test may look at the kernel behind the engine"
)]

mod both_ends;
mod diffusion;
mod exchange;
mod exchange_by_hand;
mod hostile;
mod http;
mod http_client;
mod http_server;
mod http_tools;
mod iperf3;
mod iperf3_hostile;
mod iperf3_real;
mod probe;
mod select;
mod simulated;
mod strangers;
mod stream;
mod stream_checked;
mod stream_crowd;
mod stream_hostile;
mod stream_modes;
mod udp;
mod udp_hostile;
