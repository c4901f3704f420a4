//! The archive of a captured host: a plain text file that can be reviewed line by line before sharing it, and stored
//! as a test fixture.
//!
//! ```text
//! linerate capture 1
//! by linerate 0.1.0
//! pseudonyms yes
//! file 644 1 /proc/sys/kernel/osrelease       permission bits, number of lines, path
//! 6.12.0
//! link /sys/class/net/eth2                    the next line is its target
//! ../../devices/pci0000:80/0000:80:01.0/0000:81:00.0/net/eth2
//! folder 755 2 /sys/class/net                 all its entries, by name
//! eth2
//! lo
//! absent /sys/class/infiniband                read but does not exist
//! gap denied /proc/config.gz                  the next line is the reason
//! Permission denied (os error 13)
//! nic 3 eth2                                  netlink data, as JSON of this many lines
//! ...
//! rdma 3 mlx5_0                               an RDMA device's data, likewise
//! ...
//! end 6 entries, checksum 1c291ca3            CRC-32 of all bytes before this line
//! ```
//!
//! Paths are resolved: they contain no links. Line breaks, other control characters and backslashes in a name are
//! escaped as in C (`\n`, `\x1b`, `\\`).

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

use linerate_model::ids::NicName;
use linerate_model::known::Cause;
use serde::Serialize;
use serde_json::{Map, Value};

use super::answers::{CapturedNics, CapturedRdma, NicAnswers};
use super::error::CaptureError;
use super::open::Captured;
use super::parser::Parser;
use crate::root::HostRoot;
use crate::root::tree::{Entry, Tree};

/// The beginning of the first line of every archive.
pub(crate) const MAGIC: &str = "linerate capture ";
/// The format version.
pub(crate) const FORMAT: u32 = 1;
/// A captured host as one text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archive {
    /// The version of linerate that captured it.
    pub version: String,
    /// Whether names and addresses in it are pseudonyms.
    pub pseudonyms: bool,
    pub(crate) tree: Tree,
    pub(crate) nics: CapturedNics,
    pub(crate) rdma: CapturedRdma,
}

impl Archive {
    /// The netlink data of `nic` at the time of capture.
    pub fn nic(&self, nic: &NicName) -> Option<&NicAnswers> {
        self.nics.0.get(nic)
    }

    /// The same host with another text in one file (`sys/class/net/eth2/mtu`; links are followed), or without the
    /// file: used by tests to make a rule fire, pass, or lack data.
    #[must_use]
    pub fn edited(mut self, path: &str, text: Option<&str>) -> Self {
        self.tree.edit(path, text);
        self
    }

    /// The same host with another symbolic link: used to add a device to a capture that has none.
    #[must_use]
    pub fn linked(mut self, path: &str, target: &str) -> Self {
        self.tree.put_link(path, target);
        self
    }

    /// The same host with a directory that was listed and had nothing: what is added below it is then in its list.
    #[must_use]
    pub fn with_folder(mut self, path: &str) -> Self {
        self.tree.put_folder(path);
        self
    }

    /// The same host with other netlink data for one interface.
    #[must_use]
    pub fn with_nic(mut self, nic: NicName, answers: NicAnswers) -> Self {
        self.nics.0.insert(nic, answers);
        self
    }

    /// The same host with some of an interface's netlink data replaced, each by its JSON pointer (RFC 6901, below
    /// [`NicAnswers`]). An interface that was not captured starts without data.
    pub fn with_edited_nic(
        self,
        nic: &NicName,
        changes: &BTreeMap<String, Value>,
    ) -> Result<Self, serde_json::Error> {
        let answers = self.nic(nic).cloned();
        let answers = answers.unwrap_or_else(|| NicAnswers::not_asked(nic));
        let mut json = serde_json::to_value(answers)?;
        for (pointer, value) in changes {
            put(&mut json, pointer, value.clone());
        }
        let answers = serde_json::from_value(json)?;
        Ok(self.with_nic(nic.clone(), answers))
    }

    /// The host, for the same readers as a live one.
    pub fn into_captured(self) -> Captured {
        Captured::of(HostRoot::in_memory(self.tree), self.nics, self.rdma)
    }

    /// Writes the archive.
    pub fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        let text = self.to_text();
        to.write_all(text.as_bytes())
    }

    /// The archive as text.
    pub fn to_text(&self) -> String {
        let answer = if self.pseudonyms { "yes" } else { "no" };
        let mut text = format!(
            "{MAGIC}{FORMAT}\nby linerate {}\npseudonyms {answer}\n",
            one_line(&self.version)
        );
        for (path, entry) in self.tree.iter() {
            write_entry(&mut text, path, entry);
        }
        for (nic, answers) in &self.nics.0 {
            write_answers(&mut text, "nic", nic.as_str(), answers);
        }
        for (device, answers) in &self.rdma.0 {
            write_answers(&mut text, "rdma", device, answers);
        }
        let entries = self.tree.iter().len() + self.nics.0.len() + self.rdma.0.len();
        let end = ending(entries as u64, crc32fast::hash(text.as_bytes()));
        text + "end " + &end + "\n"
    }

    /// Reads an archive line by line; its size in memory is limited.
    pub fn parse(from: impl BufRead) -> Result<Self, CaptureError> {
        Parser::of(from).archive()
    }
}

pub(crate) fn ending(entries: u64, checksum: u32) -> String {
    format!("{entries} entries, checksum {checksum:08x}")
}

fn write_entry(text: &mut String, path: &str, entry: &Entry) {
    let path = one_line(path);
    let head = match entry {
        Entry::File { mode, text: lines } => {
            format!("file {mode:o} {} /{path}\n{}", count(lines), ended(lines))
        }
        Entry::Folder { mode, names } => {
            let lines: String = names.iter().map(|name| one_line(name) + "\n").collect();
            format!("folder {mode:o} {} /{path}\n{lines}", names.len())
        }
        Entry::Link { target } => format!("link /{path}\n{}\n", one_line(target)),
        entry if *entry == Entry::absent() => format!("absent /{path}\n"),
        Entry::Gap { cause, reason } => {
            format!("gap {} /{path}\n{}\n", cause_word(*cause), one_line(reason))
        }
    };
    text.push_str(&head);
}

/// One key per line, so that it can be reviewed and a test can change one.
fn write_answers(text: &mut String, kind: &str, name: &str, answers: &impl Serialize) {
    let json = serde_json::to_value(answers).unwrap_or_default();
    let keys: Vec<String> = json
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("\"{key}\":{value}"))
        .collect();
    let (lines, json) = (keys.len(), keys.join(",\n"));
    let entry = format!("{kind} {lines} {}\n{{{json}}}\n", one_line(name));
    text.push_str(&entry);
}

fn count(lines: &str) -> usize {
    if lines.is_empty() {
        0
    } else {
        lines.split('\n').count()
    }
}

fn ended(lines: &str) -> String {
    if lines.is_empty() {
        String::new()
    } else {
        format!("{lines}\n")
    }
}

fn one_line(name: &str) -> String {
    let mut line = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '\\' => line.push_str("\\\\"),
            '\n' => line.push_str("\\n"),
            c if c.is_ascii_control() => {
                let escape = format!("\\x{:02x}", u32::from(c));
                line.push_str(&escape);
            }
            c => line.push(c),
        }
    }
    line
}

pub(crate) fn from_one_line(line: &str) -> Option<String> {
    let mut name = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            name.push(c);
            continue;
        }
        match chars.next()? {
            '\\' => name.push('\\'),
            'n' => name.push('\n'),
            'x' => {
                let digits: String = chars.by_ref().take(2).collect();
                name.push(char::from(u8::from_str_radix(&digits, 16).ok()?));
            }
            _ => return None,
        }
    }
    Some(name)
}

/// The names of [`Cause`] in an archive.
fn cause_word(cause: Cause) -> &'static str {
    match cause {
        Cause::Absent => "absent",
        Cause::Inapplicable => "inapplicable",
        Cause::Denied => "denied",
        Cause::Unreadable => "unreadable",
        Cause::NotSaid => "not-said",
        Cause::NotAsked => "not-asked",
    }
}

pub(crate) fn cause_of(word: &str) -> Option<Cause> {
    [
        Cause::Absent,
        Cause::Inapplicable,
        Cause::Denied,
        Cause::Unreadable,
        Cause::NotSaid,
        Cause::NotAsked,
    ]
    .into_iter()
    .find(|cause| cause_word(*cause) == word)
}

/// Sets `value` at a JSON pointer (RFC 6901); missing objects are created, and a gap on the path is replaced.
fn put(json: &mut Value, pointer: &str, value: Value) {
    let mut at = json;
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        if let (Value::Array(_), Ok(index)) = (&*at, part.parse::<usize>()) {
            let Some(next) = at.get_mut(index) else {
                return;
            };
            at = next;
            continue;
        }
        if !at.is_object() || at.get("unknown").is_some() {
            *at = Value::Object(Map::new());
        }
        let Some(object) = at.as_object_mut() else {
            return;
        };
        at = object.entry(part).or_insert(Value::Null);
    }
    *at = value;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use linerate_model::known::Known;
    use linerate_model::units::Bytes;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::rdma::{RdmaAnswers, RdmaPortAnswers};

    fn small() -> Archive {
        let mut tree = Tree::new(false);
        tree.put(
            "proc/a b",
            Entry::File {
                mode: 0o444,
                text: "one\n\ntwo \\ three".into(),
            },
        );
        tree.put(
            "sys/link\n\u{1b}",
            Entry::Link {
                target: "../x -> y".to_owned(),
            },
        );
        tree.put("sys/none", Entry::absent());
        tree.put(
            "sys/no",
            Entry::Gap {
                cause: Cause::Denied,
                reason: "Permission denied (os error 13)".to_owned(),
            },
        );
        let nic: NicName = "eth0".parse().expect("a name");
        let answers = NicAnswers::not_asked(&nic);
        let port = RdmaPortAnswers {
            mtu_active: Known::Value(Bytes::new(4096)),
            ..RdmaPortAnswers::default()
        };
        let device = RdmaAnswers {
            limits: Known::Value(BTreeMap::from([("max_qp".to_owned(), u64::MAX)])),
            ports: BTreeMap::from([(1, port)]),
            ..RdmaAnswers::default()
        };
        Archive {
            version: "0.1.0".to_owned(),
            pseudonyms: true,
            tree,
            nics: CapturedNics(BTreeMap::from([(nic, answers)])),
            rdma: CapturedRdma(BTreeMap::from([("mlx5_0".to_owned(), device)])),
        }
    }

    #[test]
    fn an_archive_reads_back_as_it_was_written() {
        let archive = small();
        let text = archive.to_text();
        assert_eq!(Archive::parse(text.as_bytes()).expect(&text), archive);
    }

    #[test]
    fn an_archive_that_is_cut_short_anywhere_is_refused() {
        let text = small().to_text();
        for end in 0..text.len() {
            let cut = Archive::parse(&text.as_bytes()[..end]);
            assert!(
                matches!(cut, Err(CaptureError::CutShort { .. })),
                "{end}: {cut:?}"
            );
        }
    }

    #[test]
    fn a_changed_archive_is_refused_with_the_end_that_would_accept_it() {
        let text = small().to_text().replace("two", "too");
        let error = Archive::parse(text.as_bytes()).expect_err("it was changed");
        let CaptureError::Changed {
            found, promised, ..
        } = error
        else {
            panic!("{error}");
        };
        let accepted = text.replace(&promised, &found);
        assert!(Archive::parse(accepted.as_bytes()).is_ok());
    }

    #[test]
    fn an_archive_of_a_later_format_names_both_formats() {
        let error = Archive::parse("linerate capture 2\n".as_bytes()).expect_err("later");
        assert!(
            error
                .to_string()
                .contains("format 2, this linerate reads format 1")
        );
    }

    #[test]
    fn a_wrong_line_is_named_by_its_number() {
        let text = "linerate capture 1\nby linerate 0\npseudonyms no\nfile x 1 /proc/a\n1\n";
        let error = Archive::parse(text.as_bytes()).expect_err("no mode");
        assert!(
            error.to_string().starts_with("line 4 of the archive"),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn no_text_panics_the_parser(lines in proptest::collection::vec(
            "(file|folder|link|absent|gap|nic|rdma|end)? ?[0-9]{0,20} ?[0-9]{0,3} ?[/a-z\\\\]{0,6}", 0..8,
        )) {
            let text = format!("{MAGIC}1\nby linerate 0\npseudonyms no\n{}\n", lines.join("\n"));
            let _ = Archive::parse(text.as_bytes());
        }
    }

    #[test]
    fn a_pointer_leads_through_lists_and_takes_the_place_of_a_gap() {
        let mut json = json!({"a": [{"b": 1}], "g": {"unknown": "absent"}});
        put(&mut json, "/a/0/b", json!(2));
        put(&mut json, "/g/x~1y", json!(3));
        assert_eq!(json, json!({"a": [{"b": 2}], "g": {"x/y": 3}}));
    }
}
