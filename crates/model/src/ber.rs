//! Bit error rate of a link, with its confidence interval.
//!
//! Errors are counted events, so the interval is that of a Poisson mean: Byar's approximation (Breslow
//! and Day, Statistical Methods in Cancer Research II, 1987, section 2.3), within 1 % of the exact one
//! from a few events on. No event in n bits gives the upper bound 3/n, the rule of three (Hanley and
//! Lippman-Hand, JAMA 249, 1983).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::{BitRate, Nanoseconds};

/// The normal quantile of a two-sided 95 % interval.
const Z: f64 = 1.959_964;

/// The bit error rate of one direction of a link over an interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorRate {
    /// Bits that were counted as wrong.
    pub errors: u64,
    /// Bits transmitted: link speed times time. A link transmits bits also when it is idle.
    pub bits: f64,
    /// Errors per bit; none if no error was seen, which is not a rate of 0.
    pub rate: Option<f64>,
    /// The lower end of the 95 % CI; 0 if no error was seen.
    pub lower: f64,
    /// The upper end of the 95 % CI; 3/bits if no error was seen.
    pub upper: f64,
}

/// The rate of `errors` on a link of `speed` in `time`; `None` if no bit was transmitted.
pub fn error_rate(errors: u64, speed: BitRate, time: Nanoseconds) -> Option<ErrorRate> {
    let bits = speed.as_f64() * time.as_secs_f64();
    if bits < 1.0 {
        return None;
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "a rate needs no more than 53 bits"
    )]
    let n = errors as f64;
    Some(if errors == 0 {
        ErrorRate {
            errors,
            bits,
            rate: None,
            lower: 0.0,
            upper: 3.0 / bits,
        }
    } else {
        ErrorRate {
            errors,
            bits,
            rate: Some(n / bits),
            lower: n * (1.0 - 1.0 / (9.0 * n) - Z / (3.0 * n.sqrt())).powi(3) / bits,
            upper: {
                let m = n + 1.0;
                m * (1.0 - 1.0 / (9.0 * m) + Z / (3.0 * m.sqrt())).powi(3) / bits
            },
        }
    })
}

impl fmt::Display for ErrorRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rate {
            Some(rate) => write!(f, "{rate:.1e} ({:.1e} to {:.1e})", self.lower, self.upper),
            None => write!(f, "below {:.1e} (no error seen)", self.upper),
        }
    }
}

/// Thresholds for the rate before correction; our proposals, not limits of a standard.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Worth knowing.
    pub note: f64,
    /// Close to the limit of what FEC can correct.
    pub warn: f64,
}

/// NRZ lanes (two levels, up to 25 Gb/s each): a healthy lane has few errors.
pub const NRZ: Limits = Limits {
    note: 1e-6,
    warn: 1e-5,
};

/// PAM4 lanes (four levels, from 50 Gb/s each): errors are expected, and RS(544,514) corrects up to about 2.4e-4
/// (IEEE 802.3bs).
pub const PAM4: Limits = Limits {
    note: 1e-5,
    warn: 1e-4,
};

/// The thresholds for a link of `speed` over `lanes`. If the lane count is unknown, the PAM4 thresholds apply from 50
/// Gb/s.
pub fn limits(speed: BitRate, lanes: Option<u32>) -> Limits {
    let of_lane = speed.as_bit_per_s() / u64::from(lanes.unwrap_or(1).max(1));
    if of_lane >= 45_000_000_000 { PAM4 } else { NRZ }
}

/// One sentence of advice from the rates before and after FEC.
pub fn advice(
    before: Option<&ErrorRate>,
    after: Option<&ErrorRate>,
    limits: Limits,
) -> &'static str {
    let sure = |rate: Option<&ErrorRate>, limit: f64| rate.is_some_and(|r| r.lower > limit);
    if after.is_some_and(|rate| rate.errors > 0) {
        "Data is lost: clean or replace cable and modules, and compare the FEC mode of both ends."
    } else if sure(before, limits.warn) {
        "FEC still corrects everything, with little margin: clean or replace the cable soon."
    } else if sure(before, limits.note) {
        "FEC corrects everything: watch whether the rate rises."
    } else if before.is_some() || after.is_some() {
        "Nothing to do: no data was lost while watched."
    } else {
        "Unknown: the driver has no error counters for the link."
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanoseconds = Nanoseconds::from_millis(1_000);
    const GBIT_100: BitRate = BitRate::from_mbit_per_s(100_000);

    fn near(one: f64, other: f64, share: f64) -> bool {
        (one / other - 1.0).abs() < share
    }

    #[test]
    fn no_error_gives_an_upper_bound_and_no_rate() {
        let rate = error_rate(0, GBIT_100, SECOND).expect("bits passed");
        assert_eq!((rate.rate, rate.lower), (None, 0.0));
        assert!(near(rate.upper, 3e-11, 1e-9));
        assert_eq!(rate.to_string(), "below 3.0e-11 (no error seen)");
    }

    /// The exact 95 % limits of a Poisson mean, from the chi-squared distribution.
    #[test]
    fn the_interval_is_near_the_exact_one() {
        let one_bit = BitRate::from_bit_per_s(1_000_000);
        for (errors, lower, upper) in [
            (5, 1.623, 11.668),
            (10, 4.795, 18.390),
            (100, 81.364, 121.627),
        ] {
            let rate = error_rate(errors, one_bit, SECOND).expect("bits passed");
            assert!(near(rate.lower * 1e6, lower, 0.02), "{rate:?}");
            assert!(near(rate.upper * 1e6, upper, 0.01), "{rate:?}");
        }
        let one = error_rate(1, one_bit, SECOND).expect("bits passed");
        assert!(one.lower > 0.0 && one.upper < 5.7e-6, "{one:?}");
    }

    #[test]
    fn nothing_passed_is_no_rate() {
        assert_eq!(error_rate(1, GBIT_100, Nanoseconds::new(0)), None);
        assert_eq!(error_rate(1, BitRate::from_bit_per_s(0), SECOND), None);
    }

    #[test]
    fn lanes_say_which_limits_hold() {
        let gbit = |g: u64| BitRate::from_mbit_per_s(g * 1000);
        assert_eq!(limits(gbit(100), Some(4)), NRZ);
        assert_eq!(limits(gbit(100), Some(2)), PAM4);
        assert_eq!(limits(gbit(100), Some(1)), PAM4);
        assert_eq!(limits(gbit(25), None), NRZ);
    }

    #[test]
    fn the_advice_follows_the_sure_end_of_the_interval() {
        let of = |errors| error_rate(errors, GBIT_100, SECOND);
        let said = |before: u64, after: u64| advice(of(before).as_ref(), of(after).as_ref(), NRZ);
        assert!(said(0, 0).starts_with("Nothing to do"));
        assert!(said(2_000_000, 0).starts_with("FEC still corrects"));
        assert!(said(0, 1).starts_with("Data is lost"));
        assert!(advice(None, None, NRZ).starts_with("Unknown"));
    }
}
