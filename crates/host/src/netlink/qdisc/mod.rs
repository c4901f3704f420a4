//! Root qdiscs over rtnetlink (`<linux/pkt_sched.h>`, `tc(8)`): reads them, and restores them exactly.
//!
//! Options are written back as they were dumped. Only a root that its kind, handle and options describe completely is
//! ever replaced: classes, filters and children would be lost with it. An `htb` with a single default class is
//! described in tc(8) syntax (`qdisc_options`), and recreated from that.

use linerate_model::host::Qdisc;
use linerate_model::ids::NicName;
use linerate_model::setting::qdisc_spec::Htb;
use linerate_model::setting::{QdiscSpec, Value};
use linerate_model::units::BitRate;

use super::error::Failure;
use super::link;
use super::message::{Attributes, CREATE, EXCLUSIVE, NESTED, REPLACE, Request, u32_at};
use super::qdisc_entry::{
    Entry, HEADER_BYTES, HTB_DEFAULT_CLASS_AT, HTB_INIT, HTB_PARAMETERS, HTB_RATE64, RATE_AT, ROOT,
    TBF_PARAMETERS, TBF_RATE64, rate,
};
use super::qdisc_options;
use super::socket::Connection;

/// `TC_H_MAJ_MASK`: the qdisc's part of a handle.
const MAJOR: u32 = 0xffff_0000;

/// Kinds without user-made classes whose dump has every parameter they were created with (the classes of `ets`, `mq`
/// and `mqprio` belong to the qdisc). `red`, `choke`, `gred` and `sfb` are not included (they need tables that no
/// dump returns), nor is `netem` (its delay distribution is not dumped).
const RESTORABLE: [&str; 16] = [
    "ets",
    "mq",
    "mqprio",
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

/// Kinds whose options the kernel accepts only as a nested attribute (`nla_parse_nested`).
const SAY_NESTED: [&str; 2] = ["ets", "fq_pie"];

/// The root qdisc of `nic`.
pub(super) fn read(connection: &mut Connection, nic: &NicName) -> Result<Qdisc, Failure> {
    let link = link::read(connection, nic)?;
    let entries = entries(connection, libc::RTM_GETQDISC, link.index)?;
    let Some(root) = root_of(&entries) else {
        return match link.qdisc {
            // A dump leaves out the built-in ones, such as `noop` of an interface that is down.
            Some(kind) => Ok(Qdisc::plain(&kind)),
            None => Err(Failure::Malformed("the interface has no root qdisc")),
        };
    };
    let classes = classes_of(connection, root)?;
    let rate_bit_per_s = match root.kind.as_str() {
        "tbf" => tbf_rate(&root.options)?,
        "htb" => htb_rate(root, &classes)?,
        _ => None,
    };
    let options = match root.kind.as_str() {
        "htb" => qdisc_options::without_count(root.options.clone()),
        _ => root.options.clone(),
    };
    Ok(Qdisc {
        kind: root.kind.clone(),
        handle: root.handle,
        rate_bit_per_s,
        options: to_hex(&options),
        // Options that cannot be parsed can still be written back.
        words: qdisc_options::words(root, &classes).unwrap_or_default(),
    })
}

/// Makes `wanted` the root of `nic`, and verifies it; on failure the former root is restored.
///
/// Handle 0 is the kernel's default for the interface: deleting the root restores it. If the default differs from
/// `wanted`, `wanted` is created explicitly and the kernel assigns a handle. `noqueue` and `noop` are left to the
/// kernel, since they mean that no qdisc was requested.
pub(super) fn set(
    connection: &mut Connection,
    nic: &NicName,
    wanted: &Qdisc,
) -> Result<(), Failure> {
    let before = read(connection, nic)?;
    let options = options_of(wanted)?;
    if is_as(&before, wanted) {
        return Ok(());
    }
    let index = link::read(connection, nic)?.index;
    refuse_unless_restorable(connection, index)?;
    put(connection, nic, index, wanted, &options).map_err(|first| {
        // Some sequences pass through the default root; a failure must not end there.
        match put_back(connection, nic, index, &before) {
            Ok(()) => first,
            Err(second) => Failure::NotPutBack {
                first: Box::new(first),
                second: Box::new(second),
            },
        }
    })
}

fn put_back(
    connection: &mut Connection,
    nic: &NicName,
    index: u32,
    before: &Qdisc,
) -> Result<(), Failure> {
    if is_as(&read(connection, nic)?, before) {
        return Ok(());
    }
    put(connection, nic, index, before, &options_of(before)?)
}

/// The options of a request: those that were read, or those of the parameters. An `htb` is dumped in another form
/// than it is requested.
fn options_of(wanted: &Qdisc) -> Result<Vec<u8>, Failure> {
    match wanted.qdisc_spec() {
        Some(asked) if is_asked(wanted) || wanted.kind == "htb" => qdisc_options::options(&asked),
        _ => {
            let options = from_hex(&wanted.options)?;
            Ok(qdisc_options::asked_again(&wanted.kind, options))
        }
    }
}

/// Whether it is requested by parameters, and was not read.
fn is_asked(wanted: &Qdisc) -> bool {
    wanted.options.is_empty() && !wanted.words.is_empty()
}

fn put(
    connection: &mut Connection,
    nic: &NicName,
    index: u32,
    wanted: &Qdisc,
    options: &[u8],
) -> Result<(), Failure> {
    if wanted.handle == 0 {
        set_default(connection, nic, index, wanted, options)
    } else {
        set_exactly(connection, nic, index, wanted, options)
    }
}

fn set_default(
    connection: &mut Connection,
    nic: &NicName,
    index: u32,
    wanted: &Qdisc,
    options: &[u8],
) -> Result<(), Failure> {
    delete_root(connection, nic, index)?;
    let asked = Value::Qdisc(wanted.clone());
    let is_as_asked = |now: &Qdisc| asked.is_met_by(&Value::Qdisc(now.clone()));
    let now = read(connection, nic)?;
    if is_as_asked(&now) || matches!(wanted.kind.as_str(), "noqueue" | "noop") {
        return Ok(());
    }
    // The kernel's default again, whose parameters may have been changed in place; or one requested by parameters.
    let flags = if now.kind == wanted.kind && !is_asked(wanted) {
        0
    } else {
        CREATE | REPLACE
    };
    connection.ask(&new_root(index, 0, &wanted.kind, options, flags))?;
    make_class(connection, index, wanted)?;
    let now = read(connection, nic)?;
    is_as_asked(&now)
        .then_some(())
        .ok_or_else(|| other_than(&now, wanted))
}

fn set_exactly(
    connection: &mut Connection,
    nic: &NicName,
    index: u32,
    wanted: &Qdisc,
    options: &[u8],
) -> Result<(), Failure> {
    let request = new_root(
        index,
        wanted.handle,
        &wanted.kind,
        options,
        CREATE | REPLACE,
    );
    let now = read(connection, nic)?;
    if now.handle == wanted.handle {
        // With the same handle the kernel changes the qdisc in place: impossible between kinds, refused for some
        // parameters, and without effect for those left out. If that fails, delete and recreate it.
        if now.kind == wanted.kind
            && wanted.kind != "htb"
            && connection.ask(&request).is_ok()
            && is_as(&read(connection, nic)?, wanted)
        {
            return Ok(());
        }
        delete_root(connection, nic, index)?;
    }
    connection.ask(&request)?;
    make_class(connection, index, wanted)?;
    let now = read(connection, nic)?;
    is_as(&now, wanted)
        .then_some(())
        .ok_or_else(|| other_than(&now, wanted))
}

/// Creates the single class of an existing `htb` root.
fn make_class(connection: &mut Connection, index: u32, wanted: &Qdisc) -> Result<(), Failure> {
    let Some(QdiscSpec::Htb(htb)) = wanted.qdisc_spec() else {
        return Ok(());
    };
    let qdiscs = entries(connection, libc::RTM_GETQDISC, index)?;
    let root = root_of(&qdiscs).filter(|root| root.kind == "htb");
    let root = root.ok_or_else(|| Failure::NotDone("the root is not `htb`".to_owned()))?;
    let request = new_class(index, root.handle, &htb)?;
    connection.ask(&request).map(drop)
}

/// The request for the class of `htb` below the root `root`.
fn new_class(index: u32, root: u32, htb: &Htb) -> Result<Request, Failure> {
    let handle = root | u32::from(htb.default);
    let mut request = Request::new(libc::RTM_NEWTCLASS, &header(index, handle, root))
        .with_flags(CREATE | EXCLUSIVE);
    request.put_text(libc::TCA_KIND, "htb");
    request.put(libc::TCA_OPTIONS, &qdisc_options::class_options(htb)?);
    Ok(request)
}

/// Whether two are the same to the kernel (the rate is derived from the options; the class of an `htb` is only in its
/// parameters).
fn is_as(now: &Qdisc, wanted: &Qdisc) -> bool {
    let class = now.kind != "htb" || now.words == wanted.words;
    now.kind == wanted.kind && now.handle == wanted.handle && now.options == wanted.options && class
}

fn other_than(now: &Qdisc, wanted: &Qdisc) -> Failure {
    let what = if now.kind == wanted.kind {
        "with other parameters"
    } else {
        "another kind"
    };
    Failure::NotDone(format!(
        "the root is now `{}` {:x}: ({what} than `{}` {:x}:)",
        now.kind,
        now.handle >> 16,
        wanted.kind,
        wanted.handle >> 16
    ))
}

/// Deletes the root; the kernel's default (handle 0) cannot be deleted and need not be.
fn delete_root(connection: &mut Connection, nic: &NicName, index: u32) -> Result<(), Failure> {
    let now = read(connection, nic)?;
    if now.handle == 0 {
        return Ok(());
    }
    let request = Request::new(libc::RTM_DELQDISC, &header(index, 0, ROOT));
    connection.ask(&request).map(drop)
}

/// The request for a root qdisc of `kind`.
pub(super) fn new_root(index: u32, handle: u32, kind: &str, options: &[u8], flags: u16) -> Request {
    let mut request =
        Request::new(libc::RTM_NEWQDISC, &header(index, handle, ROOT)).with_flags(flags);
    request.put_text(libc::TCA_KIND, kind);
    if !options.is_empty() {
        let nested = if SAY_NESTED.contains(&kind) {
            NESTED
        } else {
            0
        };
        request.put(libc::TCA_OPTIONS | nested, options);
    }
    request
}

/// The header of a message about a qdisc or class of the interface `index`.
pub(super) fn header(index: u32, handle: u32, parent: u32) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&handle.to_ne_bytes());
    header[12..16].copy_from_slice(&parent.to_ne_bytes());
    header
}

fn entries(connection: &mut Connection, question: u16, index: u32) -> Result<Vec<Entry>, Failure> {
    // Not every kernel filters by interface.
    let answers = connection.dump(&Request::new(question, &header(index, 0, 0)))?;
    let mut entries = Vec::new();
    for answer in answers {
        let entry = Entry::parse(&answer.body)?;
        if entry.interface == index {
            entries.push(entry);
        }
    }
    Ok(entries)
}

/// The user-made classes of a root.
fn classes_of(connection: &mut Connection, root: &Entry) -> Result<Vec<Entry>, Failure> {
    if root.kind != "htb" {
        return Ok(Vec::new());
    }
    entries(connection, libc::RTM_GETTCLASS, root.interface)
}

fn root_of(entries: &[Entry]) -> Option<&Entry> {
    entries.iter().find(|entry| entry.parent == ROOT)
}

/// Refuses to change a root that could not be restored.
fn refuse_unless_restorable(connection: &mut Connection, index: u32) -> Result<(), Failure> {
    let qdiscs = entries(connection, libc::RTM_GETQDISC, index)?;
    let root = root_of(&qdiscs);
    let classes = root.map_or_else(|| Ok(Vec::new()), |root| classes_of(connection, root))?;
    if let Some(why) = lost_with_root(&qdiscs, &classes) {
        return Err(Failure::NotRestorable(why));
    }
    let Some(root) = root.filter(|root| root.handle != 0) else {
        return Ok(());
    };
    let parents = classes.iter().map(|class| class.handle);
    for parent in std::iter::once(root.handle).chain(parents) {
        if has_filters(connection, index, parent)? {
            return Err(Failure::NotRestorable(format!(
                "the root `{}` {:x}: has filters",
                root.kind,
                root.handle >> 16
            )));
        }
    }
    Ok(())
}

fn has_filters(connection: &mut Connection, index: u32, parent: u32) -> Result<bool, Failure> {
    let filters = Request::new(libc::RTM_GETTFILTER, &header(index, 0, parent));
    match connection.dump(&filters) {
        Ok(filters) => Ok(!filters.is_empty()),
        // A kernel without classifiers has no filters.
        Err(Failure::Kernel { errno, .. }) if errno == libc::EOPNOTSUPP => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// What would be lost if the root were replaced.
fn lost_with_root(qdiscs: &[Entry], classes: &[Entry]) -> Option<String> {
    // The kernel's default has nothing user-made.
    let root = root_of(qdiscs).filter(|root| root.handle != 0)?;
    let name = format!("the root `{}` {:x}:", root.kind, root.handle >> 16);
    let is_known = match root.kind.as_str() {
        "noqueue" => true,
        "htb" => qdisc_options::words(root, classes).is_ok_and(|words| !words.is_empty()),
        kind => RESTORABLE.contains(&kind),
    };
    if !is_known {
        return Some(format!("{name} may have classes or tables"));
    }
    if root.has_size_table {
        return Some(format!("{name} has a size table"));
    }
    // Children created by the kernel have no handle.
    let is_child = |entry: &&Entry| {
        entry.handle != 0 && entry.parent != ROOT && entry.parent & MAJOR == root.handle
    };
    let child = qdiscs.iter().find(is_child)?;
    Some(format!("{name} has a child `{}`", child.kind))
}

pub(super) fn tbf_rate(options: &[u8]) -> Result<Option<BitRate>, Failure> {
    let options = Attributes::parse(options)?;
    rate(&options, TBF_PARAMETERS, RATE_AT, TBF_RATE64)
}

/// The rate of the top class, if every packet belongs to a class below it: then it is the rate of the interface,
/// whatever the filters select. A class without a parent cannot borrow, so that its ceil has no effect. A class sends at
/// its own rate without borrowing (`htb_class_mode` and `htb_charge_class` of net/sched/sch_htb.c), so that classes whose
/// rates sum to more are not held to that of the top class. Without a default class unclassified packets pass unshaped.
/// Anything more complex has no single rate.
pub(super) fn htb_rate(root: &Entry, classes: &[Entry]) -> Result<Option<BitRate>, Failure> {
    let init = Attributes::parse(&root.options)?;
    let Some(init) = init.bytes(HTB_INIT) else {
        return Ok(None);
    };
    let (tops, leaves): (Vec<&Entry>, Vec<&Entry>) =
        classes.iter().partition(|class| class.parent == ROOT);
    let [top] = tops[..] else {
        return Ok(None);
    };
    if leaves.iter().any(|leaf| leaf.parent != top.handle) {
        return Ok(None);
    }
    let default = (root.handle & MAJOR) | (u32_at(init, HTB_DEFAULT_CLASS_AT)? & !MAJOR);
    let is_classified = if leaves.is_empty() {
        top.handle == default
    } else {
        leaves.iter().any(|leaf| leaf.handle == default)
    };
    let rate_of = |class: &Entry| {
        let options = Attributes::parse(&class.options)?;
        rate(&options, HTB_PARAMETERS, RATE_AT, HTB_RATE64)
    };
    let Some(whole) = rate_of(top)?.filter(|_| is_classified) else {
        return Ok(None);
    };
    let mut guaranteed: u64 = 0;
    for leaf in leaves {
        let Some(own) = rate_of(leaf)? else {
            return Ok(None);
        };
        guaranteed = guaranteed.saturating_add(own.as_bit_per_s());
    }
    Ok((guaranteed <= whole.as_bit_per_s()).then_some(whole))
}

fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 0xf)]);
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(*byte)])
        .collect()
}

fn from_hex(text: &str) -> Result<Vec<u8>, Failure> {
    let wrong = || Failure::BadInput("the qdisc's options are not hexadecimal bytes".to_owned());
    let nibble = |digit: u8| char::from(digit).to_digit(16).ok_or_else(wrong);
    if !text.len().is_multiple_of(2) {
        return Err(wrong());
    }
    text.as_bytes()
        .chunks_exact(2)
        .map(|pair| {
            let byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
            u8::try_from(byte).map_err(|_| wrong())
        })
        .collect()
}

#[cfg(test)]
mod tests;
