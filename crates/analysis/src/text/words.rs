//! Text as every output writes it: numbers with their units and signs, and lines broken between words.

use linerate_model::prove;
use linerate_model::units::Nanoseconds;

/// `1 trial`, `5 trials`, `5 fixes`.
pub fn count(number: usize, noun: &str) -> String {
    let ending = match number {
        1 => "",
        _ if noun.ends_with(['s', 'x']) => "es",
        _ => "s",
    };
    format!("{number} {noun}{ending}")
}

/// A relative difference in percent with its sign.
pub fn percent(ratio: f64) -> String {
    if !ratio.is_finite() {
        return "?".to_owned();
    }
    let digits = usize::from(ratio.abs() < 9.995);
    let text = format!("{:+.digits$} %", ratio * 100.0);
    // A rounded zero has no direction.
    if text.trim_start_matches(['+', '-']) == "0.0 %" {
        "0.0 %".to_owned()
    } else {
        text
    }
}

/// A quotient: two digits where one would hide the difference.
pub fn times(value: f64) -> String {
    if value < 2.0 {
        format!("{value:.2}x")
    } else {
        format!("{value:.1}x")
    }
}

/// A relative effect with its interval, of a fix or of a level.
pub trait Effect {
    /// The relative change, and the low and the high end of its interval.
    fn relative(&self) -> [f64; 3];
    /// The minimum detectable effect.
    fn smallest_detectable(&self) -> f64;
}

impl Effect for prove::EffectDocument {
    fn relative(&self) -> [f64; 3] {
        [self.relative, self.low, self.high]
    }

    fn smallest_detectable(&self) -> f64 {
        self.smallest_detectable
    }
}

/// An interval whose upper end is more than this multiple of its lower end has no figure worth printing.
const NOISY_FACTOR: f64 = 10.0;
/// What is printed in place of the figures of such an effect.
pub const TOO_NOISY: &str = "too noisy to tell";

/// Whether the interval of an effect is so wide that its figures mislead.
pub fn is_too_noisy(effect: &dyn Effect) -> bool {
    let [_, low, high] = effect.relative().map(|relative| 1.0 + relative);
    // An interval without figures is too wide as well.
    !(low > 0.0 && high <= NOISY_FACTOR * low)
}

/// The effect, if its interval allows a figure.
pub fn effect_in_figures(effect: &dyn Effect) -> String {
    let [relative, ..] = effect.relative();
    if is_too_noisy(effect) {
        TOO_NOISY.to_owned()
    } else {
        effect_figure(effect)(relative)
    }
}

/// The interval of an effect: `[+15.8 %, +25.1 %]`; `None` if it allows no figure.
pub fn interval_in_figures(effect: &dyn Effect) -> Option<String> {
    let [_, low, high] = effect.relative();
    let figure = effect_figure(effect);
    (!is_too_noisy(effect)).then(|| format!("[{}, {}]", figure(low), figure(high)))
}

/// How the figures of one effect are written, all in the same form: in percent, or as ratios if one of
/// them is 2x or more, because `+2686 %` does not show that it is 27.9 times as much.
pub fn effect_figure(effect: &dyn Effect) -> fn(f64) -> String {
    let [relative, _, high] = effect.relative();
    let figures = [relative, high, effect.smallest_detectable()];
    if figures.iter().any(|figure| *figure >= 1.0) {
        |ratio| {
            if ratio.is_finite() {
                times(1.0 + ratio)
            } else {
                "?".to_owned()
            }
        }
    } else {
        percent
    }
}

/// A ratio: from 2x on as such, below in percent.
pub fn change(ratio: f64) -> String {
    if ratio >= 2.0 {
        times(ratio)
    } else {
        percent(ratio - 1.0)
    }
}

/// The minimum detectable effect of the pairs.
pub fn detectable(effect: &dyn Effect) -> String {
    effect_figure(effect)(effect.smallest_detectable())
        .trim_start_matches('+')
        .to_owned()
}

/// A time as people give it to `--time`, or in minutes where that is more than a few.
pub fn seconds_in_words(time: Nanoseconds) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 180.0 {
        // To the millisecond, without trailing zeros: 0.8 s, 11.2 s, 3 s.
        format!("{} s", (seconds * 1e3).round() / 1e3)
    } else {
        format!("{:.0} minutes", seconds / 60.0)
    }
}

/// The words of a text; a number and its unit are one.
pub fn words(text: &str) -> Vec<String> {
    const UNITS: [&str; 9] = [
        "%", "b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s", "s/GB", "GB/s", "GT/s",
    ];
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let unit = word.trim_end_matches([',', ';', '.', ')', ':']);
        match words.last_mut() {
            Some(number)
                if UNITS.contains(&unit) && number.ends_with(|c: char| c.is_ascii_digit()) =>
            {
                number.push(' ');
                number.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

/// Breaks text into lines of at most `width` characters, between words where there are any.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(8);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in words(text) {
        let mut word: Vec<char> = word.chars().collect();
        if used > 0 && used + 1 + word.len() > width {
            lines.push(String::new());
            used = 0;
        }
        while word.len() > width {
            let tail = word.split_off(width);
            lines.push(String::new());
            if let Some(line) = lines.iter_mut().rev().nth(1) {
                line.extend(word);
            }
            word = tail;
        }
        if let Some(line) = lines.last_mut() {
            if used > 0 {
                line.push(' ');
                used += 1;
            }
            used += word.len();
            line.extend(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_not_parted_from_its_unit() {
        let lines = wrap("it is about 0.430 s/GB, or 11.2 % of all", 16);
        assert_eq!(lines, ["it is about", "0.430 s/GB, or", "11.2 % of all"]);
    }

    #[test]
    fn wrapped_text_keeps_every_letter_and_the_width() {
        let text = format!("one {} three four", "x".repeat(50));
        let lines = wrap(&text, 20);
        assert!(
            lines.iter().all(|line| line.chars().count() <= 20),
            "{lines:?}"
        );
        let letters = |text: &str| text.replace(' ', "");
        assert_eq!(letters(&lines.concat()), letters(&text));
    }

    #[test]
    fn a_rounded_zero_has_no_sign() {
        assert_eq!(percent(-0.000_01), "0.0 %");
        assert_eq!(percent(0.4), "+40.0 %");
        assert_eq!(percent(-0.031), "-3.1 %");
        assert_eq!(percent(12.5), "+1250 %");
        assert_eq!(percent(f64::NAN), "?");
    }
}
