//! The computation of source 001: one time step of the two-dimensional heat equation each time the grid is sent to a
//! peer and back.

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// The options of `diffusion`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Diffusion {
    /// The size of the buffer that is transferred both ways; the grid fills most of it.
    pub bytes: Bytes,
    /// The repetitions; `None` is no limit.
    pub repetitions: Option<u64>,
    /// Whether the responding end computes a time step and the requesting end sets the boundary. Otherwise the grid
    /// is only transferred.
    pub work: bool,
    /// The requesting end recomputes every step with plain code and verifies every byte; the cost is not included in
    /// the times.
    pub data_check: bool,
    /// The requesting end stores snapshots of its first grid.
    #[serde(default)]
    pub pictures: bool,
}

impl Diffusion {
    /// The diffusion coefficient: the share of the sum of differences to its neighbors added to a cell in a step.
    pub const FACTOR: f64 = 1e-2;
    /// The heat of the square in the middle at the start; all else is 0.
    pub const HOT: f64 = 1e4;
    /// Half the side of that square, in every grid that is large enough.
    pub const HOT_HALF_SIDE: usize = 10;
    /// The side is a multiple of this many cells: 64 bytes, one AVX-512 vector, one cache line.
    pub const SIDE_STEP: usize = 8;
    /// The smallest buffer: a grid of 8 x 8.
    pub const BYTES_MIN: Bytes = Bytes::new(512);
    /// The largest side: the grid in the largest buffer, 1 GiB.
    pub const SIDE_MAX: usize = 11_584;
    /// Repetitions after which a snapshot is stored, in addition to the final one.
    pub const PICTURES_AFTER: [u64; 2] = [100, 10_000];

    /// The side of the grid in cells: the largest multiple of 8 whose square of doubles fits the buffer,
    /// `floor(sqrt(bytes / 8) / 8) * 8`.
    pub fn side(&self) -> usize {
        Self::side_of(self.bytes)
    }

    /// The same for a buffer of `bytes`.
    pub fn side_of(bytes: Bytes) -> usize {
        let cells = bytes.as_u64() / 8;
        // At most 2^30.5: no buffer has more than 2^64 bytes.
        let root = usize::try_from(cells.isqrt()).unwrap_or(0);
        root / Self::SIDE_STEP * Self::SIDE_STEP
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{TrialSpec, Workload};

    #[test]
    fn the_side_is_the_sources_of_its_three_buffers() {
        // int dsize = ((int)sqrt(buf_size / sizeof(double)) / 8) * 8;
        let side = |bytes| Diffusion::side_of(bytes);
        assert_eq!(side(Bytes::kib(256)), 176);
        assert_eq!(side(Bytes::mib(1)), 360);
        assert_eq!(side(Bytes::mib(4)), 720);
        assert_eq!(side(Bytes::new(511)), 0);
        assert_eq!(side(Diffusion::BYTES_MIN), 8);
        assert_eq!(side(Bytes::new(2_047)), 8);
        assert_eq!(side(Bytes::new(2_048)), 16);
        assert_eq!(side(Bytes::mib(1_024)), Diffusion::SIDE_MAX);
    }

    #[test]
    fn a_buffer_without_a_grid_and_more_memory_than_there_may_be_are_refused() {
        let spec = |bytes, flows, repetitions, data_check| TrialSpec {
            workload: Workload::Diffusion(Diffusion {
                bytes,
                repetitions,
                work: true,
                data_check,
                pictures: false,
            }),
            flows,
            ..TrialSpec::default()
        };
        let gib = Bytes::mib(1_024);
        assert_eq!(spec(Diffusion::BYTES_MIN, 1, Some(1), true).check(), Ok(()));
        assert_eq!(spec(gib, 8, None, false).check(), Ok(()));
        for (wrong, word) in [
            (
                spec(Bytes::new(511), 1, None, false),
                "the buffer of a grid is 511 B",
            ),
            (
                spec(Bytes::mib(1_025), 1, None, false),
                "the buffer of a grid",
            ),
            (spec(gib, 8, Some(0), false), "the repetitions is 0"),
            (spec(gib, 9, None, false), "the buffers"),
            (spec(gib, 3, None, true), "the buffers"),
        ] {
            let said = wrong.check().expect_err("an error").to_string();
            assert!(said.starts_with(word), "{said}");
        }
    }
}
