//! Which counters account for the payload of a trial: those of the kernel's TCP, of the interface of the path, or of
//! its RDMA ports. A preloaded library may leave connections to the kernel without a word, and then its figures are
//! the kernel's.
//!
//! The kernel's account of each connection (`struct tcp_info`) is exact. The counters of the interface and of the ports
//! (`/sys/class/net/NAME/statistics`, `/sys/class/infiniband/NAME/ports`) are those of this end, and include what
//! others send.

use linerate_host::counters::NicCounters;
use linerate_host::nic_control::NicRead;
use linerate_host::root::HostRoot;
use linerate_host::watch::Reading;
use linerate_host::watch::scope::WatchScope;
use linerate_model::ids::{CpuSet, NicName};
use linerate_model::known::{Cause, Gap, Known};
use linerate_model::latency::Histogram;
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::watch::Watch;
use linerate_runtime::endpoint::trial::{PeerPath, source_towards};
use linerate_traffic::mover::{Carried, Work};
use serde::Serialize;

/// The kernel's name of the loopback interface (drivers/net/loopback.c).
const LOOPBACK: &str = "lo";
/// The headers of a packet without options: Ethernet, IPv4, TCP.
const HEADERS_BYTES: u64 = 14 + 20 + 20;
/// The largest RDMA path MTU (InfiniBand Architecture Specification, MTU).
const RDMA_PACKET_BYTES_MAX: u64 = 4_096;
/// A part of the payload that the kernel's TCP may carry without being what was measured: the library's own handshake.
/// linerate's own bound.
const HANDSHAKE_SHARE: u64 = 100;

/// Which counters account for most of the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(super) enum CarriedBy {
    /// The kernel's TCP, or its interface.
    Kernel,
    /// The RDMA ports of the interface.
    Rdma,
    /// Neither: a bypass that no counter of this host shows.
    Neither,
}

/// The payload of a trial, in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Payload {
    pub(super) bytes: u64,
    /// Messages, each of which is at least one packet; none of a stream.
    pub(super) messages: u64,
}

impl Payload {
    pub(super) fn of(near: &Carried, work: &Work) -> Self {
        let round_trips = match work {
            Work::Stream { .. } => 0,
            Work::Requests { .. } => near.latency.as_ref().map_or(0, Histogram::count),
            Work::Pingpong { .. } => near.sizes.iter().map(|size| size.repetitions).sum(),
        };
        Self {
            bytes: near.bytes.saturating_add(near.bytes_back),
            messages: round_trips.saturating_mul(2),
        }
    }

    /// The minimum on the wire.
    fn on_wire(self) -> u64 {
        self.bytes
            .saturating_add(self.messages.saturating_mul(HEADERS_BYTES))
    }
}

/// Reads the counters of the path at this end.
pub(super) struct Meter<'a> {
    root: &'a HostRoot,
    nics: &'a dyn NicRead,
    /// What has the address that the data is sent from.
    scope: Known<WatchScope>,
    interface: Known<NicName>,
}

/// The counters at one time.
pub(super) struct Counts {
    interface: Known<NicCounters>,
    all: Reading,
}

impl<'a> Meter<'a> {
    pub(super) fn of(path: &'a PeerPath) -> Self {
        let (root, nics) = (path.endpoint.root(), path.endpoint.nics());
        let own = source_towards(path.address);
        // A host reaches its own addresses by the loopback interface.
        let is_loop = own.as_ref().is_ok_and(|own| *own == path.address);
        let scope = match own {
            Ok(own) => {
                let scope = WatchScope::find(root, nics, own, CpuSet::default());
                Known::Value(scope.with_rdma(root, &[]))
            }
            Err(error) => Known::unknown(
                Cause::Unreadable,
                "connect(SOCK_DGRAM)",
                format!("no own address towards {}: {error}", path.address),
            ),
        };
        let loopback = is_loop.then(|| LOOPBACK.parse().ok()).flatten();
        let interface = match loopback {
            Some(nic) => Known::Value(nic),
            None => scope.clone().and_then(|scope| scope.interface()),
        };
        Self {
            root,
            nics,
            scope,
            interface,
        }
    }

    pub(super) fn read(&self) -> Counts {
        let interface = self.interface.clone();
        Counts {
            interface: interface.and_then(|nic| NicCounters::read(self.root, &nic)),
            all: match &self.scope {
                Known::Value(scope) => scope.read(self.root, self.nics),
                Known::Unknown(_) => Reading::default(),
            },
        }
    }

    /// What the counters grew by from `before` to now, with the kernel's account of the connections.
    pub(super) fn accounts(&self, before: &Counts, ends: (&Carried, &Carried)) -> Accounts {
        let now = self.read();
        // Only growth is used, no rate.
        let watch = now.all.since(&before.all, Nanoseconds::new(0));
        let grown = now.interface.and_then(|now| {
            let before = before.interface.clone();
            before.map(|before| now.since(&before))
        });
        let interface_bytes = grown.and_then(|grown| {
            let of = |name: &str| {
                let missing = || Known::not_asked(format!("/sys/class/net/*/statistics/{name}"));
                grown.get(name).cloned().unwrap_or_else(missing)
            };
            both(of("rx_bytes"), of("tx_bytes"))
        });
        let ports = ports_in(&watch);
        let of_ports = |names: [&str; 2]| {
            let keys = ports
                .iter()
                .flat_map(|port| names.map(|name| format!("rdma/{port}/{name}")));
            let all = keys.map(|key| watch.grown(&key)).reduce(both);
            all.unwrap_or_else(|| {
                let why = "the interface has no RDMA device";
                Known::unknown(Cause::Absent, "/sys/class/infiniband", why)
            })
        };
        Accounts {
            kernel_tcp: kernel_tcp(ends),
            interface: self.interface.clone().map(|nic| nic.to_string()),
            interface_bytes,
            rdma_bytes: of_ports(["counter/port_xmit_data", "counter/port_rcv_data"]),
            rdma_packets: of_ports(["hw/sent_pkts", "hw/rcvd_pkts"]),
            ports,
        }
    }
}

/// The larger account of both ends; both count both directions.
fn kernel_tcp((near, far): (&Carried, &Carried)) -> Option<Known<u64>> {
    match (&near.by_kernel, &far.by_kernel) {
        (Some(Known::Value(near)), Some(Known::Value(far))) => Some(Known::Value(*near.max(far))),
        (Some(gap @ Known::Unknown(_)), _) | (_, Some(gap @ Known::Unknown(_))) => {
            Some(gap.clone())
        }
        (one, other) => one.clone().or(other.clone()),
    }
}

fn both(one: Known<u64>, other: Known<u64>) -> Known<u64> {
    one.and_then(|one| other.map(|other| one.saturating_add(other)))
}

/// `mlx5_0/1` of each RDMA port that was read.
fn ports_in(watch: &Watch) -> Vec<String> {
    let keys = watch.counters.keys().chain(watch.gaps.keys());
    let mut ports: Vec<String> = keys
        .filter_map(|key| {
            let mut words = key.strip_prefix("rdma/")?.split('/');
            Some(format!("{}/{}", words.next()?, words.next()?))
        })
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// The growth of every counter that may account for the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Accounts {
    /// Of the connections; none if the kernel's TCP has none of them.
    pub(super) kernel_tcp: Option<Known<u64>>,
    pub(super) interface: Known<String>,
    pub(super) interface_bytes: Known<u64>,
    pub(super) ports: Vec<String>,
    pub(super) rdma_bytes: Known<u64>,
    /// What soft-RoCE counts instead of bytes.
    pub(super) rdma_packets: Known<u64>,
}

impl Accounts {
    pub(super) fn carried_by(&self, payload: Payload) -> CarriedBy {
        if self.is_left_to_tcp(payload) {
            CarriedBy::Kernel
        } else if self.is_rdmas(payload) {
            CarriedBy::Rdma
        } else if self.is_interfaces(payload) {
            CarriedBy::Kernel
        } else {
            CarriedBy::Neither
        }
    }

    /// By the kernel's own account of the connections.
    pub(super) fn is_left_to_tcp(&self, payload: Payload) -> bool {
        match &self.kernel_tcp {
            None => false,
            Some(Known::Value(bytes)) => bytes.saturating_mul(HANDSHAKE_SHARE) >= payload.bytes,
            Some(Known::Unknown(_)) => true,
        }
    }

    /// The packets of soft-RoCE pass the interface too, so this comes before that.
    fn is_rdmas(&self, payload: Payload) -> bool {
        let counts = |known: &Known<u64>, enough: &dyn Fn(u64) -> bool| match known {
            Known::Value(some) => *some > 0 && enough(*some),
            Known::Unknown(_) => false,
        };
        let by_bytes = |bytes: u64| bytes.saturating_mul(2) >= payload.on_wire();
        let by_packets = |packets: u64| {
            let most = packets.saturating_mul(RDMA_PACKET_BYTES_MAX);
            packets >= payload.messages && most >= payload.bytes
        };
        counts(&self.rdma_bytes, &by_bytes) || counts(&self.rdma_packets, &by_packets)
    }

    fn is_interfaces(&self, payload: Payload) -> bool {
        match &self.interface_bytes {
            Known::Value(bytes) => bytes.saturating_mul(2) >= payload.on_wire(),
            Known::Unknown(_) => false,
        }
    }

    /// Why the payload is not the library's, if the kernel carried it: a fragment, with the share.
    pub(super) fn left(&self, payload: Payload) -> Option<String> {
        if self.carried_by(payload) != CarriedBy::Kernel {
            return None;
        }
        if self.is_left_to_tcp(payload) {
            return Some(match &self.kernel_tcp {
                Some(Known::Value(bytes)) => format!(
                    "left {} of the bytes to the kernel's TCP",
                    percent(*bytes, payload.bytes)
                ),
                _ => "left connections to the kernel's TCP".to_owned(),
            });
        }
        let bytes = self.interface_bytes.clone().map(|bytes| {
            let share = percent(bytes, payload.on_wire());
            let of = Bytes::new(payload.on_wire());
            format!(
                "left {share} of the bytes to the kernel's TCP: its interface {} carried {} of {of}",
                self.interface_name(),
                Bytes::new(bytes)
            )
        });
        match bytes {
            Known::Value(text) => Some(text),
            Known::Unknown(_) => None,
        }
    }

    fn interface_name(&self) -> &str {
        match &self.interface {
            Known::Value(name) => name,
            Known::Unknown(_) => "(unknown)",
        }
    }

    /// Every count, for the text.
    pub(super) fn in_words(&self) -> String {
        let bytes = |known: &Known<u64>| match known {
            Known::Value(bytes) => Bytes::new(*bytes).to_string(),
            Known::Unknown(_) => "unknown".to_owned(),
        };
        let tcp = match &self.kernel_tcp {
            None => "has no connection".to_owned(),
            Some(known) => bytes(known),
        };
        let mut parts = vec![
            format!("kernel TCP {tcp}"),
            format!("{} {}", self.interface_name(), bytes(&self.interface_bytes)),
        ];
        let ports = self.ports.join(", ");
        match (&self.rdma_bytes, &self.rdma_packets) {
            _ if ports.is_empty() => parts.push("no RDMA device".to_owned()),
            (Known::Value(_), _) => parts.push(format!("{ports} {}", bytes(&self.rdma_bytes))),
            (_, Known::Value(packets)) => parts.push(format!("{ports} {packets} packets")),
            _ => parts.push(format!("{ports} unknown")),
        }
        parts.join(", ")
    }

    pub(super) fn document(&self) -> AccountsDocument {
        let none = Known::unknown(
            Cause::Absent,
            "getsockopt(TCP_INFO)",
            "no connection has an account of the kernel's TCP",
        );
        let mut gaps = Vec::new();
        let mut known = |value: &Known<u64>| match value {
            Known::Value(value) => Some(*value),
            Known::Unknown(gap) => {
                gaps.push(gap.clone());
                None
            }
        };
        AccountsDocument {
            kernel_tcp_bytes: known(self.kernel_tcp.as_ref().unwrap_or(&none)),
            interface_bytes: known(&self.interface_bytes),
            rdma_bytes: known(&self.rdma_bytes),
            rdma_packets: known(&self.rdma_packets),
            interface: match &self.interface {
                Known::Value(name) => Some(name.clone()),
                Known::Unknown(_) => None,
            },
            rdma_ports: self.ports.clone(),
            gaps,
        }
    }
}

/// The growth of the counters at this end during the trial, both directions together.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct AccountsDocument {
    /// What the kernel's TCP carried of the connections, by its `struct tcp_info`; null if none of them has one.
    kernel_tcp_bytes: Option<u64>,
    /// The interface of the path.
    interface: Option<String>,
    /// Its `rx_bytes` and `tx_bytes`. The traffic of other programs is included.
    interface_bytes: Option<u64>,
    /// The RDMA ports of the interface.
    rdma_ports: Vec<String>,
    /// Their `port_xmit_data` and `port_rcv_data`, in bytes.
    rdma_bytes: Option<u64>,
    /// Their `sent_pkts` and `rcvd_pkts`, which soft-RoCE counts instead of bytes.
    rdma_packets: Option<u64>,
    /// Why a count is null.
    gaps: Vec<Gap>,
}

fn percent(part: u64, whole: u64) -> String {
    let share = u128::from(part) * 100 / u128::from(whole.max(1));
    format!("{} %", share.min(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: Payload = Payload {
        bytes: 1_000_000,
        messages: 0,
    };
    /// A hundred thousand round trips of one byte.
    const SMALL: Payload = Payload {
        bytes: 200_000,
        messages: 200_000,
    };

    fn accounts(tcp: Option<u64>, nic: u64, rdma: Option<u64>, packets: Option<u64>) -> Accounts {
        let known = |value: Option<u64>| match value {
            Some(value) => Known::Value(value),
            None => Known::unknown(Cause::Absent, "/sys/class/infiniband", "no such counter"),
        };
        Accounts {
            kernel_tcp: tcp.map(Known::Value),
            interface: Known::Value("eth0".to_owned()),
            interface_bytes: Known::Value(nic),
            ports: Vec::new(),
            rdma_bytes: known(rdma),
            rdma_packets: known(packets),
        }
    }

    #[test]
    fn the_counters_that_cover_the_payload_name_what_carried_it() {
        use CarriedBy::{Kernel, Neither, Rdma};
        for (expected, payload, accounts) in [
            // The kernel's TCP, all of it and one connection of many.
            (
                Kernel,
                STREAM,
                accounts(Some(1_000_024), 1_050_000, None, None),
            ),
            (
                Kernel,
                STREAM,
                accounts(Some(20_000), 20_500, Some(1_000_000), None),
            ),
            // An HCA, and an unused socket of the kernel beside it.
            (Rdma, STREAM, accounts(None, 3_000, Some(1_100_000), None)),
            (
                Rdma,
                STREAM,
                accounts(Some(0), 3_000, Some(1_100_000), None),
            ),
            // Soft-RoCE: its packets pass the interface.
            (Rdma, STREAM, accounts(None, 1_100_000, None, Some(1_000))),
            (Kernel, STREAM, accounts(None, 1_100_000, None, Some(10))),
            // Hidden sockets of the kernel.
            (Kernel, STREAM, accounts(None, 1_100_000, None, None)),
            (Kernel, STREAM, accounts(None, 1_100_000, Some(0), Some(0))),
            // A bypass that nothing counts.
            (Neither, STREAM, accounts(None, 3_000, Some(100), None)),
            // A byte of payload is a packet with headers: more bytes of others than that are not the payload's.
            (Neither, SMALL, accounts(None, 300_000, None, None)),
            (Kernel, SMALL, accounts(None, 13_200_000, None, None)),
            (Rdma, SMALL, accounts(None, 0, Some(12_000_000), None)),
            (Rdma, SMALL, accounts(None, 20_000_000, None, Some(200_000))),
            (Neither, SMALL, accounts(None, 0, None, Some(3_000))),
        ] {
            assert_eq!(
                accounts.carried_by(payload),
                expected,
                "{payload:?} {accounts:?}"
            );
            assert_eq!(accounts.left(payload).is_some(), expected == Kernel);
        }
    }

    #[test]
    fn what_was_left_to_the_kernel_is_a_share_of_the_payload() {
        let left = |accounts: Accounts| accounts.left(STREAM).expect("left");
        let some = left(accounts(Some(250_000), 0, None, None));
        assert_eq!(some, "left 25 % of the bytes to the kernel's TCP");
        let hidden = left(accounts(None, 2_000_000, None, None));
        assert!(
            hidden.contains("left 100 %") && hidden.contains("eth0 carried"),
            "{hidden}"
        );
    }

    #[test]
    fn a_count_that_was_not_read_is_null_with_its_cause() {
        let unread = Accounts {
            kernel_tcp: None,
            interface_bytes: Known::not_asked("/sys/class/net/eth0/statistics"),
            ..accounts(None, 0, None, Some(7))
        };
        assert_eq!(unread.carried_by(STREAM), CarriedBy::Neither);
        let document = serde_json::to_value(unread.document()).expect("plain data");
        assert!(document["interface_bytes"].is_null() && document["rdma_bytes"].is_null());
        assert!(document["kernel_tcp_bytes"].is_null());
        assert_eq!(document["rdma_packets"], 7);
        assert_eq!(document["gaps"].as_array().map(Vec::len), Some(3));
        assert!(
            unread.in_words().contains("eth0 unknown"),
            "{}",
            unread.in_words()
        );
    }
}
