//! Filters below a root qdisc (`<linux/pkt_cls.h>`, tc(8)): those of the kinds whose dump has every parameter, without
//! actions, are created again from their dumped options.

use linerate_model::host::{QdiscPart, QdiscPartIs};

use super::super::error::Failure;
use super::super::hexadecimal::to_hex;
use super::super::message::{Attributes, Request, u32_at};
use super::super::qdisc_entry::Entry;
use super::super::socket::Connection;
use super::header;

/// A kind of filter: the numbers of its attributes.
struct Kind {
    name: &'static str,
    /// Actions, and those of an older form.
    actions: &'static [u16],
    /// What counts packets, or is reported by the driver.
    counters: &'static [u16],
    flags: Option<u16>,
}

const U32: &str = "u32";
const U32_HASH_TABLE: u16 = 4; // TCA_U32_DIVISOR
const U32_MARK: u16 = 10;
const FLOWER: &str = "flower";
const FLOWER_ETHERTYPE: u16 = 8; // TCA_FLOWER_KEY_ETH_TYPE
/// `ETH_P_ALL`.
const EVERY_PROTOCOL: u16 = 3;
const KINDS: [Kind; 5] = [
    Kind {
        name: U32,
        actions: &[6, 7],
        counters: &[9],
        flags: Some(11),
    },
    Kind {
        name: "fw",
        actions: &[2, 4],
        counters: &[],
        flags: None,
    },
    Kind {
        name: "basic",
        actions: &[3, 4],
        counters: &[5],
        flags: None,
    },
    Kind {
        name: FLOWER,
        actions: &[3],
        counters: &[86],
        flags: Some(22),
    },
    Kind {
        name: "matchall",
        actions: &[2],
        counters: &[4],
        flags: Some(3),
    },
];

/// `TCA_CLS_FLAGS_SKIP_HW`, `_SKIP_SW` and `_VERBOSE`: what a request may say; the others are reported.
const FLAGS_ASKED: u32 = 1 | 2 | 16;
/// The root hash table of the first `u32` priority of a qdisc, and the distance to the next one (`gen_new_htid`,
/// net/sched/cls_u32.c).
const U32_FIRST_ROOT: u32 = 0x8000_0000;
const U32_NEXT_ROOT: u32 = 0x0010_0000;

/// The filters of a qdisc or class, as the kernel lists them: for each priority an entry without options, then its
/// filters.
pub(super) fn read(
    connection: &mut Connection,
    index: u32,
    parent: u32,
) -> Result<Vec<Entry>, Failure> {
    let request = Request::new(libc::RTM_GETTFILTER, &header(index, 0, parent));
    let answers = match connection.dump(&request) {
        Ok(answers) => answers,
        // A kernel without classifiers has no filters.
        Err(Failure::Kernel { errno, .. }) if errno == libc::EOPNOTSUPP => {
            return Ok(Vec::new());
        }
        Err(failure) => return Err(failure),
    };
    let filters = answers.iter().map(|answer| Entry::parse(&answer.body));
    filters.collect()
}

/// Why filters could not be created again; none if they could.
pub(super) fn lost(filters: &[Entry]) -> Option<String> {
    let one = filters.iter().find_map(|filter| {
        let name = &filter.kind;
        let Some(kind) = kind(name) else {
            return Some(format!("has a filter `{name}`"));
        };
        let options = Attributes::parse(&filter.options).ok()?;
        let has_action = kind
            .actions
            .iter()
            .any(|action| options.bytes(*action).is_some());
        has_action.then(|| format!("has a filter `{name}` with an action"))
    });
    one.or_else(|| {
        let mut roots = u32_roots(filters);
        roots.sort_unstable();
        let expected = (0..).map(|nth| U32_FIRST_ROOT + nth * U32_NEXT_ROOT);
        let is_in_order = roots.iter().copied().eq(expected.take(roots.len()));
        (!is_in_order).then(|| "has `u32` filters whose root hash table was replaced".to_owned())
    })
}

fn kind(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name)
}

/// Whether it is a hash table of `u32`.
fn is_table(filter: &Entry) -> bool {
    let options = Attributes::parse(&filter.options);
    filter.kind == U32 && options.is_ok_and(|options| options.bytes(U32_HASH_TABLE).is_some())
}

fn same_priority(one: &Entry, other: &Entry) -> bool {
    (one.parent, one.info, one.chain) == (other.parent, other.info, other.chain)
}

/// The root hash table of each `u32` priority, which the kernel makes: the last one listed, as later ones are put
/// before it.
fn u32_roots(filters: &[Entry]) -> Vec<u32> {
    let tables: Vec<&Entry> = filters.iter().filter(|one| is_table(one)).collect();
    let is_last = |(at, table): &(usize, &&Entry)| {
        !tables[at + 1..].iter().any(|one| same_priority(one, table))
    };
    let roots = tables.iter().enumerate().filter(is_last);
    roots.map(|(_, table)| table.handle).collect()
}

/// The filters in the order in which they are created again: the kernel lists hash tables last first, and numbers the
/// root tables of `u32` in the order of their priorities' creation.
pub(super) fn parts(filters: &[Entry]) -> Vec<QdiscPart> {
    let roots = u32_roots(filters);
    let root_of = |filter: &Entry| {
        let of_priority = |one: &&Entry| {
            is_table(one) && same_priority(one, filter) && roots.contains(&one.handle)
        };
        filters.iter().find(of_priority).map(|table| table.handle)
    };
    let is_made = |(at, filter): &(usize, &Entry)| {
        let is_root = is_table(filter) && roots.contains(&filter.handle);
        // The entry of a priority is made with its first filter.
        let is_implied = filter.options.is_empty()
            && filters[at + 1..]
                .iter()
                .any(|one| one.kind == filter.kind && same_priority(one, filter));
        !is_root && !is_implied
    };
    let mut made: Vec<(usize, &Entry)> = filters.iter().enumerate().filter(is_made).collect();
    made.sort_by_key(|(at, filter)| {
        let group = if filter.kind == U32 {
            root_of(filter)
        } else {
            None
        };
        // Tables before filters, which may lead to them.
        if is_table(filter) {
            (group, 0, filters.len() - at)
        } else {
            (group, 1, *at)
        }
    });
    made.into_iter().map(|(_, filter)| part(filter)).collect()
}

fn part(filter: &Entry) -> QdiscPart {
    QdiscPart {
        is: QdiscPartIs::Filter,
        kind: filter.kind.clone(),
        handle: filter.handle,
        parent: filter.parent,
        info: filter.info,
        chain: filter.chain,
        options: to_hex(&without_counters(&filter.kind, &filter.options)),
    }
}

/// The options without what changes while packets pass: counters, and actions, which have some. Of a kind that is not
/// restored nothing is left.
fn without_counters(name: &str, options: &[u8]) -> Vec<u8> {
    let Some(kind) = kind(name) else {
        return Vec::new();
    };
    rewritten(options, |attribute, bytes| {
        if kind.counters.contains(&attribute) || kind.actions.contains(&attribute) {
            return None;
        }
        let mut bytes = bytes.to_vec();
        if name == U32
            && attribute == U32_MARK
            && let Some(success) = bytes.get_mut(8..12)
        {
            success.fill(0); // `struct tc_u32_mark`
        }
        Some(bytes)
    })
}

/// The options as the kernel takes them, of a filter with this priority and protocol.
pub(super) fn request_options(name: &str, info: u32, options: &[u8]) -> Vec<u8> {
    let options = with_protocol(name, info, options);
    let Some(flags) = kind(name).and_then(|kind| kind.flags) else {
        return options;
    };
    rewritten(&options, |attribute, bytes| {
        if attribute != flags {
            return Some(bytes.to_vec());
        }
        let told = u32_at(bytes, 0).unwrap_or(0) & FLAGS_ASKED;
        (told != 0).then(|| told.to_ne_bytes().to_vec())
    })
}

/// The options of a `flower` filter with the EtherType of its protocol, which a dump leaves out or replaces by that behind
/// the VLAN tag (`fl_set_key`, net/sched/cls_flower.c).
fn with_protocol(name: &str, info: u32, options: &[u8]) -> Vec<u8> {
    let protocol = u16::try_from(info & 0xffff).unwrap_or(0);
    if name != FLOWER || u16::from_be(protocol) == EVERY_PROTOCOL {
        return options.to_vec();
    }
    let mut request = Request::new(0, &[]);
    request.put(FLOWER_ETHERTYPE, &protocol.to_ne_bytes());
    request.put_fixed(&rewritten(options, |attribute, bytes| {
        (attribute != FLOWER_ETHERTYPE).then(|| bytes.to_vec())
    }));
    request.into_body()
}

/// The attributes, each as `change` returns it; those for which it returns nothing are left out.
fn rewritten(options: &[u8], change: impl Fn(u16, &[u8]) -> Option<Vec<u8>>) -> Vec<u8> {
    let Ok(attributes) = Attributes::parse(options) else {
        return options.to_vec();
    };
    let mut request = Request::new(0, &[]);
    for (attribute, bytes) in attributes.iter() {
        if let Some(bytes) = change(attribute, bytes) {
            request.put(attribute, &bytes);
        }
    }
    request.into_body()
}
