//! Where a job reads or writes next.

use linerate_model::block::{BlockSpec, Pattern};

/// The offsets of one job, without end.
#[derive(Debug)]
pub(super) struct Offsets {
    start: u64,
    block: u64,
    next: Next,
}

#[derive(Debug)]
enum Next {
    /// SplitMix64 (G. L. Steele, D. Lea, C. H. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014), and
    /// the number of blocks.
    Random { state: u64, blocks: u64 },
    /// The part of this job, and how many blocks of it are done.
    Sequential { first: u64, blocks: u64, done: u64 },
}

/// SplitMix64's increment.
const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

fn mix(state: u64) -> u64 {
    let mut z = state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Offsets {
    /// Those of job `index`.
    pub(super) fn of(spec: &BlockSpec, index: usize) -> Self {
        let all = spec.blocks().max(1);
        let index = index as u64;
        let next = match spec.pattern {
            Pattern::Random => Next::Random {
                // Mixed, because states that differ by the increment would give the same offsets a step apart.
                state: mix(mix(spec.seed)
                    .wrapping_add(index.wrapping_mul(GAMMA))
                    .wrapping_add(GAMMA)),
                blocks: all,
            },
            Pattern::Sequential => {
                let blocks = (all / spec.jobs.len().max(1) as u64).max(1);
                Next::Sequential {
                    first: blocks * index % all,
                    blocks,
                    done: 0,
                }
            }
        };
        Self {
            start: spec.area.start.as_u64(),
            block: spec.block.as_u64(),
            next,
        }
    }

    /// The next one.
    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        let block = match &mut self.next {
            Next::Random { state, blocks } => {
                *state = state.wrapping_add(GAMMA);
                // The high word of the product: its bias is at most blocks / 2^64.
                let product = u128::from(mix(*state)) * u128::from(*blocks);
                u64::try_from(product >> 64).unwrap_or(0)
            }
            Next::Sequential {
                first,
                blocks,
                done,
            } => {
                let block = *first + *done;
                *done += 1;
                if *done == *blocks {
                    *done = 0;
                }
                block
            }
        };
        self.start + block * self.block
    }
}

#[cfg(test)]
mod tests {
    use linerate_model::block::{Access, Area};
    use linerate_model::ids::CpuSet;
    use linerate_model::units::{Bytes, Nanoseconds};
    use linerate_model::workload::MemoryPolicy;
    use proptest::prelude::*;

    use super::*;

    fn spec(pattern: Pattern, seed: u64, blocks: u64, jobs: usize) -> BlockSpec {
        BlockSpec {
            access: Access::Read,
            pattern,
            block: Bytes::kib(4),
            depth: 1,
            polled: false,
            seed,
            duration_ns: Nanoseconds::default(),
            area: Area {
                start: Bytes::mib(8),
                length: Bytes::kib(4 * blocks),
            },
            jobs: vec![CpuSet::empty(); jobs],
            memory: MemoryPolicy::Default,
        }
    }

    fn first(spec: &BlockSpec, index: usize, count: usize) -> Vec<u64> {
        let mut offsets = Offsets::of(spec, index);
        (0..count).map(|_| offsets.next()).collect()
    }

    #[test]
    fn sequential_jobs_read_parts_of_their_own_and_start_again() {
        let spec = spec(Pattern::Sequential, 0, 6, 3);
        let at = |block: u64| (8 << 20) + block * 4096;
        assert_eq!(first(&spec, 0, 3), [at(0), at(1), at(0)]);
        assert_eq!(first(&spec, 2, 3), [at(4), at(5), at(4)]);
    }

    #[test]
    fn equal_seeds_give_equal_offsets_and_jobs_differ() {
        let (one, other) = (
            spec(Pattern::Random, 1, 1 << 20, 2),
            spec(Pattern::Random, 2, 1 << 20, 2),
        );
        assert_eq!(first(&one, 0, 100), first(&one, 0, 100));
        assert_ne!(first(&one, 0, 100), first(&other, 0, 100));
        let (mine, theirs) = (first(&one, 0, 1000), first(&one, 1, 1000));
        let shared = mine.iter().filter(|offset| theirs.contains(offset)).count();
        assert!(shared < 20, "{shared} of 1000 offsets are shared");
    }

    proptest! {
        #[test]
        fn no_offset_leaves_the_area(seed: u64, blocks in 1u64..100_000, jobs in 1usize..9, random: bool) {
            let pattern = if random { Pattern::Random } else { Pattern::Sequential };
            let spec = spec(pattern, seed, blocks.max(jobs as u64), jobs);
            let area = spec.area.start.as_u64()..=spec.area.start.as_u64() + spec.area.length.as_u64() - 4096;
            for index in 0..jobs {
                for offset in first(&spec, index, 50) {
                    prop_assert!(area.contains(&offset) && offset % 4096 == 0, "{offset} of {spec:?}");
                }
            }
        }
    }
}
