//! The content of what is checked: every repetition of every flow has its own, and so has every place of a
//! stream; computed at both ends, so that neither a changed byte nor an old buffer passes for the right one.

use crate::TrafficError;

const WORD: usize = size_of::<u64>();

/// A byte that is not the one it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wrong {
    at: usize,
    expected: u8,
    found: u8,
}

impl Wrong {
    pub(crate) fn on(self, flow: u32, repetition: u64) -> TrafficError {
        TrafficError::WrongByte {
            flow,
            repetition,
            at: self.at as u64,
            expected: self.expected,
            found: self.found,
        }
    }

    /// The same for a stream, whose compared part begins with byte `offset`.
    pub(crate) fn on_stream(self, flow: u32, offset: u64) -> TrafficError {
        TrafficError::WrongByte {
            flow,
            repetition: STREAM,
            at: offset.saturating_add(self.at as u64),
            expected: self.expected,
            found: self.found,
        }
    }
}

/// A stream is one repetition that does not end.
const STREAM: u64 = 0;

/// Word `index` of repetition `repetition` of flow `flow`: the finalizer of `SplitMix64` (Steele, Lea and
/// Flood 2014), which leaves no two neighbors alike.
fn word(flow: u32, repetition: u64, index: u64) -> u64 {
    let seed = (repetition << 16) ^ u64::from(flow);
    let mut state = index.wrapping_add(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    state = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    state ^ (state >> 31)
}

/// Fills `buffer` with the content of this repetition.
pub(crate) fn fill(buffer: &mut [u8], flow: u32, repetition: u64) {
    for (index, chunk) in (0..).zip(buffer.chunks_mut(WORD)) {
        let bytes = word(flow, repetition, index).to_be_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
}

/// Compares every byte with the content of this repetition.
pub(crate) fn compare_filled(buffer: &[u8], flow: u32, repetition: u64) -> Result<(), Wrong> {
    compare_words(buffer, |index| word(flow, repetition, index).to_be_bytes())
}

/// Where byte `offset` of a stream is: in which word, how many bytes of that are before it, and how many of
/// `length` bytes from there on belong to a word that has begun.
fn place_of(offset: u64, length: usize) -> (u64, usize, usize) {
    let skipped = usize::try_from(offset % WORD as u64).unwrap_or(0);
    let begun = (WORD - skipped) % WORD;
    (offset / WORD as u64, skipped, begun.min(length))
}

/// Fills `buffer` with what the stream of this flow has from byte `offset` on.
pub(crate) fn fill_at(buffer: &mut [u8], flow: u32, offset: u64) {
    let (first, skipped, begun) = place_of(offset, buffer.len());
    let (head, rest) = buffer.split_at_mut(begun);
    let bytes = word(flow, STREAM, first).to_be_bytes();
    head.copy_from_slice(&bytes[skipped..skipped + begun]);
    for (index, chunk) in (first + u64::from(skipped > 0)..).zip(rest.chunks_mut(WORD)) {
        let bytes = word(flow, STREAM, index).to_be_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
}

/// Compares every byte with what the stream of this flow has from byte `offset` on.
pub(crate) fn compare_at(buffer: &[u8], flow: u32, offset: u64) -> Result<(), Wrong> {
    let (first, skipped, begun) = place_of(offset, buffer.len());
    let (head, rest) = buffer.split_at(begun);
    let bytes = word(flow, STREAM, first).to_be_bytes();
    compare_copies(&bytes[skipped..skipped + begun], head)?;
    let next = first + u64::from(skipped > 0);
    compare_words(rest, |index| word(flow, STREAM, next + index).to_be_bytes()).map_err(|wrong| {
        Wrong {
            at: wrong.at + begun,
            ..wrong
        }
    })
}

/// Compares every byte with the expected words.
pub(crate) fn compare_words(
    buffer: &[u8],
    expected: impl Fn(u64) -> [u8; WORD],
) -> Result<(), Wrong> {
    for (index, chunk) in (0..).zip(buffer.chunks(WORD)) {
        let bytes = expected(index);
        if *chunk != bytes[..chunk.len()] {
            let within = compare_copies(&bytes[..chunk.len()], chunk);
            return within.map_err(|wrong| Wrong {
                at: wrong.at + chunk_start(index),
                ..wrong
            });
        }
    }
    Ok(())
}

fn chunk_start(index: u64) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX) * WORD
}

/// Compares every byte of `found` with `expected`.
pub(crate) fn compare_copies(expected: &[u8], found: &[u8]) -> Result<(), Wrong> {
    if expected == found {
        return Ok(());
    }
    let pairs = expected.iter().zip(found).enumerate();
    let mut different = pairs.filter(|(_, (expected, found))| expected != found);
    different
        .next()
        .map_or(Ok(()), |(at, (&expected, &found))| {
            Err(Wrong {
                at,
                expected,
                found,
            })
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_flipped_bit_is_found_where_it_is(
            size in 1usize..200,
            at in any::<proptest::sample::Index>(),
            bit in 0u8..8,
            flow in 0u32..20_000,
            repetition in 0u64..1_000_000,
        ) {
            let mut buffer = vec![0; size];
            fill(&mut buffer, flow, repetition);
            prop_assert_eq!(compare_filled(&buffer, flow, repetition), Ok(()));
            let at = at.index(size);
            let expected = buffer[at];
            buffer[at] ^= 1 << bit;
            let found = buffer[at];
            prop_assert_eq!(
                compare_filled(&buffer, flow, repetition),
                Err(Wrong { at, expected, found })
            );
        }

        #[test]
        fn a_stream_is_the_same_however_it_is_cut_and_any_flipped_bit_is_found_where_it_is(
            offset in 0u64..1 << 40,
            sizes in proptest::collection::vec(1usize..40, 1..10),
            at in any::<proptest::sample::Index>(),
            bit in 0u8..8,
            flow in 0u32..20_000,
        ) {
            let mut whole = vec![0; sizes.iter().sum()];
            fill_at(&mut whole, flow, offset);
            prop_assert_eq!(compare_at(&whole, flow, offset), Ok(()));
            let mut begun = 0usize;
            for size in sizes {
                let mut part = vec![0; size];
                fill_at(&mut part, flow, offset + begun as u64);
                prop_assert_eq!(&part[..], &whole[begun..begun + size]);
                prop_assert_eq!(compare_at(&part, flow, offset + begun as u64), Ok(()));
                begun += size;
            }
            let at = at.index(whole.len());
            let expected = whole[at];
            whole[at] ^= 1 << bit;
            let found = whole[at];
            prop_assert_eq!(
                compare_at(&whole, flow, offset),
                Err(Wrong { at, expected, found })
            );
        }

        #[test]
        fn the_beginning_of_a_stream_is_that_of_the_first_repetition(
            size in 1usize..200,
            flow in 0u32..20_000,
        ) {
            let (mut stream, mut buffer) = (vec![0; size], vec![0; size]);
            fill_at(&mut stream, flow, 0);
            fill(&mut buffer, flow, 0);
            prop_assert_eq!(stream, buffer);
        }

        #[test]
        fn the_buffer_of_another_repetition_or_flow_is_not_the_right_one(
            flow in 0u32..20_000,
            repetition in 0u64..1_000_000,
        ) {
            let mut buffer = vec![0; 64];
            fill(&mut buffer, flow, repetition);
            prop_assert!(compare_filled(&buffer, flow, repetition + 1).is_err());
            prop_assert!(compare_filled(&buffer, flow + 1, repetition).is_err());
        }
    }
}
