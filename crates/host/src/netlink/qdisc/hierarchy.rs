//! What is below a root qdisc: classes, child qdiscs and filters, read in the order in which they are created again.

use linerate_model::host::{Qdisc, QdiscPart, QdiscPartIs};
use linerate_model::setting::QdiscSpec;

use super::super::error::Failure;
use super::super::hexadecimal::{from_hex, to_hex};
use super::super::message::{Attributes, CREATE, EXCLUSIVE, NESTED, REPLACE, Request, u16_at};
use super::super::qdisc_entry::{Entry, HTB_PARAMETERS, ROOT, TCA_CHAIN};
use super::super::qdisc_options::{self, HTB_LEVEL_AT, HTB_OFFLOAD};
use super::super::socket::Connection;
use super::{MAJOR, NESTED_ONLY, entries, filters, header, request_options};

/// Kinds without user-made classes whose dump has every parameter they were created with (the classes of `ets`, `mq`,
/// `mqprio`, `prio` and `tbf` belong to the qdisc). `red`, `choke`, `gred` and `sfb` are not included (they need tables
/// that no dump returns), nor is `netem` (its delay distribution is not dumped).
const RESTORABLE: [&str; 18] = [
    "noqueue",
    "ets",
    "mq",
    "mqprio",
    "prio",
    "tbf",
    "pfifo",
    "bfifo",
    "pfifo_fast",
    "pfifo_head_drop",
    "fq",
    "fq_codel",
    "codel",
    "cake",
    "sfq",
    "pie",
    "fq_pie",
    "hhf",
];
/// The kind whose user-made classes are restored.
const HTB: &str = "htb";
/// The maximum number of levels of qdiscs that is read.
const LEVELS_MAX: usize = 8;

/// What is below a root.
#[derive(Debug, Default)]
pub(super) struct Below {
    /// Classes before the qdiscs below them, filters last.
    pub(super) parts: Vec<QdiscPart>,
    /// The classes of the root, as the kernel listed them.
    pub(super) classes: Vec<Entry>,
    /// The first thing that could not be created again.
    pub(super) lost: Option<String>,
}

/// Reads what is below `root`; nothing for the kernel's default, which has nothing user-made.
pub(super) fn read(
    connection: &mut Connection,
    root: &Entry,
    qdiscs: &[Entry],
) -> Result<Below, Failure> {
    let mut below = Below::default();
    if root.handle == 0 {
        return Ok(below);
    }
    let family = with_children(root, qdiscs);
    let classes = if family.iter().any(|qdisc| qdisc.kind == HTB) {
        entries(connection, libc::RTM_GETTCLASS, root.interface)?
    } else {
        Vec::new()
    };
    below.take(&family, &classes);
    for qdisc in family {
        // Those of a qdisc and of its classes together: `u32` numbers its hash tables for both.
        let own = below.parts.iter().map(|part| part.handle);
        let own = own.filter(|handle| handle & MAJOR == qdisc.handle && *handle != qdisc.handle);
        let parents: Vec<u32> = std::iter::once(qdisc.handle).chain(own).collect();
        let mut read = Vec::new();
        for parent in parents {
            read.extend(filters::read(connection, root.interface, parent)?);
        }
        let why = filters::lost(&read);
        below.lost = below.lost.take().or(why);
        below.parts.extend(filters::parts(&read));
    }
    Ok(below)
}

/// A root and the qdiscs below it that somebody made, each after the one that it is below. Those created by the kernel
/// have no handle.
fn with_children<'q>(root: &'q Entry, qdiscs: &'q [Entry]) -> Vec<&'q Entry> {
    let mut family = vec![root];
    let mut from = 0;
    for _ in 0..LEVELS_MAX {
        let majors: Vec<u32> = family[from..].iter().map(|one| one.handle).collect();
        from = family.len();
        let is_child = |entry: &&Entry| {
            entry.handle != 0 && entry.parent != ROOT && majors.contains(&(entry.parent & MAJOR))
        };
        let mut children: Vec<_> = qdiscs.iter().filter(is_child).collect();
        children.sort_by_key(|child| child.parent);
        family.extend(children);
    }
    family
}

impl Below {
    /// The classes and qdiscs among `family`, whose first one is the root.
    fn take(&mut self, family: &[&Entry], classes: &[Entry]) {
        for (level, qdisc) in family.iter().enumerate() {
            let own = classes.iter().filter(|class| {
                class.kind == HTB && class.handle & MAJOR == qdisc.handle && class.handle != 0
            });
            let own: Vec<Entry> = own.cloned().collect();
            let why = lost_with(qdisc, &own, level == 0);
            self.lost = self.lost.take().or(why);
            if level > 0 {
                self.parts.push(qdisc_part(qdisc));
            }
            self.parts.extend(class_parts(qdisc.handle, &own));
            if level == 0 {
                self.classes = own;
            }
        }
    }
}

/// Why a qdisc of a family could not be created again; none if it could.
pub(super) fn lost_with(qdisc: &Entry, classes: &[Entry], is_root: bool) -> Option<String> {
    let what = |rest: &str| {
        if is_root {
            rest.to_owned()
        } else {
            let (kind, major) = (&qdisc.kind, qdisc.handle >> 16);
            format!("has a child `{kind}` {major:x}:, which {rest}")
        }
    };
    if qdisc.has_size_table {
        return Some(what("has a size table"));
    }
    let is_offloaded = |entry: &Entry| has_attribute(&entry.options, HTB_OFFLOAD);
    match qdisc.kind.as_str() {
        HTB if is_offloaded(qdisc) || classes.iter().any(is_offloaded) => {
            Some(what("is offloaded to the NIC"))
        }
        kind if kind == HTB || RESTORABLE.contains(&kind) => None,
        _ => Some(what("may have classes or tables")),
    }
}

fn has_attribute(options: &[u8], kind: u16) -> bool {
    let options = Attributes::parse(options);
    options.is_ok_and(|options| options.bytes(kind).is_some())
}

fn qdisc_part(entry: &Entry) -> QdiscPart {
    let options = match entry.kind.as_str() {
        HTB => qdisc_options::without_count(entry.options.clone()),
        _ => entry.options.clone(),
    };
    QdiscPart {
        is: QdiscPartIs::Qdisc,
        kind: entry.kind.clone(),
        handle: entry.handle,
        parent: entry.parent,
        info: 0,
        chain: 0,
        options: to_hex(&options),
    }
}

/// The classes of the qdisc `handle`, each after the class above it.
pub(super) fn class_parts(handle: u32, classes: &[Entry]) -> Vec<QdiscPart> {
    let level = |class: &Entry| {
        let above = std::iter::successors(Some(class), |class| {
            classes.iter().find(|other| other.handle == class.parent)
        });
        above.take(LEVELS_MAX + 1).count()
    };
    let mut sorted: Vec<&Entry> = classes.iter().collect();
    sorted.sort_by_key(|class| (level(class), class.handle));
    let part = |class: &Entry| QdiscPart {
        is: QdiscPartIs::Class,
        kind: class.kind.clone(),
        handle: class.handle,
        parent: if class.parent == ROOT {
            handle
        } else {
            class.parent
        },
        info: 0,
        chain: 0,
        options: to_hex(&without_level(class.options.clone())),
    };
    sorted.into_iter().map(part).collect()
}

/// The options of a class without its level, which follows from the classes below it.
fn without_level(mut options: Vec<u8>) -> Vec<u8> {
    let mut at = 0;
    while let (Ok(length), Ok(kind)) = (u16_at(&options, at), u16_at(&options, at + 2)) {
        let level = at + 4 + HTB_LEVEL_AT;
        if kind == HTB_PARAMETERS
            && let Some(level) = options.get_mut(level..level + 4)
        {
            level.fill(0);
        }
        at += usize::from(length).max(4).next_multiple_of(4);
    }
    options
}

/// The parts below `wanted`, once its root has the handle `root`: those that were read, or those of the parameters.
pub(in crate::netlink) fn parts_of(wanted: &Qdisc, root: u32) -> Result<Vec<QdiscPart>, Failure> {
    let asked = wanted.qdisc_spec().filter(|_| wanted.is_asked());
    let Some(asked) = asked else {
        return Ok(wanted.below.clone());
    };
    let mut parts = Vec::new();
    let leaf = |minor: u16, leaf: &QdiscSpec| -> Result<QdiscPart, Failure> {
        Ok(QdiscPart {
            is: QdiscPartIs::Qdisc,
            kind: leaf.kind().to_owned(),
            handle: 0,
            parent: root | u32::from(minor),
            info: 0,
            chain: 0,
            options: to_hex(&qdisc_options::options(leaf)?),
        })
    };
    if let QdiscSpec::Htb(htb) = &asked {
        let classes = htb.downwards();
        for (minor, class) in &classes {
            parts.push(QdiscPart {
                is: QdiscPartIs::Class,
                kind: HTB.to_owned(),
                handle: root | u32::from(*minor),
                parent: root | u32::from(class.parent),
                info: 0,
                chain: 0,
                options: to_hex(&qdisc_options::class_options(class)?),
            });
        }
        for (minor, class) in classes {
            if let Some(own) = &class.leaf {
                parts.push(leaf(minor, own)?);
            }
        }
    }
    for (minor, own) in asked.leaves().into_iter().flatten() {
        parts.push(leaf(*minor, own)?);
    }
    Ok(parts)
}

/// Creates a part; its parent exists.
pub(super) fn make(
    connection: &mut Connection,
    index: u32,
    part: &QdiscPart,
) -> Result<(), Failure> {
    connection.ask(&request(index, part, true)?).map(drop)
}

/// The request that creates a part, or changes an existing class.
pub(super) fn request(index: u32, part: &QdiscPart, is_new: bool) -> Result<Request, Failure> {
    let options = from_hex(&part.options)?;
    let (kind, flags, options) = match part.is {
        QdiscPartIs::Class if is_new => (libc::RTM_NEWTCLASS, CREATE | EXCLUSIVE, options),
        QdiscPartIs::Class => (libc::RTM_NEWTCLASS, REPLACE, options),
        QdiscPartIs::Qdisc => {
            let options = request_options(&part.kind, options);
            (libc::RTM_NEWQDISC, CREATE | REPLACE, options)
        }
        QdiscPartIs::Filter => {
            let options = filters::request_options(&part.kind, part.info, &options);
            (libc::RTM_NEWTFILTER, CREATE | EXCLUSIVE, options)
        }
    };
    let mut message = header(index, part.handle, part.parent);
    message[16..20].copy_from_slice(&part.info.to_ne_bytes());
    let mut request = Request::new(kind, &message).with_flags(flags);
    request.put_text(libc::TCA_KIND, &part.kind);
    if part.chain != 0 {
        request.put_u32(TCA_CHAIN, part.chain);
    }
    if !options.is_empty() {
        let nested = if NESTED_ONLY.contains(&part.kind.as_str()) {
            NESTED
        } else {
            0
        };
        request.put(libc::TCA_OPTIONS | nested, &options);
    }
    Ok(request)
}

/// The request that removes a class or a qdisc.
pub(super) fn removal(index: u32, part: &QdiscPart) -> Request {
    let kind = match part.is {
        QdiscPartIs::Class => libc::RTM_DELTCLASS,
        QdiscPartIs::Qdisc => libc::RTM_DELQDISC,
        QdiscPartIs::Filter => libc::RTM_DELTFILTER,
    };
    Request::new(kind, &header(index, part.handle, part.parent))
}
