//! A mesh of hosts on one machine: network namespaces on a bridge, each with a rate limit that two cores can carry, and
//! with injected faults of known size. For tests, demos and benchmarks of `linerate mesh`.
//!
//! Like a [redundant network](crate::redundant) it outlives the process that makes it, and is recorded before it is made.
//! Where the limits are: htb(8) at the host when it sends, tbf(8) at the port of the bridge when it receives. Losses and the
//! path that drops large packets are rules of nftables at the bridge.

use std::fmt::{self, Write as _};
use std::net::Ipv4Addr;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::netns;
use crate::redundant::error::RedundantError;
use crate::redundant::program::{self, IP, NFT, TC};
use crate::redundant::record::{Record, Recorded};
use crate::redundant::{check_privileges, open, write};

/// The namespace of the bridge.
const SWITCH: &str = "lr-mesh";
/// The kernel's neighbor table has 1,024 entries for all namespaces (`gc_thresh3`), and each host has one for each other.
pub const HOSTS_MAX: u32 = 31;
/// The rate of every host in both directions: two cores carry 31 hosts.
const KBIT_PER_S: u32 = 50_000;
/// The rate of a slow host, pair or group: 15 % less.
const SLOW_KBIT_PER_S: u32 = 42_500;

/// An injected fault. Hosts are numbered from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum MeshFault {
    /// A host sends 15 % slower.
    Send(u32),
    /// A host receives 15 % slower.
    Receive(u32),
    /// One host sends to another one 15 % slower.
    Pair(u32, u32),
    /// 0.5 % of the packets of a host are lost, in both directions.
    Loss(u32),
    /// Packets of more than 1,400 bytes are dropped between two hosts.
    Mtu(u32, u32),
    /// The hosts from the first to the last send and receive 15 % slower.
    Group(u32, u32),
    /// What the hosts from the first to the last receive passes one class of 50 Mb/s together, in a queue that they share.
    Shared(u32, u32),
    /// It passes a class of 50 Mb/s for each of them, at the same place.
    Separate(u32, u32),
}

/// A mesh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MeshSpec {
    /// How many hosts.
    pub hosts: u32,
    /// The injected faults.
    pub faults: Vec<MeshFault>,
}

/// An existing mesh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MeshNetwork {
    /// Its hosts and faults.
    pub spec: MeshSpec,
    /// Whether `add` was completed.
    pub ready: bool,
    /// The namespaces of the hosts.
    pub hosts: Vec<String>,
}

impl Recorded for MeshSpec {
    const NAME: &'static str = "testbed-mesh";
}

/// The mesh of a state folder. Other processes wait until this is dropped.
#[derive(Debug)]
pub struct Mesh {
    record: Record<MeshSpec>,
}

impl Mesh {
    /// Reads the record in the directory `state`.
    pub fn open(state: &Path) -> Result<Self, RedundantError> {
        Ok(Self {
            record: Record::open(state)?,
        })
    }

    /// The mesh, if there is one.
    pub fn network(&self) -> Option<MeshNetwork> {
        let made = self.record.made()?;
        Some(MeshNetwork {
            ready: made.ready,
            hosts: (0..made.spec.hosts).map(namespace).collect(),
            spec: made.spec.clone(),
        })
    }

    /// Makes a mesh. A failure removes what was made.
    pub fn add(&mut self, spec: &MeshSpec) -> Result<(), RedundantError> {
        check_privileges()?;
        if let Some(made) = self.record.made() {
            return Err(if made.ready {
                RedundantError::Exists {
                    words: format!("a mesh of {} hosts", made.spec.hosts),
                }
            } else {
                RedundantError::HalfMade
            });
        }
        program::check(&[&IP, &TC, &NFT])?;
        if let Some(name) = spec.namespaces().find(|name| netns::is_taken(name)) {
            return Err(RedundantError::NameTaken { name });
        }
        self.record.write(spec, false)?;
        let made = self.make(spec);
        match made.and_then(|()| self.record.write(spec, true)) {
            Ok(()) => Ok(()),
            Err(first) => Err(match self.remove() {
                Ok(_) => first,
                Err(second) => RedundantError::NotUndone {
                    first: Box::new(first),
                    second: Box::new(second),
                },
            }),
        }
    }

    fn make(&self, spec: &MeshSpec) -> Result<(), RedundantError> {
        self.record.make_folder()?;
        for name in spec.namespaces() {
            IP.run(None, &["netns", "add", &name])?;
        }
        self.batch(&IP, SWITCH, &spec.bridge())?;
        for host in 0..spec.hosts {
            self.batch(&IP, &namespace(host), &spec.addresses(host))?;
            self.batch(&TC, &namespace(host), &spec.sends(host))?;
        }
        self.batch(&TC, SWITCH, &spec.receives())?;
        if let Some(rules) = spec.rules() {
            let switch = open(SWITCH)?;
            NFT.run_with_input(Some(&switch), &["-f", "-"], &rules)?;
        }
        Ok(())
    }

    fn batch(
        &self,
        program: &'static program::Program,
        node: &str,
        lines: &str,
    ) -> Result<(), RedundantError> {
        let file = self
            .record
            .folder()
            .join(format!("{node}.{}", program.name));
        write(&file, lines)?;
        let file = file.to_string_lossy();
        program.run(None, &["-n", node, "-batch", &file]).map(drop)
    }

    /// Removes the mesh; whether there was one.
    pub fn remove(&mut self) -> Result<bool, RedundantError> {
        let Some(made) = self.record.made() else {
            return Ok(false);
        };
        let spec = made.spec.clone();
        check_privileges()?;
        self.record.write(&spec, false)?;
        for name in spec.namespaces() {
            if netns::is_taken(&name) {
                IP.run(None, &["netns", "delete", &name])?;
            }
        }
        self.record.clear()?;
        Ok(true)
    }
}

/// The namespace of a host.
fn namespace(host: u32) -> String {
    format!("lr-m{host}")
}

/// Private addresses (RFC 1918) on a bridge that no other network reaches.
fn address(host: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 206, 0, 10).to_bits() + host)
}

impl MeshSpec {
    /// Whether the faults are about hosts that exist.
    pub fn check(&self) -> Result<(), String> {
        if !(2..=HOSTS_MAX).contains(&self.hosts) {
            return Err(format!("expected 2 to {HOSTS_MAX} hosts"));
        }
        for fault in &self.faults {
            let (first, second) = fault.hosts();
            if let Some(host) = [Some(first), second]
                .into_iter()
                .flatten()
                .find(|host| *host >= self.hosts)
            {
                return Err(format!(
                    "`{fault}`: there is no host {host}, the last one is {}",
                    self.hosts - 1
                ));
            }
        }
        Ok(())
    }

    fn namespaces(&self) -> impl Iterator<Item = String> + use<> {
        std::iter::once(SWITCH.to_owned()).chain((0..self.hosts).map(namespace))
    }

    fn bridge(&self) -> String {
        let mut lines = "link set lo up\n\
             link add name br0 type bridge stp_state 0 mcast_snooping 0\n\
             link set br0 up\n"
            .to_owned();
        if self.trunk().is_some() {
            lines.push_str(
                "link add name br1 type bridge stp_state 0 mcast_snooping 0\n\
                 link set br1 up\n\
                 link add name t0 type veth peer name t1\n\
                 link set t0 master br0 up\n\
                 link set t1 master br1 up\n",
            );
        }
        for host in 0..self.hosts {
            let node = namespace(host);
            let is_behind = self
                .trunk()
                .is_some_and(|(first, last, _)| (first..=last).contains(&host));
            let bridge = if is_behind { "br1" } else { "br0" };
            let _ = write!(
                lines,
                "link add name p{host} type veth peer name eth0 netns {node}\n\
                 link set p{host} master {bridge} up\n"
            );
        }
        lines
    }

    /// The hosts behind a trunk, and whether they share its class.
    fn trunk(&self) -> Option<(u32, u32, bool)> {
        self.faults.iter().find_map(|fault| match *fault {
            MeshFault::Shared(first, last) => Some((first, last, true)),
            MeshFault::Separate(first, last) => Some((first, last, false)),
            _ => None,
        })
    }

    /// The classes of the trunk, if there is one.
    fn classes(&self) -> String {
        let Some((first, last, is_shared)) = self.trunk() else {
            return String::new();
        };
        let class = |class: u32| {
            format!(
                "class add dev t0 parent 1: classid 1:{class} htb rate {KBIT_PER_S}kbit burst 32k quantum 3000\n\
                 qdisc add dev t0 parent 1:{class} bfifo limit 512kb\n"
            )
        };
        let mut lines = format!(
            "qdisc add dev t0 root handle 1: htb default 1\n{}",
            class(1)
        );
        if is_shared {
            return lines;
        }
        for (number, host) in (2..).zip(first..=last) {
            let _ = writeln!(
                lines,
                "{}filter add dev t0 parent 1: protocol ip u32 match ip dst {}/32 flowid 1:{number}",
                class(number),
                address(host)
            );
        }
        lines
    }

    fn addresses(&self, host: u32) -> String {
        // Otherwise one loss is that of 45 packets, which the veth pair carries as one.
        let has_loss = self
            .faults
            .iter()
            .any(|fault| matches!(fault, MeshFault::Loss(_)));
        let segments = if has_loss {
            "link set eth0 gso_max_segs 1\n"
        } else {
            ""
        };
        format!(
            "link set lo up\naddress add {}/24 dev eth0\n{segments}link set eth0 up\n",
            address(host)
        )
    }

    fn rate(&self, is_slow: impl Fn(&MeshFault) -> bool) -> u32 {
        if self.faults.iter().any(is_slow) {
            SLOW_KBIT_PER_S
        } else {
            KBIT_PER_S
        }
    }

    /// The limits of a host when it sends: a class for the pairs with a fault of their own.
    fn sends(&self, host: u32) -> String {
        let rate = self.rate(|fault| fault.slows_sender(host));
        let mut lines = format!(
            "qdisc add dev eth0 root handle 1: htb default 1\n\
             class add dev eth0 parent 1: classid 1:1 htb rate {rate}kbit burst 32k quantum 3000\n"
        );
        let pairs = self.faults.iter().filter_map(|fault| match fault {
            MeshFault::Pair(from, to) if *from == host => Some(*to),
            _ => None,
        });
        for (at, to) in pairs.enumerate() {
            let class = at + 2;
            let _ = write!(
                lines,
                "class add dev eth0 parent 1: classid 1:{class} htb rate {SLOW_KBIT_PER_S}kbit burst 32k quantum 3000\n\
                 filter add dev eth0 parent 1: protocol ip u32 match ip dst {}/32 flowid 1:{class}\n",
                address(to)
            );
        }
        lines
    }

    /// The limits of the hosts when they receive.
    fn receives(&self) -> String {
        let mut lines = self.classes();
        for host in 0..self.hosts {
            let rate = self.rate(|fault| fault.slows_receiver(host));
            let _ = writeln!(
                lines,
                "qdisc add dev p{host} root tbf rate {rate}kbit burst 32kb limit 512kb"
            );
        }
        lines
    }

    /// Rules of nftables for what is dropped; none if nothing is.
    fn rules(&self) -> Option<String> {
        let mut rules = String::new();
        for fault in &self.faults {
            match fault {
                MeshFault::Loss(host) => {
                    for name in ["iifname", "oifname"] {
                        let _ =
                            writeln!(rules, "{name} \"p{host}\" numgen random mod 200 == 0 drop");
                    }
                }
                MeshFault::Mtu(first, second) => {
                    for (from, to) in [(first, second), (second, first)] {
                        let (from, to) = (address(*from), address(*to));
                        let _ = writeln!(
                            rules,
                            "ip saddr {from} ip daddr {to} meta length > 1400 drop"
                        );
                    }
                }
                _ => {}
            }
        }
        (!rules.is_empty()).then(|| {
            format!(
                "table bridge mesh {{ chain forward {{ type filter hook forward priority 0;\n{rules}}}\n}}\n"
            )
        })
    }
}

impl MeshFault {
    fn hosts(self) -> (u32, Option<u32>) {
        match self {
            Self::Send(host) | Self::Receive(host) | Self::Loss(host) => (host, None),
            Self::Pair(one, other)
            | Self::Mtu(one, other)
            | Self::Group(one, other)
            | Self::Shared(one, other)
            | Self::Separate(one, other) => (one, Some(other)),
        }
    }

    fn slows_sender(self, host: u32) -> bool {
        match self {
            Self::Send(slow) => slow == host,
            Self::Group(first, last) => (first..=last).contains(&host),
            _ => false,
        }
    }

    fn slows_receiver(self, host: u32) -> bool {
        match self {
            Self::Receive(slow) => slow == host,
            Self::Group(first, last) => (first..=last).contains(&host),
            _ => false,
        }
    }
}

impl fmt::Display for MeshFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send(host) => write!(f, "send:{host}"),
            Self::Receive(host) => write!(f, "receive:{host}"),
            Self::Pair(from, to) => write!(f, "pair:{from}-{to}"),
            Self::Loss(host) => write!(f, "loss:{host}"),
            Self::Mtu(one, other) => write!(f, "mtu:{one}-{other}"),
            Self::Group(first, last) => write!(f, "group:{first}-{last}"),
            Self::Shared(first, last) => write!(f, "shared:{first}-{last}"),
            Self::Separate(first, last) => write!(f, "separate:{first}-{last}"),
        }
    }
}

impl FromStr for MeshFault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORMS: &str = "expected send:N, receive:N, loss:N, pair:FROM-TO, mtu:N-N, group:FIRST-LAST, \
                             shared:FIRST-LAST or separate:FIRST-LAST, where hosts are numbered from 0";
        let (kind, hosts) = text.split_once(':').ok_or(FORMS)?;
        let number = |text: &str| text.parse::<u32>().map_err(|_| FORMS.to_owned());
        let Some((one, other)) = hosts.split_once('-') else {
            let host = number(hosts)?;
            return match kind {
                "send" => Ok(Self::Send(host)),
                "receive" => Ok(Self::Receive(host)),
                "loss" => Ok(Self::Loss(host)),
                _ => Err(FORMS.to_owned()),
            };
        };
        let (one, other) = (number(one)?, number(other)?);
        let is_range = matches!(kind, "group" | "shared" | "separate");
        if one == other || (is_range && one > other) {
            return Err(FORMS.to_owned());
        }
        match kind {
            "pair" => Ok(Self::Pair(one, other)),
            "mtu" => Ok(Self::Mtu(one, other)),
            "group" => Ok(Self::Group(one, other)),
            "shared" => Ok(Self::Shared(one, other)),
            "separate" => Ok(Self::Separate(one, other)),
            _ => Err(FORMS.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_reads_back_as_it_was_written_and_others_are_refused() {
        for text in [
            "send:0",
            "receive:3",
            "pair:1-0",
            "loss:2",
            "mtu:0-1",
            "group:0-3",
            "shared:2-3",
            "separate:2-3",
        ] {
            let fault: MeshFault = text.parse().expect(text);
            assert_eq!(fault.to_string(), text);
        }
        for text in [
            "send",
            "send:x",
            "pair:1",
            "pair:1-1",
            "group:3-0",
            "slow:1",
            "send:1-2",
        ] {
            assert!(text.parse::<MeshFault>().is_err(), "{text}");
        }
    }

    #[test]
    fn hosts_behind_a_trunk_share_one_class_or_have_one_each() {
        let behind = |fault| MeshSpec {
            hosts: 4,
            faults: vec![fault],
        };
        let (shared, separate) = (
            behind(MeshFault::Shared(2, 3)),
            behind(MeshFault::Separate(2, 3)),
        );
        assert_eq!(shared.classes().matches("class add").count(), 1);
        assert_eq!(separate.classes().matches("class add").count(), 3);
        assert!(
            separate
                .classes()
                .contains("match ip dst 10.206.0.13/32 flowid 1:3")
        );
        for spec in [shared, separate] {
            let bridge = spec.bridge();
            assert!(bridge.contains("set p1 master br0") && bridge.contains("set p2 master br1"));
        }
    }

    #[test]
    fn a_fault_slows_what_it_names_and_nothing_else() {
        let spec = MeshSpec {
            hosts: 4,
            faults: vec![MeshFault::Send(1), MeshFault::Pair(2, 3)],
        };
        assert_eq!(spec.check(), Ok(()));
        let slow = format!("{SLOW_KBIT_PER_S}kbit");
        let slowed: Vec<usize> = (0..4)
            .map(|host| spec.sends(host).matches(&slow).count())
            .collect();
        assert_eq!(slowed, [0, 1, 1, 0]);
        assert!(!spec.receives().contains(&slow));
        assert_eq!(spec.rules(), None);
        let absent = MeshSpec {
            faults: vec![MeshFault::Mtu(0, 4)],
            ..spec
        };
        assert!(absent.check().is_err_and(|why| why.contains("no host 4")));
    }
}
