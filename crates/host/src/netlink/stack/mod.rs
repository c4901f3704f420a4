//! An interface's relations to others, over rtnetlink: its limits, its upper interfaces, its kind-specific data, and
//! its virtual functions (`<linux/if_link.h>`).

use std::collections::{BTreeMap, BTreeSet};

use linerate_model::host::{Stack, VirtualFunction};
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Gap, Known};
use linerate_model::units::{BitRate, Bytes};

use super::error::Failure;
use super::kinds::{self, Names};
use super::link::{self, LINK_HEADER_BYTES};
use super::message::{Attributes, Request, u32_at};
use super::response::{ResponseAttributes, numbers};
use super::socket::Connection;
use super::team::Place;
use super::{NO_KERNEL, Netlink, lock};
use crate::nic_control::NO_VLAN;
use linerate_model::setting::numbers::link as numbers;

pub(super) const PROMISCUITY: u16 = 30;
pub(super) const NUMBER_OF_VF: u16 = 21;
pub(super) const VF_LIST: u16 = 22;
pub(super) const EXT_MASK: u16 = 29;
pub(super) const LINK_NETNSID: u16 = 37;
pub(super) const XDP: u16 = 43;
pub(super) const MAX_MTU: u16 = 51;
pub(super) const TSO_MAX: u16 = 59;

pub(super) const INFO_DATA: u16 = 2;
pub(super) const INFO_PORT_KIND: u16 = 4;
pub(super) const INFO_PORT_DATA: u16 = 5;

pub(super) const XDP_ATTACHED: u16 = 2;

pub(super) const VF_INFO: u16 = 1;
pub(super) const VF_MAC: u16 = 1;
pub(super) const VF_VLAN: u16 = 2;
pub(super) const VF_TX_RATE: u16 = 3;
pub(super) const VF_SPOOF_CHECK: u16 = 4;
pub(super) const VF_LINK_STATE: u16 = 5;
pub(super) const VF_RATE: u16 = 6;
pub(super) const VF_TRUST: u16 = 9;

const TEAM: &str = "team";
const VLAN: &str = "vlan";

/// `RTEXT_FILTER_VF`: with virtual functions.
const WITH_VF: u32 = 1;
/// `RTEXT_FILTER_SKIP_STATS`: without counters.
const WITHOUT_COUNTERS: u32 = 8;
/// The maximum number of virtual functions read: more than PCI allows per function.
const VF_MAX: usize = 65_536;

impl Netlink {
    /// [`crate::nic_control::NicRead::stack`].
    pub(super) fn stack_of_route(&self, nic: &NicName) -> Stack {
        let path = format!("netlink/route/{nic}");
        let answers = read(&mut lock(&self.route), nic);
        match answers {
            Ok(answers) => {
                let mut stack = answers.stack(&path);
                if let Some(place) = answers.team() {
                    self.fill_stack_by_team(nic, &place, &answers.names(), &mut stack);
                }
                stack
            }
            Err(failure) => unknown(&failure.into_gap(format!("{path}/stack"), NO_KERNEL)),
        }
    }
}

/// The kernel's response about one interface.
struct Answers {
    own: Vec<u8>,
    /// The same with virtual functions. A long list of them does not fit in an attribute and breaks the whole
    /// response, so they are requested separately.
    with_vf: Result<Vec<u8>, Failure>,
    all: Vec<Row>,
}

/// One interface in a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    index: u32,
    name: NicName,
    /// Its lower interface, if that is in this namespace.
    link: Option<u32>,
}

fn read(connection: &mut Connection, nic: &NicName) -> Result<Answers, Failure> {
    let own = link::ask(connection, nic, |_| ())?;
    let with_vf = link::ask(connection, nic, |request| {
        request.put_u32(EXT_MASK, WITH_VF);
    });
    let mut list = Request::new(libc::RTM_GETLINK, &link::link_header(0, 0, 0));
    list.put_u32(EXT_MASK, WITHOUT_COUNTERS);
    let mut all = Vec::new();
    for answer in connection.dump(&list)? {
        if answer.kind == libc::RTM_NEWLINK {
            all.extend(parse_row(&answer.body)?);
        }
    }
    Ok(Answers { own, with_vf, all })
}

/// One interface in a dump; `None` for a name that linerate does not accept.
fn parse_row(body: &[u8]) -> Result<Option<Row>, Failure> {
    let attributes = Attributes::after(body, LINK_HEADER_BYTES)?;
    let name = attributes.text(libc::IFLA_IFNAME)?;
    let Some(name) = name.and_then(|name| name.parse().ok()) else {
        return Ok(None);
    };
    let info = attributes.nest(libc::IFLA_LINKINFO)?;
    let kind = info.text(libc::IFLA_INFO_KIND)?.unwrap_or_default();
    let is_elsewhere = attributes.bytes(LINK_NETNSID).is_some();
    let link = match kind.as_str() {
        // For these, `IFLA_LINK` is the peer.
        "veth" | "netkit" | "vxcan" => None,
        _ if is_elsewhere => None,
        "vxlan" => info.nest(INFO_DATA)?.u32(kinds::VXLAN_LINK)?,
        _ => attributes.u32(libc::IFLA_LINK)?,
    };
    let index = u32_at(body, 4)?;
    Ok(Some(Row {
        index,
        name,
        link: link.filter(|link| *link != index && *link != 0),
    }))
}

impl Answers {
    fn names(&self) -> Names {
        let rows = self.all.iter();
        rows.map(|row| (row.index, row.name.clone())).collect()
    }

    /// The team that it is, or is a port of.
    fn team(&self) -> Option<Place> {
        let said = ResponseAttributes::after(&self.own, LINK_HEADER_BYTES, "", NO_KERNEL);
        let info = said.nest(libc::IFLA_LINKINFO, "");
        let is_team = |kind| info.text(kind, "").value().is_some_and(|kind| kind == TEAM);
        let own = u32_at(&self.own, 4).ok()?;
        if is_team(libc::IFLA_INFO_KIND) {
            return Some(Place {
                team: own,
                port: None,
            });
        }
        let master = said.u32(libc::IFLA_MASTER, "").get();
        master
            .filter(|_| is_team(INFO_PORT_KIND))
            .map(|team| Place {
                team,
                port: Some(own),
            })
    }

    fn stack(&self, path: &str) -> Stack {
        let said = ResponseAttributes::after(&self.own, LINK_HEADER_BYTES, path, NO_KERNEL);
        let names = self.names();
        let index = u32_at(&self.own, 4).unwrap_or_default();
        let master = said.u32(libc::IFLA_MASTER, "master");
        let mut stack = sizes(&said);
        stack.upper = Known::Value(upper(&self.all, &names, index, master.get()));
        stack.virtual_functions = match &self.with_vf {
            Ok(body) => virtual_functions(body, path),
            Err(failure) => {
                said.missing(Cause::Unreadable, "virtual-functions", &failure.to_string())
            }
        };
        by_kind(&said, &names, master, &mut stack);
        stack
    }
}

/// The upper interfaces of `index`: its master, and interfaces with it as `IFLA_LINK`.
fn upper(all: &[Row], names: &Names, index: u32, master: Option<u32>) -> Vec<NicName> {
    let on_it = all.iter().filter(|row| row.link == Some(index));
    let indices: BTreeSet<u32> = on_it.map(|row| row.index).chain(master).collect();
    let named = indices.iter().filter_map(|index| names.get(index));
    named.cloned().collect()
}

/// The attribute of a size limit.
/// A VLAN's egress map: the PCP of each socket priority.
pub(super) fn vlan_egress(
    connection: &mut Connection,
    nic: &NicName,
) -> Result<Known<Vec<(u32, u32)>>, Failure> {
    let answer = link::ask(connection, nic, |_| ())?;
    Ok(egress_of(&answer, nic))
}

fn egress_of(answer: &[u8], nic: &NicName) -> Known<Vec<(u32, u32)>> {
    let path = format!("netlink/route/{nic}/vlan");
    let said = ResponseAttributes::after(answer, LINK_HEADER_BYTES, &path, NO_KERNEL);
    let info = said.nest(libc::IFLA_LINKINFO, "info");
    let kind = info.text(libc::IFLA_INFO_KIND, "kind");
    if kind.value().is_none_or(|kind| kind != VLAN) {
        return said.missing(Cause::Absent, "egress-qos", NO_VLAN);
    }
    kinds::vlan(&info.nest(INFO_DATA, "data")).egress
}

/// Sets that map to `wanted`. The kernel only adds mappings and overwrites them: an unwanted one is mapped to 0,
/// which the kernel then does not report.
pub(super) fn set_vlan_egress(
    connection: &mut Connection,
    nic: &NicName,
    wanted: &BTreeMap<u32, u32>,
) -> Result<(), Failure> {
    let answer = link::ask(connection, nic, |_| ())?;
    let present = match egress_of(&answer, nic) {
        Known::Value(present) => present,
        Known::Unknown(gap) => return Err(Failure::BadInput(gap.reason)),
    };
    let request = new_egress(u32_at(&answer, 4)?, &present, wanted);
    connection.ask(&request).map(drop)
}

fn new_egress(index: u32, present: &[(u32, u32)], wanted: &BTreeMap<u32, u32>) -> Request {
    let mut map: BTreeMap<u32, u32> = present.iter().map(|(from, _)| (*from, 0)).collect();
    map.extend(wanted);
    // RTM_SETLINK ignores the kind-specific data; RTM_NEWLINK for an existing link does not.
    let mut request = Request::new(libc::RTM_NEWLINK, &link::link_header(index, 0, 0));
    request.nest(libc::IFLA_LINKINFO, |info| {
        info.put_text(libc::IFLA_INFO_KIND, VLAN);
        info.nest(INFO_DATA, |data| {
            data.nest(kinds::VLAN_EGRESS, |egress| {
                for (from, to) in map {
                    let pair = [from.to_ne_bytes(), to.to_ne_bytes()].concat();
                    egress.put(kinds::VLAN_QOS_MAPPING, &pair);
                }
            });
        });
    });
    request
}

fn sizes(said: &ResponseAttributes<'_>) -> Stack {
    let bytes = |kind, what: &str| said.u32(kind, what).map(|size| Bytes::new(size.into()));
    Stack {
        mtu_max: said.u32(MAX_MTU, "max-mtu").and_then(|most| match most {
            0 => said.missing(Cause::NotSaid, "max-mtu", "the driver reports no limit"),
            most => Known::Value(most),
        }),
        gso_max_bytes: bytes(numbers::GSO_MAX_SIZE, "gso-max-size"),
        gso_ipv4_max_bytes: bytes(numbers::GSO_IPV4_MAX_SIZE, "gso-ipv4-max-size"),
        gro_max_bytes: bytes(numbers::GRO_MAX_SIZE, "gro-max-size"),
        gro_ipv4_max_bytes: bytes(numbers::GRO_IPV4_MAX_SIZE, "gro-ipv4-max-size"),
        tso_max_bytes: bytes(TSO_MAX, "tso-max-size"),
        tx_queue_len: said.u32(libc::IFLA_TXQLEN, "txqlen"),
        promiscuity: said.u32(PROMISCUITY, "promiscuity"),
        xdp: xdp(said),
        ..Stack::default()
    }
}

/// How an XDP program is attached (`XDP_ATTACHED_*`); `several` if more than one is.
fn xdp(said: &ResponseAttributes<'_>) -> Known<String> {
    const WORDS: [&str; 5] = ["none", "native", "generic", "offloaded", "several"];
    let attached = said.nest(XDP, "xdp").u8(XDP_ATTACHED, "attached");
    said.word(attached, "xdp/attached", &WORDS)
}

fn by_kind(said: &ResponseAttributes<'_>, names: &Names, master: Known<u32>, stack: &mut Stack) {
    let info = said.nest(libc::IFLA_LINKINFO, "info");
    let kind = info.text(libc::IFLA_INFO_KIND, "kind");
    let data = info.nest(INFO_DATA, "data");
    match kind.value().map(String::as_str) {
        Some("bond") => stack.bond = Some(kinds::bond(&data, names)),
        Some(VLAN) => stack.vlan = Some(kinds::vlan(&data)),
        Some("bridge") => stack.bridge = Some(kinds::bridge(&data)),
        Some("ipoib") => {
            stack.ipoib_mode = Some(kinds::ipoib_mode(&data));
            stack.ipoib_connected = Some(kinds::ipoib_connected(said));
        }
        Some("tun") => stack.tun = Some(kinds::tun(&data)),
        Some(kind @ ("macvlan" | "macvtap" | "ipvlan" | "ipvtap")) => {
            stack.macvlan_mode = Some(kinds::macvlan_mode(kind, &data));
        }
        Some(kind) => stack.tunnel = kinds::tunnel(kind, &data, names),
        None => {}
    }
    let port_kind = info.text(INFO_PORT_KIND, "port-kind");
    // The data of a team's port come from the team family.
    if port_kind.value().is_some_and(|kind| kind == "bond") {
        let data = info.nest(INFO_PORT_DATA, "port");
        let bond = kinds::named(said, names, master, "master");
        stack.bond_port = Some(kinds::bond_port(&data, bond));
    }
}

/// The virtual functions of a response to a request with them.
fn virtual_functions(body: &[u8], path: &str) -> Known<Vec<VirtualFunction>> {
    const WHAT: &str = "virtual-functions";
    let said = ResponseAttributes::after(body, LINK_HEADER_BYTES, path, NO_KERNEL);
    let number = said.fact(WHAT, |attributes| {
        Ok(Some(attributes.u32(NUMBER_OF_VF)?.unwrap_or(0)))
    });
    number.and_then(|number| {
        let list = said.nest(VF_LIST, WHAT);
        let infos = list.iter().filter(|(kind, _)| *kind == VF_INFO);
        let found: Result<Vec<_>, Failure> = infos
            .take(VF_MAX)
            .map(|(_, info)| parse_vf(info, path))
            .collect();
        match found {
            Ok(found) if u32::try_from(found.len()) == Ok(number) => Known::Value(found),
            Ok(found) => {
                let why = format!("the kernel lists {} of {number}", found.len());
                said.missing(Cause::Unreadable, WHAT, &why)
            }
            Err(failure) => said.missing(Cause::Unreadable, WHAT, &failure.to_string()),
        }
    })
}

/// One virtual function; each of its attributes repeats its index before the value.
fn parse_vf(info: &[u8], path: &str) -> Result<VirtualFunction, Failure> {
    let attributes = Attributes::parse(info)?;
    let index = attributes
        .bytes(VF_MAC)
        .or_else(|| attributes.bytes(VF_VLAN))
        .ok_or(Failure::Malformed("a virtual function has no index"))?;
    let index = u32_at(index, 0)?;
    let path = format!("{path}/virtual-functions/{index}");
    let said = ResponseAttributes::after(info, 0, &path, "not reported by the driver");
    let pair = |kind, what: &str| {
        said.fact(what, |attributes| {
            let pair = attributes.bytes(kind).map(numbers::<2>).transpose()?;
            Ok(pair.map(|[_, value]| value))
        })
    };
    let switch = |kind, what: &str| {
        pair(kind, what).and_then(|value| match value {
            u32::MAX => said.missing(Cause::NotSaid, what, "not reported by the driver"),
            value => Known::Value(value != 0),
        })
    };
    let (min, max) = vf_rates(&said);
    let state = pair(VF_LINK_STATE, "link-state").map(|word| u8::try_from(word).unwrap_or(u8::MAX));
    Ok(VirtualFunction {
        index,
        max_bit_per_s: rate(&said, max, "max-tx-rate", "it has no limit"),
        min_bit_per_s: rate(&said, min, "min-tx-rate", "it is given no share"),
        link_state: said.word(state, "link-state", &["auto", "enable", "disable"]),
        spoof_check: switch(VF_SPOOF_CHECK, "spoof-check"),
        trusted: switch(VF_TRUST, "trust"),
        vlan: pair(VF_VLAN, "vlan"),
    })
}

/// The minimum and maximum transmit rate, Mb/s; old drivers report only the maximum.
fn vf_rates(said: &ResponseAttributes<'_>) -> (Known<u32>, Known<u32>) {
    let both = said.fact("rate", |attributes| {
        attributes.bytes(VF_RATE).map(numbers::<3>).transpose()
    });
    match both {
        Known::Value([_, min, max]) => (Known::Value(min), Known::Value(max)),
        Known::Unknown(gap) => {
            let most = said.fact("tx-rate", |attributes| {
                attributes.bytes(VF_TX_RATE).map(numbers::<2>).transpose()
            });
            (Known::Unknown(gap), most.map(|[_, rate]| rate))
        }
    }
}

fn rate(said: &ResponseAttributes<'_>, mbit: Known<u32>, what: &str, none: &str) -> Known<BitRate> {
    mbit.and_then(|mbit| match mbit {
        0 => said.missing(Cause::NotSaid, what, none),
        mbit => Known::Value(BitRate::from_mbit_per_s(mbit.into())),
    })
}

/// Nothing is known.
fn unknown(gap: &Gap) -> Stack {
    Stack {
        mtu_max: Known::Unknown(gap.clone()),
        gso_max_bytes: Known::Unknown(gap.clone()),
        gso_ipv4_max_bytes: Known::Unknown(gap.clone()),
        gro_max_bytes: Known::Unknown(gap.clone()),
        gro_ipv4_max_bytes: Known::Unknown(gap.clone()),
        tso_max_bytes: Known::Unknown(gap.clone()),
        tx_queue_len: Known::Unknown(gap.clone()),
        xdp: Known::Unknown(gap.clone()),
        promiscuity: Known::Unknown(gap.clone()),
        virtual_functions: Known::Unknown(gap.clone()),
        ..Stack::default()
    }
}

#[cfg(test)]
mod tests;
