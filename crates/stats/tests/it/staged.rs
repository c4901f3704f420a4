//! What a proof promises, over noise of every kind: the chance that it keeps anything useless, how often it finds what
//! helps, and what that costs. The table that the test prints is in the book, "What our intervals promise".

use linerate_stats::staged::{Decision, ERROR, LOOKS, Levels, Sizes, Stage, look};
use linerate_stats::{Random, Seed};

use crate::noise::{Noise, Recorded, most_misses};

const PROOFS: usize = 600;
/// Trials of a recorded series that follow each other: about a stage, so that what is alike within one stays so (H. R.
/// Künsch, "The jackknife and the bootstrap for general stationary observations", Annals of Statistics 17, 1989; the
/// series is a circle, as in D. N. Politis and J. P. Romano, 1992).
const BLOCK: usize = 30;

/// The fixes of a proof, by what each is worth.
const PROOF: [(&str, &[f64]); 6] = [
    ("5 useless", &[0.0; 5]),
    ("10 useless", &[0.0; 10]),
    ("20 useless", &[0.0; 20]),
    ("2 of 10 %, 3 useless", &[0.1, 0.1, 0.0, 0.0, 0.0]),
    ("5 of 10 %", &[0.1; 5]),
    ("5 of 30 %", &[0.3; 5]),
];

/// Noise of single trials, and of trials that are like those before them.
#[derive(Debug, Clone, Copy)]
enum Series {
    Independent(Noise),
    /// Normal noise of 5 % with this correlation between one trial and the next.
    Autocorrelated(f64),
    /// Normal noise of 3 %, and each trial slower than the one before it.
    Drift(f64),
    /// Blocks of a recorded series of real trials.
    Recorded(Recorded),
}

/// Where a series is.
#[derive(Debug, Default)]
struct State {
    last: f64,
    /// The place in a recorded series, and what is left of the block.
    place: usize,
    left: usize,
}

impl Series {
    const ALL: [(&str, Self); 12] = [
        ("normal, 2 %", Self::Independent(Noise::Normal(0.02))),
        ("normal, 5 %", Self::Independent(Noise::Normal(0.05))),
        ("dips", Self::Independent(Noise::Dips(0.05))),
        (
            "half speed, 5 % of trials",
            Self::Independent(Noise::HalfSpeed(0.05)),
        ),
        ("two speeds", Self::Independent(Noise::TwoSpeeds)),
        ("autocorrelated, 0.5", Self::Autocorrelated(0.5)),
        ("autocorrelated, 0.7", Self::Autocorrelated(0.7)),
        ("drift, -0.2 % a trial", Self::Drift(-0.002)),
        ("recorded: loopback", Self::Recorded(Recorded::Loopback)),
        (
            "recorded: loopback beside work",
            Self::Recorded(Recorded::LoopbackBesideWork),
        ),
        ("recorded: veth", Self::Recorded(Recorded::Veth)),
        (
            "recorded: veth beside work",
            Self::Recorded(Recorded::VethBesideWork),
        ),
    ];

    /// The factors of the next trials.
    fn factors(self, trials: usize, state: &mut State, random: &mut Random) -> Vec<f64> {
        let State { last, place, left } = state;
        let mut next = || match self {
            Self::Independent(noise) => noise.factor(random),
            Self::Autocorrelated(with_last) => {
                let own = (1.0 - with_last * with_last).sqrt();
                *last = with_last * *last + own * random.normal();
                (0.05 * *last).exp()
            }
            Self::Drift(each) => {
                *last += each;
                (*last + 0.03 * random.normal()).exp()
            }
            Self::Recorded(recorded) => {
                let factors = recorded.factors();
                if *left == 0 {
                    (*place, *left) = (random.index(factors.len()), BLOCK);
                }
                *left -= 1;
                *place = (*place + 1) % factors.len();
                factors[*place]
            }
        };
        (0..trials).map(|_| next()).collect()
    }
}

/// Which fixes a proof keeps, and how many trials it makes, with at least `fewest` without each fix in a stage.
fn proof(worth: &[f64], series: Series, fewest: usize, random: &mut Random) -> (Vec<bool>, usize) {
    let mut state = State::default();
    let level = Levels::default().for_round(worth.len());
    let sizes = Sizes::of(worth.len(), level * LOOKS[0], fewest);
    let mut stages: Vec<Vec<Stage>> = vec![Vec::new(); worth.len()];
    let mut decided = vec![Decision::Open; worth.len()];
    let mut trials = 0;
    while decided.contains(&Decision::Open) {
        let open: Vec<usize> = (0..worth.len())
            .filter(|fix| decided[*fix] == Decision::Open)
            .collect();
        let mut order: Vec<Option<usize>> = vec![None; sizes.with];
        for fix in &open {
            order.extend(vec![Some(*fix); sizes.without]);
        }
        random.shuffle(&mut order);
        trials += order.len();
        let mut with = Vec::new();
        let mut without = vec![Vec::new(); worth.len()];
        for (arm, factor) in order
            .iter()
            .zip(series.factors(order.len(), &mut state, random))
        {
            match arm {
                None => with.push(40e9 * factor),
                Some(fix) => without[*fix].push(40e9 * factor / (1.0 + worth[*fix])),
            }
        }
        for fix in open {
            stages[fix].push(Stage {
                without: std::mem::take(&mut without[fix]),
                with: with.clone(),
            });
            decided[fix] = look(&stages[fix], level).1;
        }
    }
    let kept = decided.iter().map(|one| *one == Decision::Faster).collect();
    (kept, trials)
}

/// Of some proofs: how many kept anything useless, how many of the useful fixes were kept, and the trials.
#[derive(Debug, Default)]
struct Score {
    wrong: usize,
    found: usize,
    trials: usize,
}

fn score(worth: &[f64], series: Series, fewest: usize, seed: u64) -> Score {
    let mut random = Random::new(Seed(seed));
    let mut score = Score::default();
    for _ in 0..PROOFS {
        let (kept, trials) = proof(worth, series, fewest, &mut random);
        let of = |useless: bool| {
            let fixes = kept.iter().zip(worth);
            fixes
                .filter(|(kept, worth)| **kept && (**worth == 0.0) == useless)
                .count()
        };
        score.wrong += usize::from(of(true) > 0);
        score.found += of(false);
        score.trials += trials;
    }
    score
}

#[test]
#[expect(
    clippy::cast_precision_loss,
    clippy::print_stdout,
    reason = "some thousand proofs, and their table"
)]
fn a_proof_keeps_anything_useless_in_no_more_than_one_of_twenty() {
    println!("| noise | fixes | keeps anything useless | keeps what helps | trials |");
    println!("|---|---|---:|---:|---:|");
    for (noise, series) in Series::ALL {
        for (name, worth) in PROOF {
            let score = score(worth, series, 3, 11);
            let all = PROOFS as f64;
            let useful = worth.iter().filter(|worth| **worth > 0.0).count();
            let share = |number: usize, of: f64| format!("{:.1} %", 100.0 * number as f64 / of);
            println!(
                "| {noise} | {name} | {} | {} | {:.0} |",
                if useful == worth.len() {
                    "-".to_owned()
                } else {
                    share(score.wrong, all)
                },
                if useful == 0 {
                    "-".to_owned()
                } else {
                    share(score.found, all * useful as f64)
                },
                score.trials as f64 / all,
            );
            let most = most_misses(PROOFS, ERROR);
            assert!((score.wrong as f64) <= most, "{noise}, {name}: {score:?}");
        }
    }
}

#[test]
fn what_is_worth_a_tenth_is_found_and_obvious_fixes_take_one_stage() {
    let normal = Series::Independent(Noise::Normal(0.02));
    let tenth = score(&[0.1; 5], normal, 3, 3);
    assert!(tenth.found >= PROOFS * 5 * 98 / 100, "{tenth:?}");
    // 24 trials are one stage; five pairs for each of five fixes would be 50.
    let obvious = score(&[0.3; 5], normal, 3, 3);
    assert_eq!(obvious.found, PROOFS * 5);
    assert_eq!(obvious.trials, PROOFS * 24);
    let noisy = score(&[0.1; 5], Series::Independent(Noise::Normal(0.05)), 3, 3);
    assert!(noisy.found >= PROOFS * 5 * 85 / 100, "{noisy:?}");
}

/// Shorter trials scatter more, but there is time for more of them: the second table of the book's page.
#[test]
#[expect(
    clippy::cast_precision_loss,
    clippy::print_stdout,
    reason = "some hundred proofs, and their table"
)]
fn the_error_is_the_same_for_every_length_and_number_of_trials() {
    println!(
        "| trial, s | without each | noise | keeps anything useless | finds 10 % | trials | s |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|");
    // The noise of real trials that are averaged to this length, relative to those of 0.8 s.
    for (seconds, noise) in [(0.8, 1.0), (0.6, 1.06), (0.4, 1.18)] {
        for fewest in [3, 4, 5] {
            let series = Series::Independent(Noise::Normal(0.05 * noise));
            let score = score(&[0.1, 0.1, 0.0, 0.0, 0.0], series, fewest, 17);
            let (all, trials) = (PROOFS as f64, score.trials as f64 / PROOFS as f64);
            println!(
                "| {seconds} | {fewest} | {:.1} % | {:.1} % | {:.1} % | {trials:.0} | {:.0} |",
                5.0 * noise,
                100.0 * score.wrong as f64 / all,
                100.0 * score.found as f64 / all / 2.0,
                trials * (seconds + 0.1),
            );
            let most = most_misses(PROOFS, ERROR);
            assert!(
                (score.wrong as f64) <= most,
                "{seconds} s, {fewest}: {score:?}"
            );
        }
    }
}
