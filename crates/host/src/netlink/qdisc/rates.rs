//! The rate of a root, from its options and classes.

use linerate_model::units::BitRate;

use super::super::error::Failure;
use super::super::message::{Attributes, u32_at};
use super::super::qdisc_entry::{
    Entry, HTB_DEFAULT_CLASS_AT, HTB_INIT, HTB_PARAMETERS, HTB_RATE64, RATE_AT, ROOT,
    TBF_PARAMETERS, TBF_RATE64, rate,
};
use super::MAJOR;

pub(in crate::netlink) fn tbf_rate(options: &[u8]) -> Result<Option<BitRate>, Failure> {
    let options = Attributes::parse(options)?;
    rate(&options, TBF_PARAMETERS, RATE_AT, TBF_RATE64)
}

/// The rate of the top class, if every packet belongs to a class below it: then it is the rate of the interface,
/// whatever the filters select. A class without a parent cannot borrow, so that its ceil has no effect. A class sends at
/// its own rate without borrowing (`htb_class_mode` and `htb_charge_class` of net/sched/sch_htb.c), so that classes whose
/// rates sum to more are not held to that of the top class. Without a default class unclassified packets pass unshaped.
/// Anything more complex has no single rate.
pub(in crate::netlink) fn htb_rate(
    root: &Entry,
    classes: &[Entry],
) -> Result<Option<BitRate>, Failure> {
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
