//! The host map as a picture: CPUs by NUMA node, the PCIe links, the interface with its queues, a line
//! from each queue to the CPUs that serve it, and the wire to the other host.
//!
//! Letters, borders and dashes carry the meaning (S sends, R receives, P takes packets in); color only helps. An
//! unknown fact is a `?` whose `<title>` gives the reason. Colors are CSS variables with a fallback, so
//! that the picture follows the page's light or dark scheme and also works alone as a file.

use linerate_analysis::text::visible::visible;
use linerate_analysis::text::words::count;
use linerate_model::host::{Cpu, Host, Nic, Queue, QueueKind};
use linerate_model::ids::{CpuId, CpuSet, NicName};
use linerate_model::known::{Gap, Known};

use super::nic::{hot_lines, nic_box, nic_height_with_gap};
use crate::html::escape;

/// One host of a map.
#[derive(Debug, Clone, Copy)]
pub struct MapEnd<'a> {
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

impl HotPath {
    fn is_empty(&self) -> bool {
        self.packets.is_empty() && self.interrupts.is_empty()
    }
}

/// The layout of two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Next to each other, for wide pages.
    Beside,
    /// One below the other, for phones.
    Stacked,
}

const PANEL: u32 = 400;
pub(super) const PAD: u32 = 16;
/// Space for a host's name and kernel.
const HEAD: u32 = 46;
pub(super) const INNER: u32 = PANEL - 2 * PAD;
/// Space between two hosts for the wire and its name.
const BETWEEN: u32 = 150;
/// Space for the lines from queues to CPUs.
const LINES: u32 = 70;
/// A machine with more CPUs on a node than this gets their number in words as well.
const CPUS_DRAWN: usize = 512;
const NICS_DRAWN: usize = 8;

pub(super) const INK: &str = "var(--ink, #1b2430)";
pub(super) const SOFT: &str = "var(--ink-soft, #5b6675)";
pub(super) const LINE: &str = "var(--line, #c9d1da)";
pub(super) const CARD: &str = "var(--card, #ffffff)";
pub(super) const PAPER: &str = "var(--paper, #f6f7f9)";
const SEND: &str = "var(--accent, #0b62c4)";
const RECEIVE: &str = "var(--warm, #a8480a)";

/// The map of one host, or of two with the wire between them.
pub fn host_map_svg(near: &MapEnd<'_>, far: Option<(&MapEnd<'_>, &str)>, layout: Layout) -> String {
    let near_panel = Panel::draw(near, false, lines_room(near));
    let names = far.map_or_else(
        || near.name.to_owned(),
        |(far, _)| format!("{} and {}", near.name, far.name),
    );
    let (width, height, body) = match far {
        None => (PANEL, near_panel.height, near_panel.body),
        Some((far, wire)) if layout == Layout::Beside => beside(near, far, wire),
        Some((far, wire)) => stacked(&near_panel, far, wire),
    };
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"Map of {}: CPUs by NUMA node, interface, queues and interrupts\" font-family=\"ui-sans-serif, system-ui, sans-serif\" font-size=\"12\" fill=\"{INK}\">{body}</svg>",
        escape(&names)
    )
}

fn beside(near: &MapEnd<'_>, far: &MapEnd<'_>, wire: &str) -> (u32, u32, String) {
    let ends = [near, far];
    let room = lines_room(near).max(lines_room(far));
    let heights = ends.map(|end| Panel::draw(end, false, room).height);
    let height = heights[0].max(heights[1]);
    // The lower of the two gets longer lines, so that both begin and end together.
    let panels = [0, 1].map(|side| Panel::draw(ends[side], false, room + height - heights[side]));
    // Interfaces are at the bottom of each panel, so the wire is straight.
    let y = height - PAD - 24;
    let (from, to) = (PANEL - PAD, PANEL + BETWEEN + PAD);
    let wire = format!(
        "<line x1=\"{from}\" y1=\"{y}\" x2=\"{to}\" y2=\"{y}\" stroke=\"{INK}\" stroke-width=\"2.5\"/>{}",
        label((PANEL + to - PAD) / 2, y - 10, "middle", INK, 12, wire)
    );
    let body = format!(
        "{}{}{wire}",
        placed(&panels[0], 0, 0),
        placed(&panels[1], PANEL + BETWEEN, 0)
    );
    (2 * PANEL + BETWEEN, height, body)
}

fn stacked(near: &Panel, far: &MapEnd<'_>, wire: &str) -> (u32, u32, String) {
    let far = Panel::draw(far, true, lines_room(far));
    let gap = 56;
    let (from, to) = (near.height - PAD, near.height + gap + HEAD);
    // Right of the remote host's name.
    let x = PANEL - 90;
    let wire = format!(
        "<line x1=\"{x}\" y1=\"{from}\" x2=\"{x}\" y2=\"{to}\" stroke=\"{INK}\" stroke-width=\"2.5\"/>{}",
        label(x - 10, near.height + gap / 2 + 4, "end", INK, 12, wire)
    );
    let body = format!(
        "{}{}{wire}",
        placed(near, 0, 0),
        placed(&far, 0, near.height + gap)
    );
    (PANEL, near.height + gap + far.height, body)
}

/// A panel on its card.
fn placed(panel: &Panel, x: u32, y: u32) -> String {
    let card = rect(0, 0, PANEL, panel.height, CARD, LINE, " rx=\"10\"");
    format!(
        "<g transform=\"translate({x} {y})\">{card}{}</g>",
        panel.body
    )
}

/// One host, drawn from (0, 0).
struct Panel {
    height: u32,
    body: String,
}

/// Where a CPU was drawn: its center, and the edge that faces the queues.
pub(super) struct Spot {
    pub(super) cpu: CpuId,
    pub(super) x: u32,
    pub(super) y: u32,
}

impl Panel {
    /// Draws a host with its interface at the bottom, or, `flipped`, at the top, and `room` for the lines
    /// between CPUs and queues.
    fn draw(end: &MapEnd<'_>, flipped: bool, room: u32) -> Self {
        let nics = chosen_nics(end);
        let nic_height: u32 = nics.iter().map(|nic| nic_height_with_gap(nic)).sum();
        let cpu_y = if flipped {
            HEAD + nic_height + room
        } else {
            HEAD
        };
        let cpus = Cpus::draw(end, cpu_y, flipped);
        let nic_y = if flipped {
            HEAD
        } else {
            cpu_y + cpus.height + room
        };
        let (mut lines, mut boxes) = (String::new(), String::new());
        let mut y = nic_y;
        for nic in &nics {
            boxes.push_str(&nic_box(nic, y, flipped, &cpus.spots, &mut lines));
            if let Some(hot) = end.hot {
                let edge = if flipped {
                    y + nic_height_with_gap(nic) - 18
                } else {
                    y + 8
                };
                lines.push_str(&hot_lines(nic, hot, edge, &cpus.spots));
            }
            y += nic_height_with_gap(nic);
        }
        if nics.is_empty() {
            let text = "interface of the path: ? (unknown)";
            boxes.push_str(&label(PAD, nic_y + 16, "start", SOFT, 12, text));
        }
        let foot = if flipped {
            cpu_y + cpus.height
        } else {
            nic_y + nic_height.max(30)
        };
        // Lines run over the nodes' background and under all text.
        Self {
            height: foot + PAD - 10,
            body: [title(end), cpus.ground, lines, cpus.cells, boxes].concat(),
        }
    }
}

fn chosen_nics<'a>(end: &MapEnd<'a>) -> Vec<&'a Nic> {
    let all = end.host.nics.iter();
    all.filter(|nic| end.nic.is_none_or(|name| nic.name == *name))
        .take(NICS_DRAWN)
        .collect()
}

/// A host none of whose queues has a dedicated CPU needs no space for lines.
fn lines_room(end: &MapEnd<'_>) -> u32 {
    let drawn = |queue: &Queue| {
        [&queue.cpus, steering(queue)]
            .iter()
            .any(|fact| fact.value().is_some_and(has_lines))
    };
    let is_hot = end.hot.is_some_and(|hot| !hot.is_empty());
    if is_hot
        || chosen_nics(end)
            .iter()
            .any(|nic| nic.queues.iter().any(drawn))
    {
        LINES
    } else {
        14
    }
}

/// A queue that any of many CPUs may serve gets no lines: a fan of them is less clear than its title.
pub(super) fn has_lines(cpus: &CpuSet) -> bool {
    (1..=4).contains(&cpus.len())
}

/// The CPUs that packets of a queue are steered to.
pub(super) fn steering(queue: &Queue) -> &Known<CpuSet> {
    match queue.kind {
        QueueKind::Rx => &queue.rps_cpus,
        QueueKind::Tx => &queue.xps_cpus,
    }
}

fn title(end: &MapEnd<'_>) -> String {
    let identity = &end.host.identity;
    let text = format!(
        "Linux {}, {}, {}",
        short(&identity.kernel_release),
        short(&identity.architecture),
        count(end.host.cpus.len(), "CPU")
    );
    let gaps: Vec<&Gap> = [&identity.kernel_release, &identity.architecture]
        .iter()
        .filter_map(|fact| fact.gap())
        .collect();
    format!(
        "<g font-weight=\"600\">{}</g>{}",
        label(PAD, 22, "start", INK, 15, &cut(end.name, 40)),
        titled(&gaps, &label(PAD, 38, "start", SOFT, 11, &cut(&text, 64)))
    )
}

/// The CPUs of a host by node, in two layers, and the position of each.
struct Cpus {
    height: u32,
    ground: String,
    cells: String,
    spots: Vec<Spot>,
}

impl Cpus {
    fn draw(end: &MapEnd<'_>, top: u32, flipped: bool) -> Self {
        let (mut ground, mut cells, mut spots) = (String::new(), String::new(), Vec::new());
        let mut y = top;
        for (name, members, gaps) in groups(end.host) {
            let cell = Cell::for_count(members.len());
            let shown = members.len().min(CPUS_DRAWN);
            let rows = u32::try_from(shown.div_ceil(cell.per_row)).unwrap_or(0);
            let height = 26 + rows * (cell.height + 4) + 18;
            ground.push_str(&rect(PAD, y, INNER, height, PAPER, LINE, " rx=\"6\""));
            let heading = label(PAD + 8, y + 17, "start", SOFT, 11, &cut(&name, 60));
            cells.push_str(&over_lines(&titled(&gaps, &heading)));
            for (index, cpu) in members.iter().take(shown).enumerate() {
                let column = u32::try_from(index % cell.per_row).unwrap_or(0);
                let row = u32::try_from(index / cell.per_row).unwrap_or(0);
                let x = PAD + 8 + column * (cell.width + 4);
                let cell_y = y + 26 + row * (cell.height + 4);
                cells.push_str(&cpu_cell(end, cpu, &cell, x, cell_y));
                spots.push(Spot {
                    cpu: cpu.id,
                    x: x + cell.width / 2,
                    y: if flipped {
                        cell_y
                    } else {
                        cell_y + cell.height
                    },
                });
            }
            let roles = roles_text(end, &members, members.len() - shown);
            let baseline = y + height - 7;
            let roles = label(PAD + 8, baseline, "start", INK, 11, &cut(&roles, 62));
            cells.push_str(&over_lines(&roles));
            y += height + 8;
        }
        Self {
            height: (y - top).saturating_sub(8),
            ground,
            cells,
            spots,
        }
    }
}

type Group<'a> = (String, Vec<&'a Cpu>, Vec<&'a Gap>);

/// The nodes with their CPUs, and the CPUs whose node is unknown.
fn groups(host: &Host) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = host
        .nodes
        .iter()
        .map(|node| {
            let members = host
                .cpus
                .iter()
                .filter(|cpu| cpu.node.get() == Some(node.id));
            let name = format!(
                "NUMA node {}, memory {}",
                node.id,
                short(&node.memory_bytes)
            );
            (
                name,
                members.collect(),
                node.memory_bytes.gap().into_iter().collect(),
            )
        })
        .collect();
    let listed = |cpu: &Cpu| {
        host.nodes
            .iter()
            .any(|node| cpu.node.get() == Some(node.id))
    };
    let homeless: Vec<&Cpu> = host.cpus.iter().filter(|cpu| !listed(cpu)).collect();
    if !homeless.is_empty() || groups.is_empty() {
        let gaps: Vec<&Gap> = homeless
            .iter()
            .filter_map(|cpu| cpu.node.gap())
            .take(1)
            .collect();
        groups.push(("NUMA node ?".to_owned(), homeless, gaps));
    }
    groups
}

/// The size of a CPU's box.
struct Cell {
    width: u32,
    height: u32,
    per_row: usize,
    numbered: bool,
}

impl Cell {
    fn for_count(count: usize) -> Self {
        match count {
            0..=16 => Self {
                width: 40,
                height: 24,
                per_row: 8,
                numbered: true,
            },
            17..=64 => Self {
                width: 18,
                height: 18,
                per_row: 16,
                numbered: true,
            },
            _ => Self {
                width: 7,
                height: 7,
                per_row: 32,
                numbered: false,
            },
        }
    }
}

fn cpu_cell(end: &MapEnd<'_>, cpu: &Cpu, cell: &Cell, x: u32, y: u32) -> String {
    let sends = end.sender_cpus.contains(cpu.id);
    let receives = end.receiver_cpus.contains(cpu.id);
    let takes = end.hot.is_some_and(|hot| hot.packets.contains(cpu.id));
    let roles: String = [('S', sends), ('R', receives), ('P', takes)]
        .iter()
        .filter_map(|(letter, is)| is.then_some(*letter))
        .collect();
    let online = cpu.online.get();
    let (stroke, weight) = match (sends, receives) {
        (true, _) => (SEND, "2.5"),
        (false, true) => (RECEIVE, "2.5"),
        _ if takes => (INK, "2"),
        _ => (LINE, "1"),
    };
    let dashes = if online == Some(true) {
        ""
    } else {
        " stroke-dasharray=\"3 2\""
    };
    let style = format!(" rx=\"3\" stroke-width=\"{weight}\"{dashes}");
    let mut body = rect(x, y, cell.width, cell.height, CARD, stroke, &style);
    if cell.numbered {
        let wide = cell.width > 20;
        let unknown = if online.is_none() { "?" } else { "" };
        let text = if wide && !roles.is_empty() {
            format!("{}{unknown} {roles}", cpu.id)
        } else {
            format!("{}{unknown}", cpu.id)
        };
        let size = match (wide, text.len()) {
            (true, 0..=5) => 12,
            (true, _) => 10,
            (false, _) => 9,
        };
        let baseline = y + cell.height / 2 + size / 3 + 1;
        body.push_str(&label(
            x + cell.width / 2,
            baseline,
            "middle",
            INK,
            size,
            &text,
        ));
    }
    let state = match &cpu.online {
        Known::Value(true) => "online".to_owned(),
        Known::Value(false) => "offline".to_owned(),
        Known::Unknown(gap) => format!("online: ? ({gap})"),
    };
    let role: String = [
        (", sends", sends),
        (", receives", receives),
        (", processes received packets", takes),
    ]
    .iter()
    .filter_map(|(words, is)| is.then_some(*words))
    .collect();
    format!(
        "<g><title>{}</title>{body}</g>",
        escape(&format!("CPU {}: {state}{role}", cpu.id))
    )
}

/// The roles of a node's CPUs in words: the meaning of letters and borders.
fn roles_text(end: &MapEnd<'_>, members: &[&Cpu], hidden: usize) -> String {
    let here: CpuSet = members.iter().map(|cpu| cpu.id).collect();
    let mut words = Vec::new();
    let none = CpuSet::empty();
    let packets = end.hot.map_or(&none, |hot| &hot.packets);
    for (word, set) in [
        ("S sends", end.sender_cpus),
        ("R receives", end.receiver_cpus),
        ("P processes packets", packets),
    ] {
        let set = set.and(&here);
        if !set.is_empty() {
            words.push(format!("{word}: CPU {set}"));
        }
    }
    if words.is_empty() {
        words.push(match members.len() {
            0 => "no CPU here".to_owned(),
            _ if end.hot.is_some() => "no thread ran here".to_owned(),
            _ if end.sender_cpus.is_empty() && end.receiver_cpus.is_empty() => {
                "no thread is pinned".to_owned()
            }
            _ => "no thread is pinned here".to_owned(),
        });
    }
    if hidden > 0 {
        words.push(format!("{hidden} more not shown"));
    }
    words.join("; ")
}

/// A fact, or `?`; the cause is in the title.
pub(super) fn short<T: ToString>(fact: &Known<T>) -> String {
    match fact {
        Known::Value(value) => visible(&value.to_string()),
        Known::Unknown(gap) if gap.leaves_a_question() => "?".to_owned(),
        Known::Unknown(_) => "n/a".to_owned(),
    }
}

/// At most `most` characters; what is cut remains in the page's tables.
pub(super) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// Adds the reasons behind its question marks to a piece.
pub(super) fn titled(gaps: &[&Gap], piece: &str) -> String {
    // What does not exist here is no question mark.
    let open = gaps.iter().filter(|gap| gap.leaves_a_question());
    let reasons: Vec<String> = open.map(ToString::to_string).collect();
    if reasons.is_empty() {
        return piece.to_owned();
    }
    format!(
        "<g><title>{}</title>{piece}</g>",
        escape(&reasons.join("; "))
    )
}

/// Keeps text readable where lines run under it.
fn over_lines(text: &str) -> String {
    format!(
        "<g paint-order=\"stroke\" stroke=\"{PAPER}\" stroke-width=\"4\" stroke-linejoin=\"round\">{text}</g>"
    )
}

pub(super) fn rect(
    x: u32,
    y: u32,
    width: u32,
    height: u32,
    fill: &str,
    stroke: &str,
    more: &str,
) -> String {
    format!(
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\" stroke=\"{stroke}\"{more}/>"
    )
}

pub(super) fn label(x: u32, y: u32, anchor: &str, fill: &str, size: u32, text: &str) -> String {
    format!(
        "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" fill=\"{fill}\" font-size=\"{size}\">{}</text>",
        escape(text)
    )
}
