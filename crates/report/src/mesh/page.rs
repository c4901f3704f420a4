//! The page of a mesh: what is named, the heat map and the hosts. Pictures are of tiles, so that 4,096 hosts make a page
//! that opens at once.

use linerate_analysis::mesh::{CellState, Effect, HostResult, HostVerdict, Matrix, MeshDocument};

use super::{evidence, headline, result};
use crate::html::{escape, section, table};
use crate::page::shell;

/// The maximum number of tiles on a side of a heat map; a tile shows the worst of its cells.
const TILES: usize = 256;
/// The side of a heat map in pixels.
const SIDE: usize = 1024;
/// The hosts with the lowest rates are shown as bars.
const BARS: usize = 128;

/// The page of a mesh as one HTML document.
pub fn mesh_page(document: &MeshDocument, matrix: &Matrix, version: &str) -> String {
    let body = format!(
        "<header class=\"top\"><p class=\"brand\">linerate <span>mesh</span></p><p>{}</p></header>\n<main>\n{}{}{}{}</main>\n",
        escape(&result(document)),
        named(document),
        heat_map(matrix),
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

/// What a tile shows: not tried, failed, or one of seven steps of the worst rate.
fn class(matrix: &Matrix, rows: (usize, usize), columns: (usize, usize)) -> &'static str {
    let mut worst: Option<f32> = None;
    for row in rows.0..rows.1 {
        for column in columns.0..columns.1 {
            match matrix.cell(row, column) {
                CellState::Failed => return "#762a83",
                CellState::Measured(value) => {
                    worst = Some(worst.map_or(value, |worst| worst.min(value)));
                }
                CellState::NotTried => {}
            }
        }
    }
    match worst {
        None => "var(--line, #d8dde3)",
        Some(value) if value < -0.5 => "#67000d",
        Some(value) if value < -0.25 => "#b2182b",
        Some(value) if value < -0.1 => "#ef8a62",
        Some(value) if value < -0.03 => "#fddbc7",
        Some(_) => "#67a9cf",
    }
}

fn heat_map(matrix: &Matrix) -> String {
    let count = matrix.len();
    let tiles = count.min(TILES);
    let bound = |tile: usize| tile * count / tiles.max(1);
    let mut drawn = String::new();
    for row in 0..tiles {
        let mut column = 0;
        while column < tiles {
            let color = |column: usize| {
                let rows = (bound(row), bound(row + 1));
                class(matrix, rows, (bound(column), bound(column + 1)))
            };
            let first = color(column);
            let mut end = column + 1;
            while end < tiles && color(end) == first {
                end += 1;
            }
            drawn.push_str(&format!(
                "<path fill=\"{first}\" d=\"M{column} {row}h{}v1h-{}z\"/>",
                end - column,
                end - column
            ));
            column = end;
        }
    }
    let picture = format!(
        "<svg role=\"img\" aria-label=\"Heat map: senders in rows, receivers in columns\" width=\"{SIDE}\" viewBox=\"0 0 {tiles} \
         {tiles}\" shape-rendering=\"crispEdges\" style=\"max-width:100%;height:auto\">{drawn}</svg>"
    );
    let lead = format!(
        "Senders in rows, receivers in columns, by switch. Blue: within 3 % of the median or above; the darker the red, the \
         slower; purple: failed; gray: not tried.{}",
        if count > tiles {
            " Each tile shows the lowest rate of several pairs."
        } else {
            ""
        }
    );
    section("heat", "Heat map", &lead, &picture)
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
