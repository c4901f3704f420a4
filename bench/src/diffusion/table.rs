//! From times to rows: each against the bound of the same round.

use linerate_bench_shared::{Trouble, markdown};
use linerate_model::units::Bytes;
use linerate_stats::Seed;
use linerate_stats::effect::paired_relative;
use linerate_stats::summary::median;

/// How often an interval holds the truth.
const LEVEL: f64 = 0.95;
/// Of a grid that is larger than the caches a step takes at most this many times the bound.
const AIM: f64 = 1.1;
/// With fewer rounds nothing is decided.
const ROUNDS_ENOUGH: usize = 9;
/// A cell is read and written.
const BYTES_OF_A_CELL: f64 = 16.0;

/// One contestant.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    side: usize,
    buffer: Bytes,
    name: String,
    ns_per_cell: f64,
    /// Its time over the bound's: the median of the rounds, and the interval of the mean.
    ratio: f64,
    low: f64,
    high: f64,
    /// Whether it keeps to the aim; empty where it has none.
    keeps: Option<&'static str>,
}

impl Row {
    /// Whether it is shown to miss its aim.
    pub(crate) fn misses(&self) -> bool {
        self.keeps == Some("no")
    }
}

/// `own` and `bound` are nanoseconds of each round. `target` is whether the grid is larger than the caches,
/// for a contestant that has an aim in that case.
pub(crate) fn row(
    (side, buffer): (usize, Bytes),
    name: &str,
    own: &[f64],
    bound: &[f64],
    cells: usize,
    (target, seed): (Option<bool>, u64),
) -> Result<Row, Trouble> {
    let failed = |error| Trouble(format!("judge the rounds: {error}"));
    let pairs: Vec<(f64, f64)> = bound.iter().copied().zip(own.iter().copied()).collect();
    let effect = paired_relative(&pairs, LEVEL, Seed(seed)).map_err(failed)?;
    let ratios: Vec<f64> = pairs.iter().map(|(bound, own)| own / bound).collect();
    let (low, high) = (1.0 + effect.interval.low, 1.0 + effect.interval.high);
    let verdict = match (pairs.len() >= ROUNDS_ENOUGH, high <= AIM, low > AIM) {
        (false, ..) => "too few rounds",
        (_, true, _) => "yes",
        (_, _, true) => "no",
        _ => "undecided",
    };
    Ok(Row {
        side,
        buffer,
        name: name.to_owned(),
        ns_per_cell: median(own).map_err(failed)? / count(cells),
        ratio: median(&ratios).map_err(failed)?,
        low,
        high,
        keeps: target.filter(|beyond| *beyond).map(|_| verdict),
    })
}

/// The rows as a Markdown table.
pub(crate) fn text(rows: &[Row]) -> String {
    let mut text = markdown::head(&[
        "buffer",
        "grid",
        "what",
        ">ns per cell",
        ">GB/s read and written",
        ">time / bound, median",
        &format!("{:.0} % interval", LEVEL * 100.0),
        &format!("at most {AIM}"),
    ]);
    for row in rows {
        text += &markdown::row([
            row.buffer.to_string().as_str(),
            &format!("{} x {}", row.side, row.side),
            &row.name,
            &format!("{:.3}", row.ns_per_cell),
            &format!("{:.2}", BYTES_OF_A_CELL / row.ns_per_cell),
            &format!("{:.3}", row.ratio),
            &format!("{:.3} to {:.3}", row.low, row.high),
            row.keeps.unwrap_or("-"),
        ]);
    }
    text.push_str(
        "\nThe bound is in-place scaling or memcpy of the same number of cells, whichever has the faster median. Times are CPU time.\n",
    );
    text
}

#[expect(clippy::cast_precision_loss, reason = "cells of a grid fit in 2^53")]
fn count(cells: usize) -> f64 {
    cells as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(own: f64, rounds: usize, beyond: Option<bool>) -> Row {
        let noise = |round: usize| 1.0 + 0.001 * count(round % 3);
        let bound: Vec<f64> = (0..rounds).map(|round| 100.0 * noise(round)).collect();
        let own: Vec<f64> = (0..rounds).map(|round| own * noise(round + 1)).collect();
        row((8, Bytes::mib(1)), "step", &own, &bound, 64, (beyond, 1)).expect("rounds")
    }

    #[test]
    fn a_step_keeps_to_the_aim_misses_it_or_is_not_decided() {
        assert_eq!(judged(105.0, 9, Some(true)).keeps, Some("yes"));
        assert_eq!(judged(120.0, 9, Some(true)).keeps, Some("no"));
        assert_eq!(judged(110.0, 9, Some(true)).keeps, Some("undecided"));
        assert_eq!(judged(120.0, 8, Some(true)).keeps, Some("too few rounds"));
        assert!(judged(120.0, 9, Some(true)).misses());
    }

    #[test]
    fn within_the_caches_there_is_no_aim() {
        assert_eq!(judged(300.0, 9, Some(false)).keeps, None);
        assert_eq!(judged(300.0, 9, None).keeps, None);
        let text = text(&[judged(300.0, 9, None)]);
        assert!(text.contains("| 8 x 8 | step | 4.69"), "{text}");
    }
}
