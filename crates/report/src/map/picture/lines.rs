//! The lines from queues to CPUs: from a card through a gutter and under a row of CPUs, with a stroke up to each.

use linerate_model::ids::CpuId;

use super::card::Exit;
use super::cpus::Stop;
use super::flow::Via;
use super::shapes::{INK, SOFT, head, line};

/// Where vertical lines run: beside the blocks of CPUs.
#[derive(Clone, Copy)]
pub(super) struct Gutter {
    pub(super) x: u32,
    /// Further lines share these.
    pub(super) lanes: u32,
}

/// Where a line leaves its card.
pub(super) struct Start {
    pub(super) x: u32,
    pub(super) y: u32,
    /// Where it turns before it goes to the gutter: around a card that is between.
    pub(super) detour: Option<(u32, u32)>,
}

/// Draws all lines: `starts` in the order of `lines`.
pub(super) fn draw(lines: &[&Exit], starts: &[Start], stops: &[Stop], gutter: Gutter) -> String {
    let (mut settings, mut observed) = (String::new(), String::new());
    let mut lane = 0;
    for (number, (exit, start)) in lines.iter().zip(starts).enumerate() {
        let own: Vec<&Stop> = stops.iter().filter(|stop| stop.line == number).collect();
        if own.is_empty() {
            continue;
        }
        let route = Route {
            start,
            lane: gutter.x + lane % gutter.lanes * 5,
        };
        lane += 1;
        settings += &of_settings(exit, &own, &route);
        observed += &of_packets(exit, &own, &route);
    }
    // What was observed lies over what is set.
    settings + &observed
}

/// The route of a line from its card to the gutter.
struct Route<'a> {
    start: &'a Start,
    lane: u32,
}

impl Route<'_> {
    /// Its path, and the y at which it reaches its lane.
    fn to_lane(&self) -> (String, u32) {
        let Start { x, y, detour } = self.start;
        let lane = self.lane;
        match detour {
            None => (format!("M{x} {y} H{lane}"), *y),
            Some((turn, below)) => (format!("M{x} {y} H{turn} V{below} H{lane}"), *below),
        }
    }
}

/// The interrupts, RPS or XPS of a flow.
fn of_settings(exit: &Exit, stops: &[&Stop], route: &Route<'_>) -> String {
    let flow = &exit.flow;
    let is_set = |cpu: &CpuId| flow.cpus.contains(*cpu);
    let (mut d, from) = route.to_lane();
    let (mut strokes, mut heads) = (String::new(), String::new());
    let (mut top, mut foot) = (from, from);
    for stop in stops {
        let own = stop.cells.iter().filter(|(cpu, ..)| is_set(cpu));
        let own: Vec<(u32, u32)> = own.map(|(_, x, edge)| (*x, *edge)).collect();
        let Some(last) = own
            .iter()
            .map(|(x, _)| *x)
            .max_by_key(|x| x.abs_diff(route.lane))
        else {
            continue;
        };
        (top, foot) = (top.min(stop.y), foot.max(stop.y));
        strokes += &format!("M{} {} H{last}", route.lane, stop.y);
        for (x, edge) in own {
            strokes += &format!("M{x} {} V{edge}", stop.y);
            if flow.remote {
                heads += &head(x, edge + 1, false);
            }
        }
    }
    if strokes.is_empty() {
        return String::new();
    }
    d += &format!("M{} {top} V{foot}{strokes}", route.lane);
    let (stroke, width) = if flow.remote {
        (INK, "1.8")
    } else {
        (SOFT, "1.2")
    };
    let dashes = match flow.via {
        Via::Steering(_) => " stroke-dasharray=\"4 3\"",
        _ => "",
    };
    let elsewhere = if flow.remote { " of another node" } else { "" };
    let about = format!("{}: {}{elsewhere}", flow.via_text(), flow.cpus_text());
    line(
        &d,
        stroke,
        &format!(" stroke-width=\"{width}\"{dashes}"),
        &about,
    ) + &heads
}

/// The path that packets took: the thicker, the more of them did.
fn of_packets(exit: &Exit, stops: &[&Stop], route: &Route<'_>) -> String {
    let mut out = String::new();
    for (cpu, share) in &exit.hot {
        let cells = stops
            .iter()
            .flat_map(|stop| stop.cells.iter().map(|cell| (stop.y, cell)));
        for (y, (_, x, edge)) in cells.filter(|(_, (at, ..))| at == cpu) {
            let d = format!("{} V{y} H{x} V{edge}", route.to_lane().0);
            let width = 2.0 + 3.0 * share.clamp(0.0, 1.0);
            let style = format!(" stroke-width=\"{width:.1}\" stroke-linejoin=\"round\"");
            let about = format!("packets of {} were processed on CPU {cpu}", exit.nic);
            out += &line(&d, INK, &style, &about);
        }
    }
    out
}
