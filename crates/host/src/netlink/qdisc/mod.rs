//! Root qdiscs over rtnetlink (`<linux/pkt_sched.h>`, `tc(8)`): reads them with their classes, children and filters, and
//! restores them exactly.
//!
//! Options are written back as they were dumped (`hierarchy`, `filters`). A root with anything that a dump does not
//! describe completely is never replaced. What is requested in tc(8) syntax (`qdisc_options`) becomes the same parts;
//! below a root that stays, only those that differ are changed (`difference`).

mod difference;
mod filters;
mod hierarchy;
mod rates;

use linerate_model::host::{Qdisc, QdiscPartIs};
use linerate_model::ids::NicName;
use linerate_model::setting::{QdiscSpec, Value};

use self::hierarchy::Below;
pub(super) use self::hierarchy::parts_of;
pub(super) use self::rates::{htb_rate, tbf_rate};
use super::error::Failure;
use super::hexadecimal::{from_hex, to_hex};
use super::link;
use super::message::{CREATE, NESTED, REPLACE, Request, u32_at};
use super::qdisc_entry::{Entry, HEADER_BYTES, ROOT};
use super::qdisc_options;
use super::socket::Connection;

/// `TC_H_MAJ_MASK`: the qdisc's part of a handle.
const MAJOR: u32 = 0xffff_0000;

/// Kinds whose options the kernel accepts only as a nested attribute (`nla_parse_nested`).
const NESTED_ONLY: [&str; 2] = ["ets", "fq_pie"];

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
    let below = hierarchy::read(connection, root, &entries)?;
    describe(root, below)
}

/// The description of a root.
fn describe(root: &Entry, below: Below) -> Result<Qdisc, Failure> {
    let rate_bit_per_s = match root.kind.as_str() {
        "tbf" => tbf_rate(&root.options)?,
        "htb" => htb_rate(root, &below.classes)?,
        _ => None,
    };
    let options = match root.kind.as_str() {
        "htb" => qdisc_options::without_count(root.options.clone()),
        _ => root.options.clone(),
    };
    // Options that cannot be parsed can still be written back.
    let words = match below.lost {
        None => qdisc_options::words(&root.kind, root.handle, &root.options, &below.parts),
        Some(_) => Ok(String::new()),
    };
    Ok(Qdisc {
        kind: root.kind.clone(),
        handle: root.handle,
        rate_bit_per_s,
        options: to_hex(&options),
        words: words.unwrap_or_default(),
        below: below.parts,
    })
}

/// The parameters of a root without the filters below it; none if anything else cannot be expressed in the syntax of tc(8).
pub fn spec_without_filters(root: &Qdisc) -> Option<QdiscSpec> {
    let options = from_hex(&root.options).ok()?;
    let mut below = root.below.clone();
    below.retain(|part| part.is != QdiscPartIs::Filter);
    let words = qdisc_options::words(&root.kind, root.handle, &options, &below).ok()?;
    QdiscSpec::parse(&words)
}

/// Makes `wanted` the root of `nic`, with what is below it, and verifies it; on failure the former root is restored.
///
/// Handle 0 is the kernel's default for the interface: deleting the root restores it. If the default differs from
/// `wanted`, `wanted` is created explicitly and the kernel assigns a handle. `noqueue` and `noop` are left to the
/// kernel, since they mean that no qdisc was requested. Below the same root only what differs is changed.
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
    let steps = difference::between(&before, wanted)?;
    let adjusted = steps.is_some_and(|steps| {
        let done = steps
            .iter()
            .try_for_each(|step| step.make(connection, index));
        done.is_ok() && read(connection, nic).is_ok_and(|now| is_as_wanted(&now, wanted))
    });
    if adjusted {
        return Ok(());
    }
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

/// Whether `now` is `wanted`, exactly or by the parameters that were requested.
fn is_as_wanted(now: &Qdisc, wanted: &Qdisc) -> bool {
    if wanted.handle != 0 && !wanted.is_asked() {
        return is_as(now, wanted);
    }
    Value::Qdisc(wanted.clone()).is_met_by(&Value::Qdisc(now.clone()))
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
        Some(asked) if wanted.is_asked() => qdisc_options::options(&asked),
        _ => Ok(request_options(&wanted.kind, from_hex(&wanted.options)?)),
    }
}

/// Options that were read, as they are requested again.
fn request_options(kind: &str, options: Vec<u8>) -> Vec<u8> {
    match kind {
        "htb" => qdisc_options::request_options(options),
        "sfq" => sfq_options(options),
        kind => qdisc_options::asked_again(kind, options),
    }
}

/// A request with a limit lowers the number of flows to it (`sfq_change`, net/sched/sch_sfq.c): more flows are from a
/// request without one, which gives the default limit.
fn sfq_options(mut options: Vec<u8>) -> Vec<u8> {
    let (limit, flows) = (u32_at(&options, 8), u32_at(&options, 16));
    if matches!((limit, flows), (Ok(limit), Ok(flows)) if flows > limit) {
        options[8..12].fill(0);
    }
    options
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
    let now = read(connection, nic)?;
    if is_as_wanted(&now, wanted) || matches!(wanted.kind.as_str(), "noqueue" | "noop") {
        return Ok(());
    }
    // The kernel's default again, whose parameters may have been changed in place; or one requested by parameters.
    let flags = if now.kind == wanted.kind && !wanted.is_asked() {
        0
    } else {
        CREATE | REPLACE
    };
    connection.ask(&new_root(index, 0, &wanted.kind, options, flags))?;
    make_below(connection, index, wanted)?;
    let now = read(connection, nic)?;
    is_as_wanted(&now, wanted)
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
    make_below(connection, index, wanted)?;
    let now = read(connection, nic)?;
    is_as_wanted(&now, wanted)
        .then_some(())
        .ok_or_else(|| other_than(&now, wanted))
}

/// Creates what is below an existing root.
fn make_below(connection: &mut Connection, index: u32, wanted: &Qdisc) -> Result<(), Failure> {
    let qdiscs = entries(connection, libc::RTM_GETQDISC, index)?;
    let Some(root) = root_of(&qdiscs).filter(|root| root.kind == wanted.kind) else {
        return Ok(());
    };
    let parts = parts_of(wanted, root.handle)?;
    parts
        .iter()
        .try_for_each(|part| hierarchy::make(connection, index, part))
}

/// Whether two are the same to the kernel (the rate and the words are derived from the options).
fn is_as(now: &Qdisc, wanted: &Qdisc) -> bool {
    now.kind == wanted.kind
        && now.handle == wanted.handle
        && now.options == wanted.options
        && now.below == wanted.below
}

fn other_than(now: &Qdisc, wanted: &Qdisc) -> Failure {
    let differs = wanted.below.iter().find(|part| !now.below.contains(part));
    let what = match differs {
        _ if now.kind != wanted.kind => "another kind".to_owned(),
        Some(part) => format!("with another `{}` {:x} below it", part.kind, part.handle),
        None => "with other parameters".to_owned(),
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
        let nested = if NESTED_ONLY.contains(&kind) {
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

fn root_of(entries: &[Entry]) -> Option<&Entry> {
    entries.iter().find(|entry| entry.parent == ROOT)
}

/// Refuses to change a root that could not be restored.
fn refuse_unless_restorable(connection: &mut Connection, index: u32) -> Result<(), Failure> {
    let qdiscs = entries(connection, libc::RTM_GETQDISC, index)?;
    let Some(root) = root_of(&qdiscs) else {
        return Ok(());
    };
    let lost = hierarchy::read(connection, root, &qdiscs)?.lost;
    let lost = lost.map(|what| {
        let (kind, major) = (&root.kind, root.handle >> 16);
        Failure::NotRestorable(format!("the root `{kind}` {major:x}: {what}"))
    });
    lost.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests;
