//! Of an experiment's page: the grid of a diffusion, recomputed by the code that the trials ran, and compared
//! with the checksum that both ends reported.

use std::cmp::Reverse;

use super::data::{Grid, LabData};
use crate::html::{escape, section};
use crate::picture;

/// Cells that are stepped for a page: some tenths of a second.
const CELLS_STEPPED: u64 = 500_000_000;
/// A larger buffer is not made for a page.
const BYTES_MAX: u64 = 64 << 20;

/// Cells times repetitions of a grid that is recomputed.
fn cost(grid: &Grid, repetitions: u64) -> u64 {
    let side = grid.diffusion.side() as u64;
    (side * side).saturating_mul(repetitions)
}

/// The grid that is shown: a small one, and of its trials the one with the most repetitions that can be recomputed.
fn shown<'g>(grids: impl Iterator<Item = &'g Grid>) -> Option<&'g Grid> {
    grids
        .filter(|grid| grid.diffusion.work && grid.diffusion.bytes.as_u64() <= BYTES_MAX)
        .min_by_key(|grid| {
            let too_long = cost(grid, grid.repetitions) > CELLS_STEPPED;
            (grid.diffusion.bytes, too_long, Reverse(grid.repetitions))
        })
}

/// The grid of a run that its page shows, and after which repetitions; none of a run without the work.
pub(super) fn film_of(seen: &LabData) -> Option<(&Grid, Vec<u64>)> {
    let grid = shown(seen.trials().filter_map(|trial| trial.grid.as_ref()))?;
    let last = grid.repetitions;
    let mut after: Vec<u64> = [100, 10_000, last]
        .into_iter()
        .filter(|one| *one > 0 && *one <= last && cost(grid, *one) <= CELLS_STEPPED)
        .collect();
    after.sort_unstable();
    after.dedup();
    (!after.is_empty()).then_some((grid, after))
}

/// The section; none without a film.
pub(super) fn grids(seen: &LabData) -> String {
    let (Some((grid, after)), Some(film)) = (film_of(seen), &seen.film) else {
        return String::new();
    };
    let last = grid.repetitions;
    let all = || seen.trials().filter_map(|trial| trial.grid.as_ref());
    let ends = (all().count(), all().filter(|grid| grid.same).count());
    let both = if ends.0 == ends.1 {
        format!("Both ends reported the same grid in all {} trials.", ends.0)
    } else {
        format!(
            "Both ends reported the same grid in {} of {} trials: in the others, memory, a device \
             or the path corrupted data.",
            ends.1, ends.0
        )
    };
    let computed = match after.last() {
        Some(end) if *end == last && film.checksum == grid.checksum => format!(
            "The last image is bit-identical to the final grid of a trial: checksum {}.",
            grid.checksum
        ),
        Some(end) if *end == last => format!(
            "After {last} repetitions the checksum should be {}, but a trial ended with {}: its \
             data was corrupted or another version computed it.",
            film.checksum, grid.checksum
        ),
        _ => {
            format!("A trial ended after {last} repetitions, too many to recompute for this page.")
        }
    };
    let mut pictures: Vec<String> = film.pictures.iter().map(picture::map).collect();
    pictures.push(picture::section(&film.pictures));
    section(
        "grid",
        "The grid",
        "Recomputed for this page with the same steps in the same order: heat spreads from the \
         square in the middle over a cold plate. The images show block means, the lines every \
         cell of the middle row.",
        &format!(
            "<p>{}</p><p>{}</p><div class=\"pictures\"><div>{}</div></div>",
            escape(&both),
            escape(&computed),
            pictures.join("</div><div>")
        ),
    )
}

#[cfg(test)]
mod tests {
    use linerate_model::sample::Checksum;
    use linerate_model::units::Bytes;
    use linerate_model::workload::Diffusion;

    use super::*;

    fn grid(bytes: u64, repetitions: u64, work: bool) -> Grid {
        Grid {
            diffusion: Diffusion {
                bytes: Bytes::new(bytes),
                repetitions: None,
                work,
                data_check: false,
                pictures: false,
            },
            repetitions,
            checksum: Checksum(1),
            same: true,
        }
    }

    #[test]
    fn the_grid_that_is_shown_is_one_that_can_be_made_again() {
        let all = [
            grid(1 << 20, 100, true),
            grid(1 << 18, 100, true),
            grid(1 << 18, 9_000, true),
            grid(1 << 18, 9_000_000, true),
            grid(1 << 12, 100, false),
            grid(1 << 30, 1, true),
        ];
        let shown = shown(all.iter()).expect("there is one");
        assert_eq!(shown, &all[2]);
    }
}
