//! One claim, what was seen of it, and whether it holds.

use std::fmt;

use linerate_bench_shared::markdown;
use serde::Serialize;

/// Whether a claim holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Yes,
    No,
    /// Inconclusive: the machine, not linerate, may be the reason.
    Undecided,
}

impl Verdict {
    /// `yes` or `no`.
    pub(crate) fn of(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }

    /// Its word.
    fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Undecided => "undecided",
        }
    }
}

/// A line of the table.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Line {
    pub(crate) what: String,
    pub(crate) figures: String,
    pub(crate) limit: String,
    pub(crate) verdict: Verdict,
}

impl Line {
    pub(crate) fn new(
        what: impl Into<String>,
        figures: String,
        limit: impl Into<String>,
        verdict: Verdict,
    ) -> Self {
        Self {
            what: what.into(),
            figures,
            limit: limit.into(),
            verdict,
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, figures, limit) = (&self.what, &self.figures, &self.limit);
        let verdict = self.verdict.word();
        write!(f, "{verdict:<9} {what}: {figures} (limit: {limit})")
    }
}

/// The lines as a Markdown table.
pub(crate) fn table(lines: &[Line]) -> String {
    let rows = lines.iter().map(|line| {
        let (what, figures, limit) = (&line.what, &line.figures, &line.limit);
        markdown::row([what, figures, limit, line.verdict.word()])
    });
    markdown::head(&["what", "seen", "limit", "verdict"]) + &rows.collect::<String>()
}

/// How many of each verdict.
pub(crate) fn tally(lines: &[Line]) -> String {
    let count = |verdict| lines.iter().filter(|line| line.verdict == verdict).count();
    format!(
        "{} yes, {} no, {} undecided",
        count(Verdict::Yes),
        count(Verdict::No),
        count(Verdict::Undecided)
    )
}

/// A count as a figure.
#[expect(clippy::cast_precision_loss, reason = "counts of a trial fit in 2^53")]
pub(crate) fn real(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_row_and_is_counted() {
        let line = |verdict| Line::new("a|b", "1".to_owned(), "2", verdict);
        let lines = [line(Verdict::Yes), line(Verdict::No), line(Verdict::Yes)];
        let text = table(&lines);
        assert_eq!(text.lines().count(), 5);
        assert!(text.ends_with("| a/b | 1 | 2 | yes |\n"), "{text}");
        assert_eq!(tally(&lines), "2 yes, 1 no, 0 undecided");
    }
}
