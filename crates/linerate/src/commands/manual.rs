//! `linerate manual`: a manual page for each command (man(7)), from the same text as `--help`. Packages call it.

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use linerate_model::exit::{Outcome, Stop};
use linerate_runtime::cli::help;

/// Longer lines of source are a style warning of mandoc.
const SOURCE_WIDTH: usize = 80;

/// Writes the pages into a folder.
pub(crate) fn run(folder: &Path, date: &str) -> Outcome<()> {
    for (name, text) in pages(date) {
        let file = folder.join(name);
        fs::write(&file, text)
            .map_err(|error| Stop::io(format!("write {}", file.display()), error))?;
    }
    Ok(())
}

/// Every page with the name of its file.
fn pages(date: &str) -> Vec<(String, String)> {
    let mut root = with_all_options(help::command()).disable_help_subcommand(true);
    root.build();
    let mut pages = Vec::new();
    add(&root, &root, date, &mut pages);
    pages
}

/// clap_mangen leaves out the text of options that `-h` leaves out.
fn with_all_options(command: Command) -> Command {
    let command = command.mut_args(|arg| arg.hide_short_help(false));
    command.mut_subcommands(with_all_options)
}

fn add(root: &Command, command: &Command, date: &str, pages: &mut Vec<(String, String)>) {
    let name = command.get_display_name().unwrap_or("linerate");
    pages.push((format!("{name}.1"), page(root, command, name, date)));
    for inner in command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set())
    {
        add(root, inner, date, pages);
    }
}

fn page(root: &Command, command: &Command, name: &str, date: &str) -> String {
    let man = Man::new(command.clone())
        .title(name.to_uppercase())
        .date(date)
        .source(format!("linerate {}", env!("CARGO_PKG_VERSION")))
        .manual("linerate manual");
    let mut page = Vec::new();
    // Writing to memory does not fail.
    let _: io::Result<()> = (|| {
        man.render_title(&mut page)?;
        man.render_name_section(&mut page)?;
        man.render_synopsis_section(&mut page)?;
        man.render_description_section(&mut page)?;
        man.render_options_section(&mut page)?;
        if command.get_subcommands().any(|inner| !inner.is_hide_set()) {
            man.render_subcommands_section(&mut page)?;
        }
        closing(root, command).to_writer(&mut page)
    })();
    lines(&String::from_utf8_lossy(&page))
}

/// The sections after those of clap: what stands below the options of `--help`, and the related pages.
fn closing(root: &Command, command: &Command) -> Roff {
    let mut roff = Roff::new();
    let after = command.get_after_long_help().map(ToString::to_string);
    let mut notes = Vec::new();
    for block in after.iter().flat_map(|text| text.split("\n\n")) {
        let Some(examples) = block.strip_prefix("Examples:\n") else {
            notes.push(block);
            continue;
        };
        roff.control("SH", ["EXAMPLES"]);
        roff.control("nf", []);
        for example in examples.lines() {
            roff.text([roman(example.trim())]);
        }
        roff.control("fi", []);
    }
    if !notes.is_empty() {
        roff.control("SH", ["NOTES"]);
    }
    for (number, note) in notes.iter().enumerate() {
        if number > 0 {
            roff.control("PP", []);
        }
        roff.text([roman(note.trim())]);
    }
    roff.control("SH", ["SEE ALSO"]);
    let own = command.get_display_name().unwrap_or_default();
    let parent = own.rsplit_once('-').map(|(parent, _)| parent.to_owned());
    let inner = command.get_subcommands();
    let inner = inner.filter(|inner| !inner.is_hide_set());
    let inner = inner.filter_map(|inner| inner.get_display_name().map(str::to_owned));
    let mut related: Vec<String> = parent.into_iter().chain(inner).collect();
    related.retain(|name| is_page(root, name));
    for (number, name) in related.iter().enumerate() {
        let end = if number + 1 < related.len() { "," } else { "" };
        roff.control("BR", [name.as_str(), &format!("(1){end}")]);
    }
    roff
}

/// Whether a command has a page of that name: the part before the last hyphen of `linerate-measure-rdma-write` does not.
fn is_page(command: &Command, name: &str) -> bool {
    command.get_display_name().unwrap_or("linerate") == name
        || command.get_subcommands().any(|inner| is_page(inner, name))
}

/// The source without what mandoc warns of: empty lines, breaks beside paragraphs, long lines. The definitions that
/// clap_mangen writes before each section are needed once.
fn lines(source: &str) -> String {
    let mut text = String::new();
    let mut is_verbatim = false;
    // Breaks and empty lines that are not written yet: at the start of a paragraph they have no effect.
    let mut breaks = 0;
    for line in source.lines().map(str::trim_end) {
        if is_verbatim && line != ".fi" {
            text += line;
            text.push('\n');
            continue;
        }
        is_verbatim = line == ".nf";
        let is_definition = line.starts_with(".ie ") || line.starts_with(".el ");
        if is_definition && text.contains(line) {
            continue;
        }
        if line.is_empty() || line == ".br" {
            breaks += if line.is_empty() { 2 } else { 1 };
            continue;
        }
        let is_paragraph = [".TP", ".SH", ".PP", ".RS", ".RE", ".IP"]
            .iter()
            .any(|request| line.starts_with(request));
        if breaks > 0 && !is_paragraph {
            text += if breaks > 1 { ".sp\n" } else { ".br\n" };
        }
        breaks = 0;
        if line.starts_with('.') {
            text += line;
        } else {
            fill(line, &mut text);
        }
        text.push('\n');
    }
    text
}

/// Breaks a line of text between words.
fn fill(line: &str, text: &mut String) {
    let mut width = 0;
    for word in line.split_whitespace() {
        if width > 0 && width + 1 + word.len() > SOURCE_WIDTH {
            text.push('\n');
            width = 0;
        }
        if width > 0 {
            text.push(' ');
        } else if word.starts_with(['.', '\'']) {
            *text += r"\&"; // not a request
        }
        *text += word;
        width += word.len() + 1;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command as Program, Stdio};

    use super::*;

    #[test]
    fn every_command_has_a_page_that_mandoc_has_nothing_to_say_about() {
        let pages = pages("2026-11-01");
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        for name in [
            "linerate.1",
            "linerate-measure-rdma-write.1",
            "linerate-tune-apply.1",
        ] {
            assert!(names.contains(&name), "{names:?}");
        }
        for hidden in ["launcher", "mover", "reverter", "complete.1", "manual"] {
            assert!(!names.iter().any(|name| name.contains(hidden)), "{hidden}");
        }
        for (name, text) in &pages {
            let linter = Program::new("mandoc")
                .args(["-T", "lint", "-W", "style"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn();
            let Ok(mut linter) = linter else {
                writeln!(io::stderr(), "SKIP: mandoc is not installed").expect("stderr");
                return;
            };
            let mut input = linter.stdin.take().expect("a pipe");
            input.write_all(text.as_bytes()).expect("it reads");
            drop(input);
            let output = linter.wait_with_output().expect("it ends");
            let found = String::from_utf8_lossy(&output.stdout);
            assert!(
                found.is_empty() && output.status.success(),
                "{name}: {found}\n{text}"
            );
        }
    }

    #[test]
    fn a_page_has_the_examples_and_the_options_of_its_help() {
        let pages = pages("2026-11-01");
        let page = |wanted: &str| {
            let found = pages.iter().find(|(name, _)| name == wanted);
            found.map(|(_, text)| text.as_str()).expect(wanted)
        };
        let stream = page("linerate-measure-stream.1");
        assert!(
            stream.starts_with(".TH") || stream.contains("\n.TH"),
            "{stream}"
        );
        for part in [
            "2026-11-01",
            ".SH EXAMPLES",
            ".SH \"SEE ALSO\"",
            "until",
            "linerate measure stream HOST",
        ] {
            assert!(stream.contains(part), "{part}: {stream}");
        }
        assert!(
            page("linerate.1").contains("exit\\-codes"),
            "{}",
            page("linerate.1")
        );
    }

    #[test]
    fn no_line_of_text_is_taken_for_a_request() {
        let long = format!("{} .so /etc/passwd and 'br", "word ".repeat(16).trim());
        let lines = lines(&format!("{long}\n\n.nf\n  kept   as it is\n\n.fi\n"));
        assert!(lines.contains("\n\\&.so /etc"), "{lines}");
        assert!(lines.contains(".nf\n  kept   as it is\n\n.fi\n"), "{lines}");
        assert!(lines.contains("'br\n.sp\n.nf\n"), "{lines}");
    }
}
