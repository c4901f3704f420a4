//! The work of source 001: one time step of the two-dimensional heat equation on a square grid of doubles, in
//! place, with whatever vectors the processor has.
//!
//! ```text
//! new = old + 0.01 * (left + right + below + above - 4 * old)
//! ```
//!
//! Every variant evaluates that from left to right, an operation at a time: no compiler of ours contracts a
//! product and a sum into one rounding, so that all of them give the same bits, on every processor and over
//! every transport. The cells on the edge are not changed: the requesting end sets the boundary.
//!
//! **In place**, as the network leaves the buffer and takes it back: each cell is read once from memory and
//! written once, and nothing is fetched only to be overwritten, as a second grid would be. What is needed of
//! the old values is kept in one or two rows, which remain in the cache.
//!
//! Cells are little-endian in the buffer and may lie anywhere, so that bytes from the network are a grid as they
//! are.

mod film;
mod grid;
mod plain;

pub use film::film;
pub(crate) use grid::{blank_picture, take_picture};
pub use grid::{cells_of, checksum, fill, set_boundary};
use linerate_model::sample::Vectors;
use linerate_model::workload::Diffusion;
pub use plain::step_plainly;

pub use crate::sys::vectors::Cell;
use crate::sys::vectors::{self, LINE, Line};

/// Makes steps, in one thread, of grids of one size.
#[derive(Debug, Clone)]
pub struct Stepper {
    side: usize,
    vectors: Vectors,
    /// Of vectors: the old row above that which is being made.
    above: Vec<Line>,
    rows: Rows,
}

/// Two old rows: the one above that which is being made, and that one.
#[derive(Debug, Clone)]
struct Rows {
    above: Vec<f64>,
    own: Vec<f64>,
}

impl Stepper {
    /// Of grids of `side` x `side` cells, with the widest vectors there are here.
    pub fn new(side: usize) -> Self {
        let widest = available().last().copied();
        let vectors = widest.unwrap_or(Vectors::Portable);
        Self {
            side,
            vectors,
            above: vec![Line::ZERO; side / LINE],
            rows: Rows {
                above: vec![0.0; side],
                own: vec![0.0; side],
            },
        }
    }

    /// The same with `vectors`; `None` where the processor has them not.
    pub fn with(side: usize, vectors: Vectors) -> Option<Self> {
        let new = Self::new(side);
        available()
            .contains(&vectors)
            .then_some(Self { vectors, ..new })
    }

    /// What it makes them with: where the side is a multiple of [`Diffusion::SIDE_STEP`], as that of every
    /// buffer's grid is.
    pub fn vectors(&self) -> Vectors {
        self.vectors
    }

    /// One time step of the grid at the beginning of `buffer`. A buffer too small for it is not changed.
    pub fn step(&mut self, buffer: &mut [u8]) {
        let Some(cells) = cells_of(buffer, self.side) else {
            return;
        };
        if !vectors::sweep(self.vectors, cells, self.side, &mut self.above) {
            sweep(cells, self.side, &mut self.rows);
        }
    }
}

/// Multiplies every cell of a grid of `side` x `side` by `factor`, in place, with the widest vectors there are: the
/// least that can be done with a step's traffic of memory, which a step is compared with.
pub fn scale(buffer: &mut [u8], side: usize, factor: f64) {
    if let Some(cells) = cells_of(buffer, side) {
        vectors::scale(cells, factor);
    }
}

/// What this processor has, from the narrowest to the widest.
pub fn available() -> Vec<Vectors> {
    let all = [Vectors::Portable, Vectors::Avx2, Vectors::Avx512];
    all.into_iter().filter(|one| vectors::has(*one)).collect()
}

/// All inner cells, row by row, as the compiler vectorizes it.
fn sweep(cells: &mut [Cell], side: usize, rows: &mut Rows) {
    if side < 3 {
        return;
    }
    let Rows { above, own } = rows;
    load(above, &cells[..side]);
    for row in 1..side - 1 {
        let (done, below) = cells.split_at_mut((row + 1) * side);
        let new = &mut done[row * side..];
        load(own, new);
        make(new, above, own, &below[..side]);
        std::mem::swap(above, own);
    }
}

/// Keeps a row's values before they are written over.
fn load(values: &mut [f64], row: &[Cell]) {
    for (value, cell) in values.iter_mut().zip(row) {
        *value = f64::from_le_bytes(*cell);
    }
}

/// The inner cells of a row, of the old values above, in and below it.
fn make(new: &mut [Cell], above: &[f64], own: &[f64], below: &[Cell]) {
    let inner = 1..own.len() - 1;
    let (left, right) = (&own[..own.len() - 2], &own[2..]);
    let new = new[inner.clone()].iter_mut();
    let across = new.zip(&own[inner.clone()]).zip(left.iter().zip(right));
    let down = above[inner.clone()].iter().zip(&below[inner]);
    for (((new, old), (left, right)), (above, below)) in across.zip(down) {
        let sum = left + right + f64::from_le_bytes(*below) + above - 4.0 * old;
        *new = (old + Diffusion::FACTOR * sum).to_le_bytes();
    }
}

#[cfg(test)]
mod tests;
