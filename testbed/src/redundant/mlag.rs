//! A stand-in for MLAG: the client's LAG has one member at each of two switches, which show one LACP system id, so that
//! the client finds one partner. A peer link joins the switches. The server is attached to m1 alone ("orphan port"), so
//! that traffic of the member at m2 crosses the peer link.
//!
//! By bonding 802.3ad (bonding.rst), or by Open vSwitch with its datapath in user space, which needs no module. A Linux
//! bridge never forwards LACPDUs (IEEE 802.1D reserved addresses), so the members are connected without one.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use super::plan::{CLIENT, Call, Condition, Daemon, Fault, Node, Plan, SERVER, words};
use super::program::{ETHTOOL, NFT, OVS_VSCTL, OVS_VSWITCHD, OVSDB_SERVER, OVSDB_TOOL, Program};
use super::spec::{LacpRate, Lag};

pub(super) const M1: &str = "lr-m1";
pub(super) const M2: &str = "lr-m2";
/// The namespace of Open vSwitch with its three bridges.
const OVS: &str = "lr-mlag";
/// The schema of the database, from the package.
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

pub(super) fn lay_out(plan: &mut Plan, lag: Lag, rate: LacpRate, folder: &Path) {
    match lag {
        Lag::Bonding => by_bonding(plan, rate),
        Lag::Openvswitch => by_open_vswitch(plan, rate, folder),
    }
    plan.server = Some((
        Ipv4Addr::new(10, 205, 1, 20),
        Ipv6Addr::new(0xfd05, 0x205, 1, 0, 0, 0, 0, 0x20),
    ));
}

pub(super) fn host(interface: &str, host: u8) -> [String; 3] {
    [
        format!("address add 10.205.1.{host}/24 dev {interface}"),
        format!("address add fd05:205:1::{host}/64 dev {interface} nodad"),
        format!("link set {interface} up"),
    ]
}

fn by_bonding(plan: &mut Plan, rate: LacpRate) {
    plan.nodes.extend([
        Node::host(CLIENT, "client, a LAG of two members"),
        Node::host(M1, "first switch, with the server"),
        Node::host(M2, "second switch"),
        Node::host(SERVER, "server"),
    ]);
    let rate = rate.word();
    for (node, peer) in [(M1, "to-m2"), (M2, "to-m1")] {
        let member = if node == M1 { "to-m1" } else { "to-m2" };
        let mut lines = vec![
            "link set lo up".to_owned(),
            "link add name br0 type bridge stp_state 0 mcast_snooping 0".to_owned(),
            "link set br0 up".to_owned(),
            // A bond of one port: its LACP shows the system id that both switches share.
            format!(
                "link add name lag type bond mode 802.3ad miimon 50 lacp_rate {rate} \
                 ad_actor_system 02:00:5e:00:01:77 ad_actor_sys_prio 100 ad_user_port_key 7"
            ),
            format!("link add name to-client type veth peer name {member} netns {CLIENT}"),
            "link set to-client master lag".to_owned(),
            "link set to-client up".to_owned(),
            "link set lag master br0".to_owned(),
            "link set lag up".to_owned(),
        ];
        if node == M1 {
            lines.extend([
                format!("link add name to-server type veth peer name eth0 netns {SERVER}"),
                "link set to-server master br0 up".to_owned(),
                format!("link add name {peer} type veth peer name to-m1 netns {M2}"),
            ]);
        }
        lines.push(format!("link set {peer} master br0 up"));
        plan.batch(node, lines);
    }
    let mut lines = vec![
        "link set lo up".to_owned(),
        format!(
            "link add name bond0 type bond mode 802.3ad miimon 50 lacp_rate {rate} \
             xmit_hash_policy layer3+4"
        ),
    ];
    for member in ["to-m1", "to-m2"] {
        lines.push(format!("link set {member} master bond0"));
        lines.push(format!("link set {member} up"));
    }
    lines.extend(host("bond0", 10));
    plan.batch(CLIENT, lines);
    let server = ["link set lo up".to_owned()];
    plan.batch(SERVER, server.into_iter().chain(host("eth0", 20)));
    plan.conditions.push(Condition::BondPorts {
        node: CLIENT,
        bond: "bond0",
        count: 2,
    });
    let wires = [
        [(M1, "to-client"), (CLIENT, "to-m1")],
        [(M2, "to-client"), (CLIENT, "to-m2")],
    ];
    faults(plan, wires, (M1, "to-m2"), &Silence::NETEM);
}

fn by_open_vswitch(plan: &mut Plan, rate: LacpRate, folder: &Path) {
    plan.nodes.extend([
        Node::host(CLIENT, "client"),
        Node::host(
            OVS,
            "Open vSwitch: bridge `a` with the client's LAG, switches `m1` and `m2`",
        ),
        Node::host(SERVER, "server"),
    ]);
    let veths = [
        ("to-client", "eth0 netns lr-client"),
        ("to-server", "eth0 netns lr-server"),
        ("a-m1", "m1-a"),
        ("a-m2", "m2-a"),
        ("m1-m2", "m2-m1"),
    ];
    let mut lines = vec!["link set lo up".to_owned()];
    for (near, far) in veths {
        lines.push(format!("link add name {near} type veth peer name {far}"));
        lines.push(format!("link set {near} up"));
        if !far.contains(' ') {
            lines.push(format!("link set {far} up"));
        }
    }
    plan.batch(OVS, lines);
    for (node, number) in [(CLIENT, 10), (SERVER, 20)] {
        let lines = ["link set lo up".to_owned()];
        plan.batch(node, lines.into_iter().chain(host("eth0", number)));
        // Open vSwitch would pass on packets whose checksum the NIC should have computed.
        let arguments = ["-K", "eth0", "tx", "off"].map(str::to_owned).to_vec();
        plan.prepare.push(Call {
            node: Some(node),
            program: &ETHTOOL,
            arguments,
        });
    }
    daemons(plan, folder);
    plan.configure.push(bridges(rate, folder));
    for interface in ["a-m1", "a-m2"] {
        plan.conditions.push(Condition::Member {
            database: database(folder),
            interface,
        });
    }
    let wires = [
        [(OVS, "m1-a"), (OVS, "a-m1")],
        [(OVS, "m2-a"), (OVS, "a-m2")],
    ];
    faults(plan, wires, (OVS, "m1-m2"), &Silence::NFT);
}

fn database(folder: &Path) -> String {
    format!("unix:{}", words(&folder.join(OVS).join("db.sock")))
}

fn daemons(plan: &mut Plan, folder: &Path) {
    let file = |name: &str| words(&folder.join(OVS).join(name));
    plan.prepare.push(Call {
        node: None,
        program: &OVSDB_TOOL,
        arguments: vec!["create".to_owned(), file("conf.db"), SCHEMA.to_owned()],
    });
    let home = words(&folder.join(OVS));
    let mut daemon = |program: &'static Program, arguments: Vec<String>, listens| {
        plan.daemons.push(Daemon {
            arguments,
            environment: ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"]
                .map(|name| (name, home.clone()))
                .to_vec(),
            listens: Some(listens),
            ..Daemon::new(OVS, program)
        });
    };
    daemon(
        &OVSDB_SERVER,
        vec![
            format!("--remote=punix:{}", file("db.sock")),
            format!("--unixctl={}", file("ovsdb-server.ctl")),
            file("conf.db"),
        ],
        "db.sock",
    );
    daemon(
        &OVS_VSWITCHD,
        vec![
            format!("--unixctl={}", file("ovs-vswitchd.ctl")),
            database(folder),
        ],
        "ovs-vswitchd.ctl",
    );
}

/// ovs-vsctl(8), one transaction. `lacp-port-id` must differ between the switches, as the ports of one system do.
fn bridges(rate: LacpRate, folder: &Path) -> Call {
    let time = rate.word();
    let mut text = String::new();
    for bridge in ["a", "m1", "m2"] {
        let _ = write!(
            text,
            " -- add-br {bridge} -- set bridge {bridge} datapath_type=netdev"
        );
    }
    let _ = write!(
        text,
        " -- add-bond a lag a-m1 a-m2 bond_mode=balance-tcp lacp=active other_config:lacp-time={time}"
    );
    for (bridge, port, number) in [("m1", "m1-a", 101), ("m2", "m2-a", 102)] {
        let _ = write!(
            text,
            " -- add-port {bridge} {port} -- set port {port} lacp=active \
             other_config:lacp-time={time} other_config:lacp-system-id=00:00:5e:00:01:77 \
             -- set interface {port} other_config:lacp-aggregation-key=7 \
             other_config:lacp-port-id={number}"
        );
    }
    for (bridge, port) in [
        ("a", "to-client"),
        ("m1", "to-server"),
        ("m1", "m1-m2"),
        ("m2", "m2-m1"),
    ] {
        let _ = write!(text, " -- add-port {bridge} {port}");
    }
    let mut arguments = vec![
        format!("--db={}", database(folder)),
        "--timeout=20".to_owned(),
    ];
    arguments.extend(text.split_whitespace().map(str::to_owned));
    Call {
        node: None,
        program: &OVS_VSCTL,
        arguments,
    }
}

/// How a wire is made to lose everything while its carrier is up.
#[derive(Debug)]
struct Silence {
    inject: fn(&str, &str) -> String,
    restore: fn(&str, &str) -> String,
    program: Option<&'static Program>,
}

impl Silence {
    /// netem (tc-netem(8)), in kernels with bonding mostly a module.
    const NETEM: Self = Self {
        inject: |node, nic| format!("tc -n {node} qdisc add dev {nic} root netem loss 100%"),
        restore: |node, nic| format!("tc -n {node} qdisc del dev {nic} root"),
        program: None,
    };
    /// nft(8) in the egress hook, which packet sockets pass too.
    const NFT: Self = Self {
        inject: |node, nic| {
            let table = nic.replace('-', "_");
            format!(
                "ip netns exec {node} nft 'add table netdev lr_{table}; add chain netdev \
                 lr_{table} out {{ type filter hook egress device \"{nic}\" priority 0; policy drop; }}'"
            )
        },
        restore: |node, nic| {
            let table = nic.replace('-', "_");
            format!("ip netns exec {node} nft delete table netdev lr_{table}")
        },
        program: Some(&NFT),
    };
}

type End = (&'static str, &'static str);

fn faults(plan: &mut Plan, wires: [[End; 2]; 2], peer_link: End, silence: &Silence) {
    let [first, second] = wires;
    plan.faults.extend([
        Fault::down(
            "member-down",
            "the port of m1 to the client goes down, and the member loses the carrier",
            &first[..1],
        ),
        Fault::down(
            "second-member-down",
            "the port of m2 to the client goes down, and the member loses the carrier",
            &second[..1],
        ),
        Fault::down(
            "link-down",
            "the client's member to m1 is set down",
            &first[1..],
        ),
    ]);
    plan.faults.push(silent(
        "the wire between the client and m2 loses everything; every carrier is still up",
        second,
        silence,
    ));
    plan.faults.push(Fault::down(
        "peer-link-down",
        "the link between the switches is set down: traffic of the member at m2 does not reach the server",
        &[peer_link],
    ));
}

/// A wire that loses everything, in a kernel with netem.
pub(super) fn silent_wire(about: &'static str, wire: [End; 2]) -> Fault {
    silent(about, wire, &Silence::NETEM)
}

fn silent(about: &'static str, wire: [End; 2], silence: &Silence) -> Fault {
    let each = |command: fn(&str, &str) -> String| {
        let commands = wire.map(|(node, nic)| command(node, nic));
        commands.join(" && ")
    };
    let fault = Fault::new(
        "member-silent",
        about,
        each(silence.inject),
        each(silence.restore),
    );
    match silence.program {
        Some(program) => fault.with(program),
        None => fault,
    }
}
