//! A redundant network as data: its nodes, the commands of ip(8) that connect them, the daemons with their
//! configuration, what must hold before it is ready, and the faults that it offers. A pure function of the
//! specification and the folder, so that a later process knows the same network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::program::{IP, Program};
use super::spec::Spec;
use super::{active_backup, ecmp, magp, mlag, vrrp};

/// The prefix of every namespace.
pub(super) const CLIENT: &str = "lr-client";
pub(super) const SERVER: &str = "lr-server";
pub(super) const R1: &str = "lr-r1";
pub(super) const R2: &str = "lr-r2";

/// The two ends of the network. The addresses are private ones (RFC 1918, RFC 4193) in namespaces that no other network
/// reaches.
pub(super) const CLIENT_V4: Ipv4Addr = Ipv4Addr::new(10, 205, 1, 10);
pub(super) const CLIENT_V6: Ipv6Addr = Ipv6Addr::new(0xfd05, 0x205, 1, 0, 0, 0, 0, 0x10);

/// A network namespace of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Node {
    /// The namespace.
    pub namespace: &'static str,
    /// What it is in the network.
    pub role: &'static str,
    #[serde(skip)]
    pub(super) is_router: bool,
}

impl Node {
    pub(super) const fn host(namespace: &'static str, role: &'static str) -> Self {
        Self {
            namespace,
            role,
            is_router: false,
        }
    }

    pub(super) const fn router(namespace: &'static str, role: &'static str) -> Self {
        Self {
            namespace,
            role,
            is_router: true,
        }
    }
}

/// A fault that can be injected by a command and ended by another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fault {
    /// Its name.
    pub name: &'static str,
    /// What happens.
    pub about: &'static str,
    /// The command that injects it.
    #[serde(rename = "do")]
    pub inject: String,
    /// The command that ends it.
    pub restore: String,
    /// The Debian package without which the commands fail; null if they can run.
    pub missing: Option<&'static str>,
}

impl Fault {
    pub(super) fn new(
        name: &'static str,
        about: &'static str,
        inject: impl Into<String>,
        restore: impl Into<String>,
    ) -> Self {
        Self {
            name,
            about,
            inject: inject.into(),
            restore: restore.into(),
            missing: None,
        }
    }

    pub(super) fn with(mut self, program: &'static Program) -> Self {
        self.missing = (!program.is_there()).then_some(program.package);
        self
    }

    /// An interface set down, and up again.
    pub(super) fn down(
        name: &'static str,
        about: &'static str,
        interfaces: &[(&str, &str)],
    ) -> Self {
        let set = |state: &str| {
            let each = interfaces
                .iter()
                .map(|(node, nic)| format!("ip -n {node} link set {nic} {state}"));
            each.collect::<Vec<_>>().join(" && ")
        };
        Self::new(name, about, set("down"), set("up"))
    }
}

/// Commands of ip(8) in one namespace.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) node: &'static str,
    /// Its file in the folder, for a user who reads or repeats it.
    pub(super) file: String,
    pub(super) lines: Vec<String>,
}

/// A file of a daemon.
#[derive(Debug)]
pub(super) struct ConfigFile {
    /// Its path in the folder.
    pub(super) path: String,
    pub(super) text: String,
}

/// A program that runs as long as the network.
#[derive(Debug)]
pub(super) struct Daemon {
    pub(super) node: &'static str,
    pub(super) program: &'static Program,
    pub(super) arguments: Vec<String>,
    pub(super) environment: Vec<(&'static str, String)>,
    /// The directory that shows the node's folder, if the daemon needs one.
    pub(super) covers: Option<&'static str>,
    /// The file, in the node's folder, that appears when it accepts requests.
    pub(super) listens: Option<&'static str>,
}

impl Daemon {
    pub(super) fn new(node: &'static str, program: &'static Program) -> Self {
        Self {
            node,
            program,
            arguments: Vec::new(),
            environment: Vec::new(),
            covers: None,
            listens: None,
        }
    }

    /// Its name in messages and in the names of its files.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.node, self.program.name)
    }

    pub(super) fn log(&self) -> String {
        format!("{}.log", self.name())
    }

    pub(super) fn identity(&self) -> String {
        format!("{}.process", self.name())
    }
}

/// A program that is run to its end.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) node: Option<&'static str>,
    pub(super) program: &'static Program,
    pub(super) arguments: Vec<String>,
}

/// What must hold before a network is ready.
#[derive(Debug)]
pub(super) enum Condition {
    /// An interface has an address.
    Address {
        node: &'static str,
        nic: &'static str,
        address: IpAddr,
    },
    /// A route has as many usable next hops.
    NextHops {
        node: &'static str,
        to: IpAddr,
        prefix: u8,
        count: usize,
    },
    /// A bond aggregates as many ports.
    BondPorts {
        node: &'static str,
        bond: &'static str,
        count: usize,
    },
    /// A bond uses a member.
    ActiveMember {
        node: &'static str,
        bond: &'static str,
        member: &'static str,
    },
    /// A member of an Open vSwitch bond has a LACP partner.
    Member {
        database: String,
        interface: &'static str,
    },
}

/// A network.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) nodes: Vec<Node>,
    pub(super) programs: Vec<&'static Program>,
    pub(super) batches: Vec<Batch>,
    pub(super) files: Vec<ConfigFile>,
    /// Run before the daemons.
    pub(super) prepare: Vec<Call>,
    pub(super) daemons: Vec<Daemon>,
    /// Run when the daemons accept requests.
    pub(super) configure: Vec<Call>,
    pub(super) conditions: Vec<Condition>,
    pub(super) faults: Vec<Fault>,
    /// The server's addresses.
    pub(super) server: Option<(Ipv4Addr, Ipv6Addr)>,
}

impl Plan {
    pub(super) fn of(spec: &Spec, folder: &Path) -> Self {
        let mut plan = Self {
            programs: vec![&IP],
            ..Self::default()
        };
        match spec {
            Spec::Vrrp { advert_ms } => vrrp::lay_out(&mut plan, *advert_ms, folder),
            Spec::Ecmp {
                igp,
                bfd_ms,
                resilient,
            } => ecmp::lay_out(&mut plan, *igp, *bfd_ms, *resilient, folder),
            Spec::Magp => magp::lay_out(&mut plan),
            Spec::ActiveBackup { miimon_ms } => active_backup::lay_out(&mut plan, *miimon_ms),
            Spec::Mlag { lag, lacp_rate } => mlag::lay_out(&mut plan, *lag, *lacp_rate, folder),
        }
        for daemon in &plan.daemons {
            plan.programs.push(daemon.program);
        }
        for call in plan.prepare.iter().chain(&plan.configure) {
            plan.programs.push(call.program);
        }
        plan.programs.sort_by_key(|program| program.name);
        plan.programs.dedup();
        plan
    }

    /// Adds commands in a namespace.
    pub(super) fn batch<L: Into<String>>(
        &mut self,
        node: &'static str,
        lines: impl IntoIterator<Item = L>,
    ) {
        let number = self.batches.len() + 1;
        self.batches.push(Batch {
            node,
            file: format!("{number:02}-{node}.ip"),
            lines: lines.into_iter().map(Into::into).collect(),
        });
    }

    /// The file of the last batch.
    pub(super) fn last_batch(&self, folder: &Path) -> PathBuf {
        folder.join(self.batches.last().map_or("", |batch| batch.file.as_str()))
    }

    /// Adds a bridge `br0` with a port for each `(port, interface, namespace)`.
    pub(super) fn bridge(&mut self, node: &'static str, ports: &[(&str, &str, &str)]) {
        // Snooping without a querier would filter the multicast of VRRP and neighbor discovery after a while.
        let mut lines = vec![
            "link set lo up".to_owned(),
            "link add name br0 type bridge stp_state 0 mcast_snooping 0".to_owned(),
            "link set br0 up".to_owned(),
        ];
        for (port, interface, namespace) in ports {
            lines.push(format!(
                "link add name {port} type veth peer name {interface} netns {namespace}"
            ));
            lines.push(format!("link set {port} master br0 up"));
        }
        self.batch(node, lines);
    }

    /// Adds the client, behind `eth0`, with the first addresses of its networks as gateway.
    pub(super) fn client(&mut self) {
        self.batch(
            CLIENT,
            [
                "link set lo up",
                "address add 10.205.1.10/24 dev eth0",
                "address add fd05:205:1::10/64 dev eth0 nodad",
                "link set eth0 up",
                "route add default via 10.205.1.1",
                "route add ::/0 via fd05:205:1::1 dev eth0",
            ],
        );
    }

    /// Adds the server, behind `eth0`, likewise.
    pub(super) fn routed_server(&mut self) {
        self.batch(
            SERVER,
            [
                "link set lo up",
                "address add 10.205.2.10/24 dev eth0",
                "address add fd05:205:2::10/64 dev eth0 nodad",
                "link set eth0 up",
                "route add default via 10.205.2.1",
                "route add ::/0 via fd05:205:2::1 dev eth0",
            ],
        );
        self.server = Some((
            Ipv4Addr::new(10, 205, 2, 10),
            Ipv6Addr::new(0xfd05, 0x205, 2, 0, 0, 0, 0, 0x10),
        ));
    }
}

/// A path as an argument of a program.
pub(super) fn words(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// A path as a word of a shell.
pub(super) fn quoted(path: &Path) -> String {
    let text = words(path);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if text.chars().all(is_plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}
