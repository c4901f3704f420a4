//! A surrogate model of a response over settings, from some noisy trials, and the next trial to run.
//!
//! A Gaussian process over points that are levels of factors, where levels have no order: two points are similar if
//! they have levels in common (C. E. Rasmussen, C. K. I. Williams, "Gaussian Processes for Machine Learning", 2006,
//! chapters 2 and 5; the Hamming kernel of F. Hutter, "Automated configuration of algorithms", 2009). The weight of
//! each factor is chosen by maximum likelihood. The next trial maximizes the expected improvement (D. R. Jones, M.
//! Schonlau, W. J. Welch, "Efficient global optimization of expensive black-box functions", Journal of Global
//! Optimization 13, 1998).

use crate::Random;
use crate::distribution::{normal_cdf, normal_density};
use crate::error::{StatsError, check_values};
use crate::summary::{count, deviation_of, mean_of};

/// The minimum number of trials for a fit.
const FEWEST_POINTS: usize = 4;
/// The candidate weights of a factor: how dissimilar two points are that differ in it.
const WEIGHTS: [f64; 5] = [0.003, 0.03, 0.1, 0.4, 1.5];
/// The candidate noise levels of a trial, as a share of the variance of the surface.
const NOISES: [f64; 4] = [0.003, 0.02, 0.1, 0.5];
/// Rounds of coordinate-wise optimization of the weights.
const ROUNDS: usize = 2;
/// Random starting points for the search for the next trial.
const STARTS: usize = 64;

/// A point: the level of each factor, counted from 0.
pub type Point = Vec<usize>;

/// A fitted surface.
#[derive(Debug, Clone)]
pub struct Surrogate {
    points: Vec<Point>,
    /// The weight of each factor.
    weights: Vec<f64>,
    centre: f64,
    scale: f64,
    /// Variance of the surface and of the noise, for values standardized to variance 1.
    variance: f64,
    noise: f64,
    /// The Cholesky factor of the correlation of the points, row by row.
    factor: Vec<Vec<f64>>,
    /// The correlation's inverse times the values.
    pull: Vec<f64>,
}

/// The prediction at a point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guess {
    /// The mean.
    pub mean: f64,
    /// Its standard deviation, without the noise of a trial.
    pub deviation: f64,
}

impl Surrogate {
    /// Fits a surface to `values` at `points`.
    pub fn fit(points: &[Point], values: &[f64]) -> Result<Self, StatsError> {
        check_values(values, FEWEST_POINTS.max(points.len()))?;
        let factors = points.iter().map(Vec::len).min().unwrap_or(0);
        let (_, _, standard) = standardised(values);
        let mut best: Option<(f64, Vec<f64>, f64)> = None;
        for weight in WEIGHTS {
            for noise in NOISES {
                better(&mut best, points, &standard, &vec![weight; factors], noise);
            }
        }
        let (_, mut weights, mut noise) = best.clone().unwrap_or_default();
        for _ in 0..ROUNDS {
            for factor in 0..factors {
                for weight in WEIGHTS {
                    let before = std::mem::replace(&mut weights[factor], weight);
                    if !better(&mut best, points, &standard, &weights, noise) {
                        weights[factor] = before;
                    }
                }
            }
            for other in NOISES {
                if better(&mut best, points, &standard, &weights, other) {
                    noise = other;
                }
            }
        }
        Self::with(points, values, weights, noise)
    }

    /// The surface with more values and the same weights: much cheaper than a fit.
    pub fn again(&self, points: &[Point], values: &[f64]) -> Result<Self, StatsError> {
        check_values(values, FEWEST_POINTS.max(points.len()))?;
        Self::with(points, values, self.weights.clone(), self.noise)
    }

    /// The number of trials it was fitted to.
    pub fn seen(&self) -> usize {
        self.points.len()
    }

    fn with(
        points: &[Point],
        values: &[f64],
        weights: Vec<f64>,
        noise: f64,
    ) -> Result<Self, StatsError> {
        let (centre, scale, standard) = standardised(values);
        let solved = Solved::of(points, &standard, &weights, noise)
            .ok_or(StatsError::NotFinite { index: 0 })?;
        Ok(Self {
            points: points.to_vec(),
            weights,
            centre,
            scale,
            variance: solved.variance,
            noise,
            factor: solved.factor,
            pull: solved.pull,
        })
    }

    /// The prediction at a point.
    pub fn guess(&self, point: &[usize]) -> Guess {
        let alike: Vec<f64> = (self.points.iter())
            .map(|seen| correlation(seen, point, &self.weights))
            .collect();
        let mean = dot(&alike, &self.pull);
        let solved = solve_lower(&self.factor, &alike);
        let left = (1.0 - dot(&solved, &solved)).max(0.0);
        Guess {
            mean: self.centre + self.scale * mean,
            deviation: self.scale * (self.variance * left).sqrt(),
        }
    }

    /// The standard deviation of a trial's noise.
    pub fn noise(&self) -> f64 {
        self.scale * (self.variance * self.noise).sqrt()
    }

    /// The expected improvement of a trial at `point` over `best`.
    pub fn expected_improvement(&self, point: &[usize], best: f64) -> f64 {
        let Guess { mean, deviation } = self.guess(point);
        let gain = mean - best;
        if deviation <= 0.0 {
            return gain.max(0.0);
        }
        let z = gain / deviation;
        gain * normal_cdf(z) + deviation * normal_density(z)
    }

    /// The highest prediction at any point that was tried.
    fn best_seen(&self) -> f64 {
        let guesses = self.points.iter().map(|point| self.guess(point).mean);
        guesses.fold(f64::NEG_INFINITY, f64::max)
    }

    /// The next point to try, for factors with `levels` levels.
    pub fn next(&self, levels: &[usize], random: &mut Random) -> Point {
        let best = self.best_seen();
        self.climb(levels, random, |point| {
            self.expected_improvement(point, best)
        })
    }

    /// The point with the highest prediction.
    pub fn top(&self, levels: &[usize], random: &mut Random) -> Point {
        self.climb(levels, random, |point| self.guess(point).mean)
    }

    /// `point` with every factor set to level 0 if that costs less than `tolerance`, the cheapest first.
    pub fn simplest(&self, mut point: Point, tolerance: f64) -> Point {
        let top = self.guess(&point).mean;
        loop {
            let changed = (0..point.len()).filter(|factor| point[*factor] != 0);
            let without = changed.map(|factor| {
                let mut without = point.clone();
                without[factor] = 0;
                (self.guess(&without).mean, without)
            });
            match without.max_by(|one, other| one.0.total_cmp(&other.0)) {
                Some((mean, without)) if mean >= top - tolerance => point = without,
                _ => return point,
            }
        }
    }

    /// The best point found by changing one factor at a time, from the points that were tried and from random ones.
    fn climb(
        &self,
        levels: &[usize],
        random: &mut Random,
        height: impl Fn(&[usize]) -> f64,
    ) -> Point {
        let mut starts = self.points.clone();
        for _ in 0..STARTS {
            starts.push(levels.iter().map(|levels| random.index(*levels)).collect());
        }
        let mut starts: Vec<(f64, Point)> = starts
            .into_iter()
            .map(|point| (height(&point), point))
            .collect();
        starts.sort_by(|one, other| other.0.total_cmp(&one.0));
        starts.truncate(6);
        let climbed = starts.into_iter().map(|(mut high, mut point)| {
            loop {
                let mut step: Option<(f64, usize, usize)> = None;
                for (factor, levels) in levels.iter().enumerate() {
                    let here = point[factor];
                    for level in (0..*levels).filter(|level| *level != here) {
                        point[factor] = level;
                        let there = height(&point);
                        if there > step.map_or(high, |(most, ..)| most) {
                            step = Some((there, factor, level));
                        }
                    }
                    point[factor] = here;
                }
                let Some((there, factor, level)) = step else {
                    return (high, point);
                };
                high = there;
                point[factor] = level;
            }
        });
        let highest = climbed.max_by(|one, other| one.0.total_cmp(&other.0));
        highest.map_or_else(|| vec![0; levels.len()], |(_, point)| point)
    }
}

/// The mean of the values, their spread, and the standardized values.
fn standardised(values: &[f64]) -> (f64, f64, Vec<f64>) {
    let centre = mean_of(values);
    let spread = deviation_of(values);
    let scale = if spread > 0.0 { spread } else { 1.0 };
    let standard = values.iter().map(|value| (value - centre) / scale);
    (centre, scale, standard.collect())
}

/// Keeps these weights and this noise if their likelihood is the highest so far.
fn better(
    best: &mut Option<(f64, Vec<f64>, f64)>,
    points: &[Point],
    values: &[f64],
    weights: &[f64],
    noise: f64,
) -> bool {
    let Some(solved) = Solved::of(points, values, weights, noise) else {
        return false;
    };
    let likelihood = solved.likelihood();
    let is_better = best.as_ref().is_none_or(|(most, ..)| likelihood > *most);
    if is_better {
        *best = Some((likelihood, weights.to_vec(), noise));
    }
    is_better
}

/// The linear system of a surface with some weights and noise.
struct Solved {
    factor: Vec<Vec<f64>>,
    pull: Vec<f64>,
    variance: f64,
}

impl Solved {
    /// `None` if rounding has made it singular.
    fn of(points: &[Point], values: &[f64], weights: &[f64], noise: f64) -> Option<Self> {
        let rows = points.iter().enumerate().map(|(row, one)| {
            let row_of = points[..=row].iter().enumerate().map(|(column, other)| {
                let own = if row == column { noise } else { 0.0 };
                correlation(one, other, weights) + own
            });
            row_of.collect()
        });
        let factor = cholesky(rows.collect())?;
        let half = solve_lower(&factor, values);
        let variance = (dot(&half, &half) / count(values.len())).max(1e-12);
        let pull = solve_upper(&factor, half);
        Some(Self {
            factor,
            pull,
            variance,
        })
    }

    /// The log-likelihood of the values, up to a constant.
    fn likelihood(&self) -> f64 {
        let halves = (self.factor.iter().enumerate()).map(|(row, values)| values[row].ln());
        -halves.sum::<f64>() - count(self.factor.len()) / 2.0 * self.variance.ln()
    }
}

fn correlation(one: &[usize], other: &[usize], weights: &[f64]) -> f64 {
    let differing = one.iter().zip(other).zip(weights);
    let distance: f64 = differing
        .filter(|((one, other), _)| one != other)
        .map(|(_, weight)| weight)
        .sum();
    (-distance).exp()
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

/// The Cholesky factor of a matrix; `None` if there is none.
fn cholesky(mut rows: Vec<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    for row in 0..rows.len() {
        let (above, below) = rows.split_at_mut(row);
        let own = &mut below[0];
        for column in 0..row {
            let sum = dot(&own[..column], &above[column][..column]);
            own[column] = (own[column] - sum) / above[column][column];
        }
        let square = own[row] - dot(&own[..row], &own[..row]);
        if !(square.is_finite() && square > 0.0) {
            return None;
        }
        own[row] = square.sqrt();
    }
    Some(rows)
}

fn solve_lower(factor: &[Vec<f64>], values: &[f64]) -> Vec<f64> {
    let mut solved: Vec<f64> = Vec::with_capacity(values.len());
    for (row, value) in factor.iter().zip(values) {
        let at = solved.len();
        let known = dot(&row[..at], &solved);
        solved.push((value - known) / row[at]);
    }
    solved
}

fn solve_upper(factor: &[Vec<f64>], mut values: Vec<f64>) -> Vec<f64> {
    for row in (0..values.len()).rev() {
        values[row] /= factor[row][row];
        let own = values[row];
        for (value, part) in values[..row].iter_mut().zip(&factor[row]) {
            *value -= part * own;
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seed;
    use crate::screening::plackett_burman;

    /// Searches a surface with this many trials, a screening first; returns the final point.
    fn search(
        levels: &[usize],
        trials: usize,
        seed: u64,
        surface: impl Fn(&[usize]) -> f64,
    ) -> Point {
        let mut random = Random::new(Seed(seed));
        let screening = plackett_burman(levels.len()).expect("factors");
        let mut points: Vec<Point> = Vec::new();
        for trial in screening {
            let changed = trial.iter().zip(levels).map(|(changed, levels)| {
                if *changed {
                    1 + random.index(levels - 1)
                } else {
                    0
                }
            });
            points.push(changed.collect());
        }
        let seen = |point: &Point, random: &mut Random| surface(point) + 0.03 * random.normal();
        let mut values: Vec<f64> = (points.iter())
            .map(|point| seen(point, &mut random))
            .collect();
        while points.len() < trials {
            let surrogate = Surrogate::fit(&points, &values).expect("finite values");
            let next = surrogate.next(levels, &mut random);
            values.push(seen(&next, &mut random));
            points.push(next);
        }
        let surrogate = Surrogate::fit(&points, &values).expect("finite values");
        let tolerance = 0.005_f64.max(surrogate.noise() / 2.0);
        surrogate.simplest(surrogate.top(levels, &mut random), tolerance)
    }

    #[test]
    fn the_best_of_settings_that_multiply_is_nearly_reached() {
        let levels = [3, 2, 2, 4, 2, 2, 3, 2, 2, 2];
        let surface = |point: &[usize]| {
            let gain = |factor: usize, level: usize, gain: f64| {
                if point[factor] == level { gain } else { 0.0 }
            };
            gain(0, 2, 0.5) + gain(3, 1, 0.3) + gain(3, 3, 0.4) + gain(5, 1, 0.2)
                - gain(6, 1, 0.4)
                - gain(8, 1, 0.3)
        };
        let reached = (0..10).filter(|seed| surface(&search(&levels, 45, *seed, surface)) >= 1.05);
        let reached = reached.count();
        assert!(reached >= 9, "{reached} of 10 searches reach 95 %");
    }

    #[test]
    fn limits_that_stand_in_a_row_are_all_removed() {
        let levels = [2; 12];
        // The lowest of four limits applies, each removed by changing its factor; a fifth factor halves the rate.
        let surface = |point: &[usize]| {
            let limits = [(0, 1.0), (3, 2.0), (4, 3.0), (7, 5.0)];
            let held = limits.iter().filter(|(factor, _)| point[*factor] == 0);
            let rate = held.map(|(_, rate)| *rate).fold(20.0_f64, f64::min);
            (rate * if point[9] == 1 { 0.5 } else { 1.0 }).ln()
        };
        let reached = (0..10).filter(|seed| {
            let point = search(&levels, 60, *seed, surface);
            surface(&point) >= 19.0_f64.ln()
        });
        let reached = reached.count();
        assert!(reached >= 9, "{reached} of 10 searches reach 95 %");
    }

    #[test]
    fn what_makes_no_difference_is_left_as_it_was() {
        let point = search(
            &[2; 8],
            40,
            1,
            |point| if point[2] == 1 { 1.0 } else { 0.0 },
        );
        assert_eq!(point[2], 1);
        assert!(point.iter().sum::<usize>() <= 2, "{point:?}");
    }

    #[test]
    fn a_surface_goes_through_what_was_seen_without_noise_and_is_unsure_elsewhere() {
        let points: Vec<Point> = (0..8).map(|n| vec![n & 1, n >> 1 & 1, n >> 2]).collect();
        let height = |point: &[usize]| 3.0 * real(point[0]) - real(point[1]);
        let values: Vec<f64> = points.iter().map(|point| height(point)).collect();
        let surrogate = Surrogate::fit(&points[..6], &values[..6]).expect("finite values");
        for (point, value) in points[..6].iter().zip(&values) {
            let guess = surrogate.guess(point);
            assert!((guess.mean - value).abs() < 0.1, "{guess:?} for {value}");
            assert!(guess.deviation < surrogate.guess(&points[7]).deviation + 1e-9);
        }
    }

    fn real(level: usize) -> f64 {
        count(level)
    }

    #[test]
    fn too_few_trials_and_values_that_are_no_numbers_are_refused() {
        let points = vec![vec![0], vec![1], vec![0]];
        assert!(Surrogate::fit(&points, &[1.0, 2.0, 3.0]).is_err());
        let points = vec![vec![0], vec![1], vec![0], vec![1]];
        assert!(Surrogate::fit(&points, &[1.0, f64::NAN, 3.0, 1.0]).is_err());
        let flat = Surrogate::fit(&points, &[2.0; 4]).expect("equal values");
        assert!((flat.guess(&[1]).mean - 2.0).abs() < 1e-9);
    }
}
