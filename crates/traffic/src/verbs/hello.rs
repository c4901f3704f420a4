//! The description of a queue pair that an end sends over the flow's companion.

use std::time::Instant;

use linerate_verbs::{Gid, Remote};

use super::thread_device::Fresh;
use crate::tcp::words::{await_words, tell};
use crate::trial::{DataThread, ThreadFlow};
use crate::{Abort, TrafficError};

const MAGIC: [u8; 4] = *b"LNRV";
const BYTES: usize = 80;

/// One end of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) queue_pair: u32,
    /// Of the first packet it sends.
    pub(super) packet_number: u32,
    /// What datagrams to it must carry.
    pub(super) key: u32,
    pub(super) gid: Gid,
    pub(super) lid: u16,
    /// The MTU of its port, or the smaller one that was requested.
    pub(super) mtu: u32,
    /// Its memory.
    pub(super) memory: Remote,
    pub(super) memory_bytes: u64,
    /// Reads and atomics that it can have in flight, and answer.
    pub(super) reads_asked: u8,
    pub(super) reads_answered: u8,
    /// Where its connection manager listens; 0 when it calls, or when neither listens.
    pub(super) port: u16,
    /// What a call must carry.
    pub(super) secret: u64,
}

/// Reads numbers off the start of a text.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn number<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let (first, rest) = self.0.split_at(N);
        bytes.copy_from_slice(first);
        self.0 = rest;
        bytes
    }
}

impl Hello {
    fn bytes(self) -> [u8; BYTES] {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend(MAGIC);
        bytes.extend(self.queue_pair.to_be_bytes());
        bytes.extend(self.packet_number.to_be_bytes());
        bytes.extend(self.key.to_be_bytes());
        bytes.extend(self.gid.0);
        bytes.extend(self.lid.to_be_bytes());
        bytes.extend(self.mtu.to_be_bytes());
        bytes.extend(self.memory.address.to_be_bytes());
        bytes.extend(self.memory.key.to_be_bytes());
        bytes.extend(self.memory_bytes.to_be_bytes());
        bytes.extend([self.reads_asked, self.reads_answered]);
        bytes.extend(self.port.to_be_bytes());
        bytes.extend(self.secret.to_be_bytes());
        bytes.resize(BYTES, 0);
        let mut whole = [0; BYTES];
        whole.copy_from_slice(&bytes);
        whole
    }

    fn read(bytes: &[u8; BYTES]) -> Option<Self> {
        let mut from = Reader(bytes);
        let magic: [u8; 4] = from.number();
        let hello = Self {
            queue_pair: u32::from_be_bytes(from.number()),
            packet_number: u32::from_be_bytes(from.number()),
            key: u32::from_be_bytes(from.number()),
            gid: Gid(from.number()),
            lid: u16::from_be_bytes(from.number()),
            mtu: u32::from_be_bytes(from.number()),
            memory: Remote {
                address: u64::from_be_bytes(from.number()),
                key: u32::from_be_bytes(from.number()),
            },
            memory_bytes: u64::from_be_bytes(from.number()),
            reads_asked: from.number::<1>()[0],
            reads_answered: from.number::<1>()[0],
            port: u16::from_be_bytes(from.number()),
            secret: u64::from_be_bytes(from.number()),
        };
        let valid = matches!(hello.mtu, 256 | 512 | 1024 | 2048 | 4096);
        (magic == MAGIC && valid).then_some(hello)
    }

    /// Sends it on the companion of `one`.
    pub(super) fn tell(self, one: &ThreadFlow<'_>) -> Result<(), TrafficError> {
        tell(one.flow, &self.bytes())
    }

    /// Waits for the remote end's.
    pub(super) fn await_from(
        one: &ThreadFlow<'_>,
        deadline: Instant,
        abort: &Abort,
    ) -> Result<Self, TrafficError> {
        let flow = one.flow;
        let bytes = await_words(flow, deadline, abort)?;
        Self::read(&bytes).ok_or(TrafficError::PeerGarbled { flow: flow.number })
    }
}

/// One byte from each end when its queue pairs can receive: nothing may be sent before.
pub(super) fn meet(
    data_thread: &DataThread<'_>,
    fresh: &[Fresh<'_>],
    deadline: Instant,
) -> Result<(), TrafficError> {
    const CONNECTED: u8 = 0x43;
    let flows = || fresh.iter().map(|one| one.one.flow);
    for flow in flows() {
        tell(flow, &[CONNECTED])?;
    }
    for flow in flows() {
        let [heard] = await_words(flow, deadline, &data_thread.shared_state.abort)?;
        if heard != CONNECTED {
            let flow = flow.number;
            return Err(TrafficError::PeerGarbled { flow });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Where the MTU is.
    const MTU: std::ops::Range<usize> = 34..38;

    proptest! {
        #[test]
        fn any_bytes_are_a_hello_or_none(
            bytes in proptest::collection::vec(any::<u8>(), BYTES),
            mtu in proptest::option::of(8u32..13),
        ) {
            let mut whole = [0; BYTES];
            whole.copy_from_slice(&bytes);
            prop_assert_eq!(Hello::read(&whole), None);
            whole[..4].copy_from_slice(&MAGIC);
            if let Some(power) = mtu {
                whole[MTU].copy_from_slice(&(1u32 << power).to_be_bytes());
            }
            let hello = Hello::read(&whole);
            prop_assert!(hello.is_some() || mtu.is_none());
            if let Some(hello) = hello {
                prop_assert_eq!(Hello::read(&hello.bytes()), Some(hello));
            }
        }
    }

    #[test]
    fn a_hello_reads_back_as_it_was_written_and_others_are_refused() {
        let hello = Hello {
            queue_pair: 0x12_3456,
            packet_number: 0xAB_CDEF,
            key: 7,
            gid: Gid([9; 16]),
            lid: 3,
            mtu: 1024,
            memory: Remote {
                address: u64::MAX - 5,
                key: 77,
            },
            memory_bytes: 1 << 40,
            reads_asked: 16,
            reads_answered: 1,
            port: 4_791,
            secret: 1 << 63,
        };
        assert_eq!(Hello::read(&hello.bytes()), Some(hello));
        assert_eq!(Hello::read(&Hello { mtu: 1500, ..hello }.bytes()), None);
        assert_eq!(Hello::read(&[0; BYTES]), None);
    }
}
