//! Finds rate limits of an interface: in the classes of its root qdisc, below `mq`, on its queues, in DCB (tc-htb(8),
//! tc-hfsc(8), Documentation/networking/scaling.rst, dcb(8)).

use super::facts::if_read;
use crate::finding::Evidence;
use crate::host::{Nic, Qdisc, QdiscClass, QdiscNode, QueueKind};
use crate::units::BitRate;

/// The part of a handle that names the qdisc.
const MAJOR: u32 = 0xffff_0000;
/// The parent of the root.
const ROOT: u32 = u32::MAX;
/// Deeper than any class hierarchy; stops at loops.
const DEEPEST: usize = 16;
/// The maximum number of evidence entries.
const NAMED: usize = 8;

/// A rate limit of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shaper {
    /// Its place, `class 1:10 of htb`.
    pub(super) what: String,
    /// The rate; the minimum of several.
    pub(super) rate: BitRate,
    /// Whether it is one of several parallel limits.
    pub(super) each: bool,
    /// Whether all traffic passes it; otherwise some flows or classes only.
    pub(super) of_all: bool,
    pub(super) evidence: Vec<Evidence>,
}

fn name(handle: u32) -> String {
    format!("{:x}:{:x}", handle >> 16, handle & !MAJOR)
}

/// The ceiling of one class. An `hfsc` class without an upper limit has none.
fn own_ceiling(class: &QdiscClass) -> Option<BitRate> {
    match class.kind.as_str() {
        "htb" => class.ceil_bit_per_s.or(class.rate_bit_per_s),
        _ => class.ceil_bit_per_s,
    }
}

/// The minimum of a class's ceiling and those of its parents.
fn ceiling(class: &QdiscClass, all: &[QdiscClass]) -> Option<BitRate> {
    let above = |class: &&QdiscClass| all.iter().find(|other| other.handle == class.parent);
    std::iter::successors(Some(class), above)
        .take(DEEPEST)
        .filter_map(own_ceiling)
        .min()
}

/// The default class, for packets that match no filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unnamed {
    /// To this class.
    To(u32),
    /// Unshaped, bypassing all classes.
    Past,
    /// Unknown from the parameters.
    NotSaid,
}

/// The default class in the parameters of `htb`.
fn default_class(qdisc: &Qdisc) -> Unnamed {
    // TCA_HTB_INIT (2) with `struct tc_htb_glob`: version, rate2quantum, defcls.
    const VERSION: u32 = 3;
    let digits = qdisc.options.as_bytes();
    let byte = |at: usize| {
        let pair = digits.get(at * 2..at * 2 + 2)?;
        u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()
    };
    let word = |at: usize| Some([byte(at)?, byte(at + 1)?, byte(at + 2)?, byte(at + 3)?]);
    let mut at = 0;
    // Attributes with a header of four bytes, padded to four; each is at least as long as its header.
    while let (Some(low), Some(high)) = (byte(at), byte(at + 1)) {
        let is_init = matches!(
            (byte(at + 2), byte(at + 3)),
            (Some(2), Some(0)) | (Some(0), Some(2))
        );
        // The byte order is that of the captured machine.
        for read in [u32::from_le_bytes, u32::from_be_bytes] {
            if is_init && word(at + 4).map(read) == Some(VERSION) {
                return match word(at + 12).map(read).map(|class| class & !MAJOR) {
                    Some(0) => Unnamed::Past,
                    Some(minor) => Unnamed::To((qdisc.handle & MAJOR) | minor),
                    None => Unnamed::NotSaid,
                };
            }
        }
        let length = usize::from(u16::from_le_bytes([low, high]));
        at += length.max(4).next_multiple_of(4);
    }
    Unnamed::NotSaid
}

/// The ceiling of the classes of the qdisc `handle`: that of its default class, or if that is unknown, the highest of
/// all, if none is unlimited.
fn of_classes(kind: &str, handle: u32, unnamed: Unnamed, nic: &Nic) -> Option<Shaper> {
    let all = nic.shaping.classes.value()?;
    let own: Vec<&QdiscClass> = all
        .iter()
        .filter(|class| class.handle & MAJOR == handle & MAJOR)
        .collect();
    let named = |class: &QdiscClass| all.iter().find(|other| other.handle == class.handle);
    let default_class = match unnamed {
        Unnamed::To(handle) => own.iter().find(|class| class.handle == handle),
        Unnamed::Past | Unnamed::NotSaid => None,
    };
    let (class, of_all) = if let Some(class) = default_class {
        (*class, true)
    } else {
        let leaf = |class: &&&QdiscClass| !all.iter().any(|other| other.parent == class.handle);
        let leaves: Vec<&QdiscClass> = own.iter().filter(leaf).copied().collect();
        // A leaf without a ceiling bypasses all others.
        if leaves.iter().any(|class| ceiling(class, all).is_none()) {
            return None;
        }
        let widest = leaves.into_iter().max_by_key(|class| ceiling(class, all))?;
        (widest, unnamed == Unnamed::NotSaid)
    };
    let rate = ceiling(named(class)?, all)?;
    let path = format!("RTM_GETTCLASS {}", nic.name);
    let evidence = own.iter().take(NAMED).filter_map(|class| {
        let what = format!("ceiling of class {} of {kind}", name(class.handle));
        Some(Evidence::new(what, own_ceiling(class)?, &*path))
    });
    Some(Shaper {
        what: format!("class {} of {kind}", name(class.handle)),
        rate,
        each: false,
        of_all,
        evidence: evidence.collect(),
    })
}

/// The ceiling of the root qdisc's classes; `None` if there is no limit or it is unknown.
pub(super) fn of_root(nic: &Nic, qdisc: &Qdisc) -> Option<Shaper> {
    let unnamed = match qdisc.kind.as_str() {
        "htb" => default_class(qdisc),
        _ => Unnamed::NotSaid,
    };
    // Synthetic and old records have no handle; their only classful qdisc is the root.
    let handle = match (qdisc.handle, nic.shaping.classes.value()) {
        (0, Some(classes)) => classes.first()?.handle,
        (handle, _) => handle,
    };
    of_classes(&qdisc.kind, handle, unnamed, nic)
}

/// Whether the classes of the root are known and not empty.
pub(super) fn has_classes(nic: &Nic) -> bool {
    nic.shaping
        .classes
        .value()
        .is_some_and(|all| !all.is_empty())
}

/// The lowest of several limits, with the first ones as evidence.
fn slowest(
    (one, several): (&str, &str),
    of_all: bool,
    places: Vec<(BitRate, Evidence)>,
) -> Option<Shaper> {
    let rate = places.iter().map(|(rate, _)| *rate).min()?;
    let count = places.len();
    let evidence = places.into_iter().take(NAMED).map(|(_, one)| one).collect();
    Some(Shaper {
        what: format!("{count} {}", if count == 1 { one } else { several }),
        rate,
        each: true,
        of_all,
        evidence,
    })
}

/// Shapers below the root, such as one on each leaf of `mq`.
fn below_root(nic: &Nic) -> Option<Shaper> {
    let tree = if_read(&nic.shaping.tree)?;
    let leaves = tree.iter().filter(|node| node.parent != ROOT);
    let rate = |node: &QdiscNode| {
        let of_classes =
            || of_classes(&node.kind, node.handle, Unnamed::NotSaid, nic).map(|own| own.rate);
        match node.kind.as_str() {
            "htb" | "hfsc" => node.rate_bit_per_s.or_else(of_classes),
            "ingress" | "clsact" => None,
            _ => node.rate_bit_per_s,
        }
    };
    let path = format!("RTM_GETQDISC {}", nic.name);
    let shaping: Vec<(BitRate, Evidence)> = leaves
        .clone()
        .filter_map(|node| {
            let what = format!("rate of {} on {}", node.kind, name(node.parent));
            let rate = rate(node)?;
            Some((rate, Evidence::new(what, rate, &*path)))
        })
        .collect();
    let of_all = shaping.len() == leaves.count();
    slowest(
        ("qdisc below the root", "qdiscs below the root"),
        of_all,
        shaping,
    )
}

/// `tx_maxrate` of its queues.
fn on_queues(nic: &Nic) -> Option<Shaper> {
    let queues = nic
        .queues
        .iter()
        .filter(|queue| queue.kind == QueueKind::Tx);
    let shaping: Vec<(BitRate, Evidence)> = queues
        .clone()
        .filter_map(|queue| {
            let rate = queue
                .max_bit_per_s
                .get()
                .filter(|rate| rate.as_bit_per_s() > 0)?;
            let path = format!(
                "/sys/class/net/{}/queues/tx-{}/tx_maxrate",
                nic.name, queue.index
            );
            Some((
                rate,
                Evidence::new(format!("tx_maxrate of tx-{}", queue.index), rate, path),
            ))
        })
        .collect();
    let of_all = shaping.len() == queues.count();
    slowest(
        ("queue by tx_maxrate", "queues by tx_maxrate"),
        of_all,
        shaping,
    )
}

/// The rate limit of a traffic class (the kernel's extension of IEEE 802.1Qaz).
fn on_traffic_classes(nic: &Nic) -> Option<Shaper> {
    let dcb = if_read(&nic.shaping.dcb)?;
    let all = dcb.class_max_bit_per_s.value()?;
    let path = format!("RTM_GETDCB {}: DCB_ATTR_IEEE_MAXRATE", nic.name);
    let shaping: Vec<(u32, BitRate)> = (0u32..)
        .zip(all)
        .filter(|(_, rate)| rate.as_bit_per_s() > 0)
        .map(|(class, rate)| (class, *rate))
        .collect();
    if shaping.is_empty() {
        return None;
    }
    // Unmarked traffic has priority 0.
    let map = dcb.priority_class.value();
    let usual = map.and_then(|map| map.first().copied()).unwrap_or(0);
    let of_all = shaping.iter().any(|(class, _)| *class == usual);
    let places = shaping.into_iter().map(|(class, rate)| {
        let what = format!("maximum rate of traffic class {class}");
        (rate, Evidence::new(what, rate, &*path))
    });
    slowest(
        ("traffic class by DCB", "traffic classes by DCB"),
        of_all,
        places.collect(),
    )
}

/// Every shaper of `nic` other than its root qdisc.
pub(super) fn beside_root(nic: &Nic) -> Vec<Shaper> {
    let all = [below_root(nic), on_queues(nic), on_traffic_classes(nic)];
    all.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn htb(options: &str) -> Qdisc {
        Qdisc {
            handle: 0x1_0000,
            options: options.to_owned(),
            ..Qdisc::plain("htb")
        }
    }

    #[test]
    fn the_default_class_stands_in_the_parameters() {
        // TCA_HTB_INIT of 20 bytes, as `tc qdisc add dev eth0 root handle 1: htb default 10` dumps it.
        let init = "18000200030000000a000000100000000000000000000000";
        assert_eq!(default_class(&htb(init)), Unnamed::To(0x1_0010));
        let direct_queue = format!("08000500e8030000{init}");
        assert_eq!(default_class(&htb(&direct_queue)), Unnamed::To(0x1_0010));
        let none = "18000200030000000a000000000000000000000000000000";
        assert_eq!(default_class(&htb(none)), Unnamed::Past);
        for odd in ["", "18", "zz000200", "00000000", "1800020003"] {
            assert_eq!(default_class(&htb(odd)), Unnamed::NotSaid, "{odd}");
        }
    }

    #[test]
    fn a_chain_of_classes_that_leads_back_to_itself_ends() {
        let class = |handle, parent| QdiscClass {
            kind: "htb".to_owned(),
            handle,
            parent,
            rate_bit_per_s: None,
            ceil_bit_per_s: Some(BitRate::from_mbit_per_s(100)),
        };
        let all = [class(1, 2), class(2, 1)];
        assert_eq!(ceiling(&all[0], &all), Some(BitRate::from_mbit_per_s(100)));
    }
}
