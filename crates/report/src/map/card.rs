//! A device in the picture of a whole host: an interface with its PCIe path, its queues and what hangs on
//! it, or a list of devices of one kind.

use linerate_analysis::text::visible::visible;
use linerate_model::host::{BlockDevice, Host, Module, Nic, PcieHop, RdmaDevice};

use super::flow::{Flow, flows};
use super::svg::{CARD, INK, LINE, PAPER, SOFT, cut, label, rect, short};
use super::text::{kind_word, link_text};

/// How wide a card is.
pub(super) const WIDTH: u32 = 352;
const PAD: u32 = 10;
const ROW: u32 = 15;
const HEAD: u32 = 26;
/// A box of the PCIe path and its caption.
const CHAIN: u32 = 44;
const CHIPS: u32 = 26;
/// Letters of 11 px that fit between the borders.
const LETTERS: usize = 56;
/// Maximum number of links that are drawn separately.
const HOPS: usize = 4;
const FLOWS: usize = 4;
const LIST: usize = 8;

/// A card, drawn from (0, 0).
pub(super) struct Card {
    pub(super) height: u32,
    pub(super) body: String,
    /// The flows to CPUs of another node: how far below the top of the card they start, and to which CPUs.
    pub(super) remote: Vec<Flow>,
}

/// A card being drawn: its parts so far, and the position of the next.
struct Pen {
    y: u32,
    body: String,
}

impl Pen {
    fn start(title: &str, right: &str) -> Self {
        let mut body = format!(
            "<g font-weight=\"600\">{}</g>",
            label(PAD, 18, "start", INK, 13, &cut(title, 26))
        );
        body.push_str(&label(WIDTH - PAD, 18, "end", SOFT, 11, &cut(right, 26)));
        Self { y: HEAD, body }
    }

    fn line(&mut self, text: &str) {
        self.y += ROW;
        let text = label(PAD, self.y - 4, "start", SOFT, 11, &cut(text, LETTERS));
        self.body.push_str(&text);
    }

    fn finish(self, remote: Vec<Flow>) -> Card {
        let height = self.y + 8;
        let weight = if remote.is_empty() { "1.2" } else { "2.2" };
        let style = format!(" rx=\"6\" stroke-width=\"{weight}\"");
        Card {
            height,
            body: rect(0, 0, WIDTH, height, PAPER, INK, &style) + &self.body,
            remote,
        }
    }
}

/// An interface with a wire.
pub(super) fn nic_card(nic: &Nic, host: &Host) -> Card {
    let driver = nic.driver.value().or(nic.card.driver.value());
    let driver = driver.map_or_else(|| "driver ?".to_owned(), |driver| visible(driver));
    let title = nic.name.as_str();
    let mut pen = Pen::start(title, &format!("{driver}, {}", short(&nic.operstate)));
    pen.line(&format!(
        "{}, {}, MTU {}{}",
        kind_word(nic),
        link_text(nic),
        short(&nic.mtu),
        fec_text(nic)
    ));
    if let Some(module) = nic.wire.module.value() {
        pen.line(&module_text(module));
    }
    if let Some(firmware) = nic.card.firmware.value() {
        pen.line(&format!("firmware {}", firmware.trim()));
    }
    for text in rdma_lines(nic, host) {
        pen.line(&text);
    }
    draw_chain(nic, &mut pen);
    let all = flows(nic, host);
    for flow in all.iter().take(FLOWS) {
        draw_flow(flow, &mut pen);
    }
    if all.len() > FLOWS {
        pen.line(&format!("and {} more queue paths", all.len() - FLOWS));
    }
    let remote = all.into_iter().filter(|flow| flow.remote).collect();
    pen.finish(remote)
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
        return pen.line(&format!("PCIe ? ({cause})"));
    };
    let speed = |hop: &PcieHop| match (hop.transfer_mt_per_s.value(), hop.width.value()) {
        (Some(rate), Some(width)) => Some(format!("{rate} x{width}")),
        _ => None,
    };
    let speeds: Vec<Option<String>> = pcie.links.iter().map(speed).collect();
    let Some(first) = speeds.iter().flatten().next() else {
        return pen.line("PCI: no PCIe link information (emulated or integrated)");
    };
    if speeds.iter().all(|one| one.as_ref() == Some(first)) {
        let (links, passes) = (pcie.links.len(), short(&pcie.available_bit_per_s));
        let plural = if links == 1 { "" } else { "s" };
        pen.line(&format!(
            "PCIe {links} link{plural}, {first}, {passes} to the root"
        ));
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
    let width = (WIDTH - 2 * PAD - 12 * (count - 1)) / count;
    let mut x = PAD;
    for hop in drawn {
        let own = narrowest(hop);
        let (fill, ink, weight) = if own {
            (INK, CARD, "2.5")
        } else {
            (CARD, INK, "1")
        };
        let style = format!(" rx=\"3\" stroke-width=\"{weight}\"");
        let text = speed(hop).unwrap_or_else(|| "?".to_owned());
        let middle = x + width / 2;
        pen.body += &rect(x, pen.y + 4, width, 18, fill, INK, &style);
        pen.body += &label(middle, pen.y + 17, "middle", ink, 10, &cut(&text, 14));
        let caption = hop.address.to_string();
        pen.body += &label(middle, pen.y + 33, "middle", SOFT, 9, &caption);
        if x > PAD {
            let y = pen.y + 13;
            pen.body += &format!(
                "<line x1=\"{}\" y1=\"{y}\" x2=\"{x}\" y2=\"{y}\" stroke=\"{INK}\" stroke-width=\"1.5\"/>",
                x - 12
            );
        }
        x += width + 12;
    }
    pen.y += CHAIN - 6;
    let more = if hidden == 0 {
        String::new()
    } else {
        format!(", {hidden} links not shown")
    };
    pen.line(&format!(
        "PCIe from the root; narrowest (dark): {}{more}",
        short(&pcie.available_bit_per_s)
    ));
}

/// Queues, their interrupts, their CPUs: three boxes and two arrows. CPUs of another node have a thick
/// dashed border and report it.
fn draw_flow(flow: &Flow, pen: &mut Pen) {
    let y = pen.y + 4;
    let cpus = if flow.remote {
        format!("REMOTE: {}", flow.cpus_text())
    } else {
        flow.cpus_text()
    };
    let chip = (WIDTH - 2 * PAD - 2 * 16) / 3;
    let widths = [chip - 10, chip - 24, chip + 34];
    let mut x = PAD;
    let texts = [(&flow.queues, 15), (&flow.irqs, 13), (&cpus, 20)];
    for ((text, letters), (at, width)) in texts.into_iter().zip(widths.into_iter().enumerate()) {
        let style = if flow.remote && at == 2 {
            " rx=\"3\" stroke-width=\"2.5\" stroke-dasharray=\"6 3\""
        } else {
            " rx=\"3\""
        };
        let stroke = if flow.remote && at == 2 { INK } else { LINE };
        pen.body += &format!("<g><title>{}</title>", crate::html::escape(text));
        pen.body += &rect(x, y, width, 18, CARD, stroke, style);
        pen.body += &label(
            x + width / 2,
            y + 13,
            "middle",
            INK,
            10,
            &cut(text, letters),
        );
        pen.body += "</g>";
        x += width;
        if at < 2 {
            pen.body += &format!(
                "<path d=\"M{} {m} H{}\" stroke=\"{INK}\" fill=\"none\" marker-end=\"url(#arrow)\"/>",
                x + 2,
                x + 13,
                m = y + 9
            );
            x += 16;
        }
    }
    pen.y += CHIPS;
}

/// Devices of one kind, a line each.
pub(super) fn list_card(title: &str, lines: &[String]) -> Card {
    let mut pen = Pen::start(title, "");
    for text in lines.iter().take(LIST) {
        pen.line(text);
    }
    if lines.len() > LIST {
        pen.line(&format!("and {} more", lines.len() - LIST));
    }
    pen.finish(Vec::new())
}

/// Loop, RAM and the like: no device of any node.
pub(super) fn is_made_up(name: &str) -> bool {
    ["loop", "ram", "zram", "nbd", "dm-", "md"]
        .iter()
        .any(|stem| name.starts_with(stem))
}

/// One disk.
pub(super) fn block_text(device: &BlockDevice) -> String {
    let mut text = device.name.clone();
    for word in [&device.transport, &device.nvme_transport] {
        if let Some(word) = word.value() {
            text += &format!(" {word}");
        }
    }
    if let Some(size) = device.size_bytes.get() {
        text += &format!(", {size}");
    }
    text + &format!(
        ", {} queues, scheduler {}",
        short(&device.hardware_queues),
        short(&device.scheduler)
    )
}

/// An RDMA device whose ports have no interface here.
pub(super) fn rdma_text(device: &RdmaDevice) -> String {
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
