//! The only place that prints. stdout is data, stderr is talk and progress; a reader that has gone
//! away (`| head`) ends the program quietly.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::exit::{Code, Outcome, Stop};

/// How the command's result is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For a person.
    Text,
    /// One JSON document.
    Json,
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
        let mut out = io::stdout().lock();
        match writeln!(out, "{}", text.trim_end_matches('\n')).and_then(|()| out.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Stop::io("write to standard output", error))
            }
            _ => Ok(()),
        }
    }

    /// Prints a document as JSON to stdout.
    pub fn json<T: Serialize>(&self, document: &T) -> Outcome<()> {
        let text = serde_json::to_string_pretty(document)
            .map_err(|e| Stop::new(Code::Bug, "cannot write a document as JSON").because(e))?;
        self.data(&text)
    }

    /// Says something to the person, on stderr.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            // Talk that nobody can hear is no reason to stop the work.
            let _ = writeln!(io::stderr().lock(), "{text}");
        }
    }

    /// Says why the command stopped.
    pub fn stop(&self, stop: &Stop) {
        if !stop.told {
            let _ = writeln!(io::stderr().lock(), "error: {stop}");
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
        let bar = ProgressBar::with_draw_target(Some(steps), target);
        if let Ok(style) =
            ProgressStyle::with_template("  {prefix:<27} [{bar:14}] {pos:>2}/{len} {wide_msg}")
        {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(what.to_owned());
        if terminal {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Progress {
            bar,
            say: self.clone(),
            what: what.to_owned(),
        }
    }

    /// How wide a terminal on stdout is, at most 100; 80 when it is none.
    pub fn width(&self) -> usize {
        terminal_width().clamp(60, 100)
    }

    /// Whether colour may be used on stdout.
    pub fn colour(&self) -> bool {
        io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
    }
}

fn terminal_width() -> usize {
    rustix::termios::tcgetwinsize(io::stdout()).map_or(80, |size| match size.ws_col {
        0 => 80,
        columns => usize::from(columns),
    })
}

/// A running bar.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    say: Say,
    what: String,
}

impl Progress {
    /// One step is done; `message` says what it gave.
    pub fn step(&self, message: &str) {
        self.bar.set_message(message.to_owned());
        self.bar.inc(1);
    }

    /// All is done; `message` is what came of it, as a line that stays.
    pub fn done(&self, message: &str) {
        self.bar.finish_and_clear();
        self.say.note(&format!("  {:<27} {message}", self.what));
    }
}
