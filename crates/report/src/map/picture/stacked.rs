//! Stacked interfaces in the picture of a whole host: bonds, VLANs, bridges and tunnels above the interfaces that
//! carry them, an arrow to each of those. Arrows run between the rows and columns.

use std::collections::{BTreeMap, BTreeSet};

use linerate_model::host::{Host, Nic, NicKind};
use linerate_model::ids::NicName;

use super::shapes::{CARD, INK, PAPER, SOFT, Style, fitted, head, label, line, rect, short};
use crate::map::text::kind_word;

const PILL: u32 = 168;
const PILL_GAP: u32 = 16;
const HEIGHT: u32 = 36;
const ROW: u32 = 76;
/// More interfaces than this are only counted: a picture of a thousand is unreadable.
const DRAWN: usize = 60;
/// What a hostile host reports may be a ring.
const LEVELS: usize = 8;
const NOTE: Style = Style::of(11, SOFT);

/// The part of the picture, drawn from (0, 0).
pub(super) struct Stacked {
    pub(super) height: u32,
    pub(super) body: String,
}

/// Draws it; nothing for a host whose interfaces all have a wire and carry nothing.
pub(super) fn stacked(host: &Host, width: u32) -> Option<Stacked> {
    let levels = levels(host);
    let alone: Vec<String> = host
        .nics
        .iter()
        .filter(|nic| !nic.kind.has_wire() && !levels.contains_key(nic.name.as_str()))
        .map(|nic| format!("{} ({})", nic.name, kind_word(nic)))
        .collect();
    if levels.is_empty() && alone.is_empty() {
        return None;
    }
    let per_row = usize::try_from((width - PILL_GAP) / (PILL + PILL_GAP)).unwrap_or(1);
    let rows = rows(host, &levels, per_row);
    let mut body = label(0, 20, Style::of(13, INK).bold(), "Stacked and virtual");
    if !rows.is_empty() {
        body += &label(160, 20, NOTE, "arrows point to the underlying device");
    }
    let mut y = 34;
    let mut spots: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for row in &rows {
        let mut x = PILL_GAP;
        for nic in row {
            spots.insert(nic.name.as_str(), (x, y));
            body += &pill(nic, x, y);
            x += PILL + PILL_GAP;
        }
        y += ROW;
    }
    for nic in rows.iter().flatten() {
        for lower in lowers(nic) {
            let ends = (spots.get(nic.name.as_str()), spots.get(lower));
            if let (Some(from), Some(to)) = ends {
                body += &arrow(*from, *to);
            }
        }
    }
    if !rows.is_empty() {
        y = y + HEIGHT + 10 - ROW;
    }
    let mut notes = Vec::new();
    let hidden = levels.len().saturating_sub(DRAWN);
    if hidden > 0 {
        notes.push(format!("and {hidden} more stacked interfaces"));
    }
    if !alone.is_empty() {
        notes.push(format!("standalone: {}", alone.join(", ")));
    }
    for text in notes {
        body += &fitted((0, y + 8), width, NOTE, &text, &[]);
        y += 16;
    }
    Some(Stacked {
        height: y + 4,
        body,
    })
}

/// What an interface sends by.
pub(in crate::map) fn lowers(nic: &Nic) -> impl Iterator<Item = &str> {
    let tunnel = nic.stack.tunnel.as_ref();
    let link = tunnel.and_then(|tunnel| tunnel.link.value());
    let link = link.filter(|link| !nic.lower().contains(link));
    nic.lower().iter().chain(link).map(NicName::as_str)
}

/// How many interfaces each one has below it at most; only those that carry or are carried.
fn levels(host: &Host) -> BTreeMap<&str, usize> {
    let names: BTreeSet<&str> = host.nics.iter().map(|nic| nic.name.as_str()).collect();
    let mut levels = BTreeMap::new();
    for nic in &host.nics {
        for lower in lowers(nic).filter(|lower| names.contains(lower)) {
            levels.entry(lower).or_insert(0);
            levels.entry(nic.name.as_str()).or_insert(1);
        }
    }
    for _ in 0..LEVELS {
        for nic in &host.nics {
            let above = lowers(nic).filter_map(|lower| levels.get(lower)).max();
            if let Some(above) = above.map(|level| level + 1) {
                levels.insert(nic.name.as_str(), above.min(LEVELS));
            }
        }
    }
    // An interface that carries others and has no wire is right below the first of them.
    for nic in host.nics.iter().filter(|nic| !nic.kind.has_wire()) {
        let name = nic.name.as_str();
        let uppers = host.nics.iter();
        let above = uppers
            .filter(|upper| lowers(upper).any(|lower| lower == name))
            .filter_map(|upper| levels.get(upper.name.as_str()))
            .min()
            .copied();
        if let (0, Some(above)) = (lowers(nic).count(), above) {
            levels.insert(name, above.saturating_sub(1));
        }
    }
    levels
}

/// The interfaces row by row, the highest first; within a row in the order of what carries them.
fn rows<'a>(host: &'a Host, levels: &BTreeMap<&str, usize>, per_row: usize) -> Vec<Vec<&'a Nic>> {
    let mut by_level: BTreeMap<usize, Vec<&Nic>> = BTreeMap::new();
    let known = host.nics.iter().filter_map(|nic| {
        let level = levels.get(nic.name.as_str())?;
        Some((*level, nic))
    });
    let mut known: Vec<(usize, &Nic)> = known.collect();
    // Those at the bottom carry the others: when not all fit, they are kept.
    known.sort_by_key(|(level, _)| *level);
    for (level, nic) in known.into_iter().take(DRAWN) {
        by_level.entry(level).or_default().push(nic);
    }
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut rows = Vec::new();
    for mut level in by_level.into_values() {
        let first = |nic: &&Nic| {
            let carried = lowers(nic).filter_map(|lower| places.get(lower)).min();
            carried.copied().unwrap_or(usize::MAX)
        };
        level.sort_by_key(first);
        for (at, nic) in level.iter().enumerate() {
            places.insert(nic.name.as_str(), at);
        }
        let parts: Vec<Vec<&Nic>> = level.chunks(per_row.max(1)).map(<[&Nic]>::to_vec).collect();
        rows.extend(parts.into_iter().rev());
    }
    rows.reverse();
    rows
}

fn pill(nic: &Nic, x: u32, y: u32) -> String {
    let (style, fill, stroke) = if nic.kind.has_wire() {
        (" rx=\"6\" stroke-dasharray=\"2 3\"", CARD, SOFT)
    } else {
        (" rx=\"6\"", PAPER, INK)
    };
    let (middle, inner) = (x + PILL / 2, PILL - 8);
    let name = Style::of(12, INK).bold().anchored("middle");
    let small = Style::of(10, SOFT).anchored("middle");
    rect([x, y, PILL, HEIGHT], fill, stroke, style)
        + &fitted((middle, y + 15), inner, name, nic.name.as_str(), &[])
        + &fitted((middle, y + 29), inner, small, &what(nic), &[])
}

/// A short description of it.
fn what(nic: &Nic) -> String {
    let stack = &nic.stack;
    let mut text = if let Some(vlan) = &stack.vlan {
        format!("VLAN {}", short(&vlan.id))
    } else if let Some(bond) = &stack.bond {
        format!("bond {}, {}", short(&bond.mode), short(&bond.hash_policy))
    } else if let Some(tunnel) = &stack.tunnel {
        format!("{} {}", short(&tunnel.kind), short(&tunnel.id))
    } else if nic.kind.has_wire() {
        "shown above".to_owned()
    } else {
        kind_word(nic)
    };
    if let Some(port) = &stack.bond_port {
        text += &format!(", {}", short(&port.state));
    }
    if nic.kind != NicKind::Bond && !nic.kind.has_wire() {
        text += &format!(", MTU {}", short(&nic.mtu));
    }
    text
}

/// Down from one interface to another: right away if that is in the next row, else through the space left of it.
fn arrow((from_x, from_y): (u32, u32), (to_x, to_y): (u32, u32)) -> String {
    let column = from_x / (PILL + PILL_GAP);
    let turn = from_y + HEIGHT + 5 + column % 6 * 4;
    let (x, to) = (from_x + PILL / 2, to_x + PILL / 2);
    let mut d = format!("M{x} {} V{turn}", from_y + HEIGHT);
    if to_y != from_y + ROW {
        let aside = to_x - 4 - column % 4 * 3;
        d += &format!(" H{aside} V{}", to_y - 8);
    }
    let d = d + &format!(" H{to} V{}", to_y - 2);
    line(&d, INK, " stroke-width=\"1.2\"", "") + &head(to, to_y, true)
}
