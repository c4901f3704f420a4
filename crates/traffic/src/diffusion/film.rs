//! Pictures of a grid without a network: what both ends of a pair do to it, done in one place. They need not travel
//! with a trial, whose every byte counts.

use linerate_model::sample::Film;
use linerate_model::units::Bytes;
use linerate_model::workload::Diffusion;

use super::{Stepper, blank_picture, checksum, fill, set_boundary, take_picture};

/// The grid in a buffer of `bytes` after each of `after` repetitions (there and back with the work), ascending. Takes
/// as much memory as the buffer, and a step's time for each repetition.
pub fn film(bytes: Bytes, after: &[u64]) -> Film {
    let side = Diffusion::side_of(bytes);
    let mut buffer = vec![0; usize::try_from(bytes.as_u64()).unwrap_or(0)];
    fill(&mut buffer, side);
    let mut stepper = Stepper::new(side);
    let mut pictures = Vec::new();
    let mut made = 0;
    for &repetitions in after {
        while made < repetitions {
            set_boundary(&mut buffer, side);
            stepper.step(&mut buffer);
            made += 1;
        }
        let mut picture = blank_picture(side);
        take_picture(&mut picture, &mut buffer, made);
        pictures.push(picture);
    }
    Film {
        pictures,
        checksum: checksum(&buffer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diffusion::{cells_of, step_plainly};

    #[test]
    fn a_film_is_the_plain_reference_step_by_step() {
        let (bytes, side) = (Bytes::new(2_100), 16);
        let film = film(bytes, &[1, 7]);
        let mut buffer = vec![0; 2_100];
        fill(&mut buffer, side);
        for number in 1..=7 {
            set_boundary(&mut buffer, side);
            let cells = cells_of(&mut buffer, side).expect("there is room");
            let now: Vec<f64> = cells.iter().map(|cell| f64::from_le_bytes(*cell)).collect();
            let mut next = now.clone();
            step_plainly(&now, &mut next, side);
            for (cell, value) in cells.iter_mut().zip(&next) {
                *cell = value.to_le_bytes();
            }
            if number == 1 {
                let middle = &next[side / 2 * side..][..side];
                let drawn: Vec<f64> = film.pictures[0].cells().collect();
                assert_eq!(drawn, middle);
            }
        }
        assert_eq!(film.pictures[1].repetitions, 7);
        assert_eq!(film.checksum, checksum(&buffer));
    }
}
