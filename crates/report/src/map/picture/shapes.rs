//! The pieces that a picture consists of. Colors are CSS variables with a fallback, so that a picture follows the
//! page's light or dark scheme and also works as a file of its own.

use linerate_analysis::text::visible::visible;
use linerate_model::known::{Gap, Known};

use crate::html::escape;

pub(super) const INK: &str = "var(--ink, #1b2430)";
pub(super) const SOFT: &str = "var(--ink-soft, #5b6675)";
pub(super) const LINE: &str = "var(--line, #c9d1da)";
pub(super) const CARD: &str = "var(--card, #ffffff)";
pub(super) const PAPER: &str = "var(--paper, #f6f7f9)";
pub(super) const SEND: &str = "var(--accent, #0b62c4)";
pub(super) const RECEIVE: &str = "var(--warm, #a8480a)";

/// A fact, or `?`; the cause is in the title.
pub(super) fn short<T: ToString>(fact: &Known<T>) -> String {
    match fact {
        Known::Value(value) => visible(&value.to_string()),
        Known::Unknown(gap) if gap.leaves_a_question() => "?".to_owned(),
        Known::Unknown(_) => "n/a".to_owned(),
    }
}

/// The characters that fit: 0.6 em is wider than the average of any common sans-serif font.
pub(super) fn letters(width: u32, size: u32) -> usize {
    usize::try_from(width * 10 / (size * 6)).unwrap_or(0).max(1)
}

/// The first of a text's characters, with an ellipsis if there are more.
pub(super) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept = text.chars().take(most.saturating_sub(1));
    kept.chain(['…']).collect()
}

/// A piece whose tooltip is `about`, if that is not empty.
pub(super) fn titled(about: &str, piece: &str) -> String {
    if about.is_empty() {
        return piece.to_owned();
    }
    format!("<g><title>{}</title>{piece}</g>", escape(about))
}

/// The reasons behind question marks; a value that cannot exist leaves no question.
pub(super) fn reasons(gaps: &[&Gap]) -> String {
    let open = gaps.iter().filter(|gap| gap.leaves_a_question());
    let reasons: Vec<String> = open.map(ToString::to_string).collect();
    reasons.join("; ")
}

/// How a text looks.
#[derive(Clone, Copy)]
pub(super) struct Style {
    pub(super) size: u32,
    pub(super) fill: &'static str,
    pub(super) bold: bool,
    pub(super) anchor: &'static str,
}

impl Style {
    pub(super) const fn of(size: u32, fill: &'static str) -> Self {
        Self {
            size,
            fill,
            bold: false,
            anchor: "start",
        }
    }

    pub(super) const fn bold(self) -> Self {
        Self { bold: true, ..self }
    }

    pub(super) const fn anchored(self, anchor: &'static str) -> Self {
        Self { anchor, ..self }
    }
}

pub(super) fn label(x: u32, y: u32, style: Style, text: &str) -> String {
    let weight = if style.bold {
        " font-weight=\"600\""
    } else {
        ""
    };
    format!(
        "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{}\" fill=\"{}\" font-size=\"{}\"{weight}>{}</text>",
        style.anchor,
        style.fill,
        style.size,
        escape(text)
    )
}

/// A label that is cut to `width`; its tooltip has the whole text and the reasons behind its question marks.
pub(super) fn fitted(
    (x, y): (u32, u32),
    width: u32,
    style: Style,
    text: &str,
    gaps: &[&Gap],
) -> String {
    let shown = cut(text, letters(width, style.size));
    let mut about = reasons(gaps);
    if shown != text {
        let separator = if about.is_empty() { "" } else { "; " };
        about = format!("{text}{separator}{about}");
    }
    titled(&about, &label(x, y, style, &shown))
}

/// A box: its place and size, its colors, and further attributes.
pub(super) fn rect(area: [u32; 4], fill: &str, stroke: &str, more: &str) -> String {
    let [x, y, width, height] = area;
    format!(
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\" stroke=\"{stroke}\"{more}/>"
    )
}

/// A line along `d`.
pub(super) fn line(d: &str, stroke: &str, more: &str, about: &str) -> String {
    let title = if about.is_empty() {
        String::new()
    } else {
        format!("<title>{}</title>", escape(about))
    };
    format!("<path d=\"{d}\" fill=\"none\" stroke=\"{stroke}\"{more}>{title}</path>")
}

/// The head of an arrow with its tip at (x, y), pointing up (-1) or down (1).
pub(super) fn head(x: u32, y: u32, down: bool) -> String {
    let back = if down { y.saturating_sub(6) } else { y + 6 };
    format!(
        "<path d=\"M{} {back} L{x} {y} L{} {back} z\" fill=\"{INK}\"/>",
        x.saturating_sub(3),
        x + 3
    )
}
