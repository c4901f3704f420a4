//! The options of `mqprio` (`<linux/pkt_sched.h>`): a structure, and attributes for what a NIC limits.

use linerate_model::setting::qdisc_spec::{CLASSES_MAX, Leaves, Mqprio, PRIORITIES, Rates};
use linerate_model::units::BitRate;

use super::super::error::Failure;
use super::super::message::{Attributes, Request, u16_at};

/// `struct tc_mqprio_qopt`, and the offsets of its arrays.
const MQPRIO_BYTES: usize = 82;
const MQPRIO_HARDWARE_AT: usize = 17;
const MQPRIO_COUNT_AT: usize = 18;
const MQPRIO_OFFSET_AT: usize = 50;
/// `TCA_MQPRIO_MODE`, `_SHAPER`, `_MIN_RATE64` and `_MAX_RATE64`; each rate is an attribute of the same number.
pub(super) const MODE: u16 = 1;
pub(super) const SHAPER: u16 = 2;
pub(super) const MIN_RATES: u16 = 3;
pub(super) const MAX_RATES: u16 = 4;

fn structure(mqprio: &Mqprio) -> Vec<u8> {
    let mut bytes = vec![0; MQPRIO_BYTES];
    bytes[0] = mqprio.classes;
    bytes[1..=PRIORITIES].copy_from_slice(&mqprio.map);
    bytes[MQPRIO_HARDWARE_AT] = u8::from(mqprio.in_hardware);
    for (class, (count, offset)) in mqprio.queues.iter().take(CLASSES_MAX).enumerate() {
        for (at, number) in [(MQPRIO_COUNT_AT, count), (MQPRIO_OFFSET_AT, offset)] {
            let at = at + 2 * class;
            bytes[at..at + 2].copy_from_slice(&number.to_ne_bytes());
        }
    }
    bytes
}

/// Appends the options.
pub(super) fn put(options: &mut Request, mqprio: &Mqprio) {
    options.put_fixed(&structure(mqprio));
    for (kind, number) in [(MODE, mqprio.mode), (SHAPER, mqprio.shaper)] {
        if let Some(number) = number {
            options.put(kind, &number.to_ne_bytes());
        }
    }
    for (kind, rates) in [
        (MIN_RATES, &mqprio.min_rates),
        (MAX_RATES, &mqprio.max_rates),
    ] {
        if !rates.is_empty() {
            options.nest(kind, |all| {
                for rate in rates {
                    all.put(kind, &(rate.as_bit_per_s() / 8).to_ne_bytes());
                }
            });
        }
    }
}

/// Without its leaves; none if it has more than words describe.
pub(in crate::netlink) fn spec(options: &[u8]) -> Result<Option<Mqprio>, Failure> {
    let Some(bytes) = options.get(..MQPRIO_BYTES) else {
        return Ok(None);
    };
    let behind = Attributes::after(options, MQPRIO_BYTES)?;
    let classes = bytes[0];
    let map = <[u8; PRIORITIES]>::try_from(&bytes[1..=PRIORITIES]).ok();
    let named = usize::from(classes);
    if named > CLASSES_MAX {
        return Ok(None);
    }
    let queues = (0..named).map(|class| {
        let count = u16_at(bytes, MQPRIO_COUNT_AT + 2 * class)?;
        Ok((count, u16_at(bytes, MQPRIO_OFFSET_AT + 2 * class)?))
    });
    let queues = queues.collect::<Result<Vec<_>, Failure>>()?;
    let number = |kind| {
        let number = behind.bytes(kind).map(|bytes| u16_at(bytes, 0));
        number.transpose()
    };
    let (mode, shaper) = (number(MODE)?, number(SHAPER)?);
    if mode.max(shaper).is_some_and(|number| number > 1) {
        return Ok(None);
    }
    Ok(map.map(|map| Mqprio {
        map,
        queues,
        classes,
        in_hardware: bytes[MQPRIO_HARDWARE_AT] != 0,
        mode,
        shaper,
        min_rates: rates(&behind, MIN_RATES),
        max_rates: rates(&behind, MAX_RATES),
        leaves: Leaves::new(),
    }))
}

/// The rates of the classes; none if none has one.
fn rates(options: &Attributes<'_>, kind: u16) -> Rates {
    let nest = options.nest(kind).unwrap_or_default();
    let rates = nest.iter().take(CLASSES_MAX).map(|(_, rate)| {
        let rate = rate.first_chunk().copied().map_or(0, u64::from_ne_bytes);
        BitRate::from_bit_per_s(rate.saturating_mul(8))
    });
    let rates: Rates = rates.collect();
    let has_any = rates.iter().any(|rate| rate.as_bit_per_s() > 0);
    if has_any { rates } else { Rates::new() }
}
