//! The way of traffic on an interface as it is now, whoever configured it: VLAN, priority, class, limit. From the qdisc
//! hierarchy, linerate's own rules, egress maps of VLANs, and data center bridging.

use crate::host::{Dcb, Host, Nic, QdiscClass, QdiscNode, TrafficClass};
use crate::units::BitRate;

/// The parent of a root qdisc (`TC_H_ROOT`).
const ROOT: u32 = u32::MAX;
/// How many socket priorities have a class of their own (`TC_PRIO_MAX` + 1).
const PRIORITIES: u32 = 16;
/// More rows than this are left out by those that show them.
pub const CLASS_ROWS_SHOWN: usize = 16;

/// The classes of one interface by one mechanism.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassPaths {
    /// `htb`, `mqprio`, `dcb`.
    pub mechanism: &'static str,
    /// A row for each kind of traffic, in the order of the classes.
    pub rows: Vec<ClassPath>,
    /// What is not known, with the cause: traffic that a row does not show.
    pub unknown: Vec<String>,
}

/// One kind of traffic, from left to right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassPath {
    /// `VLAN 10 (eth1.10)`; `any` where the class is not chosen by a VLAN.
    pub from: String,
    /// `PCP 1`, `priority 1`, `DSCP af21`, `everything else`.
    pub selected_by: String,
    /// `class 1:10`, `TC 1`.
    pub class: String,
    /// What it may send; none for no limit.
    pub limit: Option<BitRate>,
    /// What it may send whatever the others do; none if that is not stated.
    pub guaranteed: Option<BitRate>,
    /// Its share by ETS, per cent.
    pub share: Option<u32>,
}

impl ClassPath {
    /// Its limit, in words.
    pub fn limit_in_words(&self) -> String {
        let limit = match self.limit {
            Some(limit) => format!("limit {limit}"),
            None => "no limit".to_owned(),
        };
        match (self.guaranteed, self.share) {
            (Some(rate), _) => format!("{limit}, guaranteed {rate}"),
            (None, Some(share)) => format!("{limit}, ETS {share} %"),
            (None, None) => limit,
        }
    }
}

/// The classes of `nic`; empty without any.
pub fn class_paths(host: &Host, nic: &Nic) -> Vec<ClassPaths> {
    let vlans = vlans_on(host, nic);
    let mut all = Vec::new();
    let tree = nic.shaping.tree.value().map_or(&[][..], Vec::as_slice);
    let root = tree.iter().find(|node| node.parent == ROOT);
    match root.map(|root| (root, root.kind.as_str())) {
        Some((root, "htb")) => all.extend(htb(nic, root, &vlans)),
        Some((root, "mqprio")) => all.extend(mqprio(nic, tree, root, &vlans)),
        _ => {}
    }
    if let Some(dcb) = nic.shaping.dcb.value() {
        all.extend(by_hardware(dcb, &vlans));
    }
    all
}

/// The VLANs that leave by `nic`: on it, or on the bond that it is a port of.
fn vlans_on<'h>(host: &'h Host, nic: &Nic) -> Vec<&'h Nic> {
    let bond = nic.stack.bond_port.as_ref();
    let bond = bond.and_then(|port| port.bond.value());
    let is_on = |upper: &&Nic| {
        let lower = upper.lower();
        upper.stack.vlan.is_some()
            && (lower.contains(&nic.name) || bond.is_some_and(|bond| lower.contains(bond)))
    };
    host.nics.iter().filter(is_on).collect()
}

fn id_of(vlan: &Nic) -> Option<u32> {
    vlan.stack.vlan.as_ref()?.id.get()
}

/// The PCPs of a VLAN's frames.
fn pcp_in_words(vlan: &Nic) -> String {
    let map = vlan
        .stack
        .vlan
        .as_ref()
        .and_then(|vlan| vlan.egress.value());
    let Some(map) = map else {
        return "PCP ?".to_owned();
    };
    let pcp = |priority: u32| {
        let own = map.iter().find(|(from, _)| *from == priority);
        own.map_or(0, |(_, to)| *to)
    };
    let first = pcp(0);
    if (0..PRIORITIES).all(|priority| pcp(priority) == first) {
        return format!("PCP {first}");
    }
    let others: Vec<String> = (0..PRIORITIES)
        .filter(|priority| pcp(*priority) != 0)
        .map(|priority| format!("{priority}:{}", pcp(priority)))
        .collect();
    format!("PCP {}, else 0", others.join(" "))
}

/// Where the packets of a rule come from, and what selects them.
fn of_rule(packets: &str, vlans: &[&Nic]) -> (String, String) {
    let Some(id) = packets.strip_prefix("vlan ") else {
        let words = match packets.strip_prefix("dscp ") {
            Some(dscp) => format!("DSCP {dscp}"),
            None => packets.to_owned(),
        };
        return ("any".to_owned(), words);
    };
    let number: Option<u32> = id.parse().ok();
    let device = vlans
        .iter()
        .find(|vlan| id_of(vlan) == number && number.is_some());
    match device {
        Some(device) => (format!("VLAN {id} ({})", device.name), pcp_in_words(device)),
        None => (format!("VLAN {id}"), "PCP ?".to_owned()),
    }
}

fn rules_unknown(nic: &Nic) -> Option<String> {
    let gap = nic.shaping.class_rules.gap()?;
    gap.leaves_a_question()
        .then(|| format!("rules of nf_tables: {gap}"))
}

/// The kinds of tc(8)'s filters below the root qdisc of an interface, which are not read; none without any.
pub(super) fn filters_of_others(nic: &Nic) -> Option<String> {
    let kinds = nic.qdisc.value()?.filter_kinds();
    (!kinds.is_empty()).then(|| kinds.join(", "))
}

fn handle_in_words(handle: u32) -> String {
    format!("class {:x}:{:x}", handle >> 16, handle & 0xffff)
}

fn htb(nic: &Nic, root: &QdiscNode, vlans: &[&Nic]) -> Option<ClassPaths> {
    let mut unknown: Vec<String> = rules_unknown(nic).into_iter().collect();
    let classes = match &nic.shaping.classes {
        crate::known::Known::Value(classes) => classes.as_slice(),
        crate::known::Known::Unknown(gap) => {
            unknown.push(format!("classes: {gap}"));
            &[]
        }
    };
    let own = |class: &&QdiscClass| class.handle >> 16 == root.handle >> 16;
    let is_parent = |class: &QdiscClass| classes.iter().any(|one| one.parent == class.handle);
    let mut leaves: Vec<&QdiscClass> = classes
        .iter()
        .filter(own)
        .filter(|class| !is_parent(class))
        .collect();
    leaves.sort_by_key(|class| class.handle);
    let rules = nic.shaping.class_rules.value();
    let rules = rules.map_or(&[][..], Vec::as_slice);
    let mut rows = Vec::new();
    for class in leaves {
        let row = |(from, selected_by): (String, String)| ClassPath {
            from,
            selected_by,
            class: handle_in_words(class.handle),
            limit: class.ceil_bit_per_s,
            guaranteed: class.rate_bit_per_s,
            share: None,
        };
        let own = rules.iter().filter(|rule| rule.class == class.handle);
        let mut selected: Vec<_> = own.map(|rule| of_rule(&rule.packets, vlans)).collect();
        if root.default_class == Some(class.handle) {
            selected.push(("any".to_owned(), "everything else".to_owned()));
        }
        if selected.is_empty() {
            let words = match filters_of_others(nic) {
                Some(kinds) => format!("filters of other programs ({kinds}), or nothing"),
                None => "filters of other programs, or nothing".to_owned(),
            };
            selected.push(("any".to_owned(), words));
        }
        rows.extend(selected.into_iter().map(row));
    }
    let has_default = root
        .default_class
        .is_some_and(|default| classes.iter().any(|class| class.handle == default));
    if !has_default && !classes.is_empty() {
        rows.push(ClassPath {
            from: "any".to_owned(),
            selected_by: "everything else".to_owned(),
            class: "no class".to_owned(),
            limit: None,
            guaranteed: None,
            share: None,
        });
    }
    (!rows.is_empty() || !unknown.is_empty()).then_some(ClassPaths {
        mechanism: "htb",
        rows,
        unknown,
    })
}

/// The rate of the token buckets below the queues of a traffic class, if all have one.
fn limit_of_queues(tree: &[QdiscNode], root: &QdiscNode, class: &TrafficClass) -> Option<BitRate> {
    let end = class.first_queue.saturating_add(class.queues);
    let of_queue = |queue: u32| {
        let parent = (root.handle & 0xffff_0000) | (queue.checked_add(1)? & 0xffff);
        let leaf = tree.iter().find(|node| node.parent == parent)?;
        leaf.rate_bit_per_s
    };
    let queues = (class.first_queue..end).take(CLASS_ROWS_SHOWN * 64);
    let rates: Option<Vec<BitRate>> = queues.map(of_queue).collect();
    rates?.into_iter().reduce(|sum, rate| {
        BitRate::from_bit_per_s(sum.as_bit_per_s().saturating_add(rate.as_bit_per_s()))
    })
}

fn numbers(all: &[u32]) -> String {
    let words: Vec<String> = all.iter().map(ToString::to_string).collect();
    words.join(" ")
}

fn mqprio(nic: &Nic, tree: &[QdiscNode], root: &QdiscNode, vlans: &[&Nic]) -> Option<ClassPaths> {
    let rules = nic.shaping.class_rules.value();
    let rules = rules.map_or(&[][..], Vec::as_slice);
    let mut rows = Vec::new();
    for (number, class) in root.traffic_classes.iter().enumerate() {
        let limit = class
            .max_bit_per_s
            .or_else(|| limit_of_queues(tree, root, class));
        // A rule without a major number gives a priority, whose class the map has.
        let own = rules
            .iter()
            .filter(|rule| rule.class >> 16 == 0 && class.priorities.contains(&rule.class));
        let mut selected: Vec<_> = own.map(|rule| of_rule(&rule.packets, vlans)).collect();
        if !class.priorities.is_empty() {
            let words = format!("priority {}", numbers(&class.priorities));
            selected.push(("any".to_owned(), words));
        }
        let row = |(from, selected_by)| ClassPath {
            from,
            selected_by,
            class: format!("TC {number}"),
            limit,
            guaranteed: None,
            share: None,
        };
        rows.extend(selected.into_iter().map(row));
    }
    (!rows.is_empty()).then(|| ClassPaths {
        mechanism: "mqprio",
        rows,
        unknown: rules_unknown(nic).into_iter().collect(),
    })
}

/// The traffic classes of the NIC, if it distinguishes or limits any.
fn by_hardware(dcb: &Dcb, vlans: &[&Nic]) -> Option<ClassPaths> {
    let map = dcb.priority_class.value()?;
    let limits = dcb.class_max_bit_per_s.value();
    let limit_of = |class: u32| {
        let limit = limits?.get(usize::try_from(class).ok()?).copied()?;
        (limit.as_bit_per_s() > 0).then_some(limit)
    };
    let is_one = map.iter().all(|class| *class == 0);
    if is_one && limit_of(0).is_none() {
        return None;
    }
    let share_of = |class: u32| {
        let at = usize::try_from(class).ok()?;
        let how = dcb.class_algorithm.value()?.get(at)?;
        let share = dcb.class_bandwidth.value()?.get(at).copied()?;
        how.eq_ignore_ascii_case("ets").then_some(share)
    };
    let mut classes: Vec<u32> = map.clone();
    classes.sort_unstable();
    classes.dedup();
    let mut rows = Vec::new();
    for class in classes {
        let own = (0_u32..).zip(map).filter(|(_, of)| **of == class);
        let own: Vec<u32> = own.map(|(priority, _)| priority).collect();
        let row = |from: String, selected_by: String| ClassPath {
            from,
            selected_by,
            class: format!("TC {class}"),
            limit: limit_of(class),
            guaranteed: None,
            share: share_of(class),
        };
        for vlan in vlans {
            let map = vlan.stack.vlan.as_ref().and_then(|one| one.egress.value());
            let sends = |(_, to): &(u32, u32)| own.contains(to);
            // Without a map every frame has PCP 0.
            let is_own = map
                .is_some_and(|map| map.iter().any(sends) || (map.is_empty() && own.contains(&0)));
            if let (true, Some(id)) = (is_own, id_of(vlan)) {
                rows.push(row(
                    format!("VLAN {id} ({})", vlan.name),
                    pcp_in_words(vlan),
                ));
            }
        }
        rows.push(row("any".to_owned(), format!("PCP {}", numbers(&own))));
    }
    Some(ClassPaths {
        mechanism: "dcb",
        rows,
        unknown: limits
            .is_none()
            .then(|| {
                let gap = dcb.class_max_bit_per_s.gap();
                gap.map(|gap| format!("limits of traffic classes: {gap}"))
            })
            .flatten()
            .into_iter()
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;
    use crate::host::{ClassSelector, Vlan};
    use crate::known::{Cause, Known};

    fn mbit(rate: u64) -> BitRate {
        BitRate::from_bit_per_s(rate * 1_000_000)
    }

    fn host() -> Host {
        let mut host = build::host().nic("eth1", |nic| nic).build();
        let mut vlan = host.nics[0].clone();
        vlan.name = "eth1.10".parse().expect("a name");
        vlan.lower = Known::Value(vec!["eth1".parse().expect("a name")]);
        vlan.stack.vlan = Some(Vlan {
            id: Known::Value(10),
            egress: Known::Value((0..16).map(|from| (from, 3)).collect()),
            ..Vlan::default()
        });
        host.nics.push(vlan);
        host
    }

    fn root(kind: &str) -> QdiscNode {
        QdiscNode {
            kind: kind.to_owned(),
            handle: 0x1_0000,
            parent: ROOT,
            rate_bit_per_s: None,
            drops: Known::Value(0),
            requeues: Known::Value(0),
            overlimits: Known::Value(0),
            offloaded: Known::Value(false),
            default_class: None,
            traffic_classes: Vec::new(),
        }
    }

    fn class(minor: u32, parent: u32, rate: u64) -> QdiscClass {
        QdiscClass {
            kind: "htb".to_owned(),
            handle: 0x1_0000 | minor,
            parent,
            rate_bit_per_s: Some(mbit(rate)),
            ceil_bit_per_s: Some(mbit(rate)),
        }
    }

    fn rule(packets: &str, class: u32) -> ClassSelector {
        ClassSelector {
            packets: packets.to_owned(),
            class,
        }
    }

    fn lines(paths: &ClassPaths) -> Vec<String> {
        let line = |row: &ClassPath| {
            format!(
                "{} > {} > {} > {}",
                row.from,
                row.selected_by,
                row.class,
                row.limit_in_words()
            )
        };
        paths.rows.iter().map(line).collect()
    }

    #[test]
    fn a_vlan_is_followed_through_rule_and_class_to_its_limit() {
        let mut host = host();
        let shaping = &mut host.nics[0].shaping;
        let mut top = root("htb");
        top.default_class = Some(0x1_0030);
        shaping.tree = Known::Value(vec![top]);
        shaping.classes = Known::Value(vec![
            class(1, ROOT, 1_000),
            class(0x10, 0x1_0001, 50),
            class(0x20, 0x1_0001, 60),
            class(0x30, 0x1_0001, 70),
        ]);
        shaping.class_rules =
            Known::Value(vec![rule("vlan 10", 0x1_0010), rule("dscp af21", 0x1_0020)]);
        let all = class_paths(&host, &host.nics[0]);
        assert_eq!(all.len(), 1);
        assert_eq!(
            lines(&all[0]),
            [
                "VLAN 10 (eth1.10) > PCP 3 > class 1:10 > limit 50.00 Mb/s, guaranteed 50.00 Mb/s",
                "any > DSCP af21 > class 1:20 > limit 60.00 Mb/s, guaranteed 60.00 Mb/s",
                "any > everything else > class 1:30 > limit 70.00 Mb/s, guaranteed 70.00 Mb/s"
            ]
        );
        assert!(all[0].unknown.is_empty());
    }

    #[test]
    fn what_no_class_takes_has_no_limit_and_denied_rules_are_named() {
        let mut host = host();
        let shaping = &mut host.nics[0].shaping;
        shaping.tree = Known::Value(vec![root("htb")]);
        shaping.classes = Known::Value(vec![class(0x10, ROOT, 50)]);
        shaping.class_rules = Known::unknown(Cause::Denied, "netlink/netfilter/eth1", "denied");
        let all = class_paths(&host, &host.nics[0]);
        let last = lines(&all[0]).pop();
        let expected = "any > everything else > no class > no limit";
        assert_eq!(last.as_deref(), Some(expected));
        assert_eq!(all[0].unknown.len(), 1, "{:?}", all[0].unknown);
    }

    #[test]
    fn a_class_of_mqprio_has_the_limit_of_the_bucket_below_its_queue() {
        let mut host = host();
        let mut top = root("mqprio");
        let traffic_class = |priorities: &[u32], first_queue| TrafficClass {
            priorities: priorities.to_vec(),
            first_queue,
            queues: 1,
            max_bit_per_s: None,
        };
        top.traffic_classes = vec![traffic_class(&[0, 2], 0), traffic_class(&[1], 1)];
        let mut bucket = root("tbf");
        bucket.parent = 0x1_0002;
        bucket.rate_bit_per_s = Some(mbit(10));
        let shaping = &mut host.nics[0].shaping;
        shaping.tree = Known::Value(vec![top, bucket]);
        shaping.class_rules = Known::Value(vec![rule("vlan 10", 1)]);
        let all = class_paths(&host, &host.nics[0]);
        assert_eq!(
            lines(&all[0]),
            [
                "any > priority 0 2 > TC 0 > no limit",
                "VLAN 10 (eth1.10) > PCP 3 > TC 1 > limit 10.00 Mb/s",
                "any > priority 1 > TC 1 > limit 10.00 Mb/s"
            ]
        );
    }

    #[test]
    fn the_classes_of_a_nic_have_the_vlans_that_send_their_priority() {
        let mut host = host();
        host.nics[0].shaping.dcb = Known::Value(Dcb {
            priority_class: Known::Value(vec![0, 0, 0, 1, 0, 0, 0, 0]),
            class_max_bit_per_s: Known::Value(vec![mbit(0), mbit(50)]),
            ..Dcb::default()
        });
        let all = class_paths(&host, &host.nics[0]);
        assert_eq!(
            lines(&all[0]),
            [
                "any > PCP 0 1 2 4 5 6 7 > TC 0 > no limit",
                "VLAN 10 (eth1.10) > PCP 3 > TC 1 > limit 50.00 Mb/s",
                "any > PCP 3 > TC 1 > limit 50.00 Mb/s"
            ]
        );
    }

    #[test]
    fn an_interface_without_classes_has_no_paths() {
        let host = host();
        assert!(class_paths(&host, &host.nics[1]).is_empty());
    }
}
