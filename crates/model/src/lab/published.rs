//! Published results, reported beside the experiment's own.

use serde::{Deserialize, Serialize};

use super::{Difference, Experiment, ExperimentError, Factor, Response, Words, wrong};
use crate::units::BitRate;

/// Results of one kind from one source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Published {
    /// The source: who measured, with what and on what.
    pub source: String,
    /// What the figures are, if the response does not state it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    /// The response that they are compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Response>,
    /// Whether they are compared with the difference that the file requests, and not with a response.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub difference: bool,
    /// What the source did differently, if it explains a difference to linerate's figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The values.
    pub figures: Vec<PublishedFigure>,
}

/// A published value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PublishedFigure {
    /// The part of the case that is not a factor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case: Option<String>,
    /// Factors with their levels; a factor that is not named is at its first level. None if no combination matches.
    #[serde(default, skip_serializing_if = "Words::is_empty")]
    pub at: Words,
    /// The value, with its unit: `37.9 Gb/s`, `1.4 to 1.9 us`.
    pub figure: String,
    /// The value as printed, if its unit there means another: IMB before 2018 and perftest print MiB/s as MB/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub printed: Option<String>,
    /// The successive values whose mean the figure is, in its unit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<f64>,
}

/// A unit of published values.
struct Unit {
    /// Its text.
    text: &'static str,
    /// The unit of a response, as a key's suffix.
    of: &'static str,
    /// The conversion factor to it.
    times: f64,
}

const fn unit(text: &'static str, of: &'static str, times: f64) -> Unit {
    Unit { text, of, times }
}

/// All known units.
const UNITS: [Unit; 15] = [
    unit("b/s", "bit_per_s", 1.0),
    unit("Mb/s", "bit_per_s", 1e6),
    unit("Gb/s", "bit_per_s", 1e9),
    unit("MB/s", "bit_per_s", 8e6),
    unit("GB/s", "bit_per_s", 8e9),
    unit("MiB/s", "bit_per_s", 8_388_608.0),
    unit("GiB/s", "bit_per_s", 8_589_934_592.0),
    unit("/s", "per_s", 1.0),
    unit("s/GB", "s_per_gb", 1.0),
    unit("us/op", "us_per_op", 1.0),
    unit("ns", "s", 1e-9),
    unit("us", "s", 1e-6),
    unit("ms", "s", 1e-3),
    unit("s", "s", 1.0),
    unit("%", "per_cent", 1.0),
];

/// A parsed value: from `low` to `high`, in `unit`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Amount {
    /// The lower end.
    pub low: f64,
    /// The upper end; the same if a single number was published.
    pub high: f64,
    /// The response's unit, as a key's suffix.
    pub unit: &'static str,
}

/// How far the mean of a published series may be from the figure: both are rounded.
const SERIES_TOLERANCE: f64 = 0.005;

impl PublishedFigure {
    /// The value, how it was printed, and the values whose mean it is.
    pub fn in_words(&self) -> String {
        let printed = self
            .printed
            .iter()
            .map(|printed| format!("printed as {printed}"));
        let series = (!self.series.is_empty()).then(|| {
            let values: Vec<String> = self.series.iter().map(f64::to_string).collect();
            format!("mean of {}", values.join(", "))
        });
        // A rate in bytes stands beside one of this run: both in bits.
        let in_bits = self.in_bits();
        let as_given = in_bits.is_some().then(|| self.figure.clone());
        let notes: Vec<String> = as_given.into_iter().chain(printed).chain(series).collect();
        let figure = in_bits.unwrap_or_else(|| self.figure.clone());
        if notes.is_empty() {
            figure
        } else {
            format!("{figure} ({})", notes.join("; "))
        }
    }

    /// A rate that is given in bytes, in bits.
    fn in_bits(&self) -> Option<String> {
        let amount = self.amount().filter(|_| self.figure.ends_with("B/s"))?;
        let [low, high] = [amount.low, amount.high].map(BitRate::from_f64);
        let (low, high) = (low?, high?);
        Some(if low == high {
            low.to_string()
        } else {
            format!("{low} to {high}")
        })
    }

    /// Whether the mean of its series is the figure.
    #[expect(clippy::cast_precision_loss, reason = "a few values")]
    fn fits_series(&self, amount: Amount) -> bool {
        let Some(unit) = self.unit().filter(|_| !self.series.is_empty()) else {
            return true;
        };
        let mean = self.series.iter().sum::<f64>() / self.series.len() as f64 * unit.times;
        (mean / amount.low - 1.0).abs() <= SERIES_TOLERANCE
    }

    fn unit(&self) -> Option<&'static Unit> {
        // It is what follows the last digit.
        let digit = self.figure.rfind(|at: char| at.is_ascii_digit())?;
        let written = self.figure[digit + 1..].trim();
        UNITS.iter().find(|unit| unit.text == written)
    }

    /// The value in linerate's own unit; none if it is not a number or range with a known unit.
    pub fn amount(&self) -> Option<Amount> {
        let unit = self.unit()?;
        let digit = self.figure.rfind(|at: char| at.is_ascii_digit())?;
        let numbers = &self.figure[..=digit];
        let number = |text: &str| {
            let number: f64 = text.trim().parse().ok()?;
            (number.is_finite() && number > 0.0).then_some(number * unit.times)
        };
        let (low, high) = match numbers.split_once(" to ") {
            Some((low, high)) => (number(low)?, number(high)?),
            None => (number(numbers)?, number(numbers)?),
        };
        (low <= high).then_some(Amount {
            low,
            high,
            unit: unit.of,
        })
    }
}

impl Published {
    /// What they are compared with and their required unit; none if there is no comparison.
    fn unit(&self) -> Option<(&'static str, &'static str)> {
        match self.response {
            Some(response) => Some((response.word(), response.unit().word())),
            None => self.difference.then_some(("difference", Difference::UNIT)),
        }
    }

    pub(super) fn check(&self, experiment: &Experiment) -> Result<(), ExperimentError> {
        let factors = &experiment.factors;
        let of_difference = match (self.difference, &experiment.difference, self.response) {
            (true, None, _) => {
                let why = "figures for a `difference`, but the experiment defines none";
                return Err(wrong(&self.source, why));
            }
            (true, Some(_), Some(_)) => {
                let why =
                    "figures are compared with a `response` or with the `difference`, not both";
                return Err(wrong(&self.source, why));
            }
            (true, Some(difference), None) => Some(&difference.factor),
            (false, ..) => None,
        };
        if self.unit().is_none() && self.what.is_none() {
            let why = "missing `response` (to compare with) or `what` (a description)";
            return Err(wrong(&self.source, why));
        }
        for figure in &self.figures {
            let amount = figure.amount().ok_or_else(|| {
                let units: Vec<&str> = UNITS.iter().map(|unit| unit.text).collect();
                let why = format!(
                    "a published figure is a number, or `LOW to HIGH`, above 0 with a unit: {}",
                    units.join(", ")
                );
                wrong(&figure.figure, why)
            })?;
            if !figure.fits_series(amount) {
                return Err(wrong(&figure.figure, "not the mean of its `series`"));
            }
            if let Some((word, unit)) = self.unit()
                && unit != amount.unit
            {
                let why = format!("not a value of `{word}`");
                return Err(wrong(&figure.figure, why));
            }
            if let Some(factor) = of_difference.filter(|factor| figure.at.contains_key(*factor)) {
                let why = format!(
                    "a difference is one of both levels of `{factor}`: `at` names the others"
                );
                return Err(wrong(&figure.figure, why));
            }
            if figure.at.is_empty() && figure.case.is_none() {
                let why = "missing `at` (levels of factors) or `case` (a description)";
                return Err(wrong(&figure.figure, why));
            }
            let unknown = |name: &&String| !factors.iter().any(|factor| factor.name() == *name);
            if let Some(name) = figure.at.keys().find(unknown) {
                let names: Vec<&str> = factors.iter().map(Factor::name).collect();
                let why = format!("no factor `{name}`; factors: {}", names.join(", "));
                return Err(wrong(&figure.figure, why));
            }
        }
        Ok(())
    }
}

impl Experiment {
    /// Checks that the levels of each published value exist. Applies to the full file only: a short form has fewer
    /// levels.
    pub fn check_published_levels(&self) -> Result<(), ExperimentError> {
        for figure in self.published.iter().flat_map(|one| &one.figures) {
            for (name, level) in &figure.at {
                let of = self.factors.iter().find(|factor| factor.name() == name);
                let names: Vec<String> = of.map(Factor::level_names).unwrap_or_default();
                if !names.contains(&level.to_string()) {
                    let why = format!(
                        "`{name}` has no level `{level}`; levels: {}",
                        names.join(", ")
                    );
                    return Err(wrong(&figure.figure, why));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(figure: &str) -> Option<(f64, f64, &'static str)> {
        let figure = PublishedFigure {
            case: None,
            at: Words::new(),
            figure: figure.to_owned(),
            printed: None,
            series: Vec::new(),
        };
        let amount = figure.amount()?;
        Some((amount.low, amount.high, amount.unit))
    }

    #[test]
    fn published_figures_are_told_in_linerate_s_own_units() {
        assert_eq!(amount("37.9 Gb/s"), Some((37.9e9, 37.9e9, "bit_per_s")));
        assert_eq!(
            amount("4300 to 4613 MB/s"),
            Some((34.4e9, 36.904e9, "bit_per_s"))
        );
        assert_eq!(amount("402775 /s"), Some((402_775.0, 402_775.0, "per_s")));
        let (low, high, unit) = amount("1.4 to 1.9us").expect("a range");
        assert!((low - 1.4e-6).abs() < 1e-12 && (high - 1.9e-6).abs() < 1e-12);
        assert_eq!(unit, "s");
        assert_eq!(amount("2 %"), Some((2.0, 2.0, "per_cent")));
    }

    #[test]
    fn a_figure_shows_how_it_was_printed_and_the_series_whose_mean_it_is() {
        let figure = |series: &[f64]| PublishedFigure {
            case: None,
            at: Words::new(),
            figure: "4613 MiB/s".to_owned(),
            printed: Some("4613 MB/s".to_owned()),
            series: series.to_vec(),
        };
        assert_eq!(
            figure(&[]).in_words(),
            "38.70 Gb/s (4613 MiB/s; printed as 4613 MB/s)"
        );
        let both = figure(&[4_600.0, 4_626.0]);
        assert_eq!(
            both.in_words(),
            "38.70 Gb/s (4613 MiB/s; printed as 4613 MB/s; mean of 4600, 4626)"
        );
        let amount = both.amount().expect("a number");
        assert!(both.fits_series(amount));
        assert!(!figure(&[4_600.0, 4_700.0]).fits_series(amount));
    }

    #[test]
    fn what_is_no_number_with_a_unit_is_no_figure() {
        for text in [
            "fast",
            "37.9",
            "37.9 Gb",
            "-1 us",
            "0 us",
            "2 to 1 us",
            "1,5 us",
            "about 14 GB/s",
        ] {
            assert_eq!(amount(text), None, "{text}");
        }
    }
}
