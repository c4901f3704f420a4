//! The recorder of events: real changes by `ip(8)`, ARP and neighbor advertisements by another namespace's kernel, VRRP
//! advertisements by keepalived.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use linerate_host::events::Recorder;
use linerate_model::failover::events::{Change, HostEvents};
use linerate_model::units::Nanoseconds;

use crate::lab::{Lab, in_lab, name, skip, tool};

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 2, 0, 7));
const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 254));
const FAR_MAC: &str = "02:00:00:00:09:fe";

/// A command in the other namespace.
fn far(lab: &Lab, line: &str) -> Option<String> {
    let place = format!("/proc/{}/fd/{}", std::process::id(), lab.far.as_raw_fd());
    tool(&format!("nsenter --net={place} {line}"))
}

/// This end has 10.9.0.1 and reaches the peer through 10.9.0.254, the other end; false if a tool is missing.
fn with_gateway(lab: &Lab) -> bool {
    let commands = [
        "ip addr add 10.9.0.1/24 dev near0",
        "ip addr add fd00:9::1/64 dev near0 nodad",
        "ip route add 10.2.0.0/24 via 10.9.0.254",
    ];
    let of_far = [
        "ip link set dev far0 up",
        "ip addr add 10.9.0.254/24 dev far0",
        "ip addr add fd00:9::fe/64 dev far0 nodad",
    ];
    commands.iter().all(|one| tool(one).is_some())
        && of_far.iter().all(|one| far(lab, one).is_some())
}

fn recorder(peer: IpAddr) -> Recorder {
    Recorder::start(Some(peer)).expect("there can be a thread")
}

fn find<T>(events: &HostEvents, wanted: impl Fn(&Change) -> Option<T>) -> Vec<(Nanoseconds, T)> {
    let all = events.events.iter();
    all.filter_map(|event| Some((event.at_ns, wanted(&event.change)?)))
        .collect()
}

#[test]
fn links_addresses_routes_and_nexthops_are_recorded_as_they_change() {
    in_lab(|lab| {
        if !with_gateway(lab) {
            return;
        }
        let recorder = recorder(PEER);
        for line in [
            "ip addr add 10.9.0.9/32 dev near0",
            "ip nexthop add id 1 via 10.9.0.254 dev near0",
            "ip nexthop add id 2 via 10.9.0.253 dev near0",
            "ip nexthop add id 10 group 1/2 type resilient buckets 8 idle_timer 1",
            "ip route replace 10.2.0.0/24 nhid 10",
            "ip nexthop del id 2",
            "ip route add 10.3.0.0/24 via 10.9.0.254",
        ] {
            tool(line).expect("the same ip(8) as before");
        }
        far(lab, "ip link set dev far0 down").expect("the same ip(8)");
        // The carrier is reported by a worker of the kernel, linkwatch; it runs for every change before this answers.
        tool("ip link set dev near0 down").expect("the same ip(8)");
        let events = recorder.stop();
        assert_eq!(events.check(), Ok(()));
        assert!(events.losses.is_empty(), "{:?}", events.losses);
        assert_eq!(events.nics, [name("near0")]);
        assert!(events.gateways.contains(&GATEWAY), "{:?}", events.gateways);
        assert!(events.began.monotonic_ns < events.ended.monotonic_ns);
        let added = find(&events, |change| match change {
            Change::Address {
                address, removed, ..
            } => (!removed).then(|| address.clone()),
            _ => None,
        });
        // The link-local address is ready at a time of its own.
        let own = added.iter().find(|(_, address)| address == "10.9.0.9/32");
        let (own_added, _) = own.unwrap_or_else(|| panic!("{added:?}"));
        let groups = find(&events, |change| match change {
            Change::NextHop(object) if object.id == 10 => {
                Some((object.members.clone(), object.resilient))
            }
            _ => None,
        });
        assert_eq!(groups[0].1, (vec![1, 2], true), "{events:?}");
        let routes = find(&events, |change| match change {
            Change::Route(route) => Some(route.clone()),
            _ => None,
        });
        // That to 10.3.0.0/24 does not lead to the peer.
        let replaced = &routes[0].1;
        assert_eq!(replaced.destination, "10.2.0.0/24");
        assert_eq!((replaced.next_hop_id, replaced.removed), (Some(10), false));
        assert!(
            routes
                .iter()
                .all(|(_, route)| route.destination != "10.3.0.0/24")
        );
        let (lost, when) = events.lost_carrier().expect("it went down");
        assert_eq!(lost, &name("near0"));
        assert!(*own_added < when, "{events:?}");
    });
}

#[test]
fn a_new_owner_of_the_gateways_address_is_heard() {
    in_lab(|lab| {
        if !with_gateway(lab) {
            return;
        }
        let place = format!(
            "--net=/proc/{}/fd/{}",
            std::process::id(),
            lab.far.as_raw_fd()
        );
        let script = "echo 1 >/proc/sys/net/ipv4/conf/far0/arp_notify";
        let switched = Command::new("nsenter")
            .args([place.as_str(), "sh", "-c", script])
            .status();
        if !switched.is_ok_and(|status| status.success()) {
            return skip("needs nsenter(1) and /proc/sys");
        }
        let recorder = recorder(PEER);
        if !is_permitted(&recorder) {
            drop(recorder);
            return skip("needs CAP_NET_RAW");
        }
        let reaches = reach(lab);
        reaches();
        // The kernel announces a new link-layer address (ip-sysctl.rst, arp_notify).
        far(lab, &format!("ip link set dev far0 address {FAR_MAC}")).expect("a veth takes it");
        reaches();
        let events = recorder.stop();
        let heard = find(&events, |change| match change {
            Change::Arp {
                address,
                mac,
                reply,
                gratuitous,
                nic,
            } if *address == GATEWAY => Some((nic.clone(), mac.clone(), *reply, *gratuitous)),
            _ => None,
        });
        assert!(
            heard
                .iter()
                .any(|(_, (nic, mac, reply, _))| *nic == name("near0") && *reply && mac != FAR_MAC),
            "{events:?}"
        );
        let announced = heard.iter().find(|(_, own)| own.3);
        let (announced, own) = announced.unwrap_or_else(|| panic!("{events:?}"));
        assert_eq!(own.1, FAR_MAC);
        // The neighbor entry follows, and is reported with the same address.
        let entries = find(&events, |change| match change {
            Change::Neighbor { address, mac, .. } if *address == GATEWAY => mac.clone(),
            _ => None,
        });
        let (changed, _) = entries
            .iter()
            .find(|(_, mac)| mac == FAR_MAC)
            .unwrap_or_else(|| panic!("{events:?}"));
        assert!(
            announced <= changed,
            "the stamp of the kernel is earlier: {events:?}"
        );
    });
}

/// Whether packets are recorded.
fn is_permitted(_: &Recorder) -> bool {
    let probe = Recorder::start(None).expect("there can be a thread").stop();
    probe.gaps.iter().all(|gap| gap.path != "packet(7)")
}

/// Sends datagrams to the gateway until one arrives: a new link-layer address of the gateway is known then.
fn reach(lab: &Lab) -> impl Fn() + use<> {
    let socket = |address: SocketAddr| {
        let socket = UdpSocket::bind(address).expect("a free port");
        socket
            .set_read_timeout(Some(Duration::from_millis(20)))
            .expect("a time");
        socket
    };
    let near = socket(SocketAddr::new([10, 9, 0, 1].into(), 0));
    let far = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            rustix::thread::move_into_link_name_space(
                std::os::fd::AsFd::as_fd(&lab.far),
                Some(rustix::thread::LinkNameSpaceType::Network),
            )
            .expect("a namespace");
            socket(SocketAddr::new(GATEWAY, 0))
        });
        thread.join().expect("a socket")
    });
    let to = far.local_addr().expect("bound");
    move || {
        let mut buffer = [0; 8];
        loop {
            near.send_to(b"x", to).expect("a route");
            match far.recv(&mut buffer) {
                Ok(_) => return,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn without_a_route_the_record_says_what_is_missing() {
    in_lab(|_| {
        let events = recorder(PEER).stop();
        assert_eq!(events.gateways, [] as [IpAddr; 0]);
        assert!(
            events
                .gaps
                .iter()
                .any(|gap| gap.reason.contains("gateways")),
            "{events:?}"
        );
    });
}

/// keepalived, ended with all its processes.
struct Keepalived {
    child: Child,
    folder: PathBuf,
}

impl Keepalived {
    /// The master of 10.9.0.200 in the other namespace; `None`, with a skip, if it is not installed.
    fn start(lab: &Lab) -> Option<Self> {
        let installed = Command::new("keepalived")
            .arg("--version")
            .stderr(Stdio::null())
            .status();
        if !installed.is_ok_and(|status| status.success()) {
            skip("`keepalived` is not installed");
            return None;
        }
        let folder = std::env::temp_dir().join(format!("linerate-vrrp-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let file = |name: &str| folder.join(name).display().to_string();
        let text = "global_defs {\n vrrp_version 3\n}\nvrrp_instance C {\n state MASTER\n interface far0\n \
                    virtual_router_id 51\n priority 150\n advert_int 0.1\n virtual_ipaddress {\n 10.9.0.200/24\n }\n}\n";
        std::fs::write(file("conf"), text).expect("a file");
        let net = format!(
            "--net=/proc/{}/fd/{}",
            std::process::id(),
            lab.far.as_raw_fd()
        );
        let mut line = String::new();
        write!(line, "keepalived -n -l -D --no-syslog -f {}", file("conf")).expect("memory");
        write!(line, " -p {} -r {}", file("pid"), file("vpid")).expect("memory");
        let child = Command::new("nsenter")
            .arg(net)
            .args(line.split(' '))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nsenter was there before");
        Some(Self { child, folder })
    }
}

impl Drop for Keepalived {
    fn drop(&mut self) {
        let id = i32::try_from(self.child.id()).expect("an id");
        let id = rustix::process::Pid::from_raw(id).expect("not 0");
        // By SIGTERM it ends its children too.
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn advertisements_of_keepalived_are_one_series_with_its_interval() {
    in_lab(|lab| {
        if !with_gateway(lab) {
            return;
        }
        let recorder = recorder(PEER);
        if !is_permitted(&recorder) {
            drop(recorder);
            return skip("needs CAP_NET_RAW");
        }
        let advertisements = raw_vrrp();
        let Some(keepalived) = Keepalived::start(lab) else {
            return;
        };
        for _ in 0..3 {
            let mut buffer = [0; 128];
            let received = rustix::net::recv(
                &advertisements,
                &mut buffer,
                rustix::net::RecvFlags::empty(),
            );
            received.expect("keepalived advertises");
        }
        let events = recorder.stop();
        drop(keepalived);
        let series = events.vrrp.first().unwrap_or_else(|| panic!("{events:?}"));
        assert_eq!(series.nic, name("near0"));
        assert_eq!(
            (series.version, series.router_id, series.priority),
            (3, 51, 150)
        );
        assert_eq!(series.source, GATEWAY);
        assert_eq!(series.interval_ns, Nanoseconds::from_millis(100));
        assert_eq!(series.address, Some(IpAddr::from([10, 9, 0, 200])));
        let heard: u64 = events.vrrp.iter().map(|series| series.count).sum();
        assert!(heard >= 3, "{events:?}");
    });
}

/// A socket of this host's IP layer for VRRP: what it has received, a tap has received before.
fn raw_vrrp() -> std::os::fd::OwnedFd {
    use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, socket_with, sockopt};
    let protocol = std::num::NonZeroU32::new(112).expect("IPPROTO_VRRP");
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(Protocol::from_raw(protocol)),
    )
    .expect("CAP_NET_RAW");
    let group = Ipv4Addr::new(224, 0, 0, 18);
    sockopt::set_ip_add_membership(&socket, &group, &Ipv4Addr::new(10, 9, 0, 1)).expect("a group");
    socket
}
