//! Two routers with virtual gateway addresses on both sides, held by keepalived (VRRP version 3, RFC 9568): client,
//! bridge, routers, bridge, server. r1 has the higher priority and takes the addresses back when it returns.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use super::plan::{
    CLIENT, Condition, ConfigFile, Daemon, Fault, Node, Plan, R1, R2, SERVER, words,
};
use super::program::KEEPALIVED;

pub(super) const SW1: &str = "lr-sw1";
pub(super) const SW2: &str = "lr-sw2";

pub(super) fn lay_out(plan: &mut Plan, advert_ms: u32, folder: &Path) {
    routers_between_switches(plan);
    for (node, host, priority) in [(R1, 11, 150), (R2, 12, 100)] {
        plan.batch(
            node,
            [
                "link set lo up".to_owned(),
                format!("address add 10.205.1.{host}/24 dev to-sw1"),
                format!("address add 10.205.2.{host}/24 dev to-sw2"),
                // With virtual addresses alone a backup has no routes, and drops what hosts send until they learn the master.
                format!("address add fd05:205:1::{host}/64 dev to-sw1 nodad"),
                format!("address add fd05:205:2::{host}/64 dev to-sw2 nodad"),
                "link set to-sw1 up".to_owned(),
                "link set to-sw2 up".to_owned(),
            ],
        );
        plan.files.push(ConfigFile {
            path: format!("{node}/keepalived.conf"),
            text: configuration(advert_ms, priority),
        });
        let file = |name: &str| words(&folder.join(node).join(name));
        plan.daemons.push(Daemon {
            arguments: [
                "--dont-fork",
                "--log-console",
                "--log-detail",
                "--no-syslog",
                "--use-file",
                &file("keepalived.conf"),
                "--pid",
                &file("keepalived.pid"),
                "--vrrp_pid",
                &file("vrrp.pid"),
            ]
            .map(str::to_owned)
            .to_vec(),
            ..Daemon::new(node, &KEEPALIVED)
        });
    }
    for (nic, address) in [
        ("to-sw1", IpAddr::V4(Ipv4Addr::new(10, 205, 1, 1))),
        ("to-sw2", IpAddr::V4(Ipv4Addr::new(10, 205, 2, 1))),
        (
            "to-sw1",
            IpAddr::V6(Ipv6Addr::new(0xfd05, 0x205, 1, 0, 0, 0, 0, 1)),
        ),
        (
            "to-sw2",
            IpAddr::V6(Ipv6Addr::new(0xfd05, 0x205, 2, 0, 0, 0, 0, 1)),
        ),
    ] {
        plan.conditions.push(Condition::Address {
            node: R1,
            nic,
            address,
        });
    }
    faults(plan);
}

fn faults(plan: &mut Plan) {
    plan.faults.extend(link_faults());
    plan.faults.push(Fault::new(
        "silent-side",
        "sw1 forwards nothing of r1 on the client's side; r1 is still heard on the server's side",
        "bridge -n lr-sw1 link set dev to-r1 state 0",
        "bridge -n lr-sw1 link set dev to-r1 state 3",
    ));
    plan.faults.push(Fault::new(
        "daemon-killed",
        "keepalived on r1 is killed (SIGKILL): its addresses are left on r1, which goes on forwarding",
        "linerate testbed redundant stop lr-r1 --kill",
        "linerate testbed redundant start lr-r1",
    ));
    plan.faults.push(Fault::new(
        "daemon-stopped",
        "keepalived on r1 is stopped (SIGTERM): it gives up its addresses",
        "linerate testbed redundant stop lr-r1",
        "linerate testbed redundant start lr-r1",
    ));
}

/// The nodes and wires of two routers between two switches, all but the routers' addresses.
pub(super) fn routers_between_switches(plan: &mut Plan) {
    plan.nodes.extend([
        Node::host(CLIENT, "client"),
        Node::host(SW1, "switch on the client's side"),
        Node::router(R1, "first router"),
        Node::router(R2, "second router"),
        Node::host(SW2, "switch on the server's side"),
        Node::host(SERVER, "server"),
    ]);
    for (switch, end, port, interface) in [
        (SW1, CLIENT, "to-client", "to-sw1"),
        (SW2, SERVER, "to-server", "to-sw2"),
    ] {
        plan.bridge(
            switch,
            &[
                (port, "eth0", end),
                ("to-r1", interface, R1),
                ("to-r2", interface, R2),
            ],
        );
    }
    plan.client();
    plan.routed_server();
}

/// The faults of a router between two switches.
pub(super) fn link_faults() -> [Fault; 3] {
    [
        Fault::down(
            "link-down",
            "r1's interface on the client's side is set down",
            &[(R1, "to-sw1")],
        ),
        Fault::down(
            "carrier-loss",
            "the port of sw1 to r1 goes down, and r1 loses the carrier",
            &[(SW1, "to-r1")],
        ),
        Fault::new(
            "silent-router",
            "both switches forward nothing from and to r1; every carrier is still up",
            "bridge -n lr-sw1 link set dev to-r1 state 0 && bridge -n lr-sw2 link set dev to-r1 state 0",
            "bridge -n lr-sw1 link set dev to-r1 state 3 && bridge -n lr-sw2 link set dev to-r1 state 3",
        ),
    ]
}

/// keepalived.conf(5). All instances are in one sync group: a router is the master on both sides or on none. An IPv6
/// instance has a link-local address first. The master announces its addresses every second: one that was cut off and
/// never gave up announces nothing when it is heard again, and the hosts would go on using the other router.
fn configuration(advert_ms: u32, priority: u8) -> String {
    let seconds = f64::from(advert_ms) / 1000.0;
    let mut text = "global_defs {
    vrrp_version 3
    vrrp_garp_master_delay 0
    vrrp_garp_master_refresh 1
    vrrp_rt_priority 10
}

vrrp_sync_group both_sides {
    group {
        client_v4
        client_v6
        server_v4
        server_v6
    }
}
"
    .to_owned();
    for (side, network, id) in [("client", 1, 51), ("server", 2, 52)] {
        for (family, addresses) in [
            ("v4", format!("        10.205.{network}.1/24\n")),
            (
                "v6",
                format!("        fe80::{id}:1/64\n        fd05:205:{network}::1/64\n"),
            ),
        ] {
            let native = if family == "v6" {
                "    native_ipv6\n"
            } else {
                ""
            };
            let _ = write!(
                text,
                "
vrrp_instance {side}_{family} {{
    state BACKUP
    interface to-sw{network}
    virtual_router_id {id}
    priority {priority}
    advert_int {seconds}
{native}    virtual_ipaddress {{
{addresses}    }}
}}
"
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_in_seconds_and_every_instance_is_in_the_group() {
        let text = configuration(100, 150);
        assert_eq!(text.matches("advert_int 0.1\n").count(), 4, "{text}");
        for instance in text
            .lines()
            .filter_map(|line| line.strip_prefix("vrrp_instance "))
        {
            let name = instance.trim_end_matches(" {");
            assert!(text.contains(&format!("        {name}\n")), "{name}");
        }
        assert!(configuration(1000, 100).contains("advert_int 1\n"));
    }
}
