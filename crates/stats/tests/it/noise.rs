//! Realistic noise with a known truth.

use std::sync::LazyLock;

use linerate_stats::Random;
use linerate_stats::summary::median;

/// A noise distribution of single trials. Each gives a factor on the true rate; before and after have the same
/// distribution, so the true log ratio of a pair is the true effect.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Noise {
    /// Normal, with this standard deviation.
    Normal(f64),
    /// Lognormal: skewed to high rates.
    Lognormal(f64),
    /// Never above the clean rate, often a little and sometimes far below: a queue that fills.
    Dips(f64),
    /// Normal, and with this probability a trial at half speed: a noisy neighbor.
    HalfSpeed(f64),
    /// One of two speeds 20 % apart: depends on the core or queue of the flow.
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

    pub(crate) fn factor(self, random: &mut Random) -> f64 {
        match self {
            // Noise is limited to half the clean rate: rates are positive.
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

    /// The median of the factor; of two speeds, any value between them.
    pub(crate) fn median(self) -> f64 {
        match self {
            Self::Normal(_) | Self::Lognormal(_) => 1.0,
            Self::Dips(depth) => (-depth * std::f64::consts::LN_2).exp(),
            // Slow trials are below every other: the median of the fast ones moves by their share.
            Self::HalfSpeed(probability) => {
                assert!((probability - 0.05).abs() < 1e-9, "computed for 5 %");
                // The normal quantile of 0.45 / 0.95.
                1.0 - 0.03 * 0.066_012
            }
            Self::TwoSpeeds => 0.9,
        }
    }

    /// Successive trials, each with the probability `correlation` in the state of the one before: which speed, which
    /// neighbor, how far below. Normal noise is autoregressive.
    pub(crate) fn series(self, count: usize, correlation: f64, random: &mut Random) -> Vec<f64> {
        let mut values = Vec::with_capacity(count);
        if let Self::Normal(deviation) = self {
            let mut state = random.normal();
            for _ in 0..count {
                values.push((1.0 + deviation * state).max(0.5));
                let fresh = (1.0 - correlation * correlation).sqrt() * random.normal();
                state = correlation * state + fresh;
            }
            return values;
        }
        let mut last = self.factor(random);
        for _ in 0..count {
            values.push(last);
            if random.unit() >= correlation {
                last = self.factor(random);
            } else if matches!(self, Self::TwoSpeeds) {
                // The same speed with new noise.
                let slow = if last < 0.9 { 0.8 } else { 1.0 };
                last = slow * Self::Normal(0.01).factor(random);
            }
        }
        values
    }

    /// One experiment: `count` pairs round 40 Gbit/s, the second of each truly higher by `effect`.
    /// The pair's common factor drifts from pair to pair, as on real hosts.
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

/// A series of real trials, one after another, recorded by `bench/noise`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Recorded {
    Loopback,
    LoopbackBesideWork,
    Veth,
    VethBesideWork,
}

impl Recorded {
    /// The rates over their median.
    pub(crate) fn factors(self) -> &'static [f64] {
        static ALL: LazyLock<[Vec<f64>; 4]> = LazyLock::new(|| {
            [
                include_str!("../../../../fixtures/noise/loopback.txt"),
                include_str!("../../../../fixtures/noise/loopback-beside-work.txt"),
                include_str!("../../../../fixtures/noise/veth.txt"),
                include_str!("../../../../fixtures/noise/veth-beside-work.txt"),
            ]
            .map(over_median)
        });
        &ALL[self as usize]
    }
}

fn over_median(text: &str) -> Vec<f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let rates: Vec<f64> = lines.map(|line| line.parse().expect("a rate")).collect();
    let middle = median(&rates).expect("recorded trials");
    rates.iter().map(|rate| rate / middle).collect()
}

/// The maximum number of misses in `experiments` that is consistent with a true miss rate of `rate`: three and a half
/// binomial standard deviations above it, which one check in four thousand exceeds by chance. Seeds are fixed, so the
/// result of a check is reproducible.
#[expect(clippy::cast_precision_loss, reason = "some thousand experiments")]
pub(crate) fn most_misses(experiments: usize, rate: f64) -> f64 {
    let experiments = experiments as f64;
    experiments * rate + 3.5 * (experiments * rate * (1.0 - rate)).sqrt()
}
