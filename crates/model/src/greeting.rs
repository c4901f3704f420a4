//! The greeting of a data connection, before its payload. The layout is linerate's own, all numbers big
//! endian: magic (4), version (4), token (16), flow (4). Read from untrusted peers, so nothing is trusted.

use crate::protocol::Token;

/// The length of a greeting.
pub const GREETING_BYTES: usize = 28;

/// The first byte of a greeting. A TLS connection begins with another one (RFC 8446, section 5.1: 22).
pub const FIRST_BYTE: u8 = MAGIC[0];

const MAGIC: [u8; 4] = *b"LNRT";
const VERSION: u32 = 1;

/// The greeting of flow `flow`.
pub fn write(token: Token, flow: u32) -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..8].copy_from_slice(&VERSION.to_be_bytes());
    bytes[8..24].copy_from_slice(&token.0);
    bytes[24..].copy_from_slice(&flow.to_be_bytes());
    bytes
}

/// The token that `bytes` present; `None` if they are no greeting. It is not verified.
pub fn token_in(bytes: &[u8; GREETING_BYTES]) -> Option<Token> {
    let version = VERSION.to_be_bytes();
    let is_greeting = bytes.starts_with(&MAGIC) && bytes[4..8] == version;
    let token = bytes[8..24].try_into().ok()?;
    is_greeting.then_some(Token(token))
}

/// The flow that `bytes` greets for, when they carry our token and version.
pub fn read(bytes: &[u8; GREETING_BYTES], token: Token) -> Option<u32> {
    let expected = write(token, 0);
    // Every byte is compared, so that the time taken does not reveal how much was correct.
    let difference = expected[..24]
        .iter()
        .zip(&bytes[..24])
        .fold(0, |difference, (a, b)| difference | (a ^ b));
    let flow = u32::from_be_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]);
    (difference == 0).then_some(flow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_reads_back_as_it_was_written() {
        let token = Token([7; 16]);
        assert_eq!(read(&write(token, 1023), token), Some(1023));
        assert_eq!(token_in(&write(token, 1023)), Some(token));
        assert_eq!(token_in(&[0; GREETING_BYTES]), None);
    }

    #[test]
    fn one_wrong_bit_before_the_flow_is_refused() {
        let token = Token([7; 16]);
        for bit in 0..24 * 8 {
            let mut bytes = write(token, 5);
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&bytes, token), None, "bit {bit}");
        }
    }
}
