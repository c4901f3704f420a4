//! The classes of a file, in the order of the numbers that they have now, so that a plan gives them the same ones.

use super::super::file::{Dscp, OneOrMore};
use super::super::plan::is_vlan_of;
use super::super::{WrittenClass, dscp_word};
use super::limits::TrafficClasses;
use crate::host::{Host, Nic};
use crate::ids::NicName;
use crate::setting::qdisc_spec::{Htb, HtbClass, Mqprio, rate_words};
use crate::setting::{ClassRule, Packets, QdiscSpec};
use crate::units::BitRate;

/// How many socket priorities an egress map names if it is whole.
const PRIORITIES: usize = 8;
/// What a class of `htb` without a guarantee has at least, in parts of the line (see `shared`).
const LEAST: u64 = 1_000;

/// A class, with the number that the mechanism has for it.
type Numbered = (u32, WrittenClass);

/// The PCP of the frames of a VLAN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pcp {
    One(u8),
    /// Its egress map is empty: 0.
    Unmapped,
    /// Several, or some socket priorities are not in its map.
    Mixed,
}

/// The VLANs of an interface by their ID.
pub(super) struct Vlans<'h> {
    all: Vec<(u16, &'h Nic, Pcp)>,
}

impl<'h> Vlans<'h> {
    pub(super) fn of(host: &'h Host, interface: &NicName, notes: &mut Vec<String>) -> Self {
        let mut all: Vec<(u16, &Nic, Pcp)> = Vec::new();
        for nic in &host.nics {
            let vlan = nic.stack.vlan.as_ref();
            let id = vlan.and_then(|vlan| u16::try_from(vlan.id.get()?).ok());
            let Some(id) = id.filter(|id| is_vlan_of(nic, *id, interface)) else {
                continue;
            };
            if let Some((_, other, _)) = all.iter().find(|(other, ..)| *other == id) {
                notes.push(format!(
                    "{} is VLAN {id} as well as {}, and is not in the file",
                    nic.name, other.name
                ));
                continue;
            }
            let pcp = pcp_of(nic);
            if pcp == Pcp::Mixed {
                notes.push(format!(
                    "{} maps only some socket priorities, or to several PCPs; a class has one",
                    nic.name
                ));
            }
            all.push((id, nic, pcp));
        }
        Self { all }
    }

    fn with_id(&self, id: u16) -> Option<WrittenClass> {
        let (_, nic, pcp) = self.all.iter().find(|(own, ..)| *own == id)?;
        let priority = match pcp {
            Pcp::One(pcp) => Some(*pcp),
            Pcp::Unmapped | Pcp::Mixed => None,
        };
        Some(of_vlan(nic, id, priority))
    }

    /// The VLANs whose frames have that PCP.
    fn with_pcp(&self, pcp: u8) -> Vec<(u16, &'h Nic)> {
        let own = |one: &Pcp| *one == Pcp::One(pcp) || (*one == Pcp::Unmapped && pcp == 0);
        let all = self.all.iter().filter(|(.., pcp)| own(pcp));
        all.map(|(id, nic, _)| (*id, *nic)).collect()
    }

    /// Notes the VLANs that no class of the file has.
    fn note_the_others(&self, classes: &[Numbered], why: &str, notes: &mut Vec<String>) {
        let has = |id: u16| classes.iter().any(|(_, class)| class.vlan == Some(id));
        let others = self.all.iter().filter(|(id, ..)| !has(*id));
        let names: Vec<&str> = others.map(|(_, nic, _)| nic.name.as_str()).collect();
        if !names.is_empty() {
            let names = names.join(", ");
            notes.push(format!("without a class in the file: {names}; {why}"));
        }
    }
}

/// Empty: every frame has PCP 0; whole: all socket priorities have one PCP.
fn pcp_of(nic: &Nic) -> Pcp {
    let egress = nic.stack.vlan.as_ref().and_then(|vlan| vlan.egress.value());
    let egress: Vec<&(u32, u32)> = egress.into_iter().flatten().collect();
    let mut of_all: Vec<u32> = egress.iter().map(|(_, pcp)| *pcp).collect();
    let is_whole = (0..8).all(|priority| egress.iter().any(|(from, _)| *from == priority));
    of_all.dedup();
    match of_all[..] {
        [] | [0] => Pcp::Unmapped,
        [one] if is_whole => u8::try_from(one).map_or(Pcp::Mixed, Pcp::One),
        _ => Pcp::Mixed,
    }
}

fn of_vlan(nic: &Nic, id: u16, priority: Option<u8>) -> WrittenClass {
    let addresses = nic.addresses.value().cloned().unwrap_or_default();
    let own = addresses.into_iter();
    let own: Vec<String> = own.filter(|one| !one.starts_with("fe80:")).collect();
    WrittenClass {
        vlan: Some(id),
        device: Some(nic.name.to_string()),
        address: match <[String; 1]>::try_from(own) {
            Ok([one]) => OneOrMore::One(one),
            Err(all) => OneOrMore::More(all),
        },
        priority,
        ..named(format!("vlan{id}"))
    }
}

fn of_priority(priority: u8) -> WrittenClass {
    WrittenClass {
        priority: Some(priority),
        ..named(format!("priority{priority}"))
    }
}

fn named(name: String) -> WrittenClass {
    WrittenClass {
        name,
        limit: words_of(None),
        ..WrittenClass::default()
    }
}

fn words_of(limit: Option<BitRate>) -> String {
    limit.map_or_else(|| "none".to_owned(), rate_words)
}

fn in_order(mut all: Vec<Numbered>) -> Vec<WrittenClass> {
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, class)| class).collect()
}

/// The class that has the rest: that of most priorities, and of several such the first one.
fn rest_of(of_priority: &[u32]) -> u32 {
    let count = |class: u32| of_priority.iter().filter(|one| **one == class).count();
    let mut classes = of_priority.to_vec();
    classes.sort_unstable();
    classes.dedup();
    let most = classes.iter().rev().max_by_key(|class| count(**class));
    most.copied().unwrap_or(0)
}

/// The priorities below 8 of each class but the rest's.
fn priorities_of(of_priority: &[u32], rest: u32, notes: &mut Vec<String>) -> Vec<(u32, Vec<u8>)> {
    let mut all: Vec<(u32, Vec<u8>)> = Vec::new();
    for (priority, class) in (0..=7_u8).zip(of_priority) {
        if *class == rest {
            continue;
        }
        match all.iter_mut().find(|(number, _)| number == class) {
            Some((_, own)) => own.push(priority),
            None => all.push((*class, vec![priority])),
        }
    }
    all.sort();
    for (class, own) in all.iter().filter(|(_, own)| own.len() > 1) {
        let own: Vec<String> = own.iter().map(ToString::to_string).collect();
        notes.push(format!(
            "traffic class {class} has the priorities {} together; the file has a class with the same limit for each",
            own.join(", ")
        ));
    }
    all
}

/// The VLANs without limits.
pub(super) fn only_vlans(vlans: &Vlans<'_>) -> Vec<WrittenClass> {
    let all = vlans.all.iter();
    all.filter_map(|(id, ..)| vlans.with_id(*id)).collect()
}

/// The traffic classes of a NIC: by the PCP of a VLAN, or by priority.
pub(super) fn of_dcb(
    dcb: &TrafficClasses,
    line: BitRate,
    vlans: &Vlans<'_>,
    notes: &mut Vec<String>,
) -> Vec<WrittenClass> {
    let rest = rest_of(&dcb.of_priority);
    let groups = priorities_of(&dcb.of_priority, rest, notes);
    let guarantees = has_guarantees(dcb, rest, &groups, notes);
    let mut classes = Vec::new();
    for (number, priorities) in &groups {
        let parts = u32::try_from(priorities.len()).unwrap_or(1);
        for priority in priorities {
            let mut class = match vlans.with_pcp(*priority)[..] {
                [(id, nic)] => of_vlan(nic, id, Some(*priority)),
                _ => of_priority(*priority),
            };
            let limit = dcb.rate(*number);
            class.limit = words_of(limit);
            let share = dcb.share(*number).filter(|_| guarantees);
            class.guarantee = share.map(|share| guarantee_of(share / parts, limit, line));
            classes.push((*number, class));
        }
    }
    vlans.note_the_others(
        &classes,
        "frames of such a VLAN share their PCP with another one, or have that of everything else",
        notes,
    );
    if let Some(limit) = dcb.rate(rest) {
        let class = WrittenClass {
            limit: rate_words(limit),
            ..named("rest".to_owned())
        };
        classes.push((u32::MAX, class));
    }
    in_order(classes)
}

/// A share of the line, of which a class with a limit uses no more than that.
fn guarantee_of(share: u32, limit: Option<BitRate>, line: BitRate) -> String {
    let whole = u128::from(line.as_bit_per_s().max(1));
    let used = |limit: BitRate| u128::from(limit.as_bit_per_s()) * 100 / whole;
    match limit.map(|limit| (limit, used(limit))) {
        Some((limit, 0)) => rate_words(limit),
        Some((_, used)) => format!("{} %", u128::from(share).min(used)),
        None => format!("{share} %"),
    }
}

/// Whether the shares of the classes are guarantees that a file can have: every class is served by its share.
fn has_guarantees(
    dcb: &TrafficClasses,
    rest: u32,
    groups: &[(u32, Vec<u8>)],
    notes: &mut Vec<String>,
) -> bool {
    let of_rest = (rest, Vec::new());
    let shared = |(class, own): &&(u32, Vec<u8>)| {
        let parts = u32::try_from(own.len()).unwrap_or(1);
        dcb.share(*class).is_some_and(|share| share >= parts)
    };
    let all = || groups.iter().chain([&of_rest]);
    let count = all().filter(shared).count();
    if count > 0 && count <= groups.len() {
        notes.push(
            "some traffic classes have ETS shares and others do not, which a file cannot have: its classes have no guarantees"
                .to_owned(),
        );
    }
    count > groups.len()
}

/// The classes that the rules select, by the number of each; the rates are not in them yet.
fn of_rules(
    rules: &[ClassRule],
    vlans: &Vlans<'_>,
    number_of: impl Fn(u32) -> Option<u32>,
) -> Vec<Numbered> {
    let mut classes: Vec<Numbered> = Vec::new();
    for rule in rules {
        let Some(number) = number_of(rule.class) else {
            continue;
        };
        let class = match rule.packets {
            Packets::Vlan(id) => match vlans.with_id(id) {
                Some(class) => class,
                None => continue,
            },
            Packets::Priority(priority) => WrittenClass {
                priority: u8::try_from(priority).ok(),
                ..named(format!("priority{priority}"))
            },
            Packets::Dscp(dscp) => WrittenClass {
                dscp: Some(Dscp::Name(dscp_word(dscp))),
                ..named(format!("dscp-{}", dscp_word(dscp)))
            },
            Packets::Mark(mark) => WrittenClass {
                mark: Some(mark),
                ..named(format!("mark{mark}"))
            },
            Packets::Port(port) => {
                let name = format!("ports-{:x}", rule.class & 0xffff);
                let mut there = classes.iter_mut();
                if let Some((_, class)) = there.find(|(_, class)| class.name == name) {
                    class.ports.push(port);
                    continue;
                }
                WrittenClass {
                    ports: vec![port],
                    ..named(name)
                }
            }
        };
        classes.push((number, class));
    }
    classes
}

/// The leaves of an `htb`. What filters select is not read: such a class gets a mark to be replaced.
pub(super) fn of_htb(
    htb: &Htb,
    rules: &[ClassRule],
    vlans: &Vlans<'_>,
    notes: &mut Vec<String>,
) -> Vec<WrittenClass> {
    let own = |class: u32| {
        let minor = u16::try_from(class & 0xffff).ok()?;
        htb.classes.contains_key(&minor).then_some(minor.into())
    };
    let mut classes = of_rules(rules, vlans, own);
    if rules.is_empty() {
        // What selects them is not known.
        classes.extend(
            vlans
                .all
                .iter()
                .filter_map(|(id, ..)| Some((0, vlans.with_id(*id)?))),
        );
    }
    let why = "traffic of such a VLAN is part of everything else";
    vlans.note_the_others(&classes, why, notes);
    let (mut others, mut inner) = (Vec::new(), Vec::new());
    for (minor, class) in &htb.classes {
        let is_inner = htb.classes.values().any(|one| one.parent == *minor);
        if is_inner && class.parent != 0 {
            inner.push(format!("{minor:x}"));
        }
        let is_ruled = classes
            .iter()
            .any(|(number, _)| *number == u32::from(*minor));
        if is_inner || is_ruled {
            continue;
        }
        let class = if *minor == htb.default {
            named("rest".to_owned())
        } else {
            others.push(format!("{minor:x}"));
            WrittenClass {
                mark: Some(u32::from(*minor)),
                ..named(format!("class-{minor:x}"))
            }
        };
        classes.push(((*minor).into(), class));
    }
    if !others.is_empty() {
        notes.push(format!(
            "what selects the traffic of the htb classes {} is not in rules of linerate: replace their `mark`",
            others.join(", ")
        ));
    }
    if !inner.is_empty() {
        notes.push(format!(
            "what the classes below the htb classes {} share is not in the file: a file has one level of classes",
            inner.join(", ")
        ));
    }
    give_rates(htb, &mut classes, notes);
    in_order(classes)
}

/// The limits and guarantees of the classes of an `htb`. What a class has of the line without a guarantee is one too, since
/// other classes of the file would not leave it the same.
fn give_rates(htb: &Htb, classes: &mut [Numbered], notes: &mut Vec<String>) {
    let line = htb.line();
    let has_top = htb.classes.values().any(|class| class.parent != 0);
    let of = |number: u32| htb.classes.get(&u16::try_from(number).ok()?);
    let least = (line.as_bit_per_s() / LEAST).max(8_000);
    let rates = |is_written: &dyn Fn(&HtbClass) -> bool, classes: &[Numbered]| {
        let all = classes.iter().filter_map(|(number, _)| of(*number));
        let written = all.filter(|class| is_written(class));
        written.map(|class| class.rate.as_bit_per_s()).sum::<u64>()
    };
    // Where the smallest rates are above what is left of the line, they are nobody's guarantee, and all others are.
    let any = |class: &HtbClass| class.rate != class.ceil;
    let above_least = |class: &HtbClass| class.rate.as_bit_per_s() > least;
    let never = |_: &HtbClass| false;
    let fits = |sum: u64| sum <= line.as_bit_per_s();
    let is_written: &dyn Fn(&HtbClass) -> bool = if fits(rates(&|_| true, classes)) {
        &any
    } else if fits(rates(&above_least, classes)) {
        &above_least
    } else {
        notes.push(
            "the rates of the htb classes are above the line in sum, so that they guarantee nothing: they are not in the file"
                .to_owned(),
        );
        &never
    };
    for (number, class) in classes {
        let Some(own) = of(*number) else { continue };
        let is_open = has_top && own.ceil == line;
        class.limit = words_of((!is_open).then_some(own.ceil));
        class.guarantee = is_written(own).then(|| rate_words(own.rate));
    }
}

impl Htb {
    /// The ceil of its top class; none of a hierarchy without one.
    pub(super) fn top_ceil(&self) -> Option<BitRate> {
        let has_top = self.classes.values().any(|class| class.parent != 0);
        has_top.then(|| self.line())
    }

    fn line(&self) -> BitRate {
        let tops = self.classes.values().filter(|class| class.parent == 0);
        let line = tops.map(|class| class.ceil).max();
        line.unwrap_or(BitRate::from_bit_per_s(0))
    }
}

/// The classes of an `mqprio`, limited by token buckets below their queues or by the NIC.
pub(super) fn of_mqprio(
    mqprio: &Mqprio,
    rules: &[ClassRule],
    vlans: &Vlans<'_>,
    notes: &mut Vec<String>,
) -> Vec<WrittenClass> {
    let mut map: Vec<u32> = mqprio.map.iter().map(|class| u32::from(*class)).collect();
    let priority_of = |class: u32| usize::try_from(class & 0xffff).unwrap_or(usize::MAX);
    let rest = rest_of(&map);
    let mut classes = of_rules(rules, vlans, |class| map.get(priority_of(class)).copied());
    // What a rule selects is not selected by its priority, too.
    for rule in rules {
        if let Some(class) = map.get_mut(priority_of(rule.class)) {
            *class = rest;
        }
    }
    let why = "traffic of such a VLAN is part of everything else";
    vlans.note_the_others(&classes, why, notes);
    let above = map.iter().skip(PRIORITIES).any(|class| *class != rest);
    if above {
        notes
            .push("the socket priorities above 7 have classes that are not in the file".to_owned());
    }
    for (number, priorities) in priorities_of(&map, rest, notes) {
        classes.extend(priorities.into_iter().map(|own| (number, of_priority(own))));
    }
    classes.retain(|(number, _)| *number != rest);
    for (number, class) in &mut classes {
        class.limit = words_of(limit_of(mqprio, *number));
        class.guarantee = minimum_of(mqprio, *number);
    }
    let (limit, guarantee) = (limit_of(mqprio, rest), minimum_of(mqprio, rest));
    if limit.is_some() || guarantee.is_some() {
        let class = WrittenClass {
            limit: words_of(limit),
            guarantee,
            ..named("rest".to_owned())
        };
        classes.push((u32::MAX, class));
    }
    in_order(classes)
}

/// What the NIC guarantees to a class.
fn minimum_of(mqprio: &Mqprio, class: u32) -> Option<String> {
    let rate = mqprio.min_rates.get(usize::try_from(class).ok()?)?;
    (rate.as_bit_per_s() > 0).then(|| rate_words(*rate))
}

/// What the buckets below the queues of a class have in sum, if each queue has one, or the rate that the NIC limits it to.
fn limit_of(mqprio: &Mqprio, class: u32) -> Option<BitRate> {
    let class = usize::try_from(class).ok()?;
    let (count, first) = *mqprio.queues.get(class)?;
    let buckets = (first..first.saturating_add(count)).map(|queue| {
        match mqprio.leaves.get(&queue.checked_add(1)?) {
            Some(QdiscSpec::Tbf(tbf)) => Some(tbf.rate.as_bit_per_s()),
            _ => None,
        }
    });
    let sum = buckets.sum::<Option<u64>>().map(BitRate::from_bit_per_s);
    let limit = sum.or_else(|| mqprio.max_rates.get(class).copied());
    limit.filter(|limit| limit.as_bit_per_s() > 0)
}
