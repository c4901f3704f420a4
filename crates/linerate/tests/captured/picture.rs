//! The pictures of captured, real and made-up hosts, checked for what a reader would trip over: a line through a
//! text, two texts on one place, anything outside of the frame.

use std::fs;

use linerate_host::capture::Captured;
use linerate_model::build;
use linerate_model::host::Host;
use linerate_model::ids::{CpuId, CpuSet, NicName};
use linerate_model::known::Known;
use linerate_report::{HotPath, Layout, PathEnd, map_svg, path_svg};

use super::archives::{archive, corpus, host, names, repository};

/// The width of a letter, as a share of the font's size.
const EM: f64 = 0.6;

/// An area: left, top, right, bottom.
type Area = [f64; 4];
type Point = (f64, f64);

/// What a picture has.
#[derive(Default)]
struct Drawn {
    frame: Area,
    texts: Vec<(String, Area)>,
    boxes: Vec<Area>,
    lines: Vec<(Point, Point)>,
}

impl Drawn {
    /// Reads what `map::picture` writes: groups that move, boxes, texts and paths.
    fn of(svg: &str) -> Self {
        let mut drawn = Self::default();
        let mut moves: Vec<(f64, f64)> = vec![(0.0, 0.0)];
        for part in svg.split('<').skip(1) {
            let (tag, text) = part.split_once('>').expect("a tag ends");
            let name = tag.split([' ', '/']).next().unwrap_or_default();
            let (dx, dy) = *moves.last().expect("the picture itself");
            match name {
                "" if tag == "/g" => drop(moves.pop()),
                "g" => {
                    let by = attribute(tag, "transform").map(numbers).unwrap_or_default();
                    let by = <[f64; 2]>::try_from(by).unwrap_or_default();
                    moves.push((dx + by[0], dy + by[1]));
                }
                "svg" => {
                    let frame = numbers(attribute(tag, "viewBox").expect("a frame"));
                    drawn.frame = frame.try_into().expect("four numbers");
                }
                "rect" => {
                    let [x, y, w, h] = ["x", "y", "width", "height"].map(|name| number(tag, name));
                    drawn.boxes.push([x + dx, y + dy, x + dx + w, y + dy + h]);
                }
                "text" => drawn.texts.push(written(tag, text, (dx, dy))),
                "path" => {
                    let d = attribute(tag, "d").expect("a path has a way");
                    drawn.lines.extend(walked(d, (dx, dy)));
                }
                _ => {}
            }
        }
        drawn
    }

    /// What is wrong with it.
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let [left, top, right, foot] = self.frame;
        let inside = |[a, b, c, d]: Area| a >= left && b >= top && c <= right && d <= foot;
        let points = self.lines.iter().flat_map(|(from, to)| [from, to]);
        let outside = points.filter(|(x, y)| !inside([*x, *y, *x, *y]));
        faults.extend(outside.map(|at| format!("a line leaves the frame at {at:?}")));
        let boxes = self.boxes.iter().filter(|area| !inside(**area));
        faults.extend(boxes.map(|area| format!("a box leaves the frame: {area:?}")));
        for (number, (text, area)) in self.texts.iter().enumerate() {
            if !inside(*area) {
                faults.push(format!("{text:?} leaves the frame: {area:?}"));
            }
            for (other, place) in &self.texts[number + 1..] {
                let apart = area[2] <= place[0]
                    || place[2] <= area[0]
                    || area[3] <= place[1]
                    || place[3] <= area[1];
                if !apart {
                    faults.push(format!("{text:?} lies on {other:?}"));
                }
            }
            if let Some(line) = self.lines.iter().find(|line| crosses(line, area)) {
                faults.push(format!("a line crosses {text:?}: {line:?}"));
            }
        }
        faults
    }
}

fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
    rest.split('"').next()
}

fn number(tag: &str, name: &str) -> f64 {
    let text = attribute(tag, name).expect("an attribute");
    text.parse().expect("a number")
}

fn numbers(text: &str) -> Vec<f64> {
    let words = text.split(|c: char| !c.is_ascii_digit() && c != '.' && c != '-');
    words.filter_map(|word| word.parse().ok()).collect()
}

/// A text and its place.
fn written(tag: &str, text: &str, (dx, dy): (f64, f64)) -> (String, Area) {
    let (x, y) = (number(tag, "x") + dx, number(tag, "y") + dy);
    let size = number(tag, "font-size");
    let mut letters = 0.0;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        // An entity is one letter.
        let entity = if first == '&' { rest.find(';') } else { None };
        rest = &rest[entity.map_or(first.len_utf8(), |end| end + 1)..];
        letters += 1.0;
    }
    let width = letters * size * EM;
    let left = match attribute(tag, "text-anchor") {
        Some("middle") => x - width / 2.0,
        Some("end") => x - width,
        _ => x,
    };
    let area = [left, y - 0.8 * size, left + width, y + 0.2 * size];
    (text.to_owned(), area)
}

/// Whether a part of a line is within an area (Liang and Barsky's clipping).
fn crosses(((x, y), (to_x, to_y)): &(Point, Point), area: &Area) -> bool {
    let (mut enters, mut leaves) = (0.0, 1.0);
    let [left, top, right, foot] = *area;
    for (at, by, low, high) in [(x, to_x - x, left, right), (y, to_y - y, top, foot)] {
        if by == 0.0 {
            if *at <= low || *at >= high {
                return false;
            }
            continue;
        }
        let (one, two) = ((low - at) / by, (high - at) / by);
        enters = f64::max(enters, f64::min(one, two));
        leaves = f64::min(leaves, f64::max(one, two));
    }
    enters < leaves
}

/// The straight lines of a path.
fn walked(d: &str, (dx, dy): Point) -> Vec<(Point, Point)> {
    let mut lines = Vec::new();
    let (mut x, mut y) = (dx, dy);
    let starts: Vec<usize> = d
        .char_indices()
        .filter_map(|(at, c)| c.is_ascii_alphabetic().then_some(at))
        .chain([d.len()])
        .collect();
    for pair in starts.windows(2) {
        let (command, rest) = d[pair[0]..pair[1]].split_at(1);
        let given = numbers(rest);
        let (to_x, to_y) = match (command, given.as_slice()) {
            ("M" | "L", [to_x, to_y]) => (to_x + dx, to_y + dy),
            ("m" | "l", [by_x, by_y]) => (x + by_x, y + by_y),
            ("H", [to]) => (to + dx, y),
            ("V", [to]) => (x, to + dy),
            ("z", []) => continue,
            other => panic!("{d}: {other:?} is not checked"),
        };
        if !command.eq_ignore_ascii_case("m") {
            lines.push(((x, y), (to_x, to_y)));
        }
        (x, y) = (to_x, to_y);
    }
    lines
}

#[test]
fn a_line_through_a_text_and_a_text_on_another_are_found() {
    let picture = |body: &str| {
        let svg =
            format!("<svg viewBox=\"0 0 100 50\"><g transform=\"translate(0 5)\">{body}</g></svg>");
        Drawn::of(&svg).faults()
    };
    let text = |x: u32, y: u32| {
        format!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"start\" font-size=\"10\">a&amp;b</text>")
    };
    assert_eq!(picture(&text(10, 20)), Vec::<String>::new());
    assert_eq!(
        picture(&(text(10, 20) + "<path d=\"M5 10 H40\"/>")),
        Vec::<String>::new()
    );
    for wrong in [
        text(10, 20) + "<path d=\"M5 18 H40\"/>",
        text(10, 20) + "<path d=\"M0 20 L40 10\"/>",
        text(10, 20) + &text(27, 25),
        text(90, 20),
        "<path d=\"M5 46 H40\"/>".to_owned(),
        "<rect x=\"5\" y=\"5\" width=\"96\" height=\"5\"/>".to_owned(),
    ] {
        assert!(!picture(&wrong).is_empty(), "{wrong}");
    }
}

/// Two nodes; `nics` interfaces, every third with its interrupts on the other node, some with RPS, and
/// `vlans` VLANs and a bridge above them.
fn server(cpus: u32, nics: u32, vlans: u32) -> Host {
    let mut host = build::host().nodes(2, cpus);
    for number in 0..nics {
        let node = number % 2;
        let far = number % 3 == 2;
        let first = cpus * if far { 1 - node } else { node } + number % 4;
        let handled: Vec<u32> = (first..first + 4).collect();
        host = host.nic(&format!("enp{number}s0f0np0"), |nic| {
            let nic = nic.gbit(100).node(node).queues(&handled);
            if number % 4 == 1 { nic.rps("0-2") } else { nic }
        });
    }
    let mut host = host.build();
    let veth = build::host().nic("v", build::NicBuilder::veth).build();
    let lower: Vec<NicName> = host.nics.iter().map(|nic| nic.name.clone()).collect();
    for number in 0..vlans {
        let mut nic = veth.nics[0].clone();
        nic.name = format!("vlan{number}").parse().expect("a name");
        let first = number as usize % lower.len();
        // Every fourth carries another one, and is two rows above some.
        let mut below = vec![lower[first].clone()];
        if number % 4 == 3 {
            below.push(format!("vlan{}", number - 1).parse().expect("a name"));
        }
        nic.lower = Known::Value(below);
        host.nics.push(nic);
    }
    host
}

/// All hosts, by name.
fn hosts() -> Vec<(String, Host)> {
    let mut all: Vec<(String, Host)> = names()
        .into_iter()
        .map(|name| (name.clone(), host(archive(&name))))
        .collect();
    for path in corpus() {
        let opened = Captured::open(&path).expect("an archive");
        let host = opened.host().expect("a host");
        all.push((path.display().to_string(), host));
    }
    let physical = fs::read(repository("fixtures/report/physical-host.json")).expect("the fixture");
    let physical = serde_json::from_slice(&physical).expect("the fixture is a host");
    all.push(("physical-host".to_owned(), physical));
    for (cpus, nics, vlans) in [
        (4, 1, 0),
        (16, 3, 2),
        (48, 16, 30),
        (128, 6, 70),
        (700, 70, 0),
    ] {
        let mut host = server(cpus, nics, vlans);
        host.cpus[1].online = Known::not_asked("online");
        all.push((format!("{cpus} CPUs, {nics} NICs, {vlans} VLANs"), host));
    }
    all
}

/// The pictures of the paths through some of a host's interfaces, and through all of them.
fn paths(host: &Host) -> Vec<String> {
    let nics = host.nics.iter().map(|nic| &nic.name);
    let mut of: Vec<Option<&NicName>> = nics.take(3).map(Some).collect();
    of.extend([host.nics.last().map(|nic| &nic.name), None]);
    let first: CpuSet = host.cpus.iter().take(2).map(|cpu| cpu.id).collect();
    let last: CpuSet = host.cpus.iter().rev().take(3).map(|cpu| cpu.id).collect();
    let name = "a-host-with-a-name-that-is-longer-than-what-fits-in-one-line.example.org";
    let mut pictures = Vec::new();
    for nic in of {
        let queues = host
            .nics
            .iter()
            .filter(|one| nic.is_none_or(|name| one.name == *name));
        let queues = queues.flat_map(|nic| &nic.queues);
        let hot = |(at, irq): (u32, u32)| (irq, CpuId(at % 3), 1.0 / f64::from(at + 1));
        let irqs = queues.filter_map(|queue| Some(queue.irq.get()?.0));
        let hot = HotPath {
            packets: first.clone(),
            interrupts: (0..).zip(irqs).map(hot).take(5).collect(),
        };
        let end = |name, hot| PathEnd {
            name,
            host,
            nic,
            sender_cpus: &first,
            receiver_cpus: &last,
            hot,
        };
        let (near, far) = (end("near", Some(&hot)), end(name, None));
        pictures.push(path_svg(&near, None, Layout::Beside));
        for layout in [Layout::Beside, Layout::Stacked] {
            pictures.push(path_svg(
                &near,
                Some((&far, "a cable between two rooms, 40 m")),
                layout,
            ));
        }
    }
    pictures
}

#[test]
fn no_line_of_a_picture_crosses_a_text_and_nothing_leaves_its_frame() {
    let (mut lines, mut faults) = (0, Vec::new());
    for (name, host) in hosts() {
        for svg in paths(&host).into_iter().chain([map_svg(&host)]) {
            let drawn = Drawn::of(&svg);
            assert!(drawn.texts.len() > 3, "{name}: {svg:.300}");
            lines += drawn.lines.len();
            let found = drawn.faults();
            faults.extend(
                found
                    .first()
                    .map(|fault| format!("{name}: {fault} ({})", found.len())),
            );
        }
    }
    assert!(
        lines > 1_000,
        "{lines} lines: what was read is not the pictures"
    );
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
