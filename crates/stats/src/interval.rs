//! An interval of values with its confidence level.

/// A confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The lower end, inclusive.
    pub low: f64,
    /// The upper end, inclusive.
    pub high: f64,
    /// The confidence level: the share of such intervals that contain the true value, 0.95 for 95 %.
    pub level: f64,
}

impl Interval {
    /// Whether `value` is in the interval, ends included.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Whether `value` is outside the interval.
    ///
    /// `excludes(0.0)` on the interval of an effect means that the effect is significant. No interval excludes NaN.
    pub fn excludes(&self, value: f64) -> bool {
        value < self.low || self.high < value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Interval = Interval {
        low: -1.0,
        high: 2.0,
        level: 0.95,
    };

    #[test]
    fn the_ends_belong_to_the_interval() {
        assert!(INTERVAL.contains(-1.0) && INTERVAL.contains(2.0) && INTERVAL.contains(0.0));
        assert!(!INTERVAL.excludes(-1.0) && !INTERVAL.excludes(2.0));
    }

    #[test]
    fn what_lies_outside_is_excluded() {
        assert!(INTERVAL.excludes(-1.1) && INTERVAL.excludes(2.1));
        assert!(!INTERVAL.contains(-1.1) && !INTERVAL.contains(2.1));
    }

    #[test]
    fn nan_is_neither_contained_nor_excluded() {
        assert!(!INTERVAL.contains(f64::NAN) && !INTERVAL.excludes(f64::NAN));
    }
}
