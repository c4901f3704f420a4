//! An interface in the picture of a host: its box, its queues and the lines to the CPUs that serve them.

use linerate_model::host::{Nic, Queue, QueueKind};
use linerate_model::ids::CpuId;
use linerate_model::known::{Gap, Known};

use super::svg::{
    CARD, HotPath, INK, INNER, LINE, PAD, PAPER, SOFT, Spot, cut, has_lines, label, rect, short,
    steering, titled,
};
use super::text::{kind_word, link_text, qdisc_text, queue_name};
use crate::html::escape;

const QUEUES_DRAWN: usize = 12;

/// The lines of an interface's box, each with the gaps behind its question marks.
fn nic_lines(nic: &Nic) -> Vec<(String, Vec<&Gap>)> {
    let mut lines = vec![
        (
            format!(
                "{}{}, {}",
                kind_word(nic),
                driver_text(nic),
                short(&nic.operstate)
            ),
            [nic.driver.gap(), nic.operstate.gap()]
                .into_iter()
                .flatten()
                .collect(),
        ),
        (
            format!("{}, MTU {}", link_text(nic), short(&nic.mtu)),
            [nic.link_bit_per_s.gap(), nic.mtu.gap()]
                .into_iter()
                .flatten()
                .collect(),
        ),
        (
            format!("qdisc {}", qdisc_text(nic)),
            nic.qdisc.gap().into_iter().collect(),
        ),
    ];
    if !nic.kind.has_wire() {
        lines.push((
            "no PCIe and no NUMA node: a virtual interface".to_owned(),
            Vec::new(),
        ));
        return lines;
    }
    lines.push((
        format!(
            "NUMA node {}, local CPUs {}",
            short(&nic.numa_node),
            short(&nic.local_cpus)
        ),
        [nic.numa_node.gap(), nic.local_cpus.gap()]
            .into_iter()
            .flatten()
            .collect(),
    ));
    match &nic.pcie {
        Known::Unknown(gap) => lines.push(("PCIe ?".to_owned(), vec![gap])),
        Known::Value(pcie) => {
            for (index, hop) in pcie.links.iter().take(5).enumerate() {
                let narrowest = pcie.limited_by.get() == Some(hop.address);
                lines.push((
                    format!(
                        "{}PCIe {} {} x{}{}",
                        if index == 0 { "" } else { "↳ " },
                        hop.address,
                        short(&hop.transfer_mt_per_s),
                        short(&hop.width),
                        if narrowest {
                            format!("  ◀ narrowest, {}", short(&pcie.available_bit_per_s))
                        } else {
                            String::new()
                        }
                    ),
                    [hop.transfer_mt_per_s.gap(), hop.width.gap()]
                        .into_iter()
                        .flatten()
                        .collect(),
                ));
            }
        }
    }
    lines
}

/// The driver; software that has none is known by its kind.
fn driver_text(nic: &Nic) -> String {
    match nic.driver.gap() {
        Some(gap) if !gap.leaves_a_question() || !nic.kind.has_wire() => String::new(),
        _ => format!(", driver {}", short(&nic.driver)),
    }
}

fn nic_height(nic: &Nic) -> u32 {
    let lines = u32::try_from(nic_lines(nic).len()).unwrap_or(0);
    30 + lines * 16 + if nic.queues.is_empty() { 0 } else { 34 }
}

pub(super) fn nic_height_with_gap(nic: &Nic) -> u32 {
    nic_height(nic) + 10
}

/// An interface with its queues on the side of the CPUs; the lines to them go to `lines`.
pub(super) fn nic_box(
    nic: &Nic,
    top: u32,
    flipped: bool,
    spots: &[Spot],
    lines: &mut String,
) -> String {
    let height = nic_height(nic);
    let mut body = rect(
        PAD,
        top,
        INNER,
        height,
        PAPER,
        INK,
        " rx=\"6\" stroke-width=\"1.5\"",
    );
    let queue_y = if flipped { top + height - 28 } else { top + 8 };
    let mut y = if nic.queues.is_empty() || flipped {
        top + 20
    } else {
        top + 54
    };
    body.push_str("<g font-weight=\"600\">");
    body.push_str(&label(PAD + 10, y, "start", INK, 13, nic.name.as_str()));
    body.push_str("</g>");
    for (text, gaps) in nic_lines(nic) {
        y += 16;
        body.push_str(&titled(
            &gaps,
            &label(PAD + 10, y, "start", SOFT, 11, &cut(&text, 62)),
        ));
    }
    let shown = nic.queues.len().min(QUEUES_DRAWN);
    let more = nic.queues.len() > shown;
    let places = u32::try_from(shown + usize::from(more)).unwrap_or(1).max(1);
    let width = ((INNER - 16) / places).min(84) - 4;
    let mut x = PAD + 8;
    for queue in nic.queues.iter().take(shown) {
        body.push_str(&queue_box(nic, queue, x, queue_y, width));
        let edge = if flipped { queue_y + 20 } else { queue_y };
        lines.push_str(&queue_lines(queue, x + width / 2, edge, spots));
        x += width + 4;
    }
    if more {
        let text = format!("+{}", nic.queues.len() - shown);
        body.push_str(&label(
            x + width / 2,
            queue_y + 14,
            "middle",
            SOFT,
            10,
            &text,
        ));
    }
    body
}

fn queue_box(nic: &Nic, queue: &Queue, x: u32, y: u32, width: u32) -> String {
    let name = queue_name(queue);
    let interrupt = match (&queue.irq, nic.kind.has_wire()) {
        (Known::Value(irq), _) => format!("irq {irq}"),
        (Known::Unknown(_), true) => "irq ?".to_owned(),
        (Known::Unknown(_), false) => "no irq".to_owned(),
    };
    let text = match width {
        0..=60 => name.replace('-', ""),
        _ => format!("{name} {interrupt}"),
    };
    let mut about = vec![format!("{name}: {interrupt}")];
    for (what, fact) in [
        ("handled by CPUs", &queue.cpus),
        ("RPS", &queue.rps_cpus),
        ("XPS", &queue.xps_cpus),
    ] {
        match fact {
            Known::Value(set) if set.is_empty() => about.push(format!("{what}: none")),
            Known::Value(set) => about.push(format!("{what}: {set}")),
            Known::Unknown(gap) if gap.leaves_a_question() => {
                about.push(format!("{what}: ? ({gap})"));
            }
            Known::Unknown(_) => about.push(format!("{what}: n/a")),
        }
    }
    if let Some(gap) = queue.irq.gap().filter(|gap| gap.leaves_a_question()) {
        about.push(gap.to_string());
    }
    format!(
        "<g><title>{}</title>{}{}</g>",
        escape(&about.join("; ")),
        rect(x, y, width, 20, CARD, LINE, " rx=\"3\""),
        label(
            x + width / 2,
            y + 14,
            "middle",
            INK,
            if width > 30 { 10 } else { 9 },
            &text
        )
    )
}

/// The path that packets really took: a thick line from the queue of an interrupt to the CPU that took it, the thicker
/// the more of them did. An interface without interrupts has a line to each CPU that packets were taken in on.
pub(super) fn hot_lines(nic: &Nic, hot: &HotPath, edge: u32, spots: &[Spot]) -> String {
    let place = |index: usize| {
        let shown = nic.queues.len().min(QUEUES_DRAWN);
        let places = u32::try_from(shown + usize::from(nic.queues.len() > shown)).unwrap_or(1);
        let width = ((INNER - 16) / places.max(1)).min(84);
        // Those that are not drawn stand together behind the others.
        PAD + 8 + u32::try_from(index.min(shown)).unwrap_or(0) * width + width / 2 - 2
    };
    let mut ways: Vec<(u32, CpuId, f64)> = Vec::new();
    for (index, queue) in nic.queues.iter().enumerate() {
        let Some(irq) = queue.irq.get() else { continue };
        let of_queue = hot.interrupts.iter().filter(|(of, ..)| *of == irq.0);
        ways.extend(of_queue.map(|(_, cpu, share)| (place(index), *cpu, *share)));
    }
    if ways.is_empty() {
        let is_rx = |queue: &Queue| queue.kind == QueueKind::Rx;
        let from = nic.queues.iter().position(is_rx).map_or(PAD + 40, place);
        ways.extend(hot.packets.iter().map(|cpu| (from, cpu, 0.5)));
    }
    let mut out = String::new();
    for (x, cpu, share) in ways {
        let Some(spot) = spots.iter().find(|spot| spot.cpu == cpu) else {
            continue;
        };
        let middle = u32::midpoint(spot.y, edge);
        out.push_str(&format!(
            "<path d=\"M{x} {edge} C{x} {middle} {} {middle} {} {}\" fill=\"none\" stroke=\"{INK}\" stroke-width=\"{:.1}\" stroke-linecap=\"round\"><title>{}</title></path>",
            spot.x,
            spot.x,
            spot.y,
            2.0 + 3.0 * share.clamp(0.0, 1.0),
            escape(&format!("packets of {} were processed on CPU {cpu}", nic.name))
        ));
    }
    out
}

/// Lines from a queue to its CPUs: whole for the interrupt, dashed for packet steering.
fn queue_lines(queue: &Queue, x: u32, y: u32, spots: &[Spot]) -> String {
    let mut out = String::new();
    for (set, dashes) in [
        (&queue.cpus, ""),
        (steering(queue), " stroke-dasharray=\"4 3\""),
    ] {
        let Some(set) = set.value().filter(|set| has_lines(set)) else {
            continue;
        };
        for spot in spots.iter().filter(|spot| set.contains(spot.cpu)) {
            let middle = u32::midpoint(spot.y, y);
            out.push_str(&format!(
                "<path d=\"M{x} {y} C{x} {middle} {} {middle} {} {}\" fill=\"none\" stroke=\"{SOFT}\" stroke-width=\"1.2\"{dashes}/>",
                spot.x, spot.x, spot.y
            ));
        }
    }
    out
}
