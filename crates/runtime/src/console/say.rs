//! The only module that prints. stdout is data, stderr is messages and progress; a reader that has gone
//! away (`| head`) ends the program quietly. Nothing that is printed controls a terminal, whatever its origin.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::OnceCell;
use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use linerate_analysis::text::visible::{
    VisibleJson, VisibleLines, visible, visible_lines, visible_styled,
};
use linerate_model::exit::{Code, Outcome, Stop};
use serde::Serialize;
use serde_json::ser::{CompactFormatter, PrettyFormatter, Serializer};

/// Lines are never cut shorter than this, however narrow the terminal.
const NARROWEST: usize = 40;
/// Longer lines are hard to read, however wide the terminal.
const WIDEST: usize = 100;
/// The column of labels: the longest rule's name and the end it is about.
const LABEL: usize = 47;
/// JSON is written in pieces of this size.
const JSON_BYTES: usize = 64 << 10;

/// How the command's result is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For a person.
    Text,
    /// One JSON document.
    Json,
    /// Metrics, in the format of OpenMetrics.
    OpenMetrics,
}

/// The voice of one command.
#[derive(Debug, Clone)]
pub struct Say {
    /// How the result is printed.
    pub format: Format,
    /// Whether talk and progress are left out.
    pub quiet: bool,
}

impl Say {
    /// Prints data to stdout, with a line's end.
    pub fn data(&self, text: &str) -> Outcome<()> {
        put(&visible_lines(text))
    }

    /// The same with linerate's own colors, where [`Say::colour`] allows them.
    pub fn coloured(&self, text: &str) -> Outcome<()> {
        put(&visible_styled(text))
    }

    /// Prints lines for a person to stdout: on a terminal none is longer than it is wide.
    pub fn lines(&self, text: &str) -> Outcome<()> {
        match terminal_width(io::stdout()) {
            Some(width) => self.data(&in_lines(text, width.clamp(NARROWEST, WIDEST))),
            None => self.data(text),
        }
    }

    /// The same; where color may be used, `style` adds it to each line.
    pub fn styled_lines(&self, text: &str, style: impl Fn(&str) -> String) -> Outcome<()> {
        let Some(width) = self.columns().filter(|_| self.colour()) else {
            return self.lines(text);
        };
        let text = in_lines(text, width);
        let lines: Vec<String> = text.lines().map(style).collect();
        self.coloured(&lines.join("\n"))
    }

    /// Prints a document as JSON to stdout, as it is made: that of a large host has many megabytes.
    pub fn json<T: Serialize>(&self, document: &T) -> Outcome<()> {
        let mut out = BufWriter::with_capacity(JSON_BYTES, io::stdout().lock());
        let pretty = VisibleJson(PrettyFormatter::new());
        let written = match document.serialize(&mut Serializer::with_formatter(&mut out, pretty)) {
            Err(error) if !error.is_io() => {
                let stop = Stop::new(Code::Bug, "cannot write a document as JSON");
                return Err(stop.because(error));
            }
            written => written.map_err(io::Error::from),
        };
        printed(
            written
                .and_then(|()| writeln!(out))
                .and_then(|()| out.flush()),
        )
    }

    /// Prints a document as a line of JSON to stdout.
    pub fn json_line<T: Serialize>(&self, document: &T) -> Outcome<()> {
        let mut line = Vec::new();
        let compact = VisibleJson(CompactFormatter);
        document
            .serialize(&mut Serializer::with_formatter(&mut line, compact))
            .map_err(|error| Stop::new(Code::Bug, "cannot write a line of JSON").because(error))?;
        put(&String::from_utf8_lossy(&line))
    }

    /// Prints data to stdout as `write` makes it, on a terminal without what would steer it; `None` when its reader has gone away before the end.
    pub fn stream<T>(
        &self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<T>,
    ) -> Outcome<Option<T>> {
        let stdout = io::stdout().lock();
        let is_terminal = stdout.is_terminal();
        let mut out = BufWriter::with_capacity(JSON_BYTES, stdout);
        let mut visible = VisibleLines::new(&mut out);
        let out: &mut dyn Write = if is_terminal {
            &mut visible
        } else {
            drop(visible);
            &mut out
        };
        let written = write(out).and_then(|made| out.flush().map(|()| made));
        match written {
            Ok(made) => Ok(Some(made)),
            Err(error) => printed(Err(error)).map(|()| None),
        }
    }

    /// Prints a message to the user, on stderr.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            talk(text);
        }
    }

    /// Prints the result of a step: its label, and the rest next to it or, on a narrow terminal, below it.
    pub fn result(&self, label: &str, text: &str) {
        self.note(&labelled(label, text, talk_width()));
    }

    /// Prints why the command stopped.
    pub fn stop(&self, stop: &Stop) {
        if !stop.told {
            talk(&format!("error: {stop}"));
        }
    }

    /// A bar for `steps` steps; without a terminal each step's label is a line.
    pub fn progress(&self, steps: u64, what: &str) -> Progress {
        let terminal = io::stderr().is_terminal() && !self.quiet;
        let target = if terminal {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let all = MultiProgress::with_draw_target(target);
        let bar = all.add(ProgressBar::new(steps));
        let template =
            format!("  {{prefix:<{LABEL}}} [{{bar:10}}] {{pos:>2}}/{{len}} {{wide_msg}}");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(visible(what));
        if terminal {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Progress {
            all,
            bar,
            below: OnceCell::new(),
            say: self.clone(),
            what: what.to_owned(),
        }
    }

    /// A line on stderr that changes; none with `--quiet`, and where stderr is no terminal.
    pub fn live_line(&self) -> Option<LiveLine> {
        let shown = io::stderr().is_terminal() && !self.quiet;
        shown.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{msg}") {
                bar.set_style(style);
            }
            LiveLine(bar)
        })
    }

    /// How wide a terminal on stdout is, at most 100; 80 when it is none.
    pub fn width(&self) -> usize {
        self.columns().unwrap_or(80)
    }

    /// How wide a terminal on stdout is, at most 100.
    pub fn columns(&self) -> Option<usize> {
        terminal_width(io::stdout()).map(|width| width.clamp(NARROWEST, WIDEST))
    }

    /// How wide a terminal on stdout is, for a table: it may be wider than text.
    pub fn table_columns(&self) -> Option<usize> {
        terminal_width(io::stdout())
    }

    /// Whether color may be used on stdout.
    pub fn colour(&self) -> bool {
        io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
    }
}

/// Prints a warning on stderr, also with `--quiet`.
pub fn warn(text: &str) {
    talk(&format!("warning: {text}"));
}

/// Prints clap's output: help and versions, which belong to stdout, or what is wrong with the command line.
pub fn usage(error: &clap::Error) {
    // It echoes what was typed, or what a shell found in another user's folder. Without its colors, clap omits
    // what looks like one.
    let is_harmless = |word: OsString| {
        let word = word.to_string_lossy();
        visible_lines(&word) == word
    };
    if std::env::args_os().all(is_harmless) {
        let _ = error.print();
    } else {
        talk(error.render().to_string().trim_end());
    }
}

/// Prints the help of a command line that needs more, on stderr.
pub fn help(text: &str) {
    talk(text.trim_end());
}

/// Whether stdout is a terminal.
pub fn is_on_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Prints panics like other errors.
pub fn panics() {
    std::panic::set_hook(Box::new(|info| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("<unnamed>");
        let trace = Backtrace::capture();
        let trace = match trace.status() {
            BacktraceStatus::Captured => format!("\n{trace}"),
            _ => String::new(),
        };
        talk(&format!("thread '{name}' {info}{trace}"));
    }));
}

fn talk(text: &str) {
    let text = visible_lines(text);
    let text = talk_width().map_or_else(|| text.to_string(), |width| in_lines(&text, width));
    // A failure to print messages is no reason to stop the work.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

fn put(text: &str) -> Outcome<()> {
    let mut out = io::stdout().lock();
    printed(writeln!(out, "{}", text.trim_end_matches('\n')).and_then(|()| out.flush()))
}

/// The result of printing; a reader that has disconnected is no failure.
fn printed(written: io::Result<()>) -> Outcome<()> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Stop::io("write to standard output", error))
        }
        _ => Ok(()),
    }
}

/// The columns of the terminal that a stream is connected to; none when it is not a terminal.
fn terminal_width(stream: impl rustix::fd::AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    Some(match size.ws_col {
        0 => 80,
        columns => usize::from(columns),
    })
}

/// How wide talk may be: on a terminal only, for a file is searched by lines.
fn talk_width() -> Option<usize> {
    terminal_width(io::stderr()).map(|width| width.clamp(NARROWEST, WIDEST))
}

/// Text with each line that is too long broken between words, the rest of it indented further. A word is
/// never cut: a path in two lines cannot be copied.
fn in_lines(text: &str, width: usize) -> String {
    let mut lines = Vec::new();
    for line in text.split('\n') {
        if line.chars().count() <= width {
            lines.push(line.to_owned());
            continue;
        }
        let indent = line.len() - line.trim_start_matches(' ').len();
        let hang = column_of_text(line, indent).unwrap_or(indent + 2);
        let mut now = String::new();
        for word in linerate_analysis::text::words::words(line) {
            let used = now.chars().count();
            if now.trim().is_empty() {
                now = format!("{}{word}", " ".repeat(indent));
            } else if used + 1 + word.chars().count() <= width {
                now = format!("{now} {word}");
            } else {
                let next = format!("{}{word}", " ".repeat(hang));
                lines.push(std::mem::replace(&mut now, next));
            }
        }
        lines.push(now);
    }
    lines.join("\n")
}

/// Where the text of a line begins that has a name before it, set off by two blanks or more.
fn column_of_text(line: &str, indent: usize) -> Option<usize> {
    let named = line.get(indent..)?;
    let gap = named.find("  ")?;
    let text = named.get(gap..)?.trim_start_matches(' ');
    Some(line.len() - text.len()).filter(|column| *column <= 14 && line.is_char_boundary(*column))
}

/// A label and its text: next to it, or below it when the line would be too long.
fn labelled(label: &str, text: &str, width: Option<usize>) -> String {
    let line = format!("  {label:<LABEL$} {text}");
    if width.is_some_and(|width| line.chars().count() > width) {
        format!("  {label}\n    {text}")
    } else {
        line
    }
}

/// A line that changes, and is gone at the end.
#[derive(Debug, Clone)]
pub struct LiveLine(ProgressBar);

impl LiveLine {
    /// Shows as many of `parts`, the most important first, as the terminal is wide.
    pub fn show(&self, parts: &[String]) {
        let columns = terminal_width(io::stderr()).unwrap_or(NARROWEST);
        self.0
            .set_message(visible(&fitting(parts, columns.saturating_sub(1))));
    }

    /// Prints a message above it.
    pub fn note(&self, text: &str) {
        self.0.suspend(|| talk(text));
    }

    /// Removes it.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}

/// As many parts as fit, the first one cut if need be.
fn fitting(parts: &[String], width: usize) -> String {
    let mut line = String::new();
    for part in parts {
        let next = if line.is_empty() {
            format!("  {part}")
        } else {
            format!("{line}   {part}")
        };
        if next.chars().count() > width {
            if line.is_empty() {
                return next.chars().take(width).collect();
            }
            break;
        }
        line = next;
    }
    line
}

/// A running bar, and lines below it that change.
#[derive(Debug)]
pub struct Progress {
    all: MultiProgress,
    bar: ProgressBar,
    below: OnceCell<ProgressBar>,
    say: Say,
    what: String,
}

impl Progress {
    /// One step is done; `message` is its result.
    pub fn step(&self, message: &str) {
        self.bar.set_message(visible(message));
        self.bar.inc(1);
    }

    /// All is done; `message` is the result, as a permanent line.
    pub fn done(&self, message: &str) {
        if let Some(below) = self.below.get() {
            below.finish_and_clear();
        }
        self.bar.finish_and_clear();
        self.say.result(&self.what, message);
    }

    /// Shows lines below the bar, on a terminal only; at most so many of `lines` are requested as fit.
    pub fn show(&self, lines: impl FnOnce(usize) -> Vec<String>) {
        let Ok(size) = rustix::termios::tcgetwinsize(io::stderr()) else {
            return;
        };
        let (rows, columns) = (usize::from(size.ws_row), usize::from(size.ws_col));
        // The bar's own line, and the one that the cursor is on.
        let room = rows.saturating_sub(2);
        if self.say.quiet || room == 0 {
            return;
        }
        let cut = |line: String| {
            visible(&line)
                .chars()
                .take(columns.saturating_sub(1))
                .collect::<String>()
        };
        let lines: Vec<String> = lines(room).into_iter().map(cut).collect();
        let below = self.below.get_or_init(|| {
            let below = self.all.add(ProgressBar::new(0));
            if let Ok(style) = ProgressStyle::with_template("{msg}") {
                below.set_style(style);
            }
            below
        });
        below.set_message(lines.join("\n"));
    }

    /// Shows what is running, without completing a step.
    pub fn tell(&self, message: &str) {
        self.bar.set_message(visible(message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_of_talk_is_broken_between_words_and_a_path_stays_whole() {
        let path = "/var/lib/linerate/runs/2026-01-01-00-00-00-prove-3";
        let text = format!("  kept for you in {path}\nshort");
        let expected = format!("  kept for you in\n    {path}\nshort");
        assert_eq!(in_lines(&text, 40), expected);
    }

    #[test]
    fn what_follows_a_name_hangs_below_itself() {
        let text = "limit     the processor of the sender that is busy";
        let expected = "limit     the processor of the sender\n          that is busy";
        assert_eq!(in_lines(text, 40), expected);
    }

    #[test]
    fn what_does_not_fit_beside_its_label_stands_below_it() {
        let (label, text) = ("fix some-rule (local)", "+5.0 % [+1.0 %, +9.0 %] faster");
        assert_eq!(
            labelled(label, text, Some(60)),
            format!("  {label}\n    {text}")
        );
        assert!(!labelled(label, text, Some(80)).contains('\n'));
        assert!(!labelled(label, text, None).contains('\n'));
    }

    #[test]
    fn a_live_line_shows_the_parts_that_fit_the_terminal() {
        let parts = ["9.41 Gb/s", "7 s left", "CPU 98 %"].map(str::to_owned);
        assert_eq!(fitting(&parts, 80), "  9.41 Gb/s   7 s left   CPU 98 %");
        assert_eq!(fitting(&parts, 22), "  9.41 Gb/s   7 s left");
        assert_eq!(fitting(&parts, 21), "  9.41 Gb/s");
        assert_eq!(fitting(&parts, 6), "  9.41");
    }

    #[test]
    fn every_label_fits_its_column() {
        for rule in linerate_model::rules::RULES {
            assert!(
                format!("fix {} (remote)", rule.id).len() <= LABEL,
                "{}",
                rule.id
            );
        }
    }
}
