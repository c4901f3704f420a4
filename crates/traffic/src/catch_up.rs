//! After the end of an open loop: a stall shortly before it would otherwise hide what had to wait for it.

use std::time::Duration;

/// How long after the end of the trial requests that were due before it are still sent, and their answers
/// awaited. If the path does not carry the rate, more is left than fits into this time; it is
/// counted as unanswered.
pub(crate) const CATCH_UP_MAX: Duration = Duration::from_secs(1);

/// How many requests of a schedule are due before `end`. `at` returns the time of each by its number, from 0,
/// and never falls.
pub(crate) fn due_before<T: PartialOrd>(end: &T, at: impl Fn(u64) -> T) -> u64 {
    let (mut low, mut high) = (0, 0);
    while at(high) < *end && high < 1 << 62 {
        low = high + 1;
        high = 2 * high + 1;
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if at(middle) < *end {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_due_before_an_end_are_those_whose_time_is_smaller() {
        for (end, count) in [(0, 0), (1, 1), (10, 1), (11, 2), (1_000, 100), (1_001, 101)] {
            assert_eq!(due_before(&end, |number| 10 * number), count, "{end}");
        }
        assert_eq!(due_before(&5, |_| 5), 0);
    }
}
