//! What each datagram begins with, 24 bytes, all numbers big endian: the flow's secret (8), its place in
//! the sequence (8), when it was handed to the kernel (8; nanoseconds of the sender's monotonic clock,
//! read once for each batch).

/// The length of a header, and of the smallest datagram.
pub(super) const HEADER_BYTES: usize = 24;

/// The head of one datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) secret: u64,
    pub(super) sequence: u64,
    pub(super) sent_ns: u64,
}

impl Header {
    /// Writes it at the start of `datagram`, which must be large enough.
    #[inline]
    pub(super) fn write(self, datagram: &mut [u8]) {
        datagram[..8].copy_from_slice(&self.secret.to_be_bytes());
        datagram[8..16].copy_from_slice(&self.sequence.to_be_bytes());
        datagram[16..HEADER_BYTES].copy_from_slice(&self.sent_ns.to_be_bytes());
    }

    /// Reads it from the start of `datagram`; nothing when that is too short to have one.
    #[inline]
    pub(super) fn read(datagram: &[u8]) -> Option<Self> {
        let (words, _) = datagram.get(..HEADER_BYTES)?.as_chunks::<8>();
        Some(Self {
            secret: u64::from_be_bytes(words[0]),
            sequence: u64::from_be_bytes(words[1]),
            sent_ns: u64::from_be_bytes(words[2]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_as_it_was_written_and_a_stump_does_not() {
        let header = Header {
            secret: 0x0123_4567_89AB_CDEF,
            sequence: 1 << 40,
            sent_ns: 23,
        };
        let mut datagram = [0xFF; 30];
        header.write(&mut datagram);
        assert_eq!(Header::read(&datagram), Some(header));
        assert_eq!(datagram[24..], [0xFF; 6]);
        assert_eq!(Header::read(&datagram[..23]), None);
    }
}
