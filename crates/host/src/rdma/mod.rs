//! RDMA data that sysfs does not have: MTUs and limits, from the device's uverbs node (`<rdma/ib_user_verbs.h>`), and
//! interfaces, counters and namespaces, from RDMA netlink (`<rdma/rdma_netlink.h>`).

use std::collections::BTreeMap;
use std::io;

use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Gap, Known};
use linerate_model::units::Bytes;
use serde::{Deserialize, Serialize};

pub(crate) mod sys;
pub(crate) mod uverbs;

/// The data of one RDMA device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RdmaAnswers {
    /// Its limits, by the names of `struct ib_device_attr`.
    #[serde(default)]
    pub limits: Known<BTreeMap<String, u64>>,
    /// How network namespaces share RDMA devices: `shared` or `exclusive`.
    #[serde(default)]
    pub netns_mode: Known<String>,
    /// Its ports, by number.
    #[serde(default)]
    pub ports: BTreeMap<u32, RdmaPortAnswers>,
}

/// The data of one port of an RDMA device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RdmaPortAnswers {
    /// The MTU in use, bytes.
    #[serde(default)]
    pub mtu_active: Known<Bytes>,
    /// The largest MTU, bytes.
    #[serde(default)]
    pub mtu_max: Known<Bytes>,
    /// Its limits, by the names of `struct ib_port_attr` (`max_msg_sz`, `gid_tbl_len` ...).
    #[serde(default)]
    pub limits: Known<BTreeMap<String, u64>>,
    /// The network interface of the same port.
    #[serde(default)]
    pub netdev: Known<NicName>,
    /// Its counters, by the driver's names.
    #[serde(default)]
    pub counts: Known<BTreeMap<String, u64>>,
    /// The indices of its GIDs that are set, ascending. A capture has the GIDs themselves, as files.
    #[serde(skip)]
    pub gids: Known<Vec<u32>>,
}

/// The character device for queries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name below `/dev/infiniband`: `uverbs0`.
    pub name: String,
    /// Its device number, major and minor.
    pub number: (u32, u32),
}

/// Queries RDMA devices: a live kernel, or a captured host. Devices that are not queried stay "not asked".
pub trait RdmaRead {
    /// Queries the device `name`, which sysfs lists with these `ports` and this `node`.
    fn rdma_device(&self, name: &str, ports: &[u32], _node: &Known<Node>) -> RdmaAnswers {
        RdmaAnswers::not_asked(name, ports)
    }

    /// The current counters of a port.
    fn rdma_counts(&self, device: &str, port: u32) -> Known<BTreeMap<String, u64>> {
        Known::not_asked(format!("netlink/rdma/{device}/{port}/counters"))
    }
}

/// No RDMA data available.
#[derive(Debug, Clone, Copy)]
pub struct NoRdma;

impl RdmaRead for NoRdma {}

impl RdmaAnswers {
    /// The data of a device that was not queried.
    pub fn not_asked(name: &str, ports: &[u32]) -> Self {
        let port = |port: u32| RdmaPortAnswers {
            mtu_active: Known::not_asked(format!("uverbs: active MTU of {name}/{port}")),
            mtu_max: Known::not_asked(format!("uverbs: largest MTU of {name}/{port}")),
            limits: Known::not_asked(format!("uverbs: limits of {name}/{port}")),
            netdev: Known::not_asked(format!("netlink/rdma/{name}/{port}/netdev")),
            counts: Known::not_asked(format!("netlink/rdma/{name}/{port}/counters")),
            gids: Known::not_asked(format!("uverbs: GIDs of {name}/{port}")),
        };
        Self {
            limits: Known::not_asked(format!("uverbs: limits of {name}")),
            netns_mode: Known::not_asked("netlink/rdma/netns"),
            ports: ports
                .iter()
                .map(|number| (*number, port(*number)))
                .collect(),
        }
    }
}

/// Queries a device's uverbs node for limits and MTUs, and adds them to `answers`.
pub(crate) fn ask_node(node: &Known<Node>, ports: &[u32], answers: &mut RdmaAnswers) {
    let opened = node.clone().and_then(|node| {
        let path = format!("/dev/infiniband/{}", node.name);
        match sys::Context::open(&path, node.number) {
            Ok(context) => Known::Value((context, path)),
            Err(error) => failed(&path, "open a context", &error),
        }
    });
    let opened = opened.ok();
    answers.limits = asked(&opened, sys::Context::device, uverbs::parse_device);
    let gids = asked(&opened, sys::Context::gids, uverbs::parse_gids);
    for port in ports {
        let said = asked(&opened, |context| context.port(*port), uverbs::parse_port);
        let answers = answers.ports.entry(*port).or_default();
        answers.fill(&said);
        let of_port = |gids: BTreeMap<u32, Vec<u32>>| gids.get(port).cloned().unwrap_or_default();
        answers.gids = gids.clone().map(of_port);
    }
}

fn asked<T>(
    opened: &Result<&(sys::Context, String), &Gap>,
    ask: impl FnOnce(&sys::Context) -> io::Result<Vec<u8>>,
    parse: impl FnOnce(&[u8]) -> Option<T>,
) -> Known<T> {
    let (context, path) = match opened {
        Ok((context, path)) => (context, path),
        Err(gap) => return Known::Unknown((*gap).clone()),
    };
    match ask(context) {
        Ok(bytes) => parse(&bytes).map_or_else(
            || {
                Known::unknown(
                    Cause::Unreadable,
                    path.as_str(),
                    "the response is truncated",
                )
            },
            Known::Value,
        ),
        Err(error) => failed(path, "query the device", &error),
    }
}

fn failed<T>(path: &str, what: &str, error: &io::Error) -> Known<T> {
    let cause = crate::root::gap(path, error).cause;
    Known::unknown(cause, path, format!("cannot {what}: {error}"))
}

impl RdmaPortAnswers {
    /// Adds the uverbs data of the port.
    fn fill(&mut self, said: &Known<uverbs::PortSaid>) {
        let mtu = |pick: fn(&uverbs::PortSaid) -> u8| {
            said.clone().and_then(|port| {
                let code = pick(&port);
                let not_said = || {
                    let reason = format!("{code} is not an MTU code");
                    Known::unknown(Cause::NotSaid, "/dev/infiniband", reason)
                };
                uverbs::mtu(code).map_or_else(not_said, Known::Value)
            })
        };
        self.mtu_active = mtu(|port| port.mtu_active);
        self.mtu_max = mtu(|port| port.mtu_max);
        self.limits = said.clone().map(|port| port.limits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_a_node_leaves_gaps_and_a_node_that_is_another_device_is_not_asked() {
        let absent = Known::unknown(Cause::Absent, "/sys/class/infiniband_verbs", "no node");
        let name = "uverbs-nobody".to_owned();
        let number = (231, 192);
        for node in [absent, Known::Value(Node { name, number })] {
            let mut answers = RdmaAnswers::default();
            ask_node(&node, &[1], &mut answers);
            let causes = [
                answers.limits.gap().map(|gap| gap.cause),
                answers.ports[&1].mtu_max.gap().map(|gap| gap.cause),
                answers.ports[&1].limits.gap().map(|gap| gap.cause),
            ];
            assert_eq!(causes, [Some(Cause::Absent); 3], "{answers:?}");
        }
        let error = sys::Context::open("/dev/null", number).expect_err("another device");
        assert!(error.to_string().contains("231:192"), "{error}");
    }
}
