//! When a network is ready: its conditions hold, and packets of many flows really pass in both directions, over IPv4 and
//! IPv6. Each wait is bounded, and ends with a daemon that ends.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use linerate_host::netlink::Netlink;
use linerate_host::nic_control::NicRead as _;
use linerate_model::ids::NicName;

use super::error::RedundantError;
use super::plan::{CLIENT, CLIENT_V4, CLIENT_V6, Condition, Plan, SERVER};
use super::program::OVS_VSCTL;
use crate::netns;

/// How long a network may take: BGP needs several seconds on a busy machine, LACP in its slow rate a minute.
pub(super) const READY_MAX: Duration = Duration::from_secs(90);
/// Flows of each family: with fewer, none of them might take the second path.
const FLOWS: usize = 16;
/// How long a round waits for its last packet.
const ROUND: Duration = Duration::from_millis(200);

impl Condition {
    /// Whether it holds now.
    pub(super) fn holds(&self) -> Result<bool, RedundantError> {
        match self {
            Self::Address { node, nic, address } => inside(node, || {
                let nic: NicName = nic.parse().map_err(io::Error::other)?;
                let addresses = Netlink::open()?.addresses(&nic);
                let is_it = |own: &String| {
                    own.split('/').next().and_then(|text| text.parse().ok()) == Some(*address)
                };
                Ok(addresses.value().is_some_and(|all| all.iter().any(is_it)))
            }),
            Self::NextHops {
                node,
                to,
                prefix,
                count,
            } => inside(node, || {
                Ok(Netlink::open()?.next_hops(*to, *prefix)? == *count)
            }),
            // The file is of the namespace of the thread that opens it.
            Self::BondPorts { node, bond, count } => inside(node, || {
                let path = format!("/proc/thread-self/net/bonding/{bond}");
                let text = std::fs::read_to_string(path)?;
                Ok(ports(&text) == Some(*count))
            }),
            Self::ActiveMember { node, bond, member } => inside(node, || {
                let path = format!("/proc/thread-self/net/bonding/{bond}");
                let text = std::fs::read_to_string(path)?;
                Ok(line(&text, "Currently Active Slave") == Some(*member))
            }),
            Self::Member {
                database,
                interface,
            } => {
                let arguments = [
                    &format!("--db={database}"),
                    "--timeout=5",
                    "get",
                    "Interface",
                    interface,
                    "lacp_current",
                ];
                Ok(OVS_VSCTL.run(None, &arguments)?.trim() == "true")
            }
        }
    }

    /// What is missing while it does not hold.
    pub(super) fn missing(&self) -> String {
        match self {
            Self::Address { node, nic, address } => {
                format!("the virtual address {address} is not on {nic} of {node}")
            }
            Self::NextHops {
                node,
                to,
                prefix,
                count,
            } => format!("the route to {to}/{prefix} in {node} does not have {count} next hops"),
            Self::BondPorts { node, bond, count } => {
                format!("{bond} in {node} does not aggregate {count} ports")
            }
            Self::ActiveMember { node, bond, member } => {
                format!("{bond} in {node} does not use {member}")
            }
            Self::Member { interface, .. } => format!("{interface} has no LACP partner"),
        }
    }
}

/// The line `Number of ports` of `/proc/net/bonding/NAME`: the ports of the active aggregator.
fn ports(text: &str) -> Option<usize> {
    line(text, "Number of ports")?.parse().ok()
}

/// A value of `/proc/net/bonding/NAME`.
fn line<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (own, value) = line.split_once(':')?;
        (own.trim() == name).then_some(value.trim())
    })
}

fn inside<T: Send>(
    node: &str,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> Result<T, RedundantError> {
    let failed = || RedundantError::doing(format!("look into {node}"));
    let netns = netns::open(node).map_err(|error| failed()(io::Error::other(error)))?;
    let done = netns.inside(work).map_err(failed())?;
    done.map_err(failed())
}

/// Waits until the network is ready. `check` refuses a daemon that ended, and Ctrl-C.
pub(super) fn wait(
    plan: &Plan,
    check: &mut dyn FnMut() -> Result<(), RedundantError>,
    outputs: &dyn Fn() -> String,
) -> Result<(), RedundantError> {
    let begun = Instant::now();
    let probe = Probe::open(plan)?;
    let late = |what: String| RedundantError::NotReady {
        what,
        limit: READY_MAX,
        output: outputs(),
    };
    let mut round = 0;
    loop {
        check()?;
        round += 1;
        // Its wait for packets also paces the looks at the conditions.
        let lost = probe.round(round)?;
        let mut missing = None;
        for condition in &plan.conditions {
            if !condition.holds()? {
                missing = Some(condition.missing());
                break;
            }
        }
        let what = match (lost, missing) {
            (0, None) => return Ok(()),
            (_, Some(missing)) => missing,
            (lost, None) => format!(
                "{lost} of {} flows between {CLIENT} and {SERVER} do not pass",
                2 * FLOWS
            ),
        };
        if begun.elapsed() > READY_MAX {
            return Err(late(what));
        }
    }
}

/// Sockets at both ends.
pub(super) struct Probe {
    families: Vec<(UdpSocket, Vec<UdpSocket>)>,
}

impl Probe {
    pub(super) fn open(plan: &Plan) -> Result<Self, RedundantError> {
        let (v4, v6) = plan.server.expect("each kind has a server");
        let families = [
            (IpAddr::from(CLIENT_V4), IpAddr::from(v4)),
            (IpAddr::from(CLIENT_V6), IpAddr::from(v6)),
        ];
        let mut open = Vec::new();
        for (client, server) in families {
            let receiver = inside(SERVER, || {
                let socket = UdpSocket::bind(SocketAddr::new(server, 0))?;
                socket.set_read_timeout(Some(ROUND))?;
                Ok(socket)
            })?;
            let to = receiver
                .local_addr()
                .map_err(RedundantError::doing("read the port of a socket"))?;
            let senders = inside(CLIENT, || {
                let each = (0..FLOWS).map(|_| {
                    let socket = UdpSocket::bind(SocketAddr::new(client, 0))?;
                    socket.connect(to)?;
                    socket.set_read_timeout(Some(ROUND))?;
                    Ok(socket)
                });
                each.collect::<io::Result<Vec<UdpSocket>>>()
            })?;
            open.push((receiver, senders));
        }
        Ok(Self { families: open })
    }

    /// Sends one packet on each flow, answers those that arrive, and returns how many flows got no answer.
    pub(super) fn round(&self, number: u32) -> Result<usize, RedundantError> {
        let token = number.to_be_bytes();
        for (_, senders) in &self.families {
            for sender in senders {
                // Refused while a link is down or a route is missing: the flow does not pass.
                let _ = sender.send(&token);
            }
        }
        let mut passed = 0;
        for (receiver, senders) in &self.families {
            let mut buffer = [0; 64];
            let mut left = senders.len();
            while left > 0 {
                match receiver.recv_from(&mut buffer) {
                    Ok((length, from)) if buffer[..length] == token => {
                        let _ = receiver.send_to(&token, from);
                        left -= 1;
                    }
                    // Of an earlier round.
                    Ok(_) => {}
                    Err(error) if is_silence(&error) => break,
                    Err(error) => return Err(RedundantError::doing("receive a packet")(error)),
                }
            }
            // Nothing arrived, so there is nothing to answer.
            if left == senders.len() {
                continue;
            }
            passed += senders
                .iter()
                .filter(|sender| is_answered(sender, token))
                .count();
        }
        Ok(self.families.len() * FLOWS - passed)
    }
}

fn is_answered(sender: &UdpSocket, token: [u8; 4]) -> bool {
    let mut buffer = [0; 64];
    loop {
        match sender.recv(&mut buffer) {
            Ok(length) if buffer[..length] == token => return true,
            Ok(_) => {}
            Err(error) if is_refusal(&error) => {}
            Err(_) => return false,
        }
    }
}

/// No packet in time, or an ICMP error about one that was sent.
fn is_silence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    ) || is_refusal(error)
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::ConnectionRefused
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ports_of_the_active_aggregator_are_counted() {
        let text = "802.3ad info\nLACP active: on\nActive Aggregator Info:\n\tAggregator ID: 1\n\t\
                    Number of ports: 2\n\tActor Key: 15\n";
        assert_eq!(ports(text), Some(2));
        assert_eq!(
            ports("Bonding Mode: fault-tolerance (active-backup)\n"),
            None
        );
    }
}
