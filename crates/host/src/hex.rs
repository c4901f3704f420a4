//! Binary data in a captured host: `hex:` and two digits for each byte.

const MARK: &str = "hex:";

/// Bytes as text.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or('0');
    let digits = bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]);
    MARK.chars().chain(digits).collect()
}

/// The bytes that [`to_hex`] wrote.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .strip_prefix(MARK)?
        .chars()
        .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    let byte = |pair: &[u8]| pair.iter().fold(0, |byte, digit| byte << 4 | digit);
    Some(digits.chunks_exact(2).map(byte).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_survive_and_no_text_panics(bytes: Vec<u8>, text in "(hex:)?[0-9a-f]{0,9}.{0,6}") {
            prop_assert_eq!(from_hex(&to_hex(&bytes)), Some(bytes));
            let _ = from_hex(&text);
        }
    }
}
