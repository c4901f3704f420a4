//! Steps made of vectors that not every processor has: the compiler makes them of the same source, each time for
//! other instructions, and nobody gets to one whose processor lacks them.

use linerate_model::sample::Vectors;

use crate::diffusion::{Cell, Rows, sweep};

/// Whether this processor has them, and its kernel keeps them for a thread.
pub(crate) fn has(vectors: Vectors) -> bool {
    match vectors {
        Vectors::Portable => true,
        #[cfg(target_arch = "x86_64")]
        Vectors::Avx2 => std::arch::is_x86_feature_detected!("avx2"),
        #[cfg(target_arch = "x86_64")]
        Vectors::Avx512 => std::arch::is_x86_feature_detected!("avx512f"),
        #[cfg(not(target_arch = "x86_64"))]
        Vectors::Avx2 | Vectors::Avx512 => false,
    }
}

/// A sweep by AVX2; a portable one where that is not there.
pub(crate) fn sweep_avx2(cells: &mut [Cell], side: usize, rows: &mut Rows) {
    #[cfg(target_arch = "x86_64")]
    if has(Vectors::Avx2) {
        // SAFETY: the processor has what the function is made of.
        return unsafe { avx2(cells, side, rows) };
    }
    sweep(cells, side, rows);
}

/// A sweep by AVX-512; a portable one where that is not there.
pub(crate) fn sweep_avx512(cells: &mut [Cell], side: usize, rows: &mut Rows) {
    #[cfg(target_arch = "x86_64")]
    if has(Vectors::Avx512) {
        // SAFETY: the processor has what the function is made of.
        return unsafe { avx512(cells, side, rows) };
    }
    sweep(cells, side, rows);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2(cells: &mut [Cell], side: usize, rows: &mut Rows) {
    sweep(cells, side, rows);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn avx512(cells: &mut [Cell], side: usize, rows: &mut Rows) {
    sweep(cells, side, rows);
}
