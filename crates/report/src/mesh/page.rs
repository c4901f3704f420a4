//! The page of a mesh: what is named, the heat map and the hosts. Pictures are of tiles, so that 4,096 hosts make a page
//! that opens at once.

use std::collections::BTreeMap;
use std::ops::Range;

use linerate_analysis::mesh::{CellState, Effect, HostResult, HostVerdict, Matrix, MeshDocument};

use super::{evidence, headline, result};
use crate::html::{escape, section, table};
use crate::page::shell;

/// The maximum number of tiles on a side of a heat map.
const TILES: usize = 256;
/// The side of a heat map in pixels.
const SIDE: usize = 1024;
/// A single pair of a tile that is slower than this is shown.
const SLOW_PAIR: f32 = -0.25;
/// The height of a heat map's text in pixels.
const LETTER: f64 = 13.0;
/// Longer names of hosts are cut at a heat map.
const NAME: usize = 24;
/// The hosts with the lowest rates are shown as bars.
const BARS: usize = 128;

/// The page of a mesh as one HTML document.
pub fn mesh_page(document: &MeshDocument, matrix: &Matrix, version: &str) -> String {
    let body = format!(
        "<header class=\"top\"><p class=\"brand\">linerate <span>mesh</span></p><p>{}</p></header>\n<main>\n{}{}{}{}</main>\n",
        escape(&result(document)),
        named(document),
        heat_map(document, matrix),
        bars(document),
        hosts(document),
    );
    shell("linerate mesh", version, &body, "{\"drawn\": []}")
}

fn named(document: &MeshDocument) -> String {
    let one = |named| {
        let lines = evidence(named);
        let lines = lines
            .iter()
            .map(|line| format!("<li>{}</li>", escape(line)));
        format!(
            "<h3>{}</h3><ul>{}</ul>",
            escape(&headline(named)),
            lines.collect::<String>()
        )
    };
    let body: String = document.named.iter().map(one).collect();
    let lead = if body.is_empty() {
        "No host, pair or group is slower than the others."
    } else {
        "Each was confirmed by measurements with other partners."
    };
    section("named", "Slow hosts and pairs", lead, &body)
}

/// What a tile shows, a color for each step: not tried, failed, or a rate relative to the median.
///
/// The lowest of many rates is low in a healthy mesh, too. A host that is slow lowers a whole row or column of a tile.
fn color(matrix: &Matrix, rows: Range<usize>, columns: Range<usize>) -> &'static str {
    let mut worst: Option<f32> = None;
    let mut lines = vec![Vec::new(); rows.len() + columns.len()];
    for row in rows.clone() {
        for column in columns.clone() {
            match matrix.cell(row, column) {
                CellState::Failed => return "#762a83",
                CellState::Measured(value) => {
                    worst = Some(worst.map_or(value, |worst| worst.min(value)));
                    lines[row - rows.start].push(value);
                    lines[rows.len() + column - columns.start].push(value);
                }
                CellState::NotTried => {}
            }
        }
    }
    let lowest = lines.iter_mut().filter_map(|line| middle(line));
    let lowest = lowest.min_by(f32::total_cmp);
    match worst.filter(|worst| *worst < SLOW_PAIR).or(lowest) {
        None => "var(--line, #d8dde3)",
        Some(value) if value < -0.5 => "#67000d",
        Some(value) if value < -0.25 => "#b2182b",
        Some(value) if value < -0.1 => "#ef8a62",
        Some(value) if value < -0.03 => "#fddbc7",
        Some(_) => "#67a9cf",
    }
}

/// The median; of an even number of values the lower one of the two in the middle.
fn middle(values: &mut [f32]) -> Option<f32> {
    values.sort_by(f32::total_cmp);
    let last = values.len().checked_sub(1)?;
    values.get(last / 2).copied()
}

/// Where a tile of a side begins.
const fn bound(tile: usize, count: usize, tiles: usize) -> usize {
    tile * count / tiles
}

fn heat_map(document: &MeshDocument, matrix: &Matrix) -> String {
    let count = matrix.len();
    let tiles = count.min(TILES);
    let range = |tile| bound(tile, count, tiles)..bound(tile + 1, count, tiles);
    // One path for each color: a browser lays out tens of thousands of elements in seconds.
    let mut paths: BTreeMap<&str, String> = BTreeMap::new();
    for row in 0..tiles {
        let colors = (0..tiles).map(|column| color(matrix, range(row), range(column)));
        let mut column = 0;
        for run in colors
            .collect::<Vec<_>>()
            .chunk_by(|one, other| one == other)
        {
            let width = run.len();
            let path = paths.entry(run[0]).or_default();
            path.push_str(&format!("M{column} {row}h{width}v1h-{width}z"));
            column += width;
        }
    }
    let drawn = paths
        .iter()
        .map(|(fill, path)| format!("<path fill=\"{fill}\" d=\"{path}\"/>"));
    let drawn: String = drawn.collect();
    let (labels, margin) = labels(document, matrix, tiles);
    let (width, height) = (f64_of(tiles) + margin.0, f64_of(tiles) + margin.1);
    let picture = format!(
        "<svg role=\"img\" aria-label=\"Heat map: senders in rows, receivers in columns\" width=\"{SIDE}\" viewBox=\"-{:.2} \
         -{:.2} {width:.2} {height:.2}\" style=\"max-width:100%;height:auto\"><g shape-rendering=\"crispEdges\">{drawn}</g>{labels}</svg>",
        margin.0, margin.1
    );
    let lead = format!(
        "Senders in rows, receivers in columns, by switch. Blue: within 3 % of the median or above; the darker the red, the \
         slower; purple: failed; gray: not tried.{}",
        if count > tiles {
            " Each tile has several pairs, and shows the lowest median of its rows and columns; a pair that is more than 25 % \
             below the median, or that failed, colors its tile."
        } else {
            ""
        }
    );
    section("heat", "Heat map", &lead, &picture)
}

/// The names of rows and the numbers of columns, as many as there is room for; the room that they need at the left and above.
fn labels(document: &MeshDocument, matrix: &Matrix, tiles: usize) -> (String, (f64, f64)) {
    let count = matrix.len();
    let size = LETTER * f64_of(tiles) / f64_of(SIDE);
    let every = |pixels: usize| (tiles * pixels).div_ceil(SIDE).max(1);
    let name = |tile: usize| {
        let at = bound(tile, count, tiles);
        let host = document.hosts.get(matrix.order[at]);
        let name = host.map_or("", |host| host.host.name.as_str());
        let short: String = name.chars().take(NAME).collect();
        format!("{} {short}", at + 1)
    };
    let mut text = format!("<g fill=\"currentColor\" font-size=\"{size:.3}\">");
    let mut longest = 0;
    for row in (0..tiles).step_by(every(18)) {
        let name = name(row);
        longest = longest.max(name.chars().count());
        text.push_str(&format!(
            "<text text-anchor=\"end\" x=\"-{:.3}\" y=\"{:.3}\">{}</text>",
            0.4 * size,
            f64_of(row) + 0.5 + 0.35 * size,
            escape(&name)
        ));
    }
    for column in (0..tiles).step_by(every(40)) {
        text.push_str(&format!(
            "<text x=\"{column}\" y=\"-{:.3}\">{}</text>",
            0.4 * size,
            bound(column, count, tiles) + 1
        ));
    }
    text.push_str("</g>");
    (text, ((0.62 * f64_of(longest) + 0.8) * size, 1.5 * size))
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
const fn f64_of(number: usize) -> f64 {
    number as f64
}

/// The lower end of a host's rates.
fn lowest(host: &HostResult) -> f64 {
    let ends = [host.send, host.receive];
    let ends = ends.iter().flatten().map(|effect| effect.relative);
    ends.fold(0.0, f64::min)
}

fn bars(document: &MeshDocument) -> String {
    let mut hosts: Vec<&HostResult> = document.hosts.iter().collect();
    hosts.sort_by(|a, b| lowest(a).total_cmp(&lowest(b)));
    let rows: Vec<Vec<String>> = hosts
        .iter()
        .take(BARS)
        .map(|host| {
            vec![
                escape(&host.host.name),
                bar(host.send.as_ref()),
                bar(host.receive.as_ref()),
            ]
        })
        .collect();
    let lead = format!(
        "Rates relative to most hosts with 95 % CI, the lowest {} first.",
        rows.len()
    );
    let body = table("Rates of hosts", &["host", "send", "receive"], &rows);
    section("bars", "Hosts compared", &lead, &body)
}

/// The interval as a bar from -50 % to +10 %, and the figure.
fn bar(effect: Option<&Effect>) -> String {
    let Some(effect) = effect else {
        return "not measured".to_owned();
    };
    let at = |value: f64| ((value + 0.5) / 0.6 * 120.0).clamp(0.0, 120.0);
    format!(
        "<svg width=\"120\" height=\"10\" aria-hidden=\"true\"><path stroke=\"currentColor\" opacity=\".4\" d=\"M100 0v10\"/><path \
         stroke=\"currentColor\" stroke-width=\"4\" d=\"M{:.1} 5H{:.1}\"/></svg> {:+.1} %",
        at(effect.low),
        at(effect.high).max(at(effect.low) + 1.0),
        effect.relative * 100.0
    )
}

fn hosts(document: &MeshDocument) -> String {
    let rows = document
        .hosts
        .iter()
        .filter(|host| host.state != HostVerdict::Ok)
        .map(|host| {
            let state = match host.state {
                HostVerdict::Ok => "ok",
                HostVerdict::Named => "named",
                HostVerdict::Unreached => "unreached",
                HostVerdict::NotTried => "not tried",
            };
            vec![
                escape(&host.host.name),
                state.to_owned(),
                escape(host.cause.as_deref().unwrap_or_default()),
            ]
        });
    let rows: Vec<Vec<String>> = rows.collect();
    let lead = "Hosts that are named, unreached or not tried; all others are ok.";
    let body = table("Hosts that are not ok", &["host", "result", "cause"], &rows);
    section("hosts", "Hosts", lead, &body)
}
