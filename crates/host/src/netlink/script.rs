//! A kernel that says what it was told to say, for the fuzz targets and their tests: every reader of
//! netlink and of ethtool's ioctls can be asked without a machine.
//!
//! The bytes are worked off from the front. An exchange takes one byte, the number of its answers (of
//! which the lowest three bits count; 255 is a refusal); an answer takes one byte for its type, two for
//! its length, the low one first, and its body. An ioctl takes two bytes for a length and so much more.
//! What is not there is empty.

use super::error::Failure;
use super::socket::Answer;

const REFUSED: u8 = 255;
const ANSWERS_MASK: u8 = 7;

/// What is left to say.
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

    /// The answers of the next exchange.
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

    /// What the next ioctl puts at the head of `memory`.
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
