//! What repeated failures show.

use crate::units::Nanoseconds;

/// The longest interruption of each of several failures, summarized.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Repeated {
    /// How many failures.
    pub count: usize,
    /// The median.
    pub median_ns: Nanoseconds,
    /// The maximum.
    pub max_ns: Nanoseconds,
    /// With 95 % confidence at least this share of failures is not longer than the maximum.
    pub share: f64,
}

/// Summarizes the failures; none without one.
pub fn repeated(longest: &[Nanoseconds]) -> Option<Repeated> {
    let mut sorted = longest.to_vec();
    sorted.sort_unstable();
    let max_ns = *sorted.last()?;
    let middle = sorted.len() / 2;
    let median_ns = if sorted.len().is_multiple_of(2) {
        let (low, high) = (sorted[middle - 1].as_u64(), sorted[middle].as_u64());
        Nanoseconds::new(low + (high - low) / 2)
    } else {
        sorted[middle]
    };
    Some(Repeated {
        count: sorted.len(),
        median_ns,
        max_ns,
        share: share_at_least(sorted.len()),
    })
}

/// The lower end of the exact one-sided 95 % interval of a share of which `count` of `count` were seen: the share of which
/// that happens in one of twenty samples (Clopper and Pearson 1934), the `count`-th root of 0.05.
pub fn share_at_least(count: usize) -> f64 {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    if count == 0 {
        return 0.0;
    }
    0.05_f64.powf(1.0 / f64::from(count))
}
