//! Text that a host, a peer, a file or a stored run provided, without what steers a terminal: control characters (ECMA-48,
//! the C1 set too) and characters that turn the direction of writing (Unicode Standard Annex 9). They become visible as
//! escapes, such as `\u{1b}`.

use std::borrow::Cow;
use std::io::{self, Write};

use serde_json::ser::Formatter;

/// What linerate itself writes around words on a terminal (ECMA-48, 8.3.117), and nothing else.
pub const BOLD: &str = "\u{1b}[1m";
/// Faint.
pub const DIM: &str = "\u{1b}[2m";
/// What is wrong.
pub const RED: &str = "\u{1b}[31m";
/// What is good.
pub const GREEN: &str = "\u{1b}[32m";
/// The end of all of them.
pub const PLAIN: &str = "\u{1b}[0m";
const OWN_STYLES: [&str; 5] = [BOLD, DIM, RED, GREEN, PLAIN];

/// Whether a terminal, or what shows text, could be steered by the character.
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A name or a value: line ends and tabs become visible, too.
pub fn visible(text: &str) -> String {
    escaped(text, steers).into_owned()
}

/// Text of lines: line ends and tabs are kept.
pub fn visible_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| steers(c) && !matches!(c, '\n' | '\t'))
}

/// The same with linerate's own styles.
pub fn visible_styled(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for piece in text.split_inclusive('m') {
        let style = OWN_STYLES.iter().find(|style| piece.ends_with(**style));
        let style = style.copied().unwrap_or_default();
        out.push_str(&visible_lines(piece.strip_suffix(style).unwrap_or(piece)));
        out.push_str(style);
    }
    out
}

fn escaped(text: &str, steers: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&steers) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Makes the lines that are written to it visible.
pub struct VisibleLines<W: Write> {
    out: W,
    /// The line so far.
    line: Vec<u8>,
}

impl<W: Write> VisibleLines<W> {
    /// Writes to `out`.
    pub fn new(out: W) -> Self {
        let line = Vec::new();
        Self { out, line }
    }

    fn put_line(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&line);
        self.out.write_all(visible_lines(&text).as_bytes())
    }
}

impl<W: Write> Write for VisibleLines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.put_line()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.put_line()?;
        self.out.flush()
    }
}

/// Writes JSON whose strings have their steering characters as `\u` escapes, also those that JSON does not demand (RFC
/// 8259, 7): the values are the same.
pub struct VisibleJson<F>(pub F);

macro_rules! delegated {
    ($($name:ident($($argument:ident: $kind:ty)?)),* $(,)?) => {$(
        fn $name<W: ?Sized + Write>(&mut self, out: &mut W $(, $argument: $kind)?) -> io::Result<()> {
            self.0.$name(out $(, $argument)?)
        }
    )*};
}

impl<F: Formatter> Formatter for VisibleJson<F> {
    delegated!(
        begin_array(),
        end_array(),
        begin_array_value(first: bool),
        end_array_value(),
        begin_object(),
        end_object(),
        begin_object_key(first: bool),
        end_object_key(),
        begin_object_value(),
        end_object_value(),
    );

    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| steers(*c)) {
            out.write_all(&rest.as_bytes()[..at])?;
            // All of them are of the Basic Multilingual Plane.
            write!(out, "\\u{:04x}", u32::from(c))?;
            rest = &rest[at + c.len_utf8()..];
        }
        out.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Serialize;
    use serde_json::ser::{CompactFormatter, PrettyFormatter, Serializer};

    use super::*;

    fn json<F: Formatter>(formatter: F, value: &serde_json::Value) -> String {
        let mut out = Vec::new();
        let mut writer = Serializer::with_formatter(&mut out, VisibleJson(formatter));
        value.serialize(&mut writer).expect("memory");
        String::from_utf8(out).expect("text")
    }

    proptest! {
        #[test]
        fn no_text_steers_a_terminal(text in any::<String>()) {
            prop_assert!(!visible(&text).contains(steers));
            prop_assert!(!visible_lines(&text).replace(['\n', '\t'], "").contains(steers));
            let mut styled = visible_styled(&text);
            for style in OWN_STYLES {
                styled = styled.replace(style, "");
            }
            prop_assert!(!styled.replace(['\n', '\t'], "").contains(steers));
        }

        #[test]
        fn json_keeps_its_values_and_steers_no_terminal(text in any::<String>(), key in any::<String>()) {
            let value = serde_json::json!({ key: [text, 1, {}, []] });
            let compact = json(CompactFormatter, &value);
            prop_assert!(!compact.contains(steers));
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&compact).expect("JSON"), value.clone());
            let pretty = json(PrettyFormatter::new(), &value);
            prop_assert!(!pretty.replace('\n', "").contains(steers));
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&pretty).expect("JSON"), value);
        }

        #[test]
        fn lines_are_made_visible_however_they_are_cut(text in any::<String>(), size in 1_usize..9) {
            let mut out = VisibleLines::new(Vec::new());
            for part in text.as_bytes().chunks(size) {
                out.write_all(part).expect("memory");
            }
            out.flush().expect("memory");
            prop_assert_eq!(String::from_utf8(out.out).expect("text"), visible_lines(&text));
        }
    }

    #[test]
    fn control_characters_of_both_sets_and_turns_of_direction_become_visible() {
        assert_eq!(
            visible("eth\u{1b}[2J\u{202e}0\u{9b}1m\u{7f}\n"),
            r"eth\u{1b}[2J\u{202e}0\u{9b}1m\u{7f}\u{a}"
        );
        assert_eq!(visible_lines("a\r\n\tb\u{8}"), "a\\u{d}\n\tb\\u{8}");
        let styled = "\u{1b}[31mred\u{1b}[0m \u{1b}[8mhidden\u{1b}]0;title\u{7}";
        assert_eq!(
            visible_styled(styled),
            "\u{1b}[31mred\u{1b}[0m \\u{1b}[8mhidden\\u{1b}]0;title\\u{7}"
        );
        let value = serde_json::json!("\u{9b}2J\u{202e}\u{7f}\u{1b}");
        assert_eq!(
            json(CompactFormatter, &value),
            r#""\u009b2J\u202e\u007f\u001b""#
        );
    }

    #[test]
    fn json_without_steering_characters_is_written_as_ever() {
        let value = serde_json::json!({ "a": [1, 2.5, "\u{e9}\n", null], "b": {}, "c": [] });
        let pretty = serde_json::to_string_pretty(&value).expect("JSON");
        assert_eq!(json(PrettyFormatter::new(), &value), pretty);
        assert_eq!(json(CompactFormatter, &value), value.to_string());
    }
}
