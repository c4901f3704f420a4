//! A recorded terminal session as an animated SVG: `make cast`. `docs/cast/record` runs the session in a terminal
//! (script(1)); this reads its output and timing, replays it on a small screen (ECMA-48: the sequences that linerate and
//! a prompt use) and draws what the screen showed. The picture needs no script and no font of its own.

mod screen;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use screen::{Line, Screen, Style};

const COLUMNS: usize = 96;
const ROWS: usize = 26;
/// Pixels of a character cell, for a font of 14 px.
const CELL: (f64, f64) = (8.4, 19.0);
const MARGIN: f64 = 16.0;
/// Output that arrives within this time is one picture, in seconds.
const FRAME: f64 = 0.08;
/// Longer pauses are cut to this, in seconds; the last picture is held longer.
const PAUSE_MAX: f64 = 1.5;
const HOLD: f64 = 6.0;

/// Records the session again and renders it as SVG.
pub(crate) fn run(root: &Path) -> Result<String, String> {
    let folder = root.join("target/cast");
    let failed = |what: &str, error: &dyn std::fmt::Display| format!("cannot {what}: {error}");
    std::fs::create_dir_all(&folder).map_err(|error| failed("create target/cast", &error))?;
    let status = Command::new("docs/cast/record")
        .args([COLUMNS.to_string(), ROWS.to_string()])
        .arg(&folder)
        .current_dir(root)
        .status()
        .map_err(|error| failed("run docs/cast/record", &error))?;
    if !status.success() {
        return Err("docs/cast/record failed".to_owned());
    }
    let read = |name: &str| {
        std::fs::read(folder.join(name)).map_err(|error| failed(&format!("read {name}"), &error))
    };
    let timing = String::from_utf8_lossy(&read("timing")?).into_owned();
    let picture = svg(&frames(&read("output")?, &timing)?);
    let file = root.join("docs/pictures/session.svg");
    std::fs::write(&file, &picture).map_err(|error| failed("write the picture", &error))?;
    Ok(format!(
        "{}: {} KiB\n",
        file.display(),
        picture.len() / 1024
    ))
}

/// A picture and how long it is shown, in seconds.
#[derive(Debug)]
struct Frame {
    lines: Vec<Line>,
    time: f64,
}

/// Replays the output. Each line of the timing is a pause in seconds and the number of bytes after it.
fn frames(output: &[u8], timing: &str) -> Result<Vec<Frame>, String> {
    // script(1) writes a line of its own before the first byte, and one after the last.
    let start = output
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    let mut rest = &output[start..];
    let mut screen = Screen::new(COLUMNS, ROWS);
    let mut frames: Vec<Frame> = Vec::new();
    let mut since = 0.0;
    for line in timing.lines() {
        let figures = line.split_once(' ').and_then(|(pause, bytes)| {
            Some((
                pause.parse::<f64>().ok()?,
                bytes.trim().parse::<usize>().ok()?,
            ))
        });
        let (pause, bytes) = figures.ok_or_else(|| format!("not a line of a timing: {line}"))?;
        since += pause.min(PAUSE_MAX);
        if since >= FRAME {
            if let Some(last) = frames.last_mut() {
                last.time += since;
            }
            since = 0.0;
            frames.push(Frame {
                lines: screen.lines(),
                time: 0.0,
            });
        }
        let (now, later) = rest.split_at(bytes.min(rest.len()));
        screen.write(now);
        rest = later;
        if let Some(last) = frames.last_mut() {
            last.lines = screen.lines();
        }
    }
    if let Some(last) = frames.last_mut() {
        last.time = HOLD;
    }
    frames.retain(|frame| frame.time > 0.0);
    if frames.is_empty() {
        return Err("the session printed nothing".to_owned());
    }
    Ok(frames)
}

/// The frames side by side, behind a window that moves from one to the next. Equal lines are drawn once.
fn svg(frames: &[Frame]) -> String {
    let width = CELL.0 * size(COLUMNS) + 2.0 * MARGIN;
    let height = CELL.1 * size(ROWS) + 2.0 * MARGIN;
    let total: f64 = frames.iter().map(|frame| frame.time).sum();
    let mut drawn: BTreeMap<String, usize> = BTreeMap::new();
    let (mut strip, mut keys, mut at) = (String::new(), String::new(), 0.0);
    for (number, frame) in frames.iter().enumerate() {
        let x = width * size(number);
        let _ = write!(
            keys,
            "{:.3}%{{transform:translateX(-{x:.1}px)}}",
            100.0 * at / total
        );
        at += frame.time;
        let _ = write!(
            strip,
            "<g transform=\"translate({:.1} {MARGIN})\">",
            x + MARGIN
        );
        for (row, line) in frame.lines.iter().enumerate() {
            let text = spans(line);
            if !text.is_empty() {
                let next = drawn.len();
                let id = *drawn.entry(text).or_insert(next);
                let _ = write!(
                    strip,
                    "<use href=\"#l{id}\" y=\"{:.1}\"/>",
                    CELL.1 * size(row + 1)
                );
            }
        }
        strip += "</g>\n";
    }
    let last = width * size(frames.len() - 1);
    let mut lines: Vec<(usize, &String)> = drawn.iter().map(|(text, id)| (*id, text)).collect();
    lines.sort_unstable();
    let mut defined = String::new();
    for (id, text) in lines {
        let _ = writeln!(defined, "<text id=\"l{id}\">{text}</text>");
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" role=\"img\">\n<title>A recorded terminal session</title>\n<style>\n\
         text{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,\"DejaVu Sans Mono\",monospace;fill:#d7dae0;white-space:pre}}\n\
         .b{{font-weight:bold}}.d{{fill:#8b929e}}.c1{{fill:#ef7f86}}.c2{{fill:#98c379}}.c3{{fill:#e5c07b}}.c4{{fill:#61afef}}\
         .c5{{fill:#c678dd}}.c6{{fill:#56b6c2}}\n\
         .s{{animation:p {total:.2}s steps(1,end) infinite}}@keyframes p{{{keys}}}\n\
         @media (prefers-reduced-motion){{.s{{animation:none;transform:translateX(-{last:.1}px)}}}}\n</style>\n\
         <defs>\n{defined}</defs>\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#1e222a\"/>\n\
         <g class=\"s\">\n{strip}</g>\n</svg>\n"
    )
}

/// A count as a factor of a length.
fn size(count: usize) -> f64 {
    u32::try_from(count).map_or(0.0, f64::from)
}

/// The characters of a line, in parts of one style.
fn spans(line: &Line) -> String {
    let end = line.iter().rposition(|(letter, _)| *letter != ' ');
    let line = &line[..end.map_or(0, |end| end + 1)];
    let mut text = String::new();
    for part in line.chunk_by(|one, two| one.1 == two.1) {
        let letters: String = part.iter().map(|(letter, _)| *letter).collect();
        let letters = letters
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        let class = class(part[0].1);
        if class.is_empty() {
            text += &letters;
        } else {
            let _ = write!(text, "<tspan class=\"{class}\">{letters}</tspan>");
        }
    }
    text
}

fn class(style: Style) -> String {
    let mut words = Vec::new();
    if style.is_bold {
        words.push("b".to_owned());
    }
    if style.is_dim {
        words.push("d".to_owned());
    }
    words.extend(style.color.map(|color| format!("c{color}")));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_becomes_one_frame_for_each_picture_that_lasted() {
        let output = b"Script started\n$ l\rs\r\nabc";
        // The first three bytes, the fourth to fifth at once, the rest after a long pause.
        let frames = frames(output, "0.5 3\n0.01 2\n9 5\n").expect("a session");
        let lines: Vec<String> = frames.iter().map(|frame| spans(&frame.lines[0])).collect();
        assert_eq!(lines, ["s l", "s l"]);
        assert_eq!(spans(&frames[1].lines[1]), "abc");
        assert!((frames[0].time - 1.51).abs() < 1e-9, "{}", frames[0].time);
        let picture = svg(&frames);
        assert_eq!(
            picture.matches("<use href=\"#l0\"").count(),
            2,
            "drawn once, used twice"
        );
    }

    #[test]
    fn what_is_no_timing_is_an_error() {
        assert!(frames(b"x\n", "soon 3\n").is_err());
        assert!(frames(b"x\n", "").is_err());
    }
}
