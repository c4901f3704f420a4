//! The work of `diffusion` on a thread's pairs: the asking end sets the boundary before each journey, the answering
//! end makes a time step of what it fetched.

use std::time::{Duration, Instant};

use linerate_model::sample::{GridPicture, GridRecord, Role};
use linerate_model::workload::Diffusion;

use super::{Asking, Compute};
use crate::diffusion::{
    Stepper, blank_picture, checksum, fill, set_boundary, step_plainly, take_picture,
};
use crate::exchange::flow_places;
use crate::trial::{DataThread, ThreadFlow};
use crate::{TrafficError, content};

/// The grids of a thread's pairs.
#[derive(Debug)]
pub(super) struct Grids {
    diffusion: Diffusion,
    side: usize,
    /// At the end that makes the steps.
    stepper: Option<Stepper>,
    pairs: Vec<Pair>,
}

/// What an end of a pair keeps of its grid.
#[derive(Debug, Default)]
struct Pair {
    repetitions: u64,
    worked: Duration,
    /// The expected grid after the steps so far, and storage for the next one; if it is compared.
    expected: Option<(Vec<f64>, Vec<f64>)>,
    /// Storage for images; the earliest are kept.
    pictures: Vec<GridPicture>,
    taken: usize,
}

impl Grids {
    /// Of the pairs of the data thread: everything that the trial will need is made here, and in [`Compute::begin`].
    pub(super) fn new(data_thread: &DataThread<'_>, diffusion: &Diffusion) -> Self {
        let side = diffusion.side();
        let answers = data_thread.role == Role::Receiver;
        let pair = |one: &ThreadFlow<'_>| {
            let keeps = diffusion.pictures && !answers && flow_places(data_thread.spec, one).0 == 0;
            let pictures = if keeps {
                Diffusion::PICTURES_AFTER.len() + 1
            } else {
                0
            };
            Pair {
                pictures: vec![blank_picture(side); pictures],
                ..Pair::default()
            }
        };
        Self {
            diffusion: diffusion.clone(),
            side,
            stepper: (answers && diffusion.work).then(|| Stepper::new(side)),
            pairs: data_thread.flows.iter().map(pair).collect(),
        }
    }
}

impl Pair {
    /// Stores an image of what came back, if there is space for one.
    fn take(&mut self, buffer: &mut [u8]) {
        if let Some(picture) = self.pictures.get_mut(self.taken) {
            take_picture(picture, buffer, self.repetitions);
            self.taken += 1;
        }
    }
}

impl Compute for Grids {
    fn begin(&mut self, index: usize, _one: ThreadFlow<'_>, buffer: &mut [u8]) {
        fill(buffer, self.side);
        if self.diffusion.data_check {
            let (cells, _) = buffer.as_chunks();
            let cells = cells.iter().take(self.side * self.side);
            let values: Vec<f64> = cells.map(|cell| f64::from_le_bytes(*cell)).collect();
            self.pairs[index].expected = Some((values.clone(), values));
        }
    }

    fn prepare(&mut self, index: usize, _one: ThreadFlow<'_>, buffer: &mut [u8], _repetition: u64) {
        if self.diffusion.work {
            let begun = Instant::now();
            set_boundary(buffer, self.side);
            self.pairs[index].worked += begun.elapsed();
        }
    }

    fn judge(
        &mut self,
        index: usize,
        one: ThreadFlow<'_>,
        pair: &mut impl Asking,
        repetition: u64,
    ) -> Result<(), TrafficError> {
        let own = &mut self.pairs[index];
        own.repetitions = repetition + 1;
        if let Some((now, next)) = &mut own.expected {
            if self.diffusion.work {
                step_plainly(now, next, self.side);
                std::mem::swap(now, next);
            }
            // The part of the buffer outside the grid is 0, and remains so.
            let value = |index: u64| usize::try_from(index).ok().and_then(|at| now.get(at));
            let expected = |index| value(index).map_or([0; 8], |value| value.to_le_bytes());
            content::compare_words(pair.outgoing(), expected)
                .map_err(|found| found.on(one.flow.number, repetition))?;
        }
        if Diffusion::PICTURES_AFTER.contains(&own.repetitions) {
            own.take(pair.outgoing());
        }
        Ok(())
    }

    fn work(
        &mut self,
        index: usize,
        _one: ThreadFlow<'_>,
        buffer: &mut [u8],
        repetition: u64,
    ) -> Result<Duration, TrafficError> {
        let own = &mut self.pairs[index];
        own.repetitions = repetition + 1;
        if let Some(stepper) = &mut self.stepper {
            let begun = Instant::now();
            stepper.step(buffer);
            own.worked += begun.elapsed();
        }
        // The work is a part of the cycle.
        Ok(Duration::ZERO)
    }

    fn leave(&mut self, index: usize, buffer: &mut [u8]) -> Option<GridRecord> {
        let own = self.pairs.get_mut(index)?;
        if !Diffusion::PICTURES_AFTER.contains(&own.repetitions) {
            own.take(buffer);
        }
        own.pictures.truncate(own.taken);
        Some(GridRecord {
            repetitions: own.repetitions,
            checksum: checksum(buffer),
            work_ns: own.worked.into(),
            vectors: self.stepper.as_ref().map(Stepper::vectors),
            pictures: std::mem::take(&mut own.pictures),
        })
    }
}
