//! Every variant against the equation as it is written down, bit for bit; and that against a run of NumPy's.

use std::io::Write;
use std::process::{Command, Stdio};

use linerate_model::units::Bytes;
use proptest::prelude::*;

use super::*;

/// The grid of `values` in a buffer that begins where no vector would: `shift` bytes behind one.
fn buffer_of(values: &[f64], shift: usize) -> Vec<u8> {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes());
    std::iter::repeat_n(0xA5, shift).chain(bytes).collect()
}

fn values_of(buffer: &[u8]) -> Vec<f64> {
    let (cells, _) = buffer.as_chunks();
    cells.iter().map(|cell| f64::from_le_bytes(*cell)).collect()
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// `steps` steps by the equation as it is written down.
fn plainly(start: &[f64], side: usize, steps: usize) -> Vec<f64> {
    let (mut old, mut new) = (start.to_vec(), start.to_vec());
    for _ in 0..steps {
        step_plainly(&old, &mut new, side);
        std::mem::swap(&mut old, &mut new);
    }
    old
}

/// The source's start on a grid of `side`.
fn start(side: usize) -> Vec<f64> {
    let mut buffer = vec![0xFF; side * side * size_of::<Cell>()];
    fill(&mut buffer, side);
    values_of(&buffer)
}

proptest! {
    #[test]
    fn every_variant_gives_the_bits_of_the_plain_step_on_grids_of_any_side(
        side in prop_oneof![0usize..70, (0usize..20).prop_map(|lines| lines * LINE)],
        shift in 0usize..64,
        steps in 1usize..4,
        seed in proptest::collection::vec(-1e6f64..1e6, 97),
    ) {
        // Of a length that no row has, so that no two rows are alike.
        let values: Vec<f64> = seed.iter().copied().cycle().take(side * side).collect();
        let expected = plainly(&values, side, steps);
        for vectors in available() {
            let mut stepper = Stepper::with(side, vectors).expect("it is there");
            prop_assert_eq!(stepper.vectors(), vectors);
            let mut buffer = buffer_of(&values, shift);
            (0..steps).for_each(|_| stepper.step(&mut buffer[shift..]));
            prop_assert_eq!(bits(&values_of(&buffer[shift..])), bits(&expected), "{}", vectors);
            prop_assert!(buffer[..shift].iter().all(|byte| *byte == 0xA5));
        }
    }
}

#[test]
fn a_large_grid_from_the_sources_start_is_the_same_by_every_variant() {
    let side = Diffusion::side_of(Bytes::kib(256));
    let start = start(side);
    let expected = plainly(&start, side, 100);
    for vectors in available() {
        let mut stepper = Stepper::with(side, vectors).expect("it is there");
        let mut buffer = buffer_of(&start, 0);
        (0..100).for_each(|_| stepper.step(&mut buffer));
        assert_eq!(
            checksum(&buffer),
            checksum(&buffer_of(&expected, 0)),
            "{vectors}"
        );
    }
}

#[test]
fn what_is_not_a_number_goes_where_the_plain_step_sends_it() {
    let side = 16;
    let mut values = start(side);
    values[5 * side + 5] = f64::INFINITY;
    values[9 * side + 3] = f64::MIN_POSITIVE / 4.0;
    let expected = plainly(&values, side, 3);
    for vectors in available() {
        let mut stepper = Stepper::with(side, vectors).expect("it is there");
        let mut buffer = buffer_of(&values, 0);
        (0..3).for_each(|_| stepper.step(&mut buffer));
        // Which NaN results from an operation depends on the processor (IEEE 754, 6.2).
        let same = |(one, other): (f64, &f64)| {
            one.to_bits() == other.to_bits() || (one.is_nan() && other.is_nan())
        };
        assert!(
            values_of(&buffer).into_iter().zip(&expected).all(same),
            "{vectors}"
        );
    }
}

#[test]
fn a_buffer_without_room_for_the_grid_stays_as_it_is() {
    let mut buffer = vec![7; 8 * 8 * 8 - 1];
    Stepper::new(8).step(&mut buffer);
    set_boundary(&mut buffer, 8);
    assert!(buffer.iter().all(|byte| *byte == 7));
}

#[test]
fn scaling_multiplies_every_cell_of_the_grid_and_nothing_behind_it() {
    let values: Vec<f64> = (0_u32..72).map(f64::from).collect();
    let mut buffer = buffer_of(&values, 0);
    scale(&mut buffer, 8, 0.5);
    for (at, (before, after)) in values.iter().zip(values_of(&buffer)).enumerate() {
        let factor = if at < 64 { 0.5 } else { 1.0 };
        assert_eq!(after.to_bits(), (before * factor).to_bits());
    }
}

#[test]
fn heat_spreads_evenly_in_all_four_directions_and_none_comes_of_nothing() {
    let side = 64;
    let begun = start(side);
    let after = plainly(&begun, side, 50);
    let sum = |values: &[f64]| values.iter().sum::<f64>();
    // It has not reached the edge, where it would be lost.
    assert!((sum(&after) / sum(&begun) - 1.0).abs() < 1e-12);
    for row in 0..side {
        for column in 0..side {
            let at = |row: usize, column: usize| after[row * side + column];
            let here = at(row, column);
            assert!((0.0..=Diffusion::HOT).contains(&here));
            assert!((here - at(column, row)).abs() < 1e-9);
            assert!((here - at(side - 1 - row, column)).abs() < 1e-9);
        }
    }
}

#[test]
fn the_hot_square_is_20_cells_wide_in_the_middle_and_the_edge_is_cold() {
    let side = 360;
    let values = start(side);
    let hot = values
        .iter()
        .filter(|value| **value == Diffusion::HOT)
        .count();
    assert_eq!(hot, 400);
    let at = |place: usize| values[place * side + place].to_bits();
    let hot = Diffusion::HOT.to_bits();
    assert_eq!([at(169), at(170), at(189), at(190)], [0, hot, hot, 0]);
    let mut buffer = buffer_of(&vec![1.0; side * side], 0);
    set_boundary(&mut buffer, side);
    let cold = values_of(&buffer)
        .iter()
        .filter(|value| **value == 0.0)
        .count();
    assert_eq!(cold, 4 * (side - 1));
}

proptest! {
    #[test]
    fn two_buffers_that_differ_in_a_bit_or_in_two_signs_have_different_checksums(
        size in 16usize..400,
        at in any::<proptest::sample::Index>(),
        bit in 0u8..8,
    ) {
        let buffer: Vec<u8> = (0..=255).cycle().take(size).collect();
        let mut other = buffer.clone();
        other[at.index(size)] ^= 1 << bit;
        prop_assert_ne!(checksum(&buffer), checksum(&other));
        let mut signs = buffer.clone();
        signs[7] ^= 0x80;
        signs[15] ^= 0x80;
        prop_assert_ne!(checksum(&buffer), checksum(&signs));
        prop_assert_ne!(checksum(&buffer), checksum(&buffer[..size - 1]));
    }
}

#[test]
fn a_picture_has_the_middle_row_as_it_is_and_the_mean_of_each_block() {
    let side = 200;
    let mut buffer = buffer_of(&start(side), 0);
    let mut picture = blank_picture(side);
    take_picture(&mut picture, &mut buffer, 3);
    assert_eq!(
        (picture.repetitions, picture.side, picture.blocks),
        (3, 200, 96)
    );
    let cells: Vec<f64> = picture.cells().collect();
    assert_eq!(cells, values_of(&buffer)[100 * side..101 * side]);
    assert_eq!(picture.means.iter().max(), Some(&1_000_000));
    assert_eq!(picture.means.iter().min(), Some(&0));
    let blocks = |side| blank_picture(side).blocks;
    assert_eq!(
        [8, 88, 176, 360, 720, 2_896].map(blocks),
        [8, 88, 88, 90, 90, 96]
    );
    let mut small = blank_picture(8);
    assert_eq!(small.means.len(), 64);
    let mut buffer = buffer_of(&[f64::NAN; 64], 0);
    take_picture(&mut small, &mut buffer, 1);
    assert!(small.means.iter().all(|mean| *mean == 0));
}

/// The same by NumPy, which makes one IEEE 754 operation of each operator: no tolerance, the bits are the same.
/// Prints the bits of all cells, row by row.
const NUMPY: &str = r#"
import sys
import numpy
side, steps = int(sys.argv[1]), int(sys.argv[2])
grid = numpy.zeros((side, side))
half = min(10, side // 4)
grid[side // 2 - half:side // 2 + half, side // 2 - half:side // 2 + half] = 1e4
for _ in range(steps):
    old = grid[1:-1, 1:-1]
    sum = grid[1:-1, :-2] + grid[1:-1, 2:] + grid[2:, 1:-1] + grid[:-2, 1:-1] - 4.0 * old
    new = grid.copy()
    new[1:-1, 1:-1] = old + 1e-2 * sum
    grid = new
print("numpy", numpy.__version__, file=sys.stderr)
for value in grid.ravel().view(numpy.uint64):
    print(f"{value:016x}")
"#;

fn stepped(side: usize, steps: usize) -> Vec<u64> {
    let mut buffer = buffer_of(&start(side), 0);
    let mut stepper = Stepper::new(side);
    (0..steps).for_each(|_| stepper.step(&mut buffer));
    bits(&values_of(&buffer))
}

fn bits_in(text: &str) -> Vec<u64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| u64::from_str_radix(line, 16).expect("16 hexadecimal digits"))
        .collect()
}

#[test]
fn a_run_of_numpys_that_is_kept_has_the_same_bits() {
    assert_eq!(stepped(16, 100), bits_in(include_str!("numpy_16_100.txt")));
}

#[test]
#[expect(clippy::print_stderr, reason = "a skip is a result and is reported")]
#[expect(
    clippy::disallowed_methods,
    reason = "another program is what the test is about"
)]
fn a_run_of_numpys_here_has_the_same_bits() {
    for (side, steps) in [(8, 1), (24, 7), (176, 100)] {
        let python = Command::new("python3")
            .args(["-", &side.to_string(), &steps.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut python) = python else {
            eprintln!("SKIP: there is no python3 here");
            return;
        };
        let mut program = python.stdin.take().expect("it is piped");
        program.write_all(NUMPY.as_bytes()).expect("it reads");
        drop(program);
        let done = python.wait_with_output().expect("it ends");
        if !done.status.success() {
            let why = String::from_utf8_lossy(&done.stderr);
            assert!(why.contains("No module named 'numpy'"), "{why}");
            eprintln!("SKIP: python3 has no NumPy here");
            return;
        }
        let text = String::from_utf8_lossy(&done.stdout);
        assert_eq!(
            stepped(side, steps),
            bits_in(&text),
            "{side} x {side}, {steps} steps"
        );
    }
}
