//! The two ends of a path, and the path between them.
//!
//! `local` is one end's own machine, used by the session here and by the agent there: it reads the host, runs a side of a
//! trial (`record`) on the CPUs that `place` chose, and changes settings. `transactions` lists and rolls back what is applied. `guard` starts the process that rolls back changes
//! (`reverter`) before the first one, `fallback_timer` a timer of systemd beside it. `agent` and `peer` are the two ends of
//! the control channel, `trial` a path with both ends; `ends` is the seam between a session and them, `why` finds out over
//! it by short trials what limits a path. `listen` is an agent that is not started but
//! called, `launch` joins processes that a launcher has started, `lease` changes two hosts, `recover` rolls back what an earlier process left. `stage` makes two hosts of one's own, `host_source` reads this
//! host or a capture, `watch` passes on what a running trial has done, `nics` opens a path over each of several interfaces,
//! `conductor` runs the commands of a failure in a trial, `kept` keeps its record until the other end has it,
//! `together` runs trials over them at once, `remote_pairs` runs trials between hosts that are both remote, `iperf3` is the other end of an iperf3 test.

pub mod agent;
pub mod conductor;
pub mod crash;
pub mod ends;
mod fallback_timer;
pub mod guard;
pub mod host_source;
pub mod iperf3;
mod kept;
pub mod launch;
pub mod lease;
pub mod listen;
pub mod local;
pub mod nics;
pub mod one_host;
pub mod peer;
pub mod place;
pub mod record;
pub mod recover;
pub mod remote_pairs;
pub mod reverter;
pub mod stage;
pub mod together;
pub mod transactions;
pub mod trial;
pub mod watch;
pub mod why;
