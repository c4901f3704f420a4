//! The greeting of a data connection, before its payload. The layout is linerate's own, all numbers big
//! endian: magic (4), version (4), token (16), flow (4). Read from untrusted peers, so nothing is trusted.

use linerate_model::protocol::Token;

/// The length of a greeting.
pub(crate) const GREETING_BYTES: usize = 28;

/// The listening end's answer to a valid greeting. On an invalid one it closes without an answer, so that a
/// port scanner learns nothing.
pub(crate) const ACCEPTED: u8 = 0x06;

/// Sent by both ends of every connection when all their threads are ready.
pub(crate) const READY: u8 = 0x52;

/// Sent by a receiving end that reads from now on.
pub(crate) const GO: u8 = 0x47;

const MAGIC: [u8; 4] = *b"LNRT";
const VERSION: u32 = 1;

/// The greeting of flow `flow`.
pub(crate) fn write(token: Token, flow: u32) -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..8].copy_from_slice(&VERSION.to_be_bytes());
    bytes[8..24].copy_from_slice(&token.0);
    bytes[24..].copy_from_slice(&flow.to_be_bytes());
    bytes
}

/// The flow that `bytes` greets for, when they carry our token and version.
pub(crate) fn read(bytes: &[u8; GREETING_BYTES], token: Token) -> Option<u32> {
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
