//! The RSS hash key, in ethtool(8) `hkey` syntax.

/// The maximum key length accepted; the longest known key has 52 bytes.
const BYTES_MAX: usize = 256;

/// A key in hexadecimal with colons, `6d:5a:56`.
pub fn key_words(key: &[u8]) -> String {
    let bytes: Vec<String> = key.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

/// Parses the text of [`key_words`]; the colons are optional.
pub fn parse_key(words: &str) -> Option<Vec<u8>> {
    let pairs: Vec<&[u8]> = if words.contains(':') {
        words.split(':').map(str::as_bytes).collect()
    } else {
        words.as_bytes().chunks(2).collect()
    };
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let byte = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
        _ => None,
    };
    let is_key = (1..=BYTES_MAX).contains(&pairs.len());
    is_key.then(|| pairs.into_iter().map(byte).collect())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_is_whole_bytes_with_colons_or_without() {
        assert_eq!(parse_key("6d:5A"), Some(vec![0x6d, 0x5a]));
        assert_eq!(parse_key("6d5a"), Some(vec![0x6d, 0x5a]));
        for wrong in [
            "", ":", "6", "6d:", "6d:5", "6d5", "+1:00", "xy", "6d 5a", "é",
        ] {
            assert_eq!(parse_key(wrong), None, "{wrong}");
        }
        assert_eq!(parse_key(&"00".repeat(BYTES_MAX + 1)), None);
    }

    proptest! {
        #[test]
        fn a_key_is_what_its_words_tell(key in proptest::collection::vec(any::<u8>(), 1..60)) {
            let words = key_words(&key);
            prop_assert_eq!(parse_key(&words.replace(':', "")), Some(key.clone()));
            prop_assert_eq!(parse_key(&words), Some(key));
        }

        #[test]
        fn no_words_panic(words in ".{0,20}") {
            let _ = parse_key(&words);
        }
    }
}
