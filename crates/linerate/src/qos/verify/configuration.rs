//! What this host's configuration shows of a class before anything is measured: limits that an interface lacks, and frames that
//! leave with another priority.
//!
//! What is wrong on one of several interfaces is a verdict of its own, since only one of them carries the trials. Where one
//! interface holds the limits, the trials show it, and the configuration is the reason.

use linerate_host::netlink::class_name;
use linerate_model::host::{Host, Nic, QdiscNode};
use linerate_model::qos::{Mechanism, PlannedClass, QosClass, QosPlan};
use linerate_model::units::BitRate;

use super::set_up::class_of;

/// A rate that differs by less than this is the planned one: kernels round rates.
const WITHIN: f64 = 0.001;
/// The socket priority of the flows that verify a VLAN, and of all sockets that do not set one.
const SOCKET_PRIORITY: u32 = 0;

/// What is wrong with a class.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Configuration {
    /// What is wrong whatever the trials show.
    pub(super) wrong: Vec<String>,
    /// What is there in place of the limit, for the reason of a rate that is outside.
    pub(super) configured: Option<String>,
}

/// What the host has of class `at`, whose class has `number` as the low part of its handle.
pub(super) fn configuration(
    planned: &QosPlan,
    at: usize,
    class: &QosClass,
    host: &Host,
    number: u16,
) -> Configuration {
    let holders = planned.holders.iter().filter_map(|name| host.nic(name));
    let holders: Vec<&Nic> = holders.collect();
    let own = &planned.classes[at];
    let found: Vec<String> = match planned.mechanism {
        Mechanism::Htb => by_class(own, &holders, number),
        Mechanism::Mqprio => by_bucket(own, &holders),
        Mechanism::Offload => by_maximum(own, &holders),
        Mechanism::Dcb => by_rate(own, class, &holders),
    };
    let mut result = Configuration {
        wrong: egress(class, host).into_iter().collect(),
        configured: None,
    };
    if let [holder] = holders[..] {
        let found = found.into_iter().next();
        result.configured = found.or_else(|| on_ports(own, holder, host, number));
    } else {
        result.wrong.extend(found);
    }
    result
}

/// Limits on the ports of a bond that should have them itself, since several of its ports send at a time.
fn on_ports(planned: &PlannedClass, bond: &Nic, host: &Host, number: u16) -> Option<String> {
    let is_limited = |nic: &Nic| {
        class_of(nic, number).is_some() || has_bucket(nic, planned.rates.ceil) == Some(true)
    };
    let is_port = |nic: &&Nic| {
        let port = nic.stack.bond_port.as_ref();
        port.is_some_and(|port| port.bond.value() == Some(&bond.name)) && is_limited(nic)
    };
    let ports: Vec<&str> = (host.nics.iter().filter(is_port))
        .map(|nic| nic.name.as_str())
        .collect();
    (ports.len() > 1 && planned.limit.is_some() && !is_limited(bond)).then(|| {
        format!(
            "{} of {} have a limit each and can send at the same time",
            ports.join(" and "),
            bond.name
        )
    })
}

/// The PCP with which a VLAN's frames leave, if it is not that of the class.
fn egress(class: &QosClass, host: &Host) -> Option<String> {
    let (vlan, priority) = (class.vlan.as_ref()?, u32::from(class.priority?));
    let device = host.nic(&vlan.device)?.stack.vlan.as_ref()?;
    let map = device.egress.value()?;
    let mut own = map.iter().filter(|(from, _)| *from == SOCKET_PRIORITY);
    let pcp = own.next().map_or(0, |(_, to)| *to);
    (pcp != priority).then(|| {
        let map = if map.is_empty() {
            format!("{} has no egress map", vlan.device)
        } else {
            format!(
                "the egress map of {} does not map socket priority {SOCKET_PRIORITY} to {priority}",
                vlan.device
            )
        };
        format!("{map}: its frames leave with PCP {pcp}, not {priority}")
    })
}

/// Of classes of `htb`.
fn by_class(planned: &PlannedClass, holders: &[&Nic], number: u16) -> Vec<String> {
    let own = |nic: &&Nic| class_of(nic, number).is_some();
    let is_anywhere = holders.iter().any(own);
    let what = |nic: &&Nic| match class_of(nic, number) {
        None => is_anywhere.then(|| {
            let handle = class_name(0x1_0000 | u32::from(number));
            format!(
                "{} has no class {handle}, so nothing limits it there",
                nic.name
            )
        }),
        Some(own) => {
            let ceil = own.ceil_bit_per_s?;
            let is_other = planned.limit.is_some() && differ(ceil, planned.rates.ceil);
            is_other.then(|| {
                format!(
                    "class {} of {} has a ceil of {ceil}, not {}",
                    class_name(own.handle),
                    nic.name,
                    planned.rates.ceil
                )
            })
        }
    };
    holders.iter().filter_map(what).collect()
}

/// Of token buckets below the queues of `mqprio`, where one of the interfaces has the bucket.
fn by_bucket(planned: &PlannedClass, holders: &[&Nic]) -> Vec<String> {
    let ceil = planned.rates.ceil;
    let is_anywhere = (holders.iter()).any(|nic| has_bucket(nic, ceil) == Some(true));
    let lacking = holders.iter().filter(|nic| {
        is_anywhere && planned.limit.is_some() && has_bucket(nic, ceil) == Some(false)
    });
    let what = |nic: &&Nic| {
        format!(
            "{} has no token bucket of {ceil}, so nothing limits it to that there",
            nic.name
        )
    };
    lacking.map(what).collect()
}

/// Whether an interface has a token bucket of that rate; none if that is not known.
fn has_bucket(nic: &Nic, rate: BitRate) -> Option<bool> {
    let is_bucket = |node: &QdiscNode| {
        let own = node.rate_bit_per_s.filter(|_| node.kind == "tbf");
        own.is_some_and(|own| !differ(own, rate))
    };
    Some(nic.shaping.tree.value()?.iter().any(is_bucket))
}

/// Of the maximum rates of `mqprio` in the NIC, where one of the interfaces has the rate.
fn by_maximum(planned: &PlannedClass, holders: &[&Nic]) -> Vec<String> {
    let number = usize::from(planned.number);
    let rate_of = |nic: &Nic| {
        let tree = nic.shaping.tree.value()?;
        let root = tree.iter().find(|node| node.kind == "mqprio");
        let class = root.and_then(|root| root.traffic_classes.get(number));
        Some(class.and_then(|class| class.max_bit_per_s))
    };
    // Of a single interface, the trials show whether it matters.
    let is_anywhere =
        holders.len() == 1 || holders.iter().any(|nic| rate_of(nic).flatten().is_some());
    let what = |nic: &&Nic| {
        let found = match (planned.limit, rate_of(nic)?) {
            (Some(_), None) if is_anywhere => {
                "no maximum rate, so nothing limits it there".to_owned()
            }
            (Some(_), Some(rate)) if differ(rate, planned.rates.ceil) => {
                format!("a maximum rate of {rate}, not {}", planned.rates.ceil)
            }
            (None, Some(rate)) => format!("a maximum rate of {rate}"),
            _ => return None,
        };
        Some(format!(
            "traffic class {number} of {} has {found}",
            nic.name
        ))
    };
    holders.iter().filter_map(what).collect()
}

/// Of maximum rates of the NIC's traffic classes.
fn by_rate(planned: &PlannedClass, class: &QosClass, holders: &[&Nic]) -> Vec<String> {
    let Some(priority) = class.priority else {
        return Vec::new();
    };
    let what = |nic: &&Nic| {
        let dcb = nic.shaping.dcb.value()?;
        let number = *dcb.priority_class.value()?.get(usize::from(priority))?;
        let rates = dcb.class_max_bit_per_s.value()?;
        let rate = *rates.get(usize::try_from(number).ok()?)?;
        let has_none = rate.as_bit_per_s() == 0;
        let found = match planned.limit {
            Some(_) if has_none => format!("no maximum rate (planned: {})", planned.rates.ceil),
            Some(_) if differ(rate, planned.rates.ceil) => {
                format!("a maximum rate of {rate}, not {}", planned.rates.ceil)
            }
            None if !has_none => format!("a maximum rate of {rate}"),
            _ => return None,
        };
        Some(format!(
            "traffic class {number} of {}, to which priority {priority} maps, has {found}",
            nic.name
        ))
    };
    holders.iter().filter_map(what).collect()
}

fn differ(one: BitRate, other: BitRate) -> bool {
    (one.as_f64() / other.as_f64() - 1.0).abs() > WITHIN
}

#[cfg(test)]
mod tests {
    use linerate_model::build::{self, NicBuilder};
    use linerate_model::host::{
        Bond, BondPort, Dcb, NicKind, QdiscClass, Shaping, TrafficClass, Vlan,
    };
    use linerate_model::known::{Cause, Known};
    use linerate_model::qos::{Qos, QosFile, plan};

    use super::*;

    fn qos(mechanism: &str) -> Qos {
        let file: QosFile = serde_json::from_str(&format!(
            r#"{{"qos": {{"interface": "eth1", "mechanism": "{mechanism}"}}, "class": [
                {{"name": "low", "vlan": 10, "limit": "1gbit", "priority": 1}},
                {{"name": "high", "vlan": 12, "limit": "none", "priority": 3}}]}}"#
        ))
        .expect("a file");
        file.read().expect("classes")
    }

    fn vlan(id: u32, egress: &'static [(u32, u32)]) -> impl FnOnce(NicBuilder) -> NicBuilder {
        move |nic| {
            nic.with(move |nic| {
                nic.kind = NicKind::Vlan;
                nic.lower = vec!["eth1".parse().expect("a name")].into();
                nic.stack.vlan = Some(Vlan {
                    id: Known::Value(id),
                    egress: Known::Value(egress.to_vec()),
                    ..Vlan::default()
                });
            })
        }
    }

    /// A bond of eth2 and eth3 with that on each.
    fn bond(mode: &str, of: [Shaping; 2]) -> Host {
        let [first, second] = of;
        let port = |shaping: Shaping| {
            move |nic: NicBuilder| {
                nic.gbit(10).queues(&[0, 0, 0, 0]).with(|nic| {
                    nic.shaping = shaping;
                    nic.stack.bond_port = Some(BondPort {
                        bond: Known::Value("eth1".parse().expect("a name")),
                        ..BondPort::default()
                    });
                })
            }
        };
        let bond = |nic: NicBuilder| {
            nic.with(|nic| {
                nic.kind = NicKind::Bond;
                nic.stack.bond = Some(Bond {
                    mode: Known::Value(mode.to_owned()),
                    ..Bond::default()
                });
            })
        };
        build::host()
            .nic("eth1", bond)
            .nic("eth2", port(first))
            .nic("eth3", port(second))
            .nic("eth1.10", vlan(10, &[(0, 1)]))
            .nic("eth1.12", vlan(12, &[(0, 3)]))
            .build()
    }

    /// Of the class at that place.
    fn found(qos: &Qos, host: &Host, at: usize) -> Configuration {
        let planned = plan(qos, host, |_| true).expect("a plan");
        let number = planned.classes[at].number;
        configuration(&planned, at, &qos.classes[at], host, number)
    }

    fn wrong(what: &str) -> Configuration {
        Configuration {
            wrong: vec![what.to_owned()],
            configured: None,
        }
    }

    fn instead(what: &str) -> Configuration {
        Configuration {
            wrong: Vec::new(),
            configured: Some(what.to_owned()),
        }
    }

    #[test]
    fn a_vlan_whose_frames_leave_with_another_priority_is_named() {
        let none = Configuration::default();
        let host = |egress| {
            build::host()
                .nic("eth1", |nic| nic.gbit(10))
                .nic("eth1.10", vlan(10, egress))
                .build()
        };
        let of = |egress| found(&qos("htb"), &host(egress), 0);
        assert_eq!(of(&[(0, 1), (3, 1)]), none);
        assert_eq!(
            of(&[]),
            wrong("eth1.10 has no egress map: its frames leave with PCP 0, not 1")
        );
        let other = "the egress map of eth1.10 does not map socket priority 0 to 1: its frames leave with PCP 5, not 1";
        assert_eq!(of(&[(0, 5)]), wrong(other));
        let unknown = build::host()
            .nic("eth1", |nic| nic.gbit(10))
            .nic("eth1.10", |nic| {
                vlan(10, &[])(nic).with(|nic| {
                    let vlan = nic.stack.vlan.as_mut().expect("a VLAN");
                    vlan.egress = Known::unknown(Cause::NotSaid, "netlink", "not reported");
                })
            })
            .build();
        assert_eq!(found(&qos("htb"), &unknown, 0), none);
    }

    #[test]
    fn a_port_of_a_bond_without_the_class_or_the_bucket_is_named() {
        let class = |ceil: u64| Shaping {
            classes: Known::Value(vec![QdiscClass {
                kind: "htb".to_owned(),
                handle: 0x1_0010,
                parent: 0x1_0001,
                rate_bit_per_s: None,
                ceil_bit_per_s: Some(BitRate::from_bit_per_s(ceil)),
            }]),
            ..Shaping::default()
        };
        let none = || Shaping {
            classes: Known::Value(Vec::new()),
            tree: Known::Value(Vec::new()),
            ..Shaping::default()
        };
        let htb = qos("htb");
        let whole = bond(
            "active-backup",
            [class(1_000_000_000), class(1_000_000_000)],
        );
        assert_eq!(found(&htb, &whole, 0), Configuration::default());
        let half = bond("active-backup", [class(1_000_000_000), none()]);
        let missing = "eth3 has no class 1:10, so nothing limits it there";
        assert_eq!(found(&htb, &half, 0), wrong(missing));
        let other = bond(
            "active-backup",
            [class(1_000_000_000), class(2_000_000_000)],
        );
        let ceil = "class 1:10 of eth3 has a ceil of 2.00 Gb/s, not 1.00 Gb/s";
        assert_eq!(found(&htb, &other, 0), wrong(ceil));
        // The trials show what neither of them has.
        assert_eq!(
            found(&htb, &bond("active-backup", [none(), none()]), 0),
            Configuration::default()
        );

        let several = bond("802.3ad", [class(1_000_000_000), class(1_000_000_000)]);
        let each = "eth2 and eth3 of eth1 have a limit each and can send at the same time";
        assert_eq!(found(&htb, &several, 0), instead(each));

        let bucket = || Shaping {
            tree: Known::Value(vec![QdiscNode {
                kind: "tbf".to_owned(),
                handle: 0x10_0000,
                parent: 0x1_0002,
                rate_bit_per_s: Some(BitRate::from_bit_per_s(1_000_000_000)),
                drops: Known::Value(0),
                requeues: Known::Value(0),
                overlimits: Known::Value(0),
                offloaded: Known::Value(false),
                default_class: None,
                traffic_classes: Vec::new(),
            }]),
            ..Shaping::default()
        };
        let queues = qos("mqprio");
        let half = bond("active-backup", [none(), bucket()]);
        let missing = "eth2 has no token bucket of 1.00 Gb/s, so nothing limits it to that there";
        assert_eq!(found(&queues, &half, 0), wrong(missing));
        assert_eq!(found(&queues, &half, 1), Configuration::default());
        let whole = bond("active-backup", [bucket(), bucket()]);
        assert_eq!(found(&queues, &whole, 0), Configuration::default());
    }

    #[test]
    fn a_port_whose_queues_the_nic_does_not_limit_is_named() {
        let with = |rate: Option<u64>| Shaping {
            tree: Known::Value(vec![QdiscNode {
                kind: "mqprio".to_owned(),
                handle: 0x1_0000,
                parent: u32::MAX,
                rate_bit_per_s: None,
                drops: Known::Value(0),
                requeues: Known::Value(0),
                overlimits: Known::Value(0),
                offloaded: Known::Value(true),
                default_class: None,
                traffic_classes: [None, rate, None, None]
                    .map(|rate| TrafficClass {
                        priorities: Vec::new(),
                        first_queue: 0,
                        queues: 1,
                        max_bit_per_s: rate.map(BitRate::from_bit_per_s),
                    })
                    .to_vec(),
            }]),
            ..Shaping::default()
        };
        let qos = qos("mqprio-offload");
        let of = |rates: [Option<u64>; 2]| found(&qos, &bond("active-backup", rates.map(with)), 0);
        let own = Some(1_000_000_000);
        assert_eq!(of([own, own]), Configuration::default());
        let missing = "traffic class 1 of eth3 has no maximum rate, so nothing limits it there";
        assert_eq!(of([own, None]), wrong(missing));
        let other = "traffic class 1 of eth2 has a maximum rate of 2.00 Gb/s, not 1.00 Gb/s";
        assert_eq!(of([Some(2_000_000_000), own]), wrong(other));
        // The trials show what neither of them has.
        assert_eq!(of([None, None]), Configuration::default());
    }

    #[test]
    fn a_traffic_class_of_a_nic_without_its_rate_is_a_reason() {
        let host = |of_class: [u64; 4]| {
            let rates = of_class.map(BitRate::from_bit_per_s).to_vec();
            build::host()
                .nic("eth1", |nic| {
                    nic.gbit(10).with(|nic| {
                        nic.shaping.dcb = Known::Value(Dcb {
                            priority_class: Known::Value(vec![0, 1, 2, 3, 0, 0, 0, 0]),
                            class_max_bit_per_s: Known::Value(rates),
                            ..Dcb::default()
                        });
                    })
                })
                .build()
        };
        let qos = qos("dcb");
        let planned = plan(&qos, &host([0; 4]), |_| true).expect("a plan");
        let ceil = planned.classes[0].rates.ceil.as_bit_per_s();
        assert_eq!(
            found(&qos, &host([0, ceil, 0, 0]), 0),
            Configuration::default()
        );
        assert_eq!(
            found(&qos, &host([0; 4]), 0),
            instead(
                "traffic class 1 of eth1, to which priority 1 maps, has no maximum rate (planned: 1.02 Gb/s)"
            )
        );
        assert_eq!(
            found(&qos, &host([0, ceil, 0, 5_000_000_000]), 1),
            instead(
                "traffic class 3 of eth1, to which priority 3 maps, has a maximum rate of 5.00 Gb/s"
            )
        );
    }
}
