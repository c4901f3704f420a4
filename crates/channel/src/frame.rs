//! What goes through the encrypted channel: frames of a kind (1 byte), a length (2 bytes, big endian) and that many bytes.
//!
//! ```text
//! calling end                     listening end
//!   Pair(token)              -->                        the host's key becomes a known one
//!                            <--    Ready, or Refused(exit code, why)
//! or
//!   Open                     -->                        only from a known key
//!                            <--    Ready, or Refused(exit code, why)
//!   Input.. InputEnd         -->                        standard input of the agent's process
//!                            <--    Output.. Errors..   its standard output and error
//!                            <--    Exit(exit code)
//! ```

/// The maximum length of a frame's payload: with its header it fits into one TLS record (RFC 8446, section 5.1).
pub const PAYLOAD_BYTES_MAX: usize = (16 << 10) - HEADER_BYTES;
const HEADER_BYTES: usize = 3;

/// Kinds of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Bytes for standard input.
    Input = 1,
    /// The end of standard input.
    InputEnd = 2,
    /// Bytes of standard output.
    Output = 3,
    /// Bytes of standard error.
    Errors = 4,
    /// The process has ended: its exit code, 1 byte.
    Exit = 5,
    /// Make the caller's key a known one: a token of 16 bytes.
    Pair = 6,
    /// Start a session.
    Open = 7,
    /// What was asked for is done.
    Ready = 8,
    /// It is refused: an exit code, 1 byte, and the reason in UTF-8.
    Refused = 9,
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Input,
        Self::InputEnd,
        Self::Output,
        Self::Errors,
        Self::Exit,
        Self::Pair,
        Self::Open,
        Self::Ready,
        Self::Refused,
    ];

    fn of(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// The lengths that a payload of this kind may have.
    fn lengths(self) -> std::ops::RangeInclusive<usize> {
        match self {
            Self::Input | Self::Output | Self::Errors => 1..=PAYLOAD_BYTES_MAX,
            Self::InputEnd | Self::Open | Self::Ready => 0..=0,
            Self::Exit => 1..=1,
            Self::Pair => 16..=16,
            Self::Refused => 1..=1_024,
        }
    }
}

/// A received frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its kind.
    pub kind: Kind,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// What arrived is no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// No such kind.
    #[error("frame of unknown kind {0}")]
    Kind(u8),
    /// A length that the kind cannot have.
    #[error("frame of kind {kind:?} with {length} bytes")]
    Length {
        /// The kind.
        kind: Kind,
        /// The length in its header.
        length: usize,
    },
}

/// Appends a frame to `out`. The payload has a length that its kind may have.
pub fn encode(kind: Kind, payload: &[u8], out: &mut Vec<u8>) {
    debug_assert!(kind.lengths().contains(&payload.len()), "{kind:?}");
    let length = u16::try_from(payload.len()).unwrap_or(u16::MAX);
    out.push(kind as u8);
    out.extend(length.to_be_bytes());
    out.extend(payload);
}

/// Splits received bytes into frames. A header that no frame can have is an error before its payload is awaited.
#[derive(Debug, Default)]
pub struct Decoder {
    held: Vec<u8>,
    /// How much of `held` was returned already.
    taken: usize,
}

impl Decoder {
    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.held.drain(..self.taken);
        self.taken = 0;
        self.held.extend_from_slice(bytes);
    }

    /// The next whole frame.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let rest = &self.held[self.taken..];
        let Some(header) = rest.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let kind = Kind::of(header[0]).ok_or(FrameError::Kind(header[0]))?;
        let length = usize::from(u16::from_be_bytes([header[1], header[2]]));
        if !kind.lengths().contains(&length) {
            return Err(FrameError::Length { kind, length });
        }
        let Some(payload) = rest.get(HEADER_BYTES..HEADER_BYTES + length) else {
            return Ok(None);
        };
        let payload = payload.to_vec();
        self.taken += HEADER_BYTES + length;
        Ok(Some(Frame { kind, payload }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(decoder: &mut Decoder) -> Vec<Frame> {
        std::iter::from_fn(|| decoder.next_frame().expect("frames")).collect()
    }

    #[test]
    fn a_header_that_no_frame_can_have_is_refused_before_its_payload() {
        for (header, error) in [
            ([0, 0, 0], FrameError::Kind(0)),
            ([0x16, 3, 1], FrameError::Kind(0x16)),
            (
                [6, 0, 17],
                FrameError::Length {
                    kind: Kind::Pair,
                    length: 17,
                },
            ),
            (
                [1, 0x40, 0],
                FrameError::Length {
                    kind: Kind::Input,
                    length: 16_384,
                },
            ),
            (
                [1, 0, 0],
                FrameError::Length {
                    kind: Kind::Input,
                    length: 0,
                },
            ),
        ] {
            let mut decoder = Decoder::default();
            decoder.push(&header);
            assert_eq!(decoder.next_frame(), Err(error));
        }
    }

    #[test]
    fn of_frames_that_are_cut_at_any_byte_only_the_whole_ones_come_out() {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for kind in Kind::ALL {
            let payload = vec![7; *kind.lengths().start()];
            encode(kind, &payload, &mut bytes);
            ends.push(bytes.len());
        }
        for length in 0..=bytes.len() {
            let mut decoder = Decoder::default();
            decoder.push(&bytes[..length]);
            let whole = ends.iter().filter(|end| **end <= length).count();
            assert_eq!(all(&mut decoder).len(), whole, "{length} bytes");
        }
    }

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..300), 0..9),
            cut in 1usize..50,
        ) {
            let mut bytes = Vec::new();
            for payload in &payloads {
                encode(Kind::Output, payload, &mut bytes);
            }
            encode(Kind::InputEnd, &[], &mut bytes);
            let mut decoder = Decoder::default();
            let mut seen = Vec::new();
            for piece in bytes.chunks(cut) {
                decoder.push(piece);
                seen.extend(all(&mut decoder));
            }
            let last = seen.pop().map(|frame| frame.kind);
            prop_assert_eq!(last, Some(Kind::InputEnd));
            prop_assert_eq!(seen.into_iter().map(|frame| frame.payload).collect::<Vec<_>>(), payloads);
        }

        #[test]
        fn no_bytes_panic_and_none_are_held_beyond_a_frame(
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
        ) {
            let mut decoder = Decoder::default();
            decoder.push(&bytes);
            while let Ok(Some(frame)) = decoder.next_frame() {
                prop_assert!(frame.kind.lengths().contains(&frame.payload.len()));
            }
        }
    }
}
