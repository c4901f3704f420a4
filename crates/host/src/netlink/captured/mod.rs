//! Messages captured from a kernel (Linux 6.18, x86-64), for tests: one hexadecimal file per datagram, including
//! headers, from a veth pair in a namespace and from a virtio NIC.

use super::message::parse_messages;
use super::socket::Answer;

/// The bytes of a captured datagram, or of any hexadecimal text.
pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
    digits
        .chunks_exact(2)
        .map(|pair| u8::try_from(pair[0] << 4 | pair[1]).expect("two digits are a byte"))
        .collect()
}

/// The messages in a captured datagram.
pub(super) fn answers(hex: &str) -> Vec<Answer> {
    let bytes = bytes(hex);
    let messages = parse_messages(&bytes).expect("the kernel's own bytes");
    messages
        .iter()
        .map(|message| Answer {
            kind: message.kind,
            body: message.body.to_vec(),
        })
        .collect()
}
