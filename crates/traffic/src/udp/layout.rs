//! The layout of datagrams in a thread's buffer: so many in a message, so many messages in a system call.

use linerate_model::workload::DatagramBatch;

use crate::sys::MESSAGES_MAX;

/// Maximum segments into which the kernel splits one message (`UDP_MAX_SEGMENTS`, include/linux/udp.h; 128 since
/// Linux 6.9).
const SEGMENTS_MAX: usize = 64;
/// The payload of the largest IPv4 datagram, which is also the maximum for GSO.
const MESSAGE_MAX: usize = 65_507;
/// What the kernel joins at most (`UDP_GRO`).
const JOINED_MAX: usize = 65_536;
/// More than this would only push each other out of the core's second cache level.
const BUFFER_MAX: usize = 256 * 1024;
/// Places begin at multiples of a cache line.
const LINE: usize = 64;

/// The plan of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) batch: DatagramBatch,
    /// The size of a datagram.
    pub(super) datagram: usize,
    /// The size of a message's place: when sending, exactly that of its datagrams.
    pub(super) stride: usize,
    /// Messages of one system call.
    pub(super) messages: usize,
}

impl Layout {
    /// The layout of a sender.
    pub(super) fn sending(batch: DatagramBatch, datagram: usize) -> Self {
        let in_message = match batch {
            DatagramBatch::Single | DatagramBatch::Mmsg => 1,
            DatagramBatch::Gso => (MESSAGE_MAX / datagram).clamp(1, SEGMENTS_MAX),
        };
        Self::of(batch, datagram, in_message * datagram)
    }

    /// The layout of a receiver. Each place is larger than a datagram, so that one that is too long is detected.
    pub(super) fn receiving(batch: DatagramBatch, datagram: usize) -> Self {
        let stride = match batch {
            DatagramBatch::Single | DatagramBatch::Mmsg => (datagram + 1).next_multiple_of(LINE),
            DatagramBatch::Gso => JOINED_MAX,
        };
        Self::of(batch, datagram, stride)
    }

    fn of(batch: DatagramBatch, datagram: usize, stride: usize) -> Self {
        let messages = match batch {
            DatagramBatch::Single => 1,
            DatagramBatch::Mmsg | DatagramBatch::Gso => {
                (BUFFER_MAX / stride).clamp(1, MESSAGES_MAX)
            }
        };
        Self {
            batch,
            datagram,
            stride,
            messages,
        }
    }

    /// Datagrams of one system call of a sender.
    pub(super) fn datagrams(self) -> u64 {
        (self.buffer_bytes() / self.datagram) as u64
    }

    /// The size of the buffer.
    pub(super) fn buffer_bytes(self) -> usize {
        self.stride * self.messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_is_longer_than_the_kernel_takes_and_no_call_has_too_many() {
        for batch in [
            DatagramBatch::Single,
            DatagramBatch::Mmsg,
            DatagramBatch::Gso,
        ] {
            for datagram in [24, 25, 1448, 9000, 32_754, 65_507] {
                let sending = Layout::sending(batch, datagram);
                assert_eq!(sending.stride % datagram, 0);
                assert!(sending.stride <= MESSAGE_MAX, "{sending:?}");
                assert!(sending.stride / datagram <= SEGMENTS_MAX, "{sending:?}");
                let receiving = Layout::receiving(batch, datagram);
                assert!(receiving.stride > datagram, "{receiving:?}");
                for layout in [sending, receiving] {
                    assert!((1..=MESSAGES_MAX).contains(&layout.messages), "{layout:?}");
                }
            }
        }
        for datagram in [24, 1448, 32_754, 65_507] {
            let cut = Layout::sending(DatagramBatch::Gso, datagram);
            let whole = Layout::sending(DatagramBatch::Mmsg, datagram);
            // A sender may have to change from one to the other while sending.
            assert!(whole.buffer_bytes() <= cut.buffer_bytes(), "{cut:?}");
        }
        assert_eq!(Layout::sending(DatagramBatch::Single, 1448).datagrams(), 1);
        assert_eq!(Layout::sending(DatagramBatch::Mmsg, 1448).datagrams(), 64);
        assert_eq!(Layout::sending(DatagramBatch::Gso, 1448).stride, 45 * 1448);
    }
}
