//! The content of a checked transfer: every repetition of every flow has its own, computed at both ends,
//! so that neither a changed byte nor an old buffer passes for the right one.

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
}

/// Word `index` of repetition `repetition` of flow `flow`: the finalizer of `SplitMix64` (Steele, Lea and
/// Flood 2014), which leaves no two neighbours alike.
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

/// Compares every byte with the words that there should be.
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
