//! The hosts of a mesh: a TOML file with a table for each, or a list of peers, one on each line.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::NicName;
use crate::peer_address::PeerAddress;

/// The largest mesh: what the analysis and the page were measured with.
pub const HOSTS_MAX: usize = 4096;

/// A host of a mesh, by its position in the list of hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct HostIndex(pub u32);

impl HostIndex {
    /// The host at a position.
    ///
    /// Panics for a position beyond any list of hosts, [`HOSTS_MAX`].
    pub fn at(position: usize) -> Self {
        Self(u32::try_from(position).expect("a mesh has at most HOSTS_MAX hosts"))
    }
    /// Its position.
    pub const fn position(self) -> usize {
        self.0 as usize
    }
}

/// What hosts of a group share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum GroupKind {
    /// The switch that the NIC is connected to.
    Switch,
    /// The rack.
    Rack,
    /// The rail: NICs of the same position in each host, on switches of their own.
    Rail,
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Switch => "switch",
            Self::Rack => "rack",
            Self::Rail => "rail",
        })
    }
}

/// Hosts that share a switch, a rack or a rail.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Group {
    /// What they share.
    pub kind: GroupKind,
    /// Its name.
    pub name: String,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// A host of a mesh, without the address by which it is controlled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MeshHost {
    /// Its name, unique in the mesh: the peer as it was written, or the host name that a launched rank reports; followed by
    /// `/NIC` if several NICs of a host take part.
    pub name: String,
    /// The interface that it measures over; null is the one that the route to the other host uses.
    pub nic: Option<NicName>,
    /// The switch that the interface is connected to; null if it was not given.
    pub switch: Option<String>,
    /// The host's rack.
    pub rack: Option<String>,
    /// The interface's rail.
    pub rail: Option<String>,
}

impl MeshHost {
    /// A host of which only the name is known.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            nic: None,
            switch: None,
            rack: None,
            rail: None,
        }
    }

    /// The name of its group of this kind.
    pub fn group(&self, kind: GroupKind) -> Option<&str> {
        match kind {
            GroupKind::Switch => self.switch.as_deref(),
            GroupKind::Rack => self.rack.as_deref(),
            GroupKind::Rail => self.rail.as_deref(),
        }
    }
}

/// A host of a mesh that is started from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedHost {
    /// How it is reached.
    pub peer: PeerAddress,
    /// The host.
    pub host: MeshHost,
}

/// The hosts file as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostsFile {
    /// The hosts.
    #[serde(default, rename = "host")]
    pub hosts: Vec<WrittenHost>,
}

/// A host as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenHost {
    /// How it is reached: a peer as for `measure`.
    pub peer: String,
    /// The interface that it measures over [default: the one that the route uses].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic: Option<String>,
    /// The switch that the interface is connected to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<String>,
    /// The host's rack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// The interface's rail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rail: Option<String>,
}

/// What is wrong with a list of hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostsError {
    /// There are too few to measure anything.
    #[error("a mesh needs at least 2 hosts, and there are {0}")]
    TooFew(usize),
    /// There are too many.
    #[error("there are {0} hosts: at most {HOSTS_MAX} are possible")]
    TooMany(usize),
    /// Something of one host.
    #[error("{at}: {why}")]
    Host {
        /// Which: `line 7`, `host 3 (netns:h2)`.
        at: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// A host is there twice.
    #[error(
        "{first} and {second} are the same host, {name}: remove one, or give each its own `nic`"
    )]
    Duplicate {
        /// Which is the first.
        first: String,
        /// And the second.
        second: String,
        /// Its name.
        name: String,
    },
}

impl HostsFile {
    /// The hosts that it lists.
    pub fn read(&self) -> Result<Vec<ListedHost>, HostsError> {
        let placed = self.hosts.iter().enumerate().map(|(index, host)| {
            let at = format!("host {} ({})", index + 1, host.peer);
            (at, host)
        });
        listed(placed)
    }
}

/// The hosts of a text with a peer on each line; empty lines and what follows a `#` after white space are ignored.
pub fn hosts_of_lines(text: &str) -> Result<Vec<ListedHost>, HostsError> {
    let lines: Vec<(String, WrittenHost)> = text
        .lines()
        .enumerate()
        .filter_map(|(index, line)| {
            let peer = without_comment(line).trim();
            (!peer.is_empty()).then(|| (format!("line {}", index + 1), of_peer(peer)))
        })
        .collect();
    listed(lines.iter().map(|(at, host)| (at.clone(), host)))
}

/// The hosts of a list of peers, as on a command line.
pub fn hosts_of_peers(peers: &[String]) -> Result<Vec<ListedHost>, HostsError> {
    let hosts: Vec<WrittenHost> = peers.iter().map(|peer| of_peer(peer)).collect();
    let placed = hosts.iter().enumerate();
    listed(placed.map(|(index, host)| (format!("host {} ({})", index + 1, host.peer), host)))
}

fn of_peer(peer: &str) -> WrittenHost {
    WrittenHost {
        peer: peer.to_owned(),
        ..WrittenHost::default()
    }
}

/// A pairing line has a `#` within it, so a comment starts the line or follows white space.
fn without_comment(line: &str) -> &str {
    let mut before = ' ';
    for (at, c) in line.char_indices() {
        if c == '#' && before.is_whitespace() {
            return &line[..at];
        }
        before = c;
    }
    line
}

fn listed<'a>(
    written: impl Iterator<Item = (String, &'a WrittenHost)>,
) -> Result<Vec<ListedHost>, HostsError> {
    let mut all: Vec<(String, ListedHost)> = Vec::new();
    for (at, host) in written {
        let read = host.read().map_err(|why| HostsError::Host {
            at: at.clone(),
            why,
        })?;
        all.push((at, read));
    }
    match all.len() {
        count @ 0..=1 => return Err(HostsError::TooFew(count)),
        count if count > HOSTS_MAX => return Err(HostsError::TooMany(count)),
        _ => {}
    }
    name_each(&mut all);
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    for (at, listed) in &all {
        if let Some(earlier) = first.insert(&listed.host.name, at) {
            return Err(HostsError::Duplicate {
                first: earlier.to_owned(),
                second: at.clone(),
                name: listed.host.name.clone(),
            });
        }
    }
    Ok(all.into_iter().map(|(_, listed)| listed).collect())
}

/// Appends the NIC to the names of hosts that take part with several.
fn name_each(all: &mut [(String, ListedHost)]) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (_, listed) in all.iter() {
        *counts.entry(listed.host.name.clone()).or_default() += 1;
    }
    for (_, listed) in all {
        let host = &mut listed.host;
        if let (Some(nic), true) = (&host.nic, counts[&host.name] > 1) {
            host.name = format!("{}/{nic}", host.name);
        }
    }
}

impl WrittenHost {
    fn read(&self) -> Result<ListedHost, String> {
        let peer: PeerAddress = self.peer.parse()?;
        let nic = self.nic.as_deref().map(|name| {
            let refused = |_| format!("`{name}` is not an interface name");
            name.parse::<NicName>().map_err(refused)
        });
        for kind in [GroupKind::Switch, GroupKind::Rack, GroupKind::Rail] {
            let name = match kind {
                GroupKind::Switch => &self.switch,
                GroupKind::Rack => &self.rack,
                GroupKind::Rail => &self.rail,
            };
            let is_plain = |name: &str| !name.trim().is_empty() && !name.contains(char::is_control);
            if name.as_deref().is_some_and(|name| !is_plain(name)) {
                return Err(format!(
                    "the name of the {kind} is empty or has control characters"
                ));
            }
        }
        Ok(ListedHost {
            host: MeshHost {
                name: short_name(&peer),
                nic: nic.transpose()?,
                switch: self.switch.clone(),
                rack: self.rack.clone(),
                rail: self.rail.clone(),
            },
            peer,
        })
    }
}

/// The peer without the scheme that is the default.
fn short_name(peer: &PeerAddress) -> String {
    let text = peer.to_string();
    text.strip_prefix("ssh://").unwrap_or(&text).to_owned()
}
