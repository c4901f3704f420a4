//! The UDP tunnel ports offloaded by the NIC (`ETHTOOL_MSG_TUNNEL_INFO_GET`).

use linerate_model::host::TunnelPort;
use linerate_model::ids::NicName;

use super::{Command, Ethtool};
use crate::netlink::error::Failure;
use crate::netlink::message::Attributes;

pub(super) const UDP_PORTS: u16 = 2;
pub(super) const TABLE: u16 = 1;
pub(super) const ENTRY: u16 = 3;
pub(super) const ENTRY_PORT: u16 = 1;
pub(super) const ENTRY_TYPE: u16 = 2;

impl Ethtool {
    /// The NIC's tunnel ports.
    pub(super) fn tunnel_ports(&mut self, nic: &NicName) -> Result<Vec<TunnelPort>, Failure> {
        self.read(Command::TunnelInfoGet, nic, parse_tunnel_ports)
    }
}

pub(super) fn parse_tunnel_ports(attributes: &Attributes<'_>) -> Result<Vec<TunnelPort>, Failure> {
    let mut ports = Vec::new();
    for table in nests(&attributes.nest(UDP_PORTS)?, TABLE) {
        for entry in nests(&table?, ENTRY) {
            let entry = entry?;
            // The port is in network byte order.
            let port = entry.bytes(ENTRY_PORT).and_then(<[u8]>::first_chunk);
            if let (Some(port), Some(kind)) = (port, entry.u32(ENTRY_TYPE)?) {
                ports.push(TunnelPort {
                    port: u32::from(u16::from_be_bytes(*port)),
                    kind: kind_name(kind),
                });
            }
        }
    }
    Ok(ports)
}

/// Each nest of type `kind`: a list is a repeated attribute.
fn nests<'a>(
    attributes: &Attributes<'a>,
    kind: u16,
) -> impl Iterator<Item = Result<Attributes<'a>, Failure>> {
    attributes
        .iter()
        .filter(move |(own, _)| *own == kind)
        .map(|(_, payload)| Attributes::parse(payload))
}

/// `ETHTOOL_UDP_TUNNEL_TYPE_*`.
fn kind_name(kind: u32) -> String {
    match kind {
        0 => "vxlan",
        1 => "geneve",
        2 => "vxlan-gpe",
        kind => return format!("kind {kind}"),
    }
    .to_owned()
}
