//! Reading HTTP/1.1 (RFC 9112): requests strictly, as a public server must; responses with
//! the tolerance that a client needs. Both work on partial input, and never read
//! more than the size limit of a head.

pub(crate) mod request;
pub(crate) mod response;

/// The next line of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line<'a> {
    /// Without its end.
    Whole(&'a [u8]),
    /// The end has not come yet.
    Partial(&'a [u8]),
    /// It ends in a line feed alone, which only the tolerant take (RFC 9112, 2.2).
    Bad,
}

/// A head, line by line.
#[derive(Debug)]
struct Lines<'a> {
    data: &'a [u8],
    at: usize,
    strict: bool,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Line<'a> {
        let rest = &self.data[self.at..];
        let Some(end) = rest.iter().position(|&byte| byte == b'\n') else {
            return Line::Partial(rest);
        };
        self.at += end + 1;
        let line = &rest[..end];
        match line.strip_suffix(b"\r") {
            Some(line) => Line::Whole(line),
            None if self.strict => Line::Bad,
            None => Line::Whole(line),
        }
    }
}

/// The characters of a token (RFC 9110, 5.6.2), such as a method or a field's name.
fn is_token(text: &[u8]) -> bool {
    !text.is_empty()
        && text.iter().all(|byte| {
            byte.is_ascii_alphanumeric()
                || matches!(
                    byte,
                    b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.'
                )
                || matches!(byte, b'^' | b'_' | b'`' | b'|' | b'~')
        })
}

/// A field's name and its value without the white space around it; `None` of what is no field.
fn field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    // White space before the colon, or at the line's start, has been used to smuggle (RFC 9112, 5.1, 5.2).
    is_token(name).then(|| (name, trim(value)))
}

fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Whether a list such as `Connection`'s has `word`.
fn has_word(list: &[u8], word: &[u8]) -> bool {
    list.split(|&byte| byte == b',')
        .any(|one| trim(one).eq_ignore_ascii_case(word))
}

/// A `Content-Length`: digits alone, no more than 64 bits have.
fn length(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0u64, |sum, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_has_a_name_without_white_space() {
        assert_eq!(field(b"Host:  far \t"), Some((&b"Host"[..], &b"far"[..])));
        assert_eq!(field(b"Empty:"), Some((&b"Empty"[..], &b""[..])));
        for line in [&b"Host : far"[..], b" Host: far", b"Host", b": far", b""] {
            assert_eq!(field(line), None, "{line:?}");
        }
    }

    #[test]
    fn a_length_is_digits_and_fits_64_bits() {
        assert_eq!(length(b"0"), Some(0));
        assert_eq!(length(b"18446744073709551615"), Some(u64::MAX));
        for text in [
            &b""[..],
            b"18446744073709551616",
            b"-1",
            b"+1",
            b"1 1",
            b"0x1",
        ] {
            assert_eq!(length(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_word_is_found_in_a_list_whatever_its_case() {
        assert!(has_word(b"upgrade, Keep-Alive", b"keep-alive"));
        assert!(!has_word(b"keep-alive-not", b"keep-alive"));
    }
}
