//! Verdicts compared with known truth: simulated runs with noise between trials and drift between runs.

use linerate_stats::{Random, Seed};

use super::*;

const MARGIN: f64 = 0.02;
/// How far trials of a run scatter.
const NOISE: f64 = 0.02;
const COMPARISONS: u32 = 400;
/// Of 400, 20 are 5 %; more than 31 come about in fewer than one such test of a hundred; the seeds are fixed.
const FEW: u32 = 31;

/// How runs differ: by a drift that all combinations of a run share, and one of each combination.
#[derive(Clone, Copy)]
struct World {
    cells: usize,
    runs: usize,
    noise: f64,
    drift: f64,
    own_drift: f64,
    /// The true change of every combination.
    change: f64,
}

const AA: World = World {
    cells: 24,
    runs: 3,
    noise: NOISE,
    drift: 0.0,
    own_drift: 0.0,
    change: 0.0,
};

impl World {
    fn side(self, name: &str, change: f64, random: &mut Random) -> Side {
        let mut run = || {
            let drift = self.drift * random.normal();
            let cell = |at: usize| {
                let own = drift + self.own_drift * random.normal();
                let mut trial =
                    || 1e10 * (1.0 + change) * (own + self.noise * random.normal()).exp();
                (vec![at.to_string()], (0..5).map(|_| trial()).collect())
            };
            (0..self.cells).map(cell).collect()
        };
        Side {
            name: name.to_owned(),
            runs: (0..self.runs).map(|_| run()).collect(),
        }
    }

    fn compared(self, seed: u64) -> CompareDocument {
        let mut random = Random::new(Seed(seed));
        let before = self.side("A", 0.0, &mut random);
        let after = self.side("B", self.change, &mut random);
        document(before, after, Response::Rate, MARGIN, Vec::new()).expect("combinations in common")
    }

    /// How many of the comparisons have a verdict.
    fn verdicts(self, verdict: Verdict) -> u32 {
        let is = |seed: &u32| self.compared(u64::from(*seed)).verdict == verdict;
        u32::try_from((0..COMPARISONS).filter(is).count()).expect("a small number")
    }
}

#[test]
fn like_runs_of_24_combinations_are_called_worse_no_more_often_than_stated() {
    for (drift, own_drift) in [(0.0, 0.0), (NOISE, 0.0), (0.0, NOISE), (3.0 * NOISE, NOISE)] {
        let world = World {
            drift,
            own_drift,
            ..AA
        };
        let worse = world.verdicts(Verdict::Worse);
        assert!(worse <= FEW, "{worse} at a drift of {drift}, {own_drift}");
    }
}

#[test]
fn a_change_below_or_at_the_margin_is_called_worse_no_more_often_than_stated() {
    for (change, runs, cells) in [(-0.015, 3, 24), (-0.015, 20, 4), (-MARGIN, 3, 24)] {
        for drift in [0.0, NOISE] {
            let world = World {
                cells,
                runs,
                drift,
                change,
                ..AA
            };
            let worse = world.verdicts(Verdict::Worse);
            assert!(worse <= FEW, "{worse} of {change} in {runs} runs");
        }
    }
}

#[test]
fn a_change_beyond_the_margin_is_called_not_worse_no_more_often_than_stated() {
    for (cells, runs) in [(1, 3), (1, 10), (24, 3)] {
        let world = World {
            cells,
            runs,
            drift: NOISE,
            change: -0.0201,
            ..AA
        };
        let not_worse = world.verdicts(Verdict::NotWorse);
        assert!(not_worse <= FEW, "{not_worse} of {cells}, {runs} runs");
    }
}

#[test]
fn a_tenth_less_is_found_in_three_runs_of_each_that_drift_as_much_as_their_trials_scatter() {
    for cells in [1, 4, 24] {
        let world = World {
            cells,
            drift: NOISE,
            change: -0.1,
            ..AA
        };
        let worse = world.verdicts(Verdict::Worse);
        assert!(
            worse * 4 >= COMPARISONS * 3,
            "{worse} of {COMPARISONS} with {cells}"
        );
    }
}

#[test]
fn like_runs_on_a_steady_host_are_called_not_worse() {
    let world = World {
        cells: 8,
        runs: 5,
        noise: 0.005,
        drift: 0.002,
        ..AA
    };
    let not_worse = world.verdicts(Verdict::NotWorse);
    assert!(not_worse * 10 >= COMPARISONS * 9, "{not_worse}");
}

#[test]
fn single_runs_are_never_enough_for_a_verdict_whatever_their_trials_show() {
    for (change, runs, words) in [
        (
            -0.5,
            1,
            "in 4 of 4 combinations; two runs made at different times: drift not separable",
        ),
        (
            0.0,
            1,
            "in 0 of 4 combinations; two runs made at different times: drift not separable",
        ),
        (
            0.5,
            2,
            "in 0 of 4 combinations; fewer than three runs on a side: drift not separable",
        ),
    ] {
        let world = World {
            cells: 4,
            runs,
            change,
            ..AA
        };
        let found = world.compared(1);
        assert_eq!(
            (found.verdict, found.unit),
            (Verdict::CannotTell, Unit::Trial)
        );
        let why = found.why.expect("a reason");
        assert_eq!(why, format!("worse by more than the margin {words}"));
        assert!(
            found
                .cells
                .iter()
                .all(|cell| cell.verdict == Verdict::CannotTell)
        );
    }
}

/// Runs of one combination whose trials all have one value.
fn side(values: &[f64]) -> Side {
    let run = |value: &f64| RunValues::from([(vec!["a".to_owned()], vec![*value])]);
    Side {
        name: String::new(),
        runs: values.iter().map(run).collect(),
    }
}

#[test]
fn the_whole_interval_decides_on_either_side_of_the_margin() {
    let verdict = |response, after: f64| {
        let after: Vec<f64> = [0.999, 1.0, 1.001].map(|one| one * after).to_vec();
        let found = document(
            side(&[0.999, 1.0, 1.001]),
            side(&after),
            response,
            MARGIN,
            Vec::new(),
        );
        found.expect("a combination").verdict
    };
    for (after, of_rate, of_cpu) in [
        (0.9, Verdict::Worse, Verdict::NotWorse),
        // All of the interval is below 0, and some of it within the margin.
        (0.979, Verdict::CannotTell, Verdict::NotWorse),
        (0.99, Verdict::NotWorse, Verdict::NotWorse),
        (1.01, Verdict::NotWorse, Verdict::NotWorse),
        (1.0215, Verdict::NotWorse, Verdict::CannotTell),
        (1.1, Verdict::NotWorse, Verdict::Worse),
    ] {
        assert_eq!(verdict(Response::Rate, after), of_rate, "{after}");
        assert_eq!(verdict(Response::Cpu, after), of_cpu, "{after}");
    }
}

#[test]
fn a_combination_that_too_few_runs_have_is_listed_and_not_judged() {
    let mut before = side(&[1.0, 1.1, 1.2]);
    let mut after = side(&[1.0, 1.1, 1.2]);
    for run in &mut before.runs {
        run.insert(vec!["b".to_owned()], vec![1.0]);
    }
    for run in &mut after.runs[1..] {
        run.insert(vec!["b".to_owned()], vec![1.0]);
        run.insert(vec!["c".to_owned()], vec![0.0]);
    }
    let found = document(before, after, Response::Rate, MARGIN, Vec::new()).expect("a combination");
    assert_eq!(found.unmatched, ["c"]);
    let uncertain: Vec<&Vec<String>> = found.uncertain.iter().map(|one| &one.levels).collect();
    assert_eq!(uncertain, [&["b".to_owned()]]);
    assert_eq!((found.cells.len(), found.overall), (1, None));
}

#[test]
fn a_combination_that_fails_after_the_change_is_not_called_not_worse() {
    let like = || side(&[0.999, 1.0, 1.001]);
    let mut more = like();
    for run in &mut more.runs {
        run.insert(vec!["b".to_owned()], vec![1.0]);
    }
    let compared = |before, after| {
        let found =
            document(before, after, Response::Rate, MARGIN, Vec::new()).expect("a combination");
        (found.verdict, found.why)
    };
    let why = "only the baseline has a result of b".to_owned();
    assert_eq!(
        compared(more.clone(), like()),
        (Verdict::CannotTell, Some(why))
    );
    // What only the change made possible is not compared with anything.
    assert_eq!(compared(like(), more), (Verdict::NotWorse, None));
}

/// A side of runs that each measured one result.
fn results(runs: &[&[f64]]) -> Side {
    let run = |values: &&[f64]| RunValues::from([(vec!["stream".to_owned()], values.to_vec())]);
    Side {
        name: "runs".to_owned(),
        runs: runs.iter().map(run).collect(),
    }
}

#[test]
fn one_trial_each_shows_the_change_and_no_verdict() {
    let compare = |before, after| {
        document(before, after, Response::Rate, MARGIN, Vec::new()).expect("a common result")
    };
    let found = compare(results(&[&[2e9]]), results(&[&[1e9]]));
    assert_eq!(found.verdict, Verdict::CannotTell);
    assert!(found.cells.is_empty() && found.unmatched.is_empty());
    let [one] = &found.uncertain[..] else {
        panic!("{:?}", found.uncertain);
    };
    assert!((one.relative + 0.5).abs() < 1e-12, "{one:?}");
    assert_eq!((one.values_before, one.values_after), (1, 1));
    let why = found.why.expect("a reason");
    assert!(why.starts_with("one trial each"), "{why}");
    // Three runs of one trial each are three values.
    let side = |rate: f64| results(&[&[rate * 0.999], &[rate], &[rate * 1.001]]);
    assert_eq!(compare(side(2e9), side(1e9)).verdict, Verdict::Worse);
}
