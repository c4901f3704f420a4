//! The options of `htb` and its classes (`<linux/pkt_sched.h>`).

use linerate_model::host::{QdiscPart, QdiscPartIs};
use linerate_model::setting::qdisc_spec::{Htb, HtbClass, Named, burst_bytes, burst_ticks};

use super::super::error::Failure;
use super::super::hexadecimal::from_hex;
use super::super::message::{Attributes, Request, u16_at, u32_at};
use super::super::qdisc_entry::{
    CEIL_AT, HTB_CEIL64, HTB_DEFAULT_CLASS_AT, HTB_INIT, HTB_PARAMETERS, HTB_RATE64, RATE_AT, rate,
};
use super::{RATE_BYTES, is_plain, leaf, minor_below, out_of_range, rate_bytes};

/// `HTB_VER` of sch_htb.c, in the upper half of the version.
const HTB_VERSION: u32 = 3;
/// `struct tc_htb_glob`, and the offset of its packet counter.
const HTB_GLOBAL_BYTES: usize = 20;
const HTB_DIRECT_AT: usize = 16;
pub(in crate::netlink) const HTB_OFFLOAD: u16 = 9;
/// `struct tc_htb_opt`.
const HTB_BYTES: usize = 44;
/// The offset of the level in `struct tc_htb_opt`: it follows from the classes below.
pub(in crate::netlink) const HTB_LEVEL_AT: usize = 36;

/// The options of the root.
pub(super) fn put(options: &mut Request, htb: &Htb) {
    let words = [
        HTB_VERSION,
        htb.rate_to_quantum,
        u32::from(htb.default),
        0,
        0,
    ];
    options.put(HTB_INIT, &words.map(u32::to_ne_bytes).concat());
}

/// The options of a root that was read, as the kernel takes them: a dump has another version.
pub(in crate::netlink) fn request_options(mut options: Vec<u8>) -> Vec<u8> {
    each_global(&mut options, |global| {
        global[..4].copy_from_slice(&HTB_VERSION.to_ne_bytes());
    });
    options
}

/// The options of a class.
pub(in crate::netlink) fn class_options(class: &HtbClass) -> Result<Vec<u8>, Failure> {
    let ((rate, long), (ceil, long_ceil)) = (rate_bytes(class.rate), rate_bytes(class.ceil));
    let ticks = |word, rate| burst_ticks(class.burst(word), rate).ok_or_else(|| out_of_range(word));
    let named = |word: &str| class.named.get(word).copied().unwrap_or(0);
    let mut parameters = [rate, ceil].concat();
    for word in [
        ticks("burst", class.rate)?,
        ticks("cburst", class.ceil)?,
        named("quantum"), // with 0 the kernel computes it
        0,                // its level follows from the classes below it
        named("prio"),
    ] {
        parameters.extend_from_slice(&word.to_ne_bytes());
    }
    let mut options = Request::new(0, &[]);
    options.put(HTB_PARAMETERS, &parameters);
    for (kind, long) in [(HTB_RATE64, long), (HTB_CEIL64, long_ceil)] {
        if let Some(long) = long {
            options.put(kind, &long.to_ne_bytes());
        }
    }
    Ok(options.into_body())
}

/// A root's `r2q` and its default class; nothing if it is offloaded.
pub(in crate::netlink) fn global(options: &[u8]) -> Result<Option<(u32, u16)>, Failure> {
    let options = Attributes::parse(options)?;
    let Some(global) = options.bytes(HTB_INIT) else {
        return Ok(None);
    };
    let default = u32_at(global, HTB_DEFAULT_CLASS_AT)?;
    let in_software = options.bytes(HTB_OFFLOAD).is_none();
    let default = u16::try_from(default).ok().filter(|_| in_software);
    let divisor = u32_at(global, 4)?;
    Ok(default.map(|default| (divisor, default)))
}

/// A root with its classes and their leaves; none if that is not all of it.
pub(super) fn spec(
    handle: u32,
    options: &[u8],
    below: &[QdiscPart],
) -> Result<Option<Htb>, Failure> {
    let Some((rate_to_quantum, default)) = global(options)? else {
        return Ok(None);
    };
    let mut htb = Htb {
        default,
        rate_to_quantum,
        classes: [].into(),
    };
    for part in below.iter().filter(|part| part.is == QdiscPartIs::Class) {
        let found = class(handle, part)?;
        let (Some(minor), Some(class)) = (minor_below(handle, part.handle), found) else {
            return Ok(None);
        };
        htb.classes.insert(minor, class);
    }
    for part in below.iter().filter(|part| part.is != QdiscPartIs::Class) {
        let class = minor_below(handle, part.parent);
        let class = class.and_then(|minor| htb.classes.get_mut(&minor));
        let (Some(class), Some(leaf)) = (class, leaf(part)?) else {
            return Ok(None);
        };
        class.leaf = Some(Box::new(leaf));
    }
    Ok(Some(htb))
}

/// A class of the qdisc `root`, without its leaf; none if it has parameters that are not in tc(8) syntax.
pub(in crate::netlink) fn class(root: u32, part: &QdiscPart) -> Result<Option<HtbClass>, Failure> {
    let bytes = from_hex(&part.options)?;
    let options = Attributes::parse(&bytes)?;
    let parameters = options.bytes(HTB_PARAMETERS).unwrap_or_default();
    let rates = (
        rate(&options, HTB_PARAMETERS, RATE_AT, HTB_RATE64)?,
        rate(&options, HTB_PARAMETERS, CEIL_AT, HTB_CEIL64)?,
    );
    let (Some(rate), Some(ceil)) = rates else {
        return Ok(None);
    };
    let plain = [0, RATE_BYTES].map(|at| is_plain(parameters.get(at..at + RATE_BYTES)));
    let is_ours = part.kind == "htb" && options.bytes(HTB_OFFLOAD).is_none();
    if plain != [true; 2] || !is_ours || rate.as_bit_per_s() == 0 || ceil.as_bit_per_s() == 0 {
        return Ok(None);
    }
    let word = |from_end: usize| u32_at(parameters, HTB_BYTES - 4 * from_end);
    let bursts = (burst_bytes(word(5)?, rate), burst_bytes(word(4)?, ceil));
    let (Some(burst), Some(cburst)) = bursts else {
        return Ok(None);
    };
    let parent = if part.parent == root {
        Some(0)
    } else {
        minor_below(root, part.parent)
    };
    Ok(parent.map(|parent| HtbClass {
        parent,
        rate,
        ceil,
        named: Named::from([
            ("burst", burst),
            ("cburst", cburst),
            ("quantum", word(3).unwrap_or(0)),
            ("prio", word(1).unwrap_or(0)),
        ]),
        leaf: None,
    }))
}

/// The options of `htb` without their counters, for comparing two readings.
pub(in crate::netlink) fn without_count(mut options: Vec<u8>) -> Vec<u8> {
    each_global(&mut options, |global| {
        global[HTB_DIRECT_AT..HTB_DIRECT_AT + 4].fill(0);
    });
    options
}

/// Calls `change` with each `struct tc_htb_glob`.
fn each_global(options: &mut [u8], change: impl Fn(&mut [u8])) {
    let mut at = 0;
    while let (Ok(length), Ok(kind)) = (u16_at(options, at), u16_at(options, at + 2)) {
        let global = options.get_mut(at + 4..at + 4 + HTB_GLOBAL_BYTES);
        if let (HTB_INIT, Some(global)) = (kind, global)
            && usize::from(length) >= 4 + HTB_GLOBAL_BYTES
        {
            change(global);
        }
        at += usize::from(length).max(4).next_multiple_of(4);
    }
}
