//! Pictures of a grid: the heat as a map of blocks, and the row through the middle as lines and as CSV. SVG is made
//! by hand: no picture here is worth a library.

use std::fmt::Write as _;

use linerate_analysis::trial::operations::real;
use linerate_model::sample::GridPicture;
use serde::Serialize;

/// The side of a block in pixels.
const BLOCK: u32 = 6;
/// Space above a picture for its caption.
const HEAD: u32 = 44;
const PAD: u32 = 14;
/// Steps of the scale of colors.
const STEPS: u32 = 63;
/// The frame of the lines.
const WIDE: f64 = 640.0;
const HIGH: f64 = 320.0;
/// Colors of the scale, cold to hot; between two of them it is linear. Their brightness rises monotonically, so
/// that the scale also works in grayscale.
const SCALE: [[u32; 3]; 5] = [
    [15, 17, 38],
    [76, 24, 112],
    [190, 55, 84],
    [249, 142, 9],
    [252, 255, 200],
];
/// How the lines are distinguished without color.
const DASHES: [&str; 3] = ["none", "7 4", "2 3"];

/// A grid in a document.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GridFigures {
    repetitions: u64,
    /// In cells.
    side: u32,
    /// The mean of each block of cells, row by row.
    means: Vec<Vec<f64>>,
    /// Every cell of the middle row.
    section: Vec<f64>,
}

impl GridFigures {
    /// Of a picture.
    pub fn of(picture: &GridPicture) -> Self {
        let row = |row: &[u32]| row.iter().map(|mean| heat(*mean)).collect();
        let rows = picture.means.chunks(picture.blocks.max(1) as usize);
        Self {
            repetitions: picture.repetitions,
            side: picture.side,
            means: rows.map(row).collect(),
            section: picture.cells().collect(),
        }
    }
}

fn heat(hundredths: u32) -> f64 {
    f64::from(hundredths) / 100.0
}

/// All pictures as files: their names and their texts.
pub fn files(pictures: &[GridPicture]) -> Vec<(String, String)> {
    let maps = pictures.iter().map(|picture| {
        let name = format!("after-{}.svg", picture.repetitions);
        (name, map(picture))
    });
    let others = [
        ("section.svg".to_owned(), section(pictures)),
        ("section.csv".to_owned(), csv(pictures)),
    ];
    maps.chain(others).collect()
}

fn begin(width: f64, height: f64, label: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" aria-label=\"{label}\" font-family=\"ui-sans-serif, system-ui, \
         sans-serif\" font-size=\"13\" fill=\"var(--ink, #1b2430)\">\n<rect width=\"{width}\" height=\"{height}\" \
         fill=\"var(--card, #ffffff)\"/>\n"
    )
}

fn text(x: f64, y: f64, anchor: &str, words: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>\n")
}

/// The grid as a map: each block has the color of its mean, on a scale that ends with the hottest block.
pub fn map(picture: &GridPicture) -> String {
    let blocks = picture.blocks;
    let side = f64::from(blocks * BLOCK);
    let (pad, head) = (f64::from(PAD), f64::from(HEAD));
    let hottest = picture.means.iter().copied().max().unwrap_or(0);
    let words = format!(
        "{0} x {0} cells after {1} repetitions",
        picture.side, picture.repetitions
    );
    let mut svg = begin(side + 2.0 * pad, head + side + 2.0 * pad + 26.0, &words);
    svg.push_str(&text(pad, 18.0, "start", &words));
    let most = format!("hottest block {:.2}", heat(hottest));
    svg.push_str(&text(pad, 36.0, "start", &most));
    let _ = writeln!(
        svg,
        "<g shape-rendering=\"crispEdges\"><rect x=\"{pad}\" y=\"{head}\" width=\"{side}\" height=\"{side}\" \
         fill=\"{}\"/>",
        colour(0)
    );
    let rows = picture.means.chunks(blocks.max(1) as usize);
    for (row, means) in (0_u32..).zip(rows) {
        let mut column = 0_u32;
        for run in means.chunk_by(|one, other| step(*one, hottest) == step(*other, hottest)) {
            let length = u32::try_from(run.len()).unwrap_or(0);
            let of_scale = step(run[0], hottest);
            if of_scale > 0 {
                let _ = writeln!(
                    svg,
                    "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{BLOCK}\" fill=\"{}\"/>",
                    PAD + column * BLOCK,
                    HEAD + row * BLOCK,
                    length * BLOCK,
                    colour(of_scale)
                );
            }
            column += length;
        }
    }
    let (top, each) = (head + side + 10.0, side / f64::from(STEPS + 1));
    for of_scale in 0..=STEPS {
        let _ = writeln!(
            svg,
            "<rect x=\"{:.2}\" y=\"{top}\" width=\"{:.2}\" height=\"8\" fill=\"{}\"/>",
            pad + f64::from(of_scale) * each,
            each + 0.5,
            colour(of_scale)
        );
    }
    svg.push_str("</g>\n");
    svg.push_str(&text(pad, top + 24.0, "start", "0"));
    let end = format!("{:.2}", heat(hottest));
    svg.push_str(&text(pad + side, top + 24.0, "end", &end));
    svg.push_str("</svg>\n");
    svg
}

/// The step of the scale of a mean.
fn step(mean: u32, hottest: u32) -> u32 {
    let scaled = u64::from(mean) * u64::from(STEPS) / u64::from(hottest.max(1));
    u32::try_from(scaled).unwrap_or(STEPS).min(STEPS)
}

fn colour(of_scale: u32) -> String {
    let parts = u32::try_from(SCALE.len() - 1).unwrap_or(1);
    let place = of_scale.min(STEPS) * parts;
    let below = (place / STEPS).min(parts - 1);
    let above = place - below * STEPS;
    let (cold, hot) = (SCALE[below as usize], SCALE[below as usize + 1]);
    let mix = |index: usize| (cold[index] * (STEPS - above) + hot[index] * above) / STEPS;
    format!("#{:02x}{:02x}{:02x}", mix(0), mix(1), mix(2))
}

/// The rows through the middle, as lines in one frame.
pub fn section(pictures: &[GridPicture]) -> String {
    let pad = f64::from(PAD);
    let (left, top) = (pad + 56.0, 28.0 + 18.0 * real(pictures.len() as u64));
    let mut svg = begin(
        left + WIDE + pad,
        top + HIGH + 48.0,
        "the row through the middle of the grid",
    );
    svg.push_str(&text(pad, 18.0, "start", "the row through the middle"));
    let hottest = pictures
        .iter()
        .flat_map(GridPicture::cells)
        .fold(0.0, f64::max);
    let _ = writeln!(
        svg,
        "<rect x=\"{left}\" y=\"{top}\" width=\"{WIDE}\" height=\"{HIGH}\" fill=\"none\" stroke=\"var(--line, #c9d1da)\"/>"
    );
    for (number, picture) in pictures.iter().enumerate() {
        let dash = DASHES[number % DASHES.len()];
        let line = top - 18.0 * real((pictures.len() - number) as u64) + 8.0;
        let _ = writeln!(
            svg,
            "<line x1=\"{left}\" x2=\"{:.1}\" y1=\"{line:.1}\" y2=\"{line:.1}\" stroke=\"var(--accent, #0b62c4)\" \
             stroke-width=\"1.5\" stroke-dasharray=\"{dash}\"/>",
            left + 40.0
        );
        let words = format!("after {} repetitions", picture.repetitions);
        svg.push_str(&text(left + 50.0, line + 4.0, "start", &words));
        let last = f64::from(picture.side.max(2) - 1);
        let points: Vec<String> = (0_u32..)
            .zip(picture.cells())
            .map(|(column, cell)| {
                let x = left + f64::from(column) / last * WIDE;
                let share = (cell / f64::max(hottest, f64::MIN_POSITIVE)).clamp(0.0, 1.0);
                format!("{x:.2},{:.2}", top + HIGH * (1.0 - share))
            })
            .collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"var(--accent, #0b62c4)\" stroke-width=\"1.5\" \
             stroke-dasharray=\"{dash}\"/>",
            points.join(" ")
        );
    }
    let foot = top + HIGH;
    svg.push_str(&text(
        left - 6.0,
        top + 10.0,
        "end",
        &format!("{hottest:.1}"),
    ));
    svg.push_str(&text(left - 6.0, foot, "end", "0"));
    svg.push_str(&text(left, foot + 18.0, "start", "column 0"));
    let side = pictures
        .first()
        .map_or(0, |picture| picture.side.saturating_sub(1));
    svg.push_str(&text(left + WIDE, foot + 18.0, "end", &side.to_string()));
    svg.push_str("</svg>\n");
    svg
}

/// The same as numbers that read back as they are: a column for each picture.
fn csv(pictures: &[GridPicture]) -> String {
    let mut text = String::from("column");
    for picture in pictures {
        let _ = write!(text, ",after_{}", picture.repetitions);
    }
    let rows = pictures.iter().map(|one| one.section.len()).max();
    for column in 0..rows.unwrap_or(0) {
        let _ = write!(text, "\n{column}");
        for picture in pictures {
            text.push(',');
            if let Some(bits) = picture.section.get(column) {
                let _ = write!(text, "{:?}", f64::from_bits(*bits));
            }
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(repetitions: u64, cells: &[f64]) -> GridPicture {
        GridPicture {
            repetitions,
            side: u32::try_from(cells.len()).expect("a small one"),
            blocks: 2,
            means: vec![0, 500_000, 1_000_000, 0],
            section: cells.iter().map(|cell| cell.to_bits()).collect(),
        }
    }

    #[test]
    fn the_cells_of_a_row_read_back_from_csv_as_they_are() {
        let cells = [0.0, 0.1 + 0.2, 9_999.999_999_999_998, f64::MIN_POSITIVE];
        let text = csv(&[picture(100, &cells), picture(7, &cells[..2])]);
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("column,after_100,after_7"));
        for (line, cell) in lines.zip(cells) {
            let read: Vec<&str> = line.split(',').collect();
            assert_eq!(read[1].parse(), Ok(cell));
        }
        assert!(text.ends_with(",\n"), "{text}");
    }

    #[test]
    fn the_hottest_block_has_the_hottest_colour_and_cold_ones_are_the_ground() {
        let svg = map(&picture(100, &[0.0, 1.0]));
        assert!(svg.contains("hottest block 10000.00"), "{svg}");
        let blocks = svg.matches("height=\"6\"").count();
        assert_eq!(blocks, 2, "{svg}");
        assert_eq!(colour(0), "#0f1126");
        assert_eq!(colour(STEPS), "#fcffc8");
        assert_eq!(
            (step(0, 0), step(7, 7), step(u32::MAX, 7)),
            (0, STEPS, STEPS)
        );
    }

    #[test]
    fn the_scale_grows_brighter_all_the_way() {
        // Relative luminance by ITU-R BT.709, without its gamma: only the order matters.
        let brightness = |of_scale: u32| {
            let text = colour(of_scale);
            let part = |at: usize| u32::from_str_radix(&text[at..at + 2], 16).expect("two digits");
            2126 * part(1) + 7152 * part(3) + 722 * part(5)
        };
        let all: Vec<u32> = (0..=STEPS).map(brightness).collect();
        assert!(all.is_sorted(), "{all:?}");
    }

    #[test]
    fn a_grid_without_a_picture_writes_an_empty_frame() {
        assert!(!section(&[]).contains("polyline"));
        assert_eq!(csv(&[]), "column\n");
    }
}
