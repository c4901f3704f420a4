//! One module per file or directory below `/proc` (proc(5); Documentation/filesystems/proc.rst). `parse_*` takes text
//! and does no I/O; `read_*` takes a root.

pub(crate) mod bonding;
pub mod connections;
pub(crate) mod conntrack;
pub(crate) mod conntrack_stat;
pub(crate) mod identity;
pub(crate) mod interrupts;
pub(crate) mod limits;
pub mod managers;
pub(crate) mod neighbors;
pub(crate) mod netstat;
pub(crate) mod nfs;
pub(crate) mod owners;
pub(crate) mod pressure;
pub(crate) mod process;
pub mod qdisc_kinds;
pub mod sockets;
pub(crate) mod softnet;
pub(crate) mod stat;
pub mod sysctls;
pub(crate) mod taps;
pub(crate) mod vlan;
pub(crate) mod vmstat;
