//! `--require`: a bound that a figure is to keep.

use std::str::FromStr;

use linerate_model::lab::{Response, Unit};
use linerate_model::units::{BitRate, Nanoseconds};

/// A bound that a figure is to keep: `rate>=9.4Gbit/s`.
#[derive(Debug, Clone, PartialEq)]
pub struct Requirement {
    /// The figure.
    pub response: Response,
    /// Whether it is a minimum or a maximum.
    pub is_least: bool,
    /// What it is compared with.
    pub bound: Bound,
    /// As it was written.
    pub text: String,
}

/// What a figure is compared with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// A value in the figure's own unit: bit/s, 1/s, s/GB, us/op, s.
    Value(f64),
    /// A share of the path's ceiling.
    OfCeiling(f64),
}

/// How bounds are compared: a measured figure never equals its bound, so `>` is `>=`.
const SIGNS: [(&str, bool); 4] = [(">=", true), ("<=", false), (">", true), ("<", false)];

impl FromStr for Requirement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let split = |(sign, is_least): (&str, bool)| {
            let (word, value) = text.split_once(sign)?;
            Some((word.trim(), is_least, value.trim()))
        };
        let parts = SIGNS.into_iter().find_map(split);
        let parts = parts.filter(|(_, _, value)| !value.contains(['<', '>', '=']));
        let (word, is_least, value) =
            parts.ok_or("expected FIGURE>=VALUE or FIGURE<=VALUE, such as `rate>=9.4Gb/s`")?;
        let response = response_of(word)?;
        let bound = match value.split_once('%') {
            Some((share, "ceiling")) => share_of_ceiling(response, share.trim())?,
            Some(_) => {
                return Err(format!(
                    "`{value}`: of what? A share is one of the ceiling, such as `90%ceiling`"
                ));
            }
            None => Bound::Value(value_of(response, value)?),
        };
        Ok(Self {
            response,
            is_least,
            bound,
            text: text.to_owned(),
        })
    }
}

/// `cpu.remote` and `cpu-peer` are the same figure.
fn response_of(word: &str) -> Result<Response, String> {
    let name = word.replace('.', "-").replace("remote", "peer");
    let response = Response::ALL.into_iter().find(|one| one.word() == name);
    response.ok_or_else(|| {
        let words: Vec<&str> = Response::ALL.iter().map(|one| one.word()).collect();
        format!("unknown metric `{word}`; available: {}", words.join(", "))
    })
}

fn share_of_ceiling(response: Response, share: &str) -> Result<Bound, String> {
    if response != Response::Rate {
        let word = response.word();
        return Err(format!("`{word}` has no ceiling; only `rate` has one"));
    }
    match share.parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(Bound::OfCeiling(percent / 100.0)),
        _ => Err(format!(
            "`{share}` is not a share: expected 0 to 100, such as `rate>=90%ceiling`"
        )),
    }
}

fn value_of(response: Response, value: &str) -> Result<f64, String> {
    let number = |unit: &str, what: &str| {
        let digits = value.strip_suffix(unit).unwrap_or(value).trim_end();
        let bound: Result<f64, _> = digits.parse();
        bound.map_err(|_| format!("`{value}` is not a number ({what})"))
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
        Unit::PerS => number("/s", "operations per second")?,
        Unit::SPerGb => number("s/GB", "CPU seconds per GB")?,
        Unit::UsPerOp => number("us/op", "CPU microseconds per operation")?,
    };
    if bound.is_finite() && bound > 0.0 {
        return Ok(bound);
    }
    Err(format!(
        "`{value}` is not a bound: expected a value above 0"
    ))
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
            ("rate>=90%", "of what? A share is one of the ceiling"),
            ("rate>=120%ceiling", "expected 0 to 100"),
            ("p99<=90%ceiling", "only `rate` has one"),
            ("rate>=<9Gb/s", "FIGURE>=VALUE"),
        ] {
            let error = text.parse::<Requirement>().expect_err(words);
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn names_with_dots_strict_signs_and_units_mean_the_same_as_the_plain_ones() {
        let parse = |text: &str| {
            let one: Requirement = text.parse().expect(text);
            (one.response, one.is_least, one.bound)
        };
        for (text, other) in [
            ("cpu.remote<=0.3s/GB", "cpu-peer<=0.3"),
            ("p99 < 200us", "p99<=200us"),
            ("operations>100000/s", "operations>=100000"),
            ("cpu-op.remote<=12us/op", "cpu-op-peer<=12"),
        ] {
            assert_eq!(parse(text), parse(other));
        }
        let (_, is_least, bound) = parse("rate >= 90%ceiling");
        assert!(is_least);
        assert_eq!(bound, Bound::OfCeiling(0.9));
    }
}
