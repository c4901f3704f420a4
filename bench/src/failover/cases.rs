//! The faults of the table: in which network, for how long, between which ends, and which phases are the right ones.

/// What is between the two ends of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Vrrp,
    /// The ends are the edge routers, as hosts that take part in the routing.
    Ecmp {
        has_bfd: bool,
    },
    Mlag,
    /// The kernel's bonding driver: the client, which is an end, has the bond.
    Bond(Bond),
    Magp,
}

/// A mode of the bonding driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bond {
    /// 802.3ad.
    Lacp,
    ActiveBackup,
}

/// A fault.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    /// The words after `testbed redundant add`.
    pub(super) network: &'static str,
    pub(super) kind: Kind,
    /// As `add` names it.
    pub(super) fault: &'static str,
    /// The duration of a trial.
    pub(super) time: &'static str,
    pub(super) is_v6: bool,
    /// The phases and mechanisms of the failure that are right; `none` if nothing may be interrupted. Empty if nothing that
    /// an end sees shows what took the time.
    pub(super) right: &'static [&'static str],
}

impl Case {
    /// Its name in the results, and for `--only`.
    pub(super) fn name(&self) -> String {
        let family = if self.is_v6 { " IPv6" } else { "" };
        format!("{}/{}{family}", self.network, self.fault)
    }

    /// The two namespaces.
    pub(super) fn ends(&self) -> [&'static str; 2] {
        match self.kind {
            Kind::Ecmp { .. } => ["lr-a", "lr-b"],
            _ => ["lr-client", "lr-server"],
        }
    }

    /// The address of the second end; `server` are those of the server.
    pub(super) fn address(&self, server: [String; 2]) -> String {
        let [v4, v6] = match self.kind {
            Kind::Ecmp { .. } => ["10.205.2.1".to_owned(), "fd05:205:2::1".to_owned()],
            _ => server,
        };
        if self.is_v6 { v6 } else { v4 }
    }

    /// A command of a shell that ends when the network is again as it was before the failure; `folder` is that of the
    /// network.
    pub(super) fn settled(&self, folder: &str) -> Option<String> {
        let conditions = match self.kind {
            Kind::Vrrp => gateway_is_r1(self.is_v6),
            Kind::Ecmp { has_bfd } => next_hops_are_back(folder, has_bfd),
            Kind::Mlag => ["a-m1", "a-m2"]
                .map(|member| {
                    format!(
                        "[ $(ovs-vsctl --db=unix:{folder}/lr-mlag/db.sock get Interface {member} lacp_current) = true ]"
                    )
                })
                .to_vec(),
            Kind::Bond(mode) => vec![format!(
                "ip netns exec lr-client grep -q '{}' /proc/net/bonding/bond0",
                match mode {
                    Bond::Lacp => "Number of ports: 2",
                    Bond::ActiveBackup => "Currently Active Slave: to-m1",
                }
            )],
            Kind::Magp => return None,
        };
        Some(format!(
            "until {}; do sleep 0.05; done",
            conditions.join(" && ")
        ))
    }
}

/// r2 has given up the virtual addresses that r1 has, and both ends send to r1.
fn gateway_is_r1(is_v6: bool) -> Vec<String> {
    let mut all = vec![
        "ip -n lr-r1 -o address show dev to-sw2 | grep -q 10.205.2.1/24".to_owned(),
        "! ip -n lr-r2 -o address | grep -q '10.205.[12].1/24'".to_owned(),
    ];
    for (side, host) in [(1, "lr-client"), (2, "lr-server")] {
        let gateway = if is_v6 {
            format!("fd05:205:{side}::1")
        } else {
            format!("10.205.{side}.1")
        };
        all.push(format!(
            "ip -n {host} neigh show {gateway} | \
             grep -q $(ip -n lr-r1 -o link show to-sw{side} | sed 's/.*ether \\([^ ]*\\) .*/\\1/')"
        ));
    }
    all
}

/// Both edges have both next hops for both families, r1 has its routes, and BFD watches all four neighbors of an edge.
fn next_hops_are_back(folder: &str, has_bfd: bool) -> Vec<String> {
    let mut all = Vec::new();
    for (edge, network) in [("lr-a", 2), ("lr-b", 1)] {
        let prefixes = [
            ("-4", format!("10.205.{network}.0/24")),
            ("-6", format!("fd05:205:{network}::/64")),
        ];
        for (family, prefix) in prefixes {
            all.push(format!(
                "[ $(ip -n {edge} {family} route show {prefix} | grep -c 'nexthop via') = 2 ]"
            ));
            all.push(format!(
                "ip -n lr-r1 {family} route show {prefix} | grep -q via"
            ));
        }
        if has_bfd {
            all.push(format!(
                "[ $(vtysh --vty_socket {folder}/{edge} -c 'show bfd peers json' | grep -c '\"status\": *\"up\"') = 4 ]"
            ));
        }
    }
    all
}

const VRRP_FAST: &str = "vrrp --advert 100ms";
const BGP: &str = "ecmp --igp bgp --bfd 50ms";
const BGP_ALONE: &str = "ecmp --igp bgp --bfd off";
const OSPF: &str = "ecmp --igp ospf --bfd off";
const STATIC: &str = "ecmp --igp static";
const RESILIENT: &str = "ecmp --igp static --resilient";
const LACP: &str = "mlag --lag bonding";
const MONITORED: &str = "active-backup --miimon 100ms";
const UNMONITORED: &str = "active-backup --miimon off";
/// A takeover is first seen by an advertisement, or by what announces the addresses right after it.
const TAKEOVER: &[&str] = &["detection vrrp", "detection gateway-moved"];
const ROUTING: &[&str] = &["detection routing"];
/// The edge whose link goes down changes at once, and the other one not until it is restored.
const ONE_SIDE: &[&str] = &["convergence carrier", "convergence routing"];
/// Nothing detects it until it is restored.
const UNTIL_RESTORED: &[&str] = &["detection"];
/// The bond sees the carrier, at the latest when it looks for it again. The other direction waits for its gratuitous ARP.
const MEMBER_GONE: &[&str] = &[
    "none",
    "detection carrier",
    "convergence carrier",
    "detection link-monitoring",
    "convergence link-monitoring",
    "detection lacp",
    "convergence lacp",
    "detection gateway-moved",
];

const fn vrrp(fault: &'static str, right: &'static [&'static str]) -> Case {
    Case {
        network: VRRP_FAST,
        kind: Kind::Vrrp,
        fault,
        time: "6s",
        is_v6: false,
        right,
    }
}

const fn ecmp(fault: &'static str, right: &'static [&'static str]) -> Case {
    Case {
        network: BGP,
        kind: Kind::Ecmp { has_bfd: true },
        ..vrrp(fault, right)
    }
}

const fn without_bfd(network: &'static str, time: &'static str, case: Case) -> Case {
    Case {
        network,
        kind: Kind::Ecmp { has_bfd: false },
        time,
        ..case
    }
}

const fn mlag(fault: &'static str, time: &'static str, right: &'static [&'static str]) -> Case {
    Case {
        network: "mlag",
        kind: Kind::Mlag,
        time,
        ..vrrp(fault, right)
    }
}

/// The client's bond in 802.3ad over two switches.
const fn lacp(fault: &'static str, time: &'static str, right: &'static [&'static str]) -> Case {
    Case {
        network: LACP,
        kind: Kind::Bond(Bond::Lacp),
        ..mlag(fault, time, right)
    }
}

const fn active_backup(
    network: &'static str,
    fault: &'static str,
    right: &'static [&'static str],
) -> Case {
    Case {
        network,
        kind: Kind::Bond(Bond::ActiveBackup),
        ..mlag(fault, "6s", right)
    }
}

const fn magp(fault: &'static str, right: &'static [&'static str]) -> Case {
    Case {
        network: "magp",
        kind: Kind::Magp,
        ..vrrp(fault, right)
    }
}

const fn v6(case: Case) -> Case {
    Case {
        is_v6: true,
        ..case
    }
}

/// All of them; those of one network stand together.
pub(super) const CASES: [Case; 33] = [
    vrrp("silent-router", TAKEOVER),
    v6(vrrp("silent-router", TAKEOVER)),
    vrrp(
        "carrier-loss",
        &[
            "detection vrrp",
            "detection gateway-moved",
            "convergence vrrp",
            "convergence gateway-moved",
        ],
    ),
    vrrp(
        "daemon-killed",
        &[
            "none",
            "detection vrrp",
            "detection gateway-moved",
            "convergence vrrp",
            "convergence gateway-moved",
        ],
    ),
    vrrp(
        "daemon-stopped",
        &[
            "none",
            "detection vrrp",
            "detection gateway-moved",
            "convergence vrrp",
            "convergence gateway-moved",
        ],
    ),
    Case {
        network: "vrrp --advert 1s",
        time: "12s",
        ..vrrp("silent-router", TAKEOVER)
    },
    ecmp("dead-router", ROUTING),
    v6(ecmp("dead-router", ROUTING)),
    ecmp(
        "link-down",
        &[
            "detection routing",
            "convergence routing",
            "detection carrier",
            "convergence carrier",
        ],
    ),
    v6(ecmp(
        "link-down",
        &[
            "detection routing",
            "convergence routing",
            "detection carrier",
            "convergence carrier",
        ],
    )),
    without_bfd(BGP_ALONE, "14s", ecmp("dead-router", ROUTING)),
    without_bfd(BGP_ALONE, "14s", v6(ecmp("dead-router", ROUTING))),
    without_bfd(OSPF, "14s", ecmp("dead-router", ROUTING)),
    without_bfd(OSPF, "14s", v6(ecmp("dead-router", ROUTING))),
    without_bfd(STATIC, "6s", ecmp("link-down", ONE_SIDE)),
    without_bfd(STATIC, "6s", ecmp("dead-router", UNTIL_RESTORED)),
    without_bfd(RESILIENT, "6s", ecmp("link-down", ONE_SIDE)),
    without_bfd(RESILIENT, "6s", ecmp("dead-router", UNTIL_RESTORED)),
    mlag("member-down", "6s", &["none"]),
    mlag("second-member-down", "6s", &["none"]),
    // Silent for 4 s, so that LACP expires but does not default: from then on Open vSwitch sends a LACPDU only every 30 s.
    mlag("member-silent", "10s", &[]),
    mlag("peer-link-down", "6s", UNTIL_RESTORED),
    lacp("member-down", "6s", MEMBER_GONE),
    lacp("second-member-down", "6s", MEMBER_GONE),
    lacp("link-down", "6s", MEMBER_GONE),
    lacp("member-silent", "12s", &["detection lacp"]),
    lacp("peer-link-down", "6s", UNTIL_RESTORED),
    active_backup(MONITORED, "member-down", MEMBER_GONE),
    active_backup(MONITORED, "second-member-down", &["none"]),
    active_backup(MONITORED, "member-silent", UNTIL_RESTORED),
    // The kernel sees the carrier, and the bond does not look.
    active_backup(UNMONITORED, "member-down", &["convergence carrier"]),
    magp("link-down", &["none"]),
    magp("silent-router", UNTIL_RESTORED),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_fault_has_a_name_of_its_own_and_networks_stand_together() {
        let names: BTreeSet<String> = CASES.iter().map(Case::name).collect();
        assert_eq!(names.len(), CASES.len());
        let mut networks: Vec<&str> = CASES.iter().map(|case| case.network).collect();
        networks.dedup();
        let distinct: BTreeSet<&str> = networks.iter().copied().collect();
        assert_eq!(distinct.len(), networks.len(), "{networks:?}");
    }

    #[test]
    fn bfd_is_waited_for_where_there_is_bfd() {
        let settled = |case: Case| case.settled("/f").expect("conditions");
        let bgp = settled(ecmp("dead-router", ROUTING));
        assert!(bgp.contains("--vty_socket /f/lr-b"), "{bgp}");
        let without = without_bfd(STATIC, "6s", ecmp("dead-router", ROUTING));
        assert!(!settled(without).contains("bfd"));
    }
}
