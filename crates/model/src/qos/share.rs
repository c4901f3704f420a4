//! How classes share a line: what each is guaranteed and what it may reach.
//!
//! A class of `htb` sends at its own rate without asking anybody, and up to its ceil by borrowing from their parent. Own
//! rates that sum to more than the line's guarantee nothing, so that they must fit into it (tc-htb(8)).

use super::{Qos, QosError};
use crate::units::BitRate;

/// What a class that has neither limit nor guarantee is guaranteed at least, in parts of the line.
const LEAST: u64 = 1_000;
/// The smallest rate of a class, bit/s.
const SMALLEST: u64 = 8_000;

/// What a class may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guaranteed {
    /// Whatever the others do.
    pub rate: BitRate,
    /// If the others leave it room.
    pub ceil: BitRate,
}

/// The rates of each class on a line of that rate, in the file's order.
///
/// A class with a guarantee has that. The others divide what is left of the line in proportion to their limits (without one,
/// the line's rate), and none is guaranteed more than its limit: if the limits fit into the line, each has all of its limit.
///
/// # Errors
/// [`QosError::Guarantees`] if the guarantees do not fit into the line, [`QosError::Class`] for a limit above the line, or a
/// guarantee above its limit.
pub fn shared(qos: &Qos, line: BitRate) -> Result<Vec<Guaranteed>, QosError> {
    let whole = line.as_bit_per_s();
    let mut asked = Vec::new();
    for class in &qos.classes {
        let rate = |rate: Option<super::Rate>| rate.map(|rate| rate.on(line).as_bit_per_s());
        let (limit, guarantee) = (rate(class.limit), rate(class.guarantee));
        let wrong = |why: String| QosError::Class {
            class: class.name.clone(),
            why,
        };
        if let Some(limit) = limit.filter(|limit| *limit > whole) {
            let limit = BitRate::from_bit_per_s(limit);
            return Err(wrong(format!(
                "its limit of {limit} is above the line's {line}; `none` is no limit"
            )));
        }
        let ceil = limit.unwrap_or(whole);
        if let Some(guarantee) = guarantee.filter(|guarantee| *guarantee > ceil) {
            let (guarantee, ceil) = (
                BitRate::from_bit_per_s(guarantee),
                BitRate::from_bit_per_s(ceil),
            );
            return Err(wrong(format!(
                "its guarantee of {guarantee} is above its limit of {ceil}"
            )));
        }
        asked.push((guarantee, ceil));
    }
    let promised: u64 = asked.iter().filter_map(|(guarantee, _)| *guarantee).sum();
    if promised > whole {
        return Err(QosError::Guarantees {
            sum: BitRate::from_bit_per_s(promised),
            line,
        });
    }
    let ceils = asked.iter().filter(|(guarantee, _)| guarantee.is_none());
    let ceils: Vec<u64> = ceils.map(|(_, ceil)| *ceil).collect();
    let mut parts = filled(&ceils, whole - promised).into_iter();
    let of_class = |(guarantee, ceil): &(Option<u64>, u64)| {
        let rate = guarantee.unwrap_or_else(|| parts.next().unwrap_or(SMALLEST));
        let least = (whole / LEAST).clamp(SMALLEST, *ceil);
        Guaranteed {
            // Whole bytes, as the kernel counts.
            rate: BitRate::from_bit_per_s(rate.max(least) / 8 * 8),
            ceil: BitRate::from_bit_per_s(*ceil / 8 * 8),
        }
    };
    Ok(asked.iter().map(of_class).collect())
}

/// Divides `room` by max-min fairness: nobody gets more than it wants, and the rest is divided evenly among the others.
fn filled(wants: &[u64], room: u64) -> Vec<u64> {
    let mut order: Vec<usize> = (0..wants.len()).collect();
    order.sort_by_key(|at| wants[*at]);
    let mut given = vec![0; wants.len()];
    let mut left = room;
    let mut others = u64::try_from(wants.len()).unwrap_or(u64::MAX);
    for at in order {
        given[at] = wants[at].min(left / others);
        left -= given[at];
        others -= 1;
    }
    given
}
