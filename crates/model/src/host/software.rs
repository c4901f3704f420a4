//! Other software that affects the path: programs that change settings, taps, connection tracking, sysctl files.

use serde::{Deserialize, Serialize};

use crate::known::Known;
use crate::units::Bytes;

/// Programs and kernel components that affect the path.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Software {
    /// Running programs that change settings by themselves.
    pub owners: Known<Vec<Owner>>,
    /// Packet taps: sockets that receive a copy of packets.
    pub taps: Known<Vec<Tap>>,
    /// Connection tracking; absent if the module is not loaded.
    pub conntrack: Known<Conntrack>,
    /// Every line of a sysctl file that sets a sysctl known to linerate, in the order in which they take effect (the
    /// last wins).
    pub sysctl_lines: Known<Vec<SysctlLine>>,
    /// The NFS mounts of this mount namespace, in the kernel's order.
    pub nfs_mounts: Known<Vec<NfsMount>>,
    /// Programs that wait in `accept` or hold established TCP connections, with their allowed CPUs. Read from the live
    /// machine only, never captured.
    pub socket_owners: Known<Vec<SocketOwner>>,
}

/// A program that changes settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Owner {
    /// `irqbalance`, `tuned`, `NetworkManager`, `systemd-networkd`, `lldpad`, `bpftune`, `cloud-agent` ...
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// Relevant details: TuneD's active profile, irqbalance's banned interrupts and CPUs ...
    pub detail: Option<String>,
    /// The source.
    pub path: String,
}

/// A packet socket (`/proc/net/packet`), or a handler of all protocols (`ptype`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tap {
    /// The interface (`index 9` if no visible interface has that index); null for all.
    pub nic: Option<String>,
    /// Its protocol; 3 is all (`ETH_P_ALL`).
    pub protocol: u32,
    /// The handler's name or the program, if known.
    pub name: String,
    /// The source.
    pub path: String,
}

/// Connection tracking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Conntrack {
    /// Tracked connections.
    pub count: Known<u64>,
    /// The maximum (`nf_conntrack_max`).
    pub max: Known<u64>,
    /// Buckets of the hash table.
    pub buckets: Known<u64>,
}

/// A line of a sysctl file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SysctlLine {
    /// The file.
    pub file: String,
    /// The line's number, from 1.
    pub line: u32,
    /// The sysctl's dotted name.
    pub name: String,
    /// The value that it sets.
    pub value: String,
}

/// A mounted NFS file system, with the options that the client negotiated (nfs(5)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NfsMount {
    /// Where it is mounted.
    pub name: String,
    /// The transport: `tcp`, `udp`, `rdma`, or with `6` for IPv6.
    pub protocol: Known<String>,
    /// The maximum size of a read request.
    pub rsize: Known<Bytes>,
    /// The maximum size of a write request.
    pub wsize: Known<Bytes>,
}

/// A program with busy sockets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SocketOwner {
    /// Its process.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// The CPUs on which it may run, in list form.
    pub cpus_allowed: Known<String>,
    /// The CPU on which it last ran.
    pub last_cpu: Known<u32>,
    /// Its memory pages on each node.
    pub node_pages: Known<Vec<(u32, u64)>>,
    /// The number of its connected sockets by interface (from their local addresses); empty for listeners only.
    pub connections: u32,
    /// Its threads.
    pub threads: Known<u32>,
}
