//! Designs against what their contrasts must show.

use proptest::prelude::*;

use super::*;

fn layout(kind: DesignKind, runs: Option<u32>, levels: &[usize]) -> Result<Layout, LayoutError> {
    let design = Design {
        kind,
        runs,
        ..Design::default()
    };
    let names: Vec<String> = (0..levels.len()).map(|at| format!("f{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    // Four trials of three factors, each changed in half of them.
    let screening = |factors: usize| {
        let rows = [
            [true, true, false],
            [false, true, true],
            [true, false, true],
            [false; 3],
        ];
        rows.iter().map(|row| row[..factors].to_vec()).collect()
    };
    Layout::new(&design, &names, levels, screening)
}

/// The effect that a contrast estimates from the values of the cells.
fn read(layout: &Layout, effect: &[(usize, usize)], value: impl Fn(&Cell) -> f64) -> f64 {
    let contrast = layout.contrast(effect).expect("the design holds it");
    let sum = |side: &[(usize, f64)]| -> f64 {
        side.iter()
            .map(|(at, weight)| weight * value(&layout.cells()[*at]))
            .sum()
    };
    sum(&contrast.with) - sum(&contrast.against)
}

#[test]
fn a_full_design_holds_every_combination_once() {
    let full = layout(DesignKind::Full, None, &[2, 3, 2]).expect("twelve cells");
    let mut cells = full.cells().to_vec();
    cells.sort();
    cells.dedup();
    assert_eq!(cells.len(), 12);
    let error = layout(DesignKind::Full, None, &[64, 64, 2]).expect_err("too many");
    assert!(
        error.to_string().starts_with("8192 combinations"),
        "{error}"
    );
}

#[test]
fn one_at_a_time_is_repeated_at_each_level_of_a_crossed_factor() {
    let design = Design {
        kind: DesignKind::OneAtATime,
        crossed: vec!["b".to_owned()],
        ..Design::default()
    };
    let names = ["a", "b", "c"];
    let crossed = Layout::new(&design, &names, &[3, 2, 2], |_| Vec::new()).expect("8 cells");
    let cells = crossed.cells();
    let expected = [
        [0, 0, 0],
        [0, 1, 0],
        [1, 0, 0],
        [1, 1, 0],
        [2, 0, 0],
        [2, 1, 0],
        [0, 0, 1],
        [0, 1, 1],
    ];
    assert_eq!(cells, expected);
    let name = |effect: &[usize]| format!("{effect:?}");
    // What the crossed factor does with another can be told, what two others do together cannot.
    assert_eq!(crossed.answers(&[vec![0, 1], vec![1, 2]], name), Ok(()));
    assert!(crossed.answers(&[vec![0, 2]], name).is_err());
}

#[test]
fn a_step_is_compared_with_the_one_before_it_and_apart_at_one_level_of_another() {
    let full = layout(DesignKind::Full, None, &[2, 3]).expect("six cells");
    let full = full.with_steps(vec![false, true]);
    let sides = |contrast: Contrast| {
        let cells = |side: &[(usize, f64)]| -> Vec<Cell> {
            side.iter()
                .map(|(at, _)| full.cells()[*at].clone())
                .collect()
        };
        (cells(&contrast.with), cells(&contrast.against))
    };
    let last = full.contrast(&[(1, 2)]).expect("an effect");
    let (with, against) = sides(last);
    assert_eq!(with, [vec![0, 2], vec![1, 2]]);
    assert_eq!(against, [vec![0, 1], vec![1, 1]]);
    let apart = full.contrast_at(&[(1, 1)], &[(0, 1)]).expect("an effect");
    assert_eq!(sides(apart), (vec![vec![1, 1]], vec![vec![1, 0]]));
}

#[test]
fn one_at_a_time_cannot_tell_what_two_do_together() {
    let one = layout(DesignKind::OneAtATime, None, &[2, 3]).expect("four cells");
    assert_eq!(
        one.cells(),
        [vec![0, 0], vec![1, 0], vec![0, 1], vec![0, 2]]
    );
    let error = one.answers(&[vec![0, 1]], |effect| format!("{effect:?}"));
    assert!(matches!(error, Err(LayoutError::Mixed { .. })), "{error:?}");
    assert_eq!(
        one.answers(&[vec![0], vec![1]], |effect| format!("{effect:?}")),
        Ok(())
    );
}

#[test]
fn the_half_fraction_of_four_factors_mixes_only_pairs() {
    let half = layout(DesignKind::Fraction, Some(8), &[2; 4]).expect("eight runs");
    for factor in 0..4 {
        assert!(half.mixed_with(&[factor]).is_empty(), "{factor}");
    }
    // D = ABC, so AB = CD (Box, Hunter & Hunter, table 6.15's 2^(4-1)).
    assert_eq!(half.mixed_with(&[0, 1]), [vec![2, 3]]);
    let name = |effect: &[usize]| format!("{effect:?}");
    assert_eq!(half.answers(&[vec![0, 1]], name), Ok(()));
    assert!(half.answers(&[vec![0, 1], vec![2, 3]], name).is_err());
}

#[test]
fn a_fraction_that_is_too_small_is_refused_with_what_would_do() {
    let error = layout(DesignKind::Fraction, Some(4), &[2; 4]).expect_err("too few");
    assert_eq!(
        error.to_string(),
        "4 runs for 4 factors: a fraction has a power of two, 8 to 16"
    );
    let error = layout(DesignKind::Screening, None, &[2, 3]).expect_err("three levels");
    assert_eq!(
        error.to_string(),
        "a screening design has two levels of each factor, and `f1` has 3"
    );
}

#[test]
fn seven_factors_in_eight_runs_are_mixed_with_pairs_and_say_so() {
    let small = layout(DesignKind::Fraction, Some(8), &[2; 7]).expect("eight runs");
    let words = small.confounding(|effect| format!("{effect:?}"));
    assert_eq!(words.len(), 7);
    assert!(
        small
            .answers(&[vec![0]], |effect| format!("{effect:?}"))
            .is_ok()
    );
}

#[test]
fn a_contrast_of_matched_cells_needs_all_of_its_corners() {
    let full = layout(DesignKind::Full, None, &[2, 2]).expect("four cells");
    let contrast = full.contrast(&[(0, 1), (1, 1)]).expect("an interaction");
    assert_eq!(contrast.with.len() + contrast.against.len(), 4);
    assert!((contrast.spread() - 2.0).abs() < 1e-12);
    let main = full.contrast(&[(0, 1)]).expect("a factor");
    assert!((main.spread() - 1.0).abs() < 1e-12);
}

proptest! {
    #[test]
    fn every_design_reads_planted_effects_of_single_factors(
        levels in prop::collection::vec(2usize..4, 1..5),
        sizes in prop::collection::vec(-1.0f64..1.0, 5),
    ) {
        let value = |cell: &Cell| -> f64 {
            cell.iter().zip(&sizes).map(|(level, size)| real(*level as u64) * size).sum()
        };
        for kind in [DesignKind::Full, DesignKind::OneAtATime] {
            let layout = layout(kind, None, &levels).expect("few cells");
            for (factor, number) in levels.iter().enumerate() {
                for level in 1..*number {
                    let found = read(&layout, &[(factor, level)], value);
                    prop_assert!((found - real(level as u64) * sizes[factor]).abs() < 1e-9);
                }
            }
        }
    }

    #[test]
    fn every_fraction_reads_single_factors_and_unmixed_pairs(
        factors in 2usize..9,
        sizes in prop::collection::vec(-1.0f64..1.0, 9),
        together in -1.0f64..1.0,
    ) {
        let least = u32::try_from(factors + 1).expect("few").next_power_of_two().max(4);
        let mut runs = least;
        while runs <= 1 << factors {
            let layout = layout(DesignKind::Fraction, Some(runs), &vec![2; factors]).expect("a fraction");
            prop_assert_eq!(layout.cells().len(), runs as usize);
            let alone = |cell: &Cell| -> f64 {
                cell.iter().zip(&sizes).map(|(level, size)| real(*level as u64) * size).sum()
            };
            for (factor, size) in sizes.iter().take(factors).enumerate() {
                let found = read(&layout, &[(factor, 1)], alone);
                prop_assert!((found - size).abs() < 1e-9, "{} of {} in {}", factor, factors, runs);
            }
            if layout.mixed_with(&[0, 1]).is_empty() {
                let both = |cell: &Cell| alone(cell) + together * real((cell[0] * cell[1]) as u64);
                let found = read(&layout, &[(0, 1), (1, 1)], both);
                prop_assert!((found - together).abs() < 1e-9);
            }
            runs *= 2;
        }
    }
}
