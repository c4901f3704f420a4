//! Text of a remote end without what a terminal might obey. Whatever text is in a reply may reach a terminal (an error, a
//! host's name, a sysctl), so it is cleaned at the one place that all of it comes in by, before it is parsed.

/// The longest text of a remote end that is taken as it is: the kernel's own end at a page, lists of CPUs
/// are a few times that.
const TEXT_CHARS_MAX: usize = 32 << 10;

/// Replaces a character that a terminal might obey.
const REPLACEMENT: &str = "\u{fffd}";

/// Whether a terminal might obey the character. Tabs and line ends are in the kernel's own texts.
fn harmful(c: char) -> bool {
    c.is_control() && !matches!(c, '\t' | '\n')
}

/// `text` with each character that a terminal might obey replaced by the replacement character.
pub fn printable(text: &str) -> String {
    // ssh ends its lines for a terminal in raw mode.
    text.replace("\r\n", "\n").replace(harmful, REPLACEMENT)
}

/// The same for each text in a line of JSON, keys too, escaped or not; and none longer than [`TEXT_CHARS_MAX`].
pub(super) fn printable_json(json: &[u8]) -> Vec<u8> {
    let mut clean = Vec::with_capacity(json.len());
    let mut rest = json;
    while let Some(begin) = rest.iter().position(|&byte| byte == b'"') {
        clean.extend_from_slice(&rest[..=begin]);
        rest = copy_text(&rest[begin + 1..], &mut clean);
    }
    clean.extend_from_slice(rest);
    clean
}

/// Copies a text up to the quote that ends it, and returns what is after that.
fn copy_text<'a>(mut rest: &'a [u8], clean: &mut Vec<u8>) -> &'a [u8] {
    let mut chars = 0;
    loop {
        if let [b'"', after @ ..] = rest {
            if chars > TEXT_CHARS_MAX {
                clean.extend_from_slice(b"...");
            }
            clean.push(b'"');
            return after;
        }
        let (length, kept) = next_char(rest);
        if length == 0 {
            return rest;
        }
        let (char, after) = rest.split_at(length.min(rest.len()));
        chars += 1;
        if chars <= TEXT_CHARS_MAX {
            clean.extend_from_slice(match kept {
                Treatment::AsItIs => char,
                Treatment::Replaced => REPLACEMENT.as_bytes(),
                Treatment::Dropped => b"",
            });
        }
        rest = after;
    }
}

/// What becomes of a character.
enum Treatment {
    AsItIs,
    Replaced,
    Dropped,
}

/// The length of the character that a text in JSON continues with, and its replacement.
fn next_char(text: &[u8]) -> (usize, Treatment) {
    match text {
        [] => (0, Treatment::AsItIs),
        [b'\\', b'r', b'\\', b'n', ..] => (2, Treatment::Dropped),
        [b'\\', b'r' | b'b' | b'f', ..] | [0xc2, 0x80..=0x9f, ..] => (2, Treatment::Replaced),
        [b'\\', b'u', after @ ..] => {
            let code = after.get(..4).and_then(|hex| std::str::from_utf8(hex).ok());
            match code.and_then(|hex| u32::from_str_radix(hex, 16).ok()) {
                // Both halves of a pair, so that none is cut off.
                Some(0xd800..=0xdbff) if after[4..].starts_with(b"\\u") => (12, Treatment::AsItIs),
                Some(code) if char::from_u32(code).is_some_and(harmful) => (6, Treatment::Replaced),
                _ => (6, Treatment::AsItIs),
            }
        }
        [b'\\', ..] => (2, Treatment::AsItIs),
        [0x7f, ..] => (1, Treatment::Replaced),
        [_, after @ ..] => {
            let more = after
                .iter()
                .take(3)
                .take_while(|&&byte| byte & 0xc0 == 0x80);
            (1 + more.count(), Treatment::AsItIs)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cleaned(json: &str) -> Value {
        serde_json::from_slice(&printable_json(json.as_bytes())).expect("it is JSON")
    }

    #[test]
    fn what_a_far_end_says_cannot_steer_the_terminal() {
        let text = r#"{"a\u0007b":["\u001b[2J\u009B1m\tway\n","\r\n\r\b\f","\\u001b \"\\"]}"#;
        let after = json!({ "a\u{fffd}b": [
            "\u{fffd}[2J\u{fffd}1m\tway\n", "\n\u{fffd}\u{fffd}\u{fffd}", "\\u001b \"\\"
        ]});
        assert_eq!(cleaned(text), after);
        let raw = "[\"\u{9b}1m\u{7f}\u{a0}\u{20ac}\u{1f600} \\ud83d\\ude00\"]";
        let after = "\u{fffd}1m\u{fffd}\u{a0}\u{20ac}\u{1f600} \u{1f600}";
        assert_eq!(cleaned(raw), json!([after]));
        assert_eq!(printable("one\r\ntwo\rthree"), "one\ntwo\u{fffd}three");
    }

    #[test]
    fn a_text_is_cut_between_two_characters() {
        for char in ["\u{e9}", "\\ud83d\\ude00", "\\n", "\u{1f600}", "\\u001b"] {
            let whole = cleaned(&format!("[\"{}\"]", char.repeat(TEXT_CHARS_MAX)));
            let cut = cleaned(&format!("[\"{}\",1]", char.repeat(TEXT_CHARS_MAX + 1)));
            let whole = whole[0].as_str().expect("text");
            assert_eq!(whole.chars().count(), TEXT_CHARS_MAX);
            assert_eq!(cut, json!([format!("{whole}..."), 1]));
        }
    }

    #[test]
    fn what_is_no_json_is_copied_without_a_panic() {
        for text in [
            "\"",
            "\"\\",
            "\"\\u",
            "\"\\ud83d\\u",
            "\"\\u12\u{e9}\"",
            "",
            "no",
            "\"\u{e9}",
        ] {
            let _ = printable_json(text.as_bytes());
        }
        for byte in 0..=u8::MAX {
            let _ = printable_json(&[b'"', b'\\', byte, b'"', byte]);
        }
    }
}
