//! Noise as hosts make it, with a known truth behind it.

use linerate_stats::Random;

/// A shape of noise on single trials. Each gives a factor on the true rate; the factors of before and
/// after come from the same shape, so the true log ratio of a pair is the true effect.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Noise {
    /// Normal, with this standard deviation.
    Normal(f64),
    /// The exponential of a normal: leans to high rates.
    Lognormal(f64),
    /// Never above the clean rate, often a little and at times far below: a queue that fills.
    Dips(f64),
    /// Normal, and with this probability a trial at half speed: a noisy neighbour.
    HalfSpeed(f64),
    /// One of two speeds 20 % apart: which core or queue the flow fell on.
    TwoSpeeds,
}

impl Noise {
    /// The shapes that differ on log ratios. Lognormal noise of any size is the first of them there.
    pub(crate) const ALL: [Self; 4] = [
        Self::Normal(0.02),
        Self::Dips(0.05),
        Self::HalfSpeed(0.05),
        Self::TwoSpeeds,
    ];

    fn factor(self, random: &mut Random) -> f64 {
        match self {
            // Half the clean rate is the worst a ten per cent noise is let do: rates are positive.
            Self::Normal(deviation) => (1.0 + deviation * random.normal()).max(0.5),
            Self::Lognormal(deviation) => (deviation * random.normal()).exp(),
            Self::Dips(depth) => (depth * (1.0 - random.unit()).ln()).exp(),
            Self::HalfSpeed(probability) => {
                let slow = if random.unit() < probability {
                    0.5
                } else {
                    1.0
                };
                slow * Self::Normal(0.03).factor(random)
            }
            Self::TwoSpeeds => {
                let slow = if random.unit() < 0.5 { 0.8 } else { 1.0 };
                slow * Self::Normal(0.01).factor(random)
            }
        }
    }

    /// One experiment: `count` pairs round 40 Gbit/s, the second of each truly higher by `effect`.
    /// What the two trials of a pair share drifts from pair to pair, as hosts do.
    pub(crate) fn pairs(self, count: usize, effect: f64, random: &mut Random) -> Vec<(f64, f64)> {
        let mut rate = 4e10;
        let mut pairs = Vec::with_capacity(count);
        for _ in 0..count {
            rate *= 1.0 + 0.05 * random.normal();
            let before = rate * self.factor(random);
            let after = rate * (1.0 + effect) * self.factor(random);
            pairs.push((before, after));
        }
        pairs
    }
}

/// The largest number of misses in `experiments` that a true rate of `rate` explains: three and a
/// half binomial standard deviations above it, which one check in four thousand exceeds by chance.
/// Seeds are fixed, so a check that passes today passes tomorrow.
#[expect(clippy::cast_precision_loss, reason = "some thousand experiments")]
pub(crate) fn most_misses(experiments: usize, rate: f64) -> f64 {
    let experiments = experiments as f64;
    experiments * rate + 3.5 * (experiments * rate * (1.0 - rate)).sqrt()
}
