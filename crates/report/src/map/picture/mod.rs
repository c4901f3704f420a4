//! The picture of hosts: a whole one (`linerate map --format svg`), or the ends of a path with the wire between them
//! (the pages). Both consist of the same parts: the CPUs of each NUMA node, the cards of devices, and a line from the
//! queues of a NIC to the CPUs that handle them.
//!
//! Letters, borders, dashes and arrowheads carry the meaning; color only helps. Boxes stand in columns, and lines
//! run in the gutters between these, so that no line crosses a text.

mod card;
mod cpus;
mod flow;
mod lines;
mod shapes;
mod stacked;

use linerate_analysis::text::words::count;
use linerate_model::host::{Host, Nic, RdmaDevice};
use linerate_model::ids::{CpuId, CpuSet, NicName, NodeId};
use linerate_model::known::Known;
use linerate_model::qos::class_paths;

use self::card::{Card, Exit, list_card, nic_card};
pub(super) use self::card::{block_text, is_made_up, rdma_text};
use self::cpus::{Block, Mark, block, places};
pub(super) use self::flow::{Flow, Via, flows, ranges};
use self::lines::{Gutter, Start, draw};
use self::shapes::{
    CARD, INK, LINE, PAPER, RECEIVE, SEND, SOFT, Style, fitted, label, line, rect, short,
};
pub(super) use self::stacked::lowers;
use self::stacked::stacked;
use crate::html::escape;

/// One end of a path.
#[derive(Debug, Clone, Copy)]
pub struct PathEnd<'a> {
    /// Its name.
    pub name: &'a str,
    /// The host.
    pub host: &'a Host,
    /// The interface to draw; `None` draws every one.
    pub nic: Option<&'a NicName>,
    /// The CPUs of sending threads.
    pub sender_cpus: &'a CpuSet,
    /// The CPUs of receiving threads.
    pub receiver_cpus: &'a CpuSet,
    /// The path that packets really took, if trials recorded it.
    pub hot: Option<&'a HotPath>,
}

/// The path that the packets of trials took through a host.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HotPath {
    /// The CPUs on which the kernel took packets in.
    pub packets: CpuSet,
    /// The interrupts, by number and CPU, each with its share of all of them.
    pub interrupts: Vec<(u32, CpuId, f64)>,
}

/// The layout of two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Next to each other, for wide pages.
    Beside,
    /// One below the other, for phones.
    Stacked,
}

/// The width of a block of CPUs, and of a card.
const COLUMN: u32 = 360;
const PAD: u32 = 12;
const HEAD: u32 = 68;
const GAP: u32 = 14;
/// Around and within the bands of a whole host.
const MARGIN: u32 = 16;
/// Between the CPUs and the devices of a whole host.
const GUTTER: u32 = 54;
/// Between two cards of a row.
const BETWEEN_CARDS: u32 = 26;
const PER_ROW: usize = 2;
const NICS_DRAWN: usize = 64;
/// One end of a path: lines run left of its boxes, the wire right of them.
const END_GUTTER: u32 = 40;
const END: u32 = END_GUTTER + COLUMN + 18;
const END_NICS_DRAWN: usize = 8;
/// Between two hosts, for the wire and its name.
const BETWEEN_HOSTS: u32 = 120;

fn svg(width: u32, height: u32, name: &str, body: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"Map of {}: CPUs by NUMA node, devices, PCIe links, queues and interrupts\" font-family=\"ui-sans-serif, system-ui, sans-serif\" font-size=\"12\" fill=\"{INK}\">{body}</svg>",
        escape(name)
    )
}

fn title(host: &Host, name: &str, (x, y): (u32, u32), width: u32) -> String {
    let identity = &host.identity;
    let facts = [
        &identity.kernel_release,
        &identity.architecture,
        &identity.cpu_model,
    ];
    let kernel = format!("Linux {}, {}", short(facts[0]), short(facts[1]));
    let cpus = format!("{}, {}", count(host.cpus.len(), "CPU"), short(facts[2]));
    let gaps: Vec<_> = facts.iter().filter_map(|fact| fact.gap()).collect();
    let small = Style::of(11, SOFT);
    fitted((x, y + 22), width, Style::of(16, INK).bold(), name, &[])
        + &fitted((x, y + 40), width, small, &kernel, &[])
        + &fitted((x, y + 55), width, small, &cpus, &gaps)
}

/// The marks of CPUs: their threads, and whose interrupts they handle.
fn marks<'a>(cards: impl Iterator<Item = &'a Card>, end: Option<&PathEnd<'_>>) -> Vec<Mark> {
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for flow in cards.flat_map(|card| &card.exits).map(|exit| &exit.flow) {
        if matches!(flow.via, Via::Interrupts(..)) {
            let own = if flow.remote { &mut far } else { &mut near };
            own.extend(flow.cpus.iter());
        }
    }
    let none = CpuSet::empty();
    let packets = end
        .and_then(|end| end.hot)
        .map_or(&none, |hot| &hot.packets);
    let senders = end.map_or(&none, |end| end.sender_cpus);
    let receivers = end.map_or(&none, |end| end.receiver_cpus);
    let mark = |letter, what, cpus: CpuSet, border| Mark {
        letter,
        what,
        cpus,
        border,
    };
    let far_words = "handles remote NIC interrupts";
    vec![
        mark('S', "sends", senders.clone(), (SEND, "2.5")),
        mark('R', "receives", receivers.clone(), (RECEIVE, "2.5")),
        mark('P', "processes packets", packets.clone(), (INK, "2")),
        mark('r', far_words, far.into_iter().collect(), (INK, "2.4")),
        mark(
            'i',
            "handles NIC interrupts",
            near.into_iter().collect(),
            (INK, "1.4"),
        ),
    ]
}

/// The picture of one host, every interface of it.
pub fn map_svg(host: &Host) -> String {
    let places = places(host, |node| cards(host, node));
    let all = || places.iter().flat_map(|place| &place.cards);
    let marks = marks(all(), None);
    let lines: Vec<&Exit> = all().flat_map(|card| &card.exits).collect();
    let columns = places
        .iter()
        .map(|place| place.cards.len())
        .max()
        .unwrap_or(0);
    let columns = u32::try_from(columns.min(PER_ROW)).unwrap_or(1);
    let cards_x = MARGIN + PAD + COLUMN + GUTTER;
    let right = match columns {
        0 => MARGIN + PAD + COLUMN,
        columns => cards_x + columns * (COLUMN + BETWEEN_CARDS) - BETWEEN_CARDS,
    };
    let width = right + PAD + MARGIN;
    let band = |y, height| {
        let area = [MARGIN, y, width - 2 * MARGIN, height];
        rect(area, CARD, LINE, " rx=\"10\"")
    };
    let (mut body, mut stops, mut starts) = (String::new(), Vec::new(), Vec::new());
    let mut y = HEAD;
    for place in &places {
        let top = y + PAD;
        let Block {
            height,
            body: own,
            stops: ends,
        } = block(place, &marks, &lines, (MARGIN + PAD, top), "");
        stops.extend(ends);
        let (cards, foot) = rows(&place.cards, (cards_x, top), &mut starts);
        let height = foot.max(top + height) + PAD - y;
        body += &(band(y, height) + &own + &cards);
        y += height + GAP;
    }
    if let Some(stacked) = stacked(host, width - 2 * MARGIN - 2 * PAD) {
        body += &band(y, stacked.height);
        body += &placed(MARGIN + PAD, y, &stacked.body);
        y += stacked.height + GAP;
    }
    body += &draw(
        &lines,
        &starts,
        &stops,
        Gutter {
            x: cards_x - GUTTER + 8,
            lanes: 8,
        },
    );
    let legend = match columns {
        0 => "Dotted: offline CPU.",
        _ => {
            "Queue to CPU: solid for interrupts, dashed for RPS and XPS; arrowheads: NIC on another node. Dotted: offline CPU."
        }
    };
    let inner = width - 2 * MARGIN;
    body += &fitted((MARGIN, y + 8), inner, Style::of(11, SOFT), legend, &[]);
    let height = y + 22;
    let name = host.identity.hostname.value();
    let name = name.map_or("this host", String::as_str);
    let ground = rect([0, 0, width, height], PAPER, "none", "");
    svg(
        width,
        height,
        name,
        &(ground + &title(host, name, (MARGIN, 0), inner) + &body),
    )
}

fn placed(x: u32, y: u32, body: &str) -> String {
    format!("<g transform=\"translate({x} {y})\">{body}</g>")
}

/// The cards of a place in rows, where their lines start, and the lower edge of them all. The lines of a second
/// column pass left of its card and below the first one.
fn rows(cards: &[Card], (x, top): (u32, u32), starts: &mut Vec<Start>) -> (String, u32) {
    let (mut body, mut y, mut foot) = (String::new(), top, top);
    for row in cards.chunks(PER_ROW) {
        foot = y + row.iter().map(|card| card.height).max().unwrap_or(0);
        let mut below = 0;
        for (column, card) in (0_u32..).zip(row) {
            let left = x + column * (COLUMN + BETWEEN_CARDS);
            body += &placed(left, y, &card.body);
            for (number, exit) in (0_u32..).zip(&card.exits) {
                let number = number.min(5);
                let detour = (column > 0).then(|| (left - 4 - 4 * number, foot + 6 + 4 * number));
                if column > 0 && exit.has_line() {
                    below = below.max(number + 1);
                }
                starts.push(Start {
                    x: left + exit.x,
                    y: y + exit.y,
                    detour,
                });
            }
        }
        foot += 4 * below;
        y = foot + GAP;
    }
    (body, foot)
}

/// The cards of a place: interfaces, then other RDMA devices, then disks.
fn cards(host: &Host, node: Option<NodeId>) -> Vec<Card> {
    let listed = |one: NodeId| host.nodes.iter().any(|node| node.id == one);
    let here = |fact: &Known<NodeId>| fact.get().filter(|one| listed(*one)) == node;
    let nics = host.nics.iter();
    let nics: Vec<&Nic> = nics
        .filter(|nic| {
            if nic.kind.has_wire() {
                return here(&nic.numa_node);
            }
            // A bond or another interface of no node, whose classes are drawn.
            node.is_none() && !class_paths(host, nic).is_empty()
        })
        .collect();
    let shown = nics.iter().take(NICS_DRAWN);
    let mut cards: Vec<Card> = shown.map(|nic| nic_card(nic, host, None)).collect();
    let names = nics.iter().skip(NICS_DRAWN).map(|nic| nic.name.to_string());
    let is_shown = |device: &RdmaDevice| {
        let mut netdevs = device.ports.iter().filter_map(|port| port.netdev.value());
        netdevs.any(|name| host.nic(name).is_some())
    };
    let rdma = host.rdma.iter();
    let rdma = rdma.filter(|device| here(&device.numa_node) && !is_shown(device));
    let disks = host.block.iter();
    let disks = disks.filter(|disk| here(&disk.numa_node) && !is_made_up(&disk.name));
    for (title, list) in [
        ("more interfaces", names.collect::<Vec<_>>()),
        ("RDMA", rdma.map(rdma_text).collect()),
        ("disks", disks.map(block_text).collect()),
    ] {
        if !list.is_empty() {
            cards.push(list_card(title, &list));
        }
    }
    cards
}

/// The picture of one end of a path, or of two with the wire between them.
pub fn path_svg(near: &PathEnd<'_>, far: Option<(&PathEnd<'_>, &str)>, layout: Layout) -> String {
    let Some((other, wire)) = far else {
        let panel = Panel::draw(near, false, 0);
        return svg(END, panel.height, near.name, &panel.body);
    };
    let names = format!("{} and {}", near.name, other.name);
    let across = |d: &str| line(d, INK, " stroke-width=\"2.5\"", "");
    let words = |x, y, anchor, width| {
        let style = Style::of(12, INK).anchored(anchor);
        fitted((x, y), width, style, wire, &[])
    };
    if layout == Layout::Stacked {
        let (one, two) = (Panel::draw(near, false, 0), Panel::draw(other, true, 0));
        let (gap, x, edge) = (48, END - 9, END - 18);
        let (from, top) = (one.height - 32, one.height + gap);
        let to = top + HEAD + 20;
        let body = one.body
            + &placed(0, top, &two.body)
            + &across(&format!("M{edge} {from} H{x} V{to} H{edge}"))
            + &words(x - 12, top - 20, "end", END - 40);
        return svg(END, top + two.height, &names, &body);
    }
    // The lower of the two gets more space above its interfaces, so that the wire is straight.
    let ends = [near, other];
    let heights = ends.map(|end| Panel::draw(end, false, 0).height);
    let height = heights[0].max(heights[1]);
    let [one, two] = [0, 1].map(|side| Panel::draw(ends[side], false, height - heights[side]));
    let (x, y) = (END + BETWEEN_HOSTS, height - 32);
    let body = one.body
        + &placed(x, 0, &two.body)
        + &across(&format!("M{} {y} H{}", END - 18, x + END_GUTTER))
        + &words(
            END + BETWEEN_HOSTS / 2,
            y - 10,
            "middle",
            BETWEEN_HOSTS - 12,
        );
    svg(x + END, height, &names, &body)
}

/// One end of a path, drawn from (0, 0).
struct Panel {
    height: u32,
    body: String,
}

impl Panel {
    /// Draws it with its interfaces below its CPUs, or, `flipped`, above them, and `room` between.
    fn draw(end: &PathEnd<'_>, flipped: bool, room: u32) -> Self {
        let nics = end.host.nics.iter();
        let cards: Vec<Card> = nics
            .filter(|nic| end.nic.is_none_or(|name| nic.name == *name))
            .take(END_NICS_DRAWN)
            .map(|nic| nic_card(nic, end.host, end.hot))
            .collect();
        let lines: Vec<&Exit> = cards.iter().flat_map(|card| &card.exits).collect();
        let marks = marks(cards.iter(), Some(end));
        let (mut body, mut stops, mut starts) = (String::new(), Vec::new(), Vec::new());
        let mut y = HEAD;
        if flipped {
            y = column(&cards, y, &mut body, &mut starts);
        }
        for place in places(end.host, |_| Vec::new()) {
            let block = block(&place, &marks, &lines, (END_GUTTER, y), idle(end));
            body += &block.body;
            stops.extend(block.stops);
            y += block.height + GAP;
        }
        if !flipped {
            y = column(&cards, y + room, &mut body, &mut starts);
        }
        let height = y;
        body += &draw(&lines, &starts, &stops, Gutter { x: 12, lanes: 5 });
        let ground = rect([0, 0, END, height], CARD, LINE, " rx=\"10\"");
        let title = title(end.host, end.name, (END_GUTTER, 0), COLUMN);
        Self {
            height,
            body: ground + &title + &body,
        }
    }
}

/// The interfaces of an end, one below the other; the y below them.
fn column(cards: &[Card], top: u32, body: &mut String, starts: &mut Vec<Start>) -> u32 {
    let mut y = top;
    for card in cards {
        *body += &placed(END_GUTTER, y, &card.body);
        starts.extend(card.exits.iter().map(|exit| Start {
            x: END_GUTTER + exit.x,
            y: y + exit.y,
            detour: None,
        }));
        y += card.height + GAP;
    }
    if cards.is_empty() {
        let text = "interface of the path: ? (unknown)";
        *body += &label(END_GUTTER, y + 14, Style::of(12, SOFT), text);
        y += 46;
    }
    y
}

/// The note of a node without a thread of the path.
fn idle(end: &PathEnd<'_>) -> &'static str {
    if end.hot.is_some() {
        "no thread ran here"
    } else if end.sender_cpus.is_empty() && end.receiver_cpus.is_empty() {
        "no thread is pinned"
    } else {
        "no thread is pinned here"
    }
}

#[cfg(test)]
mod tests;
