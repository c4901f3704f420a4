//! Steps with vector extensions that not every processor has; they are only reachable on processors that have them.
//!
//! Rows are swept from left to right, some at a time, with three vectors of each in registers: the neighbors to the
//! left and to the right of a vector's cells are shifted out of them, those above and below are the other rows', so
//! that hardly a cell is loaded twice and none from a place that was written already. The last old row of a band
//! goes to the side as it is written over: it is the one above for the next.

use linerate_model::sample::Vectors;
use linerate_model::workload::Diffusion;

/// A double as it is in the buffer.
pub type Cell = [u8; size_of::<f64>()];

/// Doubles of a [`Line`].
pub(crate) const LINE: usize = Diffusion::SIDE_STEP;

/// A part of an old row, for vectors: a cache line.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Line(
    #[expect(dead_code, reason = "it is read and written by vectors")] [f64; LINE],
);

impl Line {
    pub(crate) const ZERO: Self = Self([0.0; LINE]);
}

/// How far ahead the rows below are requested, in cells: half a page, as the processor's own prefetching begins anew
/// on each page.
#[cfg(target_arch = "x86_64")]
const AHEAD: usize = 256;

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

/// All inner cells of a grid of `side` x `side` at the beginning of `cells`, with a row's room in `above`; `false`
/// where that cannot be: no such vectors, or a side that is no multiple of a line.
pub(crate) fn sweep(vectors: Vectors, cells: &mut [Cell], side: usize, above: &mut [Line]) -> bool {
    let fits = side >= LINE
        && side.is_multiple_of(LINE)
        && cells.len() == side * side
        && above.len() * LINE == side;
    if !fits || !has(vectors) {
        return false;
    }
    match vectors {
        // SAFETY: the processor has what the function is made of, and the lengths are what it asks for.
        #[cfg(target_arch = "x86_64")]
        Vectors::Avx2 => unsafe {
            x86::avx2(cells, side, above);
            true
        },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Vectors::Avx512 => unsafe {
            x86::avx512(cells, side, above);
            true
        },
        _ => false,
    }
}

/// Every cell times `factor`, with the widest vectors there are.
pub(crate) fn scale(cells: &mut [Cell], factor: f64) {
    #[cfg(target_arch = "x86_64")]
    if has(Vectors::Avx512) {
        // SAFETY: the processor has what the function is made of.
        return unsafe { x86::scale_avx512(cells, factor) };
    }
    #[cfg(target_arch = "x86_64")]
    if has(Vectors::Avx2) {
        // SAFETY: as above.
        return unsafe { x86::scale_avx2(cells, factor) };
    }
    scale_plainly(cells, factor);
}

/// The same as the compiler vectorizes it, in its callers.
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "a function of its own would have no vectors but the portable ones"
)]
fn scale_plainly(cells: &mut [Cell], factor: f64) {
    for cell in cells {
        *cell = (f64::from_le_bytes(*cell) * factor).to_le_bytes();
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256d, __m512d, _MM_HINT_T0, _mm_prefetch, _mm256_add_pd, _mm256_loadu_pd, _mm256_mul_pd,
        _mm256_permute2f128_pd, _mm256_set1_pd, _mm256_shuffle_pd, _mm256_storeu_pd, _mm256_sub_pd,
        _mm512_add_pd, _mm512_alignr_epi64, _mm512_castpd_si512, _mm512_castsi512_pd,
        _mm512_loadu_pd, _mm512_mul_pd, _mm512_set1_pd, _mm512_storeu_pd, _mm512_sub_pd,
    };

    use linerate_model::workload::Diffusion;

    use super::{AHEAD, Cell, Line, scale_plainly};

    #[target_feature(enable = "avx2")]
    pub(super) fn scale_avx2(cells: &mut [Cell], factor: f64) {
        scale_plainly(cells, factor);
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn scale_avx512(cells: &mut [Cell], factor: f64) {
        scale_plainly(cells, factor);
    }

    /// The last cell of `before` and all but the last of `own`.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn left_avx2(before: __m256d, own: __m256d) -> __m256d {
        _mm256_shuffle_pd::<0b0101>(_mm256_permute2f128_pd::<0x21>(before, own), own)
    }

    /// All but the first cell of `own` and the first of `after`.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn right_avx2(own: __m256d, after: __m256d) -> __m256d {
        _mm256_shuffle_pd::<0b0101>(own, _mm256_permute2f128_pd::<0x21>(own, after))
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn left_avx512(before: __m512d, own: __m512d) -> __m512d {
        let (before, own) = (_mm512_castpd_si512(before), _mm512_castpd_si512(own));
        _mm512_castsi512_pd(_mm512_alignr_epi64::<7>(own, before))
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn right_avx512(own: __m512d, after: __m512d) -> __m512d {
        let (own, after) = (_mm512_castpd_si512(own), _mm512_castpd_si512(after));
        _mm512_castsi512_pd(_mm512_alignr_epi64::<1>(after, own))
    }

    /// The same sweep of other vectors. The order of its operations is that of `diffusion::sweep`, each rounded
    /// for itself.
    macro_rules! sweep_of {
        (
            $name:ident in bands by $band:ident of $rows:literal rows, $feature:literal, $lanes:literal lanes:
            $load:ident $store:ident $all:ident $add:ident $sub:ident $mul:ident $left:ident $right:ident
        ) => {
            /// # Safety
            ///
            /// `side` is a multiple of 8 and not 0, `cells` holds `side * side` and `above` `side / 8`.
            #[target_feature(enable = $feature)]
            pub(super) unsafe fn $name(cells: &mut [Cell], side: usize, above: &mut [Line]) {
                let above: *mut f64 = above.as_mut_ptr().cast();
                let cells: *mut f64 = cells.as_mut_ptr().cast();
                let last = side - 1;
                let mut row = 1;
                // SAFETY: every band ends above the last row, and `above` has the room of a row.
                unsafe {
                    // By bytes: a row in the buffer may lie anywhere.
                    let (to, from) = (above.cast::<u8>(), cells.cast::<u8>());
                    to.copy_from_nonoverlapping(from, side * size_of::<f64>());
                    while row + $rows <= last {
                        $band::<$rows>(cells.add(row * side), side, above);
                        row += $rows;
                    }
                    while row < last {
                        $band::<1>(cells.add(row * side), side, above);
                        row += 1;
                    }
                }
            }

            /// `ROWS` rows from `own` on, of the old row in `above`, which is their last one afterwards.
            ///
            /// # Safety
            ///
            /// A further row follows them, `above` is a row apart from them, and a row has `side` cells, a multiple
            /// of 8 and not 0.
            #[target_feature(enable = $feature)]
            #[inline]
            unsafe fn $band<const ROWS: usize>(own: *mut f64, side: usize, above: *mut f64) {
                let (factor, four) = ($all(Diffusion::FACTOR), $all(4.0));
                // SAFETY: every place is a column below `side` of a row up to the one that follows, but for what
                // comes after a row's last cells: the first ones of the next, which is there. Loads and stores
                // ask for no alignment, a cell is eight bytes of a double as x86 has them, and what is only
                // prefetched may be anywhere.
                unsafe {
                    // The cells on the edge are computed of neighbors that they have not, and restored.
                    let edge = |row: usize| (own.add(row * side), own.add((row + 1) * side - 1));
                    let kept: [(f64, f64); ROWS] = std::array::from_fn(|row| {
                        let (first, last) = edge(row);
                        (first.read_unaligned(), last.read_unaligned())
                    });
                    let mut before = [$all(0.0); ROWS];
                    let mut here = before;
                    for row in 0..ROWS {
                        here[row] = $load(own.add(row * side));
                    }
                    let mut at = 0;
                    while at < side {
                        let mut over = $load(above.add(at));
                        let under = $load(own.add(ROWS * side + at));
                        for row in 0..ROWS {
                            let place = own.add(row * side + at);
                            let after = $load(place.add($lanes));
                            _mm_prefetch::<_MM_HINT_T0>(place.wrapping_add(side + AHEAD).cast());
                            let below = if row + 1 < ROWS { here[row + 1] } else { under };
                            let sum = $add($left(before[row], here[row]), $right(here[row], after));
                            let sum = $sub($add($add(sum, below), over), $mul(four, here[row]));
                            $store(place, $add(here[row], $mul(factor, sum)));
                            over = here[row];
                            (before[row], here[row]) = (over, after);
                        }
                        $store(above.add(at), over);
                        at += $lanes;
                    }
                    for (row, kept) in kept.into_iter().enumerate() {
                        let (first, last) = edge(row);
                        first.write_unaligned(kept.0);
                        last.write_unaligned(kept.1);
                    }
                }
            }
        };
    }

    sweep_of!(
        avx2 in bands by band_of_avx2 of 2 rows, "avx2", 4 lanes:
        _mm256_loadu_pd _mm256_storeu_pd _mm256_set1_pd _mm256_add_pd _mm256_sub_pd _mm256_mul_pd
        left_avx2 right_avx2
    );
    sweep_of!(
        avx512 in bands by band_of_avx512 of 4 rows, "avx512f", 8 lanes:
        _mm512_loadu_pd _mm512_storeu_pd _mm512_set1_pd _mm512_add_pd _mm512_sub_pd _mm512_mul_pd
        left_avx512 right_avx512
    );
}
