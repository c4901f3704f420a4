//! A scripted kernel for the fuzz targets and their tests: every reader of netlink and of ethtool's ioctls can run
//! without a machine.
//!
//! The bytes are consumed from the front. An exchange takes one byte, the number of its responses (of which the
//! lowest three bits count; 255 is an error); a response takes one byte for its type, two for its length, low byte
//! first, and its body. An ioctl takes two bytes for a length and that many more. Missing bytes count as empty.

use super::error::Failure;
use super::socket::Answer;

const REFUSED: u8 = 255;
const ANSWERS_MASK: u8 = 7;

/// The remaining bytes.
#[derive(Debug, Clone)]
pub(super) struct Script {
    bytes: Vec<u8>,
    at: usize,
}

impl Script {
    pub(super) fn new(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.to_vec(),
            at: 0,
        }
    }

    /// The responses of the next exchange.
    pub(super) fn answers(&mut self) -> Result<Vec<Answer>, Failure> {
        match self.byte() {
            REFUSED => Err(refusal()),
            count => Ok((0..count & ANSWERS_MASK)
                .map(|_| Answer {
                    kind: self.byte().into(),
                    body: self.body(),
                })
                .collect()),
        }
    }

    /// Writes the next ioctl's response at the start of `memory`.
    pub(super) fn fill(&mut self, memory: &mut [u8]) -> Result<(), Failure> {
        let said = self.body();
        if said.is_empty() {
            return Err(refusal());
        }
        for (to, from) in memory.iter_mut().zip(said) {
            *to = from;
        }
        Ok(())
    }

    fn byte(&mut self) -> u8 {
        let byte = self.bytes.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        byte
    }

    fn body(&mut self) -> Vec<u8> {
        let length = u16::from_le_bytes([self.byte(), self.byte()]);
        let left = self.bytes.get(self.at..).unwrap_or_default();
        let body = left.get(..usize::from(length)).unwrap_or(left).to_vec();
        self.at += body.len();
        body
    }
}

fn refusal() -> Failure {
    Failure::Kernel {
        errno: libc::EOPNOTSUPP,
        message: None,
    }
}
