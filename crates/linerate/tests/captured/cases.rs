//! The cases of `fixtures/rules`: rules that fire, are silent and are skipped, each by one changed fact of
//! a captured host. That every rule has all three is tested in its own file (`CASES`, in `crates/model`);
//! here the facts of a real host reach the rule.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use linerate_host::capture::Archive;
use linerate_model::build;
use linerate_model::finding::{Profile, Severity};
use linerate_model::ids::NicName;
use linerate_model::sample::Sample;
use linerate_model::units::Nanoseconds;
use serde::Deserialize;

use super::archives::repository;

/// The cases of one rule: a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cases {
    case: Vec<Case>,
}

/// One case of one rule.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    /// The rule's id: the name of the file.
    #[serde(skip)]
    pub(crate) rule: String,
    /// The case in one sentence.
    pub(crate) what: String,
    /// The captured host that is checked, as the local end.
    pub(crate) host: String,
    /// The captured host at the remote end.
    pub(crate) other: Option<String>,
    /// The trial that the rule sees.
    pub(crate) trial: Option<Trial>,
    /// The role of the host.
    #[serde(default = "throughput")]
    pub(crate) profile: Profile,
    /// What is changed of the host.
    pub(crate) edits: Edits,
    fires: Option<Fires>,
    #[serde(default)]
    silent: bool,
    skipped: Option<String>,
}

fn throughput() -> Profile {
    Profile::Throughput
}

/// One changed fact.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
pub(crate) struct Edits {
    /// A file's new text; `false` removes it.
    pub(crate) files: BTreeMap<String, Text>,
    /// Netlink's answers about an interface, by JSON pointer.
    nics: BTreeMap<NicName, BTreeMap<String, serde_json::Value>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Text {
    Is(String),
    /// `false`.
    Removed(#[expect(dead_code, reason = "only that it is no text matters")] bool),
}

impl Edits {
    /// `archive` with the fact changed.
    pub(crate) fn applied(&self, mut archive: Archive) -> Archive {
        for (path, text) in &self.files {
            let text = match text {
                Text::Is(text) => Some(text.as_str()),
                Text::Removed(_) => None,
            };
            archive = archive.edited(path, text);
        }
        for (nic, answers) in &self.nics {
            archive = archive
                .with_edited_nic(nic, answers)
                .unwrap_or_else(|error| panic!("{nic}: {error}"));
        }
        archive
    }
}

/// A trial that a case shows to its rule.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Trial {
    /// Both threads of one flow pinned to CPU 0.
    OnOneCpu,
    /// What a shaper of 1 Gb/s lets pass was reached.
    AtTheShaper,
    /// A flow limited by the send buffer over an RTT of 10 ms.
    HeldByTheSendBuffer,
}

impl Trial {
    pub(crate) fn sample(self) -> Sample {
        let builder = match self {
            Self::OnOneCpu => {
                let sample = build::sample().shared_kernel().cpus(0, 0).pinned();
                sample.cpu_share(0.5, 0.5)
            }
            Self::AtTheShaper => build::sample().shared_kernel().mbit(950),
            Self::HeldByTheSendBuffer => build::sample().limited(0.0, 0.9).tcp(|tcp| {
                tcp.rtt_min_ns = Nanoseconds::from_micros(10_000);
            }),
        };
        builder.build()
    }
}

/// One finding.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fires {
    pub(crate) severity: Severity,
    pub(crate) subject: String,
    /// Evidence that names the changed fact.
    pub(crate) evidence: Place,
    /// Every remedy, as it is printed.
    pub(crate) remedies: Vec<String>,
    /// Other rules whose warning about the same fact is correct; `bench/planted` reads them.
    #[serde(default)]
    pub(crate) also: BTreeSet<String>,
}

/// A value and where it was read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Place {
    pub(crate) value: String,
    pub(crate) path: String,
}

/// What a rule must report.
pub(crate) enum Expect<'a> {
    /// One finding.
    Fires(&'a Fires),
    /// Nothing.
    Silent,
    /// That the check was skipped for lack of the fact at this path.
    Skipped(&'a str),
}

impl Expect<'_> {
    /// The kind's word.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Fires(_) => "firing",
            Self::Silent => "silent",
            Self::Skipped(_) => "skipped",
        }
    }
}

impl Case {
    pub(crate) fn expect(&self) -> Expect<'_> {
        match (&self.fires, self.silent, &self.skipped) {
            (Some(fires), false, None) => Expect::Fires(fires),
            (None, true, None) => Expect::Silent,
            (None, false, Some(path)) => Expect::Skipped(path),
            _ => panic!(
                "{}: {}: one of `fires`, `silent` and `skipped`",
                self.rule, self.what
            ),
        }
    }
}

/// Every case, by the names of the files.
pub(crate) fn all() -> Vec<Case> {
    let folder = repository("fixtures/rules");
    let entries = fs::read_dir(&folder).expect("the folder of cases");
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .collect();
    files.sort();
    let mut all = Vec::new();
    for path in files {
        let name = path.file_stem().expect("a file's name").to_string_lossy();
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        let cases: Cases = toml::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        all.extend(cases.case.into_iter().map(|case| Case {
            rule: name.clone().into_owned(),
            ..case
        }));
    }
    all
}

#[test]
fn the_cases_cover_rules_that_fire_are_silent_and_are_skipped() {
    let all = all();
    assert!(all.len() >= 77, "{}", all.len());
    let whats: BTreeSet<&str> = all.iter().map(|case| case.what.as_str()).collect();
    assert_eq!(whats.len(), all.len(), "one sentence each");
    for word in ["firing", "silent", "skipped"] {
        let cases = all.iter().filter(|case| case.expect().word() == word);
        assert!(cases.count() >= 15, "{word}");
    }
}
