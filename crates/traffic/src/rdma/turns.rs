//! The control messages by which the two ends of a thread agree on each size.

use crate::TrafficError;
use crate::tcp::words::{next_words, tell};
use crate::trial::{DataThread, Start};

pub(super) const BYTES: usize = 16;

/// A control message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// Messages that do not count are next, each when the one before has ended.
    Alone,
    /// The size of this index is next.
    Turn { index: u32 },
    /// Receives are posted.
    Ready,
    /// So many messages were sent.
    Done { messages: u64 },
    /// They were taken.
    Taken,
    /// A round of messages is next that will be compared: the first of them has this number.
    Round { first: u64 },
    /// It was sent: compare.
    Compare { messages: u64 },
    /// Every byte was right.
    Right,
    /// There is nothing more.
    End,
}

impl Word {
    fn bytes(self) -> [u8; BYTES] {
        let (kind, index, count) = match self {
            Self::Alone => (b'O', 0, 0),
            Self::Turn { index } => (b'T', index, 0),
            Self::Ready => (b'R', 0, 0),
            Self::Done { messages } => (b'D', 0, messages),
            Self::Taken => (b'A', 0, 0),
            Self::Round { first } => (b'N', 0, first),
            Self::Compare { messages } => (b'C', 0, messages),
            Self::Right => (b'G', 0, 0),
            Self::End => (b'E', 0, 0),
        };
        let mut bytes = [0; BYTES];
        bytes[0] = kind;
        bytes[4..8].copy_from_slice(&index.to_be_bytes());
        bytes[8..].copy_from_slice(&count.to_be_bytes());
        bytes
    }

    pub(super) fn of(bytes: [u8; BYTES]) -> Option<Self> {
        let index = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let count = crate::tcp::words::number(&bytes[8..]);
        Some(match bytes[0] {
            b'O' => Self::Alone,
            b'T' => Self::Turn { index },
            b'R' => Self::Ready,
            b'D' => Self::Done { messages: count },
            b'A' => Self::Taken,
            b'N' => Self::Round { first: count },
            b'C' => Self::Compare { messages: count },
            b'G' => Self::Right,
            b'E' => Self::End,
            _ => return None,
        })
    }
}

/// Sends `word` to the remote end of this thread.
pub(super) fn say(data_thread: &DataThread<'_>, word: Word) -> Result<(), TrafficError> {
    tell(data_thread.flows[0].flow, &word.bytes())
}

/// The next control message of the remote end.
pub(super) fn hear(data_thread: &DataThread<'_>, start: Start) -> Result<Word, TrafficError> {
    let flow = data_thread.flows[0].flow;
    match next_words::<BYTES>(flow, &data_thread.shared_state.abort)? {
        Some(bytes) => Word::of(bytes).ok_or(TrafficError::PeerGarbled { flow: flow.number }),
        None => Err(gone(data_thread, start)),
    }
}

/// The remote end sent an unexpected control message.
pub(super) fn garbled(data_thread: &DataThread<'_>) -> TrafficError {
    TrafficError::PeerGarbled {
        flow: data_thread.flows[0].flow.number,
    }
}

/// The remote end ended its side before its time.
pub(super) fn gone(data_thread: &DataThread<'_>, start: Start) -> TrafficError {
    TrafficError::PeerClosed {
        flow: data_thread.flows[0].flow.number,
        after: start.at.elapsed(),
    }
}

/// Sends `word` and waits for `answer`.
pub(super) fn agree(
    data_thread: &DataThread<'_>,
    start: Start,
    word: Word,
    answer: Word,
) -> Result<(), TrafficError> {
    say(data_thread, word)?;
    if hear(data_thread, start)? == answer {
        return Ok(());
    }
    Err(garbled(data_thread))
}

/// Signals that there is nothing more.
pub(super) fn end(data_thread: &DataThread<'_>) -> Result<(), TrafficError> {
    say(data_thread, Word::End)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_word_or_none(mut bytes: [u8; BYTES], known in 0usize..16) {
            bytes[0] = *b"OTRDANCGE".get(known).unwrap_or(&bytes[0]);
            if let Some(word) = Word::of(bytes) {
                prop_assert_eq!(Word::of(word.bytes()), Some(word));
            }
        }
    }

    #[test]
    fn words_read_back_as_they_were_written() {
        for word in [
            Word::Alone,
            Word::Turn { index: 22 },
            Word::Ready,
            Word::Done { messages: 1 << 50 },
            Word::Taken,
            Word::Round { first: 7 },
            Word::Compare { messages: 128 },
            Word::Right,
            Word::End,
        ] {
            assert_eq!(Word::of(word.bytes()), Some(word));
        }
        assert_eq!(Word::of([0; BYTES]), None);
    }
}
