//! A robust additive model of a table that may have holes: value = center + row + column + residual.
//!
//! Fitted by medians in turns (J. W. Tukey, "Exploratory Data Analysis", 1977, chapter 11, "median polish"), so that less
//! than half of a row or a column may be off without moving its effect. [`shift`] is the interval of the median of a few
//! residuals when the spread of one of them is known from all of them.

use crate::Interval;
use crate::distribution::student_critical;

/// The effects move by less than this in the last turn: 0.005 % of a rate, far below any effect that is reported.
const SETTLED: f64 = 5e-5;
/// Median polish converges in a few turns; this bounds tables on which it alternates.
const TURNS_MAX: usize = 12;
/// The standard deviation of a normal distribution over the median of its absolute values.
const MEDIAN_ABSOLUTE: f64 = 1.482_6;
/// The variance of a standard deviation over that of the median absolute value, of normal values (P. J. Rousseeuw and
/// C. Croux, "Alternatives to the median absolute deviation", JASA 88(424), 1993).
const MEDIAN_ABSOLUTE_EFFICIENCY: f64 = 0.37;
/// A handful of normal values rarely scatters by this factor more than it should.
const CLEARLY_WIDER: f64 = 2.0;
/// The variance of a median over that of a mean, of normal values.
pub const MEDIAN_VARIANCE: f64 = std::f64::consts::FRAC_PI_2;

/// One value of a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    /// Its row, from 0.
    pub row: u32,
    /// Its column, from 0.
    pub column: u32,
    /// The value.
    pub value: f32,
}

/// A fitted model.
#[derive(Debug, Clone, PartialEq)]
pub struct TwoWay {
    /// The value of a cell whose row and column are like most.
    pub center: f64,
    /// The effect of each row; `None` for one without a value.
    pub rows: Vec<Option<f64>>,
    /// The effect of each column.
    pub columns: Vec<Option<f64>>,
    /// The standard deviation of one residual; `None` if the table has no more values than effects.
    pub scale: Option<f64>,
    /// The degrees of freedom of the scale.
    pub freedom: f64,
}

/// The cells of each row with their columns, or of each column with their rows: contiguous, because a table of 4,096 hosts
/// does not fit into any cache.
struct Lines {
    starts: Vec<u32>,
    /// The position on the other axis, and the value.
    cells: Vec<(u32, f32)>,
}

impl Lines {
    fn of(count: usize, cells: &[Cell], line: impl Fn(&Cell) -> (u32, u32)) -> Self {
        let mut starts = vec![0_u32; count + 1];
        for cell in cells {
            starts[line(cell).0 as usize + 1] += 1;
        }
        for index in 0..count {
            starts[index + 1] += starts[index];
        }
        let mut next = starts.clone();
        let mut sorted = vec![(0, 0.0); cells.len()];
        for cell in cells {
            let (own, other) = line(cell);
            let place = &mut next[own as usize];
            sorted[*place as usize] = (other, cell.value);
            *place += 1;
        }
        Self {
            starts,
            cells: sorted,
        }
    }

    fn line(&self, index: usize) -> &[(u32, f32)] {
        &self.cells[self.starts[index] as usize..self.starts[index + 1] as usize]
    }

    /// Sets the effect of each line to the median of what the center and the effects of the other axis leave, and moves the
    /// median of the effects into the center. The largest change of an effect is returned.
    fn update(
        &self,
        effects: &mut [Option<f64>],
        others: &[Option<f64>],
        center: &mut f64,
        scratch: &mut Vec<f64>,
    ) -> f64 {
        let others: Vec<f64> = others.iter().map(|one| one.unwrap_or(0.0)).collect();
        let mut largest = 0.0_f64;
        for (index, effect) in effects.iter_mut().enumerate() {
            scratch.clear();
            let left = self.line(index).iter();
            scratch.extend(
                left.map(|(other, value)| f64::from(*value) - *center - others[*other as usize]),
            );
            let new = take_median(scratch);
            largest = largest.max((new.unwrap_or(0.0) - effect.unwrap_or(0.0)).abs());
            *effect = new;
        }
        *center += center_of(effects);
        largest
    }
}

/// The median of values, which are reordered and not sorted: of millions of values that is faster. `None` of no value.
pub fn take_median(values: &mut [f64]) -> Option<f64> {
    let middle = values.len() / 2;
    if values.is_empty() {
        return None;
    }
    let is_odd = !values.len().is_multiple_of(2);
    let (below, upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    if is_odd {
        return Some(*upper);
    }
    let lower = below.iter().copied().max_by(f64::total_cmp)?;
    Some(f64::midpoint(lower, *upper))
}

fn center_of(effects: &mut [Option<f64>]) -> f64 {
    let mut known: Vec<f64> = effects.iter().flatten().copied().collect();
    let center = take_median(&mut known).unwrap_or(0.0);
    for effect in effects.iter_mut().flatten() {
        *effect -= center;
    }
    center
}

impl TwoWay {
    /// The model of a table with this number of rows and columns; the values must be finite.
    pub fn fit(rows: usize, columns: usize, cells: &[Cell]) -> Self {
        let by_row = Lines::of(rows, cells, |cell| (cell.row, cell.column));
        let by_column = Lines::of(columns, cells, |cell| (cell.column, cell.row));
        let mut scratch: Vec<f64> = cells.iter().map(|cell| f64::from(cell.value)).collect();
        let mut model = Self {
            center: take_median(&mut scratch).unwrap_or(0.0),
            rows: vec![None; rows],
            columns: vec![None; columns],
            scale: None,
            freedom: 0.0,
        };
        // All values together need more room than a line.
        drop(scratch);
        let mut scratch = Vec::new();
        for _ in 0..TURNS_MAX {
            let Self {
                center,
                rows,
                columns,
                ..
            } = &mut model;
            let moved = by_row.update(rows, columns, center, &mut scratch);
            let moved = moved.max(by_column.update(columns, rows, center, &mut scratch));
            if moved < SETTLED {
                break;
            }
        }
        drop((by_row, by_column));
        if let Some((scale, freedom)) = model.spread(cells) {
            (model.scale, model.freedom) = (Some(scale), freedom);
        }
        model
    }

    /// What the model leaves of a cell.
    pub fn residual(&self, cell: &Cell) -> f64 {
        let effect = |all: &[Option<f64>], index: u32| all[index as usize].unwrap_or(0.0);
        f64::from(cell.value)
            - self.center
            - effect(&self.rows, cell.row)
            - effect(&self.columns, cell.column)
    }

    /// A fit by medians makes one residual zero for each effect: the median absolute residual of the others.
    fn spread(&self, cells: &[Cell]) -> Option<(f64, f64)> {
        let known = |all: &[Option<f64>]| all.iter().flatten().count();
        let effects = (known(&self.rows) + known(&self.columns)).saturating_sub(1);
        let free = cells.len().checked_sub(effects).filter(|free| *free > 0)?;
        let mut sizes: Vec<f64> = cells.iter().map(|cell| self.residual(cell).abs()).collect();
        let middle = effects + free / 2;
        let (_, size, _) = sizes.select_nth_unstable_by(middle, f64::total_cmp);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52 cells")]
        let freedom = free as f64 * MEDIAN_ABSOLUTE_EFFICIENCY;
        Some((*size * MEDIAN_ABSOLUTE, freedom))
    }
}

/// The standard deviation of values about their median, from the median of the distances, and its degrees of freedom. `None`
/// of fewer than two values.
pub fn scatter(values: &[f64]) -> Option<(f64, f64)> {
    let median = take_median(&mut values.to_vec())?;
    let mut sizes: Vec<f64> = values.iter().map(|value| (value - median).abs()).collect();
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 values")]
    let freedom = (values.len() - 1) as f64 * MEDIAN_ABSOLUTE_EFFICIENCY;
    let size = take_median(&mut sizes)?;
    (values.len() > 1).then_some((size * MEDIAN_ABSOLUTE, freedom))
}

/// How much one value scatters, as known from many others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The standard deviation.
    pub scale: f64,
    /// Its degrees of freedom.
    pub freedom: f64,
    /// The factor on the variance of a mean of values that resemble the one before ([`inflation`]); 1 if independent.
    pub inflation: f64,
    /// The variance of what all values have in common.
    pub common: f64,
}

/// The median of values and its interval at `level`. A larger scatter of the values themselves widens it. `None` without
/// a value. Without a scale (0) it is that of the values.
pub fn shift(values: &[f64], spread: Spread, level: f64) -> Option<(f64, Interval)> {
    let mut sorted = values.to_vec();
    let median = take_median(&mut sorted)?;
    let mut sizes: Vec<f64> = values.iter().map(|value| (value - median).abs()).collect();
    let own = take_median(&mut sizes).unwrap_or(0.0) * MEDIAN_ABSOLUTE;
    // The spread of a few values is itself uncertain: only one that is clearly larger counts, and then widens the interval.
    let is_wider = own > spread.scale * CLEARLY_WIDER;
    #[expect(clippy::cast_precision_loss, reason = "a handful of values")]
    let count = values.len() as f64;
    let scale = if is_wider { own } else { spread.scale };
    let of_values = MEDIAN_VARIANCE * spread.inflation * scale.powi(2) / count;
    let freedom = if is_wider {
        spread.freedom.min(count - 1.0)
    } else {
        spread.freedom
    };
    let error = (of_values + spread.common).sqrt();
    let wide = student_critical((1.0 - level) / 2.0, freedom.max(1.0)) * error;
    let interval = Interval {
        low: median - wide,
        high: median + wide,
        level,
    };
    Some((median, interval))
}

/// The factor by which the variance of a mean of `count` values is larger than that of independent ones, if each
/// correlates by `lag_one` with the one before it (an autoregressive process of first order).
pub fn inflation(lag_one: f64, count: usize) -> f64 {
    let lag_one = lag_one.clamp(0.0, 0.95);
    #[expect(clippy::cast_precision_loss, reason = "a handful of values")]
    let weight = |lag: usize| (1.0 - lag as f64 / count as f64) * lag_one.powf(lag as f64);
    1.0 + 2.0 * (1..count).map(weight).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Random, Seed};

    fn table(count: u32, value: impl Fn(u32, u32) -> f64) -> Vec<Cell> {
        let pairs = (0..count).flat_map(|row| (0..count).map(move |column| (row, column)));
        let off = pairs.filter(|(row, column)| row != column);
        off.map(|(row, column)| Cell {
            row,
            column,
            #[expect(clippy::cast_possible_truncation, reason = "cells are f32")]
            value: value(row, column) as f32,
        })
        .collect()
    }

    fn close(value: Option<f64>, expected: f64) -> bool {
        value.is_some_and(|value| (value - expected).abs() < 1e-4)
    }

    #[test]
    fn an_additive_table_is_recovered_exactly() {
        let row = |row| if row == 3 { -0.2 } else { 0.0 };
        let column = |column| if column == 5 { -0.1 } else { 0.0 };
        let cells = table(8, |one, other| 7.0 + row(one) + column(other));
        let model = TwoWay::fit(8, 8, &cells);
        assert!((model.center - 7.0).abs() < 1e-4);
        assert!(close(model.rows[3], -0.2) && close(model.rows[5], 0.0));
        assert!(close(model.columns[5], -0.1) && close(model.columns[3], 0.0));
    }

    #[test]
    fn one_wrong_cell_moves_no_effect() {
        let cells = table(
            8,
            |row, column| {
                if (row, column) == (1, 2) { -3.0 } else { 0.0 }
            },
        );
        let model = TwoWay::fit(8, 8, &cells);
        assert!(close(model.rows[1], 0.0) && close(model.columns[2], 0.0));
        let wrong = cells.iter().find(|cell| (cell.row, cell.column) == (1, 2));
        assert!((model.residual(wrong.expect("a cell")) + 3.0).abs() < 1e-4);
    }

    #[test]
    fn the_scale_is_that_of_the_noise() {
        let mut random = Random::new(Seed(3));
        let mut all = Vec::new();
        for count in [8, 16, 32] {
            for _ in 0..100 {
                let noise: Vec<f64> = (0..count * count).map(|_| random.normal()).collect();
                let cells = table(count, |row, column| noise[(row * count + column) as usize]);
                let model = TwoWay::fit(count as usize, count as usize, &cells);
                all.push(model.scale.expect("a scale"));
            }
            let mean = all.iter().sum::<f64>() / 100.0;
            assert!((0.9..1.15).contains(&mean), "{count}: {mean}");
            all.clear();
        }
    }

    #[test]
    fn a_row_without_a_value_has_no_effect_and_a_full_table_is_needed_for_a_scale() {
        let cells = table(3, |_, _| 1.0);
        let model = TwoWay::fit(4, 3, &cells);
        assert_eq!(model.rows[3], None);
        let few = TwoWay::fit(2, 2, &table(2, |_, _| 1.0));
        assert_eq!(few.scale, None);
        assert_eq!(TwoWay::fit(2, 2, &[]).rows, [None, None]);
    }

    #[test]
    fn the_interval_of_a_shift_covers_the_truth() {
        let mut random = Random::new(Seed(5));
        let spread = Spread {
            scale: 1.0,
            freedom: 100.0,
            inflation: 1.0,
            common: 0.0,
        };
        let mut covered = 0;
        for _ in 0..2_000 {
            let values: Vec<f64> = (0..8).map(|_| random.normal()).collect();
            let (_, interval) = shift(&values, spread, 0.95).expect("values");
            covered += u32::from(interval.contains(0.0));
        }
        assert!((1_890..=1_990).contains(&covered), "{covered}");
    }

    #[test]
    fn values_that_resemble_the_one_before_widen_the_interval() {
        assert!((inflation(0.0, 8) - 1.0).abs() < 1e-12);
        // Of an infinite number of values (1 + r) / (1 - r).
        assert!((inflation(0.5, 10_000) - 3.0).abs() < 0.01);
        assert!(inflation(-0.5, 8) <= 1.0);
    }
}
