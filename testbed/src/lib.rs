//! Two hosts on one machine: network namespaces that live only as long as the process that made them.
//!
//! A [`Stage`] is a child process with a mount table (and, for an ordinary user, a user namespace) of
//! its own. The namespaces it makes are named in `/run/netns` of that mount table alone, so `ip netns`
//! and the peer `netns:NAME` see them inside the stage, nobody sees them outside, and they vanish with
//! the stage's last process. Every process is tied to the one that started it by a death signal
//! (`PR_SET_PDEATHSIG`, prctl(2)): killing the first, also by SIGKILL, ends them all. There is
//! nothing for a later run to clean up.
//!
//! ```no_run
//! use std::process::Command;
//!
//! // In the program that the user started: run yourself again as the stage.
//! let mut stage = Command::new(std::env::current_exe()?);
//! stage.arg("stage");
//! linerate_testbed::tie_to_parent(&mut stage);
//! stage.status()?;
//!
//! // In that child, first thing, while it has one thread:
//! let stage = linerate_testbed::Stage::enter()?;
//! let near = stage.add_host("near")?;
//! let mut child = Command::new("ip");
//! near.enter_in_child(&mut child)?;
//! child.args(["link", "show"]).status()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod link;
pub mod netns;
mod relay;
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
pub use stage::{Stage, pin_like, shield_from_interrupts, tie_to_parent};
