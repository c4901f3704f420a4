//! What else on the host touches the path: programs that change settings, taps, connection tracking,
//! the files that set sysctls.

use serde::{Deserialize, Serialize};

use crate::known::Known;

/// Programs and kernel parts on the way.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Software {
    /// Programs that change settings by themselves and are running.
    pub owners: Known<Vec<Owner>>,
    /// Sockets that take a copy of packets.
    pub taps: Known<Vec<Tap>>,
    /// Connection tracking; absent when the module is not loaded.
    pub conntrack: Known<Conntrack>,
    /// Every line of a file that sets a sysctl which linerate speaks of, in the order in which they take
    /// effect (the last wins).
    pub sysctl_lines: Known<Vec<SysctlLine>>,
    /// Programs that wait in `accept` or hold established TCP connections, with where they may run. Asked
    /// of the live machine only, never captured.
    pub socket_owners: Known<Vec<SocketOwner>>,
}

/// A program that changes settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// `irqbalance`, `tuned`, `NetworkManager`, `systemd-networkd`, `lldpad`, `bpftune`, `cloud-agent` ...
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// What of it matters: tuned's active profile, irqbalance's banned interrupts and CPUs ...
    pub detail: Option<String>,
    /// Where that was seen.
    pub path: String,
}

/// A socket that takes a copy of packets (`/proc/net/packet`), or a handler of all protocols (`ptype`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tap {
    /// The interface (`index 9` when none that is seen has that index); none for all.
    pub nic: Option<String>,
    /// The protocol it takes; 3 is all.
    pub protocol: u32,
    /// The handler's name or the program, as far as it is known.
    pub name: String,
    /// Where it was seen.
    pub path: String,
}

/// Connection tracking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conntrack {
    /// Connections tracked.
    pub count: Known<u64>,
    /// How many there may be.
    pub max: Known<u64>,
    /// Buckets of its table.
    pub buckets: Known<u64>,
}

/// A line of a sysctl file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SysctlLine {
    /// The file.
    pub file: String,
    /// The line's number, from 1.
    pub line: u32,
    /// The sysctl's dotted name.
    pub name: String,
    /// What it sets.
    pub value: String,
}

/// A program with busy sockets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketOwner {
    /// Its process.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// The CPUs on which it may run, in list form.
    pub cpus_allowed: Known<String>,
    /// The CPU on which it last ran.
    pub last_cpu: Known<u32>,
    /// Its pages on each node.
    pub node_pages: Known<Vec<(u32, u64)>>,
    /// How many of its sockets carry data by which interface's addresses; empty for listeners only.
    pub connections: u32,
    /// Its threads.
    pub threads: Known<u32>,
}
