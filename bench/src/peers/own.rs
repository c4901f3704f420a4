//! `bench/peers --own`: linerate beside itself with one option changed. Is the default buffer the fastest one, and what
//! does the line cost that a terminal shows while a measurement runs?

use linerate_bench_shared::ratios::Better;
use linerate_model::shell;

use crate::cases::{Case, Contestant, Place, linerate};
use crate::figures::{Figure, linerate_bulk, linerate_operations};

/// The buffers that are compared with the default.
const BUFFERS: [(&str, &str); 5] = [
    ("64 KiB", "64KiB"),
    ("128 KiB", "128KiB"),
    ("256 KiB", "256KiB"),
    ("512 KiB", "512KiB"),
    ("1 MiB", "1MiB"),
];

/// All cases; the first contestant of each is the default.
pub(crate) fn all(place: &Place) -> Vec<Case> {
    let buffers = [1, 4].map(|flows| buffers(place, flows));
    let live = [
        live(place, "stream", "Gb/s", linerate_bulk, shown_bulk),
        live(place, "rr", "1/s", linerate_operations, shown_operations),
    ];
    buffers.into_iter().chain(live).collect()
}

fn buffers(place: &Place, flows: u32) -> Case {
    let measure = |option: &str| {
        let words = format!("{} --flows {flows}{option}", measured(place, "stream"));
        linerate(place, &words, linerate_bulk)
    };
    let sizes = BUFFERS.map(|(name, size)| Contestant {
        name,
        ..measure(&format!(" --buffer {size}"))
    });
    let plural = if flows == 1 { "" } else { "s" };
    Case {
        name: format!("buffer, stream, {flows} flow{plural}"),
        unit: "Gb/s",
        better: Better::More,
        contestants: std::iter::once(measure("")).chain(sizes).collect(),
    }
}

/// Reads the figure of what was printed.
type Read = fn(&str) -> Option<Figure>;

/// With the line, on a terminal of its own (script(1)), and with `--quiet`, which shows none and asks for no reports.
fn live(place: &Place, workload: &str, unit: &'static str, quiet: Read, shown: Read) -> Case {
    let quiet = Contestant {
        name: "--quiet",
        ..linerate(place, &measured(place, workload), quiet)
    };
    let command = quiet.client.iter().filter(|word| *word != "--quiet");
    let command: Vec<String> = command.map(|word| shell::quoted(word)).collect();
    let command = format!("TERM=xterm {}", command.join(" "));
    let client = ["script", "-qec", &command, "/dev/null"];
    Case {
        name: format!("live line, {workload}"),
        unit,
        better: Better::More,
        contestants: vec![
            Contestant {
                name: "linerate",
                from: "Debian: bsdutils",
                server: None,
                client: client.map(str::to_owned).to_vec(),
                figure: shown,
            },
            quiet,
        ],
    }
}

fn measured(place: &Place, workload: &str) -> String {
    let Place {
        address,
        seconds,
        peer,
        ..
    } = place;
    format!("measure {workload} {peer} --address {address} --time {seconds}")
}

fn shown_bulk(text: &str) -> Option<Figure> {
    linerate_bulk(after_the_line(text)?)
}

fn shown_operations(text: &str) -> Option<Figure> {
    linerate_operations(after_the_line(text)?)
}

/// The document on a terminal that has shown the line: where there was none, nothing is compared.
fn after_the_line(text: &str) -> Option<&str> {
    let (before, _) = text.split_once("\"schema\"")?;
    let document = text.get(before.rfind('{')?..)?;
    before.contains("left").then_some(document)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_read_only_from_a_terminal_that_has_shown_the_line() {
        let document = "{\r\n  \"schema\": \"linerate.sample/1\",\r\n  \"total\": {\"rate_bit_per_s\": 2e9, \"bytes\": 1}}\r\n";
        let shown = format!("measuring\r\n  2.00 Gb/s   1 s left\r\u{1b}[2K{document}");
        assert_eq!(shown_bulk(&shown).map(|figure| figure.value), Some(2.0));
        assert_eq!(shown_bulk(document), None);
    }
}
