//! `--require`: a bound that a figure is to keep.

use std::str::FromStr;

use linerate_model::lab::{Response, Unit};
use linerate_model::units::{BitRate, Nanoseconds};

/// A bound that a figure is to keep: `rate>=9.4Gbit/s`.
#[derive(Debug, Clone, PartialEq)]
pub struct Requirement {
    pub(crate) response: Response,
    /// Whether it is a minimum or a maximum.
    pub(crate) is_least: bool,
    /// In the figure's own unit: bit/s, 1/s, s/GB, us/op, s.
    pub(crate) bound: f64,
    pub(crate) text: String,
}

impl FromStr for Requirement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, is_least, value) = match (text.split_once(">="), text.split_once("<=")) {
            (Some((word, value)), None) => (word, true, value),
            (None, Some((word, value))) => (word, false, value),
            _ => return Err("expected FIGURE>=VALUE or FIGURE<=VALUE".to_owned()),
        };
        let (word, value) = (word.trim(), value.trim());
        let response = Response::ALL.into_iter().find(|one| one.word() == word);
        let response = response.ok_or_else(|| {
            let words: Vec<&str> = Response::ALL.iter().map(|one| one.word()).collect();
            format!("unknown metric `{word}`; available: {}", words.join(", "))
        })?;
        let number = |unit: &str| {
            let bound: Result<f64, _> = value.parse();
            bound.map_err(|_| format!("`{value}` is not a number ({unit})"))
        };
        let bound = match response.unit() {
            Unit::BitPerS => {
                let rate: Result<BitRate, _> = value.parse();
                rate.map_err(|error| error.to_string())?.as_f64()
            }
            Unit::S => {
                let time: Result<Nanoseconds, _> = value.parse();
                time.map_err(|error| error.to_string())?.as_secs_f64()
            }
            Unit::PerS => number("operations per second")?,
            Unit::SPerGb => number("CPU seconds per GB")?,
            Unit::UsPerOp => number("CPU microseconds per operation")?,
        };
        if !(bound.is_finite() && bound > 0.0) {
            return Err(format!(
                "`{value}` is not a bound: expected a value above 0"
            ));
        }
        Ok(Self {
            response,
            is_least,
            bound,
            text: text.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_requirement_is_refused_with_what_is_one() {
        for (text, words) in [
            ("rate=9", "FIGURE>=VALUE"),
            ("speed>=9", "unknown metric `speed`; available: rate, "),
            ("rate>=9", "it has no unit; use b/s"),
            ("cpu<=-1", "above 0"),
            ("operations>=many", "`many` is not a number"),
            ("cpu-op<=5us", "CPU microseconds per operation"),
        ] {
            let error = text.parse::<Requirement>().expect_err(words);
            assert!(error.contains(words), "{error}");
        }
    }
}
