//! Bytes as hexadecimal text: the kernel's options in a description of a host.

use super::error::Failure;

pub(super) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 0xf)]);
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(*byte)])
        .collect()
}

pub(super) fn from_hex(text: &str) -> Result<Vec<u8>, Failure> {
    let wrong = || Failure::BadInput("the qdisc's options are not hexadecimal bytes".to_owned());
    let nibble = |digit: u8| char::from(digit).to_digit(16).ok_or_else(wrong);
    if !text.len().is_multiple_of(2) {
        return Err(wrong());
    }
    text.as_bytes()
        .chunks_exact(2)
        .map(|pair| {
            let byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
            u8::try_from(byte).map_err(|_| wrong())
        })
        .collect()
}
