//! Two hosts on one machine: network namespaces that live only as long as the process that made them.
//!
//! A [`Stage`] is a child process with its own mount namespace (and, for an ordinary user, a user namespace). The
//! namespaces it creates are named in `/run/netns` of that mount namespace only, so `ip netns` and the peer
//! `netns:NAME` see them inside the stage, they are invisible outside, and they end with the stage's last process.
//! Every process is tied to its parent by a death signal (`PR_SET_PDEATHSIG`, prctl(2)): killing the first, even with
//! SIGKILL, ends them all. There is nothing to clean up later.
//!
//! ```no_run
//! use std::process::Command;
//!
//! // In the program that the user started: run it again as the stage.
//! let mut stage = Command::new(std::env::current_exe()?);
//! stage.arg("stage");
//! linerate_testbed::tie_to_parent(&mut stage);
//! stage.status()?;
//!
//! // At the start of that child, while it has one thread:
//! let stage = linerate_testbed::Stage::enter()?;
//! let near = stage.add_host("near")?;
//! let mut child = Command::new("ip");
//! near.enter_in_child(&mut child)?;
//! child.args(["link", "show"]).status()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod link;
pub mod mesh;
pub mod netns;
pub mod redundant;
mod relay;
mod shown;
mod stage;
#[expect(
    unsafe_code,
    reason = "namespaces, mounts and hooks between fork and exec"
)]
mod sys;

pub use error::{Obstacle, StageError};
pub use link::{LinkEnd, TunnelEnd, join, tunnel};
pub use netns::{Netns, NetnsError};
pub use relay::{Counts, Impairment, Relay, RelayOptions};
pub use shown::without_counters;
pub use stage::{Stage, pin_like, shield_from_interrupts, tie_to_parent};
