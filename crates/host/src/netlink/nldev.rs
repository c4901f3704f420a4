//! RDMA netlink (`<rdma/rdma_netlink.h>`): the interface of a port, its counters, and how network
//! namespaces share devices.

use std::collections::BTreeMap;
use std::io;

use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Gap, Known};

use super::error::Failure;
use super::message::{Attributes, Request};
use super::socket::{Answer, Connection};
use super::{Netlink, lock};
use crate::rdma::{Node, RdmaAnswers, RdmaRead, ask_node};
use crate::root::LiveHost;

/// `RDMA_NL_NLDEV`, in the upper bits of a message's type.
pub(super) const CLIENT: u16 = 5 << 10;
pub(super) const GET: u16 = 1;
pub(super) const PORT_GET: u16 = 5;
const SYS_GET: u16 = 6;
const STAT_GET: u16 = 17;

pub(super) const DEV_INDEX: u16 = 1;
pub(super) const DEV_NAME: u16 = 2;
pub(super) const PORT_INDEX: u16 = 3;
pub(super) const NDEV_NAME: u16 = 51;
const SYS_NETNS_MODE: u16 = 66;
const HWCOUNTERS: u16 = 80;
const HWCOUNTER_ENTRY: u16 = 81;
const HWCOUNTER_ENTRY_NAME: u16 = 82;
const HWCOUNTER_ENTRY_VALUE: u16 = 83;

/// More counters than any RDMA port has (mlx5: about 80).
const COUNTERS_MAX: usize = 512;

const CLASS: &str = "sys/class/infiniband";
const NO_NETLINK: &str = "not supported over RDMA netlink by the kernel or the driver";

/// The socket, or why there is none.
#[derive(Debug)]
pub(super) struct Nldev(Result<Connection, Gap>);

impl Nldev {
    /// A socket in the network namespace of this thread, if there is an RDMA device: without one, opening could make
    /// the kernel load its RDMA core, and reading must change nothing.
    pub(super) fn open() -> Self {
        let gap = |cause, reason: String| Gap::new(cause, "netlink/rdma", reason);
        let devices = LiveHost::open().map(|host| host.root().list(CLASS));
        let any = devices.is_ok_and(|names| names.value().is_some_and(|names| !names.is_empty()));
        if !any {
            let reason = "no RDMA device existed when the sockets were opened";
            return Self(Err(gap(Cause::Absent, reason.to_owned())));
        }
        Self(open_socket().map_err(|error| {
            let cause = crate::root::gap("", &error).cause;
            gap(cause, format!("cannot open the socket: {error}"))
        }))
    }

    #[cfg(any(test, feature = "fuzz"))]
    pub(super) fn scripted(script: super::script::Script) -> io::Result<Self> {
        Ok(Self(Ok(Connection::scripted(script)?)))
    }

    fn ask<T>(
        &mut self,
        what: &str,
        ask: impl FnOnce(&mut Connection) -> Result<T, Failure>,
    ) -> Known<T> {
        let path = format!("netlink/rdma/{what}");
        match &mut self.0 {
            Ok(connection) => super::known(ask(connection), path, NO_NETLINK),
            Err(gap) => Known::unknown(gap.cause, path, gap.reason.as_str()),
        }
    }
}

pub(super) fn open_socket() -> io::Result<Connection> {
    Connection::open(Some(rustix::net::netlink::RDMA))
}

/// The number that the kernel gave the device `name`.
fn index(connection: &mut Connection, name: &str) -> Result<Option<u32>, Failure> {
    parse_index(&connection.dump(&Request::new(CLIENT | GET, &[]))?, name)
}

fn parse_index(answers: &[Answer], name: &str) -> Result<Option<u32>, Failure> {
    for answer in answers {
        let attributes = Attributes::parse(&answer.body)?;
        if attributes.text(DEV_NAME)?.as_deref() == Some(name) {
            return attributes.u32(DEV_INDEX);
        }
    }
    Ok(None)
}

fn of_port(
    connection: &mut Connection,
    command: u16,
    name: &str,
    port: u32,
) -> Result<Vec<Answer>, Failure> {
    let Some(index) = index(connection, name)? else {
        return Ok(Vec::new()); // it is in another network namespace
    };
    let mut request = Request::new(CLIENT | command, &[]);
    request.put_u32(DEV_INDEX, index).put_u32(PORT_INDEX, port);
    connection.ask(&request)
}

fn parse_netdev(answers: &[Answer]) -> Result<Option<String>, Failure> {
    let Some(answer) = answers.first() else {
        return Ok(None);
    };
    Attributes::parse(&answer.body)?.text(NDEV_NAME)
}

/// The counters by name; empty if the device was not found.
fn parse_counters(answers: &[Answer]) -> Result<Option<BTreeMap<String, u64>>, Failure> {
    if answers.is_empty() {
        return Ok(None);
    }
    let mut counters = BTreeMap::new();
    for answer in answers {
        let table = Attributes::parse(&answer.body)?.nest(HWCOUNTERS)?;
        let entries = table.iter().filter(|(kind, _)| *kind == HWCOUNTER_ENTRY);
        for (_, entry) in entries.take(COUNTERS_MAX) {
            let entry = Attributes::parse(entry)?;
            let name = entry.text(HWCOUNTER_ENTRY_NAME)?;
            counters.extend(name.zip(entry.u64(HWCOUNTER_ENTRY_VALUE)?));
        }
    }
    Ok(Some(counters))
}

/// A device whose driver has no counters returns EINVAL.
fn uncounted(failure: Failure) -> Failure {
    match failure {
        Failure::Kernel { errno, message } if errno == libc::EINVAL => Failure::Kernel {
            errno: libc::EOPNOTSUPP,
            message,
        },
        other => other,
    }
}

/// `ib_devices_shared_netns`: 1 is shared.
fn parse_netns_mode(answers: &[Answer]) -> Result<Option<&'static str>, Failure> {
    let Some(answer) = answers.first() else {
        return Ok(None);
    };
    let attributes = Attributes::parse(&answer.body)?;
    Ok(match attributes.bytes(SYS_NETNS_MODE) {
        Some([0]) => Some("exclusive"),
        Some([1]) => Some("shared"),
        _ => None,
    })
}

fn said<T>(answer: Known<Option<T>>, what: &str, why: &str) -> Known<T> {
    let path = format!("netlink/rdma/{what}");
    answer.and_then(|value| {
        value.map_or_else(|| Known::unknown(Cause::NotSaid, path, why), Known::Value)
    })
}

impl RdmaRead for Netlink {
    fn rdma_device(&self, name: &str, ports: &[u32], node: &Known<Node>) -> RdmaAnswers {
        let mut answers = RdmaAnswers::default();
        let mut nldev = lock(&self.nldev);
        let mode = nldev.ask("netns", |connection| {
            parse_netns_mode(&connection.ask(&Request::new(CLIENT | SYS_GET, &[]))?)
        });
        answers.netns_mode = said(mode, "netns", NO_NETLINK).map(str::to_owned);
        for number in ports {
            let what = format!("{name}/{number}/netdev");
            let netdev = nldev.ask(&what, |connection| {
                parse_netdev(&of_port(connection, PORT_GET, name, *number)?)
            });
            let netdev = netdev.map(|name| name.and_then(|name| name.parse::<NicName>().ok()));
            let port = answers.ports.entry(*number).or_default();
            port.netdev = said(
                netdev,
                &what,
                "the kernel reports no network interface for this port",
            );
        }
        drop(nldev);
        for number in ports {
            let counts = self.rdma_counts(name, *number);
            answers.ports.entry(*number).or_default().counts = counts;
        }
        ask_node(node, ports, &mut answers);
        answers
    }

    fn rdma_counts(&self, device: &str, port: u32) -> Known<BTreeMap<String, u64>> {
        let what = format!("{device}/{port}/counters");
        let counts = lock(&self.nldev).ask(&what, |connection| {
            parse_counters(&of_port(connection, STAT_GET, device, port).map_err(uncounted)?)
        });
        let why = "no such RDMA device in this network namespace";
        said(counts, &what, why)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[cfg(target_endian = "little")]
    #[test]
    fn soft_roce_is_read_as_rdma_prints_it() {
        use crate::netlink::captured::answers;

        let devices = answers(include_str!("captured/rdma-devices.hex"));
        assert_eq!(parse_index(&devices, "rxa").ok(), Some(Some(0)));
        assert_eq!(parse_index(&devices, "rxz").ok(), Some(None));
        let port = answers(include_str!("captured/rdma-port.hex"));
        assert_eq!(parse_netdev(&port).ok(), Some(Some("va".to_owned())));
        let counters = parse_counters(&answers(include_str!("captured/rdma-counters.hex")));
        let counters = counters.expect("the kernel's own").expect("some");
        assert_eq!(counters.len(), 15);
        assert_eq!(counters.get("retry_rnr_exceeded_err"), Some(&0));
        let system = answers(include_str!("captured/rdma-system.hex"));
        assert_eq!(parse_netns_mode(&system).ok(), Some(Some("shared")));
    }

    #[test]
    fn the_numbers_are_the_headers() {
        let ours = [
            ("RDMA_NLDEV_CMD_GET", GET),
            ("RDMA_NLDEV_CMD_PORT_GET", PORT_GET),
            ("RDMA_NLDEV_CMD_SYS_GET", SYS_GET),
            ("RDMA_NLDEV_CMD_STAT_GET", STAT_GET),
            ("RDMA_NLDEV_ATTR_DEV_INDEX", DEV_INDEX),
            ("RDMA_NLDEV_ATTR_DEV_NAME", DEV_NAME),
            ("RDMA_NLDEV_ATTR_PORT_INDEX", PORT_INDEX),
            ("RDMA_NLDEV_ATTR_NDEV_NAME", NDEV_NAME),
            ("RDMA_NLDEV_SYS_ATTR_NETNS_MODE", SYS_NETNS_MODE),
            ("RDMA_NLDEV_ATTR_STAT_HWCOUNTERS", HWCOUNTERS),
            ("RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY", HWCOUNTER_ENTRY),
            (
                "RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME",
                HWCOUNTER_ENTRY_NAME,
            ),
            (
                "RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE",
                HWCOUNTER_ENTRY_VALUE,
            ),
        ];
        crate::netlink::headers::compare("../rdma/rdma_netlink.h", &ours);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(body in vec(any::<u8>(), 0..120)) {
            let answers = [Answer { kind: CLIENT, body }];
            let _ = (parse_index(&answers, "a"), parse_netdev(&answers));
            let _ = (parse_counters(&answers), parse_netns_mode(&answers));
        }
    }
}
