//! Shaping of an interface's packets: its qdisc hierarchy with counters, and the classes of classful qdiscs
//! (`<linux/pkt_sched.h>`, `<linux/gen_stats.h>`, `tc(8)`).

mod counts;

pub use counts::{ClassCounts, class_name};
use linerate_model::host::{ClassSelector, QdiscClass, QdiscNode, Shaping, TrafficClass};
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Known};
use linerate_model::units::BitRate;

use super::error::Failure;
use super::message::{Attributes, Request, u32_at};
use super::qdisc_entry::{
    self, CEIL_AT, Entry, HTB_CEIL64, HTB_PARAMETERS, HTB_RATE64, RATE_AT, ROOT, rate,
};
use super::response::{ResponseAttributes, numbers};
use super::socket::Connection;
use super::{NO_KERNEL, Netlink, class_rules, dcb, link, lock, qdisc, qdisc_options};
use crate::nic_control::NicCounts;

/// `TCA_HW_OFFLOAD`, which the libc crate has for glibc only.
const HW_OFFLOAD: u16 = 12;
pub(super) const STATS_QUEUE: u16 = 3;
pub(super) const HFSC_REAL_TIME: u16 = 1;
pub(super) const HFSC_FAIR: u16 = 2;
pub(super) const HFSC_UPPER: u16 = 3;
pub(super) const CAKE_RATE64: u16 = 2;
pub(super) const NETEM_RATE: u16 = 6;
pub(super) const NETEM_RATE64: u16 = 8;
/// `struct tc_netem_qopt`, which precedes netem's attributes.
pub(super) const NETEM_HEADER_BYTES: usize = 24;

/// Kinds whose classes have a rate or a share; the classes of the others (`mq`, `fq_codel` ...) are their queues.
const CLASSFUL: [&str; 6] = ["htb", "hfsc", "drr", "qfq", "ets", "cbq"];

impl Netlink {
    /// [`crate::nic_control::NicRead::shaping`].
    pub(super) fn shaping_of_route(&self, nic: &NicName) -> Shaping {
        let tables = |route: &mut Connection| read(route, nic);
        let tables = self.read_route(nic, "qdiscs", tables);
        let (tree, classes) = match tables {
            Known::Value(tables) => (tables.tree(nic), tables.classes(nic)),
            Known::Unknown(gap) => (Known::Unknown(gap.clone()), Known::Unknown(gap)),
        };
        Shaping {
            class_rules: rules_beside(&tree, nic),
            tree,
            classes,
            dcb: dcb::read(&mut lock(&self.route), nic),
        }
    }

    /// The counters of the interface's qdiscs and their classes.
    pub(super) fn counts_of_qdiscs(&self, nic: &NicName, counts: &mut NicCounts) {
        let tables = self.read_route(nic, "qdiscs", |route| read(route, nic));
        let (tree, classes) = match tables {
            Known::Value(tables) => (tables.tree(nic), counts::class_counts(&tables.classes, nic)),
            Known::Unknown(gap) => (Known::Unknown(gap.clone()), Known::Unknown(gap)),
        };
        match tree {
            Known::Value(tree) => put_counts(&tree, nic, counts),
            Known::Unknown(gap) => {
                counts.gaps.insert("qdisc".to_owned(), gap);
            }
        }
        match classes {
            Known::Value(classes) => counts::put(&classes, nic, counts),
            Known::Unknown(gap) => {
                counts.gaps.insert("class".to_owned(), gap);
            }
        }
    }
}

/// linerate's own rules of an interface whose qdisc has classes. Without them no socket is opened, which would make the kernel
/// load nfnetlink.
fn rules_beside(tree: &Known<Vec<QdiscNode>>, nic: &NicName) -> Known<Vec<ClassSelector>> {
    let path = format!("netlink/netfilter/{nic}");
    let tree = match tree {
        Known::Value(tree) => tree,
        Known::Unknown(gap) => return Known::Unknown(gap.clone()),
    };
    if !tree
        .iter()
        .any(|node| matches!(node.kind.as_str(), "htb" | "mqprio"))
    {
        return Known::unknown(Cause::Inapplicable, path, "its qdisc has no classes");
    }
    let rules = Netlink::netfilter(|connection| class_rules::read(connection, nic));
    super::known(rules, path, NO_KERNEL).map(|rules| {
        let rules = rules.into_iter().map(|rule| ClassSelector {
            packets: rule.packets.to_string(),
            class: rule.class,
        });
        rules.collect()
    })
}

/// Drops and requeues of a hierarchy are those of its root, since every level includes those below it
/// (`qdisc_tree_reduce_backlog`, `mq_dump`); overlimits are counted by each qdisc for itself, except that `mq`
/// includes its children.
fn put_counts(tree: &[QdiscNode], nic: &NicName, counts: &mut NicCounts) {
    let path = format!("netlink/route/{nic}/qdiscs");
    let mut put = |name: &str, nodes: &mut dyn Iterator<Item = &Known<u64>>| {
        let known: Vec<u64> = nodes.filter_map(Known::get).collect();
        if !known.is_empty() {
            let sum = known.into_iter().fold(0, u64::saturating_add);
            let value = (sum, path.clone());
            counts.values.insert(format!("qdisc/{name}"), value);
        }
    };
    let is_top = |node: &&QdiscNode| node.parent >= 0xffff_fff0; // root, ingress, clsact
    let own = |node: &&QdiscNode| !matches!(node.kind.as_str(), "mq" | "mqprio");
    put(
        "drops",
        &mut tree.iter().filter(is_top).map(|node| &node.drops),
    );
    put(
        "requeues",
        &mut tree.iter().filter(is_top).map(|node| &node.requeues),
    );
    put(
        "overlimits",
        &mut tree.iter().filter(own).map(|node| &node.overlimits),
    );
}

/// The tables of one interface as received.
struct Tables {
    qdiscs: Vec<Vec<u8>>,
    classes: Vec<Vec<u8>>,
    /// The root's kind, including the built-in ones that a dump leaves out.
    root: Option<String>,
}

fn read(connection: &mut Connection, nic: &NicName) -> Result<Tables, Failure> {
    let link = link::read(connection, nic)?;
    Ok(Tables {
        qdiscs: table(connection, link.index, libc::RTM_GETQDISC)?,
        classes: table(connection, link.index, libc::RTM_GETTCLASS)?,
        root: link.qdisc,
    })
}

/// The table of one interface that `question` asks for.
fn table(connection: &mut Connection, index: u32, question: u16) -> Result<Vec<Vec<u8>>, Failure> {
    let request = Request::new(question, &qdisc::header(index, 0, 0));
    let answers = connection.dump(&request)?;
    // Not every kernel filters by interface.
    let own = |body: &Vec<u8>| u32_at(body, 4).is_ok_and(|own| own == index);
    let bodies = answers.into_iter().map(|answer| answer.body);
    Ok(bodies.filter(own).collect())
}

impl Tables {
    fn tree(&self, nic: &NicName) -> Known<Vec<QdiscNode>> {
        let path = format!("netlink/route/{nic}/qdiscs");
        let classes: Vec<Entry> = self
            .classes
            .iter()
            .filter_map(|body| Entry::parse(body).ok())
            .collect();
        let nodes: Result<Vec<QdiscNode>, Failure> = self
            .qdiscs
            .iter()
            .map(|body| parse_node(body, &classes, &path))
            .collect();
        let nodes = nodes.map(|mut nodes| {
            if let (false, Some(kind)) = (nodes.iter().any(|node| node.parent == ROOT), &self.root)
            {
                nodes.push(built_in(kind, &path));
            }
            nodes.sort_by_key(|node| (node.parent != ROOT, node.handle, node.parent));
            nodes
        });
        super::known(nodes, path, NO_KERNEL)
    }

    fn classes(&self, nic: &NicName) -> Known<Vec<QdiscClass>> {
        let classes: Result<Vec<Option<QdiscClass>>, Failure> =
            self.classes.iter().map(|body| parse_class(body)).collect();
        let classes = classes.map(|all| all.into_iter().flatten().collect());
        super::known(classes, format!("netlink/route/{nic}/classes"), NO_KERNEL)
    }
}

/// A root that the kernel does not dump (`noqueue`, `noop`).
fn built_in(kind: &str, path: &str) -> QdiscNode {
    let not_said = || Known::unknown(Cause::NotSaid, path, format!("{kind} has no statistics"));
    QdiscNode {
        kind: kind.to_owned(),
        handle: 0,
        parent: ROOT,
        rate_bit_per_s: None,
        drops: not_said(),
        requeues: not_said(),
        overlimits: not_said(),
        offloaded: Known::Value(false),
        default_class: None,
        traffic_classes: Vec::new(),
    }
}

fn parse_node(body: &[u8], classes: &[Entry], path: &str) -> Result<QdiscNode, Failure> {
    let entry = Entry::parse(body)?;
    let path = format!("{path}/{:x}:", entry.handle >> 16);
    let said = ResponseAttributes::after(body, qdisc_entry::HEADER_BYTES, &path, NO_KERNEL);
    let stats = said.nest(libc::TCA_STATS2, "stats");
    // `struct gnet_stats_queue`: queue length, backlog, drops, requeues, overlimits.
    let queue = stats.fact("queue", |stats| {
        stats.bytes(STATS_QUEUE).map(numbers::<5>).transpose()
    });
    let count = |at: usize| {
        queue
            .clone()
            .map(|numbers| numbers.get(at).copied().map_or(0, u64::from))
    };
    Ok(QdiscNode {
        default_class: htb_default(&entry),
        traffic_classes: traffic_classes(&entry),
        rate_bit_per_s: rate_of(&entry, classes).ok().flatten(),
        drops: count(2),
        requeues: count(3),
        overlimits: count(4),
        offloaded: said.u8(HW_OFFLOAD, "hw-offload").map(|flag| flag != 0),
        kind: entry.kind,
        handle: entry.handle,
        parent: entry.parent,
    })
}

/// The handle of the class of an `htb` that takes what nothing selects.
fn htb_default(entry: &Entry) -> Option<u32> {
    if entry.kind != "htb" {
        return None;
    }
    let (_, default) = qdisc_options::htb_global(&entry.options).ok().flatten()?;
    (default != 0).then(|| entry.handle & 0xffff_0000 | u32::from(default))
}

fn traffic_classes(entry: &Entry) -> Vec<TrafficClass> {
    if entry.kind != "mqprio" {
        return Vec::new();
    }
    let Ok(Some(mqprio)) = qdisc_options::mqprio_root(&entry.options) else {
        return Vec::new();
    };
    let classes = mqprio.queues.iter().zip(0_u8..);
    let classes = classes.map(|(&(count, first), class)| TrafficClass {
        priorities: (0..)
            .zip(mqprio.map)
            .filter(|(_, own)| *own == class)
            .map(|(priority, _)| priority)
            .collect(),
        first_queue: first.into(),
        queues: count.into(),
        max_bit_per_s: mqprio
            .max_rates
            .get(usize::from(class))
            .copied()
            .filter(|rate| rate.as_bit_per_s() > 0),
    });
    classes.collect()
}

/// The rate of a shaper, if it is one number.
fn rate_of(entry: &Entry, classes: &[Entry]) -> Result<Option<BitRate>, Failure> {
    match entry.kind.as_str() {
        "tbf" => qdisc::tbf_rate(&entry.options),
        "htb" => {
            let of_it = |class: &&Entry| class.handle >> 16 == entry.handle >> 16;
            let own: Vec<Entry> = classes.iter().filter(of_it).cloned().collect();
            qdisc::htb_rate(entry, &own)
        }
        "cake" => {
            let rate = Attributes::parse(&entry.options)?.u64(CAKE_RATE64)?;
            Ok(rate.filter(|rate| *rate != 0).and_then(bits))
        }
        "netem" => {
            let options = Attributes::after(&entry.options, NETEM_HEADER_BYTES)?;
            let rate = rate(&options, NETEM_RATE, 0, NETEM_RATE64)?;
            Ok(rate.filter(|rate| rate.as_bit_per_s() != 0))
        }
        _ => Ok(None),
    }
}

fn bits(bytes_per_s: u64) -> Option<BitRate> {
    bytes_per_s.checked_mul(8).map(BitRate::from_bit_per_s)
}

/// A class; `None` if it is only a queue.
fn parse_class(body: &[u8]) -> Result<Option<QdiscClass>, Failure> {
    let entry = Entry::parse(body)?;
    if !CLASSFUL.contains(&entry.kind.as_str()) {
        return Ok(None);
    }
    let (rate_bit_per_s, ceil_bit_per_s) = class_rates(&entry)?;
    Ok(Some(QdiscClass {
        rate_bit_per_s,
        ceil_bit_per_s,
        kind: entry.kind,
        handle: entry.handle,
        parent: entry.parent,
    }))
}

fn class_rates(entry: &Entry) -> Result<(Option<BitRate>, Option<BitRate>), Failure> {
    let options = || Attributes::parse(&entry.options);
    Ok(match entry.kind.as_str() {
        "htb" => {
            let options = options()?;
            (
                rate(&options, HTB_PARAMETERS, RATE_AT, HTB_RATE64)?,
                rate(&options, HTB_PARAMETERS, CEIL_AT, HTB_CEIL64)?,
            )
        }
        "hfsc" => {
            let options = options()?;
            // `struct tc_service_curve`: first slope, its length, second slope, in bytes per second.
            let slope = |kind| -> Result<Option<BitRate>, Failure> {
                let curve = options.bytes(kind).map(numbers::<3>).transpose()?;
                Ok(curve.and_then(|[_, _, second]| bits(second.into())))
            };
            let fair = slope(HFSC_FAIR)?;
            let given = fair.map_or_else(|| slope(HFSC_REAL_TIME), |rate| Ok(Some(rate)))?;
            (given, slope(HFSC_UPPER)?)
        }
        _ => (None, None),
    })
}

#[cfg(test)]
mod tests;
