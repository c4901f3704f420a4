//! The grid in a buffer: initial values, boundary, checksum, and images of it.

use linerate_model::sample::{Checksum, GridPicture};
use linerate_model::workload::Diffusion;

use super::Cell;

/// The cells of a grid of `side` x `side` at the beginning of `buffer`; `None` if it does not fit.
pub fn cells_of(buffer: &mut [u8], side: usize) -> Option<&mut [Cell]> {
    let (cells, _) = buffer.as_chunks_mut();
    cells.get_mut(..side.checked_mul(side)?)
}

/// The grid before the first step: all cold but for a square in the middle. What of `buffer` is no grid is 0.
pub fn fill(buffer: &mut [u8], side: usize) {
    buffer.fill(0);
    let half = Diffusion::HOT_HALF_SIDE.min(side / 4);
    let hot = side / 2 - half..side / 2 + half;
    let Some(cells) = cells_of(buffer, side) else {
        return;
    };
    for row in hot.clone() {
        cells[row * side..][hot.clone()].fill(Diffusion::HOT.to_le_bytes());
    }
}

/// Sets the cells on the edge to 0.
pub fn set_boundary(buffer: &mut [u8], side: usize) {
    let Some(cells) = cells_of(buffer, side) else {
        return;
    };
    let cold = 0.0_f64.to_le_bytes();
    for (number, row) in cells.chunks_exact_mut(side.max(1)).enumerate() {
        if number == 0 || number == side - 1 {
            row.fill(cold);
        } else {
            row[0] = cold;
            row[side - 1] = cold;
        }
    }
}

/// The checksum of `bytes`: each word is mixed in by FNV-1a's step on 64 bits (Fowler, Noll and Vo) and a
/// rotation. Every step is one-to-one, so that two buffers which differ in one word never have the same.
pub fn checksum(bytes: &[u8]) -> Checksum {
    const OFFSET: u64 = 0xCBF2_9CE4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01B3;
    // Without it the sign of a cell would reach the highest bit only, and two of them could undo each other.
    const TURN: u32 = 29;
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(PRIME).rotate_left(TURN);
    let (words, rest) = bytes.as_chunks();
    let sum = words
        .iter()
        .fold(OFFSET, |sum, word| mix(sum, u64::from_le_bytes(*word)));
    let sum = rest
        .iter()
        .fold(sum, |sum, byte| mix(sum, u64::from(*byte)));
    Checksum(mix(sum, bytes.len() as u64))
}

/// Storage for an image of a grid of `side` x `side`.
pub(crate) fn blank_picture(side: usize) -> GridPicture {
    let most = GridPicture::BLOCKS_MAX;
    // Of equal size where that can be, so that what is even in the grid is even in the picture.
    let equal = (most * 2 / 3..=most)
        .rev()
        .find(|blocks| side.is_multiple_of(*blocks));
    let blocks = equal.unwrap_or(most).min(side);
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    GridPicture {
        repetitions: 0,
        side: number(side),
        blocks: number(blocks),
        means: vec![0; blocks * blocks],
        section: vec![0; side],
    }
}

/// Stores the image of the grid in `buffer` after so many repetitions; does not allocate.
pub(crate) fn take_picture(picture: &mut GridPicture, buffer: &mut [u8], repetitions: u64) {
    let side = picture.section.len();
    let blocks = picture.blocks as usize;
    let Some(cells) = cells_of(buffer, side) else {
        return;
    };
    picture.repetitions = repetitions;
    let middle = &cells[side / 2 * side..][..side];
    for (bits, cell) in picture.section.iter_mut().zip(middle) {
        *bits = u64::from_le_bytes(*cell);
    }
    let range = |block: usize| block * side / blocks..(block + 1) * side / blocks;
    for (number, mean) in picture.means.iter_mut().enumerate() {
        let (rows, columns) = (range(number / blocks), range(number % blocks));
        let (mut sum, mut count) = (0.0, 0.0);
        for row in rows {
            for cell in &cells[row * side..][columns.clone()] {
                sum += f64::from_le_bytes(*cell);
                count += 1.0;
            }
        }
        *mean = hundredths(sum / count);
    }
}

/// The heat in hundredths; what a grid cannot have, garbage from a peer, is the nearest number.
fn hundredths(heat: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` takes the nearest number, and 0 for what is none"
    )]
    let number = (heat * 100.0).round() as u32;
    number
}
