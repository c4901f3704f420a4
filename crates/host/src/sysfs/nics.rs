//! Network interfaces: `/sys/class/net` (Documentation/ABI/testing/sysfs-class-net), with what
//! netlink tells beside it.

use linerate_model::host::{Irq, Nic, NicKind, Node};
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Gap, Known};
use linerate_model::units::BitRate;

use super::pci::{function_above, read_link, read_local_cpus, read_node};
use super::queues::{Device, read_queues};
use super::{followed, last_name, number, understood};
use crate::nic_control::NicRead;
use crate::root::{HostRoot, absolute};

const FOLDER: &str = "sys/class/net";

/// `include/uapi/linux/if_arp.h`.
const ARPHRD_INFINIBAND: u32 = 32;
const ARPHRD_LOOPBACK: u32 = 772;
/// IPIP, IP6IP6, SIT, GRE and GRE over IPv6.
const ARPHRD_TUNNELS: [u32; 5] = [768, 769, 776, 778, 823];

/// A speed above 1 Pb/s is no speed.
const SPEED_MBIT_MAX: u64 = 1_000_000_000;

/// Reads every interface of the namespace, by index.
pub(crate) fn read_nics(
    root: &HostRoot,
    netlink: &dyn NicRead,
    nodes: &[Node],
    irqs: &[Irq],
    gaps: &mut Vec<Gap>,
) -> Vec<Nic> {
    let names = match root.list(FOLDER) {
        Known::Value(names) => names,
        Known::Unknown(gap) => {
            gaps.push(gap);
            return Vec::new();
        }
    };
    let mut nics: Vec<Nic> = Vec::with_capacity(names.len());
    for name in names {
        // `bonding_masters` is a file of the class, not an interface.
        if name == "bonding_masters" {
            continue;
        }
        match name.parse::<NicName>() {
            Ok(name) => nics.push(read_nic(root, netlink, nodes, irqs, name, gaps)),
            Err(error) => gaps.push(Gap::new(
                Cause::Unreadable,
                absolute(FOLDER),
                error.to_string(),
            )),
        }
    }
    nics.sort_by(|a, b| {
        let key = |nic: &Nic| nic.index.get().unwrap_or(u32::MAX);
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
    });
    nics
}

/// The places that a NIC's facts come from.
struct Places {
    /// `sys/class/net/NIC`.
    class: String,
    /// Everything in its folder, by name.
    names: Vec<String>,
    /// The real folder of its device.
    device: Option<String>,
    /// The PCI function at or above the device.
    function: Option<(String, linerate_model::ids::PciAddress)>,
}

impl Places {
    fn find(root: &HostRoot, name: &NicName, gaps: &mut Vec<Gap>) -> Self {
        let class = format!("{FOLDER}/{name}");
        let names = root.list(&class);
        if let Known::Unknown(gap) = &names {
            gaps.push(gap.clone());
        }
        let real = followed(root, FOLDER, name.as_str());
        let real = real.value().unwrap_or(&class);
        let device = followed(root, real, "device").value().cloned();
        Self {
            function: device.as_deref().and_then(function_above),
            names: names.value().cloned().unwrap_or_default(),
            device,
            class,
        }
    }

    /// A fact that only an interface on a PCI function has.
    fn on_function<T>(&self, read: impl FnOnce(&str) -> Known<T>) -> Known<T> {
        match (&self.function, &self.device) {
            (Some((function, _)), _) => read(function),
            (None, Some(device)) => {
                Known::unknown(Cause::Absent, absolute(device), "it is on no PCI function")
            }
            (None, None) => Known::unknown(
                Cause::Absent,
                absolute(&format!("{}/device", self.class)),
                "the interface has no device",
            ),
        }
    }
}

fn read_nic(
    root: &HostRoot,
    netlink: &dyn NicRead,
    nodes: &[Node],
    irqs: &[Irq],
    name: NicName,
    gaps: &mut Vec<Gap>,
) -> Nic {
    let places = Places::find(root, &name, gaps);
    let class = &places.class;
    let driver = match &places.device {
        Some(device) => root
            .link(&format!("{device}/driver"))
            .map(|target| last_name(&target).to_owned()),
        None => places.on_function(|_| Known::not_asked(absolute(class))),
    };
    let device = places.device.as_deref().map(|device| Device {
        function: places.function.as_ref().map(|(folder, _)| folder.as_str()),
        name: last_name(device),
        driver: driver.value().map(String::as_str),
        has_one_nic: root
            .list(&format!("{device}/net"))
            .value()
            .is_some_and(|nics| nics.len() == 1),
    });
    let queues = read_queues(root, &name, device.as_ref(), irqs, gaps);
    Nic {
        index: number(root, &format!("{class}/ifindex")),
        kind: read_kind(root, netlink, &name, &places),
        pci_address: match &places.function {
            Some((_, address)) => Known::Value(*address),
            None => places.on_function(|_| Known::not_asked(absolute(class))),
        },
        numa_node: places.on_function(|function| read_node(root, function, nodes)),
        local_cpus: places.on_function(|function| read_local_cpus(root, function)),
        link_bit_per_s: read_speed(root, &format!("{class}/speed")),
        mtu: number(root, &format!("{class}/mtu")),
        operstate: root.read(&format!("{class}/operstate")),
        addresses: netlink.addresses(&name),
        numa_node_source: Known::default(),
        numa_node_report: Known::default(),
        pcie: places.on_function(|function| Known::Value(read_link(root, function))),
        pci: Known::default(),
        card: netlink.card(&name),
        wire: netlink.wire(&name),
        stack: netlink.stack(&name),
        dispatch: netlink.dispatch(&name),
        shaping: netlink.shaping(&name),
        queues,
        features: netlink.features(&name),
        rings: netlink.rings(&name),
        channels: netlink.channels(&name),
        coalesce: netlink.coalesce(&name),
        qdisc: netlink.qdisc(&name),
        lower: places
            .names
            .iter()
            .filter_map(|name| name.strip_prefix("lower_")?.parse().ok())
            .collect(),
        // The devices of RDMA are read after the interfaces; see `read::pair_rdma`.
        rdma: Known::not_asked("/sys/class/infiniband"),
        driver,
        name,
    }
}

fn read_kind(root: &HostRoot, netlink: &dyn NicRead, name: &NicName, places: &Places) -> NicKind {
    let class = &places.class;
    let is_virtual_function = places
        .function
        .as_ref()
        .is_some_and(|(function, _)| root.link(&format!("{function}/physfn")).value().is_some());
    let evidence = KindEvidence {
        hardware: number(root, &format!("{class}/type")).get(),
        device_type: root
            .read(&format!("{class}/uevent"))
            .value()
            .and_then(|text| parse_device_type(text)),
        names: &places.names,
        has_device: places.device.is_some(),
        is_virtual_function,
    };
    match evidence.kind() {
        Some(kind) => kind,
        None => netlink.kind(name).get().unwrap_or(NicKind::Other),
    }
}

/// What sysfs shows of an interface's kind.
struct KindEvidence<'a> {
    hardware: Option<u32>,
    device_type: Option<String>,
    names: &'a [String],
    has_device: bool,
    is_virtual_function: bool,
}

impl KindEvidence<'_> {
    fn kind(&self) -> Option<NicKind> {
        let has = |name: &str| self.names.iter().any(|own| own == name);
        match self.hardware {
            Some(ARPHRD_LOOPBACK) => return Some(NicKind::Loopback),
            Some(ARPHRD_INFINIBAND) => return Some(NicKind::Ipoib),
            Some(hardware) if ARPHRD_TUNNELS.contains(&hardware) => return Some(NicKind::Tunnel),
            _ => {}
        }
        match self.device_type.as_deref() {
            Some("vlan") => return Some(NicKind::Vlan),
            Some("vxlan" | "geneve" | "gretap" | "ip6gretap") => return Some(NicKind::Tunnel),
            Some("bridge") => return Some(NicKind::Bridge),
            Some("bond") => return Some(NicKind::Bond),
            Some("macvlan" | "ipvlan" | "ipvtap" | "macvtap") => return Some(NicKind::Macvlan),
            _ => {}
        }
        if has("bonding") {
            Some(NicKind::Bond)
        } else if has("bridge") {
            Some(NicKind::Bridge)
        } else if has("tun_flags") {
            Some(NicKind::Tun)
        } else if self.is_virtual_function {
            Some(NicKind::Virtual)
        } else if self.has_device {
            Some(NicKind::Physical)
        } else {
            None
        }
    }
}

/// The line `DEVTYPE=vlan` of a uevent file.
fn parse_device_type(text: &str) -> Option<String> {
    text.lines()
        .find_map(|line| line.strip_prefix("DEVTYPE="))
        .map(str::to_owned)
}

/// The speed in Mb/s. The kernel refuses (`EINVAL`), says -1 (before 2.6.38 as 65535, later sometimes
/// as 4294967295), or says nothing when it does not know, as of a link that is down.
fn read_speed(root: &HostRoot, path: &str) -> Known<BitRate> {
    let not_said = |why: &str| Known::unknown(Cause::NotSaid, absolute(path), why);
    match root.read(path) {
        Known::Unknown(gap)
            if gap.cause == Cause::Unreadable && gap.reason.contains("os error 22)") =>
        {
            not_said(
                "the kernel refuses to say (EINVAL): the link is down, or the driver knows no speed",
            )
        }
        Known::Unknown(gap) => Known::Unknown(gap),
        Known::Value(text) => match text.as_str() {
            "-1" | "65535" | "4294967295" => {
                not_said("-1: the link is down, or the driver knows no speed")
            }
            "0" => not_said("0: the driver knows no speed"),
            "" => not_said("the file is empty: the link is down, or the driver knows no speed"),
            text => understood(path, text, parse_speed),
        },
    }
}

fn parse_speed(text: &str) -> Result<BitRate, String> {
    let mbit: u64 = text
        .parse()
        .map_err(|error: std::num::ParseIntError| error.to_string())?;
    if mbit > SPEED_MBIT_MAX {
        return Err("faster than 1 Pb/s".to_owned());
    }
    Ok(BitRate::from_mbit_per_s(mbit))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kind(
        hardware: u32,
        device_type: Option<&str>,
        names: &[&str],
        has_device: bool,
    ) -> Option<NicKind> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        KindEvidence {
            hardware: Some(hardware),
            device_type: device_type.map(str::to_owned),
            names: &names,
            has_device,
            is_virtual_function: names.iter().any(|name| name == "vf"),
        }
        .kind()
    }

    #[test]
    fn the_kind_is_told_from_sysfs_where_sysfs_tells() {
        assert_eq!(kind(772, None, &[], false), Some(NicKind::Loopback));
        assert_eq!(kind(32, None, &["device"], true), Some(NicKind::Ipoib));
        assert_eq!(kind(1, Some("vlan"), &[], false), Some(NicKind::Vlan));
        assert_eq!(kind(1, None, &["bonding"], false), Some(NicKind::Bond));
        assert_eq!(kind(1, None, &["tun_flags"], false), Some(NicKind::Tun));
        assert_eq!(kind(1, None, &["brport"], true), Some(NicKind::Physical));
        assert_eq!(kind(1, None, &["vf"], true), Some(NicKind::Virtual));
        assert_eq!(kind(778, None, &[], false), Some(NicKind::Tunnel));
        assert_eq!(
            kind(1, None, &[], false),
            None,
            "a veth shows nothing of itself in sysfs"
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9-]{0,24}|.{0,24}") {
            let _ = (parse_speed(&text), parse_device_type(&text));
        }
    }
}
