//! The parts of netlink that linerate uses: rtnetlink for links, addresses and qdiscs, generic netlink for ethtool,
//! netdev, devlink and teams, and RDMA netlink.
//!
//! The codec is our own: the dozen messages we use need a few hundred lines, whereas the one crate that covers
//! ethtool's requests sends wrong command numbers (one of them starts a cable test), and linerate must read and
//! change a host safely. Every number is from the kernel's uapi headers, named in the file that uses it and checked
//! against them or the live kernel by tests.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use linerate_model::host::{
    Card, Channels, Coalesce, Dcb, Dispatch, Eee, Feature, Fec, LinkModes, NicKind, Pause, Qdisc,
    QueueCoalesce, Rings, Routing, Rss, Shaping, Stack, Wire,
};
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Known};
use linerate_model::setting::{ClassRule, EthtoolRequest, StaticAddress, VlanLink, numbers};

use self::error::Failure;
pub use self::error::NetlinkError;
use self::ethtool::Ethtool;
use self::families::Families;
use self::ioctl::Control;
pub use self::link::Interface;
use self::nldev::Nldev;
pub use self::nldev_make::{RdmaLink, RdmaLinks};
pub use self::qdisc::spec_without_filters;
pub use self::routing::Rule;
pub use self::shaping::{ClassCounts, class_name};
use self::socket::Connection;
use crate::nic_control::{Loss, NicCounts, NicRead, NicValue, NicWrite};
use crate::rdma::RdmaRead;

#[cfg(all(test, target_endian = "little"))]
pub(crate) mod captured;
mod class_rules;
mod dcb;
mod devlink;
mod error;
mod ethtool;
mod families;
pub(crate) mod flow_route;
#[cfg(test)]
mod headers;
mod hexadecimal;
mod ioctl;
mod kinds;
mod link;
mod make;
mod message;
pub(crate) mod monitor;
pub(crate) mod names;
mod netdev;
mod netfilter;
mod nf_tables;
mod nldev;
mod nldev_make;
pub(crate) mod notification;
mod paths;
mod qdisc;
mod qdisc_entry;
mod qdisc_options;
mod response;
mod routing;
#[cfg(any(test, feature = "fuzz"))]
mod script;
mod shaping;
mod socket;
mod stack;
mod static_addresses;
mod sys;
mod team;
mod vlan_link;

const NO_DRIVER: &str = "not supported by the driver";
const NO_KERNEL: &str = "not supported by this kernel";

/// The network namespace in which it was opened, accessible for as long as it is open. Its methods may be called from
/// any thread, one at a time.
#[derive(Debug)]
pub struct Netlink {
    route: Mutex<Connection>,
    ethtool: Mutex<Ethtool>,
    families: Mutex<Families>,
    control: Mutex<Control>,
    nldev: Mutex<Nldev>,
}

/// A panic during an exchange leaves at most unread responses, and those are skipped by their sequence number.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn known<T>(result: Result<T, Failure>, path: String, absent: &str) -> Known<T> {
    result.map_or_else(
        |failure| Known::Unknown(failure.into_gap(path, absent)),
        Known::Value,
    )
}

impl Netlink {
    /// Its socket is opened on demand: opening one makes the kernel load nfnetlink.
    fn netfilter<T>(ask: impl FnOnce(&mut Connection) -> Result<T, Failure>) -> Result<T, Failure> {
        let opened = Connection::open(Some(rustix::net::netlink::NETFILTER));
        opened
            .map_err(Failure::Socket)
            .and_then(|mut connection| ask(&mut connection))
    }

    /// Opens the sockets in the network namespace of this thread.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            route: Mutex::new(Connection::open(None)?), // protocol 0 is `NETLINK_ROUTE`
            ethtool: Mutex::new(Ethtool::open()?),
            families: Mutex::new(Families::open()?),
            control: Mutex::new(Control::open()?),
            nldev: Mutex::new(Nldev::open()),
        })
    }

    /// One whose sockets all read their responses from `bytes`, in order (`netlink/script.rs`).
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn scripted(bytes: &[u8]) -> io::Result<Self> {
        let script = || script::Script::new(bytes);
        Ok(Self {
            route: Mutex::new(Connection::scripted(script())?),
            ethtool: Mutex::new(Ethtool::scripted(script())?),
            families: Mutex::new(Families::scripted(script())?),
            control: Mutex::new(Control::scripted(script())?),
            nldev: Mutex::new(Nldev::scripted(script())?),
        })
    }

    fn read_route<T>(
        &self,
        nic: &NicName,
        what: &str,
        read: impl FnOnce(&mut Connection) -> Result<T, Failure>,
    ) -> Known<T> {
        let result = read(&mut lock(&self.route));
        known(result, format!("netlink/route/{nic}/{what}"), NO_KERNEL)
    }

    fn read_ethtool<T>(
        &self,
        nic: &NicName,
        what: &str,
        read: impl FnOnce(&mut Ethtool) -> Result<T, Failure>,
    ) -> Known<T> {
        let result = read(&mut lock(&self.ethtool));
        known(result, format!("netlink/ethtool/{nic}/{what}"), NO_DRIVER)
    }

    /// Sends an ioctl only after netlink has found the name: for an unknown name the ioctl would make the kernel load
    /// a module, and reading must change nothing.
    fn read_control<T>(
        &self,
        nic: &NicName,
        what: &str,
        read: impl FnOnce(&mut Control) -> Result<T, Failure>,
    ) -> Known<T> {
        let exists = link::read(&mut lock(&self.route), nic);
        let result = exists.and_then(|_| read(&mut lock(&self.control)));
        known(result, format!("ioctl/ethtool/{nic}/{what}"), NO_DRIVER)
    }
}

/// The interfaces of this thread's network namespace, with their identities.
pub(crate) fn interfaces() -> io::Result<Vec<Interface>> {
    let listed = link::identities(&mut Connection::open(None)?);
    listed.map_err(|failure| failure.during("list", "network interfaces"))
}

/// Parses `datagram` as a response, for the fuzz targets.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn take_apart(datagram: &[u8]) {
    for message in message::parse_messages(datagram).unwrap_or_default() {
        let _ = message::parse_outcome(&message);
        let _ = message::Attributes::parse(message.body);
    }
}

impl NicRead for Netlink {
    fn kind(&self, nic: &NicName) -> Known<NicKind> {
        let link = self.read_route(nic, "kind", |route| link::read(route, nic));
        link.and_then(|link| match link.kind {
            Some(kind) => Known::Value(kind),
            None => Known::unknown(
                Cause::NotSaid,
                format!("netlink/route/{nic}/kind"),
                "the kernel reports no link kind, as for physical devices",
            ),
        })
    }

    fn nft_rules(&self) -> Known<u64> {
        let counted = Self::netfilter(netfilter::count_rules);
        known(counted, "netlink/netfilter/rules".to_owned(), NO_KERNEL)
    }

    fn tracks_connections(&self) -> Known<bool> {
        let tracks = Self::netfilter(netfilter::tracks_connections);
        known(tracks, "netlink/netfilter/tables".to_owned(), NO_KERNEL)
    }

    fn routing(&self) -> Routing {
        paths::read(&mut lock(&self.route))
    }

    fn addresses(&self, nic: &NicName) -> Known<Vec<String>> {
        self.read_route(nic, "addresses", |route| {
            let link = link::read(route, nic)?;
            link::addresses(route, link.index)
        })
    }

    fn features(&self, nic: &NicName) -> Known<BTreeMap<String, Feature>> {
        self.read_ethtool(nic, "features", |ethtool| ethtool.features(nic))
    }

    fn rings(&self, nic: &NicName) -> Known<Rings> {
        self.read_ethtool(nic, "rings", |ethtool| ethtool.rings(nic))
    }

    fn channels(&self, nic: &NicName) -> Known<Channels> {
        self.read_ethtool(nic, "channels", |ethtool| ethtool.channels(nic))
    }

    fn coalesce(&self, nic: &NicName) -> Known<Coalesce> {
        self.read_ethtool(nic, "coalesce", |ethtool| ethtool.coalesce(nic))
    }

    fn qdisc(&self, nic: &NicName) -> Known<Qdisc> {
        self.read_route(nic, "qdisc", |route| qdisc::read(route, nic))
    }

    fn link_modes(&self, nic: &NicName) -> Known<LinkModes> {
        self.read_ethtool(nic, "modes", |ethtool| ethtool.modes(nic))
    }

    fn pause(&self, nic: &NicName) -> Known<Pause> {
        self.read_ethtool(nic, "pause", |ethtool| ethtool.pause(nic))
    }

    fn eee(&self, nic: &NicName) -> Known<Eee> {
        self.read_ethtool(nic, "eee", |ethtool| ethtool.eee(nic))
    }

    fn fec(&self, nic: &NicName) -> Known<Fec> {
        self.read_ethtool(nic, "fec", |ethtool| ethtool.fec(nic))
    }

    fn link_number(&self, nic: &NicName, attribute: u16) -> Option<Known<u32>> {
        let number = self.read_route(nic, "link", |route| link::number(route, nic, attribute));
        Some(number.and_then(|number| number))
    }

    fn dcb(&self, nic: &NicName) -> Known<Dcb> {
        dcb::read(&mut lock(&self.route), nic)
    }

    fn vlan_link(&self, nic: &NicName) -> Known<Option<VlanLink>> {
        self.read_route(nic, "vlan/link", |route| vlan_link::read(route, nic))
    }

    fn is_up(&self, nic: &NicName) -> Known<bool> {
        self.read_route(nic, "up", |route| vlan_link::is_up(route, nic))
    }

    fn static_addresses(&self, nic: &NicName) -> Known<Vec<StaticAddress>> {
        self.read_route(nic, "addresses", |route| static_addresses::read(route, nic))
    }

    fn class_rules(&self, nic: &NicName) -> Known<Vec<ClassRule>> {
        let exists = self.read_route(nic, "kind", |route| link::read(route, nic));
        exists.and_then(|_| {
            let rules = Self::netfilter(|connection| class_rules::read(connection, nic));
            known(rules, format!("netlink/netfilter/{nic}"), NO_KERNEL)
        })
    }

    fn lost_without(&self, nic: &NicName, what: Loss) -> Known<Option<String>> {
        self.read_route(nic, "routes", |route| match what {
            Loss::Device => vlan_link::lost_with(route, nic),
            Loss::Routes => vlan_link::lost_routes(route, nic),
        })
    }

    fn vlan_egress(&self, nic: &NicName) -> Known<Vec<(u32, u32)>> {
        self.read_route(nic, "vlan/egress", |route| stack::vlan_egress(route, nic))
            .and_then(|map| map)
    }

    fn rss(&self, nic: &NicName) -> Known<Rss> {
        self.read_control(nic, "rss", |control| control.rss(nic))
    }

    fn rss_key(&self, nic: &NicName) -> Known<Vec<u8>> {
        self.read_control(nic, "rss/key", |control| control.rss_key(nic))
    }

    fn queue_coalesce(&self, nic: &NicName, queue: u32) -> Known<QueueCoalesce> {
        self.read_control(nic, "queue-coalesce", |control| {
            control.coalesce_of_queue(nic, queue)
        })
    }

    fn private_flags(&self, nic: &NicName) -> Known<BTreeMap<String, bool>> {
        self.read_ethtool(nic, "private-flags", |ethtool| ethtool.private_flags(nic))
    }

    fn tcp_data_split(&self, nic: &NicName) -> Known<String> {
        let path = "rings/tcp-data-split";
        self.read_ethtool(nic, path, |ethtool| ethtool.tcp_data_split(nic))
            .and_then(|split| split)
    }

    fn card(&self, nic: &NicName) -> Card {
        let mut card = self.card_of_ethtool(nic);
        self.fill_card_by_devlink(nic, &mut card);
        card
    }

    fn wire(&self, nic: &NicName) -> Wire {
        self.wire_of_ethtool(nic)
    }

    fn stack(&self, nic: &NicName) -> Stack {
        self.stack_of_route(nic)
    }

    fn dispatch(&self, nic: &NicName) -> Dispatch {
        let mut dispatch = self.dispatch_of_ethtool(nic);
        self.fill_dispatch_by_netdev(nic, &mut dispatch);
        dispatch
    }

    fn shaping(&self, nic: &NicName) -> Shaping {
        self.shaping_of_route(nic)
    }

    fn rdma(&self) -> &dyn RdmaRead {
        self
    }

    fn counts(&self, nic: &NicName) -> NicCounts {
        let mut counts = NicCounts::default();
        self.counts_of_netdev(nic, &mut counts);
        self.counts_of_ethtool(nic, &mut counts);
        counts
    }
}

impl Netlink {
    /// Sets what classes of traffic are made of: the qdisc, a VLAN and its addresses, and the rules; also says what it did.
    fn set_class(
        &self,
        nic: &NicName,
        value: &NicValue<'_>,
    ) -> (&'static str, Result<(), Failure>) {
        match value {
            NicValue::Qdisc(wanted) => {
                let done = qdisc::set(&mut lock(&self.route), nic, wanted);
                ("set the root qdisc of", done)
            }
            NicValue::VlanLink(link, index) => {
                let done = vlan_link::set(&mut lock(&self.route), nic, link.as_ref(), *index);
                ("create or remove the VLAN device", done)
            }
            NicValue::Up(up) => {
                let done = vlan_link::set_up(&mut lock(&self.route), nic, *up);
                ("set the state of", done)
            }
            NicValue::Addresses(addresses) => {
                let done = static_addresses::set(&mut lock(&self.route), nic, addresses);
                ("set the addresses of", done)
            }
            NicValue::ClassRules(rules) => {
                let done = link::read(&mut lock(&self.route), nic).and_then(|_| {
                    Self::netfilter(|connection| class_rules::set(connection, nic, rules))
                });
                ("set the class rules of", done)
            }
            _ => (
                "set a value of",
                Err(Failure::BadInput("not of a class".to_owned())),
            ),
        }
    }
}

impl NicWrite for Netlink {
    fn track_connections(&self, on: bool) -> io::Result<()> {
        let done = Self::netfilter(|connection| netfilter::track_connections(connection, on));
        done.map_err(|failure| failure.during("change the table", netfilter::TABLE))
    }

    fn set_value(&self, nic: &NicName, value: &NicValue<'_>) -> io::Result<()> {
        let (what, done) = match value {
            NicValue::Ethtool(request, attribute, scalar) => {
                let done = lock(&self.ethtool).set_scalar(nic, *request, *attribute, *scalar);
                let what = match request {
                    EthtoolRequest::Rings => "set the ring sizes of",
                    EthtoolRequest::Channels => "set the queue counts of",
                    EthtoolRequest::Coalesce => "set the interrupt coalescing of",
                    EthtoolRequest::LinkModes | EthtoolRequest::Pause | EthtoolRequest::Eee => {
                        "set a value of"
                    }
                };
                (what, done)
            }
            NicValue::Link(attribute, number) => {
                let mut route = lock(&self.route);
                let done = link::read(&mut route, nic)
                    .and_then(|link| link::set_number(&mut route, link.index, *attribute, *number));
                let is_mtu = *attribute == numbers::link::MTU;
                let what = if is_mtu {
                    "set the MTU of"
                } else {
                    "set a value of"
                };
                (what, done)
            }
            NicValue::Feature(feature, on) => {
                let done = lock(&self.ethtool).set_feature(nic, feature, *on);
                ("set a feature of", done)
            }
            NicValue::Qdisc(_)
            | NicValue::VlanLink(..)
            | NicValue::Up(_)
            | NicValue::Addresses(_)
            | NicValue::ClassRules(_) => self.set_class(nic, value),
            NicValue::Pfc(_) | NicValue::Ets(_) | NicValue::MaxRate(_) => {
                let done = dcb::set(&mut lock(&self.route), nic, value);
                ("set the DCB parameters of", done)
            }
            NicValue::Applications(table) => {
                let done = dcb::set_applications(&mut lock(&self.route), nic, table);
                ("set the DCB application priorities of", done)
            }
            NicValue::LinkSpeed(speed) => {
                let done = lock(&self.ethtool).set_link(nic, speed);
                ("set the speed of", done)
            }
            NicValue::VlanEgress(map) => {
                let done = stack::set_vlan_egress(&mut lock(&self.route), nic, map);
                ("set the egress map of", done)
            }
            NicValue::RssTable(queues, is_default) => {
                let done = lock(&self.control).set_rss_table(nic, queues, *is_default);
                ("set the RSS indirection table of", done)
            }
            NicValue::RssKey(key) => {
                let done = lock(&self.control).set_rss_key(nic, key);
                ("set the RSS hash key of", done)
            }
            NicValue::RssFields(kind, letters) => {
                let done = lock(&self.control).set_hash_fields(nic, kind, letters);
                ("set the RSS hash fields of", done)
            }
            NicValue::QueueModeration(kind, queue, told) => {
                let done = lock(&self.control).set_moderation(nic, *kind, *queue, *told);
                ("set the per-queue coalescing of", done)
            }
            other => ("set a value of", lock(&self.ethtool).set_value(nic, other)),
        };
        done.map_err(|failure| failure.during(what, nic))
    }
}
