//! The distributions used by the other modules: normal and Student's t.
//!
//! Implemented here because the crate has no dependencies. Golden values in the tests were computed with mpmath at 30
//! digits.

/// The probability that a standard normal number is at most `z`.
///
/// Hart's rational approximation in the form of G. West, "Better approximations to cumulative normal
/// functions", Wilmott Magazine, May 2005. Absolute error below 1e-14.
pub(crate) fn normal_cdf(z: f64) -> f64 {
    let size = z.abs();
    let tail = if size > 37.0 {
        0.0
    } else if size < 7.071_067_811_865_47 {
        let above = polynomial(
            size,
            &[
                3.526_249_659_989_11e-2,
                0.700_383_064_443_688,
                6.373_962_203_531_65,
                33.912_866_078_383,
                112.079_291_497_871,
                221.213_596_169_931,
                220.206_867_912_376,
            ],
        );
        let below = polynomial(
            size,
            &[
                8.838_834_764_831_84e-2,
                1.755_667_163_182_64,
                16.064_177_579_207,
                86.780_732_202_946_1,
                296.564_248_779_674,
                637.333_633_378_831,
                793.826_512_519_948,
                440.413_735_824_752,
            ],
        );
        (-size * size / 2.0).exp() * above / below
    } else {
        let fraction = size + 1.0 / (size + 2.0 / (size + 3.0 / (size + 4.0 / (size + 0.65))));
        (-size * size / 2.0).exp() / fraction / (2.0 * std::f64::consts::PI).sqrt()
    };
    if z > 0.0 { 1.0 - tail } else { tail }
}

/// The density of the standard normal distribution at `z`.
pub(crate) fn normal_density(z: f64) -> f64 {
    (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// The value that a Student t variable with `freedom` degrees of freedom exceeds with probability
/// `tail`, which is at most one half.
///
/// Takes the tail and not 1 - `tail`, which would round to 1 for the smallest tails. The distribution function is
/// inverted by bisection: it is monotone, so this always converges, and the interval is halved until its ends are
/// adjacent numbers.
pub(crate) fn student_critical(tail: f64, freedom: f64) -> f64 {
    assert!(
        tail > 0.0 && tail <= 0.5,
        "{tail} is no probability of a tail"
    );
    assert!(
        freedom > 0.0,
        "no t distribution with {freedom} degrees of freedom"
    );
    let mut low = 0.0;
    let mut high = 1.0;
    while student_tail(high, freedom) > tail && high < f64::MAX / 4.0 {
        low = high;
        high *= 2.0;
    }
    loop {
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high {
            break;
        }
        if student_tail(middle, freedom) > tail {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// The probability that a Student t variable exceeds `t`, for `t` >= 0 (NIST DLMF 8.17, with
/// x = freedom / (freedom + t^2)).
fn student_tail(t: f64, freedom: f64) -> f64 {
    let square = t * t;
    let near = square / (freedom + square);
    let far = freedom / (freedom + square);
    0.5 * incomplete_beta(far, near, freedom / 2.0, 0.5)
}

/// The regularized incomplete beta function I_x(a, b), with `y` = 1 - `x` as a separate argument because subtracting
/// would lose precision near 1.
///
/// Continued fraction of NIST DLMF 8.17.22, evaluated by Lentz's method; the symmetry 8.17.4 keeps
/// it where it converges fast.
pub(crate) fn incomplete_beta(x: f64, y: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if y <= 0.0 {
        return 1.0;
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * y.ln()).exp();
    if x < (a + 1.0) / (a + b + 2.0) {
        front / a / beta_fraction(x, a, b)
    } else {
        1.0 - front / b / beta_fraction(y, b, a)
    }
}

/// 1 + d1/(1 + d2/(1 + ...)) with the coefficients of NIST DLMF 8.17.23.
fn beta_fraction(x: f64, a: f64, b: f64) -> f64 {
    // Lentz's method fails on exact zeros; this replaces them.
    const TINY: f64 = 1e-300;
    let away_from_zero = |value: f64| if value.abs() < TINY { TINY } else { value };
    let (mut value, mut above, mut below) = (1.0_f64, 1.0_f64, 0.0_f64);
    let mut m = 0.0;
    // Some 10 to 100 iterations suffice for every argument used by the quantiles here.
    for round in 1..2_000 {
        let coefficient = if round % 2 == 1 {
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0))
        } else {
            m += 1.0;
            m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m))
        };
        below = 1.0 / away_from_zero(1.0 + coefficient * below);
        above = away_from_zero(1.0 + coefficient / above);
        let step = above * below;
        value *= step;
        if (step - 1.0).abs() < 1e-15 {
            break;
        }
    }
    value
}

/// The logarithm of the gamma function for `x` > 0.
///
/// C. Lanczos, "A precision approximation of the gamma function", SIAM J. Numer. Anal. B 1, 1964,
/// with the coefficients for g = 7 and nine terms that P. Godfrey published in 2001.
pub(crate) fn ln_gamma(x: f64) -> f64 {
    const TERMS: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if x < 0.5 {
        // Reflection keeps the series where it is accurate.
        let pi = std::f64::consts::PI;
        return (pi / (pi * x).sin()).ln() - ln_gamma(1.0 - x);
    }
    let x = x - 1.0;
    let mut sum = 0.999_999_999_999_809_9;
    let mut shifted = x;
    for term in TERMS {
        shifted += 1.0;
        sum += term / shifted;
    }
    let base = x + 7.5;
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * base.ln() - base + sum.ln()
}

/// Coefficients from the highest power down, by Horner's rule.
fn polynomial(x: f64, coefficients: &[f64]) -> f64 {
    coefficients
        .iter()
        .fold(0.0, |sum, coefficient| sum * x + coefficient)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(got: f64, want: f64) {
        assert!(
            (got - want).abs() <= 1e-12 * want.abs().max(1.0),
            "{got} is not {want}"
        );
    }

    #[test]
    fn student_critical_values_are_those_of_the_tables() {
        for (probability, freedom, want) in [
            (0.975, 1.0, 12.706_204_736_174_705),
            (0.975, 2.0, 4.302_652_729_749_464),
            (0.975, 4.0, 2.776_445_105_197_794_4),
            (0.975, 9.0, 2.262_157_162_798_205_5),
            (0.975, 29.0, 2.045_229_642_132_703_4),
            (0.975, 1_000.0, 1.962_339_080_826_408_5),
            (0.995, 4.0, 4.604_094_871_349_993),
            (0.9995, 4.0, 8.610_301_581_379_275),
            (0.95, 2.0, 2.919_985_580_353_725_7),
            (0.8, 4.0, 0.940_964_577_235_181_2),
            (0.6, 7.0, 0.263_166_861_352_022_8),
        ] {
            near(student_critical(1.0 - probability, freedom), want);
        }
    }

    #[test]
    fn the_middle_of_student_is_zero_and_many_degrees_of_freedom_are_normal() {
        assert!(student_critical(0.5, 4.0).abs() < 1e-12);
        assert!((student_critical(0.025, 1e7) - 1.959_963_984_540_054).abs() < 1e-6);
    }

    #[test]
    fn normal_probabilities_are_those_of_the_tables() {
        for (z, want) in [
            (-3.0, 0.001_349_898_031_630_094_5),
            (-1.0, 0.158_655_253_931_457_05),
            (0.0, 0.5),
            (0.5, 0.691_462_461_274_013_1),
            (1.959_963_984_540_054, 0.975),
            (3.0, 0.998_650_101_968_369_9),
            (6.0, 0.999_999_999_013_412_4),
        ] {
            near(normal_cdf(z), want);
        }
        // Far out the relative error matters, and no value may leave 0..=1.
        assert!((normal_cdf(-8.0) / 6.220_960_574_271_784e-16 - 1.0).abs() < 1e-6);
        near(normal_cdf(-50.0), 0.0);
        near(normal_cdf(50.0), 1.0);
    }

    #[test]
    fn logarithms_of_gamma_are_those_of_the_tables() {
        for (x, want) in [
            (0.5, 0.572_364_942_924_700_1),
            (1.0, 0.0),
            (1.5, -0.120_782_237_635_245_22),
            (2.0, 0.0),
            (5.0, 3.178_053_830_347_945_6),
            (10.5, 13.940_625_219_403_764),
            (100.25, 360.284_559_637_764_23),
        ] {
            near(ln_gamma(x), want);
        }
    }
}
