//! Stacked interfaces in the picture of a whole host: bonds, VLANs, bridges and tunnels above the
//! interfaces that carry them, an arrow to each of those.

use std::collections::{BTreeMap, BTreeSet};

use linerate_model::host::{Host, Nic, NicKind};
use linerate_model::ids::NicName;

use super::svg::{CARD, INK, PAPER, SOFT, cut, label, rect, short};
use super::text::kind_word;

const PILL: u32 = 176;
const PILL_GAP: u32 = 16;
const HEIGHT: u32 = 36;
const ROW: u32 = 76;
const PER_ROW: usize = 6;
/// More interfaces than this are only counted: a picture of a thousand is unreadable.
const DRAWN: usize = 60;
/// What a hostile host reports may be a ring.
const LEVELS: usize = 8;

/// The part of the picture, drawn from (0, 0).
pub(super) struct Stacked {
    pub(super) height: u32,
    pub(super) body: String,
}

/// Draws it; nothing for a host whose interfaces all have a wire and carry nothing.
pub(super) fn stacked(host: &Host) -> Option<Stacked> {
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
    let rows = rows(host, &levels);
    let mut y = 34;
    let mut spots: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    let mut pills = String::new();
    for row in &rows {
        let mut x = 12;
        for nic in row {
            spots.insert(nic.name.as_str(), (x, y));
            pills += &pill(nic, x, y);
            x += PILL + PILL_GAP;
        }
        y += ROW;
    }
    let mut body = String::new();
    for nic in rows.iter().flatten() {
        for lower in lowers(nic) {
            let ends = (spots.get(nic.name.as_str()), spots.get(lower));
            if let (Some(from), Some(to)) = ends {
                body += &arrow(*from, *to);
            }
        }
    }
    body += &pills;
    y = if rows.is_empty() {
        y + 8
    } else {
        y - ROW + HEIGHT + 20
    };
    let hidden = levels.len().saturating_sub(DRAWN);
    if hidden > 0 {
        let text = format!("and {hidden} more stacked interfaces");
        body += &label(12, y, "start", SOFT, 11, &text);
        y += 16;
    }
    if !alone.is_empty() {
        let named = alone.iter().take(6).cloned().collect::<Vec<_>>().join(", ");
        let rest = alone.len().saturating_sub(6);
        let more = if rest == 0 {
            String::new()
        } else {
            format!(" and {rest} more")
        };
        let text = format!("standalone: {named}{more}");
        body += &label(12, y, "start", SOFT, 11, &cut(&text, 170));
        y += 16;
    }
    Some(Stacked {
        height: y - 16,
        body,
    })
}

/// What an interface sends by.
pub(super) fn lowers(nic: &Nic) -> impl Iterator<Item = &str> {
    let tunnel = nic.stack.tunnel.as_ref();
    let link = tunnel.and_then(|tunnel| tunnel.link.value());
    let link = link.filter(|link| !nic.lower.contains(link));
    nic.lower.iter().chain(link).map(NicName::as_str)
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
fn rows<'a>(host: &'a Host, levels: &BTreeMap<&str, usize>) -> Vec<Vec<&'a Nic>> {
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
        let parts: Vec<Vec<&Nic>> = level.chunks(PER_ROW).map(<[&Nic]>::to_vec).collect();
        rows.extend(parts.into_iter().rev());
    }
    rows.reverse();
    rows
}

fn pill(nic: &Nic, x: u32, y: u32) -> String {
    let (style, fill) = if nic.kind.has_wire() {
        (" rx=\"6\" stroke-dasharray=\"2 3\"", CARD)
    } else {
        (" rx=\"6\"", PAPER)
    };
    let stroke = if nic.kind.has_wire() { SOFT } else { INK };
    let middle = x + PILL / 2;
    format!(
        "{}<g font-weight=\"600\">{}</g>{}",
        rect(x, y, PILL, HEIGHT, fill, stroke, style),
        label(
            middle,
            y + 15,
            "middle",
            INK,
            12,
            &cut(nic.name.as_str(), 22)
        ),
        label(middle, y + 29, "middle", SOFT, 10, &cut(&what(nic), 30))
    )
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

fn arrow(from: (u32, u32), to: (u32, u32)) -> String {
    let (x, y) = (from.0 + PILL / 2, from.1 + HEIGHT);
    let (to_x, to_y) = (to.0 + PILL / 2, to.1.saturating_sub(2));
    let (one, two) = (y + 24, to_y.saturating_sub(24));
    format!(
        "<path d=\"M{x} {y} C{x} {one} {to_x} {two} {to_x} {to_y}\" fill=\"none\" stroke=\"{INK}\" stroke-width=\"1.2\" marker-end=\"url(#arrow)\"/>"
    )
}
