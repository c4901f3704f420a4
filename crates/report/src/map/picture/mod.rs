//! The picture of a whole host (`linerate map --format svg`): a band for each NUMA node with its CPUs on
//! the left and its devices on the right, and below them what is stacked on what.
//!
//! Borders, letters and dashes carry the meaning; color adds nothing. Boxes are in rows
//! that wrap, so that none overlaps another however many there are.

use std::collections::BTreeSet;

use linerate_analysis::text::words::count;
use linerate_model::host::{Cpu, Host, Nic, RdmaDevice};
use linerate_model::ids::{CpuId, CpuSet, NodeId};
use linerate_model::known::Known;

use super::card::{self, Card, block_text, is_made_up, list_card, nic_card, rdma_text};
use super::flow::{Flow, flows, ranges};
use super::stacked::stacked;
use super::svg::{CARD, INK, LINE, PAPER, SOFT, cut, label, rect, short};
use crate::html::escape;

const MARGIN: u32 = 16;
const PAD: u32 = 12;
const HEAD: u32 = 56;
/// The CPUs of a node.
const CPUS_X: u32 = MARGIN + PAD;
const CPUS: u32 = 344;
/// Between CPUs and devices: the line that devices hang on, and the lines to CPUs of other nodes.
const BUS_X: u32 = CPUS_X + CPUS + 14;
const LANES_X: u32 = BUS_X + 10;
const LANES: u32 = 8;
const CARDS_X: u32 = CPUS_X + CPUS + 64;
const PER_ROW: usize = 2;
const CARD_GAP: u32 = 16;
const ROW_GAP: u32 = 36;
const WIDTH: u32 = CARDS_X + 2 * card::WIDTH + CARD_GAP + PAD + MARGIN;
const BAND_GAP: u32 = 14;
const NICS_DRAWN: usize = 64;
const CPUS_DRAWN: usize = 512;

/// The picture of one host, every interface of it.
pub fn map_svg(host: &Host) -> String {
    let marks = Marks::of(host);
    let mut y = HEAD;
    let bands: Vec<Band<'_>> = places(host)
        .into_iter()
        .map(|place| {
            let band = Band::lay(host, place, &marks, y);
            y += band.height + BAND_GAP;
            band
        })
        .collect();
    let (mut ground, mut lines, mut boxes) = (String::new(), String::new(), String::new());
    let mut lane = 0;
    for band in &bands {
        ground += &band.ground();
        lines += &band.rails();
        lines += &band.far_lines(&bands, &mut lane);
        boxes += &band.boxes();
    }
    if let Some(stacked) = stacked(host) {
        let height = stacked.height + 12;
        ground += &rect(
            MARGIN,
            y,
            WIDTH - 2 * MARGIN,
            height,
            CARD,
            LINE,
            " rx=\"10\"",
        );
        boxes += &heading(
            y + 20,
            "Stacked and virtual",
            "arrows point to the underlying device",
        );
        boxes += &format!(
            "<g transform=\"translate({CPUS_X} {y})\">{}</g>",
            stacked.body
        );
        y += height + BAND_GAP;
    }
    boxes += &legend(y + 8);
    let height = y + 44;
    let name = host.identity.hostname.value();
    let name = name.map_or("this host", String::as_str);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" aria-label=\"Map of {}: CPUs by NUMA node, devices, PCIe links, queues and interrupts\" font-family=\"ui-sans-serif, system-ui, sans-serif\" font-size=\"12\" fill=\"{INK}\"><defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0 L8 4 L0 8 z\" fill=\"{INK}\"/></marker></defs>{}{}{ground}{lines}{boxes}</svg>",
        escape(name),
        rect(0, 0, WIDTH, height, PAPER, "none", ""),
        title(host, name)
    )
}

fn title(host: &Host, name: &str) -> String {
    let identity = &host.identity;
    let text = format!(
        "Linux {}, {}, {}, {}",
        short(&identity.kernel_release),
        short(&identity.architecture),
        count(host.cpus.len(), "CPU"),
        short(&identity.cpu_model)
    );
    format!(
        "<g font-weight=\"600\">{}</g>{}",
        label(MARGIN, 26, "start", INK, 18, &cut(name, 60)),
        label(MARGIN, 44, "start", SOFT, 12, &cut(&text, 140))
    )
}

fn heading(y: u32, what: &str, more: &str) -> String {
    format!(
        "<text x=\"{CPUS_X}\" y=\"{y}\" fill=\"{INK}\" font-size=\"13\" paint-order=\"stroke\" stroke=\"{CARD}\" stroke-width=\"5\" stroke-linejoin=\"round\"><tspan font-weight=\"600\">{}</tspan><tspan dx=\"10\" fill=\"{SOFT}\" font-size=\"11\">{}</tspan></text>",
        escape(what),
        escape(&cut(more, 150))
    )
}

fn legend(y: u32) -> String {
    let near = "i  handles interrupts of a NIC on its own node";
    let far = "r, thick and dashed  handles interrupts of a NIC on another node";
    let rest = "dotted  offline        dark link  the narrowest of a PCIe path";
    label(
        MARGIN,
        y + 12,
        "start",
        SOFT,
        11,
        &format!("CPUs: {near}      {far}      {rest}").replace("  ", "\u{a0}\u{a0}"),
    )
}

/// The CPUs that take interrupts of cards.
struct Marks {
    near: CpuSet,
    far: CpuSet,
}

impl Marks {
    fn of(host: &Host) -> Self {
        let (mut near, mut far) = (BTreeSet::new(), BTreeSet::new());
        for flow in host.nics.iter().flat_map(|nic| flows(nic, host)) {
            let own = if flow.remote { &mut far } else { &mut near };
            own.extend(flow.cpus.iter());
        }
        Self {
            near: near.into_iter().collect(),
            far: far.into_iter().collect(),
        }
    }
}

/// A node, or what is known of none.
struct Place<'a> {
    node: Option<NodeId>,
    more: String,
    cpus: Vec<&'a Cpu>,
}

fn places(host: &Host) -> Vec<Place<'_>> {
    let mut all: Vec<Place<'_>> = host
        .nodes
        .iter()
        .map(|node| {
            let on_node = |cpu: &&Cpu| cpu.node.get() == Some(node.id);
            let cpus: Vec<&Cpu> = host.cpus.iter().filter(on_node).collect();
            let packages: BTreeSet<u32> = cpus.iter().filter_map(|cpu| cpu.package.get()).collect();
            let mut words = vec![format!("CPUs {}", short(&node.cpus))];
            words.push(format!("memory {}", short(&node.memory_bytes)));
            if !packages.is_empty() {
                words.push(format!("package {}", ranges(&packages)));
            }
            let distances = node.distances.value().filter(|all| all.len() > 1);
            if let Some(distances) = distances {
                let all: Vec<String> = distances.iter().map(ToString::to_string).collect();
                words.push(format!("distances {}", all.join(" ")));
            }
            Place {
                node: Some(node.id),
                more: words.join(", "),
                cpus,
            }
        })
        .collect();
    let listed = |node: Option<NodeId>| host.nodes.iter().any(|one| node == Some(one.id));
    let cpus: Vec<&Cpu> = host
        .cpus
        .iter()
        .filter(|cpu| !listed(cpu.node.get()))
        .collect();
    let lost = |fact: &Known<NodeId>| !listed(fact.get());
    let devices = host
        .nics
        .iter()
        .any(|nic| nic.kind.has_wire() && lost(&nic.numa_node))
        || host.rdma.iter().any(|device| lost(&device.numa_node))
        || host
            .block
            .iter()
            .any(|device| lost(&device.numa_node) && !is_made_up(&device.name));
    if !cpus.is_empty() || devices {
        let more = "devices without a NUMA node".to_owned();
        all.push(Place {
            node: None,
            more,
            cpus,
        });
    }
    all
}

/// The cards of a place: interfaces, then other RDMA devices, then disks.
fn cards(host: &Host, node: Option<NodeId>) -> Vec<Card> {
    let listed = |one: NodeId| host.nodes.iter().any(|node| node.id == one);
    let here = |fact: &Known<NodeId>| fact.get().filter(|one| listed(*one)) == node;
    let nics: Vec<&Nic> = host
        .nics
        .iter()
        .filter(|nic| nic.kind.has_wire() && here(&nic.numa_node))
        .collect();
    let mut cards: Vec<Card> = nics
        .iter()
        .take(NICS_DRAWN)
        .map(|nic| nic_card(nic, host))
        .collect();
    if nics.len() > NICS_DRAWN {
        let names = nics.iter().skip(NICS_DRAWN).map(|nic| nic.name.to_string());
        cards.push(list_card("more interfaces", &names.collect::<Vec<_>>()));
    }
    let shown = |device: &RdmaDevice| {
        let mut ports = device.ports.iter();
        ports.any(|port| {
            port.netdev
                .value()
                .is_some_and(|name| host.nic(name).is_some())
        })
    };
    let rdma: Vec<String> = host
        .rdma
        .iter()
        .filter(|device| here(&device.numa_node) && !shown(device))
        .map(rdma_text)
        .collect();
    if !rdma.is_empty() {
        cards.push(list_card("RDMA", &rdma));
    }
    let disks: Vec<String> = host
        .block
        .iter()
        .filter(|device| here(&device.numa_node) && !is_made_up(&device.name))
        .map(block_text)
        .collect();
    if !disks.is_empty() {
        cards.push(list_card("disks", &disks));
    }
    cards
}

/// One place in the picture.
struct Band<'a> {
    place: Place<'a>,
    y: u32,
    height: u32,
    cells: String,
    cpus_height: u32,
    /// Each card with its position, and the bottom of its row.
    cards: Vec<(Card, u32, u32, u32)>,
}

impl<'a> Band<'a> {
    fn lay(host: &Host, place: Place<'a>, marks: &Marks, y: u32) -> Self {
        let top = y + 34;
        let (cells, cpus_height) = cpu_block(&place.cpus, marks, top);
        let mut placed = Vec::new();
        let mut row_y = top + 18;
        let mut foot = top;
        let mut waiting = cards(host, place.node).into_iter().peekable();
        while waiting.peek().is_some() {
            let row: Vec<Card> = waiting.by_ref().take(PER_ROW).collect();
            let height = row.iter().map(|card| card.height).max().unwrap_or(0);
            foot = row_y + height;
            let far = row.iter().any(|card| !card.remote.is_empty());
            let mut x = CARDS_X;
            for card in row {
                placed.push((card, x, row_y, foot));
                x += card::WIDTH + CARD_GAP;
            }
            foot += if far { 24 } else { 0 };
            row_y = foot + if far { ROW_GAP - 14 } else { ROW_GAP - 10 };
        }
        let height = foot.max(top + cpus_height) + PAD - y;
        Self {
            place,
            y,
            height,
            cells,
            cpus_height,
            cards: placed,
        }
    }

    fn ground(&self) -> String {
        let wide = WIDTH - 2 * MARGIN;
        let (y, height) = (self.y + 34, self.cpus_height);
        rect(MARGIN, self.y, wide, self.height, CARD, LINE, " rx=\"10\"")
            + &rect(CPUS_X, y, CPUS, height, PAPER, LINE, " rx=\"6\"")
    }

    /// The line that the devices hang on.
    fn rails(&self) -> String {
        let Some((_, _, last, _)) = self.cards.last() else {
            return String::new();
        };
        let (top, foot) = (self.y + 42, last - 10);
        let mut path = format!("M{} {top} H{BUS_X} V{foot}", CPUS_X + CPUS);
        for (_, x, y, _) in &self.cards {
            path += &format!(" M{BUS_X} {} H{} V{y}", y - 10, x + 24);
        }
        format!("<path d=\"{path}\" fill=\"none\" stroke=\"{SOFT}\" stroke-width=\"1.5\"/>")
    }

    /// From each card to the CPUs of another node that take its interrupts.
    fn far_lines(&self, bands: &[Self], lane: &mut u32) -> String {
        let mut out = String::new();
        for (card, x, y, foot) in &self.cards {
            for (at, flow) in (0_u32..).zip(&card.remote) {
                let Some(band) = bands.iter().find(|band| band.place.node == flow.node) else {
                    continue;
                };
                out += &far_line(
                    band,
                    (x + 60 + at * 12, y + card.height),
                    foot + 7,
                    *lane,
                    flow,
                );
                *lane += 1;
            }
        }
        out
    }

    fn boxes(&self) -> String {
        let cards = self.cards.iter().map(|(card, x, y, _)| {
            format!("<g transform=\"translate({x} {y})\">{}</g>", card.body)
        });
        let what = self.place.node.map_or_else(
            || "NUMA node ?".to_owned(),
            |node| format!("NUMA node {node}"),
        );
        heading(self.y + 21, &what, &self.place.more) + &self.cells + &cards.collect::<String>()
    }
}

fn far_line(band: &Band<'_>, from: (u32, u32), below: u32, lane: u32, flow: &Flow) -> String {
    let (x, y) = from;
    let below = below + lane % 4 * 4;
    let lane_x = LANES_X + lane % LANES * 5;
    let spread = band.cpus_height.saturating_sub(30).max(1);
    let to_y = band.y + 34 + 20 + (lane * 9) % spread;
    format!(
        "<path d=\"M{x} {y} V{below} H{lane_x} V{to_y} H{}\" fill=\"none\" stroke=\"{INK}\" stroke-width=\"2\" stroke-dasharray=\"6 3\" marker-end=\"url(#arrow)\"><title>{}</title></path>",
        CPUS_X + CPUS + 2,
        escape(&format!(
            "{}: {} of another node",
            flow.irqs,
            flow.cpus_text()
        ))
    )
}

/// The size of a CPU's box.
#[derive(Clone, Copy)]
struct Size {
    width: u32,
    height: u32,
    numbered: bool,
}

/// The CPUs of a place by last-level cache, and how high that is.
fn cpu_block(cpus: &[&Cpu], marks: &Marks, top: u32) -> (String, u32) {
    let size = match cpus.len() {
        0..=32 => Size {
            width: 34,
            height: 22,
            numbered: true,
        },
        33..=128 => Size {
            width: 25,
            height: 17,
            numbered: true,
        },
        _ => Size {
            width: 9,
            height: 9,
            numbered: false,
        },
    };
    let shown = cpus.get(..CPUS_DRAWN).unwrap_or(cpus);
    let mut caches: Vec<(Option<CpuSet>, Vec<&Cpu>)> = Vec::new();
    for cpu in shown {
        let cache = cpu.last_level_cache.value();
        match caches.iter_mut().find(|(own, _)| own.as_ref() == cache) {
            Some((_, members)) => members.push(cpu),
            None => caches.push((cache.cloned(), vec![cpu])),
        }
    }
    let named = caches.len() > 1;
    let first_x = CPUS_X + 8 + if named { 30 } else { 0 };
    let per_row = usize::try_from((CPUS_X + CPUS - 8 - first_x) / (size.width + 4)).unwrap_or(1);
    let mut body = String::new();
    let mut y = top + 8;
    for (_, members) in &caches {
        if named {
            body += &label(CPUS_X + 8, y + size.height / 2 + 4, "start", SOFT, 10, "L3");
        }
        let start = y;
        for row in members.chunks(per_row.max(1)) {
            let mut x = first_x;
            for cpu in row {
                body += &cell(cpu, marks, size, x, y);
                x += size.width + 4;
            }
            y += size.height + 4;
        }
        if named {
            let bar = CPUS_X + 8 + 22;
            body += &format!(
                "<line x1=\"{bar}\" y1=\"{start}\" x2=\"{bar}\" y2=\"{}\" stroke=\"{SOFT}\" stroke-width=\"2\"/>",
                y - 4
            );
            y += 4;
        }
    }
    let hidden = cpus.len() - shown.len();
    let note = match (cpus.len(), hidden) {
        (0, _) => Some("no CPU here".to_owned()),
        (_, 0) => None,
        _ => Some(format!("{hidden} more not shown")),
    };
    if let Some(note) = note {
        body += &label(CPUS_X + 8, y + 12, "start", SOFT, 11, &note);
        y += 18;
    }
    (body, y + 4 - top)
}

fn cell(cpu: &Cpu, marks: &Marks, size: Size, x: u32, y: u32) -> String {
    let (near, far) = (marks.near.contains(cpu.id), marks.far.contains(cpu.id));
    let online = cpu.online.get() == Some(true);
    let style = match (online, far, near) {
        (false, ..) => " rx=\"3\" stroke-dasharray=\"1 3\"",
        (_, true, _) => " rx=\"3\" stroke-width=\"2.4\" stroke-dasharray=\"5 2\"",
        (_, _, true) => " rx=\"3\" stroke-width=\"1.8\"",
        _ => " rx=\"3\"",
    };
    let stroke = if far || near { INK } else { SOFT };
    let fill = match (size.numbered, far, near) {
        (false, true, _) => INK,
        (false, _, true) => SOFT,
        _ => CARD,
    };
    let mut body = rect(x, y, size.width, size.height, fill, stroke, style);
    if size.numbered {
        let mark = match (near, far) {
            (true, true) => " ir",
            (true, false) => " i",
            (false, true) => " r",
            (false, false) => "",
        };
        let letters = if size.width > 30 { 10 } else { 9 };
        let text = match (size.width > 30, cpu.id) {
            (false, CpuId(100..)) => cpu.id.to_string(),
            _ => format!("{}{mark}", cpu.id),
        };
        let baseline = y + size.height / 2 + 4;
        body += &label(x + size.width / 2, baseline, "middle", INK, letters, &text);
    }
    let state = match &cpu.online {
        Known::Value(true) => "online".to_owned(),
        Known::Value(false) => "offline".to_owned(),
        Known::Unknown(gap) => format!("online: ? ({gap})"),
    };
    let takes = match (near, far) {
        (_, true) => ", handles interrupts of a NIC on another node",
        (true, false) => ", handles interrupts of a NIC on its node",
        (false, false) => "",
    };
    let core = cpu
        .core
        .get()
        .map_or_else(String::new, |core| format!(", core {core}"));
    format!(
        "<g><title>{}</title>{body}</g>",
        escape(&format!("CPU {}: {state}{core}{takes}", cpu.id))
    )
}

#[cfg(test)]
mod tests;
