//! A device in the picture: a NIC with its queues, its settings and its PCIe path, or a list of devices of one kind.

use linerate_analysis::text::visible::visible;
use linerate_analysis::text::words::wrap;
use linerate_model::host::{BlockDevice, Host, Module, Nic, PcieHop, RdmaDevice};
use linerate_model::ids::CpuId;
use linerate_model::known::Gap;
use linerate_model::qos::{CLASS_ROWS_SHOWN, ClassPath, class_paths};

use super::flow::{Flow, Via, flows};
use super::shapes::{
    CARD, INK, LINE, PAPER, SOFT, Style, cut, fitted, label, letters, line, rect, short, titled,
};
use super::{COLUMN, HotPath};
use crate::map::text::{kind_word, link_text, qdisc_text};

const PAD: u32 = 10;
const INNER: u32 = COLUMN - 2 * PAD;
const ROW: u32 = 15;
const HEAD: u32 = 26;
/// Boxes of a flow: its CPUs, what leads to them, its queues; and the arrows between them.
const CHIPS: [u32; 3] = [120, 76, 112];
const ARROW: u32 = 16;
/// Boxes of a class: VLAN, priority, class, limit; and the arrows between them.
const CLASS_CHIPS: [u32; 4] = [98, 88, 66, 58];
const CLASS_ARROW: u32 = 10;
/// Maximum number of links that are drawn separately.
const HOPS: usize = 4;
const FLOWS: usize = 6;
const LIST: usize = 8;
const NOTE: Style = Style::of(11, SOFT);

/// A card, drawn from (0, 0).
pub(super) struct Card {
    pub(super) height: u32,
    pub(super) body: String,
    /// The flows of its queues, for the lines to CPUs.
    pub(super) exits: Vec<Exit>,
}

/// Where the line of a flow leaves its card, and the CPUs that it leads to.
pub(super) struct Exit {
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) nic: String,
    pub(super) flow: Flow,
    /// The CPUs that processed packets, each with its share of them.
    pub(super) hot: Vec<(CpuId, f64)>,
}

impl Exit {
    /// Whether there is a line.
    pub(super) fn has_line(&self) -> bool {
        !self.flow.cpus.is_empty() || !self.hot.is_empty()
    }

    /// Whether the line leads to this CPU.
    pub(super) fn reaches(&self, cpu: CpuId) -> bool {
        self.flow.cpus.contains(cpu) || self.hot.iter().any(|(hot, _)| *hot == cpu)
    }
}

/// A card being drawn: its parts so far, and the position of the next.
struct Pen {
    y: u32,
    body: String,
}

impl Pen {
    fn start(title: &str, right: &str, gaps: &[&Gap]) -> Self {
        let bold = Style::of(13, INK).bold();
        let title = cut(title, 20);
        let used = u32::try_from(title.chars().count()).unwrap_or(0) * 8 + 8;
        let mut body = label(PAD, 18, bold, &title);
        let at = (COLUMN - PAD, 18);
        body += &fitted(
            at,
            INNER.saturating_sub(used),
            NOTE.anchored("end"),
            right,
            gaps,
        );
        Self { y: HEAD, body }
    }

    fn line(&mut self, text: &str, gaps: &[&Gap]) {
        let width = letters(INNER, NOTE.size);
        for part in wrap(&cut(text, 2 * width), width) {
            self.y += ROW;
            self.body += &fitted((PAD, self.y - 4), INNER, NOTE, &part, gaps);
        }
    }

    fn finish(self, exits: Vec<Exit>) -> Card {
        let height = self.y + 8;
        let remote = exits.iter().any(|exit| exit.flow.remote);
        let weight = if remote { "2.2" } else { "1.2" };
        let style = format!(" rx=\"6\" stroke-width=\"{weight}\"");
        Card {
            height,
            body: rect([0, 0, COLUMN, height], PAPER, INK, &style) + &self.body,
            exits,
        }
    }
}

/// The gaps among some facts.
fn gaps<'a>(all: &[Option<&'a Gap>]) -> Vec<&'a Gap> {
    all.iter().copied().flatten().collect()
}

/// An interface; `hot` is the path that packets took through it.
pub(super) fn nic_card(nic: &Nic, host: &Host, hot: Option<&HotPath>) -> Card {
    let driver = nic.driver.value().or(nic.card.driver.value());
    let mut right: Vec<String> = driver.map(|driver| visible(driver)).into_iter().collect();
    if right.is_empty() && nic.kind.has_wire() {
        right.push("driver ?".to_owned());
    }
    right.push(short(&nic.operstate));
    let open = gaps(&[nic.driver.gap(), nic.operstate.gap()]);
    let mut pen = Pen::start(nic.name.as_str(), &right.join(", "), &open);
    let exits = draw_flows(nic, host, hot, &mut pen);
    pen.line(
        &format!(
            "{}, {}, MTU {}{}",
            kind_word(nic),
            link_text(nic),
            short(&nic.mtu),
            fec_text(nic)
        ),
        &gaps(&[nic.link_bit_per_s.gap(), nic.mtu.gap()]),
    );
    pen.line(
        &format!("qdisc {}", qdisc_text(nic)),
        &gaps(&[nic.qdisc.gap()]),
    );
    draw_classes(nic, host, &mut pen);
    if let Some(module) = nic.wire.module.value() {
        pen.line(&module_text(module), &[]);
    }
    if let Some(firmware) = nic.card.firmware.value() {
        pen.line(&format!("firmware {}", firmware.trim()), &[]);
    }
    for text in rdma_lines(nic, host) {
        pen.line(&text, &[]);
    }
    if nic.kind.has_wire() {
        let (node, cpus) = (short(&nic.numa_node), short(&nic.local_cpus));
        let open = gaps(&[nic.numa_node.gap(), nic.local_cpus.gap()]);
        pen.line(&format!("NUMA node {node}, local CPUs {cpus}"), &open);
        draw_chain(nic, &mut pen);
    } else {
        pen.line("no PCIe and no NUMA node: a virtual interface", &[]);
    }
    pen.finish(exits)
}

/// The flows, one below the other. The last ones are only counted.
fn draw_flows(nic: &Nic, host: &Host, hot: Option<&HotPath>, pen: &mut Pen) -> Vec<Exit> {
    let all = flows(nic, host);
    let hidden = all.len().saturating_sub(FLOWS);
    let mut exits: Vec<Exit> = Vec::new();
    for (at, flow) in all.into_iter().enumerate() {
        let x = if at < FLOWS {
            draw_flow(&flow, pen)
        } else {
            PAD
        };
        exits.push(Exit {
            x,
            y: pen.y - if at < FLOWS { 9 } else { 0 },
            nic: nic.name.to_string(),
            hot: hot.map_or_else(Vec::new, |hot| of_flow(hot, &flow)),
            flow,
        });
    }
    if hidden > 0 {
        pen.line(&format!("and {hidden} more paths of queues"), &[]);
    } else if !exits.is_empty() {
        pen.y += 4;
    }
    // Packets that raised no interrupt of this interface came from any of its receive queues.
    let receives = exits
        .iter()
        .position(|exit| exit.flow.queues.contains("rx"));
    if exits.iter().all(|exit| exit.hot.is_empty())
        && let (Some(hot), Some(exit)) = (hot, exits.get_mut(receives.unwrap_or(0)))
    {
        exit.hot = hot.packets.iter().map(|cpu| (cpu, 0.5)).collect();
    }
    exits
}

/// VLAN, priority, class, limit: a box each, for each kind of traffic.
fn draw_classes(nic: &Nic, host: &Host, pen: &mut Pen) {
    for paths in class_paths(host, nic) {
        pen.line(&format!("classes by {}:", paths.mechanism), &[]);
        for row in paths.rows.iter().take(CLASS_ROWS_SHOWN) {
            draw_class(row, pen);
        }
        let hidden = paths.rows.len().saturating_sub(CLASS_ROWS_SHOWN);
        if hidden > 0 {
            pen.line(&format!("and {hidden} more classes"), &[]);
        }
        for why in &paths.unknown {
            pen.line(&format!("? {why}"), &[]);
        }
        pen.y += 4;
    }
}

fn draw_class(row: &ClassPath, pen: &mut Pen) {
    let y = pen.y + 4;
    let limit = match row.limit {
        Some(limit) => limit.to_string(),
        None => "no limit".to_owned(),
    };
    let texts = [&row.from, &row.selected_by, &row.class, &limit];
    let (mut x, mut body) = (PAD, String::new());
    for ((at, width), text) in CLASS_CHIPS.into_iter().enumerate().zip(texts) {
        let is_limited = at == 3 && row.limit.is_some();
        let (stroke, style) = if is_limited {
            (INK, " rx=\"3\" stroke-width=\"2\"")
        } else {
            (LINE, " rx=\"3\"")
        };
        body += &rect([x, y, width, 18], CARD, stroke, style);
        let small = Style::of(9, INK).anchored("middle");
        body += &fitted((x + width / 2, y + 13), width - 4, small, text, &[]);
        if at > 0 {
            let path = format!(
                "M{} {} H{} m-3 -3 l3 3 l-3 3",
                x - CLASS_ARROW,
                y + 9,
                x - 1
            );
            body += &line(&path, INK, "", "");
        }
        x += width + CLASS_ARROW;
    }
    let about = format!(
        "{} > {} > {} > {}",
        row.from,
        row.selected_by,
        row.class,
        row.limit_in_words()
    );
    pen.body += &titled(&about, &body);
    pen.y += 22;
}

/// The interrupts of a flow, by CPU.
fn of_flow(hot: &HotPath, flow: &Flow) -> Vec<(CpuId, f64)> {
    let Via::Interrupts(own, _) = &flow.via else {
        return Vec::new();
    };
    let of = hot.interrupts.iter().filter(|(irq, ..)| own.contains(irq));
    of.map(|(_, cpu, share)| (*cpu, *share)).collect()
}

/// CPUs, interrupts, queues: a box each, and where the line to the CPUs begins. CPUs of another node have a
/// thick border and report it.
fn draw_flow(flow: &Flow, pen: &mut Pen) -> u32 {
    let y = pen.y + 4;
    let cpus = match (&flow.via, flow.remote) {
        (Via::Nothing, _) => String::new(),
        (_, true) => format!("REMOTE: {}", flow.cpus_text()),
        (_, false) => flow.cpus_text(),
    };
    let texts = [cpus, flow.via_text(), flow.queues.clone()];
    let (mut x, mut first, mut body) = (PAD, None, String::new());
    for ((at, width), text) in CHIPS.into_iter().enumerate().zip(&texts) {
        if !text.is_empty() {
            let (stroke, style) = match (at, flow.remote, &flow.via) {
                (0, true, _) => (INK, " rx=\"3\" stroke-width=\"2.5\""),
                (0, _, Via::Steering(_)) => (SOFT, " rx=\"3\" stroke-dasharray=\"4 3\""),
                _ => (LINE, " rx=\"3\""),
            };
            body += &rect([x, y, width, 18], CARD, stroke, style);
            let small = Style::of(10, INK).anchored("middle");
            body += &fitted((x + width / 2, y + 13), width - 4, small, text, &[]);
            if first.is_some() {
                let (from, to, middle) = (x - 2, x + 2 - ARROW, y + 9);
                let path = format!("M{from} {middle} H{to} m4 -3 l-4 3 l4 3");
                body += &line(&path, INK, "", "");
            }
            first = first.or(Some(x));
        }
        x += width + ARROW;
    }
    pen.body += &titled(&flow.about, &body);
    pen.y += 22;
    first.unwrap_or(PAD)
}

/// The correction of the link.
fn fec_text(nic: &Nic) -> String {
    let fec = nic.wire.fec.value().and_then(|fec| fec.active.value());
    fec.map_or_else(String::new, |fec| format!(", FEC {fec}"))
}

fn module_text(module: &Module) -> String {
    let mut words = vec![module.form_factor.clone()];
    words.extend(module.vendor.value().map(|text| text.trim().to_owned()));
    words.extend(module.technology.value().cloned());
    if let Some(length) = module.length_dm.get() {
        words.push(format!("{}.{} m", length / 10, length % 10));
    }
    words.join(" ")
}

/// The RDMA ports of the same interface.
fn rdma_lines(nic: &Nic, host: &Host) -> Vec<String> {
    let of = |device: &RdmaDevice| -> Vec<String> {
        let ports = device.ports.iter();
        let own = ports.filter(|port| port.netdev.value() == Some(&nic.name));
        own.map(|port| {
            format!(
                "RDMA {} port {}: {}, {}",
                device.name,
                port.port,
                short(&port.state),
                short(&port.rate_bit_per_s)
            )
        })
        .collect()
    };
    host.rdma.iter().flat_map(of).take(2).collect()
}

/// The links from the root to the card; equal ones are merged, the narrowest is highlighted.
fn draw_chain(nic: &Nic, pen: &mut Pen) {
    let Some(pcie) = nic.pcie.value() else {
        let cause = nic
            .pcie
            .gap()
            .map_or_else(String::new, |gap| gap.cause.to_string());
        return pen.line(&format!("PCIe ? ({cause})"), &gaps(&[nic.pcie.gap()]));
    };
    let speed = |hop: &PcieHop| match (hop.transfer_mt_per_s.value(), hop.width.value()) {
        (Some(rate), Some(width)) => Some(format!("{rate} x{width}")),
        _ => None,
    };
    let speeds: Vec<Option<String>> = pcie.links.iter().map(speed).collect();
    let Some(first) = speeds.iter().flatten().next() else {
        return pen.line("no PCIe link information (emulated or integrated)", &[]);
    };
    if speeds.iter().all(|one| one.as_ref() == Some(first)) {
        let (links, passes) = (pcie.links.len(), short(&pcie.available_bit_per_s));
        let plural = if links == 1 { "" } else { "s" };
        let text = format!("PCIe {links} link{plural}, {first}, {passes} to the root");
        pen.line(&text, &[]);
        return;
    }
    let narrowest = |hop: &PcieHop| pcie.limited_by.get() == Some(hop.address);
    // The narrowest, the card's own and those next to the root are the most informative.
    let mut drawn: Vec<&PcieHop> = pcie.links.iter().rev().collect();
    let hidden = drawn.len().saturating_sub(HOPS);
    while drawn.len() > HOPS {
        let last = drawn.len() - 1;
        let at = (1..last)
            .rev()
            .find(|at| drawn.get(*at).is_some_and(|hop| !narrowest(hop)));
        drawn.remove(at.unwrap_or(0));
    }
    let count = u32::try_from(drawn.len()).unwrap_or(1).max(1);
    let width = (INNER - 8 * (count - 1)) / count;
    let mut x = PAD;
    for hop in drawn {
        let (fill, ink) = if narrowest(hop) {
            (INK, CARD)
        } else {
            (CARD, INK)
        };
        let open = gaps(&[hop.transfer_mt_per_s.gap(), hop.width.gap()]);
        let text = speed(hop).unwrap_or_else(|| "?".to_owned());
        let (middle, y) = (x + width / 2, pen.y + 4);
        let inside = Style::of(9, ink).anchored("middle");
        let caption = Style::of(9, SOFT).anchored("middle");
        let address = hop.address.to_string();
        pen.body += &rect([x, y, width, 18], fill, INK, " rx=\"3\"");
        pen.body += &fitted((middle, y + 13), width, inside, &text, &open);
        pen.body += &fitted((middle, y + 29), width, caption, &address, &[]);
        if x > PAD {
            let path = format!("M{} {} H{x}", x - 8, y + 9);
            pen.body += &line(&path, INK, " stroke-width=\"1.5\"", "");
        }
        x += width + 8;
    }
    pen.y += 36;
    let more = if hidden == 0 {
        String::new()
    } else {
        format!(", {hidden} links not shown")
    };
    let passes = match pcie.limited_by.value() {
        Some(_) => format!("(filled): {}", short(&pcie.available_bit_per_s)),
        None => "link: ?".to_owned(),
    };
    let text = format!("PCIe from the root; narrowest {passes}{more}");
    pen.line(&text, &gaps(&[pcie.available_bit_per_s.gap()]));
}

/// Devices of one kind, a line each.
pub(super) fn list_card(title: &str, lines: &[String]) -> Card {
    let mut pen = Pen::start(title, "", &[]);
    for text in lines.iter().take(LIST) {
        pen.line(text, &[]);
    }
    if lines.len() > LIST {
        pen.line(&format!("and {} more", lines.len() - LIST), &[]);
    }
    pen.finish(Vec::new())
}

/// Loop, RAM and the like: no device of any node.
pub(in crate::map) fn is_made_up(name: &str) -> bool {
    ["loop", "ram", "zram", "nbd", "dm-", "md"]
        .iter()
        .any(|stem| name.starts_with(stem))
}

/// One disk.
pub(in crate::map) fn block_text(device: &BlockDevice) -> String {
    let mut text = device.name.clone();
    for word in [&device.transport, &device.nvme_transport] {
        if let Some(word) = word.value() {
            text += &format!(" {word}");
        }
    }
    if let Some(size) = device.size_bytes.get() {
        text += &format!(", {size}");
    }
    let queues = match device.hardware_queues.get() {
        Some(1) => "1 queue".to_owned(),
        _ => format!("{} queues", short(&device.hardware_queues)),
    };
    text + &format!(", {queues}, scheduler {}", short(&device.scheduler))
}

/// An RDMA device whose ports have no interface here.
pub(in crate::map) fn rdma_text(device: &RdmaDevice) -> String {
    let ports: Vec<String> = device
        .ports
        .iter()
        .take(4)
        .map(|port| {
            format!(
                "port {} {} {} {}",
                port.port,
                short(&port.state),
                short(&port.rate_bit_per_s),
                short(&port.link_layer)
            )
        })
        .collect();
    format!("{}: {}", device.name, ports.join("; "))
}
