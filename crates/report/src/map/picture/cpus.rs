//! The CPUs of a NUMA node in the picture: a cell each, in rows by last-level cache, and under each row the space
//! for the lines that end there.

use std::collections::BTreeSet;

use linerate_model::host::{Cpu, Host};
use linerate_model::ids::{CpuId, CpuSet, NodeId};
use linerate_model::known::{Gap, Known};

use super::COLUMN;
use super::card::{Card, Exit};
use super::flow::ranges;
use super::shapes::{
    CARD, INK, LINE, PAPER, SOFT, Style, fitted, label, letters, rect, short, titled,
};

const PAD: u32 = 8;
/// Maximum number of CPUs of a node that are drawn.
const CPUS_DRAWN: usize = 512;
/// Lines that end in a row; further ones share the last place.
const LINES: u32 = 6;
/// Between two lines.
const STEP: u32 = 5;
/// The label of a last-level cache.
const CACHE: u32 = 28;

/// A node, or what is known to be on none.
pub(super) struct Place<'a> {
    name: String,
    about: String,
    gaps: Vec<&'a Gap>,
    pub(super) cpus: Vec<&'a Cpu>,
    /// The devices on it.
    pub(super) cards: Vec<Card>,
}

/// The nodes of a host, and what is on none of them.
pub(super) fn places(host: &Host, cards: impl Fn(Option<NodeId>) -> Vec<Card>) -> Vec<Place<'_>> {
    let mut all: Vec<Place<'_>> = host
        .nodes
        .iter()
        .map(|node| {
            let on_node = |cpu: &&Cpu| cpu.node.get() == Some(node.id);
            let cpus: Vec<&Cpu> = host.cpus.iter().filter(on_node).collect();
            let packages: BTreeSet<u32> = cpus.iter().filter_map(|cpu| cpu.package.get()).collect();
            let memory = short(&node.memory_bytes);
            let mut name = format!("NUMA node {}, memory {memory}", node.id);
            if !packages.is_empty() {
                name += &format!(", package {}", ranges(&packages));
            }
            let mut about = format!("CPUs {}", short(&node.cpus));
            if let Some(all) = node.distances.value().filter(|all| all.len() > 1) {
                let all: Vec<String> = all.iter().map(ToString::to_string).collect();
                about = format!("distances {}, {about}", all.join(" "));
            }
            Place {
                name,
                about,
                gaps: node
                    .memory_bytes
                    .gap()
                    .into_iter()
                    .chain(node.cpus.gap())
                    .collect(),
                cpus,
                cards: cards(Some(node.id)),
            }
        })
        .collect();
    let listed = |node: Option<NodeId>| host.nodes.iter().any(|one| node == Some(one.id));
    let cpus = host.cpus.iter().filter(|cpu| !listed(cpu.node.get()));
    let cpus: Vec<&Cpu> = cpus.collect();
    let none = Place {
        name: "NUMA node ?".to_owned(),
        about: "no NUMA node reported".to_owned(),
        gaps: cpus
            .iter()
            .filter_map(|cpu| cpu.node.gap())
            .take(1)
            .collect(),
        cpus,
        cards: cards(None),
    };
    if !none.cpus.is_empty() || !none.cards.is_empty() || all.is_empty() {
        all.push(none);
    }
    all
}

/// CPUs with something in common: a letter in their cells, and its meaning below them.
pub(super) struct Mark {
    pub(super) letter: char,
    pub(super) what: &'static str,
    pub(super) cpus: CpuSet,
    /// The color and weight of their borders.
    pub(super) border: (&'static str, &'static str),
}

/// The block of a place.
pub(super) struct Block {
    pub(super) height: u32,
    pub(super) body: String,
    pub(super) stops: Vec<Stop>,
}

/// Where a line ends: under a row of cells.
pub(super) struct Stop {
    /// The number of the line.
    pub(super) line: usize,
    pub(super) y: u32,
    /// Its CPUs in this row, each with the middle of its lower edge.
    pub(super) cells: Vec<(CpuId, u32, u32)>,
}

#[derive(Clone, Copy)]
struct Size {
    width: u32,
    height: u32,
    numbered: bool,
}

const fn size_for(count: usize) -> Size {
    let (width, height, numbered) = match count {
        0..=32 => (36, 22, true),
        33..=128 => (25, 17, true),
        _ => (9, 11, false),
    };
    Size {
        width,
        height,
        numbered,
    }
}

/// Draws a place at (`x`, `top`). `idle` is shown where no CPU has a thread.
pub(super) fn block(
    place: &Place<'_>,
    marks: &[Mark],
    lines: &[&Exit],
    (x, top): (u32, u32),
    idle: &str,
) -> Block {
    let inner = COLUMN - 2 * PAD;
    let at = x + PAD;
    let (head, note) = (Style::of(12, INK).bold(), Style::of(11, SOFT));
    let mut body = fitted((at, top + 17), inner, head, &place.name, &place.gaps)
        + &fitted((at, top + 32), inner, note, &place.about, &[]);
    let mut stops = Vec::new();
    let size = size_for(place.cpus.len());
    let shown = place.cpus.get(..CPUS_DRAWN).unwrap_or(&place.cpus);
    let caches = by_cache(shown);
    let indent = if caches.len() > 1 { CACHE } else { 0 };
    let per_row = usize::try_from((inner + 4 - indent) / (size.width + 4)).unwrap_or(1);
    let mut y = top + 40;
    for members in &caches {
        if indent > 0 {
            body += &label(at, y + size.height / 2 + 4, Style::of(10, SOFT), "L3");
            body += &rect([at + CACHE - 9, y, 1, size.height], SOFT, SOFT, "");
        }
        for row in members.chunks(per_row.max(1)) {
            let columns = (0_u32..).map(|column| at + indent + column * (size.width + 4));
            let cells: Vec<(CpuId, u32, u32)> = row
                .iter()
                .zip(columns)
                .map(|(cpu, x)| {
                    body += &cell(cpu, marks, size, x, y);
                    (cpu.id, x + size.width / 2, y + size.height)
                })
                .collect();
            y += size.height;
            let mut here = 0;
            for (number, exit) in lines.iter().enumerate() {
                let reached = cells.iter().filter(|(cpu, ..)| exit.reaches(*cpu)).copied();
                let reached: Vec<_> = reached.collect();
                if !reached.is_empty() {
                    here = LINES.min(here + 1);
                    stops.push(Stop {
                        line: number,
                        y: y + 3 + here * STEP,
                        cells: reached,
                    });
                }
            }
            y += if here == 0 { 4 } else { here * STEP + 9 };
        }
    }
    for text in notes(place, marks, shown.len(), idle) {
        y += 14;
        body += &fitted((at, y - 2), inner, Style::of(11, INK), &text, &[]);
    }
    let height = y + 6 - top;
    let ground = rect([x, top, COLUMN, height], PAPER, LINE, " rx=\"6\"");
    Block {
        height,
        body: ground + &body,
        stops,
    }
}

fn by_cache<'a>(cpus: &[&'a Cpu]) -> Vec<Vec<&'a Cpu>> {
    let mut caches: Vec<(Option<&CpuSet>, Vec<&Cpu>)> = Vec::new();
    for cpu in cpus {
        let cache = cpu.last_level_cache.value();
        match caches.iter_mut().find(|(own, _)| *own == cache) {
            Some((_, members)) => members.push(cpu),
            None => caches.push((cache, vec![cpu])),
        }
    }
    caches.into_iter().map(|(_, members)| members).collect()
}

/// The meaning of the letters on a place's CPUs, and how many are not drawn.
fn notes(place: &Place<'_>, marks: &[Mark], shown: usize, idle: &str) -> Vec<String> {
    let own: CpuSet = place.cpus.iter().map(|cpu| cpu.id).collect();
    let of_mark = |mark: &Mark| {
        let cpus = mark.cpus.and(&own);
        (!cpus.is_empty()).then(|| format!("{} {}: CPU {cpus}", mark.letter, mark.what))
    };
    let mut notes: Vec<String> = marks.iter().filter_map(of_mark).collect();
    if own.is_empty() {
        notes.push("no CPU here".to_owned());
    } else if !idle.is_empty() && !notes.iter().any(|note| note.starts_with(['S', 'R', 'P'])) {
        notes.push(idle.to_owned());
    }
    if place.cpus.len() > shown {
        notes.push(format!("{} more not shown", place.cpus.len() - shown));
    }
    notes
}

fn cell(cpu: &Cpu, marks: &[Mark], size: Size, x: u32, y: u32) -> String {
    let own: Vec<&Mark> = marks
        .iter()
        .filter(|mark| mark.cpus.contains(cpu.id))
        .collect();
    let (stroke, weight) = own.first().map_or((SOFT, "1"), |mark| mark.border);
    let fill = if size.numbered || own.is_empty() {
        CARD
    } else {
        stroke
    };
    let online = cpu.online.get();
    let dashes = if online == Some(true) {
        ""
    } else {
        " stroke-dasharray=\"1 3\""
    };
    let style = format!(" rx=\"3\" stroke-width=\"{weight}\"{dashes}");
    let mut body = rect([x, y, size.width, size.height], fill, stroke, &style);
    if size.numbered {
        let unknown = if online.is_none() { "?" } else { "" };
        let number = format!("{}{unknown}", cpu.id);
        let all: String = own.iter().map(|mark| mark.letter).collect();
        let first: String = all.chars().take(1).collect();
        let texts = [(&all, 10), (&all, 9), (&first, 9)].map(|(letters, points)| {
            let text = format!("{number} {letters}");
            (text.trim_end().to_owned(), points)
        });
        let fits = |(text, points): &(String, u32)| {
            text.chars().count() <= letters(size.width - 2, *points)
        };
        let fitting = texts.into_iter().find(fits);
        let (text, points) = fitting.unwrap_or((number, 9));
        let style = Style::of(points, INK).anchored("middle");
        body += &label(x + size.width / 2, y + size.height / 2 + 4, style, &text);
    }
    let mut about = vec![match &cpu.online {
        Known::Value(true) => "online".to_owned(),
        Known::Value(false) => "offline".to_owned(),
        Known::Unknown(gap) => format!("online: ? ({gap})"),
    }];
    about.extend(cpu.core.get().map(|core| format!("core {core}")));
    about.extend(own.iter().map(|mark| mark.what.to_owned()));
    titled(&format!("CPU {}: {}", cpu.id, about.join(", ")), &body)
}
